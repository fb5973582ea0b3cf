//! Files of machine records, read row by row: CSV under a heading, a JSON array, or a JSON object on each line.
//!
//! Whatever is wrong with a row is said with its line, and reading goes on with the next. Only what cannot be read at
//! all (a broken file, a heading that is none) ends it.

use std::cell::Cell;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::rc::Rc;

use countersign_api::{MachineRecord, MachineRecordAddress};
use countersign_pki::UnixTime;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::Value;

use crate::cli::{AddressArg, RecordFormat};
use crate::config::nearest;

/// One record and the line on which it begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) line: u64,
    pub(super) record: MachineRecord,
}

/// What is wrong with a row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadRow {
    pub(super) line: u64,
    pub(super) what: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// Somebody who takes rows; `false` ends the reading.
pub(super) type Taker<'a> = &'a mut dyn FnMut(Result<Row, BadRow>) -> bool;

/// Reads every row.
///
/// # Errors
/// If the file itself cannot be read any further.
pub(super) fn read(
    source: impl Read,
    format: Option<RecordFormat>,
    take: Taker<'_>,
) -> Result<(), BadRow> {
    let mut source = BufReader::new(source);
    let unreadable = |error: std::io::Error| BadRow {
        line: 1,
        what: format!("cannot be read: {error}"),
    };
    let start = source.fill_buf().map_err(unreadable)?;
    if start.starts_with(BYTE_ORDER_MARK) {
        source.consume(BYTE_ORDER_MARK.len());
    }
    let start = source.fill_buf().map_err(unreadable)?;
    let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
    match (format, first) {
        (_, None) => Ok(()),
        (None | Some(RecordFormat::Json), Some(b'[')) => array(source, take),
        (None, Some(b'{')) | (Some(RecordFormat::Json), Some(_)) => lines(source, take),
        (None | Some(RecordFormat::Csv), Some(_)) => table(source, take),
    }
}

fn table(source: impl Read, take: Taker<'_>) -> Result<(), BadRow> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .flexible(true)
        .from_reader(source);
    let at = |line, what: String| BadRow { line, what };
    let heading = reader.headers();
    let heading = heading
        .map_err(|error| at(1, format!("the heading cannot be read: {error}")))?
        .clone();
    let columns: Vec<Column> = heading
        .iter()
        .map(Column::named)
        .collect::<Result<_, _>>()
        .map_err(|what| at(1, what))?;
    if !columns.contains(&Column::Name) {
        let what = "the heading has no column name: write one first line that names the columns";
        return Err(at(1, what.to_owned()));
    }
    let repeated = columns.iter().enumerate().find(|(place, column)| {
        let before = columns.iter().take(*place);
        before.into_iter().any(|earlier| earlier == *column)
    });
    if let Some((_, column)) = repeated {
        return Err(at(1, format!("the heading has {} twice", column.word())));
    }
    let mut cells = csv::ByteRecord::new();
    loop {
        match reader.read_byte_record(&mut cells) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => {
                let line = reader.position().line();
                return Err(at(line, format!("cannot be read: {error}")));
            }
        }
        let line = cells.position().map_or(0, csv::Position::line);
        let row = record_of(&columns, &cells);
        let row = row.map(|record| Row { line, record });
        if !take(row.map_err(|what| at(line, what))) {
            return Ok(());
        }
    }
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Name,
    Addresses,
    Serial,
    Uuid,
    InstanceId,
    Provider,
    Role,
    NotBefore,
    NotAfter,
    SingleUse,
}

impl Column {
    const ALL: [Self; 10] = [
        Self::Name,
        Self::Addresses,
        Self::Serial,
        Self::Uuid,
        Self::InstanceId,
        Self::Provider,
        Self::Role,
        Self::NotBefore,
        Self::NotAfter,
        Self::SingleUse,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Addresses => "addresses",
            Self::Serial => "serial",
            Self::Uuid => "uuid",
            Self::InstanceId => "instance_id",
            Self::Provider => "provider",
            Self::Role => "role",
            Self::NotBefore => "not_before",
            Self::NotAfter => "not_after",
            Self::SingleUse => "single_use",
        }
    }

    fn named(word: &str) -> Result<Self, String> {
        let mut known = Self::ALL.into_iter();
        if let Some(column) = known.find(|column| column.word().eq_ignore_ascii_case(word)) {
            return Ok(column);
        }
        let words = || Self::ALL.map(Self::word);
        Err(match nearest(word, words()) {
            Some(meant) => {
                format!("the heading has an unknown column {word:?}; did you mean {meant}?")
            }
            None => format!(
                "the heading has an unknown column {word:?}; columns are {}",
                words().join(", ")
            ),
        })
    }
}

fn record_of(columns: &[Column], cells: &csv::ByteRecord) -> Result<MachineRecord, String> {
    if cells.len() != columns.len() {
        let (have, want) = (cells.len(), columns.len());
        return Err(format!("has {have} cells, and the heading has {want}"));
    }
    let mut record = MachineRecord::default();
    for (column, cell) in columns.iter().zip(cells) {
        let word = column.word();
        let text = std::str::from_utf8(cell).map_err(|_| format!("{word} is not UTF-8"))?;
        let said = || Some(text.to_owned()).filter(|text| !text.is_empty());
        let time = || -> Result<Option<UnixTime>, String> {
            let parsed = said()
                .map(|text| UnixTime::parse_rfc3339(&text))
                .transpose();
            parsed.map_err(|fault| format!("{word} {text:?}: {fault}"))
        };
        match column {
            Column::Name => record.name = text.to_owned(),
            Column::Addresses => {
                let addresses = text.split(';').map(str::trim);
                let given = addresses.filter(|address| !address.is_empty());
                let parsed = given.map(|address| address.parse::<AddressArg>());
                let parsed = parsed.map(|parsed| parsed.map(MachineRecordAddress::from));
                let parsed = parsed.collect::<Result<_, _>>();
                record.addresses = parsed.map_err(|fault| fault.to_string())?;
            }
            Column::Serial => record.serial = said(),
            Column::Uuid => record.uuid = said(),
            Column::InstanceId => record.instance_id = said(),
            Column::Provider => record.provider = said(),
            Column::Role => record.role = said(),
            Column::NotBefore => record.not_before = time()?,
            Column::NotAfter => record.not_after = time()?,
            Column::SingleUse => record.single_use = switch(text)?,
        }
    }
    Ok(record)
}

fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" | "" => Ok(false),
        _ => Err(format!("single_use {text:?}: write true or false")),
    }
}

fn lines(mut source: impl BufRead, take: Taker<'_>) -> Result<(), BadRow> {
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let bad = |what: String| BadRow { line, what };
        let mut one = (&mut source).take(MAX_LINE);
        let length = one.read_until(b'\n', &mut text);
        match length.map_err(|error| bad(format!("cannot be read: {error}")))? {
            0 => break,
            _ if text.len() as u64 == MAX_LINE => {
                return Err(bad(format!("has more than {MAX_LINE} bytes")));
            }
            _ => {}
        }
        if text.trim_ascii().is_empty() {
            continue;
        }
        let value = serde_json::from_slice(&text).map_err(|error| error.to_string());
        let row = value.and_then(record_of_json);
        let row = row.map(|record| Row { line, record });
        if !take(row.map_err(bad)) {
            break;
        }
    }
    Ok(())
}

fn array(source: impl Read, take: Taker<'_>) -> Result<(), BadRow> {
    let line = Rc::new(Cell::new(1));
    let source = Counted {
        source,
        line: Rc::clone(&line),
    };
    let mut stopped = false;
    let elements = Elements {
        line: &line,
        take,
        stopped: &mut stopped,
    };
    let mut json = serde_json::Deserializer::from_reader(source);
    let read = json.deserialize_seq(elements).and_then(|()| json.end());
    match read {
        Err(error) if !stopped => Err(BadRow {
            line: u64::try_from(error.line()).unwrap_or_default(),
            what: format!("cannot be read: {error}"),
        }),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Counts lines as they are consumed. The reader of JSON takes one byte at a time, and looks one ahead.
struct Counted<R> {
    source: R,
    line: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.source.read(buffer)?;
        let read = buffer.iter().take(count);
        let ends = read.filter(|byte| **byte == b'\n').count() as u64;
        self.line.set(self.line.get().saturating_add(ends));
        Ok(count)
    }
}

/// The elements of an array, given away one by one: the array is never in memory.
struct Elements<'a> {
    line: &'a Cell<u64>,
    take: Taker<'a>,
    stopped: &'a mut bool,
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some((line, value)) = elements.next_element_seed(Element { line: self.line })? {
            let row = record_of_json(value).map(|record| Row { line, record });
            if !(self.take)(row.map_err(|what| BadRow { line, what })) {
                *self.stopped = true;
                return Err(serde::de::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}

/// An element and the line on which it begins: of its first character, which was looked at already.
struct Element<'a> {
    line: &'a Cell<u64>,
}

impl<'de> DeserializeSeed<'de> for Element<'_> {
    type Value = (u64, Value);

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(u64, Value), D::Error> {
        let line = self.line.get();
        Ok((line, Value::deserialize(json)?))
    }
}

fn record_of_json(value: Value) -> Result<MachineRecord, String> {
    if !value.is_object() {
        return Err("is not an object".to_owned());
    }
    MachineRecord::deserialize(value).map_err(|error| error.to_string())
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const MAX_LINE: u64 = 1024 * 1024; // many times the longest record

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_policy::AddressKind;

    /// What a text comes to: each row's line and name, or its fault, and why the reading ended early.
    fn outcomes(text: &str, format: Option<RecordFormat>) -> Vec<String> {
        let mut told = Vec::new();
        let mut take = |row: Result<Row, BadRow>| {
            told.push(match row {
                Ok(row) => format!("{} {}", row.line, row.record.name),
                Err(bad) => bad.to_string(),
            });
            true
        };
        let ended = read(text.as_bytes(), format, &mut take);
        told.extend(ended.err().map(|fatal| format!("end, {fatal}")));
        told
    }

    fn records(text: &str) -> Vec<MachineRecord> {
        let mut records = Vec::new();
        let mut take = |row: Result<Row, BadRow>| {
            records.push(row.unwrap().record);
            true
        };
        read(text.as_bytes(), None, &mut take).unwrap();
        records
    }

    #[test]
    fn the_three_forms_say_the_same() {
        let table = "\u{feff}name, addresses ,serial,uuid,instance_id,provider,role,not_before,not_after,single_use\n\
                     web01,192.0.2.7; ExternalDNS=www.example.com,S1,U1,i-1,\"rack, 7\",web,2026-01-01T00:00:00Z,2027-01-01T00:00:00Z,yes\n\
                     web02,,,,,,,,,\n";
        let one = r#"{"name":"web01","addresses":[{"type":"InternalIP","address":"192.0.2.7"},{"type":"ExternalDNS","address":"www.example.com"}],"serial":"S1","uuid":"U1","instance_id":"i-1","provider":"rack, 7","role":"web","not_before":"2026-01-01T00:00:00Z","not_after":"2027-01-01T00:00:00Z","single_use":true}"#;
        let two = r#"{"name":"web02"}"#;
        let expected = records(table);
        assert_eq!(expected.len(), 2);
        assert_eq!(expected[0].addresses[1].kind, AddressKind::ExternalDNS);
        assert_eq!(expected[0].provider.as_deref(), Some("rack, 7"));
        assert!(expected[0].single_use);
        assert_eq!(
            expected[1],
            MachineRecord {
                name: "web02".to_owned(),
                ..MachineRecord::default()
            }
        );
        assert_eq!(records(&format!("{one}\n\n{two}")), expected);
        assert_eq!(records(&format!(" [\n{one},\n{two}\n]\n")), expected);
        assert_eq!(records("name\n"), []);
        assert_eq!(records(" \n"), []);
        assert_eq!(records("[]"), []);
    }

    #[test]
    fn every_bad_row_is_told_with_its_line() {
        let text =
            "name,single_use,not_before\na,true,\nb,perhaps,\nc\nd,no,soon\n\"e\ne\",1,\nf,,\n";
        assert_eq!(
            outcomes(text, None),
            [
                "2 a",
                "line 3: single_use \"perhaps\": write true or false",
                "line 4: has 1 cells, and the heading has 3",
                "line 5: not_before \"soon\": time is not in RFC 3339 form",
                "6 e\ne",
                "8 f",
            ]
        );
        let text =
            "[\n  {\"name\": \"a\"},\n  {\n    \"colour\": 1\n  },\n  7, {\"name\": \"b\"}\n]";
        let told = outcomes(text, None);
        assert_eq!(told[0], "2 a");
        assert!(
            told[1].starts_with("line 3: unknown field `colour`"),
            "{told:?}"
        );
        assert_eq!(told[2..], ["line 6: is not an object", "6 b"]);
        let text =
            "{\"name\":\"a\"}\n{\"name\":\n{\"name\":\"b\",\"addresses\":[1]}\n{\"name\":\"c\"}";
        let told = outcomes(text, None);
        assert_eq!(told.len(), 4);
        assert!(told[1].starts_with("line 2: EOF while parsing"), "{told:?}");
        assert!(told[2].starts_with("line 3: invalid type"), "{told:?}");
        assert_eq!(told[3], "4 c");
    }

    #[test]
    fn what_cannot_be_read_ends_it() {
        for (text, format, expected) in [
            (
                "host,role\na,b\n",
                None,
                "end, line 1: the heading has an unknown column \"host\"; columns are name, addresses, serial, uuid, instance_id, provider, role, not_before, not_after, single_use",
            ),
            (
                "name,rolle\n",
                None,
                "end, line 1: the heading has an unknown column \"rolle\"; did you mean role?",
            ),
            (
                "role\n",
                None,
                "end, line 1: the heading has no column name: write one first line that names the columns",
            ),
            (
                "name,role,Name\n",
                None,
                "end, line 1: the heading has name twice",
            ),
            (
                "[\n{\"name\":\"a\"},\n{\"name\":]",
                None,
                "end, line 3: cannot be read: expected value at line 3 column 9",
            ),
            (
                "[{\"name\":\"a\"}] x",
                None,
                "end, line 1: cannot be read: trailing characters at line 1 column 16",
            ),
            (
                "[",
                Some(RecordFormat::Csv),
                "end, line 1: the heading has an unknown column \"[\"; columns are name, addresses, serial, uuid, instance_id, provider, role, not_before, not_after, single_use",
            ),
        ] {
            let told = outcomes(text, format);
            assert_eq!(told.last().map(String::as_str), Some(expected), "{text}");
        }
        let long = format!("{{\"name\":\"{}\"}}", "a".repeat(2 << 20));
        assert_eq!(
            outcomes(&long, None),
            ["end, line 1: has more than 1048576 bytes"]
        );
        assert_eq!(
            outcomes("name\na\n", Some(RecordFormat::Json)).len(),
            2,
            "two bad lines"
        );
    }

    #[test]
    fn who_has_enough_is_not_told_more() {
        for text in [
            "name\na\nb\n",
            "[{\"name\":\"a\"},{\"name\":\"b\"}]",
            "{\"name\":\"a\"}\n{",
        ] {
            let mut count = 0;
            let mut take = |_| {
                count += 1;
                false
            };
            read(text.as_bytes(), None, &mut take).unwrap();
            assert_eq!(count, 1, "{text}");
        }
    }
}
