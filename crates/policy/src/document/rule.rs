//! One rule of a document.

use std::sync::Arc;

use crate::document::kind;
use crate::expression::Expression;
use crate::fields::{Field, Fields, Reading};
use crate::request::SignerName;
use crate::rules::{OnUnavailable, Otherwise, Rule, RuleEffect};
use crate::yaml::SourcePosition;

/// Reads the rules of a document. What is wrong with one does not hide what is wrong with the next.
pub(super) fn read_all(
    field: &Field<'_>,
    policy: &Arc<str>,
    signers: &Arc<[SignerName]>,
    reading: &mut Reading<'_>,
) -> Vec<(Rule, SourcePosition)> {
    let Some(items) = field.items(reading) else {
        return Vec::new();
    };
    if items.is_empty() {
        field.complain(
            reading,
            "a policy has at least one rule; leave the document out if it has none",
        );
    }
    let mut rules: Vec<(Rule, SourcePosition)> = Vec::new();
    for item in items {
        let Some(rule) = read(&item, policy, signers, reading) else {
            continue;
        };
        let twin = rules.iter().find(|(other, _)| other.name == rule.name);
        if let Some((_, place)) = twin {
            let what = format!(
                "{:?} is also the name of the rule in line {}: give one of them another",
                rule.name, place.line
            );
            item.complain(reading, what);
        }
        rules.push((rule, item.node.place));
    }
    rules
}

/// Reads an expression; what is wrong with it is told with its place in the file.
pub(super) fn expression(field: &Field<'_>, reading: &mut Reading<'_>) -> Option<Expression> {
    let text = field.text(reading)?;
    let fault = match Expression::compile(&text) {
        Ok(expression) => return Some(expression),
        Err(fault) => fault,
    };
    let within = SourcePosition {
        line: fault.line.into(),
        column: fault.column.into(),
    };
    match field.node.place_within(reading.text, within) {
        Some(place) => reading.complain(place, &field.path, fault.what),
        None => {
            let what = format!(
                "line {}, column {} of the expression: {}",
                fault.line, fault.column, fault.what
            );
            field.complain(reading, what);
        }
    }
    None
}

fn read(
    field: &Field<'_>,
    policy: &Arc<str>,
    signers: &Arc<[SignerName]>,
    reading: &mut Reading<'_>,
) -> Option<Rule> {
    let fields = field.fields(&KEYS, reading)?;
    let name = fields.required("name", reading);
    let name = name.and_then(|field| rule_name(&field, reading));
    let when = fields.get("when");
    let when = when.map(|field| expression(&field, reading));
    let (effect, body) = match effect(&fields, reading) {
        Some((effect, body)) => (Some(effect), kind::read_all(&body, effect, reading)),
        None => (None, None),
    };
    let is_deny = effect == Some(RuleEffect::Deny);
    let otherwise = fields.get("else").and_then(|field| {
        let word = field.word(&OTHERWISE, reading)?;
        if is_deny && word == Otherwise::Deny {
            let what = "a deny rule cannot also deny what it does not match: it would deny everything; write `deny: {always: {}}` if that is meant";
            fields.complain("else", reading, what);
        }
        Some(word)
    });
    let on_unavailable = fields.get("unavailable").and_then(|field| {
        let word = field.word(&UNAVAILABLE, reading)?;
        if is_deny && word == OnUnavailable::Next {
            let what = "a deny rule that cannot look must stop the decision, else what it would have denied might be approved further down: remove this line";
            fields.complain("unavailable", reading, what);
        }
        Some(word)
    });
    let kind::Body { kinds, message } = body?;
    Some(Rule {
        policy: policy.clone(),
        name: name?,
        signers: signers.clone(),
        when: match when {
            Some(compiled) => Some(compiled?),
            None => None,
        },
        effect: effect?,
        kinds,
        message,
        otherwise: otherwise.unwrap_or_default(),
        on_unavailable: on_unavailable.unwrap_or_default(),
    })
}

fn rule_name(field: &Field<'_>, reading: &mut Reading<'_>) -> Option<String> {
    let text = field.text(reading)?;
    let is_plain = text.trim() == text && !text.chars().any(char::is_control);
    if text.is_empty() || text.chars().count() > MAX_NAME || !is_plain {
        let what =
            format!("a rule's name is a short text of one line, up to {MAX_NAME} characters");
        field.complain(reading, what);
        return None;
    }
    Some(text)
}

/// What a match does, and the kinds that say what a match is.
fn effect<'n>(fields: &Fields<'n>, reading: &mut Reading<'_>) -> Option<(RuleEffect, Field<'n>)> {
    match (fields.written("approve"), fields.written("deny")) {
        (Some(_), Some(_)) => {
            fields.complain(
                "deny",
                reading,
                "a rule either approves or denies: make two rules of it",
            );
            None
        }
        (None, None) => {
            fields.complain(
                "",
                reading,
                "a rule needs `approve` or `deny`, for example `approve: {allowlist: {names: [web01.example.com]}}`",
            );
            None
        }
        (Some(approve), None) => Some((RuleEffect::Approve, approve)),
        (None, Some(deny)) => Some((RuleEffect::Deny, deny)),
    }
}

const KEYS: [&str; 6] = ["name", "when", "approve", "deny", "else", "unavailable"];
const OTHERWISE: [(&str, Otherwise); 2] =
    [("abstain", Otherwise::Abstain), ("deny", Otherwise::Deny)];
const UNAVAILABLE: [(&str, OnUnavailable); 2] =
    [("stop", OnUnavailable::Stop), ("next", OnUnavailable::Next)];
/// It stands in every explanation.
const MAX_NAME: usize = 128;
