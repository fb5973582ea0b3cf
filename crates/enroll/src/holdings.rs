//! What is installed, and what that means: nothing to do, time to renew, or time to enrol.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use countersign_pki::UnixTime;
use countersign_private_keys::LeafKey;
use countersign_private_keys::private_file;

use crate::RenewBefore;
use crate::error::{Cause, EnrolError, Result};
use crate::files;
use crate::issued::{Chain, Expected, Misfit};
use crate::paths::CertificatePaths;

/// Key and certificate of one name.
pub struct Holdings {
    /// The key, if there is one.
    pub key: Option<LeafKey>,
    /// The certificate, if there is one.
    pub held: Option<Held>,
}

/// An installed certificate.
#[derive(Clone, Debug)]
pub struct Held {
    /// With those between it and its root.
    pub chain: Chain,
    /// When it was put there.
    since: UnixTime,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is no certificate, or its time is over.
    Absent,
    /// It is valid, and it is time to renew it.
    Due,
    /// Nothing until then.
    Good {
        /// When it is time to renew it.
        renewal: UnixTime,
    },
}

impl Holdings {
    /// Reads them.
    ///
    /// # Errors
    /// If they are there and cannot be read.
    pub fn read(place: &CertificatePaths) -> Result<Self> {
        let certificate = &place.certificate;
        let held = match files::read(certificate)? {
            None => None,
            Some(text) => {
                let chain = Chain::read(&text).map_err(|misfit| {
                    let file = certificate.display();
                    let what = format!("{file} is not a certificate: move it away and enrol again");
                    EnrolError::Installed(what, Some(misfit.into()))
                })?;
                let since =
                    fs::metadata(certificate).map_or(chain.leaf().not_before().0, |m| m.mtime());
                Some(Held {
                    chain,
                    since: UnixTime(since),
                })
            }
        };
        Ok(Self {
            key: read_key(place)?,
            held,
        })
    }

    /// What they mean for a name. Files that do not belong together are a person's business.
    ///
    /// # Errors
    /// If they do not.
    pub fn standing(
        &self,
        name: &str,
        place: &CertificatePaths,
        before: RenewBefore,
        now: UnixTime,
    ) -> Result<Standing> {
        let Some(held) = &self.held else {
            return Ok(Standing::Absent);
        };
        let (certificate, key) = (place.certificate.display(), place.key.display());
        let Some(own) = &self.key else {
            let what = format!(
                "{certificate} is there, but its key {key} is not: bring the key back, or move the certificate away and enrol anew"
            );
            return Err(EnrolError::Installed(what, None));
        };
        let expected = Expected {
            name,
            spki_der: own.spki_der(),
            now,
            issuers: None,
        };
        match held.chain.check(&expected) {
            Ok(()) => {}
            Err(Misfit::Expired { .. }) => return Ok(Standing::Absent),
            Err(Misfit::OtherKey) => {
                let what = format!(
                    "{certificate} does not belong to the key {key}: move both away and enrol anew"
                );
                return Err(EnrolError::Installed(what, None));
            }
            Err(misfit) => {
                let what =
                    format!("{certificate} is not ours; name another place, or move it away");
                return Err(EnrolError::Installed(what, Some(misfit.into())));
            }
        }
        let renewal = held.renewal(before);
        Ok(match renewal <= now {
            true => Standing::Due,
            false => Standing::Good { renewal },
        })
    }
}

impl Held {
    /// When it is time to renew. Its life is counted from when it came: Puppet's are dated back by a day, which
    /// for one that lives an hour would be all that counts.
    #[must_use]
    pub fn renewal(&self, before: RenewBefore) -> UnixTime {
        let leaf = self.chain.leaf();
        let begin = self.since.max(leaf.not_before()).min(leaf.not_after());
        let life = leaf.not_after().seconds_since(begin);
        let life = u64::try_from(life).unwrap_or_default();
        let before = match before {
            RenewBefore::Time(time) => time.as_secs(),
            RenewBefore::Percent(percent) => life / 100 * u64::from(percent),
        };
        leaf.not_after().minus_seconds(before)
    }

    /// So that a later certificate can be told from this one.
    #[must_use]
    pub fn not_after(&self) -> UnixTime {
        self.chain.leaf().not_after()
    }
}

/// The private key; `None` if there is none.
pub(crate) fn read_key(place: &CertificatePaths) -> Result<Option<LeafKey>> {
    let path = &place.key;
    if !path.try_exists().unwrap_or(true) {
        return Ok(None);
    }
    let text = private_file::read_of_any_mode(path)?;
    let unusable = |source: Cause| {
        let what = format!("{} is no usable private key", path.display());
        EnrolError::Installed(what, Some(source))
    };
    let text = std::str::from_utf8(&text).map_err(|fault| unusable(fault.into()))?;
    let key = LeafKey::from_pkcs8_pem(text).map_err(|fault| unusable(fault.into()))?;
    Ok(Some(key))
}
