//! The CRL of the site's own machines.

use std::path::PathBuf;

use countersign_authority::{Authority, Clock as _, CrlState};
use countersign_pki::{Crl, RevocationReason, Serial};
use countersign_store::backup::CRL_NUMBERS_SKIPPED;

use crate::world::{World, act, issuer_id, submission};

async fn issue(world: &World, name: &str) -> Serial {
    let submitted = world
        .authority
        .requests
        .submit(submission(name))
        .await
        .unwrap();
    submitted.issued.unwrap().intent().serial
}

async fn revoke(authority: &Authority, name: &str) {
    let (reason, actor) = (RevocationReason::KeyCompromise, act("x").actor);
    let issuer = issuer_id();
    let revoked = authority.ledger.revoke_name(&issuer, name, reason, &actor);
    assert_eq!(revoked.await.unwrap(), 1, "{name}");
}

fn inventory(world: &World) -> PathBuf {
    world.folder.path().join("infra_inventory.txt")
}

fn write(world: &World, text: &str) {
    std::fs::write(inventory(world), text).unwrap();
}

async fn turn_on(world: &World) {
    let issuer = issuer_id();
    let turned = world
        .authority
        .issuers
        .serve_infra_crl(&issuer, inventory(world));
    turned.await.unwrap();
}

fn listed(state: &CrlState) -> (u64, Vec<Serial>) {
    let crl = Crl::parse(&state.record.der).unwrap();
    let mut serials: Vec<Serial> = crl.serials().collect();
    serials.sort();
    (crl.number().unwrap(), serials)
}

fn served(world: &World) -> (u64, Vec<Serial>) {
    listed(&world.authority.issuers.served_crl(&issuer_id()).unwrap())
}

fn full(world: &World) -> (u64, usize) {
    let (number, serials) = listed(&world.authority.issuers.crl(&issuer_id()).unwrap());
    (number, serials.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_get_the_revoked_machines_of_the_inventory() {
    let world = World::new(true).await;
    let puppet = issue(&world, "puppet01").await;
    let db = issue(&world, "db01").await;
    issue(&world, "web01").await;
    issue(&world, "web02").await;
    revoke(&world.authority, "web01").await;
    write(&world, "\n# ours\n puppet01 \n\nnever-heard-of\n");
    turn_on(&world).await;
    assert_eq!(served(&world), (0, vec![]));

    // One that is not named leaves the short list as it is.
    revoke(&world.authority, "web02").await;
    assert_eq!((served(&world), full(&world)), ((0, vec![]), (2, 2)));
    revoke(&world.authority, "puppet01").await;
    assert_eq!((served(&world), full(&world)), ((1, vec![puppet]), (3, 3)));
    revoke(&world.authority, "db01").await;
    assert_eq!(served(&world), (1, vec![puppet]));

    // A name that joins brings what was revoked before.
    write(&world, "puppet01\ndb01\n");
    world.authority.issuers.refresh_crls().await.unwrap();
    let mut both = vec![puppet, db];
    both.sort();
    assert_eq!((served(&world), full(&world)), ((2, both.clone()), (4, 4)));
    world.authority.issuers.refresh_crls().await.unwrap();
    assert_eq!(
        served(&world),
        (2, both.clone()),
        "nothing new, no new list"
    );
    assert!(world.authority.ledger.is_revoked(&issuer_id(), &db));

    // Numbers go on after a restart, and both lists are made anew daily.
    let world = world.restart(true).await;
    assert_eq!(full(&world), (4, 4));
    turn_on(&world).await;
    assert_eq!(served(&world), (2, both.clone()));
    world.clock.advance(86_400);
    world.authority.issuers.refresh_crls().await.unwrap();
    assert_eq!((served(&world), full(&world)), ((3, both), (5, 4)));
}

/// The inventory is looked at when a list is made, not only in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_joined_just_before_its_revocation_is_listed() {
    let world = World::new(true).await;
    let serial = issue(&world, "puppet01").await;
    turn_on(&world).await;
    write(&world, "puppet01\n");
    revoke(&world.authority, "puppet01").await;
    assert_eq!(served(&world), (1, vec![serial]));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_leaves_the_list_because_the_file_cannot_be_read() {
    let world = World::new(true).await;
    let serial = issue(&world, "puppet01").await;
    write(&world, "puppet01\n");
    turn_on(&world).await;
    revoke(&world.authority, "puppet01").await;
    assert_eq!(served(&world), (1, vec![serial]));
    std::fs::remove_file(inventory(&world)).unwrap();
    world.authority.issuers.refresh_crls().await.unwrap();
    assert_eq!(served(&world), (1, vec![serial]));

    let world = world.restart(true).await;
    turn_on(&world).await;
    world.clock.advance(86_400);
    world.authority.issuers.refresh_crls().await.unwrap();
    assert_eq!(served(&world), (2, vec![serial]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_listed_stays_listed_until_its_end_or_a_command() {
    let world = World::new(true).await;
    let puppet = issue(&world, "puppet01").await;
    let db = issue(&world, "db01").await;
    let mut both = vec![puppet, db];
    both.sort();
    write(&world, "puppet01\ndb01\n");
    turn_on(&world).await;
    revoke(&world.authority, "puppet01").await;
    revoke(&world.authority, "db01").await;
    assert_eq!(served(&world), (2, both.clone()));

    // Its line is gone; the file is cut short.
    for text in ["db01\n", "", "d"] {
        write(&world, text);
        world.authority.issuers.refresh_crls().await.unwrap();
        assert_eq!(served(&world), (2, both.clone()), "{text:?}");
    }
    let world = world.restart(true).await;
    turn_on(&world).await;
    assert_eq!(served(&world), (2, both), "after a restart");

    let (issuer, actor) = (issuer_id(), act("x").actor);
    let unlisted = world.authority.ledger.unlist(&issuer, [db].into(), &actor);
    assert_eq!(unlisted.await.unwrap(), 1);
    assert_eq!(served(&world), (3, vec![puppet]));
    world.clock.advance(6 * 365 * 86_400);
    world.authority.issuers.refresh_crls().await.unwrap();
    assert_eq!(served(&world), (4, vec![]), "the certificate has ended");
    assert!(world.authority.ledger.is_revoked(&issuer, &puppet));
}

/// A restored store is behind the lists that agents have seen: its numbers jump ahead, and the list follows.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_restore_the_list_has_the_number_that_was_skipped_to() {
    let world = World::new(true).await;
    let serial = issue(&world, "puppet01").await;
    write(&world, "puppet01\n");
    turn_on(&world).await;
    revoke(&world.authority, "puppet01").await;
    assert_eq!(served(&world), (1, vec![serial]));
    let World {
        folder,
        clock,
        authority,
    } = world;
    drop(authority);
    countersign_store::backup::resume(&folder.path().join("countersign.db"), clock.now()).unwrap();

    let world = World::on(folder, clock, true).await;
    turn_on(&world).await;
    let (number, listed) = served(&world);
    assert!(number > u64::from(CRL_NUMBERS_SKIPPED), "{number}");
    assert_eq!(listed, [serial]);
    let state = world.authority.issuers.served_crl(&issuer_id()).unwrap();
    assert_eq!(state.record.number, number);
    world.authority.issuers.refresh_crls().await.unwrap();
    assert_eq!(served(&world).0, number, "once");
}

/// Whoever has a copy from before may have a copy of the other list.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_switches_between_the_lists_makes_copies_old() {
    let mut world = World::new(true).await;
    turn_on(&world).await;
    for is_on in [false, true, false] {
        world.clock.advance(3600);
        world = world.restart(true).await;
        if is_on {
            turn_on(&world).await;
        }
        let state = world.authority.issuers.served_crl(&issuer_id()).unwrap();
        assert_eq!(state.modified, world.clock.now(), "on: {is_on}");
        assert_eq!(state.record.number, 0, "it is not made anew");
    }
}
