//! The Puppet door: the HTTP interface that agents, `puppetserver ca` and Foreman speak.
//!
//! It turns paths, PEM and Puppet's JSON into calls of the engine, and the engine's answers into the status codes and
//! sentences that Puppet's clients act upon. It decides nothing: who may call what is the table in `access`, what may
//! be signed is the signer's profile and the policy behind the engine.

mod access;
mod answer;
mod caller;
mod certificate;
mod certificate_renewal;
mod certificate_request;
mod certificate_revocation_list;
mod certificate_status;
mod certificate_statuses;
mod clean;
mod conditional;
mod expirations;
mod faults;
mod negotiation;
mod path;
pub mod profiles;
mod service_status;
mod sign;
mod status_object;

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use axum::response::Response;
use bytes::Bytes;
use countersign_authority::certname;
use countersign_authority::{Act, Actor, Authority, Door, DoorSpec, IssuerId, OnUnsignable};
use countersign_pki::UnixTime;
use countersign_policy::{Requester, SignerName};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method};
use tower::{ServiceExt, service_fn};

use crate::access::{Access, Needed};
use crate::frontend::{Admission, Admitted, CallFault, FrontEnd, Refused};
use crate::limits::{RequestLimits, TooMany};
use crate::peer::Peer;

pub use access::calls;
pub(crate) use caller::Caller;
pub use certificate_renewal::Renewals;
pub(crate) use certificate_status::REASON as REVOCATION_REASON;
pub use certname::{Certname, CertnameFault};
pub(crate) use status_object::{date, integer};

use path::Route;

/// What the door tells the engine of itself. A certificate that has ended may still be asked about.
pub static SPEC: DoorSpec = DoorSpec::plain(PuppetDoor::DOOR);

/// The Puppet door of an authority. Cheap to clone.
#[derive(Clone)]
pub struct PuppetDoor {
    shared: Arc<Shared>,
    /// May change while the door serves; clones share it.
    renewals: Arc<ArcSwap<Renewals>>,
    requests: RequestsShown,
    access: Access,
    /// Octets of a certificate request.
    max_request: usize,
    /// How often requests are taken; none: as often as they come.
    limits: Option<RequestLimits>,
}

/// Who may read a certificate request that waits, beside administrators and the holder of the name's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestsShown {
    /// Nobody.
    ToTheirOwn,
    /// Anybody, as long as the request cannot hold a secret: agents before version 6 look for their own so.
    ToAnybody,
}

struct Shared {
    authority: Authority,
    issuer: IssuerId,
    signer: SignerName,
    /// The issuer's chain file, byte for byte: agents pin the digest of the text.
    chain: Bytes,
    chain_modified: UnixTime,
}

/// Why a door cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PuppetDoorFault {
    /// The authority has no such issuer.
    #[error("the authority has no issuer {issuer} for its Puppet door")]
    UnknownIssuer {
        /// The name.
        issuer: IssuerId,
    },
}

impl PuppetDoor {
    /// The name under which the engine keeps this door's requests.
    pub const DOOR: Door = Door::named("puppet");

    /// Opens the door of `issuer`. Agents' requests go to `signer`; `chain_modified` is when the issuer's chain file was
    /// last written, which conditional requests are compared with.
    ///
    /// # Errors
    /// If the authority does not have the issuer.
    pub fn new(
        authority: Authority,
        issuer: IssuerId,
        signer: SignerName,
        chain_modified: UnixTime,
    ) -> Result<Self, PuppetDoorFault> {
        let chain = match authority.issuers.get(&issuer) {
            Some(found) => Bytes::copy_from_slice(found.chain_pem()),
            None => return Err(PuppetDoorFault::UnknownIssuer { issuer }),
        };
        let shared = Shared {
            authority,
            issuer,
            signer,
            chain,
            chain_modified,
        };
        Ok(Self {
            shared: Arc::new(shared),
            renewals: Arc::new(ArcSwap::from_pointee(Renewals::Refused)),
            requests: RequestsShown::ToTheirOwn,
            access: Access::default(),
            max_request: certificate_request::MAX_REQUEST,
            limits: None,
        })
    }

    /// The same door, where agents may or may not renew their certificates. At first they may not.
    #[must_use]
    pub fn with_renewals(self, renewals: Renewals) -> Self {
        self.set_renewals(renewals);
        self
    }

    /// Whether agents may renew from now on, at this door and every clone of it.
    pub fn set_renewals(&self, renewals: Renewals) {
        self.renewals.store(Arc::new(renewals));
    }

    fn renewals(&self) -> Renewals {
        **self.renewals.load()
    }

    /// The same door with other rules about who may read requests. At first only those whose they are.
    #[must_use]
    pub fn with_requests_shown(self, requests: RequestsShown) -> Self {
        Self { requests, ..self }
    }

    /// The same door, where roles are given by `access`. At first administrators' certificates alone have one.
    #[must_use]
    pub fn with_access(self, access: Access) -> Self {
        access.tell(self.authority());
        Self { access, ..self }
    }

    /// The same door for certificate requests of at most so many octets, in place of 64 KiB.
    #[must_use]
    pub fn with_max_request(self, max_request: usize) -> Self {
        Self {
            max_request,
            ..self
        }
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.shared.authority
    }

    pub(crate) fn issuer(&self) -> &IssuerId {
        &self.shared.issuer
    }

    pub(crate) fn signer(&self) -> &SignerName {
        &self.shared.signer
    }

    /// Octets of a certificate request.
    pub(crate) fn max_request(&self) -> usize {
        self.max_request
    }

    /// An act of an administrator on the request of a name, whatever its version.
    pub(crate) fn act(name: &str, actor: Actor, reason: &str) -> Act {
        Act {
            door: Self::DOOR,
            key: name.to_owned(),
            actor,
            reason: reason.to_owned(),
            expected: None,
            attachment: None,
            lifetime: None,
            on_unsignable: OnUnsignable::Refuse,
        }
    }

    async fn answer(&self, admitted: Admitted<Arrival>) -> Response {
        let Admitted {
            peer,
            caller: arrival,
            head,
            body,
        } = admitted;
        let path = arrival.path(&head);
        let Some(route) = path::route(path) else {
            return answer::unrouted();
        };
        match (&arrival.standing, route) {
            (Standing::Onlooker, Route::CertificateRequest(name)) => {
                self.get_public_request(name).await
            }
            (Standing::Onlooker, _) => answer::unrouted(),
            (Standing::Caller { caller, rate }, route) => {
                let call = Call {
                    peer: &peer,
                    caller,
                    access: &self.access,
                    path,
                    parts: &head,
                    rate: *rate,
                };
                self.serve(route, &call, &body).await
            }
        }
    }

    /// The caller, if it may use the method on the path at this moment.
    fn admit(&self, peer: &Peer, method: &Method, path: &str) -> Result<Caller, Refused> {
        let caller = Caller::of(peer, self.authority(), self.issuer());
        match access::admit(method, path, &caller, &self.access) {
            Ok(()) => Ok(caller),
            Err(needed) => Err(answer::forbidden(path, method, needed.as_ref()).into()),
        }
    }

    /// Whether somebody asks for a request who may not see it but for the rule that shows requests to anybody.
    fn is_onlooker(&self, peer: &Peer, method: &Method, path: &str) -> bool {
        if self.requests != RequestsShown::ToAnybody || *method != Method::GET {
            return false;
        }
        let Some(Route::CertificateRequest(_)) = path::route(path) else {
            return false;
        };
        let caller = Caller::of(peer, self.authority(), self.issuer());
        access::admit(method, path, &caller, &self.access).is_err()
    }

    /// What the engine does at length has an allocation of its own: agents mostly fetch, and need none of it.
    async fn serve(&self, route: Route<'_>, call: &Call<'_>, body: &[u8]) -> Response {
        let Parts {
            method,
            uri,
            headers,
            ..
        } = call.parts;
        // `access` has admitted the method for the path, so what does not match here is a route that we do not serve.
        match (route, method) {
            (Route::Certificate(name), &Method::GET) => self.get_certificate(name, headers).await,
            (Route::Crl, &Method::GET) => self.get_crl(headers),
            (Route::FullCrl, &Method::GET) => self.get_full_crl(headers),
            (Route::CrlUpdate, &Method::PUT) => Box::pin(self.put_crls(call, body)).await,
            (Route::CertificateRequest(name), &Method::GET) => self.get_request(name).await,
            (Route::CertificateRequest(name), &Method::PUT) => {
                Box::pin(self.put_request(name, call, body)).await
            }
            (Route::CertificateRequest(name), &Method::DELETE) => {
                Box::pin(self.delete_request(name, call)).await
            }
            (Route::CertificateStatus(name), &Method::GET) => self.get_status(name, headers).await,
            (Route::CertificateStatus(name), &Method::PUT) => {
                Box::pin(self.put_status(name, call, body)).await
            }
            (Route::CertificateStatus(name), &Method::DELETE) => {
                Box::pin(self.delete_status(name, call, headers)).await
            }
            (Route::CertificateStatus(_), _) => answer::method_not_allowed("GET, PUT, DELETE"),
            (Route::CertificateStatuses, &Method::GET) => {
                self.get_statuses(uri.query(), headers).await
            }
            (Route::CertificateStatuses, _) => answer::method_not_allowed("GET"),
            (Route::CertificateStatusesWithoutSegment, _) => {
                answer::bad_request("Missing URL Segment".to_owned())
            }
            (Route::CertificateRenewal, &Method::POST) => Box::pin(self.renew(call)).await,
            (Route::Expirations, &Method::GET) => self.expirations(),
            (Route::Clean, &Method::PUT) => Box::pin(self.clean(call, body)).await,
            (Route::Sign, &Method::POST) => self.sign_named(call, body).await,
            (Route::SignAll, &Method::POST) => self.sign_all(call).await,
            (Route::Services(service), &Method::GET) => self.services(service).await,
            (Route::Simple(service), &Method::GET) => self.simple(service).await,
            (
                Route::Certificate(_)
                | Route::Crl
                | Route::FullCrl
                | Route::CrlUpdate
                | Route::CertificateRequest(_)
                | Route::CertificateRenewal
                | Route::Expirations
                | Route::Clean
                | Route::Sign
                | Route::SignAll
                | Route::Services(_)
                | Route::Simple(_),
                _,
            ) => answer::unrouted(),
        }
    }
}

impl PuppetDoor {
    /// How long a body may be; `None`: the call has none, and what comes all the same is not read.
    fn body_limit(&self, route: Route<'_>, method: &Method) -> Option<usize> {
        match (route, method) {
            (Route::CertificateRequest(_), &Method::PUT) => Some(self.max_request),
            _ => body_limit(route, method),
        }
    }
}

fn body_limit(route: Route<'_>, method: &Method) -> Option<usize> {
    match (route, method) {
        (Route::CertificateStatus(_), &Method::PUT) => Some(certificate_status::MAX_BODY),
        (Route::Sign, &Method::POST) => Some(sign::MAX_BODY),
        (Route::Clean, &Method::PUT) => Some(clean::MAX_BODY),
        (Route::CrlUpdate, &Method::PUT) => Some(certificate_revocation_list::MAX_BODY),
        (
            Route::Certificate(_)
            | Route::CertificateRequest(_)
            | Route::CertificateStatus(_)
            | Route::CertificateStatuses
            | Route::CertificateStatusesWithoutSegment
            | Route::CertificateRenewal
            | Route::Crl
            | Route::FullCrl
            | Route::CrlUpdate
            | Route::Clean
            | Route::Expirations
            | Route::Sign
            | Route::SignAll
            | Route::Services(_)
            | Route::Simple(_),
            _,
        ) => None,
    }
}

impl Admission for PuppetDoor {
    type Caller = Arrival;

    async fn judge(
        &self,
        peer: &Peer,
        head: &mut Parts,
    ) -> Result<(Arrival, Option<usize>), Refused> {
        let (method, sent) = (&head.method, head.uri.path());
        let path = path::normalize(sent)
            .map_err(|fault| answer::bad_request(format!("Bad Request: {fault}")))?;
        let arrived = |standing| Arrival {
            normal_path: (path != sent).then(|| path.clone().into_owned()),
            standing,
        };
        if self.is_onlooker(peer, method, &path) {
            return Ok((arrived(Standing::Onlooker), None));
        }
        let caller = self.admit(peer, method, &path)?;
        let route = path::route(&path).ok_or_else(answer::unrouted)?;
        let rate = match self.admit_rate(&caller, peer, route, method) {
            Ok(rate) => rate,
            Err(fault) => return Err(answer::too_many(fault).into()),
        };
        let standing = Standing::Caller { caller, rate };
        Ok((arrived(standing), self.body_limit(route, method)))
    }

    async fn judge_again(
        &self,
        peer: &Peer,
        head: &Parts,
        arrival: Arrival,
    ) -> Result<Arrival, Refused> {
        let standing = match arrival.standing {
            Standing::Onlooker => Standing::Onlooker,
            Standing::Caller { rate, .. } => Standing::Caller {
                caller: self.admit(peer, &head.method, arrival.path(head))?,
                rate,
            },
        };
        Ok(Arrival {
            standing,
            ..arrival
        })
    }

    fn failed(&self, fault: CallFault) -> Response {
        match fault {
            CallFault::NoPeer => answer::internal("the connection is not known"),
            CallFault::Body(fault) => answer::bad_body(fault),
        }
    }
}

/// A call at the front end.
pub(crate) struct Arrival {
    /// Unless it is the path as it was sent.
    normal_path: Option<String>,
    standing: Standing,
}

impl Arrival {
    /// The path in normal form.
    fn path<'a>(&'a self, head: &'a Parts) -> &'a str {
        self.normal_path.as_deref().unwrap_or(head.uri.path())
    }
}

/// As what somebody is let in.
enum Standing {
    /// As whoever the certificate says.
    Caller { caller: Caller, rate: Rate },
    /// As anybody, to see a request that is no secret.
    Onlooker,
}

/// One request and who sends it.
struct Call<'a> {
    peer: &'a Peer,
    caller: &'a Caller,
    access: &'a Access,
    /// In normal form.
    path: &'a str,
    parts: &'a Parts,
    rate: Rate,
}

/// How a certificate request stands with the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rate {
    /// Within them, or not counted.
    Within,
    /// Its name has been asked for too often; only a good token lets it through.
    NameSpent(TooMany),
}

impl Call<'_> {
    fn requester(&self) -> Requester {
        self.caller.requester(self.peer)
    }

    fn actor(&self) -> Actor {
        let mut parameters = self.parts.uri.query().unwrap_or_default().split('&');
        let insists = parameters.any(|pair| pair == "force=true");
        self.caller.actor(self.peer, self.access).insisting(insists)
    }

    /// Refuses what the rules let through because of what the body or the records say.
    fn forbidden(&self, needed: &Needed) -> Response {
        let method = &self.parts.method;
        answer::forbidden(self.path, method, Some(needed))
    }
}

/// The door as a service. It answers every path, so it is merged with others that have paths of their own.
pub fn router(door: PuppetDoor) -> Router {
    let door = Arc::new(door);
    let answering = Arc::clone(&door);
    let answers = service_fn(move |call| {
        let door = Arc::clone(&answering);
        async move { Ok::<_, Infallible>(door.answer(call).await) }
    });
    let versioned = FrontEnd::new(door, answers).map_response(|mut response: Response| {
        let version = HeaderValue::from_static(COMPATIBLE_VERSION);
        response.headers_mut().insert(VERSION_HEADER, version);
        response
    });
    Router::new().fallback_service(versioned)
}

/// Agents read it, per server, as a Ruby Gem version; they take JSON for granted from 5.0.0 on.
const VERSION_HEADER: HeaderName = HeaderName::from_static("x-puppet-version");

/// The Puppet Server whose interface this is. From 8.4.0 on `puppetserver ca sign` uses the bulk calls.
const COMPATIBLE_VERSION: &str = "8.4.0";
