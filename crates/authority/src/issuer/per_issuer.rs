//! One value for each issuer. Issuers come, and never go: whoever has found a value may keep looking at it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::issuer::IssuerId;

/// A value for each issuer. Those of the start are found at once, those that came later by looking at one after the other;
/// finding takes no lock.
#[derive(Debug)]
pub struct PerIssuer<T> {
    first: BTreeMap<IssuerId, T>,
    later: Link<T>,
}

type Link<T> = OnceLock<Box<Added<T>>>;

#[derive(Debug)]
struct Added<T> {
    id: IssuerId,
    value: T,
    next: Link<T>,
}

impl<T> Default for PerIssuer<T> {
    fn default() -> Self {
        Self::from_iter([])
    }
}

impl<T> FromIterator<(IssuerId, T)> for PerIssuer<T> {
    fn from_iter<I: IntoIterator<Item = (IssuerId, T)>>(values: I) -> Self {
        Self {
            first: values.into_iter().collect(),
            later: OnceLock::new(),
        }
    }
}

impl<T> PerIssuer<T> {
    /// The value of an issuer.
    pub fn get(&self, id: &IssuerId) -> Option<&T> {
        let of_start = self.first.get(id);
        of_start.or_else(|| {
            let mut added = self.added();
            added.find(|added| added.id == *id).map(|it| &it.value)
        })
    }

    /// Whether the issuer has one.
    pub fn contains_key(&self, id: &IssuerId) -> bool {
        self.get(id).is_some()
    }

    /// All of them: those of the start by name, then the others as they came.
    pub fn iter(&self) -> impl Iterator<Item = (&IssuerId, &T)> {
        let added = self.added().map(|added| (&added.id, &added.value));
        self.first.iter().chain(added)
    }

    /// The issuers.
    pub fn keys(&self) -> impl Iterator<Item = &IssuerId> {
        self.iter().map(|(id, _)| id)
    }

    /// The values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    /// Gives one more issuer a value.
    ///
    /// # Errors
    /// With the value, if the issuer has one.
    pub fn add(&self, id: IssuerId, value: T) -> Result<(), T> {
        if self.first.contains_key(&id) {
            return Err(value);
        }
        let mut place = &self.later;
        let mut new = Box::new(Added {
            id,
            value,
            next: OnceLock::new(),
        });
        loop {
            match place.get() {
                Some(known) if known.id == new.id => return Err(new.value),
                Some(known) => place = &known.next,
                // Somebody else may be faster: then it is looked at, and the next place tried.
                None => match place.set(new) {
                    Ok(()) => return Ok(()),
                    Err(back) => new = back,
                },
            }
        }
    }

    fn added(&self) -> impl Iterator<Item = &Added<T>> {
        std::iter::successors(self.later.get(), |added| added.next.get()).map(|added| &**added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> IssuerId {
        IssuerId::parse(name).unwrap()
    }

    #[test]
    fn issuers_are_added_once_and_found_for_ever() {
        let all: PerIssuer<u8> = [(id("b"), 1), (id("a"), 2)].into_iter().collect();
        let first = all.get(&id("b")).unwrap();
        assert_eq!(all.add(id("d"), 3), Ok(()));
        assert_eq!(all.add(id("c"), 4), Ok(()));
        assert_eq!(
            [all.add(id("a"), 9), all.add(id("d"), 9)],
            [Err(9), Err(9)],
            "nothing is replaced"
        );
        assert_eq!(*first, 1);
        let listed: Vec<(&str, u8)> = all.iter().map(|(id, it)| (id.as_str(), *it)).collect();
        assert_eq!(listed, [("a", 2), ("b", 1), ("d", 3), ("c", 4)]);
        assert!(all.contains_key(&id("c")) && !all.contains_key(&id("e")));
    }

    #[test]
    fn whoever_adds_at_the_same_time_adds_too() {
        let all = PerIssuer::default();
        std::thread::scope(|scope| {
            for part in 0..4 {
                let all = &all;
                scope.spawn(move || {
                    for number in 0..50 {
                        // Each name is tried by two of them.
                        let name = format!("i{}", (part / 2) * 50 + number);
                        let _ = all.add(id(&name), part);
                    }
                });
            }
        });
        assert_eq!(all.keys().count(), 100);
    }
}
