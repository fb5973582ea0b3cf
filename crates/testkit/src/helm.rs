//! The real Helm, with folders of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::counterparts::{Counterpart, MissingCounterpart};
use crate::deadline::{Finished, RunFault, run_with_deadline};

/// Helm, as one user of one cluster or without any.
#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
    home: PathBuf,
    kubeconfig: Option<PathBuf>,
}

impl Helm {
    /// For what needs no cluster; `home` is usually a temporary folder of the test.
    pub fn new(home: &Path) -> Result<Self, MissingCounterpart> {
        Ok(Self {
            program: Counterpart::Helm.find()?,
            home: home.to_owned(),
            kubeconfig: None,
        })
    }

    /// Speaks to the cluster, and as the user, of `kubeconfig`.
    #[must_use]
    pub fn at(mut self, kubeconfig: &Path) -> Self {
        self.kubeconfig = Some(kubeconfig.to_owned());
        self
    }

    /// `helm <arguments>`, as in `run(&["lint", "chart"])`.
    pub fn run(&self, arguments: &[&str]) -> Result<Finished, RunFault> {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("HOME", &self.home);
        for (name, folder) in FOLDERS {
            command.env(name, self.home.join(folder));
        }
        // One that is not there, rather than the user's own.
        let nowhere = self.home.join("no-kubeconfig");
        command.env("KUBECONFIG", self.kubeconfig.as_ref().unwrap_or(&nowhere));
        run_with_deadline(command, DEADLINE)
    }
}

const FOLDERS: [(&str, &str); 3] = [
    ("HELM_CACHE_HOME", "helm-cache"),
    ("HELM_CONFIG_HOME", "helm-config"),
    ("HELM_DATA_HOME", "helm-data"),
];
const DEADLINE: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_helm_runs_in_the_version_the_tests_expect() {
        let home = tempfile::tempdir().unwrap();
        let finished = Helm::new(home.path()).unwrap().run(&["version", "--short"]);
        let finished = finished.unwrap();
        assert!(finished.stdout.starts_with("v3.21"), "{finished}");
    }
}
