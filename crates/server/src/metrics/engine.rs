//! What the engine and its store report.

use std::collections::BTreeMap;
use std::time::Duration;

use countersign_authority::{
    CommitOutcome, DecisionOutcome, Door, Ended, ExecutionOutcome, Honored, IssuerId, RequestState,
    Telemetry, TokenEvent, WebhookOutcome,
};
use countersign_policy::SignerName;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::DOORS;

use super::histogram::{GROUPS, Histogram, REQUESTS, SIGNATURES};
use super::{NamedLabel, StaticLabel, registered};

/// Counts what an engine reports.
#[derive(Debug)]
pub struct EngineMetrics {
    /// Doors and outcomes are the program's, rules the configuration's; no label has a value of a sender's making.
    decisions: Family<DecisionLabels, Counter>,
    signatures: BTreeMap<IssuerId, SignatureMetrics>,
    commits: Commits,
    executions: Executions,
    webhooks: Webhooks,
    tokens: Tokens,
    lifetimes: Lifetimes,
    collected: Family<CollectedLabels, Counter>,
    seals: Counter,
    sealed_entries: Counter,
}

type DecisionLabels = [(&'static str, String); 3];
type CollectedLabels = [(&'static str, String); 2];

#[derive(Debug)]
struct SignatureMetrics {
    well: Counter,
    failed: Counter,
    duration: Histogram,
}

#[derive(Debug)]
struct Commits {
    waiting: Gauge,
    durable: Counter,
    conflict: Counter,
    failed: Counter,
    duration: Histogram,
    group: Histogram,
}

#[derive(Debug)]
struct Webhooks {
    answers: BTreeMap<&'static str, Counter>,
    duration: Histogram,
}

impl Webhooks {
    fn new(registry: &mut Registry) -> Self {
        let calls = registered(
            registry,
            "countersign_webhook_calls",
            "Questions to webhooks, by what they answered; failed: nothing that counts",
            Family::<StaticLabel, Counter>::default(),
        );
        let outcomes = [
            WebhookOutcome::Allowed,
            WebhookOutcome::Denied,
            WebhookOutcome::Pending,
            WebhookOutcome::Failed,
        ];
        let words = outcomes.map(WebhookOutcome::word);
        let count = |word| (word, calls.get_or_create_owned(&[("outcome", word)]));
        Self {
            answers: words.map(count).into(),
            duration: registered(
                registry,
                "countersign_webhook_duration_seconds",
                "How long a webhook took to answer",
                Histogram::new(&REQUESTS),
            ),
        }
    }
}

#[derive(Debug)]
struct Tokens {
    events: BTreeMap<&'static str, Counter>,
    rejections: BTreeMap<&'static str, Counter>,
    /// Whatever is none of the reasons that are known here.
    rejected_otherwise: Counter,
}

impl Tokens {
    fn new(registry: &mut Registry) -> Self {
        let events = registered(
            registry,
            "countersign_token_events",
            "What happened to enrolment tokens, but for rejections",
            Family::<StaticLabel, Counter>::default(),
        );
        let rejections = registered(
            registry,
            "countersign_token_rejections",
            "Requests that their enrolment token spoke against, by reason",
            Family::<StaticLabel, Counter>::default(),
        );
        let words = [
            TokenEvent::Minted,
            TokenEvent::Consumed,
            TokenEvent::Retried,
            TokenEvent::Locked,
            TokenEvent::Revoked,
            TokenEvent::Released,
        ]
        .map(TokenEvent::word);
        let event = |word| (word, events.get_or_create_owned(&[("event", word)]));
        let reason = |word| rejections.get_or_create_owned(&[("reason", word)]);
        Self {
            events: words.map(event).into(),
            rejections: TOKEN_REASONS.map(|word| (word, reason(word))).into(),
            rejected_otherwise: reason("other"),
        }
    }
}

/// Whether signers keep to the lifetimes they are asked for: how many were asked for, how many were met.
#[derive(Debug)]
struct Lifetimes {
    known: BTreeMap<&'static str, (Counter, Counter)>,
    /// Of every other signer: their names are of senders' making.
    others: (Counter, Counter),
}

impl Lifetimes {
    fn new(registry: &mut Registry) -> Self {
        let asked = registered(
            registry,
            "countersign_requested_lifetimes",
            "Certificates of requests that asked for a lifetime, by signer",
            Family::<StaticLabel, Counter>::default(),
        );
        let met = registered(
            registry,
            "countersign_honored_lifetimes",
            "Those that got about the lifetime they asked for",
            Family::<StaticLabel, Counter>::default(),
        );
        let of = |signer| {
            let label = [("signer", signer)];
            let (asked, met) = (
                asked.get_or_create_owned(&label),
                met.get_or_create_owned(&label),
            );
            (asked, met)
        };
        Self {
            known: KUBERNETES_SIGNERS.map(|signer| (signer, of(signer))).into(),
            others: of("other"),
        }
    }

    fn of(&self, signer: &SignerName) -> &(Counter, Counter) {
        self.known.get(signer.as_str()).unwrap_or(&self.others)
    }
}

#[derive(Debug)]
struct Executions {
    approved: Counter,
    declined: Counter,
    busy: Counter,
    duration: Histogram,
}

impl EngineMetrics {
    /// Registers them, for an engine with these issuers.
    pub fn new(registry: &mut Registry, issuers: impl IntoIterator<Item = IssuerId>) -> Self {
        Self {
            decisions: registered(
                registry,
                "countersign_decisions",
                "Certificate requests, renewals and people's decisions, by what they came to and what settled it",
                Family::default(),
            ),
            signatures: signatures(registry, issuers),
            commits: Commits::new(registry),
            executions: Executions::new(registry),
            webhooks: Webhooks::new(registry),
            tokens: Tokens::new(registry),
            lifetimes: Lifetimes::new(registry),
            collected: collected(registry),
            seals: registered(
                registry,
                "countersign_audit_seals",
                "Seals of the audit log that this process made",
                Counter::default(),
            ),
            sealed_entries: registered(
                registry,
                "countersign_audit_sealed_entries",
                "Entries of the audit log that this process sealed",
                Counter::default(),
            ),
        }
    }
}

impl Telemetry for EngineMetrics {
    fn decided(&self, door: &Door, outcome: DecisionOutcome, rule: &str) {
        let labels = [
            ("door", door.to_string()),
            ("outcome", outcome.word().to_owned()),
            ("rule", rule.to_owned()),
        ];
        self.decisions.get_or_create(&labels).inc();
    }

    fn signed(&self, issuer: &IssuerId, ended: Ended, took: Duration) {
        let Some(of) = self.signatures.get(issuer) else {
            return;
        };
        match ended {
            Ended::Well => of.well.inc(),
            Ended::Failed => of.failed.inc(),
        };
        of.duration.observe_duration(took);
    }

    fn executed(&self, execution: ExecutionOutcome, took: Duration) {
        match execution {
            ExecutionOutcome::Approved => self.executions.approved.inc(),
            ExecutionOutcome::Declined => self.executions.declined.inc(),
            ExecutionOutcome::Busy => self.executions.busy.inc(),
        };
        self.executions.duration.observe_duration(took);
    }

    fn asked(&self, outcome: WebhookOutcome, took: Duration) {
        let count = self.webhooks.answers.get(&outcome.word());
        if let Some(count) = count {
            count.inc();
        }
        self.webhooks.duration.observe_duration(took);
    }

    fn token(&self, event: TokenEvent, reason: &str) {
        if event == TokenEvent::Rejected {
            let known = self.tokens.rejections.get(reason);
            known.unwrap_or(&self.tokens.rejected_otherwise).inc();
        } else if let Some(count) = self.tokens.events.get(event.word()) {
            count.inc();
        }
    }

    fn lifetime(&self, signer: &SignerName, honored: Honored) {
        let (asked, met) = self.lifetimes.of(signer);
        asked.inc();
        if honored == Honored::Yes {
            met.inc();
        }
    }

    fn collected(&self, door: &Door, state: RequestState, count: u64) {
        let labels = collected_labels(door, state);
        self.collected.get_or_create(&labels).inc_by(count);
    }

    fn sealed(&self, entries: u64) {
        self.seals.inc();
        self.sealed_entries.inc_by(entries);
    }

    fn commit_waits(&self) {
        self.commits.waiting.inc();
    }

    fn committed(&self, ended: CommitOutcome, took: Duration) {
        self.commits.waiting.dec();
        match ended {
            CommitOutcome::Durable => self.commits.durable.inc(),
            CommitOutcome::Conflict => self.commits.conflict.inc(),
            CommitOutcome::Failed => self.commits.failed.inc(),
        };
        self.commits.duration.observe_duration(took);
    }

    fn grouped(&self, changes: usize) {
        let changes = u64::try_from(changes).unwrap_or(u64::MAX);
        self.commits.group.observe(changes);
    }
}

fn signatures(
    registry: &mut Registry,
    issuers: impl IntoIterator<Item = IssuerId>,
) -> BTreeMap<IssuerId, SignatureMetrics> {
    let counts = registered(
        registry,
        "countersign_signatures",
        "Signatures that an issuer's key was asked for, of certificates and CRLs",
        Family::<[(&'static str, String); 2], Counter>::default(),
    );
    let durations = registered(
        registry,
        "countersign_signature_duration_seconds",
        "How long a signature took, waiting for a signing thread included",
        Family::<NamedLabel, Histogram>::new_with_constructor(|| Histogram::new(&SIGNATURES)),
    );
    let of = |issuer: IssuerId| {
        let name = || ("issuer", issuer.to_string());
        let count =
            |word: &str| counts.get_or_create_owned(&[name(), ("outcome", word.to_owned())]);
        let metrics = SignatureMetrics {
            well: count("made"),
            failed: count("failed"),
            duration: durations.get_or_create_owned(&[name()]),
        };
        (issuer, metrics)
    };
    issuers.into_iter().map(of).collect()
}

/// Every door and state is there from the beginning: nothing collected is something to see.
fn collected(registry: &mut Registry) -> Family<CollectedLabels, Counter> {
    let counts = registered(
        registry,
        "countersign_collected_requests",
        "Old requests that garbage collection has forgotten",
        Family::<CollectedLabels, Counter>::default(),
    );
    for door in DOORS {
        for state in [
            RequestState::Pending,
            RequestState::Approved,
            RequestState::Issued,
            RequestState::Denied,
            RequestState::Failed,
            RequestState::Undecided,
        ] {
            let _from_zero = counts.get_or_create(&collected_labels(&door.name, state));
        }
    }
    counts
}

fn collected_labels(door: &Door, state: RequestState) -> CollectedLabels {
    [
        ("door", door.to_string()),
        ("state", state.word().to_owned()),
    ]
}

impl Commits {
    fn new(registry: &mut Registry) -> Self {
        let ended = registered(
            registry,
            "countersign_store_commits",
            "Changes handed to the store: durable, in conflict with another one, or failed",
            Family::<StaticLabel, Counter>::default(),
        );
        let outcome = |word| ended.get_or_create_owned(&[("outcome", word)]);
        Self {
            durable: outcome("durable"),
            conflict: outcome("conflict"),
            failed: outcome("failed"),
            waiting: registered(
                registry,
                "countersign_store_commits_waiting",
                "Changes that wait for their commit at this moment",
                Gauge::default(),
            ),
            duration: registered(
                registry,
                "countersign_store_commit_duration_seconds",
                "How long a change waited until it was durable or refused",
                Histogram::new(&REQUESTS),
            ),
            group: registered(
                registry,
                "countersign_store_group_changes",
                "How many changes one durable transaction carried",
                Histogram::new(&GROUPS),
            ),
        }
    }
}

impl Executions {
    fn new(registry: &mut Registry) -> Self {
        let runs = registered(
            registry,
            "countersign_policy_executable_runs",
            "Questions to the policy executable; busy: too many others were running",
            Family::<StaticLabel, Counter>::default(),
        );
        let outcome = |word| runs.get_or_create_owned(&[("outcome", word)]);
        Self {
            approved: outcome("approved"),
            declined: outcome("declined"),
            busy: outcome("busy"),
            duration: registered(
                registry,
                "countersign_policy_executable_duration_seconds",
                "How long the policy executable took, waiting for its turn included",
                Histogram::new(&REQUESTS),
            ),
        }
    }
}

/// The signers that Kubernetes itself brings.
const KUBERNETES_SIGNERS: [&str; 4] = [
    "kubernetes.io/kube-apiserver-client",
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/legacy-unknown",
];

/// What can be wrong with a token.
const TOKEN_REASONS: [&str; 14] = [
    "existing_certificate",
    "token_ambiguous",
    "token_certname_mismatch",
    "token_exhausted",
    "token_expired",
    "token_extension_not_allowed",
    "token_key_mismatch",
    "token_locked",
    "token_malformed",
    "token_not_yet_valid",
    "token_revoked",
    "token_san_not_allowed",
    "token_source_not_allowed",
    "token_unknown",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_to_tokens_is_counted_under_words_of_the_program() {
        let mut registry = Registry::default();
        let metrics = EngineMetrics::new(&mut registry, []);
        metrics.token(TokenEvent::Minted, "");
        metrics.token(TokenEvent::Consumed, "");
        metrics.token(TokenEvent::Consumed, "");
        metrics.token(TokenEvent::Rejected, "token_unknown");
        metrics.token(TokenEvent::Rejected, "of somebody's making");
        metrics.token(TokenEvent::Locked, "token_key_mismatch");
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"countersign_token_events_total{event="minted"} 1"#,
            r#"countersign_token_events_total{event="consumed"} 2"#,
            r#"countersign_token_events_total{event="locked"} 1"#,
            r#"countersign_token_events_total{event="released"} 0"#,
            r#"countersign_token_rejections_total{reason="token_unknown"} 1"#,
            r#"countersign_token_rejections_total{reason="token_expired"} 0"#,
            r#"countersign_token_rejections_total{reason="other"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("making"));
    }

    #[test]
    fn lifetimes_are_counted_by_signers_that_are_known() {
        let mut registry = Registry::default();
        let metrics = EngineMetrics::new(&mut registry, []);
        for (signer, honored) in [
            ("kubernetes.io/kube-apiserver-client", Honored::Yes),
            ("kubernetes.io/kube-apiserver-client", Honored::No),
            ("kubernetes.io/of-somebody", Honored::Yes),
            ("example.com/vpn", Honored::No),
        ] {
            metrics.lifetime(&SignerName::parse(signer).unwrap(), honored);
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"countersign_requested_lifetimes_total{signer="kubernetes.io/kube-apiserver-client"} 2"#,
            r#"countersign_honored_lifetimes_total{signer="kubernetes.io/kube-apiserver-client"} 1"#,
            r#"countersign_requested_lifetimes_total{signer="kubernetes.io/kubelet-serving"} 0"#,
            r#"countersign_requested_lifetimes_total{signer="other"} 2"#,
            r#"countersign_honored_lifetimes_total{signer="other"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
