//! Authorities that are governed by policy files, and a decider that such policies ask.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use countersign_pki::UnixTime;
use countersign_testkit::chain::Ca;
use countersign_testkit::decider::{Call, Decider, Greeting, Guard, Step};
use countersign_testkit::keys;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::puppet_agent::countersign;
use crate::site::{Site, install};

/// An authority with a folder of policies.
pub(crate) struct Governed {
    pub(crate) policies: PolicyFolder,
    pub(crate) site: Site,
}

impl Governed {
    /// The folder has these files; `more` stands in the configuration file.
    pub(crate) fn start(files: &[(&str, &str)], more: &str) -> Self {
        PolicyFolder::new(files, more).serve()
    }

    /// Lets somebody work on the files, ends the server and starts it again.
    pub(crate) fn restart(self, before: impl FnOnce(&PolicyFolder)) -> Self {
        let Self { policies, site } = self;
        before(&policies);
        let site = site.kill_and_restart(&arguments(&policies.config()));
        Self { policies, site }
    }

    /// What the native API says.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        let path = format!("/enrol/v1{path}");
        let answer = self.site.admin().call("GET", &path, &[], b"").unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// `csr explain NAME -o json`.
    #[track_caller]
    pub(crate) fn explain(&self, name: &str) -> Value {
        let text = self.well(&["csr", "explain", name, "-o", "json"]);
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn is_signed(&self, name: &str) -> bool {
        self.site.certificate(name).status == 200
    }

    /// A command that succeeds.
    #[track_caller]
    pub(crate) fn well(&self, arguments: &[&str]) -> String {
        let (code, text) = countersign(&self.site, arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {text}");
        text
    }
}

/// A folder of policies, and a configuration file that names it.
pub(crate) struct PolicyFolder {
    folder: TempDir,
}

impl PolicyFolder {
    pub(crate) fn new(files: &[(&str, &str)], more: &str) -> Self {
        let placed = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir(placed.path("")).unwrap();
        for (name, text) in files {
            placed.write(name, text);
        }
        let config = format!("policies: [policies.d]\n{more}");
        std::fs::write(placed.config(), config).unwrap();
        placed
    }

    /// A file among the policies.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("policies.d").join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        install(&self.path(name), text, 0o644);
    }

    pub(crate) fn config(&self) -> String {
        let config = self.folder.path().join("countersign.yaml");
        config.to_str().unwrap().to_owned()
    }

    pub(crate) fn serve(self) -> Governed {
        let site = Site::start(&arguments(&self.config()));
        Governed {
            policies: self,
            site,
        }
    }
}

fn arguments(config: &str) -> [&str; 4] {
    ["--config", config, "--metrics-listen", "127.0.0.1:0"]
}

pub(crate) fn policy(name: &str, signer: &str, rules: &str) -> String {
    format!(
        "apiVersion: countersign.dev/v1alpha1\nkind: ApprovalPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
         signers: [{signer}]\n  rules:\n{rules}"
    )
}

pub(crate) const AGENTS: &str = "countersign.dev/puppet-agent";
pub(crate) const CLIENTS: &str = "kubernetes.io/kube-apiserver-client";

/// How the CMDB feels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mood {
    Allows,
    Denies,
    Slow,
    Dead,
}
use Mood::{Allows, Dead, Denies};

/// A decider whose mood changes.
pub(crate) struct Cmdb {
    pub(crate) decider: Decider,
    mood: Arc<AtomicU8>,
    ca: String,
}

impl Cmdb {
    pub(crate) fn start() -> Self {
        let now = UnixTime(1_760_000_000);
        let ca = Ca::root("cmdb", keys::p256_c(), now);
        let mood = Arc::new(AtomicU8::new(Allows as u8));
        let (greeted, played) = (Arc::clone(&mood), Arc::clone(&mood));
        let is_dead = move || greeted.load(Ordering::SeqCst) == Dead as u8;
        let greeting = move |_| match is_dead() {
            true => Greeting::Reset,
            false => Greeting::Welcome,
        };
        let part = move |call: &Call| {
            let said = |word, reason| Step::json(&call.decision(word, &json!({"reason": reason})));
            match played.load(Ordering::SeqCst) {
                word if word == Allows as u8 => vec![said("allow", "in the CMDB since May")],
                word if word == Denies as u8 => vec![said("deny", "stolen in June")],
                _ => vec![Step::Hang],
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let guard = Guard::localhost(&ca, now);
        let decider = Decider::on(listener, &guard, greeting, Box::new(part)).unwrap();
        Self {
            decider,
            mood,
            ca: ca.certificate.to_pem(),
        }
    }

    pub(crate) fn is(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::SeqCst);
    }

    /// A rule that asks it.
    fn rule(&self) -> String {
        let port = self.decider.address().port();
        format!(
            "    - name: cmdb\n      approve: {{webhook: {{url: \"https://127.0.0.1:{port}/decide\", caBundle: cmdb.pem, timeout: 1s}}}}\n"
        )
    }

    pub(crate) fn govern(&self, signer: &str) -> Governed {
        let text = policy("cmdb", signer, &self.rule());
        Governed::start(&[("cmdb.yaml", &text), ("cmdb.pem", &self.ca)], "")
    }
}
