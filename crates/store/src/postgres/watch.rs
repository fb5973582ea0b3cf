//! The revision of the last commit, whoever made it: processes wake each other, and look by themselves now and then.

use std::sync::Arc;
use std::time::Duration;

use countersign_authority::Revision;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::Notification;

use super::address::Address;
use super::fault::{DatabaseFault, Fault};
use super::read;
use super::session::{Limits, Session};

/// Where processes tell each other that they have committed.
pub(super) const CHANNEL: &str = "countersign";

/// Tells of a revision, unless a later one was told already.
pub(super) fn told(revisions: &watch::Sender<Revision>, revision: Revision) {
    revisions.send_if_modified(|last| {
        let is_news = revision > *last;
        if is_news {
            *last = revision;
        }
        is_news
    });
}

/// Follows the commits of all processes until nobody asks any more.
pub(super) async fn follow(
    address: Arc<Address>,
    owner: String,
    revisions: Arc<watch::Sender<Revision>>,
) {
    let mut pause = PAUSE;
    loop {
        tokio::select! {
            () = revisions.closed() => return,
            ended = follow_in_a_session(&address, &owner, &revisions) => {
                if let Err((fault, began)) = ended {
                    if began.elapsed() > LONGEST_PAUSE {
                        pause = PAUSE;
                    }
                    tracing::warn!(?fault, "commits of other replicas are not seen");
                }
            }
        }
        sleep(pause).await;
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
    }
}

async fn follow_in_a_session(
    address: &Address,
    owner: &str,
    revisions: &watch::Sender<Revision>,
) -> Result<(), (Fault, Instant)> {
    let began = Instant::now();
    let followed = async {
        let (sender, mut notifications) = mpsc::channel(1);
        let session = Session::connect(address, LIMITS, Some(sender)).await?;
        session.batch(&format!("LISTEN {CHANNEL}")).await?;
        loop {
            let asked = timeout(LIMITS.statement, read::revision(&session));
            told(revisions, asked.await.map_err(|_| DatabaseFault::Silent)??);
            wait(owner, &mut notifications).await;
        }
    };
    let ended: Result<(), Fault> = followed.await;
    ended.map_err(|fault| (fault, began))
}

/// Waits for a word of another process, or for the time to look anyway. Whoever may connect may say something on the
/// channel: it only wakes.
async fn wait(owner: &str, notifications: &mut mpsc::Receiver<Notification>) {
    let until = Instant::now() + INTERVAL;
    while let Ok(heard) = timeout_at(until, notifications.recv()).await {
        match heard {
            Some(notification) if notification.payload() == owner => {}
            Some(_) => return,
            // The connection is gone: the next question says so.
            None => return,
        }
    }
}

/// How late the commit of another process is seen at most, where a notification is lost.
const INTERVAL: Duration = Duration::from_millis(500);

const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

const LIMITS: Limits = Limits {
    statement: Duration::from_secs(5),
    lock: Duration::from_secs(5),
    idle: Duration::from_secs(5),
};
