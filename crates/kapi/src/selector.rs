//! Label and field selectors of lists, watches and bulk deletions.

use std::collections::{BTreeMap, BTreeSet};

use crate::kind::Kind;
use crate::name;

/// Why a selector cannot be used; a server answers 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorFault {
    /// Longer than any real selector.
    #[error("selector is longer than {MAX_SELECTOR_BYTES} bytes")]
    TooLong,
    /// A word stands where something else is needed.
    #[error("unable to parse requirement: found '{found}', expected: {expected}")]
    Unexpected {
        /// What stands there; empty at the end.
        found: String,
        /// What should.
        expected: &'static str,
    },
    /// A key breaks the grammar of label keys.
    #[error("key: Invalid value: \"{key}\": {rule}")]
    Key {
        /// The key.
        key: String,
        /// The broken rule.
        rule: String,
    },
    /// A value breaks the grammar of label values.
    #[error("values: Invalid value: \"{value}\": {rule}")]
    Value {
        /// The value.
        value: String,
        /// The broken rule.
        rule: String,
    },
    /// `<` and `>` compare integers.
    #[error(
        "values: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
    )]
    Integer {
        /// The value.
        value: String,
    },
    /// A term of a field selector is no comparison.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term {
        /// The whole selector.
        selector: String,
        /// The term.
        term: String,
    },
    /// A backslash before a character that needs none.
    #[error("invalid field selector: invalid escape sequence: {sequence}")]
    Escape {
        /// Backslash and character.
        sequence: String,
    },
    /// A field by which this resource cannot be selected.
    #[error("field label not supported: {field}")]
    Field {
        /// Path of the field.
        field: String,
    },
}

/// A condition on labels; all requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    /// Reads the text of `labelSelector`.
    ///
    /// # Errors
    /// Says what cannot be understood.
    pub fn parse(text: &str) -> Result<Self, SelectorFault> {
        let mut words = Words::of(text)?;
        let mut requirements = Vec::new();
        while !words.rest.is_empty() {
            requirements.push(words.requirement()?);
            match words.take() {
                "" => break,
                "," if !words.rest.is_empty() => {}
                found => return unexpected(found, "',' or 'end of string'"),
            }
        }
        Ok(Self(requirements))
    }

    /// Whether an object with these labels is selected.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match &requirement.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Test::Above(limit) => number().is_some_and(|number| number > *limit),
                Test::Below(limit) => number().is_some_and(|number| number < *limit),
            }
        })
    }

    /// Whether everything is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A condition on fields. Every kind can be selected by its name, and by what it says it can be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Term>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    field: SelectableField,
    equal: bool,
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SelectableField {
    Name,
    Namespace,
    /// One that the kind has beside those.
    Own(&'static str),
}

impl FieldSelector {
    /// Reads the text of `fieldSelector`.
    ///
    /// # Errors
    /// Says what cannot be understood or selected by.
    pub fn parse<T: Kind>(text: &str) -> Result<Self, SelectorFault> {
        if text.len() > MAX_SELECTOR_BYTES {
            return Err(SelectorFault::TooLong);
        }
        let terms = split_unescaped(text)
            .into_iter()
            .filter(|term| !term.is_empty());
        terms
            .map(|term| Self::term::<T>(text, term))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether an object is selected.
    #[must_use]
    pub fn matches<T: Kind>(&self, object: &T) -> bool {
        self.0.iter().all(|term| {
            let value = match term.field {
                SelectableField::Name => object.metadata().name.as_str(),
                SelectableField::Namespace => object.metadata().namespace.as_str(),
                SelectableField::Own(field) => object.selected(field),
            };
            (value == term.value) == term.equal
        })
    }

    /// The one name that can match, if the selector fixes it: access rules by name apply then.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let fixed = |term: &&Term| term.field == SelectableField::Name && term.equal;
        self.0.iter().find(fixed).map(|term| term.value.as_str())
    }

    /// Whether everything is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn term<T: Kind>(selector: &str, term: &str) -> Result<Term, SelectorFault> {
        let misunderstood = || SelectorFault::Term {
            selector: selector.to_owned(),
            term: term.to_owned(),
        };
        let (field, rest) = term
            .find(['=', '!'])
            .and_then(|at| term.split_at_checked(at))
            .ok_or_else(misunderstood)?;
        let (equal, value) = if let Some(value) = rest.strip_prefix("!=") {
            (false, value)
        } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
            (true, value)
        } else {
            return Err(misunderstood());
        };
        let own = T::SELECTABLE.iter().find(|own| **own == field);
        let field = match (field, own) {
            ("metadata.name", _) => SelectableField::Name,
            ("metadata.namespace", _) if T::NAMESPACED => SelectableField::Namespace,
            (_, Some(own)) => SelectableField::Own(own),
            (other, None) => {
                return Err(SelectorFault::Field {
                    field: other.to_owned(),
                });
            }
        };
        Ok(Term {
            field,
            equal,
            value: unescape(value).ok_or_else(misunderstood)??,
        })
    }
}

/// Splits at commas that no backslash precedes.
fn split_unescaped(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        if c == ',' && !escaped {
            parts.extend(text.get(start..at));
            start = at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    parts.extend(text.get(start..));
    parts
}

/// A value without its backslashes; nothing if a separator stands in it bare.
fn unescape(value: &str) -> Option<Result<String, SelectorFault>> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => plain.push(next),
                next => {
                    let sequence = next.map_or_else(|| "\\".to_owned(), |next| format!("\\{next}"));
                    return Some(Err(SelectorFault::Escape { sequence }));
                }
            },
            ',' | '=' => return None,
            c => plain.push(c),
        }
    }
    Some(Ok(plain))
}

/// Words and signs of a label selector.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Result<Self, SelectorFault> {
        if text.len() > MAX_SELECTOR_BYTES {
            return Err(SelectorFault::TooLong);
        }
        Ok(Self {
            rest: text.trim_start_matches(SPACE),
        })
    }

    /// The next word or sign; empty at the end.
    fn take(&mut self) -> &'a str {
        let signs = ["==", "!=", "=", "!", "(", ")", ",", "<", ">"];
        let sign = signs
            .iter()
            .find(|sign| self.rest.starts_with(**sign))
            .map(|sign| sign.len());
        let end = |c: char| SPACE.contains(&c) || "=!(),<>".contains(c);
        let length = sign.unwrap_or_else(|| self.rest.find(end).unwrap_or(self.rest.len()));
        let (word, rest) = self
            .rest
            .split_at_checked(length)
            .unwrap_or((self.rest, ""));
        self.rest = rest.trim_start_matches(SPACE);
        word
    }

    fn peek(&self) -> &'a str {
        Words { rest: self.rest }.take()
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorFault> {
        let negated = self.peek() == "!";
        if negated {
            self.take();
        }
        let key = self.take();
        if key.is_empty() || is_sign(key) {
            return unexpected(key, "'!', identifier, or 'end of string'");
        }
        if let Some(rule) = name::qualified_name_faults(key).into_iter().next() {
            return Err(SelectorFault::Key {
                key: key.to_owned(),
                rule,
            });
        }
        let test = match self.peek() {
            "" | "," if negated => Test::Absent,
            "" | "," => Test::Exists,
            found if negated => return unexpected(found, "',' or 'end of string'"),
            _ => self.test()?,
        };
        Ok(Requirement {
            key: key.to_owned(),
            test,
        })
    }

    fn test(&mut self) -> Result<Test, SelectorFault> {
        match self.take() {
            "=" | "==" => Ok(Test::In([self.value()?].into())),
            "!=" => Ok(Test::NotIn([self.value()?].into())),
            "in" => Ok(Test::In(self.values()?)),
            "notin" => Ok(Test::NotIn(self.values()?)),
            ">" => Ok(Test::Above(self.integer()?)),
            "<" => Ok(Test::Below(self.integer()?)),
            found => unexpected(found, "in, notin, =, ==, !=, gt, lt"),
        }
    }

    /// One value; absent means empty.
    fn value(&mut self) -> Result<String, SelectorFault> {
        let value = match self.peek() {
            "" | "," => "",
            found if is_sign(found) => return unexpected(found, "identifier"),
            _ => self.take(),
        };
        checked_value(value)
    }

    fn integer(&mut self) -> Result<i64, SelectorFault> {
        let value = self.value()?;
        value.parse().map_err(|_| SelectorFault::Integer { value })
    }

    fn values(&mut self) -> Result<BTreeSet<String>, SelectorFault> {
        match self.take() {
            "(" => {}
            found => return unexpected(found, "'('"),
        }
        let mut values = BTreeSet::new();
        loop {
            let value = match self.peek() {
                "," | ")" => "",
                found if found.is_empty() || is_sign(found) => {
                    return unexpected(found, "',', ')' or identifier");
                }
                _ => self.take(),
            };
            values.insert(checked_value(value)?);
            match self.take() {
                "," => {}
                ")" => return Ok(values),
                found => return unexpected(found, "',' or ')'"),
            }
        }
    }
}

fn checked_value(value: &str) -> Result<String, SelectorFault> {
    match name::label_value_faults(value).into_iter().next() {
        Some(rule) => Err(SelectorFault::Value {
            value: value.to_owned(),
            rule,
        }),
        None => Ok(value.to_owned()),
    }
}

fn is_sign(word: &str) -> bool {
    word.starts_with(['=', '!', '(', ')', ',', '<', '>'])
}

fn unexpected<T>(found: &str, expected: &'static str) -> Result<T, SelectorFault> {
    Err(SelectorFault::Unexpected {
        found: found.to_owned(),
        expected,
    })
}

const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];
const MAX_SELECTOR_BYTES: usize = 16 * 1024; // bounds the work per object; URLs are shorter

#[cfg(test)]
mod tests;
