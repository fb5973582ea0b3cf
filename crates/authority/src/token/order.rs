//! Orders: what a token may be good for.

use std::collections::BTreeMap;
use std::net::IpAddr;

use countersign_pki::{Oid, UnixTime, oid, terminal_safe};
use countersign_policy::{Network, Policy, SignerName, TokenBinding, TokenTerms};

use super::{TokenFault, TokenSettings, looks_like_a_token, masked_tokens};
use crate::certname::Certname;

/// What a token shall be good for. It is checked when it is minted.
#[derive(Clone, Debug)]
pub struct TokenOrder {
    /// Whom it is for; names in any case.
    pub binding: TokenBinding,
    /// For how many seconds it is good; `None`: as configured.
    pub ttl_seconds: Option<u64>,
    /// For how many certificates; `None`: one. A pattern must say.
    pub max_uses: Option<u32>,
    /// From when on; `None`: now.
    pub not_before: Option<UnixTime>,
    /// Alternative names beside the name itself, as `DNS:x` or `IP:y`.
    pub allowed_sans: Vec<String>,
    /// Extensions and their values, by short name or dotted identifier; `None`: what the signer permits.
    pub allowed_extensions: Option<BTreeMap<String, Vec<String>>>,
    /// The one key that it is for, SHA-256 in hexadecimal.
    pub spki_sha256: Option<String>,
    /// Networks that the request must come from.
    pub source_cidrs: Vec<String>,
    /// Whether the certificate that the name has may be replaced.
    pub allow_replace: bool,
    /// Whether earlier tokens of the name stay good.
    pub keep_existing: bool,
    /// The one signer that it is for.
    pub profile: Option<String>,
    /// What it is called elsewhere.
    pub external_ref: String,
    /// For people.
    pub note: String,
}

impl TokenOrder {
    /// An order for one name with nothing else said.
    pub fn exact(name: &str) -> Self {
        Self::bound(TokenBinding::Exact(name.to_owned()))
    }

    /// An order with nothing else said.
    pub fn bound(binding: TokenBinding) -> Self {
        Self {
            binding,
            ttl_seconds: None,
            max_uses: None,
            not_before: None,
            allowed_sans: Vec::new(),
            allowed_extensions: None,
            spki_sha256: None,
            source_cidrs: Vec::new(),
            allow_replace: false,
            keep_existing: false,
            profile: None,
            external_ref: String::new(),
            note: String::new(),
        }
    }
}

/// An order that can be carried out.
pub(super) struct Checked {
    pub(super) binding: TokenBinding,
    pub(super) not_before: UnixTime,
    pub(super) expires_at: UnixTime,
    pub(super) max_uses: u32,
    pub(super) terms: TokenTerms,
    pub(super) keep_existing: bool,
    pub(super) external_ref: String,
    pub(super) note: String,
}

/// Whether an order can be carried out as things stand.
pub(super) fn checked(
    order: TokenOrder,
    settings: &TokenSettings,
    policy: &Policy,
    now: UnixTime,
) -> Result<Checked, TokenFault> {
    let binding = checked_binding(&order.binding, policy)?;
    let is_glob = matches!(binding, TokenBinding::Glob(_));
    let longest = match is_glob {
        true => settings.glob_max_ttl.min(settings.max_ttl),
        false => settings.max_ttl,
    };
    let ttl = order
        .ttl_seconds
        .unwrap_or(settings.default_ttl.min(longest));
    if !(1..=longest).contains(&ttl) {
        let problem = format!("must be from 1 to {longest} seconds");
        return Err(TokenFault::field("ttl_seconds", problem));
    }
    let max_uses = match (order.max_uses, is_glob) {
        (None, true) => {
            let problem = "a token for a pattern must say how often it may be used";
            return Err(TokenFault::field("max_uses", problem));
        }
        (None, false) => 1,
        (Some(uses), _) if (1..=MAX_USES).contains(&uses) => uses,
        (Some(_), _) => {
            let problem = format!("must be from 1 to {MAX_USES}");
            return Err(TokenFault::field("max_uses", problem));
        }
    };
    let not_before = order.not_before.map_or(now, |from| from.max(now));
    if not_before > now.plus_seconds(settings.max_ttl) {
        let problem = format!("is more than {} seconds ahead", settings.max_ttl);
        return Err(TokenFault::field("not_before", problem));
    }
    Ok(Checked {
        binding,
        not_before,
        expires_at: not_before.plus_seconds(ttl),
        max_uses,
        keep_existing: order.keep_existing,
        external_ref: checked_text("external_ref", order.external_ref.clone())?,
        note: checked_text("note", order.note.clone())?,
        terms: checked_terms(order)?,
    })
}

fn checked_binding(binding: &TokenBinding, policy: &Policy) -> Result<TokenBinding, TokenFault> {
    match binding {
        TokenBinding::Exact(name) => {
            let name = name.to_ascii_lowercase();
            Certname::parse(&name).map_err(|fault| TokenFault::Name {
                name: masked_tokens(&terminal_safe(&name)).into_owned(),
                fault,
            })?;
            if policy.reserved.named(&name).is_some() {
                let problem =
                    format!("{name} is a name of the authority or of somebody with a role");
                return Err(TokenFault::field("certname", problem));
            }
            Ok(TokenBinding::Exact(name))
        }
        TokenBinding::Glob(pattern) => {
            let pattern = pattern.to_ascii_lowercase();
            let wrong = |problem: &str| Err(TokenFault::field("glob", problem));
            let Some(domain) = pattern.strip_prefix("*.") else {
                return wrong("must be `*.` and a domain, for example *.dmz.example.com");
            };
            if domain.split('.').count() < 2 {
                return wrong("must have at least two labels behind `*.`");
            }
            if domain.ends_with('.') || Certname::parse(domain).is_err() {
                return wrong("has a domain that no name can end with");
            }
            Ok(TokenBinding::Glob(pattern))
        }
    }
}

fn checked_terms(order: TokenOrder) -> Result<TokenTerms, TokenFault> {
    let allowed_sans = checked_sans(&order.allowed_sans)?;
    let allowed_extensions = match order.allowed_extensions {
        Some(listed) => Some(checked_extensions(listed)?),
        None => None,
    };
    let spki_sha256 = order
        .spki_sha256
        .map(|hex| hex.replace(':', "").to_ascii_lowercase());
    let is_digest = |hex: &String| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    if spki_sha256.as_ref().is_some_and(|hex| !is_digest(hex)) {
        let problem = "must be the SHA-256 of a public key in 64 hexadecimal digits";
        return Err(TokenFault::field("spki_sha256", problem));
    }
    if order.source_cidrs.len() > MAX_LISTED {
        return Err(too_many("source_cidrs"));
    }
    let networks = order.source_cidrs.iter().map(|text| {
        Network::parse(text).ok_or_else(|| {
            let problem = format!("{} is no network such as 192.0.2.0/24", shown(text));
            TokenFault::field("source_cidrs", problem)
        })
    });
    let source_cidrs = networks.collect::<Result<Vec<_>, _>>()?;
    let profile = order.profile.unwrap_or_default();
    if !profile.is_empty()
        && let Err(fault) = SignerName::parse(&profile)
    {
        return Err(TokenFault::field("profile", fault));
    }
    Ok(TokenTerms {
        allowed_sans,
        allowed_extensions,
        spki_sha256,
        source_cidrs,
        allow_replace: order.allow_replace,
        profile,
    })
}

fn checked_sans(listed: &[String]) -> Result<Vec<String>, TokenFault> {
    if listed.len() > MAX_LISTED {
        return Err(too_many("allowed_sans"));
    }
    let checked = listed.iter().map(|san| {
        let wrong = || {
            let problem = format!("{} is neither DNS:name nor IP:address", shown(san));
            TokenFault::field("allowed_sans", problem)
        };
        let (kind, value) = san.split_once(':').ok_or_else(wrong)?;
        let is_text = |value: &str| {
            !value.is_empty()
                && value.len() <= MAX_TEXT
                && value.bytes().all(|b| b.is_ascii_graphic())
        };
        match kind {
            "DNS" => {
                let name = value.to_ascii_lowercase();
                let literal = name.strip_prefix("*.").unwrap_or(&name);
                Certname::parse(literal).map_err(|_| wrong())?;
                Ok(format!("DNS:{name}"))
            }
            "IP" => {
                let address: IpAddr = value.parse().map_err(|_| wrong())?;
                Ok(format!("IP:{address}"))
            }
            "email" | "URI" if is_text(value) && !looks_like_a_token(value) => Ok(san.clone()),
            _ => Err(wrong()),
        }
    });
    checked.collect()
}

fn checked_extensions(
    listed: BTreeMap<String, Vec<String>>,
) -> Result<BTreeMap<String, Vec<String>>, TokenFault> {
    let field = "allowed_extensions";
    if listed.len() > MAX_LISTED {
        return Err(too_many(field));
    }
    let mut checked = BTreeMap::new();
    for (name, values) in listed {
        let oid = oid::registered_oid(&name).or_else(|| Oid::parse(&name).ok());
        let Some(oid) = oid else {
            let problem = format!("{} is neither a short name nor dotted", shown(&name));
            return Err(TokenFault::field(field, problem));
        };
        if oid == oid::PP_PRESHARED_KEY || oid == oid::SUBJECT_ALT_NAME {
            let problem = format!("{} cannot be permitted here", shown(&name));
            return Err(TokenFault::field(field, problem));
        }
        let is_bad = |value: &String| value.len() > MAX_TEXT || looks_like_a_token(value);
        if values.is_empty() || values.len() > MAX_LISTED || values.iter().any(is_bad) {
            let problem = format!("{} needs a list of values of usual length", shown(&name));
            return Err(TokenFault::field(field, problem));
        }
        if checked.insert(oid.to_string(), values).is_some() {
            let problem = format!("{} is listed twice", shown(&name));
            return Err(TokenFault::field(field, problem));
        }
    }
    Ok(checked)
}

fn checked_text(field: &'static str, text: String) -> Result<String, TokenFault> {
    if text.len() > MAX_TEXT || text.contains(char::is_control) {
        let problem = format!("must be one line of at most {MAX_TEXT} bytes");
        return Err(TokenFault::field(field, problem));
    }
    if looks_like_a_token(&text) {
        return Err(TokenFault::field(field, "must not hold a token"));
    }
    Ok(text)
}

/// A client's name for its order.
pub(super) fn checked_key(key: String) -> Result<String, TokenFault> {
    let is_fit = (1..=255).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
    if !is_fit || looks_like_a_token(&key) {
        let problem = "must be 1 to 255 visible characters of ASCII";
        return Err(TokenFault::field("Idempotency-Key", problem));
    }
    Ok(key)
}

fn too_many(field: &'static str) -> TokenFault {
    TokenFault::field(field, format!("has more than {MAX_LISTED} entries"))
}

/// Input as an error shows it: short, and nothing that may be a secret.
fn shown(text: &str) -> String {
    let start: String = text.chars().take(80).collect();
    format!("{:?}", masked_tokens(&start))
}

/// More certificates than one pattern is for.
const MAX_USES: u32 = 1000;
const MAX_LISTED: usize = 100;
const MAX_TEXT: usize = 1024;
