//! `sign` and `sign/all`: many requests at once.

use std::collections::HashSet;

use axum::response::Response;
use countersign_authority::store::{RequestFilter, StoreFault};
use countersign_authority::{ActFault, RequestState};
use futures_util::{StreamExt, stream};
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use tracing::warn;

use super::certname::Certname;
use super::{Call, PuppetDoor, answer, faults};
use crate::access::{Names, Needed, Needs};

/// Which names were signed and which were not. Clients need all three lists, even if empty.
#[derive(Debug, Default, Serialize)]
struct Outcomes {
    signed: Vec<String>,
    #[serde(rename = "no-csr")]
    no_csr: Vec<String>,
    #[serde(rename = "signing-errors")]
    signing_errors: Vec<String>,
}

impl PuppetDoor {
    /// Signs the requests of the names in the body.
    pub(super) async fn sign_named(&self, call: &Call<'_>, body: &[u8]) -> Response {
        // A body that cannot be read, or names nobody, signs nothing: so the reference answers.
        let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
        let names = match parsed.get("certnames") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(names)) if names.iter().all(Value::is_string) => names
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            Some(other) => return schema_violation(other),
        };
        if let Err(needed) = self.judge_names(call, &names) {
            return call.forbidden(&needed);
        }
        outcomes_answer(&self.sign_each(names, call).await)
    }

    /// Signs every request that waits. The body is not looked at.
    pub(super) async fn sign_all(&self, call: &Call<'_>) -> Response {
        match self.pending_names().await {
            Ok(names) => outcomes_answer(&self.sign_each(names, call).await),
            Err(fault) => faults::store(&fault),
        }
    }

    /// Whether the caller's role reaches every one of the names, before any of them is looked up.
    pub(super) fn judge_names(&self, call: &Call<'_>, names: &[String]) -> Result<(), Needed> {
        let grant = call.caller.grant(&self.access);
        let needs = Needs::Sign(Names::InPath);
        names
            .iter()
            .try_for_each(|name| grant.demand(needs, Some(name)))
    }

    /// Several at a time: the store commits those together that arrive together.
    async fn sign_each(&self, names: Vec<String>, call: &Call<'_>) -> Outcomes {
        let actor = &call.actor();
        let mut seen = HashSet::new();
        let once: Vec<String> = names
            .into_iter()
            .filter(|name| seen.insert(name.clone()))
            .collect();
        let mut signing = stream::iter(once)
            .map(|name| async move {
                let outcome = match Certname::parse(&name) {
                    Ok(_) => {
                        let act = Self::act(&name, actor.clone(), "");
                        Some(self.sign(act).await)
                    }
                    Err(_) => None,
                };
                (name, outcome)
            })
            .buffered(AT_ONCE);
        let mut outcomes = Outcomes::default();
        while let Some((name, outcome)) = signing.next().await {
            let name = answer::masked(name);
            match outcome {
                Some(Ok(_)) => outcomes.signed.push(name),
                None | Some(Err(ActFault::NotFound { .. })) => outcomes.no_csr.push(name),
                Some(Err(fault)) => {
                    warn!(name, %fault, "not signed");
                    outcomes.signing_errors.push(name);
                }
            }
        }
        outcomes
    }

    async fn pending_names(&self) -> Result<Vec<String>, StoreFault> {
        let mut names = Vec::new();
        let mut after = None;
        loop {
            let filter = RequestFilter {
                door: Some(Self::DOOR),
                states: vec![RequestState::Pending],
                live_only: true,
                after,
                limit: PAGE,
                ..RequestFilter::default()
            };
            let page = self.authority().requests.list(filter).await?;
            let is_last = page.len() < PAGE;
            after = page
                .last()
                .map(|last| (Self::DOOR, last.key.clone(), last.id));
            names.extend(page.into_iter().map(|record| record.key));
            if is_last {
                return Ok(names);
            }
        }
    }
}

fn outcomes_answer(outcomes: &Outcomes) -> Response {
    match serde_json::to_string(outcomes) {
        Ok(json) => answer::with(StatusCode::OK, "application/json", json),
        Err(_) => answer::internal("the outcome cannot be written"),
    }
}

fn schema_violation(submitted: &Value) -> Response {
    let body = json!({
        "kind": "schema-violation",
        "submitted": submitted,
        "error": "certnames must be an array of strings",
    });
    answer::with(
        StatusCode::UNPROCESSABLE_ENTITY,
        "application/json",
        body.to_string(),
    )
}

pub(super) const MAX_BODY: usize = 4 * 1024 * 1024; // some ten thousand names of the greatest length
const AT_ONCE: usize = 32;
const PAGE: usize = 1000;
