//! Policies on record: each has a number, which stands in every verdict, so that what decided can be looked up.

use countersign_pki::fingerprint_sha256;

use crate::audit::Audit;
use crate::audit::AuditEntry;
use crate::clock::Clock;
use crate::engine::Authority;
use crate::faults::EngineError;
use crate::issuing::{MAX_TRIES, commit_broken};
use crate::model::PolicyVersion;
use crate::store::{Change, CommitFault, Precondition, Store, StoreFault, Write};

/// The version of a policy with this text: the one on record if it came in force last, else a new one, which is put on
/// record. Nothing is in force yet.
///
/// # Errors
/// If the store fails.
pub async fn policy_version(
    store: &dyn Store,
    clock: &dyn Clock,
    text: &str,
) -> Result<PolicyVersion, EngineError> {
    let digest = fingerprint_sha256(text.as_bytes());
    for _ in 0..MAX_TRIES {
        let newest = store.newest_policy().await?;
        let generation = match newest {
            Some(newest) if newest.digest == digest => return Ok(newest),
            Some(newest) => newest.generation.saturating_add(1),
            None => 1,
        };
        let version = PolicyVersion {
            generation,
            digest,
            loaded: clock.now(),
            text: text.to_owned(),
        };
        let subject = format!("policy/{generation}");
        let entry = AuditEntry::own(version.loaded, "policy.loaded", subject);
        let change = Change {
            preconditions: vec![Precondition::PolicyFree { generation }],
            writes: vec![Write::PutPolicy(version.clone())],
            audit: vec![AuditEntry {
                generation: Some(generation),
                ..entry.detail(format!("SHA-256 {}", digest.to_hex()))
            }],
        };
        match store.commit(change).await {
            Ok(_) => return Ok(version),
            // Another process was faster.
            Err(CommitFault::Conflict { .. }) => {}
            Err(other) => return Err(commit_broken(other)),
        }
    }
    Err(EngineError::Contended)
}

impl Audit {
    /// Puts on record that deciders at these addresses are shown complete requests, secrets included.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn complete_requests_are_shown(
        &self,
        addresses: &[String],
    ) -> Result<(), EngineError> {
        let entry = |address: &String| {
            AuditEntry::own(
                self.core.clock.now(),
                "webhook.complete_requests",
                address.clone(),
            )
            .detail("this webhook is shown complete requests, with whatever secrets they hold")
        };
        let change = Change {
            audit: addresses.iter().map(entry).collect(),
            ..Change::default()
        };
        let committed = self.core.commit(change).await;
        committed.map(drop).map_err(commit_broken)
    }
}

impl Authority {
    /// The version of a policy with this text; see [`policy_version`].
    ///
    /// # Errors
    /// If the store fails.
    pub async fn policy_version(&self, text: &str) -> Result<PolicyVersion, EngineError> {
        policy_version(&*self.core.store, &*self.core.clock, text).await
    }

    /// The policy of a generation.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn policy_of(&self, generation: u64) -> Result<Option<PolicyVersion>, StoreFault> {
        self.core.store.policy_version(generation).await
    }
}
