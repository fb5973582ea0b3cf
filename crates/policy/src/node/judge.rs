//! One rule looking at one request: what has failed so far, what is known, and how it ends.

use std::net::IpAddr;
use std::sync::Arc;

use countersign_pki::AltName;

use crate::evidence::{Looked, Query};
use crate::kinds::{Checked, Ending, Found, Looking};
use crate::node::check::CheckId;
use crate::node::facts::{
    ClusterFact, ClusterMachine, ClusterNode, ClusterQuery, NameAnswer, ServedChain,
};
use crate::node::rule::{Outcome, Profile};
use crate::reason::ReasonCode;
use crate::request::Identity;
use crate::verdict::Finding;

/// Why a rule goes no further.
pub(super) enum Stop {
    /// It needs these first.
    Need(Vec<Query>),
    /// What has failed decides.
    Failed,
}

/// What a request comes to while it is judged.
pub(super) type Step<T> = Result<T, Stop>;

/// A check that did not hold.
#[derive(Debug)]
struct Failure {
    check: CheckId,
    outcome: Outcome,
    text: String,
}

/// What the request asks for, as Go reads it.
pub(super) struct Asked<'a> {
    pub(super) username: &'a str,
    pub(super) groups: &'a [String],
    pub(super) usages: Vec<&'a str>,
    /// The last one, as Go has it.
    pub(super) common_name: &'a str,
    pub(super) organizations: Vec<&'a str>,
    pub(super) dns: Vec<&'a str>,
    pub(super) emails: Vec<&'a str>,
    pub(super) uris: Vec<&'a str>,
    /// IPv4 inside of IPv6 is IPv4 here.
    pub(super) ips: Vec<IpAddr>,
}

pub(super) struct Judge<'a> {
    pub(super) looking: &'a Looking<'a>,
    pub(super) profile: Profile<'a>,
    pub(super) asked: Asked<'a>,
    failures: Vec<Failure>,
    /// The failure that decides.
    deciding: Option<usize>,
    /// A failure in spite of which the judging went on, and which keeps it from approving.
    held: Option<usize>,
    saw: Vec<String>,
    micros: u64,
    never_deny: bool,
}

impl<'a> Judge<'a> {
    pub(super) fn new(looking: &'a Looking<'a>, profile: Profile<'a>, never_deny: bool) -> Self {
        let request = looking.request;
        let (username, groups) = match &request.requester.identity {
            Identity::User {
                username, groups, ..
            } => (username.as_str(), groups.as_slice()),
            Identity::Anonymous | Identity::Authority | Identity::Certname { .. } => ("", &[][..]),
        };
        let subject = request.csr.subject();
        let mut asked = Asked {
            username,
            groups,
            usages: request.wishes.usages.iter().map(String::as_str).collect(),
            common_name: subject.last_common_name().unwrap_or_default(),
            organizations: subject.organizations().collect(),
            dns: Vec::new(),
            emails: Vec::new(),
            uris: Vec::new(),
            ips: Vec::new(),
        };
        for name in request.csr.alt_names() {
            match name {
                AltName::Dns(name) => asked.dns.push(name),
                AltName::Email(name) => asked.emails.push(name),
                AltName::Uri(name) => asked.uris.push(name),
                AltName::Ip(address) => asked.ips.push(address.to_canonical()),
                // Signers drop these.
                AltName::Other { .. } => {}
            }
        }
        Self {
            looking,
            profile,
            asked,
            failures: Vec::new(),
            deciding: None,
            held: None,
            saw: Vec::new(),
            micros: 0,
            never_deny,
        }
    }

    /// Whether a check is made.
    pub(super) fn has(&self, check: CheckId) -> bool {
        self.profile.has(check)
    }

    /// Makes a check, if it is on.
    pub(super) fn require(
        &mut self,
        check: CheckId,
        holds: bool,
        text: impl FnOnce() -> String,
    ) -> bool {
        let fails = self.has(check) && !holds;
        if fails {
            self.fail(check, text());
        }
        !fails
    }

    /// A check has failed.
    pub(super) fn fail(&mut self, check: CheckId, text: String) {
        self.fail_as(check, self.profile.outcome(check), text);
    }

    /// A check has failed, and this comes of it unless the policy says that it denies.
    pub(super) fn fail_as(&mut self, check: CheckId, outcome: Outcome, text: String) {
        if !self.has(check) {
            return;
        }
        let outcome = match self.profile.outcome(check) {
            Outcome::Deny if self.profile.is_named(check) && outcome != Outcome::Unavailable => {
                Outcome::Deny
            }
            Outcome::Deny
            | Outcome::Pend
            | Outcome::Retry
            | Outcome::Unavailable
            | Outcome::Ignore
            | Outcome::Skip => outcome,
        };
        self.failures.push(Failure {
            check,
            outcome,
            text,
        });
    }

    /// A check has failed, and with it the one that tightens it, where that is made.
    pub(super) fn fail_both(&mut self, check: CheckId, closing: CheckId, text: String) {
        self.fail(check, text.clone());
        self.fail_as(closing, self.profile.outcome(check), text);
    }

    /// How many checks have failed so far.
    pub(super) fn mark(&self) -> usize {
        self.failures.len()
    }

    /// Ends here if a check has failed since a mark; the first of them decides, unless another denies.
    pub(super) fn settle(&mut self, since: usize) -> Step<()> {
        let mut new = self.failures.iter().enumerate().skip(since);
        let Some((first, _)) = new.next() else {
            return Ok(());
        };
        self.deciding = Some(first);
        Err(Stop::Failed)
    }

    /// Something could not be looked up: nothing is approved, but what else fails is told as well.
    pub(super) fn hold(&mut self, check: CheckId, text: String) {
        self.held = Some(self.failures.len());
        self.fail_as(check, Outcome::Unavailable, text);
    }

    /// Ends here if something could not be looked up, or a check of a method that did not approve denies.
    pub(super) fn release(&mut self) -> Step<()> {
        let denies = |failure: &Failure| failure.outcome == Outcome::Deny;
        match self.held.or_else(|| self.failures.iter().position(denies)) {
            Some(decides) => {
                self.deciding = Some(decides);
                Err(Stop::Failed)
            }
            None => Ok(()),
        }
    }

    /// No method has approved: the last one that was tried decides.
    pub(super) fn exhausted(&mut self) -> Stop {
        let is_tried = |failure: &Failure| failure.outcome != Outcome::Skip;
        self.deciding = self
            .failures
            .iter()
            .rposition(is_tried)
            .or(self.failures.len().checked_sub(1));
        Stop::Failed
    }

    /// The rule approves.
    pub(super) fn approved(&self, code: ReasonCode, reason: String) -> Checked {
        Checked::matching(code, reason)
    }

    /// Notes what was looked at.
    pub(super) fn sees(&mut self, what: String) {
        if self.saw.len() < MAX_SEEN && !self.saw.contains(&what) {
            self.saw.push(what);
        }
    }

    /// How it ended.
    pub(super) fn finish(mut self, ended: Step<Checked>) -> Found {
        let approved = match ended {
            Err(Stop::Need(queries)) => return Err(queries),
            Err(Stop::Failed) => None,
            Ok(checked) => Some(checked),
        };
        let mut checked = match approved {
            Some(checked) => {
                // A method that was not tried says nothing against one that approved.
                self.failures
                    .retain(|failure| failure.outcome != Outcome::Skip);
                checked
            }
            None => self.refused(),
        };
        for failure in &self.failures {
            let id = failure.check.as_str();
            if !checked.failed.iter().any(|known| known == id) {
                checked.failed.push(id.to_owned());
            }
        }
        checked.saw = self.saw.join(", ");
        checked.micros = checked.micros.saturating_add(self.micros);
        Ok(checked)
    }

    fn refused(&self) -> Checked {
        let denies = |failure: &&Failure| failure.outcome == Outcome::Deny;
        let chosen = self.deciding.and_then(|index| self.failures.get(index));
        let is_ignored = chosen.is_some_and(|failure| failure.outcome == Outcome::Ignore);
        let strict = |failure: &&Failure| denies(failure) && self.profile.is_named(failure.check);
        let denying = match is_ignored {
            // Not its business, unless a check that is strict says otherwise.
            true => self.failures.iter().find(strict),
            false => self.failures.iter().find(denies),
        };
        let Some(deciding) = denying.or(chosen) else {
            return Checked::absent(
                ReasonCode::None,
                "nothing speaks for the request".to_owned(),
            );
        };
        let mut text = String::new();
        for (index, failure) in self.failures.iter().enumerate() {
            let Failure {
                check, text: why, ..
            } = failure;
            let twin = self.failures.get(index.wrapping_sub(1));
            if text.len() > MAX_TEXT {
                text.push_str("; …");
                break;
            }
            // Two checks that fail by the same thing are told as one.
            match twin.filter(|twin| index > 0 && twin.text == *why) {
                Some(twin) => {
                    let lead = format!("{}: {why}", twin.check);
                    let both = format!("{}, {check}: {why}", twin.check);
                    text = match text.strip_suffix(&lead) {
                        Some(before) => format!("{before}{both}"),
                        None => format!("{text}; {check}: {why}"),
                    };
                }
                None if text.is_empty() => text = format!("{check}: {why}"),
                None => text = format!("{text}; {check}: {why}"),
            }
        }
        let code = ReasonCode::Check(deciding.check);
        match deciding.outcome {
            Outcome::Deny if !self.never_deny => Checked {
                ending: Some(Ending::Deny),
                ..Checked::mismatch(code, text)
            },
            Outcome::Deny | Outcome::Pend => Checked::mismatch(code, text),
            Outcome::Retry => Checked {
                retry: true,
                ..Checked::absent(code, text)
            },
            Outcome::Skip => Checked::absent(code, text),
            Outcome::Unavailable => Checked::unavailable(code, text),
            Outcome::Ignore => Checked::new(Finding::Skipped, code, text),
        }
    }

    /// What the cluster says. The inner error says why it does not.
    pub(super) fn cluster(&mut self, query: ClusterQuery) -> Step<Looked<ClusterFact>> {
        let Some(found) = self.looking.evidence.cluster(&query) else {
            return Err(Stop::Need(vec![Query::Cluster(query)]));
        };
        self.micros = self.micros.saturating_add(found.micros);
        Ok(found.value.clone())
    }

    /// Asks for several things at once, so that nobody waits for one after the other.
    pub(super) fn ask_together(&self, queries: impl Iterator<Item = ClusterQuery>) -> Step<()> {
        let evidence = self.looking.evidence;
        let missing = queries.filter(|query| evidence.cluster(query).is_none());
        let mut missing: Vec<Query> = missing.map(Query::Cluster).collect();
        missing.sort();
        missing.dedup();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Stop::Need(missing)),
        }
    }

    pub(super) fn machines(&mut self) -> Step<Looked<Arc<[ClusterMachine]>>> {
        Ok(match self.cluster(ClusterQuery::Machines)? {
            Ok(ClusterFact::Machines(machines)) => Ok(machines),
            Ok(other) => Err(misplaced(&other)),
            Err(why) => Err(why),
        })
    }

    pub(super) fn node(&mut self, name: &str) -> Step<Looked<Option<Arc<ClusterNode>>>> {
        Ok(match self.cluster(ClusterQuery::Node(name.to_owned()))? {
            Ok(ClusterFact::Node(node)) => Ok(node),
            Ok(other) => Err(misplaced(&other)),
            Err(why) => Err(why),
        })
    }

    pub(super) fn name(&mut self, name: &str) -> Step<NameAnswer> {
        Ok(match self.cluster(ClusterQuery::Name(name.to_owned()))? {
            Ok(ClusterFact::Name(answer)) => answer,
            Ok(other) => NameAnswer::Failure(misplaced(&other)),
            Err(why) => NameAnswer::Failure(why),
        })
    }

    pub(super) fn serving(&mut self, address: std::net::SocketAddr) -> Step<ServedChain> {
        Ok(match self.cluster(ClusterQuery::Serving(address))? {
            Ok(ClusterFact::Serving(chain)) => chain,
            Ok(other) => ServedChain::Nothing(misplaced(&other)),
            Err(why) => ServedChain::Nothing(why),
        })
    }
}

/// What is said of an answer to another question: whoever answers is at fault, and nothing is approved.
pub(super) fn misplaced(fact: &ClusterFact) -> String {
    let kind = match fact {
        ClusterFact::Machines(_) => "Machines",
        ClusterFact::Node(_) => "a Node",
        ClusterFact::Queue(_) => "a queue",
        ClusterFact::Requests(_) => "requests",
        ClusterFact::Bundle(_) => "a bundle",
        ClusterFact::Network(_) => "a network",
        ClusterFact::Egress(_) => "egress addresses",
        ClusterFact::Name(_) => "a name",
        ClusterFact::Serving(_) => "a served certificate",
    };
    format!("{kind} came instead of what was asked for")
}

/// How much is noted of what was looked at.
const MAX_SEEN: usize = 16;
/// Octets of an explanation's reason, about.
const MAX_TEXT: usize = 4096;
