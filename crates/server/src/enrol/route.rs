//! A path of the interface: which methods it has, what answers them, and which role each needs.

use axum::handler::Handler;
use axum::middleware;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;

use super::{EnrolDoor, admission};
use crate::access::Needs;

/// A handler cannot be added without what it needs: what is served is guarded.
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
    answers: MethodRouter<EnrolDoor>,
}

impl Route {
    pub(super) fn at(path: &'static str) -> Self {
        Self {
            path,
            calls: Vec::new(),
        }
    }

    pub(super) fn get<H, T>(self, needs: Needs, handler: H) -> Self
    where
        H: Handler<T, EnrolDoor>,
        T: 'static,
    {
        self.with(Method::GET, needs, on(MethodFilter::GET, handler))
    }

    pub(super) fn post<H, T>(self, needs: Needs, handler: H) -> Self
    where
        H: Handler<T, EnrolDoor>,
        T: 'static,
    {
        self.with(Method::POST, needs, on(MethodFilter::POST, handler))
    }

    pub(super) fn delete<H, T>(self, needs: Needs, handler: H) -> Self
    where
        H: Handler<T, EnrolDoor>,
        T: 'static,
    {
        self.with(Method::DELETE, needs, on(MethodFilter::DELETE, handler))
    }

    /// The methods with a guard before each.
    pub(super) fn guarded(self, door: &EnrolDoor) -> MethodRouter<EnrolDoor> {
        let none = MethodRouter::new();
        self.calls.into_iter().fold(none, |all, call| {
            let state = (door.clone(), call.needs);
            let guard = middleware::from_fn_with_state(state, admission::guard);
            all.merge(call.answers.route_layer(guard))
        })
    }

    fn with(mut self, method: Method, needs: Needs, answers: MethodRouter<EnrolDoor>) -> Self {
        self.calls.push(Call {
            method,
            needs,
            answers,
        });
        self
    }
}
