//! Pages of lists.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
pub(super) use countersign_api::Page;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::faults::Refusal;

/// A page of `size` out of what was read for it: one more, if there is one, tells that another page follows.
pub(super) fn page_of<T, R, P: Serialize>(
    mut read: Vec<R>,
    size: usize,
    place: impl Fn(&R) -> P,
    item: impl FnMut(R) -> Option<T>,
) -> Page<T> {
    let has_more = read.len() > size;
    read.truncate(size);
    let next = read.last().filter(|_| has_more).map(place);
    page(read.into_iter().filter_map(item).collect(), next.as_ref())
}

/// A page whose list goes on after `next`.
pub(super) fn page<T>(items: Vec<T>, next: Option<&impl Serialize>) -> Page<T> {
    let cursor = next
        .and_then(|place| serde_json::to_vec(place).ok())
        .map(|place| URL_SAFE_NO_PAD.encode(place));
    Page { items, cursor }
}

/// The parameters by which a list is paged.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Paging {
    pub(super) cursor: Option<String>,
    pub(super) limit: Option<usize>,
}

impl Paging {
    /// How many items a page holds.
    pub(super) fn size(&self) -> Result<usize, Refusal> {
        match self.limit {
            None => Ok(DEFAULT_LIMIT),
            Some(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
            Some(_) => Err(Refusal::Invalid {
                what: format!("limit must be from 1 to {MAX_LIMIT}"),
            }),
        }
    }

    /// Where the page begins. A cursor only ever says where to go on reading: who makes one up sees nothing more.
    pub(super) fn place<P: DeserializeOwned>(&self) -> Result<Option<P>, Refusal> {
        let invalid = || Refusal::Invalid {
            what: "cursor is not one that this server gave out".to_owned(),
        };
        let read = |text: &String| {
            let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| invalid())?;
            serde_json::from_slice(&json).map_err(|_| invalid())
        };
        self.cursor.as_ref().map(read).transpose()
    }
}

pub(super) const DEFAULT_LIMIT: usize = 100;
pub(super) const MAX_LIMIT: usize = 1000;
