//! Who is let in, and to what.

use countersign_authority::Actor;
use countersign_pki::{Certificate, RevocationReason};
use countersign_server::{KnownClient, Peer};
use countersign_testkit::csr::CsrBuilder;
use serde_json::json;

use super::{Api, CSRS, approval_of, manifest, manifest_of, path_of};
use crate::world::{CUSTOM, KUBE_CLIENT, KUBERNETES_ADMIN, PUPPET_ADMIN, signer_name};

#[tokio::test]
async fn paths_and_senders_form_this_matrix() {
    let api = Api::start().await;
    let object = api.create(&manifest("a")).await;
    let user = api
        .world
        .client(
            KUBE_CLIENT,
            "jane",
            &CsrBuilder::new("jane").organization("dev"),
        )
        .await;
    let anonymous = api.world.anonymous();
    let (one, approval) = (path_of(&object), approval_of(&object));
    let status = format!("{one}/status");
    // Method, path, then the code for nobody, a user, an administrator.
    let rows = [
        ("GET", "/healthz", 200, 200, 200),
        ("GET", "/livez", 200, 200, 200),
        ("GET", "/readyz", 200, 200, 200),
        ("GET", "/version", 200, 200, 200),
        ("GET", "/api", 403, 200, 200),
        ("GET", "/apis", 403, 200, 200),
        ("GET", "/apis/certificates.k8s.io", 403, 200, 200),
        ("GET", "/apis/certificates.k8s.io/v1", 403, 200, 200),
        ("GET", "/apis/authentication.k8s.io", 403, 200, 200),
        ("GET", "/apis/authentication.k8s.io/v1", 403, 200, 200),
        ("GET", "/openapi/v2", 403, 200, 200),
        ("GET", "/openapi/v3", 403, 200, 200),
        (
            "GET",
            "/openapi/v3/apis/certificates.k8s.io/v1",
            403,
            200,
            200,
        ),
        ("GET", "/nothing", 403, 403, 404),
        ("GET", "/api/v1/pods", 403, 403, 404),
        (
            "GET",
            "/apis/certificates.k8s.io/v1/clustertrustbundles",
            403,
            403,
            404,
        ),
        ("GET", CSRS, 403, 403, 200),
        ("GET", &one, 403, 403, 200),
        ("GET", &approval, 403, 403, 200),
        ("GET", &status, 403, 403, 200),
        ("POST", CSRS, 403, 403, 400),
        ("PUT", &one, 403, 403, 400),
        ("PATCH", &one, 403, 403, 415),
        ("PUT", &approval, 403, 403, 400),
        ("PATCH", &approval, 403, 403, 415),
        ("PUT", &status, 403, 403, 400),
        ("PATCH", &status, 403, 403, 415),
        ("POST", &status, 403, 403, 405),
        ("DELETE", &status, 403, 403, 405),
        ("POST", &one, 403, 403, 405),
        ("DELETE", &approval, 403, 403, 405),
        ("DELETE", &one, 403, 403, 200),
        ("DELETE", CSRS, 403, 403, 200),
    ];
    for (method, path, nobody, known, admin) in rows {
        for (who, peer, code) in [
            ("nobody", &anonymous, nobody),
            ("user", &user, known),
            ("admin", &api.admin, admin),
        ] {
            let reply = api.call(method, path).from(peer).send().await;
            assert_eq!(
                reply.status.as_u16(),
                code,
                "{who} {method} {path}: {reply:?}"
            );
            match code {
                401 => drop(reply.refuses(401, "Unauthorized")),
                403 => drop(reply.refuses(403, "Forbidden")),
                405 => drop(reply.refuses(405, "MethodNotAllowed")),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn refusals_are_worded_as_access_rules_word_them() {
    let api = Api::start().await;
    let user = api
        .world
        .client(
            KUBE_CLIENT,
            "jane",
            &CsrBuilder::new("jane").organization("dev"),
        )
        .await;
    let rows = [
        ("GET", CSRS.to_owned(), "", "list", ""),
        ("GET", format!("{CSRS}?watch=true"), "", "watch", ""),
        (
            "GET",
            format!("{CSRS}?fieldSelector=metadata.name%3Dn"),
            "n",
            "list",
            "",
        ),
        ("GET", format!("{CSRS}/n"), "n", "get", ""),
        ("PUT", format!("{CSRS}/n"), "n", "update", ""),
        ("PATCH", format!("{CSRS}/n"), "n", "patch", ""),
        ("DELETE", format!("{CSRS}/n"), "n", "delete", ""),
        ("DELETE", CSRS.to_owned(), "", "deletecollection", ""),
        (
            "PUT",
            format!("{CSRS}/n/approval"),
            "n",
            "update",
            "/approval",
        ),
        (
            "PATCH",
            format!("{CSRS}/n/approval"),
            "n",
            "patch",
            "/approval",
        ),
        ("GET", format!("{CSRS}/n/status"), "n", "get", "/status"),
    ];
    for (method, path, name, verb, subresource) in rows {
        let reply = api.call(method, &path).from(&user).send().await;
        let status = reply.refuses(403, "Forbidden");
        let named = if name.is_empty() {
            String::new()
        } else {
            format!(" \"{name}\"")
        };
        assert_eq!(
            status["message"],
            format!(
                "certificatesigningrequests.certificates.k8s.io{named} is forbidden: User \"jane\" cannot {verb} resource \
                 \"certificatesigningrequests{subresource}\" in API group \"certificates.k8s.io\" at the cluster scope"
            )
        );
    }
}

/// A certificate of the ledger, said to be of this signer.
async fn known(api: &Api, name: &str, signer: &str) -> KnownClient {
    let issuer = api.world.kubernetes_issuer();
    let entry = api
        .world
        .authority
        .ledger
        .newest(&issuer, name)
        .await
        .unwrap()
        .unwrap();
    let certificate = Certificate::parse(&entry.der).unwrap();
    KnownClient {
        issuer,
        signer: signer_name(signer),
        certificate,
    }
}

#[tokio::test]
async fn invariant_10_a_certificate_of_another_trust_domain_is_no_identity() {
    let api = Api::start().await;
    let masters = CsrBuilder::new("countersign-admin").organization("system:masters");
    let puppet = [
        api.world.puppet_agent("web01.example.com").await,
        api.world.puppet_admin().await,
        api.world
            .client(PUPPET_ADMIN, "countersign-admin", &masters)
            .await,
    ];
    for peer in &puppet {
        api.call("GET", CSRS)
            .from(peer)
            .send()
            .await
            .refuses(401, "Unauthorized");
        api.call("GET", "/apis")
            .from(peer)
            .send()
            .await
            .refuses(401, "Unauthorized");
    }
    // The right signer's name under another issuer is not enough either.
    let mut foreign = known(&api, "kubernetes-admin", KUBERNETES_ADMIN).await;
    foreign.issuer = api.world.puppet_issuer();
    let foreign = Peer::with_client(api.admin.address, foreign);
    api.call("GET", CSRS)
        .from(&foreign)
        .send()
        .await
        .refuses(401, "Unauthorized");
}

#[tokio::test]
async fn only_signers_of_clients_make_identities() {
    let api = Api::start().await;
    let rows = [
        (KUBERNETES_ADMIN, 200),
        (KUBE_CLIENT, 200),
        ("kubernetes.io/kube-apiserver-client-kubelet", 200),
        ("kubernetes.io/kubelet-serving", 401),
        ("countersign.dev/kubernetes-server", 401),
        (CUSTOM, 401),
    ];
    for (signer, code) in rows {
        let client = known(&api, "kubernetes-admin", signer).await;
        let peer = Peer::with_client(api.admin.address, client);
        let reply = api.call("GET", CSRS).from(&peer).send().await;
        assert_eq!(reply.status.as_u16(), code, "{signer}: {reply:?}");
    }
}

#[tokio::test]
async fn revoked_and_ended_certificates_lose_their_identity_at_once() {
    let api = Api::start().await;
    let issuer = api.world.kubernetes_issuer();
    let other = CsrBuilder::new("second").organization("system:masters");
    let second = api.world.client(KUBERNETES_ADMIN, "second", &other).await;
    api.call("GET", CSRS).from(&second).send().await.ok();
    let reason = RevocationReason::KeyCompromise;
    let actor = Actor::authority();
    api.world
        .authority
        .ledger
        .revoke_name(&issuer, "second", reason, &actor)
        .await
        .unwrap();
    api.call("GET", CSRS)
        .from(&second)
        .send()
        .await
        .refuses(401, "Unauthorized");
    api.get(CSRS).await.ok();
    api.world.clock.advance(366 * 86_400);
    api.get(CSRS).await.refuses(401, "Unauthorized");
}

#[tokio::test]
async fn nobody_impersonates() {
    let api = Api::start().await;
    for header in [
        "Impersonate-User",
        "Impersonate-Group",
        "Impersonate-Uid",
        "Impersonate-Extra-Scopes",
    ] {
        let reply = api.call("GET", CSRS).header(header, "bob").send().await;
        let status = reply.refuses(403, "Forbidden");
        assert_eq!(
            status["message"],
            "users \"bob\" is forbidden: User \"kubernetes-admin\" cannot impersonate resource \"users\" \
             in API group \"\" at the cluster scope"
        );
    }
}

#[tokio::test]
async fn no_request_makes_an_administrator() {
    let api = Api::start().await;
    let masters = CsrBuilder::new("eve")
        .organization("dev")
        .organization("system:masters");
    let reply = api
        .call("POST", CSRS)
        .json(&manifest_of("eve", &masters))
        .send()
        .await;
    let status = reply.refuses(403, "Forbidden");
    assert_eq!(
        status["message"],
        "certificatesigningrequests.certificates.k8s.io \"eve\" is forbidden: use of \
         kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    );
    // Signers whose profile relies on an administrator's word are out of reach.
    for signer in [
        KUBERNETES_ADMIN,
        "countersign.dev/puppet-agent",
        "countersign.dev/anything",
    ] {
        let mut object = manifest_of("eve", &masters);
        object["spec"]["signerName"] = json!(signer);
        api.call("POST", CSRS)
            .json(&object)
            .send()
            .await
            .refuses(403, "Forbidden");
    }
    assert!(api.record("eve").await.is_none());
    // Another signer's certificate is no identity, so its subject is its own business.
    let mut object = manifest_of("eve", &masters);
    object["spec"]["signerName"] = json!("example.org/vpn");
    api.create(&object).await;
}

#[tokio::test]
async fn addresses_are_recorded_in_one_spelling() {
    let api = Api::start().await;
    let mut peer = api.admin.clone();
    peer.address = "[::ffff:192.0.2.7]:40000".parse().unwrap();
    let call = api.call("POST", CSRS).from(&peer).json(&manifest("mapped"));
    assert_eq!(call.send().await.status, 201);
    let record = api.record("mapped").await.unwrap();
    assert_eq!(record.requester.source, Some("192.0.2.7".parse().unwrap()));
}
