//! An authority that dies at a chosen step of its commit path; the other half of the kill-point test.
//!
//! `short_life FOLDER STEP`: issues `auto`, stores and approves `manual`, revokes `auto`, and says on
//! standard output what was acknowledged. Step n of all commits and signatures is its last.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the parent test watches"
)]

#[path = "../tests/it/tripwire.rs"]
mod tripwire;
#[expect(dead_code, unreachable_pub, reason = "shared with the test")]
#[path = "../tests/it/world.rs"]
mod world;

use std::path::PathBuf;
use std::sync::Arc;

use countersign_pki::RevocationReason;
use tripwire::{Fuse, TripKeys, TripStore};

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap());
    let step: i64 = arguments.next().unwrap().parse().unwrap();

    let fuse = Fuse::unlit();
    let store = Arc::new(TripStore(world::store(&folder), fuse.clone()));
    let keys = Arc::new(TripKeys(world::keys(&folder), fuse.clone()));
    let authority = world::authority(&folder, store, keys, world::TestClock::new(), true).await;
    fuse.light(step);

    let issued = authority
        .submit(world::submission("auto"))
        .await
        .unwrap()
        .issued
        .unwrap();
    println!("issued {}", issued.intent().serial);
    let mut manual = world::submission("manual");
    manual.signer = world::client_signer();
    manual.wishes.usages = vec!["client auth".to_owned()];
    authority.submit(manual).await.unwrap();
    println!("stored");
    let record = authority.approve(world::act("manual")).await.unwrap();
    println!("approved {}", record.certificate.unwrap().1);
    let actor = world::act("x").actor;
    let issuer = world::issuer_id();
    authority
        .revoke_name(&issuer, "auto", RevocationReason::KeyCompromise, &actor)
        .await
        .unwrap();
    println!("revoked");
    println!("done");
}
