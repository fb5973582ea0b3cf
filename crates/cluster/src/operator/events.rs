//! Events on the operator's objects (`events.k8s.io/v1`), as openvox-operator writes them.

use countersign_pki::{UnixTime, fingerprint_sha256};
use serde_json::{Value, json};

use super::calls::Kind;
use super::object::{GROUP, Meta, VERSION};
use crate::leader::micro_time;
use crate::plan::shortened;

/// An Event that shall be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) is_warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) note: String,
}

impl Event {
    pub(crate) fn normal(reason: &'static str, note: impl Into<String>) -> Self {
        Self {
            is_warning: false,
            reason,
            note: note.into(),
        }
    }

    pub(crate) fn warning(reason: &'static str, note: impl Into<String>) -> Self {
        Self {
            is_warning: true,
            reason,
            note: note.into(),
        }
    }

    /// Its name: one for each object, reason, note and minute, so that an Event which is told twice is written once.
    pub(crate) fn name(&self, meta: &Meta, now: UnixTime) -> String {
        let minute = now.0.div_euclid(60);
        let text = format!("{}\n{}\n{}\n{minute}", meta.uid, self.reason, self.note);
        let hash = fingerprint_sha256(text.as_bytes())
            .to_hex()
            .to_ascii_lowercase();
        format!("countersign-{}", hash.get(..32).unwrap_or_default())
    }

    /// The object.
    pub(crate) fn object(&self, kind: Kind, meta: &Meta, instance: &str, now: UnixTime) -> Value {
        let controller = match kind {
            Kind::CertificateAuthority => "certificateauthority-controller",
            Kind::SigningPolicy => "signingpolicy-controller",
            Kind::Certificate
            | Kind::Config
            | Kind::Server
            | Kind::Pool
            | Kind::Secret
            | Kind::Service
            | Kind::EndpointSlice => "certificate-controller",
        };
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": self.name(meta, now), "namespace": meta.name.namespace},
            "eventTime": micro_time(now),
            "reportingController": controller,
            "reportingInstance": instance,
            "action": "Reconcile",
            "reason": self.reason,
            "type": if self.is_warning { "Warning" } else { "Normal" },
            "note": shortened(&self.note),
            "regarding": {
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": kind.word(),
                "namespace": meta.name.namespace,
                "name": meta.name.name,
                "uid": meta.uid,
                "resourceVersion": meta.version,
            },
        })
    }
}
