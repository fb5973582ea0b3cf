//! An answer without what must differ between two servers: identities, times, versions, keys, addresses.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_testkit::https::Answer;
use serde_json::{Map, Value, json};

use super::certificate;

/// What is compared.
pub(crate) fn of(answer: &Answer, owners: bool) -> Value {
    let kind = answer.header("content-type").unwrap_or_default();
    let mut body = match kind {
        kind if kind.contains("protobuf") => protobuf(&answer.body),
        kind if kind.contains("yaml") => {
            let value: Result<Value, _> = serde_saphyr::from_str(&answer.text());
            value.map_or(Value::Null, normal)
        }
        _ => body(&answer.text()),
    };
    if !owners {
        forget_owners(&mut body);
    }
    let warnings: Vec<&str> = answer
        .headers
        .iter()
        .filter_map(|(name, value)| (name == "warning").then_some(value.as_str()))
        .collect();
    let mut shape = json!({"status": answer.status, "type": kind.replace(' ', ""), "body": body});
    if !warnings.is_empty() {
        shape["warnings"] = json!(warnings);
    }
    for name in ["allow", "retry-after", "location", "www-authenticate"] {
        if let Some(value) = answer.header(name) {
            shape[name] = json!(value);
        }
    }
    shape
}

/// One document, a watch's documents in lines, or text.
fn body(text: &str) -> Value {
    match serde_json::from_str::<Value>(text) {
        Ok(value) if !is_event(&value) => return normal(value),
        Ok(_) | Err(_) => {}
    }
    let events: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    match events {
        Ok(events) => {
            let told = events
                .into_iter()
                .filter(|event| !is_passing_bookmark(event));
            told.map(normal).collect()
        }
        Err(_) => Value::from(string(text)),
    }
}

/// Whether it is one event of a watch.
fn is_event(value: &Value) -> bool {
    value["type"].is_string() && value["object"].is_object()
}

/// A bookmark that says how far a watch is, and not that the objects of its beginning are complete. No server promises any:
/// short watches of one kube-apiserver had none, one, or three in a row of tries. That ours comes is tested beside the door.
fn is_passing_bookmark(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && !event.to_string().contains("k8s.io/initial-events-end")
}

/// The envelope and the type inside; JSON shows the rest.
fn protobuf(body: &[u8]) -> Value {
    let kinds = [
        "CertificateSigningRequestList",
        "CertificateSigningRequest",
        "Lease",
        "Event",
        "Status",
    ];
    let has = |kind: &&str| {
        let head = body.get(..120.min(body.len())).unwrap_or_default();
        head.windows(kind.len())
            .any(|window| window == kind.as_bytes())
    };
    json!({"envelope": body.starts_with(b"k8s\0"), "kind": kinds.iter().find(|kind| has(kind))})
}

fn normal(value: Value) -> Value {
    match value {
        Value::Object(members) => object(members),
        Value::Array(items) => items.into_iter().map(normal).collect(),
        Value::String(text) => Value::from(string(&text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

fn object(mut members: Map<String, Value>) -> Value {
    certificate::open(&mut members);
    let normal = members.into_iter().map(|(name, value)| {
        let value = match (name.as_str(), &value) {
            ("resourceVersion", Value::String(text)) if is_version(text) => json!("<version>"),
            ("continue", Value::String(text)) if !text.is_empty() => json!("<continue>"),
            ("cells", Value::Array(cells)) => cells.iter().map(cell).collect(),
            ("resourceRules" | "nonResourceRules", Value::Array(rules)) => sorted(rules),
            // The reference looks at managers in no order.
            ("causes", Value::Array(causes))
                if causes
                    .iter()
                    .any(|it| it["reason"] == "FieldManagerConflict") =>
            {
                sorted(causes)
            }
            // By time, and then by name: whether two come in the same second is a matter of luck.
            ("managedFields", Value::Array(entries)) => {
                let entries: Vec<Value> = entries.iter().cloned().map(normal).collect();
                sorted(&entries)
            }
            ("groups", Value::Array(groups)) if groups.iter().any(|g| g["versions"].is_array()) => {
                served(groups, |group| &group["name"])
            }
            ("items", Value::Array(groups)) if groups.iter().any(|g| g["versions"].is_array()) => {
                served(groups, |group| &group["metadata"]["name"])
            }
            _ => normal(value),
        };
        (name, value)
    });
    Value::Object(normal.collect())
}

/// Who set which field is compared where that is the question: of requests it is noted only from the first apply on.
fn forget_owners(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("managedFields");
            members.values_mut().for_each(forget_owners);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_owners),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Of the groups of APIs, those that both serve.
fn served(groups: &[Value], name: impl Fn(&Value) -> &Value) -> Value {
    let mut groups: Vec<&Value> = groups
        .iter()
        .filter(|group| {
            name(group)
                .as_str()
                .is_some_and(|name| SERVED.contains(&name))
        })
        .collect();
    groups.sort_by_key(|group| name(group).to_string());
    groups.into_iter().cloned().map(normal).collect()
}

/// What somebody may is in no order.
fn sorted(rules: &[Value]) -> Value {
    let mut rules = rules.to_vec();
    rules.sort_by_key(ToString::to_string);
    Value::Array(rules)
}

/// Of a table: ages differ by what a run takes.
fn cell(cell: &Value) -> Value {
    match cell.as_str() {
        Some(text) if is_age(text) => json!("<age>"),
        _ => normal(cell.clone()),
    }
}

fn is_age(text: &str) -> bool {
    let digits = text.strip_suffix('s').unwrap_or_default();
    (1..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

fn is_version(text: &str) -> bool {
    text != "0" && !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Inside sentences: identities, times, fingerprints, versions and addresses.
fn string(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let replaced = PATTERNS.iter().find_map(|(pattern, word)| {
            let length = matching(rest, pattern)?;
            // In the middle of a longer number it is something else.
            let inside = out.ends_with(|c: char| c.is_ascii_hexdigit());
            (!inside).then_some((length, *word))
        });
        let version = is_after_version(&out)
            .then(|| {
                rest.find(|c: char| !c.is_ascii_digit())
                    .unwrap_or(rest.len())
            })
            .filter(|length| *length > 0);
        let length = match (replaced, version) {
            (Some((length, word)), _) => {
                out.push_str(word);
                length
            }
            (None, Some(length)) => {
                out.push_str("<version>");
                length
            }
            (None, None) => {
                out.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    if let Some((before, behind)) = out.split_once("127.0.0.1:") {
        let port = behind.find(|c: char| !c.is_ascii_digit());
        return format!("{before}<address>{}", port.map_or("", |end| &behind[end..]));
    }
    out
}

/// `h` stands for a hexadecimal digit, `0` for a decimal one.
fn matching(text: &str, pattern: &str) -> Option<usize> {
    let bytes = text.as_bytes().get(..pattern.len())?;
    let fits = bytes.iter().zip(pattern.bytes()).all(|(b, p)| match p {
        b'h' => b.is_ascii_hexdigit(),
        b'0' => b.is_ascii_digit(),
        other => *b == other,
    });
    fits.then_some(pattern.len())
}

fn is_after_version(text: &str) -> bool {
    [
        "resource version: ",
        "resource version: <version> (",
        "ResourceVersion in precondition: ",
        "ResourceVersion in object meta: ",
        "current: ",
        "ResourceVersion in the precondition (",
        "ResourceVersion in record (",
    ]
    .iter()
    .any(|end| text.ends_with(end))
}

/// What base64 holds, if it is PEM.
pub(crate) fn pem_of(value: &Value) -> Option<Vec<u8>> {
    let bytes = STANDARD.decode(value.as_str()?).ok()?;
    bytes
        .windows(10)
        .any(|window| window == b"-----BEGIN")
        .then_some(bytes)
}

const PATTERNS: [(&str, &str); 4] = [
    ("0000-00-00T00:00:00.000000Z", "<microtime>"),
    ("hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh", "<uid>"),
    ("0000-00-00T00:00:00Z", "<time>"),
    (
        "hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh",
        "<sha256>",
    ),
];

const SERVED: [&str; 6] = [
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "events.k8s.io",
    "rbac.authorization.k8s.io",
];

#[test]
fn only_what_must_differ_is_left_out() {
    let same = |left: &str, right: &str| assert_eq!(body(left), body(right));
    let other = |left: &str, right: &str| assert_ne!(body(left), body(right));
    let uid = |digit: &str| {
        format!(
            "{{\"uid\":\"{}\"}}",
            "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh".replace('h', digit)
        )
    };
    same(&uid("a"), &uid("b"));
    other(&uid("a"), r#"{"uid":"x"}"#);
    same(r#"{"resourceVersion":"7"}"#, r#"{"resourceVersion":"812"}"#);
    other(r#"{"resourceVersion":"7"}"#, r#"{"resourceVersion":"0"}"#);
    other(r#"{"resourceVersion":"7"}"#, "{}");
    same(
        "\"too old resource version: 7 (12)\"",
        "\"too old resource version: 8 (9)\"",
    );
    other(
        "\"too old resource version: 7 (12)\"",
        "\"too large resource version: 8\"",
    );
    same(r#"{"cells":["a","3s"]}"#, r#"{"cells":["a","12s"]}"#);
    other(r#"{"cells":["a","3s"]}"#, r#"{"cells":["a","10m"]}"#);
    same(
        r#"{"t":"2026-01-01T00:00:00Z"}"#,
        r#"{"t":"2027-01-01T00:00:09Z"}"#,
    );
    other(r#"{"t":"2026-01-01T00:00:00Z"}"#, r#"{"t":null}"#);
    other("{\"a\":1}\n{\"b\":1}\n", "{\"a\":1}\n");
    let bookmark = |annotations: &str| {
        format!(
            r#"{{"type":"BOOKMARK","object":{{"metadata":{{"annotations":{{{annotations}}}}}}}}}"#
        )
    };
    let (passing, complete) = (
        bookmark(""),
        bookmark(r#""k8s.io/initial-events-end":"true""#),
    );
    let added = r#"{"type":"ADDED","object":{}}"#;
    same(&passing, "");
    same(&format!("{added}\n{passing}\n"), added);
    other(&complete, "");
    other(&format!("{added}\n{complete}\n"), added);
}
