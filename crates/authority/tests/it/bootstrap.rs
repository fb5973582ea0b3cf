//! Bootstrap tokens: good for many until they end, and for nobody who has only their id.

use countersign_authority::{
    Actor, Authority, BootstrapId, BootstrapOrder, BootstrapStatus, BootstrapText, MacKey, MacKeys,
    Revision, TokenFault, TokenSettings,
};
use rstest::rstest;

use crate::world::World;

const DAY: i64 = 86_400;

async fn mint(authority: &Authority, order: BootstrapOrder) -> BootstrapText {
    let actor = Actor::authority();
    let minted = authority.tokens.mint_bootstrap(order, &actor);
    minted.await.unwrap().token
}

fn ttl(seconds: u64) -> BootstrapOrder {
    BootstrapOrder {
        ttl_seconds: Some(seconds),
        ..BootstrapOrder::default()
    }
}

async fn is_good(authority: &Authority, token: &str) -> bool {
    let user = authority.tokens.bootstrap_user(token).await.unwrap();
    user.is_some()
}

async fn status(world: &World, id: &BootstrapId) -> Option<BootstrapStatus> {
    let found = world.authority.tokens.get_bootstrap(id).await.unwrap();
    found.map(|token| token.status(world.authority.now()))
}

#[tokio::test]
async fn whoever_shows_a_token_is_its_user_as_often_as_they_like() {
    let world = World::new(false).await;
    let order = BootstrapOrder {
        groups: vec![
            "system:bootstrappers:b".to_owned(),
            "system:bootstrappers:a".to_owned(),
            "system:bootstrappers:b".to_owned(),
        ],
        group_prefix: Some("system:bootstrappers:"),
        description: "rack 7".to_owned(),
        ..BootstrapOrder::default()
    };
    let token = mint(&world.authority, order).await;
    for _ in 0..3 {
        let user = world.authority.tokens.bootstrap_user(token.expose()).await;
        let user = user.unwrap().unwrap();
        assert_eq!(user.id(), token.id());
        assert_eq!(
            user.groups(),
            ["system:bootstrappers:a", "system:bootstrappers:b"]
        );
    }
    let (id, secret) = token.expose().split_once('.').unwrap();
    let last = if secret.ends_with('a') { "b" } else { "a" };
    let almost = format!("{id}.{}{last}", secret.get(..15).unwrap());
    let elsewhere = format!("zzzzzz.{secret}");
    for wrong in [&*almost, &elsewhere, id, secret, "", "ott1.x"] {
        assert!(!is_good(&world.authority, wrong).await, "{wrong}");
    }
}

#[tokio::test]
async fn a_token_ends_after_a_day_or_when_it_was_said_or_never() {
    let world = World::new(false).await;
    let standard = mint(&world.authority, BootstrapOrder::default()).await;
    let short = mint(&world.authority, ttl(60)).await;
    let endless = mint(&world.authority, ttl(0)).await;
    for (seconds, good) in [
        (0, [true, true, true]),
        (59, [true, true, true]),
        (1, [true, false, true]),
        (DAY - 61, [true, false, true]),
        (1, [false, false, true]),
        (400 * DAY, [false, false, true]),
    ] {
        world.clock.advance(seconds);
        for (token, good) in [&standard, &short, &endless].into_iter().zip(good) {
            let found = is_good(&world.authority, token.expose()).await;
            assert_eq!(found, good, "{token:?} after {seconds} s more");
        }
    }
    let expired = Some(BootstrapStatus::Expired);
    assert_eq!(status(&world, short.id()).await, expired);
    // What ended long ago is forgotten; what has no end is not.
    assert_eq!(world.authority.tokens.purge_bootstrap().await.unwrap(), 2);
    assert_eq!(status(&world, short.id()).await, None);
    assert!(is_good(&world.authority, endless.expose()).await);
}

#[tokio::test]
async fn a_clock_that_goes_back_brings_no_token_back() {
    let world = World::new(false).await;
    let token = mint(&world.authority, ttl(60)).await;
    world.clock.advance(3600);
    assert!(!is_good(&world.authority, token.expose()).await);
    world.clock.advance(-3600);
    assert!(!is_good(&world.authority, token.expose()).await);
}

#[tokio::test]
async fn a_token_that_was_taken_back_stays_so_and_all_of_it_is_in_the_audit_log() {
    let world = World::new(false).await;
    let authority = &world.authority;
    let token = mint(authority, BootstrapOrder::default()).await;
    let actor = Actor::authority();
    for _ in 0..2 {
        let revoked = authority.tokens.revoke_bootstrap(token.id(), &actor).await;
        revoked.unwrap();
        assert!(!is_good(authority, token.expose()).await);
    }
    assert_eq!(
        status(&world, token.id()).await,
        Some(BootstrapStatus::Revoked)
    );
    let nobody = BootstrapId::parse("nobody").unwrap();
    let missing = authority.tokens.revoke_bootstrap(&nobody, &actor).await;
    assert!(
        matches!(missing, Err(TokenFault::NotFound { .. })),
        "{missing:?}"
    );
    world.clock.advance(40 * DAY);
    assert_eq!(authority.tokens.purge_bootstrap().await.unwrap(), 1);

    let id = token.id().as_str();
    let secret = token.expose().split_once('.').unwrap().1;
    let entries = authority
        .audit
        .after(Revision::default(), 100)
        .await
        .unwrap();
    let mut told = Vec::new();
    for (_, entry) in entries {
        let text = serde_json::to_string(&entry).unwrap();
        assert!(!text.contains(secret), "{text}");
        if entry.token.as_deref() == Some(id) {
            assert_eq!(entry.subject, format!("bootstrap-token/{id}"));
            told.push(entry.action.into_owned());
        }
    }
    let acts = ["minted", "revoked", "purged"];
    assert_eq!(told, acts.map(|act| format!("bootstrap_token.{act}")));
}

/// Records of the one key are worth nothing under another.
#[tokio::test]
async fn tokens_are_kept_under_the_key_for_token_records() {
    let world = World::new(false).await;
    let keyed = |current: Option<u8>, old: Option<u8>| {
        let key = |byte| MacKey::new(vec![byte; 32]).unwrap();
        world
            .authority
            .set_rules(world.authority.rules().with_tokens(TokenSettings {
                keys: MacKeys {
                    current: current.map(key),
                    old: old.map(key).into_iter().collect(),
                    ..MacKeys::default()
                },
                ..TokenSettings::standard()
            }));
    };
    keyed(Some(1), None);
    let token = mint(&world.authority, BootstrapOrder::default()).await;
    for (current, old, good) in [
        (Some(1), None, true),
        (Some(2), None, false),
        (Some(2), Some(1), true),
        (None, None, false),
    ] {
        keyed(current, old);
        let found = is_good(&world.authority, token.expose()).await;
        assert_eq!(found, good, "{current:?} {old:?}");
    }
}

#[rstest]
#[case(ttl(u64::MAX), "ttl_seconds: must be from 0 to")]
#[case(BootstrapOrder { groups: vec!["system:masters".to_owned()], group_prefix: Some("system:bootstrappers:"), ..Default::default() }, "groups: must be system:bootstrappers:")]
#[case(BootstrapOrder { groups: vec!["system:bootstrappers:a".to_owned()], ..Default::default() }, "groups: must be empty")]
#[case(BootstrapOrder { groups: vec!["system:bootstrappers:a".to_owned(); 33], ..Default::default() }, "groups: must be at most 32")]
#[case(BootstrapOrder { description: "a\nb".to_owned(), ..Default::default() }, "description: must be one line")]
#[case(BootstrapOrder { description: "it is abcdef.0123456789abcdef".to_owned(), ..Default::default() }, "description: must not hold a token")]
#[tokio::test]
async fn what_cannot_be_is_not_minted(#[case] order: BootstrapOrder, #[case] why: &str) {
    let world = World::new(false).await;
    let actor = Actor::authority();
    let refused = world.authority.tokens.mint_bootstrap(order, &actor).await;
    let told = refused.unwrap_err().to_string();
    assert!(told.starts_with(why), "{told}");
    let none = world
        .authority
        .tokens
        .list_bootstrap(None, 10)
        .await
        .unwrap();
    assert!(none.is_empty());
}
