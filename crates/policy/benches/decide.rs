//! What a decision without I/O costs.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot set up fails")]

use countersign_pki::{CheckedCsr, CsrLimits, UnixTime};
use countersign_policy::{
    Evidence, Policy, Request, Requester, Rule, RuleKind, SignerName, Wishes, decide,
};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use criterion::{Criterion, criterion_group, criterion_main};

fn decisions(c: &mut Criterion) {
    let csr = CheckedCsr::check(
        &CsrBuilder::new("web01.example.com").sign(keys::p256_a()),
        &CsrLimits::STANDARD,
    )
    .unwrap();
    let signer = SignerName::parse("countersign.dev/puppet-agent").unwrap();
    let policy = Policy {
        generation: 1,
        rules: vec![Rule::approving(
            "autosign",
            vec![signer.clone()],
            RuleKind::Always,
        )],
        reserved_names: ["ca.example.com".to_owned(), "localhost".to_owned()].into(),
    };
    let (requester, wishes) = (Requester::anonymous(None), Wishes::default());
    let evidence = Evidence::none().with_person(None);
    c.bench_function("decide, naive autosigning", |b| {
        b.iter(|| {
            let request = Request {
                csr: &csr,
                key: "web01.example.com",
                door: "puppet",
                signer: &signer,
                requester: &requester,
                wishes: &wishes,
                at: UnixTime(0),
                renewal: false,
            };
            decide(&policy, &request, &evidence, UnixTime(0))
        });
    });
}

criterion_group!(benches, decisions);
criterion_main!(benches);
