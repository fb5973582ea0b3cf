//! Whether a signer could ever sign a request.

use countersign_pki::{AltName, CheckedCsr, Extension, Oid, oid};
use countersign_policy::{Wishes, carries_token};

use super::draft::is_empty_name;
use super::{
    AltNameRule, Authorization, ExtensionRule, OtherExtensions, OtherNames, Profile, ProfileFault,
    SubjectRule, UsageRule,
};
use crate::token::looks_like_a_token;

/// One thing that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The organizations of the subject.
    Organizations,
    /// Whether a name that must be there is.
    RequiredNames,
    /// The kinds of alternative names, then the names.
    AltNames,
    /// The common name of the subject.
    CommonName,
    /// Requested extensions.
    Extensions,
    /// Requested usages.
    Usages,
}

impl Check {
    const ALL: [Self; 6] = [
        Self::AltNames,
        Self::Extensions,
        Self::Usages,
        Self::Organizations,
        Self::CommonName,
        Self::RequiredNames,
    ];
}

impl Profile {
    /// Whether such a request could ever be signed. Asks nobody and changes nothing.
    pub fn examine(
        &self,
        csr: &CheckedCsr,
        key: &str,
        wishes: &Wishes,
    ) -> Result<(), ProfileFault> {
        if let Some(weakness) = csr.unsignable() {
            let weakness = *weakness;
            return Err(ProfileFault::Weak { weakness });
        }
        let rest = Check::ALL.iter().filter(|one| !self.order.contains(one));
        for check in self.order.iter().chain(rest) {
            match check {
                Check::Organizations => self.subjects.examine_organizations(csr.subject())?,
                Check::CommonName => self.subjects.examine_common_name(csr.subject())?,
                Check::RequiredNames => self.names.examine_presence(csr.alt_names())?,
                Check::AltNames => {
                    self.examine_alt_names(csr, key)?;
                    let setting = self.name_settings.patterns;
                    self.names.examine(csr.alt_names(), setting)?;
                }
                Check::Extensions => self.examine_extensions(csr)?,
                Check::Usages => self.examine_usages(wishes)?,
            }
        }
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
            } => are_hosts(names),
            // Others are dropped, as every signer of this kind does.
            AltNameRule::Kinds(kinds) => names
                .iter()
                .all(|name| kinds.has(name) || matches!(name, AltName::Other { .. })),
        };
        if permitted {
            return Ok(());
        }
        let setting = match self.alt_names {
            AltNameRule::OwnName {
                others: OtherNames::Refused,
            } => self.name_settings.kinds.filter(|_| are_hosts(names)),
            // It lets in what can be let in.
            AltNameRule::OwnName {
                others: OtherNames::DnsAndIp,
            } => None,
            AltNameRule::Kinds(_) => self.name_settings.kinds,
        };
        let (addresses, others): (Vec<_>, Vec<_>) = names
            .iter()
            .cloned()
            .partition(|name| matches!(name, AltName::Ip(_)));
        Err(ProfileFault::AltNames {
            names: addresses.into_iter().chain(others).collect(),
            setting,
        })
    }

    fn examine_extensions(&self, csr: &CheckedCsr) -> Result<(), ProfileFault> {
        let (arcs, authorization) = match &self.extensions {
            ExtensionRule::Dropped => return Ok(()),
            ExtensionRule::Copied { oids, others } => return examine_copied(csr, oids, *others),
            ExtensionRule::Arcs {
                arcs,
                authorization,
            } => (*arcs, *authorization),
        };
        let requested = || {
            csr.extensions()
                .iter()
                .filter(|e| e.oid != oid::SUBJECT_ALT_NAME)
        };
        if authorization == Authorization::Refused
            && requested().any(|e| e.oid.is_under(&arcs.rights))
        {
            return Err(ProfileFault::AuthorizationExtension {
                setting: arcs.rights_setting,
            });
        }
        let known = |id: &Oid| {
            arcs.copied.iter().any(|arc| id.is_under(arc))
                || (id.is_under(&arcs.rights) && *id != arcs.never.0)
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

/// Whether all are DNS names, no wildcards among them, or addresses.
fn are_hosts(names: &[AltName]) -> bool {
    names.iter().all(|name| match name {
        AltName::Dns(name) => !name.contains('*'),
        AltName::Ip(_) => true,
        AltName::Email(_) | AltName::Uri(_) | AltName::Other { .. } => false,
    })
}

fn examine_copied(
    csr: &CheckedCsr,
    copied: &[Oid],
    others: OtherExtensions,
) -> Result<(), ProfileFault> {
    let foreign = |e: &&Extension| {
        let is_ca = e.oid == oid::BASIC_CONSTRAINTS && !is_leaf(&e.value);
        !copied.contains(&e.oid) && (is_ca || !e.oid.is_under(&oid::CERTIFICATE_EXTENSIONS))
    };
    let foreign: Vec<Oid> = match others {
        OtherExtensions::Dropped => Vec::new(),
        OtherExtensions::Refused => csr
            .extensions()
            .iter()
            .filter(foreign)
            .map(|e| e.oid)
            .collect(),
    };
    if !foreign.is_empty() {
        return Err(ProfileFault::Extensions { oids: foreign });
    }
    let holds_token = |e: &&Extension| copied.contains(&e.oid) && carries_token(e);
    match csr.extensions().iter().find(holds_token) {
        Some(extension) => Err(ProfileFault::TokenInExtension { oid: extension.oid }),
        None => Ok(()),
    }
}

/// Whether basic constraints (RFC 5280 4.2.1.9) say what every leaf says: an empty sequence.
fn is_leaf(value: &[u8]) -> bool {
    value == [0x30, 0]
}
