//! How soon a CA may be asked again about one object. An object's own writes wake it; that is no reason to ask earlier.

use std::collections::BTreeMap;
use std::time::Duration;

use countersign_pki::UnixTime;

use super::object::ObjectName;

/// When each was asked about last, and how long a pause was promised.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    asked: BTreeMap<ObjectName, Asked>,
}

#[derive(Debug)]
struct Asked {
    at: UnixTime,
    pause: Duration,
    /// What it was asked for: another order need not wait.
    generation: i64,
}

impl Gate {
    /// How long it is until a CA may be asked about an object; `None`: it may be now.
    pub(crate) fn wait(
        &self,
        name: &ObjectName,
        generation: i64,
        now: UnixTime,
    ) -> Option<Duration> {
        let asked = self.asked.get(name)?;
        let passed = now.seconds_since(asked.at);
        // A clock that was put back must not make anybody wait for ever.
        let passed = u64::try_from(passed).ok()?;
        let left = asked.pause.checked_sub(Duration::from_secs(passed))?;
        (asked.generation == generation && !left.is_zero()).then_some(left)
    }

    /// A CA was asked; it is not asked again for so long.
    pub(crate) fn asked(
        &mut self,
        name: &ObjectName,
        generation: i64,
        now: UnixTime,
        pause: Duration,
    ) {
        let asked = Asked {
            at: now,
            pause,
            generation,
        };
        self.asked.insert(name.clone(), asked);
    }

    /// Nothing has to be remembered of it.
    pub(crate) fn forget(&mut self, name: &ObjectName) {
        self.asked.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_is_asked_no_earlier_than_was_promised() {
        let mut gate = Gate::default();
        let name = ObjectName::new("ns", "a");
        let at = |seconds: i64| UnixTime(1_800_000_000 + seconds);
        assert_eq!(gate.wait(&name, 1, at(0)), None);
        gate.asked(&name, 1, at(0), Duration::from_secs(30));
        for (case, generation, seconds, left) in [
            ("at once", 1, 0, Some(30)),
            ("half way", 1, 15, Some(15)),
            ("then", 1, 30, None),
            ("long after", 1, 500, None),
            ("another order", 2, 15, None),
            ("a clock that was put back", 1, -15, None),
        ] {
            let left = left.map(Duration::from_secs);
            assert_eq!(gate.wait(&name, generation, at(seconds)), left, "{case}");
        }
        gate.forget(&name);
        assert_eq!(gate.wait(&name, 1, at(15)), None);
    }
}
