//! One request of a client, taken apart in the order in which API servers look at it.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use countersign_kapi::negotiate::{self, AnswerForm, BodyFormat, Offer};
use countersign_kapi::options::WriteOptions;
use countersign_kapi::patch::PatchKind;
use countersign_kapi::table::IncludeObject;
use countersign_kapi::{Resource, Status};
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::KubernetesDoor;
use super::answer::{Refusal, Shape};
use super::bearer::Bearer;
use super::identity::{Access, Reach, User};
use crate::activity::Closing;
use crate::body::{self, BodyFault};
use crate::peer::Peer;

/// A request whose sender is known and whose body has not been read.
pub(super) struct Call {
    /// Who sends it.
    pub(super) user: User,
    /// The object's name in the path; empty for collections.
    pub(super) name: String,
    query: Vec<(String, String)>,
    headers: HeaderMap,
    body: Body,
    door: KubernetesDoor,
    peer: Peer,
    bearer: Option<Bearer>,
    closing: CancellationToken,
    /// What the sender was found to be allowed: verb and subresource.
    allowed: Option<(&'static str, &'static str)>,
}

impl FromRequest<KubernetesDoor> for Call {
    type Rejection = Refusal;

    async fn from_request(request: Request, door: &KubernetesDoor) -> Result<Self, Refusal> {
        let (mut parts, body) = request.into_parts();
        let (peer, user) = match (parts.extensions.get(), parts.extensions.get()) {
            (Some(peer), Some(user)) => (Peer::clone(peer), User::clone(user)),
            _ => return Err(Status::unauthorized().into()),
        };
        let bearer = parts.extensions.get().cloned();
        let closing = parts.extensions.get().cloned();
        let closing = closing.map(|Closing(token)| token).unwrap_or_default();
        let name = match RawPathParams::from_request_parts(&mut parts, door).await {
            Ok(parameters) => parameters.iter().map(|(_, value)| value.to_owned()).next(),
            Err(_) => return Err(Status::bad_request("the path is not valid UTF-8").into()),
        };
        let query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|_| Status::bad_request("the query cannot be read"))?;
        let (name, query) = (name.unwrap_or_default(), query.0);
        Ok(Self {
            user,
            name,
            query,
            headers: parts.headers,
            body,
            door: door.clone(),
            peer,
            bearer,
            closing,
            allowed: None,
        })
    }
}

impl Call {
    /// Refuses what the sender may not do with the object or collection of the path.
    pub(super) fn authorize(
        &mut self,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<Reach, Refusal> {
        let reach = self.user.authorize(Access {
            verb,
            name: &self.name,
            subresource,
        })?;
        self.allowed = Some((verb, subresource));
        Ok(reach)
    }

    /// A query parameter; empty if absent.
    pub(super) fn parameter(&self, name: &str) -> &str {
        self.pairs()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
            .unwrap_or_default()
    }

    /// All query parameters.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.query
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The shape in which the client wants its answer.
    pub(super) fn shape(&self, offer: Offer) -> Result<Shape, Refusal> {
        let (form, format) = negotiate::answer_form(self.header(ACCEPT), offer)?;
        let include = match form {
            AnswerForm::Table => {
                IncludeObject::parse(self.parameter("includeObject")).ok_or_else(|| {
                    Status::bad_request(
                        "unrecognized includeObject value: it is Metadata, Object or None",
                    )
                })?
            }
            AnswerForm::Object | AnswerForm::Metadata => IncludeObject::default(),
        };
        Ok(Shape {
            form,
            format,
            include,
        })
    }

    /// The options of a write; `of` names them in errors.
    pub(super) fn write_options(&self, of: Resource<'_>) -> Result<WriteOptions, Refusal> {
        WriteOptions::from_query(self.pairs()).map_err(|errors| of.invalid("", &errors).into())
    }

    /// The format of the body.
    pub(super) fn body_format(&self) -> Result<BodyFormat, Refusal> {
        Ok(negotiate::body_format(self.header(CONTENT_TYPE))?)
    }

    /// The kind of patch in the body.
    pub(super) fn patch_kind(&self) -> Result<PatchKind, Refusal> {
        Ok(negotiate::patch_kind(self.header(CONTENT_TYPE))?)
    }

    /// The `Accept` header.
    pub(super) fn accept(&self) -> Option<&str> {
        self.header(ACCEPT)
    }

    /// Reads the body, once. Its sender is judged again afterwards: the head may have come long before, and who was
    /// revoked meanwhile does nothing more.
    pub(super) async fn read_body(&mut self, limit: usize) -> Result<Bytes, Refusal> {
        let body = body::read(std::mem::take(&mut self.body), limit).await?;
        let known = User::known(&self.peer, self.bearer.as_ref(), &self.door, None).await?;
        self.user = known.ok_or_else(Status::unauthorized)?;
        if let Some((verb, subresource)) = self.allowed {
            self.authorize(verb, subresource)?;
        }
        Ok(body)
    }

    /// The sender, to be judged again while the answer goes on.
    pub(super) fn standing(&self, verb: &'static str, name: &str) -> Standing {
        Standing {
            door: self.door.clone(),
            peer: self.peer.clone(),
            bearer: self.bearer.clone(),
            username: self.user.info().username.clone(),
            is_token: User::behind(&self.peer, &self.door).is_none(),
            verb,
            name: name.to_owned(),
            checked: Instant::now(),
        }
    }

    /// Whether this connection, or the server, is about to end: what goes on must end then.
    pub(super) fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    fn header(&self, name: http::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Somebody whose request goes on, and what it is allowed.
#[derive(Clone)]
pub(super) struct Standing {
    door: KubernetesDoor,
    peer: Peer,
    bearer: Option<Bearer>,
    username: String,
    /// Whether it is known by its token alone.
    is_token: bool,
    verb: &'static str,
    name: String,
    /// When the token was last looked up.
    checked: Instant,
}

impl Standing {
    /// Whether the sender is still somebody, and still allowed this. Certificates are judged at every call; a token, which
    /// has to be looked up, once in a while.
    pub(super) async fn holds(&mut self) -> bool {
        let user = match (User::behind(&self.peer, &self.door), &self.bearer) {
            (Some(user), _) => user,
            (None, None) => return false,
            (None, Some(_)) if self.is_token && self.checked.elapsed() < TOKEN_PAUSE => {
                return true;
            }
            (None, Some(bearer)) => {
                self.checked = Instant::now();
                match User::known(&self.peer, Some(bearer), &self.door, None).await {
                    Ok(Some(user)) => user,
                    Ok(None) | Err(_) => return false,
                }
            }
        };
        // With the certificate, somebody else may be left: what was selected for one is not the other's.
        if user.info().username != self.username {
            return false;
        }
        let access = Access {
            verb: self.verb,
            name: &self.name,
            subresource: "",
        };
        user.authorize(access).is_ok()
    }
}

impl From<BodyFault> for Refusal {
    fn from(fault: BodyFault) -> Self {
        match fault {
            BodyFault::TooLong { limit } => Status::too_large(&format!("limit is {limit}")).into(),
            BodyFault::TooSlow => {
                Status::bad_request("the body of the request took too long").into()
            }
            BodyFault::BrokenOff => Status::bad_request("the body of the request broke off").into(),
        }
    }
}

/// How long a token that was good is taken for good.
const TOKEN_PAUSE: Duration = Duration::from_secs(2);
