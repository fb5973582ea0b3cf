use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn parse(text: &str) -> Result<Config, ConfigFault> {
    Config::parse(text, Path::new("c.yaml"))
}

fn fault(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

/// Every optional key is present, so that walking it finds every key.
const FULL: &str = "
data: /var/lib/countersign
listen: 0.0.0.0:8140
hostnames: [ca.example.com]
store: sqlite
metrics: {listen: 127.0.0.1:8142}
log: {level: debug, format: json}
issuers:
  puppet: {key: rsa4096, verify_signatures: all}
signers:
  - name: example.com/vpn
    usages: [client auth]
    names: [dns, ip, email, uri]
    lifetime: 30d
    max_lifetime: 90d
    backdate: 5m
    issuer: vpn
puppet: {autosign: true, ca_ttl: 1y, allow_subject_alt_names: true, allow_authorization_extensions: true,
         auto_renewal: true, auto_renewal_cert_ttl: 30d}
kubernetes: {listen: off}
gc:
  interval: 10m
  puppet: {pending: 90d, denied: off}
  kubernetes: {issued: 2h}
limits: {csr_per_minute_per_source: 0, csr_per_minute_per_certname: 5}
";

#[test]
fn reads_every_key() {
    let config = parse(FULL).unwrap();
    assert_eq!(config.listen.to_string(), "0.0.0.0:8140");
    assert_eq!(config.kubernetes.listen, Listen::Off);
    assert_eq!(config.puppet.autosign, Autosign::Everything);
    assert_eq!(config.puppet.ca_ttl, Span::years(1));
    assert_eq!(config.issuers["puppet"].key, KeyKind(KeySpec::Rsa4096));
    assert_eq!(
        config.issuers["puppet"].verify_signatures,
        Verification::All
    );
    assert_eq!(config.signers[0].max_lifetime, Some(Span::days(90)));
    assert_eq!(config.metrics.listen.to_string(), "127.0.0.1:8142");
    let kept = |section: gc::DoorSection| {
        [
            section.pending,
            section.denied,
            section.failed,
            section.approved,
            section.issued,
        ]
        .map(|keep| keep.to_string())
    };
    assert_eq!(config.gc.interval.to_string(), "10m");
    // What is not said keeps the door's own default.
    let puppet = kept(config.gc.puppet);
    assert_eq!(puppet, ["90d", "off", "30d", "off", "off"]);
    let kubernetes = kept(config.gc.kubernetes);
    assert_eq!(kubernetes, ["1d", "1h", "1h", "1d", "2h"]);
    assert_eq!(config.limits.csr_per_minute_per_source, 0);
    assert_eq!(config.limits.csr_per_minute_per_certname, 5);
}

#[test]
fn an_empty_file_has_the_defaults() {
    for text in ["", "# nothing\n", "{}"] {
        let config = parse(text).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:8140");
        assert_eq!(config.kubernetes.listen.to_string(), "127.0.0.1:8141");
        assert_eq!(config.puppet.autosign, Autosign::DefaultFile);
    }
}

#[test]
fn unknown_keys_are_named_with_line_and_nearest_key() {
    let cases = [
        (
            "listn: x\n",
            r#"c.yaml, line 1: unknown key "listn"; did you mean "listen"?"#,
        ),
        (
            "puppet:\n  ca_ttl: 1y\n  auto_sign: true\n",
            r#"c.yaml, line 3: unknown key "auto_sign"; did you mean "autosign"?"#,
        ),
        (
            "log: {colour: red}\n",
            r#"c.yaml, line 1: unknown key "colour"; known here are level, format"#,
        ),
        (
            "signers:\n  - name: a.b/c\n    usage: []\n",
            r#"c.yaml, line 3: unknown key "usage"; did you mean "usages"?"#,
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(fault(text), expected, "{text}");
    }
}

#[test]
fn bad_values_are_named_with_their_line() {
    let cases = [
        ("\npuppet: {ca_ttl: 5w}\n", "5w", "line 2"),
        (
            "puppet: {autosign: autosign.conf}\n",
            "absolute path",
            "line 1",
        ),
        (
            "store: postgres://db/x\n",
            "PostgreSQL is not available yet",
            "line 1",
        ),
        ("kubernetes: {listen: nowhere}\n", "ADDRESS:PORT", "line 1"),
        ("metrics: {listen: nowhere}\n", "ADDRESS:PORT", "line 1"),
        (
            "gc:\n  puppet: {pending: soon}\n",
            "not a duration",
            "line 2",
        ),
        ("issuers: {puppet: {key: rsa1024}}\n", "rsa4096", "line 1"),
        (
            "limits:\n  csr_per_minute_per_source: -1\n",
            "invalid",
            "line 2",
        ),
        ("listen: [\n", "", "line"),
        (
            "listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n",
            "listen",
            "line 2",
        ),
    ];
    for (text, part, line) in cases {
        let fault = fault(text);
        assert!(
            fault.contains(part) && fault.contains(line),
            "{text}: {fault}"
        );
    }
}

#[test]
fn what_is_printed_can_be_read_again() {
    for text in ["", FULL] {
        let printed = serde_saphyr::to_string(&parse(text).unwrap()).unwrap();
        let again = serde_saphyr::to_string(&parse(&printed).unwrap()).unwrap();
        assert_eq!(printed, again);
    }
}

/// The keys that the documentation gives a heading, as `a.b`; lists and maps by name are `a[].b`, `a.<id>.b`.
fn documented() -> BTreeSet<String> {
    DOCUMENT
        .lines()
        .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'))
        .map(str::to_owned)
        .collect()
}

fn keys(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = if path == "issuers" { "<id>" } else { key };
                let path = if path.is_empty() {
                    key.to_owned()
                } else {
                    format!("{path}.{key}")
                };
                keys(value, &path, found);
            }
        }
        Value::Array(list) if list.iter().any(Value::is_object) => {
            for value in list {
                keys(value, &format!("{path}[]"), found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn every_key_is_documented_and_every_documented_key_exists() {
    let mut known = BTreeSet::new();
    keys(
        &serde_json::to_value(parse(FULL).unwrap()).unwrap(),
        "",
        &mut known,
    );
    assert_eq!(documented(), known);
}

#[test]
fn documented_examples_and_defaults_are_valid() {
    let examples: Vec<&str> = DOCUMENT
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(
        examples.len() > documented().len(),
        "an example for each key, and a whole file"
    );
    for example in examples {
        parse(example).unwrap_or_else(|fault| panic!("{fault}\n{example}"));
    }
    let entries = DOCUMENT.split("### `").skip(1);
    for entry in entries {
        assert!(entry.contains("Default: "), "no default: {entry}");
        assert!(entry.contains("```yaml"), "no example: {entry}");
    }
}

const DOCUMENT: &str = include_str!("../../../../docs/configuration.md");
