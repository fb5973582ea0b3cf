//! The controllers beside the reference, kube-controller-manager, each at a fresh kube-apiserver on etcd, in one run of
//! `cargo xtask bench`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::bench::{Load, number};
use crate::bench_kubernetes::{Row, Usage, print_beside};

/// Measures the reference, then our controllers, and prints the figures and their ratios.
pub(crate) fn run(load: &Load, target: &Path, data: &Path, pending: usize) -> Result<()> {
    fs::create_dir_all(data)?;
    let mut sides = Vec::new();
    for side in [Side::Reference, Side::Ours] {
        let Some(cluster) = Cluster::start(target)? else {
            println!(
                "kube-controller-manager     not prepared, so there is nothing to compare with; see cargo xtask setup"
            );
            return Ok(());
        };
        sides.push(measure(side, &cluster, load, target, data, pending)?);
    }
    let [theirs, ours] = sides.as_slice() else {
        return Ok(());
    };
    print_beside(ours, theirs, "kube-controller-manager");
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Reference,
    Ours,
}

#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn measure(
    side: Side,
    cluster: &Cluster,
    load: &Load,
    target: &Path,
    data: &Path,
    pending: usize,
) -> Result<Vec<Row>> {
    let kubeconfig = format!("kubeconfig={}", cluster.of("kubelet")?);
    let run = |what: &str, options: &[&str]| {
        let what = format!("kubernetes-{what}");
        load.run(&[&[what.as_str(), &kubeconfig, SIGNER], options].concat())
    };
    // Asked while nobody is there to answer.
    let count = format!("count={pending}");
    run("create", &["prefix=pending", &count])?;
    let log = data.join(format!("{side:?}.log"));
    let begun = Instant::now();
    let controllers = Controllers::start(cluster.command(side, target, data)?, &log)?;
    run("drained", &["prefix=pending", &count])?;
    let drained = begun.elapsed().as_secs_f64();
    let after_drain = Usage::of(controllers.pid())?;
    run("signed", &["prefix=warm", "count=20", "connections=1"])?;
    let before = Usage::of(controllers.pid())?;
    let single = run("signed", &["prefix=single", "count=300", "connections=1"])?;
    let many = run("signed", &["prefix=many", "count=500"])?;
    let after = Usage::of(controllers.pid())?;
    let row = |what, value, unit| Row { what, value, unit };
    Ok(vec![
        row(
            "created until signed, p50",
            number(&single, "p50_ms")?,
            "ms",
        ),
        row(
            "created until signed, p99",
            number(&single, "p99_ms")?,
            "ms",
        ),
        row(
            "500 at once, all signed",
            number(&many, "until_all_ms")?,
            "ms",
        ),
        row(
            "CPU time of these 800",
            after.cpu_seconds - before.cpu_seconds,
            "s",
        ),
        row("pending drained after start", drained, "s"),
        row("CPU time until then", after_drain.cpu_seconds, "s"),
        row("resident then", after_drain.resident_mib, "MiB"),
        row("resident in the end", after.resident_mib, "MiB"),
    ])
}

/// An API server on etcd, without controllers; both end when this is dropped.
pub(crate) struct Cluster {
    child: Child,
    places: Value,
}

impl Cluster {
    /// `None`: it was not prepared.
    pub(crate) fn start(target: &Path) -> Result<Option<Self>> {
        let mut child = Command::new(target.join("examples/cluster"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the cluster")?;
        let stdout = child.stdout.take().context("the cluster has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(!line.is_empty(), "the cluster ended before it was ready");
        let cluster = Self {
            places: serde_json::from_str(&line)?,
            child,
        };
        Ok(cluster.places.get("missing").is_none().then_some(cluster))
    }

    /// Where something is.
    pub(crate) fn of(&self, what: &str) -> Result<&str> {
        let place = self.places.get(what).and_then(Value::as_str);
        place.with_context(|| format!("the cluster does not say where {what} is"))
    }

    /// The three controllers of a side, with the cluster's CA, as the same user.
    fn command(&self, side: Side, target: &Path, data: &Path) -> Result<Command> {
        let mut command = match side {
            Side::Reference => Command::new(self.of("kube_controller_manager")?),
            Side::Ours => Command::new(target.join("countersign")),
        };
        match side {
            Side::Reference => command
                .args(["--secure-port=0", "--kube-api-qps=100000", "--kube-api-burst=100000"])
                .arg("--controllers=certificatesigningrequest-approving-controller,certificatesigningrequest-signing-controller,certificatesigningrequest-cleaner-controller"),
            Side::Ours => command
                .args(["cluster", "--preset=kube-controller-manager"])
                .arg("--controllers=approver,signer,cleaner")
                .arg("--data")
                .arg(data.join("data"))
                .env_remove("RUST_LOG"),
        };
        command
            .arg(format!("--kubeconfig={}", self.of("controllers")?))
            .arg(format!("--cluster-signing-cert-file={}", self.of("ca")?))
            .arg(format!("--cluster-signing-key-file={}", self.of("ca_key")?))
            .arg("--leader-elect=false");
        Ok(command)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// What works on requests; it ends when this is dropped.
pub(crate) struct Controllers {
    child: Child,
}

impl Controllers {
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Self> {
        let log = File::create(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self { child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

const SIGNER: &str = "signer=kubernetes.io/kube-apiserver-client-kubelet";
