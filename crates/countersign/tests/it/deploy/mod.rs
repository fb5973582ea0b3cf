//! What is installed into a cluster (`deploy/`): the chart, the kustomize base and its components, the resource
//! definitions, and the manual about them, on the real Helm, kubectl and API server.

mod chart;
mod manual;
mod openvox;
mod resources;
mod standing;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use countersign_testkit::helm::Helm;
use countersign_testkit::kubectl::Kubectl;
use serde_json::Value;

/// The file or folder below `deploy`.
fn deploy(below: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    root.canonicalize().unwrap().join(below)
}

/// What stands in YAML, however many documents.
fn documents(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    documents.into_iter().filter(|one| !one.is_null()).collect()
}

/// All components that change something on any cluster.
const COMPONENTS: [&str; 9] = [
    "signer",
    "operator",
    "operator-authority",
    "operator-admission",
    "openshift",
    "cluster-api",
    "pod-certificates",
    "enrollment-tokens",
    "monitoring",
];

/// The chart's values for the same.
const ALL_VALUES: &str = "
replicas: 1
controllers: [approver, signer, cleaner]
signer: {caSecretName: countersign-cluster-ca}
resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 512Mi}}
openshift: {enabled: true}
clusterApi: {enabled: true}
podCertificates: {enabled: true, signers: [example.com/pods]}
enrollmentTokens: {enabled: true}
serviceMonitor: {enabled: true}
operator:
  enabled: true
  authority: {url: 'https://puppet.example.com:8140', secretName: countersign-operator-authority}
  admission:
    enabled: true
    secretName: countersign-operator-admission
    annotations: {cert-manager.io/inject-ca-from: countersign-system/countersign-operator-admission}
";

/// Writes an overlay of the base with components, as a reader of the manual would; says where.
fn overlay(folder: &Path, components: &[&str]) -> PathBuf {
    overlay_of(folder, "[../deploy/kustomize/base]", components)
}

/// The same of these resources, with components.
fn overlay_of(folder: &Path, resources: &str, components: &[&str]) -> PathBuf {
    // Kustomize wants relative paths: what it is given stands below one folder.
    let link = folder.join("deploy");
    if !link.exists() {
        copy(&deploy(""), &link);
    }
    let path = folder.join(format!("overlay-{}", components.len()));
    fs::create_dir_all(&path).unwrap();
    let mut text = format!("resources: {resources}\ncomponents:\n");
    for component in components {
        text.push_str(&format!("  - ../deploy/kustomize/components/{component}\n"));
    }
    fs::write(path.join("kustomization.yaml"), text).unwrap();
    path
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let place = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &place),
            false => drop(fs::copy(&path, &place).unwrap()),
        }
    }
}

/// What `kubectl kustomize` makes of the base with components.
fn kustomized(components: &[&str]) -> Vec<Value> {
    let home = tempfile::tempdir().unwrap();
    built(home.path(), &overlay(home.path(), components))
}

/// What it makes of components without the base.
fn kustomized_alone(components: &[&str]) -> Vec<Value> {
    let home = tempfile::tempdir().unwrap();
    built(home.path(), &overlay_of(home.path(), "[]", components))
}

fn built(home: &Path, overlay: &Path) -> Vec<Value> {
    let kubectl = Kubectl::new(&home.join("no-kubeconfig"), home).unwrap();
    let built = kubectl.run(&["kustomize", overlay.to_str().unwrap()]);
    let built = built.unwrap();
    assert!(built.success(), "{built}");
    documents(&built.stdout)
}

/// What `helm template` makes of the chart with these values, or why it makes nothing.
fn templated(values: &str) -> Result<Vec<Value>, String> {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("values.yaml");
    fs::write(&file, values).unwrap();
    let helm = Helm::new(home.path()).unwrap();
    let chart = deploy("helm/countersign");
    let rendered = helm.run(&[
        "template",
        "countersign",
        chart.to_str().unwrap(),
        "--namespace=countersign-system",
        "--kube-version=1.36.0",
        &format!("--values={}", file.display()),
    ]);
    let rendered = rendered.unwrap();
    match rendered.success() {
        true => Ok(documents(&rendered.stdout)),
        false => Err(rendered.stderr),
    }
}

/// Objects by kind, namespace and name.
type Objects = BTreeMap<(String, String, String), Value>;

fn by_name(objects: Vec<Value>) -> Objects {
    let count = objects.len();
    let text = |object: &Value, pointer: &str| {
        let value = object.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let named = objects.into_iter().map(|object| {
        let key = ["/kind", "/metadata/namespace", "/metadata/name"];
        let [kind, namespace, name] = key.map(|pointer| text(&object, pointer));
        ((kind, namespace, name), object)
    });
    let named: Objects = named.collect();
    assert_eq!(named.len(), count, "no object is there twice");
    named
}

fn of_kind<'o>(objects: &'o [Value], kind: &str) -> impl Iterator<Item = &'o Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

/// One line of a role: what may be done to what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Permission {
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    verbs: Vec<String>,
}

/// The permissions of every role, by its namespace and name.
fn permissions(objects: &[Value]) -> BTreeMap<String, Vec<Permission>> {
    let roles = of_kind(objects, "ClusterRole").chain(of_kind(objects, "Role"));
    let texts = |value: &Value| {
        let items = value.as_array().into_iter().flatten();
        let mut texts: Vec<String> = items.map(|item| item.as_str().unwrap().into()).collect();
        texts.sort();
        texts
    };
    roles
        .map(|role| {
            let name = role["metadata"]["name"].as_str().unwrap();
            let rules = role["rules"].as_array().unwrap().iter();
            let rules = rules.map(|rule| Permission {
                groups: texts(&rule["apiGroups"]),
                resources: texts(&rule["resources"]),
                names: texts(&rule["resourceNames"]),
                verbs: texts(&rule["verbs"]),
            });
            (name.to_owned(), rules.collect())
        })
        .collect()
}
