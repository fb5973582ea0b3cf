//! A reader of the part of HOCON that `ca.conf` files use: comments, nested objects, dotted keys, texts with and
//! without quotes, lists.
//!
//! Includes and substitutions are refused: they would make a setting of the authority depend on other files and on the
//! environment. Size, depth and time are bounded; every value knows its line.

use std::collections::BTreeMap;

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) value: Value,
}

/// What a file can say. Numbers and truth values are texts: who asks for them knows their form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Object(BTreeMap<String, Node>),
    List(Vec<Node>),
    Text(String),
}

impl Node {
    /// The member of an object.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Object(members) => members.get(key),
            Value::List(_) | Value::Text(_) => None,
        }
    }
}

/// What is wrong with a text, and in which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub(crate) struct HoconFault {
    pub(crate) line: usize,
    pub(crate) what: String,
}

/// Reads a whole text; its root is an object, with or without braces.
pub(crate) fn parse(text: &str) -> Result<Node, HoconFault> {
    let mut reader = Reader {
        rest: text.trim_start_matches('\u{feff}'),
        line: 1,
        depth: 0,
    };
    reader.skip_blank(Newlines::Skipped);
    let line = reader.line;
    let members = if reader.take("{") {
        let members = reader.members(Closing::Brace)?;
        reader.skip_blank(Newlines::Skipped);
        if !reader.rest.is_empty() {
            return Err(reader.fault("there is something after the closing brace"));
        }
        members
    } else {
        reader.members(Closing::End)?
    };
    Ok(Node {
        line,
        value: Value::Object(members),
    })
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    depth: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Newlines {
    Skipped,
    Kept,
}

/// What ends the members of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    Brace,
    End,
}

impl Reader<'_> {
    fn members(&mut self, closing: Closing) -> Result<BTreeMap<String, Node>, HoconFault> {
        let mut members = BTreeMap::new();
        loop {
            self.skip_blank(Newlines::Skipped);
            if self.rest.is_empty() {
                return match closing {
                    Closing::End => Ok(members),
                    Closing::Brace => Err(self.fault("a brace is not closed")),
                };
            }
            if closing == Closing::Brace && self.take("}") {
                return Ok(members);
            }
            let line = self.line;
            let path = self.path()?;
            self.skip_blank(Newlines::Skipped);
            if self.rest.starts_with("+=") {
                return Err(self.fault("+= is not understood: write the whole value"));
            }
            if !(self.take("=") || self.take(":") || self.rest.starts_with('{')) {
                let key = path.join(".");
                return Err(self.fault(&format!("the key {key:?} has no value")));
            }
            self.skip_blank(Newlines::Skipped);
            let value = self.value()?;
            insert(&mut members, &path, Node { line, value });
            self.end_of_item('}')?;
        }
    }

    fn list(&mut self) -> Result<Vec<Node>, HoconFault> {
        let mut items = Vec::new();
        loop {
            self.skip_blank(Newlines::Skipped);
            if self.rest.is_empty() {
                return Err(self.fault("a bracket is not closed"));
            }
            if self.take("]") {
                return Ok(items);
            }
            let line = self.line;
            let value = self.value()?;
            items.push(Node { line, value });
            self.end_of_item(']')?;
        }
    }

    fn value(&mut self) -> Result<Value, HoconFault> {
        if self.depth >= MAX_DEPTH {
            return Err(self.fault("objects and lists are nested too deeply"));
        }
        self.depth += 1;
        let value = if self.take("{") {
            Value::Object(self.members(Closing::Brace)?)
        } else if self.take("[") {
            Value::List(self.list()?)
        } else if self.rest.starts_with('"') {
            Value::Text(self.quoted()?)
        } else {
            let text = self.unquoted(|_| false)?;
            if text.is_empty() {
                return Err(self.fault("a value is missing"));
            }
            Value::Text(text)
        };
        self.depth -= 1;
        Ok(value)
    }

    /// A key: parts between dots, each of which may be quoted.
    fn path(&mut self) -> Result<Vec<String>, HoconFault> {
        let mut path = Vec::new();
        loop {
            self.skip_blank(Newlines::Kept);
            let part = if self.rest.starts_with('"') {
                self.quoted()?
            } else {
                let part = self.unquoted(|letter| letter == '.')?;
                if path.is_empty() && (part == "include" || part.starts_with("include ")) {
                    return Err(self
                        .fault("include is not understood: name the file that has the settings"));
                }
                part
            };
            if part.is_empty() {
                return Err(self.fault("a key is missing"));
            }
            path.push(part);
            if path.len() > MAX_DEPTH {
                return Err(self.fault("a key has too many parts"));
            }
            self.skip_blank(Newlines::Kept);
            if !self.take(".") {
                return Ok(path);
            }
        }
    }

    /// A text without quotes, to the end of the line or to a sign that means something.
    fn unquoted(&mut self, is_end: impl Fn(char) -> bool) -> Result<String, HoconFault> {
        let mut length = 0;
        for (at, letter) in self.rest.char_indices() {
            let rest = self.rest.get(at..).unwrap_or_default();
            let is_comment = letter == '#' || rest.starts_with("//");
            if is_comment || is_end(letter) || "\n,{}[]:=+\"".contains(letter) {
                break;
            }
            if letter == '$' {
                return Err(self.fault("substitutions are not understood: write the value out"));
            }
            if "`^?!@*&\\".contains(letter) {
                return Err(self.fault(&format!("{letter:?} may stand in quotes only")));
            }
            length = at + letter.len_utf8();
        }
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(text.trim().to_owned())
    }

    fn quoted(&mut self) -> Result<String, HoconFault> {
        if self.take("\"\"\"") {
            let Some((text, rest)) = self.rest.split_once("\"\"\"") else {
                return Err(self.fault("a quotation is not closed"));
            };
            self.line += text.matches('\n').count();
            self.rest = rest;
            return Ok(text.to_owned());
        }
        let mut text = String::new();
        let mut letters = self.rest.char_indices().skip(1);
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.rest = self.rest.get(at + 1..).unwrap_or_default();
                    return Ok(text);
                }
                '\n' => break,
                '\\' => match letters.next().map(|(_, letter)| letter) {
                    Some('u') => {
                        let digits: String = letters.by_ref().take(4).map(|(_, c)| c).collect();
                        let code = u32::from_str_radix(&digits, 16).ok();
                        match code.and_then(char::from_u32) {
                            Some(letter) if digits.len() == 4 => text.push(letter),
                            _ => return Err(self.fault("an escape cannot be read")),
                        }
                    }
                    Some(escape) => match ESCAPES.iter().find(|(name, _)| *name == escape) {
                        Some((_, letter)) => text.push(*letter),
                        None => return Err(self.fault("an escape cannot be read")),
                    },
                    None => break,
                },
                other => text.push(other),
            }
        }
        Err(self.fault("a quotation is not closed"))
    }

    /// Members and items end with their line, a comma, or what closes them.
    fn end_of_item(&mut self, closing: char) -> Result<(), HoconFault> {
        self.skip_blank(Newlines::Kept);
        if self.take(",") || self.rest.is_empty() || self.rest.starts_with(['\n', closing]) {
            return Ok(());
        }
        Err(self
            .fault("there is more than one value: use one, in quotes if it has spaces or signs"))
    }

    fn skip_blank(&mut self, newlines: Newlines) {
        loop {
            if newlines == Newlines::Skipped && self.rest.starts_with('\n') {
                self.line += 1;
                self.rest = self.rest.get(1..).unwrap_or_default();
            } else if self.rest.starts_with('#') || self.rest.starts_with("//") {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.rest = self.rest.get(end..).unwrap_or_default();
            } else {
                let is_blank = |letter: char| letter.is_whitespace() && letter != '\n';
                let rest = self.rest.trim_start_matches(is_blank);
                if rest.len() == self.rest.len() {
                    return;
                }
                self.rest = rest;
            }
        }
    }

    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn fault(&self, what: &str) -> HoconFault {
        HoconFault {
            line: self.line,
            what: what.to_owned(),
        }
    }
}

/// The last of two equal keys counts, and two objects become one.
fn insert(members: &mut BTreeMap<String, Node>, path: &[String], node: Node) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    let line = node.line;
    let value = if rest.is_empty() {
        node.value
    } else {
        let mut inner = BTreeMap::new();
        insert(&mut inner, rest, node);
        Value::Object(inner)
    };
    match (members.get_mut(first), value) {
        (
            Some(Node {
                value: Value::Object(old),
                ..
            }),
            Value::Object(new),
        ) => {
            for (key, node) in new {
                insert(old, &[key], node);
            }
        }
        (_, value) => {
            members.insert(first.clone(), Node { line, value });
        }
    }
}

/// Far more than a `ca.conf` has; bounds the stack.
const MAX_DEPTH: usize = 16;

/// RFC 8259 7.
const ESCAPES: [(char, char); 8] = [
    ('"', '"'),
    ('\\', '\\'),
    ('/', '/'),
    ('b', '\u{8}'),
    ('f', '\u{c}'),
    ('n', '\n'),
    ('r', '\r'),
    ('t', '\t'),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// In the shortest notation: objects in braces, lists in brackets, every text in quotes.
    fn shown(value: &Value) -> String {
        match value {
            Value::Object(members) => {
                let members = members.iter();
                let members: Vec<String> = members
                    .map(|(key, node)| format!("{key}={}", shown(&node.value)))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(|node| shown(&node.value)).collect();
                format!("[{}]", items.join(","))
            }
            Value::Text(text) => format!("{text:?}"),
        }
    }

    #[test]
    fn reads_what_configuration_files_use() {
        for (text, expected) in [
            ("", "{}"),
            ("{}", "{}"),
            ("# a\n// b\n", "{}"),
            ("a: 1", r#"{a="1"}"#),
            ("a = true # why\n", r#"{a="true"}"#),
            ("a : false // why", r#"{a="false"}"#),
            ("a { b: 1 }", r#"{a={b="1"}}"#),
            ("a: {\n b = x\n c = y\n}\n", r#"{a={b="x",c="y"}}"#),
            ("{ a: { b: 1, c: 2, } }", r#"{a={b="1",c="2"}}"#),
            ("a.b.c = 1\na.b.d = 2", r#"{a={b={c="1",d="2"}}}"#),
            ("a { x = 1 }\na { y = 2, x = 3 }", r#"{a={x="3",y="2"}}"#),
            ("a { x = 1 }\na = 2", r#"{a="2"}"#),
            (r#""a.b" = "c d""#, r#"{a.b="c d"}"#),
            (r#"a."b.c".d = 1"#, r#"{a={b.c={d="1"}}}"#),
            (r#"a = "q \"x\" \\ \u0041 \n""#, r#"{a="q \"x\" \\ A \n"}"#),
            (
                "a = \"\"\"one\ntwo \"x\" \"\"\"",
                r#"{a="one\ntwo \"x\" "}"#,
            ),
            (
                "a = two words  , b = /a/path.txt",
                r#"{a="two words",b="/a/path.txt"}"#,
            ),
            ("a = [1, 2,\n 3\n 4,]", r#"{a=["1","2","3","4"]}"#),
            ("a = [{b: 1}, [x]]", r#"{a=[{b="1"},["x"]]}"#),
            ("a =\n  1", r#"{a="1"}"#),
            ("a: \"1\"\r\nb: 2\r\n", r#"{a="1",b="2"}"#),
            ("include-this = 1", r#"{include-this="1"}"#),
        ] {
            let node = parse(text).unwrap_or_else(|fault| panic!("{text:?}: {fault}"));
            assert_eq!(shown(&node.value), expected, "{text:?}");
        }
    }

    #[test]
    fn refuses_what_it_does_not_understand_with_its_line() {
        let deep = "a{".repeat(100);
        let dotted = format!("{}=1", vec!["a"; 100].join("."));
        for (text, line, part) in [
            ("a = 1\ninclude \"b.conf\"", 2, "include"),
            ("include file(\"b.conf\")", 1, "include"),
            ("\n\na = ${B}", 3, "substitutions"),
            ("a = x${?B}", 1, "substitutions"),
            ("a += 1", 1, "+="),
            ("a {\n b = 1\n", 3, "brace is not closed"),
            ("a = [1,\n", 2, "bracket is not closed"),
            ("a = \"x\nb = 1", 1, "quotation is not closed"),
            ("a = \"\"\"x", 1, "quotation is not closed"),
            ("a = \"\\q\"", 1, "escape"),
            ("a = \"\\u12\"", 1, "escape"),
            ("a = \"x\" \"y\"", 1, "more than one value"),
            ("a = b = c", 1, "more than one value"),
            ("a = 1 }", 1, "key is missing"),
            ("{a = 1} b = 2", 1, "after the closing brace"),
            ("a", 1, "has no value"),
            ("a.b c", 1, "has no value"),
            ("= 1", 1, "key is missing"),
            ("a..b = 1", 1, "key is missing"),
            ("a = ,", 1, "value is missing"),
            ("a =", 1, "value is missing"),
            ("a = *", 1, "quotes"),
            (deep.as_str(), 1, "too deeply"),
            (dotted.as_str(), 1, "too many parts"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.what.contains(part), "{text:?}: {fault}");
            assert_eq!(fault.line, line, "{text:?}: {fault}");
        }
    }

    #[test]
    fn values_know_their_lines() {
        let root = parse("# one\na {\n  b = 1\n\n  c = [x]\n}\n").unwrap();
        let a = root.get("a").unwrap();
        assert_eq!(a.line, 2);
        assert_eq!(a.get("b").unwrap().line, 3);
        assert_eq!(a.get("c").unwrap().line, 5);
    }
}
