//! Refusals of the native interface, and what they look like.

use axum::response::{IntoResponse, Response};
use countersign_authority::store::StoreFault;
use countersign_authority::{
    ActFault, Broken, InventoryFault, RequestState, RevokeFault, SignFault, SubmitFault,
    WindowFault,
};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use serde_json::json;
use tracing::{error, warn};

use crate::body::BodyFault;

/// Why a call was not carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("show an administrator's client certificate")]
    Unauthenticated,
    #[error("this client certificate is not an administrator's")]
    Forbidden,
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
    Unsignable { what: String },
    #[error("{what}")]
    Unavailable { what: String },
    #[error("{what}")]
    Internal { what: String },
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NoSuchCall | Self::NotFound { .. } => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Body(BodyFault::TooLong { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(BodyFault::TooSlow) => StatusCode::REQUEST_TIMEOUT,
            Self::Body(BodyFault::BrokenOff) | Self::Invalid { .. } => StatusCode::BAD_REQUEST,
            Self::Conflict { .. } | Self::Unsignable { .. } => StatusCode::CONFLICT,
            Self::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// A word for programs.
    fn code(&self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NoSuchCall | Self::NotFound { .. } => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::Body(BodyFault::TooLong { .. }) => "body_too_large",
            Self::Body(BodyFault::TooSlow) => "body_too_slow",
            Self::Body(BodyFault::BrokenOff) | Self::Invalid { .. } => "invalid",
            Self::Conflict { .. } => "conflict",
            Self::Unsignable { .. } => "unsignable",
            Self::Unavailable { .. } => "unavailable",
            Self::Internal { .. } => "internal",
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({ "error": { "code": self.code(), "message": self.to_string() } });
        let mut response = super::json(self.status(), &body);
        if matches!(self, Self::Unavailable { .. }) {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("10"));
        }
        response
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

impl From<Broken> for Refusal {
    fn from(fault: Broken) -> Self {
        let what = fault.to_string();
        match fault {
            Broken::Store(fault) => fault.into(),
            Broken::Sign(SignFault::Overloaded { .. })
            | Broken::Contended
            | Broken::Busy
            | Broken::ShuttingDown => {
                warn!(%fault, "not served for now");
                Self::Unavailable { what }
            }
            Broken::Sign(_)
            | Broken::Draft(_)
            | Broken::Defect
            | Broken::Entropy(_)
            | Broken::Encode(_)
            | Broken::Serials(_)
            | Broken::StoredRequest { .. } => {
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
            ActFault::Broken(fault) => fault.into(),
        }
    }
}

impl From<SubmitFault> for Refusal {
    fn from(fault: SubmitFault) -> Self {
        let what = fault.to_string();
        match fault {
            SubmitFault::Duplicate { .. }
            | SubmitFault::Denied { .. }
            | SubmitFault::TooManyWaiting { .. } => Self::Conflict { what },
            SubmitFault::Broken(fault) => fault.into(),
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
            RevokeFault::Broken(fault) => fault.into(),
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
            InventoryFault::Broken(fault) => fault.into(),
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
            WindowFault::Broken(fault) => fault.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_worth_another_try_and_what_may_not_is_not() {
        for (fault, status) in [
            (Broken::Store(StoreFault::Full), 503),
            (Broken::Store(StoreFault::Stopped), 503),
            (Broken::Contended, 503),
            (Broken::Store(StoreFault::Corrupt { what: "request" }), 500),
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
