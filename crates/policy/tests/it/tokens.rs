//! Enrolment tokens: which suit a request, what is said of those that do not, and what becomes of the request.

mod contents;
mod handling;
mod limits;
mod precedence;

use std::net::IpAddr;

use countersign_pki::{CheckedCsr, CsrLimits, Oid, UnixTime, oid};
use countersign_policy::{
    Effect, Evidence, LedgerCertificate, MachineSubject, Outcome, Policy, Request, Requester, Rule,
    RuleKind, Step, Token, TokenBinding, TokenFacts, TokenTerms, TokenUse, TokenUseState, Use,
    Verdict, Wishes, decide,
};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys::{self, Key};

use crate::{NOW, signer};

const NAME: &str = "web01.example.com";
const ID: &str = "aaaqeayeaudaocaj";
const AGENTS: &str = "example.com/agents";

/// A token for one name, good now, that says nothing else.
pub(crate) fn token_for(name: &str) -> Token {
    Token {
        id: ID.to_owned(),
        binding: TokenBinding::Exact(name.to_owned()),
        not_before: NOW.minus_seconds(60),
        expires_at: NOW.plus_seconds(3600),
        max_uses: 1,
        uses: 0,
        revoked: false,
        locked: false,
        terms: TokenTerms::default(),
        same: None,
        other: None,
        existing: None,
    }
}

/// Who asks, for what, when.
#[derive(Clone)]
struct Asking {
    csr: CsrBuilder,
    key: &'static Key,
    signer: &'static str,
    source: Option<IpAddr>,
    now: UnixTime,
}

impl Asking {
    fn of(name: &str) -> Self {
        Self {
            csr: CsrBuilder::new(name),
            key: keys::p256_a(),
            signer: AGENTS,
            source: Some([192, 0, 2, 7].into()),
            now: NOW,
        }
    }

    fn with(self, csr: CsrBuilder) -> Self {
        Self { csr, ..self }
    }

    fn checked(&self) -> CheckedCsr {
        CheckedCsr::check(&self.csr.sign(self.key), &CsrLimits::STANDARD).unwrap()
    }

    /// What a policy makes of it. Nobody has decided.
    fn decided(&self, policy: &Policy, evidence: Evidence) -> Verdict {
        let csr = self.checked();
        let name = csr.subject().last_common_name().unwrap_or_default();
        let request = Request {
            csr: &csr,
            key: name,
            name,
            door: "test",
            signer: &signer(self.signer),
            requester: &Requester::anonymous(self.source),
            wishes: &Wishes::default(),
            at: self.now,
            renewal: false,
            pod: None,
        };
        match decide(policy, &request, &evidence.with_person(None), self.now) {
            Outcome::Done(verdict) => verdict,
            Outcome::Need(queries) => panic!("{queries:?}"),
        }
    }

    /// What a rule of kind `token` makes of it.
    fn found(&self, token: Token) -> Found {
        let policy = rules(self.signer, &[("token", RuleKind::Token)]);
        let facts = TokenFacts::Known(Box::new(token));
        Found::of(self.decided(&policy, Evidence::none().with_token(Ok(facts), 3)))
    }
}

/// What came out, and the step of the rule that was asked last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    effect: Effect,
    step: Step,
    uses: Vec<Use>,
}

impl Found {
    fn of(verdict: Verdict) -> Self {
        let explanation = verdict.explanation();
        Self {
            effect: explanation.effect,
            step: explanation.steps.last().unwrap().clone(),
            uses: verdict.uses().to_vec(),
        }
    }

    /// The code if it was denied, nothing if it was approved; neither is a failure of the test.
    fn code(&self) -> Option<&str> {
        match self.effect {
            Effect::Approve => None,
            Effect::Deny => Some(self.step.code.as_str()),
            Effect::Pending => panic!("{self:?}"),
        }
    }
}

fn rules(for_signer: &str, kinds: &[(&str, RuleKind)]) -> Policy {
    let rules = kinds
        .iter()
        .map(|(name, kind)| Rule::approving(name, vec![signer(for_signer)], kind.clone()));
    let nodes = [
        "kubernetes.io/kube-apiserver-client-kubelet",
        "kubernetes.io/kubelet-serving",
    ];
    Policy {
        rules: rules.collect(),
        machine_subjects: nodes
            .map(|name| MachineSubject {
                signer: signer(name),
                prefix: "system:node:".to_owned(),
                organization: "system:nodes".to_owned(),
            })
            .into(),
        ..Policy::default()
    }
}

fn terms(terms: TokenTerms) -> Token {
    Token {
        terms,
        ..token_for(NAME)
    }
}

/// The identifier behind Puppet's name for an extension.
fn known(name: &str) -> Oid {
    oid::registered_oid(name).unwrap()
}

fn used_by(certname: &str, key: &'static Key) -> TokenUse {
    let csr = Asking {
        key,
        ..Asking::of(certname)
    };
    TokenUse {
        certname: certname.to_owned(),
        spki_sha256: csr.checked().key_fingerprint().to_hex(),
        state: TokenUseState::Issued,
        serial: Some("0a".to_owned()),
        at: NOW.minus_seconds(3600),
        retry_until: NOW.minus_seconds(1800),
    }
}

fn certificate_until(not_after: UnixTime) -> LedgerCertificate {
    LedgerCertificate {
        serial: "0a".to_owned(),
        not_after,
        same_key: false,
    }
}

#[test]
fn a_good_token_approves_and_says_what_is_used_up() {
    let found = Asking::of(NAME).found(token_for(NAME));
    assert_eq!(found.code(), None, "{found:?}");
    assert_eq!((found.step.code.as_str(), found.step.micros), ("token", 3));
    let used = Use::Token {
        id: ID.to_owned(),
        name: NAME.to_owned(),
        replaces: false,
    };
    assert_eq!(found.uses, [used]);
}

#[test]
fn what_is_recorded_of_tokens_is_read_again() {
    let mut whole = token_for("*.example.com");
    whole.binding = TokenBinding::Glob("*.example.com".to_owned());
    whole.same = Some(used_by(NAME, keys::p256_a()));
    whole.existing = Some(certificate_until(NOW));
    whole.terms = TokenTerms {
        allowed_sans: vec!["DNS:a".to_owned()],
        allowed_extensions: Some([("1.2.3".to_owned(), vec!["x".to_owned()])].into()),
        spki_sha256: Some("00".to_owned()),
        source_cidrs: vec![countersign_policy::Network::parse("192.0.2.0/24").unwrap()],
        allow_replace: true,
        profile: AGENTS.to_owned(),
    };
    let why = "odd".to_owned();
    for facts in [
        TokenFacts::Missing,
        TokenFacts::Malformed { why: why.clone() },
        TokenFacts::Ambiguous { why },
        TokenFacts::Unknown { id: ID.to_owned() },
        TokenFacts::Known(Box::new(token_for(NAME))),
        TokenFacts::Known(Box::new(whole)),
    ] {
        let recorded = Evidence::none().with_token(Ok(facts.clone()), 1).record();
        let text = serde_json::to_string(&recorded).unwrap();
        let read: countersign_policy::RecordedEvidence = serde_json::from_str(&text).unwrap();
        assert_eq!(read.token.as_ref(), Some(&facts), "{text}");
    }
    let unavailable = Evidence::none().with_token(Err("the store is away".to_owned()), 1);
    assert_eq!(unavailable.record().token, None, "nothing was found out");
}
