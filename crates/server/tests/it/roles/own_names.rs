//! The names of the authority's servers and administrators are for administrators alone, one at a time and in bulk.

use countersign_authority::{AuditEntry, RequestState, Revision};
use countersign_server::Peer;
use countersign_testkit::csr::CsrBuilder;
use serde_json::{Value, json};

use super::{Site, V1};
use crate::exchange::Answer;
use crate::world::{KUBE_CLIENT, PUPPET_ADMIN};

const SIGNED: &str = r#"{"desired_state":"signed"}"#;
const REVOKED: &str = r#"{"desired_state":"revoked"}"#;

impl Site {
    /// Requests that wait: an ordinary one, the server's name, its name beside another.
    async fn waiting_for_own_names(&self) {
        self.wait("web01.lab").await;
        self.wait("ca.example.com").await;
        let csr = CsrBuilder::new("web02.lab")
            .dns("web02.lab")
            .dns("CA.example.com");
        self.ask(&csr, "web02.lab").await;
    }

    async fn refusals(&self) -> Vec<AuditEntry> {
        let entries = self
            .world
            .authority
            .audit
            .after(Revision::default(), 1000)
            .await;
        let entries = entries.unwrap().into_iter().map(|(_, entry)| entry);
        entries.filter(|entry| entry.action == "refuse").collect()
    }

    async fn is_revoked(&self, name: &str) -> bool {
        let authority = &self.world.authority;
        let issuer = self.world.puppet_issuer();
        let newest = authority.ledger.newest(&issuer, name).await.unwrap();
        newest.unwrap().revoked.is_some()
    }

    async fn serial_of(&self, peer: &Peer, issuer: &str, name: &str) -> String {
        let line = format!("GET /enrol/v1/certificates?issuer={issuer}&name={name}");
        let list = self.at_puppet(peer, &line, "").await.json();
        let serial = list.pointer("/items/0/serial");
        serial.and_then(Value::as_str).unwrap().to_owned()
    }
}

/// What the Puppet door says to whoever is no administrator.
fn assert_forbidden(answer: &Answer, line: &str, name: &str) {
    assert_eq!(answer.status, 403, "{line}: {}", answer.text());
    let said = format!("This call needs the role admin for {name}.");
    assert!(answer.text().ends_with(&said), "{line}: {}", answer.text());
}

#[tokio::test]
async fn at_the_puppet_door_own_names_need_an_administrator() {
    let site = Site::open().await;
    let signer = site.world.puppet_agent("signer").await;
    let admin = site.world.puppet_admin().await;
    site.waiting_for_own_names().await;
    for name in ["ca.example.com", "web02.lab"] {
        let line = format!("PUT {V1}/certificate_status/{name}");
        let answer = site.at_puppet(&signer, &line, SIGNED).await;
        assert_forbidden(&answer, &line, "ca.example.com");
        for what in ["certificate_request", "certificate_status"] {
            let line = format!("DELETE {V1}/{what}/{name}");
            let answer = site.at_puppet(&signer, &line, "").await;
            assert_forbidden(&answer, &line, "ca.example.com");
        }
    }
    let names = json!({"certnames": ["ca.example.com", "web02.lab", "absent"]}).to_string();
    let line = format!("POST {V1}/sign");
    let answer = site.at_puppet(&signer, &line, &names).await.json();
    assert_eq!(answer["signed"], json!([]));
    assert_eq!(answer["no-csr"], json!(["absent"]));
    assert_eq!(
        answer["signing-errors"],
        json!(["ca.example.com", "web02.lab"])
    );
    let line = format!("POST {V1}/sign/all");
    let answer = site.at_puppet(&signer, &line, "").await.json();
    assert_eq!(answer["signed"], json!(["web01.lab"]));
    assert_eq!(
        answer["signing-errors"],
        json!(["ca.example.com", "web02.lab"])
    );
    let refusals = site.refusals().await;
    assert_eq!(refusals.len(), 10, "{refusals:?}");
    assert!(refusals.iter().all(|entry| entry.actor_name() == "signer"));
    let answer = site.at_puppet(&admin, &line, "").await.json();
    assert_eq!(answer["signed"], json!(["ca.example.com", "web02.lab"]));

    // Now they have certificates, beside the administrator's.
    let line = format!("PUT {V1}/clean");
    for name in ["ca.example.com", "web02.lab", "countersign-admin", "boss"] {
        let named = match name {
            "web02.lab" => "ca.example.com",
            other => other,
        };
        if name == "boss" {
            site.world.puppet_agent("boss").await;
        }
        let status = format!("PUT {V1}/certificate_status/{name}");
        let answer = site.at_puppet(&signer, &status, REVOKED).await;
        assert_forbidden(&answer, &status, named);
        let status = format!("DELETE {V1}/certificate_status/{name}");
        let answer = site.at_puppet(&signer, &status, "").await;
        assert_forbidden(&answer, &status, named);
        // One name too many, and nothing is done.
        let names = json!({"certnames": ["web01.lab", name]}).to_string();
        let answer = site.at_puppet(&signer, &line, &names).await;
        assert_forbidden(&answer, &line, named);
        assert!(!site.is_revoked(name).await, "{name}");
        assert!(!site.is_revoked("web01.lab").await, "{name}");
    }
    let names = json!({"certnames": ["web01.lab"]}).to_string();
    assert_eq!(site.at_puppet(&signer, &line, &names).await.status, 200);
    let names = json!({"certnames": ["ca.example.com", "boss"]}).to_string();
    let line = format!("{line}?force=true");
    assert_eq!(site.at_puppet(&admin, &line, &names).await.status, 200);
}

/// A list of hosts to be cleaned may have the server's name on it.
#[tokio::test]
async fn administrators_end_own_names_only_by_force() {
    let site = Site::open().await;
    let admin = site.world.puppet_admin().await;
    site.waiting_for_own_names().await;
    // What only waits is nobody's yet.
    let line = format!("DELETE {V1}/certificate_status/ca.example.com");
    assert_eq!(site.at_puppet(&admin, &line, "").await.status, 204);
    site.wait("ca.example.com").await;
    let line = format!("POST {V1}/sign/all");
    site.at_puppet(&admin, &line, "").await;
    let boss = site.world.puppet_agent("boss").await;
    let ways = |name: &str| {
        let status = format!("{V1}/certificate_status/{name}");
        let names = json!({"certnames": ["web01.lab", name]}).to_string();
        [
            (format!("PUT {V1}/clean"), names),
            (format!("PUT {status}"), REVOKED.to_owned()),
            (format!("DELETE {status}"), String::new()),
        ]
    };
    for (name, named) in [
        ("ca.example.com", "ca.example.com"),
        ("web02.lab", "ca.example.com"),
        ("countersign-admin", "countersign-admin"),
        ("boss", "boss"),
    ] {
        for who in [&admin, &boss] {
            for (line, body) in ways(name) {
                let answer = site.at_puppet(who, &line, &body).await;
                assert_eq!(answer.status, 403, "{line}: {}", answer.text());
                let said = format!(
                    "This call needs force (force=true, or --force) for {named}, which the authority or an \
                     administrator uses."
                );
                assert!(answer.text().ends_with(&said), "{}", answer.text());
                let line = format!("{line}?force=1");
                assert_eq!(site.at_puppet(who, &line, &body).await.status, 403);
            }
        }
        assert!(!site.is_revoked(name).await, "{name}");
    }
    assert!(!site.is_revoked("web01.lab").await);
    // Force gives nobody a role.
    let signer = site.world.puppet_agent("signer").await;
    for (line, body) in ways("ca.example.com") {
        let line = format!("{line}?force=true");
        let answer = site.at_puppet(&signer, &line, &body).await;
        assert_forbidden(&answer, &line, "ca.example.com");
    }
    let [_, (revoke, body), (delete, _)] = ways("ca.example.com");
    let forced = format!("{revoke}?environment=x&force=true");
    assert_eq!(site.at_puppet(&admin, &forced, &body).await.status, 204);
    // It is over: what is left of it is nobody's.
    assert_eq!(site.at_puppet(&admin, &delete, "").await.status, 204);
    let [(clean, body), ..] = ways("boss");
    let forced = format!("{clean}?force=true");
    assert_eq!(site.at_puppet(&admin, &forced, &body).await.status, 200);
}

#[tokio::test]
async fn at_the_native_interface_own_names_need_an_administrator() {
    let site = Site::open().await;
    let signer = site.world.puppet_agent("signer").await;
    let boss = site.world.puppet_agent("boss").await;
    // The same role, of a user of the Kubernetes door.
    let decider = site.user("dan", "deciders").await;
    site.waiting_for_own_names().await;
    let forbidden = |answer: &Answer, line: &str, name: &str| {
        let said = format!("this call needs the role admin for {name}");
        let expected = (403, json!({"code": "forbidden", "message": said}));
        let told = (answer.status, answer.json()["error"].clone());
        assert_eq!(told, expected, "{line}");
    };
    for name in ["ca.example.com", "web02.lab"] {
        for line in [
            format!("POST /enrol/v1/requests/puppet/{name}/approve"),
            format!("DELETE /enrol/v1/requests/puppet/{name}"),
        ] {
            forbidden(
                &site.at_puppet(&signer, &line, "").await,
                &line,
                "ca.example.com",
            );
            forbidden(
                &site.at_kubernetes(&decider, &line).await,
                &line,
                "ca.example.com",
            );
        }
        assert_eq!(site.state(name).await, Some(RequestState::Pending));
        let line = format!("POST /enrol/v1/requests/puppet/{name}/approve");
        assert_eq!(site.at_puppet(&boss, &line, "").await.status, 200);
    }
    let second = CsrBuilder::new("second-admin");
    site.world
        .client(PUPPET_ADMIN, "second-admin", &second)
        .await;
    let master = CsrBuilder::new("master").organization("system:masters");
    site.world
        .client(crate::world::KUBERNETES_ADMIN, "master", &master)
        .await;
    let user = CsrBuilder::new("ann").organization("people");
    site.world.client(KUBE_CLIENT, "ann", &user).await;
    for (issuer, name, named) in [
        ("puppet", "ca.example.com", Some("ca.example.com")),
        ("puppet", "web02.lab", Some("ca.example.com")),
        ("puppet", "second-admin", Some("second-admin")),
        ("puppet", "boss", Some("boss")),
        ("kubernetes", "master", Some("system:masters")),
        ("kubernetes", "ann", None),
    ] {
        let serial = site.serial_of(&boss, issuer, name).await;
        let line = format!("POST /enrol/v1/certificates/{issuer}/{serial}/revoke");
        let answer = site.at_puppet(&signer, &line, "").await;
        match named {
            Some(named) => forbidden(&answer, &line, named),
            None => assert_eq!(answer.status, 200, "{name}: {}", answer.text()),
        }
    }
    let serial = site.serial_of(&boss, "puppet", "second-admin").await;
    let line = format!("POST /enrol/v1/certificates/puppet/{serial}/revoke");
    assert_eq!(site.at_puppet(&boss, &line, "").await.status, 200);
}
