//! One request of a client, taken apart in the order in which API servers look at it.

use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use countersign_kapi::negotiate::{self, AnswerForm, BodyFormat, Offer};
use countersign_kapi::options::WriteOptions;
use countersign_kapi::patch::PatchKind;
use countersign_kapi::rbac::{Attributes, ResourceAction};
use countersign_kapi::table::IncludeObject;
use countersign_kapi::{FieldError, Kind, Resource, Status};
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::KubernetesDoor;
use super::answer::{Refusal, Shape};
use super::bearer::Bearer;
use super::identity::{Reach, User};
use super::places::{Rank, Watching};
use crate::activity::Closing;
use crate::body::{self, BodyFault};
use crate::peer::Peer;

/// A request whose sender is known and whose body has not been read.
pub(super) struct Call {
    /// Who sends it.
    pub(super) user: User,
    /// The object's name in the path; empty for collections.
    pub(super) name: String,
    /// The namespace in the path; empty where there is none.
    pub(super) namespace: String,
    query: Vec<(String, String)>,
    headers: HeaderMap,
    body: Body,
    door: KubernetesDoor,
    peer: Peer,
    bearer: Option<Bearer>,
    closing: CancellationToken,
    /// What the sender was found to be allowed.
    allowed: Option<Action>,
}

/// Lets requests through whose sender may read what the server says about itself.
pub(super) async fn admit_path(
    State(door): State<KubernetesDoor>,
    Extension(user): Extension<User>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let asked = Attributes::of_request(request.method().as_str(), path, false);
    match door.authorize(&user, &asked) {
        Ok(_) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// What a call wants to do with a resource.
#[derive(Clone, Debug)]
pub(super) struct Action {
    /// The verb, as access rules spell it.
    pub(super) verb: &'static str,
    /// The resource.
    pub(super) resource: Resource<'static>,
    /// The subresource; empty for the object itself.
    pub(super) subresource: &'static str,
    /// The object's name; empty for collections.
    pub(super) name: String,
    /// The namespace; empty for the cluster.
    pub(super) namespace: String,
}

impl Action {
    pub(super) fn attributes(&self) -> Attributes<'_> {
        Attributes::Resource(ResourceAction {
            verb: self.verb,
            group: self.resource.group,
            resource: self.resource.resource,
            subresource: self.subresource,
            name: &self.name,
            namespace: &self.namespace,
        })
    }
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
        let (mut name, mut namespace) = (String::new(), String::new());
        match RawPathParams::from_request_parts(&mut parts, door).await {
            Err(_) => return Err(Status::bad_request("the path is not valid UTF-8").into()),
            Ok(parameters) => {
                for (parameter, value) in &parameters {
                    match parameter {
                        "namespace" => value.clone_into(&mut namespace),
                        _ => value.clone_into(&mut name),
                    }
                }
            }
        }
        let query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|_| Status::bad_request("the query cannot be read"))?;
        Ok(Self {
            user,
            name,
            namespace,
            query: query.0,
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
    /// Refuses what the sender may not do with the request, or all requests, of the path.
    pub(super) fn authorize(
        &mut self,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<Reach, Refusal> {
        self.authorize_action(Action {
            verb,
            resource: Resource::CSR,
            subresource,
            name: self.name.clone(),
            namespace: String::new(),
        })
    }

    /// Refuses what the sender may not do with objects of a kind that the path names.
    pub(super) fn authorize_on<T: Kind>(&mut self, verb: &'static str) -> Result<Reach, Refusal> {
        self.authorize_action(Action {
            verb,
            resource: T::RESOURCE,
            subresource: "",
            name: self.name.clone(),
            namespace: self.namespace.clone(),
        })
    }

    /// Refuses what the sender may not do.
    pub(super) fn authorize_action(&mut self, action: Action) -> Result<Reach, Refusal> {
        let reach = self.door.authorize(&self.user, &action.attributes())?;
        self.allowed = Some(action);
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
                    let value = self.parameter("includeObject");
                    let detail = "must be 'Metadata', 'Object', 'None', or empty";
                    let fault = FieldError::invalid("includeObject", value, detail);
                    Status::bad_request(format!("Unable to convert to Table as requested: {fault}"))
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
        let mut read = WriteOptions::from_query(self.pairs());
        if of == Resource::PATCH_OPTIONS && self.pairs().any(|(name, _)| name == "force") {
            // No patch that is served here settles who owns a field.
            let detail = "may not be specified for non-apply patch";
            let mut errors = read.err().unwrap_or_default();
            errors.push(FieldError::forbidden("force", detail));
            read = Err(errors);
        }
        read.map_err(|errors| of.invalid("", &errors).into())
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
        if let Some(action) = self.allowed.clone() {
            self.authorize_action(action)?;
        }
        Ok(body)
    }

    /// The sender, to be judged again while the answer to what it was last allowed goes on. `None`: it was allowed nothing.
    pub(super) fn standing(&self, reach: Reach) -> Option<Standing> {
        Some(Standing {
            door: self.door.clone(),
            peer: self.peer.clone(),
            bearer: self.bearer.clone(),
            user: self.user.clone(),
            action: self.allowed.clone()?,
            reach,
            checked: Instant::now(),
        })
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
    user: User,
    action: Action,
    /// What it was allowed to do it with when it began.
    reach: Reach,
    /// When the token was last looked up.
    checked: Instant,
}

impl Standing {
    /// As whom the sender takes a place.
    pub(super) fn watching(&self) -> Watching {
        Watching {
            user: self.user.info().username.clone(),
            source: self.peer.address.ip(),
            rank: match self.reach {
                Reach::Own | Reach::Nothing => Rank::Owner,
                Reach::Everything if self.user.is_administrator() => Rank::Administrator,
                Reach::Everything => Rank::User,
            },
        }
    }

    /// Whether the sender is still somebody, and still allowed this. Certificates and rights are judged at every call; a
    /// token, which has to be looked up, once in a while.
    pub(super) async fn holds(&mut self) -> bool {
        let certificate = User::behind(&self.peer, &self.door.authority, &self.door.issuer);
        let is_fresh = self.user.bears_token() && self.checked.elapsed() < TOKEN_PAUSE;
        let user = match certificate {
            Some(user) => user,
            None if is_fresh => self.user.clone(),
            None => {
                self.checked = Instant::now();
                let bearer = self.bearer.as_ref();
                match User::known(&self.peer, bearer, &self.door, None).await {
                    Ok(Some(user)) => user,
                    Ok(None) | Err(_) => return false,
                }
            }
        };
        // With the certificate, somebody else may be left: what was selected for one is not the other's.
        if user.info().username != self.user.info().username {
            return false;
        }
        let (reach, _) = self.door.authorizer.reach(&user, &self.action.attributes());
        reach == Reach::Everything || (reach == Reach::Own && self.reach == Reach::Own)
    }
}

impl KubernetesDoor {
    /// What somebody may do something with; a refusal if that is nothing.
    pub(super) fn authorize(
        &self,
        user: &User,
        attributes: &Attributes<'_>,
    ) -> Result<Reach, Refusal> {
        match self.authorizer.reach(user, attributes) {
            (Reach::Nothing, reason) => {
                let name = &user.info().username;
                Err(Status::forbidden(name, attributes, &reason).into())
            }
            (reach, _) => Ok(reach),
        }
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
