//! Who has which role, and for which names.
//!
//! The configuration gives roles to certnames, to certnames below a suffix and to Kubernetes groups; administrators'
//! certificates (`pp_cli_auth`) need no entry. The doors ask here before they look anything up, so that a refusal tells
//! which role was missing and nothing about what was asked for.

use std::sync::Arc;

use arc_swap::ArcSwap;
use countersign_authority::{Authority, Roles};

pub(crate) use countersign_authority::grant::{Grant, Needed};
pub use countersign_authority::grant::{Names, Needs, Role, Suffix, SuffixFault};

/// Who is given a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The certificate of one name, where certificates of the Puppet issuer are identities.
    Certname(String),
    /// The certificates of all names with this end, in the same place.
    Below(Suffix),
    /// The members of a group, where certificates of the Kubernetes issuer are identities.
    Group(String),
}

/// One role for one holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Who.
    pub holder: Holder,
    /// Which role.
    pub role: Role,
    /// The names that `sign` and `mint` reach; none: every name. They mean nothing for other roles.
    pub suffixes: Vec<Suffix>,
}

/// The roles in force. Cheap to clone; clones change together.
#[derive(Clone, Debug, Default)]
pub struct Access {
    entries: Arc<ArcSwap<Vec<Entry>>>,
    /// Never asked for what a caller may do, only for what a certificate would be worth.
    elsewhere: Arc<ArcSwap<Vec<Entry>>>,
}

impl Access {
    /// With these entries.
    #[must_use]
    pub fn new(entries: Vec<Entry>) -> Self {
        let access = Self::default();
        access.set(entries);
        access
    }

    /// Tells the engine of these roles, which come with certificates: nobody may approve one that may do more than
    /// themselves.
    pub(crate) fn tell(&self, authority: &Authority) {
        authority.set_roles(Arc::new(self.clone()));
    }

    /// Other entries from now on, also for connections that are open.
    pub fn set(&self, entries: Vec<Entry>) {
        self.entries.store(Arc::new(entries));
    }

    /// The roles that certnames have from now on where another list than this counts, as at the Foreman listener. They
    /// are none here, and still nobody approves such a name who may do less.
    pub fn set_elsewhere(&self, entries: Vec<Entry>) {
        self.elsewhere.store(Arc::new(entries));
    }

    /// What the holder of a certname's certificate may do.
    pub(crate) fn of_certname(&self, certname: &str) -> Grant {
        summed(&self.entries.load(), |holder| is_of(holder, certname))
    }

    /// What the members of these groups may do.
    pub(crate) fn of_groups(&self, groups: &[&str]) -> Grant {
        summed(&self.entries.load(), |holder| match holder {
            Holder::Group(group) => groups.contains(&group.as_str()),
            Holder::Certname(_) | Holder::Below(_) => false,
        })
    }
}

impl Roles for Access {
    /// Wherever it counts: here, or where another list does, as at the Foreman listener.
    fn of_certificate(&self, names: &[&str], groups: &[&str]) -> Grant {
        let elsewhere = self.elsewhere.load();
        names.iter().fold(self.of_groups(groups), |grant, name| {
            let there = summed(&elsewhere, |holder| is_of(holder, name));
            grant.and(&self.of_certname(name)).and(&there)
        })
    }
}

/// All that these entries give to one holder.
fn summed(entries: &[Entry], is_holder: impl Fn(&Holder) -> bool) -> Grant {
    let mut grant = Grant::NOTHING;
    for entry in entries.iter().filter(|entry| is_holder(&entry.holder)) {
        grant.add(entry.role, &entry.suffixes);
    }
    grant
}

fn is_of(holder: &Holder, certname: &str) -> bool {
    match holder {
        Holder::Certname(name) => name == certname,
        Holder::Below(suffix) => suffix.covers(certname),
        Holder::Group(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suffix(text: &str) -> Suffix {
        Suffix::parse(text).unwrap()
    }

    fn entry(holder: Holder, role: Role, suffixes: &[&str]) -> Entry {
        Entry {
            holder,
            role,
            suffixes: suffixes.iter().map(|text| suffix(text)).collect(),
        }
    }

    #[test]
    fn several_entries_add_up() {
        let access = Access::new(vec![
            entry(Holder::Certname("a.x".to_owned()), Role::Read, &[]),
            entry(Holder::Below(suffix(".x")), Role::Sign, &[".lab"]),
            entry(Holder::Certname("a.x".to_owned()), Role::Sign, &[".dev"]),
            entry(Holder::Certname("b.x".to_owned()), Role::Sign, &[]),
            entry(Holder::Group("a.x".to_owned()), Role::Admin, &[]),
        ]);
        let signs = |certname: &str, name: &str| {
            let grant = access.of_certname(certname);
            grant.demand(Needs::Sign(Names::InPath), Some(name)).is_ok()
        };
        for (certname, name, may) in [
            ("a.x", "w.lab", true),
            ("a.x", "w.dev", true),
            ("a.x", "w.prod", false),
            ("b.x", "w.prod", true),
            ("c.x", "w.lab", true),
            ("c.x", "w.dev", false),
            ("x", "w.lab", false),
        ] {
            assert_eq!(signs(certname, name), may, "{certname} {name}");
        }
        // A group is no certname, and the reverse.
        assert!(access.of_groups(&["b.x"]) == Grant::NOTHING);
        assert!(access.of_groups(&["x", "a.x"]) == Grant::ADMIN);
        access.set(Vec::new());
        assert!(access.of_certname("a.x") == Grant::NOTHING);
    }
}
