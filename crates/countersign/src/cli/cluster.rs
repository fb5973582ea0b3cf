//! The command line of `countersign cluster`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgAction, Args, ValueEnum};
use countersign_cluster::Controller;

use super::{ConfigArg, DataArg};
use crate::config::{Listen, Span};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        countersign cluster --kubeconfig admin.kubeconfig --preset hardened\n  \
        countersign cluster --config /etc/countersign/cluster.yaml --controllers approver\n  \
        countersign cluster --controllers signer --data /var/lib/countersign \\\n      \
            --cluster-signing-cert-file ca.crt --cluster-signing-key-file ca.key\n  \
        countersign cluster --controllers operator --server https://ca.example.com:8140 \\\n      \
            --cert admin.pem --key admin-key.pem --cacert ca.pem\n  \
        PROVIDER_REGEX='^node-\\d+\\.example\\.com$' countersign cluster --preset kubelet-csr-approver")]
pub(crate) struct ClusterArgs {
    /// The cluster, as kubectl knows it [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The cluster that has the Machines, if it is another one
    #[arg(long, value_name = "FILE", alias = "management-cluster-kubeconfig")]
    pub(crate) management_kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) config: ConfigArg,
    #[command(flatten)]
    pub(crate) data: DataArg,
    /// Which controllers run
    #[arg(
        long,
        value_name = "NAME[,NAME]",
        value_delimiter = ',',
        default_value = "approver,cleaner"
    )]
    pub(crate) controllers: Vec<ControllerName>,
    /// Rules for the kubelets' signers that no ApprovalPolicy names; without it their requests wait for a person
    #[arg(long, value_enum)]
    pub(crate) preset: Option<Preset>,
    /// Certificate, and chain, of the CA that signs for the cluster's own signers
    #[arg(long, value_name = "FILE", requires = "cluster_signing_key_file")]
    pub(crate) cluster_signing_cert_file: Option<PathBuf>,
    /// Key of that CA; nobody but its owner and group may be able to read it
    #[arg(long, value_name = "FILE", requires = "cluster_signing_cert_file")]
    pub(crate) cluster_signing_key_file: Option<PathBuf>,
    /// How long certificates of the cluster's own signers live at most [default: kubernetes.signing_duration, 1y]
    #[arg(long, value_name = "DURATION")]
    pub(crate) cluster_signing_duration: Option<Span>,
    /// Whether replicas elect the one that works
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) leader_elect: Option<GoBool>,
    /// Namespace of the lease [default: the pod's, or that of the kubeconfig's context]
    #[arg(long, value_name = "NAME")]
    pub(crate) lease_namespace: Option<String>,
    /// Name of the lease
    #[arg(long, value_name = "NAME", default_value = "countersign")]
    pub(crate) lease_name: String,
    /// How long a lease that is not renewed keeps other replicas waiting
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    pub(crate) lease_duration: Span,
    /// How long a replica tries to renew its lease before it ends
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(crate) lease_renew_deadline: Span,
    /// How often a lease is renewed or looked at
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(crate) lease_retry_period: Span,
    /// Address of metrics and health over plain HTTP, or off [default: off]
    #[arg(long, value_name = "ADDR:PORT|off")]
    pub(crate) metrics_listen: Option<Listen>,
    #[command(flatten)]
    pub(crate) operator: OperatorArgs,
    /// Print every resource definition that the controllers know as YAML, and do nothing else
    #[arg(long)]
    pub(crate) print_crds: bool,
    #[command(flatten)]
    pub(crate) kubelet_csr_approver: KubeletCsrApproverArgs,
}

/// What the operator needs to know.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options of --controllers operator")]
pub(crate) struct OperatorArgs {
    /// The authority behind internal CertificateAuthorities
    #[arg(long, value_name = "URL", requires_all = ["cert", "key", "cacert"])]
    pub(crate) server: Option<String>,
    /// Administrator's certificate, with --server; read again whenever it is used
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) cert: Option<PathBuf>,
    /// Its key, with --server
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) key: Option<PathBuf>,
    /// Certificates that verify the authority, with --server
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) cacert: Option<PathBuf>,
    /// Look after the objects of this namespace only; may be repeated [default: all namespaces]
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) operator_namespace: Vec<String>,
    /// Answer validating webhooks of the API server here, over HTTPS [default: off]
    #[arg(long, value_name = "ADDR:PORT", requires_all = ["admission_cert", "admission_key"])]
    pub(crate) admission_listen: Option<SocketAddr>,
    /// Certificate, and chain, of that listener; read again when the file changes
    #[arg(long, value_name = "FILE", requires = "admission_listen")]
    pub(crate) admission_cert: Option<PathBuf>,
    /// Its key; nobody but its owner and group may be able to read it
    #[arg(long, value_name = "FILE", requires = "admission_listen")]
    pub(crate) admission_key: Option<PathBuf>,
}

/// kubelet-csr-approver's own flags. Each has its variable too, which counts where the flag is not given and the value is
/// not empty.
#[derive(Clone, Debug, Default, Args)]
#[command(
    next_help_heading = "Options of --preset kubelet-csr-approver, also as variables such as PROVIDER_REGEX"
)]
pub(crate) struct KubeletCsrApproverArgs {
    /// What DNS names must match [default: .*]
    #[arg(long, value_name = "REGEX")]
    pub(crate) provider_regex: Option<String>,
    /// Networks that addresses must be in [default: 0.0.0.0/0,::/0]
    #[arg(long, value_name = "CIDR[,CIDR]")]
    pub(crate) provider_ip_prefixes: Option<String>,
    /// Longest lifetime that may be asked for [default: 31708800]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) max_expiration_sec: Option<String>,
    /// How many DNS names a request may have [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) allowed_dns_names: Option<String>,
    /// Do not resolve DNS names
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) bypass_dns_resolution: Option<String>,
    /// Do not compare DNS names with the node's name
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) bypass_hostname_check: Option<String>,
    /// Leave requests of others than nodes alone instead of denying them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) ignore_non_system_node: Option<String>,
    /// Never deny
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) skip_deny_step: Option<String>,
    /// Whether replicas elect the one that works [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) leader_election: Option<String>,
    /// Address of metrics, for example :8080
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics_bind_address: Option<String>,
    /// Ignored: health is shown where metrics are
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) health_probe_bind_address: Option<String>,
    /// Ignored: see log.level in the configuration
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(crate) level: Option<String>,
}

/// A set of rules that comes with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// Names bound to the node and to evidence that is not the node's own
    Hardened,
    /// As OpenShift's cluster-machine-approver decides
    ClusterMachineApprover,
    /// As postfinance's kubelet-csr-approver decides
    KubeletCsrApprover,
    /// As kube-controller-manager's csrapproving decides
    KubeControllerManager,
}

/// A controller by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ControllerName {
    /// Decides by policy
    Approver,
    /// Signs what is approved
    Signer,
    /// Deletes what is outdated
    Cleaner,
    /// Reconciles Certificates, CertificateAuthorities and SigningPolicies
    Operator,
}

impl From<ControllerName> for Controller {
    fn from(name: ControllerName) -> Self {
        match name {
            ControllerName::Approver => Self::Approver,
            ControllerName::Signer => Self::Signer,
            ControllerName::Cleaner => Self::Cleaner,
            ControllerName::Operator => Self::Operator,
        }
    }
}

/// A boolean as Go's flags read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GoBool(pub(crate) bool);

impl FromStr for GoBool {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Self(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Self(false)),
            other => Err(format!("{other:?} is neither true nor false")),
        }
    }
}
