//! What a person at a terminal sees while many things are done one after the other. Nobody else sees anything.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error. It is gone when this is dropped, and what the command prints is the same with and without.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar for so many steps; none for one alone.
    pub(crate) fn of(steps: usize, what: &'static str) -> Self {
        if steps < 2 || !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(
            Some(u64::try_from(steps).unwrap_or(u64::MAX)),
            ProgressDrawTarget::stderr(),
        );
        bar.set_style(style("{msg} {bar:40} {pos}/{len} {eta}"));
        bar.set_message(what);
        bar.tick();
        Self(bar)
    }

    /// A sign of life for one step that may take long.
    pub(crate) fn waiting(what: &'static str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style("{spinner} {msg} {elapsed}"));
        bar.set_message(what);
        bar.enable_steady_tick(TICK);
        Self(bar)
    }

    /// One step was done.
    pub(crate) fn step(&self) {
        self.steps(1);
    }

    /// So many were done.
    pub(crate) fn steps(&self, count: usize) {
        self.0.inc(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Prints something that stays, above the bar.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn style(template: &'static str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

const TICK: Duration = Duration::from_millis(120);
