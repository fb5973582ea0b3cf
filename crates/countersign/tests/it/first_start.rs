//! What a start creates, keeps and renews.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use countersign_testkit::deadline::run_with_deadline;
use countersign_testkit::keys;

use crate::installation::{Installation, binary, run};
use crate::site::read_certificate;

fn names(text: &str) -> Vec<String> {
    read_certificate(text)
        .alt_names()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn the_first_start_creates_everything_and_says_so() {
    let installation = Installation::new();
    let mut server = installation.serve(&["--hostname", "ca.example.com"]);
    for part in [
        &installation.data(),
        "admin/admin.pem",
        "countersign csr approve",
        "puppet ssl bootstrap",
        "kubectl",
    ] {
        assert!(
            server.greeting.contains(part),
            "{part} in {}",
            server.greeting
        );
    }
    let modes = [
        ("", 0o700),
        ("issuers/puppet/ca_key.pem", 0o600),
        ("issuers/kubernetes/ca_key.pem", 0o600),
        ("tls/puppet-key.pem", 0o600),
        ("tls/kubernetes-key.pem", 0o600),
        ("admin/admin-key.pem", 0o600),
        ("admin/kubeconfig", 0o600),
        ("countersign.db", 0o600),
        ("issuers/puppet/ca_crt.pem", 0o644),
        ("issuers/puppet/ca_crl.pem", 0o644),
        ("issuers/kubernetes/ca_crl.pem", 0o644),
        ("tls/puppet.pem", 0o644),
        ("tls/kubernetes.pem", 0o644),
        ("admin/admin.pem", 0o644),
        ("admin/ca.pem", 0o644),
    ];
    for (file, mode) in modes {
        let found =
            fs::metadata(installation.path(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(found.permissions().mode() & 0o777, mode, "{file}");
    }
    let root = read_certificate(installation.read("issuers/puppet/ca_crt.pem"));
    assert_eq!(root.subject().to_string(), "CN=Puppet CA: ca.example.com");
    let years = root.not_after().seconds_since(root.not_before()) / (365 * 86_400);
    assert_eq!(years, 15);
    assert_eq!(
        installation.read("admin/ca.pem"),
        installation.read("issuers/puppet/ca_crt.pem")
    );
    for (file, issuer) in [
        ("tls/puppet.pem", "puppet"),
        ("admin/admin.pem", "puppet"),
        ("tls/kubernetes.pem", "kubernetes"),
    ] {
        let issuer = read_certificate(installation.read(&format!("issuers/{issuer}/ca_crt.pem")));
        read_certificate(installation.read(file))
            .verify_signed_by(issuer.spki_der())
            .unwrap();
    }
    let told: serde_json::Value = serde_json::from_str(&installation.read("server.json")).unwrap();
    assert_eq!(told["puppet"], server.addresses.puppet);
    assert_eq!(told["kubernetes"], server.addresses.kubernetes);
    assert_eq!(server.stop().unwrap().code(), Some(0), "{server}");
}

#[test]
fn later_starts_are_quiet_and_change_nothing() {
    let installation = Installation::new();
    installation.serve(&["--hostname", "ca.example.com"]).stop();
    let files = [
        "tls/puppet.pem",
        "tls/kubernetes.pem",
        "admin/admin.pem",
        "admin/kubernetes.pem",
        "issuers/puppet/ca_crt.pem",
    ];
    let before = files.map(|file| installation.read(file));
    let again = installation.serve(&["--hostname", "ca.example.com"]);
    assert_eq!(again.greeting, "");
    assert_eq!(files.map(|file| installation.read(file)), before);
}

#[test]
fn every_own_certificate_is_in_the_ledger_with_its_decision() {
    let installation = Installation::new();
    let _server = installation.serve(&["--hostname", "ca.example.com"]);
    let requests = installation.json(&["csr", "list", "--all", "-o", "json"]);
    let items = requests["items"].as_array().unwrap();
    let mut signers: Vec<_> = items
        .iter()
        .map(|item| item["signer"].as_str().unwrap())
        .collect();
    signers.sort_unstable();
    assert_eq!(
        signers,
        [
            "countersign.dev/kubernetes-admin",
            "countersign.dev/kubernetes-server",
            "countersign.dev/puppet-admin",
            "countersign.dev/puppet-server"
        ]
    );
    for item in items {
        assert_eq!(item["state"], "issued");
        assert_eq!(item["explanation"]["effect"], "approve");
        assert_eq!(item["explanation"]["code"], "authority");
        assert_eq!(
            item["explanation"]["by"]["actor"]["identity"]["kind"],
            "authority"
        );
        assert!(item["certificate"]["serial"].is_string());
    }
}

#[test]
fn other_names_get_another_server_certificate() {
    let installation = Installation::new();
    installation.serve(&["--hostname", "a.example"]).stop();
    let (server, admin) = (
        installation.read("tls/puppet.pem"),
        installation.read("admin/admin.pem"),
    );
    assert_eq!(
        names(&server),
        ["IP:127.0.0.1", "IP:::1", "DNS:localhost", "DNS:a.example"]
    );
    installation
        .serve(&[
            "--hostname",
            "a.example",
            "--hostname",
            "b.example",
            "--hostname",
            "192.0.2.1",
        ])
        .stop();
    for file in ["tls/puppet.pem", "tls/kubernetes.pem"] {
        let names = names(&installation.read(file));
        for name in ["DNS:a.example", "DNS:b.example", "IP:192.0.2.1"] {
            assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
        }
    }
    assert_eq!(installation.read("admin/admin.pem"), admin);
}

#[test]
fn a_revoked_administrator_gets_new_credentials_at_the_next_start() {
    let installation = Installation::new();
    let mut server = installation.serve(&[]);
    let before = installation.read("admin/admin.pem");
    assert!(
        installation
            .run(&["ca", "revoke", "--force", "--certname", "countersign-admin"])
            .success()
    );
    let refused = installation.run(&["csr", "list"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(
        refused.stderr.contains("reload or restart the server"),
        "{refused}"
    );
    server.stop();
    let _server = installation.serve(&[]);
    assert_ne!(installation.read("admin/admin.pem"), before);
    assert!(installation.run(&["csr", "list"]).success());
}

#[test]
fn files_that_were_never_written_come_from_the_ledger() {
    let installation = Installation::new();
    installation.serve(&["--hostname", "a.example"]).stop();
    let files = [
        "tls/puppet.pem",
        "tls/kubernetes.pem",
        "admin/admin.pem",
        "admin/kubernetes.pem",
    ];
    let before = files.map(|file| installation.read(file));
    for file in files.iter().chain(&[
        "server.json",
        "admin/ca.pem",
        "admin/kubeconfig",
        "issuers/puppet/ca_crl.pem",
    ]) {
        fs::remove_file(installation.path(file)).unwrap();
    }
    let again = installation.serve(&["--hostname", "a.example"]);
    assert!(again.greeting.contains("Created"), "{}", again.greeting);
    assert_eq!(files.map(|file| installation.read(file)), before);
    assert!(installation.path("issuers/puppet/ca_crl.pem").exists());
}

/// Killed when it logs a step, again and again, until there is no step left before it greets.
#[test]
fn a_first_start_that_is_killed_is_continued() {
    let installation = Installation::new();
    let arguments = installation.serve_arguments(&["--hostname", "a.example"]);
    let mut kills = 0;
    loop {
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"exec "$@" 2>&1"#, "sh"])
            .arg(binary())
            .arg("serve")
            .args(&arguments);
        let mut child = command
            .env_remove("RUST_LOG")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = said.next().unwrap().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        if first.starts_with("Created") || first.starts_with("ready") {
            break;
        }
        assert!(first.contains("INFO"), "{first}");
        kills += 1;
    }
    assert!(kills > 0);
    let mut server = installation.serve(&["--hostname", "a.example"]);
    assert_eq!(
        installation.submit(&server, "web01.example", keys::p256_a()),
        200
    );
    assert!(
        installation
            .run(&["csr", "approve", "web01.example"])
            .success()
    );
    assert_eq!(server.stop().unwrap().code(), Some(0), "{server}");
}

#[test]
fn a_second_process_is_kept_out() {
    let installation = Installation::new();
    let _server = installation.serve(&["--metrics-listen", "127.0.0.1:0"]);
    let told: serde_json::Value = serde_json::from_str(&installation.read("server.json")).unwrap();
    let at = |door: &str| told[door].as_str().unwrap().split("//").nth(1).unwrap();
    let same = [
        "--listen",
        at("puppet"),
        "--kubernetes-listen",
        at("kubernetes"),
        "--metrics-listen",
        at("metrics"),
    ];
    // Also where it would listen on the same addresses: what it needs to know first is that there is a server.
    for more in [&[][..], &same] {
        let data = installation.data();
        let second = run(&[&["serve", "--data", &data], more].concat());
        assert_eq!(second.code, Some(1), "{second}");
        assert!(
            second.stderr.contains("in use by another process"),
            "{second}"
        );
    }
    let other = Installation::new();
    for flag in ["--listen", "--kubernetes-listen", "--metrics-listen"] {
        let mut arguments = vec!["serve"];
        arguments.extend(other.serve_arguments(&["--metrics-listen", "off"]));
        let at = arguments.iter().position(|word| *word == flag).unwrap();
        arguments[at + 1] = same[1];
        let refused = run(&arguments);
        assert_eq!(refused.code, Some(1), "{refused}");
        let advice = format!("choose another {flag}, or stop what listens there");
        assert!(refused.stderr.contains(&advice), "{refused}");
    }
}

#[test]
fn a_taken_port_is_told_before_anything_is_created() {
    let somebody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = &*somebody.local_addr().unwrap().to_string();
    let installation = Installation::new();
    let folder = tempfile::tempdir().unwrap();
    let foreman = folder.path().join("foreman.yaml");
    fs::write(&foreman, format!("foreman: {{listen: \"{taken}\"}}\n")).unwrap();
    let data = installation.data();
    let free = "127.0.0.1:0";
    let config = foreman.to_str().unwrap();
    for (ports, more, setting) in [
        ([taken, free, "off"], &[][..], "--listen"),
        ([free, taken, "off"], &[], "--kubernetes-listen"),
        ([free, free, taken], &[], "--metrics-listen"),
        ([free, free, "off"], &["--config", config], "foreman.listen"),
    ] {
        let [puppet, kubernetes, metrics] = ports;
        let arguments = [
            "serve",
            "--data",
            &data,
            "--listen",
            puppet,
            "--kubernetes-listen",
            kubernetes,
            "--metrics-listen",
            metrics,
        ];
        let refused = run(&[&arguments, more].concat());
        assert_eq!(refused.code, Some(1), "{refused}");
        let advice = format!("choose another {setting}, or stop what listens there");
        assert!(refused.stderr.contains(&advice), "{refused}");
        assert!(!installation.path("").exists(), "{setting}: {refused}");
    }
}

#[test]
fn a_start_on_what_setup_made_does_not_claim_to_have_made_it() {
    let installation = Installation::new();
    assert!(installation.run(&["ca", "setup"]).success());
    let server = installation.serve(&[]);
    let said = &server.greeting;
    assert!(
        said.contains("Took over the certificate authority that was in")
            && !said.contains("Created"),
        "{said}"
    );
}

#[test]
fn the_configuration_tells_commands_where_the_data_is() {
    let installation = Installation::new();
    let _server = installation.serve(&[]);
    let beside = installation.path("").parent().unwrap().to_owned();
    let path = |name: &str| beside.join(name).to_str().unwrap().to_owned();
    fs::write(path("c.yaml"), format!("data: {}\n", installation.data())).unwrap();
    fs::write(path("d.yaml"), format!("data: {}\n", path("restored"))).unwrap();
    for arguments in [
        &["csr", "list", "--config", &path("c.yaml")][..],
        &["backup", &path("b.tar"), "--config", &path("c.yaml")],
        &["restore", &path("b.tar"), "--config", &path("d.yaml")],
    ] {
        let finished = run(arguments);
        assert!(finished.success(), "{finished}");
    }
    assert!(beside.join("restored/countersign.db").exists());
    let refused = run(&["csr", "show", "x", "--config", &path("none.yaml")]);
    assert!(refused.stderr.contains("none.yaml"), "{refused}");
}

/// It names programs that the server runs and keys that it believes.
#[test]
fn a_configuration_that_others_can_write_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("countersign.yaml");
    fs::write(&file, "log: {level: info}\n").unwrap();
    for mode in [0o622, 0o660, 0o666] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let ended = run(&["serve", "--config", file.to_str().unwrap()]);
        assert_eq!(ended.code, Some(1), "{mode:o}: {ended}");
        let said = "the configuration file is not trusted: others than root and the server's user";
        assert!(ended.stderr.contains(said), "{mode:o}: {ended}");
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let shown = run(&[
        "serve",
        "--print-config",
        "--config",
        file.to_str().unwrap(),
    ]);
    assert!(shown.success(), "{shown}");
}

#[test]
fn a_lost_issuer_is_not_replaced() {
    for lost in ["issuers/puppet/ca_key.pem", "issuers/puppet/ca_crt.pem"] {
        let installation = Installation::new();
        installation.serve(&[]).stop();
        fs::remove_file(installation.path(lost)).unwrap();
        let refused = run(&[&["serve"], &*installation.serve_arguments(&[])].concat());
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(
            refused.stderr.contains(lost) && refused.stderr.contains("backup"),
            "{refused}"
        );
        assert!(!installation.path(lost).exists());
    }
}

#[test]
fn a_configured_signer_has_its_own_issuer() {
    let installation = Installation::new();
    let file = installation.path("").parent().unwrap().join("c.yaml");
    let text = "signers: [{name: example.com/vpn}]\nissuers: {example.com.vpn: {key: ed25519}}\nkubernetes: {listen: off}\n";
    fs::write(&file, text).unwrap();
    let data = installation.data();
    let arguments = [
        "--config",
        file.to_str().unwrap(),
        "--data",
        &data,
        "--listen",
        "127.0.0.1:0",
    ];
    let server =
        countersign_testkit::server_process::ServerProcess::start(binary(), &arguments).unwrap();
    assert_eq!(server.addresses.kubernetes, "");
    assert!(!server.greeting.contains("kubectl"), "{}", server.greeting);
    let issuer = read_certificate(installation.read("issuers/example.com.vpn/ca_crt.pem"));
    assert!(
        issuer
            .subject()
            .to_string()
            .starts_with("CN=example.com.vpn CA: ")
    );
    assert!(!installation.path("admin/kubeconfig").exists());
}

#[test]
fn openssl_accepts_the_chain_and_the_crl() {
    let installation = Installation::new();
    let _server = installation.serve(&[]);
    for (issuer, leaf) in [
        ("puppet", "tls/puppet.pem"),
        ("puppet", "admin/admin.pem"),
        ("kubernetes", "tls/kubernetes.pem"),
    ] {
        let mut command = Command::new("openssl");
        command.args(["verify", "-x509_strict", "-crl_check", "-CAfile"]);
        command.arg(installation.path(&format!("issuers/{issuer}/ca_crt.pem")));
        command
            .arg("-CRLfile")
            .arg(installation.path(&format!("issuers/{issuer}/ca_crl.pem")));
        command.arg(installation.path(leaf));
        let finished = run_with_deadline(command, Duration::from_secs(60)).unwrap();
        assert!(finished.success(), "{leaf}: {finished}");
    }
}
