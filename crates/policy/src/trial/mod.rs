//! Policy tests: cases that say what a policy shall decide, and the world in which it decides.
//!
//! A test file brings its own clock, objects, answers and requests; nothing outside is asked. What needs a file or a key is
//! left to the caller: the policies that the file names, the lists that their rules name, and the throw-away key that signs
//! requests which are written as fields.

mod cluster;
mod objects;
mod pod;
mod request;
mod run;
mod setting;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use request::{CsrFields, Seal, TrialRequest, WrittenCsr};
pub use run::{CaseResult, Material};
pub use setting::{DnsAnswer, PolicySource, Scene, ServingAnswer};

use crate::fields::{Field, Fields, PolicyFault, Reading};
use crate::request::SignerName;
use crate::verdict::Effect;
use crate::yaml::{self, SourcePosition};

/// The cases of one file.
#[derive(Clone, Debug)]
pub struct TrialFile {
    /// The file.
    pub path: PathBuf,
    /// Its cases, in its order.
    pub cases: Vec<Case>,
}

/// A request and what shall become of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is about.
    pub name: String,
    /// Where it stands.
    pub place: SourcePosition,
    /// The policy that is tried.
    pub policy: PolicySource,
    /// What the rules find.
    pub scene: Arc<Scene>,
    /// What is asked for.
    pub request: TrialRequest,
    /// The outcomes that are right.
    pub expect: Vec<Effect>,
    /// The rule that shall decide.
    pub rule: Option<String>,
    /// The reason in one word that shall be given.
    pub reason: Option<String>,
    /// Checks that shall stand as failed.
    pub checks: Vec<String>,
    /// Whether it shall wait for evidence that may still appear.
    pub retry: Option<bool>,
}

/// What a request of a case is that does not say so: signers and doors are the caller's.
#[derive(Clone, Debug)]
pub struct Usual {
    /// Its signer.
    pub signer: SignerName,
    /// Its door, where that is its signer.
    pub door: &'static str,
    /// Its door, where it has another signer.
    pub other_door: &'static str,
    /// Its door, where it is for a pod.
    pub pod_door: &'static str,
}

impl TrialFile {
    /// Reads a test file; relative paths in it begin in `folder`.
    ///
    /// # Errors
    /// With all that is wrong with it.
    pub fn read(
        path: &Path,
        folder: &Path,
        text: &str,
        usual: &Usual,
    ) -> Result<Self, Vec<PolicyFault>> {
        let mut reading = Reading::new(path, folder, text);
        let cases = match yaml::read_all(text) {
            Ok(documents) => match documents.as_slice() {
                [only] => cases(&Field::root(only), usual, &mut reading),
                [] => {
                    let what = "there are no cases in this file";
                    reading.complain(SourcePosition::default(), "", what);
                    Vec::new()
                }
                [_, second, ..] => {
                    let what = "a test file is one document: put the second into a file of its own";
                    reading.complain(second.place, "", what);
                    Vec::new()
                }
            },
            Err(fault) => {
                reading.complain(fault.place, "", fault.what);
                Vec::new()
            }
        };
        let mut faults = reading.faults;
        faults.sort_by_key(|fault| fault.place);
        match faults.is_empty() {
            true => Ok(Self {
                path: path.to_owned(),
                cases,
            }),
            false => Err(faults),
        }
    }

    /// The policy files that its cases name, each once.
    pub fn policies_needed(&self) -> Vec<&Path> {
        let mut paths: Vec<&Path> = Vec::new();
        for case in &self.cases {
            match &case.policy {
                PolicySource::File(path) if !paths.contains(&path.as_path()) => paths.push(path),
                PolicySource::File(_) | PolicySource::Inline(_) => {}
            }
        }
        paths
    }
}

fn cases(root: &Field<'_>, usual: &Usual, reading: &mut Reading<'_>) -> Vec<Case> {
    let known: Vec<&str> = setting::KEYS.into_iter().chain(["cases"]).collect();
    let Some(fields) = root.fields(&known, reading) else {
        return Vec::new();
    };
    let shared = setting::Setting::read(&fields, &setting::Setting::default(), reading);
    let items = fields
        .required("cases", reading)
        .and_then(|field| {
            let items = field.items(reading)?;
            if items.is_empty() {
                field.complain(reading, "a test file has at least one case");
            }
            Some(items)
        })
        .unwrap_or_default();
    items
        .iter()
        .enumerate()
        .filter_map(|(index, item)| case(index, item, &shared, usual, reading))
        .collect()
}

fn case(
    index: usize,
    item: &Field<'_>,
    shared: &setting::Setting,
    usual: &Usual,
    reading: &mut Reading<'_>,
) -> Option<Case> {
    let known: Vec<&str> = setting::KEYS.into_iter().chain(KEYS).collect();
    let fields = item.fields(&known, reading)?;
    let setting = setting::Setting::read(&fields, shared, reading);
    let name = fields.get("name").and_then(|field| field.text(reading));
    let request = fields.required("request", reading);
    let request = request.and_then(|field| TrialRequest::read(&field, usual, reading));
    let expect = expected(&fields, reading);
    let text = |key: &str, reading: &mut Reading<'_>| fields.get(key)?.text(reading);
    let rule = text("rule", reading);
    let reason = text("reason", reading);
    let checks = fields
        .get("check")
        .and_then(|field| field.one_or_more(reading))
        .unwrap_or_default();
    let checks = checks.iter().filter_map(|check| check.text(reading));
    let checks = checks.collect();
    let retry = fields.get("retry").and_then(|field| field.truth(reading));
    if setting.policy.is_none() {
        let what = "no policy is named, neither here nor for the whole file";
        fields.complain("policy", reading, what);
    }
    Some(Case {
        name: name.unwrap_or_else(|| format!("case {}", index.saturating_add(1))),
        place: item.node.place,
        policy: setting.policy?,
        scene: setting.scene,
        request: request?,
        expect,
        rule,
        reason,
        checks,
        retry,
    })
}

fn expected(fields: &Fields<'_>, reading: &mut Reading<'_>) -> Vec<Effect> {
    let Some(field) = fields.required("expect", reading) else {
        return Vec::new();
    };
    let words = field.one_or_more(reading).unwrap_or_default();
    if words.is_empty() {
        field.complain(reading, "say approve, deny or pending");
    }
    let words = words.iter().filter_map(|word| word.word(&EFFECTS, reading));
    words.collect()
}

const KEYS: [&str; 7] = [
    "name", "request", "expect", "rule", "reason", "check", "retry",
];
const EFFECTS: [(&str, Effect); 3] = [
    ("approve", Effect::Approve),
    ("deny", Effect::Deny),
    ("pending", Effect::Pending),
];
