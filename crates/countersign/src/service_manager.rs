//! What systemd is told, if it asked to be (sd_notify(3)): ready, reloading, stopping, alive.
//!
//! Policy executables get none of our environment, so they cannot speak for the service.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Every listener answers.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The configuration is being read again; [`ready`] follows.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => warn!(%error, "the service manager cannot be told of the reload"),
    }
}

/// Open requests are being finished.
pub(crate) fn stopping() {
    tell(&[
        NotifyState::Stopping,
        NotifyState::Status("finishing open requests"),
    ]);
}

/// Says that the program is alive, twice as often as the service manager wants to hear it; ends at once if it does not
/// want to. A runtime that is stuck says nothing.
pub(crate) async fn stay_alive(stop: CancellationToken) {
    let Some(patience) = sd_notify::watchdog_enabled() else {
        return;
    };
    let mut ticks = tokio::time::interval((patience / 2).max(SHORTEST));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => tell(&[NotifyState::Watchdog]),
            () = stop.cancelled() => return,
        }
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "the service manager cannot be told how things are");
    }
}

const SHORTEST: Duration = Duration::from_millis(10);
