//! What the API server has said a moment ago of who may do what.
//!
//! A hundred nodes that join by one bootstrap token are one user with one question. What is allowed counts for as long as the
//! API servers that delegate their decisions remember it themselves; what is not allowed is asked every time, so that a
//! permission counts as soon as it is given.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Answers that allow, by the whole question: who, with which groups, wants to do what.
#[derive(Debug, Default)]
pub(crate) struct Reviews {
    allowed: HashMap<String, Allowed>,
}

#[derive(Debug)]
struct Allowed {
    reason: String,
    since: Instant,
}

impl Reviews {
    /// Why it is allowed, if that was said lately.
    pub(crate) fn allowed(&self, question: &str, now: Instant) -> Option<String> {
        let known = self.allowed.get(question)?;
        known.counts(now).then(|| known.reason.clone())
    }

    /// Remembers that it is, as of when it was asked.
    pub(crate) fn remember(&mut self, question: String, reason: String, asked: Instant) {
        if self.allowed.len() >= MOST {
            self.allowed.retain(|_, known| known.counts(asked));
        }
        if self.allowed.len() < MOST {
            let since = asked;
            self.allowed.insert(question, Allowed { reason, since });
        }
    }
}

impl Allowed {
    fn counts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < LIFETIME
    }
}

/// As the authorisers that Kubernetes' own servers delegate to.
const LIFETIME: Duration = Duration::from_secs(10);
/// More users than join a cluster within that time; beyond it, each is asked for.
const MOST: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_counts_for_ten_seconds_from_the_question() {
        let begun = Instant::now();
        let mut reviews = Reviews::default();
        reviews.remember("a".to_owned(), "by a role".to_owned(), begun);
        let after = |seconds| reviews.allowed("a", begun + Duration::from_secs(seconds));
        assert_eq!(after(9).as_deref(), Some("by a role"));
        assert_eq!(after(10), None);
        assert_eq!(reviews.allowed("b", begun), None);
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let begun = Instant::now();
        let mut reviews = Reviews::default();
        for number in 0..=MOST {
            reviews.remember(number.to_string(), String::new(), begun);
        }
        assert_eq!(reviews.allowed.len(), MOST);
        assert_eq!(reviews.allowed(&MOST.to_string(), begun), None);
        let later = begun + LIFETIME;
        reviews.remember("later".to_owned(), String::new(), later);
        assert_eq!(reviews.allowed.len(), 1);
    }
}
