//! Requests that signers elsewhere certify or give up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use countersign_authority::store::{Past, RequestFilter};
use countersign_authority::{
    Act, ActFault, Authority, RequestRecord, RequestState, Settlement, Submission,
};
use countersign_policy::{Policy, Rule, RuleKind};
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::recovery::faulty;
use crate::tripwire::{Step, TripKeys, Wire};
use crate::world::{self, DOOR, TestClock, World, act, client_signer, issuer_id, submission};

/// A request as the Kubernetes door hands it over: it keeps its name.
fn kept(name: &str) -> Submission {
    let mut one = submission(name);
    one.signer = client_signer();
    one.wishes.usages = vec!["client auth".to_owned()];
    one.door = &world::RETAINING;
    one
}

fn certified(authority: &Authority) -> Settlement {
    Settlement::Certified {
        not_before: authority.now(),
        not_after: authority.now().plus_seconds(3600),
        detail: "from elsewhere".to_owned(),
    }
}

fn failed() -> Settlement {
    Settlement::Failed {
        reason: "no".to_owned(),
    }
}

async fn current(authority: &Authority, name: &str) -> RequestRecord {
    let found = authority.requests.at(&DOOR, name, Past::Ignore).await;
    found.unwrap().unwrap()
}

async fn ledger_is_empty(authority: &Authority) -> bool {
    let issuer = issuer_id();
    let page = authority.ledger.newest_of_each(&issuer, None, 10);
    page.await.unwrap().is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_settled_stays_as_it_was_settled_first() {
    use RequestState::{Approved, Denied, Failed, Issued, Pending};
    let World { authority, .. } = &World::new(false).await;
    let approve = || Settlement::Approved {
        reason: "fine".to_owned(),
    };
    // Where it stands, what is done, and where it stands then; `None`: refused.
    let rows: [(RequestState, Vec<Settlement>, Option<RequestState>); 14] = [
        (Pending, vec![certified(authority)], Some(Issued)),
        (Pending, vec![failed()], Some(Failed)),
        (Pending, vec![approve(), failed()], Some(Failed)),
        (Pending, vec![certified(authority), failed()], Some(Issued)),
        (Pending, vec![approve()], None),
        (Pending, vec![], None),
        (Approved, vec![certified(authority)], Some(Issued)),
        (Approved, vec![failed()], Some(Failed)),
        (Denied, vec![certified(authority)], Some(Denied)),
        (Denied, vec![failed()], Some(Denied)),
        (Failed, vec![certified(authority)], Some(Failed)),
        (Failed, vec![approve()], Some(Failed)),
        (Issued, vec![failed(), approve()], Some(Issued)),
        (Issued, vec![certified(authority)], None),
    ];
    for (number, (before, how, after)) in rows.into_iter().enumerate() {
        let name = format!("n{number}");
        let mut one = kept(&name);
        if before == Approved {
            one.signer = countersign_policy::SignerName::parse("example.com/elsewhere").unwrap();
        }
        authority.requests.submit(one).await.unwrap();
        match before {
            Pending => {}
            Approved => drop(authority.requests.approve(act(&name)).await.unwrap()),
            Denied => drop(authority.requests.deny(act(&name)).await.unwrap()),
            Failed => drop(
                authority
                    .requests
                    .settle(act(&name), vec![failed()])
                    .await
                    .unwrap(),
            ),
            Issued => {
                let how = vec![certified(authority)];
                drop(authority.requests.settle(act(&name), how).await.unwrap());
            }
            RequestState::Undecided => unreachable!(),
        }
        let start = current(authority, &name).await;
        assert_eq!(start.state, before, "{name}");
        let with_note = Act {
            attachment: Some(b"note".to_vec()),
            expected: Some(start.version),
            ..act(&name)
        };
        let settled = authority.requests.settle(with_note, how.clone()).await;
        let end = current(authority, &name).await;
        match after {
            Some(state) => {
                assert_eq!(settled.unwrap().version, end.version, "{name} {how:?}");
                assert_eq!((end.state, end.live), (state, true), "{name} {how:?}");
                assert_eq!(end.attachment, b"note", "{name} {how:?}");
                assert_eq!(end.explanation.at, start.explanation.at, "{name} {how:?}");
            }
            None => {
                assert!(settled.is_err(), "{name} {how:?}");
                assert_eq!(end.version, start.version, "{name} {how:?}");
            }
        }
        assert_eq!(end.certificate, None, "{name} {how:?}");
        let stale = Act {
            expected: Some(countersign_authority::Revision(1)),
            ..act(&name)
        };
        let refused = authority.requests.settle(stale, vec![failed()]).await;
        assert!(matches!(refused, Err(ActFault::Conflict { .. })), "{name}");
    }
    assert!(ledger_is_empty(authority).await);
}

fn approving(policy: &Policy) -> Policy {
    Policy {
        generation: policy.generation + 1,
        rules: vec![Rule::approving(
            "all",
            vec![client_signer()],
            RuleKind::Always,
        )],
        ..policy.clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_settled_from_outside_is_never_signed_here() {
    let (folder, keys) = faulty().await;
    let store = Arc::new(world::store(folder.path()));
    let clock = TestClock::new();
    let authority =
        &world::authority(folder.path(), store, keys.clone(), clock.clone(), false).await;
    for name in ["waits-certified", "waits-failed"] {
        authority.requests.submit(kept(name)).await.unwrap();
    }
    // Approved, with an intent that nobody has completed.
    keys.fails.store(true, Ordering::SeqCst);
    for name in ["open-certified", "open-failed"] {
        authority.requests.submit(kept(name)).await.unwrap();
        authority.requests.approve(act(name)).await.unwrap_err();
        let record = current(authority, name).await;
        assert_eq!(record.state, RequestState::Approved, "{name}");
    }
    keys.fails.store(false, Ordering::SeqCst);
    for name in ["waits-certified", "open-certified"] {
        let how = vec![certified(authority)];
        authority.requests.settle(act(name), how).await.unwrap();
    }
    for name in ["waits-failed", "open-failed"] {
        authority
            .requests
            .settle(act(name), vec![failed()])
            .await
            .unwrap();
    }
    authority.set_rules(
        authority
            .rules()
            .with_policy(approving(&authority.rules().policy)),
    );
    assert_eq!(authority.recover().await.unwrap(), 0);
    assert_eq!(authority.requests.reconsider_waiting().await.unwrap(), 0);
    for name in [
        "waits-certified",
        "waits-failed",
        "open-certified",
        "open-failed",
    ] {
        for refused in [
            authority.requests.approve(act(name)).await.map(drop),
            authority.requests.deny(act(name)).await.map(drop),
        ] {
            let is_decided = matches!(refused, Err(ActFault::AlreadyDecided { .. }));
            assert!(is_decided, "{name}: {refused:?}");
        }
        assert!(
            authority.requests.submit(kept(name)).await.is_err(),
            "{name}"
        );
    }
    clock.advance(100_000);
    assert_eq!(authority.recover().await.unwrap(), 0);
    assert!(ledger_is_empty(authority).await);
    let states: Vec<RequestState> = authority
        .requests
        .list(RequestFilter::default())
        .await
        .unwrap()
        .iter()
        .map(|record| record.state)
        .collect();
    use RequestState::{Failed, Issued};
    assert_eq!(states, [Issued, Failed, Issued, Failed]);
    let voided = authority
        .audit
        .after(Default::default(), 1000)
        .await
        .unwrap();
    let voided = voided.iter().filter(|(_, entry)| entry.action == "void");
    assert_eq!(voided.count(), 2, "the serials of both intents are burned");
}

/// Once it is shut, holds a signature up until somebody lets it go on.
#[derive(Clone, Default)]
struct Gate {
    is_shut: Arc<AtomicBool>,
    reached: Arc<Notify>,
    open: Arc<Notify>,
}

impl Wire for Gate {
    fn before(&self, step: Step) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            if step == Step::Sign && self.is_shut.load(Ordering::SeqCst) {
                self.reached.notify_one();
                self.open.notified().await;
            }
            true
        })
    }

    fn after(&self, _: Step) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_signers_the_first_to_be_on_record_wins() {
    let folder = tempfile::tempdir().unwrap();
    world::prepare(folder.path()).await;
    let gate = Gate::default();
    let store = Arc::new(world::store(folder.path()));
    let keys = Arc::new(TripKeys(world::keys(folder.path()), gate.clone()));
    let starting = world::authority(folder.path(), store, keys, TestClock::new(), false);
    let authority = starting.await;
    gate.is_shut.store(true, Ordering::SeqCst);
    for (name, is_first) in [("theirs", true), ("ours", false)] {
        authority.requests.submit(kept(name)).await.unwrap();
        let approving = {
            let authority = authority.clone();
            tokio::spawn(async move { authority.requests.approve(act(name)).await })
        };
        gate.reached.notified().await;
        assert_eq!(
            current(&authority, name).await.state,
            RequestState::Approved
        );
        let how = || vec![certified(&authority)];
        if is_first {
            authority.requests.settle(act(name), how()).await.unwrap();
        }
        gate.open.notify_one();
        let approved = approving.await.unwrap().unwrap();
        assert_eq!(approved.state, RequestState::Issued, "{name}");
        let recorded = approved.into_recorded();
        assert_eq!(recorded.certificate.is_none(), is_first, "{name}");
        assert_eq!(recorded.request.certificate.is_none(), is_first, "{name}");
        let again = authority.requests.settle(act(name), how()).await;
        assert!(matches!(again, Err(ActFault::AlreadyDecided { .. })));
        let entry = authority.ledger.newest(&issuer_id(), name).await;
        assert_eq!(entry.unwrap().is_none(), is_first, "{name}");
    }
}
