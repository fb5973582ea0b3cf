//! Expressions: what they see, what is refused before the first use, and what hostile ones cost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use countersign_pki::{CheckedCsr, CsrLimits, Oid, UnixTime, oid};
use countersign_policy::{
    AddressKind, Expression, Facts, Identity, LedgerCertificate, LedgerFacts, LedgerRevocation,
    Machine, MachineAddress, Needs, Request, Requester, SignerName, Wishes,
};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use proptest::prelude::*;

use crate::NOW;

/// Everything that an expression can look at.
struct World {
    csr: CheckedCsr,
    signer: SignerName,
    requester: Requester,
    wishes: Wishes,
    machine: Option<Machine>,
    ledger: LedgerFacts,
}

impl World {
    /// A host with every kind of fact.
    fn full() -> Self {
        let private = Oid::parse("1.3.6.1.4.1.34380.1.2.7").unwrap();
        let build = CsrBuilder::new("web01.example.com")
            .organization("Example")
            .organization("Other")
            .name(&oid::ORGANIZATIONAL_UNIT, 0x0c, b"Ops")
            .dns("web01.example.com")
            .dns("www.example.com")
            .ip([192, 0, 2, 7].into())
            .email("root@example.com")
            .uri("spiffe://example.com/web")
            .extension(&oid::registered_oid("pp_role").unwrap(), "web")
            .extension(&private, "blue")
            .extension(&oid::PP_PRESHARED_KEY, "hunter2")
            .challenge_password("hunter3");
        Self {
            csr: checked(&build),
            signer: SignerName::parse("example.com/agents").unwrap(),
            requester: Requester {
                identity: Identity::User {
                    username: "system:node:web01".to_owned(),
                    groups: vec!["system:nodes".to_owned(), "ops".to_owned()],
                    uid: "7".to_owned(),
                    extra: BTreeMap::from([("scopes".to_owned(), vec!["a".to_owned()])]),
                },
                source: Some([192, 0, 2, 9].into()),
            },
            wishes: Wishes {
                usages: vec!["client auth".to_owned()],
                expiration_seconds: Some(3600),
            },
            machine: Some(Machine {
                name: "web01.example.com".to_owned(),
                addresses: vec![MachineAddress {
                    kind: AddressKind::InternalIP,
                    address: "192.0.2.7".to_owned(),
                }],
                serial: "S1".to_owned(),
                uuid: "U1".to_owned(),
                instance_id: "i-1".to_owned(),
                provider: "lab".to_owned(),
                role: "web".to_owned(),
                not_before: Some(NOW.minus_seconds(60)),
                not_after: None,
                single_use: false,
                created: NOW.minus_seconds(600),
                enrolled: None,
            }),
            ledger: LedgerFacts {
                certificate: Some(LedgerCertificate {
                    serial: "0A".to_owned(),
                    not_after: NOW.plus_seconds(86_400),
                    same_key: true,
                }),
                revoked: Some(LedgerRevocation {
                    serial: "09".to_owned(),
                    time: NOW.minus_seconds(86_400),
                    reason: "keyCompromise".to_owned(),
                }),
            },
        }
    }

    /// A host of which nothing is known.
    fn bare() -> Self {
        Self {
            csr: checked(&CsrBuilder::new("web01.example.com")),
            requester: Requester::anonymous(None),
            wishes: Wishes::default(),
            machine: None,
            ledger: LedgerFacts::default(),
            ..Self::full()
        }
    }

    fn with<T>(&self, look: impl FnOnce(&Facts<'_>) -> T) -> T {
        let request = Request {
            csr: &self.csr,
            key: "web01.example.com",
            name: self.csr.subject().first_common_name().unwrap_or_default(),
            door: "puppet",
            signer: &self.signer,
            requester: &self.requester,
            wishes: &self.wishes,
            at: NOW,
            renewal: false,
            pod: None,
        };
        look(&Facts {
            request: &request,
            machine: self.machine.as_ref(),
            ledger: &self.ledger,
            now: NOW,
        })
    }

    fn says(&self, source: &str) -> Result<bool, String> {
        let expression = Expression::compile(source).map_err(|fault| fault.to_string())?;
        self.with(|facts| expression.evaluate(facts))
            .map_err(|fault| fault.what)
    }
}

fn checked(build: &CsrBuilder) -> CheckedCsr {
    CheckedCsr::check(&build.sign(keys::p256_a()), &CsrLimits::STANDARD).unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test is about how long it takes"
)]
fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    (run(), begun.elapsed())
}

#[test]
fn every_name_of_the_contract_has_its_value() {
    let world = World::full();
    for source in [
        r#"request.door == "puppet""#,
        r#"request.signer == "example.com/agents""#,
        r#"request.commonName == "web01.example.com""#,
        r#"request.subject == "OU=Ops,O=Other,O=Example,CN=web01.example.com""#,
        r#"request.organization == ["Example", "Other"]"#,
        r#"request.organizationalUnit == ["Ops"]"#,
        r#"request.dnsNames == ["web01.example.com", "www.example.com"]"#,
        r#"request.ipAddresses == ["192.0.2.7"]"#,
        r#"request.emails == ["root@example.com"]"#,
        r#"request.uris == ["spiffe://example.com/web"]"#,
        r#"request.usages == ["client auth"]"#,
        "request.expirationSeconds == 3600",
        r#"request.extensions.pp_role == "web""#,
        r#"request.extensions["1.3.6.1.4.1.34380.1.2.7"] == "blue""#,
        "request.extensions.size() == 2",
        "has(request.extensions.pp_role) && !has(request.extensions.pp_zone)",
        r#""pp_role" in request.extensions && !("pp_zone" in request.extensions)"#,
        r#"request.extensions.exists(k, k == "pp_role")"#,
        r#"request.keyType == "ec" && request.keySize == 256"#,
        r#"request.sourceAddress == "192.0.2.9""#,
        "request.created == now && !request.renewal",
        r#"requester.username == "system:node:web01" && requester.uid == "7""#,
        r#""ops" in requester.groups"#,
        r#"requester.extra["scopes"] == ["a"] && requester.extra.scopes[0] == "a""#,
        r#"requester.certname == "" && !requester.anonymous"#,
        r#"machine != null && machine.name == request.commonName"#,
        r#"request.ipAddresses.all(a, a in machine.addresses)"#,
        r#"machine.serial == "S1" && machine.uuid == "U1" && machine.instanceId == "i-1""#,
        r#"machine.provider == "lab" && machine.role == "web" && !machine.enrolled"#,
        "machine.notBefore < now && machine.notAfter == null && !has(machine.notAfter)",
        r#"now - machine.notBefore < duration("2m")"#,
        r#"ledger.certificate != null && ledger.certificate.serial == "0A""#,
        r#"ledger.certificate.notAfter == now + duration("24h") && ledger.certificate.sameKey"#,
        r#"ledger.revoked.serial == "09" && ledger.revoked.reason == "keyCompromise""#,
        "ledger.revoked.time < now && has(ledger.revoked)",
        r#"now == timestamp("2027-01-15T08:00:00Z")"#,
        "now.getHours() == 8 && now.getDayOfWeek() == 5",
        r#"now.getHours("Europe/Berlin") == 9"#,
    ] {
        assert_eq!(world.says(source), Ok(true), "{source}");
    }
}

#[test]
fn the_language_means_what_cel_says() {
    let world = World::full();
    for (source, value) in [
        ("true", true),
        ("1 + 2 * 3 == 7 && 7 % 4 == 3 && -1 < 0", true),
        ("size(request.dnsNames) == 2 ? true : false", true),
        (r#"request.commonName.startsWith("web")"#, true),
        (r#"request.commonName.endsWith(".example.org")"#, false),
        (r#"request.commonName.contains("01")"#, true),
        (
            r#"request.commonName.matches("^web[0-9]{2}[.]example[.]com$")"#,
            true,
        ),
        // Unanchored, as everywhere.
        (r#"request.commonName.matches("example")"#, true),
        (
            r#""WEB01".lowerAscii() + ".example.com" == request.commonName"#,
            true,
        ),
        (
            r#"(request.dnsNames + [request.commonName]).exists(n, n == "vault.example.com")"#,
            false,
        ),
        (
            r#"request.dnsNames.all(n, n.endsWith(".example.com"))"#,
            true,
        ),
        (
            r#"request.dnsNames.exists_one(n, n.startsWith("www"))"#,
            true,
        ),
        (
            r#"request.dnsNames.filter(n, n.startsWith("www")).map(n, n + ".") == ["www.example.com."]"#,
            true,
        ),
        (
            r#"request.dnsNames.map(n, n.startsWith("w"), size(n)) == [17, 15]"#,
            true,
        ),
        (
            r#"request.dnsNames.exists(n, request.organization.exists(o, o == "Other" && n != o))"#,
            true,
        ),
        (r#"{"a": 1}.a == 1 && "a" in {"a": 1}"#, true),
        (
            r#"int("7") == 7 && string(7) == "7" && double(1) < 1.5 && uint(1) == 1u"#,
            true,
        ),
        ("dyn(request.commonName) == 1", false),
        // One side decides although the other has no value.
        (r#"request.extensions.pp_zone == "x" || true"#, true),
        (r#"false && request.extensions.pp_zone == "x""#, false),
        // A comment, and more than one line.
        ("// the host\nrequest.door == \"puppet\"\n  && true", true),
    ] {
        assert_eq!(world.says(source), Ok(value), "{source}");
    }
}

#[test]
fn what_has_no_value_is_a_fault_that_says_why() {
    let bare = World::bare();
    for (source, part) in [
        (r#"machine.role == "web""#, "machine is null"),
        ("has(machine.role)", "machine is null"),
        ("ledger.certificate.sameKey", "ledger.certificate is null"),
        (
            r#"request.extensions.pp_role == "web""#,
            "ask has(request.extensions.pp_role) first",
        ),
        (r#"request.extensions["1.2.3"] == "web""#, "there is no key"),
        (r#"request.dnsNames[0] == "x""#, "fewer entries"),
        ("1 / request.expirationSeconds == 1", "divided by zero"),
        ("1 % request.expirationSeconds == 1", "divided by zero"),
        ("9223372036854775807 + request.keySize > 0", "too large"),
        ("dyn(request.commonName)", "bool was needed"),
        ("dyn(request.commonName) < 1", "does not fit"),
        ("int(request.commonName) == 1", "int cannot read"),
        (
            "timestamp(request.commonName) < now",
            "timestamp cannot read",
        ),
        (
            r#"now.getHours(request.commonName) == 1"#,
            "timezone cannot read",
        ),
        (
            r#"timestamp("9999-12-31T23:59:59Z") + duration("2h") > now"#,
            "too large",
        ),
        (r#"timestamp(9223372036854775807) > now"#, ""),
    ] {
        let said = bare.says(source);
        let why = said.as_ref().expect_err(source);
        assert!(why.contains(part), "{source}: {why}");
        assert!(!why.contains("line "), "{source} was refused: {why}");
    }
    for source in [
        "machine == null",
        "machine == null || machine.enrolled",
        "ledger.certificate == null && ledger.revoked == null",
        "!has(request.extensions.pp_role)",
        r#"requester.anonymous && request.sourceAddress == "" && requester.username == """#,
        "request.expirationSeconds == 0 && request.usages == []",
    ] {
        assert_eq!(bare.says(source), Ok(true), "{source}");
    }
}

#[test]
fn secrets_do_not_enter_expressions() {
    let world = World::full();
    for key in ["pp_preshared_key", "1.3.6.1.4.1.34380.1.1.4"] {
        let by_index = format!("request.extensions[{key:?}] != \"\"");
        let fault = world.says(&by_index).unwrap_err();
        assert!(fault.contains("secret"), "{fault}");
        // A key that is put together at run time finds nothing either.
        let (head, tail) = key.split_at(4);
        let pieced = format!("({head:?} + {tail:?}) in request.extensions");
        assert_eq!(world.says(&pieced), Ok(false), "{pieced}");
    }
    let all = Expression::compile("request.extensions.size() > 0 && request.subject != \"\"");
    let seen = world.with(|facts| all.unwrap().looks_at(facts));
    assert!(
        seen.contains("pp_role") && !seen.contains("hunter"),
        "{seen}"
    );
}

#[test]
fn mistakes_are_found_before_the_first_use() {
    for (source, line, column, part) in [
        // Names and fields.
        ("reqest.door == \"x\"", 1, 1, "did you mean \"request\"?"),
        (
            "request.dnsName.size() > 0",
            1,
            9,
            "did you mean \"dnsNames\"?",
        ),
        (
            "true &&\n  request . comonName == \"x\"",
            2,
            13,
            "did you mean \"commonName\"?",
        ),
        (
            "\"ä\" == request.xyzzyplugh",
            1,
            16,
            "request has no field \"xyzzyplugh\"; known are door",
        ),
        ("machine.rol == \"\"", 1, 9, "did you mean \"role\"?"),
        (
            "ledger.certificate.notafter < now",
            1,
            20,
            "did you mean \"notAfter\"?",
        ),
        ("ledger.sameKey", 1, 8, "ledger has no field"),
        (".request.door == \"\"", 1, 2, "unknown name"),
        ("int", 1, 1, "unknown name"),
        ("request.commonName.foo == 1", 1, 20, "a text has no field"),
        (
            "request.extensions.pp_rolle == \"\"",
            1,
            20,
            "did you mean pp_role?",
        ),
        (
            "has(request.extensions.pp_rolle)",
            1,
            24,
            "did you mean pp_role?",
        ),
        (
            "\"pp_rolle\" in request.extensions",
            1,
            1,
            "did you mean pp_role?",
        ),
        (
            "request.extensions[\"1.3.6.1.4.1.34380.1.1.13\"] == \"\"",
            1,
            20,
            "goes by its short name here: \"pp_role\"",
        ),
        (
            "request.extensions.pp_preshared_key == \"\"",
            1,
            20,
            "secret",
        ),
        ("request", 1, 1, "request is no value"),
        ("[machine].size() == 1", 1, 2, "machine is no value"),
        ("request == null", 1, 9, "request cannot be compared"),
        ("machine == \"x\"", 1, 9, "compared with null only"),
        // Functions and their arguments.
        (
            "request.commonName.startWith(\"x\")",
            1,
            20,
            "did you mean \"startsWith\"?",
        ),
        ("siz(request.dnsNames) == 1", 1, 1, "did you mean \"size\"?"),
        (
            "startsWith(request.commonName, \"x\")",
            1,
            1,
            "write value.startsWith(…)",
        ),
        ("request.keySize.int() == 1", 1, 17, "write int(…)"),
        (
            "request.commonName.startsWith()",
            1,
            20,
            "startsWith takes one argument, here are 0",
        ),
        (
            "request.commonName.size(1) == 1",
            1,
            20,
            "size takes no argument",
        ),
        ("size() == 1", 1, 1, "size takes one argument, here are 0"),
        ("int(1, 2) == 1", 1, 1, "int takes one argument, here are 2"),
        (
            "now.getHours(\"UTC\", 1) == 1",
            1,
            5,
            "at most one argument",
        ),
        (
            "request.dnsNames.all(n)",
            1,
            18,
            "all takes a variable and an expression",
        ),
        ("request.dnsNames.all(1, true)", 1, 22, "must be a new name"),
        (
            "request.dnsNames.all(now, true)",
            1,
            22,
            "has a meaning already",
        ),
        (
            "request.dnsNames.all(n, request.uris.all(n, true))",
            1,
            42,
            "has a meaning already",
        ),
        (
            "request.dnsNames.all(n, true) && n == \"\"",
            1,
            34,
            "unknown name \"n\"",
        ),
        ("has(machine)", 1, 5, "has takes a field"),
        (
            "exists(request.dnsNames, n, true)",
            1,
            1,
            "write value.exists(…)",
        ),
        // Types.
        ("request.commonName", 1, 9, "the expression gives a text"),
        (
            "request.commonName + 1 == \"\"",
            1,
            20,
            "+ does not fit a text and a whole number",
        ),
        (
            "request.dnsNames == \"x\"",
            1,
            18,
            "== compares a list of texts with a text",
        ),
        (
            "request.dnsNames.startsWith(\"x\")",
            1,
            18,
            "startsWith is called on a text",
        ),
        ("request.commonName.startsWith(1)", 1, 31, "must be a text"),
        (
            "request.commonName == null",
            1,
            20,
            "compares a text with null",
        ),
        (
            "1 in request.dnsNames",
            1,
            3,
            "a whole number is never in a list of texts",
        ),
        (
            "request.commonName.all(c, true)",
            1,
            20,
            "all goes through a list",
        ),
        ("request.dnsNames.all(n, n)", 1, 25, "must be true or false"),
        ("request.dnsNames && true", 1, 9, "must be true or false"),
        ("request.keySize < \"1\"", 1, 17, "does not fit"),
        ("!request.commonName", 1, 10, "must be true or false"),
        ("-request.commonName == \"\"", 1, 1, "has no negative"),
        (
            "request.keySize ? true : false",
            1,
            9,
            "must be true or false",
        ),
        (
            "request.dnsNames[\"x\"] == \"\"",
            1,
            18,
            "picked by a whole number",
        ),
        ("request.keySize[0] == 1", 1, 16, "has no entries"),
        ("size(1) == 1", 1, 1, "has no size"),
        (
            "now + 1 > now",
            1,
            5,
            "+ does not fit a time and a whole number",
        ),
        ("Foo{a: 1} == 1", 1, 4, "objects cannot be made"),
        // Constants.
        ("now < timestamp(\"tomorrow\")", 1, 17, "write it like 2030"),
        (
            "now - request.created < duration(\"2 h\")",
            1,
            34,
            "write it like 90m",
        ),
        (
            "request.door.matches(\"[a\")",
            1,
            22,
            "not a regular expression: unclosed",
        ),
        (
            "request.door.matches(request.signer)",
            1,
            30,
            "must be written out",
        ),
        (
            "request.door.matches(\"(?=x)\")",
            1,
            22,
            "not a regular expression",
        ),
        ("now.getHours(\"Nowhere/City\") == 1", 1, 14, "no time zone"),
        // Text that is no expression.
        ("", 1, 1, "the expression is empty"),
        ("true &&", 1, 8, "ends too early"),
        ("(true", 1, 6, "missing ')' at the end"),
        ("true true", 1, 6, "no expression"),
        ("\"ä\" == 'x' ; true", 1, 12, "no expression"),
        ("true\n&& \"abc", 2, 4, "no expression"),
        ("x.?y", 1, 2, "unsupported syntax"),
    ] {
        let fault = Expression::compile(source).expect_err(source);
        assert!(fault.what.contains(part), "{source}: {fault}");
        assert_eq!(
            (fault.line, fault.column),
            (line, column),
            "{source}: {fault}"
        );
    }
}

#[test]
fn hostile_expressions_are_refused_quickly() {
    let many = |piece: &str, times: usize| piece.repeat(times);
    for (case, source) in [
        ("too long", format!("{}true", many("true && ", 1024))),
        ("open parentheses", many("(", 8000)),
        ("closed parentheses", format!("{}true{}", many("(", 4000), many(")", 4000))),
        ("lists", format!("{}{}", many("[", 4000), many("]", 4000))),
        ("maps", many("{", 8000)),
        ("sums", format!("{}1 == 1", many("1+", 4000))),
        ("fields", format!("request{}", many(".a", 4000))),
        ("entries", format!("request.dnsNames{}", many("[0]", 2700))),
        ("calls", format!("request.door{} == \"\"", many(".lowerAscii()", 600))),
        ("conditions", format!("{}true", many("true?true:", 800))),
        ("half conditions", many("a?", 4000)),
        ("brackets of all kinds", many("[({a?", 1600)),
        (
            "three loops",
            "request.dnsNames.all(a, request.dnsNames.all(b, request.dnsNames.all(c, a == b || b == c)))"
                .to_owned(),
        ),
        (
            "a list that grows",
            format!("size(request.dnsNames{}) > 1", many(".map(a, [a, a]).map(b, b + b)", 6)),
        ),
        (
            "a text that doubles",
            format!("[\"ab\"]{} == [\"\"]", many(".map(a, a + a)", 40)),
        ),
        (
            "a list of lists over lists",
            "(request.dnsNames + request.dnsNames + request.dnsNames + request.dnsNames).all(a, \
             (request.dnsNames + request.dnsNames + request.dnsNames).all(b, a.contains(b)))"
                .to_owned(),
        ),
        (
            "a regular expression that explodes",
            r#"request.door.matches("((((a{1,100}){1,100}){1,100}){1,100})")"#.to_owned(),
        ),
    ] {
        let (compiled, took) = timed(|| Expression::compile(&source));
        assert!(compiled.is_err(), "{case} was taken");
        assert!(took < Duration::from_secs(10), "{case}: {took:?}");
    }
}

#[test]
fn what_is_taken_stays_cheap_on_the_largest_request() {
    // A test thread has the stack that a worker has.
    let mut build = CsrBuilder::new("web01.example.com");
    for i in 0..CsrLimits::STANDARD.max_alt_names {
        build = build.dns(&format!("host-{i:03}.some-longer-domain.example.com"));
    }
    let world = World {
        csr: checked(&build),
        ..World::full()
    };
    let deepest = format!("{}true{}", "!(".repeat(30), ")".repeat(30));
    for source in [
        // Backtracking would take forever on it.
        r#"request.dnsNames.all(n, n.matches("^(([a-z0-9.-])+)+$"))"#,
        "request.dnsNames.all(a, request.dnsNames.exists(b, a == b))",
        "request.dnsNames.all(a, a in request.dnsNames)",
        "(request.dnsNames + request.dnsNames).exists_one(n, n == \"\") == false",
        deepest.as_str(),
    ] {
        let expression = Expression::compile(source).expect(source);
        let (holds, took) = timed(|| world.with(|facts| expression.evaluate(facts)));
        assert_eq!(holds, Ok(true), "{source}");
        assert!(took < Duration::from_secs(5), "{source}: {took:?}");
    }
}

#[test]
fn facts_beyond_the_reckoned_size_are_a_fault() {
    let groups = |count: usize| Identity::User {
        username: "many".to_owned(),
        groups: vec!["g".to_owned(); count],
        uid: String::new(),
        extra: BTreeMap::new(),
    };
    let mut world = World::bare();
    world.requester.identity = groups(256);
    let source = r#""g" in requester.groups"#;
    assert_eq!(world.says(source), Ok(true));
    world.requester.identity = groups(257);
    let fault = world.says(source).unwrap_err();
    assert!(
        fault.contains("requester.groups has 257 entries"),
        "{fault}"
    );
    // Not even where the rest alone would say true.
    assert!(world.says(&format!("{source} || true")).is_err());
}

#[test]
fn needs_name_what_must_be_fetched() {
    for (source, machine, ledger) in [
        ("request.renewal", false, false),
        ("machine != null", true, false),
        ("request.renewal && machine.enrolled", true, false),
        ("ledger.revoked == null", false, true),
        ("has(ledger.certificate)", false, true),
        (
            "request.dnsNames.all(n, n in machine.addresses) || ledger.certificate.sameKey",
            true,
            true,
        ),
    ] {
        let needs = Expression::compile(source).expect(source).needs();
        assert_eq!(needs, Needs { machine, ledger }, "{source}");
    }
}

#[test]
fn explanations_show_what_was_looked_at() {
    let (full, bare) = (World::full(), World::bare());
    for (world, source, shown) in [
        (
            &full,
            r#"request.commonName == "x" && request.dnsNames.all(n, n != request.commonName)"#,
            r#"request.commonName = "web01.example.com", request.dnsNames = ["web01.example.com", "www.example.com"]"#,
        ),
        (
            &full,
            "machine != null && request.created < now",
            "machine = known, request.created = 2027-01-15T08:00:00Z, now = 2027-01-15T08:00:00Z",
        ),
        (
            &bare,
            "machine == null || machine.enrolled",
            "machine = null, machine.enrolled is not there",
        ),
        (
            &full,
            r#"has(request.extensions.pp_role) && request.extensions.pp_role.matches("^w")"#,
            r#"has(request.extensions.pp_role) = true, request.extensions.pp_role = "web""#,
        ),
        (
            &full,
            r#"requester.extra["scopes"] == []"#,
            r#"requester.extra = {"scopes": ["a"]}"#,
        ),
        (&full, "true", ""),
    ] {
        let expression = Expression::compile(source).expect(source);
        assert_eq!(
            world.with(|facts| expression.looks_at(facts)),
            shown,
            "{source}"
        );
    }
}

#[test]
fn explanations_are_short_and_safe_to_print() {
    let hostile = "\u{1b}[31m\"x\"\u{202e}\n".repeat(100);
    let world = World {
        requester: Requester {
            identity: Identity::Certname { certname: hostile },
            source: None,
        },
        ..World::full()
    };
    let expression = Expression::compile("requester.certname in request.dnsNames").unwrap();
    let shown = world.with(|facts| expression.looks_at(facts));
    assert!(shown.len() <= 516, "{}", shown.len());
    assert!(
        shown.starts_with("requester.certname = \"") && shown.ends_with('…'),
        "{shown}"
    );
    assert!(
        !shown.chars().any(|c| c.is_control() || c == '\u{202e}'),
        "{shown}"
    );
}

/// Pieces of expressions, so that random text gets behind the parser.
fn piece() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "request",
        "requester",
        "machine",
        "ledger",
        "now",
        "request.dnsNames",
        "request.commonName",
        "request.extensions",
        "machine.notAfter",
        "ledger.certificate",
        "n",
        "null",
        "true",
        "1",
        "-1",
        "9223372036854775807",
        "2u",
        "1.5",
        "\"a\"",
        "\"\"",
        "b\"x\"",
        "[]",
        "{}",
        "{\"a\": 1}",
        ".",
        "&&",
        "||",
        "==",
        "!=",
        "<",
        ">=",
        "+",
        "-",
        "*",
        "/",
        "%",
        "!",
        " in ",
        "?",
        ":",
        "(",
        ")",
        "[",
        "]",
        ",",
        ".all(n, ",
        ".exists(n, ",
        ".map(n, ",
        ".filter(n, ",
        ".size()",
        "size(",
        "has(",
        ".startsWith(",
        ".matches(\"a+\")",
        ".lowerAscii()",
        "timestamp(",
        "duration(\"1h\")",
        "string(",
        "int(",
        "dyn(",
        ".getHours()",
        ".pp_role",
        " ",
    ]);
    prop_oneof![9 => words.prop_map(str::to_owned), 1 => "\\PC{0,4}"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(pieces in prop::collection::vec(piece(), 0..24)) {
        let source = pieces.concat();
        match Expression::compile(&source) {
            Err(fault) => {
                let lines = source.split('\n').count();
                prop_assert!(fault.line >= 1 && fault.line as usize <= lines.max(1), "{fault}");
                prop_assert!(fault.column >= 1);
                prop_assert!(!fault.what.is_empty() && !fault.what.contains("failed"), "{source}: {fault}");
            }
            Ok(expression) => for world in [World::full(), World::bare()] {
                let first = world.with(|facts| expression.evaluate(facts));
                if let Err(fault) = &first {
                    prop_assert!(!fault.what.contains("the evaluation failed"), "{source}");
                }
                prop_assert_eq!(first, world.with(|facts| expression.evaluate(facts)));
                prop_assert!(world.with(|facts| expression.looks_at(facts)).len() <= 516);
            },
        }
    }
}

#[test]
fn an_hour_of_the_day_follows_the_clock() {
    let expression = Expression::compile("now.getHours() >= 8 && now.getHours() < 18").unwrap();
    let world = World::full();
    for (hour, holds) in [(0, true), (9, true), (10, false), (23, false), (24, true)] {
        let at = |facts: &Facts<'_>| {
            let now = UnixTime(NOW.0 + hour * 3600);
            expression.evaluate(&Facts { now, ..*facts })
        };
        assert_eq!(world.with(at), Ok(holds), "{hour} hours later");
    }
}
