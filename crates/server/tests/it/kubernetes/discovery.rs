//! What the server tells about itself.

use serde_json::{Value, json};

use super::Api;

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                  application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
const V2BETA1: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

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
        api.get(&format!("/apis/{version}")).await.ok();
    }
}

#[tokio::test]
async fn openapi_is_what_kubectl_needs() {
    let api = Api::start().await;
    let reply = api.get("/openapi/v2?timeout=32s").await;
    assert_eq!((reply.status.as_u16(), reply.body.len()), (200, 0));
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
}
