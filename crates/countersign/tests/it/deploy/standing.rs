//! Everything installed on a real API server: by kustomize and by Helm, what the controllers may do then, and how it goes away.

use std::fs;
use std::path::Path;

use countersign_testkit::api_server::{ApiServer, ApiServerSettings, Controllers};
use countersign_testkit::helm::Helm;
use countersign_testkit::https::HttpsClient;
use countersign_testkit::kubectl::Kubectl;
use serde_json::{Value, json};

use super::resources::{OWN, established, ok};
use super::{
    ALL_VALUES, COMPONENTS, deploy, kustomized, of_kind, openvox, overlay, overlay_of, templated,
};

fn cluster(folder: &Path) -> (ApiServer, Kubectl) {
    let settings = ApiServerSettings {
        controllers: Controllers::None,
        ..ApiServerSettings::default()
    };
    let api = ApiServer::start(folder, &settings).unwrap();
    let kubectl = api.kubectl().unwrap();
    for namespace in [
        "openshift-config-managed",
        "openshift-cluster-machine-approver",
    ] {
        ok(&kubectl, &["create", "namespace", namespace]);
    }
    (api, kubectl)
}

#[test]
fn kubectl_installs_the_base_and_its_components() {
    let folder = tempfile::tempdir().unwrap();
    let (api, kubectl) = cluster(folder.path());
    let admin = api.admin().unwrap();
    let base = deploy("kustomize/base");
    let base = base.to_str().unwrap();
    // The resources' namespace comes first, whatever the order of the files.
    let applied = ok(&kubectl, &["apply", "-k", base]);
    assert!(
        applied
            .stdout
            .contains("deployment.apps/countersign created"),
        "{applied}"
    );
    established(&kubectl, &OWN);
    no_definition_of_others(&kubectl);
    // kubectl replaces the selector of a disruption budget each time.
    let again = ok(&kubectl, &["apply", "-k", base]);
    let changed = again
        .stdout
        .lines()
        .filter(|line| !line.ends_with(" unchanged"));
    let changed: Vec<&str> = changed.collect();
    assert_eq!(
        changed,
        ["poddisruptionbudget.policy/countersign configured"]
    );

    may(&admin, &BASE);
    may_not(
        &admin,
        &[
            &NEVER[..],
            &SIGNING[..],
            &OPENSHIFT[..],
            &TOKENS[..],
            &OPERATOR[..],
        ]
        .concat(),
    );
    pods_are_confined(&kubectl, &kustomized(&[]));

    define_service_monitors(&kubectl);
    let everything = overlay(folder.path(), &COMPONENTS);
    ok(&kubectl, &["apply", "-k", everything.to_str().unwrap()]);
    metrics_are_scraped(&kubectl);
    established(&kubectl, &openvox::DEFINITIONS);
    may(
        &admin,
        &[
            &BASE[..],
            &SIGNING[..],
            &OPENSHIFT[..],
            &TOKENS[..],
            &OPERATOR[..],
        ]
        .concat(),
    );
    may_not(&admin, &NEVER);
    pods_are_confined(&kubectl, &kustomized(&COMPONENTS));
    let strategy = ok(
        &kubectl,
        &[
            "-n",
            SYSTEM,
            "get",
            "deployment",
            "countersign",
            "-o",
            "jsonpath={.spec.strategy.type}",
        ],
    );
    assert_eq!(strategy.stdout, "Recreate");

    // As the manual says: first everything but the definitions.
    let path = everything.to_str().unwrap();
    let built = ok(&kubectl, &["kustomize", path]).stdout;
    let selector = "--selector=app.kubernetes.io/name=countersign";
    let arguments = ["delete", "--wait=false", selector, "-f", "-"];
    let deleted = kubectl.run_with_input(&arguments, &built).unwrap();
    assert!(deleted.success(), "{deleted}");
    let left = ok(
        &kubectl,
        &["get", "clusterroles,clusterrolebindings", "-o", "name"],
    );
    assert!(!left.stdout.contains("countersign"), "{left}");
    ok(
        &kubectl,
        &["get", "crd", "approvalpolicies.countersign.dev"],
    );
    let arguments = ["delete", "--ignore-not-found", "--wait=false", "-k", path];
    let deleted = ok(&kubectl, &arguments);
    let definition = "\"approvalpolicies.countersign.dev\" deleted";
    assert!(deleted.stdout.contains(definition), "{deleted}");
}

/// Without the operator, what belongs to openvox-operator is left alone.
fn no_definition_of_others(kubectl: &Kubectl) {
    let definitions = ok(kubectl, &["get", "crd", "-o", "name"]);
    assert!(
        !definitions.stdout.contains(openvox::GROUP),
        "{definitions}"
    );
}

/// A cluster with openvox-operator has its definitions; the chart takes them over where somebody says so. The operator
/// may work in the namespaces that are named.
#[test]
fn the_operator_alone_takes_over_from_openvox_operator() {
    let folder = tempfile::tempdir().unwrap();
    let (api, kubectl) = cluster(folder.path());
    let admin = api.admin().unwrap();
    for namespace in ["production", SYSTEM] {
        ok(&kubectl, &["create", "namespace", namespace]);
    }
    for name in openvox::DEFINITIONS {
        let file = format!("crds/{}.yaml", name.split('.').next().unwrap());
        ok(&kubectl, &["apply", "-f", deploy(&file).to_str().unwrap()]);
    }
    let helm = Helm::new(folder.path())
        .unwrap()
        .at(&api.admin_kubeconfig());
    let chart = deploy("helm/countersign");
    let values = folder.path().join("values.yaml");
    let text = "{controllers: [], operator: {enabled: true, namespaces: [production]}}";
    fs::write(&values, text).unwrap();
    let arguments = [
        "install",
        "countersign",
        chart.to_str().unwrap(),
        "--namespace",
        SYSTEM,
        "--values",
        values.to_str().unwrap(),
    ];
    let refused = helm.run(&arguments).unwrap();
    assert!(
        refused.stderr.contains("invalid ownership metadata"),
        "{refused}"
    );
    let installed = helm.run(&[&arguments[..], &["--take-ownership"]].concat());
    let installed = installed.unwrap();
    assert!(installed.success(), "{installed}");
    let said = "only CertificateAuthorities with spec.external become Ready";
    assert!(installed.stdout.contains(said), "{installed}");
    let own = ok(&kubectl, &["get", "crd", "-o", "name"]);
    assert!(!own.stdout.contains("countersign.dev"), "{own}");
    let within = |namespace: &'static str| {
        let acts = OPERATOR.iter().filter(|act| act.namespace == "shop");
        acts.map(|act| act.within(namespace)).collect::<Vec<Act>>()
    };
    may(&admin, &within("production"));
    may_not(&admin, &within("shop"));
    may_not(&admin, &within(SYSTEM));
    may_not(&admin, &BASE);
    let uninstalled = helm.run(&["uninstall", "countersign", "--namespace", SYSTEM]);
    assert!(uninstalled.unwrap().success());
    // With them all Certificates and CAs would go.
    established(&kubectl, &openvox::DEFINITIONS);

    // By kustomize, over definitions that are there.
    let overlay = overlay_of(folder.path(), "[]", &["operator"]);
    ok(&kubectl, &["apply", "-k", overlay.to_str().unwrap()]);
    may(&admin, &OPERATOR);
    may_not(&admin, &NEVER);
}

#[test]
fn helm_installs_upgrades_and_uninstalls_the_chart() {
    let folder = tempfile::tempdir().unwrap();
    let (api, kubectl) = cluster(folder.path());
    let admin = api.admin().unwrap();
    let helm = Helm::new(folder.path())
        .unwrap()
        .at(&api.admin_kubeconfig());
    let chart = deploy("helm/countersign");
    let chart = chart.to_str().unwrap();
    let run = |arguments: &[&str]| {
        let finished = helm.run(arguments).unwrap();
        assert!(finished.success(), "{arguments:?}: {finished}");
        finished
    };
    let system = format!("--namespace={SYSTEM}");
    let installed = run(&[
        "install",
        "countersign",
        chart,
        &system,
        "--create-namespace",
    ]);
    for line in [
        "Countersign runs approver, cleaner in countersign-system.",
        "decided by the preset hardened",
    ] {
        assert!(installed.stdout.contains(line), "{installed}");
    }
    established(&kubectl, &OWN);
    no_definition_of_others(&kubectl);
    may(&admin, &BASE);
    may_not(
        &admin,
        &[
            &NEVER[..],
            &SIGNING[..],
            &OPENSHIFT[..],
            &TOKENS[..],
            &OPERATOR[..],
        ]
        .concat(),
    );

    define_service_monitors(&kubectl);
    let values = folder.path().join("values.yaml");
    fs::write(&values, ALL_VALUES).unwrap();
    let values = format!("--values={}", values.display());
    let upgraded = run(&["upgrade", "countersign", chart, &system, &values]);
    assert!(
        upgraded.stdout.contains("The claim of the ledger stays"),
        "{upgraded}"
    );
    established(&kubectl, &openvox::DEFINITIONS);
    metrics_are_scraped(&kubectl);
    may(
        &admin,
        &[
            &BASE[..],
            &SIGNING[..],
            &OPENSHIFT[..],
            &TOKENS[..],
            &OPERATOR[..],
        ]
        .concat(),
    );
    may_not(&admin, &NEVER);
    ok(
        &kubectl,
        &[
            "label",
            "namespace",
            SYSTEM,
            "pod-security.kubernetes.io/enforce=restricted",
        ],
    );
    pods_are_confined(&kubectl, &templated(ALL_VALUES).unwrap());

    let machine =
        "apiVersion: countersign.dev/v1alpha1\nkind: Machine\nmetadata: {name: worker-a}\n";
    let created = kubectl.run_with_input(&["create", "-f", "-"], machine);
    assert!(created.unwrap().success());
    run(&["uninstall", "countersign", &system]);
    may_not(&admin, &BASE);
    // What people wrote, and the record of every certificate, stay.
    ok(&kubectl, &["get", "machines.countersign.dev", "worker-a"]);
    ok(
        &kubectl,
        &["-n", SYSTEM, "get", "pvc", "countersign-ledger"],
    );

    // Another release finds them, and takes them over.
    let installed = helm
        .run(&["install", "countersign", chart, &system])
        .unwrap();
    assert!(installed.success(), "{installed}");
}

/// The Prometheus operator's resource, as far as it is used: whatever else stood in one would be refused.
fn define_service_monitors(kubectl: &Kubectl) {
    let labels = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let endpoint = json!({
        "type": "object",
        "properties": {
            "port": {"type": "string"},
            "path": {"type": "string"},
            "interval": {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"},
        },
    });
    let spec = json!({
        "type": "object",
        "required": ["endpoints", "selector"],
        "properties": {
            "endpoints": {"type": "array", "items": endpoint},
            "selector": {"type": "object", "properties": {"matchLabels": labels}},
        },
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": SERVICE_MONITORS},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {
                "kind": "ServiceMonitor",
                "plural": "servicemonitors",
                "singular": "servicemonitor",
            },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "required": ["spec"],
                    "properties": {"spec": spec},
                }},
            }],
        },
    });
    let created = kubectl.run_with_input(&["create", "-f", "-"], &definition.to_string());
    let created = created.unwrap();
    assert!(created.success(), "{created}");
    established(kubectl, &[SERVICE_MONITORS]);
}

/// A ServiceMonitor finds the service with the metrics, at a port that it has.
fn metrics_are_scraped(kubectl: &Kubectl) {
    let get = |arguments: &[&str]| -> Value {
        let arguments = [&["-n", SYSTEM, "get", "-o", "json"], arguments].concat();
        serde_json::from_str(&ok(kubectl, &arguments).stdout).unwrap()
    };
    let monitor = get(&[SERVICE_MONITORS, "countersign"]);
    let wanted = monitor["spec"]["selector"]["matchLabels"].as_object();
    let wanted = wanted.unwrap().iter();
    let wanted: Vec<String> = wanted
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap()))
        .collect();
    let found = get(&["services", "--selector", &wanted.join(",")]);
    let ports = found["items"].as_array().unwrap().iter();
    let mut ports = ports.flat_map(|service| service["spec"]["ports"].as_array().unwrap());
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert!(
        ports.any(|port| port["name"] == endpoint["port"]),
        "{monitor:#}\n{found:#}"
    );
}

/// Something that the controllers might do.
#[derive(Clone, Copy, Debug)]
struct Act {
    verb: &'static str,
    /// Group and resource, and perhaps a subresource.
    resource: &'static str,
    name: &'static str,
    namespace: &'static str,
    /// The service account.
    account: &'static str,
}

const fn act(verb: &'static str, resource: &'static str) -> Act {
    Act {
        verb,
        resource,
        name: "",
        namespace: "",
        account: "countersign",
    }
}

impl Act {
    const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    const fn within(self, namespace: &'static str) -> Self {
        Self { namespace, ..self }
    }

    /// Of the operator instead of the other controllers.
    const fn by_operator(self) -> Self {
        Self {
            account: "countersign-operator",
            ..self
        }
    }
}

/// kubectl's own `auth can-i` knows only resources that the cluster serves.
fn can(admin: &HttpsClient, act: Act) -> bool {
    let mut resource = act.resource.splitn(3, '/');
    let [group, kind, subresource] = [(); 3].map(|()| resource.next().unwrap_or_default());
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:{SYSTEM}:{}", act.account),
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {
                "verb": act.verb,
                "group": group,
                "resource": kind,
                "subresource": subresource,
                "name": act.name,
                "namespace": act.namespace,
            },
        },
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let headers = [("Content-Type", "application/json")];
    let answer = admin.call("POST", path, &headers, review.to_string().as_bytes());
    let answer: Value = serde_json::from_str(&answer.unwrap().text()).unwrap();
    answer["status"]["allowed"]
        .as_bool()
        .unwrap_or_else(|| panic!("{act:?}: {answer}"))
}

fn may(admin: &HttpsClient, acts: &[Act]) {
    for act in acts {
        assert!(can(admin, *act), "{act:?}");
    }
}

fn may_not(admin: &HttpsClient, acts: &[Act]) {
    for act in acts {
        assert!(!can(admin, *act), "{act:?}");
    }
}

/// The API server itself judges the pod by its strictest standard.
fn pods_are_confined(kubectl: &Kubectl, objects: &[Value]) {
    for deployment in of_kind(objects, "Deployment") {
        pod_is_confined(kubectl, deployment);
    }
}

fn pod_is_confined(kubectl: &Kubectl, deployment: &Value) {
    let pod = |spec: &Value| {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "trial", "namespace": SYSTEM},
            "spec": spec,
        })
    };
    let spec = &deployment["spec"]["template"]["spec"];
    let create = |pod: Value| {
        let arguments = ["create", "--dry-run=server", "-f", "-"];
        kubectl
            .run_with_input(&arguments, &pod.to_string())
            .unwrap()
    };
    let created = create(pod(spec));
    assert!(created.success(), "{created}");
    assert_eq!(
        spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"],
        true
    );
    // The standard is in force: a pod that may be root is refused.
    let mut loose = spec.clone();
    loose["securityContext"]["runAsNonRoot"] = json!(false);
    let refused = create(pod(&loose));
    assert!(refused.stderr.contains("violates PodSecurity"), "{refused}");
}

const SYSTEM: &str = "countersign-system";
const SERVICE_MONITORS: &str = "servicemonitors.monitoring.coreos.com";

const BASE: [Act; 13] = [
    act("watch", CSRS),
    act(
        "update",
        "certificates.k8s.io/certificatesigningrequests/approval",
    ),
    act("approve", SIGNERS).named("kubernetes.io/kubelet-serving"),
    act("approve", SIGNERS).named("kubernetes.io/kube-apiserver-client-kubelet"),
    act("delete", CSRS),
    act("create", "authorization.k8s.io/subjectaccessreviews"),
    act("watch", "/nodes"),
    act("watch", "countersign.dev/approvalpolicies"),
    act("patch", "countersign.dev/approvalpolicies/status"),
    act("watch", "countersign.dev/machines"),
    act("create", "coordination.k8s.io/leases").within(SYSTEM),
    act("update", "coordination.k8s.io/leases")
        .named("countersign")
        .within(SYSTEM),
    act("create", "events.k8s.io/events").within("default"),
];

const SIGNING: [Act; 10] = [
    act(
        "update",
        "certificates.k8s.io/certificatesigningrequests/status",
    ),
    act("sign", SIGNERS).named("kubernetes.io/kubelet-serving"),
    act("watch", "countersign.dev/signers"),
    act("patch", "countersign.dev/signers/status"),
    act("sign", SIGNERS).named("example.com/pods"),
    act("attest", SIGNERS).named("example.com/pods"),
    act(
        "update",
        "certificates.k8s.io/podcertificaterequests/status",
    ),
    act("create", "certificates.k8s.io/clustertrustbundles"),
    act("get", "/pods"),
    act("create", "events.k8s.io/events").within("shop"),
];

const OPENSHIFT: [Act; 6] = [
    act("watch", "machine.openshift.io/machines"),
    act("watch", "cluster.x-k8s.io/machines"),
    act("get", "config.openshift.io/networks").named("cluster"),
    act("get", "network.openshift.io/hostsubnets"),
    act("watch", "/configmaps")
        .named("csr-controller-ca")
        .within("openshift-config-managed"),
    act("watch", "/configmaps")
        .named("machine-approver-config")
        .within("openshift-cluster-machine-approver"),
];

const TOKENS: [Act; 2] = [
    act("watch", "countersign.dev/enrollmenttokens").within(SYSTEM),
    act("create", "/secrets").within(SYSTEM),
];

/// The operator, in any namespace.
const OPERATOR: [Act; 21] = [
    operator("watch", "openvox.voxpupuli.org/certificates"),
    operator("create", "openvox.voxpupuli.org/certificates"),
    operator("patch", "openvox.voxpupuli.org/certificates"),
    operator("watch", "openvox.voxpupuli.org/certificateauthorities"),
    operator("watch", "openvox.voxpupuli.org/signingpolicies"),
    operator("watch", "openvox.voxpupuli.org/configs"),
    operator("watch", "openvox.voxpupuli.org/pools"),
    operator("watch", "openvox.voxpupuli.org/servers"),
    operator("patch", "openvox.voxpupuli.org/certificates/status"),
    operator(
        "patch",
        "openvox.voxpupuli.org/certificateauthorities/status",
    ),
    operator("patch", "openvox.voxpupuli.org/signingpolicies/status"),
    operator("update", "openvox.voxpupuli.org/certificates/finalizers"),
    operator(
        "update",
        "openvox.voxpupuli.org/certificateauthorities/finalizers",
    ),
    operator("get", "/secrets"),
    operator("watch", "/secrets"),
    operator("delete", "/secrets"),
    operator("patch", "/services"),
    operator("patch", "discovery.k8s.io/endpointslices"),
    operator("create", "events.k8s.io/events"),
    act("create", "coordination.k8s.io/leases")
        .within(SYSTEM)
        .by_operator(),
    act("update", "coordination.k8s.io/leases")
        .named("countersign-operator")
        .within(SYSTEM)
        .by_operator(),
];

const fn operator(verb: &'static str, resource: &'static str) -> Act {
    act(verb, resource).within("shop").by_operator()
}

/// With everything installed.
const NEVER: [Act; 37] = [
    act("*", "*/*"),
    act("get", CSRS),
    act("get", "certificates.k8s.io/clustertrustbundles"),
    act("create", CSRS),
    act("update", CSRS),
    act("deletecollection", CSRS),
    act("approve", SIGNERS),
    act("approve", SIGNERS).named("kubernetes.io/kube-apiserver-client"),
    act("approve", SIGNERS).named("example.com/other"),
    act("sign", SIGNERS).named("example.com/other"),
    act("update", "/nodes"),
    act("get", "/secrets").within(SYSTEM),
    act("list", "/secrets").within(SYSTEM),
    act("create", "/secrets").within("kube-system"),
    act("get", "/configmaps").within(SYSTEM),
    act("list", "/configmaps").within("openshift-config-managed"),
    act("update", "coordination.k8s.io/leases")
        .named("other")
        .within(SYSTEM),
    act("create", "coordination.k8s.io/leases").within("kube-system"),
    act("delete", "events.k8s.io/events").within("kube-system"),
    act("update", "countersign.dev/approvalpolicies"),
    act("create", "countersign.dev/machines"),
    act("patch", "countersign.dev/machines/status"),
    // The approver reads nothing of the operator, and the operator approves nothing.
    act("watch", "openvox.voxpupuli.org/certificates").within("shop"),
    act("get", "/secrets").within("shop"),
    act("update", "coordination.k8s.io/leases")
        .named("countersign-operator")
        .within(SYSTEM),
    operator("*", "*/*"),
    operator("update", "/secrets"),
    operator("deletecollection", "/secrets"),
    operator("delete", "openvox.voxpupuli.org/certificates"),
    operator("patch", "openvox.voxpupuli.org/certificateauthorities"),
    operator("delete", "openvox.voxpupuli.org/certificateauthorities"),
    operator("patch", "openvox.voxpupuli.org/signingpolicies"),
    operator("list", "/services"),
    operator("delete", "/services"),
    operator("get", "/pods"),
    act("watch", CSRS).by_operator(),
    act("update", "coordination.k8s.io/leases")
        .named("countersign")
        .within(SYSTEM)
        .by_operator(),
];

const CSRS: &str = "certificates.k8s.io/certificatesigningrequests";
const SIGNERS: &str = "certificates.k8s.io/signers";
