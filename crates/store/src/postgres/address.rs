//! Where a database is and how it is reached: a URL in the form of libpq, whose files are read at each connection.
//!
//! Two things differ from libpq. A host that is not this machine's is verified unless the URL says otherwise
//! (`sslmode=verify-full`), and `allow` and `prefer` are refused, because whoever can interfere with the connection could
//! turn TLS off.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::config::{Config, Host, SslMode, TargetSessionAttrs};

/// A database, and who asks. Passwords are shown by no way of printing it.
#[derive(Clone)]
pub struct Address {
    /// The URL as it may be shown.
    shown: String,
    config: Config,
    tls: Tls,
    password_file: Option<PathBuf>,
}

/// How a connection is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tls {
    pub(super) mode: TlsMode,
    /// Who certifies the server; none: whom the machine trusts.
    pub(super) roots: Option<PathBuf>,
    /// Certificate and key that are shown.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
}

/// How much is asked of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsMode {
    /// There is none.
    Disable,
    /// Nothing.
    Require,
    /// Somebody who is trusted has certified it.
    VerifyCa,
    /// The same, and for the host that was asked for.
    VerifyFull,
}

/// Why an address or one of its files is of no use.
#[derive(Debug, thiserror::Error)]
pub enum AddressFault {
    /// It is not the URL of a PostgreSQL database.
    #[error(
        "not a URL of a PostgreSQL database, such as postgres://countersign@db.example.com/countersign"
    )]
    Form(#[source] tokio_postgres::Error),
    /// It is no URL.
    #[error("not a URL of a PostgreSQL database: it begins with postgres://")]
    Scheme,
    /// It names no host, no user or no database.
    #[error("the URL of the PostgreSQL database names no {what}")]
    Missing {
        /// What.
        what: &'static str,
    },
    /// A setting has a value that it cannot have.
    #[error("{name}={value}: expected {expected}")]
    Setting {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it can be.
        expected: &'static str,
    },
    /// Only one of two files is named.
    #[error("sslcert and sslkey belong together: name both or none")]
    HalfIdentity,
    /// A file cannot be read.
    #[error("{}, named by {name}, cannot be read", .path.display())]
    File {
        /// The setting.
        name: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file holds something else.
    #[error("{}, named by {name}, holds no {what}", .path.display())]
    Content {
        /// The setting.
        name: &'static str,
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// Others can read a secret.
    #[error("{}, named by {name}, can be read by others: run chmod 600 on it", .path.display())]
    Open {
        /// The setting.
        name: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// The key does not fit the certificate, or TLS cannot be set up.
    #[error("TLS cannot be set up with these files")]
    Tls(#[from] rustls::Error),
}

impl FromStr for Address {
    type Err = AddressFault;

    fn from_str(url: &str) -> Result<Self, AddressFault> {
        let is_url = ["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| url.starts_with(scheme));
        if !is_url {
            return Err(AddressFault::Scheme);
        }
        let (place, settings) = url.split_once('?').unwrap_or((url, ""));
        let mut rest = Vec::new();
        let mut files = Files::default();
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            if !files.take(name, value) {
                rest.push(setting);
            }
        }
        let mut plain = place.to_owned();
        if !rest.is_empty() {
            plain = format!("{plain}?{}", rest.join("&"));
        }
        let mut config: Config = plain.parse().map_err(AddressFault::Form)?;
        let missing = |what| Err(AddressFault::Missing { what });
        if config.get_hosts().is_empty() {
            return missing("host");
        }
        if config.get_user().is_none() {
            return missing("user");
        }
        if config.get_dbname().is_none() {
            return missing("database");
        }
        let tls = files.tls(&config)?;
        config.ssl_mode(match tls.mode {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        // Of several hosts, the one that can be written: after a failover that is another.
        if config.get_hosts().len() > 1
            && config.get_target_session_attrs() == TargetSessionAttrs::Any
        {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        config
            .application_name("countersign")
            .keepalives_idle(KEEPALIVE)
            .keepalives_interval(KEEPALIVE)
            .keepalives_retries(3)
            .tcp_user_timeout(TCP_USER_TIMEOUT);
        Ok(Self {
            shown: without_password(place, settings),
            config,
            tls,
            password_file: files.password_file,
        })
    }
}

impl Address {
    /// Everything for a connection, with the password as the file has it now.
    pub(super) fn config(&self) -> Result<Config, AddressFault> {
        let mut config = self.config.clone();
        if let Some(path) = &self.password_file
            && let Some(password) = password_in(path, &config)?
        {
            config.password(password);
        }
        Ok(config)
    }

    pub(super) fn tls(&self) -> &Tls {
        &self.tls
    }

    /// Who asks.
    pub(super) fn user(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }
}

/// The URL without its password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.to_string()).finish()
    }
}

/// Two addresses are equal that lead to the same database in the same way.
impl PartialEq for Address {
    fn eq(&self, other: &Self) -> bool {
        (&self.config, &self.tls, &self.password_file)
            == (&other.config, &other.tls, &other.password_file)
    }
}

impl Eq for Address {}

fn without_password(place: &str, settings: &str) -> String {
    let (scheme, rest) = place.split_once("://").unwrap_or(("postgres", place));
    let mut shown = match rest.rsplit_once('@') {
        Some((user, place)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{place}")
        }
        None => place.to_owned(),
    };
    let is_public = |setting: &&str| !setting.is_empty() && !setting.starts_with("password=");
    for (index, setting) in settings.split('&').filter(is_public).enumerate() {
        shown.push(if index == 0 { '?' } else { '&' });
        shown.push_str(setting);
    }
    shown
}

/// The settings that the library below does not know.
#[derive(Default)]
struct Files {
    mode: Option<String>,
    roots: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    password_file: Option<PathBuf>,
}

impl Files {
    /// Whether it was one of them.
    fn take(&mut self, name: &str, value: String) -> bool {
        match name {
            "sslmode" => self.mode = Some(value),
            "sslrootcert" => self.roots = Some(value.into()),
            "sslcert" => self.certificate = Some(value.into()),
            "sslkey" => self.key = Some(value.into()),
            "passfile" => self.password_file = Some(value.into()),
            _ => return false,
        }
        true
    }

    fn tls(&self, config: &Config) -> Result<Tls, AddressFault> {
        let is_local = |host: &Host| matches!(host, Host::Unix(_));
        let mode = match self.mode.as_deref() {
            None if config.get_hosts().iter().all(is_local) => TlsMode::Disable,
            None | Some("verify-full") => TlsMode::VerifyFull,
            Some("verify-ca") => TlsMode::VerifyCa,
            // As libpq has it: with a file of roots, they count.
            Some("require") if self.roots.is_some() => TlsMode::VerifyCa,
            Some("require") => TlsMode::Require,
            Some("disable") => TlsMode::Disable,
            Some(other) => {
                return Err(AddressFault::Setting {
                    name: "sslmode",
                    value: other.to_owned(),
                    expected: "disable, require, verify-ca or verify-full",
                });
            }
        };
        let identity = match (self.certificate.clone(), self.key.clone()) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (_, _) => return Err(AddressFault::HalfIdentity),
        };
        Ok(Tls {
            mode,
            roots: self.roots.clone(),
            identity,
        })
    }
}

/// The content of a file that holds a secret.
pub(super) fn read_secret(name: &'static str, path: &Path) -> Result<String, AddressFault> {
    let file = |source| AddressFault::File {
        name,
        path: path.to_owned(),
        source,
    };
    if fs::metadata(path).map_err(file)?.mode() & 0o077 != 0 {
        let path = path.to_owned();
        return Err(AddressFault::Open { name, path });
    }
    fs::read_to_string(path).map_err(file)
}

/// The password in a file of libpq's form: lines of `host:port:database:user:password`, where `*` is any.
fn password_in(path: &Path, config: &Config) -> Result<Option<String>, AddressFault> {
    let text = read_secret("passfile", path)?;
    let host = config.get_hosts().first().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let wanted = [
        host.unwrap_or_default(),
        port.to_string(),
        config.get_dbname().unwrap_or_default().to_owned(),
        config.get_user().unwrap_or_default().to_owned(),
    ];
    let fits = |line: &&str| !line.starts_with('#');
    for line in text.lines().filter(fits) {
        let fields = fields_of(line);
        if let [host, port, database, user, password] = fields.as_slice() {
            let found = [host, port, database, user];
            let matches = |(found, wanted): (&&String, &String)| *found == "*" || *found == wanted;
            if found.iter().zip(&wanted).all(matches) {
                return Ok(Some(password.clone()));
            }
        }
    }
    Ok(None)
}

/// Fields are separated by colons; a backslash takes the next character as it is.
fn fields_of(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let letter = match letter {
            ':' if fields.len() < 5 => {
                fields.push(String::new());
                continue;
            }
            '\\' => letters.next().unwrap_or('\\'),
            other => other,
        };
        if let Some(field) = fields.last_mut() {
            field.push(letter);
        }
    }
    fields
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEPALIVE: Duration = Duration::from_secs(10);
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(url: &str) -> TlsMode {
        url.parse::<Address>().unwrap().tls.mode
    }

    #[test]
    fn a_server_elsewhere_is_verified_unless_the_url_says_otherwise() {
        assert_eq!(mode("postgres://u@db.example.com/d"), TlsMode::VerifyFull);
        assert_eq!(mode("postgres://u@%2Frun%2Fpg/d"), TlsMode::Disable);
        assert_eq!(mode("postgres://u@a,%2Frun%2Fpg/d"), TlsMode::VerifyFull);
        for (word, expected) in [
            ("disable", TlsMode::Disable),
            ("require", TlsMode::Require),
            ("require&sslrootcert=/ca.pem", TlsMode::VerifyCa),
            ("verify-ca", TlsMode::VerifyCa),
            ("verify-full", TlsMode::VerifyFull),
        ] {
            let url = format!("postgres://u@db.example.com/d?sslmode={word}");
            assert_eq!(mode(&url), expected, "{word}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (url, sentence) in [
            ("mysql://u@h/d", "begins with postgres://"),
            ("postgres://h/d", "names no user"),
            ("postgres://u@h", "names no database"),
            (
                "postgres://u@h/d?sslmode=prefer",
                "sslmode=prefer: expected",
            ),
            ("postgres://u@h/d?sslcert=/c", "belong together"),
            (
                "postgres://u@h/d?sslmodus=disable",
                "not a URL of a PostgreSQL",
            ),
        ] {
            let fault = url.parse::<Address>().unwrap_err().to_string();
            assert!(fault.contains(sentence), "{url}: {fault}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let url = "postgres://u:s3cret@h:5433/d?password=s3cret&sslmode=disable";
        let address: Address = url.parse().unwrap();
        let shown = address.to_string();
        assert_eq!(shown, "postgres://u@h:5433/d?sslmode=disable");
        assert!(!format!("{address:?}").contains("s3cret"));
        assert_eq!(shown.parse::<Address>().unwrap().to_string(), shown);
    }

    #[test]
    fn a_password_file_is_read_as_libpq_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passfile");
        let lines = "# h:1:d:u:comment\nother:*:*:*:no\nh:5433:*:u:with\\:colon:and\\\\more\n*:*:*:*:last\n";
        fs::write(&path, lines).unwrap();
        let password = |url: &str| {
            let url = format!("{url}?passfile={}", path.display());
            let config = url.parse::<Address>().unwrap().config();
            config.map(|config| {
                let password = config.get_password().unwrap_or_default();
                String::from_utf8(password.to_vec()).unwrap()
            })
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let fault = password("postgres://u@h:5433/d").unwrap_err();
        assert!(fault.to_string().contains("chmod 600"), "{fault}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let found = password("postgres://u@h:5433/d").unwrap();
        assert_eq!(found, "with:colon:and\\more");
        assert_eq!(password("postgres://u@h/d").unwrap(), "last");
    }
}
