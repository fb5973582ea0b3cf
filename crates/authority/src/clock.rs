//! The two sources of difference between equal runs: time and randomness.

use countersign_pki::UnixTime;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now, in whole seconds.
    fn now(&self) -> UnixTime;
}

/// The machine's clock; the one place in the program that reads it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock adapter")]
    fn now(&self) -> UnixTime {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        // A clock before 1970 is broken; certificates made then would be refused as out of range.
        UnixTime(since.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX)))
    }
}

/// Gives unpredictable bytes, for serial numbers and identifiers.
pub trait Entropy: Send + Sync {
    /// Fills `bytes` with cryptographic randomness.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), EntropyFault>;
}

/// The random source failed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the random source failed")]
pub struct EntropyFault;
