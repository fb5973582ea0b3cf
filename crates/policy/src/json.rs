//! Reads objects of an API server. They are somebody else's data: what is missing or of another type reads as if it were not
//! there, and nothing fails because of one bad object.

use countersign_pki::UnixTime;
use serde_json::Value;

/// The items of a list.
pub fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

/// The texts in a list.
pub fn texts(value: Option<&Value>) -> Vec<String> {
    items(value)
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

/// A text, or an empty one.
pub fn text(value: &Value, key: &str) -> String {
    let text = value.get(key).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// A text that is not empty.
pub fn named(value: &Value, key: &str) -> Option<String> {
    Some(text(value, key)).filter(|name| !name.is_empty())
}

/// A time in the notation of RFC 3339.
pub fn time(value: &Value, key: &str) -> Option<UnixTime> {
    UnixTime::parse_rfc3339(value.get(key)?.as_str()?).ok()
}

/// A part of an object, or null.
pub fn part<'a>(object: &'a Value, key: &str) -> &'a Value {
    object.get(key).unwrap_or(&Value::Null)
}

/// Whether an object with such metadata is being deleted.
pub fn is_deleting(metadata: &Value) -> bool {
    let at = metadata.get("deletionTimestamp");
    at.is_some_and(|at| !at.is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_or_of_another_type_reads_as_if_it_were_not_there() {
        let object = json!({"a": "x", "b": ["x", 7, "y"], "c": 7, "at": "2027-01-15T08:00:00Z"});
        assert_eq!(texts(object.get("b")), ["x", "y"]);
        assert_eq!(items(object.get("b")).count(), 3);
        assert_eq!(items(object.get("c")).chain(items(None)).count(), 0);
        for (key, read) in [("a", "x"), ("b", ""), ("c", ""), ("d", "")] {
            assert_eq!(text(&object, key), read, "{key}");
            assert_eq!(named(&object, key).is_some(), !read.is_empty(), "{key}");
            assert_eq!(time(&object, key), None, "{key}");
        }
        assert_eq!(time(&object, "at"), Some(UnixTime(1_800_000_000)));
        assert_eq!(part(&object, "d"), &Value::Null);
        for (metadata, is_gone) in [
            (json!({"deletionTimestamp": "2027-01-15T08:00:00Z"}), true),
            (json!({"deletionTimestamp": null}), false),
            (json!({}), false),
            (json!(7), false),
        ] {
            assert_eq!(is_deleting(&metadata), is_gone, "{metadata}");
        }
    }
}
