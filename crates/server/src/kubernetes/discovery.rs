//! What the server says about itself: health, version, discovery and OpenAPI.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::get;
use countersign_kapi::discovery::{
    self, AGGREGATED_CONTENT_TYPE, AUTHENTICATION, AUTHORIZATION, ApiGroup, CERTIFICATES,
    COORDINATION, CORE, EVENTS, RBAC,
};
use countersign_kapi::negotiate::{self, DiscoveryForm};
use countersign_kapi::{Status, openapi};
use http::header::{ACCEPT, ETAG};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde_json::{Value, json};
use tracing::warn;

use super::KubernetesDoor;
use super::RouteEither as _;
use super::answer::{Answer, Refusal, json as json_answer, response, text, typed_json};
use crate::readiness::{self, CANNOT_STORE};

/// `GET /healthz`, `/livez`: the process answers.
pub(super) async fn alive() -> Response {
    text(StatusCode::OK, "ok")
}

/// `GET /readyz`: the store answers too; keys and revocations were loaded before the door opened.
pub(super) async fn ready(State(door): State<KubernetesDoor>) -> Response {
    match readiness::probe(&door.authority.requests).await {
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

/// What there is: groups, their resources, and the documents about them.
pub(super) fn router() -> Router<KubernetesDoor> {
    let mut router = Router::new()
        .route_either("/api", get(core))
        .route_either("/apis", get(groups))
        .route_either("/openapi/v2", get(openapi_v2))
        .route_either("/openapi/v3", get(openapi_v3))
        .route_either("/openapi/v3/api/{version}", get(openapi_of_core))
        .route_either("/openapi/v3/apis/{group}/{version}", get(openapi_document))
        .route_either(&CORE.path(), get(|| async { resources_of(&CORE) }));
    for group in GROUPS {
        let document = move || async move { json_answer(StatusCode::OK, &group.document()) };
        let resources = move || async move { resources_of(&group) };
        router = router
            .route_either(&format!("/apis/{}", group.name), get(document))
            .route_either(&group.path(), get(resources));
    }
    router
}

/// `GET /api`. It takes the form of `/apis`, else clients trust neither.
async fn core(request: Request) -> Answer {
    groups_in_form(request.headers(), &[CORE], discovery::core_versions)
}

/// `GET /apis`.
async fn groups(request: Request) -> Answer {
    groups_in_form(request.headers(), &GROUPS, || {
        discovery::group_list(&GROUPS)
    })
}

fn resources_of(group: &ApiGroup) -> Answer {
    json_answer(StatusCode::OK, &group.resource_list())
}

/// `GET /openapi/v2`: JSON, or the protobuf form for those who ask for it. Clients cannot parse the media type they ask
/// for, so the answer's is written without its `@`.
async fn openapi_v2(request: Request) -> Response {
    let accept = request.headers().get(ACCEPT);
    let accept = accept.and_then(|value| value.to_str().ok());
    match accept.is_some_and(|accept| accept.contains(OPENAPI_V2_ASKED)) {
        true => response(StatusCode::OK, OPENAPI_V2, OPENAPI_TWO.protobuf.clone()),
        false => response(StatusCode::OK, "application/json", OPENAPI_TWO.json.clone()),
    }
}

/// `GET /openapi/v3`.
async fn openapi_v3() -> Answer {
    let documents = OPENAPI.iter().map(|it| (&it.group, it.hash.as_str()));
    json_answer(StatusCode::OK, &openapi::index(documents))
}

/// `GET /openapi/v3/apis/{group}/{version}`.
async fn openapi_document(Path((group, version)): Path<(String, String)>) -> Answer {
    document(&group, &version)
}

/// `GET /openapi/v3/api/{version}`.
async fn openapi_of_core(Path(version): Path<String>) -> Answer {
    document(CORE.name, &version)
}

fn document(group: &str, version: &str) -> Answer {
    let is_asked = |it: &&OpenApi| (it.group.name, it.group.version) == (group, version);
    let Some(OpenApi { document, hash, .. }) = OPENAPI.iter().find(is_asked) else {
        return Ok(not_found());
    };
    let mut response = response(StatusCode::OK, "application/json", document.clone());
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{hash}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

/// Any path that is not served: a `Status` below a served group, plain text elsewhere.
pub(super) async fn unknown_path(uri: Uri) -> Answer {
    let served = |group: &ApiGroup| {
        let prefix = match group.name {
            "" => format!("{}/", group.path()),
            name => format!("/apis/{name}/"),
        };
        uri.path().starts_with(&prefix)
    };
    match GROUPS.iter().chain([&CORE]).any(served) {
        true => Err(Status::path_not_found().into()),
        false => Ok(not_found()),
    }
}

fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// A served path, another method.
pub(super) async fn wrong_method() -> Refusal {
    Status::method_not_allowed().into()
}

fn groups_in_form(headers: &HeaderMap, groups: &[ApiGroup], legacy: impl Fn() -> Value) -> Answer {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    match negotiate::discovery_form(accept) {
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

static OPENAPI: LazyLock<[OpenApi; 5]> = LazyLock::new(|| {
    [
        OpenApi::of(CORE, openapi::core()),
        OpenApi::of(CERTIFICATES, openapi::certificates()),
        OpenApi::of(COORDINATION, openapi::coordination()),
        OpenApi::of(EVENTS, openapi::events()),
        OpenApi::of(RBAC, openapi::rbac()),
    ]
});

const GROUPS: [ApiGroup; 6] = [
    CERTIFICATES,
    AUTHENTICATION,
    AUTHORIZATION,
    RBAC,
    COORDINATION,
    EVENTS,
];
/// The document of version 2, in both its forms.
struct OpenApiTwo {
    json: Vec<u8>,
    protobuf: Vec<u8>,
}

static OPENAPI_TWO: LazyLock<OpenApiTwo> = LazyLock::new(|| {
    let document = openapi::v2::document(&[
        openapi::core(),
        openapi::certificates(),
        openapi::coordination(),
        openapi::events(),
        openapi::rbac(),
    ]);
    OpenApiTwo {
        json: document.to_string().into_bytes(),
        protobuf: openapi::v2::to_protobuf(&document),
    }
});

/// As clients spell it, in the versions of which each knows one.
const OPENAPI_V2_ASKED: &str = "application/com.github.proto-openapi.spec.v2";
const OPENAPI_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
