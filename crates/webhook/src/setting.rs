//! What can be wrong with a webhook before it is ever asked.

use std::io;
use std::path::PathBuf;

use countersign_private_keys::private_file::FileFault;
use rustls::pki_types::pem;

/// Why webhooks cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadFault {
    /// The authority's name for itself does not fit into a header.
    #[error("the webhooks' id {id:?} is not visible ASCII text")]
    Id {
        /// What was configured.
        id: String,
    },
    /// A setting of one webhook.
    #[error("the webhook {address} cannot be asked")]
    Webhook {
        /// Where it is, without a query string.
        address: String,
        /// What is wrong.
        source: SettingFault,
    },
}

/// What is wrong with one webhook's settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingFault {
    /// No address that could be called.
    #[error("url {problem}: write https://HOST[:PORT]/PATH")]
    Url {
        /// In words.
        problem: &'static str,
    },
    /// A deadline is mandatory and bounded.
    #[error("timeout of {ms} ms is not between 1 ms and {limit} ms")]
    Timeout {
        /// As configured.
        ms: u64,
        /// The longest.
        limit: u64,
    },
    /// A file of certificates cannot be read.
    #[error("{setting} {} cannot be read", path.display())]
    Unreadable {
        /// The key in the policy file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of certificates is longer than any bundle.
    #[error("{setting} is longer than {limit} octets")]
    TooLarge {
        /// The key in the policy file.
        setting: &'static str,
        /// The longest.
        limit: u64,
    },
    /// Text that is not PEM.
    #[error("{setting} is not PEM")]
    Pem {
        /// The key in the policy file.
        setting: &'static str,
        /// What the reader said.
        source: pem::Error,
    },
    /// PEM without a certificate.
    #[error("{setting} holds no certificate")]
    NoCertificate {
        /// The key in the policy file.
        setting: &'static str,
    },
    /// A certificate that cannot be trusted as a CA's.
    #[error("certificate {position} of caBundle cannot be a trust anchor")]
    Anchor {
        /// Counted from one.
        position: usize,
        /// What the TLS library said.
        source: rustls::Error,
    },
    /// One of two files.
    #[error("clientCertFile and clientKeyFile belong together: {missing} is missing")]
    HalfIdentity {
        /// The key in the policy file.
        missing: &'static str,
    },
    /// The client key's file.
    #[error("clientKeyFile cannot be used")]
    KeyFile {
        /// What is wrong with it.
        source: FileFault,
    },
    /// Certificate and key do not fit together, or the key is of an unknown kind.
    #[error("clientCertFile and clientKeyFile cannot be used together")]
    Identity {
        /// What the TLS library said.
        source: rustls::Error,
    },
    /// The secret's file.
    #[error("secretFile cannot be used")]
    SecretFile {
        /// What is wrong with it.
        source: FileFault,
    },
    /// A secret that could be guessed.
    #[error(
        "secretFile {} holds less than {limit} octets: write a new one with `openssl rand -hex 32`",
        path.display()
    )]
    ShortSecret {
        /// The file.
        path: PathBuf,
        /// The shortest.
        limit: usize,
    },
    /// The TLS library itself.
    #[error("TLS cannot be set up")]
    Tls {
        /// What it said.
        source: rustls::Error,
    },
}
