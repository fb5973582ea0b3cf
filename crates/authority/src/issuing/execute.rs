//! Carries a plan out: commits, has the key sign, commits again. It makes no choices.

use std::sync::{Arc, PoisonError};

use countersign_pki::{Serial, UnixTime};
use tracing::{info, warn};

use super::Case;
use super::plan::{Decided, Facts, Plan, PlannedValidity, Slot, Standing, plan, void};
use super::recent::ShownCertificate;
use super::stages::{Draft, Intended, Issued, Sealed};
use crate::audit::AuditEntry;
use crate::engine::Core;
use crate::evidence::evaluation::Gathered;
use crate::faults::EngineError;
use crate::issuer::IssuerId;
use crate::issuer::signer::Signer;
use crate::model::{Intent, LedgerEntry, RequestId, RequestRecord, RequestState, Revision};
use crate::request::confirmation::Confirmation;
use crate::request::denials::Recurrence;
use crate::rules::Rules;
use crate::store::{Change, CommitFault, Precondition, Write};
use crate::telemetry::Honored;
use crate::token::Revoking;

/// What came of a decision; all of it is durable.
#[derive(Debug)]
pub struct Outcome {
    /// The request's identity.
    pub id: RequestId,
    /// Where it stands.
    pub state: RequestState,
    /// Its version: the commit that finished it.
    pub version: Revision,
    /// Its certificate, if it was issued by this.
    pub issued: Option<Issued>,
    pub(crate) stored: StoredRequest,
}

/// A request as the first commit has stored it, or its intent.
#[derive(Debug)]
pub(crate) struct StoredRequest {
    request: Arc<RequestRecord>,
    /// Whether it keeps its name with its certificate.
    retained: bool,
}

/// A request as it is on record, with the ledger's entry of its certificate.
#[derive(Debug)]
pub struct Recorded {
    /// The request.
    pub request: RequestRecord,
    /// The entry; `None`: there is no certificate, or somebody else made it at the same moment.
    pub certificate: Option<LedgerEntry>,
}

impl Outcome {
    /// What came of a request that somebody else has finished.
    pub(crate) fn of(request: RequestRecord) -> Self {
        Self {
            id: request.id,
            state: request.state,
            version: request.version,
            issued: None,
            stored: StoredRequest {
                retained: request.retained,
                request: Arc::new(request),
            },
        }
    }

    /// Request and certificate as they are on record, without reading them back.
    pub fn into_recorded(self) -> Recorded {
        self.stored.finished(self.state, self.version, self.issued)
    }
}

impl StoredRequest {
    /// What the last commit has made of it. Copies the request only if somebody else still has it.
    pub(crate) fn finished(
        self,
        state: RequestState,
        version: Revision,
        issued: Option<Issued>,
    ) -> Recorded {
        let certificate = issued.map(Issued::into_entry);
        let mut request = Arc::unwrap_or_clone(self.request);
        request.state = state;
        request.version = version;
        if let Some(entry) = &certificate {
            request.live = self.retained;
            request.certificate = Some((entry.issuer.clone(), entry.serial));
        }
        Recorded {
            request,
            certificate,
        }
    }
}

/// Why a plan was not carried out. Unless it says otherwise, nothing of it was written.
#[derive(Debug)]
pub(crate) enum Conflict {
    /// The rules or rights that it rests on are no longer in force.
    Rules,
    /// Evidence that it uses was used up, changed or withdrawn.
    Evidence,
    /// The name has another request, or a person has denied its key.
    Name,
    /// The name has another certificate than the one that was seen, or one is being signed.
    Certificate,
    /// The request, or the one that it replaces, was changed.
    Request,
    /// The certificate that it repeats is revoked. Perhaps the first commit was made; its intent is void.
    Revoked,
    /// The serial is taken.
    Serial,
    /// The first commit was made; then a signer elsewhere settled the request, somebody ended the intent, or the decision
    /// was not stored where it belongs. The intent is void.
    Overtaken,
    /// The machinery failed. If the first commit was made, recovery finishes what it began.
    Engine(EngineError),
}

impl From<EngineError> for Conflict {
    fn from(fault: EngineError) -> Self {
        Self::Engine(fault)
    }
}

impl Conflict {
    /// What a precondition of the first commit that does not hold says.
    fn from_precondition(precondition: &Precondition) -> Self {
        match precondition {
            Precondition::MachineUnused { .. }
            | Precondition::MachineAt { .. }
            | Precondition::MachineExists { .. }
            | Precondition::WindowOpen { .. }
            | Precondition::WindowClosed { .. }
            | Precondition::TokenUsable { .. }
            | Precondition::TokenAt { .. }
            | Precondition::TokenReserved { .. }
            | Precondition::ActiveTokens { .. }
            | Precondition::TokenNotOrdered { .. }
            | Precondition::BootstrapTokenFree { .. }
            | Precondition::BootstrapTokenStands { .. } => Self::Evidence,
            Precondition::KeyFree { .. } | Precondition::NotDenied { .. } => Self::Name,
            Precondition::NewestCertificate { .. } | Precondition::IssuedCount { .. } => {
                Self::Certificate
            }
            Precondition::Unrevoked { .. } => Self::Revoked,
            Precondition::PolicyFree { .. } => Self::Rules,
            Precondition::RequestAt { .. }
            | Precondition::RequestIn { .. }
            | Precondition::RequestExists { .. }
            | Precondition::IntentOpen { .. }
            | Precondition::CrlNumber { .. }
            | Precondition::LastSeal { .. }
            | Precondition::ObjectAt { .. } => Self::Request,
        }
    }

    /// What a precondition of the second commit that does not hold says: the first one was made.
    fn from_second_precondition(precondition: &Precondition) -> Self {
        match precondition {
            // Of a renewal.
            Precondition::Unrevoked { .. } => Self::Revoked,
            // Somebody ended the intent, or settled its request.
            Precondition::IntentOpen { .. } | Precondition::RequestIn { .. } => Self::Overtaken,
            // No plan asks for these behind a signature: whatever was relied on is over.
            Precondition::RequestAt { .. }
            | Precondition::RequestExists { .. }
            | Precondition::KeyFree { .. }
            | Precondition::NotDenied { .. }
            | Precondition::NewestCertificate { .. }
            | Precondition::IssuedCount { .. }
            | Precondition::PolicyFree { .. }
            | Precondition::CrlNumber { .. }
            | Precondition::MachineAt { .. }
            | Precondition::MachineExists { .. }
            | Precondition::MachineUnused { .. }
            | Precondition::WindowOpen { .. }
            | Precondition::WindowClosed { .. }
            | Precondition::LastSeal { .. }
            | Precondition::TokenUsable { .. }
            | Precondition::TokenAt { .. }
            | Precondition::ActiveTokens { .. }
            | Precondition::TokenNotOrdered { .. }
            | Precondition::ObjectAt { .. }
            | Precondition::BootstrapTokenFree { .. }
            | Precondition::BootstrapTokenStands { .. }
            | Precondition::TokenReserved { .. } => Self::Overtaken,
        }
    }
}

/// A decision that is to be carried out.
pub(crate) struct Order<'a> {
    pub(crate) case: Case<'a>,
    pub(crate) decision: Decided,
    pub(crate) standing: Standing<'a>,
    /// What it was decided by.
    pub(crate) rules: &'a Arc<Rules>,
    /// What was asked for it.
    pub(crate) gathered: &'a Gathered,
    /// When it was decided, or arrived.
    pub(crate) at: UnixTime,
    pub(crate) validity: PlannedValidity,
}

/// A plan with what must not change while it is carried out.
pub(crate) struct Prepared<'a> {
    pub(crate) plan: Plan,
    rules: &'a Arc<Rules>,
    revoking: Option<Revoking<'a>>,
    /// What the audit log tells by itself, and will count if it comes again.
    first: Option<Recurrence>,
}

impl Core {
    /// Plans a decision and carries the plan out. When this returns, what it says is durable.
    pub(crate) async fn carry_out(&self, order: Order<'_>) -> Result<Outcome, Conflict> {
        let prepared = self.prepare(order).await?;
        self.execute(prepared).await
    }

    /// Looks up what a plan needs to know, and plans.
    pub(crate) async fn prepare<'a>(
        &'a self,
        order: Order<'a>,
    ) -> Result<Prepared<'a>, EngineError> {
        let Order {
            case,
            decision,
            standing,
            rules,
            gathered,
            at,
            validity,
        } = order;
        let signer = rules.signer(case.signer);
        let signer = signer.as_deref();
        let slot = match (signer, &decision.approval) {
            (Some(signer), Some(_)) => Some(self.slot(signer, validity)?),
            (Some(_) | None, _) => None,
        };
        let replaced = gathered.replaced(&decision.uses);
        let revoking = self.revoking(replaced).await;
        let recurrence = self.recurrence(case, &decision, &standing, gathered);
        let repeated = recurrence.as_ref().and_then(|one| self.repeated(one));
        let first = recurrence.filter(|_| repeated.is_none());
        let facts = Facts {
            standing,
            gathered,
            at,
            now: self.clock.now(),
            slot,
            replaced,
            due: revoking.as_ref().map(Revoking::due).unwrap_or_default(),
            repeated,
        };
        Ok(Prepared {
            plan: plan(case, decision, signer, facts)?,
            rules,
            revoking,
            first,
        })
    }

    /// Carries a plan out. When this returns, what it says is durable.
    pub(crate) async fn execute(&self, prepared: Prepared<'_>) -> Result<Outcome, Conflict> {
        let Prepared {
            plan,
            rules,
            revoking,
            first,
        } = prepared;
        let Plan {
            change,
            draft,
            completion,
            record,
            retained,
            is_fenced,
            mut confirmation,
        } = plan;
        let is_held = |draft: &Draft| draft.intent().deferred.is_some();
        if !draft.as_ref().is_some_and(is_held) {
            // Nothing that is stored could be taken back without a trace in what its door shows.
            confirmed(confirmation.take()).await?;
        }
        // No store can check these: they are looked at right before the first commit.
        let is_outdated = || {
            !Arc::ptr_eq(rules, &self.rules.load())
                || self.reviews_differently(&record.requester, &record.evidence)
        };
        if is_fenced && is_outdated() {
            return Err(Conflict::Rules);
        }
        let flight = draft.as_ref().map(|draft| self.in_flight(draft));
        let revision = match self.commit(change).await {
            Ok(committed) => committed.revision,
            Err(CommitFault::Conflict { precondition }) => {
                return Err(Conflict::from_precondition(&precondition));
            }
            Err(CommitFault::DuplicateSerial { .. }) => return Err(Conflict::Serial),
            Err(CommitFault::Store(fault)) => return Err(EngineError::from(fault).into()),
        };
        if let Some(first) = first {
            self.told_one_by_one(first);
        }
        if let Some(revoking) = revoking {
            self.revoked_for_another(revoking, revision).await;
        }
        let Some(draft) = draft else {
            return Ok(Outcome {
                id: record.id,
                state: record.state,
                version: revision,
                issued: None,
                stored: StoredRequest {
                    request: record,
                    retained,
                },
            });
        };
        if confirmation.is_some() {
            let mut confirmed = confirmed(confirmation).await;
            if is_fenced && is_outdated() {
                // It took a while. The decision that is stored elsewhere is judged by other rules when it comes again.
                confirmed = Err(Conflict::Overtaken);
            }
            if let Err(withdrawn) = confirmed {
                self.void(draft.intent()).await?;
                return Err(withdrawn);
            }
        }
        let sealed = match self.ask_key(Intended::after_durable_commit(draft)).await {
            Ok(sealed) => sealed,
            Err((intent, fault)) => {
                self.show_unsigned(&intent).await;
                return Err(fault.into());
            }
        };
        let (issued, version) = self.commit_certificate(sealed, completion).await?;
        drop(flight);
        Ok(Outcome {
            id: record.id,
            state: RequestState::Issued,
            version,
            issued: Some(issued),
            stored: StoredRequest {
                request: record,
                retained,
            },
        })
    }

    /// A place for a certificate of a signer: who signs it, under which new serial.
    fn slot(&self, signer: &Signer, validity: PlannedValidity) -> Result<Slot, EngineError> {
        Ok(Slot {
            issuer: self.issuer(&signer.issuer)?,
            serial: self.new_serial(&signer.issuer)?,
            owner: self.owner.clone(),
            lease_until: self.clock.now().plus_seconds(self.limits.lease_seconds),
            validity,
        })
    }

    /// The key signs what is intended. No other function asks a key for the signature of a certificate.
    async fn ask_key(&self, intended: Intended) -> Result<Sealed, (Box<Intent>, EngineError)> {
        let by = Arc::clone(intended.issuer());
        match self.sign(&by, intended.to_be_signed()).await {
            Ok(signature) => intended
                .seal(&signature)
                .map_err(|(intent, fault)| (intent, fault.into())),
            Err(fault) => Err((Box::new(intended.into_intent()), fault)),
        }
    }

    /// Puts a certificate on record. If something ended meanwhile that it relies on, its intent is voided.
    async fn commit_certificate(
        &self,
        sealed: Sealed,
        completion: Change,
    ) -> Result<(Issued, Revision), Conflict> {
        let intent = sealed.intent();
        let (issuer, serial, request) = (intent.issuer.clone(), intent.serial, intent.request);
        let mut change = completion;
        change.writes.insert(0, sealed.record());
        let entry = AuditEntry::own(self.clock.now(), "issue", format!("{issuer}/{serial}"))
            .request(&request)
            .certname(&intent.name)
            .key(&intent.key_fingerprint)
            .serial(&serial);
        change.audit.push(entry);
        let before = self.recent.now();
        match self.commit(change).await {
            Ok(committed) => {
                let issued = Issued::after_durable_commit(sealed);
                let intent = issued.intent();
                if self.store.is_exclusive() {
                    let shown = ShownCertificate {
                        der: issued.der().into(),
                        decided: intent.explanation.at,
                    };
                    self.recent
                        .keep(before, &intent.issuer, &intent.name, shown);
                }
                if let Some(asked) = issued.asked_seconds() {
                    let honored = Honored::of(asked, intent.not_before, intent.not_after);
                    self.telemetry.lifetime(&intent.signer, honored);
                }
                info!(
                    issuer = %intent.issuer, serial = %intent.serial, signer = %intent.signer,
                    name = intent.name, request = %request, "issued"
                );
                Ok((issued, committed.revision))
            }
            Err(CommitFault::Conflict { precondition }) => {
                // The name must not stay taken.
                self.void(sealed.intent()).await?;
                Err(Conflict::from_second_precondition(&precondition))
            }
            Err(fault) => Err(commit_broken(fault).into()),
        }
    }

    /// Stores the request that an intent holds, so that people see what waits for a key. Recovery makes up for a failure.
    async fn show_unsigned(&self, intent: &Intent) {
        if intent.deferred.is_none() {
            return;
        }
        let change = Change {
            preconditions: vec![Precondition::IntentOpen {
                issuer: intent.issuer.clone(),
                serial: intent.serial,
                owner: Some(intent.owner.clone()),
            }],
            writes: vec![Write::StoreIntended {
                issuer: intent.issuer.clone(),
                serial: intent.serial,
            }],
            audit: Vec::new(),
        };
        if let Err(fault) = self.commit(change).await {
            warn!(request = %intent.request, %fault, "an approved request without a certificate is not listed yet");
        }
    }

    /// Burns the serial of an intent whose request is not to be signed any more.
    pub(crate) async fn void(&self, intent: &Intent) -> Result<(), EngineError> {
        let why = "its request is not to be signed any more";
        match self.commit(void(intent, self.clock.now(), why)).await {
            Ok(_) | Err(CommitFault::Conflict { .. }) => Ok(()),
            Err(other) => Err(commit_broken(other)),
        }
    }

    /// Marks an intent as being worked on, until the guard is dropped.
    fn in_flight(&self, draft: &Draft) -> InFlight<'_> {
        let key = (draft.intent().issuer.clone(), draft.intent().serial);
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.clone());
        InFlight { core: self, key }
    }

    /// Whether this process is working on an intent.
    pub(crate) fn is_in_flight(&self, issuer: &IssuerId, serial: &Serial) -> bool {
        let key = (issuer.clone(), *serial);
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&key)
    }
}

/// Waits until a decision is stored elsewhere, where that matters.
async fn confirmed(confirmation: Option<Confirmation>) -> Result<(), Conflict> {
    let Some(confirmation) = confirmation else {
        return Ok(());
    };
    match confirmation.wait().await {
        true => Ok(()),
        false => Err(Conflict::Overtaken),
    }
}

/// Somebody is working on the intent; recovery leaves it alone.
struct InFlight<'a> {
    core: &'a Core,
    key: (IssuerId, Serial),
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.core
            .in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
    }
}

/// A commit fault that the caller cannot act upon.
pub(crate) fn commit_broken(fault: CommitFault) -> EngineError {
    match fault {
        CommitFault::Store(fault) => fault.into(),
        // A random serial that is taken, or an intent that somebody voided: try again.
        CommitFault::DuplicateSerial { .. } | CommitFault::Conflict { .. } => {
            EngineError::Contended
        }
    }
}

/// How often a change is tried anew when others were faster.
pub(crate) const MAX_TRIES: usize = 8;
