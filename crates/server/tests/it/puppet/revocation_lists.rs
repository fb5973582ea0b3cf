//! Revocation lists: what agents fetch, and what an administrator submits for the CAs above the issuer.

use countersign_pki::{Crl, RevocationReason, pem};
use countersign_testkit::chain::CrlFacts;
use countersign_testkit::keys;

use super::{Fleet, V1, agent};
use crate::exchange::{Answer, Call};
use crate::world::{Place, START, Setup, intermediate_ca, root_ca};

const BELOW_ROOT: Setup = Setup {
    place: Place::BelowRoot,
    ..Setup::AUTOSIGN
};
const TAKEN: (u16, &str) = (200, "Successfully updated CRLs.");
const DAY: u64 = 86_400;

impl Fleet {
    async fn put_crls(&self, body: impl Into<Vec<u8>>) -> Answer {
        let line = format!("PUT {V1}/certificate_revocation_list");
        let call = Call::new(&self.admin, &line).header("content-type", "text/plain");
        call.body(body).send(&self.door).await
    }

    /// What agents are given.
    async fn lists(&self) -> Vec<Crl> {
        self.lists_at("ca").await
    }

    async fn lists_at(&self, name: &str) -> Vec<Crl> {
        let line = format!("GET {V1}/certificate_revocation_list/{name}");
        let answer = self.call(&self.nobody, &line).await;
        assert_eq!((answer.status, answer.content_type()), (200, "text/plain"));
        let blocks = pem::decode_all(&answer.body, &pem::PemLimits::BUNDLE).unwrap();
        let lists = blocks.iter().map(|block| Crl::parse(&block.der).unwrap());
        lists.collect()
    }

    async fn numbers(&self) -> Vec<u64> {
        let lists = self.lists().await;
        lists.iter().filter_map(Crl::number).collect()
    }
}

fn root_crl(facts: CrlFacts<'_>) -> String {
    root_ca().crl(&facts)
}

/// T12, with what an entry and its list say.
#[tokio::test]
async fn t12_revoking_twice_adds_one_number() {
    let fleet = Fleet::of(Setup::AUTOSIGN).await;
    for name in ["web01", "web02", "web03"] {
        fleet.enrol(&agent(name), name).await;
    }
    fleet.world.clock.advance(3600);
    let now = START.plus_seconds(3600);
    assert_eq!(fleet.revoke("web01").await.status, 204);
    assert_eq!(fleet.revoke("web01").await.status, 204);
    let lists = fleet.lists().await;
    let [crl] = lists.as_slice() else {
        panic!("{} lists", lists.len());
    };
    assert_eq!(crl.number(), Some(1));
    assert_eq!(crl.this_update(), now.minus_seconds(1));
    assert_eq!(crl.next_update(), Some(now.plus_seconds(5 * 365 * DAY)));
    let [entry] = crl.entries() else {
        panic!("{:?}", crl.entries());
    };
    assert_eq!(entry.serial, fleet.certificate("web01").await.serial());
    assert_eq!(entry.at, now);
    assert_eq!(entry.reason, RevocationReason::KeyCompromise);

    // Many at once are one operation.
    let line = format!("PUT {V1}/clean");
    let clean = Call::new(&fleet.admin, &line).body(r#"{"certnames":["web02","web03"]}"#);
    assert_eq!(clean.send(&fleet.door).await.status, 200);
    let lists = fleet.lists().await;
    assert_eq!((lists[0].number(), lists[0].entries().len()), (Some(2), 3));
}

#[tokio::test]
async fn submissions_and_their_answers() {
    let fleet = Fleet::of(BELOW_ROOT).await;
    assert_eq!(fleet.numbers().await, [0]);
    let good = CrlFacts::good(5, START);
    let newer = CrlFacts::good(6, START);
    let own = intermediate_ca().crl(&CrlFacts::good(99, START));
    let child = [intermediate_ca().certificate.serial()];
    let missing_key_id = "One or more submitted CRLs do not have an authority key identifier.";
    let invalid = "Invalid certs and/or CRLs: ";
    let bad_end = START.minus_seconds(1);
    let bad_start = START.plus_seconds(301);
    let twins = root_crl(newer)
        + &root_crl(CrlFacts {
            next_update: START.plus_seconds(DAY),
            ..newer
        });
    for (what, body, expected, served) in [
        (
            "nothing",
            String::new(),
            (400, "No valid CRLs submitted."),
            &[0][..],
        ),
        (
            "prose",
            "a list, please".into(),
            (400, "No valid CRLs submitted."),
            &[0],
        ),
        (
            "a certificate",
            root_ca().certificate.to_pem(),
            (400, "No valid CRLs submitted."),
            &[0],
        ),
        (
            "only our own, although a list is missing",
            own.clone(),
            (
                400,
                "Invalid certs and/or CRLs: there is no CRL of CN=Example Root CA; submit it together with the others",
            ),
            &[0],
        ),
        ("a missing one", root_crl(good), TAKEN, &[0, 5]),
        ("the same again", root_crl(good), TAKEN, &[0, 5]),
        (
            "our own beside it: never replaced",
            own + &root_crl(good),
            TAKEN,
            &[0, 5],
        ),
        (
            "an older one",
            root_crl(CrlFacts::good(4, START)),
            TAKEN,
            &[0, 5],
        ),
        (
            "other content, same number",
            root_crl(CrlFacts {
                revoked: &[child[0]],
                ..good
            }),
            (400, "Could not determine newest CRL."),
            &[0, 5],
        ),
        (
            "two of one number",
            twins,
            (400, "Could not determine newest CRL."),
            &[0, 5],
        ),
        (
            "without number",
            root_crl(CrlFacts {
                number: None,
                ..newer
            }),
            (400, "Could not determine newest CRL."),
            &[0, 5],
        ),
        (
            "without key identifier",
            root_crl(newer)
                + &root_crl(CrlFacts {
                    has_key_id: false,
                    ..newer
                }),
            (400, missing_key_id),
            &[0, 5],
        ),
        (
            "a delta",
            root_crl(CrlFacts {
                is_delta: true,
                ..newer
            }),
            (400, "Cannot support delta CRL."),
            &[0, 5],
        ),
        (
            "forged",
            root_ca().crl_signed_by(keys::p256_d(), &newer),
            (
                400,
                "Invalid certs and/or CRLs: the CRL of CN=Example Root CA is not signed by it: ",
            ),
            &[0, 5],
        ),
        (
            "ended",
            root_crl(CrlFacts {
                next_update: bad_end,
                ..newer
            }),
            (
                400,
                "Invalid certs and/or CRLs: the CRL of CN=Example Root CA has expired at 2026-01-02T03:04:04Z; submit a newer one",
            ),
            &[0, 5],
        ),
        (
            "from the future",
            root_crl(CrlFacts {
                this_update: bad_start,
                ..newer
            }),
            (
                400,
                "Invalid certs and/or CRLs: the CRL of CN=Example Root CA is valid only from 2026-01-02T03:09:06Z on",
            ),
            &[0, 5],
        ),
        (
            "revokes our issuer",
            root_crl(CrlFacts {
                revoked: &child,
                ..newer
            }),
            (
                400,
                "Invalid certs and/or CRLs: the CRL of CN=Example Root CA revokes CN=Puppet CA: ca.example.com",
            ),
            &[0, 5],
        ),
        (
            "broken PEM",
            root_crl(newer).replace("END", "FIN"),
            (400, invalid),
            &[0, 5],
        ),
        (
            "broken DER",
            pem::encode("X509 CRL", b"no list"),
            (400, invalid),
            &[0, 5],
        ),
        (
            "a newer one",
            root_crl(good) + &root_crl(newer),
            TAKEN,
            &[0, 6],
        ),
    ] {
        let answer = fleet.put_crls(body).await;
        assert_eq!(
            (answer.status, answer.content_type()),
            (expected.0, "text/plain; charset=utf-8"),
            "{what}: {}",
            answer.text()
        );
        let (is_same, is_begun) = (
            answer.text() == expected.1,
            answer.text().starts_with(expected.1),
        );
        assert!(
            is_same || (expected.1.ends_with(": ") && is_begun),
            "{what}: {}",
            answer.text()
        );
        assert_eq!(fleet.numbers().await, served, "{what}");
    }
}

#[tokio::test]
async fn a_root_takes_no_lists_and_says_that_all_is_well() {
    let fleet = Fleet::of(Setup::STRICT).await;
    let answer = fleet.put_crls(root_crl(CrlFacts::good(1, START))).await;
    assert_eq!((answer.status, answer.text()), TAKEN);
    assert_eq!(fleet.numbers().await, [0]);
    let nobody = Call::new(
        &fleet.nobody,
        &format!("PUT {V1}/certificate_revocation_list"),
    );
    assert_eq!(nobody.body("x").send(&fleet.door).await.status, 403);
}

#[tokio::test]
async fn submissions_are_bounded() {
    let fleet = Fleet::of(BELOW_ROOT).await;
    let long = fleet.put_crls(vec![b' '; 16 * 1024 * 1024 + 1]).await;
    assert_eq!(long.status, 413);
    let list = root_crl(CrlFacts::good(1, START));
    let many = fleet.put_crls(list.repeat(257)).await;
    assert_eq!(
        (many.status, many.text()),
        (
            400,
            "Invalid certs and/or CRLs: PEM text has more than 256 blocks"
        )
    );
    assert_eq!(fleet.put_crls(list.repeat(256)).await.status, 200);
}

#[tokio::test]
async fn a_new_list_above_makes_the_agents_copy_old() {
    let fleet = Fleet::of(BELOW_ROOT).await;
    fleet.world.clock.advance(3600);
    let status = async |since: &str| {
        let line = format!("GET {V1}/certificate_revocation_list/ca");
        let call = Call::new(&fleet.nobody, &line).header("if-modified-since", since);
        call.send(&fleet.door).await.status
    };
    assert_eq!(status("Fri, 02 Jan 2026 04:00:00 GMT").await, 304);
    let list = root_crl(CrlFacts::good(1, START));
    assert_eq!(fleet.put_crls(list).await.status, 200);
    assert_eq!(status("Fri, 02 Jan 2026 04:00:00 GMT").await, 200);
    fleet.world.clock.advance(60);
    assert_eq!(status("Fri, 02 Jan 2026 04:05:00 GMT").await, 304);
}

/// A copy from before may be one of the whole list, however old the short one is.
#[tokio::test]
async fn a_list_of_another_scope_makes_the_agents_copy_old() {
    let fleet = Fleet::of(BELOW_ROOT).await;
    let folder = tempfile::tempdir().unwrap();
    let inventory = folder.path().join("infra_inventory.txt");
    std::fs::write(&inventory, "").unwrap();
    let issuer = fleet.world.puppet_issuer();
    let turn_on = async || {
        let turned = fleet
            .authority()
            .issuers
            .serve_infra_crl(&issuer, inventory.clone());
        turned.await.unwrap();
    };
    let status = async || {
        let line = format!("GET {V1}/certificate_revocation_list/ca");
        let since = "Fri, 02 Jan 2026 04:00:00 GMT";
        let call = Call::new(&fleet.nobody, &line).header("if-modified-since", since);
        call.send(&fleet.door).await.status
    };
    turn_on().await;
    fleet.world.clock.advance(3600);
    assert_eq!(status().await, 304);
    turn_on().await;
    assert_eq!(status().await, 200);
}

#[tokio::test]
async fn expirations_of_a_chain() {
    let fleet = Fleet::of(BELOW_ROOT).await;
    fleet.put_crls(root_crl(CrlFacts::good(1, START))).await;
    let line = format!("GET {V1}/expirations");
    let answer = fleet.call(&fleet.admin, &line).await;
    let expected = serde_json::json!({
        "ca-certs": {
            "Puppet CA: ca.example.com": "2045-12-28T03:04:05UTC",
            "Example Root CA": "2045-12-28T03:04:05UTC",
        },
        "crls": {
            "Puppet CA: ca.example.com": "2031-01-01T03:04:05UTC",
            "Example Root CA": "2027-01-01T03:04:05UTC",
        },
    });
    assert_eq!(answer.json(), expected);
}

#[tokio::test]
async fn agents_get_the_short_list_and_its_chain() {
    let fleet = Fleet::of(BELOW_ROOT).await;
    fleet.put_crls(root_crl(CrlFacts::good(7, START))).await;
    for name in ["web01", "puppet01"] {
        fleet.enrol(&agent(name), name).await;
    }
    assert_eq!(fleet.lists_at("full").await, fleet.lists().await);
    let folder = tempfile::tempdir().unwrap();
    let inventory = folder.path().join("infra_inventory.txt");
    std::fs::write(&inventory, "puppet01\n").unwrap();
    let issuer = fleet.world.puppet_issuer();
    fleet
        .authority()
        .issuers
        .serve_infra_crl(&issuer, inventory)
        .await
        .unwrap();
    fleet.revoke("web01").await;
    assert_eq!(fleet.numbers().await, [0, 7]);
    fleet.revoke("puppet01").await;
    assert_eq!(fleet.numbers().await, [1, 7]);
    let lists = fleet.lists().await;
    let serial = fleet.certificate("puppet01").await.serial();
    assert_eq!(lists[0].serials().collect::<Vec<_>>(), [serial]);
    // A list that is newer above reaches both.
    fleet.put_crls(root_crl(CrlFacts::good(8, START))).await;
    assert_eq!(fleet.numbers().await, [1, 8]);
    // Whoever asks for the full list gets that, whether or not there is a short one.
    let full = fleet.lists_at("full").await;
    let numbers: Vec<u64> = full.iter().filter_map(Crl::number).collect();
    assert_eq!(numbers, [2, 8]);
    assert_eq!(full[0].entries().len(), 2);
    // Who is refused is a matter of the whole list.
    let web01 = fleet.certificate("web01").await.serial();
    assert!(fleet.authority().ledger.is_revoked(&issuer, &web01));
}
