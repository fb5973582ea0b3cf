//! Approvals by role, as objects show them.

use std::sync::Arc;

use countersign_authority::AccessReviews;
use countersign_policy::{AccessAnswer, AccessQuestion, Requester};
use countersign_testkit::csr::CsrBuilder;
use serde_json::json;

use super::{Api, condition_types, manifest_of, path_of};

/// A role that everybody has.
struct Bound(&'static str);

impl AccessReviews for Bound {
    fn review(&self, _: &Requester, question: &AccessQuestion) -> AccessAnswer {
        let reason = r#"RBAC: allowed by ClusterRoleBinding "nodes""#.to_owned();
        match question.subresource == self.0 {
            true => AccessAnswer::Allowed { reason },
            false => AccessAnswer::NotAllowed {
                reason: String::new(),
            },
        }
    }
}

#[tokio::test]
async fn a_kubelets_certificate_is_approved_in_kubernetes_words() {
    let api = Api::start().await;
    api.world.set_policy(KUBELET_CLIENTS);
    let user = "kubernetes-admin";
    for (index, (role, common_name, sentence, rule)) in [
        ("nodeclient", "system:node:a", OTHER, "node-client"),
        ("selfnodeclient", user, SELF, "self-node-client"),
    ]
    .into_iter()
    .enumerate()
    {
        api.world
            .authority
            .set_access_reviews(Arc::new(Bound("no such role")));
        let name = format!("csr-{index}");
        let mut object = manifest_of(&name, &CsrBuilder::new(common_name));
        object["spec"]["signerName"] = json!("kubernetes.io/kube-apiserver-client-kubelet");
        let waits = api.create(&object).await;
        assert_eq!(waits["spec"]["username"], user, "{name}");
        assert_eq!(waits["status"], json!({}), "{name}");

        let reviews = Arc::new(Bound(role));
        api.world.authority.set_access_reviews(reviews);
        let settled = api
            .world
            .authority
            .requests
            .reconsider_access()
            .await
            .unwrap();
        assert_eq!(settled, 1, "{name}");
        let approved = api.get(&path_of(&waits)).await.ok();
        assert_eq!(condition_types(&approved), ["Approved"], "{name}");
        let condition = &approved["status"]["conditions"][0];
        assert_eq!(condition["reason"], "AutoApproved", "{name}");
        let asked = format!("create certificatesigningrequests/{role} of certificates.k8s.io");
        let message = format!(
            "{sentence} Approved by rule {rule} of policy built-in.kubelet-clients: {asked}: \
             RBAC: allowed by ClusterRoleBinding \"nodes\""
        );
        assert_eq!(condition["message"], message, "{name}");
    }
}

const KUBELET_CLIENTS: &str =
    include_str!("../../../../countersign/src/built_in/kubelet-clients.yaml");
/// The words of Kubernetes' approver, which scripts look for.
const SELF: &str = "Auto approving self kubelet client certificate after SubjectAccessReview.";
const OTHER: &str = "Auto approving kubelet client certificate after SubjectAccessReview.";
