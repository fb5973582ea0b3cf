//! Deletes requests that nobody needs any more: which ones is a pure function over those there are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use countersign_pki::UnixTime;
use serde_json::{Value, json};

use crate::objects::{CsrObject, first_certificate};

/// How long requests are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanerSettings {
    /// How often all of them are looked at.
    pub interval: Duration,
    /// Undecided ones, since their creation.
    pub pending: Duration,
    /// Approved ones without a certificate, since their approval.
    pub approved: Duration,
    /// Those with a certificate, since their approval.
    pub issued: Duration,
    /// Denied ones, since their denial.
    pub denied: Duration,
    /// Failed ones, since their failure.
    pub failed: Duration,
    /// How many one requester may have in all, the newest first; 0: any number.
    pub per_requester: usize,
}

impl Default for CleanerSettings {
    /// The times of kube-controller-manager.
    fn default() -> Self {
        let hours = |hours: u64| Duration::from_secs(hours.saturating_mul(3600));
        Self {
            interval: Duration::from_secs(300),
            pending: hours(24),
            approved: hours(24),
            issued: hours(1),
            denied: hours(1),
            failed: hours(1),
            per_requester: 10_000,
        }
    }
}

/// A request that is to be deleted, and why in one word.
pub(crate) type Outdated = (Arc<CsrObject>, &'static str);

/// All that are to be deleted now.
pub(crate) fn outdated<'a>(
    requests: impl Iterator<Item = &'a Arc<CsrObject>>,
    settings: &CleanerSettings,
    now: UnixTime,
) -> Vec<Outdated> {
    let mut found = Vec::new();
    let mut kept: BTreeMap<&str, Vec<&Arc<CsrObject>>> = BTreeMap::new();
    for request in requests.filter(|request| !request.deleting) {
        match why_outdated(request, settings, now) {
            Some(why) => found.push((Arc::clone(request), why)),
            None => kept.entry(request.username()).or_default().push(request),
        }
    }
    if settings.per_requester > 0 {
        for mut of_one in kept.into_values() {
            of_one.sort_by(|a, b| (b.created, &b.name).cmp(&(a.created, &a.name)));
            let surplus = of_one.into_iter().skip(settings.per_requester);
            found.extend(surplus.map(|request| (Arc::clone(request), "surplus")));
        }
    }
    found
}

fn why_outdated(
    request: &CsrObject,
    settings: &CleanerSettings,
    now: UnixTime,
) -> Option<&'static str> {
    let is_older = |since: UnixTime, than: Duration| {
        let age = now.seconds_since(since);
        u64::try_from(age).is_ok_and(|age| age > than.as_secs())
    };
    // A condition without a time, or one of the future, is as old as its object: nobody keeps one for ever that way.
    let since = |kind: &str| {
        let condition = request.condition(kind)?;
        Some(
            condition
                .updated
                .filter(|at| *at <= now)
                .unwrap_or(request.created),
        )
    };
    if since("Denied").is_some_and(|at| is_older(at, settings.denied)) {
        return Some("denied");
    }
    if since("Failed").is_some_and(|at| is_older(at, settings.failed)) {
        return Some("failed");
    }
    if request.is("Denied") || request.is("Failed") {
        return None;
    }
    match (&request.certificate, since("Approved")) {
        (Some(certificate), approved) => {
            let ended = first_certificate(certificate).is_some_and(|it| it.not_after() < now);
            // A certificate without an approval is somebody's mistake, and no reason to keep it.
            let issued = approved.unwrap_or(request.created);
            match (ended, is_older(issued, settings.issued)) {
                (true, _) => Some("expired"),
                (false, true) => Some("issued"),
                (false, false) => None,
            }
        }
        (None, Some(approved)) => is_older(approved, settings.approved).then_some("approved"),
        // Whatever other conditions somebody has added.
        (None, None) => is_older(request.created, settings.pending).then_some("pending"),
    }
}

/// Deletes exactly the object that was looked at, in the state in which it was.
pub(crate) fn delete_options(request: &CsrObject) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": request.uid, "resourceVersion": request.version},
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use countersign_pki::{AltName, oid};
    use countersign_testkit::chain::{Ca, Leaf};
    use countersign_testkit::keys;

    use super::*;
    use crate::objects::tests::request;

    /// 2026-05-01T12:00:00Z, when the requests of tests were made.
    const CREATED: UnixTime = UnixTime(1_777_636_800);
    const HOUR: u64 = 3600;

    fn outdated_after(status: Value, seconds: u64) -> Option<&'static str> {
        let request = request("a", json!({"status": status}));
        assert_eq!(request.created, CREATED);
        let now = CREATED.plus_seconds(seconds);
        why_outdated(&request, &CleanerSettings::default(), now)
    }

    #[test]
    fn requests_are_kept_as_long_as_kubernetes_keeps_them() {
        let at = |kind: &str, time: &str| json!({"conditions": [{"type": kind, "status": "True", "lastUpdateTime": time}]});
        let decided = |kind: &str| at(kind, "2026-05-01T13:00:00Z");
        let mut issued = decided("Approved");
        issued["certificate"] = json!("QUJD");
        for (case, status, seconds, expected) in [
            ("pending", json!({}), 24 * HOUR, None),
            ("pending", json!({}), 24 * HOUR + 1, Some("pending")),
            ("denied", decided("Denied"), 2 * HOUR, None),
            ("denied", decided("Denied"), 2 * HOUR + 1, Some("denied")),
            ("failed", decided("Failed"), 2 * HOUR, None),
            ("failed", decided("Failed"), 2 * HOUR + 1, Some("failed")),
            ("issued", issued.clone(), 2 * HOUR, None),
            ("issued", issued, 2 * HOUR + 1, Some("issued")),
            ("approved", decided("Approved"), 25 * HOUR, None),
            (
                "approved",
                decided("Approved"),
                25 * HOUR + 1,
                Some("approved"),
            ),
            (
                "a condition of another type keeps nothing",
                decided("Looked"),
                24 * HOUR + 1,
                Some("pending"),
            ),
            (
                "a certificate without an approval",
                json!({"certificate": "QUJD"}),
                HOUR + 1,
                Some("issued"),
            ),
            (
                "a denial without a time",
                json!({"conditions": [{"type": "Denied"}]}),
                HOUR + 1,
                Some("denied"),
            ),
            (
                "a denial of the future",
                at("Denied", "2099-01-01T00:00:00Z"),
                HOUR + 1,
                Some("denied"),
            ),
        ] {
            assert_eq!(
                outdated_after(status, seconds),
                expected,
                "{case} {seconds}"
            );
        }
    }

    #[test]
    fn a_certificate_that_has_ended_is_not_kept() {
        let ca = Ca::root("kubernetes", keys::p256_a(), CREATED);
        let leaf = ca.leaf(&Leaf {
            common_name: "system:node:worker-a",
            names: &[AltName::Dns("worker-a".to_owned())],
            usage: oid::EKU_SERVER_AUTH,
            key: keys::p256_b(),
            serial: 2,
            now: CREATED,
        });
        let pem = BASE64.encode(leaf.to_pem());
        let years = 40 * 365 * 24 * HOUR;
        let time = CREATED.plus_seconds(years).to_string();
        let status = json!({
            "certificate": pem,
            "conditions": [{"type": "Approved", "lastUpdateTime": time}],
        });
        assert_eq!(outdated_after(status, years), Some("expired"));
    }

    #[test]
    fn a_requester_keeps_the_newest() {
        let requests: Vec<Arc<CsrObject>> = ["1", "2", "3", "4"]
            .into_iter()
            .map(|number| {
                let created = format!("2026-05-01T12:00:0{number}Z");
                let user = if number == "4" {
                    "system:node:b"
                } else {
                    "system:node:a"
                };
                let more = json!({
                    "metadata": {"creationTimestamp": created}, "spec": {"username": user},
                });
                Arc::new(request(&format!("r{number}"), more))
            })
            .collect();
        let now = CREATED.plus_seconds(60);
        for (cap, expected) in [
            (0, vec![]),
            (3, vec![]),
            (2, vec!["r1"]),
            (1, vec!["r2", "r1"]),
        ] {
            let settings = CleanerSettings {
                per_requester: cap,
                ..CleanerSettings::default()
            };
            let found = outdated(requests.iter(), &settings, now);
            let names: Vec<&str> = found
                .iter()
                .map(|(request, _)| request.name.as_str())
                .collect();
            assert_eq!(names, expected, "{cap}");
            assert!(found.iter().all(|(_, why)| *why == "surplus"));
        }
        let options = delete_options(&requests[0]);
        assert_eq!(
            options["preconditions"],
            json!({"uid": "uid-r1", "resourceVersion": "7"})
        );
    }
}
