//! The way from a CA's certificate to a root, among certificates in any order.

use std::iter;

use countersign_pki::{Certificate, KeyUsage, VerifyFault, ext, pem};

use crate::issuer::IssuerFault;

/// An issuing certificate and those above it.
#[derive(Debug)]
pub struct Chain {
    /// The certificate of the key that signs.
    pub issuing: Certificate,
    /// From the CA that signed the issuing certificate to the root. None if that is a root itself.
    pub ancestors: Vec<Certificate>,
}

/// How far up certificates lead.
#[derive(Debug)]
pub struct Way {
    /// Those on the way.
    pub chain: Chain,
    /// The others.
    pub beside: Vec<Certificate>,
    /// Whether the last one is a root.
    pub reaches_root: bool,
}

impl Chain {
    /// Finds the certificate of the key in a PEM text, wherever it stands, and from it a way to a self-signed root, each
    /// signature verified. Answers with the way and the certificates beside it.
    pub fn read(
        bundle_pem: &[u8],
        public_key: &[u8],
    ) -> Result<(Self, Vec<Certificate>), IssuerFault> {
        let mut bundle = certificates(bundle_pem)?;
        let issuing = bundle
            .iter()
            .position(|one| one.spki_der() == public_key)
            .ok_or(IssuerFault::ForeignKey)?;
        let issuing = bundle.remove(issuing);
        let way = Self::climb(issuing, bundle, signs_itself, next_by_signature);
        if let Some(other) = way.chain.iter().find(|one| !is_ca(one)) {
            return Err(not_a_ca(other));
        }
        if way.reaches_root {
            return Ok((way.chain, way.beside));
        }
        let last = way.chain.top();
        Err(IssuerFault::Incomplete {
            subject: last.subject().to_string(),
            issuer: last.issuer().to_string(),
        })
    }

    /// Goes up from a certificate to the first that `is_root`. `next` tells the place of the one above a certificate
    /// among those that are left.
    pub fn climb(
        issuing: Certificate,
        others: Vec<Certificate>,
        is_root: impl Fn(&Certificate) -> bool,
        next: impl Fn(&Certificate, &[Certificate]) -> Option<usize>,
    ) -> Way {
        let mut chain = Self {
            issuing,
            ancestors: Vec::new(),
        };
        let mut beside = others;
        let mut reaches_root = is_root(chain.top());
        while !reaches_root && let Some(place) = next(chain.top(), &beside) {
            chain.ancestors.push(beside.remove(place));
            reaches_root = is_root(chain.top());
        }
        Way {
            chain,
            beside,
            reaches_root,
        }
    }

    /// All of it, the issuing certificate first.
    pub fn iter(&self) -> impl Iterator<Item = &Certificate> {
        iter::once(&self.issuing).chain(&self.ancestors)
    }

    fn top(&self) -> &Certificate {
        self.ancestors.last().unwrap_or(&self.issuing)
    }
}

/// The key identifier of a CA: what its certificate says, else what RFC 5280 4.2.1.2 makes of its key.
pub(crate) fn key_id(certificate: &Certificate) -> Result<Vec<u8>, IssuerFault> {
    match certificate.subject_key_id() {
        Some(id) => Ok(id.to_vec()),
        None => ext::key_id(certificate.spki_der()).map_err(|_| not_a_ca(certificate)),
    }
}

/// By key, not by name: names that say the same may be written differently. Where the signer has several certificates,
/// the one that is a root is the shorter way.
fn next_by_signature(last: &Certificate, others: &[Certificate]) -> Option<usize> {
    let signs = |one: &Certificate| last.verify_signed_by(one.spki_der()).is_ok();
    let roots_first = others
        .iter()
        .position(|one| signs(one) && signs_itself(one));
    roots_first.or_else(|| others.iter().position(signs))
}

fn certificates(chain_pem: &[u8]) -> Result<Vec<Certificate>, IssuerFault> {
    let blocks = pem::decode_all(chain_pem, &pem::PemLimits::BUNDLE)
        .map_err(|source| IssuerFault::Pem { source })?;
    let blocks = blocks.iter().filter(|block| block.label == "CERTIFICATE");
    let mut certificates = Vec::new();
    for (block, place) in blocks.zip(1..) {
        if place > MAX_CERTIFICATES {
            let limit = MAX_CERTIFICATES;
            return Err(IssuerFault::TooLong { limit });
        }
        let certificate = Certificate::parse(&block.der)
            .map_err(|source| IssuerFault::Certificate { place, source })?;
        certificates.push(certificate);
    }
    if certificates.is_empty() {
        return Err(IssuerFault::NoCertificate);
    }
    Ok(certificates)
}

/// A root's signature of itself proves nothing, so one that is too old to be verified is no reason to refuse it: whoever
/// has put it into the file trusts it.
fn signs_itself(certificate: &Certificate) -> bool {
    match certificate.verify_signed_by(certificate.spki_der()) {
        Ok(()) => true,
        Err(VerifyFault::WeakSignature { .. } | VerifyFault::UnsupportedAlgorithm { .. }) => {
            certificate.is_self_issued()
        }
        Err(_) => false,
    }
}

/// RFC 5280 6.1.4 (k) and (n).
fn is_ca(certificate: &Certificate) -> bool {
    let may_sign = |usage: KeyUsage| usage.contains(KeyUsage::KEY_CERT_SIGN);
    certificate.is_ca() && certificate.key_usage().is_none_or(may_sign)
}

fn not_a_ca(certificate: &Certificate) -> IssuerFault {
    IssuerFault::NotACa {
        subject: certificate.subject().to_string(),
    }
}

/// Chains have two or three; the search verifies each with each.
const MAX_CERTIFICATES: usize = 32;
