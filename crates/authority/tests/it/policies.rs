//! Policies on record: every text that came in force has a number of its own, and a verdict can be led back to it.

use std::sync::Arc;

use countersign_authority::{RequestState, policy_version};
use futures_util::future::join_all;

use crate::site::{Site, start};
use crate::world::{self, TestClock, World, submission};

#[tokio::test(flavor = "multi_thread")]
async fn a_text_keeps_its_number_until_another_comes_in_force() {
    let mut world = World::new(false).await;
    for (seconds, text, generation, loaded) in [
        (0, "one", 1, 0),
        (1, "one", 1, 0),
        (1, "two", 2, 2),
        (1, "two", 2, 2),
        // It was in force before, but not last: what was decided since was decided by another.
        (1, "one", 3, 4),
        (1, "", 4, 5),
    ] {
        world.clock.advance(seconds);
        world = world.restart(false).await;
        let version = world.authority.policy_version(text).await.unwrap();
        assert_eq!(version.generation, generation, "{text}");
        assert_eq!(version.loaded, start().plus_seconds(loaded), "{text}");
        assert_eq!(version.text, text);
    }
    for (generation, text) in [
        (1, Some("one")),
        (2, Some("two")),
        (3, Some("one")),
        (9, None),
    ] {
        let found = world.authority.policy_of(generation).await.unwrap();
        let found = found.map(|version| version.text);
        assert_eq!(found.as_deref(), text, "{generation}");
    }
    let audit = world
        .authority
        .audit
        .after(Default::default(), 1000)
        .await
        .unwrap();
    let loaded = audit.iter().map(|(_, entry)| entry);
    let loaded = loaded.filter(|entry| entry.action == "policy.loaded");
    let loaded: Vec<&str> = loaded.map(|entry| entry.subject.as_str()).collect();
    assert_eq!(loaded, ["policy/1", "policy/2", "policy/3", "policy/4"]);
}

/// Several processes may load at the same time: different texts never share a number, and the same text has one.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_not_shared_by_texts_that_are_loaded_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(world::store(folder.path()));
    let clock = TestClock::new();
    let same = (0..8).map(|_| policy_version(&*store, &*clock, "same"));
    let same = join_all(same).await;
    assert!(
        same.iter()
            .all(|version| version.as_ref().unwrap().generation == 1)
    );
    let texts: Vec<String> = (0..4).map(|number| format!("text {number}")).collect();
    let loaded = texts
        .iter()
        .map(|text| policy_version(&*store, &*clock, text));
    let mut generations: Vec<u64> = join_all(loaded)
        .await
        .into_iter()
        .map(|version| version.unwrap().generation)
        .collect();
    generations.sort_unstable();
    assert_eq!(generations, [2, 3, 4, 5]);
}

/// The number in a verdict leads to the text that decided, whatever is in force by then.
#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_leads_to_the_policy_that_gave_it() {
    let site = Site::new("- {name: a, approve: {always: {}}}").await;
    for (name, rules, state) in [
        (
            "web01",
            "- {name: a, approve: {always: {}}}",
            RequestState::Issued,
        ),
        (
            "web02",
            "- {name: b, deny: {always: {}}}",
            RequestState::Denied,
        ),
        (
            "web03",
            "- {name: c, approve: {machine: {}}}",
            RequestState::Pending,
        ),
    ] {
        let version = site.authority().policy_version(rules).await.unwrap();
        site.apply(version.generation, rules);
        let record = site.ask(submission(name)).await;
        assert_eq!(record.state, state, "{name}");
        let of = site.authority().policy_of(record.explanation.generation);
        assert_eq!(of.await.unwrap().unwrap().text, rules, "{name}");
    }
}

/// A decider that is shown complete requests sees their secrets: the audit log says so.
#[tokio::test(flavor = "multi_thread")]
async fn it_is_told_who_is_shown_complete_requests() {
    let site = Site::new("- {name: a, approve: {always: {}}}").await;
    let addresses = ["https://a.example/", "https://b.example/"].map(str::to_owned);
    let shown = site
        .authority()
        .audit
        .complete_requests_are_shown(&addresses);
    shown.await.unwrap();
    let told = site.told("webhook.complete_requests").await;
    let told: Vec<String> = told.into_iter().map(|(_, entry)| entry.subject).collect();
    assert_eq!(told, addresses);
}
