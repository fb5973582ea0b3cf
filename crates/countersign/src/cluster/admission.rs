//! The listener at which the API server asks whether one of the operator's objects may be stored, and its certificate,
//! which somebody renews while it serves.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use countersign_cluster::{AdmissionKind, Cluster};
use countersign_keys::private_file;
use countersign_pki::fingerprint_sha256;
use countersign_server::{AdmissionIdentity, AdmissionListener, Reviewer, TlsIdentity};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::cli::{ClusterArgs, ControllerName};
use crate::serve::advised;

/// Where it listens, and with which files.
pub(super) struct Admission {
    address: SocketAddr,
    files: Files,
    /// What the files held when the listener was bound.
    bound: TlsIdentity,
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// The files of a listener that serves.
pub(super) struct FollowedFiles {
    files: Files,
    identity: AdmissionIdentity,
    seen: Mutex<Seen>,
}

/// What was found last.
struct Seen {
    /// The digest of the certificate and key in use.
    digest: String,
    /// Why other ones are not in use, as it was logged.
    fault: Option<String>,
}

impl Admission {
    /// The listener that is asked for, if one is.
    pub(super) fn wanted(args: &ClusterArgs) -> Result<Option<Self>> {
        let operator = &args.operator;
        let (Some(address), Some(certificate), Some(key)) = (
            operator.admission_listen,
            &operator.admission_cert,
            &operator.admission_key,
        ) else {
            return Ok(None);
        };
        ensure!(
            args.controllers.contains(&ControllerName::Operator),
            "--admission-listen is for the operator's objects: add operator to --controllers"
        );
        let files = Files {
            certificate: certificate.clone(),
            key: key.clone(),
        };
        Ok(Some(Self {
            address,
            bound: files.read()?,
            files,
        }))
    }

    pub(super) async fn bind(&self, cluster: &Cluster) -> Result<AdmissionListener> {
        let reviewers = AdmissionKind::ALL
            .into_iter()
            .map(|kind| (kind.path(), reviewer(cluster.clone(), kind)))
            .collect();
        let bound = AdmissionListener::bind(self.address, &self.bound, reviewers).await;
        bound.map_err(|fault| advised(fault, "--admission-listen"))
    }

    /// What keeps the certificate of the listener as its files are.
    pub(super) fn following(self, identity: AdmissionIdentity) -> FollowedFiles {
        let seen = Seen {
            digest: digest(&self.bound),
            fault: None,
        };
        FollowedFiles {
            files: self.files,
            identity,
            seen: Mutex::new(seen),
        }
    }
}

impl Files {
    fn read(&self) -> Result<TlsIdentity> {
        let chain_pem = fs::read(&self.certificate).with_context(|| {
            format!(
                "--admission-cert: cannot read {}",
                self.certificate.display()
            )
        })?;
        let key_pem = private_file::read_of_group(&self.key)
            .with_context(|| format!("--admission-key: {} cannot be used", self.key.display()))?;
        Ok(TlsIdentity { chain_pem, key_pem })
    }
}

impl FollowedFiles {
    /// Looks at the files now and then.
    pub(super) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = interval(LOOK_AT_FILES);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.look(),
                () = stop.cancelled() => return,
            }
        }
    }

    /// Shows what the files hold now. What cannot be used, such as half of a replacement, changes nothing.
    pub(super) fn look(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = self.files.read().and_then(|found| {
            let digest = digest(&found);
            let is_new = digest != seen.digest;
            if is_new {
                self.identity.replace(&found)?;
            }
            Ok(is_new.then_some(digest))
        });
        match outcome {
            Ok(None) => seen.fault = None,
            Ok(Some(digest)) => {
                info!("the admission listener shows another certificate");
                *seen = Seen {
                    digest,
                    fault: None,
                };
            }
            Err(error) => {
                let error = format!("{error:#}");
                if seen.fault.as_ref() != Some(&error) {
                    warn!(error, "the admission listener keeps its certificate");
                    seen.fault = Some(error);
                }
            }
        }
    }
}

fn reviewer(cluster: Cluster, kind: AdmissionKind) -> Reviewer {
    Arc::new(move |body| {
        let cluster = cluster.clone();
        Box::pin(async move {
            let answer = cluster.review(kind, &body).await;
            answer.map_err(|fault| format!("{:#}", anyhow::Error::from(fault)))
        })
    })
}

fn digest(identity: &TlsIdentity) -> String {
    let [chain, key] = [&identity.chain_pem[..], &identity.key_pem[..]]
        .map(|text| fingerprint_sha256(text).to_hex());
    format!("{chain} {key}")
}

/// Often enough for a certificate that is renewed days before its end, and for a person who waits.
const LOOK_AT_FILES: Duration = Duration::from_secs(10);
