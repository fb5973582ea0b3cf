//! Fetches the evidence that a decision lacks: from the index where it is watched, else by a call, a resolver or a dial.

use std::sync::Arc;

use aws_lc_rs::rand;
use countersign_authority::{Clock as _, Question, SystemClock};
use countersign_pki::CheckedCsr;
use countersign_policy::{
    AccessAnswer, AccessQuestion, ClusterFact, ClusterQuery, Evidence, Execution, Identity, Looked,
    Query, Requester, TokenFacts, Webhook, WebhookAnswer, egress_of, network_type_of, node_of,
    object_names,
};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::api::segment;
use crate::controllers::{Rules, Shared};
use crate::dial;
use crate::index::{Answer, Watched};
use crate::objects::CsrObject;
use crate::signing::{ApprovedRequest, Attempt};

/// Adds one answer to what is known.
pub(crate) type Add = Box<dyn FnOnce(Evidence) -> Evidence + Send>;

impl Shared {
    /// Answers one query. Whatever goes wrong is an answer, too: unavailable, with the reason.
    pub(crate) async fn gather(
        self: &Arc<Self>,
        query: Query,
        request: &CsrObject,
        csr: &CheckedCsr,
        rules: &Rules,
    ) -> Add {
        let begun = Instant::now();
        let micros = move || u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        match query {
            Query::Person => Box::new(|evidence| evidence.with_person(None)),
            Query::AutosignFile(path) => {
                let file = rules.local.file(&path).await;
                Box::new(move |evidence| evidence.with_file(path, file, micros()))
            }
            Query::Allowlist(path) => {
                let list = rules.local.list(&path).await;
                Box::new(move |evidence| evidence.with_list(path, list, micros()))
            }
            Query::Execution(executable) => {
                let (path, seconds) = (executable.path, executable.timeout);
                let known = self.remembered(request, &path);
                let said = match known {
                    Some(said) => said,
                    None => {
                        let name = name_of(request, csr);
                        let said = match is_argument(name) {
                            true => {
                                rules
                                    .local
                                    .run_program(&path, seconds, name, None, csr.to_pem())
                                    .await
                            }
                            false => Ok(Execution::Failed(
                                "was not run: such a name is no argument".to_owned(),
                            )),
                        };
                        let said = said.unwrap_or_else(|_| {
                            let why = "was not run: too many others are running";
                            Execution::Unavailable(why.to_owned())
                        });
                        self.remember(request, &path, &said);
                        said
                    }
                };
                Box::new(move |evidence| evidence.with_execution(path, said, micros()))
            }
            Query::Webhook(webhook) => {
                let answer = ask_webhook(&webhook, request, csr, rules).await;
                Box::new(move |evidence| evidence.with_webhook(webhook, answer, micros()))
            }
            Query::Machine => Box::new(move |evidence| {
                evidence.with_machine(Err(no_store("inventory")), micros())
            }),
            Query::Window => Box::new(move |evidence| {
                evidence.with_window(Err(no_store("list of build windows")), micros())
            }),
            Query::Ledger => {
                Box::new(move |evidence| evidence.with_ledger(Err(no_store("ledger")), micros()))
            }
            Query::Token => {
                let looked = self.token(request).await;
                Box::new(move |evidence| evidence.with_token(looked, micros()))
            }
            Query::SubjectAccess(question) => {
                let answer = self.review(&request.spec.requester, &question).await;
                Box::new(move |evidence| evidence.with_access(question, answer, micros()))
            }
            Query::Cluster(query) => {
                let fact = self.cluster_fact(&query, request).await;
                Box::new(move |evidence| evidence.with_cluster(query, fact, micros()))
            }
        }
    }

    /// What whoever signs knows of the token in a request. Where nobody signs here, nobody knows tokens.
    async fn token(&self, request: &CsrObject) -> Looked<TokenFacts> {
        let signer = self.settings.signer.as_ref();
        let Some(signer) = signer.filter(|it| it.serves(&request.spec.signer)) else {
            return Ok(TokenFacts::Missing);
        };
        let undecided = handed_over(request, ("", ""), Attempt::Later);
        signer.token(undecided).await
    }

    /// Asks the API server whether the sender of a request may do something, unless it has just said so.
    async fn review(&self, requester: &Requester, question: &AccessQuestion) -> AccessAnswer {
        let unavailable = |reason: String| AccessAnswer::Unavailable { reason };
        let Identity::User {
            username,
            groups,
            uid,
            extra,
        } = &requester.identity
        else {
            return unavailable("the sender is not a user of the cluster".to_owned());
        };
        let AccessQuestion {
            group,
            resource,
            subresource,
            verb,
            name,
            namespace,
        } = question;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": username, "groups": groups, "uid": uid, "extra": extra,
                "resourceAttributes": {
                    "group": group, "version": "*", "resource": resource, "subresource": subresource,
                    "verb": verb, "name": name, "namespace": namespace,
                },
            },
        });
        let (asked, question) = (Instant::now(), review.to_string());
        if let Some(reason) = self.reviews().allowed(&question, asked) {
            return AccessAnswer::Allowed { reason };
        }
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = match self.api.post(path, &review).await {
            Ok(answer) => answer,
            Err(fault) => return unavailable(fault.to_string()),
        };
        let text = |path: &str| {
            let found = answer.pointer(path).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        // A reviewer that could not look at everything says so beside what it found, for example where a binding names a
        // role that is gone.
        let reason = match (text("/status/reason"), text("/status/evaluationError")) {
            (reason, fault) if fault.is_empty() => reason,
            (reason, fault) if reason.is_empty() => fault,
            (reason, fault) => format!("{reason}; {fault}"),
        };
        match answer.pointer("/status/allowed").and_then(Value::as_bool) {
            Some(true) => {
                self.reviews().remember(question, reason.clone(), asked);
                AccessAnswer::Allowed { reason }
            }
            Some(false) => AccessAnswer::NotAllowed { reason },
            None => unavailable("the API server's review says nothing".to_owned()),
        }
    }

    async fn cluster_fact(
        self: &Arc<Self>,
        query: &ClusterQuery,
        request: &CsrObject,
    ) -> Looked<ClusterFact> {
        // First somebody may have to look for Machines, then to watch them.
        for _ in 0..MAX_STARTS {
            let wanted = self.index().watches_for(query);
            for watched in wanted.intersection(&self.watched()) {
                self.first_read(watched).await;
            }
            let answer = {
                let watched = self.watched();
                self.index()
                    .answer(query, request, &watched, SystemClock.now())
            };
            match answer {
                Answer::Known(fact) => return fact,
                Answer::AskLive => return self.live_fact(query).await,
                Answer::Watch(watched) => self.start_watch(watched),
                Answer::Discover => self.discover().await,
            }
        }
        Err("it takes too long to read".to_owned())
    }

    async fn live_fact(&self, query: &ClusterQuery) -> Looked<ClusterFact> {
        let get = async |path: String| {
            let found = self.api.get(&path).await;
            found.map_err(|fault| format!("{query}: {fault}"))
        };
        match query {
            ClusterQuery::Node(name) => {
                let found = get(format!("/api/v1/nodes/{}", segment(name))).await?;
                let node = found.as_ref().and_then(node_of);
                Ok(ClusterFact::Node(node.map(Arc::new)))
            }
            ClusterQuery::Network => {
                let path = format!("/apis/{}/v1/networks/cluster", object_names::NETWORK_GROUP);
                let found = get(path).await?;
                let kind = found.as_ref().and_then(network_type_of);
                Ok(ClusterFact::Network(kind))
            }
            ClusterQuery::Egress(node) => {
                let node = segment(node);
                let group = object_names::HOST_SUBNET_GROUP;
                let path = format!("/apis/{group}/v1/hostsubnets/{node}");
                let found = get(path).await?;
                Ok(ClusterFact::Egress(found.as_ref().map(egress_of)))
            }
            ClusterQuery::Name(name) => Ok(ClusterFact::Name(self.resolver.look_up(name).await)),
            ClusterQuery::Serving(address) => {
                let served = dial::served(*address, &self.settings.dial).await;
                Ok(ClusterFact::Serving(served))
            }
            ClusterQuery::Machines
            | ClusterQuery::Queue
            | ClusterQuery::Requests { .. }
            | ClusterQuery::Bundle => Err("it is watched, and cannot be asked for".to_owned()),
        }
    }

    /// Waits until all objects of a kind have been read once, or it is clear that they cannot be.
    pub(crate) async fn first_read(&self, watched: &Watched) {
        let read = async {
            loop {
                let changed = self.changed.notified();
                if self.index().is_read(watched) {
                    return;
                }
                changed.await;
            }
        };
        // Whoever has waited in vain is told so, and woken when it is read after all.
        let _late = timeout(FIRST_READ, read).await;
    }
}

async fn ask_webhook(
    webhook: &Webhook,
    request: &CsrObject,
    csr: &CheckedCsr,
    rules: &Rules,
) -> WebhookAnswer {
    let mut id = [0; 16];
    if rand::fill(&mut id).is_err() {
        let reason = "there is no random number for the question".to_owned();
        return WebhookAnswer::Unavailable { reason };
    }
    let id: String = id.iter().map(|octet| format!("{octet:02x}")).collect();
    let question = Question {
        request_id: &id,
        certname: name_of(request, csr),
        signer: request.spec.signer.as_str(),
        requester: &request.spec.requester,
        wishes: &request.spec.wishes,
        csr,
        certificate: None,
        pending: false,
        token: None,
    };
    rules.deciders.ask(webhook, question).await
}

/// A request for whoever signs, with its approval.
pub(crate) fn handed_over<'a>(
    request: &'a CsrObject,
    approval: (&'a str, &'a str),
    attempt: Attempt<'a>,
) -> ApprovedRequest<'a> {
    let spec = &request.spec;
    ApprovedRequest {
        name: &request.name,
        uid: &request.uid,
        signer: &spec.signer,
        requester: &spec.requester,
        wishes: &spec.wishes,
        csr: spec.message.as_ref().map_err(String::as_str),
        created: request.created,
        approval,
        attempt,
    }
}

/// The name that the certificate would have.
pub(crate) fn name_of<'a>(request: &'a CsrObject, csr: &'a CheckedCsr) -> &'a str {
    let in_message = || csr.subject().last_common_name();
    let own = request.spec.subject.as_deref();
    own.or_else(in_message).unwrap_or_default()
}

/// Whether a program can be given this as its only argument without taking it for an option.
fn is_argument(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('-') && !name.contains(char::is_control)
}

fn no_store(what: &str) -> String {
    format!("there is no {what} here: `countersign cluster` approves without a store")
}

const MAX_STARTS: usize = 4;
const FIRST_READ: std::time::Duration = std::time::Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::time::Duration;

    use countersign_policy::Policy;
    use countersign_testkit::api_server::{ApiServer, ApiServerSettings, Controllers};
    use countersign_webhook::{Executables, ThisMachine, Webhooks};
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::index::Watched;
    use crate::objects::tests::request;
    use crate::{CleanerSettings, Cluster, ClusterMetrics, Controller, DialSettings, Settings};

    const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: machines.machine.openshift.io}
spec:
  group: machine.openshift.io
  scope: Namespaced
  names: {plural: machines, singular: machine, kind: Machine, listKind: MachineList}
  versions:
    - name: v1beta1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
"#;
    const MACHINE: &str = r#"
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {name: worker-a, namespace: default}
spec: {}
"#;
    const NODE: &str = "{apiVersion: v1, kind: Node, metadata: {name: worker-a}}";

    async fn connected(kubeconfig: &Path) -> Cluster {
        let rules = Rules {
            policy: Policy::default(),
            deciders: Arc::new(
                Webhooks::load(
                    std::iter::empty(),
                    &countersign_webhook::Settings::default(),
                )
                .unwrap(),
            ),
            local: Arc::new(ThisMachine::new(Executables {
                seconds: 1,
                at_once: 1,
                environment: std::collections::BTreeMap::new(),
                open_files: None,
            })),
            withheld: crate::Withheld::default(),
        };
        let settings = Settings {
            controllers: BTreeSet::from([Controller::Approver]),
            kubeconfig: Some(kubeconfig.to_owned()),
            management_kubeconfig: None,
            election: None,
            cleaner: CleanerSettings::default(),
            dial: DialSettings::default(),
            machines: vec![
                "machine.openshift.io".to_owned(),
                "cluster.x-k8s.io".to_owned(),
            ],
            machine_namespace: None,
            workers: 1,
            signer: None,
            pods: None,
            pod_grace: Duration::from_secs(30),
            operator: crate::OperatorSettings {
                namespaces: Vec::new(),
                authority: None,
                workers: 1,
            },
            instance: "test".to_owned(),
        };
        let metrics = ClusterMetrics::new(&mut Registry::default());
        Cluster::connect(settings, rules, metrics).await.unwrap()
    }

    fn apply(api: &ApiServer, text: &str) {
        let kubectl = api.kubectl().unwrap();
        let applied = countersign_testkit::deadline::ask_again(Duration::from_secs(60), || {
            let finished = kubectl.run_with_input(&["apply", "-f", "-"], text).unwrap();
            finished.success().then_some(())
        });
        assert!(applied.is_some(), "{text}");
    }

    /// A kind of Cluster API, served at these versions.
    fn kind_of_cluster_api(kind: &str, versions: &[&str]) -> String {
        let plural = format!("{}s", kind.to_lowercase());
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let versions: Vec<Value> = ["v1beta1", "v1beta2"]
            .iter()
            .map(|name| {
                json!({
                    "name": name, "served": versions.contains(name), "storage": *name == "v1beta1",
                    "schema": {"openAPIV3Schema": schema},
                })
            })
            .collect();
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.cluster.x-k8s.io"),
                "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
            },
            "spec": {
                "group": "cluster.x-k8s.io",
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": versions,
            },
        });
        definition.to_string()
    }

    /// The group's preferred version may serve other kinds and no Machines.
    #[tokio::test(flavor = "multi_thread")]
    async fn machines_are_found_at_any_version_that_serves_them() {
        let folder = tempfile::tempdir().unwrap();
        let settings = ApiServerSettings {
            controllers: Controllers::None,
            ..ApiServerSettings::default()
        };
        let api = ApiServer::start(folder.path(), &settings).unwrap();
        let shared = connected(&api.admin_kubeconfig()).await.shared();
        let group = "cluster.x-k8s.io";
        assert_eq!(shared.find_machines(group, None).await, Ok(None));
        let at = |version: &str| Ok(Some(version.to_owned()));
        let both = ["v1beta1", "v1beta2"];
        for (served, wanted, found) in [
            (&both[..1], None, at("v1beta1")),
            (&both[..], None, at("v1beta2")),
            (&both[..], Some("v1beta1"), at("v1beta1")),
            (
                &both[..1],
                Some("v1beta2"),
                Err("version v1beta2 serves no Machines".to_owned()),
            ),
            (&both[..1], None, at("v1beta1")),
            (
                &[],
                None,
                Err("none of the versions v1beta2, v1beta1 serves Machines".to_owned()),
            ),
        ] {
            apply(&api, &kind_of_cluster_api("Cluster", &both));
            apply(&api, &kind_of_cluster_api("Machine", served));
            let expected = timeout(Duration::from_secs(60), async {
                while shared.find_machines(group, wanted).await != found {
                    tokio::task::yield_now().await;
                }
            });
            assert!(expected.await.is_ok(), "{served:?} {wanted:?}: {found:?}");
        }
    }

    /// Nothing is watched before somebody asks, what is not there is no error, and what appears wakes who waits for it.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_real_cluster_answers_and_wakes_who_waits() {
        let folder = tempfile::tempdir().unwrap();
        let settings = ApiServerSettings {
            controllers: Controllers::None,
            ..ApiServerSettings::default()
        };
        let api = ApiServer::start(folder.path(), &settings).unwrap();
        let shared = connected(&api.admin_kubeconfig()).await.shared();
        let request = request("r", json!({}));
        let machines = ClusterQuery::Machines;
        let node = ClusterQuery::Node("worker-a".to_owned());
        assert_eq!(shared.watched(), BTreeSet::new());
        let none = Ok(ClusterFact::Machines(Vec::new().into()));
        assert_eq!(shared.cluster_fact(&machines, &request).await, none);
        assert_eq!(
            shared.watched(),
            BTreeSet::new(),
            "there is nothing to watch"
        );
        assert_eq!(
            shared.cluster_fact(&node, &request).await,
            Ok(ClusterFact::Node(None))
        );
        assert_eq!(shared.watched(), BTreeSet::from([Watched::Nodes]));
        let nothing = [
            (ClusterQuery::Bundle, ClusterFact::Bundle(None)),
            (ClusterQuery::Network, ClusterFact::Network(None)),
            (
                ClusterQuery::Egress("worker-a".to_owned()),
                ClusterFact::Egress(None),
            ),
        ];
        for (query, fact) in nothing {
            assert_eq!(
                shared.cluster_fact(&query, &request).await,
                Ok(fact),
                "{query}"
            );
        }

        // A Node comes.
        let woken = async || {
            let name = timeout(Duration::from_secs(60), shared.queue.next()).await;
            shared.queue.done(name.as_deref().unwrap_or_default());
            name
        };
        shared
            .index()
            .wait(&request, &BTreeSet::from([node.clone()]));
        apply(&api, NODE);
        assert_eq!(woken().await.as_deref(), Ok("r"));
        let found = shared.cluster_fact(&node, &request).await;
        assert!(matches!(found, Ok(ClusterFact::Node(Some(_)))), "{found:?}");

        // The whole API of Machines comes, then the Machine, then its node.
        shared
            .index()
            .wait(&request, &BTreeSet::from([machines.clone()]));
        apply(&api, DEFINITION);
        assert_eq!(woken().await.as_deref(), Ok("r"), "the group appeared");
        apply(&api, MACHINE);
        let path = "/apis/machine.openshift.io/v1beta1/namespaces/default/machines/worker-a/status";
        let mut machine = shared.api.get(path).await.unwrap().unwrap();
        machine["status"] = json!({
            "nodeRef": {"kind": "Node", "name": "worker-a"},
            "addresses": [{"type": "InternalIP", "address": "10.20.0.11"}],
        });
        shared.api.put(path, &machine).await.unwrap();
        let found = timeout(Duration::from_secs(60), async {
            loop {
                woken().await.unwrap();
                let found = shared.cluster_fact(&machines, &request).await;
                if let Ok(ClusterFact::Machines(all)) = found
                    && let Some(machine) = all.first().filter(|machine| machine.node.is_some())
                {
                    return machine.clone();
                }
            }
        });
        let machine = found.await.unwrap();
        assert_eq!(machine.name, "default/worker-a");
        assert_eq!(machine.source, "machine.openshift.io/v1beta1");
        assert_eq!(machine.addresses[0].address, "10.20.0.11");
    }
}
