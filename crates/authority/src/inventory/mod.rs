//! The inventory: records of the machines that are expected to enrol.
//!
//! A record is checked before it is stored, so that rules can rely on its form. What enrolments leave in a record (its
//! first time, its request) is written with their approval, not here; an administrator who writes a record again changes
//! neither that nor its age. Who wants both anew removes the record first.

pub(crate) mod windows;

use std::borrow::Cow;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use countersign_pki::{UnixTime, terminal_safe};
use countersign_policy::{AddressKind, Machine, MachineAddress, Requester};
use futures_util::future::try_join_all;
use tracing::info;

use crate::audit::AuditEntry;
use crate::authorisation::actor::Actor;
use crate::authorisation::grant::Needed;
use crate::certname::{Certname, CertnameFault};
use crate::engine::Core;
use crate::faults::EngineError;
use crate::issuing::{MAX_TRIES, commit_broken};
use crate::model::{MachineRecord, inventory_name};
use crate::store::{Change, CommitFault, MachineFilter, Precondition, StoreFault, Write};
use crate::token::{looks_like_a_token, masked_tokens};

/// Machine records and build windows.
#[derive(Clone)]
pub struct Inventory {
    pub(crate) core: Arc<Core>,
}

/// What happens to a record whose name is in the inventory already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExisting {
    /// It is refused.
    Refuse,
    /// It takes the place of the one that is there.
    Replace,
}

/// What became of something that was put in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// There was none.
    Added,
    /// There was another.
    Replaced,
}

/// What an import came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// So many are new.
    pub added: usize,
    /// So many took the place of others.
    pub replaced: usize,
}

/// Why the inventory was not changed.
#[derive(Debug, thiserror::Error)]
pub enum InventoryFault {
    /// A record is not one.
    #[error("{}: {fault}", shown(.name))]
    Invalid {
        /// Whose.
        name: String,
        /// What is wrong.
        fault: MachineFault,
    },
    /// One of that name is there.
    #[error("{name} is in the inventory already")]
    Exists {
        /// The name.
        name: String,
    },
    /// None of that name is there.
    #[error("{} is not in the inventory", discreet(.name))]
    NotFound {
        /// The name.
        name: String,
    },
    /// Whoever asks may not.
    #[error(transparent)]
    Forbidden(#[from] Needed),
    /// It could not be carried through.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineFault {
    /// No machine can enrol under its name.
    #[error("the name cannot be used: {fault}")]
    Name {
        /// Why not.
        fault: CertnameFault,
    },
    /// A text is too long.
    #[error("{field} has more than {MAX_MACHINE_TEXT} bytes")]
    TooLong {
        /// Which.
        field: &'static str,
    },
    /// A text could act on a terminal, or hide in it.
    #[error("{field} has a control character or an invisible one")]
    Control {
        /// Which.
        field: &'static str,
    },
    /// A text is somebody's one-time password, put into the wrong place.
    #[error("{field} looks like an enrolment token, which is a secret and is not kept")]
    TokenShaped {
        /// Which.
        field: &'static str,
    },
    /// Too many addresses.
    #[error("there are more than {MAX_MACHINE_ADDRESSES} addresses")]
    Addresses,
    /// An address is not of its type.
    #[error("address {} is not {}", discreet(.address), if .kind.is_ip() { "an IP address" } else { "a host name" })]
    Address {
        /// Its type.
        kind: AddressKind,
        /// The text.
        address: String,
    },
    /// It would never be expected.
    #[error("not_before ({not_before}) must be earlier than not_after ({not_after})")]
    NeverExpected {
        /// From then on,
        not_before: UnixTime,
        /// until then.
        not_after: UnixTime,
    },
    /// It stands twice in one import.
    #[error("it is named twice")]
    Twice,
}

/// The record as it is stored, if it can be: names and addresses in the form in which they are compared.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn checked_machine(machine: Machine) -> Result<Machine, MachineFault> {
    let name = inventory_name(&machine.name);
    Certname::parse(&name).map_err(|fault| MachineFault::Name { fault })?;
    for (field, text) in [
        ("serial", &machine.serial),
        ("uuid", &machine.uuid),
        ("instance_id", &machine.instance_id),
        ("provider", &machine.provider),
        ("role", &machine.role),
    ] {
        if text.len() > MAX_MACHINE_TEXT {
            return Err(MachineFault::TooLong { field });
        }
        if matches!(terminal_safe(text), Cow::Owned(_)) {
            return Err(MachineFault::Control { field });
        }
        if looks_like_a_token(text) {
            return Err(MachineFault::TokenShaped { field });
        }
    }
    if machine.addresses.len() > MAX_MACHINE_ADDRESSES {
        return Err(MachineFault::Addresses);
    }
    let addresses = machine.addresses.into_iter().map(checked_address);
    let addresses = addresses.collect::<Result<_, _>>()?;
    match (machine.not_before, machine.not_after) {
        (Some(not_before), Some(not_after)) if not_before >= not_after => {
            Err(MachineFault::NeverExpected {
                not_before,
                not_after,
            })
        }
        (_, _) => Ok(Machine {
            name,
            addresses,
            ..machine
        }),
    }
}

impl Inventory {
    /// A machine of the inventory.
    pub async fn machine(&self, name: &str) -> Result<Option<MachineRecord>, StoreFault> {
        self.core.store.machine(name).await
    }

    /// A page of the inventory.
    pub async fn machines(&self, filter: MachineFilter) -> Result<Vec<MachineRecord>, StoreFault> {
        self.core.store.machines(filter).await
    }

    /// Puts a machine into the inventory. When it was made and whether it has enrolled is not taken from `machine`: the
    /// first is now, or that of the record it replaces, and so is the second.
    pub async fn add_machine(
        &self,
        machine: Machine,
        on_existing: OnExisting,
        actor: &Actor,
    ) -> Result<(MachineRecord, Put), InventoryFault> {
        let machines = std::slice::from_ref(&machine);
        self.core.authorise_machines(machines, actor).await?;
        let (machine, actor) = (checked(machine)?, &actor.requester);
        for _ in 0..MAX_TRIES {
            let existing = self
                .machine(&machine.name)
                .await
                .map_err(EngineError::from)?;
            let (put, action) = match (&existing, on_existing) {
                (Some(_), OnExisting::Refuse) => {
                    return Err(InventoryFault::Exists { name: machine.name });
                }
                (Some(_), OnExisting::Replace) => (Put::Replaced, "machine.replaced"),
                (None, _) => (Put::Added, "machine.added"),
            };
            let now = self.core.clock.now();
            let enrolled = match &existing {
                Some(old) => old.machine.enrolled,
                None => self.core.taken_over(&machine.name).await?,
            };
            let record = MachineRecord {
                machine: Machine {
                    created: existing.as_ref().map_or(now, |old| old.machine.created),
                    enrolled,
                    ..machine.clone()
                },
                version: Default::default(),
                request: existing.as_ref().and_then(|old| old.request),
            };
            let change = Change {
                preconditions: vec![unchanged(&machine.name, existing.as_ref())],
                writes: vec![Write::PutMachine(record.machine.clone())],
                audit: vec![audit(
                    now,
                    actor,
                    action,
                    subject(&machine.name),
                    String::new(),
                )],
            };
            match self.core.commit(change).await {
                Ok(committed) => {
                    info!(name = record.machine.name, %actor, action, "inventory changed");
                    let version = committed.revision;
                    return Ok((MachineRecord { version, ..record }, put));
                }
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other).into()),
            }
        }
        Err(EngineError::Contended.into())
    }

    /// Takes a machine out of the inventory. Its certificates stay what they are.
    pub async fn remove_machine(&self, name: &str, actor: &Actor) -> Result<(), InventoryFault> {
        let what = "machine.removed";
        self.core
            .authorise_expecting(what, "machine", name, actor)
            .await?;
        let actor = &actor.requester;
        let name = inventory_name(name);
        let change = Change {
            preconditions: vec![Precondition::MachineExists { name: name.clone() }],
            writes: vec![Write::DeleteMachine { name: name.clone() }],
            audit: vec![audit(
                self.core.clock.now(),
                actor,
                "machine.removed",
                subject(&name),
                String::new(),
            )],
        };
        match self.core.commit(change).await {
            Ok(_) => {
                info!(name, %actor, action = "machine.removed", "inventory changed");
                Ok(())
            }
            Err(CommitFault::Conflict { .. }) => Err(InventoryFault::NotFound { name }),
            Err(other) => Err(commit_broken(other).into()),
        }
    }

    /// Which of these machines are in the inventory already, by name.
    ///
    /// # Errors
    /// If one of them could not be imported, whatever is there.
    pub async fn existing_machines(
        &self,
        machines: Vec<Machine>,
        actor: &Actor,
    ) -> Result<Vec<String>, InventoryFault> {
        self.core.authorise_machines(&machines, actor).await?;
        let machines = all_checked(machines)?;
        let mut existing = Vec::new();
        for batch in machines.chunks(IMPORT_BATCH) {
            let found = self.records_of(batch).await?;
            existing.extend(found.into_iter().flatten().map(|old| old.machine.name));
        }
        Ok(existing)
    }

    /// Puts many machines into the inventory, some hundred per commit. Each commit is whole or not at all; if a later one
    /// fails, the earlier ones stand.
    pub async fn import_machines(
        &self,
        machines: Vec<Machine>,
        on_existing: OnExisting,
        actor: &Actor,
    ) -> Result<Imported, InventoryFault> {
        self.core.authorise_machines(&machines, actor).await?;
        let (machines, actor) = (all_checked(machines)?, &actor.requester);
        let mut imported = Imported::default();
        for batch in machines.chunks(IMPORT_BATCH) {
            let of_batch = self.import_batch(batch, on_existing, actor).await?;
            imported.added = imported.added.saturating_add(of_batch.added);
            imported.replaced = imported.replaced.saturating_add(of_batch.replaced);
        }
        Ok(imported)
    }

    async fn import_batch(
        &self,
        batch: &[Machine],
        on_existing: OnExisting,
        actor: &Requester,
    ) -> Result<Imported, InventoryFault> {
        for _ in 0..MAX_TRIES {
            let existing = self.records_of(batch).await?;
            if let (Some(first), OnExisting::Refuse) =
                (existing.iter().flatten().next(), on_existing)
            {
                return Err(InventoryFault::Exists {
                    name: first.machine.name.clone(),
                });
            }
            let replaced = existing.iter().flatten().count();
            let imported = Imported {
                added: batch.len().saturating_sub(replaced),
                replaced,
            };
            let now = self.core.clock.now();
            let mut writes = Vec::with_capacity(batch.len());
            for machine in batch {
                writes.push(Write::PutMachine(Machine {
                    created: now,
                    enrolled: self.core.taken_over(&machine.name).await?,
                    ..machine.clone()
                }));
            }
            let change = Change {
                preconditions: batch
                    .iter()
                    .zip(&existing)
                    .map(|(machine, old)| unchanged(&machine.name, old.as_ref()))
                    .collect(),
                writes,
                audit: vec![imported.audit(batch, now, actor)],
            };
            match self.core.commit(change).await {
                Ok(_) => {
                    let Imported { added, replaced } = imported;
                    info!(added, replaced, %actor, action = "machine.imported", "inventory changed");
                    return Ok(imported);
                }
                Err(CommitFault::Conflict { .. }) => {}
                Err(other) => return Err(commit_broken(other).into()),
            }
        }
        Err(EngineError::Contended.into())
    }

    /// What is stored under the name of each.
    async fn records_of(
        &self,
        batch: &[Machine],
    ) -> Result<Vec<Option<MachineRecord>>, EngineError> {
        let records = batch.iter().map(|one| self.core.store.machine(&one.name));
        Ok(try_join_all(records).await?)
    }
}

impl Imported {
    fn audit(self, batch: &[Machine], now: UnixTime, actor: &Requester) -> AuditEntry {
        let end = |machine: Option<&Machine>| machine.map(|one| one.name.clone());
        let (first, last) = (end(batch.first()), end(batch.last()));
        let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
        let Self { added, replaced } = self;
        let detail = format!("{added} added, {replaced} replaced: {first} to {last}");
        audit(
            now,
            actor,
            "machine.imported",
            "machines".to_owned(),
            detail,
        )
    }
}

fn shown(name: &str) -> Cow<'_, str> {
    if name.is_empty() {
        return Cow::Borrowed("a record without a name");
    }
    discreet(name)
}

/// A text that may be shown: nothing in it acts on a terminal, and a token that is taken for a name stays secret.
fn discreet(text: &str) -> Cow<'_, str> {
    match terminal_safe(text) {
        Cow::Borrowed(text) => masked_tokens(text),
        Cow::Owned(text) => Cow::Owned(masked_tokens(&text).into_owned()),
    }
}

fn subject(name: &str) -> String {
    format!("machine/{name}")
}

/// What an administrator did to machines or windows.
pub(crate) fn audit(
    at: UnixTime,
    actor: &Requester,
    action: &'static str,
    subject: String,
    detail: String,
) -> AuditEntry {
    let certname = subject.split_once('/').map(|(_, name)| name.to_owned());
    AuditEntry {
        certname,
        ..AuditEntry::new(at, actor.clone(), action, subject).detail(detail)
    }
}

fn unchanged(name: &str, record: Option<&MachineRecord>) -> Precondition {
    Precondition::MachineAt {
        name: name.to_owned(),
        version: record.map(|record| record.version),
    }
}

fn checked(machine: Machine) -> Result<Machine, InventoryFault> {
    let name = machine.name.clone();
    checked_machine(machine).map_err(|fault| InventoryFault::Invalid { name, fault })
}

fn all_checked(machines: Vec<Machine>) -> Result<Vec<Machine>, InventoryFault> {
    let mut names = HashSet::with_capacity(machines.len());
    let mut each = machines.into_iter().map(|machine| {
        let machine = checked(machine)?;
        if names.insert(machine.name.clone()) {
            return Ok(machine);
        }
        Err(InventoryFault::Invalid {
            name: machine.name,
            fault: MachineFault::Twice,
        })
    });
    each.by_ref().collect()
}

fn checked_address(address: MachineAddress) -> Result<MachineAddress, MachineFault> {
    let MachineAddress { kind, address } = address;
    let compared = if kind.is_ip() {
        let parsed = address.parse::<IpAddr>().ok();
        parsed.map(|number| number.to_canonical().to_string())
    } else {
        let name = Some(inventory_name(&address));
        name.filter(|name| is_host_name(name) && !looks_like_a_token(name))
    };
    match compared {
        Some(address) => Ok(MachineAddress { kind, address }),
        None => Err(MachineFault::Address { kind, address }),
    }
}

/// RFC 1123 2.1, with the underscore that certnames may have.
fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= MAX_LABEL
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    name.len() <= MAX_HOST_NAME && name.split('.').all(is_label)
}

/// Bytes of a serial, an identifier, a role: they stand in listings, in reasons and in the audit log.
pub const MAX_MACHINE_TEXT: usize = 256;
/// The most addresses of a record: rules compare each with each name of a request.
pub const MAX_MACHINE_ADDRESSES: usize = 64;
const MAX_LABEL: usize = 63; // RFC 1035 2.3.4
const MAX_HOST_NAME: usize = 253; // RFC 1035 2.3.4 without the final dot
/// So many records in one commit: others have their turn in between.
const IMPORT_BATCH: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn machine() -> Machine {
        Machine::named("web01.example.com", UnixTime(0))
    }

    fn at(kind: AddressKind, address: &str) -> MachineAddress {
        MachineAddress {
            kind,
            address: address.to_owned(),
        }
    }

    const TOKEN: &str =
        "ott1.aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q.zqthxay";

    #[test]
    fn names_and_addresses_take_the_form_in_which_they_are_compared() {
        let given = Machine {
            name: "Web01.Example.com.".to_owned(),
            addresses: vec![
                at(AddressKind::InternalIP, "2001:DB8:0::1"),
                at(AddressKind::ExternalIP, "::ffff:192.0.2.7"),
                at(AddressKind::InternalDNS, "Web01.Internal."),
                at(AddressKind::Hostname, "web_01"),
            ],
            ..machine()
        };
        let checked = checked_machine(given).unwrap();
        assert_eq!(checked.name, "web01.example.com");
        let addresses = checked.addresses.iter().map(|one| one.address.as_str());
        assert_eq!(
            addresses.collect::<Vec<_>>(),
            ["2001:db8::1", "192.0.2.7", "web01.internal", "web_01"]
        );
    }

    #[rstest]
    #[case(Machine { name: "".to_owned(), ..machine() }, "the name cannot be used: Subject hostname format is invalid")]
    #[case(Machine { name: "a b".to_owned(), ..machine() }, "the name cannot be used: Subject hostname format is invalid")]
    #[case(Machine { name: "*.a".to_owned(), ..machine() }, "the name cannot be used: Subject contains a wildcard, which is not allowed")]
    #[case(Machine { role: "x".repeat(257), ..machine() }, "role has more than 256 bytes")]
    #[case(Machine { serial: "a\u{1b}[2J".to_owned(), ..machine() }, "serial has a control character or an invisible one")]
    #[case(Machine { uuid: "a\u{202e}".to_owned(), ..machine() }, "uuid has a control character or an invisible one")]
    #[case(Machine { addresses: vec![at(AddressKind::Hostname, "a"); 65], ..machine() }, "there are more than 64 addresses")]
    #[case(Machine { addresses: vec![at(AddressKind::InternalIP, "web01")], ..machine() }, "address web01 is not an IP address")]
    #[case(Machine { addresses: vec![at(AddressKind::InternalDNS, "-a")], ..machine() }, "address -a is not a host name")]
    #[case(Machine { addresses: vec![at(AddressKind::ExternalDNS, "*.a")], ..machine() }, "address *.a is not a host name")]
    #[case(Machine { addresses: vec![at(AddressKind::Hostname, "")], ..machine() }, "address  is not a host name")]
    #[case(Machine { role: TOKEN.to_owned(), ..machine() }, "role looks like an enrolment token, which is a secret and is not kept")]
    #[case(
        Machine { addresses: vec![at(AddressKind::Hostname, TOKEN)], ..machine() },
        "address ott1.aaaqeayeaudaocaj.… is not a host name"
    )]
    #[case(
        Machine { not_before: Some(UnixTime(60)), not_after: Some(UnixTime(60)), ..machine() },
        "not_before (1970-01-01T00:01:00Z) must be earlier than not_after (1970-01-01T00:01:00Z)"
    )]
    fn refuses_what_no_rule_could_use(#[case] machine: Machine, #[case] why: &str) {
        assert_eq!(checked_machine(machine).unwrap_err().to_string(), why);
    }

    #[test]
    fn a_name_stands_once_in_an_import_however_it_is_written() {
        let again = Machine {
            name: "WEB01.example.com".to_owned(),
            ..machine()
        };
        let fault = all_checked(vec![machine(), again]).unwrap_err();
        assert_eq!(fault.to_string(), "web01.example.com: it is named twice");
    }
}
