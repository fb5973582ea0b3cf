//! The real kubectl, with a home and a discovery cache of its own.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::counterparts::{Counterpart, KubernetesRelease, MissingCounterpart};
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
        Self::of(KubernetesRelease::NEWEST, kubeconfig, home)
    }

    /// The same, of another release.
    pub fn of(
        release: KubernetesRelease,
        kubeconfig: &Path,
        home: &Path,
    ) -> Result<Self, MissingCounterpart> {
        let program = Counterpart::Kubectl(release).find()?;
        Ok(Self::at(program, kubeconfig, home))
    }

    /// Debian's, which is older than what Kubernetes supports.
    pub fn of_debian(kubeconfig: &Path, home: &Path) -> Result<Self, MissingCounterpart> {
        let program = Counterpart::DebianKubectl.find()?;
        Ok(Self::at(program, kubeconfig, home))
    }

    /// The machine's own, if it has one.
    #[must_use]
    pub fn installed(kubeconfig: &Path, home: &Path) -> Option<Self> {
        let program = env::split_paths(&env::var_os("PATH")?)
            .map(|folder| folder.join("kubectl"))
            .find(|path| path.is_file())?;
        Some(Self::at(program, kubeconfig, home))
    }

    fn at(program: PathBuf, kubeconfig: &Path, home: &Path) -> Self {
        Self {
            program,
            kubeconfig: kubeconfig.to_owned(),
            home: home.to_owned(),
            deadline: DEADLINE,
        }
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

    /// The command of [`Kubectl::run`], for one that is to run beside the test, such as `get --watch`.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
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
    fn the_real_kubectls_run_in_the_versions_the_tests_expect() {
        let home = tempfile::tempdir().unwrap();
        let nowhere = home.path().join("kubeconfig");
        for release in KubernetesRelease::ALL {
            let kubectl = Kubectl::of(release, &nowhere, home.path()).unwrap();
            let finished = kubectl.run(&["version", "--client"]).unwrap();
            let version = format!(": v{}.", release.minor());
            assert!(finished.stdout.contains(&version), "{finished}");
        }
        let debian = Kubectl::of_debian(&nowhere, home.path()).unwrap();
        let finished = debian.run(&["version", "--client"]).unwrap();
        assert!(finished.stdout.contains("v1.20."), "{finished}");
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
