//! Requests: identity, names, versions, listings.

use countersign_authority::store::{
    Change, CommitFault, Past, Precondition, RequestFilter, RequestUpdate, Store, Write,
};
use countersign_authority::{Door, RequestRecord, RequestState};
use countersign_policy::{Deciding, Effect, Explanation, Identity, Requester};

use super::sample::{assert_same, enrol, insert, untouched, write};
use super::{Ground, Sample};

/// Every field is read back as it was written; the version is the commit's revision.
pub async fn a_request_comes_back_field_by_field(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut plain = sample.request("plain.example.com");
    plain.requester.identity = Identity::Anonymous;
    plain.requester.source = None;
    plain.attachment = Vec::new();
    let mut full = sample.request("ünicode \u{0} \"quoted\"");
    full.live = false;
    full.state = RequestState::Failed;
    full.failure = Some("no such extension".to_owned());
    full.certificate = Some((Sample::issuer(), Sample::serial(2)));
    for mut request in [plain, full] {
        request.version = insert(&*store, &request).await.revision;
        assert_same(store.request(request.id).await.unwrap(), Some(request));
    }
    assert!(
        store
            .request(sample.request("other").id)
            .await
            .unwrap()
            .is_none()
    );
}

/// A second request with the identity of a stored one is refused.
pub async fn an_identity_is_stored_once(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let first = sample.request("a");
    insert(&*store, &first).await;
    let second = RequestRecord {
        id: first.id,
        ..sample.request("b")
    };
    let change = Change {
        writes: vec![Write::InsertRequest(second)],
        ..Change::default()
    };
    assert!(matches!(
        store.commit(change).await,
        Err(CommitFault::Store(_))
    ));
    assert_eq!(store.request(first.id).await.unwrap().unwrap().key, "a");
}

/// A name is occupied by one request per door, with or without a precondition that says so.
pub async fn a_taken_name_refuses_another_request(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let first = sample.request("a");
    insert(&*store, &first).await;
    let free = Precondition::KeyFree {
        door: Sample::door(),
        key: "a".to_owned(),
    };
    for preconditions in [vec![free.clone()], vec![]] {
        let writes = vec![Write::InsertRequest(sample.request("a"))];
        let refused = store
            .commit(Change {
                preconditions,
                writes,
                audit: vec![],
            })
            .await;
        assert!(
            matches!(&refused, Err(CommitFault::Conflict { precondition }) if *precondition == free),
            "{refused:?}"
        );
    }
    insert(&*store, &sample.request_at(Door::named("kubernetes"), "a")).await;
    insert(&*store, &sample.request("A")).await;
    let found = store
        .request_at(&Sample::door(), "a", Past::Ignore)
        .await
        .unwrap();
    assert_eq!(found.unwrap().id, first.id);
}

/// A request that is no longer live leaves its name to others and stays on record.
pub async fn a_released_name_can_be_taken_again(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let (door, first, second) = (Sample::door(), sample.request("a"), sample.request("a"));
    let occupant = async |past| {
        store
            .request_at(&door, "a", past)
            .await
            .unwrap()
            .map(|request| request.id)
    };
    assert_eq!(occupant(Past::Include).await, None);
    insert(&*store, &first).await;
    write(&*store, vec![release(&first)]).await;
    assert_eq!(occupant(Past::Ignore).await, None);
    assert_eq!(occupant(Past::Include).await, Some(first.id));

    let preconditions = vec![Precondition::KeyFree {
        door: door.clone(),
        key: "a".to_owned(),
    }];
    let writes = vec![Write::InsertRequest(second.clone())];
    store
        .commit(Change {
            preconditions,
            writes,
            audit: vec![],
        })
        .await
        .unwrap();
    assert_eq!(occupant(Past::Ignore).await, Some(second.id));
    assert_eq!(occupant(Past::Include).await, Some(second.id));
    write(&*store, vec![release(&second)]).await;
    assert_eq!(occupant(Past::Include).await, Some(second.id));
    assert!(
        store
            .request(first.id)
            .await
            .unwrap()
            .is_some_and(|request| !request.live)
    );
}

/// A released request does not push out the one that took its name.
pub async fn a_released_name_cannot_be_reoccupied_once_taken(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let (first, second) = (sample.request("a"), sample.request("a"));
    insert(&*store, &first).await;
    write(
        &*store,
        vec![release(&first), Write::InsertRequest(second.clone())],
    )
    .await;
    let again = Change {
        writes: vec![Write::UpdateRequest(untouched(&first))],
        ..Change::default()
    };
    let taken = Precondition::KeyFree {
        door: Sample::door(),
        key: "a".to_owned(),
    };
    let refused = store.commit(again).await;
    assert!(
        matches!(&refused, Err(CommitFault::Conflict { precondition }) if *precondition == taken),
        "{refused:?}"
    );
    let found = store
        .request_at(&Sample::door(), "a", Past::Ignore)
        .await
        .unwrap();
    assert_eq!(found.unwrap().id, second.id);
}

/// `None` in an update leaves the field as it is.
pub async fn an_update_changes_what_it_names_and_nothing_else(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let (mut request, bystander) = (sample.request("a"), sample.request("b"));
    insert(&*store, &request).await;
    let untouched_version = insert(&*store, &bystander).await.revision;

    request.state = RequestState::Failed;
    request.explanation.effect = Effect::Deny;
    request.failure = Some("too many names".to_owned());
    request.certificate = Some((Sample::issuer(), Sample::serial(1)));
    request.attachment = b"changed".to_vec();
    request.csr_der = b"less".to_vec();
    let update = RequestUpdate {
        csr_der: Some(request.csr_der.clone()),
        explanation: Some(request.explanation.clone()),
        failure: request.failure.clone(),
        certificate: request.certificate.clone(),
        attachment: Some(request.attachment.clone()),
        ..untouched(&request)
    };
    request.version = write(&*store, vec![Write::UpdateRequest(update)])
        .await
        .revision;
    assert_same(
        store.request(request.id).await.unwrap(),
        Some(request.clone()),
    );

    request.state = RequestState::Denied;
    request.live = false;
    request.version = write(&*store, vec![Write::UpdateRequest(untouched(&request))])
        .await
        .revision;
    assert_same(store.request(request.id).await.unwrap(), Some(request));
    assert_eq!(
        store.request(bystander.id).await.unwrap().unwrap().version,
        untouched_version
    );
}

/// A person's denial stands against its name and key, whether or not it still holds the name; a rule's does not.
pub async fn a_denial_by_a_person_stands_against_its_name_and_key(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let check = async |of: &RequestRecord, key: &str| {
        let precondition = Precondition::NotDenied {
            door: of.door.clone(),
            key: key.to_owned(),
            key_fingerprint: of.key_fingerprint,
        };
        let change = Change {
            preconditions: vec![precondition],
            ..Change::default()
        };
        store.commit(change).await.is_ok()
    };
    let deny = |request: &RequestRecord, by, live| Change {
        writes: vec![Write::UpdateRequest(RequestUpdate {
            state: RequestState::Denied,
            live,
            explanation: Some(Explanation {
                by: Some(by),
                ..request.explanation.clone()
            }),
            ..untouched(request)
        })],
        ..Change::default()
    };
    let person = || Deciding::Person {
        actor: Requester::authority(),
        reason: String::new(),
    };
    let rule = Deciding::rule("reserved");
    let (by_person, by_rule) = (sample.request("a"), sample.request("b"));
    insert(&*store, &by_person).await;
    insert(&*store, &by_rule).await;
    assert!(check(&by_person, "a").await, "nothing is denied yet");
    for live in [true, false] {
        store
            .commit(deny(&by_person, person(), live))
            .await
            .unwrap();
        assert!(!check(&by_person, "a").await, "live: {live}");
    }
    store.commit(deny(&by_rule, rule, false)).await.unwrap();
    assert!(check(&by_rule, "b").await, "a rule decides anew");
    assert!(check(&by_person, "b").await, "another name");
    let other = RequestRecord {
        key_fingerprint: countersign_pki::fingerprint_sha256(b"another key"),
        ..by_person.clone()
    };
    assert!(check(&other, "a").await, "another key");
    let forget = Change {
        writes: vec![Write::DeleteRequest(by_person.id)],
        ..Change::default()
    };
    store.commit(forget).await.unwrap();
    assert!(check(&by_person, "a").await, "the denial is deleted");
}

/// A decision made on an old version is not written over a new one.
pub async fn a_request_that_changed_since_it_was_read_is_a_conflict(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let request = sample.request("a");
    let inserted = insert(&*store, &request).await.revision;
    let deny = |version| Change {
        preconditions: vec![Precondition::RequestAt {
            id: request.id,
            version,
        }],
        writes: vec![Write::UpdateRequest(RequestUpdate {
            state: RequestState::Denied,
            ..untouched(&request)
        })],
        audit: vec![],
    };
    let denied = store.commit(deny(inserted)).await.unwrap().revision;
    assert!(denied > inserted);
    for version in [inserted, countersign_authority::Revision(u64::MAX)] {
        let refused = store.commit(deny(version)).await;
        let expected = Precondition::RequestAt {
            id: request.id,
            version,
        };
        assert!(
            matches!(&refused, Err(CommitFault::Conflict { precondition }) if *precondition == expected)
        );
    }
    assert_eq!(
        store.request(request.id).await.unwrap().unwrap().version,
        denied
    );

    let exists = |id| Change {
        preconditions: vec![Precondition::RequestExists { id }],
        ..Change::default()
    };
    store.commit(exists(request.id)).await.unwrap();
    let refused = store.commit(exists(sample.request("b").id)).await;
    assert!(matches!(
        refused,
        Err(CommitFault::Conflict {
            precondition: Precondition::RequestExists { .. }
        })
    ));

    let is_in = |id, state| Change {
        preconditions: vec![Precondition::RequestIn { id, state }],
        ..Change::default()
    };
    let stored = store.request(request.id).await.unwrap().unwrap().state;
    store.commit(is_in(request.id, stored)).await.unwrap();
    for (id, state) in [
        (request.id, RequestState::Issued),
        (sample.request("b").id, stored),
    ] {
        let refused = store.commit(is_in(id, state)).await;
        let expected = Precondition::RequestIn { id, state };
        assert!(
            matches!(&refused, Err(CommitFault::Conflict { precondition }) if *precondition == expected)
        );
    }
}

/// Nothing is updated or deleted in silence.
pub async fn writes_to_a_request_that_is_not_there_are_refused(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let request = sample.request("a");
    for unknown in [
        Write::UpdateRequest(untouched(&request)),
        Write::DeleteRequest(request.id),
    ] {
        let refused = store
            .commit(Change {
                writes: vec![unknown],
                ..Change::default()
            })
            .await;
        let expected = Precondition::RequestExists { id: request.id };
        assert!(
            matches!(&refused, Err(CommitFault::Conflict { precondition }) if *precondition == expected)
        );
    }
}

/// Deleting a request frees its name and leaves the ledger alone.
pub async fn a_deleted_request_is_gone_and_its_certificate_stays(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let enrolled = enrol(&*store, &sample, "a").await;
    write(&*store, vec![Write::DeleteRequest(enrolled.request.id)]).await;
    assert!(store.request(enrolled.request.id).await.unwrap().is_none());
    assert!(
        store
            .request_at(&Sample::door(), "a", Past::Include)
            .await
            .unwrap()
            .is_none()
    );
    let entry = store
        .certificate(&Sample::issuer(), &enrolled.intent.serial)
        .await
        .unwrap();
    assert_eq!(entry.unwrap().request, enrolled.request.id);
    insert(&*store, &sample.request("a")).await;
}

/// Pages follow each other by door, name (byte order) and age, without overlap or hole.
pub async fn pages_of_requests_are_ordered_and_complete(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let mut stored = Vec::new();
    for door in [
        Door::named("puppet"),
        Door::named("cluster"),
        Door::named("kubernetes"),
    ] {
        for key in ["b", "a", "B", "ä", "a.b", "z"] {
            let request = sample.request_at(door.clone(), key);
            insert(&*store, &request).await;
            write(&*store, vec![release(&request)]).await;
            let newer = sample.request_at(door.clone(), key);
            insert(&*store, &newer).await;
            stored.extend([request, newer]);
        }
    }
    let mut expected: Vec<_> = stored.iter().map(place).collect();
    expected.sort();
    for limit in [0, 1, 2, 5, 12, 36, 100] {
        assert_eq!(
            all_pages(
                &*store,
                RequestFilter {
                    limit,
                    ..RequestFilter::default()
                }
            )
            .await,
            expected,
            "{limit}"
        );
    }
    let door = Some(Door::named("kubernetes"));
    expected.retain(|(of, _, _)| *of == Door::named("kubernetes"));
    assert_eq!(
        all_pages(
            &*store,
            RequestFilter {
                door,
                limit: 5,
                ..RequestFilter::default()
            }
        )
        .await,
        expected
    );
}

/// Filters by door, state, name and occupation, alone and together.
pub async fn filters_show_what_they_name(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let states = [
        RequestState::Pending,
        RequestState::Approved,
        RequestState::Issued,
        RequestState::Denied,
        RequestState::Failed,
        RequestState::Undecided,
    ];
    let mut stored = Vec::new();
    for door in [Door::named("kubernetes"), Door::named("puppet")] {
        for (index, state) in states.into_iter().enumerate() {
            for key in ["x", "y", "z"] {
                let mut request = sample.request_at(door.clone(), key);
                request.state = state;
                request.live = index == 0;
                insert(&*store, &request).await;
                stored.push(request);
            }
        }
    }
    let mut choices = vec![vec![]];
    choices.extend(states.map(|state| vec![state]));
    choices.push(vec![RequestState::Pending, RequestState::Denied]);
    choices.push(vec![RequestState::Issued, RequestState::Failed]);
    for states in choices {
        for door in [
            None,
            Some(Door::named("puppet")),
            Some(Door::named("nowhere")),
        ] {
            for key in [None, Some("y".to_owned())] {
                for (live_only, newest_only) in
                    [(false, false), (true, false), (false, true), (true, true)]
                {
                    let is_newest = |request: &&RequestRecord| {
                        let mut same = stored.iter().filter(|other| {
                            (&other.door, &other.key) == (&request.door, &request.key)
                        });
                        same.all(|other| other.id <= request.id)
                    };
                    let filter = RequestFilter {
                        door: door.clone(),
                        states: states.clone(),
                        live_only,
                        newest_only,
                        key: key.clone(),
                        limit: 2,
                        ..RequestFilter::default()
                    };
                    let mut expected: Vec<_> = stored
                        .iter()
                        .filter(|request| door.as_ref().is_none_or(|door| *door == request.door))
                        .filter(|request| states.is_empty() || states.contains(&request.state))
                        .filter(|request| key.as_ref().is_none_or(|key| *key == request.key))
                        .filter(|request| !live_only || request.live)
                        .filter(|request| !newest_only || is_newest(request))
                        .map(place)
                        .collect();
                    expected.sort();
                    assert_eq!(
                        all_pages(&*store, filter.clone()).await,
                        expected,
                        "{filter:?}"
                    );
                }
            }
        }
    }
}

fn release(request: &RequestRecord) -> Write {
    Write::UpdateRequest(RequestUpdate {
        live: false,
        ..untouched(request)
    })
}

type Place = (Door, String, countersign_authority::RequestId);

fn place(request: &RequestRecord) -> Place {
    (request.door.clone(), request.key.clone(), request.id)
}

async fn all_pages(store: &dyn Store, mut filter: RequestFilter) -> Vec<Place> {
    let mut places = Vec::new();
    loop {
        let page = store.requests(filter.clone()).await.unwrap();
        assert!(filter.limit == 0 || page.len() <= filter.limit);
        places.extend(page.iter().map(place));
        match page.last() {
            Some(last) if filter.limit > 0 => filter.after = Some(place(last)),
            Some(_) | None => return places,
        }
    }
}
