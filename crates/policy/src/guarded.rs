//! Names and groups that are not given away like others.

use std::collections::BTreeSet;

use countersign_pki::{AltName, Subject};

use crate::allowlist::wildcard_covers;

/// Names, addresses and groups that somebody has to be careful with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guarded {
    /// Names in lower case, and addresses. One that begins with a dot stands for all names that end so.
    pub names: BTreeSet<String>,
    /// Organizations of a subject, letter by letter.
    pub groups: BTreeSet<String>,
}

impl Guarded {
    /// These names, and no groups.
    pub fn names(names: impl IntoIterator<Item = String>) -> Self {
        Self {
            names: names.into_iter().collect(),
            groups: BTreeSet::new(),
        }
    }

    /// Which of them a name is, whatever its case and with or without a dot at its end. A wildcard is as good as each name
    /// that it stands for.
    pub fn named(&self, name: &str) -> Option<&str> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let listed = |name: &str| self.names.get(name).map(String::as_str);
        let mut ends = name.match_indices('.').filter_map(|(at, _)| name.get(at..));
        let found = listed(&name).or_else(|| ends.find_map(listed));
        found.or_else(|| {
            let mut all = self.names.iter().map(String::as_str);
            match name.starts_with("*.") {
                true => all.find(|guarded| wildcard_covers(&name, guarded)),
                false => None,
            }
        })
    }

    /// Which of them a certificate with this subject and these alternative names would have.
    pub fn carried(&self, subject: &Subject, alt_names: &[AltName]) -> Option<&str> {
        let group = |name: &str| self.groups.get(name).map(String::as_str);
        if let Some(group) = subject.organizations().find_map(group) {
            return Some(group);
        }
        if self.names.is_empty() {
            return None;
        }
        let name = subject.common_names().find_map(|name| self.named(name));
        name.or_else(|| {
            alt_names.iter().find_map(|name| match name {
                AltName::Dns(name) => self.named(name),
                AltName::Ip(address) => {
                    let address = address.to_canonical().to_string();
                    self.names.get(&address).map(String::as_str)
                }
                AltName::Email(_) | AltName::Uri(_) | AltName::Other { .. } => None,
            })
        })
    }
}
