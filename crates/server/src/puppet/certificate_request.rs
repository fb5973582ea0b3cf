//! `certificate_request`: agents ask, administrators look and delete.

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use countersign_authority::store::{Past, StoreFault};
use countersign_authority::{
    ActFault, CarriedToken, Duplicate, OnWaiting, RequestRecord, RequestState, Submission,
    SubmitFault, Submitted,
};
use countersign_pki::oid::{self, Oid};
use countersign_pki::{Attribute, CheckedCsr, CsrLimits, pem, terminal_safe};
use countersign_policy::Wishes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Method, StatusCode};
use tracing::info;

use super::certname::{Certname, CertnameFault};
use super::path::Route;
use super::{Call, Caller, PuppetDoor, Rate, SPEC, answer, faults};
use crate::limits::{RequestLimits, Scope, TooMany};
use crate::peer::Peer;

impl PuppetDoor {
    /// The door as a service that takes certificate requests within limits. Those over them are answered without a
    /// look at what they contain, but for a good token where it is the name that was asked for too often.
    pub fn router_within(self, limits: RequestLimits) -> Router {
        super::router(Self {
            limits: Some(limits),
            ..self
        })
    }

    /// Counts a certificate request of anybody but an administrator.
    pub(super) fn admit_rate(
        &self,
        caller: &Caller,
        peer: &Peer,
        route: Route<'_>,
        method: &Method,
    ) -> Result<Rate, TooMany> {
        let (Some(limits), Route::CertificateRequest(name)) = (&self.limits, route) else {
            return Ok(Rate::Within);
        };
        if *method != Method::PUT || caller.grant(&self.access).is_admin() {
            return Ok(Rate::Within);
        }
        match limits.admit(peer.address.ip(), Some(name), self.authority().now()) {
            Ok(()) => Ok(Rate::Within),
            Err(fault) if fault.scope == Scope::Certname && self.authority().tokens.enabled() => {
                Ok(Rate::NameSpent(fault))
            }
            Err(fault) => Err(fault),
        }
    }

    /// Whether the limits let a request through. A token that is good does, whoever has used up the budget of its name or
    /// sent wrong ones under its public part: it is compared before the request is given up, and nothing else is done.
    async fn admit_token(
        &self,
        csr: &CheckedCsr,
        carried: &CarriedToken,
        name: &str,
        call: &Call<'_>,
    ) -> Result<(), Response> {
        let (source, now) = (call.peer.address.ip(), self.authority().now());
        let admitted = self
            .limits
            .as_ref()
            .map(|limits| limits.admit_token(source, carried, now));
        let fault = match (admitted, call.rate) {
            (Some(Err(fault)), _) | (_, Rate::NameSpent(fault)) => fault,
            (Some(Ok(())) | None, Rate::Within) => return Ok(()),
        };
        let is_good = match carried {
            CarriedToken::Id(_) => self.authority().tokens.has_good(csr, name).await,
            CarriedToken::None | CarriedToken::Bootstrap(_) | CarriedToken::Other => Ok(false),
        };
        match is_good {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.count_token_failure(carried, call.peer);
                Err(answer::too_many(fault))
            }
            Err(fault) => Err(faults::store(&fault)),
        }
    }

    fn count_token_failure(&self, carried: &CarriedToken, peer: &Peer) {
        if let Some(limits) = &self.limits {
            limits.token_failed(peer.address.ip(), carried, self.authority().now());
        }
    }

    /// Counts a request by what became of it: wrong tokens count as such, and good ones do not count against their name.
    fn settle_rate(
        &self,
        submitted: &Submitted,
        carried: &CarriedToken,
        name: &str,
        call: &Call<'_>,
    ) {
        let is_failure = submitted.wrong_token || submitted.code.is_token_failure();
        match (submitted.state, carried, &self.limits) {
            (RequestState::Denied | RequestState::Pending, _, _) if is_failure => {
                self.count_token_failure(carried, call.peer);
            }
            (RequestState::Issued, CarriedToken::Id(_), Some(limits))
                if call.rate == Rate::Within && !call.caller.grant(&self.access).is_admin() =>
            {
                limits.forgive(name, self.authority().now());
            }
            _ => {}
        }
    }

    /// The waiting request of a name.
    pub(super) async fn get_request(&self, name: &str) -> Response {
        match self.waiting(name).await {
            Ok(Some(record)) => answer::ok(pem::encode("CERTIFICATE REQUEST", &record.csr_der)),
            Ok(None) => answer::not_found(format!("Could not find certificate_request {name}")),
            Err(fault) => faults::store(&fault),
        }
    }

    /// What anybody may see of a name's request, where requests are public: one that may hold a secret is as good as
    /// none, and so is one that was never sent.
    pub(super) async fn get_public_request(&self, name: &str) -> Response {
        match self.waiting(name).await {
            Ok(Some(record)) if is_harmless(&record) => {
                answer::ok(pem::encode("CERTIFICATE REQUEST", &record.csr_der))
            }
            Ok(_) => answer::not_found(format!("Could not find certificate_request {name}")),
            Err(fault) => faults::store(&fault),
        }
    }

    /// The bounds of one request, for bodies of the size that is configured.
    pub(crate) fn csr_limits(&self) -> CsrLimits {
        CsrLimits::for_pem(self.max_request)
    }

    /// Takes a request. The order of the checks can be observed and is Puppet Server's: the message itself, then
    /// whether its common name is taken, then whether it is the name in the path, then the form of the name.
    pub(super) async fn put_request(&self, name: &str, call: &Call<'_>, text: &[u8]) -> Response {
        let csr = match (CheckedCsr::from_pem(text, &self.csr_limits()), call.rate) {
            (Ok(csr), _) => csr,
            (Err(_), Rate::NameSpent(fault)) => return answer::too_many(fault),
            (Err(fault), Rate::Within) => return faults::unreadable(&fault),
        };
        let carried = self.authority().tokens.carried(&csr);
        if let Err(refusal) = self.admit_token(&csr, &carried, name, call).await {
            return refusal;
        }
        let certname = Certname::parse(name);
        if certname == Err(CertnameFault::TokenShaped) {
            return answer::bad_request(CertnameFault::TokenShaped.to_string());
        }
        let common_name = csr.subject().first_common_name().unwrap_or_default();
        if common_name != name {
            return self.mismatch(common_name, name).await;
        }
        let certname = match certname {
            Ok(certname) => certname,
            Err(fault) => return answer::bad_request(fault.to_string()),
        };
        let wishes = Wishes {
            expiration_seconds: self.renewals().first_lifetime(&csr),
            ..Wishes::default()
        };
        // Looked at again if the name turns out to be taken, which says nothing about the token.
        let with_token = matches!(carried, CarriedToken::Id(_)).then(|| csr.clone());
        let submission = Submission {
            door: &SPEC,
            key: certname.into_string(),
            csr,
            signer: self.shared.signer.clone(),
            requester: call.requester(),
            wishes,
            attachment: Vec::new(),
            bearer: None,
            decision: None,
        };
        match self.authority().requests.submit(submission).await {
            Ok(submitted) => {
                self.settle_rate(&submitted, &carried, name, call);
                taken(name, &submitted)
            }
            Err(SubmitFault::Duplicate { key, duplicate }) => {
                if let Some(csr) = with_token
                    && let Ok(false) = self.authority().tokens.has_good(&csr, name).await
                {
                    self.count_token_failure(&carried, call.peer);
                }
                already_has(&key, duplicate)
            }
            Err(SubmitFault::Denied { id, .. }) => faults::denied(id),
            Err(SubmitFault::TooManyWaiting { limit, .. }) => too_many_waiting(&format!(
                "from this address wait to be signed (limit {limit})"
            )),
            Err(SubmitFault::NoRoomToWait { limit }) => too_many_waiting(&format!(
                "wait to be signed: together they take more than {limit} bytes"
            )),
            Err(fault @ (SubmitFault::InProgress { .. } | SubmitFault::TooManyRenewals { .. })) => {
                answer::unavailable(&fault.to_string())
            }
            Err(SubmitFault::Forbidden(needed)) => call.forbidden(&needed),
            Err(SubmitFault::Engine(fault)) => faults::broken(&fault),
        }
    }

    /// Forgets a request, so that the name may ask again.
    pub(super) async fn delete_request(&self, name: &str, call: &Call<'_>) -> Response {
        let act = Self::act(name, call.actor(), "");
        match self.authority().requests.delete(act).await {
            Ok(record) => {
                info!(name, request = %record.id, "request deleted");
                answer::no_content()
            }
            Err(ActFault::NotFound { .. }) => {
                answer::not_found(format!("No certificate request for {name}"))
            }
            Err(fault) => faults::act(call, &fault),
        }
    }

    /// The request that occupies a name and waits to be signed. One that a person denied is not shown at this door.
    pub(super) async fn waiting(&self, name: &str) -> Result<Option<RequestRecord>, StoreFault> {
        let live = self
            .authority()
            .requests
            .at(&Self::DOOR, name, Past::Ignore)
            .await?;
        Ok(live.filter(|record| {
            matches!(record.state, RequestState::Pending | RequestState::Approved)
        }))
    }

    /// A request for another name than the path's: a taken name is reported before the mismatch.
    async fn mismatch(&self, common_name: &str, name: &str) -> Response {
        match self.duplicate_of(common_name).await {
            Ok(Some(duplicate)) => already_has(common_name, duplicate),
            Ok(None) => answer::bad_request(format!(
                "Instance name \"{}\" does not match requested key \"{name}\"",
                terminal_safe(common_name)
            )),
            Err(fault) => faults::store(&fault),
        }
    }

    /// Whether a name that is known already may ask again.
    pub(super) fn replaces_waiting(&self) -> bool {
        let signer = self.authority().rules().signer(&self.shared.signer);
        signer.is_some_and(|signer| signer.on_waiting == OnWaiting::Replace)
    }

    async fn duplicate_of(&self, common_name: &str) -> Result<Option<Duplicate>, StoreFault> {
        if self.replaces_waiting() {
            return Ok(None);
        }
        // Only names of this form can be taken.
        if Certname::parse(common_name).is_err() {
            return Ok(None);
        }
        if self.waiting(common_name).await?.is_some() {
            return Ok(Some(Duplicate::Requested));
        }
        let newest = self
            .authority()
            .ledger
            .newest(self.issuer(), common_name)
            .await?;
        Ok(newest.map(|entry| match entry.revoked {
            Some(_) => Duplicate::Revoked,
            None => Duplicate::Signed,
        }))
    }
}

/// Nothing is stored. Agents wait as long as their `waitforcert` does by default; somebody may have signed by then.
fn too_many_waiting(why: &str) -> Response {
    let sentence = format!(
        "Too many certificate requests {why}. An administrator has to sign \
         or delete some of them. Try again in {WAITING_SECONDS} seconds."
    );
    let mut response = answer::refused(StatusCode::TOO_MANY_REQUESTS, answer::SENTENCE, sentence);
    let seconds = HeaderValue::from(WAITING_SECONDS);
    response.headers_mut().insert(RETRY_AFTER, seconds);
    response
}

/// Whether everybody may read a request: it has no attribute that may hold a secret, only requested extensions and the
/// marker of automatic renewal, and no extension that is a secret by its name.
fn is_harmless(record: &RequestRecord) -> bool {
    let Ok(csr) = CheckedCsr::trusted_from_store(&record.csr_der) else {
        return false;
    };
    let is_known = |attribute: &Attribute| HARMLESS_ATTRIBUTES.contains(&attribute.oid);
    csr.attributes().iter().all(is_known) && csr.extension(&oid::PP_PRESHARED_KEY).is_none()
}

fn taken(name: &str, submitted: &Submitted) -> Response {
    match (&submitted.unsignable, submitted.state) {
        // It is stored all the same, and waits for an administrator.
        (Some(fault), _) if submitted.automatic => {
            answer::bad_request(faults::unsignable(name, fault))
        }
        (_, RequestState::Denied) if submitted.code.is_about_token() => {
            faults::not_authorised(submitted.id)
        }
        (_, RequestState::Denied) => faults::denied(submitted.id),
        (_, RequestState::Undecided) => faults::undecided(submitted.id),
        (
            _,
            RequestState::Pending
            | RequestState::Approved
            | RequestState::Issued
            | RequestState::Failed,
        ) => answer::ok(Body::empty()),
    }
}

fn already_has(name: &str, duplicate: Duplicate) -> Response {
    answer::bad_request(format!(
        "{} already has a {duplicate} certificate; ignoring certificate request",
        terminal_safe(name)
    ))
}

const HARMLESS_ATTRIBUTES: [Oid; 2] = [oid::EXTENSION_REQUEST, oid::PP_AUTH_AUTO_RENEW];
/// As long as agents wait between two attempts by default.
const WAITING_SECONDS: u32 = 120;
/// Four times what an agent with many extensions sends; what is longer is refused before it is read.
pub(super) const MAX_REQUEST: usize = 64 * 1024;
