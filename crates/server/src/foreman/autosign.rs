//! `autosign`: which hosts may enrol. For a smart proxy that is a list of names; here every name on it has a token.

use std::collections::BTreeSet;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use countersign_authority::store::StoreFault;
use countersign_authority::{TokenFault, TokenFilter, TokenOrder, TokenStatus, shown};
use countersign_policy::TokenBinding;
use http::{HeaderMap, Uri};
use serde_json::json;
use tracing::info;

use super::admission::TrustedHost;
use super::{ForemanDoor, answer, parameters};

/// `GET /puppet/ca/autosign`: the names that have a token which can be used.
pub(super) async fn list(State(door): State<ForemanDoor>) -> Response {
    match door.autosigned().await {
        Ok(names) => answer::json(&names),
        Err(fault) => answer::store("list autosign entries", &fault),
    }
}

/// `POST /puppet/ca/autosign/:certname`: a token in the place of those that the name has.
pub(super) async fn enable(
    State(door): State<ForemanDoor>,
    Extension(host): Extension<TrustedHost>,
    Path(certname): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let what = format!("enable autosign for {}", shown(&certname));
    let longest = door.authority().tokens.longest_seconds();
    let minutes = parameters::token_ttl(&uri, &headers, &body);
    let order = TokenOrder {
        // Foreman does not look at the time it asked for, and a build must not fail for it.
        ttl_seconds: minutes.map(|minutes| minutes.saturating_mul(60).min(longest)),
        note: "minted through the Foreman listener".to_owned(),
        ..TokenOrder::exact(&certname)
    };
    match door.authority().tokens.mint(order, &host.actor, None).await {
        Ok(minted) => {
            let id = &minted.record.id;
            info!(name = certname, token = %id, actor = %host.actor, "minted for a build");
            answer::secret_json(&json!({"generated_token": minted.token.expose()}))
        }
        Err(TokenFault::Engine(fault)) => answer::broken(&what, &fault),
        Err(fault) => answer::failed(&what, &fault),
    }
}

/// `DELETE /puppet/ca/autosign/:certname`: a name without a token stays one, so this goes well.
pub(super) async fn disable(
    State(door): State<ForemanDoor>,
    Extension(host): Extension<TrustedHost>,
    Path(certname): Path<String>,
) -> Response {
    let revoked = door
        .authority()
        .tokens
        .revoke_of(&certname, &host.actor)
        .await;
    let what = || format!("remove autosign for {}", shown(&certname));
    match revoked {
        Ok(count) => {
            let name = shown(&certname);
            info!(name, count, actor = %host.actor, "tokens taken back");
            answer::done()
        }
        Err(fault @ TokenFault::Forbidden(_)) => answer::failed(&what(), &fault),
        Err(TokenFault::Engine(fault)) => answer::broken(&what(), &fault),
        // Nobody of that name could have one.
        Err(
            TokenFault::Disabled
            | TokenFault::Name { .. }
            | TokenFault::Field { .. }
            | TokenFault::TooMany { .. }
            | TokenFault::AlreadyOrdered { .. }
            | TokenFault::NotFound { .. }
            | TokenFault::NotReserved { .. },
        ) => answer::done(),
    }
}

impl ForemanDoor {
    /// There are at most as many as tokens may be active.
    async fn autosigned(&self) -> Result<BTreeSet<String>, StoreFault> {
        let mut names = BTreeSet::new();
        if !self.authority().tokens.enabled() {
            return Ok(names);
        }
        let mut filter = TokenFilter {
            status: Some(TokenStatus::Active),
            ..TokenFilter::newest(self.authority().now(), PAGE)
        };
        loop {
            let page = self.authority().tokens.list(filter.clone()).await?;
            let is_last = page.len() < PAGE;
            filter.after = page.last().map(|last| last.record.id.clone());
            names.extend(
                page.into_iter()
                    .filter_map(|token| match token.record.binding {
                        TokenBinding::Exact(name) => Some(name),
                        TokenBinding::Glob(_) => None,
                    }),
            );
            if is_last {
                return Ok(names);
            }
        }
    }
}

const PAGE: usize = 1000;
