//! The flags of `ca`: those of `puppetserver ca`, and where our files are.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use super::{DataArg, ServerArgs};
use crate::config::{KeyKind, Span};

/// How a verb of `ca` finds the running server.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CaServer {
    /// A puppet.conf, whose server and credentials are used unless --data or --server says otherwise; or Countersign's
    /// own configuration (.yaml), whose data directory is used
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Where a verb works on the files of a stopped server.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct OfflineArgs {
    #[command(flatten)]
    pub(crate) data: DataArg,
    /// A puppet.conf, or Countersign's own configuration (.yaml)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// The names in the server's certificate.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServerNameArgs {
    /// The server's certname [default: that of puppet.conf, else this machine's name]
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) certname: String,
    /// Further names of the server, as name, DNS:name or IP:address [default: puppet]
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    pub(crate) subject_alt_names: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    #[command(flatten)]
    pub(crate) names: ServerNameArgs,
    /// The intermediate CA's common name [default: Puppet CA: CERTNAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) ca_name: Option<String>,
    /// The root CA's common name [default: Puppet Root CA: and 14 random digits]
    #[arg(long, value_name = "NAME")]
    pub(crate) root_ca_name: Option<String>,
    /// The CAs' kind of key: p256, p384, ed25519, rsa2048, rsa3072 or rsa4096 [default: RSA of puppet.conf's
    /// keylength, else `issuers.puppet.key`]
    #[arg(long, value_name = "KIND")]
    pub(crate) key_type: Option<KeyKind>,
    #[command(flatten)]
    pub(crate) place: OfflineArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The CA directory of a Puppet Server, which must be stopped; nothing in it is changed
    #[arg(long, value_name = "DIR", conflicts_with_all = ["private_key", "cert_bundle", "crl_chain"])]
    pub(crate) cadir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) parts: ImportParts,
    #[command(flatten)]
    pub(crate) names: ServerNameArgs,
    #[command(flatten)]
    pub(crate) place: OfflineArgs,
}

/// A CA in three files. All of them are needed, which is checked where the original checks it.
#[derive(Debug, Args)]
pub(crate) struct ImportParts {
    /// The CA's private key, PEM, unencrypted
    #[arg(long, value_name = "FILE")]
    pub(crate) private_key: Option<PathBuf>,
    /// Its certificate and those above it up to the root, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) cert_bundle: Option<PathBuf>,
    /// The CRLs of these CAs, PEM; its own may be missing
    #[arg(long, value_name = "FILE")]
    pub(crate) crl_chain: Option<PathBuf>,
    /// Let no certificate count that the CA has signed before; else those count that it has not revoked
    #[arg(long, conflicts_with = "cadir")]
    pub(crate) no_adopt: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// The names to make keys and certificates for
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    pub(crate) certname: Vec<String>,
    /// Further names in the certificates, as name, DNS:name or IP:address
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    pub(crate) subject_alt_names: Vec<String>,
    /// Make administrators' certificates, which may do everything that `ca` does
    #[arg(long)]
    pub(crate) ca_client: bool,
    /// Accepted for scripts; whether the server runs is always known
    #[arg(long)]
    pub(crate) force: bool,
    /// How long the certificates shall live: a number with s, m, h, d or y
    #[arg(long, value_name = "TTL")]
    pub(crate) ttl: Option<Ttl>,
    /// Where certs, private_keys and public_keys are [default: puppet.conf's ssldir, else ssl in the data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) ssldir: Option<PathBuf>,
    /// The kind of keys: p256, p384, ed25519, rsa2048, rsa3072 or rsa4096 [default: p256]
    #[arg(long, value_name = "KIND")]
    pub(crate) key_type: Option<KeyKind>,
    #[command(flatten)]
    pub(crate) server: CaServer,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// Those that have ended
    #[arg(long)]
    pub(crate) expired: bool,
    /// Those that were revoked
    #[arg(long)]
    pub(crate) revoked: bool,
    /// Those of these names
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    pub(crate) certname: Vec<String>,
    /// All of them, but for the authority's own
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) place: OfflineArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Entries that stand on the CRL twice (the default)
    #[arg(long)]
    pub(crate) remove_duplicates: bool,
    /// Entries of certificates that have ended
    #[arg(long)]
    pub(crate) remove_expired: bool,
    /// The entries that --serial and --certname name
    #[arg(long)]
    pub(crate) remove_entries: bool,
    /// Serials, in hexadecimal
    #[arg(long, value_name = "HEX[,HEX]", value_delimiter = ',')]
    pub(crate) serial: Vec<String>,
    /// Names, all of whose certificates are meant
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    pub(crate) certname: Vec<String>,
    #[command(flatten)]
    pub(crate) place: OfflineArgs,
}

/// A lifetime as `puppetserver ca` reads it: a number without a unit counts seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ttl {
    pub(crate) seconds: u64,
    text: String,
}

impl FromStr for Ttl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let with_unit = if text.bytes().all(|b| b.is_ascii_digit()) {
            format!("{text}s")
        } else {
            text.to_owned()
        };
        let span = with_unit.parse().map(Span::as_seconds);
        span.map_err(|fault| fault.to_string()).map(|seconds| Self {
            seconds,
            text: text.to_owned(),
        })
    }
}

/// As it was typed.
impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_of_puppet_may_lack_a_unit() {
        for (text, seconds) in [("3600", 3600), ("1h", 3600), ("1d", 86_400)] {
            let ttl: Ttl = text.parse().unwrap();
            assert_eq!((ttl.seconds, ttl.to_string().as_str()), (seconds, text));
        }
        assert!("soon".parse::<Ttl>().is_err() && "".parse::<Ttl>().is_err());
    }
}
