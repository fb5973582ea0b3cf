//! The operator: certificates, authorities and signing policies of openvox-operator's API, `openvox.voxpupuli.org/v1alpha1`.
//!
//! Watches feed a pure `index`; `standing` says where a Certificate stands; the passes (`certificate`, `authority`, `policies`)
//! carry out what follows, one object at a time. The phase in a status is output: what decides is the spec, the Secrets and
//! the clock. Nothing is sent to a CA for a key that is not stored, and nothing is stored that does not belong together.

mod address;
mod admission;
mod authority;
mod ca;
mod calls;
mod certificate;
mod crl;
mod deletion;
mod duration;
mod events;
mod gate;
mod holding;
mod index;
mod issuing;
mod metrics;
mod object;
mod order;
mod policies;
mod renewal;
mod renewing;
mod secret;
mod service;
mod standing;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;

use countersign_authority::{Clock, SystemClock};
use countersign_enroll::ca::{Key as RsaKey, KeyFault};
use countersign_pki::UnixTime;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};
use zeroize::Zeroizing;

pub(crate) use self::admission::review;
pub use self::admission::{AdmissionKind, ReviewFault};
pub use self::ca::AuthorityAccess;
use self::ca::{CaConnector, Network};
pub(crate) use self::calls::Calls;
use self::calls::Kind;
use self::events::Event;
use self::gate::Gate;
use self::index::{Index, Key};
pub(crate) use self::metrics::OperatorMetrics;
use self::object::{Meta, ObjectName, PAUSED_CONDITION};
use self::policies::Given;
use self::status::NewStatus;
use crate::api::{Api, CallFault, Resource};
use crate::follow::follow;
use crate::metrics::ClusterMetrics;
use crate::queue::{Pause, Queue};

/// What the operator looks after.
#[derive(Clone, Debug)]
pub struct OperatorSettings {
    /// In these namespaces; empty: in all.
    pub namespaces: Vec<String>,
    /// The authority behind internal CertificateAuthorities.
    pub authority: Option<AuthorityAccess>,
    /// How many objects are worked on at once.
    pub workers: usize,
}

/// Makes a key, as PKCS#1 PEM. It takes seconds.
type KeyMaker = Arc<dyn Fn() -> Result<Zeroizing<String>, KeyFault> + Send + Sync>;

/// The operator, connected to a cluster.
pub(crate) struct Operator {
    settings: OperatorSettings,
    calls: Calls,
    cas: Box<dyn CaConnector>,
    clock: Arc<dyn Clock>,
    index: Mutex<Index>,
    /// How soon a CA may be asked again about a Certificate.
    gate: Mutex<Gate>,
    /// How soon for its revocation list.
    list_gate: Mutex<Gate>,
    /// How soon a CA that had no full revocation list is asked for one again.
    full_list_gate: Mutex<Gate>,
    /// Since when each CA that is not ready yet waits for the Certificate of its server.
    exports: Mutex<BTreeMap<ObjectName, UnixTime>>,
    /// How often each CA has not answered in a row.
    failures: Mutex<BTreeMap<ObjectName, u32>>,
    /// The SigningPolicies that the authority has, by CA.
    given: Mutex<BTreeMap<ObjectName, Given>>,
    queue: Queue,
    metrics: ClusterMetrics,
    instance: String,
    /// Held while a key is made: that keeps a processor busy for half a second, and there are places for all of them.
    key_making: Semaphore,
    make_key: KeyMaker,
}

/// What becomes of an object that was worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, until something changes.
    Done,
    /// It is looked at again.
    After(Duration),
}

/// What comes of a pass; a fault is one of the API server.
pub(crate) type Pass<T = Next> = Result<T, CallFault>;

impl Operator {
    pub(crate) fn new(
        settings: OperatorSettings,
        api: Api,
        metrics: ClusterMetrics,
        instance: String,
    ) -> Self {
        let cas = Box::new(Network);
        Self::with(
            settings,
            Calls::new(api),
            cas,
            Arc::new(SystemClock),
            metrics,
            instance,
        )
    }

    fn with(
        settings: OperatorSettings,
        calls: Calls,
        cas: Box<dyn CaConnector>,
        clock: Arc<dyn Clock>,
        metrics: ClusterMetrics,
        instance: String,
    ) -> Self {
        let scopes = match settings.namespaces.as_slice() {
            [] => vec![None],
            named => named.iter().cloned().map(Some).collect(),
        };
        Self {
            index: Mutex::new(Index::new(scopes)),
            gate: Mutex::default(),
            list_gate: Mutex::default(),
            full_list_gate: Mutex::default(),
            exports: Mutex::default(),
            failures: Mutex::default(),
            given: Mutex::default(),
            queue: Queue::default(),
            key_making: Semaphore::new(available_parallelism().map_or(1, NonZeroUsize::get)),
            make_key: Arc::new(|| RsaKey::generate()?.to_pkcs1_pem()),
            settings,
            calls,
            cas,
            clock,
            metrics,
            instance,
        }
    }

    /// Works until told to stop. `ready` is called once everything has been read.
    pub(crate) async fn run(
        self: Arc<Self>,
        stop: &CancellationToken,
        tasks: &TaskTracker,
        ready: impl FnOnce(),
    ) {
        let scopes = self.index().scopes().to_vec();
        for kind in WATCHED {
            for scope in &scopes {
                let (operator, stop, scope) = (Arc::clone(&self), stop.clone(), scope.clone());
                tasks.spawn(async move {
                    tokio::select! {
                        () = operator.watch(kind, scope) => {}
                        () = stop.cancelled() => {}
                    }
                });
            }
        }
        let work = async {
            while !self.index().has_read(&WATCHED) {
                sleep(LOOK_WHETHER_READ).await;
            }
            ready();
            tokio::select! {
                () = self.dispatch(tasks) => {}
                () = self.look_for_forgotten_policies() => {}
            }
        };
        tokio::select! {
            () = work => {}
            () = stop.cancelled() => {}
        }
    }

    /// Follows a kind of objects, from when the cluster has it.
    async fn watch(&self, kind: Kind, scope: Option<String>) {
        let (group, version) = kind.group();
        let resource = Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.word(),
            plural: kind.plural().to_owned(),
            namespace: scope.clone(),
            name: None,
            labels: None,
            metadata_only: kind == Kind::Secret,
        };
        loop {
            match self.calls.is_served(kind).await {
                Ok(true) => {
                    follow(self.calls.api(), &resource, |change| {
                        let woken = self.index().apply(kind, scope.as_deref(), change);
                        self.wake(woken);
                        self.count();
                    })
                    .await;
                }
                Ok(false) => {
                    let woken = self.index().not_served(kind, scope.as_deref());
                    self.wake(woken);
                }
                Err(fault) => warn!(kind = kind.word(), %fault, "cannot be looked for"),
            }
            sleep(LOOK_FOR_KINDS).await;
        }
    }

    fn wake(&self, keys: impl IntoIterator<Item = Key>) {
        let names: Vec<String> = keys.into_iter().map(|key| key.to_string()).collect();
        self.queue.wake_all(&names);
    }

    /// Hands objects to workers, so many at a time.
    async fn dispatch(self: &Arc<Self>, tasks: &TaskTracker) {
        let places = Arc::new(Semaphore::new(self.settings.workers.max(1)));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let name = self.queue.next().await;
            let worker = Arc::clone(self);
            tasks.spawn(async move {
                worker.work_on(&name).await;
                drop(place);
            });
        }
    }

    async fn work_on(&self, name: &str) {
        let Some(key) = Key::parse(name) else {
            self.queue.done(name);
            return;
        };
        match self.look(&key).await {
            Ok(Next::Done) => self.queue.done(name),
            Ok(Next::After(pause)) => self.queue.later(name, pause),
            // The watch brings what it is now.
            Err(CallFault::Conflict | CallFault::Exists) => self.queue.retry(name, Pause::Evidence),
            Err(fault) => {
                warn!(object = name, %fault, "is tried again");
                self.queue.retry(name, Pause::Evidence);
            }
        }
    }

    /// Works on one object.
    pub(crate) async fn look(&self, key: &Key) -> Pass {
        match key {
            Key::Certificate(name) => self.certificate(name).await,
            Key::Authority(name) => self.authority(name).await,
            Key::Policies(name) => self.policies(name).await,
        }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list_gate(&self) -> MutexGuard<'_, Gate> {
        self.list_gate
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn full_list_gate(&self) -> MutexGuard<'_, Gate> {
        self.full_list_gate
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn given(&self) -> MutexGuard<'_, BTreeMap<ObjectName, Given>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when a CA waits for a Certificate; not at all, if it does not.
    fn export_began(&self, name: &ObjectName, is_under_way: bool) -> Option<UnixTime> {
        let now = self.now();
        let mut exports = self.exports.lock().unwrap_or_else(PoisonError::into_inner);
        match is_under_way {
            true => Some(*exports.entry(name.clone()).or_insert(now)),
            false => {
                exports.remove(name);
                None
            }
        }
    }

    fn count_failure(&self, name: &ObjectName) -> u32 {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(name.clone()).or_default();
        *count = count.saturating_add(1);
        *count
    }

    fn forget_failures(&self, name: &ObjectName) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.remove(name);
    }

    fn now(&self) -> UnixTime {
        self.clock.now()
    }

    fn count(&self) {
        self.metrics.operator.phases(self.index().phases());
    }

    /// Has an object say this of itself, and takes in what the API server makes of it.
    async fn say(&self, kind: Kind, meta: &Meta, status: &Value, wanted: &NewStatus) -> Pass<bool> {
        let mut wanted = wanted.clone();
        if !wanted
            .conditions
            .iter()
            .any(|it| it.kind == PAUSED_CONDITION)
        {
            wanted = wanted.without(PAUSED_CONDITION);
        }
        let Some(patch) = wanted.patch(meta, status, self.now()) else {
            return Ok(false);
        };
        let written = self.calls.patch_status(kind, &meta.name, &patch).await?;
        self.index().written(kind, &written);
        Ok(true)
    }

    /// Writes an Event. That it is lost is no reason to do anything else.
    async fn tell(&self, kind: Kind, meta: &Meta, event: &Event) {
        let object = event.object(kind, meta, &self.instance, self.now());
        match self.calls.event(&meta.name.namespace, &object).await {
            Ok(()) | Err(CallFault::Exists) => {}
            Err(fault) => debug!(object = %meta.name, reason = event.reason, %fault, "no Event"),
        }
    }

    /// A Secret, if there is one.
    async fn secret(&self, name: &ObjectName) -> Pass<Option<secret::Secret>> {
        let is_there = self.index().has_secret(name);
        match is_there {
            true => self.calls.secret(name).await,
            false => Ok(None),
        }
    }

    /// Creates a Secret, or has an existing one hold these values. It is returned if that changed it.
    async fn keep(
        &self,
        wanted: &secret::NewSecret<'_>,
        existing: Option<&secret::Secret>,
    ) -> Pass<Option<secret::Secret>> {
        let written = match existing {
            Some(existing) if wanted.is_in(existing) => return Ok(None),
            Some(existing) => {
                let patch = wanted.patch(existing);
                self.calls.patch(Kind::Secret, &wanted.name, &patch).await?
            }
            None => {
                let object = wanted.object();
                let namespace = &wanted.name.namespace;
                self.calls.create(Kind::Secret, namespace, &object).await?
            }
        };
        self.index().written(Kind::Secret, &written);
        Ok(secret::Secret::read(&written))
    }

    async fn delete_secret(&self, secret: &secret::Secret) -> Pass<()> {
        self.calls.delete(Kind::Secret, &secret.meta).await?;
        self.index().forget_secret(&secret.meta.name);
        Ok(())
    }
}

const WATCHED: [Kind; 7] = [
    Kind::Certificate,
    Kind::CertificateAuthority,
    Kind::SigningPolicy,
    Kind::Config,
    Kind::Server,
    Kind::Pool,
    Kind::Secret,
];
/// A definition that appears later is found then.
const LOOK_FOR_KINDS: Duration = Duration::from_secs(10);
const LOOK_WHETHER_READ: Duration = Duration::from_millis(50);
