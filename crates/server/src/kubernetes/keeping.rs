//! What this door tells garbage collection: how old an object is, when a certificate from elsewhere ends, and which
//! objects have finalizers.

use countersign_authority::{Held, Keeper, RequestRecord, RequestState};
use countersign_kapi::model::{APPROVED, DENIED, FAILED};
use countersign_kapi::{Condition, Time};
use countersign_pki::UnixTime;

use super::object::Attachment;

/// What this door knows of its objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectKeeper;

impl Keeper for ObjectKeeper {
    /// As Kubernetes' own cleaner counts, from the last update of the condition; but never from before the decision
    /// itself, or a wrong clock of an approver could take a certificate away before anybody has fetched it.
    fn since(&self, record: &RequestRecord) -> UnixTime {
        let arrived = record.created;
        let decided = record.explanation.at;
        let Ok(attachment) = Attachment::of(record) else {
            return decided.max(arrived);
        };
        let updated = |kind: &str| last_update(attachment.conditions(), kind);
        let told = match record.state {
            RequestState::Pending => return arrived,
            RequestState::Undecided => None,
            RequestState::Denied => updated(DENIED),
            RequestState::Failed => updated(FAILED),
            RequestState::Approved => updated(APPROVED),
            RequestState::Issued => updated(APPROVED).max(attachment.certified_at()),
        };
        told.unwrap_or(decided).max(decided).max(arrived)
    }

    fn certificate_end(&self, record: &RequestRecord) -> Option<UnixTime> {
        Attachment::of(record).ok()?.certificate_end()
    }

    /// An object with finalizers is marked and goes when they are removed, as if somebody had deleted it.
    fn hold(&self, record: &RequestRecord, now: UnixTime) -> Held {
        let Ok(attachment) = Attachment::of(record) else {
            // What cannot be read is for a person to look at.
            return Held::Yes;
        };
        if attachment.is_being_deleted() {
            return Held::Yes;
        }
        let Some(now) = Time::from_unix(now.0) else {
            return Held::Yes;
        };
        match attachment.marked_deleted(now) {
            None => Held::No,
            Some(marked) => match marked.to_bytes() {
                Ok(bytes) => Held::Noting(bytes),
                Err(_) => Held::Yes,
            },
        }
    }
}

fn last_update(conditions: &[Condition], kind: &str) -> Option<UnixTime> {
    let of_kind = conditions.iter().filter(|condition| condition.kind == kind);
    of_kind
        .filter_map(|condition| condition.last_update_time)
        .map(|time| UnixTime(time.unix()))
        .max()
}
