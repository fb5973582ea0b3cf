//! Sets of fields as trees (`FieldsV1`), and what they say about two states of an object: what differs, what both together
//! are, what is left without some.
//!
//! A field is `f:name`; an element of a list that is known by a key `k:{"key":"value"}`, one that is known by itself
//! `v:value`. Lists and objects that are replaced as a whole are one field.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::schema::{Merge, Shape};

/// Some fields of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    /// Whether this field itself is one of them.
    member: bool,
    below: BTreeMap<String, FieldSet>,
}

/// How two states differ.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// What is new or otherwise.
    pub(super) changed: FieldSet,
    /// What is no longer there.
    pub(super) removed: FieldSet,
}

impl FieldSet {
    /// The fields of a value: what somebody names who applies it.
    pub(super) fn of(value: &Value, shape: &Shape) -> Self {
        let mut set = Self::default();
        match (parts(value, shape), shape) {
            (Parts::Whole, _) => set.member = true,
            (Parts::Many(parts), shape) => {
                for (name, part, part_shape) in parts {
                    let mut below = Self::of(part, part_shape);
                    // A field of a type is there with what is in it; an entry of a map or list also by itself.
                    let is_entry = !matches!(shape, Shape::Object(_));
                    below.member |= is_entry || below.below.is_empty();
                    set.below.insert(name, below);
                }
            }
        }
        set
    }

    pub(super) fn from_json(json: &Value) -> Self {
        Self::read(json, MAX_DEPTH)
    }

    fn read(json: &Value, depth: usize) -> Self {
        let mut set = Self::default();
        let Some(members) = json.as_object().filter(|_| depth > 0) else {
            return set;
        };
        for (name, below) in members {
            match name.as_str() {
                "." => set.member = true,
                name => {
                    let mut below = Self::read(below, depth.saturating_sub(1));
                    below.member |= below.below.is_empty();
                    set.below.insert(name.to_owned(), below);
                }
            }
        }
        set
    }

    pub(super) fn to_json(&self) -> Value {
        let mut members = Map::new();
        for (name, below) in &self.below {
            let mut inner = below.to_json();
            if let (true, Value::Object(inner)) = (below.member, &mut inner)
                && !inner.is_empty()
            {
                inner.insert(".".to_owned(), json!({}));
            }
            members.insert(name.clone(), inner);
        }
        Value::Object(members)
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.below.values().all(Self::is_empty)
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        union.member |= other.member;
        for (name, below) in &other.below {
            let mine = union.below.entry(name.clone()).or_default();
            *mine = mine.union(below);
        }
        union
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let common = self.below.iter().filter_map(|(name, below)| {
            let common = below.intersection(other.below.get(name)?);
            (!common.is_empty()).then(|| (name.clone(), common))
        });
        Self {
            member: self.member && other.member,
            below: common.collect(),
        }
    }

    pub(super) fn difference(&self, other: &Self) -> Self {
        let left = self.below.iter().filter_map(|(name, below)| {
            let left = match other.below.get(name) {
                Some(gone) => below.difference(gone),
                None => below.clone(),
            };
            (!left.is_empty()).then(|| (name.clone(), left))
        });
        Self {
            member: self.member && !other.member,
            below: left.collect(),
        }
    }

    /// Takes out a field and everything below it.
    pub(super) fn cut(&mut self, path: &[&str]) {
        match path {
            [] => *self = Self::default(),
            [name] => drop(self.below.remove(&field(name))),
            [name, rest @ ..] => {
                if let Some(below) = self.below.get_mut(&field(name)) {
                    below.cut(rest);
                    if below.is_empty() {
                        self.below.remove(&field(name));
                    }
                }
            }
        }
    }

    /// Takes out a field itself, not what is below it.
    pub(super) fn forget(&mut self, name: &str) {
        if let Some(below) = self.below.get_mut(&field(name)) {
            below.member = false;
            if below.is_empty() {
                self.below.remove(&field(name));
            }
        }
    }

    /// Its fields as errors name them: `.spec.request`, `.status.conditions[type="Approved"].reason`.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.list("", &mut paths);
        paths
    }

    /// At each place first what is there, then what is below.
    fn list(&self, path: &str, paths: &mut Vec<String>) {
        let named = |name: &str| format!("{path}{}", element_text(name));
        let members = self.below.iter().filter(|(_, below)| below.member);
        paths.extend(members.map(|(name, _)| named(name)));
        for (name, below) in &self.below {
            below.list(&named(name), paths);
        }
    }
}

/// Compares two values of one shape.
pub(super) fn compare(old: &Value, new: &Value, shape: &Shape) -> Comparison {
    let mut comparison = Comparison::default();
    walk(Some(old), Some(new), shape, &mut comparison);
    comparison
}

fn walk<'v>(
    old: Option<&'v Value>,
    new: Option<&'v Value>,
    shape: &'v Shape,
    found: &mut Comparison,
) {
    match (old, new) {
        (None, Some(_)) => found.changed.member = true,
        (Some(_), None) => found.removed.member = true,
        (Some(_), Some(_)) | (None, None) => {}
    }
    let old_parts = old.map(|value| parts(value, shape));
    let new_parts = new.map(|value| parts(value, shape));
    let (old_parts, new_parts) = match (old_parts, new_parts) {
        // An empty one beside one with entries is one without entries.
        (Some(Parts::Whole), Some(Parts::Many(new))) if old.is_some_and(is_hollow) => {
            (Vec::new(), new)
        }
        (Some(Parts::Many(old)), Some(Parts::Whole)) if new.is_some_and(is_hollow) => {
            (old, Vec::new())
        }
        (Some(Parts::Many(old)), Some(Parts::Many(new))) => (old, new),
        (Some(Parts::Many(old)), None) => (old, Vec::new()),
        (None, Some(Parts::Many(new))) => (Vec::new(), new),
        (Some(_), Some(_)) => {
            found.changed.member |= old != new;
            return;
        }
        (Some(Parts::Whole), None) | (None, Some(Parts::Whole)) | (None, None) => return,
    };
    type Pair<'v> = (Option<&'v Value>, Option<&'v Value>, &'v Shape);
    let mut pairs: BTreeMap<String, Pair<'_>> = BTreeMap::new();
    for (name, value, shape) in old_parts {
        pairs.insert(name, (Some(value), None, shape));
    }
    for (name, value, shape) in new_parts {
        pairs.entry(name).or_insert((None, None, shape)).1 = Some(value);
    }
    for (name, (old, new, shape)) in pairs {
        let mut below = Comparison::default();
        walk(old, new, shape, &mut below);
        if !below.changed.is_empty() {
            found.changed.below.insert(name.clone(), below.changed);
        }
        if !below.removed.is_empty() {
            found.removed.below.insert(name, below.removed);
        }
    }
}

/// What somebody applies, laid over what there is.
pub(super) fn merge(live: Value, config: Value, shape: &Shape) -> Value {
    match (live, config, shape) {
        (Value::Object(mut live), Value::Object(config), Shape::Object(_) | Shape::Map(_))
            if !is_atomic(shape) =>
        {
            for (name, value) in config {
                let below = shape_of(shape, &name).unwrap_or(&Shape::Opaque);
                let merged = match live.remove(&name) {
                    Some(old) => merge(old, value, below),
                    None => value,
                };
                live.insert(name, merged);
            }
            Value::Object(live)
        }
        (Value::Array(mut live), Value::Array(config), Shape::List(item, how))
            if *how != Merge::Atomic =>
        {
            for value in config {
                let name = element_name(&value, how);
                let same = |old: &&mut Value| element_name(old, how) == name;
                match live.iter_mut().find(same) {
                    Some(old) => *old = merge(old.take(), value, item),
                    None => live.push(value),
                }
            }
            Value::Array(live)
        }
        (_, config, _) => config,
    }
}

/// Takes fields out of a value, unless others have them, too.
pub(super) fn remove(value: &mut Value, gone: &FieldSet, others: &FieldSet, shape: &Shape) {
    let empty = FieldSet::default();
    let others_of = |name: &str| others.below.get(name).unwrap_or(&empty);
    let goes = |name: &str, gone: &FieldSet| gone.member && others_of(name).is_empty();
    match (value, shape) {
        (Value::Object(members), Shape::Object(_) | Shape::Map(_)) => {
            for (name, gone) in &gone.below {
                let Some(member) = name.strip_prefix("f:") else {
                    continue;
                };
                if goes(name, gone) {
                    members.remove(member);
                    continue;
                }
                let below = shape_of(shape, member).unwrap_or(&Shape::Opaque);
                if let Some(value) = members.get_mut(member) {
                    remove(value, gone, others_of(name), below);
                }
            }
        }
        (Value::Array(items), Shape::List(item, how)) => {
            items.retain_mut(|value| {
                let name = element_name(value, how);
                let Some(gone) = gone.below.get(&name) else {
                    return true;
                };
                if goes(&name, gone) {
                    return false;
                }
                remove(value, gone, others_of(&name), item);
                true
            });
        }
        (_, _) => {}
    }
}

/// What a value is made of.
enum Parts<'v> {
    /// Itself: it is replaced as a whole.
    Whole,
    /// Name, value and shape of each.
    Many(Vec<(String, &'v Value, &'v Shape)>),
}

fn parts<'v>(value: &'v Value, shape: &'v Shape) -> Parts<'v> {
    if is_atomic(shape) || is_hollow(value) {
        return Parts::Whole;
    }
    match (value, shape) {
        (Value::Object(members), Shape::Object(_) | Shape::Map(_)) => {
            let known = members.iter().filter_map(|(name, value)| {
                let below = shape_of(shape, name)?;
                Some((field(name), value, below))
            });
            Parts::Many(known.collect())
        }
        (Value::Array(items), Shape::List(item, how)) => {
            let named = items
                .iter()
                .map(|value| (element_name(value, how), value, *item));
            Parts::Many(named.collect())
        }
        (_, _) => Parts::Whole,
    }
}

fn shape_of<'s>(shape: &'s Shape, name: &str) -> Option<&'s Shape> {
    match shape {
        Shape::Object(schema) => schema.field(name).map(|field| &field.shape),
        Shape::Map(below) => Some(below),
        _ => None,
    }
}

/// Whether a value of this shape is replaced as a whole.
fn is_atomic(shape: &Shape) -> bool {
    match shape {
        Shape::Object(_) | Shape::Map(_) => false,
        Shape::List(_, how) => *how == Merge::Atomic,
        Shape::Atomic(_)
        | Shape::Text
        | Shape::Int32
        | Shape::Int64
        | Shape::Boolean
        | Shape::Bytes
        | Shape::Time
        | Shape::MicroTime
        | Shape::Opaque => true,
    }
}

/// Whether there is nothing in it.
fn is_hollow(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn field(name: &str) -> String {
    format!("f:{name}")
}

fn element_name(value: &Value, how: &Merge) -> String {
    match how {
        Merge::Keyed(key) | Merge::KeyedOnApply(key) => {
            let id = value.get(*key).cloned().unwrap_or_default();
            format!("k:{}", json!({ *key: id }))
        }
        Merge::Set | Merge::Atomic => format!("v:{value}"),
    }
}

/// As errors name it.
fn element_text(name: &str) -> String {
    if let Some(field) = name.strip_prefix("f:") {
        return format!(".{field}");
    }
    if let Some(keys) = name.strip_prefix("k:")
        && let Ok(Value::Object(keys)) = serde_json::from_str(keys)
    {
        let keys: Vec<String> = keys
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        return format!("[{}]", keys.join(","));
    }
    match name.strip_prefix("v:") {
        Some(value) => format!("[={value}]"),
        None => name.to_owned(),
    }
}

/// No object that is served is deeper.
const MAX_DEPTH: usize = 32;
