//! More commits than the writer can take: new work is refused, work whose signature exists is not.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use countersign_authority::Store;
use countersign_authority::store::LedgerReads as _;
use countersign_authority::store::{Change, CommitFault, Committed, StoreFault};
use countersign_store_suite::Sample;
use rusqlite::Connection;

use crate::ground::TemporaryFile;

/// More than fit in the queue and in the writer's hands.
const PLENTY: usize = 20_000;

#[tokio::test]
async fn a_finished_signature_is_recorded_however_many_wait() {
    let ground = TemporaryFile::new();
    let (store, sample) = (ground.store(), Sample::default());
    let enrolment = sample.enrolment("a");
    store.commit(enrolment.intend(&sample)).await.unwrap();

    // Somebody else's transaction keeps the writer waiting.
    let brake = Connection::open(ground.path()).unwrap();
    brake.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut waiting = Vec::new();
    let refused = loop {
        assert!(waiting.len() < PLENTY, "the queue has no bound");
        let mut commit = store.commit(Change::default());
        match try_now(&mut commit) {
            Poll::Pending => waiting.push(commit),
            Poll::Ready(outcome) => break outcome,
        }
    };
    assert!(
        matches!(refused, Err(CommitFault::Store(StoreFault::Overloaded))),
        "{refused:?}"
    );
    let mut record = store.commit(enrolment.record(&sample));
    let early = try_now(&mut record);
    assert!(early.is_pending(), "{early:?}");

    brake.execute_batch("ROLLBACK").unwrap();
    record.await.unwrap();
    let entry = store
        .certificate(&Sample::issuer(), &enrolment.intent.serial)
        .await
        .unwrap();
    assert_eq!(entry.unwrap().der, enrolment.der());
    store.commit(Change::default()).await.unwrap();
}

type Commit<'s> = Pin<Box<dyn Future<Output = Result<Committed, CommitFault>> + Send + 's>>;

/// What the call answers without waiting.
fn try_now(commit: &mut Commit<'_>) -> Poll<Result<Committed, CommitFault>> {
    commit
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}
