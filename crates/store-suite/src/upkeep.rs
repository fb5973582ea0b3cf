//! What upkeep asks: which requests are old, how much waits and from whom, what ends soon.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use countersign_authority::store::{AgeFilter, RequestUpdate, Store, Tally, Write};
use countersign_authority::{
    Door, IssuerId, RepeatedDenials, RequestId, RequestRecord, RequestState,
};
use countersign_pki::{RevocationReason, UnixTime};

use super::sample::{enrol, insert, untouched, write};
use super::{Ground, Sample};

/// Of each state and door, those that arrived before a time, oldest first, in pages.
pub async fn old_requests_are_found_by_door_state_and_age(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let states = [
        RequestState::Pending,
        RequestState::Approved,
        RequestState::Issued,
        RequestState::Denied,
        RequestState::Failed,
        RequestState::Undecided,
    ];
    let mut all = Vec::new();
    for number in 0..40 {
        let door = Door::named(if number % 4 == 3 {
            "kubernetes"
        } else {
            "puppet"
        });
        // Names in another order than ages.
        let mut request = sample.request_at(door, &format!("host-{:02}", 97 * number % 40));
        request.state = states[number % states.len()];
        request.live = number % 3 != 0;
        insert(&*store, &request).await;
        all.push(request);
    }
    for door in ["puppet", "kubernetes"].map(Door::named) {
        for state in states {
            for before in [0, 1, 20, 21, 22, 100] {
                let before = Sample::time(before);
                let expected: Vec<RequestId> = all
                    .iter()
                    .filter(|one| one.door == door && one.state == state && one.created < before)
                    .map(|one| one.id)
                    .collect();
                for limit in [1, 3, 100] {
                    let filter = AgeFilter {
                        door: door.clone(),
                        state,
                        before,
                        after: None,
                        limit,
                    };
                    assert_eq!(pages(&*store, filter).await, expected, "{door} {state:?}");
                }
            }
        }
    }
    let unknown = AgeFilter {
        door: Door::named("nobody"),
        state: RequestState::Pending,
        before: Sample::time(1000),
        after: None,
        limit: 10,
    };
    assert!(store.requests_before(unknown).await.unwrap().is_empty());
}

/// A request is as old as its arrival, also if its identity was made earlier; what was deleted is not found again.
pub async fn the_time_of_arrival_decides_what_is_old(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let old = sample.request("old");
    let mut slow = sample.request("slow");
    slow.created = slow.created.plus_seconds(500);
    for request in [&old, &slow] {
        insert(&*store, request).await;
    }
    let filter = |before| AgeFilter {
        door: Sample::door(),
        state: RequestState::Pending,
        before,
        after: None,
        limit: 10,
    };
    let at = |seconds| old.created.plus_seconds(seconds);
    assert_eq!(pages(&*store, filter(at(0))).await, []);
    assert_eq!(pages(&*store, filter(at(400))).await, [old.id]);
    assert_eq!(pages(&*store, filter(at(600))).await, [old.id, slow.id]);
    write(&*store, vec![Write::DeleteRequest(old.id)]).await;
    assert_eq!(pages(&*store, filter(at(600))).await, [slow.id]);
}

/// Pending requests of an address are counted over all doors, as far as asked.
pub async fn pending_requests_are_counted_by_address(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let (v4, v6) = (
        IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    );
    // One host has a /64 for itself.
    let neighbour = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0xffff, 0, 0, 2));
    let from = |source, door: &'static str, key: &str| {
        let mut request = sample.request_at(Door::named(door), key);
        request.requester.source = source;
        request
    };
    let first = from(Some(v4), "puppet", "a");
    for request in [
        first.clone(),
        from(Some(v4), "kubernetes", "a"),
        from(Some(v4), "puppet", "b"),
        from(Some(v6), "puppet", "c"),
        from(Some(neighbour), "puppet", "g"),
        from(None, "puppet", "d"),
    ] {
        insert(&*store, &request).await;
    }
    let denied = RequestRecord {
        state: RequestState::Denied,
        ..from(Some(v4), "puppet", "e")
    };
    let past = RequestRecord {
        live: false,
        ..from(Some(v4), "puppet", "f")
    };
    for request in [denied, past] {
        insert(&*store, &request).await;
    }
    for (source, at_most, expected) in [
        (v4, 100, 3),
        (v4, 3, 3),
        (v4, 2, 2),
        (v4, 0, 0),
        (v6, 100, 2),
        (neighbour, 100, 2),
        (
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1)),
            100,
            0,
        ),
        (IpAddr::V4(Ipv4Addr::LOCALHOST), 100, 0),
    ] {
        let counted = store.pending_from(source, at_most).await.unwrap();
        assert_eq!(counted.number, expected, "{source}, at most {at_most}");
    }
    let mut decided = untouched(&first);
    decided.state = RequestState::Denied;
    write(&*store, vec![Write::UpdateRequest(decided)]).await;
    assert_eq!(store.pending_from(v4, 100).await.unwrap().number, 2);
}

/// What waits, and what may be forgotten of what was turned away, is known in bytes, and the latter kept within them.
pub async fn what_waits_and_what_was_turned_away_is_bounded_in_bytes(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let of = |key: &str, state, csr: usize| {
        let mut request = sample.request_at(Sample::door(), key);
        request.state = state;
        request.live = state == RequestState::Pending;
        request.csr_der = vec![7; csr];
        request.attachment = vec![7; 10];
        request
    };
    let source = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut waiting = of("a", RequestState::Pending, 1000);
    waiting.requester.source = Some(source);
    insert(&*store, &waiting).await;
    let shrinking = of("b", RequestState::Pending, 300);
    insert(&*store, &shrinking).await;
    for (key, csr) in [("c", 5000), ("d", 400), ("e", 500)] {
        insert(&*store, &of(key, RequestState::Denied, csr)).await;
    }
    assert_eq!(store.pending_bytes().await.unwrap(), 1320);
    let own = store.pending_from(source, 10).await.unwrap();
    assert_eq!((own.number, own.bytes), (1, 1010));
    for (bytes, left) in [
        (6000, (3, 5930)),
        (920, (2, 920)),
        (919, (1, 510)),
        (0, (0, 0)),
    ] {
        let (of, keep) = (None, 10);
        write(
            &*store,
            vec![Write::TrimRejections {
                of,
                keep,
                bytes,
                thefts_since: UnixTime(0),
            }],
        )
        .await;
        let found = store.trimmable(UnixTime(0)).await.unwrap();
        assert_eq!((found.number, found.bytes), left, "{bytes}");
    }
    assert_eq!(
        store.pending_bytes().await.unwrap(),
        1320,
        "they still wait"
    );
    let update = RequestUpdate {
        csr_der: Some(vec![7; 100]),
        ..untouched(&shrinking)
    };
    write(&*store, vec![Write::UpdateRequest(update)]).await;
    assert_eq!(store.pending_bytes().await.unwrap(), 1120, "less is kept");
}

/// Denials that are counted are counted by source, door and reason, and what comes while they are told is not lost.
pub async fn repeated_denials_are_counted_until_they_are_told(ground: &dyn Ground) {
    let store = ground.open().await;
    let denial = |source: [u8; 4], code: &str, at, name: &str| RepeatedDenials {
        source: source.into(),
        door: Sample::door(),
        code: code.to_owned(),
        first: Sample::time(at),
        last: Sample::time(at),
        number: 1,
        last_name: name.to_owned(),
    };
    let here = [198, 51, 100, 1];
    for one in [
        denial(here, "not_listed", 10, "a"),
        denial(here, "not_listed", 20, "b"),
        denial(here, "other", 30, "c"),
        denial([198, 51, 100, 2], "not_listed", 40, "d"),
    ] {
        write(&*store, vec![Write::CountDenial(one)]).await;
    }
    let before = async |at, limit| {
        store
            .repeated_denials(Sample::time(at), limit)
            .await
            .unwrap()
    };
    let counted = RepeatedDenials {
        last: Sample::time(20),
        number: 2,
        last_name: "b".to_owned(),
        ..denial(here, "not_listed", 10, "")
    };
    assert_eq!(before(9, 10).await, []);
    assert_eq!(before(10, 10).await, std::slice::from_ref(&counted));
    assert_eq!(before(100, 10).await.len(), 3);
    assert_eq!(before(100, 1).await.len(), 1);
    let late = denial(here, "not_listed", 50, "e");
    write(&*store, vec![Write::CountDenial(late.clone())]).await;
    write(&*store, vec![Write::DenialsTold(counted)]).await;
    let rest = before(100, 10).await;
    let rest = rest.iter().find(|one| one.last_name == "e").unwrap();
    assert_eq!((rest.number, rest.last), (1, Sample::time(50)));
    write(&*store, vec![Write::DenialsTold(rest.clone())]).await;
    assert_eq!(before(100, 10).await.len(), 2);
}

/// Figures count what occupies a name, and what is in use and ends within the time, both ends included.
pub async fn figures_count_what_waits_and_what_ends_soon(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let whole_time = (UnixTime(0), UnixTime(i64::MAX));
    let told = async |(now, soon)| store.tally(now, soon).await.unwrap();
    assert_eq!(told(whole_time).await, Tally::default());

    insert(&*store, &sample.request("waiting")).await;
    insert(&*store, &sample.request_at(Door::named("kubernetes"), "a")).await;
    insert(&*store, &sample.request_at(Door::named("kubernetes"), "b")).await;
    let mut past = sample.request("past");
    past.live = false;
    insert(&*store, &past).await;

    let first = enrol(&*store, &sample, "first").await;
    let last = enrol(&*store, &sample, "last").await;
    let revoked = enrol(&*store, &sample, "revoked").await;
    enrol(&*store, &sample, "retired").await;
    let open = sample.enrolment("open");
    store.commit(open.intend(&sample)).await.unwrap();
    let revocation = revoked.revocation(Sample::time(1), RevocationReason::Superseded);
    let retire = Write::Retire {
        issuer: Sample::issuer(),
        name: "retired".to_owned(),
        at: Sample::time(1),
    };
    write(&*store, vec![Write::Revoke(revocation), retire]).await;

    let pending = vec![(Door::named("kubernetes"), 2), (Door::named("puppet"), 1)];
    let (begin, end) = (first.intent.not_after, last.intent.not_after);
    let second = |time: UnixTime| time.plus_seconds(1);
    for (between, expected) in [
        (whole_time, 2),
        ((begin, end), 2),
        ((second(begin), end), 1),
        ((begin, end.minus_seconds(1)), 1),
        ((second(end), UnixTime(i64::MAX)), 0),
        ((end, begin), 0),
    ] {
        let issuer: Vec<(IssuerId, u64)> = (expected > 0)
            .then(|| (Sample::issuer(), expected))
            .into_iter()
            .collect();
        let tally = Tally {
            pending: pending.clone(),
            expiring: issuer,
        };
        assert_eq!(told(between).await, tally, "{between:?}");
    }
}

async fn pages(store: &dyn Store, mut filter: AgeFilter) -> Vec<RequestId> {
    let mut found = Vec::new();
    loop {
        let page = store.requests_before(filter.clone()).await.unwrap();
        assert!(page.len() <= filter.limit);
        let Some(last) = page.last() else {
            return found;
        };
        filter.after = Some(last.id);
        found.extend(page.iter().map(|request| request.id));
    }
}
