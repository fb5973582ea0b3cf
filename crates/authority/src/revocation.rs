//! Revocation: the index that every request is checked against, and the CRL that is published.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use arc_swap::ArcSwapOption;
use countersign_pki::{
    Crl, CrlTemplate, RevocationReason, RevokedEntry, Serial, UnixTime, pem, seal,
};
use countersign_policy::Requester;
use tokio::sync::{Mutex, watch};
use tracing::info;

use crate::engine::{Authority, Core};
use crate::faults::{Broken, RevokeFault};
use crate::issuer::IssuerId;
use crate::model::{AuditEntry, CrlRecord, LedgerEntry, Revision, Revocation, Revoked};
use crate::signing::{MAX_TRIES, commit_broken};
use crate::store::{Change, CommitFault, Precondition, Write};

/// A published CRL, ready to be served.
#[derive(Debug)]
pub struct CrlState {
    /// What is on record.
    pub record: CrlRecord,
    /// The list as PEM.
    pub pem: String,
}

/// The revocations of one issuer.
#[derive(Debug)]
pub(crate) struct Revocations {
    /// Every revoked certificate that has not ended.
    index: RwLock<BTreeMap<Serial, Revocation>>,
    /// One revocation at a time: the index is complete up to the last commit while nobody holds it.
    revoking: Mutex<Revision>,
    publishing: Mutex<()>,
    published: ArcSwapOption<CrlState>,
    news: watch::Sender<u64>,
}

impl Default for Revocations {
    fn default() -> Self {
        Self {
            index: RwLock::default(),
            revoking: Mutex::default(),
            publishing: Mutex::default(),
            published: ArcSwapOption::empty(),
            news: watch::Sender::new(0),
        }
    }
}

impl Authority {
    /// Revokes every certificate of a name that has not ended. When this returns, the revocation is
    /// durable, checked on every request, and in the published CRL. Revoking again changes nothing.
    pub async fn revoke_name(
        &self,
        issuer: &IssuerId,
        name: &str,
        reason: RevocationReason,
        actor: &Requester,
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
        actor: &Requester,
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
        actor: Requester,
    ) -> Result<usize, RevokeFault> {
        let core = Arc::clone(&self.core);
        self.carry_through(async move { core.revoke(&issuer, &target, reason, &actor).await })
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

    /// The published CRL of an issuer.
    pub fn crl(&self, issuer: &IssuerId) -> Option<Arc<CrlState>> {
        self.core.revocations.get(issuer)?.published.load_full()
    }

    /// Wakes its receiver whenever the issuer's CRL is published anew.
    pub fn crl_news(&self, issuer: &IssuerId) -> Option<watch::Receiver<u64>> {
        Some(self.core.revocations.get(issuer)?.news.subscribe())
    }

    /// Publishes CRLs anew that are due.
    pub async fn refresh_crls(&self) -> Result<(), Broken> {
        let now = self.now();
        for (issuer, revocations) in &self.core.revocations {
            let covers = *revocations.revoking.lock().await;
            let due = revocations.published.load().as_ref().is_none_or(|crl| {
                crl.record.covers < covers
                    || crl
                        .record
                        .this_update
                        .plus_seconds(self.core.limits.crl_refresh_seconds)
                        <= now
            });
            if due {
                self.core
                    .publish_crl(issuer, covers, Publish::Always)
                    .await?;
            }
        }
        Ok(())
    }
}

impl Core {
    async fn revoke(
        &self,
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
            let fresh: Vec<Revocation> = entries
                .iter()
                .filter(|entry| entry.revoked.is_none())
                .map(|entry| Revocation {
                    issuer: issuer.clone(),
                    serial: entry.serial,
                    revoked: Revoked { at: now, reason },
                    not_after: entry.not_after,
                })
                .collect();
            if fresh.is_empty() {
                // Revoked before; but its CRL may have failed then.
                let covers = *covers;
                self.publish_crl(issuer, covers, Publish::IfBehind).await?;
                return Ok(0);
            }
            let audit = fresh.iter().map(|one| AuditEntry {
                at: now,
                actor: actor.clone(),
                action: "revoke".into(),
                subject: format!("{issuer}/{}", one.serial),
                request: None,
                detail: target.to_string(),
            });
            let change = Change {
                preconditions,
                audit: audit.collect(),
                writes: fresh.iter().cloned().map(Write::Revoke).collect(),
            };
            match self.store.commit(change).await {
                Ok(committed) => {
                    *covers = committed.revision;
                    let count = fresh.len();
                    for one in &fresh {
                        info!(%issuer, serial = %one.serial, %actor, target = %target, "revoked");
                    }
                    revocations.add(fresh);
                    drop(covers);
                    self.publish_crl(issuer, committed.revision, Publish::IfBehind)
                        .await?;
                    return Ok(count);
                }
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other).into()),
            }
        }
        Err(Broken::Contended.into())
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
                    .map_err(Broken::from)?;
                Ok((Vec::new(), vec![found.ok_or_else(missing)?]))
            }
            Target::Name(name) => {
                let newest = self
                    .store
                    .newest_certificate(issuer, name)
                    .await
                    .map_err(Broken::from)?;
                let newest = newest.ok_or_else(missing)?;
                let entries = self
                    .store
                    .certificates_of(issuer, name, now)
                    .await
                    .map_err(Broken::from)?;
                let unchanged = Precondition::NewestCertificate {
                    issuer: issuer.clone(),
                    name: name.clone(),
                    serial: Some(newest.serial),
                };
                Ok((vec![unchanged], entries))
            }
        }
    }

    /// Fills the index from the store and publishes what is missing from the CRL on record.
    pub(crate) async fn load_revocations(&self) -> Result<(), Broken> {
        let now = self.clock.now();
        for (issuer, revocations) in &self.revocations {
            let (revision, all) = self.store.revocations(issuer, now).await?;
            *revocations.revoking.lock().await = revision;
            let index: BTreeMap<Serial, Revocation> =
                all.into_iter().map(|one| (one.serial, one)).collect();
            let on_record = self.store.crl(issuer).await?;
            let complete = on_record
                .as_ref()
                .is_some_and(|record| lists_all(record, &index));
            *revocations
                .index
                .write()
                .unwrap_or_else(PoisonError::into_inner) = index;
            if let Some(mut record) = on_record {
                if complete {
                    record.covers = revision;
                }
                revocations.publish(record);
            }
            if !complete {
                self.publish_crl(issuer, revision, Publish::Always).await?;
            }
        }
        Ok(())
    }

    /// Signs, records and serves a CRL with everything revoked so far. Calls that come while one is
    /// being made share the next.
    async fn publish_crl(
        &self,
        id: &IssuerId,
        covers: Revision,
        publish: Publish,
    ) -> Result<(), Broken> {
        let issuer = self.issuer(id)?;
        let Some(revocations) = self.revocations.get(id) else {
            return Ok(());
        };
        let _one_at_a_time = revocations.publishing.lock().await;
        let before = revocations.published.load_full();
        let behind = before.as_ref().is_none_or(|crl| crl.record.covers < covers);
        if publish == Publish::IfBehind && !behind {
            return Ok(());
        }
        let now = self.clock.now();
        let covers = (*revocations.revoking.lock().await).max(covers);
        let entries: Vec<RevokedEntry> = {
            let index = revocations
                .index
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            let alive = index.values().filter(|one| one.not_after > now);
            alive
                .map(|one| RevokedEntry {
                    serial: one.serial,
                    at: one.revoked.at,
                    reason: one.revoked.reason,
                })
                .collect()
        };
        let number = before
            .as_ref()
            .map_or(0, |crl| crl.record.number.saturating_add(1));
        // One second back, so that a client whose clock lags a little does not find it in its future.
        let this_update = now.minus_seconds(1);
        let next_update = now
            .plus_seconds(self.limits.crl_lifetime_seconds)
            .min(issuer.not_after());
        let template = CrlTemplate {
            algorithm: issuer.algorithm(),
            issuer_name_der: issuer.certificate().subject().der(),
            this_update,
            next_update,
            number,
            authority_key_id: issuer.key_id(),
            entries: &entries,
        };
        let to_be_signed = template.to_be_signed()?;
        let signature = self.sign(id, &to_be_signed).await?;
        let der = seal(&to_be_signed, issuer.algorithm(), &signature.0)?;
        let record = CrlRecord {
            issuer: id.clone(),
            number,
            covers,
            this_update,
            next_update,
            der,
        };
        let expected = before.map(|crl| crl.record.number);
        let change = Change {
            preconditions: vec![Precondition::CrlNumber {
                issuer: id.clone(),
                number: expected,
            }],
            writes: vec![Write::PutCrl(record.clone())],
            audit: vec![AuditEntry {
                at: now,
                actor: Requester::authority(),
                action: "crl".into(),
                subject: format!("{id}/{number}"),
                request: None,
                detail: format!("{} revoked", entries.len()),
            }],
        };
        self.store.commit(change).await.map_err(commit_broken)?;
        revocations.publish(record);
        Ok(())
    }
}

impl Revocations {
    fn add(&self, revoked: Vec<Revocation>) {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.extend(revoked.into_iter().map(|one| (one.serial, one)));
    }

    fn publish(&self, record: CrlRecord) {
        let number = record.number;
        let pem = pem::encode("X509 CRL", &record.der);
        self.published
            .store(Some(Arc::new(CrlState { record, pem })));
        self.news.send_replace(number);
    }
}

/// Whether the CRL on record lists everything in the index.
fn lists_all(record: &CrlRecord, index: &BTreeMap<Serial, Revocation>) -> bool {
    let Ok(crl) = Crl::parse(&record.der) else {
        return false;
    };
    let listed: std::collections::BTreeSet<Serial> = crl.serials().collect();
    index.keys().all(|serial| listed.contains(serial))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Publish {
    Always,
    IfBehind,
}

enum Target {
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
