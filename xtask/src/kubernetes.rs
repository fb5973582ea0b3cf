//! What of Kubernetes the tests run: the servers of the newest release and their etcd, kubectl and a client-go informer
//! of several releases, a kubelet's certificate client, Helm, and the Python client.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::cache::Builder;
use crate::go::{Effort, Programs};
use crate::invocation::quietly;
use crate::{debian_kubectl, node, python};

/// Where the parts are; an error where one could not be had.
pub(crate) struct Kubernetes {
    /// `kubectl` and `informer`, by release.
    clients: Vec<(Release, Result<PathBuf>)>,
    /// Those of `kube-apiserver` and `kube-controller-manager` that `KUBEBUILDER_ASSETS` does not have.
    servers: Result<PathBuf>,
    /// `etcd`, unless `KUBEBUILDER_ASSETS` has it.
    etcd: Result<PathBuf>,
    kubelet: Result<PathBuf>,
    helm: Result<PathBuf>,
    debian_kubectl: Result<PathBuf>,
    python: Result<PathBuf>,
    node: Result<PathBuf>,
}

/// A release whose clients are tested: kubectl and client-go of it, all from one module file.
#[derive(Clone, Copy)]
struct Release {
    /// As in `kubernetes-1.28`, the name of its part.
    minor: &'static str,
    version: &'static str,
}

impl Kubernetes {
    /// Builds what is missing, one after the other: each uses every processor.
    pub(crate) fn gather(builder: &Builder<'_>) -> Self {
        let assets = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let has = |program: &str| {
            assets
                .as_ref()
                .is_some_and(|assets| assets.join(program).is_file())
        };
        let servers: Vec<&str> = SERVERS.into_iter().filter(|name| !has(name)).collect();
        Self {
            servers: ensure_servers(builder, &servers),
            etcd: match assets.as_ref().filter(|_| has("etcd")) {
                Some(assets) => Ok(assets.clone()),
                None => ensure_etcd(builder),
            },
            kubelet: ensure_kubelet(builder),
            helm: ensure_helm(builder),
            debian_kubectl: debian_kubectl::ensure(builder),
            python: python::KUBERNETES.ensure(builder),
            node: node::ensure_client(builder),
            clients: RELEASES
                .into_iter()
                .map(|release| (release, release.ensure(builder)))
                .collect(),
        }
    }

    /// What to tell a person, name and place.
    pub(crate) fn places(&self) -> Vec<(String, Option<&Path>)> {
        let clients = self
            .clients
            .iter()
            .map(|(release, part)| (format!("kubectl {}", release.minor), part.as_deref().ok()));
        let others = [
            ("Kubernetes servers", &self.servers),
            ("etcd", &self.etcd),
            ("kubelet's certificate client", &self.kubelet),
            ("Helm", &self.helm),
            ("Debian's kubectl", &self.debian_kubectl),
            ("Python's kubernetes and kr8s", &self.python),
            ("JavaScript's client", &self.node),
        ];
        let others = others.map(|(name, part)| (name.to_owned(), part.as_deref().ok()));
        clients.chain(others).collect()
    }

    pub(crate) fn faults(&self) -> Vec<&anyhow::Error> {
        let others = [
            &self.servers,
            &self.etcd,
            &self.kubelet,
            &self.helm,
            &self.debian_kubectl,
            &self.python,
            &self.node,
        ];
        let clients = self.clients.iter().map(|(_, part)| part);
        clients
            .chain(others)
            .filter_map(|part| part.as_ref().err())
            .collect()
    }
}

impl Release {
    /// The module's own file is that of the newest release.
    fn modfile(self) -> String {
        match self.version {
            SERVER_VERSION => "go.mod".to_owned(),
            version => format!("{version}.mod"),
        }
    }

    fn ensure(self, builder: &Builder<'_>) -> Result<PathBuf> {
        let programs = Programs {
            part: &format!("kubernetes-{}", self.minor),
            module: "clients",
            modfile: &self.modfile(),
            packages: &["./kubectl", "./informer"],
            release: self.version,
            // The newest one shares what was compiled for the servers.
            effort: match self.version {
                SERVER_VERSION => Effort::Full,
                _ => Effort::Little,
            },
        };
        programs.ensure(builder, |part| {
            let mut kubectl = Command::new(part.join("kubectl"));
            says(kubectl.args(["version", "--client"]), self.version)
        })
    }
}

fn ensure_servers(builder: &Builder<'_>, names: &[&str]) -> Result<PathBuf> {
    let packages: Vec<String> = names
        .iter()
        .map(|name| format!("k8s.io/kubernetes/cmd/{name}"))
        .collect();
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    if packages.is_empty() {
        return Ok(PathBuf::from(
            env::var_os("KUBEBUILDER_ASSETS").unwrap_or_default(),
        ));
    }
    let programs = Programs {
        part: "kubernetes-servers",
        module: "cluster",
        modfile: "go.mod",
        packages: &packages,
        release: SERVER_VERSION,
        effort: Effort::Full,
    };
    programs.ensure(builder, |part| {
        names.iter().try_for_each(|name| {
            says(
                Command::new(part.join(name)).arg("--version"),
                SERVER_VERSION,
            )
        })
    })
}

fn ensure_kubelet(builder: &Builder<'_>) -> Result<PathBuf> {
    let programs = Programs {
        part: "kubelet",
        module: "cluster",
        modfile: "go.mod",
        packages: &["./kubelet"],
        release: SERVER_VERSION,
        effort: Effort::Full,
    };
    programs.ensure(builder, |_| Ok(()))
}

fn ensure_etcd(builder: &Builder<'_>) -> Result<PathBuf> {
    let programs = Programs {
        part: "etcd",
        module: "etcd",
        modfile: "go.mod",
        packages: &["."],
        release: "",
        effort: Effort::Full,
    };
    programs.ensure(builder, |part| {
        says(
            Command::new(part.join("etcd")).arg("--version"),
            ETCD_VERSION,
        )
    })
}

fn ensure_helm(builder: &Builder<'_>) -> Result<PathBuf> {
    let programs = Programs {
        part: "helm",
        module: "helm",
        modfile: "go.mod",
        packages: &["helm.sh/helm/v3/cmd/helm"],
        release: "",
        effort: Effort::Full,
    };
    programs.ensure(builder, |part| {
        // Only its own build scripts tell it the rest of the version.
        let (minor, _) = HELM_VERSION.rsplit_once('.').unwrap_or((HELM_VERSION, ""));
        says(
            Command::new(part.join("helm")).args(["version", "--short"]),
            minor,
        )
    })
}

fn says(command: &mut Command, version: &str) -> Result<()> {
    let said = quietly(command)?;
    ensure!(
        said.contains(version),
        "{} says it is {said:?}, not {version}",
        command.get_program().display()
    );
    Ok(())
}

const SERVERS: [&str; 2] = ["kube-apiserver", "kube-controller-manager"];
const SERVER_VERSION: &str = "v1.36.3";
const ETCD_VERSION: &str = "3.6.16";
const HELM_VERSION: &str = "v3.21.4";

/// `testkit::counterparts::KubernetesRelease` has the same ones.
const RELEASES: [Release; 6] = [
    Release {
        minor: "1.36",
        version: SERVER_VERSION,
    },
    Release {
        minor: "1.33",
        version: "v1.33.13",
    },
    Release {
        minor: "1.32",
        version: "v1.32.13",
    },
    Release {
        minor: "1.31",
        version: "v1.31.14",
    },
    Release {
        minor: "1.29",
        version: "v1.29.15",
    },
    Release {
        minor: "1.28",
        version: "v1.28.15",
    },
];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::invocation::workspace;

    fn module(file: &str) -> String {
        fs::read_to_string(workspace().join("xtask/kubernetes").join(file)).unwrap()
    }

    #[test]
    fn the_pinned_modules_and_the_expected_versions_agree() {
        for release in RELEASES {
            let staged = release.version.replacen("v1.", "v0.", 1);
            let module = module(&format!("clients/{}", release.modfile()));
            assert!(module.contains(&format!("k8s.io/kubectl {staged}\n")));
            assert!(module.contains(&format!("k8s.io/client-go {staged}\n")));
            assert!(release.version.starts_with(&format!("v{}.", release.minor)));
        }
        let etcd = module("etcd/go.mod");
        assert!(etcd.contains(&format!("go.etcd.io/etcd/server/v3 v{ETCD_VERSION}\n")));
        let helm = module("helm/go.mod");
        assert!(helm.contains(&format!("helm.sh/helm/v3 {HELM_VERSION}\n")));
    }

    #[test]
    fn every_staging_module_is_that_of_the_release() {
        let module = module("cluster/go.mod");
        assert!(module.contains(&format!("k8s.io/kubernetes {SERVER_VERSION}\n")));
        let staged = SERVER_VERSION.replacen("v1.", "v0.", 1);
        let replaced: Vec<&str> = module.lines().filter(|line| line.contains("=>")).collect();
        assert!(replaced.len() > 20);
        assert!(replaced.iter().all(|line| line.ends_with(&staged)));
    }
}
