//! The invariants of docs/architecture.md, as far as the engine carries them.

use countersign_authority::store::{Change, Past, RequestFilter, Store as _, Write};
use countersign_authority::{
    Clock as _, Duplicate, LedgerEntry, RequestId, RequestState, Revoked, SubmitFault,
};
use countersign_keys::LeafKey;
use countersign_pki::{
    AltName, Certificate, Crl, RevocationReason, Serial, ext, fingerprint_sha256, oid,
};
use countersign_policy::{Effect, Explanation, Wishes};
use countersign_testkit::csr::CsrBuilder;

use crate::site::is_on_record;
use crate::world::{
    DOOR, RETAINING, TestClock, World, act, agent_signer, client_signer, csr, issuer_id, prepare,
    store, submission, with_csr,
};

#[tokio::test(flavor = "multi_thread")]
async fn no_certificate_without_a_decision() {
    let world = World::new(true).await;
    for (name, signer) in [("a", agent_signer()), ("b", client_signer())] {
        let mut asked = submission(name);
        asked.signer = signer;
        asked.wishes = Wishes {
            usages: vec!["client auth".to_owned()],
            expiration_seconds: None,
        };
        world.authority.requests.submit(asked).await.unwrap();
    }
    world.authority.requests.approve(act("b")).await.unwrap();
    let all = world
        .authority
        .ledger
        .newest_of_each(&issuer_id(), None, 100)
        .await
        .unwrap();
    assert_eq!(all.len(), 2);
    for entry in all {
        assert_eq!(entry.explanation.effect, Effect::Approve, "{}", entry.name);
        assert!(entry.explanation.by.is_some(), "{}", entry.name);
        let record = world
            .authority
            .requests
            .get(entry.request)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(record.state, RequestState::Issued);
        assert_eq!(record.explanation, entry.explanation);
    }
    let audit = world
        .authority
        .audit
        .after(Default::default(), 100)
        .await
        .unwrap();
    let actions: Vec<_> = audit
        .iter()
        .map(|(_, entry)| entry.action.as_ref())
        .collect();
    assert_eq!(
        actions,
        ["crl", "request", "issue", "request", "approve", "issue"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_stays_out() {
    let world = World::new(true).await;
    let issued = world
        .authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap()
        .issued
        .unwrap();
    let serial = issued.intent().serial;
    let before = world
        .authority
        .issuers
        .crl(&issuer_id())
        .unwrap()
        .record
        .number;
    let actor = act("x").actor;
    let issuer = issuer_id();
    let revoke = || {
        world.authority.ledger.revoke_name(
            &issuer,
            "web01",
            RevocationReason::KeyCompromise,
            &actor,
        )
    };
    assert_eq!(revoke().await.unwrap(), 1);
    assert_eq!(revoke().await.unwrap(), 0, "revoking again changes nothing");
    assert!(world.authority.ledger.is_revoked(&issuer_id(), &serial));
    let crl = world.authority.issuers.crl(&issuer_id()).unwrap();
    assert_eq!(crl.record.number, before + 1, "one operation, one number");
    let parsed = Crl::parse(&crl.record.der).unwrap();
    assert!(parsed.serials().any(|listed| listed == serial));

    let refused = world.authority.requests.submit(submission("web01")).await;
    assert!(
        matches!(
            refused,
            Err(SubmitFault::Duplicate {
                duplicate: Duplicate::Revoked,
                ..
            })
        ),
        "{refused:?}"
    );
    let world = world.restart(true).await;
    assert!(world.authority.ledger.is_revoked(&issuer_id(), &serial));
    assert_eq!(
        world
            .authority
            .issuers
            .crl(&issuer_id())
            .unwrap()
            .record
            .number,
        crl.record.number,
        "a complete CRL is not made anew"
    );
}

/// Nobody waits for a list of thousands; the doors know the revocation at once, and the list follows.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_crl_follows_its_revocation() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path()).await;
    let clock = TestClock::new();
    let (issuer, now) = (issuer_id(), clock.now());
    let revoked = (1u64..=5000).map(|number| {
        Write::Import(LedgerEntry {
            issuer: issuer.clone(),
            serial: Serial::try_from(number).unwrap(),
            request: RequestId::in_sequence(now, 0, [0; 6]),
            signer: agent_signer(),
            name: format!("old{number}"),
            key_fingerprint: fingerprint_sha256(b""),
            not_before: now,
            not_after: now.plus_seconds(86_400),
            der: Vec::new(),
            explanation: Explanation::new(Effect::Approve, now, 0),
            revoked: Some(Revoked {
                at: now,
                reason: RevocationReason::Superseded,
            }),
            retired: Some(now),
        })
    });
    let change = Change {
        writes: revoked.collect(),
        ..Change::default()
    };
    store(folder.path()).commit(change).await.unwrap();
    let world = World::on(folder, clock, true).await;
    let mut news = world.authority.issuers.crl_news(&issuer).unwrap();
    let issued = world
        .authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap();
    let serial = issued.issued.unwrap().intent().serial;
    let (reason, actor) = (RevocationReason::KeyCompromise, act("x").actor);
    let revoking = world
        .authority
        .ledger
        .revoke_name(&issuer, "web01", reason, &actor);
    assert_eq!(revoking.await.unwrap(), 1);
    assert!(world.authority.ledger.is_revoked(&issuer, &serial));
    let listed = async {
        loop {
            let crl = world.authority.issuers.crl(&issuer).unwrap();
            let parsed = Crl::parse(&crl.record.der).unwrap();
            if parsed.serials().any(|listed| listed == serial) {
                return parsed.entries().len();
            }
            news.changed().await.unwrap();
        }
    };
    let listed = tokio::time::timeout(std::time::Duration::from_secs(30), listed).await;
    assert_eq!(listed.unwrap(), 5001);
}

#[tokio::test(flavor = "multi_thread")]
async fn deny_by_default() {
    let world = World::new(false).await;
    for name in ["a", "b", "c"] {
        let submitted = world
            .authority
            .requests
            .submit(submission(name))
            .await
            .unwrap();
        assert_eq!(submitted.state, RequestState::Pending);
    }
    assert_eq!(world.authority.recover().await.unwrap(), 0);
    assert!(
        world
            .authority
            .ledger
            .newest_of_each(&issuer_id(), None, 10)
            .await
            .unwrap()
            .is_empty()
    );

    // Not even a rule that approves everything approves the authority's own name.
    let world = World::new(true).await;
    let own = world
        .authority
        .requests
        .submit(submission("ca.example.com"))
        .await
        .unwrap();
    assert_eq!(own.state, RequestState::Pending);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_not_widened() {
    let world = World::new(true).await;
    let key = countersign_testkit::keys::p256_a();
    let oid = |name| oid::registered_oid(name).unwrap();
    let is_ca = ext::basic_constraints_ca();
    let hostile: Vec<(&str, Vec<u8>)> = vec![
        (
            "extra dns",
            CsrBuilder::new("web01").dns("puppet").sign(key),
        ),
        (
            "own name and another",
            CsrBuilder::new("web01").dns("web01").dns("ca").sign(key),
        ),
        (
            "address",
            CsrBuilder::new("web01").ip([10, 0, 0, 1].into()).sign(key),
        ),
        (
            "auth extension",
            CsrBuilder::new("web01")
                .extension(&oid("pp_auth_role"), "x")
                .sign(key),
        ),
        (
            "administrator",
            CsrBuilder::new("web01")
                .extension(&oid("pp_cli_auth"), "true")
                .sign(key),
        ),
        (
            "ca bit",
            CsrBuilder::new("web01")
                .raw_extension(&is_ca.oid, Some(true), &is_ca.value)
                .sign(key),
        ),
    ];
    for (case, der) in hostile {
        let csr = countersign_pki::CheckedCsr::check(&der, &countersign_pki::CsrLimits::STANDARD)
            .unwrap();
        let submitted = world
            .authority
            .requests
            .submit(with_csr("web01", csr))
            .await
            .unwrap();
        assert!(submitted.unsignable.is_some(), "{case}");
        world.authority.requests.delete(act("web01")).await.unwrap();
    }
    assert!(
        world
            .authority
            .ledger
            .newest(&issuer_id(), "web01")
            .await
            .unwrap()
            .is_none()
    );

    let plain = CsrBuilder::new("web01")
        .dns("web01")
        .extension(&oid("pp_role"), "web")
        .sign(key);
    let csr =
        countersign_pki::CheckedCsr::check(&plain, &countersign_pki::CsrLimits::STANDARD).unwrap();
    let issued = world
        .authority
        .requests
        .submit(with_csr("web01", csr))
        .await
        .unwrap()
        .issued
        .unwrap();
    let certificate = Certificate::parse(issued.der()).unwrap();
    assert_eq!(certificate.alt_names(), [AltName::Dns("web01".to_owned())]);
    assert!(!certificate.is_ca());
    assert!(certificate.extension(&oid::PP_CLI_AUTH).is_none());
    assert_eq!(
        certificate
            .extension(&oid("pp_role"))
            .unwrap()
            .text_value()
            .as_deref(),
        Some("web")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_frees_its_name_and_leaves_the_ledger() {
    let world = World::new(false).await;
    let mut kept = with_csr("obj", csr(&LeafKey::generate().unwrap(), "obj", &[]));
    kept.door = &RETAINING;
    world.authority.requests.submit(kept).await.unwrap();
    let approved = world.authority.requests.approve(act("obj")).await.unwrap();
    let recorded = approved.into_recorded();
    is_on_record(&world.authority, &recorded).await;
    assert!(recorded.request.live, "a retained request keeps its name");
    world.authority.requests.delete(act("obj")).await.unwrap();
    assert!(
        world
            .authority
            .requests
            .at(&DOOR, "obj", Past::Include)
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        world
            .authority
            .requests
            .list(RequestFilter::default())
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        world
            .authority
            .ledger
            .newest(&issuer_id(), "obj")
            .await
            .unwrap()
            .is_some()
    );
}

/// The group that passes every check of an API server is not to be had by asking, and a subject of which
/// nothing survives names nobody.
#[tokio::test(flavor = "multi_thread")]
async fn names_are_not_widened_by_groups_or_by_what_is_dropped() {
    let world = World::new(false).await;
    let key = countersign_testkit::keys::p256_a();
    let email = countersign_pki::Oid::parse("1.2.840.113549.1.9.1").unwrap();
    let nobody = || CsrBuilder::without_subject().name(&email, 22, b"x@example.com");
    for (case, der, accepted) in [
        (
            "masters",
            CsrBuilder::new("eve")
                .organization("system:masters")
                .sign(key),
            false,
        ),
        (
            "second group",
            CsrBuilder::new("eve")
                .organization("a")
                .organization("system:masters")
                .sign(key),
            false,
        ),
        ("nothing survives", nobody().sign(key), false),
        (
            "an alternative name is left",
            nobody().dns("a.example.com").sign(key),
            true,
        ),
    ] {
        let csr = countersign_pki::CheckedCsr::check(&der, &countersign_pki::CsrLimits::STANDARD)
            .unwrap();
        let mut asked = with_csr("obj", csr);
        asked.signer = client_signer();
        asked.wishes.usages = vec!["client auth".to_owned()];
        let submitted = world.authority.requests.submit(asked).await.unwrap();
        assert_eq!(
            submitted.unsignable.is_none(),
            accepted,
            "{case}: {:?}",
            submitted.unsignable
        );
        if accepted {
            let approved = world.authority.requests.approve(act("obj")).await.unwrap();
            let issued = approved.issued.unwrap();
            let certificate = Certificate::parse(issued.der()).unwrap();
            assert!(certificate.subject().is_empty(), "{case}");
            let names = certificate.extension(&oid::SUBJECT_ALT_NAME).unwrap();
            assert!(
                names.critical,
                "RFC 5280 4.2.1.6: the only name is critical"
            );
        } else {
            world.authority.requests.delete(act("obj")).await.unwrap();
        }
    }
}
