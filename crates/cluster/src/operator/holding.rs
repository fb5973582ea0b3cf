//! What the Secret of a Certificate holds, as facts.

use countersign_enroll::ca::Key;
use countersign_pki::{Certificate, Fingerprint, oid, pem};

use super::object::{CertificateObject, Owner};
use super::renewal::Life;
use super::renewing::with_causes;
use super::secret::Secret;

/// What there is.
#[derive(Debug)]
pub(crate) enum Holding {
    /// No Secret, or one without a certificate.
    Absent,
    /// Something that is not to be touched, and why it is of no use.
    Unfit(String),
    /// A certificate and its key.
    Pair(Box<Pair>),
}

/// A certificate and its key, which belong together.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) certname: String,
    pub(crate) life: Life,
    /// Of the public key.
    pub(crate) key: Fingerprint,
    /// For which order it was issued, if that is known.
    pub(crate) order: Option<String>,
    /// Whether it is to make way for another one: the CA may have revoked it already.
    pub(crate) is_given_up: bool,
    /// Whether it makes an administrator of its holder.
    pub(crate) has_rights: bool,
    /// Whether the Certificate controls its Secret.
    pub(crate) is_owned: bool,
}

impl Holding {
    /// Reads the Secret of a Certificate. `roots` are the CA's certificates, where they are known.
    pub(crate) fn read(
        secret: Option<&Secret>,
        certificate: &CertificateObject,
        roots: Option<&[u8]>,
    ) -> Self {
        let Some(secret) = secret else {
            return Self::Absent;
        };
        let name = &secret.meta.name.name;
        let owner = secret.meta.controller();
        if let Some(other) = owner.filter(|owner| owner.uid != certificate.meta.uid) {
            return Self::Unfit(belongs_to(name, other));
        }
        match secret.get(CERTIFICATE_KEY) {
            None => return Self::Absent,
            Some([]) if owner.is_some() => return Self::Absent,
            Some(_) => {}
        }
        match pair(secret, roots) {
            Ok(pair) => Self::Pair(Box::new(Pair {
                is_owned: owner.is_some(),
                ..pair
            })),
            Err(why) => Self::Unfit(format!("Secret {name} {why}")),
        }
    }
}

fn belongs_to(name: &str, owner: &Owner) -> String {
    format!(
        "Secret {name} is controlled by {} {}: it is left alone; delete it, or choose another name for this Certificate",
        owner.kind, owner.name
    )
}

fn pair(secret: &Secret, roots: Option<&[u8]>) -> Result<Pair, String> {
    let leaf = secret.get(CERTIFICATE_KEY).and_then(leaf);
    let leaf = leaf.ok_or("has no certificate in cert.pem that can be read")?;
    let key = secret.get(PRIVATE_KEY).ok_or("has no key.pem")?;
    let key = Key::read(key)
        .map_err(|fault| format!("has no usable key in key.pem: {}", with_causes(&fault)))?;
    if !key.matches(&leaf) {
        return Err("has a certificate and a key that do not belong together".to_owned());
    }
    if let Some(roots) = roots
        && !is_issued_by(&leaf, roots)
    {
        return Err("has a certificate of another CA".to_owned());
    }
    let noted = secret.meta.annotation(ORDER);
    let given_up = noted.and_then(|it| it.strip_prefix(GIVEN_UP));
    Ok(Pair {
        order: given_up.or(noted).map(str::to_owned),
        is_given_up: given_up.is_some(),
        ..Pair::of(&leaf)
    })
}

impl Pair {
    /// What a certificate says of itself.
    pub(crate) fn of(leaf: &Certificate) -> Self {
        Self {
            certname: common_name(leaf),
            life: Life {
                not_before: leaf.not_before(),
                not_after: leaf.not_after(),
            },
            key: leaf.key_fingerprint(),
            order: None,
            is_given_up: false,
            has_rights: has_rights(leaf),
            is_owned: false,
        }
    }
}

/// Whether a certificate makes an administrator of its holder.
pub(crate) fn has_rights(leaf: &Certificate) -> bool {
    leaf.extension(&oid::PP_CLI_AUTH).is_some()
}

/// The first certificate of a PEM text.
pub(crate) fn leaf(text: &[u8]) -> Option<Certificate> {
    let block = pem::decode_first(text, &pem::PemLimits::BUNDLE).ok()??;
    Certificate::parse(&block.der).ok()
}

pub(crate) fn common_name(certificate: &Certificate) -> String {
    let mut names = certificate.subject().common_names();
    names.next().unwrap_or_default().to_owned()
}

/// Whether one of these CAs has signed it.
fn is_issued_by(leaf: &Certificate, roots: &[u8]) -> bool {
    let blocks = pem::decode_all(roots, &pem::PemLimits::BUNDLE).unwrap_or_default();
    blocks
        .iter()
        .filter_map(|block| Certificate::parse(&block.der).ok())
        .any(|ca| leaf.verify_signed_by(ca.spki_der()).is_ok())
}

pub(crate) const CERTIFICATE_KEY: &str = "cert.pem";
pub(crate) const PRIVATE_KEY: &str = "key.pem";
/// On a Secret with a pair: the digest of the order that it was issued for.
pub(crate) const ORDER: &str = "countersign.dev/order";
/// In front of it, before the CA is asked to clean the certificate: from then on it is of no use, whatever becomes of the spec.
pub(crate) const GIVEN_UP: &str = "given-up:";
