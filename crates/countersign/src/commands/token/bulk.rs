//! `token create --from`: many tokens, one after the other. The whole list is checked first; what fails later ends it.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use countersign_api::MintedToken;
use countersign_pki::terminal_safe;

use super::handout::{HEADING, Handout};
use super::list::{self, BadRow, Row};
use super::mint::hand_out;
use crate::cli::{CreateArgs, TokenFormat};
use crate::client::Client;
use crate::data_folder::create_folder;
use crate::output;
use crate::progress::Progress;

pub(super) async fn run(args: &CreateArgs, from: &Path, handout: &Handout) -> Result<()> {
    let shown = match from == Path::new("-") {
        true => "standard input".to_owned(),
        false => from.display().to_string(),
    };
    let text = list::read(from)?;
    let checked = list::rows(&text, &args.terms);
    let checked = checked.and_then(|rows| without_files(rows, handout, args.resume));
    let Checked { rows, skipped } = match checked {
        Ok(checked) => checked,
        Err(bad) => {
            for row in &bad {
                output::complain(&terminal_safe(&row.to_string()));
            }
            let count = bad.len();
            bail!("{count} rows of {shown} cannot be minted; nothing was minted");
        }
    };
    if let Some(folder) = &handout.folder {
        let unusable = || format!("cannot create {}", folder.display());
        create_folder(folder).with_context(unusable)?;
    }
    let mut client = args.reach.client()?;
    mint_all(&mut client, &rows, handout).await?;
    let skipped = match skipped {
        0 => String::new(),
        skipped => format!(", {skipped} skipped because their files are there"),
    };
    output::complain(&format!("{} tokens minted{skipped}", rows.len()));
    Ok(())
}

async fn mint_all(client: &mut Client, rows: &[Row], handout: &Handout) -> Result<()> {
    let progress = Progress::of(rows.len(), "Minting");
    if handout.format == TokenFormat::Csv && !rows.is_empty() {
        output::line(HEADING)?;
    }
    for (done, Row { line, order }) in rows.iter().enumerate() {
        let give = |minted: &MintedToken| progress.aside(|| handout.give(order, minted));
        let minted = hand_out(client, order, give).await;
        if let Err(error) = minted {
            drop(progress);
            let what = format!("line {line}, {}", order.name);
            return Err(error.context(what).context(so_far(rows, done, handout)));
        }
        progress.step();
    }
    Ok(())
}

/// What there is when something has failed, and how to go on.
fn so_far(rows: &[Row], done: usize, handout: &Handout) -> String {
    let minted = rows.get(..done).unwrap_or_default();
    let (Some(first), Some(last)) = (minted.first(), minted.last()) else {
        return "nothing was minted".to_owned();
    };
    let go_on = match handout.folder {
        Some(_) => "run the command again with --resume",
        None => "remove their lines and run the command again",
    };
    format!(
        "{done} of {} tokens were minted and stay good, line {} ({}) to line {} ({}); for the rest {go_on}",
        rows.len(),
        first.line,
        first.order.name,
        last.line,
        last.order.name
    )
}

struct Checked {
    rows: Vec<Row>,
    skipped: usize,
}

/// The rows whose file is not there yet. One that is there is a fault, unless an earlier run is taken up.
fn without_files(rows: Vec<Row>, handout: &Handout, resume: bool) -> Result<Checked, Vec<BadRow>> {
    let (mut left, mut bad, mut skipped) = (Vec::new(), Vec::new(), 0_usize);
    let mut files = HashSet::new();
    for row in rows {
        let wrong = |what| BadRow {
            line: row.line,
            what,
        };
        match handout.file(&row.order) {
            Some(_) if row.order.is_glob() => {
                let what = "a pattern has no host that its file could be for: mint it by itself, without --output-dir";
                bad.push(wrong(what.to_owned()));
            }
            Some(file) if !files.insert(file.clone()) => {
                let what = "one file cannot hold two tokens: keep one row for each name";
                bad.push(wrong(what.to_owned()));
            }
            Some(file) if file.symlink_metadata().is_ok() => match resume {
                true => skipped += 1,
                false => bad.push(wrong(format!(
                    "{} exists already: remove it, or skip such rows with --resume",
                    file.display()
                ))),
            },
            Some(_) | None => left.push(row),
        }
    }
    match bad.is_empty() {
        true => Ok(Checked {
            rows: left,
            skipped,
        }),
        false => Err(bad),
    }
}
