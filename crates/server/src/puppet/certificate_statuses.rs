//! `certificate_statuses`: the list of everything, of any length.

use std::io;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use countersign_authority::store::{RequestFilter, StoreFault};
use countersign_authority::{RequestId, RequestRecord, RequestState};
use futures_util::{StreamExt, stream};
use http::{HeaderMap, StatusCode};
use tracing::error;

use super::certificate_status::not_acceptable;
use super::negotiation::media_type;
use super::status_object::StatusObject;
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
            Place::Requests { after: None }
        } else {
            Place::Certificates { after: None }
        };
        let mut listing = Listing {
            door: self.clone(),
            filter,
            next: Some(first),
            written: Written::Nothing,
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
        self.authority().requests(filter).await
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

/// How far a listing has come.
struct Listing {
    door: PuppetDoor,
    filter: StateFilter,
    next: Option<Place>,
    written: Written,
}

enum Place {
    Requests { after: Option<(String, RequestId)> },
    Certificates { after: Option<String> },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Nothing,
    Opening,
    Objects,
}

impl Listing {
    /// The next piece of the JSON array; `None` after its end.
    async fn page(&mut self) -> Result<Option<Bytes>, StoreFault> {
        let Some(place) = self.next.take() else {
            return Ok(None);
        };
        let mut json = Vec::new();
        if self.written == Written::Nothing {
            json.push(b'[');
            self.written = Written::Opening;
        }
        match place {
            Place::Requests { after } => self.requests(after, &mut json).await?,
            Place::Certificates { after } => self.certificates(after, &mut json).await?,
        }
        if self.next.is_none() {
            json.push(b']');
        }
        Ok(Some(Bytes::from(json)))
    }

    async fn requests(
        &mut self,
        after: Option<(String, RequestId)>,
        json: &mut Vec<u8>,
    ) -> Result<(), StoreFault> {
        let page = self.door.waiting_page(after).await?;
        for record in &page {
            match StatusObject::of_request(record) {
                Ok(object) => self.push(&object, json),
                Err(fault) => {
                    error!(name = record.key, %fault, "a stored request cannot be read; skipped")
                }
            }
        }
        self.next = match page.last() {
            Some(last) if page.len() >= PAGE => Some(Place::Requests {
                after: Some((last.key.clone(), last.id)),
            }),
            Some(_) | None => Some(Place::Certificates { after: None }),
        };
        Ok(())
    }

    async fn certificates(
        &mut self,
        after: Option<String>,
        json: &mut Vec<u8>,
    ) -> Result<(), StoreFault> {
        if !self.filter.includes("signed") && !self.filter.includes("revoked") {
            return Ok(());
        }
        let authority = self.door.authority();
        let page = authority
            .newest_certificates(self.door.issuer(), after, PAGE)
            .await?;
        for entry in &page {
            let state = if entry.revoked.is_some() {
                "revoked"
            } else {
                "signed"
            };
            if !self.filter.includes(state) {
                continue;
            }
            match StatusObject::of_certificate(entry) {
                Ok(object) => self.push(&object, json),
                Err(fault) => {
                    error!(name = entry.name, %fault, "a certificate of the ledger cannot be read; skipped");
                }
            }
        }
        self.next = match page.last() {
            Some(last) if page.len() >= PAGE => Some(Place::Certificates {
                after: Some(last.name.clone()),
            }),
            Some(_) | None => None,
        };
        Ok(())
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
