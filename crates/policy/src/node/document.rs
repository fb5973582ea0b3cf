//! The parameters of the two rules as they stand in a policy file.

use serde_json::{Map, Value, json};

use crate::document::check_bundle;
use crate::fields::{Field, Fields, Reading, instead};
use crate::node::check::CheckId;
use crate::node::rule::{
    Checks, Compat, MAX_EXPIRATION, NameOptions, NamePattern, NodeClientRule, NodeServingRule,
    Preset, Switch,
};
use crate::token::Network;
use crate::yaml::Content;

/// Reads `nodeClient`.
pub(crate) fn read_client(field: &Field<'_>, reading: &mut Reading<'_>) -> Option<NodeClientRule> {
    let fields = field.fields(&CLIENT, reading)?;
    let before = reading.faults.len();
    let preset = preset(&fields, &CLIENT_PRESETS, reading);
    let compat = compat(&fields, preset, reading);
    let disabled = fields.get("disabled").and_then(|f| f.truth(reading));
    let checks = checks(&fields, reading);
    (reading.faults.len() == before).then(|| NodeClientRule {
        preset,
        compat,
        disabled: disabled.unwrap_or(false),
        checks,
    })
}

/// Reads `nodeServing`.
pub(crate) fn read_serving(
    field: &Field<'_>,
    reading: &mut Reading<'_>,
) -> Option<NodeServingRule> {
    let fields = field.fields(&SERVING, reading)?;
    let before = reading.faults.len();
    let preset = preset(&fields, &SERVING_PRESETS, reading);
    let compat = compat(&fields, preset, reading);
    let bundle = fields.get("caBundle").and_then(|field| {
        let text = field.text(reading)?;
        if let Err(why) = check_bundle(text.as_bytes()) {
            field.complain(reading, why);
        }
        Some(text)
    });
    let names = names(&fields, compat, reading);
    let skip_deny = fields.get("skipDenyStep").and_then(|f| f.truth(reading));
    let checks = checks(&fields, reading);
    (reading.faults.len() == before).then(|| NodeServingRule {
        preset,
        compat,
        ca_bundle: bundle,
        names,
        skip_deny: skip_deny.unwrap_or(false),
        checks,
    })
}

fn preset(
    fields: &Fields<'_>,
    known: &[(&'static str, Preset)],
    reading: &mut Reading<'_>,
) -> Preset {
    let Some(field) = fields.get("preset") else {
        return Preset::default();
    };
    let text = field.text(reading).unwrap_or_default();
    if let Some((_, preset)) = known.iter().find(|(word, _)| *word == text) {
        return *preset;
    }
    let elsewhere = SERVING_PRESETS.iter().chain(&CLIENT_PRESETS);
    let is_elsewhere = elsewhere.into_iter().any(|(word, _)| *word == text);
    let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
    let what = match is_elsewhere {
        true => format!(
            "{text} does not approve such certificates; known here are {}",
            words.join(", ")
        ),
        false => format!("{text:?} is not a preset{}", instead(&text, &words)),
    };
    field.complain(reading, what);
    Preset::default()
}

fn compat(fields: &Fields<'_>, preset: Preset, reading: &mut Reading<'_>) -> Compat {
    let Some(field) = fields.get("compat") else {
        return Compat::Closed;
    };
    let word = field.word(&[("exact", Compat::Exact)], reading);
    if preset == Preset::Hardened && word.is_some() {
        let what = "hardened has no product to be exact about: name a preset, or leave compat out";
        field.complain(reading, what);
    }
    word.unwrap_or_default()
}

fn names(fields: &Fields<'_>, compat: Compat, reading: &mut Reading<'_>) -> NameOptions {
    let truth = |key: &str, reading: &mut Reading<'_>| fields.get(key)?.truth(reading);
    let pattern = fields.written("providerRegex").and_then(|field| {
        let text = field.text(reading)?;
        let pattern = NamePattern::parse(&text);
        if let Err(why) = &pattern {
            field.complain(reading, why.clone());
        }
        pattern.ok()
    });
    let prefixes = fields
        .get("providerIpPrefixes")
        .map(|field| prefixes(&field, reading));
    let lifetime = fields.get("maxExpirationSeconds").and_then(|field| {
        let seconds = field.count(reading)?;
        if seconds > MAX_EXPIRATION {
            let what = format!("at most {MAX_EXPIRATION} seconds (367 days) are possible");
            field.complain(reading, what);
        }
        Some(seconds)
    });
    let allowed = fields.get("allowedDnsNames").and_then(|field| {
        let count = field.count(reading)?;
        // The product goes on with any number; 0 then denies every request with a DNS name.
        if compat == Compat::Closed && !(1..=MAX_DNS_NAMES).contains(&count) {
            let what = format!("a number from 1 to {MAX_DNS_NAMES} belongs here");
            field.complain(reading, what);
        }
        Some(count)
    });
    NameOptions {
        provider_regex: pattern,
        provider_ip_prefixes: prefixes,
        max_expiration_seconds: lifetime,
        allowed_dns_names: allowed,
        bypass_dns_resolution: truth("bypassDnsResolution", reading),
        bypass_hostname_check: truth("bypassHostnameCheck", reading),
        ignore_non_system_node: truth("ignoreNonSystemNode", reading),
    }
}

/// A list, or one text with commas, as the product's option has it. Host bits may be set.
fn prefixes(field: &Field<'_>, reading: &mut Reading<'_>) -> Vec<Network> {
    let mut networks = Vec::new();
    for item in field.one_or_more(reading).unwrap_or_default() {
        let Some(text) = item.text(reading) else {
            continue;
        };
        for part in text.split(',') {
            match Network::parse(part).filter(|_| part.contains('/')) {
                Some(network) => networks.push(network),
                None => {
                    let what = format!(
                        "{part:?} is not a network: write it as 10.0.0.0/8 or fd00::/8, without blanks"
                    );
                    item.complain(reading, what);
                }
            }
        }
    }
    if networks.is_empty() {
        field.complain(
            reading,
            "no address is in an empty list: name a network, or leave it out",
        );
    }
    networks
}

fn checks(fields: &Fields<'_>, reading: &mut Reading<'_>) -> Checks {
    let mut checks = Checks::new();
    let Some(field) = fields.get("checks") else {
        return checks;
    };
    let Some(switched) = field.any_fields(reading) else {
        return checks;
    };
    for (name, field) in switched.all() {
        let Some(check) = CheckId::parse(name) else {
            let known: Vec<&str> = CheckId::ALL.iter().map(|id| id.as_str()).collect();
            let near = crate::nearest(name, known.iter().copied());
            let what = match near {
                Some(near) => format!("unknown check; did you mean {near:?}?"),
                None => "unknown check: they are named as C12 or X03".to_owned(),
            };
            switched.complain(name, reading, what);
            continue;
        };
        let switch = match &field.node.content {
            // YAML 1.1 takes the bare words for truth values.
            Content::Bool(true) => Some(Switch::On),
            Content::Bool(false) => Some(Switch::Off),
            Content::Null
            | Content::Number(_)
            | Content::Text(_)
            | Content::List(_)
            | Content::Map(_) => field.word(&SWITCHES, reading),
        };
        checks.extend(switch.map(|switch| (check, switch)));
    }
    checks
}

/// `nodeClient` as it would be written.
pub(crate) fn shown_client(rule: &NodeClientRule) -> Value {
    let mut map = head(rule.preset, rule.compat);
    if rule.disabled {
        map.insert("disabled".to_owned(), json!(true));
    }
    with_checks(map, &rule.checks)
}

/// `nodeServing` as it would be written.
pub(crate) fn shown_serving(rule: &NodeServingRule) -> Value {
    let mut map = head(rule.preset, rule.compat);
    let names = &rule.names;
    let prefixes = names.provider_ip_prefixes.as_ref();
    let prefixes = prefixes.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
    let pattern = names.provider_regex.as_ref().map(NamePattern::source);
    for (key, value) in [
        ("caBundle", rule.ca_bundle.as_ref().map(|pem| json!(pem))),
        ("providerRegex", pattern.map(|source| json!(source))),
        ("providerIpPrefixes", prefixes.map(|all| json!(all))),
        (
            "maxExpirationSeconds",
            names.max_expiration_seconds.map(|n| json!(n)),
        ),
        ("allowedDnsNames", names.allowed_dns_names.map(|n| json!(n))),
        (
            "bypassDnsResolution",
            names.bypass_dns_resolution.map(|b| json!(b)),
        ),
        (
            "bypassHostnameCheck",
            names.bypass_hostname_check.map(|b| json!(b)),
        ),
        (
            "ignoreNonSystemNode",
            names.ignore_non_system_node.map(|b| json!(b)),
        ),
        ("skipDenyStep", rule.skip_deny.then_some(json!(true))),
    ] {
        map.extend(value.map(|value| (key.to_owned(), value)));
    }
    with_checks(map, &rule.checks)
}

fn head(preset: Preset, compat: Compat) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("preset".to_owned(), json!(preset.word()));
    if compat == Compat::Exact {
        map.insert("compat".to_owned(), json!("exact"));
    }
    map
}

fn with_checks(mut map: Map<String, Value>, checks: &Checks) -> Value {
    let words = checks.iter();
    let words = words.map(|(check, switch)| (check.as_str().to_owned(), json!(switch.word())));
    let words: Map<String, Value> = words.collect();
    if !words.is_empty() {
        map.insert("checks".to_owned(), Value::Object(words));
    }
    Value::Object(map)
}

const CLIENT: [&str; 4] = ["preset", "compat", "disabled", "checks"];
const SERVING: [&str; 12] = [
    "preset",
    "compat",
    "caBundle",
    "providerRegex",
    "providerIpPrefixes",
    "maxExpirationSeconds",
    "allowedDnsNames",
    "bypassDnsResolution",
    "bypassHostnameCheck",
    "ignoreNonSystemNode",
    "skipDenyStep",
    "checks",
];
const CLIENT_PRESETS: [(&str, Preset); 3] = [
    ("hardened", Preset::Hardened),
    ("cluster-machine-approver", Preset::ClusterMachineApprover),
    ("kube-controller-manager", Preset::KubeControllerManager),
];
const SERVING_PRESETS: [(&str, Preset); 3] = [
    ("hardened", Preset::Hardened),
    ("cluster-machine-approver", Preset::ClusterMachineApprover),
    ("kubelet-csr-approver", Preset::KubeletCsrApprover),
];
const SWITCHES: [(&str, Switch); 3] = [
    ("on", Switch::On),
    ("off", Switch::Off),
    ("strict", Switch::Strict),
];
/// As many as the product means to allow.
const MAX_DNS_NAMES: u64 = 1000;
