//! Evidence that is good for so many certificates gives no more, whoever asks at the same time, by whatever key and door.

use countersign_authority::store::Past;
use countersign_authority::{Authority, RequestState, Submission};
use countersign_policy::Machine;
use futures_util::future::{BoxFuture, join_all};

use crate::rules::is_requested;
use crate::site::{DECIDER, KEEPING, Site, agent, allow, new_key, object, start};
use crate::world::act;

const CALLERS: usize = 32;

/// Half at the door that forgets, for a signer of one certificate per name; half at the one that keeps, for another.
fn at_both_doors(name: &str) -> Vec<Submission> {
    (0..CALLERS)
        .map(|number| match number % 2 {
            0 => agent(name, &new_key()),
            _ => object(&format!("{name}-{number}"), name, &new_key()),
        })
        .collect()
}

/// Every one on a task of its own; what came of it, faults left out.
async fn at_once(site: &Site, asked: Vec<Submission>) -> Vec<(String, RequestState)> {
    let tasks = asked.into_iter().map(|submission| {
        let authority = site.authority().clone();
        tokio::spawn(async move { authority.requests.submit(submission).await })
    });
    let done = join_all(tasks).await.into_iter();
    done.filter_map(|submitted| submitted.unwrap().ok())
        .map(|submitted| (submitted.id.to_string(), submitted.state))
        .collect()
}

fn issued(outcomes: &[(String, RequestState)]) -> Vec<&str> {
    let issued = outcomes.iter();
    let issued = issued.filter(|(_, state)| *state == RequestState::Issued);
    issued.map(|(id, _)| id.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_enrols_once_gets_one_certificate() {
    for (rules, single_use) in [
        ("- {name: known, approve: {machine: {once: true}}}", false),
        ("- {name: known, approve: {machine: {}}}", true),
    ] {
        let site = Site::new(rules).await;
        for round in 0..4 {
            let name = format!("web0{round}");
            let machine = Machine::named(&name, start());
            site.add_machine(Machine {
                single_use,
                ..machine
            })
            .await;
            let outcomes = at_once(&site, at_both_doors(&name)).await;
            let issued = issued(&outcomes);
            assert_eq!(issued.len(), 1, "{outcomes:?}");
            assert_eq!(site.certificates(&name).await, 1);
            let record = site.machine(&name).await;
            let by = record.request.map(|id| id.to_string());
            assert_eq!(by.as_deref(), issued.first().copied());
            // Everybody at the door that keeps has an answer: the others wait for a person.
            let waiting = outcomes.iter();
            let waiting = waiting.filter(|(_, state)| *state == RequestState::Pending);
            assert!(waiting.count() >= CALLERS / 2 - 1, "{outcomes:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_gives_as_many_certificates_as_it_was_opened_for() {
    let site = Site::new("- {name: build, approve: {window: {}}}").await;
    let mut used = 0;
    for max in [1_u32, 3, 7] {
        let name = format!("web0{max}");
        site.open_window(&name, max).await;
        let asked = (0..CALLERS).map(|number| {
            let object_name = format!("{name}-{number}");
            object(&object_name, &name, &new_key())
        });
        let outcomes = at_once(&site, asked.collect()).await;
        let count = usize::try_from(max).unwrap();
        assert_eq!(outcomes.len(), CALLERS, "nobody is left without an answer");
        assert_eq!(issued(&outcomes).len(), count, "{outcomes:?}");
        assert_eq!(site.certificates(&name).await, count);
        assert_eq!(site.issuances(&name).await, max);
        used += count;
        assert_eq!(site.told("window.used").await.len(), used);
    }
}

/// Under one rule, a machine and a window are used together or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_rule_uses_is_used_together() {
    let site = Site::new("- {name: both, approve: {machine: {once: true}, window: {}}}").await;
    site.add_machine(Machine::named("web01", start())).await;
    site.open_window("web01", 5).await;
    let outcomes = at_once(&site, at_both_doors("web01")).await;
    assert_eq!(issued(&outcomes).len(), 1, "{outcomes:?}");
    assert_eq!(site.issuances("web01").await, 1);
    assert_eq!(site.told("window.used").await.len(), 1);
}

/// The same key that asks many times at once, for a rule of a document, has one request and one certificate.
#[tokio::test(flavor = "multi_thread")]
async fn one_key_that_asks_many_times_has_one_certificate() {
    let site = Site::new("- {name: known, approve: {machine: {once: true}}}").await;
    let key = new_key();
    let waits = site.ask(agent("web01", &key)).await;
    assert_eq!(waits.state, RequestState::Pending);
    site.add_machine(Machine::named("web01", start())).await;
    let asked = (0..CALLERS).map(|_| agent("web01", &key));
    let outcomes = at_once(&site, asked.collect()).await;
    assert_eq!(issued(&outcomes), [waits.id.to_string()]);
    assert_eq!(site.certificates("web01").await, 1);
}

/// What was there when the rule looked and is gone when the approval is written approves nothing; who was asked meanwhile
/// is not asked again.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_withdrawn_meanwhile_approves_nothing() {
    type Withdrawal = fn(Authority) -> BoxFuture<'static, ()>;
    let decider = format!("webhook: {{url: '{DECIDER}'}}");
    let remove: Withdrawal = |authority| {
        Box::pin(async move {
            let admin = act("").actor;
            authority
                .inventory
                .remove_machine("web01", &admin)
                .await
                .unwrap();
        })
    };
    let close: Withdrawal = |authority| {
        Box::pin(async move {
            let admin = act("").actor;
            authority
                .inventory
                .close_window("web01", &admin)
                .await
                .unwrap();
        })
    };
    let use_up: Withdrawal = |authority| {
        Box::pin(async move {
            let other = object("other", "web01", &new_key());
            let state = authority.requests.submit(other).await.unwrap().state;
            assert_eq!(state, RequestState::Issued);
        })
    };
    for (kind, withdraw, code, certificates) in [
        ("machine: {}", remove, "machine_unknown", 0),
        ("machine: {once: true}", remove, "machine_unknown", 0),
        ("machine: {once: true}", use_up, "machine_enrolled", 1),
        ("window: {}", close, "window_closed", 0),
        ("window: {}", use_up, "window_closed", 1),
    ] {
        for waits_first in [false, true] {
            let rules = format!("- {{name: a, approve: {{{kind}, {decider}}}}}");
            let site = Site::new(&rules).await;
            site.add_machine(Machine::named("web01", start())).await;
            site.open_window("web01", 1).await;
            let key = new_key();
            if waits_first {
                let waits = site.ask(object("object", "web01", &key)).await;
                assert_eq!(waits.state, RequestState::Pending, "{kind}");
            }
            site.deciders.say(allow(None));
            let authority = site.authority().clone();
            site.deciders.meanwhile(move || withdraw(authority));
            let asked = object("object", "web01", &key);
            if waits_first {
                let fault = site.refused(asked).await;
                assert!(is_requested(&fault), "{kind}: {fault:?}");
            } else {
                site.ask(asked).await;
            }
            let door = KEEPING;
            let record = site.authority().requests.at(&door, "object", Past::Ignore);
            let record = record.await.unwrap().unwrap();
            assert_eq!(record.state, RequestState::Pending, "{kind}");
            assert_eq!(record.explanation.steps[0].code.as_str(), code, "{kind}");
            assert_eq!(site.certificates("web01").await, certificates, "{kind}");
            let asked = 1 + usize::from(waits_first) + certificates;
            assert_eq!(site.deciders.asked().len(), asked, "{kind}");
        }
    }
}
