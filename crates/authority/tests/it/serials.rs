//! Where counting begins when serials were not counted before.

use std::sync::Arc;

use countersign_authority::store::{Change, Store as _, Write};
use countersign_authority::{
    Authority, AuthorityConfig, CrlRecord, CrlScope, LedgerEntry, Limits, OnWaiting, Revision,
    Serials,
};
use countersign_pki::{Crl, Serial, UnixTime, pem};
use countersign_testkit::chain::{Ca, CrlFacts};
use countersign_testkit::keys;

use crate::profiles;
use crate::world::{
    self, START, TestClock, TestSigner, World, agent_signer, config_of, issuer_id, settings,
    submission,
};

const NOW: UnixTime = UnixTime(START);

fn serial(number: u64) -> Serial {
    Serial::try_from(number).unwrap()
}

/// The authority of a folder that counts from now on.
async fn counting(folder: &std::path::Path) -> Authority {
    let (store, keys) = (world::store(folder), world::keys(folder));
    let signer = TestSigner {
        name: agent_signer(),
        profile: profiles::agent(settings()),
        one_certificate_per_name: true,
        on_waiting: OnWaiting::Refuse,
    };
    let config = config_of(
        folder,
        Arc::new(store),
        Arc::new(keys),
        TestClock::new(),
        world::policy(true),
        vec![signer],
        Limits::STANDARD,
    );
    let issuers = config.issuers.into_iter();
    let issuers = issuers.map(|issuer| issuer.with_serials(Serials::Sequential));
    let config = AuthorityConfig {
        issuers: issuers.collect(),
        ..config
    };
    Authority::start(config).await.unwrap()
}

async fn issue(authority: &Authority, name: &str) -> Serial {
    let submitted = authority.requests.submit(submission(name)).await.unwrap();
    submitted.issued.unwrap().intent().serial
}

#[tokio::test(flavor = "multi_thread")]
async fn counting_begins_behind_what_the_ledger_and_the_crl_know() {
    // The serials in the ledger and on the CRL, and the one that is given out first.
    for (ledger, listed, first) in [
        (vec![], vec![], 1),
        (vec![7, 40], vec![], 41),
        (vec![40], vec![60, 3], 61),
        (vec![], vec![255, u64::MAX], 256),
    ] {
        let world = World::new(true).await;
        issue(&world.authority, "random").await;
        let issuer = issuer_id();
        let random = world.authority.ledger.newest(&issuer, "random").await;
        let random = random.unwrap().unwrap();
        let World {
            folder, authority, ..
        } = world;
        drop(authority);
        write(&folder, &random, &ledger, &listed).await;

        let authority = counting(folder.path()).await;
        assert_eq!(issue(&authority, "one").await, serial(first));
        drop(authority);
        let authority = counting(folder.path()).await;
        let next = issue(&authority, "two").await;
        assert_eq!(next, serial(first + 1), "it is on record");
    }
}

/// Puppet Server's root has serial 1, and signed itself.
#[tokio::test(flavor = "multi_thread")]
async fn the_issuers_own_serial_is_not_given_out_again() {
    let root = Ca::root("Fleet CA", keys::p256_a(), NOW);
    let own = root.certificate.serial().to_u64().unwrap();
    let world = World::with_chain(&root.certificate.to_pem(), keys::p256_a()).await;
    let World {
        folder, authority, ..
    } = world;
    drop(authority);
    let authority = counting(folder.path()).await;
    assert_eq!(issue(&authority, "one").await, serial(own + 1));
}

async fn write(folder: &tempfile::TempDir, like: &LedgerEntry, ledger: &[u64], listed: &[u64]) {
    let store = world::store(folder.path());
    let mut change = Change::default();
    for number in ledger {
        change.writes.push(Write::Import(LedgerEntry {
            serial: serial(*number),
            name: format!("imported{number}"),
            ..like.clone()
        }));
    }
    if !listed.is_empty() {
        let revoked: Vec<Serial> = listed.iter().map(|number| serial(*number)).collect();
        let list = Ca::root("Fleet CA", keys::p256_a(), NOW).crl(&CrlFacts {
            revoked: &revoked,
            ..CrlFacts::good(1, NOW)
        });
        let blocks = pem::decode_all(list.as_bytes(), &pem::PemLimits::BUNDLE).unwrap();
        let list = Crl::parse(&blocks.first().unwrap().der).unwrap();
        change.writes.push(Write::PutCrl(CrlRecord {
            issuer: issuer_id(),
            scope: CrlScope::Full,
            number: 1,
            covers: Revision::default(),
            this_update: list.this_update(),
            next_update: list.next_update().unwrap(),
            der: list.der().to_vec(),
        }));
    }
    store.commit(change).await.unwrap();
}
