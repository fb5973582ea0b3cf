//! Whoever can write to the database, and does not have the key for token records, makes no token and changes none.

use std::sync::Arc;

use aws_lc_rs::digest;
use countersign_authority::store::{Change, Store, TokenReads as _, Write};
use countersign_authority::{
    Actor, Authority, BootstrapOrder, BootstrapRecord, BootstrapText, MacKey, MacKeys, TokenFault,
    TokenOrder, TokenRecord, TokenSettings, TokenText,
};
use countersign_pki::{Fingerprint, UnixTime};
use countersign_policy::{Policy, TokenBinding};
use countersign_store::SqliteStore;

use crate::site::{new_key, rules_of};
use crate::tokens::{N1, N2, TOKEN_RULE, bringing, settings};
use crate::world::{self, TestClock, act};

pub(crate) struct Forged {
    folder: tempfile::TempDir,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) authority: Authority,
}

impl Forged {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        world::prepare(folder.path()).await;
        Self::on(folder).await
    }

    async fn on(folder: tempfile::TempDir) -> Self {
        let store = Arc::new(world::store(folder.path()));
        let keys = Arc::new(world::keys(folder.path()));
        let clock = TestClock::new();
        let authority =
            world::authority(folder.path(), store.clone(), keys, clock.clone(), false).await;
        authority.set_rules(authority.rules().with_policy(Policy {
            rules: rules_of(&folder.path().join("policy.yaml"), TOKEN_RULE),
            ..world::policy(false)
        }));
        let forged = Self {
            folder,
            clock,
            store,
            authority,
        };
        forged.configure(Some(1));
        forged
    }

    /// The key that is configured from now on.
    fn configure(&self, key: Option<u8>) {
        self.configure_all(key, None);
    }

    fn configure_all(&self, current: Option<u8>, old: Option<u8>) {
        let key = |byte| MacKey::new(vec![byte; 32]).unwrap();
        let rules = self.authority.rules().with_tokens(TokenSettings {
            keys: MacKeys {
                current: current.map(key),
                old: old.map(key).into_iter().collect(),
                ..MacKeys::default()
            },
            ..settings()
        });
        self.authority.set_rules(rules);
    }

    /// The database put back from a backup, as `restore` does it.
    async fn restore(self) -> Self {
        let Self {
            folder,
            store,
            authority,
            ..
        } = self;
        drop((store, authority));
        let database = folder.path().join("countersign.db");
        countersign_store::backup::resume(&database, UnixTime(world::START)).unwrap();
        Self::on(folder).await
    }

    pub(crate) async fn mint(&self, order: TokenOrder) -> TokenText {
        let minted = self
            .authority
            .tokens
            .mint(order, &act("").actor, None)
            .await;
        minted.unwrap().token
    }

    async fn mint_bootstrap(&self) -> BootstrapText {
        let (order, actor) = (BootstrapOrder::default(), Actor::authority());
        let minted = self.authority.tokens.mint_bootstrap(order, &actor);
        minted.await.unwrap().token
    }

    pub(crate) async fn record(&self, token: &TokenText) -> TokenRecord {
        let key = Fingerprint::from_bytes([0; 32]);
        let found = self.store.token(token.id(), "", &key).await.unwrap();
        found.unwrap().record
    }

    /// What somebody does by SQL.
    pub(crate) async fn write(&self, writes: Vec<Write>) {
        let change = Change {
            writes,
            ..Change::default()
        };
        self.store.commit(change).await.unwrap();
    }

    pub(crate) async fn put(&self, record: TokenRecord) {
        let id = record.id.clone();
        self.write(vec![Write::ForgetToken { id }, Write::PutToken(record)])
            .await;
    }

    pub(crate) async fn put_bootstrap(&self, record: BootstrapRecord) {
        let id = record.id.clone();
        self.write(vec![
            Write::ForgetBootstrapToken { id },
            Write::PutBootstrapToken(record),
        ])
        .await;
    }

    async fn enrols(&self, name: &str, token: &TokenText) -> bool {
        let submission = bringing(name, &new_key(), token);
        let submitted = self.authority.requests.submit(submission).await.unwrap();
        submitted.issued.is_some()
    }
}

fn digest_of(parts: &[&[u8]]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, &parts.concat());
    digest.as_ref().try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_row_without_a_mac_is_refused_once_a_key_is_configured() {
    let forged = Forged::new().await;
    let real = forged.mint(TokenOrder::exact(N1)).await;
    let made = TokenText::new([3; 10], [9; 32]);
    let id = made.id().as_str().as_bytes();
    forged
        .write(vec![Write::PutToken(TokenRecord {
            id: made.id().clone(),
            mac: digest_of(&[b"ott1\0", id, b"\0", &[9; 32]]),
            mac_key_id: String::new(),
            ..forged.record(&real).await
        })])
        .await;
    assert!(!forged.enrols(N1, &made).await);
    let bearer = forged.authority.tokens.bearer(made.expose()).await;
    assert!(bearer.unwrap().is_none());
    assert_eq!(forged.authority.tokens.unverifiable().await.unwrap(), 1);
    assert!(forged.enrols(N1, &real).await);

    // Without a key there is nothing that such a row lacks; nor is one minted then good under a key.
    forged.configure(None);
    let plain = forged.mint(TokenOrder::exact(N2)).await;
    forged.configure(Some(1));
    assert!(!forged.enrols(N2, &plain).await);
    // The key was exchanged and then taken away, but for the old one: that is a key still.
    forged.configure_all(None, Some(1));
    assert!(!forged.enrols(N2, &plain).await);
    let (order, actor) = (TokenOrder::exact(N2), act("").actor);
    let refused = forged.authority.tokens.mint(order, &actor, None);
    assert!(matches!(refused.await, Err(TokenFault::Field { .. })));
    forged.configure(None);
    assert!(forged.enrols(N2, &plain).await);
}

/// A backup does not know what was used or taken back since: no token from before a restore is good after it. Whoever can
/// write to the database could say that it is from after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_row_from_before_a_restore_is_refused_whatever_its_epoch_says() {
    let forged = Forged::new().await;
    let token = forged.mint(TokenOrder::exact(N1)).await;
    let bootstrap = forged.mint_bootstrap().await;
    let forged = forged.restore().await;
    let epoch = forged.store.epoch().await.unwrap();
    let record = forged.record(&token).await;
    let found = forged.store.bootstrap_token(bootstrap.id()).await.unwrap();
    let of_machines = found.unwrap().record;
    assert!(record.epoch < epoch && of_machines.epoch < epoch);
    // The store gives what is written now its own epoch.
    forged.put(record).await;
    forged.put_bootstrap(of_machines).await;
    assert_eq!(forged.record(&token).await.epoch, epoch);
    assert!(!forged.enrols(N1, &token).await);
    let user = forged.authority.tokens.bootstrap_user(bootstrap.expose());
    assert_eq!(user.await.unwrap(), None);
    // One that was minted since is good.
    let token = forged.mint(TokenOrder::exact(N1)).await;
    assert!(forged.enrols(N1, &token).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_row_that_was_changed_is_refused() {
    type Tamper = fn(TokenRecord) -> TokenRecord;
    let tampers: [(&str, Tamper); 8] = [
        ("name", |record| TokenRecord {
            binding: TokenBinding::Exact(N2.to_owned()),
            ..record
        }),
        ("kind", |record| TokenRecord {
            binding: TokenBinding::Glob("*.example.com".to_owned()),
            ..record
        }),
        ("expiry", |record| TokenRecord {
            expires_at: record.expires_at.plus_seconds(1),
            ..record
        }),
        ("uses", |record| TokenRecord {
            max_uses: 2,
            ..record
        }),
        ("signer", |mut record| {
            record.terms.profile = world::agent_signer().to_string();
            record
        }),
        ("terms", |mut record| {
            record.terms.allow_replace = true;
            record
        }),
        ("the MAC itself", |record| TokenRecord {
            terms_mac: None,
            ..record
        }),
        ("the key's name", |record| TokenRecord {
            mac_key_id: String::new(),
            ..record
        }),
    ];
    for (what, tamper) in tampers {
        let forged = Forged::new().await;
        let token = forged.mint(TokenOrder::exact(N1)).await;
        let changed = tamper(forged.record(&token).await);
        forged.put(changed).await;
        for name in [N1, N2] {
            assert!(!forged.enrols(name, &token).await, "{what}: {name}");
        }
    }
    let forged = Forged::new().await;
    let token = forged.mint(TokenOrder::exact(N1)).await;
    // The same row once more is the token still.
    forged.put(forged.record(&token).await).await;
    assert!(forged.enrols(N1, &token).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bootstrap_token_row_that_was_made_or_changed_is_refused() {
    let forged = Forged::new().await;
    let token = forged.mint_bootstrap().await;
    let is_good = async |text: &str| {
        let user = forged.authority.tokens.bootstrap_user(text).await;
        user.unwrap().is_some()
    };
    assert!(is_good(token.expose()).await);
    let found = forged.store.bootstrap_token(token.id()).await.unwrap();
    let record = found.unwrap().record;
    let text = "abcdef.0123456789abcdef";
    forged
        .put_bootstrap(BootstrapRecord {
            id: BootstrapText::parse(text).unwrap().id().clone(),
            mac: digest_of(&[b"bootstrap\0", text.as_bytes()]),
            mac_key_id: String::new(),
            ..record.clone()
        })
        .await;
    assert!(!is_good(text).await);
    for changed in [
        BootstrapRecord {
            groups: vec!["system:bootstrappers:a".to_owned()],
            ..record.clone()
        },
        BootstrapRecord {
            expires_at: None,
            ..record.clone()
        },
        BootstrapRecord {
            terms_mac: None,
            ..record.clone()
        },
    ] {
        forged.put_bootstrap(changed).await;
        assert!(!is_good(token.expose()).await);
    }
    forged.put_bootstrap(record).await;
    assert!(is_good(token.expose()).await);
}
