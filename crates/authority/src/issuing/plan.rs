//! What follows from a decision: chosen whole, before anything is written.
//!
//! Nothing here reads a clock, a store or a random source: what can differ between two calls is among the [`Facts`].

use std::sync::Arc;

use countersign_pki::{Serial, UnixTime, fingerprint_sha256, masked, without_bulk};
use countersign_policy::{
    Approval, Explanation, ReasonCode, RecordedEvidence, Requester, TokenUseState, Use, Verdict,
};

use super::Case;
use super::stages::Draft;
use crate::audit::AuditEntry;
use crate::evidence::evaluation::Gathered;
use crate::issuer::Issuer;
use crate::issuer::signer::Signer;
use crate::model::{
    DeferredRequest, Intent, LedgerEntry, Owner, RequestRecord, RequestState, Revision, Revocation,
};
use crate::profile::{DraftFault, Drafting, Validity};
use crate::request::collection::thefts_since;
use crate::request::confirmation::Confirmation;
use crate::request::denials::RepeatedDenials;
use crate::store::{Change, Precondition, RequestUpdate, Write};
use crate::token::{TokenId, TokenUseRecord, rejected};

/// What was decided about a case.
pub(crate) struct Decided {
    /// Where the request stands by it.
    pub(crate) state: RequestState,
    pub(crate) explanation: Explanation,
    /// What the decision rests on; `None`: as it is on record.
    pub(crate) evidence: Option<RecordedEvidence>,
    /// Why it cannot be signed.
    pub(crate) failure: Option<String>,
    /// What the approval uses up.
    pub(crate) uses: Vec<Use>,
    /// Consumed by the draft: one approval, one certificate.
    pub(crate) approval: Option<Approval>,
}

impl Decided {
    /// What the rules have decided.
    pub(crate) fn of(verdict: Verdict, evidence: RecordedEvidence, state: RequestState) -> Self {
        Self {
            state,
            explanation: verdict.explanation().clone(),
            evidence: Some(evidence),
            failure: None,
            uses: verdict.uses().to_vec(),
            approval: match verdict {
                Verdict::Approve(approval) => Some(approval),
                Verdict::Deny(_) | Verdict::Pending(_) => None,
            },
        }
    }

    /// Whether an enrolment token approved it.
    pub(crate) fn uses_token(&self) -> bool {
        uses_token(&self.uses)
    }

    pub(crate) fn is_rejected(&self) -> bool {
        matches!(self.state, RequestState::Denied | RequestState::Undecided)
    }
}

/// Whether an enrolment token is among what an approval uses.
pub(crate) fn uses_token(uses: &[Use]) -> bool {
    uses.iter().any(|used| used.token().is_some())
}

/// What the engine knows when it plans, beside case and decision.
pub(crate) struct Facts<'a> {
    pub(crate) standing: Standing<'a>,
    /// What was asked for the case.
    pub(crate) gathered: &'a Gathered,
    /// When the case was decided, or arrived.
    pub(crate) at: UnixTime,
    /// When this is planned.
    pub(crate) now: UnixTime,
    /// Where the certificate comes from, if there is to be one.
    pub(crate) slot: Option<Slot>,
    /// The certificates that the name gives up for this one, with what is due on the CRL.
    pub(crate) replaced: &'a [LedgerEntry],
    pub(crate) due: &'a [(LedgerEntry, Revocation)],
    /// Where a denial, or a request that takes another's place, is only counted: with which others.
    pub(crate) repeated: Option<RepeatedDenials>,
}

/// Where the request is when the decision is planned.
pub(crate) enum Standing<'a> {
    /// It arrives, and nothing of it is stored.
    Arriving(Arriving<'a>),
    /// It is on record, and waits.
    Waiting {
        record: &'a RequestRecord,
        /// The door's data, if they change.
        attachment: Option<Vec<u8>>,
        /// Who decided; `None`: rules did.
        person: Option<Person<'a>>,
    },
    /// It repeats an earlier one for another certificate like the one that came of that.
    Renewing {
        record: &'a RequestRecord,
        of: &'a LedgerEntry,
    },
    /// It is approved on record, and its intent was abandoned.
    Abandoned {
        record: &'a RequestRecord,
        intent: &'a Intent,
    },
    /// Another authority signs it; nothing of it is stored here.
    Elsewhere,
}

impl Standing<'_> {
    /// What the key has to wait for.
    fn confirmation(&self) -> Option<&Confirmation> {
        match self {
            Self::Arriving(arriving) => arriving.confirmation,
            Self::Waiting { .. }
            | Self::Renewing { .. }
            | Self::Abandoned { .. }
            | Self::Elsewhere => None,
        }
    }
}

/// A request that arrives.
#[derive(Clone, Copy)]
pub(crate) struct Arriving<'a> {
    /// Whether it keeps its name once issued.
    pub(crate) retained: bool,
    pub(crate) attachment: &'a [u8],
    /// The request of its name that it takes the place of.
    pub(crate) replaces: Option<&'a RequestRecord>,
    /// The certificate that it has from the start.
    pub(crate) certificate: Option<&'a LedgerEntry>,
    /// Whether its decision is stored elsewhere, where that matters.
    pub(crate) confirmation: Option<&'a Confirmation>,
}

/// A person who decides.
#[derive(Clone, Copy)]
pub(crate) struct Person<'a> {
    pub(crate) actor: &'a Requester,
    pub(crate) reason: &'a str,
}

/// Who signs, under which serial, and for how long.
pub(crate) struct Slot {
    pub(crate) issuer: Arc<Issuer>,
    pub(crate) serial: Serial,
    pub(crate) owner: Owner,
    pub(crate) lease_until: UnixTime,
    pub(crate) validity: PlannedValidity,
}

/// How long a certificate is to be valid.
#[derive(Clone, Copy)]
pub(crate) enum PlannedValidity {
    /// So many seconds, within the bounds of profile, approval and issuer; `None`: as long as is usual.
    Asked(Option<u64>),
    /// As it was intended before.
    Fixed(Validity),
}

/// Everything that follows from a decision.
pub(crate) struct Plan {
    /// What must still hold, what is written and audited. With a draft, its intent is among the writes.
    pub(crate) change: Change,
    /// What is to be signed once that is durable.
    pub(crate) draft: Option<Draft>,
    /// What is written with the certificate, and what must hold then.
    pub(crate) completion: Change,
    /// The request as it stands once the first change is durable.
    pub(crate) record: Arc<RequestRecord>,
    /// Whether it keeps its name with its certificate.
    pub(crate) retained: bool,
    /// Whether it rests on rules, which must still be in force when it is carried out.
    pub(crate) is_fenced: bool,
    /// What the key has to wait for.
    pub(crate) confirmation: Option<Confirmation>,
}

/// Chooses everything that follows from a decision.
///
/// # Errors
/// If the certificate cannot be drafted.
pub(crate) fn plan(
    case: Case<'_>,
    decision: Decided,
    signer: Option<&Signer>,
    facts: Facts<'_>,
) -> Result<Plan, DraftFault> {
    let mut decision = decision;
    let drafted = match (decision.approval.take(), signer, &facts.slot) {
        (Some(approval), Some(signer), Some(slot)) => {
            Some(draft(case, approval, signer, slot, facts.at)?)
        }
        (_, _, _) => None,
    };
    let mut steps = Steps {
        case,
        decision: &decision,
        signer,
        facts: &facts,
        serial: drafted.as_ref().map(|draft| draft.intent().serial),
        change: Change::default(),
    };
    let is_fenced = steps.is_fenced();
    let (record, retained) = steps.place();
    steps.claim_name();
    steps.apply_uses();
    steps.reject_token();
    steps.audit(&record);
    let mut change = steps.change;
    if let Some(repeated) = &facts.repeated {
        change.audit.retain(|entry| repeated.leaves(entry));
        change.writes.push(Write::CountDenial(repeated.clone()));
    }
    let completion = drafted.as_ref().map_or_else(Change::default, |draft| {
        complete(draft.intent(), &facts.standing, retained)
    });
    let draft = drafted.map(|draft| {
        let draft = defer(draft, &facts.standing, &record, &decision.uses, &mut change);
        change.writes.push(Write::Intend(draft.intent().clone()));
        draft
    });
    end_replaced(&mut change, &facts, case, signer);
    Ok(Plan {
        change,
        draft,
        completion,
        record,
        retained,
        is_fenced,
        confirmation: facts.standing.confirmation().cloned(),
    })
}

fn draft(
    case: Case<'_>,
    approval: Approval,
    signer: &Signer,
    slot: &Slot,
    at: UnixTime,
) -> Result<Draft, DraftFault> {
    let validity = match slot.validity {
        PlannedValidity::Asked(seconds) => signer
            .profile
            .validity(seconds, at, &slot.issuer)?
            .at_most(approval.explanation().lifetime, at),
        PlannedValidity::Fixed(validity) => validity,
    };
    let drafting = Drafting {
        request: case.id,
        csr: case.csr,
        key: case.key,
        wishes: case.wishes,
        signer: &signer.name,
        issuer: &slot.issuer,
        serial: slot.serial,
        validity: validity.within(&slot.issuer),
        owner: slot.owner.clone(),
        lease_until: slot.lease_until,
    };
    signer.profile.draft(approval, drafting)
}

/// Lets the intent hold a request that would otherwise be written twice within milliseconds. One that its door shows is
/// stored at once: its door tells of every state.
fn defer(
    draft: Draft,
    standing: &Standing<'_>,
    record: &Arc<RequestRecord>,
    uses: &[Use],
    change: &mut Change,
) -> Draft {
    match standing {
        Standing::Arriving(_) | Standing::Renewing { .. } if !record.retained => {
            // What is used up or replaced now is told now.
            let replaces =
                matches!(standing, Standing::Arriving(arriving) if arriving.replaces.is_some());
            let mut audit = match uses.is_empty() && !replaces {
                true => std::mem::take(&mut change.audit),
                false => Vec::new(),
            };
            for entry in &mut audit {
                entry.stamp(&draft.intent().owner);
            }
            draft.holding(DeferredRequest {
                request: match standing.confirmation() {
                    None => Arc::clone(record),
                    // Should this process end, nobody may take the decision for stored: its intent is voided.
                    Some(_) => Arc::new(RequestRecord {
                        state: RequestState::Undecided,
                        live: false,
                        ..RequestRecord::clone(record)
                    }),
                },
                audit,
            })
        }
        Standing::Arriving(_) | Standing::Renewing { .. } => {
            let record = RequestRecord::clone(record);
            change.writes.push(Write::InsertRequest(record));
            draft
        }
        Standing::Waiting { .. } | Standing::Abandoned { .. } | Standing::Elsewhere => draft,
    }
}

/// What is written with a certificate, beside the certificate itself.
fn complete(intent: &Intent, standing: &Standing<'_>, retained: bool) -> Change {
    let (request, serial) = (intent.request, intent.serial);
    let mut change = Change::default();
    change.preconditions.push(Precondition::IntentOpen {
        issuer: intent.issuer.clone(),
        serial,
        owner: Some(intent.owner.clone()),
    });
    let is_held = match standing {
        Standing::Renewing { of, .. } => {
            // A revocation counts the certificates of its name when it is committed: it comes either after this record
            // and hits the new certificate too, or before it and makes the record impossible.
            change.preconditions.push(unrevoked(of));
            true
        }
        Standing::Arriving(_) => !retained,
        Standing::Waiting { .. } | Standing::Abandoned { .. } | Standing::Elsewhere => false,
    };
    if !is_held {
        // Unless a signer elsewhere has settled it meanwhile.
        change.preconditions.push(Precondition::RequestIn {
            id: request,
            state: RequestState::Approved,
        });
        change.writes.push(Write::UpdateRequest(RequestUpdate {
            certificate: Some((intent.issuer.clone(), serial)),
            ..RequestUpdate::to_state(request, RequestState::Issued, retained)
        }));
    }
    change.writes.extend(
        intent
            .explanation
            .token
            .as_ref()
            .map(|used| Write::TokenIssued {
                id: TokenId::known(used.id.clone()),
                certname: used.certname.clone(),
                key_fingerprint: intent.key_fingerprint,
                serial,
            }),
    );
    change
}

/// Puts the end of replaced certificates before what the change writes of the new one, which must not end with them.
fn end_replaced(change: &mut Change, facts: &Facts<'_>, case: Case<'_>, signer: Option<&Signer>) {
    if facts.replaced.is_empty() {
        return;
    }
    let rest = std::mem::take(&mut change.writes);
    for (entry, due) in facts.due {
        change.writes.push(Write::Revoke(due.clone()));
        let detail = "its name's enrolment token may replace it";
        let audit = entry.revoked_by(case.requester, due.revoked).detail(detail);
        change.audit.push(audit);
    }
    let retires = signer.is_some_and(|signer| signer.one_certificate_per_name);
    if let Some(entry) = facts.replaced.first().filter(|_| retires) {
        change.retire(&entry.issuer, &entry.name, case.requester, facts.at);
    }
    change.writes.extend(rest);
}

/// A plan in the making.
struct Steps<'a> {
    case: Case<'a>,
    decision: &'a Decided,
    signer: Option<&'a Signer>,
    facts: &'a Facts<'a>,
    /// The certificate's, if there is to be one.
    serial: Option<Serial>,
    change: Change,
}

impl Steps<'_> {
    /// A person's approval counts whatever the rules say meanwhile, and so does one that is on record.
    fn is_fenced(&self) -> bool {
        let by_rules = match &self.facts.standing {
            Standing::Arriving(_) | Standing::Waiting { person: None, .. } => true,
            Standing::Waiting {
                person: Some(_), ..
            }
            | Standing::Renewing { .. }
            | Standing::Abandoned { .. }
            | Standing::Elsewhere => false,
        };
        by_rules && self.decision.state == RequestState::Approved
    }

    /// What becomes of the request itself. Answers how it stands then, and whether it keeps its name once issued.
    fn place(&mut self) -> (Arc<RequestRecord>, bool) {
        match &self.facts.standing {
            Standing::Arriving(arriving) => (self.arrive(*arriving), arriving.retained),
            Standing::Waiting {
                record, attachment, ..
            } => {
                let update = RequestUpdate {
                    state: self.decision.state,
                    live: record.live && !self.is_freed(record),
                    explanation: Some(self.decision.explanation.clone()),
                    evidence: self.decision.evidence.clone(),
                    failure: self.decision.failure.clone(),
                    attachment: attachment.clone(),
                    csr_der: match self.is_freed(record) {
                        true => without_bulk(&record.csr_der),
                        false => None,
                    },
                    ..RequestUpdate::none(record)
                };
                self.change.preconditions.push(unchanged(record));
                let updated = Arc::new(record.with(&update));
                self.change.writes.push(Write::UpdateRequest(update));
                (updated, record.retained)
            }
            Standing::Renewing { record, of } => {
                self.change.preconditions.push(unrevoked(of));
                (Arc::new(RequestRecord::clone(record)), false)
            }
            Standing::Abandoned { record, intent } => {
                self.abandon(record, intent);
                (Arc::new(RequestRecord::clone(record)), record.retained)
            }
            Standing::Elsewhere => (Arc::new(self.request_as_stored(None)), false),
        }
    }

    fn arrive(&mut self, arriving: Arriving<'_>) -> Arc<RequestRecord> {
        let Case { door, key, csr, .. } = self.case;
        let is_aside = self.is_aside(arriving);
        self.change.preconditions.push(Precondition::NotDenied {
            door: door.clone(),
            key: key.to_owned(),
            key_fingerprint: csr.key_fingerprint(),
        });
        match arriving.replaces {
            None if is_aside => {}
            None => self.change.preconditions.push(Precondition::KeyFree {
                door: door.clone(),
                key: key.to_owned(),
            }),
            Some(old) => self.take_place_of(old),
        }
        let record = Arc::new(self.request_as_stored(Some(arriving)));
        if self.serial.is_none() {
            let stored = RequestRecord::clone(&record);
            self.change.writes.push(Write::InsertRequest(stored));
        }
        if self.decision.is_rejected() && !arriving.retained {
            self.trim_rejections();
        }
        record
    }

    fn take_place_of(&mut self, old: &RequestRecord) {
        self.change.preconditions.push(unchanged(old));
        self.change.writes.push(match old.state {
            // It says that a token was stolen, and stays among what was turned away.
            RequestState::Pending if old.explanation.code == ReasonCode::TokenKeyMismatch => {
                Write::UpdateRequest(RequestUpdate {
                    live: false,
                    state: RequestState::Denied,
                    csr_der: without_bulk(&old.csr_der),
                    ..RequestUpdate::none(old)
                })
            }
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

    /// Burns the serial of an intent that its owner did not complete; the request has another one in the same commit.
    fn abandon(&mut self, record: &RequestRecord, intent: &Intent) {
        let why = "its owner did not complete it";
        self.change = void(intent, self.facts.at, why);
        if intent.deferred.is_none() {
            self.change.preconditions.push(unchanged(record));
        }
        // Nothing but its version changes, so that of two who try only one succeeds.
        let update = RequestUpdate::none(record);
        self.change.writes.push(Write::UpdateRequest(update));
    }

    /// The request as it would be stored.
    fn request_as_stored(&self, arriving: Option<Arriving<'_>>) -> RequestRecord {
        let (case, decision) = (self.case, self.decision);
        let retained = arriving.is_some_and(|arriving| arriving.retained);
        let certificate = arriving.and_then(|arriving| arriving.certificate);
        RequestRecord {
            id: case.id,
            door: case.door.clone(),
            key: case.key.to_owned(),
            // What a rule turns away occupies no name: the next request is decided anew.
            live: !decision.is_rejected() || retained,
            retained,
            version: Revision::default(),
            state: decision.state,
            signer: case.signer.clone(),
            csr_der: self.message_as_stored(retained),
            key_fingerprint: case.csr.key_fingerprint(),
            requester: case.requester.clone(),
            wishes: case.wishes.clone(),
            created: case.created,
            explanation: decision.explanation.clone(),
            evidence: decision.evidence.clone().unwrap_or_default(),
            failure: decision.failure.clone(),
            certificate: certificate.map(|entry| (entry.issuer.clone(), entry.serial)),
            attachment: arriving.map_or_else(Vec::new, |arriving| arriving.attachment.to_vec()),
        }
    }

    /// No secret of a token is kept, and of what is turned away nothing that nobody reads.
    fn message_as_stored(&self, retained: bool) -> Vec<u8> {
        let csr = self.case.csr;
        let whole = masked(csr).unwrap_or_else(|| csr.der().to_vec());
        match self.decision.is_rejected() && !retained {
            true => without_bulk(&whole).unwrap_or(whole),
            false => whole,
        }
    }

    /// A rule's denial of one that waits frees a name that is not kept; a person's holds for name and key.
    fn is_freed(&self, record: &RequestRecord) -> bool {
        let by_rules = matches!(self.facts.standing, Standing::Waiting { person: None, .. });
        by_rules && self.decision.state == RequestState::Denied && !record.retained
    }

    /// Whether it takes no name, and asks for none: a token that is wrong is told whoever has the name.
    fn is_aside(&self, arriving: Arriving<'_>) -> bool {
        self.decision.is_aside() && !arriving.retained
    }

    /// Where a name has one certificate at a time, it must have the one that was seen.
    fn claim_name(&mut self) {
        let is_asked = match &self.facts.standing {
            Standing::Arriving(arriving) => !self.is_aside(*arriving),
            Standing::Waiting { person: None, .. } => self.serial.is_some(),
            // A person says what becomes of another certificate; a renewal stands beside the one that it repeats.
            Standing::Waiting {
                person: Some(_), ..
            }
            | Standing::Renewing { .. }
            | Standing::Abandoned { .. }
            | Standing::Elsewhere => false,
        };
        let unique = self.signer.filter(|signer| signer.one_certificate_per_name);
        if let Some(signer) = unique.filter(|_| is_asked) {
            let precondition = Precondition::NewestCertificate {
                issuer: signer.issuer.clone(),
                name: self.case.key.to_owned(),
                serial: self.facts.replaced.first().map(|entry| entry.serial),
            };
            self.change.preconditions.push(precondition);
        }
    }

    /// What the approval uses up, to be written with it, and what must still be true then.
    fn apply_uses(&mut self) {
        // As of when the rules looked: a window may have opened since the request arrived.
        let decided = self.decision.explanation.at;
        for evidence in &self.decision.uses {
            match evidence {
                Use::Machine { name, once } => self.use_machine(name, *once, decided),
                Use::Token { id, name, .. } => self.use_token(id, name),
                Use::Window {
                    certname,
                    closes,
                    with_token,
                } => self.use_window(certname, *closes, *with_token, decided),
            }
        }
    }

    fn use_machine(&mut self, name: &str, once: bool, at: UnixTime) {
        let name = name.to_owned();
        if once {
            let unused = Precondition::MachineUnused { name: name.clone() };
            self.change.preconditions.push(unused);
        }
        self.change.preconditions.push(Precondition::MachineAt {
            name: name.clone(),
            version: self.facts.gathered.machine_version,
        });
        self.change.writes.push(Write::EnrolMachine {
            name,
            request: self.case.id,
            at,
        });
    }

    fn use_window(&mut self, certname: &str, closes: bool, with_token: bool, at: UnixTime) {
        self.change.preconditions.push(Precondition::WindowOpen {
            certname: certname.to_owned(),
            at,
            with_token,
        });
        self.change.writes.push(Write::UseWindow {
            certname: certname.to_owned(),
        });
        let detail = match with_token {
            true => "with the token that it wants",
            false => "the name alone was trusted: the window wants no token",
        };
        let entry = self.case.audit("window.used", at);
        self.change.audit.push(entry.detail(detail));
        if closes {
            let entry = self.case.audit("window.closed", at);
            self.change.audit.push(entry.detail("it is used up"));
        }
    }

    /// A token must still be good now, and only one succeeds.
    fn use_token(&mut self, id: &str, name: &str) {
        let (case, now) = (self.case, self.facts.now);
        let id = TokenId::known(id.to_owned());
        let key_fingerprint = case.csr.key_fingerprint();
        // First of all: who was faster with the token is the one that matters.
        let usable = Precondition::TokenUsable {
            id: id.clone(),
            certname: name.to_owned(),
            key_fingerprint,
            at: now,
        };
        self.change.preconditions.insert(0, usable);
        let entry = case
            .audit("token.consumed", now)
            .token(&id)
            .message(&case.csr.fingerprint());
        self.change.audit.push(match &self.serial {
            Some(serial) => entry.serial(serial),
            None => entry,
        });
        let retry_window = self.facts.gathered.looked_up.retry_window;
        let is_stored = !matches!(self.facts.standing, Standing::Elsewhere);
        self.change.writes.push(Write::UseToken(TokenUseRecord {
            token: id,
            certname: name.to_owned(),
            key_fingerprint,
            // Where nobody here signs, there is nothing to wait for.
            state: match self.serial {
                Some(_) => TokenUseState::Reserved,
                None => TokenUseState::Issued,
            },
            request: is_stored.then_some(case.id),
            serial: None,
            at: now,
            retry_until: now.plus_seconds(retry_window),
        }));
    }

    /// What a request that was not approved says of the token that came with it.
    fn reject_token(&mut self) {
        let is_told = match &self.facts.standing {
            Standing::Arriving(_) => !self.decision.uses_token(),
            Standing::Waiting { person: None, .. } => self.decision.state == RequestState::Denied,
            Standing::Waiting {
                person: Some(_), ..
            }
            | Standing::Renewing { .. }
            | Standing::Abandoned { .. }
            | Standing::Elsewhere => false,
        };
        if is_told {
            let (explanation, gathered) = (&self.decision.explanation, self.facts.gathered);
            rejected(
                self.case,
                explanation,
                gathered,
                explanation.at,
                &mut self.change,
            );
        }
        if let Standing::Waiting { record, .. } = &self.facts.standing
            && self.is_freed(record)
        {
            self.trim_rejections();
        }
    }

    /// Keeps what rules turn away under one name bounded.
    fn trim_rejections(&mut self) {
        self.change.writes.push(Write::TrimRejections {
            of: Some((self.case.door.clone(), self.case.key.to_owned())),
            keep: MAX_REJECTIONS_OF_A_NAME,
            bytes: u64::MAX,
            thefts_since: thefts_since(self.facts.now),
        });
    }

    fn audit(&mut self, record: &RequestRecord) {
        let (decision, at) = (self.decision, self.facts.at);
        let gathered = self.facts.gathered.audit.iter().cloned();
        let explained = |entry: AuditEntry| {
            let words = decision.explanation.to_string();
            entry.decided(&decision.explanation).detail(words)
        };
        match &self.facts.standing {
            Standing::Arriving(arriving) => {
                self.change.audit.extend(gathered);
                let pending = |old: &&RequestRecord| old.state == RequestState::Pending;
                if let Some(old) = arriving.replaces.filter(pending) {
                    self.change.audit.push(self.replacing(old));
                }
                let requester = self.case.requester.clone();
                let entry = AuditEntry::on(record, at, requester, "request");
                let entry = entry.message(&self.case.csr.fingerprint());
                self.change.audit.push(explained(entry));
            }
            Standing::Waiting {
                record,
                person: Some(person),
                ..
            } => {
                let entry = |action, words: &str| {
                    AuditEntry::on(record, at, person.actor.clone(), action)
                        .message(&fingerprint_sha256(&record.csr_der))
                        .detail(words)
                };
                let action = match decision.state {
                    RequestState::Denied => "deny",
                    RequestState::Pending
                    | RequestState::Approved
                    | RequestState::Issued
                    | RequestState::Failed
                    | RequestState::Undecided => "approve",
                };
                let acted = entry(action, person.reason).decided(&decision.explanation);
                self.change.audit.insert(0, acted);
                if let Some(failure) = &decision.failure {
                    self.change.audit.insert(1, entry("fail", failure));
                }
            }
            Standing::Waiting {
                record,
                person: None,
                ..
            } => {
                let action = match decision.state {
                    RequestState::Approved => "approve",
                    RequestState::Denied => "deny",
                    RequestState::Pending
                    | RequestState::Issued
                    | RequestState::Failed
                    | RequestState::Undecided => "reconsider",
                };
                let entry = AuditEntry::on(record, at, record.requester.clone(), action);
                self.change.audit.insert(0, explained(entry));
                self.change.audit.extend(gathered);
            }
            Standing::Renewing { record, .. } => {
                let entry = AuditEntry::on(record, at, record.requester.clone(), "renew");
                self.change.audit.push(explained(entry));
            }
            Standing::Abandoned { .. } => {}
            Standing::Elsewhere => self.change.audit.extend(gathered),
        }
    }

    fn replacing(&self, old: &RequestRecord) -> AuditEntry {
        let id = self.case.id;
        let detail = match self.decision.uses_token() {
            true => format!(
                "request {id} takes its place, by its enrolment token; its key is {}",
                self.case.csr.key_fingerprint().to_hex()
            ),
            false => format!("request {id} takes its place"),
        };
        let actor = self.case.requester.clone();
        AuditEntry::on(old, self.facts.at, actor, "replace").detail(detail)
    }
}

impl Decided {
    /// Whether it turns a request away for its token, which is told whoever has the name, or because another key has it.
    pub(crate) fn is_aside(&self) -> bool {
        let code = &self.explanation.code;
        self.is_rejected() && (code.is_about_token() || *code == ReasonCode::NameTaken)
    }
}

fn unchanged(record: &RequestRecord) -> Precondition {
    Precondition::RequestAt {
        id: record.id,
        version: record.version,
    }
}

fn unrevoked(entry: &LedgerEntry) -> Precondition {
    Precondition::Unrevoked {
        issuer: entry.issuer.clone(),
        serial: entry.serial,
    }
}

/// Burns the serial of an open intent.
pub(crate) fn void(intent: &Intent, at: UnixTime, why: &str) -> Change {
    Change {
        preconditions: vec![Precondition::IntentOpen {
            issuer: intent.issuer.clone(),
            serial: intent.serial,
            owner: None,
        }],
        writes: vec![Write::VoidIntent {
            issuer: intent.issuer.clone(),
            serial: intent.serial,
        }],
        audit: vec![voided(intent, at, why)],
    }
}

/// What the audit log says of a serial that was burned.
pub(crate) fn voided(intent: &Intent, at: UnixTime, why: &str) -> AuditEntry {
    let subject = format!("{}/{}", intent.issuer, intent.serial);
    AuditEntry::own(at, "void", subject)
        .request(&intent.request)
        .certname(&intent.name)
        .key(&intent.key_fingerprint)
        .serial(&intent.serial)
        .detail(why)
}

/// Agents that were turned away come back every few minutes.
const MAX_REJECTIONS_OF_A_NAME: usize = 10;

#[cfg(test)]
mod tests;
