//! What runs for every request looks at a bounded number of rows, however much there is.

use countersign_authority::store::{
    AuditReads as _, IssuerReads as _, LedgerReads as _, ObjectReads as _, Past, RequestFilter,
    RequestReads as _, Store as _,
};
use countersign_authority::{AuditFilter, AuditOrder, AuditQuery, RequestState, Revision};
use countersign_store_suite::Sample;

use crate::ground::Database;

/// Copies of one enrolment, and of what the audit log says of it.
const GROWN: &str = "
    INSERT INTO requests (id, door, key, live, retained, version, state, signer, csr, key_fingerprint, requester, wishes,
                          created, explanation, evidence, failure, issuer, serial, attachment, code, source, bytes)
        SELECT decode(lpad(to_hex(n), 32, '0'), 'hex'), door, 'old-' || n, false, false, version, 'issued', signer, csr,
               key_fingerprint, requester, wishes, created, explanation, evidence, failure, issuer, serial, attachment,
               code, source, bytes
        FROM requests, generate_series(1, 40000) AS n WHERE key = 'a';
    INSERT INTO certificates (issuer, serial, state, request, signer, name, key_fingerprint, not_before, not_after,
                              explanation, der)
        SELECT issuer, decode('7f' || lpad(to_hex(n), 30, '0'), 'hex'), state, request, signer, 'old-' || n,
               key_fingerprint, not_before, not_after, explanation, der
        FROM certificates, generate_series(1, 40000) AS n WHERE name = 'a';
    INSERT INTO audit (revision, seq, entry)
        SELECT 1000 + n, 0, entry FROM (SELECT entry FROM audit LIMIT 1) AS one, generate_series(1, 40000) AS n;
    UPDATE store_state SET revision = 50000;
    ANALYZE;
    SELECT pg_stat_reset();";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_walks_through_what_was_issued() {
    let ground = Database::new();
    let (store, sample) = (ground.store().await, Sample::default());
    let enrol = async |name: &str| {
        let enrolment = sample.enrolment(name).held(&sample);
        let (mut first, mut second) = (enrolment.intend(&sample), enrolment.record(&sample));
        // The intent has the request, and the record stores it.
        first.writes.remove(0);
        second.writes.pop();
        store.commit(first).await.unwrap();
        store.commit(second).await.unwrap();
        enrolment
    };
    enrol("a").await;
    ground.sql(GROWN);
    let (door, issuer) = (Sample::door(), Sample::issuer());
    // Often enough that plans are made for all values alike.
    for round in 0..12 {
        let name = format!("new-{round}");
        let enrolment = enrol(&name).await;
        store.request(enrolment.request.id).await.unwrap().unwrap();
        for key in [&name, "nobody"] {
            store.request_at(&door, key, Past::Include).await.unwrap();
            store.newest_certificate(&issuer, key).await.unwrap();
        }
        let serial = &enrolment.intent.serial;
        store.certificate(&issuer, serial).await.unwrap().unwrap();
        store
            .listed_certificates(&issuer, Some("old-2".to_owned()), 20)
            .await
            .unwrap();
        store.ledger(&issuer, Some(20_000), 20).await.unwrap();
        store.revocations(&issuer, Sample::time(0)).await.unwrap();
        store.pending_bytes().await.unwrap();
        store.states(Revision(0), 20).await.unwrap();
        store.audit(Revision(20_000), 20).await.unwrap();
        let query = AuditQuery {
            filter: AuditFilter::default(),
            order: AuditOrder::NewestFirst,
            after: None,
            limit: 20,
            look_at: 20,
        };
        store.audit_page(query).await.unwrap();
        for states in [vec![], vec![RequestState::Pending, RequestState::Denied]] {
            let filter = RequestFilter {
                door: Some(door.clone()),
                states,
                limit: 20,
                ..RequestFilter::default()
            };
            store.requests(filter).await.unwrap();
        }
    }
    drop(store);
    let looked_at = "SELECT pg_sleep(1.5);
         SELECT relname || ' ' || coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables
         WHERE schemaname = 'countersign' AND coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) > 12 * 300";
    let looked_at = ground.sql(looked_at);
    assert_eq!(
        looked_at, "",
        "tables of which more was looked at than 300 rows a round"
    );
}
