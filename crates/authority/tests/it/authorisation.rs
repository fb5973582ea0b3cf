//! Who may do what to which name, whatever the door.

use std::collections::BTreeSet;
use std::sync::Arc;

use countersign_authority::grant::{Grant, Needed, Role, Suffix};
use countersign_authority::profile::{OtherNames, Usage, UsageRule};
use countersign_authority::{
    ActFault, Actor, Authority, BootstrapId, BootstrapOrder, Decision, InventoryFault, IssuerId,
    Limits, OnExisting, OnWaiting, Profile, RenewFault, RequestState, Revision, RevokeFault, Roles,
    Settlement, Submission, SubmitFault, TokenFault, TokenOrder, TokenSettings, WindowFault,
};
use countersign_keys::LeafKey;
use countersign_pki::{AltName, CheckedCsr, CsrLimits, RevocationReason, Serial};
use countersign_policy::{
    AddressKind, BuildWindow, Guarded, Identity, Machine, MachineAddress, PersonVerdict, Policy,
    Requester, SignerName, TokenBinding,
};

use crate::profiles::{self, AgentSettings};
use crate::site::rules_of;
use crate::tokens::{self, TOKEN_RULE};
use crate::world::{self, DOOR, TestClock, TestSigner, act, agent_signer, issuer_id};

const REASON: RevocationReason = RevocationReason::KeyCompromise;

/// Signs certificates of administrators, and nothing that waits.
const OWN: &str = "test.example/own";
/// Signs for servers, under whatever name their requests have.
const SERVING: &str = "test.example/serving";

/// What a certificate is for.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Ordinary,
    OwnName,
    OwnAltName,
    OwnWildcard,
    AdministratorByRole,
    AdministratorByLedger,
    WithRole,
}

use Kind::{
    AdministratorByLedger, AdministratorByRole, Ordinary, OwnAltName, OwnName, OwnWildcard,
    WithRole,
};

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Ordinary => "web01.example.com",
            OwnName => "ca.example.com",
            OwnAltName => "web02.example.com",
            OwnWildcard => "web03.example.com",
            AdministratorByRole => "boss.example.com",
            AdministratorByLedger => "second-admin.example.com",
            WithRole => "builder.example.com",
        }
    }

    fn alt_names(self) -> Vec<AltName> {
        let name = match self {
            OwnAltName => "CA.Example.com",
            OwnWildcard => "*.Example.com",
            Ordinary | OwnName | AdministratorByRole | AdministratorByLedger | WithRole => {
                return Vec::new();
            }
        };
        vec![AltName::Dns(name.to_owned())]
    }

    fn submission(self) -> Submission {
        let key = LeafKey::generate().unwrap();
        let der = key.request(self.name(), &[], &self.alt_names()).unwrap();
        let csr = CheckedCsr::check(&der, &CsrLimits::STANDARD).unwrap();
        let submission = world::with_csr(self.name(), csr);
        match self {
            OwnWildcard => Submission {
                signer: signer(SERVING),
                wishes: countersign_policy::Wishes {
                    usages: vec!["server auth".to_owned()],
                    expiration_seconds: None,
                },
                ..submission
            },
            Ordinary
            | OwnName
            | OwnAltName
            | AdministratorByRole
            | AdministratorByLedger
            | WithRole => submission,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Approve,
    Decide,
    Deny,
    Attach,
    Settle,
    Delete,
    RevokeName,
    RevokeSerial,
    Clean,
    CleanMany,
    Retire,
    RetireWaiting,
    Unlist,
    Renew,
}

/// Nobody, who reads, who mints, who signs below a suffix, who signs, who signs and mints, whom a door lets without any
/// role, an administrator.
fn actors() -> Vec<Actor> {
    let suffix = [Suffix::parse(".example.com").unwrap()];
    let grants: [&[(Role, &[Suffix])]; 7] = [
        &[],
        &[(Role::Read, &[])],
        &[(Role::Mint, &[])],
        &[(Role::Sign, &suffix)],
        &[(Role::Sign, &[])],
        &[(Role::Sign, &[]), (Role::Mint, &[])],
        &[(Role::Admin, &[])],
    ];
    let somebody = || Requester {
        identity: Identity::Certname {
            certname: "somebody.example.net".to_owned(),
        },
        source: None,
    };
    let mut actors: Vec<Actor> = grants
        .iter()
        .map(|roles| {
            let mut grant = Grant::NOTHING;
            for (role, suffixes) in *roles {
                grant.add(*role, suffixes);
            }
            Actor::with_roles(somebody(), grant)
        })
        .collect();
    actors.insert(6, Actor::let_by_door(somebody(), Grant::NOTHING));
    actors
}

/// A letter for each of [`actors`], and for an administrator who insists: whether they may.
#[rustfmt::skip]
static TABLE: [(Deed, Kind, &str); 14 * 7] = {
    use Deed::{
        Approve, Attach, Clean, CleanMany, Decide, Delete, Deny, Renew, Retire, RetireWaiting, RevokeName, RevokeSerial,
        Settle, Unlist,
    };
    [
        (Approve, Ordinary,              "...yyyyyy"),
        (Approve, OwnName,               ".......yy"),
        (Approve, OwnAltName,            ".......yy"),
        (Approve, OwnWildcard,           ".......yy"),
        (Approve, AdministratorByRole,   ".......yy"),
        (Approve, AdministratorByLedger, ".......yy"),
        (Approve, WithRole,              ".....y.yy"),

        (Decide, Ordinary,              "...yyyyyy"),
        (Decide, OwnName,               ".......yy"),
        (Decide, OwnAltName,            ".......yy"),
        (Decide, OwnWildcard,           ".......yy"),
        (Decide, AdministratorByRole,   ".......yy"),
        (Decide, AdministratorByLedger, ".......yy"),
        (Decide, WithRole,              ".....y.yy"),

        // To deny gives nothing away. What its name does not tell is out of reach for a limited role.
        (Deny, Ordinary,              "...yyyyyy"),
        (Deny, OwnName,               "...yyyyyy"),
        (Deny, OwnAltName,            "...yyyyyy"),
        (Deny, OwnWildcard,           "....yyyyy"),
        (Deny, AdministratorByRole,   "...yyyyyy"),
        (Deny, AdministratorByLedger, "...yyyyyy"),
        (Deny, WithRole,              "...yyyyyy"),

        (Attach, Ordinary,              "...yyyyyy"),
        (Attach, OwnName,               "...yyyyyy"),
        (Attach, OwnAltName,            "...yyyyyy"),
        (Attach, OwnWildcard,           "....yyyyy"),
        (Attach, AdministratorByRole,   "...yyyyyy"),
        (Attach, AdministratorByLedger, "...yyyyyy"),
        (Attach, WithRole,              "...yyyyyy"),

        (Settle, Ordinary,              "...yyyyyy"),
        (Settle, OwnName,               "...yyyyyy"),
        (Settle, OwnAltName,            "...yyyyyy"),
        (Settle, OwnWildcard,           "....yyyyy"),
        (Settle, AdministratorByRole,   "...yyyyyy"),
        (Settle, AdministratorByLedger, "...yyyyyy"),
        (Settle, WithRole,              "...yyyyyy"),

        (Delete, Ordinary,              "...yyyyyy"),
        (Delete, OwnName,               ".......yy"),
        (Delete, OwnAltName,            ".......yy"),
        (Delete, OwnWildcard,           ".......yy"),
        (Delete, AdministratorByRole,   ".......yy"),
        (Delete, AdministratorByLedger, ".......yy"),
        (Delete, WithRole,              "...yyyyyy"),

        (RevokeName, Ordinary,              "...yyyyyy"),
        (RevokeName, OwnName,               "........y"),
        (RevokeName, OwnAltName,            "........y"),
        (RevokeName, OwnWildcard,           "........y"),
        (RevokeName, AdministratorByRole,   "........y"),
        (RevokeName, AdministratorByLedger, "........y"),
        (RevokeName, WithRole,              "...yyyyyy"),

        (RevokeSerial, Ordinary,              "...yyyyyy"),
        (RevokeSerial, OwnName,               ".......yy"),
        (RevokeSerial, OwnAltName,            ".......yy"),
        (RevokeSerial, OwnWildcard,           ".......yy"),
        (RevokeSerial, AdministratorByRole,   ".......yy"),
        (RevokeSerial, AdministratorByLedger, ".......yy"),
        (RevokeSerial, WithRole,              "...yyyyyy"),

        (Clean, Ordinary,              "...yyyyyy"),
        (Clean, OwnName,               "........y"),
        (Clean, OwnAltName,            "........y"),
        (Clean, OwnWildcard,           "........y"),
        (Clean, AdministratorByRole,   "........y"),
        (Clean, AdministratorByLedger, "........y"),
        (Clean, WithRole,              "...yyyyyy"),

        (CleanMany, Ordinary,              "...yyyyyy"),
        (CleanMany, OwnName,               "........y"),
        (CleanMany, OwnAltName,            "........y"),
        (CleanMany, OwnWildcard,           "........y"),
        (CleanMany, AdministratorByRole,   "........y"),
        (CleanMany, AdministratorByLedger, "........y"),
        (CleanMany, WithRole,              "...yyyyyy"),

        (Retire, Ordinary,              "...yyyyyy"),
        (Retire, OwnName,               "........y"),
        (Retire, OwnAltName,            "........y"),
        (Retire, OwnWildcard,           "........y"),
        (Retire, AdministratorByRole,   "........y"),
        (Retire, AdministratorByLedger, "........y"),
        (Retire, WithRole,              "...yyyyyy"),

        (RetireWaiting, Ordinary,              "...yyyyyy"),
        (RetireWaiting, OwnName,               ".......yy"),
        (RetireWaiting, OwnAltName,            ".......yy"),
        (RetireWaiting, OwnWildcard,           ".......yy"),
        (RetireWaiting, AdministratorByRole,   ".......yy"),
        (RetireWaiting, AdministratorByLedger, "........y"),
        (RetireWaiting, WithRole,              "...yyyyyy"),

        (Unlist, Ordinary,              ".......yy"),
        (Unlist, OwnName,               ".......yy"),
        (Unlist, OwnAltName,            ".......yy"),
        (Unlist, OwnWildcard,           ".......yy"),
        (Unlist, AdministratorByRole,   ".......yy"),
        (Unlist, AdministratorByLedger, ".......yy"),
        (Unlist, WithRole,              ".......yy"),

        (Renew, Ordinary,              "...yyyyyy"),
        (Renew, OwnName,               ".......yy"),
        (Renew, OwnAltName,            ".......yy"),
        (Renew, OwnWildcard,           ".......yy"),
        (Renew, AdministratorByRole,   ".......yy"),
        (Renew, AdministratorByLedger, ".......yy"),
        (Renew, WithRole,              ".....y.yy"),
    ]
};

#[tokio::test(flavor = "multi_thread")]
async fn every_role_acts_on_exactly_its_names() {
    let mut deeds = tokio::task::JoinSet::new();
    for rows in TABLE.chunks(7) {
        deeds.spawn(follow(rows));
    }
    while let Some(followed) = deeds.join_next().await {
        followed.unwrap();
    }
}

async fn follow(rows: &'static [(Deed, Kind, &'static str)]) {
    let ground = Ground::new().await;
    for (deed, kind, expected) in rows {
        let mut allowed = String::new();
        ground.prepare(*deed, *kind).await;
        let insisting = actors().pop().map(|admin| admin.insisting(true));
        for actor in actors().into_iter().chain(insisting) {
            let before = ground.authority.revision();
            match ground.act(*deed, *kind, actor).await {
                Ok(()) => {
                    allowed.push('y');
                    ground.clear(*kind).await;
                    ground.prepare(*deed, *kind).await;
                }
                // It stays as it was for the next one.
                Err(needed) => {
                    allowed.push('.');
                    ground.assert_refused(before, &needed, *kind).await;
                }
            }
        }
        ground.clear(*kind).await;
        assert_eq!(allowed, *expected, "{deed:?} {kind:?}");
    }
}

struct Ground {
    authority: Authority,
    folder: tempfile::TempDir,
}

#[derive(Clone, Copy, PartialEq)]
enum OneCertificate {
    PerName,
    PerRequest,
}

impl Ground {
    async fn new() -> Self {
        Self::with(OneCertificate::PerRequest).await
    }

    async fn with(one_certificate: OneCertificate) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        world::prepare(path).await;
        let settings = AgentSettings {
            alt_names: OtherNames::DnsAndIp,
            ..world::settings()
        };
        let serving = Profile {
            usages: UsageRule::Asked {
                required: Vec::new(),
                permitted: vec![Usage::parse("server auth").unwrap()],
            },
            ..profiles::anything()
        };
        let signers = [
            (agent_signer(), profiles::agent(settings)),
            (signer(SERVING), serving),
            (signer(OWN), profiles::admin(settings)),
        ];
        let signers = signers.into_iter().map(|(name, profile)| TestSigner {
            name,
            profile,
            one_certificate_per_name: one_certificate == OneCertificate::PerName,
            on_waiting: OnWaiting::Refuse,
        });
        let mut policy = world::policy(false);
        policy.own = Guarded {
            groups: ["masters".to_owned()].into(),
            ..policy.own
        };
        let authority = world::authority_of(
            path,
            Arc::new(world::store(path)),
            Arc::new(world::keys(path)),
            TestClock::new(),
            policy,
            signers.collect(),
            Limits::STANDARD,
        )
        .await;
        authority.set_roles(Arc::new(KnownRoles));
        Self { authority, folder }
    }

    /// Puts in place what a deed is done to.
    async fn prepare(&self, deed: Deed, kind: Kind) {
        if let AdministratorByLedger = kind {
            let submission = world::with_csr(kind.name(), kind.submission().csr);
            self.issue(Submission {
                signer: signer(OWN),
                ..submission
            })
            .await;
        }
        match deed {
            Deed::Approve
            | Deed::Deny
            | Deed::Attach
            | Deed::Settle
            | Deed::Delete
            | Deed::RetireWaiting => {
                let submitted = self
                    .authority
                    .requests
                    .submit(kind.submission())
                    .await
                    .unwrap();
                assert_eq!(submitted.state, RequestState::Pending);
            }
            Deed::Decide => {}
            Deed::RevokeName
            | Deed::RevokeSerial
            | Deed::Clean
            | Deed::CleanMany
            | Deed::Retire
            | Deed::Renew => match kind {
                AdministratorByLedger => {}
                Ordinary | OwnName | OwnAltName | OwnWildcard | AdministratorByRole | WithRole => {
                    self.issue(kind.submission()).await;
                }
            },
            Deed::Unlist => {
                self.issue(kind.submission()).await;
                let (own, issuer) = (Actor::authority(), issuer_id());
                let revoked = self
                    .authority
                    .ledger
                    .revoke_name(&issuer, kind.name(), REASON, &own);
                revoked.await.unwrap();
            }
        }
    }

    async fn issue(&self, submission: Submission) {
        let decided = Submission {
            decision: Some(Decision {
                actor: Actor::authority(),
                verdict: PersonVerdict::Approve,
                reason: String::new(),
                confirmation: None,
            }),
            ..submission
        };
        assert!(
            self.authority
                .requests
                .submit(decided)
                .await
                .unwrap()
                .issued
                .is_some()
        );
    }

    async fn serial(&self, kind: Kind) -> Serial {
        let issuer = issuer_id();
        let all = self.authority.ledger.of_name(&issuer, kind.name());
        let all = all.await.unwrap();
        all.first().unwrap().serial
    }

    /// Does it; an error says that somebody may not.
    async fn act(&self, deed: Deed, kind: Kind, actor: Actor) -> Result<(), Needed> {
        let (authority, issuer, name) = (&self.authority, issuer_id(), kind.name());
        let on_request = countersign_authority::Act {
            actor: actor.clone(),
            ..act(name)
        };
        match deed {
            Deed::Approve => of_act(authority.requests.approve(on_request).await),
            Deed::Deny => of_act(authority.requests.deny(on_request).await),
            Deed::Attach => of_act(authority.requests.attach(on_request).await),
            Deed::Delete => of_act(authority.requests.delete(on_request).await),
            Deed::Settle => {
                let reason = "elsewhere".to_owned();
                let failed = vec![Settlement::Failed { reason }];
                of_act(authority.requests.settle(on_request, failed).await)
            }
            Deed::Decide => {
                let decision = Some(Decision {
                    actor,
                    verdict: PersonVerdict::Approve,
                    reason: String::new(),
                    confirmation: None,
                });
                let submission = Submission {
                    decision,
                    ..kind.submission()
                };
                match authority.requests.submit(submission).await {
                    Ok(submitted) => {
                        assert!(submitted.issued.is_some());
                        Ok(())
                    }
                    Err(SubmitFault::Forbidden(needed)) => Err(needed),
                    Err(fault) => panic!("{fault}"),
                }
            }
            Deed::RevokeName => of_revocation(
                authority
                    .ledger
                    .revoke_name(&issuer, name, REASON, &actor)
                    .await,
            ),
            Deed::RevokeSerial => {
                let serial = self.serial(kind).await;
                let revoked = authority
                    .ledger
                    .revoke_serial(&issuer, &serial, REASON, &actor);
                of_revocation(revoked.await)
            }
            Deed::Clean => {
                let names = vec![name.to_owned()];
                of_revocation(authority.ledger.clean(&issuer, names, REASON, &actor).await)
            }
            Deed::CleanMany => {
                let names = ["absent.example.com", name].map(str::to_owned).to_vec();
                of_revocation(authority.ledger.clean(&issuer, names, REASON, &actor).await)
            }
            Deed::Retire | Deed::RetireWaiting => {
                of_revocation(authority.ledger.retire(&issuer, name, &DOOR, &actor).await)
            }
            Deed::Unlist => {
                let serials = BTreeSet::from([self.serial(kind).await]);
                of_revocation(authority.ledger.unlist(&issuer, serials, &actor).await)
            }
            Deed::Renew => {
                let serial = self.serial(kind).await;
                match authority.ledger.renew(&issuer, &serial, 3600, &actor).await {
                    Ok(_) => Ok(()),
                    Err(RenewFault::Forbidden(needed)) => Err(needed),
                    Err(fault) => panic!("{fault}"),
                }
            }
        }
    }

    /// A refusal changes nothing, names the name and the role, and is on record.
    async fn assert_refused(&self, before: Revision, needed: &Needed, kind: Kind) {
        let entries = self.authority.audit.after(before, 10).await.unwrap();
        let [(_, entry)] = entries.as_slice() else {
            panic!("{entries:?}");
        };
        assert_eq!(entry.action, "refuse");
        assert_eq!(entry.actor_name(), "somebody.example.net");
        assert_eq!(entry.detail, needed.to_string());
        if needed.role() == "admin" && !matches!(needed, Needed::Role { .. }) {
            let name = match kind {
                OwnName | OwnAltName | OwnWildcard => "ca.example.com",
                Ordinary | AdministratorByRole | AdministratorByLedger | WithRole => kind.name(),
            };
            let said = format!("this call needs the role admin for {name}");
            assert_eq!(needed.to_string(), said);
        }
    }

    async fn clear(&self, kind: Kind) {
        let (authority, own, issuer) = (&self.authority, Actor::authority(), issuer_id());
        let names = vec![kind.name().to_owned()];
        let cleaned = authority.ledger.clean(&issuer, names, REASON, &own);
        cleaned.await.unwrap();
        match authority.requests.delete(act(kind.name())).await {
            Ok(_) | Err(ActFault::NotFound { .. }) => {}
            Err(fault) => panic!("{fault}"),
        }
    }
}

fn of_act<T>(done: Result<T, ActFault>) -> Result<(), Needed> {
    match done {
        Ok(_) => Ok(()),
        Err(ActFault::Forbidden(needed)) => Err(needed),
        Err(fault) => panic!("{fault}"),
    }
}

fn of_revocation<T>(done: Result<T, RevokeFault>) -> Result<(), Needed> {
    match done {
        Ok(_) => Ok(()),
        Err(RevokeFault::Forbidden(needed)) => Err(needed),
        Err(fault) => panic!("{fault}"),
    }
}

fn signer(name: &str) -> SignerName {
    SignerName::parse(name).unwrap()
}

/// One name of an administrator, one of somebody who mints, and a group of administrators.
struct KnownRoles;

impl Roles for KnownRoles {
    fn of_certificate(&self, names: &[&str], groups: &[&str]) -> Grant {
        let mut grant = Grant::NOTHING;
        if names.contains(&"boss.example.com") || groups.contains(&"owners") {
            grant.add(Role::Admin, &[]);
        }
        if names.contains(&"builder.example.com") {
            grant.add(Role::Mint, &[]);
        }
        grant
    }
}

/// Groups and extensions make administrators as names do.
#[tokio::test]
async fn what_makes_an_administrator_is_approved_by_one() {
    use countersign_testkit::csr::CsrBuilder;
    use countersign_testkit::keys;

    let ground = Ground::new().await;
    let marked = CsrBuilder::new("web").extension(&countersign_pki::oid::PP_CLI_AUTH, "true");
    for (key, csr, may) in [
        ("plain", CsrBuilder::new("web"), true),
        (
            "people",
            CsrBuilder::new("web").organization("people"),
            true,
        ),
        (
            "masters",
            CsrBuilder::new("web").organization("masters"),
            false,
        ),
        (
            "owners",
            CsrBuilder::new("web").organization("owners"),
            false,
        ),
        ("case", CsrBuilder::new("Boss.Example.com."), false),
        ("marked", marked, false),
    ] {
        let der = csr.sign(keys::p256_a());
        let csr = CheckedCsr::check(&der, &CsrLimits::STANDARD).unwrap();
        let submission = Submission {
            signer: signer("elsewhere.example/any"),
            ..world::with_csr(key, csr)
        };
        let id = ground
            .authority
            .requests
            .submit(submission)
            .await
            .unwrap()
            .id;
        let record = ground.authority.requests.get(id).await.unwrap().unwrap();
        let mut actors = actors();
        let (admin, door, signer) = (actors.remove(7), actors.remove(6), actors.remove(4));
        for (actor, expected) in [(signer, may), (door, may), (admin, true)] {
            let said = of_act(ground.authority.requests.may_approve(&actor, &record).await);
            assert_eq!(said.is_ok(), expected, "{key} {actor:?}");
        }
    }
}

/// A signer of the authority's own certificates is asked and answered for in one call of an administrator, or not at all.
#[tokio::test]
async fn the_authoritys_own_signers_sign_nothing_that_waits() {
    let ground = Ground::new().await;
    let asked = || Submission {
        signer: signer(OWN),
        ..Ordinary.submission()
    };
    let refused = ground.authority.requests.submit(asked()).await.unwrap_err();
    assert!(matches!(
        refused,
        SubmitFault::Forbidden(Needed::AnotherCall { .. })
    ));
    for (actor, expected) in actors().into_iter().zip(".......y".chars()) {
        let decision = Some(Decision {
            actor,
            verdict: PersonVerdict::Approve,
            reason: String::new(),
            confirmation: None,
        });
        let submitted = ground.authority.requests.submit(Submission {
            decision,
            ..asked()
        });
        match submitted.await {
            Ok(submitted) => assert!(submitted.issued.is_some() && expected == 'y'),
            Err(SubmitFault::Forbidden(needed)) => {
                assert_eq!((needed.role(), expected), ("admin", '.'));
            }
            Err(fault) => panic!("{fault}"),
        }
    }
}

/// One that came to wait while its signer was another's stays as it is, whoever approves it.
#[tokio::test]
async fn what_waits_for_a_signer_that_became_the_authoritys_own_is_never_signed() {
    let ground = Ground::new().await;
    let name = signer("test.example/later");
    let submission = Submission {
        signer: name.clone(),
        ..Ordinary.submission()
    };
    ground.authority.requests.submit(submission).await.unwrap();
    ground
        .authority
        .set_rules(
            ground
                .authority
                .rules()
                .with_signers(vec![countersign_authority::Signer {
                    name,
                    profile: profiles::admin(world::settings()),
                    issuer: issuer_id(),
                    one_certificate_per_name: false,
                    administrators_only: true,
                    on_waiting: OnWaiting::Refuse,
                }]),
        );
    for actor in [Actor::authority(), world::administrator()] {
        let approval = countersign_authority::Act {
            actor,
            ..act(Ordinary.name())
        };
        let refused = of_act(ground.authority.requests.approve(approval).await).unwrap_err();
        assert!(matches!(refused, Needed::AnotherCall { .. }), "{refused}");
    }
}

#[tokio::test]
async fn tokens_are_minted_and_ended_within_roles() {
    let ground = Ground::new().await;
    let authority = &ground.authority;
    authority.set_rules(authority.rules().with_tokens(TokenSettings {
        enabled: true,
        ..TokenSettings::standard()
    }));
    let admin = world::administrator();
    let names = ["web01.example.com", "later.example.com"];
    let mut ids = Vec::new();
    for name in names {
        let minted = authority.tokens.mint(TokenOrder::exact(name), &admin, None);
        ids.push(minted.await.unwrap().record.id);
    }
    // The second one becomes the server's name.
    let mut policy = (*authority.rules().policy).clone();
    policy.own.names.insert("later.example.com".to_owned());
    authority.set_rules(authority.rules().with_policy(policy));
    let outcome = |done: Result<(), TokenFault>| match done {
        Ok(()) | Err(TokenFault::NotReserved { .. }) => 'y',
        Err(TokenFault::Forbidden(_)) => '.',
        Err(fault) => panic!("{fault}"),
    };
    let mut allowed: [String; 4] = Default::default();
    for actor in actors() {
        let [mint, release, release_own, with_certificates] = &mut allowed;
        let order = TokenOrder {
            keep_existing: true,
            ..TokenOrder::exact("web01.example.com")
        };
        let minted = authority.tokens.mint(order, &actor, None).await;
        mint.push(outcome(minted.map(drop)));
        release.push(outcome(authority.tokens.release(&ids[0], &actor).await));
        release_own.push(outcome(authority.tokens.release(&ids[1], &actor).await));
        let revoked = authority.tokens.revoke(&ids[0], true, &actor).await;
        with_certificates.push(outcome(revoked.map(drop)));
    }
    assert_eq!(allowed, ["..y..y.y", "..y..y.y", ".......y", ".....y.y"]);
}

/// Whoever lets machines enrol does so within their role: each letter is one of [`actors`].
#[tokio::test]
async fn machines_windows_and_bootstrap_tokens_are_kept_within_roles() {
    let ground = Ground::new().await;
    let authority = &ground.authority;
    let (tokens, inventory) = (&authority.tokens, &authority.inventory);
    let named = |name: &str| Machine::named(name, authority.now());
    let with_address = MachineAddress {
        kind: AddressKind::InternalIP,
        address: "192.0.2.7".to_owned(),
    };
    let addressed = Machine {
        addresses: vec![with_address],
        ..named("web01.example.com")
    };
    let window = || BuildWindow {
        certname: "web01.example.com".to_owned(),
        opens_at: authority.now(),
        closes_at: authority.now().plus_seconds(60),
        max_issuances: 1,
        issuances: 0,
        require_token: true,
    };
    let of_inventory = |done: Result<(), InventoryFault>| match done {
        Ok(()) | Err(InventoryFault::NotFound { .. }) => 'y',
        Err(InventoryFault::Forbidden(_)) => '.',
        Err(fault) => panic!("{fault}"),
    };
    let of_window = |done: Result<(), WindowFault>| match done {
        Ok(()) | Err(WindowFault::NotFound { .. }) => 'y',
        Err(WindowFault::Forbidden(_)) => '.',
        Err(fault) => panic!("{fault}"),
    };
    let of_token = |done: Result<(), TokenFault>| match done {
        Ok(()) | Err(TokenFault::NotFound { .. }) => 'y',
        Err(TokenFault::Forbidden(_)) => '.',
        Err(fault) => panic!("{fault}"),
    };
    let mut actors = actors();
    let mut below = Grant::NOTHING;
    below.add(Role::Mint, &[Suffix::parse(".example.com").unwrap()]);
    let limited = actors[2].requester.clone();
    actors.insert(3, Actor::with_roles(limited, below));
    let mut allowed: [String; 9] = Default::default();
    for actor in actors {
        let replace = OnExisting::Replace;
        let added = inventory.add_machine(named("web01.example.com"), replace, &actor);
        let elsewhere = inventory.add_machine(named("web01.example.net"), replace, &actor);
        let with_address = inventory.add_machine(addressed.clone(), replace, &actor);
        let both = vec![named("a.example.com"), named("b.example.net")];
        let imported = inventory.import_machines(both, replace, &actor);
        let outcomes = [
            of_inventory(added.await.map(drop)),
            of_inventory(elsewhere.await.map(drop)),
            of_inventory(with_address.await.map(drop)),
            of_inventory(imported.await.map(drop)),
            of_inventory(inventory.remove_machine("web01.example.com", &actor).await),
            of_window(inventory.open_window(window(), &actor).await.map(drop)),
            of_window(inventory.close_window("web01.example.com", &actor).await),
            of_token(
                tokens
                    .mint_bootstrap(BootstrapOrder::default(), &actor)
                    .await
                    .map(drop),
            ),
            of_token(
                tokens
                    .revoke_bootstrap(&BootstrapId::parse("abcdef").unwrap(), &actor)
                    .await,
            ),
        ];
        for (row, outcome) in allowed.iter_mut().zip(outcomes) {
            row.push(outcome);
        }
    }
    let (within, beyond) = ("..yy..y.y", "..y...y.y");
    let expected = [
        within, beyond, beyond, beyond, within, within, within, beyond, beyond,
    ];
    assert_eq!(allowed, expected);
}

/// Whoever mints a token for many names need not be an administrator: what it replaces is never an administrator's.
#[tokio::test]
async fn a_token_for_many_names_replaces_no_administrators_certificate() {
    let ground = Ground::with(OneCertificate::PerName).await;
    let authority = &ground.authority;
    let policy = Policy {
        rules: rules_of(&ground.folder.path().join("policy.yaml"), TOKEN_RULE),
        ..(*authority.rules().policy).clone()
    };
    let rules = authority.rules().with_policy(policy);
    authority.set_rules(rules.with_tokens(tokens::settings()));
    let minter = actors().remove(5);
    for (kind, expected) in [
        (Ordinary, RequestState::Issued),
        (AdministratorByLedger, RequestState::Denied),
    ] {
        ground.prepare(Deed::RevokeName, kind).await;
        let serial = ground.serial(kind).await;
        let order = TokenOrder {
            binding: TokenBinding::Glob("*.example.com".to_owned()),
            max_uses: Some(1),
            allow_replace: true,
            ..TokenOrder::exact("")
        };
        let minted = authority.tokens.mint(order, &minter, None).await.unwrap();
        let asked = tokens::bringing(kind.name(), &LeafKey::generate().unwrap(), &minted.token);
        let submitted = authority.requests.submit(asked).await.unwrap();
        assert_eq!(submitted.state, expected, "{kind:?}");
        let is_replaced = authority.ledger.is_revoked(&issuer_id(), &serial);
        assert_eq!(is_replaced, expected == RequestState::Issued, "{kind:?}");
    }
}

/// Who holds a certificate renews it, whatever else they may do.
#[tokio::test]
async fn holders_renew_their_own_certificates() {
    let ground = Ground::new().await;
    for kind in [Ordinary, OwnName, AdministratorByRole, WithRole] {
        ground.issue(kind.submission()).await;
        let identity = Identity::Certname {
            certname: kind.name().to_owned(),
        };
        let requester = Requester {
            identity,
            source: None,
        };
        let holder = Actor::with_roles(requester, Grant::NOTHING);
        let (issuer, serial): (IssuerId, _) = (issuer_id(), ground.serial(kind).await);
        let renewed = ground
            .authority
            .ledger
            .renew(&issuer, &serial, 3600, &holder);
        assert!(renewed.await.is_ok(), "{kind:?}");
    }
}
