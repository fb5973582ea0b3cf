//! `certificate_statuses`: the list of everything, of any length.

use std::io;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use countersign_authority::store::{RequestFilter, StoreFault};
use countersign_authority::{ListedCertificate, RequestId, RequestRecord, RequestState};
use futures_util::{StreamExt, stream};
use http::{HeaderMap, StatusCode};
use tokio::task::JoinHandle;
use tracing::error;

use super::certificate_status::not_acceptable;
use super::negotiation::media_type;
use super::status_object::{StatusObject, state};
use super::{PuppetDoor, answer, faults};

impl PuppetDoor {
    /// How many names a page of a listing holds: about 500 KiB of JSON.
    pub(crate) const PAGE: usize = 500;

    /// Every waiting request, then the newest certificate of every name, page by page: the whole list may be larger
    /// than memory.
    pub(super) async fn get_statuses(&self, query: Option<&str>, headers: &HeaderMap) -> Response {
        let Some(media_type) = media_type(headers) else {
            return not_acceptable();
        };
        let filter = StateFilter::from_query(query.unwrap_or_default());
        let first = if filter.includes("requested") {
            Cursor::Requests { after: None }
        } else {
            Cursor::Certificates { after: None }
        };
        let mut listing = Listing {
            reading: Some(first.begin(self, filter)),
            door: self.clone(),
            filter,
            written: Written::Nothing,
            longest: 0,
        };
        // A store that fails at once is answered with a status; later it can only cut the answer short.
        let first = match listing.page().await {
            Ok(first) => first.unwrap_or_default(),
            Err(fault) => return faults::store(&fault),
        };
        let rest = stream::try_unfold(listing, |mut listing| async move {
            match listing.page().await {
                Ok(Some(page)) => Ok(Some((page, listing))),
                Ok(None) => Ok(None),
                Err(fault) => {
                    error!(
                        error = &fault as &dyn std::error::Error,
                        "listing broken off"
                    );
                    Err(io::Error::other("the store failed"))
                }
            }
        });
        let pages = stream::once(async { Ok::<_, io::Error>(first) });
        answer::with(
            StatusCode::OK,
            media_type,
            Body::from_stream(pages.chain(rest)),
        )
    }

    /// Requests that wait for their certificate, by name.
    pub(crate) async fn waiting_page(
        &self,
        after: Option<(String, RequestId)>,
    ) -> Result<Vec<RequestRecord>, StoreFault> {
        let filter = RequestFilter {
            door: Some(Self::DOOR),
            states: vec![RequestState::Pending, RequestState::Approved],
            live_only: true,
            after: after.map(|(key, id)| (Self::DOOR, key, id)),
            limit: PAGE,
            ..RequestFilter::default()
        };
        self.authority().requests.list(filter).await
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StateFilter {
    All,
    Only(&'static str),
}

impl StateFilter {
    /// Unknown states and other parameters are ignored, as the reference ignores them.
    fn from_query(query: &str) -> Self {
        let state = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("state="));
        match state {
            Some("requested") => Self::Only("requested"),
            Some("signed") => Self::Only("signed"),
            Some("revoked") => Self::Only("revoked"),
            Some(_) | None => Self::All,
        }
    }

    fn includes(self, state: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(only) => only == state,
        }
    }
}

/// How far a listing has come. While one page is written and sent, the next is read: memory holds those two.
struct Listing {
    door: PuppetDoor,
    filter: StateFilter,
    reading: Option<JoinHandle<Result<Page, StoreFault>>>,
    written: Written,
    /// The longest piece so far: the next will hardly be longer.
    longest: usize,
}

enum Cursor {
    Requests { after: Option<(String, RequestId)> },
    Certificates { after: Option<String> },
}

struct Page {
    rows: Rows,
    next: Option<Cursor>,
}

enum Rows {
    Requests(Vec<RequestRecord>),
    Certificates(Vec<ListedCertificate>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Nothing,
    Opening,
    Objects,
}

impl Cursor {
    /// Reads the page that begins here, beside whatever else is done.
    fn begin(self, door: &PuppetDoor, filter: StateFilter) -> JoinHandle<Result<Page, StoreFault>> {
        let door = door.clone();
        tokio::spawn(async move {
            match self {
                Self::Requests { after } => Self::requests(&door, after).await,
                Self::Certificates { after } => Self::certificates(&door, filter, after).await,
            }
        })
    }

    async fn requests(
        door: &PuppetDoor,
        after: Option<(String, RequestId)>,
    ) -> Result<Page, StoreFault> {
        let page = door.waiting_page(after).await?;
        let next = match page.last() {
            Some(last) if page.len() >= PAGE => Self::Requests {
                after: Some((last.key.clone(), last.id)),
            },
            Some(_) | None => Self::Certificates { after: None },
        };
        Ok(Page {
            rows: Rows::Requests(page),
            next: Some(next),
        })
    }

    async fn certificates(
        door: &PuppetDoor,
        filter: StateFilter,
        after: Option<String>,
    ) -> Result<Page, StoreFault> {
        let mut page = Vec::new();
        if filter.includes("signed") || filter.includes("revoked") {
            let authority = door.authority();
            page = authority.ledger.listing(door.issuer(), after, PAGE).await?;
        }
        let next = match page.last() {
            Some(last) if page.len() >= PAGE => Some(Self::Certificates {
                after: Some(last.name.clone()),
            }),
            Some(_) | None => None,
        };
        Ok(Page {
            rows: Rows::Certificates(page),
            next,
        })
    }
}

impl Listing {
    /// The next piece of the JSON array; `None` after its end.
    async fn page(&mut self) -> Result<Option<Bytes>, StoreFault> {
        let Some(reading) = self.reading.take() else {
            return Ok(None);
        };
        let Page { rows, next } = reading.await.unwrap_or(Err(StoreFault::Stopped))?;
        self.reading = next.map(|place| place.begin(&self.door, self.filter));
        let mut json = Vec::with_capacity(self.longest);
        if self.written == Written::Nothing {
            json.push(b'[');
            self.written = Written::Opening;
        }
        match rows {
            Rows::Requests(page) => self.requests(&page, &mut json),
            Rows::Certificates(page) => self.certificates(&page, &mut json),
        }
        if self.reading.is_none() {
            json.push(b']');
        }
        self.longest = self.longest.max(json.len());
        Ok(Some(Bytes::from(json)))
    }

    fn requests(&mut self, page: &[RequestRecord], json: &mut Vec<u8>) {
        for record in page {
            self.push(&StatusObject::of_request(record), json);
        }
    }

    fn certificates(&mut self, page: &[ListedCertificate], json: &mut Vec<u8>) {
        for entry in page {
            // Of some that were taken over there is an inventory's line alone: they are not shown, as on the reference.
            if entry.der.is_empty() || !self.filter.includes(state(entry)) {
                continue;
            }
            self.push(&StatusObject::of_certificate(entry), json);
        }
    }

    fn push(&mut self, object: &StatusObject, json: &mut Vec<u8>) {
        let before = json.len();
        if self.written == Written::Objects {
            json.push(b',');
        }
        match serde_json::to_writer(&mut *json, object) {
            Ok(()) => self.written = Written::Objects,
            Err(error) => {
                error!(%error, "a status object cannot be written; skipped");
                json.truncate(before);
            }
        }
    }
}

const PAGE: usize = PuppetDoor::PAGE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_parameter() {
        for (query, expected) in [
            ("", StateFilter::All),
            ("state=requested", StateFilter::Only("requested")),
            (
                "environment=production&state=revoked",
                StateFilter::Only("revoked"),
            ),
            ("state=other", StateFilter::All),
            ("states=signed", StateFilter::All),
        ] {
            assert_eq!(StateFilter::from_query(query), expected, "{query}");
        }
    }
}
