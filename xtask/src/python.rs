//! Programs from the Python package index, in the cache folder: one part each, with every package that it needs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache::Builder;
use crate::invocation::{on_path, quietly, workspace};

/// A program, in the versions of `xtask/<name>/requirements.txt`.
pub(crate) struct Program {
    name: &'static str,
    /// How its script calls `$python`, with the library in place.
    call: &'static str,
    /// What shows that it works, and a word of the answer.
    probe: (&'static [&'static str], &'static str),
}

/// What others expect of certificates and CRLs. The first argument is the linter.
pub(crate) const PKILINT: Program = Program {
    name: "pkilint",
    call: "linter=$1\nshift\nexec \"$python\" -m \"pkilint.bin.$linter\" \"$@\"",
    probe: (&["lint_crl", "lint", "--help"], "PKIX"),
};

/// Calls that follow an OpenAPI document, and calls that do not.
pub(crate) const SCHEMATHESIS: Program = Program {
    name: "schemathesis",
    call: "exec \"$python\" -m schemathesis.cli \"$@\"",
    probe: (&["run", "--help"], "--request-cert"),
};

/// Kubernetes' own client, and kr8s; its script is Python with the libraries in place.
pub(crate) const KUBERNETES: Program = Program {
    name: "kubernetes-python",
    call: "exec \"$python\" \"$@\"",
    probe: (
        &["-c", "import kr8s, kubernetes; print(kubernetes.__name__)"],
        "kubernetes",
    ),
};

impl Program {
    /// Installs it, unless it was done. The part has `bin/<name>`.
    pub(crate) fn ensure(&self, builder: &Builder<'_>) -> Result<PathBuf> {
        let name = self.name;
        builder.ensure(name, &self.recipe(), |part, scratch| {
            let python = on_path("python3")
                .with_context(|| format!("python3 is missing: {name} is written in it"))?;
            let environment = scratch.join("environment");
            quietly(Command::new(&python).args(["-m", "venv"]).arg(&environment))?;
            quietly(
                Command::new(environment.join("bin/python"))
                    .args(["-m", "pip", "install", "--quiet", "--no-deps"])
                    .args(["--disable-pip-version-check", "--no-cache-dir"])
                    .arg("--target")
                    .arg(part.join("library"))
                    .arg("--requirement")
                    .arg(self.requirements()),
            )?;
            let program = part.join("bin").join(name);
            fs::create_dir(part.join("bin"))?;
            // The folder is moved once more, so the script finds its library beside itself.
            let script = format!(
                "#!/bin/sh\nPYTHONPATH=$(dirname \"$0\")/../library\nPYTHONDONTWRITEBYTECODE=1\n\
                 export PYTHONPATH PYTHONDONTWRITEBYTECODE\npython={}\n{}\n",
                python.display(),
                self.call,
            );
            fs::write(&program, script)?;
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
            let (arguments, word) = self.probe;
            let answer = quietly(Command::new(&program).args(arguments))?;
            ensure!(answer.contains(word), "{name} does not work: {answer}");
            Ok(())
        })
    }

    fn requirements(&self) -> PathBuf {
        let file = format!("xtask/{}/requirements.txt", self.name);
        workspace().join(file)
    }

    /// The pinned versions are part of the recipe.
    fn recipe(&self) -> String {
        let versions = fs::read_to_string(self.requirements()).unwrap_or_default();
        format!("{}; layout 1\n{versions}", self.name)
    }
}
