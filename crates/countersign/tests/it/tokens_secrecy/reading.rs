//! People who type tokens where they should not, and everything that can be read of an authority afterwards.

use serde_json::Value;

use super::stage::Stage;
use crate::site::PUPPET;

/// Every command that takes a word from a person.
pub(super) fn people_type_tokens(stage: &mut Stage) {
    let token = stage.mint(&["n10.example.com"]);
    let t = token.as_str();
    let (pair, list) = (format!("pp_role={t}"), format!("a.example.com,{t}"));
    let (san, url) = (format!("DNS:{t}"), format!("https://{t}:8140"));
    let rows = stage.file("rows", &format!("b.example.com\n{t}\n"));
    let cells = stage.file(
        "cells.csv",
        &format!("certname,note\nb.example.com,{t}\n{t},x\n"),
    );
    let heading = stage.file("heading.csv", &format!("certname,{t}\nb.example.com,x\n"));
    let config = stage.file("config.yaml", &format!("tokens: {{{t}: {t}}}\n{t}: 1\n"));
    let policy = stage.file("policy.yaml", &format!("{t}\n"));
    let data = stage.path(t).to_str().unwrap().to_owned();
    let name = "b.example.com";
    for arguments in [
        &[t][..],
        &["token", t],
        &["token", "create", t],
        &["token", "create", name, t],
        &["token", "create", name, "--note", t],
        &["token", "create", name, "--external-ref", t],
        &["token", "create", name, "--profile", t],
        &["token", "create", name, "--san", t],
        &["token", "create", name, "--san", &san],
        &["token", "create", name, "--extension", t],
        &["token", "create", name, "--extension", &pair],
        &["token", "create", name, "--spki-sha256", t],
        &["token", "create", name, "--source-cidr", t],
        &["token", "create", name, "--ttl", t],
        &["token", "create", name, "--max-uses", t],
        &["token", "create", name, "--not-before", t],
        &["token", "create", name, "--format", t],
        &["token", "create", name, "--carrier", t],
        &["token", "create", name, t, "--glob"],
        &["token", "create", &format!("*.{t}"), "--glob"],
        &["token", "create", name, &format!("--{t}")],
        &["token", "create", "--from", t],
        &["token", "create", "--from", &rows, "--format", "csv"],
        &["token", "create", "--from", &cells, "--format", "csv"],
        &["token", "create", "--from", &heading, "--format", "csv"],
        &["token", "create", name, "--server", t],
        &["token", "create", name, "--server", &url],
        &["token", "show", t],
        &["token", "revoke", t],
        &["token", "revoke", "--certname", t],
        &["token", "release", t],
        &["token", "check", t],
        &["token", "list", "--certname", t],
        &["token", "list", "--status", t],
        &["token", "list", "--data", &data],
        &["token", "list", "-o", t],
        &["csr", "show", t],
        &["csr", "explain", t],
        &["csr", "approve", t],
        &["csr", "deny", t],
        &["csr", "delete", t],
        &["csr", "deny", "waiting-too.example.com", "--reason", t],
        &["csr", "list", "--door", t],
        &["csr", "show", "n1.example.com", "--door", t],
        &["machine", "add", t],
        &["machine", "add", name, "--role", t],
        &["machine", "show", t],
        &["machine", "remove", t],
        &["machine", "import", t],
        &["machine", "import", &rows],
        &["machine", "import", &cells],
        &["window", "open", t],
        &["window", "close", t],
        &["ca", "sign", "--certname", t],
        &["ca", "sign", "--certname", &list],
        &["ca", "revoke", "--certname", t],
        &["ca", "clean", "--certname", t],
        &["ca", "generate", "--certname", t],
        &["ca", "list", "--certname", t],
        &["ca", t],
        &["policy", "check", t],
        &["policy", "check", &policy],
        &["policy", "explain", "--policy", t, t],
        &["policy", "replay", "--policy", t],
        &["policy", "test", t],
        &["audit", "show", "--certname", t],
        &["audit", "show", "--actor", t],
        &["audit", "show", "--since", t],
        &["audit", "show", "--event", t],
        &["serve", t],
        &["serve", "--config", t],
        &["serve", "--config", &config],
        &["serve", "--listen", t],
        &["restore", t, "--data", &data],
        &["enroll", t],
    ] {
        let finished = stage.command(arguments);
        // A question about a name that nobody has is answered, and a reason is kept without what is secret in it.
        let is_fine = |word: &&str| ["audit", "list", "--reason"].contains(word);
        assert!(!finished.success() || arguments.iter().any(is_fine));
    }
}

/// Every listing, in every form.
pub(super) fn everything_is_looked_at(stage: &mut Stage) {
    let listed = stage.command(&["token", "list", "-o", "json"]).stdout;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let tokens = listed["items"].as_array().unwrap().clone();
    assert!(tokens.len() > 12, "{listed}");
    for form in ["table", "json", "yaml"] {
        for token in &tokens {
            stage.command(&["token", "show", token["id"].as_str().unwrap(), "-o", form]);
        }
        for arguments in [
            &["token", "list"][..],
            &["token", "list", "--unused"],
            &["csr", "list", "--all"],
            &["machine", "list"],
            &["window", "list"],
            &["audit", "show", "--last", "10000"],
        ] {
            let finished = stage.command(&[arguments, &["-o", form]].concat());
            assert!(finished.success(), "{arguments:?} {finished}");
        }
        for verb in ["show", "explain"] {
            for name in NAMES {
                let finished = stage.command(&["csr", verb, name, "-o", form]);
                assert!(finished.success(), "{name} {finished}");
            }
        }
    }
    let policies = stage.path("agents.yaml").to_str().unwrap().to_owned();
    let config = stage.path("countersign.yaml").to_str().unwrap().to_owned();
    for arguments in [
        &["ca", "list", "--all"][..],
        &["audit", "export"],
        &["audit", "verify"],
        &["policy", "replay", "--policy", &policies],
        &["policy", "check", &policies],
        &["serve", "--print-config", "--config", &config],
    ] {
        let finished = stage.command(arguments);
        assert!(finished.success(), "{arguments:?} {finished}");
    }
    let admin = stage.site.admin();
    for path in [
        "requests?past=true",
        "certificates",
        "rejections",
        "decisions",
        "policy",
        "tokens",
        "machines",
        "windows",
        "audit?stored=true",
        "audit?newest_first=true",
        "audit/seals",
        "openapi.json",
    ] {
        let first = format!("/enrol/v1/{path}");
        let mut path = first.clone();
        loop {
            let answer = stage.call(&admin, "GET", &path, &[], b"").unwrap();
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            let page: Value = serde_json::from_slice(&answer.body).unwrap();
            let Some(cursor) = page["cursor"].as_str() else {
                break;
            };
            let mark = if first.contains('?') { '&' } else { '?' };
            path = format!("{first}{mark}cursor={cursor}");
        }
    }
    for name in NAMES {
        for kind in ["certificate", "certificate_request", "certificate_status"] {
            let path = format!("{PUPPET}/{kind}/{name}");
            stage.call(&admin, "GET", &path, &[], b"");
        }
        let path = format!("/enrol/v1/requests/puppet/{name}");
        stage.call(&admin, "GET", &path, &[], b"");
    }
    let path = format!("{PUPPET}/certificate_statuses/any");
    stage.call(&admin, "GET", &path, &[], b"");
    let metrics = &stage.site.server.addresses.metrics;
    let address = metrics.strip_prefix("http://").unwrap().parse().unwrap();
    for path in ["/metrics", "/readyz"] {
        let answer = countersign_testkit::http::call(address, "GET", path).unwrap();
        stage.keep(path, &answer.body);
    }
}

/// The data folder of the running server and of one that has ended, a backup and what becomes of it.
pub(super) fn everything_is_read_from_the_disk(stage: &mut Stage) {
    let data = stage.site.data();
    stage.keep_files(&data);
    let is_log = |(name, content): &&(String, Vec<u8>)| name.ends_with("-wal") && content.len() > 1;
    assert_eq!(stage.kept().filter(is_log).count(), 1);
    let backup = stage.path("backup.tar");
    let finished = stage.command(&["backup", backup.to_str().unwrap()]);
    assert!(finished.success(), "{finished}");
    let content = std::fs::read(&backup).unwrap();
    stage.keep("the backup", &content);
    let restored = stage.path("restored");
    let finished = stage.command(&[
        "restore",
        backup.to_str().unwrap(),
        "--data",
        restored.to_str().unwrap(),
    ]);
    assert!(finished.success(), "{finished}");
    stage.keep_files(&restored);
    stage.server().stop().unwrap();
    stage.keep_files(&data);
}

/// Requests of every fate.
const NAMES: [&str; 8] = [
    "n1.example.com",
    "waiting.example.com",
    "asked.example.com",
    "asked-pend.example.com",
    "shown.example.com",
    "shown-pend.example.com",
    "scripted.example.com",
    "scripted-deny.example.com",
];
