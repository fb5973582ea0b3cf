//! `certificate_status`: what administrators see of one name, sign, revoke and delete.

use axum::response::Response;
use countersign_authority::store::StoreFault;
use countersign_authority::{Act, ActFault, Actor, LedgerEntry, Outcome, RequestRecord, Retired};
use countersign_pki::{RevocationReason, terminal_safe};
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use tracing::info;

use super::negotiation::{is_json, media_type};
use super::status_object::StatusObject;
use super::{Call, PuppetDoor, answer, faults};

impl PuppetDoor {
    /// The newest certificate of a name, else its waiting request.
    pub(super) async fn get_status(&self, name: &str, headers: &HeaderMap) -> Response {
        let Some(media_type) = media_type(headers) else {
            return not_acceptable();
        };
        let object = match self.known(name).await {
            Ok(Known {
                certificate: Some(entry),
                ..
            }) => StatusObject::of_certificate(&entry.into()),
            Ok(Known {
                request: Some(record),
                ..
            }) => StatusObject::of_request(&record),
            Ok(Known {
                certificate: None,
                request: None,
            }) => return no_resource(),
            Err(fault) => return faults::store(&fault),
        };
        match serde_json::to_string(&object) {
            Ok(json) => answer::with(StatusCode::OK, media_type, json),
            Err(_) => answer::internal("the record cannot be written"),
        }
    }

    /// Signs or revokes, as the body says.
    pub(super) async fn put_status(&self, name: &str, call: &Call<'_>, body: &[u8]) -> Response {
        let (headers, actor) = (&call.parts.headers, call.actor());
        let desired = match Desired::parse(name, body) {
            Ok(desired) => desired,
            Err(sentence) => {
                let sentence = answer::masked(sentence);
                return answer::refused(StatusCode::BAD_REQUEST, answer::STATUS_SENTENCE, sentence);
            }
        };
        if !is_json(headers) {
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return answer::with(status, answer::STATUS_SENTENCE, "Unsupported media type.");
        }
        if media_type(headers).is_none() {
            return not_acceptable();
        }
        let known = match self.known(name).await {
            Ok(known) => known,
            Err(fault) => return faults::store(&fault),
        };
        // Certificates that are no longer shown can still be revoked.
        let certified = match known.certificate {
            Some(_) => Ok(true),
            None => {
                self.authority()
                    .ledger
                    .has_certificates(self.issuer(), name)
                    .await
            }
        };
        let certified = match certified {
            Ok(certified) => certified,
            Err(fault) => return faults::store(&fault),
        };
        match (desired, certified, known.request) {
            (_, false, None) => answer::with(
                StatusCode::NOT_FOUND,
                answer::STATUS_SENTENCE,
                "Invalid certificate subject.",
            ),
            (Desired::Revoked, false, Some(_)) => {
                answer::conflict(faults::without_certificate(name))
            }
            (Desired::Revoked, true, _) => self.revoke(name, call, &actor).await,
            (Desired::Signed { .. }, true, None) => answer::conflict(without_request(name)),
            (Desired::Signed { lifetime }, _, Some(_)) => {
                let act = Act {
                    lifetime,
                    ..Self::act(name, actor, "")
                };
                match self.sign(act).await {
                    Ok(_) => answer::no_content(),
                    Err(ActFault::NotFound { .. }) => answer::conflict(without_request(name)),
                    Err(fault) => faults::act(call, &fault),
                }
            }
        }
    }

    /// Takes a name off the books: its certificates are no longer shown, its request is forgotten, and it may enrol
    /// again. Nothing is revoked.
    pub(super) async fn delete_status(
        &self,
        name: &str,
        call: &Call<'_>,
        headers: &HeaderMap,
    ) -> Response {
        if media_type(headers).is_none() {
            return not_acceptable();
        }
        match self
            .authority()
            .ledger
            .retire(self.issuer(), name, &Self::DOOR, &call.actor())
            .await
        {
            Ok(Retired::Something) => answer::no_content(),
            Ok(Retired::Nothing) => no_resource(),
            Err(fault) => faults::revoke(call, name, &fault),
        }
    }

    /// Approves a waiting request. Others may change it at the same moment without having decided it.
    pub(crate) async fn sign(&self, act: Act) -> Result<Outcome, ActFault> {
        let mut outcome = self.authority().requests.approve(act.clone()).await;
        // Where a request may be replaced while it is being signed, nobody has looked at what took its place.
        let tries = if self.replaces_waiting() {
            1
        } else {
            MAX_TRIES
        };
        for _ in 1..tries {
            if !matches!(outcome, Err(ActFault::Conflict { .. })) {
                break;
            }
            outcome = self.authority().requests.approve(act.clone()).await;
        }
        if let Ok(signed) = &outcome {
            info!(name = act.key, request = %signed.id, actor = %act.actor, "signed by an administrator");
        }
        outcome
    }

    async fn revoke(&self, name: &str, call: &Call<'_>, actor: &Actor) -> Response {
        match self
            .authority()
            .ledger
            .revoke_name(self.issuer(), name, REASON, actor)
            .await
        {
            Ok(count) => {
                info!(name, count, %actor, "revoked");
                answer::no_content()
            }
            Err(fault) => faults::revoke(call, name, &fault),
        }
    }

    async fn known(&self, name: &str) -> Result<Known, StoreFault> {
        let certificate = self.authority().ledger.newest(self.issuer(), name).await?;
        let request = self.waiting(name).await?;
        Ok(Known {
            certificate,
            request,
        })
    }
}

/// What there is of a name.
struct Known {
    certificate: Option<LedgerEntry>,
    request: Option<RequestRecord>,
}

/// What a body asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Desired {
    Signed { lifetime: Option<u64> },
    Revoked,
}

impl Desired {
    fn parse(name: &str, body: &[u8]) -> Result<Self, String> {
        // An empty body and `null` are refused by the same words (the reference's check for them is unreachable).
        let body = match serde_json::from_slice::<Value>(body) {
            Ok(Value::Null) | Err(_) => return Err("Request body is not JSON.".to_owned()),
            Ok(body) => body,
        };
        let state = match body.get("desired_state") {
            Some(Value::String(state)) => state.clone(),
            // A state that is no text counts as none.
            None | Some(_) => {
                return Err("Missing required parameter \"desired_state\"".to_owned());
            }
        };
        if state != "signed" && state != "revoked" {
            return Err(format!(
                "State {} invalid; Must specify desired state of 'signed' or 'revoked' for host {name}.",
                terminal_safe(&state)
            ));
        }
        let lifetime = body
            .get("cert_ttl")
            .map(|ttl| lifetime(name, ttl))
            .transpose()?
            .flatten();
        if state == "signed" {
            Ok(Self::Signed { lifetime })
        } else {
            Ok(Self::Revoked)
        }
    }
}

/// Seconds as a number, or in digits: `puppetserver ca sign --ttl 3600` sends text.
fn lifetime(name: &str, ttl: &Value) -> Result<Option<u64>, String> {
    let text = match ttl {
        Value::Null => return Ok(None),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let is_integer = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(0) => Err(format!(
            "cert_ttl specified for host {name} must be at least 1"
        )),
        Ok(seconds) if is_integer => Ok(Some(seconds)),
        Ok(_) | Err(_) => Err(format!(
            "cert_ttl specified for host {name} must be an integer, not \"{}\"",
            terminal_safe(&text)
        )),
    }
}

fn without_request(name: &str) -> String {
    format!("Cannot sign certificate for host {name} without a certificate request")
}

fn no_resource() -> Response {
    let status = StatusCode::NOT_FOUND;
    answer::with(status, answer::STATUS_SENTENCE, "Resource not found.")
}

pub(super) fn not_acceptable() -> Response {
    let status = StatusCode::NOT_ACCEPTABLE;
    answer::with(
        status,
        answer::STATUS_SENTENCE,
        "No acceptable resource available.",
    )
}

pub(super) const MAX_BODY: usize = 16 * 1024; // two short members
const MAX_TRIES: usize = 4;

/// Puppet Server gives this reason always, and clients compare lists.
pub(crate) const REASON: RevocationReason = RevocationReason::KeyCompromise;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_and_what_they_ask_for() {
        let missing = Err("Missing required parameter \"desired_state\"");
        let not_json = Err("Request body is not JSON.");
        let forever = format!("{{\"desired_state\":\"signed\",\"cert_ttl\":{}}}", u64::MAX);
        for (body, expected) in [
            (
                r#"{"desired_state":"signed"}"#,
                Ok(Desired::Signed { lifetime: None }),
            ),
            (
                r#"{"desired_state":"signed","cert_ttl":60}"#,
                Ok(Desired::Signed { lifetime: Some(60) }),
            ),
            (
                r#"{"desired_state":"signed","cert_ttl":"3600"}"#,
                Ok(Desired::Signed {
                    lifetime: Some(3600),
                }),
            ),
            (
                r#"{"desired_state":"signed","cert_ttl":null}"#,
                Ok(Desired::Signed { lifetime: None }),
            ),
            (
                &forever,
                Ok(Desired::Signed {
                    lifetime: Some(u64::MAX),
                }),
            ),
            (r#"{"desired_state":"revoked"}"#, Ok(Desired::Revoked)),
            ("", not_json),
            ("null", not_json),
            ("{", not_json),
            ("desired_state=signed", not_json),
            ("{}", missing),
            ("[]", missing),
            (r#"{"desired_state":null}"#, missing),
            (
                r#"{"desired_state":"bogus"}"#,
                Err(
                    "State bogus invalid; Must specify desired state of 'signed' or 'revoked' for host h.",
                ),
            ),
            (r#"{"desired_state":5}"#, missing),
            (
                r#"{"desired_state":"signed","cert_ttl":"1d"}"#,
                Err("cert_ttl specified for host h must be an integer, not \"1d\""),
            ),
            (
                r#"{"desired_state":"revoked","cert_ttl":1.5}"#,
                Err("cert_ttl specified for host h must be an integer, not \"1.5\""),
            ),
            (
                r#"{"desired_state":"signed","cert_ttl":-5}"#,
                Err("cert_ttl specified for host h must be an integer, not \"-5\""),
            ),
            (
                r#"{"desired_state":"signed","cert_ttl":"+5"}"#,
                Err("cert_ttl specified for host h must be an integer, not \"+5\""),
            ),
            (
                r#"{"desired_state":"signed","cert_ttl":0}"#,
                Err("cert_ttl specified for host h must be at least 1"),
            ),
        ] {
            let parsed = Desired::parse("h", body.as_bytes());
            assert_eq!(
                parsed.as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|e| *e),
                "{body}"
            );
        }
    }
}
