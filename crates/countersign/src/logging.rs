//! The log on standard error, and its level, which may change while the program runs.

mod budget;
mod line;

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, ensure};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use tracing_subscriber::EnvFilter;

use self::budget::{Budget, TOLD_EVERY};
use self::line::Line;
use crate::config::{Log, LogFormat};

/// What is logged from now on.
pub(crate) struct LogLevel {
    replace: Box<dyn Fn(EnvFilter) -> Result<()> + Send + Sync>,
    budget: Arc<Budget>,
}

impl LogLevel {
    pub(crate) fn set(&self, filter: EnvFilter) -> Result<()> {
        (self.replace)(filter)
    }

    /// Says from time to time, and once more at the end, how many lines were not written.
    pub(crate) async fn keep_telling(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            tokio::select! {
                () = tokio::time::sleep(TOLD_EVERY) => {}
                () = stop.cancelled() => {}
            }
            self.tell_suppressed();
        }
    }

    /// Says how many lines were not written because others caused too many.
    pub(crate) fn tell_suppressed(&self) {
        if let Some(suppressed) = self.budget.suppressed() {
            // Not by the field that such lines are counted by.
            let last_from = suppressed.source.map(tracing::field::display);
            warn!(
                count = suppressed.count,
                last_from, "lines were not logged: too many"
            );
        }
    }
}

/// Starts to log.
pub(crate) fn start(log: &Log) -> Result<LogLevel> {
    let budget = Arc::new(Budget::new());
    let line = Line {
        format: log.format,
        budget: Arc::clone(&budget),
    };
    let is_coloured =
        log.format == LogFormat::Text && std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter(log)?)
        .with_writer(std::io::stderr)
        .with_ansi(is_coloured)
        .event_format(line)
        .with_filter_reloading();
    let handle = lines.reload_handle();
    lines.init();
    let replace = move |filter| {
        let changed = handle.reload(filter);
        changed.map_err(|error| anyhow!("the log level cannot be changed: {error}"))
    };
    Ok(LogLevel {
        replace: Box::new(replace),
        budget,
    })
}

/// Fails on what the filter would take for the name of a part of the program, and then log nothing else. What the
/// environment says is not checked: it is for who knows the filter's whole language.
pub(crate) fn check(level: &str) -> Result<()> {
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    for directive in level.split(',').map(str::trim) {
        let is_known = match directive.rsplit_once('=') {
            Some((target, word)) => !target.is_empty() && is_level(word),
            None => is_level(directive),
        };
        ensure!(
            is_known,
            "log.level: {directive:?} is neither a level ({}) nor PART=LEVEL, for example countersign_server=debug",
            LEVELS.join(", ")
        );
    }
    Ok(())
}

/// What the configuration says is logged, unless the environment says otherwise.
pub(crate) fn filter(log: &Log) -> Result<EnvFilter> {
    let level = std::env::var(EnvFilter::DEFAULT_ENV)
        .ok()
        .filter(|level| !level.is_empty());
    let level = level.as_ref().unwrap_or(&log.level);
    EnvFilter::try_new(level).with_context(|| format!("log level {level:?} cannot be understood"))
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
