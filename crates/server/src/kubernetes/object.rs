//! Records of the engine as objects of the API, and back.
//!
//! The engine knows who asked whom for what, what was decided and what was signed. The rest of an
//! object (labels, annotations, owners, conditions in their writers' words, the PEM text as it was
//! sent) is kept beside the record as this door's attachment. What the engine decided without this door
//! is shown as a condition all the same.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_authority::{Recorded, RequestRecord, RequestState};
use countersign_kapi::model::{APPROVED, DENIED, FAILED};
use countersign_kapi::{
    CertificateSigningRequest, Condition, ObjectMeta, RequestStatus, Spec, Status, Time, UserInfo,
};
use countersign_pki::{CheckedCsr, UnixTime, pem};
use countersign_policy::{Deciding, Effect, Identity};
use serde::{Deserialize, Serialize};
use tracing::error;

use super::KubernetesDoor;
use super::answer::Refusal;
use super::faults::failure_text;
use super::secrets::{may_be_kept, without_secrets};

/// What this door keeps beside a record.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Attachment {
    /// Labels, annotations, owners, finalizers, the time of deletion. Never name, uid or version:
    /// those are the record's.
    metadata: ObjectMeta,
    /// The PEM text that the client sent, base64; absent if it is the plain form of the message, or has a token in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    /// Conditions as they were written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
    /// The PEM text that a signer elsewhere wrote, base64. What this authority signs is in the ledger alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<String>,
    /// What garbage collection wants to know of it without reading it.
    #[serde(skip_serializing_if = "Option::is_none")]
    certified: Option<Certified>,
}

/// When a certificate from elsewhere was written, and when it ends.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Certified {
    at: i64,
    ends: i64,
}

impl Attachment {
    /// What there is to keep of a new object with this request.
    pub(super) fn of_new(object: &CertificateSigningRequest, csr: &CheckedCsr) -> Self {
        let sent = &object.spec.request;
        let is_kept = *sent != plain_pem(csr.der()) && may_be_kept(sent, csr);
        let request = is_kept.then(|| STANDARD.encode(sent));
        Self {
            request,
            ..Self::default()
        }
        .with_metadata(object)
    }

    /// What a record has.
    pub(super) fn of(record: &RequestRecord) -> Result<Self, Refusal> {
        if record.attachment.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_slice(&record.attachment).map_err(|fault| {
            error!(request = %record.id, %fault, "attachment cannot be read");
            Status::internal_error("the stored object cannot be read").into()
        })
    }

    /// The same with the metadata of an object.
    pub(super) fn with_metadata(self, object: &CertificateSigningRequest) -> Self {
        let metadata = ObjectMeta {
            name: String::new(),
            uid: String::new(),
            resource_version: String::new(),
            creation_timestamp: None,
            ..without_secrets(object.metadata.clone())
        };
        Self { metadata, ..self }
    }

    /// The same with the conditions of an object.
    pub(super) fn with_conditions(self, object: &CertificateSigningRequest) -> Self {
        Self {
            conditions: object.status.conditions.clone(),
            ..self
        }
    }

    /// The same with the certificate of an object, which a signer elsewhere wrote now and which ends then.
    pub(super) fn with_certificate(
        self,
        object: &CertificateSigningRequest,
        now: UnixTime,
        end: UnixTime,
    ) -> Self {
        Self {
            certificate: Some(STANDARD.encode(&object.status.certificate)),
            certified: Some(Certified {
                at: now.0,
                ends: end.0,
            }),
            ..self
        }
    }

    /// Conditions as they were written.
    pub(super) fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// When a signer elsewhere wrote a certificate.
    pub(super) fn certified_at(&self) -> Option<UnixTime> {
        self.certified.map(|certified| UnixTime(certified.at))
    }

    /// When that certificate ends.
    pub(super) fn certificate_end(&self) -> Option<UnixTime> {
        self.certified.map(|certified| UnixTime(certified.ends))
    }

    /// Whether the object waits for its finalizers to be removed.
    pub(super) fn is_being_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The same with the note that the object shall go. `None`: nothing holds it back.
    pub(super) fn marked_deleted(mut self, now: Time) -> Option<Self> {
        if self.metadata.finalizers.is_empty() {
            return None;
        }
        self.metadata.deletion_timestamp = Some(now);
        self.metadata.deletion_grace_period_seconds = Some(0);
        Some(self)
    }

    /// The bytes to store.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        let bytes = serde_json::to_vec(self)
            .map_err(|_| Status::internal_error("the object cannot be stored"))?;
        if bytes.len() > MAX_STORED_BYTES {
            return Err(Status::too_large(&format!("limit is {MAX_STORED_BYTES}")).into());
        }
        Ok(bytes)
    }

    /// The certificate that a signer elsewhere wrote; empty if there is none.
    fn written_certificate(&self, record: &RequestRecord) -> Result<Vec<u8>, Refusal> {
        let Some(text) = &self.certificate else {
            return Ok(Vec::new());
        };
        STANDARD.decode(text).map_err(|fault| {
            error!(request = %record.id, %fault, "the certificate of a signer elsewhere cannot be read");
            Status::internal_error("the stored object cannot be read").into()
        })
    }

    fn sent_request(&self, record: &RequestRecord) -> Vec<u8> {
        let kept = self
            .request
            .as_deref()
            .and_then(|text| STANDARD.decode(text).ok());
        kept.unwrap_or_else(|| plain_pem(&record.csr_der))
    }
}

impl KubernetesDoor {
    /// A record as clients see it.
    pub(super) async fn show(
        &self,
        record: &RequestRecord,
    ) -> Result<CertificateSigningRequest, Refusal> {
        let entry = match &record.certificate {
            Some((issuer, serial)) => self.authority.ledger.get(issuer, serial).await?,
            None => None,
        };
        self.show_with(record, entry.as_ref().map(|entry| &*entry.der))
    }

    /// What an act has left, as clients see it. Nothing is read back but a certificate that somebody else made meanwhile.
    pub(super) async fn show_recorded(
        &self,
        recorded: &Recorded,
    ) -> Result<CertificateSigningRequest, Refusal> {
        match &recorded.certificate {
            Some(entry) => self.show_with(&recorded.request, Some(&entry.der)),
            None => self.show(&recorded.request).await,
        }
    }

    /// The same, with the certificate that the ledger has for it.
    pub(super) fn show_with(
        &self,
        record: &RequestRecord,
        der: Option<&[u8]>,
    ) -> Result<CertificateSigningRequest, Refusal> {
        let attachment = Attachment::of(record)?;
        let request = attachment.sent_request(record);
        let certificate = match &record.certificate {
            Some((issuer, _)) => {
                let text = der.map(|der| {
                    self.authority
                        .issuers
                        .with_intermediates(issuer, der)
                        .into_bytes()
                });
                text.unwrap_or_default()
            }
            None => attachment.written_certificate(record)?,
        };
        let UserInfo {
            username,
            uid,
            groups,
            extra,
        } = user_of(record);
        Ok(CertificateSigningRequest {
            metadata: ObjectMeta {
                name: record.key.clone(),
                uid: record.id.to_string(),
                resource_version: record.version.to_string(),
                creation_timestamp: Time::from_unix(record.created.0),
                ..attachment.metadata
            },
            spec: Spec {
                request,
                signer_name: record.signer.to_string(),
                expiration_seconds: record
                    .wishes
                    .expiration_seconds
                    .and_then(|seconds| i32::try_from(seconds).ok()),
                usages: record.wishes.usages.clone(),
                username,
                uid,
                groups,
                extra,
            },
            status: RequestStatus {
                conditions: self.conditions(record, attachment.conditions),
                certificate,
            },
        })
    }

    /// The authority's time, as the API writes it.
    pub(super) fn now(&self) -> Result<Time, Refusal> {
        let UnixTime(seconds) = self.authority.now();
        let time = Time::from_unix(seconds);
        time.ok_or_else(|| Status::internal_error("the clock is out of range").into())
    }

    /// Written conditions, and those that the engine's state implies beyond them.
    fn conditions(&self, record: &RequestRecord, mut written: Vec<Condition>) -> Vec<Condition> {
        let at = Time::from_unix(record.explanation.at.0);
        let mut imply = |kind: &str, reason: &str, message: String| {
            if !written.iter().any(|condition| condition.kind == kind) {
                written.push(Condition {
                    kind: kind.to_owned(),
                    status: "True".to_owned(),
                    reason: reason.to_owned(),
                    message,
                    last_update_time: at,
                    last_transition_time: at,
                });
            }
        };
        match record.state {
            RequestState::Pending | RequestState::Undecided => {}
            // What was settled from outside has the conditions that were written, and no decision.
            RequestState::Approved | RequestState::Issued | RequestState::Failed
                if record.explanation.effect != Effect::Approve => {}
            RequestState::Approved | RequestState::Issued | RequestState::Failed => {
                let (reason, message) = approval_words(record);
                imply(APPROVED, reason, message);
            }
            RequestState::Denied => imply(DENIED, "CountersignDenied", denial_text(record)),
        }
        if record.state == RequestState::Failed {
            imply(
                FAILED,
                "SignerValidationFailure",
                failure_text(&self.authority, record),
            );
        }
        written
    }
}

/// Reason and message of an approval. What roles have approved is told as Kubernetes' own approver tells it, and then
/// by which rule and binding.
fn approval_words(record: &RequestRecord) -> (&'static str, String) {
    let explanation = &record.explanation;
    let by_role = explanation.steps.last();
    let by_role = by_role.filter(|step| step.kind.split('+').any(|kind| kind == SUBJECT_ACCESS));
    match (&explanation.by, by_role) {
        (Some(Deciding::Rule { name, policy }), Some(step)) => {
            let sentence = step.reason.trim_end_matches('.');
            let by = format!("Approved by rule {name} of policy {policy}");
            ("AutoApproved", format!("{sentence}. {by}: {}", step.saw))
        }
        (_, _) => ("CountersignApproved", explanation.in_short()),
    }
}

/// What was wrong with a token is told to nobody who shows one: an explanation has it, for administrators.
fn denial_text(record: &RequestRecord) -> String {
    match record.explanation.code.is_about_token() {
        true => format!("certificate request not authorised (request {})", record.id),
        false => record.explanation.in_short(),
    }
}

fn user_of(record: &RequestRecord) -> UserInfo {
    let named = |username: &str| UserInfo {
        username: username.to_owned(),
        ..UserInfo::default()
    };
    match &record.requester.identity {
        Identity::User {
            username,
            groups,
            uid,
            extra,
        } => UserInfo {
            username: username.clone(),
            uid: uid.clone(),
            groups: groups.clone(),
            extra: extra.clone(),
        },
        Identity::Certname { certname } => named(certname),
        Identity::Anonymous => named("system:anonymous"),
        Identity::Authority => UserInfo::default(),
    }
}

fn plain_pem(message: &[u8]) -> Vec<u8> {
    pem::encode("CERTIFICATE REQUEST", message).into_bytes()
}

/// The kind of rule by which a role approves.
const SUBJECT_ACCESS: &str = "subjectAccess";
/// What etcd takes by default; clients are used to it.
const MAX_STORED_BYTES: usize = 1536 * 1024;
