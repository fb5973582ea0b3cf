//! The flags of `token`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use countersign_pki::{TimeFault, UnixTime};
use countersign_policy::SpanFault;

use super::{OutputArg, Reach};
use crate::config::{Source, Span};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Mint tokens; their secrets are printed this once
    ///
    /// A list (--from) is a file with one name on each line, or CSV with a heading that names its columns: certname, glob, ttl, max_uses,
    /// not_before, sans, extensions, spki_sha256, source_cidrs, allow_replace, keep_existing, profile, external_ref, note. Several values in one
    /// cell are separated by semicolons. Flags hold for every row that does not say otherwise; lines that begin with # do not count.
    /// Nothing is minted unless every row is good. If one fails later, those before it are minted, and it is said which.
    #[command(
        after_help = "Examples:\n  countersign token create web01.example.com --ttl 2h\n  countersign token create web01.example.com --format csr-attributes > csr_attributes.yaml\n  countersign token create '*.dmz.example.com' --glob --max-uses 20 --ttl 4h\n  countersign token create --from hosts.csv --output-dir ./tokens\n  countersign token create --bootstrap --ttl 12h --group system:bootstrappers:rack7"
    )]
    Create(Box<CreateArgs>),
    /// List tokens, newest first; never their secrets
    #[command(
        after_help = "Examples:\n  countersign token list --status active\n  countersign token list --unused\n  countersign token list --bootstrap"
    )]
    List {
        /// Only those that were minted for this name, or for this pattern
        #[arg(long, value_name = "NAME")]
        certname: Option<String>,
        /// Only those with this status
        #[arg(long, value_parser = STATUSES)]
        status: Option<String>,
        /// Only those that were never used, with their age
        #[arg(long)]
        unused: bool,
        /// Bootstrap tokens instead
        #[arg(long, conflicts_with_all = ["certname", "status", "unused"])]
        bootstrap: bool,
        #[command(flatten)]
        output: OutputArg,
        #[command(flatten)]
        reach: Reach,
    },
    /// Show one token and its uses; never its secret
    #[command(after_help = "Example:\n  countersign token show aaaqeayeaudaocaj")]
    Show {
        /// Its public part: the 16 characters behind `ott1.`, or the six of a bootstrap token
        id: String,
        #[command(flatten)]
        output: OutputArg,
        #[command(flatten)]
        reach: Reach,
    },
    /// Take tokens back; certificates that they were used for stay valid
    #[command(
        after_help = "Examples:\n  countersign token revoke aaaqeayeaudaocaj\n  countersign token revoke --certname web01.example.com --revoke-certificates"
    )]
    Revoke(RevokeArgs),
    /// Free the use of a token whose certificate was never signed, so that another key may use it
    #[command(after_help = "Example:\n  countersign token release aaaqeayeaudaocaj")]
    Release {
        /// Its public part
        id: String,
        #[command(flatten)]
        output: OutputArg,
        #[command(flatten)]
        reach: Reach,
    },
    /// Tell whether the token in a certificate request would do; nothing is used up. Exit code 0: yes, 1: no
    #[command(
        after_help = "Examples:\n  countersign token check web01.csr.pem\n  openssl req -new -config req.cnf -key key.pem | countersign token check -"
    )]
    Check {
        /// The request in PEM, or - for standard input
        #[arg(value_name = "FILE|-")]
        file: PathBuf,
        /// The signer that it is for [default: countersign.dev/puppet-agent]
        #[arg(long)]
        signer: Option<String>,
        #[command(flatten)]
        output: OutputArg,
        #[command(flatten)]
        reach: Reach,
    },
}

/// What is minted, and how it is handed out.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The name that the token is for; with --glob all names below a domain, written '*.example.com'
    #[arg(
        value_name = "NAME",
        required_unless_present_any = ["from", "bootstrap"],
        conflicts_with = "from"
    )]
    pub(crate) name: Option<String>,
    /// Mint a token for each row of a file, or of standard input (-)
    #[arg(long, value_name = "FILE|-")]
    pub(crate) from: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) terms: TermArgs,
    #[command(flatten)]
    pub(crate) bootstrap: BootstrapArgs,
    /// What is printed: the token alone, a whole csr_attributes.yaml, or an object (with --from one on each line)
    /// [default: bare; with --from csv; with --output-dir csr-attributes]
    #[arg(long, value_enum)]
    pub(crate) format: Option<TokenFormat>,
    /// Where a csr_attributes.yaml carries the token; one of tokens.sources of the server
    #[arg(long, value_name = "SOURCE", default_value = "challengePassword")]
    pub(crate) carrier: Source,
    /// Write a file for each host into this directory, NAME.yaml or with --format bare NAME.token, readable by its owner alone
    #[arg(long, value_name = "DIR", requires = "from")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Skip the rows whose file is there already
    #[arg(long, requires = "output_dir")]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// A bootstrap token in place of an enrolment token.
#[derive(Clone, Debug, Args)]
pub(crate) struct BootstrapArgs {
    /// Mint a bootstrap token as Kubernetes has them, which many machines may show at the Kubernetes door until it ends; --ttl 0: until
    /// it is revoked [default of --ttl: 24h]
    #[arg(
        long,
        conflicts_with_all = [
            "name", "from", "glob", "max_uses", "not_before", "san", "extension", "spki", "source", "allow_replace",
            "keep_existing", "profile", "external_ref", "note", "carrier", "output_dir", "resume",
        ]
    )]
    pub(crate) bootstrap: bool,
    /// With --bootstrap, a group of whoever shows it (repeatable): system:bootstrappers: and a name
    #[arg(long, value_name = "GROUP", requires = "bootstrap")]
    pub(crate) group: Vec<String>,
    /// With --bootstrap, a note for people
    #[arg(long, value_name = "TEXT", requires = "bootstrap")]
    pub(crate) description: Option<String>,
}

/// What a token is good for.
#[derive(Clone, Debug, Args)]
pub(crate) struct TermArgs {
    /// The name is a pattern: '*.' and a domain of at least two labels; needs --max-uses
    #[arg(long)]
    pub(crate) glob: bool,
    /// How long it is good for, for example 2h [default: tokens.default_ttl of the server, 6h]
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    pub(crate) ttl: Option<Span>,
    /// For how many certificates [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_uses: Option<u32>,
    /// Before this it is not good, for example 2026-01-02T03:04:05Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) not_before: Option<UnixTime>,
    /// An alternative name that the request may ask for (repeatable): DNS:NAME or IP:ADDRESS
    #[arg(long, value_name = "DNS:NAME|IP:ADDRESS")]
    pub(crate) san: Vec<String>,
    /// An extension that the request may ask for, and no others (repeatable); a csr_attributes.yaml asks for those with one value
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) extension: Vec<ExtensionArg>,
    /// The one public key that it is for: SHA-256 of the SubjectPublicKeyInfo in hexadecimal
    #[arg(long, value_name = "SHA256")]
    pub(crate) spki: Option<String>,
    /// A network that the request must come from (repeatable)
    #[arg(long, value_name = "CIDR")]
    pub(crate) source: Vec<String>,
    /// The certificate that the name has is revoked and replaced
    #[arg(long)]
    pub(crate) allow_replace: bool,
    /// Earlier tokens of the name stay good
    #[arg(long)]
    pub(crate) keep_existing: bool,
    /// The one signer that it is for
    #[arg(long, value_name = "SIGNER")]
    pub(crate) profile: Option<String>,
    /// What it is called elsewhere; deciders are told
    #[arg(long, value_name = "TEXT")]
    pub(crate) external_ref: Option<String>,
    /// For people
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// Their public parts, of enrolment tokens or of bootstrap tokens
    #[arg(
        value_name = "ID",
        required_unless_present = "certname",
        conflicts_with = "certname"
    )]
    pub(crate) ids: Vec<String>,
    /// All that were minted for this name, or for this pattern
    #[arg(long, value_name = "NAME")]
    pub(crate) certname: Option<String>,
    /// Revoke the certificates that they were used for, too
    #[arg(long)]
    pub(crate) revoke_certificates: bool,
    #[command(flatten)]
    pub(crate) output: OutputArg,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// In which form tokens are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokenFormat {
    /// The token and a line end
    Bare,
    /// A csr_attributes.yaml, as a Puppet agent reads it
    CsrAttributes,
    /// An object with id, token, expires_at and certname
    Json,
    /// With --from: certname, id, token and expires_at under a heading
    Csv,
}

/// An extension and a value that it may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtensionArg {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// A text that is no extension with its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write NAME=VALUE, for example pp_role=web")]
pub(crate) struct ExtensionFault;

impl FromStr for ExtensionArg {
    type Err = ExtensionFault;

    fn from_str(text: &str) -> Result<Self, ExtensionFault> {
        let (name, value) = text.split_once('=').ok_or(ExtensionFault)?;
        match name.is_empty() {
            true => Err(ExtensionFault),
            false => Ok(Self {
                name: name.to_owned(),
                value: value.to_owned(),
            }),
        }
    }
}

/// A duration; a bare 0 needs no unit, as with kubeadm.
fn ttl(text: &str) -> Result<Span, SpanFault> {
    match text {
        "0" => Ok(Span::seconds(0)),
        other => other.parse(),
    }
}

fn time(text: &str) -> Result<UnixTime, TimeFault> {
    UnixTime::parse_rfc3339(text)
}

const STATUSES: [&str; 7] = [
    "active",
    "reserved",
    "issued",
    "exhausted",
    "expired",
    "revoked",
    "locked",
];
