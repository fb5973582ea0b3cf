//! The objects of one kind as a watch tells of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersign_policy::Looked;
use serde_json::Value;

use super::Change;

/// The objects of one kind, by namespace and name.
#[derive(Debug)]
pub(super) struct Objects<T> {
    pub(super) all: BTreeMap<String, Arc<T>>,
    /// Why they cannot be relied on, in words; `None`: they can.
    pub(super) unreadable: Option<String>,
}

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            unreadable: Some(NOT_READ.to_owned()),
        }
    }
}

/// What a change has changed.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// The objects that are new, different or gone.
    pub(super) keys: BTreeSet<String>,
    /// Whether they could not be read before and can now.
    pub(super) recovered: bool,
}

impl Changed {
    pub(super) fn is_any(&self) -> bool {
        self.recovered || !self.keys.is_empty()
    }
}

impl<T: PartialEq> Objects<T> {
    pub(super) fn apply(&mut self, change: Change, read: impl Fn(&Value) -> Option<T>) -> Changed {
        let mut changed = Changed::default();
        match change {
            Change::All(objects) => {
                let mut all = BTreeMap::new();
                for object in objects {
                    if let Some(value) = read(&object) {
                        all.insert(key_of(&object), Arc::new(value));
                    }
                }
                let keys = self.all.keys().chain(all.keys());
                changed.keys = keys
                    .filter(|key| self.all.get(*key) != all.get(*key))
                    .cloned()
                    .collect();
                changed.recovered = self.unreadable.is_some();
                self.all = all;
                self.unreadable = None;
            }
            Change::Set(object) => {
                let key = key_of(&object);
                let value = read(&object).map(Arc::new);
                if self.all.get(&key) != value.as_ref() {
                    changed.keys.insert(key.clone());
                }
                match value {
                    Some(value) => self.all.insert(key, value),
                    None => self.all.remove(&key),
                };
            }
            Change::Gone(object) => {
                let key = key_of(&object);
                if self.all.remove(&key).is_some() {
                    changed.keys.insert(key);
                }
            }
            Change::Unreadable(why) => self.unreadable = Some(why),
        }
        changed
    }

    pub(super) fn get(&self, name: &str) -> Looked<Option<Arc<T>>> {
        match &self.unreadable {
            Some(why) => Err(why.clone()),
            None => Ok(self.all.get(name).map(Arc::clone)),
        }
    }

    /// Where there is at most one.
    pub(super) fn first(&self) -> Looked<Option<Arc<T>>> {
        match &self.unreadable {
            Some(why) => Err(why.clone()),
            None => Ok(self.all.values().next().map(Arc::clone)),
        }
    }
}

/// `namespace/name`, or the name alone.
pub(super) fn key_of(object: &Value) -> String {
    let part = |path| object.pointer(path).and_then(Value::as_str);
    let name = part("/metadata/name").unwrap_or_default();
    match part("/metadata/namespace") {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

pub(super) const NOT_READ: &str = "not read yet";
