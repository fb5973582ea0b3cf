//! YAML as a tree whose every node knows where it stands in its file, so that all that is wrong with a file can be told
//! at once and each with its line and column.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Error, Location, Spanned};

/// Where something stands in a text, both from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourcePosition {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

/// One value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: SourcePosition,
    pub(crate) content: Content,
    /// The bytes of the file that it was read from; for an alias those of its anchor.
    bytes: Option<(usize, usize)>,
    /// Where these bytes begin.
    defined: SourcePosition,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One key of a mapping with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) place: SourcePosition,
    pub(crate) value: Node,
}

/// What makes a text no YAML that can be read.
#[derive(Clone, Debug)]
pub(crate) struct YamlFault {
    pub(crate) place: SourcePosition,
    pub(crate) what: String,
}

/// The documents of a text. Empty ones are left out.
pub(crate) fn read_all(text: &str) -> Result<Vec<Node>, YamlFault> {
    if text.len() > MAX_TEXT {
        return Err(YamlFault {
            place: SourcePosition::default(),
            what: format!("the file is larger than {MAX_TEXT} bytes"),
        });
    }
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_nodes: MAX_NODES,
            max_events: MAX_NODES * 2,
            max_depth: MAX_DEPTH,
            max_aliases: MAX_ALIASES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: MAX_DEPTH,
        },
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| explained(&error))
}

impl Node {
    /// The same without places.
    pub(crate) fn to_json(&self) -> Value {
        match &self.content {
            Content::Null => Value::Null,
            Content::Bool(truth) => Value::Bool(*truth),
            Content::Number(number) => Value::Number(number.clone()),
            Content::Text(text) => Value::String(text.clone()),
            Content::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Content::Map(entries) => {
                let pairs = entries.iter().map(|e| (e.key.clone(), e.value.to_json()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }

    /// What stands in the file.
    pub(crate) fn written<'t>(&self, file: &'t str) -> Option<&'t str> {
        self.bytes.and_then(|(from, to)| file.get(from..to))
    }

    /// Where in the file a place of this node's text stands; `None` where the two do not go line by line.
    pub(crate) fn place_within(
        &self,
        file: &str,
        within: SourcePosition,
    ) -> Option<SourcePosition> {
        let written = self.written(file)?;
        let value = match &self.content {
            Content::Text(text) => text.as_str(),
            Content::Null
            | Content::Bool(_)
            | Content::Number(_)
            | Content::List(_)
            | Content::Map(_) => written,
        };
        self.place_in_lines(file, value, within).or_else(|| {
            let skipped = usize::try_from(within.column.checked_sub(1)?).ok()?;
            let moved = match written.chars().next()? {
                _ if written.contains('\n') || within.line != 1 => return None,
                '\'' => written_length(written, skipped, single_quoted),
                '"' => written_length(written, skipped, double_quoted),
                _ => return None,
            };
            let column = self.defined.column.checked_add(moved as u64)?;
            Some(SourcePosition {
                line: self.defined.line,
                column: column.checked_add(1)?,
            })
        })
    }

    /// The same for a text that stands in the file as it is, apart from being indented.
    fn place_in_lines(
        &self,
        file: &str,
        value: &str,
        within: SourcePosition,
    ) -> Option<SourcePosition> {
        // Blank lines at the start of a block are in its text, but it is said to begin below them.
        let blank = value.chars().take_while(|c| *c == '\n').count() as u64;
        let below = within.line.checked_sub(1)?.checked_sub(blank)?;
        let line = self.defined.line.checked_add(below)?;
        let indent = self.defined.column.checked_sub(1)?;
        let nth = |number: u64| usize::try_from(number.checked_sub(1)?).ok();
        let there = file.lines().nth(nth(line)?)?;
        let mut there = there.chars().skip(usize::try_from(indent).ok()?);
        let mut here = value.split('\n').nth(nth(within.line)?)?.chars();
        here.all(|c| there.next() == Some(c))
            .then_some(SourcePosition {
                line,
                column: within.column.checked_add(indent)?,
            })
    }
}

/// How many characters of a quoted text stand for the first `count` of its content.
fn written_length(written: &str, count: usize, unit: fn(&str) -> usize) -> usize {
    let mut rest = written.get(1..).unwrap_or_default();
    let mut length = 0;
    for _ in 0..count {
        let characters = unit(rest);
        length += characters;
        let mut left = rest.chars();
        left.by_ref().take(characters).for_each(drop);
        rest = left.as_str();
    }
    length
}

/// A quote stands twice.
fn single_quoted(rest: &str) -> usize {
    if rest.starts_with("''") { 2 } else { 1 }
}

/// YAML 1.2.2 section 5.7: escapes of two, four, six and ten characters.
fn double_quoted(rest: &str) -> usize {
    let mut characters = rest.chars();
    match (characters.next(), characters.next()) {
        (Some('\\'), Some('x')) => 4,
        (Some('\\'), Some('u')) => 6,
        (Some('\\'), Some('U')) => 10,
        (Some('\\'), Some(_)) => 2,
        _ => 1,
    }
}

impl From<Location> for SourcePosition {
    fn from(location: Location) -> Self {
        Self {
            line: location.line(),
            column: location.column(),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content>::deserialize(deserializer)?;
        let span = spanned.defined.span();
        let bytes = span.byte_offset().zip(span.byte_len());
        let bytes = bytes.and_then(|(from, length)| {
            let from = usize::try_from(from).ok()?;
            Some((from, from.checked_add(usize::try_from(length).ok()?)?))
        });
        Ok(Self {
            place: spanned.referenced.into(),
            defined: spanned.defined.into(),
            content: spanned.value,
            bytes,
        })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Content, E> {
                Ok(Content::Null)
            }

            fn visit_bool<E>(self, truth: bool) -> Result<Content, E> {
                Ok(Content::Bool(truth))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Content, E> {
                Ok(Content::Number(number.into()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Content, E> {
                Ok(Content::Number(number.into()))
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Content, E> {
                let number = Number::from_f64(number);
                number
                    .map(Content::Number)
                    .ok_or_else(|| E::custom("this is no number"))
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<Content, E> {
                Ok(Content::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Content::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Content, A::Error> {
                let mut entries = Vec::new();
                while let Some(key) = pairs.next_key::<Spanned<String>>()? {
                    if key.value.len() > MAX_KEY {
                        return Err(A::Error::custom(format!(
                            "a key is longer than {MAX_KEY} bytes"
                        )));
                    }
                    entries.push(Entry {
                        key: key.value,
                        place: key.referenced.into(),
                        value: pairs.next_value()?,
                    });
                }
                Ok(Content::Map(entries))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

fn explained(error: &Error) -> YamlFault {
    let error = error.without_snippet();
    let place = error
        .location()
        .map(SourcePosition::from)
        .unwrap_or_default();
    let what = if let Error::DuplicateMappingKey { key: Some(key), .. } = error {
        format!("{key:?} stands twice in the same section: remove one of the two")
    } else {
        let text = error.to_string();
        let end = text.rfind(" at line ").unwrap_or(text.len());
        text.get(..end).unwrap_or(&text).to_owned()
    };
    YamlFault { place, what }
}

/// Policies are written by people; keeps a wrong path from filling the memory.
const MAX_TEXT: usize = 1024 * 1024;
/// Values in a file, with those that aliases repeat: a short text must not become a large one.
const MAX_NODES: usize = 100_000;
const MAX_DEPTH: usize = 48;
const MAX_ALIASES: usize = 1000;
const MAX_KEY: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Node {
        let mut documents = read_all(text).unwrap();
        assert_eq!(documents.len(), 1, "{text}");
        documents.remove(0)
    }

    fn entry<'n>(node: &'n Node, key: &str) -> &'n Entry {
        let Content::Map(entries) = &node.content else {
            panic!("{node:?} is no mapping");
        };
        entries.iter().find(|entry| entry.key == key).unwrap()
    }

    #[test]
    fn values_keep_their_types_and_places() {
        let text = "a: 1\nb: [true, -2, 1.5, 'x', ~]\nc:\n  d: 2026-01-02T03:04:05Z\n  e: yes\n";
        let node = only(text);
        assert_eq!(
            node.to_json(),
            serde_json::json!({
                "a": 1, "b": [true, -2, 1.5, "x", null],
                "c": {"d": "2026-01-02T03:04:05Z", "e": "yes"},
            })
        );
        let inner = entry(&entry(&node, "c").value, "d");
        assert_eq!(inner.place, SourcePosition { line: 4, column: 3 });
        assert_eq!(inner.value.place, SourcePosition { line: 4, column: 6 });
        assert_eq!(inner.value.written(text), Some("2026-01-02T03:04:05Z"));
    }

    #[test]
    fn places_within_a_text_are_places_in_the_file() {
        for (written, within, expected) in [
            ("a: b + c", (1, 5), Some((1, 8))),
            ("é: b + c", (1, 5), Some((1, 8))),
            ("a: 'b + c'", (1, 5), Some((1, 9))),
            ("a: 'b ''''+ c'", (1, 5), Some((1, 11))),
            ("a: \"b \\\"+ c\"", (1, 5), Some((1, 10))),
            ("a: \"b \\u0041+ c\"", (1, 5), Some((1, 14))),
            ("{x: 1, a: b + c}", (1, 5), Some((1, 15))),
            ("x: 1\na: |\n  b +\n  c", (2, 1), Some((4, 3))),
            ("x: 1\na: |-\n\n    b +\n    c", (2, 3), Some((4, 7))),
            ("a: |\n  'b' +\n    c\n", (2, 3), Some((3, 5))),
            ("a: >\n  b +\n  c", (1, 5), None),
            ("a: b +\n  c", (1, 5), None),
            ("a: 'b +\n  c'", (1, 5), None),
        ] {
            let node = only(written);
            let Content::Map(entries) = &node.content else {
                panic!("{written}");
            };
            let value = &entries.last().unwrap().value;
            let (line, column) = within;
            let found = value.place_within(written, SourcePosition { line, column });
            assert_eq!(found.map(|p| (p.line, p.column)), expected, "{written}");
        }
    }

    #[test]
    fn several_documents_are_several_and_empty_ones_none() {
        assert_eq!(read_all("a: 1\n---\nb: 2\n---\n").unwrap().len(), 2);
        assert_eq!(read_all("# nothing\n").unwrap().len(), 0);
        let second = &read_all("a: 1\n---\nb: 2\n").unwrap()[1];
        assert_eq!(
            entry(second, "b").place,
            SourcePosition { line: 3, column: 1 }
        );
    }

    #[test]
    fn what_is_no_yaml_or_too_much_of_it_is_refused_with_its_place() {
        let laughs = (1..12).fold("a0: &a0 [x]\n".to_owned(), |text, n| {
            let repeated = vec![format!("*a{}", n - 1); 9].join(", ");
            format!("{text}a{n}: &a{n} [{repeated}]\n")
        });
        let deep = "[".repeat(500);
        let wide = format!("[{}]", "1,".repeat(MAX_NODES + 1));
        for (text, line) in [
            ("a: [", 1),
            ("a: 1\na: 2", 2),
            ("a: 1\n  b: 2", 2),
            (laughs.as_str(), 6),
            (&deep, 1),
            (&wide, 1),
        ] {
            let fault = read_all(text).unwrap_err();
            let start: String = text.chars().take(20).collect();
            assert!(fault.place.line.abs_diff(line) <= 1, "{start}: {fault:?}");
        }
        assert!(read_all(&" ".repeat(MAX_TEXT + 1)).is_err());
    }
}
