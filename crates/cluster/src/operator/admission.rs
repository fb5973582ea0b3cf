//! Admission of the operator's objects: what the rules of their definitions cannot see, which is whether the
//! CertificateAuthority that an object names exists.
//!
//! [`examine`] is a plain function: it answers a review, or says which CertificateAuthority has to be looked for. Nothing is
//! in the way of what is being deleted, and a change to an object is judged by what it changes: an object that was stored
//! before its CertificateAuthority went, or before there was a webhook, can be worked on and finalized.
//!
//! Whoever reaches the listener may send anything. Only the few fields that count are kept of an object, and they are let
//! go before the API server is asked.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::calls::{Calls, Kind};
use super::object::{CertificateObject, GROUP, ObjectName, VERSION};
use super::order::{Order, is_host_name};

/// A kind of objects that the API server asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionKind {
    /// A Certificate.
    Certificate,
    /// A CertificateAuthority.
    CertificateAuthority,
    /// A SigningPolicy.
    SigningPolicy,
}

impl AdmissionKind {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Self::Certificate,
        Self::CertificateAuthority,
        Self::SigningPolicy,
    ];

    /// Where the API server asks about it: the path of openvox-operator.
    pub fn path(self) -> &'static str {
        match self {
            Self::Certificate => "/validate-openvox-voxpupuli-org-v1alpha1-certificate",
            Self::CertificateAuthority => {
                "/validate-openvox-voxpupuli-org-v1alpha1-certificateauthority"
            }
            Self::SigningPolicy => "/validate-openvox-voxpupuli-org-v1alpha1-signingpolicy",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Certificate => Kind::Certificate,
            Self::CertificateAuthority => Kind::CertificateAuthority,
            Self::SigningPolicy => Kind::SigningPolicy,
        }
        .word()
    }
}

/// A review that cannot even be answered: nobody knows which one it is.
#[derive(Debug, thiserror::Error)]
pub enum ReviewFault {
    /// It is not an AdmissionReview.
    #[error("the body is not an AdmissionReview")]
    Unreadable(#[from] serde_json::Error),
    /// It asks for nothing.
    #[error("the AdmissionReview has no request with a uid")]
    NoRequest,
}

/// Answers a review. A CertificateAuthority is looked for at the API server itself, since what a watch has seen may be
/// older than the object in question.
pub(crate) async fn review(
    kind: AdmissionKind,
    body: &[u8],
    namespaces: &[String],
    calls: &Calls,
) -> Result<Vec<u8>, ReviewFault> {
    let (uid, step) = {
        let review: Review<'_> = serde_json::from_slice(body)?;
        let request = review.request.ok_or(ReviewFault::NoRequest)?;
        if request.uid.is_empty() {
            return Err(ReviewFault::NoRequest);
        }
        let step = match review.api_version == REVIEW_VERSION {
            true => examine(kind, &request, namespaces),
            false => Step::Answer(Answer::unreadable(format!(
                "an AdmissionReview of {REVIEW_VERSION} is needed, not of {}",
                shown(&review.api_version)
            ))),
        };
        (request.uid, step)
    };
    let answer = match step {
        Step::Answer(answer) => answer,
        Step::LookFor(reference) => {
            let looked = timeout(
                PATIENCE,
                calls.get(Kind::CertificateAuthority, &reference.to),
            );
            let found = match looked.await {
                Ok(found) => found
                    .map(|found| found.is_some())
                    .map_err(|fault| fault.to_string()),
                Err(_) => Err(format!(
                    "the API server does not answer within {} s",
                    PATIENCE.as_secs()
                )),
            };
            reference.answer(found)
        }
    };
    if let Answer::Denied { code, message, .. } = &answer {
        debug!(kind = kind.word(), code, message, "denied at admission");
    }
    Ok(answer.review(&uid).to_string().into_bytes())
}

/// What follows from a review.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Answer(Answer),
    /// It depends on whether there is such a CertificateAuthority.
    LookFor(Reference),
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Allowed,
    Denied {
        code: u16,
        reason: &'static str,
        message: String,
    },
}

/// A CertificateAuthority that an object names.
#[derive(Debug, PartialEq, Eq)]
struct Reference {
    to: ObjectName,
    /// Where it is named.
    field: &'static str,
}

fn examine(kind: AdmissionKind, request: &Request<'_>, namespaces: &[String]) -> Step {
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
    fn answer(&self, found: Result<bool, String>) -> Answer {
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

impl Answer {
    /// As openvox-operator's webhooks deny.
    fn forbidden(message: String) -> Self {
        Self::Denied {
            code: 403,
            reason: "Forbidden",
            message,
        }
    }

    fn unreadable(message: String) -> Self {
        Self::Denied {
            code: 400,
            reason: "BadRequest",
            message,
        }
    }

    fn review(&self, uid: &str) -> Value {
        let response = match self {
            Self::Allowed => json!({"uid": uid, "allowed": true}),
            Self::Denied {
                code,
                reason,
                message,
            } => json!({
                "uid": uid,
                "allowed": false,
                "status": {
                    "status": "Failure", "code": code, "reason": reason, "message": message,
                },
            }),
        };
        json!({"apiVersion": REVIEW_VERSION, "kind": "AdmissionReview", "response": response})
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

// Of everything that an API server sends, what counts. Objects stay text until it is known which parts are wanted.

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    kind: GroupVersionKind,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    namespace: String,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GroupVersionKind {
    group: String,
    version: String,
    kind: String,
}

impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            group,
            version,
            kind,
        } = self;
        let [group, version, kind] = [group, version, kind].map(|text| shown(text));
        write!(f, "{kind:?} of {:?}", format!("{group}/{version}"))
    }
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(default)]
    metadata: Metadata,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
}

impl<'a> Object<'a> {
    fn read(text: Option<&'a RawValue>) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text.map_or("null", RawValue::get))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificateFields {
    authority_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certname: Option<String>,
    #[serde(rename = "dnsAltNames")]
    dns_alt_names: Option<Vec<String>>,
    csr_extensions: Option<ExtensionFields>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExtensionFields {
    pp_cli_auth: Option<bool>,
    pp_role: Option<String>,
    pp_environment: Option<String>,
    custom_extensions: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolicyFields {
    certificate_authority_ref: Option<String>,
}

/// Enough of a text to recognise it by.
fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

const REVIEW_VERSION: &str = "admission.k8s.io/v1";
/// Less than the five seconds for which the API server waits as it is installed.
const PATIENCE: Duration = Duration::from_secs(3);
/// As long as the longest name.
const MAX_SHOWN: usize = 253;

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Response, StatusCode};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;
    use crate::api::Api;

    /// What the API server says when it is asked for a CertificateAuthority.
    #[derive(Clone, Copy)]
    enum Server {
        /// It is asked for nothing.
        Unasked,
        Has(&'static str),
        Refuses,
        Hangs,
    }

    fn calls(server: Server) -> Calls {
        let service = service_fn(move |request: http::Request<Body>| async move {
            let path = request.uri().path().to_owned();
            let collection =
                format!("/apis/{GROUP}/{VERSION}/namespaces/puppet/certificateauthorities/");
            let name = path.strip_prefix(&collection).unwrap_or_default();
            let (code, answer) = match server {
                Server::Unasked => panic!("nobody asks for {path}"),
                Server::Has(there) if name == there => (200, json!({"metadata": {"name": there}})),
                Server::Has(_) => (
                    404,
                    json!({"kind": "Status", "code": 404, "reason": "NotFound"}),
                ),
                Server::Refuses => (
                    403,
                    json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no role"}),
                ),
                Server::Hangs => std::future::pending().await,
            };
            let answer = Response::builder()
                .status(StatusCode::from_u16(code).unwrap())
                .body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        });
        Calls::new(Api::of_client(kube::Client::new(service, "ns")))
    }

    fn asked(kind: &str, operation: &str, object: Value, old: Value) -> Value {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u1", "kind": {"group": GROUP, "version": VERSION, "kind": kind},
                "operation": operation, "namespace": "puppet", "object": object, "oldObject": old,
            },
        })
    }

    /// `allowed`, or the code and the message.
    async fn answered(kind: AdmissionKind, asked: &Value, server: Server) -> String {
        let body = asked.to_string();
        let answer = review(
            kind,
            body.as_bytes(),
            &["puppet".to_owned()],
            &calls(server),
        )
        .await;
        let answer: Value = serde_json::from_slice(&answer.unwrap()).unwrap();
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(answer["kind"], "AdmissionReview");
        let response = &answer["response"];
        assert_eq!(response["uid"], "u1");
        match response["allowed"].as_bool().unwrap() {
            true => "allowed".to_owned(),
            false => {
                let status = &response["status"];
                format!("{} {}", status["code"], status["message"].as_str().unwrap())
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_needs_a_ca_that_exists_and_an_order_that_can_be_issued() {
        use Server::{Hangs, Has, Refuses, Unasked};
        let certificate =
            |spec: Value| json!({"metadata": {"name": "web", "namespace": "puppet"}, "spec": spec});
        let of = |ca: &str| certificate(json!({"authorityRef": ca, "certname": "web"}));
        let deleted = |ca: &str| {
            let mut object = of(ca);
            object["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
            object
        };
        let with = |more: Value| {
            let mut object = of("ca");
            for (key, value) in more.as_object().unwrap() {
                object["spec"][key] = value.clone();
            }
            object
        };
        let custom = |name: &str| with(json!({"csrExtensions": {"customExtensions": {name: "x"}}}));
        let none = Value::Null;
        for (case, operation, object, old, server, expected) in [
            (
                "the CA is there",
                "CREATE",
                of("ca"),
                none.clone(),
                Has("ca"),
                "allowed",
            ),
            (
                "there is another one",
                "CREATE",
                of("ca"),
                none.clone(),
                Has("other"),
                "403 CertificateAuthority \"ca\" does not exist in namespace \"puppet\": create it first, or correct spec.authorityRef",
            ),
            (
                "it is named anew",
                "UPDATE",
                of("ca"),
                of("other"),
                Has("ca"),
                "allowed",
            ),
            (
                "it is named anew, and wrongly",
                "UPDATE",
                of("ca"),
                of("other"),
                Has("x"),
                "403 CertificateAuthority \"ca\" does not exist",
            ),
            (
                "it has gone meanwhile",
                "UPDATE",
                of("ca"),
                of("ca"),
                Unasked,
                "allowed",
            ),
            (
                "a finalizer goes",
                "UPDATE",
                deleted("ca"),
                of("ca"),
                Unasked,
                "allowed",
            ),
            (
                "a finalizer and all else",
                "UPDATE",
                deleted("b"),
                of("ca"),
                Unasked,
                "allowed",
            ),
            (
                "deletion",
                "DELETE",
                none.clone(),
                of("ca"),
                Unasked,
                "allowed",
            ),
            (
                "deleted, with a spec that nobody can read",
                "UPDATE",
                {
                    let mut object = deleted("ca");
                    object["spec"] = json!({"authorityRef": 1});
                    object
                },
                none.clone(),
                Unasked,
                "allowed",
            ),
            (
                "no name",
                "CREATE",
                of(""),
                none.clone(),
                Unasked,
                "403 spec.authorityRef is empty: name a CertificateAuthority",
            ),
            (
                "no spec",
                "CREATE",
                json!({"metadata": {}}),
                none.clone(),
                Unasked,
                "403 spec.authorityRef is empty",
            ),
            (
                "still no spec",
                "UPDATE",
                json!({"metadata": {}}),
                json!({"metadata": {}}),
                Unasked,
                "allowed",
            ),
            (
                "a name that leads elsewhere",
                "CREATE",
                of("../configs/ca"),
                none.clone(),
                Unasked,
                "403 CertificateAuthority \"../configs/ca\" does not exist",
            ),
            (
                "the default certname",
                "CREATE",
                certificate(json!({"authorityRef": "ca"})),
                none.clone(),
                Has("ca"),
                "allowed",
            ),
            (
                "nulls",
                "CREATE",
                with(json!({"dnsAltNames": null, "csrExtensions": null})),
                none.clone(),
                Has("ca"),
                "allowed",
            ),
            (
                "an order that is refused",
                "CREATE",
                with(json!({"certname": "Web"})),
                none.clone(),
                Unasked,
                "403 spec.certname \"Web\" is not a host name",
            ),
            (
                "an empty certname",
                "CREATE",
                with(json!({"certname": ""})),
                none.clone(),
                Unasked,
                "403 spec.certname is empty",
            ),
            (
                "a wildcard",
                "CREATE",
                with(json!({"dnsAltNames": ["*.a"]})),
                none.clone(),
                Unasked,
                "403 spec.dnsAltNames: \"*.a\" is neither",
            ),
            (
                "an unknown extension",
                "CREATE",
                custom("bogus"),
                none.clone(),
                Unasked,
                "403 spec.csrExtensions.customExtensions: unknown extension \"bogus\"",
            ),
            (
                "one with a field of its own",
                "CREATE",
                custom("pp_role"),
                none.clone(),
                Unasked,
                "use ppRole",
            ),
            (
                "an order that becomes bad",
                "UPDATE",
                custom("bogus"),
                of("ca"),
                Unasked,
                "403 spec.csrExtensions",
            ),
            (
                "one that stays as bad",
                "UPDATE",
                custom("bogus"),
                custom("bogus"),
                Unasked,
                "allowed",
            ),
            (
                "one that becomes worse",
                "UPDATE",
                custom("bogus"),
                custom("pp_role"),
                Unasked,
                "403 spec.csrExtensions",
            ),
            (
                "an old object that cannot be read",
                "UPDATE",
                of("ca"),
                json!("x"),
                Has("ca"),
                "allowed",
            ),
            (
                "no permission",
                "CREATE",
                of("ca"),
                none.clone(),
                Refuses,
                "503 spec.authorityRef: whether CertificateAuthority \"ca\" exists in namespace \"puppet\" cannot be checked now (not permitted: no role); try again",
            ),
            (
                "no answer",
                "CREATE",
                of("ca"),
                none.clone(),
                Hangs,
                "does not answer within 3 s); try again",
            ),
            (
                "nothing",
                "CREATE",
                none.clone(),
                none.clone(),
                Unasked,
                "400 the object cannot be read",
            ),
            (
                "a list",
                "CREATE",
                json!([1]),
                none.clone(),
                Unasked,
                "400 the object cannot be read",
            ),
            (
                "a number for a name",
                "CREATE",
                with(json!({"certname": 1})),
                none.clone(),
                Unasked,
                "400 the object's spec cannot be read",
            ),
            (
                "another operation",
                "CONNECT",
                of("ca"),
                none.clone(),
                Unasked,
                "400 only CREATE and UPDATE can be checked, not \"CONNECT\"",
            ),
        ] {
            let asked = asked("Certificate", operation, object, old);
            let answer = answered(AdmissionKind::Certificate, &asked, server).await;
            assert!(answer.contains(expected), "{case}: {answer}");
        }
    }

    #[tokio::test]
    async fn a_signing_policy_needs_a_ca_and_a_ca_needs_nothing() {
        use Server::{Has, Unasked};
        let policy = |ca: &str| json!({"metadata": {}, "spec": {"certificateAuthorityRef": ca, "dnsAltNames": {"allow": ["*"]}}});
        for (kind, word, object, old, server, expected) in [
            (
                AdmissionKind::SigningPolicy,
                "SigningPolicy",
                policy("ca"),
                Value::Null,
                Has("ca"),
                "allowed",
            ),
            (
                AdmissionKind::SigningPolicy,
                "SigningPolicy",
                policy("ca"),
                Value::Null,
                Has("other"),
                "403 CertificateAuthority \"ca\" does not exist in namespace \"puppet\": create it first, or correct spec.certificateAuthorityRef",
            ),
            (
                AdmissionKind::SigningPolicy,
                "SigningPolicy",
                policy("ca"),
                policy("ca"),
                Unasked,
                "allowed",
            ),
            (
                AdmissionKind::CertificateAuthority,
                "CertificateAuthority",
                json!({"spec": {"ttl": 1}}),
                Value::Null,
                Unasked,
                "allowed",
            ),
            (
                AdmissionKind::CertificateAuthority,
                "Certificate",
                json!({}),
                Value::Null,
                Unasked,
                "400 /validate-openvox-voxpupuli-org-v1alpha1-certificateauthority is for CertificateAuthority",
            ),
            (
                AdmissionKind::SigningPolicy,
                "Pool",
                json!({}),
                Value::Null,
                Unasked,
                "not for \"Pool\" of \"openvox.voxpupuli.org/v1alpha1\"",
            ),
        ] {
            let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
            let asked = asked(word, operation, object, old);
            let answer = answered(kind, &asked, server).await;
            assert!(answer.contains(expected), "{word}: {answer}");
        }
    }

    #[tokio::test]
    async fn other_versions_are_denied_and_other_namespaces_are_somebody_elses() {
        let object = json!({"metadata": {}, "spec": {"authorityRef": "ca"}});
        let good = asked("Certificate", "CREATE", object, Value::Null);
        for (pointer, value, expected) in [
            ("/request/kind/version", "v1beta1", "400 "),
            ("/request/kind/group", "cert-manager.io", "400 "),
            (
                "/apiVersion",
                "admission.k8s.io/v1beta1",
                "400 an AdmissionReview of admission.k8s.io/v1 is needed",
            ),
            ("/request/namespace", "shop", "allowed"),
        ] {
            let mut asked = good.clone();
            *asked.pointer_mut(pointer).unwrap() = json!(value);
            let answer = answered(AdmissionKind::Certificate, &asked, Server::Unasked).await;
            assert!(answer.contains(expected), "{pointer}: {answer}");
        }
    }

    #[tokio::test]
    async fn what_is_no_review_is_not_answered() {
        let deep = format!("{{\"request\": {}", "[".repeat(1_000_000));
        let deep_object = format!(
            "{{\"request\": {{\"uid\": \"u\", \"object\": {}1{}}}}}",
            "[".repeat(500_000),
            "]".repeat(500_000)
        );
        for (text, expected) in [
            ("", "not an AdmissionReview"),
            ("[]", "not an AdmissionReview"),
            ("{}", "no request with a uid"),
            (r#"{"request": {"uid": ""}}"#, "no request with a uid"),
            (r#"{"request": {"uid": 1}}"#, "not an AdmissionReview"),
            (
                r#"{"request": {"uid": "a", "uid": "b"}}"#,
                "not an AdmissionReview",
            ),
            (&deep, "not an AdmissionReview"),
        ] {
            let kind = AdmissionKind::Certificate;
            let answer = review(kind, text.as_bytes(), &[], &calls(Server::Unasked)).await;
            let fault = answer.unwrap_err().to_string();
            assert!(fault.contains(expected), "{fault}");
        }
        // Depth costs nothing where nobody looks.
        let kind = AdmissionKind::Certificate;
        let answer = review(kind, deep_object.as_bytes(), &[], &calls(Server::Unasked)).await;
        let answer: Value = serde_json::from_slice(&answer.unwrap()).unwrap();
        assert_eq!(answer["response"]["allowed"], false);
    }
}
