//! An authority that is told many secrets, and everything that it says and writes.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use countersign_pki::UnixTime;
use countersign_testkit::chain::Ca;
use countersign_testkit::deadline::{Finished, run_with_deadline};
use countersign_testkit::decider::{Call, Decider, Guard, Step};
use countersign_testkit::https::{Answer, HttpsClient};
use countersign_testkit::keys;
use countersign_testkit::server_process::ServerProcess;
use serde_json::{Value, json};

use super::needles::Needles;
use crate::governed::{AGENTS, CLIENTS, policy};
use crate::site::{COUNTERSIGN, JSON, PUPPET, Site, TEXT, install, serve};

pub(super) const FOREMAN: &str = "foreman.example.com";
/// A place for tokens that the site made up.
pub(super) const PRIVATE: &str = "1.3.6.1.4.1.34380.1.2.7";

pub(super) struct Stage {
    pub(super) site: Site,
    pub(super) decider: Decider,
    folder: tempfile::TempDir,
    needles: Needles,
    captured: Vec<(String, Vec<u8>)>,
}

impl Stage {
    /// `format` is that of the log.
    pub(super) fn set(format: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut needles = Needles::default();
        for (name, key) in [("mac", MAC_KEY), ("old", OLD_MAC_KEY)] {
            install(&folder.path().join(name), key, 0o600);
            needles.add(&format!("{name} key"), key.as_bytes());
        }
        let decider = decider(&folder.path().join("decider.pem"));
        let script = folder.path().join("decide.sh");
        install(&script, SCRIPT, 0o755);
        let url = format!("https://127.0.0.1:{}", decider.address().port());
        let rules = RULES
            .replace("URL", &url)
            .replace("SCRIPT", script.to_str().unwrap());
        install(
            &folder.path().join("agents.yaml"),
            &policy("agents", AGENTS, &rules),
            0o644,
        );
        let users = policy(
            "users",
            CLIENTS,
            "    - name: token\n      approve: {token: {}}\n",
        );
        install(&folder.path().join("users.yaml"), &users, 0o644);
        let config = format!(
            "policies: [agents.yaml, users.yaml]\nlog: {{level: trace, format: {format}}}\nlimits: {{token_failures_per_10_minutes: 0}}\n\
             tokens: {{enabled: true, mac_key: {{file: {mac}}}, mac_keys_old: [{{file: {old}}}], sources: [challengePassword, pp_preshared_key, {PRIVATE}]}}\n\
             foreman: {{listen: \"127.0.0.1:0\", trusted_hosts: [{FOREMAN}]}}\npuppet: {{allow_subject_alt_names: true}}\n",
            mac = folder.path().join("mac").display(),
            old = folder.path().join("old").display(),
        );
        install(&folder.path().join("countersign.yaml"), &config, 0o644);
        let file = folder.path().join("countersign.yaml");
        let flags = ["--config", file.to_str().unwrap()];
        let data = folder.path().join("data");
        let server = serve(
            &data,
            &[&flags[..], &["--metrics-listen", "127.0.0.1:0"]].concat(),
        );
        Self {
            site: Site::around(data, server),
            decider,
            folder,
            needles,
            captured: Vec::new(),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file that somebody has, not the authority.
    pub(super) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        install(&path, text, 0o600);
        path.to_str().unwrap().to_owned()
    }

    /// Keeps what somebody said.
    pub(super) fn keep(&mut self, what: &str, bytes: &[u8]) {
        self.captured.push((what.to_owned(), bytes.to_vec()));
    }

    /// From now on nobody may say this token.
    pub(super) fn learn(&mut self, token: &str) -> String {
        self.needles.add_token(token);
        token.to_owned()
    }

    /// A token from the command line; the only time that its standard output is not kept.
    pub(super) fn mint(&mut self, arguments: &[&str]) -> String {
        let finished = self.run(&[&["token", "create"], arguments].concat());
        assert!(finished.success(), "{arguments:?}: {finished}");
        self.keep(
            &format!("stderr of token create {arguments:?}"),
            finished.stderr.as_bytes(),
        );
        let text = &finished.stdout;
        let from = text.find("ott1.").unwrap();
        self.learn(&text[from..from + 82])
    }

    /// A token from the native API; the only time that its answer is not kept.
    pub(super) fn order(&mut self, order: &Value) -> String {
        let body = order.to_string();
        let call = self.site.admin().call(
            "POST",
            "/enrol/v1/tokens",
            &[JSON, ("Idempotency-Key", "order-1")],
            body.as_bytes(),
        );
        let answer = call.unwrap();
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let minted: Value = serde_json::from_slice(&answer.body).unwrap();
        self.learn(minted["token"].as_str().unwrap())
    }

    /// A call whose answer is kept, headers and all.
    pub(super) fn call(
        &mut self,
        client: &HttpsClient,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Option<Answer> {
        // Some of these are no HTTP; a connection that ends is an answer, too.
        let answer = client.call(method, path, headers, body).ok()?;
        let said = format!("{:?}", answer.headers);
        let what = format!("answer {} to {method} {path} {headers:?}", answer.status);
        self.keep(&format!("headers of {what}"), said.as_bytes());
        self.keep(&what, &answer.body);
        Some(answer)
    }

    pub(super) fn put(&mut self, name: &str, request: &str) -> u16 {
        let path = format!("{PUPPET}/certificate_request/{name}");
        let client = self.site.anonymous();
        let answer = self.call(&client, "PUT", &path, &[TEXT], request.as_bytes());
        // Who is sent too much may hang up before it is all sent.
        answer.map_or(0, |answer| answer.status)
    }

    /// A command whose words are kept, logging all it can.
    pub(super) fn command(&mut self, arguments: &[&str]) -> Finished {
        let finished = self.run(arguments);
        let said = format!("{}{}", finished.stdout, finished.stderr);
        let what = format!("countersign {arguments:?} ({:?})", finished.code);
        self.keep(&what, said.as_bytes());
        finished
    }

    fn run(&self, arguments: &[&str]) -> Finished {
        let mut command = Command::new(COUNTERSIGN);
        command.args(arguments).env("RUST_LOG", "trace");
        command.env("COUNTERSIGN_DATA", self.site.data());
        run_with_deadline(command, Duration::from_secs(60)).unwrap()
    }

    pub(super) fn foreman(&self, certificate: &[u8]) -> HttpsClient {
        let port = self.site.server.addresses.foreman_port().unwrap();
        let key = keys::p256_a().pkcs8_pem().as_bytes();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        HttpsClient::new(address, &self.site.puppet_ca(), Some((certificate, key))).unwrap()
    }

    pub(super) fn server(&mut self) -> &mut ServerProcess {
        &mut self.site.server
    }

    /// Keeps every file below a folder.
    pub(super) fn keep_files(&mut self, folder: &Path) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                self.keep_files(&path);
            } else {
                // A log file of the store may be gone meanwhile.
                let content = fs::read(&path).unwrap_or_default();
                self.keep(&path.display().to_string(), &content);
            }
        }
    }

    /// What holds secrets, and whose: of each place the first.
    pub(super) fn found(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (place, bytes) in &self.captured {
            let found = self.needles.find(bytes);
            if let Some(first) = found.first() {
                let place = countersign_authority::masked_tokens(place);
                all.push(format!("{place}: {first} and {} more", found.len() - 1));
            }
        }
        all
    }

    /// Whether a secret is in these bytes.
    pub(super) fn tells(&self, bytes: &[u8]) -> bool {
        !self.needles.find(bytes).is_empty()
    }

    pub(super) fn kept(&self) -> impl Iterator<Item = &(String, Vec<u8>)> {
        self.captured.iter()
    }
}

/// Who is asked by webhook, and gives back what it was told.
fn decider(bundle: &Path) -> Decider {
    let now = UnixTime(1_760_000_000);
    let ca = Ca::root("decider", keys::p256_c(), now);
    install(bundle, &ca.certificate.to_pem(), 0o644);
    Decider::start(&Guard::localhost(&ca, now), |call: &Call| {
        let asked = call.json();
        let pem = asked["csr"]["pem"].as_str().unwrap_or_default();
        let told = password(pem).unwrap_or_else(|| "nothing".to_owned());
        let reason = json!({"reason": format!("was told {told}")});
        let word = match asked["certname"].as_str() {
            Some(name) if name.contains("deny") => "deny",
            Some(name) if name.contains("pend") => "pend",
            _ => "allow",
        };
        vec![Step::json(&call.decision(word, &reason))]
    })
    .unwrap()
}

/// The challenge password of a request.
pub(super) fn password(pem: &str) -> Option<String> {
    use countersign_pki::{Carrier, CheckedCsr, CsrLimits, carried};
    let csr = CheckedCsr::from_pem(pem.as_bytes(), &CsrLimits::STANDARD).ok()?;
    let carried = carried(&csr, &[Carrier::ChallengePassword]).ok()??;
    Some(carried.expose().to_owned())
}

/// Keeps the arguments and environment of itself and its parent, and is as talkative as scripts are that somebody debugs.
const SCRIPT: &str = r#"#!/bin/sh
set -x
{ cat /proc/$$/cmdline /proc/$PPID/cmdline; env; } > "${0%/*}/arguments"
csr=$(cat)
echo "$csr"
cat "${0%/*}/token-of-$1"
cat "${0%/*}/token-of-$1" >&2
case $1 in *deny*) exit 1 ;; esac
"#;

const RULES: &str = r#"    - name: asked
      when: 'request.commonName.startsWith("asked")'
      approve: {token: {}, webhook: {url: URL/asked, caBundle: decider.pem}}
    - name: shown
      when: 'request.commonName.startsWith("shown")'
      approve: {token: {}, webhook: {url: URL/shown, caBundle: decider.pem, includeCsr: true}}
    - name: scripted
      when: 'request.commonName.startsWith("scripted")'
      approve: {token: {}, executable: {path: SCRIPT, timeout: 20s}}
    - name: token
      when: 'request.commonName.startsWith("n")'
      approve: {token: {}}
"#;

const MAC_KEY: &str = "5c1d0e6fb2a94873e0d95b7aa8164c2fd13b97e6405f8ac27d1be0946f3a825e";
const OLD_MAC_KEY: &str = "b04fe5c7189d6a32f75c80d1e62b9a4370fd1e86c5b2479a03e8dfc6125b7a94";
