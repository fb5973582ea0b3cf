//! Somebody else owns the passwords: asked by a webhook, or by the script among the examples.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use countersign_pki::UnixTime;
use countersign_testkit::agent::PuppetAgent;
use countersign_testkit::chain::Ca;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::deadline::{Finished, run_with_input};
use countersign_testkit::decider::{Decider, Guard, Step};
use countersign_testkit::keys;
use serde_json::Value;
use tempfile::TempDir;

use super::{PasswordServer, attributes, example};
use crate::governed::{AGENTS, Governed, PolicyFolder, policy};
use crate::puppet_agent::{agent, bootstrap};
use crate::site::install;

const PASSWORD: &str = "Gruenkohl-4711-mit-Pinkel";

/// Agents of these names, each with the same password.
fn agents(world: &Governed) -> [PuppetAgent; 2] {
    ["web01.example.com", "web02.example.com"].map(|name| {
        let agent = agent(&world.site, name);
        agent.write_csr_attributes(&attributes(PASSWORD)).unwrap();
        agent
    })
}

#[track_caller]
fn rejections(world: &Governed, name: &str) -> Value {
    let rejected = world.get(&format!("/rejections?certname={name}"));
    rejected["items"].clone()
}

#[test]
fn a_password_that_foreman_owns_enrols_one_host_by_webhook() {
    let foreman = PasswordServer::start(&[PASSWORD]);
    let (client, key) = foreman.client();
    // The policy among the examples, with the addresses of this test.
    let text = std::fs::read_to_string(example("policy.yaml")).unwrap();
    let text = text
        .replace(
            "https://foreman.example.com:8443/puppet/ca/validate",
            &foreman.url(),
        )
        .replace("/etc/countersign/foreman/", "");
    let folder = PolicyFolder::new(
        &[
            ("foreman.yaml", &text),
            ("ca.pem", &foreman.ca_pem()),
            ("client.pem", &client),
        ],
        "",
    );
    install(&folder.path("client-key.pem"), &key, 0o600);
    let world = folder.serve();
    let [first, second] = agents(&world);
    bootstrap(&first, 0);
    assert_eq!(first.verify().unwrap().code, Some(0));
    let said = bootstrap(&second, 1);
    assert!(said.stderr.contains("HTTP response was 403"), "{said}");
    let calls = foreman.decider.calls();
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| call.client.is_some()));
    assert_eq!(
        calls[0].header("accept"),
        Some("application/json,version=2")
    );

    // The other side can see what was turned away.
    let rejected = rejections(&world, "web02.example.com");
    assert_eq!(rejected[0]["reason"], "webhook_denied", "{rejected}");
    assert_eq!(rejected[0]["rule"], "foreman", "{rejected}");
    assert!(!world.site.server.log().contains(PASSWORD));
}

/// The script and its settings, as somebody installs them.
struct Script {
    folder: TempDir,
}

impl Script {
    fn installed(url: &str, ca: &str, client: Option<(String, String)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = Self { folder };
        let text = std::fs::read_to_string(example("policy.sh")).unwrap();
        install(&script.path("policy.sh"), &text, 0o755);
        install(&script.path("ca.pem"), ca, 0o644);
        let mut settings = std::fs::read_to_string(example("policy.curlrc.example")).unwrap();
        settings = settings
            .replace("https://foreman.example.com:8443/puppet/ca/validate", url)
            .replace(
                "/etc/countersign/foreman/",
                &format!("{}/", script.folder.path().display()),
            );
        match client {
            Some((certificate, key)) => {
                install(&script.path("client.pem"), &certificate, 0o644);
                install(&script.path("client-key.pem"), &key, 0o600);
            }
            None => {
                let lines = settings.lines();
                let kept = lines.filter(|l| !l.starts_with("cert ") && !l.starts_with("key "));
                settings = kept.collect::<Vec<_>>().join("\n");
            }
        }
        install(&script.path("policy.curlrc"), &settings, 0o600);
        script
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs it as an authority does.
    fn run(&self, request: &str) -> Finished {
        let mut command = Command::new(self.path("policy.sh"));
        command.arg("web01.example.com").env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        // A proxy of the environment is not asked.
        command.env("https_proxy", "http://127.0.0.1:1");
        run_with_input(command, request.into(), Duration::from_secs(30)).unwrap()
    }
}

fn request() -> String {
    CsrBuilder::new("web01.example.com")
        .challenge_password(PASSWORD)
        .sign_pem(keys::p256_a())
}

#[test]
fn a_password_that_foreman_owns_enrols_one_host_by_the_script() {
    let foreman = PasswordServer::start(&[PASSWORD]);
    let script = Script::installed(&foreman.url(), &foreman.ca_pem(), Some(foreman.client()));
    let rule = format!(
        "    - name: foreman\n      approve: {{executable: {{path: {}, timeout: 10s}}}}\n      else: deny\n",
        script.path("policy.sh").display()
    );
    let world = Governed::start(&[("agents.yaml", &policy("agents", AGENTS, &rule))], "");
    let [first, second] = agents(&world);
    bootstrap(&first, 0);
    assert_eq!(first.verify().unwrap().code, Some(0));
    bootstrap(&second, 1);
    let calls = foreman.decider.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].method, "POST");
    assert!(calls.iter().all(|call| call.client.is_some()));
    assert_eq!(
        calls[0].header("accept"),
        Some("application/json,version=2")
    );
    let rejected = rejections(&world, "web02.example.com");
    assert_eq!(rejected[0]["rule"], "foreman", "{rejected}");
    // The password went through a pipe and a connection, and through nobody's arguments or log.
    assert_eq!(*foreman.exposed.lock().unwrap(), Vec::<String>::new());
    assert!(!world.site.server.log().contains(PASSWORD));
}

#[test]
fn the_script_says_yes_to_200_alone() {
    let now = UnixTime(1_760_000_000);
    let ca = Ca::root("Foreman CA", keys::p256_c(), now);
    let guard = Guard::localhost(&ca, now);
    let pem = ca.certificate.to_pem();
    for (status, code) in [
        (200, 0),
        (201, 1),
        (204, 1),
        (302, 1),
        (404, 1),
        (406, 1),
        (500, 1),
    ] {
        let decider = Decider::start(&guard, move |_| vec![Step::status(status)]).unwrap();
        let script = Script::installed(&url(&decider), &pem, None);
        let finished = script.run(&request());
        assert_eq!(finished.code, Some(code), "{status}: {finished}");
        assert!(!finished.to_string().contains(PASSWORD), "{finished}");
        let calls = decider.calls();
        assert_eq!(calls[0].body, request_of(&calls[0].body), "{status}");
    }
}

/// The body that arrived is a request, whole: signatures of EC keys differ, so only its form is compared.
fn request_of(body: &[u8]) -> Vec<u8> {
    use countersign_pki::{CheckedCsr, CsrLimits};
    CheckedCsr::from_pem(body, &CsrLimits::STANDARD).unwrap();
    body.to_vec()
}

#[test]
fn the_script_says_no_where_nobody_can_be_asked() {
    let now = UnixTime(1_760_000_000);
    let ca = Ca::root("Foreman CA", keys::p256_c(), now);
    let other = Ca::root("Somebody else", keys::p256_d(), now);
    let guard = Guard::localhost(&ca, now);
    let pem = ca.certificate.to_pem();
    let well = || Decider::start(&guard, |_| vec![Step::status(200)]).unwrap();
    let silent = Decider::start(&guard, |_| vec![Step::Hang]).unwrap();
    let broken = Decider::start(&guard, |_| vec![Step::Reset]).unwrap();
    let (good, closed) = (well(), "https://127.0.0.1:1/validate".to_owned());
    let plain = url(&good).replace("https://", "http://");
    for (what, url, ca) in [
        ("no answer", url(&silent), &pem),
        ("a reset", url(&broken), &pem),
        ("nobody there", closed, &pem),
        ("another CA", url(&good), &other.certificate.to_pem()),
        ("plain HTTP", plain, &pem),
    ] {
        let finished = Script::installed(&url, ca, None).run(&request());
        assert_eq!(finished.code, Some(1), "{what}: {finished}");
    }
    assert_eq!(good.calls().len(), 0, "nobody was told the password");
    let script = Script::installed(&url(&good), &pem, None);
    std::fs::remove_file(script.path("policy.curlrc")).unwrap();
    let finished = script.run(&request());
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(finished.stderr.contains("cannot read"), "{finished}");
}

fn url(decider: &Decider) -> String {
    format!("https://127.0.0.1:{}/validate", decider.address().port())
}

/// A shell that knows nothing beyond the standard runs it, too.
#[test]
fn the_script_is_plain_posix_shell() {
    let text = std::fs::read_to_string(example("policy.sh")).unwrap();
    assert!(text.starts_with("#!/bin/sh\n"));
    let dash = Path::new("/bin/dash");
    let shell = if dash.exists() {
        dash
    } else {
        Path::new("/bin/sh")
    };
    let mut command = Command::new(shell);
    command.arg("-n").arg(example("policy.sh"));
    let finished = run_with_input(command, "".into(), Duration::from_secs(10)).unwrap();
    assert_eq!(finished.code, Some(0), "{finished}");
}
