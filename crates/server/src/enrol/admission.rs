//! Who is let in: before a call is answered, its sender must have the role that the table of calls names for it.
//!
//! A refusal tells which role that is. It comes before anything is looked up, so it tells nothing else.

use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use countersign_authority::{IssuerId, RequestRecord, Revision};
use countersign_pki::{Certificate, CheckedCsr, Serial};
use countersign_policy::Requester;
use http::request::Parts;
use tracing::{error, info};

use super::faults::Refusal;
use super::requests::unreadable;
use super::{Callers, EnrolDoor};
use crate::access::{Grant, Names, Needed, Needs, Role};
use crate::body;
use crate::kubernetes::{User, impersonating};
use crate::peer::Peer;
use crate::puppet::{Caller, PuppetDoor};

/// Who acts, as the engine records it. Present on every call that was let through.
#[derive(Clone)]
pub(super) struct Administrator(pub(super) Requester);

impl<S: Sync> FromRequestParts<S> for Administrator {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refusal> {
        let admitted = parts.extensions.get::<Self>().cloned();
        admitted.ok_or_else(unguarded)
    }
}

/// What the sender may do, for calls that are about names in their body or on record.
#[derive(Clone)]
pub(super) struct Granted(pub(super) Grant);

impl<S: Sync> FromRequestParts<S> for Granted {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refusal> {
        let granted = parts.extensions.get::<Self>().cloned();
        granted.ok_or_else(unguarded)
    }
}

/// Stands before every call of the table.
pub(super) async fn guard(
    State((door, needs, max_body)): State<(EnrolDoor, Needs, usize)>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let (mut parts, body) = request.into_parts();
    // Where the path cannot be read it names nobody, and what answers the call says so.
    let named = params.as_ref().ok().and_then(named);
    door.admit(&parts, needs, named)?;
    let body = body::read(body, max_body).await?;
    // Who sends the body long after the head is judged as what it is when it acts.
    let (administrator, grant) = door.admit(&parts, needs, named)?;
    parts.extensions.insert(administrator);
    parts.extensions.insert(Granted(grant));
    let request = Request::from_parts(parts, Body::from(body));
    Ok(next.run(request).await)
}

/// Who has no role does not learn which calls there are.
pub(super) async fn no_such_call(State(door): State<EnrolDoor>, request: Request) -> Refusal {
    let (parts, _) = request.into_parts();
    match door.admit(&parts, Needs::Any, None) {
        Ok(_) => Refusal::NoSuchCall,
        Err(refusal) => refusal,
    }
}

pub(super) async fn no_such_method(State(door): State<EnrolDoor>, request: Request) -> Refusal {
    let (parts, _) = request.into_parts();
    match door.admit(&parts, Needs::Any, None) {
        Ok(_) => Refusal::MethodNotAllowed,
        Err(refusal) => refusal,
    }
}

/// The certname in a path, if it has one: the object of a Kubernetes client may have any name, whatever its request is
/// for.
fn named(params: &RawPathParams) -> Option<&str> {
    let find = |wanted: &[&str]| {
        let found = params.iter().find(|(key, _)| wanted.contains(key));
        found.map(|(_, value)| value)
    };
    match find(&["door"]) {
        Some(door) if door != PuppetDoor::DOOR.as_str() => None,
        Some(_) | None => find(&["name", "certname"]),
    }
}

impl EnrolDoor {
    /// Who calls and what it may do, if that is enough at this moment.
    fn admit(
        &self,
        parts: &Parts,
        needs: Needs,
        name: Option<&str>,
    ) -> Result<(Administrator, Grant), Refusal> {
        let Some(peer) = parts.extensions.get::<Peer>() else {
            error!("a request arrived without its peer");
            return Err(Refusal::Internal {
                what: "the connection is not known".to_owned(),
            });
        };
        let sender = self.sender(peer);
        let grant = sender
            .as_ref()
            .map_or(Grant::NOTHING, |(_, grant)| grant.clone());
        let admitted = grant.demand(needs, name);
        match (sender, admitted) {
            (Some(_), Ok(())) if impersonates(self.shared.callers, parts) => {
                Err(Refusal::Impersonation)
            }
            (Some((requester, grant)), Ok(())) => Ok((Administrator(requester), grant)),
            (Some((requester, _)), Err(needed)) => {
                info!(%requester, method = %parts.method, role = needed.role(), "forbidden");
                Err(Refusal::Forbidden(needed))
            }
            (None, Ok(())) => Err(Refusal::Unauthenticated(Needed::Any)),
            (None, Err(needed)) => Err(Refusal::Unauthenticated(needed)),
        }
    }

    /// Who calls, and what it may do. `None`: nobody who could be told apart. Beside the Puppet door a certificate that does
    /// not count is somebody without a role, beside the Kubernetes door nobody, as at the doors themselves.
    fn sender(&self, peer: &Peer) -> Option<(Requester, Grant)> {
        let (authority, issuer) = (self.authority(), &self.shared.issuer);
        let access = &self.shared.access;
        match self.shared.callers {
            Callers::Certnames => match Caller::of(peer, authority, issuer) {
                Caller::Nobody => None,
                caller => Some((caller.requester(peer), caller.grant(access))),
            },
            Callers::Users => {
                let user = User::behind(peer, authority, issuer)?;
                Some((user.requester(), access.of_groups(&user.groups())))
            }
        }
    }

    /// Whether this grant is enough to approve a request, and the version of it that was judged.
    pub(super) fn judge_approval(
        &self,
        grant: &Grant,
        record: &RequestRecord,
    ) -> Result<Option<Revision>, Refusal> {
        if grant.is_admin() {
            return Ok(None);
        }
        let csr = CheckedCsr::trusted_from_store(&record.csr_der).map_err(|fault| {
            error!(request = %record.id, %fault, "a stored request cannot be read");
            unreadable()
        })?;
        let access = &self.shared.access;
        access.judge_approval(grant, &record.key, &csr)?;
        Ok(Some(record.version))
    }

    /// Whether this grant is enough to revoke a certificate, by the name that it is for. Whoever may revoke some may
    /// read all, so that the ledger may be asked first.
    pub(super) async fn judge_revocation(
        &self,
        grant: &Grant,
        issuer: &IssuerId,
        serial: &Serial,
    ) -> Result<(), Refusal> {
        if grant.reaches_everything(Role::Sign) {
            return Ok(());
        }
        let entry = self.entry(issuer, serial).await?;
        let certificate = Certificate::parse(&entry.der).ok();
        let subject = certificate.as_ref().map(Certificate::subject);
        // Of some that were taken over there is an inventory's line alone, which has the certname.
        let name = subject.and_then(|subject| subject.first_common_name());
        let name = name.unwrap_or(&entry.name);
        Ok(grant.demand(Needs::Sign(Names::InPath), Some(name))?)
    }
}

/// As at the Kubernetes door: ignoring the headers would record the wrong sender.
fn impersonates(callers: Callers, parts: &Parts) -> bool {
    callers == Callers::Users && impersonating(&parts.headers).is_some()
}

/// A handler that the guard does not stand before.
fn unguarded() -> Refusal {
    error!("a call was not guarded");
    Refusal::Internal {
        what: "the caller is not known".to_owned(),
    }
}
