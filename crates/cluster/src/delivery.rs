//! Certificates on their way: signed, and not yet seen in the request that they are for.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use countersign_pki::Serial;
use countersign_policy::SignerName;

/// By the request: `namespace/name` of a pod's, the name alone of a CertificateSigningRequest.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    on_their_way: Mutex<BTreeMap<String, Delivery>>,
}

/// One certificate on its way.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    /// The identity of the request.
    pub(crate) uid: String,
    pub(crate) signer: SignerName,
    pub(crate) serial: Serial,
    /// What the request will say, as PEM.
    pub(crate) pem: String,
}

impl Deliveries {
    pub(crate) fn begin(&self, request: &str, delivery: Delivery) {
        self.all().insert(request.to_owned(), delivery);
    }

    /// It has arrived, or was taken back.
    pub(crate) fn end(&self, request: &str) {
        self.all().remove(request);
    }

    pub(crate) fn of(&self, request: &str) -> Option<Delivery> {
        self.all().get(request).cloned()
    }

    /// Those of these requests whose certificate is on its way.
    pub(crate) fn among<'k>(&self, requests: impl Iterator<Item = &'k String>) -> Vec<String> {
        let all = self.all();
        let concerned = requests.filter(|request| all.contains_key(*request));
        concerned.cloned().collect()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Delivery>> {
        self.on_their_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
