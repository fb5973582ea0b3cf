//! What the tests need and `cargo` does not bring: Puppet agents and servers, servers and clients of Kubernetes, PostgreSQL,
//! HAProxy, `openssl`, pkilint, schemathesis, cargo-deny.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use anyhow::{Result, anyhow};

use crate::cache::{Builder, Cache};
use crate::kubernetes::Kubernetes;
use crate::{debian, deny, haproxy, invocation, postgres, python, trixie};

/// Where the programs are; an error where one could not be had.
pub(crate) struct Counterparts {
    pub(crate) debian: Result<PathBuf>,
    pub(crate) trixie: Result<PathBuf>,
    pub(crate) postgres: Result<PathBuf>,
    pub(crate) kubernetes: Result<Kubernetes>,
    pub(crate) pkilint: Result<PathBuf>,
    pub(crate) schemathesis: Result<PathBuf>,
    pub(crate) deny: Result<PathBuf>,
    pub(crate) haproxy: Result<PathBuf>,
}

/// `cargo xtask setup`.
pub(crate) fn run() -> Result<ExitCode> {
    let cache = Cache::of_the_user()?;
    let (counterparts, ()) = Counterparts::gather(&cache.builder()?, || ());
    println!("puppet: {}", place(&counterparts.puppet()));
    println!("Debian 13: {}", place(&counterparts.trixie.as_deref().ok()));
    println!("openssl: {}", place(&counterparts.openssl()));
    println!(
        "PostgreSQL: {}",
        place(&counterparts.postgres.as_deref().ok())
    );
    if let Ok(kubernetes) = &counterparts.kubernetes {
        for (name, part) in kubernetes.places() {
            println!("{name}: {}", place(&part));
        }
    }
    println!("pkilint: {}", place(&counterparts.pkilint()));
    println!("schemathesis: {}", place(&counterparts.schemathesis()));
    println!("HAProxy: {}", place(&counterparts.haproxy.as_deref().ok()));
    println!("cargo-deny: {}", place(&counterparts.deny.as_deref().ok()));
    let faults = counterparts.faults();
    for fault in &faults {
        eprintln!("error: {fault:#}");
    }
    Ok(if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Counterparts {
    /// Builds the slow parts at low priority while `meanwhile` (a compilation, say) runs.
    pub(crate) fn gather<T>(builder: &Builder<'_>, meanwhile: impl FnOnce() -> T) -> (Self, T) {
        thread::scope(|scope| {
            let slow = scope.spawn(|| (Ok(Kubernetes::gather(builder)), deny::ensure(builder)));
            let debian = debian::ensure(builder);
            let haproxy = haproxy::ensure(builder);
            let pkilint = python::PKILINT.ensure(builder);
            let schemathesis = python::SCHEMATHESIS.ensure(builder);
            let trixie = trixie::ensure(builder);
            let postgres = postgres::ensure(builder);
            let other = meanwhile();
            let (kubernetes, deny) = slow.join().unwrap_or_else(|_| {
                let fault = || {
                    anyhow!("the thread that builds programs of Kubernetes and cargo-deny panicked")
                };
                (Err(fault()), Err(fault()))
            });
            let counterparts = Self {
                debian,
                trixie,
                postgres,
                kubernetes,
                pkilint,
                schemathesis,
                deny,
                haproxy,
            };
            (counterparts, other)
        })
    }

    pub(crate) fn puppet(&self) -> Option<PathBuf> {
        Some(self.debian.as_ref().ok()?.join("bin/puppet"))
    }

    pub(crate) fn puppetserver_ca(&self) -> Option<PathBuf> {
        Some(self.debian.as_ref().ok()?.join("bin/puppetserver-ca"))
    }

    /// A program of the Debian 13 root.
    pub(crate) fn newer(&self, program: &str) -> Option<PathBuf> {
        Some(self.trixie.as_ref().ok()?.join("bin").join(program))
    }

    /// The machine's own, else Debian's from the cache folder.
    pub(crate) fn openssl(&self) -> Option<PathBuf> {
        invocation::on_path("openssl")
            .or_else(|| Some(self.debian.as_ref().ok()?.join("bin/openssl")))
    }

    /// The same.
    pub(crate) fn systemd_analyze(&self) -> Option<PathBuf> {
        invocation::on_path("systemd-analyze")
            .or_else(|| Some(self.debian.as_ref().ok()?.join("bin/systemd-analyze")))
    }

    pub(crate) fn pkilint(&self) -> Option<PathBuf> {
        Some(self.pkilint.as_ref().ok()?.join("bin/pkilint"))
    }

    pub(crate) fn schemathesis(&self) -> Option<PathBuf> {
        Some(self.schemathesis.as_ref().ok()?.join("bin/schemathesis"))
    }

    pub(crate) fn faults(&self) -> Vec<&anyhow::Error> {
        let single = [
            &self.debian,
            &self.trixie,
            &self.postgres,
            &self.pkilint,
            &self.schemathesis,
            &self.deny,
            &self.haproxy,
        ];
        let mut faults: Vec<_> = single
            .into_iter()
            .filter_map(|part| part.as_ref().err())
            .collect();
        match &self.kubernetes {
            Ok(kubernetes) => faults.extend(kubernetes.faults()),
            Err(fault) => faults.push(fault),
        }
        faults
    }
}

fn place(program: &Option<impl AsRef<Path>>) -> String {
    match program {
        Some(path) => path.as_ref().display().to_string(),
        None => "missing".to_owned(),
    }
}
