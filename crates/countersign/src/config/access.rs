//! `access`: who has which role, and for which names.

use std::str::FromStr;

use countersign_server::access::{Entry, Holder, Role, Suffix, SuffixFault};
use countersign_server::puppet::Certname;
use serde::{Deserialize, Serialize};

use super::{nearest, word};

/// One entry of the list: a role for a certname, the certnames below a suffix, or a Kubernetes group.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub(crate) struct AccessSection {
    pub(crate) entry: Entry,
}

/// An entry as the file has it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certname: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    suffix: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(with = "word")]
    role: RoleWord,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    suffixes: Vec<String>,
}

impl TryFrom<Fields> for AccessSection {
    type Error = AccessFault;

    fn try_from(fields: Fields) -> Result<Self, AccessFault> {
        let role = fields.role.0;
        let holder = match (fields.certname, fields.suffix, fields.group) {
            (Some(name), None, None) => match Certname::parse(&name) {
                Ok(name) => Holder::Certname(name.into_string()),
                Err(_) => return Err(AccessFault::Certname { text: name }),
            },
            (None, Some(suffix), None) => Holder::Below(Suffix::parse(&suffix)?),
            (None, None, Some(group)) if group.trim().is_empty() => {
                return Err(AccessFault::Group);
            }
            (None, None, Some(group)) => Holder::Group(group),
            (None, None, None) => return Err(AccessFault::Nobody),
            _ => return Err(AccessFault::Several),
        };
        match role {
            Role::Sign | Role::Mint => {}
            Role::Admin | Role::Read if fields.suffixes.is_empty() => {}
            Role::Admin | Role::Read => return Err(AccessFault::Unlimited { role }),
        }
        let suffixes = fields.suffixes.iter().map(|text| Suffix::parse(text));
        let suffixes = suffixes.collect::<Result<_, _>>()?;
        let entry = Entry {
            holder,
            role,
            suffixes,
        };
        Ok(Self { entry })
    }
}

impl From<AccessSection> for Fields {
    fn from(section: AccessSection) -> Self {
        let Entry {
            holder,
            role,
            suffixes,
        } = section.entry;
        let (mut certname, mut suffix, mut group) = (None, None, None);
        match holder {
            Holder::Certname(name) => certname = Some(name),
            Holder::Below(below) => suffix = Some(below.as_str().to_owned()),
            Holder::Group(name) => group = Some(name),
        }
        Self {
            certname,
            suffix,
            group,
            role: RoleWord(role),
            suffixes: suffixes.iter().map(|s| s.as_str().to_owned()).collect(),
        }
    }
}

/// A role as the file spells it.
struct RoleWord(Role);

impl FromStr for RoleWord {
    type Err = AccessFault;

    fn from_str(text: &str) -> Result<Self, AccessFault> {
        let found = Role::ALL.into_iter().find(|role| role.word() == text);
        found.map(Self).ok_or_else(|| AccessFault::Role {
            nearest: nearest(text, Role::ALL.map(Role::word)),
            text: text.to_owned(),
        })
    }
}

impl std::fmt::Display for RoleWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Why an entry is not taken.
#[derive(Debug, thiserror::Error)]
enum AccessFault {
    #[error("{text:?} is no role: say admin, sign, mint or read{}", meant(nearest))]
    Role {
        text: String,
        nearest: Option<&'static str>,
    },
    #[error("the entry names nobody: give it one of certname, suffix and group")]
    Nobody,
    #[error(
        "the entry names several: give it one of certname, suffix and group, and the others an entry each"
    )]
    Several,
    #[error(
        "certname: {text:?} is no certname: write one in lower case, for example ops01.example.com"
    )]
    Certname { text: String },
    #[error("group: the name is empty")]
    Group,
    #[error("suffixes: the role {role} has no limit: remove them, or give the role sign or mint")]
    Unlimited { role: Role },
    #[error(transparent)]
    Suffix(#[from] SuffixFault),
}

fn meant(nearest: &Option<&'static str>) -> String {
    nearest
        .map(|role| format!("; did you mean {role:?}?"))
        .unwrap_or_default()
}
