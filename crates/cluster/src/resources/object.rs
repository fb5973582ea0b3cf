//! Objects of the group `countersign.dev` as plain data.

use serde_json::Value;

use crate::api::Resource;

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// Rules.
    ApprovalPolicy,
    /// Signers of a site.
    Signer,
    /// Orders for enrolment tokens.
    EnrollmentToken,
}

impl ResourceKind {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::ApprovalPolicy => "ApprovalPolicy",
            Self::Signer => "Signer",
            Self::EnrollmentToken => "EnrollmentToken",
        }
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::ApprovalPolicy => "approvalpolicies",
            Self::Signer => "signers",
            Self::EnrollmentToken => "enrollmenttokens",
        }
    }

    /// Where they are watched.
    pub(crate) fn resource(self, namespace: Option<&str>) -> Resource {
        Resource {
            group: GROUP.to_owned(),
            version: VERSION.to_owned(),
            kind: self.word(),
            plural: self.plural().to_owned(),
            namespace: namespace.map(str::to_owned),
            name: None,
            labels: None,
            metadata_only: false,
        }
    }
}

/// One object.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceObject {
    /// Its namespace; empty for kinds without one.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// Which version of the spec this is.
    pub generation: i64,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What somebody wants.
    pub spec: Value,
    /// What was said of it.
    pub status: Value,
    pub(crate) version: String,
}

impl ResourceObject {
    /// Reads an object; `None` for one without a name or an identity, which no API server has.
    pub fn read(object: &Value) -> Option<Self> {
        let text = |pointer: &str| {
            let found = object.pointer(pointer).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let member = |key: &str| object.get(key).cloned().unwrap_or(Value::Null);
        let read = Self {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            generation: object
                .pointer("/metadata/generation")
                .and_then(Value::as_i64)
                .unwrap_or_default(),
            deleting: object.pointer("/metadata/deletionTimestamp").is_some(),
            spec: member("spec"),
            status: member("status"),
            version: text("/metadata/resourceVersion"),
        };
        (!read.name.is_empty() && !read.uid.is_empty()).then_some(read)
    }
}

pub(crate) const GROUP: &str = "countersign.dev";
pub(crate) const VERSION: &str = "v1alpha1";
