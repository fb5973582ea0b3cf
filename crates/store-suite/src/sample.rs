//! Records to store, each different from the ones before.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use countersign_authority::store::{Change, Committed, Precondition, RequestUpdate, Store, Write};
use countersign_authority::{
    AuditEntry, BootstrapId, BootstrapRecord, CrlRecord, CrlScope, DeferredRequest, Door, Intent,
    IssuerId, ObjectKey, ObjectRecord, Owner, RequestId, RequestRecord, RequestState, Revision,
    Revocation, Revoked, TokenId, TokenRecord, TokenStanding, TokenUseRecord,
};
use countersign_pki::{Fingerprint, RevocationReason, Serial, UnixTime, fingerprint_sha256};
use countersign_policy::{
    AccessAnswer, AccessQuestion, AddressKind, BuildWindow, Deciding, Effect, Execution,
    Explanation, Finding, Identity, LedgerCertificate, LedgerFacts, LedgerRevocation, Machine,
    MachineAddress, Network, RecordedAccess, RecordedEvidence, RecordedFile, Requester, SignerName,
    Step, TokenBinding, TokenTerms, TokenUseState, WebhookAnswer, Wishes,
};

/// Makes records. Identities grow with the order in which they were made, as those of real requests do.
#[derive(Debug, Default)]
pub struct Sample {
    made: AtomicU32,
}

/// The usual enrolment: a request that is approved at once and its certificate, in two commits.
#[derive(Debug)]
pub struct Enrolment {
    /// The request, as it is inserted.
    pub request: RequestRecord,
    /// The intent for it.
    pub intent: Intent,
}

impl Sample {
    /// A request with every field filled, pending, at the door `puppet`.
    pub fn request(&self, key: &str) -> RequestRecord {
        self.request_at(Self::door(), key)
    }

    /// The same at another door.
    pub fn request_at(&self, door: Door, key: &str) -> RequestRecord {
        let number = self.next();
        RequestRecord {
            evidence: RecordedEvidence::default(),
            id: Self::identity(number),
            door,
            key: key.to_owned(),
            live: true,
            retained: number.is_multiple_of(2),
            version: Revision::default(),
            state: RequestState::Pending,
            signer: Self::signer(),
            csr_der: (0..=255).chain(number.to_be_bytes()).collect(),
            key_fingerprint: fingerprint_sha256(&number.to_le_bytes()),
            requester: Requester {
                identity: Identity::User {
                    username: format!("system:node:{key}"),
                    groups: vec!["system:nodes".to_owned(), "Gruppe \"ä\"".to_owned()],
                    uid: number.to_string(),
                    extra: BTreeMap::from([(
                        "pod".to_owned(),
                        vec!["a".to_owned(), String::new()],
                    )]),
                },
                source: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7))),
            },
            wishes: Wishes {
                usages: vec!["client auth".to_owned()],
                expiration_seconds: Some(86_400),
            },
            created: Self::time(number),
            explanation: Self::explanation(Effect::Pending, number),
            failure: None,
            certificate: None,
            attachment: vec![0, 1, 0xff],
        }
    }

    /// An intent for a request, in the ledger under the request's name.
    pub fn intent(&self, request: &RequestRecord) -> Intent {
        let number = self.next();
        Intent {
            issuer: Self::issuer(),
            serial: Self::serial(number),
            request: request.id,
            signer: request.signer.clone(),
            name: request.key.clone(),
            key_fingerprint: request.key_fingerprint,
            not_before: Self::time(number).minus_seconds(86_400),
            not_after: Self::time(number).plus_seconds(86_400 * 365),
            explanation: Self::explanation(Effect::Approve, number),
            owner: Self::owner(),
            lease_until: Self::time(number).plus_seconds(60),
            deferred: None,
        }
    }

    /// An enrolment that has not happened yet.
    pub fn enrolment(&self, key: &str) -> Enrolment {
        let mut request = self.request(key);
        request.state = RequestState::Approved;
        request.explanation.effect = Effect::Approve;
        let intent = self.intent(&request);
        Enrolment { request, intent }
    }

    /// The name of an object that has no namespace.
    pub fn object_key(name: &str) -> ObjectKey {
        ObjectKey {
            kind: "clusterroles.rbac.authorization.k8s.io".to_owned(),
            namespace: String::new(),
            name: name.to_owned(),
        }
    }

    /// An object of this name.
    pub fn object(&self, key: ObjectKey) -> ObjectRecord {
        let number = self.next();
        ObjectRecord {
            key,
            id: Self::identity(number),
            version: Revision::default(),
            created: Self::time(number),
            body: [&[0, 0xff], number.to_be_bytes().as_slice()].concat(),
        }
    }

    /// A bootstrap token that is good until the time 100, with every field filled.
    pub fn bootstrap_token(&self) -> BootstrapRecord {
        let number = self.next();
        BootstrapRecord {
            id: BootstrapId::parse(&format!("{number:06}")).unwrap(),
            mac: *fingerprint_sha256(&number.to_be_bytes()).as_bytes(),
            mac_key_id: "key \"ä\"".to_owned(),
            terms_mac: Some([7; 32]),
            groups: vec!["system:bootstrappers:a".to_owned(), "b \"ä\"".to_owned()],
            description: "rack \"ä\"".to_owned(),
            expires_at: Some(Self::time(100)),
            created_by: "minter.example.com".to_owned(),
            created_at: Self::time(number),
            revoked_at: None,
            epoch: 0,
        }
    }

    /// One without an end, and with nothing said that need not be.
    pub fn endless_bootstrap_token(&self) -> BootstrapRecord {
        BootstrapRecord {
            mac_key_id: String::new(),
            terms_mac: None,
            groups: Vec::new(),
            description: String::new(),
            expires_at: None,
            ..self.bootstrap_token()
        }
    }

    /// An audit entry.
    pub fn audit(&self, action: &'static str, subject: &str) -> AuditEntry {
        AuditEntry::own(Self::time(self.next()), action, subject.to_owned())
    }

    /// A machine with every field filled that an administrator fills.
    pub fn machine(name: &str) -> Machine {
        let address = |kind, address: &str| MachineAddress {
            kind,
            address: address.to_owned(),
        };
        Machine {
            addresses: vec![
                address(AddressKind::InternalIP, "192.0.2.7"),
                address(AddressKind::ExternalIP, "2001:db8::1"),
                address(AddressKind::Hostname, "web01"),
                address(AddressKind::InternalDNS, "web01.internal"),
                address(AddressKind::ExternalDNS, "www.example.com"),
            ],
            serial: "S/N \"7\" ä".to_owned(),
            uuid: "4c4c4544-0042-3510-8054-b7c04f564432".to_owned(),
            instance_id: "i-0abc".to_owned(),
            provider: "rack 7".to_owned(),
            role: "web".to_owned(),
            not_before: Some(Self::time(1)),
            not_after: Some(Self::time(100)),
            single_use: true,
            ..Machine::named(name, Self::time(0))
        }
    }

    /// A build window that is good for five.
    pub fn window(certname: &str) -> BuildWindow {
        BuildWindow {
            certname: certname.to_owned(),
            opens_at: Self::time(0),
            closes_at: Self::time(100),
            max_issuances: 5,
            issuances: 0,
            require_token: false,
        }
    }

    /// A token for one name that is good for one use between the times 0 and 100, with every field filled.
    pub fn token(&self, certname: &str) -> TokenRecord {
        let number = self.next();
        TokenRecord {
            id: Self::token_id(number),
            mac: *fingerprint_sha256(&number.to_be_bytes()).as_bytes(),
            mac_key_id: "key \"ä\"".to_owned(),
            terms_mac: Some([7; 32]),
            binding: TokenBinding::Exact(certname.to_owned()),
            not_before: Self::time(0),
            expires_at: Self::time(100),
            max_uses: 1,
            uses: 0,
            standing: TokenStanding::Active,
            terms: TokenTerms {
                allowed_sans: vec!["DNS:www.example.com".to_owned()],
                allowed_extensions: Some(BTreeMap::from([(
                    "1.3.6.1.4.1.34380.1.1.13".to_owned(),
                    vec!["web \"ä\"".to_owned(), String::new()],
                )])),
                spki_sha256: Some(fingerprint_sha256(b"key").to_hex()),
                source_cidrs: Network::parse("192.0.2.0/24").into_iter().collect(),
                allow_replace: true,
                profile: Self::signer().to_string(),
            },
            created_by: "minter.example.com".to_owned(),
            external_ref: "foreman:host:42".to_owned(),
            note: "rack \"ä\"".to_owned(),
            created_at: Self::time(number),
            failed_uses: 0,
            epoch: 0,
            idempotency_key: Some(format!("order {number}")),
            version: Revision::default(),
        }
    }

    /// A token that is good for several uses, by any host of a domain, with nothing said that need not be.
    pub fn glob_token(&self, max_uses: u32) -> TokenRecord {
        TokenRecord {
            mac_key_id: String::new(),
            terms_mac: None,
            binding: TokenBinding::Glob("*.example.com".to_owned()),
            max_uses,
            terms: TokenTerms::default(),
            external_ref: String::new(),
            note: String::new(),
            idempotency_key: None,
            ..self.token("")
        }
    }

    /// The use of a token at time 10 for which a certificate is about to be signed. It may be asked for again until 50.
    pub fn token_use(
        &self,
        token: &TokenRecord,
        certname: &str,
        key: &Fingerprint,
    ) -> TokenUseRecord {
        TokenUseRecord {
            token: token.id.clone(),
            certname: certname.to_owned(),
            key_fingerprint: *key,
            state: TokenUseState::Reserved,
            request: Some(Self::identity(self.next())),
            serial: None,
            at: Self::time(10),
            retry_until: Self::time(50),
        }
    }

    /// The public part of a token.
    pub fn token_id(number: u32) -> TokenId {
        let digits = (0..16).rev().map(|place| {
            let digit = number.checked_shr(place * 5).unwrap_or(0) % 32;
            char::from_digit(digit, 32).map(|digit| match digit {
                // The alphabet of RFC 4648 has neither 0 nor 1; its order does not matter here.
                '0' => 'y',
                '1' => 'z',
                '8' => 'w',
                '9' => 'x',
                other => other,
            })
        });
        let text: String = digits.flatten().collect();
        TokenId::parse(&text).unwrap()
    }

    /// Evidence of every kind.
    pub fn evidence() -> RecordedEvidence {
        let at = Self::time(3);
        RecordedEvidence {
            token: None,
            access: vec![RecordedAccess {
                question: AccessQuestion {
                    resource: "pods".to_owned(),
                    verb: "get".to_owned(),
                    ..AccessQuestion::default()
                },
                answer: AccessAnswer::NotAllowed {
                    reason: "ö".to_owned(),
                },
            }],
            files: BTreeMap::from([("/etc/autosign.conf".into(), RecordedFile::Executable)]),
            executions: BTreeMap::from([
                ("/etc/a".into(), Execution::Approved),
                (
                    "/etc/b".into(),
                    Execution::Declined("status \"3\"".to_owned()),
                ),
                ("/etc/c".into(), Execution::Unavailable("busy".to_owned())),
            ]),
            webhooks: BTreeMap::from([
                (
                    "https://a".to_owned(),
                    WebhookAnswer::Allow {
                        reason: "ä".to_owned(),
                        ttl_seconds: Some(60),
                    },
                ),
                (
                    "https://b".to_owned(),
                    WebhookAnswer::Unavailable {
                        reason: "late".to_owned(),
                    },
                ),
            ]),
            machine: Some(Some(Self::machine("web01"))),
            window: Some(Some(Self::window("web01"))),
            ledger: Some(LedgerFacts {
                certificate: Some(LedgerCertificate {
                    serial: "0a".to_owned(),
                    not_after: at,
                    same_key: true,
                }),
                revoked: Some(LedgerRevocation {
                    serial: "0b".to_owned(),
                    time: at,
                    reason: "superseded".to_owned(),
                }),
            }),
        }
    }

    /// The door of most samples.
    pub const fn door() -> Door {
        Door::named("puppet")
    }

    /// The issuer of most samples.
    pub fn issuer() -> IssuerId {
        IssuerId::parse("puppet").unwrap()
    }

    /// The signer of all samples.
    pub fn signer() -> SignerName {
        SignerName::parse("countersign.dev/puppet-agent").unwrap()
    }

    /// The owner of all intents.
    pub fn owner() -> Owner {
        Owner("this-process".to_owned())
    }

    /// A moment, later for larger numbers.
    pub fn time(number: u32) -> UnixTime {
        UnixTime(1_700_000_000).plus_seconds(u64::from(number))
    }

    /// A serial: short ones, long ones, and ones whose top bit is set.
    pub fn serial(number: u32) -> Serial {
        match number % 3 {
            0 => Serial::try_from(u64::from(number).saturating_add(1)).unwrap(),
            1 => Serial::try_from(u64::MAX.saturating_sub(u64::from(number))).unwrap(),
            _ => {
                let mut bytes = [0x5a; 16];
                bytes[12..].copy_from_slice(&number.to_be_bytes());
                Serial::random_from(bytes)
            }
        }
    }

    fn identity(number: u32) -> RequestId {
        let mut random = [0x33; 10];
        random[6..].copy_from_slice(&number.to_be_bytes());
        RequestId::new(Self::time(number), random)
    }

    fn explanation(effect: Effect, number: u32) -> Explanation {
        Explanation {
            by: Some(Deciding::rule("lab")),
            steps: vec![Step::new(
                "lab",
                "allowlist",
                Finding::Match,
                "the name is \"on\" the list".to_owned(),
            )],
            ..Explanation::new(effect, Self::time(number), u64::from(number))
        }
    }

    fn next(&self) -> u32 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }
}

impl Enrolment {
    /// The same with an intent that holds its request, which is not retained.
    #[must_use]
    pub fn held(self, sample: &Sample) -> Self {
        let Self {
            mut request,
            mut intent,
        } = self;
        request.retained = false;
        // What both say is kept once.
        request.explanation = intent.explanation.clone();
        intent.deferred = Some(Arc::new(DeferredRequest {
            request: Arc::new(request.clone()),
            audit: vec![sample.audit("request", &request.key)],
        }));
        Self { request, intent }
    }

    /// The first commit: the request with its intent.
    pub fn intend(&self, sample: &Sample) -> Change {
        let Self { request, intent } = self;
        Change {
            preconditions: vec![
                Precondition::KeyFree {
                    door: request.door.clone(),
                    key: request.key.clone(),
                },
                Precondition::NewestCertificate {
                    issuer: intent.issuer.clone(),
                    name: intent.name.clone(),
                    serial: None,
                },
            ],
            writes: vec![
                Write::InsertRequest(request.clone()),
                Write::Intend(intent.clone()),
            ],
            audit: vec![sample.audit("approve", &request.key)],
        }
    }

    /// The second commit: the certificate.
    pub fn record(&self, sample: &Sample) -> Change {
        let Self { request, intent } = self;
        Change {
            preconditions: vec![Precondition::IntentOpen {
                issuer: intent.issuer.clone(),
                serial: intent.serial,
                owner: Some(intent.owner.clone()),
            }],
            writes: vec![
                Write::Record {
                    issuer: intent.issuer.clone(),
                    serial: intent.serial,
                    der: self.der(),
                },
                Write::UpdateRequest(RequestUpdate {
                    state: RequestState::Issued,
                    live: request.retained,
                    certificate: Some((intent.issuer.clone(), intent.serial)),
                    ..untouched(request)
                }),
            ],
            audit: vec![sample.audit("issue", &intent.serial.to_string())],
        }
    }

    /// The certificate: the store does not look into it.
    pub fn der(&self) -> Vec<u8> {
        [b"certificate ", self.intent.serial.as_bytes()].concat()
    }

    /// Its revocation.
    pub fn revocation(&self, at: UnixTime, reason: RevocationReason) -> Revocation {
        Revocation {
            issuer: self.intent.issuer.clone(),
            serial: self.intent.serial,
            revoked: Revoked { at, reason },
            not_after: self.intent.not_after,
            listed: true,
        }
    }
}

/// An update that leaves everything as it was inserted.
pub(super) fn untouched(request: &RequestRecord) -> RequestUpdate {
    RequestUpdate {
        evidence: None,
        id: request.id,
        state: request.state,
        live: request.live,
        explanation: None,
        failure: None,
        certificate: None,
        attachment: None,
        csr_der: None,
    }
}

/// A CRL of the usual issuer.
pub(super) fn crl(number: u64) -> CrlRecord {
    CrlRecord {
        issuer: Sample::issuer(),
        scope: CrlScope::Full,
        number,
        covers: Revision(number),
        this_update: Sample::time(0),
        next_update: Sample::time(1),
        der: format!("list {number}").into_bytes(),
    }
}

/// Commits writes without preconditions.
pub(super) async fn write(store: &dyn Store, writes: Vec<Write>) -> Committed {
    store
        .commit(Change {
            writes,
            ..Change::default()
        })
        .await
        .unwrap()
}

/// Stores a request.
pub(super) async fn insert(store: &dyn Store, request: &RequestRecord) -> Committed {
    write(store, vec![Write::InsertRequest(request.clone())]).await
}

/// Puts a certificate with its request into the ledger.
pub(super) async fn enrol(store: &dyn Store, sample: &Sample, key: &str) -> Enrolment {
    let enrolment = sample.enrolment(key);
    store.commit(enrolment.intend(sample)).await.unwrap();
    store.commit(enrolment.record(sample)).await.unwrap();
    enrolment
}

/// Puts another certificate for the same request into the ledger.
pub(super) async fn renew(store: &dyn Store, sample: &Sample, earlier: &Enrolment) -> Enrolment {
    let renewed = Enrolment {
        request: earlier.request.clone(),
        intent: sample.intent(&earlier.request),
    };
    write(store, vec![Write::Intend(renewed.intent.clone())]).await;
    store.commit(renewed.record(sample)).await.unwrap();
    renewed
}

/// Two records are the same if everything they hold is.
pub(super) fn assert_same<T: std::fmt::Debug>(found: T, expected: T) {
    assert_eq!(format!("{found:#?}"), format!("{expected:#?}"));
}
