//! `machine import`: a file is read twice. The first time every row is checked, here and against the inventory; only if
//! all are good, the second time imports them. Neither time holds more than a batch of records.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use countersign_api::{
    MAX_MACHINES, MAX_MACHINES_BODY, MachineImport, MachineImportResult, MachineRecord,
};
use countersign_authority::checked_machine;
use countersign_pki::terminal_safe;
use countersign_policy::Machine;
use http::Method;
use serde_json::json;
use tokio::sync::mpsc;

use super::super::csr::{accepted, said};
use super::records::{self, BadRow, Row};
use crate::cli::{MachineImportArgs, RecordFormat};
use crate::client::Client;
use crate::output;
use crate::progress::Progress;

pub(super) async fn run(args: MachineImportArgs) -> Result<()> {
    let source = Source::open(&args.file)?;
    let mut client = args.reach.client()?;
    let checked = check(&mut client, &source, &args).await?;
    if checked.bad > 0 {
        bail!(
            "{} of {} rows of {} cannot be imported; nothing was changed",
            checked.bad,
            checked.rows,
            source.shown()
        );
    }
    if checked.rows == 0 {
        return said("No machines: the file has no rows.");
    }
    let Counts { added, replaced } = checked.counts;
    if args.dry_run {
        return said(&format!(
            "{added} would be added, {replaced} replaced; nothing was changed"
        ));
    }
    let Counts { added, replaced } = import(&mut client, &source, &args, checked.rows).await?;
    said(&format!("{added} added, {replaced} replaced"))
}

/// Something that can be read twice.
enum Source {
    File(PathBuf),
    /// Standard input, which passes by only once.
    Kept(Arc<[u8]>),
}

impl Source {
    fn open(path: &Path) -> Result<Self> {
        if path != Path::new("-") {
            return Ok(Self::File(path.to_owned()));
        }
        let mut kept = Vec::new();
        let limit = MAX_INPUT.saturating_add(1);
        let read = std::io::stdin().lock().take(limit).read_to_end(&mut kept);
        read.context("standard input cannot be read")?;
        ensure!(
            kept.len() as u64 <= MAX_INPUT,
            "standard input has more than {} MiB: write it to a file and import that",
            MAX_INPUT >> 20
        );
        Ok(Self::Kept(kept.into()))
    }

    fn reader(&self) -> Result<Box<dyn Read + Send>> {
        match self {
            Self::File(path) => {
                let file = File::open(path);
                let file = file.with_context(|| format!("cannot read {}", path.display()))?;
                Ok(Box::new(file))
            }
            Self::Kept(bytes) => Ok(Box::new(Cursor::new(Arc::clone(bytes)))),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Kept(_) => "standard input".to_owned(),
        }
    }

    /// Reads rows on a thread of its own, a few ahead of whoever takes them.
    fn rows(&self, format: Option<RecordFormat>) -> Result<Rows> {
        let reader = self.reader()?;
        let (sender, receiver) = mpsc::channel(MAX_MACHINES);
        tokio::task::spawn_blocking(move || {
            let mut take = |row| sender.blocking_send(Taken::Row(row)).is_ok();
            if let Err(fatal) = records::read(reader, format, &mut take) {
                let _nobody_waits = sender.blocking_send(Taken::End(fatal));
            }
        });
        Ok(Rows { receiver })
    }
}

enum Taken {
    Row(Result<Row, BadRow>),
    /// The file cannot be read any further.
    End(BadRow),
}

struct Rows {
    receiver: mpsc::Receiver<Taken>,
}

impl Rows {
    async fn next(&mut self) -> Result<Option<Result<Row, BadRow>>, BadRow> {
        match self.receiver.recv().await {
            None => Ok(None),
            Some(Taken::Row(row)) => Ok(Some(row)),
            Some(Taken::End(fatal)) => Err(fatal),
        }
    }
}

/// What the first reading found.
#[derive(Default)]
struct Checked {
    rows: usize,
    bad: usize,
    counts: Counts,
}

impl Checked {
    fn complain(&mut self, waiting: &Progress, bad: &BadRow) {
        self.bad += 1;
        waiting.aside(|| output::complain(&terminal_safe(&bad.to_string())));
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    added: usize,
    replaced: usize,
}

async fn check(client: &mut Client, source: &Source, args: &MachineImportArgs) -> Result<Checked> {
    let waiting = Progress::waiting("checking");
    let (mut checked, mut seen) = (Checked::default(), HashMap::new());
    let mut batch = Batch::default();
    let mut rows = source.rows(args.format)?;
    loop {
        let next = rows.next().await;
        let next = next.map_err(|fatal| anyhow::anyhow!("{}: {fatal}", source.shown()))?;
        let Some(row) = next else { break };
        checked.rows += 1;
        match row.and_then(|row| good(row, &mut seen)) {
            Ok(row) => {
                if !batch.has_room(&row) {
                    let full = std::mem::take(&mut batch);
                    full.look_up(client, args, &seen, &waiting, &mut checked)
                        .await?;
                }
                batch.add(row);
            }
            Err(bad) => checked.complain(&waiting, &bad),
        }
    }
    batch
        .look_up(client, args, &seen, &waiting, &mut checked)
        .await?;
    Ok(checked)
}

async fn import(
    client: &mut Client,
    source: &Source,
    args: &MachineImportArgs,
    total: usize,
) -> Result<Counts> {
    let bar = Progress::of(total, "importing machines");
    let mut counts = Counts::default();
    let mut batch = Batch::default();
    let mut rows = source.rows(args.format)?;
    let mut seen = HashMap::new();
    let stopped = |counts: Counts| {
        let done = counts.added + counts.replaced;
        format!("{done} of {total} machines were imported before this; import again with --replace")
    };
    loop {
        let next = rows.next().await.and_then(Option::transpose);
        let next = next.and_then(|row| row.map(|row| good(row, &mut seen)).transpose());
        let next =
            next.map_err(|bad| anyhow::anyhow!("{} was changed meanwhile: {bad}", source.shown()));
        let next = next.with_context(|| stopped(counts))?;
        let is_last = next.is_none();
        if let Some(row) = next {
            if batch.has_room(&row) {
                batch.add(row);
                continue;
            }
            let full = std::mem::take(&mut batch);
            full.send(client, args, &bar, &mut counts)
                .await
                .with_context(|| stopped(counts))?;
            batch.add(row);
        }
        if is_last {
            batch
                .send(client, args, &bar, &mut counts)
                .await
                .with_context(|| stopped(counts))?;
            return Ok(counts);
        }
    }
}

/// The row, if it can be imported as far as can be told here, and was not there before.
fn good(row: Row, seen: &mut HashMap<String, u64>) -> Result<Row, BadRow> {
    let line = row.line;
    let bad = |what: String| BadRow { line, what };
    let machine = checked_machine(Machine::from(row.record.clone()));
    let machine = machine.map_err(|fault| match row.record.name.as_str() {
        "" => bad("has no name".to_owned()),
        name => bad(format!("{name}: {fault}")),
    })?;
    match seen.entry(machine.name) {
        Entry::Vacant(place) => {
            place.insert(line);
            Ok(row)
        }
        Entry::Occupied(place) => {
            let (name, first) = (place.key(), place.get());
            Err(bad(format!("{name} stands in line {first} already")))
        }
    }
}

/// Rows that are sent together.
#[derive(Default)]
struct Batch {
    records: Vec<MachineRecord>,
    bytes: usize,
}

impl Batch {
    fn has_room(&self, row: &Row) -> bool {
        let bytes = self.bytes.saturating_add(length(&row.record));
        self.records.is_empty() || (self.records.len() < MAX_MACHINES && bytes <= MAX_RECORDS)
    }

    fn add(&mut self, row: Row) {
        self.bytes = self.bytes.saturating_add(length(&row.record));
        self.records.push(row.record);
    }

    /// Asks what is there already.
    async fn look_up(
        self,
        client: &mut Client,
        args: &MachineImportArgs,
        seen: &HashMap<String, u64>,
        waiting: &Progress,
        checked: &mut Checked,
    ) -> Result<()> {
        // Whoever replaces may replace; how many it will be is told in the end.
        if self.records.is_empty() || (args.replace && !args.dry_run) {
            return Ok(());
        }
        let answer = self.post(client, args.replace, true).await?;
        checked.counts.added += answer.added;
        checked.counts.replaced += answer.replaced;
        if args.replace {
            return Ok(());
        }
        for name in answer.existing {
            let line = seen.get(&name).copied().unwrap_or_default();
            let what = format!("{name} is in the inventory already; --replace replaces it");
            checked.complain(waiting, &BadRow { line, what });
        }
        Ok(())
    }

    async fn send(
        self,
        client: &mut Client,
        args: &MachineImportArgs,
        bar: &Progress,
        counts: &mut Counts,
    ) -> Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        let count = self.records.len();
        let answer = self.post(client, args.replace, false).await?;
        counts.added += answer.added;
        counts.replaced += answer.replaced;
        bar.steps(count);
        Ok(())
    }

    async fn post(
        self,
        client: &mut Client,
        replace: bool,
        dry_run: bool,
    ) -> Result<MachineImportResult> {
        let body = json!(MachineImport {
            machines: self.records,
            replace,
            dry_run,
        });
        let reply = client.call(Method::POST, "/enrol/v1/machine-imports", Some(&body));
        Ok(accepted(reply.await?)?.json()?)
    }
}

fn length(record: &MachineRecord) -> usize {
    serde_json::to_vec(record).map_or(0, |text| text.len().saturating_add(1))
}

/// What the records of a batch may measure; the rest of the body needs a few bytes.
const MAX_RECORDS: usize = MAX_MACHINES_BODY - 1024;
/// More than half a million rows.
const MAX_INPUT: u64 = 128 << 20;
