//! Durable commits per second: the two commits of the usual enrolment, by many callers at once.
//!
//! `cargo bench -p countersign-store [-- CALLERS [ENROLMENTS]]`

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use countersign_authority::{RequestId, Store};
use countersign_pki::{Serial, UnixTime, fingerprint_sha256};
use countersign_store::SqliteStore;
use countersign_store_suite::{Enrolment, Sample};

#[expect(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a benchmark stops at the first fault and reads the clock"
)]
fn main() {
    let numbers: Vec<u32> = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let callers = numbers.first().copied().unwrap_or(64);
    let enrolments = numbers.get(1).copied().unwrap_or(40_000);
    let folder = tempfile::tempdir_in(".").expect("a directory on a real disk");
    let store = Arc::new(SqliteStore::open(&folder.path().join("bench.db")).expect("a new store"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .expect("a runtime");
    let next = Arc::new(AtomicU32::new(0));
    let began = Instant::now();
    let mut waits: Vec<Duration> = runtime.block_on(async {
        let tasks: Vec<_> = (0..callers)
            .map(|_| {
                let (store, next) = (Arc::clone(&store), Arc::clone(&next));
                tokio::spawn(async move {
                    let sample = Sample::default();
                    let mut waits = Vec::new();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= enrolments {
                            return waits;
                        }
                        let enrolment = realistic(&sample, number);
                        let asked = Instant::now();
                        store
                            .commit(enrolment.intend(&sample))
                            .await
                            .expect("an intent");
                        store
                            .commit(enrolment.record(&sample))
                            .await
                            .expect("a certificate");
                        waits.push(asked.elapsed());
                    }
                })
            })
            .collect();
        let mut waits = Vec::new();
        for task in tasks {
            waits.extend(task.await.expect("a caller"));
        }
        waits
    });
    let seconds = began.elapsed().as_secs_f64();
    waits.sort();
    let at = |percent: usize| {
        waits
            .get(waits.len() * percent / 100)
            .copied()
            .unwrap_or_default()
    };
    let rate = f64::from(enrolments) / seconds;
    let report = format!(
        "{callers} callers: {rate:.0} enrolments/s ({:.0} durable commits/s), p50 {:?}, p99 {:?}, revision {}\n",
        rate * 2.0,
        at(50),
        at(99),
        *store.revisions().borrow(),
    );
    std::io::stdout()
        .write_all(report.as_bytes())
        .expect("an output");
}

/// The sizes of a P-256 request and certificate, and identities that are scattered like real ones.
fn realistic(sample: &Sample, number: u32) -> Enrolment {
    let digest = *fingerprint_sha256(&number.to_be_bytes()).as_bytes();
    let mut enrolment = sample.enrolment(&format!(
        "host-{:02x}{:02x}-{number}.example.com",
        digest[0], digest[1]
    ));
    let mut random = [0; 16];
    random.copy_from_slice(&digest[..16]);
    let mut ten = [0; 10];
    ten.copy_from_slice(&digest[16..26]);
    enrolment.intent.serial = Serial::random_from(random);
    enrolment.request.id =
        RequestId::new(UnixTime(1_700_000_000 + i64::from(number / 10_000)), ten);
    enrolment.request.csr_der = digest.repeat(12);
    enrolment.request.retained = false;
    enrolment.intent.request = enrolment.request.id;
    enrolment
}
