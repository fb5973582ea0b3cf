//! Which subjects and names a signer certifies, beyond their kinds.

use std::net::IpAddr;

use countersign_pki::{AltName, Subject};
use countersign_policy::Network;

use super::pattern::{Case, Pattern};
use super::{NameKinds, ProfileFault};

/// Which subjects are permitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectBounds {
    /// The common name must match one of these; empty: any, also none at all.
    pub common_names: Vec<Pattern>,
    /// Which organizations it may have.
    pub organizations: OrganizationRule,
}

/// Which organizations a subject may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OrganizationRule {
    /// Any, also none.
    #[default]
    Any,
    /// These, in this order, and no other.
    Exactly(Vec<String>),
    /// Some of these.
    Among {
        /// Each must match one; empty: any may be there.
        permitted: Vec<Pattern>,
        /// All of these must be there.
        required: Vec<String>,
    },
}

/// Which alternative names are permitted among those of a permitted kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameBounds {
    /// There must be a name of one of these kinds; no kind: there need not be any.
    pub required: NameKinds,
    /// DNS names; empty: any. With patterns, a name that is a wildcard itself is never permitted.
    pub dns: Vec<Pattern>,
    /// Addresses; empty: any.
    pub ip: Vec<Network>,
    /// Mail addresses; empty: any.
    pub email: Vec<Pattern>,
    /// URIs; empty: any.
    pub uri: Vec<Pattern>,
}

impl SubjectBounds {
    pub(super) fn examine_organizations(&self, subject: &Subject) -> Result<(), ProfileFault> {
        let names = || subject.organizations();
        match &self.organizations {
            OrganizationRule::Any => Ok(()),
            OrganizationRule::Exactly(exactly) => match names().eq(exactly.iter()) {
                true => Ok(()),
                false => Err(ProfileFault::Organizations {
                    exactly: exactly.clone(),
                }),
            },
            OrganizationRule::Among {
                permitted,
                required,
            } => {
                let foreign = |name: &&str| !permitted.is_empty() && !any(permitted, name);
                if let Some(organization) = names().find(foreign) {
                    let organization = organization.to_owned();
                    return Err(ProfileFault::OrganizationNotPermitted { organization });
                }
                let missing = |wanted: &&String| !names().any(|name| name == *wanted);
                match required.iter().find(missing) {
                    Some(organization) => Err(ProfileFault::OrganizationMissing {
                        organization: organization.clone(),
                    }),
                    None => Ok(()),
                }
            }
        }
    }

    /// The common name that counts is the last one, as the certificate will have it.
    pub(super) fn examine_common_name(&self, subject: &Subject) -> Result<(), ProfileFault> {
        let name = subject.last_common_name().unwrap_or_default();
        if self.common_names.is_empty() || any(&self.common_names, name) {
            return Ok(());
        }
        Err(ProfileFault::CommonName {
            common_name: name.to_owned(),
            permitted: self.common_names.clone(),
        })
    }
}

impl NameBounds {
    pub(super) fn examine_presence(&self, names: &[AltName]) -> Result<(), ProfileFault> {
        let is_there = |name: &AltName| self.required.has(name);
        if self.required == NameKinds::NONE || names.iter().any(is_there) {
            return Ok(());
        }
        Err(ProfileFault::NameRequired {
            kinds: self.required,
        })
    }

    /// `setting` is what the patterns come from.
    pub(super) fn examine(
        &self,
        names: &[AltName],
        setting: Option<&'static str>,
    ) -> Result<(), ProfileFault> {
        match names.iter().find(|name| !self.permit(name)) {
            Some(name) => Err(ProfileFault::NameNotPermitted {
                name: name.clone(),
                setting,
            }),
            None => Ok(()),
        }
    }

    fn permit(&self, name: &AltName) -> bool {
        let within = |patterns: &[Pattern], name: &str, case: Case| {
            patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(name, case))
        };
        match name {
            // `*.example.com` as a pattern means the hosts of a domain, never the certificate for all of them.
            AltName::Dns(name) => {
                within(&self.dns, name, Case::Ignored)
                    && (self.dns.is_empty() || !name.contains('*'))
            }
            AltName::Email(address) => within(&self.email, address, Case::Matters),
            AltName::Uri(uri) => within(&self.uri, uri, Case::Matters),
            AltName::Ip(address) => self.permit_address(*address),
            // Never copied.
            AltName::Other { .. } => true,
        }
    }

    fn permit_address(&self, address: IpAddr) -> bool {
        self.ip.is_empty() || self.ip.iter().any(|network| network.contains(address))
    }
}

fn any(patterns: &[Pattern], name: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| pattern.matches(name, Case::Matters))
}
