//! What a decision without I/O costs.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot set up fails")]

use std::sync::Arc;

use countersign_pki::{CheckedCsr, CsrLimits, UnixTime};
use countersign_policy::{
    Allowlist, Evidence, Expression, Guarded, ListSource, Outcome, Policy, Request, Requester,
    Rule, RuleEffect, RuleKind, SignerName, Token, TokenBinding, TokenFacts, TokenTerms, Verdict,
    Wishes, decide,
};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn decisions(c: &mut Criterion) {
    let csr = CheckedCsr::check(
        &CsrBuilder::new("web01.prod.example.com")
            .dns("web01.prod.example.com")
            .dns("www.example.com")
            .sign(keys::p256_a()),
        &CsrLimits::STANDARD,
    )
    .unwrap();
    let signer = SignerName::parse("countersign.dev/puppet-agent").unwrap();
    let (requester, wishes) = (Requester::anonymous(None), Wishes::default());
    let token = TokenFacts::Known(Box::new(token()));
    let evidence = Evidence::none().with_person(None).with_token(Ok(token), 0);
    let mut group = c.benchmark_group("decide");
    group.throughput(Throughput::Elements(1));
    for (case, rules) in cases(&signer) {
        let policy = Policy {
            generation: 1,
            rules,
            reserved: Guarded::names(["ca.example.com".to_owned(), "localhost".to_owned()]),
            ..Policy::default()
        };
        let decided = || {
            let request = Request {
                csr: &csr,
                key: "web01.prod.example.com",
                name: "web01.prod.example.com",
                door: "puppet",
                signer: &signer,
                requester: &requester,
                wishes: &wishes,
                at: UnixTime(0),
                renewal: false,
                pod: None,
            };
            decide(&policy, &request, &evidence, UnixTime(1_800_000_000))
        };
        let outcome = decided();
        assert!(
            matches!(outcome, Outcome::Done(Verdict::Approve(_))),
            "{case}: {outcome:?}"
        );
        group.bench_function(case, |b| b.iter(decided));
    }
    group.finish();
}

/// A token for the name, with its second name listed.
fn token() -> Token {
    Token {
        id: "aaaqeayeaudaocaj".to_owned(),
        binding: TokenBinding::Exact("web01.prod.example.com".to_owned()),
        not_before: UnixTime(0),
        expires_at: UnixTime(i64::MAX),
        max_uses: 1,
        uses: 0,
        revoked: false,
        locked: false,
        terms: TokenTerms {
            allowed_sans: vec!["DNS:www.example.com".to_owned()],
            ..TokenTerms::default()
        },
        same: None,
        other: None,
        existing: None,
    }
}

/// Policies that all approve the request by their last rule.
fn cases(signer: &SignerName) -> Vec<(&'static str, Vec<Rule>)> {
    let rule = |kind| Rule::approving("rule", vec![signer.clone()], kind);
    let cel = |source: &str| rule(RuleKind::Cel(Expression::compile(source).unwrap()));
    let deny = |source: &str| Rule {
        effect: RuleEffect::Deny,
        ..cel(source)
    };
    let when = |source: &str, rule: Rule| Rule {
        when: Some(Expression::compile(source).unwrap()),
        ..rule
    };
    let hosts: String = (0..99)
        .map(|i| format!("host{i:02}.example.com\n"))
        .collect();
    let (list, _) = Allowlist::parse(&format!("{hosts}*.prod.example.com\n"));
    let reserved =
        r#"(request.dnsNames + [request.commonName]).exists(n, n == "vault.example.com")"#;
    let nine = |i: usize| {
        cel(&format!(
            r#"request.commonName == "host{i:02}.example.com""#
        ))
    };
    vec![
        ("always", vec![rule(RuleKind::Always)]),
        (
            "allowlist of 100 lines",
            vec![rule(RuleKind::Allowlist(ListSource::Names(Arc::new(list))))],
        ),
        ("an enrolment token", vec![rule(RuleKind::Token)]),
        (
            "one expression",
            vec![cel(r#"request.commonName.endsWith(".prod.example.com")"#)],
        ),
        (
            "a reserved name, then always",
            vec![deny(reserved), rule(RuleKind::Always)],
        ),
        (
            "three expressions and a condition",
            vec![
                deny(reserved),
                cel(r#"request.organization.exists(o, o == "Example")"#),
                when(
                    r#"request.commonName.endsWith(".prod.example.com")"#,
                    cel(r#"request.dnsNames.all(n, n.endsWith(".example.com"))"#),
                ),
            ],
        ),
        (
            "ten expressions, the last matches",
            (0..9)
                .map(nine)
                .chain([cel(r#"request.commonName.startsWith("web")"#)])
                .collect(),
        ),
    ]
}

criterion_group!(benches, decisions);
criterion_main!(benches);
