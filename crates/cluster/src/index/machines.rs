//! Where Machines come from: the sources of the configuration, what discovery found of each, and all their Machines as one
//! list.

use std::collections::BTreeSet;
use std::sync::Arc;

use countersign_pki::UnixTime;
use countersign_policy::{ClusterMachine, Looked};

use super::kinds::{Objects, key_of};
use super::{Answer, Change, Index, Topic, Watched, Woken};
use crate::objects::{self, KnownMachine};

/// All Machines, as they were put together once.
#[derive(Debug)]
pub(super) struct Snapshot {
    all: Arc<[ClusterMachine]>,
    /// When the next of them stops counting.
    until: Option<UnixTime>,
}

/// A source of Machines.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) group: String,
    pub(super) state: SourceState,
}

#[derive(Debug)]
pub(super) enum SourceState {
    /// Nobody has looked yet.
    New,
    /// It cannot be known whether it is there, in words.
    Unknown(String),
    /// The cluster does not have it.
    Absent,
    /// It is served at this version, and watched.
    Served {
        version: String,
        machines: Objects<KnownMachine>,
    },
}

impl Index {
    /// Takes in what discovery found for a group: the version at which it serves Machines, that it does not exist, or why
    /// that cannot be known. Returns the source that has to be watched from now on.
    pub(crate) fn discovered(
        &mut self,
        group: &str,
        found: Looked<Option<String>>,
    ) -> (Option<Watched>, Woken) {
        let Some(source) = self.sources.iter_mut().find(|s| s.group == group) else {
            return (None, Woken::new());
        };
        let (state, watch) = match (found, &source.state) {
            (Ok(Some(version)), SourceState::Served { version: known, .. })
                if version == *known =>
            {
                return (None, Woken::new());
            }
            (Ok(Some(version)), _) => {
                let name = format!("{group}/{version}");
                let state = SourceState::Served {
                    version: name.clone(),
                    machines: Objects::default(),
                };
                (state, Some(Watched::Machines(name)))
            }
            (Ok(None), SourceState::Absent) => return (None, Woken::new()),
            (Ok(None), _) => (SourceState::Absent, None),
            // What is served is watched, and its watch says by itself when it fails.
            (Err(_), SourceState::Served { .. } | SourceState::Absent) => {
                return (None, Woken::new());
            }
            (Err(why), SourceState::Unknown(known)) if why == *known => {
                return (None, Woken::new());
            }
            (Err(why), SourceState::Unknown(_) | SourceState::New) => {
                (SourceState::Unknown(why), None)
            }
        };
        source.state = state;
        self.machines = None;
        (watch, self.woken([Topic::Sources]))
    }

    /// Whether the cluster has this group of Machines, or may have it.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        let source = self.sources.iter().find(|source| source.group == group);
        source.is_some_and(|source| !matches!(source.state, SourceState::Absent))
    }

    /// The sources of Machines that are served, as watches.
    pub(crate) fn machine_watches(&self) -> BTreeSet<Watched> {
        let served = self
            .sources
            .iter()
            .filter_map(|source| match &source.state {
                SourceState::Served { version, .. } => Some(Watched::Machines(version.clone())),
                SourceState::New | SourceState::Unknown(_) | SourceState::Absent => None,
            });
        served.collect()
    }

    pub(super) fn apply_to_machines(&mut self, name: &str, change: Change) -> Woken {
        let found = self
            .sources
            .iter_mut()
            .find_map(|source| match &mut source.state {
                SourceState::Served { version, machines } if version == name => Some(machines),
                SourceState::Served { .. }
                | SourceState::New
                | SourceState::Unknown(_)
                | SourceState::Absent => None,
            });
        self.machines = None;
        let Some(machines) = found else {
            return Woken::new();
        };
        // What a Machine was called before matters as much as what it is called now.
        let before: Vec<Arc<KnownMachine>> = match &change {
            Change::All(_) => machines.all.values().map(Arc::clone).collect(),
            Change::Set(object) | Change::Gone(object) => machines
                .all
                .get(&key_of(object))
                .map(Arc::clone)
                .into_iter()
                .collect(),
            Change::Unreadable(_) => Vec::new(),
        };
        let changed = machines.apply(change, |object| objects::machine(name, object));
        let after = changed.keys.iter().filter_map(|key| machines.all.get(key));
        let topics: BTreeSet<Topic> = before
            .iter()
            .chain(after)
            .flat_map(|known| names_of(&known.machine))
            .map(Topic::Machine)
            .chain(changed.recovered.then_some(Topic::Sources))
            .collect();
        self.woken(topics)
    }

    pub(super) fn all_machines(
        &mut self,
        now: UnixTime,
    ) -> Result<Arc<[ClusterMachine]>, MachinesFault> {
        if let Some(snapshot) = &self.machines
            && snapshot.until.is_none_or(|until| now < until)
        {
            return Ok(Arc::clone(&snapshot.all));
        }
        let mut all = Vec::new();
        let mut valid_until: Option<UnixTime> = None;
        for source in &self.sources {
            match &source.state {
                SourceState::New => return Err(MachinesFault::NotLookedFor),
                SourceState::Unknown(why) => {
                    let why = format!("Machines of {}: {why}", source.group);
                    return Err(MachinesFault::Unreadable(why));
                }
                SourceState::Absent => {}
                SourceState::Served { version, machines } => {
                    if let Some(why) = &machines.unreadable {
                        let why = format!("Machines of {version}: {why}");
                        return Err(MachinesFault::Unreadable(why));
                    }
                    for known in machines.all.values() {
                        let mut machine = known.machine.clone();
                        machine.deleting |= known.until.is_some_and(|until| now >= until);
                        let next = known.until.filter(|until| now < *until);
                        valid_until = valid_until.into_iter().chain(next).min();
                        all.push(machine);
                    }
                }
            }
        }
        let all: Arc<[ClusterMachine]> = all.into();
        self.machines = Some(Snapshot {
            all: Arc::clone(&all),
            until: valid_until,
        });
        Ok(all)
    }
}

/// Why there is no list of Machines.
pub(super) enum MachinesFault {
    NotLookedFor,
    Unreadable(String),
}

impl From<MachinesFault> for Answer {
    fn from(fault: MachinesFault) -> Self {
        match fault {
            MachinesFault::NotLookedFor => Self::Discover,
            MachinesFault::Unreadable(why) => Self::Known(Err(why)),
        }
    }
}

/// Every name by which a request may speak of a Machine.
fn names_of(machine: &ClusterMachine) -> BTreeSet<String> {
    let addresses = machine.addresses.iter().map(|address| &address.address);
    let names = addresses.chain(&machine.node);
    names.map(|name| folded(name)).collect()
}

/// As names are compared at most loosely: without a dot at the end, in lower case.
pub(super) fn folded(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_lowercase()
}
