//! Who is let in: before a call is answered, its sender must have the role that the table of calls names for it.
//!
//! A refusal tells which role that is. It comes before anything is looked up, so it tells nothing else.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::response::{IntoResponse, Response};
use countersign_authority::Actor;
use http::request::Parts;
use tracing::error;

use super::faults::Refusal;
use super::{Callers, EnrolDoor};
use crate::access::{Grant, Needed, Needs};
use crate::frontend::{Admission, CallFault, FrontEndLayer, Refused};
use crate::kubernetes::{User, impersonating};
use crate::peer::Peer;
use crate::puppet::{Caller, PuppetDoor};

/// Who acts, as the engine judges and records it. Present on every call that was let through.
pub(super) struct Administrator(pub(super) Actor);

impl<S: Sync> FromRequestParts<S> for Administrator {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refusal> {
        caller(parts).map(|caller| Self(caller.actor.clone()))
    }
}

/// What the sender may do, for calls that are about names in their body or on record.
pub(super) struct Granted(pub(super) Grant);

impl<S: Sync> FromRequestParts<S> for Granted {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refusal> {
        caller(parts).map(|caller| Self(caller.actor.grant.clone()))
    }
}

/// Stands before a call of the table, and before what is none.
pub(super) struct Guard {
    pub(super) door: EnrolDoor,
    pub(super) needs: Needs,
    /// Octets of the body; `None`: it is not read.
    pub(super) max_body: Option<usize>,
}

impl Guard {
    /// Who has no role does not learn which calls there are.
    pub(super) fn of_no_call(door: &EnrolDoor) -> FrontEndLayer<Self> {
        FrontEndLayer::new(Self {
            door: door.clone(),
            needs: Needs::Any,
            max_body: None,
        })
    }
}

/// Somebody who calls.
#[derive(Clone)]
pub(super) struct EnrolCaller {
    actor: Actor,
    /// The certname in the path.
    named: Option<String>,
}

impl Admission for Guard {
    type Caller = EnrolCaller;

    async fn judge(
        &self,
        peer: &Peer,
        head: &mut Parts,
    ) -> Result<(EnrolCaller, Option<usize>), Refused> {
        // Where the path cannot be read it names nobody, and what answers the call says so.
        let params = RawPathParams::from_request_parts(head, &()).await;
        let named = params
            .ok()
            .and_then(|params| named(&params).map(str::to_owned));
        let caller = self.door.admit(peer, head, self.needs, named)?;
        Ok((caller, self.max_body))
    }

    async fn judge_again(
        &self,
        peer: &Peer,
        head: &Parts,
        caller: EnrolCaller,
    ) -> Result<EnrolCaller, Refused> {
        Ok(self.door.admit(peer, head, self.needs, caller.named)?)
    }

    fn failed(&self, fault: CallFault) -> Response {
        let refusal = match fault {
            CallFault::NoPeer => Refusal::Internal {
                what: "the connection is not known".to_owned(),
            },
            CallFault::Body(fault) => fault.into(),
        };
        refusal.into_response()
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
        peer: &Peer,
        head: &Parts,
        needs: Needs,
        named: Option<String>,
    ) -> Result<EnrolCaller, Refusal> {
        let sender = self.sender(peer);
        let grant = sender.as_ref().map(|actor| &actor.grant);
        let admitted = grant
            .unwrap_or(&Grant::NOTHING)
            .demand(needs, named.as_deref());
        match (sender, admitted) {
            (Some(_), Ok(())) if impersonates(self.shared.callers, head) => {
                Err(Refusal::Impersonation)
            }
            (Some(actor), Ok(())) => Ok(EnrolCaller { actor, named }),
            (Some(_), Err(needed)) => Err(Refusal::Forbidden(needed)),
            (None, Ok(())) => Err(Refusal::Unauthenticated(Needed::Any)),
            (None, Err(needed)) => Err(Refusal::Unauthenticated(needed)),
        }
    }

    /// Who calls, and what it may do. `None`: nobody who could be told apart. Beside the Puppet door a certificate that does
    /// not count is somebody without a role, beside the Kubernetes door nobody, as at the doors themselves.
    fn sender(&self, peer: &Peer) -> Option<Actor> {
        let (authority, issuer) = (self.authority(), &self.shared.issuer);
        let access = &self.shared.access;
        match self.shared.callers {
            Callers::Certnames => match Caller::of(peer, authority, issuer) {
                Caller::Nobody => None,
                caller => Some(caller.actor(peer, access)),
            },
            Callers::Users => {
                let user = User::behind(peer, authority, issuer)?;
                let grant = access.of_groups(&user.groups());
                Some(Actor::with_roles(user.requester(), grant))
            }
        }
    }
}

/// As at the Kubernetes door: ignoring the headers would record the wrong sender.
fn impersonates(callers: Callers, parts: &Parts) -> bool {
    callers == Callers::Users && impersonating(&parts.headers).is_some()
}

/// Who was let through; a refusal in a handler that the guard does not stand before.
fn caller(parts: &Parts) -> Result<&EnrolCaller, Refusal> {
    parts.extensions.get().ok_or_else(|| {
        error!("a call was not guarded");
        Refusal::Internal {
            what: "the caller is not known".to_owned(),
        }
    })
}
