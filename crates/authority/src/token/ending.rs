//! The end of tokens: taken back, given back, forgotten.

use std::sync::Arc;

use countersign_pki::{RevocationReason, Serial};
use countersign_policy::{Requester, TokenBinding, TokenUseState};
use tracing::info;

use super::mint::token_entry;
use super::{ListedToken, TokenFault, TokenId, TokenRecord, TokenStanding, TokenUseRecord};
use crate::audit::AuditEntry;
use crate::authorisation::TokenEnd;
use crate::authorisation::actor::Actor;
use crate::detached::run_detached;
use crate::engine::Core;
use crate::faults::{EngineError, RevokeFault};
use crate::issuer::IssuerId;
use crate::issuing::{MAX_TRIES, commit_broken};
use crate::ledger::Ledger;
use crate::model::RequestState;
use crate::store::{Change, CommitFault, Precondition, RequestUpdate, Write};
use crate::telemetry::TokenEvent;
use crate::token::Tokens;

impl Tokens {
    /// Takes a token back, on all replicas at once; with it, if so asked, the certificates that it was used for. One that
    /// was taken back before stays as it was.
    pub async fn revoke(
        &self,
        id: &TokenId,
        revoke_certificates: bool,
        actor: &Actor,
    ) -> Result<TokenRecord, TokenFault> {
        let core = Arc::clone(&self.core);
        let (id, by) = (id.clone(), actor.clone());
        let end = match revoke_certificates {
            true => TokenEnd::RevokedWithCertificates,
            false => TokenEnd::Revoked,
        };
        let revoked = run_detached(async move {
            core.authorise_ending(&id, end, &by).await?;
            core.revoke_token(&id, &by.requester).await
        });
        let record = revoked.await?;
        if revoke_certificates {
            self.revoke_certificates_of(&record.id, actor).await?;
        }
        Ok(record)
    }

    /// Takes back every token for exactly this name that can be used. Returns how many there were.
    pub async fn revoke_of(&self, certname: &str, actor: &Actor) -> Result<usize, TokenFault> {
        let core = Arc::clone(&self.core);
        let binding = TokenBinding::Exact(certname.to_ascii_lowercase());
        let actor = actor.clone();
        run_detached(async move {
            core.authorise_revoking_tokens(binding.value(), &actor)
                .await?;
            core.revoke_tokens_of(&binding, &actor.requester).await
        })
        .await
    }

    /// Gives back a use whose certificate was never signed; what was begun for it is ended.
    pub async fn release(&self, id: &TokenId, actor: &Actor) -> Result<(), TokenFault> {
        let core = Arc::clone(&self.core);
        let (id, actor) = (id.clone(), actor.clone());
        run_detached(async move {
            core.authorise_ending(&id, TokenEnd::Released, &actor)
                .await?;
            core.release_token(&id, &actor.requester).await
        })
        .await
    }

    /// Forgets tokens that have been over for long enough. Returns how many.
    pub async fn purge(&self) -> Result<usize, EngineError> {
        let core = Arc::clone(&self.core);
        run_detached(async move { core.purge_tokens().await }).await
    }

    async fn revoke_certificates_of(&self, id: &TokenId, actor: &Actor) -> Result<(), TokenFault> {
        let ledger = Ledger {
            core: Arc::clone(&self.core),
        };
        for (issuer, serial) in self.core.certificates_of_token(id).await? {
            let reason = RevocationReason::CessationOfOperation;
            match ledger.revoke_serial(&issuer, &serial, reason, actor).await {
                Ok(_) | Err(RevokeFault::NoCertificate { .. }) => {}
                Err(RevokeFault::Forbidden(needed)) => return Err(needed.into()),
                Err(RevokeFault::Engine(fault)) => return Err(fault.into()),
                Err(RevokeFault::UnknownIssuer { .. }) => return Err(EngineError::Defect.into()),
            }
        }
        Ok(())
    }
}

impl Core {
    /// The certificates that a token was used for.
    pub(crate) async fn certificates_of_token(
        &self,
        id: &TokenId,
    ) -> Result<Vec<(IssuerId, Serial)>, EngineError> {
        let mut found = Vec::new();
        for used in self.store.token_uses(id, MAX_USES).await? {
            let Some(serial) = used.serial else {
                continue;
            };
            for issuer in self.issuers.keys() {
                let entry = self.store.certificate(issuer, &serial).await?;
                if entry.is_some_and(|e| e.key_fingerprint == used.key_fingerprint) {
                    found.push((issuer.clone(), serial));
                }
            }
        }
        Ok(found)
    }

    pub(crate) async fn known_token(&self, id: &TokenId) -> Result<ListedToken, TokenFault> {
        let found = self.store.listed_token(id, self.clock.now()).await;
        found
            .map_err(EngineError::from)?
            .ok_or_else(|| TokenFault::NotFound { id: id.to_string() })
    }

    async fn revoke_token(
        &self,
        id: &TokenId,
        actor: &Requester,
    ) -> Result<TokenRecord, TokenFault> {
        for _ in 0..MAX_TRIES {
            let record = self.known_token(id).await?.record;
            if matches!(record.standing, TokenStanding::Revoked { .. }) {
                return Ok(record);
            }
            let now = self.clock.now();
            let mut change = Change {
                preconditions: vec![Precondition::TokenAt {
                    id: id.clone(),
                    version: record.version,
                }],
                writes: vec![Write::EndToken {
                    id: id.clone(),
                    standing: TokenStanding::Revoked {
                        at: now,
                        superseded_by: None,
                    },
                }],
                audit: vec![token_entry(now, actor, "token.revoked", &record)],
            };
            // What was begun by it and is not signed yet is not signed any more.
            let uses = self.store.token_uses(id, MAX_USES).await;
            for used in uses.map_err(EngineError::from)? {
                if used.state == TokenUseState::Reserved {
                    self.end_what_was_begun(&used, actor, REVOKED, &mut change)
                        .await?;
                }
            }
            match self.commit(change).await {
                Ok(_) => {
                    info!(token = %id, %actor, "token revoked");
                    self.telemetry.token(TokenEvent::Revoked, "");
                    return Ok(record);
                }
                // It was used meanwhile.
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other).into()),
            }
        }
        Err(EngineError::Contended.into())
    }

    async fn revoke_tokens_of(
        &self,
        binding: &TokenBinding,
        actor: &Requester,
    ) -> Result<usize, TokenFault> {
        for _ in 0..MAX_TRIES {
            let mut change = Change::default();
            let ended = self.end_tokens_of(binding, None, actor, &mut change);
            let count = ended.await.map_err(EngineError::from)?;
            if count == 0 {
                return Ok(0);
            }
            match self.commit(change).await {
                Ok(_) => {
                    info!(name = %binding, count, %actor, "tokens revoked");
                    self.telemetry.token(TokenEvent::Revoked, "");
                    return Ok(count);
                }
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other).into()),
            }
        }
        Err(EngineError::Contended.into())
    }

    async fn release_token(&self, id: &TokenId, actor: &Requester) -> Result<(), TokenFault> {
        for _ in 0..MAX_TRIES {
            let record = self.known_token(id).await?.record;
            let uses = self.store.token_uses(id, MAX_USES).await;
            let uses = uses.map_err(EngineError::from)?;
            let reserved = |used: &&TokenUseRecord| used.state == TokenUseState::Reserved;
            let Some(used) = uses.iter().find(reserved) else {
                let why = match uses.is_empty() {
                    true => "it was not used",
                    false => "its certificate was issued",
                };
                let id = id.clone();
                return Err(TokenFault::NotReserved { id, why });
            };
            let change = self.releasing(&record, used, actor).await?;
            match self.commit(change).await {
                Ok(_) => {
                    info!(token = %id, name = used.certname, %actor, "token released");
                    self.telemetry.token(TokenEvent::Released, "");
                    return Ok(());
                }
                // Its certificate was signed meanwhile, or what was begun was begun anew.
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other).into()),
            }
        }
        Err(EngineError::Contended.into())
    }

    /// A use is given back only together with the end of what it was used for: nobody may complete that any more.
    async fn releasing(
        &self,
        record: &TokenRecord,
        used: &TokenUseRecord,
        actor: &Requester,
    ) -> Result<Change, EngineError> {
        let now = self.clock.now();
        let entry = token_entry(now, actor, "token.released", record).key(&used.key_fingerprint);
        let mut change = Change {
            preconditions: vec![Precondition::TokenReserved {
                id: record.id.clone(),
                certname: used.certname.clone(),
                key_fingerprint: used.key_fingerprint,
                request: used.request,
            }],
            writes: vec![Write::ReleaseToken {
                id: record.id.clone(),
                certname: used.certname.clone(),
                key_fingerprint: used.key_fingerprint,
                request: used.request,
            }],
            audit: vec![entry.detail(format!("used by {}", used.certname))],
        };
        self.end_what_was_begun(used, actor, RELEASED, &mut change)
            .await?;
        Ok(change)
    }

    /// Adds to a change that the request of a use is not signed any more.
    async fn end_what_was_begun(
        &self,
        used: &TokenUseRecord,
        actor: &Requester,
        why: &'static str,
        change: &mut Change,
    ) -> Result<(), EngineError> {
        let Some(request) = used.request else {
            return Ok(());
        };
        let mut is_held = false;
        for intent in self.store.open_intents().await? {
            if intent.request != request {
                continue;
            }
            is_held |= intent.deferred.is_some();
            change.preconditions.push(Precondition::IntentOpen {
                issuer: intent.issuer.clone(),
                serial: intent.serial,
                owner: None,
            });
            change.writes.push(Write::VoidIntent {
                issuer: intent.issuer,
                serial: intent.serial,
            });
        }
        let stored = self.store.request(request).await?;
        if let Some(stored) = stored.filter(|stored| stored.state == RequestState::Approved) {
            if !is_held {
                change.preconditions.push(Precondition::RequestAt {
                    id: stored.id,
                    version: stored.version,
                });
            }
            change.writes.push(Write::UpdateRequest(RequestUpdate {
                state: RequestState::Failed,
                // Its name is free for whoever uses the token next.
                live: stored.retained && stored.live,
                failure: Some(why.to_owned()),
                ..RequestUpdate::none(&stored)
            }));
            let now = self.clock.now();
            let entry = AuditEntry::on(&stored, now, actor.clone(), "fail");
            change.audit.push(entry.detail(why));
        }
        Ok(())
    }

    async fn purge_tokens(&self) -> Result<usize, EngineError> {
        let mut total: usize = 0;
        loop {
            let now = self.clock.now();
            let before = now.minus_seconds(self.rules.load().tokens.purge_after);
            let over = self.store.tokens_over(before, PURGE_BATCH).await?;
            if over.is_empty() {
                return Ok(total);
            }
            let count = over.len();
            let change = Change {
                preconditions: Vec::new(),
                audit: over
                    .iter()
                    .map(|id| {
                        let subject = format!("token/{id}");
                        AuditEntry::own(now, "token.expired_purged", subject).token(id)
                    })
                    .collect(),
                writes: over
                    .into_iter()
                    .map(|id| Write::ForgetToken { id })
                    .collect(),
            };
            self.commit(change).await.map_err(commit_broken)?;
            info!(count, "tokens that are over were forgotten");
            total = total.saturating_add(count);
            if count < PURGE_BATCH {
                return Ok(total);
            }
        }
    }
}

const REVOKED: &str = "its enrolment token was revoked before it was signed";
const RELEASED: &str = "its enrolment token was released before it was signed";
/// More than any token is good for.
pub(crate) const MAX_USES: usize = 1000;
const PURGE_BATCH: usize = 500;
