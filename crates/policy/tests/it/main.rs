//! Decisions as tables.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set up its request fails"
)]

mod access;
mod closed;
mod documents;
mod expressions;
mod invariants;
mod nodes;
mod tokens;
mod trials;

use countersign_pki::{CheckedCsr, CsrLimits, UnixTime};
use countersign_policy::{
    Approval, Deciding, Effect, Evidence, Finding, Guarded, Identity, Outcome, PersonDecision,
    PersonVerdict, Policy, Query, Request, Requester, Rule, RuleKind, SignerName, Verdict, Wishes,
    decide,
};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;

const NOW: UnixTime = UnixTime(1_800_000_000);

fn signer(name: &str) -> SignerName {
    SignerName::parse(name).unwrap()
}

fn policy(rules: &[(&str, &str)], reserved: &[&str]) -> Policy {
    Policy {
        generation: 7,
        rules: rules
            .iter()
            .map(|(name, signer_name)| {
                Rule::approving(name, vec![signer(signer_name)], RuleKind::Always)
            })
            .collect(),
        reserved: Guarded::names(reserved.iter().map(|name| (*name).to_owned())),
        ..Policy::default()
    }
}

fn csr(build: CsrBuilder) -> CheckedCsr {
    CheckedCsr::check(&build.sign(keys::p256_a()), &CsrLimits::STANDARD).unwrap()
}

fn outcome(policy: &Policy, csr: &CheckedCsr, key: &str, evidence: &Evidence) -> Outcome {
    let request = Request {
        csr,
        key,
        name: csr.subject().first_common_name().unwrap_or_default(),
        door: "test",
        signer: &signer("example.com/agents"),
        requester: &Requester::anonymous(None),
        wishes: &Wishes::default(),
        at: NOW,
        renewal: false,
        pod: None,
    };
    decide(policy, &request, evidence, NOW)
}

fn nobody() -> Evidence {
    Evidence::none().with_person(None)
}

fn person(verdict: PersonVerdict) -> Evidence {
    Evidence::none().with_person(Some(person_decision(verdict)))
}

fn person_decision(verdict: PersonVerdict) -> PersonDecision {
    let actor = Requester {
        identity: Identity::Certname {
            certname: "admin".to_owned(),
        },
        source: None,
    };
    PersonDecision {
        verdict,
        actor,
        at: NOW,
        reason: "known".to_owned(),
    }
}

#[test]
fn deny_by_default() {
    let request = csr(CsrBuilder::new("web01"));
    for (case, policy) in [
        ("no policy at all", Policy::default()),
        (
            "rules for another signer only",
            policy(&[("other", "example.com/other")], &[]),
        ),
    ] {
        match outcome(&policy, &request, "web01", &nobody()) {
            Outcome::Done(Verdict::Pending(explanation)) => {
                assert_eq!(explanation.effect, Effect::Pending, "{case}");
                assert_eq!(explanation.steps, [], "{case}");
            }
            other => panic!("{case}: {other:?}"),
        }
    }
}

#[test]
fn the_first_rule_that_matches_decides_and_is_named() {
    let policy = policy(
        &[
            ("other", "example.com/other"),
            ("first", "example.com/agents"),
            ("second", "example.com/agents"),
        ],
        &[],
    );
    let request = csr(CsrBuilder::new("web01"));
    let Outcome::Done(Verdict::Approve(approval)) = outcome(&policy, &request, "web01", &nobody())
    else {
        panic!("not approved");
    };
    let explanation = approval.explanation();
    assert_eq!(explanation.by, Some(Deciding::rule("first")));
    assert_eq!(explanation.generation, 7);
    assert_eq!(explanation.at, NOW);
    assert_eq!(explanation.steps.len(), 1);
}

#[test]
fn no_rule_approves_the_authoritys_own_names() {
    let policy = policy(
        &[("all", "example.com/agents")],
        &[
            "ca.example.com",
            "admin",
            "192.0.2.1",
            "2001:db8::1",
            ".ops.example.com",
        ],
    );
    for free in ["ops.example.com", "devops.example.com", "x.ops.example.net"] {
        let free = outcome(&policy, &csr(CsrBuilder::new(free)), free, &nobody());
        let approved = matches!(free, Outcome::Done(Verdict::Approve(_)));
        assert!(approved, "{free:?}");
    }
    for (case, key, build) in [
        ("by its end", "a.b.ops.example.com", CsrBuilder::new("x")),
        (
            "by the end of an alternative name",
            "x",
            CsrBuilder::new("x").dns("a.OPS.example.com."),
        ),
        ("by key", "ca.example.com", CsrBuilder::new("x")),
        ("by common name", "x", CsrBuilder::new("ca.example.com")),
        (
            "by common name in another case",
            "x",
            CsrBuilder::new("CA.Example.com"),
        ),
        (
            "by alternative name",
            "x",
            CsrBuilder::new("x").dns("ca.example.com"),
        ),
        ("with a final dot", "x", CsrBuilder::new("x").dns("admin.")),
        (
            "by address",
            "x",
            CsrBuilder::new("x").ip([192, 0, 2, 1].into()),
        ),
        (
            "by IPv6 address",
            "x",
            CsrBuilder::new("x").ip("2001:db8::1".parse().unwrap()),
        ),
    ] {
        match outcome(&policy, &csr(build), key, &nobody()) {
            Outcome::Done(Verdict::Pending(explanation)) => {
                assert_eq!(explanation.steps[0].finding, Finding::Mismatch, "{case}");
            }
            other => panic!("{case}: {other:?}"),
        }
    }
}

#[test]
fn a_persons_word_settles_it_whatever_the_rules_say() {
    let request = csr(CsrBuilder::new("ca.example.com"));
    for rules in [&[][..], &[("all", "example.com/agents")][..]] {
        let policy = policy(rules, &["ca.example.com"]);
        let approved = outcome(
            &policy,
            &request,
            "ca.example.com",
            &person(PersonVerdict::Approve),
        );
        assert!(
            matches!(approved, Outcome::Done(Verdict::Approve(_))),
            "{approved:?}"
        );
        let denied = outcome(
            &policy,
            &request,
            "ca.example.com",
            &person(PersonVerdict::Deny),
        );
        assert!(
            matches!(denied, Outcome::Done(Verdict::Deny(_))),
            "{denied:?}"
        );
    }
}

#[test]
fn it_asks_for_what_it_lacks_and_only_then() {
    let request = csr(CsrBuilder::new("web01"));
    let asked = outcome(&Policy::default(), &request, "web01", &Evidence::none());
    assert!(
        matches!(&asked, Outcome::Need(queries) if *queries == [Query::Person]),
        "{asked:?}"
    );
    let all = policy(&[("all", "example.com/agents")], &[]);
    let settled = outcome(&all, &request, "web01", &Evidence::none());
    assert!(
        matches!(settled, Outcome::Done(Verdict::Approve(_))),
        "{settled:?}"
    );
}

#[test]
fn an_approval_is_taken_up_again_only_from_an_approving_record() {
    let request = csr(CsrBuilder::new("web01"));
    let all = policy(&[("all", "example.com/agents")], &[]);
    let Outcome::Done(Verdict::Approve(approval)) = outcome(&all, &request, "web01", &nobody())
    else {
        panic!("not approved");
    };
    let stored = serde_json::to_string(approval.explanation()).unwrap();
    let read: countersign_policy::Explanation = serde_json::from_str(&stored).unwrap();
    assert_eq!(&read, approval.explanation());
    assert!(Approval::from_recorded_decision(read).is_some());

    for evidence in [nobody(), person(PersonVerdict::Deny)] {
        match outcome(&Policy::default(), &request, "web01", &evidence) {
            Outcome::Done(Verdict::Pending(explanation) | Verdict::Deny(explanation)) => {
                assert!(Approval::from_recorded_decision(explanation).is_none());
            }
            other => panic!("{other:?}"),
        }
    }
}
