//! The PKCS#10 messages and certificates of the table, by name: the same octets go to both servers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use countersign_pki::{Oid, UnixTime, oid, pem};
use countersign_testkit::chain::Ca;
use countersign_testkit::csr::{CsrBuilder, SignatureFlaw};
use countersign_testkit::keys::{self, SigningScheme};

const PRINTABLE: u8 = 0x13;
const IA5: u8 = 0x16;
const UTF8: u8 = 0x0c;

/// PEM, mostly.
pub(crate) fn all() -> BTreeMap<&'static str, String> {
    let mut all = BTreeMap::from([
        ("not PEM", "hello".to_owned()),
        ("empty", String::new()),
        (
            "no DER",
            pem::encode("CERTIFICATE REQUEST", b"no PKCS#10 at all"),
        ),
        (
            "PEM cut",
            "-----BEGIN CERTIFICATE REQUEST-----\nMIIB\n".to_owned(),
        ),
        ("a key", keys::p256_b().pkcs8_pem().to_owned()),
    ]);
    let key = keys::p256_b();
    for (name, request) in builders() {
        all.insert(name, request.sign_pem(key));
    }
    let client = client();
    let der = client.sign(key);
    let text = pem::encode("CERTIFICATE REQUEST", &der);
    for (name, pem) in [
        ("other label", pem::encode("NEW CERTIFICATE REQUEST", &der)),
        ("a certificate's label", pem::encode("CERTIFICATE", &der)),
        ("key first", format!("{}{text}", key.pkcs8_pem())),
        ("text around", format!("hello\n{text}\nbye\n")),
        (
            "two requests",
            format!("{text}{}", CsrBuilder::new("other").sign_pem(key)),
        ),
        (
            "headers",
            text.replacen("-----\n", "-----\nProc-Type: 4,ENCRYPTED\n\n", 1),
        ),
        (
            "cut",
            pem::encode("CERTIFICATE REQUEST", &der[..der.len() - 9]),
        ),
        ("RSA 2048", client.sign_pem(keys::rsa2048_a())),
        ("RSA 3072", client.sign_pem(keys::rsa3072())),
        ("P-384", client.sign_pem(keys::p384())),
        ("P-521", client.sign_pem(keys::p521())),
        ("Ed25519", client.sign_pem(keys::ed25519())),
        ("secp256k1", client.sign_pem(keys::secp256k1())),
        (
            "PSS",
            client
                .clone()
                .scheme(SigningScheme::RsaPssSha256)
                .sign_pem(keys::rsa2048_a()),
        ),
        (
            "node RSA",
            node("system:node:n1").sign_pem(keys::rsa2048_a()),
        ),
    ] {
        all.insert(name, pem);
    }
    let now = UnixTime(1_760_000_000);
    let ca = Ca::root("An outside signer", keys::p256_c(), now);
    let leaf = ca
        .kubernetes_user("jane", &["developers"], key, 7, now)
        .to_pem();
    all.insert("chain", format!("{leaf}{}", ca.certificate.to_pem()));
    all.insert("leaf with text", format!("Subject: jane\n{leaf}bye\n"));
    let text = pem::encode("CERTIFICATE", b"no certificate");
    all.insert("leaf and text", format!("{leaf}{text}"));
    all.insert(
        "certificate with headers",
        leaf.replacen("-----\n", "-----\nProc-Type: 4,ENCRYPTED\n\n", 1),
    );
    all.insert("certificate of text", text);
    all.insert("certificate of nothing", pem::encode("CERTIFICATE", b""));
    all.insert("leaf", leaf);
    all
}

fn client() -> CsrBuilder {
    CsrBuilder::without_subject()
        .organization("developers")
        .name(&oid::COMMON_NAME, UTF8, b"jane")
}

fn node(name: &str) -> CsrBuilder {
    CsrBuilder::without_subject()
        .name(&oid::ORGANIZATION, PRINTABLE, b"system:nodes")
        .name(&oid::COMMON_NAME, PRINTABLE, name.as_bytes())
}

fn builders() -> Vec<(&'static str, CsrBuilder)> {
    let v4 = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
    let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let of = |parts: &[(Oid, &str)]| {
        parts
            .iter()
            .fold(CsrBuilder::without_subject(), |csr, (kind, value)| {
                csr.name(kind, UTF8, value.as_bytes())
            })
    };
    let n1 = || node("system:node:n1");
    let organization = |value: &'static str| (oid::ORGANIZATION, value);
    let common_name = |value: &'static str| (oid::COMMON_NAME, value);
    // CA: true, and keyCertSign beside cRLSign.
    let (ca, cert_sign) = (&[0x30, 3, 1, 1, 0xff], &[3, 2, 1, 6]);
    vec![
        ("client", client()),
        (
            "masters",
            of(&[organization("system:masters"), common_name("eve")]),
        ),
        (
            "masters second",
            of(&[
                organization("a"),
                organization("system:masters"),
                common_name("eve"),
            ]),
        ),
        ("no subject", CsrBuilder::without_subject()),
        (
            "only names",
            CsrBuilder::without_subject().dns("a.example.com"),
        ),
        ("no organization", CsrBuilder::new("jane")),
        (
            "two organizations",
            of(&[organization("b"), organization("a"), common_name("jane")]),
        ),
        (
            "two common names",
            of(&[common_name("first"), common_name("last")]),
        ),
        (
            "one RDN",
            CsrBuilder::without_subject().rdn(&[
                (oid::COMMON_NAME, UTF8, b"jane"),
                (oid::ORGANIZATION, UTF8, b"developers"),
            ]),
        ),
        (
            "all attributes",
            of(&[
                (oid::SERIAL_NUMBER, "42"),
                common_name("jane"),
                (oid::ORGANIZATIONAL_UNIT, "unit"),
                organization("developers"),
                (oid::POSTAL_CODE, "8000"),
                (oid::STREET, "Street 1"),
                (oid::LOCALITY, "City"),
                (oid::STATE, "State"),
                (oid::COUNTRY, "CH"),
            ]),
        ),
        (
            "lost attributes",
            of(&[
                (oid::DOMAIN_COMPONENT, "example"),
                (oid::USER_ID, "7"),
                (oid::EMAIL_ADDRESS, "jane@example.com"),
                (oid::TITLE, "Dr"),
                (oid::GIVEN_NAME, "Jane"),
                common_name("jane"),
            ]),
        ),
        (
            "not ASCII",
            of(&[organization("Zürich"), common_name("jané")]),
        ),
        (
            "not printable",
            of(&[organization("a_b@c*"), common_name("a&b")]),
        ),
        (
            "IA5 name",
            CsrBuilder::without_subject().name(&oid::COMMON_NAME, IA5, b"jane"),
        ),
        (
            "all names",
            client()
                .uri("spiffe://example.com/a")
                .ip(v6)
                .email("jane@example.com")
                .dns("b.example.com")
                .ip(v4)
                .dns("a.example.com")
                .uri("https://example.com/"),
        ),
        ("DNS name", client().dns("a.example.com")),
        ("wildcard", client().dns("*.example.com")),
        (
            "other name kind",
            client().dns("a.example.com").alt_name(0x88, &[0x2a, 3]),
        ),
        (
            "wants to be a CA",
            client()
                .raw_extension(&oid::BASIC_CONSTRAINTS, Some(true), ca)
                .raw_extension(&oid::KEY_USAGE, Some(true), cert_sign),
        ),
        ("challenge password", client().challenge_password("secret")),
        ("bad signature", client().flaw(SignatureFlaw::FlippedBit)),
        ("octets behind", client().tail(b"x")),
        ("no attributes", client().without_attributes()),
        ("node", n1()),
        ("node n2", node("system:node:n2")),
        ("node DNS", n1().dns("n1.example.com")),
        ("node email", n1().email("n1@example.com")),
        ("node IP", n1().ip(v4)),
        ("node URI", n1().uri("https://n1.example.com/")),
        ("node name", node("n1")),
        ("node empty name", node("system:node:")),
        ("node no organization", CsrBuilder::new("system:node:n1")),
        ("node two organizations", n1().organization("developers")),
        ("serving", n1().dns("n1.example.com").ip(v4)),
        ("serving IP", n1().ip(v6)),
        (
            "serving email",
            n1().dns("n1.example.com").email("n1@example.com"),
        ),
        (
            "serving URI",
            n1().dns("n1.example.com").uri("https://n1.example.com/"),
        ),
        ("serving n2", node("system:node:n2").dns("n2.example.com")),
        ("serving name", node("n1").dns("n1.example.com")),
    ]
}
