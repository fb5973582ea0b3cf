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
}
