//! Review messages: who am I, may I, may they (`authentication.k8s.io/v1`, `authorization.k8s.io/v1`).
//!
//! Reviews are not stored: a client posts one and gets it back with its `status` filled in.

#![expect(
    clippy::indexing_slicing,
    reason = "fields are set on objects made here, never on input"
)]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::decode::{self, DecodeFault};
use crate::field::FieldError;
use crate::meta::ObjectMeta;
use crate::model::UserInfo;
use crate::negotiate::BodyFormat;
use crate::protobuf::{self, Envelope, ProtobufFault};
use crate::rbac::{PolicyRule, ResourceAction};
use crate::status::Resource;
use crate::wire::{Budget, Fields, WireFault};
use crate::{MAX_BODY_BYTES, MAX_BODY_VALUES};

/// Which review a path takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewKind {
    /// Who am I?
    SelfSubject,
    /// May I do this?
    SelfAccess,
    /// May somebody do this?
    Access,
    /// May somebody do this in one namespace?
    LocalAccess,
    /// What may I do?
    SelfRules,
}

/// A review as it was sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Review {
    /// Empty, if the review is as it should be: nothing is stored.
    pub metadata: ObjectMeta,
    /// What it asks.
    pub spec: ReviewSpec,
}

/// What a review asks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReviewSpec {
    /// An action on a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_attributes: Option<ResourceAttributes>,
    /// An action on another path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub non_resource_attributes: Option<NonResourceAttributes>,
    /// Whose rights are in question, where not the sender's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// That user's groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Further facts about that user.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
    /// That user's id.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Namespace of a rules review.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// An action on a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceAttributes {
    /// Namespace; kubectl fills it for cluster-wide resources too.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Verb.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub verb: String,
    /// API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// API version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// Subresource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// Name of the object; empty means all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// An action on a path that is no resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NonResourceAttributes {
    /// Path.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Verb: an HTTP method in lower case.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub verb: String,
}

/// One rule in the answer to a rules review.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceRule<'a> {
    verbs: &'a [String],
    api_groups: &'a [String],
    resources: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    resource_names: &'a [String],
}

impl ResourceAttributes {
    /// The action that is asked for. kubectl does not know that `signers` is a resource, and writes its group into the
    /// name.
    #[must_use]
    pub fn action(&self) -> ResourceAction<'_> {
        let (group, resource) = match self.is_signer_in_one_word() {
            true => (crate::GROUP, "signers"),
            false => (self.group.as_str(), self.resource.as_str()),
        };
        ResourceAction {
            verb: &self.verb,
            group,
            resource,
            subresource: &self.subresource,
            name: &self.name,
            namespace: &self.namespace,
        }
    }

    /// Whether kubectl asks about a signer (`kubectl auth can-i approve signers.certificates.k8s.io/example.com/a`).
    #[must_use]
    pub fn is_signer_in_one_word(&self) -> bool {
        self.group.is_empty() && self.resource == "signers.certificates.k8s.io"
    }
}

impl ReviewKind {
    /// Kind of the message.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::SelfSubject => "SelfSubjectReview",
            Self::SelfAccess => "SelfSubjectAccessReview",
            Self::Access => "SubjectAccessReview",
            Self::LocalAccess => "LocalSubjectAccessReview",
            Self::SelfRules => "SelfSubjectRulesReview",
        }
    }

    /// Group and version of the message.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::SelfSubject => "authentication.k8s.io/v1",
            Self::SelfAccess | Self::Access | Self::LocalAccess | Self::SelfRules => {
                "authorization.k8s.io/v1"
            }
        }
    }

    /// As errors and access rules name it.
    #[must_use]
    pub fn resource(self) -> Resource<'static> {
        let (group, resource) = match self {
            Self::SelfSubject => ("authentication.k8s.io", "selfsubjectreviews"),
            Self::SelfAccess => ("authorization.k8s.io", "selfsubjectaccessreviews"),
            Self::Access => ("authorization.k8s.io", "subjectaccessreviews"),
            Self::LocalAccess => ("authorization.k8s.io", "localsubjectaccessreviews"),
            Self::SelfRules => ("authorization.k8s.io", "selfsubjectrulesreviews"),
        };
        Resource {
            group,
            resource,
            kind: self.kind(),
        }
    }

    /// Reads what a review asks.
    ///
    /// # Errors
    /// Says why the body is no such review.
    pub fn decode(self, body: &[u8], format: BodyFormat) -> Result<Review, DecodeFault> {
        if body.len() > MAX_BODY_BYTES {
            return Err(DecodeFault::TooLarge);
        }
        match format {
            BodyFormat::Json | BodyFormat::Yaml => {
                let mut root = decode::parse_text(body, format, self.kind())?.root;
                let text = |name: &str| {
                    root.get(name)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .to_owned()
                };
                self.expect(&text("kind"), &text("apiVersion"))?;
                let mut part = |name: &str| {
                    let part = root.get_mut(name).map(Value::take);
                    let mut part = part.filter(|part| !part.is_null()).unwrap_or(json!({}));
                    drop_nulls(&mut part);
                    part
                };
                let fault = |cause| DecodeFault::Json {
                    kind: self.kind(),
                    cause,
                };
                Ok(Review {
                    metadata: serde_json::from_value(part("metadata")).map_err(fault)?,
                    spec: serde_json::from_value(part("spec")).map_err(fault)?,
                })
            }
            BodyFormat::Protobuf => {
                let fault = |cause| DecodeFault::Protobuf {
                    kind: self.kind(),
                    cause,
                };
                let envelope = Envelope::read(body).map_err(fault)?;
                self.expect(envelope.kind, envelope.api_version)?;
                self.read(envelope.raw)
                    .map_err(|wire| fault(ProtobufFault::Object(wire)))
            }
        }
    }

    /// What is wrong with the question of an access review; a server answers 422.
    #[must_use]
    pub fn validate(self, review: &Review) -> Vec<FieldError> {
        let Review { metadata, spec } = review;
        let mut errors = Vec::new();
        if matches!(self, Self::SelfAccess | Self::Access | Self::LocalAccess) {
            match (&spec.resource_attributes, &spec.non_resource_attributes) {
                (Some(_), Some(_)) => errors.push(FieldError::invalid(
                    "spec.nonResourceAttributes",
                    json!(spec.non_resource_attributes),
                    "cannot be specified in combination with resourceAttributes",
                )),
                (None, None) => errors.push(FieldError::invalid(
                    "spec.resourceAttributes",
                    json!(spec.resource_attributes),
                    "exactly one of nonResourceAttributes or resourceAttributes must be specified",
                )),
                _ => {}
            }
        }
        if matches!(self, Self::Access | Self::LocalAccess)
            && spec.user.is_empty()
            && spec.groups.is_empty()
        {
            errors.push(FieldError::invalid(
                "spec.user",
                "",
                "at least one of user or group must be specified",
            ));
        }
        let detail = match self {
            Self::SelfAccess | Self::Access => "must be empty",
            Self::LocalAccess => "must be empty except for namespace",
            Self::SelfSubject | Self::SelfRules => return errors,
        };
        let mut rest = metadata.clone();
        rest.managed_fields.clear();
        if self == Self::LocalAccess {
            rest.namespace.clear();
        }
        if rest != ObjectMeta::default() {
            errors.push(FieldError::invalid("metadata", json!(metadata), detail));
        }
        if self == Self::LocalAccess {
            errors.extend(local_faults(metadata, spec));
        }
        errors
    }

    fn expect(self, kind: &str, version: &str) -> Result<(), DecodeFault> {
        let known = (kind.is_empty() || kind == self.kind())
            && (version.is_empty() || version == self.api_version());
        if known {
            Ok(())
        } else {
            Err(DecodeFault::Kind {
                found: kind.to_owned(),
                version: version.to_owned(),
            })
        }
    }

    fn read(self, raw: &[u8]) -> Result<Review, WireFault> {
        let (mut metadata, mut spec) = (ObjectMeta::default(), ReviewSpec::default());
        let mut budget = Budget::new(MAX_BODY_VALUES);
        let mut fields = Fields::of(raw);
        while let Some(field) = fields.next()? {
            match (self, field.number) {
                (_, 1) => protobuf::meta(field.bytes()?, &mut metadata, &mut budget)?,
                (Self::SelfRules, 2) => {
                    let mut inner = Fields::of(field.bytes()?);
                    while let Some(part) = inner.next()? {
                        if part.number == 1 {
                            spec.namespace = part.string()?;
                        }
                    }
                }
                (Self::SelfAccess | Self::Access | Self::LocalAccess, 2) => {
                    access_spec(field.bytes()?, &mut spec, &mut budget)?
                }
                _ => {}
            }
        }
        Ok(Review { metadata, spec })
    }

    fn answer(self, spec: Option<&ReviewSpec>, status: Value) -> Value {
        let mut answer =
            json!({"kind": self.kind(), "apiVersion": self.api_version(), "metadata": {}});
        if let Some(spec) = spec {
            answer["spec"] = json!(spec);
        }
        answer["status"] = status;
        answer
    }
}

/// Answers `SelfSubjectReview`.
#[must_use]
pub fn who_am_i(user: &UserInfo) -> Value {
    ReviewKind::SelfSubject.answer(None, json!({"userInfo": user}))
}

/// Answers an access review.
#[must_use]
pub fn access(kind: ReviewKind, spec: &ReviewSpec, allowed: bool, reason: &str) -> Value {
    let mut status = json!({"allowed": allowed});
    if !reason.is_empty() {
        status["reason"] = json!(reason);
    }
    kind.answer(Some(spec), status)
}

/// Answers a rules review: the rules that apply, and what kept others from being found.
#[must_use]
pub fn rules<'a>(rules: impl IntoIterator<Item = &'a PolicyRule>, faults: &[String]) -> Value {
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in rules {
        if !rule.resources.is_empty() {
            resources.push(ResourceRule {
                verbs: &rule.verbs,
                api_groups: &rule.api_groups,
                resources: &rule.resources,
                resource_names: &rule.resource_names,
            });
        }
        if !rule.non_resource_urls.is_empty() {
            let urls = &rule.non_resource_urls;
            paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": urls}));
        }
    }
    let mut status =
        json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    match faults {
        [] => {}
        [one] => status["evaluationError"] = json!(one),
        several => status["evaluationError"] = json!(format!("[{}]", several.join(", "))),
    }
    ReviewKind::SelfRules.answer(Some(&ReviewSpec::default()), status)
}

/// A local review is about its own namespace and nothing else.
fn local_faults(metadata: &ObjectMeta, spec: &ReviewSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let asked = spec.resource_attributes.as_ref();
    if let Some(asked) = asked.filter(|asked| asked.namespace != metadata.namespace) {
        errors.push(FieldError::invalid(
            "spec.resourceAttributes.namespace",
            asked.namespace.as_str(),
            "must match metadata.namespace",
        ));
    }
    if spec.non_resource_attributes.is_some() {
        errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            json!(spec.non_resource_attributes),
            "disallowed on this kind of request",
        ));
    }
    errors
}

fn access_spec(raw: &[u8], spec: &mut ReviewSpec, budget: &mut Budget) -> Result<(), WireFault> {
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => resource(
                field.bytes()?,
                spec.resource_attributes.get_or_insert_default(),
            )?,
            2 => {
                let attributes = spec.non_resource_attributes.get_or_insert_default();
                let mut inner = Fields::of(field.bytes()?);
                while let Some(part) = inner.next()? {
                    match part.number {
                        1 => attributes.path = part.string()?,
                        2 => attributes.verb = part.string()?,
                        _ => {}
                    }
                }
            }
            3 => spec.user = field.string()?,
            4 => protobuf::push(&mut spec.groups, field.string()?, budget)?,
            5 => protobuf::extra(field, &mut spec.extra, budget)?,
            6 => spec.uid = field.string()?,
            _ => {}
        }
    }
    Ok(())
}

fn resource(raw: &[u8], attributes: &mut ResourceAttributes) -> Result<(), WireFault> {
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => attributes.namespace = field.string()?,
            2 => attributes.verb = field.string()?,
            3 => attributes.group = field.string()?,
            4 => attributes.version = field.string()?,
            5 => attributes.resource = field.string()?,
            6 => attributes.subresource = field.string()?,
            7 => attributes.name = field.string()?,
            _ => {}
        }
    }
    Ok(())
}

fn drop_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, value| !value.is_null());
        map.values_mut().for_each(drop_nulls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Writer;

    #[test]
    fn json_and_protobuf_ask_the_same() {
        let body = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
            "metadata": {"creationTimestamp": null}, "status": {"allowed": false},
            "spec": {"resourceAttributes": {"namespace": "default", "verb": "create", "group": "certificates.k8s.io",
                "resource": "certificatesigningrequests"}, "nonResourceAttributes": null}});
        let from_json = ReviewKind::SelfAccess
            .decode(body.to_string().as_bytes(), BodyFormat::Json)
            .unwrap();
        let mut raw = Writer::default();
        raw.message(1, |_| {});
        raw.message(2, |spec| {
            spec.message(1, |attributes| {
                attributes.text(1, "default");
                attributes.text(2, "create");
                attributes.text(3, "certificates.k8s.io");
                attributes.text(5, "certificatesigningrequests");
            });
        });
        let raw = raw.into_bytes();
        let body = Envelope {
            api_version: "authorization.k8s.io/v1",
            kind: "SelfSubjectAccessReview",
            raw: &raw,
        }
        .write();
        assert_eq!(
            ReviewKind::SelfAccess
                .decode(&body, BodyFormat::Protobuf)
                .unwrap(),
            from_json
        );
        assert_eq!(
            from_json.spec.resource_attributes.as_ref().unwrap().verb,
            "create"
        );
        assert_eq!(ReviewKind::SelfAccess.validate(&from_json), vec![]);
        assert!(
            ReviewKind::SelfRules
                .decode(&body, BodyFormat::Protobuf)
                .is_err()
        );
    }

    #[test]
    fn incomplete_questions_are_refused() {
        let fields = |kind: ReviewKind, spec: &ReviewSpec| -> Vec<String> {
            let review = Review {
                spec: spec.clone(),
                ..Review::default()
            };
            kind.validate(&review)
                .into_iter()
                .map(|error| error.field)
                .collect()
        };
        assert_eq!(
            fields(ReviewKind::SelfAccess, &ReviewSpec::default()),
            ["spec.resourceAttributes"]
        );
        let both = ReviewSpec {
            resource_attributes: Some(ResourceAttributes::default()),
            non_resource_attributes: Some(NonResourceAttributes::default()),
            ..ReviewSpec::default()
        };
        assert_eq!(
            fields(ReviewKind::Access, &both),
            ["spec.nonResourceAttributes", "spec.user"]
        );
        assert_eq!(
            fields(ReviewKind::SelfRules, &ReviewSpec::default()),
            Vec::<String>::new()
        );
    }

    #[test]
    fn nothing_is_stored_so_nothing_is_named() {
        let rows: &[(ReviewKind, Value, &str, &[&str])] = &[
            (ReviewKind::SelfAccess, json!({}), "", &[]),
            (
                ReviewKind::SelfAccess,
                json!({"creationTimestamp": null}),
                "",
                &[],
            ),
            (
                ReviewKind::SelfAccess,
                json!({"name": "a"}),
                "",
                &["metadata"],
            ),
            (
                ReviewKind::Access,
                json!({"labels": {"a": "b"}}),
                "",
                &["metadata"],
            ),
            (ReviewKind::LocalAccess, json!({"namespace": "a"}), "a", &[]),
            (
                ReviewKind::LocalAccess,
                json!({"namespace": "a", "name": "b"}),
                "a",
                &["metadata"],
            ),
            (
                ReviewKind::LocalAccess,
                json!({"namespace": "a"}),
                "b",
                &["spec.resourceAttributes.namespace"],
            ),
        ];
        for (kind, metadata, namespace, expected) in rows {
            let body = json!({"metadata": metadata, "spec": {"user": "jane",
                "resourceAttributes": {"verb": "get", "namespace": namespace}}});
            let review = kind
                .decode(body.to_string().as_bytes(), BodyFormat::Json)
                .unwrap();
            let fields: Vec<String> = kind
                .validate(&review)
                .into_iter()
                .map(|error| error.field)
                .collect();
            assert_eq!(fields, *expected, "{body}");
        }
    }

    #[test]
    fn signers_are_understood_as_kubectl_asks_for_them() {
        let asked: ResourceAttributes =
            serde_json::from_value(json!({"verb": "approve", "namespace": "default",
            "resource": "signers.certificates.k8s.io", "name": "example.com/a"}))
            .unwrap();
        let action = asked.action();
        assert_eq!(
            (action.group, action.resource, action.name),
            ("certificates.k8s.io", "signers", "example.com/a")
        );
    }

    #[test]
    fn answers_have_their_shape() {
        let user = UserInfo {
            username: "jane".into(),
            groups: vec!["system:authenticated".into()],
            ..UserInfo::default()
        };
        assert_eq!(
            who_am_i(&user),
            json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {},
                "status": {"userInfo": {"username": "jane", "groups": ["system:authenticated"]}}})
        );
        let answer = access(
            ReviewKind::Access,
            &ReviewSpec {
                user: "jane".into(),
                ..ReviewSpec::default()
            },
            true,
            "rule",
        );
        assert_eq!(answer["status"], json!({"allowed": true, "reason": "rule"}));
        assert_eq!(answer["spec"], json!({"user": "jane"}));
        let given: Vec<PolicyRule> = serde_json::from_value(json!([
            {"verbs": ["get"], "nonResourceURLs": ["/version"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]))
        .unwrap();
        assert_eq!(
            rules(&given, &["a".to_owned(), "b".to_owned()]),
            json!({"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "spec": {},
                "status": {"incomplete": false, "evaluationError": "[a, b]",
                    "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/version"]}],
                    "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]}})
        );
    }
}
