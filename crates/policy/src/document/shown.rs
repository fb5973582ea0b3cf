//! A rule as the text of a policy file.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::allowlist::Apex;
use crate::node;
use crate::rules::{CaBundle, ListSource, OnUnavailable, Otherwise, Rule, RuleEffect, RuleKind};
use crate::span::Span;

impl Rule {
    /// The rule as it would stand in a policy file. A rule that a setting stands for has a kind of its own, `autosign`,
    /// which no file may name.
    pub fn to_yaml(&self) -> String {
        let mut text = format!("- name: {}\n", scalar(&self.name));
        if let Some(when) = &self.when {
            line(&mut text, "when", &scalar(when.source()));
        }
        let effect = match self.effect {
            RuleEffect::Approve => "approve",
            RuleEffect::Deny => "deny",
        };
        let mut body: Vec<String> = self.kinds.iter().map(shown_kind).collect();
        body.extend(
            self.message
                .iter()
                .map(|m| format!("message: {}", scalar(m))),
        );
        line(&mut text, effect, &format!("{{{}}}", body.join(", ")));
        match self.otherwise {
            Otherwise::Abstain => {}
            Otherwise::Deny => line(&mut text, "else", "deny"),
        }
        match self.on_unavailable {
            OnUnavailable::Stop => {}
            OnUnavailable::Next => line(&mut text, "unavailable", "next"),
        }
        text
    }
}

fn line(text: &mut String, key: &str, value: &str) {
    let _cannot_fail = writeln!(text, "  {key}: {value}");
}

fn shown_kind(kind: &RuleKind) -> String {
    let parameters = match kind {
        RuleKind::Always | RuleKind::Window | RuleKind::Token | RuleKind::SigningPolicy => {
            "{}".to_owned()
        }
        RuleKind::SubjectAccess(question) => {
            flow(&serde_json::to_value(&**question).unwrap_or_default())
        }
        RuleKind::NodeClient(rule) => flow(&node::shown_client(rule)),
        RuleKind::NodeServing(rule) => flow(&node::shown_serving(rule)),
        RuleKind::Cel(expression) => scalar(expression.source()),
        RuleKind::Allowlist(ListSource::File(path)) => flow(&json!({"file": path})),
        RuleKind::Allowlist(ListSource::Names(list)) => {
            flow(&json!({"names": list.patterns().collect::<Vec<_>>()}))
        }
        RuleKind::Machine(machine) => {
            let mut map = Map::new();
            if let Some(seconds) = machine.window {
                map.insert("window".to_owned(), shown_span(seconds));
            }
            if machine.once {
                map.insert("once".to_owned(), Value::Bool(true));
            }
            flow(&Value::Object(map))
        }
        RuleKind::Executable(program) => {
            let mut map = Map::new();
            map.insert("path".to_owned(), json!(program.path));
            if let Some(seconds) = program.timeout {
                map.insert("timeout".to_owned(), shown_span(seconds));
            }
            flow(&Value::Object(map))
        }
        RuleKind::Webhook(webhook) => {
            let bundle = webhook.ca_bundle.as_ref().map(|bundle| match bundle {
                CaBundle::File(path) => json!(path),
                CaBundle::Pem(pem) => json!(pem),
            });
            let all = [
                ("url", Some(json!(webhook.url))),
                ("caBundle", bundle),
                ("timeout", Some(shown_span(webhook.timeout_ms / 1000))),
                ("mode", Some(json!(webhook.mode.word()))),
                ("includeCsr", webhook.include_csr.then_some(json!(true))),
                ("secretFile", webhook.secret_file.as_ref().map(|p| json!(p))),
                (
                    "clientCertFile",
                    webhook.client_cert_file.as_ref().map(|p| json!(p)),
                ),
                (
                    "clientKeyFile",
                    webhook.client_key_file.as_ref().map(|p| json!(p)),
                ),
            ];
            let said = all
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?)));
            flow(&Value::Object(said.collect()))
        }
        RuleKind::AutosignFile { path, apex } => {
            let apex = (*apex == Apex::Included).then_some(("apex".to_owned(), json!(true)));
            let path = ("path".to_owned(), json!(path));
            flow(&Value::Object([path].into_iter().chain(apex).collect()))
        }
    };
    format!("{}: {parameters}", kind.word())
}

fn shown_span(seconds: u64) -> Value {
    Value::String(Span::seconds(seconds).to_string())
}

/// A value in YAML's flow style.
fn flow(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => scalar(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let pairs = map
                .iter()
                .map(|(key, value)| format!("{key}: {}", flow(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

/// A text that YAML reads as this text, wherever it stands.
fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let starts_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let is_word = !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
        .iter()
        .any(|word| word.eq_ignore_ascii_case(text));
    if starts_plain && is_word && text.chars().all(plain) {
        return text.to_owned();
    }
    match text.chars().any(char::is_control) {
        // JSON's escapes are YAML's.
        true => Value::String(text.to_owned()).to_string(),
        false => format!("'{}'", text.replace('\'', "''")),
    }
}
