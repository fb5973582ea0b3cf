//! Foreman in its three places: as the client of a smart proxy, as a webhook, and behind a policy executable.

mod elsewhere;
mod smart_proxy;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use countersign_pki::{AltName, CheckedCsr, CsrLimits, UnixTime, oid};
use countersign_testkit::chain::{Ca, Leaf};
use countersign_testkit::decider::{Call, Decider, Guard, Step};
use countersign_testkit::keys;

/// A server that owns one-time passwords, and takes each once.
pub(crate) struct PasswordServer {
    pub(crate) decider: Decider,
    /// Who signed its certificate and those of its clients.
    ca: Ca,
    /// Arguments of processes that had a password in them while it was asked.
    pub(crate) exposed: Arc<Mutex<Vec<String>>>,
}

impl PasswordServer {
    pub(crate) fn start(passwords: &[&str]) -> Self {
        let ca = Ca::root("Foreman CA", keys::p256_c(), NOW);
        let guard = Guard {
            clients: Some(ca.certificate.clone()),
            ..Guard::localhost(&ca, NOW)
        };
        let left: BTreeSet<String> = passwords.iter().map(|one| (*one).to_owned()).collect();
        let (left, all) = (Mutex::new(left.clone()), left);
        let exposed = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&exposed);
        let decider = Decider::start(&guard, move |call| {
            seen.lock().unwrap().extend(arguments_with(&all));
            let password = password_of(call);
            let is_taken = password.is_some_and(|one| left.lock().unwrap().remove(&one));
            vec![Step::status(if is_taken { 200 } else { 404 })]
        })
        .unwrap();
        Self {
            decider,
            ca,
            exposed,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!(
            "https://127.0.0.1:{}/validate",
            self.decider.address().port()
        )
    }

    pub(crate) fn ca_pem(&self) -> String {
        self.ca.certificate.to_pem()
    }

    /// A certificate and key that it lets in.
    pub(crate) fn client(&self) -> (String, String) {
        let key = keys::p256_d();
        let leaf = self.ca.leaf(&Leaf {
            common_name: "countersign.example.com",
            names: &[AltName::Dns("countersign.example.com".to_owned())],
            usage: oid::EKU_CLIENT_AUTH,
            key,
            serial: 7,
            now: NOW,
        });
        (leaf.to_pem(), key.pkcs8_pem().to_owned())
    }
}

/// The challenge password of a request as an unmodified agent writes it.
fn password_of(call: &Call) -> Option<String> {
    let csr = CheckedCsr::from_pem(&call.body, &CsrLimits::STANDARD).ok()?;
    let carriers = [countersign_pki::Carrier::ChallengePassword];
    let carried = countersign_pki::carried(&csr, &carriers).ok()??;
    Some(carried.expose().to_owned())
}

/// The command lines on this machine that hold one of the passwords.
fn arguments_with(passwords: &BTreeSet<String>) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let lines = processes.filter_map(|entry| {
        let file = entry.ok()?.path().join("cmdline");
        let line = std::fs::read(file).ok()?;
        Some(String::from_utf8_lossy(&line).into_owned())
    });
    let holds = |line: &String| passwords.iter().any(|password| line.contains(password));
    lines.filter(holds).collect()
}

/// A file of the examples.
pub(crate) fn example(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("../../examples/foreman").join(name)
}

pub(crate) fn attributes(password: &str) -> String {
    format!("custom_attributes:\n  1.2.840.113549.1.9.7: \"{password}\"\n")
}

const NOW: UnixTime = UnixTime(1_760_000_000);
