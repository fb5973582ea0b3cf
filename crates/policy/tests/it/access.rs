//! Rules that ask whether the sender may do something else: what each answer comes to, and what a token beside it does.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersign_policy::{
    AccessAnswer, AccessQuestion, Effect, Evidence, Explanation, Finding, Identity, Outcome,
    Policy, Query, RecordedEvidence, Request, Requester, Rule, RuleEffect, RuleKind, TokenFacts,
    Use, Wishes, decide,
};
use countersign_testkit::csr::CsrBuilder;

use crate::tokens::token_for;
use crate::{NOW, csr, signer};

const NAME: &str = "web01.example.com";

fn question() -> Arc<AccessQuestion> {
    Arc::new(AccessQuestion {
        group: "certificates.k8s.io".to_owned(),
        resource: "certificatesigningrequests".to_owned(),
        subresource: "nodeclient".to_owned(),
        verb: "create".to_owned(),
        ..AccessQuestion::default()
    })
}

fn policy(effect: RuleEffect, more: &[RuleKind]) -> Policy {
    let kind = RuleKind::SubjectAccess(question());
    let mut rule = Rule::approving("role", vec![signer("example.com/agents")], kind);
    rule.effect = effect;
    rule.kinds.extend(more.iter().cloned());
    Policy {
        rules: vec![rule],
        ..Policy::default()
    }
}

fn user() -> Identity {
    Identity::User {
        username: "system:bootstrap:abcdef".to_owned(),
        groups: Vec::new(),
        uid: String::new(),
        extra: BTreeMap::new(),
    }
}

fn decided(policy: &Policy, identity: Identity, evidence: &Evidence) -> Outcome {
    let csr = csr(CsrBuilder::new(NAME));
    let source = Some([192, 0, 2, 7].into());
    let request = Request {
        csr: &csr,
        key: "csr-1",
        name: NAME,
        door: "test",
        signer: &signer("example.com/agents"),
        requester: &Requester { identity, source },
        wishes: &Wishes::default(),
        at: NOW,
        renewal: false,
        pod: None,
    };
    decide(policy, &request, evidence, NOW)
}

fn done(outcome: Outcome) -> (Explanation, Vec<Use>) {
    match outcome {
        Outcome::Done(verdict) => (verdict.explanation().clone(), verdict.uses().to_vec()),
        Outcome::Need(queries) => panic!("{queries:?}"),
    }
}

fn answers() -> [AccessAnswer; 3] {
    let reason = |text: &str| text.to_owned();
    [
        AccessAnswer::Allowed {
            reason: reason("by a binding"),
        },
        AccessAnswer::NotAllowed {
            reason: String::new(),
        },
        AccessAnswer::Unavailable {
            reason: reason("not read yet"),
        },
    ]
}

#[test]
fn every_answer_has_its_verdict_and_its_words() {
    let may = "system:bootstrap:abcdef may create certificatesigningrequests/nodeclient of certificates.k8s.io";
    let may_not = may.replace("may", "may not");
    let unknown = format!("whether {may} cannot be known: not read yet");
    let [allowed, refused, silent] = answers();
    let approving = RuleEffect::Approve;
    let denying = RuleEffect::Deny;
    for (effect, answer, came, finding, code, reason, retry) in [
        (
            approving,
            &allowed,
            Effect::Approve,
            Finding::Match,
            "subject_access",
            may,
            false,
        ),
        (
            approving,
            &refused,
            Effect::Pending,
            Finding::Absent,
            "access_not_allowed",
            &may_not,
            true,
        ),
        (
            approving,
            &silent,
            Effect::Pending,
            Finding::Unavailable,
            "access_unavailable",
            &unknown,
            true,
        ),
        (
            denying,
            &allowed,
            Effect::Deny,
            Finding::Match,
            "subject_access",
            may,
            false,
        ),
        (
            denying,
            &refused,
            Effect::Pending,
            Finding::Absent,
            "access_not_allowed",
            &may_not,
            true,
        ),
        (
            denying,
            &silent,
            Effect::Pending,
            Finding::Unavailable,
            "access_unavailable",
            &unknown,
            true,
        ),
    ] {
        let evidence = Evidence::none().with_person(None);
        let evidence = evidence.with_token(Ok(TokenFacts::Missing), 0);
        let evidence = evidence.with_access(question(), answer.clone(), 7);
        let (said, uses) = done(decided(&policy(effect, &[]), user(), &evidence));
        let case = format!("{effect:?} {answer:?}");
        assert_eq!(said.effect, came, "{case}");
        assert_eq!((said.retry, uses), (retry, Vec::new()), "{case}");
        let step = &said.steps[0];
        assert_eq!(
            (step.finding, step.code.as_str()),
            (finding, code),
            "{case}"
        );
        assert_eq!((step.reason.as_str(), step.micros), (reason, 7), "{case}");
        let asked = "create certificatesigningrequests/nodeclient of certificates.k8s.io";
        let saw = match answer.reason() {
            "" => asked.to_owned(),
            words => format!("{asked}: {words}"),
        };
        assert_eq!(
            (step.kind.as_str(), &step.saw),
            ("subjectAccess", &saw),
            "{case}"
        );
        assert_eq!(said.stopped, finding == Finding::Unavailable, "{case}");

        // What was asked is on record, and read again it is the same.
        let recorded = evidence.record();
        assert_eq!(recorded.access(&question()), Some(answer), "{case}");
        let text = serde_json::to_string(&recorded).unwrap();
        let read: RecordedEvidence = serde_json::from_str(&text).unwrap();
        assert_eq!(read, recorded, "{text}");
    }
}

/// Nobody binds a role to somebody who is no user: there is nothing to wait for.
#[test]
fn only_users_wait_for_a_role() {
    let evidence = Evidence::none().with_person(None);
    let evidence = evidence.with_access(question(), answers()[1].clone(), 0);
    let certname = Identity::Certname {
        certname: "web01".to_owned(),
    };
    for (identity, retry) in [
        (user(), true),
        (certname, false),
        (Identity::Anonymous, false),
    ] {
        let (said, _) = done(decided(
            &policy(RuleEffect::Approve, &[]),
            identity,
            &evidence,
        ));
        assert_eq!((said.effect, said.retry), (Effect::Pending, retry));
        assert!(!said.steps[0].reason.contains("192.0.2.7"), "{said:?}");
    }
}

#[test]
fn the_review_is_asked_for_before_the_token() {
    let nothing = Evidence::none().with_person(None);
    let approving = policy(RuleEffect::Approve, &[]);
    for (evidence, needed) in [
        (nothing.clone(), Query::SubjectAccess(question())),
        (
            nothing.with_access(question(), answers()[0].clone(), 0),
            Query::Token,
        ),
    ] {
        match decided(&approving, user(), &evidence) {
            Outcome::Need(queries) => assert_eq!(queries, [needed]),
            Outcome::Done(verdict) => panic!("{verdict:?}"),
        }
    }
}

/// Invariant 3: a role that is bound to bearers of enrolment tokens makes no more of a token than it is for.
#[test]
fn a_role_gives_a_bearer_what_the_token_is_for_and_uses_it_up() {
    let known = |name| Ok(TokenFacts::Known(Box::new(token_for(name))));
    let asks_itself = [RuleKind::Token];
    let is_used = [1, 0, 0, 0, 1, 0];
    for ((token, kinds, came, code), used) in [
        (
            known(NAME),
            &asks_itself[..0],
            Effect::Approve,
            "subject_access",
        ),
        (
            known("web02.example.com"),
            &asks_itself[..0],
            Effect::Pending,
            "token_certname_mismatch",
        ),
        (
            Err("the store is away".to_owned()),
            &asks_itself[..0],
            Effect::Pending,
            "store_unavailable",
        ),
        (
            Ok(TokenFacts::Missing),
            &asks_itself[..0],
            Effect::Approve,
            "subject_access",
        ),
        (known(NAME), &asks_itself[..], Effect::Approve, "token"),
        (
            known("web02.example.com"),
            &asks_itself[..],
            Effect::Deny,
            "token_certname_mismatch",
        ),
    ]
    .into_iter()
    .zip(is_used)
    {
        let evidence = Evidence::none().with_person(None);
        let evidence = evidence.with_access(question(), answers()[0].clone(), 0);
        let evidence = evidence.with_token(token.clone(), 0);
        let (said, uses) = done(decided(
            &policy(RuleEffect::Approve, kinds),
            user(),
            &evidence,
        ));
        let case = format!("{token:?} {kinds:?}");
        assert_eq!((said.effect, said.code.as_str()), (came, code), "{case}");
        assert_eq!(uses.len(), used, "{case}");
        assert_eq!(said.token.is_some(), used == 1, "{case}");
    }
}
