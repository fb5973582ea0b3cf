//! Requests that are broken as such.

use countersign_pki::oid;

use super::{Specimen, bad, good, key, new};
use crate::der;

pub(super) fn specimens() -> Vec<Specimen> {
    let whole = new().sign(key());
    vec![
        bad("nothing", "certificationRequest ends too early", Vec::new()),
        bad(
            "not a sequence",
            "certificationRequest has tag 0x31",
            der::tlv(0x31, &[]),
        ),
        bad(
            "empty sequence",
            "certificationRequestInfo ends too early",
            vec![0x30, 0],
        ),
        bad(
            "cut off",
            "certificationRequest ends too early",
            whole.get(..whole.len() - 1).unwrap_or_default().to_vec(),
        ),
        bad(
            "octets after the request",
            "certificationRequest is followed by extra bytes",
            new().tail(&[0]).sign(key()),
        ),
        bad(
            "element after the signature",
            "certificationRequest is followed by extra bytes",
            after_signature(&whole),
        ),
        bad(
            "length not minimal",
            "certificationRequest is not DER",
            long_length(&whole),
        ),
        bad(
            "indefinite length",
            "certificationRequest is not DER",
            indefinite(&whole),
        ),
        good(
            "version 2, as puppetserver ca writes it",
            new().version(der::small_integer(2)).sign(key()),
        ),
        bad(
            "version 1",
            "certificationRequestInfo.version is not 0",
            new().version(der::small_integer(1)).sign(key()),
        ),
        bad(
            "version 3",
            "certificationRequestInfo.version is not 0",
            new().version(der::small_integer(3)).sign(key()),
        ),
        bad(
            "version not minimal",
            "certificationRequestInfo.version is an integer that is not minimal",
            new().version(der::tlv(2, &[0, 0])).sign(key()),
        ),
        bad(
            "version negative",
            "certificationRequestInfo.version is a negative integer",
            new().version(der::tlv(2, &[0xff])).sign(key()),
        ),
        bad(
            "version missing",
            "certificationRequestInfo.version has tag",
            new().version(Vec::new()).sign(key()),
        ),
        bad(
            "attributes missing",
            "certificationRequestInfo.attributes is missing",
            new().without_attributes().sign(key()),
        ),
        bad(
            "attributes with another tag",
            "certificationRequestInfo.attributes has tag 0xa1",
            new().without_attributes().info_tail(&[0xa1, 0]).sign(key()),
        ),
        bad(
            "field after the attributes",
            "certificationRequestInfo is followed by extra bytes",
            new().info_tail(&[5, 0]).sign(key()),
        ),
        bad(
            "attribute is no sequence",
            "certificationRequestInfo.attributes has tag",
            new().raw_attribute(der::tlv(0x04, b"x")).sign(key()),
        ),
        bad(
            "attribute without a set",
            "certificationRequestInfo.attributes ends too early",
            new()
                .raw_attribute(der::seq(&[&der::oid(&oid::CHALLENGE_PASSWORD)]))
                .sign(key()),
        ),
        bad(
            "attribute with a field too many",
            "certificationRequestInfo.attributes is followed by extra bytes",
            new()
                .raw_attribute(der::seq(&[
                    &der::oid(&oid::CHALLENGE_PASSWORD),
                    &der::set(&[]),
                    &[5, 0],
                ]))
                .sign(key()),
        ),
        bad(
            "attribute with a bad identifier",
            "bad object identifier",
            new()
                .raw_attribute(der::seq(&[&[6, 2, 0x2a, 0x80], &der::set(&[])]))
                .sign(key()),
        ),
        bad(
            "attribute with an endless identifier",
            "bad object identifier",
            new()
                .raw_attribute(der::seq(&[&der::tlv(6, &[0x81; 70]), &der::set(&[])]))
                .sign(key()),
        ),
        bad(
            "33 attributes",
            "certificationRequestInfo.attributes has more than 32 elements",
            (0..33)
                .fold(new(), |b, _| b.challenge_password("x"))
                .sign(key()),
        ),
        bad(
            "over 32 KiB",
            "certificationRequest is longer than 32768 octets",
            new().challenge_password(&"x".repeat(33_000)).sign(key()),
        ),
    ]
}

fn after_signature(whole: &[u8]) -> Vec<u8> {
    let content = whole.get(header(whole)..).unwrap_or_default();
    der::tlv(0x30, &[content, &[5, 0]].concat())
}

fn long_length(whole: &[u8]) -> Vec<u8> {
    let content = whole.get(header(whole)..).unwrap_or_default();
    let length = u32::try_from(content.len())
        .unwrap_or_default()
        .to_be_bytes();
    [&[0x30, 0x84][..], &length, content].concat()
}

fn indefinite(whole: &[u8]) -> Vec<u8> {
    let content = whole.get(header(whole)..).unwrap_or_default();
    [&[0x30, 0x80][..], content, &[0, 0]].concat()
}

fn header(whole: &[u8]) -> usize {
    match whole.get(1) {
        Some(long) if *long >= 0x80 => 2 + usize::from(*long & 0x7f),
        _ => 2,
    }
}
