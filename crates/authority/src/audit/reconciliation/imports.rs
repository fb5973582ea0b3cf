//! Certificates that came with a CA: no entry of the log tells of each, but the one of their import tells what they are
//! all together.

use std::collections::{BTreeMap, HashMap};

use countersign_pki::{Serial, UnixTime, fingerprint_sha256};
use serde::{Deserialize, Serialize};

use super::{Finding, Reconciliation, Short};
use crate::issuer::IssuerId;
use crate::model::LedgerEntry;

/// Which certificates an import has put into the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportDigest {
    /// How many.
    pub number: u64,
    /// SHA-256, in hexadecimal, over their serials in order, each with whether it was revoked.
    pub sha256: String,
}

impl ImportDigest {
    /// Of these certificates, in any order, each with whether it was revoked when it was imported.
    #[must_use]
    pub fn of(certificates: impl IntoIterator<Item = (Serial, bool)>) -> Self {
        let mut all: Vec<(Serial, bool)> = certificates.into_iter().collect();
        all.sort_unstable();
        let mut text = b"countersign imported certificates v1\0".to_vec();
        for (serial, revoked) in &all {
            let octets = serial.as_bytes();
            // A serial has at most 20 octets.
            text.push(u8::try_from(octets.len()).unwrap_or(u8::MAX));
            text.extend_from_slice(octets);
            text.push(u8::from(*revoked));
        }
        Self {
            number: u64::try_from(all.len()).unwrap_or(u64::MAX),
            sha256: fingerprint_sha256(&text).to_hex(),
        }
    }
}

/// Which import: into which issuer, and when.
pub(super) type Import = (String, UnixTime);

/// What the ledger says of certificates that the authority has taken over, by their imports.
#[derive(Default)]
pub(super) struct ImportRows(HashMap<Import, Vec<Row>>);

struct Row {
    id: Short,
    serial: Serial,
    revoked: Option<UnixTime>,
}

impl ImportRows {
    /// Takes in an entry of the ledger, if it was taken over.
    pub(super) fn take(&mut self, issuer: &IssuerId, id: Short, entry: &LedgerEntry) {
        if entry.is_taken_over() {
            let import = (issuer.to_string(), entry.explanation.at);
            self.0.entry(import).or_default().push(Row {
                id,
                serial: entry.serial,
                revoked: entry.revoked.map(|revoked| revoked.at),
            });
        }
    }

    /// The certificates of an import, beside those that the log tells of one by one.
    fn of<'a>(
        &'a self,
        import: &Import,
        is_told: &'a impl Fn(&Short) -> bool,
    ) -> impl Iterator<Item = &'a Row> {
        let rows = self.0.get(import).map(Vec::as_slice).unwrap_or_default();
        rows.iter().filter(|row| !is_told(&row.id))
    }

    /// Whether one was imported together with others.
    pub(super) fn are_of(&self, imports: &BTreeMap<Import, Option<ImportDigest>>) -> Vec<Short> {
        let of_imports = self.0.iter().filter(|(key, _)| imports.contains_key(key));
        of_imports
            .flat_map(|(_, rows)| rows.iter().map(|row| row.id))
            .collect()
    }

    /// Holds them against what their imports say. `is_told`: the log tells of it by itself; `is_revoked`: it tells of its
    /// revocation.
    pub(super) fn compare(
        &self,
        imports: &BTreeMap<Import, Option<ImportDigest>>,
        is_told: impl Fn(&Short) -> bool,
        is_revoked: impl Fn(&Short) -> bool,
        found: &mut Reconciliation,
    ) {
        for (import, told) in imports {
            let rows = self.of(import, &is_told);
            let Some(told) = told else {
                let count = u64::try_from(rows.count()).unwrap_or(u64::MAX);
                found.not_covered = found.not_covered.saturating_add(count);
                continue;
            };
            let (issuer, at) = import;
            // The first revocation stands: one from before the import came with it.
            let came_revoked = |row: &Row| {
                row.revoked
                    .is_some_and(|revoked| revoked < *at || !is_revoked(&row.id))
            };
            let there = ImportDigest::of(rows.map(|row| (row.serial, came_revoked(row))));
            if there != *told {
                found.add(Finding::OtherImport {
                    issuer: issuer.clone(),
                    at: *at,
                    told: told.number,
                    there: there.number,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_they_are_and_which_were_revoked_counts_and_their_order_does_not() {
        let serial = |number: u64| Serial::try_from(number).unwrap();
        let imported = ImportDigest::of([(serial(1), false), (serial(300), true)]);
        assert_eq!(imported.number, 2);
        let turned = ImportDigest::of([(serial(300), true), (serial(1), false)]);
        assert_eq!(turned, imported);
        for others in [
            vec![(serial(1), false)],
            vec![(serial(1), false), (serial(300), false)],
            vec![(serial(1), true), (serial(300), false)],
            vec![(serial(2), false), (serial(300), true)],
            vec![
                (serial(1), false),
                (serial(300), true),
                (serial(301), false),
            ],
        ] {
            assert_ne!(ImportDigest::of(others), imported);
        }
    }
}
