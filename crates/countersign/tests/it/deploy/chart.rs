//! The chart: what Helm says of it, what it makes of values, and that it installs the same as kustomize.

use serde_json::{Value, json};

use super::{ALL_VALUES, COMPONENTS, by_name, deploy, documents, kustomized, of_kind, templated};
use countersign_testkit::helm::Helm;

#[test]
fn helm_finds_nothing_wrong_with_the_chart() {
    let home = tempfile::tempdir().unwrap();
    let helm = Helm::new(home.path()).unwrap();
    let chart = deploy("helm/countersign");
    for values in ["", ALL_VALUES] {
        let file = home.path().join("values.yaml");
        std::fs::write(&file, values).unwrap();
        let values = format!("--values={}", file.display());
        let linted = helm.run(&["lint", "--strict", chart.to_str().unwrap(), &values]);
        let linted = linted.unwrap();
        assert!(linted.success(), "{linted}");
        assert!(linted.stdout.contains("0 chart(s) failed"), "{linted}");
    }
}

#[test]
fn chart_and_manifests_speak_of_the_version_of_the_program() {
    let chart = std::fs::read_to_string(deploy("helm/countersign/Chart.yaml")).unwrap();
    let chart = documents(&chart).remove(0);
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    let image = concat!("countersign:", env!("CARGO_PKG_VERSION"));
    for objects in [kustomized(&[]), templated("").unwrap()] {
        assert_eq!(container(&objects)["image"], image);
    }
}

/// The image cannot be built here; what Kubernetes and the compiler ask of it can be read.
#[test]
fn the_image_has_the_compiler_of_the_workspace_and_a_user_without_rights() {
    let text = std::fs::read_to_string(deploy("Dockerfile")).unwrap();
    let image = concat!(
        "FROM rust:",
        env!("CARGO_PKG_RUST_VERSION"),
        "-slim-bookworm "
    );
    assert!(text.contains(image), "{text}");
    let last = text.lines().rfind(|line| line.starts_with("FROM "));
    assert_eq!(last, Some("FROM debian:bookworm-slim"));
    // runAsNonRoot is checked by number.
    let user = text.lines().find_map(|line| line.strip_prefix("USER "));
    let (user, group) = user.unwrap().split_once(':').unwrap();
    assert_ne!(user.parse::<u32>().unwrap(), 0);
    // The group of the volumes.
    let objects = kustomized(&["signer"]);
    let deployment = of_kind(&objects, "Deployment").next().unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["fsGroup"].to_string(), group);
}

/// Kustomize and Helm install the same objects, permissions above all.
#[test]
fn the_chart_and_the_kustomize_base_install_the_same() {
    for (components, values) in [
        (&[][..], ""),
        (&["signer"], SIGNER),
        (&["cluster-api"], "clusterApi: {enabled: true}"),
        (&["monitoring"], "serviceMonitor: {enabled: true}"),
        (&["openshift"], "openshift: {enabled: true}"),
        (&COMPONENTS, ALL_VALUES),
    ] {
        let mut expected = by_name(comparable(kustomized(components)));
        // Helm makes the namespace by itself (--create-namespace).
        let namespace = (String::from("Namespace"), String::new(), SYSTEM.to_owned());
        assert!(expected.remove(&namespace).is_some());
        let actual = by_name(comparable(templated(values).unwrap()));
        let kinds = |objects: &super::Objects| objects.keys().cloned().collect::<Vec<_>>();
        assert_eq!(kinds(&actual), kinds(&expected), "{components:?}");
        for (key, object) in &expected {
            assert_eq!(&actual[key], object, "{components:?}: {key:?}");
        }
    }
}

/// Without what only one of the tools adds: labels, annotations, the hash in the name of a generated ConfigMap.
fn comparable(objects: Vec<Value>) -> Vec<Value> {
    let text = serde_json::to_string(&objects).unwrap();
    let generated = of_kind(&objects, "ConfigMap").find_map(|map| {
        let name = map["metadata"]["name"].as_str()?;
        name.strip_prefix("countersign-config-")?;
        Some(name.to_owned())
    });
    let text = match generated {
        Some(name) => text.replace(&name, "countersign-config"),
        None => text,
    };
    let mut objects: Vec<Value> = serde_json::from_str(&text).unwrap();
    for object in &mut objects {
        for pointer in ["/metadata", "/spec/template/metadata"] {
            if let Some(Value::Object(metadata)) = object.pointer_mut(pointer) {
                metadata.remove("annotations");
            }
        }
        if let Some(Value::Object(metadata)) = object.pointer_mut("/metadata") {
            metadata.remove("labels");
        }
        if let Some(text) = object.pointer_mut("/data/countersign.yaml") {
            *text = documents(text.as_str().unwrap()).remove(0);
        }
    }
    objects
}

#[test]
fn values_reach_the_program() {
    let objects = templated(
        "
replicas: 3
preset: kubelet-csr-approver
controllers: [approver]
leaderElection: {leaseName: nodes}
image: {repository: registry.example.com/countersign, tag: '1.2', pullPolicy: Always}
extraArgs: [--verbose]
policies:
  nodes.yaml: |
    kind: ApprovalPolicy
config: {log: {format: text}, webhooks: {concurrency: 4}}
metrics: {address: '[::]', port: 9999}
kubeletCsrApprover:
  providerRegex: '^edge-\\d+$'
  providerIpPrefixes: [10.0.0.0/8, 'fd00::/8']
  maxExpirationSeconds: 31622400
  allowedDnsNames: 2
  bypassDnsResolution: true
  bypassHostnameCheck: false
  ignoreNonSystemNode: true
  skipDenyStep: true
kubelet: {port: 10251, cidrs: [10.0.0.0/8]}
networkPolicy: {apiServerCidrs: [192.0.2.1/32], apiServerPorts: [6443]}
",
    )
    .unwrap();
    let container = container(&objects);
    assert_eq!(container["image"], "registry.example.com/countersign:1.2");
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(
        container["args"],
        json!([
            "cluster",
            "--config=/etc/countersign/countersign.yaml",
            "--controllers=approver",
            "--preset=kubelet-csr-approver",
            "--leader-elect=true",
            "--lease-namespace=countersign-system",
            "--lease-name=nodes",
            "--verbose",
        ])
    );
    let environment = container["env"].as_array().unwrap().iter();
    let environment: Vec<(&str, &str)> = environment
        .map(|one| {
            (
                one["name"].as_str().unwrap(),
                one["value"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        environment,
        [
            ("PROVIDER_IP_PREFIXES", "10.0.0.0/8,fd00::/8"),
            ("ALLOWED_DNS_NAMES", "2"),
            ("BYPASS_DNS_RESOLUTION", "true"),
            ("BYPASS_HOSTNAME_CHECK", "false"),
            ("IGNORE_NON_SYSTEM_NODE", "true"),
            ("MAX_EXPIRATION_SEC", "31622400"),
            ("PROVIDER_REGEX", r"^edge-\d+$"),
            ("SKIP_DENY_STEP", "true"),
        ]
    );
    let objects = by_name(comparable(objects));
    let get = |kind: &str, namespace: &str, name: &str| {
        let key = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        objects.get(&key)
    };
    assert_eq!(
        get("ConfigMap", SYSTEM, "countersign-config").unwrap()["data"]["countersign.yaml"],
        json!({
            "cluster": {"kubelet": {"port": 10251, "prefixes": ["10.0.0.0/8"]}},
            "log": {"format": "text"},
            "metrics": {"listen": "[::]:9999"},
            "policies": ["/etc/countersign-policies"],
            "webhooks": {"concurrency": 4},
        })
    );
    let policies = get("ConfigMap", SYSTEM, "countersign-policies").unwrap();
    assert_eq!(policies["data"]["nodes.yaml"], "kind: ApprovalPolicy\n");
    // Who does not clean cannot delete.
    assert!(get("ClusterRole", "", "countersign-approver").is_some());
    assert!(get("ClusterRole", "", "countersign-cleaner").is_none());
    let network = get("NetworkPolicy", SYSTEM, "countersign").unwrap();
    let egress = &network["spec"]["egress"];
    assert_eq!(egress[0]["to"][0]["ipBlock"]["cidr"], "192.0.2.1/32");
    assert_eq!(egress[2]["to"][0]["ipBlock"]["cidr"], "10.0.0.0/8");
    assert_eq!(egress[2]["ports"][0]["port"], 10251);
    assert_eq!(network["spec"]["ingress"][0]["ports"][0]["port"], 9999);
    let lease = get("Role", SYSTEM, "countersign-leader-election").unwrap();
    assert_eq!(lease["rules"][1]["resourceNames"], json!(["nodes"]));
}

#[test]
fn parts_can_be_left_out() {
    let objects = templated(
        "{replicas: 1, leaderElection: {enabled: false}, preset: '', crds: {install: false}, \
          networkPolicy: {enabled: false}, podDisruptionBudget: {enabled: false}}",
    )
    .unwrap();
    for kind in [
        "CustomResourceDefinition",
        "NetworkPolicy",
        "PodDisruptionBudget",
    ] {
        assert_eq!(of_kind(&objects, kind).count(), 0, "{kind}");
    }
    let arguments = &container(&objects)["args"];
    assert_eq!(
        arguments,
        &json!([
            "cluster",
            "--config=/etc/countersign/countersign.yaml",
            "--controllers=approver,cleaner",
            "--leader-elect=false"
        ])
    );
    let roles = of_kind(&objects, "Role").map(|role| &role["metadata"]["name"]);
    assert_eq!(roles.collect::<Vec<_>>(), ["countersign-events"]);
}

#[test]
fn values_that_cannot_work_are_refused_with_the_reason() {
    for (values, reason) in [
        (
            "{controllers: [approver, signer], signer: {caSecretName: ca}}",
            "its ledger is a SQLite file, which has one writer. Set replicas=1",
        ),
        (
            "leaderElection: {enabled: false}",
            "every replica would act on every request. Set leaderElection.enabled=true",
        ),
        (
            "{controllers: [signer], replicas: 1}",
            "signer.caSecretName is empty: name the Secret with the cluster's CA",
        ),
        (
            "signer: {caSecretName: ca}",
            "the CA would never be used. Add signer to controllers",
        ),
        (
            "kubeletCsrApprover: {skipDenyStep: true}",
            "they are read only with preset=kubelet-csr-approver",
        ),
        (
            "podCertificates: {enabled: true, signers: [example.com/pods]}",
            "nobody would sign. Add signer to controllers",
        ),
        (
            "{controllers: [signer], replicas: 1, signer: {caSecretName: ca}, podCertificates: {enabled: true}}",
            "podCertificates.signers is empty: name the signers",
        ),
        (
            "enrollmentTokens: {enabled: true}",
            "tokens are kept in the signer's ledger. Add signer to controllers",
        ),
        (
            "{policies: {a.yaml: 'x'}, config: {policies: [/etc/p]}}",
            "policies and config.policies are both set",
        ),
        (
            "config: {cluster: {kubelet: {port: 1}}}",
            "use kubelet.port and kubelet.cidrs",
        ),
        (
            "config: {metrics: {listen: '0.0.0.0:1'}}",
            "use metrics.address and metrics.port",
        ),
        // What the schema of the values says.
        ("preset: strict", "'/preset'"),
        ("controllers: []", "'/controllers'"),
        ("controllers: [approver, approver]", "'/controllers'"),
        ("controllers: [aprover]", "'/controllers/0'"),
        ("replica: 1", "additional properties 'replica' not allowed"),
        ("replicas: two", "'/replicas'"),
        ("policies: {nodes: x}", "invalid propertyName 'nodes'"),
        (
            "{preset: kubelet-csr-approver, kubeletCsrApprover: {allowedDnsNames: 0}}",
            "'/kubeletCsrApprover/allowedDnsNames'",
        ),
        ("approver: {signers: []}", "'/approver/signers'"),
        ("approver: {signers: ['*']}", "'/approver/signers/0'"),
        ("metrics: {port: 70000}", "'/metrics/port'"),
    ] {
        let refused = templated(values).expect_err(values);
        assert!(refused.contains(reason), "{values}\n{refused}");
    }
}

fn container(objects: &[Value]) -> &Value {
    let deployment = of_kind(objects, "Deployment").next().unwrap();
    &deployment["spec"]["template"]["spec"]["containers"][0]
}

const SYSTEM: &str = "countersign-system";
const SIGNER: &str = "
replicas: 1
controllers: [approver, signer, cleaner]
signer: {caSecretName: countersign-cluster-ca}
resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 512Mi}}
";
