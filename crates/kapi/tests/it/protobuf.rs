use countersign_kapi::decode;
use countersign_kapi::meta::{ManagedFieldsEntry, OwnerReference};
use countersign_kapi::negotiate::BodyFormat;
use countersign_kapi::options::FieldValidation;
use countersign_kapi::protobuf::{Envelope, ProtobufFault, WireFault, read_request, write};
use countersign_kapi::review::{Review, ReviewKind};
use countersign_kapi::{CertificateSigningRequest, Time};
use serde_json::json;

use crate::{approved, condition};

/// Body of `kubectl auth whoami`, recorded from kubectl 1.33.1.
const WHOAMI: &str = "6b3873000a2d0a1861757468656e7469636174696f6e2e6b38732e696f2f7631121153656c665375626a656374526576696577\
    121a0a100a0012001a0022002a0032003800420012060a040a0012001a002200";

pub(crate) fn bytes_of(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// An object with every field set.
pub(crate) fn full() -> CertificateSigningRequest {
    let mut object = approved();
    let meta = &mut object.metadata;
    meta.generate_name = "csr-".into();
    meta.generation = 3;
    meta.deletion_timestamp = Time::from_unix(5_000);
    meta.deletion_grace_period_seconds = Some(0);
    meta.labels.insert("a".into(), "b".into());
    meta.annotations.insert("é".into(), String::new());
    meta.owner_references.push(OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: "n".into(),
        uid: "u".into(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    });
    meta.finalizers.push("example.com/f".into());
    meta.managed_fields.push(ManagedFieldsEntry {
        manager: "kubelet".into(),
        operation: "Update".into(),
        api_version: "certificates.k8s.io/v1".into(),
        time: Time::from_unix(-5),
        fields_type: "FieldsV1".into(),
        fields_v1: Some(json!({"f:metadata": {}})),
        subresource: "approval".into(),
    });
    object.spec.uid = "7".into();
    object.spec.groups = vec!["g".into(), String::new()];
    object
        .spec
        .extra
        .insert("k".into(), vec!["v".into(), "w".into()]);
    object.spec.expiration_seconds = Some(-1);
    object
        .status
        .conditions
        .push(condition("Failed", "True", None));
    object.status.certificate = b"PEM".to_vec();
    object
}

#[test]
fn opens_the_envelope_kubectl_sends() {
    let body = bytes_of(WHOAMI);
    let envelope = Envelope::read(&body).unwrap();
    assert_eq!(
        (envelope.api_version, envelope.kind, envelope.raw.len()),
        ("authentication.k8s.io/v1", "SelfSubjectReview", 26)
    );
    assert_eq!(envelope.write(), body, "written back byte for byte");
    assert_eq!(
        ReviewKind::SelfSubject
            .decode(&body, BodyFormat::Protobuf)
            .unwrap(),
        Review::default()
    );
}

#[test]
fn empty_metadata_is_written_as_go_writes_it() {
    let body = write(&CertificateSigningRequest::default());
    let raw = Envelope::read(&body).unwrap().raw;
    let expected = bytes_of("0a100a0012001a0022002a00320038004200");
    assert_eq!(&raw[..expected.len()], expected.as_slice());
}

#[test]
fn reads_fields_by_their_published_tags() {
    // metadata{1 name "a"}, spec{1 request "hi", 5 usages "any", 7 signerName "s", 8 expirationSeconds 600,
    // 6 extra{"k": ["v"]}}, status{1 condition{1 type "A", 6 status "True", 4 time{1 seconds 5}}, 2 certificate "c"}
    let raw = bytes_of(concat!(
        "0a030a0161",
        "12190a0268692a03616e793a017340d80432080a016b12030a0176",
        "1a120a0d0a014132045472756522020805120163"
    ));
    let object = read_request(&raw).unwrap();
    assert_eq!(object.metadata.name, "a");
    assert_eq!(object.spec.request, b"hi");
    assert_eq!(object.spec.usages, ["any"]);
    assert_eq!(object.spec.signer_name, "s");
    assert_eq!(object.spec.expiration_seconds, Some(600));
    assert_eq!(object.spec.extra["k"], ["v"]);
    assert_eq!(object.status.conditions[0].kind, "A");
    assert_eq!(object.status.conditions[0].status, "True");
    assert_eq!(
        object.status.conditions[0].last_update_time,
        Time::from_unix(5)
    );
    assert_eq!(object.status.certificate, b"c");
}

#[test]
fn round_trip_keeps_everything() {
    for object in [CertificateSigningRequest::default(), approved(), full()] {
        let body = write(&object);
        let decoded = decode::object::<CertificateSigningRequest>(
            &body,
            BodyFormat::Protobuf,
            FieldValidation::Strict,
        )
        .unwrap();
        assert_eq!(decoded.object, object);
    }
}

#[test]
fn protobuf_and_json_say_the_same() {
    let object = full();
    let json = serde_json::to_vec(&object).unwrap();
    let from_json = decode::object::<CertificateSigningRequest>(
        &json,
        BodyFormat::Json,
        FieldValidation::Strict,
    )
    .unwrap();
    let from_protobuf = decode::object::<CertificateSigningRequest>(
        &write(&object),
        BodyFormat::Protobuf,
        FieldValidation::Strict,
    )
    .unwrap();
    assert_eq!(from_json.object, from_protobuf.object);
}

#[test]
fn bad_messages_are_refused_with_their_reason() {
    use ProtobufFault::{Encoding, Magic, Object};
    let envelope = |hex: &str| Envelope::read(&bytes_of(hex)).map(drop);
    assert_eq!(envelope("7b7d"), Err(Magic));
    assert_eq!(envelope("6b3873001a04677a6970"), Err(Encoding));
    assert_eq!(
        envelope("6b3873000aff"),
        Err(ProtobufFault::Envelope(WireFault::Truncated))
    );
    let rows = [
        ("0a05", WireFault::Truncated),
        ("0800", WireFault::Mismatch(1)),
        ("0a020801", WireFault::Mismatch(1)),
        ("0a030a01ff", WireFault::Text(1)),
        ("0b", WireFault::WireType(3)),
        ("07", WireFault::FieldNumber),
        ("78ffffffffffffffffff02", WireFault::LongVarint),
        ("1206408080808010", WireFault::Range(8)),
        ("0a0c420a08ffffffffffffffff7f", WireFault::Range(8)),
        ("0a094207088083d1ffaf07", WireFault::Range(8)), // 10000-01-01T00:00:00Z
    ];
    for (hex, fault) in rows {
        assert_eq!(read_request(&bytes_of(hex)), Err(Object(fault)), "{hex}");
    }
}

#[test]
fn other_kinds_are_refused() {
    let body = Envelope {
        api_version: "v1",
        kind: "Pod",
        raw: &[],
    }
    .write();
    let fault = decode::object::<CertificateSigningRequest>(
        &body,
        BodyFormat::Protobuf,
        FieldValidation::Warn,
    )
    .unwrap_err();
    assert_eq!(
        fault.to_string(),
        "no kind \"Pod\" is registered for version \"v1\""
    );
}
