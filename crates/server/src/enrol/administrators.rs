//! `POST /requests`: an administrator asks for another administrator's certificate, and decides in the same call.
//!
//! No other call reaches that signer, and this call reaches no other: what machines need is asked for at their doors.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use countersign_api::{AdministratorRequest, Request};
use countersign_authority::store::Past;
use countersign_authority::{Actor, Decision, DoorSpec, Submission};
use countersign_pki::{CheckedCsr, CsrLimits, terminal_safe};
use countersign_policy::{PersonVerdict, SignerName, Wishes};
use http::StatusCode;
use tracing::info;

use super::faults::{Refusal, Refused};
use super::operation::{Operation, Tag};
use super::requests::{refuse_long, unreadable};
use super::{Administrator, EnrolDoor, json, required_body};
use crate::puppet::{Certname, PuppetDoor};

pub(super) const CREATE: Operation = Operation::new(
    "createAdministrator",
    Tag::Requests,
    "Ask for another administrator's certificate",
)
.about(
    "An administrator asks for another administrator's certificate and decides in the same call. The only signer that can \
     be asked for here is countersign.dev/puppet-admin; no other call reaches it.",
)
.body::<AdministratorRequest>()
.answers::<Request>(201, "The request, approved, with its certificate.")
.refuses(&[Refused::Conflict]);

pub(super) async fn create(
    State(door): State<EnrolDoor>,
    Administrator(actor): Administrator,
    body: Bytes,
) -> Result<Response, Refusal> {
    let asked: AdministratorRequest = required_body(&body)?;
    let submission = door.examined(asked, actor).await?;
    let name = submission.key.clone();
    let submitted = door.authority().requests.submit(submission).await?;
    info!(name, request = %submitted.id, "administrator's certificate issued");
    let recorded = submitted.into_recorded().ok_or_else(unreadable)?;
    let item = door.recorded(recorded).await?;
    Ok(json(StatusCode::CREATED, &item))
}

impl EnrolDoor {
    /// Everything that can be wrong is found before anything is stored.
    async fn examined(
        &self,
        asked: AdministratorRequest,
        actor: Actor,
    ) -> Result<Submission, Refusal> {
        let invalid = |what: String| Refusal::Invalid { what };
        let name = Certname::parse(&asked.name).map_err(|fault| invalid(fault.to_string()))?;
        let shown = terminal_safe(name.as_str()).into_owned();
        let signer = SignerName::parse(&asked.signer).ok();
        let signer = signer.filter(|signer| self.shared.administrators.as_ref() == Some(signer));
        let signer = signer.ok_or_else(|| {
            invalid(
                "signer is none that can be asked for here; requests of machines go to their doors"
                    .to_owned(),
            )
        })?;
        refuse_long(&asked.reason)?;
        if asked.lifetime_seconds == Some(0) {
            return Err(invalid("lifetime_seconds must be at least 1".to_owned()));
        }
        let csr = CheckedCsr::from_pem(asked.csr.as_bytes(), &CsrLimits::STANDARD)
            .map_err(|fault| invalid(format!("csr: {fault}")))?;
        if csr.subject().first_common_name() != Some(name.as_str()) {
            return Err(invalid(format!("csr: its common name is not {shown}")));
        }
        let wishes = Wishes {
            expiration_seconds: asked.lifetime_seconds,
            ..Wishes::default()
        };
        let found = self.authority().rules().signer(&signer);
        if let Some(Err(fault)) =
            found.map(|signer| signer.profile.examine(&csr, name.as_str(), &wishes))
        {
            return Err(Refusal::Unsignable {
                what: format!("a certificate for {shown} cannot be signed: {fault}"),
            });
        }
        self.refuse_taken(name.as_str()).await?;
        Ok(Submission {
            door: DoorSpec::LOCAL,
            key: name.into_string(),
            csr,
            signer,
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

    /// A host's name must not become an administrator's while it is in use.
    async fn refuse_taken(&self, name: &str) -> Result<(), Refusal> {
        let authority = self.authority();
        let newest = authority.ledger.newest(&self.shared.issuer, name);
        let puppet = PuppetDoor::DOOR;
        let waiting = authority.requests.at(&puppet, name, Past::Ignore);
        if newest.await?.is_none() && waiting.await?.is_none() {
            return Ok(());
        }
        let name = terminal_safe(name);
        Err(Refusal::Conflict {
            what: format!("{name} has a certificate or a request already; clean it first"),
        })
    }
}
