//! `/windows`: build windows, in which a name may enrol.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use countersign_api::{Window, WindowOpening, WindowState};
use countersign_authority::WindowFault;
use countersign_pki::UnixTime;
use countersign_policy::{BuildWindow, Rule, RuleEffect, RuleKind};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::cursor::{DEFAULT_LIMIT, MAX_LIMIT, Page, Paging, page_of};
use super::faults::{Refusal, Refused};
use super::machines::put_status;
use super::operation::{Operation, Tag};
use super::parameters::{Path, Query};
use super::{Administrator, EnrolDoor, json, optional_body};

fn item(window: BuildWindow, now: UnixTime, honoured_by: Vec<String>) -> Window {
    let state = if now >= window.closes_at {
        WindowState::Closed
    } else if window.issuances >= window.max_issuances {
        WindowState::Used
    } else if now < window.opens_at {
        WindowState::Waiting
    } else {
        WindowState::Open
    };
    Window {
        certname: window.certname,
        opens_at: window.opens_at,
        closes_at: window.closes_at,
        max_issuances: window.max_issuances,
        issuances: window.issuances,
        require_token: window.require_token,
        state,
        honoured_by,
    }
}

/// The rules in force that approve by a window.
fn honouring_rules(door: &EnrolDoor) -> Vec<String> {
    let rules = door.authority().rules();
    let is_window = |kind: &RuleKind| matches!(kind, RuleKind::Window);
    let honours =
        |rule: &&Rule| rule.effect == RuleEffect::Approve && rule.kinds.iter().any(is_window);
    let honouring = rules.policy.rules.iter().filter(honours);
    honouring
        .map(|rule| format!("{}/{}", rule.policy, rule.name))
        .collect()
}

/// The parameters of the list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listing {
    /// The cursor of the page before.
    cursor: Option<String>,
    /// How many items a page holds.
    #[schemars(with = "u32", range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
}

/// A window in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Named {
    /// The name that may enrol.
    #[schemars(example = "web01.example.com")]
    certname: String,
}

pub(super) const LIST: Operation =
    Operation::new("listWindows", Tag::Inventory, "List build windows")
        .about("By name, closed ones of the last day included.")
        .query::<Listing>()
        .answers::<Page<Window>>(200, "A page of windows.");

pub(super) async fn list(
    State(door): State<EnrolDoor>,
    Query(listing): Query<Listing>,
) -> Result<Response, Refusal> {
    let paging = Paging {
        cursor: listing.cursor,
        limit: listing.limit,
    };
    let size = paging.size()?;
    // One more tells whether there is another page.
    let windows = door
        .authority()
        .inventory
        .windows(paging.place::<String>()?, size.saturating_add(1))
        .await?;
    let now = door.authority().now();
    let place = |last: &BuildWindow| last.certname.clone();
    let rules = honouring_rules(&door);
    let page = page_of(windows, size, place, |one| {
        Some(item(one, now, rules.clone()))
    });
    Ok(json(StatusCode::OK, &page))
}

pub(super) const SHOW: Operation =
    Operation::new("showWindow", Tag::Inventory, "Show a build window")
        .path::<Named>()
        .answers::<Window>(200, "The window.")
        .refuses(&[Refused::NotFound]);

pub(super) async fn show(
    State(door): State<EnrolDoor>,
    Path(Named { certname }): Path<Named>,
) -> Result<Response, Refusal> {
    let found = door.authority().inventory.window(&certname).await?;
    let window = found.ok_or(WindowFault::NotFound { certname })?;
    let now = door.authority().now();
    let rules = honouring_rules(&door);
    Ok(json(StatusCode::OK, &item(window, now, rules)))
}

pub(super) const PUT: Operation =
    Operation::new("openWindow", Tag::Inventory, "Open a build window")
        .about("In the place of the one that the name has. Without `require_token: false` a token must come with the request.")
        .path::<Named>()
        .optional_body::<WindowOpening>()
        .answers::<Window>(200, "The window; the name had one before.")
        .or_answers(201, "The window, which is new.")
        .refuses(&[Refused::Conflict]);

/// A window in the place of the one that the name has, if it has one.
pub(super) async fn put(
    State(door): State<EnrolDoor>,
    Path(Named { certname }): Path<Named>,
    Administrator(actor): Administrator,
    body: Bytes,
) -> Result<Response, Refusal> {
    let opening: WindowOpening = optional_body(&body)?;
    let now = door.authority().now();
    let opens_at = opening.opens_at.unwrap_or(now);
    let closes_at = match (opening.closes_at, opening.seconds) {
        (Some(_), Some(_)) => {
            return Err(Refusal::Invalid {
                what: "closes_at and seconds say the same: leave one of them out".to_owned(),
            });
        }
        (Some(closes_at), None) => closes_at,
        (None, seconds) => opens_at.plus_seconds(seconds.unwrap_or(DEFAULT_SECONDS)),
    };
    let window = BuildWindow {
        certname,
        opens_at,
        closes_at,
        max_issuances: u32::try_from(opening.max_issuances.unwrap_or(1)).unwrap_or(u32::MAX),
        issuances: 0,
        require_token: opening.require_token.unwrap_or(true),
    };
    let (window, put) = door
        .authority()
        .inventory
        .open_window(window, &actor)
        .await?;
    let rules = honouring_rules(&door);
    Ok(json(put_status(put), &item(window, now, rules)))
}

pub(super) const DELETE: Operation =
    Operation::new("closeWindow", Tag::Inventory, "Close a build window")
        .path::<Named>()
        .answers_nothing(204, "It is closed.")
        .refuses(&[Refused::NotFound]);

pub(super) async fn delete(
    State(door): State<EnrolDoor>,
    Path(Named { certname }): Path<Named>,
    Administrator(actor): Administrator,
) -> Result<Response, Refusal> {
    door.authority()
        .inventory
        .close_window(&certname, &actor)
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

const DEFAULT_SECONDS: u64 = 2 * 3600; // a build takes less

const _: () = {
    assert!(countersign_api::MAX_WINDOW_SECONDS == countersign_authority::MAX_WINDOW_SECONDS);
    assert!(countersign_api::MAX_ISSUANCES == countersign_authority::MAX_ISSUANCES);
};
