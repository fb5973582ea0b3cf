//! Deciders elsewhere: what each of their answers comes to, what of it stays, and how often they are asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use countersign_authority::RequestState;
use countersign_pki::Certificate;

use crate::recovery::faulty;
use crate::site::{
    DECIDER, KEEPING, Site, agent, allow, deny, new_key, object, pend, silence, start, webhook_rule,
};
use crate::world::{self, TestClock, World, issuer_id, settings, submission};

const STATUS: &str =
    "- {name: decider, approve: {webhook: {url: 'https://decider.example.com/v', mode: status}}}";

/// At both doors: what is on record, what occupies its name, and what the audit log says.
#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_its_end() {
    let site = Site::new(&webhook_rule("")).await;
    for (number, (answer, state, at_keeping, code, action, words)) in [
        (
            allow(None),
            RequestState::Issued,
            RequestState::Issued,
            "webhook",
            "webhook.decision",
            "allow: known",
        ),
        (
            deny(),
            RequestState::Denied,
            RequestState::Denied,
            "webhook_denied",
            "webhook.decision",
            "deny: retired",
        ),
        (
            pend(),
            RequestState::Pending,
            RequestState::Pending,
            "webhook_pending",
            "webhook.decision",
            "pend: ask a person",
        ),
        (
            silence(),
            RequestState::Undecided,
            RequestState::Pending,
            "webhook_error",
            "webhook.error",
            "error: no answer within 5 s",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        site.deciders.say(answer.clone());
        for (door, asked) in [
            ("test", submission(&format!("host-{number}"))),
            (
                "keeping",
                object(
                    &format!("object-{number}"),
                    &format!("node-{number}"),
                    &new_key(),
                ),
            ),
        ] {
            let keeps = asked.door.name == KEEPING;
            let expected = if keeps { at_keeping } else { state };
            let before = site.told(action).await.len();
            let record = site.ask(asked).await;
            let case = format!("{door} {answer:?}");
            assert_eq!(record.state, expected, "{case}");
            assert_eq!(record.explanation.steps[0].code.as_str(), code, "{case}");
            assert_eq!(record.explanation.retry, code == "webhook_error", "{case}");
            let occupies = keeps || expected == RequestState::Pending;
            assert_eq!(record.live, occupies, "{case}");
            assert_eq!(
                record.evidence.webhooks.get(DECIDER),
                Some(&answer),
                "{case}"
            );
            let told = site.told(action).await;
            assert_eq!(told.len(), before + 1, "{case}");
            let (_, entry) = told.last().unwrap();
            assert_eq!(entry.detail, format!("{DECIDER}: {words}"), "{case}");
            assert_eq!(entry.request, Some(record.id.to_string()), "{case}");
            let issued = usize::from(expected == RequestState::Issued);
            let name = format!("{}-{number}", if keeps { "node" } else { "host" });
            assert_eq!(site.certificates(&name).await, issued, "{case}");
        }
    }
    let rejected: Vec<_> = site.rejections().await;
    let rejected: Vec<_> = rejected.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(rejected, ["host-3", "object-1", "host-1"]);
}

/// A decider shortens a certificate's life and never lengthens it, also if the process has to begin anew after the
/// approval.
#[tokio::test(flavor = "multi_thread")]
async fn a_decider_narrows_the_validity_and_never_widens_it() {
    let (folder, keys) = faulty().await;
    let clock = TestClock::new();
    let store = Arc::new(world::store(folder.path()));
    let authority = world::authority(folder.path(), store, keys.clone(), clock.clone(), false);
    let world = World {
        authority: authority.await,
        folder,
        clock,
    };
    let site = Site::of(world, &webhook_rule(""));
    let usual = start().plus_seconds(settings().lifetime);
    for (number, (ttl, end)) in [
        (None, usual),
        (Some(3600), start().plus_seconds(3600)),
        (Some(settings().lifetime + 1), usual),
        (Some(u64::MAX), usual),
    ]
    .into_iter()
    .enumerate()
    {
        site.deciders.say(allow(ttl));
        for fails in [false, true] {
            let name = format!("host-{number}-{fails}");
            keys.fails.store(fails, Ordering::SeqCst);
            let asked = site.authority().requests.submit(submission(&name)).await;
            assert_eq!(asked.is_err(), fails, "{name}");
            keys.fails.store(false, Ordering::SeqCst);
            if fails {
                // The word that was given for this approval counts, whatever would be said now.
                site.deciders.say(allow(Some(60)));
                site.world.clock.advance(30);
                assert_eq!(site.authority().recover().await.unwrap(), 1, "{name}");
                site.world.clock.advance(-30);
            }
            let issuer = issuer_id();
            let entry = site.authority().ledger.newest(&issuer, &name);
            let entry = entry.await.unwrap().unwrap();
            let certificate = Certificate::parse(&entry.der).unwrap();
            assert_eq!(certificate.not_after(), end, "{name}");
            assert_eq!(entry.explanation.lifetime, ttl, "{name}");
            site.deciders.say(allow(ttl));
        }
    }
    assert_eq!(site.deciders.asked().len(), 8, "each was asked about once");
}

/// A decider that uses up its own tokens is asked once for a name and key: its word counts for half an hour from when it
/// was given, also after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_decider_that_uses_up_tokens_is_asked_once() {
    let mut site = Site::new(STATUS).await;
    site.deciders.say(allow(None));
    let (key, other_key) = (new_key(), new_key());
    let mut asked = 0;
    for (step, (seconds, name, key, is_asked)) in [
        (0, "web01", &key, true),
        (0, "web01", &key, false),
        (900, "web01", &key, false),
        (0, "web01", &other_key, true),
        (0, "web02", &key, true),
        // Looking it up has not made it last longer.
        (899, "web01", &key, false),
        (1, "web01", &key, true),
        (0, "web01", &key, false),
    ]
    .into_iter()
    .enumerate()
    {
        site.world.clock.advance(seconds);
        site = site.restart(STATUS).await;
        let record = site.ask(object(&format!("object-{step}"), name, key)).await;
        assert_eq!(record.state, RequestState::Issued, "{step}");
        asked += usize::from(is_asked);
        assert_eq!(site.deciders.asked().len(), asked, "{step}");
    }
    // Every use of a word is told, be it new or remembered.
    assert_eq!(site.told("webhook.decision").await.len(), 8);
}

/// Any other decider is asked for every request, each time with a question of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_decider_with_a_memory_of_its_own_is_asked_every_time() {
    let site = Site::new(&webhook_rule("")).await;
    site.deciders.say(allow(None));
    let key = new_key();
    for number in 0..3 {
        let record = site
            .ask(object(&format!("object-{number}"), "web01", &key))
            .await;
        assert_eq!(record.state, RequestState::Issued, "{number}");
    }
    let mut questions = site.deciders.questions();
    assert_eq!(questions.len(), 3);
    questions.sort();
    questions.dedup();
    assert_eq!(questions.len(), 3, "no question is asked twice");
}

/// The word is durable before anything rests on it: a refusal further down does not burn the token.
#[tokio::test(flavor = "multi_thread")]
async fn an_allowance_outlives_rules_that_changed_meanwhile() {
    let site = Site::new(STATUS).await;
    site.deciders.say(allow(None));
    let nobody = site.policy(2, "- {name: nobody, approve: {allowlist: {names: [x]}}}");
    let authority = site.authority().clone();
    site.deciders.meanwhile(move || {
        Box::pin(async move { authority.set_rules(authority.rules().with_policy(nobody)) })
    });
    let key = new_key();
    let waits = site.ask(agent("web01", &key)).await;
    assert_eq!(waits.state, RequestState::Pending);
    assert_eq!(waits.explanation.generation, 2);
    site.apply(3, STATUS);
    let again = site.ask(agent("web01", &key)).await;
    assert_eq!((again.id, again.state), (waits.id, RequestState::Issued));
    assert_eq!(site.deciders.asked(), ["web01"]);
}

/// One that may have used up a token without our hearing of it is not asked again by ourselves; others are.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_asks_again_by_itself_where_a_token_may_be_burned() {
    for (rules, is_asked_again) in [(STATUS.to_owned(), false), (webhook_rule(""), true)] {
        let site = Site::new(&rules).await;
        let key = new_key();
        let waits = site.ask(object("object", "web01", &key)).await;
        assert_eq!(waits.state, RequestState::Pending);
        site.deciders.say(allow(None));
        let settled = site
            .authority()
            .requests
            .reconsider_waiting()
            .await
            .unwrap();
        assert_eq!(settled, usize::from(is_asked_again), "{rules}");
        let asked = 1 + usize::from(is_asked_again);
        assert_eq!(site.deciders.asked().len(), asked, "{rules}");
        if !is_asked_again {
            // Its sender may.
            let again = site.ask(object("object", "web01", &key)).await;
            assert_eq!((again.id, again.state), (waits.id, RequestState::Issued));
        }
    }
}
