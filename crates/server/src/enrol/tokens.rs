//! `/tokens`: enrolment tokens, minted, shown and taken back.
//!
//! The answer to an order is the only one that has the secret. What limits a minter to some names limits the whole
//! certificate that its tokens are good for; tokens of other names are not there for it.

mod item;

pub(super) use item::id as shown_id;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use countersign_api::{EnrolmentToken, EnrolmentTokenDetail, MintedToken, TokenOrder, TokenStatus};
use countersign_authority::{
    ListedToken, TokenDetail, TokenFault, TokenFilter, TokenId, masked_tokens,
};
use countersign_pki::terminal_safe;
use countersign_policy::TokenBinding;
use http::{HeaderMap, HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::cursor::{DEFAULT_LIMIT, MAX_LIMIT, Page, Paging, page_of};
use super::faults::{Refusal, Refused};
use super::operation::{Operation, Tag};
use super::parameters::{Path, Query};
use super::{Administrator, EnrolDoor, Granted, json, ordered_body};
use crate::access::{Grant, Names, Needs, Role};

/// The order as the engine takes it.
fn order(order: TokenOrder) -> Result<countersign_authority::TokenOrder, Refusal> {
    let binding = match (order.certname, order.glob) {
        (Some(name), None) => TokenBinding::Exact(name.to_ascii_lowercase()),
        (None, Some(pattern)) => TokenBinding::Glob(pattern.to_ascii_lowercase()),
        (Some(_), Some(_)) => {
            let what = "certname and glob: a token is for one name or for a pattern, not for both; leave one out";
            return Err(Refusal::unprocessable(what));
        }
        (None, None) => {
            let what = "certname: say which name the token is for, or with glob which names";
            return Err(Refusal::unprocessable(what));
        }
    };
    Ok(countersign_authority::TokenOrder {
        binding,
        ttl_seconds: order.ttl_seconds,
        // More than is possible stays more than is permitted.
        max_uses: order
            .max_uses
            .map(|uses| u32::try_from(uses).unwrap_or(u32::MAX)),
        not_before: order.not_before,
        allowed_sans: order.allowed_sans,
        allowed_extensions: order.allowed_extensions,
        spki_sha256: order.spki_sha256,
        source_cidrs: order.source_cidrs,
        allow_replace: order.allow_replace,
        keep_existing: order.keep_existing,
        profile: order.profile,
        external_ref: order.external_ref,
        note: order.note,
    })
}

/// What may come with an order beside its body.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only described: headers are read by their names")]
pub(super) struct OrderHeaders {
    /// A word of the client's own for the order, so that it is carried out once: visible ASCII, at most 255 characters. The
    /// same word again is answered 409 with the `id` of the token, without its secret.
    #[schemars(rename = "Idempotency-Key", length(min = 1, max = MAX_IDEMPOTENCY_KEY), regex(pattern = "^[!-~]+$"))]
    idempotency_key: Option<String>,
}

/// The parameters of the list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listing {
    /// Only those for exactly this name or pattern.
    certname: Option<String>,
    /// Only those that stand there.
    status: Option<TokenStatus>,
    /// Only those that were never used.
    unused: bool,
    /// The cursor of the page before.
    cursor: Option<String>,
    /// How many items a page holds.
    #[schemars(with = "u32", range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
}

/// A token in a path.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Named {
    /// Its public part, never the whole token.
    #[schemars(example = &"aaaqeayeaudaocaj")]
    id: String,
}

impl Named {
    fn id(&self) -> Result<TokenId, Refusal> {
        TokenId::parse(&self.id).ok_or_else(|| not_found(&self.id))
    }
}

/// The parameters of a revocation.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Revoking {
    /// Whether the certificates that it was used for are revoked as well. That needs the role `sign` beside `mint`.
    revoke_certificates: bool,
}

pub(super) const CREATE: Operation = Operation::new("mintToken", Tag::Tokens, "Mint a token")
    .about(
        "This answer alone has the secret. One for a name takes the place of the name's earlier ones, unless keep_existing \
         is true.",
    )
    .headers::<OrderHeaders>()
    .body::<TokenOrder>()
    .answers::<MintedToken>(201, "The token.")
    .refuses(&[Refused::Conflict, Refused::Unprocessable]);

pub(super) async fn create(
    State(door): State<EnrolDoor>,
    Administrator(actor): Administrator,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let order = order(ordered_body(&body)?)?;
    let key = idempotency_key(&headers)?;
    let minted = door.authority().tokens.mint(order, &actor, key).await?;
    Ok(json(StatusCode::CREATED, &item::minted(&minted)))
}

pub(super) const LIST: Operation = Operation::new("listTokens", Tag::Tokens, "List tokens")
    .about(
        "Newest first. Who may mint for some names only sees theirs: then a page may hold fewer tokens than its limit, and \
         cursor leads on.",
    )
    .query::<Listing>()
    .answers::<Page<EnrolmentToken>>(200, "A page of tokens.");

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
    let filter = TokenFilter {
        certname: listing.certname.map(|name| name.to_ascii_lowercase()),
        status: listing.status.map(item::asked_status),
        unused: listing.unused,
        now: door.authority().now(),
        after: paging.place::<String>()?.map(after).transpose()?,
        // One more tells whether there is another page.
        limit: size.saturating_add(1),
    };
    let found = door.authority().tokens.list(filter).await?;
    let place = |last: &ListedToken| last.record.id.as_str().to_owned();
    let item = |token: ListedToken| {
        let is_seen = sees(&grant, &token.record.binding);
        is_seen.then(|| item::token(token))
    };
    let page = page_of(found, size, place, item);
    Ok(json(StatusCode::OK, &page))
}

pub(super) const SHOW: Operation = Operation::new("showToken", Tag::Tokens, "Show a token")
    .about("With its uses, oldest first.")
    .path::<Named>()
    .answers::<EnrolmentTokenDetail>(200, "The token.")
    .refuses(&[Refused::NotFound]);

pub(super) async fn show(
    State(door): State<EnrolDoor>,
    Granted(grant): Granted,
    Path(named): Path<Named>,
) -> Result<Response, Refusal> {
    let detail = door.token(&grant, &named.id()?).await?;
    Ok(json(StatusCode::OK, &item::detail(detail)))
}

pub(super) const REVOKE: Operation = Operation::new("revokeToken", Tag::Tokens, "Revoke a token")
    .about(
        "Of one that was used, this ends the time in which the same key may fetch its certificate by it. The certificate \
         stays valid unless revoke_certificates is true.",
    )
    .path::<Named>()
    .query::<Revoking>()
    .answers_nothing(204, "It is revoked, or was before.")
    .refuses(&[Refused::NotFound, Refused::Conflict]);

pub(super) async fn revoke(
    State(door): State<EnrolDoor>,
    Administrator(actor): Administrator,
    Path(named): Path<Named>,
    Query(Revoking {
        revoke_certificates,
    }): Query<Revoking>,
) -> Result<Response, Refusal> {
    let id = named.id()?;
    let revoked = door
        .authority()
        .tokens
        .revoke(&id, revoke_certificates, &actor);
    revoked.await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) const RELEASE: Operation =
    Operation::new("releaseToken", Tag::Tokens, "Release the use of a token")
        .about(
            "Gives back a use whose certificate was never signed, so that another key may have it.",
        )
        .path::<Named>()
        .answers_nothing(204, "It can be used again.")
        .refuses(&[Refused::NotFound, Refused::Conflict]);

pub(super) async fn release(
    State(door): State<EnrolDoor>,
    Administrator(actor): Administrator,
    Path(named): Path<Named>,
) -> Result<Response, Refusal> {
    let id = named.id()?;
    door.authority().tokens.release(&id, &actor).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl EnrolDoor {
    /// A token, if the caller may see it.
    async fn token(&self, grant: &Grant, id: &TokenId) -> Result<TokenDetail, Refusal> {
        let found = self.authority().tokens.get(id).await?;
        let seen = found.filter(|token| sees(grant, &token.listed.record.binding));
        seen.ok_or_else(|| not_found(id.as_str()))
    }
}

/// Whether the caller may have tokens for this.
fn mints(grant: &Grant, binding: &TokenBinding) -> bool {
    // The text of a pattern ends as all names do that it stands for.
    let needs = Needs::Mint(Names::InPath);
    grant.demand(needs, Some(binding.value())).is_ok()
}

fn sees(grant: &Grant, binding: &TokenBinding) -> bool {
    grant.reaches_everything(Role::Read) || mints(grant, binding)
}

/// The client's word for its order.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let what = match (values.next().map(HeaderValue::to_str), values.next()) {
        (None, _) => return Ok(None),
        (Some(Ok(text)), None) => return Ok(Some(text)),
        (Some(Err(_)), _) => "must be visible characters of ASCII",
        (Some(Ok(_)), Some(_)) => "stands there more than once",
    };
    Err(Refusal::unprocessable(&format!("Idempotency-Key: {what}")))
}

fn after(id: String) -> Result<TokenId, Refusal> {
    TokenId::parse(&id).ok_or_else(|| Refusal::Invalid {
        what: "cursor is not one that this server gave out".to_owned(),
    })
}

fn not_found(id: &str) -> Refusal {
    let id = masked_tokens(&terminal_safe(id)).into_owned();
    TokenFault::NotFound { id }.into()
}

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const MAX_IDEMPOTENCY_KEY: usize = 255; // the engine's bound
