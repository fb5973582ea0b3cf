//! The native interface.

mod audit;
mod bootstrap_tokens;
mod inventory;
mod policy;
mod signing_policies;
mod tokens;

use axum::Router;
use countersign_authority::{RequestState, Submission, Submitted};
use countersign_pki::{CheckedCsr, CsrLimits};
use countersign_policy::{Requester, Wishes};
use countersign_server::enrol::{EnrolDoor, PolicyState, router};
use countersign_server::puppet::{self, PuppetDoor};
use countersign_server::{Peer, RequestLimits, RequestRates};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use serde_json::{Value, json};

use crate::exchange::{Answer, Call};
use crate::world::{
    CUSTOM, KUBE_CLIENT, KUBERNETES_ADMIN, PUPPET_ADMIN, PUPPET_AGENT, START, Setup, World,
    door_named, signer_name,
};

pub(crate) struct Office {
    pub(crate) world: World,
    pub(crate) interface: Router,
    pub(crate) admin: Peer,
    pub(crate) policy: PolicyState,
}

impl Office {
    pub(crate) async fn open() -> Self {
        Self::within(RequestLimits::new(RequestRates::STANDARD)).await
    }

    pub(crate) async fn within(limits: RequestLimits) -> Self {
        let world = World::start(Setup::STRICT).await;
        let issuer = world.puppet_issuer();
        let policy = PolicyState::default();
        let native = EnrolDoor::new(world.authority.clone(), issuer.clone())
            .with_administrators(signer_name(PUPPET_ADMIN))
            .with_kubernetes_users(signer_name(KUBERNETES_ADMIN), world.kubernetes_issuer())
            .with_limits(limits)
            .with_policy(policy.clone());
        let native = router(native);
        let signer = signer_name(PUPPET_AGENT);
        let beside = PuppetDoor::new(world.authority.clone(), issuer, signer, START).unwrap();
        let admin = world.puppet_admin().await;
        // As the program serves them: both on one listener.
        Self {
            interface: puppet::router(beside).merge(native),
            admin,
            policy,
            world,
        }
    }

    pub(crate) async fn call(&self, line: &str) -> Answer {
        Call::new(&self.admin, line).send(&self.interface).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.send("POST", path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, &body.to_string()).await
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        Call::new(&self.admin, &format!("{method} /enrol/v1/{path}"))
            .body(body)
            .send(&self.interface)
            .await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = self.call(&format!("GET /enrol/v1/{path}")).await;
        assert_eq!(
            (answer.status, answer.content_type()),
            (200, "application/json"),
            "{}",
            answer.text()
        );
        answer.json()
    }

    /// Hands a request in, as the door of that name would.
    pub(crate) async fn submit(
        &self,
        door: &'static str,
        key: &str,
        signer: &str,
        csr: &CsrBuilder,
        usages: &[&str],
    ) -> Submitted {
        let usages = usages.iter().map(|usage| (*usage).to_owned()).collect();
        let submission = Submission {
            door: door_named(door),
            key: key.to_owned(),
            csr: CheckedCsr::check(&csr.sign(keys::p256_a()), &CsrLimits::STANDARD).unwrap(),
            signer: signer_name(signer),
            requester: Requester::anonymous(Some("192.0.2.9".parse().unwrap())),
            wishes: Wishes {
                usages,
                expiration_seconds: Some(3600),
            },
            attachment: Vec::new(),
            bearer: None,
            decision: None,
        };
        self.world
            .authority
            .requests
            .submit(submission)
            .await
            .unwrap()
    }

    pub(crate) async fn agent(&self, name: &str) -> RequestState {
        let csr = CsrBuilder::new(name);
        let submitted = self.submit("puppet", name, PUPPET_AGENT, &csr, &[]);
        submitted.await.state
    }
}

fn column<'a>(page: &'a Value, field: &str) -> Vec<&'a str> {
    page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item[field].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn only_administrators_are_let_in() {
    let office = Office::open().await;
    office.agent("web01").await;
    let agent = office.world.puppet_agent("web02").await;
    let marked = office.world.as_if_signed_by(PUPPET_AGENT, &office.admin);
    let unmarked = office.world.as_if_signed_by(PUPPET_ADMIN, &agent);
    let callers = [
        (office.world.anonymous(), 401, "unauthenticated"),
        (agent, 403, "forbidden"),
        (marked, 403, "forbidden"),
        (unmarked, 403, "forbidden"),
        (office.world.kubernetes_admin().await, 403, "forbidden"),
    ];
    for line in [
        "GET /enrol/v1/requests",
        "POST /enrol/v1/requests",
        "GET /enrol/v1/requests/puppet/web01",
        "POST /enrol/v1/requests/puppet/web01/approve",
        "POST /enrol/v1/requests/puppet/web01/deny",
        "DELETE /enrol/v1/requests/puppet/web01",
        "GET /enrol/v1/certificates",
        "POST /enrol/v1/certificates/puppet/01/revoke",
        "GET /enrol/v1/machines",
        "POST /enrol/v1/machines",
        "GET /enrol/v1/machines/web01",
        "PUT /enrol/v1/machines/web01",
        "DELETE /enrol/v1/machines/web01",
        "POST /enrol/v1/machine-imports",
        "GET /enrol/v1/windows",
        "GET /enrol/v1/windows/web01",
        "PUT /enrol/v1/windows/web01",
        "DELETE /enrol/v1/windows/web01",
        "GET /enrol/v1/policy",
        "GET /enrol/v1/policy/1",
        "GET /enrol/v1/signing-policies",
        "PUT /enrol/v1/signing-policies/puppet/production",
        "DELETE /enrol/v1/signing-policies/puppet/production",
        "GET /enrol/v1/rejections",
        "GET /enrol/v1/decisions",
        "GET /enrol/v1/audit",
        "GET /enrol/v1/audit/seals",
        "GET /enrol/v1/audit/reconciliation",
        "GET /enrol/v1/audit/checkpoint",
        "GET /enrol/v1/nothing",
        "PATCH /enrol/v1/requests",
    ] {
        for (peer, status, code) in &callers {
            let answer = Call::new(peer, line).send(&office.interface).await;
            assert_eq!(
                (answer.status, answer.json()["error"]["code"].as_str()),
                (*status, Some(*code)),
                "{line}"
            );
        }
    }
    let untouched = office.get("requests/puppet/web01").await;
    assert_eq!(untouched["state"], "pending");
    // Every other path on the listener belongs to the Puppet door, however it is spelt.
    assert_eq!(office.call("GET //enrol/v1/requests").await.status, 403);
    assert_eq!(office.call("GET /enrol/v2/requests").await.status, 403);
    for (line, status, code) in [
        ("GET /enrol/v1/nothing", 404, "not_found"),
        ("PATCH /enrol/v1/requests", 405, "method_not_allowed"),
    ] {
        let answer = office.call(line).await;
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_str()),
            (status, Some(code)),
            "{line}"
        );
    }
}

#[tokio::test]
async fn a_request_is_shown_without_its_attributes() {
    let office = Office::open().await;
    let csr = CsrBuilder::new("web01")
        .organization("Fleet")
        .dns("b.example.com")
        .ip("2001:db8::1".parse().unwrap())
        .email("root@example.com")
        .uri("spiffe://example.com/x")
        .challenge_password("correct-horse-battery-staple");
    office
        .submit("puppet", "web01", PUPPET_AGENT, &csr, &[])
        .await;
    let shown = office.get("requests/puppet/web01").await;
    let id = shown["id"].as_str().unwrap();
    assert!(
        countersign_authority::RequestId::parse(id).is_some(),
        "{id}"
    );
    for (field, expected) in [
        ("door", json!("puppet")),
        ("name", json!("web01")),
        ("state", json!("pending")),
        ("live", json!(true)),
        ("signer", json!(PUPPET_AGENT)),
        (
            "requester",
            json!({"identity": {"kind": "anonymous"}, "source": "192.0.2.9"}),
        ),
        ("created", json!("2026-01-02T03:04:05Z")),
        ("subject", json!("O=Fleet,CN=web01")),
        ("dns_names", json!(["b.example.com"])),
        ("ip_addresses", json!(["2001:db8::1"])),
        ("emails", json!(["root@example.com"])),
        ("uris", json!(["spiffe://example.com/x"])),
        ("usages", json!([])),
        ("expiration_seconds", json!(3600)),
        ("key_type", json!("ec")),
        ("key_size", json!(256)),
        ("certificate", json!(null)),
    ] {
        assert_eq!(shown[field], expected, "{field}");
    }
    assert_eq!(shown["explanation"]["effect"], "pending");
    assert!(
        shown["unsignable"]
            .as_str()
            .unwrap()
            .contains("alternative names")
    );
    assert!(
        shown["csr"]
            .as_str()
            .unwrap()
            .starts_with("-----BEGIN CERTIFICATE REQUEST-----\n")
    );
    assert!(shown["key_fingerprint"].as_str().unwrap().contains(':'));
    let listed = office.call("GET /enrol/v1/requests").await;
    assert!(listed.json()["items"][0].get("csr").is_none());
    assert!(!listed.text().contains("correct-horse"));
    assert!(!shown.to_string().contains("correct-horse"));
    assert_eq!(listed.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_listed_as_such_and_can_be_deleted() {
    let office = Office::open().await;
    office.agent("web01").await;
    office.world.damage_request("web01").await;
    let listed = office.get("requests").await;
    let items = listed["items"].as_array().unwrap();
    let item = items.iter().find(|item| item["name"] == "web01").unwrap();
    let shown = office.get("requests/puppet/web01").await;
    for item in [item, &shown] {
        assert!(item["unreadable"].is_string(), "{item}");
        assert_eq!(
            (&item["state"], &item["key_type"]),
            (&json!("pending"), &json!("unknown"))
        );
        assert_eq!(
            (&item["subject"], &item["key_size"]),
            (&json!(""), &json!(0))
        );
    }
    let decisions = office.get("decisions?name=web01").await;
    assert_eq!(decisions["items"][0]["csr"], "");
    for act in ["approve", "deny"] {
        let refused = office
            .post(&format!("requests/puppet/web01/{act}"), "{}")
            .await;
        assert_eq!(refused.status, 409, "{}", refused.text());
        assert!(refused.text().contains("delete it"), "{}", refused.text());
    }
    let deleted = office.call("DELETE /enrol/v1/requests/puppet/web01").await;
    assert_eq!(deleted.status, 204, "{}", deleted.text());
    assert_eq!(office.agent("web01").await, RequestState::Pending);
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let office = Office::open().await;
    for name in ["a", "b", "c", "d", "e"] {
        office.agent(name).await;
    }
    let client = CsrBuilder::new("jane");
    office
        .submit("kubernetes", "jane", KUBE_CLIENT, &client, &["client auth"])
        .await;
    assert_eq!(
        office
            .post("requests/puppet/b/deny", r#"{"reason":"no"}"#)
            .await
            .status,
        200
    );
    assert_eq!(
        office.post("requests/puppet/c/approve", "").await.status,
        200
    );

    for (query, names) in [
        // The issued one no longer occupies its name.
        ("", &["jane", "a", "b", "d", "e"][..]),
        ("?door=puppet", &["a", "b", "d", "e"]),
        ("?door=puppet&past=true", &["a", "b", "c", "d", "e"]),
        ("?state=denied", &["b"]),
        ("?state=issued", &[]),
        ("?state=issued&past=true&door=puppet", &["c"]),
        ("?state=pending,denied&door=puppet", &["a", "b", "d", "e"]),
        ("?name=jane", &["jane"]),
        ("?name=jane&door=puppet", &[]),
        ("?door=none", &[]),
    ] {
        let page = office.get(&format!("requests{query}")).await;
        assert_eq!(column(&page, "name"), names, "{query}");
        assert!(page.get("cursor").is_none(), "{query}");
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = office.get(&format!("requests?limit=2{cursor}")).await;
        seen.extend(column(&page, "name").into_iter().map(str::to_owned));
        match page.get("cursor") {
            Some(next) => cursor = format!("&cursor={}", next.as_str().unwrap()),
            None => break,
        }
    }
    assert_eq!(seen, ["jane", "a", "b", "d", "e"]);
    for query in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "state=bogus",
        "state=",
        "state=pending,",
        "cursor=!",
        "cursor=e30",
        "past=maybe",
        "stat=pending",
    ] {
        let answer = office
            .call(&format!("GET /enrol/v1/requests?{query}"))
            .await;
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_str()),
            (400, Some("invalid")),
            "{query}"
        );
    }
}

#[tokio::test]
async fn people_decide() {
    let office = Office::open().await;
    office.agent("web01").await;
    let body = r#"{"reason":"ticket 7","lifetime_seconds":600}"#;
    let approved = office.post("requests/puppet/web01/approve", body).await;
    assert_eq!(approved.status, 200, "{}", approved.text());
    let item = approved.json();
    assert_eq!(
        (item["state"].as_str(), item["live"].as_bool()),
        (Some("issued"), Some(false))
    );
    assert_eq!(item["certificate"]["issuer"], "puppet");
    assert_eq!(item["certificate"]["not_after"], "2026-01-02T03:14:05Z");
    assert_eq!(item["certificate"]["revoked"], json!(null));
    assert_eq!(item["explanation"]["by"]["reason"], "ticket 7");
    assert_eq!(
        item["explanation"]["by"]["actor"]["identity"]["certname"],
        "countersign-admin"
    );
    // It is found as the newest of its name, though it occupies it no longer.
    assert_eq!(office.get("requests/puppet/web01").await["state"], "issued");

    office.agent("web02").await;
    let denied = office
        .post("requests/puppet/web02/deny", r#"{"reason":"not ours"}"#)
        .await;
    assert_eq!(
        (denied.status, denied.json()["state"].as_str()),
        (200, Some("denied"))
    );
    for (path, body, status, code) in [
        ("requests/puppet/web02/approve", "", 409, "conflict"),
        ("requests/puppet/web01/approve", "", 409, "conflict"),
        ("requests/puppet/web01/deny", "", 409, "conflict"),
        ("requests/puppet/nobody/approve", "", 404, "not_found"),
        ("requests/puppet/nobody/deny", "", 404, "not_found"),
        ("requests/none/web02/deny", "", 404, "not_found"),
        (
            "requests/puppet/web02/deny",
            r#"{"why":"x"}"#,
            400,
            "invalid",
        ),
        (
            "requests/puppet/web02/approve",
            r#"{"lifetime_seconds":0}"#,
            400,
            "invalid",
        ),
        (
            "requests/puppet/web02/approve",
            r#"{"lifetime_seconds":"1d"}"#,
            400,
            "invalid",
        ),
        ("requests/puppet/web02/approve", "nonsense", 400, "invalid"),
        ("requests/puppet/web02/approve", "[]", 400, "invalid"),
        ("requests/puppet/web02/deny", r#" ["no"]"#, 400, "invalid"),
        ("requests/puppet/web02/deny", "\r\n", 400, "invalid"),
    ] {
        let answer = office.post(path, body).await;
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_str()),
            (status, Some(code)),
            "{path} {body}"
        );
    }
    for (line, sentence) in [
        (
            "POST /enrol/v1/requests/puppet/web01/approve",
            "request web01 is issued already",
        ),
        (
            "POST /enrol/v1/requests/puppet/web02/approve",
            "request web02 is denied already; `countersign csr delete web02` lets it ask again",
        ),
        (
            "DELETE /enrol/v1/requests/puppet/web01",
            "request web01 is issued and no longer holds its name; `countersign ca clean --certname web01` revokes and \
             forgets its certificate",
        ),
    ] {
        let answer = office.call(line).await;
        assert_eq!(
            (answer.status, answer.json()["error"]["message"].as_str()),
            (409, Some(sentence)),
            "{line}"
        );
    }
    let long = format!("{{\"reason\":\"{}\"}}", "x".repeat(1025));
    assert_eq!(
        office
            .post("requests/puppet/web02/deny", &long)
            .await
            .status,
        400
    );
    let longer = " ".repeat(16 * 1024 + 1);
    assert_eq!(
        office
            .post("requests/puppet/web02/deny", &longer)
            .await
            .status,
        413
    );

    assert_eq!(
        office
            .call("DELETE /enrol/v1/requests/puppet/web02")
            .await
            .status,
        204
    );
    assert_eq!(
        office
            .call("DELETE /enrol/v1/requests/puppet/web02")
            .await
            .status,
        404
    );
    assert_eq!(
        office
            .call("GET /enrol/v1/requests/puppet/web02")
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn what_cannot_be_signed_is_refused_or_marked() {
    let office = Office::open().await;
    let wide = CsrBuilder::new("web01").dns("other.example.com");
    office
        .submit("puppet", "web01", PUPPET_AGENT, &wide, &[])
        .await;
    let refused = office.post("requests/puppet/web01/approve", "").await;
    assert_eq!(
        (refused.status, refused.json()["error"]["code"].as_str()),
        (409, Some("unsignable"))
    );
    assert_eq!(
        office.get("requests/puppet/web01").await["state"],
        "pending"
    );

    let client = CsrBuilder::new("vpn");
    office
        .submit("kubernetes", "vpn", CUSTOM, &client, &["client auth"])
        .await;
    let marked = office.post("requests/kubernetes/vpn/approve", "").await;
    assert_eq!(
        (marked.status, marked.json()["state"].as_str()),
        (200, Some("failed"))
    );
    assert!(
        marked.json()["unsignable"]
            .as_str()
            .unwrap()
            .contains("client auth")
    );
    assert_eq!(marked.json()["certificate"], json!(null));
}

#[tokio::test]
async fn administrators_make_administrators_and_nothing_else() {
    let office = Office::open().await;
    office.agent("web01").await;
    office.world.puppet_agent("web02").await;
    let csr = |name: &str| CsrBuilder::new(name).sign_pem(keys::p256_b());
    let asked = |name: &str, signer: &str, csr: &str| json!({"name": name, "signer": signer, "csr": csr, "reason": "ticket 1"});
    let marked = CsrBuilder::new("adm")
        .dns("*.example.com")
        .sign_pem(keys::p256_b());
    let ten = asked("adm", PUPPET_ADMIN, &csr("adm"));
    let with = |field: &str, value: Value| {
        let mut body = ten.clone();
        body[field] = value;
        body
    };
    for (body, status, part) in [
        (json!({}), 400, "missing field"),
        (with("names", json!("x")), 400, "unknown field"),
        (with("lifetime_seconds", json!(0)), 400, "at least 1"),
        (with("reason", json!("x".repeat(2000))), 400, "1024"),
        (asked("adm", PUPPET_AGENT, &csr("adm")), 400, "signer"),
        (asked("adm", CUSTOM, &csr("adm")), 400, "signer"),
        (asked("adm", "none", &csr("adm")), 400, "signer"),
        (asked("Adm", PUPPET_ADMIN, &csr("Adm")), 400, "lower case"),
        (
            asked("adm", PUPPET_ADMIN, &csr("other")),
            400,
            "common name",
        ),
        (asked("adm", PUPPET_ADMIN, "no request"), 400, "csr"),
        (asked("adm", PUPPET_ADMIN, &marked), 409, "cannot be signed"),
        (asked("web01", PUPPET_ADMIN, &csr("web01")), 409, "already"),
        (asked("web02", PUPPET_ADMIN, &csr("web02")), 409, "already"),
    ] {
        let answer = office.post("requests", &body.to_string()).await;
        let said = answer.json()["error"]["message"].to_string();
        assert_eq!(answer.status, status, "{body}: {said}");
        assert!(said.contains(part), "{body}: {said}");
    }
    let answer = office.post("requests", &ten.to_string()).await;
    let made = answer.json();
    assert_eq!(answer.status, 201, "{made}");
    assert_eq!(
        (&made["state"], &made["signer"], &made["door"]),
        (&json!("issued"), &json!(PUPPET_ADMIN), &json!("local"))
    );
    let by = &made["explanation"]["by"];
    assert_eq!(by["reason"], "ticket 1");
    assert!(by["actor"].to_string().contains("certname"), "{by}");
    let again = office.post("requests", &ten.to_string()).await;
    assert_eq!(again.status, 409, "{}", again.text());
}

#[tokio::test]
async fn the_ledger_is_listed_and_certificates_are_revoked() {
    let office = Office::open().await;
    for name in ["a", "b"] {
        office.agent(name).await;
        office
            .post(&format!("requests/puppet/{name}/approve"), "")
            .await;
    }
    office.world.kubernetes_admin().await;
    let all = office.get("certificates").await;
    assert_eq!(
        column(&all, "name"),
        ["kubernetes-admin", "a", "b", "countersign-admin"]
    );
    assert_eq!(
        column(&all, "issuer"),
        ["kubernetes", "puppet", "puppet", "puppet"]
    );
    assert_eq!(
        column(
            &office.get("certificates?issuer=puppet&name=b").await,
            "name"
        ),
        ["b"]
    );
    assert_eq!(
        column(&office.get("certificates?name=nobody").await, "name"),
        [""; 0]
    );
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = office.get(&format!("certificates?limit=1{cursor}")).await;
        seen.extend(column(&page, "name").into_iter().map(str::to_owned));
        match page.get("cursor") {
            Some(next) => cursor = format!("&cursor={}", next.as_str().unwrap()),
            None => break,
        }
    }
    assert_eq!(seen, ["kubernetes-admin", "a", "b", "countersign-admin"]);

    let serial = column(&office.get("certificates?name=a").await, "serial")[0].to_owned();
    let one = office.get(&format!("certificates/puppet/{serial}")).await;
    assert!(
        one["certificate"]
            .as_str()
            .unwrap()
            .starts_with("-----BEGIN CERTIFICATE-----\n")
    );
    assert_eq!(one["explanation"]["effect"], "approve");
    let revoke = format!("certificates/puppet/{serial}/revoke");
    for (path, body, status) in [
        (revoke.as_str(), r#"{"reason":"bored"}"#, 400),
        (revoke.as_str(), r#"{"reason":"certificateHold"}"#, 400),
        ("certificates/puppet/xyz/revoke", "", 400),
        ("certificates/puppet/0123/revoke", "", 404),
        ("certificates/other/0123/revoke", "", 404),
    ] {
        assert_eq!(
            office.post(path, body).await.status,
            status,
            "{path} {body}"
        );
    }
    office.world.clock.advance(60);
    for body in [r#"{"reason":"superseded"}"#, ""] {
        let revoked = office.post(&revoke, body).await;
        assert_eq!(revoked.status, 200, "{}", revoked.text());
        // The first revocation stands.
        let expected = json!({"at": "2026-01-02T03:05:05Z", "reason": "superseded"});
        assert_eq!(revoked.json()["revoked"], expected);
        office.world.clock.advance(60);
    }
    assert_eq!(
        office.get("requests/puppet/a").await["certificate"]["revoked"]["reason"],
        "superseded"
    );
    // The other trust domain's serial is not this issuer's.
    let foreign = column(&all, "serial")[0];
    assert_eq!(
        office
            .post(&format!("certificates/puppet/{foreign}/revoke"), "")
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn the_certificates_of_one_name_end() {
    let office = Office::open().await;
    let request = CsrBuilder::new("web01");
    office.world.client(PUPPET_AGENT, "web01", &request).await;
    office.world.client(KUBE_CLIENT, "web01", &request).await;
    let mut seen = Vec::new();
    let mut cursor = String::new();
    for _ in 0..3 {
        let path = format!("certificates?name=web01&limit=1{cursor}");
        let page = office.get(&path).await;
        seen.extend(column(&page, "issuer").into_iter().map(str::to_owned));
        match page.get("cursor") {
            Some(next) => cursor = format!("&cursor={}", next.as_str().unwrap()),
            None => {
                assert_eq!(seen, ["kubernetes", "puppet"]);
                return;
            }
        }
    }
    panic!("the list does not end: {seen:?}");
}
