//! Roles: what somebody may do, for which names, and what a call asks for.

use std::fmt;

use crate::certname::Certname;
use crate::redaction::shown;

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

    /// Whether a name ends so.
    pub fn covers(&self, name: &str) -> bool {
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

/// The roles of a caller, all its entries together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    is_admin: bool,
    reads: bool,
    sign: Reach,
    mint: Reach,
}

/// The names that a role is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reach {
    Nothing,
    Below(Vec<Suffix>),
    Everything,
}

/// What a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Whichever role: to learn that there is no such call.
    Any,
    /// To see something.
    Read,
    /// To see what `mint` makes.
    MintOrRead,
    /// To let machines enrol.
    Mint(Names),
    /// To decide and to revoke.
    Sign(Names),
    /// To do what nobody else may.
    Admin,
}

/// Where a call names what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// In its path, as certnames: known before anything is looked up.
    InPath,
    /// In its body or on record: what answers the call judges each name.
    Within,
    /// Nowhere: it is about all of them.
    All,
}

/// The role that a caller would have needed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Needed {
    /// One of them, whichever.
    #[error("this call needs a role: admin, sign, mint or read")]
    Any,
    /// One, for some name or other.
    #[error("this call needs the role {role}")]
    Role {
        /// Which.
        role: Role,
    },
    /// One of two.
    #[error("this call needs the role mint or read")]
    MintOrRead,
    /// One for this name.
    #[error("this call needs the role {role} for {name}")]
    Name {
        /// Which.
        role: Role,
        /// The name, fit to be shown.
        name: String,
    },
    /// Another call: this signer is not asked in this way.
    #[error(
        "signer {signer} signs only what an administrator asks of it in one call, never what waits"
    )]
    AnotherCall {
        /// Which.
        signer: String,
    },
    /// That an administrator insists.
    #[error(
        "this call needs force (force=true, or --force) for {name}, which the authority or an administrator uses"
    )]
    Force {
        /// The name, fit to be shown.
        name: String,
    },
    /// One that no suffix limits.
    #[error("this call needs the role {role} for every name")]
    Everything {
        /// Which.
        role: Role,
    },
}

impl Needed {
    /// The role alone, for the log: a name may be a secret that somebody mistook for one.
    pub fn role(&self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::MintOrRead => "mint or read",
            Self::AnotherCall { .. } => "another call",
            Self::Force { .. } => "admin, with force",
            Self::Role { role } | Self::Name { role, .. } | Self::Everything { role } => {
                role.word()
            }
        }
    }

    /// The role for a name, which may be anybody's text.
    pub fn of(role: Role, name: &str) -> Self {
        Self::Name {
            role,
            name: shown(name),
        }
    }
}

impl Grant {
    /// No role.
    pub const NOTHING: Self = Self {
        is_admin: false,
        reads: false,
        sign: Reach::Nothing,
        mint: Reach::Nothing,
    };

    /// Every role.
    pub const ADMIN: Self = Self {
        is_admin: true,
        reads: true,
        sign: Reach::Everything,
        mint: Reach::Everything,
    };

    /// Adds a role to those that are there.
    pub fn add(&mut self, role: Role, suffixes: &[Suffix]) {
        match role {
            Role::Admin => *self = Self::ADMIN,
            Role::Sign => {
                self.sign.add(suffixes);
                self.reads = true;
            }
            Role::Mint => self.mint.add(suffixes),
            Role::Read => self.reads = true,
        }
    }

    /// What this and the other may do together.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        if self.is_admin || other.is_admin {
            return Self::ADMIN;
        }
        Self {
            is_admin: false,
            reads: self.reads || other.reads,
            sign: self.sign.and(&other.sign),
            mint: self.mint.and(&other.mint),
        }
    }

    /// Whether everything may be done.
    pub fn is_admin(&self) -> bool {
        self.is_admin
    }

    /// Whether this is enough for a call, about the name in its path if that has one.
    pub fn demand(&self, needs: Needs, name: Option<&str>) -> Result<(), Needed> {
        let (met, needed) = match needs {
            Needs::Any => (*self != Self::NOTHING, Needed::Any),
            Needs::Read => (self.reads, Needed::Role { role: Role::Read }),
            Needs::MintOrRead => {
                let mints = self.mint != Reach::Nothing;
                (self.reads || mints, Needed::MintOrRead)
            }
            Needs::Mint(names) => return self.mint.demand(Role::Mint, names, name),
            Needs::Sign(names) => return self.sign.demand(Role::Sign, names, name),
            Needs::Admin => (self.is_admin, Needed::Role { role: Role::Admin }),
        };
        if met { Ok(()) } else { Err(needed) }
    }

    /// Whether no suffix limits the role.
    pub fn reaches_everything(&self, role: Role) -> bool {
        match role {
            Role::Admin => self.is_admin,
            Role::Sign => self.sign == Reach::Everything,
            Role::Mint => self.mint == Reach::Everything,
            Role::Read => self.reads,
        }
    }

    /// Whether everything that the other may do may be done with this.
    pub fn includes(&self, other: &Self) -> bool {
        (self.is_admin || !other.is_admin)
            && (self.reads || !other.reads)
            && self.sign.includes(&other.sign)
            && self.mint.includes(&other.mint)
    }
}

impl Reach {
    fn and(mut self, other: &Self) -> Self {
        match other {
            Self::Nothing => {}
            Self::Below(suffixes) => self.add(suffixes),
            Self::Everything => self = Self::Everything,
        }
        self
    }

    fn add(&mut self, suffixes: &[Suffix]) {
        match self {
            Self::Everything => {}
            _ if suffixes.is_empty() => *self = Self::Everything,
            Self::Nothing => *self = Self::Below(suffixes.to_vec()),
            Self::Below(known) => known.extend_from_slice(suffixes),
        }
    }

    fn demand(&self, role: Role, names: Names, name: Option<&str>) -> Result<(), Needed> {
        match (names, name) {
            (Names::InPath, Some(name)) => match self.covers(name) {
                true => Ok(()),
                false => Err(Needed::of(role, name)),
            },
            (Names::Within, _) => match self {
                Self::Below(_) | Self::Everything => Ok(()),
                Self::Nothing => Err(Needed::Role { role }),
            },
            (Names::All, _) | (Names::InPath, None) => match self {
                Self::Everything => Ok(()),
                Self::Below(_) => Err(Needed::Everything { role }),
                Self::Nothing => Err(Needed::Role { role }),
            },
        }
    }

    fn covers(&self, name: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Below(suffixes) => suffixes.iter().any(|suffix| suffix.covers(name)),
            Self::Everything => true,
        }
    }

    fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Everything, _) | (_, Self::Nothing) => true,
            (Self::Nothing, _) | (_, Self::Everything) => false,
            (Self::Below(mine), Self::Below(theirs)) => theirs
                .iter()
                .all(|their| mine.iter().any(|suffix| suffix.includes(their))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(role: Role, suffixes: &[&str]) -> Grant {
        let suffixes: Vec<Suffix> = suffixes.iter().map(|s| Suffix::parse(s).unwrap()).collect();
        let mut grant = Grant::NOTHING;
        grant.add(role, &suffixes);
        grant
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
            assert_eq!(
                Suffix::parse(text).unwrap().covers(name),
                covers,
                "{text} {name}"
            );
        }
        for bad in [
            "", ".", "..", "..a", "a..b", ".a.", "*.a", ".A", "a b", "a/b", ".-",
        ] {
            let fault = Suffix::parse(bad).unwrap_err().to_string();
            assert!(fault.contains(&format!("{bad:?}")), "{fault}");
        }
        assert_eq!(Suffix::parse("lan").unwrap().as_str(), ".lan");
    }

    /// One letter per caller: nobody, read, mint, mint below `.lab`, sign, sign below `.lab`, admin.
    #[test]
    fn matrix_of_roles_and_needs() {
        let callers = [
            Grant::NOTHING,
            grant(Role::Read, &[]),
            grant(Role::Mint, &[]),
            grant(Role::Mint, &[".lab"]),
            grant(Role::Sign, &[]),
            grant(Role::Sign, &[".lab"]),
            grant(Role::Admin, &[]),
        ];
        for (needs, name, expected, said) in [
            (
                Needs::Any,
                None,
                ".yyyyyy",
                "a role: admin, sign, mint or read",
            ),
            (Needs::Read, None, ".y..yyy", "the role read"),
            (Needs::MintOrRead, None, ".yyyyyy", "the role mint or read"),
            (Needs::Mint(Names::Within), None, "..yy..y", "the role mint"),
            (
                Needs::Mint(Names::InPath),
                Some("w.lab"),
                "..yy..y",
                "the role mint for w.lab",
            ),
            (
                Needs::Mint(Names::InPath),
                Some("w"),
                "..y...y",
                "the role mint for w",
            ),
            (
                Needs::Sign(Names::InPath),
                Some("w.lab"),
                "....yyy",
                "the role sign for w.lab",
            ),
            (
                Needs::Sign(Names::InPath),
                Some("w\u{1b}"),
                "....y.y",
                "the role sign for w\\u{1b}",
            ),
            (Needs::Sign(Names::Within), None, "....yyy", "the role sign"),
            (Needs::Sign(Names::All), None, "....y.y", "the role sign"),
            (Needs::Admin, None, "......y", "the role admin"),
        ] {
            let met: String = callers
                .iter()
                .map(|grant| match grant.demand(needs, name) {
                    Ok(()) => 'y',
                    Err(_) => '.',
                })
                .collect();
            assert_eq!(met, expected, "{needs:?} {name:?}");
            let refused = Grant::NOTHING.demand(needs, name).unwrap_err();
            assert_eq!(refused.to_string(), format!("this call needs {said}"));
        }
        let limited = grant(Role::Sign, &[".lab"]).demand(Needs::Sign(Names::All), None);
        assert_eq!(
            limited.unwrap_err().to_string(),
            "this call needs the role sign for every name"
        );
    }

    #[test]
    fn nobody_includes_more_than_they_have() {
        let all = [
            Grant::NOTHING,
            grant(Role::Read, &[]),
            grant(Role::Sign, &[".a.lab"]),
            grant(Role::Sign, &[".lab"]),
            grant(Role::Sign, &[]),
            grant(Role::Admin, &[]),
        ];
        for (at, greater) in all.iter().enumerate() {
            for (below, lesser) in all.iter().enumerate() {
                assert_eq!(greater.includes(lesser), at >= below, "{at} {below}");
            }
        }
        assert!(!grant(Role::Sign, &[]).includes(&grant(Role::Mint, &[".lab"])));
        assert!(!grant(Role::Mint, &[]).includes(&grant(Role::Read, &[])));
    }
}
