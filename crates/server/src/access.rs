//! Who has which role, and for which names.
//!
//! The configuration gives roles to certnames, to certnames below a suffix and to Kubernetes groups; administrators'
//! certificates (`pp_cli_auth`) need no entry. The doors ask here before they look anything up, so that a refusal tells
//! which role was missing and nothing about what was asked for.

mod grant;

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use countersign_pki::{AltName, CheckedCsr};

use crate::puppet::Certname;

pub(crate) use grant::{Grant, Needed};
pub use grant::{Names, Needs};

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Admin,
    /// Decides and deletes requests, revokes and cleans certificates, and reads.
    Sign,
    /// Makes, shows and takes back what lets machines enrol: tokens, build windows, machine records.
    Mint,
    /// Reads.
    Read,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Sign, Self::Mint, Self::Read];

    /// As the configuration and refusals name it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Sign => "sign",
            Self::Mint => "mint",
            Self::Read => "read",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The end of a certname, from a label on: `.ops.example.com` covers `web01.ops.example.com`, and neither
/// `ops.example.com` nor `devops.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suffix(String);

impl Suffix {
    /// Reads one; the dot in front may be left out.
    ///
    /// # Errors
    /// If no certname can end so.
    pub fn parse(text: &str) -> Result<Self, SuffixFault> {
        let labels = text.strip_prefix('.').unwrap_or(text);
        if labels.ends_with('.') || Certname::parse(labels).is_err() {
            return Err(SuffixFault {
                text: text.to_owned(),
            });
        }
        Ok(Self(format!(".{labels}")))
    }

    /// With the dot in front.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn covers(&self, name: &str) -> bool {
        name.strip_suffix(&self.0)
            .is_some_and(|rest| !rest.is_empty())
    }

    /// Whether every name that `other` covers is covered.
    fn includes(&self, other: &Self) -> bool {
        other.0.ends_with(&self.0)
    }
}

/// Why a text is no suffix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no end of a certname: write a dot and lower-case labels, for example .ops.example.com"
)]
pub struct SuffixFault {
    /// What was written.
    pub text: String,
}

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

    /// What the holder of a certname's certificate may do somewhere else, where case does not count.
    fn of_certname_elsewhere(&self, certname: &str) -> Grant {
        let certname = certname.to_ascii_lowercase();
        summed(&self.elsewhere.load(), |holder| is_of(holder, &certname))
    }

    /// Whether somebody with this grant may have a certificate signed from this request. Its common name was judged
    /// before; what else would stand in the certificate must not reach further, and nobody makes an identity that may do
    /// more than themselves.
    pub(crate) fn judge_approval(
        &self,
        grant: &Grant,
        name: &str,
        csr: &CheckedCsr,
    ) -> Result<(), Needed> {
        let subject = csr.subject();
        let certnames = subject.common_names().chain([name]);
        let groups: Vec<&str> = subject.organizations().collect();
        let groups = self.of_groups(&groups);
        let gains =
            certnames.flat_map(|name| [self.of_certname(name), self.of_certname_elsewhere(name)]);
        if !gains.chain([groups]).all(|gain| grant.includes(&gain)) {
            return Err(Needed::of(Role::Admin, name));
        }
        if grant.reaches_everything(Role::Sign) {
            return Ok(());
        }
        for alt_name in csr.alt_names() {
            match alt_name {
                AltName::Dns(dns) if dns == name => {}
                AltName::Dns(dns) => grant.demand(Needs::Sign(Names::InPath), Some(dns))?,
                AltName::Ip(_) | AltName::Email(_) | AltName::Uri(_) | AltName::Other { .. } => {
                    return Err(Needed::Everything { role: Role::Sign });
                }
            }
        }
        Ok(())
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
    fn suffixes_end_at_a_label() {
        for (text, name, covers) in [
            (".ops.example.com", "web01.ops.example.com", true),
            ("ops.example.com", "web01.ops.example.com", true),
            (".ops.example.com", "a.b.ops.example.com", true),
            (".ops.example.com", "ops.example.com", false),
            (".ops.example.com", ".ops.example.com", false),
            ("ops.example.com", "devops.example.com", false),
            (".ops.example.com", "web01.ops.example.com.", false),
            (".ops.example.com", "web01.OPS.example.com", false),
            (".ops.example.com", "web01.ops.example.com.evil.net", false),
            (".lan", "web01.lan", true),
        ] {
            assert_eq!(suffix(text).covers(name), covers, "{text} {name}");
        }
        for bad in [
            "", ".", "..", "..a", "a..b", ".a.", "*.a", ".A", "a b", "a/b", ".-",
        ] {
            let fault = Suffix::parse(bad).unwrap_err().to_string();
            assert!(fault.contains(&format!("{bad:?}")), "{fault}");
        }
        assert_eq!(suffix("lan").as_str(), ".lan");
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
