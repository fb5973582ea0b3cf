//! Rules that deny, and names that no rule gives away, cannot be sidestepped.

use std::path::PathBuf;
use std::sync::Arc;

use countersign_policy::{
    Allowlist, Effect, Evidence, Executable, Execution, ListSource, Outcome, Policy, Rule,
    RuleEffect, RuleKind,
};
use countersign_testkit::csr::CsrBuilder;

use crate::{csr, nobody, outcome, policy, signer};

fn effect(policy: &Policy, request: CsrBuilder, key: &str, evidence: &Evidence) -> (Effect, bool) {
    match outcome(policy, &csr(request), key, evidence) {
        Outcome::Done(verdict) => {
            let explanation = verdict.explanation();
            (explanation.effect, explanation.is_stopped())
        }
        Outcome::Need(queries) => panic!("{queries:?}"),
    }
}

/// A rule that denies by `kind`, then one that approves everything.
fn denying(kind: RuleKind) -> Policy {
    let mut all = policy(&[("all", "example.com/agents")], &[]);
    let deny = Rule {
        effect: RuleEffect::Deny,
        ..Rule::approving("deny", vec![signer("example.com/agents")], kind)
    };
    all.rules.insert(0, deny);
    all
}

fn list(text: &str) -> RuleKind {
    RuleKind::Allowlist(ListSource::Names(Arc::new(Allowlist::parse(text).0)))
}

#[test]
fn a_deny_list_is_about_every_name_however_it_is_written() {
    let web = || CsrBuilder::new("web01");
    let two_names = CsrBuilder::new("web01").rdn(&[(
        countersign_pki::oid::COMMON_NAME,
        0x0c,
        b"vault.example.com",
    )]);
    for (case, text, request, expected) in [
        ("another name", "vault.example.com", web(), Effect::Approve),
        ("its name", "web01", web(), Effect::Deny),
        (
            "another case",
            "vault.example.com",
            CsrBuilder::new("Vault.EXAMPLE.com"),
            Effect::Deny,
        ),
        (
            "a line in another case",
            "Vault.example.com",
            CsrBuilder::new("vault.example.com"),
            Effect::Deny,
        ),
        (
            "a dot at the end",
            "vault.example.com",
            CsrBuilder::new("vault.example.com."),
            Effect::Deny,
        ),
        (
            "below a domain, with a dot",
            "*.example.com",
            CsrBuilder::new("vault.example.com."),
            Effect::Deny,
        ),
        (
            "an alternative name",
            "vault.example.com",
            web().dns("vault.example.com"),
            Effect::Deny,
        ),
        (
            "a wildcard that stands for it",
            "vault.example.com",
            web().dns("*.example.com"),
            Effect::Deny,
        ),
        (
            "a wildcard that does not",
            "vault.example.com",
            web().dns("*.prod.example.com"),
            Effect::Approve,
        ),
        (
            "a second common name",
            "vault.example.com",
            two_names,
            Effect::Deny,
        ),
    ] {
        let found = effect(&denying(list(text)), request, "web01", &nobody());
        assert_eq!(found, (expected, false), "{case}");
    }
}

#[test]
fn deny_by_default_a_deny_rule_that_cannot_say_stops_everything() {
    let broken = denying(list("vault.example.com # ours"));
    let found = effect(&broken, CsrBuilder::new("web01"), "web01", &nobody());
    assert_eq!(found, (Effect::Pending, true), "a line that means nothing");

    let path = PathBuf::from("/etc/blocked.sh");
    let program = denying(RuleKind::Executable(Executable {
        path: path.clone(),
        timeout: None,
    }));
    for (said, expected) in [
        (Execution::Approved, (Effect::Deny, false)),
        (
            Execution::Declined("ended with status 1".to_owned()),
            (Effect::Approve, false),
        ),
        (
            Execution::Failed("did not end within 10 s".to_owned()),
            (Effect::Pending, true),
        ),
        (
            Execution::Unavailable("was not run".to_owned()),
            (Effect::Pending, true),
        ),
    ] {
        let evidence = nobody().with_execution(path.clone(), said.clone(), 0);
        let found = effect(&program, CsrBuilder::new("web01"), "web01", &evidence);
        assert_eq!(found, expected, "{said:?}");
    }
}

#[test]
fn no_rule_gives_away_a_group_with_a_role_or_a_wildcard_over_our_names() {
    let mut all = policy(&[("all", "example.com/agents")], &["ca.example.com"]);
    all.reserved.groups = ["operators".to_owned(), "system:masters".to_owned()].into();
    let web = || CsrBuilder::new("web01");
    for (case, request, expected) in [
        ("neither", web().organization("users"), Effect::Approve),
        ("a group", web().organization("operators"), Effect::Pending),
        (
            "one of two groups",
            web().organization("users").organization("system:masters"),
            Effect::Pending,
        ),
        (
            "a wildcard over our name",
            web().dns("*.example.com"),
            Effect::Pending,
        ),
        (
            "a wildcard in another case",
            web().dns("*.EXAMPLE.com."),
            Effect::Pending,
        ),
        (
            "a wildcard elsewhere",
            web().dns("*.lab.example.com"),
            Effect::Approve,
        ),
    ] {
        let found = effect(&all, request, "web01", &nobody());
        assert_eq!(found, (expected, false), "{case}");
    }
}
