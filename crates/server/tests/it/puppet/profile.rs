//! What a request may carry beside its name.

use countersign_authority::profile::{Authorization, OtherNames};
use countersign_pki::{Oid, oid};
use countersign_testkit::csr::CsrBuilder;

use super::{Fleet, V1, agent, known};
use crate::world::Setup;

/// What a request carries beside its name, and the sentence about it; empty: it can be signed.
fn wishes() -> Vec<(&'static str, CsrBuilder, &'static str)> {
    const SANS: &str = "which are disallowed. To allow subject alternative names, set allow-subject-alt-names to true \
                        in your ca.conf file. Then restart the puppetserver and try signing this certificate again.";
    const AUTH: &str = "contains an authorization extension, which is disallowed. To allow authorization extensions, \
                        set allow-authorization-extensions to true in your ca.conf file. Then restart the \
                        puppetserver and try signing this certificate again.";
    let sans = |names: &str| {
        format!("CSR 'h' contains extra subject alternative names ({names}), {SANS}").leak() as &str
    };
    let auth: &str = format!("CSR 'h' {AUTH}").leak();
    let with = |oid: &str, text: &str| agent("h").extension(&Oid::parse(oid).unwrap(), text);
    let raw = |oid: &Oid, value: &[u8]| agent("h").raw_extension(oid, None, value);
    let v6 = "2001:db8::a0".parse().unwrap();
    let v4 = "10.1.2.3".parse().unwrap();
    vec![
        ("nothing", agent("h"), ""),
        ("its own name", agent("h").dns("h"), ""),
        ("another name", agent("h").dns("h").dns("a"), sans("DNS:a")),
        (
            "an address",
            agent("h").dns("a").ip(v4),
            sans("IP:10.1.2.3, DNS:a"),
        ),
        (
            "an address of version 6",
            agent("h").dns("h").ip(v6),
            sans("IP:2001:db8:0:0:0:0:0:a0"),
        ),
        ("its own name twice", agent("h").dns("h").dns("h"), sans("")),
        (
            "a URI alone",
            agent("h").uri("https://h/"),
            sans("URI:https://h/"),
        ),
        (
            "a registered extension",
            with("1.3.6.1.4.1.34380.1.1.13", "web"),
            "",
        ),
        (
            "a private extension",
            with("1.3.6.1.4.1.34380.1.2.7.1", "x"),
            "",
        ),
        (
            "pp_auth_role",
            with("1.3.6.1.4.1.34380.1.3.13", "compiler"),
            auth,
        ),
        (
            "pp_auth_auto_renew as extension",
            with("1.3.6.1.4.1.34380.1.3.2", "true"),
            auth,
        ),
        (
            "pp_cli_auth",
            with("1.3.6.1.4.1.34380.1.3.39", "true"),
            auth,
        ),
        (
            "a foreign extension",
            with("1.2.3", "x").extension(&Oid::parse("1.2.4").unwrap(), "y"),
            "Found extensions that are not permitted: 1.2.3, 1.2.4",
        ),
        (
            "a bare arc",
            with("1.3.6.1.4.1.34380.1.1", "x"),
            "Found extensions that are not permitted: 1.3.6.1.4.1.34380.1.1",
        ),
        (
            "the CA bit",
            raw(&oid::BASIC_CONSTRAINTS, &[0x30, 3, 1, 1, 0xff]),
            "Found extensions that are not permitted: 2.5.29.19",
        ),
        (
            "a value that is no text",
            raw(&Oid::parse("1.3.6.1.4.1.34380.1.1.13").unwrap(), &[0x30, 0]),
            "Found an extension whose value is not text: 1.3.6.1.4.1.34380.1.1.13",
        ),
    ]
}

#[tokio::test]
async fn names_are_not_widened_by_autosigning() {
    for (what, csr, sentence) in wishes() {
        let fleet = Fleet::of(Setup::AUTOSIGN).await;
        let answer = fleet.enrol(&csr, "h").await;
        let expected = if sentence.is_empty() { 200 } else { 400 };
        assert_eq!(
            (answer.status, answer.text()),
            (expected, sentence),
            "{what}"
        );
        let certificate = fleet
            .call(&fleet.nobody, &format!("GET {V1}/certificate/h"))
            .await;
        assert_eq!(
            certificate.status,
            if sentence.is_empty() { 200 } else { 404 },
            "{what}"
        );
        if !sentence.is_empty() {
            // It is stored all the same, and an administrator reads the same sentence.
            assert_eq!(
                fleet.names("?state=requested").await,
                [known("h", "requested")],
                "{what}"
            );
            let again = fleet.enrol(&csr, "h").await;
            assert!(
                again.text().starts_with("h already has a requested"),
                "{what}"
            );
            let signed = fleet.sign("h").await;
            assert_eq!((signed.status, signed.text()), (409, sentence), "{what}");
            assert_eq!(signed.content_type(), "text/plain; charset=UTF-8");
        }
    }
}

#[tokio::test]
async fn names_are_not_widened_by_people() {
    for (what, csr, sentence) in wishes() {
        let fleet = Fleet::of(Setup::STRICT).await;
        // Nothing is said at submission when nobody signs automatically.
        assert_eq!(fleet.enrol(&csr, "h").await.status, 200, "{what}");
        let signed = fleet.sign("h").await;
        let expected = if sentence.is_empty() { 204 } else { 409 };
        assert_eq!(
            (signed.status, signed.text()),
            (expected, sentence),
            "{what}"
        );
    }
}

#[tokio::test]
async fn what_a_site_permits_is_copied() {
    let setup = Setup {
        alt_names: OtherNames::DnsAndIp,
        authorization: Authorization::Copied,
        ..Setup::AUTOSIGN
    };
    let fleet = Fleet::of(setup).await;
    let role = Oid::parse("1.3.6.1.4.1.34380.1.3.13").unwrap();
    let csr = agent("h")
        .dns("b")
        .dns("h")
        .ip("10.1.2.3".parse().unwrap())
        .dns("a")
        .extension(&role, "compiler");
    assert_eq!(fleet.enrol(&csr, "h").await.status, 200);
    let certificate = fleet.certificate("h").await;
    let names: Vec<String> = certificate
        .alt_names()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["IP:10.1.2.3", "DNS:b", "DNS:a", "DNS:h"]);
    assert_eq!(
        certificate
            .extension(&role)
            .unwrap()
            .text_value()
            .as_deref(),
        Some("compiler")
    );
    for (csr, sentence) in [
        (
            agent("w").dns("*.example.net"),
            "contains extra subject alternative names (DNS:*.example.net)",
        ),
        (
            agent("w").uri("https://w/"),
            "contains extra subject alternative names (URI:https://w/)",
        ),
        (
            agent("w").extension(&oid::PP_CLI_AUTH, "true"),
            "Found extensions that are not permitted: 1.3.6.1.4.1.34380.1.3.39",
        ),
    ] {
        let answer = fleet.enrol(&csr, "w").await;
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains(sentence), "{}", answer.text());
        let deleted = fleet
            .call(&fleet.admin, &format!("DELETE {V1}/certificate_request/w"))
            .await;
        assert_eq!(deleted.status, 204);
    }
}

/// Empty lists ask for nothing, and so does a message without attributes.
#[tokio::test]
async fn requests_that_the_reference_tolerates_are_signed() {
    let fleet = Fleet::of(Setup::AUTOSIGN).await;
    let names =
        |critical, value: &[u8]| agent("h").raw_extension(&oid::SUBJECT_ALT_NAME, critical, value);
    let empty_list: &[u8] = &[0x30, 0];
    for (what, csr, critical) in [
        (
            "no extensions",
            agent("h").attribute_values(&oid::EXTENSION_REQUEST, &[empty_list]),
            false,
        ),
        ("no names", names(None, empty_list), false),
        ("no attributes", agent("h").without_attributes(), false),
        ("plain names", agent("h").dns("h"), false),
        (
            "critical names",
            names(Some(true), &[0x30, 3, 0x82, 1, b'h']),
            true,
        ),
    ] {
        let answer = fleet.enrol(&csr, "h").await;
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        let certificate = fleet.certificate("h").await;
        let names = certificate.extension(&oid::SUBJECT_ALT_NAME).unwrap();
        assert_eq!(names.critical, critical, "{what}");
        assert_eq!(certificate.alt_names().len(), 1, "{what}");
        let line = format!("DELETE {V1}/certificate_status/h");
        assert_eq!(fleet.call(&fleet.admin, &line).await.status, 204);
    }
}
