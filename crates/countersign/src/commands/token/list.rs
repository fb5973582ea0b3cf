//! Lists of tokens to be minted: a name on each line, or CSV under a heading.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use countersign_authority::{looks_like_a_token, masked_tokens};
use countersign_pki::UnixTime;

use super::order::{Order, secret_instead_of};
use crate::cli::TermArgs;
use crate::config::nearest;

/// One token to be minted, and the line on which it stands.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) line: u64,
    pub(super) order: Order,
}

/// What is wrong with a line.
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

/// A whole file, or standard input.
pub(super) fn read(path: &Path) -> Result<String> {
    let (source, shown): (Box<dyn Read>, _) = match path == Path::new("-") {
        true => (Box::new(std::io::stdin()), "standard input".to_owned()),
        false => {
            let shown = path.display().to_string();
            let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
            (Box::new(file), shown)
        }
    };
    let mut text = String::new();
    let limit = MAX_INPUT.saturating_add(1);
    source
        .take(limit)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {shown}"))?;
    ensure!(
        text.len() as u64 <= MAX_INPUT,
        "{shown} has more than {} MiB: mint in several parts",
        MAX_INPUT >> 20
    );
    Ok(text)
}

/// Every row, or everything that is wrong. `common` holds where a row says nothing else.
pub(super) fn rows(text: &str, common: &TermArgs) -> Result<Vec<Row>, Vec<BadRow>> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let lines = text.lines().map(str::trim);
    let first = lines.clone().find(|line| !is_passed_over(line));
    let is_table = first.is_some_and(|line| line.contains(',') || line == Column::Certname.word());
    let found = match is_table {
        true => table(text, common),
        false => names(lines, common),
    };
    let mut lines_of_names: HashMap<String, u64> = HashMap::new();
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for row in found {
        match row {
            Ok(row) => {
                let before = lines_of_names.insert(row.order.name.clone(), row.line);
                match before.filter(|_| !row.order.keeps_existing()) {
                    Some(before) => bad.push(BadRow {
                        line: row.line,
                        what: format!(
                            "{} stands on line {before} already: of two tokens for one name only the second would be good",
                            row.order.name
                        ),
                    }),
                    None => good.push(row),
                }
            }
            Err(row) => bad.push(row),
        }
    }
    match bad.is_empty() {
        true => Ok(good),
        false => Err(bad),
    }
}

fn names<'a>(lines: impl Iterator<Item = &'a str>, common: &TermArgs) -> Vec<Result<Row, BadRow>> {
    let numbered = (1_u64..).zip(lines);
    let said = numbered.filter(|(_, line)| !is_passed_over(line));
    said.map(|(line, name)| {
        let order = Order::new(name, common.clone());
        let order = order.map_err(|what| BadRow { line, what })?;
        Ok(Row { line, order })
    })
    .collect()
}

fn table(text: &str, common: &TermArgs) -> Vec<Result<Row, BadRow>> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .flexible(true)
        .from_reader(text.as_bytes());
    let at = |line, what: String| BadRow { line, what };
    let heading = match reader.headers() {
        Ok(heading) => heading.clone(),
        Err(error) => return vec![Err(at(1, format!("the heading cannot be read: {error}")))],
    };
    let line = heading.position().map_or(1, |place| line_of(text, place));
    let columns = match columns(&heading) {
        Ok(columns) => columns,
        Err(what) => return vec![Err(at(line, what))],
    };
    let mut rows = Vec::new();
    for cells in reader.records() {
        let cells = match cells {
            Ok(cells) => cells,
            Err(error) => {
                let line = error.position().map_or(0, |place| line_of(text, place));
                rows.push(Err(at(line, "cannot be read".to_owned())));
                break;
            }
        };
        if cells.len() == 1 && cells.iter().all(str::is_empty) {
            continue;
        }
        let line = cells.position().map_or(0, |place| line_of(text, place));
        let order = order_of(&columns, &cells, common);
        let row = order.map(|order| Row { line, order });
        rows.push(row.map_err(|what| at(line, what)));
    }
    rows
}

/// The line of a record. The reader counts what it passes over in front of one to it.
fn line_of(text: &str, place: &csv::Position) -> u64 {
    let begins = usize::try_from(place.byte()).unwrap_or(usize::MAX);
    let rest = text.get(begins..).unwrap_or_default().lines();
    let passed_over = rest.take_while(|line| is_passed_over(line)).count();
    let passed_over = u64::try_from(passed_over).unwrap_or(u64::MAX);
    place.line().saturating_add(passed_over)
}

fn columns(heading: &csv::StringRecord) -> Result<Vec<Column>, String> {
    let mut columns = Vec::new();
    for word in heading {
        let column = Column::named(word)?;
        if columns.contains(&column) {
            return Err(format!("the heading has {} twice", column.word()));
        }
        columns.push(column);
    }
    match columns.contains(&Column::Certname) {
        true => Ok(columns),
        false => Err(
            "the heading has no column certname: write a first line that names the columns"
                .to_owned(),
        ),
    }
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Certname,
    Glob,
    Ttl,
    MaxUses,
    NotBefore,
    Sans,
    Extensions,
    SpkiSha256,
    SourceCidrs,
    AllowReplace,
    KeepExisting,
    Profile,
    ExternalRef,
    Note,
}

impl Column {
    const ALL: [Self; 14] = [
        Self::Certname,
        Self::Glob,
        Self::Ttl,
        Self::MaxUses,
        Self::NotBefore,
        Self::Sans,
        Self::Extensions,
        Self::SpkiSha256,
        Self::SourceCidrs,
        Self::AllowReplace,
        Self::KeepExisting,
        Self::Profile,
        Self::ExternalRef,
        Self::Note,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Certname => "certname",
            Self::Glob => "glob",
            Self::Ttl => "ttl",
            Self::MaxUses => "max_uses",
            Self::NotBefore => "not_before",
            Self::Sans => "sans",
            Self::Extensions => "extensions",
            Self::SpkiSha256 => "spki_sha256",
            Self::SourceCidrs => "source_cidrs",
            Self::AllowReplace => "allow_replace",
            Self::KeepExisting => "keep_existing",
            Self::Profile => "profile",
            Self::ExternalRef => "external_ref",
            Self::Note => "note",
        }
    }

    fn named(word: &str) -> Result<Self, String> {
        let mut known = Self::ALL.into_iter();
        if let Some(column) = known.find(|column| column.word().eq_ignore_ascii_case(word)) {
            return Ok(column);
        }
        let words = || Self::ALL.map(Self::word);
        let word = masked_tokens(word);
        Err(match nearest(&word, words()) {
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

fn order_of(
    columns: &[Column],
    cells: &csv::StringRecord,
    common: &TermArgs,
) -> Result<Order, String> {
    if cells.len() != columns.len() {
        let (have, want) = (cells.len(), columns.len());
        return Err(format!("has {have} cells, and the heading has {want}"));
    }
    if cells.iter().any(looks_like_a_token) {
        return Err(secret_instead_of("a cell"));
    }
    let (mut name, mut terms) = ("", common.clone());
    let said = columns
        .iter()
        .zip(cells)
        .filter(|(_, cell)| !cell.is_empty());
    for (column, cell) in said {
        let several = || cell.split(';').map(str::trim).filter(|one| !one.is_empty());
        let wrong = |why: &dyn fmt::Display| format!("{} {cell:?}: {why}", column.word());
        match column {
            Column::Certname => name = cell,
            Column::Glob => terms.glob = switch(cell).map_err(|why| wrong(&why))?,
            Column::Ttl => terms.ttl = Some(cell.parse().map_err(|why| wrong(&why))?),
            Column::MaxUses => {
                let uses = cell.parse().ok().filter(|uses| (1..=1000).contains(uses));
                terms.max_uses = Some(uses.ok_or_else(|| wrong(&"write a number from 1 to 1000"))?);
            }
            Column::NotBefore => {
                let time = UnixTime::parse_rfc3339(cell);
                terms.not_before = Some(time.map_err(|why| wrong(&why))?);
            }
            Column::Sans => terms.san = several().map(str::to_owned).collect(),
            Column::Extensions => {
                let parsed = several().map(str::parse).collect::<Result<_, _>>();
                terms.extension = parsed.map_err(|why| wrong(&why))?;
            }
            Column::SpkiSha256 => terms.spki = Some(cell.to_owned()),
            Column::SourceCidrs => terms.source = several().map(str::to_owned).collect(),
            Column::AllowReplace => {
                terms.allow_replace = switch(cell).map_err(|why| wrong(&why))?;
            }
            Column::KeepExisting => {
                terms.keep_existing = switch(cell).map_err(|why| wrong(&why))?;
            }
            Column::Profile => terms.profile = Some(cell.to_owned()),
            Column::ExternalRef => terms.external_ref = Some(cell.to_owned()),
            Column::Note => terms.note = Some(cell.to_owned()),
        }
    }
    Order::new(name, terms)
}

fn switch(text: &str) -> Result<bool, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => Err("write true or false"),
    }
}

fn is_passed_over(line: &str) -> bool {
    line.is_empty() || line.starts_with('#')
}

/// Some hundred thousand rows, more than tokens may be good at a time.
const MAX_INPUT: u64 = 64 << 20;
const BYTE_ORDER_MARK: char = '\u{feff}';

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches as _};
    use serde_json::{Value, json};

    fn common(arguments: &[&str]) -> TermArgs {
        let command = TermArgs::augment_args(clap::Command::new("x").no_binary_name(true));
        TermArgs::from_arg_matches(&command.get_matches_from(arguments)).unwrap()
    }

    fn bodies(text: &str, flags: &[&str]) -> Vec<(u64, Value)> {
        let rows = rows(text, &common(flags)).unwrap();
        rows.iter()
            .map(|row| (row.line, json!(row.order.body())))
            .collect()
    }

    fn faults(text: &str) -> Vec<String> {
        let bad = rows(text, &common(&[])).unwrap_err();
        bad.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_list_has_a_name_on_each_line() {
        let text = "\u{feff}# rack 7\n\n  Web01.example.com \r\nweb02.example.com\n";
        assert_eq!(
            bodies(text, &["--ttl", "2h"]),
            [
                (
                    3,
                    json!({"certname": "web01.example.com", "ttl_seconds": 7200})
                ),
                (
                    4,
                    json!({"certname": "web02.example.com", "ttl_seconds": 7200})
                ),
            ]
        );
        assert_eq!(bodies("# nothing\n", &[]), []);
    }

    #[test]
    fn a_table_says_what_it_says_and_flags_the_rest() {
        let text = "# exported\ncertname,glob,ttl,max_uses,sans,extensions,note,allow_replace\n\
                    web01.example.com,,1h,,DNS:a.example; IP:192.0.2.7,pp_role=web,\"rack 7, top\",yes\n\
                    # and\n\
                    *.dmz.example.com,true,,5,,,,\n";
        assert_eq!(
            bodies(text, &["--ttl=2h", "--note=x"]),
            [
                (
                    3,
                    json!({
                        "certname": "web01.example.com", "ttl_seconds": 3600, "allowed_sans": ["DNS:a.example", "IP:192.0.2.7"],
                        "allowed_extensions": {"pp_role": ["web"]}, "note": "rack 7, top", "allow_replace": true,
                    })
                ),
                (
                    5,
                    json!({"glob": "*.dmz.example.com", "ttl_seconds": 7200, "max_uses": 5, "note": "x"})
                ),
            ]
        );
        assert_eq!(
            bodies("certname\nweb01.example.com\n", &[]),
            [(2, json!({"certname": "web01.example.com"}))]
        );
    }

    #[test]
    fn everything_that_is_wrong_is_told_with_its_line() {
        assert_eq!(
            faults("a b\nok\n*.example.com\nOK\n"),
            [
                "line 1: \"a b\" cannot be a name: Subject hostname format is invalid",
                "line 3: \"*.example.com\" is a pattern: say so with --glob (in a file: the column glob), or write one name",
                "line 4: ok stands on line 2 already: of two tokens for one name only the second would be good",
            ]
        );
        for (text, fault) in [
            (
                "certname,tll\n",
                "line 1: the heading has an unknown column \"tll\"; did you mean ttl?",
            ),
            (
                "name,ttl\n",
                "line 1: the heading has an unknown column \"name\"; did you mean note?",
            ),
            (
                "ttl,note\na,b\n",
                "line 1: the heading has no column certname: write a first line that names the columns",
            ),
            ("certname,ttl,ttl\n", "line 1: the heading has ttl twice"),
            (
                "certname,ttl\na\n",
                "line 2: has 1 cells, and the heading has 2",
            ),
            (
                "certname,max_uses\na,0\n",
                "line 2: max_uses \"0\": write a number from 1 to 1000",
            ),
            (
                "certname,glob\na,maybe\n",
                "line 2: glob \"maybe\": write true or false",
            ),
            (
                "certname,ttl\na,soon\n",
                "line 2: ttl \"soon\": \"soon\" is not a duration: write a number and a unit, for example 5y, 90d, 12h, 30m or 45s",
            ),
            (
                "certname,note\n,x\n",
                "line 2: \"\" cannot be a name: Subject hostname format is invalid",
            ),
        ] {
            assert_eq!(faults(text), [fault], "{text}");
        }
        let repeated = "certname,keep_existing\na,\na,true\n";
        assert_eq!(bodies(repeated, &[]).len(), 2);
    }

    #[test]
    fn tokens_in_lists_are_not_repeated() {
        let token =
            "ott1.aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q.zqthxay";
        for text in [
            format!("{token}\n"),
            format!("certname,note\na,{token}\n"),
            format!("certname,ttl\na,{token}\n"),
            format!("certname,{token}\n"),
        ] {
            let fault = faults(&text).concat();
            assert!(!fault.contains("eaqseize"), "{fault}");
        }
    }
}
