//! The one place that writes to standard output and standard error.
//!
//! Names come from strangers: whatever is printed for people passes [`terminal_safe`], and what is printed for
//! programs has every character that could act on a terminal escaped. Somebody may have taken an enrolment token for a
//! name, and then every sentence about that name would repeat it: tokens are masked, save by [`secret`], which exists for
//! them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write as _};

use countersign_authority::masked_tokens;
use countersign_pki::terminal_safe;
use serde::Serialize;

use crate::cli::Form;

/// Nothing could be printed.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output")]
pub(crate) struct OutputFault(#[from] io::Error);

/// Prints text with a line end. A reader who went away, as `head` does, is no reason to stop halfway: what a
/// command was asked to do it does, whoever listens.
pub(crate) fn line(text: &str) -> Result<(), OutputFault> {
    let (text, mut out) = (fit_to_print(text), io::stdout().lock());
    heard(writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// Prints text without a line end.
fn text(text: &str) -> Result<(), OutputFault> {
    heard(io::stdout().lock().write_all(fit_to_print(text).as_bytes()))
}

/// Without secrets of tokens, and without what acts on a terminal, whoever forgot it before.
fn fit_to_print(text: &str) -> String {
    inert_words(&masked_tokens(text))
}

/// Prints a secret as it is. If nobody reads it, it is lost, so that a reader who went away is a fault here.
pub(crate) fn secret(text: &str) -> Result<(), OutputFault> {
    let mut out = io::stdout().lock();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?)
}

fn heard(written: io::Result<()>) -> Result<(), OutputFault> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints a line to standard error. Nobody can be told if that fails.
pub(crate) fn complain(text: &str) {
    let _nobody_to_tell = writeln!(io::stderr().lock(), "{}", fit_to_print(text));
}

/// Prints an object in a form for programs.
pub(crate) fn object(value: &impl Serialize, form: Form) -> Result<(), OutputFault> {
    line(&object_text(value, form)?)
}

/// Prints `{"items": [...]}` part by part, for lists that are too long to be held.
#[derive(Debug)]
pub(crate) struct Items {
    form: Form,
    is_empty: bool,
}

impl Items {
    pub(crate) fn new(form: Form) -> Self {
        Self {
            form,
            is_empty: true,
        }
    }

    /// Prints the next ones.
    pub(crate) fn more(&mut self, items: &[impl Serialize]) -> Result<(), OutputFault> {
        for item in items {
            text(&self.part(item)?)?;
        }
        Ok(())
    }

    /// Prints the end.
    pub(crate) fn end(self) -> Result<(), OutputFault> {
        line(&self.rest()?)
    }

    /// One item, as it stands in the list behind those before it.
    fn part(&mut self, item: &impl Serialize) -> Result<String, OutputFault> {
        let is_first = std::mem::replace(&mut self.is_empty, false);
        let alone = object_text(&BTreeMap::from([(ITEMS, [item])]), self.form)?;
        let part = alone.strip_suffix(self.closing()).unwrap_or(&alone);
        let (opening, between) = match self.form {
            Form::Json | Form::Table => ("{\n  \"items\": [\n", ",\n"),
            Form::Yaml => ("items:\n", "\n"),
        };
        Ok(match part.strip_prefix(opening) {
            Some(bare) if !is_first => format!("{between}{bare}"),
            Some(_) | None => part.to_owned(),
        })
    }

    fn rest(&self) -> Result<String, OutputFault> {
        if self.is_empty {
            return object_text(&BTreeMap::from([(ITEMS, [(); 0])]), self.form);
        }
        Ok(self.closing().to_owned())
    }

    fn closing(&self) -> &'static str {
        match self.form {
            Form::Json | Form::Table => "\n  ]\n}",
            Form::Yaml => "",
        }
    }
}

/// Columns under a heading; wide enough for what is in them.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self {
            rows: vec![heading.iter().map(ToString::to_string).collect()],
        }
    }

    pub(crate) fn row<'a>(&mut self, cells: impl IntoIterator<Item = &'a str>) {
        self.rows.push(
            cells
                .into_iter()
                .map(|cell| terminal_safe(cell).into_owned())
                .collect(),
        );
    }

    pub(crate) fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        for row in &self.rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        table.trim_fmt()
    }
}

/// Facts about one thing, one on each line.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    lines: Vec<(&'static str, String)>,
}

impl Facts {
    /// Adds a fact, unless there is nothing to say.
    pub(crate) fn add(&mut self, name: &'static str, value: &str) {
        if !value.is_empty() {
            self.lines.push((name, terminal_safe(value).into_owned()));
        }
    }

    pub(crate) fn text(&self) -> String {
        let width = self
            .lines
            .iter()
            .map(|(name, _)| name.len() + 1)
            .max()
            .unwrap_or(0);
        let mut text = String::new();
        for (name, value) in &self.lines {
            let label = if name.is_empty() {
                String::new()
            } else {
                format!("{name}:")
            };
            text.push_str(format!("{label:width$}  {value}").trim_end());
            text.push('\n');
        }
        text.trim_end().to_owned()
    }
}

/// The object without a line end behind it.
fn object_text(value: &impl Serialize, form: Form) -> Result<String, OutputFault> {
    let text = match form {
        Form::Json | Form::Table => json_text(value).map_err(io::Error::other)?,
        Form::Yaml => yaml_text(value).map_err(io::Error::other)?,
    };
    Ok(text.trim_end().to_owned())
}

/// A value as JSON in which no character can act on a terminal.
fn json_text(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(|text| inert_json(&text))
}

/// A value as YAML in which no character can act on a terminal.
fn yaml_text(value: &impl Serialize) -> Result<String, serde_saphyr::ser::Error> {
    let text = serde_saphyr::to_string(value)?;
    if text.chars().all(is_inert) {
        return Ok(text);
    }
    // Only in quotes there are escapes for such characters.
    let quoted = serde_saphyr::ser_options! { quote_all: true };
    serde_saphyr::to_string_with_options(value, quoted).map(|text| inert_yaml(&text))
}

/// YAML with its strings in quotes, and in double ones where a character has to be escaped (YAML 1.2, 5.7).
fn inert_yaml(yaml: &str) -> String {
    let mut text = String::with_capacity(yaml.len());
    let mut rest = yaml;
    while let Some(start) = rest.find(['\'', '"']) {
        let (before, quoted) = rest.split_at(start);
        text.push_str(&inert_words(before));
        let length = length_of_quoted(quoted);
        let (quoted, behind) = quoted.split_at(length);
        let inside = quoted.get(1..length.saturating_sub(1)).unwrap_or_default();
        match quoted.starts_with('"') {
            _ if quoted.chars().all(is_inert) => text.push_str(quoted),
            true => text.push_str(&format!("\"{}\"", escaped(inside))),
            false => {
                let plain = inside.replace("''", "'").replace('\\', "\\\\");
                text.push_str(&format!("\"{}\"", escaped(&plain.replace('"', "\\\""))));
            }
        }
        rest = behind;
    }
    text.push_str(&inert_words(rest));
    text
}

/// Octets of a string in quotes, with the quotes.
fn length_of_quoted(text: &str) -> usize {
    let is_double = text.starts_with('"');
    let mut is_escaped = false;
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((place, c)) = characters.next() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_double => is_escaped = true,
            '"' if is_double => return place.saturating_add(1),
            '\'' if !is_double => match characters.peek() {
                Some((_, '\'')) => is_escaped = true,
                Some(_) | None => return place.saturating_add(1),
            },
            _ => {}
        }
    }
    text.len()
}

/// Text outside of quotes, where nothing can be escaped so that a program reads it as it was.
fn inert_words(text: &str) -> String {
    if text.chars().all(is_inert) {
        return text.to_owned();
    }
    let lines: Vec<_> = text.split('\n').map(terminal_safe).collect();
    lines.join("\n")
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match u32::from(c) {
            _ if is_inert(c) => escaped.push(c),
            code @ ..=0xffff => escaped.push_str(&format!("\\u{code:04x}")),
            code => escaped.push_str(&format!("\\U{code:08x}")),
        }
    }
    escaped
}

/// White space between the parts is; inside strings it is escaped already.
fn is_inert(c: char) -> bool {
    matches!(c, '\n' | '\t')
        || matches!(terminal_safe(c.encode_utf8(&mut [0; 4])), Cow::Borrowed(_))
}

/// The same JSON without characters that could act on a terminal. They all stand inside strings, where an escape means
/// the same.
pub(crate) fn inert_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if is_inert(c) {
            text.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    text
}

const ITEMS: &str = "items";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn tables_are_aligned_and_inert() {
        let mut table = Table::new(&["NAME", "STATE"]);
        table.row(["web01.example.com", "pending"]);
        table.row(["a\x1b[31m\u{202e}b", "denied"]);
        assert_eq!(
            table.text(),
            "NAME                  STATE\n\
             web01.example.com     pending\n\
             a\\u{1b}[31m\\u{202e}b  denied"
        );
    }

    #[test]
    fn facts_are_aligned_and_inert_and_skip_what_is_empty() {
        let mut facts = Facts::default();
        facts.add("name", "a\nb");
        facts.add("requester", "anonymous");
        facts.add("reason", "");
        facts.add("", "more");
        assert_eq!(
            facts.text(),
            "name:       a\\u{a}b\nrequester:  anonymous\n            more"
        );
    }

    #[test]
    fn json_is_inert_and_means_the_same() {
        let value = json!({"a\u{9b}": ["\x1b[2J", "\u{202e}", "\u{e0041}", "ä \\ \" ok", "\n"]});
        let text = json_text(&value).unwrap();
        assert!(
            text.chars()
                .all(|c| c == '\n' || terminal_safe(&c.to_string()) == c.to_string()),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert!(text.contains("ä"));
    }

    #[test]
    fn yaml_is_inert_and_means_the_same() {
        let hostile = [
            "\u{202e}moc.elpmaxe",
            "it's \"\u{2066}\" \\ ok",
            "\x1b[2J\u{9b}",
            "\u{e0041}",
            "a\nb\u{200f}\n",
            "plain",
            "'\u{202d}'",
        ];
        let value =
            json!({"name": hostile[0], "list": hostile, "map": {"key": hostile[1], "n": 1}});
        let text = object_text(&value, Form::Yaml).unwrap();
        let is_inert = |c: char| c == '\n' || terminal_safe(&c.to_string()) == c.to_string();
        assert!(text.chars().all(is_inert), "{text}");
        assert_eq!(
            serde_saphyr::from_str::<Value>(&text).unwrap(),
            value,
            "{text}"
        );
        let harmless = json!({"name": "web01", "text": "x\ny"});
        let plain = serde_saphyr::to_string(&harmless).unwrap();
        assert_eq!(
            object_text(&harmless, Form::Yaml).unwrap(),
            plain.trim_end()
        );
    }

    #[test]
    fn a_list_in_parts_is_the_list() {
        let item = |number: i32| json!({"name": format!("a{number}\u{202e}"), "list": [1, {"b": []}], "none": null, "text": "x\ny"});
        for form in [Form::Json, Form::Yaml] {
            for count in 0..4 {
                let items: Vec<Value> = (0..count).map(item).collect();
                let mut parts = Items::new(form);
                let printed = items.iter().map(|one| parts.part(one).unwrap());
                let mut text: String = printed.collect();
                text.push_str(&parts.rest().unwrap());
                let whole = object_text(&json!({"items": items}), form).unwrap();
                assert_eq!(text, whole, "{form:?}, {count} items");
            }
        }
    }
}
