//! Debian's kubectl 1.20, unpacked and never installed: the oldest one that people still have.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::apt::Apt;
use crate::cache::Builder;
use crate::invocation::quietly;

/// Fetches and unpacks, unless it was done. The part has `usr/bin/kubectl`, which needs nothing but the C library.
pub(crate) fn ensure(builder: &Builder<'_>) -> Result<PathBuf> {
    builder.ensure(PART, RECIPE, |part, scratch| {
        for archive in Apt::in_scratch(scratch)?.without_dependencies(&["kubernetes-client"])? {
            quietly(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(part))?;
        }
        let mut kubectl = Command::new(part.join("usr/bin/kubectl"));
        let version = quietly(kubectl.args(["version", "--client"]))?;
        ensure!(
            version.contains(VERSION),
            "the tests want kubectl {VERSION}x (Debian 12), apt offered {}",
            version.trim()
        );
        Ok(())
    })
}

const PART: &str = "debian-kubectl";
const VERSION: &str = "v1.20.";

/// Counts up when this file changes what it makes.
const RECIPE: &str = "debian-kubectl: kubernetes-client 1.20; layout 1\n";
