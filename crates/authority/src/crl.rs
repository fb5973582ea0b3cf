//! The published CRL: what it lists, when it is made anew, how it is served.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use countersign_pki::{Crl, CrlTemplate, RevokedEntry, Serial, UnixTime, pem, seal};
use countersign_policy::Requester;
use tokio::sync::watch;
use tracing::warn;

use crate::engine::{Authority, Core};
use crate::faults::Broken;
use crate::issuer::{Issuer, IssuerId};
use crate::model::{AuditEntry, CrlRecord, CrlScope, Revision, Revocation};
use crate::revocation::Revocations;
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

impl Authority {
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
        let core = Arc::clone(&self.core);
        self.carry_through(async move { core.refresh_crls().await })
            .await
    }
}

impl Core {
    /// One issuer that cannot publish holds up no other; its fault is the answer.
    async fn refresh_crls(&self) -> Result<(), Broken> {
        let mut first = Ok(());
        for (issuer, revocations) in &self.revocations {
            let covers = *revocations.revoking.lock().await;
            if !self.is_due(revocations, covers) {
                continue;
            }
            if let Err(fault) = self.publish_crl(issuer, covers, Publish::Always).await {
                warn!(%issuer, %fault, "the CRL was not published");
                first = first.and(Err(fault));
            }
        }
        first
    }

    fn is_due(&self, revocations: &Revocations, covers: Revision) -> bool {
        let now = self.clock.now();
        revocations.published.load().as_ref().is_none_or(|crl| {
            let made = crl.record.this_update;
            // A CRL from the future was made by a clock that was wrong.
            crl.record.covers < covers
                || made > now
                || made.plus_seconds(self.limits.crl_refresh_seconds) <= now
        })
    }

    /// Signs, records and serves a CRL with everything revoked so far. Calls that come while one is
    /// being made share the next.
    pub(crate) async fn publish_crl(
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
        for _ in 0..MAX_TRIES {
            let before = revocations.published.load_full();
            let behind = before.as_ref().is_none_or(|crl| crl.record.covers < covers);
            if publish == Publish::IfBehind && !behind {
                return Ok(());
            }
            let covers = (*revocations.revoking.lock().await).max(covers);
            let expected = before.map(|crl| crl.record.number);
            let record = self.make_crl(issuer, revocations, expected, covers).await?;
            match self.store.commit(published(&record, expected)).await {
                Ok(_) => {
                    revocations.publish(record);
                    return Ok(());
                }
                // Another process published one: the next number follows that.
                Err(CommitFault::Conflict { .. }) => {
                    if let Some(theirs) = self.store.crl(id, CrlScope::Full).await? {
                        revocations.publish(theirs);
                    }
                }
                Err(other) => return Err(commit_broken(other)),
            }
        }
        Err(Broken::Contended)
    }

    /// Signs a CRL with everything revoked so far.
    async fn make_crl(
        &self,
        issuer: &Issuer,
        revocations: &Revocations,
        before: Option<u64>,
        covers: Revision,
    ) -> Result<CrlRecord, Broken> {
        let now = self.clock.now();
        let entries: Vec<RevokedEntry> = {
            let index = revocations
                .index
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            let alive = index.values().filter(|one| belongs_on_crl(one, now));
            alive
                .map(|one| RevokedEntry {
                    serial: one.serial,
                    at: one.revoked.at,
                    reason: one.revoked.reason,
                })
                .collect()
        };
        let number = before.map_or(0, |number| number.saturating_add(1));
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
        let signature = self.sign(issuer.id(), &to_be_signed).await?;
        let der = seal(&to_be_signed, issuer.algorithm(), &signature.0)?;
        Ok(CrlRecord {
            issuer: issuer.id().clone(),
            scope: CrlScope::Full,
            number,
            covers,
            this_update,
            next_update,
            der,
        })
    }
}

impl Revocations {
    pub(crate) fn publish(&self, record: CrlRecord) {
        let number = record.number;
        let pem = pem::encode("X509 CRL", &record.der);
        self.published
            .store(Some(Arc::new(CrlState { record, pem })));
        self.news.send_replace(number);
    }
}

/// Whether the CRL on record is the one of its number and lists everything in the index. After a restore its number is
/// ahead of the list.
pub(crate) fn lists_all(
    record: &CrlRecord,
    index: &BTreeMap<Serial, Revocation>,
    now: UnixTime,
) -> bool {
    let Ok(crl) = Crl::parse(&record.der) else {
        return false;
    };
    if crl.number() != Some(record.number) {
        return false;
    }
    let listed: BTreeSet<Serial> = crl.serials().collect();
    let due = index.values().filter(|one| belongs_on_crl(one, now));
    due.map(|one| one.serial)
        .all(|serial| listed.contains(&serial))
}

fn published(record: &CrlRecord, before: Option<u64>) -> Change {
    Change {
        preconditions: vec![Precondition::CrlNumber {
            issuer: record.issuer.clone(),
            scope: record.scope,
            number: before,
        }],
        writes: vec![Write::PutCrl(record.clone())],
        audit: vec![AuditEntry {
            at: record.this_update,
            actor: Requester::authority(),
            action: "crl".into(),
            subject: format!("{}/{}", record.issuer, record.number),
            request: None,
            detail: String::new(),
        }],
    }
}

/// Whether a CRL is made although nothing is missing from the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publish {
    Always,
    IfBehind,
}

/// RFC 5280 3.3: an entry stays on at least one CRL issued after the certificate has ended. A day more
/// also covers clocks that differ.
fn belongs_on_crl(revocation: &Revocation, now: UnixTime) -> bool {
    revocation.listed && revocation.not_after.plus_seconds(DAY) >= now
}

const DAY: u64 = 86_400;
