//! `/machines`: the inventory of machines that are expected to enrol.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use countersign_api::{
    MAX_MACHINES, MachineImport, MachineImportResult, MachineRecord, MachineReplacement,
};
use countersign_authority::store::MachineFilter;
use countersign_authority::{OnExisting, Put, inventory_name};
use countersign_pki::terminal_safe;
use countersign_policy::Machine;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::cursor::{DEFAULT_LIMIT, MAX_LIMIT, Page, Paging, page_of};
use super::faults::{Refusal, Refused};
use super::operation::{Operation, Tag};
use super::parameters::{Path, Query};
use super::{Administrator, EnrolDoor, json, required_body};

fn item(record: countersign_authority::MachineRecord) -> countersign_api::Machine {
    let machine = record.machine;
    let said = |text: String| Some(text).filter(|text| !text.is_empty());
    countersign_api::Machine {
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
        request: record.request.map(|id| id.to_string()),
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
    .answers::<Page<countersign_api::Machine>>(200, "A page of machines.");

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
    let records = door.authority().inventory.machines(filter).await?;
    let place = |last: &countersign_authority::MachineRecord| last.machine.name.clone();
    let page = page_of(records, size, place, |one| Some(item(one)));
    Ok(json(StatusCode::OK, &page))
}

pub(super) const CREATE: Operation = Operation::new("addMachine", Tag::Inventory, "Add a machine")
    .body::<MachineRecord>()
    .answers::<countersign_api::Machine>(201, "The machine.")
    .refuses(&[Refused::Conflict]);

/// A record that is new.
pub(super) async fn create(
    State(door): State<EnrolDoor>,
    Administrator(actor): Administrator,
    body: Bytes,
) -> Result<Response, Refusal> {
    let machine: MachineRecord = required_body(&body)?;
    let added = door
        .authority()
        .inventory
        .add_machine(machine.into(), OnExisting::Refuse, &actor);
    let (record, _) = added.await?;
    Ok(json(StatusCode::CREATED, &item(record)))
}

pub(super) const SHOW: Operation = Operation::new("showMachine", Tag::Inventory, "Show a machine")
    .path::<Named>()
    .answers::<countersign_api::Machine>(200, "The machine.")
    .refuses(&[Refused::NotFound]);

pub(super) async fn show(
    State(door): State<EnrolDoor>,
    Path(Named { name }): Path<Named>,
) -> Result<Response, Refusal> {
    let found = door.authority().inventory.machine(&name).await?;
    let record = found.ok_or_else(|| Refusal::NotFound {
        what: format!("{} is not in the inventory", terminal_safe(&name)),
    })?;
    Ok(json(StatusCode::OK, &item(record)))
}

pub(super) const PUT: Operation =
    Operation::new("putMachine", Tag::Inventory, "Add or replace a machine")
        .about("A record that is replaced keeps when it was made and whether it has enrolled; remove it first to begin anew.")
        .path::<Named>()
        .body::<MachineReplacement>()
        .answers::<countersign_api::Machine>(200, "The machine, which was there before.")
        .or_answers(201, "The machine, which is new.")
        .refuses(&[Refused::Conflict]);

/// A record in the place of the one of that name, if there is one.
pub(super) async fn put(
    State(door): State<EnrolDoor>,
    Path(Named { name }): Path<Named>,
    Administrator(actor): Administrator,
    body: Bytes,
) -> Result<Response, Refusal> {
    let body: MachineRecord = required_body(&body)?;
    if !body.name.is_empty() && inventory_name(&body.name) != inventory_name(&name) {
        return Err(Refusal::Invalid {
            what: "name is not that of the path".to_owned(),
        });
    }
    let machine = MachineRecord { name, ..body };
    let (record, put) = door
        .authority()
        .inventory
        .add_machine(machine.into(), OnExisting::Replace, &actor)
        .await?;
    Ok(json(put_status(put), &item(record)))
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
    door.authority()
        .inventory
        .remove_machine(&name, &actor)
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) const IMPORT: Operation =
    Operation::new("importMachines", Tag::Inventory, "Add many machines")
        .about("All of them or none. With `dry_run`, what would happen.")
        .body::<MachineImport>()
        .answers::<MachineImportResult>(200, "What became of them.")
        .refuses(&[Refused::Conflict]);

pub(super) async fn import(
    State(door): State<EnrolDoor>,
    Administrator(actor): Administrator,
    body: Bytes,
) -> Result<Response, Refusal> {
    let batch: MachineImport = required_body(&body)?;
    let MachineImport {
        machines,
        replace,
        dry_run,
    } = batch;
    let count = machines.len();
    if count > MAX_MACHINES {
        return Err(Refusal::Invalid {
            what: format!("machines has more than {MAX_MACHINES} records"),
        });
    }
    let machines = machines.into_iter().map(Machine::from).collect();
    let result = if dry_run {
        let existing = door
            .authority()
            .inventory
            .existing_machines(machines, &actor)
            .await?;
        MachineImportResult {
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
            .inventory
            .import_machines(machines, on_existing, &actor)
            .await?;
        MachineImportResult {
            dry_run,
            added: imported.added,
            replaced: imported.replaced,
            existing: Vec::new(),
        }
    };
    Ok(json(StatusCode::OK, &result))
}

pub(super) fn put_status(put: Put) -> StatusCode {
    match put {
        Put::Added => StatusCode::CREATED,
        Put::Replaced => StatusCode::OK,
    }
}

const _: () = {
    assert!(countersign_api::MAX_MACHINE_TEXT == countersign_authority::MAX_MACHINE_TEXT);
    assert!(countersign_api::MAX_MACHINE_ADDRESSES == countersign_authority::MAX_MACHINE_ADDRESSES);
};
