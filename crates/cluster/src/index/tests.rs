use countersign_policy::NodeAddress;
use serde_json::json;

use super::*;
use crate::objects::tests::{merge, object};

const SOURCE: &str = "machine.openshift.io/v1beta1";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

/// An index that knows one source of Machines, with nothing in it.
fn index() -> Index {
    let mut index = Index::new(&["machine.openshift.io".to_owned()]);
    let (watch, _) = index.discovered("machine.openshift.io", Ok(Some("v1beta1".to_owned())));
    assert_eq!(watch, Some(Watched::Machines(SOURCE.to_owned())));
    index.apply(&Watched::Machines(SOURCE.to_owned()), Change::All(vec![]));
    index.apply(&Watched::Nodes, Change::All(vec![]));
    index.apply(&Watched::Requests, Change::All(vec![]));
    index
}

fn add_request(index: &mut Index, name: &str, node: &str) -> Woken {
    let object = object(name, KUBELET_SERVING, &format!("system:node:{node}"));
    index.apply(&Watched::Requests, Change::Set(object))
}

fn machine(name: &str, node: Option<&str>, dns: &str) -> Value {
    let mut machine = json!({
        "metadata": {"name": name, "namespace": "m"},
        "status": {"addresses": [{"type": "InternalDNS", "address": dns}]},
    });
    if let Some(node) = node {
        merge(&mut machine, json!({"status": {"nodeRef": {"name": node}}}));
    }
    machine
}

fn all_watches() -> BTreeSet<Watched> {
    BTreeSet::from([
        Watched::Requests,
        Watched::Nodes,
        Watched::Bundle,
        Watched::Switch,
    ])
}

fn ask(index: &mut Index, query: &ClusterQuery) -> Answer {
    let request = index.request("r").unwrap();
    index.answer(query, &request, &all_watches(), request.created)
}

#[test]
fn a_request_is_woken_by_what_it_lacked_and_by_nothing_else() {
    let machines = Watched::Machines(SOURCE.to_owned());
    let bundle =
        json!({"metadata": {"name": object_names::BUNDLE}, "data": {"ca-bundle.crt": "x"}});
    let node = |name: &str| json!({"metadata": {"name": name}});
    let asked_machines = BTreeSet::from([ClusterQuery::Machines]);
    let asked_node = BTreeSet::from([ClusterQuery::Node("worker-a".to_owned())]);
    let asked_bundle = BTreeSet::from([ClusterQuery::Bundle]);
    let asked_siblings = BTreeSet::from([ClusterQuery::Requests {
        node: "worker-a".to_owned(),
        signer: KUBELET_SERVING.to_owned(),
    }]);
    let nothing = BTreeSet::new();
    let sibling = |node: &str| object("s", KUBELET_SERVING, &format!("system:node:{node}"));
    let cases = [
        (
            "its Machine by nodeRef",
            &asked_machines,
            &machines,
            Change::Set(machine("a", Some("worker-a"), "x")),
            true,
        ),
        (
            "its Machine by name, however written",
            &asked_machines,
            &machines,
            Change::Set(machine("a", None, "Worker-A.")),
            true,
        ),
        (
            "its Machine in a new list",
            &asked_machines,
            &machines,
            Change::All(vec![
                machine("b", None, "b"),
                machine("a", None, "worker-a"),
            ]),
            true,
        ),
        (
            "another Machine",
            &asked_machines,
            &machines,
            Change::Set(machine("b", Some("worker-b"), "worker-b")),
            false,
        ),
        (
            "a Machine that it did not ask for",
            &asked_node,
            &machines,
            Change::Set(machine("a", Some("worker-a"), "worker-a")),
            false,
        ),
        (
            "its Node",
            &asked_node,
            &Watched::Nodes,
            Change::Set(node("worker-a")),
            true,
        ),
        (
            "another Node",
            &asked_node,
            &Watched::Nodes,
            Change::Set(node("worker-b")),
            false,
        ),
        (
            "the bundle",
            &asked_bundle,
            &Watched::Bundle,
            Change::Set(bundle.clone()),
            true,
        ),
        (
            "a bundle that it did not ask for",
            &asked_node,
            &Watched::Bundle,
            Change::Set(bundle),
            false,
        ),
        (
            "a request for the same node",
            &asked_siblings,
            &Watched::Requests,
            Change::Set(sibling("worker-a")),
            true,
        ),
        (
            "a request for another node",
            &asked_siblings,
            &Watched::Requests,
            Change::Set(sibling("worker-b")),
            false,
        ),
        (
            "the switch, always",
            &nothing,
            &Watched::Switch,
            Change::Set(json!({"metadata": {"name": object_names::SWITCH},
                            "data": {"config.yaml": "nodeClientCert: {disabled: true}"}})),
            true,
        ),
    ];
    for (case, asked, watched, change, is_woken) in cases {
        let mut index = index();
        add_request(&mut index, "r", "worker-a");
        let request = index.request("r").unwrap();
        index.wait(&request, asked);
        let woken = index.apply(watched, change);
        assert_eq!(woken.contains("r"), is_woken, "{case}: {woken:?}");
        // Who waits no longer is not woken.
        index.forget("r");
        let again = index.apply(watched, Change::All(vec![]));
        assert!(
            !again.contains("r") || *watched == Watched::Requests,
            "{case}"
        );
    }
}

#[test]
fn a_machine_that_changes_or_goes_wakes_by_what_it_was() {
    let machines = Watched::Machines(SOURCE.to_owned());
    for (case, change) in [
        ("renamed", Change::Set(machine("a", None, "elsewhere"))),
        ("gone", Change::Gone(machine("a", None, "worker-a"))),
        ("not in the list", Change::All(vec![])),
    ] {
        let mut index = index();
        add_request(&mut index, "r", "worker-a");
        index.apply(&machines, Change::Set(machine("a", None, "worker-a")));
        let request = index.request("r").unwrap();
        index.wait(&request, &BTreeSet::from([ClusterQuery::Machines]));
        // The same again is no news.
        let same = index.apply(&machines, Change::Set(machine("a", None, "worker-a")));
        let _woken_or_not = same;
        let woken = index.apply(&machines, change);
        assert_eq!(woken, Woken::from(["r".to_owned()]), "{case}");
    }
}

#[test]
fn an_absent_source_has_no_machines_and_an_unreadable_one_has_no_answer() {
    let mut index = Index::new(&["a.example".to_owned(), "b.example".to_owned()]);
    index.apply(&Watched::Requests, Change::All(vec![]));
    add_request(&mut index, "r", "worker-a");
    assert_eq!(ask(&mut index, &ClusterQuery::Machines), Answer::Discover);
    index.discovered("a.example", Ok(None));
    index.discovered("b.example", Err("403".to_owned()));
    let Answer::Known(Err(why)) = ask(&mut index, &ClusterQuery::Machines) else {
        panic!("known")
    };
    assert!(why.contains("b.example") && why.contains("403"), "{why}");
    let request = index.request("r").unwrap();
    index.wait(&request, &BTreeSet::from([ClusterQuery::Machines]));
    let (watch, woken) = index.discovered("b.example", Ok(Some("v1".to_owned())));
    let watch = watch.unwrap();
    assert_eq!(woken, Woken::from(["r".to_owned()]), "it appears");
    let Answer::Known(Err(why)) = ask(&mut index, &ClusterQuery::Machines) else {
        panic!("known")
    };
    assert!(why.contains("not read yet"), "{why}");
    let woken = index.apply(&watch, Change::All(vec![machine("m", None, "worker-a")]));
    assert!(woken.contains("r"));
    let Answer::Known(Ok(ClusterFact::Machines(all))) = ask(&mut index, &ClusterQuery::Machines)
    else {
        panic!("unknown")
    };
    let address = NodeAddress {
        kind: "InternalDNS".to_owned(),
        address: "worker-a".to_owned(),
    };
    assert_eq!(all[0].source, "b.example/v1");
    assert_eq!(all[0].addresses, [address]);
    // A failed look later takes nothing away; another version does.
    assert_eq!(index.discovered("b.example", Err("503".to_owned())).0, None);
    let (watch, _) = index.discovered("b.example", Ok(Some("v2".to_owned())));
    assert_eq!(watch, Some(Watched::Machines("b.example/v2".to_owned())));
}

#[test]
fn a_node_that_is_missing_is_asked_for_and_one_that_is_there_is_not() {
    let mut index = index();
    add_request(&mut index, "r", "worker-a");
    let query = ClusterQuery::Node("worker-a".to_owned());
    assert_eq!(ask(&mut index, &query), Answer::AskLive);
    let request = index.request("r").unwrap();
    let nothing = BTreeSet::new();
    let answer = index.answer(&query, &request, &nothing, request.created);
    assert_eq!(answer, Answer::Watch(Watched::Nodes));
    let node = json!({"metadata": {"name": "worker-a"}});
    index.apply(&Watched::Nodes, Change::Set(node));
    assert!(matches!(
        ask(&mut index, &query),
        Answer::Known(Ok(ClusterFact::Node(Some(_))))
    ));
    index.apply(&Watched::Nodes, Change::Unreadable("403".to_owned()));
    assert!(matches!(ask(&mut index, &query), Answer::Known(Err(_))));
}

#[test]
fn the_switch_is_on_without_a_config_map_and_off_when_it_cannot_be_understood() {
    let map = |text: &str| {
        let data = json!({"config.yaml": text});
        Change::All(vec![
            json!({"metadata": {"name": object_names::SWITCH}, "data": data}),
        ])
    };
    let watched = all_watches();
    let mut index = index();
    assert!(
        matches!(index.switch(&watched), Some(Switch::Broken(_))),
        "not read yet"
    );
    assert_eq!(index.switch(&BTreeSet::new()), None);
    for (change, expected) in [
        (Change::All(vec![]), Switch::On),
        (map("nodeClientCert: {disabled: true}"), Switch::Off),
        (Change::Unreadable("503".to_owned()), Switch::Off),
        (map("nodeClientCert: {disabled: false}"), Switch::On),
    ] {
        index.apply(&Watched::Switch, change);
        assert_eq!(index.switch(&watched), Some(expected));
    }
    index.apply(&Watched::Switch, map("nodeClientCert: 7"));
    assert!(matches!(index.switch(&watched), Some(Switch::Broken(_))));
}

#[test]
fn requests_of_one_node_are_known_oldest_first() {
    let mut index = index();
    for (name, created) in [("b", "12:00:02"), ("a", "12:00:01"), ("c", "12:00:01")] {
        let mut object = object(name, KUBELET_SERVING, "system:node:worker-a");
        let created = format!("2026-05-01T{created}Z");
        merge(
            &mut object,
            json!({"metadata": {"creationTimestamp": created}}),
        );
        index.apply(&Watched::Requests, Change::Set(object));
    }
    add_request(&mut index, "other", "worker-b");
    let names = |index: &Index| -> Vec<String> {
        let siblings = index.siblings(KUBELET_SERVING, "worker-a");
        siblings
            .iter()
            .map(|sibling| sibling.name.clone())
            .collect()
    };
    assert_eq!(names(&index), ["a", "c", "b"]);
    let gone = object("a", KUBELET_SERVING, "system:node:worker-a");
    index.apply(&Watched::Requests, Change::Gone(gone));
    assert_eq!(names(&index), ["c", "b"]);
    // Another object of the same name is another request.
    let mut other = object("c", KUBELET_SERVING, "system:node:worker-b");
    merge(&mut other, json!({"metadata": {"uid": "another"}}));
    index.apply(&Watched::Requests, Change::Set(other));
    assert_eq!(names(&index), ["b"]);
    index.apply(&Watched::Requests, Change::All(vec![]));
    assert_eq!(names(&index), [] as [&str; 0]);
    assert!(index.of_node.is_empty());
}

#[test]
fn in_a_long_queue_every_sender_has_its_turn() {
    let mut index = index();
    for number in 0..150 {
        let mut flood = of_node(&format!("f{number:03}"), "noisy");
        let created = format!("2026-05-01T12:{:02}:{:02}Z", number / 60, number % 60);
        merge(
            &mut flood,
            json!({"metadata": {"creationTimestamp": created}}),
        );
        index.apply(&Watched::Requests, Change::Set(flood));
    }
    let mut late = of_node("r", "quiet");
    merge(
        &mut late,
        json!({"metadata": {"creationTimestamp": "2026-05-01T12:05:00Z"}}),
    );
    index.apply(&Watched::Requests, Change::Set(late));
    let queue = |index: &mut Index, name: &str| {
        let request = index.request(name).unwrap();
        let answer = index.answer(&ClusterQuery::Queue, &request, &all_watches(), now());
        let Answer::Known(Ok(ClusterFact::Queue(queue))) = answer else {
            panic!("{answer:?}")
        };
        (queue.pending, queue.ahead)
    };
    assert_eq!(queue(&mut index, "r"), (151, 0), "the newest goes first");
    assert_eq!(
        queue(&mut index, "f149"),
        (151, 1),
        "the newest of the other sender is next"
    );
    assert_eq!(queue(&mut index, "f000"), (151, 150), "its oldest last");
    assert_eq!(
        index.relieved(now()),
        Woken::new(),
        "there are still too many"
    );
    // The flood is deleted, or denied: whoever had to wait for it is looked at again, once.
    for number in 0..50 {
        let name = format!("f{number:03}");
        let gone = of_node(&name, "noisy");
        index.apply(&Watched::Requests, Change::Gone(gone));
    }
    assert_eq!(
        index.relieved(now()),
        Woken::new(),
        "101 are still too many"
    );
    let gone = of_node("f050", "noisy");
    index.apply(&Watched::Requests, Change::Gone(gone));
    let braked = ["f149".to_owned(), "r".to_owned()];
    assert_eq!(index.relieved(now()), Woken::from(braked));
    assert_eq!(index.relieved(now()), Woken::new(), "only once");
}

#[test]
fn what_is_approved_gone_old_or_of_the_future_does_not_count() {
    let mut index = index();
    for (name, created) in [
        ("old", "11:05:00"),
        ("young", "11:05:01"),
        ("new", "12:05:09"),
        ("early", "12:05:10"),
        ("approved", "12:00:00"),
        ("gone", "12:00:00"),
    ] {
        let mut object = of_node(name, name);
        let created = format!("2026-05-01T{created}Z");
        merge(
            &mut object,
            json!({"metadata": {"creationTimestamp": created, "resourceVersion": "1"}}),
        );
        index.apply(&Watched::Requests, Change::Set(object.clone()));
        match name {
            "approved" => {
                let status = json!({"conditions": [{"type": "Approved"}]});
                let metadata = json!({"resourceVersion": "2"});
                merge(&mut object, json!({"metadata": metadata, "status": status}));
                index.written(object);
            }
            "gone" => {
                index.apply(&Watched::Requests, Change::Gone(object));
            }
            _ => {}
        }
    }
    let pending = |index: &mut Index, now: UnixTime| {
        let request = index.request("new").unwrap();
        let answer = index.answer(&ClusterQuery::Queue, &request, &all_watches(), now);
        let Answer::Known(Ok(ClusterFact::Queue(queue))) = answer else {
            panic!("{answer:?}")
        };
        queue.pending
    };
    assert_eq!(pending(&mut index, now()), 2);
    assert_eq!(
        pending(&mut index, now().plus_seconds(1)),
        2,
        "one in, one out"
    );
    assert_eq!(pending(&mut index, now().plus_seconds(3600)), 2);
    assert_eq!(pending(&mut index, now().plus_seconds(3610)), 0);
}

/// A request of a kubelet for its serving certificate.
fn of_node(name: &str, node: &str) -> Value {
    let mut object = object(name, KUBELET_SERVING, &format!("system:node:{node}"));
    merge(&mut object, json!({"spec": {"groups": ["system:nodes"]}}));
    object
}

fn now() -> UnixTime {
    UnixTime::parse_rfc3339("2026-05-01T12:05:00Z").unwrap()
}

#[test]
fn a_record_that_nobody_used_in_time_is_as_good_as_gone() {
    let mut index = Index::new(&["countersign.dev".to_owned()]);
    let (watch, _) = index.discovered("countersign.dev", Ok(Some("v1alpha1".to_owned())));
    let record = json!({
        "metadata": {"name": "worker-a"}, "spec": {"notAfter": "2026-05-01T12:00:10Z"},
    });
    index.apply(&watch.unwrap(), Change::All(vec![record]));
    add_request(&mut index, "r", "worker-a");
    let request = index.request("r").unwrap();
    for (later, is_gone) in [(0, false), (9, false), (10, true), (11, true)] {
        let now = request.created.plus_seconds(later);
        let answer = index.answer(&ClusterQuery::Machines, &request, &all_watches(), now);
        let Answer::Known(Ok(ClusterFact::Machines(all))) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(all[0].deleting, is_gone, "{later}");
    }
}

#[test]
fn what_a_write_answered_is_not_undone_by_an_earlier_event() {
    let state = |version: &str, status: Value| {
        let mut object = of_node("r", "worker-a");
        let metadata = json!({"resourceVersion": version});
        merge(&mut object, json!({"metadata": metadata, "status": status}));
        object
    };
    let approved = json!({"conditions": [{"type": "Approved"}]});
    let issued = json!({"conditions": [{"type": "Approved"}], "certificate": "QUJD"});
    let set = |index: &mut Index, object| index.apply(&Watched::Requests, Change::Set(object));
    let mut index = index();
    set(&mut index, state("7", json!({})));
    let mut sibling = of_node("s", "worker-a");
    merge(&mut sibling, json!({"spec": {"groups": []}}));
    set(&mut index, sibling);
    let waits = index.request("s").unwrap();
    let siblings = ClusterQuery::Requests {
        node: "worker-a".to_owned(),
        signer: KUBELET_SERVING.to_owned(),
    };
    index.wait(&waits, &BTreeSet::from([siblings]));

    let (written, woken) = index.written(state("8", approved.clone()));
    assert!(written.unwrap().is("Approved"));
    assert_eq!(woken, Woken::from(["s".to_owned()]));
    let (written, _) = index.written(state("11", issued.clone()));
    assert!(written.unwrap().certificate.is_some());
    // The watch comes after it, also with what somebody wrote in between.
    let known = index.request("r").unwrap();
    for (version, status) in [("8", &approved), ("9", &approved), ("11", &issued)] {
        let woken = set(&mut index, state(version, status.clone()));
        assert_eq!(woken, Woken::new(), "{version}");
        let now = index.request("r").unwrap();
        assert!(Arc::ptr_eq(&known, &now), "{version} was read again");
        assert!(
            index.request("r").unwrap().certificate.is_some(),
            "{version}"
        );
    }
    let woken = set(&mut index, state("12", issued.clone()));
    assert!(woken.contains("r"), "somebody changed it: {woken:?}");
    let (written, woken) = index.written(state("12", issued.clone()));
    assert!(
        written.unwrap().certificate.is_some(),
        "the watch was faster"
    );
    assert_eq!(woken, Woken::new());
    assert!(index.written(state("11", issued.clone())).0.is_none());

    // A list is what there is, even if it is older: a store may have been put back.
    let older = state("3", json!({}));
    let woken = index.apply(&Watched::Requests, Change::All(vec![older]));
    assert!(woken.contains("r") && index.request("r").unwrap().certificate.is_none());
    // What is gone does not come back by a late answer, nor does another object of its name.
    let mut other = state("2", json!({}));
    merge(&mut other, json!({"metadata": {"uid": "another"}}));
    set(&mut index, other);
    assert!(index.written(state("99", issued.clone())).0.is_none());
    index.apply(&Watched::Requests, Change::Gone(state("3", json!({}))));
    assert!(index.written(state("99", issued)).0.is_none());
    assert!(index.request("r").is_none());
}
