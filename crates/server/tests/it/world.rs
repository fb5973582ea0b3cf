//! An authority with a Puppet and a Kubernetes issuer over a real store and real keys, in a temporary folder.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use countersign_authority::profile::{
    AltNameRule, Authorization, NameKinds, OtherNames, Usage, UsageRule,
};
use countersign_authority::store::{Change, Past, Write};
use countersign_authority::{
    Actor, Authority, AuthorityConfig, Clock, Decision, DoorSpec, Issuer, IssuerId, KeyStore,
    Limits, Minted, OnWaiting, Profile, Rules, Signer, Store, Submission, TokenOrder,
    TokenSettings, TokenText,
};
use countersign_keys::{
    FileKeys, KeySpec, RootCertificate, SystemEntropy, create_issuer, private_file,
};
use countersign_pki::oid::Oid;
use countersign_pki::{
    AltName, Certificate, CertificateTemplate, CheckedCsr, CsrLimits, Serial, StringKind,
    SubjectBuilder, UnixTime, ext, oid, seal,
};
use countersign_policy::{
    Guarded, PersonVerdict, Policy, PolicyFile, PolicySet, Requester, Rule, RuleKind, SignerName,
    Wishes,
};
use countersign_server::puppet::PuppetDoor;
use countersign_server::puppet::profiles::AgentSettings;
use countersign_server::{DOORS, KnownClient, Peer, PeerIdentity, kubernetes, puppet};
use countersign_store::SqliteStore;
use countersign_testkit::chain::Ca;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys::{self, Key};
use countersign_webhook::{Executables, ThisMachine};
use tempfile::TempDir;

use crate::outage::Switched;

pub(crate) const PUPPET_AGENT: &str = "countersign.dev/puppet-agent";
pub(crate) const PUPPET_ADMIN: &str = "countersign.dev/puppet-admin";
pub(crate) const KUBERNETES_ADMIN: &str = "countersign.dev/kubernetes-admin";
pub(crate) const KUBE_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// A signer of the Kubernetes issuer as configuration declares one: server certificates of at most a day.
pub(crate) const CUSTOM: &str = "example.com/serving";

/// What a test may choose.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Signers whose requests a rule approves; for all others people decide.
    pub(crate) approved: &'static [&'static str],
    /// Alternative names beside an agent's own.
    pub(crate) alt_names: OtherNames,
    /// Authorization extensions in agents' requests.
    pub(crate) authorization: Authorization,
    /// Where the Puppet issuer stands.
    pub(crate) place: Place,
}

/// What is above an issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Root,
    /// Below the CA that [`root_ca`] makes.
    BelowRoot,
}

impl Setup {
    /// People decide everything; nothing beside its name in an agent's certificate.
    pub(crate) const STRICT: Self = Self {
        approved: &[],
        alt_names: OtherNames::Refused,
        authorization: Authorization::Refused,
        place: Place::Root,
    };

    /// The same, with naive autosigning at the Puppet door.
    pub(crate) const AUTOSIGN: Self = Self {
        approved: &[PUPPET_AGENT],
        ..Self::STRICT
    };
}

/// The authority under test and what it stands on.
/// The door of that name.
pub(crate) fn door_named(name: &str) -> &'static DoorSpec {
    let mut doors = DOORS.into_iter();
    doors.find(|door| door.name.as_str() == name).unwrap()
}

pub(crate) struct World {
    pub(crate) authority: Authority,
    pub(crate) clock: Arc<SetClock>,
    pub(crate) store: Arc<Switched>,
    keys: Arc<FileKeys>,
    setup: Setup,
    folder: TempDir,
}

impl World {
    /// The files of the store, as they are.
    pub(crate) fn stored(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        let of_store = paths.filter(|path| path.to_string_lossy().contains("countersign.db"));
        of_store
            .flat_map(|path| std::fs::read(path).unwrap())
            .collect()
    }

    pub(crate) async fn strict() -> Self {
        Self::start(Setup::STRICT).await
    }

    pub(crate) async fn start(setup: Setup) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(SetClock(AtomicI64::new(START.0)));
        let store = SqliteStore::open(&folder.path().join("countersign.db")).unwrap();
        let store = Arc::new(Switched::new(store));
        let mut issuer_keys = FileKeys::new(FileKeys::usual_threads());
        let puppet = match setup.place {
            Place::Root => {
                let name = "Puppet CA: ca.example.com";
                issuer(&mut issuer_keys, folder.path(), "puppet", name).await
            }
            Place::BelowRoot => issuer_below_root(&mut issuer_keys, folder.path()),
        };
        let issuers = vec![
            puppet,
            issuer(
                &mut issuer_keys,
                folder.path(),
                "kubernetes",
                "Kubernetes CA: ca.example.com",
            )
            .await,
        ];
        let issuer_keys = Arc::new(issuer_keys);
        let authority = authority(&setup, &clock, &store, &issuer_keys, issuers).await;
        Self {
            authority,
            clock,
            store,
            keys: issuer_keys,
            setup,
            folder,
        }
    }

    /// The same authority in a new process. Whoever else holds the old one must let go of it soon.
    pub(crate) async fn restarted(self) -> Self {
        let Self {
            authority: old,
            clock,
            store,
            keys,
            setup,
            folder,
        } = self;
        let issuers = old.issuers.all().map(|issuer| {
            let public_key = keys.public_key(issuer.id()).unwrap();
            let (id, chain) = (issuer.id().clone(), issuer.chain_pem().to_vec());
            Issuer::from_chain(id, chain, issuer.algorithm(), &public_key).unwrap()
        });
        let issuers = issuers.collect();
        drop(old);
        let released = async {
            while Arc::strong_count(&store) > 1 {
                tokio::task::yield_now().await;
            }
        };
        let released = tokio::time::timeout(std::time::Duration::from_secs(20), released).await;
        released.expect("somebody holds on to the store");
        drop(store);
        let store = SqliteStore::open(&folder.path().join("countersign.db")).unwrap();
        let store = Arc::new(Switched::new(store));
        Self {
            authority: authority(&setup, &clock, &store, &keys, issuers).await,
            clock,
            store,
            keys,
            setup,
            folder,
        }
    }

    /// Spoils the message of an agent's request that waits, as a disk might.
    pub(crate) async fn damage_request(&self, name: &str) {
        let requests = &self.authority.requests;
        let found = requests.at(&PuppetDoor::DOOR, name, Past::Ignore).await;
        let mut record = found.unwrap().expect("a request waits");
        let forgotten = Write::DeleteRequest(record.id);
        let half = record.csr_der.len() / 2;
        record.csr_der.truncate(half);
        let change = Change {
            writes: vec![forgotten, Write::InsertRequest(record)],
            ..Change::default()
        };
        self.store.commit(change).await.unwrap();
    }

    /// Puts the rules of an `ApprovalPolicy` in force.
    pub(crate) fn set_policy(&self, document: &str) {
        let file = PolicyFile::new("policy.yaml".into(), document.to_owned());
        let rules = self.authority.rules();
        let policy = &rules.policy;
        self.authority.set_rules(rules.with_policy(Policy {
            generation: policy.generation + 1,
            rules: PolicySet::read(&[file]).unwrap().into_rules(),
            reserved: policy.reserved.clone(),
            own: policy.own.clone(),
            ..Policy::default()
        }));
    }

    /// Lets agents enrol by tokens, and by nothing else.
    pub(crate) fn use_tokens(&self) {
        self.enable_tokens();
        self.set_policy(TOKEN_POLICY);
    }

    /// Has tokens minted and looked at.
    pub(crate) fn enable_tokens(&self) {
        self.authority
            .set_rules(self.authority.rules().with_tokens(TokenSettings {
                enabled: true,
                ..TokenSettings::standard()
            }));
    }

    /// Mints a token for a name.
    pub(crate) async fn mint(&self, order: TokenOrder) -> Minted {
        let actor = Actor::authority();
        let minted = self.authority.tokens.mint(order, &actor, None);
        minted.await.unwrap()
    }

    pub(crate) fn puppet_issuer(&self) -> IssuerId {
        IssuerId::parse("puppet").unwrap()
    }

    pub(crate) fn kubernetes_issuer(&self) -> IssuerId {
        IssuerId::parse("kubernetes").unwrap()
    }

    /// Somebody without a certificate.
    pub(crate) fn anonymous(&self) -> Peer {
        Peer::anonymous(ADDRESS)
    }

    /// The administrator of the Puppet door.
    pub(crate) async fn puppet_admin(&self) -> Peer {
        self.client(
            PUPPET_ADMIN,
            "countersign-admin",
            &CsrBuilder::new("countersign-admin"),
        )
        .await
    }

    /// The holder of an agent's certificate.
    pub(crate) async fn puppet_agent(&self, certname: &str) -> Peer {
        self.client(PUPPET_AGENT, certname, &CsrBuilder::new(certname))
            .await
    }

    /// The administrator of the Kubernetes door.
    pub(crate) async fn kubernetes_admin(&self) -> Peer {
        let request = CsrBuilder::new("kubernetes-admin").organization("system:masters");
        self.client(KUBERNETES_ADMIN, "kubernetes-admin", &request)
            .await
    }

    /// The same holder and certificate, but the ledger names another signer for it.
    pub(crate) fn as_if_signed_by(&self, signer: &str, peer: &Peer) -> Peer {
        let PeerIdentity::Client(client) = peer.identity(&self.authority) else {
            panic!("the peer has no certificate that counts");
        };
        let client = KnownClient {
            issuer: client.issuer.clone(),
            signer: signer_name(signer),
            certificate: client.certificate.clone(),
        };
        Peer::with_client(peer.address, client)
    }

    /// The holder of a certificate that a signer issues now, decided by the authority itself.
    pub(crate) async fn client(&self, signer: &str, key: &str, request: &CsrBuilder) -> Peer {
        let client_usages = ["client auth", "digital signature"].map(str::to_owned);
        let usages = if signer.contains("puppet") {
            Vec::new()
        } else {
            client_usages.to_vec()
        };
        let submitted = self
            .authority
            .requests
            .submit(Submission {
                door: DoorSpec::LOCAL,
                key: key.to_owned(),
                csr: CheckedCsr::check(&request.sign(keys::p256_d()), &CsrLimits::STANDARD)
                    .unwrap(),
                signer: signer_name(signer),
                requester: Requester::authority(),
                wishes: Wishes {
                    usages,
                    expiration_seconds: None,
                },
                attachment: Vec::new(),
                bearer: None,
                decision: Some(Decision {
                    actor: Actor::authority(),
                    verdict: PersonVerdict::Approve,
                    reason: "test".to_owned(),
                    confirmation: None,
                }),
            })
            .await
            .unwrap();
        let issued = submitted
            .issued
            .expect("the authority's own decision signs at once");
        let client = KnownClient {
            issuer: issued.intent().issuer.clone(),
            signer: signer_name(signer),
            certificate: Certificate::parse(issued.der()).unwrap(),
        };
        Peer::with_client(ADDRESS, client)
    }
}

/// What a certificate says that an issuer's key signs and the ledger does not know.
#[derive(Clone, Copy)]
pub(crate) struct Forged<'a> {
    pub(crate) common_name: &'a str,
    pub(crate) organization: Option<&'a str>,
    /// Whether the name is an alternative name, too.
    pub(crate) has_alt_name: bool,
    /// Ids of the user, as the Kubernetes door reads them.
    pub(crate) uids: &'a [&'a str],
    pub(crate) not_before: UnixTime,
    pub(crate) not_after: UnixTime,
    pub(crate) usages: &'a [Oid],
    pub(crate) is_ca: bool,
}

impl<'a> Forged<'a> {
    /// A client's, good in all but the ledger's word.
    pub(crate) fn client(common_name: &'a str) -> Self {
        Self {
            common_name,
            organization: None,
            has_alt_name: true,
            uids: &[],
            not_before: START.minus_seconds(3600),
            not_after: START.plus_seconds(3600),
            usages: &[oid::EKU_CLIENT_AUTH],
            is_ca: false,
        }
    }

    /// The certificate of a server of that name.
    pub(crate) fn server(name: &'a str) -> Self {
        Self {
            usages: &[oid::EKU_SERVER_AUTH],
            ..Self::client(name)
        }
    }
}

impl World {
    /// Has an issuer's key sign a certificate behind the authority's back.
    pub(crate) async fn forge(&self, by: &IssuerId, key: &Key, forged: &Forged<'_>) -> Vec<u8> {
        let issuer = self.authority.issuers.get(by).unwrap();
        let mut extensions = vec![ext::extended_key_usage(forged.usages)];
        if forged.has_alt_name {
            let name = AltName::Dns(forged.common_name.into());
            extensions.push(ext::subject_alt_name(&[name], false));
        }
        if forged.is_ca {
            extensions.push(ext::basic_constraints_ca());
        }
        let subject = SubjectBuilder::new();
        let subject = match forged.organization {
            Some(name) => subject.push(oid::ORGANIZATION, name, StringKind::Utf8),
            None => subject,
        };
        let mut subject = subject.push(oid::COMMON_NAME, forged.common_name, StringKind::Utf8);
        for uid in forged.uids {
            let attribute = Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 57683, 2]);
            subject = subject.push(attribute, uid, StringKind::Utf8);
        }
        let template = CertificateTemplate {
            serial: Serial::try_from(4711).unwrap(),
            algorithm: issuer.algorithm(),
            issuer_name_der: issuer.certificate().subject().der(),
            not_before: forged.not_before,
            not_after: forged.not_after,
            subject_der: &subject.build(),
            spki_der: key.spki_der(),
            extensions: &extensions,
        };
        let tbs = template.to_be_signed().unwrap();
        let signature = {
            let public_key = self.keys.public_key(by).unwrap();
            let signing = self.keys.sign(by, &public_key, tbs.clone());
            signing.await.unwrap()
        };
        seal(&tbs, issuer.algorithm(), &signature.0).unwrap()
    }
}

/// A clock that stands until a test moves it.
pub(crate) struct SetClock(AtomicI64);

impl SetClock {
    pub(crate) fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn now(&self) -> UnixTime {
        UnixTime(self.0.load(Ordering::SeqCst))
    }
}

pub(crate) fn signer_name(name: &str) -> SignerName {
    SignerName::parse(name).unwrap()
}

async fn authority(
    setup: &Setup,
    clock: &Arc<SetClock>,
    store: &Arc<Switched>,
    keys: &Arc<FileKeys>,
    issuers: Vec<Issuer>,
) -> Authority {
    let rules = setup
        .approved
        .iter()
        .map(|signer| Rule::approving("autosign", vec![signer_name(signer)], RuleKind::Always));
    let own = Guarded {
        names: ["ca.example.com".to_owned(), "countersign-admin".to_owned()].into(),
        groups: ["system:masters".to_owned()].into(),
    };
    let policy = Policy {
        generation: 1,
        rules: rules.collect(),
        reserved: own.clone(),
        own,
        ..Policy::default()
    };
    let config = AuthorityConfig {
        store: Arc::clone(store) as Arc<dyn Store>,
        keys: Arc::clone(keys) as Arc<dyn KeyStore>,
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        entropy: Arc::new(SystemEntropy),
        issuers,
        rules: Rules::new(policy, signers(setup)),
        limits: Limits::STANDARD,
    };
    let authority = Authority::start(config).await.unwrap();
    authority.set_local_evidence(Arc::new(ThisMachine::new(Executables::STANDARD)));
    authority
}

async fn issuer(keys: &mut FileKeys, folder: &Path, id: &str, common_name: &str) -> Issuer {
    let issuer = IssuerId::parse(id).unwrap();
    let path = folder.join(format!("{id}_key.pem"));
    FileKeys::generate_file(&path, KeySpec::P256).unwrap();
    keys.load(issuer.clone(), &path).unwrap();
    let root = RootCertificate {
        common_name,
        not_before: START.minus_seconds(86_400),
        not_after: START.plus_seconds(15 * 365 * 86_400),
        serial: Serial::try_from(1).unwrap(),
    };
    let pem = create_issuer(keys, &issuer, &root).await.unwrap();
    let algorithm = keys.algorithm(&issuer).unwrap();
    let public_key = keys.public_key(&issuer).unwrap();
    Issuer::from_chain(issuer, pem.into_bytes(), algorithm, &public_key).unwrap()
}

/// The CA above the Puppet issuer of [`Place::BelowRoot`].
pub(crate) fn root_ca() -> Ca {
    // RSA: the same list signed twice is the same list.
    Ca::root("Example Root CA", keys::rsa2048_b(), START)
}

pub(crate) fn intermediate_ca() -> Ca {
    root_ca().below("Puppet CA: ca.example.com", keys::p256_c(), 2, START)
}

fn issuer_below_root(issuer_keys: &mut FileKeys, folder: &Path) -> Issuer {
    let id = IssuerId::parse("puppet").unwrap();
    let (path, key) = (folder.join("puppet_key.pem"), keys::p256_c());
    private_file::write_new(&path, key.pkcs8_pem().as_bytes()).unwrap();
    issuer_keys.load(id.clone(), &path).unwrap();
    let chain = [intermediate_ca(), root_ca()].map(|ca| ca.certificate.to_pem());
    let algorithm = key.issuer_algorithm().unwrap();
    Issuer::from_chain(id, chain.concat().into_bytes(), algorithm, key.spki_der()).unwrap()
}

fn signers(setup: &Setup) -> Vec<Signer> {
    let settings = AgentSettings {
        lifetime: 5 * 365 * 86_400,
        alt_names: setup.alt_names,
        authorization: setup.authorization,
    };
    let serving = ["digital signature", "server auth"]
        .into_iter()
        .map(|name| Usage::parse(name).unwrap())
        .collect();
    let custom = Profile {
        alt_names: AltNameRule::Kinds(NameKinds::ALL),
        usages: UsageRule::Asked {
            required: Vec::new(),
            permitted: serving,
        },
        ..kubernetes::profiles::within(3600, 86_400)
    };
    [
        (
            PUPPET_AGENT,
            puppet::profiles::agent(settings),
            "puppet",
            true,
        ),
        (
            PUPPET_ADMIN,
            puppet::profiles::admin(settings),
            "puppet",
            false,
        ),
        (
            KUBERNETES_ADMIN,
            kubernetes::profiles::admin(),
            "kubernetes",
            false,
        ),
        (
            KUBE_CLIENT,
            kubernetes::profiles::apiserver_client(),
            "kubernetes",
            false,
        ),
        (CUSTOM, custom, "kubernetes", false),
    ]
    .into_iter()
    .map(|(name, profile, issuer, one_certificate_per_name)| Signer {
        name: signer_name(name),
        profile,
        issuer: IssuerId::parse(issuer).unwrap(),
        one_certificate_per_name,
        administrators_only: [PUPPET_ADMIN, KUBERNETES_ADMIN].contains(&name),
        on_waiting: OnWaiting::Refuse,
    })
    .collect()
}

/// The id of `token` with the secret of another.
pub(crate) fn with_another_secret(token: &str) -> String {
    let secret: [u8; 32] = std::array::from_fn(|at| u8::try_from(at).unwrap());
    let id = token.split('.').nth(1).unwrap();
    let bits = id.bytes().fold((0_u128, 0), |(bits, count), c| {
        let five = if c.is_ascii_lowercase() {
            c - b'a'
        } else {
            c - b'2' + 26
        };
        ((bits << 5) | u128::from(five), count + 5)
    });
    let bytes = bits.0.to_be_bytes();
    let id = bytes.last_chunk::<10>().copied().unwrap();
    TokenText::new(id, secret).expose().to_owned()
}

const TOKEN_POLICY: &str = "
apiVersion: countersign.dev/v1alpha1
kind: ApprovalPolicy
metadata: {name: tokens}
spec:
  signers: [countersign.dev/puppet-agent]
  rules:
    - name: token
      approve: {token: {}}
";

/// 2026-01-02T03:04:05Z.
pub(crate) const START: UnixTime = UnixTime(1_767_323_045);

const ADDRESS: SocketAddr = SocketAddr::new(
    std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)),
    40_000,
);
