//! Reading objects: one, or a selection of all.

use axum::Extension;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use countersign_authority::store::{Past, RequestFilter};
use countersign_authority::{RequestId, RequestRecord};
use countersign_kapi::list::ListMeta;
use countersign_kapi::negotiate::{AnswerForm, Offer};
use countersign_kapi::selector::{FieldSelector, LabelSelector};
use countersign_kapi::table::IncludeObject;
use countersign_kapi::{CertificateSigningRequest, FieldError, Resource, Status};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tracing::error;

use super::answer::{Answer, Refusal, Shape};
use super::call::{Action, Call};
use super::identity::{Reach, User};
use super::object::Detail;
use super::{DOOR, KubernetesDoor};
use crate::limits::RequestLimits;

/// `GET` on an object.
pub(super) async fn get(State(door): State<KubernetesDoor>, call: Call) -> Answer {
    answer_one(&door, call, "", Offer::All).await
}

/// `GET` on `/status`.
pub(super) async fn get_status(State(door): State<KubernetesDoor>, call: Call) -> Answer {
    answer_one(&door, call, "status", Offer::All).await
}

/// `GET` on `/approval`, which has no table.
pub(super) async fn get_approval(State(door): State<KubernetesDoor>, call: Call) -> Answer {
    answer_one(&door, call, "approval", Offer::ObjectOnly).await
}

/// `GET` on the collection.
pub(super) async fn list(
    State(door): State<KubernetesDoor>,
    limits: Option<Extension<RequestLimits>>,
    mut call: Call,
) -> Answer {
    let selection = Selection::of(&call);
    let name = selection.as_ref().ok().and_then(|it| it.fields.name());
    let reach = call.authorize_action(Action {
        verb: if call.flag("watch") { "watch" } else { "list" },
        resource: Resource::CSR,
        subresource: "",
        name: name.unwrap_or_default().to_owned(),
        namespace: String::new(),
    })?;
    let mut selection = selection?;
    selection.narrow(reach, &call.user);
    let shape = call.shape(Offer::All)?;
    if call.flag("watch") {
        return Err(watch_refusal(&call));
    }
    // Read before the objects: a client that goes on from here misses nothing.
    let current = door.authority.revision().0;
    check_list_options(&call, current)?;
    let from = Continuation::of(&call, current)?;
    let part = Part {
        limit: limit(&call)?,
        after: from.as_ref().map(|from| from.start.as_str()),
        detail: detail(shape),
        limits: limits.as_ref().map(|Extension(limits)| limits),
    };
    // Later pages are read later, and may show more than the first one's version. Who watches from that version on
    // is told of everything since, so nothing is missed; a newer one would skip what changed on the earlier pages.
    let version = from.as_ref().map_or(current, |from| from.rv);
    let (objects, rest) = door.select_part(&selection, part).await?;
    let meta = ListMeta {
        resource_version: version.to_string(),
        continuation: rest
            .map(|start| Continuation::at(version, start).to_token())
            .transpose()?
            .unwrap_or_default(),
        ..ListMeta::default()
    };
    shape.list(meta, objects, door.now()?)
}

/// Which objects a list or a bulk deletion is about.
pub(super) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// Only what this user created.
    owner: Option<User>,
}

impl Selection {
    /// From the query.
    pub(super) fn of(call: &Call) -> Result<Self, Refusal> {
        Ok(Self {
            labels: LabelSelector::parse(call.parameter("labelSelector"))?,
            fields: FieldSelector::parse::<CertificateSigningRequest>(
                call.parameter("fieldSelector"),
            )?,
            owner: None,
        })
    }

    /// Leaves out what somebody may not see.
    fn narrow(&mut self, reach: Reach, user: &User) {
        self.owner = match reach {
            Reach::Everything => None,
            Reach::Own | Reach::Nothing => Some(user.clone()),
        };
    }

    fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.owner.is_none()
    }

    fn may_show(&self, record: &RequestRecord) -> bool {
        self.owner.as_ref().is_none_or(|owner| owner.owns(record))
    }

    fn matches(&self, object: &CertificateSigningRequest) -> bool {
        self.fields.matches(object) && self.labels.matches(&object.metadata.labels)
    }
}

/// Which part of a selection is read, and how much of each object.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// At most so many objects.
    limit: Option<usize>,
    /// Only names behind this one.
    after: Option<&'a str>,
    detail: Detail,
    /// What reading counts against for those who see only their own.
    limits: Option<&'a RequestLimits>,
}

/// Where a list goes on, as `continue` carries it. The form is that of API servers; clients hand it back as it is, and
/// one that makes it up sees nothing more than it may list anyway.
#[derive(Debug, Serialize, Deserialize)]
struct Continuation {
    v: String,
    /// The version of the first page.
    rv: u64,
    /// The last name of the page before.
    start: String,
}

impl Continuation {
    fn at(rv: u64, start: String) -> Self {
        let v = TOKEN_FORM.to_owned();
        Self { v, rv, start }
    }

    fn to_token(&self) -> Result<String, Refusal> {
        let json = serde_json::to_vec(self)
            .map_err(|_| Status::internal_error("the answer cannot be written"))?;
        Ok(URL_SAFE_NO_PAD.encode(json))
    }

    /// From the query; `None`: the list begins.
    fn of(call: &Call, current: u64) -> Result<Option<Self>, Refusal> {
        let token = call.parameter("continue");
        if token.is_empty() {
            return Ok(None);
        }
        let decoded = URL_SAFE_NO_PAD.decode(token).ok();
        let read = decoded.and_then(|json| serde_json::from_slice::<Self>(&json).ok());
        match read.filter(|read| read.v == TOKEN_FORM && read.rv > 0) {
            None => Err(Status::bad_request("continue key is not valid").into()),
            // Of a time that this store has not seen: it was restored, or is another's.
            Some(read) if read.rv > current => {
                let text = "The provided continue parameter is not of this server's history: \
                            start the list again.";
                Err(Status::expired(text).into())
            }
            Some(read) => Ok(Some(read)),
        }
    }
}

impl KubernetesDoor {
    /// The record of a name; a refusal if there is none.
    pub(super) async fn find(&self, name: &str) -> Result<RequestRecord, Refusal> {
        let found = self.authority.request_at(&DOOR, name, Past::Ignore).await?;
        found.ok_or_else(|| Resource::CSR.not_found(name).into())
    }

    /// The selected objects in order of their names.
    pub(super) async fn select(
        &self,
        selection: &Selection,
    ) -> Result<Vec<CertificateSigningRequest>, Refusal> {
        let part = Part {
            limit: None,
            after: None,
            detail: Detail::Whole,
            limits: None,
        };
        Ok(self.select_part(selection, part).await?.0)
    }

    /// A part of the selected objects in order of their names; if more may follow, the name to go on behind.
    async fn select_part(
        &self,
        selection: &Selection,
        part: Part<'_>,
    ) -> Result<(Vec<CertificateSigningRequest>, Option<String>), Refusal> {
        let mut objects: Vec<CertificateSigningRequest> = Vec::new();
        // Behind every request of the name that there is or will be.
        let behind = |name: &str| (DOOR, name.to_owned(), RequestId::from_bytes([0xff; 16]));
        let mut after = part.after.map(behind);
        // One more than fits tells whether there is a rest.
        let at_once = match part.limit {
            Some(limit) if selection.is_everything() => limit.saturating_add(1).min(PAGE),
            Some(_) | None => PAGE,
        };
        loop {
            // Everybody's requests are read to find somebody's: that costs as many requests as there are pages.
            if let (Some(owner), Some(limits)) = (&selection.owner, part.limits) {
                self.admit_rate(limits, owner)?;
            }
            let page = self
                .authority
                .requests(RequestFilter {
                    door: Some(DOOR),
                    live_only: true,
                    key: selection.fields.name().map(str::to_owned),
                    after: after.take(),
                    limit: at_once,
                    ..RequestFilter::default()
                })
                .await?;
            for record in page.iter().filter(|record| selection.may_show(record)) {
                if part.limit.is_some_and(|limit| objects.len() >= limit) {
                    let last = objects.last().map(|object| object.metadata.name.clone());
                    return Ok((objects, last));
                }
                match self.show_in(part.detail, record).await {
                    Ok(object) if selection.matches(&object) => objects.push(object),
                    Ok(_) => {}
                    // One that cannot be read must not hide all others.
                    Err(refusal) if refusal.code() == StatusCode::INTERNAL_SERVER_ERROR => {
                        error!(request = %record.id, "a stored request cannot be shown; skipped");
                    }
                    Err(refusal) => return Err(refusal),
                }
            }
            match page.last() {
                Some(last) if page.len() >= at_once => {
                    after = Some((last.door.clone(), last.key.clone(), last.id));
                }
                Some(_) | None => return Ok((objects, None)),
            }
        }
    }
}

async fn answer_one(
    door: &KubernetesDoor,
    mut call: Call,
    subresource: &'static str,
    offer: Offer,
) -> Answer {
    let reach = call.authorize("get", subresource)?;
    let shape = call.shape(offer)?;
    let record = door.find(&call.name).await?;
    if reach == Reach::Own && !call.user.owns(&record) {
        return Err(Resource::CSR.not_found(&call.name).into());
    }
    let object = door.show(&record).await?;
    shape.object(StatusCode::OK, &object, door.now()?)
}

/// Watches are not served: informers that ask for initial events fall back to lists at this answer,
/// and people are told what is missing.
fn watch_refusal(call: &Call) -> Refusal {
    if !call.parameter("sendInitialEvents").is_empty() {
        let detail = "sendInitialEvents is forbidden: this server does not serve watches";
        let errors = [FieldError::forbidden("sendInitialEvents", detail)];
        return Resource::LIST_OPTIONS.invalid("", &errors).into();
    }
    let mut status = Status::method_not_allowed();
    status.message = "this server does not serve watches of certificatesigningrequests: \
                      ask again without watch"
        .to_owned();
    status.into()
}

/// How many objects a page holds; like Go's clients and servers, nothing and less than one is any number.
fn limit(call: &Call) -> Result<Option<usize>, Refusal> {
    match call.parameter("limit") {
        "" => Ok(None),
        text => match text.parse::<i64>() {
            Ok(limit) => Ok(usize::try_from(limit).ok().filter(|limit| *limit > 0)),
            Err(_) => Err(Status::bad_request("limit: Invalid value: it must be a number").into()),
        },
    }
}

/// How much of each object a list in this shape shows.
fn detail(shape: Shape) -> Detail {
    match (shape.form, shape.include) {
        (AnswerForm::Object, _) | (AnswerForm::Table, IncludeObject::Object) => Detail::Whole,
        (AnswerForm::Metadata, _)
        | (AnswerForm::Table, IncludeObject::Metadata | IncludeObject::None) => Detail::Outline,
    }
}

/// Refuses what a list of the current state cannot answer.
fn check_list_options(call: &Call, current: u64) -> Result<(), Refusal> {
    let (version, matching) = (
        call.parameter("resourceVersion"),
        call.parameter("resourceVersionMatch"),
    );
    let continued = !call.parameter("continue").is_empty();
    let mut errors = Vec::new();
    if !call.parameter("sendInitialEvents").is_empty() {
        errors.push(FieldError::forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        ));
    }
    if !matching.is_empty() && version.is_empty() {
        let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
        errors.push(FieldError::forbidden("resourceVersionMatch", detail));
    }
    if !matching.is_empty() && continued {
        let detail = "resourceVersionMatch is forbidden when continue is provided";
        errors.push(FieldError::forbidden("resourceVersionMatch", detail));
    }
    if !["", "Exact", "NotOlderThan"].contains(&matching) {
        let supported = ["Exact", "NotOlderThan", ""];
        errors.push(FieldError::not_supported(
            "resourceVersionMatch",
            matching,
            &supported,
        ));
    }
    if !errors.is_empty() {
        return Err(Resource::LIST_OPTIONS.invalid("", &errors).into());
    }
    if continued && !matches!(version, "" | "0") {
        let text = "specifying resource version is not allowed when using continue";
        return Err(Status::bad_request(text).into());
    }
    if version.is_empty() {
        return Ok(());
    }
    let asked: u64 = version
        .parse()
        .map_err(|_| Status::bad_request("resourceVersion: Invalid value: it must be a number"))?;
    if asked > current {
        return Err(Status::version_too_large(asked, current).into());
    }
    if matching == "Exact" && asked < current {
        return Err(
            Status::expired("The resourceVersion for the provided list is too old.").into(),
        );
    }
    Ok(())
}

/// Records read at once: kubectl's usual page, and some.
const PAGE: usize = 512;
/// The form of continue tokens that API servers name so.
const TOKEN_FORM: &str = "meta.k8s.io/v1";
