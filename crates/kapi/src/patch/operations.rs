//! JSON patch (RFC 6902): a list of operations, all or none. Bounded in operations, depth, copies and work, because a
//! few bytes of `copy` could otherwise double a document again and again.

use serde_json::Value;

use super::PatchFault;
use crate::MAX_BODY_BYTES;

/// Applies operations in order.
pub(super) fn apply(root: &mut Value, list: Vec<Value>) -> Result<(), PatchFault> {
    if list.len() > MAX_OPERATIONS {
        return Err(PatchFault::TooMany {
            limit: MAX_OPERATIONS,
            found: list.len(),
        });
    }
    let mut limits = Limits {
        work: MAX_WORK,
        copied: MAX_BODY_BYTES,
    };
    for (index, operation) in list.into_iter().enumerate() {
        step(root, operation, &mut limits)
            .map_err(|reason| PatchFault::Operation { index, reason })?;
    }
    Ok(())
}

type Outcome<T> = Result<T, &'static str>;

struct Limits {
    /// List elements moved and values compared.
    work: usize,
    /// Weight of what `copy` may add.
    copied: usize,
}

impl Limits {
    fn work(&mut self, amount: usize) -> Outcome<()> {
        self.work = self
            .work
            .checked_sub(amount)
            .ok_or("the patch takes too much work")?;
        Ok(())
    }
}

fn step(root: &mut Value, mut operation: Value, limits: &mut Limits) -> Outcome<()> {
    let pointer = |name: &str| -> Outcome<Vec<String>> {
        tokens(
            operation
                .get(name)
                .and_then(Value::as_str)
                .ok_or("a pointer is missing")?,
        )
    };
    let path = pointer("path")?;
    let from = operation
        .get("from")
        .is_some()
        .then(|| pointer("from"))
        .transpose()?;
    let name = operation
        .get("op")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let value = operation.get_mut("value").map(Value::take);
    let value = || value.ok_or("value is missing");
    let from = || from.ok_or("from is missing");
    match name.as_str() {
        "add" => add(root, &path, value()?, limits),
        "remove" => remove(root, &path, limits).map(drop),
        "replace" => {
            let (value, place) = (
                value()?,
                find_mut(root, &path).ok_or("path does not exist")?,
            );
            fits(&path, &value)?;
            *place = value;
            Ok(())
        }
        "move" => {
            let from = from()?;
            if path.len() > from.len() && path.starts_with(&from) {
                return Err("a value cannot move into itself");
            }
            let value = remove(root, &from, limits)?;
            add(root, &path, value, limits)
        }
        "copy" => {
            let value = find(root, &from()?).ok_or("from does not exist")?;
            limits.copied = limits
                .copied
                .checked_sub(weight(value))
                .ok_or("the patch copies too much")?;
            let value = value.clone();
            add(root, &path, value, limits)
        }
        "test" => {
            let (wanted, found) = (value()?, find(root, &path).ok_or("path does not exist")?);
            limits.work(weight(found))?;
            if *found == wanted {
                Ok(())
            } else {
                Err("testing path failed")
            }
        }
        _ => Err("unknown operation"),
    }
}

fn add(root: &mut Value, path: &[String], value: Value, limits: &mut Limits) -> Outcome<()> {
    fits(path, &value)?;
    let Some((last, parents)) = path.split_last() else {
        *root = value;
        return Ok(());
    };
    match find_mut(root, parents).ok_or("path does not exist")? {
        Value::Object(map) => drop(map.insert(last.clone(), value)),
        Value::Array(list) => {
            let at = if last == "-" {
                list.len()
            } else {
                index(last).ok_or("not a list index")?
            };
            if at > list.len() {
                return Err("list index out of range");
            }
            limits.work(list.len() - at)?;
            list.insert(at, value);
        }
        _ => return Err("path goes through a scalar"),
    }
    Ok(())
}

fn remove(root: &mut Value, path: &[String], limits: &mut Limits) -> Outcome<Value> {
    let Some((last, parents)) = path.split_last() else {
        return Err("the whole object cannot be removed");
    };
    match find_mut(root, parents).ok_or("path does not exist")? {
        Value::Object(map) => map.remove(last).ok_or("path does not exist"),
        Value::Array(list) => {
            let at = index(last)
                .filter(|at| *at < list.len())
                .ok_or("list index out of range")?;
            limits.work(list.len() - at)?;
            Ok(list.remove(at))
        }
        _ => Err("path goes through a scalar"),
    }
}

fn find<'v>(root: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(root, |value, token| match value {
        Value::Object(map) => map.get(token),
        Value::Array(list) => list.get(index(token)?),
        _ => None,
    })
}

fn find_mut<'v>(root: &'v mut Value, path: &[String]) -> Option<&'v mut Value> {
    path.iter().try_fold(root, |value, token| match value {
        Value::Object(map) => map.get_mut(token),
        Value::Array(list) => list.get_mut(index(token)?),
        _ => None,
    })
}

/// Tokens of a JSON pointer (RFC 6901).
fn tokens(pointer: &str) -> Outcome<Vec<String>> {
    if pointer.is_empty() {
        return Ok(Vec::new());
    }
    let rest = pointer
        .strip_prefix('/')
        .ok_or("a pointer must begin with a slash")?;
    if rest.matches('/').count() >= MAX_DEPTH {
        return Err("a pointer is too deep");
    }
    Ok(rest
        .split('/')
        .map(|token| token.replace("~1", "/").replace("~0", "~"))
        .collect())
}

/// A list index: digits without leading zeros.
fn index(token: &str) -> Option<usize> {
    let plain = token == "0"
        || (!token.starts_with('0') && token.bytes().all(|byte| byte.is_ascii_digit()));
    if plain { token.parse().ok() } else { None }
}

/// Keeps the document shallow enough for every recursion over it.
fn fits(path: &[String], value: &Value) -> Outcome<()> {
    if path.len() + depth(value) > MAX_DEPTH {
        Err("the result is nested too deeply")
    } else {
        Ok(())
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or_default(),
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or_default(),
        _ => 1,
    }
}

/// Roughly the bytes a value takes.
fn weight(value: &Value) -> usize {
    match value {
        Value::Object(map) => {
            32 + map
                .iter()
                .map(|(name, value)| 32 + name.len() + weight(value))
                .sum::<usize>()
        }
        Value::Array(list) => 32 + list.iter().map(weight).sum::<usize>(),
        Value::String(text) => 32 + text.len(),
        _ => 32,
    }
}

const MAX_OPERATIONS: usize = 10_000; // the limit of real servers
const MAX_DEPTH: usize = 128;
const MAX_WORK: usize = 50_000_000; // a fraction of a second
