//! Entries leave the CRL before their time; what is revoked stays revoked.

use std::collections::BTreeSet;

use countersign_pki::{Crl, RevocationReason, Serial};

use crate::world::{World, act, issuer_id, submission};

async fn revoked(world: &World, name: &str) -> Serial {
    let submitted = world
        .authority
        .requests
        .submit(submission(name))
        .await
        .unwrap();
    let serial = submitted.issued.unwrap().intent().serial;
    let reason = RevocationReason::KeyCompromise;
    let (issuer, actor) = (issuer_id(), act("x").actor);
    let revoking = world
        .authority
        .ledger
        .revoke_name(&issuer, name, reason, &actor);
    revoking.await.unwrap();
    serial
}

fn published(world: &World) -> (u64, BTreeSet<Serial>) {
    let state = world.authority.issuers.crl(&issuer_id()).unwrap();
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

    let unknown = Serial::try_from(77).unwrap();
    let none = world
        .authority
        .ledger
        .unlist(&issuer, [unknown].into(), &actor);
    assert_eq!(none.await.unwrap(), 0);
    assert_eq!(published(&world).0, number, "nothing to publish");

    let one = world
        .authority
        .ledger
        .unlist(&issuer, [first, unknown].into(), &actor);
    assert_eq!(one.await.unwrap(), 1);
    assert_eq!(published(&world), (number + 1, [second].into()));
    assert!(world.authority.ledger.is_revoked(&issuer, &first));
    let again = world
        .authority
        .ledger
        .unlist(&issuer, [first].into(), &actor);
    assert_eq!(again.await.unwrap(), 0);

    let audit = world.authority.audit.after(Default::default(), 1000).await;
    let told = audit.unwrap().into_iter().map(|(_, entry)| entry);
    let told: Vec<_> = told.filter(|entry| entry.action == "unlist").collect();
    let subjects: Vec<&str> = told.iter().map(|entry| entry.subject.as_str()).collect();
    assert_eq!(subjects, [format!("{issuer}/{first}")]);

    let world = world.restart(true).await;
    assert!(world.authority.ledger.is_revoked(&issuer, &first));
    revoked(&world, "web03").await;
    let (_, listed) = published(&world);
    assert!(!listed.contains(&first) && listed.contains(&second) && listed.len() == 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_taken_off_the_crl_comes_back_when_it_is_revoked_or_cleaned_again() {
    let world = World::new(true).await;
    let (issuer, actor) = (issuer_id(), act("x").actor);
    let reason = RevocationReason::Superseded;
    let serial = revoked(&world, "web01").await;
    let entry = async |world: &World| {
        let found = world.authority.ledger.get(&issuer, &serial).await;
        found.unwrap().unwrap().revoked.unwrap()
    };
    let first = entry(&world).await;
    for way in ["by name", "by serial", "cleaned"] {
        let unlisted = world
            .authority
            .ledger
            .unlist(&issuer, [serial].into(), &actor);
        assert_eq!(unlisted.await.unwrap(), 1, "{way}");
        let (number, listed) = published(&world);
        assert_eq!(listed, BTreeSet::new(), "{way}");
        world.clock.advance(60);
        let authority = &world.authority;
        let again = match way {
            "by name" => {
                authority
                    .ledger
                    .revoke_name(&issuer, "web01", reason, &actor)
                    .await
            }
            "by serial" => {
                let revoking = authority
                    .ledger
                    .revoke_serial(&issuer, &serial, reason, &actor);
                revoking.await
            }
            _ => {
                let names = vec!["web01".to_owned()];
                let unknown = authority.ledger.clean(&issuer, names, reason, &actor).await;
                unknown.map(|unknown| unknown.len() + 1)
            }
        };
        assert_eq!(again.unwrap(), 1, "{way}");
        assert_eq!(published(&world), (number + 1, [serial].into()), "{way}");
        assert_eq!(entry(&world).await, first, "{way}: the first one stands");
        let listed = authority.ledger.on_crl(&issuer);
        assert_eq!(listed.first().map(|one| one.revoked), Some(first), "{way}");
    }

    let world = world.restart(true).await;
    let issuer = issuer_id();
    let again = world
        .authority
        .ledger
        .revoke_name(&issuer, "web01", reason, &actor);
    assert_eq!(again.await.unwrap(), 0, "it is on the list");
    assert_eq!(published(&world).1, [serial].into());
}
