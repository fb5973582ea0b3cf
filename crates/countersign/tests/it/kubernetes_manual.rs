//! docs/kubernetes.md does what it says: every command of it with the real kubectl and OpenSSL, its roles, its links.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_testkit::counterparts::{Counterpart, KubernetesRelease};
use countersign_testkit::keys;
use countersign_testkit::kubectl::Kubectl;
use serde_json::{Value, json};

use crate::installation::{Installation, run};
use crate::policy_manual::{Block, Reader, blocks};
use crate::site::kubernetes_request_for;
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
    let _server = site.serve(&[]);
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
    let mut user: Option<(&str, Kubectl)> = None;
    for (group, act, signer, name, object) in tries {
        if user.as_ref().is_none_or(|(known, _)| *known != group) {
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
            user = Some((group, Kubectl::new(&path, &home).unwrap()));
        }
        let (_, kubectl) = user.as_ref().unwrap();
        let finished = attempt(kubectl, act, &name, object, &certificate);
        let is_allowed = ALLOWED
            .iter()
            .any(|row| row.0 == group && row.1 == act && row.2.contains(&signer));
        match is_allowed {
            true => assert!(finished.success(), "{group} {act:?} {signer}: {finished}"),
            false => {
                assert!(!finished.success(), "{group} {act:?} {signer}: {finished}");
                let told = finished.stderr.to_lowercase();
                assert!(
                    told.contains("forbidden"),
                    "{group} {act:?} {signer}: {finished}"
                );
            }
        }
    }
}

fn attempt(
    kubectl: &Kubectl,
    act: Act,
    name: &str,
    mut object: Value,
    certificate: &str,
) -> countersign_testkit::deadline::Finished {
    let patch = |subresource: &str, status: Value| {
        let patch = json!({"status": status}).to_string();
        let subresource = format!("--subresource={subresource}");
        kubectl.run(&[
            "patch",
            "csr",
            name,
            &subresource,
            "--type=merge",
            "-p",
            &patch,
        ])
    };
    let finished = match act {
        Act::Create => kubectl.run_with_input(&["create", "-f", "-"], &object.to_string()),
        Act::Read => kubectl.run(&["get", "csr", name]),
        Act::Delete => kubectl.run(&["delete", "csr", name]),
        Act::ApproveByUpdate => kubectl.run(&["certificate", "approve", name]),
        Act::DenyByUpdate => kubectl.run(&["certificate", "deny", name]),
        Act::ApproveByPatch => {
            let condition = json!({"type": "Approved", "status": "True", "reason": "Test"});
            patch("approval", json!({"conditions": [condition]}))
        }
        Act::SignByPatch => patch("status", json!({"certificate": certificate})),
        Act::SignByUpdate => {
            object["status"] = json!({"certificate": certificate});
            let arguments = ["replace", "--subresource=status", "-f", "-"];
            kubectl.run_with_input(&arguments, &object.to_string())
        }
    };
    finished.unwrap()
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
