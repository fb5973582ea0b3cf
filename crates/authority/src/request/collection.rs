//! Garbage collection: requests that are over, or that nobody ever decided, are forgotten when they are old; so are build
//! windows.
//!
//! Certificates stay in the ledger whatever happens to their requests. The age of a request that waits counts from its
//! arrival, that of a decided one from its decision; a door may know better, and has the last word on what it holds back.
//! Each request is forgotten by a commit of its own, if it still is as it was read: a collection that is cut short is
//! ended by the next one.

use std::fmt;
use std::sync::Arc;

use countersign_pki::UnixTime;
use countersign_policy::{ReasonCode, Requester};
use futures_util::future::join_all;
use tracing::info;

use crate::audit::AuditEntry;
use crate::detached::run_detached;
use crate::door::DoorSpec;
use crate::engine::Core;
use crate::faults::EngineError;
use crate::issuing::commit_broken;
use crate::model::{Door, RequestId, RequestRecord, RequestState};
use crate::request::Requests;
use crate::store::{AgeFilter, Change, CommitFault, Precondition, RequestUpdate, Write};

/// How long requests of one door and state are kept.
#[derive(Clone, Debug)]
pub struct Retention {
    /// The door.
    pub door: &'static DoorSpec,
    /// The state.
    pub state: RequestState,
    /// Older ones are forgotten.
    pub seconds: u64,
}

/// What becomes of an issued request whose certificate has ended before the request is old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenEnded {
    /// It stays until it is old.
    Stays,
    /// It is forgotten at once.
    Goes,
}

/// What a door knows of its requests beyond their records. It must not wait for anything.
pub trait Keeper: fmt::Debug + Send + Sync {
    /// Since when a request stands where it stands.
    fn since(&self, record: &RequestRecord) -> UnixTime {
        usually_since(record)
    }

    /// The end of a certificate that the engine did not issue; `None`: there is none.
    fn certificate_end(&self, record: &RequestRecord) -> Option<UnixTime> {
        let _has_none = record;
        None
    }

    /// Whether the door holds a request back that is about to be forgotten.
    fn hold(&self, record: &RequestRecord, now: UnixTime) -> Held {
        let _lets_go = (record, now);
        Held::No
    }
}

/// For doors that know nothing more.
#[derive(Clone, Copy, Debug)]
pub struct PlainKeeper;

impl Keeper for PlainKeeper {}

/// Whether a door holds a request back that is old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// It does not: the request is forgotten.
    No,
    /// It does, and nothing is to be changed.
    Yes,
    /// It does, and notes in its own data that the request should go.
    Noting(Vec<u8>),
}

/// What a collection came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// So many were forgotten, by door and state; where there were none, there is no entry.
    pub requests: Vec<(Door, RequestState, u64)>,
    /// So many build windows, which had closed a day before.
    pub windows: u64,
}

impl Requests {
    /// Forgets what the rules say is too old. One that somebody changes meanwhile is left for the next time.
    ///
    /// # Errors
    /// If the store fails; what was forgotten before stays forgotten.
    pub async fn collect(&self, rules: &[Retention]) -> Result<Collected, EngineError> {
        let mut collected = Collected::default();
        for rule in rules {
            let core = Arc::clone(&self.core);
            let owned = rule.clone();
            let count = run_detached(async move { core.collect(&owned).await }).await?;
            if count > 0 {
                info!(door = %rule.door.name, state = rule.state.word(), count, "old requests forgotten");
                collected
                    .requests
                    .push((rule.door.name.clone(), rule.state, count));
            }
        }
        let core = Arc::clone(&self.core);
        collected.windows = run_detached(async move { core.purge_windows().await }).await?;
        Ok(collected)
    }
}

impl Requests {
    /// Forgets the oldest of what rules have turned away, at all doors, until so many, and so many bytes, are left. What a
    /// person denied and what occupies its name does not count.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn trim_rejections(&self, keep: usize, bytes: u64) -> Result<(), EngineError> {
        loop {
            let thefts_since = thefts_since(self.core.clock.now());
            let found = self.core.store.trimmable(thefts_since).await?;
            if found.number <= keep && found.bytes <= bytes {
                return Ok(());
            }
            let of = None;
            let change = Change {
                writes: vec![Write::TrimRejections {
                    of,
                    keep,
                    bytes,
                    thefts_since,
                }],
                ..Change::default()
            };
            // Some at a time: between two of them others have their turn.
            self.core.commit(change).await.map_err(commit_broken)?;
        }
    }
}

impl Core {
    async fn collect(&self, rule: &Retention) -> Result<u64, EngineError> {
        let now = self.clock.now();
        let cutoff = now.minus_seconds(rule.seconds);
        // Nobody decides before a request arrives: what is decided that long ago also arrived that long ago. What has
        // ended may have arrived at any time.
        let before = match (rule.state, rule.door.when_ended) {
            (RequestState::Issued, WhenEnded::Goes) => now,
            (_, WhenEnded::Goes | WhenEnded::Stays) => cutoff,
        };
        let mut after: Option<RequestId> = None;
        let mut total: u64 = 0;
        loop {
            let filter = AgeFilter {
                door: rule.door.name.clone(),
                state: rule.state,
                before,
                after,
                limit: BATCH,
            };
            let page = self.store.requests_before(filter).await?;
            let Some(last) = page.last() else {
                return Ok(total);
            };
            after = Some(last.id);
            // One group of the writer at most: between two batches others have their turn.
            let each = page
                .iter()
                .map(|record| self.collect_one(record, rule, now));
            let mut count: u64 = 0;
            let mut first_fault = None;
            for forgotten in join_all(each).await {
                match forgotten {
                    Ok(true) => count = count.saturating_add(1),
                    Ok(false) => {}
                    Err(fault) => first_fault = first_fault.or(Some(fault)),
                }
            }
            if count > 0 {
                self.telemetry.collected(&rule.door.name, rule.state, count);
            }
            total = total.saturating_add(count);
            if let Some(fault) = first_fault {
                return Err(fault);
            }
        }
    }

    /// Whether it was old, or ended, and is gone.
    async fn collect_one(
        &self,
        record: &RequestRecord,
        rule: &Retention,
        now: UnixTime,
    ) -> Result<bool, EngineError> {
        let is_theft = record.explanation.code == ReasonCode::TokenKeyMismatch;
        if is_theft && !record.retained && record.created >= thefts_since(now) {
            return Ok(false);
        }
        let since = rule.door.keeper.since(record).max(record.created);
        if since < now.minus_seconds(rule.seconds) {
            let why = format!("{} since {since}", record.state.word());
            return self.forget(record, rule, why, now).await;
        }
        if record.state != RequestState::Issued || rule.door.when_ended == WhenEnded::Stays {
            return Ok(false);
        }
        match self.certificate_end(record, rule).await? {
            Some(end) if end < now => {
                let why = format!("its certificate ended at {end}");
                self.forget(record, rule, why, now).await
            }
            Some(_) | None => Ok(false),
        }
    }

    async fn certificate_end(
        &self,
        record: &RequestRecord,
        rule: &Retention,
    ) -> Result<Option<UnixTime>, EngineError> {
        match &record.certificate {
            Some((issuer, serial)) => {
                let entry = self.store.certificate(issuer, serial).await?;
                Ok(entry.map(|entry| entry.not_after))
            }
            None => Ok(rule.door.keeper.certificate_end(record)),
        }
    }

    /// Whether it is gone: it was still as it had been read, and its door let go of it.
    async fn forget(
        &self,
        record: &RequestRecord,
        rule: &Retention,
        why: String,
        now: UnixTime,
    ) -> Result<bool, EngineError> {
        let (write, is_gone) = match rule.door.keeper.hold(record, now) {
            Held::Yes => return Ok(false),
            Held::No => (Write::DeleteRequest(record.id), true),
            Held::Noting(attachment) => {
                let update = RequestUpdate {
                    attachment: Some(attachment),
                    ..RequestUpdate::none(record)
                };
                (Write::UpdateRequest(update), false)
            }
        };
        let change = Change {
            preconditions: vec![Precondition::RequestAt {
                id: record.id,
                version: record.version,
            }],
            writes: vec![write],
            audit: vec![AuditEntry::on(record, now, Requester::authority(), "collect").detail(why)],
        };
        match self.commit(change).await {
            Ok(_) => Ok(is_gone),
            Err(CommitFault::Conflict { .. }) => Ok(false),
            Err(other) => Err(commit_broken(other)),
        }
    }
}

fn usually_since(record: &RequestRecord) -> UnixTime {
    match record.state {
        RequestState::Pending => record.created,
        RequestState::Approved
        | RequestState::Issued
        | RequestState::Denied
        | RequestState::Failed
        | RequestState::Undecided => record.explanation.at.max(record.created),
    }
}

/// Since when requests with a token that another key had used are kept, whatever else arrives.
pub(crate) fn thefts_since(now: UnixTime) -> UnixTime {
    now.minus_seconds(THEFTS_SECONDS)
}

/// 30 days: somebody looks at them at least once a month.
const THEFTS_SECONDS: u64 = 30 * 86_400;
/// A fraction of the largest group that the store writes at once.
const BATCH: usize = 64;
