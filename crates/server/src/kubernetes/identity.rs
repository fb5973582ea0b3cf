//! Who sends a request: by a client certificate, else by a bearer token, else nobody in particular.
//!
//! A client certificate is an identity here only if the ledger says that one of the signers of API
//! clients issued it, under this door's issuer: a certificate that any other signer made for another
//! purpose, or another trust domain, is none, whatever its names say.
//!
//! Who shows nothing is `system:anonymous`, as on real servers: refused like anybody whom no role was given (403). Who
//! shows something that does not count is told so (401).

use std::collections::BTreeMap;
use std::net::IpAddr;

use countersign_authority::{Authority, BearerToken, IssuerId, RequestRecord};
use countersign_kapi::rbac::{Attributes, MASTERS, ResourceAction};
use countersign_kapi::{Status, UserInfo};
use countersign_pki::{Oid, Subject};
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Credential {
    Certificate,
    EnrolmentToken(BearerToken),
    BootstrapToken,
    Nothing,
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

impl KubernetesDoor {
    /// The sender of a call, if it is as good as it says, and the token that it shows, which leaves the head.
    pub(super) async fn authenticate(
        &self,
        peer: &Peer,
        headers: &mut HeaderMap,
    ) -> Result<(User, Option<Bearer>), Refusal> {
        let bearer = Bearer::take(headers);
        let known = User::known(peer, bearer.as_ref(), self, self.limits.as_ref()).await?;
        let user = known.ok_or_else(Status::unauthorized)?;
        match impersonation(headers, &user) {
            Some(refused) => Err(refused.into()),
            None => Ok((user, bearer)),
        }
    }
}

impl User {
    /// The sender of a request at this moment: by its certificate, else by the token that it shows. Wrong tokens count
    /// against limits. `None`: what it shows does not count.
    pub(super) async fn known(
        peer: &Peer,
        bearer: Option<&Bearer>,
        door: &KubernetesDoor,
        limits: Option<&RequestLimits>,
    ) -> Result<Option<Self>, Refusal> {
        let source = peer.address.ip().to_canonical();
        let shown = match peer.identity(&door.authority) {
            PeerIdentity::Anonymous => Shown::Nobody,
            PeerIdentity::Refused => Shown::Refused,
            PeerIdentity::Client(client) => Shown::by(client, &door.issuer),
        };
        let by = |info, credential| Self {
            info,
            source,
            credential,
        };
        match (shown, bearer) {
            (Shown::User(info), _) => Ok(Some(by(info, Credential::Certificate))),
            (_, Some(bearer)) => {
                let known = bearer.user(door, source, limits).await?;
                Ok(known.map(|(info, credential)| by(info, credential)))
            }
            (Shown::Nobody, None) => Ok(Some(by(nobody(), Credential::Nothing))),
            (Shown::Refused, None) => Ok(None),
        }
    }

    /// The user behind a connection, if its certificate is good at this moment for whom this issuer's clients are.
    pub(crate) fn behind(peer: &Peer, authority: &Authority, issuer: &IssuerId) -> Option<Self> {
        match peer.identity(authority) {
            PeerIdentity::Anonymous | PeerIdentity::Refused => None,
            PeerIdentity::Client(client) => match Shown::by(client, issuer) {
                Shown::Nobody | Shown::Refused => None,
                Shown::User(info) => Some(Self {
                    info,
                    source: peer.address.ip().to_canonical(),
                    credential: Credential::Certificate,
                }),
            },
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

    /// Where the user comes from.
    pub(super) fn source(&self) -> IpAddr {
        self.source
    }

    /// The enrolment token that the user is known by.
    pub(super) fn enrolment_token(&self) -> Option<&BearerToken> {
        match &self.credential {
            Credential::EnrolmentToken(token) => Some(token),
            Credential::Certificate | Credential::BootstrapToken | Credential::Nothing => None,
        }
    }

    /// Whether the user is known by a token of whatever kind.
    pub(super) fn bears_token(&self) -> bool {
        match self.credential {
            Credential::EnrolmentToken(_) | Credential::BootstrapToken => true,
            Credential::Certificate | Credential::Nothing => false,
        }
    }

    pub(super) fn is_administrator(&self) -> bool {
        self.info.groups.iter().any(|group| group == MASTERS)
    }

    /// Whether the user has created what is recorded.
    pub(super) fn owns(&self, record: &RequestRecord) -> bool {
        match &record.requester.identity {
            Identity::User { username, .. } => *username == self.info.username,
            Identity::Certname { .. } | Identity::Anonymous | Identity::Authority => false,
        }
    }
}

/// What a certificate says about its holder.
enum Shown {
    /// A user.
    User(UserInfo),
    /// Nothing: it names nobody.
    Nobody,
    /// It does not count here.
    Refused,
}

impl Shown {
    /// User name, id, groups and credential of a client certificate, as API servers read them: Go's parser
    /// keeps the last common name, and every organization is a group.
    fn by(client: &KnownClient, issuer: &IssuerId) -> Self {
        if client.issuer != *issuer || !CLIENT_SIGNERS.contains(&client.signer.as_str()) {
            return Self::Refused;
        }
        let subject = client.certificate.subject();
        let username = match subject.last_common_name() {
            None | Some("") => return Self::Nobody,
            // A token's name is a token's alone: the engine and whoever reads an object go by it.
            Some(name) if is_token_name(name) => return Self::Refused,
            Some(name) => name.to_owned(),
        };
        let Some(uid) = uid(subject) else {
            return Self::Refused;
        };
        let mut groups: Vec<String> = subject.organizations().map(str::to_owned).collect();
        groups.push(AUTHENTICATED.to_owned());
        let credential = format!("X509SHA256={}", client.certificate.fingerprint().to_hex());
        let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![credential])]);
        Self::User(UserInfo {
            username,
            uid,
            groups,
            extra,
        })
    }
}

/// The id of a user in a certificate's subject; empty if it has none. `None`: it has several, or one that is no text.
fn uid(subject: &Subject) -> Option<String> {
    let mut found = subject
        .attributes()
        .filter(|attribute| attribute.oid == UID_ATTRIBUTE);
    let Some(first) = found.next() else {
        return Some(String::new());
    };
    let text = first.value.text().filter(|text| !text.is_empty())?;
    found.next().is_none().then(|| text.to_owned())
}

/// Who shows nothing.
fn nobody() -> UserInfo {
    UserInfo {
        username: ANONYMOUS.to_owned(),
        groups: vec![UNAUTHENTICATED.to_owned()],
        ..UserInfo::default()
    }
}

/// Nobody may act as somebody else: ignoring the headers would record the wrong sender.
fn impersonation(headers: &HeaderMap, user: &User) -> Option<Status> {
    let header = impersonating(headers)?;
    let name = headers
        .get("impersonate-user")
        .unwrap_or(headers.get(header)?);
    let asked = Attributes::Resource(ResourceAction {
        verb: "impersonate",
        resource: "users",
        name: name.to_str().unwrap_or_default(),
        ..ResourceAction::default()
    });
    Some(Status::forbidden(&user.info.username, &asked, ""))
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
/// The subject's attribute with a user's id, as API servers read it since 1.33.
const UID_ATTRIBUTE: Oid = Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 57683, 2]);
const ANONYMOUS: &str = "system:anonymous";
/// Everybody who is known.
pub(super) const AUTHENTICATED: &str = "system:authenticated";
/// Everybody else.
pub(super) const UNAUTHENTICATED: &str = "system:unauthenticated";
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
