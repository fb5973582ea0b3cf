//! How SQLite plans what runs for every request, and what runs at start: by an index, however long the ledger is.
//!
//! The statements are not repeated here: a trace takes them from what the store really runs.

mod states;
mod tokens;

use super::*;
use crate::sqlite::change;
use crate::sqlite::folder::StoreFiles;
use crate::sqlite::inventory;
use crate::sqlite::migration;
use countersign_authority::Owner;
use countersign_authority::store::{Change, MachineFilter, Precondition, Write};
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use std::sync::{Arc, Mutex};

/// A new store's connection, set up as the writer's is.
fn connection(folder: &tempfile::TempDir) -> Connection {
    let path = folder.path().join("plan.db");
    let mut connection = StoreFiles::claim(&path).unwrap().writer().unwrap();
    migration::migrate(&mut connection, &path).unwrap();
    connection
}

/// The plans of the statements that `work` runs, one line each.
fn plans<T>(work: impl FnOnce(&Connection) -> Result<T, Fault>) -> Vec<String> {
    let plans = statements(work).into_iter().map(|(_, plan)| plan);
    plans.filter(|plan| !plan.is_empty()).collect()
}

/// The statements that `work` runs, each with its plan.
fn statements<T>(work: impl FnOnce(&Connection) -> Result<T, Fault>) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let mut connection = connection(&folder);
    let statements = Arc::new(Mutex::new(Vec::new()));
    let traced = Arc::clone(&statements);
    let trace = move |event: TraceEvent<'_>| {
        if let TraceEvent::Stmt(statement, _) = event {
            // With its parameters, not their values: a value could match a partial index, a parameter cannot.
            traced.lock().unwrap().push(statement.sql().into_owned());
        }
    };
    connection
        .trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(trace))
        .unwrap();
    match work(&connection) {
        Ok(_) | Err(Fault::Refused(_)) => {}
        Err(other) => panic!("{other:?}"),
    }
    let ran = statements.lock().unwrap().clone();
    let explained = ran.into_iter().map(|sql| {
        let plan = explain(&connection, &sql);
        (sql, plan)
    });
    explained.collect()
}

fn explain(connection: &Connection, sql: &str) -> String {
    let mut statement = connection
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .unwrap();
    let steps = statement.raw_query().mapped(|row| row.get::<_, String>(3));
    steps.collect::<Result<Vec<_>, _>>().unwrap().join("; ")
}

/// The one plan of a precondition, which does not hold in an empty store or does: either way it was looked up.
fn plan_of(precondition: Precondition) -> String {
    let change = Change {
        preconditions: vec![precondition],
        ..Change::default()
    };
    one_plan(|connection| change::check(connection, &change))
}

fn one_plan<T>(work: impl FnOnce(&Connection) -> Result<T, Fault>) -> String {
    let mut plans = plans(work);
    assert_eq!(plans.len(), 1, "{plans:?}");
    plans.remove(0)
}

/// The plan of a write that is refused by nothing.
fn plan_of_write(write: Write) -> String {
    let change = Change {
        writes: vec![write],
        ..Change::default()
    };
    one_plan(|connection| change::write(connection, &change, Revision(1)))
}

fn plan_of_page(filter: &RequestFilter) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (sql, _) = requests_of_door("puppet", filter, 0);
    explain(&connection(&folder), &sql)
}

fn issuer() -> IssuerId {
    IssuerId::parse("puppet").unwrap()
}

fn serial() -> Serial {
    Serial::random_from([7; 16])
}

#[test]
fn open_intents_are_found_without_walking_the_ledger() {
    assert_eq!(one_plan(intents::open), "SCAN intents");
}

#[test]
fn the_newest_certificate_is_checked_by_name() {
    let plan = plan_of(Precondition::NewestCertificate {
        issuer: issuer(),
        name: "a".to_owned(),
        serial: None,
    });
    for step in [
        "INDEX intents_name (issuer=? AND name=?)",
        "INDEX certificates_name (issuer=? AND name=? AND retired=?)",
    ] {
        assert!(plan.contains(step), "{plan}");
    }
    assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    assert!(!plan.contains("SCAN certificates"), "{plan}");
}

#[test]
fn denials_of_a_name_are_found_by_the_listing_index() {
    let plan = plan_of(Precondition::NotDenied {
        door: Door::named("puppet"),
        key: "a".to_owned(),
        key_fingerprint: countersign_pki::fingerprint_sha256(b"key"),
    });
    assert!(plan.starts_with("SEARCH requests USING INDEX"), "{plan}");
    assert!(plan.contains("door=? AND key=?"), "{plan}");
}

#[test]
fn certificates_of_a_name_are_counted_in_its_index() {
    let plan = plan_of(Precondition::IssuedCount {
        issuer: issuer(),
        name: "a".to_owned(),
        count: 0,
    });
    assert_eq!(
        plan,
        "SEARCH certificates USING COVERING INDEX certificates_name (issuer=? AND name=?)"
    );
}

#[test]
fn a_serial_is_found_by_its_index() {
    let looked_up = one_plan(|connection| certificate(connection, &issuer(), &serial()));
    let checked = plan_of(Precondition::IntentOpen {
        issuer: issuer(),
        serial: serial(),
        owner: Some(Owner("this-process".to_owned())),
    });
    for (plan, table) in [(looked_up, "certificates"), (checked, "intents")] {
        assert_eq!(
            plan,
            format!("SEARCH {table} USING INDEX {table}_serial (issuer=? AND serial=?)")
        );
    }
}

#[test]
fn the_newest_certificate_of_a_name_is_found_without_sorting() {
    let newest = one_plan(|connection| newest_certificate(connection, &issuer(), "a"));
    assert_eq!(
        newest,
        "SEARCH certificates USING INDEX certificates_name (issuer=? AND name=? AND retired=?)"
    );
}

/// Retired or not, a name has few: those alone are sorted.
#[test]
fn certificates_of_a_name_are_found_by_name() {
    let every = one_plan(|connection| certificates_of(connection, &issuer(), "a", UnixTime(0)));
    assert_eq!(
        every,
        "SEARCH certificates USING INDEX certificates_name (issuer=? AND name=?); USE TEMP B-TREE FOR ORDER BY"
    );
}

#[test]
fn a_page_of_newest_certificates_is_chosen_in_the_index_alone() {
    for after in [None, Some("a")] {
        let whole = one_plan(|connection| newest_certificates(connection, &issuer(), after, 100));
        let listed = one_plan(|connection| listed_certificates(connection, &issuer(), after, 100));
        assert!(
            whole.contains("SEARCH certificates USING COVERING INDEX certificates_name (issuer=?"),
            "{whole}"
        );
        assert!(!whole.contains("FOR GROUP BY"), "{whole}");
        assert_eq!(listed, whole);
    }
}

#[test]
fn revocations_are_read_from_their_index_alone() {
    let plans = plans(|connection| revocations(connection, &issuer(), UnixTime(0)));
    let [revision, revoked] = plans.as_slice() else {
        panic!("{plans:?}");
    };
    assert!(revision.contains("SEARCH store_state"), "{revision}");
    assert_eq!(
        revoked,
        "SEARCH certificates USING COVERING INDEX certificates_revoked (issuer=? AND not_after>?)"
    );
}

#[test]
fn a_request_is_found_by_identity_and_by_name() {
    let id = RequestId::from_bytes([0; 16]);
    let version = Revision(1);
    let by_identity = "SEARCH requests USING INDEX requests_id (id=?)";
    let held = "SEARCH intents USING INDEX intents_request (request=?)";
    let found = plans(|connection| request(connection, id));
    assert_eq!(found, [by_identity, held]);
    assert_eq!(
        plan_of(Precondition::RequestAt { id, version }),
        by_identity
    );

    let door = Door::named("puppet");
    let change = Change {
        preconditions: vec![Precondition::KeyFree {
            door: door.clone(),
            key: "a".to_owned(),
        }],
        ..Change::default()
    };
    let free = plans(|connection| change::check(connection, &change));
    let present = plans(|connection| request_at(connection, &door, "a", Past::Ignore));
    let past = plans(|connection| request_at(connection, &door, "a", Past::Include));
    for plans in [&free, &present, &past] {
        let [live, held, ..] = plans.as_slice() else {
            panic!("{plans:?}");
        };
        assert!(live.contains("INDEX requests_live (door=? AND key=?)"));
        assert!(held.contains("INDEX intents_live (door=? AND key=?)"));
    }
    let past = past.last().unwrap();
    assert!(!past.contains("SCAN requests"), "{past}");
    assert!(
        past.contains("COVERING INDEX requests_listing (door=? AND key=?)"),
        "{past}"
    );
}

#[test]
fn a_page_of_requests_is_read_in_index_order() {
    let after = Some((
        Door::named("puppet"),
        "a".to_owned(),
        RequestId::from_bytes([0; 16]),
    ));
    for after in [None, after] {
        let filter = RequestFilter {
            after,
            limit: 100,
            ..RequestFilter::default()
        };
        let plan = plan_of_page(&filter);
        assert!(
            plan.contains("USING INDEX requests_listing (door=?"),
            "{plan}"
        );
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    }
}

#[test]
fn requests_in_one_open_state_are_found_without_walking_past_the_issued() {
    let after = Some((
        Door::named("puppet"),
        "a".to_owned(),
        RequestId::from_bytes([0; 16]),
    ));
    for after in [None, after] {
        for state in [
            RequestState::Pending,
            RequestState::Approved,
            RequestState::Denied,
            RequestState::Failed,
            RequestState::Undecided,
        ] {
            let states = vec![state];
            let plan = plan_of_page(&RequestFilter {
                states,
                after: after.clone(),
                limit: 100,
                ..RequestFilter::default()
            });
            assert!(
                plan.contains("USING INDEX requests_open (state=? AND door=?"),
                "{plan}"
            );
            assert!(!plan.contains("TEMP B-TREE"), "{plan}");
        }
    }
}

#[test]
fn requests_in_several_open_states_are_found_without_walking_past_the_issued() {
    let states = vec![RequestState::Pending, RequestState::Approved];
    let plan = plan_of_page(&RequestFilter {
        states,
        limit: 100,
        ..RequestFilter::default()
    });
    assert!(plan.contains("requests_open"), "{plan}");
}

#[test]
fn live_requests_are_read_in_index_order() {
    let plan = plan_of_page(&RequestFilter {
        live_only: true,
        limit: 100,
        ..RequestFilter::default()
    });
    assert!(plan.contains("USING INDEX requests_live (door=?"), "{plan}");
    assert!(!plan.contains("TEMP B-TREE"), "{plan}");
}

#[test]
fn old_requests_are_chosen_in_an_index() {
    let plan = |state| {
        let filter = AgeFilter {
            door: Door::named("puppet"),
            state,
            before: UnixTime(1_700_000_000),
            after: None,
            limit: 100,
        };
        one_plan(|connection| requests_before(connection, &filter))
    };
    assert_eq!(
        plan(RequestState::Issued),
        "SEARCH requests USING INDEX requests_issued (door=? AND id>? AND id<?)"
    );
    for state in [
        RequestState::Pending,
        RequestState::Approved,
        RequestState::Denied,
        RequestState::Failed,
        RequestState::Undecided,
    ] {
        // Open ones are few: their identities are sorted, then the page, and nothing else is visited.
        let plan = plan(state);
        let chosen = "SEARCH requests USING COVERING INDEX requests_open (state=? AND door=?)";
        assert!(plan.contains(chosen), "{plan}");
        assert!(
            plan.starts_with("SEARCH requests USING INTEGER PRIMARY KEY (rowid=?)"),
            "{plan}"
        );
        assert!(!plan.contains("SCAN"), "{plan}");
    }
}

#[test]
fn what_waits_is_counted_in_its_index() {
    let address = IpAddr::from([192, 0, 2, 7]);
    let plan = one_plan(|connection| pending_from(connection, address, 100));
    let counted = "SEARCH requests USING COVERING INDEX requests_source (source=?)";
    assert!(plan.contains(counted), "{plan}");
}

#[test]
fn figures_are_read_from_indexes_alone() {
    let plans = plans(|connection| tally(connection, UnixTime(0), UnixTime(1)));
    let [pending, expiring] = plans.as_slice() else {
        panic!("{plans:?}");
    };
    assert!(
        pending.starts_with("SCAN requests USING COVERING INDEX requests_source"),
        "{pending}"
    );
    assert!(
        expiring.starts_with(
            "SEARCH certificates USING COVERING INDEX certificates_ending (not_after>? AND not_after<?)"
        ),
        "{expiring}"
    );
}

#[test]
fn a_page_of_the_ledger_is_read_in_order_from_its_place() {
    for after in [None, Some(7)] {
        let plan = one_plan(|connection| ledger(connection, &issuer(), after, 100));
        assert_eq!(
            plan,
            "SEARCH certificates USING INTEGER PRIMARY KEY (rowid>?)"
        );
    }
}

#[test]
fn what_an_issuer_has_one_of_is_found_by_its_key() {
    for scope in [CrlScope::Full, CrlScope::Infrastructure] {
        let plan = one_plan(|connection| crl(connection, &issuer(), scope));
        assert!(plan.contains("(issuer=? AND scope=?)"), "{plan}");
    }
    let ancestors = one_plan(|connection| ancestor_crls(connection, &issuer()));
    assert!(
        ancestors.starts_with("SEARCH ancestor_crls USING INDEX"),
        "{ancestors}"
    );
    let counter = one_plan(|connection| next_serial(connection, &issuer()));
    assert!(
        counter.starts_with("SEARCH serials USING INDEX"),
        "{counter}"
    );
}

#[test]
fn the_inventory_is_read_by_name_or_by_what_is_asked_for() {
    let text = || Some("x".to_owned());
    let page = MachineFilter {
        after: text(),
        limit: 100,
        ..MachineFilter::default()
    };
    for (filter, expected) in [
        (page.clone(), "PRIMARY KEY (name>?)"),
        (
            MachineFilter {
                role: text(),
                provider: text(),
                enrolled: Some(true),
                ..page.clone()
            },
            "INDEX machines_role (role=? AND name>?)",
        ),
        (
            MachineFilter {
                provider: text(),
                ..page.clone()
            },
            "INDEX machines_provider (provider=? AND name>?)",
        ),
        (
            MachineFilter {
                enrolled: Some(true),
                ..page.clone()
            },
            "INDEX machines_enrolled (name>?)",
        ),
        (
            MachineFilter {
                enrolled: Some(false),
                ..page.clone()
            },
            "INDEX machines_waiting (name>?)",
        ),
    ] {
        let plan = one_plan(|connection| inventory::machines(connection, &filter));
        assert_eq!(plan, format!("SEARCH machines USING {expected}"));
    }
    let closed = one_plan(|connection| inventory::windows_closed(connection, UnixTime(0), 10));
    assert_eq!(
        closed,
        "SEARCH windows USING INDEX windows_closing (closes_at<?)"
    );
}

#[test]
fn what_an_approval_uses_is_checked_by_its_key() {
    let name = || "a".to_owned();
    let at = UnixTime(0);
    for precondition in [
        Precondition::MachineAt {
            name: name(),
            version: None,
        },
        Precondition::MachineExists { name: name() },
        Precondition::MachineUnused { name: name() },
        Precondition::WindowOpen {
            certname: name(),
            at,
            with_token: false,
        },
        Precondition::WindowClosed {
            certname: name(),
            before: at,
        },
    ] {
        let plan = plan_of(precondition);
        assert!(plan.contains("name=?)"), "{plan}");
        assert!(!plan.contains("SCAN"), "{plan}");
    }
}

/// It runs once in the life of an issuer, and needs no certificate for it.
#[test]
fn the_highest_serial_is_found_in_the_indexes_alone() {
    let plan = one_plan(|connection| highest_serial(connection, &issuer()));
    for table in ["certificates", "intents"] {
        let step = format!("SEARCH {table} USING COVERING INDEX {table}_serial (issuer=?)");
        assert!(plan.contains(&step), "{plan}");
    }
}

#[test]
fn pages_of_the_audit_log_are_read_by_its_key_in_either_order() {
    use countersign_authority::{AuditFilter, AuditOrder, AuditPlace, AuditQuery};
    for order in [AuditOrder::OldestFirst, AuditOrder::NewestFirst] {
        let query = AuditQuery {
            filter: AuditFilter::default(),
            order,
            after: Some(AuditPlace::default()),
            limit: 10,
            look_at: 10,
        };
        let plan = one_plan(|connection| audit_page(connection, &query));
        assert!(
            plan.starts_with("SEARCH audit USING INDEX sqlite_autoindex_audit_1 (")
                && !plan.contains("TEMP B-TREE"),
            "{order:?}: {plan}"
        );
    }
    let newest = one_plan(last_seal);
    assert_eq!(newest, "SCAN audit_seals");
    let after = one_plan(|connection| seals(connection, 7, 10));
    assert_eq!(
        after,
        "SEARCH audit_seals USING INTEGER PRIMARY KEY (rowid>?)"
    );
}

#[test]
fn what_was_turned_away_is_read_backwards_from_its_place() {
    for before in [None, Some(7)] {
        let filter = RejectionFilter {
            trimmable: false,
            door: Some(Door::named("puppet")),
            key: Some("a".to_owned()),
            code: Some("not_listed".to_owned()),
            since: Some(UnixTime(0)),
            before,
            limit: 10,
            skip: 0,
        };
        let plan = one_plan(|connection| rejections(connection, &filter));
        let by_place = match before {
            Some(_) => "SEARCH requests USING INDEX requests_rejected (number<?)",
            None => "SCAN requests USING INDEX requests_rejected",
        };
        assert_eq!(plan, by_place);
    }
}

#[test]
fn what_is_worth_asking_again_is_read_from_its_place() {
    for after in [None, Some(7)] {
        let plan = one_plan(|connection| worth_asking_again(connection, after, 10));
        assert_eq!(
            plan,
            "SEARCH requests USING INDEX requests_retry (number>?)"
        );
    }
}

/// Under one name by name; under all by the index of what was turned away, never past what was issued.
#[test]
fn rejections_are_trimmed_by_an_index() {
    let of = (Door::named("puppet"), "a".to_owned());
    for (of, expected) in [
        (Some(of), "(door=? AND key=?"),
        (None, "USING INDEX requests_rejected"),
    ] {
        let plan = plan_of_write(Write::TrimRejections {
            of,
            keep: 10,
            bytes: 1 << 20,
            thefts_since: UnixTime(0),
        });
        assert!(plan.contains(expected), "{plan}");
        assert!(!plan.contains("SCAN requests;"), "{plan}");
    }
}

#[test]
fn policies_and_what_was_allowed_are_found_by_their_keys() {
    let generation = 7;
    for plan in [
        plan_of(Precondition::PolicyFree { generation }),
        one_plan(|connection| policy_version(connection, generation)),
    ] {
        assert!(
            plan.starts_with("SEARCH policies USING INTEGER PRIMARY KEY"),
            "{plan}"
        );
    }
    assert_eq!(one_plan(newest_policy), "SCAN policies");
    let key = countersign_pki::fingerprint_sha256(b"key");
    let allowed =
        one_plan(|connection| is_allowed(connection, "https://a.example", "a", &key, UnixTime(0)));
    assert!(
        allowed.contains("PRIMARY KEY (webhook=? AND name=? AND asked=?)"),
        "{allowed}"
    );
    let before = UnixTime(0);
    let forgotten = plan_of_write(Write::ForgetAllows { before });
    assert!(
        forgotten.contains("INDEX webhook_allows_until (until<?)"),
        "{forgotten}"
    );
}
