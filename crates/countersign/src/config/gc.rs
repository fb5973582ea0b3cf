//! How long requests are kept.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use countersign_authority::{RequestState, Retention};
use countersign_server::{foreman, kubernetes, puppet};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Span;
use countersign_policy::SpanFault;

/// When requests are collected, and how old they get at each door.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GcSection {
    pub(crate) interval: Span,
    #[serde(deserialize_with = "at_puppet")]
    pub(crate) puppet: DoorSection,
    #[serde(deserialize_with = "at_kubernetes")]
    pub(crate) kubernetes: DoorSection,
    pub(crate) foreman: RefusalsSection,
}

impl Default for GcSection {
    fn default() -> Self {
        Self {
            interval: Span::hours(1),
            puppet: PUPPET,
            kubernetes: KUBERNETES,
            foreman: RefusalsSection::default(),
        }
    }
}

/// How old what was refused gets, at a door where nothing else is on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RefusalsSection {
    pub(crate) denied: Keep,
}

impl Default for RefusalsSection {
    fn default() -> Self {
        Self {
            denied: PUPPET.denied,
        }
    }
}

/// How old the requests of one door get, by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DoorSection {
    pub(crate) pending: Keep,
    pub(crate) denied: Keep,
    pub(crate) failed: Keep,
    pub(crate) approved: Keep,
    pub(crate) issued: Keep,
}

/// How long something is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It is never collected.
    Off,
    For(Span),
}

/// What the collector does.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    pub(crate) interval: Duration,
    pub(crate) rules: Vec<Retention>,
}

impl GcSection {
    pub(crate) fn collection(&self) -> Collection {
        let refusals = DoorSection {
            denied: self.foreman.denied,
            ..NOTHING
        };
        let doors = [
            (&puppet::SPEC, self.puppet),
            (&kubernetes::SPEC, self.kubernetes),
            (&foreman::SPEC, refusals),
        ];
        let mut rules = Vec::new();
        for (door, kept) in doors {
            for (state, keep) in [
                (RequestState::Pending, kept.pending),
                (RequestState::Denied, kept.denied),
                (RequestState::Undecided, kept.denied),
                (RequestState::Failed, kept.failed),
                (RequestState::Approved, kept.approved),
                (RequestState::Issued, kept.issued),
            ] {
                if let Keep::For(span) = keep {
                    rules.push(Retention {
                        door,
                        state,
                        seconds: span.as_seconds(),
                    });
                }
            }
        }
        Collection {
            interval: Duration::from_secs(self.interval.as_seconds()),
            rules,
        }
    }
}

/// What the file says of a door; the rest has the door's own defaults.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Stated {
    pending: Option<Keep>,
    denied: Option<Keep>,
    failed: Option<Keep>,
    approved: Option<Keep>,
    issued: Option<Keep>,
}

impl Stated {
    fn over(self, default: DoorSection) -> DoorSection {
        DoorSection {
            pending: self.pending.unwrap_or(default.pending),
            denied: self.denied.unwrap_or(default.denied),
            failed: self.failed.unwrap_or(default.failed),
            approved: self.approved.unwrap_or(default.approved),
            issued: self.issued.unwrap_or(default.issued),
        }
    }
}

fn at_puppet<'de, D: Deserializer<'de>>(from: D) -> Result<DoorSection, D::Error> {
    Stated::deserialize(from).map(|stated| stated.over(PUPPET))
}

fn at_kubernetes<'de, D: Deserializer<'de>>(from: D) -> Result<DoorSection, D::Error> {
    Stated::deserialize(from).map(|stated| stated.over(KUBERNETES))
}

impl FromStr for Keep {
    type Err = SpanFault;

    fn from_str(text: &str) -> Result<Self, SpanFault> {
        match text {
            "off" => Ok(Self::Off),
            span => span.parse().map(Self::For),
        }
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::For(span) => span.fmt(f),
        }
    }
}

impl Serialize for Keep {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Keep {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

const NOTHING: DoorSection = DoorSection {
    pending: Keep::Off,
    denied: Keep::Off,
    failed: Keep::Off,
    approved: Keep::Off,
    issued: Keep::Off,
};

/// What waits, waits until somebody decides; what was issued stays, because renewals and `csr explain` read it.
const PUPPET: DoorSection = DoorSection {
    denied: Keep::For(Span::days(30)),
    failed: Keep::For(Span::days(30)),
    ..NOTHING
};

/// As kube-controller-manager's cleaner has it; what is approved and unsigned since its 1.35.
const KUBERNETES: DoorSection = DoorSection {
    pending: Keep::For(Span::hours(24)),
    denied: Keep::For(Span::hours(1)),
    failed: Keep::For(Span::hours(1)),
    approved: Keep::For(Span::hours(24)),
    issued: Keep::For(Span::hours(1)),
};
