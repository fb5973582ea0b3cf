//! `nodeClient`: the certificate with which a node signs on.

use crate::kinds::{Checked, Found, Looking};
use crate::node::check::CheckId::*;
use crate::node::common::{AUTHENTICATED, NODE_PREFIX, NODES, node_of};
use crate::node::judge::{Judge, Step};
use crate::node::rule::{NodeClientRule, Outcome, Preset, Profile};
use crate::reason::ReasonCode;
use crate::verdict::Finding;

impl Looking<'_> {
    pub(crate) fn node_client(&self, rule: &NodeClientRule) -> Found {
        let profile = Profile {
            preset: rule.preset,
            compat: rule.compat,
            checks: &rule.checks,
            names: None,
        };
        let mut judge = Judge::new(self, profile, false);
        let ended = judge.client(rule);
        judge.finish(ended)
    }
}

impl Judge<'_> {
    fn client(&mut self, rule: &NodeClientRule) -> Step<Checked> {
        self.is_open(CLIENT_SIGNER)?;
        let by_access = rule.preset == Preset::KubeControllerManager;
        let is_self = self.asked.username == self.asked.common_name;
        if by_access || self.has(C13) && is_self {
            return self.client_by_access(rule);
        }
        let username = self.asked.username.to_owned();
        let mark = self.mark();
        for check in [G07, C06] {
            self.require(check, username == BOOTSTRAPPER, || {
                format!("{username:?} is not the node bootstrapper")
            });
        }
        self.settle(mark)?;
        self.queue()?;
        self.client_shape()?;
        self.client_sender(rule)?;
        let node = node_of(self.asked.common_name)
            .unwrap_or_default()
            .to_owned();
        self.is_new(&node)?;
        self.has_fresh_machine(&node)
    }

    fn client_by_access(&mut self, rule: &NodeClientRule) -> Step<Checked> {
        self.client_shape()?;
        let mark = self.mark();
        self.not_disabled(rule);
        self.settle(mark)?;
        let approved = self.by_access()?;
        if approved.finding != Finding::Match {
            return Ok(approved);
        }
        let node = node_of(self.asked.common_name)
            .unwrap_or_default()
            .to_owned();
        let refusal = client_refusal(self);
        self.close(&node, refusal)?;
        Ok(approved)
    }

    fn not_disabled(&mut self, rule: &NodeClientRule) {
        self.require(C05, !rule.disabled, || {
            "client certificates are disabled".to_owned()
        });
    }

    /// C01 to C04, and the form of the message. What is not a client request is none of a node either: S01.
    fn client_shape(&mut self) -> Step<()> {
        let mark = self.mark();
        self.form();
        let shape = ClientShape::of(self);
        let asked = &self.asked;
        let (organizations, usages) = (shown(&asked.organizations), shown(&asked.usages));
        let common_name = asked.common_name.to_owned();
        let before = self.mark();
        self.require(C01, shape.organization, || {
            format!("the organizations are {organizations}, not system:nodes alone")
        });
        self.require(C02, shape.no_names, || {
            "there are alternative names".to_owned()
        });
        self.require(C03, shape.usages, || {
            format!("the usages are {usages}, not those of a client")
        });
        self.require(C04, shape.common_name, || {
            format!("the common name {common_name:?} does not begin with {NODE_PREFIX}")
        });
        if self.mark() > before && node_of(self.asked.username).is_none_or(str::is_empty) {
            let username = self.asked.username.to_owned();
            self.fail(
                S01,
                format!("nor is it a serving request: {username:?} is not a node"),
            );
        }
        self.settle(mark)
    }

    fn client_sender(&mut self, rule: &NodeClientRule) -> Step<()> {
        let mark = self.mark();
        self.not_disabled(rule);
        let groups = self.asked.groups;
        let is_exact = BOOTSTRAPPER_GROUPS
            .iter()
            .all(|needed| groups.iter().any(|group| group == needed))
            && groups
                .iter()
                .all(|group| BOOTSTRAPPER_GROUPS.contains(&group.as_str()));
        self.require(C07, is_exact, || {
            let groups = shown(groups);
            format!("the groups are {groups}, not exactly those of the node bootstrapper")
        });
        let node = node_of(self.asked.common_name);
        self.require(C08, node.is_some_and(|node| !node.is_empty()), || {
            "the common name names no node".to_owned()
        });
        self.node_names([node_of(self.asked.username), node]);
        self.settle(mark)
    }

    /// C09.
    fn is_new(&mut self, node: &str) -> Step<()> {
        if !self.has(C09) {
            return Ok(());
        }
        let mark = self.mark();
        match self.node(node)? {
            Ok(None) => {}
            Ok(Some(_)) => self.fail(C09, format!("there is a Node {node} already")),
            Err(why) => {
                let text = format!("whether there is a Node {node} is not known: {why}");
                self.fail_as(C09, Outcome::Unavailable, text);
            }
        }
        self.settle(mark)
    }

    /// C10 to C12. Without a Machine nothing speaks for the request, so C10 is not made only where nothing is approved.
    fn has_fresh_machine(&mut self, node: &str) -> Step<Checked> {
        let mark = self.mark();
        if !self.has(C10) {
            return Err(self.exhausted());
        }
        let machines = match self.machines()? {
            Ok(machines) => machines,
            Err(why) => {
                self.without_machines(C10, &why);
                return Err(self.exhausted());
            }
        };
        let comparison = self.comparison();
        let counts = self.profile.preset == Preset::Hardened;
        let what = format!("has the InternalDNS address {node}");
        let found = self.one_machine(C10, &machines, &what, |machine| {
            (counts || !machine.is_of_inventory())
                && comparison.has_name(machine, &["InternalDNS"], node)
        });
        self.settle(mark)?;
        let Some(machine) = found else {
            return Err(self.exhausted());
        };
        let name = &machine.name;
        self.require(C11, machine.node.is_none(), || {
            let become_node = machine.node.as_deref().unwrap_or_default();
            format!("Machine {name} has become Node {become_node:?} already")
        });
        let age = self.looking.request.at.seconds_since(machine.created);
        self.require(C12, age > -EARLY && age < LATE, || {
            format!("the request was made {age} s after Machine {name}: more than -{EARLY} and less than {LATE} are needed")
        });
        self.settle(mark)?;
        let refusal = client_refusal(self);
        self.close(node, refusal)?;
        let reason = format!("Machine {name} is expected to become Node {node}");
        Ok(self.approved(ReasonCode::ClientMachine, reason))
    }
}

/// What makes a request one for a client certificate of a node.
pub(super) struct ClientShape {
    organization: bool,
    no_names: bool,
    usages: bool,
    common_name: bool,
}

impl ClientShape {
    pub(super) fn of(judge: &Judge<'_>) -> Self {
        let asked = &judge.asked;
        let no_names = asked.dns.is_empty() && asked.emails.is_empty() && asked.ips.is_empty();
        let usages = &asked.usages;
        // By count and member, as the product has it; csrapproving compares sets.
        let are = |known: &[&str]| usages.iter().all(|usage| known.contains(usage));
        let counted = match usages.len() {
            2 => are(&["digital signature", "client auth"]),
            3 => are(&["key encipherment", "digital signature", "client auth"]),
            _ => false,
        };
        let as_set = is_usage_set(usages, "client auth");
        let by_set = judge.profile.preset == Preset::KubeControllerManager;
        Self {
            organization: asked.organizations == [NODES],
            no_names: no_names && (!by_set || asked.uris.is_empty()),
            usages: if by_set { as_set } else { counted },
            common_name: asked.common_name.starts_with(NODE_PREFIX),
        }
    }

    pub(super) fn is_client(&self) -> bool {
        self.organization && self.no_names && self.usages && self.common_name
    }
}

/// Z01: what the signer of client certificates would say.
fn client_refusal(judge: &Judge<'_>) -> Option<String> {
    let asked = &judge.asked;
    let no_names = asked.dns.is_empty()
        && asked.emails.is_empty()
        && asked.ips.is_empty()
        && asked.uris.is_empty();
    let fault = if asked.organizations != [NODES] {
        "the subject organization is not system:nodes"
    } else if !no_names {
        "alternative names are not allowed"
    } else if !asked.common_name.starts_with(NODE_PREFIX) {
        "the common name does not begin with system:node:"
    } else if !is_usage_set(&asked.usages, "client auth") {
        "the usages are not those of a client"
    } else {
        return None;
    };
    Some(fault.to_owned())
}

/// Whether usages are digital signature and one more, with or without key encipherment.
pub(super) fn is_usage_set(usages: &[&str], purpose: &str) -> bool {
    let has = |usage: &str| usages.contains(&usage);
    let known = ["digital signature", "key encipherment", purpose];
    has("digital signature") && has(purpose) && usages.iter().all(|usage| known.contains(usage))
}

/// A few words in a sentence.
pub(super) fn shown(words: &[impl AsRef<str>]) -> String {
    let first: Vec<&str> = words.iter().take(MAX_SHOWN).map(AsRef::as_ref).collect();
    match words.len() {
        0 => "none".to_owned(),
        count if count > MAX_SHOWN => format!("{}, …", first.join(", ")),
        _ => first.join(", "),
    }
}

/// The signer of client certificates of nodes.
pub(super) const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Who asks for the first certificate of a node.
pub(super) const BOOTSTRAPPER: &str =
    "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";
const BOOTSTRAPPER_GROUPS: [&str; 3] = [
    "system:serviceaccounts:openshift-machine-config-operator",
    "system:serviceaccounts",
    AUTHENTICATED,
];
/// How much earlier than its Machine a request may be, in seconds, for clocks that differ.
const EARLY: i64 = 10;
/// How much later.
const LATE: i64 = 2 * 3600;
const MAX_SHOWN: usize = 8;
