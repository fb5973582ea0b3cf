//! Events on requests that wait (`events.k8s.io/v1`), so that `kubectl describe csr` and `kubectl get events` say why.
//!
//! One per request and reason: a request that is judged a hundred times with the same outcome is told of once, also by the
//! next leader. Of all requests together only so many per second, because Events cost the cluster's store.

use std::collections::BTreeSet;
use std::time::Duration;

use countersign_pki::{UnixTime, fingerprint_sha256};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::segment;
use crate::controllers::Next;
use crate::leader::micro_time;
use crate::objects::CsrObject;
use crate::plan::Reason;
use crate::queue::Pause;

/// Which Events have been written, and how many may be.
#[derive(Debug)]
pub(crate) struct EventBudget {
    told: BTreeSet<String>,
    tokens: u32,
    refilled: Instant,
}

impl EventBudget {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            told: BTreeSet::new(),
            tokens: BURST,
            refilled: now,
        }
    }

    /// Whether an Event of this name is to be written now.
    pub(crate) fn admits(&mut self, name: &str, now: Instant) -> Admission {
        if self.told.contains(name) {
            return Admission::Told;
        }
        let passed = now.saturating_duration_since(self.refilled);
        let more = u32::try_from(passed.as_nanos() / PER_EVENT.as_nanos()).unwrap_or(u32::MAX);
        if more > 0 {
            self.tokens = self.tokens.saturating_add(more).min(BURST);
            self.refilled = now;
        }
        let Some(left) = self.tokens.checked_sub(1) else {
            return Admission::TooMany;
        };
        self.tokens = left;
        if self.told.len() >= MAX_TOLD {
            self.told.clear();
        }
        self.told.insert(name.to_owned());
        Admission::Write
    }

    /// It could not be written, and may be tried again.
    pub(crate) fn take_back(&mut self, name: &str) {
        self.told.remove(name);
    }
}

/// What becomes of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Write,
    /// It has been told before.
    Told,
    TooMany,
}

/// Whether somebody who waits has been told why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Just now.
    Now,
    Before,
    /// Not yet: there are too many Events, or the API server does not take it now.
    Later,
}

impl Told {
    /// What becomes of a request that waits for nothing else that has to be asked for.
    pub(crate) fn next(self) -> Next {
        match self {
            Self::Now | Self::Before => Next::Done,
            Self::Later => Next::Again(Pause::Evidence),
        }
    }
}

/// What an Event is about.
pub(crate) struct About<'a> {
    /// The object's namespace; that of an object without one is `default`.
    pub(crate) namespace: &'a str,
    /// Who tells.
    pub(crate) controller: &'static str,
    /// What is being tried, and why it is not done yet, in one word each.
    pub(crate) action: &'static str,
    pub(crate) reason: &'static str,
    /// The object's identity.
    pub(crate) uid: &'a str,
    /// The object.
    pub(crate) regarding: Value,
}

impl<'a> About<'a> {
    /// A CertificateSigningRequest that waits to be decided.
    pub(crate) fn request(request: &'a CsrObject) -> Self {
        Self {
            namespace: "default",
            controller: "countersign.dev/approver",
            action: "Approve",
            reason: "ApprovalPending",
            uid: &request.uid,
            regarding: json!({
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "name": request.name,
                "uid": request.uid,
                "resourceVersion": request.version,
            }),
        }
    }

    /// One that is approved, and waits for its certificate.
    pub(crate) fn approved(request: &'a CsrObject) -> Self {
        Self {
            controller: "countersign.dev/signer",
            action: "Sign",
            reason: "SigningPending",
            ..Self::request(request)
        }
    }

    /// The name of the Event for a reason: always the same, so that it exists once.
    pub(crate) fn name(&self, why: &Reason) -> String {
        let text = format!("{}\n{}\n{}", self.uid, why.rule, why.code);
        let hash = fingerprint_sha256(text.as_bytes())
            .to_hex()
            .to_ascii_lowercase();
        format!("countersign-{}", hash.get(..32).unwrap_or_default())
    }

    /// The Event itself.
    pub(crate) fn event(&self, name: &str, why: &Reason, instance: &str, now: UnixTime) -> Value {
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": self.namespace},
            "eventTime": micro_time(now),
            "reportingController": self.controller,
            "reportingInstance": instance,
            "action": self.action,
            "reason": self.reason,
            "type": "Normal",
            "note": why.words,
            "regarding": self.regarding,
        })
    }

    /// Where it is written.
    pub(crate) fn path(&self) -> String {
        let namespace = segment(self.namespace);
        format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    }
}

/// So many at once, then five per second, over all requests.
const BURST: u32 = 100;
const PER_EVENT: Duration = Duration::from_millis(200);
/// Bounds memory; after that many, some may be told twice, and the API server knows that they exist.
const MAX_TOLD: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::tests::request;

    #[test]
    fn an_event_is_written_once_and_not_too_often() {
        let begin = Instant::now();
        let mut budget = EventBudget::new(begin);
        assert_eq!(budget.admits("a", begin), Admission::Write);
        assert_eq!(budget.admits("a", begin), Admission::Told);
        budget.take_back("a");
        assert_eq!(budget.admits("a", begin), Admission::Write);
        let admitted =
            (0..500).filter(|n| budget.admits(&n.to_string(), begin) == Admission::Write);
        assert_eq!(admitted.count(), 98);
        assert_eq!(budget.admits("b", begin), Admission::TooMany);
        let later = begin + Duration::from_millis(450);
        let admitted = ["b", "c", "d"].map(|name| budget.admits(name, later));
        assert_eq!(
            admitted,
            [Admission::Write, Admission::Write, Admission::TooMany]
        );
    }

    #[test]
    fn an_event_has_one_name_per_request_and_reason() {
        let why = |rule: &str, code: &str| Reason {
            rule: rule.to_owned(),
            code: code.to_owned(),
            words: String::new(),
        };
        let (a, b) = (request("a", json!({})), request("B_b", json!({})));
        let name = |request: &CsrObject, why: &Reason| About::request(request).name(why);
        let first = name(&a, &why("r", "C10"));
        assert_eq!(first, name(&a, &why("r", "C10")));
        assert_ne!(first, name(&a, &why("r", "C11")));
        assert_ne!(first, name(&a, &why("s", "C10")));
        assert_ne!(first, name(&b, &why("r", "C10")));
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(first.len() == 44 && first.chars().all(is_name), "{first}");
    }
}
