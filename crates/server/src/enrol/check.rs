//! `POST /check`: what would happen to a request by its token. Nothing is used up.

use std::net::IpAddr;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use countersign_api::TokenCheck;
use countersign_authority::{CarriedToken, Check, TokenFault};
use countersign_pki::{CheckedCsr, CsrFault, CsrLimits};
use countersign_policy::SignerName;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::faults::{Refusal, Refused};
use super::operation::{Operation, Tag};
use super::parameters::Query;
use super::{Administrator, EnrolDoor, json};

/// The parameters.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Checking {
    /// The signer that would be asked; without, that of Puppet agents.
    #[schemars(example = "countersign.dev/puppet-agent")]
    signer: Option<String>,
    /// The address that the request would come from; without, the caller's.
    #[schemars(extend("format" = "ip"))]
    source: Option<String>,
}

fn item(check: Check, carried: CarriedToken) -> TokenCheck {
    let claimed = match carried {
        CarriedToken::Id(id) => Some(id),
        CarriedToken::None | CarriedToken::Bootstrap(_) | CarriedToken::Other => None,
    };
    TokenCheck {
        would_allow: check.would_allow,
        reason: check.reason.to_string(),
        detail: check.detail,
        token_id: check.token.or(claimed).map(|id| id.to_string()),
    }
}

/// A request that does not come as far as its token.
fn before_the_token(reason: &str, detail: String) -> TokenCheck {
    TokenCheck {
        would_allow: false,
        reason: reason.to_owned(),
        detail,
        token_id: None,
    }
}

fn unreadable(fault: &CsrFault) -> TokenCheck {
    let reason = match fault.is_bad_signature() {
        true => "csr_signature_invalid",
        false => "csr_malformed",
    };
    before_the_token(reason, fault.to_string())
}

pub(super) const CHECK: Operation = Operation::new("checkToken", Tag::Tokens, "Check a request's token")
    .about(
        "The body is a certificate request as PEM; the name is its common name. Nothing is used up or recorded, but wrong \
         tokens count against limits.token_failures_per_10_minutes.",
    )
    .query::<Checking>()
    .pem_body("A certificate request (PKCS#10) as PEM.")
    .answers::<TokenCheck>(200, "What would happen.")
    .refuses(&[Refused::Conflict, Refused::TooMany]);

pub(super) async fn check(
    State(door): State<EnrolDoor>,
    Administrator(actor): Administrator,
    Query(checking): Query<Checking>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let signer = signer(checking.signer.as_deref())?;
    let source = source(checking.source.as_deref())?.or(actor.requester.source);
    if !door.authority().tokens.enabled() {
        return Err(TokenFault::Disabled.into());
    }
    let answer = |check: TokenCheck| Ok(json(StatusCode::OK, &check));
    let csr = match CheckedCsr::from_pem(&body, &CsrLimits::READ_BACK) {
        Ok(csr) => csr,
        Err(fault) => return answer(unreadable(&fault)),
    };
    let Some(name) = csr.subject().first_common_name() else {
        let detail = "the request has no common name".to_owned();
        return answer(before_the_token("csr_subject_mismatch", detail));
    };
    let carried = door.authority().tokens.carried(&csr);
    let limits = door.shared.limits.as_ref().zip(actor.requester.source);
    let now = door.authority().now();
    if let Some((limits, caller)) = limits {
        limits.admit_token(caller, &carried, now)?;
    }
    let checked = door.authority().tokens.check(&csr, name, &signer, source);
    let checked = checked.await?;
    if let Some((limits, caller)) = limits
        && !checked.would_allow
        && checked.reason.is_token_failure()
    {
        limits.token_failed(caller, &carried, now);
    }
    answer(item(checked, carried))
}

fn signer(text: Option<&str>) -> Result<SignerName, Refusal> {
    SignerName::parse(text.unwrap_or(PUPPET_AGENT)).map_err(|fault| Refusal::Invalid {
        what: format!("signer: {fault}"),
    })
}

fn source(text: Option<&str>) -> Result<Option<IpAddr>, Refusal> {
    let read = |text: &str| {
        text.parse().map_err(|_| Refusal::Invalid {
            what: "source is no address such as 192.0.2.7".to_owned(),
        })
    };
    text.map(read).transpose()
}

/// Whom agents ask.
const PUPPET_AGENT: &str = "countersign.dev/puppet-agent";
/// As much as the Puppet door takes.
pub(super) const MAX_BODY: usize = 64 * 1024;
