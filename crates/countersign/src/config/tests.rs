use std::collections::BTreeSet;

use countersign_authority::RequestState;
use countersign_pki::Carrier;
use countersign_policy::{OnMissing, OnToken};
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
  puppet: {key: rsa4096, verify_signatures: all, serials: sequential}
signers:
  - name: example.com/vpn
    usages: [client auth]
    required_usages: [client auth]
    subject: {common_names: ['*'], organizations: [a], required_organizations: [a]}
    names: [dns, ip, email, uri]
    required_names: [dns]
    name_patterns: {dns: ['*.a'], ip: [192.0.2.0/24], email: ['*@a'], uri: ['spiffe://*']}
    extensions: {copied: [1.3.6.1.4.1.99999.1], others: refused}
    lifetime: 30d
    max_lifetime: 90d
    backdate: 5m
    pods: {trust_domain: prod.example.com, key_types: [ECDSAP256], annotations: [example.com/role]}
    issuer: vpn
puppet: {autosign: true, ca_ttl: 1y, allow_subject_alt_names: true, allow_authorization_extensions: true,
         auto_renewal: true, auto_renewal_cert_ttl: 30d, allowlist_apex: true, allow_duplicate_certs: true,
         public_csr: true, infra_crl: true, infra_inventory: /srv/infra.txt, puppet_conf: /etc/puppet/puppet.conf, ca_conf: /etc/puppet/ca.conf,
         autosign_executable: {timeout: 5s, concurrency: 2, environment: {CMDB_TOKEN: hush}}}
kubernetes: {listen: off}
access:
  - {certname: ops01.example.com, role: admin}
  - {suffix: .ops.example.com, role: sign, suffixes: [.lab.example.com]}
  - {group: auditors, role: read}
tokens:
  {enabled: true, sources: [challengePassword, pp_preshared_key], default_ttl: 2h, max_ttl: 3d, glob_max_ttl: 12h, retry_window: 0s,
   on_token_reject: pend, on_token_missing: deny, mac_key: {file: token.key}, mac_keys_old: [{file: /srv/token-2025.key}],
   purge_after: 7d, max_active: 500}
foreman: {listen: 127.0.0.1:8443, trusted_hosts: [foreman.example.com], cert: /srv/a.pem, key: /srv/b.pem, ca: /srv/c.pem}
gc:
  interval: 10m
  puppet: {pending: 90d, denied: off}
  kubernetes: {issued: 2h}
limits: {csr_per_minute_per_source: 0, csr_per_minute_per_certname: 5, token_failures_per_10_minutes: 3, pending_per_source: 7, pending_bytes: 8000000, connections: 100,
         connections_per_source: 9, csr_bytes: 8192, trusted_proxies: [192.0.2.5, '2001:db8::/64']}
cluster: {workers: 8, machines: [cluster.x-k8s.io/v1beta2], machine_namespace: machines,
          kubelet: {port: 10251, prefixes: [10.0.0.0/8]}, cleaner: {pending: 2h, per_requester: 5},
          resources: {enabled: true, webhooks: [{url: 'https://a/', include_csr: true, ca_bundle: /a, secret_file: /b, client_cert_file: /c, client_key_file: /d}],
                      issuers: [site], token_namespaces: [a]}}
";

#[test]
fn reads_every_key() {
    let config = parse(FULL).unwrap();
    assert_eq!(config.listen.to_string(), "0.0.0.0:8140");
    assert_eq!(config.kubernetes.listen, Listen::Off);
    assert_eq!(config.puppet.autosign, Autosign::Everything);
    assert_eq!(config.puppet.ca_ttl, Span::years(1));
    assert!(config.puppet.infra_crl);
    assert_eq!(
        config.puppet.infra_inventory.as_deref(),
        Some(Path::new("/srv/infra.txt"))
    );
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
    // What every door turns away is forgotten at some time.
    for door in countersign_server::DOORS {
        let rules = GcSection::default().collection().rules.into_iter();
        let mut denied = rules.filter(|rule| rule.state == RequestState::Denied);
        assert!(denied.any(|rule| rule.door.name == door.name), "{door:?}");
    }
    assert_eq!(config.limits.csr_per_minute_per_source, 0);
    assert_eq!(config.limits.csr_per_minute_per_certname, 5);
    assert_eq!(config.limits.pending_per_source, 7);
    assert_eq!(config.limits.pending_bytes, 8_000_000);
    assert_eq!(config.limits.token_failures_per_10_minutes, 3);
    let proxies = config.limits.trusted_proxies.iter();
    let proxies: Vec<String> = proxies.map(ToString::to_string).collect();
    assert_eq!(proxies, ["192.0.2.5/32", "2001:db8::/64"]);
    let tokens = &config.tokens;
    assert_eq!(tokens.enabled, Some(true));
    let carriers = [Carrier::ChallengePassword, Carrier::PresharedKey];
    assert_eq!(tokens.carriers(), carriers);
    assert_eq!(tokens.retry_window, Span::seconds(0));
    let handling = tokens.handling();
    assert_eq!(
        (handling.on_reject, handling.on_missing),
        (OnToken::Pend, OnMissing::Deny)
    );
    let current = tokens.mac_key.as_ref().map(|key| key.file.as_path());
    assert_eq!(current, Some(Path::new("token.key")));
    assert_eq!(config.foreman.listen.to_string(), "127.0.0.1:8443");
    let executable = &config.puppet.autosign_executable;
    assert_eq!(executable.timeout, Span::seconds(5));
    assert_eq!(executable.environment["CMDB_TOKEN"], "hush");
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
            "access:\n  - role: read\n    certnam: a\n",
            r#"c.yaml, line 3: unknown key "certnam"; did you mean "certname"?"#,
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
        ("store: postgres://db/x\n", "names no user", "line 1"),
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
            "whole number",
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
fn faults_name_file_line_and_key_and_say_what_belongs_there() {
    let cases = [
        (
            "hostnames: ca.example.com",
            "1: hostnames: a list belongs here, for example [one, two]",
        ),
        (
            "\nlisten: localhost:8140",
            "2: listen: \"localhost:8140\" is no address to listen on: write ADDRESS:PORT without a name, for example \
             127.0.0.1:8140 or 0.0.0.0:8140",
        ),
        (
            "puppet:\n  autosign_executable:\n    concurrency: 0",
            "3: puppet.autosign_executable.concurrency: integer `0` is too small: write 1 or more, for example 8",
        ),
        (
            "listen: 127.0.0.1:1\nlisten: 127.0.0.1:2",
            "2: listen: stands twice in the same section: remove one of the two",
        ),
        (
            "limits: {csr_bytes: big}",
            "1: limits.csr_bytes: a whole number of 0 or more belongs here, for example 100",
        ),
        (
            "limits: {trusted_proxies: [192.0.2.5, lb.example.com]}",
            "1: limits.trusted_proxies[1]: \"lb.example.com\" is no network such as 192.0.2.0/24",
        ),
        (
            "limits: {connections: -1}",
            "1: limits.connections: a whole number of 0 or more belongs here, for example 100",
        ),
        (
            "puppet: {public_csr: maybe}",
            "1: puppet.public_csr: say true or false",
        ),
        (
            "log: {format: xml}",
            "1: log.format: \"xml\" is none of text, json",
        ),
        (
            "puppet: {ca_ttl: [1]}",
            "1: puppet.ca_ttl: a single value belongs here, no list and no keys",
        ),
        (
            "puppet: 5",
            "1: puppet: keys with values belong here, for example {key: value}",
        ),
        (
            "- a",
            "1: keys with values belong here, for example {key: value}",
        ),
        ("data:", "1: data: the value is missing"),
        (
            "signers:\n- {usages: []}",
            "2: signers[0].name: is missing here",
        ),
        (
            "access:\n- {certname: a, role: signs}",
            "2: access[0].role: \"signs\" is no role: say admin, sign, mint or read; did you mean \"sign\"?",
        ),
        (
            "access:\n- {certname: a}",
            "2: access[0].role: is missing here",
        ),
        (
            "access:\n- {certname: a, role: read}\n- {role: read}",
            "3: access[1]: the entry names nobody: give it one of certname, suffix and group",
        ),
        (
            "access: [{certname: a, group: b, role: read}]",
            "1: access[0]: the entry names several: give it one of certname, suffix and group, and the others an entry \
             each",
        ),
        (
            "access: [{certname: A, role: read}]",
            "1: access[0]: certname: \"A\" is no certname: write one in lower case, for example ops01.example.com",
        ),
        (
            "access: [{group: '', role: read}]",
            "1: access[0]: group: the name is empty",
        ),
        (
            "access: [{suffix: '*.ops', role: read}]",
            "1: access[0]: \"*.ops\" is no end of a certname: write a dot and lower-case labels, for example \
             .ops.example.com",
        ),
        (
            "access: [{certname: a, role: read, suffixes: [.b]}]",
            "1: access[0]: suffixes: the role read has no limit: remove them, or give the role sign or mint",
        ),
        (
            "tokens: {mac_key: hushhush}",
            "1: tokens.mac_key: a key is named by its file and does not stand here itself: write {file: PATH}",
        ),
        (
            "tokens: {mac_keys_old: [12345678]}",
            "1: tokens.mac_keys_old[0]: a key is named by its file and does not stand here itself: write {file: PATH}",
        ),
        (
            "tokens: {mac_key: {value: hushhush}}",
            "1: tokens.mac_key: a key is named by its file and does not stand here itself: write {file: PATH}",
        ),
        (
            "tokens: {on_token_reject: sign}",
            "1: tokens.on_token_reject: \"sign\" is none of deny, pend",
        ),
        (
            "tokens: {sources: [pp_role]}",
            "1: tokens.sources[0]: \"pp_role\" is not for tokens: besides challengePassword and pp_preshared_key only \
             private attributes are, with an object identifier below 1.3.6.1.4.1.34380.1.2",
        ),
        (
            "tokens: {max_active: 0}",
            "1: tokens.max_active: integer `0` is too small: write 1 or more, for example 8",
        ),
        (
            "gc: {puppet: {pending: x}}",
            "1: gc.puppet.pending: \"x\" is not a duration: write a number and a unit, for example 5y, 90d, 12h, 30m or 45s",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(fault(text), format!("c.yaml, line {expected}"), "{text}");
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

#[test]
fn what_is_printed_holds_no_secret() {
    let printed = serde_saphyr::to_string(&parse(FULL).unwrap()).unwrap();
    assert!(
        printed.contains("CMDB_TOKEN") && !printed.contains("hush"),
        "{printed}"
    );
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
        Value::Object(map) if !path.ends_with(".environment") => {
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

/// A Puppet Server's own files beside a configuration file, and what comes of them.
struct PuppetServer {
    folder: tempfile::TempDir,
}

impl PuppetServer {
    fn with(puppet_conf: &str, ca_conf: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("puppet.conf"), puppet_conf).unwrap();
        std::fs::write(folder.path().join("ca.conf"), ca_conf).unwrap();
        Self { folder }
    }

    /// The effective section, for a configuration file that says `more` in it.
    fn read(&self, more: &str) -> Result<(PuppetSection, Remarks), ConfigFault> {
        let folder = self.folder.path().display();
        let text = format!(
            "puppet:\n  puppet_conf: {folder}/puppet.conf\n  ca_conf: {folder}/ca.conf\n{more}"
        );
        let mut config = parse(&text)?;
        let remarks = config.take_over_puppet_settings()?;
        Ok((config.puppet, remarks))
    }
}

#[test]
fn a_puppet_servers_own_files_are_taken_over() {
    let server = PuppetServer::with(
        "[main]\nautosign = true\nca_ttl = 2y\n[server]\nallow_duplicate_certs = true\nautosign = /etc/policy {mode = 755}\n",
        "certificate-authority: {\n allow-subject-alt-names: true\n allow-authorization-extensions: true\n allow-auto-renewal: true\n auto-renewal-cert-ttl: \"60d\"\n enable-infra-crl: true\n infra-nodes-path: \"/etc/infra.txt\"\n}\n",
    );
    let (section, remarks) = server.read("").unwrap();
    assert_eq!(section.infra_inventory, Some("/etc/infra.txt".into()));
    assert_eq!(section.autosign, Autosign::File("/etc/policy".into()));
    assert_eq!(section.ca_ttl, Span::years(2));
    assert_eq!(section.auto_renewal_cert_ttl, Span::days(60));
    let switches = [
        section.allow_duplicate_certs,
        section.allow_subject_alt_names,
        section.allow_authorization_extensions,
        section.auto_renewal,
        section.infra_crl,
    ];
    assert_eq!(switches, [true; 5]);
    assert_eq!(remarks.warnings, Vec::<String>::new());
}

#[test]
fn what_the_configuration_file_says_wins() {
    let server = PuppetServer::with(
        "[server]\nautosign = true\nca_ttl = 2y\nallow_duplicate_certs = true\n",
        "certificate-authority { allow-subject-alt-names: true, allow-auto-renewal: true, ca-ttl: 1y }",
    );
    // Also where it says the default.
    let more = "  autosign: false\n  ca_ttl: 5y\n  allow_duplicate_certs: false\n  allow_subject_alt_names: false\n";
    let (section, _) = server.read(more).unwrap();
    assert_eq!(section.autosign, Autosign::Nothing);
    assert_eq!(section.ca_ttl, Span::years(5));
    assert!(!section.allow_duplicate_certs && !section.allow_subject_alt_names);
    assert!(section.auto_renewal, "what it does not say is taken over");
}

#[test]
fn files_as_they_are_packaged_leave_the_list_beside_puppet_conf() {
    let server = PuppetServer::with("# Settings go here.\n", "");
    let (section, remarks) = server.read("").unwrap();
    let list = server.folder.path().join("autosign.conf");
    assert_eq!(section.autosign, Autosign::File(list));
    assert_eq!(section.ca_ttl, Span::years(5));
    assert_eq!(remarks, Remarks::default());
}

#[test]
fn what_loses_its_effect_is_told() {
    let server = PuppetServer::with(
        "[main]\nca_ttl = 2y\ncertname = ca\n",
        "certificate-authority {\n ca-ttl: 1y\n certificate-status { client-whitelist: [dashboard] }\n serial-lock-timeout-seconds: 5\n}",
    );
    let (section, remarks) = server.read("").unwrap();
    assert_eq!(section.ca_ttl, Span::years(1));
    let warnings = remarks.warnings.join("\n");
    for part in [
        "ca-ttl in",
        "wins over ca_ttl",
        "admits dashboard",
        "pp_cli_auth",
    ] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
    let details = remarks.details.join("\n");
    for part in ["certname", "serial-lock-timeout-seconds"] {
        assert!(details.contains(part), "{part}: {details}");
    }
}

#[test]
fn a_foreign_file_that_cannot_be_read_is_named_with_its_line() {
    for (puppet_conf, ca_conf, parts) in [
        (
            "[main]\nautosign = autosign.conf\n",
            "",
            ["puppet.conf, line 2", "absolute path"],
        ),
        (
            "",
            "certificate-authority {\n ca-ttl: 60\n}",
            ["ca.conf, line 2: ca-ttl", "no duration"],
        ),
        ("", "include \"other\"", ["ca.conf, line 1", "include"]),
    ] {
        let fault = PuppetServer::with(puppet_conf, ca_conf)
            .read("")
            .unwrap_err();
        for part in parts {
            assert!(fault.to_string().contains(part), "{fault}");
        }
    }
    let mut config = parse("puppet: {ca_conf: /nonexistent/ca.conf}").unwrap();
    let fault = config.take_over_puppet_settings().unwrap_err();
    assert!(
        fault.to_string().contains("/nonexistent/ca.conf"),
        "{fault}"
    );
}

const DOCUMENT: &str = include_str!("../../../../docs/configuration.md");
