//! `/machines`: the inventory of machines that are expected to enrol.

use std::borrow::Cow;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use countersign_authority::store::MachineFilter;
use countersign_authority::{
    MAX_MACHINE_ADDRESSES, MAX_MACHINE_TEXT, MachineRecord, OnExisting, Put, inventory_name,
};
use countersign_pki::{UnixTime, terminal_safe};
use countersign_policy::{AddressKind, Machine, MachineAddress};
use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::cursor::{DEFAULT_LIMIT, MAX_LIMIT, Page, Paging};
use super::faults::{Refusal, Refused};
use super::operation::{Operation, Tag};
use super::parameters::{Path, Query};
use super::{Administrator, EnrolDoor, Granted, json, required_body};
use crate::access::{Grant, Names, Needs};

/// A record as it is written: in the body of a call, and in files that are imported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "MachineRecord", example = Self::example())]
pub struct MachineBody {
    /// The name under which it will enrol; upper case and a final dot do not matter.
    #[schemars(required, regex(pattern = NAME), length(max = 253))]
    #[schemars(example = "web01.example.com")]
    pub name: String,
    /// The addresses it may ask for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_MACHINE_ADDRESSES))]
    pub addresses: Vec<AddressBody>,
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
#[schemars(rename = "MachineRecordAddress")]
pub struct AddressBody {
    /// What kind of address it is.
    #[serde(rename = "type")]
    pub kind: AddressKind,
    /// The name or the number.
    #[schemars(example = "192.0.2.1")]
    pub address: String,
}

impl MachineBody {
    /// For the document.
    fn example() -> Self {
        Self {
            name: "web01.example.com".to_owned(),
            addresses: vec![AddressBody {
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

impl From<MachineBody> for Machine {
    /// The engine sets the times of its making and its enrolment.
    fn from(body: MachineBody) -> Self {
        let addresses = body.addresses.into_iter().map(|one| MachineAddress {
            kind: one.kind,
            address: one.address,
        });
        Self {
            addresses: addresses.collect(),
            serial: body.serial.unwrap_or_default(),
            uuid: body.uuid.unwrap_or_default(),
            instance_id: body.instance_id.unwrap_or_default(),
            provider: body.provider.unwrap_or_default(),
            role: body.role.unwrap_or_default(),
            not_before: body.not_before,
            not_after: body.not_after,
            single_use: body.single_use,
            ..Self::named(body.name, UnixTime(0))
        }
    }
}

/// A record whose name stands in the path, and may be left out here.
struct Replacement;

impl JsonSchema for Replacement {
    fn schema_name() -> Cow<'static, str> {
        "MachineReplacement".into()
    }

    fn json_schema(schemas: &mut SchemaGenerator) -> Schema {
        let mut schema = MachineBody::json_schema(schemas);
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
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "MachineImport")]
pub(super) struct Batch {
    /// The records, each name once.
    #[schemars(length(max = MAX_BATCH))]
    machines: Vec<MachineBody>,
    /// Whether they take the place of records that are there.
    #[serde(default)]
    replace: bool,
    /// Whether it is only looked at.
    #[serde(default)]
    dry_run: bool,
}

/// What became of a batch, or would.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "MachineImportResult")]
pub(super) struct BatchItem {
    /// Whether it was only looked at.
    dry_run: bool,
    /// How many are new.
    added: usize,
    /// How many took the place of records that were there.
    replaced: usize,
    /// Of a dry run: the names that are in the inventory already.
    existing: Vec<String>,
}

/// One machine of the inventory.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Machine")]
pub(super) struct MachineItem {
    /// The name under which it enrols, in lower case.
    name: String,
    /// The addresses it may ask for.
    addresses: Vec<MachineAddress>,
    /// The number on its case.
    serial: Option<String>,
    /// The UUID of its firmware.
    uuid: Option<String>,
    /// What its cloud calls it.
    instance_id: Option<String>,
    /// Who runs it.
    provider: Option<String>,
    /// What it is for.
    role: Option<String>,
    /// Before this it is not expected.
    not_before: Option<UnixTime>,
    /// From this on it is no longer expected.
    not_after: Option<UnixTime>,
    /// Whether it may enrol only once.
    single_use: bool,
    /// When the record was made.
    created: UnixTime,
    /// Its first enrolment by this record; null until then.
    enrolled: Option<UnixTime>,
    /// Identity of the request by which it enrolled first.
    #[schemars(extend("format" = "uuid"))]
    request: Option<String>,
}

impl MachineItem {
    fn of(record: MachineRecord) -> Self {
        let MachineRecord {
            machine, request, ..
        } = record;
        let said = |text: String| Some(text).filter(|text| !text.is_empty());
        Self {
            name: machine.name,
            addresses: machine.addresses,
            serial: said(machine.serial),
            uuid: said(machine.uuid),
            instance_id: said(machine.instance_id),
            provider: said(machine.provider),
            role: said(machine.role),
            not_before: machine.not_before,
            not_after: machine.not_after,
            single_use: machine.single_use,
            created: machine.created,
            enrolled: machine.enrolled,
            request: request.map(|id| id.to_string()),
        }
    }
}

/// The parameters of the list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listing {
    /// Only this role.
    role: Option<String>,
    /// Only this provider.
    provider: Option<String>,
    /// Only those that have enrolled, or have not.
    enrolled: Option<bool>,
    /// The cursor of the page before.
    cursor: Option<String>,
    /// How many items a page holds.
    #[schemars(with = "u32", range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
}

/// A machine in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Named {
    /// Its name.
    #[schemars(example = "web01.example.com")]
    name: String,
}

pub(super) const LIST: Operation = Operation::new("listMachines", Tag::Inventory, "List machines")
    .about("By name.")
    .query::<Listing>()
    .answers::<Page<MachineItem>>(200, "A page of machines.");

pub(super) async fn list(
    State(door): State<EnrolDoor>,
    Query(listing): Query<Listing>,
) -> Result<Response, Refusal> {
    let paging = Paging {
        cursor: listing.cursor,
        limit: listing.limit,
    };
    let size = paging.size()?;
    let filter = MachineFilter {
        after: paging.place::<String>()?,
        // One more tells whether there is another page.
        limit: size.saturating_add(1),
        role: listing.role,
        provider: listing.provider,
        enrolled: listing.enrolled,
    };
    let records = door.authority().machines(filter).await?;
    let place = |last: &MachineRecord| last.machine.name.clone();
    let page = Page::of(records, size, place, |one| Some(MachineItem::of(one)));
    Ok(json(StatusCode::OK, &page))
}

pub(super) const CREATE: Operation = Operation::new("addMachine", Tag::Inventory, "Add a machine")
    .body::<MachineBody>()
    .answers::<MachineItem>(201, "The machine.")
    .refuses(&[Refused::Conflict]);

/// A record that is new.
pub(super) async fn create(
    State(door): State<EnrolDoor>,
    Administrator(actor): Administrator,
    Granted(grant): Granted,
    body: Bytes,
) -> Result<Response, Refusal> {
    let machine: MachineBody = required_body(&body)?;
    may_mint(&grant, &machine)?;
    let added = door
        .authority()
        .add_machine(machine.into(), OnExisting::Refuse, &actor);
    let (record, _) = added.await?;
    Ok(json(StatusCode::CREATED, &MachineItem::of(record)))
}

pub(super) const SHOW: Operation = Operation::new("showMachine", Tag::Inventory, "Show a machine")
    .path::<Named>()
    .answers::<MachineItem>(200, "The machine.")
    .refuses(&[Refused::NotFound]);

pub(super) async fn show(
    State(door): State<EnrolDoor>,
    Path(Named { name }): Path<Named>,
) -> Result<Response, Refusal> {
    let found = door.authority().machine(&name).await?;
    let record = found.ok_or_else(|| Refusal::NotFound {
        what: format!("{} is not in the inventory", terminal_safe(&name)),
    })?;
    Ok(json(StatusCode::OK, &MachineItem::of(record)))
}

pub(super) const PUT: Operation =
    Operation::new("putMachine", Tag::Inventory, "Add or replace a machine")
        .about("A record that is replaced keeps when it was made and whether it has enrolled; remove it first to begin anew.")
        .path::<Named>()
        .body::<Replacement>()
        .answers::<MachineItem>(200, "The machine, which was there before.")
        .or_answers(201, "The machine, which is new.")
        .refuses(&[Refused::Conflict]);

/// A record in the place of the one of that name, if there is one.
pub(super) async fn put(
    State(door): State<EnrolDoor>,
    Path(Named { name }): Path<Named>,
    Administrator(actor): Administrator,
    Granted(grant): Granted,
    body: Bytes,
) -> Result<Response, Refusal> {
    let body: MachineBody = required_body(&body)?;
    if !body.name.is_empty() && inventory_name(&body.name) != inventory_name(&name) {
        return Err(Refusal::Invalid {
            what: "name is not that of the path".to_owned(),
        });
    }
    let machine = MachineBody { name, ..body };
    may_mint(&grant, &machine)?;
    let (record, put) = door
        .authority()
        .add_machine(machine.into(), OnExisting::Replace, &actor)
        .await?;
    Ok(json(put_status(put), &MachineItem::of(record)))
}

pub(super) const DELETE: Operation =
    Operation::new("removeMachine", Tag::Inventory, "Remove a machine")
        .about("Its certificates stay valid.")
        .path::<Named>()
        .answers_nothing(204, "It is gone.")
        .refuses(&[Refused::NotFound]);

pub(super) async fn delete(
    State(door): State<EnrolDoor>,
    Path(Named { name }): Path<Named>,
    Administrator(actor): Administrator,
) -> Result<Response, Refusal> {
    door.authority().remove_machine(&name, &actor).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) const IMPORT: Operation =
    Operation::new("importMachines", Tag::Inventory, "Add many machines")
        .about("All of them or none. With `dry_run`, what would happen.")
        .body::<Batch>()
        .answers::<BatchItem>(200, "What became of them.")
        .refuses(&[Refused::Conflict]);

pub(super) async fn import(
    State(door): State<EnrolDoor>,
    Administrator(actor): Administrator,
    Granted(grant): Granted,
    body: Bytes,
) -> Result<Response, Refusal> {
    let batch: Batch = required_body(&body)?;
    for machine in &batch.machines {
        may_mint(&grant, machine)?;
    }
    let Batch {
        machines,
        replace,
        dry_run,
    } = batch;
    let count = machines.len();
    if count > MAX_BATCH {
        return Err(Refusal::Invalid {
            what: format!("machines has more than {MAX_BATCH} records"),
        });
    }
    let machines = machines.into_iter().map(Machine::from).collect();
    let item = if dry_run {
        let existing = door.authority().existing_machines(machines).await?;
        BatchItem {
            dry_run,
            added: count.saturating_sub(existing.len()),
            replaced: if replace { existing.len() } else { 0 },
            existing,
        }
    } else {
        let on_existing = if replace {
            OnExisting::Replace
        } else {
            OnExisting::Refuse
        };
        let imported = door
            .authority()
            .import_machines(machines, on_existing, &actor)
            .await?;
        BatchItem {
            dry_run,
            added: imported.added,
            replaced: imported.replaced,
            existing: Vec::new(),
        }
    };
    Ok(json(StatusCode::OK, &item))
}

/// Whoever adds a record lets its name enrol, and its addresses stand in the certificate. As with approvals, a limited
/// role reaches DNS names alone.
fn may_mint(grant: &Grant, machine: &MachineBody) -> Result<(), Refusal> {
    let name = inventory_name(&machine.name);
    grant.demand(Needs::Mint(Names::InPath), Some(&name))?;
    for address in &machine.addresses {
        let text = inventory_name(&address.address);
        if address.kind.is_ip() {
            grant.demand(Needs::Mint(Names::All), None)?;
        } else if text != name {
            grant.demand(Needs::Mint(Names::InPath), Some(&text))?;
        }
    }
    Ok(())
}

pub(super) fn put_status(put: Put) -> StatusCode {
    match put {
        Put::Added => StatusCode::CREATED,
        Put::Replaced => StatusCode::OK,
    }
}

/// Dot-separated labels of letters, digits, `-` and `_`; only the engine knows which of these names are reserved.
const NAME: &str = r"^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_-]*[A-Za-z0-9_])*\.?$";

/// So many records are one commit.
pub const MAX_BATCH: usize = 500;
/// What a batch may measure.
pub const MAX_BATCH_BODY: usize = 256 * 1024;
