//! Invariants 1 and 6 for every kind of rule: what is signed rests on a decision that is on record, and evidence that is
//! broken in any way approves nothing.

use countersign_authority::{RequestState, Submission};
use countersign_policy::{Deciding, Effect, Machine};
use countersign_store_suite::tamper;

use crate::site::{
    DECIDER, Site, agent, allow, deny, new_key, object, pend, silence, start, webhook_rule,
};
use crate::world::issuer_id;

/// A rule of each kind that speaks for `web01`, with what it needs in place.
fn approving() -> Vec<(&'static str, String)> {
    let rule = |kind: &str| format!("- {{name: a, approve: {{{kind}}}}}");
    vec![
        ("always", rule("always: {}")),
        ("cel", rule("cel: 'request.commonName == \"web01\"'")),
        ("allowlist", rule("allowlist: {names: [web01]}")),
        ("allowlist", rule("allowlist: {file: list.conf}")),
        ("executable", rule("executable: {path: FOLDER/program}")),
        ("webhook", rule(&format!("webhook: {{url: '{DECIDER}'}}"))),
        (
            "webhook",
            rule(&format!("webhook: {{url: '{DECIDER}', mode: status}}")),
        ),
        ("machine", rule("machine: {once: true, window: 2h}")),
        ("window", rule("window: {}")),
        ("cel+machine", rule("machine: {}, cel: 'machine != null'")),
        ("cel", rule("cel: 'ledger.certificate == null'")),
    ]
}

async fn prepared(rules: &str) -> Site {
    let site = Site::new(rules).await;
    site.write("list.conf", "web01\n", 0o644);
    site.program("program", "exit 0");
    site.deciders.say(allow(None));
    site.add_machine(Machine::named("web01", start())).await;
    site.open_window("web01", 1).await;
    site
}

fn at_each_door() -> [(&'static str, Submission); 2] {
    [
        ("forgetting", agent("web01", &new_key())),
        ("keeping", object("object", "web01", &new_key())),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_certificate_without_a_decision_by_a_rule_of_any_kind() {
    for (kind, rules) in approving() {
        for (door, asked) in at_each_door() {
            let site = prepared(&rules).await;
            let record = site.ask(asked).await;
            assert_eq!(record.state, RequestState::Issued, "{door} {rules}");
            let issuer = issuer_id();
            let entry = site.authority().ledger.newest(&issuer, "web01");
            let entry = entry.await.unwrap().unwrap();
            assert_eq!(entry.request, record.id, "{door} {rules}");
            assert_eq!(entry.explanation, record.explanation, "{door} {rules}");
            let explanation = &entry.explanation;
            assert_eq!(explanation.effect, Effect::Approve, "{door} {rules}");
            let by = Deciding::Rule {
                name: "a".to_owned(),
                policy: "site".to_owned(),
            };
            assert_eq!(explanation.by, Some(by), "{door} {rules}");
            assert_eq!(explanation.steps[0].kind, kind, "{door} {rules}");
            assert!(!explanation.code.is_none(), "{door} {rules}");
            // The audit log names it before it tells of the certificate.
            let [(decided, told)] = &site.told("request").await[..] else {
                panic!("{door} {rules}");
            };
            let [(issued, _)] = &site.told("issue").await[..] else {
                panic!("{door} {rules}");
            };
            assert!(decided <= issued, "{door} {rules}");
            let log = site
                .authority()
                .audit
                .after(Default::default(), 10_000)
                .await;
            let log = log.unwrap();
            let place = |action| log.iter().position(|(_, entry)| entry.action == action);
            assert!(place("request") < place("issue"), "{door} {rules}");
            assert_eq!(told.verdict, Some(Effect::Approve), "{door} {rules}");
            assert_eq!(told.reason, explanation.code.as_str(), "{door} {rules}");
            assert_eq!(told.generation, Some(1), "{door} {rules}");
        }
    }
}

/// What is wrong with the evidence of a rule.
type Damage = fn(&Site);

/// Even where a rule further down approves everything.
#[tokio::test(flavor = "multi_thread")]
async fn deny_by_default_where_evidence_is_broken() {
    let rest = "\n- {name: rest, approve: {always: {}}}";
    let cases: Vec<(&str, String, Damage, &str)> = vec![
        (
            "no list",
            "- {name: a, approve: {allowlist: {file: list.conf}}}".to_owned(),
            |site| std::fs::remove_file(site.path("list.conf")).unwrap(),
            "allowlist_unreadable",
        ),
        (
            "a list of denials that cannot be read",
            "- {name: a, deny: {allowlist: {file: list.conf}}}".to_owned(),
            |site| std::fs::remove_file(site.path("list.conf")).unwrap(),
            "allowlist_unreadable",
        ),
        (
            "a list that others may write",
            "- {name: a, approve: {allowlist: {file: list.conf}}}".to_owned(),
            |site| site.write("list.conf", "web01\n", 0o666),
            "allowlist_unreadable",
        ),
        (
            "a list that is no text",
            "- {name: a, approve: {allowlist: {file: list.conf}}}".to_owned(),
            |site| std::fs::write(site.path("list.conf"), [b'*', b'\n', 0xff, 0xfe]).unwrap(),
            "allowlist_unreadable",
        ),
        (
            "a list that is a folder",
            "- {name: a, approve: {allowlist: {file: FOLDER}}}".to_owned(),
            |_| {},
            "allowlist_unreadable",
        ),
        (
            "a decider that is silent",
            webhook_rule(""),
            |site| site.deciders.say(silence()),
            "webhook_error",
        ),
        (
            "an expression that fails",
            "- {name: a, deny: {cel: 'request.extensions[\"pp_role\"] == \"x\"'}}".to_owned(),
            |_| {},
            "expression_error",
        ),
    ];
    for (case, rules, damage, code) in cases {
        for (door, asked) in at_each_door() {
            let site = prepared(&format!("{rules}{rest}")).await;
            damage(&site);
            approves_nothing(&site, asked, code, &format!("{case}, {door}")).await;
        }
    }
}

/// A program that cannot say yes has said no, and the rules below it are asked: here they say nothing.
#[tokio::test(flavor = "multi_thread")]
async fn deny_by_default_where_a_program_is_broken() {
    let cases: [(&str, Damage); 6] = [
        ("missing", |site| {
            std::fs::remove_file(site.path("program")).unwrap();
        }),
        ("not executable", |site| {
            site.write("program", "#!/bin/sh\nexit 0\n", 0o644);
        }),
        ("others may write it", |site| {
            site.write("program", "#!/bin/sh\nexit 0\n", 0o777);
        }),
        ("no interpreter", |site| {
            site.write("program", "#!/nonexistent\n", 0o755);
        }),
        ("dies", |site| site.program("program", "kill -9 $$")),
        ("fails", |site| site.program("program", "exit 255")),
    ];
    for (case, damage) in cases {
        for (door, asked) in at_each_door() {
            let site = prepared("- {name: a, approve: {executable: {path: FOLDER/program}}}").await;
            damage(&site);
            let record = site.ask(asked).await;
            assert_eq!(record.state, RequestState::Pending, "{case}, {door}");
            let step = &record.explanation.steps[0];
            assert_eq!(step.code.as_str(), "executable_declined", "{case}, {door}");
            assert_eq!(site.certificates("web01").await, 0, "{case}, {door}");
        }
    }
}

/// What the store cannot tell is not taken for "there is none", be it in a rule that approves or in one that denies.
#[tokio::test(flavor = "multi_thread")]
async fn deny_by_default_where_the_store_cannot_tell() {
    let machine = "UPDATE machines SET addresses = 'nonsense'";
    let window = "UPDATE windows SET max_issuances = -1";
    let ledger = "UPDATE certificates SET explanation = 'nonsense'";
    for (rules, damage) in [
        ("- {name: a, approve: {machine: {}}}", machine),
        ("- {name: a, deny: {cel: 'machine != null'}}", machine),
        (
            "- {name: a, when: 'machine == null', approve: {always: {}}}",
            machine,
        ),
        ("- {name: a, approve: {window: {}}}", window),
        ("- {name: a, deny: {window: {}}}", window),
        (
            "- {name: a, approve: {cel: 'ledger.revoked == null'}}",
            ledger,
        ),
        (
            "- {name: a, deny: {cel: 'ledger.certificate != null'}}",
            ledger,
        ),
    ] {
        // The signer of the door that forgets would not give the name a second certificate.
        let doors = if damage == ledger { 1 } else { 0 };
        for (door, asked) in at_each_door().into_iter().skip(doors) {
            let always = "- {name: rest, approve: {always: {}}}";
            let site = prepared(always).await;
            if damage == ledger {
                let first = site.ask(object("first", "web01", &new_key())).await;
                assert_eq!(first.state, RequestState::Issued);
            }
            let before = site.certificates("web01").await;
            let Site { world, deciders } = site;
            let crate::world::World {
                folder,
                clock,
                authority,
            } = world;
            drop(authority);
            let database = folder.path().join("countersign.db");
            assert!(tamper(&database, damage) > 0, "{damage}");
            let world = crate::world::World::on(folder, clock, false).await;
            let site = Site { world, deciders };
            site.apply(1, &format!("{rules}\n{always}"));
            let record = site.ask(asked).await;
            let case = format!("{rules}, {door}");
            assert_eq!(
                record.explanation.code.as_str(),
                "store_unavailable",
                "{case}"
            );
            assert_eq!(record.explanation.effect, Effect::Pending, "{case}");
            assert!(record.certificate.is_none(), "{case}");
            assert!(record.explanation.retry, "{case}");
            let state = if door == "keeping" {
                RequestState::Pending
            } else {
                RequestState::Undecided
            };
            assert_eq!(record.state, state, "{case}");
            if damage != ledger {
                assert_eq!(site.certificates("web01").await, before, "{case}");
            }
        }
    }
}

/// Several kinds under one effect: one that is broken or says no is enough, whatever the others say.
#[tokio::test(flavor = "multi_thread")]
async fn deny_by_default_where_one_of_several_kinds_is_not_there() {
    let rules = format!(
        "- {{name: a, approve: {{allowlist: {{file: list.conf}}, machine: {{}}, window: {{}}, \
         executable: {{path: FOLDER/program}}, webhook: {{url: '{DECIDER}'}}}}}}"
    );
    let cases: Vec<(&str, Damage, RequestState)> = vec![
        ("nothing", |_| {}, RequestState::Issued),
        (
            "the list",
            |site| std::fs::remove_file(site.path("list.conf")).unwrap(),
            RequestState::Undecided,
        ),
        (
            "the name on the list",
            |site| site.write("list.conf", "web02\n", 0o644),
            RequestState::Pending,
        ),
        (
            "the program",
            |site| std::fs::remove_file(site.path("program")).unwrap(),
            RequestState::Pending,
        ),
        (
            "the decider",
            |site| site.deciders.say(silence()),
            RequestState::Undecided,
        ),
        (
            "the decider's will",
            |site| site.deciders.say(pend()),
            RequestState::Pending,
        ),
        (
            "the decider's grace",
            |site| site.deciders.say(deny()),
            RequestState::Denied,
        ),
    ];
    for (case, damage, state) in cases {
        let site = prepared(&rules).await;
        damage(&site);
        let record = site.ask(agent("web01", &new_key())).await;
        assert_eq!(record.state, state, "{case}: {:?}", record.explanation);
        let issued = state == RequestState::Issued;
        assert_eq!(
            site.certificates("web01").await,
            usize::from(issued),
            "{case}"
        );
        // What the others would have used is still there.
        assert_eq!(site.issuances("web01").await, u32::from(issued), "{case}");
        let enrolled = site.machine("web01").await.machine.enrolled;
        assert_eq!(enrolled.is_some(), issued, "{case}");
    }
}

async fn approves_nothing(site: &Site, asked: Submission, code: &str, case: &str) {
    let keeps = asked.door.retained;
    let record = site.ask(asked).await;
    let state = match keeps {
        true => RequestState::Pending,
        false => RequestState::Undecided,
    };
    assert_eq!(record.state, state, "{case}: {:?}", record.explanation);
    assert_eq!(record.explanation.code.as_str(), code, "{case}");
    assert_eq!(record.explanation.effect, Effect::Pending, "{case}");
    assert_eq!(record.explanation.by, None, "{case}");
    assert_eq!(site.certificates("web01").await, 0, "{case}");
    assert_eq!(site.authority().recover().await.unwrap(), 0, "{case}");
    assert_eq!(
        site.authority()
            .requests
            .reconsider_waiting()
            .await
            .unwrap(),
        0,
        "{case}"
    );
    assert_eq!(site.certificates("web01").await, 0, "{case}");
}
