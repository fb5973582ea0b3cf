//! apt without the machine: its sources, proxies and keys, but lists, archives, state and locks in a scratch folder,
//! against an empty package database. No root needed, and the machine's packages do not change.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::invocation::{on_path, quietly};

/// apt in a scratch folder.
pub(crate) struct Apt {
    scratch: PathBuf,
    configuration: PathBuf,
    updated: Result<String>,
}

impl Apt {
    /// Reads the lists of the machine's sources.
    pub(crate) fn in_scratch(scratch: &Path) -> Result<Self> {
        for program in ["apt-get", "dpkg-deb"] {
            ensure!(
                on_path(program).is_some(),
                "{program} is missing: the Puppet programs come from Debian's packages"
            );
        }
        for folder in ["state/lists/partial", "archives/partial", "log"] {
            fs::create_dir_all(scratch.join(folder))?;
        }
        fs::write(scratch.join("status"), "")?;
        let configuration = scratch.join("apt.conf");
        fs::write(&configuration, apt_configuration(scratch))?;
        let mut apt = Self {
            scratch: scratch.to_owned(),
            configuration,
            updated: Ok(String::new()),
        };
        // One dead third-party source fails the update although Debian's own lists arrived.
        apt.updated = quietly(&mut apt.get("update"));
        Ok(apt)
    }

    /// The archives of `packages` and of everything that they depend on.
    pub(crate) fn with_dependencies(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let mut command = self.get("install");
        command
            .args(["--download-only", "--yes", "--no-install-recommends"])
            .args(packages);
        self.explained(quietly(&mut command))?;
        archives(&self.scratch.join("archives"))
    }

    /// The archives of `packages` alone.
    pub(crate) fn without_dependencies(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let folder = self.scratch.join("alone");
        fs::create_dir_all(&folder)?;
        let mut command = self.get("download");
        command.args(packages).current_dir(&folder);
        self.explained(quietly(&mut command))?;
        archives(&folder)
    }

    /// Where the machine gets Debian itself from, if it does.
    pub(crate) fn debian_mirror(&self) -> Result<Option<String>> {
        let mut command = self.get("indextargets");
        command.args(["--format", "$(REPO_URI)"]);
        command.args(["Created-By: Packages", "Origin: Debian", "Label: Debian"]);
        let found = quietly(&mut command)?;
        let mut addresses = found.lines().filter(|line| line.starts_with("http"));
        Ok(addresses.next().map(str::to_owned))
    }

    /// A value of the machine's configuration; empty if it has none.
    pub(crate) fn setting(&self, name: &str) -> Result<String> {
        let mut command = Command::new("apt-config");
        command.arg("-c").arg(&self.configuration);
        command.args(["dump", "--format", "%f %v%n", name]);
        let settings = quietly(&mut command)?;
        let mut values = settings.lines().filter_map(|line| line.split_once(' '));
        let value = values.find_map(|(key, value)| (key == name).then_some(value));
        Ok(value.unwrap_or_default().to_owned())
    }

    /// If the lists were not complete, that is the likely cause of what went wrong later.
    fn explained(&self, result: Result<String>) -> Result<()> {
        match (result, &self.updated) {
            (Ok(_), _) => Ok(()),
            (Err(error), Ok(_)) => Err(error),
            (Err(error), Err(cause)) => Err(error.context(format!("{cause:#}"))),
        }
    }

    fn get(&self, action: &str) -> Command {
        let mut command = Command::new("apt-get");
        command
            .arg("-c")
            .arg(&self.configuration)
            .arg(action)
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

fn archives(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut archives = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            archives.push(path);
        }
    }
    archives.sort();
    Ok(archives)
}

/// Read after the machine's configuration (proxies stay), so the hooks of `docker-clean`, appstream
/// and the like are dropped here: they would touch folders of the system.
fn apt_configuration(scratch: &Path) -> String {
    let scratch = scratch.display();
    format!(
        r#"{WITHOUT_HOOKS}Dir::State "{scratch}/state";
Dir::State::status "{scratch}/status";
Dir::State::lists "{scratch}/state/lists";
Dir::Cache "{scratch}";
Dir::Cache::archives "{scratch}/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Log "{scratch}/log";
APT::Sandbox::User "root";
APT::Keep-Downloaded-Packages "true";
Binary::apt-get::APT::Keep-Downloaded-Packages "true";
Acquire::Languages "none";
Acquire::Retries "3";
"#
    )
}

/// First in every configuration of ours.
pub(crate) const WITHOUT_HOOKS: &str = "\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apt_writes_only_below_the_scratch_folder() {
        let configuration = apt_configuration(Path::new("/scratch"));
        let folders: Vec<&str> = configuration
            .lines()
            .filter(|line| line.starts_with("Dir::"))
            .filter_map(|line| line.split('"').nth(1))
            .filter(|value| !value.is_empty())
            .collect();
        assert_eq!(folders.len(), 6);
        assert!(
            folders.iter().all(|folder| folder.starts_with("/scratch")),
            "{folders:?}"
        );
    }
}
