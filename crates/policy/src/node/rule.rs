//! The parameters of the two rules, and what each preset makes of a check.

use std::collections::BTreeMap;

use crate::node::check::CheckId;
use crate::token::Network;

/// `nodeClient`: who may have the client certificate of a node.
#[derive(Clone, Debug)]
pub struct NodeClientRule {
    /// Whose decisions it makes.
    pub preset: Preset,
    /// Whether the product's known defects are kept.
    pub compat: Compat,
    /// Whether nobody is approved.
    pub disabled: bool,
    /// Checks that are not as the preset has them.
    pub checks: Checks,
}

/// `nodeServing`: who may have the serving certificate of a node.
#[derive(Clone, Debug)]
pub struct NodeServingRule {
    /// Whose decisions it makes.
    pub preset: Preset,
    /// Whether the product's known defects are kept.
    pub compat: Compat,
    /// The authorities that renewal trusts, in PEM; `None`: those that the cluster publishes.
    pub ca_bundle: Option<String>,
    /// What names and addresses must be like.
    pub names: NameOptions,
    /// Whether nothing is ever denied.
    pub skip_deny: bool,
    /// Checks that are not as the preset has them.
    pub checks: Checks,
}

/// The options about names and addresses. What is `None` was not written.
#[derive(Clone, Debug, Default)]
pub struct NameOptions {
    /// What DNS names are like.
    pub provider_regex: Option<NamePattern>,
    /// Where addresses are.
    pub provider_ip_prefixes: Option<Vec<Network>>,
    /// The longest lifetime in seconds.
    pub max_expiration_seconds: Option<u64>,
    /// How many DNS names there may be.
    pub allowed_dns_names: Option<u64>,
    /// Whether names are not resolved.
    pub bypass_dns_resolution: Option<bool>,
    /// Whether names need not begin with the node's.
    pub bypass_hostname_check: Option<bool>,
    /// Whether requests of others than nodes are left alone.
    pub ignore_non_system_node: Option<bool>,
}

impl NameOptions {
    /// Whether anything is said about which names and addresses a node may have.
    pub(super) fn are_about_names(&self) -> bool {
        self.provider_regex.is_some()
            || self.provider_ip_prefixes.is_some()
            || self.bypass_dns_resolution.is_some()
            || self.bypass_hostname_check.is_some()
            || self.ignore_non_system_node.is_some()
    }

    /// The longest lifetime that may be asked for.
    pub(super) fn max_expiration(&self) -> u64 {
        self.max_expiration_seconds.unwrap_or(MAX_EXPIRATION)
    }

    pub(super) fn allows(&self, address: std::net::IpAddr) -> bool {
        let prefixes = self.provider_ip_prefixes.as_ref();
        prefixes.is_none_or(|prefixes| prefixes.iter().any(|prefix| prefix.contains(address)))
    }

    pub(super) fn bypasses_dns(&self) -> bool {
        self.bypass_dns_resolution.unwrap_or(false)
    }

    pub(super) fn bypasses_hostname(&self) -> bool {
        self.bypass_hostname_check.unwrap_or(false)
    }
}

/// A regular expression over DNS names, which are ASCII: bytes, in time that grows with the name alone.
#[derive(Clone, Debug)]
pub struct NamePattern {
    source: String,
    anywhere: regex::bytes::Regex,
    whole: regex::bytes::Regex,
}

impl NamePattern {
    /// Reads one.
    ///
    /// # Errors
    /// In words.
    pub(super) fn parse(source: &str) -> Result<Self, String> {
        if source.is_empty() {
            return Err(
                "an empty expression matches everything: leave providerRegex out".to_owned(),
            );
        }
        let build = |pattern: &str, unicode: bool| {
            let mut builder = regex::bytes::RegexBuilder::new(pattern);
            builder.unicode(unicode).size_limit(MAX_PATTERN).build()
        };
        // Classes such as \w are ASCII, as in RE2. Only \pL and its like need more, and then match the same names.
        let either = |pattern: &str| {
            build(pattern, false).or_else(|fault| build(pattern, true).map_err(|_| fault))
        };
        let compiled = either(source).and_then(|anywhere| {
            let whole = either(&format!(r"\A(?:{source})\z"))?;
            Ok((anywhere, whole))
        });
        match compiled {
            Ok((anywhere, whole)) => Ok(Self {
                source: source.to_owned(),
                anywhere,
                whole,
            }),
            Err(fault) => {
                let fault = fault.to_string();
                let last = fault.lines().last().unwrap_or_default().trim();
                Err(format!("not a regular expression: {last}"))
            }
        }
    }

    /// The expression.
    pub fn source(&self) -> &str {
        &self.source
    }

    pub(super) fn matches(&self, name: &str, extent: Extent) -> bool {
        match extent {
            Extent::Anywhere => self.anywhere.is_match(name.as_bytes()),
            Extent::Whole => self.whole.is_match(name.as_bytes()),
        }
    }
}

/// How much of a name an expression must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Anywhere,
    Whole,
}

/// Whose decisions a rule makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// What csrapproving of kube-controller-manager approves.
    KubeControllerManager,
    /// What OpenShift's cluster-machine-approver approves.
    ClusterMachineApprover,
    /// What kubelet-csr-approver approves.
    KubeletCsrApprover,
    /// All of it, and what they leave open.
    #[default]
    Hardened,
}

impl Preset {
    /// The word in policies.
    pub fn word(self) -> &'static str {
        match self {
            Self::KubeControllerManager => "kube-controller-manager",
            Self::ClusterMachineApprover => "cluster-machine-approver",
            Self::KubeletCsrApprover => "kubelet-csr-approver",
            Self::Hardened => "hardened",
        }
    }
}

/// Whether a product's known defects are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compat {
    /// The closing checks apply.
    #[default]
    Closed,
    /// They do not, unless they are switched on.
    Exact,
}

/// Checks that a policy switches.
pub type Checks = BTreeMap<CheckId, Switch>;

/// What a policy says of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// It is made, with the preset's outcome.
    On,
    /// It is not made.
    Off,
    /// It is made, and a failure denies.
    Strict,
}

impl Switch {
    /// The word in policies.
    pub fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Strict => "strict",
        }
    }
}

/// What the failure of a check comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The request is denied.
    Deny,
    /// It waits for a person or a changed object.
    Pend,
    /// It waits for something that may still appear.
    Retry,
    /// What was asked for could not be looked up.
    Unavailable,
    /// It is not this rule's business.
    Ignore,
    /// The method is not tried.
    Skip,
}

/// The checks of one rule: which are made, and what a failure comes to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Profile<'a> {
    pub(super) preset: Preset,
    pub(super) compat: Compat,
    pub(super) checks: &'a Checks,
    pub(super) names: Option<&'a NameOptions>,
}

impl Profile<'_> {
    /// Whether a check is made.
    pub(super) fn has(&self, check: CheckId) -> bool {
        match self.checks.get(&check) {
            Some(Switch::On | Switch::Strict) => true,
            Some(Switch::Off) => false,
            None => self.has_usually(check),
        }
    }

    /// Whether a policy asks for it by name.
    pub(super) fn is_named(&self, check: CheckId) -> bool {
        matches!(self.checks.get(&check), Some(Switch::On | Switch::Strict))
    }

    /// What a failure comes to.
    pub(super) fn outcome(&self, check: CheckId) -> Outcome {
        match self.checks.get(&check) {
            Some(Switch::Strict) => Outcome::Deny,
            Some(Switch::On | Switch::Off) | None => self.usual_outcome(check),
        }
    }

    fn has_usually(&self, check: CheckId) -> bool {
        use CheckId::*;
        let closes = self.compat == Compat::Closed;
        let (is_access, is_machines, is_names, is_hardened) = match self.preset {
            Preset::KubeControllerManager => (true, false, false, false),
            Preset::ClusterMachineApprover => (false, true, false, false),
            Preset::KubeletCsrApprover => (false, false, true, false),
            Preset::Hardened => (false, true, false, true),
        };
        let options = self.names.filter(|_| is_hardened);
        let with_names = is_names || options.is_some_and(NameOptions::are_about_names);
        match check {
            G01 | G02 | G09 => true,
            G03 | G04 => !is_machines || is_hardened,
            G05 | S06 | S07 | S08 => is_hardened,
            C01 | C02 | C03 | C04 | C05 | C06 => is_access || is_machines,
            C13 => is_access,
            G06 | G07 | G08 => is_machines,
            C07 | C08 | C09 | C10 | C11 | C12 => is_machines,
            S01 | S02 | S03 | S04 | S05 => is_machines,
            R01 | R02 | R03 | R04 | R05 | R06 | R07 | R08 => is_machines,
            M01 | M02 | M03 => is_machines,
            E01 | E02 | E03 | E04 | E05 | E06 | E07 | E08 => is_machines,
            K01 | K02 | K03 | K05 | K06 | K07 | K08 | K09 | K10 | K12 => with_names,
            K04 => is_names || options.is_some_and(|names| names.allowed_dns_names.is_some()),
            K11 => is_names || options.is_some_and(|names| names.max_expiration_seconds.is_some()),
            // K11 is the same check; these have to be asked for.
            G10 | S09 | S10 | M04 | M05 => false,
            Z01 | X01 | X02 | X16 => closes,
            X03 | X04 | X05 | X06 | X07 | X08 | X09 | X10 | X11 | X12 | X13 | X14 | X15 | X17 => {
                closes && !is_access
            }
        }
    }

    fn usual_outcome(&self, check: CheckId) -> Outcome {
        use CheckId::*;
        // What will not change by itself is not tried again.
        let settled = match self.has(X17) {
            true => Outcome::Pend,
            false => Outcome::Retry,
        };
        match check {
            G01 | G02 | G03 | G04 | G05 | G06 | G07 | X01 => Outcome::Ignore,
            G08 | X13 => Outcome::Retry,
            G09 => match self.preset {
                Preset::KubeletCsrApprover => Outcome::Ignore,
                Preset::KubeControllerManager => Outcome::Retry,
                Preset::ClusterMachineApprover | Preset::Hardened => settled,
            },
            C01 | C02 | C03 | C04 => match self.preset {
                Preset::KubeControllerManager => Outcome::Ignore,
                Preset::ClusterMachineApprover | Preset::KubeletCsrApprover | Preset::Hardened => {
                    Outcome::Pend
                }
            },
            C06 | C13 => match self.preset {
                // A role may be bound at any time.
                Preset::KubeControllerManager => Outcome::Retry,
                Preset::ClusterMachineApprover | Preset::KubeletCsrApprover | Preset::Hardened => {
                    Outcome::Pend
                }
            },
            C05 if self.preset == Preset::KubeControllerManager => Outcome::Pend,
            C05 | R05 | R06 | R07 | R08 | M02 | M03 | E04 | E05 | E07 | E08 => settled,
            C10 | M01 | E01 | E06 | S09 | X11 | X07 => Outcome::Retry,
            R01 | R02 | R03 | R04 | E02 | E03 => Outcome::Skip,
            K01 => match self.names.and_then(|names| names.ignore_non_system_node) {
                Some(true) => Outcome::Ignore,
                Some(false) | None => Outcome::Deny,
            },
            K02 | K03 | K04 | K05 | K06 | K07 | K08 | K09 | K10 | K11 | K12 | X08 | X15 => {
                Outcome::Deny
            }
            C07 | C08 | C09 | C11 | C12 => Outcome::Pend,
            S01 | S02 | S03 | S04 | S05 | S06 | S07 | S08 | S10 => Outcome::Pend,
            G10 | M04 | M05 | Z01 => Outcome::Pend,
            X02 | X03 | X04 | X05 | X06 | X09 | X10 | X12 | X14 | X16 | X17 => Outcome::Pend,
        }
    }
}

/// 367 days, which is also the most that may be set.
pub(super) const MAX_EXPIRATION: u64 = 31_708_800;
/// Bounds the memory of one expression.
const MAX_PATTERN: usize = 1 << 20;
