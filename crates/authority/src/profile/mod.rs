//! Profiles: which requests a signer could ever sign, and what the certificate then looks like.
//!
//! A profile is data. [`Profile::examine`] says whether a request fits, before anybody is asked;
//! [`Profile::draft`] turns an approval into the bytes to be signed. Names, extensions and usages get
//! into a certificate only where a rule here lets them.

mod builtin;
mod draft;
mod usage;

use countersign_pki::{AltName, CheckedCsr, Extension, Oid, oid};
use countersign_policy::Wishes;

pub use builtin::PuppetSettings;
use draft::is_empty_name;

use crate::token::{looks_like_a_token, masked_tokens};
pub use draft::{DraftFault, Drafting, Validity};
pub use usage::Usage;

/// What a signer permits and produces.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Where the subject comes from.
    pub subject: SubjectRule,
    /// Organizations (groups, where they become identities) that no request may name.
    pub refused_organizations: &'static [&'static str],
    /// Which alternative names are let in.
    pub alt_names: AltNameRule,
    /// Which requested extensions are let in.
    pub extensions: ExtensionRule,
    /// Which usages the certificate gets.
    pub usages: UsageRule,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// Whether it carries a subject key identifier.
    pub subject_key_id: bool,
    /// A Netscape comment, for signers whose certificates always had one.
    pub comment: Option<&'static str>,
    /// Extensions that the signer adds by itself.
    pub added: Vec<Extension>,
    /// Requested extensions that are let in and not copied, because what they carry is a secret.
    pub withheld: Vec<Oid>,
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

/// Names beside the own one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherNames {
    /// None.
    Refused,
    /// DNS names (no wildcards) and addresses.
    DnsAndIp,
}

/// Kinds of alternative names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// Which requested extensions are let in, beside the alternative names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionRule {
    /// Puppet's registered and private arcs; its authorization arc only if so; any other refused.
    PuppetArcs {
        /// Whether the authorization arc (never `pp_cli_auth`) is copied.
        authorization: Authorization,
    },
    /// None is copied and none refused.
    Dropped,
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
    /// Names beyond those permitted.
    #[error("it asks for alternative names that the signer does not permit: {}", join(.names))]
    AltNames {
        /// All names asked for, addresses first.
        names: Vec<AltName>,
    },
    /// Extensions that grant rights.
    #[error("it asks for an authorization extension, which the signer does not permit")]
    AuthorizationExtension,
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
    /// Nothing in it names anybody.
    #[error("it has neither a subject nor an alternative name")]
    Nameless,
}

impl Profile {
    /// Whether such a request could ever be signed. Asks nobody and changes nothing.
    pub fn examine(
        &self,
        csr: &CheckedCsr,
        key: &str,
        wishes: &Wishes,
    ) -> Result<(), ProfileFault> {
        self.examine_alt_names(csr, key)?;
        self.examine_extensions(csr)?;
        self.examine_usages(wishes)?;
        let mut organizations = csr.subject().organizations();
        if let Some(refused) = organizations.find(|o| self.refused_organizations.contains(o)) {
            return Err(ProfileFault::Organization {
                organization: refused.to_owned(),
            });
        }
        let nameless = match self.subject {
            SubjectRule::KeyAsCommonName => false,
            SubjectRule::Rebuilt => {
                is_empty_name(&self.issued_subject(csr, key))
                    && self.issued_alt_names(csr, key).is_empty()
            }
        };
        if nameless {
            return Err(ProfileFault::Nameless);
        }
        Ok(())
    }

    fn examine_alt_names(&self, csr: &CheckedCsr, key: &str) -> Result<(), ProfileFault> {
        let names = csr.alt_names();
        let permitted = match self.alt_names {
            AltNameRule::OwnName {
                others: OtherNames::Refused,
            } => names.is_empty() || matches!(names, [AltName::Dns(only)] if only == key),
            AltNameRule::OwnName {
                others: OtherNames::DnsAndIp,
            } => names.iter().all(|name| match name {
                AltName::Dns(name) => !name.contains('*'),
                AltName::Ip(_) => true,
                AltName::Email(_) | AltName::Uri(_) | AltName::Other { .. } => false,
            }),
            AltNameRule::Kinds(kinds) => names.iter().all(|name| match name {
                AltName::Dns(_) => kinds.dns,
                AltName::Ip(_) => kinds.ip,
                AltName::Email(_) => kinds.email,
                AltName::Uri(_) => kinds.uri,
                // Dropped, as every signer of this kind does.
                AltName::Other { .. } => true,
            }),
        };
        if permitted {
            return Ok(());
        }
        let (addresses, others): (Vec<_>, Vec<_>) = names
            .iter()
            .cloned()
            .partition(|name| matches!(name, AltName::Ip(_)));
        Err(ProfileFault::AltNames {
            names: addresses.into_iter().chain(others).collect(),
        })
    }

    fn examine_extensions(&self, csr: &CheckedCsr) -> Result<(), ProfileFault> {
        let authorization = match self.extensions {
            ExtensionRule::Dropped => return Ok(()),
            ExtensionRule::PuppetArcs { authorization } => authorization,
        };
        let requested = || {
            csr.extensions()
                .iter()
                .filter(|e| e.oid != oid::SUBJECT_ALT_NAME)
        };
        if authorization == Authorization::Refused
            && requested().any(|e| e.oid.is_under(&oid::PP_AUTH))
        {
            return Err(ProfileFault::AuthorizationExtension);
        }
        let known = |id: &Oid| {
            id.is_under(&oid::PP_REG)
                || id.is_under(&oid::PP_PRIV)
                || (id.is_under(&oid::PP_AUTH) && *id != oid::PP_CLI_AUTH)
        };
        let unknown: Vec<Oid> = requested()
            .filter(|e| !known(&e.oid))
            .map(|e| e.oid)
            .collect();
        if !unknown.is_empty() {
            return Err(ProfileFault::Extensions { oids: unknown });
        }
        if let Some(extension) = requested().find(|e| e.text_value().is_none()) {
            return Err(ProfileFault::ExtensionValue { oid: extension.oid });
        }
        // A preshared key may carry one; it stays out of the certificate.
        let holds_token = |e: &&Extension| {
            let text = e.text_value().unwrap_or_default();
            e.oid != oid::PP_PRESHARED_KEY && looks_like_a_token(&text)
        };
        match requested().find(holds_token) {
            Some(extension) => Err(ProfileFault::TokenInExtension { oid: extension.oid }),
            None => Ok(()),
        }
    }

    fn examine_usages(&self, wishes: &Wishes) -> Result<(), ProfileFault> {
        let UsageRule::Asked {
            required,
            permitted,
        } = &self.usages
        else {
            return Ok(());
        };
        for usage in &wishes.usages {
            if !permitted.iter().any(|p| p.name() == usage) {
                return Err(ProfileFault::UsageNotPermitted {
                    usage: usage.clone(),
                });
            }
        }
        match required
            .iter()
            .find(|r| !wishes.usages.iter().any(|u| u == r.name()))
        {
            Some(missing) => Err(ProfileFault::UsageMissing {
                usage: missing.name().to_owned(),
            }),
            None => Ok(()),
        }
    }
}

/// What was asked for in words, which are kept and shown: a token that is taken for a name is not among them.
fn join<T: ToString>(items: &[T]) -> String {
    let items: Vec<_> = items.iter().map(ToString::to_string).collect();
    masked_tokens(&items.join(", ")).into_owned()
}
