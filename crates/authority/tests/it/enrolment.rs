//! Requests through their lives.

use std::sync::Arc;

use countersign_authority::store::{Change, Past, RequestReads as _, Store as _, Write};
use countersign_authority::{
    ActFault, Duplicate, OnUnsignable, ProfileFault, RequestRecord, RequestState, SubmitFault,
};
use countersign_keys::LeafKey;
use countersign_pki::{
    AltName, Certificate, KeyFault, RevocationReason, Weakness, fingerprint_sha256,
};
use countersign_policy::{Deciding, Effect, SignerName, Wishes};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;

use crate::site::is_on_record;
use crate::world::{
    self, DOOR, TestClock, World, act, client_signer, csr, issuer_id, submission, with_csr,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_approves_and_the_certificate_is_issued_at_once() {
    let world = World::new(true).await;
    let submitted = world
        .authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap();
    assert_eq!(submitted.state, RequestState::Issued);

    let issued = submitted.issued.unwrap();
    let certificate = Certificate::parse(issued.der()).unwrap();
    assert_eq!(certificate.subject().to_string(), "CN=web01");
    assert_eq!(certificate.alt_names(), [AltName::Dns("web01".to_owned())]);
    let issuer = world.authority.issuers.get(&issuer_id()).unwrap();
    certificate
        .verify_signed_by(issuer.certificate().spki_der())
        .unwrap();

    let entry = world
        .authority
        .ledger
        .newest(&issuer_id(), "web01")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(entry.der, issued.der());
    let explanation = entry.explanation;
    assert_eq!(explanation.effect, Effect::Approve);
    assert_eq!(explanation.by, Some(Deciding::rule("autosign")));
    assert_eq!(explanation.generation, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_approves_what_waits() {
    let world = World::new(false).await;
    let submitted = world
        .authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap();
    assert_eq!(submitted.state, RequestState::Pending);
    assert!(
        world
            .authority
            .ledger
            .newest(&issuer_id(), "web01")
            .await
            .unwrap()
            .is_none()
    );

    let approved = world
        .authority
        .requests
        .approve(act("web01"))
        .await
        .unwrap();
    assert_eq!(approved.state, RequestState::Issued);
    let recorded = approved.into_recorded();
    is_on_record(&world.authority, &recorded).await;
    assert!(!recorded.request.live, "an issued request frees its name");
    let entry = world
        .authority
        .ledger
        .newest(&issuer_id(), "web01")
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(
        entry.explanation.by,
        Some(Deciding::Person { .. })
    ));
    assert!(matches!(
        world.authority.requests.approve(act("web01")).await,
        Err(ActFault::NotFound { .. })
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persons_lifetime_is_honoured_and_never_outlives_the_issuer() {
    let world = World::new(false).await;
    for (name, asked, expected) in [
        ("short", Some(3600), 3600),
        ("long", Some(u64::MAX), 10 * 365 * 86_400),
        ("usual", None, 5 * 365 * 86_400),
    ] {
        world
            .authority
            .requests
            .submit(submission(name))
            .await
            .unwrap();
        let lifetime = countersign_authority::Act {
            lifetime: asked,
            ..act(name)
        };
        world.authority.requests.approve(lifetime).await.unwrap();
        let entry = world
            .authority
            .ledger
            .newest(&issuer_id(), name)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            entry.not_after.seconds_since(world.authority.now()),
            expected,
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_taken_by_a_request_a_certificate_or_a_revocation() {
    let world = World::new(false).await;
    let duplicate = async |name: &str| match world.authority.requests.submit(submission(name)).await
    {
        Err(SubmitFault::Duplicate { duplicate, .. }) => Some(duplicate),
        _ => None,
    };
    world
        .authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap();
    assert_eq!(duplicate("web01").await, Some(Duplicate::Requested));
    world
        .authority
        .requests
        .approve(act("web01"))
        .await
        .unwrap();
    assert_eq!(duplicate("web01").await, Some(Duplicate::Signed));
    let reason = RevocationReason::KeyCompromise;
    world
        .authority
        .ledger
        .revoke_name(&issuer_id(), "web01", reason, &act("x").actor)
        .await
        .unwrap();
    assert_eq!(duplicate("web01").await, Some(Duplicate::Revoked));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_at_once_exactly_one_gets_the_name() {
    let world = World::new(true).await;
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let authority = world.authority.clone();
            tokio::spawn(
                async move { authority.requests.submit(submission("web01")).await.is_ok() },
            )
        })
        .collect();
    let mut accepted = 0;
    for task in tasks {
        accepted += usize::from(task.await.unwrap());
    }
    assert_eq!(accepted, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_holds_for_name_and_key_and_another_key_may_ask() {
    let world = World::new(false).await;
    let key = LeafKey::generate().unwrap();
    world
        .authority
        .requests
        .submit(with_csr("web01", csr(&key, "web01", &[])))
        .await
        .unwrap();
    let record = world.authority.requests.deny(act("web01")).await.unwrap();
    assert_eq!(record.state, RequestState::Denied);

    let again = world
        .authority
        .requests
        .submit(with_csr("web01", csr(&key, "web01", &[])))
        .await;
    assert!(
        matches!(again, Err(SubmitFault::Denied { .. })),
        "{again:?}"
    );
    let other = world
        .authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap();
    assert_eq!(other.state, RequestState::Pending);

    // Not even a detour over another key lifts it, denied or issued and cleaned.
    world.authority.requests.deny(act("web01")).await.unwrap();
    let again = || {
        world
            .authority
            .requests
            .submit(with_csr("web01", csr(&key, "web01", &[])))
    };
    assert!(matches!(again().await, Err(SubmitFault::Denied { .. })));
    world
        .authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap();
    world
        .authority
        .requests
        .approve(act("web01"))
        .await
        .unwrap();
    assert!(
        matches!(again().await, Err(SubmitFault::Duplicate { .. })),
        "the name is taken"
    );
    world
        .authority
        .ledger
        .retire(&issuer_id(), "web01", &DOOR, &act("x").actor)
        .await
        .unwrap();
    assert!(matches!(again().await, Err(SubmitFault::Denied { .. })));
    // Deleting the request does.
    world.authority.requests.delete(act("web01")).await.unwrap();
    assert_eq!(again().await.unwrap().state, RequestState::Pending);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_signer_cannot_sign_is_stored_with_the_reason_and_asks_no_rule() {
    let world = World::new(true).await;
    let wide = csr(
        &LeafKey::generate().unwrap(),
        "web01",
        &[AltName::Dns("puppet".to_owned())],
    );
    let submitted = world
        .authority
        .requests
        .submit(with_csr("web01", wide))
        .await
        .unwrap();
    assert!(matches!(
        submitted.unsignable,
        Some(ProfileFault::AltNames { .. })
    ));
    assert!(submitted.automatic);

    let record = world
        .authority
        .requests
        .at(&DOOR, "web01", Past::Ignore)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(record.state, RequestState::Pending);
    assert_eq!(record.explanation.by, Some(Deciding::Profile));
    assert!(record.failure.unwrap().contains("DNS:puppet"));

    let refused = world.authority.requests.approve(act("web01")).await;
    assert!(
        matches!(refused, Err(ActFault::Unsignable { .. })),
        "{refused:?}"
    );
    let recorded = countersign_authority::Act {
        on_unsignable: OnUnsignable::RecordFailure,
        ..act("web01")
    };
    let approved = world.authority.requests.approve(recorded).await.unwrap();
    assert_eq!(approved.state, RequestState::Failed);
    assert!(approved.into_recorded().request.certificate.is_none());
}

/// It waits since before anybody looked for such keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_weak_key_that_waits_is_not_approved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    world::prepare(path).await;
    let (store, keys) = (Arc::new(world::store(path)), Arc::new(world::keys(path)));
    let authority = world::authority(path, store.clone(), keys, TestClock::new(), false).await;
    let submitted = authority.requests.submit(submission("web01")).await;
    let id = submitted.unwrap().id;
    let record = store.request(id).await.unwrap().unwrap();
    let weak = keys::roca_spki_der();
    let csr = CsrBuilder::new("web01").public_key(weak.clone());
    let stored = RequestRecord {
        csr_der: csr.sign(keys::p256_a()),
        key_fingerprint: fingerprint_sha256(&weak),
        ..record
    };
    let change = Change {
        writes: vec![Write::DeleteRequest(id), Write::InsertRequest(stored)],
        ..Change::default()
    };
    store.commit(change).await.unwrap();
    let refused = authority.requests.approve(act("web01")).await;
    let Err(ActFault::Unsignable { fault, .. }) = &refused else {
        panic!("{refused:?}");
    };
    let weakness = Weakness::Key(KeyFault::Roca);
    assert_eq!(*fault, ProfileFault::Weak { weakness });
    let denied = authority.requests.deny(act("web01")).await.unwrap();
    assert_eq!(denied.state, RequestState::Denied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_signer_is_recorded_and_never_signed_here() {
    let world = World::new(true).await;
    let mut foreign = submission("web01");
    foreign.signer = SignerName::parse("other.example/ca").unwrap();
    world.authority.requests.submit(foreign).await.unwrap();
    let record = world
        .authority
        .requests
        .approve(act("web01"))
        .await
        .unwrap()
        .into_recorded()
        .request;
    assert_eq!(record.state, RequestState::Approved);
    assert!(record.certificate.is_none());
    let world = world.restart(true).await;
    let record = world
        .authority
        .requests
        .get(record.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        record.state,
        RequestState::Approved,
        "recovery leaves it alone"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn usages_are_bounded_by_the_signer() {
    let world = World::new(false).await;
    for (name, usages, expected) in [
        ("good", vec!["client auth", "digital signature"], None),
        ("missing", vec!["digital signature"], Some("client auth")),
        (
            "foreign",
            vec!["client auth", "cert sign"],
            Some("cert sign"),
        ),
    ] {
        let mut asked = submission(name);
        asked.signer = client_signer();
        asked.wishes = Wishes {
            usages: usages.into_iter().map(str::to_owned).collect(),
            expiration_seconds: None,
        };
        let submitted = world.authority.requests.submit(asked).await.unwrap();
        let fault = submitted
            .unsignable
            .map(|fault| fault.to_string())
            .unwrap_or_default();
        assert_eq!(fault.is_empty(), expected.is_none(), "{name}: {fault}");
        assert!(
            fault.contains(expected.unwrap_or_default()),
            "{name}: {fault}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_version_is_a_conflict() {
    let world = World::new(false).await;
    let submitted = world
        .authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap();
    let attach = countersign_authority::Act {
        attachment: Some(b"x".to_vec()),
        ..act("web01")
    };
    let record = world.authority.requests.attach(attach).await.unwrap();
    assert!(record.version > submitted.version);
    let stale = countersign_authority::Act {
        expected: Some(submitted.version),
        ..act("web01")
    };
    assert!(matches!(
        world.authority.requests.approve(stale).await,
        Err(ActFault::Conflict { .. })
    ));
}
