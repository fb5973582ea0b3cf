//! The flags of `audit`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use countersign_pki::UnixTime;

use super::{ConfigArg, OutputArg, ServerArgs};
use crate::config::Span;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Show the last entries, or those that filters let through
    #[command(
        after_help = "Examples:\n  countersign audit show --last 20\n  countersign audit show --certname web01.example.com --since 7d\n  countersign audit show --checkpoint -o json > checkpoint.json"
    )]
    Show {
        #[command(flatten)]
        filter: FilterArgs,
        /// At most so many, the newest
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        last: u32,
        /// Show the newest checkpoint instead: kept elsewhere, it tells `audit verify` whether the end was cut off
        #[arg(long)]
        checkpoint: bool,
        #[command(flatten)]
        output: OutputArg,
        #[command(flatten)]
        config: ConfigArg,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Write entries as JSON lines, the oldest first
    #[command(
        after_help = "Examples:\n  countersign audit export > audit.jsonl\n  countersign audit export --since 1d --event deny"
    )]
    Export {
        #[command(flatten)]
        filter: FilterArgs,
        /// Add to each entry the text that the seals are about
        #[arg(long)]
        stored: bool,
        #[command(flatten)]
        config: ConfigArg,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Check that the log is the one that was sealed; exit code 1 and the first thing that is wrong if it is not
    #[command(
        after_help = "Examples:\n  countersign audit verify\n  countersign audit verify --checkpoint checkpoint.json\n  countersign audit verify --offline --data /var/lib/countersign"
    )]
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// A checkpoint that was kept elsewhere, as `audit show --checkpoint` prints it
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// The public key that verifies the seals [default: audit/audit.pem in the data directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) public_key: Option<PathBuf>,
    /// Read the database of a stopped server, not over the network
    #[arg(long, conflicts_with = "server")]
    pub(crate) offline: bool,
    #[command(flatten)]
    pub(crate) output: OutputArg,
    #[command(flatten)]
    pub(crate) config: ConfigArg,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Which entries.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FilterArgs {
    /// Not before this time, or not longer ago than this
    #[arg(long, value_name = "TIME|DURATION")]
    pub(crate) since: Option<Moment>,
    /// Before this time, or longer ago than this
    #[arg(long, value_name = "TIME|DURATION")]
    pub(crate) until: Option<Moment>,
    /// Only what this certname, user, `authority` or `anonymous` did
    #[arg(long, value_name = "NAME")]
    pub(crate) actor: Option<String>,
    /// Only this event, for example approve, deny, issue or revoke
    #[arg(long, value_name = "EVENT")]
    pub(crate) event: Option<String>,
    /// Only about this name
    #[arg(long, value_name = "NAME")]
    pub(crate) certname: Option<String>,
    /// Only about the request with this identity
    #[arg(long, value_name = "ID")]
    pub(crate) request: Option<String>,
    /// Only with this reason
    #[arg(long, value_name = "REASON")]
    pub(crate) reason: Option<String>,
}

/// A time, or a duration before now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    At(UnixTime),
    Ago(Span),
}

impl Moment {
    pub(crate) fn before(self, now: UnixTime) -> UnixTime {
        match self {
            Self::At(time) => time,
            Self::Ago(span) => now.minus_seconds(span.as_seconds()),
        }
    }
}

impl FromStr for Moment {
    type Err = MomentFault;

    fn from_str(text: &str) -> Result<Self, MomentFault> {
        let at = UnixTime::parse_rfc3339(text).ok().map(Self::At);
        let ago = || text.parse().ok().map(Self::Ago);
        at.or_else(ago).ok_or(MomentFault)
    }
}

/// The text is neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a time such as 2026-01-02T03:04:05Z, or a duration such as 2h or 7d")]
pub(crate) struct MomentFault;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_times_or_durations_before_now() {
        let now = UnixTime(1_800_000_000);
        for (text, at) in [
            ("2027-01-15T07:00:00Z", 1_799_996_400),
            ("1h", 1_799_996_400),
            ("2d", 1_799_827_200),
        ] {
            assert_eq!(text.parse::<Moment>().unwrap().before(now), UnixTime(at));
        }
        for wrong in ["", "yesterday", "2027-01-15"] {
            assert_eq!(wrong.parse::<Moment>(), Err(MomentFault), "{wrong}");
        }
    }
}
