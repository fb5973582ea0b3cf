//! A certificate that is looked after. A server that is away costs nothing but waiting.

use std::time::Duration;

use countersign_pki::UnixTime;
use tokio::time::Instant;

use crate::error::{Result, with_causes};
use crate::holdings::{Holdings, Standing};
use crate::session::{self, Patience};
use crate::waiting::{Backoff, jittered};
use crate::{Done, Plan, enrol, install_lists, now, renew, standing};

/// Stays, and renews for ever. Ends only if there is no first certificate to be had: denied, for another key, or by files that do
/// not fit. `ready` is told whenever there is a certificate. It may be dropped at any moment: files are whole at all of them.
///
/// # Errors
/// Why there is none.
pub async fn stay(plan: &Plan, ready: &(dyn Fn(UnixTime) + Sync)) -> Result<()> {
    Watch::new(plan).stay(ready).await
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

    async fn stay(mut self, ready: &(dyn Fn(UnixTime) + Sync)) -> Result<()> {
        let mut is_renewed = false;
        loop {
            let holdings = Holdings::read(&self.plan.place)?;
            let standing = standing(self.plan, &holdings)?;
            if let Some(held) = holdings
                .held
                .as_ref()
                .filter(|_| standing != Standing::Absent)
            {
                ready(held.not_after());
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
            let why = with_causes(&fault);
            let told = format!("the revocation list was not refreshed: {why}");
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
        let left = seconds(renewal.seconds_since(now()));
        match left < LONGEST_SLEEP {
            true => left + Duration::from_millis(100) + jittered((window / 20).min(LONGEST_SLEEP)),
            false => LONGEST_SLEEP,
        }
    }
}

const DAY: Duration = Duration::from_secs(86_400);
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);
