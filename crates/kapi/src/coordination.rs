//! Leases (`coordination.k8s.io/v1`): which of several controllers is at work. Each renews its lease until another may take it.

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};

use crate::MAX_BODY_VALUES;
use crate::field::{FieldError, FieldErrors};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::name;
use crate::protobuf::{ProtobufFault, meta, write_meta};
use crate::schema::{API_VERSION_ABOUT, KIND_ABOUT, OBJECT_META, Schema, Shape, optional};
use crate::status::Resource;
use crate::table::{Column, column};
use crate::time::{MicroTime, Time, age, optional_micro};
use crate::validate;
use crate::wire::{Budget, Fields, WireFault, Writer};

/// API group of leases.
pub const GROUP: &str = "coordination.k8s.io";
/// Group and version as they stand in `apiVersion`.
pub const API_VERSION: &str = "coordination.k8s.io/v1";

/// Who holds something, since when and for how long.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Lease {
    /// Name, namespace, labels.
    pub metadata: ObjectMeta,
    /// What the holder wrote.
    pub spec: LeaseSpec,
}

/// What the holder of a lease writes into it. The server gives it no meaning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    /// Who holds it; empty text: it was given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder_identity: Option<String>,
    /// How long others wait after the last renewal before they take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_duration_seconds: Option<i32>,
    /// When the holder got it.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_micro"
    )]
    pub acquire_time: Option<MicroTime>,
    /// When the holder last renewed it.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_micro"
    )]
    pub renew_time: Option<MicroTime>,
    /// How often it changed hands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_transitions: Option<i32>,
}

impl Serialize for Lease {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", Self::RESOURCE.kind)?;
        map.serialize_entry("apiVersion", API_VERSION)?;
        map.serialize_entry("metadata", &self.metadata)?;
        map.serialize_entry("spec", &self.spec)?;
        map.end()
    }
}

/// Checks a lease; empty = may be stored. An update is checked like a new one.
#[must_use]
pub fn faults(lease: &Lease) -> Vec<FieldError> {
    let mut errors = FieldErrors::default();
    validate::namespaced(&lease.metadata, name::dns_subdomain_faults, &mut errors);
    let LeaseSpec {
        lease_duration_seconds: duration,
        lease_transitions: transitions,
        ..
    } = lease.spec;
    if let Some(seconds) = duration.filter(|seconds| *seconds <= 0) {
        let detail = "must be greater than 0";
        let field = "spec.leaseDurationSeconds";
        errors.push(FieldError::invalid(field, i64::from(seconds), detail));
    }
    if let Some(count) = transitions.filter(|count| *count < 0) {
        let detail = "must be greater than or equal to 0";
        let field = "spec.leaseTransitions";
        errors.push(FieldError::invalid(field, i64::from(count), detail));
    }
    errors.into_vec()
}

impl Kind for Lease {
    const RESOURCE: Resource<'static> = Resource {
        group: GROUP,
        resource: "leases",
        kind: "Lease",
    };
    const API_VERSION: &'static str = API_VERSION;
    const LIST_KIND: &'static str = "LeaseList";
    const NAMESPACED: bool = true;
    const COLUMNS: &'static [Column] = &[
        column("Name", "name", "Name of the lease."),
        column("Holder", "", "Who holds it."),
        column("Age", "", "Time since the lease was created."),
    ];

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn cells(&self, now: Time) -> Vec<String> {
        let holder = self.spec.holder_identity.clone();
        vec![
            self.metadata.name.clone(),
            holder.unwrap_or_default(),
            age(self.metadata.creation_timestamp, now),
        ]
    }

    fn from_protobuf(raw: &[u8]) -> Result<Self, ProtobufFault> {
        read(raw).map_err(ProtobufFault::Object)
    }

    fn to_protobuf(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.message(1, |writer| write_meta(writer, &self.metadata));
        writer.message(2, |writer| write_spec(writer, &self.spec));
        writer.into_bytes()
    }

    fn schema() -> &'static Schema {
        &LEASE
    }
}

/// Tags of `k8s.io/api/coordination/v1/generated.proto`.
fn read(raw: &[u8]) -> Result<Lease, WireFault> {
    let mut lease = Lease::default();
    let mut budget = Budget::new(MAX_BODY_VALUES);
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => meta(field.bytes()?, &mut lease.metadata, &mut budget)?,
            2 => read_spec(field.bytes()?, &mut lease.spec)?,
            _ => {}
        }
    }
    Ok(lease)
}

fn read_spec(raw: &[u8], spec: &mut LeaseSpec) -> Result<(), WireFault> {
    let mut fields = Fields::of(raw);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => spec.holder_identity = Some(field.string()?),
            2 => spec.lease_duration_seconds = Some(field.int32()?),
            3 => spec.acquire_time = MicroTime::read(field)?,
            4 => spec.renew_time = MicroTime::read(field)?,
            5 => spec.lease_transitions = Some(field.int32()?),
            _ => {}
        }
    }
    Ok(())
}

fn write_spec(writer: &mut Writer, spec: &LeaseSpec) {
    if let Some(holder) = &spec.holder_identity {
        writer.text(1, holder);
    }
    if let Some(seconds) = spec.lease_duration_seconds {
        writer.int(2, i64::from(seconds));
    }
    for (number, time) in [(3, spec.acquire_time), (4, spec.renew_time)] {
        if time.is_some() {
            MicroTime::write(time, writer, number);
        }
    }
    if let Some(count) = spec.lease_transitions {
        writer.int(5, i64::from(count));
    }
}

static LEASE: Schema = Schema {
    name: "io.k8s.api.coordination.v1.Lease",
    about: "Which of several controllers is at work.",
    fields: &[
        optional("apiVersion", Shape::Text, API_VERSION_ABOUT),
        optional("kind", Shape::Text, KIND_ABOUT),
        optional(
            "metadata",
            Shape::Object(&OBJECT_META),
            "Name, identity, labels and annotations.",
        ),
        optional("spec", Shape::Object(&LEASE_SPEC), "What the holder wrote."),
    ],
};

static LEASE_SPEC: Schema = Schema {
    name: "io.k8s.api.coordination.v1.LeaseSpec",
    about: "Who holds something, since when and for how long.",
    fields: &[
        optional("acquireTime", Shape::MicroTime, "When the holder got it."),
        optional(
            "holderIdentity",
            Shape::Text,
            "Who holds it; empty text: it was given back.",
        ),
        optional(
            "leaseDurationSeconds",
            Shape::Int32,
            "How long others wait after the last renewal before they take it.",
        ),
        optional(
            "leaseTransitions",
            Shape::Int32,
            "How often it changed hands.",
        ),
        optional(
            "preferredHolder",
            Shape::Text,
            "For coordinated leader election, which this server does not do: dropped.",
        ),
        optional(
            "renewTime",
            Shape::MicroTime,
            "When the holder last renewed it.",
        ),
        optional(
            "strategy",
            Shape::Text,
            "For coordinated leader election, which this server does not do: dropped.",
        ),
    ],
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decode;
    use crate::negotiate::BodyFormat;
    use crate::options::FieldValidation;

    fn sample() -> Lease {
        let body = json!({"metadata": {"name": "approver", "namespace": "kube-system"}, "spec": {
            "holderIdentity": "host_1", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": "2026-08-20T10:00:00.000001Z", "renewTime": "2026-08-20T12:00:02.999999+02:00",
            "strategy": "OldestEmulationVersion"}});
        let body = body.to_string();
        let validation = FieldValidation::Strict;
        decode::object(body.as_bytes(), BodyFormat::Json, validation)
            .unwrap()
            .object
    }

    #[test]
    fn a_lease_is_the_same_in_json_and_protobuf() {
        let lease = sample();
        assert_eq!(Lease::from_protobuf(&lease.to_protobuf()).unwrap(), lease);
        let text = serde_json::to_value(&lease).unwrap();
        assert_eq!(text["spec"]["renewTime"], "2026-08-20T10:00:02.999999Z");
        assert_eq!(text["spec"]["acquireTime"], "2026-08-20T10:00:00.000001Z");
        assert_eq!(text["spec"].get("strategy"), None);
        let given_back = Lease {
            spec: LeaseSpec {
                holder_identity: Some(String::new()),
                ..LeaseSpec::default()
            },
            ..lease
        };
        let read = Lease::from_protobuf(&given_back.to_protobuf()).unwrap();
        assert_eq!(read.spec.holder_identity.as_deref(), Some(""));
    }

    #[test]
    fn a_lease_lasts_and_changes_hands_in_natural_numbers() {
        assert_eq!(faults(&sample()), []);
        let mut lease = sample();
        lease.spec.lease_duration_seconds = Some(0);
        lease.spec.lease_transitions = Some(-1);
        lease.metadata.name = "Approver".to_owned();
        let faults: Vec<String> = faults(&lease).iter().map(|f| f.field.clone()).collect();
        let expected = [
            "metadata.name",
            "spec.leaseDurationSeconds",
            "spec.leaseTransitions",
        ];
        assert_eq!(faults, expected);
    }
}
