//! Bootstrap tokens: a password that many machines may show, until it ends or is taken back.
//!
//! Unlike an enrolment token it enrols nobody: whoever shows one is a user with the token's id, as the door calls it, and
//! has the rights of that user. What is kept of a token verifies it and does not reveal it.

mod text;

use std::fmt;
use std::sync::Arc;

use countersign_pki::UnixTime;
use countersign_policy::{Requester, looks_like_a_token};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::info;

pub use text::{BootstrapId, BootstrapText, bootstrap_ids_in, masked_bootstrap_tokens};

use crate::audit::AuditEntry;
use crate::authorisation::actor::Actor;
use crate::detached::run_detached;
use crate::engine::Core;
use crate::faults::EngineError;
use crate::issuing::{MAX_TRIES, commit_broken};
use crate::store::{Change, CommitFault, Precondition, StoreFault, Write};
use crate::token::Tokens;
use crate::token::mac::{Kept, Terms};
use crate::token::{TokenFault, name_of};

/// A bootstrap token on record. Its secret is nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapRecord {
    /// Its public part.
    pub id: BootstrapId,
    /// HMAC-SHA-256 or SHA-256 of it.
    pub mac: [u8; 32],
    /// The key of the former; empty: none.
    pub mac_key_id: String,
    /// HMAC-SHA-256, by the same key, of what the record says and nobody may change; none without a key.
    pub terms_mac: Option<[u8; 32]>,
    /// Groups of whoever shows it, beside those that all such users have.
    pub groups: Vec<String>,
    /// For people.
    pub description: String,
    /// From this on it is not good; `None`: it has no end.
    pub expires_at: Option<UnixTime>,
    /// Who minted it.
    pub created_by: String,
    /// When.
    pub created_at: UnixTime,
    /// When it was taken back.
    pub revoked_at: Option<UnixTime>,
    /// How often the store had been restored then; set by the store.
    pub epoch: u64,
}

impl fmt::Debug for BootstrapRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootstrapRecord({}, {:?})", self.id, self.revoked_at)
    }
}

impl BootstrapRecord {
    /// What verifies it.
    pub(super) fn kept(&self) -> Kept<'_> {
        Kept {
            id: self.id.as_str(),
            mac: &self.mac,
            key_id: &self.mac_key_id,
            terms_mac: self.terms_mac.as_ref(),
            terms: self.fixed_terms(),
        }
    }

    fn fixed_terms(&self) -> Terms {
        let end = self.expires_at.map_or(i64::MAX, |end| end.0);
        let terms = Terms::of("bootstrap")
            .with(self.id.as_str().as_bytes())
            .with(&self.mac)
            .with_number(end)
            .with_number(self.epoch)
            .with(self.created_by.as_bytes());
        let groups = self.groups.iter();
        groups.fold(terms, |terms, group| terms.with(group.as_bytes()))
    }
}

/// A bootstrap token as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapToken {
    /// What is on record.
    pub record: BootstrapRecord,
    /// Whether it is from before a restore: it may have been taken back since, so it is not good.
    pub is_stale: bool,
}

impl BootstrapToken {
    /// Where it stands.
    pub fn status(&self, now: UnixTime) -> BootstrapStatus {
        let record = &self.record;
        if self.is_stale || record.revoked_at.is_some() {
            BootstrapStatus::Revoked
        } else if record.expires_at.is_some_and(|end| end <= now) {
            BootstrapStatus::Expired
        } else {
            BootstrapStatus::Active
        }
    }
}

/// Where a bootstrap token stands, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BootstrapStatus {
    /// It is good.
    Active,
    /// Its time is over.
    Expired,
    /// It was taken back, or is from before a restore.
    Revoked,
}

/// What a bootstrap token shall be.
#[derive(Clone, Debug, Default)]
pub struct BootstrapOrder {
    /// For how many seconds it is good; `None`: a day; 0: until it is taken back.
    pub ttl_seconds: Option<u64>,
    /// Groups of whoever shows it, beside those that all such users have.
    pub groups: Vec<String>,
    /// What each group begins with, as the door says; `None`: it has no groups.
    pub group_prefix: Option<&'static str>,
    /// For people.
    pub description: String,
}

/// A new bootstrap token. This is the only time that it is whole.
#[derive(Debug)]
pub struct MintedBootstrap {
    /// What is on record.
    pub record: BootstrapRecord,
    /// The token itself.
    pub token: BootstrapText,
}

/// That somebody has shown a bootstrap token, with its secret. It comes from [`Tokens::bootstrap_user`] and from
/// nowhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapUser {
    id: BootstrapId,
    groups: Vec<String>,
}

impl BootstrapUser {
    /// The token's public part.
    pub fn id(&self) -> &BootstrapId {
        &self.id
    }

    /// Its groups, beside those that all such users have.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }
}

impl Tokens {
    /// Mints a bootstrap token.
    ///
    /// # Errors
    /// If a field of the order cannot be.
    pub async fn mint_bootstrap(
        &self,
        order: BootstrapOrder,
        actor: &Actor,
    ) -> Result<MintedBootstrap, TokenFault> {
        let (core, actor) = (Arc::clone(&self.core), actor.clone());
        run_detached(async move {
            let what = "bootstrap_token.minted";
            core.authorise_bootstrap(what, &actor).await?;
            core.mint_bootstrap(order, &actor.requester).await
        })
        .await
    }

    /// A page of bootstrap tokens, newest first, behind `after`.
    pub async fn list_bootstrap(
        &self,
        after: Option<BootstrapId>,
        limit: usize,
    ) -> Result<Vec<BootstrapToken>, StoreFault> {
        self.core.store.bootstrap_tokens(after, limit).await
    }

    /// A bootstrap token.
    pub async fn get_bootstrap(
        &self,
        id: &BootstrapId,
    ) -> Result<Option<BootstrapToken>, StoreFault> {
        self.core.store.bootstrap_token(id).await
    }

    /// Who shows this, if it is a bootstrap token that is good now. One that nobody minted takes as long as one with a wrong
    /// secret.
    pub async fn bootstrap_user(&self, text: &str) -> Result<Option<BootstrapUser>, StoreFault> {
        let Some(token) = BootstrapText::parse(text) else {
            return Ok(None);
        };
        let rules = self.core.rules.load_full();
        let found = self.core.store.bootstrap_token(token.id()).await?;
        let kept = found.as_ref().map(|found| found.record.kept());
        let is_right = rules.tokens.keys.verify(&token.message(), kept);
        // A clock that went back would bring back what has ended.
        let is_time = self.core.clock_went_back().is_none();
        let now = self.core.clock.now();
        let is_good = |found: &BootstrapToken| {
            is_right && is_time && found.status(now) == BootstrapStatus::Active
        };
        Ok(found
            .filter(is_good)
            .map(|BootstrapToken { record, .. }| BootstrapUser {
                id: record.id,
                groups: record.groups,
            }))
    }

    /// Takes a bootstrap token back. One that was taken back before stays as it was.
    ///
    /// # Errors
    /// If there is none.
    pub async fn revoke_bootstrap(
        &self,
        id: &BootstrapId,
        actor: &Actor,
    ) -> Result<(), TokenFault> {
        let core = Arc::clone(&self.core);
        let (id, actor) = (id.clone(), actor.clone());
        run_detached(async move {
            let what = "bootstrap_token.revoked";
            core.authorise_bootstrap(what, &actor).await?;
            core.revoke_bootstrap(&id, &actor.requester).await
        })
        .await
    }

    /// Forgets bootstrap tokens that have been over for long enough. Returns how many.
    pub async fn purge_bootstrap(&self) -> Result<usize, EngineError> {
        let core = Arc::clone(&self.core);
        run_detached(async move { core.purge_bootstrap().await }).await
    }
}

impl Core {
    async fn mint_bootstrap(
        &self,
        order: BootstrapOrder,
        actor: &Requester,
    ) -> Result<MintedBootstrap, TokenFault> {
        let now = self.clock.now();
        let expires_at = checked_ttl(order.ttl_seconds)?.map(|ttl| now.plus_seconds(ttl));
        let groups = checked_groups(order.groups, order.group_prefix)?;
        let description = checked_description(order.description)?;
        let rules = self.rules.load_full();
        let epoch = self.store.epoch().await.map_err(EngineError::from)?;
        for _ in 0..MAX_TRIES {
            let token = BootstrapText::random(&*self.entropy).map_err(EngineError::from)?;
            let (mac, mac_key_id) = rules.tokens.keys.mac(&token.message())?;
            let mut record = BootstrapRecord {
                id: token.id().clone(),
                mac,
                mac_key_id,
                terms_mac: None,
                groups: groups.clone(),
                description: description.clone(),
                expires_at,
                created_by: name_of(actor),
                created_at: now,
                revoked_at: None,
                epoch,
            };
            record.terms_mac = rules.tokens.keys.terms_mac(&record.fixed_terms());
            let entry = entry(now, actor, "bootstrap_token.minted", &record.id);
            let change = Change {
                preconditions: Vec::new(),
                writes: vec![Write::PutBootstrapToken(record.clone())],
                audit: vec![entry.detail(in_words(&record))],
            };
            match self.commit(change).await {
                Ok(_) => {
                    info!(token = %record.id, %actor, "bootstrap token minted");
                    return Ok(MintedBootstrap { record, token });
                }
                // Another one has its id.
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other).into()),
            }
        }
        Err(EngineError::Contended.into())
    }

    async fn revoke_bootstrap(
        &self,
        id: &BootstrapId,
        actor: &Requester,
    ) -> Result<(), TokenFault> {
        for _ in 0..MAX_TRIES {
            let found = self.store.bootstrap_token(id).await;
            let found = found.map_err(EngineError::from)?;
            let found = found.ok_or_else(|| TokenFault::NotFound { id: id.to_string() })?;
            if found.record.revoked_at.is_some() {
                return Ok(());
            }
            let now = self.clock.now();
            let change = Change {
                preconditions: vec![Precondition::BootstrapTokenStands { id: id.clone() }],
                writes: vec![Write::RevokeBootstrapToken {
                    id: id.clone(),
                    at: now,
                }],
                audit: vec![entry(now, actor, "bootstrap_token.revoked", id)],
            };
            match self.commit(change).await {
                Ok(_) => {
                    info!(token = %id, %actor, "bootstrap token revoked");
                    return Ok(());
                }
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other).into()),
            }
        }
        Err(EngineError::Contended.into())
    }

    async fn purge_bootstrap(&self) -> Result<usize, EngineError> {
        let mut total: usize = 0;
        loop {
            let now = self.clock.now();
            let before = now.minus_seconds(self.rules.load().tokens.purge_after);
            let over = self
                .store
                .bootstrap_tokens_over(before, PURGE_BATCH)
                .await?;
            let count = over.len();
            if count == 0 {
                return Ok(total);
            }
            let own = Requester::authority();
            let purged = |id| entry(now, &own, "bootstrap_token.purged", id);
            let change = Change {
                preconditions: Vec::new(),
                audit: over.iter().map(purged).collect(),
                writes: over
                    .into_iter()
                    .map(|id| Write::ForgetBootstrapToken { id })
                    .collect(),
            };
            self.commit(change).await.map_err(commit_broken)?;
            info!(count, "bootstrap tokens that are over were forgotten");
            total = total.saturating_add(count);
        }
    }
}

/// For how many seconds a token is good; `None`: it has no end.
fn checked_ttl(ordered: Option<u64>) -> Result<Option<u64>, TokenFault> {
    match ordered {
        None => Ok(Some(DEFAULT_TTL)),
        Some(0) => Ok(None),
        Some(ttl) if ttl <= MAX_TTL => Ok(Some(ttl)),
        Some(_) => {
            let problem = format!("must be from 0 to {MAX_TTL} seconds; 0 is without end");
            Err(TokenFault::field("ttl_seconds", problem))
        }
    }
}

/// Groups that are the prefix and `[a-z0-9:-]{0,255}[a-z0-9]`.
fn checked_groups(
    mut groups: Vec<String>,
    prefix: Option<&str>,
) -> Result<Vec<String>, TokenFault> {
    let wrong = |problem: String| Err(TokenFault::field("groups", problem));
    if groups.len() > MAX_GROUPS {
        return wrong("must be at most 32".to_owned());
    }
    match prefix {
        Some(prefix) if !groups.iter().all(|group| is_group(group, prefix)) => {
            return wrong(format!(
                "must be {prefix} and at most 256 characters of a-z, 0-9, : and -, for example {prefix}rack7"
            ));
        }
        None if !groups.is_empty() => return wrong("must be empty".to_owned()),
        Some(_) | None => {}
    }
    groups.sort();
    groups.dedup();
    Ok(groups)
}

fn is_group(group: &str, prefix: &str) -> bool {
    let Some(own) = group.strip_prefix(prefix) else {
        return false;
    };
    let is_sign = |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit();
    let ends_well = own.bytes().last().is_some_and(is_sign);
    ends_well && own.len() <= 256 && own.bytes().all(|o| is_sign(o) || o == b':' || o == b'-')
}

fn checked_description(text: String) -> Result<String, TokenFault> {
    let wrong = |problem: &str| Err(TokenFault::field("description", problem));
    if text.len() > MAX_TEXT || text.contains(char::is_control) {
        return wrong("must be one line of at most 1024 bytes");
    }
    if looks_like_a_token(&text) || masked_bootstrap_tokens(&text) != text {
        return wrong("must not hold a token");
    }
    Ok(text)
}

fn entry(at: UnixTime, actor: &Requester, action: &'static str, id: &BootstrapId) -> AuditEntry {
    let subject = format!("bootstrap-token/{id}");
    AuditEntry::new(at, actor.clone(), action, subject).token(id)
}

fn in_words(record: &BootstrapRecord) -> String {
    let end = match record.expires_at {
        Some(end) => format!("good until {end}"),
        None => "without end".to_owned(),
    };
    match record.groups.is_empty() {
        true => end,
        false => format!("{end}, groups {}", record.groups.join(", ")),
    }
}

/// As kubeadm has it.
const DEFAULT_TTL: u64 = 86_400;
/// Ten years: more is an end that nobody meant.
const MAX_TTL: u64 = 10 * 366 * 86_400;
const MAX_GROUPS: usize = 32;
const MAX_TEXT: usize = 1024;
const PURGE_BATCH: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_that_the_csr_api_allows() {
        const PREFIX: &str = "system:bootstrappers:";
        let longest = format!("{PREFIX}{}z", "-".repeat(255));
        for group in [
            "system:bootstrappers:a",
            "system:bootstrappers:kubeadm:default-node-token",
            "system:bootstrappers:-:0",
            &longest,
        ] {
            assert!(is_group(group, PREFIX), "{group}");
        }
        for group in [
            "",
            "system:bootstrappers",
            "system:bootstrappers:",
            "system:bootstrappers:a-",
            "system:bootstrappers:a:",
            "system:bootstrappers:A",
            "system:bootstrappers:a b",
            "system:masters",
            " system:bootstrappers:a",
            &longest.replace('z', "zz"),
        ] {
            assert!(!is_group(group, PREFIX), "{group}");
        }
    }
}
