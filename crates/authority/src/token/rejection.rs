//! A token that is wrong: what the audit log says of it, and when it is locked.

use countersign_pki::UnixTime;
use countersign_policy::{Explanation, Finding, Policy, ReasonCode, Step, TokenFacts};
use tracing::warn;

use super::{Presented, TokenRecord, TokenStanding};
use crate::audit::AuditEntry;
use crate::engine::Core;
use crate::evidence::evaluation::Gathered;
use crate::issuing::Case;
use crate::store::{Change, Precondition, Write};
use crate::telemetry::TokenEvent;

/// Adds to a change that does not approve a request what it says of the token that came with it.
pub(crate) fn rejected(
    case: Case<'_>,
    explanation: &Explanation,
    gathered: &Gathered,
    now: UnixTime,
    change: &mut Change,
) {
    let Some(code) = reason(explanation, gathered) else {
        return;
    };
    let entry = of_token(case, gathered, "token.rejected", now).reason(code.clone());
    change.audit.push(entry.message(&case.csr.fingerprint()));
    if *code == ReasonCode::TokenKeyMismatch {
        let id = gathered.presented.verified().map(ToString::to_string);
        warn!(
            token = id,
            name = case.key,
            source = case.requester.source.map(tracing::field::display),
            "a token was used by a second key: its host was built anew, or it was stolen"
        );
    }
    if let Some(record) = misused_token(code, gathered, now) {
        misused(record, case, gathered, now, change);
    }
}

/// What is wrong with the token of a request that no rule was asked about: its signer could never sign it.
pub(crate) fn objection(
    policy: &Policy,
    facts: &TokenFacts,
    case: Case<'_>,
    now: UnixTime,
) -> Option<Step> {
    let (code, reason) = match facts {
        TokenFacts::Missing => return None,
        TokenFacts::Malformed { why } => (ReasonCode::TokenMalformed, why.clone()),
        TokenFacts::Ambiguous { why } => (ReasonCode::TokenAmbiguous, why.clone()),
        TokenFacts::Unknown { id } => (ReasonCode::TokenUnknown, format!("{id} is not known")),
        // The key that used the token asks for something else: the token was not stolen.
        TokenFacts::Known(token) if token.same.is_some() => return None,
        TokenFacts::Known(token) => policy.differs(token, &case.request(), now)?,
    };
    let step = Step::new("token", "token", Finding::Mismatch, reason);
    Some(Step { code, ..step })
}

/// Counts what [`rejected`] has written.
pub(crate) fn report_rejection(
    core: &Core,
    explanation: &Explanation,
    gathered: &Gathered,
    now: UnixTime,
) {
    let Some(code) = reason(explanation, gathered) else {
        return;
    };
    core.telemetry.token(TokenEvent::Rejected, code.as_str());
    if misused_token(code, gathered, now).is_some_and(is_last_misuse) {
        core.telemetry.token(TokenEvent::Locked, code.as_str());
    }
}

/// Why the token of a request is wrong, in one word.
fn reason<'a>(explanation: &'a Explanation, gathered: &Gathered) -> Option<&'a ReasonCode> {
    let codes = explanation.steps.iter().map(|step| &step.code);
    let mut reasons = codes.filter(|code| code.is_token_failure());
    reasons.next().filter(|_| gathered.presented.is_something())
}

/// The token that was misused, if that can lock it.
fn misused_token<'a>(
    code: &ReasonCode,
    gathered: &'a Gathered,
    now: UnixTime,
) -> Option<&'a TokenRecord> {
    let record = gathered.looked_up.record.as_ref();
    record.filter(|record| code.is_misuse() && can_lock(record, now))
}

fn is_last_misuse(record: &TokenRecord) -> bool {
    record.failed_uses.saturating_add(1) >= LOCKED_AFTER
}

/// One that was used up is not locked: its rightful holder may have to ask for the outcome again.
fn can_lock(record: &TokenRecord, now: UnixTime) -> bool {
    record.standing == TokenStanding::Active
        && record.uses < record.max_uses
        && now < record.expires_at
}

fn misused(
    record: &TokenRecord,
    case: Case<'_>,
    gathered: &Gathered,
    now: UnixTime,
    change: &mut Change,
) {
    let id = record.id.clone();
    change.preconditions.push(Precondition::TokenAt {
        id: id.clone(),
        version: record.version,
    });
    change.writes.push(Write::FailToken { id: id.clone() });
    if is_last_misuse(record) {
        warn!(token = %id, name = case.key, source = case.requester.source.map(tracing::field::display), "a token is locked: it was misused too often");
        change.writes.push(Write::EndToken {
            id,
            standing: TokenStanding::Locked { at: now },
        });
        let entry = of_token(case, gathered, "token.locked", now);
        change.audit.push(entry);
    }
}

fn of_token(
    case: Case<'_>,
    gathered: &Gathered,
    action: &'static str,
    now: UnixTime,
) -> AuditEntry {
    let entry = case.audit(action, now);
    match &gathered.presented {
        Presented::Verified(id) => entry.token(id),
        Presented::Other(TokenFacts::Unknown { id }) => entry.token(id),
        Presented::Other(_) | Presented::Unreadable(_) => entry,
    }
}

/// So many misuses with the right secret lock a token.
const LOCKED_AFTER: u32 = 5;
