//! Reviews: who am I, what may I, and what may they. Nothing of it is stored.

use axum::body::Bytes;
use countersign_authority::store::Past;
use countersign_kapi::negotiate::BodyFormat;
use countersign_kapi::rbac::{Attributes, PathAction};
use countersign_kapi::review::{self, ResourceAttributes, Review, ReviewKind, ReviewSpec};
use countersign_kapi::{GROUP, RESOURCE, Status, UserInfo};
use http::StatusCode;

use super::answer::{Answer, Refusal, json};
use super::call::{Action, Call};
use super::identity::{Reach, User};
use super::{DOOR, KubernetesDoor};

/// What the head of a call says that asks for a review.
pub(super) struct ReviewHead {
    kind: ReviewKind,
    format: BodyFormat,
}

impl ReviewHead {
    pub(super) fn of(call: &mut Call, kind: ReviewKind) -> Result<Self, Refusal> {
        // Only local reviews have a parameter in their path.
        let namespace = call.namespace.clone();
        call.authorize_action(Action {
            verb: "create",
            resource: kind.resource(),
            subresource: "",
            name: String::new(),
            namespace,
        })?;
        let format = call.body_format()?;
        Ok(Self { kind, format })
    }

    fn read(&self, call: &Call, body: &[u8]) -> Result<Review, Refusal> {
        let Self { kind, format } = *self;
        let mut review = kind.decode(body, format)?;
        if kind == ReviewKind::LocalAccess {
            let found = &mut review.metadata.namespace;
            if !found.is_empty() && *found != call.namespace {
                let text = "the namespace of the provided object does not match the namespace sent on the request";
                return Err(Status::bad_request(text).into());
            }
            found.clone_from(&call.namespace);
        }
        let errors = kind.validate(&review);
        match errors.is_empty() {
            true => Ok(review),
            false => Err(kind.resource().invalid("", &errors).into()),
        }
    }
}

/// `POST` of a `SelfSubjectReview`: `kubectl auth whoami`.
pub(super) async fn who_am_i(call: Call, head: ReviewHead, body: Bytes) -> Answer {
    head.read(&call, &body)?;
    json(StatusCode::CREATED, &review::who_am_i(call.user.info()))
}

/// `POST` of a `SelfSubjectAccessReview`: `kubectl auth can-i`.
pub(super) async fn may_i(call: Call, head: ReviewHead, body: Bytes) -> Answer {
    let door = &call.door;
    let Review { spec, .. } = head.read(&call, &body)?;
    let (allowed, reason) = match door.may(call.user.info(), &spec) {
        (false, reason) => door.may_with_own(&call.user, &spec, reason).await?,
        allowed => allowed,
    };
    let answer = review::access(head.kind, &spec, allowed, &reason);
    json(StatusCode::CREATED, &answer)
}

/// `POST` of a `SubjectAccessReview`, which is what controllers ask about the sender of a request, or of a
/// `LocalSubjectAccessReview`.
pub(super) async fn may_they(call: Call, head: ReviewHead, body: Bytes) -> Answer {
    let Review { spec, .. } = head.read(&call, &body)?;
    let user = UserInfo {
        username: spec.user.clone(),
        uid: spec.uid.clone(),
        groups: spec.groups.clone(),
        extra: spec.extra.clone(),
    };
    let (allowed, reason) = call.door.may(&user, &spec);
    let answer = review::access(head.kind, &spec, allowed, &reason);
    json(StatusCode::CREATED, &answer)
}

/// `POST` of a `SelfSubjectRulesReview`: `kubectl auth can-i --list`.
pub(super) async fn my_rules(call: Call, head: ReviewHead, body: Bytes) -> Answer {
    let Review { spec, .. } = head.read(&call, &body)?;
    if spec.namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request").into());
    }
    let authorizer = &call.door.authorizer;
    let (rules, faults) = authorizer.rules_of(call.user.info(), &spec.namespace);
    json(StatusCode::CREATED, &review::rules(&rules, &faults))
}

impl KubernetesDoor {
    /// Whether access rules allow somebody what is asked, and why in words where there are any.
    fn may(&self, user: &UserInfo, spec: &ReviewSpec) -> (bool, String) {
        let decision = match (&spec.resource_attributes, &spec.non_resource_attributes) {
            // kubectl's way to ask about a signer, which cannot say that the rule may be for its domain.
            (Some(asked), _) if asked.is_signer_in_one_word() => {
                let attributes = Attributes::Resource(asked.action());
                let decision = self.authorizer.decide(user, &attributes);
                if !decision.allowed && self.may_with_signer(user, &asked.verb, &asked.name) {
                    return (true, String::new());
                }
                decision
            }
            (Some(asked), _) => {
                let attributes = Attributes::Resource(asked.action());
                self.authorizer.decide(user, &attributes)
            }
            (None, Some(asked)) => {
                let (verb, path) = (asked.verb.as_str(), asked.path.as_str());
                let attributes = Attributes::Path(PathAction { verb, path });
                self.authorizer.decide(user, &attributes)
            }
            (None, None) => return (false, String::new()),
        };
        (decision.allowed, decision.reason)
    }

    /// Whether somebody may do with requests of their own what access rules do not allow with all.
    async fn may_with_own(
        &self,
        user: &User,
        spec: &ReviewSpec,
        reason: String,
    ) -> Result<(bool, String), Refusal> {
        let is_request =
            |asked: &&ResourceAttributes| asked.group == GROUP && asked.resource == RESOURCE;
        let Some(asked) = spec.resource_attributes.as_ref().filter(is_request) else {
            return Ok((false, reason));
        };
        let attributes = Attributes::Resource(asked.action());
        let (reach, _) = self.authorizer.reach(user, &attributes);
        match (reach, asked.verb.as_str(), asked.name.as_str()) {
            (Reach::Everything, _, _) => Ok((true, String::new())),
            (Reach::Nothing, _, _) => Ok((false, reason)),
            (Reach::Own, "create", _) => Ok((true, String::new())),
            (Reach::Own, "list" | "watch", _) => Ok((true, OWN.to_owned())),
            // One that is not named may be anybody's.
            (Reach::Own, _, "") => Ok((false, OWN.to_owned())),
            (Reach::Own, _, name) => {
                let found = self
                    .authority
                    .requests
                    .at(&DOOR, name, Past::Ignore)
                    .await?;
                let is_own = found.is_some_and(|record| user.owns(&record));
                Ok((is_own, OWN.to_owned()))
            }
        }
    }
}

const OWN: &str = "an enrolment token sees the requests that it created";
/// A review asks one thing, about somebody who may be in many groups.
pub(super) const MAX_REVIEW: usize = 256 * 1024;
