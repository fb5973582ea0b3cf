use countersign_kapi::model::{APPROVED, CertificateSigningRequest, DENIED, FAILED};
use countersign_kapi::validate::{self, Checks};
use countersign_kapi::{Endpoint, FieldError, Time, update};

use crate::{accept, approved, condition, now, sample, short};

type Change = fn(&mut CertificateSigningRequest);

fn write(
    endpoint: Endpoint,
    old: &CertificateSigningRequest,
    change: Change,
) -> (CertificateSigningRequest, Vec<FieldError>) {
    let mut new = old.clone();
    change(&mut new);
    let prepared = update::prepare(endpoint, old, new, now());
    let pem = |bytes: &[u8]| {
        if bytes.starts_with(b"PEM") {
            Ok(())
        } else {
            Err("no PEM block".into())
        }
    };
    let errors = validate::update(
        endpoint,
        old,
        &prepared,
        &Checks {
            request: &accept,
            certificate: &pem,
        },
    );
    (prepared, errors)
}

#[test]
fn every_rule_for_conditions_has_its_error() {
    use Endpoint::{Approval, Object, Status};
    let rows: &[(&str, Endpoint, Change, &[&str])] = &[
        (
            "approve twice is one edit",
            Approval,
            |o| o.status.conditions[0].reason = "Again".into(),
            &[],
        ),
        (
            "C1 no type",
            Approval,
            |o| o.status.conditions.push(condition("", "True", None)),
            &["Required status.conditions[1].type"],
        ),
        (
            "C2 no status",
            Approval,
            |o| o.status.conditions.push(condition("Ready", "", None)),
            &["Required status.conditions[1].status"],
        ),
        (
            "C3 Approved False",
            Approval,
            |o| o.status.conditions[0].status = "False".into(),
            &["NotSupported status.conditions[0].status"],
        ),
        (
            "C3 Failed Unknown",
            Approval,
            |o| o.status.conditions.push(condition(FAILED, "Unknown", None)),
            &["NotSupported status.conditions[1].status"],
        ),
        (
            "C4 odd status",
            Approval,
            |o| o.status.conditions.push(condition("Ready", "Yes", None)),
            &["NotSupported status.conditions[1].status"],
        ),
        (
            "C4 Unknown is known",
            Approval,
            |o| {
                o.status
                    .conditions
                    .push(condition("Ready", "Unknown", None))
            },
            &[],
        ),
        (
            "C5 approve then deny",
            Approval,
            |o| o.status.conditions.push(condition(DENIED, "True", None)),
            &["Invalid status.conditions"],
        ),
        (
            "C6 twice Ready",
            Approval,
            |o| {
                o.status.conditions.extend([
                    condition("Ready", "True", None),
                    condition("Ready", "False", None),
                ])
            },
            &["Duplicate status.conditions[2].type"],
        ),
        (
            "C7 take back",
            Approval,
            |o| o.status.conditions.clear(),
            &["Forbidden status.conditions"],
        ),
        (
            "C7 turn round",
            Approval,
            |o| o.status.conditions[0].kind = DENIED.into(),
            &["Forbidden status.conditions"],
        ),
        (
            "C7 by status",
            Status,
            |o| o.status.conditions.clear(),
            &["Forbidden status.conditions"],
        ),
        (
            "C8 deny by status",
            Status,
            |o| o.status.conditions.push(condition(DENIED, "True", None)),
            &["Invalid status.conditions", "Forbidden status.conditions"],
        ),
        (
            "C8 edit by status is restored",
            Status,
            |o| o.status.conditions[0].reason = "Mine".into(),
            &[],
        ),
        (
            "Failed by status",
            Status,
            |o| o.status.conditions.push(condition(FAILED, "True", None)),
            &[],
        ),
        (
            "Failed by approval",
            Approval,
            |o| o.status.conditions.push(condition(FAILED, "True", None)),
            &[],
        ),
        (
            "any change by the object is restored",
            Object,
            |o| {
                o.status.conditions.clear();
                o.status.certificate = b"x".to_vec();
                o.spec.usages.clear();
            },
            &[],
        ),
        (
            "certificate by approval is restored",
            Approval,
            |o| o.status.certificate = b"x".to_vec(),
            &[],
        ),
        (
            "certificate by status",
            Status,
            |o| o.status.certificate = b"PEM".to_vec(),
            &[],
        ),
        (
            "K3 no PEM",
            Status,
            |o| o.status.certificate = b"x".to_vec(),
            &["Invalid status.certificate"],
        ),
        (
            "label through approval",
            Approval,
            |o| drop(o.metadata.labels.insert("a b".into(), String::new())),
            &["Invalid metadata.labels"],
        ),
    ];
    for (name, endpoint, change, expected) in rows {
        let (_, errors) = write(*endpoint, &approved(), *change);
        assert_eq!(short(&errors), *expected, "{name}");
    }
}

#[test]
fn refusals_name_the_deed() {
    let text = |endpoint, change| {
        write(endpoint, &approved(), change)
            .1
            .last()
            .unwrap()
            .to_string()
    };
    assert_eq!(
        text(Endpoint::Approval, |o| o.status.conditions.clear()),
        "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\""
    );
    assert_eq!(
        text(Endpoint::Status, |o| o
            .status
            .conditions
            .push(condition(DENIED, "True", None))),
        "status.conditions: Forbidden: updates may not add a condition of type \"Denied\""
    );
    assert_eq!(
        text(Endpoint::Status, |o| o.status.certificate = b"x".to_vec()),
        "status.certificate: Invalid value: \"<certificate data>\": no PEM block"
    );
    assert_eq!(
        text(Endpoint::Approval, |o| o
            .status
            .conditions
            .push(condition(DENIED, "True", None))),
        "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive"
    );
}

#[test]
fn what_is_removed_is_told_before_what_is_added() {
    let mut denied = approved();
    denied.status.conditions[0].kind = DENIED.into();
    let (_, errors) = write(Endpoint::Status, &denied, |o| {
        o.status.conditions[0].kind = APPROVED.into()
    });
    let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "status.conditions: Forbidden: updates may not remove a condition of type \"Denied\"",
            "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"",
        ]
    );
}

#[test]
fn a_bad_certificate_on_record_is_not_replaced_by_another() {
    let mut odd = approved();
    odd.status.certificate = b"odd".to_vec();
    let (_, errors) = write(Endpoint::Status, &odd, |o| {
        o.status.certificate = b"other".to_vec()
    });
    assert_eq!(short(&errors), ["Forbidden status.certificate"]);
}

#[test]
fn certificate_is_written_once() {
    let mut issued = approved();
    issued.status.certificate = b"PEM one".to_vec();
    for change in [
        (|o| o.status.certificate = b"PEM two".to_vec()) as Change,
        |o| o.status.certificate.clear(),
    ] {
        let (_, errors) = write(Endpoint::Status, &issued, change);
        assert_eq!(
            errors[0].to_string(),
            "status.certificate: Forbidden: updates may not modify existing certificate content"
        );
    }
}

#[test]
fn each_endpoint_changes_its_part_only() {
    let everything: Change = |o| {
        o.metadata.labels.insert("team".into(), "a".into());
        o.metadata.uid = "other".into();
        o.metadata.creation_timestamp = None;
        o.metadata.deletion_timestamp = Some(now());
        o.spec.usages.clear();
        o.status.certificate = b"PEM".to_vec();
        o.status.conditions.push(condition("Ready", "True", None));
        o.status.conditions[0].reason = "Edited".into();
    };
    let rows = [
        (Endpoint::Object, 1, "", false),
        (Endpoint::Status, 2, "", true),
        (Endpoint::Approval, 2, "Edited", false),
    ];
    for (endpoint, conditions, reason, certificate) in rows {
        let old = approved();
        let (new, errors) = write(endpoint, &old, everything);
        assert_eq!(errors, vec![], "{endpoint:?}");
        assert_eq!(new.metadata.labels["team"], "a", "{endpoint:?}");
        assert_eq!(
            (&new.metadata.uid, new.metadata.creation_timestamp),
            (&old.metadata.uid, old.metadata.creation_timestamp)
        );
        assert_eq!(new.metadata.deletion_timestamp, None, "{endpoint:?}");
        assert_eq!(new.spec, old.spec, "{endpoint:?}");
        assert_eq!(new.status.conditions.len(), conditions, "{endpoint:?}");
        assert_eq!(new.status.conditions[0].reason, reason, "{endpoint:?}");
        assert_eq!(
            !new.status.certificate.is_empty(),
            certificate,
            "{endpoint:?}"
        );
    }
}

#[test]
fn nothing_new_is_nothing_to_store() {
    for endpoint in [Endpoint::Object, Endpoint::Status, Endpoint::Approval] {
        let (new, errors) = write(endpoint, &approved(), |o| {
            o.spec.request = b"other".to_vec()
        });
        assert_eq!((new, errors), (approved(), vec![]), "{endpoint:?}");
    }
}

#[test]
fn missing_times_are_filled_in() {
    let (new, _) = write(Endpoint::Approval, &approved(), |o| {
        o.status.conditions[0].last_update_time = None;
        o.status.conditions[0].last_transition_time = None;
        o.status.conditions.push(condition("Ready", "True", None));
        o.status
            .conditions
            .push(condition("Seen", "True", Some(99_999)));
    });
    let times: Vec<_> = new
        .status
        .conditions
        .iter()
        .map(|c| {
            (
                c.last_update_time.map(Time::unix),
                c.last_transition_time.map(Time::unix),
            )
        })
        .collect();
    assert_eq!(
        times,
        [
            (Some(9_000), Some(2_000)),
            (Some(9_000), Some(9_000)),
            (Some(99_999), Some(99_999))
        ]
    );
}

#[test]
fn stored_violations_do_not_block_updates() {
    let stored: &[(&str, Change)] = &[
        ("approved and denied", |o| {
            o.status.conditions.push(condition(DENIED, "True", Some(1)))
        }),
        ("legacy signer", |o| {
            o.spec.signer_name = "kubernetes.io/legacy-unknown".into()
        }),
        ("duplicate condition types", |o| {
            o.status
                .conditions
                .push(condition(APPROVED, "True", Some(1)))
        }),
        ("empty condition type", |o| {
            o.status.conditions.push(condition("", "True", Some(1)))
        }),
        ("unknown usage", |o| o.spec.usages.push("strange".into())),
        ("duplicate usage", |o| {
            o.spec.usages.push("client auth".into())
        }),
        ("odd certificate", |o| {
            o.status.certificate = b"odd".to_vec()
        }),
    ];
    let label: Change = |o| drop(o.metadata.labels.insert("a".into(), "b".into()));
    for (name, spoil) in stored {
        let mut old = approved();
        spoil(&mut old);
        for endpoint in [Endpoint::Object, Endpoint::Status, Endpoint::Approval] {
            assert_eq!(
                short(&write(endpoint, &old, label).1),
                Vec::<String>::new(),
                "{name} {endpoint:?}"
            );
        }
    }
    let mut old = approved();
    old.spec.expiration_seconds = Some(1);
    assert_eq!(
        short(&write(Endpoint::Object, &old, label).1),
        ["Invalid spec.expirationSeconds"],
        "not ratcheted"
    );
}

#[test]
fn finalizers_cannot_be_added_while_deleting() {
    let mut old = approved();
    old.metadata.deletion_timestamp = Some(now());
    old.metadata.finalizers = vec!["example.com/a".into(), "example.com/b".into()];
    assert_eq!(
        write(Endpoint::Object, &old, |o| drop(
            o.metadata.finalizers.pop()
        ))
        .1,
        vec![]
    );
    let (_, errors) = write(Endpoint::Object, &old, |o| {
        o.metadata.finalizers.push("example.com/c".into())
    });
    assert_eq!(short(&errors), ["Forbidden metadata.finalizers"]);
}

#[test]
fn stale_or_foreign_updates_conflict() {
    let old = approved();
    let rows: &[(&str, Change, Option<&str>)] = &[
        ("same", |_| {}, None),
        (
            "unconditional",
            |o| {
                o.metadata.resource_version.clear();
                o.metadata.uid.clear();
            },
            None,
        ),
        (
            "stale",
            |o| o.metadata.resource_version = "6".into(),
            Some("the object has been modified"),
        ),
        (
            "recreated",
            |o| o.metadata.uid = "u-0".into(),
            Some("UID in precondition: u-0, UID in object meta: u-1"),
        ),
    ];
    for (name, change, text) in rows {
        let mut new = old.clone();
        change(&mut new);
        match (update::preconditions(&old, &new), text) {
            (Ok(()), None) => {}
            (Err(status), Some(text)) => assert!(
                status.code == 409 && status.message.contains(text),
                "{name}: {}",
                status.message
            ),
            (result, _) => panic!("{name}: {result:?}"),
        }
    }
}

#[test]
fn kubectl_approval_passes_and_shows() {
    let (new, errors) = write(Endpoint::Approval, &sample(), |o| {
        o.status
            .conditions
            .push(condition(APPROVED, "True", Some(5)))
    });
    assert_eq!(errors, vec![]);
    assert_eq!(new.state_text(), "Approved");
}
