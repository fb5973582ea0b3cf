//! Debian's Puppet agent, `puppetserver ca` and `openssl`, unpacked into the cache folder and never installed.
//!
//! apt works in a scratch folder against an empty package database, so the dependencies come complete. A wrapper
//! script per program points loader and Ruby at the folder.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::apt::Apt;
use crate::cache::Builder;
use crate::invocation::quietly;

/// Fetches and unpacks, unless it was done. The part has `bin/puppet`, `bin/puppetserver-ca` and `bin/openssl`.
pub(crate) fn ensure(builder: &Builder<'_>) -> Result<PathBuf> {
    builder.ensure(PART, RECIPE, |part, scratch| {
        let root = part.join("root");
        fs::create_dir(&root)?;
        let mut unpacked = Vec::new();
        for archive in Apt::in_scratch(scratch)?.with_dependencies(PACKAGES)? {
            let name = package_name(&archive)?;
            if left_out(&name) {
                continue;
            }
            quietly(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&root))?;
            unpacked.push(file_name(&archive)?);
        }
        unpacked.sort();
        fs::write(part.join("packages"), unpacked.join("\n") + "\n")?;
        write_wrappers(part, &root)?;
        check(part, scratch)
    })
}

fn write_wrappers(part: &Path, root: &Path) -> Result<()> {
    let triplet = triplet(root)?;
    let ruby = only_child(&root.join("usr/lib/ruby"), |name| {
        name.starts_with(|first: char| first.is_ascii_digit())
    })?;
    let head = loader_paths(root)?;
    let ruby = format!(
        r#"lib="$root/usr/lib"
export RUBYLIB="$lib/ruby/vendor_ruby:$lib/{triplet}/ruby/vendor_ruby/{ruby}:$lib/ruby/{ruby}:$lib/{triplet}/ruby/{ruby}"
export GEM_HOME="$lib/ruby/gems/{ruby}"
export GEM_PATH="$root/usr/share/rubygems-integration/all:$GEM_HOME"
export PATH="$root/usr/bin:$PATH"
unset RUBYOPT BUNDLE_GEMFILE
"#
    );
    let puppet = format!("{ruby}exec \"$root/usr/bin/ruby\" \"$root/usr/bin/puppet\" \"$@\"\n");
    // What `puppetserver ca` runs, without the Java server around it.
    let ca = format!(
        r#"{ruby}exec "$root/usr/bin/ruby" -e 'require "puppetserver/ca/cli"; exit Puppetserver::Ca::Cli.run(ARGV)' -- "$@"
"#
    );
    let openssl = format!(
        r#"export OPENSSL_CONF="${{OPENSSL_CONF:-$root/etc/ssl/openssl.cnf}}"
export OPENSSL_MODULES="$root/usr/lib/{triplet}/ossl-modules"
exec "$root/usr/bin/openssl" "$@"
"#
    );
    let analyze = format!(
        "export LD_LIBRARY_PATH=\"$root/usr/lib/{triplet}/systemd:$root/lib/{triplet}/systemd:$LD_LIBRARY_PATH\"\n\
         exec \"$root/usr/bin/systemd-analyze\" \"$@\"\n"
    );
    fs::create_dir(part.join("bin"))?;
    for (name, body) in [
        ("puppet", puppet),
        ("puppetserver-ca", ca),
        ("openssl", openssl),
        ("systemd-analyze", analyze),
    ] {
        write_program(&part.join("bin").join(name), &format!("{head}{body}"))?;
    }
    Ok(())
}

/// The head of a script that runs a program from the folder it was unpacked into: `$root` is its root.
pub(crate) fn loader_paths(root: &Path) -> Result<String> {
    let triplet = triplet(root)?;
    Ok(format!(
        r#"#!/bin/sh
# Runs a Debian program from the folder it was unpacked into.
bin=$(dirname "$(readlink -f "$0")")
root=${{bin%/bin}}/root
export LD_LIBRARY_PATH="$root/usr/lib/{triplet}:$root/lib/{triplet}"
"#
    ))
}

pub(crate) fn write_program(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(fs::set_permissions(
        path,
        fs::Permissions::from_mode(0o755),
    )?)
}

/// How Debian calls the machine's architecture in paths.
fn triplet(root: &Path) -> Result<String> {
    only_child(&root.join("usr/lib"), |name| name.contains("-linux-"))
}

/// The programs start and are what the tests were written for. Even `--version` makes the agent create
/// its configuration folder, `/etc/puppet` for root, unless it is told another.
fn check(part: &Path, scratch: &Path) -> Result<()> {
    let puppet = |arguments: &[&str]| {
        let mut command = Command::new(part.join("bin/puppet"));
        command.args(arguments);
        for folder in ["--confdir", "--vardir", "--codedir", "--logdir", "--rundir"] {
            command.arg(folder).arg(scratch.join("puppet"));
        }
        quietly(&mut command)
    };
    let version = puppet(&["--version"])?;
    ensure!(
        version.starts_with(PUPPET_VERSION),
        "the tests want Puppet {PUPPET_VERSION}x (Debian 12), apt offered {}",
        version.trim()
    );
    let help = puppet(&["ssl", "--help"])?;
    ensure!(
        help.contains("bootstrap"),
        "`puppet ssl --help` does not name bootstrap"
    );
    let version = quietly(Command::new(part.join("bin/puppetserver-ca")).arg("--version"))?;
    ensure!(
        version.starts_with(CA_VERSION),
        "the tests want `puppetserver ca` {CA_VERSION}x (Debian 12), apt offered {}",
        version.trim()
    );
    let version = quietly(Command::new(part.join("bin/openssl")).arg("version"))?;
    ensure!(
        version.starts_with("OpenSSL 3."),
        "the tests want OpenSSL 3, apt offered {}",
        version.trim()
    );
    quietly(Command::new(part.join("bin/systemd-analyze")).arg("--version"))?;
    Ok(())
}

fn only_child(folder: &Path, fits: impl Fn(&str) -> bool) -> Result<String> {
    let mut found = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if fits(&name) {
            found.push(name);
        }
    }
    match <[String; 1]>::try_from(found) {
        Ok([name]) => Ok(name),
        Err(found) => bail!(
            "{}: expected one such folder, found {found:?}",
            folder.display()
        ),
    }
}

/// `libaudit1_1%3a3.0.9-1_amd64.deb` is the package `libaudit1`.
pub(crate) fn package_name(archive: &Path) -> Result<String> {
    let file = file_name(archive)?;
    let (name, _) = file
        .split_once('_')
        .with_context(|| format!("{file} is not the name of a package archive"))?;
    Ok(name.to_owned())
}

fn file_name(archive: &Path) -> Result<String> {
    let name = archive
        .file_name()
        .with_context(|| format!("{} has no file name", archive.display()))?;
    Ok(name.to_string_lossy().into_owned())
}

/// The machine has a C library, and a second one would not fit its loader; the others are for
/// installation scripts, which do not run.
pub(crate) fn left_out(package: &str) -> bool {
    const NAMES: &[&str] = &[
        "adduser",
        "ca-certificates",
        "debconf",
        "dpkg",
        "init-system-helpers",
        "libc6",
        "libdb5.3",
        "passwd",
        "perl",
        "tar",
        "usrmerge",
    ];
    const PREFIXES: &[&str] = &[
        "libaudit", "libpam", "libperl", "libsem", "libsepol", "perl-",
    ];
    NAMES.contains(&package)
        || PREFIXES.iter().any(|prefix| package.starts_with(prefix))
        || package.ends_with("-perl")
}

const PART: &str = "debian";
const PACKAGES: &[&str] = &[
    "puppet-agent",
    "ruby-puppetserver-ca-cli",
    "openssl",
    "systemd",
];
const PUPPET_VERSION: &str = "7.23.";
const CA_VERSION: &str = "2.4.";

/// Counts up when this file changes what it makes.
const RECIPE: &str =
    "debian: puppet-agent 7.23, puppetserver-ca 2.4, openssl 3, systemd; layout 3\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_is_the_part_before_the_version() {
        let archive = Path::new("archives/libaudit1_1%3a3.0.9-1_amd64.deb");
        assert_eq!(package_name(archive).unwrap(), "libaudit1");
        assert!(package_name(Path::new("lock")).is_err());
    }

    #[test]
    fn keeps_what_puppet_loads_and_leaves_out_the_c_library() {
        for kept in [
            "libruby3.1",
            "libssl3",
            "ruby-semantic-puppet",
            "puppet-agent",
            "libcrypt1",
        ] {
            assert!(!left_out(kept), "{kept}");
        }
        for dropped in ["libc6", "perl-base", "libtext-glob-perl", "dpkg"] {
            assert!(left_out(dropped), "{dropped}");
        }
    }
}
