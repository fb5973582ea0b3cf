//! Refusals of the native interface, and what they look like.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::response::{IntoResponse, Response};
use countersign_api::{Code, ErrorBody, ErrorMembers};
use countersign_authority::store::StoreFault;
use countersign_authority::{
    ActFault, EngineError, InventoryFault, RequestState, RevokeFault, SignFault, SubmitFault,
    TokenFault, TokenId, WindowFault, masked_tokens,
};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use tracing::{error, warn};

use super::tokens::shown_id;
use crate::access::Needed;
use crate::body::BodyFault;
use crate::limits::TooMany;
use crate::refusal::because;

/// Why a call was not carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("show a client certificate: {0}")]
    Unauthenticated(Needed),
    #[error(transparent)]
    Forbidden(#[from] Needed),
    #[error("nobody may act as somebody else: leave the Impersonate headers out")]
    Impersonation,
    #[error("there is no such call")]
    NoSuchCall,
    #[error("this call does not have that method")]
    MethodNotAllowed,
    #[error(transparent)]
    Body(#[from] BodyFault),
    #[error("{what}")]
    Invalid { what: String },
    #[error("{what}")]
    NotFound { what: String },
    #[error("{what}")]
    Conflict { what: String },
    #[error("{what}")]
    AlreadyOrdered { id: TokenId, what: String },
    #[error("{what}")]
    Unprocessable { what: String },
    #[error(transparent)]
    TooMany(#[from] TooMany),
    #[error("{what}")]
    Unsignable { what: String },
    #[error("{what}")]
    Unavailable { what: String },
    #[error("{what}")]
    Internal { what: String },
}

impl Refusal {
    /// Members of a body that cannot be, or cannot be together.
    pub(super) fn unprocessable(what: &str) -> Self {
        Self::Unprocessable {
            what: what.to_owned(),
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) | Self::Impersonation => StatusCode::FORBIDDEN,
            Self::NoSuchCall | Self::NotFound { .. } => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Body(BodyFault::TooLong { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(BodyFault::TooSlow) => StatusCode::REQUEST_TIMEOUT,
            Self::Body(BodyFault::BrokenOff) | Self::Invalid { .. } => StatusCode::BAD_REQUEST,
            Self::Conflict { .. } | Self::AlreadyOrdered { .. } | Self::Unsignable { .. } => {
                StatusCode::CONFLICT
            }
            Self::Unprocessable { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn code(&self) -> Code {
        match self {
            Self::Unauthenticated(_) => Code::Unauthenticated,
            Self::Forbidden(_) | Self::Impersonation => Code::Forbidden,
            Self::NoSuchCall | Self::NotFound { .. } => Code::NotFound,
            Self::MethodNotAllowed => Code::MethodNotAllowed,
            Self::Body(BodyFault::TooLong { .. }) => Code::BodyTooLarge,
            Self::Body(BodyFault::TooSlow) => Code::BodyTooSlow,
            Self::Body(BodyFault::BrokenOff)
            | Self::Invalid { .. }
            | Self::Unprocessable { .. } => Code::Invalid,
            Self::Conflict { .. } | Self::AlreadyOrdered { .. } => Code::Conflict,
            Self::TooMany(_) => Code::TooMany,
            Self::Unsignable { .. } => Code::Unsignable,
            Self::Unavailable { .. } => Code::Unavailable,
            Self::Internal { .. } => Code::Internal,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        // It may repeat what somebody sent: a secret taken for a name stays one.
        let message = masked_tokens(&self.to_string()).into_owned();
        let body = ErrorBody {
            error: ErrorMembers {
                code: self.code(),
                message: message.clone(),
            },
            id: match &self {
                Self::AlreadyOrdered { id, .. } => Some(shown_id(id)),
                _ => None,
            },
        };
        let mut response = super::json(self.status(), &body);
        let retry_after = match self {
            Self::Unavailable { .. } => Some(HeaderValue::from_static("10")),
            Self::TooMany(TooMany { retry_after, .. }) => Some(HeaderValue::from(retry_after)),
            _ => None,
        };
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        because(response, message)
    }
}

/// The statuses of refusals, as the document explains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Invalid,
    Unauthenticated,
    Forbidden,
    NotFound,
    BodyTooSlow,
    Conflict,
    BodyTooLarge,
    Unprocessable,
    TooMany,
    Internal,
    Unavailable,
}

impl Refused {
    pub(super) const ALL: [Self; 11] = [
        Self::Invalid,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::BodyTooSlow,
        Self::Conflict,
        Self::BodyTooLarge,
        Self::Unprocessable,
        Self::TooMany,
        Self::Internal,
        Self::Unavailable,
    ];

    /// What any call of administrators may answer: its path and its body are read before it is reached.
    pub(super) const ALWAYS: [Self; 7] = [
        Self::Invalid,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::BodyTooSlow,
        Self::BodyTooLarge,
        Self::Internal,
        Self::Unavailable,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid",
            Self::Unauthenticated => "Unauthenticated",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::BodyTooSlow => "BodyTooSlow",
            Self::Conflict => "Conflict",
            Self::BodyTooLarge => "BodyTooLarge",
            Self::Unprocessable => "Unprocessable",
            Self::TooMany => "TooMany",
            Self::Internal => "Internal",
            Self::Unavailable => "Unavailable",
        }
    }

    pub(super) fn status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::BodyTooSlow => 408,
            Self::Conflict => 409,
            Self::BodyTooLarge => 413,
            Self::Unprocessable => 422,
            Self::TooMany => 429,
            Self::Internal => 500,
            Self::Unavailable => 503,
        }
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Invalid => {
                "invalid: a parameter, a member of the body or the body itself is not acceptable, or the body broke off."
            }
            Self::Unauthenticated => "unauthenticated: no client certificate was shown.",
            Self::Forbidden => "forbidden: the caller lacks the role that the message names.",
            Self::NotFound => "not_found: what the call is about is not there.",
            Self::BodyTooSlow => "body_too_slow: the body did not arrive within 30 seconds.",
            Self::Conflict => {
                "conflict: the request is decided already or changes at this moment, what is new is there already, or \
                 enrolment tokens are not in use or too many; id is there where an order was carried out before. \
                 unsignable: the signer of the request cannot sign it."
            }
            Self::BodyTooLarge => {
                "body_too_large: the body has more than 16384 bytes, at /machine-imports more than 262144, at /check more \
                 than 65536."
            }
            Self::Unprocessable => {
                "invalid: the body is JSON, and a member of it is unknown or cannot be; the message names it."
            }
            Self::TooMany => "too_many: too many wrong tokens; Retry-After says when to try again.",
            Self::Internal => "internal: the authority failed; its log says how.",
            Self::Unavailable => "unavailable: nothing was done; worth another try.",
        }
    }
}

impl From<PathRejection> for Refusal {
    fn from(fault: PathRejection) -> Self {
        Self::Invalid {
            what: format!("the path: {}", fault.body_text()),
        }
    }
}

impl From<QueryRejection> for Refusal {
    fn from(fault: QueryRejection) -> Self {
        Self::Invalid {
            what: fault.body_text(),
        }
    }
}

impl From<StoreFault> for Refusal {
    fn from(fault: StoreFault) -> Self {
        let what = fault.to_string();
        match fault {
            StoreFault::Full
            | StoreFault::ReadOnly
            | StoreFault::Overloaded
            | StoreFault::Stopped => {
                warn!(%fault, "not served for now");
                Self::Unavailable { what }
            }
            StoreFault::Corrupt { .. } | StoreFault::Failed { .. } => {
                error!(error = &fault as &dyn std::error::Error, "store failed");
                Self::Internal { what }
            }
        }
    }
}

impl From<EngineError> for Refusal {
    fn from(fault: EngineError) -> Self {
        let what = fault.to_string();
        match fault {
            EngineError::Store(fault) => fault.into(),
            EngineError::Sign(SignFault::Overloaded { .. })
            | EngineError::Contended
            | EngineError::ShuttingDown => {
                warn!(%fault, "not served for now");
                Self::Unavailable { what }
            }
            EngineError::Sign(_)
            | EngineError::Draft(_)
            | EngineError::Defect
            | EngineError::Entropy(_)
            | EngineError::Encode(_)
            | EngineError::Serials(_)
            | EngineError::StoredRequest { .. } => {
                error!(error = &fault as &dyn std::error::Error, "call failed");
                Self::Internal { what }
            }
        }
    }
}

impl From<ActFault> for Refusal {
    fn from(fault: ActFault) -> Self {
        let what = fault.to_string();
        match fault {
            ActFault::NotFound { .. } => Self::NotFound { what },
            ActFault::AlreadyDecided {
                key,
                state: RequestState::Denied,
            } => Self::Conflict {
                what: format!("{what}; `countersign csr delete {key}` lets it ask again"),
            },
            ActFault::AlreadyDecided { .. } | ActFault::Conflict { .. } => Self::Conflict { what },
            ActFault::Unsignable { .. } => Self::Unsignable { what },
            ActFault::Forbidden(needed) => needed.into(),
            ActFault::Engine(fault @ EngineError::StoredRequest { .. }) => Self::Conflict {
                what: format!("{fault}; delete it, and its sender may ask again"),
            },
            ActFault::Engine(fault) => fault.into(),
        }
    }
}

impl From<SubmitFault> for Refusal {
    fn from(fault: SubmitFault) -> Self {
        let what = fault.to_string();
        match fault {
            SubmitFault::Duplicate { .. }
            | SubmitFault::Denied { .. }
            | SubmitFault::TooManyWaiting { .. }
            | SubmitFault::NoRoomToWait { .. }
            | SubmitFault::TooManyRenewals { .. }
            | SubmitFault::InProgress { .. } => Self::Conflict { what },
            SubmitFault::Forbidden(needed) => needed.into(),
            SubmitFault::Engine(fault) => fault.into(),
        }
    }
}

impl From<RevokeFault> for Refusal {
    fn from(fault: RevokeFault) -> Self {
        let what = fault.to_string();
        match fault {
            RevokeFault::NoCertificate { .. } | RevokeFault::UnknownIssuer { .. } => {
                Self::NotFound { what }
            }
            RevokeFault::Forbidden(needed) => needed.into(),
            RevokeFault::Engine(fault) => fault.into(),
        }
    }
}

impl From<InventoryFault> for Refusal {
    fn from(fault: InventoryFault) -> Self {
        let what = fault.to_string();
        match fault {
            InventoryFault::Invalid { .. } => Self::Invalid { what },
            InventoryFault::Exists { .. } => Self::Conflict { what },
            InventoryFault::NotFound { .. } => Self::NotFound { what },
            InventoryFault::Forbidden(needed) => needed.into(),
            InventoryFault::Engine(fault) => fault.into(),
        }
    }
}

impl From<TokenFault> for Refusal {
    fn from(fault: TokenFault) -> Self {
        let what = fault.to_string();
        match fault {
            TokenFault::Name { .. } => Self::Unprocessable {
                what: format!("certname: {what}"),
            },
            TokenFault::Field { .. } => Self::Unprocessable { what },
            TokenFault::Disabled | TokenFault::TooMany { .. } | TokenFault::NotReserved { .. } => {
                Self::Conflict { what }
            }
            TokenFault::AlreadyOrdered { id } => Self::AlreadyOrdered { id, what },
            TokenFault::NotFound { .. } => Self::NotFound { what },
            TokenFault::Forbidden(needed) => needed.into(),
            TokenFault::Engine(fault) => fault.into(),
        }
    }
}

impl From<serde_json::Error> for Refusal {
    fn from(fault: serde_json::Error) -> Self {
        Self::Invalid {
            what: format!("the body: {fault}"),
        }
    }
}

impl From<WindowFault> for Refusal {
    fn from(fault: WindowFault) -> Self {
        let what = fault.to_string();
        match fault {
            WindowFault::Name { .. }
            | WindowFault::Empty { .. }
            | WindowFault::Over { .. }
            | WindowFault::TooLong
            | WindowFault::Issuances => Self::Invalid { what },
            WindowFault::NotFound { .. } => Self::NotFound { what },
            WindowFault::Forbidden(needed) => needed.into(),
            WindowFault::Engine(fault) => fault.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_worth_another_try_and_what_may_not_is_not() {
        for (fault, status) in [
            (EngineError::Store(StoreFault::Full), 503),
            (EngineError::Store(StoreFault::Stopped), 503),
            (EngineError::Contended, 503),
            (
                EngineError::Store(StoreFault::Corrupt { what: "request" }),
                500,
            ),
        ] {
            let text = fault.to_string();
            let response = Refusal::from(fault).into_response();
            assert_eq!(response.status().as_u16(), status, "{text}");
            assert_eq!(
                response.headers().contains_key(RETRY_AFTER),
                status == 503,
                "{text}"
            );
        }
    }
}
