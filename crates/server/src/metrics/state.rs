//! What is asked when somebody looks: the store's figures, CRLs, the process.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use countersign_authority::store::Tally;
use countersign_authority::{Authority, IssuerId};
use countersign_pki::{Crl, UnixTime};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::kubernetes;
use crate::puppet::PuppetDoor;

use super::{Gauges, NamedLabel, registered};

/// Figures that are brought up to date before they are shown.
#[derive(Debug)]
pub struct StateMetrics {
    pending: Gauges<NamedLabel>,
    expiring: Gauges<NamedLabel>,
    active_tokens: Gauge,
    crl: CrlMetrics,
    process: ProcessMetrics,
    /// When the store was last asked; whoever holds it is asking.
    asked: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct CrlMetrics {
    number: Gauges<NamedLabel>,
    age: Gauges<NamedLabel>,
    this_update: Gauges<NamedLabel>,
    next_update: Gauges<NamedLabel>,
    entries: Gauges<NamedLabel>,
    /// The number of the list that was counted last.
    counted: Mutex<BTreeMap<IssuerId, u64>>,
}

#[derive(Debug)]
struct ProcessMetrics {
    resident: Gauge,
    open_files: Gauge,
}

impl StateMetrics {
    /// Registers them, for a process of this version that started at `started`.
    pub fn new(registry: &mut Registry, version: &'static str, started: UnixTime) -> Self {
        registry.register(
            "countersign_build",
            "The program that runs",
            Info::new([("version", version)]),
        );
        Self {
            pending: gauges(
                registry,
                "countersign_requests_pending",
                "Requests that wait for a decision, at most a minute ago",
            ),
            expiring: gauges(
                registry,
                "countersign_certificates_expiring",
                "Certificates in force that end within 30 days, at most a minute ago",
            ),
            active_tokens: registered(
                registry,
                "countersign_tokens_active",
                "Enrolment tokens that can be used, at most a minute ago",
                Gauge::default(),
            ),
            crl: CrlMetrics::new(registry),
            process: ProcessMetrics::new(registry, started),
            asked: tokio::sync::Mutex::new(None),
        }
    }

    /// Brings everything up to date. What cannot be had keeps its value.
    pub(crate) async fn refresh(&self, authority: Option<&Authority>) {
        if let Some(authority) = authority {
            self.refresh_tally(authority).await;
            self.crl.refresh(authority);
        }
        self.process.refresh();
    }

    async fn refresh_tally(&self, authority: &Authority) {
        // Two who look at once ask once.
        let mut asked = self.asked.lock().await;
        if asked.is_some_and(|at| at.elapsed() < TALLY_AGE) {
            return;
        }
        let figures = async { tokio::try_join!(authority.tally(SOON), authority.tokens.active()) };
        match timeout(PATIENCE, figures).await {
            Ok(Ok((tally, active_tokens))) => {
                self.show(authority, &tally);
                let active_tokens = i64::try_from(active_tokens).unwrap_or(i64::MAX);
                self.active_tokens.set(active_tokens);
                *asked = Some(Instant::now());
            }
            Ok(Err(error)) => warn!(%error, "the store's figures cannot be had"),
            Err(_) => warn!("the store's figures take too long"),
        }
    }

    fn show(&self, authority: &Authority, tally: &Tally) {
        // A door or issuer that is not in the answer has none.
        for door in [PuppetDoor::DOOR, kubernetes::DOOR] {
            let found = tally.pending.iter().find(|(of, _)| *of == door);
            let count = found.map_or(0, |(_, count)| *count);
            set(&self.pending, "door", door.as_str(), count);
        }
        for issuer in authority.issuers.all() {
            let name = issuer.id();
            let found = tally.expiring.iter().find(|(id, _)| id == name);
            let count = found.map_or(0, |(_, count)| *count);
            set(&self.expiring, "issuer", name.as_str(), count);
        }
    }
}

impl CrlMetrics {
    fn new(registry: &mut Registry) -> Self {
        let mut gauge = |name: &str, help: &str| gauges(registry, name, help);
        Self {
            number: gauge("countersign_crl_number", "The number of the published CRL"),
            age: gauge(
                "countersign_crl_age_seconds",
                "How long ago the published CRL was made",
            ),
            this_update: gauge(
                "countersign_crl_this_update_timestamp_seconds",
                "When the published CRL was made",
            ),
            next_update: gauge(
                "countersign_crl_next_update_timestamp_seconds",
                "Until when clients may rely on the published CRL",
            ),
            entries: gauge(
                "countersign_crl_entries",
                "Certificates on the published CRL",
            ),
            counted: Mutex::default(),
        }
    }

    fn refresh(&self, authority: &Authority) {
        let now = authority.now();
        for issuer in authority.issuers.all() {
            let (id, name) = (issuer.id(), issuer.id().as_str());
            let Some(crl) = authority.issuers.crl(id) else {
                continue;
            };
            let record = &crl.record;
            let seconds = |time: UnixTime| u64::try_from(time.0).unwrap_or(0);
            let age = u64::try_from(now.seconds_since(record.this_update)).unwrap_or(0);
            set(&self.number, "issuer", name, record.number);
            set(&self.age, "issuer", name, age);
            set(
                &self.this_update,
                "issuer",
                name,
                seconds(record.this_update),
            );
            set(
                &self.next_update,
                "issuer",
                name,
                seconds(record.next_update),
            );
            let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
            // A long list is read once, not for everybody who looks.
            if counted.get(id) != Some(&record.number)
                && let Ok(list) = Crl::parse(&record.der)
            {
                let entries = u64::try_from(list.serials().count()).unwrap_or(u64::MAX);
                set(&self.entries, "issuer", name, entries);
                counted.insert(id.clone(), record.number);
            }
        }
    }
}

impl ProcessMetrics {
    fn new(registry: &mut Registry, started: UnixTime) -> Self {
        let start: Gauge = registered(
            registry,
            "process_start_time_seconds",
            "When this process started",
            Gauge::default(),
        );
        start.set(started.0);
        Self {
            resident: registered(
                registry,
                "process_resident_memory_bytes",
                "Memory that this process has in use",
                Gauge::default(),
            ),
            open_files: registered(
                registry,
                "process_open_fds",
                "Files and sockets that this process has open",
                Gauge::default(),
            ),
        }
    }

    fn refresh(&self) {
        if let Some(bytes) = resident_bytes() {
            self.resident.set(bytes);
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            // The folder itself is open while it is read.
            let count = files.count().saturating_sub(1);
            self.open_files
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

/// proc(5): `VmRSS` of `/proc/self/status`, in kibibytes.
fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn gauges(registry: &mut Registry, name: &str, help: &str) -> Gauges<NamedLabel> {
    registered(registry, name, help, Family::default())
}

fn set(gauges: &Gauges<NamedLabel>, label: &'static str, name: &str, value: u64) {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    gauges.get_or_create(&[(label, name.to_owned())]).set(value);
}

/// The store's figures are not asked for more often.
const TALLY_AGE: Duration = Duration::from_secs(60);
/// Whoever looks shall not wait for a store that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Thirty days.
const SOON: u64 = 30 * 86_400;
