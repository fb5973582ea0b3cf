//! Retirement: a name leaves the books, so that it may enrol again.
//!
//! Nothing leaves the ledger. A retired certificate is no longer shown as its name's newest and no longer
//! stands in the way of another; unless it was revoked too, it is an identity until it ends.

use std::sync::{Arc, PoisonError};

use countersign_pki::{RevocationReason, UnixTime};
use countersign_policy::Requester;
use tracing::info;

use crate::audit::AuditEntry;
use crate::authorisation::actor::Actor;
use crate::detached::run_detached;
use crate::engine::Core;
use crate::faults::{EngineError, RevokeFault};
use crate::issuer::IssuerId;
use crate::issuing::{MAX_TRIES, commit_broken};
use crate::ledger::Ledger;
use crate::ledger::revocation::Revocations;
use crate::model::{Door, RequestRecord, RequestState, Revocation, Revoked};
use crate::store::{Change, CommitFault, Past, Precondition, StoreFault, Write};

/// What there was to retire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retired {
    /// Certificates, retired now or before, or a request that was forgotten.
    Something,
    /// The name was never heard of.
    Nothing,
}

impl Ledger {
    /// Retires every certificate of a name, which ends its tokens, and forgets the request that occupies it at a door,
    /// which does not. Revokes nothing. A person's denial is left as it is: it holds until the request itself is deleted.
    pub async fn retire(
        &self,
        issuer: &IssuerId,
        name: &str,
        door: &Door,
        actor: &Actor,
    ) -> Result<Retired, RevokeFault> {
        let core = Arc::clone(&self.core);
        let (issuer, name) = (issuer.clone(), name.to_owned());
        let (door, actor) = (door.clone(), actor.clone());
        run_detached(async move {
            core.authorise_retirement(&issuer, &name, &door, &actor)
                .await?;
            Ok(core.retire(&issuer, &name, &door, &actor.requester).await?)
        })
        .await
    }

    /// Revokes and retires every certificate of the names, in one commit and with one CRL. Answers with
    /// the names that never had a certificate; requests stay.
    pub async fn clean(
        &self,
        issuer: &IssuerId,
        names: Vec<String>,
        reason: RevocationReason,
        actor: &Actor,
    ) -> Result<Vec<String>, RevokeFault> {
        let core = Arc::clone(&self.core);
        let (issuer, actor) = (issuer.clone(), actor.clone());
        run_detached(async move {
            core.authorise_cleaning(&issuer, &names, &actor).await?;
            core.clean(&issuer, &names, reason, &actor.requester).await
        })
        .await
    }

    /// Whether the ledger has a certificate of a name: ended, revoked and retired ones included.
    pub async fn has_certificates(
        &self,
        issuer: &IssuerId,
        name: &str,
    ) -> Result<bool, StoreFault> {
        let all = self
            .core
            .store
            .certificates_of(issuer, name, UnixTime(i64::MIN));
        Ok(!all.await?.is_empty())
    }
}

impl Core {
    async fn retire(
        &self,
        issuer: &IssuerId,
        name: &str,
        door: &Door,
        actor: &Requester,
    ) -> Result<Retired, EngineError> {
        for _ in 0..MAX_TRIES {
            let certificates = self.store.certificates_of(issuer, name, UnixTime(i64::MIN));
            let certificates = certificates.await?;
            let has_certificates = !certificates.is_empty();
            let is_cleaned = certificates.iter().any(|entry| entry.retired.is_none());
            let live = self.store.request_at(door, name, Past::Ignore).await?;
            let waiting = live.filter(|record| record.state != RequestState::Denied);
            let mut change = Change::default();
            if has_certificates {
                change.retire(issuer, name, actor, self.clock.now());
            }
            if let Some(record) = &waiting {
                change.forget(record, actor, self.clock.now());
            }
            if change.writes.is_empty() {
                return Ok(Retired::Nothing);
            }
            // Where only a request is forgotten, its sender may come back with the token that it has.
            if is_cleaned {
                self.end_tokens_of_cleaned(name, actor, &mut change).await?;
            }
            match self.commit(change).await {
                Ok(_) => {
                    info!(%issuer, name, %actor, "retired");
                    return Ok(Retired::Something);
                }
                // The request was decided or replaced meanwhile.
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other)),
            }
        }
        Err(EngineError::Contended)
    }

    /// Like a revocation of each name, except that what is revoked is retired in the same commit: no
    /// certificate that is issued meanwhile is retired without being revoked.
    async fn clean(
        self: &Arc<Self>,
        issuer: &IssuerId,
        names: &[String],
        reason: RevocationReason,
        actor: &Requester,
    ) -> Result<Vec<String>, RevokeFault> {
        let Some(revocations) = self.revocations.get(issuer) else {
            return Err(RevokeFault::UnknownIssuer {
                issuer: issuer.clone(),
            });
        };
        let mut covers = revocations.revoking.lock().await;
        for _ in 0..MAX_TRIES {
            let now = self.clock.now();
            let revoked = Revoked { at: now, reason };
            let Cleaning {
                change,
                fresh,
                unknown,
            } = self
                .cleaning((issuer, revocations), names, revoked, actor)
                .await?;
            if change.writes.is_empty() {
                return Ok(unknown);
            }
            match self.commit(change).await {
                Ok(committed) => {
                    if !fresh.is_empty() {
                        *covers = committed.revision;
                    }
                    for one in &fresh {
                        info!(%issuer, serial = %one.serial, %actor, "revoked and retired");
                    }
                    revocations
                        .index
                        .write()
                        .unwrap_or_else(PoisonError::into_inner)
                        .extend(fresh.into_iter().map(|one| (one.serial, one)));
                    let reached = *covers;
                    drop(covers);
                    self.publish_revoked(issuer, reached).await?;
                    return Ok(unknown);
                }
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other).into()),
            }
        }
        Err(EngineError::Contended.into())
    }

    async fn cleaning(
        &self,
        (issuer, revocations): (&IssuerId, &Revocations),
        names: &[String],
        revoked: Revoked,
        actor: &Requester,
    ) -> Result<Cleaning, EngineError> {
        let mut cleaning = Cleaning::default();
        for name in names {
            let all = self.store.certificates_of(issuer, name, UnixTime(i64::MIN));
            let all = all.await?;
            let change = &mut cleaning.change;
            // Who is cleaned away enrols with a new token, if at all.
            self.end_tokens_of_cleaned(name, actor, change).await?;
            if all.is_empty() {
                cleaning.unknown.push(name.clone());
                continue;
            }
            change.preconditions.push(Precondition::IssuedCount {
                issuer: issuer.clone(),
                name: name.clone(),
                count: all.len(),
            });
            for entry in all {
                if entry.not_after < revoked.at {
                    continue;
                }
                let Some(revocation) = revocations.due(&entry, revoked) else {
                    continue;
                };
                change.writes.push(Write::Revoke(revocation.clone()));
                change
                    .audit
                    .push(entry.revoked_by(actor, revoked).detail(name));
                cleaning.fresh.push(revocation);
            }
            change.retire(issuer, name, actor, revoked.at);
        }
        Ok(cleaning)
    }
}

/// What cleaning a list of names comes to.
#[derive(Default)]
struct Cleaning {
    change: Change,
    fresh: Vec<Revocation>,
    unknown: Vec<String>,
}

impl Change {
    pub(crate) fn retire(
        &mut self,
        issuer: &IssuerId,
        name: &str,
        actor: &Requester,
        at: UnixTime,
    ) {
        self.writes.push(Write::Retire {
            issuer: issuer.clone(),
            name: name.to_owned(),
            at,
        });
        let entry = AuditEntry::new(at, actor.clone(), "clean", format!("{issuer}/{name}"));
        self.audit.push(entry.certname(name));
    }

    fn forget(&mut self, record: &RequestRecord, actor: &Requester, at: UnixTime) {
        self.preconditions.push(Precondition::RequestAt {
            id: record.id,
            version: record.version,
        });
        self.writes.push(Write::DeleteRequest(record.id));
        self.audit
            .push(AuditEntry::on(record, at, actor.clone(), "delete"));
    }
}
