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

mod access;
mod allowlist;
mod decide;
mod document;
mod evidence;
mod expression;
mod facts;
mod fields;
mod guarded;
pub mod json;
mod kinds;
mod machine;
mod masking;
mod nearest;
mod node;
mod reason;
mod request;
mod rules;
mod signing_policy;
mod span;
mod token;
pub mod trial;
mod verdict;
mod yaml;

pub use access::{AccessAnswer, AccessQuestion, RecordedAccess};
pub use allowlist::{Allowlist, Apex, BadLine};
pub use decide::{Outcome, decide};
pub use document::{FileUse, NeededFile, PolicyDocument, PolicyFile, PolicySet};
pub use evidence::{
    AutosignFile, Evidence, Looked, PersonDecision, PersonVerdict, Query, RecordedEvidence,
    RecordedFile,
};
pub use expression::{EvaluationFault, Expression, ExpressionFault, Facts, Needs};
pub use facts::{
    AddressKind, BuildWindow, Execution, LedgerCertificate, LedgerFacts, LedgerRevocation,
    ListFile, Machine, MachineAddress, PodFacts, WebhookAnswer,
};
pub use fields::PolicyFault;
pub use guarded::Guarded;
pub use masking::{could_be_secret, looks_like_a_token, masked_tokens};
pub use nearest::nearest;
pub use node::{
    CheckId, Checks, ClusterFact, ClusterMachine, ClusterNode, ClusterQuery, ClusterRequest,
    Compat, Egress, NameAnswer, NameOptions, NamePattern, NodeAddress, NodeClientRule, NodeRequest,
    NodeServingRule, Preset, Queue, RequestState, ServedChain, Switch, Waiting, bundle_of,
    egress_of, inventory_machine, judge_unreadable, machine_of, network_type_of, node_of,
    object_names, queue_of, queue_window, related_requests, request_state_of, turns_of,
};
pub use reason::ReasonCode;
pub use request::{Identity, Request, Requester, SignerName, SignerNameFault, Wishes, one_source};
pub use rules::{
    CaBundle, Executable, ListSource, MachineRule, OnUnavailable, Otherwise, Policy, Rule,
    RuleEffect, RuleKind, Webhook, WebhookMode,
};
pub use signing_policy::{SigningPolicies, SigningPolicy, SigningPolicyFault};
pub use span::{Span, SpanFault};
pub use token::{
    MachineSubject, Network, OnMissing, OnToken, Token, TokenBinding, TokenFacts, TokenHandling,
    TokenTerms, TokenUse, TokenUseState, carries_token,
};
pub use verdict::{
    Answer, Approval, Deciding, Effect, Explanation, Finding, Step, TokenUsed, Use, Verdict,
};
pub use yaml::SourcePosition;
