//! Tokens by Foreman's calls, in its order: from the start of a build to the host's end.

use countersign_authority::store::{RequestFilter, StoreFault};
use countersign_authority::{
    DoorSpec, RequestState, Retention, TokenFilter, TokenStatus, TokenText,
};
use countersign_pki::{Certificate, pem};
use countersign_server::{foreman, puppet};
use countersign_testkit::csr::{CsrBuilder, SignatureFlaw};
use countersign_testkit::keys;
use futures_util::future::join_all;
use serde_json::json;

use super::{FOREMAN, Site, Understood, request, usual_request};
use crate::exchange::Call;
use crate::world::with_another_secret;

const N1: &str = "n1.example.com";

/// A19: the queue of a host that is built, then of one that is built again.
#[tokio::test]
async fn a_build_revokes_cleans_mints_and_enrols() {
    let site = Site::start().await;
    let mut serials = Vec::new();
    for key in [keys::p256_a(), keys::p256_b()] {
        for line in [
            format!("DELETE /puppet/ca/autosign/{N1}"),
            format!("DELETE /puppet/ca/{N1}"),
        ] {
            assert_eq!(site.foreman(&line).await, Understood::True, "{line}");
        }
        let token = site.mint(N1).await;
        let listed = site.foreman("GET /puppet/ca/autosign").await;
        assert_eq!(listed, Understood::Object(json!([N1])));
        let sent = site.enrol(N1, &request(N1, &token, key)).await;
        assert_eq!(sent.status, 200, "{}", sent.text());
        let answer = site.certificate(N1).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let block = pem::decode_first(&answer.body, &pem::PemLimits::REQUEST).unwrap();
        let certificate = Certificate::parse(&block.unwrap().der).unwrap();
        serials.push(certificate.serial());
        // A used token is no entry any more.
        let listed = site.foreman("GET /puppet/ca/autosign").await;
        assert_eq!(listed, Understood::Object(json!([])));
    }
    let issuer = site.world.puppet_issuer();
    let [first, second] = serials.try_into().unwrap();
    assert!(site.world.authority.ledger.is_revoked(&issuer, &first));
    assert!(!site.world.authority.ledger.is_revoked(&issuer, &second));
}

#[tokio::test]
async fn the_answer_is_what_foreman_accepts_and_nobody_may_keep_it() {
    let site = Site::start().await;
    let line = format!("POST /puppet/ca/autosign/{N1}");
    let answer = site.call(&line).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.content_type(), "application/json");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let body = answer.json();
    assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
    let token = body["generated_token"].as_str().unwrap();
    let text = TokenText::parse(token).unwrap();
    let found = site.world.authority.tokens.get(text.id()).await.unwrap();
    let record = found.unwrap().listed.record;
    assert_eq!(record.created_by, FOREMAN);
    assert_eq!(record.expires_at.0 - record.created_at.0, 6 * 3600);
}

/// A20.
#[tokio::test]
async fn the_second_token_works_and_the_first_does_not() {
    let site = Site::start().await;
    let (first, second) = (site.mint(N1).await, site.mint(N1).await);
    let refused = site.enrol(N1, &usual_request(N1, &first)).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    let id = TokenText::parse(&first).unwrap().id().clone();
    let detail = site.world.authority.tokens.get(&id).await.unwrap().unwrap();
    assert_eq!(detail.listed.status, TokenStatus::Revoked);
    let taken = site.enrol(N1, &usual_request(N1, &second)).await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    assert_eq!(site.certificate(N1).await.status, 200);
}

/// A21, and what the engine keeps of it: one use.
#[tokio::test]
async fn validating_twice_with_one_key_is_one_use() {
    let site = Site::start().await;
    let token = site.mint(N1).await;
    let body = usual_request(N1, &token);
    for _ in 0..2 {
        let answer = site.validate(&body).await;
        assert_eq!((answer.status, answer.text()), (200, ""));
        assert_eq!(answer.content_type(), "application/json");
    }
    let id = TokenText::parse(&token).unwrap().id().clone();
    let detail = site.world.authority.tokens.get(&id).await.unwrap().unwrap();
    assert_eq!((detail.listed.record.uses, detail.uses.len()), (1, 1));
    // Somebody else signs: there is no certificate here.
    assert_eq!(site.certificate(N1).await.status, 404);
    let other = site.validate(&request(N1, &token, keys::p256_b())).await;
    assert_eq!(other.status, 404, "{}", other.text());
}

/// A22, and everything else that is no reason to sign.
#[tokio::test]
async fn validation_refuses_other_names_and_requests_without_a_good_token() {
    let site = Site::start().await;
    let token = site.mint(N1).await;
    let never = countersign_testkit::csr::TOKEN;
    let flawed = CsrBuilder::new(N1)
        .challenge_password(&token)
        .flaw(SignatureFlaw::FlippedBit)
        .sign_pem(keys::p256_a());
    let mut texts = Vec::new();
    for (what, body) in [
        ("another name", usual_request("n2.example.com", &token)),
        ("an unknown token", usual_request(N1, never)),
        ("no token", CsrBuilder::new(N1).sign_pem(keys::p256_a())),
        ("a wrong signature", flawed),
        ("no request", String::new()),
        ("text", "not a request".to_owned()),
    ] {
        let answer = site.validate(&body).await;
        assert_eq!(answer.status, 404, "{what}: {}", answer.text());
        assert!(answer.content_type().starts_with("text/plain"), "{what}");
        assert!(!answer.text().contains("ott1"), "{what}: {}", answer.text());
        texts.push(answer.text().split(" (").next().unwrap().to_owned());
    }
    // Whatever was wrong with the token, the sender is told the same.
    assert_eq!(texts.first(), texts.get(1));
    assert_eq!(texts.first(), texts.get(2));
    // And none of it has used the token up.
    assert_eq!(site.validate(&usual_request(N1, &token)).await.status, 200);
}

/// People look for what was refused, and in the end it is forgotten.
#[tokio::test]
async fn a_refused_validation_is_listed_by_its_door_and_collected_when_it_is_old() {
    let site = Site::start().await;
    let body = CsrBuilder::new(N1).sign_pem(keys::p256_a());
    assert_eq!(site.validate(&body).await.status, 404);
    let authority = &site.world.authority;
    let listed = async |door: &'static DoorSpec| {
        let filter = RequestFilter {
            door: Some(door.name.clone()),
            live_only: false,
            ..RequestFilter::default()
        };
        let found = authority.requests.list(filter).await.unwrap();
        found
            .into_iter()
            .map(|record| record.key)
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(&foreman::SPEC).await, [N1]);
    assert_eq!(listed(&puppet::SPEC).await, [""; 0]);

    let rules = [Retention {
        door: &foreman::SPEC,
        state: RequestState::Denied,
        seconds: 3600,
    }];
    for (passed, left) in [(3600, 1), (1, 0)] {
        site.world.clock.advance(passed);
        authority.requests.collect(&rules).await.unwrap();
        assert_eq!(listed(&foreman::SPEC).await.len(), left);
    }
}

#[tokio::test]
async fn of_many_validations_at_once_one_key_wins() {
    let site = Site::start().await;
    let token = site.mint(N1).await;
    let keys = [
        keys::p256_a(),
        keys::p256_b(),
        keys::p256_c(),
        keys::p256_d(),
    ];
    let bodies: Vec<String> = (0..24)
        .map(|number| request(N1, &token, keys[number % keys.len()]))
        .collect();
    let answers = join_all(bodies.iter().map(|body| site.validate(body))).await;
    let mut winners: Vec<usize> = Vec::new();
    for (number, answer) in answers.iter().enumerate() {
        match answer.status {
            200 => winners.push(number % keys.len()),
            404 => {}
            other => panic!("{other}: {}", answer.text()),
        }
    }
    winners.dedup();
    winners.sort_unstable();
    winners.dedup();
    assert_eq!(winners.len(), 1, "{winners:?}");
    let id = TokenText::parse(&token).unwrap().id().clone();
    let detail = site.world.authority.tokens.get(&id).await.unwrap().unwrap();
    assert_eq!(detail.uses.len(), 1);
}

#[tokio::test]
async fn deleting_an_entry_takes_its_tokens_back_and_goes_well_without_one() {
    let site = Site::start().await;
    let token = site.mint(N1).await;
    let line = format!("DELETE /puppet/ca/autosign/{N1}");
    for _ in 0..2 {
        let answer = site.call(&line).await;
        assert_eq!((answer.status, answer.text()), (200, ""));
    }
    assert_eq!(site.validate(&usual_request(N1, &token)).await.status, 404);
    let nameless = site.call("DELETE /puppet/ca/autosign/No_Name*").await;
    assert_eq!(nameless.status, 200, "{}", nameless.text());
}

/// Cleaning a host takes its token back, too.
#[tokio::test]
async fn a_host_that_is_destroyed_cannot_come_back_by_its_token() {
    let site = Site::start().await;
    let token = site.mint(N1).await;
    assert_eq!(
        site.call(&format!("DELETE /puppet/ca/{N1}")).await.status,
        200
    );
    let refused = site.enrol(N1, &usual_request(N1, &token)).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
}

#[tokio::test]
async fn names_that_no_host_can_have_are_refused_with_a_sentence() {
    let site = Site::start().await;
    for name in ["bad*name", "-web", "ca"] {
        let answer = site.call(&format!("POST /puppet/ca/autosign/{name}")).await;
        assert_eq!(answer.status, 406, "{name}: {}", answer.text());
        let sentence = format!("Failed to enable autosign for {name}: ");
        assert!(answer.text().starts_with(&sentence), "{}", answer.text());
    }
    // These only cannot be signed through this interface; a token they may have.
    for name in ["validate", "autosign"] {
        let token = site.mint(name).await;
        let sent = site.enrol(name, &usual_request(name, &token)).await;
        assert_eq!(sent.status, 200, "{name}: {}", sent.text());
    }
}

#[tokio::test]
async fn the_time_is_in_minutes_and_at_most_what_is_configured() {
    let site = Site::start().await;
    let path = format!("/puppet/ca/autosign/{N1}");
    let form = ("application/x-www-form-urlencoded", "token_ttl=30min");
    for (query, (content_type, body), seconds) in [
        ("", ("", ""), 360 * 60),
        ("?token_ttl=90", ("", ""), 90 * 60),
        ("?token_ttl=90", form, 30 * 60),
        ("?token_ttl=0", ("", ""), 360 * 60),
        ("?token_ttl=-3", ("", ""), 360 * 60),
        ("?token_ttl=never", ("", ""), 360 * 60),
        ("?token_ttl=999999999", ("", ""), 7 * 86_400),
    ] {
        let line = format!("POST {path}{query}");
        let mut call = Call::new(&site.foreman, &line).body(body);
        if !content_type.is_empty() {
            call = call.header("content-type", content_type);
        }
        let answer = call.send(&site.proxy).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        let filter = TokenFilter {
            status: Some(TokenStatus::Active),
            ..TokenFilter::newest(site.world.authority.now(), 10)
        };
        let active = site.world.authority.tokens.list(filter).await.unwrap();
        let [token] = &active[..] else {
            panic!("{query}: {active:?}");
        };
        let lifetime = token.record.expires_at.0 - token.record.created_at.0;
        assert_eq!(lifetime, seconds, "{query} {body}");
    }
}

#[tokio::test]
async fn without_tokens_there_is_nothing_to_mint_or_to_validate() {
    let site = Site::without_tokens().await;
    let line = format!("POST /puppet/ca/autosign/{N1}");
    let answer = site.call(&line).await;
    assert_eq!(answer.status, 406, "{}", answer.text());
    assert!(
        answer.text().contains("tokens.enabled"),
        "{}",
        answer.text()
    );
    assert_eq!(site.foreman(&line).await, Understood::False);
    let answer = site
        .validate(&usual_request(N1, countersign_testkit::csr::TOKEN))
        .await;
    assert_eq!(answer.status, 501, "{}", answer.text());
    let listed = site.foreman("GET /puppet/ca/autosign").await;
    assert_eq!(listed, Understood::Object(json!([])));
    let line = format!("DELETE /puppet/ca/autosign/{N1}");
    assert_eq!(site.foreman(&line).await, Understood::True);
}

/// A smart proxy answers 406 to whatever it could not find out: the policy script does not sign then, and asks again.
#[tokio::test]
async fn a_store_that_fails_validates_nothing_and_is_not_described() {
    let site = Site::start().await;
    let token = site.mint(N1).await;
    let request = usual_request(N1, &token);
    site.world.store.set(Some(|| StoreFault::Failed {
        source: "/var/lib/somewhere".into(),
    }));
    let line = format!("POST /puppet/ca/autosign/{N1}");
    let answers = [site.validate(&request).await, site.call(&line).await];
    for answer in &answers {
        assert_eq!(answer.status, 406, "{}", answer.text());
        assert!(answer.text().starts_with("Failed to "), "{}", answer.text());
        for told in ["/var/lib", "token_", token.split('.').nth(2).unwrap()] {
            assert!(!answer.text().contains(told), "{}", answer.text());
        }
    }
    site.world.store.set(None);
    assert_eq!(site.validate(&request).await.status, 200);
}

/// Trying secrets for a token's id ends soon, and keeps nobody else waiting.
#[tokio::test]
async fn wrong_tokens_are_counted_each_for_itself() {
    let site = Site::start().await;
    let never = usual_request(N1, countersign_testkit::csr::TOKEN);
    for _ in 0..30 {
        assert_eq!(site.validate(&never).await.status, 404);
    }
    let answer = site.validate(&never).await;
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert!(answer.header("retry-after").is_some());
    let token = site.mint(N1).await;
    // Not even for the host whose token's public part was tried.
    let wrong = usual_request(N1, &with_another_secret(&token));
    for _ in 0..30 {
        assert_eq!(site.validate(&wrong).await.status, 404);
    }
    assert_eq!(site.validate(&wrong).await.status, 429);
    assert_eq!(site.validate(&usual_request(N1, &token)).await.status, 200);
    assert_eq!(site.validate(&wrong).await.status, 429);
}
