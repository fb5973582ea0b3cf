//! `ca_crt.pem` and `ca_crl.pem`: who signs, who stands above, and what each of them has revoked.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use countersign_authority::AncestorCrl;
use countersign_pki::{Certificate, Crl, ext, pem};

use super::Problems;

/// The issuing certificate and those above it, up to the root.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) issuer: Certificate,
    /// The next above first.
    pub(crate) ancestors: Vec<Certificate>,
}

impl Chain {
    /// Finds the certificate of the key in a bundle, wherever it stands, and a verified way from it to a root.
    pub(crate) fn read(
        file: &Path,
        bundle: &[u8],
        spki_der: &[u8],
        problems: &mut Problems,
    ) -> Result<Self> {
        let blocks = pem::decode_all(bundle, &pem::PemLimits::BUNDLE)
            .with_context(|| format!("{} cannot be read", file.display()))?;
        let mut others = Vec::new();
        let mut issuer = None;
        for block in blocks.iter().filter(|block| block.label == "CERTIFICATE") {
            let certificate = Certificate::parse(&block.der)
                .with_context(|| format!("{} holds a malformed certificate", file.display()))?;
            if issuer.is_none() && certificate.spki_der() == spki_der {
                issuer = Some(certificate);
            } else {
                others.push(certificate);
            }
        }
        let Some(issuer) = issuer else {
            bail!(
                "{} holds no certificate of the key in {} beside it: restore both from one backup",
                file.display(),
                super::KEY
            );
        };
        if !issuer.is_ca() {
            bail!(
                "{}: the certificate of the key is not a CA's",
                file.display()
            );
        }
        let mut ancestors: Vec<Certificate> = Vec::new();
        loop {
            let last = ancestors.last().unwrap_or(&issuer);
            if is_root(last) {
                break;
            }
            let above = others
                .iter()
                .position(|other| other.is_ca() && last.verify_signed_by(other.spki_der()).is_ok());
            let Some(above) = above else {
                bail!(
                    "{}: the certificate of {:?} is missing, so the chain does not reach a root: append it to the file",
                    file.display(),
                    last.issuer().to_string()
                );
            };
            ancestors.push(others.remove(above));
        }
        for other in others {
            problems.add(
                file,
                format!(
                    "{:?} is not in the chain of the key",
                    other.subject().to_string()
                ),
            );
        }
        Ok(Self { issuer, ancestors })
    }
}

/// A self-signed certificate; one with a signature algorithm of old is believed by its name.
fn is_root(certificate: &Certificate) -> bool {
    certificate.subject().der() == certificate.issuer().der()
        || certificate.verify_signed_by(certificate.spki_der()).is_ok()
}

/// The lists of a chain.
#[derive(Debug)]
pub(crate) struct Lists {
    pub(crate) own: Crl,
    pub(crate) ancestors: Vec<AncestorCrl>,
}

impl Lists {
    /// Sorts the lists of a file by the keys that signed them. The issuer's own must be there: without it every
    /// revocation would be forgotten.
    pub(crate) fn read(
        file: &Path,
        text: &[u8],
        chain: &Chain,
        problems: &mut Problems,
    ) -> Result<Self> {
        let blocks = pem::decode_all(text, &pem::PemLimits::BUNDLE)
            .with_context(|| format!("{} cannot be read", file.display()))?;
        let mut own: Option<Crl> = None;
        let mut ancestors: Vec<AncestorCrl> = Vec::new();
        for block in blocks.iter().filter(|block| block.label == "X509 CRL") {
            let list = Crl::parse(&block.der)
                .with_context(|| format!("{} holds a malformed CRL", file.display()))?;
            if list.verify_signed_by(chain.issuer.spki_der()).is_ok() {
                if own.is_some() {
                    problems.add(
                        file,
                        "the CA's own CRL stands in it twice; the newer one counts",
                    );
                }
                let newer = own.as_ref().is_none_or(|own| own.number() < list.number());
                if newer {
                    own = Some(list);
                }
                continue;
            }
            let signer = (0_u32..)
                .zip(&chain.ancestors)
                .find(|(_, ancestor)| list.verify_signed_by(ancestor.spki_der()).is_ok());
            match signer {
                Some((position, ancestor)) => ancestors.push(AncestorCrl {
                    key_id: key_id(ancestor)?,
                    number: list.number_bytes().unwrap_or_default().to_vec(),
                    position,
                    der: block.der.clone(),
                }),
                None => problems.add(
                    file,
                    format!(
                        "the CRL of {:?} is not signed by a key of the chain",
                        list.issuer().to_string()
                    ),
                ),
            }
        }
        for (position, ancestor) in (0_u32..).zip(&chain.ancestors) {
            if !ancestors.iter().any(|list| list.position == position) {
                problems.add(
                    file,
                    format!(
                        "there is no CRL of {:?}; agents that check the whole chain need one",
                        ancestor.subject().to_string()
                    ),
                );
            }
        }
        let Some(own) = own else {
            bail!(
                "{} holds no CRL that the key in {} signed: without it nobody knows what is revoked",
                file.display(),
                super::KEY
            );
        };
        Ok(Self { own, ancestors })
    }
}

fn key_id(certificate: &Certificate) -> Result<Vec<u8>> {
    Ok(match certificate.subject_key_id() {
        Some(id) => id.to_vec(),
        None => ext::key_id(certificate.spki_der())?,
    })
}
