//! Orders for enrolment tokens: which cannot be, and that each is carried out once.

use countersign_authority::{TokenFault, TokenOrder};
use countersign_policy::TokenBinding;

use crate::tokens::{N1, TOKEN_RULE, token_site};
use crate::world::act;

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_cannot_be() {
    let site = token_site(TOKEN_RULE).await;
    let glob = |pattern: &str| TokenOrder {
        max_uses: Some(2),
        ..TokenOrder::bound(TokenBinding::Glob(pattern.to_owned()))
    };
    let exact = || TokenOrder::exact(N1);
    let cases: Vec<(&str, TokenOrder, &str)> = vec![
        (
            "no uses",
            TokenOrder {
                max_uses: Some(0),
                ..exact()
            },
            "max_uses",
        ),
        (
            "too many uses",
            TokenOrder {
                max_uses: Some(1001),
                ..exact()
            },
            "max_uses",
        ),
        (
            "no time",
            TokenOrder {
                ttl_seconds: Some(0),
                ..exact()
            },
            "ttl_seconds",
        ),
        (
            "too long",
            TokenOrder {
                ttl_seconds: Some(604_801),
                ..exact()
            },
            "ttl_seconds",
        ),
        (
            "a domain for too long",
            TokenOrder {
                ttl_seconds: Some(86_401),
                ..glob("*.a.example.com")
            },
            "ttl_seconds",
        ),
        (
            "a domain without uses",
            TokenOrder {
                max_uses: None,
                ..glob("*.a.example.com")
            },
            "max_uses",
        ),
        ("everything", glob("*"), "glob"),
        ("a top domain", glob("*.com"), "glob"),
        ("in the middle", glob("a.*.example.com"), "glob"),
        ("within a label", glob("*a.example.com"), "glob"),
        ("twice", glob("*.*.example.com"), "glob"),
        ("reserved", TokenOrder::exact("ca.example.com"), "certname"),
        (
            "bad san",
            TokenOrder {
                allowed_sans: vec!["alias".to_owned()],
                ..exact()
            },
            "allowed_sans",
        ),
        (
            "bad address",
            TokenOrder {
                allowed_sans: vec!["IP:300.1.1.1".to_owned()],
                ..exact()
            },
            "allowed_sans",
        ),
        (
            "bad network",
            TokenOrder {
                source_cidrs: vec!["10.0.0.0/33".to_owned()],
                ..exact()
            },
            "source_cidrs",
        ),
        (
            "bad key",
            TokenOrder {
                spki_sha256: Some("ab".to_owned()),
                ..exact()
            },
            "spki_sha256",
        ),
        (
            "bad extension",
            TokenOrder {
                allowed_extensions: Some([("pp_nonsense".to_owned(), vec!["x".to_owned()])].into()),
                ..exact()
            },
            "allowed_extensions",
        ),
        (
            "a secret extension",
            TokenOrder {
                allowed_extensions: Some(
                    [("pp_preshared_key".to_owned(), vec!["x".to_owned()])].into(),
                ),
                ..exact()
            },
            "allowed_extensions",
        ),
        (
            "bad signer",
            TokenOrder {
                profile: Some("nobody".to_owned()),
                ..exact()
            },
            "profile",
        ),
        (
            "two lines",
            TokenOrder {
                note: "a\nb".to_owned(),
                ..exact()
            },
            "note",
        ),
    ];
    let admin = act("").actor;
    for (case, order, field) in cases {
        let fault = site
            .authority()
            .tokens
            .mint(order, &admin, None)
            .await
            .unwrap_err();
        let TokenFault::Field { field: told, .. } = &fault else {
            panic!("{case}: {fault}");
        };
        assert_eq!(*told, field, "{case}: {fault}");
    }
    let token = site.mint(exact()).await;
    let fault = site
        .authority()
        .tokens
        .mint(TokenOrder::exact(token.expose()), &admin, None)
        .await
        .unwrap_err();
    assert!(matches!(fault, TokenFault::Name { .. }));
    let secret = token.expose().split('.').nth(2).unwrap();
    assert!(!fault.to_string().contains(secret) && !format!("{fault:?}").contains(secret));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_carried_out_once() {
    let site = token_site(TOKEN_RULE).await;
    let admin = act("").actor;
    let order = || TokenOrder::exact(N1);
    let first = site
        .authority()
        .tokens
        .mint(order(), &admin, Some("k"))
        .await
        .unwrap();
    let again = site
        .authority()
        .tokens
        .mint(order(), &admin, Some("k"))
        .await
        .unwrap_err();
    assert!(matches!(again, TokenFault::AlreadyOrdered { id } if id == first.record.id));
    site.authority()
        .tokens
        .mint(order(), &admin, Some("l"))
        .await
        .unwrap();
}
