//! The program that runs after a certificate was installed: it reloads whatever uses it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

use crate::error::{EnrolError, Result};
use crate::issued::Chain;
use crate::paths::CertificatePaths;
use crate::token::VARIABLE;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Enrolled,
    Renewed,
}

impl Event {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Enrolled => "enrolled",
            Self::Renewed => "renewed",
        }
    }
}

/// A program with its arguments. No shell reads them.
#[derive(Clone, Debug)]
pub struct Hook {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// How long it may take.
    pub timeout: Duration,
}

impl Hook {
    /// Runs it to its end or its deadline, with everything that it started.
    pub(crate) async fn run(
        &self,
        event: Event,
        name: &str,
        place: &CertificatePaths,
        chain: &Chain,
    ) -> Result<()> {
        let shown = self.program.display();
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env_remove(VARIABLE)
            .env("COUNTERSIGN_EVENT", event.word())
            .env("COUNTERSIGN_NAME", name)
            .env("COUNTERSIGN_CERT_FILE", &place.certificate)
            .env("COUNTERSIGN_KEY_FILE", &place.key)
            .env("COUNTERSIGN_CA_FILE", &place.ca)
            .env("COUNTERSIGN_CRL_FILE", &place.crl)
            .env(
                "COUNTERSIGN_NOT_AFTER",
                chain.leaf().not_after().to_string(),
            )
            .stdin(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|fault| {
            let what = format!("the hook {shown} cannot be started; {STAYS}");
            EnrolError::Hook(what, Some(fault))
        })?;
        let group = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let Ok(ended) = tokio::time::timeout(self.timeout, child.wait()).await else {
            if let Some(group) = group {
                let _gone_meanwhile = kill_process_group(group, Signal::KILL);
            }
            let what = format!(
                "the hook {shown} was stopped because it took longer than {} s (--hook-timeout); {STAYS}",
                self.timeout.as_secs()
            );
            return Err(EnrolError::Hook(what, None));
        };
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                let what = format!("the hook {shown} failed with {status}; {STAYS}");
                Err(EnrolError::Hook(what, None))
            }
            Err(fault) => {
                let what = format!("the hook {shown} was lost");
                Err(EnrolError::Hook(what, Some(fault)))
            }
        }
    }
}

const STAYS: &str = "the certificate is installed: correct the hook and run it yourself";
