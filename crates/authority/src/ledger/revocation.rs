//! Revocation: the index that every request is checked against.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use countersign_pki::{Crl, RevocationReason, Serial, UnixTime, VerifyFault};
use countersign_policy::Requester;
use tokio::sync::{Mutex, watch};
use tracing::{info, warn};

use crate::authorisation::actor::Actor;
use crate::crl::ancestors::Ancestors;
use crate::crl::infrastructure::Infrastructure;
use crate::crl::{CrlState, DAY, Publish, lists_all};
use crate::detached::run_detached;
use crate::engine::Core;
use crate::faults::{EngineError, RevokeFault};
use crate::issuer::{Issuer, IssuerId};
use crate::issuing::{MAX_TRIES, commit_broken};
use crate::ledger::Ledger;
use crate::model::{CrlRecord, CrlScope, LedgerEntry, Revision, Revocation, Revoked};
use crate::store::{Change, CommitFault, Precondition, Write};

/// The revocations of one issuer.
#[derive(Debug)]
pub(crate) struct Revocations {
    /// Every revoked certificate.
    pub(crate) index: RwLock<BTreeMap<Serial, Revocation>>,
    /// One revocation at a time: the index is complete up to the last commit while nobody holds it.
    pub(crate) revoking: Mutex<Revision>,
    /// One publication at a time. Holds what the list of the site's own machines follows, where there is one.
    pub(crate) publishing: Mutex<Option<Infrastructure>>,
    pub(crate) full: ArcSwapOption<CrlState>,
    pub(crate) infrastructure: ArcSwapOption<CrlState>,
    pub(crate) ancestors: ArcSwap<Ancestors>,
    pub(crate) news: watch::Sender<u64>,
    /// When the lists of the CAs above were last judged.
    warned: AtomicI64,
    /// When it was last chosen which of the lists clients are given: at start, or a little later.
    served_since: AtomicI64,
}

impl Default for Revocations {
    fn default() -> Self {
        Self {
            index: RwLock::default(),
            revoking: Mutex::default(),
            publishing: Mutex::default(),
            full: ArcSwapOption::empty(),
            infrastructure: ArcSwapOption::empty(),
            ancestors: ArcSwap::default(),
            news: watch::Sender::new(0),
            warned: AtomicI64::new(i64::MIN),
            served_since: AtomicI64::new(i64::MIN),
        }
    }
}

impl Ledger {
    /// Revokes every certificate of a name that has not ended. When this returns, the revocation is
    /// durable, checked on every request, and in the published CRL; a CRL of thousands of entries follows within a
    /// second. Revoking again changes nothing, except that what was taken off the CRL is put back on it.
    pub async fn revoke_name(
        &self,
        issuer: &IssuerId,
        name: &str,
        reason: RevocationReason,
        actor: &Actor,
    ) -> Result<usize, RevokeFault> {
        self.revoke(
            issuer.clone(),
            Target::Name(name.to_owned()),
            reason,
            actor.clone(),
        )
        .await
    }

    /// Revokes one certificate by its serial.
    pub async fn revoke_serial(
        &self,
        issuer: &IssuerId,
        serial: &Serial,
        reason: RevocationReason,
        actor: &Actor,
    ) -> Result<usize, RevokeFault> {
        self.revoke(
            issuer.clone(),
            Target::Serial(*serial),
            reason,
            actor.clone(),
        )
        .await
    }

    async fn revoke(
        &self,
        issuer: IssuerId,
        target: Target,
        reason: RevocationReason,
        actor: Actor,
    ) -> Result<usize, RevokeFault> {
        let core = Arc::clone(&self.core);
        run_detached(async move {
            core.authorise_revocation(&issuer, &target, &actor).await?;
            core.revoke(&issuer, &target, reason, &actor.requester)
                .await
        })
        .await
    }

    /// Whether a certificate is revoked. Answers from memory.
    pub fn is_revoked(&self, issuer: &IssuerId, serial: &Serial) -> bool {
        self.core.revocations.get(issuer).is_none_or(|revocations| {
            revocations
                .index
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .contains_key(serial)
        })
    }
}

impl Core {
    async fn revoke(
        self: &Arc<Self>,
        issuer: &IssuerId,
        target: &Target,
        reason: RevocationReason,
        actor: &Requester,
    ) -> Result<usize, RevokeFault> {
        let Some(revocations) = self.revocations.get(issuer) else {
            return Err(RevokeFault::UnknownIssuer {
                issuer: issuer.clone(),
            });
        };
        let mut covers = revocations.revoking.lock().await;
        for _ in 0..MAX_TRIES {
            let now = self.clock.now();
            let (preconditions, entries) = self.targets(issuer, target, now).await?;
            let revoked = Revoked { at: now, reason };
            let mut audit = Vec::new();
            let mut fresh: Vec<Revocation> = Vec::new();
            for entry in &entries {
                if let Some(due) = revocations.due(entry, revoked) {
                    let target = target.to_string();
                    audit.push(entry.revoked_by(actor, revoked).detail(target));
                    fresh.push(due);
                }
            }
            if fresh.is_empty() {
                // Revoked before; but its CRL may have failed then.
                let reached = *covers;
                drop(covers);
                self.publish_revoked(issuer, reached).await?;
                return Ok(0);
            }
            let change = Change {
                preconditions,
                audit,
                writes: fresh.iter().cloned().map(Write::Revoke).collect(),
            };
            match self.commit(change).await {
                Ok(committed) => {
                    *covers = committed.revision;
                    let count = fresh.len();
                    for one in &fresh {
                        info!(%issuer, serial = %one.serial, %actor, target = %target, "revoked");
                    }
                    revocations.add(fresh);
                    drop(covers);
                    self.publish_revoked(issuer, committed.revision).await?;
                    return Ok(count);
                }
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other).into()),
            }
        }
        Err(EngineError::Contended.into())
    }

    /// The certificates that a revocation hits, and what must not change before it is committed.
    async fn targets(
        &self,
        issuer: &IssuerId,
        target: &Target,
        now: UnixTime,
    ) -> Result<(Vec<Precondition>, Vec<LedgerEntry>), RevokeFault> {
        let missing = || RevokeFault::NoCertificate {
            issuer: issuer.clone(),
            name: target.to_string(),
        };
        match target {
            Target::Serial(serial) => {
                let found = self
                    .store
                    .certificate(issuer, serial)
                    .await
                    .map_err(EngineError::from)?;
                Ok((Vec::new(), vec![found.ok_or_else(missing)?]))
            }
            Target::Name(name) => {
                let all = self.store.certificates_of(issuer, name, UnixTime(i64::MIN));
                let all = all.await.map_err(EngineError::from)?;
                if all.is_empty() {
                    return Err(missing());
                }
                let unchanged = Precondition::IssuedCount {
                    issuer: issuer.clone(),
                    name: name.clone(),
                    count: all.len(),
                };
                let entries = all
                    .into_iter()
                    .filter(|entry| entry.not_after >= now)
                    .collect();
                Ok((vec![unchanged], entries))
            }
        }
    }

    /// Fills the index from the store and publishes what is missing from the CRL on record.
    pub(crate) async fn load_revocations(&self) -> Result<(), EngineError> {
        for (issuer, revocations) in self.revocations.iter() {
            self.load_revocations_of(issuer, revocations).await?;
        }
        Ok(())
    }

    /// The same for one issuer.
    pub(crate) async fn load_revocations_of(
        &self,
        issuer: &IssuerId,
        revocations: &Revocations,
    ) -> Result<(), EngineError> {
        let now = self.clock.now();
        let own = self.issuer(issuer)?;
        revocations.serve_from(now);
        self.load_ancestors(&own, revocations).await?;
        self.warn_of_ancestors(issuer, revocations);
        // All of them: a clock that is ahead at start must not make the index forget.
        let (revision, all) = self.store.revocations(issuer, UnixTime(i64::MIN)).await?;
        *revocations.revoking.lock().await = revision;
        let index: BTreeMap<Serial, Revocation> =
            all.into_iter().map(|one| (one.serial, one)).collect();
        let on_record = self.store.crl(issuer, CrlScope::Full).await?;
        let complete = on_record
            .as_ref()
            .is_some_and(|record| lists_all(record, &index, now) && is_of(record, &own));
        *revocations
            .index
            .write()
            .unwrap_or_else(PoisonError::into_inner) = index;
        if let Some(mut record) = on_record {
            if complete {
                record.covers = revision;
            }
            revocations.publish(&own, record);
        }
        if !complete && let Err(fault) = self.publish_crl(issuer, revision, Publish::Always).await {
            // Tried again by and by; it is no reason not to serve the other issuers.
            warn!(%issuer, %fault, "the CRL was not published");
        }
        Ok(())
    }
}

impl Revocations {
    /// What is to be written so that a certificate is revoked and on the CRLs; `None` if it is. One that was taken off
    /// them comes back with the time and the reason it had. Asked by whoever holds `revoking`.
    pub(crate) fn due(&self, entry: &LedgerEntry, revoked: Revoked) -> Option<Revocation> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let is_unlisted = || index.get(&entry.serial).is_some_and(|one| !one.listed);
        if entry.revoked.is_some() && !is_unlisted() {
            return None;
        }
        Some(Revocation {
            issuer: entry.issuer.clone(),
            serial: entry.serial,
            revoked: entry.revoked.unwrap_or(revoked),
            not_after: entry.not_after,
            listed: true,
        })
    }

    pub(crate) fn add(&self, revoked: Vec<Revocation>) {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.extend(revoked.into_iter().map(|one| (one.serial, one)));
    }

    /// Clients are given other lists from now on, perhaps.
    pub(crate) fn serve_from(&self, now: UnixTime) {
        self.served_since.store(now.0, Ordering::Relaxed);
    }

    pub(crate) fn served_since(&self) -> UnixTime {
        UnixTime(self.served_since.load(Ordering::Relaxed))
    }

    /// Once at start, then once a day.
    pub(crate) fn is_time_to_warn(&self, now: UnixTime) -> bool {
        let last = UnixTime(self.warned.load(Ordering::Relaxed));
        let is_time = last.plus_seconds(DAY) <= now || last > now;
        if is_time {
            self.warned.store(now.0, Ordering::Relaxed);
        }
        is_time
    }
}

/// Whether the issuer has signed a list with the key it has now. One that was taken over may be too old to be verified.
fn is_of(record: &CrlRecord, issuer: &Issuer) -> bool {
    let spki = issuer.certificate().spki_der();
    Crl::parse(&record.der).is_ok_and(|list| match list.verify_signed_by(spki) {
        Ok(())
        | Err(VerifyFault::WeakSignature { .. } | VerifyFault::UnsupportedAlgorithm { .. }) => true,
        Err(_) => false,
    })
}

pub(crate) enum Target {
    Name(String),
    Serial(Serial),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Serial(serial) => write!(f, "serial {serial}"),
        }
    }
}
