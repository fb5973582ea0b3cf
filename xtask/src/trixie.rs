//! A Debian 13 root in the cache folder, made with `debootstrap`: the newer Puppet agent, Puppet Server and the command
//! `puppetserver ca`.
//!
//! They need the Ruby, the Java and the C library of their own release, so they are installed, not just unpacked, and run
//! in a chroot. Everything that mounts does it in a mount namespace of its own, which ends with the process: nothing stays
//! mounted, whatever happens. Services do not start, and the programs see their root read-only.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::apt::{self, Apt};
use crate::cache::Builder;
use crate::debian::write_program;
use crate::invocation::{on_path, quietly};

/// Makes the root, unless it was made. The part has `bin/puppet`, `bin/puppetserver-ca` and `bin/puppetserver`.
pub(crate) fn ensure(builder: &Builder<'_>) -> Result<PathBuf> {
    builder.ensure(PART, RECIPE, |part, scratch| {
        for program in ["unshare", "setpriv", "chroot", "mount", "wget", "gpgv"] {
            ensure!(
                on_path(program).is_some(),
                "{program} is missing: the Debian 13 root is made and run with it"
            );
        }
        quietly(&mut isolated("true")).context(
            "the Debian 13 root (newer Puppet agent, Puppet Server) is made and run in a chroot with mounts of its own: \
             run this as root, in a container with the capability SYS_ADMIN",
        )?;
        let root = part.join("root");
        let apt = Apt::in_scratch(scratch)?;
        bootstrap(&apt, &root, scratch)?;
        install(&root, scratch)?;
        tidy(&root)?;
        write_wrappers(part)?;
        check(part, scratch)
    })
}

/// The base system. `debootstrap` is a shell script that runs from where its package was unpacked.
fn bootstrap(apt: &Apt, root: &Path, scratch: &Path) -> Result<()> {
    let tools = scratch.join("tools");
    for archive in apt.without_dependencies(&["debootstrap", "debian-archive-keyring"])? {
        quietly(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&tools))?;
    }
    let mirror = apt.debian_mirror()?;
    let mirror = mirror.as_deref().context(
        "apt's sources name no mirror of Debian, from which the Debian 13 root could be made: add one",
    )?;
    let keyring = tools.join("usr/share/keyrings/debian-archive-keyring.gpg");
    let mut command = isolated(BOOTSTRAP);
    command
        .env("DEBOOTSTRAP_DIR", tools.join("usr/share/debootstrap"))
        .env("DEBOOTSTRAP", tools.join("usr/sbin/debootstrap"))
        .env("KEYRING", &keyring)
        .env("MIRROR", mirror)
        .env("SUITE", SUITE)
        .env("ROOT", root);
    // It downloads with wget, which does not know apt's configuration.
    for scheme in ["http", "https"] {
        let proxy = apt.setting(&format!("Acquire::{scheme}::Proxy"))?;
        if !proxy.is_empty() && proxy != "DIRECT" {
            command.env(format!("{scheme}_proxy"), proxy);
        }
    }
    quietly(&mut command)?;
    let sources = format!(
        "deb [signed-by={}] {mirror} {SUITE} main\n",
        keyring.display()
    );
    Ok(fs::write(scratch.join("sources.list"), sources)?)
}

/// The machine's apt installs into the root: so the machine's proxies and certificates count here too.
fn install(root: &Path, scratch: &Path) -> Result<()> {
    let policy = root.join("usr/sbin/policy-rc.d");
    write_program(&policy, "#!/bin/sh\n# No service starts here.\nexit 101\n")?;
    let configuration = scratch.join("install.conf");
    fs::write(&configuration, install_configuration(root, scratch))?;
    let mut command = isolated(INSTALL);
    command
        .env("APT_CONFIG_FILE", &configuration)
        .env("PACKAGES", PACKAGES)
        .env("ROOT", root);
    quietly(&mut command).map(|_| ())
}

fn install_configuration(root: &Path, scratch: &Path) -> String {
    let (root, scratch) = (root.display(), scratch.display());
    let without_hooks = apt::WITHOUT_HOOKS;
    format!(
        r#"{without_hooks}Dir::Etc::sourcelist "{scratch}/sources.list";
Dir::Etc::sourceparts "-";
Dir::State "{root}/var/lib/apt";
Dir::State::status "{root}/var/lib/dpkg/status";
Dir::State::lists "{root}/var/lib/apt/lists";
Dir::Cache "{root}/var/cache/apt";
Dir::Cache::archives "{root}/var/cache/apt/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Log "{root}/var/log/apt";
DPkg::Chroot-Directory "{root}";
DPkg::Options {{ "--force-unsafe-io"; }};
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
"#
    )
}

/// What only the installation needed, and the one name that the programs resolve.
fn tidy(root: &Path) -> Result<()> {
    for folder in ["var/cache/apt", "var/lib/apt/lists"] {
        let folder = root.join(folder);
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
        fs::create_dir(&folder)?;
    }
    Ok(fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n")?)
}

fn write_wrappers(part: &Path) -> Result<()> {
    let bin = part.join("bin");
    fs::create_dir(&bin)?;
    write_program(&bin.join("inside"), INSIDE)?;
    for (name, command) in [
        ("puppet", "/usr/bin/puppet"),
        ("puppetserver-ca", "/usr/bin/puppetserver ca"),
        ("puppetserver", JAVA),
    ] {
        let text = format!(
            "#!/bin/sh\nexec \"$(dirname \"$(readlink -f \"$0\")\")/inside\" {command} \"$@\"\n"
        );
        write_program(&bin.join(name), &text)?;
    }
    Ok(())
}

/// The programs start and are what the tests were written for.
fn check(part: &Path, scratch: &Path) -> Result<()> {
    let version = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(part.join("bin").join(program));
        // Even for `--version` the agent makes its folders; the scratch folder is not visible inside.
        command.args(arguments).env("HOME", scratch);
        quietly(&mut command)
    };
    let folders = ["--confdir", "/run/conf", "--vardir", "/run/var"];
    for (program, arguments, wanted) in [
        (
            "puppet",
            [&["--version"][..], &folders].concat(),
            PUPPET_VERSION,
        ),
        ("puppetserver-ca", vec!["--version"], CA_VERSION),
        (
            "inside",
            vec!["/usr/bin/puppetserver", "--version"],
            SERVER_VERSION,
        ),
    ] {
        let found = version(program, &arguments)?;
        ensure!(
            found.starts_with(wanted),
            "the tests want {program} {wanted}x (Debian 13), apt offered {}",
            found.trim()
        );
    }
    Ok(())
}

/// A shell script with mounts and processes of its own, all of which end with this program.
fn isolated(script: &str) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-euc"])
        .arg(script)
        .env("LC_ALL", "C");
    command
}

const PART: &str = "trixie";
const SUITE: &str = "trixie";
const PACKAGES: &str = "puppet-agent puppetserver";
const PUPPET_VERSION: &str = "8.10.";
const CA_VERSION: &str = "2.7.";
const SERVER_VERSION: &str = "puppetserver version: 8.7.";

/// Counts up when this file changes what it makes.
const RECIPE: &str = "trixie: puppet-agent 8.10, puppetserver 8.7; layout 1\n";

const BOOTSTRAP: &str = r#"
mount -t proc proc /proc
exec sh "$DEBOOTSTRAP" --variant=minbase --keyring="$KEYRING" "$SUITE" "$ROOT" "$MIRROR"
"#;

const INSTALL: &str = r#"
mount -t proc proc /proc
mount -t proc proc "$ROOT/proc"
export DEBIAN_FRONTEND=noninteractive
apt-get -c "$APT_CONFIG_FILE" update
apt-get -c "$APT_CONFIG_FILE" install --yes --no-install-recommends $PACKAGES
"#;

/// Puppet Server as its service runs it; the caller names the configuration.
const JAVA: &str = "/usr/bin/java ${JAVA_ARGS:--Xms1g -Xmx1g} -Djruby.lib=/usr/share/jruby/lib \
    -Djruby.logger.class=com.puppetlabs.jruby_utils.jruby.Slf4jLogger \
    -jar /usr/share/puppetserver/puppetserver.jar";

/// Folders for temporary files have the same path inside and outside, so a test's files do too. Killing the
/// process kills everything inside; so does the end of the thread that started it.
const INSIDE: &str = r#"#!/bin/sh
# inside PROGRAM ARGUMENT...: runs a program of the Debian 13 root, which it cannot change.
set -eu
if [ "$(id -u)" != 0 ]; then
    echo "the programs of the Debian 13 root run in a chroot: run the tests as root" >&2
    exit 125
fi
bin=$(dirname "$(readlink -f "$0")")
root=${bin%/bin}/root
shared=$(readlink -f "${TMPDIR:-/tmp}")
unset LD_LIBRARY_PATH RUBYOPT RUBYLIB GEM_HOME GEM_PATH BUNDLE_GEMFILE JAVA_TOOL_OPTIONS
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child sh -euc '
root=$1 shared=$2
shift 2
mkdir -p "$root$shared"
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount --bind "$shared" "$root$shared"
exec chroot "$root" "$@"
' inside "$root" "$shared" "$@"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apt_installs_only_below_the_root() {
        let configuration = install_configuration(Path::new("/part/root"), Path::new("/scratch"));
        let folders: Vec<&str> = configuration
            .lines()
            .filter(|line| line.starts_with("Dir::") || line.starts_with("DPkg::Chroot"))
            .filter_map(|line| line.split('"').nth(1))
            .filter(|value| value.starts_with('/'))
            .collect();
        assert_eq!(folders.len(), 8, "{folders:?}");
        assert!(
            folders
                .iter()
                .all(|folder| folder.starts_with("/part/root") || folder.starts_with("/scratch/")),
            "{folders:?}"
        );
    }
}
