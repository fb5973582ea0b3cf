//! How each value is kept in a column, and how it comes back: the same in every database.

use std::borrow::Cow;

use countersign_authority::{CrlScope, IssuerId, RequestId, Revision};
use countersign_pki::{Fingerprint, RevocationReason, Serial};
use countersign_policy::SignerName;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A record that cannot be stored as a row, or a row that cannot be read as a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowFault {
    /// A stored record does not decode.
    Corrupt {
        /// Its kind.
        what: &'static str,
    },
    /// A value that the schema has no room for.
    Unstorable {
        /// Which field.
        what: &'static str,
    },
}

/// A row of whatever database, by the places of its columns. The outer `None`: it is of another type.
pub(crate) trait Cells {
    /// An integer, or a truth value as 0 or 1.
    fn integer(&self, at: usize) -> Option<Option<i64>>;
    /// A text.
    fn text(&self, at: usize) -> Option<Option<Cow<'_, str>>>;
    /// Octets.
    fn octets(&self, at: usize) -> Option<Option<&[u8]>>;
    /// Where a column is.
    fn place_of(&self, column: &str) -> Option<usize>;
}

/// A value that a column holds.
pub(crate) trait Cell: Sized {
    /// It, unless the column is empty.
    fn read(row: &dyn Cells, at: usize) -> Option<Option<Self>>;
}

impl Cell for i64 {
    fn read(row: &dyn Cells, at: usize) -> Option<Option<Self>> {
        row.integer(at)
    }
}

impl Cell for u32 {
    fn read(row: &dyn Cells, at: usize) -> Option<Option<Self>> {
        row.integer(at)?.map(Self::try_from).transpose().ok()
    }
}

impl Cell for u8 {
    fn read(row: &dyn Cells, at: usize) -> Option<Option<Self>> {
        row.integer(at)?.map(Self::try_from).transpose().ok()
    }
}

impl Cell for bool {
    fn read(row: &dyn Cells, at: usize) -> Option<Option<Self>> {
        Some(row.integer(at)?.map(|integer| integer != 0))
    }
}

impl Cell for String {
    fn read(row: &dyn Cells, at: usize) -> Option<Option<Self>> {
        Some(row.text(at)?.map(Cow::into_owned))
    }
}

impl Cell for Vec<u8> {
    fn read(row: &dyn Cells, at: usize) -> Option<Option<Self>> {
        Some(row.octets(at)?.map(<[u8]>::to_vec))
    }
}

impl<const LENGTH: usize> Cell for [u8; LENGTH] {
    fn read(row: &dyn Cells, at: usize) -> Option<Option<Self>> {
        row.octets(at)?.map(Self::try_from).transpose().ok()
    }
}

impl<T: Cell> Cell for Option<T> {
    fn read(row: &dyn Cells, at: usize) -> Option<Option<Self>> {
        T::read(row, at).map(Some)
    }
}

/// A structured value as JSON text.
pub(crate) fn document<T: Serialize>(value: &T, what: &'static str) -> Result<String, RowFault> {
    serde_json::to_string(value).map_err(|_| RowFault::Unstorable { what })
}

/// Integers of databases have a sign.
pub(crate) fn signed(value: u64, what: &'static str) -> Result<i64, RowFault> {
    i64::try_from(value).map_err(|_| RowFault::Unstorable { what })
}

/// One row, read from left to right.
pub(crate) struct Columns<'r> {
    row: &'r dyn Cells,
    next: usize,
    what: &'static str,
}

impl<'r> Columns<'r> {
    pub(crate) fn of(row: &'r dyn Cells, what: &'static str) -> Self {
        Self { row, next: 0, what }
    }

    pub(crate) fn take<T: Cell>(&mut self) -> Result<T, RowFault> {
        let value = T::read(self.row, self.next);
        self.next = self.next.saturating_add(1);
        self.known(value.flatten())
    }

    pub(crate) fn revision(&mut self) -> Result<Revision, RowFault> {
        self.unsigned().map(Revision)
    }

    pub(crate) fn document<T: DeserializeOwned>(&mut self) -> Result<T, RowFault> {
        let text: String = self.take()?;
        self.known(serde_json::from_str(&text).ok())
    }

    pub(crate) fn optional_document<T: DeserializeOwned>(&mut self) -> Result<Option<T>, RowFault> {
        let text: Option<String> = self.take()?;
        let read = |text: String| self.known(serde_json::from_str(&text).ok());
        text.map(read).transpose()
    }

    pub(crate) fn unsigned(&mut self) -> Result<u64, RowFault> {
        let value: i64 = self.take()?;
        self.known(u64::try_from(value).ok())
    }

    pub(crate) fn request_id(&mut self) -> Result<RequestId, RowFault> {
        self.take().map(RequestId::from_bytes)
    }

    pub(crate) fn fingerprint(&mut self) -> Result<Fingerprint, RowFault> {
        self.take().map(Fingerprint::from_bytes)
    }

    pub(crate) fn issuer(&mut self) -> Result<IssuerId, RowFault> {
        let text: String = self.take()?;
        self.known(IssuerId::parse(&text).ok())
    }

    pub(crate) fn scope(&mut self) -> Result<CrlScope, RowFault> {
        let word: String = self.take()?;
        self.known(CrlScope::from_word(&word))
    }

    pub(crate) fn serial(&mut self) -> Result<Serial, RowFault> {
        let bytes: Vec<u8> = self.take()?;
        self.known(Serial::from_be_bytes(&bytes).ok())
    }

    pub(crate) fn signer(&mut self) -> Result<SignerName, RowFault> {
        let text: String = self.take()?;
        self.known(SignerName::parse(&text).ok())
    }

    pub(crate) fn reason(&mut self) -> Result<RevocationReason, RowFault> {
        let code: u8 = self.take()?;
        self.known(RevocationReason::from_code(code))
    }

    pub(crate) fn known<T>(&self, value: Option<T>) -> Result<T, RowFault> {
        value.ok_or(RowFault::Corrupt { what: self.what })
    }
}

/// A limit as a database wants it.
pub(crate) fn bound(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A version or place that is looked for: one that no column can hold is after all that are there.
pub(crate) fn place(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
