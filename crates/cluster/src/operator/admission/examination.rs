//! What an object asks for, and what follows from that.

use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;
use tracing::warn;

use super::message::{CertificateFields, Object, PolicyFields, Request};
use super::{AdmissionKind, Answer, shown};
use crate::operator::object::{CertificateObject, GROUP, ObjectName, VERSION};
use crate::operator::order::{Order, is_host_name};

/// What follows from a review.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Answer(Answer),
    /// It depends on whether there is such a CertificateAuthority.
    LookFor(Reference),
}

/// A CertificateAuthority that an object names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) to: ObjectName,
    /// Where it is named.
    field: &'static str,
}

/// Answers a review, or says which CertificateAuthority has to be looked for.
pub(super) fn examine(kind: AdmissionKind, request: &Request<'_>, namespaces: &[String]) -> Step {
    let asked = &request.kind;
    if (&*asked.group, &*asked.version, &*asked.kind) != (GROUP, VERSION, kind.word()) {
        return unreadable(format!(
            "{} is for {} of {GROUP}/{VERSION}, not for {asked}: correct the ValidatingWebhookConfiguration",
            kind.path(),
            kind.word(),
        ));
    }
    let is_update = match &*request.operation {
        "CREATE" => false,
        "UPDATE" => true,
        "DELETE" => return Step::Answer(Answer::Allowed),
        other => {
            let other = shown(other);
            return unreadable(format!(
                "only CREATE and UPDATE can be checked, not {other:?}"
            ));
        }
    };
    if !namespaces.is_empty() && !namespaces.contains(&request.namespace) {
        // Somebody else looks after it.
        return Step::Answer(Answer::Allowed);
    }
    let field = match kind {
        AdmissionKind::Certificate => "spec.authorityRef",
        AdmissionKind::SigningPolicy => "spec.certificateAuthorityRef",
        AdmissionKind::CertificateAuthority => return Step::Answer(Answer::Allowed),
    };
    let object = match Object::read(request.object) {
        Ok(object) => object,
        Err(fault) => return unreadable(format!("the object cannot be read: {fault}")),
    };
    if object.metadata.deletion_timestamp.is_some() {
        return Step::Answer(Answer::Allowed);
    }
    let wanted = match Wanted::read(kind, &object) {
        Ok(wanted) => wanted,
        Err(fault) => return unreadable(format!("the object's spec cannot be read: {fault}")),
    };
    let before = match is_update {
        // One that cannot be read says nothing.
        true => Object::read(request.old_object)
            .and_then(|old| Wanted::read(kind, &old))
            .ok(),
        false => None,
    };
    let before = before.as_ref();
    if let Some(fault) = &wanted.fault
        && before.and_then(|before| before.fault.as_ref()) != Some(fault)
    {
        return forbidden(fault.clone());
    }
    if before.is_some_and(|before| before.authority == wanted.authority) {
        return Step::Answer(Answer::Allowed);
    }
    if wanted.authority.is_empty() {
        return forbidden(format!(
            "{field} is empty: name a CertificateAuthority of the same namespace"
        ));
    }
    let reference = Reference {
        to: ObjectName::new(&request.namespace, &wanted.authority),
        field,
    };
    // No object has another name, and no other name belongs into a path.
    match is_host_name(&wanted.authority) && is_host_name(&request.namespace) {
        true => Step::LookFor(reference),
        false => Step::Answer(reference.answer(Ok(false))),
    }
}

impl Reference {
    /// What follows from whether it is there.
    pub(super) fn answer(&self, found: Result<bool, String>) -> Answer {
        let Self { to, field } = self;
        let (name, namespace) = (shown(&to.name), shown(&to.namespace));
        match found {
            Ok(true) => Answer::Allowed,
            Ok(false) => Answer::forbidden(format!(
                "CertificateAuthority {name:?} does not exist in namespace {namespace:?}: create it first, or correct {field}"
            )),
            Err(fault) => {
                warn!(
                    authority = name,
                    namespace, fault, "cannot be looked for at admission"
                );
                Answer::Denied {
                    code: 503,
                    reason: "ServiceUnavailable",
                    message: format!(
                        "{field}: whether CertificateAuthority {name:?} exists in namespace {namespace:?} cannot be checked now ({fault}); try again"
                    ),
                }
            }
        }
    }
}

fn forbidden(message: String) -> Step {
    Step::Answer(Answer::forbidden(message))
}

fn unreadable(message: String) -> Step {
    Step::Answer(Answer::unreadable(message))
}

/// What an object asks for.
struct Wanted {
    authority: String,
    /// Why the operator would not act on it, in words.
    fault: Option<String>,
}

impl Wanted {
    fn read(kind: AdmissionKind, object: &Object<'_>) -> Result<Self, serde_json::Error> {
        let spec = object.spec.map_or("{}", RawValue::get);
        match kind {
            AdmissionKind::Certificate => {
                let fields: CertificateFields = serde_json::from_str(spec)?;
                // As the operator reads it, by its own code. It asks for a name, which does not matter here.
                let object = json!({"metadata": {"name": "any"}, "spec": fields});
                let fault = CertificateObject::read(&object)
                    .and_then(|certificate| Order::read(&certificate.spec, &[]).err());
                Ok(Self {
                    authority: fields.authority_ref.unwrap_or_default(),
                    fault: fault.map(|fault| fault.to_string()),
                })
            }
            AdmissionKind::SigningPolicy => {
                let fields: PolicyFields = serde_json::from_str(spec)?;
                Ok(Self {
                    authority: fields.certificate_authority_ref.unwrap_or_default(),
                    fault: None,
                })
            }
            AdmissionKind::CertificateAuthority => {
                serde_json::from_str::<IgnoredAny>(spec)?;
                Ok(Self {
                    authority: String::new(),
                    fault: None,
                })
            }
        }
    }
}
