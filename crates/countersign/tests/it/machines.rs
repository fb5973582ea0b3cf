//! The inventory and build windows on the command line, against a running server.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use countersign_testkit::deadline::{Finished, run_with_deadline};

use crate::installation::{Installation, binary, run};

/// Runs a command to its end and checks that it did well.
fn well(installation: &Installation, arguments: &[&str]) -> String {
    let finished = installation.run(arguments);
    assert_eq!(finished.code, Some(0), "{arguments:?}: {finished}");
    finished.stdout
}

fn refused(installation: &Installation, arguments: &[&str]) -> String {
    let finished = installation.run(arguments);
    assert_eq!(finished.code, Some(1), "{arguments:?}: {finished}");
    finished.stderr
}

fn file(installation: &Installation, name: &str, text: &str) -> String {
    let path: PathBuf = installation.path("..").join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The same with a file as standard input, as a shell gives it.
fn fed(installation: &Installation, arguments: &[&str], input: &str) -> Finished {
    let mut command = Command::new("sh");
    command
        .args(["-c", r#"exec "$0" "$@" < "$INPUT""#])
        .arg(binary())
        .args(arguments)
        .args(["--data", &installation.data()])
        .env("INPUT", input)
        .env_remove("COUNTERSIGN_DATA")
        .env_remove("RUST_LOG");
    run_with_deadline(command, Duration::from_secs(60)).unwrap_or_else(|fault| panic!("{fault}"))
}

#[test]
fn a_machine_is_added_listed_shown_replaced_and_removed() {
    let installation = Installation::new();
    let _server = installation.serve(&[]);
    assert_eq!(
        well(&installation, &["machine", "list"]),
        "The inventory is empty; `countersign machine add` and `import` fill it.\n"
    );
    let added = well(
        &installation,
        &[
            "machine",
            "add",
            "Web01.example.com",
            "--address",
            "192.0.2.7",
            "--address",
            "ExternalDNS=www.example.com",
            "--serial",
            "S1",
            "--uuid",
            "U1",
            "--instance-id",
            "i-1",
            "--provider",
            "rack",
            "--role",
            "web",
            "--not-before",
            "2026-01-01T00:00:00Z",
            "--not-after",
            "2099-01-01T00:00:00Z",
            "--single-use",
        ],
    );
    assert_eq!(added, "web01.example.com added\n");
    let again = refused(&installation, &["machine", "add", "web01.example.com"]);
    assert_eq!(
        again,
        "countersign: web01.example.com is in the inventory already; --replace replaces it\n"
    );
    let shown = well(&installation, &["machine", "show", "web01.example.com"]);
    for line in [
        "name:         web01.example.com",
        "addresses:    InternalIP 192.0.2.7",
        "              ExternalDNS www.example.com",
        "instance id:  i-1",
        "expected:     2026-01-01T00:00:00Z to 2099-01-01T00:00:00Z",
        "single use:   yes",
        "enrolled:     no",
    ] {
        assert!(shown.lines().any(|one| one == line), "{line} in\n{shown}");
    }
    well(&installation, &["machine", "add", "db01", "--role", "db"]);
    let listed = well(&installation, &["machine", "list"]);
    let rows: Vec<&str> = listed.lines().collect();
    assert!(
        rows[0].starts_with("NAME               ROLE  PROVIDER  EXPECTED"),
        "{listed}"
    );
    assert!(rows[1].starts_with("db01               db"), "{listed}");
    assert!(
        rows[2].starts_with("web01.example.com  web   rack      2026-01-01T00:00:00Z to "),
        "{listed}"
    );
    for (filter, expected) in [
        (&["--role", "web"][..], 1),
        (&["--provider", "rack", "--not-enrolled"], 1),
        (&["--enrolled"], 0),
    ] {
        let arguments = [&["machine", "list", "-o", "json"], filter].concat();
        let items = &installation.json(&arguments)["items"];
        assert_eq!(items.as_array().unwrap().len(), expected, "{filter:?}");
    }
    assert_eq!(
        well(&installation, &["machine", "list", "--enrolled"]),
        "No such machines.\n"
    );
    let replaced = well(
        &installation,
        &[
            "machine",
            "add",
            "web01.example.com",
            "--replace",
            "--role",
            "proxy",
        ],
    );
    assert_eq!(replaced, "web01.example.com replaced\n");
    let yaml = well(
        &installation,
        &["machine", "show", "web01.example.com", "-o", "yaml"],
    );
    assert!(
        yaml.contains("role: proxy") && yaml.contains("serial: null"),
        "{yaml}"
    );

    let partly = installation.run(&["machine", "remove", "db01", "nobody", "web01.example.com"]);
    assert_eq!(partly.code, Some(1), "{partly}");
    assert_eq!(partly.stdout, "db01 removed\nweb01.example.com removed\n");
    assert_eq!(
        partly.stderr,
        "countersign: nobody is not in the inventory\ncountersign: 1 of 3 were not removed\n"
    );
    let gone = refused(&installation, &["machine", "show", "db01"]);
    assert_eq!(gone, "countersign: db01 is not in the inventory\n");
    let bad = refused(
        &installation,
        &["machine", "add", "a", "--address", "InternalIP=b"],
    );
    assert_eq!(bad, "countersign: a: address b is not an IP address\n");
}

#[test]
fn the_command_line_is_checked_before_the_server_is_asked() {
    for arguments in [
        &["machine", "add"][..],
        &["machine", "add", "a", "--address", "Street=b"],
        &["machine", "add", "a", "--not-before", "soon"],
        &["machine", "list", "--enrolled", "--not-enrolled"],
        &["machine", "remove"],
        &["machine", "import", "a", "--format", "xml"],
        &["window", "open"],
        &[
            "window",
            "open",
            "a",
            "--for",
            "2h",
            "--until",
            "2099-01-01T00:00:00Z",
        ],
        &["window", "open", "a", "--for", "soon"],
    ] {
        assert_eq!(run(arguments).code, Some(2), "{arguments:?}");
    }
}

#[test]
fn files_are_imported_whole_or_not_at_all() {
    let installation = Installation::new();
    let _server = installation.serve(&[]);
    let count = || {
        installation.json(&["machine", "list", "-o", "json"])["items"]
            .as_array()
            .unwrap()
            .len()
    };

    let mut bad = "name,role,addresses\n".to_owned();
    for number in 0..1200 {
        writeln!(bad, "host-{number}.example.com,web,192.0.2.1").unwrap();
    }
    bad.push_str("a b,web,\nhost-7.example.com,web,\n,web,\nok,web,InternalIP=x\n");
    let bad = file(&installation, "bad.csv", &bad);
    let told = installation.run(&["machine", "import", &bad]);
    assert_eq!((told.code, told.stdout.as_str()), (Some(1), ""), "{told}");
    assert_eq!(
        told.stderr,
        format!(
            "line 1202: a b: the name cannot be used: Subject hostname format is invalid\n\
             line 1203: host-7.example.com stands in line 9 already\n\
             line 1204: has no name\n\
             line 1205: ok: address x is not an IP address\n\
             countersign: 4 of 1204 rows of {bad} cannot be imported; nothing was changed\n"
        )
    );
    assert_eq!(count(), 0);

    let mut good = "name,role,addresses,single_use\n".to_owned();
    for number in 0..1200 {
        writeln!(
            good,
            "host-{number}.example.com,web,192.0.2.1;h{number},true"
        )
        .unwrap();
    }
    let good = file(&installation, "good.csv", &good);
    let dry = well(&installation, &["machine", "import", &good, "--dry-run"]);
    assert_eq!(
        dry,
        "1200 would be added, 0 replaced; nothing was changed\n"
    );
    assert_eq!(count(), 0);
    let done = well(&installation, &["machine", "import", &good]);
    assert_eq!(done, "1200 added, 0 replaced\n");
    assert_eq!(count(), 1200);
    let one = installation.json(&["machine", "show", "host-1199.example.com", "-o", "json"]);
    assert_eq!(
        one["addresses"][1],
        serde_json::json!({"type": "Hostname", "address": "h1199"})
    );
    assert_eq!(one["single_use"], true);

    // What is there already is found in the last batch before the first is imported.
    let mut overlapping = String::new();
    for number in 0..600 {
        writeln!(overlapping, "{{\"name\":\"new-{number}\"}}").unwrap();
    }
    overlapping.push_str("{\"name\":\"host-3.example.com\",\"role\":\"db\"}\n");
    let overlapping = file(&installation, "overlapping.jsonl", &overlapping);
    let told = refused(&installation, &["machine", "import", &overlapping]);
    assert_eq!(
        told,
        format!(
            "line 601: host-3.example.com is in the inventory already; --replace replaces it\n\
             countersign: 1 of 601 rows of {overlapping} cannot be imported; nothing was changed\n"
        )
    );
    assert_eq!(count(), 1200);
    let dry = fed(
        &installation,
        &["machine", "import", "-", "--dry-run", "--replace"],
        &overlapping,
    );
    assert_eq!(
        dry.stdout, "600 would be added, 1 replaced; nothing was changed\n",
        "{dry}"
    );
    let done = fed(
        &installation,
        &["machine", "import", "-", "--format", "json", "--replace"],
        &overlapping,
    );
    assert_eq!(done.stdout, "600 added, 1 replaced\n", "{done}");
    assert_eq!(count(), 1800);
    let db = installation.json(&["machine", "list", "--role", "db", "-o", "json"]);
    assert_eq!(db["items"][0]["name"], "host-3.example.com");

    let array = file(
        &installation,
        "array.json",
        "[\n {\"name\": \"x1\"},\n {\"name\": \"x2\", \"colour\": 1}\n]\n",
    );
    let told = refused(&installation, &["machine", "import", &array]);
    assert!(told.starts_with("line 3: unknown field `colour`"), "{told}");
    let broken = file(&installation, "broken.json", "[\n {\"name\": \"x1\"},\n");
    let told = refused(&installation, &["machine", "import", &broken]);
    assert!(
        told.starts_with(&format!(
            "countersign: {broken}: line 3: cannot be read: EOF"
        )),
        "{told}"
    );
    assert_eq!(count(), 1800);
    let empty = file(&installation, "empty.csv", "name\n");
    assert_eq!(
        well(&installation, &["machine", "import", &empty]),
        "No machines: the file has no rows.\n"
    );
    let missing = refused(
        &installation,
        &["machine", "import", "/nonexistent/machines.csv"],
    );
    assert!(
        missing.starts_with("countersign: cannot read /nonexistent/machines.csv"),
        "{missing}"
    );
}

#[test]
fn a_window_is_opened_listed_shown_and_closed() {
    let installation = Installation::new();
    let _server = installation.serve(&[]);
    assert_eq!(
        well(&installation, &["window", "list"]),
        "No build windows.\n"
    );
    let opened = well(
        &installation,
        &["window", "open", "Web01.example.com", "--for", "1h"],
    );
    assert!(
        opened.starts_with("web01.example.com may enrol from 20"),
        "{opened}"
    );
    assert!(opened.ends_with(", with a token\n"), "{opened}");
    let opened = well(
        &installation,
        &[
            "window",
            "open",
            "db01",
            "--from",
            "2099-01-01T00:00:00Z",
            "--until",
            "2099-01-02T00:00:00Z",
            "--max-issuances",
            "3",
            "--without-token",
        ],
    );
    assert_eq!(
        opened,
        "db01 may enrol from 2099-01-01T00:00:00Z until 2099-01-02T00:00:00Z, without a token: whoever asks for the name first gets the certificate\n"
    );
    let listed = well(&installation, &["window", "list"]);
    let rows: Vec<&str> = listed.lines().collect();
    assert!(
        rows[0].starts_with("NAME               STATE    OPENS"),
        "{listed}"
    );
    assert_eq!(
        rows[1],
        "db01               waiting  2099-01-01T00:00:00Z  2099-01-02T00:00:00Z  0 of 3        not required"
    );
    assert!(
        rows[2].starts_with("web01.example.com  open     20"),
        "{listed}"
    );
    let shown = installation.json(&["window", "show", "web01.example.com", "-o", "json"]);
    assert_eq!(
        (&shown["state"], &shown["require_token"]),
        (&"open".into(), &true.into())
    );
    let facts = well(&installation, &["window", "show", "db01"]);
    assert!(
        facts.contains("certificates:  0 of 3\ntoken:         not required\n"),
        "{facts}"
    );
    let long = refused(&installation, &["window", "open", "db01", "--for", "31d"]);
    assert_eq!(long, "countersign: a window is open for at most 30 days\n");
    let closed = well(
        &installation,
        &["window", "close", "db01", "web01.example.com"],
    );
    assert_eq!(closed, "db01 closed\nweb01.example.com closed\n");
    let gone = refused(&installation, &["window", "close", "db01"]);
    assert_eq!(gone, "countersign: db01 has no build window\n");
}

#[test]
fn opening_a_window_says_whether_a_rule_would_honour_it() {
    let installation = Installation::new();
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("builds.yaml");
    let rule = |kind: &str| {
        format!(
            "apiVersion: countersign.dev/v1alpha1\nkind: ApprovalPolicy\nmetadata: {{name: builds}}\nspec:\n  \
             signers: [countersign.dev/puppet-agent]\n  rules: [{{name: build, {kind}}}]\n"
        )
    };
    let config = folder.path().join("countersign.yaml");
    let text = format!("policies: [{}]\n", policy.display());
    fs::write(&config, text).unwrap();
    let arguments = ["--config", config.to_str().unwrap()];
    let open = ["window", "open", "web01.example.com"];
    // A rule that denies by windows honours none.
    for kind in ["approve: {always: {}}", "deny: {window: {}}"] {
        fs::write(&policy, rule(kind)).unwrap();
        let mut server = installation.serve(&arguments);
        let opened = installation.run(&open);
        assert!(opened.success(), "{opened}");
        let warning = "warning: no rule of the policy in force looks at build windows";
        assert!(opened.stderr.contains(warning), "{opened}");
        server.stop();
    }
    fs::write(&policy, rule("approve: {window: {}}")).unwrap();
    let _server = installation.serve(&arguments);
    let opened = installation.run(&open);
    assert!(opened.success(), "{opened}");
    assert_eq!(opened.stderr, "");
    let honoured = "\nhonoured by builds/build\n";
    assert!(opened.stdout.ends_with(honoured), "{opened}");
    let shown = installation.json(&["window", "show", "web01.example.com", "-o", "json"]);
    assert_eq!(shown["honoured_by"][0], "builds/build");
}

#[test]
fn without_a_server_the_commands_say_how_one_is_named() {
    let installation = Installation::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let rows = elsewhere.path().join("machines.csv");
    fs::write(&rows, "name\na\n").unwrap();
    let rows = rows.to_str().unwrap();
    for arguments in [
        &["machine", "list"][..],
        &["machine", "import", rows],
        &["window", "open", "a"],
    ] {
        let told = refused(&installation, arguments);
        assert!(told.contains("no server was ever started on"), "{told}");
    }
}
