//! A CA in files: key, certificates, CRLs; read and verified before anything is made of them.
//!
//! The complaints are those of `puppetserver ca import`, which lets OpenSSL verify; its numbers and sentences are kept.

use std::fs;
use std::iter;
use std::path::Path;

use countersign_authority::Chain;
use countersign_keys::ForeignKey;
use countersign_pki::{Certificate, Crl, KeyUsage, UnixTime, pem};

use super::refusal::Refusal;

/// A CA that can be taken over.
pub(super) struct Bundle {
    pub(super) key: ForeignKey,
    pub(super) chain: Chain,
    /// Every certificate that was given, the signing one first.
    pub(super) pem: String,
    /// The signing CA's own CRL, if there was one.
    pub(super) own_crl: Option<Crl>,
    /// The CRLs of the CAs above, in the order of the chain.
    pub(super) ancestor_crls: Vec<Crl>,
}

impl Bundle {
    pub(super) fn load(
        key_path: &Path,
        bundle_path: &Path,
        chain_path: &Path,
        now: UnixTime,
    ) -> Result<Self, Refusal> {
        let mut errors = Vec::new();
        let parse = |der: &[u8]| Certificate::parse(der).ok();
        let mut certificates = entries(bundle_path, "CERTIFICATE", "certs", parse, &mut errors);
        let key = match ForeignKey::read(key_path) {
            Ok(key) => Some(key),
            Err(_) => {
                errors.push(format!("Could not parse {}", key_path.display()));
                None
            }
        };
        let parse = |der: &[u8]| Crl::parse(der).ok();
        let crls = entries(chain_path, "X509 CRL", "crls", parse, &mut errors);
        let signing = key.as_ref().and_then(|key| {
            let found = certificates
                .iter()
                .position(|one| one.spki_der() == key.spki_der());
            if found.is_none() && !certificates.is_empty() {
                errors.push("Could not find certificate matching private key".to_owned());
            }
            found
        });
        let (Some(key), Some(signing), true) = (key, signing, errors.is_empty()) else {
            return Err(Refusal::Errors(errors));
        };
        let signing = certificates.remove(signing);
        let pem = iter::once(&signing).chain(&certificates);
        let pem = pem.map(Certificate::to_pem).collect();
        let invalid = |fault: Invalid| {
            Refusal::Errors(vec![
                "Leaf certificate could not be validated".to_owned(),
                format!("Validating cert store returned: {} - {}", fault.0, fault.1),
            ])
        };
        let chain = chain(signing, certificates).map_err(invalid)?;
        let all: Vec<&Certificate> = chain.iter().collect();
        let (own_crl, ancestor_crls) = revocation(&all, &crls, now).map_err(invalid)?;
        signatures(&all, now).map_err(invalid)?;
        Ok(Self {
            key,
            chain,
            pem,
            own_crl,
            ancestor_crls,
        })
    }
}

/// Every entry of a kind in a file; what is wrong with it goes to `errors`.
fn entries<T>(
    path: &Path,
    label: &str,
    kind: &str,
    parse: impl Fn(&[u8]) -> Option<T>,
    errors: &mut Vec<String>,
) -> Vec<T> {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let (begin, end) = (
        format!("-----BEGIN {label}-----"),
        format!("-----END {label}-----"),
    );
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    let mut rest: &str = &text;
    while let Some((_, after)) = rest.split_once(&begin) {
        let Some((body, behind)) = after.split_once(&end) else {
            break;
        };
        rest = behind;
        let entry = format!("{begin}{body}{end}");
        let block = pem::decode_first(entry.as_bytes(), &pem::PemLimits::BUNDLE);
        match block.ok().flatten().and_then(|block| parse(&block.der)) {
            Some(one) => found.push(one),
            None => wrong.push(format!("Could not parse entry:\n{entry}")),
        }
    }
    if found.is_empty() {
        wrong.push(format!(
            "Could not detect any {kind} within {}",
            path.display()
        ));
    }
    if !wrong.is_empty() {
        errors.push(format!("Could not parse {}", path.display()));
        errors.append(&mut wrong);
    }
    found
}

/// OpenSSL's number and sentence (x509_vfy.h).
struct Invalid(u8, &'static str);

/// From the signing certificate to a root: by names, as OpenSSL goes; signatures come last.
fn chain(signing: Certificate, others: Vec<Certificate>) -> Result<Chain, Invalid> {
    let above = |last: &Certificate, others: &[Certificate]| {
        others.iter().position(|one| issued(one, last))
    };
    let way = Chain::climb(signing, others, Certificate::is_self_issued, above);
    if way.reaches_root && way.chain.iter().all(Certificate::is_ca) {
        Ok(way.chain)
    } else if way.reaches_root {
        Err(Invalid(79, "invalid CA certificate"))
    } else if way.chain.ancestors.is_empty() {
        Err(Invalid(20, "unable to get local issuer certificate"))
    } else {
        Err(Invalid(2, "unable to get issuer certificate"))
    }
}

fn issued(above: &Certificate, below: &Certificate) -> bool {
    let same_key = match (above.subject_key_id(), below.authority_key_id()) {
        (Some(subject), Some(authority)) => subject == authority,
        (None, _) | (_, None) => true,
    };
    same_key && above.subject().der() == below.issuer().der()
}

/// No certificate of the chain is on the CRL of the one above it, and there is such a CRL.
fn revocation(
    chain: &[&Certificate],
    crls: &[Crl],
    now: UnixTime,
) -> Result<(Option<Crl>, Vec<Crl>), Invalid> {
    let mut own = None;
    let mut ancestors = Vec::new();
    for (index, signer) in chain.iter().copied().enumerate() {
        // Those that this one has signed: the one below, and itself if it is the root.
        let below = index
            .checked_sub(1)
            .and_then(|below| chain.get(below).copied());
        let subjects = below
            .into_iter()
            .chain(signer.is_self_issued().then_some(signer));
        let Some(crl) = crl_of(signer, crls) else {
            match index {
                // The signing CA's own is made, as it has revoked nothing.
                0 => continue,
                _ => return Err(Invalid(3, "unable to get certificate CRL")),
            }
        };
        let signs_crls = |usage: KeyUsage| usage.contains(KeyUsage::CRL_SIGN);
        if !signer.key_usage().is_none_or(signs_crls) {
            return Err(Invalid(35, "key usage does not include CRL signing"));
        }
        // Its own list is made anew at once, so its age does not matter; its content does.
        if index > 0 && crl.this_update() > now {
            return Err(Invalid(11, "CRL is not yet valid"));
        }
        if index > 0 && crl.next_update().is_some_and(|until| until < now) {
            return Err(Invalid(12, "CRL has expired"));
        }
        if crl.verify_signed_by(signer.spki_der()).is_err() {
            return Err(Invalid(8, "CRL signature failure"));
        }
        let listed = |one: &Certificate| crl.serials().any(|serial| serial == one.serial());
        if subjects.into_iter().any(listed) {
            return Err(Invalid(23, "certificate revoked"));
        }
        match index {
            0 => own = Some(crl.clone()),
            _ => ancestors.push(crl.clone()),
        }
    }
    Ok((own, ancestors))
}

/// The newest list that a CA has signed; else one that claims to be.
fn crl_of<'a>(signer: &Certificate, crls: &'a [Crl]) -> Option<&'a Crl> {
    let claimed = |crl: &&Crl| crl.issuer().der() == signer.subject().der();
    let signed = crls
        .iter()
        .filter(claimed)
        .filter(|crl| crl.verify_signed_by(signer.spki_der()).is_ok());
    signed
        .max_by_key(|crl| (crl.number(), crl.this_update()))
        .or_else(|| crls.iter().find(claimed))
}

fn signatures(chain: &[&Certificate], now: UnixTime) -> Result<(), Invalid> {
    let above = chain.iter().skip(1).chain(chain.last());
    let pairs: Vec<_> = chain.iter().zip(above).collect();
    for (certificate, signer) in pairs.into_iter().rev() {
        if certificate.verify_signed_by(signer.spki_der()).is_err() {
            return Err(Invalid(7, "certificate signature failure"));
        }
        if certificate.not_before() > now {
            return Err(Invalid(9, "certificate is not yet valid"));
        }
        if certificate.not_after() < now {
            return Err(Invalid(10, "certificate has expired"));
        }
    }
    Ok(())
}
