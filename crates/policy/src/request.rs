//! What is being asked for, by whom, for which signer.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use countersign_pki::{CheckedCsr, UnixTime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::facts::PodFacts;

/// One request as the rules see it.
pub struct Request<'a> {
    /// The verified PKCS#10 message.
    pub csr: &'a CheckedCsr,
    /// The name under which the door knows the request.
    pub key: &'a str,
    /// The name that the certificate would have, which is what rules about names look at; empty if it would have none.
    pub name: &'a str,
    /// The door's name; rules may compare it, nothing here gives it a meaning.
    pub door: &'a str,
    /// The signer that shall issue.
    pub signer: &'a SignerName,
    /// Who sent it.
    pub requester: &'a Requester,
    /// What the sender asked for beside the PKCS#10 message.
    pub wishes: &'a Wishes,
    /// When it arrived.
    pub at: UnixTime,
    /// Whether it asks to renew a certificate that its sender holds.
    pub renewal: bool,
    /// The pod that it is for, if it is for one; everything in it has been looked up.
    pub pod: Option<&'a PodFacts>,
}

/// The authenticated sender of a request or of an administrative call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Requester {
    /// Who it is.
    pub identity: Identity,
    /// The address the connection came from; absent for acts on the authority's own machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
}

impl Requester {
    /// A sender who showed no credentials.
    pub fn anonymous(source: Option<IpAddr>) -> Self {
        Self {
            identity: Identity::Anonymous,
            source,
        }
    }

    /// The authority itself, acting on its own machine.
    pub fn authority() -> Self {
        Self {
            identity: Identity::Authority,
            source: None,
        }
    }
}

impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.identity {
            Identity::Anonymous => write!(f, "anonymous")?,
            Identity::Authority => write!(f, "the authority itself")?,
            Identity::Certname { certname } => write!(f, "{certname}")?,
            Identity::User { username, .. } => write!(f, "{username}")?,
        }
        match self.source {
            Some(address) => write!(f, " from {address}"),
            None => Ok(()),
        }
    }
}

/// Who counts as one: an IPv4 address, or the /64 that any single IPv6 host has for itself.
pub fn one_source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// How a sender proved who it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Identity {
    /// Not at all.
    Anonymous,
    /// The authority acting for itself (first start).
    Authority,
    /// By a client certificate that carries this name.
    Certname {
        /// The certificate's common name.
        certname: String,
    },
    /// As a user with groups.
    User {
        /// User name.
        username: String,
        /// Groups, in the order they were proven.
        groups: Vec<String>,
        /// Stable identifier, if the credentials carry one.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        uid: String,
        /// Further facts about the user.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        extra: BTreeMap<String, Vec<String>>,
    },
}

/// What the sender asked for beside the PKCS#10 message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wishes {
    /// Key usages by name, for example `client auth`; empty where the door has no such wish.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usages: Vec<String>,
    /// Requested lifetime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiration_seconds: Option<u64>,
}

/// The name of a signer, `domain/path`.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub struct SignerName(String);

impl SignerName {
    /// Checks the form `domain/path`: a lower-case DNS domain of at least two labels, one slash, a
    /// path of lower-case DNS subdomain characters.
    pub fn parse(name: &str) -> Result<Self, SignerNameFault> {
        if name.len() > MAX_SIGNER_NAME {
            return Err(SignerNameFault::TooLong);
        }
        let (domain, path) = name.split_once('/').ok_or(SignerNameFault::NoSlash)?;
        if path.contains('/') {
            return Err(SignerNameFault::NoSlash);
        }
        if domain.split('.').count() < 2 || !domain.split('.').all(is_dns_label) {
            return Err(SignerNameFault::BadDomain);
        }
        // As the CSR API has it: each part may be as long as a whole domain.
        if path.split('.').any(|part| part.len() > MAX_PATH_PART) {
            return Err(SignerNameFault::LongPath);
        }
        if !path.split('.').all(has_label_form) {
            return Err(SignerNameFault::BadPath);
        }
        Ok(Self(name.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SignerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SignerName {
    type Error = SignerNameFault;

    fn try_from(name: String) -> Result<Self, SignerNameFault> {
        Self::parse(&name)
    }
}

impl From<SignerName> for String {
    fn from(name: SignerName) -> Self {
        name.0
    }
}

/// Why a text is not a signer's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignerNameFault {
    /// Longer than any legal name.
    #[error("a signer name has at most {MAX_SIGNER_NAME} bytes")]
    TooLong,
    /// Not exactly one slash.
    #[error("a signer name has the form domain/path with exactly one slash")]
    NoSlash,
    /// The part before the slash is no domain.
    #[error("the part before the slash must be a lower-case DNS domain of at least two labels")]
    BadDomain,
    /// A part between the dots after the slash is too long.
    #[error("a part between the dots after the slash has at most {MAX_PATH_PART} bytes")]
    LongPath,
    /// The part after the slash has other characters.
    #[error(
        "each part between the dots after the slash must consist of lower-case letters, digits and '-', and begin and end \
         with a letter or digit"
    )]
    BadPath,
}

/// A label of a lower-case DNS name (RFC 1123 2.1).
pub(crate) fn is_dns_label(label: &str) -> bool {
    label.len() <= 63 && has_label_form(label)
}

/// The same, however long.
fn has_label_form(label: &str) -> bool {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    label.starts_with(legal)
        && label.ends_with(legal)
        && label.chars().all(|c| legal(c) || c == '-')
}

/// 253 bytes of domain, a slash, 253 and 63 of path with a dot: the bound of the CSR API.
const MAX_SIGNER_NAME: usize = 571;
/// `issuers.cert-manager.io/NAMESPACE.NAME` has names of objects as its parts.
const MAX_PATH_PART: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_path_are_as_long_as_names_of_objects() {
        let name = |length: usize| format!("issuers.cert-manager.io/lab.{}", "x".repeat(length));
        assert!(SignerName::parse(&name(253)).is_ok());
        let fault = SignerName::parse(&name(254)).unwrap_err();
        assert_eq!(fault, SignerNameFault::LongPath);
        assert!(fault.to_string().contains("253"), "{fault}");
    }

    #[test]
    fn signer_names_follow_domain_slash_path() {
        for good in [
            "example.com/vpn",
            "kubernetes.io/kube-apiserver-client",
            "a.b/c.d-e",
        ] {
            assert!(SignerName::parse(good).is_ok(), "{good}");
        }
        for (bad, fault) in [
            ("", SignerNameFault::NoSlash),
            ("example.com", SignerNameFault::NoSlash),
            ("example.com/a/b", SignerNameFault::NoSlash),
            ("example/a", SignerNameFault::BadDomain),
            ("Example.com/a", SignerNameFault::BadDomain),
            ("example..com/a", SignerNameFault::BadDomain),
            ("example.com/", SignerNameFault::BadPath),
            ("example.com/A", SignerNameFault::BadPath),
            ("example.com/a b", SignerNameFault::BadPath),
        ] {
            assert_eq!(SignerName::parse(bad), Err(fault), "{bad}");
        }
    }
}
