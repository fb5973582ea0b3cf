//! Kubernetes' client for JavaScript from the npm registry, in the cache folder, in the versions of
//! `xtask/kubernetes-node/package-lock.json`, which has the hash of every package.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache::Builder;
use crate::invocation::{on_path, quietly, workspace};

/// Installs it, unless it was done. The part has `bin/kubernetes-node`, which is `node` with the library in place.
pub(crate) fn ensure_client(builder: &Builder<'_>) -> Result<PathBuf> {
    let folder = workspace().join("xtask").join(NAME);
    let lock = fs::read_to_string(folder.join(FILES[1])).unwrap_or_default();
    builder.ensure(NAME, &format!("{NAME}; layout 1\n{lock}"), |part, _| {
        let node = on_path("node").context("node is missing: a client is written in JavaScript")?;
        ensure!(on_path("npm").is_some(), "npm is missing: it brings {NAME}");
        let library = part.join("library");
        fs::create_dir(&library)?;
        for file in FILES {
            fs::copy(folder.join(file), library.join(file))?;
        }
        quietly(
            Command::new("npm")
                .current_dir(&library)
                .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]),
        )?;
        fs::create_dir(part.join("bin"))?;
        let program = part.join("bin").join(NAME);
        // The folder is moved once more, so the script finds its library beside itself.
        let script = format!(
            "#!/bin/sh\nNODE_LIBRARY=$(cd \"$(dirname \"$0\")/../library\" && pwd)\nexport NODE_LIBRARY\n\
             exec {} \"$@\"\n",
            node.display(),
        );
        fs::write(&program, script)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        let probe = "import(`${process.env.NODE_LIBRARY}/node_modules/@kubernetes/client-node/dist/index.js`)\
                     .then((client) => console.log(typeof client.KubeConfig))";
        let answer = quietly(Command::new(&program).args(["-e", probe]))?;
        ensure!(answer.contains("function"), "{NAME} does not work: {answer}");
        Ok(())
    })
}

const NAME: &str = "kubernetes-node";
const FILES: [&str; 2] = ["package.json", "package-lock.json"];
