//! What can be counted: structs built from a registry that is passed in, with labels of few values.
//!
//! Whoever counts on the way of a request touches atomics and nothing else. What is expensive to know is asked when
//! somebody looks.

mod engine;
mod histogram;
mod state;
mod traffic;

pub use engine::EngineMetrics;
pub use prometheus_client::registry::Registry;
pub use state::StateMetrics;
pub use traffic::{Doorway, TrafficMetrics};

pub(crate) use traffic::Traffic;

use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// One label whose value the program has.
type StaticLabel = [(&'static str, &'static str); 1];
/// One label whose value comes from the configuration.
type NamedLabel = [(&'static str, String); 1];

/// How often the configuration was read again. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReloadMetrics {
    applied: Counter,
    refused: Counter,
}

impl ReloadMetrics {
    /// Registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let reloads = Family::<StaticLabel, Counter>::default();
        registry.register(
            "countersign_config_reloads",
            "How often SIGHUP made the server read its configuration again, by outcome",
            reloads.clone(),
        );
        let outcome = |word| reloads.get_or_create_owned(&[("outcome", word)]);
        Self {
            applied: outcome("applied"),
            refused: outcome("refused"),
        }
    }

    /// A good configuration was put in force.
    pub fn applied(&self) {
        self.applied.inc();
    }

    /// A bad one was not.
    pub fn refused(&self) {
        self.refused.inc();
    }
}

/// Which policy is in force, and how changes to it went. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PolicyMetrics {
    generation: Gauge,
    is_refused: Gauge,
    applied: Counter,
    refused: Counter,
}

impl PolicyMetrics {
    /// Registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let loads = registered(
            registry,
            "countersign_policy_loads",
            "How often policy files were read, at the start and after changes, by outcome",
            Family::<StaticLabel, Counter>::default(),
        );
        let outcome = |word| loads.get_or_create_owned(&[("outcome", word)]);
        Self {
            applied: outcome("applied"),
            refused: outcome("refused"),
            generation: registered(
                registry,
                "countersign_policy_generation",
                "The generation of the policy in force",
                Gauge::default(),
            ),
            is_refused: registered(
                registry,
                "countersign_policy_refused",
                "1 while the policy files have faults and an earlier policy stays in force",
                Gauge::default(),
            ),
        }
    }

    /// A policy is in force.
    pub fn applied(&self, generation: u64) {
        self.applied.inc();
        self.generation
            .set(i64::try_from(generation).unwrap_or(i64::MAX));
        self.is_refused.set(0);
    }

    /// The files are again what is in force.
    pub fn settled(&self) {
        self.is_refused.set(0);
    }

    /// The files are bad; an earlier policy stays in force.
    pub fn refused(&self) {
        self.refused.inc();
        self.is_refused.set(1);
    }
}

/// Registers a metric and gives it back.
fn registered<M>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M
where
    M: Clone + EncodeMetric + Send + Sync + std::fmt::Debug + 'static,
{
    registry.register(name, help, metric.clone());
    metric
}

type Gauges<L> = Family<L, Gauge>;
