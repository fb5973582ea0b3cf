//! The brake: whose turn it is while far more requests wait than there are hosts.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use countersign_pki::UnixTime;

use crate::node::client::{BOOTSTRAPPER, CLIENT_SIGNER};
use crate::node::common::NODES;
use crate::node::facts::{Queue, RequestState};
use crate::node::serving::SERVING_SIGNER;

/// A CertificateSigningRequest as the queue sees it.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its signer.
    pub signer: &'a str,
    /// Its sender.
    pub username: &'a str,
    /// The sender's groups.
    pub groups: &'a [String],
    /// The node whose certificate it asks for.
    pub node: Option<&'a str>,
    /// When it was made.
    pub created: UnixTime,
    /// Its state.
    pub state: RequestState,
    /// When it was approved, and the message of that, where it matters whose approval it is.
    pub approved: Option<(UnixTime, &'a str)>,
}

impl Waiting<'_> {
    /// Whether it counts among those that wait: young, of a node, and not approved, or a moment ago by somebody else.
    pub fn counts(&self, now: UnixTime) -> bool {
        let age = now.seconds_since(self.created);
        let is_open = match self.approved {
            _ if !self.state.approved => true,
            Some((at, by)) => {
                let age = now.seconds_since(at);
                age > -EARLY && age < APPROVED_BY_OTHERS && by != PRODUCTS_APPROVAL
            }
            None => false,
        };
        age > -EARLY && age < YOUNG && self.is_of_node() && is_open
    }

    /// Whether it counts as long as it is young: of a node, and not approved.
    pub fn is_open(&self) -> bool {
        !self.state.approved && self.is_of_node()
    }

    fn is_of_node(&self) -> bool {
        let has = |group: &str| self.groups.iter().any(|one| one == group);
        match self.signer {
            SERVING_SIGNER => has(NODES),
            CLIENT_SIGNER => self.username == BOOTSTRAPPER || has(BOOTSTRAPPERS),
            _ => false,
        }
    }

    fn is_undecided(&self) -> bool {
        let RequestState {
            approved,
            denied,
            failed,
            issued,
            deleting,
        } = self.state;
        !(approved || denied || failed || issued || deleting)
    }
}

/// Where a request stands among those that wait.
///
/// While there are too many, every sender has its turn: first the newest request of each sender for each node, because
/// of those that are sent again and again the last one is the one that counts; then, among these, each sender's in turn.
pub fn queue_of<'a>(
    requests: impl Iterator<Item = Waiting<'a>>,
    own: &str,
    machines: usize,
    nodes: usize,
    now: UnixTime,
) -> Queue {
    let counted: Vec<Waiting<'a>> = requests.filter(|one| one.counts(now)).collect();
    let mut queue = Queue {
        pending: counted.len(),
        machines,
        nodes,
        ahead: 0,
    };
    // Nobody asks for the order of a queue that is not too long.
    if queue.is_too_long() {
        let order = turns_of(counted.into_iter());
        queue.ahead = order.get(own).copied().unwrap_or(order.len());
    }
    queue
}

/// Between which times a request that counts was made: after the first and before the second.
pub fn queue_window(now: UnixTime) -> (UnixTime, UnixTime) {
    let moved = |seconds| UnixTime(now.0.saturating_add(seconds));
    (moved(-YOUNG), moved(EARLY))
}

/// How many go before each of the requests that wait and count, by name.
pub fn turns_of<'a>(counted: impl Iterator<Item = Waiting<'a>>) -> BTreeMap<&'a str, usize> {
    let mut open: Vec<Waiting<'a>> = counted.filter(Waiting::is_undecided).collect();
    open.sort_by_key(|one| (Reverse(one.created), one.name));
    let mut of_node: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut of_sender: BTreeMap<(&str, usize), usize> = BTreeMap::new();
    let mut turns: Vec<(usize, usize, usize, &str)> = Vec::new();
    for (age, one) in open.iter().enumerate() {
        // What cannot be read may be for any node.
        let node = one.node.map(|node| of_node.entry((one.username, node)));
        let repeated = node.map_or(0, |place| next(place.or_default()));
        let turn = next(of_sender.entry((one.username, repeated)).or_default());
        turns.push((repeated, turn, age, one.name));
    }
    turns.sort_unstable();
    let names = turns.into_iter().map(|(.., name)| name);
    names.zip(0..).collect()
}

/// Counts from zero.
fn next(counter: &mut usize) -> usize {
    let current = *counter;
    *counter = current.saturating_add(1);
    current
}

/// Whoever holds a join token.
const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// What cluster-machine-approver writes: those are its own approvals.
const PRODUCTS_APPROVAL: &str =
    "This CSR was approved by the Node CSR Approver (cluster-machine-approver)";
/// Older requests do not count, in seconds.
const YOUNG: i64 = 3600;
/// Clocks differ by so much.
const EARLY: i64 = 10;
/// For so long an approval by others counts as a request that waits.
const APPROVED_BY_OTHERS: i64 = 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::objects::NodeRequest;
    use crate::node::objects::tests::{NOW, request};

    fn approved(age: i64, message: &str) -> NodeRequest {
        let mut one = request("a", BOOTSTRAPPER, 60);
        one.state.approved = true;
        one.approved_at = Some(UnixTime(NOW.0 - age));
        one.approval = message.to_owned();
        one
    }

    #[test]
    fn what_counts_as_waiting_is_young_of_a_node_and_not_approved() {
        let plain = request("a", BOOTSTRAPPER, 60);
        let with = |change: &dyn Fn(&mut NodeRequest)| {
            let mut one = plain.clone();
            change(&mut one);
            one
        };
        for (case, one, counts) in [
            ("of the bootstrapper", plain.clone(), true),
            ("of a node", request("a", "system:node:a", 60), true),
            (
                "of a join token",
                with(&|one| {
                    one.username = "system:bootstrap:abcdef".to_owned();
                    one.groups = vec![BOOTSTRAPPERS.to_owned()];
                }),
                true,
            ),
            (
                "a client request of a node",
                with(&|one| one.username = "system:node:a".to_owned()),
                false,
            ),
            (
                "another signer",
                with(&|one| one.signer = "example.com/a".to_owned()),
                false,
            ),
            (
                "without the group",
                NodeRequest {
                    groups: Vec::new(),
                    ..request("a", "system:node:a", 60)
                },
                false,
            ),
            ("an hour old", request("a", BOOTSTRAPPER, 3600), false),
            ("almost an hour old", request("a", BOOTSTRAPPER, 3599), true),
            (
                "of a clock that is early",
                request("a", BOOTSTRAPPER, -9),
                true,
            ),
            (
                "of a clock that is too early",
                request("a", BOOTSTRAPPER, -10),
                false,
            ),
            ("denied", with(&|one| one.state.denied = true), true),
            ("issued", with(&|one| one.state.issued = true), true),
            ("approved by others just now", approved(29, ""), true),
            ("approved by others a while ago", approved(30, ""), false),
            ("approved by others in the future", approved(-9, ""), true),
            (
                "approved by the product",
                approved(1, PRODUCTS_APPROVAL),
                false,
            ),
        ] {
            assert_eq!(one.waiting().counts(NOW), counts, "{case}");
            let queue = queue_of([one.waiting()].into_iter(), "other", 3, 5, NOW);
            assert_eq!(
                (queue.pending, queue.limit()),
                (usize::from(counts), 105),
                "{case}"
            );
        }
    }

    #[test]
    fn every_sender_has_its_turn_and_its_newest_request_goes_first() {
        let mut all: Vec<NodeRequest> = (0..5)
            .map(|i| request(&format!("flood-{i}"), BOOTSTRAPPER, 100 + i))
            .collect();
        all.push(request("a-old", "system:node:a", 300));
        all.push(request("a-new", "system:node:a", 200));
        let mut denied = request("denied", "system:node:b", 10);
        denied.state.denied = true;
        all.push(denied);
        // What is sent again and again for one node goes last.
        for age in 0..3 {
            let mut again = request(&format!("again-{age}"), BOOTSTRAPPER, 500 + age);
            again.node = Some("n".to_owned());
            all.push(again);
        }
        let waiting = || all.iter().map(NodeRequest::waiting);
        assert_eq!(queue_of(waiting(), "a-new", 0, 0, NOW).pending, 11);
        for (own, before) in [
            ("flood-0", 0),
            ("a-new", 1),
            ("flood-1", 2),
            ("a-old", 3),
            ("flood-4", 6),
            ("again-0", 7),
            ("again-1", 8),
            ("again-2", 9),
            ("unknown", 10),
        ] {
            let order = turns_of(waiting());
            let ahead = order.get(own).copied().unwrap_or(order.len());
            assert_eq!(ahead, before, "{own}");
        }
    }

    #[test]
    fn a_queue_that_is_not_too_long_has_no_order() {
        let all: Vec<NodeRequest> = (0..101)
            .map(|age| request(&format!("r{age}"), "system:node:a", age))
            .collect();
        let queue = |machines, nodes| {
            let waiting = all.iter().map(NodeRequest::waiting);
            let queue = queue_of(waiting, "r100", machines, nodes, NOW);
            (queue.is_too_long(), queue.ahead)
        };
        assert_eq!(queue(0, 0), (true, 100));
        assert_eq!((queue(1, 0), queue(0, 1)), ((false, 0), (false, 0)));
    }
}
