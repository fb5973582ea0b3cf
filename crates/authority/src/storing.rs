//! A submission on its way into the store: what is written of it, and what must still be true then.

use countersign_pki::{Serial, UnixTime, masked};
use countersign_policy::{Explanation, RecordedEvidence, Use};

use crate::audit::AuditEntry;
use crate::engine::Core;
use crate::issuance::Draft;
use crate::issuer::IssuerId;
use crate::judgement::{Case, Gathered, Times, used, uses_token};
use crate::model::{LedgerEntry, RequestId, RequestRecord, RequestState, Revision};
use crate::signer::Signer;
use crate::store::{Change, Precondition, RequestUpdate, Write};
use crate::submission::{Submission, trimmed};
use crate::telemetry::{DecisionOutcome, TokenEvent, settled_by};
use crate::token::{is_token_reason, rejected, report_rejection};

/// A submission on its way into the store.
pub(crate) struct Stored {
    pub(crate) submission: Submission,
    pub(crate) id: RequestId,
    pub(crate) state: RequestState,
    pub(crate) explanation: Explanation,
    pub(crate) evidence: RecordedEvidence,
    pub(crate) failure: Option<String>,
    /// What its approval uses up.
    pub(crate) uses: Vec<Use>,
    /// What was asked for it.
    pub(crate) gathered: Gathered,
    /// The certificate that it has from the start.
    pub(crate) certificate: Option<(IssuerId, Serial)>,
    pub(crate) now: UnixTime,
}

impl Stored {
    pub(crate) fn is_rejected(&self) -> bool {
        matches!(self.state, RequestState::Denied | RequestState::Undecided)
    }

    /// Whether an enrolment token approved it.
    pub(crate) fn uses_token(&self) -> bool {
        uses_token(&self.uses)
    }

    /// Whether it was approved to replace the name's certificate, or because there is none: that was another one.
    pub(crate) fn rests_on_newest(&self, precondition: &Precondition) -> bool {
        self.uses_token() && matches!(precondition, Precondition::NewestCertificate { .. })
    }

    /// The certificates that the name gives up for this one.
    pub(crate) fn replaced(&self) -> &[LedgerEntry] {
        self.gathered.replaced(&self.uses)
    }

    pub(crate) fn report(&self, core: &Core, outcome: DecisionOutcome) {
        let rule = settled_by(&self.explanation);
        let door = &self.submission.door;
        core.telemetry.decided(door, outcome, rule);
        if self.uses_token() {
            core.telemetry.token(TokenEvent::Consumed, "");
        } else {
            report_rejection(core, &self.explanation, &self.gathered, self.explanation.at);
        }
    }

    /// Whether it takes no name, and asks for none: a token that is wrong is told whoever has the name.
    pub(crate) fn is_aside(&self) -> bool {
        self.is_rejected() && !self.submission.retained && is_token_reason(&self.explanation.code)
    }

    pub(crate) fn change(
        &self,
        signer: Option<&Signer>,
        draft: Option<&Draft>,
        replaces: Option<&RequestRecord>,
        now: UnixTime,
    ) -> Change {
        let s = &self.submission;
        let mut change = Change::default();
        change.preconditions.push(Precondition::NotDenied {
            door: s.door.clone(),
            key: s.key.clone(),
            key_fingerprint: s.csr.key_fingerprint(),
        });
        match replaces {
            None if self.is_aside() => {}
            None => change.preconditions.push(Precondition::KeyFree {
                door: s.door.clone(),
                key: s.key.clone(),
            }),
            Some(old) => {
                change.preconditions.push(Precondition::RequestAt {
                    id: old.id,
                    version: old.version,
                });
                change.writes.push(match old.state {
                    // Agents ask every few minutes: what they replace is not kept.
                    RequestState::Pending => Write::DeleteRequest(old.id),
                    RequestState::Approved
                    | RequestState::Denied
                    | RequestState::Issued
                    | RequestState::Failed
                    | RequestState::Undecided => Write::UpdateRequest(RequestUpdate {
                        live: false,
                        ..RequestUpdate::none(old)
                    }),
                });
            }
        }
        let unique = signer.filter(|signer| signer.one_certificate_per_name && !self.is_aside());
        if let Some(signer) = unique {
            change.preconditions.push(Precondition::NewestCertificate {
                issuer: signer.issuer.clone(),
                name: s.key.clone(),
                serial: self.replaced().first().map(|entry| entry.serial),
            });
        }
        change.writes.push(Write::InsertRequest(self.record()));
        change.writes.extend(
            draft
                .iter()
                .map(|draft| Write::Intend(draft.intent().clone())),
        );
        if self.is_rejected() && !s.retained {
            change.writes.push(trimmed(&s.door, &s.key));
        }
        // As of when the rules looked: a window may have opened since the request arrived.
        let (case, decided) = (s.case(self.id, self.now, signer), self.explanation.at);
        let serial = draft.map(|draft| &draft.intent().serial);
        let times = Times { decided, now };
        used(&self.uses, case, &self.gathered, times, serial, &mut change);
        if !self.uses_token() {
            rejected(
                case,
                &self.explanation,
                &self.gathered,
                decided,
                &mut change,
            );
        }
        change.audit.extend(self.gathered.audit.iter().cloned());
        if let Some(old) = replaces.filter(|old| old.state == RequestState::Pending) {
            change.audit.push(self.replacing(old, case));
        }
        let subject = format!("{}/{}", s.door, s.key);
        change.audit.push(
            AuditEntry::new(self.now, s.requester.clone(), "request", subject)
                .request(&self.id)
                .certname(&s.key)
                .key(&s.csr.key_fingerprint())
                .message(&s.csr.fingerprint())
                .decided(&self.explanation)
                .detail(self.explanation.to_string()),
        );
        change
    }

    fn replacing(&self, old: &RequestRecord, case: Case<'_>) -> AuditEntry {
        let detail = match self.uses_token() {
            true => format!(
                "request {} takes its place, by its enrolment token; its key is {}",
                self.id,
                case.csr.key_fingerprint().to_hex()
            ),
            false => format!("request {} takes its place", self.id),
        };
        let actor = self.submission.requester.clone();
        AuditEntry::on(old, self.now, actor, "replace").detail(detail)
    }

    fn record(&self) -> RequestRecord {
        let s = &self.submission;
        RequestRecord {
            id: self.id,
            door: s.door.clone(),
            key: s.key.clone(),
            // What a rule turns away occupies no name: the next request is decided anew.
            live: !self.is_rejected() || s.retained,
            retained: s.retained,
            version: Revision::default(),
            state: self.state,
            signer: s.signer.clone(),
            // No secret of a token is kept.
            csr_der: masked(&s.csr).unwrap_or_else(|| s.csr.der().to_vec()),
            key_fingerprint: s.csr.key_fingerprint(),
            requester: s.requester.clone(),
            wishes: s.wishes.clone(),
            created: self.now,
            explanation: self.explanation.clone(),
            evidence: self.evidence.clone(),
            failure: self.failure.clone(),
            certificate: self.certificate.clone(),
            attachment: s.attachment.clone(),
        }
    }
}
