//! The decision itself: one pure function.

use countersign_pki::UnixTime;

use crate::evidence::{Evidence, PersonDecision, PersonVerdict, Query};
use crate::expression::{Expression, Facts};
use crate::facts::LedgerFacts;
use crate::kinds::{Checked, Ending, Looking, short};
use crate::masking::masked_tokens;
use crate::reason::ReasonCode;
use crate::request::{Identity, Request};
use crate::rules::{OnUnavailable, Otherwise, Policy, Rule, RuleEffect, RuleKind};
use crate::token::OnMissing;
use crate::verdict::{
    Answer, Approval, Deciding, Effect, Explanation, Finding, Step, Use, Verdict,
};

/// What a call of [`decide`] came to.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "moved once, to the caller; a box would cost an allocation per request"
)]
pub enum Outcome {
    /// It cannot say before these are answered; call again with the answers added.
    Need(Vec<Query>),
    /// Decided.
    Done(Verdict),
}

/// Applies `policy` to `request` with what is known.
///
/// A person's word, once given, settles the request. Otherwise the rules of the request's signer are
/// asked in order; the first that approves or denies ends it, and so does one whose evidence cannot be had, unless it
/// says otherwise, or that leaves a wrong token to a person. When all abstain, the request waits for a person. Same arguments, same outcome.
pub fn decide(
    policy: &Policy,
    request: &Request<'_>,
    evidence: &Evidence,
    now: UnixTime,
) -> Outcome {
    if let Some(Some(decision)) = evidence.person() {
        return Outcome::Done(by_person(policy, decision));
    }
    let mut so_far = Explanation::new(Effect::Pending, now, policy.generation);
    let reserved = policy.reserved_of(request);
    for rule in policy.rules_for(request.signer) {
        let asked = match ask(policy, rule, request, evidence, now, reserved) {
            Ok(asked) => asked,
            Err(queries) => return Outcome::Need(queries),
        };
        let Asked {
            step,
            retry,
            waits,
            uses,
            lifetime,
        } = asked;
        let (answer, finding) = (step.answer, step.finding);
        so_far.retry |= retry;
        so_far.steps.push(step);
        match answer {
            Answer::Approve => {
                let mut explanation = so_far.settled(Effect::Approve, rule, lifetime);
                explanation.token = uses.iter().find_map(Use::token);
                return Outcome::Done(Verdict::Approve(Approval::new(explanation, uses)));
            }
            Answer::Deny => {
                let explanation = so_far.settled(Effect::Deny, rule, None);
                return Outcome::Done(Verdict::Deny(explanation));
            }
            Answer::Abstain if waits => break,
            Answer::Abstain => {}
        }
        if finding == Finding::Unavailable && rule.on_unavailable == OnUnavailable::Stop {
            // What cannot be asked might have denied: nobody further down approves in its place.
            so_far.stopped = true;
            so_far.code = so_far
                .steps
                .last()
                .map(|s| s.code.clone())
                .unwrap_or_default();
            break;
        }
    }
    if evidence.person().is_none() {
        return Outcome::Need(vec![Query::Person]);
    }
    if !so_far.stopped
        && let Some((rule, step)) = token_reason(policy, request, &so_far)
    {
        so_far.code = step.code;
        if step.finding == Finding::Absent && policy.tokens.on_missing == OnMissing::Deny {
            let (name, policy) = (rule.name.clone(), rule.policy.as_ref().to_owned());
            so_far.effect = Effect::Deny;
            so_far.by = Some(Deciding::Rule { name, policy });
            so_far.retry = false;
            return Outcome::Done(Verdict::Deny(so_far));
        }
    }
    if so_far.code.is_none() {
        // What the last rule about nodes lacks is what the request waits for; one that is about others counts last.
        let is_check = |step: &&Step| matches!(step.code, ReasonCode::Check(_));
        let mut steps = so_far.steps.iter().rev().filter(is_check);
        let lacking = steps.clone().find(|step| step.finding != Finding::Skipped);
        let lacking = lacking.or_else(|| steps.next());
        so_far.code = lacking.map(|step| step.code.clone()).unwrap_or_default();
    }
    Outcome::Done(Verdict::Pending(so_far))
}

impl Explanation {
    fn settled(mut self, effect: Effect, rule: &Rule, lifetime: Option<u64>) -> Self {
        self.effect = effect;
        self.by = Some(Deciding::Rule {
            name: rule.name.clone(),
            policy: rule.policy.as_ref().to_owned(),
        });
        self.code = self
            .steps
            .last()
            .map(|s| s.code.clone())
            .unwrap_or_default();
        self.retry = false;
        self.lifetime = lifetime;
        self
    }
}

fn by_person(policy: &Policy, decision: &PersonDecision) -> Verdict {
    let explanation = |effect| Explanation {
        by: Some(Deciding::Person {
            actor: decision.actor.clone(),
            reason: decision.reason.clone(),
        }),
        code: match decision.actor.identity == Identity::Authority {
            true => ReasonCode::Authority,
            false => ReasonCode::Person,
        },
        ..Explanation::new(effect, decision.at, policy.generation)
    };
    match decision.verdict {
        PersonVerdict::Approve => {
            Verdict::Approve(Approval::new(explanation(Effect::Approve), Vec::new()))
        }
        PersonVerdict::Deny => Verdict::Deny(explanation(Effect::Deny)),
    }
}

/// What came of asking a rule.
struct Asked {
    step: Step,
    retry: bool,
    /// Whether it leaves the request to a person, and no other rule is asked.
    waits: bool,
    uses: Vec<Use>,
    lifetime: Option<u64>,
}

/// What the first rule that looked for a token has to say of it, where the rules left the request to a person. What a
/// build window says of it counts if no other rule looked.
fn token_reason<'a>(
    policy: &'a Policy,
    request: &'a Request<'_>,
    so_far: &Explanation,
) -> Option<(&'a Rule, Step)> {
    let asked = || policy.rules_for(request.signer).zip(&so_far.steps);
    let of_token =
        |code: &ReasonCode| code.is_about_token() && *code != ReasonCode::ExistingCertificate;
    let found = asked().find(|(_, step)| of_token(&step.code));
    let found =
        found.or_else(|| asked().find(|(_, step)| step.code == ReasonCode::WindowNeedsToken));
    found.map(|(rule, step)| (rule, step.clone()))
}

/// Asks one rule. `Err`: it needs these first.
fn ask(
    policy: &Policy,
    rule: &Rule,
    request: &Request<'_>,
    evidence: &Evidence,
    now: UnixTime,
    reserved: Option<&str>,
) -> Result<Asked, Vec<Query>> {
    if let (Some(name), RuleEffect::Approve) = (reserved, rule.effect) {
        let reason = format!(
            "{name} is a name of the authority or of somebody with a role; only a person approves it"
        );
        let checked = Checked::mismatch(ReasonCode::ReservedName, reason);
        return Ok(answered(rule, Answer::Abstain, vec![checked]));
    }
    let judges = rule.kinds.iter().any(RuleKind::is_about_nodes);
    if let (Some(weakness), RuleEffect::Approve, false) =
        (request.csr.unsignable(), rule.effect, judges)
    {
        let checked = Checked::mismatch(ReasonCode::Unsignable, weakness.to_string());
        return Ok(answered(rule, Answer::Abstain, vec![checked]));
    }
    if let Some(when) = &rule.when {
        match holds(when, request, evidence, now)? {
            Ok((true, _)) => {}
            Ok((false, saw)) => {
                let reason = format!("does not apply: {}", short(when.source()));
                let checked = Checked {
                    saw,
                    ..Checked::new(Finding::Skipped, ReasonCode::Skipped, reason)
                };
                return Ok(answered(rule, Answer::Abstain, vec![checked]));
            }
            Err(checked) => return Ok(answered(rule, Answer::Abstain, vec![checked])),
        }
    }
    let looking = Looking {
        rule,
        request,
        evidence,
        now,
        policy,
    };
    let mut done: Vec<Checked> = Vec::new();
    for kind in &rule.kinds {
        let checked = looking.at(kind)?;
        let is_match = checked.finding == Finding::Match;
        done.push(checked);
        if !is_match {
            break;
        }
    }
    let answer = match done.last() {
        // A rule of no kind says nothing.
        None => Answer::Abstain,
        Some(last) if last.ending == Some(Ending::Deny) => Answer::Deny,
        Some(last) => match (last.finding, rule.effect) {
            (Finding::Match, RuleEffect::Approve) => Answer::Approve,
            (Finding::Match, RuleEffect::Deny) => Answer::Deny,
            (Finding::Absent | Finding::Mismatch, _) => match rule.otherwise {
                Otherwise::Deny => Answer::Deny,
                Otherwise::Abstain => Answer::Abstain,
            },
            (Finding::Unavailable | Finding::Skipped, _) => Answer::Abstain,
        },
    };
    Ok(answered(rule, answer, done))
}

/// Whether an expression holds, and what it looked at; the inner error says why that cannot be known.
pub(crate) fn holds(
    expression: &Expression,
    request: &Request<'_>,
    evidence: &Evidence,
    now: UnixTime,
) -> Result<Result<(bool, String), Checked>, Vec<Query>> {
    let needs = expression.needs();
    let (machine, ledger) = (evidence.machine(), evidence.ledger());
    let mut queries = Vec::new();
    if needs.machine && machine.is_none() {
        queries.push(Query::Machine);
    }
    if needs.ledger && ledger.is_none() {
        queries.push(Query::Ledger);
    }
    if !queries.is_empty() {
        return Err(queries);
    }
    let nothing = LedgerFacts::default();
    let unavailable = |why: &String| {
        Ok(Err(Checked::unavailable(
            ReasonCode::StoreUnavailable,
            why.clone(),
        )))
    };
    // What an expression does not look at cannot keep it from being true or false.
    let machine = machine.filter(|_| needs.machine);
    let ledger = ledger.filter(|_| needs.ledger);
    let machine = match machine.map(|timed| &timed.value) {
        Some(Err(why)) => return unavailable(why),
        Some(Ok(machine)) => machine.as_ref(),
        None => None,
    };
    let ledger = match ledger.map(|timed| &timed.value) {
        Some(Err(why)) => return unavailable(why),
        Some(Ok(ledger)) => ledger,
        None => &nothing,
    };
    let facts = Facts {
        request,
        machine,
        ledger,
        now,
    };
    let saw = expression.looks_at(&facts);
    Ok(match expression.evaluate(&facts) {
        Ok(holds) => Ok((holds, saw)),
        Err(fault) => {
            let source = short(expression.source());
            let reason = format!("{source} cannot be evaluated: {fault}");
            Err(Checked {
                saw,
                ..Checked::unavailable(ReasonCode::ExpressionError, reason)
            })
        }
    })
}

fn answered(rule: &Rule, answer: Answer, done: Vec<Checked>) -> Asked {
    let last = done.last();
    let finding = last.map_or(Finding::Absent, |last| last.finding);
    let code = last.map(|last| last.code.clone()).unwrap_or_default();
    let retry = done.iter().any(|checked| checked.retry);
    let waits = last.is_some_and(|last| last.ending == Some(Ending::Wait));
    let lifetime = done.iter().filter_map(|checked| checked.lifetime).min();
    let micros = done.iter().map(|checked| checked.micros).sum();
    let is_match = finding == Finding::Match;
    let kind = match done.as_slice() {
        [only] if rule.kinds.len() == 1 => only.kind.map(str::to_owned),
        _ => None,
    };
    let (mut reason, mut saw, mut uses, mut failed) =
        (String::new(), String::new(), Vec::new(), Vec::new());
    for checked in done {
        join(&mut reason, &masked_tokens(&checked.reason));
        join(&mut saw, &masked_tokens(&checked.saw));
        for used in checked.uses {
            // Two kinds may rest on one token.
            if !uses.contains(&used) {
                uses.push(used);
            }
        }
        failed.extend(checked.failed);
    }
    if let Some(message) = rule.message.as_ref().filter(|_| is_match) {
        reason.clone_from(message);
    }
    Asked {
        step: Step {
            policy: rule.policy.as_ref().to_owned(),
            rule: rule.name.clone(),
            kind: kind.unwrap_or_else(|| rule.kind_words()),
            finding,
            answer,
            code,
            reason,
            saw,
            failed,
            micros,
        },
        retry,
        waits,
        uses: if is_match { uses } else { Vec::new() },
        lifetime,
    }
}

fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str("; ");
    }
    text.push_str(more);
}

impl Policy {
    /// The name in a request that is the authority's own, or of somebody with a role: no rule approves it.
    pub fn reserved_of(&self, request: &Request<'_>) -> Option<&str> {
        let carried = self
            .reserved
            .carried(request.csr.subject(), request.csr.alt_names());
        carried.or_else(|| self.reserved.named(request.key))
    }
}
