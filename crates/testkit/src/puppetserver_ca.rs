//! The real `puppetserver ca`, with a configuration of the test's making.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::counterparts::{MissingCounterpart, Release};
use crate::deadline::{Finished, RunFault, run_with_deadline};

/// The command as one administrator has it.
#[derive(Debug)]
pub struct PuppetserverCa {
    program: PathBuf,
    config: PathBuf,
    home: PathBuf,
}

impl PuppetserverCa {
    /// Reads `config`, a `puppet.conf`. Both paths are usually below a temporary folder of the test.
    pub fn of(release: Release, config: &Path, home: &Path) -> Result<Self, MissingCounterpart> {
        Ok(Self {
            program: release.puppetserver_ca().find()?,
            config: config.to_owned(),
            home: home.to_owned(),
        })
    }

    /// `puppetserver ca <action> --config FILE <arguments>`.
    pub fn run(&self, action: &str, arguments: &[&str]) -> Result<Finished, RunFault> {
        let mut command = Command::new(&self.program);
        command
            .arg(action)
            .arg("--config")
            .arg(&self.config)
            .args(arguments)
            .env("HOME", &self.home)
            .env("LC_ALL", "C.UTF-8");
        run_with_deadline(command, DEADLINE)
    }
}

/// Ruby alone needs a second to start, more on a busy machine; some actions make RSA keys.
const DEADLINE: Duration = Duration::from_secs(120);
