use countersign_kapi::meta::{ManagedFieldsEntry, OwnerReference};
use countersign_kapi::model::{CertificateSigningRequest, USAGES, UserInfo};
use countersign_kapi::{update, validate};

use crate::{accept, approved, now, sample, short};

type Change = fn(&mut CertificateSigningRequest);

#[test]
fn every_rule_for_new_objects_has_its_error() {
    let owner = || OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: "n".into(),
        uid: "u".into(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    let rows: &[(&str, Change, &[&str])] = &[
        ("good", |_| {}, &[]),
        (
            "V1 no name",
            |o| o.metadata.name.clear(),
            &["Required metadata.name"],
        ),
        (
            "V1 dot",
            |o| o.metadata.name = ".".into(),
            &["Invalid metadata.name"],
        ),
        (
            "V1 dots",
            |o| o.metadata.name = "..".into(),
            &["Invalid metadata.name"],
        ),
        (
            "V1 slash",
            |o| o.metadata.name = "a/b".into(),
            &["Invalid metadata.name"],
        ),
        (
            "V1 slash and percent",
            |o| o.metadata.name = "a/%b".into(),
            &["Invalid metadata.name", "Invalid metadata.name"],
        ),
        (
            "V1 any other name",
            |o| o.metadata.name = "Ä_ ".repeat(500),
            &[],
        ),
        (
            "V1 after other errors",
            |o| {
                o.metadata.name = "a/b".into();
                o.spec.usages.clear();
            },
            &["Required spec.usages"],
        ),
        (
            "V2 refused by the check",
            |o| o.spec.request = b"bad".to_vec(),
            &["Invalid spec.request"],
        ),
        (
            "V3 no usages",
            |o| o.spec.usages.clear(),
            &["Required spec.usages"],
        ),
        (
            "V4 unknown usage",
            |o| o.spec.usages.push("Client Auth".into()),
            &["NotSupported spec.usages[2]"],
        ),
        (
            "V4 all usages",
            |o| o.spec.usages = USAGES.map(Into::into).to_vec(),
            &[],
        ),
        (
            "V5 repeated usage",
            |o| o.spec.usages.push("client auth".into()),
            &["Duplicate spec.usages[2]"],
        ),
        (
            "V5 signing is not digital signature",
            |o| o.spec.usages.push("signing".into()),
            &[],
        ),
        (
            "V4+V5 unknown twice",
            |o| o.spec.usages = vec!["x".into(), "x".into()],
            &[
                "NotSupported spec.usages[0]",
                "NotSupported spec.usages[1]",
                "Duplicate spec.usages[1]",
            ],
        ),
        (
            "V6 legacy signer",
            |o| o.spec.signer_name = "kubernetes.io/legacy-unknown".into(),
            &["Invalid spec.signerName"],
        ),
        (
            "V7 no signer",
            |o| o.spec.signer_name.clear(),
            &["Required spec.signerName"],
        ),
        (
            "V7 no slash",
            |o| o.spec.signer_name = "example.com".into(),
            &["Invalid spec.signerName"],
        ),
        (
            "V7 too long",
            |o| o.spec.signer_name = format!("{}com/x", "a.".repeat(126)),
            &["TooLong spec.signerName"],
        ),
        (
            "V7 unknown kubernetes.io signer",
            |o| o.spec.signer_name = "kubernetes.io/mine".into(),
            &[],
        ),
        (
            "V8 too short",
            |o| o.spec.expiration_seconds = Some(599),
            &["Invalid spec.expirationSeconds"],
        ),
        (
            "V8 zero",
            |o| o.spec.expiration_seconds = Some(0),
            &["Invalid spec.expirationSeconds"],
        ),
        (
            "V8 negative",
            |o| o.spec.expiration_seconds = Some(-1),
            &["Invalid spec.expirationSeconds"],
        ),
        ("V8 least", |o| o.spec.expiration_seconds = Some(600), &[]),
        (
            "V8 most",
            |o| o.spec.expiration_seconds = Some(i32::MAX),
            &[],
        ),
        ("V8 none", |o| o.spec.expiration_seconds = None, &[]),
        (
            "V9 label key",
            |o| drop(o.metadata.labels.insert("-a".into(), String::new())),
            &["Invalid metadata.labels"],
        ),
        (
            "V9 label value",
            |o| drop(o.metadata.labels.insert("a".into(), "b c".into())),
            &["Invalid metadata.labels"],
        ),
        (
            "V9 annotation key",
            |o| drop(o.metadata.annotations.insert("a b".into(), String::new())),
            &["Invalid metadata.annotations"],
        ),
        (
            "V9 upper-case annotation prefix",
            |o| {
                drop(
                    o.metadata
                        .annotations
                        .insert("Example.com/A".into(), "x y".into()),
                )
            },
            &[],
        ),
        (
            "V9 annotations too large",
            |o| {
                drop(
                    o.metadata
                        .annotations
                        .insert("a".into(), "x".repeat(256 * 1024)),
                )
            },
            &["TooLong metadata.annotations"],
        ),
        (
            "V9 annotations just fit",
            |o| {
                drop(
                    o.metadata
                        .annotations
                        .insert("a".into(), "x".repeat(256 * 1024 - 1)),
                )
            },
            &[],
        ),
        (
            "V9 finalizer",
            |o| o.metadata.finalizers.push("a b".into()),
            &[
                "Invalid metadata.finalizers",
                "Invalid metadata.finalizers[0]",
            ],
        ),
        (
            "V9 finalizer without a domain",
            |o| o.metadata.finalizers = vec!["orphan".into(), "x".into()],
            &["Invalid metadata.finalizers[1]"],
        ),
        (
            "V9 finalizers that contradict",
            |o| o.metadata.finalizers = vec!["orphan".into(), "foregroundDeletion".into()],
            &["Invalid metadata.finalizers"],
        ),
        (
            "V9 empty owner",
            |o| o.metadata.owner_references.push(OwnerReference::default()),
            &[
                "Invalid metadata.ownerReferences.apiVersion",
                "Invalid metadata.ownerReferences.kind",
                "Invalid metadata.ownerReferences.name",
                "Invalid metadata.ownerReferences.uid",
            ],
        ),
        (
            "V9 managed by nobody",
            |o| {
                o.metadata
                    .managed_fields
                    .push(ManagedFieldsEntry::default())
            },
            &["Invalid metadata.managedFields[0].operation"],
        ),
        (
            "several at once",
            |o| {
                o.spec.usages.clear();
                o.spec.expiration_seconds = Some(60);
                o.spec.request = b"bad".to_vec();
            },
            &[
                "Invalid spec.request",
                "Required spec.usages",
                "Invalid spec.expirationSeconds",
            ],
        ),
    ];
    let check = |request: &[u8]| {
        if request == b"bad" {
            Err("PEM block type must be CERTIFICATE REQUEST".into())
        } else {
            Ok(())
        }
    };
    for (name, change, expected) in rows {
        let mut object = sample();
        change(&mut object);
        assert_eq!(
            short(&validate::create(&object, &check)),
            *expected,
            "{name}"
        );
    }
    let mut object = sample();
    object.metadata.owner_references = vec![owner(), owner()];
    assert_eq!(
        short(&validate::create(&object, &accept)),
        ["Invalid metadata.ownerReferences"],
        "V9 two controllers"
    );
}

#[test]
fn errors_read_as_a_real_server_prints_them() {
    let check = |_: &[u8]| Err("PEM block type must be CERTIFICATE REQUEST".into());
    let mut object = sample();
    object.spec.request = b"hello".to_vec();
    object.spec.usages = vec!["none".into()];
    object.spec.expiration_seconds = Some(60);
    let texts: Vec<String> = validate::create(&object, &check)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        texts,
        [
            "spec.request: Invalid value: \"aGVsbG8=\": PEM block type must be CERTIFICATE REQUEST",
            "spec.usages[0]: Unsupported value: \"none\": supported values: \"any\", \"cert sign\", \"client auth\", \
             \"code signing\", \"content commitment\", \"crl sign\", \"data encipherment\", \"decipher only\", \
             \"digital signature\", \"email protection\", \"encipher only\", \"ipsec end system\", \"ipsec tunnel\", \
             \"ipsec user\", \"key agreement\", \"key encipherment\", \"microsoft sgc\", \"netscape sgc\", \"ocsp signing\", \
             \"s/mime\", \"server auth\", \"signing\", \"timestamping\"",
            "spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 600 seconds (10 minutes)",
        ]
    );
}

#[test]
fn what_the_server_knows_better_is_not_taken_from_the_client() {
    let mut sent = approved();
    sent.metadata.namespace = "default".into();
    sent.metadata.generation = 4;
    sent.metadata.deletion_timestamp = Some(now());
    sent.metadata.deletion_grace_period_seconds = Some(0);
    sent.metadata.labels.insert("a".into(), "b".into());
    sent.spec.groups = vec!["system:masters".into()];
    sent.spec.extra.insert("k".into(), vec!["v".into()]);
    sent.status.certificate = b"mine".to_vec();
    let user = UserInfo {
        username: "jane".into(),
        uid: "7".into(),
        groups: vec!["dev".into()],
        ..UserInfo::default()
    };
    let object = update::prepare_create(sent.clone(), user, "fresh".into(), now());
    assert_eq!(object.metadata.uid, "fresh");
    assert_eq!(object.metadata.creation_timestamp, Some(now()));
    assert_eq!(object.metadata.labels["a"], "b");
    let meta = &object.metadata;
    assert!(meta.namespace.is_empty() && meta.resource_version.is_empty() && meta.generation == 0);
    assert!(meta.deletion_timestamp.is_none() && meta.deletion_grace_period_seconds.is_none());
    assert_eq!(
        (object.spec.username.as_str(), object.spec.uid.as_str()),
        ("jane", "7")
    );
    assert_eq!(object.spec.groups, ["dev"]);
    assert!(object.spec.extra.is_empty());
    assert_eq!(object.spec.request, sent.spec.request);
    assert_eq!(
        object.state_text(),
        "Pending",
        "a pre-approved object is stripped"
    );
    assert!(object.status.certificate.is_empty());
}
