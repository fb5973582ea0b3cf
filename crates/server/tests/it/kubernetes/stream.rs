//! A watch that is being read.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::time::timeout;

use super::{Api, CSRS, Call};

/// The events of a watch, one after the other.
pub(super) struct Stream {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Body,
    read: Vec<u8>,
}

impl Api {
    /// Opens a watch as the administrator.
    pub(super) async fn watch(&self, query: &str) -> Stream {
        let path = format!("{CSRS}?watch=true&{query}");
        self.call("GET", &path).open().await
    }

    /// The version of the collection.
    pub(super) async fn version(&self) -> u64 {
        let list = self.get(&format!("{CSRS}?limit=1")).await.ok();
        version(&list)
    }
}

impl Call<'_> {
    /// Sends the call and leaves its answer to be read.
    pub(super) async fn open(self) -> Stream {
        let (parts, body) = self.respond().await.into_parts();
        Stream {
            status: parts.status,
            headers: parts.headers,
            body,
            read: Vec::new(),
        }
    }
}

impl Stream {
    /// The next event; `None`: the watch is over.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let Some(bytes) = self.bytes().await else {
                assert!(self.read.is_empty(), "half a line");
                return None;
            };
            self.read.extend_from_slice(&bytes);
        }
    }

    /// The next event, which there must be.
    pub(super) async fn event(&mut self) -> Value {
        self.next().await.expect("an event before the end")
    }

    /// The next events, as type, name and version.
    pub(super) async fn events(&mut self, count: usize) -> Vec<(String, String, u64)> {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(in_short(&self.event().await));
        }
        events
    }

    /// The next bytes as they come.
    pub(super) async fn bytes(&mut self) -> Option<Bytes> {
        let frame = timeout(PATIENCE, self.body.frame());
        let frame = frame.await.expect("something in time")?;
        Some(frame.unwrap().into_data().unwrap())
    }

    /// Asserts that nothing comes for a while.
    pub(super) async fn is_silent(&mut self) {
        let frame = timeout(Duration::from_millis(300), self.body.frame()).await;
        assert!(frame.is_err(), "{frame:?}");
        assert!(self.read.is_empty());
    }
}

/// Type, name and version of an event.
pub(super) fn in_short(event: &Value) -> (String, String, u64) {
    let meta = &event["object"]["metadata"];
    (
        event["type"].as_str().unwrap().to_owned(),
        meta["name"].as_str().unwrap_or_default().to_owned(),
        version(&event["object"]),
    )
}

pub(super) fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("no version: {object}"))
}

pub(super) const PATIENCE: Duration = Duration::from_secs(20);
