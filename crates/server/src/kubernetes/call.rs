//! One request of a client, taken apart in the order in which API servers look at it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequestParts, Query, RawPathParams};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use countersign_kapi::negotiate::{self, AnswerForm, BodyFormat, MediaFault, Offer, PatchFormat};
use countersign_kapi::options::WriteOptions;
use countersign_kapi::rbac::{Attributes, ResourceAction};
use countersign_kapi::table::IncludeObject;
use countersign_kapi::{FieldError, Kind, MAX_BODY_BYTES, Resource, Status};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use super::KubernetesDoor;
use super::answer::{Answer, Refusal, Shape, first_bytes};
use super::bearer::Bearer;
use super::identity::{Reach, User};
use super::watch_limit::{Rank, Watching};
use crate::body::BodyFault;
use crate::frontend::{Admission, Admitted, CallFault, FrontEnd, Refused};
use crate::peer::Peer;

/// A call whose sender is known.
pub(super) struct Call {
    /// The door.
    pub(super) door: KubernetesDoor,
    /// Who sends it.
    pub(super) user: User,
    /// The object's name in the path; empty for collections.
    pub(super) name: String,
    /// The namespace in the path; empty where there is none.
    pub(super) namespace: String,
    query: Vec<(String, String)>,
    headers: HeaderMap,
    peer: Peer,
    bearer: Option<Bearer>,
    /// What the sender was found to be allowed.
    allowed: Option<Action>,
}

/// The methods of a path. Nothing reaches what answers them but through the front end.
pub(super) struct Methods<'a> {
    door: &'a KubernetesDoor,
    router: MethodRouter<KubernetesDoor>,
}

impl<'a> Methods<'a> {
    pub(super) fn of(door: &'a KubernetesDoor) -> Self {
        Self {
            door,
            router: MethodRouter::new(),
        }
    }

    /// `GET`: no body is read. `head` looks at what was sent in the order of API servers, and refuses what its sender may
    /// not do before anything else; so for every method.
    pub(super) fn get<H, F>(
        self,
        head: impl Fn(&mut Call) -> Result<H, Refusal> + Send + Sync + 'static,
        answer: impl Fn(Call, H) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        H: Send + 'static,
        F: Future<Output = Answer> + Send + 'static,
    {
        self.on(MethodFilter::GET, None, head, move |call, head, _| {
            answer(call, head)
        })
    }

    /// Another method, whose body is read up to so many octets.
    pub(super) fn on<H, F>(
        self,
        method: MethodFilter,
        max_body: Option<usize>,
        head: impl Fn(&mut Call) -> Result<H, Refusal> + Send + Sync + 'static,
        answer: impl Fn(Call, H, Bytes) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        H: Send + 'static,
        F: Future<Output = Answer> + Send + 'static,
    {
        let Self { door, router } = self;
        let operation = Operation {
            door: door.clone(),
            max_body,
            head: Box::new(move |call| {
                let (asked, answer) = (head(call)?, answer.clone());
                Ok(Box::new(move |call, body| {
                    answer(call, asked, body).boxed()
                }))
            }),
        };
        let front = FrontEnd::new(Arc::new(operation), service_fn(answered));
        let router = router.on_service(method, front);
        Self { door, router }
    }
}

async fn answered(admitted: Admitted<(Call, Reply)>) -> Result<Response, Infallible> {
    let (call, reply) = admitted.caller;
    Ok(reply(call, admitted.body).await.into_response())
}

impl From<Methods<'_>> for MethodRouter<KubernetesDoor> {
    fn from(methods: Methods<'_>) -> Self {
        methods.router
    }
}

/// How calls of one method of a path are let in. No type parameter tells methods and kinds apart: the way in would be
/// compiled anew for each of them, and is most of what a call of a kind is made of.
struct Operation {
    door: KubernetesDoor,
    max_body: Option<usize>,
    head: Box<Head>,
}

/// Looks at what was sent, and says what will answer it.
type Head = dyn Fn(&mut Call) -> Result<Reply, Refusal> + Send + Sync;

/// What answers a call, once it is let in, and knows what its head says.
type Reply = Box<dyn FnOnce(Call, Bytes) -> BoxFuture<'static, Answer> + Send>;

impl Admission for Operation {
    type Caller = (Call, Reply);

    async fn judge(
        &self,
        peer: &Peer,
        head: &mut Parts,
    ) -> Result<((Call, Reply), Option<usize>), Refused> {
        let mut call = Call::of(&self.door, peer, head).await?;
        let reply = (self.head)(&mut call)?;
        Ok(((call, reply), self.max_body))
    }

    async fn judge_again(
        &self,
        peer: &Peer,
        _head: &Parts,
        (mut call, reply): (Call, Reply),
    ) -> Result<(Call, Reply), Refused> {
        let known = User::known(peer, call.bearer.as_ref(), &self.door, None).await?;
        call.user = known.ok_or_else(|| Refusal::from(Status::unauthorized()))?;
        if let Some(action) = call.allowed.take() {
            call.authorize_action(action)?;
        }
        Ok((call, reply))
    }

    fn failed(&self, fault: CallFault) -> Response {
        failed(fault)
    }
}

/// How calls are let in that are about a path and not about objects: what the server says about itself, and what is not
/// served.
pub(super) struct OfPath(pub(super) KubernetesDoor);

impl Admission for OfPath {
    type Caller = ();

    async fn judge(&self, peer: &Peer, head: &mut Parts) -> Result<((), Option<usize>), Refused> {
        let (user, _) = self.0.authenticate(peer, &mut head.headers).await?;
        let asked = Attributes::of_request(head.method.as_str(), head.uri.path(), false);
        self.0.authorize(&user, &asked)?;
        Ok(((), None))
    }

    async fn judge_again(&self, _: &Peer, _: &Parts, (): ()) -> Result<(), Refused> {
        Ok(())
    }

    fn failed(&self, fault: CallFault) -> Response {
        failed(fault)
    }
}

fn failed(fault: CallFault) -> Response {
    let refusal = match fault {
        CallFault::NoPeer => Refusal::from(Status::unauthorized()),
        CallFault::Body(fault) => fault.into(),
    };
    refusal.into_response()
}

/// What the head of a call says that brings an object.
pub(super) struct ObjectHead {
    pub(super) shape: Shape,
    pub(super) options: WriteOptions,
    pub(super) format: BodyFormat,
}

impl ObjectHead {
    /// `options` names them in errors.
    pub(super) fn of(call: &Call, offer: Offer, options: Resource<'_>) -> Result<Self, Refusal> {
        Ok(Self {
            shape: call.shape(offer)?,
            options: call.write_options(options)?,
            format: call.body_format()?,
        })
    }
}

/// What the head of a call says that brings a patch.
pub(super) struct PatchHead {
    pub(super) shape: Shape,
    pub(super) format: PatchFormat,
    pub(super) options: WriteOptions,
}

impl PatchHead {
    pub(super) fn of(call: &Call, offer: Offer) -> Result<Self, Refusal> {
        let shape = call.shape(offer)?;
        let format = negotiate::patch_format(call.header(CONTENT_TYPE))?;
        Ok(Self {
            shape,
            format,
            options: call.patch_options(format)?,
        })
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

impl Call {
    async fn of(door: &KubernetesDoor, peer: &Peer, head: &mut Parts) -> Result<Self, Refusal> {
        let (user, bearer) = door.authenticate(peer, &mut head.headers).await?;
        let (mut name, mut namespace) = (String::new(), String::new());
        match RawPathParams::from_request_parts(head, &()).await {
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
        let query = Query::<Vec<(String, String)>>::try_from_uri(&head.uri)
            .map_err(|_| Status::bad_request("the query cannot be read"))?;
        Ok(Self {
            door: door.clone(),
            user,
            name,
            namespace,
            query: query.0,
            headers: std::mem::take(&mut head.headers),
            peer: peer.clone(),
            bearer,
            allowed: None,
        })
    }

    /// Counts a request of anybody but an administrator, as API servers do between authentication and authorization.
    /// Names do not count here: the object's stands in a body that is not read yet.
    pub(super) fn admit_rate(&self) -> Result<(), Refusal> {
        match &self.door.limits {
            Some(limits) if !self.user.is_administrator() => {
                let source = self.user.source();
                Ok(limits.admit(source, None, self.door.authority.now())?)
            }
            Some(_) | None => Ok(()),
        }
    }

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

    /// Refuses to tell events in YAML: one document behind another is none.
    pub(super) fn refuse_yaml(&self) -> Result<(), Refusal> {
        match negotiate::wants_yaml(self.header(ACCEPT)) {
            true => Err(MediaFault::Answer.into()),
            false => Ok(()),
        }
    }

    /// The options of a write; `of` names them in errors.
    fn write_options(&self, of: Resource<'_>) -> Result<WriteOptions, Refusal> {
        let read = WriteOptions::from_query(self.pairs());
        read.map_err(|errors| of.invalid("", &errors).into())
    }

    /// The options of a patch. Who applies says who it is, and may insist.
    fn patch_options(&self, format: PatchFormat) -> Result<WriteOptions, Refusal> {
        let read = WriteOptions::from_query(self.pairs());
        let has = |wanted: &str| self.pairs().any(|(name, _)| name == wanted);
        let missing = match format {
            PatchFormat::Patch(_) => has("force").then(|| {
                let detail = "may not be specified for non-apply patch";
                FieldError::forbidden("force", detail)
            }),
            PatchFormat::Apply => self.parameter("fieldManager").is_empty().then(|| {
                let detail = "is required for apply patch";
                FieldError::required("fieldManager", detail)
            }),
        };
        let (options, mut errors) = match read {
            Ok(options) => (options, Vec::new()),
            Err(errors) => (WriteOptions::default(), errors),
        };
        errors.extend(missing);
        match errors.is_empty() {
            true => Ok(options),
            false => Err(Resource::PATCH_OPTIONS.invalid("", &errors).into()),
        }
    }

    /// Under which name the sender's fields are noted: as it says, else as its program is called.
    pub(super) fn manager(&self, options: &WriteOptions) -> String {
        if !options.field_manager.is_empty() {
            return options.field_manager.clone();
        }
        let program = self.header(USER_AGENT).unwrap_or_default();
        let program = program.split('/').next().unwrap_or_default();
        let printable: String = program.chars().filter(|c| !c.is_control()).collect();
        match first_bytes(&printable, MAX_MANAGER) {
            "" => "unknown".to_owned(),
            name => name.to_owned(),
        }
    }

    /// The format of the body.
    pub(super) fn body_format(&self) -> Result<BodyFormat, Refusal> {
        Ok(negotiate::body_format(self.header(CONTENT_TYPE))?)
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
        self.peer.closing.clone()
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
    /// As whom the sender watches.
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

/// The body of a call that brings objects, patches or options.
pub(super) const BODY: Option<usize> = Some(MAX_BODY_BYTES);
const MAX_MANAGER: usize = 128; // as API servers have it
/// How long a token that was good is taken for good.
const TOKEN_PAUSE: Duration = Duration::from_secs(2);
