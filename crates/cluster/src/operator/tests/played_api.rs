//! An API server as far as the operator can tell: objects with versions, merge patches, finalizers, owners.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use countersign_pki::UnixTime;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::super::calls::Kind;
use super::super::object::ObjectName;
use super::world::Fuse;
use crate::api::Api;

/// Cheap to clone; all clones are one server.
#[derive(Clone)]
pub(super) struct PlayedApi {
    state: Arc<Mutex<State>>,
    fuse: Fuse,
}

struct State {
    /// By the path of their collection and their name.
    objects: BTreeMap<(String, String), Value>,
    version: u64,
    now: UnixTime,
    /// Every object as it was after a write, with its kind, in order.
    history: Vec<(String, Value)>,
}

impl PlayedApi {
    pub(super) fn new(fuse: Fuse) -> Self {
        let state = State {
            objects: BTreeMap::new(),
            version: 0,
            now: UnixTime(0),
            history: Vec::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            fuse,
        }
    }

    pub(super) fn api(&self) -> Api {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        Api::of_client(kube::Client::new(service, "ns"))
    }

    pub(super) fn set_time(&self, now: UnixTime) {
        self.state().now = now;
    }

    /// All objects of a kind.
    pub(super) fn list(&self, kind: Kind) -> Vec<Value> {
        let state = self.state();
        let of_kind = state.objects.iter();
        let of_kind =
            of_kind.filter(|((path, _), _)| path.ends_with(&format!("/{}", kind.plural())));
        of_kind.map(|(_, object)| object.clone()).collect()
    }

    pub(super) fn events(&self) -> Vec<String> {
        let state = self.state();
        let events = state
            .objects
            .iter()
            .filter(|((path, _), _)| path.ends_with("/events"));
        let mut events: Vec<(String, String)> = events
            .map(|(_, event)| {
                let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
                (
                    event["metadata"]["resourceVersion"].to_string(),
                    format!("{} {}", text("reason"), text("note")),
                )
            })
            .collect();
        events.sort_by_key(|(version, _)| version.trim_matches('"').parse::<u64>().unwrap_or(0));
        events.into_iter().map(|(_, text)| text).collect()
    }

    /// What was written since the last time that somebody asked: the plural of the kind, and the object as it was then.
    pub(super) fn history(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.state().history)
    }

    pub(super) fn get(&self, kind: Kind, name: &str) -> Option<Value> {
        let key = (kind.path("ns"), name.to_owned());
        self.state().objects.get(&key).cloned()
    }

    /// Somebody else creates an object.
    pub(super) fn put(&self, kind: Kind, object: Value) {
        self.state().create(&kind.path("ns"), object).unwrap();
    }

    /// The same in another namespace.
    pub(super) fn put_in(&self, namespace: &str, kind: Kind, object: Value) {
        self.state().create(&kind.path(namespace), object).unwrap();
    }

    /// Somebody else changes one.
    pub(super) fn edit(&self, kind: Kind, name: &str, patch: &Value) {
        let status = patch.get("status").is_some();
        self.state()
            .patch(&kind.path("ns"), name, status, patch)
            .unwrap();
    }

    /// Somebody else deletes one.
    pub(super) fn delete(&self, kind: Kind, name: &str) {
        self.state()
            .delete(&kind.path("ns"), name, &Value::Null)
            .unwrap();
    }

    pub(super) fn delete_in(&self, namespace: &str, kind: Kind, name: &str) {
        self.state()
            .delete(&kind.path(namespace), name, &Value::Null)
            .unwrap();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        if self.fuse.is_burnt() {
            return status(503, "ServiceUnavailable", "the program is gone");
        }
        let path = head.uri.path().to_owned();
        let (parent, last) = path.rsplit_once('/').unwrap();
        let answer = match head.method {
            Method::GET => self.state().find(parent, last),
            Method::POST => self.state().create(&path, body),
            Method::PATCH if last == "status" => {
                let (collection, name) = parent.rsplit_once('/').unwrap();
                self.state().patch(collection, name, true, &body)
            }
            Method::PATCH => self.state().patch(parent, last, false, &body),
            Method::DELETE => self.state().delete(parent, last, &body),
            other => panic!("{other} {path}"),
        };
        if head.method != Method::GET {
            // What was written is written, whether or not anybody hears of it.
            let is_event = path.ends_with("/events");
            if !is_event && self.fuse.passed() {
                return status(503, "ServiceUnavailable", "the program is gone");
            }
        }
        match answer {
            Ok(object) => Response::new(Body::from(object.to_string().into_bytes())),
            Err((code, reason)) => status(code, reason, reason),
        }
    }
}

type Answer = Result<Value, (u16, &'static str)>;

impl State {
    fn find(&self, collection: &str, name: &str) -> Answer {
        let found = self.objects.get(&(collection.to_owned(), name.to_owned()));
        found.cloned().ok_or((404, "NotFound"))
    }

    fn create(&mut self, collection: &str, mut object: Value) -> Answer {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let mut segments = collection.split('/');
        let namespace = segments.find(|it| *it == "namespaces");
        let namespace = namespace.and_then(|_| segments.next()).unwrap();
        let key = (collection.to_owned(), name.clone());
        if self.objects.contains_key(&key) {
            return Err((409, "AlreadyExists"));
        }
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(format!("uid-{name}-{}", self.version));
        metadata["resourceVersion"] = json!(self.version.to_string());
        metadata["generation"] = json!(1);
        metadata["namespace"] = json!(namespace);
        metadata["creationTimestamp"] = json!(self.now.to_string());
        self.remember(collection, &object);
        self.objects.insert(key, object.clone());
        Ok(object)
    }

    fn patch(&mut self, collection: &str, name: &str, is_status: bool, patch: &Value) -> Answer {
        let key = (collection.to_owned(), name.to_owned());
        let before = self.objects.get(&key).ok_or((404, "NotFound"))?.clone();
        let expected = &patch["metadata"]["resourceVersion"];
        if !expected.is_null() && *expected != before["metadata"]["resourceVersion"] {
            return Err((409, "Conflict"));
        }
        let mut after = before.clone();
        let mut patch = patch.clone();
        let parts = patch.as_object_mut().unwrap();
        match is_status {
            true => parts.retain(|part, _| part == "status"),
            false => drop(parts.remove("status")),
        }
        merge(&mut after, &patch);
        after["metadata"]["uid"] = before["metadata"]["uid"].clone();
        if after["spec"] != before["spec"] {
            let generation = before["metadata"]["generation"].as_i64().unwrap_or(0);
            after["metadata"]["generation"] = json!(generation + 1);
        }
        if after != before {
            self.version += 1;
            after["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.remember(collection, &after);
        }
        let is_free = after["metadata"]["finalizers"]
            .as_array()
            .is_none_or(Vec::is_empty);
        match is_free && !after["metadata"]["deletionTimestamp"].is_null() {
            true => self.remove(&key),
            false => drop(self.objects.insert(key, after.clone())),
        }
        Ok(after)
    }

    fn delete(&mut self, collection: &str, name: &str, options: &Value) -> Answer {
        let key = (collection.to_owned(), name.to_owned());
        let now = self.now.to_string();
        let object = self.objects.get_mut(&key).ok_or((404, "NotFound"))?;
        let expected = &options["preconditions"]["resourceVersion"];
        if !expected.is_null() && *expected != object["metadata"]["resourceVersion"] {
            return Err((409, "Conflict"));
        }
        if object["metadata"]["finalizers"]
            .as_array()
            .is_none_or(Vec::is_empty)
        {
            self.remove(&key);
        } else if object["metadata"]["deletionTimestamp"].is_null() {
            // As a real one does: an object with finalizers that is deleted is of another generation.
            let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
            object["metadata"]["generation"] = json!(generation + 1);
            object["metadata"]["deletionTimestamp"] = json!(now);
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        }
        Ok(json!({"kind": "Status", "status": "Success"}))
    }

    fn remember(&mut self, collection: &str, object: &Value) {
        let kind = collection.rsplit('/').next().unwrap_or_default();
        self.history.push((kind.to_owned(), object.clone()));
    }

    /// With what it owns.
    fn remove(&mut self, key: &(String, String)) {
        let Some(object) = self.objects.remove(key) else {
            return;
        };
        let uid = object["metadata"]["uid"].clone();
        let is_owned = |it: &Value| {
            let owners = it["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == uid))
        };
        let owned = self.objects.iter().filter(|(_, it)| is_owned(it));
        let owned: Vec<(String, String)> = owned.map(|(key, _)| key.clone()).collect();
        for key in owned {
            let _ = self.delete(&key.0, &key.1, &Value::Null);
        }
    }
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (key, value) in patch {
        match value.is_null() {
            true => drop(target.remove(key)),
            false => merge(target.entry(key.clone()).or_insert(Value::Null), value),
        }
    }
}

fn status(code: u16, reason: &str, message: &str) -> Response<Body> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": message,
    });
    let mut response = Response::new(Body::from(body.to_string().into_bytes()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

/// The name of an object of the namespace that all of this is in.
pub(super) fn named(name: &str) -> ObjectName {
    ObjectName::new("ns", name)
}
