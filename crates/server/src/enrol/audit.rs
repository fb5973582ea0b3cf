//! `/audit`: what happened, who did it, and the seals that vouch for it.

mod item;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use countersign_authority::{AuditFilter, AuditOrder, AuditPlace, AuditQuery};
use countersign_pki::UnixTime;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::cursor::{Page, Paging};
use super::faults::Refusal;
use super::{EnrolDoor, json};

pub use item::{AuditItem, Checkpoint, CheckpointFault, SealItem};

/// The parameters of the list.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listing {
    since: Option<String>,
    until: Option<String>,
    actor: Option<String>,
    event: Option<String>,
    certname: Option<String>,
    request: Option<String>,
    reason: Option<String>,
    /// The other way round.
    newest_first: bool,
    /// With the text that is hashed.
    stored: bool,
    cursor: Option<String>,
    limit: Option<usize>,
}

/// The parameters of the list of seals.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SealListing {
    cursor: Option<String>,
    limit: Option<usize>,
}

/// A page that is filtered: it may be empty and others follow.
#[derive(Debug, Serialize)]
struct Filtered<T> {
    #[serde(flatten)]
    page: Page<T>,
    looked_at: usize,
}

pub(super) async fn list(
    State(door): State<EnrolDoor>,
    listing: Result<Query<Listing>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(listing) = listing.map_err(|fault| Refusal::Invalid {
        what: fault.body_text(),
    })?;
    let paging = Paging {
        cursor: listing.cursor,
        limit: listing.limit,
    };
    let query = AuditQuery {
        filter: AuditFilter {
            since: time("since", listing.since.as_deref())?,
            until: time("until", listing.until.as_deref())?,
            actor: listing.actor,
            event: listing.event,
            certname: listing.certname,
            request: listing.request,
            reason: listing.reason,
        },
        order: match listing.newest_first {
            true => AuditOrder::NewestFirst,
            false => AuditOrder::OldestFirst,
        },
        after: paging.place::<AuditPlace>()?,
        limit: paging.size()?,
        look_at: LOOK_AT,
    };
    let page = door.authority().audit_page(query).await?;
    let items = page.records.iter();
    let items = items.map(|record| match listing.stored {
        true => AuditItem::with_text(record),
        false => AuditItem::new(record),
    });
    let filtered = Filtered {
        page: Page::new(items.collect(), page.reached.as_ref()),
        looked_at: page.looked_at,
    };
    Ok(json(StatusCode::OK, &filtered))
}

pub(super) async fn seals(
    State(door): State<EnrolDoor>,
    listing: Result<Query<SealListing>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(SealListing { cursor, limit }) = listing.map_err(|fault| Refusal::Invalid {
        what: fault.body_text(),
    })?;
    let size = limit.unwrap_or(DEFAULT_SEALS);
    if !(1..=MAX_SEALS).contains(&size) {
        return Err(Refusal::Invalid {
            what: format!("limit must be from 1 to {MAX_SEALS}"),
        });
    }
    let paging = Paging {
        cursor,
        limit: None,
    };
    let after: u64 = paging.place()?.unwrap_or(0);
    let seals = door.authority().seals(after, size).await?;
    let next = seals
        .last()
        .filter(|_| seals.len() == size)
        .map(|last| last.head.number);
    let items = seals.iter().map(SealItem::new).collect();
    Ok(json(StatusCode::OK, &Page::new(items, next.as_ref())))
}

pub(super) async fn checkpoint(State(door): State<EnrolDoor>) -> Result<Response, Refusal> {
    let head = door.authority().last_seal().await?;
    let head = head.ok_or_else(|| Refusal::NotFound {
        what: "nothing is sealed yet; the first seal is made about a second after the start"
            .to_owned(),
    })?;
    Ok(json(StatusCode::OK, &Checkpoint::of(&head)))
}

fn time(name: &str, text: Option<&str>) -> Result<Option<UnixTime>, Refusal> {
    text.map(UnixTime::parse_rfc3339)
        .transpose()
        .map_err(|_| Refusal::Invalid {
            what: format!("{name} must be a time such as 2026-01-02T03:04:05Z"),
        })
}

/// A page of a filtered list looks at no more entries than this; some 50 ms of work.
const LOOK_AT: usize = 10_000;
const DEFAULT_SEALS: usize = 20;
const MAX_SEALS: usize = 100; // a seal of 1024 entries has 44 KiB of hashes
