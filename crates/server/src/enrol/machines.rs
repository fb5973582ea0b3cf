//! `/machines`: the inventory of machines that are expected to enrol.

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use countersign_authority::store::MachineFilter;
use countersign_authority::{MachineRecord, OnExisting, Put, inventory_name};
use countersign_pki::{UnixTime, terminal_safe};
use countersign_policy::{AddressKind, Machine, MachineAddress};
use http::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cursor::{Page, Paging};
use super::faults::Refusal;
use super::{Administrator, EnrolDoor, json};

/// A record as it is written: in the body of a call, and in files that are imported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MachineBody {
    /// The name under which it will enrol.
    pub name: String,
    /// The addresses it may ask for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<AddressBody>,
    /// The number on its case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The UUID of its firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// What its cloud calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// Who runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Before this it is not expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<UnixTime>,
    /// From this on it is no longer expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<UnixTime>,
    /// Whether it may enrol only once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub single_use: bool,
}

/// One address of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressBody {
    /// What kind of address it is.
    #[serde(rename = "type")]
    pub kind: AddressKind,
    /// The name or the number.
    pub address: String,
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

/// Many records at once.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    machines: Vec<MachineBody>,
    /// Whether they take the place of records that are there.
    #[serde(default)]
    replace: bool,
    /// Whether it is only looked at.
    #[serde(default)]
    dry_run: bool,
}

/// What became of a batch, or would.
#[derive(Debug, Serialize)]
struct BatchItem {
    dry_run: bool,
    added: usize,
    replaced: usize,
    /// Of a dry run: the names that are in the inventory already.
    existing: Vec<String>,
}

/// One machine.
#[derive(Debug, Serialize)]
struct MachineItem {
    name: String,
    addresses: Vec<MachineAddress>,
    serial: Option<String>,
    uuid: Option<String>,
    instance_id: Option<String>,
    provider: Option<String>,
    role: Option<String>,
    not_before: Option<UnixTime>,
    not_after: Option<UnixTime>,
    single_use: bool,
    created: UnixTime,
    enrolled: Option<UnixTime>,
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
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listing {
    role: Option<String>,
    provider: Option<String>,
    enrolled: Option<bool>,
    cursor: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn list(
    State(door): State<EnrolDoor>,
    listing: Result<Query<Listing>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(listing) = listing.map_err(|fault| Refusal::Invalid {
        what: fault.body_text(),
    })?;
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
    let mut records = door.authority().machines(filter).await?;
    let has_more = records.len() > size;
    records.truncate(size);
    let next = records.last().filter(|_| has_more);
    let next = next.map(|last| last.machine.name.clone());
    let items = records.into_iter().map(MachineItem::of).collect();
    Ok(json(StatusCode::OK, &Page::new(items, next.as_ref())))
}

/// A record that is new, or a batch of them: an object with a member `machines`.
pub(super) async fn create(
    State(door): State<EnrolDoor>,
    administrator: Administrator,
    body: Bytes,
) -> Result<Response, Refusal> {
    let body = object(&body)?;
    if body.get("machines").is_some() {
        return door
            .import(read(Batch::deserialize(body))?, administrator)
            .await;
    }
    let machine = read(MachineBody::deserialize(body))?;
    let added = door
        .authority()
        .add_machine(machine.into(), OnExisting::Refuse, &administrator.0);
    let (record, _) = added.await?;
    Ok(json(StatusCode::CREATED, &MachineItem::of(record)))
}

pub(super) async fn show(
    State(door): State<EnrolDoor>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let found = door.authority().machine(&name).await?;
    let record = found.ok_or_else(|| Refusal::NotFound {
        what: format!("{} is not in the inventory", terminal_safe(&name)),
    })?;
    Ok(json(StatusCode::OK, &MachineItem::of(record)))
}

/// A record in the place of the one of that name, if there is one.
pub(super) async fn put(
    State(door): State<EnrolDoor>,
    Path(name): Path<String>,
    Administrator(actor): Administrator,
    body: Bytes,
) -> Result<Response, Refusal> {
    let body = read(MachineBody::deserialize(object(&body)?))?;
    if !body.name.is_empty() && inventory_name(&body.name) != inventory_name(&name) {
        return Err(Refusal::Invalid {
            what: "name is not that of the path".to_owned(),
        });
    }
    let machine = MachineBody { name, ..body };
    let (record, put) = door
        .authority()
        .add_machine(machine.into(), OnExisting::Replace, &actor)
        .await?;
    Ok(json(put_status(put), &MachineItem::of(record)))
}

pub(super) async fn delete(
    State(door): State<EnrolDoor>,
    Path(name): Path<String>,
    Administrator(actor): Administrator,
) -> Result<Response, Refusal> {
    door.authority().remove_machine(&name, &actor).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl EnrolDoor {
    async fn import(
        &self,
        batch: Batch,
        Administrator(actor): Administrator,
    ) -> Result<Response, Refusal> {
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
            let existing = self.authority().existing_machines(machines).await?;
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
            let imported = self
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
}

pub(super) fn put_status(put: Put) -> StatusCode {
    match put {
        Put::Added => StatusCode::CREATED,
        Put::Replaced => StatusCode::OK,
    }
}

/// A list would pass for a record that says nothing.
fn object(body: &[u8]) -> Result<Value, Refusal> {
    let value: Value = read(serde_json::from_slice(body))?;
    match value {
        Value::Object(_) => Ok(value),
        _ => Err(Refusal::Invalid {
            what: "the body: not an object".to_owned(),
        }),
    }
}

fn read<T: DeserializeOwned>(body: serde_json::Result<T>) -> Result<T, Refusal> {
    body.map_err(|error| Refusal::Invalid {
        what: format!("the body: {error}"),
    })
}

/// So many records are one commit.
pub const MAX_BATCH: usize = 500;
/// What a batch may measure.
pub const MAX_BATCH_BODY: usize = 256 * 1024;
