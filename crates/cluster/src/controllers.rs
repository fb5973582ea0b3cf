//! The loop around the index: follows the cluster, works on requests, writes decisions, deletes what is outdated.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use countersign_authority::{Clock as _, Deciders, LocalEvidence, SystemClock};
use countersign_policy::{Execution, Policy, object_names};
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::ahead::Ahead;
use crate::api::{Api, CallFault, ConnectFault, Resource, segment};
use crate::cleaner::{CleanerSettings, delete_options, outdated};
use crate::delivery::Deliveries;
use crate::dial::DialSettings;
use crate::events::EventBudget;
use crate::follow::follow;
use crate::index::{Change, Index, Watched};
use crate::leader::{Candidate, Election, LeaseLost};
use crate::metrics::ClusterMetrics;
use crate::node_locks::NodeLocks;
use crate::objects::CsrObject;
use crate::operator::{AdmissionKind, Calls, Operator, OperatorSettings, ReviewFault, review};
use crate::pods::{PodSigner, Pods};
use crate::queue::{Pause, Queue};
use crate::resolver::Resolver;
use crate::resources::{Attended, ResourceKind, Steward, Withheld};
use crate::reviews::Reviews;
use crate::signing::Signer;

/// A part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// Decides by policy.
    Approver,
    /// Signs what is approved.
    Signer,
    /// Deletes what is outdated.
    Cleaner,
    /// Reconciles Certificates, CertificateAuthorities and SigningPolicies.
    Operator,
}

/// How the controllers work.
#[derive(Clone)]
pub struct Settings {
    /// Which of them.
    pub controllers: BTreeSet<Controller>,
    /// The cluster whose requests are worked on; `None`: what the environment says.
    pub kubeconfig: Option<PathBuf>,
    /// The cluster that has the Machines, if it is another one.
    pub management_kubeconfig: Option<PathBuf>,
    /// How replicas find out which one works; `None`: this one does.
    pub election: Option<Election>,
    /// How long requests are kept.
    pub cleaner: CleanerSettings,
    /// Where nodes may be dialled.
    pub dial: DialSettings,
    /// API groups that Machines come from, as `group` or `group/version`.
    pub machines: Vec<String>,
    /// Only the Machines of this namespace.
    pub machine_namespace: Option<String>,
    /// How many requests are worked on at once.
    pub workers: usize,
    /// Who signs, for the signer controller.
    pub signer: Option<Arc<dyn Signer>>,
    /// Who signs for pods, for the same.
    pub pods: Option<Arc<dyn PodSigner>>,
    /// How long after its creation a request of a pod is not denied for something that is not there.
    pub pod_grace: Duration,
    /// What the operator looks after.
    pub operator: OperatorSettings,
    /// What this replica calls itself in Events.
    pub instance: String,
}

/// What decides, exchanged as one.
pub struct Rules {
    /// The rules.
    pub policy: Policy,
    /// Who asks webhooks.
    pub deciders: Arc<dyn Deciders>,
    /// Who reads lists and runs programs.
    pub local: Arc<dyn LocalEvidence>,
    /// For which signers they do not decide, whatever they say.
    pub withheld: Withheld,
}

/// Why the controllers ended.
#[derive(Debug, thiserror::Error)]
pub enum ClusterFault {
    /// There is no cluster.
    #[error(transparent)]
    Connect(#[from] ConnectFault),
    /// Another replica works, or may.
    #[error(transparent)]
    LeaseLost(#[from] LeaseLost),
}

/// The controllers, connected to a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

/// What all tasks share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) api: Api,
    management: Api,
    index: Mutex<Index>,
    /// What is watched, each with what ends it.
    watches: Mutex<BTreeMap<Watched, CancellationToken>>,
    pub(crate) queue: Queue,
    /// The index has changed.
    pub(crate) changed: Notify,
    rules: ArcSwap<Rules>,
    pub(crate) metrics: ClusterMetrics,
    pub(crate) resolver: Resolver,
    reviews: Mutex<Reviews>,
    pub(crate) events: Mutex<EventBudget>,
    /// What programs have said of requests, by the requests' names.
    said: Mutex<BTreeMap<String, Said>>,
    pub(crate) node_locks: NodeLocks,
    /// Whether conditions can be patched but not put.
    pub(crate) patches: AtomicBool,
    /// Held by whoever looks for sources of Machines.
    discovery: tokio::sync::Mutex<bool>,
    /// The resources that are acted on.
    attended: Mutex<Vec<Attended>>,
    pub(crate) pods: Pods,
    pub(crate) deliveries: Deliveries,
    pub(crate) ahead: Ahead,
    pub(crate) tasks: TaskTracker,
    /// Ends the work of this replica.
    pub(crate) working: CancellationToken,
    is_ready: AtomicBool,
    readiness: Notify,
}

/// What programs have said of one request.
#[derive(Debug, Default)]
struct Said {
    /// The request's identity.
    uid: String,
    by_program: BTreeMap<PathBuf, Execution>,
}

impl Cluster {
    /// Finds the clusters. Nothing is asked of them yet.
    ///
    /// # Errors
    /// If there is no kubeconfig, or it is of no use.
    pub async fn connect(
        settings: Settings,
        rules: Rules,
        metrics: ClusterMetrics,
    ) -> Result<Self, ClusterFault> {
        let api = Api::connect(settings.kubeconfig.as_deref()).await?;
        let management = match &settings.management_kubeconfig {
            Some(path) => Api::connect(Some(path)).await?,
            None => api.clone(),
        };
        let groups: Vec<String> = settings
            .machines
            .iter()
            .map(|it| group_of(it).0.to_owned())
            .collect();
        Ok(Self {
            shared: Arc::new(Shared {
                index: Mutex::new(Index::new(&groups)),
                watches: Mutex::default(),
                queue: Queue::default(),
                changed: Notify::new(),
                rules: ArcSwap::from_pointee(rules),
                resolver: Resolver::default(),
                reviews: Mutex::default(),
                events: Mutex::new(EventBudget::new(tokio::time::Instant::now())),
                said: Mutex::default(),
                node_locks: NodeLocks::default(),
                patches: AtomicBool::new(false),
                discovery: tokio::sync::Mutex::new(false),
                attended: Mutex::default(),
                pods: Pods::default(),
                deliveries: Deliveries::default(),
                ahead: Ahead::default(),
                tasks: TaskTracker::new(),
                working: CancellationToken::new(),
                is_ready: AtomicBool::new(false),
                readiness: Notify::new(),
                settings,
                api,
                management,
                metrics,
            }),
        })
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// The address of the API server.
    pub fn url(&self) -> &str {
        &self.shared.api.url
    }

    /// Lets somebody act on the resources of a kind when this replica works; of a kind that has namespaces, on those of one
    /// (`None`: that of the pod, or of the context).
    pub fn attend(&self, kind: ResourceKind, namespace: Option<&str>, steward: Arc<dyn Steward>) {
        let own = || self.shared.api.namespace.clone();
        let namespace = match kind {
            ResourceKind::ApprovalPolicy | ResourceKind::Signer => None,
            ResourceKind::EnrollmentToken => Some(namespace.map_or_else(own, str::to_owned)),
        };
        self.shared.attended().push(Attended {
            kind,
            namespace,
            steward,
        });
    }

    /// Puts other rules in force. Whatever waits is judged by them.
    pub fn set_rules(&self, rules: Rules) {
        self.shared.rules.store(Arc::new(rules));
        self.look_again();
    }

    /// Looks at every request again.
    pub fn look_again(&self) {
        let names: Vec<String> = {
            let index = self.shared.index();
            index
                .requests()
                .map(|request| request.name.clone())
                .collect()
        };
        self.shared.queue.wake_all(&names);
        self.shared.queue.wake_all(&self.shared.pods_again());
    }

    /// Whether the cluster answers, and this replica either works or stands by.
    pub fn is_ready(&self) -> bool {
        self.shared.is_ready.load(Ordering::Relaxed)
    }

    /// Waits for that.
    pub async fn ready(&self) {
        loop {
            let readiness = self.shared.readiness.notified();
            if self.is_ready() {
                return;
            }
            readiness.await;
        }
    }

    /// Answers an AdmissionReview about one of the operator's objects, whether this replica works or stands by.
    ///
    /// # Errors
    /// If it cannot be read as far as to be answered.
    pub async fn review(&self, kind: AdmissionKind, body: &[u8]) -> Result<Vec<u8>, ReviewFault> {
        let shared = &self.shared;
        let calls = Calls::new(shared.api.clone());
        let namespaces = &shared.settings.operator.namespaces;
        review(kind, body, namespaces, &calls, &shared.metrics.operator).await
    }

    /// Works, or stands by, until `stop` is cancelled.
    ///
    /// # Errors
    /// If another replica works now, or may.
    pub async fn run(&self, stop: &CancellationToken) -> Result<(), ClusterFault> {
        let shared = &self.shared;
        let Some(election) = shared.settings.election.clone() else {
            shared.work(stop).await;
            return Ok(());
        };
        let mut candidate = Candidate::new(shared.api.clone(), election);
        let stands_by = || shared.set_ready();
        if !candidate.acquire(stop, stands_by).await {
            return Ok(());
        }
        shared.metrics.leading.set(1);
        let work = shared.work(stop);
        tokio::pin!(work);
        let held = tokio::select! {
            held = candidate.hold(stop) => Some(held),
            // It was told to stop, and has.
            () = &mut work => None,
        };
        shared.metrics.leading.set(0);
        if let Some(held) = held {
            // Whoever lost the lease must be gone before another begins; its writes count only for what it has seen.
            held.inspect_err(|_| shared.working.cancel())?;
            work.await;
        }
        candidate.release().await;
        Ok(())
    }
}

impl Shared {
    pub(crate) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn does(&self, controller: Controller) -> bool {
        self.settings.controllers.contains(&controller)
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.rules.load_full()
    }

    /// What is watched.
    pub(crate) fn watched(&self) -> BTreeSet<Watched> {
        self.watches().keys().cloned().collect()
    }

    fn watches(&self) -> MutexGuard<'_, BTreeMap<Watched, CancellationToken>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn remembered(&self, request: &CsrObject, path: &Path) -> Option<Execution> {
        let said = self.said();
        let of_request = said.get(&request.name)?;
        let program = of_request.by_program.get(path).cloned();
        program.filter(|_| of_request.uid == request.uid)
    }

    /// A program that has spoken is not run again for the same request.
    pub(crate) fn remember(&self, request: &CsrObject, path: &Path, what: &Execution) {
        if matches!(what, Execution::Unavailable(_)) {
            return;
        }
        let mut said = self.said();
        let of_request = said.entry(request.name.clone()).or_default();
        if of_request.uid != request.uid {
            of_request.by_program.clear();
            of_request.uid.clone_from(&request.uid);
        }
        of_request.by_program.insert(path.to_owned(), what.clone());
    }

    /// A request is decided or gone: nothing has to be kept of it.
    pub(crate) fn forget(&self, name: &str) {
        self.index().forget(name);
        self.said().remove(name);
    }

    fn said(&self) -> MutexGuard<'_, BTreeMap<String, Said>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reviews(&self) -> MutexGuard<'_, Reviews> {
        self.reviews.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attended(&self) -> MutexGuard<'_, Vec<Attended>> {
        self.attended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
        self.readiness.notify_waiters();
    }

    /// Works until told to stop, then finishes what is under way.
    async fn work(self: &Arc<Self>, stop: &CancellationToken) {
        let works_on_requests = |it: &Controller| *it != Controller::Operator;
        if self.settings.controllers.iter().any(works_on_requests) {
            self.start_watch(Watched::Requests);
        }
        for attended in self.attended().drain(..) {
            let (attending, stop) = (Arc::clone(self), self.working.clone());
            self.tasks.spawn(async move {
                tokio::select! {
                    () = attending.attend(attended) => {}
                    () = stop.cancelled() => {}
                }
            });
        }
        if self.does(Controller::Cleaner) {
            let cleaning = Arc::clone(self);
            self.tasks.spawn(async move { cleaning.clean().await });
        }
        if self.does(Controller::Signer) {
            self.start_pods();
        }
        if self.does(Controller::Operator) {
            self.start_operator();
        }
        if self.does(Controller::Approver) || self.does(Controller::Signer) {
            let dispatching = Arc::clone(self);
            // Not in the thread that waits for the end: a request would go through it and back.
            self.tasks.spawn(async move {
                tokio::select! {
                    () = dispatching.dispatch() => {}
                    () = dispatching.working.cancelled() => {}
                }
            });
        }
        stop.cancelled().await;
        self.working.cancel();
        self.tasks.close();
        let _late = timeout(DRAIN, self.tasks.wait()).await;
    }

    fn start_operator(self: &Arc<Self>) {
        let operator = Arc::new(Operator::new(
            self.settings.operator.clone(),
            self.api.clone(),
            self.metrics.clone(),
            self.settings.instance.clone(),
        ));
        let operating = Arc::clone(self);
        self.tasks.spawn(async move {
            let has_read = || operating.set_ready();
            operator
                .run(&operating.working, &operating.tasks, has_read)
                .await;
        });
    }

    /// Hands requests to workers, so many at a time.
    async fn dispatch(self: &Arc<Self>) {
        let places = Arc::new(Semaphore::new(self.settings.workers.max(1)));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let name = self.queue.next().await;
            self.count();
            let worker = Arc::clone(self);
            self.tasks.spawn(async move {
                match worker.work_on(&name).await {
                    Next::Done => worker.queue.done(&name),
                    Next::Again(why) => worker.queue.retry(&name, why),
                }
                drop(place);
            });
        }
    }

    fn count(&self) {
        let (pending, requests) = self.index().counts();
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.pending.set(number(pending));
        self.metrics.requests.set(number(requests));
        self.metrics.queued.set(number(self.queue.len()));
    }

    /// Follows a kind of objects from now on, unless somebody does already.
    pub(crate) fn start_watch(self: &Arc<Self>, watched: Watched) {
        let stop = {
            let mut watches = self.watches();
            if watches.contains_key(&watched) {
                return;
            }
            let stop = self.working.child_token();
            watches.insert(watched.clone(), stop.clone());
            stop
        };
        let follower = Arc::clone(self);
        self.tasks.spawn(async move {
            tokio::select! {
                () = follower.follow(watched) => {}
                () = stop.cancelled() => {}
            }
        });
    }

    async fn follow(self: Arc<Self>, watched: Watched) {
        let Some(resource) = self.resource(&watched) else {
            return;
        };
        let api = match watched {
            Watched::Machines(_) => &self.management,
            Watched::Requests | Watched::Nodes | Watched::Bundle | Watched::Switch => &self.api,
        };
        follow(api, &resource, |change| {
            let is_read = !matches!(change, Change::Unreadable(_));
            if let (Watched::Requests, Change::Gone(object)) = (&watched, &change) {
                self.deleted(object);
            }
            let woken = {
                let mut index = self.index();
                let mut woken = index.apply(&watched, change);
                woken.append(&mut index.relieved(SystemClock.now()));
                woken
            };
            self.queue.wake_all(&woken);
            self.changed.notify_waiters();
            if watched == Watched::Requests && is_read && !self.is_ready.load(Ordering::Relaxed) {
                self.set_ready();
            }
        })
        .await;
    }

    fn resource(&self, watched: &Watched) -> Option<Resource> {
        let of = |group: &str, version: &str, kind, plural: &str| Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            kind,
            plural: plural.to_owned(),
            namespace: None,
            name: None,
            labels: None,
            metadata_only: false,
        };
        Some(match watched {
            Watched::Requests => of(
                "certificates.k8s.io",
                "v1",
                "CertificateSigningRequest",
                "certificatesigningrequests",
            ),
            Watched::Nodes => of("", "v1", "Node", "nodes"),
            Watched::Machines(source) => {
                let (group, version) = group_of(source);
                Resource {
                    namespace: self.settings.machine_namespace.clone(),
                    ..of(group, version?, "Machine", "machines")
                }
            }
            Watched::Bundle => Resource {
                namespace: Some(object_names::BUNDLE_NAMESPACE.to_owned()),
                name: Some(object_names::BUNDLE.to_owned()),
                ..of("", "v1", "ConfigMap", "configmaps")
            },
            Watched::Switch => Resource {
                namespace: Some(object_names::SWITCH_NAMESPACE.to_owned()),
                name: Some(object_names::SWITCH.to_owned()),
                ..of("", "v1", "ConfigMap", "configmaps")
            },
        })
    }

    /// Looks which sources of Machines there are, and goes on looking.
    pub(crate) async fn discover(self: &Arc<Self>) {
        let mut has_begun = self.discovery.lock().await;
        if *has_begun {
            return;
        }
        *has_begun = true;
        self.discover_once().await;
        let looking = Arc::clone(self);
        self.tasks.spawn(async move {
            let stop = looking.working.clone();
            let look = async {
                loop {
                    sleep(LOOK_FOR_MACHINES).await;
                    looking.discover_once().await;
                }
            };
            tokio::select! {
                () = look => {}
                () = stop.cancelled() => {}
            }
        });
        drop(has_begun);
        let served = self.index().machine_watches();
        for watched in served {
            self.start_watch(watched);
        }
    }

    async fn discover_once(self: &Arc<Self>) {
        for source in &self.settings.machines {
            let (group, version) = group_of(source);
            let found = self.find_machines(group, version).await;
            let (watch, woken) = self.index().discovered(group, found);
            if let Some(watched) = watch {
                info!(source = ?watched, "Machines found");
                self.end_watches_of(group);
                self.start_watch(watched);
            }
            self.queue.wake_all(&woken);
        }
    }

    /// The version at which a group serves Machines, the preferred one if it does; `None`: the cluster has no such group.
    pub(crate) async fn find_machines(
        &self,
        group: &str,
        wanted: Option<&str>,
    ) -> Result<Option<String>, String> {
        let words = |fault: CallFault| fault.to_string();
        let path = format!("/apis/{}", segment(group));
        let Some(found) = self.management.get(&path).await.map_err(words)? else {
            return Ok(None);
        };
        let versions = match wanted {
            Some(version) => vec![version],
            None => versions_of(&found),
        };
        for version in &versions {
            let path = format!("{path}/{}", segment(version));
            let resources = self.management.get(&path).await.map_err(words)?;
            if resources.as_ref().is_some_and(serves_machines) {
                return Ok(Some((*version).to_owned()));
            }
        }
        Err(match versions.as_slice() {
            [] => "the group has no version".to_owned(),
            [version] => format!("version {version} serves no Machines"),
            several => format!(
                "none of the versions {} serves Machines",
                several.join(", ")
            ),
        })
    }

    fn end_watches_of(&self, group: &str) {
        let is_of = |watched: &Watched| match watched {
            Watched::Machines(source) => group_of(source).0 == group,
            Watched::Requests | Watched::Nodes | Watched::Bundle | Watched::Switch => false,
        };
        self.watches().retain(|watched, stop| {
            if is_of(watched) {
                stop.cancel();
            }
            !is_of(watched)
        });
    }

    /// Deletes outdated requests, now and then.
    async fn clean(self: Arc<Self>) {
        let mut ticks = interval(self.settings.cleaner.interval.max(SHORTEST_INTERVAL));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.working.cancelled() => return,
            }
            self.until_requests_are_read().await;
            let found = {
                let index = self.index();
                outdated(index.requests(), &self.settings.cleaner, SystemClock.now())
            };
            for (request, why) in found {
                if self.working.is_cancelled() {
                    return;
                }
                let path = format!("{CSRS}/{}", segment(&request.name));
                match self.api.delete(&path, &delete_options(&request)).await {
                    Ok(_) => {
                        debug!(name = %request.name, why, "deleted");
                        self.metrics.cleaned(why);
                    }
                    // It is gone, or another one by now.
                    Err(CallFault::NotFound | CallFault::Conflict) => {}
                    Err(fault) => warn!(name = %request.name, %fault, "cannot be deleted"),
                }
            }
        }
    }

    async fn until_requests_are_read(&self) {
        loop {
            let changed = self.changed.notified();
            if self.index().is_read(&Watched::Requests) || self.working.is_cancelled() {
                return;
            }
            tokio::select! {
                () = changed => {}
                () = self.working.cancelled() => return,
            }
        }
    }
}

/// What becomes of a request that was worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, until something changes.
    Done,
    /// It is worked on again.
    Again(Pause),
}

/// The versions of a group, the preferred one first.
fn versions_of(group: &Value) -> Vec<&str> {
    let preferred = group.pointer("/preferredVersion/version");
    let all = group.get("versions").and_then(Value::as_array);
    let all = all.into_iter().flatten().filter_map(|it| it.get("version"));
    let mut versions: Vec<&str> = Vec::new();
    for version in preferred.into_iter().chain(all).filter_map(Value::as_str) {
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    versions
}

/// Whether a version of a group has a resource of the kind Machine.
fn serves_machines(version: &Value) -> bool {
    let resources = version.get("resources").and_then(Value::as_array);
    let mut resources = resources.into_iter().flatten();
    resources.any(|it| it.get("kind").and_then(Value::as_str) == Some("Machine"))
}

/// `group` or `group/version`.
fn group_of(source: &str) -> (&str, Option<&str>) {
    match source.split_once('/') {
        Some((group, version)) => (group, Some(version)),
        None => (source, None),
    }
}

pub(crate) const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// A group that appears later is found then.
const LOOK_FOR_MACHINES: Duration = Duration::from_secs(10);
/// For what is under way when the program ends.
const DRAIN: Duration = Duration::from_secs(10);
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
