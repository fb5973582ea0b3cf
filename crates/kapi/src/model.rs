//! The object itself: what a client asks for, what the server adds, what approvers and signers answer.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize, Serializer};

use crate::meta::ObjectMeta;
use crate::time::{self, Time};
use crate::{API_VERSION, KIND};

/// A request for a certificate, with the decision about it and its result.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CertificateSigningRequest {
    /// Name, identity, labels.
    pub metadata: ObjectMeta,
    /// What is asked for; never changes once stored.
    pub spec: Spec,
    /// Decision and result.
    pub status: RequestStatus,
}

/// What is asked for and by whom.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// PEM text of one PKCS#10 message.
    #[serde(with = "bytes")]
    pub request: Vec<u8>,
    /// Who should sign: `domain/path`.
    pub signer_name: String,
    /// Wished lifetime; the signer may give less or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_seconds: Option<i32>,
    /// Key usages as the API spells them, see [`USAGES`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub usages: Vec<String>,
    /// Name of the requester, filled by the server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// uid of the requester (not of the object), filled by the server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Groups of the requester, filled by the server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Further facts about the requester, filled by the server.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Decision and result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestStatus {
    /// Approved, Denied, Failed and whatever else controllers note.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// PEM text of the issued certificate and its intermediates; written once.
    #[serde(with = "bytes", skip_serializing_if = "Vec::is_empty")]
    pub certificate: Vec<u8>,
}

/// One statement about the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// [`APPROVED`], [`DENIED`], [`FAILED`] or any other word.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`; always `True` for the three known types.
    pub status: String,
    /// One word for programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A sentence for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Last time this statement was written.
    #[serde(deserialize_with = "time::optional")]
    pub last_update_time: Option<Time>,
    /// Last time its status changed.
    #[serde(deserialize_with = "time::optional")]
    pub last_transition_time: Option<Time>,
}

/// Who sends a request, as authentication found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UserInfo {
    /// User name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// User id.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Groups, `system:authenticated` among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Further facts, such as the credential's id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl CertificateSigningRequest {
    /// Whether a condition of this type is present, whatever its status: presence decides.
    #[must_use]
    pub fn has_condition(&self, kind: &str) -> bool {
        self.condition(kind).is_some()
    }

    /// The first condition of this type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|condition| condition.kind == kind)
    }

    /// Whether signing was given up. Unlike approval, the status counts: empty or `True`.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        let told =
            |condition: &Condition| condition.status.is_empty() || condition.status == "True";
        self.status
            .conditions
            .iter()
            .any(|condition| condition.kind == FAILED && told(condition))
    }

    /// The CONDITION column of `kubectl get csr`.
    #[must_use]
    pub fn state_text(&self) -> String {
        let mut text = String::from(match () {
            () if self.has_condition(DENIED) => "Denied",
            () if self.has_condition(APPROVED) => "Approved",
            () => "Pending",
        });
        if self.has_condition(FAILED) {
            text.push_str(",Failed");
        }
        if !self.status.certificate.is_empty() {
            text.push_str(",Issued");
        }
        text
    }
}

impl Serialize for CertificateSigningRequest {
    /// Writes `kind` and `apiVersion` first, as clients of single objects and watches need them.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Typed<'a> {
            kind: &'static str,
            api_version: &'static str,
            metadata: &'a ObjectMeta,
            spec: &'a Spec,
            status: &'a RequestStatus,
        }
        let Self {
            metadata,
            spec,
            status,
        } = self;
        Typed {
            kind: KIND,
            api_version: API_VERSION,
            metadata,
            spec,
            status,
        }
        .serialize(serializer)
    }
}

/// Byte fields in JSON: base64 with padding (RFC 4648 section 4). Line breaks inside are skipped, as Go does.
mod bytes {
    use super::STANDARD;
    use base64::Engine as _;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::borrow::Cow;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        super::decode_base64(&text).ok_or_else(|| serde::de::Error::custom("illegal base64 data"))
    }
}

/// Bytes of a JSON byte field, or nothing if its base64 is malformed.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    if text.contains(['\r', '\n']) {
        return STANDARD.decode(text.replace(['\r', '\n'], "")).ok();
    }
    STANDARD.decode(text).ok()
}

/// Condition type of an approval.
pub const APPROVED: &str = "Approved";
/// Condition type of a denial.
pub const DENIED: &str = "Denied";
/// Condition type of a signer that gave up.
pub const FAILED: &str = "Failed";

/// The usages the API knows, sorted as error messages list them.
pub const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn with(kinds: &[&str], certificate: &[u8]) -> CertificateSigningRequest {
        let conditions = kinds
            .iter()
            .map(|kind| Condition {
                kind: (*kind).into(),
                ..Condition::default()
            })
            .collect();
        CertificateSigningRequest {
            status: RequestStatus {
                conditions,
                certificate: certificate.to_vec(),
            },
            ..CertificateSigningRequest::default()
        }
    }

    #[rstest]
    #[case(&[], b"", "Pending")]
    #[case(&["Ready"], b"", "Pending")]
    #[case(&["Approved"], b"", "Approved")]
    #[case(&["Approved"], b"x", "Approved,Issued")]
    #[case(&["Approved", "Denied"], b"", "Denied")]
    #[case(&["Approved", "Failed"], b"", "Approved,Failed")]
    #[case(&["Failed"], b"x", "Pending,Failed,Issued")]
    fn state_is_told_from_conditions(
        #[case] kinds: &[&str],
        #[case] certificate: &[u8],
        #[case] text: &str,
    ) {
        assert_eq!(with(kinds, certificate).state_text(), text);
    }

    #[test]
    fn failed_false_is_not_failed() {
        let mut object = with(&["Failed"], b"");
        assert!(object.is_failed());
        object.status.conditions[0].status = "False".into();
        assert!(!object.is_failed());
    }

    #[test]
    fn empty_object_has_the_shape_clients_expect() {
        let json = serde_json::to_value(CertificateSigningRequest::default()).unwrap();
        assert_eq!(
            json,
            json!({"kind": "CertificateSigningRequest", "apiVersion": "certificates.k8s.io/v1", "metadata": {},
                "spec": {"request": "", "signerName": ""}, "status": {}})
        );
    }

    #[test]
    fn base64_may_be_wrapped_but_not_wrong() {
        assert_eq!(decode_base64("aGVs\nbG8=\r\n").unwrap(), b"hello");
        assert_eq!(decode_base64("aGVsbG8"), None, "padding is required");
        assert_eq!(
            decode_base64("aGVsbG9="),
            None,
            "left-over bits must be zero"
        );
        assert_eq!(decode_base64("aGVs bG8="), None);
    }

    #[test]
    fn usages_are_sorted_and_distinct() {
        assert!(USAGES.is_sorted_by(|a, b| a < b));
    }
}
