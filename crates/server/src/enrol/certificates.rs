//! `/certificates`: the ledger.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use countersign_api::{Certificate, REVOCATION_REASONS, Revocation};
use countersign_authority::{IssuerId, LedgerEntry};
use countersign_pki::{RevocationReason, Serial};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use tracing::info;

use super::cursor::{DEFAULT_LIMIT, MAX_LIMIT, Page, Paging, page};
use super::faults::{Refusal, Refused};
use super::item;
use super::operation::{Operation, Tag};
use super::parameters::{Path, Query};
use super::{Administrator, EnrolDoor, json, optional_body};

/// The parameters of the list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Listing {
    /// Only this issuer.
    issuer: Option<String>,
    /// Only this name.
    name: Option<String>,
    /// The cursor of the page before.
    cursor: Option<String>,
    /// How many items a page holds.
    #[schemars(with = "u32", range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
}

/// The parameters of one certificate.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Numbered {
    /// The issuer.
    #[schemars(example = &"puppet")]
    issuer: String,
    /// Serial number in hexadecimal digits of either case, 0x in front or not.
    #[schemars(regex(pattern = "^(0[xX])?0{0,24}[1-9a-fA-F][0-9a-fA-F]{0,39}$"))]
    serial: String,
}

/// Where a page ends: issuer, name.
type Place = (String, String);

pub(super) const LIST: Operation =
    Operation::new("listCertificates", Tag::Certificates, "List certificates")
        .about("The newest certificate of each name, by issuer and name.")
        .query::<Listing>()
        .answers::<Page<Certificate>>(200, "A page of certificates.")
        .refuses(&[Refused::NotFound]);

pub(super) async fn list(
    State(door): State<EnrolDoor>,
    Query(listing): Query<Listing>,
) -> Result<Response, Refusal> {
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
    for issuer in door.authority().issuers.all() {
        let issuer = issuer.id();
        let skipped = begin.as_ref().is_some_and(|(reached, _)| {
            let reached = reached.as_str();
            // Of one name there is one certificate per issuer: the reached one has been shown.
            issuer.as_str() < reached || listing.name.is_some() && issuer.as_str() == reached
        });
        if skipped || only.as_ref().is_some_and(|only| only != issuer) {
            continue;
        }
        if let Some(name) = &listing.name {
            entries.extend(door.authority().ledger.newest(issuer, name).await?);
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
                .ledger
                .newest_of_each(issuer, after, wanted)
                .await?,
        );
    }
    let has_more = entries.len() > size;
    entries.truncate(size);
    let next: Option<Place> = entries
        .last()
        .filter(|_| has_more)
        .map(|last| (last.issuer.to_string(), last.name.clone()));
    let items = entries.iter().map(item::certificate).collect();
    Ok(json(StatusCode::OK, &page(items, next.as_ref())))
}

pub(super) const SHOW: Operation =
    Operation::new("showCertificate", Tag::Certificates, "Show a certificate")
        .about("With the decision that led to it.")
        .path::<Numbered>()
        .answers::<Certificate>(200, "The certificate.")
        .refuses(&[Refused::NotFound]);

pub(super) async fn show(
    State(door): State<EnrolDoor>,
    Path(Numbered { issuer, serial }): Path<Numbered>,
) -> Result<Response, Refusal> {
    let entry = door
        .entry(&door.issuer(&issuer)?, &parse_serial(&serial)?)
        .await?;
    Ok(json(StatusCode::OK, &item::complete_certificate(&entry)))
}

pub(super) const REVOKE: Operation =
    Operation::new("revokeCertificate", Tag::Certificates, "Revoke a certificate")
        .about(
            "It counts nowhere any more, and stands in the published list, before the answer is sent. Revocation again \
             changes nothing: the first date and reason stand.",
        )
        .path::<Numbered>()
        .optional_body::<Revocation>()
        .answers::<Certificate>(200, "The certificate.")
        .refuses(&[Refused::NotFound]);

pub(super) async fn revoke(
    State(door): State<EnrolDoor>,
    Path(Numbered { issuer, serial }): Path<Numbered>,
    Administrator(actor): Administrator,
    body: Bytes,
) -> Result<Response, Refusal> {
    let Revocation { reason } = optional_body(&body)?;
    let reason = reason.map_or(Ok(RevocationReason::Unspecified), |name| {
        parse_reason(&name)
    })?;
    let (issuer, serial) = (door.issuer(&issuer)?, parse_serial(&serial)?);
    let count = door
        .authority()
        .ledger
        .revoke_serial(&issuer, &serial, reason, &actor)
        .await?;
    info!(%issuer, %serial, count, %actor, "revoked");
    let entry = door.entry(&issuer, &serial).await?;
    Ok(json(StatusCode::OK, &item::certificate(&entry)))
}

impl EnrolDoor {
    fn issuer(&self, name: &str) -> Result<IssuerId, Refusal> {
        let known = IssuerId::parse(name)
            .ok()
            .filter(|id| self.authority().issuers.get(id).is_some());
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
        let found = self.authority().ledger.get(issuer, serial).await?;
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

fn parse_reason(name: &str) -> Result<RevocationReason, Refusal> {
    RevocationReason::from_name(name)
        .filter(|reason| REVOCATION_REASONS.contains(reason))
        .ok_or_else(|| Refusal::Invalid {
            what: "reason must be one of RFC 5280 5.3.1, such as keyCompromise or superseded"
                .to_owned(),
        })
}
