//! What decisions leave behind: rejections and their bounds, requests worth asking again, evidence, policies, and what
//! deciders have allowed.

use countersign_authority::store::{
    Change, CommitFault, Precondition, RejectionFilter, RequestFilter, RequestUpdate, Store, Write,
};
use countersign_authority::{
    Door, PolicyVersion, RememberedAllow, RequestId, RequestRecord, RequestState,
};
use countersign_pki::{UnixTime, fingerprint_sha256};
use countersign_policy::{Deciding, Effect, LedgerFacts, RecordedEvidence, Requester};

use super::sample::{assert_same, insert, untouched, write};
use super::together::at_once;
use super::{Ground, Sample};

/// Newest first, in pages, by everything that a filter can name.
pub async fn rejections_come_newest_first_and_by_what_is_asked_for(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let stored = rejected_and_others(&*store, &sample).await;
    let doors = [None, Some("puppet"), Some("kubernetes"), Some("nowhere")];
    for door in doors.map(|door| door.map(Door::named)) {
        for key in [None, Some("a"), Some("b"), Some("c")] {
            for code in [None, Some("not_listed"), Some("webhook_error"), Some("")] {
                for since in [None, Some(0), Some(9), Some(1000)] {
                    let filter = RejectionFilter {
                        trimmable: false,
                        door: door.clone(),
                        key: key.map(str::to_owned),
                        code: code.map(str::to_owned),
                        since: since.map(Sample::time),
                        before: None,
                        limit: 0,
                        skip: 0,
                    };
                    let expected = stored.iter().rev().filter(|one| {
                        is_rejected(one)
                            && door.as_ref().is_none_or(|door| *door == one.door)
                            && key.is_none_or(|key| key == one.key)
                            && code.is_none_or(|code| !code.is_empty())
                            && code.is_none_or(|code| code == one.explanation.code.as_str())
                            && since.is_none_or(|since| one.created >= Sample::time(since))
                    });
                    let expected: Vec<RequestId> = expected.map(|one| one.id).collect();
                    for limit in [1, 3, 100] {
                        let found = rejections(&*store, filter.clone(), limit).await;
                        assert_eq!(found, expected, "{filter:?} {limit}");
                    }
                }
            }
        }
    }
    assert_eq!(stored.iter().filter(|one| is_rejected(one)).count(), 12);
}

/// Listings of requests know code and time of arrival, too, alone and with what they knew before.
pub async fn requests_are_found_by_code_and_time(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let stored = rejected_and_others(&*store, &sample).await;
    let mut choices = vec![Vec::new()];
    choices.extend(STATES.map(|state| vec![state]));
    choices.push(vec![RequestState::Denied, RequestState::Undecided]);
    for states in choices {
        for code in [None, Some("not_listed"), Some("webhook_error")] {
            for since in [None, Some(9)] {
                let filter = RequestFilter {
                    states: states.clone(),
                    code: code.map(str::to_owned),
                    since: since.map(Sample::time),
                    ..RequestFilter::default()
                };
                let expected = stored.iter().filter(|one| {
                    (states.is_empty() || states.contains(&one.state))
                        && code.is_none_or(|code| code == one.explanation.code.as_str())
                        && since.is_none_or(|since| one.created >= Sample::time(since))
                });
                let mut expected: Vec<RequestId> = expected.map(|one| one.id).collect();
                expected.sort();
                let found = store.requests(filter.clone()).await.unwrap();
                let mut found: Vec<RequestId> = found.iter().map(|one| one.id).collect();
                found.sort();
                assert_eq!(found, expected, "{filter:?}");
            }
        }
    }
}

/// The newest stay, and so does what a person denied and what occupies its name.
pub async fn trimming_leaves_the_newest_and_what_people_denied(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut stored = Vec::new();
    for (key, count) in [("a", 6), ("b", 4)] {
        for number in 0..count {
            let state = match number % 2 {
                0 => RequestState::Denied,
                _ => RequestState::Undecided,
            };
            stored.push(put(&*store, &sample, key, state, |_| {}).await);
        }
    }
    let by_person = |request: &mut RequestRecord| {
        request.explanation.by = Some(Deciding::Person {
            actor: Requester::authority(),
            reason: String::new(),
        });
    };
    let person = put(&*store, &sample, "a", RequestState::Denied, by_person).await;
    let live = |request: &mut RequestRecord| request.live = true;
    let live = put(&*store, &sample, "a", RequestState::Denied, live).await;
    let others = [
        RequestState::Pending,
        RequestState::Issued,
        RequestState::Failed,
    ];
    for state in others {
        put(&*store, &sample, "c", state, |_| {}).await;
    }
    let [a, b] = [0..6, 6..10].map(|range| stored[range].to_vec());
    let kept = [person, live];
    let left = async || {
        let left = rejections(&*store, RejectionFilter::default(), 100).await;
        left.into_iter().rev().collect::<Vec<_>>()
    };
    let trim = async |of: Option<&str>, keep| {
        let of = of.map(|key| (Sample::door(), key.to_owned()));
        write(
            &*store,
            vec![Write::TrimRejections {
                of,
                keep,
                bytes: u64::MAX,
                thefts_since: UnixTime(0),
            }],
        )
        .await
    };

    trim(Some("nobody"), 0).await;
    trim(Some("a"), 6).await;
    trim(None, 10).await;
    assert_eq!(left().await, [&a[..], &b, &kept].concat());
    trim(Some("a"), 2).await;
    assert_eq!(left().await, [&a[4..], &b, &kept].concat());
    trim(None, 3).await;
    assert_eq!(left().await, [&b[1..], &kept].concat());
    trim(None, 0).await;
    assert_eq!(left().await, kept);
    let everything = store.requests(RequestFilter::default()).await.unwrap();
    assert_eq!(everything.len(), kept.len() + others.len());
}

/// What else is turned away does not push out a token's theft, nor do many of them push out the first.
pub async fn thefts_of_tokens_are_not_trimmed_before_their_time(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let put = async |code: &'static str, at: u32| {
        let differently = |request: &mut RequestRecord| {
            request.live = false;
            request.created = Sample::time(at);
            request.explanation.code = code.parse().unwrap();
        };
        put(&*store, &sample, "a", RequestState::Denied, differently).await
    };
    let mut thefts = Vec::new();
    for at in 0..6 {
        thefts.push(put("token_key_mismatch", at).await);
        put("not_listed", at).await;
    }
    let trim = async |of: Option<&str>, keep, since| {
        let of = of.map(|key| (Sample::door(), key.to_owned()));
        let trim = Write::TrimRejections {
            of,
            keep,
            bytes: u64::MAX,
            thefts_since: Sample::time(since),
        };
        write(&*store, vec![trim]).await;
        let left = rejections(&*store, RejectionFilter::default(), 100).await;
        left.into_iter().rev().collect::<Vec<_>>()
    };
    let amount = store.trimmable(Sample::time(0)).await.unwrap();
    assert_eq!(amount.number, 6);
    assert_eq!(trim(None, 0, 0).await, thefts);
    assert_eq!(trim(Some("a"), 3, 0).await, thefts);
    let ends = [thefts[0], thefts[1], thefts[4], thefts[5]];
    assert_eq!(trim(Some("a"), 2, 0).await, ends, "the first and the last");
    assert_eq!(
        trim(Some("a"), 1, 1).await,
        [thefts[0], thefts[1], thefts[5]]
    );
    assert_eq!(trim(None, 0, 5).await, [thefts[5]]);
    assert_eq!(trim(None, 0, 6).await, []);
}

/// A request that waits for want of a token, or with one that is not good, is turned away for the time being; as soon as
/// it is decided, or no longer waits, it is not.
pub async fn what_waits_because_of_a_token_is_among_the_rejections(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let put = async |key: &str, state, live, code: &'static str| {
        let differently = |request: &mut RequestRecord| {
            request.live = live;
            request.explanation.code = code.parse().unwrap();
        };
        put(&*store, &sample, key, state, differently).await
    };
    let pending = RequestState::Pending;
    let denied = put("a", RequestState::Denied, false, "token_unknown").await;
    let missing = put("a", pending, true, "token_missing").await;
    let expired = put("b", pending, true, "token_expired").await;
    let undecided = put("c", RequestState::Undecided, false, "webhook_error").await;
    for (state, live, code) in [
        (pending, true, ""),
        (pending, true, "not_listed"),
        (pending, true, "tokens"),
        (pending, false, "token_missing"),
        (RequestState::Approved, true, "token_missing"),
        (RequestState::Issued, true, "token_missing"),
        (RequestState::Failed, false, "token_missing"),
    ] {
        put(&format!("{state:?}{live}{code}"), state, live, code).await;
    }
    let filter = RejectionFilter::default;
    let code = |code: &str| RejectionFilter {
        code: Some(code.to_owned()),
        ..filter()
    };
    let key = |key: &str| RejectionFilter {
        key: Some(key.to_owned()),
        ..filter()
    };
    for (filter, expected) in [
        (filter(), vec![undecided, expired, missing, denied]),
        (code("token_missing"), vec![missing]),
        (code("token_unknown"), vec![denied]),
        (key("a"), vec![missing, denied]),
        (key("b"), vec![expired]),
    ] {
        for limit in [1, 3, 100] {
            let found = rejections(&*store, filter.clone(), limit).await;
            assert_eq!(found, expected, "{filter:?} {limit}");
        }
    }
    // It is no rejection that could be trimmed.
    write(
        &*store,
        vec![Write::TrimRejections {
            of: None,
            keep: 0,
            bytes: u64::MAX,
            thefts_since: UnixTime(0),
        }],
    )
    .await;
    assert_eq!(rejections(&*store, filter(), 10).await, [expired, missing]);
    let issued = RequestUpdate::to_state(missing, RequestState::Issued, true);
    let replaced = RequestUpdate::to_state(expired, pending, false);
    write(&*store, vec![Write::UpdateRequest(issued)]).await;
    assert_eq!(rejections(&*store, filter(), 10).await, [expired]);
    write(&*store, vec![Write::UpdateRequest(replaced)]).await;
    assert!(rejections(&*store, filter(), 10).await.is_empty());
}

/// Oldest first, in pages: what waits, occupies its name and says that asking again may help.
pub async fn what_is_worth_asking_again_is_found_in_order(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut expected = Vec::new();
    for number in 0..24 {
        let mut request = sample.request(&format!("host-{:02}", 97 * number % 24));
        request.explanation.retry = number % 2 == 0;
        request.live = number % 3 != 0;
        request.state = match number % 5 {
            4 => RequestState::Denied,
            _ => RequestState::Pending,
        };
        insert(&*store, &request).await;
        let waits = request.live && request.state == RequestState::Pending;
        if waits && request.explanation.retry {
            expected.push(request);
        }
    }
    assert!(expected.len() > 4, "{}", expected.len());
    let ids = |requests: &[RequestRecord]| requests.iter().map(|r| r.id).collect::<Vec<_>>();
    for limit in [1, 2, 100] {
        let found = worth_asking_again(&*store, limit).await;
        assert_eq!(found, ids(&expected), "{limit}");
    }
    // Who is answered, or no longer worth it, is out; who becomes worth it is in.
    let answered = expected.remove(0);
    let update = RequestUpdate {
        explanation: Some(countersign_policy::Explanation {
            retry: false,
            ..answered.explanation.clone()
        }),
        ..untouched(&answered)
    };
    write(&*store, vec![Write::UpdateRequest(update)]).await;
    let decided = RequestUpdate {
        state: RequestState::Denied,
        ..untouched(&expected.remove(0))
    };
    write(&*store, vec![Write::UpdateRequest(decided)]).await;
    assert_eq!(worth_asking_again(&*store, 2).await, ids(&expected));
    drop(store);
    let store = ground.open().await;
    assert_eq!(worth_asking_again(&*store, 100).await, ids(&expected));
}

/// What was recorded comes back as it was; what was not stays unknown, which is not the same as "there was none".
pub async fn evidence_comes_back_and_what_is_absent_stays_absent(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let nothing_found = RecordedEvidence {
        machine: Some(None),
        window: Some(None),
        ledger: Some(LedgerFacts::default()),
        ..RecordedEvidence::default()
    };
    let mut ids = Vec::new();
    for (number, evidence) in [
        RecordedEvidence::default(),
        nothing_found,
        Sample::evidence(),
    ]
    .into_iter()
    .enumerate()
    {
        let mut request = sample.request(&format!("host-{number}"));
        request.evidence = evidence;
        request.version = insert(&*store, &request).await.revision;
        assert_same(
            store.request(request.id).await.unwrap(),
            Some(request.clone()),
        );
        ids.push((request.id, request.evidence));
    }
    drop(store);
    let store = ground.open().await;
    for (id, evidence) in &ids {
        let found = store.request(*id).await.unwrap().unwrap();
        assert_eq!(found.evidence, *evidence);
        assert_eq!(found.evidence.is_empty(), evidence.is_empty());
        // An update that does not speak of it leaves it; one that does replaces it.
        write(
            &*store,
            vec![Write::UpdateRequest(RequestUpdate::none(&found))],
        )
        .await;
        let found = store.request(*id).await.unwrap().unwrap();
        assert_eq!(found.evidence, *evidence);
        for next in [Sample::evidence(), RecordedEvidence::default()] {
            let update = RequestUpdate {
                evidence: Some(next.clone()),
                ..RequestUpdate::none(&found)
            };
            write(&*store, vec![Write::UpdateRequest(update)]).await;
            let found = store.request(*id).await.unwrap().unwrap();
            assert_eq!(found.evidence, next);
        }
    }
}

/// Every policy is kept under its number, and no number is given twice, also by many at once.
pub async fn a_generation_is_given_once(ground: &dyn Ground) {
    let store = ground.open().await;
    assert!(store.newest_policy().await.unwrap().is_none());
    assert!(store.policy_version(1).await.unwrap().is_none());
    let version = |generation, text: &str| PolicyVersion {
        generation,
        digest: fingerprint_sha256(text.as_bytes()),
        loaded: Sample::time(7),
        text: text.to_owned(),
    };
    let put = |version: PolicyVersion| Change {
        preconditions: vec![Precondition::PolicyFree {
            generation: version.generation,
        }],
        writes: vec![Write::PutPolicy(version)],
        ..Change::default()
    };
    let first = version(1, "rules: \"ä\"\n");
    let later = version(7, "");
    for version in [&first, &later] {
        store.commit(put(version.clone())).await.unwrap();
        assert_same(store.newest_policy().await.unwrap(), Some(version.clone()));
    }
    for taken in [1, 3, 7] {
        let refused = store.commit(put(version(taken, "other"))).await;
        let conflict = Precondition::PolicyFree { generation: taken };
        assert!(
            matches!(&refused, Err(CommitFault::Conflict { precondition }) if *precondition == conflict),
            "{refused:?}"
        );
    }
    let unguarded = Change {
        writes: vec![Write::PutPolicy(version(7, "other"))],
        ..Change::default()
    };
    assert!(store.commit(unguarded).await.is_err());
    let racing = |number| put(version(8, &format!("text {number}")));
    let outcomes = at_once(&store, racing).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    drop(store);
    let store = ground.open().await;
    assert_same(store.policy_version(1).await.unwrap(), Some(first));
    assert_same(store.policy_version(7).await.unwrap(), Some(later));
    assert!(store.policy_version(3).await.unwrap().is_none());
    assert_eq!(store.newest_policy().await.unwrap().unwrap().generation, 8);
}

/// A decider's word holds for its address, name and key, until its end, also after a new start.
pub async fn what_a_decider_allowed_ends(ground: &dyn Ground) {
    let store = ground.open().await;
    let key = fingerprint_sha256(b"key");
    let allow = |until| RememberedAllow {
        webhook: "https://a.example/v?x".to_owned(),
        name: "web01".to_owned(),
        asked: key,
        until: Sample::time(until),
    };
    write(&*store, vec![Write::RememberAllow(allow(100))]).await;
    drop(store);
    let store = ground.open().await;
    let other_key = fingerprint_sha256(b"other");
    for (webhook, name, key, now, expected) in [
        ("https://a.example/v?x", "web01", key, 0, true),
        ("https://a.example/v?x", "web01", key, 99, true),
        ("https://a.example/v?x", "web01", key, 100, false),
        ("https://a.example/v", "web01", key, 0, false),
        ("https://a.example/v?x", "web02", key, 0, false),
        ("https://a.example/v?x", "web01", other_key, 0, false),
    ] {
        let found = store.is_allowed(webhook, name, &key, Sample::time(now));
        assert_eq!(found.await.unwrap(), expected, "{webhook} {name} {now}");
    }
    let is_allowed = async |now| {
        let found = store.is_allowed("https://a.example/v?x", "web01", &key, Sample::time(now));
        found.await.unwrap()
    };
    let forget = |before| Write::ForgetAllows {
        before: Sample::time(before),
    };
    write(&*store, vec![forget(100)]).await;
    assert!(is_allowed(99).await, "it ends at 100, not before");
    // The word that was given last counts.
    write(&*store, vec![Write::RememberAllow(allow(200))]).await;
    assert!(is_allowed(150).await);
    write(&*store, vec![forget(201)]).await;
    assert!(!is_allowed(0).await);
}

const STATES: [RequestState; 6] = [
    RequestState::Pending,
    RequestState::Approved,
    RequestState::Issued,
    RequestState::Denied,
    RequestState::Failed,
    RequestState::Undecided,
];

/// Three of each state, at two doors and under three names, of which none is occupied.
async fn rejected_and_others(store: &dyn Store, sample: &Sample) -> Vec<RequestRecord> {
    let mut stored = Vec::new();
    for number in 0..36 {
        let door = ["puppet", "kubernetes"][number / 3 % 2];
        let key = ["a", "b", "c"][number % 3];
        let mut request = sample.request_at(Door::named(door), key);
        request.state = STATES[number / 6];
        request.live = false;
        let code = ["not_listed", "webhook_error", ""][number % 4 % 3];
        request.explanation.code = code.parse().unwrap();
        insert(store, &request).await;
        stored.push(request);
    }
    stored
}

fn is_rejected(request: &RequestRecord) -> bool {
    matches!(
        request.state,
        RequestState::Denied | RequestState::Undecided
    )
}

/// Stores a request of a state that occupies no name, unless the caller says otherwise.
async fn put(
    store: &dyn Store,
    sample: &Sample,
    key: &str,
    state: RequestState,
    differently: impl Fn(&mut RequestRecord),
) -> RequestId {
    let mut request = sample.request(key);
    request.state = state;
    request.live = false;
    request.explanation.effect = Effect::Deny;
    differently(&mut request);
    insert(store, &request).await;
    request.id
}

async fn rejections(
    store: &dyn Store,
    mut filter: RejectionFilter,
    limit: usize,
) -> Vec<RequestId> {
    let mut found = Vec::new();
    filter.limit = limit;
    loop {
        let page = store.rejections(filter.clone()).await.unwrap();
        assert!(page.len() <= limit);
        let Some(last) = page.last() else {
            return found;
        };
        filter.before = Some(last.place);
        found.extend(page.iter().map(|one| one.request.id));
    }
}

async fn worth_asking_again(store: &dyn Store, limit: usize) -> Vec<RequestId> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.worth_asking_again(after, limit).await.unwrap();
        assert!(page.len() <= limit);
        let Some((place, _)) = page.last() else {
            return found;
        };
        after = Some(*place);
        found.extend(page.iter().map(|(_, request)| request.id));
    }
}
