//! Rows of SQLite.

use std::borrow::Cow;

use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::row::Cells;

impl Cells for Row<'_> {
    fn integer(&self, at: usize) -> Option<Option<i64>> {
        match self.get_ref(at).ok()? {
            ValueRef::Integer(integer) => Some(Some(integer)),
            ValueRef::Null => Some(None),
            ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => None,
        }
    }

    fn text(&self, at: usize) -> Option<Option<Cow<'_, str>>> {
        let text = self.get_ref(at).ok()?.as_str_or_null().ok()?;
        Some(text.map(Cow::from))
    }

    fn octets(&self, at: usize) -> Option<Option<&[u8]>> {
        self.get_ref(at).ok()?.as_bytes_or_null().ok()
    }

    fn place_of(&self, column: &str) -> Option<usize> {
        self.as_ref().column_index(column).ok()
    }
}
