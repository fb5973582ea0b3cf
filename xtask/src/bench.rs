//! Load benchmarks: `cargo xtask bench [--quick] [--kubernetes] [--cluster] [--operator] [--against URL ...]`.
//!
//! Raw cryptography, handshakes, enrolments and the Kubernetes door are measured in one run on one machine, so that their
//! ratios mean something where absolute figures do not.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{bench_cluster, bench_kubernetes, bench_operator, bench_scale};

/// Runs the load benchmarks with the arguments after `bench`. Once all is measured, it fails if the program is too large.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let plan = Plan::parse(args)?;
    let target = build()?;
    let size = program_size(&target)?;
    println!(
        "released file               {:8.1} MB   (at most {} MB)",
        size as f64 / 1e6,
        MAX_PROGRAM / 1_000_000
    );
    measure(&plan, &target)?;
    within(size, MAX_PROGRAM)
}

fn measure(plan: &Plan, target: &Path) -> Result<()> {
    let load = Load {
        program: target.join("examples/load"),
    };
    let data = std::env::temp_dir().join(format!("countersign-bench-{}", std::process::id()));
    match plan.only {
        Some(Only::Kubernetes) => {
            return measured_in(&data, || at_kubernetes(plan, &load, target, &data));
        }
        Some(Only::Cluster) => {
            return measured_in(&data, || in_a_cluster(plan, &load, target, &data));
        }
        Some(Only::Operator) => {
            return measured_in(&data, || by_the_operator(plan, target, &data));
        }
        None => {}
    }

    let raw = load.run(&["raw"])?;
    let raw_us = number(&raw, "raw_p256_verify_and_sign_us")?;
    let raw_rsa = number(&raw, "raw_rsa4096_sign_per_second")?;
    println!("raw P-256 verify + sign     {raw_us:8.1} us   (one core, no I/O)");
    let raw_rsa_all = number(&raw, "raw_rsa4096_sign_per_second_all_cores")?;
    let cores = number(&raw, "cores")?;
    println!(
        "raw RSA-4096 sign           {raw_rsa:8.0} /s   (one core; {raw_rsa_all:.0} on {cores})"
    );

    measured_in(&data, || {
        let server = Server::start(target, &data.join("p256"), "p256", "off")?;
        let url = format!("server={}", server.url);
        let pid = format!("pid={}", server.child.id());
        let enrol = |fresh: &str, connections: usize, count: usize| {
            let options = [
                format!("count={count}"),
                format!("connections={connections}"),
                format!("fresh={fresh}"),
                format!("prefix=f-{fresh}-{connections}"),
            ];
            let [count, connections, fresh, prefix] = &options;
            load.run(&["enrol", &url, &pid, count, connections, fresh, prefix])
        };
        // The first enrolments warm caches and grow the database's first pages.
        load.run(&["enrol", &url, "count=1000", "prefix=warm"])?;
        let mut rate = 0.0;
        for connections in [16, 32, 64] {
            let kept = enrol("never", connections, plan.enrolments)?;
            let cpu = number(&kept, "server_cpu_us")?;
            rate = number(&kept, "per_second")?;
            println!(
                "enrolment, {connections} kept alive    {rate:8.0} /s   server CPU {cpu:.0} us = {:.1} x raw, p50 {:.1} ms, p99 {:.1} ms",
                cpu / raw_us,
                number(&kept, "p50_ms")?,
                number(&kept, "p99_ms")?
            );
        }
        let count = format!("count={}", plan.enrolments / 4);
        let shakes = load.run(&["handshake", &url, &count, "connections=32"])?;
        let shakes = number(&shakes, "per_second")?;
        println!("TLS handshake alone         {shakes:8.0} /s");
        let fresh = number(&enrol("enrolment", 32, plan.enrolments / 4)?, "per_second")?;
        println!(
            "enrolment, fresh connection {fresh:8.0} /s   {:.0} % of the handshakes alone",
            100.0 * fresh / shakes
        );
        // As agents come: each call is a process or at least a connection of its own.
        let calls = enrol("call", 32, plan.enrolments / 4)?;
        let (each, cpu) = (
            number(&calls, "per_second")?,
            number(&calls, "server_cpu_us")?,
        );
        println!(
            "enrolment, one for PUT and one for GET {each:8.0} /s   server CPU {cpu:.0} us; its connections are {:.0} % of the handshakes alone",
            100.0 * 2.0 * each / shakes
        );
        for (what, path) in [
            (
                "GET certificate",
                "/puppet-ca/v1/certificate/f-never-16-1.load.example.com",
            ),
            ("GET CRL", "/puppet-ca/v1/certificate_revocation_list/ca"),
        ] {
            let path = format!("path={path}");
            let got = load.run(&["get", &url, &path, &format!("count={}", plan.enrolments)])?;
            println!("{what:27} {:8.0} /s", number(&got, "per_second")?);
        }
        drop(server);

        let server = Server::start(target, &data.join("rsa"), "rsa4096", "off")?;
        let url = format!("server={}", server.url);
        load.run(&["enrol", &url, "count=200", "prefix=warm"])?;
        let count = format!("count={}", plan.enrolments / 10);
        let rsa = number(
            &load.run(&["enrol", &url, &count, "prefix=rsa"])?,
            "per_second",
        )?;
        println!(
            "enrolment, RSA-4096 issuer  {rsa:8.0} /s   {:.0} % of what {cores} cores sign",
            100.0 * rsa / raw_rsa_all
        );
        drop(server);
        bench_scale::run(&load, target, &data.join("large"), plan.certificates)?;
        bench_scale::a_million(&load, target, &data.join("million"), plan.million)?;
        at_kubernetes(plan, &load, target, &data)?;
        in_a_cluster(plan, &load, target, &data)?;
        by_the_operator(plan, target, &data)?;

        for (turn, url) in plan.against.iter().enumerate() {
            let prefix = format!("prefix=against-{}-{turn}", std::process::id());
            let server = format!("server={url}");
            let count = format!("count={}", plan.enrolments / 20);
            let other = load.run(&["enrol", &server, &count, &prefix, "connections=64"])?;
            let theirs = number(&other, "per_second")?;
            println!(
                "against {url}: {theirs:.0} /s; kept alive, this authority is {:.1} x",
                rate / theirs
            );
        }
        Ok(())
    })
}

fn at_kubernetes(plan: &Plan, load: &Load, target: &Path, data: &Path) -> Result<()> {
    let data = data.join("kubernetes");
    bench_kubernetes::run(load, target, &data, plan.enrolments / 2)
}

fn in_a_cluster(plan: &Plan, load: &Load, target: &Path, data: &Path) -> Result<()> {
    bench_cluster::run(load, target, &data.join("cluster"), plan.enrolments / 4)
}

fn by_the_operator(plan: &Plan, target: &Path, data: &Path) -> Result<()> {
    bench_operator::run(target, &data.join("operator"), plan.enrolments / 20)
}

/// Removes the folder when all is measured.
fn measured_in(data: &Path, measure: impl FnOnce() -> Result<()>) -> Result<()> {
    let results = measure();
    let removed = std::fs::remove_dir_all(data);
    results.and(removed.context("cannot remove the benchmark's folder"))
}

struct Plan {
    enrolments: usize,
    /// How many the long ledger has.
    certificates: usize,
    /// How many the ledger has that is filled for the purpose.
    million: usize,
    against: Vec<String>,
    only: Option<Only>,
}

/// One door alone.
#[derive(Clone, Copy)]
enum Only {
    Kubernetes,
    Cluster,
    Operator,
}

impl Plan {
    fn parse(args: &[String]) -> Result<Self> {
        let mut plan = Self {
            enrolments: 20_000,
            certificates: 100_000,
            million: 1_000_000,
            against: Vec::new(),
            only: None,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => {
                    plan.enrolments = 4_000;
                    plan.certificates = 10_000;
                    plan.million = 50_000;
                }
                "--kubernetes" => plan.only = Some(Only::Kubernetes),
                "--cluster" => plan.only = Some(Only::Cluster),
                "--operator" => plan.only = Some(Only::Operator),
                "--against" => {
                    let url = args
                        .next()
                        .context("--against needs a URL, such as https://localhost:8140")?;
                    ensure!(
                        url.contains("://"),
                        "--against {url}: a URL begins with https:// or http://"
                    );
                    plan.against.push(url.clone());
                }
                other => {
                    bail!(
                        "bench: unknown argument '{other}'; it takes --quick, --kubernetes, --cluster or --operator (that alone) and --against URL"
                    )
                }
            }
        }
        Ok(plan)
    }
}

/// Builds server and generator in release mode and returns the folder they are in.
fn build() -> Result<PathBuf> {
    for args in [
        ["build", "--release", "--package", "countersign"].as_slice(),
        &[
            "build",
            "--release",
            "--package",
            "countersign-testkit",
            "--example",
            "load",
            "--example",
            "api_server",
            "--example",
            "cluster",
        ],
        &[
            "build",
            "--release",
            "--package",
            "countersign-store",
            "--example",
            "fill",
        ],
    ] {
        let status = Command::new("cargo")
            .args(args)
            .status()
            .context("cannot run cargo")?;
        ensure!(status.success(), "cargo {} failed", args.join(" "));
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    Ok(target.join("release"))
}

/// How many bytes the program has that users get.
fn program_size(target: &Path) -> Result<u64> {
    let program = target.join("countersign");
    let file = std::fs::metadata(&program);
    let file = file.with_context(|| format!("cannot look at {}", program.display()))?;
    Ok(file.len())
}

fn within(size: u64, limit: u64) -> Result<()> {
    ensure!(
        size <= limit,
        "the released file has {size} bytes, and may have {limit}: look for a new dependency or feature with \
         `cargo tree --edges features --package countersign`"
    );
    Ok(())
}

/// What is downloaded and kept on every machine that runs a command of it. A quarter of it are names of functions, without
/// which a backtrace says nothing; a package may keep them in a file of their own.
const MAX_PROGRAM: u64 = 50_000_000;

/// The generator.
pub(crate) struct Load {
    program: PathBuf,
}

impl Load {
    pub(crate) fn run(&self, args: &[&str]) -> Result<Value> {
        let output = Command::new(&self.program)
            .args(args)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        ensure!(output.status.success(), "load {} failed", args.join(" "));
        serde_json::from_slice(&output.stdout).context("load printed no JSON")
    }
}

pub(crate) fn number(value: &Value, key: &str) -> Result<f64> {
    value
        .get(key)
        .and_then(Value::as_f64)
        .with_context(|| format!("load did not report {key}"))
}

/// An authority of our own that signs everything; stopped when dropped.
pub(crate) struct Server {
    child: Child,
    url: String,
    data: PathBuf,
}

impl Server {
    /// With such an issuer's key, and the Kubernetes door there, or `off`.
    pub(crate) fn start(target: &Path, data: &Path, key: &str, kubernetes: &str) -> Result<Self> {
        std::fs::create_dir_all(data)?;
        let (config, folder) = (data.join("bench.yaml"), data.join("data"));
        std::fs::write(
            &config,
            format!(
                "issuers:\n  puppet:\n    key: {key}\nlimits:\n  csr_per_minute_per_source: 0\n  pending_per_source: 0\n"
            ),
        )?;
        let mut child = Command::new(target.join("countersign"))
            .arg("serve")
            .arg("--config")
            .arg(&config)
            .arg("--data")
            .arg(&folder)
            .args(["--listen", "127.0.0.1:0", "--kubernetes-listen", kubernetes])
            .args(["--hostname", "localhost", "--autosign", "true"])
            .env_remove("RUST_LOG")
            .stdout(Stdio::piped())
            // It logs as it does by default; where to is nobody's bottleneck.
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the server")?;
        let stdout = child.stdout.take().context("the server has no output")?;
        let ready = BufReader::new(stdout)
            .lines()
            .map_while(Result::ok)
            .find(|line| line.starts_with("ready"))
            .context("the server ended before it was ready")?;
        let url = ready
            .split_whitespace()
            .find_map(|word| word.strip_prefix("puppet="))
            .with_context(|| format!("no address in: {ready}"))?;
        Ok(Self {
            child,
            url: url.to_owned(),
            data: folder,
        })
    }

    /// The load generator's options for the administrator.
    pub(crate) fn administrator(&self) -> [String; 2] {
        let file = |name: &str| self.data.join("admin").join(name).display().to_string();
        [
            format!("cert={}", file("admin.pem")),
            format!("key={}", file("admin-key.pem")),
        ]
    }

    /// The administrator of the Kubernetes door.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data.join("admin/kubeconfig")
    }

    /// The load generator's option for where the Puppet door is.
    pub(crate) fn at(&self) -> String {
        format!("server={}", self.url)
    }

    /// What it is recognised by.
    pub(crate) fn trust(&self) -> PathBuf {
        self.data.join("admin/ca.pem")
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.data.join("countersign.db")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn resident_mib(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(&path).context("cannot read the server's memory")?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let words = line.map(str::split_whitespace);
        let kib: Option<u64> = words.and_then(|mut words| words.next()?.parse().ok());
        Ok(kib.with_context(|| format!("no VmRSS in {path}"))? / 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It is ours, it holds nothing anybody needs, and it survives this by design.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
