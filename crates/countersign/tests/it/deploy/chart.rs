//! The chart: what Helm says of it, what it makes of values, and that it installs the same as kustomize.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::{
    ALL_VALUES, COMPONENTS, by_name, deploy, documents, kustomized, kustomized_alone, of_kind,
    templated,
};
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
        (&["operator"], "operator: {enabled: true}"),
        (&["operator", "operator-admission"], ADMISSION),
        (
            &["operator", "openshift"],
            "{operator: {enabled: true}, openshift: {enabled: true}}",
        ),
        (&COMPONENTS, ALL_VALUES),
    ] {
        let mut expected = kustomized(components);
        // Helm makes the namespace by itself (--create-namespace).
        let count = expected.len();
        expected.retain(|object| object["kind"] != "Namespace");
        assert_eq!(count - expected.len(), 1);
        are_the_same(expected, templated(values).unwrap());
    }
}

/// Where another program approves, there is the operator alone: no other controller, and no permission of one.
#[test]
fn the_operator_is_installed_without_the_other_controllers() {
    let values = "{controllers: [], operator: {enabled: true}}";
    let objects = kustomized_alone(&["operator"]);
    let permissions: Vec<String> = super::permissions(&objects).into_keys().collect();
    let expected = [
        "countersign-operator",
        "countersign-operator-leader-election",
    ];
    assert_eq!(permissions, expected);
    are_the_same(objects, templated(values).unwrap());
}

fn are_the_same(expected: Vec<Value>, actual: Vec<Value>) {
    let [expected, actual] = [expected, actual].map(|objects| by_name(comparable(objects)));
    let kinds = |objects: &super::Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(kinds(&actual), kinds(&expected));
    for (key, object) in &expected {
        assert_eq!(&actual[key], object, "{key:?}");
    }
}

/// Without what only one of the tools adds: labels, annotations, the hash in the name of a generated ConfigMap.
fn comparable(objects: Vec<Value>) -> Vec<Value> {
    let mut text = serde_json::to_string(&objects).unwrap();
    for map in of_kind(&objects, "ConfigMap") {
        let name = map["metadata"]["name"].as_str().unwrap();
        for given in ["countersign-config", "countersign-operator-config"] {
            if name
                .strip_prefix(given)
                .is_some_and(|hash| hash.starts_with('-'))
            {
                text = text.replace(name, given);
            }
        }
    }
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
fn values_of_the_operator_reach_it() {
    let objects = templated(
        "
controllers: []
metrics: {port: 9999}
leaderElection: {leaseName: puppet}
operator:
  enabled: true
  authority: {url: 'https://ca.example.com:8140', secretName: admin}
  namespaces: [production, lab]
  crds: {install: false}
  config: {log: {format: text}}
  caPorts: [8140, 9140]
  caCidrs: [192.0.2.0/24]
  replicas: 2
  extraArgs: [--verbose]
",
    )
    .unwrap();
    assert_eq!(of_kind(&objects, "CustomResourceDefinition").count(), 0);
    assert_eq!(
        container(&objects)["args"],
        json!([
            "cluster",
            "--config=/etc/countersign/countersign.yaml",
            "--controllers=operator",
            "--server=https://ca.example.com:8140",
            "--cert=/etc/countersign-authority/admin.pem",
            "--key=/etc/countersign-authority/admin-key.pem",
            "--cacert=/etc/countersign-authority/ca.pem",
            "--operator-namespace=production",
            "--operator-namespace=lab",
            "--leader-elect=true",
            "--lease-namespace=countersign-system",
            "--lease-name=puppet-operator",
            "--verbose",
        ])
    );
    // Secrets of these namespaces, and of no other.
    assert_eq!(of_kind(&objects, "ClusterRole").count(), 0);
    let everywhere = templated("operator: {enabled: true}").unwrap();
    let everywhere = super::permissions(&everywhere).remove("countersign-operator");
    let objects = by_name(comparable(objects));
    let get = |kind: &str, namespace: &str, name: &str| {
        &objects[&(kind.to_owned(), namespace.to_owned(), name.to_owned())]
    };
    for namespace in ["production", "lab"] {
        let role = get("Role", namespace, "countersign-operator").clone();
        let rules = super::permissions(&[role]).remove("countersign-operator");
        assert_eq!(rules, everywhere);
        let binding = get("RoleBinding", namespace, "countersign-operator");
        let account = json!([{"kind": "ServiceAccount", "name": "countersign-operator", "namespace": SYSTEM}]);
        assert_eq!(binding["subjects"], account);
    }
    let lease = get("Role", SYSTEM, "countersign-operator-leader-election");
    assert_eq!(
        lease["rules"][1]["resourceNames"],
        json!(["puppet-operator"])
    );
    let deployment = get("Deployment", SYSTEM, "countersign-operator");
    assert_eq!(deployment["spec"]["replicas"], 2);
    let volume = &deployment["spec"]["template"]["spec"]["volumes"][0];
    assert_eq!(volume["secret"]["secretName"], "admin");
    assert_eq!(
        get("ConfigMap", SYSTEM, "countersign-operator-config")["data"]["countersign.yaml"],
        json!({"log": {"format": "text"}, "metrics": {"listen": "0.0.0.0:9999"}})
    );
    let network = get("NetworkPolicy", SYSTEM, "countersign-operator");
    let egress = &network["spec"]["egress"][2];
    assert_eq!(egress["ports"][1]["port"], 9140);
    assert_eq!(egress["to"][0]["ipBlock"]["cidr"], "192.0.2.0/24");
}

#[test]
fn values_of_the_admission_webhooks_reach_them() {
    let objects = templated(
        "
controllers: []
metrics: {address: '[::]'}
operator:
  enabled: true
  namespaces: [production, lab]
  admission:
    enabled: true
    secretName: webhook
    caBundle: |
      -----BEGIN CERTIFICATE-----
      AAAA
      -----END CERTIFICATE-----
    annotations: {example.com/a: b}
    failurePolicy: Ignore
    apiServerCidrs: [192.0.2.1/32]
",
    )
    .unwrap();
    let arguments = container(&objects)["args"].as_array().unwrap().iter();
    let arguments: Vec<&Value> = arguments
        .filter(|it| it.as_str().unwrap().starts_with("--admission"))
        .collect();
    assert_eq!(
        arguments,
        [
            "--admission-listen=[::]:9443",
            "--admission-cert=/etc/countersign-admission/tls.crt",
            "--admission-key=/etc/countersign-admission/tls.key",
        ]
    );
    let configuration = of_kind(&objects, "ValidatingWebhookConfiguration").next();
    let configuration = configuration.unwrap();
    assert_eq!(
        configuration["metadata"]["annotations"]["example.com/a"],
        "b"
    );
    let webhooks = configuration["webhooks"].as_array().unwrap();
    assert_eq!(webhooks.len(), 2);
    for webhook in webhooks {
        let bundle = webhook["clientConfig"]["caBundle"].as_str().unwrap();
        let bundle = String::from_utf8(BASE64.decode(bundle).unwrap()).unwrap();
        assert!(
            bundle.starts_with("-----BEGIN CERTIFICATE-----\nAAAA\n"),
            "{bundle}"
        );
        assert_eq!(webhook["failurePolicy"], "Ignore");
        // Of other namespaces the operator may not even know which CAs there are.
        assert_eq!(
            webhook["namespaceSelector"]["matchExpressions"],
            json!([{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["production", "lab"]}])
        );
    }
    let objects = by_name(objects);
    let get = |kind: &str, name: &str| {
        objects[&(kind.to_owned(), SYSTEM.to_owned(), name.to_owned())].clone()
    };
    let network = get("NetworkPolicy", "countersign-operator");
    let ingress = &network["spec"]["ingress"][1];
    assert_eq!(ingress["from"][0]["ipBlock"]["cidr"], "192.0.2.1/32");
    let deployment = get("Deployment", "countersign-operator");
    let volume = &deployment["spec"]["template"]["spec"]["volumes"][0];
    assert_eq!(volume["secret"]["secretName"], "webhook");
}

/// Only what is created or changed is asked about: what is deleted is in nobody's way.
#[test]
fn the_webhooks_are_asked_about_two_kinds_and_never_about_a_deletion() {
    let objects = kustomized(&["operator", "operator-admission"]);
    let configuration = of_kind(&objects, "ValidatingWebhookConfiguration").next();
    let webhooks = configuration.unwrap()["webhooks"].as_array().unwrap();
    let rules = webhooks.iter().map(|webhook| {
        let rules = webhook["rules"].as_array().unwrap();
        assert_eq!(rules.len(), 1);
        assert_eq!(webhook["matchPolicy"], "Exact");
        assert_eq!(webhook["sideEffects"], "None");
        assert_eq!(webhook["failurePolicy"], "Fail");
        assert_eq!(webhook["timeoutSeconds"], 5);
        rules[0].clone()
    });
    let rule = |resource: &str| {
        json!({
            "apiGroups": ["openvox.voxpupuli.org"], "apiVersions": ["v1alpha1"],
            "operations": ["CREATE", "UPDATE"], "resources": [resource], "scope": "Namespaced",
        })
    };
    let expected = ["certificates", "signingpolicies"].map(rule);
    assert_eq!(rules.collect::<Vec<Value>>(), expected);
    for objects in [
        kustomized(&["operator"]),
        templated("operator: {enabled: true}").unwrap(),
    ] {
        assert_eq!(
            of_kind(&objects, "ValidatingWebhookConfiguration").count(),
            0
        );
    }
}

/// The approver's selectors and lease are not the operator's.
#[test]
fn the_operator_works_beside_the_approver() {
    let objects = by_name(templated(ALL_VALUES).unwrap());
    let get =
        |kind: &str, name: &str| &objects[&(kind.to_owned(), SYSTEM.to_owned(), name.to_owned())];
    let labels = |name: &str| {
        let metadata = &get("Deployment", name)["spec"]["template"]["metadata"];
        metadata["labels"].clone()
    };
    let (approver, operator) = (labels("countersign"), labels("countersign-operator"));
    for (kind, pointer) in [
        ("Deployment", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
    ] {
        let selector = |name: &str| get(kind, name).pointer(pointer).unwrap().clone();
        assert_eq!(selector("countersign"), approver, "{kind}");
        assert_eq!(selector("countersign-operator"), operator, "{kind}");
    }
    for name in ["countersign", "countersign-operator"] {
        let service = get("Service", &format!("{name}-metrics"));
        assert_eq!(service["spec"]["selector"], labels(name));
        // The ServiceMonitor finds both.
        let wanted = &get("ServiceMonitor", "countersign")["spec"]["selector"]["matchLabels"];
        for (key, value) in wanted.as_object().unwrap() {
            assert_eq!(&service["metadata"]["labels"][key], value);
        }
    }
    assert_ne!(
        approver["app.kubernetes.io/name"],
        operator["app.kubernetes.io/name"]
    );
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
        (
            "controllers: []",
            "controllers is empty and operator.enabled is false: nothing would run",
        ),
        (
            "operator: {enabled: true, authority: {url: 'https://ca.example.com:8140'}}",
            "name the Secret with admin.pem, admin-key.pem and ca.pem",
        ),
        (
            "operator: {enabled: true, authority: {secretName: admin}}",
            "operator.authority.url is empty: write the URL of the authority",
        ),
        (
            "operator: {namespaces: [production]}",
            "nobody would use them. Set operator.enabled=true",
        ),
        (
            "operator: {enabled: true, config: {metrics: {listen: '0.0.0.0:1'}}}",
            "use metrics.address and metrics.port",
        ),
        (
            "operator: {enabled: true, admission: {enabled: true}}",
            "operator.admission.secretName is empty: name the Secret with tls.crt and tls.key",
        ),
        (
            "operator: {enabled: true, admission: {enabled: true, secretName: a}}",
            "operator.admission.caBundle is empty: the API server would not trust the certificate",
        ),
        (
            "operator: {admission: {enabled: true, secretName: a}}",
            "nobody would answer. Set operator.enabled=true",
        ),
        // What the schema of the values says.
        (
            "operator: {enabled: true, admission: {enabled: true, secretName: a, caBundle: LS0t}}",
            "'/operator/admission/caBundle'",
        ),
        (
            "operator: {enabled: true, admission: {failurePolicy: fail}}",
            "'/operator/admission/failurePolicy'",
        ),
        ("preset: strict", "'/preset'"),
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
        (
            "operator: {enabled: true, authority: {url: 'http://ca', secretName: admin}}",
            "'/operator/authority/url'",
        ),
        (
            "operator: {enabled: true, namespaces: ['*']}",
            "'/operator/namespaces/0'",
        ),
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
const ADMISSION: &str = "
operator:
  enabled: true
  admission: {enabled: true, secretName: countersign-operator-admission, annotations: {a: b}}
";
const SIGNER: &str = "
replicas: 1
controllers: [approver, signer, cleaner]
signer: {caSecretName: countersign-cluster-ca}
resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 512Mi}}
";
