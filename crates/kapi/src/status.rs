//! Error and success bodies (`v1` `Status`), worded as API servers word them.

use serde::Serialize;

use crate::field::{FieldError, go_quote};
use crate::rbac::Attributes;
use crate::{GROUP, KIND, RESOURCE};

/// Outcome of a request that does not answer with an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    kind: &'static str,
    api_version: &'static str,
    metadata: StatusMeta,
    /// `Success` or `Failure`.
    pub status: &'static str,
    /// Sentence for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Word for programs.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
    /// HTTP status; absent from successes, as real servers do.
    #[serde(skip_serializing_if = "is_zero")]
    pub code: u16,
}

/// What a status is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Group of the resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Plural name of the resource; the kind if the object is invalid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// uid of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The single faults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// When to try again.
    #[serde(skip_serializing_if = "is_zero_seconds")]
    pub retry_after_seconds: u32,
}

/// One fault of several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Word for programs.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// Sentence for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Path of the field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// A resource that errors are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// Kind of its objects.
    pub kind: &'a str,
}

/// A request that access rules refuse.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a> {
    /// Who asked.
    pub user: &'a str,
    /// What for.
    pub verb: &'a str,
    /// Name of the object; empty for collections.
    pub name: &'a str,
    /// Subresource; empty for the object itself.
    pub subresource: &'a str,
    /// Namespace; empty for the cluster.
    pub namespace: &'a str,
    /// What the authorizer said; may be empty.
    pub reason: &'a str,
}

impl Resource<'static> {
    /// The resource of this crate.
    pub const CSR: Self = Self {
        group: GROUP,
        resource: RESOURCE,
        kind: KIND,
    };
    /// Options of a deletion, for errors about them.
    pub const DELETE_OPTIONS: Self = Self {
        group: "meta.k8s.io",
        resource: "",
        kind: "DeleteOptions",
    };
    /// Options of a create.
    pub const CREATE_OPTIONS: Self = Self {
        group: "meta.k8s.io",
        resource: "",
        kind: "CreateOptions",
    };
    /// Options of an update.
    pub const UPDATE_OPTIONS: Self = Self {
        group: "meta.k8s.io",
        resource: "",
        kind: "UpdateOptions",
    };
    /// Options of a patch.
    pub const PATCH_OPTIONS: Self = Self {
        group: "meta.k8s.io",
        resource: "",
        kind: "PatchOptions",
    };
    /// Options of a list or watch.
    pub const LIST_OPTIONS: Self = Self {
        group: "meta.k8s.io",
        resource: "",
        kind: "ListOptions",
    };
}

impl Resource<'_> {
    /// 404: no object of this name.
    #[must_use]
    pub fn not_found(&self, name: &str) -> Status {
        let message = format!("{} {} not found", self.qualified(), go_quote(name));
        Status::failure(404, "NotFound", message, Some(self.details(name)))
    }

    /// 409: the name is taken.
    #[must_use]
    pub fn already_exists(&self, name: &str) -> Status {
        let message = format!("{} {} already exists", self.qualified(), go_quote(name));
        Status::failure(409, "AlreadyExists", message, Some(self.details(name)))
    }

    /// 409: the name is taken by an object that waits for its finalizers.
    #[must_use]
    pub fn being_deleted(&self, name: &str) -> Status {
        let message = format!(
            "object is being deleted: {} {} already exists",
            self.qualified(),
            go_quote(name)
        );
        Status::failure(409, "AlreadyExists", message, Some(self.details(name)))
    }

    /// 409: no free name was found for `generateName`.
    #[must_use]
    pub fn no_name_generated(&self, name: &str) -> Status {
        let message = format!(
            "{} {} already exists, the server was not able to generate a unique name for the object",
            self.qualified(),
            go_quote(name)
        );
        let details = Details {
            retry_after_seconds: 1,
            ..self.details(name)
        };
        Status::failure(409, "AlreadyExists", message, Some(details))
    }

    /// 409: somebody else changed the object since it was read.
    #[must_use]
    pub fn modified(&self, name: &str) -> Status {
        self.conflict(
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409: another object of this name than the one meant.
    #[must_use]
    pub fn uid_conflict(&self, name: &str, wanted: &str, found: &str) -> Status {
        let text = format!(
            "Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
        );
        self.conflict(name, &text)
    }

    /// 409: another object than the one that was to be deleted.
    #[must_use]
    pub fn not_that_uid(&self, name: &str, wanted: &str, found: &str) -> Status {
        self.by_kind().conflict(
            name,
            &format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({found}). \
                 The object might have been deleted and then recreated"
            ),
        )
    }

    /// 409: another version of the object than the one that was to be deleted.
    #[must_use]
    pub fn not_that_version(&self, name: &str, wanted: &str, found: &str) -> Status {
        self.by_kind().conflict(
            name,
            &format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
                 ({found}). The object might have been modified"
            ),
        )
    }

    /// 422: fields are wrong.
    #[must_use]
    pub fn invalid(&self, name: &str, errors: &[FieldError]) -> Status {
        let mut texts: Vec<String> = Vec::new();
        for text in errors.iter().map(ToString::to_string) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let listed = match texts.as_slice() {
            [] => String::new(),
            [one] => format!(": {one}"),
            several => format!(": [{}]", several.join(", ")),
        };
        let cause = |e: &FieldError| Cause {
            reason: e.kind.reason(),
            message: e.body(),
            field: e.field.clone(),
        };
        let details = Details {
            name: name.to_owned(),
            group: self.group.to_owned(),
            kind: self.kind.to_owned(),
            causes: errors.iter().map(cause).collect(),
            ..Details::default()
        };
        let kind = qualify(self.kind, self.group);
        let message = format!("{kind} {} is invalid{listed}", go_quote(name));
        Status::failure(422, "Invalid", message, Some(details))
    }

    /// 403: access rules do not permit this.
    #[must_use]
    pub fn forbidden(&self, refused: &Refused<'_>) -> Status {
        let Refused {
            user,
            verb,
            name,
            subresource,
            namespace,
            reason,
        } = *refused;
        let slash = if subresource.is_empty() { "" } else { "/" };
        let colon = if reason.is_empty() { "" } else { ": " };
        let place = match namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", go_quote(namespace)),
        };
        let text = format!(
            "User {} cannot {verb} resource {} in API group {} {place}",
            go_quote(user),
            go_quote(&format!("{}{slash}{subresource}", self.resource)),
            go_quote(self.group),
        );
        self.not_admitted(name, &format!("{}{colon}{reason}", without_markup(&text)))
    }

    /// 403: admission refuses this object or this change.
    #[must_use]
    pub fn not_admitted(&self, name: &str, text: &str) -> Status {
        let named = if name.is_empty() {
            String::new()
        } else {
            format!(" {}", go_quote(name))
        };
        let message = format!("{}{named} is forbidden: {text}", self.qualified());
        Status::failure(403, "Forbidden", message, Some(self.details(name)))
    }

    /// 200: deleted. kubectl reads the uid to notice a re-creation.
    #[must_use]
    pub fn deleted(&self, name: &str, uid: &str) -> Status {
        let details = Details {
            uid: uid.to_owned(),
            ..self.details(name)
        };
        Status {
            status: "Success",
            ..Status::failure(0, "", String::new(), Some(details))
        }
    }

    fn conflict(&self, name: &str, text: &str) -> Status {
        let message = format!(
            "Operation cannot be fulfilled on {} {}: {text}",
            self.qualified(),
            go_quote(name)
        );
        Status::failure(409, "Conflict", message, Some(self.details(name)))
    }

    /// Some errors name the kind where others name the resource.
    fn by_kind(&self) -> Self {
        Self {
            resource: self.kind,
            ..*self
        }
    }

    fn qualified(&self) -> String {
        qualify(self.resource, self.group)
    }

    fn details(&self, name: &str) -> Details {
        Details {
            name: name.to_owned(),
            group: self.group.to_owned(),
            kind: self.resource.to_owned(),
            ..Details::default()
        }
    }
}

impl Status {
    /// 401.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::failure(401, "Unauthorized", "Unauthorized".into(), None)
    }

    /// 403 for a path that is no resource, or headers nobody may use.
    #[must_use]
    pub fn forbidden_path(user: &str, verb: &str, path: &str) -> Self {
        let text = format!(
            "forbidden: User {} cannot {verb} path {}",
            go_quote(user),
            go_quote(path)
        );
        let details = Some(Details::default());
        Self::failure(403, "Forbidden", without_markup(&text), details)
    }

    /// 403: access rules do not permit this action.
    #[must_use]
    pub fn forbidden(user: &str, attributes: &Attributes<'_>, reason: &str) -> Self {
        match attributes {
            Attributes::Resource(action) => {
                let resource = Resource {
                    group: action.group,
                    resource: action.resource,
                    kind: "",
                };
                resource.forbidden(&Refused {
                    user,
                    verb: action.verb,
                    name: action.name,
                    subresource: action.subresource,
                    namespace: action.namespace,
                    reason,
                })
            }
            Attributes::Path(action) => Self::forbidden_path(user, action.verb, action.path),
        }
    }

    /// 400: bad query, body or selector.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message.into(), None)
    }

    /// 400: body and URL name different objects.
    #[must_use]
    pub fn name_mismatch(body: &str, url: &str) -> Self {
        if body.is_empty() {
            return Self::bad_request(format!(
                "the name of the object ({url} based on URL) was undeterminable: name must be provided"
            ));
        }
        Self::bad_request(format!(
            "the name of the object ({body}) does not match the name on the URL ({url})"
        ))
    }

    /// 409: others own fields that would change.
    #[must_use]
    pub(crate) fn apply_conflict(message: String, causes: Vec<Cause>) -> Self {
        let details = Details {
            causes,
            ..Details::default()
        };
        Self::failure(409, "Conflict", message, Some(details))
    }

    /// 404: nothing is served at this path.
    #[must_use]
    pub fn path_not_found() -> Self {
        let message = "the server could not find the requested resource".to_owned();
        Self::failure(404, "NotFound", message, Some(Details::default()))
    }

    /// 405.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource".to_owned();
        Self::failure(405, "MethodNotAllowed", message, Some(Details::default()))
    }

    /// 406.
    #[must_use]
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::failure(
            406,
            "NotAcceptable",
            message.into(),
            Some(Details::default()),
        )
    }

    /// 413.
    #[must_use]
    pub fn too_large(message: &str) -> Self {
        Self::failure(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: {message}"),
            None,
        )
    }

    /// 415.
    #[must_use]
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::failure(415, "UnsupportedMediaType", message.into(), None)
    }

    /// 410: the resource version is older than what is kept.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, "Expired", message.into(), None)
    }

    /// 410: the list cannot be continued as it was; `continuation` continues it as it is now.
    #[must_use]
    pub fn list_expired(continuation: String) -> Self {
        Self {
            metadata: StatusMeta { continuation },
            ..Self::expired(LIST_EXPIRED)
        }
    }

    /// Where a list that has expired can go on; empty for everything else.
    #[must_use]
    pub fn continuation(&self) -> &str {
        &self.metadata.continuation
    }

    /// 500 for what API servers have no word for: no reason, no details.
    #[must_use]
    pub fn unforeseen(message: impl Into<String>) -> Self {
        Self::failure(500, "", message.into(), None)
    }

    /// 504: the resource version has not been reached yet.
    #[must_use]
    pub fn version_too_large(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let cause = Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".into(),
            field: String::new(),
        };
        let details = Details {
            causes: vec![cause],
            retry_after_seconds: 1,
            ..Details::default()
        };
        Self::failure(504, "Timeout", message, Some(details))
    }

    /// 429.
    #[must_use]
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let details = Details {
            retry_after_seconds,
            ..Details::default()
        };
        Self::failure(429, "TooManyRequests", message.into(), Some(details))
    }

    /// 500. The text must not tell more than the client may know.
    #[must_use]
    pub fn internal_error(text: &str) -> Self {
        let cause = Cause {
            message: text.to_owned(),
            ..Cause::default()
        };
        let details = Details {
            causes: vec![cause],
            ..Details::default()
        };
        Self::failure(
            500,
            "InternalError",
            format!("Internal error occurred: {text}"),
            Some(details),
        )
    }

    /// 503: come back later.
    #[must_use]
    pub fn service_unavailable(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let details = Details {
            retry_after_seconds,
            ..Details::default()
        };
        Self::failure(503, "ServiceUnavailable", message.into(), Some(details))
    }

    /// Seconds for the `Retry-After` header, if there are any.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.details
            .as_ref()
            .map(|details| details.retry_after_seconds)
            .filter(|seconds| *seconds > 0)
    }

    fn failure(code: u16, reason: &'static str, message: String, details: Option<Details>) -> Self {
        Self {
            kind: "Status",
            api_version: "v1",
            metadata: StatusMeta::default(),
            status: "Failure",
            message,
            reason,
            details,
            code,
        }
    }
}

/// What a status has beside itself: hardly ever anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct StatusMeta {
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    continuation: String,
}

fn qualify(name: &str, group: &str) -> String {
    if group.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{group}")
    }
}

/// Names in refusals must not read as HTML.
fn without_markup(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn is_zero(code: &u16) -> bool {
    *code == 0
}

fn is_zero_seconds(seconds: &u32) -> bool {
    *seconds == 0
}

/// What API servers say of a list that cannot be continued.
const LIST_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. \
    You can start a new list without the continue parameter, or use the continue token in this response to retrieve the \
    remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were \
    created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

#[cfg(test)]
mod tests;
