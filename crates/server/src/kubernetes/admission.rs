//! What is refused although access rules allow the call: decisions and signatures for signers that somebody has no right
//! to, requests that would make administrators, nodes that ask for other nodes.
//!
//! The rules of the admission plugins `CertificateApproval`, `CertificateSigning`, `CertificateSubjectRestriction` and
//! `NodeRestriction`, which real servers have switched on.

use countersign_kapi::field::go_quote;
use countersign_kapi::rbac::{Attributes, MASTERS, ResourceAction};
use countersign_kapi::{CertificateSigningRequest, Endpoint, GROUP, Resource, UserInfo};
use countersign_pki::CheckedCsr;
use countersign_policy::SignerName;

use super::KubernetesDoor;
use super::answer::Refusal;
use super::authorizer::node_name;
use super::create::read_request;
use super::faults::CLIENT_SIGNER;
use super::identity::User;

impl KubernetesDoor {
    /// Whether the user may decide on, or sign, requests for the stored object's signer. The last thing that is looked at:
    /// who sends something stale or invalid hears that first.
    pub(super) fn admit(
        &self,
        endpoint: Endpoint,
        user: &User,
        signer: &SignerName,
        old: &CertificateSigningRequest,
        new: &CertificateSigningRequest,
    ) -> Result<(), Refusal> {
        let name = &old.metadata.name;
        let refused = match endpoint {
            Endpoint::Approval if !self.may_approve(user, signer) => "approve",
            Endpoint::Status if old.status != new.status && !self.may_sign(user, signer) => "sign",
            Endpoint::Object | Endpoint::Status | Endpoint::Approval => return Ok(()),
        };
        let text = format!(
            "user not permitted to {refused} requests with signerName {}",
            go_quote(signer.as_str())
        );
        Err(Resource::CSR.not_admitted(name, &text).into())
    }

    /// The verb `approve` on the signer; a denial needs it too.
    pub(super) fn may_approve(&self, user: &User, signer: &SignerName) -> bool {
        self.may_with_signer(user.info(), "approve", signer.as_str())
    }

    /// The verb `sign` on the signer.
    pub(super) fn may_sign(&self, user: &User, signer: &SignerName) -> bool {
        self.may_with_signer(user.info(), "sign", signer.as_str())
    }

    /// Rules name a signer, or all signers of a domain as `domain/*`; roles compare names letter by letter.
    pub(super) fn may_with_signer(&self, user: &UserInfo, verb: &str, signer: &str) -> bool {
        let domain = signer.split('/').next().unwrap_or_default();
        [signer, &format!("{domain}/*")].into_iter().any(|name| {
            let asked = Attributes::Resource(ResourceAction {
                verb,
                group: GROUP,
                resource: "signers",
                subresource: "",
                name,
                namespace: "",
            });
            self.authorizer.decide(user, &asked).allowed
        })
    }
}

/// A node asks for itself alone (`NodeRestriction`). This is looked at before the rest of the object.
pub(super) fn restrict_node(
    user: &UserInfo,
    object: &CertificateSigningRequest,
) -> Result<(), Refusal> {
    let spec = &object.spec;
    let Some(node) = node_name(user).filter(|_| NODE_SIGNERS.contains(&spec.signer_name.as_str()))
    else {
        return Ok(());
    };
    let text = match read_request(&spec.request) {
        Ok(csr) if csr.subject().last_common_name() == Some(&user.username) => return Ok(()),
        Ok(_) => format!("can only create a node CSR with CN=system:node:{node}"),
        Err(fault) => format!("unable to parse csr: {fault}"),
    };
    let name = &object.metadata.name;
    Err(Resource::CSR.not_admitted(name, &text).into())
}

/// Nobody becomes an administrator by a request, and the authority's own signers, whose profiles trust their caller,
/// serve none. The text is what the sender is told.
pub(super) fn restrict_subject(csr: &CheckedCsr, signer: &SignerName) -> Result<(), String> {
    if signer.as_str().starts_with(OWN_SIGNERS) {
        return Err(format!(
            "signer {signer} does not serve requests of this API"
        ));
    }
    let mut organizations = csr.subject().organizations();
    if signer.as_str() == CLIENT_SIGNER && organizations.any(|name| name == MASTERS) {
        return Err(format!(
            "use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
        ));
    }
    Ok(())
}

/// The signers of nodes' certificates.
const NODE_SIGNERS: [&str; 2] = [
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/kube-apiserver-client-kubelet",
];
/// The domain of the authority's own signers.
const OWN_SIGNERS: &str = "countersign.dev/";
