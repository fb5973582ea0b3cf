//! The log on standard error, and its level, which may change while the program runs.

use anyhow::{Context as _, Result, anyhow, ensure};
use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// What is logged from now on.
pub(crate) struct LogLevel {
    replace: Box<dyn Fn(EnvFilter) -> Result<()> + Send + Sync>,
}

impl LogLevel {
    pub(crate) fn set(&self, filter: EnvFilter) -> Result<()> {
        (self.replace)(filter)
    }
}

/// Starts to log.
pub(crate) fn start(log: &Log) -> Result<LogLevel> {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter(log)?)
        .with_writer(std::io::stderr);
    let cannot = |error| anyhow!("the log level cannot be changed: {error}");
    let replace: Box<dyn Fn(EnvFilter) -> Result<()> + Send + Sync> = match log.format {
        LogFormat::Text => {
            let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let lines = lines.with_ansi(is_terminal).with_filter_reloading();
            let handle = lines.reload_handle();
            lines.init();
            Box::new(move |filter| handle.reload(filter).map_err(cannot))
        }
        LogFormat::Json => {
            let lines = lines.json().with_filter_reloading();
            let handle = lines.reload_handle();
            lines.init();
            Box::new(move |filter| handle.reload(filter).map_err(cannot))
        }
    };
    Ok(LogLevel { replace })
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
