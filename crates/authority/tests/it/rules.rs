//! The way of a request through rules of every kind: what each finds, what is on record then, and what was used up.

use std::sync::Arc;
use std::time::Duration;

use countersign_authority::{Duplicate, RequestState, SubmitFault};
use countersign_pki::{CheckedCsr, CsrLimits, RevocationReason, UnixTime};
use countersign_policy::{Deciding, Machine};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use countersign_webhook::{Executables, ThisMachine};

use crate::site::{KEEPING, Site, agent, allow, new_key, object, webhook_rule};
use crate::world::{act, issuer_id, submission, with_csr};

/// What `when`, `else`, `unavailable` and several kinds under one effect come to, at a door that forgets.
#[tokio::test(flavor = "multi_thread")]
async fn rules_are_asked_in_order_until_one_answers() {
    let decider = webhook_rule("");
    let with_next = webhook_rule(", unavailable: next");
    let always = "- {name: rest, approve: {always: {}}}";
    for (case, rules, state, code, asked) in [
        (
            "a condition that holds",
            "- {name: a, when: 'request.commonName == \"web01\"', approve: {always: {}}}"
                .to_owned(),
            RequestState::Issued,
            "always",
            1,
        ),
        (
            "a condition that does not",
            "- {name: a, when: 'request.commonName != \"web01\"', approve: {always: {}}}"
                .to_owned(),
            RequestState::Pending,
            "",
            1,
        ),
        (
            "a condition that cannot be evaluated",
            format!(
                "- {{name: a, when: 'request.extensions[\"pp_role\"] == \"x\"', approve: {{always: {{}}}}}}\n{always}"
            ),
            RequestState::Undecided,
            "expression_error",
            1,
        ),
        (
            "not on the list",
            format!("- {{name: a, approve: {{allowlist: {{names: [web02]}}}}}}\n{always}"),
            RequestState::Issued,
            "always",
            2,
        ),
        (
            "not on the list, and that is all",
            "- {name: a, approve: {allowlist: {names: [web02]}}, else: deny}".to_owned(),
            RequestState::Denied,
            "not_listed",
            1,
        ),
        (
            "on the list of those who are denied",
            format!("- {{name: a, deny: {{allowlist: {{names: [web01]}}}}}}\n{always}"),
            RequestState::Denied,
            "allowlist",
            1,
        ),
        (
            "a denial by expression",
            format!(
                "- {{name: a, deny: {{cel: 'request.commonName.startsWith(\"web\")', message: 'no webs'}}}}\n{always}"
            ),
            RequestState::Denied,
            "cel",
            1,
        ),
        (
            "a decider that does not answer stops it",
            format!("{decider}\n{always}"),
            RequestState::Undecided,
            "webhook_error",
            1,
        ),
        (
            "unless the rule says to go on",
            format!("{with_next}\n{always}"),
            RequestState::Issued,
            "always",
            2,
        ),
        (
            "and what nobody decides then waits",
            with_next.clone(),
            RequestState::Pending,
            "",
            1,
        ),
        (
            "several kinds, of which one does not hold",
            "- {name: a, approve: {always: {}, cel: 'true', machine: {}}}".to_owned(),
            RequestState::Pending,
            "",
            1,
        ),
        (
            "several kinds, of which one cannot be had",
            format!(
                "- {{name: a, approve: {{cel: 'true', allowlist: {{file: missing}}}}}}\n{always}"
            ),
            RequestState::Undecided,
            "allowlist_unreadable",
            1,
        ),
        (
            "several kinds that all hold",
            "- {name: a, approve: {cel: 'true', allowlist: {names: [web01]}}}".to_owned(),
            RequestState::Issued,
            "allowlist",
            1,
        ),
    ] {
        let site = Site::new(&rules).await;
        let record = site.ask(submission("web01")).await;
        let explanation = &record.explanation;
        assert_eq!(record.state, state, "{case}: {explanation:?}");
        assert_eq!(explanation.code.as_str(), code, "{case}");
        assert_eq!(explanation.steps.len(), asked, "{case}: {explanation:?}");
        assert_eq!(explanation.generation, 1, "{case}");
        let issued = usize::from(state == RequestState::Issued);
        assert_eq!(site.certificates("web01").await, issued, "{case}");
        // What is turned away occupies nothing and is on the list of rejections; what waits does.
        let rejected = matches!(state, RequestState::Denied | RequestState::Undecided);
        assert_eq!(record.live, state == RequestState::Pending, "{case}");
        assert_eq!(
            site.rejections().await.len(),
            usize::from(rejected),
            "{case}"
        );
        let [(_, told)] = &site.told("request").await[..] else {
            panic!("{case}: one entry tells of the request");
        };
        assert_eq!(told.reason, code, "{case}");
        assert_eq!(told.generation, Some(1), "{case}");
        assert_eq!(told.verdict, Some(explanation.effect), "{case}");
        assert_eq!(told.request, Some(record.id.to_string()), "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn not_even_always_approves_a_reserved_name() {
    let site = Site::new("- {name: a, approve: {always: {}}}").await;
    let record = site.ask(submission("ca.example.com")).await;
    assert_eq!(record.state, RequestState::Pending);
    assert_eq!(record.explanation.steps[0].code.as_str(), "reserved_name");
    let below = object("o", "ca.example.com", &new_key());
    assert_eq!(site.ask(below).await.state, RequestState::Pending);
}

/// The file is looked at for each request, and is used only if nobody else can write it.
#[tokio::test(flavor = "multi_thread")]
async fn an_allowlist_is_read_for_every_request() {
    let site = Site::new("- {name: list, approve: {allowlist: {file: list.conf}}}").await;
    for (number, (text, mode, state, code)) in [
        (None, 0, RequestState::Undecided, "allowlist_unreadable"),
        (
            Some("*.example.com\n"),
            0o644,
            RequestState::Issued,
            "allowlist",
        ),
        (
            Some("*.example.com\n"),
            0o666,
            RequestState::Undecided,
            "allowlist_unreadable",
        ),
        (
            Some("*.example.org\n"),
            0o644,
            RequestState::Pending,
            "not_listed",
        ),
        (
            Some("#!/bin/sh\nexit 0\n"),
            0o755,
            RequestState::Undecided,
            "allowlist_unreadable",
        ),
        (
            Some("web05.example.com\n"),
            0o600,
            RequestState::Issued,
            "allowlist",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        if let Some(text) = text {
            site.write("list.conf", text, mode);
        }
        let record = site
            .ask(submission(&format!("web{number:02}.example.com")))
            .await;
        assert_eq!(record.state, state, "{number}: {:?}", record.explanation);
        assert_eq!(record.explanation.steps[0].code.as_str(), code, "{number}");
    }
}

/// A program approves by its status alone, within its own time, once for each request.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_run_once_for_a_request() {
    let rules = "- {name: yes, when: 'request.commonName == \"yes\"', approve: {executable: {path: FOLDER/yes}}}\n\
                 - {name: slow, when: 'request.commonName == \"slow\"', approve: {executable: {path: FOLDER/slow, timeout: 1s}}}\n\
                 - {name: no, approve: {executable: {path: FOLDER/no}}}";
    let site = Site::new(rules).await;
    site.program("yes", "exit 0");
    site.program("no", "exit 1");
    site.program("slow", "exec sleep 600");
    let key = new_key();
    for (name, state, code, reason) in [
        (
            "yes",
            RequestState::Issued,
            "executable",
            "ended with status 0",
        ),
        (
            "no",
            RequestState::Pending,
            "executable_declined",
            "status 1",
        ),
        (
            "slow",
            RequestState::Pending,
            "executable_declined",
            "did not end within 1 s",
        ),
    ] {
        let record = site.ask(agent(name, &key)).await;
        assert_eq!(record.state, state, "{name}");
        let mut steps = record.explanation.steps.iter();
        let step = steps.find(|step| step.rule == name).unwrap();
        assert_eq!(step.code.as_str(), code, "{name}");
        assert!(step.reason.contains(reason), "{name}: {}", step.reason);
        assert!(!record.explanation.retry, "{name}");
    }
    let runs = ["yes yes", "no no", "slow slow", "no slow"];
    assert_eq!(site.runs(), runs);
    // Neither asking again nor another look at what waits runs it again.
    for name in ["no", "slow"] {
        let fault = site.refused(agent(name, &key)).await;
        assert!(is_requested(&fault), "{fault:?}");
    }
    assert_eq!(
        site.authority()
            .requests
            .reconsider_waiting()
            .await
            .unwrap(),
        0
    );
    assert_eq!(site.runs(), runs);
}

/// Where too many programs run, nothing is decided; the request comes back and is decided then.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_finds_no_place_leaves_it_undecided() {
    let rules = "- {name: slow, when: 'request.commonName == \"slow\"', approve: {executable: {path: FOLDER/slow, timeout: 60s}}}\n\
                 - {name: quick, approve: {executable: {path: FOLDER/quick, timeout: 1s}}}";
    let site = Site::new(rules).await;
    let local = ThisMachine::new(Executables {
        at_once: 1,
        ..Executables::STANDARD
    });
    site.authority().set_local_evidence(Arc::new(local));
    site.program("slow", "until [ -e ${0%slow}go ]; do sleep 0.02; done");
    site.program("quick", "exit 0");
    let authority = site.authority().clone();
    let slow = tokio::spawn(async move { authority.requests.submit(submission("slow")).await });
    let begun = async {
        while site.runs().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let patience = Duration::from_secs(30);
    tokio::time::timeout(patience, begun).await.unwrap();
    let key = new_key();
    let busy = site.ask(agent("quick", &key)).await;
    assert_eq!(busy.state, RequestState::Undecided);
    assert_eq!(busy.explanation.code.as_str(), "executable_busy");
    let kept = site.ask(object("object", "quick-object", &key)).await;
    assert_eq!(kept.state, RequestState::Pending);
    assert!(kept.explanation.retry);
    std::fs::write(site.path("go"), "").unwrap();
    assert_eq!(slow.await.unwrap().unwrap().state, RequestState::Issued);
    let again = site.ask(agent("quick", &key)).await;
    assert_eq!(again.state, RequestState::Issued);
    assert_eq!(
        site.authority()
            .requests
            .reconsider_waiting()
            .await
            .unwrap(),
        1
    );
    assert_eq!(site.record(kept.id).await.state, RequestState::Issued);
    assert_eq!(
        site.runs(),
        ["slow slow", "quick quick", "quick quick-object"]
    );
}

/// Expressions see what the ledger knows of the name.
#[tokio::test(flavor = "multi_thread")]
async fn expressions_see_the_ledger() {
    let site = Site::new(
        "- {name: revoked, deny: {cel: 'ledger.revoked != null && ledger.revoked.reason == \"keyCompromise\"'}}\n\
         - {name: first, approve: {cel: 'ledger.certificate == null'}}\n\
         - {name: same-key, approve: {cel: 'ledger.certificate != null && ledger.certificate.sameKey && ledger.certificate.notAfter > now'}}",
    )
    .await;
    let (key, other) = (new_key(), new_key());
    for (number, (key, rule)) in [
        (&key, Some("first")),
        (&key, Some("same-key")),
        (&other, None),
    ]
    .into_iter()
    .enumerate()
    {
        let record = site
            .ask(object(&format!("object-{number}"), "web01", key))
            .await;
        let by = record.explanation.by.clone();
        let by = by.map(|by| match by {
            Deciding::Rule { name, policy } => (name, policy),
            other => panic!("{other:?}"),
        });
        let expected = rule.map(|rule| (rule.to_owned(), "site".to_owned()));
        assert_eq!(by, expected, "{number}");
        assert!(record.evidence.ledger.is_some(), "{number}");
    }
    let (reason, admin) = (RevocationReason::KeyCompromise, act("").actor);
    let issuer = issuer_id();
    let revoked = site
        .authority()
        .ledger
        .revoke_name(&issuer, "web01", reason, &admin);
    assert_eq!(revoked.await.unwrap(), 2);
    let record = site.ask(object("after", "web01", &key)).await;
    assert_eq!(record.state, RequestState::Denied);
    assert_eq!(record.door, KEEPING);
    assert!(record.live, "it keeps its name");
}

/// What no signer here would sign asks nobody and uses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_signed_asks_nobody_and_uses_nothing() {
    let rules = "- {name: a, approve: {machine: {once: true}}}\n\
                 - {name: b, approve: {window: {}}}\n\
                 - {name: c, approve: {executable: {path: FOLDER/yes}, webhook: {url: 'https://decider.example.com/v'}}}";
    let site = Site::new(rules).await;
    site.program("yes", "exit 0");
    site.deciders.say(allow(None));
    site.add_machine(Machine::named("known", UnixTime(0))).await;
    site.open_window("built", 1).await;
    for name in ["known", "built", "other"] {
        let der = CsrBuilder::new(name).dns("vault").sign(keys::p256_a());
        let csr = CheckedCsr::check(&der, &CsrLimits::STANDARD).unwrap();
        let submitted = site
            .authority()
            .requests
            .submit(with_csr(name, csr))
            .await
            .unwrap();
        assert!(submitted.unsignable.is_some(), "{name}");
        assert_eq!(submitted.state, RequestState::Pending, "{name}");
        assert!(submitted.automatic, "{name}: it says what would be");
        let record = site.record(submitted.id).await;
        assert_eq!(record.explanation.code.as_str(), "unsignable", "{name}");
        assert!(record.evidence.is_empty(), "{name}");
        assert_eq!(site.certificates(name).await, 0, "{name}");
    }
    assert_eq!(
        site.authority()
            .requests
            .reconsider_waiting()
            .await
            .unwrap(),
        0
    );
    assert!(site.deciders.asked().is_empty());
    assert!(site.runs().is_empty());
    assert_eq!(site.machine("known").await.machine.enrolled, None);
    assert_eq!(site.issuances("built").await, 0);
    for action in ["window.used", "webhook.decision"] {
        assert!(site.told(action).await.is_empty(), "{action}");
    }
}

pub(crate) fn is_requested(fault: &SubmitFault) -> bool {
    let requested = Duplicate::Requested;
    matches!(fault, SubmitFault::Duplicate { duplicate, .. } if *duplicate == requested)
}
