//! `inventory.txt`: one line for every certificate that was issued, in order.
//!
//! Lines are appended by several programs, by hand, and by servers that die while they write. One that cannot be read is
//! told of and passed over.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use countersign_pki::{Serial, SerialFault, UnixTime};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The serial.
    pub serial: Serial,
    /// The start of validity.
    pub not_before: UnixTime,
    /// The end of validity.
    pub not_after: UnixTime,
    /// The common name. Authorities' have blanks in it.
    pub name: String,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RowFault {
    #[error("it is longer than {MAX_LINE} characters")]
    TooLong,
    #[error("it is not text")]
    NotText,
    #[error("it has no serial, two dates and a subject")]
    Fields,
    #[error("{0}")]
    Serial(SerialFault),
    #[error("{text:?} is no date of the form 2026-01-31T00:00:00UTC")]
    Date { text: String },
    #[error("{text:?} is no subject with a common name")]
    Subject { text: String },
}

impl Row {
    /// Reads a line: `0x002A 2026-01-01T10:00:00UTC 2031-01-01T10:00:00UTC /CN=web01.example.com`.
    fn parse(line: &str) -> Result<Self, RowFault> {
        let mut rest = line;
        let mut field = || {
            let (field, more) = rest.trim_start().split_once(char::is_whitespace)?;
            rest = more;
            Some(field)
        };
        let (Some(serial), Some(begin), Some(end)) = (field(), field(), field()) else {
            return Err(RowFault::Fields);
        };
        Ok(Self {
            serial: Serial::parse_hex(serial).map_err(RowFault::Serial)?,
            not_before: date(begin)?,
            not_after: date(end)?,
            name: common_name(rest.trim())?,
        })
    }

    /// Calls `each` with the number and content of every line that is not blank. Memory does not grow with the file.
    pub(super) fn read_all(
        path: &Path,
        mut each: impl FnMut(usize, Result<Self, RowFault>),
    ) -> io::Result<()> {
        let mut file = BufReader::new(File::open(path)?);
        let mut line = Vec::new();
        for number in 1_usize.. {
            line.clear();
            if (&mut file).take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if line.last() != Some(&b'\n') && line.len() as u64 == MAX_LINE {
                each(number, Err(RowFault::TooLong));
                file.skip_until(b'\n')?;
                continue;
            }
            if !line.trim_ascii().is_empty() {
                let text = std::str::from_utf8(&line).map_err(|_| RowFault::NotText);
                each(number, text.and_then(Self::parse));
            }
        }
        Ok(())
    }
}

/// As the server writes it, without the line end.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.serial.to_hex();
        let (begin, end) = (self.not_before.to_string(), self.not_after.to_string());
        let zone = |time: &str| format!("{}UTC", time.trim_end_matches('Z'));
        let (begin, end) = (zone(&begin), zone(&end));
        write!(f, "0x{digits:0>4} {begin} {end} /CN={}", self.name)
    }
}

fn date(text: &str) -> Result<UnixTime, RowFault> {
    let without_zone = text
        .strip_suffix("UTC")
        .or_else(|| text.strip_suffix("GMT"));
    let read = match without_zone {
        Some(time) => UnixTime::parse_rfc3339(&format!("{time}Z")),
        None => UnixTime::parse_rfc3339(text),
    };
    read.map_err(|_| RowFault::Date {
        text: text.to_owned(),
    })
}

/// The common name of `/CN=name`, also where it stands among others: `/CN=name,OU=x`.
fn common_name(subject: &str) -> Result<String, RowFault> {
    let parts = subject
        .strip_prefix('/')
        .unwrap_or_default()
        .split([',', '/']);
    let mut names = parts.filter_map(|part| part.trim_start().strip_prefix("CN="));
    match names.next() {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        Some(_) | None => Err(RowFault::Subject {
            text: subject.to_owned(),
        }),
    }
}

const MAX_LINE: u64 = 8192; // many times the longest name

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "0x002A 2026-01-01T10:00:00UTC 2031-01-01T10:00:00UTC /CN=web01.example.com";

    fn row(serial: u64, name: &str) -> Row {
        Row {
            serial: Serial::try_from(serial).unwrap(),
            not_before: UnixTime(1_767_261_600),
            not_after: UnixTime(1_925_028_000),
            name: name.to_owned(),
        }
    }

    #[test]
    fn lines_of_every_writer() {
        for (line, expected) in [
            (LINE.to_owned(), row(42, "web01.example.com")),
            (LINE.replace("002A", "2a"), row(42, "web01.example.com")),
            (LINE.replace("0x002A", "002A"), row(42, "web01.example.com")),
            (format!("  {LINE} \r"), row(42, "web01.example.com")),
            (LINE.replace(' ', "\t "), row(42, "web01.example.com")),
            (LINE.replace("UTC", "GMT"), row(42, "web01.example.com")),
            (LINE.replace("UTC", "Z"), row(42, "web01.example.com")),
            (
                LINE.replace("web01.example.com", "Puppet CA: ca.example.com"),
                row(42, "Puppet CA: ca.example.com"),
            ),
            (
                LINE.replace("/CN=", "/OU=a,CN="),
                row(42, "web01.example.com"),
            ),
            (format!("{LINE},OU=a"), row(42, "web01.example.com")),
            (
                LINE.replace("/CN=", "/O=a/CN="),
                row(42, "web01.example.com"),
            ),
        ] {
            assert_eq!(Row::parse(&line), Ok(expected), "{line:?}");
        }
    }

    #[test]
    fn damaged_lines_and_what_is_wrong_with_them() {
        for (line, part) in [
            ("garbage", "no serial, two dates and a subject"),
            (
                "0x01 2026-01-01T10:00:00UTC /CN=a",
                "no serial, two dates and a subject",
            ),
            (&LINE.replace("0x002A", "0x00ZZ"), "hexadecimal"),
            (&LINE.replace("0x002A", "0x0000"), "zero"),
            (&LINE.replace("2031-01-01", "2031-13-01"), "is no date"),
            (
                &LINE.replace("2031-01-01T10:00:00UTC", "soon"),
                "is no date",
            ),
            (&LINE.replace("/CN=", "/OU="), "is no subject"),
            (&LINE.replace("/CN=", "CN="), "is no subject"),
            (&LINE.replace("web01.example.com", ""), "is no subject"),
        ] {
            let fault = Row::parse(line).unwrap_err().to_string();
            assert!(fault.contains(part), "{line}: {fault}");
        }
    }

    #[test]
    fn written_as_the_server_writes() {
        assert_eq!(row(42, "web01.example.com").to_string(), LINE);
        let line = row(0x1_2345, "a").to_string();
        assert!(line.starts_with("0x012345 "), "{line}");
    }

    #[test]
    fn a_file_is_read_line_by_line_whatever_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("inventory.txt");
        let long = "x".repeat(100_000);
        let mut text = format!("{LINE}\n\n{long}\n").into_bytes();
        text.extend(b"\xff\xfe\n");
        text.extend(LINE.replace("2A", "2B").bytes());
        std::fs::write(&path, text).unwrap();
        let mut seen = Vec::new();
        Row::read_all(&path, |number, row| {
            seen.push((number, row.map(|row| row.serial.to_u64())));
        })
        .unwrap();
        assert_eq!(
            seen,
            [
                (1, Ok(Some(42))),
                (3, Err(RowFault::TooLong)),
                (4, Err(RowFault::NotText)),
                (5, Ok(Some(43))),
            ]
        );
    }
}
