//! What the engine reports of itself while it works, for whoever counts it.
//!
//! The engine calls on its way, so an observer must not wait for anything. What it is told has few values: doors, states,
//! issuers and rules of the configuration, never anything that a sender chooses.

use std::time::Duration;

use countersign_pki::UnixTime;
use countersign_policy::{Deciding, Explanation, Requester, SignerName};

use crate::faults::{ActFault, SubmitFault};
use crate::issuer::IssuerId;
use crate::issuing::Outcome;
use crate::ledger::renewal::RenewFault;
use crate::model::{Door, RequestState};

/// Somebody who counts. Each call has a default that does nothing.
pub trait Telemetry: Send + Sync + 'static {
    /// A certificate request, or a person's act on one, came to something.
    fn decided(&self, door: &Door, outcome: DecisionOutcome, rule: &str) {
        let _nobody_counts = (door, outcome, rule);
    }

    /// A key was asked for a signature, of a certificate or a CRL.
    fn signed(&self, issuer: &IssuerId, ended: Ended, took: Duration) {
        let _nobody_counts = (issuer, ended, took);
    }

    /// A policy executable was asked.
    fn executed(&self, execution: ExecutionOutcome, took: Duration) {
        let _nobody_counts = (execution, took);
    }

    /// A webhook was asked.
    fn asked(&self, outcome: WebhookOutcome, took: Duration) {
        let _nobody_counts = (outcome, took);
    }

    /// Something happened to an enrolment token; the reason says why one was rejected, in one word.
    fn token(&self, event: TokenEvent, reason: &str) {
        let _nobody_counts = (event, reason);
    }

    /// A request that asked for a lifetime got its certificate, from this authority or from a signer elsewhere.
    fn lifetime(&self, signer: &SignerName, honored: Honored) {
        let _nobody_counts = (signer, honored);
    }

    /// Old requests were forgotten.
    fn collected(&self, door: &Door, state: RequestState, count: u64) {
        let _nobody_counts = (door, state, count);
    }

    /// A seal with so many entries of the audit log was made.
    fn sealed(&self, entries: u64) {
        let _nobody_counts = entries;
    }

    /// A change begins to wait for its commit. [`Telemetry::committed`] follows in every case.
    fn commit_waits(&self) {}

    /// A change waits no more.
    fn committed(&self, ended: CommitOutcome, took: Duration) {
        let _nobody_counts = (ended, took);
    }

    /// So many changes were written to the disk together.
    fn grouped(&self, changes: usize) {
        let _nobody_counts = changes;
    }
}

/// What happens to enrolment tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenEvent {
    /// One was minted.
    Minted,
    /// One was used.
    Consumed,
    /// The same key asked for its outcome again.
    Retried,
    /// One was wrong.
    Rejected,
    /// One was misused too often.
    Locked,
    /// One was taken back, or another took its place.
    Revoked,
    /// A use was given back.
    Released,
}

impl TokenEvent {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Minted => "minted",
            Self::Consumed => "consumed",
            Self::Retried => "retried",
            Self::Rejected => "rejected",
            Self::Locked => "locked",
            Self::Revoked => "revoked",
            Self::Released => "released",
        }
    }
}

/// Counts nothing.
#[derive(Clone, Copy, Debug)]
pub struct Unobserved;

impl Telemetry for Unobserved {}

/// What a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecisionOutcome {
    /// Its certificate is on record.
    Issued,
    /// It is approved, and somebody else signs it.
    Approved,
    /// It waits for a person.
    Pending,
    /// A rule or a person denied it.
    Denied,
    /// Its signer could never sign it.
    Unsignable,
    /// Its name is taken.
    Duplicate,
    /// It was not taken: its key was denied before, too many wait from its address, or the certificate cannot be
    /// renewed.
    Refused,
    /// Evidence could not be had.
    Undecided,
    /// It could not be carried through.
    Failed,
}

impl DecisionOutcome {
    /// As one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Issued => "issued",
            Self::Approved => "approved",
            Self::Pending => "pending",
            Self::Denied => "denied",
            Self::Unsignable => "unsignable",
            Self::Duplicate => "duplicate",
            Self::Refused => "refused",
            Self::Undecided => "undecided",
            Self::Failed => "failed",
        }
    }

    pub(crate) fn of_submit_fault(fault: &SubmitFault) -> Self {
        match fault {
            SubmitFault::Duplicate { .. } => Self::Duplicate,
            SubmitFault::Denied { .. }
            | SubmitFault::TooManyWaiting { .. }
            | SubmitFault::NoRoomToWait { .. }
            | SubmitFault::TooManyRenewals { .. }
            | SubmitFault::InProgress { .. }
            | SubmitFault::Forbidden(_) => Self::Refused,
            SubmitFault::Engine(_) => Self::Failed,
        }
    }

    /// `None`: nothing was decided, because there was nothing to decide.
    pub(crate) fn of_act(result: &Result<Outcome, ActFault>) -> Option<Self> {
        match result {
            Ok(outcome) => Some(match outcome.state {
                RequestState::Issued => Self::Issued,
                RequestState::Approved => Self::Approved,
                RequestState::Pending => Self::Pending,
                RequestState::Denied => Self::Denied,
                RequestState::Failed => Self::Unsignable,
                RequestState::Undecided => Self::Undecided,
            }),
            Err(ActFault::Unsignable { .. }) => Some(Self::Unsignable),
            Err(ActFault::Engine(_)) => Some(Self::Failed),
            Err(
                ActFault::NotFound { .. }
                | ActFault::AlreadyDecided { .. }
                | ActFault::Conflict { .. }
                | ActFault::Forbidden(_),
            ) => None,
        }
    }

    pub(crate) fn of_renewal<T>(result: &Result<T, RenewFault>) -> Self {
        match result {
            Ok(_) => Self::Issued,
            Err(RenewFault::Engine(_)) => Self::Failed,
            Err(_) => Self::Refused,
        }
    }
}

/// Whether a certificate got the lifetime that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Honored {
    /// About that.
    Yes,
    /// Another one.
    No,
}

impl Honored {
    /// As API servers judge it: the lifetime may differ by less than five minutes and five percent of what was asked for.
    pub fn of(asked: u64, not_before: UnixTime, not_after: UnixTime) -> Self {
        let lifetime = i128::from(not_after.0) - i128::from(not_before.0);
        let difference = (i128::from(asked) - lifetime).unsigned_abs();
        let slack = u128::from(asked) * 5 + u128::from(5 * 60 * 100_u32);
        match difference * 100 < slack {
            true => Self::Yes,
            false => Self::No,
        }
    }
}

/// How something ended that succeeds or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// Well.
    Well,
    /// Not.
    Failed,
}

/// How a commit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommitOutcome {
    /// It is durable.
    Durable,
    /// A precondition did not hold any more, or the serial was taken; nothing was written.
    Conflict,
    /// The store failed; nothing was written.
    Failed,
}

/// What a policy executable said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExecutionOutcome {
    /// Yes.
    Approved,
    /// No: by its status, by a signal, or because it could not be started or did not end in time.
    Declined,
    /// Nothing: too many others were running.
    Busy,
}

/// What a webhook said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WebhookOutcome {
    /// Yes.
    Allowed,
    /// No.
    Denied,
    /// That others decide.
    Pending,
    /// Nothing that counts.
    Failed,
}

impl WebhookOutcome {
    /// As one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Pending => "pending",
            Self::Failed => "failed",
        }
    }
}

/// The name of what settled a decision: of few values, also if people's names are in it.
pub(crate) fn settled_by(explanation: &Explanation) -> &str {
    match &explanation.by {
        Some(Deciding::Rule { name, .. }) => name,
        Some(Deciding::Person { actor, .. }) if *actor == Requester::authority() => "authority",
        Some(Deciding::Person { .. }) => PERSON,
        Some(Deciding::Profile) => "profile",
        None => NOBODY,
    }
}

/// What settles an act.
pub(crate) const PERSON: &str = "person";
/// Nothing has settled it.
pub(crate) const NOBODY: &str = "none";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_honored_within_five_minutes_and_five_percent() {
        let rows = [
            (3600, 3600, Honored::Yes),
            (3600, 3600 + 479, Honored::Yes),
            (3600, 3600 + 480, Honored::No),
            (3600, 3600 - 479, Honored::Yes),
            (3600, 3600 - 480, Honored::No),
            (600, -10, Honored::No),
            (u64::MAX, i64::MAX, Honored::No),
        ];
        for (asked, lifetime, honored) in rows {
            let told = Honored::of(asked, UnixTime(0), UnixTime(lifetime));
            assert_eq!(told, honored, "{asked} {lifetime}");
        }
    }
}
