//! `POST /kubernetes-users`: an administrator makes somebody a user of the Kubernetes door, and decides in the same call.
//!
//! The user's name and groups are the administrator's word: no request through a door becomes such a certificate.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use countersign_api::{KubernetesUser, KubernetesUserRequest};
use countersign_authority::{Actor, Decision, DoorSpec, IssuerId, Submission, looks_like_a_token};
use countersign_pki::{CheckedCsr, CsrLimits, pem, terminal_safe};
use countersign_policy::{PersonVerdict, SignerName, Wishes};
use http::StatusCode;
use tracing::info;

use super::faults::Refusal;
use super::operation::{Operation, Tag};
use super::requests::{refuse_long, unreadable};
use super::{Administrator, EnrolDoor, json, required_body};
use crate::kubernetes::is_token_name;

/// Who signs the certificates of users.
#[derive(Clone)]
pub(super) struct UserSigner {
    pub(super) signer: SignerName,
    pub(super) issuer: IssuerId,
}

pub(super) const CREATE: Operation = Operation::new(
    "createKubernetesUser",
    Tag::Requests,
    "Make a user of the Kubernetes door",
)
.about(
    "An administrator names a user and its groups, and decides in the same call. What the user may do is said by the \
     roles that are bound to it and its groups.",
)
.body::<KubernetesUserRequest>()
.answers::<KubernetesUser>(201, "The user's certificate.");

pub(super) async fn create(
    State(door): State<EnrolDoor>,
    Administrator(actor): Administrator,
    body: Bytes,
) -> Result<Response, Refusal> {
    let asked: KubernetesUserRequest = required_body(&body)?;
    let UserSigner { signer, issuer } = door.user_signer()?;
    let submission = examined(&door, asked, &signer, actor)?;
    let (subject, id) = (submission.csr.subject().clone(), issuer);
    let name = subject.last_common_name().unwrap_or_default().to_owned();
    let submitted = door.authority().requests.submit(submission).await?;
    let issued = submitted.issued.ok_or_else(unreadable)?;
    let issuer = door.authority().issuers.get(&id).ok_or_else(unreadable)?;
    info!(user = name, request = %submitted.id, "certificate of a Kubernetes user issued");
    let item = KubernetesUser {
        groups: subject.organizations().map(str::to_owned).collect(),
        certificate: pem::encode("CERTIFICATE", issued.der()),
        ca: issuer.trust_pem(),
        issuer: id.to_string(),
        serial: issued.intent().serial.to_string(),
        name,
    };
    Ok(json(StatusCode::CREATED, &item))
}

impl EnrolDoor {
    /// The CA certificates that verify the Kubernetes door, if there is one.
    pub(super) fn trusted_by_users(&self) -> Option<String> {
        let UserSigner { issuer, .. } = self.shared.users.as_ref()?;
        Some(self.authority().issuers.get(issuer)?.trust_pem())
    }

    fn user_signer(&self) -> Result<UserSigner, Refusal> {
        self.shared.users.clone().ok_or_else(|| Refusal::Invalid {
            what: "this authority serves no Kubernetes door: set kubernetes.listen".to_owned(),
        })
    }
}

/// Everything that can be wrong is found before anything is stored.
fn examined(
    door: &EnrolDoor,
    asked: KubernetesUserRequest,
    signer: &SignerName,
    actor: Actor,
) -> Result<Submission, Refusal> {
    let invalid = |what: String| Refusal::Invalid { what };
    refuse_long(&asked.reason)?;
    let csr = CheckedCsr::from_pem(asked.csr.as_bytes(), &CsrLimits::STANDARD)
        .map_err(|fault| invalid(format!("csr: {fault}")))?;
    let names: Vec<&str> = csr.subject().common_names().collect();
    let name = match names.as_slice() {
        [name] if !name.is_empty() => (*name).to_owned(),
        _ => {
            let what = "csr: its subject must have one common name, the user's name".to_owned();
            return Err(invalid(what));
        }
    };
    if is_token_name(&name) || name == ANONYMOUS || looks_like_a_token(&name) {
        let what = format!("{} is nobody's name: choose another", terminal_safe(&name));
        return Err(invalid(what));
    }
    let wishes = Wishes {
        usages: USAGES.map(str::to_owned).to_vec(),
        expiration_seconds: asked.lifetime_seconds,
    };
    let key = format!("kubernetes-user:{name}");
    let found = door.authority().rules().signer(signer);
    if let Some(Err(fault)) = found.map(|signer| signer.profile.examine(&csr, &key, &wishes)) {
        return Err(Refusal::Unsignable {
            what: format!(
                "a certificate for {} cannot be signed: {fault}",
                terminal_safe(&name)
            ),
        });
    }
    Ok(Submission {
        door: DoorSpec::LOCAL,
        key,
        csr,
        signer: signer.clone(),
        requester: actor.requester.clone(),
        wishes,
        attachment: Vec::new(),
        bearer: None,
        decision: Some(Decision {
            actor,
            verdict: PersonVerdict::Approve,
            reason: asked.reason,
            confirmation: None,
        }),
    })
}

const USAGES: [&str; 2] = ["digital signature", "client auth"];
const ANONYMOUS: &str = "system:anonymous";
