//! The acceptance cases of CertificateAuthorities and SigningPolicies, A01 to A03 and P01 to P03, and the requirements N12 to
//! N17 as far as they are about them. What a policy decides is in the tests of the rule.

use countersign_pki::{Crl, UnixTime, oid, pem};
use countersign_testkit::chain::{Ca, CrlFacts};
use countersign_testkit::keys;
use serde_json::{Value, json};

use super::super::Next;
use super::super::calls::Kind;
use super::super::duration::DAY;
use super::super::object::AUTHORITY_LABEL;
use super::world::{START, World, after, condition, message, seconds, secret};

// A CA that somebody else runs.

#[tokio::test]
async fn a01_an_external_ca_waits_for_what_it_is_recognised_by() {
    let world = World::new();
    external(&world);
    assert_eq!(world.look_at_ca().await, Ok(after(5)));
    assert_eq!(phase(&world), "Pending");
    assert!(is(&world, "CAReady").starts_with("False "));
    assert!(message(&ca(&world), "CAReady").contains("trust"));
    assert!(world.ca.calls().is_empty());
    let root = world.ca.root.certificate.clone();
    world.api.put(
        Kind::Secret,
        secret("trust", &[("ca_crt.pem", &root.to_pem())]),
    );
    let next = world.look_at_ca().await.unwrap();
    assert_eq!(seconds(next), 300);
    let status = ca(&world)["status"].clone();
    assert_eq!(status["phase"], "External");
    assert_eq!(status["caSecretName"], "trust");
    assert_eq!(status["notAfter"], json!(root.not_after().to_string()));
    assert_eq!(
        (&status["serviceName"], &status["signingSecretName"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(is(&world, "CAReady"), "True ExternalCA");
    let list = world.api.get(Kind::Secret, "ca-ca-crl").unwrap();
    assert_eq!(
        list["metadata"]["ownerReferences"][0]["uid"],
        ca(&world)["metadata"]["uid"]
    );
    assert!(events(&world).contains(&"CAExternal".to_owned()));
    assert!(world.api.list(Kind::Service).is_empty());
    assert!(world.api.list(Kind::Certificate).is_empty());
    assert_eq!(world.ca.calls(), ["full-crl ", "crl "]);
}

// A CA that is the authority that the operator was told of, or one in the cluster.

#[tokio::test]
async fn a02_a_ca_in_the_cluster_is_ready_once_its_certificate_is_there() {
    let world = World::new();
    internal(&world, json!({}));
    for _ in 0..3 {
        assert_eq!(world.look_at_ca().await, Ok(after(5)));
    }
    assert_eq!(phase(&world), "Pending");
    assert!(is(&world, "CAReady").starts_with("False "));
    assert_eq!(events(&world), ["WaitingForConfig"], "once");
    assert!(world.ca.calls().is_empty());
    // Somebody runs the CA: a Config, a Server, and the Secrets that its setup makes.
    world.api.put(
        Kind::Config,
        json!({"metadata": {"name": "prod"}, "spec": {"authorityRef": "ca"}}),
    );
    world.api.put(
        Kind::Server,
        json!({"metadata": {"name": "s"}, "spec": {"configRef": "prod", "ca": true, "certificateRef": "server"}}),
    );
    world.certificate("server", json!({"certname": "puppet"}));
    let root = world.ca.root.certificate.to_pem();
    world
        .api
        .put(Kind::Secret, secret("ca-ca", &[("ca_crt.pem", &root)]));
    world.look_at_ca().await.unwrap();
    assert_eq!(phase(&world), "Ready");
    assert_eq!(is(&world, "CAReady"), "True CAInitialized");
    let service = world.api.get(Kind::Service, "ca-internal").unwrap();
    assert_eq!(service["spec"]["type"], "ClusterIP");
    assert_eq!(
        service["spec"]["ports"],
        json!([{"name": "https", "port": 8140, "protocol": "TCP", "targetPort": 8140}])
    );
    assert_eq!(
        service["spec"]["selector"],
        json!({"openvox.voxpupuli.org/ca": "true", AUTHORITY_LABEL: "ca"})
    );
    assert_eq!(
        is(&world, "OperatorSigningReady"),
        "False OperatorSigningPending"
    );
    assert!(
        world.api.list(Kind::Certificate).len() == 1,
        "nobody could sign it yet"
    );
    // The certificate of the CA's own server signs until the operator has its own.
    world.settle("server").await;
    let names: Vec<String> = world
        .leaf("server")
        .alt_names()
        .iter()
        .map(|it| it.to_puppet_text())
        .collect();
    assert_eq!(names, ["DNS:ca-internal.ns.svc"]);
    world.look_at_ca().await.unwrap();
    assert_eq!(ca(&world)["status"]["signingSecretName"], "server-tls");
    let own = world.object("ca-operator-signing");
    assert_eq!(
        own["spec"],
        json!({"authorityRef": "ca", "certname": "ca-operator"})
    );
    assert_eq!(
        own["metadata"]["ownerReferences"][0]["uid"],
        ca(&world)["metadata"]["uid"]
    );
    world.ca.state().signs_at_once = false;
    world.ca.calls();
    world.settle("ca-operator-signing").await;
    assert!(
        world
            .ca
            .calls()
            .contains(&"sign ca-operator with an identity".to_owned())
    );
    world.look_at_ca().await.unwrap();
    assert_eq!(
        ca(&world)["status"]["signingSecretName"],
        "ca-operator-signing-tls"
    );
    assert_eq!(
        is(&world, "OperatorSigningReady"),
        "True OperatorSigningReady"
    );
    for expected in [
        "CAInitialized",
        "OperatorSigningCreated",
        "OperatorSigningReady",
        "CRLRefreshed",
    ] {
        assert_eq!(
            events(&world).iter().filter(|it| *it == expected).count(),
            1,
            "{expected}"
        );
    }
}

#[tokio::test]
async fn a02_n15_a_ca_that_the_operator_was_told_of_needs_nothing_else() {
    for (case, prepare) in [
        ("nothing", None),
        (
            "its certificate is there",
            Some(world_root as fn(&World) -> String),
        ),
        ("another certificate is there", Some(|_| other_root())),
    ] {
        let world = World::told();
        internal(&world, json!({}));
        if let Some(root) = prepare {
            world.api.put(
                Kind::Secret,
                secret("ca-ca", &[("ca_crt.pem", &root(&world))]),
            );
        }
        world.look_at_ca().await.unwrap();
        assert_eq!(phase(&world), "Ready", "{case}");
        assert_eq!(
            world.secret_value("ca-ca", "ca_crt.pem"),
            Some(world_root(&world)),
            "{case}"
        );
        for name in ["ca-ca", "ca-ca-crl"] {
            let found = world.api.get(Kind::Secret, name).unwrap();
            let owner = &found["metadata"]["ownerReferences"][0];
            assert_eq!(owner["uid"], ca(&world)["metadata"]["uid"], "{case}");
            assert_eq!(found["metadata"]["labels"][AUTHORITY_LABEL], "ca", "{case}");
        }
        let service = world.api.get(Kind::Service, "ca-internal").unwrap();
        assert_eq!(service["spec"]["externalName"], "authority.test", "{case}");
        let status = ca(&world)["status"].clone();
        assert_eq!(status["caSecretName"], "ca-ca", "{case}");
        assert_eq!(status["serviceName"], "ca-internal", "{case}");
        assert_eq!(
            status["notAfter"],
            json!(world.ca.root.certificate.not_after().to_string()),
            "{case}"
        );
        world.settle("ca-operator-signing").await;
        world.look_at_ca().await.unwrap();
        assert_eq!(
            is(&world, "OperatorSigningReady"),
            "True OperatorSigningReady",
            "{case}"
        );
        // What was done is not done again.
        world.api.history();
        world.ca.calls();
        world.look_at_ca().await.unwrap();
        assert!(world.api.history().is_empty(), "{case}");
        assert!(world.ca.calls().is_empty(), "{case}");
    }
}

/// What the setup of a CA exports: the Secret of its server's Certificate is there when the CA is ready.
#[tokio::test]
async fn n15_the_certificate_of_the_cas_server_is_issued_before_the_ca_is_ready() {
    for (case, is_named, awaited, names) in [
        ("the first", false, "app", &[][..]),
        (
            "the one that a Server names",
            true,
            "web",
            &["DNS:ca-internal.ns.svc"],
        ),
    ] {
        let world = World::told();
        world.ca.state().signs_at_once = false;
        world.web(json!({}));
        world.certificate("app", json!({"certname": "app"}));
        if is_named {
            let config = json!({"metadata": {"name": "prod"}, "spec": {"authorityRef": "ca"}});
            world.api.put(Kind::Config, config);
            let server = json!({"configRef": "prod", "ca": true, "certificateRef": "web"});
            let server = json!({"metadata": {"name": "s"}, "spec": server});
            world.api.put(Kind::Server, server);
        }
        internal(&world, json!({}));
        for _ in 0..2 {
            assert_eq!(world.look_at_ca().await, Ok(after(1)), "{case}");
            assert_eq!(phase(&world), "Initializing", "{case}");
            assert_eq!(is(&world, "CAReady"), "False ExportPending", "{case}");
            assert!(message(&ca(&world), "CAReady").contains(awaited), "{case}");
        }
        for name in ["app", "web"] {
            world.ca.calls();
            world.settle(name).await;
            let expected = if name == awaited { "Signed" } else { "Pending" };
            assert_eq!(world.phase(name), expected, "{case}: {name}");
            let is_asked = !world.ca.calls().is_empty();
            assert_eq!(is_asked, name == awaited, "{case}: {name}");
        }
        let leaf = world.leaf(awaited);
        let found: Vec<String> = leaf
            .alt_names()
            .iter()
            .map(|it| it.to_puppet_text())
            .collect();
        assert_eq!(found, names, "{case}");
        world.look_at_ca().await.unwrap();
        assert_eq!(phase(&world), "Ready", "{case}");
        for name in ["app", "web"] {
            world.settle(name).await;
            assert_eq!(world.phase(name), "Signed", "{case}: {name}");
        }
        assert_eq!(world.leaf(awaited), leaf, "{case}: once");
    }
}

#[tokio::test]
async fn n15_a_ca_does_not_wait_for_a_certificate_in_vain() {
    let paused = json!({"metadata": {"annotations": {"openvox.voxpupuli.org/paused": "true"}}});
    for (case, looks) in [
        ("it is paused", 1),
        ("it is refused", 2),
        ("it is deleted", 1),
        ("its Secret is there", 1),
        ("it is the only one, the operator's own", 1),
        ("nobody looks at it", 31),
        ("nobody signs it", 31),
    ] {
        let world = World::told();
        internal(&world, json!({}));
        if !case.contains("only one") {
            world.web(json!({}));
        }
        match case {
            "it is paused" => world.api.edit(Kind::Certificate, "web", &paused),
            "it is refused" => world.ca.answers("submit", 400 + 3),
            "it is deleted" => {
                let kept = json!({"metadata": {"finalizers": ["somebody.example.com/x"]}});
                world.api.edit(Kind::Certificate, "web", &kept);
                world.api.delete(Kind::Certificate, "web");
            }
            "its Secret is there" => {
                let text = world.issued("web", keys::rsa2048_c(), 300);
                let key = crate::operator::tests::world::pkcs1(keys::rsa2048_c());
                let pair = [("cert.pem", text.as_str()), ("key.pem", key.as_str())];
                world.api.put(Kind::Secret, secret("web-tls", &pair));
            }
            "nobody signs it" => {
                world.ca.state().signs_at_once = false;
                world.ca.answers("sign", 403);
            }
            _ => {}
        }
        for look in 1..=looks {
            assert_ne!(phase(&world), "Ready", "{case}: {look}");
            world.look_at_ca().await.unwrap();
            if case.ends_with("refused") || case.ends_with("signs it") {
                world.look("web").await.unwrap();
            }
            world.wind(1);
        }
        assert_eq!(phase(&world), "Ready", "{case}");
        assert_eq!(is(&world, "CAReady"), "True CAInitialized", "{case}");
    }
}

#[tokio::test]
async fn n12_a_ca_that_cannot_issue_says_so() {
    for answer in [0, 503] {
        let world = World::told();
        internal(&world, json!({}));
        world.ca.answers("certificates", answer);
        for attempt in 1..=6 {
            assert_eq!(world.look_at_ca().await, Ok(after(10)), "{answer}");
            let expected = if attempt < 5 { "Initializing" } else { "Error" };
            assert_eq!(phase(&world), expected, "{answer}: {attempt}");
            assert_eq!(is(&world, "CAReady"), "False SetupFailed", "{answer}");
            world.wind(10);
        }
        world.web(json!({}));
        assert_eq!(world.settle("web").await, after(10), "{answer}");
        assert_eq!(world.phase("web"), "Pending", "{answer}");
        world.ca.obeys();
        world.look_at_ca().await.unwrap();
        world.settle("web").await;
        world.look_at_ca().await.unwrap();
        assert_eq!(phase(&world), "Ready", "{answer}");
        assert_eq!(is(&world, "CAReady"), "True CAInitialized", "{answer}");
        // Its certificate is lost: it is fetched again, and nothing is ready until then.
        world.api.delete(Kind::Secret, "ca-ca");
        world.ca.answers("certificates", answer);
        world.look_at_ca().await.unwrap();
        assert_eq!(
            (phase(&world).as_str(), is(&world, "CAReady").as_str()),
            ("Initializing", "False SetupFailed"),
            "{answer}"
        );
        world.ca.obeys();
        world.look_at_ca().await.unwrap();
        assert_eq!(phase(&world), "Ready", "{answer}");
    }
    // The same of a CA in the cluster.
    let world = World::new();
    internal(&world, json!({}));
    world.api.put(
        Kind::Secret,
        secret("ca-ca", &[("ca_crt.pem", &world_root(&world))]),
    );
    world.look_at_ca().await.unwrap();
    assert_eq!(phase(&world), "Ready");
    world.api.delete(Kind::Secret, "ca-ca");
    world.look_at_ca().await.unwrap();
    assert_eq!(
        (phase(&world).as_str(), is(&world, "CAReady").as_str()),
        ("Pending", "False NoAuthority")
    );
}

#[tokio::test]
async fn n12_a_ca_that_becomes_another_keeps_nothing_of_the_former() {
    let world = World::told();
    internal(&world, json!({}));
    world.look_at_ca().await.unwrap();
    world.settle("ca-operator-signing").await;
    world.look_at_ca().await.unwrap();
    assert_eq!(
        ca(&world)["status"]["signingSecretName"],
        "ca-operator-signing-tls"
    );
    let far = json!({"spec": {"external": {"url": "https://far:8140", "caSecretRef": "trust"}}});
    world.api.edit(Kind::CertificateAuthority, "ca", &far);
    for (case, expected) in [
        ("without its trust", "Pending"),
        ("with it", "External"),
        ("without it again", "External"),
    ] {
        match case {
            "with it" => world.api.put(
                Kind::Secret,
                secret("trust", &[("ca_crt.pem", &other_root())]),
            ),
            "without it again" => world.api.delete(Kind::Secret, "trust"),
            _ => {}
        }
        world.look_at_ca().await.unwrap();
        let status = ca(&world)["status"].clone();
        assert_eq!(status["phase"], expected, "{case}");
        assert_eq!(
            (&status["serviceName"], &status["signingSecretName"]),
            (&Value::Null, &Value::Null),
            "{case}"
        );
        assert_eq!(is(&world, "OperatorSigningReady"), "", "{case}");
        assert_eq!(
            is(&world, "CAReady").starts_with("True "),
            case == "with it",
            "{case}"
        );
    }
    world.api.put(
        Kind::Secret,
        secret("trust", &[("ca_crt.pem", &other_root())]),
    );
    world.look_at_ca().await.unwrap();
    assert_eq!(ca(&world)["status"]["caSecretName"], "trust");
    world.api.edit(
        Kind::CertificateAuthority,
        "ca",
        &json!({"spec": {"external": null}}),
    );
    world.api.delete(Kind::Secret, "ca-ca");
    world.ca.answers("certificates", 503);
    world.look_at_ca().await.unwrap();
    let status = ca(&world)["status"].clone();
    assert_eq!(
        (&status["caSecretName"], &status["notAfter"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(status["phase"], "Initializing");
    world.ca.obeys();
    world.look_at_ca().await.unwrap();
    let status = ca(&world)["status"].clone();
    assert_eq!(
        (&status["phase"], &status["caSecretName"]),
        (&json!("Ready"), &json!("ca-ca"))
    );
}

#[tokio::test]
async fn n13_the_operator_goes_on_without_its_own_certificate() {
    for (case, is_told, is_cleaned) in [
        ("told", true, true),
        ("told, and the CA keeps the former one", true, false),
        ("in the cluster", false, true),
        (
            "in the cluster, and the CA keeps the former one",
            false,
            false,
        ),
    ] {
        let world = if is_told { World::told() } else { World::new() };
        internal(&world, json!({}));
        if !is_told {
            world.api.put(
                Kind::Secret,
                secret("ca-ca", &[("ca_crt.pem", &world_root(&world))]),
            );
            world.certificate("server", json!({"certname": "puppet"}));
            world.look_at_ca().await.unwrap();
            world.settle("server").await;
        }
        world.look_at_ca().await.unwrap();
        world.settle("ca-operator-signing").await;
        world.look_at_ca().await.unwrap();
        assert_eq!(
            is(&world, "OperatorSigningReady"),
            "True OperatorSigningReady",
            "{case}"
        );
        if !is_cleaned {
            world.ca.answers("clean", 500);
            world.ca.answers("force", 500);
        }
        world.api.delete(Kind::Certificate, "ca-operator-signing");
        world.look_for_seconds("ca-operator-signing", 100).await;
        assert_eq!(
            world.api.get(Kind::Certificate, "ca-operator-signing"),
            None,
            "{case}"
        );
        assert_eq!(
            world.ca.state().certificates.contains_key("ca-operator"),
            !is_cleaned,
            "{case}"
        );
        world.ca.obeys();
        world.wind(300);
        world.ca.calls();
        world.look_at_ca().await.unwrap();
        assert_eq!(
            is(&world, "OperatorSigningReady"),
            "False OperatorSigningPending",
            "{case}"
        );
        let fallback = if is_told {
            Value::Null
        } else {
            json!("server-tls")
        };
        assert_eq!(
            ca(&world)["status"]["signingSecretName"],
            fallback,
            "{case}"
        );
        assert_eq!(
            world.ca.times("crl").len(),
            1,
            "{case}: lists are fetched all the same"
        );
        // Others are signed meanwhile.
        world.ca.state().signs_at_once = false;
        world.web(json!({}));
        world.settle("web").await;
        assert_eq!(world.phase("web"), "Signed", "{case}");
        // And there is another one of its own.
        world.settle("ca-operator-signing").await;
        assert_eq!(world.phase("ca-operator-signing"), "Signed", "{case}");
        world.look_at_ca().await.unwrap();
        assert_eq!(
            is(&world, "OperatorSigningReady"),
            "True OperatorSigningReady",
            "{case}"
        );
        assert_eq!(
            ca(&world)["status"]["signingSecretName"],
            "ca-operator-signing-tls",
            "{case}"
        );
    }
}

/// The second of two CAs of one name has another name for the operator, also where an operator before did not know of that.
#[tokio::test]
async fn two_cas_of_one_name_have_an_operator_each() {
    for (case, is_old) in [("new", false), ("from before", true)] {
        let world = World::told();
        let first = json!({"metadata": {"name": "ca"}, "spec": {}});
        world.api.put_in("first", Kind::CertificateAuthority, first);
        world.wind(60);
        internal(&world, json!({}));
        if is_old {
            let uid = &ca(&world)["metadata"]["uid"];
            let owner = json!({"kind": "CertificateAuthority", "name": "ca", "uid": uid, "controller": true});
            let own = json!({
                "metadata": {"name": "ca-operator-signing", "ownerReferences": [owner]},
                "spec": {"authorityRef": "ca", "certname": "ca-operator"},
            });
            world.api.put(Kind::Certificate, own);
        }
        let before = world.issued("ca-operator", keys::rsa3072(), 300);
        let of_first = ("ca-operator".to_owned(), before.clone());
        world.ca.state().certificates.extend([of_first]);
        policy(&world, "p", json!({"any": true}));
        world.look_at_ca().await.unwrap();
        world.settle("ca-operator-signing").await;
        world.look_at_ca().await.unwrap();
        world.look_at_policies().await.unwrap();
        let certname = world.object("ca-operator-signing")["spec"]["certname"].clone();
        assert_eq!(certname, "ca-operator.ns", "{case}");
        assert_eq!(
            is(&world, "OperatorSigningReady"),
            "True OperatorSigningReady",
            "{case}"
        );
        assert_eq!(published(&world).unwrap()["operator"], certname, "{case}");
        assert_eq!(
            world.ca.state().certificates.get("ca-operator"),
            Some(&before),
            "{case}"
        );
        // It stays so when the first has gone.
        world
            .api
            .delete_in("first", Kind::CertificateAuthority, "ca");
        world.look_at_ca().await.unwrap();
        assert_eq!(
            world.object("ca-operator-signing")["spec"]["certname"],
            certname,
            "{case}"
        );
    }
}

// Its revocation list.

#[tokio::test]
async fn a03_a_list_that_cannot_be_fetched_stays_as_it_was() {
    for (case, answer) in [
        ("refused", 503),
        ("not heard", 0),
        ("n14: something else than a list", 200),
    ] {
        let world = World::told();
        internal(&world, json!({"crlRefreshInterval": "1m"}));
        assert_eq!(world.look_at_ca().await, Ok(after(60)), "{case}");
        let first = world.secret_value("ca-ca-crl", "ca_crl.pem").unwrap();
        assert!(first.starts_with("-----BEGIN X509 CRL-----"), "{case}");
        world.ca.answers("crl", answer);
        world.wind(60);
        assert_eq!(world.look_at_ca().await, Ok(after(30)), "{case}");
        assert!(
            events(&world).contains(&"CRLRefreshFailed".to_owned()),
            "{case}"
        );
        assert_eq!(
            world.secret_value("ca-ca-crl", "ca_crl.pem"),
            Some(first.clone()),
            "{case}"
        );
        assert_eq!(
            (phase(&world).as_str(), is(&world, "CAReady").as_str()),
            ("Ready", "True CAInitialized"),
            "{case}"
        );
        world.ca.obeys();
        world.ca.state().list = 2;
        world.wind(30);
        assert_eq!(world.look_at_ca().await, Ok(after(60)), "{case}");
        assert_ne!(
            world.secret_value("ca-ca-crl", "ca_crl.pem"),
            Some(first),
            "{case}"
        );
    }
}

#[tokio::test]
async fn n14_a_list_is_written_only_where_it_has_changed() {
    let world = World::told();
    internal(&world, json!({"crlRefreshInterval": "1m"}));
    let list = secret(
        "ca-ca-crl",
        &[("ca_crl.pem", "old"), ("infra_crl.pem", "infrastructure")],
    );
    world.api.put(Kind::Secret, list);
    world.look_at_ca().await.unwrap();
    assert_eq!(
        world.secret_value("ca-ca-crl", "infra_crl.pem").as_deref(),
        Some("infrastructure")
    );
    assert!(
        world
            .secret_value("ca-ca-crl", "ca_crl.pem")
            .unwrap()
            .starts_with("-----BEGIN X509 CRL-----")
    );
    world.look_at_ca().await.unwrap();
    let before = world.api.get(Kind::Secret, "ca-ca-crl");
    world.ca.calls();
    let told = events(&world).len();
    // It is fetched once a minute, whatever wakes the operator.
    for _ in 0..121 {
        world.look_at_ca().await.unwrap();
        world.wind(1);
    }
    assert_eq!(world.ca.times("crl"), [60, 120]);
    assert_eq!(world.api.get(Kind::Secret, "ca-ca-crl"), before);
    assert_eq!(events(&world).len(), told, "nothing has happened");
}

#[tokio::test]
async fn n14_the_full_list_is_kept_where_the_ca_has_it() {
    let world = World::told();
    internal(&world, json!({}));
    world.ca.state().full_list = Some(7);
    world.look_at_ca().await.unwrap();
    assert_eq!(crl_number(&world), Some(7));
    assert_eq!(crl_calls(&world), ["full-crl"]);
    // It cannot be had now: the short one does not take its place.
    world.ca.answers("full-crl", 503);
    world.wind(300);
    assert_eq!(world.look_at_ca().await, Ok(after(30)));
    assert_eq!(
        (crl_number(&world), crl_calls(&world)),
        (Some(7), vec!["full-crl".to_owned()])
    );
    world.ca.obeys();
    world.ca.state().full_list = Some(8);
    world.wind(30);
    world.look_at_ca().await.unwrap();
    assert_eq!(crl_number(&world), Some(8));
    // Something in front of it says that there is none: that is not believed, and asked again soon.
    world.ca.state().full_list = None;
    world.ca.state().list = 9;
    crl_calls(&world);
    for _ in 0..2 {
        world.wind(300);
        assert_eq!(world.look_at_ca().await, Ok(after(30)));
        assert_eq!(
            (crl_number(&world), crl_calls(&world)),
            (Some(8), vec!["full-crl".to_owned()])
        );
    }
    assert!(events(&world).contains(&"CRLRefreshFailed".to_owned()));
    // Whoever knows that it is another CA now deletes the Secret.
    world.api.delete(Kind::Secret, "ca-ca-crl");
    world.wind(300);
    world.look_at_ca().await.unwrap();
    assert_eq!(crl_number(&world), Some(9));
}

#[tokio::test]
async fn n14_a_ca_without_a_full_list_is_asked_for_it_once_a_day() {
    let world = World::told();
    internal(&world, json!({}));
    world.look_at_ca().await.unwrap();
    assert_eq!(crl_calls(&world), ["full-crl", "crl"]);
    for _ in 0..287 {
        world.wind(300);
        world.look_at_ca().await.unwrap();
    }
    let calls = crl_calls(&world);
    assert!(
        calls.len() == 287 && calls.iter().all(|it| it == "crl"),
        "{calls:?}"
    );
    world.wind(300);
    world.look_at_ca().await.unwrap();
    assert_eq!(crl_calls(&world), ["full-crl", "crl"]);
    // Another URL, say, may be another CA.
    let spec = json!({"spec": {"crlRefreshInterval": "1h"}});
    world.api.edit(Kind::CertificateAuthority, "ca", &spec);
    world.look_at_ca().await.unwrap();
    assert_eq!(crl_calls(&world), ["full-crl", "crl"]);
}

#[tokio::test]
async fn n14_a_shorter_list_does_not_take_the_place_of_a_later_one() {
    let crl = |ca: &Ca, number: u64| ca.crl(&CrlFacts::good(number, START));
    let other = Ca::root("played CA", keys::p256_b(), START);
    for (case, kept, served, is_kept) in [
        ("an earlier list of the same CA", 5, 3, true),
        ("the same number", 5, 5, false),
        ("a later one", 5, 6, false),
    ] {
        let world = World::told();
        internal(&world, json!({}));
        let before = crl(&world.ca.root, kept);
        world.api.put(
            Kind::Secret,
            secret("ca-ca-crl", &[("ca_crl.pem", &before)]),
        );
        world.ca.state().list = served;
        assert_eq!(world.look_at_ca().await, Ok(after(300)), "{case}");
        let found = world.secret_value("ca-ca-crl", "ca_crl.pem").unwrap();
        assert_eq!(found == before, is_kept, "{case}");
        let told = if is_kept { "False OlderList" } else { "" };
        assert_eq!(is(&world, "CRLRefresh"), told, "{case}");
        assert_eq!(phase(&world), "Ready", "{case}");
        if !is_kept {
            continue;
        }
        assert!(message(&ca(&world), "CRLRefresh").contains("number 5"));
        assert!(events(&world).contains(&"CRLRefreshFailed".to_owned()));
        // Without the Secret there is nothing to be kept.
        world.api.delete(Kind::Secret, "ca-ca-crl");
        world.wind(300);
        world.look_at_ca().await.unwrap();
        assert_eq!(
            (crl_number(&world), is(&world, "CRLRefresh").as_str()),
            (Some(3), "")
        );
    }
    // Another CA counts from the beginning, and what is known to be whole is taken.
    for (case, kept, is_full) in [
        ("of another CA", crl(&other, 5), false),
        ("the full one", crl(&World::told().ca.root, 5), true),
    ] {
        let world = World::told();
        internal(&world, json!({}));
        world
            .api
            .put(Kind::Secret, secret("ca-ca-crl", &[("ca_crl.pem", &kept)]));
        world.ca.state().full_list = is_full.then_some(1);
        world.look_at_ca().await.unwrap();
        assert_eq!(crl_number(&world), Some(1), "{case}");
    }
}

#[tokio::test]
async fn n14_an_interval_is_bounded_and_a_bad_one_is_told() {
    for (interval, pause, is_bad) in [
        (Value::Null, 300, false),
        (json!("1m"), 60, false),
        (json!("1s"), 10, false),
        (json!("-5m"), 300, true),
        (json!("1h30m"), 300, true),
    ] {
        let world = World::told();
        internal(&world, json!({"crlRefreshInterval": interval}));
        assert_eq!(world.look_at_ca().await, Ok(after(pause)), "{interval}");
        let expected = if is_bad { "False InvalidInterval" } else { "" };
        assert_eq!(is(&world, "CRLRefresh"), expected, "{interval}");
        assert_eq!(phase(&world), "Ready", "{interval}");
        world.api.edit(
            Kind::CertificateAuthority,
            "ca",
            &json!({"spec": {"crlRefreshInterval": "2m"}}),
        );
        assert_eq!(world.look_at_ca().await, Ok(after(120)), "{interval}");
        assert_eq!(is(&world, "CRLRefresh"), "", "{interval}");
    }
}

// What is left alone.

#[tokio::test]
async fn a_ca_that_is_paused_or_goes_is_left_alone_and_no_key_with_it() {
    let world = World::told();
    internal(&world, json!({}));
    let paused = |value: Value| json!({"metadata": {"annotations": {"openvox.voxpupuli.org/paused": value}}});
    world
        .api
        .edit(Kind::CertificateAuthority, "ca", &paused(json!("true")));
    assert_eq!(world.look_at_ca().await, Ok(Next::Done));
    assert_eq!(is(&world, "Paused"), "True Paused");
    assert!(world.ca.calls().is_empty());
    assert!(world.api.list(Kind::Secret).is_empty());
    world
        .api
        .edit(Kind::CertificateAuthority, "ca", &paused(Value::Null));
    let key = secret("ca-ca-key", &[("ca_key.pem", "the only one")]);
    world.api.put(Kind::Secret, key);
    let before = world.api.get(Kind::Secret, "ca-ca-key");
    world.look_at_ca().await.unwrap();
    assert_eq!(
        (phase(&world).as_str(), is(&world, "Paused").as_str()),
        ("Ready", "")
    );
    world.settle("ca-operator-signing").await;
    world.api.delete(Kind::CertificateAuthority, "ca");
    assert_eq!(world.look_at_ca().await, Ok(Next::Done));
    // Its Certificate goes with it, without a question: the CA is gone.
    world.ca.calls();
    world.look("ca-operator-signing").await.unwrap();
    assert!(world.api.list(Kind::Certificate).is_empty());
    assert!(world.ca.calls().is_empty());
    assert_eq!(
        world.api.get(Kind::Secret, "ca-ca-key"),
        before,
        "nobody deletes a CA's key"
    );
}

#[tokio::test]
async fn a_certificate_with_the_rights_of_an_administrator_is_asked_for_by_one() {
    let world = World::told();
    internal(&world, json!({}));
    world.look_at_ca().await.unwrap();
    world.settle("ca-operator-signing").await;
    world.look_at_ca().await.unwrap();
    world.ca.state().signs_at_once = false;
    let spec = json!({"csrExtensions": {"ppCliAuth": true, "ppRole": "x"}});
    world.web(spec);
    world.ca.calls();
    world.settle("web").await;
    assert_eq!(
        world.ca.calls(),
        ["fetch web", "create web with an identity", "fetch web"]
    );
    assert_eq!(world.phase("web"), "Signed");
    world.api.edit(
        Kind::Certificate,
        "web",
        &json!({"spec": {"dnsAltNames": ["www"]}}),
    );
    world.settle("web").await;
    assert_eq!(
        world.ca.calls(),
        [
            "fetch web",
            "force web with an identity",
            "create web with an identity",
            "fetch web"
        ]
    );
    world.api.delete(Kind::Certificate, "web");
    world.look("web").await.unwrap();
    assert_eq!(world.ca.calls(), ["force web with an identity"]);
    // Rights that are given and taken away: what is cleaned is what there is, not what is ordered.
    let rights = |has: bool| json!({"spec": {"csrExtensions": {"ppCliAuth": has}}});
    world.certificate("ops", json!({"certname": "ops"}));
    world.settle("ops").await;
    world.ca.calls();
    for (has_rights, cleaned) in [(true, "clean"), (false, "force"), (true, "clean")] {
        let before = world.leaf("ops").serial();
        world
            .api
            .edit(Kind::Certificate, "ops", &rights(has_rights));
        world.settle("ops").await;
        let calls = world.ca.calls();
        let cleaned = format!("{cleaned} ops with an identity");
        assert!(calls.contains(&cleaned), "{has_rights}: {calls:?}");
        assert_eq!(world.phase("ops"), "Signed", "{has_rights}");
        let leaf = world.leaf("ops");
        assert_ne!(leaf.serial(), before, "{has_rights}");
        let is_administrators = leaf.extension(&oid::PP_CLI_AUTH).is_some();
        assert_eq!(is_administrators, has_rights);
    }
    for (case, has_secret, cleaned) in [
        ("with its Secret", true, "force ops with an identity"),
        ("without it", false, "fetch ops force ops with an identity"),
    ] {
        // They are taken away, and it goes before the CA hears of that.
        world.api.edit(Kind::Certificate, "ops", &rights(false));
        if !has_secret {
            world.api.delete(Kind::Secret, "ops-tls");
        }
        world.ca.calls();
        world.api.delete(Kind::Certificate, "ops");
        world.look("ops").await.unwrap();
        assert_eq!(world.ca.calls().join(" "), cleaned, "{case}");
        assert!(!world.ca.state().certificates.contains_key("ops"), "{case}");
        let spec = json!({"certname": "ops", "csrExtensions": {"ppCliAuth": true}});
        world.certificate("ops", spec);
        world.settle("ops").await;
    }
    // Another name: the administrator's is given back.
    let renamed = json!({"spec": {"certname": "ops2", "csrExtensions": null}});
    world.api.edit(Kind::Certificate, "ops", &renamed);
    world.settle("ops").await;
    assert!(!world.ca.state().certificates.contains_key("ops"));
    assert_eq!(world.phase("ops"), "Signed");
    world.ca.calls();
    // A stranger's name stays the stranger's.
    let stranger = world.issued("db", keys::rsa3072(), 300);
    world
        .ca
        .state()
        .certificates
        .insert("db".to_owned(), stranger.clone());
    world.certificate(
        "db",
        json!({"certname": "db", "csrExtensions": {"ppCliAuth": true}}),
    );
    assert_eq!(world.look("db").await, Ok(after(30)));
    assert_eq!(
        (world.phase("db").as_str(), world.signed("db").as_str()),
        ("Error", "False SigningFailed")
    );
    assert_eq!(world.ca.calls(), ["fetch db", "create db with an identity"]);
    world.api.delete(Kind::Certificate, "db");
    world.look("db").await.unwrap();
    assert_eq!(world.ca.state().certificates.get("db"), Some(&stranger));
}

// SigningPolicies.

#[tokio::test]
async fn p01_policies_are_given_to_the_authority_and_taken_back() {
    let world = World::told();
    internal(&world, json!({}));
    policy(
        &world,
        "p1",
        json!({"pattern": {"allow": ["*.example.com"]}}),
    );
    policy(
        &world,
        "p2",
        json!({"csrAttributes": [
            {"name": "pp_preshared_key", "value": "hunter2"}, {"name": "pp_environment", "value": "prod"},
        ]}),
    );
    world.look_at_policies().await.unwrap();
    for name in ["p1", "p2"] {
        assert_eq!(policy_says(&world, name), "Active True PolicyRendered");
    }
    // The operator's role is for the name that it has obtained: before, somebody else may have it.
    assert_eq!(published(&world).unwrap()["operator"], Value::Null);
    world.look_at_ca().await.unwrap();
    world.settle("ca-operator-signing").await;
    world.look_at_policies().await.unwrap();
    let document = published(&world).unwrap();
    assert_eq!(document["operator"], "ca-operator");
    let names: Vec<&Value> = document["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["p1", "p2"]);
    assert_eq!(
        document["policies"][0]["spec"]["pattern"],
        json!({"allow": ["*.example.com"]})
    );
    assert!(
        !document.to_string().contains("hunter2"),
        "no value is shown to anybody: {document}"
    );
    // Unchanged, it is given again only now and then: the authority may have been restored from a backup.
    world.ca.calls();
    for _ in 0..302 {
        world.look_at_policies().await.unwrap();
        world.wind(1);
    }
    assert_eq!(world.ca.times("publish"), [300]);
    // A change is given at once.
    world.api.edit(
        Kind::SigningPolicy,
        "p1",
        &json!({"spec": {"pattern": {"allow": ["*.example.org"]}}}),
    );
    world.look_at_policies().await.unwrap();
    assert_eq!(
        published(&world).unwrap()["policies"][0]["spec"]["pattern"],
        json!({"allow": ["*.example.org"]})
    );
    assert_eq!(policy_says(&world, "p1"), "Active True PolicyRendered");
    // Without policies nothing is signed.
    for name in ["p1", "p2"] {
        world.api.delete(Kind::SigningPolicy, name);
    }
    world.look_at_policies().await.unwrap();
    assert_eq!(published(&world).unwrap()["policies"], json!([]));
}

#[tokio::test]
async fn p03_a_policy_without_its_secret_holds_up_all_and_ends_none() {
    let world = World::told();
    internal(&world, json!({}));
    policy(
        &world,
        "p1",
        json!({"pattern": {"allow": ["*.example.com"]}}),
    );
    world.look_at_policies().await.unwrap();
    let before = published(&world);
    let key = json!({"name": "pp_preshared_key", "valueFrom": {"secretKeyRef": {"name": "psk", "key": "k"}}});
    policy(&world, "p2", json!({"csrAttributes": [key]}));
    policy(
        &world,
        "p3",
        json!({"pattern": {"allow": ["*.example.net"]}}),
    );
    world.ca.calls();
    let pause = seconds(world.look_at_policies().await.unwrap());
    assert!(pause <= 60, "{pause}");
    assert_eq!(
        policy_says(&world, "p1"),
        "Active True PolicyRendered",
        "as before"
    );
    assert_eq!(policy_says(&world, "p2"), "Error False Error");
    assert_eq!(policy_says(&world, "p3"), "Error False NotRendered");
    let object = world.api.get(Kind::SigningPolicy, "p2").unwrap();
    assert!(message(&object, "Ready").contains("psk"));
    assert!(world.ca.calls().is_empty());
    assert_eq!(published(&world), before);
    // A Secret without the key is no better.
    world
        .api
        .put(Kind::Secret, secret("psk", &[("other", "x")]));
    world.look_at_policies().await.unwrap();
    assert_eq!(policy_says(&world, "p2"), "Error False Error");
    world.api.edit(
        Kind::Secret,
        "psk",
        &json!({"data": secret("psk", &[("k", "hunter2")])["data"]}),
    );
    world.look_at_policies().await.unwrap();
    for name in ["p1", "p2", "p3"] {
        assert_eq!(
            policy_says(&world, name),
            "Active True PolicyRendered",
            "{name}"
        );
    }
    let first = published(&world).unwrap();
    assert_eq!(first["policies"].as_array().unwrap().len(), 3);
    assert!(!first.to_string().contains("hunter2"));
    // N17: another value in the Secret is another document.
    world.api.edit(
        Kind::Secret,
        "psk",
        &json!({"data": secret("psk", &[("k", "hunter3")])["data"]}),
    );
    world.look_at_policies().await.unwrap();
    let second = published(&world).unwrap();
    assert_ne!(first, second);
    // The Secret goes: what was given stays in force.
    world.api.delete(Kind::Secret, "psk");
    world.look_at_policies().await.unwrap();
    assert_eq!(policy_says(&world, "p2"), "Error False Error");
    assert_eq!(policy_says(&world, "p1"), "Active True PolicyRendered");
    assert_eq!(published(&world), Some(second));
}

#[tokio::test]
async fn n17_an_authority_that_does_not_take_the_policies_keeps_those_that_it_has() {
    for answer in [0, 403] {
        let world = World::told();
        internal(&world, json!({}));
        policy(
            &world,
            "p1",
            json!({"pattern": {"allow": ["*.example.com"]}}),
        );
        world.look_at_policies().await.unwrap();
        policy(
            &world,
            "p2",
            json!({"pattern": {"allow": ["*.example.org"]}}),
        );
        world.ca.answers("publish", answer);
        let pause = seconds(world.look_at_policies().await.unwrap());
        assert!(pause <= 60, "{answer}: {pause}");
        assert_eq!(
            policy_says(&world, "p1"),
            "Active True PolicyRendered",
            "{answer}"
        );
        assert_eq!(
            policy_says(&world, "p2"),
            "Error False NotRendered",
            "{answer}"
        );
        world.ca.obeys();
        world.look_at_policies().await.unwrap();
        assert_eq!(
            policy_says(&world, "p2"),
            "Active True PolicyRendered",
            "{answer}"
        );
    }
}

#[tokio::test]
async fn policies_of_a_ca_that_is_elsewhere_or_gone_are_not_in_force() {
    let world = World::told();
    policy(&world, "p1", json!({"any": true}));
    world.look_at_policies().await.unwrap();
    assert_eq!(
        policy_says(&world, "p1"),
        "Error False CertificateAuthorityNotFound"
    );
    internal(&world, json!({}));
    world.look_at_policies().await.unwrap();
    assert_eq!(policy_says(&world, "p1"), "Active True PolicyRendered");
    assert_eq!(
        published(&world).unwrap()["policies"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let far = json!({"spec": {"external": {"url": "https://far:8140"}}});
    world.api.edit(Kind::CertificateAuthority, "ca", &far);
    world.look_at_policies().await.unwrap();
    assert_eq!(policy_says(&world, "p1"), "Error False ExternalCA");
    assert_eq!(published(&world).unwrap()["policies"], json!([]));
    world.api.edit(
        Kind::CertificateAuthority,
        "ca",
        &json!({"spec": {"external": null}}),
    );
    world.look_at_policies().await.unwrap();
    assert_eq!(policy_says(&world, "p1"), "Active True PolicyRendered");
    assert_eq!(
        published(&world).unwrap()["policies"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    world.api.delete(Kind::CertificateAuthority, "ca");
    world.ca.answers("publish", 503);
    assert_eq!(
        world.look_at_policies().await,
        Ok(after(10)),
        "it is tried again"
    );
    world.ca.obeys();
    world.look_at_policies().await.unwrap();
    assert_eq!(
        policy_says(&world, "p1"),
        "Error False CertificateAuthorityNotFound"
    );
    assert_eq!(published(&world).unwrap()["policies"], json!([]));
    world.ca.calls();
    assert_eq!(world.look_at_policies().await, Ok(Next::Done));
    assert!(world.ca.calls().is_empty());
}

#[tokio::test]
async fn policies_of_a_ca_in_the_cluster_are_rendered_into_a_secret() {
    let world = World::new();
    internal(&world, json!({}));
    world.look_at_policies().await.unwrap();
    assert_eq!(
        rendered(&world),
        json!({"policies": []}),
        "nothing is signed"
    );
    policy(
        &world,
        "yes",
        json!({"certnames": {"allow": ["*.example.com"]}}),
    );
    let key = json!({"name": "pp_preshared_key", "valueFrom": {"secretKeyRef": {"name": "psk", "key": "k"}}});
    policy(&world, "p2", json!({"csrAttributes": [key]}));
    world.look_at_policies().await.unwrap();
    assert_eq!(
        rendered(&world),
        json!({"policies": []}),
        "as long as one cannot be used"
    );
    assert_eq!(policy_says(&world, "p2"), "Error False Error");
    world
        .api
        .put(Kind::Secret, secret("psk", &[("k", "a: \"b\"\n- c")]));
    world.look_at_policies().await.unwrap();
    assert_eq!(
        rendered(&world),
        json!({"policies": [
            {"name": "p2", "csrAttributes": [{"name": "pp_preshared_key", "value": "a: \"b\"\n- c"}]},
            {"name": "yes", "pattern": {"allow": ["*.example.com"]}},
        ]})
    );
    for name in ["yes", "p2"] {
        assert_eq!(policy_says(&world, name), "Active True PolicyRendered");
    }
    let found = world.api.get(Kind::Secret, "ca-autosign-policy").unwrap();
    assert_eq!(
        found["metadata"]["ownerReferences"][0]["uid"],
        ca(&world)["metadata"]["uid"]
    );
    world.api.history();
    world.look_at_policies().await.unwrap();
    assert!(world.api.history().is_empty());
    assert!(world.ca.calls().is_empty());
}

#[tokio::test]
async fn policies_that_another_operator_renders_are_left_to_it() {
    let world = World::new();
    internal(&world, json!({}));
    policy(&world, "p1", json!({"any": true}));
    let mut found = secret(
        "ca-autosign-policy",
        &[("autosign-policy.yaml", "policies: []\n")],
    );
    found["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "openvox.voxpupuli.org/v1alpha1", "kind": "Config", "name": "prod", "uid": "c", "controller": true,
    }]);
    world.api.put(Kind::Secret, found);
    world.api.history();
    assert_eq!(world.look_at_policies().await, Ok(Next::Done));
    assert!(
        world.api.history().is_empty(),
        "neither the Secret nor what a policy says of itself"
    );
    world.api.delete(Kind::Secret, "ca-autosign-policy");
    world.look_at_policies().await.unwrap();
    assert_eq!(
        rendered(&world),
        json!({"policies": [{"name": "p1", "any": true}]})
    );
    assert_eq!(policy_says(&world, "p1"), "Active True PolicyRendered");
}

#[tokio::test]
async fn the_operators_own_certificate_is_renewed_like_any_other() {
    let world = World::told();
    internal(&world, json!({}));
    world.look_at_ca().await.unwrap();
    world.settle("ca-operator-signing").await;
    world.look_at_ca().await.unwrap();
    world.wind(330 * DAY);
    world.ca.answers("renew", 503);
    world.look("ca-operator-signing").await.unwrap();
    assert_eq!(world.phase("ca-operator-signing"), "Renewing");
    world.look_at_ca().await.unwrap();
    assert_eq!(
        is(&world, "OperatorSigningReady"),
        "True OperatorSigningReady",
        "it is still valid"
    );
    world.ca.obeys();
    world.wind(15);
    world.look("ca-operator-signing").await.unwrap();
    assert_eq!(world.phase("ca-operator-signing"), "Signed");
    assert_eq!(
        world.leaf("ca-operator-signing").not_after(),
        UnixTime(START.0 + 330 * DAY + 15 + 365 * DAY)
    );
}

fn internal(world: &World, spec: Value) {
    world.api.put(
        Kind::CertificateAuthority,
        json!({"metadata": {"name": "ca"}, "spec": spec}),
    );
}

fn external(world: &World) {
    internal(
        world,
        json!({"external": {"url": "https://far:8140", "caSecretRef": "trust"}}),
    );
}

fn ca(world: &World) -> Value {
    world.api.get(Kind::CertificateAuthority, "ca").unwrap()
}

fn phase(world: &World) -> String {
    ca(world)["status"]["phase"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn is(world: &World, kind: &str) -> String {
    condition(&ca(world), kind)
}

/// The reasons of all Events, in order.
fn events(world: &World) -> Vec<String> {
    let events = world.api.events().into_iter();
    events
        .filter_map(|it| it.split(' ').next().map(str::to_owned))
        .collect()
}

/// The number of the list in the CA's Secret.
fn crl_number(world: &World) -> Option<u64> {
    let text = world.secret_value("ca-ca-crl", "ca_crl.pem")?;
    let block = pem::decode_first(text.as_bytes(), &pem::PemLimits::BUNDLE)
        .unwrap()
        .unwrap();
    Crl::parse(&block.der).unwrap().number()
}

/// The calls for lists since the last time that somebody asked.
fn crl_calls(world: &World) -> Vec<String> {
    let calls = world.ca.calls().into_iter();
    let calls = calls.map(|it| it.trim_end().to_owned());
    calls.filter(|it| it.ends_with("crl")).collect()
}

fn world_root(world: &World) -> String {
    world.ca.root.certificate.to_pem()
}

fn other_root() -> String {
    Ca::root("other", keys::p256_b(), START)
        .certificate
        .to_pem()
}

fn policy(world: &World, name: &str, spec: Value) {
    let mut spec = spec;
    spec["certificateAuthorityRef"] = json!("ca");
    world.api.put(
        Kind::SigningPolicy,
        json!({"metadata": {"name": name}, "spec": spec}),
    );
}

/// Its phase and its condition.
fn policy_says(world: &World, name: &str) -> String {
    let object = world.api.get(Kind::SigningPolicy, name).unwrap();
    let phase = object["status"]["phase"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    format!("{phase} {}", condition(&object, "Ready"))
}

/// The document that the authority has of the CA's policies.
fn published(world: &World) -> Option<Value> {
    let state = world.ca.state();
    state
        .published
        .get("/enrol/v1/signing-policies/ns/ca")
        .cloned()
}

fn rendered(world: &World) -> Value {
    let text = world
        .secret_value("ca-autosign-policy", "autosign-policy.yaml")
        .unwrap();
    serde_saphyr::from_str(&text).unwrap()
}
