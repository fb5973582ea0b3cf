//! What a Certificate orders, checked before anybody is asked for it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use countersign_enroll::ca::extension_oid;
use countersign_pki::fingerprint_sha256;
use serde_json::json;

use super::object::CertificateSpec;

/// A name, further names and extensions that may be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) certname: String,
    /// Each once, in the order in which they were written.
    pub(crate) names: Vec<String>,
    /// Short names and texts, in the order in which they stand in the request.
    pub(crate) extensions: Vec<(String, String)>,
}

/// Why an order cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OrderFault {
    #[error("spec.certname is empty")]
    NoCertname,
    #[error(
        "spec.certname {0:?} is not a host name: it may have lower-case letters, digits, dots and hyphens, at most 253 characters"
    )]
    Certname(String),
    #[error("spec.dnsAltNames: {0:?} is neither a host name nor an IP address")]
    AltName(String),
    #[error(
        "spec.csrExtensions.customExtensions: unknown extension {0:?}; use one of Puppet's short names, such as pp_cost_center"
    )]
    UnknownExtension(String),
    #[error("spec.csrExtensions.customExtensions: {0} has a field of its own: use {1}")]
    Dedicated(String, &'static str),
    #[error("the certname {0} is reserved for the operator itself")]
    Reserved(String),
}

impl Order {
    /// What a spec orders. `further` are names that it shall have besides.
    pub(crate) fn read(spec: &CertificateSpec, further: &[String]) -> Result<Self, OrderFault> {
        if spec.certname.is_empty() {
            return Err(OrderFault::NoCertname);
        }
        if !is_host_name(&spec.certname) {
            return Err(OrderFault::Certname(shown(&spec.certname)));
        }
        let mut seen = BTreeSet::new();
        let mut names = Vec::new();
        for name in spec.dns_alt_names.iter().chain(further) {
            let is_name =
                name.parse::<IpAddr>().is_ok() || is_host_name(&name.to_ascii_lowercase());
            if !is_name {
                return Err(OrderFault::AltName(shown(name)));
            }
            if seen.insert(name.to_ascii_lowercase()) {
                names.push(name.clone());
            }
        }
        Ok(Self {
            certname: spec.certname.clone(),
            names,
            extensions: extensions(spec)?,
        })
    }

    /// A digest of the order: whoever has a certificate for it needs no other. The order of names does not count.
    pub(crate) fn digest(&self) -> String {
        let names: BTreeSet<String> = self
            .names
            .iter()
            .map(|name| name.to_ascii_lowercase())
            .collect();
        let extensions: BTreeSet<&(String, String)> = self.extensions.iter().collect();
        let text = json!([self.certname, names, extensions]).to_string();
        fingerprint_sha256(text.as_bytes())
            .to_hex()
            .to_ascii_lowercase()
    }
}

/// A DNS-1123 subdomain: what may stand in a CA's URL and in a certificate.
pub(crate) fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_edge = |byte: Option<&u8>| {
            byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let bytes = label.as_bytes();
        is_edge(bytes.first())
            && is_edge(bytes.last())
            && bytes
                .iter()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    };
    text.len() <= MAX_NAME && text.split('.').all(is_label)
}

fn extensions(spec: &CertificateSpec) -> Result<Vec<(String, String)>, OrderFault> {
    let mut all = Vec::new();
    let mut add = |name: &str, text: &str| all.push((name.to_owned(), text.to_owned()));
    if spec.pp_cli_auth {
        add(CLI_AUTH, "true");
    }
    if let Some(role) = &spec.pp_role {
        add("pp_role", role);
    }
    if let Some(environment) = &spec.pp_environment {
        add("pp_environment", environment);
    }
    for (name, text) in &spec.custom_extensions {
        let field = match name.as_str() {
            CLI_AUTH => Some("ppCliAuth"),
            "pp_role" => Some("ppRole"),
            "pp_environment" => Some("ppEnvironment"),
            _ => None,
        };
        if let Some(field) = field {
            return Err(OrderFault::Dedicated(name.clone(), field));
        }
        if !is_known(name) {
            return Err(OrderFault::UnknownExtension(shown(name)));
        }
        add(name, text);
    }
    Ok(all)
}

fn is_known(name: &str) -> bool {
    (name.starts_with("pp_") || name == "challengePassword") && extension_oid(name).is_some()
}

fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

/// Makes its holder an administrator of a Puppet CA.
pub(crate) const CLI_AUTH: &str = "pp_cli_auth";
const MAX_NAME: usize = 253;
const MAX_SHOWN: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::object::CertificateObject;
    use serde_json::Value;

    fn spec(spec: &Value) -> CertificateSpec {
        let object = json!({"metadata": {"name": "a"}, "spec": spec});
        CertificateObject::read(&object).unwrap().spec
    }

    #[test]
    fn an_order_is_checked_before_anybody_is_asked() {
        for (case, given, expected) in [
            ("no name: the default", json!({}), Ok("puppet []")),
            ("an empty name", json!({"certname": ""}), Err("is empty")),
            (
                "upper case",
                json!({"certname": "Web"}),
                Err("not a host name"),
            ),
            (
                "a path",
                json!({"certname": "../ca"}),
                Err("not a host name"),
            ),
            (
                "a dot at the end",
                json!({"certname": "web."}),
                Err("not a host name"),
            ),
            (
                "names, an address, the same twice",
                json!({"certname": "web", "dnsAltNames": ["web", "10.0.0.1", "WEB", "a.b"]}),
                Ok("web [\"web\", \"10.0.0.1\", \"a.b\"]"),
            ),
            (
                "a wildcard",
                json!({"dnsAltNames": ["*.a"]}),
                Err("\"*.a\" is neither"),
            ),
            (
                "all extensions in their order",
                json!({"csrExtensions": {
                    "ppCliAuth": true, "ppRole": "compiler", "ppEnvironment": "production",
                    "customExtensions": {"pp_department": "Engineering", "pp_cost_center": "IT"}}}),
                Ok(
                    "puppet [] pp_cli_auth=true pp_role=compiler pp_environment=production pp_cost_center=IT pp_department=Engineering",
                ),
            ),
            (
                "none of them",
                json!({"csrExtensions": {"ppCliAuth": false, "ppRole": ""}}),
                Ok("puppet []"),
            ),
            (
                "an unknown one",
                json!({"csrExtensions": {"customExtensions": {"bogus": "x"}}}),
                Err("\"bogus\""),
            ),
            (
                "one that has a field",
                json!({"csrExtensions": {"customExtensions": {"pp_role": "x"}}}),
                Err("use ppRole"),
            ),
        ] {
            let read = Order::read(&spec(&given), &[]);
            let read = read.map(|order| {
                let extensions: String = order
                    .extensions
                    .iter()
                    .map(|(name, text)| format!(" {name}={text}"))
                    .collect();
                format!("{} {:?}{extensions}", order.certname, order.names)
            });
            match expected {
                Ok(text) => assert_eq!(read.as_deref(), Ok(text), "{case}"),
                Err(part) => {
                    let fault = read.unwrap_err().to_string();
                    assert!(fault.contains(part), "{case}: {fault}");
                }
            }
        }
    }

    #[test]
    fn only_what_is_in_a_certificate_asks_for_another_one() {
        let digest = |given: Value| Order::read(&spec(&given), &[]).unwrap().digest();
        let base = json!({"certname": "web", "dnsAltNames": ["a", "b"], "renewBefore": "1d"});
        for (case, other, is_same) in [
            (
                "other order, other lead time",
                json!({"certname": "web", "dnsAltNames": ["b", "A"], "renewBefore": "9d"}),
                true,
            ),
            (
                "another name",
                json!({"certname": "web2", "dnsAltNames": ["a", "b"]}),
                false,
            ),
            (
                "one more name",
                json!({"certname": "web", "dnsAltNames": ["a", "b", "c"]}),
                false,
            ),
            (
                "an extension",
                json!({"certname": "web", "dnsAltNames": ["a", "b"], "csrExtensions": {"ppRole": "x"}}),
                false,
            ),
        ] {
            assert_eq!(digest(base.clone()) == digest(other), is_same, "{case}");
        }
    }
}
