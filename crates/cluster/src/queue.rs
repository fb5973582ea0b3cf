//! What is to be done, by name: each name is worked on by one at a time, and one that failed waits longer each time.
//!
//! [`WorkQueue`] is pure: it is told the time. [`Queue`] lets workers wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Names that are to be worked on, now or later.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    items: BTreeMap<String, Item>,
    /// The names that wait, by when they are due, then in the order in which they came.
    due: BTreeSet<(Instant, u64, String)>,
    next: u64,
}

#[derive(Debug, Default)]
struct Item {
    state: State,
    failures: u32,
}

#[derive(Debug, Default)]
enum State {
    /// Known for its failures only.
    #[default]
    Idle,
    Waiting {
        due: Instant,
        turn: u64,
    },
    /// Somebody works on it; whether it is to be looked at again afterwards.
    Running {
        again: bool,
    },
}

impl WorkQueue {
    /// Has a name worked on now, whatever it has been waiting for. Its failures are forgotten: something has changed.
    pub(crate) fn wake(&mut self, name: &str, now: Instant) {
        if let Some(item) = self.items.get_mut(name) {
            item.failures = 0;
            if let State::Running { again } = &mut item.state {
                *again = true;
                return;
            }
        }
        self.wait(name, now);
    }

    /// Takes the next name that is due. Its worker calls [`WorkQueue::done`] or [`WorkQueue::retry`].
    pub(crate) fn take(&mut self, now: Instant) -> Option<String> {
        let (due, ..) = self.due.first()?;
        if *due > now {
            return None;
        }
        let (_, _, name) = self.due.pop_first()?;
        let item = self.items.entry(name.clone()).or_default();
        item.state = State::Running { again: false };
        Some(name)
    }

    /// The work on a name is done; it is forgotten unless it was woken meanwhile.
    pub(crate) fn done(&mut self, name: &str, now: Instant) {
        match self.items.remove(name).map(|item| item.state) {
            Some(State::Running { again: true }) => self.wait(name, now),
            Some(State::Running { again: false } | State::Idle | State::Waiting { .. }) | None => {}
        }
    }

    /// The work on a name has to be done again: after a pause that doubles each time, or at once if it was woken meanwhile.
    pub(crate) fn retry(&mut self, name: &str, why: Pause, now: Instant) {
        let Some(item) = self.items.get_mut(name) else {
            return;
        };
        if matches!(item.state, State::Running { again: true }) {
            self.wait(name, now);
            return;
        }
        let pause = why.after(item.failures);
        item.failures = item.failures.saturating_add(1);
        let due = now.checked_add(pause).unwrap_or(now);
        self.wait(name, due);
    }

    /// The work on a name is done for now and goes on after a pause, or at once if it was woken meanwhile.
    pub(crate) fn later(&mut self, name: &str, pause: Duration, now: Instant) {
        let Some(item) = self.items.get_mut(name) else {
            return;
        };
        item.failures = 0;
        let due = match item.state {
            State::Running { again: true } => now,
            State::Running { again: false } | State::Idle | State::Waiting { .. } => {
                now.checked_add(pause).unwrap_or(now)
            }
        };
        self.wait(name, due);
    }

    /// When the next one is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, ..)| *due)
    }

    /// How many names wait.
    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }

    fn wait(&mut self, name: &str, due: Instant) {
        let item = self.items.entry(name.to_owned()).or_default();
        if let State::Waiting { due: earlier, turn } = item.state {
            if earlier <= due {
                return;
            }
            self.due.remove(&(earlier, turn, name.to_owned()));
        }
        let turn = self.next;
        self.next = self.next.saturating_add(1);
        item.state = State::Waiting { due, turn };
        self.due.insert((due, turn, name.to_owned()));
    }
}

/// Why a name has to be worked on again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Something went wrong that may be right the next moment, such as a write that came too late.
    Fault,
    /// Evidence is not there yet, and whoever makes it needs a while.
    Evidence,
}

impl Pause {
    /// As client-go's rate limiter has it: doubled with each failure, at most 1000 s.
    fn after(self, failures: u32) -> Duration {
        let first = match self {
            Self::Fault => FIRST_AFTER_FAULT,
            Self::Evidence => FIRST_FOR_EVIDENCE,
        };
        let factor = 2_u32.checked_pow(failures).unwrap_or(u32::MAX);
        first.saturating_mul(factor).min(LONGEST_PAUSE)
    }
}

const FIRST_AFTER_FAULT: Duration = Duration::from_millis(5);
/// Thousands that wait for the same must not ask hundreds of times in their first second.
const FIRST_FOR_EVIDENCE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(1000);

/// A queue that workers wait for.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    names: Mutex<WorkQueue>,
    changed: Notify,
}

impl Queue {
    /// Has names worked on now.
    pub(crate) fn wake_all<'a>(&self, names: impl IntoIterator<Item = &'a String>) {
        let now = Instant::now();
        let mut queue = self.names();
        for name in names {
            queue.wake(name, now);
        }
        drop(queue);
        self.changed.notify_one();
    }

    /// The next name that is due, as soon as there is one. One caller at a time.
    pub(crate) async fn next(&self) -> String {
        loop {
            let changed = self.changed.notified();
            let next_due = {
                let mut names = self.names();
                if let Some(name) = names.take(Instant::now()) {
                    return name;
                }
                names.next_due()
            };
            match next_due {
                Some(due) => {
                    tokio::select! {
                        () = changed => {}
                        () = sleep_until(due) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// See [`WorkQueue::done`].
    pub(crate) fn done(&self, name: &str) {
        self.names().done(name, Instant::now());
        self.changed.notify_one();
    }

    /// See [`WorkQueue::retry`].
    pub(crate) fn retry(&self, name: &str, why: Pause) {
        self.names().retry(name, why, Instant::now());
        self.changed.notify_one();
    }

    /// See [`WorkQueue::later`].
    pub(crate) fn later(&self, name: &str, pause: Duration) {
        self.names().later(name, pause, Instant::now());
        self.changed.notify_one();
    }

    /// How many names wait.
    pub(crate) fn len(&self) -> usize {
        self.names().len()
    }

    fn names(&self) -> MutexGuard<'_, WorkQueue> {
        // Nothing is half done where a lock is poisoned: every change is one call.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One step on the queue, at a time in milliseconds.
    enum Step {
        Wake(u64, &'static str),
        /// What is taken then.
        Take(u64, Option<&'static str>),
        Done(u64, &'static str),
        Retry(u64, &'static str),
    }
    use Step::{Done, Retry, Take, Wake};

    #[test]
    fn names_are_worked_on_one_at_a_time_and_wait_longer_each_time() {
        let cases: [(&str, Vec<Step>); 7] = [
            (
                "in the order in which they came",
                vec![
                    Wake(0, "b"),
                    Wake(0, "a"),
                    Take(0, Some("b")),
                    Take(0, Some("a")),
                    Take(0, None),
                ],
            ),
            (
                "a name that waits already waits once",
                vec![
                    Wake(0, "a"),
                    Wake(1, "a"),
                    Take(1, Some("a")),
                    Take(1, None),
                ],
            ),
            (
                "a name is not taken twice; woken meanwhile, it comes again",
                vec![
                    Wake(0, "a"),
                    Take(0, Some("a")),
                    Wake(1, "a"),
                    Take(1, None),
                    Done(2, "a"),
                    Take(2, Some("a")),
                    Done(3, "a"),
                    Take(9_999_999, None),
                ],
            ),
            (
                "what failed waits 5 ms, then 10 ms",
                vec![
                    Wake(0, "a"),
                    Take(0, Some("a")),
                    Retry(0, "a"),
                    Take(4, None),
                    Take(5, Some("a")),
                    Retry(5, "a"),
                    Take(14, None),
                    Take(15, Some("a")),
                ],
            ),
            (
                "a wake ends the pause and forgets the failures",
                vec![
                    Wake(0, "a"),
                    Take(0, Some("a")),
                    Retry(0, "a"),
                    Wake(1, "a"),
                    Take(1, Some("a")),
                    Retry(1, "a"),
                    Take(5, None),
                    Take(6, Some("a")),
                ],
            ),
            (
                "woken while it failed, it comes at once",
                vec![
                    Wake(0, "a"),
                    Take(0, Some("a")),
                    Wake(0, "a"),
                    Retry(0, "a"),
                    Take(0, Some("a")),
                ],
            ),
            (
                "what is done has no failures left",
                vec![
                    Wake(0, "a"),
                    Take(0, Some("a")),
                    Retry(0, "a"),
                    Take(5, Some("a")),
                    Done(5, "a"),
                    Wake(10, "a"),
                    Take(10, Some("a")),
                    Retry(10, "a"),
                    Take(15, Some("a")),
                ],
            ),
        ];
        let begin = Instant::now();
        let at = |millis: u64| begin + Duration::from_millis(millis);
        for (case, steps) in cases {
            let mut queue = WorkQueue::default();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Wake(time, name) => queue.wake(name, at(time)),
                    Done(time, name) => queue.done(name, at(time)),
                    Retry(time, name) => queue.retry(name, Pause::Fault, at(time)),
                    Take(time, expected) => {
                        let taken = queue.take(at(time));
                        assert_eq!(taken.as_deref(), expected, "{case}: step {number}");
                    }
                }
            }
        }
    }

    #[test]
    fn pauses_double_up_to_a_thousand_seconds() {
        for (why, failures, pause) in [
            (Pause::Fault, 0, Duration::from_millis(5)),
            (Pause::Fault, 1, Duration::from_millis(10)),
            (Pause::Fault, 10, Duration::from_millis(5120)),
            (Pause::Fault, 18, LONGEST_PAUSE),
            (Pause::Fault, u32::MAX, LONGEST_PAUSE),
            (Pause::Evidence, 0, Duration::from_millis(500)),
            (Pause::Evidence, 3, Duration::from_secs(4)),
            (Pause::Evidence, 11, LONGEST_PAUSE),
        ] {
            assert_eq!(why.after(failures), pause, "{why:?} {failures}");
        }
    }
}
