//! docs/kubernetes.md does what it says: every command of it with the real kubectl and OpenSSL, its roles, its links.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_testkit::counterparts::{Counterpart, KubernetesRelease};
use countersign_testkit::https::HttpsClient;
use countersign_testkit::keys;
use countersign_testkit::kubectl::Kubectl;
use countersign_testkit::server_process::ServerProcess;
use serde_json::{Value, json};

use crate::installation::{Installation, run};
use crate::policy_manual::{Block, Reader, blocks};
use crate::site::{REQUESTS, kubernetes_request_for, pair_of};
use crate::tokens_manual::links_lead_somewhere;

#[test]
fn a_normal_user_gets_and_uses_a_certificate_as_the_manual_says() {
    let mut reader = Reader::new();
    let kubectl = Counterpart::Kubectl(KubernetesRelease::NEWEST);
    reader.install("kubectl", &kubectl.find().unwrap());
    reader.install("openssl", &Counterpart::Openssl.find().unwrap());
    for file in files() {
        reader.copy(&file);
    }
    let blocks = blocks(MANUAL);
    let shown = blocks
        .iter()
        .filter(|block| matches!(block, Block::File(_)));
    assert_eq!(shown.count(), files().len(), "each file is in the manual");
    let commands = blocks
        .iter()
        .filter(|block| matches!(block, Block::Commands(_)));
    assert!(commands.count() > 14, "{blocks:?}");
    for block in &blocks {
        reader.follow(block);
    }
}

#[test]
fn the_policies_of_the_manual_are_some() {
    for name in ["approval-policy", "tokens-policy"] {
        let checked = run(&["policy", "check", file(name).to_str().unwrap()]);
        assert!(checked.success(), "{checked}");
    }
}

#[test]
fn links_of_the_manual_lead_somewhere() {
    links_lead_somewhere("docs", MANUAL);
}

/// What users of the example roles try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Create,
    Read,
    Delete,
    ApproveByUpdate,
    DenyByUpdate,
    ApproveByPatch,
    SignByUpdate,
    SignByPatch,
}

const ACTS: [Act; 8] = [
    Act::Create,
    Act::Read,
    Act::Delete,
    Act::ApproveByUpdate,
    Act::DenyByUpdate,
    Act::ApproveByPatch,
    Act::SignByUpdate,
    Act::SignByPatch,
];

const VPN: &str = "example.com/vpn";
const OTHER: &str = "example.com/other";
const ELSEWHERE: &str = "example.org/vpn";

/// Who may do what to requests for which signers; everything else is forbidden.
const ALLOWED: [(&str, Act, &[&str]); 12] = [
    ("requesters", Act::Create, &[VPN, OTHER, ELSEWHERE]),
    ("requesters", Act::Read, &[VPN, OTHER, ELSEWHERE]),
    ("approvers", Act::Read, &[VPN, OTHER, ELSEWHERE]),
    ("approvers", Act::ApproveByUpdate, &[VPN, OTHER]),
    ("approvers", Act::DenyByUpdate, &[VPN, OTHER]),
    ("patching-approvers", Act::Read, &[VPN, OTHER, ELSEWHERE]),
    ("patching-approvers", Act::ApproveByPatch, &[VPN]),
    ("signers", Act::Read, &[VPN, OTHER, ELSEWHERE]),
    ("signers", Act::SignByUpdate, &[VPN]),
    ("patching-signers", Act::Read, &[VPN, OTHER, ELSEWHERE]),
    ("patching-signers", Act::SignByPatch, &[VPN, OTHER]),
    ("strangers", Act::Read, &[]),
];

/// With `update` alone and with `patch` alone, by a signer's name and by its domain.
#[test]
fn the_roles_of_the_manual_allow_what_it_says_and_nothing_else() {
    let site = Installation::new();
    let server = site.serve(&[]);
    let home = site.path("home");
    let admin = Kubectl::new(&site.path("admin/kubeconfig"), &home).unwrap();
    let apply = |text: &str| {
        let applied = admin.run_with_input(&["apply", "-f", "-"], text).unwrap();
        assert_eq!(applied.code, Some(0), "{applied:?}");
    };
    for name in ["requester", "approver", "signer"] {
        let text = fs::read_to_string(file(name)).unwrap();
        apply(&text);
        // The same for clients that patch, with the other way to name signers.
        let other = text
            .replace("csr-", "patching-csr-")
            .replace(
                &format!("name: {name}s"),
                &format!("name: patching-{name}s"),
            )
            .replace("[update]", "[patch]");
        let other = match name {
            "approver" => other.replace("example.com/*", VPN),
            _ => other.replace(VPN, "example.com/*"),
        };
        assert_ne!(other, text);
        apply(&other);
    }

    let mut groups: Vec<&str> = ALLOWED.iter().map(|(group, ..)| *group).collect();
    groups.dedup();
    let mut tries = Vec::new();
    for group in groups {
        for act in ACTS {
            for signer in [VPN, OTHER, ELSEWHERE] {
                let name = format!("t{}", tries.len());
                let mut object = kubernetes_request_for(&name, signer, keys::p256_b());
                object["metadata"]["name"] = json!(name);
                tries.push((group, act, signer, name, object));
            }
        }
    }
    let there = tries.iter().filter(|(_, act, ..)| *act != Act::Create);
    let there: Vec<String> = there.map(|(.., object)| object.to_string()).collect();
    let created = admin.run_with_input(&["create", "-f", "-"], &there.join("\n"));
    assert_eq!(created.as_ref().unwrap().code, Some(0), "{created:?}");

    let certificate = STANDARD.encode(site.read("issuers/kubernetes/ca_crt.pem"));
    let mut user: Option<User> = None;
    for (group, act, signer, name, object) in tries {
        let known = user.take().filter(|user| user.group == group);
        let user = user.insert(known.unwrap_or_else(|| User::new(&site, &server, group)));
        let outcome = user.attempt(act, &name, object, &certificate);
        let is_allowed = ALLOWED
            .iter()
            .any(|row| row.0 == group && row.1 == act && row.2.contains(&signer));
        match (is_allowed, outcome) {
            (true, Ok(())) => {}
            (false, Err(told)) if told.contains("orbidden") => {}
            (_, outcome) => panic!("{group} {act:?} {signer}: {outcome:?}"),
        }
    }
}

/// Somebody in a group, by kubectl where that does it in one call, else by calls alone.
struct User {
    group: &'static str,
    kubectl: Kubectl,
    client: HttpsClient,
}

impl User {
    fn new(site: &Installation, server: &ServerProcess, group: &'static str) -> Self {
        let path = site.path(&format!("{group}.kubeconfig"));
        let out = path.to_str().unwrap();
        let made = site.run(&[
            "kubeconfig",
            "--user",
            "erin",
            "--group",
            group,
            "--out",
            out,
        ]);
        assert!(made.success(), "{made}");
        let (certificate, key) = pair_of(&path);
        let port = server.addresses.kubernetes_port().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let ca = site.read("issuers/kubernetes/ca_crt.pem");
        Self {
            group,
            kubectl: Kubectl::new(&path, &site.path("home")).unwrap(),
            client: HttpsClient::new(address, ca.as_bytes(), Some((&certificate, &key))).unwrap(),
        }
    }

    /// Tries something; says why it was not done.
    fn attempt(
        &self,
        act: Act,
        name: &str,
        mut object: Value,
        certificate: &str,
    ) -> Result<(), String> {
        let kubectl = &self.kubectl;
        let certified = json!({"certificate": certificate});
        let finished = match act {
            Act::Create => kubectl.run_with_input(&["create", "-f", "-"], &object.to_string()),
            Act::Read => kubectl.run(&["get", "csr", name]),
            Act::Delete => kubectl.run(&["delete", "csr", name]),
            Act::ApproveByUpdate => kubectl.run(&["certificate", "approve", name]),
            Act::DenyByUpdate => kubectl.run(&["certificate", "deny", name]),
            Act::ApproveByPatch => {
                let condition = json!({"type": "Approved", "status": "True", "reason": "Test"});
                let status = json!({"status": {"conditions": [condition]}});
                return self.call("PATCH", &format!("{name}/approval"), &status);
            }
            Act::SignByPatch => {
                let status = json!({"status": certified});
                return self.call("PATCH", &format!("{name}/status"), &status);
            }
            Act::SignByUpdate => {
                object["status"] = certified;
                return self.call("PUT", &format!("{name}/status"), &object);
            }
        };
        let finished = finished.unwrap();
        match finished.success() {
            true => Ok(()),
            false => Err(finished.stderr),
        }
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Result<(), String> {
        let media_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let (path, body) = (format!("{REQUESTS}/{path}"), body.to_string());
        let headers = [("Content-Type", media_type)];
        let answer = self.client.call(method, &path, &headers, body.as_bytes());
        let answer = answer.unwrap();
        match answer.status {
            200 => Ok(()),
            _ => Err(answer.text()),
        }
    }
}

fn files() -> Vec<PathBuf> {
    let entries = fs::read_dir(FILES).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn file(name: &str) -> PathBuf {
    Path::new(FILES).join(format!("{name}.yaml"))
}

const MANUAL: &str = include_str!("../../../../docs/kubernetes.md");
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/kubernetes");
