//! `/certificates`: the ledger.

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use countersign_authority::{IssuerId, LedgerEntry};
use countersign_pki::{RevocationReason, Serial};
use http::StatusCode;
use serde::Deserialize;
use tracing::info;

use super::cursor::{Page, Paging};
use super::faults::Refusal;
use super::item::CertificateItem;
use super::{Administrator, EnrolDoor, Granted, json, optional_body};

/// The parameters of the list.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listing {
    issuer: Option<String>,
    name: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
}

/// What may come with a revocation: the reason by its name in RFC 5280 5.3.1.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Revoking {
    reason: Option<String>,
}

/// Where a page ends: issuer, name.
type Place = (String, String);

/// The newest certificate of each name, by issuer and name.
pub(super) async fn list(
    State(door): State<EnrolDoor>,
    listing: Result<Query<Listing>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(listing) = listing.map_err(|fault| Refusal::Invalid {
        what: fault.body_text(),
    })?;
    let paging = Paging {
        cursor: listing.cursor,
        limit: listing.limit,
    };
    let size = paging.size()?;
    let only = listing
        .issuer
        .as_deref()
        .map(|issuer| door.issuer(issuer))
        .transpose()?;
    let begin: Option<Place> = paging.place()?;
    let mut entries: Vec<LedgerEntry> = Vec::new();
    for issuer in door.authority().issuers().map(|issuer| issuer.id()) {
        let skipped = begin.as_ref().is_some_and(|(reached, _)| {
            let reached = reached.as_str();
            // Of one name there is one certificate per issuer: the reached one has been shown.
            issuer.as_str() < reached || listing.name.is_some() && issuer.as_str() == reached
        });
        if skipped || only.as_ref().is_some_and(|only| only != issuer) {
            continue;
        }
        if let Some(name) = &listing.name {
            entries.extend(door.authority().newest_certificate(issuer, name).await?);
            continue;
        }
        // One more tells whether there is another page.
        let wanted = size.saturating_add(1).saturating_sub(entries.len());
        if wanted == 0 {
            break;
        }
        let after = begin
            .as_ref()
            .filter(|(reached, _)| reached == issuer.as_str());
        let after = after.map(|(_, name)| name.clone());
        entries.extend(
            door.authority()
                .newest_certificates(issuer, after, wanted)
                .await?,
        );
    }
    let has_more = entries.len() > size;
    entries.truncate(size);
    let next: Option<Place> = entries
        .last()
        .filter(|_| has_more)
        .map(|last| (last.issuer.to_string(), last.name.clone()));
    let items = entries.iter().map(CertificateItem::short).collect();
    Ok(json(
        StatusCode::OK,
        &Page::<CertificateItem>::new(items, next.as_ref()),
    ))
}

pub(super) async fn show(
    State(door): State<EnrolDoor>,
    Path((issuer, serial)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let entry = door
        .entry(&door.issuer(&issuer)?, &parse_serial(&serial)?)
        .await?;
    Ok(json(StatusCode::OK, &CertificateItem::complete(&entry)))
}

/// Revoking again changes nothing and is answered like the first time.
pub(super) async fn revoke(
    State(door): State<EnrolDoor>,
    Path((issuer, serial)): Path<(String, String)>,
    Administrator(actor): Administrator,
    Granted(grant): Granted,
    body: Bytes,
) -> Result<Response, Refusal> {
    let Revoking { reason } = optional_body(&body)?;
    let reason = reason.map_or(Ok(RevocationReason::Unspecified), |name| {
        parse_reason(&name)
    })?;
    let (issuer, serial) = (door.issuer(&issuer)?, parse_serial(&serial)?);
    door.judge_revocation(&grant, &issuer, &serial).await?;
    let count = door
        .authority()
        .revoke_serial(&issuer, &serial, reason, &actor)
        .await?;
    info!(%issuer, %serial, count, %actor, "revoked");
    let entry = door.entry(&issuer, &serial).await?;
    Ok(json(StatusCode::OK, &CertificateItem::short(&entry)))
}

impl EnrolDoor {
    fn issuer(&self, name: &str) -> Result<IssuerId, Refusal> {
        let known = IssuerId::parse(name)
            .ok()
            .filter(|id| self.authority().issuer(id).is_some());
        known.ok_or_else(|| Refusal::NotFound {
            what: format!(
                "there is no issuer {}",
                countersign_pki::terminal_safe(name)
            ),
        })
    }

    pub(super) async fn entry(
        &self,
        issuer: &IssuerId,
        serial: &Serial,
    ) -> Result<LedgerEntry, Refusal> {
        let found = self.authority().certificate(issuer, serial).await?;
        found.ok_or_else(|| Refusal::NotFound {
            what: format!("issuer {issuer} has no certificate with serial {serial}"),
        })
    }
}

fn parse_serial(text: &str) -> Result<Serial, Refusal> {
    Serial::parse_hex(text).map_err(|fault| Refusal::Invalid {
        what: fault.to_string(),
    })
}

/// Reasons that a complete list can carry and nobody takes back.
fn parse_reason(name: &str) -> Result<RevocationReason, Refusal> {
    let permanent = |reason: &RevocationReason| {
        !matches!(
            reason,
            RevocationReason::CertificateHold | RevocationReason::RemoveFromCrl
        )
    };
    RevocationReason::from_name(name)
        .filter(permanent)
        .ok_or_else(|| Refusal::Invalid {
            what: "reason must be one of RFC 5280 5.3.1, such as keyCompromise or superseded"
                .to_owned(),
        })
}
