//! Certificates of the signers of `kubernetes.io`: their validity and their extensions.

use std::sync::Arc;

use countersign_authority::profile::{
    DraftFault, ExtensionRule, NameBounds, NameKinds, OrganizationRule, OtherExtensions, Pattern,
    SubjectBounds, Usage,
};
use countersign_authority::{Issuer, Profile, ProfileFault};
use countersign_pki::{
    Certificate, CheckedCsr, CsrLimits, Oid, SignatureAlgorithm, UnixTime, ext, oid,
};
use countersign_policy::{Network, SignerName, Wishes};
use countersign_testkit::chain::Ca;
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;

use crate::profiles;
use crate::world::{self, START, TestClock, issuer_id, with_csr};

const HOUR: i64 = 3600;
const YEAR: i64 = 365 * 24 * HOUR;
const BACKDATE: i64 = 300;

fn issuer() -> Issuer {
    let ca = Ca::root("CA", keys::p256_c(), UnixTime(START));
    Issuer::from_chain(
        issuer_id(),
        ca.certificate.to_pem().into_bytes(),
        SignatureAlgorithm::EcdsaP256Sha256,
        ca.certificate.spki_der(),
    )
    .unwrap()
}

#[test]
fn validity_is_what_was_asked_for_within_the_signing_duration_and_the_life_of_the_ca() {
    let issuer = issuer();
    let end = issuer.not_after().0;
    let year = profiles::client();
    let two_hours = profiles::client().with_longest_life(7200);
    let rows = [
        ("nothing asked", &year, None, START, YEAR - BACKDATE),
        (
            "more than the longest",
            &year,
            Some(2 * YEAR),
            START,
            YEAR - BACKDATE,
        ),
        (
            "eight hours",
            &year,
            Some(8 * HOUR),
            START,
            8 * HOUR - BACKDATE,
        ),
        (
            "a second less",
            &year,
            Some(8 * HOUR - 1),
            START,
            8 * HOUR - 1,
        ),
        ("ten minutes", &year, Some(600), START, 600),
        ("less than ten minutes", &year, Some(599), START, 600),
        ("a short signing duration", &two_hours, None, START, 7200),
        ("more than a short one", &two_hours, Some(YEAR), START, 7200),
        ("less than a short one", &two_hours, Some(HOUR), START, HOUR),
        ("beyond the end of the CA", &year, None, end - HOUR, HOUR),
        (
            "asked beyond the end of the CA",
            &year,
            Some(2 * HOUR),
            end - HOUR,
            HOUR,
        ),
        ("the last second of the CA", &year, None, end - 1, 1),
    ];
    for (what, profile, asked, now, after_now) in rows {
        let asked = asked.map(|seconds| u64::try_from(seconds).unwrap());
        let validity = profile.validity(asked, UnixTime(now), &issuer).unwrap();
        assert_eq!(validity.not_before, UnixTime(now - BACKDATE), "{what}");
        assert_eq!(validity.not_after, UnixTime(now + after_now), "{what}");
    }
    for now in [end, end + 1, end + YEAR] {
        let ended = year.validity(None, UnixTime(now), &issuer);
        assert!(matches!(ended, Err(DraftFault::IssuerEnded { .. })));
    }
}

/// A certificate of `profile` for `request`, with every usage.
async fn signed(profile: Profile, request: &CsrBuilder, usages: &[&str]) -> Certificate {
    let folder = tempfile::tempdir().unwrap();
    world::prepare(folder.path()).await;
    let signer = SignerName::parse("kubernetes.io/legacy-unknown").unwrap();
    let (store, keys) = (world::store(folder.path()), world::keys(folder.path()));
    let profiles = vec![(signer.clone(), profile, false)];
    let authority = world::authority_with(
        folder.path(),
        Arc::new(store),
        Arc::new(keys),
        TestClock::new(),
        world::policy(false),
        profiles,
    )
    .await;
    let csr = CheckedCsr::check(&request.sign(keys::p256_a()), &CsrLimits::STANDARD).unwrap();
    let mut submission = with_csr("object", csr);
    submission.signer = signer;
    submission.door = &world::RETAINING;
    submission.wishes = wishes(usages);
    authority.requests.submit(submission).await.unwrap();
    let approved = authority
        .requests
        .approve(world::act("object"))
        .await
        .unwrap();
    Certificate::parse(approved.issued.unwrap().der()).unwrap()
}

fn wishes(usages: &[&str]) -> Wishes {
    Wishes {
        usages: usages.iter().map(ToString::to_string).collect(),
        expiration_seconds: None,
    }
}

fn extensions(certificate: &Certificate) -> Vec<(Oid, bool)> {
    let extensions = certificate.extensions().iter();
    extensions.map(|e| (e.oid, e.critical)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn extensions_stand_in_the_order_of_the_original_and_usages_in_theirs() {
    let request = CsrBuilder::new("first")
        .uri("spiffe://a")
        .ip("192.0.2.1".parse().unwrap())
        .email("a@b")
        .dns("a")
        .raw_extension(
            &oid::BASIC_CONSTRAINTS,
            Some(true),
            &ext::basic_constraints_ca().value,
        )
        .raw_extension(&oid::KEY_USAGE, Some(true), &[3, 2, 1, 6])
        .extension(&oid::PP_CLI_AUTH, "true");
    // In the opposite order of that in which they are written.
    let mut all: Vec<&str> = Usage::names().collect();
    all.reverse();
    let certificate = signed(profiles::anything(), &request, &all).await;
    assert_eq!(
        extensions(&certificate),
        [
            (oid::KEY_USAGE, true),
            (oid::EXTENDED_KEY_USAGE, false),
            (oid::BASIC_CONSTRAINTS, true),
            (oid::AUTHORITY_KEY_IDENTIFIER, false),
            (oid::SUBJECT_ALT_NAME, false),
        ]
    );
    assert!(!certificate.is_ca());
    let order: Vec<String> = certificate
        .extended_key_usages()
        .iter()
        .map(ToString::to_string)
        .collect();
    let pkix = (1..=9).map(|n| format!("1.3.6.1.5.5.7.3.{n}"));
    let expected: Vec<String> = ["2.5.29.37.0".to_owned()]
        .into_iter()
        .chain(pkix)
        .chain(["1.3.6.1.4.1.311.10.3.3", "2.16.840.1.113730.4.1"].map(str::to_owned))
        .collect();
    assert_eq!(order, expected);
    let names: Vec<String> = certificate
        .alt_names()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        names,
        ["DNS:a", "email:a@b", "IP:192.0.2.1", "URI:spiffe://a"]
    );

    // Nothing is written of which there is nothing; an empty subject makes the names critical.
    let nameless = CsrBuilder::without_subject().dns("a");
    let certificate = signed(profiles::anything(), &nameless, &[]).await;
    assert_eq!(
        extensions(&certificate),
        [
            (oid::BASIC_CONSTRAINTS, true),
            (oid::AUTHORITY_KEY_IDENTIFIER, false),
            (oid::SUBJECT_ALT_NAME, true),
        ]
    );
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts
        .iter()
        .map(|text| Pattern::parse(text).unwrap())
        .collect()
}

/// A site's own signer with every kind of bound.
fn bounded() -> Profile {
    let mut profile = profiles::anything();
    profile.subjects = SubjectBounds {
        common_names: patterns(&["*.vpn.example.com", "gateway"]),
        organizations: OrganizationRule::Among {
            permitted: patterns(&["team-*"]),
            required: vec!["team-vpn".to_owned()],
        },
    };
    profile.names = NameBounds {
        required: NameKinds {
            dns: true,
            ..NameKinds::NONE
        },
        dns: patterns(&["*.vpn.example.com"]),
        ip: vec![Network::parse("10.0.0.0/8").unwrap()],
        email: patterns(&["*@example.com"]),
        uri: patterns(&["spiffe://example.com/*"]),
    };
    profile.extensions = ExtensionRule::Copied {
        oids: vec![copied()],
        others: OtherExtensions::Refused,
    };
    profile
}

fn copied() -> Oid {
    Oid::parse("1.3.6.1.4.1.99999.1").unwrap()
}

fn good() -> CsrBuilder {
    CsrBuilder::new("a.vpn.example.com")
        .organization("team-vpn")
        .dns("A.vpn.example.com")
}

#[test]
fn a_signer_of_a_site_certifies_what_its_declaration_permits_and_nothing_else() {
    let other = Oid::parse("1.3.6.1.4.1.99999.2").unwrap();
    let named = |name: &str| {
        CsrBuilder::new(name)
            .organization("team-vpn")
            .dns("a.vpn.example.com")
    };
    let ca = ext::basic_constraints_ca().value;
    let leaf = ext::basic_constraints_leaf().value;
    let rows: Vec<(&str, CsrBuilder, Option<&str>)> = vec![
        ("as it should be", good(), None),
        (
            "another common name that is permitted",
            named("gateway"),
            None,
        ),
        (
            "a longer common name",
            named("gateway2"),
            Some("its common name \"gateway2\" matches none of"),
        ),
        (
            "a name of another domain",
            named("vpn.example.com"),
            Some("matches none of"),
        ),
        (
            "no common name",
            CsrBuilder::without_subject()
                .organization("team-vpn")
                .dns("a.vpn.example.com"),
            Some("its common name \"\""),
        ),
        (
            "another organization beside",
            good().organization("team-b"),
            None,
        ),
        (
            "a foreign organization beside",
            good().organization("root"),
            Some("the organization \"root\""),
        ),
        (
            "without its organization",
            CsrBuilder::new("gateway")
                .organization("team-b")
                .dns("a.vpn.example.com"),
            Some("does not name the organization \"team-vpn\""),
        ),
        (
            "without a name",
            CsrBuilder::new("gateway").organization("team-vpn"),
            Some("lacks an alternative name of kind DNS"),
        ),
        (
            "a name of another kind alone",
            CsrBuilder::new("gateway")
                .organization("team-vpn")
                .email("a@example.com"),
            Some("lacks an alternative name"),
        ),
        (
            "a foreign DNS name",
            good().dns("www.example.com"),
            Some("DNS:www.example.com"),
        ),
        (
            "a wildcard that looks like the pattern",
            good().dns("*.vpn.example.com"),
            Some("DNS:*.vpn.example.com"),
        ),
        (
            "an address within",
            good().ip("10.1.2.3".parse().unwrap()),
            None,
        ),
        (
            "an address outside",
            good().ip("192.0.2.1".parse().unwrap()),
            Some("192.0.2.1"),
        ),
        ("a mail address within", good().email("a@example.com"), None),
        (
            "a mail address outside",
            good().email("a@example.com.evil"),
            Some("a@example.com.evil"),
        ),
        ("a URI within", good().uri("spiffe://example.com/a"), None),
        (
            "a URI outside",
            good().uri("spiffe://example.org/a"),
            Some("spiffe://example.org/a"),
        ),
        (
            "an extension that is copied",
            good().extension(&copied(), "x"),
            None,
        ),
        (
            "one that is not",
            good().extension(&other, "x"),
            Some("1.3.6.1.4.1.99999.2"),
        ),
        (
            "what many programs add",
            good().raw_extension(&oid::BASIC_CONSTRAINTS, None, &leaf),
            None,
        ),
        (
            "a CA certificate",
            good().raw_extension(&oid::BASIC_CONSTRAINTS, None, &ca),
            Some("2.5.29.19"),
        ),
        (
            "the unlimited group",
            good().organization("system:masters"),
            Some("system:masters"),
        ),
    ];
    let profile = bounded();
    for (what, request, expected) in rows {
        let csr = CheckedCsr::check(&request.sign(keys::p256_a()), &CsrLimits::STANDARD).unwrap();
        let told = profile.examine(&csr, "object", &wishes(&[]));
        let told = told.err().map(|fault: ProfileFault| fault.to_string());
        match (told, expected) {
            (None, None) => {}
            (Some(told), Some(expected)) => assert!(told.contains(expected), "{what}: {told}"),
            (told, _) => panic!("{what}: {told:?}"),
        }
    }
}

#[test]
fn a_request_that_was_only_judged_is_never_signed() {
    let der = good().alt_name(0x82, b"").sign(keys::p256_a());
    let csr = CheckedCsr::judged(&der).unwrap();
    let told = bounded().examine(&csr, "object", &wishes(&[]));
    assert!(matches!(told, Err(ProfileFault::Weak { .. })), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copied_extension_stands_in_the_certificate_as_it_was_asked_for() {
    let request = good().raw_extension(&copied(), Some(true), &[4, 1, 7]);
    let certificate = signed(bounded(), &request, &["server auth"]).await;
    let extension = certificate.extension(&copied()).unwrap();
    assert_eq!(
        (extension.critical, extension.value.as_slice()),
        (true, &[4, 1, 7][..])
    );
}
