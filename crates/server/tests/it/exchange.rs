//! One request to a door and its answer.

use axum::Router;
use axum::body::Body;
use countersign_server::Peer;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

/// A request in the making.
pub(crate) struct Call<'a> {
    peer: &'a Peer,
    request: http::request::Builder,
    body: Body,
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl<'a> Call<'a> {
    /// From a method and a path, as in `GET /status/v1/simple`.
    pub(crate) fn new(peer: &'a Peer, line: &str) -> Self {
        let (method, path) = line.split_once(' ').unwrap();
        Self {
            peer,
            request: Request::builder().method(method).uri(path),
            body: Body::empty(),
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Body::from(body.into());
        self
    }

    /// A body that comes in parts.
    pub(crate) fn stream(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    pub(crate) async fn send(self, router: &Router) -> Answer {
        let request = self
            .request
            .extension(self.peer.clone())
            .body(self.body)
            .unwrap();
        let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        }
    }
}

/// The path of a pattern such as `/requests/{door}/{name}`, with values for what stands in braces: `puppet/web01`.
pub(crate) fn filled(pattern: &str, values: &str) -> String {
    let mut values = values.split('/');
    let segments = pattern.split('/').map(|segment| match segment {
        parameter if parameter.starts_with('{') => values.next().unwrap(),
        fixed => fixed,
    });
    segments.collect::<Vec<_>>().join("/")
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn content_type(&self) -> &str {
        self.header("content-type").unwrap_or_default()
    }
}
