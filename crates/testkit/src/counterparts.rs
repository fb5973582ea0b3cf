//! Finds the real programs that the authority is tested against.
//!
//! `cargo xtask test` names them in the environment; a bare `cargo test` finds them where
//! `cargo xtask setup` left them. A program that is not there fails its test, it is never skipped.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// A program that is not part of this workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counterpart {
    /// Debian's Puppet agent 7.23.
    Puppet,
    /// Debian's `puppetserver ca` 2.4, the command alone.
    PuppetserverCa,
    /// Debian's Puppet agent 8.10, which runs in a root of its own.
    Puppet8,
    /// Debian's `puppetserver ca` 2.7, in the same root.
    PuppetserverCa27,
    /// Debian's Puppet Server 8.7, in the same root.
    Puppetserver,
    /// kubectl 1.36.
    Kubectl,
    /// The OpenSSL 3 command line.
    Openssl,
    /// pkilint; its first argument is the linter.
    Pkilint,
    /// schemathesis, which calls what an OpenAPI document describes.
    Schemathesis,
    /// systemd's judge of unit files.
    SystemdAnalyze,
}

/// Which of Debian's releases a Puppet program comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Debian 12: agent 7.23, `puppetserver ca` 2.4.
    Debian12,
    /// Debian 13: agent 8.10, `puppetserver ca` 2.7.
    Debian13,
}

impl Release {
    /// Its agent.
    #[must_use]
    pub fn puppet(self) -> Counterpart {
        match self {
            Self::Debian12 => Counterpart::Puppet,
            Self::Debian13 => Counterpart::Puppet8,
        }
    }

    /// Its `puppetserver ca`.
    #[must_use]
    pub fn puppetserver_ca(self) -> Counterpart {
        match self {
            Self::Debian12 => Counterpart::PuppetserverCa,
            Self::Debian13 => Counterpart::PuppetserverCa27,
        }
    }
}

/// The program was not prepared.
#[derive(thiserror::Error)]
#[error("{name} not found: run cargo xtask setup (or set {variable})")]
pub struct MissingCounterpart {
    name: &'static str,
    variable: &'static str,
}

/// A test that unwraps shows the sentence, not the fields.
impl fmt::Debug for MissingCounterpart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Counterpart {
    /// The program's path.
    pub fn find(self) -> Result<PathBuf, MissingCounterpart> {
        self.find_in(&|name| env::var_os(name))
    }

    fn find_in(
        self,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<PathBuf, MissingCounterpart> {
        let named = variable(self.variable()).map(PathBuf::from);
        let found = match named {
            Some(path) => Some(path),
            None => self.on_path(variable).or_else(|| self.in_cache(variable)),
        };
        found
            .filter(|path| path.is_file())
            .ok_or(MissingCounterpart {
                name: self.name(),
                variable: self.variable(),
            })
    }

    /// Any OpenSSL 3 and any systemd will do; the others are tested in one version, so only the prepared ones count.
    fn on_path(self, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        match self {
            Self::Openssl | Self::SystemdAnalyze => env::split_paths(&variable("PATH")?)
                .map(|folder| folder.join(self.name()))
                .find(|path| path.is_file()),
            Self::Puppet
            | Self::PuppetserverCa
            | Self::Puppet8
            | Self::PuppetserverCa27
            | Self::Puppetserver
            | Self::Kubectl
            | Self::Pkilint
            | Self::Schemathesis => None,
        }
    }

    /// The layout is that of `cargo xtask setup`.
    fn in_cache(self, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let base = variable("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache")))?;
        Some(base.join("countersign").join(match self {
            Self::Puppet => "debian/bin/puppet",
            Self::PuppetserverCa => "debian/bin/puppetserver-ca",
            Self::Puppet8 => "trixie/bin/puppet",
            Self::PuppetserverCa27 => "trixie/bin/puppetserver-ca",
            Self::Puppetserver => "trixie/bin/puppetserver",
            Self::Openssl => "debian/bin/openssl",
            Self::Kubectl => "kubectl/kubectl",
            Self::Pkilint => "pkilint/bin/pkilint",
            Self::Schemathesis => "schemathesis/bin/schemathesis",
            Self::SystemdAnalyze => "debian/bin/systemd-analyze",
        }))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Puppet => "puppet",
            Self::PuppetserverCa => "puppetserver-ca",
            Self::Puppet8 => "puppet 8",
            Self::PuppetserverCa27 => "puppetserver-ca 2.7",
            Self::Puppetserver => "puppetserver",
            Self::Kubectl => "kubectl",
            Self::Openssl => "openssl",
            Self::Pkilint => "pkilint",
            Self::Schemathesis => "schemathesis",
            Self::SystemdAnalyze => "systemd-analyze",
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Self::Puppet => "COUNTERSIGN_TEST_PUPPET",
            Self::PuppetserverCa => "COUNTERSIGN_TEST_PUPPETSERVER_CA",
            Self::Puppet8 => "COUNTERSIGN_TEST_PUPPET_8",
            Self::PuppetserverCa27 => "COUNTERSIGN_TEST_PUPPETSERVER_CA_2_7",
            Self::Puppetserver => "COUNTERSIGN_TEST_PUPPETSERVER",
            Self::Kubectl => "COUNTERSIGN_TEST_KUBECTL",
            Self::Openssl => "COUNTERSIGN_TEST_OPENSSL",
            Self::Pkilint => "COUNTERSIGN_TEST_PKILINT",
            Self::Schemathesis => "COUNTERSIGN_TEST_SCHEMATHESIS",
            Self::SystemdAnalyze => "COUNTERSIGN_TEST_SYSTEMD_ANALYZE",
        }
    }
}

/// How many processes a crash test kills: `COUNTERSIGN_TEST_KILLS`, else `default`.
pub fn kills(default: u32) -> u32 {
    env::var("COUNTERSIGN_TEST_KILLS")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn touch(path: &Path) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        path.to_owned()
    }

    #[test]
    fn the_environment_comes_before_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let cached = touch(&folder.path().join("countersign/kubectl/kubectl"));
        let named = touch(&folder.path().join("own/kubectl"));
        let cache = |name: &str| (name == "XDG_CACHE_HOME").then(|| folder.path().into());
        let both = |name: &str| match name {
            "COUNTERSIGN_TEST_KUBECTL" => Some(named.clone().into()),
            other => cache(other),
        };
        assert_eq!(Counterpart::Kubectl.find_in(&cache).unwrap(), cached);
        assert_eq!(Counterpart::Kubectl.find_in(&both).unwrap(), named);
    }

    #[test]
    fn a_named_program_that_is_gone_is_not_replaced_by_another() {
        let folder = tempfile::tempdir().unwrap();
        touch(&folder.path().join("countersign/debian/bin/puppet"));
        let fault = Counterpart::Puppet
            .find_in(&|name| match name {
                "COUNTERSIGN_TEST_PUPPET" => Some(folder.path().join("gone").into()),
                "XDG_CACHE_HOME" => Some(folder.path().into()),
                _ => None,
            })
            .unwrap_err();
        assert!(fault.to_string().contains("run cargo xtask setup"));
    }

    #[test]
    fn a_missing_program_says_how_to_get_it() {
        let fault = Counterpart::Puppet.find_in(&|_| None).unwrap_err();
        let sentence = "puppet not found: run cargo xtask setup (or set COUNTERSIGN_TEST_PUPPET)";
        assert_eq!(fault.to_string(), sentence);
        assert_eq!(format!("{fault:?}"), sentence);
    }

    #[test]
    fn only_openssl_may_come_from_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let openssl = touch(&folder.path().join("openssl"));
        touch(&folder.path().join("puppet"));
        let path = |name: &str| (name == "PATH").then(|| folder.path().into());
        assert_eq!(Counterpart::Openssl.find_in(&path).unwrap(), openssl);
        assert!(Counterpart::Puppet.find_in(&path).is_err());
    }
}
