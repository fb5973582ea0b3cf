//! Tokens as people are shown them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use countersign_pki::UnixTime;
use serde::Deserialize;
use serde_json::Value;

use crate::output::{Facts, Table};

/// A token of the native API, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(super) struct Item {
    pub(super) id: String,
    certname: Option<String>,
    glob: Option<String>,
    status: String,
    uses: u32,
    max_uses: u32,
    not_before: String,
    expires_at: String,
    created_at: UnixTime,
    created_by: String,
    #[serde(default)]
    allowed_sans: Vec<String>,
    allowed_extensions: Option<BTreeMap<String, Vec<String>>>,
    spki_sha256: Option<String>,
    #[serde(default)]
    source_cidrs: Vec<String>,
    #[serde(default)]
    allow_replace: bool,
    profile: Option<String>,
    revoked_at: Option<String>,
    superseded_by: Option<String>,
    locked_at: Option<String>,
    #[serde(default)]
    failed_uses: u32,
    external_ref: Option<String>,
    note: Option<String>,
    #[serde(default)]
    use_rows: Vec<Use>,
}

#[derive(Debug, Deserialize)]
struct Use {
    certname: String,
    spki_sha256: String,
    state: String,
    serial: Option<String>,
    at: String,
    retry_until: String,
}

impl Item {
    pub(super) fn read(value: &Value) -> Result<Self> {
        Self::deserialize(value)
            .context("the server's answer cannot be understood; is it of another version?")
    }

    /// Whether there is anything left to take back: the token, its outcome, or the certificates.
    pub(super) fn can_be_revoked(&self, certificates: bool) -> bool {
        match self.status.as_str() {
            "active" | "reserved" | "issued" | "locked" => true,
            _ => certificates && self.uses > 0,
        }
    }

    fn name(&self) -> &str {
        let name = self.certname.as_deref().or(self.glob.as_deref());
        name.unwrap_or_default()
    }

    fn used(&self) -> String {
        format!("{} of {}", self.uses, self.max_uses)
    }

    pub(super) fn facts(&self) -> Facts {
        let mut facts = Facts::default();
        let said = |text: &Option<String>| text.clone().unwrap_or_default();
        let extensions = self.allowed_extensions.as_ref().map(|permitted| {
            let each = permitted
                .iter()
                .map(|(oid, values)| format!("{oid} {}", values.join(" or ")));
            match each.collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => "none".to_owned(),
                some => some,
            }
        });
        let revoked = match (&self.revoked_at, &self.superseded_by) {
            (Some(at), Some(by)) => format!("{at}, superseded by {by}"),
            (Some(at), None) => at.clone(),
            (None, _) => String::new(),
        };
        let misused = match self.failed_uses {
            0 => String::new(),
            times => format!("{times} times"),
        };
        facts.add("id", &self.id);
        facts.add("name", self.name());
        facts.add("status", &self.status);
        facts.add("used", &self.used());
        facts.add("good from", &self.not_before);
        facts.add("good until", &self.expires_at);
        facts.add(
            "minted",
            &format!("{} by {}", self.created_at, self.created_by),
        );
        facts.add("revoked", &revoked);
        facts.add("locked", &said(&self.locked_at));
        facts.add("misused", &misused);
        facts.add("names", &self.allowed_sans.join(", "));
        facts.add("extensions", &said(&extensions));
        facts.add("key", &said(&self.spki_sha256));
        facts.add("networks", &self.source_cidrs.join(", "));
        facts.add(
            "replaces",
            if self.allow_replace {
                "the certificate that the name has"
            } else {
                ""
            },
        );
        facts.add("signer", &said(&self.profile));
        facts.add("reference", &said(&self.external_ref));
        facts.add("note", &said(&self.note));
        for (place, row) in self.use_rows.iter().enumerate() {
            let label = if place == 0 { "uses" } else { "" };
            let serial = row
                .serial
                .as_ref()
                .map(|serial| format!(", certificate {serial}"));
            let serial = serial.unwrap_or_default();
            facts.add(
                label,
                &format!(
                    "{} {} at {}{serial}, again until {}, key {}",
                    row.certname, row.state, row.at, row.retry_until, row.spki_sha256
                ),
            );
        }
        facts
    }
}

/// A table of tokens.
pub(super) struct Report {
    table: Table,
    kind: Kind,
    count: usize,
    active: usize,
}

enum Kind {
    All,
    /// Those that were never used, and how long ago they were minted.
    Unused {
        now: UnixTime,
    },
}

impl Report {
    pub(super) fn all() -> Self {
        let heading = ["ID", "NAME", "STATUS", "USED", "GOOD UNTIL", "NOTE"];
        Self::of(Kind::All, &heading)
    }

    pub(super) fn unused(now: UnixTime) -> Self {
        let heading = ["ID", "NAME", "STATUS", "AGE", "GOOD UNTIL", "NOTE"];
        Self::of(Kind::Unused { now }, &heading)
    }

    fn of(kind: Kind, heading: &[&str]) -> Self {
        Self {
            table: Table::new(heading),
            kind,
            count: 0,
            active: 0,
        }
    }

    pub(super) fn add(&mut self, value: &Value) -> Result<()> {
        let item = Item::read(value)?;
        let third = match self.kind {
            Kind::All => item.used(),
            Kind::Unused { now } => age(item.created_at, now),
        };
        let note = item.note.as_deref().unwrap_or_default();
        let cells = [
            &item.id,
            item.name(),
            &item.status,
            &third,
            &item.expires_at,
            note,
        ];
        self.table.row(cells);
        self.count += 1;
        self.active += usize::from(item.status == "active");
        Ok(())
    }

    /// Nothing if there was nothing.
    pub(super) fn text(&self) -> Option<String> {
        let table = self.table.text();
        match (self.count, &self.kind) {
            (0, _) => None,
            (_, Kind::All) => Some(table),
            (1, Kind::Unused { .. }) => {
                let good = if self.active == 1 {
                    "still"
                } else {
                    "no longer"
                };
                Some(format!(
                    "{table}\n\n1 token was never used; it is {good} good."
                ))
            }
            (count, Kind::Unused { .. }) => Some(format!(
                "{table}\n\n{count} tokens were never used; {} of them are still good.",
                self.active
            )),
        }
    }
}

/// In the largest unit of which there is one.
fn age(since: UnixTime, now: UnixTime) -> String {
    let seconds = u64::try_from(now.seconds_since(since)).unwrap_or_default();
    let units = [(86_400, 'd'), (3600, 'h'), (60, 'm'), (1, 's')];
    let unit = units.into_iter().find(|(length, _)| seconds >= *length);
    let (length, letter) = unit.unwrap_or((1, 's'));
    format!("{}{letter}", seconds / length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let at = |seconds: u64| {
            UnixTime::parse_rfc3339("2026-01-02T03:04:05Z")
                .unwrap()
                .plus_seconds(seconds)
        };
        for (seconds, shown) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (7199, "1h"),
            (200_000, "2d"),
        ] {
            assert_eq!(age(at(0), at(seconds)), shown);
        }
        assert_eq!(age(at(10), at(0)), "0s", "the clocks differ");
    }
}
