//! Answers: objects in the shape a client asked for, and refusals as `Status`.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use countersign_authority::masked_tokens;
use countersign_kapi::encode;
use countersign_kapi::list::{List, ListMeta, PartialObjectMetadata};
use countersign_kapi::negotiate::{AnswerForm, AnswerFormat, PROTOBUF};
use countersign_kapi::table::{Columns, IncludeObject, Table};
use countersign_kapi::{Kind, Status, Time};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

/// What a handler gives.
pub(super) type Answer = Result<Response, Refusal>;

/// A request that was not carried out, as the client is told.
#[derive(Debug)]
pub(super) struct Refusal(Box<Status>);

/// The shape in which a client wants objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Whole, as a table, or metadata only.
    pub(super) form: AnswerForm,
    /// As text, or for those who insist on it as protobuf.
    pub(super) format: AnswerFormat,
    /// What stands beside the rows of a table.
    pub(super) include: IncludeObject,
}

impl Shape {
    /// Answers with one object.
    pub(super) fn object<T: Kind>(self, code: StatusCode, object: &T, now: Time) -> Answer {
        match (self.form, self.format) {
            (AnswerForm::Object, AnswerFormat::Json) => json(code, object),
            (AnswerForm::Object, AnswerFormat::Protobuf) => {
                let body = encode::object::<T>(&object.to_protobuf());
                Ok(response(code, PROTOBUF, body))
            }
            (AnswerForm::Metadata, AnswerFormat::Json) => {
                json(code, &PartialObjectMetadata::of(object))
            }
            (AnswerForm::Metadata, AnswerFormat::Protobuf) => {
                let body = encode::metadata(object.metadata());
                Ok(response(code, PROTOBUF, body))
            }
            (AnswerForm::Table, _) => {
                let version = object.metadata().resource_version.clone();
                let meta = ListMeta {
                    resource_version: version,
                    ..ListMeta::default()
                };
                json(
                    code,
                    &Table::of([object], meta, self.include, Columns::Defined, now),
                )
            }
        }
    }

    /// Answers with a collection.
    pub(super) fn list<T: Kind>(self, meta: ListMeta, objects: Vec<T>, now: Time) -> Answer {
        let code = StatusCode::OK;
        match (self.form, self.format) {
            (AnswerForm::Object, AnswerFormat::Json) => {
                json(code, &List::of_objects(meta, objects))
            }
            (AnswerForm::Object, AnswerFormat::Protobuf) => {
                let messages: Vec<Vec<u8>> = objects.iter().map(Kind::to_protobuf).collect();
                let body = encode::list::<T>(&meta, messages.iter().map(Vec::as_slice));
                Ok(response(code, PROTOBUF, body))
            }
            (AnswerForm::Metadata, AnswerFormat::Json) => {
                json(code, &List::of_metadata(meta, &objects))
            }
            (AnswerForm::Metadata, AnswerFormat::Protobuf) => {
                let body = encode::metadata_list(&meta, objects.iter().map(Kind::metadata));
                Ok(response(code, PROTOBUF, body))
            }
            (AnswerForm::Table, _) => json(
                code,
                &Table::of(&objects, meta, self.include, Columns::Defined, now),
            ),
        }
    }
}

/// A JSON answer.
pub(super) fn json<T: Serialize>(code: StatusCode, body: &T) -> Answer {
    typed_json(code, body, JSON)
}

/// A JSON answer with parameters in its media type.
pub(super) fn typed_json<T: Serialize>(
    code: StatusCode,
    body: &T,
    media_type: &'static str,
) -> Answer {
    let bytes = serde_json::to_vec(body)
        .map_err(|_| Status::internal_error("the answer cannot be written"))?;
    Ok(response(code, media_type, bytes))
}

/// A text answer.
pub(super) fn text(code: StatusCode, text: impl Into<String>) -> Response {
    response(code, "text/plain; charset=utf-8", text.into().into_bytes())
}

/// An answer with a body of any type. Nothing here may be kept by a cache.
pub(super) fn response(code: StatusCode, media_type: &'static str, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Adds warnings that `kubectl` prints (RFC 7234 5.5, code 299), as API servers bound them: each one, and all together,
/// because a head that is too large for its client hides the answer.
pub(super) fn warn(mut response: Response, warnings: &[String]) -> Response {
    let mut left = MAX_WARNINGS;
    for warning in warnings {
        let warning = masked_tokens(warning);
        let warning = first_bytes(&warning, MAX_WARNING);
        let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
        let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) else {
            continue;
        };
        let Some(rest) = left.checked_sub(value.len()) else {
            break;
        };
        left = rest;
        response.headers_mut().append(WARNING, value);
    }
    response
}

/// The beginning of a text in at most so many bytes, and whole characters.
pub(super) fn first_bytes(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or(text)
}

impl Refusal {
    /// The HTTP status.
    pub(super) fn code(&self) -> StatusCode {
        StatusCode::from_u16(self.0.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self(Box::new(status))
    }
}

impl From<Box<Status>> for Refusal {
    fn from(status: Box<Status>) -> Self {
        Self(status)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        // Refusals repeat names and values; a token that was taken for one stays secret.
        let body = serde_json::to_string(&self.0).unwrap_or_default();
        let body = masked_tokens(&body).into_owned().into_bytes();
        let mut response = response(self.code(), JSON, body);
        if let Some(seconds) = self.0.retry_after_seconds() {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

const JSON: &str = "application/json";
const MAX_WARNING: usize = 256;
const MAX_WARNINGS: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(warnings: &[String]) -> Vec<String> {
        let response = warn(text(StatusCode::OK, ""), warnings);
        let values = response.headers().get_all(WARNING).iter();
        values
            .map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn warnings_are_quoted_and_bounded() {
        assert_eq!(
            warned(&[
                r#"unknown field "a\b""#.to_owned(),
                "line\nbreak".to_owned()
            ]),
            [r#"299 - "unknown field \"a\\b\"""#]
        );
        // 255 is in the middle of a character.
        let long = format!("a{}", "é".repeat(500));
        assert_eq!(warned(&[long]), [format!("299 - \"a{}\"", "é".repeat(127))]);
        let many = vec!["x".repeat(1000); 100];
        let told = warned(&many);
        assert_eq!(told.len(), 15);
        assert!(told.iter().map(String::len).sum::<usize>() <= MAX_WARNINGS);
    }
}
