//! What all kinds of objects have in common: where they are served, how they are read, written, selected and shown.
//!
//! Decoding, patches, lists, tables and watch events are written once, for every type with this trait.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::meta::ObjectMeta;
use crate::model::CertificateSigningRequest;
use crate::protobuf::{self, ProtobufFault};
use crate::schema::{self, Schema};
use crate::status::Resource;
use crate::table::{Column, column};
use crate::time::{Time, age, human_duration};
use crate::{API_VERSION, LIST_KIND};

/// A kind of object that an API server serves.
pub trait Kind:
    Clone + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Group, plural name and kind.
    const RESOURCE: Resource<'static>;
    /// Group and version as they stand in `apiVersion`.
    const API_VERSION: &'static str;
    /// Kind of a list of them.
    const LIST_KIND: &'static str;
    /// Whether each lives in a namespace.
    const NAMESPACED: bool;
    /// The fields by which lists can be selected, beside the name and, where there is one, the namespace.
    const SELECTABLE: &'static [&'static str] = &[];
    /// The columns of `kubectl get`.
    const COLUMNS: &'static [Column];

    /// Name, identity, labels.
    fn metadata(&self) -> &ObjectMeta;

    /// The same, to be changed.
    fn metadata_mut(&mut self) -> &mut ObjectMeta;

    /// Fills in what clients may leave out; every decoded object has been through it.
    fn set_defaults(&mut self) {}

    /// The value of one of the [`Self::SELECTABLE`] fields.
    fn selected(&self, _field: &str) -> &str {
        ""
    }

    /// The user who created it, where an object says so: some may see their own and no others.
    fn creator(&self) -> Option<&str> {
        None
    }

    /// One row of `kubectl get`, a cell for each of the [`Self::COLUMNS`].
    fn cells(&self, now: Time) -> Vec<String>;

    /// An object without content, as bookmarks carry it; its metadata is filled in by the caller.
    fn blank() -> Value {
        serde_json::to_value(Self::default()).unwrap_or_default()
    }

    /// Reads its protobuf message, without the envelope.
    ///
    /// # Errors
    /// Says why `raw` is none.
    fn from_protobuf(raw: &[u8]) -> Result<Self, ProtobufFault>;

    /// Its protobuf message, without the envelope.
    fn to_protobuf(&self) -> Vec<u8>;

    /// Its fields, for decoding and for patches.
    fn schema() -> &'static Schema;
}

impl Kind for CertificateSigningRequest {
    const RESOURCE: Resource<'static> = Resource::CSR;
    const API_VERSION: &'static str = API_VERSION;
    const LIST_KIND: &'static str = LIST_KIND;
    const NAMESPACED: bool = false;
    const SELECTABLE: &'static [&'static str] = &[SIGNER_FIELD];
    const COLUMNS: &'static [Column] = &[
        column("Name", "name", "Name of the request."),
        column("Age", "", "Time since the request was created."),
        column("SignerName", "", "Signer that should act on the request."),
        column("Requestor", "", "User who sent the request."),
        column("RequestedDuration", "", "Lifetime the request asks for."),
        column(
            "Condition",
            "",
            "Decision about the request and what came of it.",
        ),
    ];

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn selected(&self, field: &str) -> &str {
        match field {
            SIGNER_FIELD => &self.spec.signer_name,
            _ => "",
        }
    }

    fn creator(&self) -> Option<&str> {
        Some(&self.spec.username)
    }

    fn cells(&self, now: Time) -> Vec<String> {
        let or_none = |text: String| match text.is_empty() {
            true => "<none>".to_owned(),
            false => text,
        };
        let asked = self.spec.expiration_seconds;
        let asked = asked.map(|seconds| human_duration(i64::from(seconds)));
        vec![
            self.metadata.name.clone(),
            age(self.metadata.creation_timestamp, now),
            or_none(self.spec.signer_name.clone()),
            self.spec.username.clone(),
            or_none(asked.unwrap_or_default()),
            self.state_text(),
        ]
    }

    fn blank() -> Value {
        // Go writes bytes that are not there as null.
        serde_json::json!({"kind": Self::RESOURCE.kind, "apiVersion": API_VERSION, "metadata": {},
            "spec": {"request": null, "signerName": ""}, "status": {}})
    }

    fn from_protobuf(raw: &[u8]) -> Result<Self, ProtobufFault> {
        protobuf::read_request(raw)
    }

    fn to_protobuf(&self) -> Vec<u8> {
        protobuf::request_message(self)
    }

    fn schema() -> &'static Schema {
        &schema::REQUEST
    }
}

const SIGNER_FIELD: &str = "spec.signerName";
