//! `ca.conf`: the section `certificate-authority` of a Puppet Server's configuration.

use std::path::PathBuf;

use countersign_policy::Span;

use crate::hocon::{self, HoconFault, Node, Value};
use crate::setting::{Ignored, KeyFault, truth};

/// What is taken from the file; `None`: it does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaConf {
    /// Whether names beside the certname may be signed.
    pub allow_subject_alt_names: Option<bool>,
    /// Whether extensions that give rights may be signed.
    pub allow_authorization_extensions: Option<bool>,
    /// Whether agents may renew.
    pub allow_auto_renewal: Option<bool>,
    /// How long a renewed certificate lives.
    pub auto_renewal_cert_ttl: Option<Span>,
    /// How long a certificate lives.
    pub ca_ttl: Option<Span>,
    /// Whether agents are served the infra CRL.
    pub enable_infra_crl: Option<bool>,
    /// The names that it is made for.
    pub infra_nodes_path: Option<PathBuf>,
    /// Who else than an administrator may use `certificate_status` there, in words; Countersign admits nobody else.
    pub legacy_access: Option<(usize, String)>,
    /// What was passed over.
    pub ignored: Vec<Ignored>,
}

impl CaConf {
    /// Reads a text.
    ///
    /// # Errors
    /// The first key that cannot be meant, with its line.
    pub fn parse(text: &str) -> Result<Self, KeyFault> {
        let root = hocon::parse(text).map_err(|HoconFault { line, what }| KeyFault {
            line,
            key: "the file".to_owned(),
            what,
        })?;
        let mut read = Self::default();
        let Some(section) = root.get(SECTION) else {
            return Ok(read);
        };
        let Value::Object(members) = &section.value else {
            return Err(fault(SECTION, section, "is not an object".to_owned()));
        };
        for (key, node) in members {
            match key.as_str() {
                "allow-subject-alt-names" => {
                    read.allow_subject_alt_names = Some(boolean(key, node)?);
                }
                "allow-authorization-extensions" => {
                    read.allow_authorization_extensions = Some(boolean(key, node)?);
                }
                "allow-auto-renewal" => read.allow_auto_renewal = Some(boolean(key, node)?),
                "auto-renewal-cert-ttl" => read.auto_renewal_cert_ttl = Some(ttl(key, node)?),
                "ca-ttl" => read.ca_ttl = Some(ttl(key, node)?),
                "enable-infra-crl" => read.enable_infra_crl = Some(boolean(key, node)?),
                "infra-nodes-path" => read.infra_nodes_path = Some(text_of(key, node)?.into()),
                "certificate-status" => {
                    read.legacy_access = legacy_access(key, node)?.map(|who| (node.line, who));
                }
                _ => read.ignored.push(Ignored {
                    line: node.line,
                    key: key.clone(),
                }),
            }
        }
        Ok(read)
    }
}

/// The access rules that Puppet Server had before `auth.conf`. They can only give more than Countersign gives.
fn legacy_access(key: &str, node: &Node) -> Result<Option<String>, KeyFault> {
    let Value::Object(_) = &node.value else {
        return Err(fault(key, node, "is not an object".to_owned()));
    };
    if let Some(required) = node.get("authorization-required")
        && !boolean("authorization-required", required)?
    {
        return Ok(Some("everybody".to_owned()));
    }
    let Some(list) = node.get("client-whitelist") else {
        return Ok(None);
    };
    let Value::List(names) = &list.value else {
        return Err(fault("client-whitelist", list, "is not a list".to_owned()));
    };
    let mut admitted = Vec::new();
    for name in names {
        admitted.push(text_of("client-whitelist", name)?);
    }
    Ok((!admitted.is_empty()).then(|| admitted.join(", ")))
}

fn boolean(key: &str, node: &Node) -> Result<bool, KeyFault> {
    truth(text_of(key, node)?).map_err(|what| fault(key, node, what))
}

fn text_of<'a>(key: &str, node: &'a Node) -> Result<&'a str, KeyFault> {
    match &node.value {
        Value::Text(text) => Ok(text),
        Value::Object(_) | Value::List(_) => {
            Err(fault(key, node, "is not a single value".to_owned()))
        }
    }
}

/// One or more numbers, each with its unit: `1y 2d`, `22d1s`. A bare number is refused, as Puppet Server refuses it.
fn ttl(key: &str, node: &Node) -> Result<Span, KeyFault> {
    let text = text_of(key, node)?;
    let form = || {
        let what =
            format!("{text:?} is no duration: write numbers with y, d, h, m or s, for example 60d");
        fault(key, node, what)
    };
    let mut seconds = 0u64;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(form());
    }
    while !rest.is_empty() {
        let unit = rest.find(|letter: char| !letter.is_ascii_digit());
        let end = unit.ok_or_else(form)? + 1;
        let group = rest.get(..end).ok_or_else(form)?;
        let span: Span = group.parse().map_err(|_| form())?;
        seconds = seconds.saturating_add(span.as_seconds());
        rest = rest.get(end..).unwrap_or_default().trim_start();
    }
    let lifetime = Span::seconds(seconds).as_lifetime();
    lifetime.map_err(|what| fault(key, node, what.to_string()))
}

fn fault(key: &str, node: &Node, what: String) -> KeyFault {
    KeyFault {
        line: node.line,
        key: key.to_owned(),
        what,
    }
}

const SECTION: &str = "certificate-authority";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(section: &str) -> Result<CaConf, KeyFault> {
        CaConf::parse(&format!("certificate-authority: {{\n{section}\n}}\n"))
    }

    #[test]
    fn the_file_as_debian_ships_it() {
        let read = CaConf::parse(PACKAGED).unwrap();
        let expected = CaConf {
            allow_auto_renewal: Some(false),
            auto_renewal_cert_ttl: Some(Span::days(60)),
            ..CaConf::default()
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn every_key_is_read() {
        let read = parse(
            "allow-subject-alt-names = true, allow-authorization-extensions = false
             allow-auto-renewal: true
             auto-renewal-cert-ttl: \"1y 1d 1h 1m 1s\"
             ca-ttl: 22d1s
             enable-infra-crl = true
             infra-nodes-path: \"/etc/infra.txt\"
             crl-lock-timeout-seconds: 60",
        )
        .unwrap();
        let expected = CaConf {
            allow_subject_alt_names: Some(true),
            allow_authorization_extensions: Some(false),
            allow_auto_renewal: Some(true),
            auto_renewal_cert_ttl: Some(Span::seconds(31_626_061)),
            ca_ttl: Some(Span::seconds(1_900_801)),
            enable_infra_crl: Some(true),
            infra_nodes_path: Some("/etc/infra.txt".into()),
            legacy_access: None,
            ignored: vec![Ignored {
                line: 8,
                key: "crl-lock-timeout-seconds".to_owned(),
            }],
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn spellings_of_the_section() {
        for text in [
            "certificate-authority { allow-auto-renewal: true }",
            "certificate-authority.allow-auto-renewal = true",
            "{ \"certificate-authority\": { \"allow-auto-renewal\": true } }",
            "other { x: 1 }\ncertificate-authority = {\n  allow-auto-renewal = true // yes\n}",
        ] {
            let read = CaConf::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
            assert_eq!(read.allow_auto_renewal, Some(true), "{text}");
        }
        for text in ["", "# nothing\n", "jruby-puppet { a: 1 }"] {
            assert_eq!(CaConf::parse(text).unwrap(), CaConf::default(), "{text}");
        }
    }

    #[test]
    fn legacy_access_rules_are_noticed() {
        for (section, who) in [
            ("certificate-status { authorization-required: true }", None),
            (
                "certificate-status { authorization-required: false }",
                Some("everybody"),
            ),
            (
                "certificate-status { authorization-required: true, client-whitelist: [] }",
                None,
            ),
            (
                "certificate-status: { client-whitelist: [a.example, b.example] }",
                Some("a.example, b.example"),
            ),
        ] {
            let read = parse(section).unwrap();
            let found = read.legacy_access.as_ref().map(|(_, who)| who.as_str());
            assert_eq!(found, who, "{section}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_line() {
        for (section, line, part) in [
            ("allow-subject-alt-names: yes", 2, "neither true nor false"),
            ("allow-subject-alt-names: [true]", 2, "single value"),
            ("\nca-ttl: 60", 3, "no duration"),
            ("ca-ttl: \"60 d\"", 2, "no duration"),
            ("ca-ttl: 1w", 2, "no duration"),
            ("ca-ttl: \"\"", 2, "no duration"),
            ("ca-ttl: 51y", 2, "50y"),
            ("ca-ttl: 0d", 2, "10m"),
            ("auto-renewal-cert-ttl: 1s", 2, "10m"),
            ("auto-renewal-cert-ttl: 51y", 2, "50y"),
            ("auto-renewal-cert-ttl: 100y1s", 2, "50y"),
            ("certificate-status: off", 2, "not an object"),
            ("include \"x\"", 2, "include"),
            ("ca-ttl: ${TTL}", 2, "substitutions"),
        ] {
            let fault = parse(section).unwrap_err();
            assert!(fault.what.contains(part), "{section}: {fault}");
            assert_eq!(fault.line, line, "{section}: {fault}");
        }
        let fault = CaConf::parse("certificate-authority = none").unwrap_err();
        assert!(fault.to_string().contains("not an object"), "{fault}");
    }

    /// The keys and the form of the packaged file; the comments are ours.
    const PACKAGED: &str = r#"certificate-authority: {
    # Names beside the certname.
    # allow-subject-alt-names: false

    # Extensions that give rights.
    # allow-authorization-extensions: false

    # A list of its own for the infrastructure.
    # enable-infra-crl: false
    # No renewal by agents.
    allow-auto-renewal: false
    # How long a renewed one lives.
    auto-renewal-cert-ttl: "60d"
    # Wins over the key of the same purpose in puppet.conf.
    #ca-ttl: "60d"
}
"#;
}
