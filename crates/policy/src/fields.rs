//! Reading the keys of a document that a person wrote: every complaint names the file, the place, the key and what
//! belongs there, and reading goes on after it.

use std::fmt;
use std::path::{Path, PathBuf};

use countersign_pki::UnixTime;

use crate::nearest::nearest;
use crate::span::Span;
use crate::yaml::{Content, Entry, Node, SourcePosition};

/// Something that is wrong with a file of policies or of policy tests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {}{what}", file.display(), Shown(place), Named(key))]
pub struct PolicyFault {
    /// The file.
    pub file: PathBuf,
    /// Where in the file; line 0 where it is the file as a whole.
    pub place: SourcePosition,
    /// The key, as `spec.rules[2].approve.webhook.url`; empty where it is the file as a whole.
    pub key: String,
    /// What is wrong and what would be right.
    pub what: String,
}

impl PolicyFault {
    /// A fault of a file as a whole.
    pub fn of_file(file: &Path, what: String) -> Self {
        Self {
            file: file.to_owned(),
            place: SourcePosition::default(),
            key: String::new(),
            what,
        }
    }
}

struct Shown<'a>(&'a SourcePosition);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.line {
            0 => Ok(()),
            line => write!(f, ", line {line}, column {}", self.0.column),
        }
    }
}

struct Named<'a>(&'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => Ok(()),
            key => write!(f, "{key}: "),
        }
    }
}

/// One file while it is read, and what is wrong with it so far.
pub(crate) struct Reading<'a> {
    pub(crate) file: &'a Path,
    /// Where relative paths in the file begin.
    pub(crate) folder: &'a Path,
    pub(crate) text: &'a str,
    pub(crate) faults: Vec<PolicyFault>,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(file: &'a Path, folder: &'a Path, text: &'a str) -> Self {
        Self {
            file,
            folder,
            text,
            faults: Vec::new(),
        }
    }

    /// Complains about a key of a mapping.
    pub(crate) fn complain(&mut self, place: SourcePosition, key: &str, what: impl Into<String>) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(PolicyFault {
                file: self.file.to_owned(),
                place,
                key: key.to_owned(),
                what: what.into(),
            });
        }
    }
}

/// A value with the way to it.
#[derive(Clone, Debug)]
pub(crate) struct Field<'n> {
    pub(crate) path: String,
    pub(crate) node: &'n Node,
}

/// The keys of one mapping.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'n> {
    path: String,
    pub(crate) place: SourcePosition,
    entries: &'n [Entry],
}

impl<'n> Field<'n> {
    pub(crate) fn root(node: &'n Node) -> Self {
        Self {
            path: String::new(),
            node,
        }
    }

    pub(crate) fn complain(&self, reading: &mut Reading<'_>, what: impl Into<String>) {
        reading.complain(self.node.place, &self.path, what);
    }

    /// Its keys, all of which must be known.
    pub(crate) fn fields(&self, known: &[&str], reading: &mut Reading<'_>) -> Option<Fields<'n>> {
        let fields = self.any_fields(reading)?;
        for entry in fields.entries {
            if known.contains(&entry.key.as_str()) {
                continue;
            }
            let path = joined(&self.path, &entry.key);
            let what = format!("unknown key{}", instead(&entry.key, known));
            reading.complain(entry.place, &path, what);
        }
        Some(fields)
    }

    /// Its keys, whatever they are; a key without any value has none.
    pub(crate) fn any_fields(&self, reading: &mut Reading<'_>) -> Option<Fields<'n>> {
        let entries = match &self.node.content {
            Content::Map(entries) => entries.as_slice(),
            Content::Null => &[],
            Content::Bool(_) | Content::Number(_) | Content::Text(_) | Content::List(_) => {
                self.complain(
                    reading,
                    "keys with values belong here, for example {key: value}",
                );
                return None;
            }
        };
        Some(Fields {
            path: self.path.clone(),
            place: self.node.place,
            entries,
        })
    }

    pub(crate) fn items(&self, reading: &mut Reading<'_>) -> Option<Vec<Self>> {
        match &self.node.content {
            Content::List(items) => Some(
                items
                    .iter()
                    .enumerate()
                    .map(|(index, node)| Self {
                        path: format!("{}[{index}]", self.path),
                        node,
                    })
                    .collect(),
            ),
            Content::Null
            | Content::Bool(_)
            | Content::Number(_)
            | Content::Text(_)
            | Content::Map(_) => {
                self.complain(reading, "a list belongs here, for example [one, two]");
                None
            }
        }
    }

    /// One value or a list of them.
    pub(crate) fn one_or_more(&self, reading: &mut Reading<'_>) -> Option<Vec<Self>> {
        match &self.node.content {
            Content::List(_) => self.items(reading),
            Content::Null
            | Content::Bool(_)
            | Content::Number(_)
            | Content::Text(_)
            | Content::Map(_) => Some(vec![self.clone()]),
        }
    }

    /// A text; a number or a truth value counts as it is written.
    pub(crate) fn text(&self, reading: &mut Reading<'_>) -> Option<String> {
        match &self.node.content {
            Content::Text(text) => Some(text.clone()),
            Content::Bool(_) | Content::Number(_) => {
                let written = self.node.written(reading.text);
                Some(written.unwrap_or_default().to_owned())
            }
            Content::Null => {
                self.complain(reading, "the value is missing");
                None
            }
            Content::List(_) | Content::Map(_) => {
                self.complain(reading, "a single value belongs here, no list and no keys");
                None
            }
        }
    }

    pub(crate) fn texts(&self, reading: &mut Reading<'_>) -> Option<Vec<String>> {
        let items = self.items(reading)?;
        Some(items.iter().filter_map(|item| item.text(reading)).collect())
    }

    pub(crate) fn truth(&self, reading: &mut Reading<'_>) -> Option<bool> {
        match &self.node.content {
            Content::Bool(truth) => Some(*truth),
            Content::Null
            | Content::Number(_)
            | Content::Text(_)
            | Content::List(_)
            | Content::Map(_) => {
                self.complain(reading, "say true or false");
                None
            }
        }
    }

    /// A whole number of 0 or more.
    pub(crate) fn count(&self, reading: &mut Reading<'_>) -> Option<u64> {
        let number = match &self.node.content {
            Content::Number(number) => number.as_u64(),
            Content::Null
            | Content::Bool(_)
            | Content::Text(_)
            | Content::List(_)
            | Content::Map(_) => None,
        };
        if number.is_none() {
            self.complain(reading, "a whole number of 0 or more belongs here");
        }
        number
    }

    pub(crate) fn whole(&self, reading: &mut Reading<'_>) -> Option<i64> {
        let number = match &self.node.content {
            Content::Number(number) => number.as_i64(),
            Content::Null
            | Content::Bool(_)
            | Content::Text(_)
            | Content::List(_)
            | Content::Map(_) => None,
        };
        if number.is_none() {
            self.complain(reading, "a whole number belongs here, for example -10");
        }
        number
    }

    /// A duration between `least` and `most`.
    pub(crate) fn span(&self, least: Span, most: Span, reading: &mut Reading<'_>) -> Option<Span> {
        match self.text(reading)?.parse::<Span>() {
            Ok(span) if (least..=most).contains(&span) => Some(span),
            Ok(span) => {
                let what =
                    format!("{span} is out of bounds: choose one between {least} and {most}");
                self.complain(reading, what);
                None
            }
            Err(fault) => {
                self.complain(reading, fault.to_string());
                None
            }
        }
    }

    /// A value that is one of a few words.
    pub(crate) fn word<T: Copy>(
        &self,
        known: &[(&'static str, T)],
        reading: &mut Reading<'_>,
    ) -> Option<T> {
        let text = self.text(reading)?;
        let found = known.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
            let what = format!("{text:?} is no word for this{}", instead(&text, &words));
            self.complain(reading, what);
        }
        found.map(|(_, value)| *value)
    }

    /// A value that its type reads from text.
    pub(crate) fn parsed<T, E: fmt::Display>(
        &self,
        parse: impl Fn(&str) -> Result<T, E>,
        reading: &mut Reading<'_>,
    ) -> Option<T> {
        let text = self.text(reading)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(fault) => {
                self.complain(reading, format!("{text:?}: {fault}"));
                None
            }
        }
    }

    pub(crate) fn time(&self, reading: &mut Reading<'_>) -> Option<UnixTime> {
        let text = self.text(reading)?;
        let time = UnixTime::parse_rfc3339(&text);
        if time.is_err() {
            let what = format!("{text:?} is no time: write it as 2026-01-02T03:04:05Z");
            self.complain(reading, what);
        }
        time.ok()
    }

    /// A path, from the file's own folder.
    pub(crate) fn file_path(&self, reading: &mut Reading<'_>) -> Option<PathBuf> {
        let text = self.text(reading)?;
        if text.is_empty() || text.contains(['\0', '\n']) {
            self.complain(reading, "the name of a file belongs here");
            return None;
        }
        Some(reading.folder.join(text))
    }
}

impl<'n> Fields<'n> {
    /// The value of a key; a key without a value counts as absent.
    pub(crate) fn get(&self, key: &str) -> Option<Field<'n>> {
        self.written(key)
            .filter(|field| !matches!(field.node.content, Content::Null))
    }

    /// The value of a key, even if it is null.
    pub(crate) fn written(&self, key: &str) -> Option<Field<'n>> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(self.field(entry))
    }

    /// The value of a key that must be there.
    pub(crate) fn required(&self, key: &str, reading: &mut Reading<'_>) -> Option<Field<'n>> {
        let found = self.get(key);
        if found.is_none() {
            reading.complain(self.place, &joined(&self.path, key), "is missing here");
        }
        found
    }

    /// Every key with its value, in the order of the file.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'n str, Field<'n>)> {
        let fields = self.entries.iter();
        fields.map(|entry| (entry.key.as_str(), self.field(entry)))
    }

    /// Where a key stands.
    pub(crate) fn place_of(&self, key: &str) -> SourcePosition {
        let entry = self.entries.iter().find(|entry| entry.key == key);
        entry.map_or(self.place, |entry| entry.place)
    }

    pub(crate) fn complain(&self, key: &str, reading: &mut Reading<'_>, what: impl Into<String>) {
        reading.complain(self.place_of(key), &joined(&self.path, key), what);
    }

    fn field(&self, entry: &'n Entry) -> Field<'n> {
        Field {
            path: joined(&self.path, &entry.key),
            node: &entry.value,
        }
    }
}

fn joined(path: &str, key: &str) -> String {
    match (path, key) {
        ("", key) => key.to_owned(),
        (path, "") => path.to_owned(),
        (path, key) => format!("{path}.{key}"),
    }
}

/// What was probably meant, else all that would be right.
pub(crate) fn instead(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(word) => format!("; did you mean {word:?}?"),
        None => format!("; known here are {}", known.join(", ")),
    }
}

/// Who has so many faults to mend does not read more of them.
const MAX_FAULTS: usize = 100;
