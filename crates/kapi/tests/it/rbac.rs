//! Who may do what, and who may say so: roles and bindings as a whole.

use countersign_kapi::UserInfo;
use countersign_kapi::rbac::book::RbacKind;
use countersign_kapi::rbac::defaults::{self, ReconciledBinding};
use countersign_kapi::rbac::escalation::{EscalationFault, Granter, RoleDraft};
use countersign_kapi::rbac::{
    Attributes, ClusterRole, ClusterRoleBinding, PathAction, PolicyRule, RbacObject,
    ResourceAction, RoleBook, RoleRef, cover,
};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn bindings_allow_and_say_so() {
    let book = book();
    let rows: &[(&str, &[&str], &str, &str)] = &[
        (
            "jane",
            &[],
            "get a/pods",
            "RBAC: allowed by ClusterRoleBinding \"readers\" of ClusterRole \"reader\" to User \"jane\"",
        ),
        (
            "joe",
            &["devs"],
            "get a/pods",
            "RBAC: allowed by ClusterRoleBinding \"readers\" of ClusterRole \"reader\" to Group \"devs\"",
        ),
        (
            "joe",
            &["devs"],
            "get /pods",
            "RBAC: allowed by ClusterRoleBinding \"readers\" of ClusterRole \"reader\" to Group \"devs\"",
        ),
        ("joe", &["others"], "get a/pods", ""),
        (
            "system:serviceaccount:ns:bot",
            &[],
            "get a/pods",
            "RBAC: allowed by ClusterRoleBinding \"readers\" of ClusterRole \"reader\" to ServiceAccount \"bot/ns\"",
        ),
        ("system:serviceaccount:other:bot", &[], "get a/pods", ""),
        ("system:serviceaccount::homeless", &[], "get a/pods", ""),
        (
            "jane",
            &[],
            "delete a/pods",
            "RBAC: allowed by RoleBinding \"writers/a\" of Role \"writer\" to User \"jane\"",
        ),
        ("jane", &[], "delete b/pods", ""),
        ("jane", &[], "delete /pods", ""),
        (
            "system:serviceaccount:a:bot",
            &[],
            "delete a/pods",
            "RBAC: allowed by RoleBinding \"writers/a\" of Role \"writer\" to ServiceAccount \"bot/a\"",
        ),
        (
            "jane",
            &[],
            "watch a/pods",
            "RBAC: allowed by RoleBinding \"watchers/a\" of ClusterRole \"watcher\" to User \"jane\"",
        ),
        ("jane", &[], "watch b/pods", ""),
        (
            "lost",
            &[],
            "get a/pods",
            "RBAC: [clusterrole.rbac.authorization.k8s.io \"gone\" not found, role.rbac.authorization.k8s.io \"gone\" not found]",
        ),
        (
            "lost",
            &[],
            "get /pods",
            "RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found",
        ),
        (
            "gatherer",
            &[],
            "get /pods",
            "RBAC: allowed by ClusterRoleBinding \"gatherers\" of ClusterRole \"gathered\" to User \"gatherer\"",
        ),
        ("gatherer", &[], "ignored /pods", ""),
    ];
    for (name, groups, asked, reason) in rows {
        let decision = book.authorize(&user(name, groups), &pods(asked));
        assert_eq!(decision.reason, *reason, "{name} {asked}");
        let allowed = reason.contains("allowed by");
        assert_eq!(decision.allowed, allowed, "{name} {asked}");
    }
    let path = |path| Attributes::Path(PathAction { verb: "get", path });
    let jane = user("jane", &[]);
    assert!(book.authorize(&jane, &path("/metrics")).allowed);
    assert!(!book.authorize(&jane, &path("/debug")).allowed);
}

#[test]
fn a_book_is_kept_up_to_date() {
    let mut book = book();
    let before = book.clone();
    let (jane, watch) = (user("jane", &[]), pods("watch a/pods"));
    book.remove(RbacKind::RoleBinding, "a", "watchers");
    assert!(!book.authorize(&jane, &watch).allowed);
    assert!(
        before.authorize(&jane, &watch).allowed,
        "a copy stays as it was"
    );
    // A binding that loses a subject and a role that loses a rule count at once.
    let (joe, get) = (user("joe", &["devs"]), pods("get /pods"));
    book.put(binding(
        "readers",
        "reader",
        json!([{"kind": "User", "name": "jane"}]),
    ));
    assert!(!book.authorize(&joe, &get).allowed);
    assert!(book.authorize(&jane, &get).allowed);
    book.put(cluster_role("reader", json!([])));
    assert!(!book.authorize(&jane, &get).allowed);
    // What an aggregated role is made of comes and goes.
    let gatherer = user("gatherer", &[]);
    assert!(book.authorize(&gatherer, &get).allowed);
    book.remove(RbacKind::ClusterRole, "", "part");
    assert!(!book.authorize(&gatherer, &get).allowed);
    book.remove(RbacKind::ClusterRoleBinding, "", "readers");
    book.remove(RbacKind::Role, "a", "writer");
    let missing = book.authorize(&jane, &pods("delete a/pods")).reason;
    assert_eq!(
        missing,
        "RBAC: role.rbac.authorization.k8s.io \"writer\" not found"
    );
    book.remove(RbacKind::RoleBinding, "nowhere", "nothing");
}

#[test]
fn aggregated_roles_say_what_should_be_written() {
    let book = book();
    let outdated: Vec<(&str, Vec<&str>)> = book
        .outdated_aggregates()
        .map(|(name, rules)| {
            (
                name,
                rules.iter().map(|rule| rule.verbs[0].as_str()).collect(),
            )
        })
        .collect();
    assert_eq!(outdated, [("gathered", vec!["get"])]);
}

#[test]
fn nobody_grants_what_they_do_not_have() {
    let book = book();
    let jane = user("jane", &["system:authenticated"]);
    let rules: Vec<PolicyRule> = parse(json!([
        resource_rule(&["get"], "pods"),
        resource_rule(&["get", "delete"], "secrets"),
        {"verbs": ["get"], "nonResourceURLs": ["/metrics", "/debug"]},
        {"verbs": ["approve"], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["a/b"]},
    ]));
    let text = refused(&book, &jane, &[], &cluster_draft(&rules));
    assert_eq!(
        text,
        "user \"jane\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"delete\"]}\n\
         {APIGroups:[\"certificates.k8s.io\"], Resources:[\"signers\"], ResourceNames:[\"a/b\"], Verbs:[\"approve\"]}\n\
         {NonResourceURLs:[\"/debug\"], Verbs:[\"get\"]}"
    );
    let held: Vec<PolicyRule> = parse(json!([resource_rule(&["get"], "pods")]));
    assert_eq!(refused(&book, &jane, &[], &cluster_draft(&held)), "");
    // What is held in a namespace can be given there.
    let local: Vec<PolicyRule> = parse(json!([resource_rule(&["delete"], "pods")]));
    let draft = |namespace| RoleDraft {
        kind: RbacKind::Role,
        namespace,
        name: "x",
        rules: &local,
        aggregated: false,
    };
    assert_eq!(refused(&book, &jane, &[], &draft("a")), "");
    assert_ne!(refused(&book, &jane, &[], &draft("b")), "");
    // Who holds a dangling binding is told.
    let lost = refused(&book, &user("lost", &[]), &[], &cluster_draft(&held));
    assert!(
        lost.ends_with(
            "Verbs:[\"get\"]}; resolution errors: [clusterrole.rbac.authorization.k8s.io \"gone\" not found]"
        ),
        "{lost}"
    );
    // The verb, or being an administrator, makes up for it.
    assert_eq!(
        refused(
            &book,
            &jane,
            &["escalate clusterroles"],
            &cluster_draft(&rules)
        ),
        ""
    );
    assert_ne!(
        refused(&book, &jane, &["escalate roles"], &cluster_draft(&rules)),
        ""
    );
    let master = user("root", &["system:masters"]);
    assert_eq!(refused(&book, &master, &[], &cluster_draft(&rules)), "");
}

#[test]
fn only_administrators_aggregate() {
    let book = book();
    let draft = RoleDraft {
        aggregated: true,
        ..cluster_draft(&[])
    };
    let refusal = "must have cluster-admin privileges to use the aggregationRule";
    assert_eq!(refused(&book, &user("jane", &[]), &[], &draft), refusal);
    assert_eq!(refused(&book, &user("boss", &[]), &[], &draft), "");
}

/// Somebody who writes roles in a namespace gives themselves more and more rules that they hold already.
#[test]
fn many_held_rules_cost_no_more_than_their_bound() {
    let wanted: Vec<PolicyRule> = vec![PolicyRule {
        verbs: vec!["get".into()],
        api_groups: vec![String::new()],
        resources: (0..10_000).map(|number| format!("r{number}")).collect(),
        ..PolicyRule::default()
    }];
    let draft = RoleDraft {
        kind: RbacKind::Role,
        namespace: "a",
        name: "x",
        rules: &wanted,
        aggregated: false,
    };
    let copies: Vec<Value> = vec![resource_rule(&["get"], "pods"); 50_000];
    let others: Vec<Value> = (0..50_000)
        .map(|number| resource_rule(&["get"], &format!("p{number}")))
        .collect();
    for (held, given, refusal) in [
        (copies, 1, "not currently held"),
        (others, 50_000, "too many to be compared"),
    ] {
        let book = RoleBook::of([
            RbacObject::Role(parse(
                json!({"metadata": {"name": "mine", "namespace": "a"}, "rules": held}),
            )),
            RbacObject::RoleBinding(parse(
                json!({"metadata": {"name": "mine", "namespace": "a"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mine"},
                "subjects": [{"kind": "User", "name": "jane"}]}),
            )),
        ]);
        let jane = user("jane", &[]);
        assert_eq!(book.rules_of(&jane, "a").rules.len(), given);
        let text = refused(&book, &jane, &[], &draft);
        assert!(text.contains(refusal), "{text}");
    }
}

#[test]
fn rules_that_cannot_be_compared_are_refused() {
    let many = |prefix: &str| -> Vec<String> {
        (0..30_000)
            .map(|number| format!("{prefix}{number}"))
            .collect()
    };
    let huge = [PolicyRule {
        verbs: many("v"),
        api_groups: many("g"),
        resources: many("r"),
        resource_names: many("n"),
        non_resource_urls: Vec::new(),
    }];
    let book = book();
    let text = refused(&book, &user("jane", &[]), &[], &cluster_draft(&huge));
    assert!(text.contains("more than 20000 single grants"), "{text}");
    assert_eq!(
        refused(&book, &user("boss", &[]), &[], &cluster_draft(&huge)),
        ""
    );
}

#[test]
fn bindings_hand_on_what_is_held_or_may_be_bound() {
    let book = book();
    let jane = user("jane", &[]);
    let check = |may: &[&str], kind: &str, name: &str, namespace: &str| {
        let may = |asked: &Attributes<'_>| allows(may, asked);
        let granter = Granter {
            user: &jane,
            book: &book,
            may: &may,
        };
        granter.check_binding(&role_ref(kind, name), namespace)
    };
    assert_eq!(check(&[], "ClusterRole", "reader", ""), Ok(()));
    assert_eq!(check(&[], "Role", "writer", "a"), Ok(()));
    assert!(matches!(
        check(&[], "ClusterRole", "admin", ""),
        Err(EscalationFault::NotHeld { .. })
    ));
    assert_eq!(
        check(&["bind clusterroles"], "ClusterRole", "admin", ""),
        Ok(())
    );
    let missing = check(&[], "ClusterRole", "gone", "").unwrap_err();
    assert_eq!(
        missing.to_string(),
        "clusterroles.rbac.authorization.k8s.io \"gone\" not found"
    );
    assert!(matches!(
        check(&[], "Thing", "x", ""),
        Err(EscalationFault::RoleKind { .. })
    ));
}

#[test]
fn the_roles_of_the_start_are_those_of_kubernetes() {
    let roles = defaults::cluster_roles();
    let shown: Vec<(&str, String)> = roles
        .iter()
        .map(|role| {
            let rules: Vec<String> = role.rules.iter().map(cover::describe).collect();
            (role.metadata.name.as_str(), rules.join(" "))
        })
        .collect();
    let requests = |verbs: &str, resource: &str| {
        format!(
            "{{APIGroups:[\"certificates.k8s.io\"], Resources:[\"certificatesigningrequests{resource}\"], Verbs:[{verbs}]}}"
        )
    };
    let approver = |signer: &str| {
        let name = format!("kubernetes.io/{signer}");
        format!(
            "{{APIGroups:[\"certificates.k8s.io\"], Resources:[\"signers\"], ResourceNames:[\"{name}\"], Verbs:[\"approve\"]}}"
        )
    };
    assert_eq!(
        shown,
        [
            ("cluster-admin", "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]} {NonResourceURLs:[\"*\"], Verbs:[\"*\"]}".to_owned()),
            ("system:node-bootstrapper", requests("\"create\" \"get\" \"list\" \"watch\"", "")),
            ("system:certificates.k8s.io:certificatesigningrequests:nodeclient", requests("\"create\"", "/nodeclient")),
            ("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", requests("\"create\"", "/selfnodeclient")),
            ("system:certificates.k8s.io:legacy-unknown-approver", approver("legacy-unknown")),
            ("system:certificates.k8s.io:kubelet-serving-approver", approver("kubelet-serving")),
            ("system:certificates.k8s.io:kube-apiserver-client-approver", approver("kube-apiserver-client")),
            ("system:certificates.k8s.io:kube-apiserver-client-kubelet-approver", approver("kube-apiserver-client-kubelet")),
        ]
    );
    for role in &roles {
        assert_eq!(
            countersign_kapi::rbac::validate::cluster_role(role, None),
            []
        );
        assert_eq!(
            role.metadata.labels["kubernetes.io/bootstrapping"],
            "rbac-defaults"
        );
        assert_eq!(role.metadata.annotations[defaults::AUTO_UPDATE], "true");
    }
    let bindings = defaults::cluster_role_bindings();
    assert_eq!(bindings.len(), 1, "only administrators are bound");
    let mut errors = bindings
        .iter()
        .flat_map(|binding| countersign_kapi::rbac::validate::cluster_role_binding(binding, None));
    assert_eq!(errors.next(), None);
    let book = RoleBook::of(
        roles
            .into_iter()
            .map(RbacObject::ClusterRole)
            .chain(bindings.into_iter().map(RbacObject::ClusterRoleBinding)),
    );
    let master = user("root", &["system:masters"]);
    assert!(book.authorize(&master, &pods("anything a/pods")).allowed);
    assert!(
        !book
            .authorize(
                &user("system:node:a", &["system:nodes"]),
                &pods("get /pods")
            )
            .allowed
    );
}

#[test]
fn a_start_adds_what_is_missing_and_takes_nothing() {
    let expected = defaults::cluster_roles().swap_remove(1);
    assert_eq!(defaults::reconciled_role(&expected, &expected), None);
    let mut stored = expected.clone();
    stored.metadata.labels.clear();
    stored
        .metadata
        .annotations
        .insert("mine".into(), "kept".into());
    stored.rules = parse(json!([
        {"verbs": ["get"], "apiGroups": ["certificates.k8s.io"], "resources": ["*"]},
        resource_rule(&["get"], "pods"),
    ]));
    let reconciled = defaults::reconciled_role(&stored, &expected).unwrap();
    let rules: Vec<String> = reconciled.rules.iter().map(cover::describe).collect();
    let added = |verb: &str| {
        format!(
            "{{APIGroups:[\"certificates.k8s.io\"], Resources:[\"certificatesigningrequests\"], Verbs:[\"{verb}\"]}}"
        )
    };
    assert_eq!(rules[2..], [added("create"), added("list"), added("watch")]);
    assert_eq!(reconciled.metadata.labels, expected.metadata.labels);
    assert_eq!(reconciled.metadata.annotations["mine"], "kept");
    assert_eq!(
        defaults::reconciled_role(&reconciled, &expected),
        None,
        "once is enough"
    );
    let protect = |role: &mut ClusterRole| {
        let key = defaults::AUTO_UPDATE.to_owned();
        role.metadata.annotations.insert(key, "false".into());
    };
    protect(&mut stored);
    assert_eq!(defaults::reconciled_role(&stored, &expected), None);
}

#[test]
fn a_start_brings_the_binding_of_administrators_back() {
    let expected = defaults::cluster_role_bindings().remove(0);
    let reconciled = |stored: &ClusterRoleBinding| defaults::reconciled_binding(stored, &expected);
    assert_eq!(reconciled(&expected), ReconciledBinding::Kept);
    let mut stored = expected.clone();
    stored.subjects = parse(json!([{"kind": "User", "name": "jane"}]));
    match reconciled(&stored) {
        ReconciledBinding::Updated(binding) => {
            let names: Vec<&str> = binding.subjects.iter().map(|it| it.name.as_str()).collect();
            assert_eq!(names, ["jane", "system:masters"]);
        }
        other => panic!("{other:?}"),
    }
    stored.role_ref.name = "other".into();
    assert_eq!(
        reconciled(&stored),
        ReconciledBinding::Replaced(expected.clone())
    );
    let key = defaults::AUTO_UPDATE.to_owned();
    stored.metadata.annotations.insert(key, "false".into());
    assert_eq!(reconciled(&stored), ReconciledBinding::Kept);
}

fn words(pool: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    let word = proptest::sample::select(pool).prop_map(str::to_owned);
    proptest::collection::vec(word, 0..3)
}

fn any_rule() -> impl Strategy<Value = PolicyRule> {
    (
        words(&["get", "list", "approve", "*"]),
        words(&["", "apps", "*"]),
        words(&["pods", "pods/log", "signers", "*/log", "*"]),
        words(&["a", "b", "example.com/*"]),
        words(&["/healthz", "/healthz/*", "*"]),
    )
        .prop_map(
            |(verbs, api_groups, resources, resource_names, non_resource_urls)| PolicyRule {
                verbs,
                api_groups,
                resources,
                resource_names,
                non_resource_urls,
            },
        )
}

fn any_rules() -> impl Strategy<Value = Vec<PolicyRule>> {
    proptest::collection::vec(any_rule(), 0..4)
}

proptest! {
    #[test]
    fn rules_cover_themselves(rules in any_rules()) {
        prop_assert_eq!(cover::missing(&rules, &rules).unwrap(), vec![]);
    }

    #[test]
    fn holding_more_never_covers_less(held in any_rules(), more in any_rules(), wanted in any_rules()) {
        let alone = cover::missing(&held, &wanted).unwrap();
        let together = cover::missing(held.iter().chain(&more), &wanted).unwrap();
        prop_assert!(together.iter().all(|missing| alone.contains(missing)));
    }

    #[test]
    fn what_is_covered_is_allowed(
        held in any_rules(), wanted in any_rules(),
        verb in proptest::sample::select(&["get", "list", "approve", "watch"][..]),
        group in proptest::sample::select(&["", "apps", "batch"][..]),
        resource in proptest::sample::select(&["pods", "signers", "nodes"][..]),
        subresource in proptest::sample::select(&["", "log", "status"][..]),
        name in proptest::sample::select(&["", "a", "b", "c", "example.com/*"][..]),
        path in proptest::sample::select(&["/healthz", "/healthz/ping", "/x"][..]),
    ) {
        let missing = cover::missing(&held, &wanted).unwrap();
        let asked = [
            Attributes::Resource(ResourceAction { verb, group, resource, subresource, name, namespace: "" }),
            Attributes::Path(PathAction { verb, path }),
        ];
        for asked in &asked {
            let allowed = |rules: &[PolicyRule]| rules.iter().any(|rule| rule.allows(asked));
            if allowed(&wanted) && !allowed(&missing) {
                prop_assert!(allowed(&held), "{:?}", asked);
            }
        }
    }

    #[test]
    fn compact_rules_say_the_same(rules in any_rules()) {
        let missing = cover::missing(&[], &rules).unwrap();
        let compact = cover::compact(missing.clone());
        prop_assert_eq!(cover::missing(&compact, &missing).unwrap(), vec![]);
        prop_assert_eq!(cover::missing(&missing, &compact).unwrap(), vec![]);
    }
}

/// Roles and bindings of a small company.
fn book() -> RoleBook {
    let namespaced = |kind: RbacKind, json: Value| kind.read(json.to_string().as_bytes()).unwrap();
    RoleBook::of([
        cluster_role(
            "reader",
            json!([resource_rule(&["get"], "pods"), {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]),
        ),
        cluster_role("watcher", json!([resource_rule(&["watch"], "pods")])),
        cluster_role(
            "admin",
            json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]),
        ),
        namespaced(
            RbacKind::ClusterRole,
            json!({"metadata": {"name": "part", "labels": {"of": "gathered"}},
            "rules": [resource_rule(&["get"], "pods")]}),
        ),
        namespaced(
            RbacKind::ClusterRole,
            json!({"metadata": {"name": "gathered"}, "rules": [resource_rule(&["ignored"], "pods")],
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"of": "gathered"}}]}}),
        ),
        namespaced(
            RbacKind::Role,
            json!({"metadata": {"name": "writer", "namespace": "a"}, "rules": [resource_rule(&["delete"], "pods")]}),
        ),
        binding(
            "readers",
            "reader",
            json!([{"kind": "Group", "name": "devs"}, {"kind": "User", "name": "jane"},
            {"kind": "ServiceAccount", "name": "bot", "namespace": "ns"}, {"kind": "ServiceAccount", "name": "homeless"}]),
        ),
        binding("bosses", "admin", json!([{"kind": "User", "name": "boss"}])),
        binding(
            "gatherers",
            "gathered",
            json!([{"kind": "User", "name": "gatherer"}]),
        ),
        binding(
            "dangling",
            "gone",
            json!([{"kind": "User", "name": "lost"}]),
        ),
        namespaced(
            RbacKind::RoleBinding,
            json!({"metadata": {"name": "dangling", "namespace": "a"},
            "subjects": [{"kind": "User", "name": "lost"}], "roleRef": {"kind": "Role", "name": "gone"}}),
        ),
        namespaced(
            RbacKind::RoleBinding,
            json!({"metadata": {"name": "writers", "namespace": "a"},
            "subjects": [{"kind": "User", "name": "jane"}, {"kind": "ServiceAccount", "name": "bot"}],
            "roleRef": {"kind": "Role", "name": "writer"}}),
        ),
        namespaced(
            RbacKind::RoleBinding,
            json!({"metadata": {"name": "watchers", "namespace": "a"},
            "subjects": [{"kind": "User", "name": "jane"}], "roleRef": {"kind": "ClusterRole", "name": "watcher"}}),
        ),
    ])
}

fn cluster_role(name: &str, rules: Value) -> RbacObject {
    RbacObject::ClusterRole(parse(json!({"metadata": {"name": name}, "rules": rules})))
}

fn binding(name: &str, role: &str, subjects: Value) -> RbacObject {
    RbacObject::ClusterRoleBinding(parse(
        json!({"metadata": {"name": name}, "subjects": subjects,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}}),
    ))
}

fn resource_rule(verbs: &[&str], resource: &str) -> Value {
    json!({"verbs": verbs, "apiGroups": [""], "resources": [resource]})
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    parse(json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}))
}

fn cluster_draft(rules: &[PolicyRule]) -> RoleDraft<'_> {
    RoleDraft {
        kind: RbacKind::ClusterRole,
        namespace: "",
        name: "x",
        rules,
        aggregated: false,
    }
}

/// Why a role is refused; empty if it is not. `may`: verbs and resources that are allowed by other means.
fn refused(book: &RoleBook, user: &UserInfo, may: &[&str], draft: &RoleDraft<'_>) -> String {
    let may = |asked: &Attributes<'_>| allows(may, asked);
    let granter = Granter {
        user,
        book,
        may: &may,
    };
    let refusal = granter.check_role(draft).err();
    refusal.map(|fault| fault.to_string()).unwrap_or_default()
}

fn allows(may: &[&str], asked: &Attributes<'_>) -> bool {
    match asked {
        Attributes::Resource(action) => {
            may.contains(&format!("{} {}", action.verb, action.resource).as_str())
        }
        Attributes::Path(_) => false,
    }
}

/// `verb namespace/resource` of the core group.
fn pods(text: &str) -> Attributes<'_> {
    let (verb, place) = text.split_once(' ').unwrap();
    let (namespace, resource) = place.split_once('/').unwrap();
    Attributes::Resource(ResourceAction {
        verb,
        resource,
        namespace,
        ..ResourceAction::default()
    })
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        username: name.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..UserInfo::default()
    }
}

fn parse<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap()
}
