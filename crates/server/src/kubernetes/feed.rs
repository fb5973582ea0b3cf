//! What the store keeps, brought into the caches.
//!
//! One task per door reads the history of states in commit order and applies it. It never skips a commit: what it cannot
//! read now it reads later, and until then lists that need it say so. At its start it loads what there is, and the history
//! that the store still has, so that watches go on where the last process left them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use countersign_authority::store::{LiveRequest, StoreFault};
use countersign_authority::{
    ObjectRecord, Objects, RequestRecord, Revision, State, StateChange, StateChangeKind,
};
use countersign_kapi::coordination::Lease;
use countersign_kapi::event::{CoreEvent, Event};
use countersign_kapi::rbac::book::RbacKind;
use countersign_kapi::rbac::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use countersign_kapi::{CertificateSigningRequest, Kind, Resource, Time};
use http::StatusCode;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{error, warn};

use super::answer::Refusal;
use super::cache::{Act, Bounds, Cache, Change, Event as Happening, Key, Stored};
use super::events::Expiry;
use super::watch_limit::{WatchBounds, WatchLimit};
use super::{DOOR, KubernetesDoor};

/// Everything the door shows, in memory.
#[derive(Debug)]
pub(super) struct Caches {
    requests: Cache<CertificateSigningRequest>,
    roles: Cache<Role>,
    cluster_roles: Cache<ClusterRole>,
    role_bindings: Cache<RoleBinding>,
    cluster_role_bindings: Cache<ClusterRoleBinding>,
    leases: Cache<Lease>,
    core_events: Cache<CoreEvent>,
    events: Cache<Event>,
    progress: watch::Sender<Progress>,
    /// Somebody waits.
    demand: Notify,
    /// There are too many events.
    pub(super) crowded: Notify,
    /// How many watches there may be.
    pub(super) watches: WatchLimit,
}

/// A kind that the door shows.
pub(super) trait Cached: Kind {
    /// As which resource the engine keeps it: one and the same object may be shown in two groups.
    const STORED_AS: Resource<'static> = Self::RESOURCE;

    /// Where its objects are.
    fn cache(caches: &Caches) -> &Cache<Self>;

    /// Reads what [`stored_body`](Self::stored_body) wrote.
    ///
    /// # Errors
    /// Says why it is none.
    fn read_body(body: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(body)
    }

    /// An object as the engine keeps it: its JSON without what the record itself says (identity, version, creation).
    fn stored_body(&self) -> Vec<u8> {
        let mut object = self.clone();
        let meta = object.metadata_mut();
        meta.uid = String::new();
        meta.resource_version = String::new();
        meta.creation_timestamp = None;
        // Text, numbers, lists and maps of text: there is nothing that JSON cannot say.
        serde_json::to_vec(&object).unwrap_or_default()
    }
}

/// The caches and the task that fills them, which ends with this.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) caches: Arc<Caches>,
    _running: DropGuard,
}

/// The caches have not come so far in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Behind {
    /// How far they are; 0: not begun.
    pub(super) at: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Every cache is complete up to here.
    revision: u64,
    /// The store does not answer.
    is_stuck: bool,
}

impl Feed {
    /// Begins to fill caches from the door's authority.
    pub(super) fn start(door: &KubernetesDoor) -> Self {
        let caches = Arc::new(Caches::new());
        let stop = CancellationToken::new();
        // Not the door itself: the task would keep alive what ends it.
        let door = door.without_feed();
        let feeder = Feeder {
            door,
            caches: Arc::clone(&caches),
        };
        // On its own: to forget takes many commits, and nobody waits for it.
        let trimmer = Trimmer {
            objects: feeder.door.authority.objects.clone(),
            caches: Arc::clone(&caches),
        };
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(trimmer.run()).await });
        let expiry = Expiry::new(&feeder.door.authority, &caches);
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(expiry.run()).await });
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(feeder.run()).await });
        Self {
            caches,
            _running: stop.drop_guard(),
        }
    }
}

impl Caches {
    fn new() -> Self {
        Self {
            requests: Cache::new(BOUNDS),
            roles: Cache::new(BOUNDS),
            cluster_roles: Cache::new(BOUNDS),
            role_bindings: Cache::new(BOUNDS),
            cluster_role_bindings: Cache::new(BOUNDS),
            leases: Cache::new(SMALL_BOUNDS),
            core_events: Cache::new(SMALL_BOUNDS),
            events: Cache::new(SMALL_BOUNDS),
            progress: watch::Sender::new(Progress::default()),
            demand: Notify::new(),
            crowded: Notify::new(),
            watches: WatchLimit::new(WATCHES),
        }
    }

    /// Waits until everything up to a revision is in the caches.
    pub(super) async fn reached(&self, revision: u64) -> Result<(), Behind> {
        let mut progress = self.progress.subscribe();
        let is_there = |progress: &Progress| progress.revision >= revision.max(1);
        if is_there(&progress.borrow()) {
            return Ok(());
        }
        self.demand.notify_one();
        // To load everything may take longer than to follow, and whoever asks again only waits anew.
        let patience = match progress.borrow().revision {
            0 => LOADING_PATIENCE,
            _ => PATIENCE,
        };
        match timeout(patience, progress.wait_for(is_there)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Behind {
                at: self.progress.borrow().revision,
            }),
        }
    }

    /// Whether the caches are loaded and follow the store.
    pub(super) async fn are_fed(&self) -> bool {
        self.reached(1).await.is_ok() && !self.progress.borrow().is_stuck
    }

    /// Those of the objects that are no requests.
    fn shelves(&self) -> [&dyn Shelf; 7] {
        [
            &self.roles,
            &self.cluster_roles,
            &self.role_bindings,
            &self.cluster_role_bindings,
            &self.leases,
            &self.core_events,
            &self.events,
        ]
    }

    fn reach(&self, revision: u64) {
        self.requests.reach(revision);
        for shelf in self.shelves() {
            shelf.reach(revision);
        }
        self.progress.send_replace(Progress {
            revision,
            is_stuck: false,
        });
    }

    /// From where on the history is of use: what the busiest of the rings still has. The others have more in memory, and
    /// after a restart as much.
    fn floor(&self) -> u64 {
        let floors = self.shelves().map(Shelf::floor);
        floors.into_iter().fold(self.requests.floor(), u64::max)
    }
}

impl Cached for CertificateSigningRequest {
    fn cache(caches: &Caches) -> &Cache<Self> {
        &caches.requests
    }
}

impl Cached for Role {
    fn cache(caches: &Caches) -> &Cache<Self> {
        &caches.roles
    }
}

impl Cached for ClusterRole {
    fn cache(caches: &Caches) -> &Cache<Self> {
        &caches.cluster_roles
    }
}

impl Cached for RoleBinding {
    fn cache(caches: &Caches) -> &Cache<Self> {
        &caches.role_bindings
    }
}

impl Cached for ClusterRoleBinding {
    fn cache(caches: &Caches) -> &Cache<Self> {
        &caches.cluster_role_bindings
    }
}

impl Cached for Lease {
    fn cache(caches: &Caches) -> &Cache<Self> {
        &caches.leases
    }
}

impl Cached for CoreEvent {
    fn cache(caches: &Caches) -> &Cache<Self> {
        &caches.core_events
    }
}

impl Cached for Event {
    const STORED_AS: Resource<'static> = CoreEvent::RESOURCE;

    fn cache(caches: &Caches) -> &Cache<Self> {
        &caches.events
    }

    fn read_body(body: &[u8]) -> Result<Self, serde_json::Error> {
        CoreEvent::read_body(body).map(Self::from)
    }

    fn stored_body(&self) -> Vec<u8> {
        self.to_core().stored_body()
    }
}

struct Feeder {
    door: KubernetesDoor,
    caches: Arc<Caches>,
}

impl Feeder {
    async fn run(self) {
        let mut revisions = self.door.authority.revisions();
        let (mut since, mut pause) = (None, FIRST_PAUSE);
        loop {
            let target = *revisions.borrow_and_update();
            let fed = match since {
                None => self.load().await.map(|reached| (reached, true)),
                Some(since) => self.follow(since, target).await,
            };
            let brought = match fed {
                Ok((reached, brought)) => {
                    since = Some(reached);
                    pause = FIRST_PAUSE;
                    brought
                }
                Err(fault) => {
                    warn!(%fault, "the objects of the Kubernetes door cannot be followed; it is tried again");
                    self.caches
                        .progress
                        .send_modify(|progress| progress.is_stuck = true);
                    sleep(pause).await;
                    pause = LAST_PAUSE.min(pause * 2);
                    continue;
                }
            };
            if !brought {
                // Other doors are at work: their commits are not each worth a look, unless somebody waits for it.
                let _woken = timeout(QUIET_PAUSE, self.caches.demand.notified()).await;
            }
            if revisions.changed().await.is_err() {
                return;
            }
        }
    }

    /// Fills the caches; answers how far they are. Records are turned into objects page by page, so that both are never
    /// there as a whole.
    async fn load(&self) -> Result<Revision, StoreFault> {
        let authority = &self.door.authority;
        let floor = patiently(|| authority.objects.horizon(BOUNDS.events)).await?;
        let (requests_at, shown) = patiently(|| self.show_live()).await?;
        let (objects_at, objects) = patiently(|| authority.objects.all()).await?;
        let mut past = Past::new(floor.0, &shown);
        let mut of_objects = Vec::new();
        let mut since = floor;
        while since < requests_at.max(objects_at) {
            let page = patiently(|| authority.objects.states(since, PAGE)).await?;
            let Some(last) = page.last() else {
                break;
            };
            since = last.revision;
            for change in page {
                if let Some((change, record)) = of_a_request(&change)
                    && change.revision <= requests_at
                {
                    let stored = match past.present(&(String::new(), record.key.clone()), change) {
                        Some(stored) => Some(stored),
                        None => self.show(record).await?,
                    };
                    past.push(change, stored);
                } else if let State::Object(_) = change.state {
                    of_objects.push(change);
                }
            }
        }
        let caches = &self.caches;
        let (floor_of_requests, history) = past.into_history();
        caches
            .requests
            .begin(requests_at.0, shown, floor_of_requests, history);
        for shelf in caches.shelves() {
            shelf.begin(objects_at.0, &objects, floor.0, &of_objects);
        }
        let reached = requests_at.min(objects_at);
        caches.progress.send_replace(Progress {
            revision: reached.0,
            is_stuck: false,
        });
        Ok(reached)
    }

    /// Every request as clients see it, and the revision at which that was so.
    async fn show_live(
        &self,
    ) -> Result<(Revision, Vec<Arc<Stored<CertificateSigningRequest>>>), StoreFault> {
        let (sender, mut pages) = mpsc::channel(1);
        let door = DOOR;
        let reading = self.door.authority.requests.live(&door, sender);
        let showing = async {
            let mut shown = Vec::new();
            while let Some(page) = pages.recv().await {
                for LiveRequest {
                    record,
                    certificate,
                } in &page
                {
                    let object = self.door.show_with(record, certificate.as_deref());
                    shown.extend(stored(record, object)?);
                }
            }
            Ok(shown)
        };
        tokio::try_join!(reading, showing)
    }

    /// Takes in what came after `since`; answers how far that is, and whether there was anything.
    async fn follow(
        &self,
        mut since: Revision,
        target: Revision,
    ) -> Result<(Revision, bool), StoreFault> {
        let mut brought = false;
        loop {
            let page = self.door.authority.objects.states(since, PAGE).await?;
            let Some(last) = page.last() else {
                break;
            };
            self.take_in(&page).await?;
            if page.iter().any(is_of_roles) {
                self.settle(last.revision);
            }
            (since, brought) = (last.revision, true);
            // Not by its length: a page is short where it would end inside a commit.
            if since >= target {
                break;
            }
        }
        // What was committed before the last read was in it.
        let reached = since.max(target);
        self.caches.reach(reached.0);
        Ok((reached, brought))
    }

    /// A change of roles whose writer went away before it counted counts all the same.
    fn settle(&self, revision: Revision) {
        let (authorizer, authority) = (self.door.authorizer.clone(), self.door.authority.clone());
        tokio::spawn(async move {
            if let Err(fault) = authorizer.settle(&authority, revision).await {
                warn!(%fault, "a change of roles does not count yet");
            }
        });
    }

    /// Applies states, commit by commit; all of them, or none.
    async fn take_in(&self, page: &[StateChange]) -> Result<(), StoreFault> {
        let (_, records): (Vec<&StateChange>, Vec<&RequestRecord>) =
            page.iter().filter_map(of_a_request).unzip();
        let mut shown = self.show_all(&records).await?.into_iter();
        for commit in page.chunk_by(|one, other| one.revision == other.revision) {
            let Some(revision) = commit.first().map(|change| change.revision.0) else {
                continue;
            };
            let mut acts = Vec::new();
            for (change, record) in commit.iter().filter_map(of_a_request) {
                acts.extend(self.act(change, record, shown.next().flatten()));
            }
            self.caches.requests.apply(revision, acts);
            for shelf in self.caches.shelves() {
                shelf.apply(revision, commit);
            }
        }
        Ok(())
    }

    /// What a state of a request does to the cache. One that cannot be read is not there.
    fn act(
        &self,
        change: &StateChange,
        record: &RequestRecord,
        stored: Option<Arc<Stored<CertificateSigningRequest>>>,
    ) -> Option<Act<CertificateSigningRequest>> {
        let is_there = change.kind != StateChangeKind::Deleted && record.live;
        match stored {
            Some(stored) if is_there => Some(Act::Put(stored)),
            Some(stored) => Some(Act::Remove(stored)),
            None => {
                let key = (String::new(), record.key.clone());
                self.caches.requests.removal(&key, change.revision.0)
            }
        }
    }

    /// Records as clients see them; `None`: one that cannot be read, which must not hide all others.
    async fn show_all(
        &self,
        records: &[&RequestRecord],
    ) -> Result<Vec<Option<Arc<Stored<CertificateSigningRequest>>>>, StoreFault> {
        let mut shown = Vec::with_capacity(records.len());
        for record in records {
            shown.push(self.show(record).await?);
        }
        Ok(shown)
    }

    async fn show(
        &self,
        record: &RequestRecord,
    ) -> Result<Option<Arc<Stored<CertificateSigningRequest>>>, StoreFault> {
        stored(record, self.door.show(record).await)
    }
}

/// Reads from a store that may be busy with others: after a start everybody comes at once, and what was read so far is not
/// to be read again.
async fn patiently<T, F: Future<Output = Result<T, StoreFault>>>(
    read: impl Fn() -> F,
) -> Result<T, StoreFault> {
    for _ in 0..MAX_READS {
        match read().await {
            Err(StoreFault::Overloaded) => sleep(FIRST_PAUSE).await,
            other => return other,
        }
    }
    read().await
}

/// An object to be kept; `None`: its record cannot be read, which must not hide all others.
fn stored(
    record: &RequestRecord,
    object: Result<CertificateSigningRequest, Refusal>,
) -> Result<Option<Arc<Stored<CertificateSigningRequest>>>, StoreFault> {
    let shown = match object {
        Ok(object) => Stored::new(object).map_err(|fault| fault.to_string()),
        Err(refusal) if refusal.code() == StatusCode::INTERNAL_SERVER_ERROR => {
            Err(format!("{refusal:?}"))
        }
        Err(refusal) => return Err(unavailable(&refusal)),
    };
    match shown {
        Ok(stored) => Ok(Some(Arc::new(stored))),
        Err(fault) => {
            error!(request = %record.id, fault, "a stored request cannot be shown; skipped");
            Ok(None)
        }
    }
}

/// Has the store forget what no ring holds any more.
struct Trimmer {
    objects: Objects,
    caches: Arc<Caches>,
}

impl Trimmer {
    async fn run(self) {
        let mut trimmed = 0;
        loop {
            sleep(TRIM_PAUSE).await;
            trimmed = self.trim(trimmed).await;
        }
    }

    /// Answers up to where.
    async fn trim(&self, trimmed: u64) -> u64 {
        let floor = self.caches.floor();
        if floor <= trimmed {
            return trimmed;
        }
        let before = Revision(floor.saturating_add(1));
        match self.objects.trim(before).await {
            Ok(()) => floor,
            Err(fault) => {
                warn!(%fault, "old states of objects are not forgotten yet");
                trimmed
            }
        }
    }
}

/// A cache of objects that are no requests, whatever their kind.
trait Shelf: Send + Sync {
    fn begin(&self, revision: u64, objects: &[ObjectRecord], floor: u64, states: &[StateChange]);
    fn apply(&self, revision: u64, commit: &[StateChange]);
    fn reach(&self, revision: u64);
    fn floor(&self) -> u64;
}

impl<T: Cached> Shelf for Cache<T> {
    fn begin(&self, revision: u64, objects: &[ObjectRecord], floor: u64, states: &[StateChange]) {
        let own = objects.iter().filter(|record| is_of_kind::<T>(record));
        let objects: Vec<Arc<Stored<T>>> = own.filter_map(show_object).collect();
        let mut past = Past::new(floor, &objects);
        let own = own_states::<T>(states).filter(|(state, _)| state.revision.0 <= revision);
        for (state, record) in own {
            past.push(state, show_object(record));
        }
        let (floor, history) = past.into_history();
        self.begin(revision, objects, floor, history);
    }

    fn apply(&self, revision: u64, commit: &[StateChange]) {
        let acts = own_states::<T>(commit).filter_map(|(change, record)| {
            match (show_object(record), change.kind) {
                (Some(stored), StateChangeKind::Added | StateChangeKind::Modified) => {
                    Some(Act::Put(stored))
                }
                (Some(stored), StateChangeKind::Deleted) => Some(Act::Remove(stored)),
                (None, _) => {
                    let key = (record.key.namespace.clone(), record.key.name.clone());
                    self.removal(&key, revision)
                }
            }
        });
        self.apply(revision, acts.collect());
    }

    fn reach(&self, revision: u64) {
        self.reach(revision);
    }

    fn floor(&self) -> u64 {
        self.floor()
    }
}

/// The state of a request of this door.
fn of_a_request(change: &StateChange) -> Option<(&StateChange, &RequestRecord)> {
    match &change.state {
        State::Request(record) if record.door == DOOR => Some((change, &**record)),
        State::Request(_) | State::Object(_) => None,
    }
}

fn own_states<T: Cached>(
    states: &[StateChange],
) -> impl Iterator<Item = (&StateChange, &ObjectRecord)> {
    states.iter().filter_map(|change| match &change.state {
        State::Object(record) if is_of_kind::<T>(record) => Some((change, &**record)),
        State::Object(_) | State::Request(_) => None,
    })
}

fn is_of_kind<T: Cached>(record: &ObjectRecord) -> bool {
    let kind = record.key.kind.as_str();
    let named = kind.split_once('.').unwrap_or((kind, ""));
    named == (T::STORED_AS.resource, T::STORED_AS.group)
}

/// The state of a role or a binding.
fn is_of_roles(change: &StateChange) -> bool {
    match &change.state {
        State::Object(record) => RbacKind::stored_as(&record.key.kind).is_some(),
        State::Request(_) => false,
    }
}

/// An object as clients see it: what the door keeps of it, under the names and numbers of its record.
pub(super) fn object_of<T: Cached>(record: &ObjectRecord) -> Result<T, serde_json::Error> {
    let mut object = T::read_body(&record.body)?;
    let meta = object.metadata_mut();
    meta.name.clone_from(&record.key.name);
    meta.namespace.clone_from(&record.key.namespace);
    meta.uid = record.id.to_string();
    meta.resource_version = record.version.to_string();
    meta.creation_timestamp = Time::from_unix(record.created.0);
    Ok(object)
}

fn show_object<T: Cached>(record: &ObjectRecord) -> Option<Arc<Stored<T>>> {
    match object_of(record).and_then(Stored::new) {
        Ok(stored) => Some(Arc::new(stored)),
        Err(fault) => {
            error!(object = %record.key, %fault, "a stored object cannot be shown; skipped");
            None
        }
    }
}

/// A history being made of stored states. Which state was before which is known from the second one on.
struct Past<T> {
    floor: u64,
    /// The states of today, which are the last ones of the history.
    present: HashMap<(Key, String), Arc<Stored<T>>>,
    last: HashMap<Key, Arc<Stored<T>>>,
    events: Vec<Happening<T>>,
}

impl<T: Kind> Past<T> {
    fn new<'a>(floor: u64, present: impl IntoIterator<Item = &'a Arc<Stored<T>>>) -> Self {
        let present = present.into_iter().map(|stored| {
            let version = stored.object.metadata().resource_version.clone();
            ((stored.key(), version), Arc::clone(stored))
        });
        Self {
            floor,
            present: present.collect(),
            last: HashMap::new(),
            events: Vec::new(),
        }
    }

    /// The object as it is today, if that is since this very state.
    fn present(&self, key: &Key, state: &StateChange) -> Option<Arc<Stored<T>>> {
        let version = (key.clone(), state.revision.to_string());
        self.present.get(&version).cloned()
    }

    fn push(&mut self, state: &StateChange, stored: Option<Arc<Stored<T>>>) {
        let revision = state.revision.0;
        let Some(stored) = stored else {
            // From here on nobody can be told everything.
            self.floor = revision;
            self.events.clear();
            return;
        };
        let key = stored.key();
        let now = self.present(&key, state).unwrap_or(stored);
        let change = match state.kind {
            StateChangeKind::Added => Change::Added,
            StateChangeKind::Modified => Change::Modified(self.last.remove(&key)),
            StateChangeKind::Deleted => Change::Deleted(self.last.remove(&key)),
        };
        if state.kind != StateChangeKind::Deleted {
            self.last.insert(key, Arc::clone(&now));
        }
        self.events.push(Happening {
            revision,
            change,
            now,
        });
    }

    fn into_history(self) -> (u64, Vec<Happening<T>>) {
        (self.floor, self.events)
    }
}

fn unavailable(refusal: &Refusal) -> StoreFault {
    StoreFault::Failed {
        source: format!("{refusal:?}").into(),
    }
}

/// How much is kept of the past: minutes of a busy cluster's work, and no more memory than a small server has.
const BOUNDS: Bounds = Bounds {
    events: 16 * 1024,
    bytes: 64 * 1024 * 1024,
};
/// The same of leases and events, which come by the second and of which nobody asks for the past.
const SMALL_BOUNDS: Bounds = Bounds {
    events: 4 * 1024,
    bytes: 8 * 1024 * 1024,
};
/// Watches at once: every node of a large cluster follows its own request, and many of them may come through one address or
/// with one token.
const WATCHES: WatchBounds = WatchBounds {
    total: 8192,
    reserved: 256,
    own: 2048,
    per_user: 256,
    per_owner: 64,
    per_source: 1024,
};
/// How long a read waits for the caches to catch up, as API servers do.
const PATIENCE: Duration = Duration::from_secs(3);
const LOADING_PATIENCE: Duration = Duration::from_secs(25);
/// States read at once.
const PAGE: usize = 512;
/// How often a busy store is asked again before the load begins anew: for five seconds.
const MAX_READS: usize = 100;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(5);
const QUIET_PAUSE: Duration = Duration::from_millis(5);
const TRIM_PAUSE: Duration = Duration::from_secs(60);
