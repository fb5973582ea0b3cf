//! What is sent, as `calls/*.yaml` says it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

/// One call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) name: String,
    /// Who calls; one of the users, or `anonymous`.
    #[serde(rename = "as", default = "admin")]
    pub(crate) who: String,
    /// Method and path, as in `GET csr/web01?watch=true`; paths without a slash at their beginning begin with a word of
    /// [`PLACES`].
    call: String,
    /// Content-Type of a body.
    #[serde(rename = "type")]
    pub(crate) content_type: Option<String>,
    pub(crate) accept: Option<String>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// One of `objects.yaml`, into which the body is merged (RFC 7386).
    from: Option<String>,
    body: Option<Value>,
    /// A body that is no JSON, or not as it should be.
    text: Option<String>,
    /// So much of the letter x behind the text.
    #[serde(default)]
    padding: usize,
    /// Under this name later calls find parts of the answer, as in `${web.metadata.uid}`.
    pub(crate) keep: Option<String>,
    /// Asked again until the answer has this, as in `status.certificate`.
    pub(crate) until: Option<String>,
    /// Whether it is compared who set which field.
    #[serde(default)]
    pub(crate) owners: bool,
    /// Whether the answer matters; else the call only brings both servers to the same state.
    #[serde(default = "yes")]
    pub(crate) compared: bool,
}

impl Step {
    pub(crate) fn method(&self) -> &str {
        self.call.split_once(' ').unwrap().0
    }

    pub(crate) fn path(&self) -> String {
        let path = self.call.split_once(' ').unwrap().1;
        if path.starts_with('/') {
            return path.to_owned();
        }
        let end = path.find(['/', '?', '-']).unwrap_or(path.len());
        let (word, rest) = path.split_at(end);
        let place = PLACES.iter().find(|(name, _)| *name == word);
        let (_, place) = place.unwrap_or_else(|| panic!("{}: no place {word}", self.name));
        format!("{place}{rest}")
    }

    /// With its placeholders.
    pub(crate) fn body(&self, objects: &BTreeMap<String, Value>) -> String {
        if let Some(text) = &self.text {
            return format!("{text}{}", "x".repeat(self.padding));
        }
        let base = self.from.as_ref().map(|name| {
            let object = objects.get(name);
            object
                .unwrap_or_else(|| panic!("{}: no object {name}", self.name))
                .clone()
        });
        match (base, &self.body) {
            (None, None) => String::new(),
            (None, Some(body)) => body.to_string(),
            (Some(base), None) => base.to_string(),
            (Some(mut base), Some(body)) => {
                merge(&mut base, body);
                base.to_string()
            }
        }
    }
}

/// A request that a built-in signer gets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Certified {
    /// An object of `objects.yaml`.
    of: String,
    request: Option<String>,
    usages: Option<Vec<String>>,
    seconds: Option<u32>,
    /// Whether the signer refuses it.
    #[serde(default)]
    fails: bool,
    #[serde(default)]
    approved: Approval,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
enum Approval {
    #[default]
    #[serde(rename = "by the administrator")]
    ByAdministrator,
    #[serde(rename = "by itself")]
    ByItself,
}

impl Certified {
    fn steps(&self, number: usize) -> Vec<Step> {
        let mut title = self.of.clone();
        let mut spec = serde_json::Map::new();
        if let Some(request) = &self.request {
            title.push_str(&format!(" of {request}"));
            spec.insert("request".into(), format!("${{request:{request}}}").into());
        }
        if let Some(usages) = &self.usages {
            title.push_str(&format!(" for {}", usages.join(", ")));
            spec.insert("usages".into(), usages.clone().into());
        }
        if let Some(seconds) = self.seconds {
            title.push_str(&format!(" for {seconds} s"));
            spec.insert("expirationSeconds".into(), seconds.into());
        }
        let name = format!("certified-{number}");
        let step = |what: &str, call: String| Step {
            name: format!("{title}, {what}"),
            who: admin(),
            call,
            content_type: None,
            accept: None,
            headers: BTreeMap::new(),
            from: None,
            body: None,
            text: None,
            padding: 0,
            keep: None,
            until: None,
            owners: false,
            compared: true,
        };
        let created = Step {
            from: Some(self.of.clone()),
            body: Some(json!({"metadata": {"name": name}, "spec": spec})),
            ..step("created", "POST csr".to_owned())
        };
        let condition =
            json!({"type": "Approved", "status": "True", "reason": "R", "message": "m"});
        let approved = Step {
            content_type: Some("application/merge-patch+json".to_owned()),
            body: Some(json!({"status": {"conditions": [condition]}})),
            // Whether the certificate is there at once is a matter of time.
            compared: false,
            ..step("approved", format!("PATCH csr/{name}/approval"))
        };
        let until = match self.fails {
            true => "status.conditions.1",
            false => "status.certificate",
        };
        let read = Step {
            until: Some(until.to_owned()),
            ..step("read", format!("GET csr/{name}"))
        };
        match self.approved {
            Approval::ByAdministrator => vec![created, approved, read],
            Approval::ByItself => vec![created, read],
        }
    }
}

/// All calls in their order.
pub(crate) fn read() -> Vec<Step> {
    let read = |part: &&str| parse::<Vec<Step>>(&format!("calls/{part}.yaml"));
    let certified: Vec<Certified> = parse("calls/certificates.yaml");
    let certified = certified.iter().enumerate();
    PARTS
        .iter()
        .flat_map(read)
        .chain(certified.flat_map(|(number, certified)| certified.steps(number)))
        .collect()
}

/// The objects that bodies begin with.
pub(crate) fn objects() -> BTreeMap<String, Value> {
    parse("calls/objects.yaml")
}

/// Read when the test runs: the tables are data.
pub(crate) fn parse<T: serde::de::DeserializeOwned>(file: &str) -> T {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/kubernetes_differential");
    let text = fs::read_to_string(folder.join(file)).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|fault| panic!("{file}: {fault}"))
}

fn merge(base: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *base = patch.clone();
        return;
    };
    if !base.is_object() {
        *base = Value::Object(serde_json::Map::new());
    }
    let members = base.as_object_mut().unwrap();
    for (name, value) in patch {
        match value {
            Value::Null => {
                members.remove(name);
            }
            value => merge(members.entry(name.clone()).or_insert(Value::Null), value),
        }
    }
}

fn admin() -> String {
    "admin".to_owned()
}

fn yes() -> bool {
    true
}

const PARTS: [&str; 10] = [
    "creating",
    "reading",
    "changing",
    "deciding",
    "watching",
    "deleting",
    "surface",
    "rights",
    "coordinating",
    "applying",
];

const PLACES: [(&str, &str); 15] = [
    (
        "csr",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    ),
    ("certificates", "/apis/certificates.k8s.io/v1"),
    ("rbac", "/apis/rbac.authorization.k8s.io/v1"),
    (
        "clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ),
    (
        "clusterrolebindings",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    ),
    (
        "roles",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
    ),
    (
        "rolebindings",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
    ),
    ("ssr", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
    ("authorization", "/apis/authorization.k8s.io/v1"),
    ("apis", "/apis"),
    ("core", "/api/v1"),
    ("coordination", "/apis/coordination.k8s.io/v1"),
    (
        "leases",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    ),
    ("events", "/api/v1/namespaces/default/events"),
    (
        "newevents",
        "/apis/events.k8s.io/v1/namespaces/default/events",
    ),
];
