//! Where the answers may differ, and why: `differences.yaml`.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Step;
use super::table;

/// One accepted difference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    /// None: it may be anywhere, and is somewhere.
    #[serde(default)]
    calls: Vec<String>,
    /// Parts of the answer, as in `body.metadata.name`; what is below them may differ.
    at: Vec<String>,
    /// What the reference has there, if that is always the same.
    reference: Option<Value>,
    /// What we have there.
    ours: Option<Value>,
    reason: String,
}

impl Difference {
    fn explains(&self, call: &str, found: &Found) -> Option<usize> {
        let named = self.calls.is_empty() || self.calls.iter().any(|name| name == call);
        let same = |wanted: &Option<Value>, value: &Value| {
            wanted.as_ref().is_none_or(|wanted| wanted == value)
        };
        let place = self
            .at
            .iter()
            .position(|place| is_below(&found.path, place));
        place.filter(|_| {
            named && same(&self.reference, &found.reference) && same(&self.ours, &found.ours)
        })
    }
}

/// Why answers differ, each reason once.
pub(crate) fn reasons() -> BTreeSet<String> {
    let listed: Vec<Difference> = table::parse("differences.yaml");
    listed
        .into_iter()
        .map(|difference| difference.reason)
        .collect()
}

/// What differs.
struct Found {
    path: String,
    reference: Value,
    ours: Value,
}

/// What was seen, against what is listed.
pub(crate) struct Findings {
    listed: Vec<Difference>,
    unexpected: Vec<String>,
    /// Of which difference, at which of its places, in which call.
    occurred: BTreeSet<(usize, usize, String)>,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            listed: table::parse("differences.yaml"),
            unexpected: Vec::new(),
            occurred: BTreeSet::new(),
        }
    }
}

impl Findings {
    pub(crate) fn compare(&mut self, step: &Step, reference: &Value, ours: &Value) {
        let mut found = Vec::new();
        differing(String::new(), reference, ours, &mut found);
        let mut unexplained = Vec::new();
        for found in found {
            let mut explained = false;
            for (index, difference) in self.listed.iter().enumerate() {
                if let Some(place) = difference.explains(&step.name, &found) {
                    self.occurred.insert((index, place, step.name.clone()));
                    explained = true;
                }
            }
            if !explained {
                let Found {
                    path,
                    reference,
                    ours,
                } = found;
                let (reference, ours) = (reference.to_string(), ours.to_string());
                let same = common(&reference, &ours);
                let (reference, ours) = (excerpt(&reference, same), excerpt(&ours, same));
                unexplained.push(format!(
                    "  {path}\n    reference: {reference}\n    ours:      {ours}"
                ));
            }
        }
        if !unexplained.is_empty() {
            self.unexpected.push(format!(
                "{} ({} {}, {} and {})\n{}",
                step.name,
                step.method(),
                step.path(),
                reference["status"],
                ours["status"],
                unexplained.join("\n")
            ));
        }
    }

    pub(crate) fn finish(self, steps: &[Step]) {
        let names: BTreeSet<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        let mut vanished = Vec::new();
        for (index, difference) in self.listed.iter().enumerate() {
            for (number, place) in difference.at.iter().enumerate() {
                let seen = |call: &String| self.occurred.contains(&(index, number, call.clone()));
                let missing: Vec<&String> = difference.calls.iter().filter(|c| !seen(c)).collect();
                let anywhere = self
                    .occurred
                    .iter()
                    .any(|(i, n, _)| (*i, *n) == (index, number));
                if !missing.is_empty() || !anywhere {
                    vanished.push(format!("{place} of {missing:?} ({})", difference.reason));
                }
            }
            let unknown = difference
                .calls
                .iter()
                .find(|c| !names.contains(c.as_str()));
            vanished.extend(unknown.map(|call| format!("there is no call {call}")));
        }
        assert!(
            self.unexpected.is_empty() && vanished.is_empty(),
            "{} calls, {} not as listed\n{}\nlisted, but not seen: {vanished:#?}",
            steps.len(),
            self.unexpected.len(),
            self.unexpected.join("\n")
        );
    }
}

fn differing(path: String, reference: &Value, ours: &Value, found: &mut Vec<Found>) {
    let below = |part: &str| match path.is_empty() {
        true => part.to_owned(),
        false => format!("{path}.{part}"),
    };
    match (reference, ours) {
        (left, right) if left == right => {}
        // Of objects of two kinds every member differs.
        (Value::Object(left), Value::Object(right)) if !are_of_two_kinds(left, right) => {
            let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names {
                let (left, right) = (left.get(name), right.get(name));
                differing(
                    below(name),
                    left.unwrap_or(&ABSENT),
                    right.unwrap_or(&ABSENT),
                    found,
                );
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                differing(below(&index.to_string()), left, right, found);
            }
        }
        (left, right) => found.push(Found {
            path,
            reference: left.clone(),
            ours: right.clone(),
        }),
    }
}

fn are_of_two_kinds(left: &Map<String, Value>, right: &Map<String, Value>) -> bool {
    let kinds = left.get("kind").zip(right.get("kind"));
    kinds.is_some_and(|(left, right)| left != right)
}

/// How many characters both begin with.
fn common(left: &str, right: &str) -> usize {
    let pairs = left.chars().zip(right.chars());
    pairs.take_while(|(left, right)| left == right).count()
}

/// Enough to see what differs: requests in messages are long.
fn excerpt(text: &str, same: usize) -> String {
    let skipped = same.saturating_sub(CONTEXT);
    let shown: String = text.chars().skip(skipped).take(EXCERPT).collect();
    match skipped {
        0 => shown,
        _ => format!("…{shown}"),
    }
}

/// `*` stands for one part.
fn is_below(path: &str, place: &str) -> bool {
    let mut parts = path.split('.');
    place.split('.').all(|wanted| {
        let part = parts.next();
        part.is_some_and(|part| wanted == "*" || wanted == part)
    })
}

/// A member that is not there; JSON's null would be one that is.
static ABSENT: Value = Value::Bool(false);

const CONTEXT: usize = 60;
const EXCERPT: usize = 700;
