//! Policies that come with the program: they say in the language of policy files what Kubernetes does by itself.

use std::path::PathBuf;

use countersign_policy::PolicyFile;

use crate::config::{Config, Listen};

/// The built-in policies that a configuration leaves on, in their order.
pub(crate) fn policies(config: &Config) -> Vec<PolicyFile> {
    let section = &config.kubernetes;
    let is_on = section.approve_kubelet_clients && section.listen != Listen::Off;
    let file = || PolicyFile::new(PathBuf::from(KUBELET_CLIENTS), KUBELET_POLICY.to_owned());
    is_on.then(file).into_iter().collect()
}

/// What people are told instead of a path.
const KUBELET_CLIENTS: &str = "(built in: kubernetes.approve_kubelet_clients)";
/// Kubernetes' own approver: who renews as the node that it is, then who may ask for any node.
const KUBELET_POLICY: &str = include_str!("built_in/kubelet-clients.yaml");

#[cfg(test)]
mod tests {
    use countersign_policy::PolicySet;

    use super::*;

    /// Whatever number a site gives its documents, within reason: its rules are asked first.
    #[test]
    fn the_kubelets_policy_is_good_and_comes_last() {
        let site = "apiVersion: countersign.dev/v1alpha1\nkind: ApprovalPolicy\nmetadata: {name: zz}\nspec:\n  \
                    signers: [kubernetes.io/kube-apiserver-client-kubelet]\n  order: 999\n  \
                    rules: [{name: nobody, deny: {always: {}}}]\n";
        let site = PolicyFile::new(PathBuf::from("zz.yaml"), site.to_owned());
        let files: Vec<PolicyFile> = policies(&Config::default())
            .into_iter()
            .chain([site])
            .collect();
        let set = PolicySet::read(&files).unwrap();
        let names: Vec<String> = set.rules().map(|(_, rule, _)| rule.name.clone()).collect();
        assert_eq!(names, ["nobody", "self-node-client", "node-client"]);
        assert_eq!(set.files_needed(), []);
    }

    #[test]
    fn it_is_on_while_its_door_is_and_nobody_switches_it_off() {
        for (listen, on, count) in [
            (Config::default().kubernetes.listen, true, 1),
            (Config::default().kubernetes.listen, false, 0),
            (Listen::Off, true, 0),
        ] {
            let mut config = Config::default();
            config.kubernetes.listen = listen;
            config.kubernetes.approve_kubelet_clients = on;
            assert_eq!(policies(&config).len(), count);
        }
        assert!(Config::default().kubernetes.approve_kubelet_clients);
    }
}
