//! What a watch has shown of one kind so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::object::ResourceObject;
use super::{Found, FoundState};
use crate::api::Seen;

/// The objects of a kind in one place.
#[derive(Debug, Default)]
pub(crate) struct Table {
    namespace: String,
    state: State,
    objects: BTreeMap<String, Arc<ResourceObject>>,
    /// Those of a list that has not ended.
    listed: BTreeMap<String, Arc<ResourceObject>>,
}

#[derive(Debug, Default, PartialEq)]
enum State {
    /// Nobody has looked.
    #[default]
    Unknown,
    NotServed,
    Unreadable(String),
    Read,
}

/// What an event means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    Something,
}

impl Table {
    pub(crate) fn of(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..Self::default()
        }
    }

    /// The cluster does not have the definition. With it all objects are gone.
    pub(crate) fn not_served(&mut self) -> Change {
        self.objects.clear();
        self.becomes(State::NotServed)
    }

    /// They cannot be read. What was read before still counts.
    pub(crate) fn unreadable(&mut self, why: &str) -> Change {
        match self.state {
            State::Read => Change::Nothing,
            State::Unknown | State::NotServed | State::Unreadable(_) => {
                self.becomes(State::Unreadable(why.to_owned()))
            }
        }
    }

    pub(crate) fn apply(&mut self, seen: Seen) -> Change {
        match seen {
            Seen::Begin => {
                self.listed.clear();
                Change::Nothing
            }
            Seen::Listed(object) => {
                if let Some(read) = ResourceObject::read(&object) {
                    self.listed.insert(read.name.clone(), Arc::new(read));
                }
                Change::Nothing
            }
            Seen::End => {
                self.objects = std::mem::take(&mut self.listed);
                self.state = State::Read;
                Change::Something
            }
            Seen::Set(object) => self.set(&object),
            Seen::Gone(object) => {
                let Some(gone) = ResourceObject::read(&object) else {
                    return Change::Nothing;
                };
                let known = self.objects.get(&gone.name);
                // Another one may have its name by now.
                if known.is_none_or(|known| known.uid != gone.uid) {
                    return Change::Nothing;
                }
                self.objects.remove(&gone.name);
                Change::Something
            }
            Seen::Unlistable(why) => self.unreadable(&why),
            Seen::Interrupted(_) => Change::Nothing,
        }
    }

    /// `None`: nobody knows yet.
    pub(crate) fn found(&self) -> Option<Found> {
        let state = match &self.state {
            State::Unknown => return None,
            State::NotServed => FoundState::NotServed,
            State::Unreadable(why) => FoundState::Unreadable(why.clone()),
            State::Read => FoundState::Objects(self.objects.values().cloned().collect()),
        };
        Some(Found {
            namespace: self.namespace.clone(),
            state,
        })
    }

    pub(crate) fn by_uid(&self, uid: &str) -> Option<&Arc<ResourceObject>> {
        self.objects.values().find(|object| object.uid == uid)
    }

    fn set(&mut self, object: &Value) -> Change {
        let Some(read) = ResourceObject::read(object) else {
            return Change::Nothing;
        };
        let read = Arc::new(read);
        self.objects.insert(read.name.clone(), read);
        Change::Something
    }

    fn becomes(&mut self, state: State) -> Change {
        match self.state == state {
            true => Change::Nothing,
            false => {
                self.state = state;
                Change::Something
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, uid: &str) -> Value {
        json!({"metadata": {"name": name, "uid": uid, "generation": 1}, "spec": {}})
    }

    fn uids(table: &Table) -> Option<Vec<String>> {
        match table.found()?.state {
            FoundState::Objects(objects) => Some(objects.iter().map(|it| it.uid.clone()).collect()),
            FoundState::NotServed | FoundState::Unreadable(_) => None,
        }
    }

    #[test]
    fn nothing_is_found_before_the_first_list_has_ended() {
        let mut table = Table::default();
        assert!(table.found().is_none());
        table.apply(Seen::Begin);
        table.apply(Seen::Listed(object("b", "2")));
        table.apply(Seen::Listed(object("a", "1")));
        assert!(table.found().is_none());
        assert_eq!(table.apply(Seen::End), Change::Something);
        assert_eq!(uids(&table).unwrap(), ["1", "2"]);
        // A list that goes on changes nothing yet; one that has ended is all there is.
        table.apply(Seen::Begin);
        table.apply(Seen::Listed(object("c", "3")));
        assert_eq!(uids(&table).unwrap(), ["1", "2"]);
        table.apply(Seen::End);
        assert_eq!(uids(&table).unwrap(), ["3"]);
        assert_eq!(table.apply(Seen::Gone(object("a", "1"))), Change::Nothing);
        assert_eq!(table.apply(Seen::Gone(object("c", "3"))), Change::Something);
        assert!(uids(&table).unwrap().is_empty());
        assert_eq!(table.apply(Seen::Set(json!({}))), Change::Nothing);
    }

    #[test]
    fn what_was_read_counts_until_the_definition_is_gone() {
        let mut table = Table::default();
        assert_eq!(table.unreadable("forbidden"), Change::Something);
        assert_eq!(table.unreadable("forbidden"), Change::Nothing);
        assert!(matches!(
            table.found().unwrap().state,
            FoundState::Unreadable(why) if why == "forbidden"
        ));
        table.apply(Seen::Begin);
        table.apply(Seen::Listed(object("a", "1")));
        table.apply(Seen::End);
        assert_eq!(
            table.apply(Seen::Unlistable("away".to_owned())),
            Change::Nothing
        );
        assert_eq!(uids(&table).unwrap(), ["1"]);
        assert_eq!(table.not_served(), Change::Something);
        assert!(matches!(
            table.found().unwrap().state,
            FoundState::NotServed
        ));
        assert_eq!(table.not_served(), Change::Nothing);
    }
}
