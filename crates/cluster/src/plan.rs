//! What is done with a request, given how it stands and what the policy says: pure functions over observed objects.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign_pki::terminal_safe;
use countersign_policy::{Deciding, Effect, Explanation, Finding, ReasonCode, Step, Verdict};
use serde_json::{Map, Value, json};

use crate::objects::CsrObject;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nobody has decided.
    Undecided,
    /// It is approved and has neither a certificate nor a failure.
    Approved,
    /// Nothing is left to be done: denied, failed, issued, or being deleted.
    Over,
}

impl Stage {
    pub(crate) fn of(request: &CsrObject) -> Self {
        let is_over = request.deleting
            || request.certificate.is_some()
            || request.is(DENIED)
            || request.is(FAILED);
        match (is_over, request.is(APPROVED)) {
            (true, _) => Self::Over,
            (false, true) => Self::Approved,
            (false, false) => Self::Undecided,
        }
    }
}

/// What follows from a verdict.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// Write this condition.
    Decide(NewCondition),
    /// Say why it waits, and look at it again when evidence changes.
    Wait {
        why: Reason,
        /// Whether it is also worth asking again by itself.
        retry: bool,
    },
}

/// A condition that is to be added to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewCondition {
    pub(crate) kind: &'static str,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Why a request stands as it does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reason {
    /// The rule that speaks, if any.
    pub(crate) rule: String,
    /// In one word: the checks that failed, or the reason's code.
    pub(crate) code: String,
    /// In words.
    pub(crate) words: String,
}

/// What follows from a verdict.
pub(crate) fn plan(verdict: &Verdict) -> Action {
    let explanation = verdict.explanation();
    let kind = match verdict {
        Verdict::Approve(_) => APPROVED,
        Verdict::Deny(_) => DENIED,
        Verdict::Pending(explanation) => {
            return Action::Wait {
                why: Reason::of(explanation),
                retry: explanation.retry || explanation.stopped || waits_for_webhook(explanation),
            };
        }
    };
    Action::Decide(NewCondition {
        kind,
        reason: deciding_rule(explanation),
        message: shortened(&explanation.in_short()),
    })
}

/// Whether a webhook left it to others: nothing tells when it would say something else.
fn waits_for_webhook(explanation: &Explanation) -> bool {
    let mut steps = explanation.steps.iter();
    steps.any(|step| step.code == ReasonCode::WebhookPending)
}

/// `policy/rule`, which is how a reader finds it.
fn deciding_rule(explanation: &Explanation) -> String {
    match &explanation.by {
        Some(Deciding::Rule { name, policy }) if policy.is_empty() => name.clone(),
        Some(Deciding::Rule { name, policy }) => format!("{policy}/{name}"),
        Some(Deciding::Person { .. } | Deciding::Profile) | None => "countersign".to_owned(),
    }
}

impl Reason {
    pub(crate) fn of(explanation: &Explanation) -> Self {
        // The rule that decided; where none did, the last one that was meant for it knows best what is missing.
        let steps = explanation.steps.iter();
        let is_meant = |step: &&Step| step.finding != Finding::Skipped;
        let step = steps.rev().find(is_meant).or(explanation.steps.last());
        let code = match step {
            Some(step) if !step.failed.is_empty() => step.failed.join(","),
            Some(step) => step.code.as_str().to_owned(),
            None => explanation.code.as_str().to_owned(),
        };
        let words = match (explanation.effect, step) {
            (Effect::Pending, None) => "no rule was asked".to_owned(),
            (Effect::Approve | Effect::Deny | Effect::Pending, _) => explanation.in_short(),
        };
        Self {
            rule: step.map(|step| step.rule.clone()).unwrap_or_default(),
            code,
            words: shortened(&words),
        }
    }
}

/// Its status with one more condition; `None` if nothing is left to be written.
pub(crate) fn with_condition(request: &CsrObject, condition: &NewCondition) -> Option<Status> {
    let mut status = request.body.as_ref()?.status.clone();
    let mut conditions = match status.remove(CONDITIONS) {
        Some(Value::Array(conditions)) => conditions,
        Some(_) | None => Vec::new(),
    };
    conditions.push(condition.to_json());
    status.insert(CONDITIONS.to_owned(), Value::Array(conditions));
    Some(status)
}

/// Its status with its certificate; `None` if nothing is left to be written.
pub(crate) fn with_certificate(request: &CsrObject, pem: &str) -> Option<Status> {
    let mut status = request.body.as_ref()?.status.clone();
    status.insert(CERTIFICATE.to_owned(), json!(BASE64.encode(pem)));
    Some(status)
}

/// A request's status, as it is to be.
pub(crate) type Status = Map<String, Value>;

/// The whole object with that status, as JSON; `None` if nothing is left to be written.
pub(crate) fn whole_with(request: &CsrObject, status: &Status) -> Option<String> {
    let object = request.body.as_ref()?.object.strip_suffix('}')?;
    let status = serde_json::to_string(status).ok()?;
    Some(format!(r#"{object},"status":{status}}}"#))
}

/// What of a request is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) subresource: &'static str,
    /// What of its status changes.
    key: &'static str,
}

impl Part {
    pub(crate) const APPROVAL: Self = Self {
        subresource: "approval",
        key: CONDITIONS,
    };
    pub(crate) const FAILURE: Self = Self {
        subresource: "status",
        key: CONDITIONS,
    };
    pub(crate) const CERTIFICATE: Self = Self {
        subresource: "status",
        key: CERTIFICATE,
    };
}

/// A part of a status as a merge patch that counts only for the state that was judged.
pub(crate) fn patch_of(part: Part, request: &CsrObject, status: &Status) -> Value {
    json!({
        "metadata": {"resourceVersion": request.version, "uid": request.uid},
        "status": {part.key: status.get(part.key)},
    })
}

impl NewCondition {
    fn to_json(&self) -> Value {
        // The API server fills in the times.
        let Self {
            kind,
            reason,
            message,
        } = self;
        json!({"type": kind, "status": "True", "reason": reason, "message": message})
    }
}

/// At most 1 KiB, without control characters: the API server's bound for notes of Events, and enough for conditions.
pub(crate) fn shortened(text: &str) -> String {
    let text = terminal_safe(text);
    if text.len() <= MAX_TEXT {
        return text.to_string();
    }
    let mut end = MAX_TEXT.saturating_sub(ELLIPSIS.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    format!("{}{ELLIPSIS}", text.get(..end).unwrap_or_default())
}

const CONDITIONS: &str = "conditions";
const CERTIFICATE: &str = "certificate";
const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";
const MAX_TEXT: usize = 1024;
const ELLIPSIS: &str = "…";

#[cfg(test)]
mod tests {
    use countersign_pki::UnixTime;
    use countersign_policy::{Answer, ReasonCode};

    use super::*;
    use crate::objects::tests::request;

    #[test]
    fn a_request_is_touched_only_while_something_is_left_to_do() {
        let is = |kind: &str| json!({"conditions": [{"type": kind, "status": "True"}]});
        for (case, status, stage) in [
            ("new", json!({}), Stage::Undecided),
            ("of another kind", is("Looked"), Stage::Undecided),
            ("approved", is("Approved"), Stage::Approved),
            ("denied", is("Denied"), Stage::Over),
            ("failed", is("Failed"), Stage::Over),
            (
                "failed after approval",
                json!({"conditions": [{"type": "Approved"}, {"type": "Failed"}]}),
                Stage::Over,
            ),
            (
                "issued",
                json!({"conditions": [{"type": "Approved"}], "certificate": "QUJD"}),
                Stage::Over,
            ),
            (
                "signed without approval",
                json!({"certificate": "QUJD"}),
                Stage::Over,
            ),
        ] {
            let request = request("a", json!({"status": status}));
            assert_eq!(Stage::of(&request), stage, "{case}");
        }
        let deleted = request(
            "a",
            json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}),
        );
        assert_eq!(Stage::of(&deleted), Stage::Over);
    }

    fn explained(effect: Effect, retry: bool) -> Explanation {
        let mut explanation = Explanation::new(effect, UnixTime(0), 1);
        explanation.retry = retry;
        let mut step = Step::new(
            "known",
            "subjectAccess",
            Finding::Absent,
            "may not".to_owned(),
        );
        step.answer = Answer::Abstain;
        step.code = ReasonCode::AccessNotAllowed;
        explanation.steps.push(step);
        explanation
    }

    #[test]
    fn what_waits_says_why_and_is_asked_again_only_if_that_may_help() {
        for retry in [false, true] {
            let verdict = Verdict::Pending(explained(Effect::Pending, retry));
            let Action::Wait { why, retry: again } = plan(&verdict) else {
                panic!("decided")
            };
            assert_eq!(again, retry);
            assert_eq!(
                (why.rule.as_str(), why.code.as_str()),
                ("known", "access_not_allowed")
            );
            assert!(why.words.contains("may not"), "{}", why.words);
        }
    }

    #[test]
    fn the_reason_is_that_of_a_rule_that_is_meant_for_the_request() {
        let mut explanation = explained(Effect::Pending, false);
        let skipped = Step::new("other", "nodeServing", Finding::Skipped, "G01".to_owned());
        explanation.steps.push(skipped);
        assert_eq!(Reason::of(&explanation).rule, "known");
    }

    #[test]
    fn a_denial_names_its_rule_and_fits() {
        let mut explanation = explained(Effect::Deny, false);
        explanation.by = Some(Deciding::Rule {
            name: "reserved".to_owned(),
            policy: "site".to_owned(),
        });
        explanation.steps[0].reason = "ü\u{1b}[31m".repeat(2000);
        let Action::Decide(condition) = plan(&Verdict::Deny(explanation)) else {
            panic!("undecided")
        };
        assert_eq!(
            (condition.kind, condition.reason.as_str()),
            ("Denied", "site/reserved")
        );
        assert!(
            condition.message.len() <= 1024,
            "{}",
            condition.message.len()
        );
        assert!(!condition.message.contains('\u{1b}'));
    }

    #[test]
    fn other_conditions_and_metadata_stay() {
        let looked = json!({"type": "Looked", "status": "False"});
        let request = request(
            "a",
            json!({
                "metadata": {"labels": {"team": "x"}, "managedFields": [{"manager": "kubelet"}]},
                "status": {"conditions": [looked]},
            }),
        );
        let condition = NewCondition {
            kind: "Approved",
            reason: "p/r".to_owned(),
            message: "m".to_owned(),
        };
        let status = with_condition(&request, &condition).unwrap();
        let whole = whole_with(&request, &status).unwrap();
        let object: Value = serde_json::from_str(&whole).unwrap();
        assert_eq!(object["kind"], "CertificateSigningRequest");
        assert_eq!(object["spec"]["username"], "system:node:worker-a");
        assert_eq!(object["metadata"]["labels"]["team"], "x");
        assert_eq!(object["metadata"]["resourceVersion"], "7");
        assert!(object["metadata"].get("managedFields").is_none());
        let kinds: Vec<&Value> = object["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|condition| &condition["type"])
            .collect();
        assert_eq!(kinds, ["Looked", "Approved"]);
        let patch = patch_of(Part::APPROVAL, &request, &status);
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["status"], object["status"]);

        let status = with_certificate(&request, "PEM").unwrap();
        let whole = whole_with(&request, &status).unwrap();
        let object: Value = serde_json::from_str(&whole).unwrap();
        let expected = json!({"conditions": [looked], "certificate": "UEVN"});
        assert_eq!(object["status"], expected);
    }
}
