//! The status of our resources: what it shall say, and the patch that makes it say so.

use countersign_pki::UnixTime;
use serde_json::{Map, Value, json};

use super::object::ResourceObject;
use crate::plan::shortened;

/// What the status of an object shall be.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceStatus {
    /// Its condition `Ready`.
    pub ready: Readiness,
    /// Other fields; null for those that shall not be there.
    pub fields: Map<String, Value>,
}

/// Whether an object is in use, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Whether.
    pub is_ready: bool,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, in words.
    pub message: String,
}

impl Readiness {
    /// It is in use.
    pub fn ready(message: impl Into<String>) -> Self {
        Self {
            is_ready: true,
            reason: "InUse",
            message: message.into(),
        }
    }

    /// It is not.
    pub fn not_ready(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            is_ready: false,
            reason,
            message: message.into(),
        }
    }
}

/// The merge patch that makes an object say this, for exactly the state that was seen; `None` if it says so already.
pub(crate) fn patch(
    object: &ResourceObject,
    wanted: &ResourceStatus,
    now: UnixTime,
) -> Option<Value> {
    let mut status = wanted.fields.clone();
    status.insert("observedGeneration".to_owned(), json!(object.generation));
    let message = shortened(&wanted.ready.message);
    let word = match wanted.ready.is_ready {
        true => "True",
        false => "False",
    };
    let conditions = object.status.get("conditions").and_then(Value::as_array);
    let conditions: &[Value] = conditions.map(Vec::as_slice).unwrap_or_default();
    let is_ours = |condition: &&Value| member(condition, "type") == READY;
    let before = conditions.iter().find(is_ours);
    let says = |key: &str, text: &str| before.is_some_and(|it| member(it, key) == text);
    let is_same = says("status", word)
        && says("reason", wanted.ready.reason)
        && says("message", &message)
        && before.and_then(|it| it.get("observedGeneration")) == Some(&json!(object.generation));
    let differs =
        |(key, value): (&String, &Value)| object.status.get(key).unwrap_or(&Value::Null) != value;
    if is_same && !status.iter().any(differs) {
        return None;
    }
    let since = before.filter(|_| says("status", word));
    let since = since.map(|it| member(it, "lastTransitionTime").to_owned());
    let since = since
        .filter(|since| !since.is_empty())
        .unwrap_or_else(|| now.to_string());
    let others = conditions.iter().filter(|it| !is_ours(it)).cloned();
    let ours = json!({
        "type": READY,
        "status": word,
        "reason": wanted.ready.reason,
        "message": message,
        "observedGeneration": object.generation,
        "lastTransitionTime": since,
    });
    let all: Vec<Value> = others.chain([ours]).collect();
    status.insert("conditions".to_owned(), Value::Array(all));
    Some(json!({
        "metadata": {"resourceVersion": object.version, "uid": object.uid},
        "status": status,
    }))
}

fn member<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

const READY: &str = "Ready";

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "2026-01-01T00:00:00Z";
    const NOW: UnixTime = UnixTime(1_780_000_000);

    fn object(status: Value) -> ResourceObject {
        ResourceObject::read(&json!({
            "metadata": {"name": "a", "uid": "u", "generation": 3, "resourceVersion": "7"},
            "spec": {}, "status": status,
        }))
        .unwrap()
    }

    fn said(generation: i64, word: &str, reason: &str) -> Value {
        json!({"type": "Ready", "status": word, "reason": reason, "message": "m",
               "observedGeneration": generation, "lastTransitionTime": BEFORE})
    }

    fn wanted(is_ready: bool, fields: Value) -> ResourceStatus {
        let Value::Object(fields) = fields else {
            panic!("fields are an object")
        };
        let ready = match is_ready {
            true => Readiness::ready("m"),
            false => Readiness::not_ready("Broken", "m"),
        };
        ResourceStatus { ready, fields }
    }

    #[test]
    fn a_status_is_written_only_where_it_changes() {
        let other = json!({"type": "Seen", "status": "True"});
        let good = json!({"observedGeneration": 3, "rules": 2, "conditions": [other, said(3, "True", "InUse")]});
        let two = json!({"rules": 2});
        for (case, status, wanted, since) in [
            (
                "new",
                json!(null),
                wanted(true, two.clone()),
                Some(NOW.to_string()),
            ),
            ("as it is", good.clone(), wanted(true, two.clone()), None),
            (
                "another figure",
                good.clone(),
                wanted(true, json!({"rules": 3})),
                Some(BEFORE.to_owned()),
            ),
            (
                "a figure goes",
                good.clone(),
                wanted(true, json!({"rules": null})),
                Some(BEFORE.to_owned()),
            ),
            (
                "not any more",
                good.clone(),
                wanted(false, two.clone()),
                Some(NOW.to_string()),
            ),
            (
                "of an earlier generation",
                json!({"observedGeneration": 2, "rules": 2, "conditions": [said(2, "True", "InUse")]}),
                wanted(true, two.clone()),
                Some(BEFORE.to_owned()),
            ),
            (
                "nothing to take away",
                json!({"observedGeneration": 3, "conditions": [said(3, "False", "Broken")]}),
                wanted(false, json!({"rules": null})),
                None,
            ),
        ] {
            let object = object(status);
            let patch = patch(&object, &wanted, NOW);
            let conditions = patch.as_ref().map(|it| it["status"]["conditions"].clone());
            let ours = conditions
                .as_ref()
                .and_then(|all| all.as_array()?.last().cloned());
            let got = ours.map(|it| it["lastTransitionTime"].as_str().unwrap().to_owned());
            assert_eq!(got, since, "{case}: {patch:?}");
            if let Some(patch) = patch {
                assert_eq!(
                    patch["metadata"],
                    json!({"resourceVersion": "7", "uid": "u"})
                );
                assert_eq!(patch["status"]["observedGeneration"], 3);
                // Written once: what was asked for is then there.
                let mut written = object.clone();
                written.status = patch["status"].clone();
                assert_eq!(
                    super::patch(&written, &wanted, NOW.plus_seconds(9)),
                    None,
                    "{case}"
                );
            }
        }
        let patch = patch(&object(good), &wanted(false, json!({})), NOW).unwrap();
        assert_eq!(
            patch["status"]["conditions"][0], other,
            "it is somebody else's"
        );
    }
}
