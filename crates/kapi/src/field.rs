//! Errors about one field, worded as API servers word them: clients and people match on these texts.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// What is wrong with one field of an object or of a request's options.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// Path of the field, such as `spec.usages[1]`.
    pub field: String,
    /// Class of the error.
    pub kind: FieldErrorKind,
    /// The offending value, where the class shows it.
    pub value: BadValue,
    /// Explanation; may be empty.
    pub detail: String,
}

/// Class of a field error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// A value is missing.
    Required,
    /// A value is malformed or out of bounds.
    Invalid,
    /// A value is outside of an enumeration.
    NotSupported,
    /// A value occurs twice where it must be unique.
    Duplicate,
    /// A value is well formed but not permitted here.
    Forbidden,
    /// A value is too long.
    TooLong,
    /// A list has too many values.
    TooMany,
    /// A value refers to something that does not exist.
    NotFound,
}

/// An offending value in the notation of its type.
#[derive(Debug, Clone, PartialEq)]
pub enum BadValue {
    /// Not shown.
    Omitted,
    /// Shown as Go quotes text.
    Text(String),
    /// Shown as a JSON string of base64.
    Bytes(Vec<u8>),
    /// Shown in decimal digits.
    Number(i64),
    /// Shown as compact JSON.
    Json(serde_json::Value),
}

impl FieldError {
    /// A missing value.
    #[must_use]
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::Required, BadValue::Omitted, detail)
    }

    /// A malformed value.
    #[must_use]
    pub fn invalid(
        field: impl Into<String>,
        value: impl Into<BadValue>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(field, FieldErrorKind::Invalid, value.into(), detail)
    }

    /// A value outside of `supported`.
    #[must_use]
    pub fn not_supported(
        field: impl Into<String>,
        value: impl Into<BadValue>,
        supported: &[&str],
    ) -> Self {
        let quoted: Vec<String> = supported.iter().map(|word| go_quote(word)).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self::new(field, FieldErrorKind::NotSupported, value.into(), detail)
    }

    /// A value that occurs twice.
    #[must_use]
    pub fn duplicate(field: impl Into<String>, value: impl Into<BadValue>) -> Self {
        Self::new(field, FieldErrorKind::Duplicate, value.into(), "")
    }

    /// A value that is not permitted here.
    #[must_use]
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::Forbidden, BadValue::Omitted, detail)
    }

    /// A value longer than `limit` bytes.
    #[must_use]
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        let detail = format!("may not be more than {limit} bytes");
        Self::new(field, FieldErrorKind::TooLong, BadValue::Omitted, detail)
    }

    /// A list of `found` values where `limit` are taken.
    #[must_use]
    pub fn too_many(field: impl Into<String>, found: usize, limit: usize) -> Self {
        let found = i64::try_from(found).unwrap_or(i64::MAX);
        let detail = format!("must have at most {limit} items");
        Self::new(field, FieldErrorKind::TooMany, found.into(), detail)
    }

    /// Text without the field's path, as it stands in a cause's `message`.
    #[must_use]
    pub fn body(&self) -> String {
        let mut body = self.kind.title().to_owned();
        let shown = match &self.value {
            BadValue::Omitted => None,
            BadValue::Text(text) => Some(go_quote(shortened(text))),
            BadValue::Bytes(bytes) => Some(format!(
                "\"{}\"",
                STANDARD.encode(bytes.get(..MAX_SHOWN).unwrap_or(bytes))
            )),
            BadValue::Number(number) => Some(number.to_string()),
            BadValue::Json(json) => Some(shortened(&json.to_string()).to_owned()),
        };
        for part in shown
            .iter()
            .map(String::as_str)
            .chain([self.detail.as_str()])
        {
            if !part.is_empty() {
                body.push_str(": ");
                body.push_str(part);
            }
        }
        body
    }

    fn new(
        field: impl Into<String>,
        kind: FieldErrorKind,
        value: BadValue,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            field: field.into(),
            kind,
            value,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl FieldErrorKind {
    /// The `reason` of a cause.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
        }
    }
}

impl From<&str> for BadValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&[u8]> for BadValue {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl From<i64> for BadValue {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<serde_json::Value> for BadValue {
    fn from(json: serde_json::Value) -> Self {
        Self::Json(json)
    }
}

/// Errors collected up to a bound, so that a hostile object cannot make a huge answer.
#[derive(Debug, Default)]
pub(crate) struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    pub(crate) fn push(&mut self, error: FieldError) {
        if !self.is_full() {
            self.0.push(error);
        }
    }

    /// Whether further checks of the same list are wasted work.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MAX_ERRORS
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_vec(self) -> Vec<FieldError> {
        self.0
    }
}

/// Text in Go's double-quoted notation (`%q`).
#[must_use]
pub fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if is_unprintable(c) && u32::from(c) > 0xffff => {
                quoted.push_str(&format!("\\U{:08x}", u32::from(c)));
            }
            c if is_unprintable(c) => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Controls, separators other than the space, bidirectional and zero-width marks: what must not reach a terminal raw.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || (c != ' ' && c.is_whitespace())
        || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}')
}

fn shortened(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_SHOWN))
        .unwrap_or(text)
}

/// Bytes of an offending value that are echoed: far above a real PKCS#10 message, so only nonsense is cut.
const MAX_SHOWN: usize = 32 * 1024;
/// Errors in one answer.
const MAX_ERRORS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(FieldError::required("spec.usages", ""), "spec.usages: Required value")]
    #[case(
        FieldError::required("metadata.name", "name or generateName is required"),
        "metadata.name: Required value: name or generateName is required"
    )]
    #[case(
        FieldError::invalid("spec.expirationSeconds", 60, "x"),
        "spec.expirationSeconds: Invalid value: 60: x"
    )]
    #[case(
        FieldError::invalid("a", "q\"\n", "x"),
        r#"a: Invalid value: "q\"\n": x"#
    )]
    #[case(FieldError::invalid("spec.request", b"hello".as_slice(), "x"),
        r#"spec.request: Invalid value: "aGVsbG8=": x"#)]
    #[case(FieldError::invalid("a", "", "x"), r#"a: Invalid value: "": x"#)]
    #[case(FieldError::not_supported("a", "b", &["c", "d"]), r#"a: Unsupported value: "b": supported values: "c", "d""#)]
    #[case(FieldError::duplicate("a[1]", "b"), r#"a[1]: Duplicate value: "b""#)]
    #[case(FieldError::forbidden("a", "b"), "a: Forbidden: b")]
    #[case(
        FieldError::too_long("a", 253),
        "a: Too long: may not be more than 253 bytes"
    )]
    fn reads_as_a_real_server_prints(#[case] error: FieldError, #[case] text: &str) {
        assert_eq!(error.to_string(), text);
    }

    #[rstest]
    #[case("plain é", "\"plain é\"")]
    #[case("\u{1b}[31m", r#""\x1b[31m""#)]
    #[case("\u{85}", r#""\u0085""#)]
    #[case("\u{202e}", r#""\u202e""#)]
    #[case("\u{e0001}", r#""\U000e0001""#)]
    #[case("\\\t", r#""\\\t""#)]
    fn quotes_as_go(#[case] text: &str, #[case] quoted: &str) {
        assert_eq!(go_quote(text), quoted);
    }

    #[test]
    fn echo_and_count_are_bounded() {
        let long = "x".repeat(1 << 20);
        assert!(FieldError::invalid("a", long.as_str(), "").body().len() < 2 * MAX_SHOWN);
        assert!(FieldError::invalid("a", long.as_bytes(), "").body().len() < 2 * MAX_SHOWN);
        let mut errors = FieldErrors::default();
        (0..1000).for_each(|_| errors.push(FieldError::required("a", "")));
        assert_eq!(errors.into_vec().len(), MAX_ERRORS);
    }
}
