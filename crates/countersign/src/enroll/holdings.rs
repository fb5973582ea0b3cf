//! What is installed, and what that means: nothing to do, time to renew, or time to enrol.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context as _, Result, bail};
use countersign_authority::private_file;
use countersign_keys::LeafKey;
use countersign_pki::UnixTime;

use super::files;
use super::issued::{Chain, Expected, Misfit};
use super::place::Place;
use crate::cli::RenewBefore;

/// Key and certificate of one name.
pub(super) struct Holdings {
    pub(super) key: Option<LeafKey>,
    pub(super) held: Option<Held>,
}

/// An installed certificate.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) chain: Chain,
    /// When it was put there.
    since: UnixTime,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is no certificate, or its time is over.
    Absent,
    /// It is valid, and it is time to renew it.
    Due,
    /// Nothing until then.
    Good { renewal: UnixTime },
}

impl Holdings {
    pub(super) fn read(place: &Place) -> Result<Self> {
        let certificate = &place.certificate;
        let held = match files::read(certificate)? {
            None => None,
            Some(text) => {
                let chain = Chain::read(&text).with_context(|| {
                    let file = certificate.display();
                    format!("{file} is not a certificate: move it away and enrol again")
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
    pub(super) fn standing(
        &self,
        name: &str,
        place: &Place,
        before: RenewBefore,
        now: UnixTime,
    ) -> Result<Standing> {
        let Some(held) = &self.held else {
            return Ok(Standing::Absent);
        };
        let (certificate, key) = (place.certificate.display(), place.key.display());
        let Some(own) = &self.key else {
            bail!(
                "{certificate} is there, but its key {key} is not: bring the key back, or move the certificate away and enrol anew"
            );
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
                bail!(
                    "{certificate} does not belong to the key {key}: move both away and enrol anew"
                );
            }
            Err(misfit) => {
                return Err(misfit).with_context(|| {
                    format!("{certificate} is not ours; name another place, or move it away")
                });
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
    pub(super) fn renewal(&self, before: RenewBefore) -> UnixTime {
        let leaf = self.chain.leaf();
        let begin = self.since.max(leaf.not_before()).min(leaf.not_after());
        let life = leaf.not_after().seconds_since(begin);
        let life = u64::try_from(life).unwrap_or_default();
        let before = match before {
            RenewBefore::Span(span) => span.as_seconds(),
            RenewBefore::Percent(percent) => life / 100 * u64::from(percent),
        };
        leaf.not_after().minus_seconds(before)
    }

    /// So that a later certificate can be told from this one.
    pub(super) fn not_after(&self) -> UnixTime {
        self.chain.leaf().not_after()
    }
}

/// The private key; `None` if there is none.
pub(super) fn read_key(place: &Place) -> Result<Option<LeafKey>> {
    let path = &place.key;
    if !path.try_exists().unwrap_or(true) {
        return Ok(None);
    }
    let text = private_file::read_of_any_mode(path)?;
    let unusable = || format!("{} is no usable private key", path.display());
    let text = std::str::from_utf8(&text).with_context(unusable)?;
    LeafKey::from_pkcs8_pem(text)
        .map(Some)
        .with_context(unusable)
}
