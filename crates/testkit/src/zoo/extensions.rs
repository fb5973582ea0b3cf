//! Requested extensions and alternative names that must be refused, beside empty lists, which ask for nothing.

use countersign_pki::{Oid, oid};

use super::{Specimen, bad, good, key, new};
use crate::der;

pub(super) fn specimens() -> Vec<Specimen> {
    let role = Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 1, 13]);
    let request = |values: &[u8]| {
        let attribute = der::type_and_value(&oid::EXTENSION_REQUEST, &der::tlv(0x31, values));
        new().raw_attribute(attribute)
    };
    let one = der::seq(&[&der::extension(&role, None, &[0x0c, 1, b'x'])]);
    let san = |value: &[u8]| {
        new()
            .raw_extension(&oid::SUBJECT_ALT_NAME, None, value)
            .sign(key())
    };
    vec![
        bad(
            "same extension twice",
            "has extension 1.3.6.1.4.1.34380.1.1.13 twice",
            new()
                .extension(&role, "a")
                .extension(&role, "b")
                .sign(key()),
        ),
        bad(
            "alternative names twice",
            "has extension 2.5.29.17 twice",
            new()
                .dns("a")
                .raw_extension(&oid::SUBJECT_ALT_NAME, None, &[0x30, 3, 0x82, 1, b'b'])
                .sign(key()),
        ),
        bad(
            "two extension requests",
            "more than one extensionRequest",
            request(&one).extension(&role, "b").sign(key()),
        ),
        bad(
            "extension request without value",
            "extensionRequest has 0 values",
            request(&[]).sign(key()),
        ),
        bad(
            "extension request with two values",
            "extensionRequest has 2 values",
            request(&[one.clone(), one.clone()].concat()).sign(key()),
        ),
        good(
            "extension request with an empty list",
            request(&[0x30, 0]).sign(key()),
        ),
        bad(
            "extension request that is no list",
            "extensionRequest has tag 0x0c",
            request(&der::tlv(0x0c, b"x")).sign(key()),
        ),
        bad(
            "extension that is no sequence",
            "extensionRequest has tag 0x0c",
            request(&der::seq(&[&der::tlv(0x0c, b"x")])).sign(key()),
        ),
        bad(
            "extension without value",
            "extensionRequest ends too early",
            request(&der::seq(&[&der::seq(&[&der::oid(&role)])])).sign(key()),
        ),
        bad(
            "extension value is no OCTET STRING",
            "extensionRequest has tag 0x0c",
            request(&der::seq(&[&der::seq(&[
                &der::oid(&role),
                &der::tlv(0x0c, b"x"),
            ])]))
            .sign(key()),
        ),
        bad(
            "extension with a field too many",
            "extensionRequest is followed by extra bytes",
            request(&der::seq(&[&der::seq(&[
                &der::oid(&role),
                &der::tlv(4, b"x"),
                &[5, 0],
            ])]))
            .sign(key()),
        ),
        bad(
            "critical FALSE written out",
            "extensionRequest is not a DER boolean",
            new()
                .raw_extension(&role, Some(false), &[0x0c, 1, b'x'])
                .sign(key()),
        ),
        bad(
            "critical neither true nor false",
            "extensionRequest is not a DER boolean",
            request(&der::seq(&[&der::seq(&[
                &der::oid(&role),
                &[1, 1, 1],
                &der::tlv(4, b"x"),
            ])]))
            .sign(key()),
        ),
        bad(
            "65 extensions",
            "extensionRequest has more than 64 elements",
            (0..65)
                .fold(new(), |b, i| {
                    b.extension(&Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 2, i]), "x")
                })
                .sign(key()),
        ),
        good("alternative names without a name", san(&[0x30, 0])),
        bad(
            "alternative names empty value",
            "subjectAltName ends too early",
            san(&[]),
        ),
        bad(
            "alternative names raw text",
            "subjectAltName has tag",
            san(b"DNS:web01"),
        ),
        bad(
            "octets after the alternative names",
            "subjectAltName is followed by extra bytes",
            san(&[0x30, 3, 0x82, 1, b'a', 0]),
        ),
        bad(
            "alternative name cut off",
            "subjectAltName ends too early",
            san(&[0x30, 3, 0x82, 9, b'a']),
        ),
        bad(
            "DNS name beyond ASCII",
            "dNSName that is not visible ASCII",
            new()
                .alt_name(0x82, "münchen.example".as_bytes())
                .sign(key()),
        ),
        bad(
            "DNS name with NUL",
            "dNSName that is not visible ASCII",
            new()
                .alt_name(0x82, b"good.example\0.evil.example")
                .sign(key()),
        ),
        bad(
            "DNS name with blank",
            "dNSName that is not visible ASCII",
            new().dns("a b").sign(key()),
        ),
        bad(
            "DNS name empty",
            "dNSName that is not visible ASCII",
            new().dns("").sign(key()),
        ),
        bad(
            "e-mail with newline",
            "rfc822Name that is not visible ASCII",
            new().email("a@b\n").sign(key()),
        ),
        bad(
            "URI beyond ASCII",
            "uniformResourceIdentifier that is not visible ASCII",
            new().uri("http://é").sign(key()),
        ),
        bad(
            "address of 5 octets",
            "iPAddress of 5 octets",
            new().alt_name(0x87, &[10, 0, 0, 1, 9]).sign(key()),
        ),
        bad(
            "address with mask",
            "iPAddress of 8 octets",
            new()
                .alt_name(0x87, &[10, 0, 0, 0, 255, 0, 0, 0])
                .sign(key()),
        ),
        bad(
            "address empty",
            "iPAddress of 0 octets",
            new().alt_name(0x87, &[]).sign(key()),
        ),
        bad(
            "alternative name of unknown kind",
            "unknown kind 0x89",
            new().alt_name(0x89, b"x").sign(key()),
        ),
        bad(
            "DNS name constructed",
            "unknown kind 0xa2",
            new().alt_name(0xa2, &der::tlv(0x16, b"a")).sign(key()),
        ),
        bad(
            "257 alternative names",
            "more than 256 names",
            (0..257).fold(new(), |b, _| b.dns("a")).sign(key()),
        ),
        bad(
            "alternative name over 2048 octets",
            "dNSName longer than 2048",
            new().dns(&"a".repeat(2049)).sign(key()),
        ),
    ]
}
