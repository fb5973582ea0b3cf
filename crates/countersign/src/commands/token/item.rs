//! Tokens as people are shown them.

use countersign_api::{EnrolmentToken, EnrolmentTokenDetail, TokenStatus};
use countersign_pki::UnixTime;
use countersign_policy::Network;

use crate::output::{Facts, Table};

/// Whether there is anything left to take back: the token, its outcome, or the certificates.
pub(super) fn can_be_revoked(token: &EnrolmentToken, certificates: bool) -> bool {
    match token.status {
        TokenStatus::Active | TokenStatus::Reserved | TokenStatus::Issued | TokenStatus::Locked => {
            true
        }
        TokenStatus::Exhausted | TokenStatus::Expired | TokenStatus::Revoked => {
            certificates && token.uses > 0
        }
    }
}

fn name(token: &EnrolmentToken) -> &str {
    let name = token.certname.as_deref().or(token.glob.as_deref());
    name.unwrap_or_default()
}

fn used(token: &EnrolmentToken) -> String {
    format!("{} of {}", token.uses, token.max_uses)
}

/// Everything about a token.
pub(super) fn facts(detail: &EnrolmentTokenDetail) -> Facts {
    let token = &detail.token;
    let mut facts = Facts::default();
    let said = |text: &Option<String>| text.clone().unwrap_or_default();
    let extensions = token.allowed_extensions.as_ref().map(|permitted| {
        let each = permitted
            .iter()
            .map(|(oid, values)| format!("{oid} {}", values.join(" or ")));
        match each.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "none".to_owned(),
            some => some,
        }
    });
    let revoked = match (token.revoked_at, &token.superseded_by) {
        (Some(at), Some(by)) => format!("{at}, superseded by {by}"),
        (Some(at), None) => at.to_string(),
        (None, _) => String::new(),
    };
    let misused = match token.failed_uses {
        0 => String::new(),
        times => format!("{times} times"),
    };
    let networks: Vec<String> = token.source_cidrs.iter().map(Network::to_string).collect();
    facts.add("id", &token.id.0);
    facts.add("name", name(token));
    facts.add("status", token.status.word());
    facts.add("used", &used(token));
    facts.add("good from", &token.not_before.to_string());
    facts.add("good until", &token.expires_at.to_string());
    facts.add(
        "minted",
        &format!("{} by {}", token.created_at, token.created_by),
    );
    facts.add("revoked", &revoked);
    facts.add("locked", &said(&token.locked_at.map(|at| at.to_string())));
    facts.add("misused", &misused);
    facts.add("names", &token.allowed_sans.join(", "));
    facts.add("extensions", &said(&extensions));
    facts.add("key", &said(&token.spki_sha256));
    facts.add("networks", &networks.join(", "));
    facts.add(
        "replaces",
        if token.allow_replace {
            "the certificate that the name has"
        } else {
            ""
        },
    );
    facts.add("signer", &said(&token.profile));
    facts.add("reference", &said(&token.external_ref));
    facts.add("note", &said(&token.note));
    for (place, row) in detail.use_rows.iter().enumerate() {
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
                row.certname,
                row.state.word(),
                row.at,
                row.retry_until,
                row.spki_sha256
            ),
        );
    }
    facts
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

    pub(super) fn add(&mut self, item: &EnrolmentToken) {
        let third = match self.kind {
            Kind::All => used(item),
            Kind::Unused { now } => age(item.created_at, now),
        };
        let note = item.note.as_deref().unwrap_or_default();
        let cells = [
            &item.id.0,
            name(item),
            item.status.word(),
            &third,
            &item.expires_at.to_string(),
            note,
        ];
        self.table.row(cells);
        self.count += 1;
        self.active += usize::from(item.status == TokenStatus::Active);
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
