//! What others than the engine did to a request: a signer elsewhere certified it or gave it up, and conditions were
//! written on what is settled.
//!
//! Such a certificate is the door's to keep, in its own data: the ledger has only what this authority signed. The engine
//! remembers that the matter is settled, and never signs such a request: not by a rule, not by recovery and not by a
//! later approval. A signature of ours that is under way loses against a settlement that was committed before it.

use std::sync::Arc;

use countersign_pki::UnixTime;
use tracing::info;

use crate::audit::AuditEntry;
use crate::detached::run_detached;
use crate::engine::Core;
use crate::faults::ActFault;
use crate::model::{RequestRecord, RequestState};
use crate::request::Requests;
use crate::request::acts::Act;
use crate::store::{Change, RequestUpdate, Write};
use crate::telemetry::Honored;

/// One thing that was done to a request from outside. Each has its entry in the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// A signer elsewhere has certified it. The certificate is in the door's data.
    Certified {
        /// Begin of the certificate's validity.
        not_before: UnixTime,
        /// Its end.
        not_after: UnixTime,
        /// Which certificate, in words.
        detail: String,
    },
    /// Its signer has given it up.
    Failed {
        /// Why.
        reason: String,
    },
    /// Somebody notes an approval on what is settled. Nothing is decided by it.
    Approved {
        /// Their words.
        reason: String,
    },
    /// Somebody notes a denial on what is settled.
    Denied {
        /// Their words.
        reason: String,
    },
}

impl Requests {
    /// Puts on record what was done to a request from outside, with the door's data that say so. All of it is one act.
    ///
    /// # Errors
    /// [`ActFault::AlreadyDecided`] if it has a certificate and another one is written; [`ActFault::Conflict`] also if it
    /// waits and nothing here settles it: then a decision on it is the engine's.
    pub async fn settle(&self, act: Act, how: Vec<Settlement>) -> Result<RequestRecord, ActFault> {
        let core = Arc::clone(&self.core);
        run_detached(async move {
            core.authorise_act("settle", &act).await?;
            core.settle_from_outside(act, how).await
        })
        .await
    }
}

impl Core {
    async fn settle_from_outside(
        &self,
        act: Act,
        how: Vec<Settlement>,
    ) -> Result<RequestRecord, ActFault> {
        let record = self.find(&act).await?;
        let state = settled_state(&record, &how).map_err(|obstacle| match obstacle {
            Obstacle::HasCertificate => ActFault::AlreadyDecided {
                key: act.key.clone(),
                state: record.state,
            },
            Obstacle::Waits => ActFault::Conflict {
                key: act.key.clone(),
            },
        })?;
        let becomes = |other: RequestState| state == other && record.state != other;
        let update = RequestUpdate {
            state,
            live: record.live && (record.retained || !becomes(RequestState::Issued)),
            failure: how
                .iter()
                .find_map(Settlement::failure)
                .filter(|_| becomes(RequestState::Failed)),
            attachment: act.attachment.clone(),
            ..RequestUpdate::none(&record)
        };
        let now = self.clock.now();
        let audit = how.iter().map(|one| one.audit(&act, &record, now));
        let change = Change {
            writes: vec![Write::UpdateRequest(update)],
            audit: audit.collect(),
            ..Change::default()
        };
        self.commit_act(&act, &record, change).await?;
        for one in &how {
            self.report_lifetime(&record, one);
        }
        if becomes(RequestState::Issued) || becomes(RequestState::Failed) {
            info!(door = %record.door, name = record.key, request = %record.id, state = state.word(), "settled from outside");
        }
        self.reread(&record).await
    }

    fn report_lifetime(&self, record: &RequestRecord, done: &Settlement) {
        if let (
            Settlement::Certified {
                not_before,
                not_after,
                ..
            },
            Some(asked),
        ) = (done, record.wishes.expiration_seconds)
        {
            let honored = Honored::of(asked, *not_before, *not_after);
            self.telemetry.lifetime(&record.signer, honored);
        }
    }
}

/// Why something cannot be put on record.
enum Obstacle {
    HasCertificate,
    Waits,
}

/// Where a request stands afterwards. What was settled once stays as it was settled.
fn settled_state(record: &RequestRecord, how: &[Settlement]) -> Result<RequestState, Obstacle> {
    let certified = how
        .iter()
        .any(|one| matches!(one, Settlement::Certified { .. }));
    let failed = how.iter().any(|one| one.failure().is_some());
    match record.state {
        RequestState::Pending | RequestState::Undecided | RequestState::Approved if certified => {
            Ok(RequestState::Issued)
        }
        RequestState::Pending | RequestState::Undecided | RequestState::Approved if failed => {
            Ok(RequestState::Failed)
        }
        RequestState::Pending | RequestState::Undecided => Err(Obstacle::Waits),
        RequestState::Issued if certified => Err(Obstacle::HasCertificate),
        RequestState::Approved
        | RequestState::Issued
        | RequestState::Denied
        | RequestState::Failed => Ok(record.state),
    }
}

impl Settlement {
    fn failure(&self) -> Option<String> {
        match self {
            Self::Failed { reason } => Some(reason.clone()),
            Self::Certified { .. } | Self::Approved { .. } | Self::Denied { .. } => None,
        }
    }

    fn audit(&self, act: &Act, record: &RequestRecord, now: UnixTime) -> AuditEntry {
        let (action, detail) = match self {
            Self::Certified { detail, .. } => ("certify", detail),
            Self::Failed { reason } => ("fail", reason),
            Self::Approved { reason } => ("approve", reason),
            Self::Denied { reason } => ("deny", reason),
        };
        act.audit(action, record, now, detail.clone())
    }
}
