//! Patches: JSON merge patch (RFC 7386), strategic merge patch, JSON patch (RFC 6902).
//!
//! A patch is applied to the stored object's JSON, and the result is read as any body is; what an endpoint may not
//! change is restored afterwards by [`crate::update::prepare`].

mod operations;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::decode::{self, DecodeFault, Decoded, Tree};
use crate::kind::Kind;
use crate::options::FieldValidation;
use crate::schema::{Merge, Schema, Shape};

/// Kind of a patch, told by its media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// A list of operations, RFC 6902.
    Json,
    /// Fields to set, `null` to remove, RFC 7386.
    Merge,
    /// A merge patch that knows which lists merge; what `kubectl apply` sends.
    Strategic,
}

/// Why a patch cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum PatchFault {
    /// The patch is malformed, or its result is no object of this resource: 400 (413 if too large).
    #[error(transparent)]
    Decode(#[from] DecodeFault),
    /// A merge patch that is no JSON object, or a JSON patch that is no list of operations: 400.
    #[error("the patch is not {wanted}")]
    Form {
        /// What it should be.
        wanted: &'static str,
    },
    /// More operations than the API takes: 413.
    #[error("The allowed maximum operations in a JSON patch is {limit}, got {found}")]
    TooMany {
        /// The limit.
        limit: usize,
        /// How many there are.
        found: usize,
    },
    /// A directive of a strategic merge patch is unknown: 400.
    #[error("the patch has an unknown or misplaced directive {directive}")]
    Directive {
        /// The directive.
        directive: String,
    },
    /// An operation of a JSON patch fails: 422.
    #[error(
        "the server rejected our request due to an error in our request: operation {index}: {reason}"
    )]
    Operation {
        /// Place in the list.
        index: usize,
        /// Why it fails.
        reason: &'static str,
    },
}

impl PatchFault {
    /// The HTTP status that tells this fault.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Self::Decode(DecodeFault::TooLarge) | Self::TooMany { .. } => 413,
            Self::Decode(_) | Self::Form { .. } | Self::Directive { .. } => 400,
            Self::Operation { .. } => 422,
        }
    }
}

/// Applies a patch to a stored object.
///
/// # Errors
/// Says why the patch, or its result, cannot be used.
pub fn apply<T: Kind>(
    kind: PatchKind,
    stored: &T,
    patch: &[u8],
    validation: FieldValidation,
) -> Result<Decoded<T>, PatchFault> {
    let of = T::RESOURCE.kind;
    let Tree {
        root: patch,
        duplicates,
        values,
    } = decode::parse(patch, of)?;
    let mut root =
        serde_json::to_value(stored).map_err(|cause| DecodeFault::Json { kind: of, cause })?;
    match (kind, patch) {
        (PatchKind::Json, Value::Array(list)) => operations::apply(&mut root, list)?,
        (PatchKind::Json, _) => {
            return Err(PatchFault::Form {
                wanted: "a list of operations",
            });
        }
        (PatchKind::Merge, Value::Object(patch)) => root = merge(root, patch),
        (PatchKind::Strategic, Value::Object(patch)) => {
            root = strategic(root, patch, Some(T::schema()))?
        }
        (PatchKind::Merge | PatchKind::Strategic, _) => {
            return Err(PatchFault::Form {
                wanted: "a JSON object",
            });
        }
    }
    Ok(decode::from_tree(
        Tree {
            root,
            duplicates,
            values,
        },
        validation,
    )?)
}

/// RFC 7386 section 2.
fn merge(target: Value, patch: Map<String, Value>) -> Value {
    let mut target = into_object(target);
    for (name, value) in patch {
        let old = target.remove(&name).unwrap_or_default();
        match value {
            Value::Null => {}
            Value::Object(patch) => drop(target.insert(name, merge(old, patch))),
            value => drop(target.insert(name, value)),
        }
    }
    Value::Object(target)
}

/// Merges by the schema; `schema` is nothing where fields are unknown or free, as in maps.
fn strategic(
    target: Value,
    mut patch: Map<String, Value>,
    schema: Option<&'static Schema>,
) -> Result<Value, PatchFault> {
    let mut target = into_object(target);
    match patch.remove("$patch").as_ref().map(Value::as_str) {
        None | Some(Some("merge")) => {}
        Some(Some("replace")) => target.clear(),
        Some(Some("delete")) => return Ok(Value::Object(Map::new())),
        Some(other) => return Err(directive(other.unwrap_or("$patch"))),
    }
    if let Some(keys) = patch.remove("$retainKeys") {
        let keys = texts(&keys, "$retainKeys")?;
        target.retain(|name, _| keys.contains(name.as_str()));
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = texts(&value, &name)?;
            if let Some(Value::Array(items)) = target.get_mut(list) {
                items.retain(|item| item.as_str().is_none_or(|text| !gone.contains(text)));
            }
            continue;
        }
        if name.starts_with("$setElementOrder/") {
            continue; // the lists that merge here are sets: their order means nothing
        }
        if name.starts_with('$') {
            return Err(directive(&name));
        }
        let old = target.remove(&name).unwrap_or_default();
        let shape = schema
            .and_then(|schema| schema.field(&name))
            .map(|field| &field.shape);
        if let Some(merged) = strategic_field(old, value, shape)? {
            target.insert(name, merged);
        }
    }
    Ok(Value::Object(target))
}

/// The new value of one field, or nothing if the patch removes it.
fn strategic_field(
    old: Value,
    patch: Value,
    shape: Option<&'static Shape>,
) -> Result<Option<Value>, PatchFault> {
    Ok(match (patch, shape) {
        (Value::Null, _) => None,
        (Value::Object(patch), Some(Shape::Object(schema) | Shape::Atomic(schema))) => {
            Some(strategic(old, patch, Some(schema))?)
        }
        (Value::Object(patch), _) => Some(strategic(old, patch, None)?),
        (Value::Array(patch), Some(Shape::List(_, Merge::Set))) => {
            Some(unite(into_list(old), patch))
        }
        (Value::Array(patch), Some(Shape::List(Shape::Object(schema), Merge::Keyed(key)))) => {
            Some(merge_elements(into_list(old), patch, key, schema)?)
        }
        (value, _) => Some(value),
    })
}

/// Both sets in the order that API servers give them: what is new stands before those stored ones that follow what
/// stood before it in the patch.
fn unite(old: Vec<Value>, patch: Vec<Value>) -> Value {
    let place = |item: &Value| old.iter().position(|stored| stored == item);
    let mut seen = BTreeSet::new();
    let mut sent: Vec<&Value> = patch.iter().collect();
    sent.retain(|item| seen.insert(item.to_string()));
    let mut kept = old.iter().filter(|item| !sent.contains(item)).peekable();
    let mut united = Vec::new();
    for item in &sent {
        while let Some(stored) = kept.next_if(|stored| place(stored) < place(item)) {
            united.push(stored.clone());
        }
        united.push((*item).clone());
    }
    united.extend(kept.cloned());
    Value::Array(united)
}

fn merge_elements(
    old: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
    schema: &'static Schema,
) -> Result<Value, PatchFault> {
    let key_of = |element: &Value| element.get(key).and_then(Value::as_str).map(str::to_owned);
    let says =
        |element: &Value, word: &str| element.get("$patch").and_then(Value::as_str) == Some(word);
    if patch
        .iter()
        .any(|element| says(element, "replace") && key_of(element).is_none())
    {
        return Ok(patch
            .into_iter()
            .filter(|element| !says(element, "replace"))
            .collect());
    }
    let mut elements: Vec<Option<Value>> = old.into_iter().map(Some).collect();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (place, element) in elements.iter().enumerate() {
        places.extend(element.as_ref().and_then(key_of).map(|key| (key, place)));
    }
    for element in patch {
        let id = key_of(&element).ok_or(PatchFault::Form {
            wanted: "a list of objects with their merge keys",
        })?;
        let place = *places.entry(id).or_insert_with(|| {
            elements.push(None);
            elements.len() - 1
        });
        let Some(slot) = elements.get_mut(place) else {
            continue;
        };
        *slot = match element {
            Value::Object(element)
                if element.get("$patch").and_then(Value::as_str) != Some("delete") =>
            {
                Some(strategic(
                    slot.take().unwrap_or_default(),
                    element,
                    Some(schema),
                )?)
            }
            _ => None,
        };
    }
    Ok(elements.into_iter().flatten().collect())
}

fn into_object(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value {
        map
    } else {
        Map::new()
    }
}

fn into_list(value: Value) -> Vec<Value> {
    if let Value::Array(list) = value {
        list
    } else {
        Vec::new()
    }
}

fn texts<'v>(value: &'v Value, name: &str) -> Result<BTreeSet<&'v str>, PatchFault> {
    let list = value.as_array().ok_or_else(|| directive(name))?;
    list.iter()
        .map(|item| item.as_str().ok_or_else(|| directive(name)))
        .collect()
}

fn directive(name: &str) -> PatchFault {
    PatchFault::Directive {
        directive: name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
