//! The flags of `enroll`. There is none for the token itself: arguments can be read by every user of the machine.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use countersign_enroll::{Assignment, Door, PathOptions, RenewBefore};
use countersign_keys::KeySpec;
use countersign_pki::Fingerprint;

use super::OutputArg;
use crate::config::Span;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_precedence_over_arg = true
)]
#[command(
    after_help = "Examples:\n  countersign enroll --server https://ca.example.com:8140 --ca-fingerprint 9F:86:… --token-file /run/token\n  countersign enroll web01.example.com --server https://puppet:8140 --ca-file ca.pem --puppet-ssldir /etc/puppetlabs/puppet/ssl\n  countersign enroll status"
)]
pub(crate) struct EnrollArgs {
    #[command(subcommand)]
    pub(crate) command: Option<EnrollCommand>,
    /// The name to enrol under [default: this machine's fully qualified name, in lower case]
    pub(crate) name: Option<String>,
    /// The authority
    #[arg(long, value_name = "URL", required = true)]
    pub(crate) server: Option<String>,
    /// The protocol to speak
    #[arg(long, value_enum, default_value_t = DoorName::Puppet)]
    pub(crate) door: DoorName,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    #[command(flatten)]
    pub(crate) kubernetes: KubernetesArgs,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
    #[command(flatten)]
    pub(crate) hook: HookArgs,
    #[command(flatten)]
    pub(crate) timing: TimingArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EnrollCommand {
    /// Say what is installed, for whom and until when; exits 1 if that is nothing, expired or does not fit together
    #[command(
        after_help = "Example:\n  countersign enroll status --dir /etc/countersign/enroll -o json"
    )]
    Status(StatusArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The name that was enrolled [default: this machine's, or the only one that is installed there]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) renewal: RenewalArg,
    #[command(flatten)]
    pub(crate) output: OutputArg,
}

/// The protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DoorName {
    /// The Puppet CA API, of Countersign or of a Puppet Server
    Puppet,
    /// The Kubernetes API certificates.k8s.io/v1
    Kubernetes,
}

impl From<DoorName> for Door {
    fn from(name: DoorName) -> Self {
        match name {
            DoorName::Puppet => Self::Puppet,
            DoorName::Kubernetes => Self::Kubernetes,
        }
    }
}

/// How the authority is recognised.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct TrustArgs {
    /// Certificates that verify the authority (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// SHA-256 of the authority's root certificate, in hexadecimal, with or without colons
    #[arg(long, value_name = "SHA256")]
    pub(crate) ca_fingerprint: Option<CaFingerprint>,
    /// Believe whoever answers first, and nobody else afterwards
    #[arg(long)]
    pub(crate) trust_on_first_use: bool,
}

/// What is asked for.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// The kind of key that is made: p256, p384, rsa-2048, rsa-3072 or rsa-4096
    #[arg(long, value_name = "KIND", default_value = "p256")]
    pub(crate) key_type: KeyWord,
    /// A further name in the certificate, as name, DNS:name or IP:address (repeatable)
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    pub(crate) dns_alt_name: Vec<String>,
    /// An organization in the subject; for Kubernetes a group (repeatable)
    #[arg(long, value_name = "NAME")]
    pub(crate) organization: Vec<String>,
    /// An attribute of the request, by its number or Puppet's short name (repeatable)
    #[arg(long, value_name = "OID=TEXT", value_parser = assignment)]
    pub(crate) attribute: Vec<Assignment>,
    /// An extension that the certificate shall have, for example pp_role=web (repeatable)
    #[arg(long, value_name = "OID=TEXT", value_parser = assignment)]
    pub(crate) extension: Vec<Assignment>,
    /// Both from a file of the form of Puppet's csr_attributes.yaml
    #[arg(long, value_name = "FILE")]
    pub(crate) csr_attributes: Option<PathBuf>,
    /// The file with the enrolment token, or - for standard input [default: the environment's COUNTERSIGN_TOKEN, else none]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// What only the Kubernetes door wants to know.
#[derive(Debug, Args)]
pub(crate) struct KubernetesArgs {
    /// Who shall sign, at the Kubernetes door
    #[arg(long, value_name = "NAME", required_if_eq("door", "kubernetes"))]
    pub(crate) signer: Option<String>,
    /// A usage of the certificate, at the Kubernetes door (repeatable) [default: digital signature, client auth]
    #[arg(long, value_name = "USAGE[,USAGE]", value_delimiter = ',')]
    pub(crate) usage: Vec<String>,
    /// How long the certificate shall live, at the Kubernetes door
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(600..=2_147_483_647))]
    pub(crate) expiration_seconds: Option<u32>,
    /// A certificate to ask with, at the Kubernetes door, instead of a token
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub(crate) client_cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    pub(crate) client_key: Option<PathBuf>,
}

/// Where things are.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Where NAME.pem, NAME-key.pem, ca.pem and crl.pem are [default: /etc/countersign/enroll]
    #[arg(long, value_name = "DIR", conflicts_with = "puppet_ssldir")]
    pub(crate) dir: Option<PathBuf>,
    /// A Puppet agent's ssldir, in whose layout everything is written, so that the agent goes on with it
    #[arg(long, value_name = "DIR")]
    pub(crate) puppet_ssldir: Option<PathBuf>,
    /// Another place for the certificate
    #[arg(long, value_name = "FILE")]
    pub(crate) cert_file: Option<PathBuf>,
    /// Another place for the key
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// A key that exists, is used where it is, and is not changed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key_file", "puppet_ssldir"])]
    pub(crate) key: Option<PathBuf>,
    /// Another place for the authority's certificates
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_out: Option<PathBuf>,
    /// Another place for the revocation lists
    #[arg(long, value_name = "FILE")]
    pub(crate) crl_out: Option<PathBuf>,
}

impl PlaceArgs {
    pub(crate) fn options(&self) -> PathOptions {
        PathOptions {
            dir: self.dir.clone(),
            puppet_ssldir: self.puppet_ssldir.clone(),
            cert_file: self.cert_file.clone(),
            key_file: self.key_file.clone(),
            key: self.key.clone(),
            ca_out: self.ca_out.clone(),
            crl_out: self.crl_out.clone(),
        }
    }
}

/// Whose it is.
#[derive(Debug, Args)]
pub(crate) struct OwnerArgs {
    /// Who owns what is written, by name or number [default: who runs this]
    #[arg(long, value_name = "USER[:GROUP]")]
    pub(crate) owner: Option<String>,
    /// The mode of the key, in octal
    #[arg(long, value_name = "MODE", default_value = "0600")]
    pub(crate) mode: KeyMode,
}

/// What runs afterwards.
#[derive(Debug, Args)]
pub(crate) struct HookArgs {
    /// A program to run when a certificate was installed or renewed; no shell is involved
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) hook: Option<PathBuf>,
    /// One argument of it (repeatable)
    #[arg(
        long,
        value_name = "TEXT",
        requires = "hook",
        allow_hyphen_values = true
    )]
    pub(crate) hook_arg: Vec<OsString>,
    /// How long it may take
    #[arg(
        long,
        value_name = "DURATION",
        requires = "hook",
        default_value = "60s"
    )]
    pub(crate) hook_timeout: Span,
}

/// How long, and when again.
#[derive(Debug, Args)]
pub(crate) struct TimingArgs {
    /// How long to wait for the certificate
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "1h",
        conflicts_with = "no_wait"
    )]
    pub(crate) wait: Span,
    /// Ask once, and exit 1 if the certificate is not there yet
    #[arg(long, conflicts_with = "daemon")]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) renewal: RenewalArg,
    /// Stay, and renew for ever
    #[arg(long)]
    pub(crate) daemon: bool,
}

/// When a certificate is renewed.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct RenewalArg {
    /// How long before its end a certificate is renewed, as a duration or a part of its life [default: 33%]
    #[arg(long, value_name = "DURATION|PERCENT", value_parser = renew_before)]
    pub(crate) renew_before: Option<RenewBefore>,
}

/// A duration or a part of a life.
fn renew_before(text: &str) -> Result<RenewBefore, String> {
    let Some(number) = text.strip_suffix('%') else {
        let span = text
            .parse()
            .map(|span: Span| RenewBefore::Time(Duration::from_secs(span.as_seconds())));
        return span.map_err(|_| {
            format!("{text:?} is neither a duration, for example 30d, nor a part, for example 33%")
        });
    };
    match number.parse() {
        Ok(percent @ 1..=99) => Ok(RenewBefore::Percent(percent)),
        _ => Err(format!("{text:?} is no part of a life: write 1% to 99%")),
    }
}

/// The digest that was told to whoever enrols, in any usual spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CaFingerprint(pub(crate) Fingerprint);

impl FromStr for CaFingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "it is no SHA-256 digest: write 64 hexadecimal digits, with or without colons"
                .to_owned()
        };
        let bare = match text.get(..7) {
            Some(prefix) if prefix.eq_ignore_ascii_case("sha256:") => text.get(7..),
            _ => Some(text),
        };
        let digits: Vec<u32> = bare
            .unwrap_or_default()
            .chars()
            .filter(|c| *c != ':' && *c != ' ')
            .map(|c| c.to_digit(16).ok_or_else(wrong))
            .collect::<Result<_, _>>()?;
        let mut bytes = [0_u8; 32];
        if digits.len() != bytes.len() * 2 {
            return Err(wrong());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let value = pair.iter().fold(0, |sum, digit| sum * 16 + digit);
            *byte = u8::try_from(value).map_err(|_| wrong())?;
        }
        Ok(Self(Fingerprint::from_bytes(bytes)))
    }
}

/// A kind of key, with or without the hyphen that other programs write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyWord(pub(crate) KeySpec);

impl FromStr for KeyWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.replace('-', "").parse().map(Self).map_err(|_| {
            format!("{text:?} is no kind of key: say p256, p384, rsa-2048, rsa-3072 or rsa-4096")
        })
    }
}

/// `NAME=TEXT`.
fn assignment(text: &str) -> Result<Assignment, &'static str> {
    match text.split_once('=') {
        Some((name, text)) if !name.is_empty() => Ok(Assignment {
            name: name.to_owned(),
            text: text.to_owned(),
        }),
        _ => Err("write OID=TEXT, for example pp_role=web"),
    }
}

/// Permission bits of a key: never for everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyMode(pub(crate) u32);

impl FromStr for KeyMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match u32::from_str_radix(text, 8) {
            Ok(mode) if mode & !0o660 == 0 && mode & 0o400 != 0 => Ok(Self(mode)),
            _ => Err(format!(
                "{text:?} is no mode for a key: its owner reads it, others never, for example 0600 or 0640"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_have_several_spellings() {
        let hex = "0123456789abcdef".repeat(4);
        let expected: CaFingerprint = hex.parse().unwrap();
        let colons = expected.0.to_string();
        for text in [
            colons.clone(),
            format!("SHA256:{hex}"),
            format!("sha256:{colons}"),
            hex.to_uppercase(),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "SHA256:",
            "0123",
            &format!("{hex}00"),
            &hex.replace('0', "x"),
        ] {
            assert!(text.parse::<CaFingerprint>().is_err(), "{text}");
        }
    }

    #[test]
    fn words_of_the_command_line() {
        assert_eq!("rsa-3072".parse(), Ok(KeyWord(KeySpec::Rsa3072)));
        assert_eq!("p256".parse(), Ok(KeyWord(KeySpec::P256)));
        assert!("rsa-1024".parse::<KeyWord>().is_err());
        assert_eq!(renew_before("20%"), Ok(RenewBefore::Percent(20)));
        let month = Duration::from_secs(30 * 86_400);
        assert_eq!(renew_before("30d"), Ok(RenewBefore::Time(month)));
        for text in ["0%", "100%", "soon", "%", ""] {
            assert!(renew_before(text).is_err(), "{text}");
        }
        assert_eq!("640".parse(), Ok(KeyMode(0o640)));
        for text in ["0644", "0700", "0200", "9", ""] {
            assert!(text.parse::<KeyMode>().is_err(), "{text}");
        }
        assert!(assignment("=x").is_err() && assignment("x").is_err());
        assert_eq!(assignment("a=b=c").unwrap().text, "b=c");
    }
}
