//! Load benchmarks: `cargo xtask bench [--quick] [--kubernetes] [--against URL ...]`.
//!
//! Raw cryptography, handshakes, enrolments and the Kubernetes door are measured in one run on one machine, so that their
//! ratios mean something where absolute figures do not.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::bench_kubernetes;

/// Runs the load benchmarks with the arguments after `bench`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let plan = Plan::parse(args)?;
    let target = build()?;
    let load = Load {
        program: target.join("examples/load"),
    };
    let data = std::env::temp_dir().join(format!("countersign-bench-{}", std::process::id()));
    if plan.is_kubernetes_only {
        return measured_in(&data, || at_kubernetes(&plan, &load, &target, &data));
    }

    let raw = load.run(&["raw"])?;
    let raw_us = number(&raw, "raw_p256_verify_and_sign_us")?;
    let raw_rsa = number(&raw, "raw_rsa4096_sign_per_second")?;
    println!("raw P-256 verify + sign     {raw_us:8.1} us   (one core, no I/O)");
    println!("raw RSA-4096 sign           {raw_rsa:8.0} /s   (one core)");

    measured_in(&data, || {
        let server = Server::start(&target, &data.join("p256"), "p256", "off")?;
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
            let kept = enrol("false", connections, plan.enrolments)?;
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
        let fresh = number(&enrol("true", 32, plan.enrolments / 4)?, "per_second")?;
        println!(
            "enrolment, fresh connection {fresh:8.0} /s   {:.0} % of the handshakes alone",
            100.0 * fresh / shakes
        );
        for (what, path) in [
            (
                "GET certificate",
                "/puppet-ca/v1/certificate/f-false-16-1.load.example.com",
            ),
            ("GET CRL", "/puppet-ca/v1/certificate_revocation_list/ca"),
        ] {
            let path = format!("path={path}");
            let got = load.run(&["get", &url, &path, &format!("count={}", plan.enrolments)])?;
            println!("{what:27} {:8.0} /s", number(&got, "per_second")?);
        }
        drop(server);

        let server = Server::start(&target, &data.join("rsa"), "rsa4096", "off")?;
        let url = format!("server={}", server.url);
        load.run(&["enrol", &url, "count=200", "prefix=warm"])?;
        let count = format!("count={}", plan.enrolments / 10);
        let rsa = number(
            &load.run(&["enrol", &url, &count, "prefix=rsa"])?,
            "per_second",
        )?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let cores = u32::try_from(cores).map_or(1.0, f64::from);
        println!(
            "enrolment, RSA-4096 issuer  {rsa:8.0} /s   {:.0} % of {cores} cores' raw signing rate",
            100.0 * rsa / (raw_rsa * cores)
        );
        drop(server);
        at_scale(&plan, &load, &target, &data.join("large"))?;
        at_kubernetes(&plan, &load, &target, &data)?;

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

/// Removes the folder when all is measured.
fn measured_in(data: &Path, measure: impl FnOnce() -> Result<()>) -> Result<()> {
    let results = measure();
    let removed = std::fs::remove_dir_all(data);
    results.and(removed.context("cannot remove the benchmark's folder"))
}

/// What a long ledger costs: listings, revocation beside many revoked, a start, memory.
#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn at_scale(plan: &Plan, load: &Load, target: &Path, data: &Path) -> Result<()> {
    let count = plan.certificates;
    let server = Server::start(target, data, "p256", "off")?;
    let fill = [
        format!("server={}", server.url),
        format!("count={count}"),
        "connections=64".to_owned(),
        "prefix=many".to_owned(),
    ];
    let [url, amount, connections, prefix] = &fill;
    let filled = load.run(&["enrol", url, amount, connections, prefix])?;
    println!(
        "enrolment of {count}       {:8.0} /s   resident {} MiB",
        number(&filled, "per_second")?,
        server.resident_mib()?
    );
    let revoked = count / 2;
    let revoke = |server: &Server, from: usize, count: usize, batch: usize| {
        let [url, from, count, batch] = [
            format!("server={}", server.url),
            format!("from={from}"),
            format!("count={count}"),
            format!("batch={batch}"),
        ];
        let [cert, key] = server.administrator();
        load.run(&["revoke", &url, &cert, &key, prefix, &from, &count, &batch])
    };
    let alone = number(&revoke(&server, count - 20, 20, 1)?, "p50_ms")?;
    revoke(&server, 0, revoked, 1000)?;
    let beside = number(&revoke(&server, count - 40, 20, 1)?, "p50_ms")?;
    println!(
        "revocation, p50             {alone:8.1} ms   {beside:.1} ms beside {revoked} revoked, whose list follows"
    );
    drop(server);

    let begun = Instant::now();
    let server = Server::start(target, data, "p256", "off")?;
    println!(
        "start                       {:8.0} ms   resident {} MiB",
        begun.elapsed().as_secs_f64() * 1e3,
        server.resident_mib()?
    );
    let url = format!("server={}", server.url);
    let [cert, key] = server.administrator();
    for (what, path, times) in [
        (
            "list all",
            "/puppet-ca/v1/certificate_statuses/all".to_owned(),
            5,
        ),
        (
            "list requested (none)",
            "/puppet-ca/v1/certificate_statuses/all?state=requested".to_owned(),
            100,
        ),
        (
            "list a page of 100",
            "/enrol/v1/certificates?limit=100".to_owned(),
            100,
        ),
        (
            "GET CRL",
            "/puppet-ca/v1/certificate_revocation_list/ca".to_owned(),
            100,
        ),
    ] {
        let (path, times) = (format!("path={path}"), format!("count={times}"));
        let got = load.run(&["get", &url, &cert, &key, &path, &times, "connections=1"])?;
        println!(
            "{what:27} {:8.1} ms   {:.0} kB",
            number(&got, "p50_ms")?,
            number(&got, "bytes")? / 1000.0
        );
    }
    println!(
        "resident after that         {:8} MiB",
        server.resident_mib()?
    );
    Ok(())
}

struct Plan {
    enrolments: usize,
    /// How many the long ledger has.
    certificates: usize,
    against: Vec<String>,
    is_kubernetes_only: bool,
}

impl Plan {
    fn parse(args: &[String]) -> Result<Self> {
        let mut plan = Self {
            enrolments: 20_000,
            certificates: 100_000,
            against: Vec::new(),
            is_kubernetes_only: false,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => {
                    plan.enrolments = 4_000;
                    plan.certificates = 10_000;
                }
                "--kubernetes" => plan.is_kubernetes_only = true,
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
                        "bench: unknown argument '{other}'; it takes --quick, --kubernetes (that door alone) and --against URL"
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
    fn administrator(&self) -> [String; 2] {
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

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn resident_mib(&self) -> Result<u64> {
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
