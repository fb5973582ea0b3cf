//! An issuer's certificate and key as files that an administrator may replace under a running server.
//!
//! The pair is taken when both files can be read and belong together; until then the one in use stays in use. The Puppet
//! issuer is left alone: its agents have its CA certificate on their disks and would refuse another.
//!
//! `ca_bundle.pem` beside them has every CA certificate that somebody may still meet: those in use, then those before. It is
//! written here and read at start, so that a replacement while the server was down is noticed, too.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use countersign_authority::{Authority, Issuer, IssuerId};
use countersign_keys::ReadKey;
use countersign_pki::{Certificate, UnixTime, pem};
use tracing::warn;

use crate::data_folder::{DataFolder, Secrecy, write};
use crate::first_start::{CERTIFICATE_FILE, KEY_FILE};
use crate::issuer_keys::IssuerKeys;
use crate::policies;
use crate::settings::IssuerFiles;
use crate::signers;

/// Whether an issuer's files are looked at while it is in use.
pub(crate) fn are_followed(id: &IssuerId) -> bool {
    id.as_str() != signers::PUPPET_ISSUER
}

/// The issuer with the CA certificates that it had before.
pub(crate) fn with_history(folder: &DataFolder, issuer: Issuer, now: UnixTime) -> Result<Issuer> {
    let path = folder.issuer(issuer.id(), BUNDLE_FILE);
    let before = match fs::read(&path) {
        Ok(text) => certificates(&text),
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", path.display()));
        }
    };
    Ok(succeeding(issuer, before, now))
}

/// Writes down which CA certificates an issuer has and had. Not before it is certain that they are its own: what is
/// written here stays trusted.
pub(crate) fn keep_history(folder: &DataFolder, issuer: &Issuer) -> Result<()> {
    let path = folder.issuer(issuer.id(), BUNDLE_FILE);
    write(&path, issuer.trust_pem().as_bytes(), Secrecy::Public)?;
    Ok(())
}

/// Refuses an issuer with the key of another one: what either of them signs would be taken for the other's.
pub(crate) fn ensure_own_key<'a>(
    issuer: &Issuer,
    all: impl IntoIterator<Item = &'a Issuer>,
) -> Result<()> {
    let key = issuer.certificate().spki_der();
    for other in all.into_iter().filter(|other| other.id() != issuer.id()) {
        let verb = match () {
            () if other.certificate().spki_der() == key => "has",
            () if replaced(other).any(|before| before.spki_der() == key) => "had",
            () => continue,
        };
        let (id, other) = (issuer.id(), other.id());
        bail!(
            "the files of issuer {id} hold the key that issuer {other} {verb}: every issuer needs a key of its own, so put \
             the files of {id} back, or make it another key and certificate"
        );
    }
    Ok(())
}

/// The certificates that an issuer signed with before. What else is known from then are CAs above them, which may well be
/// issuers here.
fn replaced(issuer: &Issuer) -> impl Iterator<Item = &Certificate> {
    let above = |ca: &Certificate| {
        let known = [issuer.certificate()].into_iter().chain(issuer.previous());
        known.filter(|below| below.der() != ca.der()).any(|below| {
            below.issuer().der() == ca.subject().der()
                && below.verify_signed_by(ca.spki_der()).is_ok()
        })
    };
    issuer.previous().iter().filter(move |ca| !above(ca))
}

/// The issuer, if these certificates came before it. Those that have ended are of no use to anybody.
fn succeeding(issuer: Issuer, before: Vec<Certificate>, now: UnixTime) -> Issuer {
    let mut previous: Vec<Certificate> = Vec::new();
    for one in before {
        let in_use = [issuer.certificate()].into_iter().chain(issuer.ancestors());
        let is_known = in_use.chain(&previous).any(|ca| ca.der() == one.der());
        if !is_known && one.is_ca() && one.not_after() > now {
            previous.push(one);
        }
    }
    previous.truncate(MAX_PREVIOUS);
    issuer.with_previous(previous)
}

/// The certificates of a bundle; what cannot be read is left out, and named.
fn certificates(text: &[u8]) -> Vec<Certificate> {
    let blocks = pem::decode_all(text, &pem::PemLimits::BUNDLE).unwrap_or_else(|fault| {
        warn!(%fault, "{BUNDLE_FILE} cannot be read; CA certificates from before are forgotten");
        Vec::new()
    });
    let blocks = blocks.iter().filter(|block| block.label == "CERTIFICATE");
    blocks
        .filter_map(|block| Certificate::parse(&block.der).ok())
        .collect()
}

/// Looks at the files of one issuer.
pub(crate) struct Follower {
    files: Arc<Files>,
    /// The state of the files that are in use.
    taken: Option<Stamp>,
    /// The state of files that were not taken, and whether that was said.
    refused: Option<(Stamp, bool)>,
    /// After how many more looks the key before is dropped.
    looks_left: u32,
    /// Whether a pair is in force that not everything that follows from it was done for.
    is_untold: bool,
}

struct Files {
    id: IssuerId,
    key: PathBuf,
    certificate: PathBuf,
    /// Whether they are somebody else's, outside the data folder.
    is_kept: bool,
}

/// By which files that were changed are told from those that were not; `None`: there is no file.
type Stamp = [Option<[i64; 6]>; 2];

impl Follower {
    pub(crate) fn new(folder: &DataFolder, id: IssuerId) -> Self {
        Self::of(Files {
            key: folder.issuer(&id, KEY_FILE),
            certificate: folder.issuer(&id, CERTIFICATE_FILE),
            is_kept: false,
            id,
        })
    }

    /// Of files that an administrator keeps elsewhere.
    pub(crate) fn of_kept(kept: &IssuerFiles, id: IssuerId) -> Self {
        Self::of(Files {
            key: kept.key.clone(),
            certificate: kept.certificate.clone(),
            is_kept: true,
            id,
        })
    }

    fn of(files: Files) -> Self {
        Self {
            files: Arc::new(files),
            taken: None,
            refused: None,
            looks_left: 0,
            is_untold: false,
        }
    }

    /// Takes what the files hold if it is another pair, and says when it is in use everywhere. What is no pair is left for the next look:
    /// whoever replaces two files does so one after the other. If it still is none by then, that is said once. What fails
    /// after a pair has come into force is tried again with each look.
    pub(crate) async fn look(
        &mut self,
        authority: &Authority,
        keys: &IssuerKeys,
        folder: &DataFolder,
    ) -> Result<bool> {
        let Some(current) = authority.issuers.get(&self.files.id) else {
            return Ok(false);
        };
        self.forget(keys);
        let (files, in_use) = (Arc::clone(&self.files), Arc::clone(&current));
        let all: Vec<Arc<Issuer>> = authority.issuers.all().collect();
        let (taken, now) = (self.taken, authority.now());
        let looking = tokio::task::spawn_blocking(move || {
            // Before they are read: what changes meanwhile is another state.
            let stamp = files.stamp();
            let found = (Some(stamp) != taken).then(|| files.pair(&in_use, &all, now));
            (stamp, found)
        });
        let (stamp, found) = looking.await.context("the look ended early")?;
        match found {
            None => {}
            Some(Ok(None)) => self.settle(stamp),
            Some(Ok(Some(pair))) => {
                replace(authority, keys, folder, pair, &current).await?;
                self.settle(stamp);
                self.looks_left = LOOKS_BEFORE_FORGETTING;
                self.is_untold = true;
            }
            Some(Err(error)) => self.refuse(stamp, &error),
        }
        self.tell(authority).await
    }

    async fn tell(&mut self, authority: &Authority) -> Result<bool> {
        if !self.is_untold {
            return Ok(false);
        }
        let id = &self.files.id;
        let announced = authority.issuers.announce(id).await;
        announced.with_context(|| {
            format!("issuer {id} has its new key, but its CRL is not signed with it yet")
        })?;
        self.is_untold = false;
        Ok(true)
    }

    fn settle(&mut self, stamp: Stamp) {
        self.taken = Some(stamp);
        self.refused = None;
    }

    fn refuse(&mut self, stamp: Stamp, error: &anyhow::Error) {
        let (is_settled, was_said) = match self.refused {
            Some((seen, was_said)) => (seen == stamp, seen == stamp && was_said),
            None => (false, false),
        };
        if is_settled && !was_said {
            let (issuer, error) = (&self.files.id, format!("{error:#}"));
            warn!(%issuer, error, "the issuer's new files are not taken; the ones before stay in use");
        }
        self.refused = Some((stamp, is_settled));
    }

    fn forget(&mut self, keys: &IssuerKeys) {
        if self.looks_left == 1 {
            keys.files.forget_replaced(&self.files.id);
        }
        self.looks_left = self.looks_left.saturating_sub(1);
    }
}

impl Files {
    fn stamp(&self) -> Stamp {
        let marks = |path: &PathBuf| fs::metadata(path).ok().map(|facts| policies::marks(&facts));
        [marks(&self.certificate), marks(&self.key)]
    }

    /// What the files hold; `None`: what is in use.
    fn pair(
        &self,
        current: &Issuer,
        all: &[Arc<Issuer>],
        now: UnixTime,
    ) -> Result<Option<(ReadKey, Issuer)>> {
        let path = self.certificate.display();
        let chain = fs::read(&self.certificate).with_context(|| format!("cannot read {path}"))?;
        let key = match self.is_kept {
            true => ReadKey::from_file_of_group(&self.key)?,
            false => ReadKey::from_file(&self.key)?,
        };
        let is_same_key = key.public_key() == current.certificate().spki_der();
        if is_same_key && chain == current.chain_pem() {
            return Ok(None);
        }
        let id = self.id.clone();
        let issuer = Issuer::from_chain(id, chain, key.algorithm(), key.public_key())
            .with_context(|| format!("{path} and {}", self.key.display()))?;
        ensure_own_key(&issuer, all.iter().map(Arc::as_ref))?;
        let (begin, end) = (issuer.certificate().not_before(), issuer.not_after());
        ensure!(now < end, "the certificate in {path} has ended, {end}");
        ensure!(
            now >= begin,
            "the certificate in {path} is not valid before {begin}"
        );
        let issuer = issuer
            .with_serials(current.serials())
            .with_adoption(current.adoption().cloned());
        Ok(Some((key, issuer)))
    }
}

async fn replace(
    authority: &Authority,
    keys: &IssuerKeys,
    folder: &DataFolder,
    (key, issuer): (ReadKey, Issuer),
    current: &Issuer,
) -> Result<()> {
    let in_use = [current.certificate()]
        .into_iter()
        .chain(current.ancestors());
    let before: Vec<Certificate> = in_use.chain(current.previous()).cloned().collect();
    let issuer = succeeding(issuer, before, authority.now());
    let id = issuer.id().clone();
    // First what is trusted, then what it is trusted for: a certificate is never older than the bundle that has its CA.
    keep_history(folder, &issuer)?;
    keys.files.replace(&id, key)?;
    authority
        .issuers
        .replace(issuer)
        .await
        .with_context(|| format!("issuer {id} was not replaced"))
}

/// Every CA certificate that somebody may still meet.
pub(crate) const BUNDLE_FILE: &str = "ca_bundle.pem";
/// A minute: longer than a draft waits for its signature.
const LOOKS_BEFORE_FORGETTING: u32 = 30;
/// Each costs a client of an unknown CA a verification.
const MAX_PREVIOUS: usize = 16;
