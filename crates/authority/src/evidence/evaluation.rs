//! A decision in the making: the policy is asked, what it lacks is fetched, and it is asked again until it knows enough.
//!
//! Rules run outside any lock and transaction. What can be asked only once, an executable's or a decider's word, is kept
//! while the same request is judged anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_pki::{Serial, UnixTime};
use countersign_policy::{
    AccessAnswer, AccessQuestion, AutosignFile, BuildWindow, ClusterQuery, Effect, Evidence,
    Executable, Execution, LedgerCertificate, LedgerFacts, LedgerRevocation, ListFile, Looked,
    Machine, Outcome, PersonDecision, Query, RecordedEvidence, Token, TokenFacts, Use, Verdict,
    Webhook, WebhookAnswer, WebhookMode, decide,
};
use futures_util::future::join_all;
use tokio::time::Instant;
use tracing::warn;

use crate::audit::AuditEntry;
use crate::engine::Core;
use crate::evidence::decider::{Question, QuestionToken};
use crate::evidence::local::Busy;
use crate::faults::EngineError;
use crate::issuing::{Case, commit_broken, uses_token};
use crate::model::{LedgerEntry, RememberedAllow, Revision, inventory_name};
use crate::rules::Rules;
use crate::store::{Change, Past, StoreFault, Write};
use crate::telemetry::{ExecutionOutcome, WebhookOutcome};
use crate::token::{LookedUp, Presented, masked_tokens};

/// What was asked once for a request and is not asked again, and what the audit log has to say of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered {
    executions: BTreeMap<PathBuf, (Execution, u64)>,
    webhooks: BTreeMap<Arc<Webhook>, (WebhookAnswer, u64)>,
    /// Deciders that gave no answer that counts and are not asked again if they use up their own tokens, by address.
    silent: BTreeMap<String, WebhookAnswer>,
    /// The inventory record that was looked at, as it was then.
    pub(crate) machine_version: Option<Revision>,
    /// What came with the request.
    pub(crate) presented: Presented,
    /// The token that was looked up for it.
    pub(crate) looked_up: LookedUp,
    /// Entries for the change that puts the decision on record.
    pub(crate) audit: Vec<AuditEntry>,
}

impl Gathered {
    /// What is known of a request on record: an executable's word is final for it.
    pub(crate) fn recorded(evidence: &RecordedEvidence) -> Self {
        let presented = Presented::recorded(evidence.token.as_ref());
        let said = evidence.executions.iter();
        let said = said.filter(|(_, said)| !matches!(said, Execution::Unavailable(_)));
        Self {
            executions: said
                .map(|(path, said)| (path.clone(), (said.clone(), 0)))
                .collect(),
            presented,
            ..Self::default()
        }
    }

    /// The same where nobody has asked again: a decider that uses up its own tokens may have used one up without our
    /// hearing of it, and is not asked again by ourselves.
    pub(crate) fn recorded_unasked(evidence: &RecordedEvidence) -> Self {
        let silent = |said: &WebhookAnswer| matches!(said, WebhookAnswer::Unavailable { .. });
        let said = evidence.webhooks.iter().filter(|(_, said)| silent(said));
        Self {
            silent: said
                .map(|(url, said)| (url.clone(), said.clone()))
                .collect(),
            ..Self::recorded(evidence)
        }
    }

    /// The certificates that a name gives up for one that a token approved.
    pub(crate) fn replaced(&self, uses: &[Use]) -> &[LedgerEntry] {
        match uses_token(uses) {
            true => &self.looked_up.replaced,
            false => &[],
        }
    }

    /// Puts what executables have said beside what a decision rests on: it stays said, also where the decision did not
    /// come to them this time.
    fn add_executions(&self, evidence: &mut RecordedEvidence) {
        for (path, (said, _)) in &self.executions {
            let known = evidence.executions.entry(path.clone());
            known.or_insert_with(|| said.clone());
        }
    }
}

/// Whether a decider was asked just now, or is on record with its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Now,
    Before,
}

/// Whether programs and deciders are really asked, or taken to say yes: what only people can sign asks nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    InEarnest,
    AsIfTheyAgreed,
}

/// What the policy came to, and on what grounds.
pub(crate) struct Evaluated {
    pub(crate) verdict: Verdict,
    pub(crate) evidence: RecordedEvidence,
}

/// An answer to one query.
enum Answered {
    Person(Option<PersonDecision>),
    File(PathBuf, AutosignFile),
    List(PathBuf, ListFile),
    Execution(PathBuf, Execution),
    Webhook(Arc<Webhook>, WebhookAnswer, Heard),
    Machine(Looked<Option<Machine>>, Option<Revision>),
    Window(Looked<Option<BuildWindow>>),
    Token(Looked<TokenFacts>, Box<LookedUp>),
    Ledger(Looked<LedgerFacts>),
    Access(Arc<AccessQuestion>, AccessAnswer),
    Cluster(ClusterQuery),
}

impl Core {
    /// Asks the policy, fetching what it needs until it knows enough.
    pub(crate) async fn evaluate(
        &self,
        rules: &Rules,
        case: Case<'_>,
        decision: Option<PersonDecision>,
        asking: Asking,
        gathered: &mut Gathered,
    ) -> Result<Evaluated, EngineError> {
        let begun = Instant::now();
        let now = self.clock.now();
        // A request whose rules are asked has been decided by nobody.
        let mut evidence = Evidence::none().with_person(decision);
        for _ in 0..MAX_ROUNDS {
            let queries = match decide(&rules.policy, &case.request(), &evidence, now) {
                Outcome::Done(mut verdict) => {
                    verdict.took(micros_since(begun));
                    let mut evidence = evidence.record();
                    gathered.add_executions(&mut evidence);
                    return Ok(Evaluated { verdict, evidence });
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
                        let answered = self.answer(query, rules, case, asking, now, known);
                        let answered = answered.await;
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
        Err(EngineError::Defect)
    }

    async fn answer(
        &self,
        query: Query,
        rules: &Rules,
        case: Case<'_>,
        asking: Asking,
        now: UnixTime,
        known: &Gathered,
    ) -> Answered {
        let name = case.name;
        match query {
            Query::Person => Answered::Person(None),
            Query::AutosignFile(path) => {
                let file = self.local.load_full().file(&path).await;
                Answered::File(path, file)
            }
            Query::Allowlist(path) => {
                let list = self.local.load_full().list(&path).await;
                Answered::List(path, list)
            }
            Query::Execution(Executable { path, timeout }) => {
                let said = match asking {
                    Asking::InEarnest => self.run_executable(&path, timeout, case).await,
                    Asking::AsIfTheyAgreed => Execution::Approved,
                };
                Answered::Execution(path, said)
            }
            Query::Webhook(webhook) => {
                let (said, heard) = match asking {
                    Asking::InEarnest => self.ask_webhook(rules, &webhook, case, now, known).await,
                    Asking::AsIfTheyAgreed => (allow(""), Heard::Before),
                };
                Answered::Webhook(webhook, said, heard)
            }
            // A name with a dot at the end is another name: it has no part in what is kept for the one without.
            Query::Machine if name.ends_with('.') => Answered::Machine(Ok(None), None),
            Query::Window if name.ends_with('.') => Answered::Window(Ok(None)),
            Query::Machine => match self.store.machine(&inventory_name(name)).await {
                Ok(Some(record)) => {
                    Answered::Machine(Ok(Some(record.machine)), Some(record.version))
                }
                Ok(None) => Answered::Machine(Ok(None), None),
                Err(fault) => Answered::Machine(Err(unavailable(&fault)), None),
            },
            Query::Window => {
                let found = self.store.window(&inventory_name(name)).await;
                Answered::Window(found.map_err(|fault| unavailable(&fault)))
            }
            // Who could never be signed uses nothing up, and is not told what a token is worth.
            Query::Token if asking == Asking::AsIfTheyAgreed => {
                Answered::Token(Ok(TokenFacts::Missing), Box::default())
            }
            Query::Token => {
                let (found, looked_up) = self.token_facts(rules, case, &known.presented).await;
                Answered::Token(found, Box::new(looked_up))
            }
            Query::Ledger => {
                let found = self.ledger_facts(rules, case, name, now).await;
                Answered::Ledger(found.map_err(|fault| unavailable(&fault)))
            }
            Query::SubjectAccess(question) => {
                let said = match asking {
                    Asking::InEarnest => self.review(case.requester, &question),
                    Asking::AsIfTheyAgreed => AccessAnswer::Allowed {
                        reason: String::new(),
                    },
                };
                Answered::Access(question, said)
            }
            Query::Cluster(query) => Answered::Cluster(query),
        }
    }

    /// Runs a policy executable. One that does not end in time has declined; one that found no place was not run.
    async fn run_executable(&self, path: &Path, timeout: Option<u64>, case: Case<'_>) -> Execution {
        let name = case.name;
        // It is the program's only argument, and must not be taken for an option.
        if name.is_empty() || name.starts_with('-') || name.contains(char::is_control) {
            return Execution::Failed("was not run: such a name is no argument".to_owned());
        }
        let begun = Instant::now();
        let pem = case.csr.to_pem();
        let local = self.local.load_full();
        let source = case.requester.source;
        let executed = local.run_program(path, timeout, name, source, pem).await;
        let outcome = match &executed {
            Ok(Execution::Approved) => ExecutionOutcome::Approved,
            Ok(Execution::Declined(_) | Execution::Failed(_)) => ExecutionOutcome::Declined,
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
        known: &Gathered,
    ) -> (WebhookAnswer, Heard) {
        let begun = Instant::now();
        let answer = match self.has_allowed(webhook, case, now).await {
            Ok(true) => {
                let reason = "it has allowed this very request before";
                return (allow(reason), Heard::Before);
            }
            Ok(false) => self.ask_decider(rules, webhook, case, now, known).await,
            Err(fault) => Err(fault),
        };
        let answer = answer.unwrap_or_else(|fault| WebhookAnswer::Unavailable {
            reason: format!("it was not asked: {}", unavailable(&fault)),
        });
        let answer = without_secrets(answer);
        let outcome = match &answer {
            WebhookAnswer::Allow { .. } => WebhookOutcome::Allowed,
            WebhookAnswer::Deny { .. } => WebhookOutcome::Denied,
            WebhookAnswer::Pend { .. } => WebhookOutcome::Pending,
            WebhookAnswer::Unavailable { reason } => {
                let url = webhook.address();
                let source = case.requester.source.map(tracing::field::display);
                warn!(url, request = %case.id, name = case.key, source, reason, "webhook");
                WebhookOutcome::Failed
            }
        };
        self.telemetry.asked(outcome, begun.elapsed());
        (answer, Heard::Now)
    }

    /// Whether a decider that uses up its own tokens has used one up for this very request, and said yes.
    async fn has_allowed(
        &self,
        webhook: &Webhook,
        case: Case<'_>,
        now: UnixTime,
    ) -> Result<bool, StoreFault> {
        if webhook.mode != WebhookMode::Status {
            return Ok(false);
        }
        let asked = case.fingerprint();
        let allowed = self.store.is_allowed(&webhook.url, case.name, &asked, now);
        allowed.await
    }

    async fn ask_decider(
        &self,
        rules: &Rules,
        webhook: &Webhook,
        case: Case<'_>,
        now: UnixTime,
        known: &Gathered,
    ) -> Result<WebhookAnswer, StoreFault> {
        let name = case.name;
        let certificate = match rules.signer(case.signer) {
            Some(signer) => self.store.newest_certificate(&signer.issuer, name).await?,
            None => None,
        };
        let certificate = certificate.map(|entry| entry.serial.to_hex());
        let waiting = self.store.request_at(case.door, case.key, Past::Ignore);
        let waiting = waiting.await?;
        let (facts, looked_up) = self.token_facts(rules, case, &known.presented).await;
        let token_id = facts.as_ref().ok().and_then(TokenFacts::id);
        let is_good = |token: &Token| rules.policy.suits(token, &case.request(), now);
        let verified = facts
            .as_ref()
            .ok()
            .and_then(TokenFacts::known)
            .is_some_and(is_good);
        let external_ref = looked_up.record.as_ref().map(|r| r.external_ref.as_str());
        // Deciders refuse a question that they have seen; a request that is judged again asks a new one.
        let request_id = match self.new_request_id(now) {
            Ok(id) => id.to_string(),
            Err(_) => case.id.to_string(),
        };
        let question = Question {
            request_id: &request_id,
            certname: name,
            signer: case.signer.as_str(),
            requester: case.requester,
            wishes: case.wishes,
            csr: case.csr,
            certificate: certificate.as_deref(),
            pending: waiting.is_some_and(|waiting| waiting.id != case.id),
            token: known.presented.is_something().then_some(QuestionToken {
                id: token_id,
                verified,
                external_ref: external_ref.unwrap_or_default(),
            }),
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
    ) -> Result<(), EngineError> {
        match answered {
            Answered::Execution(path, said) => {
                let said = (said.clone(), micros);
                gathered.executions.insert(path.clone(), said);
            }
            Answered::Webhook(webhook, said, heard) => {
                let known = (said.clone(), micros);
                gathered.webhooks.insert(Arc::clone(webhook), known);
                let entry = webhook_entry(webhook, said, case, now);
                // Its word counts from when it was given, however often it is looked up.
                let uses_up = webhook.mode == WebhookMode::Status && *heard == Heard::Now;
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
            Answered::Machine(_, version) => gathered.machine_version = *version,
            Answered::Token(_, looked_up) => gathered.looked_up = LookedUp::clone(looked_up),
            Answered::Person(_)
            | Answered::File(..)
            | Answered::List(..)
            | Answered::Window(_)
            | Answered::Ledger(_)
            | Answered::Access(..)
            | Answered::Cluster(_) => {}
        }
        Ok(())
    }

    async fn remember(
        &self,
        webhook: &Webhook,
        case: Case<'_>,
        entry: AuditEntry,
        now: UnixTime,
    ) -> Result<(), EngineError> {
        let allow = RememberedAllow {
            webhook: webhook.url.clone(),
            name: case.name.to_owned(),
            asked: case.fingerprint(),
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
                let (said, micros) = match self.webhooks.get(webhook) {
                    Some((said, micros)) => (said, *micros),
                    None if webhook.mode == WebhookMode::Status => {
                        (self.silent.get(&webhook.url)?, 0)
                    }
                    None => return None,
                };
                let webhook = Arc::clone(webhook);
                let answered = Answered::Webhook(webhook, said.clone(), Heard::Before);
                Some((answered, micros))
            }
            Query::Person
            | Query::AutosignFile(_)
            | Query::Allowlist(_)
            | Query::Machine
            | Query::Window
            | Query::Token
            | Query::SubjectAccess(_)
            | Query::Cluster(_)
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
            Self::Webhook(webhook, said, _) => evidence.with_webhook(webhook, said, micros),
            Self::Machine(found, _) => evidence.with_machine(found, micros),
            Self::Window(found) => evidence.with_window(found, micros),
            Self::Token(found, _) => evidence.with_token(found, micros),
            Self::Ledger(found) => evidence.with_ledger(found, micros),
            Self::Access(question, said) => evidence.with_access(question, said, micros),
            Self::Cluster(query) => {
                let nobody = format!("{query}: this authority watches no cluster");
                evidence.with_cluster(query, Err(nobody), micros)
            }
        }
    }
}

fn allow(reason: &str) -> WebhookAnswer {
    WebhookAnswer::Allow {
        reason: reason.to_owned(),
        ttl_seconds: None,
    }
}

/// A decider that was shown a token may repeat it.
fn without_secrets(answer: WebhookAnswer) -> WebhookAnswer {
    let shown = |reason: String| masked_tokens(&reason).into_owned();
    match answer {
        WebhookAnswer::Allow {
            reason,
            ttl_seconds,
        } => WebhookAnswer::Allow {
            reason: shown(reason),
            ttl_seconds,
        },
        WebhookAnswer::Deny { reason } => WebhookAnswer::Deny {
            reason: shown(reason),
        },
        WebhookAnswer::Pend { reason } => WebhookAnswer::Pend {
            reason: shown(reason),
        },
        WebhookAnswer::Unavailable { reason } => WebhookAnswer::Unavailable {
            reason: shown(reason),
        },
    }
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
pub(crate) fn unavailable(fault: &StoreFault) -> String {
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
