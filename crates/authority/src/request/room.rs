//! Room for requests that wait: so many of one source, and so many bytes of one and of all.
//!
//! A limit, not a boundary: what arrives at the same moment is not counted. What waits is counted in the store once a second
//! at most, and what comes on top is added; nobody is refused before it was counted anew.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use countersign_pki::UnixTime;
use countersign_policy::one_source;

use crate::engine::Core;
use crate::faults::{EngineError, SubmitFault};
use crate::request::submission::Submission;
use crate::store::Amount;

/// What waits, as it was counted last.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    at: Option<UnixTime>,
    bytes: Option<u64>,
    /// By single source.
    sources: HashMap<IpAddr, Amount>,
}

/// Where figures are taken from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Figures {
    /// What was counted in this second, if anything was.
    Known,
    /// The store.
    New,
}

impl Waiting {
    /// The figures of this second; those of another are forgotten.
    fn of(&self, now: UnixTime) -> MutexGuard<'_, Counted> {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.at != Some(now) {
            *counted = Counted {
                at: Some(now),
                ..Counted::default()
            };
        }
        counted
    }

    fn add(&self, now: UnixTime, source: Option<IpAddr>, size: u64) {
        let mut counted = self.of(now);
        if let Some(bytes) = &mut counted.bytes {
            *bytes = bytes.saturating_add(size);
        }
        let source = source.map(one_source);
        if let Some(amount) = source.and_then(|source| counted.sources.get_mut(&source)) {
            amount.number = amount.number.saturating_add(1);
            amount.bytes = amount.bytes.saturating_add(size);
        }
    }
}

impl Core {
    /// Which limit a request would pass if it waited. If it would pass none, it counts from now on.
    pub(crate) async fn take_room(
        &self,
        submission: &Submission,
    ) -> Result<Option<SubmitFault>, EngineError> {
        let size = size_of(submission);
        let mut fault = self.lacks_room(submission, size, Figures::Known).await?;
        if fault.is_some() {
            fault = self.lacks_room(submission, size, Figures::New).await?;
        }
        if fault.is_none() {
            let now = self.clock.now();
            self.waiting.add(now, submission.requester.source, size);
        }
        Ok(fault)
    }

    async fn lacks_room(
        &self,
        submission: &Submission,
        size: u64,
        figures: Figures,
    ) -> Result<Option<SubmitFault>, EngineError> {
        let (limit, bytes) = (self.limits.pending_per_source, self.limits.pending_bytes);
        if limit == 0 && bytes == 0 {
            return Ok(None);
        }
        // What arrived while it was counted is not in a figure that is known: where it gets close, it is counted anew.
        let close = |bound: u64| match figures {
            Figures::Known => bound.saturating_sub(bound / CLOSE),
            Figures::New => bound,
        };
        let at_most = match figures {
            Figures::Known => limit.saturating_sub(AT_ONCE),
            Figures::New => limit,
        };
        if let Some(source_address) = submission.requester.source {
            let waiting = self.waiting_from(source_address, figures).await?;
            if limit > 0 && waiting.number >= at_most {
                return Ok(Some(SubmitFault::TooManyWaiting {
                    source_address,
                    limit,
                }));
            }
            let share = bytes / SHARE_OF_ONE_SOURCE;
            if bytes > 0 && waiting.bytes.saturating_add(size) > close(share) {
                return Ok(Some(SubmitFault::NoRoomToWait { limit: share }));
            }
        }
        if bytes == 0 {
            return Ok(None);
        }
        let all = self.waiting_bytes(figures).await?;
        let is_full = all.saturating_add(size) > close(bytes);
        Ok(is_full.then_some(SubmitFault::NoRoomToWait { limit: bytes }))
    }

    async fn waiting_from(&self, source: IpAddr, figures: Figures) -> Result<Amount, EngineError> {
        let (now, one) = (self.clock.now(), one_source(source));
        let known = self.waiting.of(now).sources.get(&one).copied();
        if let (Figures::Known, Some(known)) = (figures, known) {
            return Ok(known);
        }
        let at_most = match self.limits.pending_per_source {
            0 => COUNTED,
            limit => limit,
        };
        let counted = self.store.pending_from(source, at_most).await?;
        self.waiting.of(now).sources.insert(one, counted);
        Ok(counted)
    }

    async fn waiting_bytes(&self, figures: Figures) -> Result<u64, EngineError> {
        let now = self.clock.now();
        let known = self.waiting.of(now).bytes;
        if let (Figures::Known, Some(known)) = (figures, known) {
            return Ok(known);
        }
        let counted = self.store.pending_bytes().await?;
        self.waiting.of(now).bytes = Some(counted);
        Ok(counted)
    }
}

/// About as many bytes as a request takes that waits.
fn size_of(submission: &Submission) -> u64 {
    let sent = submission.csr.der().len();
    let sent = sent.saturating_add(submission.attachment.len());
    u64::try_from(sent).unwrap_or(u64::MAX)
}

/// No single source takes the room of all.
const SHARE_OF_ONE_SOURCE: u64 = 10;
/// A figure that is known is good enough until this part of a bound is left.
const CLOSE: u64 = 10;
/// More than arrive while one count is made.
const AT_ONCE: usize = 500;
/// Requests of one source whose bytes are counted where their number has no limit.
const COUNTED: usize = 100_000;
