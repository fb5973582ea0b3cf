//! The flags of `machine` and `window`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use countersign_pki::{TimeFault, UnixTime};
use countersign_policy::AddressKind;

use super::{ConfigArg, OutputArg, ServerArgs};
use crate::config::Span;

#[derive(Debug, Subcommand)]
pub(crate) enum MachineCommand {
    /// Add a machine to the inventory
    #[command(
        after_help = "Examples:\n  countersign machine add web01.example.com --role web --instance-id i-0abc\n  countersign machine add db01.example.com --address 192.0.2.7 --address ExternalDNS=db.example.com --single-use"
    )]
    Add(AddArgs),
    /// List machines
    #[command(after_help = "Example:\n  countersign machine list --role web --not-enrolled")]
    List {
        /// Only of this role
        #[arg(long)]
        role: Option<String>,
        /// Only of this provider
        #[arg(long)]
        provider: Option<String>,
        /// Only those that have enrolled
        #[arg(long, conflicts_with = "not_enrolled")]
        enrolled: bool,
        /// Only those that have not
        #[arg(long)]
        not_enrolled: bool,
        #[command(flatten)]
        output: OutputArg,
        #[command(flatten)]
        reach: Reach,
    },
    /// Show one machine
    #[command(after_help = "Example:\n  countersign machine show web01.example.com -o yaml")]
    Show {
        /// The machine's name
        name: String,
        #[command(flatten)]
        output: OutputArg,
        #[command(flatten)]
        reach: Reach,
    },
    /// Remove machines from the inventory; their certificates stay valid
    #[command(
        after_help = "Example:\n  countersign machine remove web01.example.com web02.example.com"
    )]
    Remove {
        /// The machines' names
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        #[command(flatten)]
        reach: Reach,
    },
    /// Add many machines from a file
    ///
    /// CSV has a heading that names its columns: name, addresses (separated by semicolons), serial, uuid, instance_id,
    /// provider, role, not_before, not_after, single_use. JSON is an array of records, or one record on each line.
    /// Nothing is imported unless every row is good.
    #[command(
        after_help = "Examples:\n  countersign machine import machines.csv --dry-run\n  cmdb-export | countersign machine import - --format json --replace"
    )]
    Import(MachineImportArgs),
}

/// What is known of a machine.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The name under which it will enrol
    pub(crate) name: String,
    /// An address it may ask for beside its name (repeatable): an IP address, a host name, or TYPE=ADDRESS with
    /// Hostname, InternalDNS, ExternalDNS, InternalIP or ExternalIP
    #[arg(long, value_name = "[TYPE=]ADDRESS")]
    pub(crate) address: Vec<AddressArg>,
    /// The number on its case
    #[arg(long)]
    pub(crate) serial: Option<String>,
    /// The UUID of its firmware; requests must show it as pp_uuid
    #[arg(long)]
    pub(crate) uuid: Option<String>,
    /// What its cloud calls it; requests must show it as pp_instance_id
    #[arg(long, value_name = "ID")]
    pub(crate) instance_id: Option<String>,
    /// Who runs it
    #[arg(long)]
    pub(crate) provider: Option<String>,
    /// What it is for
    #[arg(long)]
    pub(crate) role: Option<String>,
    /// Before this it is not expected, for example 2026-01-02T03:04:05Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) not_before: Option<UnixTime>,
    /// From this on it is no longer expected
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) not_after: Option<UnixTime>,
    /// It may enrol only once, whatever the rule says
    #[arg(long)]
    pub(crate) single_use: bool,
    /// Replace the record of that name, if there is one; its enrolment is not forgotten
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) output: OutputArg,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct MachineImportArgs {
    /// The file, or - for standard input
    #[arg(value_name = "FILE|-")]
    pub(crate) file: PathBuf,
    /// Its format [default: what it looks like]
    #[arg(long, value_enum)]
    pub(crate) format: Option<RecordFormat>,
    /// Replace records of the same names; enrolments are not forgotten
    #[arg(long)]
    pub(crate) replace: bool,
    /// Check everything and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordFormat {
    /// Comma-separated values under a heading
    Csv,
    /// An array of records, or one on each line
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WindowCommand {
    /// Open a build window, in place of the one that the name has
    #[command(
        after_help = "Examples:\n  countersign window open web01.example.com --for 2h\n  countersign window open web01.example.com --from 2026-01-02T20:00:00Z --until 2026-01-02T23:00:00Z"
    )]
    Open(OpenArgs),
    /// Close build windows
    #[command(after_help = "Example:\n  countersign window close web01.example.com")]
    Close {
        /// The names
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        #[command(flatten)]
        reach: Reach,
    },
    /// List build windows, also those that closed by themselves within the last day
    #[command(after_help = "Example:\n  countersign window list -o json")]
    List {
        #[command(flatten)]
        output: OutputArg,
        #[command(flatten)]
        reach: Reach,
    },
    /// Show one build window
    #[command(after_help = "Example:\n  countersign window show web01.example.com")]
    Show {
        /// The name
        name: String,
        #[command(flatten)]
        output: OutputArg,
        #[command(flatten)]
        reach: Reach,
    },
}

#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// The name that may enrol, exactly
    pub(crate) name: String,
    /// How long [default: 2h]
    #[arg(long = "for", value_name = "DURATION", conflicts_with = "until")]
    pub(crate) length: Option<Span>,
    /// Until when, for example 2026-01-02T23:00:00Z; at most 30 days
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) until: Option<UnixTime>,
    /// From when on [default: now]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) from: Option<UnixTime>,
    /// How many certificates it is good for
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) max_issuances: u32,
    /// Trust the name alone: whoever asks for it first gets the certificate
    #[arg(long)]
    pub(crate) without_token: bool,
    #[command(flatten)]
    pub(crate) output: OutputArg,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// The server that keeps the inventory.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Reach {
    #[command(flatten)]
    pub(crate) config: ConfigArg,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// An address as people write it: what does not say its type is an inner one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressArg {
    pub(crate) kind: AddressKind,
    pub(crate) address: String,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{kind:?} is no type of address: write Hostname, InternalDNS, ExternalDNS, InternalIP or ExternalIP"
)]
pub(crate) struct AddressFault {
    kind: String,
}

impl FromStr for AddressArg {
    type Err = AddressFault;

    fn from_str(text: &str) -> Result<Self, AddressFault> {
        if let Some((word, address)) = text.split_once('=') {
            let mut kinds = AddressKind::ALL.into_iter();
            let kind = kinds.find(|kind| kind.word().eq_ignore_ascii_case(word));
            let kind = kind.ok_or_else(|| AddressFault {
                kind: word.to_owned(),
            })?;
            let address = address.to_owned();
            return Ok(Self { kind, address });
        }
        let kind = if text.parse::<IpAddr>().is_ok() {
            AddressKind::InternalIP
        } else if text.contains('.') {
            AddressKind::InternalDNS
        } else {
            AddressKind::Hostname
        };
        Ok(Self {
            kind,
            address: text.to_owned(),
        })
    }
}

fn time(text: &str) -> Result<UnixTime, TimeFault> {
    UnixTime::parse_rfc3339(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_say_their_type_or_show_it() {
        for (text, kind, address) in [
            ("192.0.2.7", AddressKind::InternalIP, "192.0.2.7"),
            ("2001:db8::1", AddressKind::InternalIP, "2001:db8::1"),
            ("web01", AddressKind::Hostname, "web01"),
            ("web01.internal", AddressKind::InternalDNS, "web01.internal"),
            ("externalip=192.0.2.7", AddressKind::ExternalIP, "192.0.2.7"),
            ("ExternalDNS=www", AddressKind::ExternalDNS, "www"),
        ] {
            let parsed: AddressArg = text.parse().unwrap();
            assert_eq!(
                (parsed.kind, parsed.address.as_str()),
                (kind, address),
                "{text}"
            );
        }
        let fault = "Street=x".parse::<AddressArg>().unwrap_err().to_string();
        assert!(
            fault.starts_with("\"Street\" is no type of address"),
            "{fault}"
        );
    }
}
