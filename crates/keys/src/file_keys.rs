//! Issuers' keys from files.
//!
//! EC and Ed25519 keys sign where they are asked (15 to 90 us, less than handing the work to a thread and back costs
//! in latency); RSA goes to the signer threads.

use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;

use arc_swap::ArcSwap;
use countersign_authority::{IssuerId, KeyStore, PerIssuer, SignFault, Signature};
use countersign_pki::SignatureAlgorithm;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::threads::{Refused, SignerThreads};
use countersign_private_keys::private_file::{self, FileFault};
use countersign_private_keys::{KeySpec, PrivateKey, PrivateKeyFault};

/// The keys of all issuers, held in memory. One may come, or be replaced, while others are in use.
pub struct FileKeys {
    keys: PerIssuer<ArcSwap<Held>>,
    threads: NonZeroUsize,
    depth: usize,
    // Started with the first key that needs them.
    signers: OnceLock<SignerThreads>,
}

/// What is held for one issuer.
struct Held {
    current: Arc<PrivateKey>,
    /// The key before, for what was drafted with its certificate and is not signed yet.
    before: Option<Arc<PrivateKey>>,
}

/// A key from a file that has proven itself, and is not in use yet.
pub struct ReadKey(PrivateKey);

impl ReadKey {
    /// Reads a PEM file: PKCS#8, PKCS#1 or SEC 1. The key must have proven itself by a signature that its public half
    /// verifies, and nobody but the owner may be able to read the file.
    ///
    /// # Errors
    /// If the file is exposed or unreadable, or holds no usable key.
    pub fn from_file(path: &Path) -> Result<Self, LoadFault> {
        Self::from_content(path, &private_file::read(path)?)
    }

    /// The same of a file that an administrator keeps elsewhere, which its group may read.
    ///
    /// # Errors
    /// If the file is exposed or unreadable, or holds no usable key.
    pub fn from_file_of_group(path: &Path) -> Result<Self, LoadFault> {
        Self::from_content(path, &private_file::read_of_group(path)?)
    }

    fn from_content(path: &Path, text: &[u8]) -> Result<Self, LoadFault> {
        let key = PrivateKey::from_pem(text).map_err(|source| LoadFault::Key {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self(key))
    }

    /// Its public half as `SubjectPublicKeyInfo` DER.
    #[must_use]
    pub fn public_key(&self) -> &[u8] {
        self.0.spki_der()
    }

    /// The algorithm it signs with.
    #[must_use]
    pub fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

impl FileKeys {
    /// No keys yet; `threads` will sign with those that are slow.
    #[must_use]
    pub fn new(threads: NonZeroUsize) -> Self {
        Self::with_queue(threads, QUEUE_DEPTH)
    }

    /// The number of signer threads for this machine: one for each core. Only RSA comes here, and with an RSA issuer
    /// everything else the server does for a request costs a fraction of the signature.
    #[must_use]
    pub fn usual_threads() -> NonZeroUsize {
        thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
    }

    /// As [`FileKeys::new`], with at most `depth` slow signatures waiting for a thread; more are refused as overload.
    #[must_use]
    pub fn with_queue(threads: NonZeroUsize, depth: usize) -> Self {
        Self {
            keys: PerIssuer::default(),
            threads,
            depth,
            signers: OnceLock::new(),
        }
    }

    /// Takes an issuer's key from a PEM file, see [`ReadKey::from_file`].
    ///
    /// # Errors
    /// If the file is exposed or unreadable, holds no usable key, or the issuer has a key already.
    pub fn load(&mut self, issuer: IssuerId, path: &Path) -> Result<(), LoadFault> {
        self.take(issuer, ReadKey::from_file(path)?)
    }

    /// Takes an issuer's key.
    ///
    /// # Errors
    /// If the issuer has a key already, or threads for this one cannot be started.
    pub fn take(&mut self, issuer: IssuerId, key: ReadKey) -> Result<(), LoadFault> {
        self.add(issuer, key)
    }

    /// The same while others are in use.
    ///
    /// # Errors
    /// If the issuer has a key already, or threads for this one cannot be started.
    pub fn add(&self, issuer: IssuerId, key: ReadKey) -> Result<(), LoadFault> {
        let ReadKey(key) = key;
        self.have_threads_for(&key)?;
        let held = Held {
            current: Arc::new(key),
            before: None,
        };
        let added = self.keys.add(issuer.clone(), ArcSwap::from_pointee(held));
        added.map_err(|_| LoadFault::Twice { issuer })
    }

    /// Gives an issuer another key. What was drafted for the one before can still be signed with that, until
    /// [`FileKeys::forget_replaced`].
    ///
    /// # Errors
    /// If the issuer has no key to be replaced, or threads for the new one cannot be started.
    pub fn replace(&self, issuer: &IssuerId, key: ReadKey) -> Result<(), LoadFault> {
        let held = self.keys.get(issuer).ok_or_else(|| LoadFault::Unknown {
            issuer: issuer.clone(),
        })?;
        let ReadKey(key) = key;
        self.have_threads_for(&key)?;
        let known = held.load_full();
        // The key in use is no other: what was to be remembered still is.
        let before = match known.current.spki_der() == key.spki_der() {
            true => known.before.clone(),
            false => Some(Arc::clone(&known.current)),
        };
        let current = Arc::new(key);
        held.store(Arc::new(Held { current, before }));
        Ok(())
    }

    /// Drops the key that an issuer had before the present one.
    pub fn forget_replaced(&self, issuer: &IssuerId) {
        if let Some(held) = self.keys.get(issuer) {
            let current = Arc::clone(&held.load().current);
            let before = None;
            held.store(Arc::new(Held { current, before }));
        }
    }

    fn have_threads_for(&self, key: &PrivateKey) -> Result<(), LoadFault> {
        if key.is_slow() && self.signers.get().is_none() {
            let signers = SignerThreads::start(self.threads, self.depth)
                .map_err(|source| LoadFault::Threads { source })?;
            // If somebody else was faster, theirs serve as well.
            let _ = self.signers.set(signers);
        }
        Ok(())
    }

    /// Makes a key and writes it to a new file with mode 0600; an existing file is never touched. Blocks for
    /// seconds where RSA is asked for.
    ///
    /// # Errors
    /// If the file exists or cannot be written, or the library makes no key.
    pub fn generate_file(path: &Path, spec: KeySpec) -> Result<(), GenerateFault> {
        // Asked first, so that no one waits for an RSA key which then cannot be stored.
        if path.symlink_metadata().is_ok() {
            return Err(GenerateFault::File {
                source: FileFault::Exists {
                    path: path.to_owned(),
                },
            });
        }
        let text = PrivateKey::generate(spec)
            .and_then(|key| key.to_pkcs8_pem())
            .map_err(|source| GenerateFault::Key {
                path: path.to_owned(),
                source,
            })?;
        private_file::write_new(path, text.as_bytes())
            .map_err(|source| GenerateFault::File { source })
    }

    fn held(&self, issuer: &IssuerId) -> Result<Arc<Held>, SignFault> {
        let held = self.keys.get(issuer).map(ArcSwap::load_full);
        held.ok_or_else(|| SignFault::UnknownIssuer {
            issuer: issuer.clone(),
        })
    }

    /// The key of an issuer with this public half.
    fn key(&self, issuer: &IssuerId, public_key: &[u8]) -> Result<Arc<PrivateKey>, SignFault> {
        let held = self.held(issuer)?;
        let mut keys = [Some(&held.current), held.before.as_ref()]
            .into_iter()
            .flatten();
        let found = keys.find(|key| key.spki_der() == public_key).cloned();
        found.ok_or_else(|| SignFault::Replaced {
            issuer: issuer.clone(),
        })
    }

    fn enqueue(
        &self,
        issuer: &IssuerId,
        key: Arc<PrivateKey>,
        message: Vec<u8>,
    ) -> Result<oneshot::Receiver<Result<Vec<u8>, PrivateKeyFault>>, SignFault> {
        let (answer, answered) = oneshot::channel();
        let job = Box::new(move || {
            // Whoever asked may have given up while this waited in the queue.
            if !answer.is_closed() {
                let _ = answer.send(key.sign(&message));
            }
        });
        let taken = self
            .signers
            .get()
            .map_or(Err(Refused::Stopped), |signers| signers.submit(job));
        match taken {
            Ok(()) => Ok(answered),
            Err(Refused::Full) => Err(SignFault::Overloaded {
                issuer: issuer.clone(),
            }),
            Err(Refused::Stopped) => Err(SignFault::Failed {
                issuer: issuer.clone(),
            }),
        }
    }
}

impl KeyStore for FileKeys {
    fn algorithm(&self, issuer: &IssuerId) -> Result<SignatureAlgorithm, SignFault> {
        Ok(self.held(issuer)?.current.algorithm())
    }

    fn public_key(&self, issuer: &IssuerId) -> Result<Vec<u8>, SignFault> {
        Ok(self.held(issuer)?.current.spki_der().to_vec())
    }

    fn sign(
        &self,
        issuer: &IssuerId,
        public_key: &[u8],
        message: Vec<u8>,
    ) -> BoxFuture<'_, Result<Signature, SignFault>> {
        let (issuer, key) = (issuer.clone(), self.key(issuer, public_key));
        Box::pin(async move {
            let key = key?;
            let signed = if key.is_slow() {
                // The answer is missing only if the job panicked.
                let answered = self.enqueue(&issuer, key, message)?;
                answered.await.unwrap_or(Err(PrivateKeyFault::Library))
            } else {
                key.sign(&message)
            };
            signed
                .map(Signature)
                .map_err(|_| SignFault::Failed { issuer })
        })
    }

    /// RSA only: a fault during its CRT computation gives the private key away (Boneh, DeMillo, Lipton 1997), and
    /// verifying costs a fiftieth of signing.
    fn verify_each(&self, issuer: &IssuerId) -> bool {
        self.held(issuer)
            .map_or(true, |held| held.current.is_slow())
    }
}

/// Why an issuer's key was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadFault {
    /// The file was not read.
    #[error("the key file cannot be used")]
    File {
        /// Which file, and why.
        #[from]
        source: FileFault,
    },
    /// The file was read and holds no usable key.
    #[error("the key in {} cannot be used", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with the key.
        source: PrivateKeyFault,
    },
    /// The issuer has a key.
    #[error("issuer {issuer} has a key already")]
    Twice {
        /// The issuer.
        issuer: IssuerId,
    },
    /// The issuer has no key.
    #[error("issuer {issuer} has no key that could be replaced")]
    Unknown {
        /// The issuer.
        issuer: IssuerId,
    },
    /// The operating system gave no thread.
    #[error("cannot start the signer threads")]
    Threads {
        /// Its answer.
        source: io::Error,
    },
}

/// Why no key file was made.
#[derive(Debug, thiserror::Error)]
pub enum GenerateFault {
    /// The file was not written.
    #[error("the new key file cannot be written")]
    File {
        /// Which file, and why.
        source: FileFault,
    },
    /// There is no key to write.
    #[error("cannot make a key for {}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: PrivateKeyFault,
    },
}

// 1.5 s of RSA-4096 work for one thread: who would wait longer is better told to come back.
const QUEUE_DEPTH: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    fn id(name: &str) -> IssuerId {
        IssuerId::parse(name).unwrap()
    }

    /// A key that is treated as slow without the cost of making an RSA key: the queue does not look at it.
    fn any_key() -> Arc<PrivateKey> {
        Arc::new(PrivateKey::generate(KeySpec::P256).unwrap())
    }

    #[test]
    fn full_queue_is_overload_and_abandoned_work_is_skipped() {
        let keys = FileKeys::with_queue(NonZeroUsize::MIN, 2);
        let threads = SignerThreads::start(keys.threads, keys.depth).unwrap();
        assert!(keys.signers.set(threads).is_ok());
        let (started, is_started) = sync_channel(1);
        let (release, is_released) = sync_channel::<()>(1);
        let block = Box::new(move || {
            started.send(()).unwrap();
            is_released.recv().unwrap();
        });
        keys.signers.get().unwrap().submit(block).unwrap();
        is_started.recv().unwrap();

        let key = any_key();
        let first = keys
            .enqueue(&id("a"), Arc::clone(&key), b"m".to_vec())
            .unwrap();
        drop(
            keys.enqueue(&id("a"), Arc::clone(&key), b"m".to_vec())
                .unwrap(),
        );
        let third = keys.enqueue(&id("a"), Arc::clone(&key), b"m".to_vec());
        assert!(matches!(third, Err(SignFault::Overloaded { issuer }) if issuer == id("a")));
        release.send(()).unwrap();
        assert!(first.blocking_recv().unwrap().is_ok());
        drop(keys);
        assert_eq!(Arc::strong_count(&key), 1);
    }

    #[test]
    fn without_threads_slow_keys_fail() {
        let keys = FileKeys::new(NonZeroUsize::MIN);
        let refused = keys.enqueue(&id("a"), any_key(), Vec::new());
        assert!(matches!(refused, Err(SignFault::Failed { .. })));
    }

    #[test]
    fn unknown_issuer_is_named() {
        let keys = FileKeys::new(FileKeys::usual_threads());
        assert!(
            matches!(keys.algorithm(&id("b")), Err(SignFault::UnknownIssuer { issuer }) if issuer == id("b"))
        );
        assert!(matches!(
            keys.public_key(&id("b")),
            Err(SignFault::UnknownIssuer { .. })
        ));
        assert!(keys.verify_each(&id("b")));
    }

    #[tokio::test]
    async fn a_replaced_key_signs_what_names_it_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a.pem", "b.pem"].map(|name| folder.path().join(name));
        for file in &files {
            FileKeys::generate_file(file, KeySpec::P256).unwrap();
        }
        let [first, second] = &files;
        let mut keys = FileKeys::new(NonZeroUsize::MIN);
        keys.load(id("a"), first).unwrap();
        let old = keys.public_key(&id("a")).unwrap();

        // The same key once more, with a new certificate: there is none before it.
        keys.replace(&id("a"), ReadKey::from_file(first).unwrap())
            .unwrap();
        assert!(keys.held(&id("a")).unwrap().before.is_none());

        keys.replace(&id("a"), ReadKey::from_file(second).unwrap())
            .unwrap();
        let new = keys.public_key(&id("a")).unwrap();
        assert_ne!(old, new);
        for public_key in [&old, &new] {
            let signed = keys.sign(&id("a"), public_key, b"m".to_vec()).await;
            let algorithm = SignatureAlgorithm::EcdsaP256Sha256;
            countersign_pki::verify(algorithm, public_key, b"m", &signed.unwrap().0).unwrap();
        }
        keys.forget_replaced(&id("a"));
        let gone = keys.sign(&id("a"), &old, b"m".to_vec()).await;
        assert!(matches!(gone, Err(SignFault::Replaced { .. })));
        assert!(keys.sign(&id("a"), &new, b"m".to_vec()).await.is_ok());
        let unknown = keys.replace(&id("b"), ReadKey::from_file(first).unwrap());
        assert!(matches!(unknown, Err(LoadFault::Unknown { .. })));
    }
}
