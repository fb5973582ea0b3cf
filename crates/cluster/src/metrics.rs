//! What the controllers count.

use countersign_policy::Effect;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::operator::OperatorMetrics;

/// Counters of the controllers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClusterMetrics {
    decisions: Family<[(&'static str, String); 3], Counter>,
    writes: Family<[(&'static str, &'static str); 2], Counter>,
    cleaned: Family<[(&'static str, &'static str); 1], Counter>,
    events_suppressed: Counter,
    age: Histogram,
    pub(crate) leading: Gauge,
    pub(crate) pending: Gauge,
    pub(crate) queued: Gauge,
    pub(crate) requests: Gauge,
    pod_answers: Family<[(&'static str, &'static str); 2], Counter>,
    pub(crate) pods_waiting: Gauge,
    pub(crate) operator: OperatorMetrics,
}

impl ClusterMetrics {
    /// Registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            decisions: Family::default(),
            writes: Family::default(),
            cleaned: Family::default(),
            events_suppressed: Counter::default(),
            age: Histogram::new(AGES),
            leading: Gauge::default(),
            pending: Gauge::default(),
            queued: Gauge::default(),
            requests: Gauge::default(),
            pod_answers: Family::default(),
            pods_waiting: Gauge::default(),
            operator: OperatorMetrics::new(registry),
        };
        registry.register(
            "countersign_cluster_decisions",
            "Decisions on CertificateSigningRequests, by outcome, rule and reason",
            metrics.decisions.clone(),
        );
        registry.register(
            "countersign_cluster_writes",
            "Writes to the API server, by what is written and outcome",
            metrics.writes.clone(),
        );
        registry.register(
            "countersign_cluster_cleaned",
            "CertificateSigningRequests that the cleaner has deleted, by why",
            metrics.cleaned.clone(),
        );
        registry.register(
            "countersign_cluster_events_suppressed",
            "Events that were not written because there were too many",
            metrics.events_suppressed.clone(),
        );
        registry.register(
            "countersign_cluster_decision_age_seconds",
            "Seconds from the creation of a request to the decision on it",
            metrics.age.clone(),
        );
        registry.register(
            "countersign_cluster_leading",
            "1 while this replica holds the lease and works",
            metrics.leading.clone(),
        );
        registry.register(
            "countersign_cluster_requests_pending",
            "Requests that were judged and wait for evidence or for a person",
            metrics.pending.clone(),
        );
        registry.register(
            "countersign_cluster_queue",
            "Requests that are to be looked at, now or after a pause",
            metrics.queued.clone(),
        );
        registry.register(
            "countersign_cluster_requests",
            "CertificateSigningRequests in the cluster",
            metrics.requests.clone(),
        );
        registry.register(
            "countersign_cluster_pod_requests",
            "What became of PodCertificateRequests each time they were judged, by outcome and reason",
            metrics.pod_answers.clone(),
        );
        registry.register(
            "countersign_cluster_pod_requests_waiting",
            "PodCertificateRequests in the cluster that nobody has answered",
            metrics.pods_waiting.clone(),
        );
        metrics
    }

    pub(crate) fn decided(&self, effect: Effect, rule: &str, code: &str) {
        let outcome = match effect {
            Effect::Approve => "approved",
            Effect::Deny => "denied",
            Effect::Pending => "pending",
        };
        let labels = [
            ("outcome", outcome.to_owned()),
            ("rule", rule.to_owned()),
            ("reason", code.to_owned()),
        ];
        self.decisions.get_or_create_owned(&labels).inc();
    }

    pub(crate) fn wrote(&self, what: &'static str, outcome: &'static str) {
        let labels = [("what", what), ("outcome", outcome)];
        self.writes.get_or_create_owned(&labels).inc();
    }

    pub(crate) fn pod_answered(&self, outcome: &'static str, reason: &'static str) {
        let labels = [("outcome", outcome), ("reason", reason)];
        self.pod_answers.get_or_create_owned(&labels).inc();
    }

    pub(crate) fn cleaned(&self, why: &'static str) {
        self.cleaned.get_or_create_owned(&[("reason", why)]).inc();
    }

    pub(crate) fn suppressed_event(&self) {
        self.events_suppressed.inc();
    }

    pub(crate) fn decided_after(&self, seconds: i64) {
        // Ages are small whole numbers.
        self.age
            .observe(i32::try_from(seconds.max(0)).map_or(f64::MAX, f64::from));
    }
}

const AGES: [f64; 10] = [
    1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 86400.0,
];
