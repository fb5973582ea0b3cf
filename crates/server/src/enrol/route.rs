//! A path of the interface: what answers there, and how the document describes it.

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter};
use http::Method;

use super::EnrolDoor;
use super::operation::Operation;

/// A handler cannot be added without its operation: what is served is described.
pub(super) struct Route {
    /// Under `/enrol/v1`, with parameters in braces.
    pub(super) path: &'static str,
    pub(super) answers: MethodRouter<EnrolDoor>,
    pub(super) operations: Vec<(Method, &'static Operation)>,
}

impl Route {
    pub(super) fn at(path: &'static str) -> Self {
        Self {
            path,
            answers: MethodRouter::new(),
            operations: Vec::new(),
        }
    }

    pub(super) fn get<H, T>(self, handler: H, operation: &'static Operation) -> Self
    where
        H: Handler<T, EnrolDoor>,
        T: 'static,
    {
        self.on(Method::GET, MethodFilter::GET, handler, operation)
    }

    pub(super) fn post<H, T>(self, handler: H, operation: &'static Operation) -> Self
    where
        H: Handler<T, EnrolDoor>,
        T: 'static,
    {
        self.on(Method::POST, MethodFilter::POST, handler, operation)
    }

    pub(super) fn delete<H, T>(self, handler: H, operation: &'static Operation) -> Self
    where
        H: Handler<T, EnrolDoor>,
        T: 'static,
    {
        self.on(Method::DELETE, MethodFilter::DELETE, handler, operation)
    }

    fn on<H, T>(
        mut self,
        method: Method,
        filter: MethodFilter,
        handler: H,
        operation: &'static Operation,
    ) -> Self
    where
        H: Handler<T, EnrolDoor>,
        T: 'static,
    {
        self.answers = self.answers.on(filter, handler);
        self.operations.push((method, operation));
        self
    }
}
