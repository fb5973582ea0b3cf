//! cargo-deny: licences, bans, sources and advisories of the dependencies (`deny.toml`).
//!
//! The advisory database comes from a Git host. Where that cannot be reached the check is skipped,
//! loudly and counted; the other three need nothing but the lock file and the registry.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cache::{Builder, Cache};
use crate::invocation::{cargo, low_priority, on_path, quietly, workspace};
use crate::tally::Tally;

/// `cargo xtask deny`: installs the tool if need be, runs the checks.
pub(crate) fn run() -> Result<ExitCode> {
    let cache = Cache::of_the_user()?;
    let program = ensure(&cache.builder()?)?;
    let mut tally = Tally::default();
    check(&program, &mut tally)?;
    println!("{tally}");
    Ok(tally.exit_code())
}

/// The pinned cargo-deny: the user's own if it is that release, else one built into the cache folder.
pub(crate) fn ensure(builder: &Builder<'_>) -> Result<PathBuf> {
    if let Some(program) = on_path("cargo-deny").filter(|program| is_pinned(program)) {
        return Ok(program);
    }
    let recipe = format!("cargo-deny {VERSION}; layout 1\n");
    let part = builder.ensure("cargo-deny", &recipe, |part, scratch| {
        let mut install = cargo();
        install
            .args([
                "install",
                "--locked",
                "--quiet",
                "--no-track",
                "cargo-deny",
                "--version",
            ])
            .arg(VERSION)
            .arg("--root")
            .arg(part)
            .env("CARGO_TARGET_DIR", scratch);
        quietly(&mut low_priority(&install))?;
        ensure!(
            is_pinned(&part.join(PROGRAM)),
            "the installed cargo-deny is not {VERSION}"
        );
        Ok(())
    })?;
    Ok(part.join(PROGRAM))
}

/// Runs every check and counts each as one test.
pub(crate) fn check(program: &Path, tally: &mut Tally) -> Result<()> {
    for name in ["bans", "licenses", "sources", "advisories"] {
        let output = Command::new(program)
            .current_dir(workspace())
            .args(["--color", "never", "check", "--hide-inclusion-graph", name])
            .env("GIT_TERMINAL_PROMPT", "0")
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let report = [output.stderr, output.stdout].concat();
        let report = String::from_utf8_lossy(&report);
        match judge(output.status.success(), &report) {
            Judgement::Passed => tally.pass(),
            Judgement::Unreachable => {
                tally.skip();
                println!("SKIPPED: cargo deny check {name}: {}", report.trim());
                continue;
            }
            Judgement::Failed => tally.fail(),
        }
        println!("cargo deny check {name}: {}", report.trim());
    }
    Ok(())
}

#[derive(Debug, PartialEq)]
enum Judgement {
    Passed,
    Failed,
    Unreachable,
}

fn judge(success: bool, report: &str) -> Judgement {
    match (success, report.contains(DATABASE_UNREACHABLE)) {
        (true, _) => Judgement::Passed,
        (false, true) => Judgement::Unreachable,
        (false, false) => Judgement::Failed,
    }
}

fn is_pinned(program: &Path) -> bool {
    quietly(Command::new(program).arg("--version"))
        .is_ok_and(|answer| answer.trim() == format!("cargo-deny {VERSION}"))
}

const VERSION: &str = "0.20.2";
const PROGRAM: &str = "bin/cargo-deny";

/// What cargo-deny says before it looks at any dependency; a finding never contains it.
const DATABASE_UNREACHABLE: &str = "failed to fetch advisory database";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unreachable_database_is_a_skip() {
        let unreachable = "[ERROR] failed to fetch advisory database https://example.com/db";
        assert_eq!(judge(false, unreachable), Judgement::Unreachable);
        assert_eq!(judge(false, "error[vulnerability]: x"), Judgement::Failed);
        assert_eq!(judge(true, "advisories ok"), Judgement::Passed);
    }
}
