//! Metadata that every Kubernetes object carries (`meta.k8s.io/v1` `ObjectMeta`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::time::{self, Time};

/// Name, identity, version and labels of an object. Empty text means absent, as in the API itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Name, unique among the objects of the resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Prefix from which the server makes a name when `name` is empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// Always empty once stored: the resource is cluster-scoped.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Identity in time: another object of the same name has another uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Revision of the store that wrote this state, in decimal digits.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Unused by this resource.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// Set by the server on create.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "time::optional"
    )]
    pub creation_timestamp: Option<Time>,
    /// Set by the server when deletion waits for finalizers.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "time::optional"
    )]
    pub deletion_timestamp: Option<Time>,
    /// Set together with `deletion_timestamp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// Labels, open to selectors.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations, opaque to the server.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Objects whose end ends this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
    /// Names that must be removed before the object goes away.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Who set which field; kept as sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub managed_fields: Vec<ManagedFieldsEntry>,
}

/// One owner of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Group and version of the owner.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// uid of the owner.
    pub uid: String,
    /// Whether this owner manages the object; one at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether the owner's foreground deletion waits for this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

/// One entry of `managedFields`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedFieldsEntry {
    /// Name of the writer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manager: String,
    /// `Apply` or `Update`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operation: String,
    /// Version of the object to which `fields_v1` refers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// When the set of fields last changed.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "time::optional"
    )]
    pub time: Option<Time>,
    /// `FieldsV1`, the only format there is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fields_type: String,
    /// The set of fields, opaque here.
    #[serde(rename = "fieldsV1", skip_serializing_if = "Option::is_none")]
    pub fields_v1: Option<Value>,
    /// Subresource through which the write came.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}
