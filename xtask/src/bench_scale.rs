//! What a long ledger costs.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::bench::{Load, Server, number};

/// Listings, revocation beside many revoked, a start, memory; the ledger grows through the door.
#[expect(clippy::disallowed_methods, reason = "it measures time")]
pub(crate) fn run(load: &Load, target: &Path, data: &Path, count: usize) -> Result<()> {
    let server = Server::start(target, data, "p256", "off")?;
    let fill = [
        server.at(),
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
            server.at(),
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
    let url = server.at();
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

/// A ledger of a size that nobody would enrol through the door: start, memory, listings, and enrolments beside those at a
/// small one.
#[expect(clippy::disallowed_methods, reason = "it measures time")]
pub(crate) fn a_million(load: &Load, target: &Path, data: &Path, count: usize) -> Result<()> {
    let server = Server::start(target, data, "p256", "off")?;
    load.run(&[
        "enrol",
        &server.at(),
        "count=1",
        &format!("prefix={TEMPLATE}"),
    ])?;
    let server = filled(server, target, data, 0, SMALL)?;
    let small = enrolments(load, &server, "small")?;
    let server = filled(server, target, data, SMALL, count)?;
    drop(server);

    let begun = Instant::now();
    let server = Server::start(target, data, "p256", "off")?;
    println!(
        "{count} certificates:\nstart                       {:8.0} ms   resident {} MiB",
        begun.elapsed().as_secs_f64() * 1e3,
        server.resident_mib()?
    );
    let [cert, key] = server.administrator();
    let get = |path: &str, times: usize| {
        let (path, times) = (format!("path={path}"), format!("count={times}"));
        let who = [server.at(), cert.clone(), key.clone()];
        let [url, cert, key] = &who;
        load.run(&["get", url, cert, key, &path, &times, "connections=1"])
    };
    let page = get("/enrol/v1/certificates?limit=100", 100)?;
    println!(
        "list a page of 100          {:8.1} ms   {:.0} kB",
        number(&page, "p50_ms")?,
        number(&page, "bytes")? / 1e3
    );
    let all = get("/puppet-ca/v1/certificate_statuses/all", 1)?;
    println!(
        "list all                    {:8.1} s    {:.0} MB",
        number(&all, "p50_ms")? / 1e3,
        number(&all, "bytes")? / 1e6
    );
    let large = enrolments(load, &server, "large")?;
    println!(
        "enrolment, 32 kept alive    {large:8.0} /s   {:.0} % of the {small:.0} /s beside {SMALL}",
        100.0 * large / small
    );
    println!(
        "resident after that         {:8} MiB",
        server.resident_mib()?
    );
    Ok(())
}

/// The same authority with more certificates, when it has done what it does after a start: it seals what the audit log
/// has gained.
fn filled(server: Server, target: &Path, data: &Path, from: usize, to: usize) -> Result<Server> {
    let database = server.database();
    drop(server);
    let status = Command::new(target.join("examples/fill"))
        .arg(database)
        .arg(format!("{TEMPLATE}-0.load.example.com"))
        .args([from.to_string(), to.to_string()])
        .status()
        .context("cannot run fill")?;
    ensure!(status.success(), "fill failed");
    let server = Server::start(target, data, "p256", "off")?;
    wait_until_idle(server.pid())?;
    Ok(server)
}

fn enrolments(load: &Load, server: &Server, prefix: &str) -> Result<f64> {
    let enrol = |prefix: String, count: &str| {
        let prefix = format!("prefix={prefix}");
        load.run(&["enrol", &server.at(), &prefix, count, "connections=32"])
    };
    // The first warm caches.
    enrol(format!("{prefix}-warm"), "count=1000")?;
    number(&enrol(prefix.to_owned(), "count=5000")?, "per_second")
}

/// Until a process has used almost no processor time for a second.
#[expect(
    clippy::disallowed_methods,
    reason = "what another process has still to do, only its idleness tells"
)]
fn wait_until_idle(pid: u32) -> Result<()> {
    let mut before = ticks(pid)?;
    loop {
        thread::sleep(Duration::from_secs(1));
        let after = ticks(pid)?;
        if after.saturating_sub(before) < 3 {
            return Ok(());
        }
        before = after;
    }
}

/// Processor time so far, in hundredths of a second.
fn ticks(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = text.rsplit_once(") ").map(|(_, rest)| rest.split(' '));
    let used: Vec<u64> = fields
        .into_iter()
        .flatten()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    ensure!(used.len() == 2, "/proc/{pid}/stat has an unknown form");
    Ok(used.iter().sum())
}

/// The generator appends `-0`; the filler puts its own eight digits there.
const TEMPLATE: &str = "fill-000000";
const SMALL: usize = 10_000;
