//! The same key asks again: it gets what it got.
//!
//! Nothing is decided here. Who holds a token that was used, and the key that it was used for, is told the outcome; the
//! token authorises nothing any more.

use tokio::time::{Duration, Instant, timeout_at};
use tracing::info;

use super::{FoundToken, Presented, TokenId, TokenStanding, TokenUseRecord};
use crate::audit::AuditEntry;
use crate::engine::Core;
use crate::faults::{EngineError, SubmitFault};
use crate::issuing::Case;
use crate::issuing::commit_broken;
use crate::model::{LedgerEntry, RequestState};
use crate::request::reconsideration::{as_stored, asks_the_same};
use crate::rules::Rules;
use crate::store::Change;
use crate::telemetry::TokenEvent;
use countersign_pki::CheckedCsr;
use countersign_policy::TokenUseState;

/// What a key has had by its token.
pub(crate) enum Recalled {
    /// This certificate.
    Certificate(Box<LedgerEntry>),
    /// Nothing that it may have again.
    Nothing {
        /// Whether its use is on record all the same.
        was_used: bool,
    },
}

impl Core {
    /// The certificate that a request's key has had by its token, or had before it came with it.
    pub(crate) async fn recall(
        &self,
        rules: &Rules,
        case: Case<'_>,
        presented: &Presented,
    ) -> Result<Recalled, SubmitFault> {
        let nothing = |was_used| Ok(Recalled::Nothing { was_used });
        let Some(id) = presented.verified() else {
            return nothing(false);
        };
        let request = case.request();
        let (name, key) = (
            rules.policy.token_name(&request),
            case.csr.key_fingerprint(),
        );
        let deadline = Instant::now().checked_add(LONGEST_WAIT);
        let mut revisions = self.store.revisions();
        loop {
            revisions.borrow_and_update();
            let found = self.store.token(id, name, &key).await;
            let Some(found) = found.map_err(EngineError::from)? else {
                return nothing(false);
            };
            let is_open = found.record.standing == TokenStanding::Active && !found.is_stale;
            let was_used = found.same.is_some();
            if !is_open || !found.record.binding.covers(name) {
                return nothing(was_used);
            }
            let used = match &found.same {
                Some(used) if used.state == TokenUseState::Reserved => used,
                same => {
                    let had = match same {
                        Some(used) => self.outcome(rules, case, &found, used).await?,
                        None => self.had_before(rules, case).await?,
                    };
                    return had.map_or(nothing(was_used), |entry| {
                        Ok(Recalled::Certificate(Box::new(entry)))
                    });
                }
            };
            if self.has_failed(used).await? {
                return nothing(was_used);
            }
            // It is being signed at this moment, here or elsewhere.
            let in_progress = || SubmitFault::InProgress {
                key: case.key.to_owned(),
            };
            let deadline = deadline.ok_or_else(in_progress)?;
            match timeout_at(deadline, revisions.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Err(in_progress()),
            }
        }
    }

    /// Whether what a use was reserved for can no longer be signed.
    async fn has_failed(&self, used: &TokenUseRecord) -> Result<bool, EngineError> {
        let Some(id) = used.request else {
            return Ok(false);
        };
        let record = self.store.request(id).await?;
        Ok(record.is_none_or(|record| record.state == RequestState::Failed))
    }

    /// What a use came to, if that still holds.
    async fn outcome(
        &self,
        rules: &Rules,
        case: Case<'_>,
        found: &FoundToken,
        used: &TokenUseRecord,
    ) -> Result<Option<LedgerEntry>, EngineError> {
        let (Some(signer), Some(serial)) = (rules.signer(case.signer), used.serial) else {
            return Ok(None);
        };
        let entry = self.store.certificate(&signer.issuer, &serial).await?;
        let now = self.clock.now();
        let holds = |entry: &LedgerEntry| {
            let ended = entry.revoked.is_some() || entry.retired.is_some() || entry.not_after < now;
            !ended && entry.signer == *case.signer
        };
        let Some(entry) = entry.filter(holds) else {
            return Ok(None);
        };
        // After its time the token says nothing; but the certificate is the key's all the same.
        if now <= used.retry_until {
            let id = &found.record.id;
            self.note_retry(case, id, &entry, used).await?;
        }
        Ok(Some(entry))
    }

    /// A certificate that the very key has under the name, though not by this token: nothing needs to be issued.
    async fn had_before(
        &self,
        rules: &Rules,
        case: Case<'_>,
    ) -> Result<Option<LedgerEntry>, EngineError> {
        let signer = rules.signer(case.signer);
        let Some(signer) = signer.filter(|signer| signer.one_certificate_per_name) else {
            return Ok(None);
        };
        let newest = self.store.newest_certificate(&signer.issuer, case.name);
        let (now, key) = (self.clock.now(), case.csr.key_fingerprint());
        Ok(newest.await?.filter(|entry| {
            let is_live = entry.revoked.is_none() && entry.not_after >= now;
            is_live && entry.key_fingerprint == key && entry.signer == *case.signer
        }))
    }

    async fn note_retry(
        &self,
        case: Case<'_>,
        id: &TokenId,
        entry: &LedgerEntry,
        used: &TokenUseRecord,
    ) -> Result<(), EngineError> {
        let first = match used.request {
            Some(id) => self.store.request(id).await?,
            None => None,
        };
        let first = first.and_then(|r| CheckedCsr::trusted_from_store(&r.csr_der).ok());
        let is_other = first.is_some_and(|first| !asks_the_same(&first, &as_stored(case.csr)));
        let detail = match is_other {
            true => "it asks for something else than then, and gets what it got",
            false => "it gets what it got",
        };
        let audit: AuditEntry = case
            .audit("token.retry", self.clock.now())
            .token(id)
            .serial(&entry.serial)
            .message(&case.csr.fingerprint())
            .detail(detail);
        let change = Change {
            audit: vec![audit],
            ..Change::default()
        };
        self.commit(change).await.map_err(commit_broken)?;
        self.telemetry.token(TokenEvent::Retried, "");
        info!(
            token = %id, name = case.key, serial = %entry.serial,
            source = case.requester.source.map(tracing::field::display), "the same key asks again"
        );
        Ok(())
    }
}

/// How long a request waits for another one of the same key to be signed.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
