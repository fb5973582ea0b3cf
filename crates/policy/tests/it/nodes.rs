//! What holds for rules about nodes whatever the request and whatever the evidence.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use countersign_pki::CheckedCsr;
use countersign_policy::{
    AccessAnswer, CheckId, ClusterFact, ClusterMachine, ClusterNode, ClusterQuery, Evidence,
    Identity, Looked, NameAnswer, NodeAddress, Outcome, Policy, PolicyFile, PolicySet, Query,
    Queue, Request, Requester, ServedChain, TokenFacts, Verdict, Wishes, decide,
};
use countersign_testkit::csr::CsrBuilder;
use countersign_testkit::keys;
use proptest::prelude::*;

use crate::{NOW, signer};

const SERVING: &str = "kubernetes.io/kubelet-serving";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const BOOTSTRAPPER: &str =
    "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";

/// A request of a node, right or a little wrong.
#[derive(Clone, Debug)]
struct Asked {
    serving: bool,
    node: String,
    common_name: String,
    dns: Vec<String>,
    ips: Vec<IpAddr>,
}

/// What there is to be found.
#[derive(Clone, Debug, Default)]
struct World {
    machines: Vec<ClusterMachine>,
    nodes: Vec<ClusterNode>,
    dns: BTreeMap<String, NameAnswer>,
    /// What cannot be looked up.
    away: bool,
}

impl World {
    fn answer(&self, query: &ClusterQuery) -> Looked<ClusterFact> {
        if self.away {
            return Err("it is away".to_owned());
        }
        Ok(match query {
            ClusterQuery::Machines => ClusterFact::Machines(self.machines.clone().into()),
            ClusterQuery::Node(name) => {
                let node = self.nodes.iter().find(|node| node.name == *name);
                ClusterFact::Node(node.cloned().map(Arc::new))
            }
            ClusterQuery::Queue => ClusterFact::Queue(Queue {
                pending: 1,
                machines: self.machines.len(),
                nodes: self.nodes.len(),
                ahead: 0,
            }),
            ClusterQuery::Requests { .. } => ClusterFact::Requests([].into()),
            ClusterQuery::Bundle => ClusterFact::Bundle(None),
            ClusterQuery::Network => ClusterFact::Network(None),
            ClusterQuery::Egress(_) => ClusterFact::Egress(None),
            ClusterQuery::Name(name) => {
                ClusterFact::Name(self.dns.get(name).cloned().unwrap_or(NameAnswer::Nothing))
            }
            ClusterQuery::Serving(_) => {
                ClusterFact::Serving(ServedChain::Nothing("refused".to_owned()))
            }
        })
    }
}

fn policy(client: &str, serving: &str) -> Policy {
    let text = format!(
        "apiVersion: countersign.dev/v1alpha1\nkind: ApprovalPolicy\nmetadata: {{name: nodes}}\n\
         spec:\n  signers: [{SERVING}, {CLIENT}]\n  rules:\n    - name: client\n      \
         approve: {{nodeClient: {{{client}}}}}\n    - name: serving\n      \
         approve: {{nodeServing: {{{serving}}}}}\n"
    );
    let set = PolicySet::read(&[PolicyFile::new("nodes.yaml".into(), text)]).unwrap();
    Policy {
        rules: set.into_rules(),
        ..Policy::default()
    }
}

/// Decides; also that nothing is asked twice.
fn judge(policy: &Policy, asked: &Asked, world: &World) -> Verdict {
    let names = asked.dns.iter().fold(
        CsrBuilder::new(&format!("system:node:{}", asked.common_name)).organization("system:nodes"),
        |build, name| build.dns(name),
    );
    let build = asked.ips.iter().fold(names, |build, ip| build.ip(*ip));
    let csr = CheckedCsr::judged(&build.sign(keys::p256_a())).unwrap();
    let (username, groups, purpose) = match asked.serving {
        true => (
            format!("system:node:{}", asked.node),
            vec!["system:nodes", "system:authenticated"],
            "server auth",
        ),
        false => (
            BOOTSTRAPPER.to_owned(),
            vec![
                "system:serviceaccounts:openshift-machine-config-operator",
                "system:serviceaccounts",
                "system:authenticated",
            ],
            "client auth",
        ),
    };
    let requester = Requester {
        identity: Identity::User {
            username,
            groups: groups.into_iter().map(str::to_owned).collect(),
            uid: String::new(),
            extra: BTreeMap::new(),
        },
        source: None,
    };
    let usages = ["digital signature", purpose];
    let request = Request {
        csr: &csr,
        key: "csr-1",
        name: csr.subject().last_common_name().unwrap_or_default(),
        door: "cluster",
        signer: &signer(if asked.serving { SERVING } else { CLIENT }),
        requester: &requester,
        wishes: &Wishes {
            usages: usages.map(str::to_owned).to_vec(),
            expiration_seconds: None,
        },
        at: NOW,
        renewal: false,
        pod: None,
    };
    let mut evidence = Evidence::none();
    let mut answered: Vec<Query> = Vec::new();
    for _ in 0..50 {
        let queries = match decide(policy, &request, &evidence, NOW) {
            Outcome::Done(verdict) => return verdict,
            Outcome::Need(queries) => queries,
        };
        for query in queries {
            assert!(!answered.contains(&query), "{query:?} was answered already");
            answered.push(query.clone());
            evidence = match query {
                Query::Person => evidence.with_person(None),
                Query::Cluster(query) => {
                    let fact = world.answer(&query);
                    evidence.with_cluster(query, fact, 1)
                }
                Query::SubjectAccess(question) => {
                    let reason = String::new();
                    evidence.with_access(question, AccessAnswer::NotAllowed { reason }, 1)
                }
                other => panic!("{other:?}"),
            };
        }
    }
    panic!("it does not come to an end");
}

fn is_approved(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Approve(_))
}

fn node_names() -> impl Strategy<Value = String> + Clone {
    prop::sample::select(vec!["a", "ab", "b", "A", "a.b", ""]).prop_map(str::to_owned)
}

fn dns_names() -> impl Strategy<Value = String> + Clone {
    let names = vec!["a", "a.lab", "ab.lab", "b.lab", "a.lab.", "A.lab", ""];
    prop::sample::select(names).prop_map(str::to_owned)
}

fn addresses() -> impl Strategy<Value = IpAddr> + Clone {
    let all = ["10.0.0.1", "10.0.0.2", "fd20::1"].map(|ip| ip.parse().unwrap());
    prop::sample::select(all.to_vec())
}

fn asked() -> impl Strategy<Value = Asked> {
    let names = prop::collection::vec(dns_names(), 0..3);
    let ips = prop::collection::vec(addresses(), 0..3);
    (
        any::<bool>(),
        node_names(),
        prop::option::weighted(0.2, node_names()),
        names,
        ips,
    )
        .prop_map(|(serving, node, other, dns, ips)| Asked {
            serving,
            common_name: other.unwrap_or_else(|| node.clone()),
            node,
            dns: if serving { dns } else { Vec::new() },
            ips: if serving { ips } else { Vec::new() },
        })
}

fn known_addresses() -> impl Strategy<Value = Vec<NodeAddress>> {
    let kinds = ["InternalDNS", "Hostname", "ExternalDNS", "Other"];
    let name = (prop::sample::select(kinds.to_vec()), dns_names());
    let name = name.prop_map(|(kind, address)| NodeAddress {
        kind: kind.to_owned(),
        address,
    });
    let number = (
        prop::sample::select(vec!["InternalIP", "ExternalIP"]),
        addresses(),
    );
    let number = number.prop_map(|(kind, address)| NodeAddress {
        kind: kind.to_owned(),
        address: address.to_string(),
    });
    prop::collection::vec(prop_oneof![name, number], 0..6)
}

fn machines() -> impl Strategy<Value = Vec<ClusterMachine>> {
    let sources = vec!["machine.openshift.io/v1beta1", "countersign.dev/v1alpha1"];
    let machine = (
        prop::sample::select(sources),
        node_names(),
        prop::option::weighted(0.7, node_names()),
        prop::bool::weighted(0.2),
        known_addresses(),
        0_u64..9000,
    );
    let machine =
        machine.prop_map(
            |(source, name, node, deleting, addresses, age)| ClusterMachine {
                source: source.to_owned(),
                name,
                created: NOW.minus_seconds(age),
                deleting,
                node,
                addresses,
            },
        );
    prop::collection::vec(machine, 0..3)
}

fn world() -> impl Strategy<Value = World> {
    let nodes = (node_names(), known_addresses()).prop_map(|(name, addresses)| ClusterNode {
        name,
        addresses,
        port: 10250,
    });
    let answer = prop_oneof![
        3 => prop::collection::vec(addresses(), 1..3).prop_map(NameAnswer::Addresses),
        1 => Just(NameAnswer::Nothing),
        1 => Just(NameAnswer::Timeout),
    ];
    let dns = prop::collection::btree_map(dns_names(), answer, 0..5);
    (machines(), prop::collection::vec(nodes, 0..3), dns).prop_map(|(machines, nodes, dns)| World {
        machines,
        nodes,
        dns,
        away: false,
    })
}

fn switches() -> impl Strategy<Value = String> {
    let check = prop::sample::select(CheckId::ALL.to_vec());
    let word = prop::sample::select(vec!["on", "off", "strict"]);
    let all = prop::collection::btree_map(check, word, 0..12);
    all.prop_map(|all| {
        let all: Vec<String> = all
            .iter()
            .map(|(check, word)| format!("{check}: \"{word}\""))
            .collect();
        format!("checks: {{{}}}", all.join(", "))
    })
}

const NAMES: &str = "providerRegex: '.*', allowedDnsNames: 9";

/// Whether something that is not the node's own word speaks for the request: by another way than the rules take.
fn is_backed(asked: &Asked, world: &World) -> bool {
    let live = world.machines.iter().filter(|machine| !machine.deleting);
    let is_own = |machine: &&ClusterMachine| machine.source.starts_with("countersign.dev");
    let of_node = |machine: &&ClusterMachine| match asked.serving {
        true if is_own(machine) => machine.name == asked.node,
        true => machine.node.as_deref() == Some(&asked.node),
        false => machine.node.is_none(),
    };
    let plain = |name: &str| name.trim_end_matches('.').to_lowercase();
    let has_all = |machine: &ClusterMachine| {
        let texts: Vec<String> = machine
            .addresses
            .iter()
            .map(|a| plain(&a.address))
            .collect();
        let dns = asked.dns.iter().filter(|name| !name.is_empty()).cloned();
        let ips = asked.ips.iter().map(ToString::to_string);
        let mut names = match asked.serving {
            true => dns.chain(ips).collect::<Vec<_>>(),
            false => vec![asked.common_name.clone()],
        }
        .into_iter();
        names.all(|name| texts.contains(&plain(&name)))
    };
    let mut own = asked.dns.iter().filter(|name| {
        plain(name) == asked.node || plain(name).starts_with(&format!("{}.", asked.node))
    });
    let resolves = |name: &String| matches!(world.dns.get(name), Some(NameAnswer::Addresses(_)));
    live.filter(of_node).any(has_all) || own.any(resolves)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Whatever is switched on or off: who has nothing that speaks for a request does not approve it.
    #[test]
    fn no_evidence_never_approves(asked in asked(), client in switches(), serving in switches(), away in any::<bool>()) {
        let world = World { away, ..World::default() };
        for preset in ["hardened", "cluster-machine-approver"] {
            let client = format!("preset: {preset}, {client}");
            for names in ["skipDenyStep: false", NAMES] {
                let serving = format!("preset: {preset}, {names}, {serving}");
                let verdict = judge(&policy(&client, &serving), &asked, &world);
                prop_assert!(!is_approved(&verdict), "{preset}: {verdict:?}");
            }
        }
        let access = policy("preset: kube-controller-manager", "");
        prop_assert!(!is_approved(&judge(&access, &asked, &world)));
    }

    #[test]
    fn hardened_approves_only_what_others_than_the_node_speak_for(asked in asked(), world in world()) {
        for names in ["skipDenyStep: false", NAMES] {
            let verdict = judge(&policy("", names), &asked, &world);
            if is_approved(&verdict) {
                prop_assert!(is_backed(&asked, &world), "{verdict:?}");
                prop_assert_eq!(&asked.common_name, if asked.serving { &asked.node } else { &asked.common_name });
            }
        }
    }

    /// A stricter rule approves less.
    #[test]
    fn closing_checks_and_strict_ones_approve_nothing_more(asked in asked(), world in world(), check in prop::sample::select(CheckId::ALL.to_vec())) {
        for (preset, names) in [
            ("cluster-machine-approver", ""),
            ("kubelet-csr-approver", NAMES),
        ] {
            let rule = |more: &str| {
                let client = match preset {
                    "kubelet-csr-approver" => "preset: hardened".to_owned(),
                    preset => format!("preset: {preset}{more}"),
                };
                let serving = format!("preset: {preset}, skipDenyStep: false, {names}{more}");
                policy(&client, &serving.replace(", ,", ","))
            };
            let approved = |policy: &Policy| is_approved(&judge(policy, &asked, &world));
            let strict = format!(", checks: {{{check}: strict}}");
            let loosens = [CheckId::X04, CheckId::X05, CheckId::X06, CheckId::X13].contains(&check);
            if approved(&rule(&strict)) && !loosens {
                prop_assert!(approved(&rule("")), "{check} strict approves more under {preset}");
            }
        }
    }
}

/// At a door where tokens sign on, a right that all bearers have gives each what its token is for, and uses it up.
#[test]
fn a_right_of_a_bearer_asks_for_the_token() {
    let policy = policy("preset: kube-controller-manager", "");
    let der = CsrBuilder::new("system:node:a").organization("system:nodes");
    let csr = CheckedCsr::judged(&der.sign(keys::p256_a())).unwrap();
    let requester = Requester {
        identity: Identity::User {
            username: "system:bootstrap:abc".to_owned(),
            groups: Vec::new(),
            uid: String::new(),
            extra: BTreeMap::new(),
        },
        source: None,
    };
    let usages = ["digital signature", "client auth"].map(str::to_owned);
    let request = Request {
        csr: &csr,
        key: "csr-1",
        name: "system:node:a",
        door: "test",
        signer: &signer(CLIENT),
        requester: &requester,
        wishes: &Wishes {
            usages: usages.to_vec(),
            expiration_seconds: None,
        },
        at: NOW,
        renewal: false,
        pod: None,
    };
    let Outcome::Need(queries) = decide(&policy, &request, &Evidence::none(), NOW) else {
        panic!("it asked for nothing");
    };
    let [Query::SubjectAccess(question)] = queries.as_slice() else {
        panic!("{queries:?}");
    };
    assert_eq!(
        question.to_string(),
        "create certificatesigningrequests/nodeclient of certificates.k8s.io"
    );
    let reason = String::new();
    let allowed =
        Evidence::none().with_access(Arc::clone(question), AccessAnswer::Allowed { reason }, 1);
    let asked = decide(&policy, &request, &allowed, NOW);
    assert!(matches!(&asked, Outcome::Need(queries) if *queries == [Query::Token]));
    for (token, approves) in [
        (TokenFacts::Missing, true),
        (
            TokenFacts::Unknown {
                id: "abc".to_owned(),
            },
            false,
        ),
    ] {
        let evidence = allowed.clone().with_person(None).with_token(Ok(token), 1);
        match decide(&policy, &request, &evidence, NOW) {
            Outcome::Done(verdict) => assert_eq!(is_approved(&verdict), approves, "{verdict:?}"),
            Outcome::Need(queries) => panic!("{queries:?}"),
        }
    }
}

#[test]
fn the_manual_has_every_check_with_its_sentence() {
    let page = include_str!("../../../../docs/policies.md");
    for check in CheckId::ALL {
        let row = format!("| `{check}` | {} |", check.sentence());
        assert!(page.contains(&row), "docs/policies.md lacks: {row}");
    }
}
