//! `/decisions`: requests with what their decision rests on, so that somebody can decide them anew under another policy.
//!
//! The messages are without their attributes: nothing that may be a secret is needed to decide, and none is shown.

use axum::extract::State;
use axum::response::Response;
use countersign_api::Decision;
use countersign_authority::store::RequestFilter;
use countersign_authority::{Door, RequestRecord};
use countersign_pki::{
    CheckedCsr, Extension, RequestTemplate, SignatureAlgorithm, UnixTime, oid, pem, seal,
};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::cursor::{DEFAULT_LIMIT, MAX_LIMIT, Page, Paging, page_of};
use super::faults::Refusal;
use super::item::state;
use super::operation::{Operation, Tag};
use super::parameters::Query;
use super::requests::{Place, after, place, since, states};
use super::{EnrolDoor, json};

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
    /// Only what arrived then or later.
    #[schemars(with = "UnixTime")]
    since: Option<String>,
    /// The cursor of the page before.
    cursor: Option<String>,
    /// How many items a page holds.
    #[schemars(with = "u32", range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
}

fn item(record: RequestRecord) -> Decision {
    let shown = without_secrets(&record.csr_der);
    Decision {
        csr: shown.map_or_else(String::new, |der| pem::encode("CERTIFICATE REQUEST", &der)),
        id: record.id.to_string(),
        door: record.door.to_string(),
        name: record.key,
        state: state(record.state),
        signer: record.signer.to_string(),
        requester: record.requester,
        wishes: record.wishes,
        created: record.created,
        explanation: record.explanation,
        evidence: record.evidence,
    }
}

pub(super) const LIST: Operation =
    Operation::new("listDecisions", Tag::Policy, "List decisions with their evidence")
        .about(
            "Every request on record as the policy saw it, with what its decision rests on, so that it can be decided anew \
             under another policy. Messages are without attributes; their signatures say nothing.",
        )
        .query::<Listing>()
        .answers::<Page<Decision>>(200, "A page of decisions.");

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
        states: states(listing.state.as_deref())?,
        key: listing.name,
        since: since(listing.since.as_deref())?,
        after: paging.place::<Place>()?.map(after).transpose()?,
        limit: size.saturating_add(1),
        ..RequestFilter::default()
    };
    let records = door.authority().requests.list(filter).await?;
    let page = page_of(records, size, place, |record| Some(item(record)));
    Ok(json(StatusCode::OK, &page))
}

/// A message without its attributes and without extensions that are secrets by their names. Its signature says nothing.
pub(super) fn without_secrets(der: &[u8]) -> Option<Vec<u8>> {
    let csr = CheckedCsr::trusted_from_store(der).ok()?;
    let is_open = |extension: &&Extension| extension.oid != oid::PP_PRESHARED_KEY;
    let extensions: Vec<Extension> = csr.extensions().iter().filter(is_open).cloned().collect();
    let template = RequestTemplate {
        subject_der: csr.subject().der(),
        spki_der: csr.spki_der(),
        extensions: &extensions,
        attributes: &[],
    };
    let text = template.to_be_signed().ok()?;
    seal(&text, SignatureAlgorithm::EcdsaP256Sha256, &[0]).ok()
}
