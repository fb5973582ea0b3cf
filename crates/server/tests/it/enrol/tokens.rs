//! Enrolment tokens over the native interface.

use countersign_authority::store::{Change, Store as _, Write};
use countersign_authority::{RequestState, TokenId, TokenOrder, TokenText, TokenUseRecord};
use countersign_pki::{Fingerprint, fingerprint_sha256};
use countersign_policy::{TokenBinding, TokenUseState};
use countersign_server::{RequestLimits, RequestRates};
use countersign_testkit::csr::{CsrBuilder, SignatureFlaw};
use countersign_testkit::keys::{self, Key};
use serde_json::{Value, json};

use super::{Office, column};
use crate::exchange::{Answer, Call};
use crate::world::{PUPPET_AGENT, START};

impl Office {
    async fn with_tokens() -> Self {
        let office = Self::open().await;
        office.world.use_tokens();
        office
    }

    async fn order(&self, order: &Value) -> Answer {
        self.post("tokens", &order.to_string()).await
    }

    /// The id and the whole text of a token for a name.
    pub(crate) async fn token(&self, name: &str) -> (String, String) {
        let minted = self.order(&json!({ "certname": name })).await;
        assert_eq!(minted.status, 201, "{}", minted.text());
        let minted = minted.json();
        let text = |member: &str| {
            minted
                .get(member)
                .and_then(Value::as_str)
                .unwrap()
                .to_owned()
        };
        (text("id"), text("token"))
    }

    /// Writes a use of a token down, by a key that nobody has, and signs nothing.
    pub(crate) async fn reserve(&self, id: &str, name: &str) {
        let reserved = Change {
            writes: vec![Write::UseToken(TokenUseRecord {
                token: TokenId::parse(id).unwrap(),
                certname: name.to_owned(),
                key_fingerprint: Fingerprint::from_bytes([7; 32]),
                state: TokenUseState::Reserved,
                request: None,
                serial: None,
                at: START,
                retry_until: START.plus_seconds(1800),
            })],
            ..Change::default()
        };
        self.world.store.commit(reserved).await.unwrap();
    }

    pub(crate) async fn enrols(&self, name: &str, token: &str) -> RequestState {
        let csr = CsrBuilder::new(name).challenge_password(token);
        let submitted = self.submit("puppet", name, PUPPET_AGENT, &csr, &[]);
        submitted.await.state
    }

    async fn check(&self, query: &str, csr: &str) -> Answer {
        self.post(&format!("check{query}"), csr).await
    }
}

fn message(answer: &Answer) -> String {
    let told = answer.json();
    let message = told.pointer("/error/message").and_then(Value::as_str);
    message.unwrap().to_owned()
}

fn secret_of(token: &str) -> &str {
    token.split('.').nth(2).unwrap()
}

#[tokio::test]
async fn a_new_token_is_shown_once() {
    let office = Office::with_tokens().await;
    let minted = office
        .order(&json!({"certname": "Web01.Example.com"}))
        .await;
    assert_eq!(
        (minted.status, minted.header("cache-control")),
        (201, Some("no-store")),
        "{}",
        minted.text()
    );
    let body = minted.json();
    let members: Vec<_> = body.as_object().unwrap().keys().collect();
    assert_eq!(members, ["expires_at", "id", "token"]);
    let token = TokenText::parse(body["token"].as_str().unwrap()).unwrap();
    assert_eq!(body["id"], json!(token.id()));
    assert_eq!(body["expires_at"], json!(START.plus_seconds(6 * 3600)));
    let id = token.id().as_str();

    let secret = secret_of(token.expose());
    let shown = office.get(&format!("tokens/{id}")).await;
    assert_eq!(shown["certname"], "web01.example.com");
    assert_eq!(shown["glob"], Value::Null);
    assert_eq!((&shown["uses"], &shown["max_uses"]), (&json!(0), &json!(1)));
    assert_eq!(shown["status"], "active");
    assert_eq!(shown["created_by"], "countersign-admin");
    assert_eq!(shown["use_rows"], json!([]));
    for place in [
        format!("tokens/{id}"),
        "tokens".to_owned(),
        "audit".to_owned(),
    ] {
        let text = office.get(&place).await.to_string();
        assert!(text.contains(id), "{place}");
        assert!(!text.contains(secret) && !text.contains("\"mac"), "{place}");
    }
    // It was used: its row says by whom.
    let state = office.enrols("web01.example.com", token.expose()).await;
    assert_eq!(state, RequestState::Issued);
    let shown = office.get(&format!("tokens/{id}")).await;
    assert_eq!(
        (&shown["status"], &shown["uses"]),
        (&json!("issued"), &json!(1))
    );
    let row = &shown["use_rows"][0];
    assert_eq!(
        (&row["certname"], &row["state"]),
        (&json!("web01.example.com"), &json!("issued"))
    );
    assert_eq!(row["retry_until"], json!(START.plus_seconds(1800)));
    let key = fingerprint_sha256(keys::p256_a().spki_der()).to_hex();
    assert_eq!(row["spki_sha256"], key);
    let serial = row["serial"].as_str().unwrap();
    let line = format!("GET /enrol/v1/certificates/puppet/{serial}");
    assert_eq!(office.call(&line).await.status, 200);
    // The request says which token it was, and its message does not have it any more.
    let request = office.get("requests/puppet/web01.example.com").await;
    assert_eq!(request["token_id"], id);
    assert_eq!(request["id"], row["request"]);
    assert!(!request.to_string().contains(secret));
    let pem = request["csr"].as_str().unwrap();
    let der = countersign_pki::pem::decode_first(
        pem.as_bytes(),
        &countersign_pki::pem::PemLimits::REQUEST,
    );
    let der = der.unwrap().unwrap().der;
    let secret = secret.as_bytes();
    assert!(!der.windows(secret.len()).any(|window| window == secret));
}

#[tokio::test]
async fn everything_that_is_ordered_is_shown() {
    let office = Office::with_tokens().await;
    let digest = "0A".repeat(32);
    let ordered = office
        .order(&json!({
            "glob": "*.Dmz.example.com", "ttl_seconds": 60.0, "max_uses": 2,
            "not_before": START.plus_seconds(30), "allowed_sans": ["DNS:WWW.example.com", "IP:192.0.2.1"],
            "allowed_extensions": {"pp_role": ["web"]}, "spki_sha256": digest, "source_cidrs": ["192.0.2.0/24"],
            "allow_replace": true, "keep_existing": true, "profile": PUPPET_AGENT, "external_ref": "foreman:host:42",
            "note": "ticket 7",
        }))
        .await;
    assert_eq!(ordered.status, 201, "{}", ordered.text());
    let id = ordered.json()["id"].as_str().unwrap().to_owned();
    let mut shown = office.get(&format!("tokens/{id}")).await;
    let members = shown.as_object_mut().unwrap();
    members.remove("id");
    assert_eq!(
        shown,
        json!({
            "certname": null, "glob": "*.dmz.example.com", "status": "active", "uses": 0, "max_uses": 2,
            "not_before": START.plus_seconds(30), "expires_at": START.plus_seconds(90),
            "allowed_sans": ["DNS:www.example.com", "IP:192.0.2.1"],
            "allowed_extensions": {"1.3.6.1.4.1.34380.1.1.13": ["web"]}, "spki_sha256": "0a".repeat(32),
            "source_cidrs": ["192.0.2.0/24"], "allow_replace": true, "profile": PUPPET_AGENT,
            "created_by": "countersign-admin", "created_at": START, "revoked_at": null, "superseded_by": null,
            "locked_at": null, "failed_uses": 0, "external_ref": "foreman:host:42", "note": "ticket 7", "use_rows": [],
        })
    );
}

/// Each is answered with its status, and the message names what is wrong.
#[tokio::test]
async fn orders_that_cannot_be_are_refused_by_field() {
    let office = Office::with_tokens().await;
    let token =
        "ott1.aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q.zqthxay";
    for (order, status, named) in [
        ("", 400, "the body"),
        ("{", 400, "the body"),
        ("[]", 400, "the body"),
        ("{}", 422, "certname"),
        (
            r#"{"certname":"web01","glob":"*.a.b"}"#,
            422,
            "certname and glob",
        ),
        (r#"{"certname":7}"#, 422, "certname"),
        (r#"{"certname":"web01","colour":"red"}"#, 422, "colour"),
        (r#"{"certname":"web 01"}"#, 422, "certname"),
        (r#"{"certname":"*.example.com"}"#, 422, "certname"),
        (r#"{"certname":"ca"}"#, 422, "certname"),
        // Nobody mints for the authority itself, or for administrators.
        (r#"{"certname":"ca.example.com"}"#, 422, "certname"),
        (r#"{"certname":"Countersign-Admin"}"#, 422, "certname"),
        (r#"{"glob":"*","max_uses":1}"#, 422, "glob"),
        (r#"{"glob":"*.com","max_uses":1}"#, 422, "glob"),
        (r#"{"glob":"web*.example.com","max_uses":1}"#, 422, "glob"),
        (r#"{"glob":"*.example.com"}"#, 422, "max_uses"),
        (
            r#"{"certname":"web01","ttl_seconds":0}"#,
            422,
            "ttl_seconds",
        ),
        (
            r#"{"certname":"web01","ttl_seconds":604801}"#,
            422,
            "ttl_seconds",
        ),
        (
            r#"{"glob":"*.a.b","max_uses":1,"ttl_seconds":86401}"#,
            422,
            "ttl_seconds",
        ),
        (
            r#"{"certname":"web01","ttl_seconds":-1}"#,
            422,
            "ttl_seconds",
        ),
        (r#"{"certname":"web01","max_uses":0}"#, 422, "max_uses"),
        (r#"{"certname":"web01","max_uses":1001}"#, 422, "max_uses"),
        (
            r#"{"certname":"web01","max_uses":4294967297}"#,
            422,
            "max_uses",
        ),
        (
            r#"{"certname":"web01","not_before":"soon"}"#,
            422,
            "not_before",
        ),
        (
            r#"{"certname":"web01","allowed_sans":["www"]}"#,
            422,
            "allowed_sans",
        ),
        (
            r#"{"certname":"web01","allowed_sans":["IP:x"]}"#,
            422,
            "allowed_sans",
        ),
        (
            r#"{"certname":"web01","allowed_extensions":{"pp_nothing":["a"]}}"#,
            422,
            "allowed_extensions",
        ),
        (
            r#"{"certname":"web01","spki_sha256":"ab"}"#,
            422,
            "spki_sha256",
        ),
        (
            r#"{"certname":"web01","source_cidrs":["192.0.2.0/33"]}"#,
            422,
            "source_cidrs",
        ),
        (r#"{"certname":"web01","profile":"puppet"}"#, 422, "profile"),
        (r#"{"certname":"web01","note":"a\nb"}"#, 422, "note"),
    ] {
        let answer = office.post("tokens", order).await;
        assert_eq!(answer.status, status, "{order}: {}", answer.text());
        assert_eq!(answer.json()["error"]["code"], "invalid", "{order}");
        let told = message(&answer);
        assert!(told.starts_with(named), "{order}: {told}");
    }
    // What was meant for another argument is not repeated.
    for member in [
        "certname",
        "glob",
        "note",
        "external_ref",
        "profile",
        "spki_sha256",
        token,
    ] {
        let order = json!({"certname": "web01", member: token});
        let answer = office.order(&order).await;
        assert_eq!(answer.status, 422, "{member}: {}", answer.text());
        assert!(!answer.text().contains(secret_of(token)), "{member}");
    }
    assert_eq!(office.get("tokens").await["items"], json!([]));
}

#[tokio::test]
async fn an_order_is_carried_out_once() {
    let office = Office::with_tokens().await;
    let order = json!({"certname": "web01"}).to_string();
    let send = |key: &'static str| {
        Call::new(&office.admin, "POST /enrol/v1/tokens")
            .header("idempotency-key", key)
            .body(order.as_str())
    };
    let first = send("order-1").send(&office.interface).await;
    assert_eq!(first.status, 201);
    let first = first.json();
    let again = send("order-1").send(&office.interface).await;
    assert_eq!(again.status, 409, "{}", again.text());
    assert_eq!(again.json()["id"], first["id"]);
    assert_eq!(again.json()["error"]["code"], "conflict");
    let token = first["token"].as_str().unwrap();
    assert!(!again.text().contains(secret_of(token)), "{}", again.text());
    assert_eq!(again.json().get("token"), None);
    let other = send("order-2").send(&office.interface).await;
    assert_eq!(other.status, 201);
    for call in [
        send(""),
        send("a b"),
        send("order-3").header("idempotency-key", "order-4"),
        send(Box::leak("x".repeat(256).into_boxed_str())),
        send(Box::leak(token.to_owned().into_boxed_str())),
    ] {
        let answer = call.send(&office.interface).await;
        assert_eq!(answer.status, 422, "{}", answer.text());
        assert!(message(&answer).starts_with("Idempotency-Key"));
    }
    // The second order took the first one's place.
    let listed = office.get("tokens").await;
    assert_eq!(column(&listed, "status"), ["active", "revoked"]);
    assert_eq!(listed["items"][1]["superseded_by"], other.json()["id"]);
}

#[tokio::test]
async fn where_tokens_are_not_in_use_that_is_said() {
    let office = Office::open().await;
    let said = "enrolment tokens are not enabled; set tokens.enabled: true in the configuration";
    for (path, body) in [("tokens", r#"{"certname":"web01"}"#), ("check", "")] {
        let answer = office.post(path, body).await;
        assert_eq!((answer.status, &*message(&answer)), (409, said), "{path}");
    }
    // What was minted before can still be looked at and taken back.
    office.world.use_tokens();
    let (id, _) = office.token("web01").await;
    let off = countersign_authority::TokenSettings::standard();
    office
        .world
        .authority
        .set_rules(office.world.authority.rules().with_tokens(off));
    assert_eq!(column(&office.get("tokens").await, "id"), [&*id]);
    let line = format!("DELETE /enrol/v1/tokens/{id}");
    assert_eq!(office.call(&line).await.status, 204);
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let office = Office::with_tokens().await;
    let mut names: Vec<String> = (0..5).map(|number| format!("web{number}.lab")).collect();
    for name in &names {
        let (_, token) = office.token(name).await;
        if name == "web1.lab" {
            let state = office.enrols(name, &token).await;
            assert_eq!(state, RequestState::Issued);
        }
    }
    let (revoked, _) = office.token("web9.lab").await;
    let line = format!("DELETE /enrol/v1/tokens/{revoked}");
    assert_eq!(office.call(&line).await.status, 204);
    names.reverse();
    let of = |page: &Value| -> Vec<String> {
        column(page, "certname")
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    let mut found = Vec::new();
    let mut path = "tokens?limit=2&status=active".to_owned();
    loop {
        let page = office.get(&path).await;
        assert!(page["items"].as_array().unwrap().len() <= 2);
        found.extend(of(&page));
        let Some(cursor) = page["cursor"].as_str() else {
            break;
        };
        path = format!("tokens?limit=2&status=active&cursor={cursor}");
    }
    names.retain(|name| name != "web1.lab");
    assert_eq!(found, names);
    for (query, expected) in [
        ("certname=WEB3.lab", &["web3.lab"][..]),
        ("certname=web", &[]),
        ("status=issued", &["web1.lab"]),
        ("status=revoked", &["web9.lab"]),
        ("status=locked", &[]),
        ("unused=false&certname=web1.lab", &["web1.lab"]),
        ("unused=true&certname=web1.lab", &[]),
        (
            "unused=true&status=active",
            &["web4.lab", "web3.lab", "web2.lab", "web0.lab"],
        ),
    ] {
        let page = office.get(&format!("tokens?{query}")).await;
        assert_eq!(of(&page), expected, "{query}");
    }
    for query in [
        "status=fresh",
        "unused=perhaps",
        "limit=0",
        "cursor=x",
        "name=web1",
    ] {
        let line = format!("GET /enrol/v1/tokens?{query}");
        assert_eq!(office.call(&line).await.status, 400, "{query}");
    }
}

#[tokio::test]
async fn tokens_are_taken_back_once_and_for_all() {
    let office = Office::with_tokens().await;
    let (id, token) = office.token("web01").await;
    let line = format!("DELETE /enrol/v1/tokens/{id}");
    for _ in 0..2 {
        let answer = office.call(&line).await;
        assert_eq!((answer.status, answer.text()), (204, ""));
    }
    assert_eq!(
        office.get(&format!("tokens/{id}")).await["status"],
        "revoked"
    );
    assert_eq!(office.enrols("web01", &token).await, RequestState::Denied);
    // Whoever takes the whole token for its id is not told it again, nor is the log.
    for unknown in [
        "aaaqeayeaudaocaj",
        "nonsense",
        &token,
        &token.to_uppercase(),
    ] {
        for line in [
            format!("GET /enrol/v1/tokens/{unknown}"),
            format!("DELETE /enrol/v1/tokens/{unknown}"),
            format!("DELETE /enrol/v1/tokens/{unknown}?revoke_certificates=true"),
            format!("POST /enrol/v1/tokens/{unknown}/release"),
            format!("GET /enrol/v1/machines/{unknown}"),
            format!("GET /enrol/v1/requests/puppet/{unknown}"),
            format!("GET /enrol/v1/windows/{unknown}"),
            format!("PUT /enrol/v1/windows/{unknown}"),
        ] {
            let answer = office.call(&line).await;
            assert!(
                matches!(answer.status, 400 | 404) || line.starts_with("PUT"),
                "{line}"
            );
            let told = answer.text().to_lowercase();
            assert!(!told.contains(secret_of(&token)), "{line}");
        }
    }
}

#[tokio::test]
async fn the_certificates_of_a_token_go_with_it_if_that_is_asked_for() {
    let office = Office::with_tokens().await;
    for (query, revoked) in [("", false), ("?revoke_certificates=true", true)] {
        let name = format!("web{}", query.len());
        let (id, token) = office.token(&name).await;
        assert_eq!(office.enrols(&name, &token).await, RequestState::Issued);
        let line = format!("DELETE /enrol/v1/tokens/{id}{query}");
        assert_eq!(office.call(&line).await.status, 204);
        let request = office.get(&format!("requests/puppet/{name}")).await;
        let certificate = &request["certificate"];
        assert_eq!(!certificate["revoked"].is_null(), revoked, "{certificate}");
    }
}

/// A use that was written down, and whose certificate nobody signed.
#[tokio::test]
async fn a_use_without_a_certificate_is_released() {
    let office = Office::with_tokens().await;
    let (id, token) = office.token("web01").await;
    let release = format!("POST /enrol/v1/tokens/{id}/release");
    let unused = office.call(&release).await;
    assert_eq!(unused.status, 409, "{}", unused.text());
    office.reserve(&id, "web01").await;
    assert_eq!(
        office.get(&format!("tokens/{id}")).await["status"],
        "reserved"
    );
    assert_eq!(office.enrols("web01", &token).await, RequestState::Denied);
    assert_eq!(office.call(&release).await.status, 204);
    assert_eq!(
        office.get(&format!("tokens/{id}")).await["status"],
        "active"
    );
    assert_eq!(office.enrols("web01", &token).await, RequestState::Issued);
    let issued = office.call(&release).await;
    assert_eq!(issued.status, 409, "{}", issued.text());
}

#[tokio::test]
async fn a_check_says_what_would_happen_and_changes_nothing() {
    let office = Office::with_tokens().await;
    let (id, token) = office.token("web01").await;
    let (bound, from_net) = {
        let order = TokenOrder {
            source_cidrs: vec!["198.51.100.0/24".to_owned()],
            ..TokenOrder::bound(TokenBinding::Exact("web02".to_owned()))
        };
        let minted = office.world.mint(order).await;
        (
            minted.record.id.to_string(),
            minted.token.expose().to_owned(),
        )
    };
    let csr = |name: &str, token: &str| CsrBuilder::new(name).challenge_password(token);
    let pem = |csr: CsrBuilder| csr.sign_pem(keys::p256_a());
    let unknown =
        "ott1.aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q.zqthxay";
    let flawed = csr("web01", &token).flaw(SignatureFlaw::FlippedBit);
    let net = "?source=198.51.100.7";
    for (query, csr, allows, reason, of) in [
        ("", pem(csr("web01", &token)), true, "token", Some(&*id)),
        (
            "",
            pem(csr("web02", &token)),
            false,
            "token_certname_mismatch",
            Some(&id),
        ),
        (
            "",
            pem(csr("web02", &from_net)),
            false,
            "token_source_not_allowed",
            Some(&bound),
        ),
        (
            net,
            pem(csr("web02", &from_net)),
            true,
            "token",
            Some(&bound),
        ),
        (
            "",
            pem(csr("web01", unknown)),
            false,
            "token_unknown",
            Some("aaaqeayeaudaocaj"),
        ),
        (
            "",
            pem(csr("web01", "hunter2")),
            false,
            "token_malformed",
            None,
        ),
        (
            "",
            pem(CsrBuilder::new("web01")),
            false,
            "token_missing",
            None,
        ),
        ("", pem(flawed), false, "csr_signature_invalid", None),
        (
            "",
            pem(CsrBuilder::without_subject()),
            false,
            "csr_subject_mismatch",
            None,
        ),
        ("", "garbage".to_owned(), false, "csr_malformed", None),
    ] {
        let answer = office.check(query, &csr).await;
        assert_eq!(answer.status, 200, "{reason}: {}", answer.text());
        let told = answer.json();
        assert_eq!(
            (&told["would_allow"], &told["reason"], &told["token_id"]),
            (&json!(allows), &json!(reason), &json!(of)),
            "{told}"
        );
        assert!(!answer.text().contains(secret_of(&token)));
        assert!(!answer.text().contains(secret_of(unknown)));
    }
    for query in ["?signer=puppet", "?source=here", "?colour=red"] {
        assert_eq!(office.check(query, "").await.status, 400, "{query}");
    }
    let shown = office.get(&format!("tokens/{id}")).await;
    assert_eq!(
        (&shown["uses"], &shown["failed_uses"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(office.get("rejections").await["items"], json!([]));
    assert_eq!(office.enrols("web01", &token).await, RequestState::Issued);
    let again = office.check("", &pem(csr("web01", &token))).await;
    assert_eq!(again.json()["would_allow"], true, "{}", again.text());
}

#[tokio::test]
async fn wrong_tokens_in_checks_count() {
    let limits = RequestLimits::new(RequestRates {
        token_failures: 3,
        ..RequestRates::STANDARD
    });
    let office = Office::within(limits).await;
    office.world.use_tokens();
    let (_, token) = office.token("web01").await;
    let ask = |name: &'static str, key: &'static Key| {
        let csr = CsrBuilder::new(name).challenge_password(&token);
        csr.sign_pem(key)
    };
    for _ in 0..3 {
        let wrong = office.check("", &ask("web02", keys::p256_a())).await;
        assert_eq!(wrong.json()["would_allow"], false);
    }
    let over = office.check("", &ask("web01", keys::p256_a())).await;
    assert_eq!(over.status, 429, "{}", over.text());
    assert_eq!(over.json()["error"]["code"], "too_many");
    assert_eq!(over.header("retry-after"), Some("200"));
    office.world.clock.advance(200);
    let later = office.check("", &ask("web01", keys::p256_a())).await;
    assert_eq!(later.json()["would_allow"], true);
}

/// Whoever runs the external side sees what was turned away, by whom and with which token.
#[tokio::test]
async fn rejections_name_the_token() {
    let office = Office::with_tokens().await;
    let (id, token) = office.token("web01").await;
    assert_eq!(office.enrols("web02", &token).await, RequestState::Denied);
    assert_eq!(
        office.enrols("web03", "hunter2").await,
        RequestState::Denied
    );
    assert_eq!(office.agent("web04").await, RequestState::Pending);
    let key = fingerprint_sha256(keys::p256_a().spki_der()).to_hex();
    let found = office.get("rejections").await;
    let found: Vec<Value> = found["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            json!([
                item["certname"],
                item["state"],
                item["reason"],
                item["token_id"],
                item["source"],
                item["spki_sha256"],
            ])
        })
        .collect();
    assert_eq!(
        found,
        [
            json!(["web04", "pending", "token_missing", null, "192.0.2.9", key]),
            json!(["web03", "denied", "token_malformed", null, "192.0.2.9", key]),
            json!([
                "web02",
                "denied",
                "token_certname_mismatch",
                id,
                "192.0.2.9",
                key
            ]),
        ]
    );
    let filtered = office.get("rejections?reason=token_missing").await;
    assert_eq!(column(&filtered, "certname"), ["web04"]);
    let request = office.get("requests/puppet/web02").await;
    assert_eq!(request["token_id"], id);
}
