//! The metrics listener of the real program: what it counts after known traffic, and whether the manual says so.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use countersign_testkit::{http, https};

use crate::commands::wait_until;
use crate::exposition::Exposition;
use crate::site::{JSON, REQUESTS, Site, approved, kubernetes_request};

const METRICS: [&str; 4] = ["--metrics-listen", "127.0.0.1:0", "--autosign", "true"];

fn get(site: &Site, path: &str) -> https::Answer {
    let port = site.server.addresses.metrics_port().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    http::call(address, "GET", path).unwrap()
}

fn scrape(site: &Site) -> Exposition {
    let answer = get(site, "/metrics");
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    Exposition::read(&answer.text())
}

/// A fresh authority, then known traffic: one enrolment, one duplicate, a certificate fetched and one not found, a
/// Kubernetes request approved and one left waiting, a revocation.
fn busy() -> Site {
    let site = Site::start(&METRICS);
    for status in [200, 400] {
        assert_eq!(site.ask("web01").status, status);
    }
    for (name, status) in [("web01", 200), ("nobody", 404)] {
        assert_eq!(site.certificate(name).status, status);
    }
    let admin = site.kubernetes_admin();
    for name in ["approved", "waiting"] {
        let body = kubernetes_request(name).to_string();
        let answer = admin
            .call("POST", REQUESTS, &[JSON], body.as_bytes())
            .unwrap();
        assert_eq!(answer.status, 201, "{}", answer.text());
        if name == "approved" {
            let object = approved(serde_json::from_slice(&answer.body).unwrap()).to_string();
            let path = format!("{REQUESTS}/{name}/approval");
            let answer = admin
                .call("PUT", &path, &[JSON], object.as_bytes())
                .unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
    site.revoke("web01");
    site
}

#[test]
fn every_request_decision_signature_and_commit_is_counted_once() {
    let site = busy();
    // An open connection, which has asked nothing.
    let _open = site
        .anonymous()
        .connect()
        .unwrap()
        .call("GET", "/", &[], b"");
    let mut open = site.anonymous().connect().unwrap();
    let answer = open.call("GET", "/status/v1/simple", &[], b"").unwrap();
    assert_eq!(answer.status, 200);
    // The sealer of the audit log commits about once a second, however much there is.
    let others = |shown: &Exposition, series: &str| {
        shown.value(series) - shown.value("countersign_audit_seals_total")
    };
    let durable = r#"countersign_store_commits_total{outcome="durable"}"#;
    // Eight roles and a binding are among them.
    wait_until("commits and seals are counted", || {
        (others(&scrape(&site), durable) - 28.0).abs() < f64::EPSILON
    });
    let shown = scrape(&site);

    let decisions = [
        (r#"door="kubernetes",outcome="issued",rule="person""#, 1.0),
        (r#"door="kubernetes",outcome="pending",rule="none""#, 2.0),
        // Both servers and both administrators.
        (r#"door="local",outcome="issued",rule="authority""#, 4.0),
        (r#"door="puppet",outcome="duplicate",rule="none""#, 1.0),
        (r#"door="puppet",outcome="issued",rule="autosign""#, 1.0),
    ];
    let decisions = decisions
        .map(|(labels, count)| (format!("countersign_decisions_total{{{labels}}}"), count));
    let found = shown.all("countersign_decisions_total");
    let found: Vec<_> = found.into_iter().map(|(s, n)| (s.to_owned(), n)).collect();
    assert_eq!(found, decisions);

    let requests = [
        ("kubernetes", "certificatesigningrequests", "2xx", 3.0),
        ("puppet", "certificate", "2xx", 1.0),
        ("puppet", "certificate", "4xx", 1.0),
        ("puppet", "certificate_request", "2xx", 1.0),
        ("puppet", "certificate_request", "4xx", 1.0),
        ("puppet", "certificate_status", "2xx", 1.0),
        ("puppet", "other", "4xx", 1.0),
        ("puppet", "status", "2xx", 1.0),
    ];
    let requests = requests.map(|(door, route, status, count)| {
        let labels = format!(r#"door="{door}",route="{route}",status="{status}""#);
        (
            format!("countersign_http_requests_total{{{labels}}}"),
            count,
        )
    });
    let found = shown.all("countersign_http_requests_total");
    let found: Vec<_> = found.into_iter().map(|(s, n)| (s.to_owned(), n)).collect();
    assert_eq!(found, requests);

    for (series, value) in [
        (
            r#"countersign_http_request_duration_seconds_count{door="puppet"}"#,
            7.0,
        ),
        (
            r#"countersign_http_request_duration_seconds_count{door="kubernetes"}"#,
            3.0,
        ),
        (
            r#"countersign_http_request_duration_seconds_count{door="enrol"}"#,
            0.0,
        ),
        // Two certificates of its own, two CRLs, one agent; two certificates, one CRL, one client.
        (
            r#"countersign_signatures_total{issuer="puppet",outcome="made"}"#,
            5.0,
        ),
        (
            r#"countersign_signatures_total{issuer="kubernetes",outcome="made"}"#,
            4.0,
        ),
        (
            r#"countersign_signatures_total{issuer="puppet",outcome="failed"}"#,
            0.0,
        ),
        (
            r#"countersign_signature_duration_seconds_count{issuer="puppet"}"#,
            5.0,
        ),
        (
            r#"countersign_store_commits_total{outcome="conflict"}"#,
            1.0,
        ),
        (r#"countersign_store_commits_total{outcome="failed"}"#, 0.0),
        ("countersign_store_commits_waiting", 0.0),
        (r#"countersign_requests_pending{door="kubernetes"}"#, 1.0),
        (r#"countersign_requests_pending{door="puppet"}"#, 0.0),
        (r#"countersign_certificates_expiring{issuer="puppet"}"#, 0.0),
        (r#"countersign_crl_number{issuer="puppet"}"#, 1.0),
        (r#"countersign_crl_entries{issuer="puppet"}"#, 1.0),
        (r#"countersign_crl_number{issuer="kubernetes"}"#, 0.0),
        (r#"countersign_crl_entries{issuer="kubernetes"}"#, 0.0),
        (
            r#"countersign_policy_executable_runs_total{outcome="approved"}"#,
            0.0,
        ),
        (
            r#"countersign_config_reloads_total{outcome="applied"}"#,
            0.0,
        ),
        (r#"countersign_policy_loads_total{outcome="applied"}"#, 1.0),
        (r#"countersign_policy_loads_total{outcome="refused"}"#, 0.0),
        ("countersign_policy_generation", 1.0),
        ("countersign_policy_refused", 0.0),
        (r#"countersign_build_info{version="0.1.0"}"#, 1.0),
    ] {
        let found = shown.value(series);
        assert!(
            (found - value).abs() < f64::EPSILON,
            "{series}: {found}, not {value}"
        );
    }
    // The policy, six certificates at two commits each, two requests that wait at first, three CRLs, one revocation, eight
    // roles and a binding; and a conflict.
    for (series, value) in [
        (durable, 28.0),
        ("countersign_store_commit_duration_seconds_count", 29.0),
        ("countersign_store_group_changes_sum", 29.0),
    ] {
        let found = others(&shown, series);
        assert!(
            (found - value).abs() < f64::EPSILON,
            "{series}: {found}, not {value}"
        );
    }
    assert!(shown.value("countersign_audit_sealed_entries_total") > 0.0);
    assert!(shown.value(r#"countersign_connections_open{listener="puppet"}"#) >= 1.0);
    assert!(shown.value("process_resident_memory_bytes") > 1e6);
    assert!(shown.value("process_open_fds") > 10.0);
    let (this, next) = (
        shown.value(r#"countersign_crl_this_update_timestamp_seconds{issuer="puppet"}"#),
        shown.value(r#"countersign_crl_next_update_timestamp_seconds{issuer="puppet"}"#),
    );
    let started = shown.value("process_start_time_seconds");
    assert!(
        started - 5.0 < this && this < next,
        "{started} {this} {next}"
    );
    assert!(shown.value(r#"countersign_crl_age_seconds{issuer="puppet"}"#) < 600.0);
}

#[test]
fn policy_executables_are_counted_by_what_they_say() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("policy");
    std::fs::write(&program, "#!/bin/sh\n[ \"$1\" = yes ]\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let site = Site::start(&[
        "--metrics-listen",
        "127.0.0.1:0",
        "--autosign",
        program.to_str().unwrap(),
    ]);
    for name in ["yes", "no", "nor"] {
        assert_eq!(site.ask(name).status, 200);
    }
    let shown = scrape(&site);
    let runs = |word: &str| {
        let series = format!("countersign_policy_executable_runs_total{{outcome=\"{word}\"}}");
        shown.value(&series)
    };
    assert_eq!(
        (runs("approved"), runs("declined"), runs("busy")),
        (1.0, 2.0, 0.0)
    );
    let timed = shown.value("countersign_policy_executable_duration_seconds_count");
    assert_eq!(timed, 3.0);
}

#[test]
fn health_is_told_and_nothing_else_is_served() {
    let site = Site::start(&METRICS);
    assert!(
        site.server
            .addresses
            .metrics
            .starts_with("http://127.0.0.1:")
    );
    let told: serde_json::Value = serde_json::from_slice(&site.read("server.json")).unwrap();
    assert_eq!(told["metrics"], site.server.addresses.metrics);
    for (path, status, text) in [
        ("/livez", 200, "ok\n"),
        ("/readyz", 200, "ok\n"),
        ("/", 404, ""),
        ("/puppet-ca/v1/certificate/ca", 404, ""),
    ] {
        let answer = get(&site, path);
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (status, text),
            "{path}"
        );
    }
    let port = site.server.addresses.metrics_port().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(http::call(address, "POST", "/metrics").unwrap().status, 405);

    // Off unless it is asked for; elsewhere than on the loopback it is warned about.
    assert_eq!(Site::start(&[]).server.addresses.metrics, "");
    let open = Site::start(&["--metrics-listen", "0.0.0.0:0"]);
    assert!(open.server.log().contains("metrics are shown to everybody"));
    assert_eq!(get(&open, "/readyz").status, 200);
}

/// The page names every family with its type and labels, and no other.
#[test]
fn the_manual_names_every_metric() {
    let site = busy();
    let mut documented = BTreeMap::new();
    for entry in PAGE.split("\n### `").skip(1) {
        let (name, rest) = entry.split_once('`').unwrap();
        let line = |key: &str| {
            let found = rest.lines().find_map(|line| line.strip_prefix(key));
            found.unwrap_or_else(|| panic!("{name} has no line {key}"))
        };
        let kind = line("Type: ").to_owned();
        let labels = line("Labels: ").split('`').skip(1).step_by(2);
        let labels: BTreeSet<String> = labels.map(str::to_owned).collect();
        let twice = documented.insert(name.to_owned(), (kind, labels));
        assert_eq!(twice, None, "{name} stands there twice");
    }
    assert_eq!(documented, scrape(&site).families);
}

const PAGE: &str = include_str!("../../../../docs/metrics.md");
