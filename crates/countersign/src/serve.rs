//! `countersign serve`: puts the parts together, runs them, and takes them down again.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use countersign_authority::{
    Authority, AuthorityConfig, Clock, Executables, IssuerId, Limits, Revision, Store, SystemClock,
    Telemetry,
};
use countersign_keys::SystemEntropy;
use countersign_pki::UnixTime;
use countersign_policy::SignerName;
use countersign_server::metrics::{
    Doorway, EngineMetrics, Registry, ReloadMetrics, StateMetrics, TrafficMetrics,
};
use countersign_server::{
    Listener, ListenerConfig, ListenerFault, Monitor, OnBadCertificate, RequestLimits,
    RequestRates, Timeouts, TlsIdentity, enrol, kubernetes, puppet,
};
use countersign_store::SqliteStore;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::cli::ServeArgs;
use crate::config::{Autosign, LimitsSection, Listen};
use crate::data_folder::{DataFolder, Openness, Secrecy, ServerFile, write};
use crate::first_start::{self, Issuers};
use crate::logging::LogLevel;
use crate::reload::{Live, Running};
use crate::settings::Settings;
use crate::{logging, output, service_manager, signers, upkeep};

/// Runs the authority until it is told to stop.
pub(crate) async fn run(args: ServeArgs, settings: Settings) -> Result<()> {
    let log = logging::start(&settings.config.log)?;
    say_remarks(&settings);
    // From here on a signal asks for an orderly end, also while the first start is under way.
    let mut signals = Signals::new()?;
    let service = tokio::select! {
        service = Service::start(args, settings, log) => service?,
        () = signals.end() => return Ok(()),
    };
    if let Err(error) = service.announce() {
        // A closed standard output is no reason not to serve.
        warn!(%error, "cannot say that the service is ready");
    }
    service_manager::ready(&service.addresses.status());
    while let Asked::Reload = signals.next().await {
        service_manager::reloading();
        tokio::select! {
            () = service.live.reload() => {}
            () = signals.end() => break,
        }
        service_manager::ready(&service.addresses.status());
    }
    info!("stopping");
    service_manager::stopping();
    tokio::select! {
        () = service.stop() => {}
        // Whoever asks twice does not want to wait. Nothing acknowledged is lost.
        () = signals.end() => {}
    }
    Ok(())
}

/// A running authority.
struct Service {
    addresses: ServerFile,
    is_first_start: bool,
    /// Whether `ca setup` or `ca import` has made the authority, and no start.
    was_there: bool,
    authority: Authority,
    folder: DataFolder,
    live: Arc<Live>,
    tasks: TaskTracker,
    stop: CancellationToken,
    watched: Watched,
}

impl Service {
    async fn start(args: ServeArgs, settings: Settings, log: LogLevel) -> Result<Self> {
        let counters = Counters::new(&settings);
        // Listens first, so that whoever waits for the rest is told what is missing.
        let folder = &settings.folder;
        let watched = Watched::start(settings.config.metrics.listen, &counters.monitor).await;
        if watched.is_err() && folder.database().try_exists()? {
            // The lock of a server that runs here already says more than its address does.
            SqliteStore::open(&folder.database())?;
        }
        let watched = watched?;
        if folder.create()? == Openness::Open {
            let folder = folder.root().display();
            warn!("others can read the names of files in {folder}: run `chmod 700 {folder}`");
        }
        // Opened first: its lock keeps a second process from starting on the same directory.
        let store = SqliteStore::open_observed(&folder.database(), counters.engine())?;
        let is_first_start = folder.server()?.is_none() && store.epoch().await? == 0;
        let first_act = store.audit(Revision::default(), 1).await?;
        let was_there = first_act.iter().any(|(_, entry)| entry.action == "import");
        let store: Arc<dyn Store> = Arc::new(store);
        let (connections, files_before) = open_files(&settings.config.limits);
        let authority = start_authority(&settings, store, counters.engine()).await?;
        authority.set_executables(executables(&settings, files_before));
        serve_infra_crl(&settings, &authority).await?;
        upkeep::write_crls(&authority, folder)?;

        let puppet_identity = first_start::puppet_credentials(&authority, &settings).await?;
        let limits = RequestLimits::new(request_rates(&settings));
        let place = Place {
            authority: &authority,
            limits: &limits,
            connections,
            per_source: Some(settings.config.limits.connections_per_source).filter(|n| *n > 0),
            traffic: &counters.traffic,
        };
        let (door, puppet) = bind_puppet(&settings, place, &puppet_identity).await?;
        let mut addresses = ServerFile {
            puppet: url(puppet.address()?),
            kubernetes: None,
            metrics: watched.url.clone(),
            certname: settings.names.certname.clone(),
        };
        let puppet_identity = puppet.identity();
        let mut kubernetes_identity = None;
        let mut listeners = vec![puppet];
        if let Listen::On(address) = settings.config.kubernetes.listen {
            let (server, admin) =
                first_start::kubernetes_credentials(&authority, &settings).await?;
            let listener = bind_kubernetes(address, place, &server).await?;
            let url = url(listener.address()?);
            first_start::write_kubeconfig(&authority, folder, &url, &admin)?;
            addresses.kubernetes = Some(url);
            kubernetes_identity = Some(listener.identity());
            listeners.push(listener);
        }
        warn_of_autosigning(&settings);

        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        upkeep::start(&authority, folder, &tasks, &stop);
        let (collection, rules) = watch::channel(settings.config.gc.collection());
        tasks.spawn(upkeep::collect(authority.clone(), rules, stop.clone()));
        tasks.spawn(service_manager::stay_alive(stop.clone()));
        for listener in listeners {
            tasks.spawn(listener.serve(stop.clone()));
        }
        write_server_file(folder, &addresses)?;
        counters.monitor.started(&authority);
        let folder = folder.clone();
        let live = Arc::new(Live {
            args,
            started: settings.config.clone(),
            authority: authority.clone(),
            puppet: door,
            limits,
            puppet_identity,
            kubernetes_identity,
            log,
            collection,
            files_before,
            metrics: counters.reloads,
            running: Mutex::new(Running {
                settings,
                addresses: addresses.clone(),
            }),
        });
        tasks.spawn(upkeep::renew_certificates(Arc::clone(&live), stop.clone()));
        Ok(Self {
            addresses,
            is_first_start,
            was_there,
            authority,
            folder,
            live,
            tasks,
            stop,
            watched,
        })
    }

    /// Says on standard output what was made, if this was the first start, and that the service is ready.
    fn announce(&self) -> Result<()> {
        if self.is_first_start {
            output::line(&welcome(&self.folder, &self.addresses, self.was_there))?;
        }
        Ok(output::line(&format!("ready {}", self.addresses.status()))?)
    }

    async fn stop(self) {
        self.watched.monitor.stopping();
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        // The last requests may have revoked something after the task that writes the CRLs had ended.
        if let Err(error) = upkeep::write_crls(&self.authority, &self.folder) {
            warn!(error = %format!("{error:#}"), "the CRL files were not written");
        }
        self.watched.stop().await;
    }
}

/// Everything that counts.
struct Counters {
    engine: Arc<EngineMetrics>,
    traffic: TrafficMetrics,
    reloads: ReloadMetrics,
    monitor: Monitor,
}

impl Counters {
    fn new(settings: &Settings) -> Self {
        let mut registry = Registry::default();
        let issuers = settings.issuers.iter().map(|issuer| issuer.id.clone());
        let engine = EngineMetrics::new(&mut registry, issuers);
        let traffic = TrafficMetrics::new(&mut registry);
        let reloads = ReloadMetrics::new(&mut registry);
        let version = env!("CARGO_PKG_VERSION");
        let state = StateMetrics::new(&mut registry, version, SystemClock.now());
        Self {
            engine: Arc::new(engine),
            traffic,
            reloads,
            monitor: Monitor::new(registry, state),
        }
    }

    fn engine(&self) -> Arc<dyn Telemetry> {
        Arc::clone(&self.engine) as Arc<dyn Telemetry>
    }
}

/// The listener for those who watch. It is the first to answer and the last to end.
struct Watched {
    monitor: Monitor,
    url: Option<String>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Watched {
    async fn start(listen: Listen, monitor: &Monitor) -> Result<Self> {
        let mut watched = Self {
            monitor: monitor.clone(),
            url: None,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        if let Listen::On(address) = listen {
            let bound = monitor.bind(address).await;
            let listener = bound.map_err(|fault| advised(fault, "--metrics-listen"))?;
            if !address.ip().is_loopback() {
                warn!(%address, "metrics are shown to everybody who reaches the address: they name doors, issuers and rules");
            }
            watched.url = Some(format!("http://{}", reachable(listener.address()?)));
            watched.tasks.spawn(listener.serve(watched.stop.clone()));
        }
        Ok(watched)
    }

    async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl ServerFile {
    /// Where everything is, in one line.
    fn status(&self) -> String {
        let mut line = format!("puppet={}", self.puppet);
        for (name, url) in [("kubernetes", &self.kubernetes), ("metrics", &self.metrics)] {
            if let Some(url) = url {
                line.push_str(&format!(" {name}={url}"));
            }
        }
        line
    }
}

pub(crate) async fn start_authority(
    settings: &Settings,
    store: Arc<dyn Store>,
    telemetry: Arc<dyn Telemetry>,
) -> Result<Authority> {
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let prepared = Issuers::prepare(settings, &*store, &*clock, &*entropy).await?;
    let config = AuthorityConfig {
        store,
        keys: prepared.keys,
        clock,
        entropy,
        issuers: prepared.issuers,
        signers: signers::all(&settings.config)?,
        policy: signers::policy(&settings.config, &settings.names)?,
        limits: Limits {
            pending_per_source: settings.config.limits.pending_per_source,
            ..Limits::STANDARD
        },
    };
    Authority::start_observed(config, telemetry)
        .await
        .context("the authority cannot start")
}

/// Where the configuration says so, agents are given the CRL of the site's own machines.
async fn serve_infra_crl(settings: &Settings, authority: &Authority) -> Result<()> {
    if !settings.config.puppet.infra_crl {
        return Ok(());
    }
    let issuer = IssuerId::parse(signers::PUPPET_ISSUER)?;
    let configured = settings.config.puppet.infra_inventory.clone();
    let inventory = configured.unwrap_or_else(|| settings.folder.infra_inventory());
    authority
        .serve_infra_crl(&issuer, inventory)
        .await
        .context("the infrastructure CRL cannot be made")
}

/// What was noticed while the configuration was read, now that there is a log.
pub(crate) fn say_remarks(settings: &Settings) {
    for warning in &settings.remarks.warnings {
        warn!("{warning}");
    }
    for detail in &settings.remarks.details {
        debug!("{detail}");
    }
}

/// How policy executables are run.
pub(crate) fn executables(settings: &Settings, open_files: Option<u64>) -> Executables {
    let section = &settings.config.puppet.autosign_executable;
    Executables {
        seconds: section.timeout.as_seconds(),
        at_once: section.concurrency.get(),
        environment: section.environment.clone(),
        open_files,
    }
}

/// How long listeners wait: a server that ends waits for the slowest policy executable.
fn timeouts(settings: &Settings) -> Timeouts {
    let executable = settings.config.puppet.autosign_executable.timeout;
    let slowest = Duration::from_secs(executable.as_seconds().saturating_add(5));
    Timeouts {
        drain: Timeouts::STANDARD.drain.max(slowest),
        ..Timeouts::STANDARD
    }
}

/// What listeners stand on, and have in common.
#[derive(Clone, Copy)]
struct Place<'a> {
    authority: &'a Authority,
    /// Counted over all doors.
    limits: &'a RequestLimits,
    /// Of each listener.
    connections: usize,
    traffic: &'a TrafficMetrics,
    /// Of one address at each listener; `None`: a share.
    per_source: Option<usize>,
}

impl Place<'_> {
    fn furnish(self, listener: Listener, doorway: Doorway) -> Listener {
        let listener = listener.counted(self.traffic.listener(doorway));
        match self.per_source {
            Some(per_source) => listener.with_connections_per_source(per_source),
            None => listener,
        }
    }
}

pub(crate) fn request_rates(settings: &Settings) -> RequestRates {
    let limits = &settings.config.limits;
    RequestRates {
        per_source: limits.csr_per_minute_per_source,
        per_certname: limits.csr_per_minute_per_certname,
    }
}

async fn bind_puppet(
    settings: &Settings,
    place: Place<'_>,
    identity: &TlsIdentity,
) -> Result<(puppet::PuppetDoor, Listener)> {
    let authority = place.authority;
    let issuer = IssuerId::parse(signers::PUPPET_ISSUER)?;
    let signer = SignerName::parse(signers::PUPPET_AGENT)?;
    let written = modified(&settings.folder.issuer(&issuer, "ca_crt.pem"));
    let door = puppet::PuppetDoor::new(authority.clone(), issuer.clone(), signer, written)?
        .with_renewals(renewals(settings))
        .with_requests_shown(match settings.config.puppet.public_csr {
            true => puppet::RequestsShown::ToAnybody,
            false => puppet::RequestsShown::ToTheirOwn,
        })
        .with_max_request(settings.config.limits.csr_bytes);
    let native = enrol::EnrolDoor::new(authority.clone(), issuer.clone())
        .with_administrators(SignerName::parse(signers::PUPPET_ADMIN)?);
    let router = door
        .clone()
        .router_within(place.limits.clone())
        .merge(enrol::router(native));
    let config = ListenerConfig {
        address: settings.config.listen,
        issuer,
        identity,
        on_bad_certificate: OnBadCertificate::FailHandshake,
        connections: place.connections,
        timeouts: timeouts(settings),
    };
    let bound = Listener::bind(authority.clone(), router, config).await;
    let listener = bound.map_err(|fault| advised(fault, "--listen"))?;
    Ok((door, place.furnish(listener, Doorway::Puppet)))
}

pub(crate) fn renewals(settings: &Settings) -> puppet::Renewals {
    let section = &settings.config.puppet;
    if section.auto_renewal {
        let lifetime = section.auto_renewal_cert_ttl.as_seconds();
        puppet::Renewals::Granted { lifetime }
    } else {
        puppet::Renewals::Refused
    }
}

async fn bind_kubernetes(
    address: SocketAddr,
    place: Place<'_>,
    identity: &TlsIdentity,
) -> Result<Listener> {
    let authority = place.authority;
    let issuer = IssuerId::parse(signers::KUBERNETES_ISSUER)?;
    let door = kubernetes::KubernetesDoor {
        authority: authority.clone(),
        issuer: issuer.clone(),
    };
    let router = door.router_within(place.limits.clone());
    let config = ListenerConfig {
        address,
        issuer,
        identity,
        on_bad_certificate: OnBadCertificate::TreatAsUnknown,
        connections: place.connections,
        timeouts: Timeouts::STANDARD,
    };
    let bound = Listener::bind(authority.clone(), router, config).await;
    let listener = bound.map_err(|fault| advised(fault, "--kubernetes-listen"))?;
    Ok(place.furnish(listener, Doorway::Kubernetes))
}

/// Why a listener does not listen, and what helps.
fn advised(fault: ListenerFault, flag: &str) -> anyhow::Error {
    match fault {
        ListenerFault::Bind { address, source } if source.kind() == ErrorKind::AddrInUse => {
            anyhow!(
                "cannot listen on {address}, the address is in use: choose another {flag}, or stop what listens there"
            )
        }
        other => other.into(),
    }
}

/// How many connections a listener may hold, and how many open files this process was meant to have. The limit of open
/// files is raised as far as the system lets us, and two listeners leave a third of it, and some, to the store and its
/// files.
fn open_files(limits: &LimitsSection) -> (usize, Option<u64>) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let files = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(error) => {
            warn!(%error, "the limit of open files stays as it is");
            current
        }
    };
    let share = share_of(files);
    let connections = match limits.connections {
        0 => share,
        configured if configured > share => {
            warn!(
                configured,
                share, "limits.connections is more than the limit of open files allows"
            );
            share
        }
        configured => configured,
    };
    (connections, current)
}

/// A listener's share of so many open files; `None`: there is no limit.
fn share_of(files: Option<u64>) -> usize {
    let files = files.and_then(|files| usize::try_from(files).ok());
    let files = files.unwrap_or(usize::MAX);
    (files.saturating_sub(OTHER_FILES) / 3).clamp(MIN_CONNECTIONS, MAX_CONNECTIONS)
}

/// When a file was last written; now, if the file system does not say.
fn modified(path: &Path) -> UnixTime {
    let since = path.metadata().and_then(|facts| facts.modified()).ok();
    let since = since.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let seconds = since.and_then(|since| i64::try_from(since.as_secs()).ok());
    seconds.map_or_else(|| SystemClock.now(), UnixTime)
}

pub(crate) fn write_server_file(folder: &DataFolder, addresses: &ServerFile) -> Result<()> {
    let mut text = serde_json::to_string_pretty(addresses)?;
    text.push('\n');
    write(&folder.server_file(), text.as_bytes(), Secrecy::Public)?;
    Ok(())
}

pub(crate) fn warn_of_autosigning(settings: &Settings) {
    match settings.config.puppet.autosign {
        Autosign::Everything => {
            warn!(
                "autosign is true: whoever reaches the Puppet listener gets a certificate for any free name"
            );
        }
        Autosign::Nothing | Autosign::File(_) | Autosign::DefaultFile => {}
    }
}

/// How commands on this machine reach a listener.
fn url(address: SocketAddr) -> String {
    format!("https://{}", reachable(address))
}

fn reachable(address: SocketAddr) -> SocketAddr {
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(host, address.port())
}

/// What the first start has made, and what to do next.
fn welcome(folder: &DataFolder, addresses: &ServerFile, was_there: bool) -> String {
    let root = folder.root().display();
    let port = addresses.puppet.rsplit(':').next().unwrap_or("8140");
    // What works when it is typed as it stands, on this machine.
    let host = if addresses.puppet.starts_with("https://127.") || addresses.puppet.contains("[::1]")
    {
        "localhost"
    } else {
        &addresses.certname
    };
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "countersign".to_owned());
    let title = match was_there {
        true => format!("Took over the certificate authority that was in {root} already, with:"),
        false => format!("Created a certificate authority in {root}:"),
    };
    let mut text = format!(
        "\
{title}
  issuers    {root}/issuers
  server     {root}/tls, certname {certname}
  admin      {root}/admin/admin.pem and admin-key.pem, verified with ca.pem

Enrol a Puppet agent:
  puppet ssl bootstrap --server {host} --serverport {port} --certname NAME
  {program} csr list --data {root}
  {program} csr approve --data {root} NAME
",
        certname = addresses.certname,
    );
    if addresses.kubernetes.is_some() {
        text.push_str(&format!(
            "
Use the Kubernetes API:
  kubectl --kubeconfig {} get csr
",
            folder.admin("kubeconfig").display()
        ));
    }
    text
}

/// The signals that end the service, or make it read its configuration again.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal asks for.
enum Asked {
    Reload,
    End,
}

impl Signals {
    fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot wait for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::End,
            _ = self.interrupt.recv() => Asked::End,
            _ = self.hangup.recv() => Asked::Reload,
        }
    }

    async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The store, keys, logs, outgoing connections.
const OTHER_FILES: usize = 128;
const MIN_CONNECTIONS: usize = 64;
/// Bounds memory; more than any fleet opens at once to one authority.
const MAX_CONNECTIONS: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_rest() {
        for (files, connections) in [
            (Some(0), 64),
            (Some(256), 64),
            (Some(1024), 298),
            (Some(4096), 1322),
            (Some(1_048_576), 16_384),
            (None, 16_384),
        ] {
            assert_eq!(share_of(files), connections, "{files:?}");
        }
    }

    #[test]
    fn urls_can_be_reached_from_this_machine() {
        for (address, expected) in [
            ("127.0.0.1:8140", "https://127.0.0.1:8140"),
            ("0.0.0.0:1", "https://127.0.0.1:1"),
            ("[::]:1", "https://[::1]:1"),
            ("192.0.2.7:443", "https://192.0.2.7:443"),
        ] {
            assert_eq!(url(address.parse().unwrap()), expected);
        }
    }
}
