//! Whether a log is the one that was sealed: a state machine that is fed seals and entries in order and stops at the first
//! that is wrong. It reads nothing itself and keeps one seal and two entries at a time.

use std::fmt;

use countersign_pki::{Fingerprint, UnixTime, fingerprint_sha256};

use super::{Seal, SealHead, chained, origin};
use crate::audit::{AuditPlace, AuditRecord};

/// Checks a log from its beginning.
///
/// Ask [`Verifier::wants`], feed that, and go on until it wants nothing more.
#[derive(Debug)]
pub struct Verifier {
    keys: Vec<(Fingerprint, Vec<u8>)>,
    checkpoints: Vec<SealHead>,
    state: State,
    /// The hash of the last entry that was checked.
    hash: Fingerprint,
    last: Option<SealHead>,
    intact: Intact,
}

/// What the verifier is to be fed next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// The next seal by number, or `None` if there is no more.
    Seal,
    /// The next entry by place, or `None` if there is no more.
    Entry,
    /// Nothing: the end was reached.
    Nothing,
}

/// What was found in a log in which nothing is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intact {
    /// Entries that are sealed.
    pub entries: u64,
    /// Seals.
    pub seals: u64,
    /// The newest seal: the checkpoint to keep.
    pub checkpoint: Option<SealHead>,
    /// Entries behind the newest seal: nothing vouches for them yet.
    pub unsealed: u64,
    /// The time of the first of them, if it says one.
    pub unsealed_since: Option<UnixTime>,
}

/// The first thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// An entry is not the one that was sealed.
    #[error("entry {place} was changed after it was sealed (seal {seal})")]
    Edited {
        /// Which.
        place: AuditPlace,
        /// Sealed by.
        seal: u64,
    },
    /// Entries are missing.
    #[error("{count} of the entries of seal {seal} {} missing: {gap}", if *.count == 1 { "is" } else { "are" })]
    Dropped {
        /// How many in a row.
        count: u64,
        /// Between which.
        gap: Gap,
        /// Sealed by.
        seal: u64,
    },
    /// An entry was not there when its neighbours were sealed.
    #[error("entry {place} was added after its neighbours were sealed (seal {seal})")]
    Inserted {
        /// Which.
        place: AuditPlace,
        /// Sealed by.
        seal: u64,
    },
    /// Two neighbours changed places.
    #[error("entries {place} and {other} changed places after they were sealed (seal {seal})")]
    Reordered {
        /// The first.
        place: AuditPlace,
        /// The second.
        other: AuditPlace,
        /// Sealed by.
        seal: u64,
    },
    /// A number is missing among the seals.
    #[error("seal {number} is missing: seal {found} stands in its place")]
    SealMissing {
        /// Which.
        number: u64,
        /// What came instead.
        found: u64,
    },
    /// A seal was changed, or signed with another key.
    #[error("seal {number} was changed, or not made with the audit key")]
    SealForged {
        /// Which.
        number: u64,
    },
    /// A seal names a key that is not one of ours.
    #[error("seal {number} was made with a key that is not known here (SHA-256 {})", .key_id.to_hex())]
    SealOfUnknownKey {
        /// Which.
        number: u64,
        /// The key it names.
        key_id: Fingerprint,
    },
    /// A seal does not begin where the one before it ended.
    #[error("seal {number} does not continue the one before it")]
    SealUnlinked {
        /// Which.
        number: u64,
    },
    /// The hashes in a seal are not those of its entries, which are right.
    #[error("the hashes in seal {number} were changed")]
    SealHashes {
        /// Which.
        number: u64,
    },
    /// The end of the log is gone.
    #[error(
        "the log ends before the checkpoint: it has {} seals, the checkpoint is seal {number} of {at}", .has
    )]
    Truncated {
        /// The checkpoint's number.
        number: u64,
        /// When the checkpoint was made.
        at: UnixTime,
        /// The newest seal that is there.
        has: u64,
    },
    /// The log is another than the checkpoint's.
    #[error("seal {number} is not the one of the checkpoint: the log was made anew")]
    OtherThanCheckpoint {
        /// Which.
        number: u64,
    },
    /// The checkpoint itself cannot be relied on.
    #[error("the checkpoint was changed, or not made with the audit key")]
    CheckpointForged,
}

/// Where entries are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last entry before it.
    pub after: Option<AuditPlace>,
    /// The first entry behind it.
    pub before: Option<AuditPlace>,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.after, self.before) {
            (Some(after), Some(before)) => write!(f, "between entries {after} and {before}"),
            (Some(after), None) => write!(f, "behind entry {after}"),
            (None, Some(before)) => write!(f, "before entry {before}"),
            (None, None) => f.write_str("all of them"),
        }
    }
}

#[derive(Debug)]
enum State {
    /// Between two seals.
    Between,
    /// Among the entries of a seal.
    Within(Box<Progress>),
    /// Behind the last seal.
    Tail,
    Ended,
}

/// How far a seal was checked.
#[derive(Debug)]
struct Progress {
    seal: Seal,
    /// So many entries of it were right.
    checked: usize,
    /// The next one, if it is not; what became of it is told when the one behind it is known too.
    suspect: Option<AuditRecord>,
    last_right: Option<AuditPlace>,
}

impl Verifier {
    /// A verifier that believes seals of these public keys (`SubjectPublicKeyInfo` DER).
    pub fn new(keys: Vec<Vec<u8>>) -> Self {
        Self {
            keys: keys
                .into_iter()
                .map(|spki| (fingerprint_sha256(&spki), spki))
                .collect(),
            checkpoints: Vec::new(),
            state: State::Between,
            hash: origin(),
            last: None,
            intact: Intact::default(),
        }
    }

    /// The same, which also holds the log against one more checkpoint that was kept elsewhere.
    ///
    /// # Errors
    /// If the checkpoint is not signed by one of the keys.
    pub fn with_checkpoint(mut self, checkpoint: SealHead) -> Result<Self, Breach> {
        self.check_signature(&checkpoint)
            .map_err(|_| Breach::CheckpointForged)?;
        self.checkpoints.push(checkpoint);
        Ok(self)
    }

    /// What it is to be fed.
    pub fn wants(&self) -> Wants {
        match self.state {
            State::Between => Wants::Seal,
            State::Within(_) | State::Tail => Wants::Entry,
            State::Ended => Wants::Nothing,
        }
    }

    /// Takes the next seal.
    ///
    /// # Errors
    /// If something is wrong with it.
    pub fn seal(&mut self, seal: Option<Seal>) -> Result<(), Breach> {
        let Some(seal) = seal else {
            return self.seals_ended();
        };
        let head = &seal.head;
        let (number, expected) = (head.number, self.number().saturating_add(1));
        if number != expected {
            return Err(Breach::SealMissing {
                number: expected,
                found: number,
            });
        }
        self.check_signature(head)?;
        let begins_behind = self.last.as_ref().is_none_or(|last| last.last < head.first);
        if head.previous != self.hash || !begins_behind || head.first > head.last {
            return Err(Breach::SealUnlinked { number });
        }
        let hashes = u64::try_from(seal.hashes.len()).unwrap_or(u64::MAX);
        if hashes != head.count || seal.hashes.last() != Some(&head.hash) {
            return Err(Breach::SealHashes { number });
        }
        let mut of_this = self.checkpoints.iter().filter(|it| it.number == number);
        if of_this.any(|checkpoint| checkpoint.message() != head.message()) {
            return Err(Breach::OtherThanCheckpoint { number });
        }
        self.state = State::Within(Box::new(Progress {
            last_right: self.last.as_ref().map(|last| last.last),
            seal,
            checked: 0,
            suspect: None,
        }));
        Ok(())
    }

    /// Takes the next entry.
    ///
    /// # Errors
    /// If it, or the one before it, is wrong.
    pub fn entry(&mut self, record: Option<AuditRecord>) -> Result<(), Breach> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Within(progress) => match &progress.suspect {
                None => self.compare(progress, record),
                Some(suspect) => Err(self.judge(&progress, suspect, record.as_ref())),
            },
            State::Tail => {
                self.tail(record);
                Ok(())
            }
            between @ (State::Between | State::Ended) => {
                self.state = between;
                Ok(())
            }
        }
    }

    /// What was found, once nothing more is wanted.
    pub fn finish(self) -> Intact {
        Intact {
            checkpoint: self.last,
            ..self.intact
        }
    }

    fn number(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.number)
    }

    fn check_signature(&self, head: &SealHead) -> Result<(), Breach> {
        let number = head.number;
        let known = self.keys.iter().find(|(id, _)| *id == head.key_id);
        match known {
            Some((_, spki)) if head.is_signed_by(spki) => Ok(()),
            Some(_) => Err(Breach::SealForged { number }),
            None => Err(Breach::SealOfUnknownKey {
                number,
                key_id: head.key_id,
            }),
        }
    }

    fn seals_ended(&mut self) -> Result<(), Breach> {
        let has = self.number();
        let newest = self.checkpoints.iter().max_by_key(|it| it.number);
        if let Some(checkpoint) = newest.filter(|it| it.number > has) {
            return Err(Breach::Truncated {
                number: checkpoint.number,
                at: checkpoint.at,
                has,
            });
        }
        self.state = State::Tail;
        Ok(())
    }

    fn compare(
        &mut self,
        mut progress: Box<Progress>,
        record: Option<AuditRecord>,
    ) -> Result<(), Breach> {
        let hashes = progress.seal.hashes.len();
        let Some(record) = record else {
            return Err(progress.dropped(hashes, None));
        };
        let hash = chained(&self.hash, &record);
        if progress.seal.hashes.get(progress.checked) != Some(&hash) {
            progress.suspect = Some(record);
            self.state = State::Within(progress);
            return Ok(());
        }
        self.hash = hash;
        self.intact.entries = self.intact.entries.saturating_add(1);
        progress.checked = progress.checked.saturating_add(1);
        progress.last_right = Some(record.place);
        if progress.checked < hashes {
            self.state = State::Within(progress);
            return Ok(());
        }
        let head = progress.seal.head;
        if head.last != record.place {
            return Err(Breach::SealUnlinked {
                number: head.number,
            });
        }
        self.intact.seals = self.intact.seals.saturating_add(1);
        self.last = Some(head);
        self.state = State::Between;
        Ok(())
    }

    /// What became of the entry that should stand where the suspect does. The seal's hashes tell, as far as they are right
    /// themselves; whatever they are, something is wrong.
    fn judge(
        &self,
        progress: &Progress,
        suspect: &AuditRecord,
        next: Option<&AuditRecord>,
    ) -> Breach {
        let Progress { seal, checked, .. } = progress;
        let (place, number, checked) = (suspect.place, seal.head.number, *checked);
        let is = |at: usize, hash: &Fingerprint| seal.hashes.get(at) == Some(hash);
        // The suspect is right where it would stand if those before it were there.
        let follows = |(at, before): (usize, &Fingerprint)| {
            let at = at.saturating_add(1);
            is(at, &chained(before, suspect)).then_some(at)
        };
        let mut later = seal.hashes.iter().enumerate().skip(checked);
        if let Some(at) = later.find_map(follows) {
            return progress.dropped(at, Some(place));
        }
        if place > seal.head.last {
            return progress.dropped(seal.hashes.len(), Some(place));
        }
        if let Some(next) = next {
            if is(checked, &chained(&self.hash, next)) {
                return Breach::Inserted {
                    place,
                    seal: number,
                };
            }
            let exchanged = AuditRecord {
                place,
                stored: next.stored.clone(),
            };
            if is(checked, &chained(&self.hash, &exchanged)) {
                return Breach::Reordered {
                    place,
                    other: next.place,
                    seal: number,
                };
            }
            // The entries go on rightly: it is the seal's hash that is not.
            let through = chained(&chained(&self.hash, suspect), next);
            if is(checked.saturating_add(1), &through) {
                return Breach::SealHashes { number };
            }
        }
        Breach::Edited {
            place,
            seal: number,
        }
    }

    fn tail(&mut self, record: Option<AuditRecord>) {
        let Some(record) = record else {
            return;
        };
        if self.intact.unsealed == 0 {
            self.intact.unsealed_since = record.entry().map(|entry| entry.at);
        }
        self.intact.unsealed = self.intact.unsealed.saturating_add(1);
        self.state = State::Tail;
    }
}

impl Progress {
    /// Everything from what was checked last to the hash at `to` is missing.
    fn dropped(&self, to: usize, before: Option<AuditPlace>) -> Breach {
        Breach::Dropped {
            count: u64::try_from(to.saturating_sub(self.checked)).unwrap_or(u64::MAX),
            gap: Gap {
                after: self.last_right,
                before,
            },
            seal: self.seal.head.number,
        }
    }
}
