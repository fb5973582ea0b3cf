//! The Foreman door: the calls that Foreman makes to a smart proxy with its Puppet CA feature.
//!
//! Hosts that Foreman builds get an enrolment token from here, and hosts that it forgets lose their certificates here. The
//! paths, status codes and bodies are the smart proxy's; what they do is the engine's. Nobody is served without a client
//! certificate of a name on the list of trusted hosts, whatever is asked.

mod admission;
mod answer;
mod autosign;
mod certificates;
mod features;
mod parameters;
mod validation;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use countersign_authority::{Authority, Door, DoorSpec};

pub use admission::TrustedHosts;

use crate::frontend::FrontEndLayer;
use crate::limits::RequestLimits;
use crate::puppet::PuppetDoor;

/// What the door tells the engine of itself. Of what it is asked to validate, refusals alone are on record.
pub static SPEC: DoorSpec = DoorSpec::plain(Door::named("foreman"));

/// A smart proxy in front of an authority. Cheap to clone.
#[derive(Clone)]
pub struct ForemanDoor {
    /// Whose requests and certificates this is about.
    puppet: PuppetDoor,
    trusted: TrustedHosts,
    limits: Option<RequestLimits>,
    /// Where agents enrol, for Foreman's templates.
    puppet_url: Arc<str>,
}

impl ForemanDoor {
    /// A door to the certificates of `puppet`, for these hosts. Agents reach that at `puppet_url`.
    pub fn new(puppet: PuppetDoor, trusted: TrustedHosts, puppet_url: &str) -> Self {
        Self {
            puppet,
            trusted,
            limits: None,
            puppet_url: Arc::from(puppet_url),
        }
    }

    /// The same door, where requests for validation count against limits.
    #[must_use]
    pub fn within(self, limits: RequestLimits) -> Self {
        Self {
            limits: Some(limits),
            ..self
        }
    }

    fn authority(&self) -> &Authority {
        self.puppet.authority()
    }
}

/// Everything the door serves. Each request must carry its [`crate::Peer`] as an extension.
pub fn router(door: ForemanDoor) -> Router {
    Router::new()
        .route("/puppet/ca", get(certificates::list))
        .route("/puppet/ca/", get(certificates::list))
        .route(
            "/puppet/ca/autosign",
            get(autosign::list)
                .post(certificates::not_a_name)
                .delete(certificates::clean_autosign),
        )
        .route(
            "/puppet/ca/autosign/{certname}",
            post(autosign::enable).delete(autosign::disable),
        )
        .route(
            "/puppet/ca/validate",
            post(validation::validate).delete(certificates::clean_validate),
        )
        .route(
            "/puppet/ca/{certname}",
            post(certificates::sign).delete(certificates::clean),
        )
        .route("/features", get(features::names))
        .route("/v2/features", get(features::details))
        .route("/version", get(features::version))
        .method_not_allowed_fallback(answer::unrouted)
        .fallback(answer::unrouted)
        .layer(FrontEndLayer::new(door.clone()))
        .with_state(door)
}
