//! Bootstrap tokens over the native interface.

use countersign_authority::BootstrapText;
use serde_json::{Value, json};

use super::{Office, column};
use crate::world::START;

impl Office {
    /// The id and the whole text of a new bootstrap token.
    pub(crate) async fn bootstrap_token(&self, order: &Value) -> BootstrapText {
        let minted = self.post("bootstrap-tokens", &order.to_string()).await;
        assert_eq!(minted.status, 201, "{}", minted.text());
        let body = minted.json();
        let token =
            BootstrapText::parse(body.get("token").and_then(Value::as_str).unwrap()).unwrap();
        assert_eq!(body.get("id"), Some(&json!(token.id())));
        token
    }
}

#[tokio::test]
async fn a_bootstrap_token_is_shown_once() {
    let office = Office::open().await;
    let order =
        json!({"ttl_seconds": 60, "groups": ["system:bootstrappers:lab"], "description": "rack 7"});
    let minted = office.post("bootstrap-tokens", &order.to_string()).await;
    assert_eq!(
        (minted.status, minted.header("cache-control")),
        (201, Some("no-store"))
    );
    let minted = minted.json();
    let members: Vec<_> = minted.as_object().unwrap().keys().collect();
    assert_eq!(members, ["ca", "expires_at", "id", "token"]);
    assert_eq!(minted["expires_at"], json!(START.plus_seconds(60)));
    let token = BootstrapText::parse(minted["token"].as_str().unwrap()).unwrap();
    let id = token.id().as_str();
    let (_, secret) = token.expose().split_once('.').unwrap();

    let place = format!("bootstrap-tokens/{id}");
    assert_eq!(
        office.get(&place).await,
        json!({
            "id": id, "status": "active", "username": format!("system:bootstrap:{id}"),
            "groups": ["system:bootstrappers:lab"], "expires_at": START.plus_seconds(60), "description": "rack 7",
            "created_by": "countersign-admin", "created_at": START, "revoked_at": null,
        })
    );
    for path in [&*place, "bootstrap-tokens", "audit"] {
        let text = office.get(path).await.to_string();
        assert!(text.contains(id) && !text.contains(secret), "{path}");
    }
    office.world.clock.advance(60);
    assert_eq!(office.get(&place).await["status"], "expired");
}

#[tokio::test]
async fn bootstrap_tokens_are_listed_newest_first_and_revoked() {
    let office = Office::open().await;
    let mut ids = Vec::new();
    for ttl in [0, 60, 3600] {
        let token = office.bootstrap_token(&json!({ "ttl_seconds": ttl })).await;
        ids.insert(0, token.id().as_str().to_owned());
    }
    let all = office.get("bootstrap-tokens").await;
    assert_eq!(column(&all, "id"), ids);
    let first = office.get("bootstrap-tokens?limit=2").await;
    assert_eq!(column(&first, "id"), ids[..2]);
    let cursor = first["cursor"].as_str().unwrap();
    let rest = office
        .get(&format!("bootstrap-tokens?cursor={cursor}"))
        .await;
    assert_eq!(column(&rest, "id"), ids[2..]);
    assert_eq!(rest["cursor"], Value::Null);

    let line = format!("DELETE /enrol/v1/bootstrap-tokens/{}", ids[2]);
    for _ in 0..2 {
        assert_eq!(office.call(&line).await.status, 204);
    }
    let shown = office.get(&format!("bootstrap-tokens/{}", ids[2])).await;
    assert_eq!(
        (&shown["status"], &shown["expires_at"], &shown["revoked_at"]),
        (&json!("revoked"), &Value::Null, &json!(START))
    );
}

/// Whoever mistakes the whole token for its id does not read it in the answer.
#[tokio::test]
async fn a_whole_token_in_a_path_is_not_repeated() {
    let office = Office::open().await;
    let token = office.bootstrap_token(&json!({})).await;
    for method in ["GET", "DELETE"] {
        let line = format!("{method} /enrol/v1/bootstrap-tokens/{}", token.expose());
        let answer = office.call(&line).await;
        assert_eq!(answer.status, 404);
        assert_eq!(
            answer.json()["error"]["message"],
            "there is no token of this form: a bootstrap token's id has six characters of a-z and 0-9"
        );
    }
}

#[tokio::test]
async fn what_a_bootstrap_token_cannot_be_is_named() {
    let office = Office::open().await;
    for (order, status, member) in [
        (r#"{"ttl_seconds":-1}"#, 422, "ttl_seconds"),
        (r#"{"ttl_seconds":9007199254740991}"#, 422, "ttl_seconds"),
        (r#"{"groups":["system:masters"]}"#, 422, "groups"),
        (r#"{"groups":"system:bootstrappers:a"}"#, 422, "groups"),
        (
            r#"{"description":"abcdef.0123456789abcdef"}"#,
            422,
            "description",
        ),
        (r#"{"certname":"web01"}"#, 422, "certname"),
        ("{", 400, "the body"),
    ] {
        let refused = office.post("bootstrap-tokens", order).await;
        assert_eq!(refused.status, status, "{order}: {}", refused.text());
        let message = refused.json()["error"]["message"].to_string();
        assert!(message.contains(member), "{order}: {message}");
        assert!(!message.contains("0123456789abcdef"), "{message}");
    }
}
