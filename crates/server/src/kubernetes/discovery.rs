//! What the server says about itself: health, version, discovery and OpenAPI.

use std::sync::LazyLock;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use countersign_kapi::discovery::{
    self, AGGREGATED_CONTENT_TYPE, AUTHENTICATION, AUTHORIZATION, ApiGroup, CERTIFICATES, RBAC,
};
use countersign_kapi::negotiate::{self, DiscoveryForm};
use countersign_kapi::rbac::Attributes;
use countersign_kapi::{Status, openapi};
use http::header::ETAG;
use http::{HeaderValue, Method, StatusCode, Uri};
use serde_json::{Value, json};
use tracing::warn;

use super::KubernetesDoor;
use super::answer::{Answer, json as json_answer, response, text, typed_json};
use super::call::Call;
use super::identity::User;
use crate::readiness::{self, CANNOT_STORE};

/// `GET /healthz`, `/livez`: the process answers.
pub(super) async fn alive() -> Response {
    text(StatusCode::OK, "ok")
}

/// `GET /readyz`: the store answers too; keys and revocations were loaded before the door opened.
pub(super) async fn ready(State(door): State<KubernetesDoor>) -> Response {
    match readiness::probe(&door.authority).await {
        Ok(()) if !door.caches().are_fed().await => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "the objects are not loaded",
        ),
        Ok(()) => text(StatusCode::OK, "ok"),
        Err(fault) => {
            warn!(%fault, "the store does not answer");
            text(StatusCode::SERVICE_UNAVAILABLE, CANNOT_STORE)
        }
    }
}

/// `GET /version`: the version of Kubernetes whose behaviour this is, and ours behind the plus sign.
pub(super) async fn version() -> Answer {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json_answer(
        StatusCode::OK,
        &json!({
            "major": "1",
            "minor": "36",
            "gitVersion": concat!("v1.36.0+countersign-", env!("CARGO_PKG_VERSION")),
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "rustc",
            "platform": format!("{}/{architecture}", std::env::consts::OS),
        }),
    )
}

/// `GET /api`: there is no core group. It takes the form of `/apis`, else clients trust neither.
pub(super) async fn core(call: Call) -> Answer {
    groups_in_form(&call, &[], discovery::core_versions)
}

/// `GET /apis`.
pub(super) async fn groups(call: Call) -> Answer {
    groups_in_form(&call, &GROUPS, || discovery::group_list(&GROUPS))
}

/// `GET /apis/certificates.k8s.io`.
pub(super) async fn group() -> Answer {
    json_answer(StatusCode::OK, &CERTIFICATES.document())
}

/// `GET /apis/certificates.k8s.io/v1`.
pub(super) async fn resources() -> Answer {
    json_answer(StatusCode::OK, &CERTIFICATES.resource_list())
}

/// `GET /apis/authentication.k8s.io`.
pub(super) async fn authentication_group() -> Answer {
    json_answer(StatusCode::OK, &AUTHENTICATION.document())
}

/// `GET /apis/authentication.k8s.io/v1`.
pub(super) async fn authentication_resources() -> Answer {
    json_answer(StatusCode::OK, &AUTHENTICATION.resource_list())
}

/// `GET /apis/authorization.k8s.io`.
pub(super) async fn authorization_group() -> Answer {
    json_answer(StatusCode::OK, &AUTHORIZATION.document())
}

/// `GET /apis/authorization.k8s.io/v1`.
pub(super) async fn authorization_resources() -> Answer {
    json_answer(StatusCode::OK, &AUTHORIZATION.resource_list())
}

/// `GET /apis/rbac.authorization.k8s.io`.
pub(super) async fn rbac_group() -> Answer {
    json_answer(StatusCode::OK, &RBAC.document())
}

/// `GET /apis/rbac.authorization.k8s.io/v1`.
pub(super) async fn rbac_resources() -> Answer {
    json_answer(StatusCode::OK, &RBAC.resource_list())
}

/// `GET /openapi/v2`: an empty document satisfies the clients that insist on one. They cannot parse
/// the media type they ask for, so the answer's is written without its `@`.
pub(super) async fn openapi_v2() -> Response {
    response(StatusCode::OK, OPENAPI_V2, Vec::new())
}

/// `GET /openapi/v3`.
pub(super) async fn openapi_v3() -> Answer {
    let documents = OPENAPI.iter().map(|it| (&it.group, it.hash.as_str()));
    json_answer(StatusCode::OK, &openapi::index(documents))
}

/// `GET /openapi/v3/apis/{group}/{version}`.
pub(super) async fn openapi_document(Path((group, version)): Path<(String, String)>) -> Answer {
    let is_asked = |it: &&OpenApi| (it.group.name, it.group.version) == (&*group, &*version);
    let Some(OpenApi { document, hash, .. }) = OPENAPI.iter().find(is_asked) else {
        return Ok(text(StatusCode::NOT_FOUND, "404 page not found\n"));
    };
    let mut response = response(StatusCode::OK, "application/json", document.clone());
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{hash}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

/// Any path that is not served: a `Status` below a served group, plain text elsewhere. Who may not ask is told only that.
pub(super) async fn unknown_path(
    State(door): State<KubernetesDoor>,
    Extension(user): Extension<User>,
    method: Method,
    uri: Uri,
) -> Answer {
    let asked = Attributes::of_request(method.as_str(), uri.path(), false);
    door.authorize(&user, &asked)?;
    let served = |group: &ApiGroup| {
        let prefix = format!("/apis/{}/", group.name);
        uri.path().starts_with(&prefix)
    };
    match GROUPS.iter().any(served) {
        true => Err(Status::path_not_found().into()),
        false => Ok(text(StatusCode::NOT_FOUND, "404 page not found\n")),
    }
}

/// A served path, another method.
pub(super) async fn wrong_method(
    State(door): State<KubernetesDoor>,
    Extension(user): Extension<User>,
    method: Method,
    uri: Uri,
) -> Answer {
    let asked = Attributes::of_request(method.as_str(), uri.path(), false);
    door.authorize(&user, &asked)?;
    Err(Status::method_not_allowed().into())
}

fn groups_in_form(call: &Call, groups: &[ApiGroup], legacy: impl Fn() -> Value) -> Answer {
    match negotiate::discovery_form(call.accept()) {
        DiscoveryForm::Legacy => json_answer(StatusCode::OK, &legacy()),
        DiscoveryForm::Aggregated => typed_json(
            StatusCode::OK,
            &discovery::aggregated(groups),
            AGGREGATED_CONTENT_TYPE,
        ),
    }
}

struct OpenApi {
    group: ApiGroup,
    document: Vec<u8>,
    hash: String,
}

impl OpenApi {
    fn of(group: ApiGroup, document: Value) -> Self {
        let document = document.to_string().into_bytes();
        let hash = openapi::hash(&document);
        Self {
            group,
            document,
            hash,
        }
    }
}

static OPENAPI: LazyLock<[OpenApi; 2]> = LazyLock::new(|| {
    [
        OpenApi::of(CERTIFICATES, openapi::certificates()),
        OpenApi::of(RBAC, openapi::rbac()),
    ]
});

const GROUPS: [ApiGroup; 4] = [CERTIFICATES, AUTHENTICATION, AUTHORIZATION, RBAC];
const OPENAPI_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
