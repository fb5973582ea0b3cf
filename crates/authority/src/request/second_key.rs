//! A second key asks for a name that another key has: a machine was built anew, or somebody tries to be it.
//!
//! Its sender hears that the name is taken. For whoever runs the site the request is on record among those that were
//! turned away, once for each key.

use countersign_pki::{Fingerprint, UnixTime};
use countersign_policy::{
    Deciding, Effect, Explanation, Finding, ReasonCode, RecordedEvidence, Step,
};
use tracing::warn;

use super::submission::{Duplicate, Submission};
use crate::engine::Core;
use crate::evidence::evaluation::Gathered;
use crate::faults::EngineError;
use crate::issuing::{Arriving, Conflict, Decided, Order, PlannedValidity, Standing};
use crate::model::RequestState;
use crate::store::{Past, RejectionFilter};

impl Core {
    /// Puts a request on record whose name is taken by another key. What cannot be recorded is logged: the answer is the
    /// same.
    pub(crate) async fn note_second_key(&self, submission: &Submission, duplicate: Duplicate) {
        // A door that keeps its requests chooses their names freely: two of them mean nothing.
        if submission.door.retained {
            return;
        }
        if let Err(fault) = self.record_second_key(submission, duplicate).await {
            warn!(
                name = submission.key,
                source = submission.requester.source.map(tracing::field::display),
                %fault, "a refusal is not on record"
            );
        }
    }

    async fn record_second_key(
        &self,
        submission: &Submission,
        duplicate: Duplicate,
    ) -> Result<(), EngineError> {
        let key = submission.csr.key_fingerprint();
        let holder = self.key_that_has_the_name(submission).await?;
        if holder == Some(key) || self.was_turned_away(submission, key).await? {
            return Ok(());
        }
        let (now, rules) = (self.clock.now(), self.rules.load_full());
        let signer = rules.signer(&submission.signer);
        let id = self.new_request_id(now)?;
        let order = Order {
            case: submission.case(id, now, signer.as_deref()),
            decision: turned_away(duplicate, now, rules.policy.generation),
            standing: Standing::Arriving(Arriving {
                retained: false,
                attachment: &submission.attachment,
                replaces: None,
                certificate: None,
                confirmation: None,
            }),
            rules: &rules,
            gathered: &Gathered::default(),
            at: now,
            validity: PlannedValidity::Asked(None),
        };
        match self.carry_out(order).await {
            // A person has denied it before: that is on record.
            Ok(_) | Err(Conflict::Name | Conflict::Request) => Ok(()),
            Err(Conflict::Engine(fault)) => Err(fault),
            Err(
                Conflict::Rules
                | Conflict::Evidence
                | Conflict::Certificate
                | Conflict::Revoked
                | Conflict::Serial
                | Conflict::Overtaken,
            ) => Err(EngineError::Contended),
        }
    }

    async fn key_that_has_the_name(
        &self,
        submission: &Submission,
    ) -> Result<Option<Fingerprint>, EngineError> {
        let (door, name) = (&submission.door.name, &submission.key);
        if let Some(live) = self.store.request_at(door, name, Past::Ignore).await? {
            return Ok(Some(live.key_fingerprint));
        }
        let Some(signer) = self.rules.load().signer(&submission.signer) else {
            return Ok(None);
        };
        let newest = self.store.newest_certificate(&signer.issuer, name).await?;
        Ok(newest.map(|entry| entry.key_fingerprint))
    }

    /// Whether this key was turned away for this reason, as far as that is still on record.
    async fn was_turned_away(
        &self,
        submission: &Submission,
        key: Fingerprint,
    ) -> Result<bool, EngineError> {
        let before = RejectionFilter {
            door: Some(submission.door.name.clone()),
            key: Some(submission.key.clone()),
            code: Some(ReasonCode::NameTaken.to_string()),
            limit: LOOKED_AT,
            ..RejectionFilter::default()
        };
        let before = self.store.rejections(before).await?;
        Ok(before.iter().any(|old| old.request.key_fingerprint == key))
    }
}

fn turned_away(duplicate: Duplicate, now: UnixTime, generation: u64) -> Decided {
    let holder = match duplicate {
        Duplicate::Requested => "a request of another key has the name",
        Duplicate::Signed => "the name has a certificate of another key",
        Duplicate::Revoked => "the name has a revoked certificate of another key",
    };
    let step = Step::new("name", "name", Finding::Mismatch, holder.to_owned());
    Decided {
        state: RequestState::Denied,
        explanation: Explanation {
            by: Some(Deciding::Profile),
            code: ReasonCode::NameTaken,
            steps: vec![step],
            ..Explanation::new(Effect::Deny, now, generation)
        },
        evidence: Some(RecordedEvidence::default()),
        failure: None,
        uses: Vec::new(),
        approval: None,
    }
}

/// More are not kept of a name.
const LOOKED_AT: usize = 16;
