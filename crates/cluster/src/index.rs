//! What the cluster looks like now, as far as anybody here needs to know: fed by watch events, asked by whoever decides.
//!
//! It is pure: no I/O, no clock. Every change says which requests it concerns ([`Woken`]), so that a request which lacked a
//! Machine is looked at when that Machine appears, and not before.

mod kinds;
mod machines;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersign_pki::{CheckedCsr, UnixTime};
use countersign_policy::{
    ClusterFact, ClusterNode, ClusterQuery, ClusterRequest, Looked, bundle_of, node_of,
    object_names,
};
use serde_json::Value;

use self::kinds::{NOT_READ, Objects};
use self::machines::{Snapshot, Source, SourceState, folded};
use self::turns::Brake;
use crate::objects::{self, CsrObject};

/// A kind of objects that is watched, once somebody asks for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Watched {
    /// CertificateSigningRequests: always.
    Requests,
    /// The Machines of one source, for example `machine.openshift.io/v1beta1`.
    Machines(String),
    Nodes,
    /// The ConfigMap with the authorities of what nodes serve.
    Bundle,
    /// The ConfigMap with OpenShift's switch.
    Switch,
}

/// One event of a watch.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// All there is.
    All(Vec<Value>),
    /// One is new or different.
    Set(Value),
    /// One is gone.
    Gone(Value),
    /// They cannot be read, in words; what was known still stands.
    Unreadable(String),
}

/// Names of requests that are worth looking at again.
pub(crate) type Woken = BTreeSet<String>;

/// See above.
#[derive(Debug, Default)]
pub(crate) struct Index {
    requests: BTreeMap<String, Arc<CsrObject>>,
    requests_are_read: bool,
    /// By signer and node.
    of_node: BTreeMap<(String, String), BTreeSet<String>>,
    /// The sources in the order of the configuration, each with what discovery found.
    sources: Vec<Source>,
    nodes: Objects<ClusterNode>,
    bundle: Objects<Arc<str>>,
    switch: Objects<Switch>,
    /// All Machines of all sources, while nothing has changed since somebody asked.
    machines: Option<Snapshot>,
    /// What pending requests have looked at, and who has looked at what.
    waiting: BTreeMap<String, BTreeSet<Topic>>,
    watchers: BTreeMap<Topic, BTreeSet<String>>,
    brake: Brake,
}

/// OpenShift's switch, as it stands in its ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// Node client certificates are approved.
    On,
    /// They are not.
    Off,
    /// It cannot be understood, in words: they are not.
    Broken(String),
}

/// What a pending request may be woken by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    /// A Machine that has to do with a node of this name, in lower case.
    Machine(String),
    /// Any source of Machines came, went or recovered.
    Sources,
    Node(String),
    Bundle,
    Switch,
    /// Requests for the same node, by signer and node.
    Siblings(String, String),
}

/// What the switch and sources say for one decision, and what has to be asked elsewhere.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// This.
    Known(Looked<ClusterFact>),
    /// Nobody watches that yet.
    Watch(Watched),
    /// The sources of Machines have to be looked for first.
    Discover,
    /// It is not in the index and never will be, or has to be asked anew: a live call, a resolver, a dial.
    AskLive,
}

impl Index {
    /// An index that expects Machines from these API groups, in this order.
    pub(crate) fn new(groups: &[String]) -> Self {
        let source = |group: &String| Source {
            group: group.clone(),
            state: SourceState::New,
        };
        Self {
            sources: groups.iter().map(source).collect(),
            ..Self::default()
        }
    }

    /// Takes in what a watch says.
    pub(crate) fn apply(&mut self, watched: &Watched, change: Change) -> Woken {
        match watched {
            Watched::Requests => self.apply_to_requests(change),
            Watched::Machines(source) => self.apply_to_machines(source, change),
            Watched::Nodes => {
                let changed = self.nodes.apply(change, node_of);
                let topics = changed.keys.into_iter().map(Topic::Node);
                self.woken(topics.chain(changed.recovered.then_some(Topic::Sources)))
            }
            Watched::Bundle => {
                let bundle = |object: &Value| bundle_of(object).map(Arc::from);
                let changed = self.bundle.apply(change, bundle);
                self.woken(changed.is_any().then_some(Topic::Bundle))
            }
            Watched::Switch => {
                let changed = self.switch.apply(change, read_switch);
                self.woken(changed.is_any().then_some(Topic::Switch))
            }
        }
    }

    /// A request.
    pub(crate) fn request(&self, name: &str) -> Option<Arc<CsrObject>> {
        self.requests.get(name).map(Arc::clone)
    }

    /// All of them.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Arc<CsrObject>> {
        self.requests.values()
    }

    /// Whether all objects of a kind have been read once, or are known to be unreadable.
    pub(crate) fn is_read(&self, watched: &Watched) -> bool {
        fn is_read<T>(objects: &Objects<T>) -> bool {
            objects.unreadable.as_deref() != Some(NOT_READ)
        }
        match watched {
            Watched::Requests => self.requests_are_read,
            Watched::Nodes => is_read(&self.nodes),
            Watched::Bundle => is_read(&self.bundle),
            Watched::Switch => is_read(&self.switch),
            Watched::Machines(name) => self.sources.iter().any(|source| match &source.state {
                SourceState::Served { version, machines } => version == name && is_read(machines),
                SourceState::New | SourceState::Unknown(_) | SourceState::Absent => false,
            }),
        }
    }

    /// What has to be watched to answer a query.
    pub(crate) fn watches_for(&self, query: &ClusterQuery) -> BTreeSet<Watched> {
        match query {
            ClusterQuery::Machines => self.machine_watches(),
            ClusterQuery::Node(_) => BTreeSet::from([Watched::Nodes]),
            ClusterQuery::Queue => {
                let mut watches = self.machine_watches();
                watches.insert(Watched::Nodes);
                watches
            }
            ClusterQuery::Bundle => BTreeSet::from([Watched::Bundle]),
            ClusterQuery::Requests { .. }
            | ClusterQuery::Network
            | ClusterQuery::Egress(_)
            | ClusterQuery::Name(_)
            | ClusterQuery::Serving(_) => BTreeSet::new(),
        }
    }

    /// What the cluster's ConfigMap says of node client certificates; `None`: nobody watches it yet. What cannot be read
    /// counts as off.
    pub(crate) fn switch(&self, watched: &BTreeSet<Watched>) -> Option<Switch> {
        if !watched.contains(&Watched::Switch) {
            return None;
        }
        Some(
            match (&self.switch.unreadable, self.switch.all.values().next()) {
                (_, Some(switch)) => (**switch).clone(),
                (None, None) => Switch::On,
                (Some(why), None) => Switch::Broken(why.clone()),
            },
        )
    }

    /// Answers a query for a decision on `request`, given what is watched already.
    pub(crate) fn answer(
        &mut self,
        query: &ClusterQuery,
        request: &CsrObject,
        watched: &BTreeSet<Watched>,
        now: UnixTime,
    ) -> Answer {
        match query {
            ClusterQuery::Machines => match self.all_machines(now) {
                Ok(machines) => Answer::Known(Ok(ClusterFact::Machines(machines))),
                Err(fault) => fault.into(),
            },
            ClusterQuery::Node(_) if !watched.contains(&Watched::Nodes) => {
                Answer::Watch(Watched::Nodes)
            }
            ClusterQuery::Node(name) => match self.nodes.get(name) {
                // That there is none lets somebody in: who says so must be asked now, not remembered.
                Ok(None) => Answer::AskLive,
                Ok(Some(node)) => Answer::Known(Ok(ClusterFact::Node(Some(node)))),
                Err(why) => Answer::Known(Err(format!("Nodes: {why}"))),
            },
            ClusterQuery::Queue => self.queue(request, watched, now),
            ClusterQuery::Requests { node, signer } => {
                Answer::Known(Ok(ClusterFact::Requests(self.siblings(signer, node))))
            }
            ClusterQuery::Bundle if !watched.contains(&Watched::Bundle) => {
                Answer::Watch(Watched::Bundle)
            }
            ClusterQuery::Bundle => Answer::Known(match self.bundle.first() {
                Ok(bundle) => Ok(ClusterFact::Bundle(bundle.map(|text| Arc::clone(&*text)))),
                Err(why) => {
                    let (namespace, name) = (object_names::BUNDLE_NAMESPACE, object_names::BUNDLE);
                    Err(format!("ConfigMap {namespace}/{name}: {why}"))
                }
            }),
            ClusterQuery::Network
            | ClusterQuery::Egress(_)
            | ClusterQuery::Name(_)
            | ClusterQuery::Serving(_) => Answer::AskLive,
        }
    }

    /// Notes what a request that stays pending has looked at. It is woken when any of that changes.
    pub(crate) fn wait(&mut self, request: &CsrObject, asked: &BTreeSet<ClusterQuery>) {
        self.forget(&request.name);
        let mut topics = BTreeSet::from([Topic::Switch]);
        for query in asked {
            match query {
                ClusterQuery::Machines => {
                    topics.insert(Topic::Sources);
                    let node = request.spec.node.as_deref().unwrap_or_default();
                    topics.insert(Topic::Machine(folded(node)));
                }
                ClusterQuery::Node(name) => {
                    topics.insert(Topic::Node(name.clone()));
                    topics.insert(Topic::Sources);
                }
                ClusterQuery::Bundle => {
                    topics.insert(Topic::Bundle);
                }
                ClusterQuery::Requests { node, signer } => {
                    topics.insert(Topic::Siblings(signer.clone(), node.clone()));
                }
                // These have no watch: a rule that waits for them says so, and is asked again after a while.
                ClusterQuery::Queue
                | ClusterQuery::Network
                | ClusterQuery::Egress(_)
                | ClusterQuery::Name(_)
                | ClusterQuery::Serving(_) => {}
            }
        }
        for topic in &topics {
            let names = self.watchers.entry(topic.clone()).or_default();
            names.insert(request.name.clone());
        }
        self.waiting.insert(request.name.clone(), topics);
    }

    /// A request no longer waits for anything.
    pub(crate) fn forget(&mut self, name: &str) {
        for topic in self.waiting.remove(name).unwrap_or_default() {
            if let Some(names) = self.watchers.get_mut(&topic) {
                names.remove(name);
                if names.is_empty() {
                    self.watchers.remove(&topic);
                }
            }
        }
    }

    /// How many requests wait for evidence, and how many there are.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.waiting.len(), self.requests.len())
    }

    fn apply_to_requests(&mut self, change: Change) -> Woken {
        match change {
            Change::All(objects) => {
                let mut gone: BTreeSet<String> = self.requests.keys().cloned().collect();
                let mut woken = Woken::new();
                for object in objects {
                    let Some((name, is_news)) = self.set_request(object) else {
                        continue;
                    };
                    gone.remove(&name);
                    if is_news {
                        woken.extend(self.woken_siblings(&name));
                        woken.insert(name);
                    }
                }
                for name in gone {
                    woken.extend(self.remove_request(&name));
                }
                self.requests_are_read = true;
                woken
            }
            Change::Set(object) if self.is_old_news(&object) => Woken::new(),
            Change::Set(object) => {
                let mut woken = Woken::new();
                if let Some((name, true)) = self.set_request(object) {
                    woken.extend(self.woken_siblings(&name));
                    woken.insert(name);
                }
                woken
            }
            Change::Gone(object) => {
                let name = object.pointer("/metadata/name").and_then(Value::as_str);
                name.map(|name| self.remove_request(name))
                    .unwrap_or_default()
            }
            Change::Unreadable(_) => Woken::new(),
        }
    }

    /// Takes in what a write has answered, before the watch tells of it; `None` if the request is gone by now, or somebody
    /// has changed it since. Its own name is not woken: whoever wrote it knows.
    pub(crate) fn written(&mut self, object: Value) -> (Option<Arc<CsrObject>>, Woken) {
        let Some((known, version)) = self.known(&object) else {
            return (None, Woken::new());
        };
        if known.version == version {
            // The watch was faster, and has woken the others.
            return (Some(Arc::clone(known)), Woken::new());
        }
        if self.is_old_news(&object) {
            return (None, Woken::new());
        }
        let name = known.name.clone();
        self.set_request(object);
        (self.request(&name), self.woken_siblings(&name))
    }

    /// What is known of the same object, and which version this is.
    fn known<'a>(&self, object: &'a Value) -> Option<(&Arc<CsrObject>, &'a str)> {
        let text = |path: &str| object.pointer(path)?.as_str();
        let known = self.requests.get(text("/metadata/name")?)?;
        let is_same = text("/metadata/uid") == Some(&known.uid);
        is_same.then_some((known, text("/metadata/resourceVersion").unwrap_or_default()))
    }

    /// Whether this state of the same object is known, or a later one: the watch tells of a write after its answer came.
    fn is_old_news(&self, object: &Value) -> bool {
        let numbers = self
            .known(object)
            .map(|(known, version)| (version.parse::<u64>(), known.version.parse::<u64>()));
        matches!(numbers, Some((Ok(version), Ok(known))) if version <= known)
    }

    /// Its name, and whether it is not the state that was known.
    fn set_request(&mut self, object: Value) -> Option<(String, bool)> {
        let name = object.pointer("/metadata/name")?.as_str()?.to_owned();
        let earlier = self.requests.get(&name).map(Arc::clone);
        let read = CsrObject::read(object, earlier.as_deref());
        let version = earlier.as_ref().map(|earlier| earlier.version.clone());
        if let Some(earlier) = &earlier {
            self.brake.leave(earlier);
        }
        if let Some(earlier) = earlier.filter(|e| read.as_ref().is_none_or(|r| r.uid != e.uid)) {
            self.unlink(&earlier);
        }
        let request = Arc::new(read?);
        let is_news = version.as_ref() != Some(&request.version);
        if let Some(key) = sibling_key(&request) {
            self.of_node.entry(key).or_default().insert(name.clone());
        }
        self.brake.enter(&request);
        self.requests.insert(name.clone(), request);
        Some((name, is_news))
    }

    fn remove_request(&mut self, name: &str) -> Woken {
        let woken = self.woken_siblings(name);
        if let Some(request) = self.requests.remove(name) {
            self.unlink(&request);
            self.brake.leave(&request);
        }
        self.forget(name);
        self.brake.forget(name);
        // Whoever works on it finds it gone.
        woken.into_iter().chain([name.to_owned()]).collect()
    }

    fn unlink(&mut self, request: &CsrObject) {
        let Some(key) = sibling_key(request) else {
            return;
        };
        if let Some(names) = self.of_node.get_mut(&key) {
            names.remove(&request.name);
            if names.is_empty() {
                self.of_node.remove(&key);
            }
        }
    }

    /// Those that wait for others of the same node, without the one in question.
    fn woken_siblings(&self, name: &str) -> Woken {
        let request = self.requests.get(name);
        let key = request.and_then(|request| sibling_key(request));
        let topic = key.map(|(signer, node)| Topic::Siblings(signer, node));
        let mut woken = self.woken(topic);
        woken.remove(name);
        woken
    }

    fn woken(&self, topics: impl IntoIterator<Item = Topic>) -> Woken {
        let topics = topics.into_iter();
        let names = topics.filter_map(|topic| self.watchers.get(&topic));
        names.flatten().cloned().collect()
    }

    /// The approved requests of the same signer for the nodes that a request speaks of, without itself.
    pub(crate) fn approved_beside(&self, request: &CsrObject) -> BTreeSet<String> {
        let sender = objects::node_name(request.username());
        let nodes = request.spec.node.as_deref().into_iter().chain(sender);
        let signer = request.spec.signer.as_str();
        let names =
            nodes.filter_map(|node| self.of_node.get(&(signer.to_owned(), node.to_owned())));
        let is_approved =
            |name: &&String| self.requests.get(*name).is_some_and(|it| it.is("Approved"));
        let others = names.flatten().filter(|name| **name != request.name);
        others.filter(is_approved).cloned().collect()
    }

    fn siblings(&self, signer: &str, node: &str) -> Arc<[ClusterRequest]> {
        let names = self.of_node.get(&(signer.to_owned(), node.to_owned()));
        let names = names.into_iter().flatten();
        let mut siblings: Vec<ClusterRequest> = names
            .filter_map(|name| self.requests.get(name))
            .map(|request| ClusterRequest {
                name: request.name.clone(),
                created: request.created,
                key: request
                    .spec
                    .message
                    .as_ref()
                    .ok()
                    .map(CheckedCsr::key_fingerprint),
                approved: request
                    .condition("Approved")
                    .map(|condition| condition.updated.unwrap_or(request.created)),
                refused: request.is("Denied") || request.is("Failed"),
                issued: request.certificate.is_some(),
            })
            .collect();
        siblings.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        siblings.into()
    }
}

fn read_switch(object: &Value) -> Option<Switch> {
    let text = objects::config_value(object, SWITCH_KEY)?;
    Some(match objects::is_switched_off(&text) {
        Ok(false) => Switch::On,
        Ok(true) => Switch::Off,
        Err(why) => Switch::Broken(why),
    })
}

fn sibling_key(request: &CsrObject) -> Option<(String, String)> {
    let node = request.spec.node.clone()?;
    Some((request.spec.signer.as_str().to_owned(), node))
}

pub(crate) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";

const SWITCH_KEY: &str = "config.yaml";

#[cfg(test)]
mod tests;
