//! Who may get a certificate, and why.
//!
//! A [`Policy`] is an ordered list of rules. [`decide`] applies it to one [`Request`] and whatever
//! [`Evidence`] is known so far, and either names the evidence it still needs or gives a [`Verdict`]
//! with an [`Explanation`] of every rule that was asked.
//!
//! This crate never reads a clock, a file or a socket, never fetches evidence itself and knows no
//! door: equal arguments give equal outcomes, which is what makes tests, explanations and replays of
//! a decision trustworthy.
#![warn(clippy::wildcard_enum_match_arm)]

mod allowlist;
mod decide;
mod evidence;
mod request;
mod rules;
mod verdict;

pub use allowlist::{Allowlist, Apex, BadLine};
pub use decide::{Outcome, decide};
pub use evidence::{AutosignFile, Evidence, Execution, PersonDecision, PersonVerdict, Query};
pub use request::{Identity, Request, Requester, SignerName, SignerNameFault, Wishes};
pub use rules::{Policy, Rule, RuleKind};
pub use verdict::{Approval, Deciding, Effect, Explanation, Finding, Step, Verdict};
