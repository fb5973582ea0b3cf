//! What is ordered: a token for one name or pattern, checked as far as it can be without the server.

use std::collections::BTreeMap;
use std::net::IpAddr;

use countersign_api::TokenOrder;
use countersign_authority::looks_like_a_token;
use countersign_pki::{Oid, oid};
use countersign_policy::{Network, SignerName};
use countersign_server::puppet::Certname;

use crate::cli::{ExtensionArg, TermArgs};
use crate::config::Span;

/// An order that the server may still refuse.
#[derive(Debug)]
pub(super) struct Order {
    /// The name or pattern, in lower case.
    pub(super) name: String,
    terms: TermArgs,
}

impl Order {
    /// Checks everything that is written down.
    ///
    /// # Errors
    /// In words. A text that looks like a token is not repeated.
    pub(super) fn new(name: &str, mut terms: TermArgs) -> Result<Self, String> {
        refuse_tokens(name, &terms)?;
        let name = name.to_ascii_lowercase();
        match terms.glob {
            true => check_pattern(&name, &terms)?,
            false => check_name(&name)?,
        }
        for san in &terms.san {
            check_san(san)?;
        }
        for ExtensionArg { name, .. } in &terms.extension {
            if oid::registered_oid(name).is_none() && Oid::parse(name).is_err() {
                return Err(format!(
                    "{name:?} is no extension: write a name such as pp_role, or an object identifier"
                ));
            }
        }
        if let Some(spki) = &terms.spki {
            terms.spki = Some(fingerprint(spki)?);
        }
        for source in &terms.source {
            if Network::parse(source).is_none() {
                return Err(format!(
                    "{source:?} is no network: write for example 192.0.2.0/24"
                ));
            }
        }
        if let Some(signer) = &terms.profile {
            SignerName::parse(signer).map_err(|fault| format!("profile {signer:?}: {fault}"))?;
        }
        Ok(Self { name, terms })
    }

    /// As the native API takes it.
    pub(super) fn body(&self) -> TokenOrder {
        let terms = self.terms.clone();
        let name = Some(self.name.clone());
        let (certname, glob) = match terms.glob {
            true => (None, name),
            false => (name, None),
        };
        let owned = |values: Vec<&str>| values.into_iter().map(str::to_owned).collect();
        let extensions = self.extensions().into_iter();
        let extensions: BTreeMap<_, _> = extensions
            .map(|(name, values)| (name.to_owned(), owned(values)))
            .collect();
        TokenOrder {
            certname,
            glob,
            ttl_seconds: terms.ttl.map(Span::as_seconds),
            max_uses: terms.max_uses.map(u64::from),
            not_before: terms.not_before,
            allowed_sans: terms.san,
            allowed_extensions: Some(extensions).filter(|values| !values.is_empty()),
            spki_sha256: terms.spki,
            source_cidrs: terms.source,
            allow_replace: terms.allow_replace,
            keep_existing: terms.keep_existing,
            profile: terms.profile,
            external_ref: terms.external_ref.unwrap_or_default(),
            note: terms.note.unwrap_or_default(),
        }
    }

    pub(super) fn is_glob(&self) -> bool {
        self.terms.glob
    }

    pub(super) fn keeps_existing(&self) -> bool {
        self.terms.keep_existing
    }

    /// Each extension with the values that it may have.
    pub(super) fn extensions(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for ExtensionArg { name, value } in &self.terms.extension {
            values.entry(name).or_default().push(value);
        }
        values
    }
}

/// A name for which tokens are looked up.
///
/// # Errors
/// If it looks like a token; it is not repeated.
pub(super) fn sought(name: &str) -> Result<&str, String> {
    match looks_like_a_token(name) {
        true => Err(secret_instead_of("the name")),
        false => Ok(name),
    }
}

/// Whoever mixes up two arguments must not find a secret in a listing or a log.
fn refuse_tokens(name: &str, terms: &TermArgs) -> Result<(), String> {
    sought(name)?;
    let texts = terms.san.iter().chain(&terms.source);
    let texts = texts.chain(terms.extension.iter().map(|e| &e.value));
    let more = [
        &terms.spki,
        &terms.profile,
        &terms.external_ref,
        &terms.note,
    ];
    match texts
        .chain(more.into_iter().flatten())
        .any(|t| looks_like_a_token(t))
    {
        true => Err(secret_instead_of("one of the values")),
        false => Ok(()),
    }
}

pub(super) fn secret_instead_of(what: &str) -> String {
    format!(
        "{what} looks like an enrolment token, and is not repeated here: a token never belongs on a command line or in a list; \
         if it is a good one, revoke it"
    )
}

fn check_name(name: &str) -> Result<(), String> {
    if name.contains('*') {
        return Err(format!(
            "{name:?} is a pattern: say so with --glob (in a file: the column glob), or write one name"
        ));
    }
    match Certname::parse(name) {
        Ok(_) => Ok(()),
        Err(fault) => Err(format!("{name:?} cannot be a name: {fault}")),
    }
}

fn check_pattern(name: &str, terms: &TermArgs) -> Result<(), String> {
    let domain = name.strip_prefix("*.");
    let is_domain = |domain: &str| {
        domain.contains('.') && !domain.ends_with('.') && Certname::parse(domain).is_ok()
    };
    if !domain.is_some_and(is_domain) {
        return Err(format!(
            "{name:?} is no pattern: write '*.' and a domain of at least two labels, for example '*.dmz.example.com'"
        ));
    }
    if terms.max_uses.is_none() {
        return Err(format!(
            "a token for all names below {name:?} needs a number of certificates: add --max-uses (in a file: the column max_uses)"
        ));
    }
    Ok(())
}

fn check_san(san: &str) -> Result<(), String> {
    let is_good = match san.split_once(':') {
        Some(("DNS", name)) => !name.is_empty(),
        Some(("IP", address)) => address.parse::<IpAddr>().is_ok(),
        Some(_) | None => false,
    };
    match is_good {
        true => Ok(()),
        false => Err(format!(
            "{san:?} is no alternative name: write DNS:www.example.com or IP:192.0.2.7"
        )),
    }
}

/// As `openssl` and people write it, with colons and in any case.
fn fingerprint(text: &str) -> Result<String, String> {
    let digits = text.replace(':', "").to_ascii_lowercase();
    match digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => Ok(digits),
        false => Err(format!(
            "{text:?} is no SHA-256 of a public key: write its 64 hexadecimal digits"
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::{Cli, Command, TokenCommand};
    use clap::Parser as _;

    const TOKEN: &str =
        "ott1.aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q.zqthxay";

    fn order(arguments: &[&str]) -> Result<Order, String> {
        let words = [&["countersign", "token", "create"], arguments].concat();
        match Cli::try_parse_from(words).unwrap().command {
            Command::Token {
                command: TokenCommand::Create(args),
            } => Order::new(&args.name.unwrap(), args.terms),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_is_said_is_ordered() {
        let plain = order(&["Web01.example.com"]).unwrap();
        assert_eq!(
            json!(plain.body()),
            json!({"certname": "web01.example.com"})
        );
        let spki = "AB:".repeat(31) + "CD";
        let all = order(&[
            "*.dmz.example.com",
            "--glob",
            "--ttl=2h",
            "--max-uses=20",
            "--not-before=2026-01-02T03:04:05Z",
            "--san=DNS:www.example.com",
            "--san=IP:2001:db8::1",
            "--extension=pp_role=web",
            "--extension=pp_role=a=b",
            &format!("--spki={spki}"),
            "--source=192.0.2.0/24",
            "--allow-replace",
            "--keep-existing",
            "--profile=countersign.dev/puppet-agent",
            "--external-ref=foreman:42",
            "--note=rack 7",
        ]);
        let expected = json!({
            "glob": "*.dmz.example.com", "ttl_seconds": 7200, "max_uses": 20, "not_before": "2026-01-02T03:04:05Z",
            "allowed_sans": ["DNS:www.example.com", "IP:2001:db8::1"], "allowed_extensions": {"pp_role": ["web", "a=b"]},
            "spki_sha256": "ab".repeat(31) + "cd", "source_cidrs": ["192.0.2.0/24"], "allow_replace": true,
            "keep_existing": true, "profile": "countersign.dev/puppet-agent", "external_ref": "foreman:42", "note": "rack 7",
        });
        assert_eq!(json!(all.unwrap().body()), expected);
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_write() {
        for (arguments, part) in [
            (&["*.example.com"][..], "say so with --glob"),
            (&["a_b*c"], "say so with --glob"),
            (&["a b"], "\"a b\" cannot be a name"),
            (&["../a"], "cannot be a name"),
            (&["ca"], "reserved"),
            (&["*.example.com", "--glob"], "add --max-uses"),
            (&["*.com", "--glob", "--max-uses=1"], "at least two labels"),
            (&["*", "--glob", "--max-uses=1"], "is no pattern"),
            (&["a.*.b.c", "--glob", "--max-uses=1"], "is no pattern"),
            (&["web01.example.com", "--glob"], "is no pattern"),
            (&["a", "--san=www"], "write DNS:www.example.com"),
            (&["a", "--san=IP:www"], "write DNS:www.example.com"),
            (&["a", "--extension=role=x"], "\"role\" is no extension"),
            (&["a", "--spki=abc"], "64 hexadecimal digits"),
            (&["a", "--source=here"], "\"here\" is no network"),
            (&["a", "--profile=x"], "profile \"x\": "),
        ] {
            let fault = order(arguments).unwrap_err();
            assert!(fault.contains(part), "{arguments:?}: {fault}");
        }
    }

    #[test]
    fn a_token_in_the_place_of_something_else_is_not_repeated() {
        for arguments in [
            &[TOKEN][..],
            &["a", "--note", TOKEN],
            &["a", "--external-ref", TOKEN],
            &["a", "--san", TOKEN],
            &["a", "--profile", TOKEN],
            &["a", "--source", TOKEN],
            &["a", "--spki", TOKEN],
            &["a", "--extension", &format!("pp_role={TOKEN}")],
        ] {
            let fault = order(arguments).unwrap_err();
            assert!(fault.contains("looks like an enrolment token"), "{fault}");
            assert!(!fault.contains("eaqseize"), "{fault}");
        }
        assert!(sought(TOKEN).is_err());
    }
}
