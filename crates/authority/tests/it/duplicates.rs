//! A name that asks again, where the signer allows it: Puppet's `allow_duplicate_certs`. And how many may wait.

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use countersign_authority::store::Past;
use countersign_authority::{
    ActFault, AuditEntry, Authority, Duplicate, Limits, OnWaiting, RequestState, Submission,
    SubmitFault, Submitted,
};
use countersign_keys::LeafKey;
use countersign_pki::RevocationReason;
use countersign_policy::{Apex, Policy, Requester, Rule, RuleKind};

use crate::profiles;
use crate::world::{
    self, DOOR, TestClock, act, agent_signer, csr, issuer_id, submission, with_csr,
};

/// An authority whose agents may ask again, and the folder it stands on.
struct Lenient {
    folder: tempfile::TempDir,
    clock: Arc<TestClock>,
    authority: Authority,
}

impl Lenient {
    async fn new(policy: Policy, limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        world::prepare(folder.path()).await;
        let agents = world::TestSigner {
            name: agent_signer(),
            profile: profiles::agent(world::settings()),
            one_certificate_per_name: false,
            on_waiting: OnWaiting::Replace,
        };
        let clock = TestClock::new();
        let authority = world::authority_of(
            folder.path(),
            Arc::new(world::store(folder.path())),
            Arc::new(world::keys(folder.path())),
            clock.clone(),
            policy,
            vec![agents],
            limits,
        )
        .await;
        Self {
            folder,
            clock,
            authority,
        }
    }

    async fn waiting() -> Self {
        Self::new(world::policy(false), Limits::STANDARD).await
    }

    async fn submit(&self, name: &str) -> Result<Submitted, SubmitFault> {
        self.authority.requests.submit(submission(name)).await
    }

    /// The entries of the audit log about one kind of act.
    async fn told(&self, action: &str) -> Vec<AuditEntry> {
        let log = self.authority.audit.after(Default::default(), 1000).await;
        let entries = log.unwrap().into_iter().map(|(_, entry)| entry);
        entries.filter(|entry| entry.action == action).collect()
    }

    async fn pending(&self) -> usize {
        let filter = countersign_authority::store::RequestFilter {
            states: vec![RequestState::Pending],
            ..Default::default()
        };
        self.authority.requests.list(filter).await.unwrap().len()
    }

    async fn serials_of(&self, name: &str) -> Vec<String> {
        let newest = self.authority.ledger.newest(&issuer_id(), name).await;
        newest
            .unwrap()
            .into_iter()
            .map(|entry| entry.serial.to_string())
            .collect()
    }
}

fn is_duplicate(outcome: &Result<Submitted, SubmitFault>) -> bool {
    let requested = Duplicate::Requested;
    matches!(outcome, Err(SubmitFault::Duplicate { duplicate, .. }) if *duplicate == requested)
}

#[tokio::test]
async fn a_new_request_takes_the_place_of_one_that_waits() {
    let site = Lenient::waiting().await;
    let first = site.submit("web01").await.unwrap();
    let second = site.submit("web01").await.unwrap();
    assert_eq!(second.state, RequestState::Pending);
    let live = site
        .authority
        .requests
        .at(&DOOR, "web01", Past::Ignore)
        .await;
    assert_eq!(live.unwrap().unwrap().id, second.id);
    assert!(
        site.authority
            .requests
            .get(first.id)
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(site.pending().await, 1, "what is replaced is not kept");
    let audit = site
        .authority
        .audit
        .after(Default::default(), 100)
        .await
        .unwrap();
    let replaced = audit
        .iter()
        .find(|(_, entry)| entry.action == "replace")
        .unwrap();
    assert_eq!(replaced.1.request, Some(first.id.to_string()));
}

/// Each would leave two entries that nobody ever deletes.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_replacements_of_a_source_and_name_are_counted() {
    let site = Lenient::waiting().await;
    let ask = async |name: &str, last: u8| {
        let submission = Submission {
            requester: Requester::anonymous(Some(IpAddr::from([192, 0, 2, last]))),
            ..submission(name)
        };
        let submitted = site.authority.requests.submit(submission).await.unwrap();
        assert_eq!(submitted.state, RequestState::Pending);
    };
    for _ in 0..30 {
        ask("web01", 1).await;
    }
    let told = async || {
        let (replaced, requested) = (site.told("replace").await, site.told("request").await);
        (replaced.len(), requested.len())
    };
    assert_eq!(told().await, (1, 2), "the first one");
    // Whoever takes the place of somebody else's is seen.
    ask("web01", 2).await;
    ask("web02", 2).await;
    ask("web02", 1).await;
    assert_eq!(told().await, (3, 5), "by source, and by name");
    site.clock.advance(3600);
    let requests = &site.authority.requests;
    requests.tell_repeated_denials().await.unwrap();
    let repeated = site.told("repeat").await;
    let [entry] = repeated.as_slice() else {
        panic!("{repeated:?}");
    };
    let source = Some(IpAddr::from([192, 0, 2, 1]));
    assert_eq!(entry.actor.source, source);
    assert_eq!((&*entry.reason, &*entry.subject), ("replaced", "test"));
    assert!(
        entry.detail.starts_with("28 more took the place of"),
        "{entry:?}"
    );
    assert!(entry.detail.ends_with("for \"web01\""), "{entry:?}");
    ask("web01", 1).await;
    assert_eq!(told().await, (4, 6), "the next hour");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_new_request_is_decided_anew() {
    let site = Lenient::waiting().await;
    let path = site.folder.path().join("autosign.conf");
    let mut policy = world::policy(false);
    policy.rules.push(Rule::approving(
        "autosign",
        vec![agent_signer()],
        RuleKind::AutosignFile {
            path: path.clone(),
            apex: Apex::Excluded,
        },
    ));
    site.authority
        .set_rules(site.authority.rules().with_policy(policy));
    assert_eq!(
        site.submit("web01").await.unwrap().state,
        RequestState::Pending
    );
    std::fs::write(&path, "web01\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(
        site.submit("web01").await.unwrap().state,
        RequestState::Issued
    );
    assert_eq!(site.pending().await, 0);
}

#[tokio::test]
async fn a_signed_name_gets_another_certificate_and_the_old_one_stays_valid() {
    let site = Lenient::new(world::policy(true), Limits::STANDARD).await;
    let old = site.submit("web01").await.unwrap().issued.unwrap();
    let new = site.submit("web01").await.unwrap().issued.unwrap();
    assert_eq!(
        site.serials_of("web01").await,
        [new.intent().serial.to_string()]
    );
    let old_entry = site
        .authority
        .ledger
        .get(&issuer_id(), &old.intent().serial)
        .await;
    assert!(old_entry.unwrap().unwrap().revoked.is_none());
    assert!(
        !site
            .authority
            .ledger
            .is_revoked(&issuer_id(), &old.intent().serial)
    );
}

#[tokio::test]
async fn a_signed_or_revoked_names_request_waits_beside_its_certificate() {
    let site = Lenient::waiting().await;
    for revoked in [false, true] {
        let name = format!("web{}", u8::from(revoked));
        site.submit(&name).await.unwrap();
        site.authority.requests.approve(act(&name)).await.unwrap();
        let serial = site.serials_of(&name).await;
        if revoked {
            let by = world::administrator();
            let reason = RevocationReason::KeyCompromise;
            let issuer = issuer_id();
            let revoking = site
                .authority
                .ledger
                .revoke_name(&issuer, &name, reason, &by);
            revoking.await.unwrap();
        }
        assert_eq!(
            site.submit(&name).await.unwrap().state,
            RequestState::Pending
        );
        assert_eq!(
            site.serials_of(&name).await,
            serial,
            "nothing is signed yet"
        );
        site.authority.requests.approve(act(&name)).await.unwrap();
        assert_ne!(site.serials_of(&name).await, serial);
    }
}

#[tokio::test]
async fn a_persons_denial_holds_for_its_key() {
    let site = Lenient::waiting().await;
    let key = LeafKey::generate().unwrap();
    let again = || with_csr("web01", csr(&key, "web01", &[]));
    site.authority.requests.submit(again()).await.unwrap();
    site.authority.requests.deny(act("web01")).await.unwrap();
    let denied = site.authority.requests.submit(again()).await;
    assert!(
        matches!(denied, Err(SubmitFault::Denied { .. })),
        "{denied:?}"
    );
    // Another key is another request; it does not lift the denial of the first.
    site.submit("web01").await.unwrap();
    let denied = site.authority.requests.submit(again()).await;
    assert!(
        matches!(denied, Err(SubmitFault::Denied { .. })),
        "{denied:?}"
    );
}

/// However many ask for one name at once, one request waits in the end, and each that was acknowledged was it once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_race_for_one_name_leaves_one_request() {
    let site = Lenient::waiting().await;
    let mut racing = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let authority = site.authority.clone();
        racing.spawn(async move { authority.requests.submit(submission("web01")).await });
    }
    let outcomes = racing.join_all().await;
    let acknowledged = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert!(acknowledged > 0, "{outcomes:?}");
    for outcome in &outcomes {
        let is_contended = matches!(outcome, Err(SubmitFault::Engine(_)));
        assert!(outcome.is_ok() || is_contended, "{outcome:?}");
    }
    assert_eq!(site.pending().await, 1);
}

/// An approval signs the request that it was given for or fails: a replacement never slips in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_approval_never_signs_a_request_that_replaced_the_one_it_was_given_for() {
    let site = Lenient::waiting().await;
    for round in 0..20 {
        let name = format!("web{round}");
        let first = site.submit(&name).await.unwrap();
        let seen = site
            .authority
            .requests
            .get(first.id)
            .await
            .unwrap()
            .unwrap();
        let approval = countersign_authority::Act {
            expected: Some(seen.version),
            ..act(&name)
        };
        let (approver, agent) = (site.authority.clone(), site.authority.clone());
        let again: Submission = submission(&name);
        let approving = tokio::spawn(async move { approver.requests.approve(approval).await });
        let asking = tokio::spawn(async move { agent.requests.submit(again).await });
        let (approved, asked) = (approving.await.unwrap(), asking.await.unwrap());
        match approved {
            Ok(record) => {
                assert_eq!((record.id, record.state), (first.id, RequestState::Issued));
                // It came before, or after: then it waits beside the certificate, or was told that the name is taken.
                assert!(asked.is_ok() || is_duplicate(&asked), "{asked:?}");
            }
            Err(ActFault::Conflict { .. }) => {
                assert!(asked.is_ok(), "{asked:?}");
                assert_eq!(site.serials_of(&name).await, Vec::<String>::new());
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn from(name: &str, source: [u8; 4]) -> Submission {
    Submission {
        requester: Requester::anonymous(Some(IpAddr::from(source))),
        ..submission(name)
    }
}

#[tokio::test]
async fn so_many_of_one_address_wait_and_no_more() {
    let limits = Limits {
        pending_per_source: 2,
        ..Limits::STANDARD
    };
    let site = Lenient::new(world::policy(false), limits).await;
    let (loud, other) = ([192, 0, 2, 7], [192, 0, 2, 8]);
    let submit = |name: &'static str, source| site.authority.requests.submit(from(name, source));
    submit("web01", loud).await.unwrap();
    submit("web02", loud).await.unwrap();
    let refused = submit("web03", loud).await.unwrap_err();
    let SubmitFault::TooManyWaiting { limit, .. } = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(limit, 2);
    let at = site
        .authority
        .requests
        .at(&DOOR, "web03", Past::Include)
        .await;
    assert!(at.unwrap().is_none(), "nothing is stored");
    submit("web04", other).await.unwrap();
    // What takes the place of one that waits is not one more.
    submit("web02", loud).await.unwrap();
    // Room again.
    site.authority.requests.delete(act("web01")).await.unwrap();
    submit("web03", loud).await.unwrap();
    // What a rule signs does not wait.
    site.authority
        .set_rules(site.authority.rules().with_policy(world::policy(true)));
    let signed = submit("web05", loud).await.unwrap();
    assert_eq!(signed.state, RequestState::Issued);
}

#[tokio::test]
async fn zero_is_no_limit_and_a_taken_name_is_told_first() {
    for (pending_per_source, taken) in [(0, 3), (1, 1)] {
        let limits = Limits {
            pending_per_source,
            ..Limits::STANDARD
        };
        let site = Lenient::new(world::policy(false), limits).await;
        for number in 0..taken {
            site.submit(&format!("web{number}")).await.unwrap();
        }
    }
    // With the usual rule for duplicates a host that asks again hears that it has asked.
    let folder = tempfile::tempdir().unwrap();
    world::prepare(folder.path()).await;
    let limits = Limits {
        pending_per_source: 1,
        ..Limits::STANDARD
    };
    let profile = profiles::agent(world::settings());
    let authority = world::authority_limited(
        folder.path(),
        Arc::new(world::store(folder.path())),
        Arc::new(world::keys(folder.path())),
        TestClock::new(),
        world::policy(false),
        vec![(agent_signer(), profile, true)],
        limits,
    )
    .await;
    authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap();
    let again = authority.requests.submit(submission("web01")).await;
    assert!(is_duplicate(&again), "{again:?}");
    let other = authority.requests.submit(submission("web02")).await;
    assert!(
        matches!(other, Err(SubmitFault::TooManyWaiting { .. })),
        "{other:?}"
    );
}
