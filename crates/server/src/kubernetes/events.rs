//! Events: what controllers tell people, for an hour and at most so many. What is older goes first.
//!
//! Nobody decides anything by an event, so the audit log does not hear of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use countersign_authority::{Authority, ObjectFault, ObjectOrder, Objects, Revision};
use countersign_kapi::event::{self, CoreEvent, Event};
use countersign_kapi::{FieldError, Kind as _, ObjectMeta, Status};
use countersign_policy::Requester;
use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::KubernetesDoor;
use super::answer::Refusal;
use super::cache::PageQuery;
use super::feed::{Cached as _, Caches};
use super::leases::admit_small;
use super::objects::{Kept, Writer, served};

/// The calls of events, in both groups.
pub(super) fn router(door: &KubernetesDoor) -> Router<KubernetesDoor> {
    let router = served::<CoreEvent>(door, Router::new());
    served::<Event>(door, router)
}

impl Kept for CoreEvent {
    fn faults(&self, _old: Option<&Self>) -> Vec<FieldError> {
        event::core_faults(self)
    }

    fn admit(&self, old: Option<&Self>, writer: &Writer<'_>) -> Result<(), Refusal> {
        admit_small(self)?;
        match old {
            Some(_) => Ok(()),
            None => admit_another(writer.door),
        }
    }

    fn detail(&self) -> Option<String> {
        None
    }

    async fn settle(_door: &KubernetesDoor, _at: Revision) -> Result<(), Refusal> {
        Ok(())
    }
}

impl Kept for Event {
    fn faults(&self, old: Option<&Self>) -> Vec<FieldError> {
        event::faults(self, old)
    }

    fn admit(&self, old: Option<&Self>, writer: &Writer<'_>) -> Result<(), Refusal> {
        let old = old.map(Self::to_core);
        self.to_core().admit(old.as_ref(), writer)
    }

    fn detail(&self) -> Option<String> {
        None
    }

    async fn settle(_door: &KubernetesDoor, _at: Revision) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Takes one more event. Where there are too many, the oldest are on their way out; who is faster than that waits.
fn admit_another(door: &KubernetesDoor) -> Result<(), Refusal> {
    let caches = door.caches();
    let count = CoreEvent::cache(caches).stock("").all;
    if count >= MAX_EVENTS {
        caches.crowded.notify_one();
    }
    if count >= MAX_EVENTS.saturating_add(SLACK) {
        let text = format!("there are more than {MAX_EVENTS} events");
        return Err(Status::too_many_requests(text, 1).into());
    }
    Ok(())
}

/// Forgets events that nobody has touched for an hour, and the oldest where there are too many.
pub(super) struct Expiry {
    objects: Objects,
    caches: Arc<Caches>,
    marks: Marks,
}

impl Expiry {
    pub(super) fn new(authority: &Authority, caches: &Arc<Caches>) -> Self {
        Self {
            objects: authority.objects.clone(),
            caches: Arc::clone(caches),
            marks: Marks::default(),
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let _crowded = timeout(PAUSE, self.caches.crowded.notified()).await;
            let cache = CoreEvent::cache(&self.caches);
            let untouched = self.marks.untouched(Instant::now(), cache.revision());
            if let Ok(page) = cache.page(&PageQuery::default(), |_| true) {
                let events = page.objects.iter().map(|stored| stored.object.metadata());
                self.delete_all(due(events, untouched)).await;
            }
        }
    }

    async fn delete_all(&self, events: Vec<(u64, ObjectMeta)>) {
        let deletions = events
            .into_iter()
            .map(|(version, meta)| self.delete(Revision(version), meta));
        let mut deletions = stream::iter(deletions).buffer_unordered(AT_ONCE);
        while deletions.next().await.is_some() {}
    }

    async fn delete(&self, version: Revision, meta: ObjectMeta) {
        let order = ObjectOrder {
            key: CoreEvent::key(&meta.namespace, &meta.name),
            actor: Requester::authority(),
            expected: Some(version),
            body: Vec::new(),
            detail: None,
        };
        match self.objects.delete(order).await {
            // Somebody touched it.
            Ok(_) | Err(ObjectFault::Changed { .. } | ObjectFault::NotFound { .. }) => {}
            Err(fault @ (ObjectFault::Engine(_) | ObjectFault::Exists { .. })) => {
                warn!(%fault, "an old event is not forgotten yet");
            }
        }
    }
}

/// How far the store was when. By this the age of an event is known, from when the revision of its last change was first
/// seen: times in events are their writers'. After a restart the hour begins anew.
#[derive(Debug, Default)]
struct Marks(VecDeque<(Instant, u64)>);

impl Marks {
    /// Notes how far the store is, and answers how far it was an hour ago; 0: that is not known.
    fn untouched(&mut self, now: Instant, revision: u64) -> u64 {
        let is_due = |(at, _): &(Instant, u64)| now.duration_since(*at) >= PAUSE;
        if self.0.back().is_none_or(is_due) {
            self.0.push_back((now, revision));
        }
        let is_old = |(at, _): &(Instant, u64)| now.duration_since(*at) >= LIFETIME;
        // The last of them stays: it goes on to be an hour ago until the next one is.
        while self.0.get(1).is_some_and(is_old) {
            self.0.pop_front();
        }
        let first = self.0.front().filter(|mark| is_old(mark));
        first.map_or(0, |(_, revision)| *revision)
    }
}

/// Which events go: those that were last changed up to a revision, and the oldest of too many.
fn due<'a>(
    events: impl IntoIterator<Item = &'a ObjectMeta>,
    untouched: u64,
) -> Vec<(u64, ObjectMeta)> {
    let version = |meta: &ObjectMeta| meta.resource_version.parse().unwrap_or(0);
    let mut events: Vec<(u64, &ObjectMeta)> = events
        .into_iter()
        .map(|meta| (version(meta), meta))
        .collect();
    events.sort_unstable_by_key(|(version, _)| *version);
    let surplus = match events.len() {
        count if count >= MAX_EVENTS => count.saturating_sub(MAX_EVENTS - SLACK),
        _ => 0,
    };
    let old = events.partition_point(|(version, _)| *version <= untouched);
    let gone = events.into_iter().take(surplus.max(old));
    gone.map(|(version, meta)| (version, meta.clone()))
        .collect()
}

/// As with API servers.
const LIFETIME: Duration = Duration::from_secs(3600);
const PAUSE: Duration = Duration::from_secs(60);
/// Some kilobytes of memory each, in both groups.
const MAX_EVENTS: usize = 4096;
/// How many go at once where there are too many, and how many more there may be until they are gone.
const SLACK: usize = 512;
const AT_ONCE: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn named(version: usize) -> ObjectMeta {
        ObjectMeta {
            resource_version: version.to_string(),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn an_event_goes_an_hour_after_it_was_last_touched() {
        let begin = Instant::now();
        let mut marks = Marks::default();
        for minute in 0..60_u64 {
            let now = begin + PAUSE * u32::try_from(minute).unwrap();
            assert_eq!(marks.untouched(now, 100 + minute), 0, "{minute}");
            // Whoever is asked between two marks makes none.
            assert_eq!(marks.untouched(now + PAUSE / 2, 900), 0, "{minute}");
        }
        assert_eq!(marks.untouched(begin + LIFETIME, 1000), 100);
        assert_eq!(marks.untouched(begin + LIFETIME + PAUSE, 1000), 101);
        let events = [named(103), named(100), named(101)];
        let gone: Vec<u64> = due(&events, 101).into_iter().map(|(at, _)| at).collect();
        assert_eq!(gone, [100, 101]);
    }

    #[test]
    fn of_too_many_events_the_oldest_go() {
        let events: Vec<ObjectMeta> = (1..MAX_EVENTS).rev().map(named).collect();
        assert_eq!(due(&events, 0), []);
        let events: Vec<ObjectMeta> = (1..=MAX_EVENTS).rev().map(named).collect();
        let gone = due(&events, 0);
        assert_eq!(gone.len(), SLACK);
        assert_eq!(gone.last().map(|(version, _)| *version), Some(512));
    }
}
