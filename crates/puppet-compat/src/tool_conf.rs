//! What `puppetserver ca` takes from a puppet.conf: names, folders, the server and the credentials for it.
//!
//! It reads the file in another way than the server does: the sections agent, main, master and server are laid over each other in this
//! order, and a value ends at white space, `{` or `#`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The settings of a puppet.conf, with its defaults where they matter here.
#[derive(Clone, Debug, Default)]
pub struct ToolConf {
    settings: BTreeMap<String, String>,
    /// Who this machine is, where the file does not say.
    machine: String,
}

/// Why a file cannot be used, in the words of `puppetserver ca`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolConfFault {
    /// It is not there, or not text.
    #[error("Could not read file '{}'", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
    },
    /// A value names a setting that is not known.
    #[error(
        "Could not parse ${name} in {value}, valid settings to be interpolated are \
         $ssldir, $certdir, $cadir, $certname, $server, or $masterport"
    )]
    Interpolation {
        /// The setting that is named.
        name: String,
        /// The value.
        value: String,
    },
}

/// A server and the credentials for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPlace {
    /// Where it is.
    pub url: String,
    /// The client certificate.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// What verifies the server.
    pub cacert: Option<PathBuf>,
}

impl ToolConf {
    /// Reads a file on the machine of this name.
    ///
    /// # Errors
    /// If it cannot be read, or a setting that is used names one that is not known.
    pub fn load(path: &Path, machine: &str) -> Result<Self, ToolConfFault> {
        let unreadable = |_| ToolConfFault::Unreadable {
            path: path.to_owned(),
        };
        Self::parse(&fs::read_to_string(path).map_err(unreadable)?, machine)
    }

    fn parse(text: &str, machine: &str) -> Result<Self, ToolConfFault> {
        let mut sections: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
        let mut section = "main";
        for line in text.lines().map(str::trim_start) {
            if let Some(rest) = line.strip_prefix('[') {
                section = rest.split(']').next().unwrap_or("main");
            } else if let Some((name, value)) = line.split_once('=') {
                let name = name.trim_end();
                let end = |c: char| c.is_whitespace() || c == '{' || c == '#';
                let value = value.trim_start().split(end).next().unwrap_or_default();
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                if !name.is_empty() && name.chars().all(is_name) && !value.is_empty() {
                    sections.entry(section).or_default().insert(name, value);
                }
            }
        }
        let mut settings: BTreeMap<String, String> = BTreeMap::new();
        for section in ["agent", "main", "master", "server"] {
            let layer = sections.get(section).into_iter().flatten();
            settings.extend(layer.map(|(name, value)| (name.to_string(), value.to_string())));
        }
        if let Some(port) = settings.remove("masterport") {
            settings.entry("serverport".to_owned()).or_insert(port);
        }
        let conf = Self {
            settings,
            machine: machine.to_owned(),
        };
        for name in conf
            .settings
            .keys()
            .filter(|name| USED.contains(&name.as_str()))
        {
            conf.get(name)?;
        }
        Ok(conf)
    }

    /// A setting with the settings in it replaced by their values; the default where it is not set.
    fn get(&self, name: &str) -> Result<Option<String>, ToolConfFault> {
        self.resolved(name, 0)
    }

    fn resolved(&self, name: &str, depth: usize) -> Result<Option<String>, ToolConfFault> {
        if name == "certname" && !self.settings.contains_key(name) {
            return Ok(Some(self.machine.clone()));
        }
        let default = DEFAULTS.iter().find(|(known, _)| *known == name);
        let Some(raw) = (self.settings.get(name).map(String::as_str)).or(default.map(|(_, d)| *d))
        else {
            return Ok(None);
        };
        let mut text = String::new();
        let mut rest = raw;
        while let Some((before, after)) = rest.split_once('$') {
            text.push_str(before);
            let end = after.find(|c: char| !(c.is_ascii_lowercase() || c == '_'));
            let (inner, behind) = after.split_at(end.unwrap_or(after.len()));
            let value = match depth < MAX_DEPTH && INTERPOLATED.contains(&inner) {
                true => self.resolved(inner, depth + 1)?,
                false => None,
            };
            let unknown = || ToolConfFault::Interpolation {
                name: inner.to_owned(),
                value: raw.to_owned(),
            };
            text.push_str(&value.ok_or_else(unknown)?);
            rest = behind;
        }
        text.push_str(rest);
        Ok(Some(text))
    }

    /// The certname that the file names; none, if it leaves that to the machine.
    ///
    /// # Errors
    /// If it names a setting that is not known.
    pub fn certname(&self) -> Result<Option<String>, ToolConfFault> {
        match self.settings.contains_key("certname") {
            true => self.get("certname"),
            false => Ok(None),
        }
    }

    /// The further names of the server.
    ///
    /// # Errors
    /// If it names a setting that is not known.
    pub fn alt_names(&self) -> Result<Vec<String>, ToolConfFault> {
        let names = self.get("dns_alt_names")?.unwrap_or_default();
        Ok(names
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect())
    }

    /// How long a certificate lives, as it is written.
    ///
    /// # Errors
    /// If it names a setting that is not known.
    pub fn ca_ttl(&self) -> Result<Option<String>, ToolConfFault> {
        self.get("ca_ttl")
    }

    /// The size of new RSA keys, as it is written.
    ///
    /// # Errors
    /// If it names a setting that is not known.
    pub fn keylength(&self) -> Result<Option<String>, ToolConfFault> {
        self.get("keylength")
    }

    /// A folder below ssldir, if the file says where that is.
    ///
    /// # Errors
    /// If it names a setting that is not known.
    pub fn folder(&self, name: &str) -> Result<Option<PathBuf>, ToolConfFault> {
        if self.settings.contains_key("ssldir") || self.settings.contains_key(name) {
            Ok(self.get(name)?.map(PathBuf::from))
        } else {
            Ok(None)
        }
    }

    /// The server and the credentials for it.
    ///
    /// # Errors
    /// If it names a setting that is not known.
    pub fn server(&self) -> Result<ServerPlace, ToolConfFault> {
        let list = self.settings.get("server_list");
        let first = list
            .and_then(|list| list.split(',').next())
            .unwrap_or_default();
        let (list_host, list_port) = first.split_once(':').unwrap_or((first, ""));
        let own = |name: &str, listed: &str, other: &str| -> Result<String, ToolConfFault> {
            match (self.get(name)?, listed) {
                (Some(value), _) => Ok(value),
                (None, "") => Ok(self.get(other)?.unwrap_or_default()),
                (None, listed) => Ok(listed.to_owned()),
            }
        };
        let host = own("ca_server", list_host, "server")?;
        let port = own("ca_port", list_port, "serverport")?;
        let file = |name: &str| Ok(self.get(name)?.map(PathBuf::from));
        Ok(ServerPlace {
            url: format!("https://{host}:{port}"),
            cert: file("hostcert")?,
            key: file("hostprivkey")?,
            cacert: file("localcacert")?,
        })
    }
}

/// What is looked at; an unresolvable value elsewhere does no harm.
const USED: [&str; 16] = [
    "ssldir",
    "certdir",
    "privatekeydir",
    "publickeydir",
    "certname",
    "dns_alt_names",
    "ca_ttl",
    "keylength",
    "ca_server",
    "ca_port",
    "server",
    "serverport",
    "hostcert",
    "hostprivkey",
    "localcacert",
    "cadir",
];
const INTERPOLATED: [&str; 8] = [
    "ssldir",
    "certdir",
    "privatekeydir",
    "publickeydir",
    "cadir",
    "certname",
    "server",
    "serverport",
];
const DEFAULTS: [(&str, &str); 10] = [
    ("ssldir", "/var/lib/puppet/ssl"),
    ("certdir", "$ssldir/certs"),
    ("privatekeydir", "$ssldir/private_keys"),
    ("publickeydir", "$ssldir/public_keys"),
    ("cadir", "$ssldir/ca"),
    ("server", "puppet"),
    ("serverport", "8140"),
    ("hostcert", "$certdir/$certname.pem"),
    ("hostprivkey", "$privatekeydir/$certname.pem"),
    ("localcacert", "$certdir/ca.pem"),
];
/// Bounds settings that name each other in a circle.
const MAX_DEPTH: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(text: &str) -> ToolConf {
        ToolConf::parse(text, "machine").unwrap()
    }

    #[test]
    fn sections_are_laid_over_each_other() {
        let text = "certname = main\n[agent]\ncertname = agent\n[server]\n  certname = host # why\n[other]\ncertname=no\n";
        assert_eq!(conf(text).certname().unwrap().unwrap(), "host");
        assert_eq!(
            conf("[agent]\ncertname=a{mode = 1}")
                .certname()
                .unwrap()
                .unwrap(),
            "a"
        );
        assert_eq!(conf("# certname = x\n").certname().unwrap(), None);
    }

    #[test]
    fn settings_in_values_are_replaced_and_circles_end() {
        let found = conf("ssldir = /s\ncertdir = $ssldir/c\n")
            .folder("certdir")
            .unwrap();
        assert_eq!(found.unwrap(), Path::new("/s/c"));
        assert_eq!(conf("x = 1").folder("certdir").unwrap(), None);
        for bad in ["ssldir = $ssldir/x", "certdir = $nothing/x"] {
            let fault = ToolConf::parse(bad, "machine").unwrap_err().to_string();
            assert!(fault.starts_with("Could not parse $"), "{fault}");
        }
    }

    #[test]
    fn the_server_is_the_ca_server_or_the_first_of_the_list() {
        let with = |text: &str| {
            let server = conf(&format!("certname = h\nssldir = /s\n{text}"))
                .server()
                .unwrap();
            assert_eq!(server.cert.unwrap(), Path::new("/s/certs/h.pem"));
            server.url
        };
        assert_eq!(with(""), "https://puppet:8140");
        assert_eq!(with("server = a\nmasterport = 1"), "https://a:1");
        assert_eq!(with("server_list = a:2,b"), "https://a:2");
        assert_eq!(
            with("ca_server = c\nca_port = 3\nserver_list = a:2,b"),
            "https://c:3"
        );
    }
}
