//! What a cluster calls the service account of a pod.

use std::collections::BTreeMap;

use crate::facts::PodFacts;
use crate::request::{Identity, Requester};

impl PodFacts {
    /// What the cluster calls the service account as a user.
    pub fn username(&self) -> String {
        format!(
            "system:serviceaccount:{}:{}",
            self.namespace, self.service_account
        )
    }

    /// The service account as the sender of the pod's requests.
    pub fn requester(&self) -> Requester {
        Requester {
            identity: Identity::User {
                username: self.username(),
                groups: vec![
                    "system:serviceaccounts".to_owned(),
                    format!("system:serviceaccounts:{}", self.namespace),
                    "system:authenticated".to_owned(),
                ],
                uid: self.service_account_uid.clone(),
                extra: BTreeMap::new(),
            },
            source: None,
        }
    }
}
