//! The flags of `policy`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use countersign_pki::UnixTime;
use countersign_policy::trial::Scene;
use countersign_policy::{Finding, SignerName};

use super::{OutputArg, Reach, doors};

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Tell what is wrong with policy files and with the files that their rules need
    #[command(
        after_help = "Examples:\n  countersign policy check /etc/countersign/policies\n  countersign policy check agents.yaml denials.yaml -o json\n  countersign policy check --data /var/lib/countersign"
    )]
    Check {
        /// Policy files, or folders of them [default: ask the running server which policy is in force, and whether a
        /// change of its files was refused]
        #[arg(value_name = "FILE|DIR")]
        places: Vec<PathBuf>,
        #[command(flatten)]
        output: OutputArg,
        #[command(flatten)]
        reach: Box<Reach>,
    },
    /// Run the cases of test files; nothing outside is asked
    #[command(
        after_help = "Examples:\n  countersign policy test agents-test.yaml\n  countersign policy test tests/*.yaml --coverage"
    )]
    Test {
        /// Test files
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// Name the rules that no case reached
        #[arg(long)]
        coverage: bool,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Decide one request offline, and tell every rule that was asked, what it saw, what it said and why
    #[command(
        after_help = "Examples:\n  countersign policy explain --policy agents.yaml web01.csr.pem\n  countersign policy explain --policy agents.yaml web01.csr.pem --source 192.0.2.7 --answer cmdb=approve\n  countersign policy explain --config /etc/countersign.yaml web01.csr.pem"
    )]
    Explain(Box<ExplainArgs>),
    /// Decide the requests on record anew under a changed policy, and tell what would change; nothing is written
    #[command(
        after_help = "Examples:\n  countersign policy replay --policy changed.yaml --since 2026-01-02T00:00:00Z\n  countersign policy replay --policy /etc/countersign/policies --door puppet -o json"
    )]
    Replay(Box<ReplayArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The changed policy: a file, or a folder of them (repeatable)
    #[arg(long, value_name = "FILE|DIR", required = true)]
    pub(crate) policy: Vec<PathBuf>,
    /// Only requests that arrived then or later, for example 2026-01-02T03:04:05Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only those of one door
    #[arg(long, value_parser = doors())]
    pub(crate) door: Option<String>,
    /// Also show what would not change
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) output: OutputArg,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The request: PKCS#10, PEM or DER
    #[arg(value_name = "CSR")]
    pub(crate) csr: PathBuf,
    /// A policy file, or a folder of them (repeatable)
    #[arg(long, value_name = "FILE|DIR", required_unless_present = "config")]
    pub(crate) policy: Vec<PathBuf>,
    /// Countersign's configuration file (YAML): its policies, unless others are named, and what its autosign setting
    /// stands for, which is asked after them
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The door through which it comes
    #[arg(long, default_value = "puppet")]
    pub(crate) door: String,
    /// The signer that it asks
    #[arg(long, value_parser = SignerName::parse, default_value = "countersign.dev/puppet-agent")]
    pub(crate) signer: SignerName,
    /// The name in the Puppet certificate of who sends it [default: nobody has shown one]
    #[arg(long, value_name = "NAME", conflicts_with = "user")]
    pub(crate) certname: Option<String>,
    /// The address that it comes from
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) source: Option<IpAddr>,
    /// The user who sends it
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// A group of the user (repeatable)
    #[arg(long, value_name = "NAME", requires = "user")]
    pub(crate) group: Vec<String>,
    /// A usage that is asked for, for example 'client auth' (repeatable)
    #[arg(long, value_name = "USAGE")]
    pub(crate) usage: Vec<String>,
    /// The time of the decision, for example 2026-01-02T03:04:05Z [default: now]
    #[arg(long, value_name = "TIME", value_parser = UnixTime::parse_rfc3339)]
    pub(crate) now: Option<UnixTime>,
    /// What a rule finds outside, which is not asked here: approve, decline, mismatch or unavailable (repeatable)
    #[arg(long, value_name = "RULE=WORD")]
    pub(crate) answer: Vec<RuleAnswer>,
    /// Machines that the inventory shall know (YAML or JSON)
    #[arg(long, value_name = "FILE")]
    pub(crate) machines: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArg,
}

/// What stands in for the outside of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleAnswer {
    pub(crate) rule: String,
    pub(crate) finding: Finding,
}

impl FromStr for RuleAnswer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once('=');
        let parsed = parts.and_then(|(rule, word)| Some((rule, Scene::answer(word)?)));
        match parsed {
            Some((rule, finding)) if !rule.is_empty() => Ok(Self {
                rule: rule.to_owned(),
                finding,
            }),
            Some(_) | None => Err(
                "write the rule's name and what it finds, for example cmdb=approve (or decline, mismatch, unavailable)"
                    .to_owned(),
            ),
        }
    }
}
