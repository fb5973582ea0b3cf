//! `/audit`: what happened, who did it, and the seals that vouch for it.

mod item;

use axum::extract::State;
use axum::response::Response;
use countersign_api::{AuditEntry, Checkpoint, FilteredPage, Reconciliation, Seal};
use countersign_authority::{AuditFilter, AuditOrder, AuditPlace, AuditQuery};
use countersign_pki::UnixTime;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::cursor::{self, DEFAULT_LIMIT, MAX_LIMIT, Page, Paging};
use super::faults::{Refusal, Refused};
use super::operation::{Operation, Tag};
use super::parameters::Query;
use super::{EnrolDoor, json};

pub use item::{
    CheckpointFault, checkpoint as checkpoint_of, head_of, reconciliation as reconciliation_of,
    record_of, seal_of,
};

/// The parameters of the list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listing {
    /// Only what happened then or later.
    #[schemars(with = "UnixTime")]
    since: Option<String>,
    /// Only what happened before then.
    #[schemars(with = "UnixTime")]
    until: Option<String>,
    /// Only what this name did.
    actor: Option<String>,
    /// Only this event.
    event: Option<String>,
    /// Only what is about this name.
    certname: Option<String>,
    /// Only what is about this request.
    request: Option<String>,
    /// Only what has this reason, in one word.
    reason: Option<String>,
    /// The other way round.
    newest_first: bool,
    /// With the text that is hashed.
    stored: bool,
    /// The cursor of the page before.
    cursor: Option<String>,
    /// How many items a page holds.
    #[schemars(with = "u32", range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
}

/// The parameters of the list of seals.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SealListing {
    /// The cursor of the page before.
    cursor: Option<String>,
    /// How many items a page holds.
    #[schemars(with = "u32", range(min = 1, max = MAX_SEALS), extend("default" = DEFAULT_SEALS))]
    limit: Option<usize>,
}

pub(super) const LIST: Operation = Operation::new("listAudit", Tag::Audit, "List audit entries")
    .about(
        "The oldest first. A page looks at 10 000 entries at most: with a filter it may be empty, and the cursor leads on.",
    )
    .query::<Listing>()
    .answers::<FilteredPage<AuditEntry>>(200, "A page of entries.");

pub(super) async fn list(
    State(door): State<EnrolDoor>,
    Query(listing): Query<Listing>,
) -> Result<Response, Refusal> {
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
    let page = door.authority().audit.page(query).await?;
    let items = page.records.iter();
    let items = items.map(|record| match listing.stored {
        true => item::with_text(record),
        false => item::entry(record),
    });
    let filtered = FilteredPage {
        page: cursor::page(items.collect(), page.reached.as_ref()),
        looked_at: page.looked_at,
    };
    Ok(json(StatusCode::OK, &filtered))
}

pub(super) const SEALS: Operation = Operation::new("listSeals", Tag::Audit, "List seals")
    .about("By number, with the hashes of the entries that each seals.")
    .query::<SealListing>()
    .answers::<Page<Seal>>(200, "A page of seals.");

pub(super) async fn seals(
    State(door): State<EnrolDoor>,
    Query(listing): Query<SealListing>,
) -> Result<Response, Refusal> {
    let size = listing.limit.unwrap_or(DEFAULT_SEALS);
    if !(1..=MAX_SEALS).contains(&size) {
        return Err(Refusal::Invalid {
            what: format!("limit must be from 1 to {MAX_SEALS}"),
        });
    }
    let paging = Paging {
        cursor: listing.cursor,
        limit: None,
    };
    let after: u64 = paging.place()?.unwrap_or(0);
    let seals = door.authority().audit.seals(after, size).await?;
    let next = seals
        .last()
        .filter(|_| seals.len() == size)
        .map(|last| last.head.number);
    let items = seals.iter().map(item::seal).collect();
    Ok(json(StatusCode::OK, &cursor::page(items, next.as_ref())))
}

pub(super) const CHECKPOINT: Operation =
    Operation::new("showCheckpoint", Tag::Audit, "The newest checkpoint")
        .about("The signed part of the newest seal, to be kept elsewhere.")
        .answers::<Checkpoint>(200, "The checkpoint.")
        .refuses(&[Refused::NotFound]);

pub(super) async fn checkpoint(State(door): State<EnrolDoor>) -> Result<Response, Refusal> {
    let head = door.authority().audit.last_seal().await?;
    let head = head.ok_or_else(|| Refusal::NotFound {
        what: "nothing is sealed yet; the first seal is made about a second after the start"
            .to_owned(),
    })?;
    Ok(json(StatusCode::OK, &item::checkpoint(&head)))
}

pub(super) const RECONCILIATION: Operation = Operation::new(
    "reconcile",
    Tag::Audit,
    "Ledger, tokens and audit log held against each other",
)
.about(
    "Every certificate, revocation and use of a token that is stored must be told of in the audit log, and the other way round. The whole store is read; one such call is served at a time.",
)
.answers::<Reconciliation>(200, "What was compared, and what does not agree.");

pub(super) async fn reconciliation(State(door): State<EnrolDoor>) -> Result<Response, Refusal> {
    let found = door.authority().audit.reconcile().await?;
    Ok(json(StatusCode::OK, &item::reconciliation(&found)))
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
