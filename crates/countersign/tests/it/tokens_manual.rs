//! docs/tokens.md does what it says: its walk from an empty folder to hosts enrolled by token, its tables and its links.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use countersign_pki::UnixTime;
use countersign_testkit::chain::Ca;
use countersign_testkit::keys;

use crate::installation::run;
use crate::policy_manual::{Block, Reader, blocks};

/// The text between a heading and the next one of the same rank.
fn section<'a>(manual: &'a str, heading: &str) -> &'a str {
    let rank = heading.split(' ').next().unwrap();
    let (_, rest) = manual.split_once(&format!("\n{heading}\n")).unwrap();
    rest.split(&format!("\n{rank} ")).next().unwrap()
}

#[test]
fn a_newcomer_enrols_hosts_by_token_as_the_manual_says() {
    let mut reader = Reader::new();
    let mut commands = 0;
    for heading in [
        "## A first host",
        "## Many hosts",
        "## Patterns",
        "## Bootstrap tokens",
    ] {
        for block in blocks(section(MANUAL, heading)) {
            commands += usize::from(matches!(block, Block::Commands(_)));
            reader.follow(&block);
        }
    }
    assert!(commands > 10, "{commands}");
}

/// The first column of a table, where each cell is a word or several.
fn words(table: &str) -> BTreeSet<&str> {
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split_once(" |"));
    let quoted = cells.flat_map(|(cell, _)| cell.split(['`', ',', ' ']));
    let is_reason = |word: &&str| word.contains('_') && !word.contains('.');
    quoted.filter(is_reason).collect()
}

/// Whoever is turned away finds the reason here, and what to do.
#[test]
fn every_reason_has_a_remedy() {
    let mut reasons = words(section(POLICIES, "### Tokens"));
    reasons.insert("window_needs_token");
    let remedies = words(section(MANUAL, "## When it does not work"));
    assert!(reasons.len() > 14, "{reasons:?}");
    assert_eq!(remedies, reasons);
}

#[test]
fn the_policy_of_the_manual_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::root("cmdb", keys::p256_c(), UnixTime(1_760_000_000));
    fs::write(folder.path().join("ca.pem"), ca.certificate.to_pem()).unwrap();
    let text = section(MANUAL, "## Together with other rules");
    let (_, text) = text.split_once("```yaml\n").unwrap();
    let (text, _) = text.split_once("```").unwrap();
    let bundle = folder.path().join("ca.pem");
    let text = text.replace("/etc/countersign/cmdb-ca.pem", bundle.to_str().unwrap());
    let file = folder.path().join("agents.yaml");
    fs::write(&file, text).unwrap();
    let checked = run(&["policy", "check", file.to_str().unwrap()]);
    assert!(checked.success(), "{checked}");
    assert!(checked.stdout.contains("agents  0      3"), "{checked}");
}

#[test]
fn links_of_the_manual_and_of_the_examples_lead_somewhere() {
    for (folder, text) in [("docs", MANUAL), ("examples/provisioning", EXAMPLES)] {
        links_lead_somewhere(folder, text);
    }
}

/// Checks the links of a text that lies in a folder of the project.
pub(crate) fn links_lead_somewhere(folder: &str, text: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut links = 0;
    for link in text.split("](").skip(1) {
        let (link, _) = link.split_once(')').unwrap();
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let path = root.join(folder).join(file);
        links += 1;
        if path.is_dir() && !file.is_empty() {
            continue;
        }
        let there = match file {
            "" => text.to_owned(),
            _ => fs::read_to_string(&path).unwrap_or_else(|error| panic!("{link}: {error}")),
        };
        let mut headings = there.lines().filter(|line| line.starts_with('#'));
        let is_there = anchor.is_empty() || headings.any(|line| anchor_of(line) == anchor);
        assert!(is_there, "{link}");
    }
    assert!(links > 5, "{folder}");
}

/// A heading as links name it.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

const MANUAL: &str = include_str!("../../../../docs/tokens.md");
const POLICIES: &str = include_str!("../../../../docs/policies.md");
const EXAMPLES: &str = include_str!("../../../../examples/provisioning/README.md");
