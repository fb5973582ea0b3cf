//! The inventory of machines, and build windows.

use std::borrow::Cow;

use countersign_pki::UnixTime;
use countersign_policy::{AddressKind, MachineAddress};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::number;

/// A record as it is written: in the body of a call, and in files that are imported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(example = Self::example())]
pub struct MachineRecord {
    /// The name under which it will enrol; upper case and a final dot do not matter.
    #[schemars(required, regex(pattern = NAME), length(max = 253))]
    #[schemars(example = "web01.example.com")]
    pub name: String,
    /// The addresses it may ask for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_MACHINE_ADDRESSES))]
    pub addresses: Vec<MachineRecordAddress>,
    /// The number on its case.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_MACHINE_TEXT))]
    pub serial: Option<String>,
    /// The UUID of its firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_MACHINE_TEXT))]
    pub uuid: Option<String>,
    /// What its cloud calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_MACHINE_TEXT))]
    pub instance_id: Option<String>,
    /// Who runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_MACHINE_TEXT))]
    pub provider: Option<String>,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_MACHINE_TEXT))]
    pub role: Option<String>,
    /// Before this it is not expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<UnixTime>,
    /// From this on it is no longer expected; later than `not_before`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<UnixTime>,
    /// Whether it may enrol only once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub single_use: bool,
}

/// One address of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineRecordAddress {
    /// What kind of address it is.
    #[serde(rename = "type")]
    pub kind: AddressKind,
    /// The name or the number.
    #[schemars(example = "192.0.2.1")]
    pub address: String,
}

impl MachineRecord {
    /// For the document.
    fn example() -> Self {
        Self {
            name: "web01.example.com".to_owned(),
            addresses: vec![MachineRecordAddress {
                kind: AddressKind::InternalIP,
                address: "192.0.2.1".to_owned(),
            }],
            instance_id: Some("i-0123456789abcdef0".to_owned()),
            role: Some("web".to_owned()),
            single_use: true,
            ..Self::default()
        }
    }
}

impl From<MachineRecord> for countersign_policy::Machine {
    /// The engine sets the times of its making and its enrolment.
    fn from(record: MachineRecord) -> Self {
        let addresses = record.addresses.into_iter().map(|one| MachineAddress {
            kind: one.kind,
            address: one.address,
        });
        Self {
            addresses: addresses.collect(),
            serial: record.serial.unwrap_or_default(),
            uuid: record.uuid.unwrap_or_default(),
            instance_id: record.instance_id.unwrap_or_default(),
            provider: record.provider.unwrap_or_default(),
            role: record.role.unwrap_or_default(),
            not_before: record.not_before,
            not_after: record.not_after,
            single_use: record.single_use,
            ..Self::named(record.name, UnixTime(0))
        }
    }
}

/// A record whose name stands in the path, and may be left out here.
pub struct MachineReplacement;

impl JsonSchema for MachineReplacement {
    fn schema_name() -> Cow<'static, str> {
        "MachineReplacement".into()
    }

    fn json_schema(schemas: &mut SchemaGenerator) -> Schema {
        let mut schema = MachineRecord::json_schema(schemas);
        schema.remove("required");
        let name = schema.pointer_mut("/properties/name");
        if let Some(name) = name {
            *name = serde_json::json!({
                "type": "string",
                "description": "That of the path; may be left out or empty.",
            });
        }
        schema
    }
}

/// Many records at once.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineImport {
    /// The records, each name once.
    #[schemars(length(max = MAX_MACHINES))]
    pub machines: Vec<MachineRecord>,
    /// Whether they take the place of records that are there.
    #[serde(default)]
    pub replace: bool,
    /// Whether it is only looked at.
    #[serde(default)]
    pub dry_run: bool,
}

/// What became of a batch, or would.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct MachineImportResult {
    /// Whether it was only looked at.
    pub dry_run: bool,
    /// How many are new.
    pub added: usize,
    /// How many took the place of records that were there.
    pub replaced: usize,
    /// Of a dry run: the names that are in the inventory already.
    pub existing: Vec<String>,
}

/// One machine of the inventory.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// The name under which it enrols, in lower case.
    pub name: String,
    /// The addresses it may ask for.
    pub addresses: Vec<MachineAddress>,
    /// The number on its case.
    pub serial: Option<String>,
    /// The UUID of its firmware.
    pub uuid: Option<String>,
    /// What its cloud calls it.
    pub instance_id: Option<String>,
    /// Who runs it.
    pub provider: Option<String>,
    /// What it is for.
    pub role: Option<String>,
    /// Before this it is not expected.
    pub not_before: Option<UnixTime>,
    /// From this on it is no longer expected.
    pub not_after: Option<UnixTime>,
    /// Whether it may enrol only once.
    pub single_use: bool,
    /// When the record was made.
    pub created: UnixTime,
    /// Its first enrolment by this record; null until then.
    pub enrolled: Option<UnixTime>,
    /// Identity of the request by which it enrolled first.
    #[schemars(extend("format" = "uuid"))]
    pub request: Option<String>,
}

/// What a window shall be. Whatever is left out has a default.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WindowOpening {
    /// From then on; without, from now on.
    pub opens_at: Option<UnixTime>,
    /// Until then, at most 30 days later.
    pub closes_at: Option<UnixTime>,
    /// For so long, in place of `closes_at`; without both, two hours.
    #[serde(deserialize_with = "number::optional")]
    #[schemars(range(min = 1, max = MAX_WINDOW_SECONDS))]
    pub seconds: Option<u64>,
    /// How many certificates it is good for.
    #[serde(deserialize_with = "number::optional")]
    #[schemars(range(min = 1, max = MAX_ISSUANCES))]
    pub max_issuances: Option<u64>,
    /// Only an explicit `false` trusts the name alone.
    pub require_token: Option<bool>,
}

/// One build window.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// The name that may enrol, in lower case.
    pub certname: String,
    /// From then on.
    pub opens_at: UnixTime,
    /// Until then.
    pub closes_at: UnixTime,
    /// How many certificates it is good for.
    pub max_issuances: u32,
    /// How many it has given.
    pub issuances: u32,
    /// Whether a token must come with the request.
    pub require_token: bool,
    /// Where it stands now.
    pub state: WindowState,
    /// The rules of the policy in force that let a name enrol by its window, as policy/rule: without one, the window
    /// has no effect.
    #[serde(default)]
    pub honoured_by: Vec<String>,
}

/// Where a window stands at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WindowState {
    /// Its time has not come.
    Waiting,
    /// It is good for a certificate.
    Open,
    /// It has given all that it was for.
    Used,
    /// Its time is over.
    Closed,
}

words!(WindowState {
    Waiting => "waiting",
    Open => "open",
    Used => "used",
    Closed => "closed",
});

/// Dot-separated labels of letters, digits, `-` and `_`; only the engine knows which of these names are reserved.
const NAME: &str = r"^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_-]*[A-Za-z0-9_])*\.?$";

/// So many records are one call of an import.
pub const MAX_MACHINES: usize = 500;
/// What such a call may measure, in octets.
pub const MAX_MACHINES_BODY: usize = 256 * 1024;
/// How long a text of a record may be, in characters.
pub const MAX_MACHINE_TEXT: usize = 256;
/// How many addresses a record may have.
pub const MAX_MACHINE_ADDRESSES: usize = 64;
/// How long a window may be open.
pub const MAX_WINDOW_SECONDS: u64 = 30 * 86_400;
/// How many certificates a window may be good for.
pub const MAX_ISSUANCES: u32 = 1000;
