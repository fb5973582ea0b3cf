//! Comparing names and addresses: as Go does, and as it should be done.

use std::net::IpAddr;

use regex::RegexBuilder;

use crate::node::facts::{ClusterMachine, NodeAddress};

/// How names and addresses are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Without regard to ASCII case and one final dot on both sides; else with Unicode's folding, and the dot of a Machine
    /// alone is taken off.
    pub(super) normal_names: bool,
    /// As numbers; else as text.
    pub(super) numbers: bool,
}

impl Comparison {
    /// Whether a name that is asked for is this address of a Machine.
    pub(super) fn is_name(self, asked: &str, known: &str) -> bool {
        let known = without_dot(known);
        match self.normal_names {
            true => without_dot(asked).eq_ignore_ascii_case(known),
            false => equal_folded(asked, known),
        }
    }

    /// Whether an address that is asked for is this address of a Machine.
    pub(super) fn is_address(self, asked: IpAddr, known: &str) -> bool {
        match self.numbers {
            true => known
                .parse::<IpAddr>()
                .is_ok_and(|known| known.to_canonical() == asked),
            false => asked.to_string() == known,
        }
    }

    /// Whether a Machine has a name among its addresses of these kinds.
    pub(super) fn has_name(self, machine: &ClusterMachine, kinds: &[&str], asked: &str) -> bool {
        of_kinds(&machine.addresses, kinds).any(|known| self.is_name(asked, known))
    }

    /// Whether a Machine has an address among its numbers.
    pub(super) fn has_address(self, machine: &ClusterMachine, asked: IpAddr) -> bool {
        of_kinds(&machine.addresses, &IP_KINDS).any(|known| self.is_address(asked, known))
    }
}

/// The addresses of some kinds, in their order.
pub(super) fn of_kinds<'a>(
    addresses: &'a [NodeAddress],
    kinds: &'a [&str],
) -> impl Iterator<Item = &'a str> {
    let all = addresses.iter();
    all.filter(|address| kinds.contains(&address.kind.as_str()))
        .map(|address| address.address.as_str())
}

/// Whether a DNS name is bound to a node: the node's name, or a name below it.
pub(super) fn is_bound(name: &str, node: &str) -> bool {
    let name = without_dot(name);
    match name.strip_prefix(node) {
        Some(rest) => !node.is_empty() && (rest.is_empty() || rest.starts_with('.')),
        None => false,
    }
}

/// A lower-case DNS-1123 subdomain, which is what a Node may be called.
pub(super) fn is_node_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let ends = [part.bytes().next(), part.bytes().last()];
        ends.iter().all(|end| end.is_some_and(legal)) && part.bytes().all(|b| legal(b) || b == b'-')
    };
    name.len() <= MAX_NODE_NAME && name.split('.').all(is_part)
}

/// Go's strings.EqualFold: Unicode's simple folding, by which the Kelvin sign is a k.
fn equal_folded(one: &str, other: &str) -> bool {
    if one.is_ascii() && other.is_ascii() {
        return one.eq_ignore_ascii_case(other);
    }
    if one.chars().count() != other.chars().count() || other.len() > MAX_FOLDED {
        return false;
    }
    let pattern = format!(r"\A{}\z", regex::escape(other));
    let folded = RegexBuilder::new(&pattern).case_insensitive(true).build();
    folded.is_ok_and(|folded| folded.is_match(one))
}

fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Kinds of addresses that are names.
pub(super) const NAME_KINDS: [&str; 3] = ["InternalDNS", "ExternalDNS", "Hostname"];
/// Kinds of addresses that are numbers.
pub(super) const IP_KINDS: [&str; 2] = ["InternalIP", "ExternalIP"];
const MAX_NODE_NAME: usize = 253;
/// Longer names are no names of hosts.
const MAX_FOLDED: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const GO: Comparison = Comparison {
        normal_names: false,
        numbers: false,
    };
    const OURS: Comparison = Comparison {
        normal_names: true,
        numbers: true,
    };

    #[test]
    fn names_are_compared_as_go_does_or_as_dns_does() {
        for (asked, known, go, ours) in [
            ("worker-b", "worker-b", true, true),
            ("worker-b", "WORKER-B.", true, true),
            ("worker-b", "worker-b..", false, false),
            ("worker-b.", "worker-b", false, true),
            ("worker-b.", "worker-b.", false, true),
            ("wor\u{212a}er", "worker", true, false),
            ("worker", "wor\u{212a}er", true, false),
            ("stra\u{df}e", "strasse", false, false),
            ("\u{3c3}", "\u{3c2}", true, false),
            ("worker-a", "worker-b", false, false),
            ("", "", true, true),
        ] {
            assert_eq!(GO.is_name(asked, known), go, "{asked:?} {known:?}");
            assert_eq!(OURS.is_name(asked, known), ours, "{asked:?} {known:?}");
        }
    }

    #[test]
    fn addresses_are_text_to_go_and_numbers_to_us() {
        for (asked, known, go, ours) in [
            ("10.20.0.11", "10.20.0.11", true, true),
            ("10.20.0.11", "::ffff:10.20.0.11", false, true),
            ("fd20::1", "fd20::1", true, true),
            ("fd20::1", "FD20::1", false, true),
            ("fd20::1", "fd20:0::1", false, true),
            ("fd20::1", "worker-a", false, false),
            ("10.20.0.11", "10.20.0.011", false, false),
        ] {
            let asked: IpAddr = asked.parse().unwrap();
            assert_eq!(GO.is_address(asked, known), go, "{asked} {known}");
            assert_eq!(OURS.is_address(asked, known), ours, "{asked} {known}");
        }
    }

    #[test]
    fn a_name_is_bound_at_a_dot() {
        for (name, node, bound) in [
            ("worker-a", "worker-a", true),
            ("worker-a.", "worker-a", true),
            ("worker-a.lab.example", "worker-a", true),
            ("worker-ab.lab.example", "worker-a", false),
            ("auth.company.ch", "a", false),
            ("a.company.ch", "a", true),
            ("x.worker-a", "worker-a", false),
            ("anything", "", false),
            ("", "", false),
            ("Worker-A.lab.example", "worker-a", false),
        ] {
            assert_eq!(is_bound(name, node), bound, "{name:?} {node:?}");
        }
    }

    #[test]
    fn nodes_have_lower_case_names() {
        for (name, legal) in [
            ("worker-a", true),
            ("10.20.0.11", true),
            ("a.b-c.d1", true),
            ("Worker-a", false),
            ("worker_a", false),
            ("-a", false),
            ("a-", false),
            ("a..b", false),
            ("a.", false),
            ("", false),
            ("wor\u{212a}er", false),
        ] {
            assert_eq!(is_node_name(name), legal, "{name:?}");
        }
        assert!(is_node_name(&["a"; 127].join(".")));
        assert!(!is_node_name(&["a"; 128].join(".")));
    }
}
