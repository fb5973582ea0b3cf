//! AdmissionReviews as they arrive. Of everything that an API server sends, what counts. Objects stay text until it is known
//! which parts are wanted.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::shown;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review<'a> {
    #[serde(default)]
    pub(super) api_version: String,
    #[serde(borrow)]
    pub(super) request: Option<Request<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request<'a> {
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) kind: GroupVersionKind,
    #[serde(default)]
    pub(super) operation: String,
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(borrow)]
    pub(super) object: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) old_object: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct GroupVersionKind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
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
pub(super) struct Object<'a> {
    #[serde(default)]
    pub(super) metadata: Metadata,
    #[serde(borrow)]
    pub(super) spec: Option<&'a RawValue>,
}

impl<'a> Object<'a> {
    pub(super) fn read(text: Option<&'a RawValue>) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text.map_or("null", RawValue::get))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) deletion_timestamp: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CertificateFields {
    pub(super) authority_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) certname: Option<String>,
    #[serde(rename = "dnsAltNames")]
    pub(super) dns_alt_names: Option<Vec<String>>,
    pub(super) csr_extensions: Option<ExtensionFields>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExtensionFields {
    pub(super) pp_cli_auth: Option<bool>,
    pub(super) pp_role: Option<String>,
    pub(super) pp_environment: Option<String>,
    pub(super) custom_extensions: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyFields {
    pub(super) certificate_authority_ref: Option<String>,
}
