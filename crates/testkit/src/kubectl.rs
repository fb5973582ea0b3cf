//! The real kubectl, with a home and a discovery cache of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::counterparts::{Counterpart, MissingCounterpart};
use crate::deadline::{Finished, RunFault, run_with_deadline, run_with_input};

/// kubectl as one user of one cluster.
#[derive(Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
    deadline: Duration,
}

impl Kubectl {
    /// Speaks to the cluster, and as the user, of `kubeconfig`; `home` is usually a temporary folder of the test.
    pub fn new(kubeconfig: &Path, home: &Path) -> Result<Self, MissingCounterpart> {
        Ok(Self {
            program: Counterpart::Kubectl.find()?,
            kubeconfig: kubeconfig.to_owned(),
            home: home.to_owned(),
            deadline: DEADLINE,
        })
    }

    /// How long a run may take before it is killed.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    /// `kubectl <arguments>`, as in `run(&["get", "csr"])`.
    pub fn run(&self, arguments: &[&str]) -> Result<Finished, RunFault> {
        run_with_deadline(self.command(arguments), self.deadline)
    }

    /// The same with standard input, for `-f -`.
    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Result<Finished, RunFault> {
        run_with_input(self.command(arguments), input.into(), self.deadline)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(self.home.join("kubectl-cache"))
            .args(arguments)
            .env("HOME", &self.home)
            .env_remove("KUBECONFIG")
            .env_remove("KUBERC");
        command
    }
}

const DEADLINE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// kubectl as a user of a server that does not listen.
    fn kubectl(home: &Path) -> Kubectl {
        let kubeconfig = home.join("kubeconfig");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: t\n\
            clusters: [{name: t, cluster: {server: 'https://127.0.0.1:1'}}]\n\
            users: [{name: t, user: {token: t}}]\n\
            contexts: [{name: t, context: {cluster: t, user: t}}]\n";
        fs::write(&kubeconfig, text).unwrap();
        Kubectl::new(&kubeconfig, home).unwrap()
    }

    #[test]
    fn the_real_kubectl_runs_in_the_version_the_tests_expect() {
        let home = tempfile::tempdir().unwrap();
        let finished = kubectl(home.path()).run(&["version", "--client"]).unwrap();
        assert!(finished.stdout.contains("v1.36.3"), "{finished}");
    }

    #[test]
    fn the_kubeconfig_chooses_the_server() {
        let home = tempfile::tempdir().unwrap();
        let finished = kubectl(home.path()).run(&["get", "csr"]).unwrap();
        assert_eq!(finished.code, Some(1), "{finished}");
        assert!(finished.stderr.contains("127.0.0.1:1"), "{finished}");
    }

    #[test]
    fn the_input_reaches_kubectl() {
        let home = tempfile::tempdir().unwrap();
        let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n";
        let arguments = ["label", "--local", "-f", "-", "a=b", "-o", "yaml"];
        let finished = kubectl(home.path())
            .run_with_input(&arguments, object)
            .unwrap();
        assert!(finished.stdout.contains("a: b"), "{finished}");
    }
}
