//! What somebody changes in the tables of tokens and certificates does not agree with the audit log.

use std::sync::Arc;

use countersign_authority::store::{Change, Store as _, TokenReads as _, Write};
use countersign_authority::{
    Actor, AuditEntry, BootstrapOrder, BootstrapRecord, BootstrapText, Clock as _, Finding,
    ImportDigest, LedgerEntry, Reconciliation, RequestId, Revoked, TokenOrder, TokenRecord,
    TokenText, reconcile,
};
use countersign_pki::{RevocationReason, Serial, UnixTime, fingerprint_sha256};
use countersign_policy::{Deciding, Effect, Explanation, ReasonCode, Requester};
use countersign_store::SqliteStore;

use crate::token_forgery::Forged;
use crate::tokens::N1;
use crate::world::{self, START, TestClock, administrator, agent_signer, issuer_id};

impl Forged {
    async fn reconciled(&self) -> Reconciliation {
        let found = self.authority.audit.reconcile().await;
        found.unwrap()
    }
}

/// Another token than the one that was minted, made of its record.
fn another(record: TokenRecord) -> TokenRecord {
    TokenRecord {
        id: TokenText::new([3; 10], [9; 32]).id().clone(),
        ..record
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_are_made_deleted_or_brought_back_in_the_store_are_found() {
    let forged = Forged::new().await;
    let (tokens, actor) = (forged.authority.tokens.clone(), administrator());
    let active = forged.mint(TokenOrder::exact("active.example.com")).await;
    let token = forged.mint(TokenOrder::exact(N1)).await;
    let minted = forged.record(&token).await;
    assert_eq!(forged.reconciled().await.findings, []);

    let id = token.id().clone();
    forged.write(vec![Write::ForgetToken { id }]).await;
    let told = format!("token {}", token.id());
    let missing = Finding::EntryWithoutToken {
        token: told.clone(),
    };
    assert_eq!(forged.reconciled().await.findings, [missing]);
    forged.put(minted.clone()).await;
    assert_eq!(forged.reconciled().await.findings, []);

    let made = another(forged.record(&active).await);
    let id = made.id.clone();
    forged.write(vec![Write::PutToken(made)]).await;
    let stranger = Finding::TokenWithoutEntry {
        token: format!("token {id}"),
    };
    assert_eq!(forged.reconciled().await.findings, [stranger]);
    forged.write(vec![Write::ForgetToken { id }]).await;

    tokens.revoke(token.id(), false, &actor).await.unwrap();
    assert_eq!(forged.reconciled().await.findings, []);
    forged.put(minted).await;
    let brought_back = Finding::EntryWithoutEnd { token: told };
    assert_eq!(forged.reconciled().await.findings, [brought_back]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bootstrap_tokens_that_are_made_deleted_or_brought_back_in_the_store_are_found() {
    let forged = Forged::new().await;
    let (tokens, actor) = (forged.authority.tokens.clone(), Actor::authority());
    let order = BootstrapOrder::default();
    let token = tokens.mint_bootstrap(order, &actor).await.unwrap().token;
    let found = forged.store.bootstrap_token(token.id()).await.unwrap();
    let minted = found.unwrap().record;
    assert_eq!(forged.reconciled().await.findings, []);

    let id = token.id().clone();
    forged.write(vec![Write::ForgetBootstrapToken { id }]).await;
    let told = format!("bootstrap token {}", token.id());
    let missing = Finding::EntryWithoutToken {
        token: told.clone(),
    };
    assert_eq!(forged.reconciled().await.findings, [missing]);
    forged.put_bootstrap(minted.clone()).await;

    let other = BootstrapText::parse("abcdef.0123456789abcdef").unwrap();
    let id = other.id().clone();
    forged
        .put_bootstrap(BootstrapRecord {
            id: id.clone(),
            ..minted.clone()
        })
        .await;
    let stranger = Finding::TokenWithoutEntry {
        token: "bootstrap token abcdef".to_owned(),
    };
    assert_eq!(forged.reconciled().await.findings, [stranger]);
    forged.write(vec![Write::ForgetBootstrapToken { id }]).await;

    tokens.revoke_bootstrap(token.id(), &actor).await.unwrap();
    assert_eq!(forged.reconciled().await.findings, []);
    forged.put_bootstrap(minted).await;
    let brought_back = Finding::EntryWithoutEnd { token: told };
    assert_eq!(forged.reconciled().await.findings, [brought_back]);
}

/// One that was forgotten because its time was over is nobody's deed.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_were_purged_are_not_missed() {
    let forged = Forged::new().await;
    forged.mint(TokenOrder::exact(N1)).await;
    let (tokens, actor) = (forged.authority.tokens.clone(), Actor::authority());
    let order = BootstrapOrder::default();
    tokens.mint_bootstrap(order, &actor).await.unwrap();
    forged.clock.advance(365 * 86_400);
    assert_eq!(tokens.purge().await.unwrap(), 1);
    assert_eq!(tokens.purge_bootstrap().await.unwrap(), 1);
    assert_eq!(forged.reconciled().await.findings, []);
}

/// A certificate of another authority, as an import writes it.
fn imported(number: u32, revoked: bool) -> LedgerEntry {
    let at = UnixTime(START);
    LedgerEntry {
        issuer: issuer_id(),
        serial: Serial::try_from(u64::from(number)).unwrap(),
        request: RequestId::in_sequence(at, number, [0; 6]),
        signer: agent_signer(),
        name: format!("web{number}"),
        key_fingerprint: fingerprint_sha256(&[7]),
        not_before: at.minus_seconds(1000),
        not_after: at.plus_seconds(100_000),
        retired: None,
        der: Vec::new(),
        explanation: Explanation {
            by: Some(Deciding::Person {
                actor: Requester::authority(),
                reason: "taken over".to_owned(),
            }),
            code: ReasonCode::Authority,
            ..Explanation::new(Effect::Approve, at, 0)
        },
        revoked: revoked.then_some(Revoked {
            at: at.minus_seconds(10),
            reason: RevocationReason::KeyCompromise,
        }),
    }
}

/// A store that took over these certificates; what the audit log says of them.
async fn took_over(
    rows: Vec<LedgerEntry>,
    told: Option<ImportDigest>,
) -> (tempfile::TempDir, Arc<SqliteStore>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(world::store(folder.path()));
    let entry = AuditEntry::own(UnixTime(START), "import", issuer_id().to_string());
    let change = Change {
        writes: rows.into_iter().map(Write::Import).collect(),
        audit: vec![AuditEntry {
            imported: told,
            ..entry
        }],
        ..Change::default()
    };
    store.commit(change).await.unwrap();
    (folder, store)
}

#[tokio::test]
async fn imported_certificates_are_held_against_what_their_import_says() {
    let serial = |number: u64| Serial::try_from(number).unwrap();
    let told = || ImportDigest::of([(serial(1), false), (serial(2), true)]);
    let (one, two) = (|| imported(1, false), || imported(2, true));
    for (what, rows, is_right) in [
        ("as it was", vec![one(), two()], true),
        ("in another order", vec![two(), one()], true),
        ("one deleted", vec![two()], false),
        ("a revoked one deleted", vec![one()], false),
        (
            "one not revoked any more",
            vec![one(), imported(2, false)],
            false,
        ),
        ("one revoked", vec![imported(1, true), two()], false),
        ("one more", vec![one(), two(), imported(3, false)], false),
        ("another one", vec![imported(3, false), two()], false),
    ] {
        let count = u64::try_from(rows.len()).unwrap();
        let (_folder, store) = took_over(rows.clone(), Some(told())).await;
        let found = reconcile(&*store, &[issuer_id()], UnixTime(START)).await;
        let expected = Finding::OtherImport {
            issuer: issuer_id().to_string(),
            at: UnixTime(START),
            told: 2,
            there: count,
        };
        let found = found.unwrap();
        let expected = Vec::from_iter((!is_right).then_some(expected));
        assert_eq!(found.findings, expected, "{what}");
        assert_eq!(
            (found.certificates, found.not_covered),
            (count, 0),
            "{what}"
        );

        // An earlier version did not say what it imported: nobody knows.
        let (_folder, store) = took_over(rows, None).await;
        let found = reconcile(&*store, &[issuer_id()], UnixTime(START)).await;
        let found = found.unwrap();
        assert_eq!((found.found, found.not_covered), (0, count), "{what}");
    }
}

/// What is revoked after it was imported has entries of its own.
#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_of_imported_certificates_later_is_told() {
    let told = ImportDigest::of(
        [imported(1, false), imported(2, true)].map(|it| (it.serial, it.revoked.is_some())),
    );
    let rows = vec![imported(1, false), imported(2, true)];
    let (folder, store) = took_over(rows, Some(told)).await;
    world::prepare(folder.path()).await;
    let keys = Arc::new(world::keys(folder.path()));
    let clock = TestClock::new();
    let authority = world::authority(folder.path(), store, keys, clock.clone(), true).await;
    let submitted = authority.requests.submit(world::submission("web03")).await;
    assert!(submitted.unwrap().issued.is_some());
    // In the very second of the import, too.
    let (reason, issuer) = (RevocationReason::Superseded, issuer_id());
    let actor = administrator();
    let revoked = authority
        .ledger
        .revoke_name(&issuer, "web1", reason, &actor);
    assert_eq!(revoked.await.unwrap(), 1);
    let found = authority.audit.reconcile().await.unwrap();
    assert_eq!((found.findings, found.revoked), (Vec::new(), 2));
    assert_eq!(clock.now(), UnixTime(START));
}
