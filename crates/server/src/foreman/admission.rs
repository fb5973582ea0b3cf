//! Who is let in: the holders of a few names' certificates, for every call alike.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use countersign_policy::Requester;
use http::request::Parts;
use tracing::{error, info};

use super::{ForemanDoor, answer};
use crate::access::{Access, Entry, Grant, Holder, Names, Needs, Role};
use crate::body;
use crate::peer::Peer;
use crate::puppet::Caller;
use crate::redaction::shown;

/// The hosts that may call; none: nobody may. Cheap to clone; clones change together.
#[derive(Clone, Debug)]
pub struct TrustedHosts(Access);

impl TrustedHosts {
    /// The holders of these names' certificates.
    pub fn new(names: &[String]) -> Self {
        let trusted = Self(Access::default());
        trusted.set(names);
        trusted
    }

    /// Other hosts from now on, also on connections that are open.
    pub fn set(&self, names: &[String]) {
        self.0.set(Self::roles(names));
    }

    /// What these names may do here. Where their certificates are the Puppet issuer's, whoever approves requests of such
    /// a name must be told ([`Access::set_elsewhere`]).
    pub fn roles(names: &[String]) -> Vec<Entry> {
        let roles = |name: &String| {
            let holder = Holder::Certname(name.to_ascii_lowercase());
            [Role::Mint, Role::Sign].map(|role| Entry {
                holder: holder.clone(),
                role,
                suffixes: Vec::new(),
            })
        };
        names.iter().flat_map(roles).collect()
    }

    /// What a host may do here, and nowhere else: mint, sign, clean and read.
    fn grant(&self, certname: &str) -> Option<Grant> {
        let grant = self.0.of_certname(&certname.to_ascii_lowercase());
        let is_trusted = [Needs::Mint(Names::All), Needs::Sign(Names::All)]
            .into_iter()
            .all(|needs| grant.demand(needs, None).is_ok());
        is_trusted.then_some(grant)
    }
}

/// Who calls. Present on every call that was let through.
#[derive(Clone)]
pub(super) struct TrustedHost {
    pub(super) requester: Requester,
    pub(super) grant: Grant,
}

/// Lets the calls of trusted hosts through, with whole bodies.
pub(super) async fn admit(
    State(door): State<ForemanDoor>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    if let Err(refused) = door.admit(&parts) {
        return refused.answer();
    }
    let body = match body::read(body, door.puppet.max_request()).await {
        Ok(body) => body,
        Err(fault) => return answer::bad_body(fault),
    };
    // Who sends the body long after the head is judged as what it is when it acts.
    match door.admit(&parts) {
        Ok(host) => parts.extensions.insert(host),
        Err(refused) => return refused.answer(),
    };
    next.run(Request::from_parts(parts, Body::from(body))).await
}

/// Why a call is not let through.
enum Refused {
    /// It came without its connection.
    Unconnected,
    /// In words for whoever calls.
    Forbidden(String),
}

impl Refused {
    fn answer(self) -> Response {
        match self {
            Self::Unconnected => answer::internal(),
            Self::Forbidden(why) => answer::forbidden(why),
        }
    }
}

impl ForemanDoor {
    fn admit(&self, parts: &Parts) -> Result<TrustedHost, Refused> {
        let Some(peer) = parts.extensions.get::<Peer>() else {
            error!("a request arrived without its peer");
            return Err(Refused::Unconnected);
        };
        let foreign = peer.foreign_name(self.authority().now());
        let caller = match foreign {
            Some(certname) => Caller::Agent { certname },
            None => Caller::of(peer, self.authority(), self.puppet.issuer()),
        };
        let path = shown(parts.uri.path());
        let refused = |why: String| {
            info!(%path, method = %parts.method, %caller, "forbidden");
            Err(Refused::Forbidden(why))
        };
        let certname = match caller {
            Caller::Nobody => return refused("No client SSL certificate supplied".to_owned()),
            Caller::Refused => {
                let why = "The client SSL certificate does not count here: it has ended, was revoked, or is of another \
                           authority";
                return refused(why.to_owned());
            }
            Caller::Agent { certname } | Caller::Administrator { certname } => certname,
        };
        match self.trusted.grant(certname) {
            Some(grant) => Ok(TrustedHost {
                requester: caller.requester(peer),
                grant,
            }),
            None => refused(format!(
                "Untrusted client {certname} attempted to access {path}. Check foreman.trusted_hosts in the \
                 configuration of Countersign"
            )),
        }
    }
}
