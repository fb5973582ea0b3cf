//! The Kubernetes door beside the reference, kube-apiserver on etcd, in one run of `cargo xtask bench`.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::bench::{Load, Server, number};

/// Measures our door, then the reference if it was prepared, and prints the figures and their ratios.
pub(crate) fn run(load: &Load, target: &Path, data: &Path, objects: usize) -> Result<()> {
    let server = Server::start(target, data, "p256", "127.0.0.1:0")?;
    let kubeconfig = server.kubeconfig().display().to_string();
    let ours = Figures::measure(load, &kubeconfig, server.pid(), objects)?;
    drop(server);
    let theirs = match Reference::start(target)? {
        Some(reference) => {
            let pid = reference.child.id();
            Some(Figures::measure(load, &reference.kubeconfig, pid, objects)?)
        }
        None => None,
    };
    if theirs.is_none() {
        println!(
            "kube-apiserver              not prepared, so there is nothing to compare with; see cargo xtask setup"
        );
    }
    let theirs = theirs.map(|theirs| theirs.rows).unwrap_or_default();
    print_beside(&ours.rows, &theirs, "kube-apiserver");
    Ok(())
}

/// Prints figures beside those of the reference, as far as there are any.
pub(crate) fn print_beside(ours: &[Row], theirs: &[Row], reference: &str) {
    for (place, row) in ours.iter().enumerate() {
        let beside = theirs.get(place).map_or(String::new(), |other| {
            let gain = row.gain(other);
            format!(
                "   {reference} {:8.1} {}, {gain:.1} x",
                other.value, row.unit
            )
        });
        println!("{:27} {:8.1} {}{beside}", row.what, row.value, row.unit);
    }
}

struct Figures {
    rows: Vec<Row>,
}

pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
}

impl Row {
    /// How many times better: more of a rate, less of anything else.
    fn gain(&self, reference: &Self) -> f64 {
        match self.unit {
            "/s" => self.value / reference.value,
            _ => reference.value / self.value,
        }
    }
}

impl Figures {
    /// Of the API server that the kubeconfig names, whose processes are this one and those below it.
    fn measure(load: &Load, kubeconfig: &str, pid: u32, objects: usize) -> Result<Self> {
        let kubeconfig = format!("kubeconfig={kubeconfig}");
        let run = |what: &str, options: &[&str]| {
            let what = format!("kubernetes-{what}");
            load.run(&[&[what.as_str(), &kubeconfig], options].concat())
        };
        let half = format!("count={}", objects / 2);
        let outside = ["prefix=outside", "signer=example.com/elsewhere", &half];
        let signed = ["prefix=signed", &half];
        run(
            "create",
            &["prefix=warm", "count=200", "signer=example.com/elsewhere"],
        )?;
        let before = Usage::of(pid)?;

        let create = run("create", &outside)?;
        run("create", &signed)?;
        let approve = run("approve", &["prefix=outside"])?;
        let sign = run("approve", &["prefix=signed", "until=signed"])?;
        let after = Usage::of(pid)?;
        let whole = run("list", &["count=10"])?;
        let paged = run("list", &["count=10", "limit=500"])?;
        let fan_out = |options: &[&str]| {
            let watch = ["signer=example.com/elsewhere", "watchers=50"];
            run("watch", &[&watch, options].concat())
        };
        let rush = fan_out(&["prefix=rush", "count=2000"])?;
        let steady = fan_out(&["prefix=steady", "count=1000", "rate=100"])?;
        let row = |what, value, unit| Row { what, value, unit };
        Ok(Self {
            rows: vec![
                row("create", number(&create, "per_second")?, "/s"),
                row("create, p50", number(&create, "p50_ms")?, "ms"),
                row("approve", number(&approve, "per_second")?, "/s"),
                row("approve until signed", number(&sign, "per_second")?, "/s"),
                row(
                    "CPU time of all these",
                    after.cpu_seconds - before.cpu_seconds,
                    "s",
                ),
                row("resident after them", after.resident_mib, "MiB"),
                row("list, whole", number(&whole, "p50_ms")?, "ms"),
                row("list, pages of 500", number(&paged, "p50_ms")?, "ms"),
                row(
                    "events to 50 watchers",
                    number(&rush, "events_per_second")?,
                    "/s",
                ),
                row("last of 50 knows, p50", number(&steady, "p50_ms")?, "ms"),
                row("last of 50 knows, p99", number(&steady, "p99_ms")?, "ms"),
                row("resident in the end", Usage::of(pid)?.resident_mib, "MiB"),
            ],
        })
    }
}

/// kube-apiserver, etcd and kube-controller-manager; they end when this is dropped.
struct Reference {
    child: Child,
    kubeconfig: String,
}

impl Reference {
    /// `None`: it was not prepared.
    fn start(target: &Path) -> Result<Option<Self>> {
        let mut child = Command::new(target.join("examples/api_server"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the reference")?;
        let stdout = child.stdout.take().context("the reference has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let line = line.trim();
        if line.starts_with("missing") {
            child.wait()?;
            return Ok(None);
        }
        ensure!(!line.is_empty(), "the reference ended before it was ready");
        Ok(Some(Self {
            child,
            kubeconfig: line.to_owned(),
        }))
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// What a process and all below it have used.
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_mib: f64,
}

impl Usage {
    pub(crate) fn of(root: u32) -> Result<Self> {
        let mut processes = HashMap::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            // Another process may end meanwhile.
            let stat = fs::read_to_string(Path::new("/proc").join(&name).join("stat"));
            if let (Ok(pid), Ok(stat)) = (name.to_string_lossy().parse::<u32>(), stat)
                && let Some(process) = Process::read(&stat)
            {
                processes.insert(pid, process);
            }
        }
        let is_below = |mut pid: u32| {
            while let Some(process) = processes.get(&pid) {
                if pid == root {
                    return true;
                }
                pid = process.parent;
            }
            false
        };
        let mut pids: Vec<&u32> = processes.keys().collect();
        pids.sort_unstable();
        let mut usage = Self {
            cpu_seconds: 0.0,
            resident_mib: 0.0,
        };
        let own = pids.into_iter().filter(|pid| is_below(**pid));
        for process in own.filter_map(|pid| processes.get(pid)) {
            usage.cpu_seconds += process.ticks / TICKS_PER_SECOND;
            usage.resident_mib += process.pages * PAGE_KIB / 1024.0;
        }
        Ok(usage)
    }
}

struct Process {
    parent: u32,
    ticks: f64,
    pages: f64,
}

impl Process {
    /// From a line of `/proc/PID/stat`, behind the name in parentheses.
    fn read(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let number = |place: usize| fields.get(place)?.parse::<f64>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            ticks: number(11)? + number(12)?,
            pages: number(21)?,
        })
    }
}

/// On every Linux of our time.
const TICKS_PER_SECOND: f64 = 100.0;
const PAGE_KIB: f64 = 4.0;
