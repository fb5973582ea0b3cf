//! Policy files: what they mean, and what is said of those that mean nothing.

use std::fs;
use std::path::{Path, PathBuf};

use countersign_policy::{
    FileUse, OnUnavailable, Otherwise, PolicyFault, PolicyFile, PolicySet, RuleEffect, RuleKind,
    WebhookMode,
};

fn data(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(folder)
}

fn set(files: &[(&str, &str)]) -> Result<PolicySet, Vec<PolicyFault>> {
    let files: Vec<PolicyFile> = files
        .iter()
        .map(|(path, text)| PolicyFile::new(path.into(), (*text).to_owned()))
        .collect();
    PolicySet::read(&files)
}

fn policy(name: &str, order: &str, rule: &str) -> String {
    format!(
        "apiVersion: countersign.dev/v1alpha1\nkind: ApprovalPolicy\nmetadata: {{name: {name}}}\n\
         spec:\n  signers: [example.com/a]\n{order}  rules:\n    - {rule}\n"
    )
}

/// The files of a folder of test data, by name.
pub(crate) fn files_of(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(data(folder)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{folder}");
    files
}

/// A bad file says at its end what is wrong with it, and where: `# expect 3:5 part of the sentence`.
pub(crate) fn assert_faults_as_written(path: &Path, text: &str, faults: &[PolicyFault]) {
    let expected: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# expect ")?.split_once(' '))
        .collect();
    assert!(!expected.is_empty(), "{}", path.display());
    for (fault, (place, part)) in faults.iter().zip(&expected) {
        let found = format!("{}:{}", fault.place.line, fault.place.column);
        assert_eq!(&found, place, "{fault}");
        assert!(fault.to_string().contains(part), "{part}\nin {fault}");
        assert_eq!(fault.file, path);
    }
    assert_eq!(faults.len(), expected.len(), "{faults:#?}");
}

#[test]
fn every_fault_is_told_with_its_place_its_key_and_a_remedy() {
    let files = files_of("bad");
    assert!(files.len() >= 10, "{files:?}");
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let faults = PolicySet::read(&[PolicyFile::new(path.clone(), text.clone())]).unwrap_err();
        assert_faults_as_written(&path, &text, &faults);
    }
}

#[test]
fn a_rule_is_what_its_document_says() {
    let path = data("good/all-kinds.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let set = PolicySet::read(&[PolicyFile::new(path, text)]).unwrap();
    let [document] = set.documents() else {
        panic!("{} documents", set.documents().len());
    };
    assert_eq!(&*document.name, "all-kinds");
    assert_eq!((document.order, document.signers.len()), (-5, 2));
    let lines: Vec<u64> = document.places.iter().map(|place| place.line).collect();
    let rules = &document.rules;
    assert_eq!(lines.len(), rules.len());
    assert_eq!(lines.first(), Some(&11));
    let rule = |name: &str| rules.iter().find(|rule| rule.name == name).unwrap();
    for rule in rules {
        assert_eq!((&*rule.policy, rule.signers.len()), ("all-kinds", 2));
    }

    let listed = rule("by-name");
    assert_eq!(listed.effect, RuleEffect::Approve);
    assert_eq!(
        (listed.otherwise, listed.on_unavailable),
        (Otherwise::Deny, OnUnavailable::Next)
    );
    let defaults = rule("by-file");
    assert_eq!(
        (defaults.otherwise, defaults.on_unavailable),
        (Otherwise::Abstain, OnUnavailable::Stop)
    );
    assert_eq!(rule("reserved").effect, RuleEffect::Deny);
    assert_eq!(rule("reserved").message.as_deref(), Some("reserved name"));

    assert_eq!(
        rule("everything").kind_words(),
        "always+cel+allowlist+subjectAccess+window+machine+token+executable+webhook",
        "cheap kinds first, whatever the order in the file"
    );
    let Some(RuleKind::Machine(machine)) = rule("known-machine").kinds.first() else {
        panic!("no machine");
    };
    assert_eq!((machine.window, machine.once), (Some(7200), true));
    let Some(RuleKind::SubjectAccess(question)) = rule("bound-role").kinds.first() else {
        panic!("no access review");
    };
    let every_key = "create certificatesigningrequests/nodeclient of certificates.k8s.io named a in namespace b";
    assert_eq!(question.to_string(), every_key);
    let Some(RuleKind::Executable(program)) = rule("site-script").kinds.first() else {
        panic!("no executable");
    };
    assert_eq!(program.path, Path::new("/etc/countersign/policy.sh"));
    assert_eq!(program.timeout, Some(10));
}

#[test]
fn webhooks_have_defaults_and_paths_from_their_own_file() {
    let path = data("good/all-kinds.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let set = PolicySet::read(&[PolicyFile::new(path, text)]).unwrap();
    let webhook = |name: &str| {
        let rule = set.rules().find(|(_, rule, _)| rule.name == name).unwrap();
        let found = rule.1.kinds.iter().find_map(|kind| match kind {
            RuleKind::Webhook(webhook) => Some(webhook.clone()),
            _ => None,
        });
        found.unwrap()
    };
    let plain = webhook("cmdb");
    assert_eq!((plain.timeout_ms, plain.mode), (5000, WebhookMode::Json));
    assert!(!plain.include_csr && plain.ca_bundle.is_none() && plain.secret_file.is_none());
    let full = webhook("foreman");
    assert_eq!((full.timeout_ms, full.mode), (30_000, WebhookMode::Status));
    assert!(full.include_csr);
    assert_eq!(full.secret_file, Some(data("good/webhook.key")));
    assert_eq!(full.client_cert_file, Some(data("good/client.pem")));
    assert_eq!(
        full.client_key_file,
        Some("/etc/countersign/client-key.pem".into())
    );
    let needed: Vec<(FileUse, String)> = set
        .files_needed()
        .into_iter()
        .filter(|file| file.rule == "foreman" || file.rule == "by-file")
        .map(|file| (file.purpose, file.path.display().to_string()))
        .collect();
    let good = |name: &str| data("good").join(name).display().to_string();
    assert_eq!(
        needed,
        [
            (FileUse::Allowlist, good("autosign.conf")),
            (FileUse::CaBundle, good("ca.pem")),
            (FileUse::Secret, good("webhook.key")),
            (FileUse::ClientCertificate, good("client.pem")),
            (
                FileUse::ClientKey,
                "/etc/countersign/client-key.pem".to_owned()
            ),
        ]
    );
}

#[test]
fn a_rule_shown_as_text_is_the_same_rule() {
    let path = data("good/all-kinds.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let set = PolicySet::read(&[PolicyFile::new(path, text)]).unwrap();
    for (document, rule, _) in set.rules() {
        let shown = rule.to_yaml();
        let indented: Vec<&str> = shown.trim_end().split('\n').collect();
        let again = policy(
            "again",
            "",
            indented.join("\n    ").trim_start_matches("- "),
        );
        let read = set_of(&again);
        let twin = &read.documents()[0].rules[0];
        let debug = |rule: &countersign_policy::Rule| {
            let mut rule = rule.clone();
            rule.policy = document.name.clone();
            rule.signers = document.signers.clone();
            format!("{rule:?}")
        };
        assert_eq!(debug(rule), debug(twin), "{shown}");
    }
}

fn set_of(text: &str) -> PolicySet {
    set(&[("again.yaml", text)]).unwrap_or_else(|faults| panic!("{faults:?}\n{text}"))
}

#[test]
fn documents_are_asked_by_order_then_by_name() {
    let always = "{name: r, approve: {always: {}}}";
    let text = |name: &str, order: &str| policy(name, order, always);
    let two = format!("{}---\n{}", text("zeta", ""), text("alpha", ""));
    let set = set(&[
        ("a.yaml", &two),
        ("b.yaml", &text("beta", "  order: 5\n")),
        ("c.yaml", &text("denials", "  order: -10\n")),
    ])
    .unwrap();
    let names: Vec<&str> = set.documents().iter().map(|d| &*d.name).collect();
    assert_eq!(names, ["denials", "alpha", "zeta", "beta"]);
    let policies: Vec<String> = set
        .into_rules()
        .iter()
        .map(|rule| rule.policy.to_string())
        .collect();
    assert_eq!(policies, ["denials", "alpha", "zeta", "beta"]);
}

#[test]
fn two_documents_of_one_name_are_a_fault_that_names_both_files() {
    let text = policy("twin", "", "{name: r, approve: {always: {}}}");
    let faults = set(&[("first.yaml", &text), ("second.yaml", &text)]).unwrap_err();
    let [fault] = faults.as_slice() else {
        panic!("{faults:?}");
    };
    let shown = fault.to_string();
    assert!(
        shown.starts_with("second.yaml, line 3, column 18: metadata.name: twin")
            && shown.contains("first.yaml, line 3"),
        "{shown}"
    );
}

#[test]
fn the_faults_of_all_files_are_told_together() {
    let faults = set(&[
        (
            "a.yaml",
            &policy("a", "", "{name: r, approve: {alwys: {}}}"),
        ),
        ("b.yaml", "]"),
        ("c.yaml", &policy("c", "", "{name: r}")),
    ])
    .unwrap_err();
    let files: Vec<String> = faults
        .iter()
        .map(|f| f.file.display().to_string())
        .collect();
    assert_eq!(files, ["a.yaml", "b.yaml", "c.yaml"]);
}

#[test]
fn there_is_an_end_to_the_number_of_rules_and_of_faults() {
    let many = |count: usize, kind: &str| {
        let rules: Vec<String> = (0..count)
            .map(|n| format!("{{name: r{n}, approve: {{{kind}: {{}}}}}}"))
            .collect();
        policy("many", "", &rules.join("\n    - "))
    };
    assert!(set(&[("a.yaml", &many(1000, "always"))]).is_ok());
    let faults = set(&[("a.yaml", &many(1001, "always"))]).unwrap_err();
    assert!(faults[0].to_string().contains("1001 rules"), "{faults:?}");
    assert_eq!(
        set(&[("a.yaml", &many(1000, "alwys"))]).unwrap_err().len(),
        100
    );
}
