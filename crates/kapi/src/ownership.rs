//! Who set which field (`metadata.managedFields`), and server-side apply, which goes by it.
//!
//! A writer owns the fields that it set last. Who applies says what it wants of an object: what another owns and has
//! otherwise is a conflict, unless the writer insists; what the writer no longer names goes, unless another owns it, too.
//! Entries are always our own: what clients send of them is not looked at.

mod fields;

use serde_json::Value;

use crate::decode::{self, DecodeFault, Decoded, Tree};
use crate::field::go_quote;
use crate::kind::Kind;
use crate::meta::ManagedFieldsEntry;
use crate::options::FieldValidation;
use crate::schema::Shape;
use crate::status::{Cause, Status};
use crate::time::Time;
use fields::FieldSet;

/// Who writes.
#[derive(Debug, Clone, Copy)]
pub struct FieldWriter<'a> {
    /// Its name.
    pub manager: &'a str,
    /// The subresource through which it writes; empty for the object itself.
    pub subresource: &'a str,
    /// Fields that this way of writing does not change, as paths: they are nobody's by it.
    pub reset: &'a [&'a [&'a str]],
    /// When.
    pub now: Time,
}

/// What somebody wants of an object, and how much they insist.
#[derive(Debug)]
pub struct Applied {
    config: Value,
    warnings: Vec<String>,
    /// Whether conflicts are taken over.
    force: bool,
}

/// Why an applied configuration is not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ApplyFault {
    /// The body is not an object of the kind.
    #[error(transparent)]
    Decode(#[from] DecodeFault),
    /// Others own what it would change.
    #[error("{}", .0.message)]
    Conflict(Box<Status>),
}

impl Applied {
    /// Reads the body of an apply: YAML, or JSON, which is YAML.
    ///
    /// # Errors
    /// Says why it is nothing that can be applied.
    pub fn read<T: Kind>(
        body: &[u8],
        validation: FieldValidation,
        force: bool,
    ) -> Result<Self, DecodeFault> {
        let tree = decode::parse_yaml(body, T::RESOURCE.kind)?;
        decode::expect_applied::<T>(&tree)?;
        let (config, warnings) = decode::conform_typed::<T>(tree, validation)?;
        Ok(Self {
            config,
            warnings,
            force,
        })
    }

    /// A text of its metadata; empty if it says nothing.
    #[must_use]
    pub fn metadata(&self, field: &str) -> &str {
        let value = self.config.get("metadata").and_then(|meta| meta.get(field));
        value.and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether it names owners of fields, which is not its business.
    #[must_use]
    pub fn names_owners(&self) -> bool {
        let meta = self.config.get("metadata");
        meta.is_some_and(|meta| meta.get("managedFields").is_some())
    }

    /// What becomes of an object; `None`: there is none yet.
    ///
    /// # Errors
    /// If others own what would change, or the result is not a valid object.
    pub fn onto<T: Kind>(
        &self,
        live: Option<&T>,
        writer: &FieldWriter<'_>,
    ) -> Result<Decoded<T>, ApplyFault> {
        let shape = Shape::Object(T::schema());
        let before = live.map(value_of).unwrap_or_else(T::blank);
        let mut managers = live.map(Managers::of).unwrap_or_default();
        if let Some(live) = live
            && managers.0.is_empty()
        {
            managers.adopt::<T>(live, &before);
        }
        let id = Id::of::<T>(writer, APPLY);
        let wanted = stripped(FieldSet::of(&self.config, &shape), writer);
        let mut merged = fields::merge(before.clone(), self.config.clone(), &shape);
        let last = managers.take(&id);
        if let Some(last) = &last {
            let others = managers.union().union(&wanted);
            fields::remove(&mut merged, &last.set, &others, &shape);
        }
        let compared = fields::compare(&before, &merged, &shape);
        let changed = stripped(compared.changed, writer);
        let conflicts = managers.overlapping(&changed);
        if !conflicts.is_empty() && !self.force {
            return Err(ApplyFault::Conflict(Box::new(conflict(&conflicts))));
        }
        managers.give_up(&changed);
        managers.give_up(&compared.removed);
        let is_same = last.as_ref().is_some_and(|last| last.set == wanted) && before == merged;
        let time = match &last {
            Some(last) if is_same => last.time,
            Some(_) | None => Some(writer.now),
        };
        managers.put(id, wanted, time);
        let tree = Tree {
            root: merged,
            duplicates: Vec::new(),
            values: 0,
        };
        let mut decoded: Decoded<T> = decode::from_tree(tree, FieldValidation::Ignore)?;
        decoded.object.metadata_mut().managed_fields = managers.into_entries();
        decoded.warnings.clone_from(&self.warnings);
        Ok(decoded)
    }
}

/// Notes who wrote an object otherwise than by applying; `old`: what it was before.
pub fn note<T: Kind>(old: Option<&T>, new: &mut T, writer: &FieldWriter<'_>) {
    let shape = Shape::Object(T::schema());
    let before = old.map(value_of).unwrap_or_else(T::blank);
    let after = value_of(new);
    let compared = fields::compare(&before, &after, &shape);
    let changed = stripped(compared.changed, writer);
    let mut managers = old.map(Managers::of).unwrap_or_default();
    let id = Id::of::<T>(writer, UPDATE);
    let own = managers.take(&id).unwrap_or_default();
    managers.give_up(&changed);
    managers.give_up(&compared.removed);
    let set = own.set.difference(&compared.removed).union(&changed);
    let time = match set == own.set && changed.is_empty() {
        true => own.time,
        false => Some(writer.now),
    };
    managers.put(id, set, time);
    new.metadata_mut().managed_fields = managers.into_entries();
}

/// The JSON of an object without the record of its owners.
fn value_of<T: Kind>(object: &T) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(Value::Object(meta)) = value.get_mut("metadata") {
        meta.remove("managedFields");
    }
    value
}

/// What nobody owns, and what this way of writing does not change.
fn stripped(set: FieldSet, writer: &FieldWriter<'_>) -> FieldSet {
    let mut set = set;
    for path in NOBODYS {
        set.cut(path);
    }
    for path in writer.reset {
        set.cut(path);
    }
    set.forget("metadata");
    set
}

/// Tells an entry from the others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    operation: String,
    manager: String,
    api_version: String,
    subresource: String,
}

impl Id {
    fn of<T: Kind>(writer: &FieldWriter<'_>, operation: &str) -> Self {
        Self {
            operation: operation.to_owned(),
            manager: writer.manager.to_owned(),
            api_version: T::API_VERSION.to_owned(),
            subresource: writer.subresource.to_owned(),
        }
    }
}

#[derive(Debug, Default)]
struct Owned {
    set: FieldSet,
    time: Option<Time>,
}

/// Everybody who owns something of an object.
#[derive(Debug, Default)]
struct Managers(Vec<(Id, Owned)>);

impl Managers {
    fn of<T: Kind>(object: &T) -> Self {
        let entries = object.metadata().managed_fields.iter();
        let owned = |entry: &ManagedFieldsEntry| {
            let id = Id {
                operation: entry.operation.clone(),
                manager: entry.manager.clone(),
                api_version: entry.api_version.clone(),
                subresource: entry.subresource.clone(),
            };
            let set = entry.fields_v1.as_ref().map(FieldSet::from_json);
            let owned = Owned {
                set: set.unwrap_or_default(),
                time: entry.time,
            };
            (id, owned)
        };
        Self(entries.map(owned).collect())
    }

    /// What was there before anybody applied, and before anybody noted whose it is.
    fn adopt<T: Kind>(&mut self, live: &T, before: &Value) {
        let writer = FieldWriter {
            manager: BEFORE_FIRST_APPLY,
            subresource: "",
            reset: &[],
            now: live.metadata().creation_timestamp.unwrap_or(EPOCH),
        };
        let shape = Shape::Object(T::schema());
        let set = fields::compare(&T::blank(), before, &shape).changed;
        let set = stripped(set, &writer);
        self.put(Id::of::<T>(&writer, UPDATE), set, Some(writer.now));
    }

    fn take(&mut self, id: &Id) -> Option<Owned> {
        let place = self.0.iter().position(|(of, _)| of == id)?;
        Some(self.0.remove(place).1)
    }

    fn put(&mut self, id: Id, set: FieldSet, time: Option<Time>) {
        if !set.is_empty() {
            self.0.push((id, Owned { set, time }));
        }
    }

    /// What any of them owns.
    fn union(&self) -> FieldSet {
        let empty = FieldSet::default();
        self.0
            .iter()
            .fold(empty, |all, (_, owned)| all.union(&owned.set))
    }

    fn overlapping(&self, changed: &FieldSet) -> Vec<(&Id, FieldSet)> {
        let overlap = self
            .0
            .iter()
            .map(|(id, owned)| (id, owned.set.intersection(changed)));
        overlap.filter(|(_, common)| !common.is_empty()).collect()
    }

    fn give_up(&mut self, set: &FieldSet) {
        for (_, owned) in &mut self.0 {
            owned.set = owned.set.difference(set);
        }
        self.0.retain(|(_, owned)| !owned.set.is_empty());
    }

    /// Those who apply first, then by time; of those who do not, no more than a real server keeps.
    fn into_entries(mut self) -> Vec<ManagedFieldsEntry> {
        self.0.sort_by(|(one, a), (other, b)| {
            let by_operation = one.operation.cmp(&other.operation);
            by_operation.then(a.time.cmp(&b.time)).then(one.cmp(other))
        });
        let updates = |(id, _): &(Id, Owned)| id.operation == UPDATE;
        while self.0.iter().filter(|entry| updates(entry)).count() > MAX_UPDATERS {
            // The two that wrote longest ago become one.
            let Some(first) = self.0.iter().position(updates) else {
                break;
            };
            let (_, old) = self.0.remove(first);
            if let Some((id, next)) = self.0.get_mut(first) {
                next.set = next.set.union(&old.set);
                ANCIENT.clone_into(&mut id.manager);
            }
        }
        let entry = |(id, owned): (Id, Owned)| ManagedFieldsEntry {
            manager: id.manager,
            operation: id.operation,
            api_version: id.api_version,
            time: owned.time,
            fields_type: "FieldsV1".to_owned(),
            fields_v1: Some(owned.set.to_json()),
            subresource: id.subresource,
        };
        self.0.into_iter().map(entry).collect()
    }
}

/// 409, with a cause for every field that somebody else owns.
fn conflict(conflicts: &[(&Id, FieldSet)]) -> Status {
    let mut causes = Vec::new();
    let mut lines = Vec::new();
    for (id, common) in conflicts {
        let who = in_words(id);
        lines.push(format!("conflicts with {who}:"));
        for field in common.paths() {
            lines.push(format!("- {field}"));
            causes.push(Cause {
                reason: "FieldManagerConflict",
                message: format!("conflict with {who}"),
                field,
            });
        }
    }
    let told = match causes.as_slice() {
        [Cause { message, field, .. }] => format!("1 conflict: {message}: {field}"),
        several => format!("{} conflicts: {}", several.len(), lines.join("\n")),
    };
    Status::apply_conflict(format!("Apply failed with {told}"), causes)
}

/// An owner, as errors name it.
fn in_words(id: &Id) -> String {
    let mut who = go_quote(&id.manager);
    if !id.subresource.is_empty() {
        who = format!("{who} with subresource {}", go_quote(&id.subresource));
    }
    match id.operation.as_str() {
        UPDATE => format!("{who} using {}", id.api_version),
        _ => who,
    }
}

const APPLY: &str = "Apply";
const UPDATE: &str = "Update";
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
const ANCIENT: &str = "ancient-changes";
const MAX_UPDATERS: usize = 10;
const EPOCH: Time = Time::EPOCH;
/// Fields that nobody owns.
const NOBODYS: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rbac::ClusterRole;

    fn writer(manager: &str) -> FieldWriter<'_> {
        FieldWriter {
            manager,
            subresource: "",
            reset: &[],
            now: EPOCH,
        }
    }

    fn apply(
        live: Option<&ClusterRole>,
        by: &str,
        mut config: Value,
        force: bool,
    ) -> Result<ClusterRole, ApplyFault> {
        config["apiVersion"] = ClusterRole::API_VERSION.into();
        config["kind"] = "ClusterRole".into();
        let body = config.to_string();
        let read = Applied::read::<ClusterRole>(body.as_bytes(), FieldValidation::Strict, force);
        Ok(read?.onto(live, &writer(by))?.object)
    }

    fn owners(role: &ClusterRole) -> Vec<(&str, String)> {
        let entries = role.metadata.managed_fields.iter();
        entries
            .map(|entry| {
                (
                    &*entry.manager,
                    entry.fields_v1.clone().unwrap().to_string(),
                )
            })
            .collect()
    }

    #[test]
    fn what_one_applies_is_its_own_until_another_insists() {
        let labels = |labels: Value| json!({"metadata": {"name": "r", "labels": labels}});
        let first = apply(None, "one", labels(json!({"a": "1", "b": "2"})), false).unwrap();
        let labels_of_one = r#"{"f:metadata":{"f:labels":{"f:a":{},"f:b":{}}}}"#;
        assert_eq!(owners(&first), [("one", labels_of_one.to_owned())]);
        let same = apply(Some(&first), "two", labels(json!({"a": "1"})), false).unwrap();
        assert_eq!(owners(&same).len(), 2);
        let fault = apply(Some(&same), "three", labels(json!({"a": "3"})), false).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "Apply failed with 2 conflicts: conflicts with \"one\":\n- .metadata.labels.a\n\
             conflicts with \"two\":\n- .metadata.labels.a"
        );
        let taken = apply(Some(&same), "three", labels(json!({"a": "3"})), true).unwrap();
        assert_eq!(
            taken.metadata.labels.get("a").map(String::as_str),
            Some("3")
        );
        assert_eq!(
            owners(&taken).len(),
            2,
            "nothing is left to the second: {taken:?}"
        );
        // What its owner no longer names goes, unless it is another's, too.
        let less = apply(Some(&same), "one", labels(json!({})), false).unwrap();
        let left: Vec<&String> = less.metadata.labels.keys().collect();
        assert_eq!(left, ["a"]);
    }

    #[test]
    fn what_is_applied_says_its_type() {
        let (version, kind) = (ClusterRole::API_VERSION, "ClusterRole");
        for (body, found) in [
            (json!({}), "/, Kind="),
            (json!({"kind": kind}), "/, Kind=ClusterRole"),
            (
                json!({"apiVersion": version}),
                "rbac.authorization.k8s.io/v1, Kind=",
            ),
            (json!({"apiVersion": "v1", "kind": "Pod"}), "/v1, Kind=Pod"),
            (
                json!({"apiVersion": version, "kind": "Role"}),
                "rbac.authorization.k8s.io/v1, Kind=Role",
            ),
        ] {
            let body = body.to_string();
            let read =
                Applied::read::<ClusterRole>(body.as_bytes(), FieldValidation::Ignore, false);
            let fault = read.unwrap_err().to_string();
            assert_eq!(fault, format!("invalid object type: {found}"));
        }
    }

    #[test]
    fn a_change_by_other_means_takes_over_what_it_changes() {
        let config = json!({"metadata": {"name": "r", "labels": {"a": "1"}}});
        let old = apply(None, "one", config, false).unwrap();
        let mut new = old.clone();
        new.metadata.labels.insert("a".into(), "2".into());
        new.metadata.labels.insert("b".into(), "2".into());
        note(Some(&old), &mut new, &writer("patcher"));
        let patched = r#"{"f:metadata":{"f:labels":{"f:a":{},"f:b":{}}}}"#;
        assert_eq!(owners(&new), [("patcher", patched.to_owned())]);
        let mut gone = new.clone();
        gone.metadata.labels.clear();
        note(Some(&new), &mut gone, &writer("remover"));
        assert_eq!(owners(&gone), []);
    }

    #[test]
    fn those_who_write_otherwise_are_bounded() {
        let mut role = ClusterRole::default();
        for number in 0..30 {
            let old = role.clone();
            let (key, manager) = (format!("l{number}"), format!("m{number}"));
            role.metadata.labels.insert(key, "x".into());
            note(Some(&old), &mut role, &writer(&manager));
        }
        assert_eq!(role.metadata.managed_fields.len(), MAX_UPDATERS);
    }
}
