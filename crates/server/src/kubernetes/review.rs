//! Reviews that a client asks for itself: who am I, and may I.

use axum::extract::State;
use countersign_authority::store::Past;
use countersign_kapi::review::{
    self, NonResourceAttributes, ResourceAttributes, ReviewKind, ReviewSpec,
};
use countersign_kapi::{GROUP, RESOURCE, Resource};
use http::StatusCode;

use super::answer::{Answer, Refusal, json};
use super::call::Call;
use super::identity::{Access, Reach, User};
use super::{DOOR, KubernetesDoor};

/// `POST` of a `SelfSubjectReview`: `kubectl auth whoami`.
pub(super) async fn who_am_i(mut call: Call) -> Answer {
    let format = call.body_format()?;
    let body = call.read_body(MAX_REVIEW).await?;
    ReviewKind::SelfSubject.decode(&body, format)?;
    json(StatusCode::CREATED, &review::who_am_i(call.user.info()))
}

/// `POST` of a `SelfSubjectAccessReview`: `kubectl auth can-i`.
pub(super) async fn may_i(State(door): State<KubernetesDoor>, mut call: Call) -> Answer {
    let format = call.body_format()?;
    let body = call.read_body(MAX_REVIEW).await?;
    let spec = ReviewKind::SelfAccess.decode(&body, format)?;
    let errors = ReviewKind::SelfAccess.validate(&spec);
    if !errors.is_empty() {
        return Err(REVIEW.invalid("", &errors).into());
    }
    let (allowed, reason) = door.may(&call.user, &spec).await?;
    let answer = review::access(ReviewKind::SelfAccess, &spec, allowed, reason);
    json(StatusCode::CREATED, &answer)
}

impl KubernetesDoor {
    /// Whether a call would be let through, and why in words if that is not all.
    async fn may(&self, user: &User, spec: &ReviewSpec) -> Result<(bool, &'static str), Refusal> {
        if user.is_administrator() {
            return Ok((true, ""));
        }
        match (&spec.resource_attributes, &spec.non_resource_attributes) {
            (Some(asked), _) if is_review(asked) => Ok((true, "")),
            (Some(asked), _) if asked.group == GROUP && asked.resource == RESOURCE => {
                self.may_with_requests(user, asked).await
            }
            (None, Some(path)) => Ok((is_open(path), "")),
            (_, _) => Ok((false, "")),
        }
    }

    async fn may_with_requests(
        &self,
        user: &User,
        asked: &ResourceAttributes,
    ) -> Result<(bool, &'static str), Refusal> {
        let reach = user.reach(Access {
            verb: &asked.verb,
            name: &asked.name,
            subresource: &asked.subresource,
        });
        match (reach, asked.verb.as_str(), asked.name.as_str()) {
            (Reach::Everything, _, _) => Ok((true, "")),
            (Reach::Nothing, _, _) => Ok((false, "")),
            (Reach::Own, "create", _) => Ok((true, "")),
            (Reach::Own, "list" | "watch", _) => Ok((true, OWN)),
            // One that is not named may be anybody's.
            (Reach::Own, _, "") => Ok((false, OWN)),
            (Reach::Own, _, name) => {
                let found = self.authority.request_at(&DOOR, name, Past::Ignore).await?;
                Ok((found.is_some_and(|record| user.owns(&record)), OWN))
            }
        }
    }
}

/// What everybody may ask who is known here.
fn is_review(asked: &ResourceAttributes) -> bool {
    let group_and_resource = (asked.group.as_str(), asked.resource.as_str());
    asked.verb == "create"
        && matches!(
            group_and_resource,
            ("authentication.k8s.io", "selfsubjectreviews")
                | ("authorization.k8s.io", "selfsubjectaccessreviews")
        )
}

/// What everybody may read who is known here.
fn is_open(asked: &NonResourceAttributes) -> bool {
    let first = asked.path.split('/').nth(1).unwrap_or_default();
    let is_served = [
        "api", "apis", "healthz", "livez", "openapi", "readyz", "version",
    ]
    .contains(&first);
    is_served && asked.verb == "get"
}

/// As errors name it.
const REVIEW: Resource<'static> = Resource {
    group: "authorization.k8s.io",
    resource: "selfsubjectaccessreviews",
    kind: "SelfSubjectAccessReview",
};
const OWN: &str = "an enrolment token sees the requests that it created";
/// A review asks one thing.
const MAX_REVIEW: usize = 16 * 1024;
