//! A line of the log, as text or as JSON: every value bounded, inert on a terminal, and quoted once.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::sync::Arc;

use countersign_pki::terminal_safe;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::budget::Budget;
use crate::config::LogFormat;
use crate::output::inert_json;

/// Writes lines, as long as the budget lets it.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) format: LogFormat,
    pub(super) budget: Arc<Budget>,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let line = event.metadata();
        let mut fields = Fields {
            // What policy executables print, for whoever looks for their faults.
            max_value: if *line.level() > Level::INFO {
                MAX_DETAIL
            } else {
                MAX_VALUE
            },
            message: String::new(),
            values: Vec::new(),
        };
        event.record(&mut fields);
        // Nothing that is handed over is nothing that is written.
        if !self.budget.admits(line, fields.source(), Instant::now()) {
            return Ok(());
        }
        match self.format {
            LogFormat::Text => text(writer, line, &fields),
            LogFormat::Json => json(writer, line, fields),
        }
    }
}

fn text(mut writer: Writer<'_>, line: &Metadata<'_>, fields: &Fields) -> fmt::Result {
    let is_coloured = writer.has_ansi_escapes();
    let (faint, plain) = match is_coloured {
        true => ("\u{1b}[2m", "\u{1b}[0m"),
        false => ("", ""),
    };
    let colour = match is_coloured {
        true => colour(*line.level()),
        false => "",
    };
    writer.write_str(faint)?;
    SystemTime.format_time(&mut writer)?;
    write!(
        writer,
        "{plain} {colour}{:>5}{plain} {faint}{}:{plain} {}",
        line.level().as_str(),
        line.target(),
        terminal_safe(&fields.message)
    )?;
    for (name, value) in &fields.values {
        for part in [" ", faint, name, "=", plain] {
            writer.write_str(part)?;
        }
        match value {
            Value::String(text) => writer.write_str(&quoted(text))?,
            other => write!(writer, "{other}")?,
        }
    }
    writer.write_char('\n')
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\u{1b}[31m",
        Level::WARN => "\u{1b}[33m",
        Level::INFO => "\u{1b}[32m",
        Level::DEBUG => "\u{1b}[34m",
        Level::TRACE => "\u{1b}[35m",
    }
}

/// The members that log collectors know, in this order.
fn json(mut writer: Writer<'_>, line: &Metadata<'_>, fields: Fields) -> fmt::Result {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    let mut members = Map::new();
    members.insert("message".to_owned(), Value::String(fields.message));
    for (name, value) in fields.values {
        members.insert(name.to_owned(), value);
    }
    let members = inert_json(&Value::Object(members).to_string());
    let (time, target) = (Value::from(time), Value::from(line.target()));
    let level = line.level();
    writeln!(
        writer,
        r#"{{"timestamp":{time},"level":"{level}","fields":{members},"target":{target}}}"#
    )
}

/// A value as programs can find its end again: in quotes, unless it is one plain word.
fn quoted(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| !matches!(c, '"' | '\\' | '=') && !c.is_whitespace();
    // Most values are one word of ASCII, and every enrolment logs some.
    let is_word = |octet: u8| octet.is_ascii_graphic() && !matches!(octet, b'"' | b'\\' | b'=');
    if !text.is_empty() && text.bytes().all(is_word) {
        return Cow::Borrowed(text);
    }
    let safe = terminal_safe(text);
    if !safe.is_empty() && safe.chars().all(is_plain) {
        return safe;
    }
    let mut quoted = String::with_capacity(text.len().saturating_add(2));
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c => quoted.push_str(&terminal_safe(c.encode_utf8(&mut [0; 4]))),
        }
    }
    quoted.push('"');
    Cow::Owned(quoted)
}

/// What a line says.
struct Fields {
    /// Bytes of a value.
    max_value: usize,
    message: String,
    values: Vec<(&'static str, Value)>,
}

impl Fields {
    /// The network address that the line is about, if it names one.
    fn source(&self) -> Option<IpAddr> {
        let (_, value) = self.values.iter().find(|(name, _)| *name == SOURCE)?;
        value.as_str()?.parse().ok()
    }

    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.values.push((field.name(), value.into()));
    }

    fn add_text(&mut self, field: &Field, text: fmt::Arguments<'_>) {
        let is_message = field.name() == MESSAGE;
        let mut bounded = Bounded {
            text: String::new(),
            limit: if is_message {
                MAX_MESSAGE
            } else {
                self.max_value
            },
        };
        if bounded.write_fmt(text).is_err() {
            bounded.text.push('…');
        }
        match is_message {
            true => self.message = bounded.text,
            false => self.values.push((field.name(), Value::from(bounded.text))),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add_text(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add_text(field, format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let causes = std::iter::successors(value.source(), |cause| cause.source());
        let causes: String = causes
            .take(MAX_CAUSES)
            .map(|cause| format!(": {cause}"))
            .collect();
        self.add_text(field, format_args!("{value}{causes}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }
}

/// The beginning of a text, in so many bytes of what is printed of it.
struct Bounded {
    text: String,
    limit: usize,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let is_printed = |octet: u8| octet.is_ascii_graphic() || octet == b' ';
        if more.len() <= self.limit && more.bytes().all(is_printed) {
            self.limit = self.limit.saturating_sub(more.len());
            self.text.push_str(more);
            return Ok(());
        }
        for c in more.chars() {
            // What acts on a terminal is printed as an escape.
            let printed = if c.is_control() || !c.is_ascii() {
                ESCAPED
            } else {
                1
            };
            self.limit = self.limit.checked_sub(printed).ok_or(fmt::Error)?;
            self.text.push(c);
        }
        Ok(())
    }
}

const MESSAGE: &str = "message";
/// The field that tells whom a line is about.
const SOURCE: &str = "source";
/// Longer than any name, path or reason that is meant; strangers choose many of them.
const MAX_VALUE: usize = 1024;
/// The same at the levels that nobody else sees by default.
const MAX_DETAIL: usize = 8192;
/// Sentences of our own, which name files and what is wrong in them.
const MAX_MESSAGE: usize = 4096;
const MAX_CAUSES: usize = 8;
/// Bytes that an escaped character takes, at most: `\u{10ffff}`.
const ESCAPED: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_blanks_are_quoted_and_words_are_not() {
        for (value, shown) in [
            ("web01.example.com", "web01.example.com"),
            ("refused certificate", "\"refused certificate\""),
            ("", "\"\""),
            ("a\"b\\c", "\"a\\\"b\\\\c\""),
            ("a=b", "\"a=b\""),
            ("a\nb", "\"a\\u{a}b\""),
            ("a\u{202e}b c", "\"a\\u{202e}b c\""),
        ] {
            assert_eq!(quoted(value), shown, "{value:?}");
        }
    }

    #[test]
    fn a_value_is_bounded_as_it_is_printed() {
        for long in [
            "x".repeat(100_000),
            "\u{1b}".repeat(100_000),
            "\u{202e}".repeat(9999),
        ] {
            let mut bounded = Bounded {
                text: String::new(),
                limit: MAX_VALUE,
            };
            assert!(bounded.write_str(&long).is_err());
            assert!(quoted(&bounded.text).len() <= MAX_VALUE + 2);
        }
    }
}
