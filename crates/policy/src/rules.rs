//! Rules and the policy that orders them.

use std::path::PathBuf;
use std::sync::Arc;

use crate::access::AccessQuestion;
use crate::allowlist::{Allowlist, Apex};
use crate::expression::Expression;
use crate::guarded::Guarded;
use crate::node::{NodeClientRule, NodeServingRule};
use crate::request::SignerName;
use crate::signing_policy::SigningPolicies;
use crate::token::{MachineSubject, TokenHandling};

/// An ordered list of rules, as it stood at one generation of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Counts the versions of the policy; stands in every verdict.
    pub generation: u64,
    /// The rules, first to last.
    pub rules: Vec<Rule>,
    /// The authority's own names, and those of whoever may act on it: no rule may approve them.
    pub reserved: Guarded,
    /// Of those, the names and addresses of the authority's servers and what makes an administrator: nobody but an
    /// administrator acts on them.
    pub own: Guarded,
    /// What becomes of requests whose token is wrong, or that have none.
    pub tokens: TokenHandling,
    /// The signers whose certificates name machines in a way of their own.
    pub machine_subjects: Vec<MachineSubject>,
    /// What rules of kind `signingPolicy` look at.
    pub signing_policies: Arc<SigningPolicies>,
}

impl Policy {
    /// The rules that apply to `signer`, in order.
    pub fn rules_for<'a>(&'a self, signer: &'a SignerName) -> impl Iterator<Item = &'a Rule> {
        self.rules
            .iter()
            .filter(move |rule| rule.signers.contains(signer))
    }

    /// Whether a decision for `signer` may ask for evidence outside the authority, such as a file or a program.
    pub fn asks_outside_for(&self, signer: &SignerName) -> bool {
        self.rules_for(signer)
            .any(|rule| rule.kinds.iter().any(RuleKind::asks_outside))
    }

    /// Whether a rule for `signer` is about nodes. Such requests are read to be judged, not refused.
    pub fn judges_nodes_for(&self, signer: &SignerName) -> bool {
        self.rules_for(signer)
            .any(|rule| rule.kinds.iter().any(RuleKind::is_about_nodes))
    }

    /// Whether a rule for `signer` looks at enrolment tokens.
    pub fn wants_tokens_for(&self, signer: &SignerName) -> bool {
        self.rules_for(signer)
            .any(|rule| rule.kinds.iter().any(RuleKind::looks_at_tokens))
    }

    /// Every webhook that some rule names.
    pub fn webhooks(&self) -> impl Iterator<Item = &Arc<Webhook>> {
        let kinds = self.rules.iter().flat_map(|rule| &rule.kinds);
        kinds.filter_map(|kind| match kind {
            RuleKind::Webhook(webhook) => Some(webhook),
            RuleKind::Always
            | RuleKind::Cel(_)
            | RuleKind::Allowlist(_)
            | RuleKind::Window
            | RuleKind::Token
            | RuleKind::SubjectAccess(_)
            | RuleKind::SigningPolicy
            | RuleKind::Machine(_)
            | RuleKind::NodeClient(_)
            | RuleKind::NodeServing(_)
            | RuleKind::Executable(_)
            | RuleKind::AutosignFile { .. } => None,
        })
    }
}

/// One step of a policy.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The policy document it stands in; empty for a rule that a setting stands for.
    pub policy: Arc<str>,
    /// The name that explanations show.
    pub name: String,
    /// The signers it applies to.
    pub signers: Arc<[SignerName]>,
    /// The rule is asked only where this holds.
    pub when: Option<Expression>,
    /// What a match does.
    pub effect: RuleEffect,
    /// What it looks at, in the order in which it is asked; all must match.
    pub kinds: Vec<RuleKind>,
    /// What the explanation says of a match, instead of the rule's own words.
    pub message: Option<String>,
    /// What it answers when there is no match.
    pub otherwise: Otherwise,
    /// What happens when its evidence cannot be had.
    pub on_unavailable: OnUnavailable,
}

impl Rule {
    /// A rule that approves what `kind` matches and abstains otherwise, of no document.
    pub fn approving(name: &str, signers: Vec<SignerName>, kind: RuleKind) -> Self {
        Self {
            policy: Arc::from(""),
            name: name.to_owned(),
            signers: signers.into(),
            when: None,
            effect: RuleEffect::Approve,
            kinds: vec![kind],
            message: None,
            otherwise: Otherwise::Abstain,
            on_unavailable: OnUnavailable::Stop,
        }
    }

    /// The words of its kinds, as explanations show them.
    pub fn kind_words(&self) -> String {
        match self.kinds.as_slice() {
            [only] => only.word().to_owned(),
            kinds => kinds
                .iter()
                .map(RuleKind::word)
                .collect::<Vec<_>>()
                .join("+"),
        }
    }
}

/// What a rule's match does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleEffect {
    /// It approves.
    Approve,
    /// It denies.
    Deny,
}

/// What a rule without a match answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Otherwise {
    /// Nothing; the next rule is asked.
    #[default]
    Abstain,
    /// It denies.
    Deny,
}

/// What happens when a rule's evidence cannot be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnavailable {
    /// Nothing is approved and no later rule is asked.
    #[default]
    Stop,
    /// The next rule is asked.
    Next,
}

/// The kinds of rules.
#[derive(Clone, Debug)]
pub enum RuleKind {
    /// Matches every request: naive autosigning.
    Always,
    /// An expression that must be true.
    Cel(Expression),
    /// The name must be on a list.
    Allowlist(ListSource),
    /// A build window must be open for the name.
    Window,
    /// An enrolment token for the name must come with the request.
    Token,
    /// The sender must have a right that roles give.
    SubjectAccess(Arc<AccessQuestion>),
    /// A signing policy must permit it.
    SigningPolicy,
    /// The inventory must expect such a machine.
    Machine(MachineRule),
    /// A node must be one that the cluster expects.
    NodeClient(Arc<NodeClientRule>),
    /// The names and addresses of a node must be its own.
    NodeServing(Arc<NodeServingRule>),
    /// A program must end with status 0.
    Executable(Executable),
    /// A decider elsewhere must allow it.
    Webhook(Arc<Webhook>),
    /// A setting that names a path, `autosign`: whatever is there when a request comes in. Nothing: nobody. A file that
    /// the server may execute: a policy executable. Any other file: an allowlist.
    AutosignFile {
        /// Where to look.
        path: PathBuf,
        /// Whether a domain glob stands for the domain itself.
        apex: Apex,
    },
}

impl RuleKind {
    /// The word for this kind in policy files and explanations.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Cel(_) => "cel",
            Self::Allowlist(_) => "allowlist",
            Self::Window => "window",
            Self::Token => "token",
            Self::SubjectAccess(_) => "subjectAccess",
            Self::SigningPolicy => "signingPolicy",
            Self::Machine(_) => "machine",
            Self::NodeClient(_) => "nodeClient",
            Self::NodeServing(_) => "nodeServing",
            Self::Executable(_) => "executable",
            Self::Webhook(_) => "webhook",
            Self::AutosignFile { .. } => "autosign",
        }
    }

    /// Whether it looks for an enrolment token that says who may have the name.
    pub fn looks_at_tokens(&self) -> bool {
        matches!(self, Self::Token | Self::Window)
    }

    /// Whether it is about nodes: such a kind says itself what it thinks of a weak request.
    pub fn is_about_nodes(&self) -> bool {
        matches!(self, Self::NodeClient(_) | Self::NodeServing(_))
    }

    /// Whether it asks for evidence outside the authority's own records.
    pub fn asks_outside(&self) -> bool {
        match self {
            Self::Always
            | Self::Cel(_)
            | Self::Window
            | Self::Token
            | Self::SubjectAccess(_)
            | Self::SigningPolicy
            | Self::Machine(_) => false,
            Self::Allowlist(source) => matches!(source, ListSource::File(_)),
            Self::NodeClient(_)
            | Self::NodeServing(_)
            | Self::Executable(_)
            | Self::Webhook(_)
            | Self::AutosignFile { .. } => true,
        }
    }
}

/// Where an allowlist's lines are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListSource {
    /// In a file, looked at for every request.
    File(PathBuf),
    /// In the policy itself.
    Names(Arc<Allowlist>),
}

/// What the inventory must say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineRule {
    /// So many seconds after it was expected or, without such a time, after its record was made.
    pub window: Option<u64>,
    /// It must not have enrolled by its record yet.
    pub once: bool,
}

/// A program that decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Executable {
    /// The program; an absolute path.
    pub path: PathBuf,
    /// How long it may take in seconds; `None`: what the configuration says.
    pub timeout: Option<u64>,
}

/// A decider elsewhere. Paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Webhook {
    /// Where it is; `https` only.
    pub url: String,
    /// Whom to trust.
    pub ca_bundle: Option<CaBundle>,
    /// How long one question may take in all, in milliseconds.
    pub timeout_ms: u64,
    /// How it is asked.
    pub mode: WebhookMode,
    /// Whether it is shown the complete request, which may hold a secret.
    pub include_csr: bool,
    /// The key that signs the questions.
    pub secret_file: Option<PathBuf>,
    /// Our certificate.
    pub client_cert_file: Option<PathBuf>,
    /// Its key.
    pub client_key_file: Option<PathBuf>,
}

impl Webhook {
    /// Its address without what may be a secret in it.
    pub fn address(&self) -> &str {
        self.url.split(['?', '#']).next().unwrap_or(&self.url)
    }
}

/// Certificates to trust.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaBundle {
    /// In a file.
    File(PathBuf),
    /// In the policy itself, as PEM.
    Pem(String),
}

/// How a webhook is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum WebhookMode {
    /// A JSON object, answered by one.
    #[default]
    Json,
    /// The request as PEM, answered by a status alone.
    Status,
}

impl WebhookMode {
    /// The word in policy files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Status => "status",
        }
    }
}
