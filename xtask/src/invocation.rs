//! How xtask runs other programs: which one, with what priority, and what a failure says.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The cargo that started us, so that `cargo +toolchain xtask` uses one toolchain throughout.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace()).stdin(Stdio::null());
    command
}

/// The same program with less claim on the processor, for work beside a compilation.
pub(crate) fn low_priority(command: &Command) -> Command {
    let mut nice = if on_path("nice").is_some() {
        let mut nice = Command::new("nice");
        nice.args(["-n", "10"]).arg(command.get_program());
        nice
    } else {
        Command::new(command.get_program())
    };
    nice.args(command.get_args()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice
}

/// Runs a program whose output only matters when it fails; its standard output on success.
pub(crate) fn quietly(command: &mut Command) -> Result<String> {
    let name = display(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{name}`"))?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!(
            "`{name}` ended with {}:\n{}",
            output.status,
            tail(&format!("{stdout}{stderr}"))
        );
    }
    Ok(stdout.into_owned())
}

/// Where a program is, if `PATH` has it.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// The folder with the workspace's `Cargo.toml`.
pub(crate) fn workspace() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// For commands without arguments: a word too many is a mistake, not noise.
pub(crate) fn refuse_arguments(rest: &[String]) -> Result<()> {
    match rest.first() {
        None => Ok(()),
        Some(word) => bail!("unexpected argument '{word}'"),
    }
}

fn display(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

fn tail(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let start = lines.len().saturating_sub(TAIL_LINES);
    lines.get(start..).unwrap_or_default().join("\n")
}

/// Enough for the cause, not the whole log of a compiler.
const TAIL_LINES: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_program_and_shows_its_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo cause >&2; exit 3"]);
        let error = quietly(&mut command).unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.ends_with("out\ncause"), "{error}");
    }

    #[test]
    fn low_priority_keeps_arguments_environment_and_folder() {
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $WORD $PWD"])
            .env("WORD", "kept")
            .current_dir("/");
        assert_eq!(quietly(&mut low_priority(&command)).unwrap(), "kept /\n");
    }

    #[test]
    fn only_the_end_of_a_long_log_is_shown() {
        let log: String = (1..=100).map(|line| format!("line {line}\n")).collect();
        let shown = tail(&log);
        assert!(shown.starts_with("line 61\n") && shown.ends_with("line 100"));
    }
}
