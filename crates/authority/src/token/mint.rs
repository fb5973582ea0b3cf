//! Minting: what may be ordered, and how it comes into the books.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use countersign_pki::{Oid, UnixTime, oid, terminal_safe};
use countersign_policy::{
    Identity, Network, Policy, Requester, SignerName, TokenBinding, TokenTerms,
};
use tracing::info;
use zeroize::Zeroizing;

use super::text::{ID_BYTES, SECRET_BYTES};
use super::{
    ListedToken, TokenDetail, TokenFault, TokenFilter, TokenId, TokenRecord, TokenSettings,
    TokenStanding, TokenStatus, TokenText, looks_like_a_token, masked_tokens,
};
use crate::audit::AuditEntry;
use crate::certname::Certname;
use crate::engine::{Authority, Core};
use crate::faults::Broken;
use crate::model::Revision;
use crate::signing::{MAX_TRIES, commit_broken};
use crate::store::{Change, CommitFault, Precondition, StoreFault, Write};
use crate::telemetry::TokenEvent;

/// What a token shall be good for. It is checked when it is minted.
#[derive(Clone, Debug)]
pub struct TokenOrder {
    /// Whom it is for; names in any case.
    pub binding: TokenBinding,
    /// For how many seconds it is good; `None`: as configured.
    pub ttl_seconds: Option<u64>,
    /// For how many certificates; `None`: one. A pattern must say.
    pub max_uses: Option<u32>,
    /// From when on; `None`: now.
    pub not_before: Option<UnixTime>,
    /// Alternative names beside the name itself, as `DNS:x` or `IP:y`.
    pub allowed_sans: Vec<String>,
    /// Extensions and their values, by short name or dotted identifier; `None`: what the signer permits.
    pub allowed_extensions: Option<BTreeMap<String, Vec<String>>>,
    /// The one key that it is for, SHA-256 in hexadecimal.
    pub spki_sha256: Option<String>,
    /// Networks that the request must come from.
    pub source_cidrs: Vec<String>,
    /// Whether the certificate that the name has may be replaced.
    pub allow_replace: bool,
    /// Whether earlier tokens of the name stay good.
    pub keep_existing: bool,
    /// The one signer that it is for.
    pub profile: Option<String>,
    /// What it is called elsewhere.
    pub external_ref: String,
    /// For people.
    pub note: String,
}

impl TokenOrder {
    /// An order for one name with nothing else said.
    pub fn exact(name: &str) -> Self {
        Self::bound(TokenBinding::Exact(name.to_owned()))
    }

    /// An order with nothing else said.
    pub fn bound(binding: TokenBinding) -> Self {
        Self {
            binding,
            ttl_seconds: None,
            max_uses: None,
            not_before: None,
            allowed_sans: Vec::new(),
            allowed_extensions: None,
            spki_sha256: None,
            source_cidrs: Vec::new(),
            allow_replace: false,
            keep_existing: false,
            profile: None,
            external_ref: String::new(),
            note: String::new(),
        }
    }
}

/// A new token. This is the only time that it is whole.
#[derive(Debug)]
pub struct Minted {
    /// What is on record.
    pub record: TokenRecord,
    /// The token itself.
    pub token: TokenText,
}

impl Authority {
    /// Whether tokens are in use.
    pub fn tokens_enabled(&self) -> bool {
        self.core.rules.load().tokens.enabled
    }

    /// Mints a token. One for a name takes the place of the name's earlier ones, unless the order says otherwise.
    pub async fn mint_token(
        &self,
        order: TokenOrder,
        actor: &Requester,
        idempotency_key: Option<&str>,
    ) -> Result<Minted, TokenFault> {
        let core = Arc::clone(&self.core);
        let (actor, key) = (actor.clone(), idempotency_key.map(str::to_owned));
        self.carry_through(async move { core.mint(order, &actor, key).await })
            .await
    }

    /// A page of tokens, newest first.
    pub async fn tokens(&self, filter: TokenFilter) -> Result<Vec<ListedToken>, StoreFault> {
        self.core.store.tokens(filter).await
    }

    /// A token with its uses.
    pub async fn token(&self, id: &TokenId) -> Result<Option<TokenDetail>, StoreFault> {
        let (store, now) = (&self.core.store, self.now());
        let Some(listed) = store.listed_token(id, now).await? else {
            return Ok(None);
        };
        let uses = store.token_uses(id, SHOWN_USES).await?;
        Ok(Some(TokenDetail { listed, uses }))
    }
}

impl Core {
    async fn mint(
        &self,
        order: TokenOrder,
        actor: &Requester,
        idempotency_key: Option<String>,
    ) -> Result<Minted, TokenFault> {
        let rules = self.rules.load_full();
        let settings = &rules.tokens;
        if !settings.enabled {
            return Err(TokenFault::Disabled);
        }
        let idempotency_key = idempotency_key.map(checked_key).transpose()?;
        let created_by = name_of(actor);
        let now = self.clock.now();
        let order = checked(order, settings, &rules.policy, now)?;
        let token = self.new_token()?;
        let (mac, mac_key_id) = settings.keys.mac(&token);
        let record = TokenRecord {
            id: token.id().clone(),
            mac,
            mac_key_id,
            binding: order.binding,
            not_before: order.not_before,
            expires_at: order.expires_at,
            max_uses: order.max_uses,
            uses: 0,
            standing: TokenStanding::Active,
            terms: order.terms,
            created_by,
            external_ref: order.external_ref,
            note: order.note,
            created_at: now,
            failed_uses: 0,
            epoch: 0,
            idempotency_key,
            version: Revision::default(),
        };
        for _ in 0..MAX_TRIES {
            let mut change = self.minting(&record, actor).await?;
            let mut superseded = 0;
            if !order.keep_existing {
                let by = Some(&record.id);
                let ended = self.end_tokens_of(&record.binding, by, actor, &mut change);
                superseded = ended.await.map_err(Broken::from)?;
            }
            self.find_room_for_token(superseded, settings.max_active)
                .await?;
            match self.commit(change).await {
                Ok(_) => {
                    let (id, expires_at) = (&record.id, record.expires_at);
                    info!(token = %id, name = %record.binding, %expires_at, %actor, "token minted");
                    self.telemetry.token(TokenEvent::Minted, "");
                    return Ok(Minted { record, token });
                }
                // Another token of the name, or the same order, came meanwhile.
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other).into()),
            }
        }
        Err(Broken::Contended.into())
    }

    async fn minting(&self, record: &TokenRecord, actor: &Requester) -> Result<Change, TokenFault> {
        let mut change = Change::default();
        if let Some(key) = &record.idempotency_key {
            let ordered = self.store.token_ordered(&record.created_by, key).await;
            if let Some(id) = ordered.map_err(Broken::from)? {
                return Err(TokenFault::AlreadyOrdered { id });
            }
            change.preconditions.push(Precondition::TokenNotOrdered {
                created_by: record.created_by.clone(),
                idempotency_key: key.clone(),
            });
        }
        change.writes.push(Write::PutToken(record.clone()));
        let entry = token_entry(record.created_at, actor, "token.minted", record);
        change.audit.push(entry.detail(terms_in_words(record)));
        Ok(change)
    }

    /// Whether one more token may be usable, beside those that it takes the place of. A limit, not a boundary.
    async fn find_room_for_token(&self, superseded: usize, limit: usize) -> Result<(), TokenFault> {
        let most = limit.saturating_add(superseded);
        let active = self.store.active_tokens(self.clock.now(), most).await;
        match active.map_err(Broken::from)? < most {
            true => Ok(()),
            false => Err(TokenFault::TooMany { limit }),
        }
    }

    fn new_token(&self) -> Result<TokenText, Broken> {
        let mut id = [0; ID_BYTES];
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        self.entropy.fill(&mut id)?;
        self.entropy.fill(&mut *secret)?;
        Ok(TokenText::new(id, *secret))
    }

    /// Adds to a change that a name is cleaned away: its tokens end, and those that it has used are no key to anything.
    pub(crate) async fn end_tokens_of_cleaned(
        &self,
        name: &str,
        actor: &Requester,
        change: &mut Change,
    ) -> Result<(), StoreFault> {
        let binding = TokenBinding::Exact(name.to_owned());
        self.end_tokens_of(&binding, None, actor, change).await?;
        let now = self.clock.now();
        let used = TokenFilter {
            certname: Some(name.to_owned()),
            status: Some(TokenStatus::Issued),
            ..TokenFilter::newest(now, MAX_LISTED)
        };
        for listed in self.store.tokens(used).await? {
            let token = listed.record;
            change.writes.insert(0, revoked(&token, None, now));
            let entry = token_entry(now, actor, "token.revoked", &token);
            change.audit.push(entry.detail("its name was cleaned"));
        }
        Ok(())
    }

    /// Adds to a change that every token for exactly this name that can be used ends, because another takes their place or
    /// it was taken back. Returns how many.
    pub(crate) async fn end_tokens_of(
        &self,
        binding: &TokenBinding,
        superseded_by: Option<&TokenId>,
        actor: &Requester,
        change: &mut Change,
    ) -> Result<usize, StoreFault> {
        let TokenBinding::Exact(certname) = binding else {
            return Ok(0);
        };
        let now = self.clock.now();
        let active = self.store.active_tokens_of(certname, now).await?;
        change.preconditions.push(Precondition::ActiveTokens {
            certname: certname.clone(),
            ids: active.iter().map(|token| token.id.clone()).collect(),
            at: now,
        });
        for token in &active {
            let (action, detail) = match superseded_by {
                Some(by) => ("token.superseded", format!("by token {by}")),
                None => ("token.revoked", String::new()),
            };
            // Those that end come first: the one that takes their place must not end with them.
            change.writes.insert(0, revoked(token, superseded_by, now));
            let entry = token_entry(now, actor, action, token);
            change.audit.push(entry.detail(detail));
        }
        Ok(active.len())
    }
}

fn revoked(token: &TokenRecord, superseded_by: Option<&TokenId>, at: UnixTime) -> Write {
    Write::EndToken {
        id: token.id.clone(),
        standing: TokenStanding::Revoked {
            at,
            superseded_by: superseded_by.cloned(),
        },
    }
}

/// An order that can be carried out.
struct Checked {
    binding: TokenBinding,
    not_before: UnixTime,
    expires_at: UnixTime,
    max_uses: u32,
    terms: TokenTerms,
    keep_existing: bool,
    external_ref: String,
    note: String,
}

fn checked(
    order: TokenOrder,
    settings: &TokenSettings,
    policy: &Policy,
    now: UnixTime,
) -> Result<Checked, TokenFault> {
    let binding = checked_binding(&order.binding, policy)?;
    let is_glob = matches!(binding, TokenBinding::Glob(_));
    let longest = match is_glob {
        true => settings.glob_max_ttl.min(settings.max_ttl),
        false => settings.max_ttl,
    };
    let ttl = order
        .ttl_seconds
        .unwrap_or(settings.default_ttl.min(longest));
    if !(1..=longest).contains(&ttl) {
        let problem = format!("must be from 1 to {longest} seconds");
        return Err(TokenFault::field("ttl_seconds", problem));
    }
    let max_uses = match (order.max_uses, is_glob) {
        (None, true) => {
            let problem = "a token for a pattern must say how often it may be used";
            return Err(TokenFault::field("max_uses", problem));
        }
        (None, false) => 1,
        (Some(uses), _) if (1..=MAX_USES).contains(&uses) => uses,
        (Some(_), _) => {
            let problem = format!("must be from 1 to {MAX_USES}");
            return Err(TokenFault::field("max_uses", problem));
        }
    };
    let not_before = order.not_before.map_or(now, |from| from.max(now));
    if not_before > now.plus_seconds(settings.max_ttl) {
        let problem = format!("is more than {} seconds ahead", settings.max_ttl);
        return Err(TokenFault::field("not_before", problem));
    }
    Ok(Checked {
        binding,
        not_before,
        expires_at: not_before.plus_seconds(ttl),
        max_uses,
        keep_existing: order.keep_existing,
        external_ref: checked_text("external_ref", order.external_ref.clone())?,
        note: checked_text("note", order.note.clone())?,
        terms: checked_terms(order)?,
    })
}

fn checked_binding(binding: &TokenBinding, policy: &Policy) -> Result<TokenBinding, TokenFault> {
    match binding {
        TokenBinding::Exact(name) => {
            let name = name.to_ascii_lowercase();
            Certname::parse(&name).map_err(|fault| TokenFault::Name {
                name: masked_tokens(&terminal_safe(&name)).into_owned(),
                fault,
            })?;
            if policy.reserves(&name) {
                let problem =
                    format!("{name} is a name of the authority or of somebody with a role");
                return Err(TokenFault::field("certname", problem));
            }
            Ok(TokenBinding::Exact(name))
        }
        TokenBinding::Glob(pattern) => {
            let pattern = pattern.to_ascii_lowercase();
            let wrong = |problem: &str| Err(TokenFault::field("glob", problem));
            let Some(domain) = pattern.strip_prefix("*.") else {
                return wrong("must be `*.` and a domain, for example *.dmz.example.com");
            };
            if domain.split('.').count() < 2 {
                return wrong("must have at least two labels behind `*.`");
            }
            if domain.ends_with('.') || Certname::parse(domain).is_err() {
                return wrong("has a domain that no name can end with");
            }
            Ok(TokenBinding::Glob(pattern))
        }
    }
}

fn checked_terms(order: TokenOrder) -> Result<TokenTerms, TokenFault> {
    let allowed_sans = checked_sans(&order.allowed_sans)?;
    let allowed_extensions = match order.allowed_extensions {
        Some(listed) => Some(checked_extensions(listed)?),
        None => None,
    };
    let spki_sha256 = order
        .spki_sha256
        .map(|hex| hex.replace(':', "").to_ascii_lowercase());
    let is_digest = |hex: &String| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    if spki_sha256.as_ref().is_some_and(|hex| !is_digest(hex)) {
        let problem = "must be the SHA-256 of a public key in 64 hexadecimal digits";
        return Err(TokenFault::field("spki_sha256", problem));
    }
    if order.source_cidrs.len() > MAX_LISTED {
        return Err(too_many("source_cidrs"));
    }
    let networks = order.source_cidrs.iter().map(|text| {
        Network::parse(text).ok_or_else(|| {
            let problem = format!("{} is no network such as 192.0.2.0/24", shown(text));
            TokenFault::field("source_cidrs", problem)
        })
    });
    let source_cidrs = networks.collect::<Result<Vec<_>, _>>()?;
    let profile = order.profile.unwrap_or_default();
    if !profile.is_empty()
        && let Err(fault) = SignerName::parse(&profile)
    {
        return Err(TokenFault::field("profile", fault));
    }
    Ok(TokenTerms {
        allowed_sans,
        allowed_extensions,
        spki_sha256,
        source_cidrs,
        allow_replace: order.allow_replace,
        profile,
    })
}

fn checked_sans(listed: &[String]) -> Result<Vec<String>, TokenFault> {
    if listed.len() > MAX_LISTED {
        return Err(too_many("allowed_sans"));
    }
    let checked = listed.iter().map(|san| {
        let wrong = || {
            let problem = format!("{} is neither DNS:name nor IP:address", shown(san));
            TokenFault::field("allowed_sans", problem)
        };
        let (kind, value) = san.split_once(':').ok_or_else(wrong)?;
        let is_text = |value: &str| {
            !value.is_empty()
                && value.len() <= MAX_TEXT
                && value.bytes().all(|b| b.is_ascii_graphic())
        };
        match kind {
            "DNS" => {
                let name = value.to_ascii_lowercase();
                let literal = name.strip_prefix("*.").unwrap_or(&name);
                Certname::parse(literal).map_err(|_| wrong())?;
                Ok(format!("DNS:{name}"))
            }
            "IP" => {
                let address: IpAddr = value.parse().map_err(|_| wrong())?;
                Ok(format!("IP:{address}"))
            }
            "email" | "URI" if is_text(value) && !looks_like_a_token(value) => Ok(san.clone()),
            _ => Err(wrong()),
        }
    });
    checked.collect()
}

fn checked_extensions(
    listed: BTreeMap<String, Vec<String>>,
) -> Result<BTreeMap<String, Vec<String>>, TokenFault> {
    let field = "allowed_extensions";
    if listed.len() > MAX_LISTED {
        return Err(too_many(field));
    }
    let mut checked = BTreeMap::new();
    for (name, values) in listed {
        let oid = oid::puppet_oid(&name).or_else(|| Oid::parse(&name).ok());
        let Some(oid) = oid else {
            let problem = format!("{} is neither a short name nor dotted", shown(&name));
            return Err(TokenFault::field(field, problem));
        };
        if oid == oid::PP_PRESHARED_KEY || oid == oid::SUBJECT_ALT_NAME {
            let problem = format!("{} cannot be permitted here", shown(&name));
            return Err(TokenFault::field(field, problem));
        }
        let is_bad = |value: &String| value.len() > MAX_TEXT || looks_like_a_token(value);
        if values.is_empty() || values.len() > MAX_LISTED || values.iter().any(is_bad) {
            let problem = format!("{} needs a list of values of usual length", shown(&name));
            return Err(TokenFault::field(field, problem));
        }
        if checked.insert(oid.to_string(), values).is_some() {
            let problem = format!("{} is listed twice", shown(&name));
            return Err(TokenFault::field(field, problem));
        }
    }
    Ok(checked)
}

fn checked_text(field: &'static str, text: String) -> Result<String, TokenFault> {
    if text.len() > MAX_TEXT || text.contains(char::is_control) {
        let problem = format!("must be one line of at most {MAX_TEXT} bytes");
        return Err(TokenFault::field(field, problem));
    }
    if looks_like_a_token(&text) {
        return Err(TokenFault::field(field, "must not hold a token"));
    }
    Ok(text)
}

fn checked_key(key: String) -> Result<String, TokenFault> {
    let is_fit = (1..=255).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
    if !is_fit || looks_like_a_token(&key) {
        let problem = "must be 1 to 255 visible characters of ASCII";
        return Err(TokenFault::field("Idempotency-Key", problem));
    }
    Ok(key)
}

fn too_many(field: &'static str) -> TokenFault {
    TokenFault::field(field, format!("has more than {MAX_LISTED} entries"))
}

/// Input as an error shows it: short, and nothing that may be a secret.
fn shown(text: &str) -> String {
    let start: String = text.chars().take(80).collect();
    format!("{:?}", masked_tokens(&start))
}

/// Who acts, without the address.
pub(crate) fn name_of(actor: &Requester) -> String {
    match &actor.identity {
        Identity::Anonymous => "anonymous".to_owned(),
        Identity::Authority => "authority".to_owned(),
        Identity::Certname { certname } => certname.clone(),
        Identity::User { username, .. } => username.clone(),
    }
}

pub(crate) fn token_entry(
    at: UnixTime,
    actor: &Requester,
    action: &'static str,
    record: &TokenRecord,
) -> AuditEntry {
    AuditEntry::new(at, actor.clone(), action, format!("token/{}", record.id))
        .token(&record.id)
        .certname(record.binding.value())
}

fn terms_in_words(record: &TokenRecord) -> String {
    let (kind, value) = (record.binding.kind(), record.binding.value());
    let mut words = format!(
        "{kind} {value}, from {} until {}, max_uses {}",
        record.not_before, record.expires_at, record.max_uses
    );
    if record.terms != TokenTerms::default() {
        let terms = serde_json::to_string(&record.terms).unwrap_or_default();
        words.push_str(", ");
        words.push_str(&terms);
    }
    words
}

/// More certificates than one pattern is for.
const MAX_USES: u32 = 1000;
const MAX_LISTED: usize = 100;
const MAX_TEXT: usize = 1024;
const SHOWN_USES: usize = 1000;
