//! Signing policies that somebody gives the authority.

use countersign_server::enrol::signing_policies_key;
use serde_json::json;

use super::Office;

#[tokio::test]
async fn values_of_signing_policies_are_kept_as_hashes_and_put_again_change_nothing() {
    let office = Office::open().await;
    let path = "signing-policies/puppet/production";
    let set = json!({
        "operator": "production-operator",
        "policies": [{"name": "p", "spec": {
            "certificateAuthorityRef": "production",
            "pattern": {"allow": ["*.example.com"]},
            "csrAttributes": [{"name": "pp_preshared_key", "value": "for nobody else"}],
        }}],
    });
    let put = office.put(path, &set).await;
    assert_eq!(put.status, 204, "{}", put.text());
    let shown = office.get("signing-policies").await;
    let kept = &shown["authorities"]["puppet/production"];
    assert_eq!(kept["operator"], "production-operator");
    let attribute = &kept["policies"][0]["spec"]["csrAttributes"][0];
    assert_eq!(attribute["name"], "pp_preshared_key");
    assert!(attribute["valueHash"]["sha256"].is_string() && attribute.get("value").is_none());
    let objects = &office.world.authority.objects;
    let stored = || async { objects.get(&signing_policies_key()).await.unwrap().unwrap() };
    let before = stored().await;
    assert!(!String::from_utf8_lossy(&before.body).contains("for nobody else"));
    // What is the same is no change, also as it is kept.
    for again in [&set, kept] {
        let put = office.put(path, again).await;
        assert_eq!(put.status, 204, "{}", put.text());
        assert_eq!(stored().await.version, before.version);
    }
    // Another authority's stay as they are.
    let other = json!({"policies": []});
    assert_eq!(
        office
            .put("signing-policies/puppet/lab", &other)
            .await
            .status,
        204
    );
    let removed = office.call(&format!("DELETE /enrol/v1/{path}")).await;
    assert_eq!(removed.status, 204);
    let shown = office.get("signing-policies").await;
    assert_eq!(
        shown,
        json!({"authorities": {"puppet/lab": {"operator": null, "policies": []}}})
    );
}

#[tokio::test]
async fn what_cannot_be_meant_changes_nothing() {
    let office = Office::open().await;
    let of = |spec: serde_json::Value| json!({"policies": [{"name": "p", "spec": spec}]});
    let base = json!({"certificateAuthorityRef": "production"});
    let with = |key: &str, value: serde_json::Value| {
        let mut spec = base.clone();
        spec[key] = value;
        of(spec)
    };
    let from_secret =
        json!([{"name": "pp_role", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
    for (case, path, body, status, part) in [
        (
            "another authority's",
            "puppet/other",
            of(base.clone()),
            422,
            "certificateAuthorityRef",
        ),
        (
            "a Secret",
            "puppet/production",
            with("csrAttributes", from_secret),
            422,
            "Secret s",
        ),
        (
            "a network",
            "puppet/production",
            with("ipAltNames", json!({"allow": ["x"]})),
            422,
            "ipAltNames",
        ),
        (
            "an operator that is a token",
            "puppet/production",
            json!({"operator": "ott1.abcdefghijklmnop.abcdefghijklmnopqrstuvwxyzabcdef", "policies": []}),
            422,
            "operator",
        ),
        (
            "a name",
            "puppet/Production",
            of(base.clone()),
            400,
            "does not name",
        ),
        (
            "an unknown member",
            "puppet/production",
            json!({"policies": [], "more": 1}),
            400,
            "more",
        ),
    ] {
        let answer = office.put(&format!("signing-policies/{path}"), &body).await;
        assert_eq!(answer.status, status, "{case}: {}", answer.text());
        assert!(answer.text().contains(part), "{case}: {}", answer.text());
    }
    assert_eq!(
        office.get("signing-policies").await,
        json!({"authorities": {}})
    );
}
