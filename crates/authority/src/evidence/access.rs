//! Access reviews: whoever knows roles and bindings says what the sender of a request may do.
//!
//! The question carries the user, groups, uid and extra of the CSR. The door that keeps roles and bindings answers it, from
//! memory.

use std::sync::Arc;

use countersign_policy::{AccessAnswer, AccessQuestion, Identity, RecordedEvidence, Requester};

use crate::engine::{Authority, Core};
use crate::model::RequestRecord;
use crate::token::masked_tokens;

/// Who reviews access. A review neither waits nor fails: it is answered from what is known, or it is unavailable.
pub trait AccessReviews: Send + Sync {
    /// Whether `requester`, with all its groups, may do what `question` says.
    fn review(&self, requester: &Requester, question: &AccessQuestion) -> AccessAnswer;
}

/// Where nobody keeps roles and bindings.
#[derive(Debug)]
pub(crate) struct NoReviews;

impl AccessReviews for NoReviews {
    fn review(&self, _: &Requester, _: &AccessQuestion) -> AccessAnswer {
        AccessAnswer::Unavailable {
            reason: "nobody here reviews access".to_owned(),
        }
    }
}

impl Authority {
    /// Lets somebody else review access from now on.
    pub fn set_access_reviews(&self, reviews: Arc<dyn AccessReviews>) {
        self.core.access.store(Arc::new(reviews));
        self.access_changed();
    }

    /// Says that roles or bindings have changed. Requests whose senders have other rights now are judged again soon, by
    /// whoever waits in [`Authority::access_news`]. It costs nothing, and many calls before that are one.
    pub fn access_changed(&self) {
        self.core.access_news.notify_one();
    }

    /// Waits until roles or bindings have changed since it was waited for last.
    pub async fn access_news(&self) {
        self.core.access_news.notified().await;
    }
}

impl Core {
    /// Whether somebody may do something. Roles are bound to users: who is none has none.
    pub(crate) fn review(&self, requester: &Requester, question: &AccessQuestion) -> AccessAnswer {
        let answer = match &requester.identity {
            Identity::User { .. } => self.access.load().review(requester, question),
            Identity::Anonymous | Identity::Authority | Identity::Certname { .. } => {
                let reason = "only users have roles".to_owned();
                return AccessAnswer::NotAllowed { reason };
            }
        };
        let shown = |reason: String| -> String {
            let reason = masked_tokens(&reason);
            reason.chars().take(MAX_REASON).collect()
        };
        match answer {
            AccessAnswer::Allowed { reason } => AccessAnswer::Allowed {
                reason: shown(reason),
            },
            AccessAnswer::NotAllowed { reason } => AccessAnswer::NotAllowed {
                reason: shown(reason),
            },
            AccessAnswer::Unavailable { reason } => AccessAnswer::Unavailable {
                reason: shown(reason),
            },
        }
    }

    /// Whether the sender of a request has other rights by now than when it was judged.
    pub(crate) fn has_other_rights(&self, record: &RequestRecord) -> bool {
        self.reviews_differently(&record.requester, &record.evidence)
    }

    /// Whether a review that a judgement rests on comes to something else by now. It is asked right before an approval is
    /// put on record: whoever has heard that a binding is gone must not see it used after that.
    pub(crate) fn reviews_differently(
        &self,
        requester: &Requester,
        evidence: &RecordedEvidence,
    ) -> bool {
        let mut reviewed = evidence.access.iter();
        reviewed.any(|past| {
            let now = self.review(requester, &past.question);
            !now.is_same(&past.answer)
        })
    }
}

/// Kept with every decision.
const MAX_REASON: usize = 1024;
