//! Subjects that must be refused.

use countersign_pki::oid;

use super::{Specimen, bad, key, new};
use crate::csr::CsrBuilder;
use crate::der;

pub(super) fn specimens() -> Vec<Specimen> {
    let cn = |tag, value: &[u8]| {
        CsrBuilder::without_subject()
            .name(&oid::COMMON_NAME, tag, value)
            .sign(key())
    };
    let control = "2.5.4.3 has a control character";
    let not_text = "2.5.4.3 is not valid text";
    vec![
        bad(
            "common name with NUL",
            control,
            cn(0x0c, b"web01\0.evil.example"),
        ),
        bad(
            "common name with escape",
            control,
            cn(0x0c, b"web01\x1b[2J"),
        ),
        bad("common name with newline", control, cn(0x13, b"web01\n")),
        bad(
            "common name with leading tab",
            control,
            cn(0x0c, b"\tweb01"),
        ),
        bad("common name with DEL", control, cn(0x16, b"web\x7f")),
        bad(
            "common name with C1 control",
            control,
            cn(0x14, b"web\x9b2J"),
        ),
        bad(
            "common name BMPString with NUL",
            control,
            cn(0x1e, &[0, b'w', 0, 0]),
        ),
        bad("common name invalid UTF-8", not_text, cn(0x0c, b"web\xff")),
        bad(
            "common name overlong UTF-8",
            not_text,
            cn(0x0c, b"web\xc0\xae"),
        ),
        bad(
            "common name PrintableString beyond ASCII",
            not_text,
            cn(0x13, b"web\xe9"),
        ),
        bad(
            "common name BMPString of odd length",
            not_text,
            cn(0x1e, &[0, b'w', 0]),
        ),
        bad(
            "common name BMPString with surrogates",
            not_text,
            cn(0x1e, &[0xd8, 0x3d, 0xde, 0]),
        ),
        bad(
            "common name UniversalString cut",
            not_text,
            cn(0x1c, &[0, 0, 0]),
        ),
        bad(
            "common name UniversalString beyond Unicode",
            not_text,
            cn(0x1c, &[0, 0x11, 0, 0]),
        ),
        bad(
            "common name constructed",
            not_text,
            cn(0x2c, &der::tlv(0x0c, b"web01")),
        ),
        bad(
            "common name over 2048 octets",
            "certificationRequestInfo.subject is longer than 2048",
            cn(0x0c, &[b'a'; 2049]),
        ),
        bad(
            "empty relative name",
            "certificationRequestInfo.subject has an empty relative name",
            new().rdn(&[]).sign(key()),
        ),
        bad(
            "65 name attributes",
            "certificationRequestInfo.subject has more than 64 elements",
            (0..64).fold(new(), |b, _| b.organization("x")).sign(key()),
        ),
        bad(
            "subject is no sequence",
            "certificationRequestInfo.subject has tag 0x31",
            new().raw_subject(der::set(&[])).sign(key()),
        ),
        bad(
            "relative name is no set",
            "certificationRequestInfo.subject has tag 0x30",
            new().raw_subject(der::seq(&[&der::seq(&[])])).sign(key()),
        ),
        bad(
            "name attribute without value",
            "certificationRequestInfo.subject ends too early",
            new()
                .raw_subject(der::seq(&[&der::set(&[&der::seq(&[&der::oid(
                    &oid::COMMON_NAME,
                )])])]))
                .sign(key()),
        ),
        bad(
            "name attribute with two values",
            "certificationRequestInfo.subject is followed by extra bytes",
            new()
                .raw_subject(der::seq(&[&der::set(&[&der::seq(&[
                    &der::oid(&oid::COMMON_NAME),
                    &der::tlv(0x0c, b"a"),
                    &der::tlv(0x0c, b"b"),
                ])])]))
                .sign(key()),
        ),
    ]
}
