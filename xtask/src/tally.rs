//! Counts what test binaries report, and notices those that died without a report.

use std::fmt;
use std::process::ExitCode;

/// The sum over all test binaries; its `Display` is the last line of `cargo xtask test`.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// Reads the output of one `cargo test` line by line.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    sum: Tally,
    reports: u64,
    running: bool,
}

impl Tally {
    pub(crate) fn pass(&mut self) {
        self.passed += 1;
    }

    pub(crate) fn fail(&mut self) {
        self.failed += 1;
    }

    pub(crate) fn skip(&mut self) {
        self.skipped += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

impl Reading {
    pub(crate) fn line(&mut self, line: &str) {
        if is_start(line) {
            self.close();
            self.running = true;
        } else if let Some(report) = parse_report(line) {
            self.sum.add(&report);
            self.reports += 1;
            self.running = false;
        }
    }

    /// `success` is cargo's exit status: it may know of a failure that no binary reported.
    pub(crate) fn finish(mut self, success: bool) -> Tally {
        self.close();
        if self.sum.failed == 0 && (!success || self.reports == 0) {
            self.sum.failed = 1;
        }
        self.sum
    }

    /// A binary that began and never reported has crashed: one more failure.
    fn close(&mut self) {
        if self.running {
            self.sum.failed += 1;
            self.running = false;
        }
    }
}

/// `running 12 tests`, `running 1 test`
fn is_start(line: &str) -> bool {
    line.strip_prefix("running ")
        .and_then(|rest| {
            rest.strip_suffix(" tests")
                .or_else(|| rest.strip_suffix(" test"))
        })
        .is_some_and(|number| number.parse::<u64>().is_ok())
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`
fn parse_report(line: &str) -> Option<Tally> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |word: &str| {
        counts.split("; ").find_map(|part| {
            let (number, rest) = part.split_once(' ')?;
            (rest == word).then(|| number.parse().ok())?
        })
    };
    Some(Tally {
        passed: count("passed")?,
        failed: count("failed")?,
        skipped: count("ignored")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str, success: bool) -> String {
        let mut reading = Reading::default();
        output.lines().for_each(|line| reading.line(line));
        reading.finish(success).to_string()
    }

    const GREEN: &str = "running 4 tests\ntest a ... ok\n\n\
        test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s";
    const RED: &str = "running 2 tests\n\
        test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s";

    #[test]
    fn sums_over_binaries() {
        assert_eq!(read(GREEN, true), "3 passed, 0 failed, 1 skipped");
        assert_eq!(
            read(&format!("{GREEN}\n{RED}\n{GREEN}"), false),
            "7 passed, 1 failed, 2 skipped"
        );
    }

    #[test]
    fn a_binary_that_died_counts_as_failed() {
        let died = "running 9 tests\ntest a ... ok";
        assert_eq!(
            read(&format!("{died}\n{GREEN}"), false),
            "3 passed, 1 failed, 1 skipped"
        );
        assert_eq!(
            read(&format!("{RED}\n{died}"), false),
            "1 passed, 2 failed, 0 skipped"
        );
    }

    #[test]
    fn no_report_at_all_is_a_failure() {
        assert_eq!(read("", true), "0 passed, 1 failed, 0 skipped");
        assert_eq!(
            read("error: could not compile", false),
            "0 passed, 1 failed, 0 skipped"
        );
    }

    #[test]
    fn a_failure_only_cargo_knows_is_counted() {
        assert_eq!(read(GREEN, false), "3 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn ordinary_lines_are_not_reports() {
        for line in [
            "running late",
            "running x tests",
            "test result: unknown",
            " running 1 test",
        ] {
            assert!(!is_start(line) && parse_report(line).is_none(), "{line}");
        }
    }
}
