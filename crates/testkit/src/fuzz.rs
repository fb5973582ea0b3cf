//! What the fuzz targets do with their input, as ordinary functions, so that ordinary tests run the same checks.
//!
//! Each function panics if a promise of the reader is broken; reading itself must never panic.

use countersign_pki::pem::{self, PemLimits};
use countersign_pki::{
    Carrier, Certificate, CheckedCsr, Crl, CsrLimits, Extension, Fingerprint, Oid, Subject,
    SubjectBuilder, carried, masked, terminal_safe,
};

/// A request in DER: whatever was accepted is kept as received and is read again in the same way.
///
/// # Panics
/// If a promise is broken.
pub fn csr(bytes: &[u8]) {
    let stored = CheckedCsr::trusted_from_store(bytes);
    if let Ok(csr) = &stored {
        facts_of_tokens(csr);
    }
    let Ok(checked) = CheckedCsr::check(bytes, &CsrLimits::STANDARD) else {
        if let Ok(csr) = stored {
            facts_of_names(csr.subject());
            facts_of_extensions(csr.extensions());
        }
        return;
    };
    assert_eq!(stored.as_ref(), Ok(&checked), "the store's reading differs");
    assert_eq!(checked.der(), bytes, "octets were changed");
    let again = CheckedCsr::from_pem(checked.to_pem().as_bytes(), &CsrLimits::STANDARD);
    assert_eq!(again.as_ref(), Ok(&checked), "armour changed the reading");
    let text = checked.subject().to_string();
    assert!(
        !text.chars().any(char::is_control),
        "a control character got through"
    );
}

/// A request in PEM, and any other text with armour.
///
/// # Panics
/// If a promise is broken.
pub fn pem(bytes: &[u8]) {
    if let Ok(csr) = CheckedCsr::from_pem(bytes, &CsrLimits::STANDARD) {
        self::csr(csr.der());
    }
    let Ok(blocks) = pem::decode_all(bytes, &PemLimits::REQUEST) else {
        return;
    };
    assert!(
        blocks.len() <= PemLimits::REQUEST.max_blocks,
        "too many blocks"
    );
    let text: String = blocks
        .iter()
        .map(|block| pem::encode(&block.label, &block.der))
        .collect();
    let limits = PemLimits {
        max_text: usize::MAX,
        ..PemLimits::REQUEST
    };
    let again = pem::decode_all(text.as_bytes(), &limits).expect("own armour is valid");
    assert!(
        again
            .iter()
            .map(|b| (&b.label, &b.der))
            .eq(blocks.iter().map(|b| (&b.label, &b.der))),
        "armour does not round-trip"
    );
}

/// A certificate or revocation list in DER.
///
/// # Panics
/// If a promise is broken.
pub fn certificate(bytes: &[u8]) {
    if let Ok(certificate) = Certificate::parse(bytes) {
        assert_eq!(certificate.der(), bytes, "octets were changed");
        facts_of_names(certificate.subject());
        facts_of_names(certificate.issuer());
        facts_of_extensions(certificate.extensions());
        let own: Fingerprint = certificate.fingerprint();
        assert_eq!(own.to_string().len(), 95, "a fingerprint has 32 pairs");
        let _ = certificate.verify_signed_by(certificate.spki_der());
    }
    if let Ok(crl) = Crl::parse(bytes) {
        assert_eq!(crl.der(), bytes, "octets were changed");
        assert_eq!(
            crl.serials().count(),
            crl.entries().len(),
            "entries were lost"
        );
        facts_of_names(crl.issuer());
    }
}

/// What is taken out is plain text of bounded length; what is masked has the outline of the original and is masked once.
fn facts_of_tokens(csr: &CheckedCsr) {
    let private = Carrier::Attribute(Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 2, 7]));
    let one_by_one = [Carrier::ChallengePassword, private, Carrier::PresharedKey];
    let all = one_by_one.as_slice();
    for carriers in all.chunks(1).chain([all]) {
        if let Ok(Some(text)) = carried(csr, carriers) {
            let text = text.expose();
            assert!(
                (1..=4096).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()),
                "a token with a character that it cannot have"
            );
        }
    }
    let Some(der) = masked(csr) else {
        return;
    };
    assert_ne!(der, csr.der(), "masked, but nothing was overwritten");
    assert_eq!(der.len(), csr.der().len(), "masking changed the length");
    let copy = CheckedCsr::trusted_from_store(&der).expect("a masked request is a request");
    // The debug form is the outline: types and lengths without content.
    assert_eq!(
        format!("{copy:?}"),
        format!("{csr:?}"),
        "masking changed the structure"
    );
    assert_eq!(
        masked(&copy),
        None,
        "masking did not find everything at once"
    );
}

fn facts_of_names(name: &Subject) {
    let text = name.to_string();
    assert!(
        !terminal_safe(&text).chars().any(char::is_control),
        "terminal text acts"
    );
    let again = SubjectBuilder::go_style(name);
    assert_eq!(again.first(), Some(&0x30), "a rebuilt name is a sequence");
}

fn facts_of_extensions(extensions: &[Extension]) {
    for extension in extensions {
        let _ = extension.text_value();
        assert_eq!(
            Oid::parse(&extension.oid.to_string()),
            Ok(extension.oid),
            "an identifier does not round-trip"
        );
    }
}
