//! Tokens in requests, taken out of the places where they may be.

use std::fs;

use countersign_pki::{CarriedFault, Carrier, CheckedCsr, CsrLimits, Oid, carried, masked, oid};
use countersign_testkit::agent::PuppetAgent;
use countersign_testkit::counterparts::Release;
use countersign_testkit::csr::{CsrBuilder, TOKEN};
use countersign_testkit::{der, keys};
use rstest::rstest;
use tempfile::TempDir;

use crate::openssl::{Desk, openssl, text};

/// What became of the search.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Find {
    Text(String),
    Nothing,
    Ambiguous,
    Malformed,
}
use Find::{Ambiguous, Malformed, Nothing};

pub(crate) fn found(text: impl Into<String>) -> Find {
    Find::Text(text.into())
}

pub(crate) fn find(csr: &CheckedCsr, carriers: &[Carrier]) -> Find {
    match carried(csr, carriers) {
        Ok(Some(text)) => Find::Text(text.expose().to_owned()),
        Ok(None) => Nothing,
        Err(CarriedFault::Ambiguous { .. }) => Ambiguous,
        Err(CarriedFault::Malformed { .. }) => Malformed,
    }
}

pub(crate) fn read(builder: &CsrBuilder) -> CheckedCsr {
    CheckedCsr::check(&builder.sign(keys::ed25519()), &CsrLimits::STANDARD).unwrap()
}

pub(crate) fn new() -> CsrBuilder {
    CsrBuilder::new("web01.example.com")
}

/// The attribute without a value, with two, or with whatever is given.
fn passwords(values: &[&[u8]]) -> CsrBuilder {
    new().attribute_values(&oid::CHALLENGE_PASSWORD, values)
}

pub(crate) fn preshared(value: &[u8]) -> CsrBuilder {
    new().raw_extension(&oid::PP_PRESHARED_KEY, None, value)
}

fn every_carrier() -> [Carrier; 3] {
    [
        Carrier::ChallengePassword,
        Carrier::Attribute(PRIVATE),
        Carrier::PresharedKey,
    ]
}

/// The text by string type, the same for attributes and for the string inside of `pp_preshared_key`.
#[rstest]
#[case::utf8(0x0c, b"ab_1", found("ab_1"))]
#[case::printable(0x13, b"ab1", found("ab1"))]
#[case::printable_with_underscore(0x13, b"ab_1", found("ab_1"))]
#[case::printable_with_every_visible_sign(
    0x13,
    b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    found("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
)]
#[case::t61(0x14, b"ab_1", found("ab_1"))]
#[case::ia5(0x16, b"ab_1", found("ab_1"))]
#[case::bmp(0x1e, b"\0a\0b\0_\x001", found("ab_1"))]
#[case::universal(0x1c, b"\0\0\0a\0\0\0_", found("a_"))]
#[case::case_is_kept(0x0c, b"aBc", found("aBc"))]
#[case::utf8_empty(0x0c, b"", Nothing)]
#[case::printable_empty(0x13, b"", Nothing)]
#[case::bmp_empty(0x1e, b"", Nothing)]
#[case::universal_empty(0x1c, b"", Nothing)]
#[case::nul(0x13, b"ab\0", Malformed)]
#[case::nul_alone(0x0c, b"\0", Malformed)]
#[case::blank(0x0c, b"a b", Malformed)]
#[case::blank_at_the_end(0x13, b"ab_1 ", Malformed)]
#[case::newline_at_the_end(0x0c, b"ab_1\n", Malformed)]
#[case::escape(0x16, b"\x1b[31m", Malformed)]
#[case::delete(0x16, b"\x7f", Malformed)]
#[case::utf8_beyond_ascii(0x0c, "pässword".as_bytes(), Malformed)]
#[case::utf8_invalid(0x0c, b"\xff", Malformed)]
#[case::utf8_overlong(0x0c, b"\xc1\xa1", Malformed)]
#[case::printable_beyond_ascii(0x13, b"\xe9", Malformed)]
#[case::t61_beyond_ascii(0x14, b"\xe9", Malformed)]
#[case::bmp_beyond_ascii(0x1e, b"\x20\xac", Malformed)]
#[case::bmp_wide_letter(0x1e, b"\xff\x41", Malformed)]
#[case::bmp_surrogates(0x1e, b"\xd8\x3d\xde\0", Malformed)]
#[case::bmp_odd(0x1e, b"\0a\0", Malformed)]
#[case::bmp_nul(0x1e, b"\0\0", Malformed)]
#[case::bmp_blank(0x1e, b"\0a\0 ", Malformed)]
#[case::bmp_swapped(0x1e, b"a\0b\0", Malformed)]
#[case::universal_cut(0x1c, b"\0\0\0a\0\0", Malformed)]
#[case::universal_beyond_ascii(0x1c, b"\0\x01\xf6\0", Malformed)]
#[case::universal_sign_bit(0x1c, b"\x80\0\0a", Malformed)]
#[case::constructed_utf8(0x2c, b"\x0c\x04ab_1", Malformed)]
#[case::constructed_printable(0x33, b"\x04\x02ab\x04\x02_1", Malformed)]
#[case::constructed_empty(0x2c, b"", Malformed)]
#[case::octets(0x04, b"ab_1", Malformed)]
#[case::numeric_string(0x12, b"1234", Malformed)]
#[case::visible_string(0x1a, b"ab_1", Malformed)]
#[case::general_string(0x1b, b"ab_1", Malformed)]
#[case::integer(0x02, b"a", Malformed)]
#[case::sequence(0x30, b"\x0c\x02ab", Malformed)]
#[case::context_tag(0x8c, b"ab_1", Malformed)]
fn text_by_string_type(#[case] tag: u8, #[case] content: &[u8], #[case] expected: Find) {
    let password = read(&new().attribute(&oid::CHALLENGE_PASSWORD, tag, content));
    assert_eq!(find(&password, &[Carrier::ChallengePassword]), expected);
    let private = read(&new().attribute(&PRIVATE, tag, content));
    assert_eq!(find(&private, &[Carrier::Attribute(PRIVATE)]), expected);
    let key = read(&preshared(&der::tlv(tag, content)));
    assert_eq!(find(&key, &[Carrier::PresharedKey]), expected);
}

#[rstest]
#[case::one(0x13, 1, 1, true)]
#[case::longest(0x13, 1, 4096, true)]
#[case::too_long(0x13, 1, 4097, false)]
#[case::longest_in_two_octets(0x1e, 2, 4096, true)]
#[case::too_long_in_two_octets(0x1e, 2, 4097, false)]
#[case::longest_in_four_octets(0x1c, 4, 4096, true)]
#[case::too_long_in_four_octets(0x1c, 4, 4097, false)]
fn length_counts_characters(
    #[case] tag: u8,
    #[case] width: usize,
    #[case] count: usize,
    #[case] fits: bool,
) {
    let text = "p".repeat(count);
    let content = der::wide(&text, width);
    let expected = || if fits { found(&text) } else { Malformed };
    let password = read(&new().attribute(&oid::CHALLENGE_PASSWORD, tag, &content));
    assert_eq!(find(&password, &[Carrier::ChallengePassword]), expected());
    let key = read(&preshared(&der::tlv(tag, &content)));
    assert_eq!(find(&key, &[Carrier::PresharedKey]), expected());
}

#[rstest]
#[case::bare(b"ab_1", found("ab_1"))]
#[case::bare_token(TOKEN.as_bytes(), found(TOKEN))]
#[case::bare_longest(&[b'p'; 4096], found("p".repeat(4096)))]
#[case::bare_too_long(&[b'p'; 4097], Malformed)]
#[case::bare_blank(b"a b", Malformed)]
#[case::bare_newline(b"ab_1\n", Malformed)]
#[case::bare_beyond_ascii("pässword".as_bytes(), Malformed)]
#[case::bare_nul(b"ab\0", Malformed)]
#[case::empty(b"", Nothing)]
#[case::trailing_octet(b"\x0c\x04ab_1x", Malformed)]
#[case::two_strings(b"\x0c\x01a\x0c\x01b", Malformed)]
#[case::cut_off(b"\x0c\x05ab_1", Malformed)]
#[case::long_form_length(b"\x0c\x81\x04ab_1", Malformed)]
#[case::indefinite_length(b"\x2c\x80\x0c\x04ab_1\0\0", Malformed)]
#[case::string_in_octets(b"\x04\x06\x0c\x04ab_1", Malformed)]
fn preshared_key_is_one_string_or_bare_text(#[case] value: &[u8], #[case] expected: Find) {
    assert_eq!(
        find(&read(&preshared(value)), &[Carrier::PresharedKey]),
        expected
    );
}

#[test]
fn what_is_not_clear_ends_the_search() {
    let password = |builder: CsrBuilder| builder.challenge_password("abc");
    let private = |builder: CsrBuilder| builder.attribute(&PRIVATE, 0x13, b"abc");
    let blank = |builder: CsrBuilder| builder.attribute(&oid::CHALLENGE_PASSWORD, 0x13, b"a b");
    let a = der::tlv(0x13, b"a");
    let b = der::tlv(0x13, b"b");
    let empty = der::tlv(0x13, b"");
    let all = every_carrier();
    let [p, x, k] = &all;
    let cases: Vec<(&str, CsrBuilder, Vec<&Carrier>, Find)> = vec![
        ("no attribute", new(), vec![p, x, k], Nothing),
        ("no carrier", password(new()), vec![], Nothing),
        ("another carrier", password(new()), vec![x, k], Nothing),
        ("one of three", password(new()), vec![p, x, k], found("abc")),
        (
            "last of three",
            preshared(b"abc"),
            vec![p, x, k],
            found("abc"),
        ),
        ("named twice", password(new()), vec![p, p], found("abc")),
        ("no value", passwords(&[]), vec![p], Ambiguous),
        ("two values", passwords(&[&a, &b]), vec![p], Ambiguous),
        ("same value twice", passwords(&[&a, &a]), vec![p], Ambiguous),
        (
            "an empty value too",
            passwords(&[&empty, &a]),
            vec![p],
            Ambiguous,
        ),
        (
            "two attributes",
            password(password(new())),
            vec![p],
            Ambiguous,
        ),
        (
            "one of two attributes without value",
            password(passwords(&[])),
            vec![p],
            Ambiguous,
        ),
        (
            "two private attributes",
            private(private(new())),
            vec![x],
            Ambiguous,
        ),
        (
            "two carriers",
            private(password(new())),
            vec![p, x],
            Ambiguous,
        ),
        (
            "two carriers, one enabled",
            private(password(new())),
            vec![x],
            found("abc"),
        ),
        (
            "attribute and extension",
            password(preshared(b"abc")),
            vec![k, p],
            Ambiguous,
        ),
        (
            "an empty one and a good one",
            passwords(&[&empty]).attribute(&PRIVATE, 0x13, b"abc"),
            vec![p, x],
            Ambiguous,
        ),
        // Whichever place is looked at first, and however good the other is.
        (
            "malformed before good",
            private(blank(new())),
            vec![p, x],
            Ambiguous,
        ),
        (
            "good before malformed",
            private(blank(new())),
            vec![x, p],
            Ambiguous,
        ),
        (
            "malformed, the other missing",
            blank(new()),
            vec![p, x, k],
            Malformed,
        ),
        (
            "no value, the other good",
            private(passwords(&[])),
            vec![x, p],
            Ambiguous,
        ),
        // A place is an attribute or an extension, never both.
        (
            "attribute of the extension's type",
            new().attribute(&oid::PP_PRESHARED_KEY, 0x13, b"abc"),
            vec![k],
            Nothing,
        ),
        (
            "extension of the attribute's type",
            new().extension(&PRIVATE, "abc"),
            vec![x],
            Nothing,
        ),
        (
            "Microsoft's extension request",
            new().attribute_values(
                &oid::MICROSOFT_EXTENSION_REQUEST,
                &[&der::seq(&[&der::extension(
                    &oid::PP_PRESHARED_KEY,
                    None,
                    b"abc",
                )])],
            ),
            vec![k],
            Nothing,
        ),
    ];
    for (name, builder, carriers, expected) in cases {
        let carriers: Vec<Carrier> = carriers.into_iter().cloned().collect();
        assert_eq!(find(&read(&builder), &carriers), expected, "{name}");
    }
}

#[test]
fn faults_say_what_is_wrong_without_content() {
    let two = carried(
        &read(&new().challenge_password(TOKEN).challenge_password(TOKEN)),
        &[Carrier::ChallengePassword],
    );
    assert_eq!(
        two.unwrap_err().to_string(),
        "enrolment token is ambiguous: its attribute occurs more than once"
    );
    let blank = carried(
        &read(&new().challenge_password(&format!("{TOKEN} "))),
        &[Carrier::ChallengePassword],
    );
    assert_eq!(
        blank.unwrap_err().to_string(),
        "enrolment token is malformed: it has characters other than visible ASCII"
    );
}

/// Octets that agents were seen to write for the value `ab_1`.
#[test]
fn encodings_of_agents_octet_by_octet() {
    let attribute = hex("301306092a864886f70d0109073106130461625f31");
    let extension = hex("3015060b2b06010401828c4c01010404060c0461625f31");
    let list = der::seq(&[&extension]);

    let csr = read(&new().raw_attribute(attribute.clone()));
    assert_eq!(find(&csr, &every_carrier()), found("ab_1"));
    let csr = read(&new().attribute_values(&oid::EXTENSION_REQUEST, &[&list]));
    assert_eq!(find(&csr, &every_carrier()), found("ab_1"));

    let ours = read(&new().challenge_password("ab_1"));
    assert!(contains(ours.der(), &attribute));
    let ours = read(&new().extension(&oid::PP_PRESHARED_KEY, "ab_1"));
    assert!(contains(ours.der(), &extension));
}

#[rstest]
#[case::printable("default", "ab1", 0x13)]
#[case::ia5("default", "ab_1", 0x16)]
#[case::printable_token("nombstr", TOKEN, 0x13)]
#[case::ia5_pkix("pkix", "ab_1", 0x16)]
#[case::utf8("utf8only", "ab_1", 0x0c)]
#[case::utf8_token("utf8only", TOKEN, 0x0c)]
fn openssl_requests(#[case] mask: &str, #[case] password: &str, #[case] tag: u8) {
    let desk = Desk::new();
    let config = desk.put(
        "req.cnf",
        format!(
            "[req]\nprompt = no\nstring_mask = {mask}\ndistinguished_name = name\nattributes = more\n\
             [name]\nCN = web01.example.com\n[more]\nchallengePassword = {password}\n"
        ),
    );
    let key = desk.put("key.pem", keys::p256_a().pkcs8_pem());
    let output = openssl(
        &["req", "-new", "-batch"],
        &[("-config", &config), ("-key", &key)],
    );
    assert!(output.status.success(), "{}", text(&output));
    let csr = CheckedCsr::from_pem(&output.stdout, &CsrLimits::STANDARD).unwrap();
    let attribute = csr.attributes_of(&oid::CHALLENGE_PASSWORD).next().unwrap();
    assert_eq!(attribute.values[0].tag(), tag);
    assert_eq!(find(&csr, &every_carrier()), found(password));
}

/// What `csr_attributes.yaml` becomes in the hands of the real agent. Only the newer one makes a request without a server;
/// the older one is met at the door.
#[test]
fn agents_requests() {
    let attribute = |name: &str| {
        format!("custom_attributes:\n  {name}: \"{TOKEN}\"\nextension_requests:\n  pp_role: web\n")
    };
    let both = format!(
        "custom_attributes:\n  challengePassword: \"ab_1\"\nextension_requests:\n  pp_preshared_key: \"{TOKEN}\"\n"
    );
    let cases = [
        (
            attribute("challengePassword"),
            every_carrier().to_vec(),
            found(TOKEN),
        ),
        (
            attribute("1.3.6.1.4.1.34380.1.2.7"),
            every_carrier().to_vec(),
            found(TOKEN),
        ),
        (both.clone(), vec![Carrier::PresharedKey], found(TOKEN)),
        (
            both.clone(),
            vec![Carrier::ChallengePassword],
            found("ab_1"),
        ),
        (both, every_carrier().to_vec(), Ambiguous),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (yaml, carriers, expected) in cases {
        let csr = agent_request(&folder, &yaml);
        assert_eq!(find(&csr, &carriers), expected, "{yaml}");
        let copy = masked(&csr).unwrap();
        assert!(!contains(&copy, secret().as_bytes()), "{yaml}");
    }
}

fn agent_request(folder: &TempDir, yaml: &str) -> CheckedCsr {
    let name = "web01.example.com";
    let agent = PuppetAgent::of(Release::Debian13, folder.path(), "localhost", 1, name).unwrap();
    agent.write_csr_attributes(yaml).unwrap();
    let finished = agent.ssl("generate_request", &[]).unwrap();
    assert!(finished.success(), "{finished}");
    let file = format!("ssl/certificate_requests/{name}.pem");
    let pem = fs::read(folder.path().join(file)).unwrap();
    CheckedCsr::from_pem(&pem, &CsrLimits::STANDARD).unwrap()
}

pub(crate) const PRIVATE: Oid = Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 2, 7]);

pub(crate) fn secret() -> &'static str {
    &TOKEN["ott1.aaaqeayeaudaocaj.".len()..]
}

pub(crate) fn contains(octets: &[u8], part: &[u8]) -> bool {
    octets.windows(part.len()).any(|window| window == part)
}

fn hex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
