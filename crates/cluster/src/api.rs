//! Calls to an API server. No type of the client library leaves this module, except to the watches beside it.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::{Method, Request, header};
use kube::api::{Api as KubeApi, ApiResource};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{DynamicResourceScope, PartialObjectMeta};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::lean::LeanObject;

/// An API server, and who we are there. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client,
    /// The server's address.
    pub(crate) url: String,
    /// The namespace of the context, or of the pod.
    pub(crate) namespace: String,
}

/// Why there is no connection to an API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectFault {
    /// The kubeconfig file cannot be used.
    #[error("{}: {reason}", .path.display())]
    Kubeconfig {
        /// Which file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// There is none, and this is not a pod.
    #[error(
        "there is neither a kubeconfig nor a service account: name a file with --kubeconfig ({0})"
    )]
    NoConfig(String),
    /// What it says leads to no client.
    #[error("no client for {url}: {reason}")]
    Client {
        /// The server.
        url: String,
        /// Why not.
        reason: String,
    },
}

/// Why a call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallFault {
    #[error("it has changed meanwhile")]
    Conflict,
    #[error("it exists already")]
    Exists,
    #[error("it does not exist")]
    NotFound,
    #[error("the API server does not take it: {0}")]
    Invalid(String),
    #[error("not permitted: {0}")]
    Forbidden(String),
    #[error("the API server answers {code}: {message}")]
    Status { code: u16, message: String },
    #[error("the API server does not answer: {0}")]
    Unreachable(String),
}

/// A kind of objects: where they are served.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: &'static str,
    pub(crate) plural: String,
    /// Only in this namespace.
    pub(crate) namespace: Option<String>,
    /// Only the one of this name.
    pub(crate) name: Option<String>,
    /// Only those with these labels.
    pub(crate) labels: Option<String>,
    /// Whether nothing but their metadata is of interest.
    pub(crate) metadata_only: bool,
}

/// What a watch has to say.
pub(crate) enum Seen {
    /// The list of all begins.
    Begin,
    /// One of all.
    Listed(Value),
    /// That was all.
    End,
    Set(Value),
    Gone(Value),
    /// All of them cannot be listed, in words.
    Unlistable(String),
    /// The watch broke, in words; it goes on where it was.
    Interrupted(String),
}

impl Api {
    /// Finds the API server by a kubeconfig file, or by what the environment says.
    pub(crate) async fn connect(kubeconfig: Option<&Path>) -> Result<Self, ConnectFault> {
        let mut config = match kubeconfig {
            Some(path) => from_file(path).await?,
            None => Config::infer()
                .await
                .map_err(|fault| ConnectFault::NoConfig(fault.to_string()))?,
        };
        config.connect_timeout = Some(CONNECT_PATIENCE);
        let (url, namespace) = (
            config.cluster_url.to_string(),
            config.default_namespace.clone(),
        );
        let client = Client::try_from(config).map_err(|fault| ConnectFault::Client {
            url: url.clone(),
            reason: fault.to_string(),
        })?;
        Ok(Self {
            client,
            url,
            namespace,
        })
    }

    /// An API server behind a client of its own.
    #[cfg(test)]
    pub(crate) fn of_client(client: Client) -> Self {
        Self {
            client,
            url: String::new(),
            namespace: "ns".to_owned(),
        }
    }

    /// The object at a path; `None` if there is none.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Value>, CallFault> {
        match self.call(Method::GET, path, String::new()).await {
            Ok(object) => Ok(Some(object)),
            Err(CallFault::NotFound) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, CallFault> {
        self.call(Method::POST, path, body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Value, CallFault> {
        self.put_text(path, body.to_string()).await
    }

    /// An object that is JSON already.
    pub(crate) async fn put_text(&self, path: &str, body: String) -> Result<Value, CallFault> {
        self.call(Method::PUT, path, body).await
    }

    /// A merge patch.
    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Result<Value, CallFault> {
        self.call(Method::PATCH, path, body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Result<Value, CallFault> {
        self.call(Method::DELETE, path, options.to_string()).await
    }

    async fn call(&self, method: Method, path: &str, body: String) -> Result<Value, CallFault> {
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, kind)
            .header(header::ACCEPT, "application/json")
            .body(body.into_bytes())
            .map_err(|fault| CallFault::Invalid(fault.to_string()))?;
        let answer = timeout(CALL_PATIENCE, self.client.request::<LeanObject>(request)).await;
        match answer {
            Ok(answer) => answer.map(|object| object.json).map_err(CallFault::from),
            Err(_) => {
                let patience = CALL_PATIENCE.as_secs();
                Err(CallFault::Unreachable(format!("not within {patience} s")))
            }
        }
    }

    /// Follows all objects of a kind for as long as the stream is read.
    pub(crate) fn watch(&self, resource: &Resource) -> BoxStream<'static, Seen> {
        let Resource {
            group,
            version,
            kind,
            plural,
            namespace,
            name,
            labels,
            metadata_only,
        } = resource;
        let found = ApiResource {
            group: group.clone(),
            version: version.clone(),
            api_version: api_version(group, version),
            kind: (*kind).to_owned(),
            plural: plural.clone(),
        };
        let client = self.client.clone();
        let mut how = watcher::Config::default();
        if let Some(name) = name {
            how = how.fields(&format!("metadata.name={name}"));
        }
        if let Some(labels) = labels {
            how = how.labels(labels);
        }
        if *metadata_only {
            return objects(client, namespace.as_deref(), &found, how, metadata);
        }
        objects(
            client,
            namespace.as_deref(),
            &found,
            how,
            |object: LeanObject| object.json,
        )
    }
}

async fn from_file(path: &Path) -> Result<Config, ConnectFault> {
    let bad = |reason: String| ConnectFault::Kubeconfig {
        path: path.to_owned(),
        reason,
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|fault| bad(chain(&fault)))?;
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|fault| bad(chain(&fault)))
}

fn objects<K>(
    client: Client,
    namespace: Option<&str>,
    found: &ApiResource,
    how: watcher::Config,
    json: fn(K) -> Value,
) -> BoxStream<'static, Seen>
where
    K: kube::Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api: KubeApi<K> = match namespace {
        Some(namespace) => KubeApi::namespaced_with(client, namespace, found),
        None => KubeApi::all_with(client, found),
    };
    watch(api, how)
        .backoff(WatchPause::default())
        .map(move |event| seen(event, json))
        .boxed()
}

fn seen<T>(event: watcher::Result<Event<T>>, json: impl Fn(T) -> Value) -> Seen {
    match event {
        Ok(Event::Init) => Seen::Begin,
        Ok(Event::InitApply(object)) => Seen::Listed(json(object)),
        Ok(Event::InitDone) => Seen::End,
        Ok(Event::Apply(object)) => Seen::Set(json(object)),
        Ok(Event::Delete(object)) => Seen::Gone(json(object)),
        Err(watcher::Error::InitialListFailed(fault)) => {
            Seen::Unlistable(CallFault::from(fault).to_string())
        }
        Err(fault) => Seen::Interrupted(chain(&fault)),
    }
}

fn metadata(object: PartialObjectMeta<LeanObject>) -> Value {
    let mut metadata = object.metadata;
    metadata.managed_fields = None;
    json!({"metadata": metadata})
}

/// How long a watch that broke waits: 100 ms, doubled up to 5 s. One client that lists a few kinds is no burden, and nodes
/// wait for it.
///
/// Every attempt begins with the good news that a list begins, so only a watch that has gone well for a while begins anew.
#[derive(Clone, Debug, Default)]
struct WatchPause {
    failures: u32,
    failed: Option<Instant>,
}

impl Iterator for WatchPause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let factor = 2_u32.checked_pow(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        self.failed = Some(Instant::now());
        let pause = Duration::from_millis(100).saturating_mul(factor);
        Some(pause.min(Duration::from_secs(5)))
    }
}

impl Backoff for WatchPause {
    fn reset(&mut self) {
        if self.failed.is_some_and(|at| at.elapsed() >= GONE_WELL) {
            *self = Self::default();
        }
    }
}

impl From<kube::Error> for CallFault {
    fn from(fault: kube::Error) -> Self {
        let kube::Error::Api(status) = fault else {
            return Self::Unreachable(chain(&fault));
        };
        let message = status.message;
        match (status.code, status.reason.as_str()) {
            (409, "AlreadyExists") => Self::Exists,
            (409, _) => Self::Conflict,
            (404, _) => Self::NotFound,
            (400 | 422, _) => Self::Invalid(message),
            (401 | 403, _) => Self::Forbidden(message),
            (code, _) => Self::Status { code, message },
        }
    }
}

/// `group/version`, or the version alone for the core group.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

/// A name as one segment of a path: names of requests may have almost any character.
pub(crate) fn segment(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

/// An error and its causes.
pub(crate) fn chain(fault: &dyn std::error::Error) -> String {
    let mut text = fault.to_string();
    let mut next = fault.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// Longer than any pause of a watch.
const GONE_WELL: Duration = Duration::from_secs(10);
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Longer than any call should take; an API server gives up after a minute itself.
const CALL_PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment_whatever_is_in_it() {
        for (name, expected) in [
            ("node-csr-aB_9", "node-csr-aB_9"),
            ("a b?c#d", "a%20b%3Fc%23d"),
            ("../../x", "..%2F..%2Fx"),
            ("ü", "%C3%BC"),
        ] {
            assert_eq!(segment(name), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_fails_again_and_again_waits_longer_each_time() {
        let mut pause = WatchPause::default();
        for expected in [100, 200, 400] {
            assert_eq!(pause.next(), Some(Duration::from_millis(expected)));
            // The next attempt begins.
            pause.reset();
        }
        tokio::time::advance(GONE_WELL).await;
        pause.reset();
        assert_eq!(pause.next(), Some(Duration::from_millis(100)));
    }

    #[test]
    fn a_broken_watch_waits_at_most_five_seconds() {
        let pauses: Vec<u64> = WatchPause::default()
            .take(8)
            .map(|pause| u64::try_from(pause.as_millis()).unwrap())
            .collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }
}
