//! Entries leave the CRL before their time; what is revoked stays revoked.

use std::collections::BTreeSet;

use countersign_pki::{Crl, RevocationReason, Serial};

use crate::world::{World, act, issuer_id, submission};

async fn revoked(world: &World, name: &str) -> Serial {
    let submitted = world.authority.submit(submission(name)).await.unwrap();
    let serial = submitted.issued.unwrap().intent().serial;
    let reason = RevocationReason::KeyCompromise;
    let (issuer, actor) = (issuer_id(), act("x").actor);
    let revoking = world.authority.revoke_name(&issuer, name, reason, &actor);
    revoking.await.unwrap();
    serial
}

fn published(world: &World) -> (u64, BTreeSet<Serial>) {
    let state = world.authority.crl(&issuer_id()).unwrap();
    let crl = Crl::parse(&state.record.der).unwrap();
    (state.record.number, crl.serials().collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_taken_off_the_crl_stays_revoked_also_after_a_restart() {
    let world = World::new(true).await;
    let (first, second) = (
        revoked(&world, "web01").await,
        revoked(&world, "web02").await,
    );
    let (number, listed) = published(&world);
    assert_eq!(listed, [first, second].into());
    let issuer = issuer_id();
    let actor = act("x").actor;

    let unknown = Serial::from_u64(77).unwrap();
    let none = world.authority.unlist(&issuer, [unknown].into(), &actor);
    assert_eq!(none.await.unwrap(), 0);
    assert_eq!(published(&world).0, number, "nothing to publish");

    let one = world
        .authority
        .unlist(&issuer, [first, unknown].into(), &actor);
    assert_eq!(one.await.unwrap(), 1);
    assert_eq!(published(&world), (number + 1, [second].into()));
    assert!(world.authority.is_revoked(&issuer, &first));
    let again = world.authority.unlist(&issuer, [first].into(), &actor);
    assert_eq!(again.await.unwrap(), 0);

    let audit = world.authority.audit(Default::default(), 1000).await;
    let told = audit.unwrap().into_iter().map(|(_, entry)| entry);
    let told: Vec<_> = told.filter(|entry| entry.action == "unlist").collect();
    let subjects: Vec<&str> = told.iter().map(|entry| entry.subject.as_str()).collect();
    assert_eq!(subjects, [format!("{issuer}/{first}")]);

    let world = world.restart(true).await;
    assert!(world.authority.is_revoked(&issuer, &first));
    revoked(&world, "web03").await;
    let (_, listed) = published(&world);
    assert!(!listed.contains(&first) && listed.contains(&second) && listed.len() == 2);
}
