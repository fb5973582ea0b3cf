//! Armour: what surrounds a request, and what must not.

use countersign_pki::pem;

use super::{Specimen, bad_pem, good_pem};
use crate::csr::CsrBuilder;
use crate::keys;

pub(super) fn specimens() -> Vec<Specimen> {
    let der = CsrBuilder::new("web01.example.com").sign(keys::ed25519());
    let text = pem::encode("CERTIFICATE REQUEST", &der);
    let key = keys::p256_a().pkcs8_pem();
    let headers = text.replacen("-----\n", "-----\nComment: yes\n\n", 1);
    vec![
        good_pem("armour with CRLF", text.replace('\n', "\r\n")),
        good_pem("armour without final newline", text.trim_end()),
        good_pem(
            "armour with text around",
            format!("hello\n\n{text}\ngoodbye\n"),
        ),
        good_pem(
            "armour with NEW label",
            pem::encode("NEW CERTIFICATE REQUEST", &der),
        ),
        good_pem("armour with headers", headers),
        good_pem("armour on one line", one_line(&text)),
        bad_pem("no armour", "no certificate request block", "hello"),
        bad_pem("empty text", "no certificate request block", ""),
        bad_pem(
            "DER instead of a text",
            "no certificate request block",
            der.clone(),
        ),
        bad_pem(
            "two requests",
            "more than one block",
            format!("{text}{text}"),
        ),
        bad_pem(
            "private key before the request",
            "block that is not a certificate request",
            format!("{key}{text}"),
        ),
        bad_pem(
            "private key after the request",
            "block that is not a certificate request",
            format!("{text}{key}"),
        ),
        bad_pem(
            "only a private key",
            "block that is not a certificate request",
            key,
        ),
        bad_pem(
            "request labelled as certificate",
            "block that is not a certificate request",
            pem::encode("CERTIFICATE", &der),
        ),
        bad_pem(
            "request labelled in lower case",
            "block that is not a certificate request",
            pem::encode("certificate request", &der),
        ),
        bad_pem(
            "armour without END",
            "no matching END",
            text.replace("-----END CERTIFICATE REQUEST-----", ""),
        ),
        bad_pem(
            "armour with another END",
            "does not match a BEGIN",
            text.replace("END CERTIFICATE REQUEST", "END CERTIFICATE"),
        ),
        bad_pem(
            "URL-safe base64",
            "not valid base64",
            text.replacen("MI", "M_", 1),
        ),
        bad_pem(
            "padding missing",
            "not valid base64",
            pem::encode("CERTIFICATE REQUEST", &[0x30, 0]).replace('=', ""),
        ),
        bad_pem(
            "armour around nothing",
            "certificationRequest ends too early",
            pem::encode("CERTIFICATE REQUEST", &[]),
        ),
        bad_pem(
            "text over 64 KiB",
            "PEM text is longer than 65536",
            format!("{}\n{text}", "x".repeat(65_536)),
        ),
    ]
}

fn one_line(text: &str) -> String {
    let mut lines = text.lines();
    let (first, last) = (
        lines.next().unwrap_or_default(),
        lines.next_back().unwrap_or_default(),
    );
    format!("{first}\n{}\n{last}\n", lines.collect::<String>())
}
