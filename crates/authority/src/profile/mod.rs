//! Profiles: which requests a signer could ever sign, and what the certificate then looks like.
//!
//! A profile is data. [`Profile::examine`] says whether a request fits, before anybody is asked;
//! [`Profile::draft`] turns an approval into the bytes to be signed. Names, extensions and usages get
//! into a certificate only where a rule here lets them.

mod base;
mod bounds;
mod draft;
mod examination;
mod pattern;
mod statement;
mod usage;

use std::fmt;

use countersign_pki::{AltName, Extension, Oid, Weakness};

use crate::token::masked_tokens;

pub use bounds::{NameBounds, OrganizationRule, SubjectBounds};
pub use draft::{DraftFault, Drafting, Validity};
pub use examination::Check;
pub use pattern::{Pattern, PatternFault};
pub use statement::Point;
pub use usage::Usage;

/// What a signer permits and produces.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Where the subject comes from.
    pub subject: SubjectRule,
    /// Which subjects it certifies.
    pub subjects: SubjectBounds,
    /// Organizations (groups, where they become identities) that no request may name.
    pub refused_organizations: &'static [&'static str],
    /// Which kinds of alternative names are let in.
    pub alt_names: AltNameRule,
    /// Which names of those kinds.
    pub names: NameBounds,
    /// Where administrators say which names are let in.
    pub name_settings: NameSettings,
    /// Which requested extensions are let in.
    pub extensions: ExtensionRule,
    /// Which usages the certificate gets.
    pub usages: UsageRule,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// Whether it carries a subject key identifier.
    pub subject_key_id: bool,
    /// Where its authority key identifier comes from.
    pub authority_key_id: AuthorityKeyId,
    /// A Netscape comment, for signers whose certificates always had one.
    pub comment: Option<&'static str>,
    /// Extensions that the signer adds by itself.
    pub added: Vec<Extension>,
    /// Requested extensions that are let in and not copied, because what they carry is a secret.
    pub withheld: Vec<Oid>,
    /// What is looked at first, in this order, where it matters which of several faults is told. The rest follows.
    pub order: &'static [Check],
}

/// Where the subject comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectRule {
    /// One common name: the request's name at its door. Everything else is dropped.
    KeyAsCommonName,
    /// Rebuilt from the well-known attributes of the request, in a fixed order.
    Rebuilt,
}

/// Which alternative names are let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AltNameRule {
    /// The request's own name, which is always added; `others` says what more it may carry.
    OwnName {
        /// Names beside the own one.
        others: OtherNames,
    },
    /// Copied by kind; a kind that is not permitted makes the request unsignable.
    Kinds(NameKinds),
}

/// The settings that decide about alternative names, as administrators write them; `None` where none does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameSettings {
    /// About kinds of names, or about names beside the own one.
    pub kinds: Option<&'static str>,
    /// About single names.
    pub patterns: Option<&'static str>,
}

/// Names beside the own one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherNames {
    /// None.
    Refused,
    /// DNS names (no wildcards) and addresses.
    DnsAndIp,
}

/// Kinds of alternative names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a set of four kinds, read by name"
)]
pub struct NameKinds {
    /// dNSName.
    pub dns: bool,
    /// iPAddress.
    pub ip: bool,
    /// rfc822Name.
    pub email: bool,
    /// uniformResourceIdentifier.
    pub uri: bool,
}

impl NameKinds {
    /// All four.
    pub const ALL: Self = Self {
        dns: true,
        ip: true,
        email: true,
        uri: true,
    };

    /// None.
    pub const NONE: Self = Self {
        dns: false,
        ip: false,
        email: false,
        uri: false,
    };

    /// Whether the kind of a name is among them.
    pub fn has(self, name: &AltName) -> bool {
        match name {
            AltName::Dns(_) => self.dns,
            AltName::Ip(_) => self.ip,
            AltName::Email(_) => self.email,
            AltName::Uri(_) => self.uri,
            AltName::Other { .. } => false,
        }
    }

    /// Their names, in the order in which they are looked at.
    pub fn words(self) -> Vec<&'static str> {
        let kinds = [
            (self.dns, "DNS"),
            (self.email, "Email"),
            (self.ip, "IP"),
            (self.uri, "URI"),
        ];
        let there = kinds.into_iter().filter(|(is_there, _)| *is_there);
        there.map(|(_, word)| word).collect()
    }
}

impl fmt::Display for NameKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().join(" or "))
    }
}

/// Which requested extensions are let in, beside the alternative names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtensionRule {
    /// Those below some arcs, whose values are text; any other refused.
    Arcs {
        /// Which arcs.
        arcs: &'static Arcs,
        /// Whether those that grant rights are copied.
        authorization: Authorization,
    },
    /// None is copied and none refused.
    Dropped,
    /// These are copied as they are asked for.
    Copied {
        /// Which.
        oids: Vec<Oid>,
        /// What becomes of a request with others.
        others: OtherExtensions,
    },
}

/// Arcs below which somebody has extensions of their own.
#[derive(Debug, PartialEq, Eq)]
pub struct Arcs {
    /// What people call those that are copied.
    pub name: &'static str,
    /// Those that are copied.
    pub copied: &'static [Oid],
    /// The arc of those that grant rights.
    pub rights: Oid,
    /// The one among them that no request gets, and its name.
    pub never: (Oid, &'static str),
    /// The setting that lets the others in, as administrators write it.
    pub rights_setting: Option<&'static str>,
}

/// What becomes of extensions that a signer does not copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherExtensions {
    /// They are left out.
    Dropped,
    /// They make a request unsignable, unless they are of those that a signer writes by itself (RFC 5280 4.2.1).
    Refused,
}

/// Where a certificate's authority key identifier comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorityKeyId {
    /// From the issuer's subject key identifier, else from its key (RFC 5280 4.2.1.1).
    Always,
    /// From the issuer's subject key identifier; there is none if the issuer has none, as Go's library has it.
    FromIssuer,
}

/// Whether extensions that grant rights may be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authorization {
    /// They make a request unsignable.
    Refused,
    /// They are copied.
    Copied,
}

/// Which usages the certificate gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageRule {
    /// TLS server and client, whatever was asked for.
    ServerAndClient,
    /// What was asked for, inside these bounds.
    Asked {
        /// Must be among them.
        required: Vec<Usage>,
        /// Nothing else may be.
        permitted: Vec<Usage>,
    },
}

/// How long a certificate lives, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// When nothing is asked for.
    pub default: u64,
    /// More is cut to this.
    pub maximum: u64,
    /// Less is raised to this.
    pub minimum: u64,
    /// How far the start lies in the past, for clocks that lag.
    pub backdate: u64,
    /// From this lifetime on, the backdating is part of it; below, it comes on top.
    pub backdate_included_from: Option<u64>,
}

/// Why a signer could never sign a request. Doors put it into their own words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileFault {
    /// What nothing here signs, whoever else has accepted it.
    #[error("{weakness}")]
    Weak {
        /// What is wrong with it.
        weakness: Weakness,
    },
    /// Names beyond those permitted.
    #[error("it asks for alternative names that the signer does not permit: {}{}", join(.names), remedy(*.setting))]
    AltNames {
        /// All names asked for, addresses first.
        names: Vec<AltName>,
        /// What would permit them, if a setting does.
        setting: Option<&'static str>,
    },
    /// Extensions that grant rights.
    #[error("it asks for an authorization extension, which the signer does not permit{}", remedy(*.setting))]
    AuthorizationExtension {
        /// What would permit it, if a setting does.
        setting: Option<&'static str>,
    },
    /// Extensions the signer does not know.
    #[error("it asks for extensions that the signer does not permit: {}", join(.oids))]
    Extensions {
        /// Which.
        oids: Vec<Oid>,
    },
    /// An extension whose value is not text.
    #[error("the value of the requested extension {oid} is not text")]
    ExtensionValue {
        /// Which.
        oid: Oid,
    },
    /// An enrolment token in an extension that is copied, where anybody could read it.
    #[error(
        "the requested extension {oid} holds an enrolment token, which belongs into the challenge password"
    )]
    TokenInExtension {
        /// Which.
        oid: Oid,
    },
    /// A usage outside the signer's.
    #[error("it asks for the usage {usage:?}, which the signer does not permit")]
    UsageNotPermitted {
        /// Which.
        usage: String,
    },
    /// A usage that the signer insists on.
    #[error("it does not ask for the usage {usage:?}, without which the signer does not sign")]
    UsageMissing {
        /// Which.
        usage: String,
    },
    /// A group that nobody gets by asking.
    #[error("it names the organization {organization:?}, which the signer never certifies")]
    Organization {
        /// Which.
        organization: String,
    },
    /// Other organizations than these.
    #[error("its organizations are not exactly: {}", .exactly.join(", "))]
    Organizations {
        /// Those it must have.
        exactly: Vec<String>,
    },
    /// An organization outside the signer's.
    #[error("it names the organization {:?}, which the signer does not permit", masked_tokens(.organization))]
    OrganizationNotPermitted {
        /// Which.
        organization: String,
    },
    /// An organization that the signer insists on.
    #[error(
        "it does not name the organization {organization:?}, without which the signer does not sign"
    )]
    OrganizationMissing {
        /// Which.
        organization: String,
    },
    /// A common name outside the signer's.
    #[error("its common name {:?} matches none of: {}", masked_tokens(.common_name), join(.permitted))]
    CommonName {
        /// The one that counts.
        common_name: String,
        /// What it would have to match.
        permitted: Vec<Pattern>,
    },
    /// No alternative name of a kind that must be there.
    #[error("it lacks an alternative name of kind {kinds}, without which the signer does not sign")]
    NameRequired {
        /// One of these.
        kinds: NameKinds,
    },
    /// An alternative name outside the signer's.
    #[error("it asks for the alternative name {}, which the signer does not permit{}", masked_tokens(&.name.to_string()), remedy(*.setting))]
    NameNotPermitted {
        /// The first.
        name: AltName,
        /// What would permit it, if a setting does.
        setting: Option<&'static str>,
    },
    /// Nothing in it names anybody.
    #[error("it has neither a subject nor an alternative name")]
    Nameless,
}

/// How administrators permit what was refused.
fn remedy(setting: Option<&'static str>) -> String {
    setting.map_or_else(String::new, |setting| {
        format!("; to permit that, change {setting} in the configuration")
    })
}

/// What was asked for in words, which are kept and shown: a token that is taken for a name is not among them.
fn join<T: ToString>(items: &[T]) -> String {
    let items: Vec<_> = items.iter().map(ToString::to_string).collect();
    masked_tokens(&items.join(", ")).into_owned()
}
