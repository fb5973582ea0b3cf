use countersign_kapi::decode::{self, DecodeFault};
use countersign_kapi::negotiate::BodyFormat;
use countersign_kapi::options::FieldValidation::{self, Ignore, Strict, Warn};
use countersign_kapi::{CertificateSigningRequest, Decoded, MAX_BODY_BYTES};

use crate::approved;

fn read(
    body: &str,
    validation: FieldValidation,
) -> Result<Decoded<CertificateSigningRequest>, DecodeFault> {
    decode::object::<CertificateSigningRequest>(body.as_bytes(), BodyFormat::Json, validation)
}

#[test]
fn reads_what_kubectl_create_sends() {
    let body = r#"{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest",
        "metadata":{"name":"a","creationTimestamp":null,"annotations":{"x":"y"}},
        "spec":{"expirationSeconds":86400,"request":"aGk=","signerName":"example.com/s","usages":["client auth"]},"status":{}}"#;
    let Decoded { object, warnings } = read(body, Strict).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(object.spec.request, b"hi");
    assert_eq!(object.spec.expiration_seconds, Some(86_400));
    assert_eq!(object.metadata.creation_timestamp, None);
}

#[test]
fn json_round_trip_keeps_everything() {
    let mut object = approved();
    object.metadata.labels.insert("a".into(), "b".into());
    object.spec.extra.insert("k".into(), vec!["v".into()]);
    object.status.certificate = b"PEM".to_vec();
    let body = serde_json::to_string(&object).unwrap();
    assert_eq!(read(&body, Strict).unwrap().object, object);
}

#[test]
fn null_is_absent_everywhere() {
    let body = r#"{"metadata":null,"spec":{"request":null,"usages":[null],"extra":{"a":null},"username":null},
        "status":{"conditions":[null,{"type":"Ready","lastUpdateTime":null,"lastTransitionTime":"0001-01-01T00:00:00Z"}]}}"#;
    let object = read(body, Strict).unwrap().object;
    assert_eq!(object.spec.usages, [""]);
    assert_eq!(object.spec.extra["a"], Vec::<String>::new());
    assert_eq!(object.status.conditions.len(), 2);
    assert_eq!(object.status.conditions[1].last_transition_time, None);
}

#[test]
fn unknown_and_duplicate_fields_are_named_by_path() {
    let body = r#"{"colour":1,"metadata":{"name":"a","name":"b","labels":{"free":"x"}},
        "spec":{"request":"aGk=","signername":"x","usages":["any"]},"status":{"conditions":[{"type":"A"},{"size":1}]}}"#;
    let found = [
        "duplicate field \"metadata.name\"",
        "unknown field \"colour\"",
        "unknown field \"spec.signername\"",
        "unknown field \"status.conditions[1].size\"",
    ];
    let warned = read(body, Warn).unwrap();
    assert_eq!(warned.warnings, found);
    assert_eq!(warned.object.metadata.name, "b", "the last one counts");
    assert_eq!(read(body, Ignore).unwrap().warnings, Vec::<String>::new());
    assert_eq!(
        read(body, Strict).unwrap_err().to_string(),
        format!(
            "CertificateSigningRequest in version \"v1\" cannot be handled as a CertificateSigningRequest: strict decoding error: {}",
            found.join(", ")
        )
    );
}

#[test]
fn wrong_types_are_named() {
    let rows = [
        (
            r#"{"spec":{"request":"a"}}"#,
            "cannot read field \"spec.request\" as base64 data",
        ),
        (
            r#"{"spec":{"request":[1]}}"#,
            "cannot read field \"spec.request\" as base64 data",
        ),
        (
            r#"{"spec":{"expirationSeconds":"600"}}"#,
            "cannot read field \"spec.expirationSeconds\" as a 32-bit integer",
        ),
        (
            r#"{"spec":{"expirationSeconds":600.5}}"#,
            "cannot read field \"spec.expirationSeconds\" as a 32-bit integer",
        ),
        (
            r#"{"spec":{"expirationSeconds":4294967896}}"#,
            "cannot read field \"spec.expirationSeconds\" as a 32-bit integer",
        ),
        (
            r#"{"spec":{"usages":"any"}}"#,
            "cannot read field \"spec.usages\" as a list",
        ),
        (
            r#"{"spec":{"usages":["any",1]}}"#,
            "cannot read field \"spec.usages[1]\" as a string",
        ),
        (r#"{"spec":[]}"#, "cannot read field \"spec\" as an object"),
        (
            r#"{"metadata":{"labels":{"a":1}}}"#,
            "cannot read field \"metadata.labels.a\" as a string",
        ),
        (
            r#"{"metadata":{"creationTimestamp":"yesterday"}}"#,
            "cannot read field \"metadata.creationTimestamp\" as an RFC 3339 time",
        ),
        (
            r#"{"metadata":{"ownerReferences":[{"controller":"yes"}]}}"#,
            "cannot read field \"metadata.ownerReferences[0].controller\" as a boolean",
        ),
        (
            r#"{"kind":"Pod","apiVersion":"v1"}"#,
            "no kind \"Pod\" is registered for version \"v1\"",
        ),
        (
            r#"{"kind":"CertificateSigningRequest","apiVersion":"certificates.k8s.io/v1beta1"}"#,
            "the API version in the data (certificates.k8s.io/v1beta1) does not match the expected API version (certificates.k8s.io/v1)",
        ),
        ("{} {}", "trailing characters"),
        ("{", "EOF"),
        ("", "EOF"),
        ("[]", "cannot read field \"\" as an object"),
    ];
    for (body, text) in rows {
        let fault = read(body, Ignore).unwrap_err().to_string();
        assert!(fault.contains(text), "{body}: {fault}");
    }
}

#[test]
fn large_bodies_are_refused_before_they_are_read() {
    let body = vec![b' '; MAX_BODY_BYTES + 1];
    for format in [BodyFormat::Json, BodyFormat::Protobuf] {
        assert!(matches!(
            decode::object::<CertificateSigningRequest>(&body, format, Warn),
            Err(DecodeFault::TooLarge)
        ));
    }
}
