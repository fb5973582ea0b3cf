//! Requests for certificates, good and bad.

use std::net::IpAddr;

use countersign_pki::{Oid, oid, pem};
use countersign_testkit::csr::{CsrBuilder, SignatureFlaw};
use countersign_testkit::keys;

use super::Who::{Admin, Anonymous};
use super::{Call, LONG, ask, call, get, put_csr, put_text, tidy};

pub(super) fn submissions() -> Vec<Call> {
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
pub(super) fn names() -> Vec<Call> {
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

pub(super) fn bodies() -> Vec<Call> {
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

pub(super) fn keys_and_signatures() -> Vec<Call> {
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
pub(super) fn extensions() -> Vec<Call> {
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
        with("a list of no extensions", "none.auto.test", &|csr| {
            csr.attribute_values(&oid::EXTENSION_REQUEST, &[&[0x30, 0]])
        }),
        get(
            "the status of one without extensions",
            Admin,
            "certificate_status/none.auto.test",
        ),
        with("a list of no names", "nosan.auto.test", &|csr| {
            csr.raw_extension(&oid::SUBJECT_ALT_NAME, None, &[0x30, 0])
        }),
        with("a list of no names that waits", "nosan.test", &|csr| {
            csr.raw_extension(&oid::SUBJECT_ALT_NAME, None, &[0x30, 0])
        }),
        get(
            "the status of one without names",
            Admin,
            "certificate_status/nosan.test",
        ),
        with("no attributes", "bare.test", &|csr| {
            csr.without_attributes()
        }),
        with("no attributes, autosigned", "noattr.auto.test", &|csr| {
            csr.without_attributes()
        }),
        with("critical names", "critical.auto.test", &|csr| {
            let name = b"critical.auto.test";
            let names = [&[0x30, 20, 0x82, 18], &name[..]].concat();
            csr.raw_extension(&oid::SUBJECT_ALT_NAME, Some(true), &names)
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

/// What anybody can do to a listing; at the end, because Puppet Server does not get over it.
pub(super) fn hostile() -> Vec<Call> {
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
        put_csr(
            "an extension request without a value",
            "novalue.test",
            &CsrBuilder::new("novalue.test").attribute_values(&oid::EXTENSION_REQUEST, &[]),
        ),
        get(
            "a listing after an extension request without a value",
            Admin,
            "certificate_statuses/any?state=requested",
        ),
        get(
            "the status after an extension request without a value",
            Admin,
            "certificate_status/novalue.test",
        ),
        tidy("novalue.test"),
    ]
}
