//! Works on one request of a pod: reads it and what it speaks of, asks the policy, has it signed, writes the outcome.

use std::collections::BTreeSet;
use std::sync::Arc;

use countersign_authority::{Clock as _, SystemClock};
use countersign_pki::CheckedCsr;
use countersign_policy::{PodFacts, Verdict, Wishes};
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use super::judgement::{Finding, Judged, Looked, Surroundings, compare, examine};
use super::objects::{Pod, PodRequest, uid_of};
use super::signing::{PodOrder, PodSigner, PodSigning, PodTerms};
use super::{VERSION, status};
use crate::api::{CallFault, segment};
use crate::controllers::{Next, Rules, Shared};
use crate::delivery::{Delivery, Sight};
use crate::events::{About, Told};
use crate::objects::{CsrObject, CsrSpec};
use crate::plan::{Action, Reason, plan, shortened};
use crate::queue::Pause;
use crate::resources::Hold;

impl Shared {
    /// Does whatever is to be done with a request now. `key` is `namespace/name`.
    pub(crate) async fn work_on_pod(self: &Arc<Self>, key: &str) -> Next {
        let Some(signer) = self.settings.pods.clone() else {
            return Next::Done;
        };
        let Some((namespace, name)) = key.split_once('/') else {
            return Next::Done;
        };
        let path = request_path(namespace, name);
        let request = match self.api.get(&path).await {
            Ok(found) => found.and_then(PodRequest::read),
            Err(fault) => {
                debug!(request = key, %fault, "cannot be read");
                return Next::Again(Pause::Fault);
            }
        };
        self.look_at_delivery(key, request.as_ref());
        if let Some(next) = self.revoke_lost(key).await {
            return next;
        }
        let Some(request) = request.filter(|request| !request.is_over) else {
            self.forget(key);
            return Next::Done;
        };
        let Some(terms) = signer.terms(&request.signer) else {
            return Next::Done;
        };
        self.answer_pod(&request, &terms, &*signer).await
    }

    async fn answer_pod(
        self: &Arc<Self>,
        request: &PodRequest,
        terms: &PodTerms,
        signer: &dyn PodSigner,
    ) -> Next {
        let (stub, key_type) = match examine(request, terms) {
            Ok(examined) => examined,
            Err(finding) => return self.deny_pod(request, &finding).await,
        };
        let rules = self.rules();
        match rules.hold(&request.signer) {
            Hold::No => {}
            // In these cases other policies wake it.
            Hold::NoRules => {
                let why = format!("no policy names the signer {}", request.signer);
                let finding = Finding::new("NoPolicy", why);
                return self.wait_for_pod(request, &finding).await.next();
            }
            Hold::Quietly => return Next::Done,
            Hold::Because(why) => {
                return self.tell_pod(request, "PolicyPending", &why).await.next();
            }
        }
        let around = self.surroundings(request).await;
        let (now, grace) = (SystemClock.now(), self.settings.pod_grace.as_secs());
        let facts = match compare(request, key_type, around, now, grace) {
            Judged::Fits(facts) => facts,
            Judged::Deny(finding) => return self.deny_pod(request, &finding).await,
            Judged::Wait(finding) => {
                self.wait_for_pod(request, &finding).await;
                return Next::Again(Pause::Evidence);
            }
        };
        self.decide_pod(request, &facts, stub, &rules, signer).await
    }

    async fn decide_pod(
        self: &Arc<Self>,
        request: &PodRequest,
        facts: &PodFacts,
        stub: CheckedCsr,
        rules: &Rules,
        signer: &dyn PodSigner,
    ) -> Next {
        let as_judged = as_judged(request, facts);
        let mut asked = BTreeSet::new();
        let evaluated = self.evaluate(&as_judged, &stub, Some(facts), rules, &mut asked);
        let Some(verdict) = evaluated.await else {
            warn!(request = %as_judged.name, "the policy asks for ever");
            return Next::Again(Pause::Evidence);
        };
        match plan(&verdict) {
            Action::Wait { why, .. } => {
                self.tell_pod(request, "PolicyPending", &why).await;
                Next::Again(Pause::Evidence)
            }
            Action::Decide(condition) => match verdict {
                Verdict::Approve(_) => {
                    let order = PodOrder {
                        name: &as_judged.name,
                        uid: &request.uid,
                        signer: &request.signer,
                        pod: facts,
                        stub: &stub,
                        max_seconds: request.max_seconds,
                        approval: (&condition.reason, &condition.message),
                    };
                    self.sign_for_pod(request, order, signer).await
                }
                Verdict::Deny(_) | Verdict::Pending(_) => {
                    let message = format!("{}: {}", condition.reason, condition.message);
                    let finding = Finding::new("PolicyDenied", message);
                    self.deny_pod(request, &finding).await
                }
            },
        }
    }

    async fn sign_for_pod(
        &self,
        request: &PodRequest,
        order: PodOrder<'_>,
        signer: &dyn PodSigner,
    ) -> Next {
        let key = order.name;
        let certificate = match signer.sign(order).await {
            PodSigning::Certificate(certificate) => certificate,
            PodSigning::Later(why) => {
                let finding = Finding::new("SigningDelayed", why);
                self.wait_for_pod(request, &finding).await;
                return Next::Again(Pause::Evidence);
            }
            PodSigning::Failed { reason, message } => {
                let finding = Finding::new(reason, message);
                return self.refuse_pod(request, "Failed", &finding).await;
            }
        };
        let delivery = Delivery::new(
            &request.uid,
            certificate.id.clone(),
            certificate.chain.clone(),
        );
        self.deliveries.begin(key, delivery);
        if let Some(next) = self.revoke_lost(key).await {
            return next;
        }
        let object = status::issued(request, &certificate, SystemClock.now());
        self.write_pod(request, &object, ISSUED, "").await
    }

    /// Looks whether a certificate has reached its request, or never will.
    fn look_at_delivery(&self, key: &str, request: Option<&PodRequest>) {
        if request.is_none() && self.pods.waiting().contains_key(key) {
            // The watch is about to tell how it was when it was deleted, and wakes it.
            return;
        }
        self.deliveries.look(key, request.map(sight));
    }

    /// The API server has refused an answer for good: what becomes of a certificate in it.
    async fn refused_by_server(&self, key: &str, path: &str) -> Next {
        // An earlier write whose answer was lost may have brought it.
        let found = match self.api.get(path).await {
            Ok(found) => found.and_then(PodRequest::read),
            Err(_) => return Next::Again(Pause::Fault),
        };
        self.look_at_delivery(key, found.as_ref());
        if found.is_some() {
            self.deliveries.refused(key);
        }
        self.revoke_lost(key).await.unwrap_or(Next::Done)
    }

    async fn deny_pod(&self, request: &PodRequest, finding: &Finding) -> Next {
        self.refuse_pod(request, "Denied", finding).await
    }

    async fn refuse_pod(
        &self,
        request: &PodRequest,
        kind: &'static str,
        finding: &Finding,
    ) -> Next {
        let Finding { reason, message } = finding;
        let object = status::refused(request, kind, reason, message, SystemClock.now());
        let outcome = match kind {
            "Failed" => "failed",
            _ => "denied",
        };
        self.write_pod(request, &object, outcome, reason).await
    }

    /// Writes the outcome, for exactly the state that was judged.
    async fn write_pod(
        &self,
        request: &PodRequest,
        object: &Value,
        outcome: &'static str,
        reason: &'static str,
    ) -> Next {
        let PodRequest {
            namespace, name, ..
        } = request;
        let key = format!("{namespace}/{name}");
        let path = format!("{}/status", request_path(namespace, name));
        let written = self.api.put(&path, object).await;
        if outcome == ISSUED {
            self.deliveries.wrote(&key, &written);
        }
        let (wrote, next) = match &written {
            Ok(_) => {
                self.metrics.pod_answered(outcome, reason);
                let age = SystemClock.now().seconds_since(request.created);
                self.metrics.decided_after(age);
                info!(request = key, signer = %request.signer, pod = %request.pod.name, outcome, reason, "answered");
                ("written", Next::Done)
            }
            // It is read again.
            Err(CallFault::Conflict | CallFault::Exists) => {
                debug!(request = key, "has changed meanwhile");
                ("conflict", Next::Again(Pause::Fault))
            }
            Err(CallFault::NotFound) => {
                self.look_at_delivery(&key, None);
                let next = self.revoke_lost(&key).await;
                ("gone", next.unwrap_or(Next::Done))
            }
            Err(CallFault::Invalid(why)) if is_about_signing(why) => {
                warn!(request = key, signer = %request.signer, reason = %why, "the permission `sign` on this signer is missing");
                ("forbidden", Next::Again(Pause::Evidence))
            }
            Err(CallFault::Invalid(why)) => {
                warn!(request = key, reason = %why, "the API server does not take the answer");
                let path = request_path(namespace, name);
                ("refused", self.refused_by_server(&key, &path).await)
            }
            Err(CallFault::Forbidden(why)) => {
                warn!(request = key, reason = %why, "the permission `update` on podcertificaterequests/status is missing");
                ("forbidden", Next::Again(Pause::Evidence))
            }
            Err(fault @ (CallFault::Status { .. } | CallFault::Unreachable(_))) => {
                warn!(request = key, %fault, "not written");
                ("failed", Next::Again(Pause::Fault))
            }
        };
        self.metrics.wrote("pod-status", wrote);
        next
    }

    /// Everything that a request speaks of, as the API server has it now.
    async fn surroundings(&self, request: &PodRequest) -> Surroundings {
        let namespace = segment(&request.namespace);
        let in_namespace = |plural: &str, name: &str| {
            format!("/api/v1/namespaces/{namespace}/{plural}/{}", segment(name))
        };
        let pod = in_namespace("pods", &request.pod.name);
        let account = in_namespace("serviceaccounts", &request.service_account.name);
        let node = format!("/api/v1/nodes/{}", segment(&request.node.name));
        let (pod, account, node) = tokio::join!(
            self.api.get(&pod),
            self.api.get(&account),
            self.api.get(&node)
        );
        Surroundings {
            pod: looked(pod, Pod::read),
            service_account: looked(account, uid_of),
            node: looked(node, uid_of),
        }
    }

    async fn wait_for_pod(&self, request: &PodRequest, finding: &Finding) -> Told {
        let why = Reason {
            rule: String::new(),
            code: finding.reason.to_owned(),
            words: shortened(&finding.message),
        };
        self.tell_pod(request, finding.reason, &why).await
    }

    /// Says once why a request waits.
    async fn tell_pod(&self, request: &PodRequest, code: &'static str, why: &Reason) -> Told {
        self.metrics.pod_answered("waiting", code);
        let regarding = json!({
            "apiVersion": "certificates.k8s.io/v1beta1",
            "kind": "PodCertificateRequest",
            "namespace": request.namespace,
            "name": request.name,
            "uid": request.uid,
        });
        let about = About {
            namespace: &request.namespace,
            controller: "countersign.dev/signer",
            action: "Sign",
            reason: "SigningPending",
            uid: &request.uid,
            regarding,
        };
        let told = self.tell_of(&about, why).await;
        if told == Told::Now {
            info!(
                request = %format_args!("{}/{}", request.namespace, request.name), signer = %request.signer,
                code, rule = %why.rule, reason = %why.words, "waiting"
            );
        }
        told
    }
}

/// It as whoever delivers a certificate sees it.
pub(super) fn sight(request: &PodRequest) -> Sight<'_> {
    let chain = request.chain.as_bytes();
    Sight {
        uid: &request.uid,
        is_over: request.is_over,
        certificate: (!chain.is_empty()).then_some(chain),
    }
}

/// The request as the policy and its evidence take requests: its sender is the service account.
fn as_judged(request: &PodRequest, facts: &PodFacts) -> CsrObject {
    CsrObject {
        name: format!("{}/{}", request.namespace, request.name),
        uid: request.uid.clone(),
        version: String::new(),
        created: request.created,
        deleting: false,
        spec: Arc::new(CsrSpec {
            signer: request.signer.clone(),
            requester: facts.requester(),
            wishes: Wishes {
                usages: Vec::new(),
                expiration_seconds: Some(request.max_seconds),
            },
            message: Err("the message of a pod is its stub".to_owned()),
            node: None,
            subject: Some(facts.username()),
        }),
        conditions: Vec::new(),
        certificate: None,
        body: None,
    }
}

fn looked<T>(
    found: Result<Option<Value>, CallFault>,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Looked<T> {
    match found {
        Ok(Some(object)) => match read(&object) {
            Some(read) => Ok(Some(read)),
            None => Err("it cannot be understood".to_owned()),
        },
        Ok(None) => Ok(None),
        Err(fault) => Err(fault.to_string()),
    }
}

/// Whether the API server refuses a status because its writer may not sign: it says so after everything else was in order.
fn is_about_signing(why: &str) -> bool {
    why.contains("spec.signerName: Forbidden")
}

fn request_path(namespace: &str, name: &str) -> String {
    format!(
        "{VERSION}/namespaces/{}/podcertificaterequests/{}",
        segment(namespace),
        segment(name)
    )
}

const ISSUED: &str = "issued";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_to_sign_is_told_from_other_refusals() {
        for (why, expected) in [
            (
                "PodCertificateRequest.certificates.k8s.io \"r\" is invalid: spec.signerName: Forbidden: User \"u\" is not permitted to \"sign\" for this signer",
                true,
            ),
            (
                "PodCertificateRequest.certificates.k8s.io \"r\" is invalid: status.notBefore: Invalid value: too old",
                false,
            ),
        ] {
            assert_eq!(is_about_signing(why), expected, "{why}");
        }
    }
}
