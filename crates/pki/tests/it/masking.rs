//! Secrets of tokens, overwritten wherever they stand in a request and shown nowhere.

use countersign_pki::pem::{self, PemLimits};
use countersign_pki::{Carrier, CheckedCsr, Oid, RequestTemplate, carried, masked, oid};
use countersign_testkit::csr::{CsrBuilder, TOKEN};
use countersign_testkit::zoo::specimens;
use countersign_testkit::{der, fuzz, keys};
use proptest::prelude::*;
use rstest::rstest;

use crate::carriers::{PRIVATE, contains, find, found, new, preshared, read, secret};

/// The first value of the first attribute, before and after. What follows the public part is gone, to the last octet.
#[rstest]
#[case::token(0x13, TOKEN, "ott1.aaaqeayeaudaocaj.")]
#[case::utf8(0x0c, TOKEN, "ott1.aaaqeayeaudaocaj.")]
#[case::t61(0x14, TOKEN, "ott1.aaaqeayeaudaocaj.")]
#[case::ia5(0x16, TOKEN, "ott1.aaaqeayeaudaocaj.")]
#[case::bmp(0x1e, TOKEN, "ott1.aaaqeayeaudaocaj.")]
#[case::universal(0x1c, TOKEN, "ott1.aaaqeayeaudaocaj.")]
#[case::upper_case(0x13, "OTT1.AAAQEAYEAUDAOCAJ.SECRET", "OTT1.AAAQEAYEAUDAOCAJ.")]
#[case::mixed_case_in_bmp(0x1e, "oTt1.aaaqeayeaudaocaj.s", "oTt1.aaaqeayeaudaocaj.")]
#[case::inside_a_text(
    0x0c,
    "[\"otp=ott1.aaaqeayeaudaocaj.s3cret\"] and more",
    "[\"otp=ott1.aaaqeayeaudaocaj."
)]
#[case::other_shape(0x13, "ott1.abc_DEF-123", "ott1.")]
#[case::no_identifier(0x1c, "ott1..secret", "ott1.")]
fn secrets_in_attributes_are_overwritten(#[case] tag: u8, #[case] text: &str, #[case] kept: &str) {
    let width = [(0x1e, 2), (0x1c, 4)].iter().find(|w| w.0 == tag);
    let content = der::wide(text, width.map_or(1, |w| w.1));
    for kind in [oid::CHALLENGE_PASSWORD, PRIVATE, oid::UNSTRUCTURED_NAME] {
        let csr = read(&new().attribute(&kind, tag, &content).dns("web01"));
        let copy = CheckedCsr::trusted_from_store(&masked(&csr).unwrap()).unwrap();
        let expected = format!("{kept}{}", "x".repeat(text.len() - kept.len()));
        assert_eq!(copy.attributes()[0].values[0].text(), Some(expected));
        assert_eq!(copy.attributes()[0].values[0].tag(), tag);
        assert_eq!(copy.extensions(), csr.extensions());
        assert_eq!(copy.alt_names(), csr.alt_names());
        assert_eq!(copy.key_fingerprint(), csr.key_fingerprint());
        fuzz::csr(csr.der());
    }
}

/// A damaged beginning, or none: what could be a secret of ours is gone all the same.
#[rstest]
#[case::other_version("ott2.", "aaaqeayeaudaocaj.", ".")]
#[case::zero_for_o("0tt1.", "aaaqeayeaudaocaj.", ".")]
#[case::colon("ott1:", "aaaqeayeaudaocaj.", ".")]
#[case::colons("ott1:", "aaaqeayeaudaocaj:", ":")]
#[case::letter_for_digit("ottl.", "aaaqeayeaudaocaj.", ".")]
#[case::prefix_cut("1.", "aaaqeayeaudaocaj.", ".")]
#[case::id_without_prefix("", "aaaqeayeaudaocaj.", ".")]
#[case::bare_secret("", "", "")]
#[case::bare_secret_in_a_text("secret=", "", "; ")]
fn secrets_behind_a_damaged_prefix_are_overwritten(
    #[case] prefix: &str,
    #[case] id: &str,
    #[case] behind: &str,
) {
    let text = format!("{prefix}{id}{}{behind}zqthxay", secret());
    for text in [text.clone(), text.to_uppercase()] {
        for (tag, width) in [(0x13, 1), (0x0c, 1), (0x1e, 2), (0x1c, 4)] {
            let content = der::wide(&text, width);
            let psk = der::tlv(tag, &content);
            let csr = read(
                &new()
                    .attribute(&oid::CHALLENGE_PASSWORD, tag, &content)
                    .attribute(&PRIVATE, tag, &content)
                    .raw_extension(&oid::PP_PRESHARED_KEY, None, &psk)
                    .dns("web01"),
            );
            let copy = masked(&csr).unwrap();
            for part in secret().as_bytes().windows(6) {
                let part = std::str::from_utf8(part).unwrap();
                for part in [part.to_owned(), part.to_uppercase()] {
                    assert!(!contains(&copy, &der::wide(&part, width)), "{text}");
                }
            }
            let copy = CheckedCsr::trusted_from_store(&copy).unwrap();
            assert_eq!(copy.alt_names(), csr.alt_names());
            assert_eq!(copy.subject(), csr.subject());
            fuzz::csr(csr.der());
        }
    }
}

/// In names, and in extensions that are in certificates, an identifier must say that it is a token.
#[test]
fn a_token_with_a_damaged_prefix_is_overwritten_in_names() {
    let token = TOKEN.replace("ott1", "ott2");
    let role = Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 1, 13]);
    for builder in [
        CsrBuilder::new(&token),
        new().dns(&token),
        new().extension(&role, &token),
    ] {
        let copy = masked(&read(&builder)).unwrap();
        assert!(!contains(&copy, &secret().as_bytes()[..8]));
    }
    let bare = secret();
    for builder in [
        CsrBuilder::new(bare),
        new().dns(&format!("{bare}.onion")),
        new().extension(&role, bare),
    ] {
        assert_eq!(masked(&read(&builder)), None);
    }
}

#[test]
fn the_secret_of_a_bootstrap_token_is_overwritten_in_attributes() {
    let csr = read(&new().challenge_password("abcdef.0123456789abcdef"));
    let copy = CheckedCsr::trusted_from_store(&masked(&csr).unwrap()).unwrap();
    let hidden = "abcdef.xxxxxxxxxxxxxxxx".to_owned();
    assert_eq!(find(&copy, &[Carrier::ChallengePassword]), found(hidden));
}

/// Passwords of the site and signed tokens of others are judged again, and stay as they are.
#[test]
fn other_secrets_stay_as_they_are() {
    for text in [
        "correct horse battery staple",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "eyJhbGciOiJIUzUxMiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6Ikpva.c2lnbmF0dXJl",
        "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
    ] {
        assert_eq!(
            masked(&read(&new().challenge_password(text))),
            None,
            "{text}"
        );
    }
}

/// Of every specimen with the token, in whatever place and encoding, nothing of the secret is left.
#[test]
fn no_specimen_keeps_a_secret() {
    let mut seen = 0;
    for specimen in specimens() {
        let Some(csr) = specimen
            .to_der()
            .and_then(|der| CheckedCsr::trusted_from_store(&der).ok())
        else {
            continue;
        };
        let has_token = specimen.name.starts_with("token ");
        let copy = masked(&csr);
        if has_token {
            seen += 1;
            let copy = copy
                .as_deref()
                .unwrap_or_else(|| panic!("{}: kept", specimen.name));
            // Any six characters of it, in any width.
            for part in secret().as_bytes().windows(6) {
                let part = std::str::from_utf8(part).unwrap();
                for width in [1, 2, 4] {
                    assert!(
                        !contains(copy, &der::wide(part, width)),
                        "{}",
                        specimen.name
                    );
                }
            }
        } else if !contains(csr.der(), b"ott1.") {
            assert_eq!(copy, None, "{}: changed", specimen.name);
        }
    }
    assert!(seen >= 14, "only {seen} requests with a token");
}

#[rstest]
#[case::utf8(0x0c, 1)]
#[case::bmp(0x1e, 2)]
#[case::universal(0x1c, 4)]
fn a_string_inside_of_an_extension_keeps_its_encoding(#[case] tag: u8, #[case] width: usize) {
    let csr = read(&preshared(&der::tlv(tag, &der::wide(TOKEN, width))));
    let copy = CheckedCsr::trusted_from_store(&masked(&csr).unwrap()).unwrap();
    let hidden = format!("ott1.aaaqeayeaudaocaj.{}", "x".repeat(60));
    assert_eq!(find(&copy, &[Carrier::PresharedKey]), found(hidden));
}

/// Masking the last text makes DER of the whole, in which the cut text before it becomes one.
#[test]
fn a_text_that_masking_uncovers_is_masked_too() {
    let value = der::seq(&[
        &der::tlv(0x0c, b"ot"),
        &der::tlv(0x0c, b"t1."),
        &der::tlv(0x0c, b"hidden"),
        &der::tlv(0x0c, b"ott1."),
        &[b'y'; 122], // no element; 122 times `x` is one
    ]);
    let csr = read(&new().attribute_values(&PRIVATE, &[&value]));
    assert!(!contains(&masked(&csr).unwrap(), b"hidden"));
    fuzz::csr(csr.der());
}

#[test]
fn other_values_stay_as_they_are() {
    let builder = new()
        .challenge_password(TOKEN)
        .attribute(&PRIVATE, 0x13, b"rack 7, row_3")
        .extension(&oid::PP_PRESHARED_KEY, TOKEN)
        .extension(&Oid::from_arcs(&[1, 3, 6, 1, 4, 1, 34380, 1, 1, 13]), "web")
        .dns(TOKEN)
        .dns("web01")
        .ip([10, 0, 0, 1].into());
    let csr = read(&builder);
    let copy = CheckedCsr::trusted_from_store(&masked(&csr).unwrap()).unwrap();
    assert_eq!(copy.attributes()[1], csr.attributes()[1]);
    assert_eq!(copy.extensions()[1], csr.extensions()[1]);
    assert_eq!(copy.alt_names()[1..], csr.alt_names()[1..]);
    assert_eq!(copy.subject(), csr.subject());
    let hidden = format!("ott1.aaaqeayeaudaocaj.{}", "x".repeat(60));
    assert_eq!(
        copy.extensions()[0].text_value().as_deref(),
        Some(hidden.as_str())
    );
    assert_eq!(copy.alt_names()[0].to_string(), format!("DNS:{hidden}"));
    assert_eq!(find(&copy, &[Carrier::ChallengePassword]), found(hidden));
}

/// A token in the subject, before and after; the other values stay.
#[rstest]
#[case::token(0x13, TOKEN, "ott1.aaaqeayeaudaocaj.")]
#[case::utf8(0x0c, TOKEN, "ott1.aaaqeayeaudaocaj.")]
#[case::bmp(0x1e, TOKEN, "ott1.aaaqeayeaudaocaj.")]
#[case::universal(0x1c, TOKEN, "ott1.aaaqeayeaudaocaj.")]
#[case::upper_case(0x0c, "OTT1.AAAQEAYEAUDAOCAJ.SECRET", "OTT1.AAAQEAYEAUDAOCAJ.")]
#[case::percent_encoded(0x0c, "ott1%2Eaaaqeayeaudaocaj%2Esecret", "ott1%2E")]
#[case::inside_a_text(0x0c, "otp=ott1.aaaqeayeaudaocaj.s3cret", "otp=ott1.aaaqeayeaudaocaj.")]
#[case::id_too_short(0x0c, "ott1.aaaqeaye.eaqseizeeutcokbjfivsyljof", "ott1.")]
fn secrets_in_the_subject_are_overwritten(#[case] tag: u8, #[case] text: &str, #[case] kept: &str) {
    let width = [(0x1e, 2), (0x1c, 4)].iter().find(|w| w.0 == tag);
    let content = der::wide(text, width.map_or(1, |w| w.1));
    let hidden = format!("{kept}{}", "x".repeat(text.len() - kept.len()));
    for kind in [oid::COMMON_NAME, oid::ORGANIZATIONAL_UNIT, PRIVATE] {
        // Without any attribute of the request, and with a token in one.
        for builder in [new(), new().challenge_password(TOKEN)] {
            let builder = builder.name(&kind, tag, &content).name(
                &oid::ORGANIZATION,
                0x0c,
                b"ott1.example.com",
            );
            let csr = read(&builder);
            let copy = CheckedCsr::trusted_from_store(&masked(&csr).unwrap()).unwrap();
            let texts = |csr: &CheckedCsr| -> Vec<_> {
                let values = csr.subject().attributes();
                values.map(|a| a.value.text().unwrap().to_owned()).collect()
            };
            let [before, after] = [&csr, &copy].map(texts);
            assert_eq!(after, [before[0].as_str(), &hidden, &before[2]]);
            assert!(!format!("{csr:?}").contains(text), "{csr:?}");
            fuzz::csr(csr.der());
        }
    }
}

#[test]
fn hosts_may_have_names_that_begin_like_tokens() {
    let name = "ott1.example.com";
    let csr = read(&CsrBuilder::new(name).dns(name).dns("www.ott1.example.com"));
    assert_eq!(masked(&csr), None);
}

#[test]
fn secrets_stay_secret_in_debug_output() {
    let builder = new()
        .challenge_password(TOKEN)
        .attribute(&PRIVATE, 0x1e, &der::wide(TOKEN, 2))
        .extension(&oid::PP_PRESHARED_KEY, TOKEN)
        .dns(TOKEN);
    let csr = read(&builder);
    let text = carried(&csr, &[Carrier::ChallengePassword])
        .unwrap()
        .unwrap();
    let blocks = pem::decode_all(csr.to_pem().as_bytes(), &PemLimits::REQUEST).unwrap();
    let template = RequestTemplate {
        subject_der: csr.subject().der(),
        spki_der: csr.spki_der(),
        extensions: csr.extensions(),
        attributes: csr.attributes(),
    };
    for shown in [
        format!("{csr:?} {csr:#?}"),
        format!("{:?} {:#?}", csr.attributes(), csr.extensions()),
        format!("{text:?} {text:#?}"),
        format!("{blocks:?} {blocks:#?}"),
        format!("{template:?} {template:#?}"),
    ] {
        // As text, as octets in decimal and in hexadecimal, on one line or on many.
        let squeezed: String = shown.chars().filter(|c| !c.is_whitespace()).collect();
        for part in secret().as_bytes().windows(4) {
            let plain = String::from_utf8(part.to_vec()).unwrap();
            let decimal: Vec<String> = part.iter().map(u8::to_string).collect();
            let wide: Vec<String> = der::wide(&plain, 2).iter().map(u8::to_string).collect();
            let hex: String = part.iter().map(|b| format!("{b:02x}")).collect();
            for form in [plain, decimal.join(","), wide.join(","), hex] {
                assert!(!squeezed.contains(&form), "{form} in {shown}");
            }
        }
    }
    let shown = format!("{csr:?}");
    assert!(
        shown.contains("RawValue { tag: 0x13, octets: 82 }"),
        "{shown}"
    );
    assert_eq!(format!("{text:?}"), "CarriedText(..)");
}

/// Texts and fragments of tokens in every kind of element, nested at will.
fn arbitrary_value() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        Just(TOKEN.to_owned()),
        Just("OTT1.".to_owned()),
        (0..TOKEN.len()).prop_map(|at| TOKEN[..at].to_owned()),
        (0..TOKEN.len()).prop_map(|at| TOKEN[at..].to_owned()),
        Just("z".repeat(36)),
        Just("x".repeat(122)),
    ];
    let content = prop_oneof![
        3 => (prop::collection::vec(fragment, 0..3), prop::sample::select(vec![1, 2, 4]))
            .prop_map(|(parts, width)| der::wide(&parts.concat(), width)),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ];
    let leaf = (prop::sample::select(STRING_TAGS.to_vec()), content)
        .prop_map(|(tag, content)| der::tlv(tag, &content));
    leaf.prop_recursive(5, 24, 4, |inner| {
        let holders = vec![0x04, 0x24, 0x2c, 0x30, 0x31, 0x3e, 0xa0, 0x13];
        (
            prop::sample::select(holders),
            prop::collection::vec(inner, 0..4),
        )
            .prop_map(|(tag, members)| der::tlv(tag, &members.concat()))
    })
}

const STRING_TAGS: [u8; 8] = [0x04, 0x0c, 0x13, 0x14, 0x16, 0x1c, 0x1e, 0x82];

proptest! {
    #[test]
    fn any_value_is_read_or_refused_and_masked_once(
        values in prop::collection::vec(arbitrary_value(), 0..3),
        extension in arbitrary_value(),
        cut in 0_usize..4,
    ) {
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        let extension = &extension[..extension.len().saturating_sub(cut)];
        let builder = new()
            .name(&PRIVATE, 0x30, extension)
            .attribute_values(&oid::CHALLENGE_PASSWORD, &values)
            .raw_extension(&oid::PP_PRESHARED_KEY, None, extension);
        fuzz::csr(&builder.sign(keys::ed25519()));
    }

    #[test]
    fn a_token_is_hidden_wherever_it_stands(
        before in prop::collection::vec(any::<u8>(), 0..12),
        after in prop::collection::vec(any::<u8>(), 0..12),
        tag in prop::sample::select(STRING_TAGS.to_vec()),
        width in prop::sample::select(vec![1_usize, 2, 4]),
        depth in 0_usize..20,
    ) {
        let content = [before, der::wide(TOKEN, width), after].concat();
        let value = (0..depth).fold(der::tlv(tag, &content), |inner, _| der::tlv(0x04, &inner));
        let builder = new()
            .attribute_values(&PRIVATE, &[&value])
            .raw_extension(&oid::PP_PRESHARED_KEY, None, &value);
        let csr = read(&builder);
        let copy = masked(&csr).unwrap();
        prop_assert!(!contains(&copy, &der::wide(&secret()[..8], width)));
        fuzz::csr(csr.der());
    }
}
