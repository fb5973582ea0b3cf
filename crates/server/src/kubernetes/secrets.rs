//! Enrolment tokens in places of an object that everybody reads who reads the object.
//!
//! What was mistaken for a name, a label or a note is refused, and not repeated. What a client adds by itself is left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_authority::looks_like_a_token;
use countersign_kapi::{CertificateSigningRequest, FieldError, ObjectMeta};
use countersign_pki::{CheckedCsr, masked};
use serde::Serialize;
use serde_json::Value;

use super::create::read_request;

/// The fields of an object in which a token stands; its request is another matter.
pub(super) fn token_faults(object: &CertificateSigningRequest) -> Vec<FieldError> {
    let ObjectMeta {
        name,
        generate_name,
        labels,
        annotations,
        ..
    } = &object.metadata;
    let rest = ObjectMeta {
        name: String::new(),
        generate_name: String::new(),
        labels: Default::default(),
        annotations: Default::default(),
        ..object.metadata.clone()
    };
    let is_generated = looks_like_a_token(generate_name);
    let fields = [
        ("metadata.generateName", is_generated),
        // One that was made of the other is not wrong by itself.
        ("metadata.name", looks_like_a_token(name) && !is_generated),
        ("metadata.labels", has_token(labels)),
        ("metadata.annotations", has_token(annotations)),
        ("metadata", has_token(&rest)),
        ("status.conditions", has_token(&object.status.conditions)),
        // Anything may stand around the certificates.
        (
            "status.certificate",
            looks_like_a_token(&String::from_utf8_lossy(&object.status.certificate)),
        ),
    ];
    let wrong = fields.into_iter().filter(|(_, is_wrong)| *is_wrong);
    wrong
        .map(|(field, _)| FieldError::forbidden(field, NO_PLACE))
        .collect()
}

/// Leaves out what a client noted of an object whose request has a token in it: `kubectl apply` keeps the whole manifest.
pub(super) fn without_secrets(mut metadata: ObjectMeta) -> ObjectMeta {
    if let Some(applied) = metadata.annotations.get(LAST_APPLIED)
        && noted_request(applied).is_some_and(|text| !may_be_noted(&text))
    {
        metadata.annotations.remove(LAST_APPLIED);
    }
    metadata
}

/// Whether the text of a request may be kept: nothing in it is a secret.
pub(super) fn may_be_kept(text: &[u8], csr: &CheckedCsr) -> bool {
    masked(csr).is_none() && !looks_like_a_token(&String::from_utf8_lossy(text))
}

/// The same for what need not be a request at all.
fn may_be_noted(text: &[u8]) -> bool {
    match read_request(text) {
        Ok(csr) => may_be_kept(text, &csr),
        Err(_) => !looks_like_a_token(&String::from_utf8_lossy(text)),
    }
}

fn has_token(part: &impl Serialize) -> bool {
    serde_json::to_string(part).is_ok_and(|text| looks_like_a_token(&text))
}

/// The text of the request in a manifest.
fn noted_request(manifest: &str) -> Option<Vec<u8>> {
    let manifest: Value = serde_json::from_str(manifest).ok()?;
    let request = manifest.get("spec")?.get("request")?.as_str()?;
    // As API servers read it: line breaks do not count.
    let request: String = request.chars().filter(|c| !c.is_whitespace()).collect();
    STANDARD.decode(request).ok()
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const NO_PLACE: &str = "it has an enrolment token in it, which everybody would read here: revoke the token, mint another, \
                        and send that as the bearer token or in the request's attributes";
