//! How far a role reaches: the names of a limited one, and whom it may make.

use countersign_authority::{RequestState, TokenOrder};
use countersign_server::access::{Entry, Holder, Role};
use countersign_server::foreman::TrustedHosts;
use countersign_testkit::csr::CsrBuilder;
use serde_json::json;

use super::{Site, V1};
use crate::exchange::Call;
use crate::kubernetes::{CSRS, manifest_of};

#[tokio::test]
async fn a_limited_signer_works_within_its_suffixes() {
    let site = Site::open().await;
    let limited = site.world.puppet_agent("limited").await;
    for name in ["a.lab", "b.lab", "c.lab", "d.lab", "e.prod"] {
        site.wait(name).await;
    }
    let signed = r#"{"desired_state":"signed"}"#;
    let line = format!("PUT {V1}/certificate_status/a.lab");
    assert_eq!(site.at_puppet(&limited, &line, signed).await.status, 204);
    let line = "POST /enrol/v1/requests/puppet/b.lab/approve";
    assert_eq!(site.at_puppet(&limited, line, "").await.status, 200);
    let line = "POST /enrol/v1/requests/puppet/c.lab/deny";
    assert_eq!(site.at_puppet(&limited, line, "").await.status, 200);
    // One name too many, and none is signed.
    let line = format!("POST {V1}/sign");
    let names = r#"{"certnames":["d.lab","e.prod"]}"#;
    assert_eq!(site.at_puppet(&limited, &line, names).await.status, 403);
    let names = r#"{"certnames":["d.lab"]}"#;
    let answer = site.at_puppet(&limited, &line, names).await;
    assert_eq!(answer.json()["signed"], json!(["d.lab"]));
    let expected = [
        ("a.lab", RequestState::Issued),
        ("b.lab", RequestState::Issued),
        ("c.lab", RequestState::Denied),
        ("d.lab", RequestState::Issued),
        ("e.prod", RequestState::Pending),
    ];
    for (name, state) in expected {
        assert_eq!(site.state(name).await, Some(state), "{name}");
    }

    // A certificate is judged by the name that it is for.
    let list = site
        .at_puppet(&limited, "GET /enrol/v1/certificates", "")
        .await;
    for (name, status) in [("a.lab", 200), ("limited", 403)] {
        let items = list.json();
        let items = items["items"].as_array().unwrap();
        let item = items.iter().find(|item| item["name"] == name).unwrap();
        let serial = item["serial"].as_str().unwrap();
        let line = format!("POST /enrol/v1/certificates/puppet/{serial}/revoke");
        let answer = site.at_puppet(&limited, &line, "").await;
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
    }
    let line = format!("PUT {V1}/clean");
    let names = r#"{"certnames":["b.lab"]}"#;
    assert_eq!(site.at_puppet(&limited, &line, names).await.status, 200);
}

/// Whoever adds a record lets a name enrol, with the record's addresses in its certificate.
#[tokio::test]
async fn a_limited_minter_works_within_its_suffixes() {
    let site = Site::open().await;
    let builder = site.world.puppet_agent("builder").await;
    let minter = site.world.puppet_agent("minter").await;
    let with = |name: &str, kind: &str, address: &str| json!({"name": name, "addresses": [{"type": kind, "address": address}]});
    let inside = json!({"name": "a.lab"});
    let outside = with("e.lab", "InternalDNS", "vault.prod");
    for (line, body, refused) in [
        ("POST machines", inside.clone(), None),
        ("POST machines", json!({"name": "B.LAB."}), None),
        (
            "PUT machines/c.lab",
            with("c.lab", "Hostname", "C.lab"),
            None,
        ),
        (
            "PUT machines/c.lab",
            with("", "ExternalDNS", "www.lab"),
            None,
        ),
        ("POST machines", json!({"name": "a.prod"}), Some("a.prod")),
        ("POST machines", json!({"name": "lab"}), Some("lab")),
        ("POST machines", json!({"role": "web"}), Some("")),
        ("POST machines", outside.clone(), Some("vault.prod")),
        ("PUT machines/e.lab", outside.clone(), Some("vault.prod")),
        (
            "POST machines",
            with("e.lab", "Hostname", "vault"),
            Some("vault"),
        ),
        (
            "POST machines",
            with("e.lab", "InternalIP", "192.0.2.1"),
            Some("every name"),
        ),
        (
            "POST machine-imports",
            json!({"machines": [{"name": "d.lab"}, outside]}),
            Some("vault.prod"),
        ),
        (
            "POST machine-imports",
            json!({"machines": [inside, {"name": "d.lab"}], "replace": true}),
            None,
        ),
        ("PUT windows/w.lab", json!({}), None),
        ("PUT windows/w.prod", json!({}), Some("w.prod")),
        // In a path, the name as it is enrolled.
        ("PUT windows/W.LAB", json!({}), Some("W.LAB")),
    ] {
        let line = line.replacen(' ', " /enrol/v1/", 1);
        let answer = site.at_puppet(&builder, &line, &body.to_string()).await;
        match refused {
            None => assert!(answer.status < 300, "{line} {body}: {}", answer.text()),
            Some(name) => assert_eq!(
                (answer.status, &answer.json()["error"]["message"]),
                (
                    403,
                    &json!(format!("this call needs the role mint for {name}"))
                ),
                "{line} {body}"
            ),
        }
    }
    // What is refused leaves nothing behind, and a role without limits adds the same.
    let list = site
        .at_puppet(&builder, "GET /enrol/v1/machines", "")
        .await
        .json();
    let names: Vec<_> = list["items"].as_array().unwrap().iter().collect();
    let names: Vec<_> = names.iter().map(|item| item["name"].as_str()).collect();
    assert_eq!(names, ["a.lab", "b.lab", "c.lab", "d.lab"].map(Some));
    let (line, body) = (
        "POST /enrol/v1/machines",
        with("e.prod", "InternalIP", "192.0.2.1"),
    );
    let answer = site.at_puppet(&minter, line, &body.to_string()).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
}

/// The limit holds for every name that the certificate would have, not only for the one in the path.
#[tokio::test]
async fn other_names_in_a_request_do_not_widen_a_limited_role() {
    let site = Site::open().await;
    let limited = site.world.puppet_agent("limited").await;
    let signer = site.world.puppet_agent("signer").await;
    let requests = [
        (
            "own.lab",
            CsrBuilder::new("own.lab").dns("own.lab").dns("www.lab"),
            true,
        ),
        (
            "dns.lab",
            CsrBuilder::new("dns.lab").dns("vault.prod"),
            false,
        ),
        (
            "ip.lab",
            CsrBuilder::new("ip.lab").ip("192.0.2.1".parse().unwrap()),
            false,
        ),
    ];
    for (name, csr, may) in requests {
        site.ask(&csr, name).await;
        let native = format!("POST /enrol/v1/requests/puppet/{name}/approve");
        let status = format!("PUT {V1}/certificate_status/{name}");
        let bulk = format!("POST {V1}/sign");
        let signed = r#"{"desired_state":"signed"}"#;
        let names = format!(r#"{{"certnames":["{name}"]}}"#);
        if may {
            assert_eq!(site.at_puppet(&limited, &native, "").await.status, 200);
            continue;
        }
        assert_eq!(
            site.at_puppet(&limited, &native, "").await.status,
            403,
            "{name}"
        );
        assert_eq!(
            site.at_puppet(&limited, &status, signed).await.status,
            403,
            "{name}"
        );
        let answer = site.at_puppet(&limited, &bulk, &names).await;
        assert_eq!(answer.json()["signing-errors"], json!([name]));
        assert_eq!(
            site.state(name).await,
            Some(RequestState::Pending),
            "{name}"
        );
        assert_eq!(
            site.at_puppet(&signer, &native, "").await.status,
            200,
            "{name}"
        );
    }
}

#[tokio::test]
async fn nobody_signs_an_identity_that_may_do_more_than_they_may() {
    let site = Site::open().await;
    let signer = site.world.puppet_agent("signer").await;
    let boss = site.world.puppet_agent("boss").await;
    for name in ["new.admins", "new.signers"] {
        site.wait(name).await;
    }
    let approve = |name: &str| format!("POST /enrol/v1/requests/puppet/{name}/approve");
    let refused = site.at_puppet(&signer, &approve("new.admins"), "").await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["message"]),
        (403, &"this call needs the role admin for new.admins".into())
    );
    let all = site
        .at_puppet(&signer, &format!("POST {V1}/sign/all"), "")
        .await;
    assert_eq!(all.json()["signed"], json!(["new.signers"]));
    assert_eq!(all.json()["signing-errors"], json!(["new.admins"]));
    assert_eq!(
        site.at_puppet(&boss, &approve("new.admins"), "")
            .await
            .status,
        200
    );

    // The same for users: a group that has a role is given by who has as much.
    for (name, group, status) in [("ann", "owners", 403), ("bob", "deciders", 200)] {
        let admin = site.world.kubernetes_admin().await;
        let manifest = manifest_of(name, &CsrBuilder::new(name).organization(group));
        let created = Call::new(&admin, &format!("POST {}", CSRS))
            .header("content-type", "application/json")
            .body(manifest.to_string())
            .send(&site.kubernetes)
            .await;
        assert_eq!(created.status, 201, "{}", created.text());
        let line = format!("POST /enrol/v1/requests/kubernetes/{name}/approve");
        let answer = site.at_puppet(&signer, &line, "").await;
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
    }
}

/// A name that mints and signs at the Foreman listener is worth that much to whoever has it signed, and nothing here.
#[tokio::test]
async fn nobody_signs_a_trusted_host_who_may_do_less() {
    let site = Site::open().await;
    site.access.set(entries_of_two_roles());
    let trust = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        site.access.set_elsewhere(TrustedHosts::roles(&names));
    };
    trust(&["Foreman.lab"]);
    for name in ["foreman.lab", "web01.lab"] {
        site.wait(name).await;
    }
    let native = "POST /enrol/v1/requests/puppet/foreman.lab/approve";
    let status = format!("PUT {V1}/certificate_status/foreman.lab");
    let signed = r#"{"desired_state":"signed"}"#;
    let signer = site.world.puppet_agent("signer").await;
    let limited = site.world.puppet_agent("limited").await;
    for peer in [&signer, &limited] {
        let refused = site.at_puppet(peer, native, "").await;
        let told = refused.json()["error"]["message"].clone();
        assert_eq!(told, "this call needs the role admin for foreman.lab");
        let refused = site.at_puppet(peer, &status, signed).await;
        assert_eq!(refused.status, 403, "{peer:?}");
    }
    let user = site.user("dan", "deciders").await;
    assert_eq!(site.at_kubernetes(&user, native).await.status, 403);
    let all = format!("POST {V1}/sign/all");
    let all = site.at_puppet(&signer, &all, "").await.json();
    assert_eq!(all["signed"], json!(["web01.lab"]));
    assert_eq!(all["signing-errors"], json!(["foreman.lab"]));

    // Somebody who may do as much signs it, and everybody who signs does once it is off the list.
    let both = site.world.puppet_agent("both").await;
    assert_eq!(site.at_puppet(&both, native, "").await.status, 200);
    trust(&["other.lab"]);
    site.wait("smart-proxy.lab").await;
    let status = format!("PUT {V1}/certificate_status/smart-proxy.lab");
    trust(&["smart-proxy.lab"]);
    assert_eq!(site.at_puppet(&signer, &status, signed).await.status, 403);
    trust(&[]);
    assert_eq!(site.at_puppet(&signer, &status, signed).await.status, 204);

    // It has no role here.
    trust(&["agent"]);
    let agent = site.world.puppet_agent("agent").await;
    let reads = site.at_puppet(&agent, "GET /enrol/v1/requests", "").await;
    assert_eq!(reads.status, 403);
}

/// A token limits the whole certificate, and so does the role of whoever mints it.
#[tokio::test]
async fn a_limited_minters_tokens_stay_within_its_suffixes() {
    let site = Site::open().await;
    site.world.use_tokens();
    let builder = site.world.puppet_agent("builder").await;
    let minter = site.world.puppet_agent("minter").await;
    let admin = site.world.puppet_admin().await;
    let glob = |pattern: &str| json!({"glob": pattern, "max_uses": 1});
    let with =
        |member: &str, value: serde_json::Value| json!({"certname": "a.x.lab", member: value});
    for (order, statuses) in [
        // Builder, minter, administrator.
        (json!({"certname": "a.x.lab"}), [201, 201, 201]),
        (json!({"certname": "A.X.LAB"}), [201, 201, 201]),
        (json!({"certname": "a.x.prod"}), [403, 201, 201]),
        (json!({"certname": "lab"}), [403, 201, 201]),
        (json!({"certname": "collab"}), [403, 201, 201]),
        (glob("*.x.lab"), [201, 201, 201]),
        (glob("*.x.prod"), [403, 201, 201]),
        // A pattern that is no pattern lets nobody out of its suffixes.
        (glob("*.lab"), [422, 422, 422]),
        (glob("*"), [403, 422, 422]),
        (
            with("allowed_sans", json!(["DNS:a.x.lab", "DNS:www.x.lab"])),
            [201, 201, 201],
        ),
        (
            with("allowed_sans", json!(["DNS:www.x.prod"])),
            [403, 201, 201],
        ),
        (
            with("allowed_sans", json!(["dns:www.x.prod"])),
            [403, 422, 422],
        ),
        (
            with("allowed_sans", json!(["IP:192.0.2.1"])),
            [403, 201, 201],
        ),
        (
            with("allowed_extensions", json!({"pp_role": ["web"]})),
            [201, 201, 201],
        ),
        (
            with("allowed_extensions", json!({"pp_cli_auth": ["true"]})),
            [403, 403, 201],
        ),
        (
            with(
                "allowed_extensions",
                json!({"1.3.6.1.4.1.34380.1.3.1": ["true"]}),
            ),
            [403, 403, 201],
        ),
        // The authority's own, and whoever has a role.
        (json!({"certname": "ca.example.com"}), [403, 422, 422]),
    ] {
        let mut found = Vec::new();
        for peer in [&builder, &minter, &admin] {
            let line = "POST /enrol/v1/tokens";
            let answer = site.at_puppet(peer, line, &order.to_string()).await;
            found.push(answer.status);
        }
        assert_eq!(found, statuses, "{order}");
    }
}

/// Tokens of names outside of the limit are not there.
#[tokio::test]
async fn a_limited_minter_sees_and_ends_its_own_tokens_alone() {
    let site = Site::open().await;
    site.world.use_tokens();
    let minted = |name: &'static str| site.world.mint(TokenOrder::exact(name));
    let inside = minted("a.lab").await.record.id.to_string();
    let outside = minted("a.prod").await.record.id.to_string();
    let builder = site.world.puppet_agent("builder").await;
    let list = site
        .at_puppet(&builder, "GET /enrol/v1/tokens?limit=1", "")
        .await;
    let (first, cursor) = (list.json(), list.json()["cursor"].clone());
    assert_eq!(first["items"], json!([]), "the newest one is another's");
    let line = format!("GET /enrol/v1/tokens?cursor={}", cursor.as_str().unwrap());
    let rest = site.at_puppet(&builder, &line, "").await.json();
    assert_eq!(rest["items"][0]["id"], inside);
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
    let minter = site.world.puppet_agent("minter").await;
    let others = [
        ("minter", minter.clone()),
        ("reader", site.world.puppet_agent("reader").await),
        ("limited signer", site.world.puppet_agent("limited").await),
    ];
    for (who, peer) in &others {
        let list = site.at_puppet(peer, "GET /enrol/v1/tokens", "").await;
        let list = list.json();
        assert_eq!(list["items"].as_array().unwrap().len(), 2, "{who}");
    }
    for line in [
        "GET /enrol/v1/tokens/ID",
        "DELETE /enrol/v1/tokens/ID",
        "POST /enrol/v1/tokens/ID/release",
    ] {
        let mut told = Vec::new();
        for id in [&*outside, "aaaqeayeaudaocaj"] {
            let answer = site.at_puppet(&builder, &line.replace("ID", id), "").await;
            told.push((answer.status, answer.text().replace(id, "ID")));
        }
        assert_eq!(told.first().map(|(status, _)| *status), Some(404), "{line}");
        assert_eq!(told.first(), told.last(), "{line}");
    }
    let line = |id: &str| format!("DELETE /enrol/v1/tokens/{id}");
    assert_eq!(
        site.at_puppet(&builder, &line(&inside), "").await.status,
        204
    );
    assert_eq!(
        site.at_puppet(&minter, &line(&outside), "").await.status,
        204
    );
}

/// Who mints also signs: `both` for every name, `lab` below `.lab`.
fn entries_of_two_roles() -> Vec<Entry> {
    let mut entries = super::entries();
    for (name, role, limit) in [
        ("both", Role::Mint, None),
        ("both", Role::Sign, None),
        ("lab", Role::Mint, None),
        ("lab", Role::Sign, Some(".lab")),
    ] {
        entries.push(Entry {
            holder: Holder::Certname(name.to_owned()),
            role,
            suffixes: limit.map(super::suffix).into_iter().collect(),
        });
    }
    entries
}

/// What replaces a certificate revokes it, and brings back a name that was put out.
#[tokio::test]
async fn a_token_that_replaces_certificates_needs_two_roles() {
    let site = Site::open().await;
    site.world.use_tokens();
    site.access.set(entries_of_two_roles());
    for (who, rows) in [
        ("minter", [(403, "the role sign for a.x.lab")].as_slice()),
        ("builder", &[(403, "the role sign for a.x.lab")]),
        ("signer", &[(403, "the role mint")]),
        (
            "lab",
            &[
                (201, ""),
                (403, "the role sign for a.x.prod"),
                (201, ""),
                (403, "the role sign for *.x.prod"),
            ],
        ),
        ("both", &[(201, ""); 4]),
        ("boss", &[(201, ""); 4]),
    ] {
        let peer = site.world.puppet_agent(who).await;
        let orders = [
            json!({"certname": "a.x.lab", "allow_replace": true}),
            json!({"certname": "a.x.prod", "allow_replace": true}),
            json!({"glob": "*.x.lab", "max_uses": 1, "allow_replace": true}),
            json!({"glob": "*.x.prod", "max_uses": 1, "allow_replace": true}),
        ];
        for (order, (status, needed)) in orders.iter().zip(rows) {
            let line = "POST /enrol/v1/tokens";
            let answer = site.at_puppet(&peer, line, &order.to_string()).await;
            assert_eq!(answer.status, *status, "{who} {order}: {}", answer.text());
            if answer.status == 403 {
                let told = answer.json()["error"]["message"].clone();
                assert_eq!(told, format!("this call needs {needed}"), "{who} {order}");
            }
        }
    }
}

/// Who mints does not revoke certificates, and who signs does not end tokens; for both together both are needed.
#[tokio::test]
async fn revoking_a_tokens_certificates_needs_two_roles() {
    let site = Site::open().await;
    site.world.use_tokens();
    site.access.set(entries_of_two_roles());
    let lab = site.world.puppet_agent("lab").await;
    for (who, name, status, needed) in [
        ("minter", "a.lab", 403, "the role sign"),
        ("builder", "a.lab", 403, "the role sign"),
        ("signer", "a.lab", 403, "the role mint"),
        ("reader", "a.lab", 403, "the role mint"),
        ("lab", "a.prod", 403, "the role sign for a.prod"),
        ("lab", "a.lab", 204, ""),
        ("both", "a.prod", 204, ""),
        ("boss", "b.prod", 204, ""),
    ] {
        let id = site.world.mint(TokenOrder::exact(name)).await.record.id;
        let peer = match who {
            "lab" => lab.clone(),
            other => site.world.puppet_agent(other).await,
        };
        let line = format!("DELETE /enrol/v1/tokens/{id}?revoke_certificates=true");
        let answer = site.at_puppet(&peer, &line, "").await;
        assert_eq!(answer.status, status, "{who} {name}: {}", answer.text());
        if status == 403 {
            let told = answer.json()["error"]["message"].clone();
            assert_eq!(told, format!("this call needs {needed}"), "{who} {name}");
        }
    }
}
