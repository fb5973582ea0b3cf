//! The invariants of docs/architecture.md that need the whole program.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use countersign_authority::store::{LedgerReads as _, RequestReads as _};
use countersign_authority::{IssuerId, RequestState};
use countersign_policy::{Deciding, Effect};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::run_with_deadline;
use countersign_testkit::keys;
use countersign_testkit::server_process::ServerProcess;

use crate::site::{COUNTERSIGN, JSON, REQUESTS, Site, TEXT, approved, kubernetes_request};

/// Every door, every signer, by rule and by hand, and what the authority makes for itself.
#[test]
fn no_certificate_without_a_decision() {
    let site = Site::start(&["--autosign", "true"]);
    put(&site, "by-rule");
    let site = site.kill_and_restart(&["--autosign", "false"]);
    put(&site, "by-hand");
    let done = site.put_state("by-hand", "signed");
    assert_eq!(done.status, 204, "{}", done.text());
    let kubernetes = site.kubernetes_admin();
    let object = kubernetes_request("jane").to_string();
    let created = kubernetes
        .call("POST", REQUESTS, &[JSON], object.as_bytes())
        .unwrap();
    let object = approved(serde_json::from_slice(&created.body).unwrap()).to_string();
    let done = kubernetes
        .call(
            "PUT",
            &format!("{REQUESTS}/jane/approval"),
            &[JSON],
            object.as_bytes(),
        )
        .unwrap();
    assert_eq!(done.status, 200, "{}", done.text());

    let folder = site.into_folder();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let deciders: BTreeMap<String, String> = runtime.block_on(async {
        let store =
            countersign_store::SqliteStore::open(&folder.path().join("data/countersign.db"))
                .unwrap();
        let mut deciders = BTreeMap::new();
        for issuer in ["puppet", "kubernetes"] {
            let issuer = IssuerId::parse(issuer).unwrap();
            for entry in store
                .newest_certificates(&issuer, None, 1000)
                .await
                .unwrap()
            {
                assert_eq!(entry.explanation.effect, Effect::Approve, "{}", entry.name);
                let record = store.request(entry.request).await.unwrap().unwrap();
                assert_eq!(record.state, RequestState::Issued, "{}", entry.name);
                assert_eq!(record.explanation, entry.explanation, "{}", entry.name);
                let decider = match entry.explanation.by.unwrap() {
                    Deciding::Rule { name, .. } => format!("rule {name}"),
                    Deciding::Person { actor, .. } => actor.to_string(),
                    Deciding::Profile => "profile".to_owned(),
                };
                deciders.insert(format!("{} {}", entry.signer, entry.name), decider);
            }
        }
        deciders
    });
    let by = |entry: &str| deciders.get(entry).map(String::as_str).unwrap_or_default();
    assert_eq!(
        by("countersign.dev/puppet-agent by-rule"),
        "rule autosign",
        "{deciders:?}"
    );
    assert!(
        by("countersign.dev/puppet-agent by-hand").contains("from 127.0.0.1"),
        "{deciders:?}"
    );
    assert!(
        by("kubernetes.io/kube-apiserver-client jane").contains("from 127.0.0.1"),
        "{deciders:?}"
    );
    for own in [
        "puppet-admin",
        "puppet-server",
        "kubernetes-admin",
        "kubernetes-server",
    ] {
        let mut entries = deciders
            .iter()
            .filter(|(key, _)| key.starts_with(&format!("countersign.dev/{own} ")));
        assert_eq!(
            entries.next().map(|(_, by)| by.as_str()),
            Some("the authority itself"),
            "{own}: {deciders:?}"
        );
    }
}

/// A password in a request and the authority's keys are in no log, listing or answer, at any log level.
#[test]
fn secrets_stay_secret() {
    const PASSWORD: &str = "correct-horse-battery-staple";
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut command = Command::new(COUNTERSIGN);
    command
        .arg("serve")
        .arg("--data")
        .arg(&data)
        .env("RUST_LOG", "trace");
    command.args([
        "--listen",
        "127.0.0.1:0",
        "--kubernetes-listen",
        "127.0.0.1:0",
        "--hostname",
        "localhost",
    ]);
    let site = Site::around(data, ServerProcess::start_command(command).unwrap());

    let pem = CsrBuilder::new("web01")
        .challenge_password(PASSWORD)
        .sign_pem(keys::p256_a());
    let path = "/puppet-ca/v1/certificate_request/web01";
    assert_eq!(
        site.anonymous()
            .call("PUT", path, &[TEXT], pem.as_bytes())
            .unwrap()
            .status,
        200
    );

    let mut seen = vec![(
        "anonymous",
        site.anonymous().call("GET", path, &[], b"").unwrap().text(),
    )];
    let admin = site.admin();
    for path in [
        "/puppet-ca/v1/certificate_status/web01",
        "/puppet-ca/v1/certificate_statuses/all",
        "/enrol/v1/requests",
    ] {
        let answer = admin.call("GET", path, &[], b"").unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert!(answer.text().contains("web01"), "{path}: {}", answer.text());
        seen.push((path, answer.text()));
    }
    for arguments in [
        ["csr", "list", "-o", "json"],
        ["csr", "explain", "web01", "-ojson"],
        ["ca", "list", "--format", "json"],
    ] {
        let mut command = Command::new(COUNTERSIGN);
        command.args(arguments).arg("--data").arg(site.data());
        let finished = run_with_deadline(command, Duration::from_secs(60)).unwrap();
        assert!(
            finished.success() && finished.stdout.contains("web01"),
            "{finished}"
        );
        seen.push(("command", finished.stdout));
    }
    seen.push(("log", site.server.log()));
    assert!(
        site.server.log().contains("stored"),
        "the log tells of the request: {}",
        site.server.log()
    );

    let body = |pem: &str| pem.lines().nth(1).unwrap().to_owned();
    let encoded_request = body(&pem);
    let mut secrets = vec![PASSWORD.to_owned()];
    for key in [
        "issuers/puppet/ca_key.pem",
        "issuers/kubernetes/ca_key.pem",
        "tls/puppet-key.pem",
        "admin/admin-key.pem",
    ] {
        secrets.push(body(&String::from_utf8(site.read(key)).unwrap()));
    }
    for (place, text) in &seen {
        for secret in &secrets {
            assert!(!text.contains(secret), "{place} shows a secret");
        }
    }
    // The encoded request holds the password too: strangers and listings do not get it.
    let (_, anonymous) = &seen[0];
    assert!(!anonymous.contains(&encoded_request), "{anonymous}");
    let (_, log) = seen.last().unwrap();
    assert!(
        !log.contains(&encoded_request),
        "the log holds the encoded request"
    );
}

fn put(site: &Site, name: &str) {
    let put = site.ask(name);
    assert_eq!(put.status, 200, "{}", put.text());
}
