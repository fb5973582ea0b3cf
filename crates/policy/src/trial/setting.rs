//! The world in which a case is decided.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use countersign_pki::UnixTime;
use serde_json::Value;

use crate::document::PolicySet;
use crate::facts::BuildWindow;
use crate::fields::{Field, Fields, Reading};
use crate::token::TokenFacts;
use crate::trial::objects::{ExpectedMachine, Objects};
use crate::verdict::Finding;
use crate::yaml::Content;

/// Where a case's policy is.
#[derive(Clone, Debug)]
pub enum PolicySource {
    /// In a file.
    File(PathBuf),
    /// In the test file itself.
    Inline(Arc<PolicySet>),
}

/// What the rules find when they look.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// The clock; `None`: the caller's.
    pub now: Option<UnixTime>,
    /// Objects that rules may look up, in list order.
    pub objects: Vec<Value>,
    /// Our own machines among them.
    pub(crate) machines: Vec<ExpectedMachine>,
    /// Build windows among them.
    pub(crate) windows: Vec<BuildWindow>,
    /// What names resolve to; a name that is not here does not exist.
    pub dns: BTreeMap<String, DnsAnswer>,
    /// What nodes serve at an address; where nothing is said, nobody listens.
    pub serving: BTreeMap<SocketAddr, ServingAnswer>,
    /// What rules whose evidence is outside find, by their names; without, they are unavailable.
    pub answers: BTreeMap<String, Finding>,
    /// The enrolment token that comes with the request; `None`: what comes with it cannot be known here.
    pub token: Option<TokenFacts>,
    /// Kinds, or kinds and names (`Machine/web01`), whose look-up fails.
    pub unreadable: Vec<String>,
}

/// What a name resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsAnswer {
    /// These.
    Addresses(Vec<IpAddr>),
    /// Nothing comes.
    Timeout,
    /// The resolver fails.
    ServerFailure,
}

/// What a node serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServingAnswer {
    /// This chain, as PEM.
    Chain(String),
    /// Nothing comes.
    Timeout,
}

impl Scene {
    /// What a word for an answer lets a rule find outside.
    pub fn answer(word: &str) -> Option<Finding> {
        let found = ANSWERS.iter().find(|(known, _)| *known == word);
        found.map(|(_, finding)| *finding)
    }

    /// Whether the look-up of an object fails.
    pub(crate) fn is_unreadable(&self, kind: &str, name: &str) -> bool {
        self.unreadable
            .iter()
            .any(|entry| match entry.split_once('/') {
                Some((other, named)) => other == kind && named.eq_ignore_ascii_case(name),
                None => entry == kind,
            })
    }
}

/// What may stand for a whole file and again in a case, where it replaces the former.
#[derive(Clone, Debug, Default)]
pub(super) struct Setting {
    pub(super) policy: Option<PolicySource>,
    pub(super) scene: Arc<Scene>,
}

impl Setting {
    /// Reads what is said here; the rest is as in `above`.
    pub(super) fn read(fields: &Fields<'_>, above: &Self, reading: &mut Reading<'_>) -> Self {
        let policy = fields.get("policy");
        let policy = policy.and_then(|field| policy_source(&field, reading));
        let says_nothing = KEYS
            .iter()
            .all(|key| *key == "policy" || fields.written(key).is_none());
        Self {
            policy: policy.or_else(|| above.policy.clone()),
            scene: match says_nothing {
                true => above.scene.clone(),
                false => Arc::new(scene(fields, &above.scene, reading)),
            },
        }
    }
}

fn policy_source(field: &Field<'_>, reading: &mut Reading<'_>) -> Option<PolicySource> {
    match &field.node.content {
        Content::Map(_) => {
            let set = PolicySet::inline(field.node, reading)?;
            Some(PolicySource::Inline(Arc::new(set)))
        }
        Content::Null
        | Content::Bool(_)
        | Content::Number(_)
        | Content::Text(_)
        | Content::List(_) => field.file_path(reading).map(PolicySource::File),
    }
}

fn scene(fields: &Fields<'_>, above: &Scene, reading: &mut Reading<'_>) -> Scene {
    let mut scene = above.clone();
    if let Some(field) = fields.get("now") {
        scene.now = field.time(reading);
    }
    if let Some(field) = fields.written("objects") {
        let Objects {
            all,
            machines,
            windows,
        } = Objects::read(&field, reading);
        (scene.objects, scene.machines, scene.windows) = (all, machines, windows);
    }
    if let Some(field) = fields.written("dns") {
        scene.dns = entries(&field, reading, |name, field, reading| {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            Some((name, dns_answer(field, reading)?))
        });
    }
    if let Some(field) = fields.written("serving") {
        scene.serving = entries(&field, reading, |address, field, reading| {
            let Ok(address) = address.parse() else {
                let what = "an address and a port belong here, for example 192.0.2.1:10250 or \"[2001:db8::1]:10250\"";
                field.complain(reading, what);
                return None;
            };
            let text = field.text(reading)?;
            let answer = match text.as_str() {
                "timeout" => ServingAnswer::Timeout,
                _ => ServingAnswer::Chain(text),
            };
            Some((address, answer))
        });
    }
    if let Some(field) = fields.written("answers") {
        scene.answers = entries(&field, reading, |rule, field, reading| {
            Some((rule.to_owned(), field.word(&ANSWERS, reading)?))
        });
    }
    if fields.written("unreadable").is_some() {
        let field = fields.get("unreadable");
        scene.unreadable = field.and_then(|f| f.texts(reading)).unwrap_or_default();
    }
    scene
}

fn entries<K: Ord, V>(
    field: &Field<'_>,
    reading: &mut Reading<'_>,
    mut read: impl FnMut(&str, &Field<'_>, &mut Reading<'_>) -> Option<(K, V)>,
) -> BTreeMap<K, V> {
    let Some(fields) = field.any_fields(reading) else {
        return BTreeMap::new();
    };
    let pairs = fields.all();
    pairs
        .filter_map(|(key, field)| read(key, &field, reading))
        .collect()
}

fn dns_answer(field: &Field<'_>, reading: &mut Reading<'_>) -> Option<DnsAnswer> {
    if matches!(field.node.content, Content::List(_)) {
        let items = field.items(reading)?;
        let addresses = items
            .iter()
            .filter_map(|item| item.parsed(str::parse::<IpAddr>, reading));
        return Some(DnsAnswer::Addresses(addresses.collect()));
    }
    let text = field.text(reading)?;
    match text.as_str() {
        "timeout" => Some(DnsAnswer::Timeout),
        "servfail" => Some(DnsAnswer::ServerFailure),
        _ => {
            let what =
                "a list of addresses, or one of the words timeout and servfail, belongs here";
            field.complain(reading, what);
            None
        }
    }
}

pub(super) const KEYS: [&str; 7] = [
    "policy",
    "now",
    "objects",
    "dns",
    "serving",
    "answers",
    "unreadable",
];
const ANSWERS: [(&str, Finding); 4] = [
    ("approve", Finding::Match),
    ("decline", Finding::Absent),
    ("mismatch", Finding::Mismatch),
    ("unavailable", Finding::Unavailable),
];
