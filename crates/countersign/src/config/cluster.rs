//! What `countersign cluster` reads of the configuration.

use std::num::NonZeroUsize;
use std::time::Duration;

use countersign_cluster::{CleanerSettings, DialSettings};
use countersign_policy::Network;
use serde::{Deserialize, Serialize};

use super::{ResourcesSection, Span};

/// How the controllers work on a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ClusterSection {
    pub(crate) workers: NonZeroUsize,
    pub(crate) machines: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) machine_namespace: Option<String>,
    pub(crate) kubelet: KubeletSection,
    pub(crate) cleaner: CleanerSection,
    pub(crate) resources: ResourcesSection,
    pub(crate) pod_grace: Span,
}

impl Default for ClusterSection {
    fn default() -> Self {
        Self {
            workers: NonZeroUsize::new(32).unwrap_or(NonZeroUsize::MIN),
            machines: MACHINES.map(str::to_owned).to_vec(),
            machine_namespace: None,
            kubelet: KubeletSection::default(),
            cleaner: CleanerSection::default(),
            resources: ResourcesSection::default(),
            pod_grace: Span::seconds(30),
        }
    }
}

/// Where nodes may be dialled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KubeletSection {
    pub(crate) port: u16,
    pub(crate) prefixes: Vec<Network>,
}

impl Default for KubeletSection {
    fn default() -> Self {
        let DialSettings { port, prefixes } = DialSettings::default();
        Self { port, prefixes }
    }
}

impl KubeletSection {
    pub(crate) fn settings(&self) -> DialSettings {
        DialSettings {
            port: self.port,
            prefixes: self.prefixes.clone(),
        }
    }
}

/// How long requests of the cluster are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CleanerSection {
    pub(crate) interval: Span,
    pub(crate) pending: Span,
    pub(crate) approved: Span,
    pub(crate) issued: Span,
    pub(crate) denied: Span,
    pub(crate) failed: Span,
    pub(crate) per_requester: usize,
}

impl Default for CleanerSection {
    fn default() -> Self {
        Self {
            interval: Span::seconds(300),
            pending: Span::hours(24),
            approved: Span::hours(24),
            issued: Span::hours(1),
            denied: Span::hours(1),
            failed: Span::hours(1),
            per_requester: 10_000,
        }
    }
}

impl CleanerSection {
    pub(crate) fn settings(&self) -> CleanerSettings {
        let span = |span: Span| Duration::from_secs(span.as_seconds());
        CleanerSettings {
            interval: span(self.interval),
            pending: span(self.pending),
            approved: span(self.approved),
            issued: span(self.issued),
            denied: span(self.denied),
            failed: span(self.failed),
            per_requester: self.per_requester,
        }
    }
}

/// OpenShift's, Cluster API's, ours.
const MACHINES: [&str; 3] = [
    "machine.openshift.io",
    "cluster.x-k8s.io",
    "countersign.dev",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_controllers() {
        let section = ClusterSection::default();
        assert_eq!(section.cleaner.settings(), CleanerSettings::default());
        assert_eq!(section.kubelet.settings().port, 10250);
    }
}
