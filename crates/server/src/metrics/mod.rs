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

/// Registers a metric and gives it back.
fn registered<M>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M
where
    M: Clone + EncodeMetric + Send + Sync + std::fmt::Debug + 'static,
{
    registry.register(name, help, metric.clone());
    metric
}

type Gauges<L> = Family<L, Gauge>;
