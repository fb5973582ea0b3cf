//! The kinds of a rule and their parameters.

use std::path::PathBuf;
use std::sync::Arc;

use countersign_pki::Certificate;
use countersign_pki::pem::{self, PemLimits};

use crate::access::AccessQuestion;
use crate::allowlist::Allowlist;
use crate::document::{rule, web_address};
use crate::fields::{Field, Reading, instead};
use crate::node;
use crate::rules::{
    CaBundle, Executable, ListSource, MachineRule, RuleEffect, RuleKind, Webhook, WebhookMode,
};
use crate::span::Span;

/// What stands under `approve` or `deny`.
pub(super) struct Body {
    pub(super) kinds: Vec<RuleKind>,
    pub(super) message: Option<String>,
}

/// Reads the kinds of one rule and puts the cheap ones first: who is not on a list shall not cost a question elsewhere.
pub(super) fn read_all(
    field: &Field<'_>,
    effect: RuleEffect,
    reading: &mut Reading<'_>,
) -> Option<Body> {
    let fields = field.any_fields(reading)?;
    let (mut kinds, mut message, mut named) = (Vec::new(), None, 0);
    let before = reading.faults.len();
    for (word, field) in fields.all() {
        if word == "message" {
            message = field.text(reading);
            continue;
        }
        named += 1;
        kinds.extend(read(word, &field, effect, &fields, reading));
    }
    if named == 0 {
        let what = format!("name at least one kind of rule: {}", KINDS.join(", "));
        field.complain(reading, what);
    }
    kinds.sort_by_key(cost);
    (reading.faults.len() == before).then_some(Body { kinds, message })
}

fn read(
    word: &str,
    field: &Field<'_>,
    effect: RuleEffect,
    beside: &crate::fields::Fields<'_>,
    reading: &mut Reading<'_>,
) -> Option<RuleKind> {
    match word {
        "always" => field.fields(&[], reading).map(|_| RuleKind::Always),
        "token" => {
            if effect == RuleEffect::Deny {
                let what =
                    "a token says who may enrol: put it under `approve`, where a wrong one denies";
                beside.complain(word, reading, what);
            }
            field.fields(&[], reading).map(|_| RuleKind::Token)
        }
        "signingPolicy" => {
            if effect == RuleEffect::Deny {
                let what = "a signing policy says who may enrol: put it under `approve`";
                beside.complain(word, reading, what);
            }
            field.fields(&[], reading).map(|_| RuleKind::SigningPolicy)
        }
        "window" => field.fields(&[], reading).map(|_| RuleKind::Window),
        "cel" => rule::expression(field, reading).map(RuleKind::Cel),
        "allowlist" => allowlist(field, reading).map(RuleKind::Allowlist),
        "subjectAccess" => subject_access(field, reading)
            .map(|question| RuleKind::SubjectAccess(Arc::new(question))),
        "machine" => machine(field, reading).map(RuleKind::Machine),
        "executable" => executable(field, reading).map(RuleKind::Executable),
        "webhook" => {
            if effect == RuleEffect::Deny {
                let what = "a webhook denies by its own word: put it under `approve`, where its deny denies";
                beside.complain(word, reading, what);
            }
            webhook(field, reading).map(|webhook| RuleKind::Webhook(Arc::new(webhook)))
        }
        "nodeClient" | "nodeServing" => {
            if effect == RuleEffect::Deny {
                let what = "a rule about nodes denies by itself where a check says so: put it under `approve`";
                beside.complain(word, reading, what);
            }
            match word {
                "nodeClient" => node::read_client(field, reading)
                    .map(|rule| RuleKind::NodeClient(Arc::new(rule))),
                _ => node::read_serving(field, reading)
                    .map(|rule| RuleKind::NodeServing(Arc::new(rule))),
            }
        }
        unknown => {
            let what = format!("unknown kind of rule{}", instead(unknown, &KINDS));
            beside.complain(word, reading, what);
            None
        }
    }
}

fn allowlist(field: &Field<'_>, reading: &mut Reading<'_>) -> Option<ListSource> {
    let fields = field.fields(&["file", "names"], reading)?;
    match (fields.get("file"), fields.get("names")) {
        (Some(file), None) => file.file_path(reading).map(ListSource::File),
        (None, Some(names)) => allowed_names(&names, reading).map(ListSource::Names),
        (Some(_), Some(_)) => {
            let what = "an allowlist is either a file or names: make two rules of it";
            fields.complain("names", reading, what);
            None
        }
        (None, None) => {
            let what = "name the list: {file: autosign.conf}, or {names: [web01.example.com]}";
            field.complain(reading, what);
            None
        }
    }
}

fn allowed_names(field: &Field<'_>, reading: &mut Reading<'_>) -> Option<Arc<Allowlist>> {
    let items = field.items(reading)?;
    if items.is_empty() {
        field.complain(
            reading,
            "a list without names matches nobody: name at least one",
        );
        return None;
    }
    let before = reading.faults.len();
    let mut lines = String::new();
    for item in items {
        let Some(text) = item.text(reading) else {
            continue;
        };
        let (_, bad) = Allowlist::parse(&text);
        let is_pattern = !text.trim().is_empty() && !text.starts_with('#') && !text.contains('\n');
        if let Some(bad) = bad.first() {
            item.complain(reading, format!("{text:?} {}", bad.problem));
        } else if !is_pattern {
            let what = format!("{text:?} is neither a name nor a pattern such as *.example.com");
            item.complain(reading, what);
        }
        lines.push_str(&text);
        lines.push('\n');
    }
    (reading.faults.len() == before).then(|| Arc::new(Allowlist::parse(&lines).0))
}

fn machine(field: &Field<'_>, reading: &mut Reading<'_>) -> Option<MachineRule> {
    let fields = field.fields(&["window", "once"], reading)?;
    let window = fields.get("window");
    let window = window.map(|f| f.span(Span::seconds(1), Span::years(10), reading));
    let once = fields.get("once").map(|f| f.truth(reading));
    Some(MachineRule {
        window: match window {
            Some(span) => Some(span?.as_seconds()),
            None => None,
        },
        once: once.unwrap_or(Some(false))?,
    })
}

fn subject_access(field: &Field<'_>, reading: &mut Reading<'_>) -> Option<AccessQuestion> {
    let fields = field.fields(&ACCESS, reading)?;
    let before = reading.faults.len();
    for key in ["resource", "verb"] {
        fields.required(key, reading);
    }
    let mut part = |key: &str| {
        let Some(field) = fields.get(key) else {
            return String::new();
        };
        let text = field.text(reading).unwrap_or_default();
        let is_word = |c: char| !c.is_whitespace() && !c.is_control();
        if text.chars().count() > MAX_ACCESS_WORD || !text.chars().all(is_word) {
            let what = format!(
                "one word of at most {MAX_ACCESS_WORD} characters belongs here, not {text:?}"
            );
            field.complain(reading, what);
        } else if text.is_empty() && matches!(key, "resource" | "verb") {
            field.complain(
                reading,
                format!("an access review is about one {key}: name it"),
            );
        } else if key == "resource" && text.contains('/') {
            let what = "what follows the slash belongs under `subresource`";
            field.complain(reading, what);
        }
        text
    };
    let question = AccessQuestion {
        group: part("group"),
        resource: part("resource"),
        subresource: part("subresource"),
        verb: part("verb"),
        name: part("name"),
        namespace: part("namespace"),
    };
    (reading.faults.len() == before).then_some(question)
}

fn executable(field: &Field<'_>, reading: &mut Reading<'_>) -> Option<Executable> {
    let fields = field.fields(&["path", "timeout"], reading)?;
    let path = fields.required("path", reading).and_then(|path| {
        let text = path.text(reading)?;
        let is_absolute = text.starts_with('/') && !text.contains(['\0', '\n']);
        if !is_absolute {
            let what = format!(
                "{text:?} is no absolute path: a program is named from / on, so that nobody can put another in its place"
            );
            path.complain(reading, what);
        }
        is_absolute.then(|| PathBuf::from(text))
    });
    let timeout = fields.get("timeout");
    let timeout = timeout.map(|f| f.span(Span::seconds(1), MAX_EXECUTION, reading));
    Some(Executable {
        path: path?,
        timeout: match timeout {
            Some(span) => Some(span?.as_seconds()),
            None => None,
        },
    })
}

fn webhook(field: &Field<'_>, reading: &mut Reading<'_>) -> Option<Webhook> {
    let fields = field.fields(&WEBHOOK, reading)?;
    let before = reading.faults.len();
    let url = fields.required("url", reading).and_then(|url| {
        let text = url.text(reading)?;
        if let Err(fault) = web_address::check(&text) {
            url.complain(reading, fault.to_string());
        }
        Some(text)
    });
    let path = |key: &str, reading: &mut Reading<'_>| fields.get(key)?.file_path(reading);
    let secret_file = path("secretFile", reading);
    let client_cert_file = path("clientCertFile", reading);
    let client_key_file = path("clientKeyFile", reading);
    let pair = ["clientCertFile", "clientKeyFile"];
    if let [Some(one), None] | [None, Some(one)] = pair.map(|key| fields.get(key).map(|_| key)) {
        let what = "clientCertFile and clientKeyFile belong together: name both or none";
        fields.complain(one, reading, what);
    }
    let ca_bundle = fields
        .get("caBundle")
        .and_then(|field| ca_bundle(&field, reading));
    let timeout = fields
        .get("timeout")
        .and_then(|field| field.span(Span::seconds(1), MAX_WEBHOOK, reading));
    let mode = fields.get("mode").and_then(|f| f.word(&MODES, reading));
    let include_csr = fields.get("includeCsr").and_then(|f| f.truth(reading));
    (reading.faults.len() == before).then_some(Webhook {
        url: url?,
        ca_bundle,
        timeout_ms: timeout
            .unwrap_or(WEBHOOK_TIMEOUT)
            .as_seconds()
            .saturating_mul(1000),
        mode: mode.unwrap_or_default(),
        include_csr: include_csr.unwrap_or(false),
        secret_file,
        client_cert_file,
        client_key_file,
    })
}

/// Certificates as text, or the file that has them.
fn ca_bundle(field: &Field<'_>, reading: &mut Reading<'_>) -> Option<CaBundle> {
    let text = field.text(reading)?;
    if !text.contains("-----BEGIN") {
        return field.file_path(reading).map(CaBundle::File);
    }
    match check_bundle(text.as_bytes()) {
        Ok(()) => Some(CaBundle::Pem(text)),
        Err(why) => {
            field.complain(reading, why);
            None
        }
    }
}

/// Whether a text holds certificates and nothing that cannot be read.
pub(crate) fn check_bundle(text: &[u8]) -> Result<(), String> {
    let blocks = pem::decode_all(text, &BUNDLE).map_err(|fault| fault.to_string())?;
    let mut certificates = 0_usize;
    for block in blocks.iter().filter(|block| block.label == "CERTIFICATE") {
        certificates = certificates.saturating_add(1);
        Certificate::parse(&block.der)
            .map_err(|fault| format!("certificate {certificates} cannot be read: {fault}"))?;
    }
    match certificates {
        0 => Err("there is no CERTIFICATE in this PEM text".to_owned()),
        _ => Ok(()),
    }
}

/// How much a kind costs beside the others of its rule.
fn cost(kind: &RuleKind) -> u8 {
    match kind {
        RuleKind::Always => 0,
        RuleKind::Cel(_) => 1,
        RuleKind::Allowlist(_) | RuleKind::AutosignFile { .. } => 2,
        RuleKind::SubjectAccess(_) | RuleKind::SigningPolicy => 3,
        RuleKind::Window => 4,
        RuleKind::Machine(_) => 5,
        RuleKind::Token => 6,
        RuleKind::NodeClient(_) | RuleKind::NodeServing(_) => 7,
        RuleKind::Executable(_) => 8,
        RuleKind::Webhook(_) => 9,
    }
}

const KINDS: [&str; 12] = [
    "always",
    "allowlist",
    "executable",
    "cel",
    "webhook",
    "machine",
    "window",
    "token",
    "subjectAccess",
    "nodeClient",
    "nodeServing",
    "signingPolicy",
];
const ACCESS: [&str; 6] = [
    "group",
    "resource",
    "subresource",
    "verb",
    "name",
    "namespace",
];
/// As long as any name of an object.
const MAX_ACCESS_WORD: usize = 253;
const WEBHOOK: [&str; 8] = [
    "url",
    "caBundle",
    "timeout",
    "mode",
    "includeCsr",
    "secretFile",
    "clientCertFile",
    "clientKeyFile",
];
const MODES: [(&str, WebhookMode); 2] =
    [("json", WebhookMode::Json), ("status", WebhookMode::Status)];
const WEBHOOK_TIMEOUT: Span = Span::seconds(5);
/// An agent waits meanwhile.
const MAX_WEBHOOK: Span = Span::seconds(30);
const MAX_EXECUTION: Span = Span::seconds(300);
/// Authorities that one webhook's certificate may come from.
const BUNDLE: PemLimits = PemLimits {
    max_text: 1024 * 1024,
    max_blocks: 200,
};
