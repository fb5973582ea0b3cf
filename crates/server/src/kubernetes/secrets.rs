//! Enrolment tokens and bootstrap tokens in places of an object that everybody reads who reads the object.
//!
//! What was mistaken for a name, a label or a note is refused, and not repeated. What a client adds by itself is left out.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_authority::store::StoreFault;
use countersign_authority::{
    BootstrapId, Tokens, bootstrap_ids_in, looks_like_a_token, masked_bootstrap_tokens,
};
use countersign_kapi::kind::Kind;
use countersign_kapi::{CertificateSigningRequest, FieldError, ObjectMeta, Resource};
use countersign_pki::{CheckedCsr, masked};
use serde::Serialize;
use serde_json::Value;

use super::answer::Refusal;
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

/// Refuses an object in which a bootstrap token stands that was not in it before. Their form is not rare, so only those
/// count that somebody has minted.
///
/// # Errors
/// Says in which field, or that the store fails.
pub(super) async fn refuse_bootstrap_tokens(
    tokens: &Tokens,
    old: Option<&CertificateSigningRequest>,
    new: &CertificateSigningRequest,
) -> Result<(), Refusal> {
    let known = old.into_iter().flat_map(bootstrap_ids);
    let known = known.flat_map(|(_, ids)| ids).collect();
    let errors = bootstrap_faults(tokens, &known, bootstrap_ids(new)).await?;
    match errors.as_slice() {
        [] => Ok(()),
        errors => {
            let name = masked_bootstrap_tokens(&new.metadata.name);
            Err(Resource::CSR.invalid(&name, errors).into())
        }
    }
}

/// The same for a role or a binding.
///
/// # Errors
/// Says that there is one, or that the store fails.
pub(super) async fn refuse_bootstrap_tokens_in<T: Kind>(
    tokens: &Tokens,
    old: Option<&T>,
    new: &T,
) -> Result<(), Refusal> {
    let known = old.map(ids_in).unwrap_or_default();
    let errors = bootstrap_faults(tokens, &known, [("metadata", ids_in(new))]).await?;
    match errors.as_slice() {
        [] => Ok(()),
        errors => {
            let name = masked_bootstrap_tokens(&new.metadata().name);
            Err(T::RESOURCE.invalid(&name, errors).into())
        }
    }
}

/// The fields in which a token stands that is not among the `known`.
async fn bootstrap_faults(
    tokens: &Tokens,
    known: &BTreeSet<BootstrapId>,
    fields: impl IntoIterator<Item = (&'static str, BTreeSet<BootstrapId>)>,
) -> Result<Vec<FieldError>, StoreFault> {
    let (mut errors, mut looks) = (Vec::new(), 0_usize);
    for (field, ids) in fields {
        for id in ids.difference(known) {
            looks = looks.saturating_add(1);
            if looks > MAX_LOOKS {
                errors.push(FieldError::forbidden(field, TOO_MANY));
                return Ok(errors);
            }
            if tokens.get_bootstrap(id).await?.is_some() {
                errors.push(FieldError::forbidden(field, NO_BOOTSTRAP));
                break;
            }
        }
    }
    Ok(errors)
}

/// What has the form of a bootstrap token, by field.
fn bootstrap_ids(object: &CertificateSigningRequest) -> [(&'static str, BTreeSet<BootstrapId>); 4] {
    let certificate = String::from_utf8_lossy(&object.status.certificate);
    [
        ("metadata", ids_in(&object.metadata)),
        (
            "spec.signerName",
            bootstrap_ids_in(&object.spec.signer_name),
        ),
        ("status.conditions", ids_in(&object.status.conditions)),
        ("status.certificate", bootstrap_ids_in(&certificate)),
    ]
}

fn ids_in(part: &impl Serialize) -> BTreeSet<BootstrapId> {
    let text = serde_json::to_string(part).unwrap_or_default();
    bootstrap_ids_in(&text)
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

/// Look-ups for one object. Nobody writes so many host names of this form.
const MAX_LOOKS: usize = 64;
const TOO_MANY: &str =
    "it has too many words in it that have the form of bootstrap tokens: leave some out";
const NO_BOOTSTRAP: &str = "it has a bootstrap token in it, which everybody would read here: revoke the token, mint another, and \
                            send that as the bearer token";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const NO_PLACE: &str = "it has an enrolment token in it, which everybody would read here: revoke the token, mint another, \
                        and send that as the bearer token or in the request's attributes";
