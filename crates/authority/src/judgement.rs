//! A decision in the making: the policy is asked, what it lacks is fetched, and it is asked again until it knows enough.
//!
//! Rules run outside any lock and transaction. What can be asked only once, an executable's or a decider's word, is kept
//! while the same request is judged anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_pki::{CheckedCsr, Serial, UnixTime};
use countersign_policy::{
    AutosignFile, BuildWindow, Effect, Evidence, Executable, Execution, LedgerCertificate,
    LedgerFacts, LedgerRevocation, ListFile, Looked, Machine, Outcome, PersonDecision, Query,
    RecordedEvidence, Request, Requester, SignerName, Use, Verdict, Webhook, WebhookAnswer,
    WebhookMode, Wishes, decide,
};
use futures_util::future::join_all;
use tokio::time::Instant;
use tracing::warn;

use crate::audit::AuditEntry;
use crate::decider::Question;
use crate::engine::{Core, Rules};
use crate::evidence::Busy;
use crate::faults::Broken;
use crate::model::{Door, RememberedAllow, RequestId, inventory_name};
use crate::signing::commit_broken;
use crate::store::{Change, Past, Precondition, StoreFault, Write};
use crate::telemetry::{ExecutionOutcome, WebhookOutcome};

/// A request as it is judged, be it new or on record.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) id: RequestId,
    pub(crate) door: &'a Door,
    pub(crate) key: &'a str,
    pub(crate) csr: &'a CheckedCsr,
    pub(crate) signer: &'a SignerName,
    pub(crate) requester: &'a Requester,
    pub(crate) wishes: &'a Wishes,
    /// When it arrived.
    pub(crate) created: UnixTime,
}

impl<'a> Case<'a> {
    pub(crate) fn request(&self) -> Request<'a> {
        Request {
            csr: self.csr,
            key: self.key,
            door: self.door.as_str(),
            signer: self.signer,
            requester: self.requester,
            wishes: self.wishes,
            at: self.created,
            renewal: false,
        }
    }
}

impl Case<'_> {
    fn audit(&self, action: &'static str, at: UnixTime) -> AuditEntry {
        let subject = format!("{}/{}", self.door, self.key);
        AuditEntry::new(at, self.requester.clone(), action, subject)
            .request(&self.id)
            .certname(self.request().name())
            .key(&self.csr.key_fingerprint())
    }
}

/// What was asked once for a request and is not asked again, and what the audit log has to say of it.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    executions: BTreeMap<PathBuf, (Execution, u64)>,
    webhooks: BTreeMap<Arc<Webhook>, (WebhookAnswer, u64)>,
    /// Entries for the change that puts the decision on record.
    pub(crate) audit: Vec<AuditEntry>,
}

impl Gathered {
    /// What is known of a request on record: an executable's word is final for it.
    pub(crate) fn recorded(evidence: &RecordedEvidence) -> Self {
        let said = evidence.executions.iter();
        let said = said.filter(|(_, said)| !matches!(said, Execution::Unavailable(_)));
        Self {
            executions: said
                .map(|(path, said)| (path.clone(), (said.clone(), 0)))
                .collect(),
            ..Self::default()
        }
    }
}

/// Whether programs and deciders are really asked, or taken to say yes: what only people can sign asks nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    InEarnest,
    AsIfTheyAgreed,
}

/// What the policy came to, and on what grounds.
pub(crate) struct Reached {
    pub(crate) verdict: Verdict,
    pub(crate) evidence: RecordedEvidence,
}

/// An answer to one query.
enum Answered {
    Person(Option<PersonDecision>),
    File(PathBuf, AutosignFile),
    List(PathBuf, ListFile),
    Execution(PathBuf, Execution),
    Webhook(Arc<Webhook>, WebhookAnswer),
    Machine(Looked<Option<Machine>>),
    Window(Looked<Option<BuildWindow>>),
    Ledger(Looked<LedgerFacts>),
}

impl Core {
    /// Asks the policy, fetching what it needs until it knows enough.
    pub(crate) async fn reach(
        &self,
        rules: &Rules,
        case: Case<'_>,
        decision: Option<PersonDecision>,
        asking: Asking,
        gathered: &mut Gathered,
    ) -> Result<Reached, Broken> {
        let begun = Instant::now();
        let now = self.clock.now();
        // A request whose rules are asked has been decided by nobody.
        let mut evidence = Evidence::none().with_person(decision);
        for _ in 0..MAX_ROUNDS {
            let queries = match decide(&rules.policy, &case.request(), &evidence, now) {
                Outcome::Done(mut verdict) => {
                    verdict.took(micros_since(begun));
                    let evidence = evidence.record();
                    return Ok(Reached { verdict, evidence });
                }
                Outcome::Need(queries) => queries,
            };
            let known = &*gathered;
            let answers = queries.into_iter().map(|query| async {
                let begun = Instant::now();
                let known_before = known.answer(&query);
                match known_before {
                    Some((answered, micros)) => (answered, micros, false),
                    None => {
                        let answered = self.answer(query, rules, case, asking, now).await;
                        (answered, micros_since(begun), true)
                    }
                }
            });
            for (answered, micros, is_new) in join_all(answers).await {
                if is_new && asking == Asking::InEarnest {
                    self.keep(gathered, case, &answered, micros, now).await?;
                }
                evidence = answered.known_in(evidence, micros);
            }
        }
        Err(Broken::Defect)
    }

    async fn answer(
        &self,
        query: Query,
        rules: &Rules,
        case: Case<'_>,
        asking: Asking,
        now: UnixTime,
    ) -> Answered {
        let request = case.request();
        let name = request.name();
        match query {
            Query::Person => Answered::Person(None),
            Query::AutosignFile(path) => {
                let file = self.evidence.file(&path).await;
                Answered::File(path, file)
            }
            Query::Allowlist(path) => {
                let list = self.evidence.list(&path).await;
                Answered::List(path, list)
            }
            Query::Execution(Executable { path, timeout }) => {
                let said = match asking {
                    Asking::InEarnest => self.execute(&path, timeout, case).await,
                    Asking::AsIfTheyAgreed => Execution::Approved,
                };
                Answered::Execution(path, said)
            }
            Query::Webhook(webhook) => {
                let said = match asking {
                    Asking::InEarnest => self.ask_webhook(rules, &webhook, case, now).await,
                    Asking::AsIfTheyAgreed => WebhookAnswer::Allow {
                        reason: String::new(),
                        ttl_seconds: None,
                    },
                };
                Answered::Webhook(webhook, said)
            }
            Query::Machine => {
                let found = self.store.machine(&inventory_name(name)).await;
                let found = found.map(|record| record.map(|record| record.machine));
                Answered::Machine(found.map_err(|fault| unavailable(&fault)))
            }
            Query::Window => {
                let found = self.store.window(&inventory_name(name)).await;
                Answered::Window(found.map_err(|fault| unavailable(&fault)))
            }
            Query::Ledger => {
                let found = self.ledger_facts(rules, case, name, now).await;
                Answered::Ledger(found.map_err(|fault| unavailable(&fault)))
            }
        }
    }

    /// Runs a policy executable. One that does not end in time has declined; one that found no place was not run.
    async fn execute(&self, path: &Path, timeout: Option<u64>, case: Case<'_>) -> Execution {
        let request = case.request();
        let name = request.name();
        // It is the program's only argument, and must not be taken for an option.
        if name.is_empty() || name.starts_with('-') || name.contains(char::is_control) {
            return Execution::Declined("was not run: such a name is no argument".to_owned());
        }
        let begun = Instant::now();
        let pem = case.csr.to_pem();
        let executed = self.evidence.execute(path, timeout, name, pem).await;
        let outcome = match &executed {
            Ok(Execution::Approved) => ExecutionOutcome::Approved,
            Ok(Execution::Declined(_)) => ExecutionOutcome::Declined,
            Ok(Execution::Unavailable(_)) | Err(Busy) => ExecutionOutcome::Busy,
        };
        self.telemetry.executed(outcome, begun.elapsed());
        executed.unwrap_or_else(|Busy| {
            Execution::Unavailable("was not run: too many others are running".to_owned())
        })
    }

    async fn ask_webhook(
        &self,
        rules: &Rules,
        webhook: &Webhook,
        case: Case<'_>,
        now: UnixTime,
    ) -> WebhookAnswer {
        let begun = Instant::now();
        let answer = match self.ask_decider(rules, webhook, case, now).await {
            Ok(answer) => answer,
            Err(fault) => WebhookAnswer::Unavailable {
                reason: format!("it was not asked: {}", unavailable(&fault)),
            },
        };
        let outcome = match &answer {
            WebhookAnswer::Allow { .. } => WebhookOutcome::Allowed,
            WebhookAnswer::Deny { .. } => WebhookOutcome::Denied,
            WebhookAnswer::Pend { .. } => WebhookOutcome::Pending,
            WebhookAnswer::Unavailable { reason } => {
                let url = webhook.address();
                warn!(url, request = %case.id, name = ?case.key, reason, "webhook");
                WebhookOutcome::Failed
            }
        };
        self.telemetry.asked(outcome, begun.elapsed());
        answer
    }

    async fn ask_decider(
        &self,
        rules: &Rules,
        webhook: &Webhook,
        case: Case<'_>,
        now: UnixTime,
    ) -> Result<WebhookAnswer, StoreFault> {
        let request = case.request();
        let name = request.name();
        let key = case.csr.key_fingerprint();
        if webhook.mode == WebhookMode::Status
            && self.store.is_allowed(&webhook.url, name, &key, now).await?
        {
            // It has used up its token for this name and key already.
            return Ok(WebhookAnswer::Allow {
                reason: "it has allowed this name and key before".to_owned(),
                ttl_seconds: None,
            });
        }
        let certificate = match rules.signer(case.signer) {
            Some(signer) => self.store.newest_certificate(&signer.issuer, name).await?,
            None => None,
        };
        let certificate = certificate.map(|entry| entry.serial.to_hex());
        let waiting = self.store.request_at(case.door, case.key, Past::Ignore);
        let waiting = waiting.await?;
        // Deciders refuse a question that they have seen; a request that is judged again asks a new one.
        let request_id = match self.new_request_id(now) {
            Ok(id) => id.to_string(),
            Err(_) => case.id.to_string(),
        };
        let question = Question {
            request_id: &request_id,
            certname: name,
            signer: case.signer.as_str(),
            source: case.requester.source,
            csr: case.csr,
            certificate: certificate.as_deref(),
            pending: waiting.is_some_and(|waiting| waiting.id != case.id),
        };
        Ok(rules.deciders.ask(webhook, question).await)
    }

    /// What the ledger knows of a name. Of a signer that is not ours, nothing.
    async fn ledger_facts(
        &self,
        rules: &Rules,
        case: Case<'_>,
        name: &str,
        now: UnixTime,
    ) -> Result<LedgerFacts, StoreFault> {
        let Some(signer) = rules.signer(case.signer) else {
            return Ok(LedgerFacts::default());
        };
        let entries = self.store.certificates_of(&signer.issuer, name, now);
        let entries = entries.await?;
        let serial = |serial: &Serial| serial.to_hex();
        let valid = entries
            .iter()
            .find(|entry| entry.revoked.is_none() && entry.retired.is_none());
        let revoked = entries
            .iter()
            .find_map(|entry| entry.revoked.map(|revoked| (entry, revoked)));
        Ok(LedgerFacts {
            certificate: valid.map(|entry| LedgerCertificate {
                serial: serial(&entry.serial),
                not_after: entry.not_after,
                same_key: entry.key_fingerprint == case.csr.key_fingerprint(),
            }),
            revoked: revoked.map(|(entry, revoked)| LedgerRevocation {
                serial: serial(&entry.serial),
                time: revoked.at,
                reason: revoked.reason.name().to_owned(),
            }),
        })
    }

    /// Keeps what is asked once. A decider that uses up its own tokens must not be asked again, even after a crash.
    async fn keep(
        &self,
        gathered: &mut Gathered,
        case: Case<'_>,
        answered: &Answered,
        micros: u64,
        now: UnixTime,
    ) -> Result<(), Broken> {
        match answered {
            Answered::Execution(path, said) => {
                let said = (said.clone(), micros);
                gathered.executions.insert(path.clone(), said);
            }
            Answered::Webhook(webhook, said) => {
                let known = (said.clone(), micros);
                gathered.webhooks.insert(Arc::clone(webhook), known);
                let entry = webhook_entry(webhook, said, case, now);
                let uses_up = webhook.mode == WebhookMode::Status;
                match said {
                    WebhookAnswer::Allow { .. } if uses_up => {
                        self.remember(webhook, case, entry, now).await?;
                    }
                    WebhookAnswer::Allow { .. }
                    | WebhookAnswer::Deny { .. }
                    | WebhookAnswer::Pend { .. }
                    | WebhookAnswer::Unavailable { .. } => gathered.audit.push(entry),
                }
            }
            Answered::Person(_)
            | Answered::File(..)
            | Answered::List(..)
            | Answered::Machine(_)
            | Answered::Window(_)
            | Answered::Ledger(_) => {}
        }
        Ok(())
    }

    async fn remember(
        &self,
        webhook: &Webhook,
        case: Case<'_>,
        entry: AuditEntry,
        now: UnixTime,
    ) -> Result<(), Broken> {
        let allow = RememberedAllow {
            webhook: webhook.url.clone(),
            name: case.request().name().to_owned(),
            key_fingerprint: case.csr.key_fingerprint(),
            until: now.plus_seconds(ALLOW_SECONDS),
        };
        let change = Change {
            preconditions: Vec::new(),
            writes: vec![
                Write::ForgetAllows { before: now },
                Write::RememberAllow(allow),
            ],
            audit: vec![entry],
        };
        let committed = self.commit(change).await;
        committed.map(drop).map_err(commit_broken)
    }
}

impl Gathered {
    fn answer(&self, query: &Query) -> Option<(Answered, u64)> {
        match query {
            Query::Execution(executable) => {
                let (said, micros) = self.executions.get(&executable.path)?;
                let answered = Answered::Execution(executable.path.clone(), said.clone());
                Some((answered, *micros))
            }
            Query::Webhook(webhook) => {
                let (said, micros) = self.webhooks.get(webhook)?;
                let answered = Answered::Webhook(Arc::clone(webhook), said.clone());
                Some((answered, *micros))
            }
            Query::Person
            | Query::AutosignFile(_)
            | Query::Allowlist(_)
            | Query::Machine
            | Query::Window
            | Query::Ledger => None,
        }
    }
}

impl Answered {
    fn known_in(self, evidence: Evidence, micros: u64) -> Evidence {
        match self {
            Self::Person(decision) => evidence.with_person(decision),
            Self::File(path, file) => evidence.with_file(path, file, micros),
            Self::List(path, list) => evidence.with_list(path, list, micros),
            Self::Execution(path, said) => evidence.with_execution(path, said, micros),
            Self::Webhook(webhook, said) => evidence.with_webhook(webhook, said, micros),
            Self::Machine(found) => evidence.with_machine(found, micros),
            Self::Window(found) => evidence.with_window(found, micros),
            Self::Ledger(found) => evidence.with_ledger(found, micros),
        }
    }
}

/// What an approval uses up, to be written with it, and what must still be true then.
pub(crate) fn used(uses: &[Use], case: Case<'_>, now: UnixTime, change: &mut Change) {
    for evidence in uses {
        match evidence {
            Use::Machine { name, once } => {
                let name = name.clone();
                change.preconditions.push(match once {
                    true => Precondition::MachineUnused { name: name.clone() },
                    false => Precondition::MachineExists { name: name.clone() },
                });
                change.writes.push(Write::EnrolMachine {
                    name,
                    request: case.id,
                    at: now,
                });
            }
            Use::Window { certname } => {
                change.preconditions.push(Precondition::WindowOpen {
                    certname: certname.clone(),
                    at: now,
                });
                change.writes.push(Write::UseWindow {
                    certname: certname.clone(),
                });
                let detail = "the name alone was trusted: the window wants no token";
                let entry = case.audit("window.used", now);
                change.audit.push(entry.detail(detail));
            }
        }
    }
}

/// Whether a change failed because evidence was used up or withdrawn meanwhile: then the request is judged anew.
pub(crate) fn is_about_evidence(precondition: &Precondition) -> bool {
    matches!(
        precondition,
        Precondition::MachineUnused { .. }
            | Precondition::MachineExists { .. }
            | Precondition::WindowOpen { .. }
    )
}

fn webhook_entry(
    webhook: &Webhook,
    said: &WebhookAnswer,
    case: Case<'_>,
    now: UnixTime,
) -> AuditEntry {
    let (action, word, reason) = match said {
        WebhookAnswer::Allow { reason, .. } => ("webhook.decision", "allow", reason),
        WebhookAnswer::Deny { reason } => ("webhook.decision", "deny", reason),
        WebhookAnswer::Pend { reason } => ("webhook.decision", "pend", reason),
        WebhookAnswer::Unavailable { reason } => ("webhook.error", "error", reason),
    };
    let detail = format!("{}: {word}: {reason}", webhook.address());
    case.audit(action, now).detail(detail)
}

/// For explanations, which others than administrators may read.
fn unavailable(fault: &StoreFault) -> String {
    warn!(
        error = fault as &dyn std::error::Error,
        "evidence cannot be looked up"
    );
    "the store cannot be asked".to_owned()
}

pub(crate) fn micros_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Whether nothing could be decided because evidence could not be had.
pub(crate) fn is_stopped(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Pending(explanation) => {
            explanation.effect == Effect::Pending && explanation.is_stopped()
        }
        Verdict::Approve(_) | Verdict::Deny(_) => false,
    }
}

/// Every round answers something new; a policy of a thousand rules has no more to ask.
const MAX_ROUNDS: usize = 4096;
/// How long the word of a decider counts that uses up its own tokens.
const ALLOW_SECONDS: u64 = 1800;
