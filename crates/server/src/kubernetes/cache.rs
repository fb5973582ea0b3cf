//! The objects of one kind as they are, and what happened to them lately.
//!
//! Lists and watches are served from here and never ask the store. A state of an object is written as text once, however
//! many read it. The events are kept in a ring that is bounded in number and size; a watch is a place in it and buffers
//! nothing, so one that falls behind costs nothing and is told that it is too late.
//!
//! As every event also has the state before it, the ring tells what was there at any of its revisions: pages of a list and
//! lists of a past version need no copies that somebody would have to keep.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use countersign_kapi::Kind;
use tokio::sync::watch;

use super::quota::Stock;

/// Namespace (empty: none) and name.
pub(super) type Key = (String, String);

/// A state of an object, and its forms on the wire.
#[derive(Debug)]
pub(super) struct Stored<T> {
    /// The object.
    pub(super) object: T,
    json: Bytes,
    protobuf: OnceLock<Bytes>,
}

/// Something that happened.
#[derive(Debug)]
pub(super) struct Event<T> {
    /// When.
    pub(super) revision: u64,
    /// What.
    pub(super) change: Change<T>,
    /// The object since then; a deleted one as it was last, under the revision of its deletion.
    pub(super) now: Arc<Stored<T>>,
}

/// What happened to an object.
#[derive(Debug)]
pub(super) enum Change<T> {
    /// There was none of its name.
    Added,
    /// It was so before; `None`: that is not known.
    Modified(Option<Arc<Stored<T>>>),
    /// Likewise, and it is gone.
    Deleted(Option<Arc<Stored<T>>>),
}

/// What a commit did to an object.
#[derive(Debug)]
pub(super) enum Act<T> {
    /// It is so from now on.
    Put(Arc<Stored<T>>),
    /// It is gone; this is how it was last, under the revision of its deletion.
    Remove(Arc<Stored<T>>),
}

/// What is asked of the objects.
#[derive(Debug, Default)]
pub(super) struct PageQuery<'a> {
    /// As of this revision; `None`: as they are.
    pub(super) at: Option<u64>,
    /// Only of this namespace; empty: of any.
    pub(super) namespace: &'a str,
    /// Only of this name.
    pub(super) name: Option<&'a str>,
    /// Only behind this one.
    pub(super) behind: Option<Key>,
    /// At most so many.
    pub(super) limit: Option<usize>,
}

/// A part of the objects, in order of their names.
#[derive(Debug)]
pub(super) struct Page<T> {
    /// As of when.
    pub(super) revision: u64,
    /// The objects.
    pub(super) objects: Vec<Arc<Stored<T>>>,
    /// How many are left behind the last one, selected or not; `None`: no page follows.
    pub(super) left: Option<u64>,
}

/// A place in the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    /// The number of the next event.
    next: u64,
    /// Events up to this revision do not count.
    after: u64,
}

/// What came since a place in the ring.
#[derive(Debug)]
pub(super) struct Batch<T> {
    /// The events in order.
    pub(super) events: Vec<Arc<Event<T>>>,
    /// The place behind them.
    pub(super) cursor: Cursor,
    /// If that is all for now: up to where.
    pub(super) complete: Option<u64>,
}

/// It is too long ago: the oldest revision that can still be told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooOld(pub(super) u64);

/// The objects of one kind.
#[derive(Debug)]
pub(super) struct Cache<T> {
    state: RwLock<State<T>>,
    /// Counts events, so that watches wake up for those and nothing else.
    arrivals: watch::Sender<u64>,
    bounds: Bounds,
}

/// How much is kept of the past.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// So many events.
    pub(super) events: usize,
    /// So many bytes of them, roughly.
    pub(super) bytes: usize,
}

#[derive(Debug)]
struct State<T> {
    objects: BTreeMap<Key, Arc<Stored<T>>>,
    /// How many of them somebody created.
    created: HashMap<String, usize>,
    /// Everything up to here is in it.
    revision: u64,
    ring: VecDeque<Arc<Event<T>>>,
    /// Every event after this revision is in the ring.
    floor: u64,
    /// The number of the first event in the ring.
    first: u64,
    bytes: usize,
}

impl<T: Kind> Stored<T> {
    pub(super) fn new(object: T) -> Result<Self, serde_json::Error> {
        let json = serde_json::to_vec(&object)?.into();
        Ok(Self {
            object,
            json,
            protobuf: OnceLock::new(),
        })
    }

    /// Its text.
    pub(super) fn json(&self) -> &Bytes {
        &self.json
    }

    /// Its protobuf message, without the envelope.
    pub(super) fn protobuf(&self) -> &Bytes {
        self.protobuf
            .get_or_init(|| self.object.to_protobuf().into())
    }

    pub(super) fn key(&self) -> Key {
        let meta = self.object.metadata();
        (meta.namespace.clone(), meta.name.clone())
    }

    /// What it takes: the object and its text.
    fn weight(&self) -> usize {
        self.json.len().saturating_mul(2).saturating_add(OVERHEAD)
    }
}

impl<T> Event<T> {
    /// The state before; `Err`: it is not known.
    fn before(&self) -> Result<Option<&Arc<Stored<T>>>, TooOld> {
        match &self.change {
            Change::Added => Ok(None),
            Change::Modified(Some(before)) | Change::Deleted(Some(before)) => Ok(Some(before)),
            Change::Modified(None) | Change::Deleted(None) => Err(TooOld(self.revision)),
        }
    }
}

impl<T: Kind> Cache<T> {
    pub(super) fn new(bounds: Bounds) -> Self {
        let state = State {
            objects: BTreeMap::new(),
            created: HashMap::new(),
            revision: 0,
            ring: VecDeque::new(),
            floor: 0,
            first: 0,
            bytes: 0,
        };
        Self {
            state: RwLock::new(state),
            arrivals: watch::Sender::new(0),
            bounds,
        }
    }

    /// Begins with what there is at a revision, and the history that led there: every event after `floor`.
    pub(super) fn begin(
        &self,
        revision: u64,
        objects: impl IntoIterator<Item = Arc<Stored<T>>>,
        floor: u64,
        history: impl IntoIterator<Item = Event<T>>,
    ) {
        let mut state = self.write();
        (state.objects, state.created) = (BTreeMap::new(), HashMap::new());
        for stored in objects {
            state.insert(stored);
        }
        state.first = state.first.saturating_add(state.ring.len() as u64);
        (state.ring, state.bytes) = (VecDeque::new(), 0);
        (state.revision, state.floor) = (revision, floor);
        for event in history {
            state.push(event, self.bounds);
        }
    }

    /// Takes in what one commit did.
    pub(super) fn apply(&self, revision: u64, acts: Vec<Act<T>>) {
        let mut state = self.write();
        if revision <= state.revision {
            return;
        }
        for act in acts {
            let (change, now) = match act {
                Act::Put(now) => {
                    let before = state.insert(Arc::clone(&now));
                    let change =
                        before.map_or(Change::Added, |before| Change::Modified(Some(before)));
                    (change, now)
                }
                Act::Remove(last) => match state.remove(&last.key()) {
                    Some(before) => (Change::Deleted(Some(before)), last),
                    // Nobody has seen it.
                    None => continue,
                },
            };
            let event = Event {
                revision,
                change,
                now,
            };
            state.push(event, self.bounds);
        }
        state.revision = revision;
        let count = state.end();
        drop(state);
        self.arrivals.send_if_modified(|known| {
            let is_new = *known != count;
            *known = count;
            is_new
        });
    }

    /// Notes that nothing else happened up to here.
    pub(super) fn reach(&self, revision: u64) {
        let mut state = self.write();
        state.revision = state.revision.max(revision);
    }

    /// Up to where it is complete.
    pub(super) fn revision(&self) -> u64 {
        self.read().revision
    }

    /// From where on it knows every event.
    pub(super) fn floor(&self) -> u64 {
        self.read().floor
    }

    /// Wakes up at every event.
    pub(super) fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrivals.subscribe()
    }

    /// How many there are, and how many of them somebody created.
    pub(super) fn stock(&self, creator: &str) -> Stock {
        let state = self.read();
        Stock {
            all: state.objects.len(),
            own: state.created.get(creator).copied().unwrap_or_default(),
        }
    }

    /// The object of a name.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Stored<T>>> {
        self.read().objects.get(key).cloned()
    }

    /// What takes out the object of a name whose new state cannot be read: it is not there.
    pub(super) fn removal(&self, key: &Key, revision: u64) -> Option<Act<T>> {
        let mut last = self.get(key)?.object.clone();
        last.metadata_mut().resource_version = revision.to_string();
        Stored::new(last)
            .ok()
            .map(|last| Act::Remove(Arc::new(last)))
    }

    /// A part of the objects that `selects`.
    pub(super) fn page(
        &self,
        query: &PageQuery<'_>,
        selects: impl Fn(&T) -> bool,
    ) -> Result<Page<T>, TooOld> {
        let mut page = self.candidates(query)?;
        let mut candidates = std::mem::take(&mut page.objects).into_iter();
        for stored in candidates.by_ref().filter(|stored| selects(&stored.object)) {
            if query.limit.is_some_and(|limit| page.objects.len() >= limit) {
                page.left = Some(1);
                break;
            }
            page.objects.push(stored);
        }
        page.left = page
            .left
            .map(|one| one.saturating_add(candidates.len() as u64));
        Ok(page)
    }

    /// Everything that a question is about. To look at it takes long if much is asked of each object: that is not
    /// done while the feeder waits.
    fn candidates(&self, query: &PageQuery<'_>) -> Result<Page<T>, TooOld> {
        let state = self.read();
        let past = match query.at {
            Some(at) if at < state.revision => state.past(at)?,
            Some(_) | None => BTreeMap::new(),
        };
        Ok(Page {
            revision: query.at.unwrap_or(state.revision).min(state.revision),
            objects: state.view(&past, query).cloned().collect(),
            left: None,
        })
    }

    /// The place behind a revision, which may be one to come.
    pub(super) fn cursor_after(&self, revision: u64) -> Result<Cursor, TooOld> {
        let state = self.read();
        if revision < state.floor {
            return Err(TooOld(state.floor));
        }
        let behind = state
            .ring
            .partition_point(|event| event.revision <= revision);
        Ok(Cursor {
            next: state.first.saturating_add(behind as u64),
            after: revision,
        })
    }

    /// What came since a place, at most so many events.
    pub(super) fn since(&self, cursor: Cursor, at_most: usize) -> Result<Batch<T>, TooOld> {
        let state = self.read();
        let skipped = cursor.next.checked_sub(state.first);
        let skipped = skipped.ok_or(TooOld(state.floor))?;
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let taken = state.ring.iter().skip(skipped).take(at_most);
        let mut next = cursor.next;
        let events = taken
            .inspect(|_| next = next.saturating_add(1))
            .filter(|event| event.revision > cursor.after)
            .cloned()
            .collect();
        Ok(Batch {
            events,
            complete: (next == state.end()).then_some(state.revision),
            cursor: Cursor { next, ..cursor },
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, State<T>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<T>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was otherwise at a revision: the states there, and which were not there.
type Past<'a, T> = BTreeMap<Key, Option<&'a Arc<Stored<T>>>>;

impl<T: Kind> State<T> {
    /// The number of the next event.
    fn end(&self) -> u64 {
        self.first.saturating_add(self.ring.len() as u64)
    }

    /// Gives what was there before.
    fn insert(&mut self, stored: Arc<Stored<T>>) -> Option<Arc<Stored<T>>> {
        if let Some(creator) = stored.object.creator() {
            let count = self.created.entry(creator.to_owned()).or_default();
            *count = count.saturating_add(1);
        }
        let before = self.objects.insert(stored.key(), stored);
        self.discount(before.as_deref());
        before
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<Stored<T>>> {
        let before = self.objects.remove(key);
        self.discount(before.as_deref());
        before
    }

    fn discount(&mut self, gone: Option<&Stored<T>>) {
        let Some(creator) = gone.and_then(|gone| gone.object.creator()) else {
            return;
        };
        if let Some(count) = self.created.get_mut(creator) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.created.remove(creator);
            }
        }
    }

    fn push(&mut self, event: Event<T>, bounds: Bounds) {
        self.bytes = self.bytes.saturating_add(event.now.weight());
        self.ring.push_back(Arc::new(event));
        while self.ring.len() > bounds.events || self.bytes > bounds.bytes {
            let Some(gone) = self.ring.pop_front() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(gone.now.weight());
            self.first = self.first.saturating_add(1);
            self.floor = gone.revision;
        }
    }

    /// What has changed since a revision, as it was then.
    fn past(&self, at: u64) -> Result<Past<'_, T>, TooOld> {
        if at < self.floor {
            return Err(TooOld(self.floor));
        }
        let mut past = BTreeMap::new();
        // From the newest back: the oldest event that still counts has the last word.
        for event in self.ring.iter().rev() {
            if event.revision <= at {
                break;
            }
            past.insert(event.now.key(), event.before()?);
        }
        Ok(past)
    }

    /// The objects in order, with those of the past in place of their present.
    fn view<'a>(
        &'a self,
        past: &'a Past<'a, T>,
        query: &PageQuery<'a>,
    ) -> impl Iterator<Item = &'a Arc<Stored<T>>> + use<'a, T> {
        let (namespace, name) = (query.namespace, query.name);
        let is_one_namespace = T::NAMESPACED && !namespace.is_empty();
        // Where everything asked for stands together.
        let is_one_object = name.is_some() && (is_one_namespace || !T::NAMESPACED);
        let begin = match is_one_object {
            true => (namespace.to_owned(), name.unwrap_or_default().to_owned()),
            false => (namespace.to_owned(), String::new()),
        };
        let from = match &query.behind {
            Some(behind) if *behind >= begin => Bound::Excluded(behind.clone()),
            Some(_) | None => Bound::Included(begin),
        };
        let range = (from, Bound::Unbounded);
        let mut present = self.objects.range(range.clone()).peekable();
        let mut past = past.range(range).peekable();
        let merged = std::iter::from_fn(move || {
            loop {
                match (present.peek(), past.peek()) {
                    (Some((now, _)), Some((then, _))) if now < then => return present.next(),
                    (_, Some(_)) => {
                        let (key, state) = past.next()?;
                        present.next_if(|(now, _)| *now == key);
                        if let Some(state) = state {
                            return Some((key, *state));
                        }
                    }
                    (_, None) => return present.next(),
                }
            }
        });
        let is_inside = move |key: &Key| {
            (!is_one_namespace || key.0 == namespace)
                && (!is_one_object || name.is_none_or(|name| key.1 == name))
        };
        merged
            .take_while(move |(key, _)| is_inside(key))
            .map(|(_, stored)| stored)
            .filter(move |stored| name.is_none_or(|name| stored.object.metadata().name == name))
    }
}

/// What an event and its object take beside the object's content.
const OVERHEAD: usize = 1024;

#[cfg(test)]
mod tests;
