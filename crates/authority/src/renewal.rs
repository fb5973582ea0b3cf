//! Renewal: the holder of a certificate gets another like it, without anybody being asked again.
//!
//! The new certificate is drafted from the request on record, examined as if it came in now, and compared
//! with the one it repeats: it has no name, extension, usage or lifetime that the old one did not have.
//! Where no request is on record (the certificate was taken over from another authority), the old
//! certificate itself says what was asked for.
//! The old one stays valid. A renewal that is cut short is not taken up again: nobody was promised its
//! certificate, the holder asks anew, and by then its certificate may be revoked.

use std::sync::Arc;

use countersign_pki::{
    Certificate, CheckedCsr, Extension, RequestTemplate, Serial, SignatureAlgorithm, UnixTime, oid,
    seal,
};
use countersign_policy::{
    Answer, Approval, Deciding, Effect, Explanation, Finding, RecordedEvidence, Requester,
    SignerName, Step, Wishes,
};

use crate::audit::AuditEntry;
use crate::engine::{Authority, Core};
use crate::faults::Broken;
use crate::issuance::{Draft, Intended, Issued};
use crate::issuer::IssuerId;
use crate::model::{Door, LedgerEntry, RequestRecord, RequestState, Revision};
use crate::profile::ProfileFault;
use crate::signer::Signer;
use crate::signing::{DraftFor, commit_broken};
use crate::store::{Change, CommitFault, Precondition, Write};
use crate::telemetry::DecisionOutcome;

/// Why a certificate was not renewed.
#[derive(Debug, thiserror::Error)]
pub enum RenewFault {
    /// No such certificate.
    #[error("issuer {issuer} has no certificate {serial}")]
    Unknown {
        /// Whose.
        issuer: IssuerId,
        /// Which.
        serial: Serial,
    },
    /// It was revoked, perhaps only now.
    #[error("certificate {serial} is revoked")]
    Revoked {
        /// Which.
        serial: Serial,
    },
    /// It is not valid any more.
    #[error("certificate {serial} ended at {not_after}")]
    Ended {
        /// Which.
        serial: Serial,
        /// When.
        not_after: UnixTime,
    },
    /// What it was made from is not on record.
    #[error("the request for certificate {serial} is not on record")]
    NoRequest {
        /// Which.
        serial: Serial,
    },
    /// Its signer does not sign any more.
    #[error("there is no signer {signer}")]
    NoSigner {
        /// The signer.
        signer: SignerName,
    },
    /// Its signer would not sign the like any more.
    #[error("certificate {serial} cannot be repeated: {fault}")]
    Unsignable {
        /// Which.
        serial: Serial,
        /// Why.
        fault: ProfileFault,
    },
    /// Its signer would give it more than it had.
    #[error("a certificate like {serial} would have more than it: {what}")]
    Wider {
        /// Which.
        serial: Serial,
        /// What it would have more.
        what: &'static str,
    },
    /// It could not be carried through.
    #[error(transparent)]
    Broken(#[from] Broken),
}

impl Authority {
    /// Issues another certificate like the one with this serial, for `lifetime` seconds or for as long
    /// as that one was made for, whichever is less. Once a revocation of the certificate is acknowledged,
    /// this fails, also if it had begun before.
    pub async fn renew(
        &self,
        issuer: &IssuerId,
        serial: &Serial,
        lifetime: u64,
        actor: &Requester,
    ) -> Result<Issued, RenewFault> {
        let core = Arc::clone(&self.core);
        let (issuer, serial, actor) = (issuer.clone(), *serial, actor.clone());
        self.carry_through(async move { core.renew(&issuer, &serial, lifetime, actor).await })
            .await
    }
}

impl Core {
    async fn renew(
        &self,
        issuer: &IssuerId,
        serial: &Serial,
        lifetime: u64,
        actor: Requester,
    ) -> Result<Issued, RenewFault> {
        let serial = *serial;
        let entry = self.renewable(issuer, serial).await?;
        let request = self.store.request(entry.request).await;
        let earlier = match request.map_err(Broken::from)? {
            Some(request) => request,
            None => implied_request(&entry, self.clock.now())?,
        };
        let door = earlier.door.clone();
        let renewed = self.renew_from(&entry, earlier, lifetime, actor).await;
        let outcome = DecisionOutcome::of_renewal(&renewed);
        self.telemetry.decided(&door, outcome, RULE);
        renewed
    }

    async fn renew_from(
        &self,
        entry: &LedgerEntry,
        earlier: RequestRecord,
        lifetime: u64,
        actor: Requester,
    ) -> Result<Issued, RenewFault> {
        let (issuer, serial) = (&entry.issuer, entry.serial);
        let now = self.clock.now();
        let record = RequestRecord {
            id: self.new_request_id(now)?,
            live: false,
            retained: false,
            version: Revision::default(),
            // Becomes `Issued` with the certificate; recovery completes only what is `Approved`.
            state: RequestState::Failed,
            requester: actor.clone(),
            created: now,
            explanation: explanation(&serial, now, self.rules.load().policy.generation),
            failure: None,
            certificate: None,
            attachment: Vec::new(),
            ..earlier
        };
        let draft = self.draft_renewal(entry, &record, lifetime, now)?;
        let unrevoked = Precondition::Unrevoked {
            issuer: issuer.clone(),
            serial,
        };
        let change = Change {
            preconditions: vec![unrevoked.clone()],
            audit: vec![
                AuditEntry::on(&record, now, actor, "renew")
                    .decided(&record.explanation)
                    .detail(record.explanation.to_string()),
            ],
            writes: vec![
                Write::InsertRequest(record),
                Write::Intend(draft.intent().clone()),
            ],
        };
        let flight = self.in_flight(&draft);
        match self.commit(change).await {
            Ok(_) => {}
            Err(CommitFault::Conflict { .. }) => return Err(RenewFault::Revoked { serial }),
            Err(other) => return Err(commit_broken(other).into()),
        }
        // A revocation counts the certificates of its name when it is committed: it comes either after
        // this record and hits the new certificate too, or before it and makes the record impossible.
        let completed = self
            .complete_while(
                vec![unrevoked],
                Intended::after_durable_commit(draft),
                false,
            )
            .await;
        drop(flight);
        match completed {
            Ok((issued, _)) => Ok(issued),
            Err(Broken::Contended) => {
                self.renewable(issuer, serial).await?;
                Err(Broken::Contended.into())
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// The ledger entry, if it is good now.
    async fn renewable(
        &self,
        issuer: &IssuerId,
        serial: Serial,
    ) -> Result<LedgerEntry, RenewFault> {
        let found = self.store.certificate(issuer, &serial).await;
        let entry = found
            .map_err(Broken::from)?
            .ok_or_else(|| RenewFault::Unknown {
                issuer: issuer.clone(),
                serial,
            })?;
        if entry.revoked.is_some() {
            return Err(RenewFault::Revoked { serial });
        }
        if entry.not_after < self.clock.now() {
            return Err(RenewFault::Ended {
                serial,
                not_after: entry.not_after,
            });
        }
        Ok(entry)
    }

    fn draft_renewal(
        &self,
        entry: &LedgerEntry,
        record: &RequestRecord,
        lifetime: u64,
        now: UnixTime,
    ) -> Result<Draft, RenewFault> {
        let serial = entry.serial;
        let signer = self.signer(&entry.signer);
        let signer = signer
            .as_deref()
            .filter(|signer| signer.issuer == entry.issuer)
            .ok_or_else(|| RenewFault::NoSigner {
                signer: entry.signer.clone(),
            })?;
        let unreadable = |source| Broken::StoredRequest {
            id: entry.request,
            source,
        };
        let csr = CheckedCsr::trusted_from_store(&record.csr_der).map_err(unreadable)?;
        signer
            .profile
            .examine(&csr, &record.key, &record.wishes)
            .map_err(|fault| RenewFault::Unsignable { serial, fault })?;
        let issuer = self.issuer(&signer.issuer)?;
        let asked = lifetime.min(approved_lifetime(entry, signer));
        let validity = signer
            .profile
            .validity(Some(asked), now, &issuer)
            .map_err(Broken::from)?;
        let approval = Approval::from_recorded_decision(record.explanation.clone())
            .ok_or(RenewFault::NoRequest { serial })?;
        let of = DraftFor {
            id: record.id,
            csr: &csr,
            key: &record.key,
            wishes: &record.wishes,
            validity,
        };
        let draft = self.draft(approval, signer, of)?;
        let unsigned =
            seal(draft.to_be_signed(), draft.issuer().algorithm(), &[0]).map_err(Broken::from)?;
        let wider = |what| RenewFault::Wider { serial, what };
        let unreadable = |_| wider("the two cannot be compared");
        let old = Certificate::parse(&entry.der).map_err(unreadable)?;
        let new = Certificate::parse(&unsigned).map_err(unreadable)?;
        match more_than(&old, &new) {
            None => Ok(draft),
            Some(what) => Err(wider(what)),
        }
    }
}

/// The request that a certificate answers, as far as the certificate tells. Nobody signed it: it is read by this
/// authority alone, and what is drafted from it is compared with the certificate again.
fn implied_request(entry: &LedgerEntry, now: UnixTime) -> Result<RequestRecord, RenewFault> {
    let serial = entry.serial;
    let missing = || RenewFault::NoRequest { serial };
    let certificate = Certificate::parse(&entry.der).map_err(|_| missing())?;
    let asked_for = |extension: &&Extension| {
        extension.oid == oid::SUBJECT_ALT_NAME || !ELSEWHERE.contains(&extension.oid)
    };
    let extensions: Vec<Extension> = certificate
        .extensions()
        .iter()
        .filter(asked_for)
        .cloned()
        .collect();
    let template = RequestTemplate {
        subject_der: certificate.subject().der(),
        spki_der: certificate.spki_der(),
        extensions: &extensions,
        attributes: &[],
    };
    let unsigned = template
        .to_be_signed()
        .and_then(|text| seal(&text, SignatureAlgorithm::EcdsaP256Sha256, &[0]))
        .map_err(|_| missing())?;
    // A key that no request may have today is not renewed either.
    CheckedCsr::trusted_from_store(&unsigned).map_err(|_| missing())?;
    Ok(RequestRecord {
        evidence: RecordedEvidence::default(),
        id: entry.request,
        // It came through none of this authority's doors.
        door: Door::LOCAL,
        key: entry.name.clone(),
        live: false,
        retained: false,
        version: Revision::default(),
        state: RequestState::Issued,
        signer: entry.signer.clone(),
        csr_der: unsigned,
        key_fingerprint: entry.key_fingerprint,
        requester: Requester::authority(),
        wishes: Wishes::default(),
        created: now,
        explanation: entry.explanation.clone(),
        failure: None,
        certificate: None,
        attachment: Vec::new(),
    })
}

/// How long the certificate was made for, in seconds: what lies before its making is not counted.
fn approved_lifetime(entry: &LedgerEntry, signer: &Signer) -> u64 {
    let span = entry.not_after.seconds_since(entry.not_before);
    u64::try_from(span)
        .unwrap_or(0)
        .saturating_sub(signer.profile.lifetime.backdate)
}

/// What the new certificate has more than the old one.
fn more_than(old: &Certificate, new: &Certificate) -> Option<&'static str> {
    if new.subject().der() != old.subject().der() {
        return Some("another subject");
    }
    if new.spki_der() != old.spki_der() {
        return Some("another key");
    }
    let names = old.alt_names();
    if new.alt_names().iter().any(|name| !names.contains(name)) {
        return Some("another alternative name");
    }
    let usages = old.extended_key_usages();
    let new_usages = new.extended_key_usages();
    if !usages.is_empty() && new_usages.iter().any(|usage| !usages.contains(usage)) {
        return Some("another extended key usage");
    }
    if let Some(bits) = old.key_usage()
        && new.key_usage().is_none_or(|asked| !bits.contains(asked))
    {
        return Some("another key usage");
    }
    let is_old = |new: &Extension| {
        old.extension(&new.oid).is_some_and(|old| {
            let text = new.text_value();
            old.value == new.value || (text.is_some() && old.text_value() == text)
        })
    };
    let compared = |new: &&Extension| !ELSEWHERE.contains(&new.oid);
    if !new.extensions().iter().filter(compared).all(is_old) {
        return Some("another extension");
    }
    None
}

fn explanation(serial: &Serial, at: UnixTime, generation: u64) -> Explanation {
    Explanation {
        by: Some(Deciding::rule(RULE)),
        steps: vec![Step {
            answer: Answer::Approve,
            code: RULE.into(),
            ..Step::new(
                RULE,
                RULE,
                Finding::Match,
                format!("repeats certificate {serial}"),
            )
        }],
        code: RULE.into(),
        ..Explanation::new(Effect::Approve, at, generation)
    }
}

/// The rule that every renewal is approved by.
const RULE: &str = "renewal";

/// Extensions that are compared by what they mean, or that give nobody anything.
const ELSEWHERE: [oid::Oid; 7] = [
    oid::SUBJECT_ALT_NAME,
    oid::KEY_USAGE,
    oid::EXTENDED_KEY_USAGE,
    oid::BASIC_CONSTRAINTS,
    oid::AUTHORITY_KEY_IDENTIFIER,
    oid::SUBJECT_KEY_IDENTIFIER,
    oid::NS_COMMENT,
];
