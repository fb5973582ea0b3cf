//! An answer without what must differ between two authorities: keys, serial numbers, dates, fingerprints, own names.

use std::fmt;

use countersign_testkit::https::Answer;
use serde_json::Value;

/// What is compared.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) status: u16,
    content_type: String,
    allow: String,
    body: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Status,
    ContentType,
    Allow,
    Body,
}

impl Shape {
    pub(crate) fn of(answer: &Answer) -> Self {
        let header = |name| answer.header(name).unwrap_or_default().to_ascii_lowercase();
        Self {
            status: answer.status,
            content_type: header("content-type").replace(' ', ""),
            allow: header("allow").replace(' ', ""),
            body: body(&answer.text()),
        }
    }

    pub(crate) fn differing(&self, other: &Self) -> Vec<Field> {
        let mut fields = Vec::new();
        let mut compare = |field, same: bool| {
            if !same {
                fields.push(field);
            }
        };
        compare(Field::Status, self.status == other.status);
        compare(Field::ContentType, self.content_type == other.content_type);
        compare(Field::Allow, self.allow == other.allow);
        compare(Field::Body, self.body == other.body);
        fields
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            status,
            content_type,
            allow,
            body,
        } = self;
        write!(f, "{status} [{content_type}] {allow} {body:?}")
    }
}

fn body(text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => json(value).to_string(),
        Ok(_) | Err(_) => without_pem(text),
    }
}

/// Members have one order in `serde_json`; elements of lists get one, because neither server promises any.
fn json(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .map(|(name, value)| {
                let value = match name.as_str() {
                    "serial_number" if value.is_number() => Value::from("<number>"),
                    "service_version" if value.is_string() => Value::from("<version>"),
                    _ => json(value),
                };
                // `expirations` is keyed by the authority's own name.
                let name = match name.contains("CA") && name.contains(' ') {
                    true => "<authority>".to_owned(),
                    false => name,
                };
                (name, value)
            })
            .collect(),
        Value::Array(elements) => {
            let mut elements: Vec<Value> = elements
                .into_iter()
                .filter(|element| !is_own(element))
                .map(json)
                .collect();
            elements.sort_by_key(ToString::to_string);
            Value::Array(elements)
        }
        Value::String(text) => Value::String(string(&text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// The servers' own certificates are not the table's business.
fn is_own(element: &Value) -> bool {
    let name = element.get("name").and_then(Value::as_str);
    name.is_some_and(|name| OWN_NAMES.contains(&name))
}

fn string(text: &str) -> String {
    if is_fingerprint(text) {
        return format!("<fingerprint of {} octets>", text.split(':').count());
    }
    if is_date(text) {
        return "<date>".to_owned();
    }
    text.to_owned()
}

fn is_fingerprint(text: &str) -> bool {
    let is_octet = |octet: &str| {
        octet.len() == 2
            && octet
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b))
    };
    text.contains(':') && text.split(':').all(is_octet)
}

/// `2031-11-14T19:58:15UTC`
fn is_date(text: &str) -> bool {
    let pattern: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    pattern == "0000-00-00T00:00:00UTC"
}

/// Each PEM block is its label; what stands around it stays.
fn without_pem(text: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for line in text.split_inclusive('\n') {
        if line.starts_with("-----END ") {
            inside = false;
        } else if let Some(label) = line.strip_prefix("-----BEGIN ") {
            inside = true;
            out.push_str(label);
        } else if !inside {
            out.push_str(line);
        }
    }
    out
}

const OWN_NAMES: [&str; 2] = ["localhost", "countersign-admin"];

#[test]
fn only_what_must_differ_is_left_out() {
    let status = |name: &str, serial: &str, day: &str, print: &str| {
        body(&format!(
            r#"[{{"name":"{name}","serial_number":{serial},"not_after":"2031-11-{day}T19:58:15UTC","fingerprint":"{print}"}}]"#
        ))
    };
    let reference = status("web01", "7", "14", "0A:FF");
    assert_eq!(
        reference,
        status(
            "web01",
            "340282366920938463463374607431768211455",
            "15",
            "0B:FE"
        )
    );
    assert_ne!(
        reference,
        status("web02", "7", "14", "0A:FF"),
        "names count"
    );
    assert_ne!(
        reference,
        status("web01", "\"7\"", "14", "0A:FF"),
        "types count"
    );
    assert_ne!(
        reference,
        status("web01", "7", "14", "0A:FF:00"),
        "lengths count"
    );
    assert_eq!(
        body(r#"{"signed":["b","a"]}"#),
        body(r#"{"signed":["a","b"]}"#)
    );
    let pem = |label: &str, text: &str| {
        body(&format!(
            "-----BEGIN {label}-----\n{text}\n-----END {label}-----\n"
        ))
    };
    assert_eq!(pem("X509 CRL", "AAAA"), pem("X509 CRL", "BBBB"));
    assert_ne!(pem("X509 CRL", "AAAA"), pem("CERTIFICATE", "AAAA"));
    assert_ne!(
        body("Resource not found."),
        body("Resource not found"),
        "sentences count"
    );
}
