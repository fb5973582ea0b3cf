//! Minting: how a token comes into the books, and what ends with that.

use std::sync::Arc;

use countersign_pki::UnixTime;
use countersign_policy::{Identity, Requester, TokenBinding, TokenTerms};
use tracing::info;
use zeroize::Zeroizing;

use super::order::{TokenOrder, checked, checked_key};
use super::text::{ID_BYTES, SECRET_BYTES};
use super::{
    ListedToken, TokenDetail, TokenFault, TokenFilter, TokenId, TokenRecord, TokenStanding,
    TokenStatus, TokenText,
};
use crate::audit::AuditEntry;
use crate::authorisation::actor::Actor;
use crate::detached::run_detached;
use crate::engine::Core;
use crate::faults::EngineError;
use crate::issuing::{MAX_TRIES, commit_broken};
use crate::model::Revision;
use crate::store::{Change, CommitFault, Precondition, StoreFault, Write};
use crate::telemetry::TokenEvent;
use crate::token::Tokens;
use crate::token::bootstrap::BootstrapStatus;

/// A new token. This is the only time that it is whole.
#[derive(Debug)]
pub struct Minted {
    /// What is on record.
    pub record: TokenRecord,
    /// The token itself.
    pub token: TokenText,
}

impl Tokens {
    /// Whether tokens are in use.
    pub fn enabled(&self) -> bool {
        self.core.rules.load().tokens.enabled
    }

    /// Mints a token. One for a name takes the place of the name's earlier ones, unless the order says otherwise.
    pub async fn mint(
        &self,
        order: TokenOrder,
        actor: &Actor,
        idempotency_key: Option<&str>,
    ) -> Result<Minted, TokenFault> {
        let core = Arc::clone(&self.core);
        let (actor, key) = (actor.clone(), idempotency_key.map(str::to_owned));
        run_detached(async move {
            core.authorise_minting(&order, &actor).await?;
            core.mint(order, &actor.requester, key).await
        })
        .await
    }

    /// The token that was minted for an order of this name, by the authority itself.
    pub async fn ordered(&self, idempotency_key: &str) -> Result<Option<TokenId>, StoreFault> {
        let by = name_of(&Actor::authority().requester);
        self.core.store.token_ordered(&by, idempotency_key).await
    }

    /// How many tokens could be used if the keys in force verified their records: they were minted without a key, under
    /// one that is no longer named, or were changed in the store. Looks at the newest of each kind.
    pub async fn unverifiable(&self) -> Result<usize, StoreFault> {
        let rules = self.core.rules.load_full();
        if !rules.tokens.enabled {
            return Ok(0);
        }
        let now = self.core.clock.now();
        let active = TokenFilter {
            status: Some(TokenStatus::Active),
            ..TokenFilter::newest(now, LOOKED_AT)
        };
        let keys = &rules.tokens.keys;
        let tokens = self.core.store.tokens(active).await?.into_iter();
        let tokens = tokens.filter(|token| !keys.is_intact(&token.record.kept()));
        let bootstrap = self.core.store.bootstrap_tokens(None, LOOKED_AT).await?;
        let bootstrap = bootstrap.iter().filter(|token| {
            token.status(now) == BootstrapStatus::Active && !keys.is_intact(&token.record.kept())
        });
        Ok(tokens.count().saturating_add(bootstrap.count()))
    }

    /// A page of tokens, newest first.
    pub async fn list(&self, filter: TokenFilter) -> Result<Vec<ListedToken>, StoreFault> {
        self.core.store.tokens(filter).await
    }

    /// A token with its uses.
    pub async fn get(&self, id: &TokenId) -> Result<Option<TokenDetail>, StoreFault> {
        let (store, now) = (&self.core.store, self.core.clock.now());
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
        let (mac, mac_key_id) = settings.keys.mac(&token.message())?;
        let epoch = self.store.epoch().await.map_err(EngineError::from)?;
        let mut record = TokenRecord {
            id: token.id().clone(),
            mac,
            mac_key_id,
            terms_mac: None,
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
            epoch,
            idempotency_key,
            version: Revision::default(),
        };
        record.terms_mac = settings.keys.terms_mac(&record.fixed_terms());
        for _ in 0..MAX_TRIES {
            let mut change = self.minting(&record, actor).await?;
            let mut superseded = 0;
            if !order.keep_existing {
                let by = Some(&record.id);
                let ended = self.end_tokens_of(&record.binding, by, actor, &mut change);
                superseded = ended.await.map_err(EngineError::from)?;
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
        Err(EngineError::Contended.into())
    }

    async fn minting(&self, record: &TokenRecord, actor: &Requester) -> Result<Change, TokenFault> {
        let mut change = Change::default();
        if let Some(key) = &record.idempotency_key {
            let ordered = self.store.token_ordered(&record.created_by, key).await;
            if let Some(id) = ordered.map_err(EngineError::from)? {
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
        match active.map_err(EngineError::from)? < most {
            true => Ok(()),
            false => Err(TokenFault::TooMany { limit }),
        }
    }

    fn new_token(&self) -> Result<TokenText, EngineError> {
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
            ..TokenFilter::newest(now, MOST_USED)
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

const SHOWN_USES: usize = 1000;
const LOOKED_AT: usize = 1000;
/// More tokens than a name has within the time in which they can be asked for again.
const MOST_USED: usize = 100;
