//! `/rejections`: what was turned away, newest first, and why.

use axum::extract::State;
use axum::response::Response;
use countersign_api::Rejection;
use countersign_authority::Door;
use countersign_authority::store::{self, RejectionFilter};
use countersign_pki::{UnixTime, fingerprint_sha256};
use countersign_policy::Deciding;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::cursor::{DEFAULT_LIMIT, MAX_LIMIT, Page, Paging, page_of};
use super::faults::Refusal;
use super::item::{state, token_id};
use super::operation::{Operation, Tag};
use super::parameters::Query;
use super::requests::since;
use super::{EnrolDoor, json};

/// The parameters of the list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listing {
    /// Only this door.
    door: Option<String>,
    /// Only this name.
    certname: Option<String>,
    /// Only those with this reason, in one word.
    reason: Option<String>,
    /// Only what arrived then or later.
    #[schemars(with = "UnixTime")]
    since: Option<String>,
    /// The cursor of the page before.
    cursor: Option<String>,
    /// How many items a page holds.
    #[schemars(with = "u32", range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
}

fn item(rejection: store::Rejection) -> Rejection {
    let request = rejection.request;
    let token_id = token_id(&request);
    let explanation = request.explanation;
    let last = explanation.steps.last();
    let (rule, policy) = match (&explanation.by, last) {
        (Some(Deciding::Rule { name, policy }), _) => (Some(name.clone()), policy.clone()),
        (None, Some(step)) => (Some(step.rule.clone()), step.policy.clone()),
        (Some(Deciding::Person { .. } | Deciding::Profile), _) | (None, None) => {
            (None, String::new())
        }
    };
    Rejection {
        request_id: request.id.to_string(),
        time: explanation.at,
        door: request.door.to_string(),
        certname: request.key,
        state: state(request.state),
        reason: explanation.code.to_string(),
        message: explanation.to_string(),
        rule,
        policy: Some(policy).filter(|policy| !policy.is_empty()),
        generation: explanation.generation,
        source: request.requester.source.map(|source| source.to_string()),
        requester: request.requester,
        spki_sha256: request.key_fingerprint.to_hex(),
        csr_sha256: fingerprint_sha256(&request.csr_der).to_hex(),
        token_id,
    }
}

pub(super) const LIST: Operation =
    Operation::new("listRejections", Tag::Requests, "List what was turned away")
        .about(
            "Requests that were denied, could not be decided or wait because of their token, newest first. What rules turned away at the Puppet door is \
             kept in bounded number.",
        )
        .query::<Listing>()
        .answers::<Page<Rejection>>(200, "A page of rejections.");

pub(super) async fn list(
    State(door): State<EnrolDoor>,
    Query(listing): Query<Listing>,
) -> Result<Response, Refusal> {
    let paging = Paging {
        cursor: listing.cursor,
        limit: listing.limit,
    };
    let size = paging.size()?;
    let filter = RejectionFilter {
        trimmable: false,
        door: listing.door.map(Door::from_text),
        key: listing.certname,
        code: listing.reason,
        since: since(listing.since.as_deref())?,
        before: paging.place::<u64>()?,
        skip: 0,
        // One more tells whether there is another page.
        limit: size.saturating_add(1),
    };
    let found = door.authority().requests.rejections(filter).await?;
    let item = |rejection| Some(item(rejection));
    let page = page_of(found, size, |last| last.place, item);
    Ok(json(StatusCode::OK, &page))
}
