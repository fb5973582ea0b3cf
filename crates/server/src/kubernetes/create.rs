//! Creating an object: a request enters the engine.

use axum::Router;
use axum::body::Bytes;
use countersign_authority::store::Past;
use countersign_authority::{RequestId, Submission, SubmitFault, looks_like_a_token};
use countersign_kapi::options::WriteOptions;
use countersign_kapi::{
    CertificateSigningRequest, Decoded, FieldError, Resource, Status, decode, name, update,
    validate,
};
use countersign_pki::{CheckedCsr, CsrLimits, pem};
use countersign_policy::{SignerName, Wishes};
use http::StatusCode;

use super::admission::{restrict_node, restrict_subject};
use super::answer::{Answer, Refusal, Shape, warn};
use super::call::{Call, ObjectHead};
use super::identity::User;
use super::object::Attachment;
use super::secrets::{refuse_bootstrap_tokens, token_faults};
use super::{DOOR, KubernetesDoor, SPEC};
use crate::limits::{RequestLimits, TooMany};

/// `POST` on the collection.
pub(super) async fn create(call: Call, head: ObjectHead, body: Bytes) -> Answer {
    let ObjectHead {
        shape,
        options,
        format,
    } = head;
    let mut read =
        decode::object::<CertificateSigningRequest>(&body, format, options.field_validation)?;
    // Whose they are is the server's business; it is noted from the first time on that somebody applies something.
    read.object.metadata.managed_fields.clear();
    decoded(call, shape, &options, read).await
}

/// Creates an object. Whatever comes of it, the client hears what was odd about it.
pub(super) async fn decoded(
    call: Call,
    shape: Shape,
    options: &WriteOptions,
    decoded: Decoded<CertificateSigningRequest>,
) -> Answer {
    let Decoded { object, warnings } = decoded;
    match create_object(call, shape, options, object).await {
        Ok(response) => Ok(warn(response, &warnings)),
        Err(refusal) => Err(refusal.warning(&warnings)),
    }
}

async fn create_object(
    call: Call,
    shape: Shape,
    options: &WriteOptions,
    sent: CertificateSigningRequest,
) -> Answer {
    let door = &call.door;
    let now = door.now()?;
    if !sent.metadata.resource_version.is_empty() {
        let text = "resourceVersion should not be set on objects to be created";
        return Err(Status::unforeseen(text).into());
    }
    let user = call.user.info().clone();
    let mut object = update::prepare_create(sent, user, String::new(), now);
    let base = object.metadata.generate_name.clone();
    let generated = object.metadata.name.is_empty() && !base.is_empty();
    if generated {
        object.metadata.name = door.generated_name(&base)?;
    }
    restrict_node(call.user.info(), &object)?;
    let new = NewRequest::examine(&object)?;
    refuse_bootstrap_tokens(&door.authority.tokens, None, &object).await?;
    door.admit_metadata(&call.user, &object)?;
    door.admit_object(&call.user)?;
    let mut tries = if generated { MAX_NAMES } else { 1 };
    loop {
        let stored = if options.dry_run {
            door.pretend(&object).await?
        } else {
            door.submit(&new, &object, &call.user).await?
        };
        tries -= 1;
        match stored {
            Some(stored) => return shape.object(StatusCode::CREATED, &stored, now),
            None if tries > 0 => object.metadata.name = door.generated_name(&base)?,
            None if generated => {
                return Err(Resource::CSR
                    .no_name_generated(&object.metadata.name)
                    .into());
            }
            None => return Err(door.name_taken(&object.metadata.name).await),
        }
    }
}

/// What the engine needs of a valid object.
struct NewRequest {
    csr: CheckedCsr,
    signer: SignerName,
    wishes: Wishes,
    attachment: Vec<u8>,
}

impl NewRequest {
    /// Validation (422), then admission (403), in this order.
    fn examine(object: &CertificateSigningRequest) -> Result<Self, Refusal> {
        let CertificateSigningRequest { metadata, spec, .. } = object;
        let errors = token_faults(object);
        if !errors.is_empty() {
            return Err(Resource::CSR.invalid(&metadata.name, &errors).into());
        }
        let csr = read_request(&spec.request);
        let check = |_: &[u8]| csr.as_ref().map(|_| ()).map_err(Clone::clone);
        let mut errors = validate::create(object, &check);
        let signer = SignerName::parse(&spec.signer_name);
        let (csr, signer) = match (csr, signer) {
            (Ok(csr), Ok(signer)) if errors.is_empty() => (csr, signer),
            (_, signer) => {
                if let (true, Err(fault)) = (errors.is_empty(), signer) {
                    let name = spec.signer_name.as_str();
                    errors.push(FieldError::invalid(
                        "spec.signerName",
                        name,
                        fault.to_string(),
                    ));
                }
                return Err(Resource::CSR.invalid(&metadata.name, &errors).into());
            }
        };
        refuse_secrets(object, Some(&csr))?;
        restrict_subject(&csr, &signer)
            .map_err(|text| Resource::CSR.not_admitted(&metadata.name, &text))?;
        let attachment = Attachment::of_new(object, &csr).to_bytes()?;
        let wishes = Wishes {
            usages: spec.usages.clone(),
            expiration_seconds: spec
                .expiration_seconds
                .and_then(|seconds| u64::try_from(seconds).ok()),
        };
        Ok(Self {
            csr,
            signer,
            wishes,
            attachment,
        })
    }
}

impl KubernetesDoor {
    /// Everything the door serves, creating objects within limits.
    pub fn router_within(self, limits: RequestLimits) -> Router {
        super::router(Self {
            limits: Some(limits),
            ..self
        })
    }

    /// Hands a request to the engine. `None`: its name is taken.
    async fn submit(
        &self,
        new: &NewRequest,
        object: &CertificateSigningRequest,
        user: &User,
    ) -> Result<Option<CertificateSigningRequest>, Refusal> {
        let submission = Submission {
            door: &SPEC,
            key: object.metadata.name.clone(),
            csr: new.csr.clone(),
            signer: new.signer.clone(),
            requester: user.requester(),
            wishes: new.wishes.clone(),
            attachment: new.attachment.clone(),
            bearer: user.enrolment_token().cloned(),
            decision: None,
        };
        let submitted = match self.authority.requests.submit(submission).await {
            Ok(submitted) => submitted,
            Err(SubmitFault::Duplicate { .. } | SubmitFault::Denied { .. }) => return Ok(None),
            Err(
                fault @ (SubmitFault::TooManyWaiting { .. }
                | SubmitFault::NoRoomToWait { .. }
                | SubmitFault::TooManyRenewals { .. }
                | SubmitFault::InProgress { .. }),
            ) => {
                return Err(Status::too_many_requests(fault.to_string(), WAITING_SECONDS).into());
            }
            Err(SubmitFault::Forbidden(needed)) => {
                let text = needed.to_string();
                return Err(Resource::CSR
                    .not_admitted(&object.metadata.name, &text)
                    .into());
            }
            Err(SubmitFault::Engine(broken)) => return Err(broken.into()),
        };
        let (id, version) = (submitted.id, submitted.version);
        // It is stored: whatever becomes of showing it, the client must learn that.
        if let Some(recorded) = submitted.into_recorded()
            && let Ok(shown) = self.show_recorded(&recorded).await
        {
            return Ok(Some(shown));
        }
        let mut shown = object.clone();
        shown.metadata.uid = id.to_string();
        shown.metadata.resource_version = version.to_string();
        Ok(Some(shown))
    }

    /// What a create would answer, without storing anything. `None`: the name is taken.
    async fn pretend(
        &self,
        object: &CertificateSigningRequest,
    ) -> Result<Option<CertificateSigningRequest>, Refusal> {
        if self
            .authority
            .requests
            .at(&DOOR, &object.metadata.name, Past::Ignore)
            .await?
            .is_some()
        {
            return Ok(None);
        }
        let mut random = [0; 10];
        self.authority.random(&mut random)?;
        let mut shown = object.clone();
        shown.metadata.uid = RequestId::new(self.authority.now(), random).to_string();
        Ok(Some(shown))
    }

    pub(super) fn generated_name(&self, base: &str) -> Result<String, Refusal> {
        let mut random = [0; 5];
        self.authority.random(&mut random)?;
        Ok(name::generated(base, random))
    }

    async fn name_taken(&self, name: &str) -> Refusal {
        let holder = self
            .authority
            .requests
            .at(&DOOR, name, Past::Ignore)
            .await
            .ok()
            .flatten();
        let attachment = holder.and_then(|record| Attachment::of(&record).ok());
        match attachment.is_some_and(|attachment| attachment.is_being_deleted()) {
            true => Resource::CSR.being_deleted(name).into(),
            false => Resource::CSR.already_exists(name).into(),
        }
    }
}

impl From<TooMany> for Refusal {
    fn from(fault: TooMany) -> Self {
        Status::too_many_requests(fault.to_string(), fault.retry_after).into()
    }
}

/// Reads the first PEM block and nothing behind it, as API servers do; its label must be exact.
pub(super) fn read_request(text: &[u8]) -> Result<CheckedCsr, String> {
    let limits = pem::PemLimits {
        max_text: CsrLimits::STANDARD.max_pem,
        ..pem::PemLimits::REQUEST
    };
    let block = pem::decode_first(text, &limits).map_err(|fault| fault.to_string())?;
    match block {
        Some(block) if block.label == REQUEST_LABEL => {
            CheckedCsr::check(&block.der, &CsrLimits::STANDARD).map_err(|fault| fault.to_string())
        }
        Some(_) | None => Err(format!("PEM block type must be {REQUEST_LABEL}")),
    }
}

/// Objects are kept and listed with what their owners write into them: an enrolment token that is put there by mistake
/// would be everybody's. Of the request itself, the subject is kept as it is.
pub(super) fn refuse_secrets(
    object: &CertificateSigningRequest,
    csr: Option<&CheckedCsr>,
) -> Result<(), Refusal> {
    let written = serde_json::to_string(&(
        &object.metadata,
        &object.spec.signer_name,
        &object.status.conditions,
    ));
    let subject = csr.map(|csr| csr.subject().to_string()).unwrap_or_default();
    let has_token = |text: &str| looks_like_a_token(text);
    let field = match written.is_ok_and(|text| has_token(&text)) {
        true => "metadata",
        false if has_token(&subject) => "spec.request",
        false => return Ok(()),
    };
    let detail = "holds an enrolment token, which is a secret: it belongs into the Authorization header or the challengePassword of the request";
    let errors = [FieldError::forbidden(field, detail)];
    Err(Resource::CSR.invalid(&object.metadata.name, &errors).into())
}

/// Somebody may have decided some of them by then.
const WAITING_SECONDS: u32 = 120;
const REQUEST_LABEL: &str = "CERTIFICATE REQUEST";
/// How many names are tried for one `generateName`.
const MAX_NAMES: usize = 8;
