//! pkilint, from the Python package index into the cache folder: what others expect of certificates and CRLs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache::Builder;
use crate::invocation::{on_path, quietly, workspace};

/// Installs it, unless it was done. The part has `bin/pkilint`, whose first argument is the linter.
pub(crate) fn ensure(builder: &Builder<'_>) -> Result<PathBuf> {
    builder.ensure(PART, &recipe(), |part, scratch| {
        let python = on_path("python3").context("python3 is missing: pkilint is written in it")?;
        let environment = scratch.join("environment");
        quietly(
            Command::new(&python)
                .args(["-m", "venv"])
                .arg(&environment),
        )?;
        let library = part.join("library");
        quietly(
            Command::new(environment.join("bin/python"))
                .args(["-m", "pip", "install", "--quiet", "--no-deps"])
                .args(["--disable-pip-version-check", "--no-cache-dir"])
                .arg("--target")
                .arg(&library)
                .arg("--requirement")
                .arg(requirements()),
        )?;
        let program = part.join("bin/pkilint");
        fs::create_dir(part.join("bin"))?;
        // The folder is moved once more, so the script finds its library beside itself.
        let script = format!(
            "#!/bin/sh\nhere=$(dirname \"$0\")\nlinter=$1\nshift\n\
             PYTHONPATH=\"$here/../library\" PYTHONDONTWRITEBYTECODE=1 exec {} -m \"pkilint.bin.$linter\" \"$@\"\n",
            python.display()
        );
        fs::write(&program, script)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        let help = quietly(Command::new(&program).args(["lint_crl", "lint", "--help"]))?;
        ensure!(help.contains("PKIX"), "pkilint does not work: {help}");
        Ok(())
    })
}

fn requirements() -> PathBuf {
    workspace().join("xtask/pkilint/requirements.txt")
}

/// The pinned versions are part of the recipe.
fn recipe() -> String {
    let versions = fs::read_to_string(requirements()).unwrap_or_default();
    format!("pkilint; layout 1\n{versions}")
}

const PART: &str = "pkilint";
