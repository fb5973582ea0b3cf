//! How long to wait before asking again: longer each time, never in step with other machines, and as long as the server
//! says.

use std::time::Duration;

use countersign_pki::UnixTime;
use http::header::RETRY_AFTER;

use crate::client::Reply;

/// Pauses that grow from one to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Between two looks at a request that waits for a person.
    pub(crate) fn for_a_decision() -> Self {
        Self::between(Duration::from_secs(1), Duration::from_secs(60))
    }

    /// Between two tries to renew a certificate that still has time.
    pub(crate) fn for_a_renewal() -> Self {
        Self::between(Duration::from_secs(5), Duration::from_secs(3600))
    }

    fn between(first: Duration, longest: Duration) -> Self {
        Self {
            next: first,
            first,
            longest,
        }
    }

    /// The next pause: what the server asked for counts, where it did.
    pub(crate) fn pause(&mut self, asked: Option<Duration>) -> Duration {
        let grown = self.next;
        self.next = self.next.saturating_mul(2).min(self.longest);
        match asked {
            // A little later than asked, so that not everybody who was told the same comes back at once.
            Some(asked) => {
                let asked = asked.min(LONGEST_ASKED);
                asked + jittered(self.first.max(asked / 10))
            }
            None => grown / 2 + jittered(grown / 2),
        }
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// A random part of a time.
pub(crate) fn jittered(whole: Duration) -> Duration {
    let mut bytes = [0; 4];
    // Without randomness machines may ask in step, which is worse only for the server.
    let _in_step = aws_lc_rs::rand::fill(&mut bytes);
    whole.mul_f64(f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX))
}

/// What `Retry-After` asks for (RFC 9110 10.2.3): seconds, or a point in time.
pub(crate) fn retry_after(reply: &Reply, now: UnixTime) -> Option<Duration> {
    let value = reply.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    let at = at.duration_since(std::time::UNIX_EPOCH).ok()?;
    let now = Duration::from_secs(u64::try_from(now.0).ok()?);
    Some(at.saturating_sub(now))
}

/// As long as Puppet agents obey.
const LONGEST_ASKED: Duration = Duration::from_secs(1800);

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue, StatusCode};

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        let mut backoff = Backoff::for_a_decision();
        let mut bound = Duration::from_secs(1);
        for _ in 0..12 {
            let pause = backoff.pause(None);
            assert!(pause >= bound / 2 && pause <= bound, "{pause:?}");
            bound = (bound * 2).min(Duration::from_secs(60));
        }
        let pauses: Vec<_> = (0..8).map(|_| backoff.pause(None)).collect();
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
        backoff.reset();
        assert!(backoff.pause(None) <= Duration::from_secs(1));
    }

    #[test]
    fn the_server_may_ask_for_a_pause() {
        let asked = |value: &'static str| {
            let headers = [(RETRY_AFTER, HeaderValue::from_static(value))];
            let reply = Reply {
                status: StatusCode::SERVICE_UNAVAILABLE,
                headers: HeaderMap::from_iter(headers),
                body: Default::default(),
            };
            retry_after(&reply, UnixTime(784_111_777))
        };
        assert_eq!(asked("10"), Some(Duration::from_secs(10)));
        let date = "Sun, 06 Nov 1994 08:49:47 GMT";
        assert_eq!(asked(date), Some(Duration::from_secs(10)));
        let past = "Sun, 06 Nov 1994 08:49:27 GMT";
        assert_eq!(asked(past), Some(Duration::ZERO));
        assert_eq!(asked("soon"), None);

        let mut backoff = Backoff::for_a_decision();
        let pause = backoff.pause(Some(Duration::from_secs(100)));
        assert!((100..=110).contains(&pause.as_secs()), "{pause:?}");
        let pause = backoff.pause(Some(Duration::from_secs(1_000_000)));
        assert!(pause >= LONGEST_ASKED && pause < LONGEST_ASKED * 2);
    }
}
