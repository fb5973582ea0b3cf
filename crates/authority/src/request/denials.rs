//! What repeats. Whoever is turned away comes back, and whoever attacks comes back quickly: the audit log tells the first
//! denials of a source and reason one by one, and of the others how many there were, and when. So it does where requests of
//! one source take the place of others that wait under the same name.
//!
//! What is counted is counted by the commit that it is about, so that nothing is lost; only which of them were told one by
//! one is remembered here, and begins anew with each start. A request whose token has the right secret is always told:
//! theft does not hide among repetitions.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use countersign_pki::UnixTime;
use countersign_policy::{Effect, Identity, Requester};

use crate::audit::AuditEntry;
use crate::detached::run_detached;
use crate::engine::Core;
use crate::evidence::evaluation::Gathered;
use crate::faults::EngineError;
use crate::issuing::{Case, Decided, Standing, commit_broken};
use crate::model::{Door, RequestRecord, RequestState};
use crate::request::Requests;
use crate::store::{Change, Write};
use countersign_policy::one_source;

/// Denials of one source, at one door and for one reason, that the audit log does not tell one by one; or, with a reason of
/// their own, requests of one source that took the place of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatedDenials {
    /// An address or a /64; unspecified: those that are too many to be counted by themselves.
    pub source: IpAddr,
    /// The door.
    pub door: Door,
    /// The reason, in one word.
    pub code: String,
    /// When the first of them came.
    pub first: UnixTime,
    /// When the last one came.
    pub last: UnixTime,
    /// How many there are.
    pub number: u64,
    /// Which name the last one asked for.
    pub last_name: String,
}

impl Requests {
    /// Puts the repeated denials of the last hour into the audit log, each source and reason as one entry.
    ///
    /// # Errors
    /// If the store fails; what was not told is told the next time.
    pub async fn tell_repeated_denials(&self) -> Result<(), EngineError> {
        let core = Arc::clone(&self.core);
        run_detached(async move { core.tell_repeated_denials().await }).await
    }
}

impl Core {
    /// Whether a decision is one that anybody can cause again and again, and as what it is counted then.
    pub(crate) fn recurrence(
        &self,
        case: Case<'_>,
        decision: &Decided,
        standing: &Standing<'_>,
        gathered: &Gathered,
    ) -> Option<Recurrence> {
        let Standing::Arriving(arriving) = standing else {
            return None;
        };
        let is_anonymous = case.requester.identity == Identity::Anonymous;
        let has_token = gathered.presented.verified().is_some();
        if arriving.retained || !is_anonymous || has_token {
            return None;
        }
        // That a token may be stolen, or was wrong, stays in sight.
        let waits = |old: &&RequestRecord| {
            old.state == RequestState::Pending && !old.explanation.code.is_about_token()
        };
        let replaces = arriving.replaces.is_some_and(|old| waits(&old));
        let (of, code, what) = match decision.state {
            RequestState::Denied | RequestState::Undecided => {
                let code = decision.explanation.code.as_str();
                (Recurring::Denial, code, code)
            }
            RequestState::Pending if replaces => (Recurring::Replacement, REPLACED, case.key),
            RequestState::Pending
            | RequestState::Approved
            | RequestState::Issued
            | RequestState::Failed => return None,
        };
        let (source, at) = (one_source(case.requester.source?), decision.explanation.at);
        Some(Recurrence {
            of,
            kind: (source, case.door.clone(), what.to_owned()),
            one: RepeatedDenials {
                source,
                door: case.door.clone(),
                code: code.to_owned(),
                first: at,
                last: at,
                number: 1,
                last_name: case.key.to_owned(),
            },
        })
    }

    /// With which others it is counted; nothing: it is told.
    pub(crate) fn repeated(&self, recurrence: &Recurrence) -> Option<RepeatedDenials> {
        let Recurrence { of, kind, one } = recurrence;
        let source = self.repeats(*of).repeated(kind, one.last)?;
        Some(RepeatedDenials {
            source,
            ..one.clone()
        })
    }

    /// Notes that one was told by itself, and is on record.
    pub(crate) fn told_one_by_one(&self, recurrence: Recurrence) {
        let Recurrence { of, kind, one } = recurrence;
        self.repeats(of).tell(kind, one.last);
    }

    fn repeats(&self, of: Recurring) -> &Repeats {
        match of {
            Recurring::Denial => &self.denials,
            Recurring::Replacement => &self.replacements,
        }
    }

    async fn tell_repeated_denials(&self) -> Result<(), EngineError> {
        loop {
            let now = self.clock.now();
            let before = now.minus_seconds(WINDOW_SECONDS);
            let due = self.store.repeated_denials(before, BATCH).await?;
            let is_last = due.len() < BATCH;
            if due.is_empty() {
                return Ok(());
            }
            let change = Change {
                audit: due.iter().map(|denials| denials.entry(now)).collect(),
                writes: due.into_iter().map(Write::DenialsTold).collect(),
                ..Change::default()
            };
            self.commit(change).await.map_err(commit_broken)?;
            if is_last {
                return Ok(());
            }
        }
    }
}

impl RepeatedDenials {
    /// Whether the audit log still tells of this although the rest is counted.
    pub(crate) fn leaves(&self, entry: &AuditEntry) -> bool {
        self.code == REPLACED && entry.action.starts_with("token.")
    }

    fn entry(&self, now: UnixTime) -> AuditEntry {
        let from = (!self.source.is_unspecified()).then_some(self.source);
        let (number, first, last) = (self.number, self.first, self.last);
        let from_others = match from {
            Some(_) => "",
            None => " from other addresses",
        };
        let (verdict, what) = match self.code == REPLACED {
            true => (Effect::Pending, "took the place of requests that waited"),
            false => (Effect::Deny, "were turned away"),
        };
        let words = format!(
            "{number} more{from_others} {what}, the first at {first}, the last at {last}, for {:?}",
            self.last_name
        );
        let mut entry = AuditEntry::new(
            now,
            Requester::anonymous(from),
            "repeat",
            self.door.to_string(),
        );
        entry.verdict = Some(verdict);
        entry.reason(self.code.clone()).detail(words)
    }
}

/// Something that anybody can cause again and again.
pub(crate) struct Recurrence {
    of: Recurring,
    kind: Kind,
    one: RepeatedDenials,
}

#[derive(Clone, Copy)]
enum Recurring {
    /// Told apart by their reasons.
    Denial,
    /// Told apart by the names whose requests are replaced.
    Replacement,
}

/// Which are alike: source, door, and reason or name.
type Kind = (IpAddr, Door, String);

/// What was told one by one within the last hour.
#[derive(Debug)]
pub(crate) struct Repeats {
    told: Mutex<HashMap<Kind, Told>>,
    /// So many of a kind are.
    one_by_one: u32,
    /// So many kinds of one source are.
    kinds_of_a_source: usize,
}

#[derive(Debug)]
struct Told {
    since: UnixTime,
    entries: u32,
}

impl Told {
    fn is_over(&self, at: UnixTime) -> bool {
        self.since.plus_seconds(WINDOW_SECONDS) <= at
    }
}

impl Repeats {
    /// Of denials. A source has few reasons.
    pub(crate) fn of_denials() -> Self {
        Self::new(DENIALS_ONE_BY_ONE, MAX_KINDS)
    }

    /// Of requests that take the place of others. A source has as many names as it likes.
    pub(crate) fn of_replacements() -> Self {
        Self::new(1, NAMES_OF_A_SOURCE)
    }

    fn new(one_by_one: u32, kinds_of_a_source: usize) -> Self {
        Self {
            told: Mutex::default(),
            one_by_one,
            kinds_of_a_source,
        }
    }

    /// Under which source one is counted; nothing: it is told.
    fn repeated(&self, kind: &Kind, at: UnixTime) -> Option<IpAddr> {
        let source = kind.0;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = told.get(kind).filter(|found| !found.is_over(at)) {
            return (found.entries >= self.one_by_one).then_some(source);
        }
        if told.len() >= MAX_KINDS {
            told.retain(|_, found| !found.is_over(at));
        }
        let is_its_own = |(kind, found): &(&Kind, &Told)| kind.0 == source && !found.is_over(at);
        if told.len() >= self.kinds_of_a_source
            && told.iter().filter(is_its_own).count() >= self.kinds_of_a_source
        {
            return Some(source);
        }
        (told.len() >= MAX_KINDS).then_some(IpAddr::V6(Ipv6Addr::UNSPECIFIED))
    }

    /// Notes one that is on record: what came to nothing keeps nobody from being the first.
    fn tell(&self, kind: Kind, at: UnixTime) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let nothing = || Told {
            since: at,
            entries: 0,
        };
        let found = told.entry(kind).or_insert_with(nothing);
        if found.is_over(at) {
            *found = nothing();
        }
        found.entries = found.entries.saturating_add(1);
    }
}

/// The reason of a request that takes the place of another. No rule gives it.
const REPLACED: &str = "replaced";

const WINDOW_SECONDS: u64 = 3600;
/// Of each source, door and reason within that time: hosts behind one address are each seen for a while.
const DENIALS_ONE_BY_ONE: u32 = 10;
/// Names of one source under which a replacement is told within that time.
const NAMES_OF_A_SOURCE: usize = 100;
/// Sources, by door and reason or name, that are counted by themselves. It bounds memory, and the audit log where somebody
/// has many addresses.
const MAX_KINDS: usize = 1000;
const BATCH: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    const DOOR: Door = Door::named("test");
    const AT: UnixTime = UnixTime(1_800_000_000);

    fn address(last: u16) -> IpAddr {
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, last, 0, 0, 0, 0))
    }

    fn kind(source: IpAddr, what: &str) -> Kind {
        (source, DOOR, what.to_owned())
    }

    /// As if it were on record at once.
    fn ask(repeats: &Repeats, source: IpAddr, what: &str, at: UnixTime) -> Option<IpAddr> {
        let kind = kind(source, what);
        let repeated = repeats.repeated(&kind, at);
        if repeated.is_none() {
            repeats.tell(kind, at);
        }
        repeated
    }

    const TOGETHER: Option<IpAddr> = Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED));

    #[test]
    fn the_first_of_each_source_and_reason_are_told() {
        let denials = Repeats::of_denials();
        let ask = |source, code, at| ask(&denials, source, code, at);
        for _ in 0..DENIALS_ONE_BY_ONE {
            assert_eq!(ask(address(1), "a", AT), None);
        }
        assert_eq!(ask(address(1), "a", AT), Some(address(1)));
        assert_eq!(ask(address(1), "b", AT), None, "another reason");
        assert_eq!(ask(address(2), "a", AT), None, "another source");
        let later = AT.plus_seconds(WINDOW_SECONDS);
        assert_eq!(
            ask(address(1), "a", later.minus_seconds(1)),
            Some(address(1))
        );
        assert_eq!(ask(address(1), "a", later), None, "the next hour");
    }

    #[test]
    fn sources_beyond_what_is_remembered_are_counted_together() {
        for repeats in [Repeats::of_denials(), Repeats::of_replacements()] {
            for number in 0..1000 {
                assert_eq!(ask(&repeats, address(number), "a", AT), None);
            }
            assert_eq!(ask(&repeats, address(1000), "a", AT), TOGETHER);
            let later = AT.plus_seconds(WINDOW_SECONDS);
            assert_eq!(ask(&repeats, address(1000), "a", later), None);
        }
    }

    #[test]
    fn one_source_with_many_names_leaves_room_for_others() {
        let replacements = Repeats::of_replacements();
        for number in 0..2000 {
            let name = format!("m{number}");
            let expected = (number >= NAMES_OF_A_SOURCE).then_some(address(1));
            assert_eq!(ask(&replacements, address(1), &name, AT), expected);
        }
        assert_eq!(ask(&replacements, address(2), "m0", AT), None);
        assert_eq!(ask(&replacements, address(2), "m0", AT), Some(address(2)));
    }

    /// Of two at the same moment one comes to nothing: whichever that is, the other is told.
    #[test]
    fn what_came_to_nothing_was_not_the_first() {
        let replacements = Repeats::of_replacements();
        let kind = kind(address(1), "m0");
        assert_eq!(replacements.repeated(&kind, AT), None);
        assert_eq!(replacements.repeated(&kind, AT), None);
        replacements.tell(kind.clone(), AT);
        assert_eq!(replacements.repeated(&kind, AT), Some(address(1)));
    }
}
