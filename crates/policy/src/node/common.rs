//! What both rules look at: the state of the request, its form, the queue, and what is checked once something approves.

use std::sync::Arc;

use countersign_pki::Weakness;

use crate::access::{AccessAnswer, AccessQuestion};
use crate::evidence::Query;
use crate::kinds::Checked;
use crate::node::check::CheckId::{self, *};
use crate::node::compare::{Comparison, is_node_name};
use crate::node::facts::{ClusterFact, ClusterMachine, ClusterQuery};
use crate::node::judge::{Judge, Step, Stop, misplaced};
use crate::node::rule::{Outcome, Preset};
use crate::reason::ReasonCode;
use crate::verdict::Finding;

impl Judge<'_> {
    pub(super) fn comparison(&self) -> Comparison {
        Comparison {
            normal_names: self.has(X05),
            numbers: self.has(X04),
        }
    }

    /// Whether the request is this rule's business, and still open.
    pub(super) fn is_open(&mut self, signer: &str) -> Step<()> {
        let mark = self.mark();
        let asked = self.looking.request.signer.as_str();
        self.require(G01, asked == signer, || {
            format!("the signer is {asked}, and the rule is about {signer}")
        });
        let state = self.looking.evidence.request_state();
        self.require(G02, !state.approved, || {
            "the request is approved".to_owned()
        });
        for (check, holds, what) in [
            (G03, !state.denied, "the request is denied"),
            (G04, !state.issued, "the request has its certificate"),
        ] {
            self.require(check, holds, || what.to_owned());
            self.require(X01, holds, || what.to_owned());
        }
        self.require(X01, !state.failed, || "the request has failed".to_owned());
        self.require(G05, !state.deleting, || {
            "the request is being deleted".to_owned()
        });
        self.settle(mark)
    }

    /// G08 and X13: nothing is approved while far more requests wait than there are hosts.
    pub(super) fn queue(&mut self) -> Step<()> {
        if !self.has(G08) {
            return Ok(());
        }
        let queue = match self.cluster(ClusterQuery::Queue)? {
            Ok(ClusterFact::Queue(queue)) => queue,
            Ok(other) => {
                self.hold(G08, misplaced(&other));
                return Ok(());
            }
            Err(why) => {
                self.hold(G08, format!("how many requests wait is not known: {why}"));
                return Ok(());
            }
        };
        let limit = queue.limit();
        let is_shed = match self.has(X13) {
            true => queue.ahead >= limit,
            false => true,
        };
        if queue.is_too_long() && is_shed {
            let mark = self.mark();
            let (pending, ahead) = (queue.pending, queue.ahead);
            let text = format!("{pending} requests wait, and at most {limit} may");
            let text = match self.has(X13) {
                true => format!("{text}; {ahead} go before this one"),
                false => text,
            };
            self.fail_both(G08, X13, text);
            return self.settle(mark);
        }
        Ok(())
    }

    /// G10 and X16: what could be read in two ways.
    pub(super) fn form(&mut self) {
        let csr = self.looking.request.csr;
        let behind = [Weakness::TextBehind, Weakness::MoreBlocks];
        let has_text = csr.weaknesses().iter().any(|weak| behind.contains(weak));
        self.require(G10, !has_text, || {
            "something stands behind the PEM block".to_owned()
        });
        let names = csr.subject().common_names().count();
        self.require(X16, names <= 1, || {
            format!("there are {names} common names, and programs choose differently among them")
        });
        let is_single = !csr.weaknesses().contains(&Weakness::MoreBlocks);
        self.require(X16, is_single, || {
            "there is more than one PEM block".to_owned()
        });
    }

    /// X03: names of nodes in the sender's name and in the common name.
    pub(super) fn node_names(&mut self, names: [Option<&str>; 2]) {
        let bad = names.into_iter().flatten().find(|name| !is_node_name(name));
        self.require(X03, bad.is_none(), || {
            format!(
                "{:?} is not a lower-case DNS name, as names of nodes are",
                bad.unwrap_or_default()
            )
        });
    }

    /// What must hold whatever speaks for the request.
    pub(super) fn close(&mut self, node: &str, refusal: Option<String>) -> Step<()> {
        self.release()?;
        let mark = self.mark();
        let refusal = refusal.or_else(|| {
            let weakness = self.looking.request.csr.unsignable()?;
            // Two blocks are X16's business.
            (*weakness != Weakness::MoreBlocks).then(|| weakness.to_string())
        });
        let vetoes = self.has(X02) || self.profile.is_named(Z01);
        if let Some(why) = refusal.filter(|_| self.has(Z01) && vetoes) {
            self.fail_both(Z01, X02, format!("the signer would refuse it: {why}"));
        }
        self.settle(mark)?;
        if self.has(X12) {
            self.alone(node)?;
        }
        Ok(())
    }

    /// X12: within an hour, one key per node and signer.
    fn alone(&mut self, node: &str) -> Step<()> {
        let request = self.looking.request;
        let query = ClusterQuery::Requests {
            node: node.to_owned(),
            signer: request.signer.as_str().to_owned(),
        };
        let mark = self.mark();
        match self.cluster(query)? {
            Ok(ClusterFact::Requests(others)) => {
                let key = request.csr.key_fingerprint();
                let now = self.looking.now;
                let rival = others.iter().find(|other| {
                    other.name != request.key && other.key != Some(key) && other.is_open_at(now)
                });
                if let Some(rival) = rival {
                    let text = format!(
                        "request {} with another key was approved for {node} less than an hour ago and has no certificate yet",
                        rival.name
                    );
                    self.fail(X12, text);
                }
            }
            Ok(other) => self.fail_as(X12, Outcome::Unavailable, misplaced(&other)),
            Err(why) => {
                let text = format!("the other requests for {node} are not known: {why}");
                self.fail_as(X12, Outcome::Unavailable, text);
            }
        }
        self.settle(mark)
    }

    /// Whether a role lets the sender do something to certificate signing requests.
    pub(super) fn may(&mut self, subresource: &str) -> Step<Result<bool, String>> {
        let looking = self.looking;
        if let Some(stand_in) =
            looking.stand_in(ReasonCode::SubjectAccess, ReasonCode::AccessNotAllowed)
        {
            return Ok(match stand_in.finding {
                Finding::Match => Ok(true),
                Finding::Absent | Finding::Mismatch | Finding::Skipped => Ok(false),
                Finding::Unavailable => Err(stand_in.reason),
            });
        }
        let question = Arc::new(AccessQuestion {
            group: "certificates.k8s.io".to_owned(),
            resource: "certificatesigningrequests".to_owned(),
            subresource: subresource.to_owned(),
            verb: "create".to_owned(),
            ..AccessQuestion::default()
        });
        let Some(said) = looking.evidence.access(&question) else {
            return Err(Stop::Need(vec![Query::SubjectAccess(question)]));
        };
        self.sees(question.to_string());
        Ok(match &said.value {
            AccessAnswer::Allowed { .. } => Ok(true),
            AccessAnswer::NotAllowed { .. } => Ok(false),
            AccessAnswer::Unavailable { reason } => Err(reason.clone()),
        })
    }

    /// The Machine that matches. With X06 there must be one, and it must not be going; else the first counts.
    pub(super) fn one_machine<'m>(
        &mut self,
        check: CheckId,
        machines: &'m [ClusterMachine],
        what: &str,
        matches: impl Fn(&ClusterMachine) -> bool,
    ) -> Option<&'m ClusterMachine> {
        let is_exact = self.has(X06);
        let mut found = machines
            .iter()
            .filter(|machine| matches(machine) && !(is_exact && machine.deleting));
        let first = found.next();
        let second = found.next();
        match (first, second) {
            (Some(one), Some(other)) if is_exact => {
                let text = format!("Machines {} and {} both {what}", one.name, other.name);
                self.fail_as(check, Outcome::Pend, text.clone());
                self.fail_as(X06, Outcome::Pend, text);
                None
            }
            (Some(one), _) => {
                self.sees(format!("Machine {}", one.name));
                Some(one)
            }
            (None, _) => {
                self.fail_both(check, X06, format!("no Machine {what}"));
                None
            }
        }
    }

    /// The Machines could not be listed.
    pub(super) fn without_machines(&mut self, check: CheckId, why: &str) {
        let text = format!("the Machines cannot be listed: {why}");
        self.fail_as(check, Outcome::Unavailable, text.clone());
        self.fail_as(X11, Outcome::Unavailable, text);
    }

    /// What the sender may do decides, as csrapproving has it. What comes of it is a match, unless the token that the sender
    /// shows is not for this.
    pub(super) fn by_access(&mut self) -> Step<Checked> {
        let is_self = self.asked.username == self.asked.common_name;
        let username = self.asked.username.to_owned();
        let is_access = self.profile.preset == Preset::KubeControllerManager;
        let mark = self.mark();
        for (check, subresource, applies) in [
            (C13, "selfnodeclient", is_self),
            (C06, "nodeclient", is_access),
        ] {
            if !applies || !self.has(check) {
                continue;
            }
            match self.may(subresource)? {
                Ok(true) => {
                    let reason = format!("{username} has the right {subresource}");
                    let allowed = self.approved(ReasonCode::SubjectAccess, reason);
                    // A right that all bearers of tokens have must not make many certificates of one token.
                    let stand_in = self.looking.evidence.stand_in(&self.looking.rule.name);
                    return match stand_in {
                        Some(_) => Ok(allowed),
                        None => self.looking.with_token(allowed).map_err(Stop::Need),
                    };
                }
                Ok(false) => {
                    let text = format!("{username} does not have the right {subresource}");
                    self.fail_as(check, Outcome::Retry, text);
                }
                Err(why) => {
                    let text = format!("the rights of {username} are not known: {why}");
                    self.fail_as(check, Outcome::Unavailable, text);
                    return Err(self.exhausted());
                }
            }
        }
        self.settle(mark)?;
        Err(self.exhausted())
    }
}

/// The node in `system:node:NAME`.
pub(super) fn node_of(name: &str) -> Option<&str> {
    name.strip_prefix(NODE_PREFIX)
}

pub(super) const NODE_PREFIX: &str = "system:node:";
pub(super) const NODES: &str = "system:nodes";
pub(super) const AUTHENTICATED: &str = "system:authenticated";
