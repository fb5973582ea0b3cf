//! The command line of `countersign kubeconfig`.

use std::path::PathBuf;

use clap::Args;

use super::Reach;
use crate::config::Span;

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  countersign kubeconfig --user jane --group developers --out jane.kubeconfig\n  \
                  kubectl --kubeconfig jane.kubeconfig auth whoami"
)]
pub(crate) struct KubeconfigArgs {
    /// The user's name
    #[arg(long, value_name = "NAME")]
    pub(crate) user: String,
    /// A group of the user (repeatable); members of system:masters may do everything
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// How long the certificate shall live, a year at most [default: 365d]
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
