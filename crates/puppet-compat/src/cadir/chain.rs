//! `ca_crt.pem` and `ca_crl.pem`: who signs, who stands above, and what each of them has revoked.

use std::path::Path;

use countersign_authority::{AncestorCrl, Chain, IssuerFault};
use countersign_pki::{Crl, pem};

use super::{CadirFault, Problems};

/// Finds the certificate of the key in a bundle, wherever it stands, and a verified way from it to a root.
pub(super) fn read_chain(
    file: &Path,
    bundle: &[u8],
    spki_der: &[u8],
    problems: &mut Problems,
) -> Result<Chain, CadirFault> {
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

fn explained(file: &Path, fault: IssuerFault) -> CadirFault {
    let path = file.to_owned();
    match fault {
        IssuerFault::Pem { source } => CadirFault::Pem { path, source },
        IssuerFault::Certificate { source, .. } => CadirFault::ChainCertificate { path, source },
        IssuerFault::NoCertificate | IssuerFault::ForeignKey => CadirFault::ForeignKey { path },
        IssuerFault::Incomplete { issuer, .. } => CadirFault::IncompleteChain { path, issuer },
        source @ (IssuerFault::BadName
        | IssuerFault::TooLong { .. }
        | IssuerFault::NotACa { .. }) => CadirFault::Chain { path, source },
    }
}

/// The lists of a chain.
#[derive(Debug)]
pub struct Lists {
    /// The issuer's own.
    pub own: Crl,
    /// Those of the CAs above.
    pub ancestors: Vec<AncestorCrl>,
}

impl Lists {
    /// Sorts the lists of a file by the keys that signed them. The issuer's own must be there: without it every
    /// revocation would be forgotten.
    pub(crate) fn read(
        file: &Path,
        text: &[u8],
        chain: &Chain,
        problems: &mut Problems,
    ) -> Result<Self, CadirFault> {
        let path = || file.to_owned();
        let unreadable = |source| CadirFault::Pem {
            path: path(),
            source,
        };
        let blocks = pem::decode_all(text, &pem::PemLimits::BUNDLE).map_err(unreadable)?;
        let mut own: Option<Crl> = None;
        let mut ancestors: Vec<AncestorCrl> = Vec::new();
        for block in blocks.iter().filter(|block| block.label == "X509 CRL") {
            let list = Crl::parse(&block.der).map_err(|source| CadirFault::Crl {
                path: path(),
                source,
            })?;
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
                    let above = AncestorCrl::new(ancestor, position, &list);
                    ancestors.push(above.map_err(CadirFault::Ancestor)?);
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
        let own = own.ok_or_else(|| CadirFault::NoOwnCrl { path: path() })?;
        Ok(Self { own, ancestors })
    }
}
