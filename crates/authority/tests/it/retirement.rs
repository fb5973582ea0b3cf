//! Names leave the books and come back.

use countersign_authority::store::Past;
use countersign_authority::{Duplicate, RequestState, Retired, SubmitFault};
use countersign_pki::{Crl, RevocationReason, Serial};

use crate::world::{DOOR, World, act, issuer_id, submission};

async fn issue(world: &World, name: &str) -> Serial {
    let submitted = world
        .authority
        .requests
        .submit(submission(name))
        .await
        .unwrap();
    submitted.issued.unwrap().intent().serial
}

async fn retire(world: &World, name: &str) -> Retired {
    world
        .authority
        .ledger
        .retire(&issuer_id(), name, &DOOR, &act("x").actor)
        .await
        .unwrap()
}

async fn newest(world: &World, name: &str) -> Option<Serial> {
    let entry = world.authority.ledger.newest(&issuer_id(), name).await;
    entry.unwrap().map(|entry| entry.serial)
}

async fn actions(world: &World) -> Vec<(String, String)> {
    let all = world.authority.audit.after(Default::default(), 1000).await;
    let entries = all.unwrap().into_iter().map(|(_, entry)| entry);
    entries
        .map(|entry| (entry.action.into_owned(), entry.subject))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retired_name_may_enrol_again_and_its_certificate_lives_on() {
    let world = World::new(true).await;
    let first = issue(&world, "web01").await;
    assert_eq!(retire(&world, "web01").await, Retired::Something);
    assert_eq!(newest(&world, "web01").await, None);
    let issuer = issuer_id();
    assert!(!world.authority.ledger.is_revoked(&issuer, &first));
    assert!(
        world
            .authority
            .ledger
            .has_certificates(&issuer, "web01")
            .await
            .unwrap()
    );

    let second = issue(&world, "web01").await;
    assert_eq!(newest(&world, "web01").await, Some(second));
    let actor = act("x").actor;
    let reason = RevocationReason::KeyCompromise;
    let revoked = world
        .authority
        .ledger
        .revoke_name(&issuer, "web01", reason, &actor);
    assert_eq!(
        revoked.await.unwrap(),
        2,
        "a retired certificate is revoked too"
    );
    assert!(world.authority.ledger.is_revoked(&issuer, &first));

    assert_eq!(retire(&world, "web01").await, Retired::Something);
    assert_eq!(
        retire(&world, "web01").await,
        Retired::Something,
        "still on record"
    );
    assert_eq!(retire(&world, "nobody").await, Retired::Nothing);
    let clean = ("clean".to_owned(), format!("{issuer}/web01"));
    assert!(actions(&world).await.contains(&clean));
    let world = world.restart(true).await;
    assert_eq!(newest(&world, "web01").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_request_is_forgotten_and_a_persons_denial_is_not() {
    let world = World::new(false).await;
    world
        .authority
        .requests
        .submit(submission("waits"))
        .await
        .unwrap();
    world
        .authority
        .requests
        .submit(submission("denied"))
        .await
        .unwrap();
    world.authority.requests.deny(act("denied")).await.unwrap();
    assert_eq!(retire(&world, "waits").await, Retired::Something);
    assert_eq!(retire(&world, "waits").await, Retired::Nothing);
    assert_eq!(retire(&world, "denied").await, Retired::Nothing);
    let at = async |name| {
        let record = world
            .authority
            .requests
            .at(&DOOR, name, Past::Include)
            .await;
        record.unwrap().map(|record| record.state)
    };
    assert_eq!(at("waits").await, None);
    assert_eq!(at("denied").await, Some(RequestState::Denied));
    let delete = ("delete".to_owned(), "test/waits".to_owned());
    assert!(actions(&world).await.contains(&delete));
}

#[tokio::test(flavor = "multi_thread")]
async fn cleaning_revokes_and_retires_all_names_with_one_list() {
    let world = World::new(true).await;
    let issuer = issuer_id();
    let [a, b, kept] = [
        issue(&world, "a").await,
        issue(&world, "b").await,
        issue(&world, "kept").await,
    ];
    let refused = world.authority.requests.submit(submission("a")).await;
    let signed = Duplicate::Signed;
    assert!(
        matches!(refused, Err(SubmitFault::Duplicate { duplicate, .. }) if duplicate == signed)
    );

    let before = world.authority.issuers.crl(&issuer).unwrap().record.number;
    let clean = async |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let (reason, actor) = (RevocationReason::KeyCompromise, act("x").actor);
        let cleaned = world.authority.ledger.clean(&issuer, names, reason, &actor);
        cleaned.await.unwrap()
    };
    assert_eq!(clean(&["a", "nobody", "b"]).await, ["nobody"]);
    let crl = world.authority.issuers.crl(&issuer).unwrap();
    assert_eq!(crl.record.number, before + 1, "one operation, one number");
    let mut listed: Vec<Serial> = Crl::parse(&crl.record.der).unwrap().serials().collect();
    listed.sort();
    let mut expected = vec![a, b];
    expected.sort();
    assert_eq!(listed, expected);
    assert!(world.authority.ledger.is_revoked(&issuer, &a));
    assert!(!world.authority.ledger.is_revoked(&issuer, &kept));
    assert_eq!(newest(&world, "a").await, None);
    assert_eq!(newest(&world, "kept").await, Some(kept));

    assert_eq!(clean(&["a"]).await, Vec::<String>::new());
    assert_eq!(clean(&[]).await, Vec::<String>::new());
    let number = world.authority.issuers.crl(&issuer).unwrap().record.number;
    assert_eq!(number, before + 1, "nothing new to list");
    issue(&world, "a").await;

    let world = world.restart(true).await;
    assert!(world.authority.ledger.is_revoked(&issuer, &b));
}
