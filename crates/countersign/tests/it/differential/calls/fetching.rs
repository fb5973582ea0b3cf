//! What everybody may fetch, and paths that name nothing.

use super::Who::{Admin, Agent, Anonymous};
use super::{Call, NOW, call, get};

pub(super) fn certificates() -> Vec<Call> {
    let ca = |name| get(name, Anonymous, "certificate/ca");
    vec![
        ca("the authority's certificate"),
        ca("the same as JSON").header("Accept", "application/json"),
        ca("the same as an old agent asks").header("Accept", "s"),
        get(
            "the same with a query",
            Anonymous,
            "certificate/ca?environment=production&fail_on_404=true",
        ),
        ca("the same, changed since").header("If-Modified-Since", "Thu, 01 Jan 2015 00:00:00 GMT"),
        ca("the same, unchanged since").header("If-Modified-Since", NOW),
        ca("the same, since the future")
            .header("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT"),
        ca("the same, since no date").header("If-Modified-Since", "yesterday"),
        get(
            "an agent's certificate",
            Anonymous,
            "certificate/agent.auto.test",
        ),
        get("nobody's certificate", Anonymous, "certificate/nobody"),
        call("HEAD of a certificate", Anonymous, "HEAD", "certificate/ca"),
        call("POST of a certificate", Admin, "POST", "certificate/ca"),
        call(
            "DELETE of a certificate",
            Admin,
            "DELETE",
            "certificate/agent.auto.test",
        ),
    ]
}

pub(super) fn revocation_lists() -> Vec<Call> {
    let crl = |name| get(name, Anonymous, "certificate_revocation_list/ca");
    let put = |name, who| {
        call(name, who, "PUT", "certificate_revocation_list").header("Content-Type", "text/plain")
    };
    vec![
        crl("the revocation list"),
        crl("the list, changed since").header("If-Modified-Since", "Thu, 01 Jan 2015 00:00:00 GMT"),
        crl("the list, unchanged since").header("If-Modified-Since", NOW),
        get(
            "another list",
            Anonymous,
            "certificate_revocation_list/other",
        ),
        get(
            "a list that begins like ours",
            Anonymous,
            "certificate_revocation_list/cats",
        ),
        get("no list", Anonymous, "certificate_revocation_list"),
        put("a list from anybody", Anonymous).body("x"),
        put("a list from an agent", Agent).body("x"),
        put("a list that is none", Admin).body("x"),
        put("an empty list", Admin),
        put("the authority's own list", Admin).with_own_crl(),
    ]
}

pub(super) fn paths() -> Vec<Call> {
    let anybody = |name, path| get(name, Anonymous, path);
    vec![
        anybody("an unknown path", "nothing"),
        get("an unknown path for an administrator", Admin, "nothing"),
        anybody("an unknown version", "/puppet-ca/v2/certificate/ca"),
        anybody("the root", "/"),
        anybody("a path of Puppet 3", "/production/certificate/ca"),
        anybody("no name", "certificate/"),
        anybody("two segments for a name", "certificate/a/b"),
        anybody("a blank in a name", "certificate/a%20b"),
        anybody("a path parameter", "certificate/ca;x=y"),
        anybody("an encoded letter", "certificate/c%61"),
        anybody("an encoded slash", "certificate%2Fca"),
        anybody("twice encoded", "certificate/c%2561"),
        anybody("a segment of two dots", "certificate/../certificate/ca"),
        anybody(
            "an encoded segment of two dots",
            "certificate/%2e%2e/certificate/ca",
        ),
        anybody("a segment of one dot", "certificate/./ca"),
        anybody("two slashes", "/puppet-ca//v1/certificate/ca"),
        anybody("upper case", "CERTIFICATE/ca"),
        anybody("half an escape", "certificate/ca%2"),
        anybody("not UTF-8", "certificate/%ff"),
        anybody("NUL in a name", "certificate/a%00b"),
        call("a method of nobody's", Anonymous, "BREW", "certificate/ca"),
    ]
}

pub(super) fn service_status() -> Vec<Call> {
    let anybody = |name, path| get(name, Anonymous, path);
    vec![
        anybody("all services", "/status/v1/services"),
        anybody("the service of the authority", "/status/v1/services/ca"),
        anybody("an unknown service", "/status/v1/services/nothing"),
        anybody("the simple status", "/status/v1/simple"),
        anybody("the simple status of the authority", "/status/v1/simple/ca"),
        anybody(
            "the simple status of the server",
            "/status/v1/simple/server",
        ),
        anybody(
            "the simple status of the master",
            "/status/v1/simple/master",
        ),
        anybody("the simple status of nothing", "/status/v1/simple/nothing"),
        anybody("a status of another version", "/status/v2/simple"),
        call("POST of the status", Anonymous, "POST", "/status/v1/simple"),
    ]
}
