//! What OpenShift calls the things that rules about nodes look at.

/// The API group of its Machines.
pub const MACHINE_GROUP: &str = "machine.openshift.io";
/// The API group of its Network.
pub const NETWORK_GROUP: &str = "config.openshift.io";
/// The API group of its HostSubnets.
pub const HOST_SUBNET_GROUP: &str = "network.openshift.io";
/// The ConfigMap with the authorities of what kubelets serve.
pub const BUNDLE: &str = "csr-controller-ca";
/// The namespace of that ConfigMap.
pub const BUNDLE_NAMESPACE: &str = "openshift-config-managed";
/// The ConfigMap of its machine approver.
pub const SWITCH: &str = "machine-approver-config";
/// The namespace of that ConfigMap.
pub const SWITCH_NAMESPACE: &str = "openshift-cluster-machine-approver";
