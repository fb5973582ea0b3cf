//! Certificates that a CA had signed before it became an issuer here, and of which nothing was said then.
//!
//! Whoever takes a CA over from its files alone has no list of what it signed. Its certificates count all the same, as
//! they did before, unless they were revoked: each gets an entry in the ledger when its holder first shows it, and is a
//! certificate like any other from then on. What they say about rights counts for nothing.

use std::sync::Arc;

use countersign_pki::{Certificate, Fingerprint, UnixTime, fingerprint_sha256};
use countersign_policy::{
    Deciding, Effect, Explanation, Identity, ReasonCode, Requester, SignerName,
};
use tracing::info;

use crate::audit::AuditEntry;
use crate::detached::run_detached;
use crate::engine::Core;
use crate::faults::EngineError;
use crate::issuer::{Issuer, IssuerId};
use crate::issuing::commit_broken;
use crate::ledger::Ledger;
use crate::model::LedgerEntry;
use crate::store::{Change, CommitFault, Precondition, Write};

/// Which certificates an issuer takes over when it sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adoption {
    /// SHA-256 of the public key that the CA had when it was taken over. What a CA above it signed, or one that came
    /// after it, is not among them.
    pub key: Fingerprint,
    /// When that was: what begins later is not from before.
    pub taken_over: UnixTime,
    /// The signer that the ledger names for them. It must be one that gives no rights.
    pub signer: SignerName,
}

impl Ledger {
    /// Takes over a certificate that is not on record, if its issuer takes such over. Its holder has proven to have the
    /// key. `None`: it counts for nothing.
    pub async fn adopt(
        &self,
        issuer: &IssuerId,
        certificate: &Certificate,
    ) -> Result<Option<LedgerEntry>, EngineError> {
        let issuer = self.core.issuer(issuer)?;
        let Some(adoption) = issuer.adoption() else {
            return Ok(None);
        };
        let now = self.core.clock.now();
        let name = certificate.subject().first_common_name();
        let Some(name) = name.filter(|_| adoption.covers(&issuer, certificate, now)) else {
            return Ok(None);
        };
        let entry = LedgerEntry {
            issuer: issuer.id().clone(),
            serial: certificate.serial(),
            request: self.core.new_request_id(now)?,
            signer: adoption.signer.clone(),
            name: name.to_owned(),
            key_fingerprint: fingerprint_sha256(certificate.spki_der()),
            not_before: certificate.not_before(),
            not_after: certificate.not_after(),
            retired: None,
            der: certificate.der().to_vec(),
            // No certificate without a decision: this one is the decision to take the CA over with what it had signed.
            explanation: Explanation {
                by: Some(Deciding::Person {
                    actor: Requester::authority(),
                    reason: format!("{REASON}, and first seen at {now}"),
                }),
                code: ReasonCode::Authority,
                ..Explanation::new(Effect::Approve, now, 0)
            },
            revoked: None,
        };
        let core = Arc::clone(&self.core);
        run_detached(async move { core.adopt(entry, now).await }).await
    }
}

impl Core {
    async fn adopt(
        &self,
        mut entry: LedgerEntry,
        now: UnixTime,
    ) -> Result<Option<LedgerEntry>, EngineError> {
        let (issuer, serial) = (entry.issuer.clone(), entry.serial);
        let newest = self.store.newest_certificate(&issuer, &entry.name).await?;
        // What its name has got since stays its newest.
        entry.retired = newest.map(|_| now);
        let mut adopted = self.commit_adopted(&entry, now).await;
        if let Err(CommitFault::Conflict { .. }) = adopted {
            entry.retired = Some(now);
            adopted = self.commit_adopted(&entry, now).await;
        }
        match adopted {
            Ok(()) => {
                info!(%issuer, %serial, name = ?entry.name, "taken over when it was first seen");
                Ok(Some(entry))
            }
            // By another connection, at the same moment; or the serial is burned.
            Err(CommitFault::DuplicateSerial { .. }) => {
                let found = self.store.certificate(&issuer, &serial).await?;
                Ok(found.filter(|found| found.der == entry.der))
            }
            Err(other) => Err(commit_broken(other)),
        }
    }

    async fn commit_adopted(&self, entry: &LedgerEntry, now: UnixTime) -> Result<(), CommitFault> {
        let is_free = Precondition::NewestCertificate {
            issuer: entry.issuer.clone(),
            name: entry.name.clone(),
            serial: None,
        };
        let subject = format!("{}/{}", entry.issuer, entry.serial);
        let audit = AuditEntry::own(now, "import", subject)
            .certname(&entry.name)
            .key(&entry.key_fingerprint)
            .serial(&entry.serial)
            .detail(REASON);
        let mut writes = vec![Write::Import(entry.clone())];
        if self.store.machine(&entry.name).await?.is_some() {
            writes.push(Write::EnrolMachine {
                name: entry.name.clone(),
                request: entry.request,
                at: entry.not_before,
            });
        }
        let change = Change {
            preconditions: Vec::from_iter(entry.retired.is_none().then_some(is_free)),
            writes,
            audit: vec![audit],
        };
        self.commit(change).await.map(|_| ())
    }

    /// Since when a name has a certificate of another authority that was taken over, and that is good.
    pub(crate) async fn taken_over(&self, name: &str) -> Result<Option<UnixTime>, EngineError> {
        let now = self.clock.now();
        for issuer in self.issuers.keys() {
            let newest = self.store.newest_certificate(issuer, name).await?;
            let good = newest.filter(|it| it.revoked.is_none() && it.not_after > now);
            if let Some(entry) = good.filter(LedgerEntry::is_taken_over) {
                return Ok(Some(entry.not_before));
            }
        }
        Ok(None)
    }
}

impl LedgerEntry {
    /// Whether the authority decided it by itself, as it does for what it takes over from another one.
    pub(crate) fn is_taken_over(&self) -> bool {
        match &self.explanation.by {
            Some(Deciding::Person { actor, .. }) => actor.identity == Identity::Authority,
            Some(Deciding::Rule { .. } | Deciding::Profile) | None => false,
        }
    }
}

impl Adoption {
    fn covers(&self, issuer: &Issuer, certificate: &Certificate, now: UnixTime) -> bool {
        let is_taken_over = |ca: &&Certificate| fingerprint_sha256(ca.spki_der()) == self.key;
        let mut known = [issuer.certificate()].into_iter().chain(issuer.previous());
        let signed = |ca: &Certificate| certificate.verify_signed_by(ca.spki_der()).is_ok();
        !certificate.is_ca()
            && certificate.not_before() <= self.taken_over.min(now)
            && certificate.not_after() >= now
            && known.find(is_taken_over).is_some_and(signed)
    }
}

const REASON: &str = "signed before the CA was imported";
