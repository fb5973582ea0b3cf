//! The certificate that a signer elsewhere writes through `/status`.
//!
//! What is checked is what API servers check: that it is PEM of certificates and nothing else. Whether it answers the
//! request is between its signer and whoever trusts that signer; here it is nobody's identity.

use countersign_pki::{CertificateOutline, pem};

/// The first certificate of a text, which is the leaf; a fault in the words of API servers if the text is not made of
/// certificates. Text around the blocks is not looked at.
pub(super) fn read_leaf(text: &[u8]) -> Result<CertificateOutline, String> {
    let blocks = pem::decode_all(text, &LIMITS).map_err(|fault| fault.to_string())?;
    let mut leaf = None;
    let mut room = MAX_CERTIFICATES;
    for block in &blocks {
        if block.label != "CERTIFICATE" {
            let label = &block.label;
            return Err(format!(
                "only CERTIFICATE PEM blocks are allowed, found {label:?}"
            ));
        }
        if block.headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        // A block may hold several, one after the other.
        let read = CertificateOutline::read_all(&block.der, room);
        let certificates = read.map_err(|fault| fault.to_string())?;
        let first = certificates
            .first()
            .copied()
            .ok_or_else(|| "found CERTIFICATE PEM block containing 0 certificates".to_owned())?;
        room = room.saturating_sub(certificates.len());
        leaf = leaf.or(Some(first));
    }
    leaf.ok_or_else(|| "must contain at least one CERTIFICATE PEM block".to_owned())
}

/// Chains have a handful; an object with more would not be stored anyway.
const MAX_CERTIFICATES: usize = 100;
const LIMITS: pem::PemLimits = pem::PemLimits {
    max_text: 1024 * 1024,
    max_blocks: MAX_CERTIFICATES,
};
