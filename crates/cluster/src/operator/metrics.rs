//! What the operator counts.

use std::collections::BTreeMap;

use countersign_pki::UnixTime;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::object::ObjectName;

/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct OperatorMetrics {
    certificates: Family<[(&'static str, String); 1], Gauge>,
    calls: Family<[(&'static str, &'static str); 2], Counter>,
    reviews: Family<[(&'static str, &'static str); 2], Counter>,
    ends: Family<[(&'static str, String); 2], Gauge>,
    refreshed: Family<[(&'static str, String); 2], Gauge>,
}

impl OperatorMetrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "countersign_operator_certificates",
            "Certificates of the operator, by phase",
            metrics.certificates.clone(),
        );
        registry.register(
            "countersign_operator_ca_calls",
            "What the operator has asked of CAs, by what was asked and outcome",
            metrics.calls.clone(),
        );
        registry.register(
            "countersign_operator_admission_reviews",
            "Reviews of the API server that were answered, by kind of the object and answer",
            metrics.reviews.clone(),
        );
        registry.register(
            "openvox_certificate_expiry_timestamp_seconds",
            "When the certificate of a Certificate ends, in seconds since 1970",
            metrics.ends.clone(),
        );
        registry.register(
            "openvox_crl_last_refresh_timestamp_seconds",
            "When the revocation list of a CertificateAuthority was fetched last, in seconds since 1970",
            metrics.refreshed.clone(),
        );
        metrics
    }

    pub(super) fn phases(&self, phases: &BTreeMap<String, i64>) {
        for phase in PHASES {
            let labels = [("phase", phase.to_owned())];
            let count = phases.get(phase).copied().unwrap_or_default();
            self.certificates.get_or_create_owned(&labels).set(count);
        }
    }

    pub(super) fn asked(&self, what: &'static str, outcome: &'static str) {
        let labels = [("call", what), ("outcome", outcome)];
        self.calls.get_or_create_owned(&labels).inc();
    }

    pub(super) fn reviewed(&self, kind: &'static str, answer: &'static str) {
        let labels = [("kind", kind), ("answer", answer)];
        self.reviews.get_or_create_owned(&labels).inc();
    }

    pub(super) fn expires(&self, name: &ObjectName, at: UnixTime) {
        self.ends.get_or_create_owned(&of(name)).set(at.0);
    }

    pub(super) fn refreshed(&self, name: &ObjectName, at: UnixTime) {
        self.refreshed.get_or_create_owned(&of(name)).set(at.0);
    }

    pub(super) fn forget_certificate(&self, name: &ObjectName) {
        self.ends.remove(&of(name));
    }

    pub(super) fn forget_authority(&self, name: &ObjectName) {
        self.refreshed.remove(&of(name));
    }
}

fn of(name: &ObjectName) -> [(&'static str, String); 2] {
    [
        ("name", name.name.clone()),
        ("namespace", name.namespace.clone()),
    ]
}

const PHASES: [&str; 6] = [
    "Pending",
    "Requesting",
    "WaitingForSigning",
    "Signed",
    "Renewing",
    "Error",
];
