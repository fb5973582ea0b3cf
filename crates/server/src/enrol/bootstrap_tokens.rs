//! `/bootstrap-tokens`: passwords in the form of Kubernetes that machines show at the Kubernetes door, minted, shown and taken
//! back.
//!
//! The answer to an order is the only one that has the secret. Such a token is for no name, so only who may mint for every
//! name mints one, and sees them, beside those who may read.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use countersign_api::{
    BootstrapStatus, BootstrapToken, BootstrapTokenOrder, MintedBootstrapToken, Secret,
};
use countersign_authority::{BootstrapId, BootstrapOrder, MintedBootstrap, TokenFault};
use countersign_pki::UnixTime;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::cursor::{DEFAULT_LIMIT, MAX_LIMIT, Page, Paging, page_of};
use super::faults::{Refusal, Refused};
use super::operation::{Operation, Tag};
use super::parameters::{Path, Query};
use super::{Administrator, EnrolDoor, Granted, json, ordered_body};
use crate::access::{Grant, Role};
use crate::kubernetes::BOOTSTRAP_GROUPS;

fn item(token: countersign_authority::BootstrapToken, now: UnixTime) -> BootstrapToken {
    let status = match token.status(now) {
        countersign_authority::BootstrapStatus::Active => BootstrapStatus::Active,
        countersign_authority::BootstrapStatus::Expired => BootstrapStatus::Expired,
        countersign_authority::BootstrapStatus::Revoked => BootstrapStatus::Revoked,
    };
    let record = token.record;
    BootstrapToken {
        id: shown_id(&record.id),
        status,
        username: format!("system:bootstrap:{}", record.id),
        groups: record.groups,
        expires_at: record.expires_at,
        description: Some(record.description).filter(|text| !text.is_empty()),
        created_by: record.created_by,
        created_at: record.created_at,
        revoked_at: record.revoked_at,
    }
}

fn shown_id(id: &BootstrapId) -> countersign_api::BootstrapId {
    countersign_api::BootstrapId(id.as_str().to_owned())
}

/// The parameters of the list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listing {
    /// From the page before.
    cursor: Option<String>,
    /// At most so many.
    #[schemars(range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
}

/// A bootstrap token in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Named {
    /// Its public part: the six characters before the dot.
    #[serde(rename = "bootstrap_id")]
    id: String,
}

impl Named {
    /// Whatever is no id is not repeated: it may be a whole token.
    fn id(&self) -> Result<BootstrapId, Refusal> {
        let of_this_form = || TokenFault::NotFound {
            id: "of this form: a bootstrap token's id has six characters of a-z and 0-9".to_owned(),
        };
        BootstrapId::parse(&self.id).ok_or_else(|| of_this_form().into())
    }
}

pub(super) const CREATE: Operation = Operation::new(
    "mintBootstrapToken",
    Tag::Tokens,
    "Mint a bootstrap token",
)
.about("This answer alone has the secret. Many machines may show it, until it ends or is revoked.")
.optional_body::<BootstrapTokenOrder>()
.answers::<MintedBootstrapToken>(201, "The token.")
.refuses(&[Refused::Unprocessable]);

pub(super) async fn create(
    State(door): State<EnrolDoor>,
    Administrator(actor): Administrator,
    body: Bytes,
) -> Result<Response, Refusal> {
    let order: BootstrapTokenOrder = match body.is_empty() {
        true => BootstrapTokenOrder::default(),
        false => ordered_body(&body)?,
    };
    let order = BootstrapOrder {
        ttl_seconds: order.ttl_seconds,
        groups: order.groups,
        group_prefix: Some(BOOTSTRAP_GROUPS),
        description: order.description,
    };
    let minted = door
        .authority()
        .tokens
        .mint_bootstrap(order, &actor)
        .await?;
    let MintedBootstrap { record, token } = &minted;
    let item = MintedBootstrapToken {
        id: shown_id(&record.id),
        token: Secret(Zeroizing::new(token.expose().to_owned())),
        expires_at: record.expires_at,
        ca: door.trusted_by_users(),
    };
    Ok(json(StatusCode::CREATED, &item))
}

pub(super) const LIST: Operation =
    Operation::new("listBootstrapTokens", Tag::Tokens, "List bootstrap tokens")
        .about("Newest first. Who may mint for some names only sees none.")
        .query::<Listing>()
        .answers::<Page<BootstrapToken>>(200, "A page of bootstrap tokens.");

pub(super) async fn list(
    State(door): State<EnrolDoor>,
    Granted(grant): Granted,
    Query(listing): Query<Listing>,
) -> Result<Response, Refusal> {
    let paging = Paging {
        cursor: listing.cursor,
        limit: listing.limit,
    };
    let size = paging.size()?;
    let after = paging.place::<String>()?.map(after).transpose()?;
    let authority = door.authority();
    // One more tells whether there is another page.
    let found = match sees(&grant) {
        true => {
            authority
                .tokens
                .list_bootstrap(after, size.saturating_add(1))
                .await?
        }
        false => Vec::new(),
    };
    let (place, now) = (
        |last: &countersign_authority::BootstrapToken| last.record.id.as_str().to_owned(),
        authority.now(),
    );
    let page = page_of(found, size, place, |token| Some(item(token, now)));
    Ok(json(StatusCode::OK, &page))
}

pub(super) const SHOW: Operation =
    Operation::new("showBootstrapToken", Tag::Tokens, "Show a bootstrap token")
        .path::<Named>()
        .answers::<BootstrapToken>(200, "The token.")
        .refuses(&[Refused::NotFound]);

pub(super) async fn show(
    State(door): State<EnrolDoor>,
    Granted(grant): Granted,
    Path(named): Path<Named>,
) -> Result<Response, Refusal> {
    let (id, authority) = (named.id()?, door.authority());
    let found = authority.tokens.get_bootstrap(&id).await?;
    let found = found.filter(|_| sees(&grant));
    let found = found.ok_or_else(|| TokenFault::NotFound { id: id.to_string() })?;
    Ok(json(StatusCode::OK, &item(found, authority.now())))
}

pub(super) const REVOKE: Operation = Operation::new(
    "revokeBootstrapToken",
    Tag::Tokens,
    "Revoke a bootstrap token",
)
.about("Certificates of those who showed it stay valid.")
.path::<Named>()
.answers_nothing(204, "It is revoked, or was before.")
.refuses(&[Refused::NotFound]);

pub(super) async fn revoke(
    State(door): State<EnrolDoor>,
    Administrator(actor): Administrator,
    Path(named): Path<Named>,
) -> Result<Response, Refusal> {
    let revoked = door
        .authority()
        .tokens
        .revoke_bootstrap(&named.id()?, &actor)
        .await;
    revoked?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn sees(grant: &Grant) -> bool {
    grant.reaches_everything(Role::Read) || grant.reaches_everything(Role::Mint)
}

fn after(id: String) -> Result<BootstrapId, Refusal> {
    BootstrapId::parse(&id).ok_or_else(|| Refusal::Invalid {
        what: "cursor is not one that this server gave out".to_owned(),
    })
}
