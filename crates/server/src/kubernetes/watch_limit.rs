//! How many watches there may be: in all, and how many of them one user or one source may have.
//!
//! A watch lasts for as long as its client likes, so whoever may begin one could else begin them all. Administrators can
//! always begin one: they are who ends what fills the others.

use std::net::IpAddr;
use std::sync::Arc;

use countersign_policy::one_source;

use crate::limiter::{Held, Limiter};

/// The watches of a door.
#[derive(Debug)]
pub(super) struct WatchLimit {
    bounds: WatchBounds,
    open: Arc<Limiter<Holder>>,
}

/// A watch that counts until this is dropped.
pub(super) type OpenWatch = Held<Holder, 3>;

/// Who has watches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// All of a rank.
    Rank(Rank),
    /// A user by name.
    User(String),
    /// All who come from one source. What administrators take is not the others' at their address.
    Source {
        source: IpAddr,
        are_administrators: bool,
    },
}

/// How many watches there may be at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchBounds {
    /// In all.
    pub(super) total: usize,
    /// Of these, for administrators alone.
    pub(super) reserved: usize,
    /// For all together who see only their own objects: anybody with a token is one.
    pub(super) own: usize,
    /// For one user.
    pub(super) per_user: usize,
    /// For one who sees only their own objects.
    pub(super) per_owner: usize,
    /// For all who come from one source.
    pub(super) per_source: usize,
}

/// Who wants to watch.
#[derive(Clone, Debug)]
pub(super) struct Watching {
    /// The user's name.
    pub(super) user: String,
    /// Where from.
    pub(super) source: IpAddr,
    /// As whom.
    pub(super) rank: Rank,
}

/// What somebody is who watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rank {
    /// Bound only by what there is.
    Administrator,
    /// Anybody else.
    User,
    /// Somebody who sees only their own objects.
    Owner,
}

/// There is no watch left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooManyWatches {
    /// For nobody of this kind.
    #[error("too many watches are open, please try again later")]
    InAll,
    /// For this user.
    #[error("too many watches of this user are open, please try again later")]
    OfUser,
    /// For this source.
    #[error("too many watches from this address are open, please try again later")]
    OfSource,
}

impl WatchLimit {
    pub(super) fn new(bounds: WatchBounds) -> Self {
        Self {
            bounds,
            open: Limiter::new(),
        }
    }

    /// Takes a watch.
    pub(super) fn take(&self, who: Watching) -> Result<OpenWatch, TooManyWatches> {
        let Watching { user, source, rank } = who;
        let WatchBounds {
            total,
            reserved,
            own,
            per_user,
            per_owner,
            per_source,
        } = self.bounds;
        let others = total.saturating_sub(reserved);
        let (total, of_rank, per_user, per_source) = match rank {
            Rank::Administrator => (total, total, total, total),
            Rank::User => (others, others, per_user, per_source),
            Rank::Owner => (others, own, per_owner, per_source),
        };
        let source = Holder::Source {
            source: one_source(source),
            are_administrators: rank == Rank::Administrator,
        };
        self.open.take(
            (total, TooManyWatches::InAll),
            [
                (Holder::Rank(rank), of_rank, TooManyWatches::InAll),
                (Holder::User(user), per_user, TooManyWatches::OfUser),
                (source, per_source, TooManyWatches::OfSource),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: WatchBounds = WatchBounds {
        total: 20,
        reserved: 4,
        own: 6,
        per_user: 5,
        per_owner: 2,
        per_source: 8,
    };

    fn who(user: &str, source: &str, rank: Rank) -> Watching {
        Watching {
            user: user.to_owned(),
            source: source.parse().unwrap(),
            rank,
        }
    }

    /// As many as there are for somebody, and why not one more.
    fn fill(limit: &WatchLimit, who: &Watching) -> (Vec<OpenWatch>, TooManyWatches) {
        let mut taken = Vec::new();
        loop {
            match limit.take(who.clone()) {
                Ok(watch) => taken.push(watch),
                Err(fault) => return (taken, fault),
            }
        }
    }

    #[test]
    fn nobody_takes_the_watches_of_others() {
        let limit = WatchLimit::new(BOUNDS);
        let mut held = Vec::new();
        let rows = [
            ("jane", "192.0.2.1", Rank::User, 5, TooManyWatches::OfUser),
            ("john", "192.0.2.1", Rank::User, 3, TooManyWatches::OfSource),
            (
                "token-a",
                "192.0.2.2",
                Rank::Owner,
                2,
                TooManyWatches::OfUser,
            ),
            (
                "token-b",
                "2001:db8::1",
                Rank::Owner,
                2,
                TooManyWatches::OfUser,
            ),
            (
                "token-c",
                "2001:db8::2",
                Rank::Owner,
                2,
                TooManyWatches::InAll,
            ),
            (
                "token-d",
                "2001:db8::3",
                Rank::Owner,
                0,
                TooManyWatches::InAll,
            ),
            ("mary", "192.0.2.3", Rank::User, 2, TooManyWatches::InAll),
            (
                "root",
                "192.0.2.1",
                Rank::Administrator,
                4,
                TooManyWatches::InAll,
            ),
        ];
        for (user, source, rank, count, fault) in rows {
            let (taken, refused) = fill(&limit, &who(user, source, rank));
            assert_eq!((taken.len(), refused), (count, fault), "{user}");
            held.push(taken);
        }
        held.clear();
        assert!(limit.open.is_unused());
    }
}
