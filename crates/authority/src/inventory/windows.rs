//! Build windows: a time in which one name may enrol, opened when its machine is being built.
//!
//! A window ends by itself, when it has given the certificates it was opened for, or when somebody closes it. Certificates
//! are counted with their approval, not here.

use countersign_pki::{UnixTime, terminal_safe};
use countersign_policy::{BuildWindow, Requester};
use tracing::info;

use crate::authorisation::actor::Actor;
use crate::authorisation::grant::Needed;
use crate::certname::{Certname, CertnameFault};
use crate::engine::Core;
use crate::faults::EngineError;
use crate::inventory::Inventory;
use crate::inventory::{Put, audit};
use crate::issuing::commit_broken;
use crate::model::inventory_name;
use crate::store::{Change, CommitFault, Precondition, StoreFault, Write};

/// Why a window was neither opened nor closed.
#[derive(Debug, thiserror::Error)]
pub enum WindowFault {
    /// Nobody can enrol under the name.
    #[error("{} cannot be used as a name: {fault}", terminal_safe(.certname))]
    Name {
        /// The name.
        certname: String,
        /// Why not.
        fault: CertnameFault,
    },
    /// It would never be open.
    #[error("closes_at ({closes_at}) must be later than opens_at ({opens_at})")]
    Empty {
        /// From then on,
        opens_at: UnixTime,
        /// until then.
        closes_at: UnixTime,
    },
    /// It would be over already.
    #[error("closes_at ({closes_at}) is in the past")]
    Over {
        /// Its end.
        closes_at: UnixTime,
    },
    /// Nobody builds a machine for so long.
    #[error("a window is open for at most {} days", MAX_WINDOW_SECONDS / 86_400)]
    TooLong,
    /// None, or more than a window is for.
    #[error("max_issuances must be from 1 to {MAX_ISSUANCES}")]
    Issuances,
    /// The name has no window.
    #[error("{} has no build window", terminal_safe(.certname))]
    NotFound {
        /// The name.
        certname: String,
    },
    /// Whoever asks may not.
    #[error(transparent)]
    Forbidden(#[from] Needed),
    /// It could not be carried through.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl Inventory {
    /// The build window of a name, open or not.
    pub async fn window(&self, certname: &str) -> Result<Option<BuildWindow>, StoreFault> {
        self.core.store.window(certname).await
    }

    /// Build windows, names in order after `after`.
    pub async fn windows(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<BuildWindow>, StoreFault> {
        self.core.store.windows(after, limit).await
    }

    /// Opens a window, in place of the one that the name has. It has given no certificate yet, whatever `window` says.
    pub async fn open_window(
        &self,
        window: BuildWindow,
        actor: &Actor,
    ) -> Result<(BuildWindow, Put), WindowFault> {
        self.core
            .authorise_expecting("window.opened", "window", &window.certname, actor)
            .await?;
        let actor = &actor.requester;
        let now = self.core.clock.now();
        let window = checked_window(window, now)?;
        let earlier = self
            .window(&window.certname)
            .await
            .map_err(EngineError::from)?;
        let change = Change {
            preconditions: Vec::new(),
            writes: vec![Write::PutWindow(window.clone())],
            audit: vec![audit(
                now,
                actor,
                "window.opened",
                format!("window/{}", window.certname),
                terms(&window),
            )],
        };
        self.core.commit(change).await.map_err(commit_broken)?;
        let BuildWindow {
            certname,
            closes_at,
            require_token,
            ..
        } = &window;
        info!(name = certname, %closes_at, require_token, %actor, "window opened");
        let put = earlier.map_or(Put::Added, |_| Put::Replaced);
        Ok((window, put))
    }

    /// Closes a window: it is gone.
    pub async fn close_window(&self, certname: &str, actor: &Actor) -> Result<(), WindowFault> {
        self.core
            .authorise_expecting("window.closed", "window", certname, actor)
            .await?;
        let actor = &actor.requester;
        let certname = inventory_name(certname);
        let found = self.window(&certname).await.map_err(EngineError::from)?;
        let Some(window) = found else {
            return Err(WindowFault::NotFound { certname });
        };
        let detail = format!(
            "{} of {} certificates were issued",
            window.issuances, window.max_issuances
        );
        let subject = format!("window/{certname}");
        let change = Change {
            preconditions: Vec::new(),
            audit: vec![audit(
                self.core.clock.now(),
                actor,
                "window.closed",
                subject,
                detail,
            )],
            writes: vec![Write::CloseWindow {
                certname: certname.clone(),
            }],
        };
        self.core
            .store
            .commit(change)
            .await
            .map_err(commit_broken)?;
        info!(name = certname, %actor, "window closed");
        Ok(())
    }
}

impl Core {
    /// Forgets windows that closed by themselves a day ago; until then people can see what became of them.
    pub(crate) async fn purge_windows(&self) -> Result<u64, EngineError> {
        let now = self.clock.now();
        let before = now.minus_seconds(SHOWN_AFTER_CLOSING);
        let mut total: u64 = 0;
        loop {
            let old = self.store.windows_closed(before, PURGE_BATCH).await?;
            if old.is_empty() {
                return Ok(total);
            }
            let count = old.len();
            let names = || old.iter().map(|window| window.certname.clone());
            let detail = format!("{count} build windows that closed before {before}");
            let authority = Requester::authority();
            let change = Change {
                // One that is opened anew meanwhile stays.
                preconditions: names()
                    .map(|certname| Precondition::WindowClosed { certname, before })
                    .collect(),
                writes: names()
                    .map(|certname| Write::CloseWindow { certname })
                    .collect(),
                audit: vec![audit(
                    now,
                    &authority,
                    "collect",
                    "windows".to_owned(),
                    detail,
                )],
            };
            match self.commit(change).await {
                Ok(_) => {
                    info!(count, "closed build windows forgotten");
                    total = total.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
                }
                // The next time is soon enough.
                Err(CommitFault::Conflict { .. }) => return Ok(total),
                Err(other) => return Err(commit_broken(other)),
            }
        }
    }
}

fn checked_window(window: BuildWindow, now: UnixTime) -> Result<BuildWindow, WindowFault> {
    let certname = inventory_name(&window.certname);
    if let Err(fault) = Certname::parse(&certname) {
        return Err(WindowFault::Name { certname, fault });
    }
    let (opens_at, closes_at) = (window.opens_at, window.closes_at);
    if closes_at <= opens_at {
        return Err(WindowFault::Empty {
            opens_at,
            closes_at,
        });
    }
    if closes_at <= now {
        return Err(WindowFault::Over { closes_at });
    }
    if closes_at > opens_at.plus_seconds(MAX_WINDOW_SECONDS) {
        return Err(WindowFault::TooLong);
    }
    if !(1..=MAX_ISSUANCES).contains(&window.max_issuances) {
        return Err(WindowFault::Issuances);
    }
    Ok(BuildWindow {
        certname,
        issuances: 0,
        ..window
    })
}

/// What was opened, for the audit log. That no token is asked for is said in so many words: the name alone is trusted then.
fn terms(window: &BuildWindow) -> String {
    let BuildWindow {
        opens_at,
        closes_at,
        max_issuances,
        ..
    } = window;
    let token = if window.require_token {
        "with a token"
    } else {
        "without a token: the name alone is trusted"
    };
    format!("from {opens_at} until {closes_at}, max_issuances {max_issuances}, {token}")
}

/// How long a window may be open: longer than any build, and short enough that one that was forgotten ends.
pub const MAX_WINDOW_SECONDS: u64 = 30 * 86_400;
/// How many certificates a window may be good for.
pub const MAX_ISSUANCES: u32 = 1000;
const SHOWN_AFTER_CLOSING: u64 = 86_400;
const PURGE_BATCH: usize = 500;
