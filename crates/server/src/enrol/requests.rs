//! `/requests`: what was asked for at any door, and what people say to it.

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use countersign_authority::store::{Past, RequestFilter, StoreFault};
use countersign_authority::{
    Act, ActFault, Door, OnUnsignable, RequestId, RequestRecord, RequestState,
};
use countersign_pki::{UnixTime, terminal_safe};
use http::StatusCode;
use serde::Deserialize;
use tracing::{error, info};

use super::cursor::{Page, Paging};
use super::faults::Refusal;
use super::item::RequestItem;
use super::{Administrator, EnrolDoor, Granted, json, optional_body};

/// The parameters of the list.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listing {
    door: Option<String>,
    /// One state, or several with commas.
    state: Option<String>,
    name: Option<String>,
    /// The reason's word.
    reason: Option<String>,
    /// Only what arrived then or later.
    since: Option<String>,
    /// Whether requests that no longer occupy their name are listed too.
    past: bool,
    cursor: Option<String>,
    limit: Option<usize>,
}

/// What may come with an approval.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Approving {
    reason: String,
    lifetime_seconds: Option<u64>,
}

/// What may come with a denial.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Denying {
    reason: String,
}

/// Where a page ends: door, name, identity.
pub(super) type Place = (String, String, String);

pub(super) async fn list(
    State(door): State<EnrolDoor>,
    listing: Result<Query<Listing>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(listing) = listing.map_err(|fault| Refusal::Invalid {
        what: fault.body_text(),
    })?;
    let paging = Paging {
        cursor: listing.cursor,
        limit: listing.limit,
    };
    let size = paging.size()?;
    let filter = RequestFilter {
        door: listing.door.map(Door::from_text),
        states: states(listing.state.as_deref())?,
        live_only: !listing.past,
        key: listing.name,
        code: listing.reason,
        since: since(listing.since.as_deref())?,
        after: paging.place::<Place>()?.map(after).transpose()?,
        // One more tells whether there is another page.
        limit: size.saturating_add(1),
    };
    let mut records = door.authority().requests(filter).await?;
    let has_more = records.len() > size;
    records.truncate(size);
    let next = records
        .last()
        .filter(|_| has_more)
        .map(|last| (last.door.to_string(), last.key.clone(), last.id.to_string()));
    let mut items = Vec::with_capacity(records.len());
    for record in records {
        let id = record.id;
        match door.item(record).await? {
            Some(item) => items.push(item),
            None => error!(request = %id, "a stored request cannot be read; skipped"),
        }
    }
    Ok(json(StatusCode::OK, &Page::new(items, next.as_ref())))
}

/// The request that occupies a name, else the newest that did.
pub(super) async fn show(
    State(door): State<EnrolDoor>,
    Path((at, name)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let at = Door::from_text(at);
    let found = door
        .authority()
        .request_at(&at, &name, Past::Include)
        .await?;
    let record = found.ok_or_else(|| no_request(&at, &name))?;
    let der = record.csr_der.clone();
    let item = door.item(record).await?.ok_or_else(unreadable)?;
    Ok(json(StatusCode::OK, &item.with_csr(&der)))
}

pub(super) async fn approve(
    State(door): State<EnrolDoor>,
    Path((at, name)): Path<(String, String)>,
    administrator: Administrator,
    Granted(grant): Granted,
    body: Bytes,
) -> Result<Response, Refusal> {
    let Approving {
        reason,
        lifetime_seconds,
    } = optional_body(&body)?;
    if lifetime_seconds == Some(0) {
        return Err(Refusal::Invalid {
            what: "lifetime_seconds must be at least 1".to_owned(),
        });
    }
    let at = Door::from_text(at);
    let found = door
        .authority()
        .request_at(&at, &name, Past::Ignore)
        .await?;
    let Some(record) = found else {
        return Err(door.not_waiting(&at, &name).await?);
    };
    // A request that keeps its name shows its failure; one that does not must remain as it is.
    let on_unsignable = if record.retained {
        OnUnsignable::RecordFailure
    } else {
        OnUnsignable::Refuse
    };
    let act = Act {
        expected: door.judge_approval(&grant, &record)?,
        lifetime: lifetime_seconds,
        on_unsignable,
        ..act(at, name, administrator, reason)?
    };
    let record = door.authority().approve(act).await?;
    info!(door = %record.door, name = record.key, request = %record.id, "approved");
    door.decided(record).await
}

pub(super) async fn deny(
    State(door): State<EnrolDoor>,
    Path((at, name)): Path<(String, String)>,
    administrator: Administrator,
    body: Bytes,
) -> Result<Response, Refusal> {
    let Denying { reason } = optional_body(&body)?;
    let at = Door::from_text(at);
    let act = act(at.clone(), name.clone(), administrator, reason)?;
    let record = match door.authority().deny(act).await {
        Err(ActFault::NotFound { .. }) => return Err(door.not_waiting(&at, &name).await?),
        denied => denied?,
    };
    info!(door = %record.door, name = record.key, request = %record.id, "denied");
    door.decided(record).await
}

pub(super) async fn delete(
    State(door): State<EnrolDoor>,
    Path((at, name)): Path<(String, String)>,
    administrator: Administrator,
) -> Result<Response, Refusal> {
    let at = Door::from_text(at);
    let act = act(at.clone(), name.clone(), administrator, String::new())?;
    let record = match door.authority().delete(act).await {
        Err(ActFault::NotFound { .. }) => return Err(door.not_held(&at, &name).await?),
        deleted => deleted?,
    };
    info!(door = %record.door, name = record.key, request = %record.id, "request deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl EnrolDoor {
    /// Why nobody can decide a request of this name: it is over, or there never was one.
    async fn not_waiting(&self, at: &Door, name: &str) -> Result<Refusal, StoreFault> {
        Ok(match self.over(at, name).await? {
            Some(state) => ActFault::AlreadyDecided {
                key: terminal_safe(name).into_owned(),
                state,
            }
            .into(),
            None => no_request(at, name),
        })
    }

    /// Why there is nothing to delete under this name.
    async fn not_held(&self, at: &Door, name: &str) -> Result<Refusal, StoreFault> {
        Ok(match self.over(at, name).await? {
            Some(state) => {
                let (name, state) = (terminal_safe(name), state.word());
                let what = format!(
                    "request {name} is {state} and no longer holds its name; `countersign ca clean --certname {name}` \
                     revokes and forgets its certificate"
                );
                Refusal::Conflict { what }
            }
            None => no_request(at, name),
        })
    }

    /// Where the newest request of a name stands, if it has come to its end and let go of the name.
    async fn over(&self, at: &Door, name: &str) -> Result<Option<RequestState>, StoreFault> {
        let found = self.authority().request_at(at, name, Past::Include).await?;
        Ok(match found.map(|record| record.state) {
            Some(
                state @ (RequestState::Issued
                | RequestState::Denied
                | RequestState::Failed
                | RequestState::Undecided),
            ) => Some(state),
            Some(RequestState::Pending | RequestState::Approved) | None => None,
        })
    }

    async fn decided(&self, record: RequestRecord) -> Result<Response, Refusal> {
        let item = self.item(record).await?.ok_or_else(unreadable)?;
        Ok(json(StatusCode::OK, &item))
    }

    /// `None`: the stored message cannot be read.
    pub(super) async fn item(
        &self,
        record: RequestRecord,
    ) -> Result<Option<RequestItem>, StoreFault> {
        let certificate = match &record.certificate {
            Some((issuer, serial)) => self.authority().certificate(issuer, serial).await?,
            None => None,
        };
        let signer = self.authority().signer(&record.signer);
        Ok(RequestItem::new(record, signer.as_deref(), certificate.as_ref()).ok())
    }
}

fn act(door: Door, key: String, by: Administrator, reason: String) -> Result<Act, Refusal> {
    if reason.len() > MAX_REASON {
        return Err(Refusal::Invalid {
            what: format!("reason has more than {MAX_REASON} bytes"),
        });
    }
    Ok(Act {
        door,
        key,
        actor: by.0,
        reason,
        expected: None,
        attachment: None,
        lifetime: None,
        on_unsignable: OnUnsignable::Refuse,
    })
}

/// A time that a listing begins with.
pub(super) fn since(text: Option<&str>) -> Result<Option<UnixTime>, Refusal> {
    let read = |text| {
        UnixTime::parse_rfc3339(text).map_err(|fault| Refusal::Invalid {
            what: format!("since: {fault}; write it as in 2026-01-02T03:04:05Z"),
        })
    };
    text.map(read).transpose()
}

pub(super) fn states(words: Option<&str>) -> Result<Vec<RequestState>, Refusal> {
    let words = words
        .unwrap_or_default()
        .split(',')
        .filter(|word| !word.is_empty());
    words
        .map(|word| {
            RequestState::from_word(word).ok_or_else(|| Refusal::Invalid {
                what: "state must be pending, approved, issued, denied or failed".to_owned(),
            })
        })
        .collect()
}

pub(super) fn after((door, key, id): Place) -> Result<(Door, String, RequestId), Refusal> {
    let invalid = || Refusal::Invalid {
        what: "cursor is not one that this server gave out".to_owned(),
    };
    Ok((
        Door::from_text(door),
        key,
        RequestId::parse(&id).ok_or_else(invalid)?,
    ))
}

fn no_request(door: &Door, name: &str) -> Refusal {
    let (door, name) = (terminal_safe(door.as_str()), terminal_safe(name));
    Refusal::NotFound {
        what: format!("there is no request {name} at the {door} door"),
    }
}

pub(super) fn unreadable() -> Refusal {
    Refusal::Internal {
        what: "the stored request cannot be read".to_owned(),
    }
}

pub(super) const MAX_REASON: usize = 1024; // it stands in explanations, conditions and the audit log
