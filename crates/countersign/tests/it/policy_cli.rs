//! `countersign policy`: what it says of files, cases and requests.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use countersign_testkit::csr::{CsrBuilder, TOKEN};
use countersign_testkit::deadline::Finished;
use countersign_testkit::keys;
use serde_json::Value;
use tempfile::TempDir;

use crate::installation::run;

/// A folder of files with the command run on them.
struct Folder(TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs `policy`; an argument that begins with `@` is a file of the folder.
    fn policy(&self, arguments: &[&str]) -> Finished {
        let arguments = arguments.iter().map(|argument| {
            let file = argument.strip_prefix('@').map(|name| self.path(name));
            file.unwrap_or_else(|| (*argument).to_owned())
        });
        let arguments: Vec<String> = ["policy".to_owned()].into_iter().chain(arguments).collect();
        run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let finished = self.policy(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&finished.stdout).unwrap_or_else(|_| panic!("{finished}"))
    }
}

fn policy(name: &str, rules: &str) -> String {
    format!(
        "apiVersion: countersign.dev/v1alpha1\nkind: ApprovalPolicy\nmetadata: {{name: {name}}}\n\
         spec:\n  signers: [countersign.dev/puppet-agent]\n  rules:\n{rules}"
    )
}

fn agents() -> String {
    policy(
        "agents",
        concat!(
            "    - name: reserved\n",
            "      deny: {cel: 'request.commonName == \"vault.example.com\"', message: reserved name}\n",
            "    - name: lab\n",
            "      approve: {allowlist: {file: autosign.conf}}\n",
            "    - name: machines\n",
            "      approve: {machine: {}}\n",
            "    - name: cmdb\n",
            "      when: requester.anonymous\n",
            "      approve: {webhook: {url: \"https://cmdb.example.com/\"}}\n",
        ),
    )
}

fn site() -> Folder {
    let csr = CsrBuilder::new("web01.example.com").sign_pem(keys::p256_a());
    let listed = CsrBuilder::new("a.lab.example.com").sign_pem(keys::p256_a());
    Folder::new(&[
        ("policies/agents.yaml", &agents()),
        ("policies/autosign.conf", "*.lab.example.com\n"),
        ("policies/notes.txt", "not a policy"),
        ("web01.pem", &csr),
        ("listed.pem", &listed),
    ])
}

#[test]
fn a_good_folder_is_listed_and_a_bad_file_is_told_with_line_and_column() {
    let site = site();
    let good = site.policy(&["check", "@policies"]);
    assert!(good.success(), "{good}");
    assert!(
        good.stdout.contains("agents") && good.stdout.contains("countersign.dev/puppet-agent"),
        "{good}"
    );
    let report = site.json(&["check", "@policies"]);
    assert_eq!(report["ok"], true, "{report}");
    assert_eq!(
        report["policies"][0]["rules"],
        serde_json::json!(["reserved", "lab", "machines", "cmdb"])
    );

    site.write(
        "policies/bad.yaml",
        &policy("bad", "    - {name: a, aprove: {}}\n"),
    );
    site.write(
        "policies/worse.yml",
        &policy("agents", "    - {name: a, approve: {always: {}}}\n"),
    );
    let bad = site.policy(&["check", "@policies"]);
    assert_eq!(bad.code, Some(1), "{bad}");
    for part in [
        "bad.yaml, line 7, column 17: spec.rules[0].aprove: unknown key; did you mean \"approve\"?",
        "worse.yml, line 3, column 18: metadata.name: agents is also the name of the policy in ",
    ] {
        assert!(bad.stderr.contains(part), "{part} in {bad}");
    }
    let report = site.json(&["check", "@policies"]);
    assert_eq!(report["ok"], false);
    // That the rule neither approves nor denies is said too.
    let fault = &report["faults"][1];
    assert_eq!(
        (&fault["line"], &fault["column"], &fault["key"]),
        (&7.into(), &17.into(), &"spec.rules[0].aprove".into())
    );
}

/// A rule for a signer that is not there denies nothing: whoever wrote it believes that it does.
#[test]
fn a_mistyped_signer_is_told_and_one_that_nobody_serves_is_a_warning() {
    let site = site();
    let deny = "    - {name: nobody, deny: {cel: 'true', message: closed}}\n";
    let closed = policy("closed", deny);
    let mistyped = closed.replace("puppet-agent", "puppet-agents");
    site.write("policies/closed.yaml", &mistyped);
    let refused = site.policy(&["check", "@policies"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    for said in [
        "closed.yaml, line ",
        "there is no signer countersign.dev/puppet-agents: did you mean countersign.dev/puppet-agent?",
    ] {
        assert!(refused.stderr.contains(said), "{said}: {refused}");
    }

    let elsewhere = closed.replace("countersign.dev/puppet-agent", "example.com/vpn");
    site.write("policies/closed.yaml", &elsewhere);
    let told = "policy closed: signer example.com/vpn is not declared in the configuration";
    let warned = site.policy(&["check", "@policies"]);
    assert!(warned.success(), "{warned}");
    assert!(warned.stderr.contains(told), "{warned}");
    let report = site.json(&["check", "@policies"]);
    assert!(report["warnings"][0].as_str().unwrap().contains(told));
    site.write("countersign.yaml", "signers: [{name: example.com/vpn}]\n");
    let declared = site.policy(&["check", "@policies", "--config", "@countersign.yaml"]);
    assert!(declared.success(), "{declared}");
    assert_eq!(declared.stderr, "", "{declared}");
}

/// `check` refuses what the server would refuse.
#[test]
fn a_policy_that_everybody_may_write_does_not_pass_the_check() {
    let site = site();
    let file = site.path("policies/agents.yaml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let refused = site.policy(&["check", "@policies"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    let said = "agents.yaml: is not trusted: others than root and the server's user may write";
    assert!(refused.stderr.contains(said), "{refused}");
}

/// Nor do lists and programs pass that everybody may write: the server would use neither.
#[test]
fn a_list_or_a_program_that_everybody_may_write_does_not_pass_the_check() {
    let rules = concat!(
        "    - {name: list, approve: {allowlist: {file: list.conf}}}\n",
        "    - {name: script, approve: {executable: {path: SCRIPT}}}\n",
    );
    let files = [
        ("p.yaml", &*policy("p", rules)),
        ("list.conf", "good.example.com\n"),
        ("script.sh", "#!/bin/sh\n"),
    ];
    let site = Folder::new(&files);
    let script = site.path("script.sh");
    site.write("p.yaml", &policy("p", rules).replace("SCRIPT", &script));
    let mode = |path: &str, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&script, 0o755);
    assert!(site.policy(&["check", "@p.yaml"]).success());
    for (path, open, closed) in [
        (site.path("list.conf"), 0o666, 0o644),
        (script, 0o777, 0o755),
    ] {
        mode(&path, open);
        let refused = site.policy(&["check", "@p.yaml"]);
        assert_eq!(refused.code, Some(1), "{refused}");
        let said = format!("{path}: is not trusted: others than root");
        assert!(refused.stderr.contains(&said), "{said}: {refused}");
        mode(&path, closed);
    }
}

#[test]
fn the_files_that_rules_need_are_looked_at() {
    let site = Folder::new(&[
        (
            "p.yaml",
            &policy(
                "p",
                concat!(
                    "    - {name: list, approve: {allowlist: {file: list.conf}}}\n",
                    "    - {name: no-list, approve: {allowlist: {file: none.conf}}}\n",
                    "    - {name: script, approve: {executable: {path: SCRIPT}}}\n",
                    "    - {name: no-script, approve: {executable: {path: /nonexistent/policy.sh}}}\n",
                    "    - {name: hook, approve: {webhook: {url: \"https://a/\", caBundle: ca.pem, secretFile: key}}}\n",
                ),
            ),
        ),
        ("list.conf", "good.example.com\nweb*.example.com\n"),
        ("ca.pem", "nothing"),
        ("key", "\n"),
        ("script.sh", "#!/bin/sh\n"),
    ]);
    let script = site.path("script.sh");
    let text = fs::read_to_string(site.path("p.yaml")).unwrap();
    site.write("p.yaml", &text.replace("SCRIPT", &script));
    let checked = site.policy(&["check", "@p.yaml"]);
    assert_eq!(checked.code, Some(1), "{checked}");
    for part in [
        "p.yaml, line 7, ",
        "list.conf: line 2 (\"web*.example.com\") has a wildcard elsewhere than as its whole first label (the allowlist of rule list in policy p)",
        "none.conf: cannot be read: ",
        "script.sh: may not be executed: run chmod +x (the executable of rule script in policy p)",
        "/nonexistent/policy.sh: cannot be found: ",
        "ca.pem: there is no CERTIFICATE in this PEM text",
        "key: is empty (the secret of rule hook in policy p)",
    ] {
        assert!(checked.stderr.contains(part), "{part} in {checked}");
    }
    assert_eq!(checked.stderr.lines().count(), 6, "{checked}");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let again = site.policy(&["check", "@p.yaml"]);
    assert_eq!(again.stderr.lines().count(), 5, "{again}");
}

#[test]
fn a_missing_list_or_secret_is_told_with_the_policys_file_and_line() {
    let rules = concat!(
        "    - {name: fine, approve: {allowlist: {names: [a.example.com]}}}\n",
        "    - {name: list, approve: {allowlist: {file: none.conf}}}\n",
        "    - {name: hook, approve: {webhook: {url: \"https://a/\", secretFile: none.key}}}\n",
    );
    let site = Folder::new(&[("p.yaml", &policy("p", rules))]);
    let checked = site.json(&["check", "@p.yaml"]);
    let faults = checked["faults"].as_array().unwrap();
    let told: Vec<_> = faults
        .iter()
        .map(|fault| (fault["file"].as_str().unwrap(), fault["line"].as_u64()))
        .collect();
    let file = site.path("p.yaml");
    assert_eq!(told, [(&*file, Some(8)), (&*file, Some(9))], "{checked}");
    for (fault, missing) in faults.iter().zip(["none.conf", "none.key"]) {
        let message = fault["message"].as_str().unwrap();
        assert!(message.starts_with(&site.path(missing)), "{message}");
    }
}

#[test]
fn an_answer_for_a_rule_that_there_is_not_is_refused() {
    let site = site();
    let explain = |answer: &str| {
        let policy = ["explain", "--policy", "@policies", "@web01.pem"];
        site.policy(&[&policy[..], &["--answer", answer]].concat())
    };
    let mistyped = explain("cmbd=approve");
    assert_eq!(mistyped.code, Some(1), "{mistyped}");
    let part = "--answer: the policy has no rule \"cmbd\": did you mean cmdb?";
    assert!(mistyped.stderr.contains(part), "{mistyped}");
    assert_eq!(mistyped.stdout, "");
    assert!(explain("cmdb=approve").success());
}

#[test]
fn explain_says_503_where_the_door_answers_so() {
    let site = site();
    let explain = |more: &[&str]| {
        let all = ["explain", "--policy", "@policies", "@web01.pem"];
        site.json(&[&all[..], more].concat())["undecided"].clone()
    };
    assert_eq!(explain(&[]), true);
    assert_eq!(explain(&["--answer", "cmdb=decline"]), false);
    // There it waits.
    assert_eq!(explain(&["--door", "kubernetes"]), false);
}

#[test]
fn what_cannot_be_read_is_named() {
    let site = Folder::new(&[("empty/x.txt", "")]);
    for (arguments, part) in [
        (
            &["check", "@missing.yaml"][..],
            "missing.yaml: cannot be read: ",
        ),
        (
            &["check", "@empty"],
            "there is no file in this folder that ends in .yaml or .yml",
        ),
        (&["test", "@missing.yaml"], "missing.yaml: cannot be read: "),
        (
            &["explain", "--policy", "@missing.yaml", "@empty/x.txt"],
            "is no request that any door would take",
        ),
    ] {
        let finished = site.policy(arguments);
        assert_eq!(finished.code, Some(1), "{finished}");
        assert!(finished.stderr.contains(part), "{part} in {finished}");
    }
    for arguments in [
        &["replay"][..],
        &["test"],
        &["explain", "@empty/x.txt"],
        &["chek"],
    ] {
        assert_eq!(site.policy(arguments).code, Some(2), "{arguments:?}");
    }
}

const CASES: &str = "
policy: policies/agents.yaml
now: 2026-01-02T03:04:05Z
cases:
  - name: on the list
    request: {csr: {commonName: a.lab.example.com}}
    expect: approve
    rule: lab
  - name: reserved
    request: {csr: {commonName: vault.example.com}}
    expect: deny
  - name: a message that is none
    request: {csr: {pem: nonsense}}
    expect: pending
    reason: csr_malformed
";

#[test]
fn cases_that_hold_are_counted_and_rules_that_none_reached_are_named() {
    let site = site();
    site.write("test.yaml", CASES);
    let passed = site.policy(&["test", "@test.yaml"]);
    assert!(passed.success(), "{passed}");
    assert_eq!(passed.stdout, "3 passed, 0 failed\n");
    let covered = site.policy(&["test", "@test.yaml", "--coverage"]);
    assert!(covered.success(), "{covered}");
    let lines: Vec<&str> = covered.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{covered}");
    assert!(
        lines[0].starts_with("not reached: agents/machines ("),
        "{covered}"
    );
    assert!(lines[0].ends_with("policies/agents.yaml:11)"), "{covered}");
    assert!(
        lines[1].starts_with("not reached: agents/cmdb ("),
        "{covered}"
    );
}

#[test]
fn a_case_that_fails_is_a_line_with_what_was_expected_what_came_and_why() {
    let site = site();
    site.write(
        "test.yaml",
        &format!(
            "{CASES}  - name: not on the list\n    request: {{csr: {{commonName: web01.example.com}}}}\n    expect: approve\n    rule: lab\n"
        ),
    );
    let failed = site.policy(&["test", "@test.yaml"]);
    assert_eq!(failed.code, Some(1), "{failed}");
    let lines: Vec<&str> = failed.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{failed}");
    for part in [
        "test.yaml:16 not on the list: expected approve, got pending, expected rule lab, but no rule decided (",
        "reserved absent: ",
        "lab absent: not on the list",
        "machines absent: web01.example.com is not in the inventory",
        "cmdb unavailable: ",
    ] {
        assert!(lines[0].contains(part), "{part} in {failed}");
    }
    assert_eq!(lines[1], "3 passed, 1 failed");
    let report = site.json(&["test", "@test.yaml", "--coverage"]);
    assert_eq!(
        (&report["passed"], &report["failed"]),
        (&3.into(), &1.into())
    );
    assert_eq!(report["not_reached"], serde_json::json!([]));
    let case = &report["cases"][3];
    assert_eq!(case["passed"], false);
    assert_eq!(case["explanation"]["steps"][3]["code"], "webhook_error");
    assert_eq!(case["explanation"]["retry"], true);
}

#[test]
fn a_test_file_or_a_policy_that_cannot_be_read_fails() {
    let site = site();
    site.write("bad.yaml", &CASES.replace("expect: deny", "expct: deny"));
    site.write("good.yaml", CASES);
    let bad = site.policy(&["test", "@bad.yaml", "@good.yaml"]);
    assert_eq!(bad.code, Some(1), "{bad}");
    assert!(
        bad.stderr.contains(
            "bad.yaml, line 11, column 5: cases[1].expct: unknown key; did you mean \"expect\"?"
        ),
        "{bad}"
    );
    assert_eq!(
        bad.stdout, "3 passed, 0 failed\n",
        "the other file is run all the same"
    );
    site.write("policies/agents.yaml", "kind: x\n");
    let broken = site.policy(&["test", "@good.yaml"]);
    assert_eq!(broken.code, Some(1), "{broken}");
    assert!(broken.stderr.contains("agents.yaml, line 1"), "{broken}");
}

#[test]
fn a_request_is_decided_offline_and_every_rule_asked_is_told() {
    let site = site();
    let explained = site.policy(&["explain", "--policy", "@policies/agents.yaml", "@web01.pem"]);
    assert!(explained.success(), "{explained}");
    for part in [
        "request:      web01.example.com at door puppet for countersign.dev/puppet-agent",
        "verdict:      undecided: with this evidence the door answers 503",
        "reason:       webhook_error",
        "1. agents/reserved (cel) absent, abstains: does not hold: ",
        "saw request.commonName = \"web01.example.com\"",
        "2. agents/lab (allowlist) absent, abstains: not on the list",
        "3. agents/machines (machine) absent, abstains: ",
        "4. agents/cmdb (webhook) unavailable, abstains: ",
    ] {
        assert!(explained.stdout.contains(part), "{part} in {explained}");
    }
    site.write(
        "machines.yaml",
        "- {apiVersion: countersign.dev/v1alpha1, kind: Machine, metadata: {name: web01.example.com}}\n",
    );
    let explain = |arguments: &[&str]| {
        let all = [&["explain", "--policy", "@policies"][..], arguments].concat();
        site.json(&all)["explanation"].clone()
    };
    for (arguments, effect, rule) in [
        (&["@listed.pem"][..], "approve", "lab"),
        (
            &["@web01.pem", "--machines", "@machines.yaml"],
            "approve",
            "machines",
        ),
        (
            &["@web01.pem", "--answer", "cmdb=approve"],
            "approve",
            "cmdb",
        ),
        (&["@web01.pem", "--answer", "cmdb=decline"], "pending", ""),
        (
            &["@web01.pem", "--answer", "cmdb=approve", "--certname", "x"],
            "pending",
            "",
        ),
        (
            &[
                "@web01.pem",
                "--answer",
                "cmdb=approve",
                "--user",
                "x",
                "--group",
                "y",
            ],
            "pending",
            "",
        ),
        (
            &["@listed.pem", "--signer", "example.com/vpn"],
            "pending",
            "",
        ),
    ] {
        let explanation = explain(arguments);
        assert_eq!(explanation["effect"], effect, "{arguments:?} {explanation}");
        let by = explanation["by"]["name"].as_str().unwrap_or_default();
        assert_eq!(by, rule, "{arguments:?} {explanation}");
    }
    let dated = explain(&["@listed.pem", "--now", "2026-01-02T03:04:05Z"]);
    assert_eq!(dated["at"], "2026-01-02T03:04:05Z");
    let usage = site.policy(&[
        "explain",
        "--policy",
        "@policies",
        "@web01.pem",
        "--answer",
        "cmdb",
    ]);
    assert_eq!(usage.code, Some(2), "{usage}");
}

#[test]
fn tokens_are_known_to_the_server_only_and_what_asks_it_is_told() {
    let site = site();
    let rules = "    - {name: otp, approve: {token: {}}}\n";
    site.write("tokens.yaml", &policy("tokens", rules));
    let with_token = CsrBuilder::new("web01.example.com").challenge_password(TOKEN);
    site.write("token.pem", &with_token.sign_pem(keys::p256_a()));
    let explained = site.policy(&["explain", "--policy", "@tokens.yaml", "@token.pem"]);
    assert!(explained.success(), "{explained}");
    for part in [
        "verdict:      undecided: with this evidence the door answers 503",
        "reason:       store_unavailable",
        "1. tokens/otp (token) unavailable, abstains: enrolment tokens are looked up by the server only",
        "`countersign token check`",
    ] {
        assert!(explained.stdout.contains(part), "{part} in {explained}");
    }
    let (_, secret) = TOKEN.split_at(22);
    let shown = [&explained.stdout, &explained.stderr];
    assert!(
        !shown.iter().any(|text| text.contains(secret)),
        "{explained}"
    );
    for (arguments, effect, code) in [
        (
            &["@token.pem", "--answer", "otp=approve"][..],
            "approve",
            "token",
        ),
        (
            &["@token.pem", "--answer", "otp=decline"],
            "pending",
            "token_missing",
        ),
        (
            &["@token.pem", "--answer", "otp=mismatch"],
            "deny",
            "token_unknown",
        ),
        // There is nothing to look up.
        (&["@web01.pem"], "pending", "token_missing"),
        (
            &["@web01.pem", "--user", "system:bootstrap:a"],
            "pending",
            "store_unavailable",
        ),
    ] {
        let all = [&["explain", "--policy", "@tokens.yaml"][..], arguments].concat();
        let explanation = site.json(&all)["explanation"].clone();
        assert_eq!(explanation["effect"], effect, "{arguments:?}");
        assert_eq!(explanation["code"], code, "{arguments:?}");
    }
}

#[test]
fn puppets_autosign_setting_is_shown_as_the_one_rule_it_stands_for() {
    let site = site();
    let data = PathBuf::from(site.path("data"));
    for (setting, rule, effect, code) in [
        (
            "true".to_owned(),
            "approve: {always: {}}",
            "approve",
            "always",
        ),
        (
            site.path("policies/autosign.conf"),
            "approve: {autosign: {path: ",
            "approve",
            "allowlist",
        ),
        (
            site.path("none.conf"),
            "approve: {autosign: {path: ",
            "pending",
            "",
        ),
    ] {
        site.write(
            "c.yaml",
            &format!(
                "data: {}\npuppet: {{autosign: {setting}}}\nhostnames: [ca.example]\n",
                data.display()
            ),
        );
        let shown = site.policy(&["explain", "--config", "@c.yaml", "@listed.pem"]);
        assert!(shown.success(), "{shown}");
        assert!(
            shown
                .stdout
                .contains("The autosign setting stands for this rule:\n- name: autosign\n")
                && shown.stdout.contains(rule),
            "{shown}"
        );
        let object = site.json(&["explain", "--config", "@c.yaml", "@listed.pem"]);
        assert_eq!(object["explanation"]["effect"], effect, "{object}");
        let said = object["explanation"]["code"].as_str().unwrap_or_default();
        assert_eq!(said, code, "{object}");
        assert!(
            object["settings"]["autosign"]
                .as_str()
                .unwrap()
                .contains(rule)
        );
    }
    assert!(!data.exists(), "nothing is created");
}
