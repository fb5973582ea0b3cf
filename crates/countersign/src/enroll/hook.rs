//! The program that runs after a certificate was installed: it reloads whatever uses it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

use super::issued::Chain;
use super::place::Place;
use super::token::VARIABLE;
use crate::cli::HookArgs;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Enrolled,
    Renewed,
}

impl Event {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Enrolled => "enrolled",
            Self::Renewed => "renewed",
        }
    }
}

/// A program with its arguments. No shell reads them.
#[derive(Clone, Debug)]
pub(super) struct Hook {
    program: PathBuf,
    arguments: Vec<OsString>,
    timeout: Duration,
}

impl Hook {
    pub(super) fn new(args: &HookArgs) -> Option<Self> {
        Some(Self {
            program: args.hook.clone()?,
            arguments: args.hook_arg.clone(),
            timeout: Duration::from_secs(args.hook_timeout.as_seconds()),
        })
    }

    /// Runs it to its end or its deadline, with everything that it started.
    pub(super) async fn run(
        &self,
        event: Event,
        name: &str,
        place: &Place,
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
        let mut child = command
            .spawn()
            .with_context(|| format!("the hook {shown} cannot be started; {STAYS}"))?;
        let group = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let Ok(ended) = tokio::time::timeout(self.timeout, child.wait()).await else {
            if let Some(group) = group {
                let _gone_meanwhile = kill_process_group(group, Signal::KILL);
            }
            bail!(
                "the hook {shown} was stopped because it took longer than {} s (--hook-timeout); {STAYS}",
                self.timeout.as_secs()
            );
        };
        let status = ended.with_context(|| format!("the hook {shown} was lost"))?;
        ensure!(
            status.success(),
            "the hook {shown} failed with {status}; {STAYS}"
        );
        Ok(())
    }
}

const STAYS: &str = "the certificate is installed: correct the hook and run it yourself";
