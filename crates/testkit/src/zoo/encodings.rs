//! Unusual encodings that clients do send and that must be read: Puppet's strings, old string types, unsorted sets.

use std::net::IpAddr;

use countersign_pki::{Oid, oid};

use super::{Specimen, good};
use crate::csr::CsrBuilder;
use crate::der;
use crate::keys::{self, SigningScheme};

pub(super) fn specimens() -> Vec<Specimen> {
    let key = keys::ed25519();
    let new = || CsrBuilder::new("web01.example.com");
    let private = Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 2, 7]);
    let role = Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 1, 13]);
    vec![
        good("smallest request", new().sign(key)),
        good("puppet agent", puppet_agent().sign(keys::rsa2048_a())),
        good(
            "puppet agent with EC key",
            puppet_agent().sign(keys::p256_a()),
        ),
        good(
            "empty subject, no attributes",
            CsrBuilder::without_subject().sign(key),
        ),
        good(
            "PrintableString with underscore",
            new().challenge_password("ab_1*@!").sign(key),
        ),
        good(
            "common name PrintableString with underscore",
            with_cn(0x13, b"web_01").sign(key),
        ),
        good("common name T61String", with_cn(0x14, b"web\xe9").sign(key)),
        good("common name IA5String", with_cn(0x16, b"web01@x").sign(key)),
        good(
            "common name BMPString",
            with_cn(0x1e, &[0, b'w', 0, b'1']).sign(key),
        ),
        good(
            "common name UniversalString",
            with_cn(0x1c, &[0, 0, 0, b'w']).sign(key),
        ),
        good(
            "password UTF8String",
            new()
                .attribute(&oid::CHALLENGE_PASSWORD, 0x0c, "pässword".as_bytes())
                .sign(key),
        ),
        good(
            "password BMPString",
            new()
                .attribute(&oid::CHALLENGE_PASSWORD, 0x1e, &[0, b'x'])
                .sign(key),
        ),
        good(
            "password OCTET STRING, kept raw",
            new()
                .attribute(&oid::CHALLENGE_PASSWORD, 0x04, b"x")
                .sign(key),
        ),
        good(
            "password constructed, kept raw",
            new()
                .attribute(&oid::CHALLENGE_PASSWORD, 0x2c, &der::tlv(0x0c, b"x"))
                .sign(key),
        ),
        good(
            "password of 4000 characters",
            new().challenge_password(&"p".repeat(4000)).sign(key),
        ),
        good(
            "two password attributes, kept",
            new()
                .challenge_password("a")
                .challenge_password("b")
                .sign(key),
        ),
        good(
            "attribute without values, kept",
            new()
                .raw_attribute(der::type_and_value(&private, &der::set(&[])))
                .sign(key),
        ),
        good("attribute with two values in wrong order", {
            let values = der::set(&[&der::tlv(0x0c, b"zz"), &der::tlv(0x0c, b"a")]);
            new()
                .raw_attribute(der::type_and_value(&private, &values))
                .sign(key)
        }),
        good(
            "attributes in wrong order",
            new()
                .extension(&role, "web")
                .attribute(
                    &Oid::from_arcs(&[2, 5, 4, 3]),
                    0x0c,
                    b"long enough to sort last",
                )
                .challenge_password("x")
                .sign(key),
        ),
        good(
            "unknown attribute with a private tag",
            new()
                .raw_attribute(der::type_and_value(
                    &private,
                    &der::set(&[&[0xdf, 0x81, 0x01, 0x01, 0x00]]),
                ))
                .sign(key),
        ),
        good("microsoft extension request is a mere attribute", {
            let value = der::set(&[&der::seq(&[&der::extension(
                &oid::BASIC_CONSTRAINTS,
                Some(true),
                &[0x30, 3, 1, 1, 0xff],
            )])]);
            new()
                .raw_attribute(der::type_and_value(
                    &oid::MICROSOFT_EXTENSION_REQUEST,
                    &value,
                ))
                .sign(key)
        }),
        good(
            "extension as raw text",
            new()
                .raw_extension(&oid::PP_PRESHARED_KEY, None, b"ab_1")
                .sign(key),
        ),
        good(
            "extension with empty value",
            new().raw_extension(&role, None, b"").sign(key),
        ),
        good(
            "critical extension",
            new()
                .raw_extension(&role, Some(true), &[0x0c, 1, b'x'])
                .sign(key),
        ),
        good(
            "asks to be an authority",
            new()
                .raw_extension(&oid::BASIC_CONSTRAINTS, Some(true), &[0x30, 3, 1, 1, 0xff])
                .sign(key),
        ),
        good(
            "names of every kind",
            new()
                .dns("a.example.com")
                .dns("*.example.com")
                .dns("under_score")
                .ip(IpAddr::from([10, 0, 0, 1]))
                .ip(IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]))
                .email("a@example.com")
                .uri("spiffe://example.com/a")
                .alt_name(0x88, &[0x2a, 3])
                .alt_name(
                    0xa0,
                    &[
                        &der::oid(&private)[..],
                        &der::tlv(0xa0, &der::tlv(0x0c, b"upn")),
                    ]
                    .concat(),
                )
                .sign(key),
        ),
        good(
            "multi-valued relative name in wrong order",
            CsrBuilder::without_subject()
                .rdn(&[
                    (oid::ORGANIZATIONAL_UNIT, 0x0c, b"u"),
                    (oid::COMMON_NAME, 0x0c, b"host"),
                ])
                .sign(key),
        ),
        good(
            "three common names",
            new()
                .name(&oid::COMMON_NAME, 0x0c, b"second")
                .name(&oid::COMMON_NAME, 0x13, b"third")
                .sign(key),
        ),
        good(
            "unique identifier that is no string",
            new()
                .name(&Oid::from_arcs(&[2, 5, 4, 45]), 0x03, &[0, 1, 2])
                .sign(key),
        ),
        good(
            "long identifier arc",
            new()
                .extension(
                    &Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 2, u32::MAX]),
                    "x",
                )
                .sign(key),
        ),
        good(
            "PKCS#1 algorithm without NULL",
            new()
                .algorithm(der::seq(&[&der::oid(&oid::SHA256_WITH_RSA)]))
                .sign(keys::rsa2048_a()),
        ),
        good(
            "PSS SHA-256",
            new()
                .scheme(SigningScheme::RsaPssSha256)
                .sign(keys::rsa2048_b()),
        ),
        good(
            "PSS SHA-384",
            new()
                .scheme(SigningScheme::RsaPssSha384)
                .sign(keys::rsa2048_b()),
        ),
        good(
            "PKCS#1 SHA-512 with RSA 4096",
            new()
                .scheme(SigningScheme::RsaPkcs1Sha512)
                .sign(keys::rsa4096_a()),
        ),
        good("RSA 3072", new().sign(keys::rsa3072())),
    ]
}

/// What an agent of version 7 or 8 sends with a filled `csr_attributes.yaml`.
fn puppet_agent() -> CsrBuilder {
    let private = Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 2, 1]);
    CsrBuilder::new("web01.example.com")
        .challenge_password("ott1.abc_DEF-123")
        .attribute(&private, 0x13, b"rack 7, row_3")
        .attribute(&oid::PP_AUTH_AUTO_RENEW, 0x13, b"true")
        .extension(&oid::PP_PRESHARED_KEY, "ab_1")
        .extension(
            &Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 1, 1]),
            "ED803750-E3C7-44F5-BB08-41A04433FE2E",
        )
        .dns("web01.example.com")
        .dns("web01")
}

fn with_cn(tag: u8, value: &[u8]) -> CsrBuilder {
    CsrBuilder::without_subject().name(&oid::COMMON_NAME, tag, value)
}
