//! Programs in Go, built from the module proxy: each module below `xtask/kubernetes` keeps the hash of every source in its
//! `go.sum`, and which ones its programs are made of is nobody else's choice.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache::Builder;
use crate::invocation::{low_priority, on_path, quietly, workspace};

/// Some programs of one module, a part of the cache folder.
pub(crate) struct Programs<'a> {
    /// The part.
    pub(crate) part: &'a str,
    /// The module's folder below `xtask/kubernetes`.
    pub(crate) module: &'a str,
    /// The module's file and, with `.sum`, its hashes: `go.mod`, or one for another release.
    pub(crate) modfile: &'a str,
    /// Main packages; `./name` is one of the module's own.
    pub(crate) packages: &'a [&'a str],
    /// What the programs say they are; empty for those of our own.
    pub(crate) release: &'a str,
    pub(crate) effort: Effort,
}

/// What the compiler does for speed.
#[derive(Clone, Copy)]
pub(crate) enum Effort {
    /// As in a release.
    Full,
    /// Nothing: a third less time, for programs whose speed nobody measures.
    Little,
}

impl Programs<'_> {
    /// Builds them, unless it was done; takes some minutes, so at low priority. `check` looks at the folder with the
    /// programs.
    pub(crate) fn ensure(
        &self,
        builder: &Builder<'_>,
        check: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        builder.ensure(self.part, &self.recipe()?, |part, _| {
            ensure!(
                on_path("go").is_some(),
                "go is missing: {} is built from source",
                self.part
            );
            let mut build = Command::new("go");
            build
                .current_dir(self.folder())
                .args(["build", "-trimpath", "-buildvcs=false", "-modcacherw"])
                .arg(format!("-modfile={}", self.modfile))
                .arg(match self.effort {
                    Effort::Full => "-gcflags=",
                    Effort::Little => "-gcflags=all=-N -l",
                })
                .arg(format!("-ldflags=-s -w {}", version_flags(self.release)))
                .arg("-o")
                .arg(format!("{}/", part.display()))
                .args(self.packages)
                .env("CGO_ENABLED", "0"); // as the project's own releases
            keep_inside(&mut build, &builder.shared_scratch("go")?);
            quietly(&mut low_priority(&build))?;
            check(part)
        })
    }

    fn folder(&self) -> PathBuf {
        workspace().join("xtask/kubernetes").join(self.module)
    }

    /// The pinned sources and our own are part of the recipe: a new `go.sum` builds anew.
    fn recipe(&self) -> Result<String> {
        let folder = self.folder();
        let sums = folder.join(self.modfile).with_extension("sum");
        let own = self
            .packages
            .iter()
            .filter_map(|package| package.strip_prefix("./"))
            .map(|package| folder.join(package).join("main.go"));
        let mut recipe = format!("{} {}; layout 1\n", self.packages.join(" "), self.release);
        for file in std::iter::once(sums).chain(own) {
            let text = fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            recipe.push_str(&text);
        }
        Ok(recipe)
    }
}

/// Go's own caches are shared by the parts that are built together and go away with them, except where the user chose a
/// place. So do the counters Go keeps beside its settings; the settings themselves (`go env -w`) stay in force.
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

/// A release of Kubernetes sets these; without them a program would call itself v0.0.0, in its `User-Agent` too.
fn version_flags(release: &str) -> String {
    let mut numbers = release.trim_start_matches('v').split('.');
    let [major, minor] = [(); 2].map(|()| numbers.next().unwrap_or_default());
    let values = [
        ("gitVersion", release),
        ("gitMajor", major),
        ("gitMinor", minor),
    ];
    let mut flags = Vec::new();
    if !release.is_empty() {
        for module in [
            "k8s.io/component-base/version",
            "k8s.io/client-go/pkg/version",
        ] {
            flags.extend(values.map(|(name, value)| format!("-X {module}.{name}={value}")));
        }
    }
    flags.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_split_for_the_linker() {
        let flags = version_flags("v1.36.3");
        assert!(flags.contains("version.gitVersion=v1.36.3 "));
        assert!(flags.contains("version.gitMajor=1 "));
        assert!(flags.ends_with("client-go/pkg/version.gitMinor=36"));
        assert_eq!(version_flags(""), "");
    }

    #[test]
    fn a_program_of_our_own_is_part_of_the_recipe() {
        let programs = Programs {
            part: "informer",
            module: "clients",
            modfile: "go.mod",
            packages: &["./informer"],
            release: "",
            effort: Effort::Full,
        };
        let recipe = programs.recipe().unwrap();
        assert!(recipe.contains("k8s.io/client-go"), "go.sum");
        assert!(recipe.contains("NewSharedInformerFactory"), "main.go");
    }
}
