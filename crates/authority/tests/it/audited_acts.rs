//! Every decision and every administrative act has its entry in the audit log, with what an export needs.

use countersign_authority::{
    Act, AuditEntry, Authority, OnUnsignable, RequestState, Retention, Settlement,
};
use countersign_keys::LeafKey;
use countersign_pki::{RevocationReason, Serial};
use countersign_policy::Effect;

use crate::world::{DOOR, TEST, World, act, client_signer, csr, issuer_id, submission, with_csr};

async fn entries(authority: &Authority) -> Vec<AuditEntry> {
    let all = authority
        .audit
        .after(Default::default(), 10_000)
        .await
        .unwrap();
    all.into_iter().map(|(_, entry)| entry).collect()
}

async fn issued(world: &World, name: &str) -> Serial {
    let submitted = world
        .authority
        .requests
        .submit(submission(name))
        .await
        .unwrap();
    submitted.issued.unwrap().intent().serial
}

#[derive(Clone, Copy, Debug)]
enum Doing {
    Submit,
    Approve,
    ApproveUnsignable,
    Deny,
    Settle,
    Delete,
    RevokeName,
    RevokeSerial,
    Clean,
    Retire,
    Renew,
    Unlist,
    Collect,
}

impl Doing {
    /// Whether requests wait for a person, as those that a person decides must.
    fn waits(self) -> bool {
        matches!(
            self,
            Self::Approve
                | Self::ApproveUnsignable
                | Self::Deny
                | Self::Settle
                | Self::Delete
                | Self::Collect
        )
    }

    async fn carry_out(self, world: &World) {
        let authority = &world.authority;
        let (issuer, actor) = (issuer_id(), act("web01").actor);
        let reason = RevocationReason::Superseded;
        match self {
            Self::Submit => drop(issued(world, "web01").await),
            Self::Approve => drop(authority.requests.approve(act("web01")).await.unwrap()),
            Self::ApproveUnsignable => {
                let act = Act {
                    on_unsignable: OnUnsignable::RecordFailure,
                    ..act("unsignable")
                };
                drop(authority.requests.approve(act).await.unwrap());
            }
            Self::Deny => drop(authority.requests.deny(act("web01")).await.unwrap()),
            Self::Settle => {
                let how = vec![
                    Settlement::Certified {
                        not_before: authority.now(),
                        not_after: authority.now().plus_seconds(60),
                        detail: "from elsewhere".to_owned(),
                    },
                    Settlement::Failed {
                        reason: "after all".to_owned(),
                    },
                    Settlement::Approved {
                        reason: "late".to_owned(),
                    },
                    Settlement::Denied {
                        reason: "later".to_owned(),
                    },
                ];
                drop(authority.requests.settle(act("web01"), how).await.unwrap());
            }
            Self::Delete => drop(authority.requests.delete(act("web01")).await.unwrap()),
            Self::RevokeName => {
                issued(world, "web01").await;
                let revoked = authority
                    .ledger
                    .revoke_name(&issuer, "web01", reason, &actor);
                revoked.await.unwrap();
            }
            Self::RevokeSerial => {
                let serial = issued(world, "web01").await;
                let revoked = authority
                    .ledger
                    .revoke_serial(&issuer, &serial, reason, &actor);
                revoked.await.unwrap();
            }
            Self::Clean => {
                issued(world, "web01").await;
                let names = vec!["web01".to_owned()];
                let cleaned = authority.ledger.clean(&issuer, names, reason, &actor);
                cleaned.await.unwrap();
            }
            Self::Retire => {
                issued(world, "web01").await;
                authority
                    .ledger
                    .retire(&issuer, "web01", &DOOR, &actor)
                    .await
                    .unwrap();
            }
            Self::Renew => {
                let serial = issued(world, "web01").await;
                let renewed = authority.ledger.renew(&issuer, &serial, 86_400, &actor);
                renewed.await.unwrap();
            }
            Self::Unlist => {
                let serial = issued(world, "web01").await;
                let revoked = authority
                    .ledger
                    .revoke_serial(&issuer, &serial, reason, &actor);
                revoked.await.unwrap();
                let unlisted = authority.ledger.unlist(&issuer, [serial].into(), &actor);
                unlisted.await.unwrap();
            }
            Self::Collect => {
                world.clock.advance(3600);
                let rule = Retention {
                    door: &TEST,
                    state: RequestState::Pending,
                    seconds: 60,
                };
                authority.requests.collect(&[rule]).await.unwrap();
            }
        }
    }
}

/// What the entries of an act say: action, actor, name, and whether verdict, key, message and serial are there.
type Said = (
    &'static str,
    &'static str,
    &'static str,
    Option<Effect>,
    &'static str,
);

#[tokio::test(flavor = "multi_thread")]
async fn every_act_leaves_its_entry() {
    use Effect::{Approve, Deny};
    let (admin, own) = ("admin", "authority");
    let request: Said = ("request", "anonymous", "web01", Some(Approve), "kmg");
    let issue: Said = ("issue", own, "web01", None, "ks");
    let crl: Said = ("crl", own, "", None, "");
    let revoke: Said = ("revoke", admin, "web01", None, "ks");
    let acts: &[(Doing, &[Said])] = &[
        (Doing::Submit, &[request, issue]),
        (
            Doing::Approve,
            &[("approve", admin, "web01", Some(Approve), "kmg"), issue],
        ),
        (
            Doing::ApproveUnsignable,
            &[
                ("approve", admin, "unsignable", Some(Approve), "kmg"),
                ("fail", admin, "unsignable", None, "km"),
            ],
        ),
        (Doing::Deny, &[("deny", admin, "web01", Some(Deny), "kmg")]),
        (
            Doing::Settle,
            &[
                ("certify", admin, "web01", None, "km"),
                ("fail", admin, "web01", None, "km"),
                ("approve", admin, "web01", None, "km"),
                ("deny", admin, "web01", None, "km"),
            ],
        ),
        (Doing::Delete, &[("delete", admin, "web01", None, "km")]),
        (Doing::RevokeName, &[request, issue, revoke, crl]),
        (Doing::RevokeSerial, &[request, issue, revoke, crl]),
        (
            Doing::Clean,
            &[
                request,
                issue,
                revoke,
                ("clean", admin, "web01", None, ""),
                crl,
            ],
        ),
        (
            Doing::Retire,
            &[request, issue, ("clean", admin, "web01", None, "")],
        ),
        (
            Doing::Renew,
            &[
                request,
                issue,
                ("renew", admin, "web01", Some(Approve), "kg"),
                issue,
            ],
        ),
        (
            Doing::Unlist,
            &[
                request,
                issue,
                revoke,
                crl,
                ("unlist", admin, "", None, "s"),
                crl,
            ],
        ),
        (
            Doing::Collect,
            &[
                ("collect", own, "unsignable", None, "k"),
                ("collect", own, "web01", None, "k"),
            ],
        ),
    ];
    for (doing, said) in acts {
        let world = World::new(!doing.waits()).await;
        if doing.waits() {
            let key = LeafKey::generate().unwrap();
            let mut unsignable = with_csr("unsignable", csr(&key, "other", &[]));
            unsignable.signer = client_signer();
            world.authority.requests.submit(unsignable).await.unwrap();
            world
                .authority
                .requests
                .submit(submission("web01"))
                .await
                .unwrap();
        }
        let before = entries(&world.authority).await.len();
        doing.carry_out(&world).await;
        let new = entries(&world.authority).await.split_off(before);
        let mut found: Vec<Said> = new.iter().map(told).collect();
        if matches!(doing, Doing::Collect) {
            found.sort_by_key(|said| said.2);
        }
        assert_eq!(found, *said, "{doing:?}: {new:#?}");
        assert!(new.iter().all(|entry| entry.replica.len() == 16));
    }
}

/// An entry in short: k, m, g and s stand for key, message, generation and serial.
fn told(entry: &AuditEntry) -> Said {
    let word = |word: &str| -> &'static str { Box::leak(word.to_owned().into_boxed_str()) };
    let members: String = [
        (entry.spki_sha256.is_some(), 'k'),
        (entry.csr_sha256.is_some(), 'm'),
        (entry.generation == Some(3), 'g'),
        (entry.serial.is_some(), 's'),
    ]
    .into_iter()
    .filter_map(|(is_there, letter)| is_there.then_some(letter))
    .collect();
    (
        word(&entry.action),
        word(entry.actor_name()),
        word(entry.certname.as_deref().unwrap_or_default()),
        entry.verdict,
        word(&members),
    )
}
