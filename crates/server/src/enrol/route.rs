//! A path of the interface: which methods it has, what answers them, which role each needs, and how the document describes
//! it.

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;

use super::EnrolDoor;
use super::admission::Guard;
use super::operation::Operation;
use crate::access::Needs;
use crate::frontend::FrontEndLayer;

/// A handler cannot be added without what it needs and without its operation: what is served is guarded and described.
pub(super) struct Route {
    /// Under `/enrol/v1`, with parameters in braces. A certname is `{name}` or `{certname}`; the door at which it is a
    /// name, if it may be another than Puppet's, is `{door}`.
    pub(super) path: &'static str,
    pub(super) calls: Vec<Call>,
}

/// One method of a path.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) needs: Needs,
    pub(super) operation: &'static Operation,
    max_body: usize,
    answers: MethodRouter<EnrolDoor>,
}

impl Route {
    pub(super) fn at(path: &'static str) -> Self {
        Self {
            path,
            calls: Vec::new(),
        }
    }

    pub(super) fn get<H, T>(self, needs: Needs, handler: H, operation: &'static Operation) -> Self
    where
        H: Handler<T, EnrolDoor>,
        T: 'static,
    {
        let answers = on(MethodFilter::GET, handler);
        self.with(Method::GET, needs, operation, answers)
    }

    pub(super) fn post<H, T>(self, needs: Needs, handler: H, operation: &'static Operation) -> Self
    where
        H: Handler<T, EnrolDoor>,
        T: 'static,
    {
        let answers = on(MethodFilter::POST, handler);
        self.with(Method::POST, needs, operation, answers)
    }

    pub(super) fn put<H, T>(self, needs: Needs, handler: H, operation: &'static Operation) -> Self
    where
        H: Handler<T, EnrolDoor>,
        T: 'static,
    {
        let answers = on(MethodFilter::PUT, handler);
        self.with(Method::PUT, needs, operation, answers)
    }

    pub(super) fn delete<H, T>(
        self,
        needs: Needs,
        handler: H,
        operation: &'static Operation,
    ) -> Self
    where
        H: Handler<T, EnrolDoor>,
        T: 'static,
    {
        let answers = on(MethodFilter::DELETE, handler);
        self.with(Method::DELETE, needs, operation, answers)
    }

    /// The same, where bodies may be longer than usual.
    pub(super) fn with_bodies_up_to(mut self, octets: usize) -> Self {
        for call in &mut self.calls {
            call.max_body = octets;
        }
        self
    }

    /// The methods with a guard before each.
    pub(super) fn guarded(self, door: &EnrolDoor) -> MethodRouter<EnrolDoor> {
        let none = MethodRouter::new();
        self.calls.into_iter().fold(none, |all, call| {
            let guard = FrontEndLayer::new(Guard {
                door: door.clone(),
                needs: call.needs,
                max_body: Some(call.max_body),
            });
            all.merge(call.answers.route_layer(guard))
        })
    }

    /// The methods without a guard.
    pub(super) fn open(self) -> MethodRouter<EnrolDoor> {
        let none = MethodRouter::new();
        let calls = self.calls.into_iter();
        calls.fold(none, |all, call| all.merge(call.answers))
    }

    fn with(
        mut self,
        method: Method,
        needs: Needs,
        operation: &'static Operation,
        answers: MethodRouter<EnrolDoor>,
    ) -> Self {
        self.calls.push(Call {
            method,
            needs,
            operation,
            max_body: MAX_BODY,
            answers,
        });
        self
    }
}

const MAX_BODY: usize = 16 * 1024;
