//! The command line.

mod audit;
mod cluster;
mod enroll;
mod inventory;
mod kubeconfig;
mod policy;
mod token;
mod verbs;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use countersign_authority::DoorSpec;
use countersign_server::DOORS;

use crate::config::{Autosign, Config, ConfigFault, Listen, Span, StoreKind};
use crate::data_folder::DataFolder;

pub(crate) use audit::{AuditCommand, FilterArgs, Moment, VerifyArgs};
pub(crate) use cluster::{
    ClusterArgs, ControllerName, GoBool, KubeletCsrApproverArgs, OperatorArgs, Preset,
};
pub(crate) use enroll::{DoorName, EnrollArgs, EnrollCommand, HookArgs, StatusArgs, TrustArgs};
pub(crate) use inventory::{
    AddArgs, AddressArg, MachineCommand, MachineImportArgs, OpenArgs, Reach, RecordFormat,
    WindowCommand,
};
pub(crate) use kubeconfig::KubeconfigArgs;
pub(crate) use policy::{ExplainArgs, PolicyCommand, ReplayArgs, RuleAnswer};
pub(crate) use token::{CreateArgs, ExtensionArg, RevokeArgs, TermArgs, TokenCommand, TokenFormat};
pub(crate) use verbs::{
    CaServer, DeleteArgs, GenerateArgs, ImportArgs, OfflineArgs, PruneArgs, ServerNameArgs,
    SetupArgs, Ttl,
};

/// One authority that decides, signs and accounts for every certificate request a fleet makes.
#[derive(Debug, Parser)]
#[command(name = "countersign", version, arg_required_else_help = true)]
#[command(
    after_help = "Example:\n  countersign serve --data /var/lib/countersign --hostname ca.example.com"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the authority; the first start creates issuers, certificates and administrator's credentials
    Serve(ServeArgs),
    /// Requests of every door: look at them, decide them
    Csr {
        #[command(subcommand)]
        command: CsrCommand,
    },
    /// The inventory: machines that are expected to enrol
    Machine {
        #[command(subcommand)]
        command: MachineCommand,
    },
    /// Build windows: times in which one name may enrol
    Window {
        #[command(subcommand)]
        command: WindowCommand,
    },
    /// Enrolment tokens: one-time passwords with which machines enrol
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Policies: check their files, test them, ask them why; all offline
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// The verbs, output and exit codes of `puppetserver ca`
    Ca {
        /// Say more on standard error
        #[arg(long, global = true)]
        verbose: bool,
        #[command(subcommand)]
        command: CaCommand,
    },
    /// The audit log: show it, write it out, check that nobody changed it
    Audit {
        #[command(subcommand)]
        command: AuditCommand,
    },
    /// Make a user of the Kubernetes door and print a kubeconfig for it
    Kubeconfig(KubeconfigArgs),
    /// Enrol this machine: make a key, ask an authority for a certificate, install it, renew it
    Enroll(Box<EnrollArgs>),
    /// Approve, sign and clean the certificate signing requests of a Kubernetes cluster
    Cluster(Box<ClusterArgs>),
    /// Write everything the authority is, keys included, to one file; the server may be running
    Backup(BackupArgs),
    /// Make a data directory of a backup
    Restore(RestoreArgs),
}

#[derive(Debug, Default, Args)]
#[command(
    after_help = "Example:\n  countersign serve --data ./ca --listen 0.0.0.0:8140 --hostname ca.example.com"
)]
pub(crate) struct ServeArgs {
    /// Configuration file (YAML); flags win over it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: DataArg,
    /// Address of the Puppet and native API [default: 127.0.0.1:8140]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Address of the Kubernetes API, or off [default: 127.0.0.1:8141]
    #[arg(long, value_name = "ADDR:PORT|off")]
    pub(crate) kubernetes_listen: Option<Listen>,
    /// A name in the server certificates; the first is the server's certname (repeatable) [default: this machine's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) hostname: Vec<String>,
    /// Which Puppet requests are signed without a person: all, none, or those that the allowlist or the policy
    /// executable at an absolute path lets through [default: autosign.conf in the data directory]
    #[arg(long, value_name = "true|false|PATH")]
    pub(crate) autosign: Option<Autosign>,
    /// Where state is kept: sqlite, or a database, postgres://USER@HOST/DATABASE [default: sqlite]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<StoreKind>,
    /// Address of metrics and health over plain HTTP, or off [default: off]
    #[arg(long, value_name = "ADDR:PORT|off")]
    pub(crate) metrics_listen: Option<Listen>,
    /// Show the effective configuration and exit
    #[arg(long)]
    pub(crate) print_config: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  countersign backup /var/backups/countersign-2026-01-02.tar --data /var/lib/countersign"
)]
pub(crate) struct BackupArgs {
    /// Where the backup goes: a new file, readable by its owner alone
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) data: DataArg,
    #[command(flatten)]
    pub(crate) config: ConfigArg,
    /// Leave private keys out, where they are kept elsewhere; a restore then needs them from there
    #[arg(long)]
    pub(crate) without_keys: bool,
    /// Replace a file of that name
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  countersign restore /var/backups/countersign-2026-01-02.tar --data /var/lib/countersign"
)]
pub(crate) struct RestoreArgs {
    /// The backup
    #[arg(value_name = "FILE", required_unless_present = "in_place")]
    pub(crate) file: Option<PathBuf>,
    /// Go on from the database that is in the data directory, older or not, as from a backup
    #[arg(long, conflicts_with = "file")]
    pub(crate) in_place: bool,
    #[command(flatten)]
    pub(crate) data: DataArg,
    #[command(flatten)]
    pub(crate) config: ConfigArg,
}

/// Where the authority keeps its files.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DataArg {
    /// Data directory [default: ./countersign-data]
    #[arg(long = "data", value_name = "DIR", env = "COUNTERSIGN_DATA")]
    dir: Option<PathBuf>,
}

impl DataArg {
    /// A directory that was found by other means.
    pub(crate) fn of(dir: PathBuf) -> Self {
        Self { dir: Some(dir) }
    }

    /// The directory that was named; an empty variable names none.
    pub(crate) fn dir(&self) -> Option<&PathBuf> {
        self.dir.as_ref().filter(|dir| !dir.as_os_str().is_empty())
    }

    /// The same as a folder; the default, if none was named.
    pub(crate) fn folder(&self) -> DataFolder {
        let named = self.dir().cloned();
        DataFolder::new(named.unwrap_or_else(|| Config::default().data))
    }
}

/// A configuration in which a data directory stands.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ConfigArg {
    /// Countersign's configuration file (YAML), whose data directory is meant unless --data names one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArg {
    /// The file.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.config.clone()
    }

    /// What the file says; without one, the defaults.
    pub(crate) fn read(&self) -> Result<Config, ConfigFault> {
        self.config
            .as_deref()
            .map_or_else(|| Ok(Config::default()), Config::load)
    }

    /// The directory that was named by a flag, else that of the file.
    pub(crate) fn data(&self, named: &DataArg) -> Result<DataArg, ConfigFault> {
        match (named.dir(), &self.config) {
            (None, Some(file)) => Config::load(file).map(|config| DataArg::of(config.data)),
            (Some(_), _) | (None, None) => Ok(named.clone()),
        }
    }
}

/// How a command finds the running server.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    pub(crate) data: DataArg,
    /// A server that is not of this data directory
    #[arg(long, value_name = "URL", requires_all = ["cert", "key", "cacert"])]
    pub(crate) server: Option<String>,
    /// Administrator's certificate, with --server
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) cert: Option<PathBuf>,
    /// Its key, with --server
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) key: Option<PathBuf>,
    /// Certificates that verify the server, with --server
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) cacert: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CsrCommand {
    /// List requests
    #[command(after_help = "Example:\n  countersign csr list --state pending")]
    List {
        /// Only those of one door
        #[arg(long, value_parser = doors())]
        door: Option<String>,
        /// Only those in these states
        #[arg(long, value_name = "STATE[,STATE]", value_delimiter = ',', value_parser = ["pending", "approved", "issued", "denied", "failed", "undecided"])]
        state: Vec<String>,
        /// Only those with this reason, in the one word that `csr explain` shows as code
        #[arg(long, value_name = "CODE")]
        reason: Option<String>,
        /// Only those that arrived then or later, for example 2026-01-02T03:04:05Z
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Also those that are over and no longer hold their name
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        output: OutputArg,
        #[command(flatten)]
        config: ConfigArg,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show one request
    #[command(after_help = "Example:\n  countersign csr show web01.example.com -o json")]
    Show {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Approve a waiting request; its certificate is signed at once
    #[command(
        after_help = "Example:\n  countersign csr approve web01.example.com --reason 'ticket 4711'"
    )]
    Approve {
        #[command(flatten)]
        target: Target,
        /// Why, for the record
        #[arg(long, default_value = "")]
        reason: String,
        /// How long the certificate shall live, for example 90d
        #[arg(long, value_name = "DURATION")]
        lifetime: Option<Span>,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Deny a waiting request
    #[command(
        after_help = "Example:\n  countersign csr deny web01.example.com --reason 'unknown machine'"
    )]
    Deny {
        #[command(flatten)]
        target: Target,
        /// Why, for the record
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Tell how a request was decided, by whom and why
    #[command(after_help = "Example:\n  countersign csr explain web01.example.com")]
    Explain {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Forget a request and free its name; its certificate, if any, stays valid
    #[command(after_help = "Example:\n  countersign csr delete web01.example.com --door puppet")]
    Delete {
        #[command(flatten)]
        target: Target,
    },
}

/// One request.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The request's name
    pub(crate) name: String,
    /// Its door, where a name exists at several
    #[arg(long, value_parser = doors())]
    pub(crate) door: Option<String>,
    #[command(flatten)]
    pub(crate) config: ConfigArg,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OutputArg {
    /// Form of the output
    #[arg(short = 'o', long = "output", value_enum, default_value_t = Form::Table)]
    pub(crate) form: Form,
}

/// How objects are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people
    Table,
    /// For programs
    Json,
    /// For both
    Yaml,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CaCommand {
    /// List certificate requests, and with --all certificates too
    #[command(after_help = "Example:\n  countersign ca list --all --format json")]
    List {
        /// List requested, signed and revoked certificates
        #[arg(long)]
        all: bool,
        /// Only these names
        #[arg(
            long,
            value_name = "NAME[,NAME]",
            value_delimiter = ',',
            conflicts_with = "all"
        )]
        certname: Vec<String>,
        /// Form of the output
        #[arg(long, value_enum, default_value_t = ListFormat::Text)]
        format: ListFormat,
        #[command(flatten)]
        server: CaServer,
    },
    /// Sign certificate requests
    #[command(
        after_help = "Example:\n  countersign ca sign --certname web01.example.com,web02.example.com"
    )]
    Sign {
        #[command(flatten)]
        which: Which,
        /// How long the certificates shall live: a number with s, m, h, d or y
        #[arg(long, value_name = "TTL")]
        ttl: Option<Ttl>,
        #[command(flatten)]
        server: CaServer,
    },
    /// Revoke certificates
    #[command(after_help = "Example:\n  countersign ca revoke --certname web01.example.com")]
    Revoke {
        /// The names whose certificates shall be revoked
        #[arg(
            long,
            value_name = "NAME[,NAME]",
            value_delimiter = ',',
            required = true
        )]
        certname: Vec<String>,
        /// Also names that the authority itself or an administrator uses
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        server: CaServer,
    },
    /// Write the authority as a directory that Puppet Server starts on; the server must be stopped
    #[command(
        after_help = "Example:\n  countersign ca export --cadir ./puppetserver-ca --data /var/lib/countersign"
    )]
    Export(ExportArgs),
    /// Revoke certificates and forget them and their requests, so that their names may enrol again
    #[command(after_help = "Example:\n  countersign ca clean --certname web01.example.com")]
    Clean {
        /// The names to be cleaned
        #[arg(
            long,
            value_name = "NAME[,NAME]",
            value_delimiter = ',',
            required = true
        )]
        certname: Vec<String>,
        /// Also names that the authority itself or an administrator uses
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        server: CaServer,
    },
    /// Create a root and an intermediate CA, the server's certificate and the administrator's credentials (offline)
    #[command(
        after_help = "Example:\n  countersign ca setup --certname ca.example.com --subject-alt-names puppet,puppet.example.com"
    )]
    Setup(SetupArgs),
    /// Take an existing CA over: a Puppet Server's directory, or key, certificates and CRLs (offline)
    #[command(
        after_help = "Examples:\n  countersign ca import --cadir /etc/puppetlabs/puppetserver/ca\n  countersign ca import --private-key ca_key.pem --cert-bundle ca_crt.pem --crl-chain ca_crl.pem"
    )]
    Import(ImportArgs),
    /// Make keys and have their certificates signed
    #[command(
        after_help = "Examples:\n  countersign ca generate --certname web01.example.com\n  countersign ca generate --ca-client --certname deploy.example.com"
    )]
    Generate(GenerateArgs),
    /// Forget signed certificates, so that their names may enrol again; they stay valid (offline)
    #[command(after_help = "Example:\n  countersign ca delete --expired --revoked")]
    Delete(DeleteArgs),
    /// Take entries off the CRL (offline)
    #[command(
        after_help = "Example:\n  countersign ca prune --remove-entries --certname web01.example.com"
    )]
    Prune(PruneArgs),
}

/// Where an authority is written to.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// A directory that is new or empty
    #[arg(long, value_name = "DIR")]
    pub(crate) cadir: PathBuf,
    #[command(flatten)]
    pub(crate) data: DataArg,
}

/// Names, or all of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// The names whose requests shall be signed
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    pub(crate) certname: Vec<String>,
    /// Every waiting request
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    /// As people read it
    Text,
    /// One object
    Json,
}

/// Where requests arrive; `local` is the authority's own machine.
fn doors() -> PossibleValuesParser {
    let doors = DOORS.into_iter().chain([DoorSpec::LOCAL]);
    PossibleValuesParser::new(doors.map(|door| door.name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Run it to write the manual pages anew after a change; it fails once and says so.
    #[test]
    fn the_manual_pages_are_those_of_the_commands() {
        fn pages_of(command: &clap::Command, name: &str, pages: &mut Vec<(String, Vec<u8>)>) {
            let mut page = Vec::new();
            let title: &'static str = Box::leak(name.to_owned().into_boxed_str());
            let typed = name.replace('-', " ");
            let named = command.clone().name(title).bin_name(typed);
            let named = named.version(None::<&str>);
            clap_mangen::Man::new(named)
                .date("")
                .render(&mut page)
                .unwrap();
            pages.push((format!("{name}.1"), page));
            for sub in command
                .get_subcommands()
                .filter(|sub| sub.get_name() != "help")
            {
                pages_of(sub, &format!("{name}-{}", sub.get_name()), pages);
            }
        }
        let mut all = Vec::new();
        pages_of(&Cli::command(), "countersign", &mut all);
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man");
        std::fs::create_dir_all(&folder).unwrap();
        let mut stale = Vec::new();
        for (file, page) in all {
            let path = folder.join(&file);
            if std::fs::read(&path).ok().as_ref() != Some(&page) {
                std::fs::write(&path, page).unwrap();
                stale.push(file);
            }
        }
        assert!(
            stale.is_empty(),
            "written anew, look at them and commit them: {stale:?}"
        );
    }

    #[test]
    fn every_command_has_an_example() {
        fn check(command: &clap::Command) {
            let name = command.get_name();
            if command.get_subcommands().next().is_none() {
                let help = command
                    .get_after_help()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                assert!(help.contains(&format!("{name} ")), "{name}: {help}");
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn requests_are_listed_by_every_door_that_they_come_through() {
        for (door, is_known) in [
            ("puppet", true),
            ("kubernetes", true),
            ("foreman", true),
            ("local", true),
            ("window", false),
        ] {
            let parsed = Cli::try_parse_from(["countersign", "csr", "list", "--door", door]);
            assert_eq!(parsed.is_ok(), is_known, "{door}");
        }
    }

    #[test]
    fn a_server_needs_its_credentials() {
        let parse =
            |args: &[&str]| Cli::try_parse_from([&["countersign", "csr", "list"], args].concat());
        assert!(parse(&["--server", "https://x"]).is_err());
        assert!(parse(&["--cert", "x"]).is_err());
        assert!(
            parse(&[
                "--server",
                "https://x",
                "--cert",
                "a",
                "--key",
                "b",
                "--cacert",
                "c"
            ])
            .is_ok()
        );
    }
}
