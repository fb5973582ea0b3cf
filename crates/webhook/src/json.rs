//! JSON that means one thing: an object in which no name occurs twice.
//!
//! RFC 8259 section 4 leaves open what a repeated name means; two readers of `{"decision": "deny", "decision": "allow"}` may
//! disagree, so nobody is asked to guess.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads an object. Depth is bounded by the reader (128 levels), length by the caller.
pub(crate) fn object(text: &[u8]) -> Result<Map<String, Value>, serde_json::Error> {
    match serde_json::from_slice(text)? {
        Unambiguous(Value::Object(members)) => Ok(members),
        Unambiguous(_) => Err(Error::custom("not an object")),
    }
}

struct Unambiguous(Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(Self)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("not a number"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unambiguous(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(Error::custom(format!("{name:?} occurs twice")));
            }
            let Unambiguous(value) = members.next_value()?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_library_reads() {
        let text = r#"{"a": [1, -2, 3.5, null, true, "\u00e9"], "b": {"c": {}}, "d": 18446744073709551615}"#;
        let read = Value::Object(object(text.as_bytes()).unwrap());
        assert_eq!(read, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn refuses_what_could_mean_two_things() {
        for (text, said) in [
            (r#"{"a": 1, "a": 1}"#, r#""a" occurs twice"#),
            (r#"{"a": {"b": 1, "b": 2}}"#, r#""b" occurs twice"#),
            (r#"{"a": [{"b": 1, "\u0062": 2}]}"#, r#""b" occurs twice"#),
            (r#"[{"a": 1}]"#, "not an object"),
            (r#""a""#, "not an object"),
            ("", "EOF"),
            (r#"{"a": 1} {"a": 2}"#, "trailing characters"),
            (r#"{"a": NaN}"#, "expected value"),
        ] {
            let fault = object(text.as_bytes()).unwrap_err().to_string();
            assert!(fault.contains(said), "{text}: {fault}");
        }
        let deep = "[".repeat(60_000);
        let fault = object(deep.as_bytes()).unwrap_err().to_string();
        assert!(fault.contains("recursion limit"), "{fault}");
    }
}
