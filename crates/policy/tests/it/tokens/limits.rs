//! What a token limits: the name and the rest of the subject, time, number, key, network.

use countersign_pki::oid;
use countersign_policy::{Network, Token, TokenBinding, TokenTerms, Use};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;

use super::{AGENTS, Asking, NAME, certificate_until, terms, token_for, used_by};
use crate::NOW;

const KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";

fn glob(pattern: &str) -> Token {
    Token {
        binding: TokenBinding::Glob(pattern.to_owned()),
        ..token_for("")
    }
}

#[test]
fn a_name_is_itself_and_a_pattern_stands_for_whole_labels() {
    let exact = |name: &str| TokenBinding::Exact(name.to_owned());
    let glob = |pattern: &str| TokenBinding::Glob(pattern.to_owned());
    let dmz = || glob("*.dmz.example.com");
    for (binding, name, covers) in [
        (exact("web01.example.com"), "web01.example.com", true),
        (exact("web01.example.com"), "WEB01.example.com", false),
        (exact("web01.example.com"), "web01.example.com.", false),
        (exact("web01.example.com"), "web01.example.co", false),
        (exact("web01.example.com"), "a.web01.example.com", false),
        (exact("*.example.com"), "web01.example.com", false),
        (exact(""), "", false),
        (dmz(), "a.dmz.example.com", true),
        (dmz(), "x.b.dmz.example.com", true),
        (dmz(), "a-1.b_2.dmz.example.com", true),
        (dmz(), "dmz.example.com", false),
        (dmz(), "evil-dmz.example.com", false),
        (dmz(), "evildmz.example.com", false),
        (dmz(), ".dmz.example.com", false),
        (dmz(), "a..dmz.example.com", false),
        (dmz(), ".a.dmz.example.com", false),
        (dmz(), "a.dmz.example.com.", false),
        (dmz(), "a.dmz.example.com.evil.org", false),
        (dmz(), "A.dmz.example.com", false),
        (dmz(), "a.DMZ.example.com", false),
        (dmz(), "*.dmz.example.com", false),
        (dmz(), "system:node:a.dmz.example.com", false),
        (dmz(), "", false),
        // Patterns that are not minted stand for nobody.
        (glob("*"), "web01.example.com", false),
        (glob("*."), "web01.example.com", false),
        (glob("*.com"), "web01.example.com", false),
        (glob("*example.com"), "evilexample.com", false),
        (glob("web*.example.com"), "web01.example.com", false),
        (glob("*.*.example.com"), "a.*.example.com", false),
        (glob("web01.example.com"), "web01.example.com", false),
    ] {
        assert_eq!(binding.covers(name), covers, "{binding:?} and {name:?}");
    }
}

#[test]
fn networks_are_read_strictly_and_compared_by_their_prefix() {
    for (network, address, contains) in [
        ("192.0.2.0/24", "192.0.2.255", true),
        ("192.0.2.0/24", "192.0.3.0", false),
        ("192.0.2.7/24", "192.0.2.1", true),
        ("192.0.2.7", "192.0.2.7", true),
        ("192.0.2.7", "192.0.2.6", false),
        ("192.0.2.0/31", "192.0.2.1", true),
        ("192.0.2.0/31", "192.0.2.2", false),
        ("0.0.0.0/0", "203.0.113.9", true),
        ("0.0.0.0/0", "2001:db8::1", false),
        ("::/0", "2001:db8::1", true),
        ("::/0", "192.0.2.7", false),
        ("2001:db8::/32", "2001:db8:ffff::1", true),
        ("2001:db8::/32", "2001:db9::1", false),
        ("2001:db8::1", "2001:db8::1", true),
        ("2001:db8::1/127", "2001:db8::", true),
        ("192.0.2.0/24", "::ffff:192.0.2.9", true),
        ("::ffff:192.0.2.0/120", "192.0.2.9", true),
        ("::ffff:192.0.2.0/120", "192.0.3.9", false),
        ("::ffff:0.0.0.0/96", "192.0.3.9", true),
    ] {
        let parsed = Network::parse(network).unwrap();
        let found = parsed.contains(address.parse().unwrap());
        assert_eq!(found, contains, "{network} and {address}");
        assert_eq!(
            Network::parse(&parsed.to_string()),
            Some(parsed),
            "{network}"
        );
    }
    for bad in [
        "",
        "/",
        "192.0.2.0/",
        "192.0.2.0/33",
        "192.0.2.0/+8",
        "192.0.2.0/-1",
        "192.0.2.0/8/8",
        "192.0.2.0/256",
        "192.0.2.0/ 8",
        " 192.0.2.0/8",
        "192.0.2/24",
        "192.0.2.0/255.255.255.0",
        "2001:db8::/129",
        "fe80::1%eth0",
        "web01.example.com",
        "any",
    ] {
        assert_eq!(Network::parse(bad), None, "{bad:?}");
        let read = serde_json::from_value::<Network>(bad.into());
        assert!(read.is_err(), "{bad:?}");
    }
}

#[test]
fn a_request_must_come_from_a_network_of_the_token() {
    let networks = |texts: &[&str]| {
        let networks = texts.iter().map(|text| Network::parse(text).unwrap());
        terms(TokenTerms {
            source_cidrs: networks.collect(),
            ..TokenTerms::default()
        })
    };
    let refused = Some("token_source_not_allowed");
    for (of, source, code) in [
        (&[][..], None, None),
        (&[], Some("192.0.2.7"), None),
        (&["192.0.2.0/24"], Some("192.0.2.7"), None),
        (&["192.0.2.0/24"], Some("::ffff:192.0.2.7"), None),
        (&["10.0.0.0/8", "192.0.2.0/24"], Some("192.0.2.7"), None),
        (&["10.0.0.0/8"], Some("192.0.2.7"), refused),
        (&["0.0.0.0/0", "::/0"], Some("2001:db8::1"), None),
        (&["0.0.0.0/0", "::/0"], None, refused),
    ] {
        let asking = Asking {
            source: source.map(|text| text.parse().unwrap()),
            ..Asking::of(NAME)
        };
        let found = asking.found(networks(of));
        assert_eq!(found.code(), code, "{of:?} and {source:?}");
    }
}

#[test]
fn the_whole_subject_is_the_name() {
    let of = |name: &str, signer| Asking {
        signer,
        ..Asking::of(name)
    };
    let agent = || of(NAME, AGENTS);
    let more = |name: &str, signer, more: fn(CsrBuilder) -> CsrBuilder| {
        of(name, signer).with(more(CsrBuilder::new(name)))
    };
    let nodes: fn(CsrBuilder) -> CsrBuilder = |csr| csr.organization("system:nodes");
    let masters: fn(CsrBuilder) -> CsrBuilder = |csr| {
        csr.organization("system:nodes")
            .organization("system:masters")
    };
    let twice: fn(CsrBuilder) -> CsrBuilder =
        |csr| csr.rdn(&[(oid::COMMON_NAME, 0x0c, NAME.as_bytes())]);
    let worker = "system:node:worker-a";
    let mismatch = Some("token_certname_mismatch");
    let for_profile = |profile: &str| {
        terms(TokenTerms {
            profile: profile.to_owned(),
            ..TokenTerms::default()
        })
    };
    for (case, asking, token, code) in [
        ("its name", agent(), token_for(NAME), None),
        (
            "a group",
            more(NAME, AGENTS, |csr| csr.organization("admins")),
            token_for(NAME),
            mismatch,
        ),
        (
            "a unit",
            more(NAME, AGENTS, |csr| {
                csr.name(&oid::ORGANIZATIONAL_UNIT, 0x0c, b"ops")
            }),
            token_for(NAME),
            mismatch,
        ),
        (
            "two names, its own last",
            more("vault.example.com", AGENTS, twice),
            token_for(NAME),
            mismatch,
        ),
        (
            "its name twice",
            more(NAME, AGENTS, twice),
            token_for(NAME),
            None,
        ),
        (
            "a node with the group of nodes",
            more(worker, KUBELET, nodes),
            token_for("worker-a"),
            None,
        ),
        (
            "the serving certificate of a node",
            more(worker, SERVING, nodes),
            token_for("worker-a"),
            None,
        ),
        (
            "a node by a pattern",
            more("system:node:a.dmz.example.com", KUBELET, nodes),
            glob("*.dmz.example.com"),
            None,
        ),
        (
            "another node",
            more("system:node:worker-b", KUBELET, nodes),
            token_for("worker-a"),
            mismatch,
        ),
        (
            "a node with one more group",
            more(worker, KUBELET, masters),
            token_for("worker-a"),
            mismatch,
        ),
        (
            "the group of nodes without the name of one",
            more("worker-a", KUBELET, nodes),
            token_for("worker-a"),
            mismatch,
        ),
        (
            "the name of a node elsewhere",
            of(worker, "kubernetes.io/kube-apiserver-client"),
            token_for("worker-a"),
            mismatch,
        ),
        (
            "the group of nodes elsewhere",
            more(NAME, AGENTS, nodes),
            token_for(NAME),
            mismatch,
        ),
        ("its signer", agent(), for_profile(AGENTS), None),
        ("another signer", agent(), for_profile(KUBELET), mismatch),
    ] {
        let found = asking.found(token);
        assert_eq!(found.code(), code, "{case}: {}", found.step.reason);
    }
}

#[test]
fn a_use_is_for_the_name_of_the_node() {
    let asking = Asking {
        signer: KUBELET,
        ..Asking::of("system:node:worker-a")
    };
    let found = asking.found(token_for("worker-a"));
    let Some(Use::Token { name, .. }) = found.uses.first() else {
        panic!("{found:?}");
    };
    assert_eq!(name, "worker-a");
}

#[test]
fn times_are_kept_to_the_second() {
    for (case, now, code) in [
        (
            "61 s early",
            NOW.minus_seconds(61),
            Some("token_not_yet_valid"),
        ),
        ("60 s early", NOW.minus_seconds(60), None),
        ("in time", NOW, None),
        ("the last second", NOW.plus_seconds(99), None),
        ("its end", NOW.plus_seconds(100), Some("token_expired")),
        (
            "a second late",
            NOW.plus_seconds(101),
            Some("token_expired"),
        ),
    ] {
        let token = Token {
            not_before: NOW,
            expires_at: NOW.plus_seconds(100),
            ..token_for(NAME)
        };
        let asking = Asking {
            now,
            ..Asking::of(NAME)
        };
        assert_eq!(asking.found(token).code(), code, "{case}");
    }
}

#[test]
fn uses_are_counted_and_a_single_one_is_for_one_key() {
    let used = |token: Token, by: &str, key| Token {
        uses: 1,
        other: Some(used_by(by, key)),
        ..token
    };
    let times = |max_uses, token| Token { max_uses, ..token };
    let single = || token_for(NAME);
    let pattern = || glob("*.example.com");
    let (own, other) = (keys::p256_a(), keys::p256_b());
    let elsewhere = "web02.example.com";
    for (case, token, code) in [
        ("unused", single(), None),
        (
            "used by another key",
            used(single(), NAME, other),
            Some("token_key_mismatch"),
        ),
        (
            "used by another key, and expired",
            Token {
                expires_at: NOW,
                ..used(single(), NAME, other)
            },
            Some("token_key_mismatch"),
        ),
        (
            "a pattern for one, used by another name",
            used(pattern(), elsewhere, other),
            Some("token_certname_mismatch"),
        ),
        (
            "a pattern for one, used by another name with this key",
            used(pattern(), elsewhere, own),
            Some("token_certname_mismatch"),
        ),
        (
            "a pattern for two, used by another name",
            times(2, used(pattern(), elsewhere, other)),
            None,
        ),
        (
            "a pattern for two, used by another key of the name",
            times(2, used(pattern(), NAME, other)),
            None,
        ),
        (
            "for two, used by another key",
            times(2, used(single(), NAME, other)),
            None,
        ),
        (
            "a pattern for two, used up",
            Token {
                uses: 2,
                ..times(2, used(pattern(), elsewhere, other))
            },
            Some("token_exhausted"),
        ),
        (
            "a pattern for two, used by this name and key",
            Token {
                uses: 1,
                same: Some(used_by(NAME, own)),
                ..times(2, pattern())
            },
            Some("token_exhausted"),
        ),
        ("for none", times(0, single()), Some("token_exhausted")),
    ] {
        let found = Asking::of(NAME).found(token);
        assert_eq!(found.code(), code, "{case}");
    }
}

#[test]
fn a_key_may_be_fixed_beforehand() {
    let own = Asking::of(NAME).checked().key_fingerprint().to_hex();
    for (case, key, code) in [
        ("its key", own.clone(), None),
        ("its key in capitals", own.to_uppercase(), None),
        ("another key", "00".repeat(32), Some("token_key_mismatch")),
        ("no key", String::new(), Some("token_key_mismatch")),
    ] {
        let token = terms(TokenTerms {
            spki_sha256: Some(key),
            ..TokenTerms::default()
        });
        assert_eq!(Asking::of(NAME).found(token).code(), code, "{case}");
    }
}

#[test]
fn a_certificate_that_is_good_is_replaced_only_if_the_token_says_so() {
    for (case, until, allow_replace, code, replaces) in [
        ("good", 1, false, Some("existing_certificate"), None),
        ("good, to be replaced", 1, true, None, Some(true)),
        ("over", 0, false, None, Some(false)),
        ("over, to be replaced", 0, true, None, Some(false)),
    ] {
        let token = Token {
            existing: Some(certificate_until(NOW.plus_seconds(until))),
            ..terms(TokenTerms {
                allow_replace,
                ..TokenTerms::default()
            })
        };
        let found = Asking::of(NAME).found(token);
        assert_eq!(found.code(), code, "{case}");
        let used = found.uses.first().map(|used| match used {
            Use::Token { replaces, .. } => *replaces,
            Use::Machine { .. } | Use::Window { .. } => panic!("{used:?}"),
        });
        assert_eq!(used, replaces, "{case}");
    }
}
