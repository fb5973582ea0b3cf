//! What Foreman sees of certificates and requests, signs and cleans.

use std::collections::BTreeMap;
use std::io;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use countersign_authority::store::StoreFault;
use countersign_authority::{ActFault, LedgerEntry, RequestId, RequestRecord, RevokeFault, shown};
use countersign_pki::{UnixTime, sha256_colon};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use serde_json::value::RawValue;
use tracing::{error, info};

use super::admission::TrustedHost;
use super::{ForemanDoor, answer};
use crate::puppet::{Certname, PuppetDoor, REVOCATION_REASON, date, integer};

/// `GET /puppet/ca`: an object with a member for every name, of any length.
pub(super) async fn list(State(door): State<ForemanDoor>) -> Response {
    let mut listing = Listing {
        door,
        next: Some(Cursor::Requests { after: None }),
        is_begun: false,
    };
    // A store that fails at once is answered with a status; later it can only cut the answer short.
    let first = match listing.page().await {
        Ok(first) => first.unwrap_or_default(),
        Err(fault) => return answer::store("list certificates", &fault),
    };
    let rest = stream::try_unfold(listing, |mut listing| async move {
        match listing.page().await {
            Ok(page) => Ok(page.map(|page| (page, listing))),
            Err(fault) => {
                error!(
                    error = &fault as &dyn std::error::Error,
                    "listing broken off"
                );
                Err(io::Error::other("the store failed"))
            }
        }
    });
    let pages = stream::once(async { Ok::<_, io::Error>(first) });
    answer::stream(Body::from_stream(pages.chain(rest)))
}

/// `POST /puppet/ca/:certname`: signs the request that waits.
pub(super) async fn sign(
    State(door): State<ForemanDoor>,
    Extension(host): Extension<TrustedHost>,
    Path(certname): Path<String>,
) -> Response {
    let what = format!("sign certificate(s) for {}", shown(&certname));
    if let Err(fault) = Certname::parse(&certname) {
        return answer::failed(&what, &fault);
    }
    let act = PuppetDoor::act(&certname, host.actor, "");
    match door.puppet.sign(act).await {
        Ok(_) => answer::done(),
        Err(ActFault::Engine(fault)) => answer::broken(&what, &fault),
        Err(fault) => answer::failed(&what, &fault),
    }
}

/// `POST /puppet/ca/autosign`: a path that a host of that name could have had.
pub(super) async fn not_a_name() -> Response {
    answer::failed(
        "sign certificate(s) for autosign",
        &"the path belongs to another call; sign it with `countersign ca sign --certname autosign`",
    )
}

/// `DELETE /puppet/ca/:certname`: revokes what the name has and takes it off the books, so that it may enrol again. A name
/// that has nothing is clean.
pub(super) async fn clean(
    State(door): State<ForemanDoor>,
    Extension(host): Extension<TrustedHost>,
    Path(certname): Path<String>,
) -> Response {
    door.clean(&certname, &host).await
}

pub(super) async fn clean_autosign(
    State(door): State<ForemanDoor>,
    Extension(host): Extension<TrustedHost>,
) -> Response {
    door.clean("autosign", &host).await
}

pub(super) async fn clean_validate(
    State(door): State<ForemanDoor>,
    Extension(host): Extension<TrustedHost>,
) -> Response {
    door.clean("validate", &host).await
}

impl ForemanDoor {
    async fn clean(&self, certname: &str, host: &TrustedHost) -> Response {
        let what = format!("remove certificate(s) for {}", shown(certname));
        let (authority, issuer) = (self.authority(), self.puppet.issuer());
        let (names, actor) = (vec![certname.to_owned()], &host.actor);
        let cleaned = authority
            .ledger
            .clean(issuer, names, REVOCATION_REASON, actor);
        match cleaned.await {
            Ok(_) | Err(RevokeFault::NoCertificate { .. }) => {}
            Err(fault @ (RevokeFault::UnknownIssuer { .. } | RevokeFault::Forbidden(_))) => {
                return answer::failed(&what, &fault);
            }
            Err(RevokeFault::Engine(fault)) => return answer::broken(&what, &fault),
        }
        // And the request that waits, which cleaning leaves.
        let door = PuppetDoor::DOOR;
        match authority
            .ledger
            .retire(issuer, certname, &door, actor)
            .await
        {
            Ok(_) => {
                let name = shown(certname);
                info!(name, %actor, "cleaned");
                answer::done()
            }
            Err(RevokeFault::Engine(fault)) => answer::broken(&what, &fault),
            Err(
                fault @ (RevokeFault::NoCertificate { .. }
                | RevokeFault::UnknownIssuer { .. }
                | RevokeFault::Forbidden(_)),
            ) => answer::failed(&what, &fault),
        }
    }
}

/// One name, as the smart proxy describes it.
#[derive(Debug, Serialize)]
struct Described {
    state: &'static str,
    fingerprint: String,
    serial: Option<Box<RawValue>>,
    not_before: Option<String>,
    not_after: Option<String>,
}

impl Described {
    /// One that has ended is as good as revoked to Foreman.
    fn certificate(entry: &LedgerEntry, now: UnixTime) -> Self {
        let is_over = entry.revoked.is_some() || entry.not_after < now;
        Self {
            state: if is_over { "revoked" } else { "valid" },
            fingerprint: sha256_colon(&entry.der),
            serial: integer(&entry.serial),
            not_before: Some(date(entry.not_before)),
            not_after: Some(date(entry.not_after)),
        }
    }

    fn request(record: &RequestRecord) -> Self {
        Self {
            state: "pending",
            fingerprint: sha256_colon(&record.csr_der),
            serial: None,
            not_before: None,
            not_after: None,
        }
    }
}

/// How far a listing has come.
struct Listing {
    door: ForemanDoor,
    next: Option<Cursor>,
    is_begun: bool,
}

enum Cursor {
    Requests { after: Option<(String, RequestId)> },
    Certificates { after: Option<String> },
    End,
}

impl Listing {
    /// The next part of the object's text; `None`: that was all.
    async fn page(&mut self) -> Result<Option<Bytes>, StoreFault> {
        let Some(place) = self.next.take() else {
            return Ok(None);
        };
        let described = match place {
            Cursor::Requests { after } => self.requests(after).await?,
            Cursor::Certificates { after } => self.certificates(after).await?,
            Cursor::End => {
                let end: &[u8] = if self.is_begun { b"}" } else { b"{}" };
                return Ok(Some(Bytes::from_static(end)));
            }
        };
        let mut text = Vec::new();
        for (name, described) in described {
            let member = serde_json::to_vec(&BTreeMap::from([(name, described)]));
            // An object of one member, without its braces.
            let member = member.unwrap_or_default();
            let member = member.strip_prefix(b"{").and_then(|m| m.strip_suffix(b"}"));
            let Some(member) = member else {
                error!("a name of the listing cannot be written; skipped");
                continue;
            };
            text.push(if self.is_begun { b',' } else { b'{' });
            self.is_begun = true;
            text.extend_from_slice(member);
        }
        Ok(Some(Bytes::from(text)))
    }

    /// Names that wait for their first certificate.
    async fn requests(
        &mut self,
        after: Option<(String, RequestId)>,
    ) -> Result<Vec<(String, Described)>, StoreFault> {
        let puppet = &self.door.puppet;
        let page = puppet.waiting_page(after).await?;
        self.next = Some(match page.last() {
            Some(last) if page.len() >= PuppetDoor::PAGE => Cursor::Requests {
                after: Some((last.key.clone(), last.id)),
            },
            Some(_) | None => Cursor::Certificates { after: None },
        });
        let mut described = Vec::new();
        for record in page {
            let newest = self
                .door
                .authority()
                .ledger
                .newest(puppet.issuer(), &record.key);
            // Every name stands once, and its certificate says more.
            if newest.await?.is_none() {
                let waits = Described::request(&record);
                described.push((record.key, waits));
            }
        }
        Ok(described)
    }

    async fn certificates(
        &mut self,
        after: Option<String>,
    ) -> Result<Vec<(String, Described)>, StoreFault> {
        let (authority, issuer) = (self.door.authority(), self.door.puppet.issuer());
        let page = authority
            .ledger
            .newest_of_each(issuer, after, PuppetDoor::PAGE);
        let page = page.await?;
        self.next = Some(match page.last() {
            Some(last) if page.len() >= PuppetDoor::PAGE => Cursor::Certificates {
                after: Some(last.name.clone()),
            },
            Some(_) | None => Cursor::End,
        });
        let now = authority.now();
        let describe = |entry: LedgerEntry| {
            let described = Described::certificate(&entry, now);
            (entry.name, described)
        };
        Ok(page.into_iter().map(describe).collect())
    }
}
