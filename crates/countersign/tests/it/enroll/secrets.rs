//! Where a token must never be found.

use std::fs;

use countersign_pki::oid;
use countersign_testkit::deadline::run_with_deadline;

use super::{DEADLINE, Machine, Recording, bare, texts};
use crate::site::{Site, install};

const TOKEN: &str =
    "ott1.abcdefghijklmnop.secretsecretsecretsecretsecretsecretsecretsecretsec.abcdefg";

/// Its secret part: the rest may be shown.
const SECRET: &str = "secretsecret";

#[test]
fn secrets_stay_secret_when_a_machine_enrols() {
    let authority = Recording::start("log: {level: trace}\n");
    let site = &authority.site;
    let folder = site.folder("secret");
    let hook = folder.join("hook.sh");
    let script = "#!/bin/sh\nenv\ncat /proc/$PPID/cmdline\nexit 1\n";
    install(&hook, script, 0o755);
    let hook = ["--hook", hook.to_str().unwrap()];

    let machine = Machine::of(site, "web01.example.com");
    let mut command = machine.command(&hook);
    command
        .env("COUNTERSIGN_TOKEN", TOKEN)
        .env("RUST_LOG", "trace");
    let finished = run_with_deadline(command, DEADLINE).unwrap();
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(
        finished.stdout.contains("COUNTERSIGN_CERT_FILE="),
        "{finished}"
    );
    assert!(finished.stderr.contains("DEBUG"), "{finished}");
    assert!(!finished.stdout.contains(SECRET) && !finished.stderr.contains(SECRET));
    for file in fs::read_dir(&machine.folder).unwrap() {
        let content = fs::read(file.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&content).contains(SECRET));
    }
    // It did arrive, where it belongs.
    let arrived = texts(&authority.request(), &oid::CHALLENGE_PASSWORD);
    assert_eq!(arrived, [TOKEN]);
}

#[test]
fn a_token_as_bearer_is_found_in_no_log_at_trace() {
    let site = Site::start(&[]);
    let ca = site.data().join("issuers/kubernetes/ca_crt.pem");
    let url = format!("https://localhost:{}", site.kubernetes().port());
    let more = [
        "--door",
        "kubernetes",
        "--signer",
        "example.com/vpn",
        "--ca-file",
    ];
    let arguments = [&more[..], &[ca.to_str().unwrap()]].concat();
    let machine = Machine::at(
        &url,
        &site.folder("bearer"),
        "web01.example.com",
        &arguments,
    );
    let mut command = machine.command(&["--no-wait"]);
    command
        .env("COUNTERSIGN_TOKEN", TOKEN)
        .env("RUST_LOG", "trace");
    let finished = run_with_deadline(command, DEADLINE).unwrap();
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(
        finished.stderr.contains("does not know who asks"),
        "{finished}"
    );
    assert!(finished.stderr.contains("DEBUG"), "{finished}");
    assert!(!finished.stderr.contains(SECRET), "{finished}");
}

#[test]
fn a_token_among_the_arguments_is_refused_and_not_repeated() {
    let attribute = format!("1.3.6.1.4.1.34380.1.2.1={TOKEN}");
    for arguments in [
        &["enroll", "--token", TOKEN][..],
        &["enroll", &format!("--token={TOKEN}")],
        &["enroll", TOKEN],
        &["enroll", "web01", "--attribute", &attribute],
        &["enroll", "--token-file", TOKEN],
        &["enroll", "status", TOKEN],
        &["enroll", "--token", "any text"],
    ] {
        let finished = run_with_deadline(bare(arguments), DEADLINE).unwrap();
        assert_eq!(finished.code, Some(2), "{finished}");
        assert!(finished.stderr.contains("--token-file FILE"), "{finished}");
        let said = format!("{}{}", finished.stdout, finished.stderr);
        assert!(
            !said.contains(SECRET) && !said.contains("any text"),
            "{said}"
        );
    }
}

#[test]
fn a_bad_token_file_is_refused_without_its_content() {
    let site = Site::start(&["--autosign", "true"]);
    let machine = Machine::of(&site, "web01.example.com");
    let file = site.folder("bad").join("token");
    for content in [
        format!("{TOKEN} {TOKEN}"),
        format!("{TOKEN}\n\n"),
        String::new(),
    ] {
        install(&file, &content, 0o600);
        let said = machine.expect(
            &["--token-file", file.to_str().unwrap()],
            1,
            file.to_str().unwrap(),
        );
        assert!(!said.stderr.contains(SECRET), "{said}");
    }
    assert!(!machine.key().exists());
}
