//! What a rule may consult. Supplied by the caller; never fetched here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_pki::UnixTime;
use serde::{Deserialize, Serialize};

use crate::allowlist::Allowlist;
use crate::request::Requester;

/// A fact that a decision still lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Query {
    /// Has a person approved or denied this request?
    Person,
    /// What is at the path of an `autosign` setting right now?
    AutosignFile(PathBuf),
    /// What does this executable say of the request?
    Execution(PathBuf),
}

/// What is known so far. A fact that was never asked for is `None`.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    person: Option<Option<PersonDecision>>,
    files: BTreeMap<PathBuf, AutosignFile>,
    executions: BTreeMap<PathBuf, Execution>,
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
    pub fn with_file(mut self, path: PathBuf, file: AutosignFile) -> Self {
        self.files.insert(path, file);
        self
    }

    /// Records the answer to [`Query::Execution`].
    #[must_use]
    pub fn with_execution(mut self, path: PathBuf, execution: Execution) -> Self {
        self.executions.insert(path, execution);
        self
    }

    pub(crate) fn file(&self, path: &Path) -> Option<&AutosignFile> {
        self.files.get(path)
    }

    pub(crate) fn execution(&self, path: &Path) -> Option<&Execution> {
        self.executions.get(path)
    }

    pub(crate) fn person(&self) -> Option<Option<&PersonDecision>> {
        self.person.as_ref().map(Option::as_ref)
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

/// How a policy executable ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Execution {
    /// With status 0.
    Approved,
    /// In any other way, in words: a decline is final for the request.
    Declined(String),
}

/// A person's word on one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PersonVerdict {
    /// The certificate may be signed.
    Approve,
    /// It may not.
    Deny,
}
