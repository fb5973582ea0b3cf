//! `POST /kubernetes-users`: an administrator makes somebody a user of the Kubernetes door, and decides in the same call.
//!
//! The user's name and groups are the administrator's word: no request through a door becomes such a certificate.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use countersign_authority::{Door, IssuerId, Submission, looks_like_a_token};
use countersign_pki::{CheckedCsr, CsrLimits, pem, terminal_safe};
use countersign_policy::{PersonDecision, PersonVerdict, Requester, SignerName, Wishes};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::info;

use super::faults::Refusal;
use super::number;
use super::operation::{Operation, Tag};
use super::requests::{MAX_REASON, refuse_long, unreadable};
use super::{Administrator, EnrolDoor, json, required_body};
use crate::kubernetes::is_token_name;

/// Who signs the certificates of users.
#[derive(Clone)]
pub(super) struct UserSigner {
    pub(super) signer: SignerName,
    pub(super) issuer: IssuerId,
}

/// What is asked for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "KubernetesUserRequest")]
pub(super) struct Asked {
    /// PKCS#10 in PEM: its common name is the user's name, each of its organizations a group of the user.
    csr: String,
    /// Why, for the record; at most 1024 characters.
    #[serde(default)]
    #[schemars(length(max = MAX_REASON))]
    reason: String,
    /// How long the certificate shall live; the signer's maximum is a year.
    #[serde(default, deserialize_with = "number::optional")]
    #[schemars(range(min = 1, max = number::MAX))]
    lifetime_seconds: Option<u64>,
}

/// A user of the Kubernetes door.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KubernetesUser")]
struct UserItem {
    /// The user's name.
    name: String,
    /// The user's groups.
    groups: Vec<String>,
    /// The certificate in PEM.
    certificate: String,
    /// The CA certificates that verify the Kubernetes door, in PEM.
    ca: String,
    /// The issuer of the certificate.
    issuer: String,
    /// Its serial.
    serial: String,
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
.body::<Asked>()
.answers::<UserItem>(201, "The user's certificate.");

pub(super) async fn create(
    State(door): State<EnrolDoor>,
    Administrator(actor): Administrator,
    body: Bytes,
) -> Result<Response, Refusal> {
    let asked: Asked = required_body(&body)?;
    let UserSigner { signer, issuer } = door.user_signer()?;
    let submission = examined(&door, asked, &signer, actor)?;
    let (subject, id) = (submission.csr.subject().clone(), issuer);
    let name = subject.last_common_name().unwrap_or_default().to_owned();
    let submitted = door.authority().submit(submission).await?;
    let issued = submitted.issued.ok_or_else(unreadable)?;
    let issuer = door.authority().issuer(&id).ok_or_else(unreadable)?;
    info!(user = ?name, request = %submitted.id, "certificate of a Kubernetes user issued");
    let item = UserItem {
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
    fn user_signer(&self) -> Result<UserSigner, Refusal> {
        self.shared.users.clone().ok_or_else(|| Refusal::Invalid {
            what: "this authority serves no Kubernetes door: set kubernetes.listen".to_owned(),
        })
    }
}

/// Everything that can be wrong is found before anything is stored.
fn examined(
    door: &EnrolDoor,
    asked: Asked,
    signer: &SignerName,
    actor: Requester,
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
    let found = door.authority().signer(signer);
    if let Some(Err(fault)) = found.map(|signer| signer.profile.examine(&csr, &key, &wishes)) {
        return Err(Refusal::Unsignable {
            what: format!(
                "a certificate for {} cannot be signed: {fault}",
                terminal_safe(&name)
            ),
        });
    }
    Ok(Submission {
        door: Door::LOCAL,
        key,
        csr,
        signer: signer.clone(),
        requester: actor.clone(),
        wishes,
        retained: false,
        attachment: Vec::new(),
        decision: Some(PersonDecision {
            verdict: PersonVerdict::Approve,
            actor,
            at: door.authority().now(),
            reason: asked.reason,
        }),
    })
}

const USAGES: [&str; 2] = ["digital signature", "client auth"];
const ANONYMOUS: &str = "system:anonymous";
