//! Agents with enrolment tokens.

use countersign_authority::{RequestState, TokenOrder, TokenSettings};
use countersign_pki::oid;
use countersign_policy::TokenBinding;
use countersign_server::{RequestLimits, RequestRates};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys::{self, Key};

use super::{Fleet, V1, agent};
use crate::exchange::{Answer, Call};
use crate::world::{Setup, with_another_secret};

impl Fleet {
    async fn with_tokens() -> Self {
        Self::with_tokens_within(RequestRates {
            per_source: 0,
            per_certname: 0,
            token_failures: 0,
        })
        .await
    }

    async fn with_tokens_within(rates: RequestRates) -> Self {
        let fleet = Self::within(Setup::STRICT, RequestLimits::new(rates)).await;
        fleet.world.use_tokens();
        fleet
    }

    async fn token(&self, name: &str) -> String {
        let minted = self.world.mint(TokenOrder::exact(name)).await;
        minted.token.expose().to_owned()
    }

    async fn ask(&self, name: &str, token: &str, key: &Key) -> Answer {
        let csr = agent(name).challenge_password(token);
        self.put(name, csr.sign_pem(key)).await
    }
}

/// A token that is well formed and was minted by nobody.
const STRANGER: &str =
    "ott1.aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q.zqthxay";

#[tokio::test]
async fn a_token_enrols_one_key_and_that_key_again() {
    let fleet = Fleet::with_tokens().await;
    let token = fleet.token("web01").await;
    let first = fleet.ask("web01", &token, keys::p256_a()).await;
    assert_eq!((first.status, first.text()), (200, ""));
    let certificate = fleet.certificate("web01").await;
    assert_eq!(certificate.spki_der(), keys::p256_a().spki_der());

    fleet.world.clock.advance(10);
    let again = fleet.ask("web01", &token, keys::p256_a()).await;
    assert_eq!((again.status, again.text()), (200, ""));
    let serial = fleet.certificate("web01").await.serial();
    assert_eq!(serial, certificate.serial());

    let other = fleet.ask("web01", &token, keys::p256_b()).await;
    assert_eq!(other.status, 403, "{}", other.text());
    let serial = fleet.certificate("web01").await.serial();
    assert_eq!(serial, certificate.serial());
}

/// Whatever is wrong with a token, its sender learns a number to ask about and nothing else.
#[tokio::test]
async fn every_wrong_token_has_one_answer() {
    let fleet = Fleet::with_tokens().await;
    let used = fleet.token("used").await;
    assert_eq!(fleet.ask("used", &used, keys::p256_a()).await.status, 200);
    let order = |name: &str| TokenOrder::exact(name);
    let later = TokenOrder {
        not_before: Some(fleet.authority().now().plus_seconds(3600)),
        ..order("later")
    };
    let elsewhere = TokenOrder {
        source_cidrs: vec!["198.51.100.0/24".to_owned()],
        ..order("elsewhere")
    };
    let many = TokenOrder {
        max_uses: Some(1),
        ..TokenOrder::bound(TokenBinding::Glob("*.dmz.lab".to_owned()))
    };
    let mut tokens = Vec::new();
    for order in [later, elsewhere, many, order("good"), order("gone")] {
        let minted = fleet.world.mint(order).await;
        tokens.push(minted.token.expose().to_owned());
    }
    let [later, elsewhere, many, good, gone] = tokens.try_into().unwrap();
    let gone_id = countersign_authority::TokenText::parse(&gone).unwrap();
    let actor = countersign_authority::Actor::authority();
    let revoked = fleet.authority().tokens.revoke(gone_id.id(), false, &actor);
    revoked.await.unwrap();
    let csr = |name: &str, token: &str| agent(name).challenge_password(token);
    let twice = csr("good", &good).attribute(&oid::CHALLENGE_PASSWORD, 0x0c, good.as_bytes());
    let mut answers = Vec::new();
    for (name, csr, reason) in [
        ("good", csr("good", STRANGER), "token_unknown"),
        (
            "good",
            csr("good", &with_another_secret(&good)),
            "token_unknown",
        ),
        ("good", csr("good", "hunter2"), "token_malformed"),
        ("good", csr("good", &good.to_uppercase()), "token_malformed"),
        ("good", twice, "token_ambiguous"),
        ("bad", csr("bad", &good), "token_certname_mismatch"),
        ("dmz.lab", csr("dmz.lab", &many), "token_certname_mismatch"),
        ("gone", csr("gone", &gone), "token_revoked"),
        ("later", csr("later", &later), "token_not_yet_valid"),
        (
            "elsewhere",
            csr("elsewhere", &elsewhere),
            "token_source_not_allowed",
        ),
        ("used", csr("used", &used), "token_key_mismatch"),
    ] {
        answers.push((reason, fleet.put(name, csr.sign_pem(keys::p256_c())).await));
    }
    let shape = |answer: &Answer| {
        let text = answer.text();
        let (before, id) = text.split_once("(request ").unwrap();
        let id = id.strip_suffix(')').unwrap();
        assert_eq!(id.len(), 36, "{text}");
        let headers = format!("{:?}", answer.headers);
        (answer.status, before.to_owned(), headers)
    };
    let (_, first) = answers.first().unwrap();
    assert_eq!(shape(first).0, 403);
    assert_eq!(shape(first).1, "certificate request not authorised ");
    for (reason, answer) in &answers {
        assert_eq!(shape(answer), shape(first), "{reason}");
        let id = answer.text().split_once("(request ").unwrap().1;
        let id = id.trim_end_matches(')');
        let id = countersign_authority::RequestId::parse(id).unwrap();
        let record = fleet.authority().requests.get(id).await.unwrap().unwrap();
        assert_eq!(record.state, RequestState::Denied);
        assert_eq!(record.explanation.code.as_str(), *reason);
    }
    // None of it has used the good one up.
    assert_eq!(fleet.ask("good", &good, keys::p256_a()).await.status, 200);
}

#[tokio::test]
async fn who_has_no_token_waits_and_does_not_keep_the_name() {
    let fleet = Fleet::with_tokens().await;
    let token = fleet.token("web01").await;
    let squatter = fleet
        .put("web01", agent("web01").sign_pem(keys::p256_b()))
        .await;
    assert_eq!((squatter.status, squatter.text()), (200, ""));
    assert_eq!(fleet.ask("web01", &token, keys::p256_a()).await.status, 200);
    let certificate = fleet.certificate("web01").await;
    assert_eq!(certificate.spki_der(), keys::p256_a().spki_der());
}

/// A request that waits is shown without the secret, to those who may see it at all.
#[tokio::test]
async fn a_waiting_request_is_shown_without_its_token() {
    let fleet = Fleet::with_tokens().await;
    let token = fleet.token("web01").await;
    // Tokens are switched off: what comes with one waits, and nothing of it is shown.
    let off = TokenSettings::standard();
    fleet
        .authority()
        .set_rules(fleet.authority().rules().with_tokens(off));
    fleet
        .authority()
        .set_rules(
            fleet
                .authority()
                .rules()
                .with_policy(countersign_policy::Policy {
                    rules: Vec::new(),
                    ..(*fleet.authority().rules().policy).clone()
                }),
        );
    assert_eq!(fleet.ask("web01", &token, keys::p256_a()).await.status, 200);
    let line = format!("GET {V1}/certificate_request/web01");
    assert_eq!(fleet.call(&fleet.nobody, &line).await.status, 403);
    let shown = fleet.call(&fleet.admin, &line).await;
    assert_eq!(shown.status, 200);
    let limits = countersign_pki::pem::PemLimits::REQUEST;
    let block = countersign_pki::pem::decode_first(&shown.body, &limits);
    let der = block.unwrap().unwrap().der;
    let has = |text: &str| {
        der.windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    assert!(!has(token.split('.').nth(2).unwrap()));
}

/// Somebody took a token for a name.
#[tokio::test]
async fn tokens_in_paths_are_not_repeated() {
    let fleet = Fleet::with_tokens().await;
    let secret = STRANGER.split('.').nth(2).unwrap();
    let cut = STRANGER.get(..60).unwrap();
    for name in [STRANGER, cut, &STRANGER.to_uppercase()] {
        for line in [
            format!("GET {V1}/certificate/{name}"),
            format!("GET {V1}/certificate_request/{name}"),
            format!("DELETE {V1}/certificate_request/{name}"),
            format!("GET {V1}/certificate_status/{name}"),
            format!("PUT {V1}/certificate_status/{name}"),
            format!("DELETE {V1}/certificate_status/{name}"),
            format!("PUT {V1}/certificate_request/{name}"),
            format!("GET /nothing/{name}"),
            format!("GET /nothing/{}", name.replacen('.', "%2e", 1)),
            format!("GET /nothing/{}", name.replacen('.', "%252e", 1)),
            format!(
                "GET {V1}/certificate_status/{}",
                name.replacen('.', "%252e", 1)
            ),
        ] {
            for peer in [&fleet.nobody, &fleet.admin] {
                let csr = CsrBuilder::new(name).sign_pem(keys::p256_a());
                let answer = Call::new(peer, &line).body(csr).send(&fleet.door).await;
                let told = answer.text().to_lowercase();
                let start = secret.get(..30).unwrap();
                assert!(!told.contains(start), "{line}: {told}");
            }
        }
    }
}

/// What could never be signed is no way to try tokens without being counted.
#[tokio::test]
async fn wrong_tokens_in_requests_that_cannot_be_signed_are_counted_too() {
    let fleet = Fleet::with_tokens_within(RequestRates {
        per_source: 0,
        per_certname: 0,
        token_failures: 10,
    })
    .await;
    let wrong = with_another_secret(&fleet.token("web01").await);
    let unsignable = || {
        let csr = agent("web01").dns("elsewhere.example.com");
        csr.challenge_password(&wrong).sign_pem(keys::p256_b())
    };
    for _ in 0..10 {
        let answer = fleet.put("web01", unsignable()).await;
        assert_ne!(answer.status, 429, "{}", answer.text());
    }
    assert_eq!(fleet.put("web01", unsignable()).await.status, 429);
}

#[tokio::test]
async fn who_tries_tokens_is_slowed_down_and_neighbours_are_not() {
    let fleet = Fleet::with_tokens_within(RequestRates {
        per_source: 0,
        per_certname: 0,
        token_failures: 10,
    })
    .await;
    let good = fleet.token("web01").await;
    let wrong = with_another_secret(&good);
    for _ in 0..10 {
        assert_eq!(fleet.ask("web01", &wrong, keys::p256_b()).await.status, 403);
    }
    let records = fleet.authority().revision();
    let over = fleet.ask("web01", &wrong, keys::p256_b()).await;
    assert_eq!(
        (over.status, over.header("retry-after"), over.text()),
        (
            429,
            Some("60"),
            "Too many wrong enrolment tokens from this address. Try again in 60 seconds."
        )
    );
    // It was not looked at: nothing is on record of it.
    let after = fleet.authority().revision();
    assert_eq!(after, records);
    // Another token from the same address, what is no token, and no token at all.
    assert_eq!(
        fleet.ask("web02", STRANGER, keys::p256_b()).await.status,
        403
    );
    assert_eq!(
        fleet.ask("web02", "hunter2", keys::p256_b()).await.status,
        403
    );
    let plain = fleet
        .put("web03", agent("web03").sign_pem(keys::p256_b()))
        .await;
    assert_eq!(plain.status, 200);
    for _ in 0..9 {
        assert_eq!(
            fleet.ask("web02", "hunter2", keys::p256_b()).await.status,
            403
        );
    }
    // All that is no token is one, whatever it says.
    assert_eq!(
        fleet.ask("web04", "swordfish", keys::p256_b()).await.status,
        429
    );
    // The public part is no secret: whoever tries it does not keep the right one waiting. For another name it is wrong.
    assert_eq!(fleet.ask("web05", &good, keys::p256_a()).await.status, 429);
    assert_eq!(fleet.ask("web01", &good, keys::p256_a()).await.status, 200);
    assert_eq!(fleet.ask("web01", &wrong, keys::p256_b()).await.status, 429);
    let elsewhere = countersign_server::Peer::anonymous("198.51.100.1:4000".parse().unwrap());
    let csr = agent("web01")
        .challenge_password(&good)
        .sign_pem(keys::p256_a());
    let line = format!("PUT {V1}/certificate_request/web01");
    let call = Call::new(&elsewhere, &line).body(csr.clone());
    assert_eq!(call.send(&fleet.door).await.status, 200);
    // The same key asks as often as it likes.
    for _ in 0..20 {
        let call = Call::new(&elsewhere, &line).body(csr.clone());
        assert_eq!(call.send(&fleet.door).await.status, 200);
    }
    fleet.world.clock.advance(60);
    assert_eq!(fleet.ask("web01", &wrong, keys::p256_b()).await.status, 403);
}

/// Whoever asks for a name all the time does not keep its host from enrolling.
#[tokio::test]
async fn a_good_token_has_a_budget_of_its_own() {
    let fleet = Fleet::with_tokens_within(RequestRates {
        per_source: 0,
        per_certname: 2,
        token_failures: 3,
    })
    .await;
    let token = fleet.token("web01").await;
    let wrong = with_another_secret(&token);
    let squat = || fleet.put("web01", "garbage");
    assert_eq!(squat().await.status, 400);
    assert_eq!(squat().await.status, 400);
    assert_eq!(squat().await.status, 429);
    let plain = agent("web01").sign_pem(keys::p256_b());
    assert_eq!(fleet.put("web01", plain).await.status, 429);
    let other = fleet.ask("web01", STRANGER, keys::p256_b()).await;
    assert_eq!(
        other.text(),
        "Too many certificate requests for this certname. Try again in 30 seconds."
    );
    for _ in 0..5 {
        assert_eq!(fleet.ask("web01", &token, keys::p256_a()).await.status, 200);
    }
    // What fails there counts as a failure too.
    for _ in 0..3 {
        assert_eq!(fleet.ask("web01", &wrong, keys::p256_b()).await.status, 429);
    }
    let spent = fleet.ask("web01", &wrong, keys::p256_b()).await;
    assert!(
        spent.text().contains("wrong enrolment tokens"),
        "{}",
        spent.text()
    );
    // Where nobody squats, good ones use up nothing.
    let token = fleet.token("web02").await;
    for _ in 0..5 {
        assert_eq!(fleet.ask("web02", &token, keys::p256_a()).await.status, 200);
    }
    for status in [400, 400, 429] {
        assert_eq!(fleet.put("web02", "garbage").await.status, status);
    }
}

#[tokio::test]
async fn where_wrong_tokens_wait_for_a_person_they_count_all_the_same() {
    let fleet = Fleet::with_tokens_within(RequestRates {
        per_source: 0,
        per_certname: 0,
        token_failures: 1,
    })
    .await;
    let mut policy = (*fleet.authority().rules().policy).clone();
    policy.tokens.on_reject = countersign_policy::OnToken::Pend;
    fleet
        .authority()
        .set_rules(fleet.authority().rules().with_policy(policy));
    let first = fleet.ask("web01", STRANGER, keys::p256_a()).await;
    assert_eq!((first.status, first.text()), (200, ""));
    assert_eq!(
        fleet.ask("web02", STRANGER, keys::p256_a()).await.status,
        429
    );
}

/// Whichever way a request is forgotten, its sender may come back with the token that it has.
#[tokio::test]
async fn to_delete_a_request_that_waits_leaves_the_tokens_of_its_name_alone() {
    let fleet = Fleet::with_tokens().await;
    let mut token = fleet.token("web01").await;
    let delete = |what: &'static str| {
        let fleet = &fleet;
        async move {
            let line = format!("DELETE {V1}/{what}/web01");
            fleet.call(&fleet.admin, &line).await.status
        }
    };
    for what in ["certificate_status", "certificate_request"] {
        assert_eq!(fleet.enrol(&agent("web01"), "web01").await.status, 200);
        assert_eq!(delete(what).await, 204, "{what}");
        let enrolled = fleet.ask("web01", &token, keys::p256_a()).await;
        assert_eq!(enrolled.status, 200, "{what}: {}", enrolled.text());
        fleet.certificate("web01").await;
        // With the certificate, what is left of the tokens goes; the next one is good again, and stays so.
        assert_eq!(delete("certificate_status").await, 204);
        token = fleet.token("web01").await;
    }
    assert_eq!(delete("certificate_status").await, 204, "known by its past");
    let enrolled = fleet.ask("web01", &token, keys::p256_a()).await;
    assert_eq!(enrolled.status, 200, "{}", enrolled.text());
    token = fleet.token("web01").await;
    assert_eq!(delete("certificate_status").await, 204);
    let cleaned = fleet.ask("web01", &token, keys::p256_b()).await;
    assert_eq!(cleaned.status, 403, "{}", cleaned.text());
    // A name of which nothing is known but a token is not known.
    let unused = fleet.token("web02").await;
    let line = format!("DELETE {V1}/certificate_status/web02");
    assert_eq!(fleet.call(&fleet.admin, &line).await.status, 404);
    let enrolled = fleet.ask("web02", &unused, keys::p256_b()).await;
    assert_eq!(enrolled.status, 200, "{}", enrolled.text());
}
