//! A small authority in a folder: real store, real keys, a clock that the test sets.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use countersign_authority::grant::Grant;
use countersign_authority::profile::{Authorization, OtherNames};
use countersign_authority::{
    Actor, Authority, AuthorityConfig, Clock, Door, DoorSpec, Issuer, IssuerId, KeyStore, Limits,
    OnWaiting, PlainKeeper, Profile, Rules, Signer, Store, Submission, Telemetry, WhenEnded,
};
use countersign_keys::{
    FileKeys, KeySpec, LeafKey, RootCertificate, SystemEntropy, create_issuer, private_file,
};
use countersign_pki::{AltName, CheckedCsr, CsrLimits, Serial, UnixTime};
use countersign_policy::{Guarded, Policy, Requester, Rule, RuleKind, SignerName, Wishes};
use countersign_store::SqliteStore;
use countersign_testkit::keys::Key;
use countersign_webhook::{Executables, ThisMachine};

use crate::profiles::{self, AgentSettings};

pub(crate) const DOOR: Door = Door::named("test");
/// The door of that name.
pub(crate) static TEST: DoorSpec = DoorSpec::plain(DOOR);
/// The same, if it kept the names of what was issued.
pub(crate) static RETAINING: DoorSpec = DoorSpec {
    name: DOOR,
    retained: true,
    when_ended: WhenEnded::Stays,
    keeper: &PlainKeeper,
};
pub(crate) const START: i64 = 1_800_000_000;
pub(crate) const DAY: u64 = 86_400;

/// A clock that stands still until it is moved.
pub(crate) struct TestClock(AtomicI64);

impl TestClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(START)))
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> UnixTime {
        UnixTime(self.0.load(Ordering::SeqCst))
    }
}

pub(crate) fn issuer_id() -> IssuerId {
    IssuerId::parse("fleet").unwrap()
}

pub(crate) fn agent_signer() -> SignerName {
    SignerName::parse("test.example/agent").unwrap()
}

pub(crate) fn client_signer() -> SignerName {
    SignerName::parse("test.example/client").unwrap()
}

/// Makes key and certificate of the issuer, once.
pub(crate) async fn prepare(folder: &Path) {
    let key = folder.join("key.pem");
    FileKeys::generate_file(&key, KeySpec::P256).unwrap();
    let root = RootCertificate {
        common_name: "Fleet CA",
        not_before: UnixTime(START).minus_seconds(DAY),
        not_after: UnixTime(START).plus_seconds(10 * 365 * DAY),
        serial: Serial::random_from([7; 16]),
    };
    let pem = create_issuer(&keys(folder), &issuer_id(), &root)
        .await
        .unwrap();
    std::fs::write(folder.join("ca.pem"), pem).unwrap();
}

pub(crate) fn keys(folder: &Path) -> FileKeys {
    let mut keys = FileKeys::new(NonZeroUsize::MIN);
    keys.load(issuer_id(), &folder.join("key.pem")).unwrap();
    keys
}

pub(crate) fn store(folder: &Path) -> SqliteStore {
    SqliteStore::open(&folder.join("countersign.db")).unwrap()
}

/// A second store in the same folder, for an authority that takes the first one's issuer over.
pub(crate) fn store_beside(folder: &Path) -> SqliteStore {
    SqliteStore::open(&folder.join("second.db")).unwrap()
}

pub(crate) fn settings() -> AgentSettings {
    AgentSettings {
        lifetime: 5 * 365 * DAY,
        alt_names: OtherNames::Refused,
        authorization: Authorization::Refused,
    }
}

/// The policy: everything for the agents' signer is approved if `automatic`.
pub(crate) fn policy(automatic: bool) -> Policy {
    let rule = Rule::approving("autosign", vec![agent_signer()], RuleKind::Always);
    Policy {
        generation: 3,
        rules: automatic.then_some(rule).into_iter().collect(),
        reserved: Guarded::names(["ca.example.com".to_owned()]),
        own: Guarded::names(["ca.example.com".to_owned()]),
        ..Policy::default()
    }
}

pub(crate) async fn authority(
    folder: &Path,
    store: Arc<dyn Store>,
    keys: Arc<dyn KeyStore>,
    clock: Arc<dyn Clock>,
    automatic: bool,
) -> Authority {
    let profiles = vec![
        (agent_signer(), profiles::agent(settings()), true),
        (client_signer(), profiles::client(), false),
    ];
    authority_with(folder, store, keys, clock, policy(automatic), profiles).await
}

/// An authority with signers of the test's choice: name, profile, one certificate per name.
pub(crate) async fn authority_with(
    folder: &Path,
    store: Arc<dyn Store>,
    keys: Arc<dyn KeyStore>,
    clock: Arc<dyn Clock>,
    policy: Policy,
    profiles: Vec<(SignerName, Profile, bool)>,
) -> Authority {
    authority_limited(
        folder,
        store,
        keys,
        clock,
        policy,
        profiles,
        Limits::STANDARD,
    )
    .await
}

/// An authority that approves what agents ask, and tells somebody what it does.
pub(crate) async fn authority_observed(
    folder: &Path,
    clock: Arc<dyn Clock>,
    telemetry: Arc<dyn Telemetry>,
) -> Authority {
    let signers = vec![
        TestSigner::of((agent_signer(), profiles::agent(settings()), true)),
        TestSigner::of((client_signer(), profiles::client(), false)),
    ];
    let (store, keys) = (Arc::new(store(folder)), Arc::new(keys(folder)));
    let limits = Limits::STANDARD;
    let config = config_of(folder, store, keys, clock, policy(true), signers, limits);
    Authority::start_observed(config, telemetry).await.unwrap()
}

/// The same with other limits.
pub(crate) async fn authority_limited(
    folder: &Path,
    store: Arc<dyn Store>,
    keys: Arc<dyn KeyStore>,
    clock: Arc<dyn Clock>,
    policy: Policy,
    profiles: Vec<(SignerName, Profile, bool)>,
    limits: Limits,
) -> Authority {
    let signers = profiles.into_iter().map(TestSigner::of);
    authority_of(
        folder,
        store,
        keys,
        clock,
        policy,
        signers.collect(),
        limits,
    )
    .await
}

/// A signer of the one issuer.
pub(crate) struct TestSigner {
    pub(crate) name: SignerName,
    pub(crate) profile: Profile,
    pub(crate) one_certificate_per_name: bool,
    pub(crate) on_waiting: OnWaiting,
}

impl TestSigner {
    fn of((name, profile, one_certificate_per_name): (SignerName, Profile, bool)) -> Self {
        Self {
            name,
            profile,
            one_certificate_per_name,
            on_waiting: OnWaiting::Refuse,
        }
    }
}

pub(crate) async fn authority_of(
    folder: &Path,
    store: Arc<dyn Store>,
    keys: Arc<dyn KeyStore>,
    clock: Arc<dyn Clock>,
    policy: Policy,
    signers: Vec<TestSigner>,
    limits: Limits,
) -> Authority {
    let config = config_of(folder, store, keys, clock, policy, signers, limits);
    let authority = Authority::start(config).await.unwrap();
    authority.set_local_evidence(Arc::new(ThisMachine::new(Executables::STANDARD)));
    authority
}

pub(crate) fn config_of(
    folder: &Path,
    store: Arc<dyn Store>,
    keys: Arc<dyn KeyStore>,
    clock: Arc<dyn Clock>,
    policy: Policy,
    signers: Vec<TestSigner>,
    limits: Limits,
) -> AuthorityConfig {
    let algorithm = keys.algorithm(&issuer_id()).unwrap();
    let public_key = keys.public_key(&issuer_id()).unwrap();
    let chain = std::fs::read(folder.join("ca.pem")).unwrap();
    let signers = signers.into_iter().map(|signer| Signer {
        profile: signer.profile,
        issuer: issuer_id(),
        one_certificate_per_name: signer.one_certificate_per_name,
        administrators_only: signer.name.as_str().ends_with("/own"),
        name: signer.name,
        on_waiting: signer.on_waiting,
    });
    AuthorityConfig {
        store,
        keys,
        clock,
        entropy: Arc::new(SystemEntropy),
        issuers: vec![Issuer::from_chain(issuer_id(), chain, algorithm, &public_key).unwrap()],
        rules: Rules::new(policy, signers.collect()),
        limits,
    }
}

/// An authority over a fresh folder, and what it stands on.
pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) authority: Authority,
}

impl World {
    pub(crate) async fn new(automatic: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path()).await;
        Self::on(folder, TestClock::new(), automatic).await
    }

    /// With a chain and a key of the test's own.
    pub(crate) async fn with_chain(chain_pem: &str, key: &Key) -> Self {
        let folder = tempfile::tempdir().unwrap();
        private_file::write_new(&folder.path().join("key.pem"), key.pkcs8_pem().as_bytes())
            .unwrap();
        std::fs::write(folder.path().join("ca.pem"), chain_pem).unwrap();
        Self::on(folder, TestClock::new(), true).await
    }

    /// Ends the authority and starts another on the same folder.
    pub(crate) async fn restart(self, automatic: bool) -> Self {
        let Self {
            folder,
            clock,
            authority,
        } = self;
        drop(authority);
        Self::on(folder, clock, automatic).await
    }

    pub(crate) async fn on(
        folder: tempfile::TempDir,
        clock: Arc<TestClock>,
        automatic: bool,
    ) -> Self {
        let path = folder.path();
        let (store, keys) = (Arc::new(store(path)), Arc::new(keys(path)));
        let authority = authority(path, store, keys, clock.clone(), automatic).await;
        Self {
            folder,
            clock,
            authority,
        }
    }
}

pub(crate) fn csr(key: &LeafKey, name: &str, alt_names: &[AltName]) -> CheckedCsr {
    let der = key.request(name, &[], alt_names).unwrap();
    CheckedCsr::check(&der, &CsrLimits::STANDARD).unwrap()
}

pub(crate) fn submission(name: &str) -> Submission {
    with_csr(name, csr(&LeafKey::generate().unwrap(), name, &[]))
}

pub(crate) fn with_csr(name: &str, csr: CheckedCsr) -> Submission {
    Submission {
        door: &TEST,
        key: name.to_owned(),
        csr,
        signer: agent_signer(),
        requester: Requester::anonymous(Some([127, 0, 0, 1].into())),
        wishes: Wishes::default(),
        attachment: Vec::new(),
        bearer: None,
        decision: None,
    }
}

/// Somebody who may do everything.
pub(crate) fn administrator() -> Actor {
    let requester = Requester {
        identity: countersign_policy::Identity::Certname {
            certname: "admin".to_owned(),
        },
        source: None,
    };
    Actor::with_roles(requester, Grant::ADMIN)
}

pub(crate) fn act(name: &str) -> countersign_authority::Act {
    countersign_authority::Act {
        door: DOOR,
        key: name.to_owned(),
        actor: administrator(),
        reason: String::new(),
        expected: None,
        attachment: None,
        lifetime: None,
        on_unsignable: countersign_authority::OnUnsignable::Refuse,
    }
}
