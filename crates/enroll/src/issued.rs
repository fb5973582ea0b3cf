//! What an authority gave us, checked before it is installed.

use countersign_pki::{Certificate, Crl, UnixTime, pem};

use crate::trust::{Bundle, CERTIFICATE};

/// A certificate and those between it and its root, as they are shown to peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    leaf: Certificate,
    above: Vec<Certificate>,
}

/// Why a certificate is not ours.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Misfit {
    #[error("there is no certificate in it that can be read")]
    Unreadable,
    #[error("it is for another key")]
    OtherKey,
    #[error("it is for {found:?} and not for {name:?}")]
    OtherName { name: String, found: String },
    #[error("none of the CAs that were verified has signed it")]
    OtherIssuer,
    #[error("it has expired at {not_after}")]
    Expired { not_after: UnixTime },
    #[error("it stands on the revocation list")]
    Revoked,
}

/// What a certificate has to be.
pub(crate) struct Expected<'a> {
    pub(crate) name: &'a str,
    pub(crate) spki_der: &'a [u8],
    pub(crate) now: UnixTime,
    /// Who must have signed it, where that is known.
    pub(crate) issuers: Option<&'a Bundle>,
}

impl Chain {
    /// The certificates of a PEM text, ours first.
    pub(crate) fn read(text: &[u8]) -> Result<Self, Misfit> {
        let blocks = pem::decode_all(text, &LIMITS).map_err(|_| Misfit::Unreadable)?;
        let certificates = blocks
            .iter()
            .filter(|block| block.label == CERTIFICATE)
            .map(|block| Certificate::parse(&block.der).map_err(|_| Misfit::Unreadable));
        let mut certificates = certificates.collect::<Result<Vec<_>, _>>()?.into_iter();
        let leaf = certificates.next().ok_or(Misfit::Unreadable)?;
        Ok(Self {
            leaf,
            above: certificates.collect(),
        })
    }

    /// The certificate itself.
    #[must_use]
    pub fn leaf(&self) -> &Certificate {
        &self.leaf
    }

    /// As it is installed.
    pub(crate) fn to_pem(&self) -> String {
        let mut text = self.leaf.to_pem();
        text.extend(self.above.iter().map(Certificate::to_pem));
        text
    }

    pub(crate) fn to_der(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.leaf)
            .chain(&self.above)
            .map(Certificate::der)
    }

    /// Whether it is what it has to be.
    pub(crate) fn check(&self, expected: &Expected<'_>) -> Result<(), Misfit> {
        if self.leaf.spki_der() != expected.spki_der {
            return Err(Misfit::OtherKey);
        }
        let found = self.leaf.subject().last_common_name().unwrap_or_default();
        if found != expected.name {
            return Err(Misfit::OtherName {
                name: expected.name.to_owned(),
                found: found.to_owned(),
            });
        }
        if let Some(bundle) = expected.issuers
            && bundle.issuer_of(&self.leaf).is_none()
        {
            return Err(Misfit::OtherIssuer);
        }
        let not_after = self.leaf.not_after();
        if not_after < expected.now {
            return Err(Misfit::Expired { not_after });
        }
        Ok(())
    }
}

/// The revocation lists of a text that CAs of the bundle have signed.
#[must_use]
pub fn revocation_lists(text: &[u8], bundle: &Bundle) -> Vec<Crl> {
    let blocks = pem::decode_all(text, &pem::PemLimits::BUNDLE).unwrap_or_default();
    let lists = blocks
        .iter()
        .filter_map(|block| Crl::parse(&block.der).ok());
    lists
        .filter(|list| {
            let mut issuers = bundle.certificates().iter();
            issuers.any(|issuer| {
                issuer.subject().der() == list.issuer().der()
                    && list.verify_signed_by(issuer.spki_der()).is_ok()
            })
        })
        .collect()
}

/// Whether a certificate stands on its issuer's list.
#[must_use]
pub fn is_revoked(certificate: &Certificate, lists: &[Crl]) -> bool {
    let mut own = lists
        .iter()
        .filter(|list| list.issuer().der() == certificate.issuer().der());
    own.any(|list| list.serials().any(|serial| serial == certificate.serial()))
}

const LIMITS: pem::PemLimits = pem::PemLimits {
    max_text: 256 * 1024,
    max_blocks: 20,
};
