//! Answers that are well formed HTTP: right ones, and lies.

use countersign_policy::WebhookAnswer;
use serde_json::json;

use crate::row::Expected::{Answer, Unavailable};
use crate::row::{Row, play};
use crate::world::{allow, deny};

#[tokio::test]
async fn right_answers_count() {
    let allowing = |reason: &str, ttl_seconds| {
        Answer(WebhookAnswer::Allow {
            reason: reason.to_owned(),
            ttl_seconds,
        })
    };
    play(vec![
        Row::allowing("allow", Answer(allow())),
        Row::deciding("deny", Answer(deny()), "deny", json!({})),
        Row::deciding(
            "deny with a reason",
            Answer(WebhookAnswer::Deny {
                reason: "not in the CMDB".to_owned(),
            }),
            "deny",
            json!({"reason": "not in the CMDB"}),
        ),
        Row::deciding(
            "pend",
            Answer(WebhookAnswer::Pend {
                reason: "ask a person".to_owned(),
            }),
            "pend",
            json!({"reason": "ask a person"}),
        ),
        Row::saying(
            "deny without echoes",
            Answer(deny()),
            r#"{"decision": "deny"}"#,
        ),
        Row::saying(
            "pend without echoes",
            Answer(WebhookAnswer::Pend {
                reason: String::new(),
            }),
            r#" {"decision": "pend", "reason": null}"#,
        ),
        Row::deciding(
            "a lifetime and our own signer",
            allowing("", Some(3600)),
            "allow",
            json!({"constraints": {"ttl_seconds": 3600, "profile": "countersign.dev/puppet-agent"}}),
        ),
        Row::deciding(
            "constraints of nothing",
            allowing("", None),
            "allow",
            json!({"constraints": {"ttl_seconds": null, "profile": null}}),
        ),
        Row::deciding(
            "members that nobody knows",
            allowing("", None),
            "allow",
            json!({"constraints": null, "ticket": {"number": [1, 2]}}),
        ),
        Row::deciding(
            "a reason that acts on terminals and never ends",
            allowing(&format!("\\u{{1b}}[2J{}", "x".repeat(252)), None),
            "allow",
            json!({"reason": format!("\u{1b}[2J{}", "x".repeat(3000))}),
        ),
    ])
    .await;
}

#[tokio::test]
async fn lies_do_not_count() {
    let allow = |name, words, others| Row::deciding(name, Unavailable(words), "allow", others);
    play(vec![
        Row::saying(
            "allow without any echo",
            Unavailable("allows without repeating request_id"),
            r#"{"decision": "allow"}"#,
        ),
        allow(
            "no request_id",
            "allows without repeating request_id",
            json!({"request_id": null}),
        ),
        allow(
            "no csr_sha256",
            "allows without repeating csr_sha256",
            json!({"csr_sha256": null}),
        ),
        allow(
            "another request_id",
            "repeats another request_id",
            json!({"request_id": "01890a5d-0002"}),
        ),
        allow(
            "another request",
            "repeats another csr_sha256",
            json!({"csr_sha256": "00".repeat(32)}),
        ),
        allow(
            "a request_id that is a number",
            "request_id that is not text",
            json!({"request_id": 7}),
        ),
        Row::deciding(
            "a denial of another request",
            Unavailable("repeats another csr_sha256"),
            "deny",
            json!({"csr_sha256": "00".repeat(32)}),
        ),
        Row::deciding(
            "pending of another request",
            Unavailable("repeats another request_id"),
            "pend",
            json!({"request_id": "x"}),
        ),
        Row::deciding(
            "a decision in capitals",
            Unavailable(r#"unknown decision "ALLOW""#),
            "ALLOW",
            json!({}),
        ),
        allow(
            "a decision that is true",
            "decision that is not text",
            json!({"decision": true}),
        ),
        allow("no decision", "has no decision", json!({"decision": null})),
        allow(
            "a reason that is a list",
            "reason that is not text",
            json!({"reason": []}),
        ),
        allow(
            "a lifetime of nothing",
            "ttl_seconds",
            json!({"constraints": {"ttl_seconds": 0}}),
        ),
        allow(
            "a negative lifetime",
            "ttl_seconds",
            json!({"constraints": {"ttl_seconds": -1}}),
        ),
        allow(
            "a lifetime of milliseconds",
            "ttl_seconds",
            json!({"constraints": {"ttl_seconds": 157_680_000_000_u64}}),
        ),
        allow(
            "a broken lifetime",
            "ttl_seconds",
            json!({"constraints": {"ttl_seconds": 1.5}}),
        ),
        allow(
            "a lifetime in words",
            "ttl_seconds",
            json!({"constraints": {"ttl_seconds": "3600"}}),
        ),
        allow(
            "another signer",
            r#"profile "example.com/ca""#,
            json!({"constraints": {"profile": "example.com/ca"}}),
        ),
        allow(
            "a constraint that cannot be kept",
            r#"unknown constraint "max_uses""#,
            json!({"constraints": {"max_uses": 1}}),
        ),
        allow(
            "constraints in a list",
            "constraints that are not an object",
            json!({"constraints": [60]}),
        ),
    ])
    .await;
}

#[tokio::test]
async fn what_is_not_one_object_does_not_count() {
    let object = "is not one JSON object";
    let rows = [
        ("nothing", ""),
        ("words", "allow"),
        ("a list", r#"["allow"]"#),
        ("a list of an object", r#"[{"decision": "allow"}]"#),
        (
            "two objects",
            r#"{"decision": "deny"}{"decision": "allow"}"#,
        ),
        ("half an object", r#"{"decision": "deny""#),
        ("comments", r#"{"decision": "deny" /* or not */}"#),
        (
            "two decisions",
            r#"{"decision": "deny", "decision": "allow"}"#,
        ),
        (
            "two decisions, one in disguise",
            r#"{"decision": "deny", "d\u0065cision": "deny"}"#,
        ),
        (
            "two of what nobody knows",
            r#"{"decision": "deny", "x": {"y": 1, "y": 2}}"#,
        ),
    ];
    let rows = rows.map(|(name, text)| Row::saying(name, Unavailable(object), text));
    play(rows.into()).await;
}
