//! Debian's HAProxy 2.6, unpacked into the cache folder and never installed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::apt::Apt;
use crate::cache::Builder;
use crate::debian::{left_out, loader_paths, package_name, write_program};
use crate::invocation::quietly;

/// Fetches and unpacks, unless it was done. The part has `bin/haproxy`.
pub(crate) fn ensure(builder: &Builder<'_>) -> Result<PathBuf> {
    builder.ensure(PART, RECIPE, |part, scratch| {
        let root = part.join("root");
        fs::create_dir(&root)?;
        for archive in Apt::in_scratch(scratch)?.with_dependencies(&[PART])? {
            if !left_out(&package_name(&archive)?) {
                quietly(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&root))?;
            }
        }
        fs::create_dir(part.join("bin"))?;
        let program = part.join("bin/haproxy");
        let head = loader_paths(&root)?;
        write_program(
            &program,
            &format!("{head}exec \"$root/usr/sbin/haproxy\" \"$@\"\n"),
        )?;
        let version = quietly(Command::new(&program).arg("-v"))?;
        ensure!(
            version.contains(VERSION),
            "the tests want {VERSION}x (Debian 12), apt offered {}",
            version.trim()
        );
        Ok(())
    })
}

/// The package, too.
const PART: &str = "haproxy";
const VERSION: &str = "HAProxy version 2.6.";

/// Counts up when this file changes what it makes.
const RECIPE: &str = "haproxy: haproxy 2.6; layout 1\n";
