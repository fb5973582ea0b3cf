//! Invariants 1 and 6 over random policies and random evidence.
//!
//! The model below says, from the evidence alone, what each kind of rule must find. It shares no code with the decision.
#![expect(
    clippy::indexing_slicing,
    reason = "the numbers of outside things are below their count"
)]

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use countersign_pki::CheckedCsr;
use countersign_policy::{
    AccessAnswer, AccessQuestion, Allowlist, Answer, Apex, Approval, AutosignFile, BuildWindow,
    Deciding, Effect, Evidence, Executable, Execution, Explanation, Expression, Guarded,
    LedgerCertificate, LedgerFacts, ListFile, ListSource, Looked, Machine, MachineRule, OnMissing,
    OnToken, OnUnavailable, Otherwise, Outcome, PersonVerdict, Policy, Query, Request, Requester,
    Rule, RuleEffect, RuleKind, Token, TokenFacts, TokenHandling, Use, Verdict, Webhook,
    WebhookAnswer, WebhookMode, Wishes, decide,
};
use countersign_testkit::csr::CsrBuilder;
use proptest::prelude::*;

use crate::tokens::token_for;
use crate::{NOW, csr, person_decision, signer};

const NAME: &str = "web01.example.com";
/// How many files, programs and webhooks there are of each kind.
const OUTSIDE: usize = 2;

static CSR: LazyLock<CheckedCsr> = LazyLock::new(|| csr(CsrBuilder::new(NAME)));

/// What a kind of rule must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Must {
    Match,
    NoMatch,
    /// A webhook that says no, or a token that is wrong.
    Deny,
    /// A token that is wrong and left to a person.
    Wait,
    Unavailable,
}

/// What the evidence says, whether it is asked or not.
#[derive(Clone, Debug)]
struct World {
    lists: Vec<Must>,
    autosign: Vec<Autosign>,
    programs: Vec<Must>,
    webhooks: Vec<Must>,
    access: Vec<Must>,
    machine: Looked<Option<Expected>>,
    window: Looked<Option<Opening>>,
    ledger: Looked<bool>,
    token: Looked<Carried>,
    handling: TokenHandling,
}

#[derive(Clone, Copy, Debug)]
enum Autosign {
    Missing,
    List(bool),
    Program,
    Unusable,
}

#[derive(Clone, Copy, Debug)]
enum Expected {
    /// Nothing speaks against it.
    Fits,
    /// It has enrolled by this record.
    Enrolled,
    /// The record has an identifier that the request lacks.
    Differs,
    /// It was expected earlier.
    Late,
}

#[derive(Clone, Copy, Debug)]
enum Opening {
    Open,
    NotYet,
    Over,
    UsedUp,
    WantsToken,
}

/// What a request carries for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    Nothing,
    Good,
    Malformed,
    Ambiguous,
    Unknown,
    Revoked,
    Locked,
    Expired,
    ForAnother,
    Spent,
}

impl Carried {
    const ALL: [Self; 10] = [
        Self::Nothing,
        Self::Good,
        Self::Malformed,
        Self::Ambiguous,
        Self::Unknown,
        Self::Revoked,
        Self::Locked,
        Self::Expired,
        Self::ForAnother,
        Self::Spent,
    ];

    fn facts(self) -> TokenFacts {
        let why = "odd".to_owned();
        let good = token_for(NAME);
        let known = |token| TokenFacts::Known(Box::new(token));
        match self {
            Self::Nothing => TokenFacts::Missing,
            Self::Malformed => TokenFacts::Malformed { why },
            Self::Ambiguous => TokenFacts::Ambiguous { why },
            Self::Unknown => TokenFacts::Unknown { id: good.id },
            Self::Good => known(good),
            Self::Revoked => known(Token {
                revoked: true,
                ..good
            }),
            Self::Locked => known(Token {
                locked: true,
                ..good
            }),
            Self::Expired => known(Token {
                expires_at: NOW,
                ..good
            }),
            Self::ForAnother => known(token_for("web02.example.com")),
            Self::Spent => known(Token { uses: 1, ..good }),
        }
    }
}

/// A rule in small.
#[derive(Clone, Debug)]
struct Plan {
    for_us: bool,
    deny: bool,
    when: Option<Formula>,
    kinds: Vec<PlannedKind>,
    else_deny: bool,
    next: bool,
}

#[derive(Clone, Copy, Debug)]
enum PlannedKind {
    Always,
    Cel(Formula),
    Names(bool),
    ListFile(usize),
    Autosign(usize),
    Program(usize),
    Webhook(usize),
    Machine { once: bool },
    Window,
    Token,
    Access(usize),
}

#[derive(Clone, Copy, Debug)]
enum Formula {
    True,
    False,
    Name,
    HasMachine,
    Enrolled,
    NoCertificate,
}

impl Formula {
    fn source(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::False => "request.renewal",
            Self::Name => r#"request.commonName == "web01.example.com""#,
            Self::HasMachine => "machine != null",
            // Without a record it has no value.
            Self::Enrolled => "machine.enrolled",
            Self::NoCertificate => "ledger.certificate == null",
        }
    }

    fn compiled(self) -> Expression {
        static ALL: LazyLock<Vec<Expression>> = LazyLock::new(|| {
            let compile = |formula: Formula| Expression::compile(formula.source()).unwrap();
            Formula::ALL.map(compile).to_vec()
        });
        ALL[self as usize].clone()
    }

    const ALL: [Self; 6] = [
        Self::True,
        Self::False,
        Self::Name,
        Self::HasMachine,
        Self::Enrolled,
        Self::NoCertificate,
    ];

    fn must(self, world: &World) -> Must {
        let when = |holds| if holds { Must::Match } else { Must::NoMatch };
        match self {
            Self::True | Self::Name => Must::Match,
            Self::False => Must::NoMatch,
            Self::HasMachine => match &world.machine {
                Ok(machine) => when(machine.is_some()),
                Err(_) => Must::Unavailable,
            },
            Self::Enrolled => match &world.machine {
                Ok(Some(machine)) => when(matches!(machine, Expected::Enrolled)),
                Ok(None) | Err(_) => Must::Unavailable,
            },
            Self::NoCertificate => match world.ledger {
                Ok(has_certificate) => when(!has_certificate),
                Err(_) => Must::Unavailable,
            },
        }
    }
}

impl PlannedKind {
    fn kind(self) -> RuleKind {
        match self {
            Self::Always => RuleKind::Always,
            Self::Cel(formula) => RuleKind::Cel(formula.compiled()),
            Self::Names(listed) => RuleKind::Allowlist(ListSource::Names(list(listed))),
            Self::ListFile(i) => RuleKind::Allowlist(ListSource::File(path("list", i))),
            Self::Autosign(i) => RuleKind::AutosignFile {
                path: path("autosign", i),
                apex: Apex::Excluded,
            },
            Self::Program(i) => RuleKind::Executable(Executable {
                path: path("program", i),
                timeout: None,
            }),
            Self::Webhook(i) => RuleKind::Webhook(webhook(i)),
            Self::Machine { once } => RuleKind::Machine(MachineRule {
                window: Some(3600),
                once,
            }),
            Self::Window => RuleKind::Window,
            Self::Token => RuleKind::Token,
            Self::Access(i) => RuleKind::SubjectAccess(Arc::new(AccessQuestion {
                resource: "requests".to_owned(),
                verb: format!("verb-{i}"),
                ..AccessQuestion::default()
            })),
        }
    }

    fn must(self, world: &World, plan: &Plan) -> Must {
        let when = |matches| if matches { Must::Match } else { Must::NoMatch };
        match self {
            Self::Always => Must::Match,
            Self::Cel(formula) => formula.must(world),
            Self::Names(listed) => when(listed),
            Self::ListFile(i) => world.lists[i],
            Self::Autosign(i) => match world.autosign[i] {
                Autosign::Missing => Must::NoMatch,
                Autosign::List(listed) => when(listed),
                // The program of that path.
                Autosign::Program => world.programs[i],
                Autosign::Unusable => Must::Unavailable,
            },
            Self::Program(i) => world.programs[i],
            Self::Webhook(i) => world.webhooks[i],
            Self::Machine { once } => match &world.machine {
                Err(_) => Must::Unavailable,
                Ok(Some(Expected::Fits)) => Must::Match,
                Ok(Some(Expected::Enrolled)) => when(!once),
                Ok(None | Some(Expected::Differs | Expected::Late)) => Must::NoMatch,
            },
            Self::Window => match &world.window {
                Err(_) => Must::Unavailable,
                Ok(Some(Opening::Open)) => Must::Match,
                // Under `deny` the window alone counts, and a rule that asks for a token asks for it once.
                Ok(Some(Opening::WantsToken)) if plan.deny || plan.wants_token() => Must::Match,
                Ok(Some(Opening::WantsToken)) => Self::Token.must(world, plan),
                Ok(None | Some(Opening::NotYet | Opening::Over | Opening::UsedUp)) => Must::NoMatch,
            },
            Self::Token => match (&world.token, world.handling.on_reject) {
                (Err(_), _) => Must::Unavailable,
                (Ok(Carried::Good), _) => Must::Match,
                (Ok(Carried::Nothing), _) => Must::NoMatch,
                (Ok(_), OnToken::Deny) => Must::Deny,
                (Ok(_), OnToken::Pend) => Must::Wait,
            },
            Self::Access(i) => match (world.access[i], &world.token) {
                // Who shows a token gets what that is for, and nothing else.
                (Must::Match, token) if !plan.deny && !plan.wants_token() => match token {
                    Err(_) => Must::Unavailable,
                    Ok(carried) => when(matches!(carried, Carried::Nothing | Carried::Good)),
                },
                (found, _) => found,
            },
        }
    }

    /// Whether it matches without any evidence.
    fn needs_no_evidence(self) -> bool {
        match self {
            Self::Always | Self::Names(true) => true,
            Self::Cel(formula) => matches!(
                formula,
                Formula::True | Formula::Name | Formula::NoCertificate
            ),
            Self::Names(false)
            | Self::ListFile(_)
            | Self::Autosign(_)
            | Self::Program(_)
            | Self::Webhook(_)
            | Self::Machine { .. }
            | Self::Window
            | Self::Access(_)
            | Self::Token => false,
        }
    }
}

impl Plan {
    fn rule(&self, i: usize) -> Rule {
        Rule {
            policy: Arc::from("random"),
            name: format!("rule-{i}"),
            signers: Arc::from([signer(if self.for_us {
                "example.com/agents"
            } else {
                "example.com/other"
            })]),
            when: self.when.map(Formula::compiled),
            effect: if self.deny {
                RuleEffect::Deny
            } else {
                RuleEffect::Approve
            },
            kinds: self.kinds.iter().map(|kind| kind.kind()).collect(),
            message: None,
            otherwise: if self.else_deny {
                Otherwise::Deny
            } else {
                Otherwise::Abstain
            },
            on_unavailable: if self.next {
                OnUnavailable::Next
            } else {
                OnUnavailable::Stop
            },
        }
    }

    /// What it must answer; `None`: it must end the evaluation without an answer.
    fn must(&self, world: &World, reserved: bool) -> Option<Answer> {
        if reserved && !self.deny {
            return Some(Answer::Abstain);
        }
        let unavailable = self.next.then_some(Answer::Abstain);
        match self.when.map(|when| when.must(world)) {
            None | Some(Must::Match) => {}
            Some(Must::Unavailable) => return unavailable,
            Some(Must::NoMatch | Must::Deny | Must::Wait) => return Some(Answer::Abstain),
        }
        let found = self.kinds.iter().map(|kind| kind.must(world, self));
        match found.clone().find(|found| *found != Must::Match) {
            Some(Must::Unavailable) => unavailable,
            Some(Must::Deny) => Some(Answer::Deny),
            Some(Must::NoMatch | Must::Wait | Must::Match) if self.else_deny => Some(Answer::Deny),
            Some(Must::Wait) => None,
            Some(Must::NoMatch | Must::Match) => Some(Answer::Abstain),
            None if self.kinds.is_empty() => Some(Answer::Abstain),
            None if self.deny => Some(Answer::Deny),
            None => Some(Answer::Approve),
        }
    }
}

impl Plan {
    fn wants_token(&self) -> bool {
        let mut kinds = self.kinds.iter();
        kinds.any(|kind| matches!(kind, PlannedKind::Token))
    }

    /// The kind that, of all in an applying rule, stumbles over a request without a token.
    fn lacks_token(&self, world: &World, reserved: bool) -> Option<PlannedKind> {
        let applies = self.when.is_none_or(|when| when.must(world) == Must::Match);
        let is_asked = applies && (self.deny || !reserved);
        let mut kinds = self.kinds.iter().copied();
        let found = kinds.find(|kind| kind.must(world, self) != Must::Match)?;
        let lacks = match found {
            PlannedKind::Token => true,
            PlannedKind::Window => matches!(world.window, Ok(Some(Opening::WantsToken))),
            _ => false,
        };
        (is_asked && lacks && matches!(world.token, Ok(Carried::Nothing))).then_some(found)
    }
}

fn path(kind: &str, i: usize) -> PathBuf {
    // A program and an autosign setting of the same number are the same file.
    let kind = if kind == "autosign" { "program" } else { kind };
    PathBuf::from(format!("/site/{kind}-{i}"))
}

fn list(listed: bool) -> Arc<Allowlist> {
    let line = if listed {
        "*.example.com"
    } else {
        "*.example.org"
    };
    Arc::new(Allowlist::parse(line).0)
}

fn webhook(i: usize) -> Arc<Webhook> {
    Arc::new(Webhook {
        url: format!("https://decider-{i}.example.com/"),
        ca_bundle: None,
        timeout_ms: 1000,
        mode: WebhookMode::Json,
        include_csr: false,
        secret_file: None,
        client_cert_file: None,
        client_key_file: None,
    })
}

impl World {
    /// Adds the answer to one query. Nobody has decided.
    fn answer(&self, query: &Query, evidence: Evidence) -> Evidence {
        let number = |path: &PathBuf| usize::from(path.to_string_lossy().ends_with('1'));
        match query {
            Query::Person => evidence.with_person(None),
            Query::AutosignFile(path) => {
                let file = match self.autosign[number(path)] {
                    Autosign::Missing => AutosignFile::Missing,
                    Autosign::List(listed) => AutosignFile::List(list(listed)),
                    Autosign::Program => AutosignFile::Executable,
                    Autosign::Unusable => AutosignFile::Unusable("is odd".to_owned()),
                };
                evidence.with_file(path.clone(), file, 1)
            }
            Query::Allowlist(path) => {
                let file = match self.lists[number(path)] {
                    Must::Match => ListFile::List(list(true)),
                    Must::NoMatch | Must::Deny | Must::Wait => ListFile::List(list(false)),
                    Must::Unavailable => ListFile::Unusable("is odd".to_owned()),
                };
                evidence.with_list(path.clone(), file, 1)
            }
            Query::Execution(program) => {
                let said = match self.programs[number(&program.path)] {
                    Must::Match => Execution::Approved,
                    Must::NoMatch | Must::Deny | Must::Wait => {
                        Execution::Declined("said no".to_owned())
                    }
                    Must::Unavailable => Execution::Unavailable("was busy".to_owned()),
                };
                evidence.with_execution(program.path.clone(), said, 1)
            }
            Query::Webhook(asked) => {
                let reason = String::new();
                let said = match self.webhooks[usize::from(asked.url.contains("-1"))] {
                    Must::Match => WebhookAnswer::Allow {
                        reason,
                        ttl_seconds: Some(60),
                    },
                    Must::NoMatch | Must::Wait => WebhookAnswer::Pend { reason },
                    Must::Deny => WebhookAnswer::Deny { reason },
                    Must::Unavailable => WebhookAnswer::Unavailable { reason },
                };
                evidence.with_webhook(asked.clone(), said, 1)
            }
            Query::Machine => {
                let machine = self.machine.clone().map(|known| known.map(machine));
                evidence.with_machine(machine, 1)
            }
            Query::Window => {
                let window = self.window.clone().map(|known| known.map(window));
                evidence.with_window(window, 1)
            }
            Query::Ledger => {
                let facts = |has: bool| LedgerFacts {
                    certificate: has.then(|| LedgerCertificate {
                        serial: "01".to_owned(),
                        not_after: NOW,
                        same_key: false,
                    }),
                    revoked: None,
                };
                evidence.with_ledger(self.ledger.clone().map(facts), 1)
            }
            Query::Token => evidence.with_token(self.token.clone().map(Carried::facts), 1),
            Query::SubjectAccess(question) => {
                let reason = String::new();
                let said = match self.access[usize::from(question.verb.ends_with('1'))] {
                    Must::Match => AccessAnswer::Allowed { reason },
                    Must::NoMatch | Must::Deny | Must::Wait => AccessAnswer::NotAllowed { reason },
                    Must::Unavailable => AccessAnswer::Unavailable { reason },
                };
                evidence.with_access(Arc::clone(question), said, 1)
            }
            Query::Cluster(query) => {
                evidence.with_cluster(query.clone(), Err("no cluster".to_owned()), 1)
            }
        }
    }
}

fn machine(expected: Expected) -> Machine {
    let created = match expected {
        Expected::Late => NOW.minus_seconds(7200),
        Expected::Fits | Expected::Enrolled | Expected::Differs => NOW.minus_seconds(60),
    };
    Machine {
        name: NAME.to_owned(),
        addresses: Vec::new(),
        serial: String::new(),
        uuid: match expected {
            Expected::Differs => "u".to_owned(),
            Expected::Fits | Expected::Enrolled | Expected::Late => String::new(),
        },
        instance_id: String::new(),
        provider: String::new(),
        role: String::new(),
        not_before: None,
        not_after: None,
        single_use: false,
        created,
        enrolled: matches!(expected, Expected::Enrolled).then_some(created),
    }
}

fn window(opening: Opening) -> BuildWindow {
    let (opens_at, closes_at) = match opening {
        Opening::NotYet => (NOW.plus_seconds(1), NOW.plus_seconds(9)),
        Opening::Over => (NOW.minus_seconds(9), NOW),
        Opening::Open | Opening::UsedUp | Opening::WantsToken => (NOW, NOW.plus_seconds(1)),
    };
    BuildWindow {
        certname: NAME.to_owned(),
        opens_at,
        closes_at,
        max_issuances: 1,
        issuances: u32::from(matches!(opening, Opening::UsedUp)),
        require_token: matches!(opening, Opening::WantsToken),
    }
}

/// A policy with what it must come to.
fn policy(plans: &[Plan], reserved: bool, tokens: TokenHandling) -> Policy {
    Policy {
        generation: 7,
        rules: plans
            .iter()
            .enumerate()
            .map(|(i, plan)| plan.rule(i))
            .collect(),
        tokens,
        reserved: Guarded::names(reserved.then(|| NAME.to_owned())),
        ..Policy::default()
    }
}

/// Decides as the engine does: asks, answers, asks again. Every round must ask for something new.
fn settle(policy: &Policy, world: &World, begun: Evidence) -> Result<Verdict, TestCaseError> {
    let mut evidence = begun;
    let mut answered: Vec<Query> = Vec::new();
    let kinds = policy
        .rules
        .iter()
        .map(|rule| rule.kinds.len() + 1)
        .sum::<usize>();
    // A kind asks at most twice (what is at a path, then the program there), a condition once, and then for a person.
    for _ in 0..=(2 * kinds + 1) {
        let request = Request {
            csr: &CSR,
            key: NAME,
            name: NAME,
            door: "test",
            signer: &signer("example.com/agents"),
            requester: &Requester::anonymous(None),
            wishes: &Wishes::default(),
            at: NOW,
            renewal: false,
            pod: None,
        };
        let queries = match decide(policy, &request, &evidence, NOW) {
            Outcome::Done(verdict) => return Ok(verdict),
            Outcome::Need(queries) => queries,
        };
        prop_assert!(!queries.is_empty());
        for query in queries {
            prop_assert!(!answered.contains(&query), "{query:?} was answered already");
            evidence = world.answer(&query, evidence);
            answered.push(query);
        }
    }
    Err(TestCaseError::fail("it never has enough"))
}

fn explanation(verdict: &Verdict) -> &Explanation {
    match verdict {
        Verdict::Approve(approval) => approval.explanation(),
        Verdict::Deny(explanation) | Verdict::Pending(explanation) => explanation,
    }
}

fn formula() -> impl Strategy<Value = Formula> + Clone {
    prop::sample::select(Formula::ALL.to_vec())
}

fn kind() -> impl Strategy<Value = PlannedKind> {
    prop_oneof![
        Just(PlannedKind::Always),
        formula().prop_map(PlannedKind::Cel),
        any::<bool>().prop_map(PlannedKind::Names),
        (0..OUTSIDE).prop_map(PlannedKind::ListFile),
        (0..OUTSIDE).prop_map(PlannedKind::Autosign),
        (0..OUTSIDE).prop_map(PlannedKind::Program),
        (0..OUTSIDE).prop_map(PlannedKind::Webhook),
        any::<bool>().prop_map(|once| PlannedKind::Machine { once }),
        Just(PlannedKind::Window),
        Just(PlannedKind::Token),
        (0..OUTSIDE).prop_map(PlannedKind::Access),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    (
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.3),
        prop::option::weighted(0.3, formula()),
        prop::collection::vec(kind(), 0..4),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.3),
    )
        .prop_map(|(for_us, deny, when, kinds, else_deny, next)| Plan {
            for_us,
            deny,
            when,
            kinds,
            else_deny,
            next,
        })
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    prop::collection::vec(plan(), 0..8)
}

/// One finding per outside thing, out of these.
fn findings(of: &'static [Must]) -> impl Strategy<Value = Vec<Must>> {
    prop::collection::vec(prop::sample::select(of), OUTSIDE)
}

fn looked<T: Clone + std::fmt::Debug + 'static>(of: Vec<T>) -> impl Strategy<Value = Looked<T>> {
    prop::option::weighted(0.8, prop::sample::select(of))
        .prop_map(|found| found.ok_or_else(|| "the store is away".to_owned()))
}

fn handling() -> impl Strategy<Value = TokenHandling> {
    let on_reject = prop::sample::select(vec![OnToken::Deny, OnToken::Pend]);
    let on_missing = prop::sample::select(vec![OnMissing::Pend, OnMissing::Deny]);
    (on_reject, on_missing).prop_map(|(on_reject, on_missing)| TokenHandling {
        on_reject,
        on_missing,
    })
}

fn world() -> impl Strategy<Value = World> {
    use Must::{Deny, Match, NoMatch, Unavailable};
    let autosign = vec![
        Autosign::Missing,
        Autosign::List(true),
        Autosign::List(false),
        Autosign::Program,
        Autosign::Unusable,
    ];
    let machine = [
        Expected::Fits,
        Expected::Enrolled,
        Expected::Differs,
        Expected::Late,
    ];
    let window = [
        Opening::Open,
        Opening::NotYet,
        Opening::Over,
        Opening::UsedUp,
        Opening::WantsToken,
    ];
    let or_none = |some: Vec<_>| some.into_iter().map(Some).chain([None]).collect::<Vec<_>>();
    let or_no_window: Vec<_> = window.into_iter().map(Some).chain([None]).collect();
    (
        findings(&[Match, NoMatch, Unavailable]),
        prop::collection::vec(prop::sample::select(autosign), OUTSIDE),
        findings(&[Match, NoMatch, Unavailable]),
        findings(&[Match, NoMatch, Deny, Unavailable]),
        findings(&[Match, NoMatch, Unavailable]),
        looked(or_none(machine.to_vec())),
        looked(or_no_window),
        looked(vec![true, false]),
        looked(Carried::ALL.to_vec()),
        handling(),
    )
        .prop_map(
            |(
                lists,
                autosign,
                programs,
                webhooks,
                access,
                machine,
                window,
                ledger,
                token,
                handling,
            )| {
                World {
                    lists,
                    autosign,
                    programs,
                    webhooks,
                    access,
                    machine,
                    window,
                    ledger,
                    token,
                    handling,
                }
            },
        )
}

/// A world in which nothing speaks for anybody.
fn barren_world() -> impl Strategy<Value = World> {
    let silent = |found: &mut Must| {
        if *found == Must::Match {
            *found = Must::NoMatch;
        }
    };
    world().prop_map(move |mut world| {
        world.lists.iter_mut().for_each(silent);
        world.programs.iter_mut().for_each(silent);
        world.webhooks.iter_mut().for_each(silent);
        world.access.iter_mut().for_each(silent);
        for file in &mut world.autosign {
            if matches!(file, Autosign::List(true)) {
                *file = Autosign::List(false);
            }
        }
        world.machine = world.machine.map(|_| None);
        if matches!(world.window, Ok(Some(Opening::Open))) {
            world.window = Ok(None);
        }
        if world.token == Ok(Carried::Good) {
            world.token = Ok(Carried::Nothing);
        }
        world
    })
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// Invariant 6: whatever approves is a rule of that signer whose evidence all speaks for the request, and nothing
    /// before it denied or could not be asked.
    #[test]
    fn deny_by_default_over_random_policies(plans in plans(), world in world(), reserved in any::<bool>()) {
        let reserved = reserved && plans.len() % 3 == 0;
        let verdict = settle(&policy(&plans, reserved, world.handling), &world, Evidence::none())?;
        let ours = plans.iter().enumerate().filter(|(_, plan)| plan.for_us);
        let (mut decided, mut without, mut in_window, mut to_the_end) = (None, None, None, true);
        for (i, plan) in ours {
            match plan.must(&world, reserved) {
                Some(Answer::Abstain) => match plan.lacks_token(&world, reserved) {
                    Some(PlannedKind::Token) => without = without.or(Some(i)),
                    Some(_) => in_window = in_window.or(Some(i)),
                    None => {}
                },
                Some(answer) => {
                    decided = Some((i, answer));
                    break;
                }
                None => {
                    to_the_end = false;
                    break;
                }
            }
        }
        // Nobody approves it, and the configuration says what becomes of requests without a token.
        if decided.is_none() && to_the_end && world.handling.on_missing == OnMissing::Deny {
            decided = without.or(in_window).map(|i| (i, Answer::Deny));
        }
        let said = explanation(&verdict);
        match (&verdict, decided) {
            (Verdict::Approve(_), Some((i, Answer::Approve))) | (Verdict::Deny(_), Some((i, Answer::Deny))) => {
                let named = matches!(&said.by, Some(Deciding::Rule { name, .. }) if *name == format!("rule-{i}"));
                prop_assert!(named, "{:?} instead of rule-{}", said.by, i);
                prop_assert!(!reserved || said.effect == Effect::Deny);
            }
            (Verdict::Pending(_), None) => prop_assert_eq!(&said.by, &None),
            _ => prop_assert!(false, "{verdict:?} instead of {decided:?}"),
        }
    }

    /// Invariant 6: no evidence, no approval, except by rules that ask for none.
    #[test]
    fn deny_by_default_without_evidence(plans in plans(), world in barren_world()) {
        if let Verdict::Approve(approval) = settle(&policy(&plans, false, world.handling), &world, Evidence::none())? {
            let Some(Deciding::Rule { name, .. }) = &approval.explanation().by else {
                return Err(TestCaseError::fail("no rule is named"));
            };
            let by: usize = name.trim_start_matches("rule-").parse().unwrap();
            let kinds = &plans[by].kinds;
            prop_assert!(!kinds.is_empty() && kinds.iter().all(|kind| kind.needs_no_evidence()), "{kinds:?}");
        }
    }

    /// Invariant 6: the authority's own names are approved by no rule.
    #[test]
    fn deny_by_default_for_the_authoritys_own_names(plans in plans(), world in world()) {
        let verdict = settle(&policy(&plans, true, world.handling), &world, Evidence::none())?;
        prop_assert!(!matches!(verdict, Verdict::Approve(_)), "{verdict:?}");
    }

    /// Invariant 3, as far as it is decided here: whatever approves a request with a wrong token did not look at tokens, and
    /// an approval by a token says which one is to be used up.
    #[test]
    fn a_wrong_token_never_helps(plans in plans(), world in world()) {
        let verdict = settle(&policy(&plans, false, world.handling), &world, Evidence::none())?;
        let Verdict::Approve(approval) = &verdict else {
            return Ok(());
        };
        let asked = plans.iter().filter(|plan| plan.for_us).take(approval.explanation().steps.len());
        let applied = asked.filter(|plan| plan.when.is_none_or(|when| when.must(&world) == Must::Match));
        let by = applied.last().unwrap();
        let uses = approval.uses().iter().filter_map(Use::token).count();
        match by.wants_token() {
            true => {
                prop_assert_eq!(&world.token, &Ok(Carried::Good));
                prop_assert!(uses >= 1 && approval.explanation().token.is_some());
            }
            false => prop_assert!(uses == 0 || world.token == Ok(Carried::Good)),
        }
        // A window that wants a token says so, and the token is used with it.
        let window_with_token = approval.uses().iter().any(|used| matches!(used, Use::Window { with_token: true, .. }));
        prop_assert!(!window_with_token || uses >= 1);
    }

    /// Adding a rule that denies in front never turns another verdict into an approval.
    #[test]
    fn a_denial_in_front_never_helps(plans in plans(), denial in plan(), world in world()) {
        let before = settle(&policy(&plans, false, world.handling), &world, Evidence::none())?;
        let denial = Plan { deny: true, ..denial };
        let with_denial: Vec<Plan> = [denial].into_iter().chain(plans).collect();
        let after = settle(&policy(&with_denial, false, world.handling), &world, Evidence::none())?;
        if matches!(after, Verdict::Approve(_)) {
            prop_assert!(matches!(before, Verdict::Approve(_)), "{before:?} became {after:?}");
        }
    }

    /// Equal arguments, equal outcomes; evidence that is there before it is asked for changes nothing.
    #[test]
    fn decisions_repeat(plans in plans(), world in world()) {
        let policy = policy(&plans, false, world.handling);
        let first = settle(&policy, &world, Evidence::none())?;
        let again = settle(&policy, &world, Evidence::none())?;
        prop_assert_eq!(explanation(&first), explanation(&again));
        let known = [Query::Machine, Query::Window, Query::Ledger, Query::Token, Query::Person];
        let early = known.iter().fold(Evidence::none(), |evidence, query| world.answer(query, evidence));
        let with_early = settle(&policy, &world, early)?;
        prop_assert_eq!(explanation(&first), explanation(&with_early));
    }

    /// Invariant 1, as far as it is decided here: an approval comes out of a decision, or of the record of one, and
    /// names the rule or the person.
    #[test]
    fn no_certificate_without_a_decision(
        plans in plans(),
        world in world(),
        person in prop::option::weighted(0.3, prop::sample::select(vec![PersonVerdict::Approve, PersonVerdict::Deny])),
    ) {
        let begun = match person {
            Some(word) => Evidence::none().with_person(Some(person_decision(word))),
            None => Evidence::none(),
        };
        let verdict = settle(&policy(&plans, false, world.handling), &world, begun)?;
        let said = explanation(&verdict).clone();
        match (&verdict, person) {
            (Verdict::Approve(_), Some(word)) => prop_assert_eq!(word, PersonVerdict::Approve),
            (Verdict::Deny(_), Some(word)) => prop_assert_eq!(word, PersonVerdict::Deny),
            (Verdict::Pending(_), Some(_)) => prop_assert!(false, "a person's word was not heard"),
            (_, None) => {}
        }
        let is_approved = matches!(verdict, Verdict::Approve(_));
        if is_approved {
            prop_assert!(matches!(said.by, Some(Deciding::Rule { .. } | Deciding::Person { .. })), "{:?}", said.by);
            prop_assert_eq!(said.effect, Effect::Approve);
            prop_assert_eq!(said.generation, 7);
        }
        // The record stands for the decision: it approves again exactly if the decision did.
        let recorded = serde_json::to_string(&said).unwrap();
        let read: Explanation = serde_json::from_str(&recorded).unwrap();
        prop_assert_eq!(&read, &said);
        prop_assert_eq!(Approval::from_recorded_decision(read).is_some(), is_approved);
        // One that names nobody approves nothing.
        for by in [None, Some(Deciding::Profile)] {
            let nobody = Explanation { by, ..said.clone() };
            prop_assert!(Approval::from_recorded_decision(nobody).is_none());
        }
    }
}
