//! `enroll --daemon`: stays, and renews for ever. A server that is away costs nothing but waiting.

use std::time::Duration;

use anyhow::{Context as _, Result};
use countersign_authority::{Clock as _, SystemClock};
use countersign_pki::UnixTime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::holdings::{Holdings, Standing};
use super::plan::Plan;
use super::session::{self, Patience};
use super::waiting::{Backoff, jittered};
use super::{Done, OK, enrol, install_lists, renew, standing};
use crate::service_manager;

/// Runs until a signal asks for the end, which may come at any moment: files are whole at all of them.
pub(super) async fn run(plan: &Plan) -> Result<u8> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    let stop = CancellationToken::new();
    let alive = tokio::spawn(service_manager::stay_alive(stop.clone()));
    let ended = tokio::select! {
        ended = Watch::new(plan).stay() => ended,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    stop.cancel();
    // It ends with its token.
    let _nothing_to_tell = alive.await;
    ended?;
    plan.voice.news("stopping");
    Ok(OK)
}

/// A certificate that is looked after.
struct Watch<'a> {
    plan: &'a Plan,
    backoff: Backoff,
    lists_at: Option<Instant>,
    warned: bool,
}

impl<'a> Watch<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            backoff: Backoff::for_a_renewal(),
            lists_at: None,
            warned: false,
        }
    }

    /// Ends only if there is no first certificate to be had: denied, for another key, or by files that do not fit.
    async fn stay(mut self) -> Result<()> {
        let mut is_renewed = false;
        loop {
            let holdings = Holdings::read(&self.plan.place)?;
            let standing = standing(self.plan, &holdings)?;
            if let Some(held) = holdings
                .held
                .as_ref()
                .filter(|_| standing != Standing::Absent)
            {
                let until = held.not_after();
                service_manager::ready(&format!("the certificate is valid until {until}"));
            }
            let pause = match standing {
                Standing::Absent => {
                    let done = enrol(self.plan, holdings, Patience::Forever).await?;
                    self.completed(done);
                    is_renewed = false;
                    Duration::ZERO
                }
                Standing::Due if is_renewed => {
                    self.warn_of_a_long_time();
                    is_renewed = false;
                    self.backoff.pause(None)
                }
                Standing::Due => {
                    is_renewed = self.renew(holdings).await;
                    match is_renewed {
                        true => Duration::ZERO,
                        false => self.backoff.pause(None),
                    }
                }
                Standing::Good { renewal } => {
                    is_renewed = false;
                    self.backoff.reset();
                    self.refresh_lists().await;
                    self.until(renewal, &holdings)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn renew(&self, holdings: Holdings) -> bool {
        // At the Kubernetes door somebody may have to approve first.
        match renew(self.plan, holdings, self.plan.patience).await {
            Ok(done) => {
                self.completed(done);
                true
            }
            Err(fault) => {
                self.plan.voice.failure(&fault);
                false
            }
        }
    }

    fn completed(&self, done: Done) {
        if let Done::WithoutHook(fault) = done {
            self.plan.voice.failure(&fault);
        }
    }

    /// A certificate that is due as soon as it is there would be renewed without end.
    fn warn_of_a_long_time(&mut self) {
        if !std::mem::replace(&mut self.warned, true) {
            self.plan.voice.warning(
                "--renew-before is longer than the new certificate lives: it is renewed again and again, with growing pauses",
            );
        }
    }

    /// Once a day, because a list that is never fetched again revokes nobody.
    async fn refresh_lists(&mut self) {
        if self.lists_at.is_some_and(|at| at.elapsed() < DAY) {
            return;
        }
        self.lists_at = Some(Instant::now());
        let fetched = session::current_lists(self.plan).await;
        let installed = fetched.and_then(|lists| match lists {
            Some(lists) => install_lists(self.plan, &lists),
            None => Ok(()),
        });
        if let Err(fault) = installed {
            let told = format!("the revocation list was not refreshed: {fault:#}");
            self.plan.voice.warning(&told);
        }
    }

    /// How long to sleep: not in step with machines that enrolled at the same time, and never so long that a clock which was
    /// set, or a machine which slept, is noticed late.
    fn until(&self, renewal: UnixTime, holdings: &Holdings) -> Duration {
        let held = holdings.held.as_ref();
        let end = held.map_or(renewal, |held| held.not_after());
        let seconds = |span: i64| Duration::from_secs(u64::try_from(span).unwrap_or_default());
        let window = seconds(end.seconds_since(renewal));
        let left = seconds(renewal.seconds_since(SystemClock.now()));
        match left < LONGEST_SLEEP {
            true => left + Duration::from_millis(100) + jittered((window / 20).min(LONGEST_SLEEP)),
            false => LONGEST_SLEEP,
        }
    }
}

const DAY: Duration = Duration::from_secs(86_400);
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);
