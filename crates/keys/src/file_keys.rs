//! Issuers' keys from files.
//!
//! EC and Ed25519 keys sign where they are asked (15 to 90 us, less than handing the work to a thread and back costs
//! in latency); RSA goes to the signer threads.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use countersign_authority::{IssuerId, KeyStore, SignFault, Signature};
use countersign_pki::SignatureAlgorithm;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::private_file::{self, FileFault};
use crate::private_key::{KeySpec, PrivateKey, PrivateKeyFault};
use crate::threads::{Refused, SignerThreads};

/// The keys of all issuers, loaded once at start and held in memory.
pub struct FileKeys {
    keys: BTreeMap<IssuerId, Arc<PrivateKey>>,
    threads: NonZeroUsize,
    depth: usize,
    // Started with the first key that needs them.
    signers: Option<SignerThreads>,
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
            keys: BTreeMap::new(),
            threads,
            depth,
            signers: None,
        }
    }

    /// Takes an issuer's key from a PEM file: PKCS#8, PKCS#1 or SEC 1. The key must have proven itself by a signature
    /// that its public half verifies, and nobody but the owner may be able to read the file.
    ///
    /// # Errors
    /// If the file is exposed or unreadable, holds no usable key, or the issuer has a key already.
    pub fn load(&mut self, issuer: IssuerId, path: &Path) -> Result<(), LoadFault> {
        if self.keys.contains_key(&issuer) {
            return Err(LoadFault::Twice { issuer });
        }
        let text = private_file::read(path).map_err(|source| LoadFault::File { source })?;
        let key = PrivateKey::from_pem(&text).map_err(|source| LoadFault::Key {
            path: path.to_owned(),
            source,
        })?;
        if key.is_slow() && self.signers.is_none() {
            let signers = SignerThreads::start(self.threads, self.depth)
                .map_err(|source| LoadFault::Threads { source })?;
            self.signers = Some(signers);
        }
        self.keys.insert(issuer, Arc::new(key));
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

    fn key(&self, issuer: &IssuerId) -> Result<&Arc<PrivateKey>, SignFault> {
        self.keys
            .get(issuer)
            .ok_or_else(|| SignFault::UnknownIssuer {
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
            .as_ref()
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
        Ok(self.key(issuer)?.algorithm())
    }

    fn public_key(&self, issuer: &IssuerId) -> Result<Vec<u8>, SignFault> {
        Ok(self.key(issuer)?.spki_der().to_vec())
    }

    fn sign(
        &self,
        issuer: &IssuerId,
        message: Vec<u8>,
    ) -> BoxFuture<'_, Result<Signature, SignFault>> {
        let issuer = issuer.clone();
        Box::pin(async move {
            let key = self.key(&issuer)?;
            let signed = if key.is_slow() {
                // The answer is missing only if the job panicked.
                let answered = self.enqueue(&issuer, Arc::clone(key), message)?;
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
        self.keys.get(issuer).is_none_or(|key| key.is_slow())
    }
}

/// Why an issuer's key was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadFault {
    /// The file was not read.
    #[error("the key file cannot be used")]
    File {
        /// Which file, and why.
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
        let mut keys = FileKeys::with_queue(NonZeroUsize::MIN, 2);
        keys.signers = Some(SignerThreads::start(keys.threads, keys.depth).unwrap());
        let (started, is_started) = sync_channel(1);
        let (release, is_released) = sync_channel::<()>(1);
        let block = Box::new(move || {
            started.send(()).unwrap();
            is_released.recv().unwrap();
        });
        keys.signers.as_ref().unwrap().submit(block).unwrap();
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
}
