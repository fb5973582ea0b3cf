//! Signing policies: what the resource `SigningPolicy` of openvox-operator's API says of one request.
//!
//! Within a policy everything that it names must hold, and one policy is enough. Names beside the certname, and the
//! extensions that make somebody an administrator, are for those whom a policy allows them by name; that holds for a policy
//! that allows everything, too.

mod glob;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_pki::oid::{self, Oid};
use countersign_pki::{AltName, CheckedCsr, Fingerprint, fingerprint_sha256};
use serde_json::{Map, Value, json};

use self::glob::{Glob, Separator};
use crate::json::{items, named, part, text};
use crate::token::Network;

/// All signing policies in force.
#[derive(Clone, Debug, Default)]
pub struct SigningPolicies {
    policies: Vec<SigningPolicy>,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct SigningPolicy {
    authority: String,
    name: String,
    any: bool,
    names: Option<Globs>,
    dns: Option<Globs>,
    emails: Option<Globs>,
    uris: Option<Globs>,
    addresses: Option<Vec<Network>>,
    extensions: Vec<Oid>,
    attributes: Vec<Attribute>,
}

/// What is wrong with a signing policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningPolicyFault {
    /// It belongs to no authority.
    #[error("spec.certificateAuthorityRef is missing")]
    NoAuthority,
    /// It names a Secret whose value is not known.
    #[error(
        "spec.csrAttributes: {attribute} is to have the value of key {key} of Secret {secret}, which does not exist"
    )]
    NoSecret {
        /// The attribute.
        attribute: String,
        /// The Secret's name.
        secret: String,
        /// The key in it.
        key: String,
    },
    /// A hash is none.
    #[error(
        "spec.csrAttributes: valueHash of {0} needs a salt in Base64 and a sha256 in hexadecimal digits"
    )]
    Hash(String),
    /// A range of addresses is none.
    #[error("spec.ipAltNames.allow: {0:?} is not a network such as 10.0.0.0/16")]
    Network(String),
    /// An extension is not known by this name.
    #[error("spec.extensions.allow: {0:?} is not the name of a Puppet extension")]
    Extension(String),
    /// It is longer than any real one.
    #[error("it has more than {MAX_ENTRIES} entries")]
    TooLong,
}

/// Globs of which one must match. Those that are malformed match nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Globs(Vec<Glob>);

#[derive(Clone, Debug)]
struct Attribute {
    name: String,
    /// `None`: no extension has the name.
    oid: Option<Oid>,
    value: Expected,
}

/// What an attribute must be. A secret is known by its hash alone.
#[derive(Clone, Debug)]
enum Expected {
    Text(String),
    Hashed { salt: Vec<u8>, digest: Fingerprint },
}

impl SigningPolicies {
    /// These, in the order of their authorities and names.
    pub fn new(mut policies: Vec<SigningPolicy>) -> Self {
        policies.sort_by(|a, b| (&a.authority, &a.name).cmp(&(&b.authority, &b.name)));
        Self { policies }
    }

    /// Those among the objects of a cluster, with the values of its Secrets.
    ///
    /// # Errors
    /// With what is wrong with each that is left out.
    pub fn of_objects(objects: &[Value]) -> (Self, Vec<String>) {
        let secrets = secrets(objects);
        let (mut policies, mut faults) = (Vec::new(), Vec::new());
        for object in objects.iter().filter(|object| is_signing_policy(object)) {
            let metadata = part(object, "metadata");
            let (namespace, name) = (text(metadata, "namespace"), text(metadata, "name"));
            let secret = |secret: &str, key: &str| {
                let of = (namespace.clone(), secret.to_owned(), key.to_owned());
                secrets.get(&of).cloned()
            };
            match SigningPolicy::read(&name, part(object, "spec"), secret) {
                Ok(policy) => policies.push(policy),
                Err(fault) => faults.push(format!("SigningPolicy {name}: {fault}")),
            }
        }
        (Self::new(policies), faults)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Whether one of them permits a request for a certname: its name, or what keeps each from it.
    pub(crate) fn permit(&self, certname: &str, csr: &CheckedCsr) -> Result<&str, String> {
        let mut against = String::new();
        for (index, policy) in self.policies.iter().enumerate() {
            match policy.permits(certname, csr) {
                Ok(()) => return Ok(&policy.name),
                Err(_) if index >= MAX_TOLD => {}
                Err(why) => {
                    let _cannot_fail = write!(against, "{}: {why}; ", policy.name);
                }
            }
        }
        let untold = self.policies.len().saturating_sub(MAX_TOLD);
        if untold > 0 {
            let _cannot_fail = write!(against, "{untold} more do not permit it; ");
        }
        match self.policies.is_empty() {
            true => Err("there is no signing policy".to_owned()),
            false => Err(against.trim_end_matches("; ").to_owned()),
        }
    }
}

impl SigningPolicy {
    /// Reads a specification. `secret` knows the values of Secrets in its namespace, by name and key.
    ///
    /// # Errors
    /// If it cannot be meant.
    pub fn read(
        name: &str,
        spec: &Value,
        secret: impl Fn(&str, &str) -> Option<String>,
    ) -> Result<Self, SigningPolicyFault> {
        let authority =
            named(spec, "certificateAuthorityRef").ok_or(SigningPolicyFault::NoAuthority)?;
        let lists = [
            "pattern",
            "certnames",
            "dnsAltNames",
            "emailAltNames",
            "uriAltNames",
        ];
        let lists = lists.iter().chain(&["ipAltNames", "extensions"]);
        let entries = lists.map(|key| items(allow(spec, key)).count());
        let entries = entries.sum::<usize>() + items(spec.get("csrAttributes")).count();
        if entries > MAX_ENTRIES {
            return Err(SigningPolicyFault::TooLong);
        }
        let networks = allow(spec, "ipAltNames").map(|list| {
            let texts = items(Some(list)).filter_map(Value::as_str);
            let parsed = texts.map(|text| {
                Network::parse(text).ok_or_else(|| SigningPolicyFault::Network(text.to_owned()))
            });
            parsed.collect::<Result<Vec<_>, _>>()
        });
        let extensions = items(allow(spec, "extensions")).filter_map(Value::as_str);
        let extensions = extensions.map(|name| {
            extension_named(name).ok_or_else(|| SigningPolicyFault::Extension(name.to_owned()))
        });
        let attributes = items(spec.get("csrAttributes"));
        Ok(Self {
            authority,
            name: name.to_owned(),
            any: spec.get("any") == Some(&Value::Bool(true)),
            names: Globs::read(spec, "certnames", Separator::Slash)
                .or_else(|| Globs::read(spec, "pattern", Separator::Slash)),
            dns: Globs::read(spec, "dnsAltNames", Separator::Slash),
            emails: Globs::read(spec, "emailAltNames", Separator::None),
            uris: Globs::read(spec, "uriAltNames", Separator::None),
            addresses: networks.transpose()?,
            extensions: extensions.collect::<Result<_, _>>()?,
            attributes: attributes
                .map(|entry| Attribute::read(entry, &secret))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Whether it permits a request, or the first thing that keeps it from that.
    fn permits(&self, certname: &str, csr: &CheckedCsr) -> Result<(), String> {
        self.guard(certname, csr)?;
        if self.any {
            return Ok(());
        }
        if let Some(names) = &self.names
            && !names.any_matches(certname)
        {
            return Err("the certname matches no pattern".to_owned());
        }
        for attribute in &self.attributes {
            attribute.holds(csr)?;
        }
        for name in csr.alt_names() {
            if let AltName::Dns(name) = name
                && !self.dns.as_ref().is_some_and(|dns| dns.any_matches(name))
            {
                return Err(format!("dnsAltNames does not allow {name}"));
            }
        }
        match self.names.is_some() || !self.attributes.is_empty() {
            true => Ok(()),
            false => Err("it has neither a pattern nor csrAttributes".to_owned()),
        }
    }

    /// What also a policy that allows everything does not give away unasked.
    fn guard(&self, certname: &str, csr: &CheckedCsr) -> Result<(), String> {
        if is_operators(certname, &self.authority) {
            return Err("the name is the operator's own".to_owned());
        }
        let mut names = csr.subject().common_names();
        let is_only = names
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case(certname))
            && names.next().is_none();
        if !is_only {
            return Err("the subject is not the certname alone".to_owned());
        }
        for name in csr.alt_names() {
            let (is_allowed, list) = match name {
                AltName::Dns(_) => (true, "dnsAltNames"),
                AltName::Ip(address) => {
                    let networks = self.addresses.as_ref();
                    let is_in = networks
                        .is_some_and(|networks| networks.iter().any(|it| it.contains(*address)));
                    (is_in, "ipAltNames")
                }
                AltName::Email(email) => (
                    self.emails.as_ref().is_some_and(|it| it.any_matches(email)),
                    "emailAltNames",
                ),
                AltName::Uri(uri) => (
                    self.uris.as_ref().is_some_and(|it| it.any_matches(uri)),
                    "uriAltNames",
                ),
                AltName::Other { .. } => {
                    return Err(
                        "it has an alternative name of a kind that no policy allows".to_owned()
                    );
                }
            };
            if !is_allowed {
                return Err(format!("{list} does not allow {}", name.to_puppet_text()));
            }
        }
        let mut privileged = csr
            .extensions()
            .iter()
            .filter(|it| it.oid.is_under(&oid::PP_AUTH));
        match privileged.find(|it| !self.extensions.contains(&it.oid)) {
            Some(extension) => {
                let dotted = extension.oid.to_string();
                let word = oid::registered_name(&extension.oid).unwrap_or(&dotted);
                Err(format!("extensions does not allow {word}"))
            }
            None => Ok(()),
        }
    }

    /// The specification with every secret value as a salted hash, to be given to others.
    ///
    /// # Errors
    /// If it cannot be meant.
    pub fn sealed(
        name: &str,
        spec: &Value,
        salt: &[u8],
        secret: impl Fn(&str, &str) -> Option<String>,
    ) -> Result<Value, SigningPolicyFault> {
        Self::read(name, spec, &secret)?;
        let mut sealed = spec.clone();
        let attributes = sealed
            .get_mut("csrAttributes")
            .and_then(Value::as_array_mut);
        for entry in attributes.into_iter().flatten() {
            let value = match secret_of(entry) {
                Some((of, key)) => secret(&of, &key).unwrap_or_default(),
                None if entry.get(HASHED).is_some() => continue,
                None => text(entry, "value"),
            };
            let hashed = json!({
                "salt": BASE64.encode(salt),
                "sha256": digest(salt, &value).to_hex(),
            });
            let kept = [("name", entry.get("name").cloned()), (HASHED, Some(hashed))];
            let kept = kept
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?)));
            *entry = Value::Object(kept.collect::<Map<_, _>>());
        }
        Ok(sealed)
    }

    /// A sealed specification as it may be shown to those who are not to guess values: a short one can be found from its hash.
    pub fn without_hashes(sealed: &Value) -> Value {
        let mut shown = sealed.clone();
        let attributes = shown.get_mut("csrAttributes");
        let attributes = attributes.and_then(Value::as_array_mut);
        for hash in attributes
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.get_mut(HASHED))
        {
            *hash = json!(WITHHELD);
        }
        shown
    }
}

impl Globs {
    fn read(spec: &Value, key: &str, separates: Separator) -> Option<Self> {
        let list = allow(spec, key)?;
        let globs = items(Some(list)).filter_map(Value::as_str);
        Some(Self(
            globs.filter_map(|it| Glob::parse(it, separates)).collect(),
        ))
    }

    fn any_matches(&self, text: &str) -> bool {
        self.0.iter().any(|glob| glob.matches(text))
    }
}

impl Attribute {
    fn read(
        entry: &Value,
        secret: impl Fn(&str, &str) -> Option<String>,
    ) -> Result<Self, SigningPolicyFault> {
        let name = text(entry, "name");
        let value = match (secret_of(entry), entry.get(HASHED)) {
            (Some((of, key)), _) => {
                let value = secret(&of, &key).ok_or(SigningPolicyFault::NoSecret {
                    attribute: name.clone(),
                    secret: of,
                    key,
                })?;
                Expected::Text(value)
            }
            (None, Some(given)) => {
                hashed(given).ok_or_else(|| SigningPolicyFault::Hash(name.clone()))?
            }
            (None, None) => Expected::Text(text(entry, "value")),
        };
        Ok(Self {
            oid: extension_named(&name),
            name,
            value,
        })
    }

    /// Whether a request has it. What it should be is not told.
    fn holds(&self, csr: &CheckedCsr) -> Result<(), String> {
        let name = &self.name;
        let oid = self
            .oid
            .as_ref()
            .ok_or_else(|| format!("{name:?} is not the name of an extension"))?;
        let extension = csr.extension(oid);
        let given = match extension {
            Some(extension) => extension
                .text_value()
                .or_else(|| String::from_utf8(extension.value.clone()).ok()),
            None => return Err(format!("the request has no {name}")),
        };
        match given.is_some_and(|given| self.value.is(&given)) {
            true => Ok(()),
            false => Err(format!("{name} has another value")),
        }
    }
}

impl Expected {
    /// Compared by their hashes: how long that takes tells nothing of the value.
    fn is(&self, given: &str) -> bool {
        match self {
            Self::Text(text) => digest(&[], text) == digest(&[], given),
            Self::Hashed {
                salt,
                digest: wanted,
            } => digest(salt, given) == *wanted,
        }
    }
}

fn digest(salt: &[u8], value: &str) -> Fingerprint {
    fingerprint_sha256(&[salt, value.as_bytes()].concat())
}

fn hashed(hashed: &Value) -> Option<Expected> {
    let salt = BASE64.decode(hashed.get("salt")?.as_str()?).ok()?;
    let digest = Fingerprint::from_hex(hashed.get("sha256")?.as_str()?)?;
    Some(Expected::Hashed { salt, digest })
}

/// Name and key of the Secret that has an attribute's value.
fn secret_of(entry: &Value) -> Option<(String, String)> {
    let reference = entry.pointer("/valueFrom/secretKeyRef")?;
    Some((text(reference, "name"), text(reference, "key")))
}

fn allow<'a>(spec: &'a Value, key: &str) -> Option<&'a Value> {
    spec.get(key)?.get("allow").filter(|list| list.is_array())
}

/// Puppet's names, the operator's name for one of them, and the password that some put there.
fn extension_named(name: &str) -> Option<Oid> {
    match name {
        "pp_auth_token" => Some(oid::PP_AUTH_AUTO_RENEW),
        "challengePassword" => Some(oid::CHALLENGE_PASSWORD),
        name => oid::registered_oid(name),
    }
}

fn is_signing_policy(object: &Value) -> bool {
    let version = text(object, "apiVersion");
    text(object, "kind") == "SigningPolicy" && version.starts_with("openvox.voxpupuli.org/")
}

/// The values of Secrets, by namespace, name and key.
fn secrets(objects: &[Value]) -> BTreeMap<(String, String, String), String> {
    let mut values = BTreeMap::new();
    for object in objects
        .iter()
        .filter(|object| text(object, "kind") == "Secret")
    {
        let metadata = part(object, "metadata");
        let mut add = |key: &str, value: String| {
            let of = (
                text(metadata, "namespace"),
                text(metadata, "name"),
                key.to_owned(),
            );
            values.insert(of, value);
        };
        let entries = |member: &str| part(object, member).as_object().into_iter().flatten();
        for (key, value) in entries("data") {
            let octets = value.as_str().and_then(|text| BASE64.decode(text).ok());
            if let Some(value) = octets.and_then(|octets| String::from_utf8(octets).ok()) {
                add(key, value);
            }
        }
        for (key, value) in entries("stringData") {
            add(key, value.as_str().unwrap_or_default().to_owned());
        }
    }
    values
}

/// In an attribute, instead of `value`: a salt, and the SHA-256 of it with the value behind it.
const HASHED: &str = "valueHash";
/// In its place where a hash is not shown.
const WITHHELD: &str = "withheld";
/// An explanation says of so many policies why they do not permit a request.
const MAX_TOLD: usize = 5;
/// Bounds what one request may cost.
const MAX_ENTRIES: usize = 10_000;

/// Whether a name is one that the operator takes for itself at an authority of that name: `NAME-operator`, or with the
/// namespace behind it where there are several.
fn is_operators(certname: &str, authority: &str) -> bool {
    let own = format!("{authority}-operator");
    let rest = certname.get(own.len()..);
    let begins = certname
        .get(..own.len())
        .is_some_and(|it| it.eq_ignore_ascii_case(&own));
    begins && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_operators_are_known() {
        for (certname, expected) in [
            ("ca-operator", true),
            ("CA-Operator", true),
            ("ca-operator.ns", true),
            ("ca-operator.ns.example.com", true),
            ("ca-operators", false),
            ("ca-operator-2", false),
            ("other-operator", false),
            ("ca", false),
            ("ca-operätor", false),
            ("", false),
        ] {
            assert_eq!(is_operators(certname, "ca"), expected, "{certname}");
        }
    }

    #[test]
    fn what_is_given_to_others_tells_no_value() {
        let spec = json!({
            "certificateAuthorityRef": "ca",
            "pattern": {"allow": ["*.example.com"]},
            "csrAttributes": [
                {"name": "pp_preshared_key", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "pp_environment", "value": "production"},
            ],
        });
        let secret = |name: &str, key: &str| {
            (name == "s" && key == "k").then(|| "not for everybody".to_owned())
        };
        let sealed = SigningPolicy::sealed("p", &spec, b"salt", secret).unwrap();
        let shown = sealed.to_string();
        assert!(
            !shown.contains("not for everybody") && !shown.contains("production"),
            "{shown}"
        );
        assert_eq!(sealed["pattern"], spec["pattern"]);
        let read = SigningPolicy::read("p", &sealed, |_, _| None).unwrap();
        for (given, expected) in [
            (["not for everybody", "production"], [true, true]),
            (["not for anybody", "Production"], [false, false]),
        ] {
            let found = read.attributes.iter().zip(given);
            let found: Vec<bool> = found
                .map(|(wanted, given)| wanted.value.is(given))
                .collect();
            assert_eq!(found, expected, "{given:?}");
        }
        // Who is shown it without hashes cannot give it back so: it would permit something else.
        let shown = SigningPolicy::without_hashes(&sealed);
        assert_eq!(
            shown["csrAttributes"],
            json!([
                {"name": "pp_preshared_key", "valueHash": "withheld"},
                {"name": "pp_environment", "valueHash": "withheld"},
            ])
        );
        assert_eq!(shown["pattern"], spec["pattern"]);
        for refused in [
            json!("withheld"),
            json!(null),
            json!({"salt": "", "sha256": "00"}),
        ] {
            let mut spec = shown.clone();
            spec["csrAttributes"][0]["valueHash"] = refused.clone();
            let fault = SigningPolicy::read("p", &spec, |_, _| None).unwrap_err();
            assert!(
                fault.to_string().contains("pp_preshared_key"),
                "{refused}: {fault}"
            );
        }
        // What is sealed stays as it is.
        let again = SigningPolicy::sealed("p", &sealed, b"other", |_, _| None).unwrap();
        assert_eq!(again, sealed);
    }

    #[test]
    fn what_cannot_be_meant_is_told() {
        let base = |more: Value| {
            let mut spec = json!({"certificateAuthorityRef": "ca"});
            spec.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            spec
        };
        let from_secret =
            json!([{"name": "pp_role", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
        for (case, spec, part) in [
            ("no authority", json!({}), "certificateAuthorityRef"),
            (
                "a Secret that is missing",
                base(json!({"csrAttributes": from_secret})),
                "key k of Secret s",
            ),
            (
                "a network",
                base(json!({"ipAltNames": {"allow": ["10.0.0.0/64"]}})),
                "10.0.0.0/64",
            ),
            (
                "an extension",
                base(json!({"extensions": {"allow": ["bogus"]}})),
                "bogus",
            ),
            (
                "a list without end",
                base(json!({"pattern": {"allow": vec!["a"; MAX_ENTRIES + 1]}})),
                "more than",
            ),
        ] {
            let fault = SigningPolicy::read("p", &spec, |_, _| None)
                .unwrap_err()
                .to_string();
            assert!(fault.contains(part), "{case}: {fault}");
        }
    }
}
