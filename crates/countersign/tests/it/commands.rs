//! The commands against a running server.

use countersign_testkit::keys;

use crate::installation::Installation;

#[test]
fn a_request_is_listed_explained_approved_and_shown() {
    let installation = Installation::new();
    let server = installation.serve(&[]);
    for (arguments, sentence) in [
        (
            &["csr", "list"][..],
            "No requests wait; --all also shows those that are over.\n",
        ),
        (
            &["csr", "list", "--door", "puppet", "--all"],
            "No requests.\n",
        ),
        (&["csr", "list", "--state", "denied"], "No requests.\n"),
    ] {
        let listed = installation.run(arguments);
        assert_eq!(
            (listed.code, listed.stdout.as_str()),
            (Some(0), sentence),
            "{arguments:?}"
        );
    }
    assert_eq!(
        installation.submit(&server, "web01.example", keys::p256_a()),
        200
    );

    let listed = installation.run(&["csr", "list"]);
    let rows: Vec<&str> = listed.stdout.lines().collect();
    assert!(
        rows[0].starts_with("DOOR    NAME           STATE    SIGNER"),
        "{listed}"
    );
    assert!(
        rows[1].starts_with("puppet  web01.example  pending  countersign.dev/puppet-agent"),
        "{listed}"
    );
    assert!(rows[1].contains("anonymous from 127.0.0.1"), "{listed}");
    let json = installation.json(&[
        "csr", "list", "-o", "json", "--state", "pending", "--door", "puppet",
    ]);
    assert_eq!(json["items"][0]["name"], "web01.example");
    assert_eq!(
        installation.json(&["csr", "list", "-o", "json", "--state", "denied"])["items"],
        serde_json::json!([])
    );
    let yaml = installation.run(&["csr", "list", "-o", "yaml"]).stdout;
    assert!(
        yaml.starts_with("items:\n") && yaml.contains("name: web01.example"),
        "{yaml}"
    );

    let waiting = installation
        .run(&["csr", "explain", "web01.example"])
        .stdout;
    assert!(waiting.contains("decided by:   nobody yet"), "{waiting}");
    assert!(waiting.contains("\njudged at:    "), "{waiting}");
    let approved = installation.run(&[
        "csr",
        "approve",
        "web01.example",
        "--reason",
        "ticket 1",
        "--lifetime",
        "1d",
    ]);
    assert!(
        approved
            .stdout
            .starts_with("puppet/web01.example issued: certificate "),
        "{approved}"
    );
    let explained = installation
        .run(&["csr", "explain", "web01.example"])
        .stdout;
    for line in [
        "state:        issued",
        "decided by:   countersign-admin from 127.0.0.1",
        "reason:       ticket 1",
    ] {
        assert!(
            explained.lines().any(|l| l == line),
            "{line} in\n{explained}"
        );
    }
    let shown = installation.json(&["csr", "show", "web01.example", "-o", "json"]);
    assert!(
        shown["csr"]
            .as_str()
            .unwrap()
            .starts_with("-----BEGIN CERTIFICATE REQUEST-----")
    );
    let (from, until) = (
        &shown["certificate"]["not_before"],
        &shown["certificate"]["not_after"],
    );
    assert_eq!(
        days_between(from.as_str().unwrap(), until.as_str().unwrap()),
        2,
        "one day, backdated by one"
    );

    let issued = installation.run(&["csr", "list", "--state", "issued", "--door", "puppet"]);
    assert!(issued.stdout.contains("web01.example"), "{issued}");
    for (verb, sentence) in [
        ("approve", "request web01.example is issued already"),
        ("deny", "request web01.example is issued already"),
        ("delete", "`countersign ca clean --certname web01.example`"),
    ] {
        let again = installation.run(&["csr", verb, "web01.example"]);
        assert_eq!(again.code, Some(1), "{again}");
        assert!(again.stderr.contains(sentence), "{again}");
    }
}

#[test]
fn a_denied_request_can_be_deleted() {
    let installation = Installation::new();
    let server = installation.serve(&[]);
    assert_eq!(
        installation.submit(&server, "web01.example", keys::p256_a()),
        200
    );
    let denied = installation.run(&[
        "csr",
        "deny",
        "web01.example",
        "--reason",
        "unknown machine",
    ]);
    assert!(
        denied.success() && denied.stdout.contains("denied"),
        "{denied}"
    );
    let explained = installation
        .run(&["csr", "explain", "web01.example"])
        .stdout;
    assert!(
        explained.contains("verdict:      denied") && explained.contains("unknown machine"),
        "{explained}"
    );
    let too_late = installation.run(&["csr", "approve", "web01.example"]);
    assert!(
        (too_late.stderr).contains("`countersign csr delete web01.example` lets it ask again"),
        "{too_late}"
    );
    assert!(
        installation
            .run(&["csr", "delete", "web01.example"])
            .success()
    );
    assert_eq!(
        installation.submit(&server, "web01.example", keys::p256_a()),
        200
    );
}

#[test]
fn a_name_at_several_doors_needs_its_door() {
    let installation = Installation::new();
    let server = installation.serve(&[]);
    assert_eq!(installation.submit(&server, "both", keys::p256_a()), 200);
    assert_eq!(
        installation.submit_to_kubernetes(&server, "both", keys::p256_b()),
        201
    );
    let unclear = installation.run(&["csr", "approve", "both"]);
    assert_eq!(unclear.code, Some(1), "{unclear}");
    assert!(
        unclear
            .stderr
            .contains("add --door kubernetes or --door puppet"),
        "{unclear}"
    );
    let approved = installation.run(&["csr", "approve", "both", "--door", "kubernetes"]);
    assert!(
        approved.stdout.contains("of issuer kubernetes"),
        "{approved}"
    );
    assert_eq!(
        installation.json(&["csr", "show", "both", "--door", "puppet", "-o", "json"])["state"],
        "pending"
    );
    // The list without options is of what is pending, at both doors alike.
    let listed = installation.json(&["csr", "list", "-o", "json"]);
    let listed = listed["items"].as_array().unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["door"], "puppet", "{listed:?}");
}

#[test]
fn what_is_not_there_is_named() {
    let installation = Installation::new();
    let _server = installation.serve(&[]);
    for arguments in [
        &["csr", "show", "no\u{1b}one"][..],
        &["csr", "approve", "no\u{1b}one"],
        &["csr", "delete", "no\u{1b}one", "--door", "puppet"],
    ] {
        let finished = installation.run(arguments);
        assert_eq!(finished.code, Some(1), "{finished}");
        assert!(
            finished.stderr.starts_with("countersign: ") && !finished.stderr.contains('\u{1b}'),
            "{finished}"
        );
        assert_eq!(finished.stderr.lines().count(), 1, "{finished}");
    }
}

#[test]
fn ca_signs_lists_and_revokes_with_the_codes_of_puppetserver_ca() {
    let installation = Installation::new();
    let server = installation.serve(&[]);
    let code = |arguments: &[&str], expected: i32| {
        let finished = installation.run(arguments);
        assert_eq!(finished.code, Some(expected), "{arguments:?} {finished}");
        finished
    };
    assert_eq!(code(&["ca", "list"], 0).stdout, "No certificates to list\n");
    assert_eq!(
        code(&["ca", "list", "--format", "json"], 0).stdout,
        "{\"requested\":[]}\n"
    );
    assert_eq!(code(&["ca", "sign", "--all"], 24).stdout, "");
    for (name, key) in [
        ("a.example", keys::p256_a()),
        ("b.example", keys::p256_b()),
        ("c.example", keys::p384()),
    ] {
        assert_eq!(installation.submit(&server, name, key), 200);
    }
    let listed = code(&["ca", "list"], 0).stdout;
    assert!(
        listed.starts_with("Requested Certificates:\n    a.example       (SHA256)  "),
        "{listed}"
    );
    assert_eq!(
        code(&["ca", "revoke", "--certname", "a.example"], 24)
            .stderr
            .lines()
            .count(),
        2
    );
    assert!(
        code(&["ca", "sign", "--certname", "a.example,b.example"], 0)
            .stdout
            .contains("a.example")
    );
    let signed = code(&["ca", "sign", "--certname", "c.example", "--ttl", "1h"], 0).stdout;
    assert_eq!(
        signed,
        "Successfully signed certificate request for c.example\n"
    );
    code(&["ca", "sign", "--certname", "gone.example"], 1);

    let crl = installation.read("issuers/puppet/ca_crl.pem");
    let revoked = code(&["ca", "revoke", "--certname", "a.example"], 0).stdout;
    assert_eq!(revoked, "Certificate for a.example has been revoked\n");
    code(&["ca", "revoke", "--certname", "a.example,gone.example"], 1);
    let some = code(
        &[
            "ca",
            "list",
            "--certname",
            "a.example,b.example,gone.example",
        ],
        1,
    )
    .stdout;
    let headings: Vec<&str> = some.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(
        headings,
        [
            "Signed Certificates:",
            "Revoked Certificates:",
            "Missing Certificates:"
        ],
        "{some}"
    );
    let json = installation.json(&["ca", "list", "--all", "--format", "json"]);
    assert_eq!(json["requested"], serde_json::json!([]));
    assert_eq!(json["revoked"][0]["name"], "a.example");
    wait_until("the CRL file is new", || {
        installation.read("issuers/puppet/ca_crl.pem") != crl
    });
}

#[test]
fn autosigning_signs_all_but_the_authoritys_own_names_and_warns() {
    let installation = Installation::new();
    let server = installation.serve(&[
        "--autosign",
        "true",
        "--hostname",
        "a.example",
        "--hostname",
        "b.example",
    ]);
    assert!(server.log().contains("autosign is true"), "{server}");
    assert_eq!(
        installation.submit(&server, "web01.example", keys::p256_a()),
        200
    );
    assert_eq!(
        installation.submit(&server, "b.example", keys::p256_b()),
        200
    );
    let state = |name: &str| {
        installation.json(&["csr", "show", name, "--door", "puppet", "-o", "json"])["state"].clone()
    };
    assert_eq!(
        (state("web01.example"), state("b.example")),
        ("issued".into(), "pending".into())
    );
    assert_eq!(installation.submit(&server, "a.example", keys::p384()), 400);
    assert_eq!(
        installation.submit(&server, "countersign-admin", keys::p384()),
        400
    );
    let explained = installation.run(&["csr", "explain", "b.example"]).stdout;
    assert!(
        explained.contains(
            "rules asked:  autosign (always) mismatch: b.example is a name of the authority"
        ),
        "{explained}"
    );
}

#[test]
fn another_server_is_reached_with_explicit_credentials() {
    let installation = Installation::new();
    let server = installation.serve(&[]);
    let path = |below: &str| installation.path(below).to_str().unwrap().to_owned();
    let list = |key: &str| {
        crate::installation::run(&[
            "csr",
            "list",
            "--server",
            &server.addresses.puppet,
            "--cert",
            &path("admin/admin.pem"),
            "--key",
            key,
            "--cacert",
            &path("admin/ca.pem"),
        ])
    };
    let finished = list(&path("admin/admin-key.pem"));
    assert!(
        finished.stdout.starts_with("No requests wait"),
        "{finished}"
    );
    let finished = list(&path("admin/kubernetes-key.pem"));
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(finished.stderr.contains("kubernetes-key.pem"), "{finished}");
}

fn days_between(from: &str, until: &str) -> i64 {
    let time = |text| countersign_pki::UnixTime::parse_rfc3339(text).unwrap();
    time(until).seconds_since(time(from)) / 86_400
}

/// Asks again until it holds, for half a minute.
pub(crate) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let (_never, pause) = std::sync::mpsc::sync_channel::<()>(0);
    let held = (0..300).any(|_| {
        holds() || {
            let _elapsed = pause.recv_timeout(std::time::Duration::from_millis(100));
            false
        }
    });
    assert!(held, "{what}");
}
