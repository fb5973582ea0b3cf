//! Debian's PostgreSQL 15, unpacked into the cache folder and never installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::apt::Apt;
use crate::cache::Builder;
use crate::debian::{left_out, loader_paths, package_name, write_program};
use crate::invocation::quietly;

/// Fetches and unpacks, unless it was done. The part has `bin/postgres`, `bin/initdb`, `bin/psql` and `bin/pg_basebackup`.
pub(crate) fn ensure(builder: &Builder<'_>) -> Result<PathBuf> {
    builder.ensure(PART, RECIPE, |part, scratch| {
        let root = part.join("root");
        fs::create_dir(&root)?;
        for archive in Apt::in_scratch(scratch)?.with_dependencies(&[PACKAGE])? {
            let name = package_name(&archive)?;
            if !left_out(&name) && !is_extra(&name) {
                quietly(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&root))?;
            }
        }
        write_wrappers(part, &root)?;
        check(part)
    })
}

fn write_wrappers(part: &Path, root: &Path) -> Result<()> {
    let head = loader_paths(root)?;
    fs::create_dir(part.join("bin"))?;
    for program in PROGRAMS {
        let text = format!("{head}exec \"$root/usr/lib/postgresql/15/bin/{program}\" \"$@\"\n");
        write_program(&part.join("bin").join(program), &text)?;
    }
    Ok(())
}

fn check(part: &Path) -> Result<()> {
    for program in PROGRAMS {
        let version = quietly(Command::new(part.join("bin").join(program)).arg("--version"))?;
        ensure!(
            version.contains("(PostgreSQL) 15."),
            "the tests want PostgreSQL 15 (Debian 12), apt offered {}",
            version.trim()
        );
    }
    Ok(())
}

/// What installation scripts and the just-in-time compiler need: neither runs.
fn is_extra(package: &str) -> bool {
    const NAMES: &[&str] = &[
        "libjson-perl",
        "lsb-base",
        "netbase",
        "openssl",
        "postgresql-client-common",
        "postgresql-common",
        "sensible-utils",
        "ssl-cert",
        "tzdata",
        "ucf",
    ];
    const PREFIXES: &[&str] = &["libllvm", "libz3"];
    NAMES.contains(&package) || PREFIXES.iter().any(|prefix| package.starts_with(prefix))
}

const PART: &str = "postgres";
const PACKAGE: &str = "postgresql-15";
const PROGRAMS: &[&str] = &["postgres", "initdb", "psql", "pg_basebackup"];

/// Counts up when this file changes what it makes.
const RECIPE: &str = "postgres: postgresql-15; layout 1\n";
