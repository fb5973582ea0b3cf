//! What goes on beside the listeners: unfinished signatures are finished, CRLs made anew and written to their files, old
//! requests forgotten, and the authority's own certificates renewed.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use countersign_authority::{Audit, Authority, IssuerId, Issuers, Requests};
use countersign_keys::AuditKey;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::config::Collection;
use crate::data_folder::{DataFolder, Secrecy, write};
use crate::first_start::ServerCertificate;
use crate::issuer_files::{self, Follower};
use crate::policies;
use crate::reload::Live;
use crate::witness;

/// Starts the tasks; the tracker awaits them after `stop` is cancelled.
pub(crate) fn start(
    authority: &Authority,
    folder: &DataFolder,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    tasks.spawn(finish_and_refresh(authority.clone(), stop.clone()));
    tasks.spawn(reconsider(authority.requests.clone(), stop.clone()));
    tasks.spawn(follow_access(authority.clone(), stop.clone()));
    tasks.spawn(trim_rejections(authority.requests.clone(), stop.clone()));
    for issuer in authority.issuers.all() {
        start_issuer(authority, issuer.id(), folder, tasks, stop);
    }
}

/// The task of one issuer.
pub(crate) fn start_issuer(
    authority: &Authority,
    id: &IssuerId,
    folder: &DataFolder,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    tasks.spawn(publish_crl(
        authority.issuers.clone(),
        id.clone(),
        folder.clone(),
        stop.clone(),
    ));
}

/// Writes the CRL files of every issuer.
pub(crate) fn write_crls(issuers: &Issuers, folder: &DataFolder) -> Result<()> {
    for issuer in issuers.all() {
        write_crls_of(issuers, issuer.id(), folder)?;
    }
    Ok(())
}

/// Each with the lists of the CAs above the issuer.
pub(crate) fn write_crls_of(issuers: &Issuers, id: &IssuerId, folder: &DataFolder) -> Result<()> {
    let files = [
        (CRL_FILE, issuers.crl(id)),
        (INFRA_CRL_FILE, issuers.infra_crl(id)),
    ];
    for (file, crl) in files {
        if let Some(crl) = crl {
            let path = folder.issuer(id, file);
            write(&path, crl.pem.as_bytes(), Secrecy::Public)?;
        }
    }
    Ok(())
}

async fn finish_and_refresh(authority: Authority, stop: CancellationToken) {
    let (mut finishing, mut refreshing) = (
        Health::new("finish signatures"),
        Health::new("refresh CRLs"),
    );
    while pause(&stop).await {
        finishing.told(authority.recover().await);
        refreshing.told(authority.issuers.refresh_crls().await);
    }
}

/// Keeps what rules turn away within bounds, and tells what was only counted.
async fn trim_rejections(requests: Requests, stop: CancellationToken) {
    let mut health = Health::new("forget old rejections");
    let mut telling = Health::new("put repeated denials into the audit log");
    loop {
        tokio::select! {
            () = tokio::time::sleep(TRIM) => {}
            () = stop.cancelled() => return,
        }
        tokio::select! {
            trimmed = requests.trim_rejections(MAX_REJECTIONS, MAX_REJECTED_BYTES) => health.told(trimmed),
            () = stop.cancelled() => return,
        };
        tokio::select! {
            told = requests.tell_repeated_denials() => telling.told(told),
            () = stop.cancelled() => return,
        };
    }
}

/// Asks the policy again about requests that wait for evidence which may be there by now.
async fn reconsider(requests: Requests, stop: CancellationToken) {
    let mut health = Health::new("ask the policy again");
    loop {
        tokio::select! {
            () = tokio::time::sleep(RECONSIDER) => {}
            () = stop.cancelled() => return,
        }
        tokio::select! {
            reconsidered = requests.reconsider_waiting() => health.told(reconsidered),
            () = stop.cancelled() => return,
        };
    }
}

/// Asks the policy again about requests whose senders were given roles meanwhile, or lost them.
async fn follow_access(authority: Authority, stop: CancellationToken) {
    let mut health = Health::new("ask the policy again after a change of roles");
    loop {
        tokio::select! {
            () = authority.access_news() => {}
            () = stop.cancelled() => return,
        }
        // Who applies a file of bindings changes many: they are one piece of news.
        tokio::select! {
            () = tokio::time::sleep(ACCESS_PAUSE) => {}
            () = stop.cancelled() => return,
        }
        tokio::select! {
            reconsidered = authority.requests.reconsider_access() => health.told(reconsidered),
            () = stop.cancelled() => return,
        };
    }
}

/// Forgets old requests and tokens: at once, then after each interval, and whenever the rules change.
pub(crate) async fn collect(
    authority: Authority,
    mut rules: watch::Receiver<Collection>,
    stop: CancellationToken,
) {
    let (mut health, mut tokens, mut bootstrap) = (
        Health::new("forget old requests"),
        Health::new("forget old enrolment tokens"),
        Health::new("forget old bootstrap tokens"),
    );
    loop {
        let Collection {
            interval,
            rules: of,
        } = rules.borrow_and_update().clone();
        tokio::select! {
            collected = authority.requests.collect(&of) => health.told(collected),
            () = stop.cancelled() => return,
        };
        tokio::select! {
            purged = authority.tokens.purge() => tokens.told(purged),
            () = stop.cancelled() => return,
        };
        tokio::select! {
            purged = authority.tokens.purge_bootstrap() => bootstrap.told(purged),
            () = stop.cancelled() => return,
        };
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            changed = rules.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

/// Seals the audit log behind whoever writes to it: soon, and not more often than is useful.
pub(crate) async fn seal(
    authority: Authority,
    folder: DataFolder,
    key: Arc<AuditKey>,
    stop: CancellationToken,
) {
    let mut health = Health::new("seal the audit log");
    let mut revisions = authority.revisions();
    loop {
        // Marked before it is read: what is committed meanwhile wakes the next round.
        revisions.mark_unchanged();
        health.told(seal_once(&authority.audit, &folder, &key).await);
        tokio::select! {
            () = tokio::time::sleep(SEAL_PAUSE) => {}
            () = stop.cancelled() => return,
        }
        tokio::select! {
            changed = revisions.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

/// Seals what is not sealed, and remembers how far the database has come.
pub(crate) async fn seal_once(audit: &Audit, folder: &DataFolder, key: &AuditKey) -> Result<()> {
    audit.seal(key).await?;
    witness::keep(folder, audit, key).await
}

/// Says how much was not logged.
pub(crate) async fn tell_suppressed(live: Arc<Live>, stop: CancellationToken) {
    live.log.keep_telling(&stop).await;
}

/// Renews the authority's own certificates in good time. The start has looked at them just now.
pub(crate) async fn renew_certificates(live: Arc<Live>, stop: CancellationToken) {
    let mut health = Health::new("renew the server's certificates");
    let mut pause = DAY;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
        pause = match health.told(live.renew_certificates().await) {
            Told::Well => DAY,
            Told::Failed => AGAIN,
        };
    }
}

/// Replaces the certificate of a listener as soon as it is revoked.
pub(crate) async fn replace_revoked(
    live: Arc<Live>,
    server: ServerCertificate,
    stop: CancellationToken,
) {
    let id = IssuerId::parse(server.issuer).ok();
    let Some(mut news) = id.and_then(|id| live.authority.issuers.crl_news(&id)) else {
        return;
    };
    let folder = live.folder().await;
    let mut health = Health::new("replace the server's revoked certificate");
    loop {
        // A list follows each revocation.
        news.mark_unchanged();
        let replaced = match server.is_revoked(&live.authority, &folder) {
            Ok(true) => live.renew_certificates().await.map(|()| {
                let issuer = server.issuer;
                info!(
                    issuer,
                    "the server shows a new certificate in place of the revoked one"
                );
            }),
            Ok(false) => Ok(()),
            Err(fault) => Err(fault),
        };
        let goes_on = match health.told(replaced) {
            Told::Well => tokio::select! {
                changed = news.changed() => changed.is_ok(),
                () = stop.cancelled() => false,
            },
            Told::Failed => pause(&stop).await,
        };
        if !goes_on {
            return;
        }
    }
}

/// Reads the policy files again whenever they have changed.
pub(crate) async fn follow_policies(live: Arc<Live>, stop: CancellationToken) {
    // Before anything was looked at: a change since the start is one, too.
    let mut last = None;
    loop {
        let paths = live.policy_paths().await;
        let stamped = tokio::task::spawn_blocking(move || policies::stamp(&paths)).await;
        let kept = live.kept_policies().await;
        let stamp = stamped.ok().zip(kept.ok().map(|kept| kept.revision));
        if stamp != last {
            live.reload_policies().await;
            last = stamp;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_AT_POLICIES) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Takes other CA certificates and keys whenever their files have changed.
pub(crate) async fn follow_issuers(live: Arc<Live>, stop: CancellationToken) {
    let folder = live.folder().await;
    let ids = live
        .authority
        .issuers
        .all()
        .map(|issuer| issuer.id().clone());
    let followed = ids.filter(issuer_files::are_followed);
    let mut followers: Vec<(Follower, Health)> = followed
        .map(|id| {
            (
                Follower::new(&folder, id),
                Health::new("take an issuer's new files"),
            )
        })
        .collect();
    let mut telling = Health::new("tell clients of an issuer's new certificate");
    let mut is_news = false;
    loop {
        for (follower, health) in &mut followers {
            let taken = follower.look(&live.authority, &live.keys, &folder).await;
            is_news |= matches!(taken, Ok(true));
            health.told(taken);
        }
        if is_news {
            // Writes the administrator's kubeconfig, and looks at the server's own certificates.
            is_news = matches!(telling.told(live.renew_certificates().await), Told::Failed);
            if !is_news {
                info!("the new CA certificate is in use, and in the administrator's kubeconfig");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_AT_ISSUERS) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Keeps one issuer's files equal to its published lists.
async fn publish_crl(issuers: Issuers, id: IssuerId, folder: DataFolder, stop: CancellationToken) {
    let Some(mut news) = issuers.crl_news(&id) else {
        return;
    };
    let mut health = Health::new("write a CRL file");
    loop {
        news.mark_unchanged();
        let (of, id, to) = (issuers.clone(), id.clone(), folder.clone());
        let written = tokio::task::spawn_blocking(move || write_crls_of(&of, &id, &to))
            .await
            .context("the writer ended early")
            .flatten();
        let goes_on = match health.told(written) {
            Told::Well => tokio::select! {
                changed = news.changed() => changed.is_ok(),
                () = stop.cancelled() => false,
            },
            Told::Failed => pause(&stop).await,
        };
        if !goes_on {
            return;
        }
    }
}

/// Waits until it is time for the next round; false if there shall be none.
async fn pause(stop: &CancellationToken) -> bool {
    tokio::select! {
        () = tokio::time::sleep(ROUND) => true,
        () = stop.cancelled() => false,
    }
}

/// Says once that something fails, and once that it works again.
struct Health {
    what: &'static str,
    fails: bool,
}

enum Told {
    Well,
    Failed,
}

impl Health {
    fn new(what: &'static str) -> Self {
        Self { what, fails: false }
    }

    fn told<T, E: Display>(&mut self, result: Result<T, E>) -> Told {
        match result {
            Ok(_) => {
                if self.fails {
                    info!(what = self.what, "works again");
                }
                self.fails = false;
                Told::Well
            }
            Err(error) => {
                if !self.fails {
                    warn!(
                        what = self.what,
                        error = format!("{error:#}"),
                        "fails; trying again"
                    );
                }
                self.fails = true;
                Told::Failed
            }
        }
    }
}

/// A person who saves a file and tries it out does not wait longer.
const LOOK_AT_POLICIES: Duration = Duration::from_secs(2);
/// As the policies'; a look at a few files.
pub(crate) const LOOK_AT_ISSUERS: Duration = Duration::from_secs(2);
/// Often enough for a kubelet that waits; a decider that is down is asked again about every waiting request.
const RECONSIDER: Duration = Duration::from_secs(15);
/// Long enough for a file of bindings, short enough for somebody who watches.
const ACCESS_PAUSE: Duration = Duration::from_millis(250);
/// Somebody who is turned away again and again must not fill the disk.
const MAX_REJECTIONS: usize = 20_000;
/// Most have a few kilobytes.
const MAX_REJECTED_BYTES: u64 = 128 * 1024 * 1024;
/// As much as one address may send in a minute is there at most on top.
const TRIM: Duration = Duration::from_secs(60);
/// They are renewed a month before their end.
const DAY: Duration = Duration::from_secs(86_400);
const AGAIN: Duration = Duration::from_secs(300);
/// How long an entry may wait for its seal. The sealer's own commit wakes it once more, and it finds nothing.
const SEAL_PAUSE: Duration = Duration::from_secs(1);
const CRL_FILE: &str = "ca_crl.pem";
const INFRA_CRL_FILE: &str = "infra_crl.pem";
/// Soon enough for somebody who waits for a certificate; an idle round costs two indexed look-ups.
const ROUND: Duration = Duration::from_secs(5);
