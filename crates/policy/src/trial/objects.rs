//! Objects that the rules of a case may look up: those of a cluster as they are, our own as the facts they stand for.

use std::net::IpAddr;
use std::path::Path;

use countersign_pki::UnixTime;
use serde_json::Value;

use crate::document::API_VERSION;
use crate::facts::{AddressKind, BuildWindow, Machine, MachineAddress};
use crate::fields::{Field, PolicyFault, Reading};
use crate::trial::setting::Scene;
use crate::yaml::{self, Content};

/// A machine of a test file. Without a time of its own it was recorded just now, and one that has enrolled did so then.
#[derive(Clone, Debug)]
pub(crate) struct ExpectedMachine {
    machine: Machine,
    created: Option<UnixTime>,
    enrolled: Enrolled,
}

#[derive(Clone, Copy, Debug)]
enum Enrolled {
    No,
    Yes,
    At(UnixTime),
}

impl ExpectedMachine {
    pub(super) fn name(&self) -> &str {
        &self.machine.name
    }

    /// The record, at a time.
    pub(super) fn at(&self, now: UnixTime) -> Machine {
        let created = self.created.unwrap_or(now);
        Machine {
            created,
            enrolled: match self.enrolled {
                Enrolled::No => None,
                Enrolled::Yes => Some(created),
                Enrolled::At(time) => Some(time),
            },
            ..self.machine.clone()
        }
    }
}

/// The objects of a test file.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) all: Vec<Value>,
    pub(super) machines: Vec<ExpectedMachine>,
    pub(super) windows: Vec<BuildWindow>,
}

impl Objects {
    pub(super) fn read(field: &Field<'_>, reading: &mut Reading<'_>) -> Self {
        let mut objects = Self::default();
        if matches!(field.node.content, Content::Null) {
            return objects;
        }
        for item in field.items(reading).unwrap_or_default() {
            objects.add(&item, reading);
        }
        objects
    }

    fn add(&mut self, item: &Field<'_>, reading: &mut Reading<'_>) {
        let Some(fields) = item.any_fields(reading) else {
            return;
        };
        let text = |key: &str, reading: &mut Reading<'_>| {
            let field = fields.required(key, reading)?;
            field.text(reading)
        };
        let version = text("apiVersion", reading);
        let kind = text("kind", reading);
        if version.as_deref() == Some(API_VERSION) {
            match kind.as_deref() {
                Some("Machine") => self.machines.extend(machine(item, reading)),
                Some("BuildWindow") => self.windows.extend(window(item, reading)),
                Some(_) | None => {}
            }
        }
        self.all.push(item.node.to_json());
    }
}

impl Scene {
    /// Adds the objects of a file of their own: documents, or one list. Relative paths do not occur in objects.
    ///
    /// # Errors
    /// With all that is wrong with it.
    pub fn with_objects(mut self, path: &Path, text: &str) -> Result<Self, Vec<PolicyFault>> {
        let mut reading = Reading::new(path, Path::new(""), text);
        let mut objects = Objects::default();
        match yaml::read_all(text) {
            Ok(documents) => {
                for document in &documents {
                    let items = Field::root(document).one_or_more(&mut reading);
                    for item in items.unwrap_or_default() {
                        objects.add(&item, &mut reading);
                    }
                }
            }
            Err(fault) => reading.complain(fault.place, "", fault.what),
        }
        self.objects.extend(objects.all);
        self.machines.extend(objects.machines);
        self.windows.extend(objects.windows);
        match reading.faults.is_empty() {
            true => Ok(self),
            false => Err(reading.faults),
        }
    }
}

fn machine(item: &Field<'_>, reading: &mut Reading<'_>) -> Option<ExpectedMachine> {
    let fields = item.fields(&OBJECT, reading)?;
    let metadata = fields.required("metadata", reading)?;
    let metadata = metadata.fields(&METADATA, reading)?;
    let name = metadata.required("name", reading)?.text(reading)?;
    let created = metadata
        .get("creationTimestamp")
        .and_then(|f| f.time(reading));
    let spec = match fields.get("spec") {
        Some(spec) => Some(spec.fields(&MACHINE, reading)?),
        None => None,
    };
    let status = match fields.get("status") {
        Some(status) => Some(status.fields(&["enrolled"], reading)?),
        None => None,
    };
    let text = |key: &str, reading: &mut Reading<'_>| {
        let field = spec.as_ref().and_then(|spec| spec.get(key));
        field
            .and_then(|field| field.text(reading))
            .unwrap_or_default()
    };
    let in_spec = |key: &str, reading: &mut Reading<'_>| spec.as_ref()?.get(key)?.time(reading);
    let addresses = spec.as_ref().and_then(|spec| spec.get("addresses"));
    let single_use = spec.as_ref().and_then(|spec| spec.get("singleUse"));
    let enrolled = [&status, &spec];
    let enrolled = enrolled
        .into_iter()
        .flatten()
        .find_map(|f| f.get("enrolled"));
    Some(ExpectedMachine {
        machine: Machine {
            name: name.trim_end_matches('.').to_lowercase(),
            addresses: addresses
                .map(|field| self::addresses(&field, reading))
                .unwrap_or_default(),
            serial: text("serial", reading),
            uuid: text("uuid", reading),
            instance_id: text("instanceId", reading),
            provider: text("provider", reading),
            role: text("role", reading),
            not_before: in_spec("notBefore", reading),
            not_after: in_spec("notAfter", reading),
            single_use: single_use
                .and_then(|field| field.truth(reading))
                .unwrap_or(false),
            created: created.unwrap_or(UnixTime(0)),
            enrolled: None,
        },
        created,
        enrolled: match enrolled {
            None => Enrolled::No,
            Some(field) => match &field.node.content {
                Content::Bool(false) => Enrolled::No,
                Content::Bool(true) => Enrolled::Yes,
                Content::Null
                | Content::Number(_)
                | Content::Text(_)
                | Content::List(_)
                | Content::Map(_) => Enrolled::At(field.time(reading)?),
            },
        },
    })
}

fn addresses(field: &Field<'_>, reading: &mut Reading<'_>) -> Vec<MachineAddress> {
    let items = field.items(reading).unwrap_or_default();
    let addresses = items.iter().filter_map(|item| match &item.node.content {
        Content::Map(_) => {
            let fields = item.fields(&["type", "address"], reading)?;
            let kind = fields.required("type", reading)?;
            let known = AddressKind::ALL.map(|kind| (kind.word(), kind));
            Some(MachineAddress {
                kind: kind.word(&known, reading)?,
                address: fields.required("address", reading)?.text(reading)?,
            })
        }
        Content::Null
        | Content::Bool(_)
        | Content::Number(_)
        | Content::Text(_)
        | Content::List(_) => {
            let address = item.text(reading)?;
            let kind = match address.parse::<IpAddr>() {
                Ok(_) => AddressKind::InternalIP,
                Err(_) => AddressKind::Hostname,
            };
            Some(MachineAddress { kind, address })
        }
    });
    addresses.collect()
}

fn window(item: &Field<'_>, reading: &mut Reading<'_>) -> Option<BuildWindow> {
    let fields = item.fields(&OBJECT, reading)?;
    let metadata = fields.required("metadata", reading)?;
    let metadata = metadata.fields(&METADATA, reading)?;
    let name = metadata.required("name", reading)?.text(reading)?;
    let spec = fields.required("spec", reading)?;
    let spec = spec.fields(&WINDOW, reading)?;
    let opens_at = spec.required("opensAt", reading)?;
    let closes_at = spec.required("closesAt", reading)?;
    let count = |key: &str, default: u32, reading: &mut Reading<'_>| match spec.get(key) {
        None => Some(default),
        Some(field) => u32::try_from(field.count(reading)?).ok(),
    };
    let needs_token = spec.get("requireToken");
    Some(BuildWindow {
        certname: name.to_lowercase(),
        opens_at: opens_at.time(reading)?,
        closes_at: closes_at.time(reading)?,
        max_issuances: count("maxIssuances", 1, reading)?,
        issuances: count("issuances", 0, reading)?,
        require_token: needs_token
            .and_then(|field| field.truth(reading))
            .unwrap_or(false),
    })
}

const OBJECT: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
const METADATA: [&str; 5] = ["name", "creationTimestamp", "labels", "annotations", "uid"];
const MACHINE: [&str; 10] = [
    "addresses",
    "serial",
    "uuid",
    "instanceId",
    "provider",
    "role",
    "notBefore",
    "notAfter",
    "singleUse",
    "enrolled",
];
const WINDOW: [&str; 5] = [
    "opensAt",
    "closesAt",
    "maxIssuances",
    "issuances",
    "requireToken",
];
