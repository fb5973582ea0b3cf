//! Signers: a name, a profile, an issuer.

use countersign_policy::SignerName;

use crate::issuer::IssuerId;
use crate::profile::Profile;

/// A signer that this authority serves.
#[derive(Debug)]
pub struct Signer {
    /// Its name.
    pub name: SignerName,
    /// What it permits and produces.
    pub profile: Profile,
    /// Who signs for it.
    pub issuer: IssuerId,
    /// Whether a name that has a certificate must be cleaned before it may ask again.
    pub one_certificate_per_name: bool,
    /// Whether it signs the authority's own certificates and its administrators': an administrator asks for one and decides
    /// in the same call, and nothing else reaches it.
    pub administrators_only: bool,
    /// What becomes of a request that waits when its name asks again.
    pub on_waiting: OnWaiting,
}

/// What a new request does where one of the same name still waits for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnWaiting {
    /// It is refused, and the first one stays.
    Refuse,
    /// It is decided anew and takes the first one's place.
    Replace,
}
