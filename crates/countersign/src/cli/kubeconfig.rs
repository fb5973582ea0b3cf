//! The command line of `countersign kubeconfig`.

use std::path::PathBuf;

use clap::Args;

use super::Reach;
use crate::config::Span;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  countersign kubeconfig --user jane --group developers --out jane.kubeconfig\n  \
                  kubectl --kubeconfig jane.kubeconfig auth whoami\n  \
                  countersign kubeconfig --bootstrap --ttl 12h --out bootstrap.kubeconfig"
)]
pub(crate) struct KubeconfigArgs {
    /// The user's name
    #[arg(long, value_name = "NAME", required_unless_present = "bootstrap")]
    pub(crate) user: Option<String>,
    /// A file for kubelets that have no certificate yet: with a new bootstrap token, and nobody's key
    #[arg(long, conflicts_with = "user")]
    pub(crate) bootstrap: bool,
    /// A group of the user (repeatable); members of system:masters may do everything. With --bootstrap, a group of whoever
    /// shows the token: system:bootstrappers: and a name
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// How long the certificate shall live, a year at most [default: 365d]; with --bootstrap, the token [default: 24h]
    #[arg(long, value_name = "DURATION")]
    pub(crate) ttl: Option<Span>,
    /// Write to this new file, readable by its owner alone, instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Where the user finds the Kubernetes door [default: where the server of --data listens]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    #[command(flatten)]
    pub(crate) reach: Reach,
}
