use countersign_kapi::CertificateSigningRequest as Csr;

use super::*;

const WIDE: Bounds = Bounds {
    events: 1000,
    bytes: usize::MAX,
};

fn state(name: &str, revision: u64) -> Arc<Stored<Csr>> {
    let mut object = Csr::default();
    object.metadata.name = name.to_owned();
    object.metadata.resource_version = revision.to_string();
    Arc::new(Stored::new(object).unwrap())
}

fn put(cache: &Cache<Csr>, name: &str, revision: u64) {
    cache.apply(revision, vec![Act::Put(state(name, revision))]);
}

fn remove(cache: &Cache<Csr>, name: &str, revision: u64) {
    cache.apply(revision, vec![Act::Remove(state(name, revision))]);
}

fn shown(page: &Page<Csr>) -> Vec<String> {
    let meta = page.objects.iter().map(|stored| &stored.object.metadata);
    meta.map(|meta| format!("{}@{}", meta.name, meta.resource_version))
        .collect()
}

fn list(cache: &Cache<Csr>, query: &PageQuery<'_>) -> Result<Vec<String>, TooOld> {
    cache.page(query, |_| true).map(|page| shown(&page))
}

fn at(revision: u64) -> PageQuery<'static> {
    PageQuery {
        at: Some(revision),
        ..PageQuery::default()
    }
}

/// `a` and `c` at 10, then: b added at 11, a changed at 12, c deleted at 13, a deleted at 14, a added at 15.
fn lively() -> Cache<Csr> {
    let cache = Cache::new(WIDE);
    cache.begin(10, [state("a", 3), state("c", 5)], 10, []);
    put(&cache, "b", 11);
    put(&cache, "a", 12);
    remove(&cache, "c", 13);
    remove(&cache, "a", 14);
    put(&cache, "a", 15);
    cache.reach(20);
    cache
}

#[test]
fn every_revision_of_the_ring_can_be_listed() {
    let cache = lively();
    let rows: [(u64, &[&str]); 7] = [
        (10, &["a@3", "c@5"]),
        (11, &["a@3", "b@11", "c@5"]),
        (12, &["a@12", "b@11", "c@5"]),
        (13, &["a@12", "b@11"]),
        (14, &["b@11"]),
        (15, &["a@15", "b@11"]),
        (20, &["a@15", "b@11"]),
    ];
    for (revision, objects) in rows {
        let page = cache.page(&at(revision), |_| true).unwrap();
        assert_eq!((page.revision, shown(&page)), (revision, to_texts(objects)));
    }
    assert_eq!(list(&cache, &at(9)), Err(TooOld(10)));
    assert_eq!(
        cache
            .page(&PageQuery::default(), |_| true)
            .unwrap()
            .revision,
        20
    );
}

#[test]
fn objects_are_counted_by_their_creators() {
    let of = |name: &str, creator: &str| {
        let mut object = state(name, 1).object.clone();
        object.spec.username = creator.to_owned();
        Arc::new(Stored::new(object).unwrap())
    };
    let cache = Cache::new(WIDE);
    cache.begin(1, [of("a", "jane"), of("b", "john")], 1, []);
    let stock = || ["jane", "john", "mary"].map(|creator| cache.stock(creator).own);
    assert_eq!((cache.stock("jane").all, stock()), (2, [1, 1, 0]));
    cache.apply(
        2,
        vec![Act::Put(of("c", "jane")), Act::Put(of("a", "jane"))],
    );
    assert_eq!((cache.stock("jane").all, stock()), (3, [2, 1, 0]));
    // Deleted and created again by another one.
    cache.apply(3, vec![Act::Put(of("a", "mary")), Act::Remove(of("b", ""))]);
    assert_eq!((cache.stock("jane").all, stock()), (2, [1, 0, 1]));
    cache.apply(4, vec![Act::Remove(of("b", "john"))]);
    assert_eq!((cache.stock("jane").all, stock()), (2, [1, 0, 1]));
}

fn to_texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn pages_of_a_past_revision_fit_together() {
    let cache = lively();
    for limit in 1..4 {
        let (mut behind, mut all, mut left) = (None, Vec::new(), Vec::new());
        loop {
            let query = PageQuery {
                behind,
                limit: Some(limit),
                ..at(12)
            };
            let page = cache.page(&query, |_| true).unwrap();
            all.extend(shown(&page));
            let Some(count) = page.left else {
                break;
            };
            left.push(count);
            behind = page.objects.last().map(|stored| stored.key());
        }
        assert_eq!(all, ["a@12", "b@11", "c@5"], "{limit}");
        let expected: &[u64] = match limit {
            1 => &[2, 1],
            2 => &[1],
            _ => &[],
        };
        assert_eq!(left, expected, "{limit}");
    }
    let named = PageQuery {
        name: Some("b"),
        ..PageQuery::default()
    };
    assert_eq!(list(&cache, &named), Ok(to_texts(&["b@11"])));
    let none = PageQuery {
        name: Some("c"),
        ..PageQuery::default()
    };
    assert_eq!(list(&cache, &none), Ok(Vec::new()));
}

#[test]
fn a_place_in_the_ring_sees_each_event_once() {
    let cache = lively();
    for start in 10..=22 {
        let mut cursor = cache.cursor_after(start).unwrap();
        let mut seen = Vec::new();
        loop {
            let batch = cache.since(cursor, 2).unwrap();
            cursor = batch.cursor;
            seen.extend(batch.events.iter().map(|event| event.revision));
            if let Some(revision) = batch.complete {
                assert_eq!(revision, 20);
                break;
            }
        }
        let expected: Vec<u64> = (start.max(10) + 1..=15).collect();
        assert_eq!(seen, expected, "after {start}");
    }
    // One that waits for a revision to come is not told of what is before it.
    let early = cache.cursor_after(30).unwrap();
    put(&cache, "x", 25);
    put(&cache, "y", 31);
    let batch = cache.since(early, 10).unwrap();
    let seen: Vec<u64> = batch.events.iter().map(|event| event.revision).collect();
    assert_eq!(seen, [31]);
    assert_eq!(cache.cursor_after(9).unwrap_err(), TooOld(10));
}

/// What one that does not read holds is bounded in bytes too.
#[test]
fn large_events_are_taken_few_at_a_time() {
    let cache = Cache::new(WIDE);
    cache.begin(10, [], 10, []);
    let mut cursor = cache.cursor_after(10).unwrap();
    let large = "x".repeat(AT_ONCE / 2);
    for revision in 11..17 {
        let mut object = state("a", revision).object.clone();
        let notes = &mut object.metadata.annotations;
        notes.insert("note".to_owned(), large.clone());
        let stored = Arc::new(Stored::new(object).unwrap());
        cache.apply(revision, vec![Act::Put(stored)]);
    }
    let mut taken = Vec::new();
    loop {
        let batch = cache.since(cursor, 10).unwrap();
        cursor = batch.cursor;
        taken.push(batch.events.len());
        if batch.complete.is_some() {
            break;
        }
    }
    assert_eq!(taken, [2, 2, 2]);
}

#[test]
fn the_ring_is_bounded_in_number_and_size() {
    let weight = state("a", 100).weight();
    for bounds in [
        Bounds {
            events: 3,
            bytes: usize::MAX,
        },
        Bounds {
            events: 1000,
            bytes: 3 * weight + weight / 2,
        },
    ] {
        let cache = Cache::new(bounds);
        cache.begin(99, [], 99, []);
        let from_start = cache.cursor_after(99).unwrap();
        for revision in 100..110 {
            put(&cache, "a", revision);
        }
        assert_eq!(cache.floor(), 106);
        assert_eq!(cache.since(from_start, 10).unwrap_err(), TooOld(106));
        assert_eq!(cache.cursor_after(105).unwrap_err(), TooOld(106));
        let last = cache.cursor_after(106).unwrap();
        assert_eq!(cache.since(last, 10).unwrap().events.len(), 3);
        assert_eq!(list(&cache, &at(106)), Ok(to_texts(&["a@106"])));
        assert_eq!(list(&cache, &at(105)), Err(TooOld(106)));
    }
}

#[test]
fn a_restored_history_does_not_make_up_what_it_does_not_know() {
    let cache = Cache::new(WIDE);
    let history = [
        Event {
            revision: 6,
            change: Change::Modified(None),
            now: state("a", 6),
        },
        Event {
            revision: 8,
            change: Change::Added,
            now: state("b", 8),
        },
    ];
    cache.begin(9, [state("a", 6), state("b", 8)], 4, history);
    let cursor = cache.cursor_after(4).unwrap();
    assert_eq!(cache.since(cursor, 10).unwrap().events.len(), 2);
    assert_eq!(list(&cache, &at(7)), Ok(to_texts(&["a@6"])));
    assert_eq!(list(&cache, &at(5)), Err(TooOld(6)));
}

#[test]
fn only_events_wake_watches() {
    let cache = Cache::new(WIDE);
    cache.begin(1, [], 1, []);
    let arrivals = cache.arrivals();
    cache.reach(5);
    remove(&cache, "nobody", 6);
    assert!(!arrivals.has_changed().unwrap());
    put(&cache, "a", 7);
    assert!(arrivals.has_changed().unwrap());
    // What it has already is not taken in twice.
    put(&cache, "a", 7);
    assert_eq!(
        cache
            .since(cache.cursor_after(1).unwrap(), 9)
            .unwrap()
            .events
            .len(),
        1
    );
}
