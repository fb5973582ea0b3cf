//! Statements and what is bound to them.

use std::borrow::Cow;
use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::row::Cells;

/// A statement, put together piece by piece. The same pieces give the same text, which is prepared once per session.
#[derive(Debug, Default)]
pub(super) struct Statement<'a> {
    pub(super) sql: String,
    pub(super) values: Vec<Value<'a>>,
}

impl<'a> Statement<'a> {
    /// A text whose values are bound later.
    pub(super) fn new(sql: impl Into<String>) -> Self {
        Self {
            sql: sql.into(),
            values: Vec::new(),
        }
    }

    /// Binds the next value of the text.
    #[must_use]
    pub(super) fn with(mut self, value: impl Into<Value<'a>>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Whether the values are what the server expects.
    pub(super) fn fits(&self, kinds: &[Type]) -> bool {
        let mut pairs = self.values.iter().zip(kinds);
        self.values.len() == kinds.len() && pairs.all(|(value, kind)| value.fits(kind))
    }

    /// Goes on with the text.
    pub(super) fn push(&mut self, sql: &str) -> &mut Self {
        self.sql.push_str(sql);
        self
    }

    /// Puts a value where the text ends.
    pub(super) fn bind(&mut self, value: impl Into<Value<'a>>) -> &mut Self {
        self.values.push(value.into());
        let place = self.values.len();
        self.sql.push_str(&format!("${place}"));
        self
    }
}

/// A value that a column can hold, or a list of them.
#[derive(Debug)]
pub(super) enum Value<'a> {
    Integer(Option<i64>),
    Truth(Option<bool>),
    Text(Option<Cow<'a, str>>),
    Octets(Option<Cow<'a, [u8]>>),
    Integers(Vec<i64>),
    Texts(Vec<Cow<'a, str>>),
    OctetStrings(Vec<Cow<'a, [u8]>>),
}

impl Value<'_> {
    /// Whether it can be bound where the server expects that type.
    pub(super) fn fits(&self, kind: &Type) -> bool {
        *kind
            == match self {
                Self::Integer(_) => Type::INT8,
                Self::Truth(_) => Type::BOOL,
                Self::Text(_) => Type::TEXT,
                Self::Octets(_) => Type::BYTEA,
                Self::Integers(_) => Type::INT8_ARRAY,
                Self::Texts(_) => Type::TEXT_ARRAY,
                Self::OctetStrings(_) => Type::BYTEA_ARRAY,
            }
    }
}

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Integer(value) => value.to_sql(kind, out),
            Self::Truth(value) => value.to_sql(kind, out),
            Self::Text(value) => value.as_deref().map(kept).to_sql(kind, out),
            Self::Octets(value) => value.as_deref().to_sql(kind, out),
            Self::Integers(values) => values.to_sql(kind, out),
            Self::Texts(values) => {
                let values: Vec<Cow<'_, str>> = values.iter().map(|value| kept(value)).collect();
                values.to_sql(kind, out)
            }
            Self::OctetStrings(values) => {
                let values: Vec<&[u8]> = values.iter().map(AsRef::as_ref).collect();
                values.to_sql(kind, out)
            }
        }
    }

    fn accepts(kind: &Type) -> bool {
        [
            Type::INT8,
            Type::BOOL,
            Type::TEXT,
            Type::BYTEA,
            Type::INT8_ARRAY,
            Type::TEXT_ARRAY,
            Type::BYTEA_ARRAY,
        ]
        .contains(kind)
    }

    to_sql_checked!();
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Integer(Some(value))
    }
}

impl From<u32> for Value<'_> {
    fn from(value: u32) -> Self {
        Self::Integer(Some(value.into()))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(value: Option<i64>) -> Self {
        Self::Integer(value)
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Self::Truth(Some(value))
    }
}

impl From<Option<bool>> for Value<'_> {
    fn from(value: Option<bool>) -> Self {
        Self::Truth(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(Some(value.into()))
    }
}

impl From<String> for Value<'_> {
    fn from(value: String) -> Self {
        Self::Text(Some(value.into()))
    }
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(value: Option<&'a str>) -> Self {
        Self::Text(value.map(Cow::from))
    }
}

impl From<Option<String>> for Value<'_> {
    fn from(value: Option<String>) -> Self {
        Self::Text(value.map(Cow::from))
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Octets(Some(value.into()))
    }
}

impl<'a, const LENGTH: usize> From<&'a [u8; LENGTH]> for Value<'a> {
    fn from(value: &'a [u8; LENGTH]) -> Self {
        Self::Octets(Some(value.as_slice().into()))
    }
}

impl From<Vec<u8>> for Value<'_> {
    fn from(value: Vec<u8>) -> Self {
        Self::Octets(Some(value.into()))
    }
}

impl<'a> From<Option<&'a [u8]>> for Value<'a> {
    fn from(value: Option<&'a [u8]>) -> Self {
        Self::Octets(value.map(Cow::from))
    }
}

impl Cells for Row {
    fn integer(&self, at: usize) -> Option<Option<i64>> {
        let Some(Raw { kind, octets }) = raw(self, at)? else {
            return Some(None);
        };
        let integer = match kind {
            Type::INT8 => i64::from_be_bytes(octets.try_into().ok()?),
            Type::INT4 => i32::from_be_bytes(octets.try_into().ok()?).into(),
            Type::BOOL => i64::from(octets != [0]),
            _ => return None,
        };
        Some(Some(integer))
    }

    fn text(&self, at: usize) -> Option<Option<Cow<'_, str>>> {
        match raw(self, at)? {
            Some(Raw { kind, octets }) if kind == Type::TEXT => {
                as_it_was(std::str::from_utf8(octets).ok()?).map(Some)
            }
            Some(_) => None,
            None => Some(None),
        }
    }

    fn octets(&self, at: usize) -> Option<Option<&[u8]>> {
        match raw(self, at)? {
            Some(Raw { kind, octets }) if kind == Type::BYTEA => Some(Some(octets)),
            Some(_) => None,
            None => Some(None),
        }
    }

    fn place_of(&self, column: &str) -> Option<usize> {
        self.columns().iter().position(|it| it.name() == column)
    }
}

/// A text as PostgreSQL can keep it, which knows no character 0: that one becomes 1 1, and 1 becomes 1 2. So texts keep
/// their order.
fn kept(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|octet| octet > 1) {
        return text.into();
    }
    text.replace('\u{1}', "\u{1}\u{2}")
        .replace('\0', "\u{1}\u{1}")
        .into()
}

/// The other way round; `None`: nobody has kept it so.
fn as_it_was(text: &str) -> Option<Cow<'_, str>> {
    if text.bytes().all(|octet| octet > 1) {
        return Some(text.into());
    }
    let mut was = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        was.push(match letter {
            '\u{1}' => match letters.next()? {
                '\u{1}' => '\0',
                '\u{2}' => '\u{1}',
                _ => return None,
            },
            other => other,
        });
    }
    Some(was.into())
}

/// What came for a column, whatever its type is.
struct Raw<'a> {
    kind: Type,
    octets: &'a [u8],
}

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(kind: &Type, octets: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self {
            kind: kind.clone(),
            octets,
        })
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

fn raw(row: &Row, at: usize) -> Option<Option<Raw<'_>>> {
    row.try_get(at).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_and_keep_their_order() {
        let mut texts = [
            "",
            "a",
            "a\0",
            "a\0b",
            "a\u{1}",
            "a\u{1}\u{1}",
            "a\u{1}\u{2}",
            "a\u{2}",
            "b\0\0",
        ];
        texts.sort_unstable();
        let kept: Vec<String> = texts.iter().map(|text| kept(text).into_owned()).collect();
        assert!(kept.is_sorted());
        assert!(kept.iter().all(|text| !text.contains('\0')));
        for (text, kept) in texts.iter().zip(&kept) {
            assert_eq!(as_it_was(kept).as_deref(), Some(*text));
        }
        assert_eq!(as_it_was("a\u{1}"), None);
    }
}
