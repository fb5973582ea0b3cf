//! kubectl, built from the Go module proxy into the cache folder.
//!
//! `go install` refuses a main package whose module has `replace` directives, so `xtask/kubectl` is a
//! module that requires the release, points its staging modules at their published versions and keeps
//! the hash of every source in `go.sum`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::cache::Builder;
use crate::invocation::{low_priority, on_path, quietly, workspace};

/// Builds `kubectl`, unless it was done; takes some minutes, so at low priority.
pub(crate) fn ensure(builder: &Builder<'_>) -> Result<PathBuf> {
    builder.ensure(PART, &recipe(), |part, scratch| {
        ensure!(
            on_path("go").is_some(),
            "go is missing: kubectl {VERSION} is built from source"
        );
        let program = part.join("kubectl");
        let mut build = Command::new("go");
        build
            .current_dir(workspace().join("xtask/kubectl"))
            .args(["build", "-trimpath", "-buildvcs=false", "-modcacherw"])
            .arg(format!("-ldflags=-s -w {}", version_flags()))
            .arg("-o")
            .arg(&program)
            .arg("k8s.io/kubernetes/cmd/kubectl")
            .env("CGO_ENABLED", "0"); // as the project's own releases
        keep_inside(&mut build, scratch);
        quietly(&mut low_priority(&build))?;
        check(&program)
    })
}

/// Go's own caches go to scratch and away with it, except where the user chose a place. So do the
/// counters Go keeps beside its settings; the settings themselves (`go env -w`) stay in force.
fn keep_inside(build: &mut Command, scratch: &Path) {
    for (name, folder) in [
        ("GOMODCACHE", "modules"),
        ("GOCACHE", "objects"),
        ("GOPATH", "path"),
    ] {
        if env::var_os(name).is_none() {
            build.env(name, scratch.join(folder));
        }
    }
    let configuration = env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".config")));
    if let Some(configuration) = configuration {
        if env::var_os("GOENV").is_none() {
            build.env("GOENV", configuration.join("go/env"));
        }
        build.env("XDG_CONFIG_HOME", scratch.join("configuration"));
    }
}

fn check(program: &Path) -> Result<()> {
    let version = quietly(Command::new(program).args(["version", "--client"]))?;
    ensure!(
        version.contains(VERSION),
        "kubectl says it is {version:?}, not {VERSION}"
    );
    Ok(())
}

/// A release build sets these; without them kubectl would call itself v0.0.0 in its `User-Agent`.
fn version_flags() -> String {
    let mut numbers = VERSION.trim_start_matches('v').split('.');
    let [major, minor] = [(); 2].map(|()| numbers.next().unwrap_or_default());
    [
        ("gitVersion", VERSION),
        ("gitMajor", major),
        ("gitMinor", minor),
    ]
    .map(|(name, value)| format!("-X k8s.io/component-base/version.{name}={value}"))
    .join(" ")
}

/// The pinned sources are part of the recipe: a new `go.sum` builds anew.
fn recipe() -> String {
    let sums = fs::read_to_string(workspace().join("xtask/kubectl/go.sum")).unwrap_or_default();
    format!("kubectl {VERSION}; layout 1\n{sums}")
}

const PART: &str = "kubectl";
const VERSION: &str = "v1.36.3";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_module_and_the_expected_version_agree() {
        let module = fs::read_to_string(workspace().join("xtask/kubectl/go.mod")).unwrap();
        assert!(module.contains(&format!("k8s.io/kubernetes {VERSION}\n")));
        let staged = VERSION.replacen("v1.", "v0.", 1);
        let replaced: Vec<&str> = module.lines().filter(|line| line.contains("=>")).collect();
        assert!(replaced.len() > 20);
        assert!(replaced.iter().all(|line| line.ends_with(&staged)));
    }

    #[test]
    fn the_version_is_split_for_the_linker() {
        let flags = version_flags();
        assert!(flags.contains("gitVersion=v1.36.3 "));
        assert!(flags.contains("gitMajor=1 "));
        assert!(flags.ends_with("gitMinor=36"));
    }
}
