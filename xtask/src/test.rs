//! `cargo xtask test`: everything, from an empty machine to the last line with the counts.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use crate::cache::Cache;
use crate::deny;
use crate::invocation::cargo;
use crate::setup::Counterparts;
use crate::tally::{Reading, Tally};

#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    /// How many processes the crash tests kill.
    kills: u32,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            kills: DEFAULT_KILLS,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--kills" => {
                    let number = arguments.next().context("--kills needs a number")?;
                    options.kills = number
                        .parse()
                        .with_context(|| format!("--kills: '{number}' is not a number"))?;
                }
                unknown => bail!("unexpected argument '{unknown}'"),
            }
        }
        Ok(options)
    }
}

/// A part that cannot be had is a failure of its own; the tests that need it fail too, and say so.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let cache = Cache::of_the_user()?;
    let (counterparts, compiled) = Counterparts::gather(&cache.builder()?, compile);
    let mut tally = Tally::default();
    for fault in counterparts.faults() {
        tally.fail();
        eprintln!("error: {fault:#}");
    }
    if compiled?.success() {
        tally.add(&run_tests(options, &counterparts)?);
    } else {
        tally.fail();
    }
    if let Ok(program) = &counterparts.deny {
        deny::check(program, &mut tally)?;
    }
    println!("{tally}");
    Ok(tally.exit_code())
}

fn compile() -> Result<ExitStatus> {
    cargo()
        .args(["test", "--workspace", "--no-run"])
        .status()
        .context("cannot start cargo")
}

/// Test binaries and doc tests; the output passes through as it comes.
fn run_tests(options: &Options, counterparts: &Counterparts) -> Result<Tally> {
    let mut command = cargo();
    command
        .args(["test", "--workspace", "--no-fail-fast"])
        .env("COUNTERSIGN_TEST_KILLS", options.kills.to_string())
        .stdout(Stdio::piped());
    let programs = [
        ("COUNTERSIGN_TEST_PUPPET", counterparts.puppet()),
        (
            "COUNTERSIGN_TEST_PUPPETSERVER_CA",
            counterparts.puppetserver_ca(),
        ),
        ("COUNTERSIGN_TEST_PUPPET_8", counterparts.newer("puppet")),
        (
            "COUNTERSIGN_TEST_PUPPETSERVER_CA_2_7",
            counterparts.newer("puppetserver-ca"),
        ),
        (
            "COUNTERSIGN_TEST_PUPPETSERVER",
            counterparts.newer("puppetserver"),
        ),
        ("COUNTERSIGN_TEST_OPENSSL", counterparts.openssl()),
        (
            "COUNTERSIGN_TEST_SYSTEMD_ANALYZE",
            counterparts.systemd_analyze(),
        ),
        ("COUNTERSIGN_TEST_PKILINT", counterparts.pkilint()),
        ("COUNTERSIGN_TEST_SCHEMATHESIS", counterparts.schemathesis()),
    ];
    for (name, program) in programs {
        if let Some(program) = program {
            command.env(name, program);
        }
    }
    let mut tests = command.spawn().context("cannot start cargo")?;
    let mut reading = Reading::default();
    let output = tests
        .stdout
        .take()
        .context("cargo has no standard output")?;
    let mut out = io::stdout().lock();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("cannot read the tests' output")?;
        out.write_all(&line)?;
        out.write_all(b"\n")?;
        reading.line(&String::from_utf8_lossy(&line));
    }
    let status = tests.wait().context("cannot wait for cargo")?;
    Ok(reading.finish(status.success()))
}

const DEFAULT_KILLS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options> {
        Options::parse(
            &words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn the_number_of_kills_can_be_chosen() {
        assert_eq!(parse(&[]).unwrap().kills, 100);
        assert_eq!(parse(&["--kills", "5"]).unwrap().kills, 5);
    }

    #[test]
    fn refuses_what_it_does_not_understand() {
        for words in [&["--kills"][..], &["--kills", "many"], &["--kils", "5"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
