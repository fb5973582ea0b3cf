//! What a token limits inside of the certificate: alternative names and extensions.

use std::collections::BTreeMap;

use countersign_pki::{Oid, oid};
use countersign_policy::TokenTerms;
use countersign_testkit::csr::{CsrBuilder, TOKEN};

use super::{Asking, NAME, known, terms, token_for};

#[test]
fn alternative_names_are_the_name_itself_or_listed() {
    let refused = Some("token_san_not_allowed");
    let v4 = || [192, 0, 2, 7].into();
    let v6 = || "2001:db8::7".parse().unwrap();
    let csr = || CsrBuilder::new(NAME);
    let mapped = || "::ffff:192.0.2.7".parse().unwrap();
    for (case, csr, allowed, code) in [
        ("none", csr(), &[][..], None),
        ("itself", csr().dns(NAME), &[], None),
        (
            "itself in capitals",
            csr().dns("WEB01.Example.com"),
            &[],
            None,
        ),
        (
            "itself with a dot",
            csr().dns("web01.example.com."),
            &[],
            refused,
        ),
        ("a name", csr().dns("web.example.com"), &[], refused),
        (
            "a listed name",
            csr().dns("web.example.com"),
            &["DNS:web.example.com"],
            None,
        ),
        (
            "in capitals",
            csr().dns("WEB.example.com"),
            &["DNS:web.Example.com"],
            None,
        ),
        (
            "listed without its kind",
            csr().dns("web"),
            &["web"],
            refused,
        ),
        ("one of two", csr().dns("a").dns("b"), &["DNS:a"], refused),
        (
            "both of two",
            csr().dns("a").dns("b"),
            &["DNS:b", "DNS:a"],
            None,
        ),
        (
            "a wildcard",
            csr().dns("*.example.com"),
            &["DNS:web.example.com"],
            refused,
        ),
        (
            "under a listed wildcard",
            csr().dns("a.example.com"),
            &["DNS:*.example.com"],
            refused,
        ),
        (
            "a listed wildcard",
            csr().dns("*.example.com"),
            &["DNS:*.example.com"],
            None,
        ),
        ("an address", csr().ip(v4()), &[], refused),
        ("a listed address", csr().ip(v4()), &["IP:192.0.2.7"], None),
        (
            "another address",
            csr().ip(v4()),
            &["IP:192.0.2.8"],
            refused,
        ),
        (
            "an address as a name",
            csr().ip(v4()),
            &["DNS:192.0.2.7"],
            refused,
        ),
        (
            "a name as an address",
            csr().dns("192.0.2.7"),
            &["IP:192.0.2.7"],
            refused,
        ),
        (
            "an IPv6 address",
            csr().ip(v6()),
            &["IP:2001:DB8:0::7"],
            None,
        ),
        (
            "another IPv6 address",
            csr().ip(v6()),
            &["IP:2001:db8::8"],
            refused,
        ),
        (
            "IPv4 inside of IPv6 is another name",
            csr().ip(mapped()),
            &["IP:192.0.2.7"],
            refused,
        ),
        (
            "what is no address",
            csr().ip(v4()),
            &["IP:192.0.2.0/24"],
            refused,
        ),
        ("a mailbox", csr().email("a@example.com"), &[], refused),
        (
            "a listed mailbox",
            csr().email("a@example.com"),
            &["email:a@example.com"],
            None,
        ),
        (
            "a mailbox in capitals",
            csr().email("A@example.com"),
            &["email:a@example.com"],
            refused,
        ),
        (
            "a URI",
            csr().uri("spiffe://a/b"),
            &["DNS:spiffe://a/b"],
            refused,
        ),
        (
            "a listed URI",
            csr().uri("spiffe://a/b"),
            &["URI:spiffe://a/b"],
            None,
        ),
        (
            "a name of another kind",
            csr().alt_name(0x88, &[0x2a, 0x03]),
            &["a name of another kind"],
            refused,
        ),
    ] {
        let token = terms(TokenTerms {
            allowed_sans: allowed.iter().map(|san| (*san).to_owned()).collect(),
            ..TokenTerms::default()
        });
        let found = Asking::of(NAME).with(csr).found(token);
        assert_eq!(found.code(), code, "{case}: {}", found.step.reason);
    }
}

/// No list, or a list of extensions with their values.
type List<'a> = Option<&'a [(Oid, &'a [&'a str])]>;

#[test]
fn extensions_are_those_of_the_signer_or_listed_with_their_values() {
    let refused = Some("token_extension_not_allowed");
    let csr = || CsrBuilder::new(NAME);
    let with = |kind: &Oid, text: &str| csr().extension(kind, text);
    let role = known("pp_role");
    let (cli_auth, key) = (oid::PP_CLI_AUTH, oid::PP_PRESHARED_KEY);
    let none: List<'_> = None;
    let empty: List<'_> = Some(&[]);
    let web: &[(Oid, &[&str])] = &[(role, &["web", "db"])];
    let auth: &[(Oid, &[&str])] = &[(cli_auth, &["true"])];
    let listed_key: &[(Oid, &[&str])] = &[(key, &["ab_1"])];
    let other_token = TOKEN.replace("aaaqeayeaudaocaj", "baaqeayeaudaocaj");
    for (case, csr, list, code) in [
        ("none, no list", csr(), none, None),
        ("none, an empty list", csr(), empty, None),
        ("a fact, no list", with(&role, "web"), none, None),
        ("a fact, an empty list", with(&role, "web"), empty, refused),
        ("a listed fact", with(&role, "web"), Some(web), None),
        ("its other value", with(&role, "db"), Some(web), None),
        ("another value", with(&role, "vault"), Some(web), refused),
        ("a longer value", with(&role, "web1"), Some(web), refused),
        ("another case", with(&role, "Web"), Some(web), refused),
        (
            "no text",
            csr().raw_extension(&role, None, &[0x02, 0x01, 0x05]),
            Some(web),
            refused,
        ),
        (
            "a fact beside a listed one",
            with(&role, "web").extension(&known("pp_uuid"), "u"),
            Some(web),
            refused,
        ),
        (
            "a fact listed without values",
            with(&role, "web"),
            Some(&[(role, &[])]),
            refused,
        ),
        ("rights, no list", with(&cli_auth, "true"), none, refused),
        (
            "rights, not listed",
            with(&cli_auth, "true"),
            Some(web),
            refused,
        ),
        ("rights, listed", with(&cli_auth, "true"), Some(auth), None),
        (
            "rights, listed with another value",
            with(&cli_auth, "yes"),
            Some(auth),
            refused,
        ),
        (
            "the wish to renew is an attribute",
            csr().attribute(&oid::PP_AUTH_AUTO_RENEW, 0x13, b"true"),
            empty,
            None,
        ),
        (
            "alternative names have their own list",
            csr().dns(NAME),
            empty,
            None,
        ),
        (
            "X.509 is the signer's business",
            csr().raw_extension(&oid::KEY_USAGE, None, &[3, 2, 5, 0xa0]),
            empty,
            None,
        ),
        ("a preshared key, no list", with(&key, "ab_1"), none, None),
        (
            "a preshared key, an empty list",
            with(&key, "ab_1"),
            empty,
            refused,
        ),
        (
            "a preshared key, listed",
            with(&key, "ab_1"),
            Some(listed_key),
            None,
        ),
        (
            "the token itself as preshared key",
            with(&key, TOKEN),
            empty,
            None,
        ),
        (
            "its public part, as on record",
            with(&key, "ott1.aaaqeayeaudaocaj.xxxx"),
            empty,
            None,
        ),
        (
            "another token as preshared key",
            with(&key, &other_token),
            empty,
            refused,
        ),
        (
            "the token itself elsewhere",
            with(&role, TOKEN),
            empty,
            refused,
        ),
    ] {
        let allowed_extensions = list.map(|list| {
            let entry = |(oid, values): &(Oid, &[&str])| {
                let values = values.iter().map(|value| (*value).to_owned());
                (oid.to_string(), values.collect())
            };
            list.iter()
                .map(entry)
                .collect::<BTreeMap<String, Vec<String>>>()
        });
        let token = terms(TokenTerms {
            allowed_extensions,
            ..TokenTerms::default()
        });
        let found = Asking::of(NAME).with(csr).found(token);
        assert_eq!(found.code(), code, "{case}: {}", found.step.reason);
        assert!(!found.step.reason.contains("ab_1"), "{case}");
    }
}

/// A host may put its token where nobody looks for one.
#[test]
fn no_reason_repeats_a_secret() {
    let (_, secret) = TOKEN.split_at("ott1.aaaqeayeaudaocaj.".len());
    for csr in [
        CsrBuilder::new(NAME).dns(TOKEN),
        CsrBuilder::new(NAME).uri(&format!("https://{TOKEN}/")),
        CsrBuilder::new(NAME).name(&oid::ORGANIZATIONAL_UNIT, 0x0c, TOKEN.as_bytes()),
    ] {
        let found = Asking::of(NAME).with(csr).found(token_for(NAME));
        let reason = &found.step.reason;
        assert!(
            found.code().is_some() && !reason.contains(secret),
            "{reason}"
        );
        assert!(reason.contains("ott1.aaaqeayeaudaocaj.…"), "{reason}");
    }
}
