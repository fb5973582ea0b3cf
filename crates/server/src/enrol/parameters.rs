//! Parameters of calls, whose faults are answered as every other refusal is.

use axum::extract::{self, FromRequestParts};
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::faults::Refusal;

/// What stands in the path.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let extract::Path(parameters) = extract::Path::from_request_parts(parts, state).await?;
        Ok(Self(parameters))
    }
}

/// What stands after the question mark.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let extract::Query(parameters) = extract::Query::from_request_parts(parts, state).await?;
        Ok(Self(parameters))
    }
}
