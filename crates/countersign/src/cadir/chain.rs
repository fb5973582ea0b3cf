//! `ca_crt.pem` and `ca_crl.pem`: who signs, who stands above, and what each of them has revoked.

use std::path::Path;

use anyhow::{Context as _, Error, Result, anyhow, bail};
use countersign_authority::{AncestorCrl, Chain, IssuerFault};
use countersign_pki::{Crl, pem};

use super::Problems;

/// Finds the certificate of the key in a bundle, wherever it stands, and a verified way from it to a root.
pub(super) fn read_chain(
    file: &Path,
    bundle: &[u8],
    spki_der: &[u8],
    problems: &mut Problems,
) -> Result<Chain> {
    let (chain, beside) = Chain::read(bundle, spki_der).map_err(|fault| explained(file, fault))?;
    for other in beside {
        problems.add(
            file,
            format!(
                "{:?} is not in the chain of the key",
                other.subject().to_string()
            ),
        );
    }
    Ok(chain)
}

fn explained(file: &Path, fault: IssuerFault) -> Error {
    let shown = file.display();
    match fault {
        IssuerFault::Pem { source } => {
            Error::new(source).context(format!("{shown} cannot be read"))
        }
        IssuerFault::Certificate { source, .. } => {
            Error::new(source).context(format!("{shown} holds a malformed certificate"))
        }
        IssuerFault::NoCertificate | IssuerFault::ForeignKey => anyhow!(
            "{shown} holds no certificate of the key in {} beside it: restore both from one backup",
            super::KEY
        ),
        IssuerFault::Incomplete { issuer, .. } => anyhow!(
            "{shown}: the certificate of {issuer:?} is missing, so the chain does not reach a root: append it to the file"
        ),
        IssuerFault::BadName | IssuerFault::TooLong { .. } | IssuerFault::NotACa { .. } => {
            Error::new(fault).context(shown.to_string())
        }
    }
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
            if list.verify_signed_by(chain.issuing.spki_der()).is_ok() {
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
                Some((position, ancestor)) => {
                    ancestors.push(AncestorCrl::new(ancestor, position, &list)?);
                }
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
