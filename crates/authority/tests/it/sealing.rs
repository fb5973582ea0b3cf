//! The audit log is sealed, and whatever is done to it behind the authority's back is found.
#![expect(
    clippy::indexing_slicing,
    reason = "the tables name the entries that they touch"
)]

use std::path::Path;

use countersign_authority::sealing::BATCH;
use countersign_authority::sealing::verification::{Breach, Gap, Intact, Verifier, Wants};
use countersign_authority::store::{Change, Store as _};
use countersign_authority::{
    AuditEntry, AuditFilter, AuditOrder, AuditPlace, AuditQuery, AuditRecord, Authority, Revision,
    Seal, SealKey as _, Sealed,
};
use countersign_keys::{AuditKey, FileKeys, KeySpec};
use countersign_pki::{UnixTime, fingerprint_sha256};
use countersign_store_suite::tamper;

use crate::world::{self, START, World, act, submission};

fn key_in(folder: &Path, name: &str) -> AuditKey {
    let path = folder.join(name);
    FileKeys::generate_file(&path, KeySpec::P256).unwrap();
    AuditKey::load(&path).unwrap()
}

/// A log in memory: three entries in each of the seals, and some that are not sealed.
struct Log {
    key: AuditKey,
    other: AuditKey,
    records: Vec<AuditRecord>,
    seals: Vec<Seal>,
}

impl Log {
    fn new(seals: u64, unsealed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = key_in(folder.path(), "key.pem");
        let other = key_in(folder.path(), "other.pem");
        let records: Vec<AuditRecord> = (0..seals * 3 + unsealed).map(record).collect();
        let mut made: Vec<Seal> = Vec::new();
        let sealed = usize::try_from(seals * 3).unwrap();
        for entries in records[..sealed].chunks(3) {
            let before = made.last().map(|seal| &seal.head);
            made.push(Seal::make(before, entries, UnixTime(START), &key).unwrap());
        }
        Self {
            key,
            other,
            records,
            seals: made,
        }
    }

    fn verifier(&self) -> Verifier {
        Verifier::new(vec![self.key.spki_der().to_vec()])
    }

    fn verify(&self) -> Result<Intact, Breach> {
        run(self.verifier(), &self.records, &self.seals)
    }
}

fn run(mut verifier: Verifier, records: &[AuditRecord], seals: &[Seal]) -> Result<Intact, Breach> {
    let (mut records, mut seals) = (records.iter(), seals.iter());
    loop {
        match verifier.wants() {
            Wants::Seal => verifier.seal(seals.next().cloned())?,
            Wants::Entry => verifier.entry(records.next().cloned())?,
            Wants::Nothing => return Ok(verifier.finish()),
        }
    }
}

/// Two entries in each commit.
fn record(number: u64) -> AuditRecord {
    let at = UnixTime(START).plus_seconds(number);
    let entry = AuditEntry::own(at, "crl", format!("fleet/{number}"));
    AuditRecord {
        place: place(number),
        stored: serde_json::to_vec(&entry).unwrap(),
    }
}

fn place(number: u64) -> AuditPlace {
    AuditPlace {
        revision: Revision(number / 2 + 1),
        seq: number % 2,
    }
}

fn gap(after: Option<u64>, before: Option<u64>) -> Gap {
    Gap {
        after: after.map(place),
        before: before.map(place),
    }
}

#[test]
fn a_log_that_nobody_touched_is_intact_and_its_unsealed_end_is_told() {
    for (seals, unsealed) in [(0, 0), (0, 2), (1, 0), (4, 0), (4, 5)] {
        let log = Log::new(seals, unsealed);
        let intact = log.verify().unwrap();
        let since = (unsealed > 0).then(|| UnixTime(START).plus_seconds(seals * 3));
        assert_eq!(
            intact,
            Intact {
                entries: seals * 3,
                seals,
                checkpoint: log.seals.last().map(|seal| seal.head.clone()),
                unsealed,
                unsealed_since: since,
            }
        );
    }
}

#[test]
fn every_change_of_an_entry_is_found_and_named() {
    type Touch = fn(&mut Vec<AuditRecord>);
    let touches: &[(&str, Touch, Breach)] = &[
        (
            "edited in the middle",
            |records| records[4].stored[10] ^= 1,
            Breach::Edited {
                place: place(4),
                seal: 2,
            },
        ),
        (
            "edited at the very beginning",
            |records| records[0].stored = b"{}".to_vec(),
            Breach::Edited {
                place: place(0),
                seal: 1,
            },
        ),
        (
            "edited at the end of a seal",
            |records| records[5].stored.push(b' '),
            Breach::Edited {
                place: place(5),
                seal: 2,
            },
        ),
        (
            "edited at the end of the log",
            |records| records[11].stored.clear(),
            Breach::Edited {
                place: place(11),
                seal: 4,
            },
        ),
        (
            "moved to another place",
            |records| records[11].place.revision = Revision(99),
            Breach::Dropped {
                count: 1,
                gap: gap(Some(10), None).behind(Revision(99), 1),
                seal: 4,
            },
        ),
        (
            "dropped from the middle",
            |records| drop(records.remove(4)),
            Breach::Dropped {
                count: 1,
                gap: gap(Some(3), Some(5)),
                seal: 2,
            },
        ),
        (
            "dropped at the beginning",
            |records| drop(records.remove(0)),
            Breach::Dropped {
                count: 1,
                gap: gap(None, Some(1)),
                seal: 1,
            },
        ),
        (
            "two dropped across seals",
            |records| drop(records.drain(5..7)),
            Breach::Dropped {
                count: 1,
                gap: gap(Some(4), Some(7)),
                seal: 2,
            },
        ),
        (
            "two dropped in a row",
            |records| drop(records.drain(6..8)),
            Breach::Dropped {
                count: 2,
                gap: gap(Some(5), Some(8)),
                seal: 3,
            },
        ),
        (
            "the end dropped",
            |records| records.truncate(10),
            Breach::Dropped {
                count: 2,
                gap: gap(Some(9), None),
                seal: 4,
            },
        ),
        (
            "everything dropped",
            |records| records.clear(),
            Breach::Dropped {
                count: 3,
                gap: gap(None, None),
                seal: 1,
            },
        ),
        (
            "inserted between two of a seal",
            |records| records.insert(4, added(2)),
            Breach::Inserted {
                place: added(2).place,
                seal: 2,
            },
        ),
        (
            "inserted between two seals",
            |records| records.insert(6, added(3)),
            Breach::Inserted {
                place: added(3).place,
                seal: 3,
            },
        ),
        (
            "neighbours exchanged",
            |records| {
                let (first, second) = (records[6].stored.clone(), records[7].stored.clone());
                records[6].stored = second;
                records[7].stored = first;
            },
            Breach::Reordered {
                place: place(6),
                other: place(7),
                seal: 3,
            },
        ),
        (
            "exchanged far apart",
            |records| {
                let (first, second) = (records[1].stored.clone(), records[8].stored.clone());
                records[1].stored = second;
                records[8].stored = first;
            },
            Breach::Edited {
                place: place(1),
                seal: 1,
            },
        ),
    ];
    for (what, touch, breach) in touches {
        let mut log = Log::new(4, 0);
        touch(&mut log.records);
        assert_eq!(log.verify().as_ref(), Err(breach), "{what}");
    }
}

/// An entry behind all others of a commit.
fn added(revision: u64) -> AuditRecord {
    AuditRecord {
        place: AuditPlace {
            revision: Revision(revision),
            seq: 77,
        },
        stored: record(1).stored,
    }
}

trait Behind {
    fn behind(self, revision: Revision, seq: u64) -> Self;
}

impl Behind for Gap {
    fn behind(self, revision: Revision, seq: u64) -> Self {
        Self {
            before: Some(AuditPlace { revision, seq }),
            ..self
        }
    }
}

#[test]
fn every_change_of_a_seal_is_found_and_named() {
    type Touch = fn(&mut Log);
    let missing = |number, found| Breach::SealMissing { number, found };
    let forged = |number| Breach::SealForged { number };
    let hashes = |number| Breach::SealHashes { number };
    let unlinked = |number| Breach::SealUnlinked { number };
    let touches: &[(&str, Touch, Breach)] = &[
        (
            "dropped from the middle",
            |log| drop(log.seals.remove(1)),
            missing(2, 3),
        ),
        (
            "dropped at the beginning",
            |log| drop(log.seals.remove(0)),
            missing(1, 2),
        ),
        ("exchanged", |log| log.seals.swap(1, 2), missing(2, 3)),
        (
            "exchanged under each other's number",
            |log| {
                log.seals.swap(1, 2);
                log.seals[1].head.number = 2;
                log.seals[2].head.number = 3;
            },
            forged(2),
        ),
        (
            "twice",
            |log| {
                let copy = log.seals[1].clone();
                log.seals.insert(2, copy);
            },
            missing(3, 2),
        ),
        (
            "another time",
            |log| log.seals[2].head.at = UnixTime(0),
            forged(3),
        ),
        (
            "another signature",
            |log| log.seals[2].head.signature[20] ^= 1,
            forged(3),
        ),
        (
            "no signature",
            |log| log.seals[2].head.signature.clear(),
            forged(3),
        ),
        (
            "another count",
            |log| log.seals[2].head.count = 4,
            forged(3),
        ),
        (
            "another end",
            |log| log.seals[2].head.last.seq = 5,
            forged(3),
        ),
        (
            "another hash of an entry",
            |log| log.seals[2].hashes[0] = fingerprint_sha256(b"x"),
            hashes(3),
        ),
        (
            "another hash of the last entry",
            |log| log.seals[2].hashes[2] = fingerprint_sha256(b"x"),
            hashes(3),
        ),
        (
            "one hash too few",
            |log| log.seals[2].hashes.truncate(2),
            hashes(3),
        ),
        (
            "made anew, with the right key, for another past",
            |log| {
                let mut before = log.seals[0].head.clone();
                before.hash = fingerprint_sha256(b"x");
                let entries = &log.records[3..6];
                log.seals[1] =
                    Seal::make(Some(&before), entries, UnixTime(START), &log.key).unwrap();
            },
            unlinked(2),
        ),
    ];
    for (what, touch, breach) in touches {
        let mut log = Log::new(4, 1);
        touch(&mut log);
        assert_eq!(log.verify().as_ref(), Err(breach), "{what}");
    }
}

#[test]
fn a_log_that_was_sealed_anew_with_another_key_is_not_believed() {
    let mut log = Log::new(4, 0);
    log.records[7].stored = b"{}".to_vec();
    let mut seals: Vec<Seal> = Vec::new();
    for entries in log.records.chunks(3) {
        let before = seals.last().map(|seal| &seal.head);
        seals.push(Seal::make(before, entries, UnixTime(START), &log.other).unwrap());
    }
    let key_id = fingerprint_sha256(log.other.spki_der());
    assert_eq!(
        run(log.verifier(), &log.records, &seals),
        Err(Breach::SealOfUnknownKey { number: 1, key_id })
    );
    for seal in &mut seals {
        seal.head.key_id = fingerprint_sha256(log.key.spki_der());
    }
    assert_eq!(
        run(log.verifier(), &log.records, &seals),
        Err(Breach::SealForged { number: 1 })
    );
}

#[test]
fn a_checkpoint_that_was_kept_shows_what_was_cut_off_or_made_anew() {
    let log = Log::new(4, 0);
    let checkpoint = log.seals[2].head.clone();
    let verifier = || log.verifier().with_checkpoint(checkpoint.clone()).unwrap();
    assert!(run(verifier(), &log.records, &log.seals).is_ok());
    assert!(run(verifier(), &log.records[..9], &log.seals[..3]).is_ok());

    // Without it, a shorter log is as good as the whole one.
    assert!(run(log.verifier(), &log.records[..6], &log.seals[..2]).is_ok());
    assert_eq!(
        run(verifier(), &log.records[..6], &log.seals[..2]),
        Err(Breach::Truncated {
            number: 3,
            at: UnixTime(START),
            has: 2
        })
    );
    // Whoever has the key can write another history, which is not that of the checkpoint.
    let mut forged = Log::new(0, 12);
    forged.records[1].stored = b"{}".to_vec();
    let mut seals: Vec<Seal> = Vec::new();
    for entries in forged.records.chunks(3) {
        let before = seals.last().map(|seal| &seal.head);
        seals.push(Seal::make(before, entries, UnixTime(START), &log.key).unwrap());
    }
    assert!(run(log.verifier(), &forged.records, &seals).is_ok());
    assert_eq!(
        run(verifier(), &forged.records, &seals),
        Err(Breach::OtherThanCheckpoint { number: 3 })
    );
    let mut changed = checkpoint.clone();
    changed.number = 2;
    assert_eq!(
        log.verifier().with_checkpoint(changed).err(),
        Some(Breach::CheckpointForged)
    );
}

pub(crate) fn whole_log() -> AuditQuery {
    AuditQuery {
        filter: AuditFilter::default(),
        order: AuditOrder::OldestFirst,
        after: None,
        limit: usize::MAX,
        look_at: usize::MAX,
    }
}

pub(crate) async fn verified(authority: &Authority, key: &AuditKey) -> Intact {
    let records = authority.audit.page(whole_log()).await.unwrap().records;
    let seals = authority.audit.seals(0, usize::MAX).await.unwrap();
    let verifier = Verifier::new(vec![key.spki_der().to_vec()]);
    run(verifier, &records, &seals).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_is_sealed_in_rounds_also_after_a_restart() {
    let world = World::new(true).await;
    let key = key_in(world.folder.path(), "audit-key.pem");
    world.authority.audit.seal(&key).await.unwrap();
    let before = verified(&world.authority, &key).await;
    world
        .authority
        .requests
        .submit(submission("web01"))
        .await
        .unwrap();
    let intact = verified(&world.authority, &key).await;
    assert_eq!((intact.entries, intact.unsealed), (before.entries, 2));
    assert_eq!(intact.unsealed_since, Some(UnixTime(START)));

    // As after the death of the process: the next one seals what it finds.
    let world = world.restart(true).await;
    let sealed = world.authority.audit.seal(&key).await.unwrap();
    assert_eq!((sealed.entries, sealed.seals), (2, 1));
    let nothing = world.authority.audit.seal(&key).await.unwrap();
    assert_eq!(nothing, Sealed::default());
    let intact = verified(&world.authority, &key).await;
    assert_eq!((intact.entries, intact.unsealed), (before.entries + 2, 0));
    assert_eq!(
        world.authority.audit.last_seal().await.unwrap(),
        intact.checkpoint
    );
}

/// Sealing on would make a forged history a true one.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sealed_over_seals_that_were_taken_away_or_replaced() {
    for (sql, expected) in [
        (
            "DELETE FROM audit_seals WHERE number = 2",
            "ends with seal 1, but seal 2 was made",
        ),
        (
            "UPDATE audit_seals SET at = at + 1 WHERE number = 2",
            "seal 2 of its audit log is not the one that was made",
        ),
    ] {
        let world = World::new(true).await;
        let key = key_in(world.folder.path(), "audit-key.pem");
        let submit = |name: &'static str| world.authority.requests.submit(submission(name));
        world.authority.audit.seal(&key).await.unwrap();
        submit("web01").await.unwrap();
        world.authority.audit.seal(&key).await.unwrap();
        tamper(&world.folder.path().join("countersign.db"), sql);
        submit("web02").await.unwrap();
        let refused = world.authority.audit.seal(&key).await.unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains(expected), "{refused}");
        let last = world.authority.audit.last_seal().await.unwrap().unwrap();
        assert!(last.number <= 2, "{last:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_sealers_make_one_chain() {
    let world = World::new(true).await;
    let key = std::sync::Arc::new(key_in(world.folder.path(), "audit-key.pem"));
    let mut sealers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (authority, key) = (world.authority.clone(), key.clone());
        sealers.spawn(async move {
            let mut entries = 0;
            for _ in 0..50 {
                entries += authority.audit.seal(&*key).await.unwrap().entries;
                tokio::task::yield_now().await;
            }
            entries
        });
    }
    for number in 0..20 {
        let name = format!("web{number}");
        world
            .authority
            .requests
            .submit(submission(&name))
            .await
            .unwrap();
    }
    let mut entries: u64 = sealers.join_all().await.into_iter().sum();
    entries += world.authority.audit.seal(&*key).await.unwrap().entries;
    let intact = verified(&world.authority, &key).await;
    assert_eq!((intact.entries, intact.unsealed), (entries, 0));
    assert!(entries >= 40);
}

/// However long the log has grown without a seal, a seal holds a bounded part of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_log_is_sealed_in_batches() {
    let world = World::new(true).await;
    let (key, folder) = (
        key_in(world.folder.path(), "audit-key.pem"),
        world.folder.path().to_owned(),
    );
    let World {
        folder: kept,
        clock,
        authority,
    } = world;
    drop(authority);
    let entry = AuditEntry::own(UnixTime(START), "crl", "fleet/1".to_owned());
    {
        let store = world::store(&folder);
        for _ in 0..5 {
            let change = Change {
                audit: vec![entry.clone(); 500],
                ..Change::default()
            };
            store.commit(change).await.unwrap();
        }
    }
    let world = World::on(kept, clock, true).await;
    let sealed = world.authority.audit.seal(&key).await.unwrap();
    assert!(sealed.entries >= 2500);
    let seals = world.authority.audit.seals(0, usize::MAX).await.unwrap();
    assert_eq!(seals.len(), 3);
    assert!(seals.iter().all(|seal| seal.hashes.len() <= BATCH));
    let intact = verified(&world.authority, &key).await;
    assert_eq!((intact.entries, intact.unsealed), (sealed.entries, 0));
    world
        .authority
        .requests
        .deny(act("nobody"))
        .await
        .unwrap_err();
    assert_eq!(
        world.authority.audit.seal(&key).await.unwrap(),
        Sealed::default(),
        "what was refused left no entry"
    );
}
