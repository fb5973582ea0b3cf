//! Finds the real programs that the authority is tested against.
//!
//! `cargo xtask setup` leaves them in the cache folder; the environment may name others, one by one. A program that is
//! not there fails its test, it is never skipped.

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
    /// kubectl of a release.
    Kubectl(KubernetesRelease),
    /// Debian's kubectl 1.20.
    DebianKubectl,
    /// A shared informer on certificate signing requests, with client-go of a release.
    Informer(KubernetesRelease),
    /// The part of a kubelet of the newest release that gets certificates.
    Kubelet,
    /// The API server of the newest release, or that of `KUBEBUILDER_ASSETS`.
    KubeApiserver,
    /// The same for the controllers.
    KubeControllerManager,
    /// etcd 3.6, or that of `KUBEBUILDER_ASSETS`.
    Etcd,
    /// Helm 3.21, which renders and installs charts.
    Helm,
    /// Python with its `kubernetes` package, and with kr8s.
    PythonKubernetes,
    /// JavaScript with `@kubernetes/client-node`.
    NodeKubernetes,
    /// Debian's HAProxy 2.6.
    Haproxy,
    /// The OpenSSL 3 command line.
    Openssl,
    /// pkilint; its first argument is the linter.
    Pkilint,
    /// schemathesis, which calls what an OpenAPI document describes.
    Schemathesis,
    /// systemd's judge of unit files.
    SystemdAnalyze,
    /// Debian's PostgreSQL 15; the other programs of its release lie beside it.
    Postgres,
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

/// A release of Kubernetes whose clients are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the numbers")]
pub enum KubernetesRelease {
    V1_28,
    V1_29,
    V1_31,
    V1_32,
    V1_33,
    V1_36,
}

impl KubernetesRelease {
    /// All of them, the oldest first.
    pub const ALL: [Self; 6] = [
        Self::V1_28,
        Self::V1_29,
        Self::V1_31,
        Self::V1_32,
        Self::V1_33,
        Self::V1_36,
    ];

    /// The one whose servers are there too.
    pub const NEWEST: Self = Self::V1_36;

    /// As in `1.28`.
    #[must_use]
    pub fn minor(self) -> &'static str {
        match self {
            Self::V1_28 => "1.28",
            Self::V1_29 => "1.29",
            Self::V1_31 => "1.31",
            Self::V1_32 => "1.32",
            Self::V1_33 => "1.33",
            Self::V1_36 => "1.36",
        }
    }

    fn is_newest(self) -> bool {
        self == Self::NEWEST
    }
}

/// The program was not prepared.
#[derive(thiserror::Error)]
#[error("{name} not found: run cargo xtask setup (or set {variable})")]
pub struct MissingCounterpart {
    name: String,
    variable: String,
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
        let named = variable(&self.variable()).map(PathBuf::from);
        let found = match named {
            Some(path) => Some(path),
            None => self.provided(variable).or_else(|| self.in_cache(variable)),
        };
        found
            .filter(|path| path.is_file())
            .ok_or_else(|| MissingCounterpart {
                name: self.name(),
                variable: self.variable(),
            })
    }

    /// Any OpenSSL 3, any systemd and any API server that the user chose will do; the others are tested in known
    /// versions, so only the prepared ones count.
    fn provided(self, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let folders = match self {
            Self::Openssl | Self::SystemdAnalyze => variable("PATH")?,
            Self::KubeApiserver | Self::KubeControllerManager | Self::Etcd => {
                variable("KUBEBUILDER_ASSETS")?
            }
            Self::Puppet
            | Self::PuppetserverCa
            | Self::Puppet8
            | Self::PuppetserverCa27
            | Self::Puppetserver
            | Self::Kubectl(_)
            | Self::DebianKubectl
            | Self::Informer(_)
            | Self::Kubelet
            | Self::Helm
            | Self::Haproxy
            | Self::PythonKubernetes
            | Self::NodeKubernetes
            | Self::Pkilint
            | Self::Schemathesis
            | Self::Postgres => return None,
        };
        env::split_paths(&folders)
            .map(|folder| folder.join(self.name()))
            .find(|path| path.is_file())
    }

    /// The layout is that of `cargo xtask setup`.
    fn in_cache(self, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let base = variable("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache")))?;
        let place = match self {
            Self::Puppet => "debian/bin/puppet",
            Self::PuppetserverCa => "debian/bin/puppetserver-ca",
            Self::Puppet8 => "trixie/bin/puppet",
            Self::PuppetserverCa27 => "trixie/bin/puppetserver-ca",
            Self::Puppetserver => "trixie/bin/puppetserver",
            Self::Openssl => "debian/bin/openssl",
            Self::Kubectl(release) => &format!("kubernetes-{}/kubectl", release.minor()),
            Self::DebianKubectl => "debian-kubectl/usr/bin/kubectl",
            Self::Informer(release) => &format!("kubernetes-{}/informer", release.minor()),
            Self::Kubelet => "kubelet/kubelet",
            Self::KubeApiserver => "kubernetes-servers/kube-apiserver",
            Self::KubeControllerManager => "kubernetes-servers/kube-controller-manager",
            Self::Etcd => "etcd/etcd",
            Self::Helm => "helm/helm",
            Self::Haproxy => "haproxy/bin/haproxy",
            Self::PythonKubernetes => "kubernetes-python/bin/kubernetes-python",
            Self::NodeKubernetes => "kubernetes-node/bin/kubernetes-node",
            Self::Pkilint => "pkilint/bin/pkilint",
            Self::Schemathesis => "schemathesis/bin/schemathesis",
            Self::SystemdAnalyze => "debian/bin/systemd-analyze",
            Self::Postgres => "postgres/bin/postgres",
        };
        Some(base.join("countersign").join(place))
    }

    fn name(self) -> String {
        let name = match self {
            Self::Puppet => "puppet",
            Self::PuppetserverCa => "puppetserver-ca",
            Self::Puppet8 => "puppet 8",
            Self::PuppetserverCa27 => "puppetserver-ca 2.7",
            Self::Puppetserver => "puppetserver",
            Self::Kubectl(release) if release.is_newest() => "kubectl",
            Self::Kubectl(release) => &format!("kubectl {}", release.minor()),
            Self::DebianKubectl => "kubectl 1.20",
            Self::Informer(release) if release.is_newest() => "informer",
            Self::Informer(release) => &format!("informer {}", release.minor()),
            Self::Kubelet => "kubelet",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::Etcd => "etcd",
            Self::Helm => "helm",
            Self::Haproxy => "haproxy",
            Self::PythonKubernetes => "python kubernetes",
            Self::NodeKubernetes => "node kubernetes",
            Self::Openssl => "openssl",
            Self::Pkilint => "pkilint",
            Self::Schemathesis => "schemathesis",
            Self::SystemdAnalyze => "systemd-analyze",
            Self::Postgres => "postgres",
        };
        name.to_owned()
    }

    /// The name in capitals, as in `COUNTERSIGN_TEST_PUPPETSERVER_CA_2_7`.
    fn variable(self) -> String {
        let word = |letter: char| match letter {
            '-' | '.' | ' ' => '_',
            other => other.to_ascii_uppercase(),
        };
        let name: String = self.name().chars().map(word).collect();
        format!("COUNTERSIGN_TEST_{name}")
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

    const KUBECTL: Counterpart = Counterpart::Kubectl(KubernetesRelease::NEWEST);

    fn touch(path: &Path) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        path.to_owned()
    }

    #[test]
    fn the_environment_comes_before_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let cached = touch(&folder.path().join("countersign/kubernetes-1.36/kubectl"));
        let named = touch(&folder.path().join("own/kubectl"));
        let cache = |name: &str| (name == "XDG_CACHE_HOME").then(|| folder.path().into());
        let both = |name: &str| match name {
            "COUNTERSIGN_TEST_KUBECTL" => Some(named.clone().into()),
            other => cache(other),
        };
        assert_eq!(KUBECTL.find_in(&cache).unwrap(), cached);
        assert_eq!(KUBECTL.find_in(&both).unwrap(), named);
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
    fn the_variables_say_program_and_version() {
        for (counterpart, variable) in [
            (KUBECTL, "COUNTERSIGN_TEST_KUBECTL"),
            (
                Counterpart::Kubectl(KubernetesRelease::V1_28),
                "COUNTERSIGN_TEST_KUBECTL_1_28",
            ),
            (Counterpart::Puppet8, "COUNTERSIGN_TEST_PUPPET_8"),
            (
                Counterpart::PuppetserverCa27,
                "COUNTERSIGN_TEST_PUPPETSERVER_CA_2_7",
            ),
            (
                Counterpart::SystemdAnalyze,
                "COUNTERSIGN_TEST_SYSTEMD_ANALYZE",
            ),
        ] {
            assert_eq!(counterpart.variable(), variable);
        }
    }

    #[test]
    fn the_servers_of_the_users_choice_come_before_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let cached = touch(&folder.path().join("countersign/etcd/etcd"));
        let chosen = touch(&folder.path().join("assets/kube-apiserver"));
        let assets = chosen.parent().unwrap();
        let variable = |name: &str| match name {
            "KUBEBUILDER_ASSETS" => Some(assets.into()),
            "XDG_CACHE_HOME" => Some(folder.path().into()),
            _ => None,
        };
        let server = Counterpart::KubeApiserver.find_in(&variable).unwrap();
        assert_eq!(server, chosen);
        assert_eq!(Counterpart::Etcd.find_in(&variable).unwrap(), cached);
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
