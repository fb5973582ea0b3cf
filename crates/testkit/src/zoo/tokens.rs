//! Enrolment tokens in the right places, in the wrong ones and in encodings that hide them. All of these are requests to
//! be read; whether the token counts is another question.

use countersign_pki::{Oid, oid};

use super::{Specimen, good, key, new};
use crate::csr::TOKEN;
use crate::der;

pub(super) fn specimens() -> Vec<Specimen> {
    let private = Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 2, 7]);
    let password = oid::CHALLENGE_PASSWORD;
    let narrow = TOKEN.as_bytes();
    let (first, rest) = TOKEN.split_at(3);
    let pieces = [
        der::tlv(0x04, first.as_bytes()),
        der::tlv(0x04, rest.as_bytes()),
    ]
    .concat();
    vec![
        good(
            "token of an agent",
            new().challenge_password(TOKEN).sign(key()),
        ),
        good(
            "token T61String",
            new().attribute(&password, 0x14, narrow).sign(key()),
        ),
        good(
            "token IA5String",
            new().attribute(&private, 0x16, narrow).sign(key()),
        ),
        good(
            "token BMPString",
            new()
                .attribute(&password, 0x1e, &der::wide(TOKEN, 2))
                .sign(key()),
        ),
        good(
            "token UniversalString",
            new()
                .attribute(&password, 0x1c, &der::wide(TOKEN, 4))
                .sign(key()),
        ),
        good(
            "token in a constructed string",
            new().attribute(&password, 0x2c, &pieces).sign(key()),
        ),
        good(
            "token OCTET STRING",
            new().attribute(&password, 0x04, narrow).sign(key()),
        ),
        good(
            "token as one of two values",
            new()
                .attribute_values(&password, &[&der::tlv(0x0c, b"x"), &der::tlv(0x0c, narrow)])
                .sign(key()),
        ),
        good(
            "token as pp_preshared_key",
            new().extension(&oid::PP_PRESHARED_KEY, TOKEN).sign(key()),
        ),
        good(
            "token as bare pp_preshared_key before another extension",
            new()
                .raw_extension(&oid::PP_PRESHARED_KEY, None, narrow)
                .extension(&private, "x")
                .sign(key()),
        ),
        good(
            "token as pp_preshared_key in BMPString",
            new()
                .raw_extension(
                    &oid::PP_PRESHARED_KEY,
                    None,
                    &der::tlv(0x1e, &der::wide(TOKEN, 2)),
                )
                .sign(key()),
        ),
        good(
            "token as alternative name before others",
            new()
                .dns(TOKEN)
                .dns("web01")
                .ip([10, 0, 0, 1].into())
                .sign(key()),
        ),
        good("token in Microsoft's extension request", {
            let extension = der::extension(&oid::PP_PRESHARED_KEY, None, narrow);
            new()
                .attribute_values(
                    &oid::MICROSOFT_EXTENSION_REQUEST,
                    &[&der::seq(&[&extension])],
                )
                .sign(key())
        }),
        good("token in octets that happen to be DER", {
            // `o` `t` is the header of a constructed element of 116 octets, `t` `1` that of one of 49, `s` `?` one of 63.
            let (head, tail) = TOKEN.split_at(53);
            let text = format!("{head}s?{tail:z<63}");
            new()
                .raw_extension(&private, None, text.as_bytes())
                .sign(key())
        }),
    ]
}
