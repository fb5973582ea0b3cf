//! What is known of a request. Supplied by the caller; never fetched here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_pki::UnixTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::{AccessAnswer, AccessQuestion, RecordedAccess};
use crate::allowlist::Allowlist;
use crate::facts::{BuildWindow, Execution, LedgerFacts, ListFile, Machine, WebhookAnswer};
use crate::node::{ClusterFact, ClusterQuery, RequestState};
use crate::request::Requester;
use crate::rules::{Executable, Webhook};
use crate::token::TokenFacts;
use crate::verdict::Finding;

/// A fact that a decision still lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Query {
    /// Has a person approved or denied this request?
    Person,
    /// What is at the path of an `autosign` setting right now?
    AutosignFile(PathBuf),
    /// What is in this allowlist?
    Allowlist(PathBuf),
    /// What does this executable say of the request?
    Execution(Executable),
    /// What does this webhook say of the request?
    Webhook(Arc<Webhook>),
    /// What does the inventory say of the name that the request asks for?
    Machine,
    /// Is there a build window for that name?
    Window,
    /// What does the ledger say of that name?
    Ledger,
    /// What enrolment token comes with the request?
    Token,
    /// May the sender do this?
    SubjectAccess(Arc<AccessQuestion>),
    /// What does the cluster know?
    Cluster(ClusterQuery),
}

/// A fact that was looked for: what was found, or why nothing could be.
pub type Looked<T> = Result<T, String>;

/// An answer and how long it took to get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timed<T> {
    pub(crate) value: T,
    pub(crate) micros: u64,
}

/// What is known so far. A fact that was never asked for is `None`.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    person: Option<Option<PersonDecision>>,
    files: BTreeMap<PathBuf, Timed<AutosignFile>>,
    lists: BTreeMap<PathBuf, Timed<ListFile>>,
    executions: BTreeMap<PathBuf, Timed<Execution>>,
    webhooks: BTreeMap<Arc<Webhook>, Timed<WebhookAnswer>>,
    machine: Option<Timed<Looked<Option<Machine>>>>,
    window: Option<Timed<Looked<Option<BuildWindow>>>>,
    ledger: Option<Timed<Looked<LedgerFacts>>>,
    token: Option<Timed<Looked<TokenFacts>>>,
    access: BTreeMap<Arc<AccessQuestion>, Timed<AccessAnswer>>,
    cluster: BTreeMap<ClusterQuery, Timed<Looked<ClusterFact>>>,
    request_state: RequestState,
    stand_ins: BTreeMap<String, Finding>,
}

impl Evidence {
    /// Nothing is known.
    pub fn none() -> Self {
        Self::default()
    }

    /// Records the answer to [`Query::Person`]: the decision, or that nobody has decided.
    #[must_use]
    pub fn with_person(mut self, decision: Option<PersonDecision>) -> Self {
        self.person = Some(decision);
        self
    }

    /// Records the answer to [`Query::AutosignFile`].
    #[must_use]
    pub fn with_file(mut self, path: PathBuf, file: AutosignFile, micros: u64) -> Self {
        let value = file;
        self.files.insert(path, Timed { value, micros });
        self
    }

    /// Records the answer to [`Query::Allowlist`].
    #[must_use]
    pub fn with_list(mut self, path: PathBuf, list: ListFile, micros: u64) -> Self {
        let value = list;
        self.lists.insert(path, Timed { value, micros });
        self
    }

    /// Records the answer to [`Query::Execution`].
    #[must_use]
    pub fn with_execution(mut self, path: PathBuf, execution: Execution, micros: u64) -> Self {
        let value = execution;
        self.executions.insert(path, Timed { value, micros });
        self
    }

    /// Records the answer to [`Query::Webhook`].
    #[must_use]
    pub fn with_webhook(
        mut self,
        webhook: Arc<Webhook>,
        answer: WebhookAnswer,
        micros: u64,
    ) -> Self {
        let value = answer;
        self.webhooks.insert(webhook, Timed { value, micros });
        self
    }

    /// Records the answer to [`Query::Machine`].
    #[must_use]
    pub fn with_machine(mut self, machine: Looked<Option<Machine>>, micros: u64) -> Self {
        let value = machine;
        self.machine = Some(Timed { value, micros });
        self
    }

    /// Records the answer to [`Query::Window`].
    #[must_use]
    pub fn with_window(mut self, window: Looked<Option<BuildWindow>>, micros: u64) -> Self {
        let value = window;
        self.window = Some(Timed { value, micros });
        self
    }

    /// Records the answer to [`Query::Ledger`].
    #[must_use]
    pub fn with_ledger(mut self, ledger: Looked<LedgerFacts>, micros: u64) -> Self {
        let value = ledger;
        self.ledger = Some(Timed { value, micros });
        self
    }

    /// Records the answer to [`Query::Token`].
    #[must_use]
    pub fn with_token(mut self, token: Looked<TokenFacts>, micros: u64) -> Self {
        let value = token;
        self.token = Some(Timed { value, micros });
        self
    }

    /// Records the answer to [`Query::SubjectAccess`].
    #[must_use]
    pub fn with_access(
        mut self,
        question: Arc<AccessQuestion>,
        answer: AccessAnswer,
        micros: u64,
    ) -> Self {
        let value = answer;
        self.access.insert(question, Timed { value, micros });
        self
    }

    /// Records the answer to [`Query::Cluster`], or why there is none.
    #[must_use]
    pub fn with_cluster(
        mut self,
        query: ClusterQuery,
        fact: Looked<ClusterFact>,
        micros: u64,
    ) -> Self {
        let value = fact;
        self.cluster.insert(query, Timed { value, micros });
        self
    }

    /// Says in which state the object is that carries the request; without it, it is open.
    #[must_use]
    pub fn with_request_state(mut self, state: RequestState) -> Self {
        self.request_state = state;
        self
    }

    /// Lets every kind of the rule of that name whose evidence is outside (executable, webhook, token, subjectAccess) find
    /// this, so that a policy can be tried without the outside.
    #[must_use]
    pub fn with_stand_in(mut self, rule: &str, finding: Finding) -> Self {
        self.stand_ins.insert(rule.to_owned(), finding);
        self
    }

    pub(crate) fn file(&self, path: &Path) -> Option<&Timed<AutosignFile>> {
        self.files.get(path)
    }

    pub(crate) fn list(&self, path: &Path) -> Option<&Timed<ListFile>> {
        self.lists.get(path)
    }

    pub(crate) fn execution(&self, path: &Path) -> Option<&Timed<Execution>> {
        self.executions.get(path)
    }

    pub(crate) fn webhook(&self, webhook: &Webhook) -> Option<&Timed<WebhookAnswer>> {
        self.webhooks.get(webhook)
    }

    pub(crate) fn machine(&self) -> Option<&Timed<Looked<Option<Machine>>>> {
        self.machine.as_ref()
    }

    pub(crate) fn window(&self) -> Option<&Timed<Looked<Option<BuildWindow>>>> {
        self.window.as_ref()
    }

    pub(crate) fn ledger(&self) -> Option<&Timed<Looked<LedgerFacts>>> {
        self.ledger.as_ref()
    }

    pub(crate) fn token(&self) -> Option<&Timed<Looked<TokenFacts>>> {
        self.token.as_ref()
    }

    pub(crate) fn access(&self, question: &AccessQuestion) -> Option<&Timed<AccessAnswer>> {
        self.access.get(question)
    }

    pub(crate) fn cluster(&self, query: &ClusterQuery) -> Option<&Timed<Looked<ClusterFact>>> {
        self.cluster.get(query)
    }

    pub(crate) fn request_state(&self) -> RequestState {
        self.request_state
    }

    pub(crate) fn stand_in(&self, rule: &str) -> Option<Finding> {
        self.stand_ins.get(rule).copied()
    }

    pub(crate) fn person(&self) -> Option<Option<&PersonDecision>> {
        self.person.as_ref().map(Option::as_ref)
    }

    /// What of this cannot be had again and is kept with the decision, so that it can be replayed under another policy.
    pub fn record(&self) -> RecordedEvidence {
        let found = |looked: &Looked<Option<Machine>>| looked.clone().ok();
        RecordedEvidence {
            files: self
                .files
                .iter()
                .map(|(path, file)| (path.clone(), RecordedFile::of(&file.value)))
                .collect(),
            executions: self
                .executions
                .iter()
                .map(|(path, said)| (path.clone(), said.value.clone()))
                .collect(),
            webhooks: self
                .webhooks
                .iter()
                .map(|(webhook, said)| (webhook.url.clone(), said.value.clone()))
                .collect(),
            machine: self.machine.as_ref().and_then(|m| found(&m.value)),
            window: self.window.as_ref().and_then(|w| w.value.clone().ok()),
            ledger: self.ledger.as_ref().and_then(|l| l.value.clone().ok()),
            token: self.token.as_ref().and_then(|t| t.value.clone().ok()),
            access: self
                .access
                .iter()
                .map(|(question, said)| RecordedAccess {
                    question: AccessQuestion::clone(question),
                    answer: said.value.clone(),
                })
                .collect(),
        }
    }
}

/// Evidence as it is kept with a decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Evidence")]
pub struct RecordedEvidence {
    /// What was at the path of an `autosign` setting.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<PathBuf, RecordedFile>,
    /// What executables said.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub executions: BTreeMap<PathBuf, Execution>,
    /// What webhooks said, by address.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub webhooks: BTreeMap<String, WebhookAnswer>,
    /// The inventory's record; null if there was none, absent if nobody looked.
    #[serde(skip_serializing_if = "Option::is_none", with = "known_nothing")]
    #[schemars(schema_with = "known_nothing::schema::<Machine>")]
    pub machine: Option<Option<Machine>>,
    /// The build window; null if there was none, absent if nobody looked.
    #[serde(skip_serializing_if = "Option::is_none", with = "known_nothing")]
    #[schemars(schema_with = "known_nothing::schema::<BuildWindow>")]
    pub window: Option<Option<BuildWindow>>,
    /// What the ledger knew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerFacts>,
    /// The enrolment token that came with the request, as it was then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenFacts>,
    /// What the sender might do and might not, as far as that was asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<RecordedAccess>,
}

impl RecordedEvidence {
    /// What a review came to.
    pub fn access(&self, question: &AccessQuestion) -> Option<&AccessAnswer> {
        let mut reviews = self.access.iter();
        let review = reviews.find(|review| review.question == *question);
        review.map(|review| &review.answer)
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What kind of thing was at the path of an `autosign` setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RecordedFile {
    /// Nothing.
    Missing,
    /// A list.
    List,
    /// A program.
    Executable,
    /// Something that was not used.
    Unusable,
}

impl RecordedFile {
    fn of(file: &AutosignFile) -> Self {
        match file {
            AutosignFile::Missing => Self::Missing,
            AutosignFile::List(_) => Self::List,
            AutosignFile::Executable => Self::Executable,
            AutosignFile::Unusable(_) => Self::Unusable,
        }
    }
}

/// Tells `null`, which is "there was none", from a field that is absent.
mod known_nothing {
    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &Option<Option<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value
            .as_ref()
            .and_then(Option::as_ref)
            .serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Option<T>>, D::Error> {
        Option::deserialize(deserializer).map(Some)
    }

    pub(super) fn schema<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
        json_schema!({ "oneOf": [schemas.subschema_for::<T>(), { "type": "null" }] })
    }
}

/// What is at the path of an `autosign` setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AutosignFile {
    /// Nothing.
    Missing,
    /// A file that is not executable: a list of names.
    List(Arc<Allowlist>),
    /// A file that the server may execute.
    Executable,
    /// Something that must not be trusted or cannot be read, in words.
    Unusable(String),
}

/// A person's word on one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PersonDecision {
    /// What was decided.
    pub verdict: PersonVerdict,
    /// Who decided.
    pub actor: Requester,
    /// When.
    pub at: UnixTime,
    /// The reason given, if any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Approve or deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PersonVerdict {
    /// The certificate may be signed.
    Approve,
    /// It may not.
    Deny,
}
