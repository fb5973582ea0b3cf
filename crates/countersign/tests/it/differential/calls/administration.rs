//! What administrators do, and others may not.

use super::Who::{Admin, Agent, Anonymous};
use super::{Call, NOW, ask, call, get, json, put_status};

pub(super) fn stored_requests() -> Vec<Call> {
    let path = "certificate_request/web01.test";
    vec![
        get("a stored request for anybody", Anonymous, path),
        get("a stored request for another agent", Agent, path),
        get("a stored request for an administrator", Admin, path),
        get(
            "nobody's request for anybody",
            Anonymous,
            "certificate_request/nobody",
        ),
        get(
            "nobody's request for an administrator",
            Admin,
            "certificate_request/nobody",
        ),
        call("anybody deletes a request", Anonymous, "DELETE", path),
        call("an agent deletes a request", Agent, "DELETE", path),
        call(
            "an administrator deletes nobody's request",
            Admin,
            "DELETE",
            "certificate_request/nobody",
        ),
        ask("a request to be deleted", "gone.test"),
        call(
            "an administrator deletes a request",
            Admin,
            "DELETE",
            "certificate_request/gone.test",
        ),
    ]
}

pub(super) fn status_queries() -> Vec<Call> {
    let of = |name, who| get(name, who, "certificate_status/web01.test");
    vec![
        of("a status for anybody", Anonymous),
        of("a status for an agent", Agent),
        get(
            "an agent's own status",
            Agent,
            "certificate_status/agent.auto.test",
        ),
        of("the status of a request", Admin),
        of("the same as JSON for an administrator", Admin).header("Accept", "application/json"),
        of("the same as pson", Admin).header("Accept", "pson"),
        of("the same as text/pson", Admin).header("Accept", "text/pson"),
        of("the same as anything", Admin).header("Accept", "*/*"),
        of("the same as JSON by preference", Admin)
            .header("Accept", "text/html, application/json;q=0.5"),
        of("the same as a picture", Admin).header("Accept", "image/png"),
        get(
            "the status of a certificate",
            Admin,
            "certificate_status/agent.auto.test",
        ),
        get(
            "an agent's certificate, unchanged since",
            Anonymous,
            "certificate/agent.auto.test",
        )
        .header("If-Modified-Since", NOW),
        get(
            "the status with the renewal marker",
            Admin,
            "certificate_status/renew.auto.test",
        ),
        get("nobody's status", Admin, "certificate_status/nobody"),
        get(
            "nobody's status as JSON",
            Admin,
            "certificate_status/nobody",
        )
        .header("Accept", "application/json"),
        get("the status of no name", Admin, "certificate_status/"),
        get(
            "the status of two segments",
            Admin,
            "certificate_status/a/b",
        ),
        call(
            "POST of a status",
            Admin,
            "POST",
            "certificate_status/web01.test",
        ),
        call(
            "HEAD of a status",
            Admin,
            "HEAD",
            "certificate_status/web01.test",
        ),
        call(
            "PATCH of a status",
            Admin,
            "PATCH",
            "certificate_status/web01.test",
        ),
    ]
}

pub(super) fn status_changes() -> Vec<Call> {
    let put = |name, body| put_status(name, "web01.test", body);
    let typed = |name, kind| {
        call(name, Admin, "PUT", "certificate_status/nobody")
            .header("Content-Type", kind)
            .body(r#"{"desired_state":"signed"}"#)
    };
    let sign = r#"{"desired_state":"signed"}"#;
    let revoke = r#"{"desired_state":"revoked"}"#;
    vec![
        call(
            "anybody signs",
            Anonymous,
            "PUT",
            "certificate_status/web01.test",
        )
        .body(sign),
        call(
            "an agent signs",
            Agent,
            "PUT",
            "certificate_status/web01.test",
        )
        .body(sign),
        put("an empty state", ""),
        put("no JSON as a state", "signed"),
        put("null", "null"),
        put("a list as a state", "[]"),
        put("no state", "{}"),
        put("an unknown state", r#"{"desired_state":"lost"}"#),
        put("a number as a state", r#"{"desired_state":7}"#),
        put(
            "a lifetime with a unit",
            r#"{"desired_state":"signed","cert_ttl":"1h"}"#,
        ),
        put(
            "half a second",
            r#"{"desired_state":"signed","cert_ttl":0.5}"#,
        ),
        put(
            "a picture of a lifetime",
            r#"{"desired_state":"signed","cert_ttl":[]}"#,
        ),
        typed("a status as text", "text/plain"),
        typed("a status as a form", "application/x-www-form-urlencoded"),
        typed(
            "a status as JSON with a charset",
            "application/json; charset=utf-8",
        ),
        typed("a status as text/pson", "text/pson"),
        call(
            "a status of no type",
            Admin,
            "PUT",
            "certificate_status/nobody",
        )
        .body(sign),
        put_status("nobody is signed", "nobody", sign),
        put_status("nobody is revoked", "nobody", revoke),
        put("a request is revoked", revoke),
        put("a request is signed", sign),
        put("it is signed again", sign),
        get(
            "the status of the signed",
            Admin,
            "certificate_status/web01.test",
        ),
        put("it is revoked", revoke),
        put("it is revoked again", revoke),
        get(
            "the status of the revoked",
            Admin,
            "certificate_status/web01.test",
        ),
        get("a revoked certificate", Anonymous, "certificate/web01.test"),
        ask("a request for a revoked name", "web01.test"),
        call(
            "anybody deletes a status",
            Anonymous,
            "DELETE",
            "certificate_status/web01.test",
        ),
        call(
            "a revoked name is deleted",
            Admin,
            "DELETE",
            "certificate_status/web01.test",
        ),
        get(
            "the status of the deleted",
            Admin,
            "certificate_status/web01.test",
        ),
        call(
            "it is deleted again",
            Admin,
            "DELETE",
            "certificate_status/web01.test",
        ),
        call(
            "nobody is deleted",
            Admin,
            "DELETE",
            "certificate_status/nobody",
        ),
        ask("a request for a deleted name", "web01.test"),
        put(
            "a lifetime in seconds",
            r#"{"desired_state":"signed","cert_ttl":3600}"#,
        ),
        ask("a request for a lifetime in digits", "digits.test"),
        put_status(
            "a lifetime in digits",
            "digits.test",
            r#"{"desired_state":"signed","cert_ttl":"3600"}"#,
        ),
        put_status("foreign extensions are signed", "foreign.test", sign),
        put_status("names are signed", "san.test", sign),
        put_status("the administrator's extension is signed", "cli.test", sign),
        put_status("a refused request is signed", "san.auto.test", sign),
        ask("a request of a signed name, deleted", "both.auto.test"),
        call(
            "a certificate is deleted, not revoked",
            Admin,
            "DELETE",
            "certificate_status/both.auto.test",
        ),
        get(
            "the deleted certificate",
            Anonymous,
            "certificate/both.auto.test",
        ),
        put_status("a deleted certificate is revoked", "both.auto.test", revoke),
    ]
}

pub(super) fn listings() -> Vec<Call> {
    let of = |name, who, query: &str| get(name, who, &format!("certificate_statuses/any{query}"));
    vec![
        of("a listing for anybody", Anonymous, ""),
        of("a listing for an agent", Agent, ""),
        of("everything", Admin, ""),
        of("everything, in an unknown state", Admin, "?state=lost"),
        of("the requested", Admin, "?state=requested"),
        of("the signed", Admin, "?state=signed"),
        of("the revoked", Admin, "?state=revoked"),
        of("a listing as pson", Admin, "?state=revoked").header("Accept", "pson"),
        of("a listing as a picture", Admin, "").header("Accept", "image/png"),
        get(
            "a listing without a segment",
            Admin,
            "certificate_statuses/",
        ),
        get(
            "a listing of two segments",
            Admin,
            "certificate_statuses/a/b",
        ),
        call("PUT of a listing", Admin, "PUT", "certificate_statuses/any").body("{}"),
        call(
            "DELETE of a listing",
            Admin,
            "DELETE",
            "certificate_statuses/any",
        ),
        call(
            "POST of a listing",
            Admin,
            "POST",
            "certificate_statuses/any",
        ),
    ]
}

pub(super) fn bulk_signing() -> Vec<Call> {
    let sign = |name, body| json(name, "POST", "sign", body);
    vec![
        call("anybody signs in bulk", Anonymous, "POST", "sign").body("{}"),
        call("an agent signs in bulk", Agent, "POST", "sign").body("{}"),
        call("an agent signs all", Agent, "POST", "sign/all").body("{}"),
        ask("bulk 1", "bulk1.test"),
        ask("bulk 2", "bulk2.test"),
        sign(
            "some are signed",
            r#"{"certnames":["bulk1.test","nobody"]}"#,
        ),
        sign("nobody is signed in bulk", r#"{"certnames":["nobody"]}"#),
        sign(
            "some cannot be signed",
            r#"{"certnames":["foreign.test","bulk2.test"]}"#,
        ),
        sign("an empty list is signed", r#"{"certnames":[]}"#),
        sign("no names are signed", "{}"),
        sign("null is signed", r#"{"certnames":null}"#),
        sign("no JSON is signed", "all"),
        sign("nothing is signed", ""),
        sign("a number is signed", r#"{"certnames":[42]}"#),
        sign("a text is signed", r#"{"certnames":"bulk2.test"}"#),
        call("GET of sign", Admin, "GET", "sign"),
        call("a path below sign", Admin, "POST", "sign/some").body("{}"),
    ]
}

pub(super) fn cleaning() -> Vec<Call> {
    let clean = |name, body| json(name, "PUT", "clean", body);
    vec![
        call("anybody cleans", Anonymous, "PUT", "clean").body("{}"),
        call("an agent cleans", Agent, "PUT", "clean").body("{}"),
        clean("no JSON is cleaned", "all"),
        clean("nothing is cleaned", ""),
        clean("no names are cleaned", "{}"),
        clean(
            "cleaning later",
            r#"{"certnames":["bulk1.test"],"async":true}"#,
        ),
        clean("nobody is cleaned", r#"{"certnames":["nobody"]}"#),
        clean("an empty list is cleaned", r#"{"certnames":[]}"#),
        clean(
            "one is cleaned",
            r#"{"certnames":["bulk1.test"],"async":false}"#,
        ),
        get(
            "the cleaned certificate",
            Anonymous,
            "certificate/bulk1.test",
        ),
        clean("it is cleaned again", r#"{"certnames":["bulk1.test"]}"#),
        clean(
            "some are cleaned",
            r#"{"certnames":["bulk2.test","nobody","noone"]}"#,
        ),
        clean("a request is cleaned", r#"{"certnames":["foreign.test"]}"#),
        ask("a request for a cleaned name", "bulk1.test"),
        call("GET of clean", Admin, "GET", "clean"),
    ]
}

pub(super) fn renewal_and_expirations() -> Vec<Call> {
    let renew = |name, who| {
        call(name, who, "POST", "certificate_renewal").header("Content-Type", "text/plain")
    };
    vec![
        renew("anybody renews", Anonymous),
        renew("an agent renews", Agent),
        renew("an administrator renews", Admin),
        renew("an agent renews with a header", Agent).header("X-Client-Cert", "x"),
        get(
            "anybody with an administrator's headers",
            Anonymous,
            "certificate_status/web01.test",
        )
        .header("X-Client-Verify", "SUCCESS")
        .header("X-Client-DN", "CN=localhost"),
        call("GET of renewal", Agent, "GET", "certificate_renewal"),
        get("expirations for anybody", Anonymous, "expirations"),
        get("expirations", Agent, "expirations"),
        call("POST of expirations", Agent, "POST", "expirations"),
    ]
}
