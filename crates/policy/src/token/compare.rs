//! Whether a token suits the request that carries it.

use std::net::IpAddr;

use countersign_pki::{AltName, Extension, NameAttribute, Oid, UnixTime, oid};

use crate::masking::could_be_secret;
use crate::reason::ReasonCode;
use crate::request::{Request, SignerName};
use crate::rules::Policy;
use crate::token::{Network, Token, TokenTerms};

/// Why a token does not suit a request.
pub(crate) struct Difference {
    pub(crate) code: ReasonCode,
    pub(crate) reason: String,
}

/// How the certificates of a signer name machines: not by the name alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSubject {
    /// The signer.
    pub signer: SignerName,
    /// What stands before a machine's name in the common name.
    pub prefix: String,
    /// The organization that all of them have: it is part of the name.
    pub organization: String,
}

/// The name of the machine that a request is for, and the organization that is part of it.
struct MachineName<'r, 's> {
    name: &'r str,
    organization: Option<&'s str>,
}

impl Policy {
    /// The name that a token must be bound to for a request: that of the certificate, or of the machine that it speaks for.
    pub fn token_name<'a>(&self, request: &Request<'a>) -> &'a str {
        self.machine_name(request).name
    }

    fn machine_name<'r>(&self, request: &Request<'r>) -> MachineName<'r, '_> {
        let subjects = self.machine_subjects.iter();
        let mut of_signer = subjects.filter(|subject| subject.signer == *request.signer);
        let named = of_signer.find_map(|subject| {
            let name = request.name.strip_prefix(&subject.prefix)?;
            Some(MachineName {
                name,
                organization: Some(&subject.organization),
            })
        });
        named.unwrap_or(MachineName {
            name: request.name,
            organization: None,
        })
    }
}

/// Compares a token whose secret is right with the request that carries it. The order of the checks is the order in which
/// people see their results: theft before what ends by itself.
///
/// The same name and key asking again is no matter of rules: it gets what it got. Who comes here with a use on record may
/// not have that any more.
pub(crate) fn compare(
    policy: &Policy,
    token: &Token,
    request: &Request<'_>,
    now: UnixTime,
) -> Result<(), Difference> {
    let is = |code, reason: String| Err(Difference { code, reason });
    let machine = policy.machine_name(request);
    let name = machine.name;
    if token.revoked {
        return is(ReasonCode::TokenRevoked, "it was taken back".to_owned());
    }
    if token.locked {
        return is(
            ReasonCode::TokenLocked,
            "it was misused too often".to_owned(),
        );
    }
    bound_to(token, request, &machine)?;
    if token.same.is_some() {
        let reason = "this key has had its certificate by it".to_owned();
        return is(ReasonCode::TokenExhausted, reason);
    }
    match &token.other {
        Some(other) if token.max_uses <= 1 && other.certname == name => {
            let reason = "another key has used it".to_owned();
            return is(ReasonCode::TokenKeyMismatch, reason);
        }
        Some(other) if token.max_uses <= 1 => {
            let reason = format!("{} has used it", other.certname);
            return is(ReasonCode::TokenCertnameMismatch, reason);
        }
        Some(_) | None => {}
    }
    if now.plus_seconds(SKEW_SECONDS) < token.not_before {
        let reason = format!("it is good from {} on", token.not_before);
        return is(ReasonCode::TokenNotYetValid, reason);
    }
    if now >= token.expires_at {
        let reason = format!("it was good until {}", token.expires_at);
        return is(ReasonCode::TokenExpired, reason);
    }
    if token.uses >= token.max_uses {
        let reason = format!("all of its {} uses are used up", token.max_uses);
        return is(ReasonCode::TokenExhausted, reason);
    }
    let terms = &token.terms;
    let key = request.csr.key_fingerprint().to_hex();
    if terms
        .spki_sha256
        .as_ref()
        .is_some_and(|bound| !bound.eq_ignore_ascii_case(&key))
    {
        return is(
            ReasonCode::TokenKeyMismatch,
            "it is for another key".to_owned(),
        );
    }
    let source = request.requester.source;
    let networks = &terms.source_cidrs;
    let comes_from = |network: &Network| source.is_some_and(|from| network.contains(from));
    if !networks.is_empty() && !networks.iter().any(comes_from) {
        let reason = "the request does not come from a network that it is for".to_owned();
        return is(ReasonCode::TokenSourceNotAllowed, reason);
    }
    for alt_name in request.csr.alt_names() {
        if !may_have_name(terms, alt_name, name) {
            let reason = format!("it does not permit {}", shown(alt_name));
            return is(ReasonCode::TokenSanNotAllowed, reason);
        }
    }
    permitted_extensions(token, request)?;
    match token.replaced(now) {
        Some(existing) if !terms.allow_replace => {
            let reason = format!(
                "{name} has certificate {}, which it may not replace",
                existing.serial
            );
            is(ReasonCode::ExistingCertificate, reason)
        }
        Some(_) | None => Ok(()),
    }
}

impl Policy {
    /// Whether a token is good for a request as things stand.
    pub fn suits(&self, token: &Token, request: &Request<'_>, now: UnixTime) -> bool {
        compare(self, token, request, now).is_ok()
    }

    /// Why a token is not good for a request as things stand: in one word, and in words.
    pub fn differs(
        &self,
        token: &Token,
        request: &Request<'_>,
        now: UnixTime,
    ) -> Option<(ReasonCode, String)> {
        let compared = compare(self, token, request, now).err();
        compared.map(|difference| (difference.code, difference.reason))
    }
}

/// The whole subject is the name: who may call itself web01 may not call itself a member of a group as well.
fn bound_to(
    token: &Token,
    request: &Request<'_>,
    machine: &MachineName<'_, '_>,
) -> Result<(), Difference> {
    let is = |reason: String| {
        Err(Difference {
            code: ReasonCode::TokenCertnameMismatch,
            reason,
        })
    };
    if !token.binding.covers(machine.name) {
        return is(format!("it is for {}", token.binding));
    }
    let profile = &token.terms.profile;
    if !profile.is_empty() && profile != request.signer.as_str() {
        return is(format!("it is for signer {profile}"));
    }
    let is_name = |said: &NameAttribute| match (said.oid, said.value.text()) {
        (oid::COMMON_NAME, text) => text == Some(request.name),
        (oid::ORGANIZATION, text) => text.is_some() && text == machine.organization,
        (_, _) => false,
    };
    let mut subject = request.csr.subject().attributes();
    match subject.find(|said| !is_name(said)) {
        Some(more) => is(format!(
            "it is for a name, and the subject also says {more}"
        )),
        None => Ok(()),
    }
}

fn may_have_name(terms: &TokenTerms, alt_name: &AltName, name: &str) -> bool {
    let is_itself = matches!(alt_name, AltName::Dns(dns) if dns.eq_ignore_ascii_case(name));
    is_itself || {
        let asked = shown(alt_name);
        let allowed = |san: &String| match alt_name {
            AltName::Dns(_) => san.eq_ignore_ascii_case(&asked),
            // An address has many spellings.
            AltName::Ip(address) => san
                .strip_prefix(IP)
                .and_then(|text| text.parse::<IpAddr>().ok())
                .is_some_and(|listed| listed == *address),
            AltName::Email(_) | AltName::Uri(_) => *san == asked,
            AltName::Other { .. } => false,
        };
        terms.allowed_sans.iter().any(allowed)
    }
}

/// An alternative name as tokens list it.
fn shown(alt_name: &AltName) -> String {
    match alt_name {
        AltName::Dns(name) => format!("DNS:{name}"),
        AltName::Ip(address) => format!("{IP}{address}"),
        AltName::Email(address) => format!("email:{address}"),
        AltName::Uri(uri) => format!("URI:{uri}"),
        AltName::Other { .. } => "a name of another kind".to_owned(),
    }
}

fn permitted_extensions(token: &Token, request: &Request<'_>) -> Result<(), Difference> {
    let terms = &token.terms;
    let asked = request.csr.extensions().iter();
    // Alternative names have a list of their own; the rest of X.509 is the signer's business and comes from nobody else; the
    // extension in which the token itself travels is in no certificate.
    let asked = asked
        .filter(|extension| !extension.oid.is_under(&X509) && !is_carrier_of(token, extension));
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
            let known = oid::registered_name(&extension.oid);
            let named = known.map_or_else(|| extension.oid.to_string(), str::to_owned);
            return Err(Difference {
                code: ReasonCode::TokenExtensionNotAllowed,
                reason: format!("it does not permit this {named}"),
            });
        }
    }
    Ok(())
}

/// Whether an extension carries a token, in the place for preshared keys, damaged as it may be. Such an extension is in no
/// certificate: anybody can fetch one.
pub fn carries_token(extension: &Extension) -> bool {
    let value = || extension.text_value();
    extension.oid == oid::PP_PRESHARED_KEY && value().is_some_and(|text| could_be_secret(&text))
}

/// Whether this is the token itself. Of a request on record only the public part is left of it. No more than what is kept
/// out of certificates may go past the list of what they may have.
fn is_carrier_of(token: &Token, extension: &Extension) -> bool {
    let is_it = |text: String| {
        let rest = text.strip_prefix(PREFIX);
        let rest = rest.and_then(|rest| rest.strip_prefix(token.id.as_str()));
        rest.is_some_and(|rest| rest.starts_with('.'))
    };
    carries_token(extension) && extension.text_value().is_some_and(is_it)
}

/// What a token begins with.
const PREFIX: &str = "ott1.";
const IP: &str = "IP:";
/// How far a clock that minted may be ahead of the one that looks.
const SKEW_SECONDS: u64 = 60;
/// The extensions of X.509 itself (RFC 5280 4.2.1).
const X509: Oid = Oid::from_arcs(&[2, 5, 29]);
