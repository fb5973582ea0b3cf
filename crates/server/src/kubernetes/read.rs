//! Reading objects: one, or a selection of all.

use axum::extract::State;
use countersign_authority::RequestRecord;
use countersign_authority::store::{Past, RequestFilter};
use countersign_kapi::list::ListMeta;
use countersign_kapi::negotiate::Offer;
use countersign_kapi::selector::{FieldSelector, LabelSelector};
use countersign_kapi::{CertificateSigningRequest, FieldError, Resource, Status};
use http::StatusCode;
use tracing::error;

use super::answer::{Answer, Refusal};
use super::call::Call;
use super::identity::Access;
use super::{DOOR, KubernetesDoor};

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
pub(super) async fn list(State(door): State<KubernetesDoor>, call: Call) -> Answer {
    let selection = Selection::of(&call)?;
    let name = selection.fields.name().unwrap_or_default();
    let verb = if call.flag("watch") { "watch" } else { "list" };
    call.user.authorize(Access {
        verb,
        name,
        subresource: "",
    })?;
    let shape = call.shape(Offer::All)?;
    if call.flag("watch") {
        return Err(watch_refusal(&call));
    }
    // Read before the objects: a client that goes on from here misses nothing.
    let version = door.authority.revision().0;
    check_list_options(&call, version)?;
    let objects = door.select(&selection).await?;
    let meta = ListMeta {
        resource_version: version.to_string(),
        ..ListMeta::default()
    };
    shape.list(meta, objects, door.now()?)
}

/// Which objects a list or a bulk deletion is about.
pub(super) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// From the query.
    pub(super) fn of(call: &Call) -> Result<Self, Refusal> {
        Ok(Self {
            labels: LabelSelector::parse(call.parameter("labelSelector"))?,
            fields: FieldSelector::parse(call.parameter("fieldSelector"))?,
        })
    }

    fn matches(&self, object: &CertificateSigningRequest) -> bool {
        self.fields.matches(object) && self.labels.matches(&object.metadata.labels)
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
        let mut objects = Vec::new();
        let mut after = None;
        loop {
            let page = self
                .authority
                .requests(RequestFilter {
                    door: Some(DOOR),
                    live_only: true,
                    key: selection.fields.name().map(str::to_owned),
                    after: after.take(),
                    limit: PAGE,
                    ..RequestFilter::default()
                })
                .await?;
            for record in &page {
                match self.show(record).await {
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
                Some(last) if page.len() >= PAGE => {
                    after = Some((last.door.clone(), last.key.clone(), last.id));
                }
                Some(_) | None => return Ok(objects),
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
    call.authorize("get", subresource)?;
    let shape = call.shape(offer)?;
    let object = door.show(&door.find(&call.name).await?).await?;
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

/// Refuses what a list of the current state cannot answer. `limit` may be ignored: a client follows
/// `continue` only if it got one.
fn check_list_options(call: &Call, current: u64) -> Result<(), Refusal> {
    let (version, matching) = (
        call.parameter("resourceVersion"),
        call.parameter("resourceVersionMatch"),
    );
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
    if !call.parameter("continue").is_empty() {
        return Err(Status::bad_request("continue key is not valid: none was given out").into());
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

/// Records read at once.
const PAGE: usize = 500;
