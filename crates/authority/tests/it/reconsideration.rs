//! Requests that wait and are judged again, and what is turned away and comes back.

use countersign_authority::store::{Past, RequestFilter};
use countersign_authority::{Authority, Duplicate, OnWaiting, RequestState, Signer, SubmitFault};
use countersign_pki::{CheckedCsr, CsrLimits, oid};
use countersign_policy::{Deciding, Machine, ReasonCode, Rule, RuleKind};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;

use crate::profiles;
use crate::rules::is_requested;
use crate::site::{
    DECIDER, KEEPING, Site, agent, allow, deny, new_key, object, pend, silence, start, webhook_rule,
};
use crate::world::{self, DOOR, act, agent_signer, issuer_id, submission, with_csr};

const KNOWN: &str = "- {name: known, approve: {machine: {}}}";
const NOBODY: &str = "- {name: nobody, deny: {always: {}}}";

/// It waits until its evidence is there, and nothing is written until then.
#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_its_name_is_settled_when_its_evidence_appears() {
    for (answer, state, code) in [
        (allow(None), RequestState::Issued, "webhook"),
        (deny(), RequestState::Denied, "webhook_denied"),
    ] {
        let site = Site::new(&webhook_rule("")).await;
        let waits = site.ask(object("object", "web01", &new_key())).await;
        assert_eq!(waits.state, RequestState::Pending);
        assert!(waits.explanation.retry && waits.live);
        let before = site.authority().revision();
        for asked in 2..5 {
            assert_eq!(
                site.authority()
                    .requests
                    .reconsider_waiting()
                    .await
                    .unwrap(),
                0
            );
            assert_eq!(site.deciders.asked().len(), asked);
        }
        assert_eq!(site.authority().revision(), before, "nothing has changed");
        site.deciders.say(answer);
        site.world.clock.advance(60);
        assert_eq!(
            site.authority()
                .requests
                .reconsider_waiting()
                .await
                .unwrap(),
            1
        );
        let settled = site.record(waits.id).await;
        assert_eq!(settled.state, state);
        assert_eq!(settled.explanation.code.as_str(), code);
        assert_eq!(settled.explanation.at, start().plus_seconds(60));
        assert_eq!(settled.created, start());
        assert!(settled.live && !settled.explanation.retry);
        let issued = usize::from(state == RequestState::Issued);
        assert_eq!(site.certificates("web01").await, issued);
        let action = ["deny", "approve"][issued];
        let told = site.told(action).await;
        let [(_, entry)] = &told[..] else {
            panic!("{told:?}");
        };
        assert_eq!(entry.reason, code);
        assert_eq!(entry.generation, Some(1));
        assert_eq!(entry.verdict, Some(settled.explanation.effect));
        // It is over.
        assert_eq!(
            site.authority()
                .requests
                .reconsider_waiting()
                .await
                .unwrap(),
            0
        );
        assert_eq!(site.deciders.asked().len(), 5);
    }
}

/// Evidence that says something new without settling anything is put on record.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_another_reason_now_says_so() {
    let site = Site::new(&webhook_rule("")).await;
    let waits = site.ask(object("object", "web01", &new_key())).await;
    site.deciders.say(pend());
    assert_eq!(
        site.authority()
            .requests
            .reconsider_waiting()
            .await
            .unwrap(),
        0
    );
    let now = site.record(waits.id).await;
    assert_eq!(now.state, RequestState::Pending);
    assert_eq!(now.explanation.steps[0].code.as_str(), "webhook_pending");
    assert_eq!(now.evidence.webhooks.get(DECIDER), Some(&pend()));
    assert_eq!(site.told("reconsider").await.len(), 1);
    // Nothing may still appear: nobody is asked any more.
    assert_eq!(
        site.authority()
            .requests
            .reconsider_waiting()
            .await
            .unwrap(),
        0
    );
    assert_eq!(site.deciders.asked().len(), 2);
}

/// A person's word stands, given before or while the rules are asked again.
#[tokio::test(flavor = "multi_thread")]
async fn a_person_who_decides_first_is_not_overruled() {
    for meanwhile in [false, true] {
        for approves in [false, true] {
            let site = Site::new(&webhook_rule("")).await;
            let waits = site.ask(object("object", "web01", &new_key())).await;
            let mut decide = act("object");
            decide.door = KEEPING;
            let authority = site.authority().clone();
            let decided = async move {
                match approves {
                    true => authority.requests.approve(decide).await.map(drop).unwrap(),
                    false => authority.requests.deny(decide).await.map(drop).unwrap(),
                }
            };
            site.deciders
                .say(if approves { deny() } else { allow(None) });
            if meanwhile {
                site.deciders.meanwhile(move || Box::pin(decided));
            } else {
                decided.await;
            }
            assert_eq!(
                site.authority()
                    .requests
                    .reconsider_waiting()
                    .await
                    .unwrap(),
                0
            );
            assert_eq!(site.deciders.asked().len(), 1 + usize::from(meanwhile));
            let record = site.record(waits.id).await;
            let by = &record.explanation.by;
            assert!(matches!(by, Some(Deciding::Person { .. })), "{by:?}");
            let state = [RequestState::Denied, RequestState::Issued][usize::from(approves)];
            assert_eq!(record.state, state);
            assert_eq!(site.certificates("web01").await, usize::from(approves));
        }
    }
}

/// A door that forgets has no row that waits; the sender comes back, and each time it is decided anew.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_turned_away_occupies_nothing_and_is_bounded() {
    let site = Site::new(&webhook_rule("")).await;
    let key = new_key();
    for number in 0..25 {
        site.deciders
            .say(if number % 2 == 0 { silence() } else { deny() });
        let record = site.ask(agent("web01", &key)).await;
        assert!(!record.live);
        let door = DOOR;
        let live = site.authority().requests.at(&door, "web01", Past::Ignore);
        assert!(live.await.unwrap().is_none());
    }
    let rejected = site.rejections().await;
    assert_eq!(rejected.len(), 10, "the newest of a name are kept");
    assert_eq!(rejected[0].state, RequestState::Undecided);
    assert_eq!(rejected[1].state, RequestState::Denied);
    assert_eq!(
        site.authority()
            .requests
            .reconsider_waiting()
            .await
            .unwrap(),
        0
    );
    assert_eq!(site.deciders.asked().len(), 25);

    // Other names have room of their own, within the bound of all.
    for number in 0..5 {
        site.ask(submission(&format!("other-{number}"))).await;
    }
    assert_eq!(site.rejections().await.len(), 15);
    site.authority()
        .requests
        .trim_rejections(7, u64::MAX)
        .await
        .unwrap();
    let left = site.rejections().await;
    let left: Vec<&str> = left.iter().map(|one| one.key.as_str()).collect();
    let others = ["other-4", "other-3", "other-2", "other-1", "other-0"];
    assert_eq!(left, [&others[..], &["web01", "web01"]].concat());

    site.deciders.say(allow(None));
    assert_eq!(
        site.ask(agent("web01", &key)).await.state,
        RequestState::Issued
    );
}

/// What waits and is denied when it asks again is bounded as well.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_later_is_bounded_too() {
    let site = Site::new(KNOWN).await;
    let key = new_key();
    for _ in 0..13 {
        site.apply(1, KNOWN);
        let waits = site.ask(agent("web01", &key)).await;
        assert_eq!(waits.state, RequestState::Pending);
        site.apply(2, NOBODY);
        let denied = site.ask(agent("web01", &key)).await;
        assert_eq!((denied.id, denied.state), (waits.id, RequestState::Denied));
        assert!(!denied.live);
    }
    assert_eq!(site.rejections().await.len(), 10);
}

/// The same request asks again and is judged again; anything else is in the way of nobody, and in nobody's place.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_same_request_is_judged_again() {
    let site = Site::new(KNOWN).await;
    let key = new_key();
    let waits = site.ask(agent("web01", &key)).await;
    assert_eq!(waits.state, RequestState::Pending);
    let fault = site.refused(agent("web01", &key)).await;
    assert!(is_requested(&fault), "it still waits: {fault:?}");
    site.add_machine(Machine::named("web01", start())).await;

    let role = oid::registered_oid("pp_role").unwrap();
    let more = CsrBuilder::new("web01").extension(&role, "web");
    let other_key = keys::p256_a();
    for (case, other) in [
        ("another key", agent("web01", &new_key())),
        (
            "another key that asks for more",
            checked(&more.sign(other_key)),
        ),
    ] {
        let fault = site.refused(other).await;
        assert!(is_requested(&fault), "{case}: {fault:?}");
        assert_eq!(site.certificates("web01").await, 0, "{case}");
    }
    let again = agent("web01", &key);
    assert_ne!(again.csr.der(), waits.csr_der, "the signature differs");
    let issued = site.ask(again).await;
    assert_eq!((issued.id, issued.state), (waits.id, RequestState::Issued));
    assert_eq!(site.machine("web01").await.request, Some(waits.id));
    let fault = site.refused(agent("web01", &key)).await;
    let signed = Duplicate::Signed;
    assert!(matches!(fault, SubmitFault::Duplicate { duplicate, .. } if duplicate == signed));

    // The same key with other wishes is another request.
    let plain = checked(&CsrBuilder::new("web02").sign(other_key));
    let waits = site.ask(plain).await;
    site.add_machine(Machine::named("web02", start())).await;
    let more = CsrBuilder::new("web02").extension(&role, "web");
    let fault = site.refused(checked(&more.sign(other_key))).await;
    assert!(is_requested(&fault), "{fault:?}");
    let again = CsrBuilder::new("web02").sign(other_key);
    assert_eq!(site.ask(checked(&again)).await.id, waits.id);
}

/// Puppet's own setting is asked once per request, as Puppet Server does.
#[tokio::test(flavor = "multi_thread")]
async fn where_only_the_autosign_setting_applies_a_duplicate_is_one() {
    let site = Site::new(KNOWN).await;
    let setting = |kind| {
        let mut policy = world::policy(false);
        policy.rules = vec![Rule::approving("autosign", vec![agent_signer()], kind)];
        site.authority()
            .set_rules(site.authority().rules().with_policy(policy));
    };
    setting(RuleKind::Machine(Default::default()));
    let key = new_key();
    assert_eq!(
        site.ask(agent("web01", &key)).await.state,
        RequestState::Pending
    );
    setting(RuleKind::Always);
    let fault = site.refused(agent("web01", &key)).await;
    assert!(is_requested(&fault), "{fault:?}");
    assert_eq!(site.certificates("web01").await, 0);
}

/// A program's word stays said, also where the rules did not come to it in between or the file has a new place.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_not_run_again_by_any_way_back_to_it() {
    let program = "- {name: program, approve: {executable: {path: FOLDER/one}}}";
    let rules = format!("{}\n{program}", webhook_rule(""));
    let site = Site::new(&rules).await;
    for name in ["one", "two"] {
        site.program(name, "exit 1");
    }
    let key = new_key();
    site.deciders.say(pend());
    assert_eq!(
        site.ask(agent("web01", &key)).await.state,
        RequestState::Pending
    );
    for answer in [silence(), pend(), silence(), pend()] {
        site.deciders.say(answer);
        let fault = site.refused(agent("web01", &key)).await;
        assert!(is_requested(&fault), "{fault:?}");
    }
    assert_eq!(site.runs(), ["one web01"]);
    site.apply(2, &rules.replace("FOLDER/one", "FOLDER/two"));
    for _ in 0..3 {
        let fault = site.refused(agent("web01", &key)).await;
        assert!(is_requested(&fault), "{fault:?}");
    }
    assert_eq!(site.runs(), ["one web01", "two web01"], "each of them once");
}

/// The policy changes while a request is judged: it is judged by what is in force then, and nobody is asked twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_changes_meanwhile_judges_anew_and_asks_nobody_twice() {
    let both = |when: &str| {
        format!(
            "- {{name: both, when: '{when}', approve: {{executable: {{path: FOLDER/yes}}, webhook: {{url: '{DECIDER}'}}}}}}"
        )
    };
    for (next, state) in [
        ("true", RequestState::Issued),
        ("false", RequestState::Pending),
    ] {
        for keeps in [false, true] {
            let site = Site::new(&both("request.commonName != \"\"")).await;
            site.program("yes", "exit 0");
            site.deciders.say(allow(None));
            let (authority, policy) = (site.authority().clone(), site.policy(2, &both(next)));
            site.deciders.meanwhile(move || {
                Box::pin(async move { authority.set_rules(authority.rules().with_policy(policy)) })
            });
            let asked = match keeps {
                true => object("object", "web01", &new_key()),
                false => submission("web01"),
            };
            let record = site.ask(asked).await;
            assert_eq!(record.state, state, "{next}");
            assert_eq!(record.explanation.generation, 2, "{next}");
            assert_eq!(site.runs(), ["yes web01"], "{next}");
            assert_eq!(site.deciders.asked(), ["web01"], "{next}");
            assert_eq!(site.told("webhook.decision").await.len(), 1, "{next}");
        }
    }
}

/// What opened while a request was being judged counts when it is judged anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_opens_meanwhile_counts() {
    let rules = format!(
        "{}\n- {{name: build, approve: {{window: {{}}}}}}",
        webhook_rule("")
    );
    let site = Site::new(&rules).await;
    site.deciders.say(pend());
    let (authority, policy) = (site.authority().clone(), site.policy(2, &rules));
    let clock = site.world.clock.clone();
    let opens = crate::site::window("web01", start().plus_seconds(5));
    site.deciders.meanwhile(move || {
        Box::pin(async move {
            clock.advance(5);
            open(&authority, opens).await;
            authority.set_rules(authority.rules().with_policy(policy));
        })
    });
    let record = site.ask(submission("web01")).await;
    // Judged at the time it was asked: closed. Nothing was approved, so nothing is judged anew.
    assert_eq!(record.state, RequestState::Pending);

    let (authority, policy) = (site.authority().clone(), site.policy(3, &rules));
    let clock = site.world.clock.clone();
    site.deciders.say(allow(None));
    let opens = crate::site::window("web02", start().plus_seconds(10));
    site.deciders.meanwhile(move || {
        Box::pin(async move {
            clock.advance(5);
            open(&authority, opens).await;
            // What was approved is judged anew, by rules without a decider: the window is open now.
            let mut policy = policy;
            policy.rules.remove(0);
            authority.set_rules(authority.rules().with_policy(policy));
        })
    });
    let record = site.ask(submission("web02")).await;
    assert_eq!(
        record.state,
        RequestState::Issued,
        "{:?}",
        record.explanation
    );
    assert_eq!(record.explanation.code.as_str(), "window");
    assert_eq!(site.issuances("web02").await, 1);
}

/// While a request is being judged, nobody else judges it: its decider is asked once at a time.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_being_judged_is_left_alone() {
    let site = Site::new(&webhook_rule("")).await;
    let key = new_key();
    let waits = site.ask(object("object", "web01", &key)).await;
    let authority = site.authority().clone();
    site.deciders.say(allow(None));
    site.deciders.meanwhile(move || {
        Box::pin(async move {
            assert_eq!(authority.requests.reconsider_waiting().await.unwrap(), 0);
        })
    });
    let again = site.ask(object("object", "web01", &key)).await;
    assert_eq!((again.id, again.state), (waits.id, RequestState::Issued));
    assert_eq!(site.deciders.asked().len(), 2);
    assert_eq!(site.certificates("web01").await, 1);
}

/// Where a signer lets a new request replace one that waits, one that is turned away replaces nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_turned_away_takes_nobodys_place() {
    let site = Site::new(&webhook_rule("")).await;
    let agents = Signer {
        name: agent_signer(),
        profile: profiles::agent(world::settings()),
        issuer: issuer_id(),
        one_certificate_per_name: false,
        administrators_only: false,
        on_waiting: OnWaiting::Replace,
    };
    site.authority()
        .set_rules(site.authority().rules().with_signers(vec![agents]));
    site.deciders.say(pend());
    let waits = site.ask(agent("web01", &new_key())).await;
    for answer in [deny(), silence()] {
        site.deciders.say(answer.clone());
        let fault = site.refused(agent("web01", &new_key())).await;
        assert!(is_requested(&fault), "{answer:?}: {fault:?}");
        let left = site.record(waits.id).await;
        assert_eq!(left.version, waits.version, "{answer:?}");
        assert!(left.live, "{answer:?}");
    }
    // All that is left of them is that another key has the name.
    let rejections = site.rejections().await;
    let codes: Vec<_> = rejections.iter().map(|one| &one.explanation.code).collect();
    assert_eq!(codes, [&ReasonCode::NameTaken; 2]);
    site.deciders.say(pend());
    let next = site.ask(agent("web01", &new_key())).await;
    assert_eq!(next.state, RequestState::Pending);
    let gone = site.authority().requests.get(waits.id).await.unwrap();
    assert!(gone.is_none(), "one that waits may take it");
}

/// Many wait: each is looked at, page by page, and all are settled.
#[tokio::test(flavor = "multi_thread")]
async fn every_page_of_what_waits_is_looked_at() {
    let site = Site::new(&webhook_rule("")).await;
    for number in 0..150 {
        let name = format!("object-{number}");
        site.ask(object(&name, &name, &new_key())).await;
    }
    site.deciders.say(allow(None));
    assert_eq!(
        site.authority()
            .requests
            .reconsider_waiting()
            .await
            .unwrap(),
        150
    );
    let waiting = RequestFilter {
        states: vec![RequestState::Pending],
        ..RequestFilter::default()
    };
    let waiting = site.authority().requests.list(waiting).await.unwrap();
    assert!(waiting.is_empty());
}

async fn open(authority: &Authority, window: countersign_policy::BuildWindow) {
    let admin = act("").actor;
    authority
        .inventory
        .open_window(window, &admin)
        .await
        .unwrap();
}

fn checked(der: &[u8]) -> countersign_authority::Submission {
    let csr = CheckedCsr::check(der, &CsrLimits::STANDARD).unwrap();
    let name = csr.subject().first_common_name().unwrap().to_owned();
    with_csr(&name, csr)
}
