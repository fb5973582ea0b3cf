//! The definitions of openvox-operator's API: what they fill in, what kubectl shows, and that no rule stands in the way of
//! an object that is older than it.

use std::time::Duration;

use countersign_testkit::deadline::ask_again;
use countersign_testkit::kubectl::Kubectl;
use serde_json::{Value, json};

use super::resources::{define, established, ok, server, words};
use super::{deploy, documents};

pub(super) const GROUP: &str = "openvox.voxpupuli.org";

pub(super) const DEFINITIONS: [&str; 3] = [
    "certificateauthorities.openvox.voxpupuli.org",
    "certificates.openvox.voxpupuli.org",
    "signingpolicies.openvox.voxpupuli.org",
];

/// The defaults of openvox-operator v0.6.0. `objects.yaml` has the objects.
pub(super) fn what_is_filled_in(kubectl: &Kubectl) {
    for (object, spec) in [
        (
            "certificates.openvox.voxpupuli.org/default",
            json!({"authorityRef": "production", "certname": "puppet", "renewBefore": "60d"}),
        ),
        ("certificateauthority/production", authority(&json!({}))),
        // Null is as if nothing was written.
        ("certificateauthority/nulls", authority(&json!({}))),
        (
            "certificateauthority/full",
            authority(&json!({
                "ttl": "10y",
                "allowSubjectAltNames": false,
                "allowAuthorizationExtensions": false,
                "enableInfraCRL": false,
                "allowAutoRenewal": false,
                "autoRenewalCertTTL": "2160h",
                "crlRefreshInterval": "30s",
                "storage": {"size": "1024Mi", "storageClass": "fast"},
                "resources": {
                    "requests": {"cpu": 1, "memory": "768Mi"},
                    "limits": {"cpu": "1.5", "memory": "1Gi"},
                    "claims": [{"name": "a", "request": "b"}],
                },
                "intermediateCA": {"enabled": false, "secretName": "issuing"},
            })),
        ),
        (
            "signingpolicy/everything",
            json!({"certificateAuthorityRef": "production", "any": true}),
        ),
    ] {
        let stored = ok(kubectl, &["get", object, "-o", "jsonpath={.spec}"]);
        let stored: Value = serde_json::from_str(&stored.stdout).unwrap();
        assert_eq!(stored, spec, "{object}");
    }
}

/// The spec of a CertificateAuthority: what is given, and the defaults.
fn authority(given: &Value) -> Value {
    let mut spec = json!({
        "ttl": "5y",
        "allowSubjectAltNames": true,
        "allowAuthorizationExtensions": true,
        "enableInfraCRL": true,
        "allowAutoRenewal": true,
        "autoRenewalCertTTL": "90d",
        "crlRefreshInterval": "5m",
    });
    for (key, value) in given.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

pub(super) fn what_kubectl_shows(kubectl: &Kubectl) {
    let time = "2026-01-02T03:04:05Z";
    let condition = |kind: &str| {
        json!([{"type": kind, "status": "True", "reason": "AnyReason", "message": "",
            "lastTransitionTime": time, "observedGeneration": 1}])
    };
    let certificate = |phase: &str| {
        json!({"phase": phase, "secretName": "default-tls", "notAfter": time, "observedGeneration": 1,
            "signedSpecHash": "abc", "effectiveDNSAltNames": ["a"], "conditions": condition("CertSigned")})
    };
    let authority = |phase: &str| {
        json!({"phase": phase, "caSecretName": "production-ca", "serviceName": "production-internal",
            "signingSecretName": "production-operator-signing-tls", "notAfter": time, "observedGeneration": 1,
            "conditions": condition("CAReady")})
    };
    let policy = |phase: &str| json!({"phase": phase, "observedGeneration": 1, "conditions": condition("example.com/Any")});
    // The last of each kind is what is shown.
    let statuses = [
        (
            "Pending Requesting WaitingForSigning Error Renewing Signed",
            "certificates.openvox.voxpupuli.org/default",
            &certificate as &dyn Fn(&str) -> Value,
        ),
        (
            "Pending Initializing External Error Ready",
            "certificateauthority/production",
            &authority,
        ),
        ("Error Disabled Active", "signingpolicy/everything", &policy),
    ];
    for (phases, object, status) in statuses {
        for phase in phases.split(' ') {
            let patch = json!({"status": status(phase)});
            let arguments = [
                "patch",
                object,
                "--type=merge",
                "-p",
                &patch.to_string(),
                "--subresource=status",
            ];
            ok(kubectl, &arguments);
            let stored = ok(kubectl, &["get", object, "-o", "jsonpath={.status}"]);
            let stored: Value = serde_json::from_str(&stored.stdout).unwrap();
            assert_eq!(stored, patch["status"], "{object}");
        }
        let arguments = [
            "patch",
            object,
            "--type=merge",
            "-p",
            r#"{"status":{"phase":"Lost"}}"#,
            "--subresource=status",
        ];
        let refused = kubectl.run(&arguments).unwrap();
        assert!(
            refused.stderr.contains("Unsupported value: \"Lost\""),
            "{refused}"
        );
    }
    for (arguments, heading, row) in [
        (
            &["cert", "default"],
            "NAME AUTHORITY CERTNAME PHASE NOTAFTER AGE",
            "default production puppet Signed 2026-01-02T03:04:05Z",
        ),
        (
            &["ca", "production"],
            "NAME PHASE NOTAFTER AGE",
            "production Ready 2026-01-02T03:04:05Z",
        ),
        (
            &["sp", "everything"],
            "NAME CA PHASE AGE",
            "everything production Active",
        ),
    ] {
        let shown = ok(kubectl, &[&["get"][..], arguments].concat());
        let mut lines = shown.stdout.lines().map(words);
        assert_eq!(lines.next().unwrap(), heading, "{shown}");
        assert!(lines.next().unwrap().starts_with(row), "{shown}");
    }
}

/// openvox-operator has accepted what the rules refuse. Such an object stays as it is, can be worked on, and goes when it is
/// deleted.
#[test]
fn objects_that_are_older_than_the_rules_can_be_changed_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let (_api, kubectl) = server(folder.path());
    let create = |object: &Value, arguments: &[&str]| {
        let arguments = [&["create", "-f", "-"], arguments].concat();
        let created = kubectl.run_with_input(&arguments, &object.to_string());
        created.unwrap()
    };
    for name in DEFINITIONS {
        let file = format!("crds/{}.yaml", name.split('.').next().unwrap());
        let text = std::fs::read_to_string(deploy(&file)).unwrap();
        let mut definition = documents(&text).remove(0);
        without_rules(&mut definition);
        let created = create(&definition, &[]);
        assert!(created.success(), "{created}");
    }
    established(&kubectl, &DEFINITIONS);
    let objects = [
        (
            "Certificate",
            "bad",
            json!({"authorityRef": "x", "certname": "", "dnsAltNames": ["*.a", "b"], "renewBefore": "soon",
                "csrExtensions": {"customExtensions": {"bogus": "a", "pp_role": "b"}}}),
        ),
        ("Certificate", "empty", Value::Null),
        (
            "CertificateAuthority",
            "bad",
            json!({"ttl": "1h30m", "storage": {"size": "x"}, "external": {"url": "puppet"}}),
        ),
        ("CertificateAuthority", "empty", Value::Null),
        (
            "SigningPolicy",
            "bad",
            json!({"certificateAuthorityRef": "x", "pattern": {"allow": ["", "a"]}, "certnames": {"allow": ["b"]}}),
        ),
        ("SigningPolicy", "empty", Value::Null),
    ];
    let object = |kind: &str, name: &str, spec: &Value| {
        let mut object = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"),
            "kind": kind,
            "metadata": {"name": name, "namespace": "default", "finalizers": ["example.com/cleanup"]},
        });
        if !spec.is_null() {
            object["spec"] = spec.clone();
        }
        object
    };
    for (kind, name, spec) in &objects {
        let created = create(&object(kind, name, spec), &[]);
        assert!(created.success(), "{created}");
    }

    define(&kubectl);
    for (kind, _, spec) in &objects {
        let is_refused = ask_again(Duration::from_secs(30), || {
            let created = create(&object(kind, "new", spec), &["--dry-run=server"]);
            (!created.success()).then_some(())
        });
        assert!(is_refused.is_some(), "{kind}: {spec}");
    }
    for (kind, name, spec) in &objects {
        let object = format!("{kind}.{GROUP}/{name}");
        let patch = |arguments: &[&str], patch: &Value| {
            let fixed = ["patch", &object, "--type=merge", "-p", &patch.to_string()];
            ok(&kubectl, &[&fixed[..], arguments].concat());
        };
        patch(
            &[],
            &json!({"metadata": {"annotations": {"example.com/seen": "true"}}}),
        );
        patch(
            &["--subresource=status"],
            &json!({"status": {"phase": "Error", "observedGeneration": 1}}),
        );
        if spec.is_object() {
            let without = r#"[{"op":"remove","path":"/spec"}]"#;
            let removed = kubectl.run(&["patch", &object, "--type=json", "-p", without]);
            let removed = removed.unwrap();
            assert!(removed.stderr.contains("spec is missing"), "{removed}");
        }
        ok(&kubectl, &["delete", "--wait=false", &object]);
        patch(&[], &json!({"metadata": {"finalizers": null}}));
        let gone = kubectl.run(&["get", &object]).unwrap();
        assert!(gone.stderr.contains("NotFound"), "{gone}");
    }
}

/// Takes out of a definition what refuses objects.
fn without_rules(part: &mut Value) {
    match part {
        Value::Object(map) => {
            map.remove("x-kubernetes-validations");
            for rule in [
                "maxLength",
                "minLength",
                "maxItems",
                "maxProperties",
                "pattern",
            ] {
                // A property may have such a name.
                if map.get(rule).is_some_and(|it| !it.is_object()) {
                    map.remove(rule);
                }
            }
            map.values_mut().for_each(without_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(without_rules),
        _ => {}
    }
}
