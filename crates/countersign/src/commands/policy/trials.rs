//! `countersign policy test`: the cases of test files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use countersign_authority::{Clock as _, SystemClock};
use countersign_keys::LeafKey;
use countersign_pki::terminal_safe;
use countersign_policy::trial::{
    Case, CaseResult, CsrFields, Material, PolicySource, TrialFile, Usual,
};
use countersign_policy::{Effect, Explanation, Finding, PolicyFault, PolicySet, SignerName};
use countersign_server::{kubernetes, puppet};
use serde_json::{Value, json};

use super::{complain, shown_fault};
use crate::cli::Form;
use crate::cluster;
use crate::output;
use crate::policy_files;
use crate::signers;

/// Runs the cases; the exit code is 0 only if all hold and all files could be read.
pub(super) fn run(files: &[PathBuf], coverage: bool, form: Form) -> Result<u8> {
    let key = LeafKey::generate().context("no key can be made to sign requests with")?;
    let seal = |fields: &CsrFields| {
        let CsrFields {
            subject_der,
            extensions,
            attributes,
        } = fields;
        let sealed = key.signed_request(subject_der, extensions, attributes);
        sealed.map_err(|fault| format!("{:#}", anyhow::Error::from(fault)))
    };
    let machine_subjects = signers::machine_subjects()?;
    let usual = Usual {
        signer: SignerName::parse(signers::PUPPET_AGENT)?,
        door: puppet::SPEC.name.as_str(),
        other_door: kubernetes::SPEC.name.as_str(),
        pod_door: cluster::DOOR.name.as_str(),
    };
    let (mut report, mut reached) = (Report::default(), Reached::default());
    for path in files {
        let read = match read(path, &usual) {
            Ok(read) => read,
            Err(faults) => {
                report.faults.extend(faults);
                continue;
            }
        };
        let material = Material {
            policies: &read.policies,
            lists: &read.lists,
            autosign: &BTreeMap::new(),
            machine_subjects: &machine_subjects,
            seal: &seal,
            now: SystemClock.now(),
        };
        for case in &read.file.cases {
            let result = case.run(&material);
            if let Some(set) = case.policy_set(&material) {
                reached.add(set, result.explanation.as_ref());
            }
            report.add(path, case, result);
        }
    }
    let missed = coverage.then(|| reached.missed());
    match form {
        Form::Table => report.print(missed.as_deref())?,
        Form::Json | Form::Yaml => output::object(&report.to_json(missed.as_deref()), form)?,
    }
    let is_right = report.failed() == 0 && report.faults.is_empty();
    Ok(u8::from(!is_right))
}

/// A test file with everything that it names.
struct ReadFile {
    file: TrialFile,
    policies: BTreeMap<PathBuf, PolicySet>,
    lists: BTreeMap<PathBuf, countersign_policy::ListFile>,
}

fn read(path: &Path, usual: &Usual) -> Result<ReadFile, Vec<PolicyFault>> {
    let text = policy_files::text_of(path).and_then(|text| {
        let absolute = std::path::absolute(path)?;
        Ok((text, absolute.parent().unwrap_or(Path::new("/")).to_owned()))
    });
    let (text, folder) = text.map_err(|error| {
        vec![PolicyFault::of_file(
            path,
            format!("cannot be read: {error}"),
        )]
    })?;
    let file = TrialFile::read(path, &folder, &text, usual)?;
    let (mut policies, mut lists, mut faults) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for needed in file.policies_needed() {
        match policy_files::read(&[needed.to_owned()]) {
            Ok(set) => {
                policies.insert(needed.to_owned(), set);
            }
            Err(more) => faults.extend(more),
        }
    }
    let inline = file.cases.iter().filter_map(|case| match &case.policy {
        PolicySource::Inline(set) => Some(set.as_ref()),
        PolicySource::File(_) => None,
    });
    for set in policies.values().chain(inline) {
        lists.extend(policy_files::lists(set));
    }
    match faults.is_empty() {
        true => Ok(ReadFile {
            file,
            policies,
            lists,
        }),
        false => Err(faults),
    }
}

/// What became of all cases.
#[derive(Default)]
struct Report {
    cases: Vec<Done>,
    faults: Vec<PolicyFault>,
}

struct Done {
    file: PathBuf,
    line: u64,
    name: String,
    expected: Vec<Effect>,
    result: CaseResult,
}

impl Report {
    fn add(&mut self, file: &Path, case: &Case, result: CaseResult) {
        self.cases.push(Done {
            file: file.to_owned(),
            line: case.place.line,
            name: case.name.clone(),
            expected: case.expect.clone(),
            result,
        });
    }

    fn failed(&self) -> usize {
        let cases = self.cases.iter();
        cases
            .filter(|done| !done.result.failures.is_empty())
            .count()
    }

    fn print(&self, missed: Option<&[String]>) -> Result<()> {
        complain(&self.faults);
        for done in &self.cases {
            let failures = &done.result.failures;
            if failures.is_empty() {
                continue;
            }
            let place = format!("{}:{}", done.file.display(), done.line);
            let why = done.explained();
            let line = format!("FAILED {place} {}: {}{why}", done.name, failures.join(", "));
            output::line(&terminal_safe(&line))?;
        }
        for rule in missed.unwrap_or_default() {
            output::line(&terminal_safe(&format!("not reached: {rule}")))?;
        }
        let failed = self.failed();
        let passed = self.cases.len() - failed;
        output::line(&format!("{passed} passed, {failed} failed"))?;
        Ok(())
    }

    fn to_json(&self, missed: Option<&[String]>) -> Value {
        let failed = self.failed();
        let cases = self.cases.iter().map(|done| {
            json!({
                "file": done.file, "line": done.line, "name": done.name,
                "passed": done.result.failures.is_empty(), "expected": done.expected,
                "failures": done.result.failures, "remark": done.result.remark,
                "explanation": done.result.explanation,
            })
        });
        let mut report = json!({
            "passed": self.cases.len() - failed, "failed": failed,
            "cases": cases.collect::<Vec<_>>(),
            "faults": self.faults.iter().map(shown_fault).collect::<Vec<_>>(),
        });
        if let (Some(missed), Some(object)) = (missed, report.as_object_mut()) {
            object.insert("not_reached".to_owned(), json!(missed));
        }
        report
    }
}

impl Done {
    /// Every rule that was asked, in one line.
    fn explained(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.result.remark.clone());
        let steps = self.result.explanation.iter().flat_map(|e| &e.steps);
        parts.extend(steps.map(|step| {
            let finding = crate::explanation::finding_word(step.finding);
            match step.reason.as_str() {
                "" => format!("{} {finding}", step.rule),
                reason => format!("{} {finding}: {reason}", step.rule),
            }
        }));
        match parts.as_slice() {
            [] if self.result.explanation.is_none() => String::new(),
            [] => " (no rule was asked)".to_owned(),
            parts => format!(" ({})", parts.join("; ")),
        }
    }
}

/// Which rules were asked, of those there are.
#[derive(Default)]
struct Reached {
    /// By file and name of the document and name of the rule; in the order of the policies.
    rules: Vec<(Key, u64)>,
    asked: BTreeSet<Key>,
}

type Key = (PathBuf, String, String);

impl Reached {
    fn add(&mut self, set: &PolicySet, explanation: Option<&Explanation>) {
        for (document, rule, place) in set.rules() {
            let policy = document.name.as_ref();
            let key: Key = (document.file.clone(), policy.to_owned(), rule.name.clone());
            let mut steps = explanation.iter().flat_map(|e| &e.steps);
            if steps.any(|step| {
                // A rule whose condition never held has not been tried.
                step.policy == policy && step.rule == rule.name && step.finding != Finding::Skipped
            }) {
                self.asked.insert(key.clone());
            }
            if !self.rules.iter().any(|(known, _)| *known == key) {
                self.rules.push((key, place.line));
            }
        }
    }

    fn missed(&self) -> Vec<String> {
        let missed = self
            .rules
            .iter()
            .filter(|(key, _)| !self.asked.contains(key));
        missed
            .map(|((file, policy, rule), line)| {
                format!("{policy}/{rule} ({}:{line})", file.display())
            })
            .collect()
    }
}
