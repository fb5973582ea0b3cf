//! `/requests`: what was asked for at any door, and what people say to it.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use countersign_api::{Approval, Denial, MAX_REASON, Request};
use countersign_authority::store::{Past, RequestFilter, StoreFault};
use countersign_authority::{
    Act, ActFault, Door, OnUnsignable, Recorded, RequestId, RequestRecord, RequestState, shown,
};
use countersign_pki::{UnixTime, pem, terminal_safe};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use tracing::info;

use super::cursor::{DEFAULT_LIMIT, MAX_LIMIT, Page, Paging, page};
use super::decisions::without_secrets;
use super::faults::{Refusal, Refused};
use super::item;
use super::operation::{Operation, Tag};
use super::parameters::{Path, Query};
use super::{Administrator, EnrolDoor, Granted, json, optional_body};

/// The parameters of the list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listing {
    /// Only this door.
    door: Option<String>,
    /// Only these states: one, or several with commas.
    #[schemars(with = "Vec<countersign_api::RequestState>", length(min = 1))]
    state: Option<String>,
    /// Only this name.
    name: Option<String>,
    /// Only those with this reason, in one word.
    reason: Option<String>,
    /// Only what arrived then or later.
    #[schemars(with = "UnixTime")]
    since: Option<String>,
    /// Also requests that no longer occupy their name.
    past: bool,
    /// Only what waits: the newest request of its name, if it is not over, or if evidence was lacking that its sender may bring
    /// or find when it asks again. `state` and `past` do not count then.
    waiting: bool,
    /// The cursor of the page before.
    cursor: Option<String>,
    /// How many items a page holds.
    #[schemars(with = "u32", range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
}

/// The parameters of one request.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Named {
    /// The door.
    #[schemars(example = &"puppet")]
    door: String,
    /// The name at the door.
    #[schemars(example = "web01.example.com")]
    name: String,
}

/// Where a page ends: door, name, identity.
pub(super) type Place = (String, String, String);

pub(super) const LIST: Operation = Operation::new("listRequests", Tag::Requests, "List requests")
    .about("By door, name and identity. Without past=true only those that occupy their name.")
    .query::<Listing>()
    .answers::<Page<Request>>(200, "A page of requests.");

pub(super) async fn list(
    State(door): State<EnrolDoor>,
    Query(listing): Query<Listing>,
) -> Result<Response, Refusal> {
    let paging = Paging {
        cursor: listing.cursor,
        limit: listing.limit,
    };
    let size = paging.size()?;
    let filter = RequestFilter {
        door: listing.door.map(Door::from_text),
        states: match listing.waiting {
            true => WAITING.to_vec(),
            false => states(listing.state.as_deref())?,
        },
        live_only: !listing.past && !listing.waiting,
        newest_only: listing.waiting,
        key: listing.name,
        code: listing.reason,
        since: since(listing.since.as_deref())?,
        after: paging.place::<Place>()?.map(after).transpose()?,
        // One more tells whether there is another page.
        limit: size.saturating_add(1),
    };
    let mut records = door.authority().requests.list(filter).await?;
    let has_more = records.len() > size;
    records.truncate(size);
    let next = records.last().filter(|_| has_more).map(place);
    let mut items = Vec::with_capacity(records.len());
    for record in records {
        items.push(door.item(record).await?);
    }
    Ok(json(StatusCode::OK, &page(items, next.as_ref())))
}

/// States that do not end by themselves, or only if something else happens.
const WAITING: [RequestState; 3] = [
    RequestState::Pending,
    RequestState::Approved,
    RequestState::Undecided,
];

pub(super) const SHOW: Operation = Operation::new("showRequest", Tag::Requests, "Show a request")
    .about("The request that occupies the name, else the newest that did; with the whole message.")
    .path::<Named>()
    .answers::<Request>(200, "The request.")
    .refuses(&[Refused::NotFound]);

pub(super) async fn show(
    State(door): State<EnrolDoor>,
    Path(Named { door: at, name }): Path<Named>,
    Granted(grant): Granted,
) -> Result<Response, Refusal> {
    let at = Door::from_text(at);
    let found = door
        .authority()
        .requests
        .at(&at, &name, Past::Include)
        .await?;
    let record = found.ok_or_else(|| no_request(&at, &name))?;
    // Attributes may hold secrets, which nobody but an administrator may see.
    let der = match grant.is_admin() {
        true => Some(record.csr_der.clone()),
        false => without_secrets(&record.csr_der),
    };
    let item = door.item(record).await?;
    let csr = der.map(|der| pem::encode("CERTIFICATE REQUEST", &der));
    Ok(json(StatusCode::OK, &Request { csr, ..item }))
}

pub(super) const APPROVE: Operation =
    Operation::new("approveRequest", Tag::Requests, "Approve a request")
        .about(
            "The certificate is signed and recorded before the answer is sent. A Puppet request that its signer cannot \
             sign is refused and stays as it is; a Kubernetes request becomes failed.",
        )
        .path::<Named>()
        .optional_body::<Approval>()
        .answers::<Request>(200, "The request after the decision.")
        .refuses(&[Refused::NotFound, Refused::Conflict]);

pub(super) async fn approve(
    State(door): State<EnrolDoor>,
    Path(Named { door: at, name }): Path<Named>,
    administrator: Administrator,
    body: Bytes,
) -> Result<Response, Refusal> {
    let Approval {
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
        .requests
        .at(&at, &name, Past::Ignore)
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
        lifetime: lifetime_seconds,
        on_unsignable,
        ..act(at, name, administrator, reason)?
    };
    let approved = door
        .authority()
        .requests
        .approve(act)
        .await?
        .into_recorded();
    let record = &approved.request;
    info!(door = %record.door, name = record.key, request = %record.id, "approved");
    let item = door.recorded(approved).await?;
    Ok(json(StatusCode::OK, &item))
}

pub(super) const DENY: Operation = Operation::new("denyRequest", Tag::Requests, "Deny a request")
    .about("Holds for this name and key until the request is deleted.")
    .path::<Named>()
    .optional_body::<Denial>()
    .answers::<Request>(200, "The request after the decision.")
    .refuses(&[Refused::NotFound, Refused::Conflict]);

pub(super) async fn deny(
    State(door): State<EnrolDoor>,
    Path(Named { door: at, name }): Path<Named>,
    administrator: Administrator,
    body: Bytes,
) -> Result<Response, Refusal> {
    let Denial { reason } = optional_body(&body)?;
    let at = Door::from_text(at);
    let told = shown(&reason);
    let act = act(at.clone(), name.clone(), administrator, reason)?;
    let record = match door.authority().requests.deny(act).await {
        Err(ActFault::NotFound { .. }) => return Err(door.not_waiting(&at, &name).await?),
        denied => denied?,
    };
    info!(door = %record.door, name = record.key, request = %record.id, reason = told, "denied");
    let item = door.item(record).await?;
    Ok(json(StatusCode::OK, &item))
}

pub(super) const DELETE: Operation = Operation::new(
    "deleteRequest",
    Tag::Requests,
    "Forget a request",
)
.about("Frees the name and lifts a person's denial. A certificate that was issued stays valid.")
.path::<Named>()
.answers_nothing(204, "Forgotten.")
.refuses(&[Refused::NotFound, Refused::Conflict]);

pub(super) async fn delete(
    State(door): State<EnrolDoor>,
    Path(Named { door: at, name }): Path<Named>,
    administrator: Administrator,
) -> Result<Response, Refusal> {
    let at = Door::from_text(at);
    let act = act(at.clone(), name.clone(), administrator, String::new())?;
    let record = match door.authority().requests.delete(act).await {
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
        let found = self
            .authority()
            .requests
            .at(at, name, Past::Include)
            .await?;
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

    pub(super) async fn item(&self, request: RequestRecord) -> Result<Request, StoreFault> {
        let unread = Recorded {
            request,
            certificate: None,
        };
        self.recorded(unread).await
    }

    /// A request with its certificate, which is looked up only if it does not come along.
    pub(super) async fn recorded(&self, recorded: Recorded) -> Result<Request, StoreFault> {
        let Recorded {
            request: record,
            certificate,
        } = recorded;
        let certificate = match (certificate, &record.certificate) {
            (None, Some((issuer, serial))) => self.authority().ledger.get(issuer, serial).await?,
            (known, _) => known,
        };
        let signer = self.authority().rules().signer(&record.signer);
        Ok(item::request(
            record,
            signer.as_deref(),
            certificate.as_ref(),
        ))
    }
}

fn act(door: Door, key: String, by: Administrator, reason: String) -> Result<Act, Refusal> {
    refuse_long(&reason)?;
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

/// Where a page ends.
pub(super) fn place(last: &RequestRecord) -> Place {
    (last.door.to_string(), last.key.clone(), last.id.to_string())
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

pub(super) fn refuse_long(reason: &str) -> Result<(), Refusal> {
    if reason.chars().count() > MAX_REASON {
        return Err(Refusal::Invalid {
            what: format!("reason has more than {MAX_REASON} characters"),
        });
    }
    Ok(())
}

pub(super) fn states(words: Option<&str>) -> Result<Vec<RequestState>, Refusal> {
    let words = words.into_iter().flat_map(|words| words.split(','));
    words
        .map(|word| {
            RequestState::from_word(word).ok_or_else(|| Refusal::Invalid {
                what: "state must be pending, approved, issued, denied, failed or undecided"
                    .to_owned(),
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
