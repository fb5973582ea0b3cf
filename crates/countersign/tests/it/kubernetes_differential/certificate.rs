//! A certificate's fields, read without the program's own parser, and without what must differ: serial number, issuer,
//! key of the issuer, signature, and the moment.

use countersign_pki::UnixTime;
use countersign_pki::pem::{self, PemLimits};
use serde_json::{Map, Value, json};

use super::shape::pem_of;

/// Replaces `certificate` of a status by what it says.
pub(crate) fn open(members: &mut Map<String, Value>) {
    let Some(text) = members.get("certificate").and_then(pem_of) else {
        return;
    };
    let approved = members.get("conditions").and_then(Value::as_array);
    let approved = approved.and_then(|conditions| {
        let time = conditions.iter().find(|c| c["type"] == "Approved")?;
        UnixTime::parse_rfc3339(time["lastUpdateTime"].as_str()?).ok()
    });
    let Ok(blocks) = pem::decode_all(&text, &PemLimits::BUNDLE) else {
        return;
    };
    let certificates: Option<Vec<Value>> = blocks
        .iter()
        .map(|block| facts(&block.der, approved))
        .collect();
    // What an outside signer wrote may be anything; it is the same on both sides.
    if let Some(certificates) = certificates {
        members.insert("certificate".to_owned(), json!(certificates));
    }
}

fn facts(der: &[u8], approved: Option<UnixTime>) -> Option<Value> {
    let certificate = elements(content(der)?)?;
    let [tbs, algorithm, _signature] = certificate.as_slice() else {
        return None;
    };
    let fields = elements(content(tbs)?)?;
    let [
        version,
        serial,
        signed_with,
        _issuer,
        validity,
        subject,
        key,
        rest @ ..,
    ] = fields.as_slice()
    else {
        return None;
    };
    let times = elements(content(validity)?)?;
    let times: Option<Vec<UnixTime>> = times.iter().map(|time| moment(time)).collect();
    let times = times?;
    let (begin, end) = (times.first()?, times.get(1)?);
    let extensions: Option<Vec<Value>> = match rest.first() {
        Some(tagged) => elements(content(content(tagged)?)?)?
            .iter()
            .map(|extension| opened(extension))
            .collect(),
        None => Some(Vec::new()),
    };
    Some(json!({
        "version": hex(version),
        "serial is positive and short": content(serial)?.len() <= 17 && content(serial)?.first()? < &0x80,
        "algorithm": [hex(signed_with), hex(algorithm)],
        "subject": readable(content(subject)?),
        "key": hex(key),
        "begins before its approval": approved.map(|time| lead(time.seconds_since(*begin))),
        "seconds": end.seconds_since(*begin),
        "extensions": extensions?,
    }))
}

/// A few seconds are the signer's. What outside signers made is as old as the table.
fn lead(seconds: i64) -> Value {
    match seconds {
        290..=300 => json!("five minutes"),
        0..1000 => json!(seconds),
        other => json!(other.signum()),
    }
}

fn opened(extension: &[u8]) -> Option<Value> {
    let parts = elements(content(extension)?)?;
    let (kind, value) = (parts.first()?, parts.last()?);
    let critical = parts.len() == 3;
    let value = match hex(kind).as_str() {
        AUTHORITY_KEY => "<authority's key>".to_owned(),
        _ => hex(content(value)?),
    };
    Some(json!({"kind": hex(kind), "critical": critical, "value": value}))
}

/// `260131120000Z` or `20500131120000Z`
fn moment(element: &[u8]) -> Option<UnixTime> {
    let text = std::str::from_utf8(content(element)?).ok()?;
    let long = match text.len() {
        13 => format!("20{text}"),
        _ => text.to_owned(),
    };
    let part = |from: usize| long.get(from..from + 2);
    let (year, month, day) = (long.get(..4)?, part(4)?, part(6)?);
    let (hour, minute, second) = (part(8)?, part(10)?, part(12)?);
    UnixTime::parse_rfc3339(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z")).ok()
}

/// RDNs in their order; the text of their octets shows most of what they say.
fn readable(name: &[u8]) -> Value {
    let rdns = elements(name).unwrap_or_default();
    rdns.iter()
        .map(|rdn| {
            format!(
                "{} {}",
                hex(rdn),
                String::from_utf8_lossy(rdn).escape_debug()
            )
        })
        .collect()
}

/// The elements that stand in a row, with their heads.
fn elements(mut der: &[u8]) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    while !der.is_empty() {
        let (head, length) = head(der)?;
        let whole = head.checked_add(length)?;
        found.push(der.get(..whole)?);
        der = der.get(whole..)?;
    }
    Some(found)
}

fn content(element: &[u8]) -> Option<&[u8]> {
    let (head, length) = head(element)?;
    element.get(head..head.checked_add(length)?)
}

/// Lengths of an element's head and content.
fn head(der: &[u8]) -> Option<(usize, usize)> {
    let first = usize::from(*der.get(1)?);
    if first < 0x80 {
        return Some((2, first));
    }
    let count = first - 0x80;
    let octets = der.get(2..2 + count)?;
    let length = octets
        .iter()
        .fold(0, |sum, octet| sum * 256 + usize::from(*octet));
    Some((2 + count, length))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// authorityKeyIdentifier, 2.5.29.35
const AUTHORITY_KEY: &str = "0603551d23";
