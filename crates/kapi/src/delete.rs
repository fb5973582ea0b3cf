//! Options of a deletion, in the body or in the query.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::decode::{self, DecodeFault};
use crate::field::FieldError;
use crate::kind::Kind;
use crate::negotiate::BodyFormat;
use crate::options::{self, FieldValidation};
use crate::protobuf::{self, Envelope, ProtobufFault};
use crate::schema::DELETE_OPTIONS;
use crate::status::Status;
use crate::wire::{Budget, Fields, WireFault};
use crate::{MAX_BODY_BYTES, MAX_BODY_VALUES};

/// How to delete an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeleteOptions {
    /// Without effect on this resource.
    pub grace_period_seconds: Option<i64>,
    /// What must hold.
    pub preconditions: Preconditions,
    /// Older form of `propagation_policy`.
    pub orphan_dependents: Option<bool>,
    /// `Orphan`, `Background` or `Foreground`.
    pub propagation_policy: Option<String>,
    /// `All` or nothing.
    pub dry_run: Vec<String>,
}

/// State an object must be in to be deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Preconditions {
    /// The uid it must have.
    pub uid: Option<String>,
    /// The version it must have.
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads the body of a deletion; an empty body means no options.
    ///
    /// # Errors
    /// Says why the body is no `DeleteOptions`.
    pub fn decode(body: &[u8], format: BodyFormat) -> Result<Self, DecodeFault> {
        if body.len() > MAX_BODY_BYTES {
            return Err(DecodeFault::TooLarge);
        }
        if body.is_empty() {
            return Ok(Self::default());
        }
        match format {
            BodyFormat::Json | BodyFormat::Yaml => {
                let tree = decode::parse_text(body, format, DELETE_KIND)?;
                let text = |name: &str| {
                    tree.root
                        .get(name)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .to_owned()
                };
                expect_kind(&text("kind"), &text("apiVersion"))?;
                let (root, _) =
                    decode::conform(tree, &DELETE_OPTIONS, DELETE_KIND, FieldValidation::Ignore)?;
                serde_json::from_value(root).map_err(|cause| DecodeFault::Json {
                    kind: DELETE_KIND,
                    cause,
                })
            }
            BodyFormat::Protobuf => {
                let fault = |cause| DecodeFault::Protobuf {
                    kind: DELETE_KIND,
                    cause,
                };
                let envelope = Envelope::read(body).map_err(fault)?;
                expect_kind(envelope.kind, envelope.api_version)?;
                read(envelope.raw).map_err(|wire| fault(ProtobufFault::Object(wire)))
            }
        }
    }

    /// Options from the decoded query parameters, used when there is no body.
    ///
    /// # Errors
    /// Names the parameter that cannot be read.
    pub fn from_query<'q>(
        query: impl IntoIterator<Item = (&'q str, &'q str)>,
    ) -> Result<Self, FieldError> {
        let mut options = Self::default();
        for (name, value) in query {
            match name {
                "gracePeriodSeconds" => {
                    let seconds = value
                        .parse()
                        .map_err(|_| FieldError::invalid(name, value, "must be an integer"))?;
                    options.grace_period_seconds = Some(seconds);
                }
                "orphanDependents" => {
                    options.orphan_dependents = Some(value != "false" && value != "0")
                }
                "propagationPolicy" => options.propagation_policy = Some(value.to_owned()),
                "dryRun" => options.dry_run.push(value.to_owned()),
                _ => {}
            }
        }
        Ok(options)
    }

    /// What is wrong with the options; a server answers 422 with kind `DeleteOptions`.
    #[must_use]
    pub fn validate(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(policy) = self.propagation_policy.as_deref() {
            if self.orphan_dependents.is_some() {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid("propagationPolicy", policy, detail));
            }
            if !["Foreground", "Background", "Orphan"].contains(&policy) {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported(
                    "propagationPolicy",
                    policy,
                    &supported,
                ));
            }
        }
        errors.extend(options::dry_run(&self.dry_runs()).err());
        errors
    }

    /// Whether nothing is to be deleted for real.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        options::dry_run(&self.dry_runs()).unwrap_or_default()
    }

    /// Checks the preconditions against the stored object.
    ///
    /// # Errors
    /// The 409 to answer.
    pub fn check<T: Kind>(&self, stored: &T) -> Result<(), Box<Status>> {
        let meta = stored.metadata();
        if let Some(uid) = self
            .preconditions
            .uid
            .as_deref()
            .filter(|uid| *uid != meta.uid)
        {
            return Err(Box::new(
                T::RESOURCE.not_that_uid(&meta.name, uid, &meta.uid),
            ));
        }
        let version = self.preconditions.resource_version.as_deref();
        if let Some(version) = version.filter(|version| *version != meta.resource_version) {
            return Err(Box::new(T::RESOURCE.not_that_version(
                &meta.name,
                version,
                &meta.resource_version,
            )));
        }
        Ok(())
    }

    fn dry_runs(&self) -> Vec<&str> {
        self.dry_run.iter().map(String::as_str).collect()
    }
}

/// Clients send the `DeleteOptions` of any group, or leave the type out.
fn expect_kind(kind: &str, version: &str) -> Result<(), DecodeFault> {
    if kind.is_empty() || kind == DELETE_KIND {
        return Ok(());
    }
    Err(DecodeFault::Kind {
        found: kind.to_owned(),
        version: version.to_owned(),
    })
}

fn read(raw: &[u8]) -> Result<DeleteOptions, WireFault> {
    let mut options = DeleteOptions::default();
    let mut budget = Budget::new(MAX_BODY_VALUES);
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => options.grace_period_seconds = Some(field.int64()?),
            2 => {
                let mut inner = Fields::of(field.bytes()?);
                while let Some(part) = inner.next()? {
                    match part.number {
                        1 => options.preconditions.uid = Some(part.string()?),
                        2 => options.preconditions.resource_version = Some(part.string()?),
                        _ => {}
                    }
                }
            }
            3 => options.orphan_dependents = Some(field.boolean()?),
            4 => options.propagation_policy = Some(field.string()?),
            5 => protobuf::push(&mut options.dry_run, field.string()?, &mut budget)?,
            _ => {}
        }
    }
    Ok(options)
}

const DELETE_KIND: &str = "DeleteOptions";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CertificateSigningRequest;
    use crate::wire::Writer;

    #[test]
    fn reads_kubectl_body_without_a_type() {
        let options =
            DeleteOptions::decode(br#"{"propagationPolicy":"Background"}"#, BodyFormat::Json)
                .unwrap();
        assert_eq!(options.propagation_policy.as_deref(), Some("Background"));
        assert_eq!(options.validate(), vec![]);
        assert_eq!(
            DeleteOptions::decode(b"", BodyFormat::Protobuf).unwrap(),
            DeleteOptions::default()
        );
    }

    #[test]
    fn reads_protobuf() {
        let mut raw = Writer::default();
        raw.int(1, 30);
        raw.message(2, |inner| {
            inner.text(1, "u-1");
            inner.text(2, "77");
        });
        raw.text(4, "Foreground");
        raw.text(5, "All");
        let body = Envelope {
            api_version: "v1",
            kind: "DeleteOptions",
            raw: &raw.into_bytes(),
        }
        .write();
        let options = DeleteOptions::decode(&body, BodyFormat::Protobuf).unwrap();
        assert_eq!(options.grace_period_seconds, Some(30));
        assert_eq!(options.preconditions.uid.as_deref(), Some("u-1"));
        assert_eq!(
            options.preconditions.resource_version.as_deref(),
            Some("77")
        );
        assert!(options.is_dry_run());
        let other = Envelope {
            api_version: "v1",
            kind: "Pod",
            raw: &[],
        }
        .write();
        assert!(DeleteOptions::decode(&other, BodyFormat::Protobuf).is_err());
    }

    #[test]
    fn preconditions_give_conflicts() {
        let mut stored = CertificateSigningRequest::default();
        stored.metadata.name = "a".into();
        stored.metadata.uid = "u-1".into();
        stored.metadata.resource_version = "7".into();
        let wants = |uid: Option<&str>, version: Option<&str>| DeleteOptions {
            preconditions: Preconditions {
                uid: uid.map(Into::into),
                resource_version: version.map(Into::into),
            },
            ..DeleteOptions::default()
        };
        wants(Some("u-1"), Some("7")).check(&stored).unwrap();
        let uid = wants(Some("u-2"), None).check(&stored).unwrap_err();
        let prefix =
            r#"Operation cannot be fulfilled on CertificateSigningRequest.certificates.k8s.io "a""#;
        let says = |text: &str| format!("{prefix}: {text}");
        assert_eq!(
            uid.message,
            says(
                "the UID in the precondition (u-2) does not match the UID in record (u-1). \
                 The object might have been deleted and then recreated"
            )
        );
        let version = wants(None, Some("6")).check(&stored).unwrap_err();
        assert_eq!(version.code, 409);
        assert_eq!(
            version.message,
            says(
                "the ResourceVersion in the precondition (6) does not match the ResourceVersion in record (7). \
                 The object might have been modified"
            )
        );
    }

    #[test]
    fn names_bad_options() {
        let body = br#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Now","dryRun":["None"]}"#;
        let fields: Vec<String> = DeleteOptions::decode(body, BodyFormat::Json)
            .unwrap()
            .validate()
            .into_iter()
            .map(|e| e.field)
            .collect();
        assert_eq!(fields, ["propagationPolicy", "dryRun"]);
        assert!(DeleteOptions::from_query([("gracePeriodSeconds", "soon")]).is_err());
    }
}
