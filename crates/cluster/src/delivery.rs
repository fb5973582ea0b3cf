//! Certificates on their way: signed, and not yet seen in the request that they are for. Those that never get there are
//! revoked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::warn;

use crate::api::CallFault;
use crate::controllers::{Next, Shared};
use crate::queue::Pause;
use crate::signing::CertificateId;

/// By the request: `namespace/name` of a pod's, the name alone of a CertificateSigningRequest.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    on_their_way: BTreeMap<String, Delivery>,
    /// Those that will not arrive, until they are revoked.
    lost: BTreeMap<String, BTreeSet<CertificateId>>,
}

/// One certificate on its way.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// The identity of the request.
    pub(crate) uid: String,
    pub(crate) id: CertificateId,
    /// What the request will say, as PEM.
    pub(crate) pem: String,
    /// Whether a write ended without an answer: the request may have it all the same.
    is_in_doubt: bool,
    /// Whether the request had it when it was deleted, where a watch has told.
    had_it: Option<bool>,
}

/// A request as it was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight<'a> {
    pub(crate) uid: &'a str,
    /// Whether nothing more will be written to it.
    pub(crate) is_over: bool,
    /// The certificate that it has, as PEM.
    pub(crate) certificate: Option<&'a [u8]>,
}

/// What became of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    OnItsWay,
    Arrived,
    Lost,
    /// Its request is gone, and nobody can tell whether it had it.
    Unknown,
}

impl Delivery {
    pub(crate) fn new(uid: &str, id: CertificateId, pem: String) -> Self {
        Self {
            uid: uid.to_owned(),
            id,
            pem,
            is_in_doubt: false,
            had_it: None,
        }
    }

    /// `None`: the request is gone.
    fn fate(&self, request: Option<Sight<'_>>) -> Fate {
        match request.filter(|request| request.uid == self.uid) {
            Some(request) if request.certificate == Some(self.pem.as_bytes()) => Fate::Arrived,
            Some(request) if request.is_over => Fate::Lost,
            Some(_) => Fate::OnItsWay,
            None => match (self.had_it, self.is_in_doubt) {
                (Some(true), _) => Fate::Arrived,
                (Some(false), _) | (None, false) => Fate::Lost,
                (None, true) => Fate::Unknown,
            },
        }
    }
}

impl Deliveries {
    /// A certificate is about to be written. Another one for the same request will not be.
    pub(crate) fn begin(&self, request: &str, delivery: Delivery) {
        let mut state = self.state();
        let before = state.on_their_way.get(request);
        if before.is_some_and(|it| (&it.uid, &it.id) == (&delivery.uid, &delivery.id)) {
            return;
        }
        state.end(request, |before| before.fate(None));
        state.on_their_way.insert(request.to_owned(), delivery);
    }

    /// A write has brought this.
    pub(crate) fn wrote<T>(&self, request: &str, written: &Result<T, CallFault>) {
        let mut state = self.state();
        match written {
            Ok(_) => {
                state.on_their_way.remove(request);
            }
            Err(CallFault::Status { .. } | CallFault::Unreachable(_)) => {
                if let Some(delivery) = state.on_their_way.get_mut(request) {
                    delivery.is_in_doubt = true;
                }
            }
            Err(
                CallFault::Conflict
                | CallFault::Exists
                | CallFault::NotFound
                | CallFault::Invalid(_)
                | CallFault::Forbidden(_),
            ) => {}
        }
    }

    /// The API server will never take it.
    pub(crate) fn refused(&self, request: &str) {
        self.state().end(request, |_| Fate::Lost);
    }

    /// Whether the certificate of a request is on its way.
    pub(crate) fn has_begun(&self, request: &str) -> bool {
        self.state().on_their_way.contains_key(request)
    }

    /// A watch tells how a request was when it was deleted.
    pub(crate) fn deleted(&self, request: &str, last: Sight<'_>) {
        if let Some(delivery) = self.state().on_their_way.get_mut(request)
            && delivery.uid == last.uid
        {
            delivery.had_it = Some(last.certificate == Some(delivery.pem.as_bytes()));
        }
    }

    /// Looks whether a certificate has reached its request, or never will. `None`: the request is gone, and the watch has
    /// told so.
    pub(crate) fn look(&self, request: &str, seen: Option<Sight<'_>>) {
        self.state().end(request, |delivery| delivery.fate(seen));
    }

    /// Those of these requests whose certificate is on its way, or has to be revoked.
    pub(crate) fn among<'k>(&self, requests: impl Iterator<Item = &'k String>) -> Vec<String> {
        let state = self.state();
        let is_concerned =
            |it: &&String| state.on_their_way.contains_key(*it) || state.lost.contains_key(*it);
        requests.filter(is_concerned).cloned().collect()
    }

    fn lost(&self, request: &str) -> BTreeSet<CertificateId> {
        self.state().lost.get(request).cloned().unwrap_or_default()
    }

    fn revoked(&self, request: &str) {
        self.state().lost.remove(request);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Ends a delivery by what became of it.
    fn end(&mut self, request: &str, fate: impl FnOnce(&Delivery) -> Fate) {
        let Some(delivery) = self.on_their_way.get(request) else {
            return;
        };
        match fate(delivery) {
            Fate::OnItsWay => return,
            Fate::Arrived => {}
            Fate::Lost => {
                let lost = self.lost.entry(request.to_owned()).or_default();
                lost.insert(delivery.id.clone());
            }
            Fate::Unknown => {
                let CertificateId { issuer, serial } = &delivery.id;
                warn!(
                    request, %issuer, %serial,
                    "it is not known whether the request had its certificate when it was deleted: it is not taken back"
                );
            }
        }
        self.on_their_way.remove(request);
    }
}

impl Shared {
    /// Revokes the certificates that did not reach a request. What is to be done first, if one cannot be revoked now: until
    /// then nothing is written to a request of that name.
    pub(crate) async fn revoke_lost(&self, request: &str) -> Option<Next> {
        let lost = self.deliveries.lost(request);
        if lost.is_empty() {
            return None;
        }
        for id in &lost {
            let CertificateId { issuer, serial } = id;
            let revoked = match &self.settings.signer {
                Some(signer) => signer.discard(id).await,
                None => Err("nobody here signs".to_owned()),
            };
            if let Err(reason) = revoked {
                warn!(
                    request, %issuer, %serial, reason,
                    "the certificate did not reach its request, and is not revoked yet"
                );
                return Some(Next::Again(Pause::Evidence));
            }
            warn!(request, %issuer, %serial, "the certificate did not reach its request: it is taken back");
        }
        self.deliveries.revoked(request);
        None
    }
}

#[cfg(test)]
mod tests {
    use countersign_authority::IssuerId;
    use countersign_pki::Serial;

    use super::*;

    fn id(serial: u8) -> CertificateId {
        CertificateId {
            issuer: IssuerId::parse("example").unwrap(),
            serial: Serial::from_be_bytes(&[serial]).unwrap(),
        }
    }

    fn delivery(uid: &str, serial: u8) -> Delivery {
        Delivery::new(uid, id(serial), format!("certificate {serial}"))
    }

    fn sight<'a>(uid: &'a str, is_over: bool, certificate: Option<&'a str>) -> Sight<'a> {
        Sight {
            uid,
            is_over,
            certificate: certificate.map(str::as_bytes),
        }
    }

    const NO_ANSWER: Result<(), CallFault> = Err(CallFault::Unreachable(String::new()));

    #[test]
    fn only_what_its_request_cannot_have_is_lost() {
        let (ours, theirs) = (Some("certificate 1"), Some("certificate 2"));
        let (open, with_ours) = (sight("u", false, None), sight("u", true, ours));
        let (denied, with_theirs) = (sight("u", true, None), sight("u", true, theirs));
        let another = sight("v", false, None);
        for (case, in_doubt, last, seen, expected) in [
            ("open", false, None, Some(open), (true, false)),
            ("open, in doubt", true, None, Some(open), (true, false)),
            ("arrived", false, None, Some(with_ours), (false, false)),
            ("denied", false, None, Some(denied), (false, true)),
            ("another's", true, None, Some(with_theirs), (false, true)),
            ("gone", false, None, None, (false, true)),
            ("another request", false, None, Some(another), (false, true)),
            ("gone, in doubt", true, None, None, (false, false)),
            ("gone with it", true, Some(with_ours), None, (false, false)),
            ("gone without", true, Some(open), None, (false, true)),
            ("another gone", true, Some(another), None, (false, false)),
        ] {
            let deliveries = Deliveries::default();
            deliveries.begin("r", delivery("u", 1));
            if in_doubt {
                deliveries.wrote("r", &NO_ANSWER);
            }
            if let Some(last) = last {
                deliveries.deleted("r", last);
            }
            deliveries.look("r", seen);
            let found = deliveries.state();
            let (is_on_its_way, is_lost) = expected;
            assert_eq!(!found.on_their_way.is_empty(), is_on_its_way, "{case}");
            assert_eq!(!found.lost.is_empty(), is_lost, "{case}");
        }
    }

    #[test]
    fn a_certificate_that_another_one_replaces_is_lost_and_the_same_one_stays_in_doubt() {
        let deliveries = Deliveries::default();
        deliveries.begin("r", delivery("u", 1));
        deliveries.begin("r", delivery("v", 2));
        assert_eq!(deliveries.lost("r"), BTreeSet::from([id(1)]));
        deliveries.wrote("r", &NO_ANSWER);
        deliveries.begin("r", delivery("v", 2));
        deliveries.look("r", None);
        assert_eq!(deliveries.lost("r"), BTreeSet::from([id(1)]));
        assert!(deliveries.state().on_their_way.is_empty());

        deliveries.begin("r", delivery("w", 3));
        deliveries.refused("r");
        let name = "r".to_owned();
        assert_eq!(deliveries.among([&name].into_iter()), ["r"]);
        assert_eq!(deliveries.lost("r"), BTreeSet::from([id(1), id(3)]));
        deliveries.revoked("r");
        assert!(deliveries.among([&name].into_iter()).is_empty());
    }
}
