//! Who is let in: the holders of a few names' certificates, for every call alike.

use axum::response::Response;
use countersign_authority::{Actor, shown};
use http::request::Parts;

use super::{ForemanDoor, answer};
use crate::access::{Access, Entry, Grant, Holder, Names, Needs, Role};
use crate::frontend::{Admission, CallFault, Refused};
use crate::peer::Peer;
use crate::puppet::Caller;

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
pub(crate) struct TrustedHost {
    pub(super) actor: Actor,
}

impl Admission for ForemanDoor {
    type Caller = TrustedHost;

    async fn judge(
        &self,
        peer: &Peer,
        head: &mut Parts,
    ) -> Result<(TrustedHost, Option<usize>), Refused> {
        Ok((self.admit(peer, head)?, Some(self.puppet.max_request())))
    }

    async fn judge_again(
        &self,
        peer: &Peer,
        head: &Parts,
        _host: TrustedHost,
    ) -> Result<TrustedHost, Refused> {
        self.admit(peer, head)
    }

    fn failed(&self, fault: CallFault) -> Response {
        match fault {
            CallFault::NoPeer => answer::internal(),
            CallFault::Body(fault) => answer::bad_body(fault),
        }
    }
}

impl ForemanDoor {
    fn admit(&self, peer: &Peer, parts: &Parts) -> Result<TrustedHost, Refused> {
        let caller = match peer.foreign_name(self.authority().now()) {
            Some(certname) => Caller::Agent {
                certname: certname.to_owned(),
            },
            None => Caller::of(peer, self.authority(), self.puppet.issuer()),
        };
        let path = shown(parts.uri.path());
        let refused = |why: String| Err(answer::forbidden(why).into());
        let certname = match &caller {
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
                actor: Actor::with_roles(caller.requester(peer), grant),
            }),
            None => refused(format!(
                "Untrusted client {certname} attempted to access {path}. Check foreman.trusted_hosts in the \
                 configuration of Countersign"
            )),
        }
    }
}
