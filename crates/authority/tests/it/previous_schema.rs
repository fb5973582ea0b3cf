//! A store that an authority with schema 8 left behind, in the middle of its work: it opens, and what
//! was begun is finished.
//!
//! `tests/fixtures/schema-8` was made by that authority, whose key failed while it signed. There are
//! open intents for
//!
//! - `auto.example.com`, approved by a rule,
//! - `person.example.com`, approved by a person for 30 days,
//! - `kept.example.com`, approved by a rule at a door that retains its requests,
//! - `renewed.example.com`, whose certificate was to be renewed,
//! - `once.example.com`, approved by a token for one use.
//!
//! `waiting.example.com` waits for a person. A token for two names below `twice.example.com` was
//! used by `a.twice.example.com`. The file `intents` lists the open intents: name, serial, and the
//! validity they were given. A part of the audit log is sealed.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use countersign_authority::store::{AuditReads as _, LedgerReads as _, ObjectReads as _};
use countersign_authority::store::{Change, CommitFault, Past, RequestFilter, Store, Write};
use countersign_authority::{
    Authority, Door, Intent, RequestState, Revision, State, Submission, TokenStatus, TokenText,
};
use countersign_keys::{AuditKey, LeafKey};
use countersign_pki::Certificate;
use countersign_policy::{Policy, ReasonCode};
use countersign_store::SqliteStore;
use tempfile::TempDir;

use crate::kill_points::copy;
use crate::sealing::verified;
use crate::site::{KEEPING, new_key, rules_of};
use crate::tokens::{TOKEN_RULE, bringing, enable};
use crate::world::{self, DOOR, TestClock, act, issuer_id};

/// How much later the successor starts, in seconds: a validity that it made up itself would show, and
/// a token that was used may still be shown again.
const LATER: i64 = 660;

const RENEWED: &str = "renewed.example.com";
const WAITING: &str = "waiting.example.com";
const ONCE: &str = "once.example.com";
const FIRST: &str = "a.twice.example.com";

/// A copy of the fixture that has been opened, and what it held then.
struct Left {
    folder: TempDir,
    store: Arc<SqliteStore>,
    /// By name.
    intents: BTreeMap<String, Intent>,
}

impl Left {
    async fn open() -> Self {
        let folder = copy(Path::new("tests/fixtures/schema-8"));
        for secret in ["key.pem", "audit-key.pem", "countersign.db"] {
            // A checkout knows nothing of modes.
            let private = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(folder.path().join(secret), private).unwrap();
        }
        let store = Arc::new(world::store(folder.path()));
        let open = store.open_intents().await.unwrap();
        let lines: String = open.iter().map(line).collect();
        let left = Self {
            folder,
            store,
            intents: open
                .into_iter()
                .map(|one| (one.name.clone(), one))
                .collect(),
        };
        assert_eq!(lines, left.text("intents"), "the store migrates them all");
        left
    }

    async fn start(&self) -> Authority {
        let (folder, clock) = (self.folder.path(), TestClock::new());
        clock.advance(LATER);
        let keys = Arc::new(world::keys(folder));
        let authority = world::authority(folder, self.store.clone(), keys, clock, false).await;
        authority.set_rules(authority.rules().with_policy(Policy {
            generation: 2,
            rules: rules_of(&folder.join("policy.yaml"), TOKEN_RULE),
            ..Policy::default()
        }));
        enable(&authority);
        authority
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    fn token(&self, name: &str) -> TokenText {
        TokenText::parse(&self.text(name)).unwrap()
    }

    /// The same key asks for its name once more, with the token that it had.
    fn again(&self, name: &str, token: &TokenText) -> Submission {
        let key = LeafKey::from_pkcs8_pem(&self.text(&format!("{name}.pem"))).unwrap();
        bringing(name, &key, token)
    }
}

fn line(intent: &Intent) -> String {
    let (name, serial) = (&intent.name, intent.serial);
    format!(
        "{name} {serial} {} {}\n",
        intent.not_before.0, intent.not_after.0
    )
}

async fn certificates(authority: &Authority, name: &str) -> usize {
    let all = authority.ledger.of_name(&issuer_id(), name).await;
    all.unwrap().len()
}

async fn state(authority: &Authority, door: &Door, key: &str) -> RequestState {
    let found = authority.requests.at(door, key, Past::Include).await;
    found.unwrap().unwrap().state
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_approved_before_is_issued_once_with_its_first_validity() {
    let left = Left::open().await;
    let authority = left.start().await;
    for (door, key, name) in [
        (DOOR, "auto.example.com", "auto.example.com"),
        (DOOR, "person.example.com", "person.example.com"),
        (KEEPING, "kept-1", "kept.example.com"),
        (DOOR, ONCE, ONCE),
    ] {
        assert_eq!(certificates(&authority, name).await, 1, "{name}");
        let newest = authority.ledger.newest(&issuer_id(), name).await;
        let entry = newest.unwrap().unwrap();
        let certificate = Certificate::parse(&entry.der).unwrap();
        let intent = &left.intents[name];
        assert_ne!(certificate.serial(), intent.serial, "{name}");
        assert_eq!(
            (certificate.not_before(), certificate.not_after()),
            (intent.not_before, intent.not_after),
            "{name}"
        );
        assert_eq!(entry.explanation, intent.explanation, "{name}");
        let record = authority.requests.at(&door, key, Past::Include).await;
        let record = record.unwrap().unwrap();
        assert_eq!(
            (record.id, record.state),
            (intent.request, RequestState::Issued)
        );
        assert_eq!(record.certificate, Some((issuer_id(), entry.serial)));
        assert_eq!(record.live, door == KEEPING, "{name}");
    }
    assert!(left.store.open_intents().await.unwrap().is_empty());
    assert_eq!(authority.recover().await.unwrap(), 0);

    let states = left.store.states(Revision(0), 100).await.unwrap();
    let mut kept = states.iter().filter_map(|change| match &change.state {
        State::Request(request) => Some((request.key.as_str(), request.state)),
        State::Object(_) => None,
    });
    assert_eq!(kept.next_back(), Some(("kept-1", RequestState::Issued)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_was_cut_short_before_is_not_completed() {
    let left = Left::open().await;
    let authority = left.start().await;
    assert_eq!(certificates(&authority, RENEWED).await, 1);
    let filter = RequestFilter {
        key: Some(RENEWED.to_owned()),
        ..RequestFilter::default()
    };
    let requests = authority.requests.list(filter).await.unwrap();
    let states: Vec<_> = requests.iter().map(|one| (one.id, one.state)).collect();
    let cut_short = left.intents[RENEWED].request;
    assert_eq!(states.len(), 2);
    assert!(states.contains(&(cut_short, RequestState::Failed)));

    // Its holder asks anew.
    let newest = authority.ledger.newest(&issuer_id(), RENEWED).await;
    let serial = newest.unwrap().unwrap().serial;
    let actor = act("").actor;
    let renewed = authority
        .ledger
        .renew(&issuer_id(), &serial, 3600, &actor)
        .await;
    renewed.unwrap();
    assert_eq!(certificates(&authority, RENEWED).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waited_before_still_waits_and_can_be_approved() {
    let left = Left::open().await;
    let authority = left.start().await;
    assert_eq!(
        state(&authority, &DOOR, WAITING).await,
        RequestState::Pending
    );
    assert_eq!(certificates(&authority, WAITING).await, 0);
    let approved = authority.requests.approve(act(WAITING)).await.unwrap();
    assert_eq!(approved.state, RequestState::Issued);
    assert_eq!(certificates(&authority, WAITING).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_reserved_before_is_its_keys_alone() {
    let left = Left::open().await;
    let token = left.token("once.token");
    let authority = left.start().await;
    let status = authority.tokens.get(token.id()).await.unwrap().unwrap();
    assert_eq!(status.listed.status, TokenStatus::Issued);

    let rival = bringing(ONCE, &new_key(), &token);
    let rival = authority.requests.submit(rival).await.unwrap();
    assert_eq!(
        (rival.state, rival.code),
        (RequestState::Denied, ReasonCode::TokenKeyMismatch)
    );
    let again = authority
        .requests
        .submit(left.again(ONCE, &token))
        .await
        .unwrap();
    assert_eq!(
        (again.state, again.code),
        (RequestState::Issued, ReasonCode::TokenRetry)
    );
    assert_eq!(certificates(&authority, ONCE).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_half_used_before_has_one_use_left() {
    let left = Left::open().await;
    let token = left.token("twice.token");
    let authority = left.start().await;
    let again = authority
        .requests
        .submit(left.again(FIRST, &token))
        .await
        .unwrap();
    assert_eq!(
        (again.state, again.code),
        (RequestState::Issued, ReasonCode::TokenRetry)
    );
    assert_eq!(certificates(&authority, FIRST).await, 1);
    for (name, state) in [
        ("b.twice.example.com", RequestState::Issued),
        ("c.twice.example.com", RequestState::Denied),
    ] {
        let submitted = authority
            .requests
            .submit(bringing(name, &new_key(), &token))
            .await;
        assert_eq!(submitted.unwrap().state, state, "{name}");
    }
    let detail = authority.tokens.get(token.id()).await.unwrap().unwrap();
    assert_eq!(detail.listed.status, TokenStatus::Exhausted);
    assert_eq!(detail.listed.record.uses, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn serials_that_were_intended_before_are_burned() {
    let left = Left::open().await;
    let authority = left.start().await;
    for (name, intent) in &left.intents {
        let found = authority.ledger.get(&issuer_id(), &intent.serial).await;
        assert!(found.unwrap().is_none(), "{name}");
        let change = Change {
            writes: vec![Write::Intend(intent.clone())],
            ..Change::default()
        };
        let refused = left.store.commit(change).await.unwrap_err();
        assert!(
            matches!(refused, CommitFault::DuplicateSerial { .. }),
            "{name}: {refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_log_that_was_begun_before_is_intact() {
    let left = Left::open().await;
    let key = AuditKey::load(&left.folder.path().join("audit-key.pem")).unwrap();
    let told = async || left.store.audit(Revision::default(), 1000).await.unwrap();
    let before = told().await;
    let authority = left.start().await;
    let intact = verified(&authority, &key).await;
    assert_eq!(intact.seals, 1);
    assert!(intact.entries > 0 && intact.unsealed > 0, "{intact:?}");
    let after = told().await;
    assert!(after.starts_with(&before), "nothing of it was changed");
    let count = |action: &str| {
        let added = after.iter().skip(before.len());
        added.filter(|(_, entry)| entry.action == action).count()
    };
    assert_eq!((count("void"), count("issue")), (5, 4));

    authority.audit.seal(&key).await.unwrap();
    let sealed = verified(&authority, &key).await;
    assert_eq!(sealed.unsealed, 0);
}
