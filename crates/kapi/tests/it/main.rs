//! Behaviour of the resource seen from outside, as tables of named rows.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failed test may panic"
)]

mod creating;
mod decoding;
mod hostile;
mod protobuf;
mod rbac;
mod updating;

use countersign_kapi::model::{APPROVED, Condition};
use countersign_kapi::{CertificateSigningRequest, FieldError, Time};

/// An object as a kubelet would send it.
fn sample() -> CertificateSigningRequest {
    let mut object = CertificateSigningRequest::default();
    object.metadata.name = "node-csr-Ab_c-1".into();
    object.spec.request = b"-----BEGIN CERTIFICATE REQUEST-----\n...".to_vec();
    object.spec.signer_name = "kubernetes.io/kube-apiserver-client-kubelet".into();
    object.spec.usages = vec!["digital signature".into(), "client auth".into()];
    object.spec.expiration_seconds = Some(86_400);
    object
}

/// An object as it is stored, approved a while ago.
fn approved() -> CertificateSigningRequest {
    let mut object = sample();
    object.metadata.uid = "u-1".into();
    object.metadata.resource_version = "7".into();
    object.metadata.creation_timestamp = Time::from_unix(1_000);
    object.spec.username = "system:bootstrap:abcdef".into();
    object.status.conditions = vec![condition(APPROVED, "True", Some(2_000))];
    object
}

fn condition(kind: &str, status: &str, at: Option<i64>) -> Condition {
    let at = at.and_then(Time::from_unix);
    Condition {
        kind: kind.into(),
        status: status.into(),
        last_update_time: at,
        last_transition_time: at,
        ..Condition::default()
    }
}

fn now() -> Time {
    Time::from_unix(9_000).unwrap()
}

fn accept(_: &[u8]) -> Result<(), String> {
    Ok(())
}

/// `reason field` of each error.
fn short(errors: &[FieldError]) -> Vec<String> {
    errors
        .iter()
        .map(|error| {
            format!(
                "{} {}",
                error.kind.reason().trim_start_matches("FieldValue"),
                error.field
            )
        })
        .collect()
}
