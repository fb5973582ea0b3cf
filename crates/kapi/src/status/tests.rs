use super::*;
use crate::rbac::{PathAction, ResourceAction};
use serde_json::{Value, json};

fn wire(status: &Status) -> Value {
    serde_json::to_value(status).unwrap()
}

#[test]
fn bodies_match_the_reference() {
    let details =
        json!({"name": "n", "group": "certificates.k8s.io", "kind": "certificatesigningrequests"});
    let csr = Resource::CSR;
    let denied = Refused {
        user: "u",
        verb: "update",
        name: "n",
        subresource: "approval",
        namespace: "",
        reason: "",
    };
    let rows = [
        (
            csr.not_found("n"),
            404,
            "NotFound",
            "certificatesigningrequests.certificates.k8s.io \"n\" not found",
        ),
        (
            csr.already_exists("n"),
            409,
            "AlreadyExists",
            "certificatesigningrequests.certificates.k8s.io \"n\" already exists",
        ),
        (
            csr.modified("n"),
            409,
            "Conflict",
            "Operation cannot be fulfilled on certificatesigningrequests.certificates.k8s.io \"n\": the object has been modified; please apply your changes to the latest version and try again",
        ),
        (
            csr.uid_conflict("n", "a", "b"),
            409,
            "Conflict",
            "Operation cannot be fulfilled on certificatesigningrequests.certificates.k8s.io \"n\": Precondition failed: UID in precondition: a, UID in object meta: b",
        ),
        (
            csr.forbidden(&denied),
            403,
            "Forbidden",
            "certificatesigningrequests.certificates.k8s.io \"n\" is forbidden: User \"u\" cannot update resource \"certificatesigningrequests/approval\" in API group \"certificates.k8s.io\" at the cluster scope",
        ),
        (
            csr.not_admitted("n", "no"),
            403,
            "Forbidden",
            "certificatesigningrequests.certificates.k8s.io \"n\" is forbidden: no",
        ),
    ];
    for (status, code, reason, message) in rows {
        assert_eq!(
            wire(&status),
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                "reason": reason, "details": details, "code": code})
        );
    }
    let unnamed = csr.forbidden(&Refused {
        name: "",
        subresource: "",
        namespace: "",
        reason: "because",
        ..denied
    });
    assert_eq!(
        unnamed.message,
        "certificatesigningrequests.certificates.k8s.io is forbidden: User \"u\" cannot update resource \
         \"certificatesigningrequests\" in API group \"certificates.k8s.io\" at the cluster scope: because"
    );
    let role = Attributes::Resource(ResourceAction {
        verb: "get",
        group: "rbac.authorization.k8s.io",
        resource: "roles",
        name: "<b>",
        namespace: "ns",
        subresource: "",
    });
    let namespaced = Status::forbidden("<u>", &role, "");
    assert_eq!(
        namespaced.message,
        "roles.rbac.authorization.k8s.io \"<b>\" is forbidden: User \"&lt;u&gt;\" cannot get resource \"roles\" in API \
         group \"rbac.authorization.k8s.io\" in the namespace \"ns\""
    );
    let (verb, path) = ("get", "/a&b");
    let path = Attributes::Path(PathAction { verb, path });
    assert_eq!(
        Status::forbidden("u", &path, "").message,
        "forbidden: User \"u\" cannot get path \"/a&amp;b\""
    );
}

#[test]
fn invalid_lists_its_causes_and_names_the_kind() {
    let errors = [
        FieldError::required("spec.usages", ""),
        FieldError::invalid("spec.expirationSeconds", 60, "short"),
    ];
    assert_eq!(
        wire(&Resource::CSR.invalid("a", &errors)),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422,
            "message": "CertificateSigningRequest.certificates.k8s.io \"a\" is invalid: [spec.usages: Required value, spec.expirationSeconds: Invalid value: 60: short]",
            "details": {"name": "a", "group": "certificates.k8s.io", "kind": "CertificateSigningRequest", "causes": [
                {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.usages"},
                {"reason": "FieldValueInvalid", "message": "Invalid value: 60: short", "field": "spec.expirationSeconds"}]}})
    );
    let [first, _] = errors;
    assert!(
        Resource::CSR
            .invalid("a", &[first])
            .message
            .ends_with("is invalid: spec.usages: Required value")
    );
}

#[test]
fn bare_failures_carry_no_object() {
    let rows = [
        (Status::unauthorized(), 401, Value::Null),
        (Status::bad_request("x"), 400, Value::Null),
        (Status::path_not_found(), 404, json!({})),
        (Status::method_not_allowed(), 405, json!({})),
        (Status::not_acceptable("x"), 406, json!({})),
        (Status::too_large("x"), 413, Value::Null),
        (Status::unsupported_media_type("x"), 415, Value::Null),
        (Status::expired("x"), 410, Value::Null),
        (
            Status::service_unavailable("x", 5),
            503,
            json!({"retryAfterSeconds": 5}),
        ),
        (
            Status::internal_error("x"),
            500,
            json!({"causes": [{"message": "x"}]}),
        ),
    ];
    for (status, code, details) in rows {
        let json = wire(&status);
        assert_eq!(
            (&json["code"], &json["details"]),
            (&json!(code), &details),
            "{}",
            status.reason
        );
    }
    assert_eq!(
        Status::service_unavailable("x", 5).retry_after_seconds(),
        Some(5)
    );
    assert_eq!(Status::unauthorized().retry_after_seconds(), None);
}

#[test]
fn deletion_reports_the_uid() {
    assert_eq!(
        wire(&Resource::CSR.deleted("n", "u-1")),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "n", "group": "certificates.k8s.io", "kind": "certificatesigningrequests", "uid": "u-1"}})
    );
}
