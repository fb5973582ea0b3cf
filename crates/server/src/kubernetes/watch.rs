//! Watches: what happens to the selected objects, as it happens.
//!
//! A watch is a place in the ring of a [`Cache`](super::cache::Cache) and whatever of the initial objects is not sent yet.
//! It makes a piece of text when the connection asks for one, so a client that does not read costs nothing but its
//! connection, and is told that it is too late if it ever reads on.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use countersign_kapi::list::{
    EventType, InitialEvents, ListMeta, PartialObjectMetadata, WatchEvent,
};
use countersign_kapi::negotiate::{AnswerForm, AnswerFormat};
use countersign_kapi::query::{WatchOptions, WatchStart};
use countersign_kapi::table::{Columns, Table};
use countersign_kapi::{Kind, Status, Time, encode};
use futures_util::stream;
use http::StatusCode;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::KubernetesDoor;
use super::answer::{Answer, CHUNK, Refusal, Shape, typed};
use super::cache::{Change, Cursor, Event, Stored, TooOld};
use super::call::Standing;
use super::feed::Cached;
use super::read::Selection;
use super::watch_limit::{OpenWatch, TooManyWatches};

/// Answers with a watch.
pub(super) async fn answer<T: Cached>(
    door: &KubernetesDoor,
    client: Client,
    selection: Selection,
    shape: Shape,
    options: WatchOptions,
) -> Answer {
    let open = door.caches().watches.take(client.standing.watching())?;
    match options.start {
        WatchStart::List { at_least } => door.reached(at_least).await?,
        WatchStart::Objects | WatchStart::After(_) | WatchStart::Now => door.caught_up().await?,
    }
    let now = Instant::now();
    let lasting = match options.timeout_seconds {
        Some(seconds) => Duration::from_secs(seconds).min(LONGEST),
        None => door.usual_duration()?,
    };
    let mut watcher = Watcher::<T> {
        arrivals: T::cache(door.caches()).arrivals(),
        client,
        deadline: now + lasting,
        bookmark: options.bookmarks.then_some(now),
        initial: Vec::new().into_iter(),
        initial_end: None,
        lines: Lines {
            shape,
            columns: Columns::Defined,
            now: door.now()?,
        },
        cursor: Err(TooOld(0)),
        seen: 0,
        checked: now,
        is_over: false,
        door: door.clone(),
        selection,
        _open: open,
    };
    watcher.begin(options.start);
    watcher.plan_bookmark(now);
    let pieces = stream::unfold(watcher, |mut watcher| async move {
        let piece = watcher.next().await?;
        Some((Ok::<_, std::convert::Infallible>(piece), watcher))
    });
    let media_type = match shape.format {
        AnswerFormat::Json => "application/json",
        AnswerFormat::Protobuf => encode::WATCH,
    };
    Ok(typed(StatusCode::OK, media_type, Body::from_stream(pieces)))
}

/// Who watches.
pub(super) struct Client {
    /// What it is allowed.
    pub(super) standing: Standing,
    /// Whether its connection, or the server, is about to end.
    pub(super) closing: CancellationToken,
}

/// A watch under way.
struct Watcher<T> {
    door: KubernetesDoor,
    selection: Selection,
    lines: Lines,
    /// The objects that the client has not got yet.
    initial: std::vec::IntoIter<Arc<Stored<T>>>,
    /// The revision of the bookmark behind them.
    initial_end: Option<u64>,
    /// Where the client is; an error: it is too late.
    cursor: Result<Cursor, TooOld>,
    /// The last revision that it knows.
    seen: u64,
    arrivals: watch::Receiver<u64>,
    client: Client,
    /// When it was last judged.
    checked: Instant,
    deadline: Instant,
    /// When the next bookmark is due; `None`: never.
    bookmark: Option<Instant>,
    is_over: bool,
    _open: OpenWatch,
}

/// How much of what there is to tell was told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// As much as fits.
    Part,
    /// All, up to this revision.
    UpTo(u64),
}

impl<T: Cached> Watcher<T> {
    /// Takes the objects to begin with, and the place behind them.
    fn begin(&mut self, start: WatchStart) {
        let cache = T::cache(self.door.caches());
        let after = match start {
            WatchStart::After(revision) => revision,
            WatchStart::Now => cache.revision(),
            WatchStart::Objects | WatchStart::List { .. } => {
                let selected = |object: &T| self.selection.matches(object);
                let page = match cache.page(&self.selection.query(), selected) {
                    Ok(page) => page,
                    Err(fault) => {
                        self.cursor = Err(fault);
                        return;
                    }
                };
                self.initial = page.objects.into_iter();
                if matches!(start, WatchStart::List { .. }) && self.bookmark.is_some() {
                    self.initial_end = Some(page.revision);
                }
                page.revision
            }
        };
        self.cursor = cache.cursor_after(after);
        self.seen = after;
    }

    /// The next piece of the answer; `None`: it is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Noted before anything is read: what comes later wakes.
            self.arrivals.mark_unchanged();
            let now = Instant::now();
            if self.is_over || self.client.closing.is_cancelled() || now >= self.deadline {
                return None;
            }
            if !self.client.standing.holds().await {
                return None;
            }
            self.checked = now;
            self.lines.now = self.door.now().ok()?;
            let mut piece = Vec::new();
            let told = self.tell(&mut piece);
            if let (Told::UpTo(revision), Some(due)) = (told, self.bookmark)
                && now >= due
            {
                // Who waits for a revision to come is not told of one before it.
                if revision >= self.seen {
                    self.lines
                        .bookmark::<T>(revision, InitialEvents::Unrelated, &mut piece);
                }
                self.plan_bookmark(now);
            }
            if !piece.is_empty() {
                return Some(piece.into());
            }
            if told != Told::Part {
                self.wait().await;
            }
        }
    }

    /// Tells the next of what the client does not know.
    fn tell(&mut self, piece: &mut Vec<u8>) -> Told {
        while piece.len() < CHUNK {
            let Some(stored) = self.initial.next() else {
                break;
            };
            self.lines.stored(EventType::Added, &stored, piece);
        }
        if self.initial.len() > 0 {
            return Told::Part;
        }
        if let Some(revision) = self.initial_end.take() {
            self.lines
                .bookmark::<T>(revision, InitialEvents::Complete, piece);
        }
        let cache = T::cache(self.door.caches());
        while piece.len() < CHUNK {
            let batch = self.cursor.and_then(|cursor| cache.since(cursor, AT_ONCE));
            let batch = match batch {
                Ok(batch) => batch,
                Err(fault) => {
                    self.end(fault, piece);
                    return Told::Part;
                }
            };
            self.cursor = Ok(batch.cursor);
            for event in &batch.events {
                if let Err(fault) = self.lines.event(event, &self.selection, piece) {
                    self.end(fault, piece);
                    return Told::Part;
                }
                self.seen = event.revision;
            }
            if let Some(revision) = batch.complete {
                return Told::UpTo(revision);
            }
        }
        Told::Part
    }

    /// Tells the client that it has missed something.
    fn end(&mut self, TooOld(floor): TooOld, piece: &mut Vec<u8>) {
        let text = format!("too old resource version: {} ({floor})", self.seen);
        self.lines.error(&Status::expired(text), piece);
        self.is_over = true;
    }

    async fn wait(&mut self) {
        let due = self.bookmark.unwrap_or(self.deadline).min(self.deadline);
        let due = due.min(self.checked + CHECK_PAUSE);
        tokio::select! {
            _ = self.arrivals.changed() => {}
            () = self.client.closing.cancelled() => {}
            () = sleep_until(due) => {}
        }
    }

    /// When the next bookmark is due: about every minute, and shortly before the end.
    fn plan_bookmark(&mut self, now: Instant) {
        if self.bookmark.is_none() {
            return;
        }
        let last = self.deadline.checked_sub(BEFORE_END).unwrap_or(now);
        let next = now + BOOKMARK_PAUSE;
        self.bookmark = match now < last {
            true => Some(next.min(last)),
            // It was the last.
            false => Some(self.deadline + BOOKMARK_PAUSE),
        };
    }
}

/// How a client wants its events.
struct Lines {
    shape: Shape,
    columns: Columns,
    now: Time,
}

impl Lines {
    /// An event as it looks to somebody who sees the selected objects only.
    fn event<T: Kind>(
        &mut self,
        event: &Event<T>,
        selection: &Selection,
        piece: &mut Vec<u8>,
    ) -> Result<(), TooOld> {
        let selected = selection.matches(&event.now.object);
        let (is_there, before) = match &event.change {
            Change::Added => (selected, None),
            Change::Modified(Some(before)) => (selected, Some(before)),
            // Its labels may have been others.
            Change::Modified(None) if selection.can_change() => return Err(TooOld(event.revision)),
            Change::Modified(None) => (selected, Some(&event.now)),
            Change::Deleted(_) => (false, Some(&event.now)),
        };
        let before = before.filter(|before| selection.matches(&before.object));
        match (is_there, before, &event.change) {
            (true, None, _) => self.stored(EventType::Added, &event.now, piece),
            (true, Some(_), _) => self.stored(EventType::Modified, &event.now, piece),
            (false, Some(_), Change::Deleted(_)) => {
                self.stored(EventType::Deleted, &event.now, piece);
            }
            // It is still there, but no longer selected: it goes as it last was.
            (false, Some(before), _) => {
                let mut last = before.object.clone();
                last.metadata_mut().resource_version = event.revision.to_string();
                self.object(EventType::Deleted, &last, piece);
            }
            (false, None, _) => {}
        }
        Ok(())
    }

    fn stored<T: Kind>(&mut self, event: EventType, stored: &Stored<T>, piece: &mut Vec<u8>) {
        match (self.shape.form, self.shape.format) {
            (AnswerForm::Object, AnswerFormat::Json) => event.write_line(stored.json(), piece),
            (AnswerForm::Object, AnswerFormat::Protobuf) => {
                encode::write_event(event, &encode::object::<T>(stored.protobuf()), piece);
            }
            (AnswerForm::Metadata | AnswerForm::Table, _) => {
                self.object(event, &stored.object, piece);
            }
        }
    }

    fn object<T: Kind>(&mut self, event: EventType, object: &T, piece: &mut Vec<u8>) {
        match (self.shape.form, self.shape.format) {
            (AnswerForm::Object, AnswerFormat::Json) => json_line(event, object, piece),
            (AnswerForm::Object, AnswerFormat::Protobuf) => {
                encode::write_event(event, &encode::object::<T>(&object.to_protobuf()), piece);
            }
            (AnswerForm::Metadata, AnswerFormat::Json) => {
                json_line(event, PartialObjectMetadata::of(object), piece);
            }
            (AnswerForm::Metadata, AnswerFormat::Protobuf) => {
                encode::write_event(event, &encode::metadata(object.metadata()), piece);
            }
            (AnswerForm::Table, _) => {
                let meta = ListMeta {
                    resource_version: object.metadata().resource_version.clone(),
                    ..ListMeta::default()
                };
                let columns = std::mem::replace(&mut self.columns, Columns::Known);
                let table = Table::of([object], meta, self.shape.include, columns, self.now);
                json_line(event, table, piece);
            }
        }
    }

    fn bookmark<T: Kind>(&mut self, revision: u64, initial: InitialEvents, piece: &mut Vec<u8>) {
        let version = revision.to_string();
        if let (AnswerForm::Object, AnswerFormat::Json) = (self.shape.form, self.shape.format) {
            let bookmark = WatchEvent::bookmark::<T>(&version, initial);
            json_line(bookmark.event, bookmark.object, piece);
            return;
        }
        let mut blank = T::default();
        let meta = blank.metadata_mut();
        meta.resource_version = version;
        if initial == InitialEvents::Complete {
            let (key, value) = INITIAL_EVENTS_END;
            meta.annotations.insert(key.to_owned(), value.to_owned());
        }
        self.object(EventType::Bookmark, &blank, piece);
    }

    fn error(&self, status: &Status, piece: &mut Vec<u8>) {
        match self.shape.format {
            AnswerFormat::Json => json_line(EventType::Error, status, piece),
            AnswerFormat::Protobuf => {
                encode::write_event(EventType::Error, &encode::status(status), piece);
            }
        }
    }
}

fn json_line(event: EventType, object: impl Serialize, piece: &mut Vec<u8>) {
    // Everything shown here can be written: keys are text, and numbers finite.
    if let Ok(line) = (WatchEvent { event, object }).line() {
        piece.extend_from_slice(&line);
    }
}

impl From<TooManyWatches> for Refusal {
    fn from(fault: TooManyWatches) -> Self {
        Status::too_many_requests(fault.to_string(), RETRY_SECONDS).into()
    }
}

impl KubernetesDoor {
    /// How long a watch lasts whose client does not say: different for each, so that they do not all come back at once.
    fn usual_duration(&self) -> Result<Duration, Refusal> {
        let mut random = [0; 2];
        self.authority.random(&mut random)?;
        let share = f64::from(u16::from_be_bytes(random)) / f64::from(u16::MAX);
        Ok(USUAL.mul_f64(1.0 + share))
    }
}

/// Events taken from the ring at once.
const AT_ONCE: usize = 64;
/// Without another word, a watch lasts between this and twice as long, as with API servers.
const USUAL: Duration = Duration::from_secs(30 * 60);
/// Nobody has to wait longer for anything; connections end before.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
const BOOKMARK_PAUSE: Duration = Duration::from_secs(60);
const BEFORE_END: Duration = Duration::from_secs(2);
/// Who has nothing to be told is judged again at least so often.
const CHECK_PAUSE: Duration = Duration::from_secs(3);
const INITIAL_EVENTS_END: (&str, &str) = ("k8s.io/initial-events-end", "true");
const RETRY_SECONDS: u32 = 5;
