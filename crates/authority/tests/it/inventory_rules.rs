//! Rules of the inventory: what a machine's record and a build window must say, and what their use leaves behind.

use countersign_authority::RequestState;
use countersign_pki::{CheckedCsr, CsrLimits, oid};
use countersign_policy::{AddressKind, BuildWindow, Machine, MachineAddress};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;

use crate::site::{Site, kept, new_key, object, start, window};
use crate::world::{act, submission};

const HOUR: u64 = 3600;

/// An hour after the inventory was written.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_compared_with_its_record() {
    let site = Site::new("- {name: a, approve: {always: {}}}").await;
    let name = |number: usize| format!("web{number:02}.example.com");
    let at = |seconds: u64| Some(start().plus_seconds(seconds));
    type Change = fn(&mut Machine);
    type Ask = Box<dyn Fn(CsrBuilder) -> CsrBuilder>;
    let plain = |csr| csr;
    let nothing: Change = |_| {};
    let with_ids: Change = |machine| {
        machine.instance_id = "i-0ABC".to_owned();
        machine.uuid = "4c4c4544".to_owned();
    };
    let with_addresses: Change = |machine| {
        for (kind, address) in [
            (AddressKind::InternalIP, "192.0.2.7"),
            (AddressKind::ExternalIP, "2001:db8::1"),
            (AddressKind::InternalDNS, "inside.example.com"),
        ] {
            machine.addresses.push(MachineAddress {
                kind,
                address: address.to_owned(),
            });
        }
    };
    let cases: Vec<(&str, &str, Change, Ask, &str)> = vec![
        (
            "the name is enough",
            "",
            nothing,
            Box::new(plain),
            "machine",
        ),
        (
            "young enough",
            "window: 2h",
            nothing,
            Box::new(plain),
            "machine",
        ),
        (
            "to the second",
            "window: 1h",
            nothing,
            Box::new(plain),
            "machine",
        ),
        (
            "too old",
            "window: 59m",
            nothing,
            Box::new(plain),
            "machine_window",
        ),
        (
            "expected later than recorded",
            "window: 30m",
            |machine| machine.not_before = Some(start().plus_seconds(1800)),
            Box::new(plain),
            "machine",
        ),
        (
            "not expected yet",
            "",
            |machine| machine.not_before = Some(start().plus_seconds(HOUR + 1)),
            Box::new(plain),
            "machine_window",
        ),
        (
            "no longer expected",
            "",
            |machine| machine.not_after = Some(start().plus_seconds(HOUR)),
            Box::new(plain),
            "machine_window",
        ),
        (
            "expected for a second more",
            "",
            |machine| machine.not_after = Some(start().plus_seconds(HOUR + 1)),
            Box::new(plain),
            "machine",
        ),
        (
            "no identifiers shown",
            "",
            with_ids,
            Box::new(plain),
            "machine_id",
        ),
        (
            "one of two",
            "",
            with_ids,
            Box::new(|csr| instance(csr, "i-0abc")),
            "machine_id",
        ),
        (
            "another one's",
            "",
            with_ids,
            Box::new(|csr| both(csr, "i-0abd")),
            "machine_id",
        ),
        (
            "both, in other letters",
            "",
            with_ids,
            Box::new(|csr| both(csr, "i-0abc")),
            "machine",
        ),
        (
            "an identifier that nobody recorded",
            "",
            nothing,
            Box::new(|csr| instance(csr, "i-0abc")),
            "machine",
        ),
        (
            "an address that nobody recorded",
            "",
            nothing,
            Box::new(|csr| csr.ip([192, 0, 2, 7].into())),
            "machine_address",
        ),
        (
            "its addresses",
            "",
            with_addresses,
            Box::new(|csr| {
                csr.ip([192, 0, 2, 7].into())
                    .ip("2001:db8::1".parse().unwrap())
                    .dns("Inside.example.com")
            }),
            "machine",
        ),
        (
            "its addresses and another",
            "",
            with_addresses,
            Box::new(|csr| csr.ip([192, 0, 2, 7].into()).ip([192, 0, 2, 8].into())),
            "machine_address",
        ),
        (
            "another name",
            "",
            with_addresses,
            Box::new(|csr| csr.dns("outside.example.com")),
            "machine_address",
        ),
        (
            "a name of another kind",
            "",
            with_addresses,
            Box::new(|csr| csr.uri("https://inside.example.com")),
            "machine_address",
        ),
    ];
    for (number, (_, _, change, _, _)) in cases.iter().enumerate() {
        let mut machine = Machine::named(name(number), start());
        change(&mut machine);
        site.add_machine(machine).await;
    }
    site.world.clock.advance(i64::try_from(HOUR).unwrap());
    for (number, (case, options, _, ask, code)) in cases.iter().enumerate() {
        let (name, object) = (name(number), format!("object-{number}"));
        site.apply(
            1,
            &format!("- {{name: known, approve: {{machine: {{{options}}}}}}}"),
        );
        let der = ask(CsrBuilder::new(&name)).sign(keys::p256_a());
        let csr = CheckedCsr::check(&der, &CsrLimits::STANDARD).unwrap();
        let record = site.ask(kept(&object, csr)).await;
        let found = site.machine(&name).await;
        let step = &record.explanation.steps[0];
        assert_eq!(step.code.as_str(), *code, "{case}: {}", step.reason);
        if *code == "machine" {
            assert_eq!(record.state, RequestState::Issued, "{case}");
            assert_eq!(found.machine.enrolled, at(HOUR), "{case}");
            assert_eq!(found.request, Some(record.id), "{case}");
            // It was written with the approval, not after it.
            let told = site.told("request").await;
            let id = Some(record.id.to_string());
            let approval = told.iter().find(|(_, entry)| entry.request == id);
            assert_eq!(Some(found.version), approval.map(|(at, _)| *at), "{case}");
        } else {
            assert_eq!(record.state, RequestState::Pending, "{case}");
            assert_eq!(found.machine.enrolled, None, "{case}");
            assert!(!record.explanation.retry, "{case}");
        }
        let recorded = record.evidence.machine.unwrap().unwrap();
        assert_eq!(
            recorded.name, name,
            "{case}: what was compared is on record"
        );
    }
    let stranger = site.ask(submission("stranger.example.com")).await;
    assert_eq!(
        stranger.explanation.steps[0].code.as_str(),
        "machine_unknown"
    );
    assert_eq!(stranger.evidence.machine, Some(None));
}

/// By the rule, or by the record itself, a machine enrols once; else as often as its signer lets it.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_enrols_once_if_the_rule_or_its_record_says_so() {
    for (case, options, single_use, again) in [
        ("neither", "", false, RequestState::Issued),
        ("the rule", "once: true", false, RequestState::Pending),
        ("the record", "", true, RequestState::Pending),
        ("both", "once: true", true, RequestState::Pending),
    ] {
        let site = Site::new(&format!(
            "- {{name: a, approve: {{machine: {{{options}}}}}}}"
        ))
        .await;
        let machine = Machine::named("web01", start());
        site.add_machine(Machine {
            single_use,
            ..machine
        })
        .await;
        let first = site.ask(object("first", "web01", &new_key())).await;
        assert_eq!(first.state, RequestState::Issued, "{case}");
        site.world.clock.advance(60);
        let second = site.ask(object("second", "WEB01", &new_key())).await;
        assert_eq!(second.state, again, "{case}");
        if again == RequestState::Pending {
            let step = &second.explanation.steps[0];
            assert_eq!(step.code.as_str(), "machine_enrolled", "{case}");
        }
        let dotted = site.ask(object("third", "web01.", &new_key())).await;
        assert_eq!(
            dotted.explanation.steps[0].code.as_str(),
            "machine_unknown",
            "{case}"
        );
        // The first time stands.
        let found = site.machine("web01").await;
        assert_eq!(found.machine.enrolled, Some(start()), "{case}");
        assert_eq!(found.request, Some(first.id), "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_is_for_its_name_its_time_and_its_count() {
    let site = Site::new("- {name: build, approve: {window: {}}}").await;
    let now = start();
    for (name, change, code) in [
        ("open", window("", now), "window"),
        ("later", window("", now.plus_seconds(1)), "window_closed"),
        (
            "token",
            BuildWindow {
                require_token: true,
                ..window("", now)
            },
            "window_needs_token",
        ),
        ("none", window("", now), "window_closed"),
    ] {
        if name != "none" {
            let opened = BuildWindow {
                certname: name.to_owned(),
                ..change
            };
            let admin = act("").actor;
            site.authority()
                .inventory
                .open_window(opened, &admin)
                .await
                .unwrap();
        }
        let record = site.ask(submission(name)).await;
        let step = &record.explanation.steps[0];
        assert_eq!(step.code.as_str(), code, "{name}");
        let issued = code == "window";
        let state = [RequestState::Pending, RequestState::Issued][usize::from(issued)];
        assert_eq!(record.state, state, "{name}");
        if name != "none" {
            assert_eq!(site.issuances(name).await, u32::from(issued), "{name}");
        }
    }
    // A window that wants a token is not used, and nothing says that it was.
    let told = site.told("window.used").await;
    let [(revision, used)] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(used.certname.as_deref(), Some("open"));
    assert!(used.detail.contains("name alone"), "{}", used.detail);
    let approval = site.told("request").await;
    assert_eq!(*revision, approval[0].0, "it was counted with the approval");

    // Two more uses, each told, then none, and none after its time.
    site.open_window("often", 3).await;
    for number in 0..4 {
        let asked = object(&format!("object-{number}"), "often", &new_key());
        let record = site.ask(asked).await;
        let state = match number {
            3 => RequestState::Pending,
            _ => RequestState::Issued,
        };
        assert_eq!(record.state, state, "{number}");
    }
    assert_eq!(site.issuances("often").await, 3);
    assert_eq!(site.told("window.used").await.len(), 4);
    site.open_window("late", 1).await;
    site.world.clock.advance(i64::try_from(HOUR).unwrap());
    let late = site.ask(submission("late")).await;
    assert_eq!(late.explanation.steps[0].code.as_str(), "window_closed");
}

fn instance(csr: CsrBuilder, id: &str) -> CsrBuilder {
    csr.extension(&oid::registered_oid("pp_instance_id").unwrap(), id)
}

fn both(csr: CsrBuilder, id: &str) -> CsrBuilder {
    instance(csr, id).extension(&oid::registered_oid("pp_uuid").unwrap(), "4C4C4544")
}
