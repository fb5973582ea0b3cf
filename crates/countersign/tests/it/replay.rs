//! `countersign policy replay`: what a changed policy would have decided, on the evidence that was recorded.

use std::fs;
use std::path::PathBuf;

use countersign_testkit::deadline::Finished;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::installation::run;
use crate::site::{Site, install};

/// A server whose policy is in a folder, with requests of every outcome on record.
struct Record {
    folder: TempDir,
    site: Site,
}

impl Record {
    fn new(rules: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.yaml");
        fs::write(&path, policy(rules)).unwrap();
        let config = format!("policies: [{}]\n", path.display());
        let site = Site::configured(&config, &[]);
        Self { folder, site }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command against the server.
    fn run(&self, arguments: &[&str]) -> Finished {
        let data = self.site.data();
        run(&[arguments, &["--data", data.to_str().unwrap()]].concat())
    }

    fn replay(&self, rules: &str, more: &[&str]) -> Finished {
        let path = self.path("changed.yaml");
        fs::write(&path, policy(rules)).unwrap();
        let arguments = ["policy", "replay", "--policy", path.to_str().unwrap()];
        self.run(&[&arguments, more].concat())
    }

    fn replayed(&self, rules: &str, more: &[&str]) -> Value {
        let finished = self.replay(rules, &[&["-o", "json"], more].concat());
        assert_eq!(finished.code, Some(0), "{finished}");
        serde_json::from_str(&finished.stdout).unwrap()
    }

    /// The number of audit entries: whatever is written leaves one.
    fn entries(&self) -> usize {
        self.run(&["audit", "export"]).stdout.lines().count()
    }
}

fn policy(rules: &str) -> String {
    format!(
        "apiVersion: countersign.dev/v1alpha1\nkind: ApprovalPolicy\nmetadata: {{name: agents}}\n\
         spec:\n  signers: [countersign.dev/puppet-agent]\n  rules:\n{rules}"
    )
}

/// `name: before -> after` of each row.
fn rows(report: &Value) -> Vec<String> {
    let side = |side: &Value| match (&side["effect"], &side["rule"]) {
        (Value::String(effect), Value::String(rule)) => format!("{effect} {rule}"),
        (Value::String(effect), _) => effect.clone(),
        _ => "?".to_owned(),
    };
    let items = report["items"].as_array().unwrap();
    let row = |item: &Value| {
        let name = item["name"].as_str().unwrap();
        let after = match &item["undetermined"] {
            Value::String(missing) => format!("? {missing}"),
            _ => side(&item["after"]),
        };
        format!("{name}: {} -> {after}", side(&item["before"]))
    };
    items.iter().map(row).collect()
}

#[test]
fn what_would_change_is_told_and_nothing_is_written() {
    let record = Record::new(
        "    - {name: lab, approve: {allowlist: {names: ['*.lab']}}}\n\
         \x20   - {name: known, when: 'request.commonName.endsWith(\".prod\")', approve: {machine: {once: true}}}\n\
         \x20   - {name: odd, deny: {cel: 'request.commonName.startsWith(\"odd\")'}}\n",
    );
    let added = record.run(&["machine", "add", "a.prod"]);
    assert_eq!(added.code, Some(0), "{added}");
    for (name, status) in [
        ("a.lab", 200),
        ("b.lab", 200),
        ("a.prod", 200),
        ("b.prod", 200),
        ("odd", 403),
        ("other", 200),
        ("signed", 200),
    ] {
        assert_eq!(record.site.ask(name).status, status, "{name}");
    }
    assert_eq!(record.site.put_state("signed", "signed").status, 204);
    let before = record.entries();

    let changed = "    - {name: one, approve: {allowlist: {names: [a.lab, other, signed]}}}\n\
                   \x20   - {name: known, when: 'request.commonName.endsWith(\".prod\")', approve: {machine: {once: true}}}\n\
                   \x20   - {name: rest, when: 'request.commonName == \"b.lab\"', approve: {machine: {}}}\n";
    let report = record.replayed(changed, &[]);
    assert_eq!(
        rows(&report),
        [
            "b.lab: approve lab -> ? the inventory was not asked",
            "odd: deny odd -> pending",
            "other: pending -> approve one",
            "signed: pending -> approve one",
        ]
    );
    assert_eq!(
        report["summary"],
        json!({"requests": 7, "changed": 3, "unchanged": 3, "undetermined": 1, "not_by_rules": 4})
    );
    let signed = report["items"].as_array().unwrap().last().unwrap();
    let person = signed["before"]["person"].as_str().unwrap();
    assert!(
        person.starts_with("approved by countersign-admin"),
        "{person}"
    );
    // The machine has enrolled since, but not when it asked.
    let all = rows(&record.replayed(changed, &["--all"]));
    assert!(
        all.contains(&"a.prod: approve known -> approve known".to_owned()),
        "{all:?}"
    );

    let shown = record.replay(changed, &[]);
    assert_eq!(shown.code, Some(0), "{shown}");
    let last = shown.stdout.lines().last().unwrap();
    assert_eq!(
        last,
        "7 requests decided anew: 3 would change, 3 would not, 1 undetermined; 4 others are no matter of rules"
    );
    assert!(shown.stdout.contains("undetermined"), "{shown}");

    assert_eq!(record.entries(), before, "a replay writes nothing");
    assert_eq!(record.site.certificate("other").status, 404);
}

#[test]
fn what_programs_said_is_not_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let (program, count) = (folder.path().join("says.sh"), folder.path().join("count"));
    let script = format!(
        "#!/bin/sh\necho x >> {}\ntest \"$1\" = good\n",
        count.display()
    );
    install(&program, &script, 0o755);
    let rule = format!(
        "    - {{name: site, approve: {{executable: {{path: {}}}}}}}\n",
        program.display()
    );
    let record = Record::new(&rule);
    assert_eq!(record.site.ask("good").status, 200);
    assert_eq!(record.site.ask("bad").status, 200);
    let asked = || fs::read_to_string(&count).unwrap().lines().count();
    assert_eq!(asked(), 2);
    let denying = rule.replace("}}}", "}}, else: deny}");
    let report = record.replayed(&denying, &["--all"]);
    assert_eq!(
        rows(&report),
        [
            "bad: pending -> deny site",
            "good: approve site -> approve site"
        ]
    );
    let other = rule.replace("says.sh", "other.sh");
    let report = record.replayed(&other, &[]);
    let missing = format!("? {} was not run", folder.path().join("other.sh").display());
    assert_eq!(
        rows(&report),
        [
            format!("bad: pending -> {missing}"),
            format!("good: approve site -> {missing}")
        ]
    );
    assert_eq!(asked(), 2, "nobody was asked again");
}

#[test]
fn a_bad_policy_is_told_with_its_place() {
    let record = Record::new("    - {name: all, approve: {always: {}}}\n");
    let finished = record.replay("    - {name: all, aprove: {always: {}}}\n", &[]);
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(finished.stderr.contains("line 7"), "{finished}");
    assert!(finished.stderr.contains("approve"), "{finished}");
    let checked = record.run(&["policy", "check"]);
    assert_eq!(checked.code, Some(0), "{checked}");
    assert!(
        checked.stdout.contains("generation 1 in force"),
        "{checked}"
    );
}
