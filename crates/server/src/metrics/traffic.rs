//! What listeners see: requests, their answers, open connections.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::histogram::{Histogram, REQUESTS};
use super::{Gauges, StaticLabel, registered};

/// Counts what listeners see.
#[derive(Debug)]
pub struct TrafficMetrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<StaticLabel, Histogram>,
    open: Gauges<StaticLabel>,
}

type RequestLabels = [(&'static str, &'static str); 3];

/// Which doors are behind a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorway {
    /// The Puppet door and the native interface.
    Puppet,
    /// The Kubernetes door.
    Kubernetes,
    /// The Foreman door.
    Foreman,
}

impl TrafficMetrics {
    /// Registers them.
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            requests: registered(
                registry,
                "countersign_http_requests",
                "Requests that were answered, by door, route and class of status",
                Family::default(),
            ),
            durations: registered(
                registry,
                "countersign_http_request_duration_seconds",
                "How long a request took from its head until its answer began",
                Family::new_with_constructor(|| Histogram::new(&REQUESTS)),
            ),
            open: registered(
                registry,
                "countersign_connections_open",
                "Connections that are open at this moment, handshakes included",
                Family::default(),
            ),
        }
    }

    /// The part of one listener.
    pub fn listener(&self, doorway: Doorway) -> Traffic {
        let (listener, doors): (&'static str, &[Door]) = match doorway {
            Doorway::Puppet => ("puppet", &[Door::Puppet, Door::Enrol]),
            Doorway::Kubernetes => ("kubernetes", &[Door::Kubernetes, Door::Enrol]),
            Doorway::Foreman => ("foreman", &[Door::Foreman]),
        };
        let duration = |door: &Door| {
            let label = [("door", door.word())];
            (*door, self.durations.get_or_create_owned(&label))
        };
        Traffic {
            doorway,
            requests: self.requests.clone(),
            cells: Arc::default(),
            durations: doors.iter().map(duration).collect(),
            open: self.open.get_or_create_owned(&[("listener", listener)]),
        }
    }
}

/// What one listener counts.
#[derive(Debug)]
pub struct Traffic {
    doorway: Doorway,
    requests: Family<RequestLabels, Counter>,
    /// The counters by route and class, each looked up once.
    cells: Arc<[[OnceLock<Counter>; CLASSES.len()]; ROUTES]>,
    durations: Vec<(Door, Histogram)>,
    open: Gauge,
}

impl Traffic {
    pub(crate) fn route(&self, path: &str) -> Route {
        match self.doorway {
            Doorway::Puppet => Route::at_puppet(path),
            Doorway::Kubernetes => Route::at_kubernetes(path),
            Doorway::Foreman => Route::at_foreman(path),
        }
    }

    pub(crate) fn answered(&self, route: Route, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        let class = class.min(CLASSES.len() - 1);
        let cell = self.cells.get(route as usize);
        if let Some((cell, word)) = cell.and_then(|row| row.get(class).zip(CLASSES.get(class))) {
            let labels = [
                ("door", route.door().word()),
                ("route", route.word()),
                ("status", *word),
            ];
            cell.get_or_init(|| self.requests.get_or_create_owned(&labels))
                .inc();
        }
        let door = route.door();
        if let Some((_, duration)) = self.durations.iter().find(|(known, _)| *known == door) {
            duration.observe_duration(took);
        }
    }

    /// Counts a connection until the answer is dropped.
    pub(crate) fn open(&self) -> Open {
        self.open.inc();
        Open(self.open.clone())
    }
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Puppet,
    Enrol,
    Kubernetes,
    Foreman,
}

impl Door {
    fn word(self) -> &'static str {
        match self {
            Self::Puppet => "puppet",
            Self::Enrol => "enrol",
            Self::Kubernetes => "kubernetes",
            Self::Foreman => "foreman",
        }
    }
}

/// What a path is about. Paths that no client of the door uses are all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Certificate,
    CertificateRequest,
    CertificateStatus,
    CertificateStatuses,
    Crl,
    CertificateRenewal,
    Expirations,
    Clean,
    Sign,
    Status,
    PuppetOther,
    EnrolRequests,
    EnrolCertificates,
    EnrolPolicy,
    EnrolRejections,
    EnrolDecisions,
    EnrolMachines,
    EnrolWindows,
    EnrolTokens,
    EnrolAudit,
    EnrolOther,
    SigningRequests,
    Discovery,
    Health,
    KubernetesOther,
    ProxyCertificates,
    ProxyAutosign,
    ProxyValidate,
    ProxyFeatures,
    ForemanOther,
}

impl Route {
    fn at_puppet(path: &str) -> Self {
        let mut segments = path.split('/').skip(1);
        let resource = |segments: &mut dyn Iterator<Item = &str>| match segments.next() {
            Some("certificate") => Self::Certificate,
            Some("certificate_request") => Self::CertificateRequest,
            Some("certificate_status") => Self::CertificateStatus,
            Some("certificate_statuses") => Self::CertificateStatuses,
            Some("certificate_revocation_list") => Self::Crl,
            Some("certificate_renewal") => Self::CertificateRenewal,
            Some("expirations") => Self::Expirations,
            Some("clean") => Self::Clean,
            Some("sign") => Self::Sign,
            Some(_) | None => Self::PuppetOther,
        };
        match (segments.next(), segments.next()) {
            (Some("puppet-ca"), Some("v1")) => resource(&mut segments),
            (Some("status"), Some("v1")) => Self::Status,
            (Some("enrol"), Some("v1")) => Self::at_enrol(segments.next()),
            (Some("enrol"), _) => Self::EnrolOther,
            (Some(_) | None, _) => Self::PuppetOther,
        }
    }

    /// Beside either door.
    fn at_enrol(resource: Option<&str>) -> Self {
        match resource {
            Some("requests" | "kubernetes-users") => Self::EnrolRequests,
            Some("certificates") => Self::EnrolCertificates,
            Some("policy" | "signing-policies") => Self::EnrolPolicy,
            Some("rejections") => Self::EnrolRejections,
            Some("decisions") => Self::EnrolDecisions,
            Some("machines" | "machine-imports") => Self::EnrolMachines,
            Some("windows") => Self::EnrolWindows,
            Some("tokens" | "bootstrap-tokens" | "check") => Self::EnrolTokens,
            Some("audit") => Self::EnrolAudit,
            Some(_) | None => Self::EnrolOther,
        }
    }

    fn at_kubernetes(path: &str) -> Self {
        let mut segments = path.split('/').skip(1);
        match segments.next() {
            Some("enrol") => match segments.next() {
                Some("v1") => Self::at_enrol(segments.next()),
                Some(_) | None => Self::EnrolOther,
            },
            Some("healthz" | "livez" | "readyz") => Self::Health,
            Some("apis") => match segments.nth(2) {
                Some("certificatesigningrequests") => Self::SigningRequests,
                Some("watch") if segments.next() == Some("certificatesigningrequests") => {
                    Self::SigningRequests
                }
                Some(_) => Self::KubernetesOther,
                None => Self::Discovery,
            },
            Some("api") => match segments.nth(1) {
                Some("") | None => Self::Discovery,
                Some(_) => Self::KubernetesOther,
            },
            Some("openapi" | "version") => Self::Discovery,
            Some(_) | None => Self::KubernetesOther,
        }
    }

    fn at_foreman(path: &str) -> Self {
        let mut segments = path.split('/').skip(1);
        match (segments.next(), segments.next(), segments.next()) {
            (Some("puppet"), Some("ca"), Some("autosign")) => Self::ProxyAutosign,
            (Some("puppet"), Some("ca"), Some("validate")) => Self::ProxyValidate,
            (Some("puppet"), Some("ca"), _) => Self::ProxyCertificates,
            (Some("features" | "version"), None, None) | (Some("v2"), Some("features"), None) => {
                Self::ProxyFeatures
            }
            (_, _, _) => Self::ForemanOther,
        }
    }

    fn door(self) -> Door {
        match self {
            Self::Certificate
            | Self::CertificateRequest
            | Self::CertificateStatus
            | Self::CertificateStatuses
            | Self::Crl
            | Self::CertificateRenewal
            | Self::Expirations
            | Self::Clean
            | Self::Sign
            | Self::Status
            | Self::PuppetOther => Door::Puppet,
            Self::EnrolRequests
            | Self::EnrolCertificates
            | Self::EnrolPolicy
            | Self::EnrolRejections
            | Self::EnrolDecisions
            | Self::EnrolMachines
            | Self::EnrolWindows
            | Self::EnrolTokens
            | Self::EnrolAudit
            | Self::EnrolOther => Door::Enrol,
            Self::SigningRequests | Self::Discovery | Self::Health | Self::KubernetesOther => {
                Door::Kubernetes
            }
            Self::ProxyCertificates
            | Self::ProxyAutosign
            | Self::ProxyValidate
            | Self::ProxyFeatures
            | Self::ForemanOther => Door::Foreman,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::CertificateRequest => "certificate_request",
            Self::CertificateStatus => "certificate_status",
            Self::CertificateStatuses => "certificate_statuses",
            Self::Crl => "certificate_revocation_list",
            Self::CertificateRenewal => "certificate_renewal",
            Self::Expirations => "expirations",
            Self::Clean => "clean",
            Self::Sign => "sign",
            Self::Status => "status",
            Self::EnrolRequests => "requests",
            Self::EnrolCertificates => "certificates",
            Self::EnrolPolicy => "policy",
            Self::EnrolRejections => "rejections",
            Self::EnrolDecisions => "decisions",
            Self::EnrolMachines => "machines",
            Self::EnrolWindows => "windows",
            Self::EnrolTokens => "tokens",
            Self::EnrolAudit => "audit",
            Self::SigningRequests => "certificatesigningrequests",
            Self::Discovery => "discovery",
            Self::Health => "health",
            Self::ProxyCertificates => "certificates",
            Self::ProxyAutosign => "autosign",
            Self::ProxyValidate => "validate",
            Self::ProxyFeatures => "features",
            Self::PuppetOther | Self::EnrolOther | Self::KubernetesOther | Self::ForemanOther => {
                "other"
            }
        }
    }
}

const ROUTES: usize = Route::ForemanOther as usize + 1;
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_the_native_interface_has_a_route_at_both_listeners() {
        let document = "/openapi.json";
        for path in crate::enrol::paths() {
            let whole = format!("/enrol/v1{path}");
            for found in [Route::at_puppet(&whole), Route::at_kubernetes(&whole)] {
                assert_eq!(found.door(), Door::Enrol, "{path}");
                assert_eq!(found == Route::EnrolOther, path == document, "{path}");
            }
        }
    }

    #[test]
    fn paths_have_a_route_and_a_door() {
        for (path, door, route) in [
            ("/puppet-ca/v1/certificate/ca", "puppet", "certificate"),
            (
                "/puppet-ca/v1/certificate_request/web01",
                "puppet",
                "certificate_request",
            ),
            ("/puppet-ca/v1/sign/all", "puppet", "sign"),
            ("/puppet-ca/v1", "puppet", "other"),
            ("/puppet-ca/v2/certificate/ca", "puppet", "other"),
            ("/status/v1/simple", "puppet", "status"),
            ("/enrol/v1/requests/puppet/web01", "enrol", "requests"),
            ("/enrol/v1/", "enrol", "other"),
            ("/enrol", "enrol", "other"),
            ("/", "puppet", "other"),
            ("*", "puppet", "other"),
        ] {
            let found = Route::at_puppet(path);
            assert_eq!((found.door().word(), found.word()), (door, route), "{path}");
        }
        for (path, route) in [
            ("/puppet/ca", "certificates"),
            ("/puppet/ca/web01", "certificates"),
            ("/puppet/ca/autosign", "autosign"),
            ("/puppet/ca/autosign/web01", "autosign"),
            ("/puppet/ca/validate", "validate"),
            ("/features", "features"),
            ("/v2/features", "features"),
            ("/version", "features"),
            ("/puppet", "other"),
            ("/", "other"),
        ] {
            let found = Route::at_foreman(path);
            let told = (found.door().word(), found.word());
            assert_eq!(told, ("foreman", route), "{path}");
        }
        let resource = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        for (path, route) in [
            (resource.to_owned(), "certificatesigningrequests"),
            (
                format!("{resource}/a/approval"),
                "certificatesigningrequests",
            ),
            ("/apis".to_owned(), "discovery"),
            ("/apis/certificates.k8s.io/v1".to_owned(), "discovery"),
            ("/apis/a/b/c".to_owned(), "other"),
            ("/api/v1".to_owned(), "discovery"),
            ("/api/v1/events".to_owned(), "other"),
            ("/openapi/v2".to_owned(), "discovery"),
            ("/readyz".to_owned(), "health"),
            ("/favicon.ico".to_owned(), "other"),
        ] {
            let found = Route::at_kubernetes(&path);
            assert_eq!(
                (found.door().word(), found.word()),
                ("kubernetes", route),
                "{path}"
            );
        }
    }
}
