//! `puppet.conf`: what a Puppet Server reads of it for its certificate authority.
//!
//! The form is Puppet's own: sections in brackets, `key = value`, comments on lines of their own, `$setting` in paths,
//! and `{owner = x, mode = y}` behind a value for file settings. The server reads `[server]`, else `[master]`, else
//! `[main]`; sections of agents and of environments are not for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use countersign_policy::Span;

use crate::setting::{Ignored, KeyFault, truth};

/// What is taken from the file; `None`: it does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PuppetConf {
    /// What is signed without a person.
    pub autosign: Option<Autosign>,
    /// How long a certificate lives.
    pub ca_ttl: Option<Span>,
    /// Whether a name that has a certificate may ask for another.
    pub allow_duplicate_certs: Option<bool>,
    /// What was passed over.
    pub ignored: Vec<Ignored>,
}

/// Which requests are signed without a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Autosign {
    /// All.
    Everything,
    /// None.
    Nothing,
    /// Those that the list or the executable at this path lets through.
    File(PathBuf),
}

impl FromStr for Autosign {
    type Err = AutosignFault;

    fn from_str(text: &str) -> Result<Self, AutosignFault> {
        match text {
            "true" => Ok(Self::Everything),
            "false" => Ok(Self::Nothing),
            path if path.starts_with('/') => Ok(Self::File(path.into())),
            other => Err(AutosignFault {
                text: other.to_owned(),
            }),
        }
    }
}

/// Why a text is no value of `autosign`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is neither true nor false nor an absolute path")]
pub struct AutosignFault {
    text: String,
}

impl PuppetConf {
    /// Reads a text. `confdir` is the folder of the file.
    ///
    /// # Errors
    /// The first key that cannot be meant, with its line.
    pub fn parse(text: &str, confdir: &Path) -> Result<Self, KeyFault> {
        let (settings, ignored) = Settings::parse(text)?;
        let settings = Settings {
            confdir,
            ..settings
        };
        let mut read = Self {
            ignored,
            ..Self::default()
        };
        if let Some(setting) = settings.find(AUTOSIGN) {
            let text = settings.interpolate(AUTOSIGN, setting)?;
            let wrong = |fault: AutosignFault| setting.fault(AUTOSIGN, fault.to_string());
            read.autosign = Some(text.parse().map_err(wrong)?);
        }
        if let Some(setting) = settings.find(CA_TTL) {
            read.ca_ttl = Some(ttl(setting)?);
        }
        if let Some(setting) = settings.find(ALLOW_DUPLICATE_CERTS) {
            let fault = |what| setting.fault(ALLOW_DUPLICATE_CERTS, what);
            read.allow_duplicate_certs = Some(truth(&setting.value).map_err(fault)?);
        }
        Ok(read)
    }
}

/// One line that sets something.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    line: usize,
    value: String,
}

impl Setting {
    fn fault(&self, key: &str, what: String) -> KeyFault {
        KeyFault {
            line: self.line,
            key: key.to_owned(),
            what,
        }
    }
}

/// The sections that count, each by key; the last of equal keys counts.
struct Settings<'a> {
    sections: BTreeMap<&'static str, BTreeMap<String, Setting>>,
    confdir: &'a Path,
}

impl Settings<'_> {
    fn parse(text: &str) -> Result<(Self, Vec<Ignored>), KeyFault> {
        let mut sections: BTreeMap<&'static str, BTreeMap<String, Setting>> = BTreeMap::new();
        let mut ignored = Vec::new();
        // What stands before the first section belongs to the main one.
        let mut section = Some(MAIN);
        for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let number = number + 1;
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                let name = name.0.trim();
                section = SECTIONS.iter().copied().find(|known| *known == name);
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                return Err(KeyFault {
                    line: number,
                    key: line.to_owned(),
                    what: "is neither a section nor `key = value` nor a comment".to_owned(),
                });
            };
            let (key, value) = (key.trim(), without_metadata(value.trim()));
            let Some(section) = section else { continue };
            if !KEYS.contains(&key) {
                ignored.push(Ignored {
                    line: number,
                    key: key.to_owned(),
                });
            }
            let setting = Setting {
                line: number,
                value: value.to_owned(),
            };
            let settings = sections.entry(section).or_default();
            settings.insert(key.to_owned(), setting);
        }
        let settings = Self {
            sections,
            confdir: Path::new(""),
        };
        Ok((settings, ignored))
    }

    fn find(&self, key: &str) -> Option<&Setting> {
        SECTIONS
            .iter()
            .find_map(|section| self.sections.get(section)?.get(key))
    }

    /// The value with every `$setting` and `${setting}` replaced by what the file, or Puppet's default, says.
    fn interpolate(&self, key: &str, setting: &Setting) -> Result<String, KeyFault> {
        let mut text = setting.value.clone();
        // Each round replaces one reference; a setting that names itself would never end.
        for _ in 0..MAX_REFERENCES {
            let Some((before, rest)) = text.split_once('$') else {
                return Ok(text);
            };
            let (name, rest) = match rest.strip_prefix('{') {
                Some(braced) => braced.split_once('}').unwrap_or((braced, "")),
                None => {
                    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                    let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
                    rest.split_at(end)
                }
            };
            let value = match (self.find(name), name) {
                // Where the file lies is where it lies, whatever it says.
                (_, "confdir") => self.confdir.display().to_string(),
                (Some(other), _) => other.value.clone(),
                (None, "ssldir") => "$confdir/ssl".to_owned(),
                (None, _) => {
                    let what = format!(
                        "the file does not set ${name}: write the path out, or set it there"
                    );
                    return Err(setting.fault(key, what));
                }
            };
            text = format!("{before}{value}{rest}");
            if text.len() > MAX_VALUE {
                break;
            }
        }
        let what = "its references lead in a circle: write the path out".to_owned();
        Err(setting.fault(key, what))
    }
}

/// The value without what Puppet lets stand behind it for file settings: `/path {mode = 0640}`.
fn without_metadata(value: &str) -> &str {
    match value.rfind('{') {
        // `${name}` is a reference, not metadata.
        Some(at) if value.ends_with('}') && !value.get(..at).unwrap_or_default().ends_with('$') => {
            value.get(..at).unwrap_or_default().trim_end()
        }
        _ => value,
    }
}

/// A number with an optional unit; seconds without one.
fn ttl(setting: &Setting) -> Result<Span, KeyFault> {
    let text = setting.value.as_str();
    let is_bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let with_unit = match is_bare {
        true => format!("{text}s"),
        false => text.to_owned(),
    };
    let span = with_unit.parse::<Span>().map_err(|_| {
        let what = format!(
            "{text:?} is no duration: write a number of seconds, or one with y, d, h, m or s"
        );
        setting.fault(CA_TTL, what)
    })?;
    let lifetime = span.as_lifetime();
    lifetime.map_err(|what| setting.fault(CA_TTL, what.to_string()))
}

const AUTOSIGN: &str = "autosign";
const CA_TTL: &str = "ca_ttl";
const ALLOW_DUPLICATE_CERTS: &str = "allow_duplicate_certs";
const KEYS: [&str; 3] = [AUTOSIGN, CA_TTL, ALLOW_DUPLICATE_CERTS];

const MAIN: &str = "main";
/// What counts most first.
const SECTIONS: [&str; 3] = ["server", "master", MAIN];

const MAX_REFERENCES: usize = 16;
const MAX_VALUE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PuppetConf, KeyFault> {
        PuppetConf::parse(text, Path::new("/etc/puppet"))
    }

    fn file(path: &str) -> Option<Autosign> {
        Some(Autosign::File(path.into()))
    }

    #[test]
    fn autosign_is_read_as_puppet_reads_it() {
        for (text, expected) in [
            ("", None),
            ("[main]\nautosign = true\n", Some(Autosign::Everything)),
            ("[server]\nautosign=false", Some(Autosign::Nothing)),
            ("autosign = true", Some(Autosign::Everything)),
            ("[agent]\nautosign = true\n", None),
            ("[production]\nautosign = true\n", None),
            ("[main]\n# autosign = true\n", None),
            ("  [ main ]\r\n  autosign = /a/b \r\n", file("/a/b")),
            (
                "[main]\nautosign = true\n[master]\nautosign = false\n",
                Some(Autosign::Nothing),
            ),
            (
                "[server]\nautosign = /s\n[master]\nautosign = /m\n[main]\nautosign = true\n",
                file("/s"),
            ),
            ("[main]\nautosign = /a\nautosign = /b\n", file("/b")),
            (
                "[server]\nautosign = /a/policy {owner = service, mode = 0755}\n",
                file("/a/policy"),
            ),
            (
                "[main]\nautosign = $confdir/list\n",
                file("/etc/puppet/list"),
            ),
            (
                "[main]\nautosign = ${confdir}/list\n",
                file("/etc/puppet/list"),
            ),
            (
                "[main]\nvardir = /var/lib/puppet\n[server]\nautosign = $vardir/list {mode = 600}\n",
                file("/var/lib/puppet/list"),
            ),
            (
                "[main]\nautosign = $ssldir/list\n",
                file("/etc/puppet/ssl/list"),
            ),
            (
                "[main]\nssldir = $vardir/ssl\nvardir = /v\nautosign = ${ssldir}/l\n",
                file("/v/ssl/l"),
            ),
        ] {
            let read = parse(text).unwrap_or_else(|fault| panic!("{text:?}: {fault}"));
            assert_eq!(read.autosign, expected, "{text:?}");
        }
    }

    #[test]
    fn durations_and_truth_values_are_read_as_puppet_reads_them() {
        for (text, ca_ttl, duplicates) in [
            ("ca_ttl = 5y", Some(Span::years(5)), None),
            ("ca_ttl = 90d", Some(Span::days(90)), None),
            ("ca_ttl = 3600", Some(Span::seconds(3600)), None),
            ("ca_ttl = 1576800000", Some(Span::years(50)), None),
            ("allow_duplicate_certs = true", None, Some(true)),
            ("allow_duplicate_certs = false", None, Some(false)),
        ] {
            let read = parse(text).unwrap();
            let found = (read.ca_ttl, read.allow_duplicate_certs);
            assert_eq!(found, (ca_ttl, duplicates), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_line() {
        for (text, line, part) in [
            ("[main]\nautosign = autosign.conf\n", 2, "absolute path"),
            ("[main]\n\nautosign = yes\n", 3, "absolute path"),
            ("[main]\nautosign = True\n", 2, "absolute path"),
            ("[main]\nautosign =\n", 2, "absolute path"),
            ("[main]\nautosign = $vardir/a\n", 2, "$vardir"),
            (
                "[main]\nvardir = $vardir\nautosign = $vardir\n",
                3,
                "circle",
            ),
            ("[main]\nca_ttl = 51y\n", 2, "50y"),
            ("[main]\nca_ttl = 0\n", 2, "10m"),
            ("[main]\nca_ttl = 5m\n", 2, "10m"),
            ("[main]\nca_ttl = 1576800001\n", 2, "50y"),
            ("[main]\nca_ttl = five years\n", 2, "no duration"),
            ("[main]\nca_ttl = -1\n", 2, "no duration"),
            (
                "[main]\nallow_duplicate_certs = yes\n",
                2,
                "neither true nor false",
            ),
            ("[main]\nnonsense\n", 2, "neither a section"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.what.contains(part), "{text:?}: {fault}");
            assert_eq!(fault.line, line, "{text:?}: {fault}");
        }
    }

    #[test]
    fn settings_for_others_are_ignored_and_named() {
        let text = "[main]\nserver = ca\n[agent]\nruninterval = 1h\n[server]\nautosign = true\n";
        let ignored = parse(text).unwrap().ignored;
        let keys: Vec<&str> = ignored.iter().map(|ignored| ignored.key.as_str()).collect();
        assert_eq!(keys, ["server"]);
    }
}
