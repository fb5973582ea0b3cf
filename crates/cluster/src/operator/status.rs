//! Status as it shall be, and the patch that makes it so.

use countersign_pki::UnixTime;
use serde_json::{Map, Value, json};

use super::object::Meta;
use crate::plan::shortened;

/// What a status shall say. Fields and conditions that are not named stay as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NewStatus {
    /// Fields; null for those that shall not be there.
    pub(crate) fields: Map<String, Value>,
    /// Conditions that shall be there.
    pub(crate) conditions: Vec<Condition>,
    /// Types of conditions that shall not.
    pub(crate) without: Vec<&'static str>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) kind: &'static str,
    pub(crate) is_true: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl NewStatus {
    pub(crate) fn phase(phase: &str) -> Self {
        Self::default().with("phase", json!(phase))
    }

    #[must_use]
    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        self.fields.insert(key.to_owned(), value);
        self
    }

    #[must_use]
    pub(crate) fn condition(
        mut self,
        kind: &'static str,
        is_true: bool,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        self.conditions.push(Condition {
            kind,
            is_true,
            reason,
            message: message.into(),
        });
        self
    }

    #[must_use]
    pub(crate) fn without(mut self, kind: &'static str) -> Self {
        self.without.push(kind);
        self
    }

    /// The merge patch that makes an object say this, for exactly the state that was seen; `None` if it says so already.
    pub(crate) fn patch(&self, meta: &Meta, status: &Value, now: UnixTime) -> Option<Value> {
        let member = |key: &str| status.get(key).unwrap_or(&Value::Null);
        let differs = self.fields.iter().any(|(key, value)| {
            // The other operator's definition drops it: that is not a difference each time.
            let is_kept = key != OBSERVED || !member(key).is_null();
            is_kept && member(key) != value
        });
        let before = member("conditions").as_array();
        let mut all: Vec<Value> = before.cloned().unwrap_or_default();
        let count = all.len();
        all.retain(|it| !self.without.iter().any(|kind| says(it, "type", kind)));
        let mut others = all.len() != count;
        for wanted in &self.conditions {
            let message = shortened(&wanted.message);
            let word = if wanted.is_true { "True" } else { "False" };
            let position = all.iter().position(|it| says(it, "type", wanted.kind));
            let old = position.and_then(|position| all.get(position));
            let is_same = old.is_some_and(|old| {
                says(old, "status", word)
                    && says(old, "reason", wanted.reason)
                    && says(old, "message", &message)
                    && observed(old).is_none_or(|observed| observed == meta.generation)
            });
            if is_same {
                continue;
            }
            others = true;
            let since = old.filter(|old| says(old, "status", word));
            let since = since.and_then(|old| old.get("lastTransitionTime").cloned());
            let condition = json!({
                "type": wanted.kind,
                "status": word,
                "reason": wanted.reason,
                "message": message,
                "observedGeneration": meta.generation,
                "lastTransitionTime": since.unwrap_or_else(|| json!(now.to_string())),
            });
            match position.and_then(|position| all.get_mut(position)) {
                Some(place) => *place = condition,
                None => all.push(condition),
            }
        }
        if !differs && !others {
            return None;
        }
        let mut status = self.fields.clone();
        if others || !self.conditions.is_empty() {
            status.insert("conditions".to_owned(), Value::Array(all));
        }
        Some(json!({
            "metadata": {"resourceVersion": meta.version, "uid": meta.uid},
            "status": status,
        }))
    }
}

/// The generation that a status is about.
pub(crate) const OBSERVED: &str = "observedGeneration";

/// The condition of a type, if there is one.
pub(crate) fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = status.get("conditions")?.as_array()?;
    conditions.iter().find(|it| says(it, "type", kind))
}

/// Whether a condition of a type is true.
pub(crate) fn is_true(status: &Value, kind: &str) -> bool {
    condition(status, kind).is_some_and(|it| says(it, "status", "True"))
}

/// The generation that a condition was said of.
fn observed(condition: &Value) -> Option<i64> {
    condition.get("observedGeneration").and_then(Value::as_i64)
}

fn says(value: &Value, key: &str, text: &str) -> bool {
    value.get(key).and_then(Value::as_str) == Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_patched_only_where_it_changes() {
        let meta =
            Meta::read(&json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}}))
                .unwrap();
        let (then, now) = ("2026-01-01T00:00:00Z", UnixTime(1_780_000_000));
        let signed = |status: &str, reason: &str| json!({"type": "CertSigned", "status": status, "reason": reason, "message": "m", "lastTransitionTime": then});
        let foreign = json!({"type": "Foreign", "status": "True"});
        let wanted =
            NewStatus::phase("Signed").condition("CertSigned", true, "CertificateSigned", "m");
        for (case, before, since) in [
            ("new", json!(null), Some(now.to_string())),
            (
                "as it is",
                json!({"phase": "Signed", "conditions": [signed("True", "CertificateSigned")]}),
                None,
            ),
            (
                "another phase",
                json!({"phase": "Renewing", "conditions": [signed("True", "CertificateSigned")]}),
                Some(then.to_owned()),
            ),
            (
                "another reason",
                json!({"phase": "Signed", "conditions": [foreign, signed("True", "CertificateRenewed")]}),
                Some(then.to_owned()),
            ),
            (
                "not any more",
                json!({"phase": "Error", "conditions": [signed("False", "SigningFailed"), foreign]}),
                Some(now.to_string()),
            ),
        ] {
            let patch = wanted.patch(&meta, &before, now);
            let got = patch.as_ref().and_then(|patch| {
                let own = condition(&patch["status"], "CertSigned")?;
                Some(own["lastTransitionTime"].as_str()?.to_owned())
            });
            assert_eq!(got, since, "{case}: {patch:?}");
            if let Some(patch) = patch {
                let kept = condition(&patch["status"], "Foreign").is_some();
                let had = condition(&before, "Foreign").is_some();
                assert_eq!(kept, had, "{case}: a condition of somebody else stays");
                assert_eq!(wanted.patch(&meta, &patch["status"], now), None, "{case}");
            }
        }
        let without = NewStatus::default().without("CertSigned");
        let before = json!({"conditions": [signed("False", "SigningFailed"), foreign]});
        let patch = without.patch(&meta, &before, now).unwrap();
        assert_eq!(patch["status"]["conditions"], json!([foreign]));
        assert_eq!(without.patch(&meta, &patch["status"], now), None);
    }
}
