//! Of several things that are wrong with a token, the first of a fixed list is reported: theft before what ends by itself.

use countersign_pki::oid;
use countersign_policy::{Network, ReasonCode, Token, TokenBinding};
use countersign_testkit::keys;
use proptest::prelude::*;

use super::{Asking, NAME, certificate_until, known, token_for, used_by};
use crate::NOW;

/// One thing that is wrong with a token.
struct Fault {
    name: &'static str,
    code: &'static str,
    is_misuse: bool,
    apply: fn(&mut Token, &mut Asking),
}

/// In the order in which they are reported.
const FAULTS: [Fault; 13] = [
    Fault {
        name: "taken back",
        code: "token_revoked",
        is_misuse: false,
        apply: |token, _| token.revoked = true,
    },
    Fault {
        name: "misused too often",
        code: "token_locked",
        is_misuse: false,
        apply: |token, _| token.locked = true,
    },
    Fault {
        name: "for another name",
        code: "token_certname_mismatch",
        is_misuse: true,
        apply: |token, _| token.binding = TokenBinding::Exact("web02.example.com".to_owned()),
    },
    Fault {
        name: "used by this key, and its outcome may not be had any more",
        code: "token_exhausted",
        is_misuse: false,
        apply: |token, _| token.same = Some(used_by(NAME, keys::p256_a())),
    },
    Fault {
        name: "used by another key",
        code: "token_key_mismatch",
        is_misuse: true,
        apply: |token, _| token.other = Some(used_by(NAME, keys::p256_b())),
    },
    Fault {
        name: "not yet good",
        code: "token_not_yet_valid",
        is_misuse: false,
        apply: |token, _| token.not_before = NOW.plus_seconds(61),
    },
    Fault {
        name: "no longer good",
        code: "token_expired",
        is_misuse: false,
        apply: |token, _| token.expires_at = NOW,
    },
    Fault {
        name: "used up",
        code: "token_exhausted",
        is_misuse: false,
        apply: |token, _| token.uses = token.max_uses,
    },
    Fault {
        name: "bound to another key",
        code: "token_key_mismatch",
        is_misuse: true,
        apply: |token, _| token.terms.spki_sha256 = Some("00".repeat(32)),
    },
    Fault {
        name: "from another network",
        code: "token_source_not_allowed",
        is_misuse: true,
        apply: |token, _| token.terms.source_cidrs = vec![Network::parse("10.0.0.0/8").unwrap()],
    },
    Fault {
        name: "with another name beside its own",
        code: "token_san_not_allowed",
        is_misuse: true,
        apply: |_, asking| asking.csr = asking.csr.clone().dns("vault.example.com"),
    },
    Fault {
        name: "with an extension that gives rights",
        code: "token_extension_not_allowed",
        is_misuse: true,
        apply: |_, asking| asking.csr = asking.csr.clone().extension(&oid::PP_CLI_AUTH, "true"),
    },
    Fault {
        name: "of a name that has a certificate",
        code: "existing_certificate",
        is_misuse: false,
        apply: |token, _| token.existing = Some(certificate_until(NOW.plus_seconds(1))),
    },
];

/// The code and the reason of what these faults come to.
fn reported(faults: &[&Fault]) -> Option<(String, String)> {
    let (mut token, mut asking) = (token_for(NAME), Asking::of(NAME));
    for fault in faults {
        (fault.apply)(&mut token, &mut asking);
    }
    let found = asking.found(token);
    let code = found.code()?.to_owned();
    assert_eq!(found.uses, [], "what is denied uses nothing up");
    Some((code, found.step.reason))
}

#[test]
fn each_fault_has_its_code() {
    for fault in &FAULTS {
        let (code, reason) = reported(&[fault]).unwrap();
        assert_eq!(code, fault.code, "{}", fault.name);
        assert!(reason.starts_with("enrolment token aaaqeayeaudaocaj: "));
        assert_eq!(
            ReasonCode::from(code).is_misuse(),
            fault.is_misuse,
            "{}",
            fault.name
        );
    }
}

#[test]
fn of_two_faults_the_earlier_one_is_reported() {
    for (i, earlier) in FAULTS.iter().enumerate() {
        let alone = reported(&[earlier]);
        for later in FAULTS.iter().skip(i + 1) {
            let (one, two) = (earlier.name, later.name);
            assert_eq!(reported(&[earlier, later]), alone, "{one}, and {two}");
            assert_ne!(reported(&[later]), alone, "{one} and {two} look the same");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// However many things are wrong, the first counts; and a token that is revoked, locked, expired or exhausted
    /// never suits a request, whatever else it permits.
    #[test]
    fn any_fault_is_enough(
        chosen in prop::collection::vec(any::<bool>(), FAULTS.len()),
        max_uses in 1_u32..3,
        allow_replace in any::<bool>(),
        permits in any::<bool>(),
        glob in any::<bool>(),
    ) {
        let (mut token, mut asking) = (token_for(NAME), Asking::of(NAME));
        token.max_uses = max_uses;
        token.terms.allow_replace = allow_replace;
        if permits {
            token.terms.allowed_sans = vec!["DNS:vault.example.com".to_owned()];
            token.terms.allowed_extensions =
                Some([(oid::PP_CLI_AUTH.to_string(), vec!["true".to_owned()])].into());
        }
        if glob {
            token.binding = TokenBinding::Glob("*.example.com".to_owned());
        }
        let faults = FAULTS.iter().zip(&chosen).filter(|(_, chosen)| **chosen);
        let faults: Vec<&Fault> = faults.map(|(fault, _)| fault).collect();
        for fault in &faults {
            (fault.apply)(&mut token, &mut asking);
        }
        // What this token permits is no fault of it.
        let counts = |fault: &&&Fault| match fault.name {
            "used by another key" => max_uses == 1,
            "with another name beside its own" | "with an extension that gives rights" => !permits,
            "of a name that has a certificate" => !allow_replace,
            _ => true,
        };
        let expected = faults.iter().find(counts).map(|fault| fault.code);
        let found = asking.found(token);
        prop_assert_eq!(found.code(), expected, "{:?}", found.step);
    }

    /// A limit more never turns a token that does not suit into one that does.
    #[test]
    fn a_limit_more_never_helps(
        chosen in prop::collection::vec(prop::bool::weighted(0.1), FAULTS.len()),
        limit in 0_usize..6,
        fits in any::<bool>(),
    ) {
        let (mut token, mut asking) = (token_for(NAME), Asking::of(NAME));
        asking.csr = asking.csr.extension(&known("pp_instance_id"), "i-0abc");
        for (fault, _) in FAULTS.iter().zip(&chosen).filter(|(_, chosen)| **chosen) {
            (fault.apply)(&mut token, &mut asking);
        }
        let before = asking.found(token.clone()).code().map(str::to_owned);
        let either = |good: &str, bad: &str| if fits { good.to_owned() } else { bad.to_owned() };
        match limit {
            0 => {
                let key = asking.checked().key_fingerprint().to_hex();
                token.terms.spki_sha256.get_or_insert(either(&key, "00"));
            }
            1 if token.terms.source_cidrs.is_empty() => {
                let network = Network::parse(&either("192.0.2.0/24", "198.51.100.0/24"));
                token.terms.source_cidrs = vec![network.unwrap()];
            }
            // It has networks already; one more would be no limit.
            1 => {}
            2 => token.terms.profile = either("example.com/agents", "example.com/other"),
            3 => {
                let listed = (known("pp_instance_id").to_string(), vec![either("i-0abc", "i-0def")]);
                token.terms.allowed_extensions = Some([listed].into());
            }
            4 => token.not_before = token.not_before.max(NOW.plus_seconds(u64::from(!fits) * 100)),
            _ => token.expires_at = token.expires_at.min(NOW.plus_seconds(u64::from(fits))),
        }
        let after = asking.found(token).code().map(str::to_owned);
        if before.is_some() {
            prop_assert!(after.is_some(), "{before:?} became a match");
        }
        if before.is_none() {
            prop_assert_eq!(after.is_none(), fits);
        }
    }
}
