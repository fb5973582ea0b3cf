//! How a run tells what happens: to the person who typed the command, or to the log of a service.

use anyhow::Result;
use countersign_pki::terminal_safe;
use tracing::{error, info, warn};

use crate::output;

/// Who listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    /// Somebody at a terminal, or a script: results on standard output, the rest on standard error.
    Person,
    /// A log.
    Log,
}

impl Voice {
    /// What was done.
    pub(super) fn result(self, text: &str) -> Result<()> {
        match self {
            Self::Person => output::line(&terminal_safe(text))?,
            Self::Log => info!(target: TARGET, "{text}"),
        }
        Ok(())
    }

    /// What goes on.
    pub(super) fn news(self, text: &str) {
        match self {
            Self::Person => output::complain(&terminal_safe(text)),
            Self::Log => info!(target: TARGET, "{text}"),
        }
    }

    pub(super) fn warning(self, text: &str) {
        match self {
            Self::Person => output::complain(&format!("warning: {}", terminal_safe(text))),
            Self::Log => warn!(target: TARGET, "{text}"),
        }
    }

    /// What went wrong, and is not the end.
    pub(super) fn failure(self, fault: &anyhow::Error) {
        let text = format!("{fault:#}");
        match self {
            Self::Person => output::complain(&format!("countersign: {}", terminal_safe(&text))),
            Self::Log => error!(target: TARGET, "{}", terminal_safe(&text)),
        }
    }
}

const TARGET: &str = "countersign::enroll";
