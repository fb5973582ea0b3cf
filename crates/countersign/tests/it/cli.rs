//! What the command line accepts, refuses and says.

use std::fs;

use crate::installation::{Installation, run};

#[test]
fn usage_errors_end_with_2_and_name_the_input() {
    let cases: [(&[&str], &str); 14] = [
        (&[], "Usage"),
        (&["sevre"], "serve"),
        (&["serve", "--port", "1"], "--port"),
        (&["serve", "--listen", "nowhere"], "nowhere"),
        (&["serve", "--kubernetes-listen", "on"], "ADDRESS:PORT"),
        (&["serve", "--autosign", "autosign.conf"], "absolute path"),
        (&["serve", "--autosign", "maybe"], "maybe"),
        (
            &["serve", "--store", "postgres://db/countersign"],
            "names no user",
        ),
        (&["serve", "--metrics-listen", "nowhere"], "ADDRESS:PORT"),
        (&["csr", "approve"], "<NAME>"),
        (&["csr", "list", "-o", "xml"], "xml"),
        (&["csr", "list", "--door", "pupet"], "puppet"),
        (&["csr", "list", "--state", "pending,x"], "pending"),
        (
            &["csr", "list", "--server", "https://127.0.0.1:1"],
            "--cert",
        ),
    ];
    for (arguments, part) in cases {
        let finished = run(arguments);
        assert_eq!(finished.code, Some(2), "{arguments:?} {finished}");
        assert!(finished.stderr.contains(part), "{arguments:?} {finished}");
        assert_eq!(finished.stdout, "", "{arguments:?}");
    }
}

#[test]
fn usage_errors_of_ca_end_with_1_as_those_of_puppetserver_ca() {
    for arguments in [
        &["ca", "sign"][..],
        &["ca", "sign", "--all", "--certname", "a"],
        &["ca", "revoke"],
        &["ca", "x"],
    ] {
        let finished = run(arguments);
        assert_eq!(finished.code, Some(1), "{arguments:?} {finished}");
    }
}

#[test]
fn help_is_an_example_on_standard_output() {
    for arguments in [
        &["--help"][..],
        &["serve", "--help"],
        &["csr", "approve", "--help"],
        &["ca", "list", "--help"],
    ] {
        let finished = run(arguments);
        assert!(
            finished.success() && finished.stdout.contains("Example:\n  countersign "),
            "{finished}"
        );
    }
}

#[test]
fn the_effective_configuration_is_shown_and_nothing_created() {
    let installation = Installation::new();
    let data = installation.data();
    let file = installation.path("").parent().unwrap().join("c.yaml");
    fs::write(
        &file,
        "hostnames: [ca.example]\npuppet: {ca_ttl: 1y}\nlisten: 127.0.0.1:1\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let finished = run(&[
        "serve",
        "--config",
        file,
        "--data",
        &data,
        "--listen",
        "127.0.0.1:2",
        "--print-config",
    ]);
    assert!(finished.success(), "{finished}");
    for line in [
        &*format!("data: {data}"),
        "listen: 127.0.0.1:2",
        "- ca.example",
        "ca_ttl: 1y",
        "store: sqlite",
    ] {
        assert!(finished.stdout.contains(line), "{line} in {finished}");
    }
    assert!(!installation.path("").exists());
}

#[test]
fn a_mistyped_key_is_named_with_its_line_and_the_nearest_one() {
    let installation = Installation::new();
    let file = installation.path("").parent().unwrap().join("c.yaml");
    fs::write(&file, "puppet:\n  autosing: true\n").unwrap();
    let finished = run(&["serve", "--config", file.to_str().unwrap()]);
    assert_eq!(finished.code, Some(1));
    assert!(
        finished
            .stderr
            .contains(r#"line 2: unknown key "autosing"; did you mean "autosign"?"#),
        "{finished}"
    );
}

#[test]
fn without_a_server_commands_say_what_to_do() {
    let installation = Installation::new();
    for arguments in [&["csr", "list"][..], &["ca", "list"]] {
        let finished = installation.run(arguments);
        assert_eq!(finished.code, Some(1), "{finished}");
        assert!(
            finished.stderr.contains("--data") && finished.stderr.contains(&installation.data()),
            "{finished}"
        );
        assert!(
            finished.stderr.contains("or start it: countersign serve"),
            "{finished}"
        );
    }
    installation.serve(&[]).stop();
    let finished = installation.run(&["csr", "list"]);
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(
        finished
            .stderr
            .contains("start it with `countersign serve`"),
        "{finished}"
    );
    assert_eq!(finished.stderr.lines().count(), 1, "{finished}");
}
