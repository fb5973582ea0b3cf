//! Policy tests: what a test file means, and what is said of those that mean nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_pki::{RequestTemplate, UnixTime, seal};
use countersign_policy::trial::{Case, CaseResult, CsrFields, Material, TrialFile, Usual};
use countersign_policy::{Allowlist, FileUse, ListFile, PolicyFile, PolicySet};
use countersign_testkit::keys;

use crate::documents::{assert_faults_as_written, files_of};
use crate::signer;

fn sealed(fields: &CsrFields) -> Result<Vec<u8>, String> {
    let key = keys::p256_a();
    let template = RequestTemplate {
        subject_der: &fields.subject_der,
        spki_der: key.spki_der(),
        extensions: &fields.extensions,
        attributes: &fields.attributes,
    };
    let info = template.to_be_signed().map_err(|fault| fault.to_string())?;
    let algorithm = key.issuer_algorithm().unwrap();
    seal(&info, algorithm, &key.sign(&info)).map_err(|fault| fault.to_string())
}

/// What is meant where a case does not say it.
fn usual() -> Usual {
    Usual {
        signer: signer("countersign.dev/puppet-agent"),
        door: "puppet",
        other_door: "kubernetes",
        pod_door: "cluster",
    }
}

/// Runs every case of a text, with the files that it names.
fn run(path: &Path, text: &str) -> Vec<(Case, CaseResult)> {
    let file = TrialFile::read(path, path.parent().unwrap(), text, &usual()).unwrap();
    let mut policies = BTreeMap::new();
    for needed in file.policies_needed() {
        let text = fs::read_to_string(needed).unwrap();
        let set = PolicySet::read(&[PolicyFile::new(needed.to_owned(), text)]).unwrap();
        policies.insert(needed.to_owned(), set);
    }
    let mut lists = BTreeMap::new();
    for file in policies.values().flat_map(PolicySet::files_needed) {
        if file.purpose == FileUse::Allowlist {
            let (list, _) = Allowlist::parse(&fs::read_to_string(&file.path).unwrap());
            lists.insert(file.path, ListFile::List(Arc::new(list)));
        }
    }
    let material = Material {
        policies: &policies,
        lists: &lists,
        autosign: &BTreeMap::new(),
        machine_subjects: &[],
        seal: &sealed,
        now: UnixTime(1_800_000_000),
    };
    let cases = file.cases.into_iter();
    let run = cases.map(|case| {
        let result = case.run(&material);
        (case, result)
    });
    run.collect()
}

#[test]
fn policies_decide_as_their_test_files_say() {
    let mut names = 0;
    for path in files_of("trials") {
        let text = fs::read_to_string(&path).unwrap();
        if !text.contains("\ncases:") {
            continue;
        }
        for (case, result) in run(&path, &text) {
            let (path, name) = (path.display(), &case.name);
            assert_eq!(result.failures, [""; 0], "{path}: {name}: {result:#?}");
            names += 1;
        }
    }
    assert!(names >= 30, "{names}");
}

/// The decisions of each preset, one file each: those that are known of the products, and their edges.
#[test]
fn rules_about_nodes_decide_as_their_test_files_say() {
    let mut cases = 0;
    let mut failures = Vec::new();
    for path in files_of("nodes") {
        let text = fs::read_to_string(&path).unwrap();
        for (case, result) in run(&path, &text) {
            cases += 1;
            if !result.failures.is_empty() {
                let steps = result.explanation.map(|explanation| explanation.steps);
                let file = path.file_stem().unwrap().display();
                let (name, why) = (&case.name, &result.failures);
                failures.push(format!("{file}: {name}: {why:?} {steps:#?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(cases > 500, "{cases}");
}

#[test]
fn every_fault_of_a_test_file_is_told_with_its_place_its_key_and_a_remedy() {
    for path in files_of("bad-trials") {
        let text = fs::read_to_string(&path).unwrap();
        let faults = TrialFile::read(&path, path.parent().unwrap(), &text, &usual()).unwrap_err();
        assert_faults_as_written(&path, &text, &faults);
    }
}

/// A test that cannot fail is none: each expectation is broken once.
#[test]
fn whatever_is_not_as_expected_is_told() {
    let base = fs::read_to_string(files_of("trials")[0].with_file_name("agents.yaml")).unwrap();
    let policy: String = base.lines().map(|line| format!("  {line}\n")).collect();
    let case = |expectations: &str| {
        format!(
            "policy:\n{policy}now: 2026-01-02T03:04:05Z\ncases:\n  - request: {{csr: {{commonName: a.lab.example.com}}}}\n    {expectations}\n"
        )
    };
    for (expectations, failures) in [
        (&["expect: approve"][..], &[][..]),
        (&["expect: deny"], &["expected deny, got approve"]),
        (
            &["expect: [deny, pending]"],
            &["expected deny or pending, got approve"],
        ),
        (
            &["expect: approve", "rule: reserved"],
            &["expected rule reserved, got rule lab"],
        ),
        (
            &["expect: approve", "reason: machine"],
            &["expected reason machine, got allowlist"],
        ),
        (
            &["expect: approve", "check: C12"],
            &["expected check C12 to fail, but it did not"],
        ),
        (
            &["expect: approve", "check: [C12, X03]"],
            &[
                "expected check C12 to fail, but it did not",
                "expected check X03 to fail, but it did not",
            ],
        ),
        (
            &["expect: approve", "retry: true"],
            &["expected retry true, got false"],
        ),
    ] {
        let text = case(&expectations.join("\n    "));
        let results = run(&PathBuf::from("/inline/test.yaml"), &text);
        let [(case, result)] = results.as_slice() else {
            panic!("{text}");
        };
        assert_eq!(case.name, "case 1");
        assert_eq!(result.failures, failures, "{expectations:?}");
    }
}

#[test]
fn a_request_that_cannot_be_made_or_read_says_why() {
    let policy = "policy: agents.yaml\nnow: 2026-01-02T03:04:05Z\ncases:\n  - expect: pending\n";
    let path = files_of("trials")[0].with_file_name("inline.yaml");
    for (csr, remark, failure) in [
        ("{pem: x}", "the request cannot be read: ", ""),
        (
            "{dnsNames: [a], extensions: {2.5.29.17: b}}",
            "",
            "the request cannot be made: ",
        ),
    ] {
        let results = run(&path, &format!("{policy}    request: {{csr: {csr}}}\n"));
        let (_, result) = &results[0];
        let said = result.remark.clone().unwrap_or_default();
        let failed = result.failures.first().cloned().unwrap_or_default();
        assert!(said.starts_with(remark), "{said}");
        assert!(failed.starts_with(failure), "{failed}");
        assert_eq!(failed.is_empty(), failure.is_empty(), "{failed}");
    }
}
