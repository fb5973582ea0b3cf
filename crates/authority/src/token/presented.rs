//! What a request, or the bearer of a token, presents: found, compared with what is on record, and from then on known by
//! its public part alone.

use std::sync::atomic::Ordering;

use countersign_pki::{CarriedFault, CarriedText, CheckedCsr, Fingerprint, UnixTime, carried};
use countersign_policy::{LedgerCertificate, Looked, Token, TokenBinding, TokenFacts, TokenUsed};
use tracing::error;

use super::{FoundToken, TokenId, TokenRecord, TokenStanding, TokenStatus, TokenText};
use crate::engine::Core;
use crate::evidence::evaluation::unavailable;
use crate::faults::EngineError;
use crate::issuing::Case;
use crate::model::{LedgerEntry, RequestRecord};
use crate::request::submission::Submission;
use crate::rules::Rules;
use crate::store::StoreFault;
use crate::token::Tokens;
use crate::token::bootstrap::BootstrapId;

/// What a request carries, before anything is looked up: what rates of failures are counted under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarriedToken {
    /// Nothing, or tokens are not in use.
    None,
    /// A well-formed token; its secret was not looked at.
    Id(TokenId),
    /// A bootstrap token, which no request carries but its sender may show; its secret was not looked at.
    Bootstrap(BootstrapId),
    /// Something else.
    Other,
}

/// That somebody has shown a token, with its secret. It comes from [`Tokens::bearer`] and from nowhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BearerToken {
    id: TokenId,
}

impl BearerToken {
    /// The token's public part.
    pub fn id(&self) -> &TokenId {
        &self.id
    }
}

/// What came with a request.
#[derive(Clone, Debug)]
pub(crate) enum Presented {
    /// A token whose secret was right.
    Verified(TokenId),
    /// Something else, or nothing.
    Other(TokenFacts),
    /// It could not be looked up, in words.
    Unreadable(String),
}

impl Default for Presented {
    fn default() -> Self {
        Self::Other(TokenFacts::Missing)
    }
}

impl Presented {
    /// What is on record of a request that was stored: its secret is not.
    pub(crate) fn recorded(facts: Option<&TokenFacts>) -> Self {
        let known = facts.and_then(TokenFacts::known);
        match known.and_then(|token| TokenId::parse(&token.id)) {
            Some(id) => Self::Verified(id),
            None => Self::Other(facts.cloned().unwrap_or(TokenFacts::Missing)),
        }
    }

    pub(crate) fn is_something(&self) -> bool {
        !matches!(self, Self::Other(TokenFacts::Missing))
    }

    pub(crate) fn verified(&self) -> Option<&TokenId> {
        match self {
            Self::Verified(id) => Some(id),
            Self::Other(_) | Self::Unreadable(_) => None,
        }
    }
}

/// A token that was looked up for a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct LookedUp {
    /// As it was then.
    pub(crate) record: Option<TokenRecord>,
    /// What the name has, and gives up for the certificate that the token brings.
    pub(crate) replaced: Vec<LedgerEntry>,
    /// How long the same key may ask for the same outcome again.
    pub(crate) retry_window: u64,
}

impl Tokens {
    /// What a request carries; nothing is looked up.
    pub fn carried(&self, csr: &CheckedCsr) -> CarriedToken {
        let tokens = &self.core.rules.load().tokens;
        if !tokens.enabled {
            return CarriedToken::None;
        }
        match carried(csr, &tokens.sources) {
            Ok(None) => CarriedToken::None,
            Ok(Some(text)) => TokenText::parse(text.expose())
                .map_or(CarriedToken::Other, |token| {
                    CarriedToken::Id(token.id().clone())
                }),
            Err(_) => CarriedToken::Other,
        }
    }

    /// What rules would see of the token that a request carries. Nothing is used up or recorded.
    pub async fn facts(&self, submission: &Submission) -> Result<Looked<TokenFacts>, EngineError> {
        let (rules, now) = (self.core.rules.load_full(), self.core.clock.now());
        let signer = rules.signer(&submission.signer);
        let case = submission.case(self.core.new_request_id(now)?, now, signer.as_deref());
        let bearer = submission.bearer.as_ref();
        let presented = self.core.present(&rules, &submission.csr, bearer).await;
        Ok(self.core.token_facts(&rules, case, &presented).await.0)
    }

    /// Whether a request carries a token with the right secret for its name: such requests have a budget of their own.
    pub async fn has_good(&self, csr: &CheckedCsr, certname: &str) -> Result<bool, StoreFault> {
        let rules = self.core.rules.load_full();
        let presented = self.core.present(&rules, csr, None).await;
        let Some(id) = presented.verified() else {
            return Ok(false);
        };
        let found = self.core.store.token(id, certname, &csr.key_fingerprint());
        Ok(found.await?.is_some_and(|found| {
            let now = self.core.clock.now();
            let record = &found.record;
            let is_open = record.standing == TokenStanding::Active && !found.is_stale;
            let is_left = record.uses < record.max_uses && now < record.expires_at;
            is_open && record.binding.covers(certname) && (is_left || found.same.is_some())
        }))
    }

    /// Who shows this as a bearer token: one that can be used, or whose use may be asked for again.
    pub async fn bearer(&self, text: &str) -> Result<Option<BearerToken>, StoreFault> {
        let rules = self.core.rules.load_full();
        let now = self.core.clock.now();
        let token = TokenText::parse(text).ok();
        let is_time = || self.core.clock_went_back().is_none();
        let Some(token) = token.filter(|_| rules.tokens.enabled && is_time()) else {
            return Ok(None);
        };
        let listed = self.core.store.listed_token(token.id(), now).await?;
        let kept = listed.as_ref().map(|listed| listed.record.kept());
        let is_right = rules.tokens.keys.verify(&token.message(), kept);
        let Some(listed) = listed.filter(|_| is_right) else {
            return Ok(None);
        };
        let record = listed.record;
        let is_open = match listed.status {
            TokenStatus::Active => record.not_before <= now.plus_seconds(SKEW_SECONDS),
            // Its holder waits for its certificate, or has yet to fetch it.
            TokenStatus::Reserved | TokenStatus::Issued => {
                let uses = self.core.store.token_uses(&record.id, 1).await?;
                uses.first().is_some_and(|used| now <= used.retry_until)
            }
            TokenStatus::Exhausted
            | TokenStatus::Expired
            | TokenStatus::Revoked
            | TokenStatus::Locked => false,
        };
        Ok(is_open.then_some(BearerToken { id: record.id }))
    }
}

impl Core {
    /// What came with a request. A secret is compared here and in [`Tokens::bearer`], and nowhere else.
    pub(crate) async fn present(
        &self,
        rules: &Rules,
        csr: &CheckedCsr,
        bearer: Option<&BearerToken>,
    ) -> Presented {
        if !rules.tokens.enabled {
            return Presented::Other(TokenFacts::Missing);
        }
        let text = match (carried(csr, &rules.tokens.sources), bearer) {
            (Ok(None), None) => return Presented::Other(TokenFacts::Missing),
            (Ok(None), Some(bearer)) => {
                return match self.clock_went_back() {
                    None => Presented::Verified(bearer.id.clone()),
                    Some(why) => Presented::Unreadable(why),
                };
            }
            (Ok(Some(text)), None) => text,
            (Ok(Some(_)), Some(_)) => {
                let why = "its sender showed one, and there is another in it".to_owned();
                return Presented::Other(TokenFacts::Ambiguous { why });
            }
            (Err(fault), _) => return Presented::Other(of_fault(fault)),
        };
        self.compared(rules, csr, &text).await
    }

    async fn compared(&self, rules: &Rules, csr: &CheckedCsr, text: &CarriedText) -> Presented {
        let token = match TokenText::parse(text.expose()) {
            Ok(token) => token,
            Err(fault) => {
                let why = fault.to_string();
                return Presented::Other(TokenFacts::Malformed { why });
            }
        };
        let id = token.id().clone();
        let found = self.store.token(&id, "", &csr.key_fingerprint()).await;
        let found = match found {
            Ok(found) => found,
            Err(fault) => return Presented::Unreadable(unavailable(&fault)),
        };
        let kept = found.as_ref().map(|found| found.record.kept());
        match rules.tokens.keys.verify(&token.message(), kept) {
            true => Presented::Verified(id),
            false => Presented::Other(TokenFacts::Unknown { id: id.to_string() }),
        }
    }

    /// What rules see of a token, and what goes with it if it is used.
    pub(crate) async fn token_facts(
        &self,
        rules: &Rules,
        case: Case<'_>,
        presented: &Presented,
    ) -> (Looked<TokenFacts>, LookedUp) {
        let mut looked_up = LookedUp {
            retry_window: rules.tokens.retry_window,
            ..LookedUp::default()
        };
        let id = match presented {
            Presented::Verified(id) => id,
            Presented::Other(facts) => return (Ok(facts.clone()), looked_up),
            Presented::Unreadable(why) => return (Err(why.clone()), looked_up),
        };
        if let Some(why) = self.clock_went_back() {
            return (Err(why), looked_up);
        }
        let request = case.request();
        let (name, key) = (
            rules.policy.token_name(&request),
            case.csr.key_fingerprint(),
        );
        let found = async {
            // The certificates first: whoever got one meanwhile by this token is then known as such.
            let standing = self.in_the_way(rules, case).await?;
            let found = self.store.token(id, name, &key).await?;
            // Its secret was right, be it long ago: its record must still say what it said then.
            let keys = &rules.tokens.keys;
            let Some(found) = found.filter(|found| keys.is_intact(&found.record.kept())) else {
                let unknown = TokenFacts::Unknown { id: id.to_string() };
                return Ok::<_, StoreFault>((unknown, Vec::new()));
            };
            let now = self.clock.now();
            // One that has ended is nobody's identity; one that was revoked says that somebody was to stay out.
            let existing = standing
                .iter()
                .find(|entry| entry.revoked.is_some() || entry.not_after >= now);
            let existing = existing.map(|entry| ledger_certificate(entry, &key));
            let mut facts = facts_of(&found, existing);
            // Whoever minted it for a pattern was not asked about this name.
            if matches!(facts.binding, TokenBinding::Glob(_))
                && standing.iter().any(|e| self.is_administrators_own(e))
            {
                facts.terms.allow_replace = false;
            }
            looked_up.record = Some(found.record);
            Ok((TokenFacts::Known(Box::new(facts)), standing))
        };
        match found.await {
            Ok((facts, replaced)) => {
                looked_up.replaced = replaced;
                (Ok(facts), looked_up)
            }
            Err(fault) => (Err(unavailable(&fault)), looked_up),
        }
    }

    /// The token that came with a request on record, if it is still good for it: whoever approves the request uses it up.
    pub(crate) async fn still_good_token(
        &self,
        rules: &Rules,
        record: &RequestRecord,
        csr: &CheckedCsr,
    ) -> Result<Option<TokenUsed>, EngineError> {
        let presented = Presented::recorded(record.evidence.token.as_ref());
        let id = presented.verified();
        let Some(id) = id.filter(|_| self.clock_went_back().is_none()) else {
            return Ok(None);
        };
        let signer = rules.signer(&record.signer);
        let case = record.case(signer.as_deref(), csr);
        let request = case.request();
        let (name, key) = (rules.policy.token_name(&request), csr.key_fingerprint());
        let found = self.store.token(id, name, &key).await?;
        let now = self.clock.now();
        let is_good = |found: &FoundToken| {
            // A person says what the certificate may say, and what becomes of another one.
            rules.tokens.keys.is_intact(&found.record.kept())
                && suits_by_name(&facts_of(found, None), name, now)
        };
        Ok(found.filter(is_good).map(|_| TokenUsed {
            id: id.to_string(),
            certname: name.to_owned(),
        }))
    }

    /// The certificates of the name, by the same signer, that another one would stand beside.
    async fn in_the_way(
        &self,
        rules: &Rules,
        case: Case<'_>,
    ) -> Result<Vec<LedgerEntry>, StoreFault> {
        let Some(signer) = rules.signer(case.signer) else {
            return Ok(Vec::new());
        };
        if signer.one_certificate_per_name {
            let newest = self.store.newest_certificate(&signer.issuer, case.name);
            return Ok(newest.await?.into_iter().collect());
        }
        let now = self.clock.now();
        let all = self.store.certificates_of(&signer.issuer, case.name, now);
        let mut all = all.await?;
        all.retain(|entry| {
            entry.signer == signer.name && entry.revoked.is_none() && entry.retired.is_none()
        });
        Ok(all)
    }

    /// Notes the time, and answers with the latest that was seen.
    pub(crate) fn saw_time(&self, now: UnixTime) -> i64 {
        self.latest.fetch_max(now.0, Ordering::Relaxed).max(now.0)
    }

    /// A clock that went back would bring tokens back whose time was over.
    pub(crate) fn clock_went_back(&self) -> Option<String> {
        let now = self.clock.now();
        let latest = self.saw_time(now);
        let UnixTime(back) = UnixTime(latest).minus_seconds(MAX_BACKWARDS);
        if now.0 >= back {
            return None;
        }
        error!(%now, latest = %UnixTime(latest), "the clock went back; tokens are refused until it is right");
        Some("the clock of the authority went back".to_owned())
    }
}

/// Whether a token is usable by a name, whatever the certificate says.
fn suits_by_name(token: &Token, name: &str, now: UnixTime) -> bool {
    let is_open = !token.revoked && !token.locked && token.binding.covers(name);
    let begins = token.not_before <= now.plus_seconds(SKEW_SECONDS);
    is_open
        && begins
        && now < token.expires_at
        && token.uses < token.max_uses
        && token.same.is_none()
}

/// What rules see of a token on record.
fn facts_of(found: &FoundToken, existing: Option<LedgerCertificate>) -> Token {
    let record = &found.record;
    Token {
        id: record.id.to_string(),
        binding: record.binding.clone(),
        not_before: record.not_before,
        expires_at: record.expires_at,
        max_uses: record.max_uses,
        uses: record.uses,
        revoked: found.is_stale || matches!(record.standing, TokenStanding::Revoked { .. }),
        locked: matches!(record.standing, TokenStanding::Locked { .. }),
        terms: record.terms.clone(),
        same: found.same.as_ref().map(super::TokenUseRecord::facts),
        other: found.other.as_ref().map(super::TokenUseRecord::facts),
        existing,
    }
}

fn ledger_certificate(entry: &LedgerEntry, key: &Fingerprint) -> LedgerCertificate {
    LedgerCertificate {
        serial: entry.serial.to_hex(),
        not_after: entry.not_after,
        same_key: entry.key_fingerprint == *key,
    }
}

fn of_fault(fault: CarriedFault) -> TokenFacts {
    let why = fault.to_string();
    match fault {
        CarriedFault::Ambiguous { .. } => TokenFacts::Ambiguous { why },
        CarriedFault::Malformed { .. } => TokenFacts::Malformed { why },
    }
}

/// How far a clock that minted may be ahead of the one that looks.
const SKEW_SECONDS: u64 = 60;
/// How far a clock may go back before tokens are refused.
const MAX_BACKWARDS: u64 = 300;
