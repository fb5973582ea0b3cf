//! The places that watches take: in all, and how many of them one user or one source may have.
//!
//! A watch lasts for as long as its client likes, so whoever may begin one could else begin them all. Administrators always
//! find a place: they are who ends what fills the others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::seats::one_source;

/// The places of a door.
#[derive(Debug)]
pub(super) struct Places {
    bounds: PlaceBounds,
    taken: Mutex<Taken>,
}

/// How many watches there may be at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlaceBounds {
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

/// Who wants a place.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// Bound only by what there is.
    Administrator,
    /// Anybody else.
    User,
    /// Somebody who sees only their own objects.
    Owner,
}

/// There is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoPlace {
    /// For nobody of this kind.
    #[error("too many watches are open, please try again later")]
    Full,
    /// For this user.
    #[error("too many watches of this user are open, please try again later")]
    OfUser,
    /// For this source.
    #[error("too many watches from this address are open, please try again later")]
    OfSource,
}

/// One place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    who: Watching,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    own: usize,
    by_user: HashMap<String, usize>,
    by_source: HashMap<IpAddr, usize>,
}

impl Places {
    pub(super) fn new(bounds: PlaceBounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            taken: Mutex::default(),
        })
    }

    /// Takes a place.
    pub(super) fn take(self: &Arc<Self>, mut who: Watching) -> Result<Place, NoPlace> {
        who.source = one_source(who.source);
        let PlaceBounds {
            total,
            reserved,
            own,
            per_user,
            per_owner,
            per_source,
        } = self.bounds;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = taken.by_user.get(&who.user).copied().unwrap_or_default();
        let of_source = taken.by_source.get(&who.source).copied();
        let of_source = of_source.unwrap_or_default();
        let (total, per_user) = match who.rank {
            Rank::Administrator => (total, total),
            Rank::User => (total.saturating_sub(reserved), per_user),
            Rank::Owner => (total.saturating_sub(reserved), per_owner),
        };
        if taken.all >= total || (who.rank == Rank::Owner && taken.own >= own) {
            return Err(NoPlace::Full);
        }
        if of_user >= per_user {
            return Err(NoPlace::OfUser);
        }
        if who.rank != Rank::Administrator && of_source >= per_source {
            return Err(NoPlace::OfSource);
        }
        taken.all = taken.all.saturating_add(1);
        if who.rank == Rank::Owner {
            taken.own = taken.own.saturating_add(1);
        }
        *taken.by_user.entry(who.user.clone()).or_default() += 1;
        // What administrators take is not the others' at their address.
        if who.rank != Rank::Administrator {
            *taken.by_source.entry(who.source).or_default() += 1;
        }
        Ok(Place {
            places: Arc::clone(self),
            who,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Watching { user, source, rank } = &self.who;
        let taken = &self.places.taken;
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all = taken.all.saturating_sub(1);
        if *rank == Rank::Owner {
            taken.own = taken.own.saturating_sub(1);
        }
        if taken.by_user.get_mut(user).is_some_and(is_last) {
            taken.by_user.remove(user);
        }
        if *rank != Rank::Administrator && taken.by_source.get_mut(source).is_some_and(is_last) {
            taken.by_source.remove(source);
        }
    }
}

/// Counts one down; whether none is left.
fn is_last(count: &mut usize) -> bool {
    *count = count.saturating_sub(1);
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: PlaceBounds = PlaceBounds {
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
    fn fill(places: &Arc<Places>, who: &Watching) -> (Vec<Place>, NoPlace) {
        let mut taken = Vec::new();
        loop {
            match places.take(who.clone()) {
                Ok(place) => taken.push(place),
                Err(fault) => return (taken, fault),
            }
        }
    }

    #[test]
    fn nobody_takes_the_places_of_others() {
        let places = Places::new(BOUNDS);
        let mut held = Vec::new();
        let rows = [
            ("jane", "192.0.2.1", Rank::User, 5, NoPlace::OfUser),
            ("john", "192.0.2.1", Rank::User, 3, NoPlace::OfSource),
            ("token-a", "192.0.2.2", Rank::Owner, 2, NoPlace::OfUser),
            ("token-b", "2001:db8::1", Rank::Owner, 2, NoPlace::OfUser),
            ("token-c", "2001:db8::2", Rank::Owner, 2, NoPlace::Full),
            ("token-d", "2001:db8::3", Rank::Owner, 0, NoPlace::Full),
            ("mary", "192.0.2.3", Rank::User, 2, NoPlace::Full),
            ("root", "192.0.2.1", Rank::Administrator, 4, NoPlace::Full),
        ];
        for (user, source, rank, count, fault) in rows {
            let (taken, refused) = fill(&places, &who(user, source, rank));
            assert_eq!((taken.len(), refused), (count, fault), "{user}");
            held.push(taken);
        }
        held.clear();
        let taken = places.taken.lock().unwrap();
        assert_eq!((taken.all, taken.own), (0, 0));
        assert!(taken.by_user.is_empty() && taken.by_source.is_empty());
    }
}
