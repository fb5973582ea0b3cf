//! Machines and build windows: what administrators write, what is refused, and what the audit log says of it.

use countersign_authority::store::{Change, MachineFilter, Write};
use countersign_authority::{
    Actor, Authority, Imported, InventoryFault, OnExisting, Put, RequestId, Store, WindowFault,
};
use countersign_pki::UnixTime;
use countersign_policy::{BuildWindow, Machine};
use futures_util::future::join_all;

use crate::world::{self, START, World, act};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

fn admin() -> Actor {
    act("").actor
}

fn machine(name: &str) -> Machine {
    // The engine has a clock of its own, and does not believe what a record says of its past.
    Machine {
        enrolled: Some(UnixTime(1)),
        ..Machine::named(name, UnixTime(1))
    }
}

fn window(certname: &str) -> BuildWindow {
    BuildWindow {
        certname: certname.to_owned(),
        opens_at: UnixTime(START),
        closes_at: UnixTime(START).plus_seconds(HOUR),
        max_issuances: 1,
        issuances: 1,
        require_token: true,
    }
}

/// The last entries of the audit log that tell of machines or windows: action, subject, detail.
async fn told(authority: &Authority, last: usize) -> Vec<(String, String, String)> {
    let audit = authority
        .audit
        .after(Default::default(), 10_000)
        .await
        .unwrap();
    let entries = audit.into_iter().map(|(_, entry)| entry);
    let ours = entries.filter(|entry| {
        ["machine", "window"]
            .iter()
            .any(|kind| entry.subject.starts_with(kind))
    });
    let told: Vec<_> = ours
        .map(|entry| (entry.action.into_owned(), entry.subject, entry.detail))
        .collect();
    let from = told.len().saturating_sub(last);
    told.into_iter().skip(from).collect()
}

async fn names(authority: &Authority) -> Vec<String> {
    let filter = MachineFilter {
        limit: 10_000,
        ..MachineFilter::default()
    };
    let page = authority.inventory.machines(filter).await.unwrap();
    page.into_iter().map(|record| record.machine.name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_added_once_replaced_on_demand_and_removed() {
    let World {
        authority, clock, ..
    } = &World::new(false).await;
    let (added, put) = authority
        .inventory
        .add_machine(machine("Web01.example.com."), OnExisting::Refuse, &admin())
        .await
        .unwrap();
    assert_eq!(put, Put::Added);
    assert_eq!(
        added.machine,
        Machine::named("web01.example.com", UnixTime(START))
    );
    assert_eq!(
        authority
            .inventory
            .machine("web01.example.com")
            .await
            .unwrap(),
        Some(added)
    );
    let again = authority
        .inventory
        .add_machine(machine("web01.example.com"), OnExisting::Refuse, &admin())
        .await;
    assert!(matches!(again, Err(InventoryFault::Exists { .. })));

    clock.advance(60);
    let other = Machine {
        role: "web".to_owned(),
        ..machine("web01.example.com")
    };
    let (replaced, put) = authority
        .inventory
        .add_machine(other, OnExisting::Replace, &admin())
        .await
        .unwrap();
    assert_eq!(put, Put::Replaced);
    assert_eq!(replaced.machine.role, "web");
    assert_eq!(replaced.machine.created, UnixTime(START), "it is as old");
    assert_eq!(
        authority
            .inventory
            .machine("web01.example.com")
            .await
            .unwrap(),
        Some(replaced)
    );

    let removed = authority
        .inventory
        .remove_machine("WEB01.example.com", &admin())
        .await;
    removed.unwrap();
    assert_eq!(
        authority
            .inventory
            .machine("web01.example.com")
            .await
            .unwrap(),
        None
    );
    let gone = authority
        .inventory
        .remove_machine("web01.example.com", &admin())
        .await;
    assert!(matches!(gone, Err(InventoryFault::NotFound { .. })));

    let subject = || "machine/web01.example.com".to_owned();
    let expected = ["machine.added", "machine.replaced", "machine.removed"]
        .map(|action| (action.to_owned(), subject(), String::new()));
    assert_eq!(told(authority, 3).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_refused_leaves_nothing() {
    let World { authority, .. } = &World::new(false).await;
    let before = authority.revision();
    let bad = Machine {
        serial: "a\nb".to_owned(),
        ..machine("web02")
    };
    let refused = authority
        .inventory
        .add_machine(bad.clone(), OnExisting::Replace, &admin())
        .await;
    assert!(matches!(refused, Err(InventoryFault::Invalid { .. })));
    let batch = vec![machine("web01"), bad];
    for on_existing in [OnExisting::Refuse, OnExisting::Replace] {
        let refused = authority
            .inventory
            .import_machines(batch.clone(), on_existing, &admin())
            .await;
        assert!(matches!(refused, Err(InventoryFault::Invalid { name, .. }) if name == "web02"));
    }
    assert_eq!(authority.revision(), before);
    assert!(names(authority).await.is_empty());
}

/// Of many who add one machine at the same time, one has added it.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_added_by_one_of_many() {
    let World { authority, .. } = &World::new(false).await;
    let administrator = admin();
    let add = |_| {
        authority
            .inventory
            .add_machine(machine("web01"), OnExisting::Refuse, &administrator)
    };
    let outcomes = join_all((0..32).map(add)).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    let exists = |outcome: &&Result<_, _>| matches!(outcome, Err(InventoryFault::Exists { .. }));
    assert_eq!(outcomes.iter().filter(exists).count(), 31);
    assert_eq!(told(authority, 100).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_is_one_entry_of_the_audit_log_per_batch() {
    let World { authority, .. } = &World::new(false).await;
    let machines = |from: usize, to: usize| -> Vec<Machine> {
        (from..to)
            .map(|number| machine(&format!("host-{number:04}")))
            .collect()
    };
    let import = async |machines, on_existing| {
        authority
            .inventory
            .import_machines(machines, on_existing, &admin())
            .await
    };
    let imported = import(machines(0, 1200), OnExisting::Refuse).await.unwrap();
    assert_eq!((imported.added, imported.replaced), (1200, 0));
    assert_eq!(names(authority).await.len(), 1200);
    let entry = |detail: &str| {
        (
            "machine.imported".to_owned(),
            "machines".to_owned(),
            detail.to_owned(),
        )
    };
    assert_eq!(
        told(authority, 100).await,
        [
            entry("500 added, 0 replaced: host-0000 to host-0499"),
            entry("500 added, 0 replaced: host-0500 to host-0999"),
            entry("200 added, 0 replaced: host-1000 to host-1199"),
        ]
    );

    let existing = authority
        .inventory
        .existing_machines(machines(1198, 1203), &admin())
        .await
        .unwrap();
    assert_eq!(existing, ["host-1198", "host-1199"]);
    let before = authority.revision();
    let refused = import(machines(1199, 1203), OnExisting::Refuse).await;
    assert!(matches!(refused, Err(InventoryFault::Exists { name }) if name == "host-1199"));
    assert_eq!(authority.revision(), before);
    let imported = import(machines(1199, 1203), OnExisting::Replace).await;
    let expected = Imported {
        added: 3,
        replaced: 1,
    };
    assert_eq!(imported.unwrap(), expected);
    assert_eq!(names(authority).await.len(), 1203);
}

/// A synchronisation that writes every record again must not allow a machine to enrol a second time.
#[tokio::test(flavor = "multi_thread")]
async fn to_write_a_record_again_does_not_forget_its_enrolment() {
    let World { folder, clock, .. } = World::new(false).await;
    let store = world::store(folder.path());
    let request = RequestId::new(UnixTime(START), [7; 10]);
    let enrol = Write::EnrolMachine {
        name: "web01".to_owned(),
        request,
        at: UnixTime(START),
    };
    let change = Change {
        writes: vec![
            Write::PutMachine(Machine::named("web01", UnixTime(START))),
            enrol,
        ],
        ..Change::default()
    };
    store.commit(change).await.unwrap();
    drop(store);
    let World { authority, .. } = &World::on(folder, clock, false).await;
    let replaced = authority
        .inventory
        .add_machine(
            Machine::named("web01", UnixTime(1)),
            OnExisting::Replace,
            &admin(),
        )
        .await;
    let (record, _) = replaced.unwrap();
    assert_eq!(record.machine.enrolled, Some(UnixTime(START)));
    assert_eq!(record.request, Some(request));
    let imported = authority
        .inventory
        .import_machines(vec![machine("web01")], OnExisting::Replace, &admin())
        .await;
    assert_eq!(imported.unwrap().replaced, 1);
    let record = authority.inventory.machine("web01").await.unwrap().unwrap();
    assert_eq!(record.machine.enrolled, Some(UnixTime(START)));
    assert_eq!(record.request, Some(request));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_is_opened_replaced_and_closed() {
    let World { authority, .. } = &World::new(false).await;
    let (opened, put) = authority
        .inventory
        .open_window(window("Web01.example.com"), &admin())
        .await
        .unwrap();
    assert_eq!(put, Put::Added);
    assert_eq!(
        opened,
        BuildWindow {
            certname: "web01.example.com".to_owned(),
            issuances: 0,
            ..window("")
        }
    );
    assert_eq!(
        authority
            .inventory
            .window("web01.example.com")
            .await
            .unwrap(),
        Some(opened.clone())
    );
    let trusting = BuildWindow {
        require_token: false,
        max_issuances: 3,
        ..opened
    };
    let (_, put) = authority
        .inventory
        .open_window(trusting, &admin())
        .await
        .unwrap();
    assert_eq!(put, Put::Replaced);
    assert_eq!(
        authority.inventory.windows(None, 10).await.unwrap().len(),
        1
    );
    let closed = authority
        .inventory
        .close_window("web01.example.com", &admin())
        .await;
    closed.unwrap();
    assert!(
        authority
            .inventory
            .windows(None, 10)
            .await
            .unwrap()
            .is_empty()
    );
    let gone = authority
        .inventory
        .close_window("web01.example.com", &admin())
        .await;
    assert!(matches!(gone, Err(WindowFault::NotFound { .. })));

    let entry = |action: &str, detail: &str| {
        (
            action.to_owned(),
            "window/web01.example.com".to_owned(),
            detail.to_owned(),
        )
    };
    let times = "from 2027-01-15T08:00:00Z until 2027-01-15T09:00:00Z";
    assert_eq!(
        told(authority, 100).await,
        [
            entry(
                "window.opened",
                &format!("{times}, max_issuances 1, with a token")
            ),
            entry(
                "window.opened",
                &format!("{times}, max_issuances 3, without a token: the name alone is trusted")
            ),
            entry("window.closed", "0 of 3 certificates were issued"),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_makes_no_sense_is_refused() {
    let World { authority, .. } = &World::new(false).await;
    let now = UnixTime(START);
    for (window, why) in [
        (
            window("a b"),
            "a b cannot be used as a name: Subject hostname format is invalid",
        ),
        (
            BuildWindow {
                closes_at: now,
                ..window("a")
            },
            "closes_at (2027-01-15T08:00:00Z) must be later than opens_at (2027-01-15T08:00:00Z)",
        ),
        (
            BuildWindow {
                opens_at: now.minus_seconds(2),
                closes_at: now.minus_seconds(1),
                ..window("a")
            },
            "closes_at (2027-01-15T07:59:59Z) is in the past",
        ),
        (
            BuildWindow {
                closes_at: now.plus_seconds(30 * DAY + 1),
                ..window("a")
            },
            "a window is open for at most 30 days",
        ),
        (
            BuildWindow {
                max_issuances: 0,
                ..window("a")
            },
            "max_issuances must be from 1 to 1000",
        ),
        (
            BuildWindow {
                max_issuances: 1001,
                ..window("a")
            },
            "max_issuances must be from 1 to 1000",
        ),
    ] {
        let refused = authority.inventory.open_window(window, &admin()).await;
        assert_eq!(refused.unwrap_err().to_string(), why);
    }
    assert!(
        authority
            .inventory
            .windows(None, 10)
            .await
            .unwrap()
            .is_empty()
    );
    let longest = BuildWindow {
        closes_at: now.plus_seconds(30 * DAY),
        max_issuances: 1000,
        ..window("a")
    };
    authority
        .inventory
        .open_window(longest, &admin())
        .await
        .unwrap();
}

/// Windows are shown for a day after they closed; then they are forgotten, with one entry in the audit log.
#[tokio::test(flavor = "multi_thread")]
async fn closed_windows_are_forgotten_after_a_day() {
    let World {
        authority, clock, ..
    } = &World::new(false).await;
    for number in 0..600 {
        let window = window(&format!("host-{number}"));
        authority
            .inventory
            .open_window(window, &admin())
            .await
            .unwrap();
    }
    let long = BuildWindow {
        closes_at: UnixTime(START).plus_seconds(3 * DAY),
        ..window("long")
    };
    authority
        .inventory
        .open_window(long, &admin())
        .await
        .unwrap();
    clock.advance(i64::try_from(HOUR + DAY).unwrap());
    let collected = authority.requests.collect(&[]).await.unwrap();
    assert_eq!(collected.windows, 0, "to the second");
    clock.advance(1);
    let collected = authority.requests.collect(&[]).await.unwrap();
    assert_eq!(collected.windows, 600);
    let left = authority.inventory.windows(None, 10).await.unwrap();
    assert_eq!(left.len(), 1);
    let entry = |count: u32| {
        (
            "collect".to_owned(),
            "windows".to_owned(),
            format!("{count} build windows that closed before 2027-01-15T09:00:01Z"),
        )
    };
    assert_eq!(told(authority, 2).await, [entry(500), entry(100)]);
    assert_eq!(authority.requests.collect(&[]).await.unwrap().windows, 0);
}
