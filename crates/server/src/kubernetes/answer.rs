//! Answers: objects in the shape a client asked for, and refusals as `Status`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use countersign_authority::masked_tokens;
use countersign_kapi::encode::{self, ListFrame};
use countersign_kapi::list::{LIST_END, List, ListMeta, PartialObjectMetadata};
use countersign_kapi::negotiate::{self, AnswerForm, AnswerFormat, Offer, PROTOBUF, YAML};
use countersign_kapi::table::{self, Columns, IncludeObject, Table};
use countersign_kapi::{Kind, Status, Time};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use super::cache::Stored;
use crate::refusal::because;

/// What a handler gives.
pub(super) type Answer = Result<Response, Refusal>;

/// A request that was not carried out, as the client is told.
#[derive(Debug)]
pub(super) struct Refusal {
    status: Box<Status>,
    /// What the client is told beside it.
    warnings: Vec<String>,
}

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

    /// Answers with objects in their known forms. A long answer is put together while it is sent, whatever its form: how
    /// many are under way, and how slowly they are taken, costs no memory.
    pub(super) fn page<T: Kind>(
        self,
        meta: ListMeta,
        objects: Vec<Arc<Stored<T>>>,
        now: Time,
    ) -> Answer {
        let (form, include) = (self.form, self.include);
        match (form, self.format) {
            (AnswerForm::Object, AnswerFormat::Json) => {
                let begin = meta.list_begin::<T>().map_err(|_| unwritable())?;
                parts(JSON, json_frame(begin), objects, |stored, text| {
                    text.extend_from_slice(stored.json());
                    Ok(())
                })
            }
            (AnswerForm::Metadata, AnswerFormat::Json) => {
                let empty = List::of_metadata::<T>(meta, []);
                parts(JSON, json_frame_of(&empty)?, objects, |stored, text| {
                    serde_json::to_writer(text, &PartialObjectMetadata::of(&stored.object))
                })
            }
            (AnswerForm::Table, _) => {
                let empty = Table::<T>::of([], meta, include, Columns::Defined, now);
                let frame = json_frame_of(&empty)?;
                parts(JSON, frame, objects, move |stored, text| {
                    table::write_row(&stored.object, include, now, text)
                })
            }
            (AnswerForm::Object, AnswerFormat::Protobuf) => {
                let lengths = objects.iter().map(|stored| stored.protobuf().len());
                let frame = ListFrame::of_objects::<T>(&meta, lengths);
                parts(PROTOBUF, message_frame(frame), objects, |stored, bytes| {
                    encode::write_item(stored.protobuf(), bytes);
                    Ok(())
                })
            }
            (AnswerForm::Metadata, AnswerFormat::Protobuf) => {
                let message =
                    |stored: &Stored<T>| encode::metadata_message(stored.object.metadata());
                let lengths = objects.iter().map(|stored| message(stored).len());
                let frame = ListFrame::of_metadata(&meta, lengths);
                parts(
                    PROTOBUF,
                    message_frame(frame),
                    objects,
                    move |stored, bytes| {
                        encode::write_item(&message(stored), bytes);
                        Ok(())
                    },
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
    let bytes = serde_json::to_vec(body).map_err(|_| unwritable())?;
    Ok(response(code, media_type, bytes))
}

/// What stands around and between the parts of an answer.
struct Frame {
    begin: Vec<u8>,
    between: &'static [u8],
    end: Vec<u8>,
}

fn json_frame(begin: Vec<u8>) -> Frame {
    Frame {
        begin,
        between: b",",
        end: LIST_END.to_vec(),
    }
}

/// The frame of which this is the empty list.
fn json_frame_of(empty: &impl Serialize) -> Result<Frame, Refusal> {
    let text = serde_json::to_vec(empty).map_err(|_| unwritable())?;
    let begin = text.strip_suffix(LIST_END).ok_or_else(unwritable)?;
    Ok(json_frame(begin.to_vec()))
}

fn message_frame(ListFrame { begin, end }: ListFrame) -> Frame {
    Frame {
        begin,
        between: b"",
        end,
    }
}

/// An answer with a part for each object.
fn parts<T: Kind>(
    media_type: &'static str,
    Frame {
        begin,
        between,
        end,
    }: Frame,
    objects: Vec<Arc<Stored<T>>>,
    write: impl Fn(&Stored<T>, &mut Vec<u8>) -> Result<(), serde_json::Error> + Send + 'static,
) -> Answer {
    let mut pieces = Pieces {
        chunk: begin,
        between: b"",
        next_between: between,
        end: Some(end),
        objects: objects.into_iter(),
        write,
    };
    let first = pieces.piece().map_err(|_| unwritable())?;
    let body = match pieces.end {
        None => Body::from(first),
        Some(_) => {
            let pieces = std::iter::once(Ok(first)).chain(pieces);
            Body::from_stream(futures_util::stream::iter(pieces))
        }
    };
    Ok(typed(StatusCode::OK, media_type, body))
}

/// An answer being put together.
struct Pieces<T, W> {
    chunk: Vec<u8>,
    between: &'static [u8],
    next_between: &'static [u8],
    /// `None`: it is complete.
    end: Option<Vec<u8>>,
    objects: std::vec::IntoIter<Arc<Stored<T>>>,
    write: W,
}

impl<T, W> Pieces<T, W>
where
    W: Fn(&Stored<T>, &mut Vec<u8>) -> Result<(), serde_json::Error>,
{
    fn piece(&mut self) -> Result<Vec<u8>, serde_json::Error> {
        let mut chunk = std::mem::take(&mut self.chunk);
        while chunk.len() < CHUNK {
            let Some(stored) = self.objects.next() else {
                chunk.extend(self.end.take().unwrap_or_default());
                break;
            };
            chunk.extend_from_slice(self.between);
            self.between = self.next_between;
            (self.write)(&stored, &mut chunk)?;
        }
        Ok(chunk)
    }
}

impl<T, W> Iterator for Pieces<T, W>
where
    W: Fn(&Stored<T>, &mut Vec<u8>) -> Result<(), serde_json::Error>,
{
    type Item = Result<Vec<u8>, serde_json::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.end.is_some().then(|| self.piece())
    }
}

fn unwritable() -> Refusal {
    Status::internal_error("the answer cannot be written").into()
}

/// A text answer.
pub(super) fn text(code: StatusCode, text: impl Into<String>) -> Response {
    response(code, "text/plain; charset=utf-8", text.into().into_bytes())
}

/// An answer with a body of any type.
pub(super) fn response(code: StatusCode, media_type: &'static str, body: Vec<u8>) -> Response {
    typed(code, media_type, Body::from(body))
}

/// An answer whose body may be a stream. Nothing here may be kept by a cache.
pub(super) fn typed(code: StatusCode, media_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
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
        StatusCode::from_u16(self.status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The same, with warnings about what was sent.
    pub(super) fn warning(self, warnings: &[String]) -> Self {
        Self {
            warnings: warnings.to_vec(),
            ..self
        }
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::from(Box::new(status))
    }
}

impl From<Box<Status>> for Refusal {
    fn from(status: Box<Status>) -> Self {
        Self {
            status,
            warnings: Vec::new(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        // Refusals repeat names and values; a token that was taken for one stays secret.
        let body = serde_json::to_string(&self.status).unwrap_or_default();
        let body = masked_tokens(&body).into_owned().into_bytes();
        let mut response = response(self.code(), JSON, body);
        if let Some(seconds) = self.status.retry_after_seconds() {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        let reason = masked_tokens(&self.status.message).into_owned();
        let status = Refused(Arc::from(self.status));
        response.extensions_mut().insert(status);
        because(warn(response, &self.warnings), reason)
    }
}

/// The status that an answer carries.
#[derive(Clone)]
struct Refused(Arc<Status>);

/// Writes refusals as protobuf for those who take nothing else, and calls JSON YAML for those who ask for that.
pub(super) async fn in_format(request: Request, next: Next) -> Response {
    let accept = request
        .headers()
        .get(ACCEPT)
        .and_then(|value| value.to_str().ok());
    let form = negotiate::answer_form(accept, Offer::All);
    let wants_yaml = negotiate::wants_yaml(accept);
    let mut answer = next.run(request).await;
    let is_json = |value: &HeaderValue| value == JSON;
    if wants_yaml && answer.headers().get(CONTENT_TYPE).is_some_and(is_json) {
        // Every JSON text is YAML, too.
        let yaml = HeaderValue::from_static(YAML);
        answer.headers_mut().insert(CONTENT_TYPE, yaml);
    }
    if let (Ok((_, AnswerFormat::Protobuf)), Some(Refused(status))) =
        (form, answer.extensions().get())
    {
        let body = encode::status(&masked(status));
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
        headers.remove(CONTENT_LENGTH);
        *answer.body_mut() = Body::from(body);
    }
    answer
}

/// The same without tokens in its texts.
fn masked(status: &Status) -> Status {
    let mut status = status.clone();
    let mask = |text: &mut String| *text = masked_tokens(text).into_owned();
    mask(&mut status.message);
    if let Some(details) = &mut status.details {
        mask(&mut details.name);
        for cause in &mut details.causes {
            mask(&mut cause.message);
            mask(&mut cause.field);
        }
    }
    status
}

/// What is put together before it is sent.
pub(super) const CHUNK: usize = 64 * 1024;
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
