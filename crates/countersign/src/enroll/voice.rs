//! How a run tells what happens: to the person who typed the command, or to the log of a service.

use std::error::Error;
use std::io;

use countersign_enroll::{Voice, with_causes};
use countersign_pki::terminal_safe;
use tracing::{error, info, warn};

use crate::output;

/// Who listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    /// Somebody at a terminal, or a script: results on standard output, the rest on standard error.
    Person,
    /// A log.
    Log,
}

impl Voice for Listener {
    /// What was done.
    fn result(&self, text: &str) -> io::Result<()> {
        match self {
            Self::Person => output::line(&terminal_safe(text)).map_err(io::Error::other)?,
            Self::Log => info!(target: TARGET, "{text}"),
        }
        Ok(())
    }

    /// What goes on.
    fn news(&self, text: &str) {
        match self {
            Self::Person => output::complain(&terminal_safe(text)),
            Self::Log => info!(target: TARGET, "{text}"),
        }
    }

    fn warning(&self, text: &str) {
        match self {
            Self::Person => output::complain(&format!("warning: {}", terminal_safe(text))),
            Self::Log => warn!(target: TARGET, "{text}"),
        }
    }

    /// What went wrong, and is not the end.
    fn failure(&self, fault: &(dyn Error + 'static)) {
        let text = with_causes(fault);
        match self {
            Self::Person => output::complain(&format!("countersign: {}", terminal_safe(&text))),
            Self::Log => error!(target: TARGET, "{}", terminal_safe(&text)),
        }
    }
}

const TARGET: &str = "countersign::enroll";
