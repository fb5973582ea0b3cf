//! Enrolment tokens as rules see them: what came with a request, what is on record of it, and whether that suits the
//! request. The secret itself never comes here.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use countersign_pki::{AltName, Oid, UnixTime, oid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::facts::LedgerCertificate;
use crate::request::Request;

/// What a request carries where a token would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "found", rename_all = "camelCase")]
pub enum TokenFacts {
    /// Nothing.
    Missing,
    /// Something that is no token, in words.
    Malformed {
        /// What is wrong with it.
        why: String,
    },
    /// More than one thing that may be meant, in words.
    Ambiguous {
        /// What there is.
        why: String,
    },
    /// A token that is not on record, or not with this secret.
    Unknown {
        /// What it calls itself.
        id: String,
    },
    /// A token whose secret is right.
    Known(Box<Token>),
}

impl TokenFacts {
    /// What the token calls itself, if it is one.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Missing | Self::Malformed { .. } | Self::Ambiguous { .. } => None,
            Self::Unknown { id } => Some(id),
            Self::Known(token) => Some(&token.id),
        }
    }

    /// The token, if its secret is right.
    pub fn known(&self) -> Option<&Token> {
        match self {
            Self::Known(token) => Some(token),
            Self::Missing
            | Self::Malformed { .. }
            | Self::Ambiguous { .. }
            | Self::Unknown { .. } => None,
        }
    }
}

/// A token on record, as far as a decision looks at it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Its public part.
    pub id: String,
    /// Whom it is for.
    pub binding: TokenBinding,
    /// Before this it is not good, but for a minute of skew.
    pub not_before: UnixTime,
    /// From this on it is not good.
    pub expires_at: UnixTime,
    /// How many certificates it is good for.
    pub max_uses: u32,
    /// How many it has been used for.
    pub uses: u32,
    /// Whether it was taken back, superseded, or is from before a restore.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
    /// Whether it was misused too often.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub locked: bool,
    /// What the certificate may say.
    #[serde(default)]
    pub terms: TokenTerms,
    /// Its use by this very name and key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same: Option<TokenUse>,
    /// Its first use by another name or key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<TokenUse>,
    /// The certificate that the name has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<LedgerCertificate>,
}

/// What a token permits beside the name. It limits the whole certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenTerms {
    /// Alternative names beside the name itself, as `DNS:x` or `IP:y`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_sans: Vec<String>,
    /// The extensions that may be asked for and their values, by dotted identifier; absent: those that the signer permits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_extensions: Option<BTreeMap<String, Vec<String>>>,
    /// SHA-256 of the one public key that it is for, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spki_sha256: Option<String>,
    /// Networks that the request must come from; empty: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_cidrs: Vec<Network>,
    /// Whether the certificate that the name has may be replaced.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_replace: bool,
    /// The one signer that it is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub profile: String,
}

/// One use of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenUse {
    /// The name.
    pub certname: String,
    /// SHA-256 of its public key, in hexadecimal.
    pub spki_sha256: String,
    /// How far it has come.
    pub state: TokenUseState,
    /// The certificate's serial in hexadecimal digits; none if somebody else signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// When.
    pub at: UnixTime,
    /// Until then the same key may ask for the same outcome again.
    pub retry_until: UnixTime,
}

/// How far a use of a token has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenUseState {
    /// Its certificate is about to be signed.
    Reserved,
    /// Its certificate is on record.
    Issued,
}

impl TokenUseState {
    /// The word in records and answers.
    pub fn word(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Issued => "issued",
        }
    }
}

/// Whom a token is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "value", rename_all = "lowercase")]
pub enum TokenBinding {
    /// One name.
    Exact(#[schemars(description = "The name, in lower case.")] String),
    /// All names below a domain, with one or more labels more.
    Glob(#[schemars(description = "The domain behind `*.`, with that.")] String),
}

impl TokenBinding {
    /// The word for its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Exact(_) => "exact",
            Self::Glob(_) => "glob",
        }
    }

    /// The name or pattern.
    pub fn value(&self) -> &str {
        match self {
            Self::Exact(value) | Self::Glob(value) => value,
        }
    }

    /// Whether it is for this name, compared byte for byte.
    pub fn covers(&self, name: &str) -> bool {
        match self {
            Self::Exact(value) => value == name,
            Self::Glob(value) => value
                .strip_prefix('*')
                .and_then(|domain| name.strip_suffix(domain))
                .is_some_and(|rest| !rest.is_empty() && rest.split('.').all(|l| !l.is_empty())),
        }
    }
}

impl fmt::Display for TokenBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.value())
    }
}

/// A network in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Reads `192.0.2.0/24`, `2001:db8::/32` or a single address.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().ok().filter(|prefix| *prefix <= longest)?
            }
            Some(_) => return None,
            None => longest,
        };
        Some(Self { address, prefix })
    }

    /// Whether an address is in it. An IPv4 address inside of IPv6 is that IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, true),
            IpAddr::V6(v6) => (u128::from(v6), false),
        };
        let (own, own_is_v4) = bits(self.address);
        let (other, other_is_v4) = bits(address.to_canonical());
        let mask = match self.prefix {
            0 => 0,
            prefix => u128::MAX << 128_u8.saturating_sub(prefix),
        };
        own_is_v4 == other_is_v4 && own & mask == other & mask
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is no network such as 192.0.2.0/24"))
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

/// What the configuration says of requests whose token is wrong, or that have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenHandling {
    /// What becomes of a request whose token is wrong.
    pub on_reject: OnToken,
    /// What becomes of one without, if nothing else approves it. Waiting is the default.
    pub on_missing: OnMissing,
}

/// What becomes of a request whose token is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnToken {
    /// It is denied.
    #[default]
    Deny,
    /// It waits for a person, unless a rule further down approves it.
    Pend,
}

/// What becomes of a request without a token, if nothing else approves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissing {
    /// It waits for a person.
    #[default]
    Pend,
    /// It is denied.
    Deny,
}

/// Why a token does not suit a request.
pub(crate) struct Difference {
    pub(crate) code: &'static str,
    pub(crate) reason: String,
}

/// The name that a token must be bound to for a request: that of the certificate, or of the node that it speaks for.
pub fn token_name<'a>(request: &Request<'a>) -> &'a str {
    let node = NODE_SIGNERS
        .contains(&request.signer.as_str())
        .then(|| request.name.strip_prefix(NODE));
    node.flatten().unwrap_or(request.name)
}

/// Whether a token that was rejected for this reason was misused: its secret is known to somebody who should not.
pub fn is_misuse(code: &str) -> bool {
    MISUSES.contains(&code)
}

/// Compares a token whose secret is right with the request that carries it. The order of the checks is the order in which
/// people see their results: theft before what ends by itself.
///
/// The same name and key asking again is no matter of rules: it gets what it got. Who comes here with a use on record may
/// not have that any more.
pub(crate) fn compare(
    token: &Token,
    request: &Request<'_>,
    now: UnixTime,
) -> Result<(), Difference> {
    let is = |code, reason: String| Err(Difference { code, reason });
    let name = token_name(request);
    if token.revoked {
        return is("token_revoked", "it was taken back".to_owned());
    }
    if token.locked {
        return is("token_locked", "it was misused too often".to_owned());
    }
    bound_to(token, request, name)?;
    if token.same.is_some() {
        let reason = "this key has had its certificate by it".to_owned();
        return is("token_exhausted", reason);
    }
    match &token.other {
        Some(other) if token.max_uses <= 1 && other.certname == name => {
            let reason = "another key has used it".to_owned();
            return is("token_key_mismatch", reason);
        }
        Some(other) if token.max_uses <= 1 => {
            let reason = format!("{} has used it", other.certname);
            return is("token_certname_mismatch", reason);
        }
        Some(_) | None => {}
    }
    if now.plus_seconds(SKEW_SECONDS) < token.not_before {
        let reason = format!("it is good from {} on", token.not_before);
        return is("token_not_yet_valid", reason);
    }
    if now >= token.expires_at {
        let reason = format!("it was good until {}", token.expires_at);
        return is("token_expired", reason);
    }
    if token.uses >= token.max_uses {
        let reason = format!("all of its {} uses are used up", token.max_uses);
        return is("token_exhausted", reason);
    }
    let terms = &token.terms;
    let key = request.csr.key_fingerprint().to_hex();
    if terms
        .spki_sha256
        .as_ref()
        .is_some_and(|bound| *bound != key)
    {
        return is("token_key_mismatch", "it is for another key".to_owned());
    }
    let source = request.requester.source;
    let networks = &terms.source_cidrs;
    let comes_from = |network: &Network| source.is_some_and(|from| network.contains(from));
    if !networks.is_empty() && !networks.iter().any(comes_from) {
        let reason = "the request does not come from a network that it is for".to_owned();
        return is("token_source_not_allowed", reason);
    }
    for alt_name in request.csr.alt_names() {
        if !may_have_name(terms, alt_name, name) {
            let reason = format!("it does not permit {}", shown(alt_name));
            return is("token_san_not_allowed", reason);
        }
    }
    permitted_extensions(terms, request)?;
    match &token.existing {
        Some(existing) if !terms.allow_replace => {
            let reason = format!(
                "{name} has certificate {}, which it may not replace",
                existing.serial
            );
            is("existing_certificate", reason)
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether a token is good for a request as things stand.
pub fn suits(token: &Token, request: &Request<'_>, now: UnixTime) -> bool {
    compare(token, request, now).is_ok()
}

/// Why a token is not good for a request as things stand: in one word, and in words.
pub fn differs(
    token: &Token,
    request: &Request<'_>,
    now: UnixTime,
) -> Option<(&'static str, String)> {
    let compared = compare(token, request, now).err();
    compared.map(|difference| (difference.code, difference.reason))
}

/// The whole subject is the name: who may call itself web01 may not call itself a member of a group as well.
fn bound_to(token: &Token, request: &Request<'_>, name: &str) -> Result<(), Difference> {
    let is = |reason: String| {
        Err(Difference {
            code: "token_certname_mismatch",
            reason,
        })
    };
    if !token.binding.covers(name) {
        return is(format!("it is for {}", token.binding));
    }
    let profile = &token.terms.profile;
    if !profile.is_empty() && profile != request.signer.as_str() {
        return is(format!("it is for signer {profile}"));
    }
    let is_node = NODE_SIGNERS.contains(&request.signer.as_str());
    let mut groups = request.csr.subject().organizations();
    match groups.find(|group| !(is_node && *group == NODES)) {
        Some(group) => is(format!("it is for a name, not for group {group}")),
        None => Ok(()),
    }
}

fn may_have_name(terms: &TokenTerms, alt_name: &AltName, name: &str) -> bool {
    let is_itself = matches!(alt_name, AltName::Dns(dns) if dns.eq_ignore_ascii_case(name));
    is_itself || {
        let asked = shown(alt_name);
        let allowed = |san: &String| match alt_name {
            AltName::Dns(_) => san.eq_ignore_ascii_case(&asked),
            AltName::Ip(_) | AltName::Email(_) | AltName::Uri(_) => *san == asked,
            AltName::Other { .. } => false,
        };
        terms.allowed_sans.iter().any(allowed)
    }
}

/// An alternative name as tokens list it.
pub(crate) fn shown(alt_name: &AltName) -> String {
    match alt_name {
        AltName::Dns(name) => format!("DNS:{name}"),
        AltName::Ip(address) => format!("IP:{address}"),
        AltName::Email(address) => format!("email:{address}"),
        AltName::Uri(uri) => format!("URI:{uri}"),
        AltName::Other { .. } => "a name of another kind".to_owned(),
    }
}

fn permitted_extensions(terms: &TokenTerms, request: &Request<'_>) -> Result<(), Difference> {
    let asked = request.csr.extensions().iter();
    // Alternative names have a list of their own; the rest of X.509 is the signer's business and comes from nobody else; a
    // preshared key is a secret, which tokens do not list.
    let asked = asked.filter(|extension| {
        !extension.oid.is_under(&X509) && extension.oid != oid::PP_PRESHARED_KEY
    });
    for extension in asked {
        let listed = terms
            .allowed_extensions
            .as_ref()
            .and_then(|allowed| allowed.get(&extension.oid.to_string()));
        let is_permitted = match listed {
            Some(values) => extension
                .text_value()
                .is_some_and(|value| values.contains(&value)),
            // Without a list the signer says what may be asked for, but for what gives rights.
            None => terms.allowed_extensions.is_none() && !extension.oid.is_under(&oid::PP_AUTH),
        };
        if !is_permitted {
            let known = oid::puppet_short_name(&extension.oid);
            let named = known.map_or_else(|| extension.oid.to_string(), str::to_owned);
            return Err(Difference {
                code: "token_extension_not_allowed",
                reason: format!("it does not permit this {named}"),
            });
        }
    }
    Ok(())
}

const MISUSES: [&str; 5] = [
    "token_certname_mismatch",
    "token_key_mismatch",
    "token_san_not_allowed",
    "token_extension_not_allowed",
    "token_source_not_allowed",
];
const NODE: &str = "system:node:";
const NODES: &str = "system:nodes";
const NODE_SIGNERS: [&str; 2] = [
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/kubelet-serving",
];
/// How far a clock that minted may be ahead of the one that looks.
const SKEW_SECONDS: u64 = 60;
/// The extensions of X.509 itself (RFC 5280 4.2.1).
const X509: Oid = Oid::from_arcs(&[2, 5, 29]);
