//! What is sent. The order matters: later calls meet what earlier ones left.

use std::net::IpAddr;

use countersign_pki::{Oid, oid, pem};
use countersign_testkit::csr::{CsrBuilder, SignatureFlaw};
use countersign_testkit::keys;

/// One call.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) who: Who,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: Vec<u8>,
    /// The body is the revocation list that the server itself has.
    pub(crate) own_crl: bool,
    /// Whether the answer matters; else the call only brings both servers to the same state.
    pub(crate) compared: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Anonymous,
    Agent,
    Admin,
}

use Who::{Admin, Agent, Anonymous};

/// A name too long for the names of files that Puppet Server makes of it.
const LONG: &str = match std::str::from_utf8(&[b'n'; 250]) {
    Ok(name) => name,
    Err(_) => "",
};

/// As the value of a header: the server's own time.
pub(crate) const NOW: &str = "<now>";

pub(crate) fn all() -> Vec<Call> {
    [
        certificates(),
        revocation_lists(),
        paths(),
        submissions(),
        names(),
        bodies(),
        keys_and_signatures(),
        extensions(),
        stored_requests(),
        status_queries(),
        status_changes(),
        tidying(),
        listings(),
        bulk_signing(),
        cleaning(),
        renewal_and_expirations(),
        service_status(),
        hostile(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Paths are below `/puppet-ca/v1/` unless they begin with a slash.
fn call(name: &'static str, who: Who, method: &'static str, path: &str) -> Call {
    let path = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/puppet-ca/v1/{path}"),
    };
    Call {
        name,
        who,
        method,
        path,
        headers: Vec::new(),
        body: Vec::new(),
        own_crl: false,
        compared: true,
    }
}

fn get(name: &'static str, who: Who, path: &str) -> Call {
    call(name, who, "GET", path)
}

/// A request for `path`'s name as an agent sends it.
fn put_csr(name: &'static str, certname: &str, csr: &CsrBuilder) -> Call {
    put_text(name, certname, csr.sign_pem(keys::rsa2048_b()))
}

fn put_text(name: &'static str, certname: &str, text: impl Into<Vec<u8>>) -> Call {
    let path = format!("certificate_request/{certname}");
    call(name, Anonymous, "PUT", &path)
        .header("Content-Type", "text/plain")
        .body(text)
}

/// The common name is the certname.
fn ask(name: &'static str, certname: &str) -> Call {
    put_csr(name, certname, &CsrBuilder::new(certname))
}

/// What administrators send as JSON.
fn json(name: &'static str, method: &'static str, path: &str, body: &str) -> Call {
    call(name, Admin, method, path)
        .header("Content-Type", "application/json")
        .body(body)
}

fn put_status(name: &'static str, certname: &str, body: &str) -> Call {
    json(name, "PUT", &format!("certificate_status/{certname}"), body)
}

impl Call {
    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    fn with_own_crl(mut self) -> Self {
        self.own_crl = true;
        self
    }
}

fn certificates() -> Vec<Call> {
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

fn revocation_lists() -> Vec<Call> {
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

fn paths() -> Vec<Call> {
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

fn submissions() -> Vec<Call> {
    vec![
        ask("a request", "web01.test"),
        get("its certificate", Anonymous, "certificate/web01.test"),
        ask("the same request again", "web01.test"),
        put_text(
            "the same name with another key",
            "web01.test",
            CsrBuilder::new("web01.test").sign_pem(keys::p256_a()),
        ),
        put_csr(
            "a taken name at another path",
            "web02.test",
            &CsrBuilder::new("web01.test"),
        ),
        put_csr(
            "a free name at another path",
            "web02.test",
            &CsrBuilder::new("web03.test"),
        ),
        ask("an autosigned request", "web01.auto.test"),
        get(
            "its signed certificate",
            Anonymous,
            "certificate/web01.auto.test",
        ),
        ask("a request for a signed name", "web01.auto.test"),
        call(
            "POST of a request",
            Anonymous,
            "POST",
            "certificate_request/web04.test",
        )
        .body("x"),
    ]
}

/// The grammar of names, and what is read from the subject.
fn names() -> Vec<Call> {
    let long = "n".repeat(200);
    let seventy = format!("{}.test", "n".repeat(65));
    let of = |name: &'static str, certname: &str, csr: CsrBuilder| put_csr(name, certname, &csr);
    let whole =
        |text: &str| CsrBuilder::without_subject().name(&oid::COMMON_NAME, 0x0c, text.as_bytes());
    vec![
        ask("one label", "web01"),
        ask("underscores", "_x-puppet._tcp.test"),
        ask("an underscore at the end", "rootca_"),
        ask("a dot at the end", "rootca."),
        ask("a label that begins with a hyphen", "foo.-bar"),
        ask("seventy characters", &seventy),
        ask("upper-case letters", "Web01.test"),
        ask("a hyphen at the end", "a-"),
        ask("a hyphen at the beginning", "-a.b"),
        ask("a label that ends with a hyphen", "a-.b"),
        ask("an empty label", "a..b"),
        ask("only dots", "..."),
        ask("200 characters", &long),
        ask("250 characters", LONG),
        ask("the authority's own path", "ca"),
        put_csr(
            "an asterisk in the path",
            "*.test",
            &CsrBuilder::new("*.test"),
        ),
        put_csr(
            "an encoded asterisk",
            "%2A.test",
            &CsrBuilder::new("*.test"),
        ),
        put_csr(
            "an asterisk in the subject",
            "star.test",
            &CsrBuilder::new("*.test"),
        ),
        of(
            "a line end after the name",
            "trim1.test",
            whole("trim1.test\n"),
        ),
        of("a tab before the name", "trim2.test", whole("\ttrim2.test")),
        of("a blank after the name", "trim3.test", whole("trim3.test ")),
        of("NUL in the subject", "nul.test", whole("nul.test\0.evil")),
        of(
            "ESC in the subject",
            "esc.test",
            whole("\u{1b}[31mesc.test"),
        ),
        of("a letter beyond ASCII", "uml.test", whole("\u{fc}ml.test")),
        of("no subject", "none.test", CsrBuilder::without_subject()),
        of(
            "an organization besides",
            "org.test",
            CsrBuilder::without_subject().organization("Example").name(
                &oid::COMMON_NAME,
                0x0c,
                b"org.test",
            ),
        ),
        of(
            "two common names",
            "two1.test",
            CsrBuilder::new("two1.test").name(&oid::COMMON_NAME, 0x0c, b"two2.test"),
        ),
        of(
            "a common name in company",
            "company.test",
            CsrBuilder::without_subject().rdn(&[
                (oid::ORGANIZATIONAL_UNIT, 0x0c, b"unit"),
                (oid::COMMON_NAME, 0x0c, b"company.test"),
            ]),
        ),
        of(
            "a PrintableString",
            "printable.test",
            CsrBuilder::without_subject().name(&oid::COMMON_NAME, 0x13, b"printable.test"),
        ),
    ]
}

fn bodies() -> Vec<Call> {
    let key = keys::rsa2048_b();
    let csr = |name: &str| CsrBuilder::new(name).sign_pem(key);
    let der = CsrBuilder::new("der.test").sign(key);
    let two = format!("{}{}", csr("twice.test"), csr("twice.test"));
    let around = format!("Certificate Request:\n{}\nthe end\n", csr("around.test"));
    vec![
        put_text("no request at all", "empty.test", ""),
        put_text("no PEM", "garbage.test", "garbage"),
        put_text("DER", "der.test", der),
        put_text("two requests", "twice.test", two),
        put_text("text around a request", "around.test", around),
        put_text(
            "a certificate's label",
            "label.test",
            pem::encode("CERTIFICATE", &CsrBuilder::new("label.test").sign(key)),
        ),
        put_text(
            "the older label",
            "newlabel.test",
            pem::encode(
                "NEW CERTIFICATE REQUEST",
                &CsrBuilder::new("newlabel.test").sign(key),
            ),
        ),
        put_text(
            "half a request",
            "half.test",
            csr("half.test").get(..300).unwrap_or_default(),
        ),
        put_text(
            "line ends of another system",
            "crlf.test",
            csr("crlf.test").replace('\n', "\r\n"),
        ),
        call(
            "a request as JSON",
            Anonymous,
            "PUT",
            "certificate_request/json.test",
        )
        .header("Content-Type", "application/json")
        .body(csr("json.test")),
        call(
            "a request without a type",
            Anonymous,
            "PUT",
            "certificate_request/untyped.test",
        )
        .body(csr("untyped.test")),
    ]
}

fn keys_and_signatures() -> Vec<Call> {
    let of = |name, certname: &str, key| {
        put_text(name, certname, CsrBuilder::new(certname).sign_pem(key))
    };
    vec![
        of("P-256", "p256.auto.test", keys::p256_a()),
        of("P-384", "p384.auto.test", keys::p384()),
        of("RSA 4096", "rsa4096.auto.test", keys::rsa4096_a()),
        put_csr(
            "RSA 1024",
            "rsa1024.test",
            &CsrBuilder::new("rsa1024.test").public_key(keys::rsa1024().spki_der().to_vec()),
        ),
        put_csr(
            "a bad signature that waits",
            "badsig.test",
            &CsrBuilder::new("badsig.test").flaw(SignatureFlaw::FlippedBit),
        ),
        put_csr(
            "a bad signature that would be autosigned",
            "badsig.auto.test",
            &CsrBuilder::new("badsig.auto.test").flaw(SignatureFlaw::FlippedBit),
        ),
        put_csr(
            "another's public key",
            "stolen.auto.test",
            &CsrBuilder::new("stolen.auto.test").public_key(keys::rsa2048_c().spki_der().to_vec()),
        ),
    ]
}

/// Alternative names and extensions, where autosigning meets them at once.
fn extensions() -> Vec<Call> {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let with = |name: &'static str, certname: &str, edit: &dyn Fn(CsrBuilder) -> CsrBuilder| {
        put_csr(name, certname, &edit(CsrBuilder::new(certname)))
    };
    let extension = |name: &'static str, certname: &str, arcs: &[u32]| {
        let kind = Oid::from_arcs(arcs);
        put_csr(
            name,
            certname,
            &CsrBuilder::new(certname).extension(&kind, "true"),
        )
    };
    vec![
        with("its own name again", "own.auto.test", &|csr| {
            csr.dns("own.auto.test")
        }),
        with("another name", "san.auto.test", &|csr| {
            csr.dns("san.auto.test").dns("other.test")
        }),
        with("the refused request again", "san.auto.test", &|csr| {
            csr.dns("other.test")
        }),
        get(
            "the refused request's status",
            Admin,
            "certificate_status/san.auto.test",
        ),
        with("only another name", "only.auto.test", &|csr| {
            csr.dns("other.test")
        }),
        with("its own name twice", "twice.auto.test", &|csr| {
            csr.dns("twice.auto.test").dns("twice.auto.test")
        }),
        with("addresses", "ip.auto.test", &|csr| {
            csr.dns("z.test")
                .ip(address("192.0.2.1"))
                .ip(address("2001:db8::1"))
        }),
        with("an e-mail address", "mail.auto.test", &|csr| {
            csr.email("root@example.com")
        }),
        with("a URI", "uri.auto.test", &|csr| {
            csr.uri("spiffe://example.com/x")
        }),
        with("a wildcard name", "wild.auto.test", &|csr| {
            csr.dns("*.auto.test")
        }),
        extension(
            "a registered extension",
            "role.auto.test",
            &[1, 3, 6, 1, 4, 1, 34380, 1, 1, 13],
        ),
        extension(
            "a private extension",
            "priv.auto.test",
            &[1, 3, 6, 1, 4, 1, 34380, 1, 2, 7],
        ),
        extension(
            "an authorization extension",
            "auth.auto.test",
            &[1, 3, 6, 1, 4, 1, 34380, 1, 3, 13],
        ),
        extension(
            "the administrator's extension",
            "cli.auto.test",
            &[1, 3, 6, 1, 4, 1, 34380, 1, 3, 39],
        ),
        extension(
            "the renewal marker as an extension",
            "renew.auto.test",
            &[1, 3, 6, 1, 4, 1, 34380, 1, 3, 2],
        ),
        extension(
            "an arc itself",
            "arc.auto.test",
            &[1, 3, 6, 1, 4, 1, 34380, 1, 1],
        ),
        extension("a foreign extension", "foreign.auto.test", &[1, 2, 3, 4]),
        with("two foreign extensions", "foreign2.auto.test", &|csr| {
            csr.extension(&Oid::from_arcs(&[1, 2, 3, 4]), "x")
                .extension(&Oid::from_arcs(&[1, 2, 3, 5]), "y")
        }),
        with("an authority's mark", "caflag.auto.test", &|csr| {
            let value = [0x30, 0x03, 0x01, 0x01, 0xff];
            csr.raw_extension(&oid::BASIC_CONSTRAINTS, Some(true), &value)
        }),
        with("a number in an extension", "number.auto.test", &|csr| {
            let kind = Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 1, 1]);
            csr.raw_extension(&kind, None, &[0x02, 0x01, 0x07])
        }),
        with("bare text in an extension", "bare.auto.test", &|csr| {
            let kind = Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 1, 1]);
            csr.raw_extension(&kind, None, b"bare text")
        }),
        with("a challenge password", "pass.auto.test", &|csr| {
            csr.challenge_password("secret")
        }),
        with("attributes out of order", "order.auto.test", &|csr| {
            let kind = Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 1, 13]);
            csr.challenge_password(&"x".repeat(100))
                .extension(&kind, "x")
        }),
        with("an extension that waits", "foreign.test", &|csr| {
            csr.extension(&Oid::from_arcs(&[1, 2, 3, 4]), "x")
        }),
        with("a name that waits", "san.test", &|csr| {
            csr.dns("other.test")
        }),
        with(
            "the administrator's extension that waits",
            "cli.test",
            &|csr| {
                csr.extension(
                    &Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 3, 39]),
                    "true",
                )
            },
        ),
    ]
}

fn stored_requests() -> Vec<Call> {
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

fn status_queries() -> Vec<Call> {
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

fn status_changes() -> Vec<Call> {
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

/// Names of which the two do not have the same after the calls before: listings are compared without them.
fn tidying() -> Vec<Call> {
    [
        LONG,
        "ca",
        "...",
        "renew.auto.test",
        "trim1.test",
        "trim2.test",
        "company.test",
        "rsa1024.test",
        "badsig.test",
        "badsig.auto.test",
        "stolen.auto.test",
        "order.auto.test",
        "gone.test",
        "mail.auto.test",
        "uri.auto.test",
        "number.auto.test",
        "bare.auto.test",
        "digits.test",
    ]
    .map(tidy)
    .into()
}

/// Deletes what there is of a name, whatever the answer.
fn tidy(certname: &'static str) -> Call {
    let path = format!("certificate_status/{certname}");
    Call {
        compared: false,
        ..call(certname, Admin, "DELETE", &path)
    }
}

fn listings() -> Vec<Call> {
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

fn bulk_signing() -> Vec<Call> {
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

fn cleaning() -> Vec<Call> {
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

fn renewal_and_expirations() -> Vec<Call> {
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

fn service_status() -> Vec<Call> {
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

/// What anybody can do to a listing; at the end, because Puppet Server does not get over it.
fn hostile() -> Vec<Call> {
    let role = Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 1, 13]);
    let twice = CsrBuilder::new("poison.test")
        .extension(&role, "a")
        .extension(&role, "b");
    vec![
        put_text("a very long request", "long.test", "x".repeat(200_000)),
        put_csr("an extension twice", "poison.test", &twice),
        get(
            "a listing after an extension twice",
            Admin,
            "certificate_statuses/any?state=requested",
        ),
        get(
            "the status after an extension twice",
            Admin,
            "certificate_status/poison.test",
        ),
        tidy("poison.test"),
    ]
}
