//! What the server tells about itself.

use countersign_authority::store::StoreFault;
use serde_json::{Value, json};

use super::{Api, CSRS, manifest};

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                  application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
const V2BETA1: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

const SPEC_V2: &str = "#/definitions/io.k8s.api.certificates.v1.CertificateSigningRequestSpec";

#[tokio::test]
async fn discovery_comes_in_both_forms() {
    let api = Api::start().await;
    for accept in ["application/json", V2BETA1, "*/*"] {
        for (path, kind) in [
            ("/api?timeout=32s", "APIVersions"),
            ("/apis?timeout=32s", "APIGroupList"),
        ] {
            let reply = api.call("GET", path).header("accept", accept).send().await;
            assert_eq!(reply.header("content-type"), "application/json", "{accept}");
            assert_eq!(reply.ok()["kind"], kind, "{accept}");
        }
    }
    for path in ["/api", "/apis"] {
        let reply = api.call("GET", path).header("accept", V2).send().await;
        let media_type = reply.header("content-type").to_owned();
        for part in ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"] {
            assert!(media_type.split(';').any(|p| p == part), "{media_type}");
        }
        assert_eq!(reply.ok()["kind"], "APIGroupDiscoveryList");
    }
    let aggregated = api
        .call("GET", "/apis")
        .header("accept", V2)
        .send()
        .await
        .ok();
    let resource = &aggregated["items"][0]["versions"][0]["resources"][0];
    assert_eq!(resource["resource"], "certificatesigningrequests");
    assert_eq!(resource["shortNames"], json!(["csr"]));
    let group = api.get("/apis/certificates.k8s.io").await.ok();
    assert_eq!(
        group["preferredVersion"]["groupVersion"],
        "certificates.k8s.io/v1"
    );
    let list = api.get("/apis/certificates.k8s.io/v1").await.ok();
    assert_eq!(list["resources"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn every_group_that_is_listed_is_served() {
    let api = Api::start().await;
    let groups = api.get("/apis").await.ok();
    for group in groups["groups"].as_array().unwrap() {
        let name = group["name"].as_str().unwrap();
        api.get(&format!("/apis/{name}")).await.ok();
        let version = group["preferredVersion"]["groupVersion"].as_str().unwrap();
        let resources = api.get(&format!("/apis/{version}")).await.ok();
        for resource in resources["resources"].as_array().unwrap() {
            check_verbs(&api, version, resource).await;
        }
    }
}

/// A verb that is listed is served, and one that is not listed is not.
async fn check_verbs(api: &Api, version: &str, resource: &Value) {
    let name = resource["name"].as_str().unwrap();
    let (name, subresource) = name.split_once('/').unwrap_or((name, ""));
    let place = match resource["namespaced"] == true {
        true => "namespaces/default/",
        false => "",
    };
    let collection = format!("/apis/{version}/{place}{name}");
    let object = match subresource {
        "" => format!("{collection}/verbs"),
        part => format!("{collection}/verbs/{part}"),
    };
    let watch = format!("{collection}?watch=true&timeoutSeconds=1");
    let all = [
        ("create", "POST", &collection),
        ("delete", "DELETE", &object),
        ("deletecollection", "DELETE", &collection),
        ("get", "GET", &object),
        ("list", "GET", &collection),
        ("patch", "PATCH", &object),
        ("update", "PUT", &object),
        ("watch", "GET", &watch),
    ];
    for (verb, method, path) in all {
        if !subresource.is_empty() && !path.starts_with(&object) {
            continue;
        }
        // The one before may have deleted it.
        let manifest = match version.split('.').next().unwrap() {
            "rbac" => {
                json!({"metadata": {"name": "verbs"}, "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}})
            }
            "coordination" => json!({"metadata": {"name": "verbs"}}),
            "events" => {
                json!({"metadata": {"name": "verbs"}, "type": "Normal", "action": "a", "reason": "r",
                    "eventTime": "2026-01-02T03:04:05.000000Z", "reportingController": "c",
                    "reportingInstance": "i"})
            }
            _ => manifest("verbs"),
        };
        let _there = api.call("POST", &collection).json(&manifest).send().await;
        let media_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = match method {
            "GET" | "DELETE" => "",
            _ => "{}",
        };
        let call = api.call(method, path).body(media_type, body);
        let status = call.send().await.status.as_u16();
        let is_listed = resource["verbs"].as_array().unwrap().contains(&verb.into());
        let is_served = !matches!(status, 404 | 405);
        assert_eq!(is_listed, is_served, "{verb} {path}: {status}");
    }
}

#[tokio::test]
async fn openapi_promises_what_discovery_does() {
    let api = Api::start().await;
    let document = "/openapi/v3/apis/certificates.k8s.io/v1";
    let document: Value = api.get(document).await.ok();
    let methods = |path: &str| -> Vec<String> {
        let item = document["paths"][path].as_object().unwrap();
        let methods = item.keys().filter(|key| *key != "parameters");
        methods.cloned().collect()
    };
    let object = format!("{CSRS}/{{name}}");
    assert_eq!(methods(CSRS), ["delete", "get", "post"]);
    assert_eq!(methods(&object), ["delete", "get", "patch", "put"]);
    for part in ["approval", "status"] {
        assert_eq!(
            methods(&format!("{object}/{part}")),
            ["get", "patch", "put"]
        );
    }
    let parameters = document["paths"][CSRS]["get"]["parameters"].as_array();
    let is_watch = |parameter: &Value| parameter["name"] == "watch";
    assert!(parameters.unwrap().iter().any(is_watch));
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_not_ready_and_nobody_learns_why() {
    let api = Api::start().await;
    api.world.store.set(Some(|| StoreFault::Full));
    let call = api.call("GET", "/readyz").from(&api.world.anonymous());
    let reply = call.send().await;
    assert_eq!(reply.status, 503);
    assert_eq!(
        &*reply.body,
        b"the authority cannot use its store at the moment".as_slice()
    );
    let alive = api.call("GET", "/livez").from(&api.world.anonymous());
    assert_eq!(alive.send().await.status, 200);
}

#[tokio::test]
async fn openapi_is_what_kubectl_needs() {
    let api = Api::start().await;
    let document: Value = api.get("/openapi/v2?timeout=32s").await.ok();
    assert_eq!(document["swagger"], "2.0");
    let definition =
        &document["definitions"]["io.k8s.api.certificates.v1.CertificateSigningRequest"];
    assert_eq!(definition["properties"]["spec"]["$ref"], SPEC_V2);
    // What kubectl asks for up to 1.26 and beyond.
    let asked = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let reply = api.call("GET", "/openapi/v2").header("accept", asked);
    let reply = reply.send().await;
    assert!(reply.body.starts_with(b"\x0a\x032.0"), "{reply:?}");
    assert_eq!(
        reply.header("content-type"),
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    );
    let index = api.get("/openapi/v3").await.ok();
    let url = index["paths"]["apis/certificates.k8s.io/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    let reply = api.get(url).await;
    assert!(!reply.header("etag").is_empty());
    let document: Value = reply.ok();
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}";
    let patch = &document["paths"][path]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"]["kind"],
        "CertificateSigningRequest"
    );
    assert!(
        patch["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .any(|p| p["name"] == "fieldValidation")
    );
}

#[tokio::test]
async fn health_and_version_are_plain() {
    let api = Api::start().await;
    for path in ["/healthz", "/livez", "/readyz"] {
        let reply = api
            .call("GET", path)
            .from(&api.world.anonymous())
            .send()
            .await;
        assert_eq!(
            (reply.status.as_u16(), &*reply.body),
            (200, b"ok".as_slice()),
            "{path}"
        );
        assert!(
            reply.header("content-type").starts_with("text/plain"),
            "{path}"
        );
    }
    let version = api.get("/version?timeout=32s").await.ok();
    assert_eq!(
        (&version["major"], &version["minor"]),
        (&json!("1"), &json!("36"))
    );
    for field in [
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ] {
        assert!(version[field].is_string(), "{field}");
    }
}

#[tokio::test]
async fn unknown_paths_answer_as_the_reference() {
    let api = Api::start().await;
    let status = api
        .get("/apis/certificates.k8s.io/v1/clustertrustbundles")
        .await
        .refuses(404, "NotFound");
    assert_eq!(
        status["message"],
        "the server could not find the requested resource"
    );
    let reply = api.get("/apis/apps/v1").await;
    assert_eq!(
        (reply.status.as_u16(), &*reply.body),
        (404, b"404 page not found\n".as_slice())
    );
    api.get("/apis/certificates.k8s.io/v1/certificatesigningrequests/a/b")
        .await
        .refuses(404, "NotFound");
}

/// OpenAPI of Kubernetes spells paths with a slash at their end, and clients that are made from it do, too.
#[tokio::test]
async fn a_slash_at_the_end_changes_nothing() {
    let api = Api::start().await;
    for path in [
        "/version",
        "/api",
        "/apis",
        "/apis/certificates.k8s.io",
        "/apis/certificates.k8s.io/v1",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ] {
        let (plain, slashed) = (api.get(path).await, api.get(&format!("{path}/")).await);
        assert_eq!(plain.status, 200, "{path}");
        assert_eq!(
            (slashed.status, slashed.body),
            (plain.status, plain.body),
            "{path}"
        );
    }
}

#[tokio::test]
async fn clients_may_ask_who_they_are() {
    let api = Api::start().await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let body = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let reply = api.call("POST", path).json(&body).send().await;
    assert_eq!(reply.status, 201, "{reply:?}");
    let user = reply.value()["status"]["userInfo"].clone();
    assert_eq!(user["username"], "kubernetes-admin");
    assert_eq!(
        user["groups"],
        json!(["system:masters", "system:authenticated"])
    );
    let long = format!("{body}{}", " ".repeat(256 * 1024));
    let reply = api.call("POST", path).body("application/json", long);
    reply.send().await.refuses(413, "RequestEntityTooLarge");
}
