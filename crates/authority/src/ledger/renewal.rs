//! Renewal: the holder of a certificate gets another like it, without anybody being asked again.
//!
//! The new certificate is drafted from the request on record, examined as if it came in now, and compared
//! with the one it repeats: it has no name, extension, usage or lifetime that the old one did not have.
//! Where no request is on record (the certificate was taken over from another authority), the old
//! certificate itself says what was asked for.
//! The old one stays valid. Whoever has been renewed four times within a twentieth of a certificate's life gets the last of
//! these again: each certificate of a name is on the CRL when the name is revoked. A renewal that is cut short is not taken up again: nobody was promised its
//! certificate, the holder asks anew, and by then its certificate may be revoked.

use std::sync::Arc;

use countersign_pki::{
    AltName, Certificate, CheckedCsr, Extension, NameAttribute, RequestTemplate, Serial, Subject,
    UnixTime, fingerprint_sha256, oid, seal,
};
use countersign_policy::{
    Answer, Approval, Deciding, Effect, Explanation, Finding, Identity, ReasonCode,
    RecordedEvidence, Requester, SignerName, Step, Wishes,
};

use tracing::warn;

use crate::authorisation::actor::Actor;
use crate::authorisation::grant::Needed;
use crate::detached::run_detached;
use crate::engine::Core;
use crate::evidence::evaluation::Gathered;
use crate::faults::{EngineError, SubmitFault};
use crate::issuer::IssuerId;
use crate::issuer::signer::Signer;
use crate::issuing::stages::{Draft, Issued};
use crate::issuing::{Case, Conflict, Decided, Order, PlannedValidity, Standing};
use crate::ledger::Ledger;
use crate::model::{Door, LedgerEntry, RequestRecord, RequestState, Revision};
use crate::profile::ProfileFault;
use crate::request::claims::Claim;
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
    /// Whoever asks may not.
    #[error(transparent)]
    Forbidden(#[from] Needed),
    /// It could not be carried through.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// What a renewal came to.
#[derive(Debug)]
pub enum Renewed {
    /// A new certificate.
    New(Issued),
    /// The one that an earlier renewal came to, a short while ago.
    Recent(LedgerEntry),
}

impl Renewed {
    /// The certificate.
    pub fn der(&self) -> &[u8] {
        match self {
            Self::New(issued) => issued.der(),
            Self::Recent(entry) => &entry.der,
        }
    }

    /// Its serial.
    pub fn serial(&self) -> Serial {
        match self {
            Self::New(issued) => issued.intent().serial,
            Self::Recent(entry) => entry.serial,
        }
    }
}

impl Ledger {
    /// Issues another certificate like the one with this serial, for `lifetime` seconds or for as long
    /// as that one was made for, whichever is less. If that was done a short while ago, the certificate of
    /// then is the answer. Once a revocation of the certificate is acknowledged,
    /// this fails, also if it had begun before.
    pub async fn renew(
        &self,
        issuer: &IssuerId,
        serial: &Serial,
        lifetime: u64,
        actor: &Actor,
    ) -> Result<Renewed, RenewFault> {
        self.renewed((issuer, *serial), None, lifetime, actor).await
    }

    /// The same for a certificate that its holder shows: of some that were taken over the ledger has no more than the
    /// line of an inventory.
    pub async fn renew_shown(
        &self,
        issuer: &IssuerId,
        shown: &Certificate,
        lifetime: u64,
        actor: &Actor,
    ) -> Result<Renewed, RenewFault> {
        let of = (issuer, shown.serial());
        self.renewed(of, Some(shown), lifetime, actor).await
    }

    async fn renewed(
        &self,
        (issuer, serial): (&IssuerId, Serial),
        shown: Option<&Certificate>,
        lifetime: u64,
        actor: &Actor,
    ) -> Result<Renewed, RenewFault> {
        let core = Arc::clone(&self.core);
        let (issuer, shown, actor) = (issuer.clone(), shown.cloned(), actor.clone());
        run_detached(async move {
            core.authorise_renewal(&issuer, &serial, &actor).await?;
            let mut entry = core.renewable(&issuer, serial).await?;
            if let Some(shown) = shown.filter(|_| entry.der.is_empty()) {
                core.complete(&mut entry, &shown)?;
            }
            core.renew(&entry, lifetime, actor.requester).await
        })
        .await
    }
}

impl Core {
    async fn renew(
        &self,
        entry: &LedgerEntry,
        lifetime: u64,
        actor: Requester,
    ) -> Result<Renewed, RenewFault> {
        let request = self.store.request(entry.request).await;
        let earlier = match request.map_err(EngineError::from)? {
            Some(request) => request,
            None => implied_request(entry, self.clock.now())?,
        };
        let door = earlier.door.clone();
        // One at a time, so that the second sees what the first came to.
        let turn = renewal_of(&entry.issuer, &entry.name);
        let turn = self.claims.claim_soon(&door, &turn).await;
        let _turn = turn.ok_or(EngineError::Contended)?;
        let renewed = self.renew_from(entry, earlier, lifetime, actor).await;
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
    ) -> Result<Renewed, RenewFault> {
        let (issuer, serial) = (&entry.issuer, entry.serial);
        let now = self.clock.now();
        let rules = self.rules.load_full();
        let signer = rules.signer(&entry.signer);
        let signer = signer.filter(|signer| signer.issuer == entry.issuer);
        let signer = signer.ok_or_else(|| RenewFault::NoSigner {
            signer: entry.signer.clone(),
        })?;
        let record = RequestRecord {
            id: self.new_request_id(now)?,
            live: false,
            retained: false,
            version: Revision::default(),
            // Becomes `Issued` with the certificate; recovery completes only what is `Approved`.
            state: RequestState::Failed,
            requester: actor,
            created: now,
            explanation: explanation(&serial, now, rules.policy.generation),
            failure: None,
            certificate: None,
            attachment: Vec::new(),
            ..earlier
        };
        let unreadable = |source| EngineError::StoredRequest {
            id: entry.request,
            source,
        };
        let csr = CheckedCsr::trusted_from_store(&record.csr_der).map_err(unreadable)?;
        signer
            .profile
            .examine(&csr, &record.key, &record.wishes)
            .map_err(|fault| RenewFault::Unsignable { serial, fault })?;
        let asked = lifetime.min(approved_lifetime(entry, &signer));
        let approval = Approval::from_recorded_decision(record.explanation.clone());
        let decision = Decided {
            state: RequestState::Failed,
            explanation: record.explanation.clone(),
            evidence: None,
            failure: None,
            uses: Vec::new(),
            approval: Some(approval.ok_or(EngineError::Defect)?),
        };
        let gathered = Gathered::default();
        let id = record.id;
        let order = Order {
            case: record.case(Some(&signer), &csr),
            decision,
            standing: Standing::Renewing {
                record: &record,
                of: entry,
            },
            rules: &rules,
            gathered: &gathered,
            at: now,
            validity: PlannedValidity::Asked(Some(asked)),
        };
        let prepared = self.prepare(order).await?;
        let draft = prepared.plan.draft.as_ref().ok_or(EngineError::Defect)?;
        self.compare(entry, draft)?;
        if let Some(recent) = self.recent_renewal(entry, asked, now).await? {
            // Whoever was revoked meanwhile gets nothing.
            self.renewable(issuer, serial).await?;
            return Ok(Renewed::Recent(recent));
        }
        match self.execute(prepared).await {
            Ok(outcome) => outcome.issued.map(Renewed::New).ok_or_else(|| {
                warn!(request = %id, "a renewal came to no certificate");
                EngineError::Defect.into()
            }),
            Err(Conflict::Revoked) => Err(RenewFault::Revoked { serial }),
            Err(
                Conflict::Rules
                | Conflict::Evidence
                | Conflict::Name
                | Conflict::Certificate
                | Conflict::Request
                | Conflict::Serial
                | Conflict::Overtaken,
            ) => {
                self.renewable(issuer, serial).await?;
                Err(EngineError::Contended.into())
            }
            Err(Conflict::Engine(fault)) => Err(fault.into()),
        }
    }

    /// What the same key got under the name by the last of several renewals, all a short while ago: it must have nothing that
    /// a renewal of this certificate could not have now.
    async fn recent_renewal(
        &self,
        entry: &LedgerEntry,
        asked: u64,
        now: UnixTime,
    ) -> Result<Option<LedgerEntry>, RenewFault> {
        let all = self.store.certificates_of(&entry.issuer, &entry.name, now);
        let mut all = all.await.map_err(EngineError::from)?;
        all.retain(|other| {
            other.key_fingerprint == entry.key_fingerprint
                && other.signer == entry.signer
                && other.revoked.is_none()
                && other.retired.is_none()
                && other.not_after <= now.plus_seconds(asked)
                && is_recent_renewal(other, now)
        });
        // A few are granted: answers get lost, and machines are tried out.
        if all.len() < RENEWALS_AT_ONCE {
            return Ok(None);
        }
        let Ok(old) = Certificate::parse(&entry.der) else {
            return Ok(None);
        };
        all.sort_by_key(|other| other.not_after);
        let has_no_more = |other: &LedgerEntry| {
            Certificate::parse(&other.der).is_ok_and(|new| more_than(&old, &new).is_none())
        };
        Ok(all.into_iter().rev().find(has_no_more))
    }

    /// Where rules let somebody renew its own certificate by another request, with whatever key: one at a time, and not too
    /// often. Its turn lasts until that is dropped.
    pub(crate) async fn renew_in_turn(
        &self,
        case: Case<'_>,
        signer: Option<&Signer>,
        decision: &Decided,
    ) -> Result<Option<Claim<'_>>, SubmitFault> {
        let is_own = match &case.requester.identity {
            Identity::User { username, .. } => username == case.name,
            Identity::Anonymous | Identity::Certname { .. } | Identity::Authority => false,
        };
        let by_rules = matches!(decision.explanation.by, Some(Deciding::Rule { .. }));
        let is_renewed = by_rules && decision.approval.is_some() && !decision.uses_token();
        let Some(signer) = signer.filter(|_| is_own && is_renewed) else {
            return Ok(None);
        };
        let turn = renewal_of(&signer.issuer, case.name);
        let turn = self.claims.claim_soon(case.door, &turn).await;
        let turn = turn.ok_or(EngineError::Contended)?;
        let now = self.clock.now();
        let all = self
            .store
            .certificates_of(&signer.issuer, case.name, now)
            .await;
        let all = all.map_err(EngineError::from)?;
        let is_recent = |entry: &&LedgerEntry| entry.signer == signer.name && is_recent(entry, now);
        match all.iter().filter(is_recent).count() < OWN_RENEWALS_AT_ONCE {
            true => Ok(Some(turn)),
            false => Err(SubmitFault::TooManyRenewals {
                name: case.name.to_owned(),
                limit: OWN_RENEWALS_AT_ONCE,
            }),
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
            .map_err(EngineError::from)?
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

    /// Takes what an entry lacks from the certificate itself, if that is the one: the issuer's signature says so, the
    /// name and the times of the entry.
    fn complete(&self, entry: &mut LedgerEntry, shown: &Certificate) -> Result<(), RenewFault> {
        let is_it = self.issuer(&entry.issuer)?.has_signed(shown)
            && shown.serial() == entry.serial
            && shown.subject().first_common_name() == Some(entry.name.as_str())
            && shown.not_before() == entry.not_before
            && shown.not_after() == entry.not_after;
        if !is_it {
            return Err(RenewFault::NoRequest {
                serial: entry.serial,
            });
        }
        entry.der = shown.der().to_vec();
        entry.key_fingerprint = fingerprint_sha256(shown.spki_der());
        Ok(())
    }

    /// A renewal has nothing that the certificate which it repeats did not have.
    fn compare(&self, entry: &LedgerEntry, draft: &Draft) -> Result<(), RenewFault> {
        let serial = entry.serial;
        let unsigned = seal(draft.to_be_signed(), draft.issuer().algorithm(), &[0])
            .map_err(EngineError::from)?;
        let wider = |what| RenewFault::Wider { serial, what };
        let unreadable = |_| wider("the two cannot be compared");
        let old = Certificate::parse(&entry.der).map_err(unreadable)?;
        let new = Certificate::parse(&unsigned).map_err(unreadable)?;
        match more_than(&old, &new) {
            None => Ok(()),
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
    // A key that cannot be read today is not renewed either. One for which anybody could sign is read, and refused when the
    // request is examined.
    let unsigned = template.unsigned().ok_or_else(missing)?;
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
        csr_der: unsigned.der().to_vec(),
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

/// What is done for one at a time.
fn renewal_of(issuer: &IssuerId, name: &str) -> String {
    format!("renewal of {issuer}/{name}")
}

fn is_recent_renewal(entry: &LedgerEntry, now: UnixTime) -> bool {
    entry.explanation.code == ReasonCode::Renewal && is_recent(entry, now)
}

/// Whether it was made within a short part of its life.
fn is_recent(entry: &LedgerEntry, now: UnixTime) -> bool {
    let life = entry.not_after.seconds_since(entry.not_before);
    let pause = u64::try_from(life).unwrap_or(0) / RENEWALS_IN_A_LIFE;
    now < entry.explanation.at.plus_seconds(pause)
}

/// What the new certificate has more than the old one.
fn more_than(old: &Certificate, new: &Certificate) -> Option<&'static str> {
    if !is_within(new.subject(), old.subject()) {
        return Some("another subject");
    }
    if new.spki_der() != old.spki_der() {
        return Some("another key");
    }
    // Certificates of old authorities have no alternative names: their own name stands in the subject alone.
    let own = |name: &AltName| match name {
        AltName::Dns(name) => old.subject().first_common_name() == Some(name),
        AltName::Ip(_) | AltName::Email(_) | AltName::Uri(_) | AltName::Other { .. } => false,
    };
    let is_new = |name: &AltName| !old.alt_names().contains(name) && !own(name);
    if new.alt_names().iter().any(is_new) {
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

/// Whether a name says nothing that the other did not say. How its texts are encoded does not matter (RFC 5280 7.1).
fn is_within(new: &Subject, old: &Subject) -> bool {
    let is_same = |one: &NameAttribute, other: &NameAttribute| {
        one.oid == other.oid
            && match one.value.text() {
                Some(text) => other.value.text() == Some(text),
                None => one.value == other.value,
            }
    };
    new.first_common_name() == old.first_common_name()
        && new
            .attributes()
            .all(|one| old.attributes().any(|other| is_same(one, other)))
}

fn explanation(serial: &Serial, at: UnixTime, generation: u64) -> Explanation {
    Explanation {
        by: Some(Deciding::rule(RULE)),
        steps: vec![Step {
            answer: Answer::Approve,
            code: ReasonCode::Renewal,
            ..Step::new(
                RULE,
                RULE,
                Finding::Match,
                format!("repeats certificate {serial}"),
            )
        }],
        code: ReasonCode::Renewal,
        ..Explanation::new(Effect::Approve, at, generation)
    }
}

/// So many at most within the life of a certificate. Agents renew after half of it or later.
const RENEWALS_IN_A_LIFE: u64 = 20;
/// Renewals of a name and key within that part of a life before the last one is given again.
const RENEWALS_AT_ONCE: usize = 4;
/// The same where nobody can be given the last one again, because each request has a key and a name of its own: machines
/// that are restarted or set up anew get what they need.
const OWN_RENEWALS_AT_ONCE: usize = 10;

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
