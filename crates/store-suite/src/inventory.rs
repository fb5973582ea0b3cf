//! The inventory: machines that are expected, and build windows.

use countersign_authority::store::{
    Change, CommitFault, MachineFilter, Precondition, Store, Write,
};
use countersign_authority::{MachineRecord, RequestId, Revision};
use countersign_pki::UnixTime;
use countersign_policy::{BuildWindow, Machine};

use super::sample::{insert, write};
use super::together::at_once;
use super::{Ground, Sample};

/// Everything of a record is kept, and everything of a plain one, too.
pub async fn a_machine_comes_back_field_by_field(ground: &dyn Ground) {
    let store = ground.open().await;
    for machine in [
        Sample::machine("web01.example.com"),
        plain("web02.example.com"),
    ] {
        let committed = write(&*store, vec![Write::PutMachine(machine.clone())]).await;
        let expected = MachineRecord {
            machine: machine.clone(),
            version: committed.revision,
            request: None,
        };
        assert_eq!(
            store.machine(&machine.name).await.unwrap(),
            Some(expected.clone())
        );
        let listed = store.machines(everything()).await.unwrap();
        assert_eq!(listed.last(), Some(&expected));
    }
    assert_eq!(store.machine("web03.example.com").await.unwrap(), None);
    drop(store);
    let store = ground.open().await;
    let kept = store.machine("web01.example.com").await.unwrap().unwrap();
    assert_eq!(kept.machine, Sample::machine("web01.example.com"));
    let gone = Write::DeleteMachine {
        name: "web01.example.com".to_owned(),
    };
    write(&*store, vec![gone]).await;
    assert_eq!(store.machine("web01.example.com").await.unwrap(), None);
    let listed = store.machines(everything()).await.unwrap();
    assert_eq!(names(&listed), ["web02.example.com"]);
}

/// A record that is written again says what is new, and stays as old and as used as it was.
pub async fn a_machine_written_again_keeps_its_age_and_its_enrolment(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let request = sample.request("web01");
    let enrol = Write::EnrolMachine {
        name: "web01".to_owned(),
        request: request.id,
        at: Sample::time(7),
    };
    write(&*store, vec![Write::PutMachine(plain("web01")), enrol]).await;
    let again = Machine {
        created: Sample::time(1000),
        ..Sample::machine("web01")
    };
    let committed = write(&*store, vec![Write::PutMachine(again.clone())]).await;
    let expected = MachineRecord {
        machine: Machine {
            created: plain("web01").created,
            enrolled: Some(Sample::time(7)),
            ..again.clone()
        },
        version: committed.revision,
        request: Some(request.id),
    };
    assert_eq!(store.machine("web01").await.unwrap(), Some(expected));
    let gone = Write::DeleteMachine {
        name: "web01".to_owned(),
    };
    write(&*store, vec![gone, Write::PutMachine(again.clone())]).await;
    let anew = store.machine("web01").await.unwrap().unwrap();
    assert_eq!((anew.machine, anew.request), (again, None));
}

/// Names differ neither by case nor by a dot at the end, wherever one is given.
pub async fn names_of_the_inventory_are_kept_in_one_form(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let (odd, even) = ("Web01.Example.COM.", "web01.example.com");
    let writes = vec![
        Write::PutMachine(plain(odd)),
        Write::PutWindow(Sample::window(odd)),
        Write::EnrolMachine {
            name: odd.to_owned(),
            request: sample.request("a").id,
            at: Sample::time(1),
        },
        Write::UseWindow {
            certname: odd.to_owned(),
        },
    ];
    let committed = write(&*store, writes).await;
    for name in [odd, even] {
        let record = store.machine(name).await.unwrap().unwrap();
        assert_eq!(record.machine.name, even);
        assert_eq!(record.machine.enrolled, Some(Sample::time(1)));
        let window = store.window(name).await.unwrap().unwrap();
        assert_eq!((window.certname.as_str(), window.issuances), (even, 1));
        let name = name.to_owned();
        for precondition in [
            Precondition::MachineExists { name: name.clone() },
            Precondition::MachineAt {
                name: name.clone(),
                version: Some(committed.revision),
            },
            Precondition::WindowOpen {
                certname: name,
                at: Sample::time(0),
                with_token: false,
            },
        ] {
            assert!(
                holds(&*store, precondition.clone()).await,
                "{precondition:?}"
            );
        }
    }
    let filter = MachineFilter {
        after: Some(odd.to_owned()),
        ..everything()
    };
    assert!(store.machines(filter).await.unwrap().is_empty());
    let after = store.windows(Some(odd.to_owned()), 10).await.unwrap();
    assert!(after.is_empty());
    let gone = vec![
        Write::DeleteMachine {
            name: odd.to_owned(),
        },
        Write::CloseWindow {
            certname: odd.to_owned(),
        },
    ];
    write(&*store, gone).await;
    assert_eq!(store.machine(even).await.unwrap(), None);
    assert_eq!(store.window(even).await.unwrap(), None);
}

/// A second enrolment changes nothing of the record, and one of a machine that is not there is a conflict.
pub async fn the_first_enrolment_of_a_machine_stands(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    write(&*store, vec![Write::PutMachine(plain("web01"))]).await;
    let [first, second] = [sample.request("a").id, sample.request("b").id];
    let enrol = |name: &str, request: RequestId, at| Write::EnrolMachine {
        name: name.to_owned(),
        request,
        at: Sample::time(at),
    };
    let committed = write(&*store, vec![enrol("web01", first, 1)]).await;
    write(&*store, vec![enrol("web01", second, 2)]).await;
    let record = store.machine("web01").await.unwrap().unwrap();
    assert_eq!(record.machine.enrolled, Some(Sample::time(1)));
    assert_eq!(record.request, Some(first));
    assert_eq!(record.version, committed.revision);
    let change = Change {
        writes: vec![enrol("nobody", first, 1)],
        ..Change::default()
    };
    let missing = Precondition::MachineExists {
        name: "nobody".to_owned(),
    };
    let refused = store.commit(change).await;
    assert!(
        matches!(&refused, Err(CommitFault::Conflict { precondition }) if *precondition == missing),
        "{refused:?}"
    );
}

/// Every filter shows what it names, by name, in pages of any size.
pub async fn pages_of_machines_are_ordered_and_complete(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let request = sample.request("a").id;
    let mut all = Vec::new();
    for number in 0..40_usize {
        let machine = Machine {
            role: ["web", "db", ""][number % 3].to_owned(),
            provider: ["here", "there"][number % 2].to_owned(),
            ..plain(&format!("host-{:02}", 97 * number % 40))
        };
        let mut writes = vec![Write::PutMachine(machine.clone())];
        if number % 5 == 0 {
            writes.push(Write::EnrolMachine {
                name: machine.name.clone(),
                request,
                at: Sample::time(1),
            });
        }
        write(&*store, writes).await;
        all.push((machine, number % 5 == 0));
    }
    all.sort_by(|(one, _), (next, _)| one.name.cmp(&next.name));
    let text = |word: &str| Some(word.to_owned());
    for role in [None, text("web"), text("")] {
        for provider in [None, text("here"), text("nowhere")] {
            for enrolled in [None, Some(true), Some(false)] {
                let expected: Vec<&str> = all
                    .iter()
                    .filter(|(machine, has_enrolled)| {
                        role.as_ref().is_none_or(|role| *role == machine.role)
                            && provider.as_ref().is_none_or(|one| *one == machine.provider)
                            && enrolled.is_none_or(|wanted| wanted == *has_enrolled)
                    })
                    .map(|(machine, _)| machine.name.as_str())
                    .collect();
                for limit in [1, 7, 100] {
                    let filter = MachineFilter {
                        after: None,
                        limit,
                        role: role.clone(),
                        provider: provider.clone(),
                        enrolled,
                    };
                    let found = machine_pages(&*store, filter.clone()).await;
                    assert_eq!(found, expected, "{filter:?}");
                }
            }
        }
    }
}

/// What a change relies on is looked at again when it is committed.
pub async fn what_is_known_of_a_machine_is_checked(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let name = || "web01".to_owned();
    let at = |version| Precondition::MachineAt {
        name: name(),
        version,
    };
    let exists = || Precondition::MachineExists { name: name() };
    let unused = || Precondition::MachineUnused { name: name() };
    let table = async |expected: [(Precondition, bool); 4]| {
        for (precondition, expected) in expected {
            let held = holds(&*store, precondition.clone()).await;
            assert_eq!(held, expected, "{precondition:?}");
        }
    };
    table([
        (at(None), true),
        (at(Some(Revision(1))), false),
        (exists(), false),
        (unused(), false),
    ])
    .await;
    let put = write(&*store, vec![Write::PutMachine(plain("web01"))]).await;
    table([
        (at(None), false),
        (at(Some(put.revision)), true),
        (exists(), true),
        (unused(), true),
    ])
    .await;
    let enrol = Write::EnrolMachine {
        name: name(),
        request: sample.request("a").id,
        at: Sample::time(1),
    };
    let enrolled = write(&*store, vec![enrol]).await;
    table([
        (at(Some(put.revision)), false),
        (at(Some(enrolled.revision)), true),
        (exists(), true),
        (unused(), false),
    ])
    .await;
}

/// Of many enrolments that rely on a machine's being unused, one is committed.
pub async fn one_of_many_enrols_a_machine_that_enrols_once(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    write(&*store, vec![Write::PutMachine(plain("web01"))]).await;
    let unused = Precondition::MachineUnused {
        name: "web01".to_owned(),
    };
    let outcomes = at_once(&store, |number| {
        let request = sample.request(&number.to_string());
        Change {
            preconditions: vec![unused.clone()],
            writes: vec![
                Write::EnrolMachine {
                    name: "web01".to_owned(),
                    request: request.id,
                    at: request.created,
                },
                Write::InsertRequest(request),
            ],
            audit: vec![],
        }
    })
    .await;
    one_won(&outcomes, &unused);
    let record = store.machine("web01").await.unwrap().unwrap();
    let winner = store.request(record.request.unwrap()).await.unwrap();
    assert_eq!(record.machine.enrolled, Some(winner.unwrap().created));
}

/// Everything of a window is kept; another one of the name takes its place; windows are listed by name.
pub async fn a_window_comes_back_field_by_field(ground: &dyn Ground) {
    let store = ground.open().await;
    let other = BuildWindow {
        opens_at: Sample::time(50),
        closes_at: Sample::time(60),
        max_issuances: u32::MAX,
        issuances: 3,
        require_token: false,
        ..Sample::window("b.example.com")
    };
    let windows = [
        Sample::window("a.example.com"),
        other,
        Sample::window("c.example.com"),
    ];
    for window in windows.iter().rev() {
        write(&*store, vec![Write::PutWindow(window.clone())]).await;
        assert_eq!(
            store.window(&window.certname).await.unwrap().as_ref(),
            Some(window)
        );
    }
    for limit in [1, 2, 100] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = store.windows(after.clone(), limit).await.unwrap();
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            after = Some(last.certname.clone());
            found.extend(page);
        }
        assert_eq!(found, windows);
    }
    let anew = Sample::window("b.example.com");
    write(&*store, vec![Write::PutWindow(anew.clone())]).await;
    drop(store);
    let store = ground.open().await;
    assert_eq!(store.window("b.example.com").await.unwrap(), Some(anew));
    let close = || Write::CloseWindow {
        certname: "b.example.com".to_owned(),
    };
    write(&*store, vec![close()]).await;
    assert_eq!(store.window("b.example.com").await.unwrap(), None);
    write(&*store, vec![close()]).await;
}

/// A window is open from its first second up to its last, as long as certificates are left.
pub async fn a_window_is_open_within_its_time_and_its_count(ground: &dyn Ground) {
    let store = ground.open().await;
    let open = async |at: UnixTime| {
        let certname = "a".to_owned();
        holds(
            &*store,
            Precondition::WindowOpen {
                certname,
                at,
                with_token: false,
            },
        )
        .await
    };
    assert!(!open(Sample::time(0)).await, "there is none");
    let window = BuildWindow {
        max_issuances: 2,
        ..Sample::window("a")
    };
    write(&*store, vec![Write::PutWindow(window.clone())]).await;
    let second = |time: UnixTime| time.plus_seconds(1);
    for (at, expected) in [
        (window.opens_at.minus_seconds(1), false),
        (window.opens_at, true),
        (window.closes_at.minus_seconds(1), true),
        (window.closes_at, false),
        (second(window.closes_at), false),
    ] {
        assert_eq!(open(at).await, expected, "{at}");
    }
    let wants_a_token = BuildWindow {
        require_token: true,
        ..window.clone()
    };
    write(&*store, vec![Write::PutWindow(wants_a_token)]).await;
    assert!(!open(window.opens_at).await, "it wants a token by now");
    write(&*store, vec![Write::PutWindow(window.clone())]).await;
    let use_it = || Write::UseWindow {
        certname: "a".to_owned(),
    };
    write(&*store, vec![use_it()]).await;
    assert!(open(window.opens_at).await);
    write(&*store, vec![use_it()]).await;
    assert!(!open(window.opens_at).await, "used up");
    let change = Change {
        writes: vec![use_it()],
        ..Change::default()
    };
    assert!(store.commit(change).await.is_err());
    let found = store.window("a").await.unwrap().unwrap();
    assert_eq!(found.issuances, 2);
}

/// Of many who want the last certificate of a window, one gets it.
pub async fn one_of_many_takes_the_last_issuance(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    let last = BuildWindow {
        max_issuances: 3,
        issuances: 2,
        ..Sample::window("a")
    };
    write(&*store, vec![Write::PutWindow(last.clone())]).await;
    let open = Precondition::WindowOpen {
        certname: "a".to_owned(),
        at: last.opens_at,
        with_token: false,
    };
    let outcomes = at_once(&store, |number| Change {
        preconditions: vec![open.clone()],
        writes: vec![
            Write::UseWindow {
                certname: "a".to_owned(),
            },
            Write::InsertRequest(sample.request(&number.to_string())),
        ],
        audit: vec![],
    })
    .await;
    one_won(&outcomes, &open);
    assert_eq!(store.window("a").await.unwrap().unwrap().issuances, 3);
}

/// Windows whose time is over are found by their end, and one that was opened again meanwhile is not removed for it.
pub async fn closed_windows_are_found_by_their_end(ground: &dyn Ground) {
    let (store, sample) = (ground.open().await, Sample::default());
    insert(&*store, &sample.request("bystander")).await;
    let ending = |certname: &str, end| BuildWindow {
        closes_at: Sample::time(end),
        ..Sample::window(certname)
    };
    for window in [
        ending("c", 10),
        ending("a", 20),
        ending("b", 20),
        ending("d", 30),
    ] {
        write(&*store, vec![Write::PutWindow(window)]).await;
    }
    for (before, limit, expected) in [
        (10, 10, &[] as &[&str]),
        (11, 10, &["c"]),
        (30, 10, &["c", "a", "b"]),
        (30, 2, &["c", "a"]),
        (99, 10, &["c", "a", "b", "d"]),
    ] {
        let found = store.windows_closed(Sample::time(before), limit).await;
        let found = found.unwrap();
        let names: Vec<&str> = found.iter().map(|one| one.certname.as_str()).collect();
        assert_eq!(names, expected, "before {before}, at most {limit}");
    }
    for (certname, before, expected) in [("a", 20, false), ("a", 21, true), ("nobody", 21, false)] {
        let closed = Precondition::WindowClosed {
            certname: certname.to_owned(),
            before: Sample::time(before),
        };
        assert_eq!(
            holds(&*store, closed).await,
            expected,
            "{certname} {before}"
        );
    }
}

fn plain(name: &str) -> Machine {
    Machine::named(name, Sample::time(0))
}

fn everything() -> MachineFilter {
    MachineFilter {
        limit: 100,
        ..MachineFilter::default()
    }
}

fn names(records: &[MachineRecord]) -> Vec<&str> {
    let names = records.iter().map(|record| record.machine.name.as_str());
    names.collect()
}

async fn machine_pages(store: &dyn Store, mut filter: MachineFilter) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        let page = store.machines(filter.clone()).await.unwrap();
        assert!(page.len() <= filter.limit);
        let Some(last) = page.last() else {
            return found;
        };
        filter.after = Some(last.machine.name.clone());
        found.extend(names(&page).into_iter().map(str::to_owned));
    }
}

/// Whether a precondition holds now: a change that writes nothing is committed or is in conflict with it.
pub(super) async fn holds(store: &dyn Store, precondition: Precondition) -> bool {
    let change = Change {
        preconditions: vec![precondition.clone()],
        ..Change::default()
    };
    match store.commit(change).await {
        Ok(_) => true,
        Err(CommitFault::Conflict { precondition: told }) => {
            assert_eq!(told, precondition);
            false
        }
        Err(other) => panic!("{other}"),
    }
}

pub(super) fn one_won<T>(outcomes: &[Result<T, CommitFault>], lost_to: &Precondition) {
    let won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(won, 1);
    let told = outcomes.iter().filter(
        |outcome| matches!(outcome, Err(CommitFault::Conflict { precondition }) if precondition == lost_to),
    );
    assert_eq!(told.count(), outcomes.len() - 1);
}
