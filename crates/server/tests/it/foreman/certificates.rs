//! Registering the proxy, listing, signing and cleaning: none of it needs a token.

use countersign_server::Peer;
use countersign_server::access::{Access, Entry, Holder, Role};
use countersign_server::foreman::{ForemanDoor, TrustedHosts, router};
use countersign_server::puppet::PuppetDoor;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use serde_json::json;

use super::{FOREMAN, Site, Understood};
use crate::exchange::Call;
use crate::world::{PUPPET_AGENT, START, signer_name};

#[tokio::test]
async fn foreman_finds_the_feature_that_it_registers() {
    let site = Site::without_tokens().await;
    let told = |value| Understood::Object(value);
    let features = site.foreman("GET /features").await;
    assert_eq!(features, told(json!(["puppetca"])));
    let Understood::Object(features) = site.foreman("GET /v2/features").await else {
        panic!("no object");
    };
    assert_eq!(
        features,
        json!({"puppetca": {
            "http_enabled": false, "https_enabled": true, "state": "running", "capabilities": [],
            "settings": {"puppet_url": "https://ca.example.com:8140"},
        }})
    );
    let version = env!("CARGO_PKG_VERSION");
    let modules = json!({"version": version, "modules": {"puppetca": version}});
    assert_eq!(site.foreman("GET /version").await, told(modules));
}

#[tokio::test]
async fn names_have_the_states_that_foreman_knows() {
    let site = Site::without_tokens().await;
    for name in ["pending01", "valid01", "revoked01", "old01"] {
        let csr = CsrBuilder::new(name).sign_pem(keys::p256_a());
        assert_eq!(site.enrol(name, &csr).await.status, 200, "{name}");
    }
    for name in ["valid01", "revoked01", "old01"] {
        let line = format!("POST /puppet/ca/{name}");
        let signed = site.call(&line).await;
        assert_eq!((signed.status, signed.text()), (200, ""), "{name}");
        assert_eq!(signed.content_type(), "application/json");
    }
    let body = r#"{"desired_state":"revoked"}"#;
    let revoked = Call::new(
        &site.admin,
        "PUT /puppet-ca/v1/certificate_status/revoked01",
    );
    let revoked = revoked.header("content-type", "application/json");
    assert_eq!(revoked.body(body).send(&site.agents).await.status, 204);

    for path in ["/puppet/ca", "/puppet/ca/"] {
        let answer = site.call(&format!("GET {path}")).await;
        assert_eq!(
            (answer.status, answer.content_type()),
            (200, "application/json")
        );
        let names = answer.json();
        for (name, state) in [
            ("pending01", "pending"),
            ("valid01", "valid"),
            ("revoked01", "revoked"),
            (FOREMAN, "valid"),
        ] {
            assert_eq!(names[name]["state"], state, "{names}");
        }
        let pending = &names["pending01"];
        assert_eq!(pending.as_object().unwrap().len(), 5, "{pending}");
        assert!(pending["serial"].is_null() && pending["not_after"].is_null());
        let valid = &names["valid01"];
        assert!(valid["serial"].is_number(), "{valid}");
        assert_eq!(valid["not_before"], "2026-01-01T03:04:05UTC");
        assert_eq!(valid["fingerprint"].as_str().unwrap().len(), 95, "{valid}");
    }
    // Certificates that have ended are as good as revoked.
    site.world.clock.advance(5 * 365 * 86_400 + 86_400);
    let authority = &site.world.authority;
    assert!(authority.now() > START);
    let foreman = site.world.puppet_agent("foreman2.example.com").await;
    site.trusted.set(&["foreman2.example.com".to_owned()]);
    let names = site.call_from(&foreman, "GET /puppet/ca").await.json();
    assert_eq!(names["old01"]["state"], "revoked", "{names}");
    assert_eq!(names["foreman2.example.com"]["state"], "valid", "{names}");
}

#[tokio::test]
async fn foreman_may_clean_itself_away_like_any_other_name() {
    let site = Site::without_tokens().await;
    assert_eq!(
        site.call(&format!("DELETE /puppet/ca/{FOREMAN}"))
            .await
            .status,
        200
    );
    // Foreman has cleaned itself away; another host looks.
    let other = site.world.puppet_agent("other").await;
    site.trusted.set(&["other".to_owned()]);
    let names = site.call_from(&other, "GET /puppet/ca").await.json();
    let left: Vec<&String> = names.as_object().unwrap().keys().collect();
    assert_eq!(left, ["countersign-admin", "other"]);
}

#[tokio::test]
async fn more_names_than_a_page_holds() {
    let site = Site::without_tokens().await;
    for number in 0..501 {
        let name = format!("web{number:03}");
        let csr = CsrBuilder::new(&name).sign_pem(keys::p256_a());
        assert_eq!(site.enrol(&name, &csr).await.status, 200);
    }
    let names = site.call("GET /puppet/ca").await.json();
    assert_eq!(names.as_object().unwrap().len(), 501 + 2);
}

#[tokio::test]
async fn signing_what_does_not_wait_is_a_failure_and_cleaning_is_not() {
    let site = Site::without_tokens().await;
    for (name, why) in [
        ("nobody", "there is no request nobody at the puppet door"),
        ("Upper", "Certificate names must be lower case."),
        ("autosign", "the path belongs to another call"),
    ] {
        let answer = site.call(&format!("POST /puppet/ca/{name}")).await;
        assert_eq!(answer.status, 406, "{name}: {}", answer.text());
        assert!(answer.content_type().starts_with("text/plain"), "{name}");
        let sentence = format!("Failed to sign certificate(s) for {name}: {why}");
        assert!(answer.text().starts_with(&sentence), "{}", answer.text());
    }
    for name in ["nobody", "validate", "autosign", "Upper"] {
        let line = format!("DELETE /puppet/ca/{name}");
        let answer = site.call(&line).await;
        assert_eq!((answer.status, answer.text()), (200, ""), "{name}");
        assert_eq!(answer.content_type(), "application/json");
        assert_eq!(site.foreman(&line).await, Understood::True, "{name}");
    }
}

#[tokio::test]
async fn cleaning_revokes_and_lets_the_name_enrol_again() {
    let site = Site::without_tokens().await;
    let csr = |key| CsrBuilder::new("web01").sign_pem(key);
    site.enrol("web01", &csr(keys::p256_a())).await;
    // A request that waits goes.
    assert_eq!(site.call("DELETE /puppet/ca/web01").await.status, 200);
    assert_eq!(site.call("POST /puppet/ca/web01").await.status, 406);
    site.enrol("web01", &csr(keys::p256_b())).await;
    assert_eq!(site.call("POST /puppet/ca/web01").await.status, 200);
    let issuer = site.world.puppet_issuer();
    let authority = &site.world.authority;
    let found = authority.ledger.newest(&issuer, "web01").await;
    let serial = found.unwrap().unwrap().serial;
    assert_eq!(site.call("DELETE /puppet/ca/web01").await.status, 200);
    assert!(authority.ledger.is_revoked(&issuer, &serial));
    assert_eq!(site.certificate("web01").await.status, 404);
    let again = site.enrol("web01", &csr(keys::p256_c())).await;
    assert_eq!(again.status, 200, "{}", again.text());
}

/// Who is trusted here signs machines, and makes nobody who may do more than that.
#[tokio::test]
async fn no_role_is_won_by_signing() {
    let site = Site::without_tokens().await;
    let world = &site.world;
    let access = Access::new(vec![Entry {
        holder: Holder::Certname("boss01".to_owned()),
        role: Role::Admin,
        suffixes: Vec::new(),
    }]);
    let (authority, signer) = (world.authority.clone(), signer_name(PUPPET_AGENT));
    let door = PuppetDoor::new(authority, world.puppet_issuer(), signer, START).unwrap();
    let door = ForemanDoor::new(
        door.with_access(access),
        TrustedHosts::new(&[FOREMAN.to_owned()]),
        "https://ca.example.com:8140",
    );
    let proxy = router(door);
    let csr = CsrBuilder::new("boss01").sign_pem(keys::p256_a());
    assert_eq!(site.enrol("boss01", &csr).await.status, 200);
    let peer: &Peer = &site.foreman;
    let answer = Call::new(peer, "POST /puppet/ca/boss01").send(&proxy).await;
    assert_eq!(answer.status, 406, "{}", answer.text());
    assert!(
        answer.text().contains("needs the role admin"),
        "{}",
        answer.text()
    );
}

/// Nor are the authority's own names signed and cleaned from here.
#[tokio::test]
async fn own_names_are_not_foremans() {
    let site = Site::without_tokens().await;
    let (authority, issuer) = (&site.world.authority, site.world.puppet_issuer());
    let csr = CsrBuilder::new("ca.example.com").sign_pem(keys::p256_a());
    assert_eq!(site.enrol("ca.example.com", &csr).await.status, 200);
    let refused = |what: &str, name: &str| {
        format!(
            "Failed to {what} certificate(s) for {name}: this call needs the role admin for {name}"
        )
    };
    let answer = site.call("POST /puppet/ca/ca.example.com").await;
    let expected = refused("sign", "ca.example.com");
    assert_eq!((answer.status, answer.text()), (406, expected.as_str()));
    for name in ["ca.example.com", "countersign-admin"] {
        let answer = site.call(&format!("DELETE /puppet/ca/{name}")).await;
        let expected = refused("remove", name);
        assert_eq!((answer.status, answer.text()), (406, expected.as_str()));
    }
    let admin = authority.ledger.newest(&issuer, "countersign-admin");
    assert!(admin.await.unwrap().unwrap().revoked.is_none());
}
