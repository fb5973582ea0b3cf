//! Who sends a request, and what they may do.
//!
//! Administrators may do everything. Who shows an enrolment token may create requests and see those that it created.
//! Nobody else may do anything, who shows a bootstrap token included.
//!
//! A client certificate is an identity here only if the ledger says that one of the signers of API
//! clients issued it, under this door's issuer: a certificate that any other signer made for another
//! purpose, or another trust domain, is none, whatever its names say.

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use countersign_authority::RequestRecord;
use countersign_kapi::status::Refused;
use countersign_kapi::{Resource, Status, UserInfo};
use countersign_policy::{Identity, Requester};
use http::{HeaderMap, HeaderName};

use super::KubernetesDoor;
use super::answer::Refusal;
use super::bearer::{Bearer, is_token_name};
use crate::limits::RequestLimits;
use crate::peer::{KnownClient, Peer, PeerIdentity};

/// An authenticated sender.
#[derive(Clone, Debug)]
pub(crate) struct User {
    info: UserInfo,
    source: IpAddr,
    credential: Credential,
}

/// What a sender was known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credential {
    Certificate,
    EnrolmentToken,
    BootstrapToken,
}

/// Which objects somebody may do something with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// All of them.
    Everything,
    /// Those that they created; the others are not there.
    Own,
    /// None.
    Nothing,
}

/// What somebody wants to do with certificate signing requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access<'a> {
    /// The verb, as access rules spell it.
    pub(super) verb: &'a str,
    /// The object's name; empty for collections.
    pub(super) name: &'a str,
    /// The subresource; empty for the object itself.
    pub(super) subresource: &'a str,
}

/// Lets requests of known users through, with the user as an extension.
pub(super) async fn admit(
    State(door): State<KubernetesDoor>,
    mut request: Request,
    next: Next,
) -> Response {
    let bearer = Bearer::take(request.headers_mut());
    let peer = request.extensions().get().cloned();
    let known = match &peer {
        Some(peer) => {
            let limits = request.extensions().get().cloned();
            User::known(peer, bearer.as_ref(), &door, limits.as_ref()).await
        }
        None => Ok(None),
    };
    let user = match known {
        Ok(Some(user)) => user,
        Ok(None) => return Refusal::from(Status::unauthorized()).into_response(),
        Err(refusal) => return refusal.into_response(),
    };
    if let Some(refused) = impersonation(request.headers(), &user) {
        return Refusal::from(refused).into_response();
    }
    request.extensions_mut().insert(user);
    if let Some(bearer) = bearer {
        request.extensions_mut().insert(bearer);
    }
    next.run(request).await
}

impl User {
    /// The sender of a request at this moment: by its certificate, else by the token that it shows. Wrong tokens count
    /// against limits.
    pub(super) async fn known(
        peer: &Peer,
        bearer: Option<&Bearer>,
        door: &KubernetesDoor,
        limits: Option<&RequestLimits>,
    ) -> Result<Option<Self>, Refusal> {
        if let Some(user) = Self::behind(peer, door) {
            return Ok(Some(user));
        }
        let Some(bearer) = bearer else {
            return Ok(None);
        };
        let source = peer.address.ip().to_canonical();
        let known = bearer.user(door, source, limits).await?;
        Ok(known.map(|(info, credential)| Self {
            info,
            source,
            credential,
        }))
    }

    /// The user behind a connection, if its certificate is good for this door at this moment.
    pub(crate) fn behind(peer: &Peer, door: &KubernetesDoor) -> Option<Self> {
        match peer.identity(&door.authority) {
            PeerIdentity::Anonymous | PeerIdentity::Refused => None,
            PeerIdentity::Client(client) => {
                let info = user_info(client, door)?;
                Some(Self {
                    info,
                    source: peer.address.ip().to_canonical(),
                    credential: Credential::Certificate,
                })
            }
        }
    }

    /// As the API records users.
    pub(super) fn info(&self) -> &UserInfo {
        &self.info
    }

    /// The groups that the user's certificate names.
    pub(crate) fn groups(&self) -> Vec<&str> {
        self.info.groups.iter().map(String::as_str).collect()
    }

    /// As the engine records senders.
    pub(crate) fn requester(&self) -> Requester {
        let UserInfo {
            username,
            uid,
            groups,
            extra,
        } = self.info.clone();
        Requester {
            identity: Identity::User {
                username,
                groups,
                uid,
                extra,
            },
            source: Some(self.source),
        }
    }

    /// What the user may do something with.
    pub(super) fn reach(&self, access: Access<'_>) -> Reach {
        match self.credential {
            Credential::Certificate if self.is_administrator() => Reach::Everything,
            Credential::Certificate | Credential::BootstrapToken => Reach::Nothing,
            Credential::EnrolmentToken => match (access.verb, access.subresource) {
                ("create" | "list" | "watch", "") | ("get", "" | "status") => Reach::Own,
                (_, _) => Reach::Nothing,
            },
        }
    }

    pub(super) fn is_administrator(&self) -> bool {
        self.info.groups.iter().any(|group| group == MASTERS)
    }

    /// Refuses what the user may not do with any object.
    pub(super) fn authorize(&self, access: Access<'_>) -> Result<Reach, Refusal> {
        match self.reach(access) {
            Reach::Nothing => Err(Resource::CSR
                .forbidden(&Refused {
                    user: &self.info.username,
                    verb: access.verb,
                    name: access.name,
                    subresource: access.subresource,
                    reason: "",
                })
                .into()),
            reach => Ok(reach),
        }
    }

    /// Whether the user has created what is recorded.
    pub(super) fn owns(&self, record: &RequestRecord) -> bool {
        match &record.requester.identity {
            Identity::User { username, .. } => *username == self.info.username,
            Identity::Certname { .. } | Identity::Anonymous | Identity::Authority => false,
        }
    }
}

/// User name, groups and credential of a client certificate, as API servers read them: Go's parser
/// keeps the last common name, and every organization is a group.
fn user_info(client: &KnownClient, door: &KubernetesDoor) -> Option<UserInfo> {
    if client.issuer != door.issuer || !CLIENT_SIGNERS.contains(&client.signer.as_str()) {
        return None;
    }
    let subject = client.certificate.subject();
    let username = subject
        .last_common_name()
        // A token's name is a token's alone: the engine and whoever reads an object go by it.
        .filter(|name| !name.is_empty() && !is_token_name(name))?
        .to_owned();
    let mut groups: Vec<String> = subject.organizations().map(str::to_owned).collect();
    groups.push(AUTHENTICATED.to_owned());
    let credential = format!("X509SHA256={}", client.certificate.fingerprint().to_hex());
    let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![credential])]);
    Some(UserInfo {
        username,
        uid: String::new(),
        groups,
        extra,
    })
}

/// Nobody may act as somebody else: ignoring the headers would record the wrong sender.
fn impersonation(headers: &HeaderMap, user: &User) -> Option<Status> {
    let header = impersonating(headers)?;
    let name = headers
        .get("impersonate-user")
        .unwrap_or(headers.get(header)?);
    let users = Resource {
        group: "",
        resource: "users",
        kind: "User",
    };
    Some(users.forbidden(&Refused {
        user: &user.info.username,
        verb: "impersonate",
        name: name.to_str().unwrap_or_default(),
        subresource: "",
        reason: "",
    }))
}

/// The header by which somebody asks to act as somebody else.
pub(crate) fn impersonating(headers: &HeaderMap) -> Option<&HeaderName> {
    let is_impersonation = |name: &&HeaderName| name.as_str().starts_with("impersonate-");
    headers.keys().find(is_impersonation)
}

/// The signers whose certificates are identities at this door; the last one issues only at the word of
/// an administrator, never to a request that came through a door.
const CLIENT_SIGNERS: [&str; 3] = [
    "kubernetes.io/kube-apiserver-client",
    "kubernetes.io/kube-apiserver-client-kubelet",
    "countersign.dev/kubernetes-admin",
];
/// The group whose members may do everything.
pub(super) const MASTERS: &str = "system:masters";
pub(super) const AUTHENTICATED: &str = "system:authenticated";
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
