//! Why a verb of `ca` did nothing, in the words of `puppetserver ca`.

use std::path::{Path, PathBuf};

use countersign_pki::terminal_safe;
use countersign_puppet_compat::ToolConfFault;

use crate::output::complain;

/// What is printed to standard error before the command ends with status 1.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// Things that are wrong, each on its line.
    #[error("{}", .0.join("; "))]
    Errors(Vec<String>),
    /// The command line is wrong: the same, and where to read on.
    #[error("{}", errors.join("; "))]
    Usage {
        errors: Vec<String>,
        verb: &'static str,
    },
    /// The verb works on the files of a stopped server.
    #[error("{RUNNING}")]
    Running,
}

impl From<ToolConfFault> for Refusal {
    fn from(fault: ToolConfFault) -> Self {
        Self::error(fault.to_string())
    }
}

impl Refusal {
    pub(crate) fn error(line: impl Into<String>) -> Self {
        Self::Errors(vec![line.into()])
    }

    pub(crate) fn print(&self) {
        match self {
            Self::Errors(lines) => print_errors(lines),
            Self::Usage { errors, verb } => {
                print_errors(errors);
                complain(&format!("\nSee `countersign ca {verb} --help`."));
            }
            Self::Running => complain(RUNNING),
        }
    }
}

/// Errors that do not end the command, as the original shows them.
pub(crate) fn print_errors(lines: &[String]) {
    complain("Error:");
    for line in lines {
        // Entries of files that were refused are shown as they are, line by line.
        line.lines().for_each(|part| complain(&terminal_safe(part)));
    }
}

/// Every file that cannot be read is named.
pub(crate) fn readable(paths: &[&Path]) -> Result<(), Refusal> {
    let unreadable = paths
        .iter()
        .filter(|path| std::fs::File::open(path).is_err());
    let errors: Vec<String> = unreadable
        .map(|path| format!("Could not read file '{}'", path.display()))
        .collect();
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Refusal::Errors(errors))
    }
}

/// A sentence for each file that is there.
pub(crate) fn existing(paths: &[PathBuf]) -> Vec<String> {
    let there = paths.iter().filter(|path| path.symlink_metadata().is_ok());
    there
        .map(|path| format!("Existing file at '{}'", path.display()))
        .collect()
}

const RUNNING: &str =
    "Puppetserver service is running. Please stop it before attempting to run this command.";
