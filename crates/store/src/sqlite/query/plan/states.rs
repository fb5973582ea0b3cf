//! How the history is written and read: at no cost to requests that no door shows, and by its order.

use countersign_authority::store::LiveRequest;
use countersign_authority::store::RequestUpdate;
use countersign_authority::{ObjectKey, StateChangeKind};
use countersign_policy::{Effect, Explanation, Requester, SignerName, Wishes};

use super::*;
use crate::sqlite::{objects, states};

/// Each write is the statement that it was before there was a history.
#[test]
fn a_request_that_is_not_retained_runs_no_statement_for_the_history() {
    let [passing, retained] = [false, true].map(|retained| {
        let ran = statements(|connection| life(connection, retained)).into_iter();
        let words =
            ran.map(|(sql, _)| sql.split_whitespace().take(3).collect::<Vec<_>>().join(" "));
        words.collect::<Vec<_>>()
    });
    assert_eq!(
        passing,
        [
            "INSERT INTO requests",
            "UPDATE requests SET",
            "DELETE FROM requests",
        ]
    );
    let kept = "INSERT INTO request_states";
    assert_eq!(
        retained,
        [
            "INSERT INTO requests",
            kept,
            "UPDATE requests SET",
            kept,
            "DELETE FROM requests",
            kept,
            "DELETE FROM requests",
        ]
    );
}

#[test]
fn states_are_read_and_forgotten_in_order() {
    let read = plans(|connection| {
        // Something must be there, else nothing is read.
        objects::insert(connection, &object(), 1)?;
        let place = states::Cursor {
            revision: 1,
            seq: 0,
        };
        states::keep_object(connection, &object().key, place, StateChangeKind::Added)?;
        states::states(connection, Revision(0), 10)
    });
    let trimmed = plans(|connection| states::trim(connection, Revision(5), 9));
    for plan in read.iter().chain(&trimmed) {
        assert!(
            plan.contains("revision>?") || plan.contains("revision<?") || !plan.contains("_states"),
            "{plan}"
        );
        assert!(
            !plan.contains("TEMP B-TREE") && !plan.contains("SCAN "),
            "{plan}"
        );
    }
    assert!(read.len() > 3 && trimmed.len() > 3, "{read:?} {trimmed:?}");
}

#[test]
fn what_occupies_a_door_is_listed_in_order() {
    let door = Door::named("kubernetes");
    let listed = plans(|connection| states::live_requests(connection, &door, |_| true));
    let listed = listed.join("\n");
    let expected = "SEARCH r USING INDEX requests_live (door=? AND key>?)";
    assert!(listed.contains(expected), "{listed}");
    assert!(!listed.contains("TEMP B-TREE"), "{listed}");
    let key = object().key;
    let found = one_plan(|connection| objects::object(connection, &key));
    let version = None;
    let checked = plan_of(Precondition::ObjectAt { key, version });
    for plan in [found, checked] {
        assert!(
            plan.contains("(kind=? AND namespace=? AND name=?)"),
            "{plan}"
        );
    }
}

/// A door that shows all requests must not go dark because of one.
#[test]
fn a_record_that_cannot_be_read_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let connection = connection(&folder);
    let door = Door::named("kubernetes");
    for (number, key) in (1..).zip(["a", "b", "c"]) {
        let record = RequestRecord {
            id: RequestId::new(UnixTime(0), [number; 10]),
            key: key.to_owned(),
            ..request(true)
        };
        let change = Change {
            writes: vec![Write::InsertRequest(record)],
            ..Change::default()
        };
        change::write(&connection, &change, Revision(number.into())).unwrap();
    }
    objects::insert(&connection, &object(), 4).unwrap();
    let place = states::Cursor {
        revision: 4,
        seq: 0,
    };
    states::keep_object(&connection, &object().key, place, StateChangeKind::Added).unwrap();
    connection
        .execute_batch(
            "UPDATE requests SET wishes = 'gone' WHERE key = 'b';
             UPDATE request_states SET wishes = 'gone' WHERE key = 'b';
             UPDATE objects SET id = x'00'",
        )
        .unwrap();
    let mut keys = Vec::new();
    let take = |page: Vec<LiveRequest>| {
        keys.extend(page.into_iter().map(|live| live.record.key));
        true
    };
    states::live_requests(&connection, &door, take).unwrap();
    assert_eq!(keys, ["a", "c"]);
    let (_, found) = objects::objects(&connection).unwrap();
    assert_eq!(found, []);
    // However short the pages are: none is empty before the end.
    for limit in [1, 2, 10] {
        let (mut since, mut seen) = (Revision(0), Vec::new());
        loop {
            let page = states::states(&connection, since, limit).unwrap();
            let Some(last) = page.last() else {
                break;
            };
            since = last.revision;
            seen.extend(page.iter().map(|change| change.revision.0));
        }
        assert_eq!(seen, [1, 3, 4], "{limit}");
    }
}

/// A request is stored, changed and forgotten.
fn life(connection: &Connection, retained: bool) -> Result<(), Fault> {
    let request = request(retained);
    let id = request.id;
    let update = RequestUpdate::to_state(id, RequestState::Approved, true);
    for (number, write) in (1..).zip([
        Write::InsertRequest(request),
        Write::UpdateRequest(update),
        Write::DeleteRequest(id),
    ]) {
        let change = Change {
            writes: vec![write],
            ..Change::default()
        };
        change::write(connection, &change, Revision(number))?;
    }
    Ok(())
}

fn request(retained: bool) -> RequestRecord {
    let at = UnixTime(1_700_000_000);
    RequestRecord {
        id: RequestId::new(at, [7; 10]),
        door: Door::named("kubernetes"),
        key: "a".to_owned(),
        live: true,
        retained,
        version: Revision::default(),
        state: RequestState::Pending,
        signer: SignerName::parse("test.example/agent").unwrap(),
        csr_der: Vec::new(),
        key_fingerprint: countersign_pki::fingerprint_sha256(b"key"),
        requester: Requester::authority(),
        wishes: Wishes::default(),
        created: at,
        explanation: Explanation::new(Effect::Pending, at, 1),
        evidence: Default::default(),
        failure: None,
        certificate: None,
        attachment: Vec::new(),
    }
}

fn object() -> countersign_authority::ObjectRecord {
    countersign_authority::ObjectRecord {
        key: ObjectKey {
            kind: "roles".to_owned(),
            namespace: "lab".to_owned(),
            name: "a".to_owned(),
        },
        id: request(true).id,
        version: Revision::default(),
        created: UnixTime(0),
        body: Vec::new(),
    }
}
