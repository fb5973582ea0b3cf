//! `countersign serve`: puts the parts together, runs them, and takes them down again.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use countersign_authority::{
    Authority, AuthorityConfig, Clock, Executables, IssuerId, Limits, Store, SystemClock,
};
use countersign_keys::SystemEntropy;
use countersign_pki::UnixTime;
use countersign_policy::SignerName;
use countersign_server::{
    Listener, ListenerConfig, OnBadCertificate, RequestLimits, RequestRates, Timeouts, TlsIdentity,
    enrol, kubernetes, puppet,
};
use countersign_store::SqliteStore;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};
use tracing_subscriber::EnvFilter;

use crate::config::{Autosign, LimitsSection, Listen, Log, LogFormat};
use crate::data_folder::{DataFolder, Openness, Secrecy, ServerFile, write};
use crate::first_start::{self, Issuers};
use crate::settings::Settings;
use crate::{output, signers, upkeep};

/// Runs the authority until it is told to stop.
pub(crate) async fn run(settings: Settings) -> Result<()> {
    start_logging(&settings.config.log)?;
    for warning in &settings.remarks.warnings {
        warn!("{warning}");
    }
    for detail in &settings.remarks.details {
        debug!("{detail}");
    }
    // From here on a signal asks for an orderly end, also while the first start is under way.
    let mut signals = Signals::new()?;
    let service = tokio::select! {
        service = Service::start(&settings) => service?,
        () = signals.next() => return Ok(()),
    };
    if let Err(error) = service.announce(&settings) {
        // A closed standard output is no reason not to serve.
        warn!(%error, "cannot say that the service is ready");
    }
    signals.next().await;
    info!("stopping");
    tokio::select! {
        () = service.stop() => {}
        // Whoever asks twice does not want to wait. Nothing acknowledged is lost.
        () = signals.next() => {}
    }
    Ok(())
}

/// A running authority.
struct Service {
    addresses: ServerFile,
    is_first_start: bool,
    authority: Authority,
    folder: DataFolder,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Service {
    async fn start(settings: &Settings) -> Result<Self> {
        let folder = &settings.folder;
        if folder.create()? == Openness::Open {
            let folder = folder.root().display();
            warn!("others can read the names of files in {folder}: run `chmod 700 {folder}`");
        }
        // Opened first: its lock keeps a second process from starting on the same directory.
        let store = SqliteStore::open(&folder.database())?;
        let is_first_start = folder.server()?.is_none() && store.epoch().await? == 0;
        let store: Arc<dyn Store> = Arc::new(store);
        let (connections, files_before) = open_files(&settings.config.limits);
        let authority = start_authority(settings, store).await?;
        authority.set_executables(executables(settings, files_before));
        serve_infra_crl(settings, &authority).await?;
        upkeep::write_crls(&authority, folder)?;

        let puppet_identity = first_start::puppet_credentials(&authority, settings).await?;
        let limits = request_limits(settings);
        let place = Place {
            authority: &authority,
            limits: &limits,
            connections,
            per_source: Some(settings.config.limits.connections_per_source).filter(|n| *n > 0),
        };
        let puppet = bind_puppet(settings, place, &puppet_identity).await?;
        let mut addresses = ServerFile {
            puppet: url(puppet.address()?),
            kubernetes: None,
            certname: settings.names.certname.clone(),
        };
        let mut listeners = vec![puppet];
        if let Listen::On(address) = settings.config.kubernetes.listen {
            let (server, admin) = first_start::kubernetes_credentials(&authority, settings).await?;
            let listener = bind_kubernetes(address, place, &server).await?;
            let url = url(listener.address()?);
            first_start::write_kubeconfig(&authority, folder, &url, &admin)?;
            addresses.kubernetes = Some(url);
            listeners.push(listener);
        }
        warn_of_autosigning(settings);

        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        upkeep::start(&authority, folder, &tasks, &stop);
        for listener in listeners {
            tasks.spawn(listener.serve(stop.clone()));
        }
        write_server_file(folder, &addresses)?;
        Ok(Self {
            addresses,
            is_first_start,
            authority,
            folder: folder.clone(),
            tasks,
            stop,
        })
    }

    /// Says on standard output what was made, if this was the first start, and that the service is ready.
    fn announce(&self, settings: &Settings) -> Result<()> {
        if self.is_first_start {
            output::line(&welcome(&settings.folder, &self.addresses))?;
        }
        let mut ready = format!("ready puppet={}", self.addresses.puppet);
        if let Some(url) = &self.addresses.kubernetes {
            write!(ready, " kubernetes={url}")?;
        }
        Ok(output::line(&ready)?)
    }

    async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        // The last requests may have revoked something after the task that writes the CRLs had ended.
        if let Err(error) = upkeep::write_crls(&self.authority, &self.folder) {
            warn!(error = %format!("{error:#}"), "the CRL files were not written");
        }
    }
}

pub(crate) async fn start_authority(
    settings: &Settings,
    store: Arc<dyn Store>,
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
    Authority::start(config)
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

/// How policy executables are run.
fn executables(settings: &Settings, open_files: Option<u64>) -> Executables {
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
    /// Of one address at each listener; `None`: a share.
    per_source: Option<usize>,
}

impl Place<'_> {
    fn furnish(self, listener: Listener) -> Listener {
        match self.per_source {
            Some(per_source) => listener.with_connections_per_source(per_source),
            None => listener,
        }
    }
}

fn request_limits(settings: &Settings) -> RequestLimits {
    let limits = &settings.config.limits;
    RequestLimits::new(RequestRates {
        per_source: limits.csr_per_minute_per_source,
        per_certname: limits.csr_per_minute_per_certname,
    })
}

async fn bind_puppet(
    settings: &Settings,
    place: Place<'_>,
    identity: &TlsIdentity,
) -> Result<Listener> {
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
    let listener = Listener::bind(authority.clone(), router, config).await?;
    Ok(place.furnish(listener))
}

fn renewals(settings: &Settings) -> puppet::Renewals {
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
    let listener = Listener::bind(authority.clone(), router, config).await?;
    Ok(place.furnish(listener))
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

fn write_server_file(folder: &DataFolder, addresses: &ServerFile) -> Result<()> {
    let mut text = serde_json::to_string_pretty(addresses)?;
    text.push('\n');
    write(&folder.server_file(), text.as_bytes(), Secrecy::Public)?;
    Ok(())
}

fn warn_of_autosigning(settings: &Settings) {
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
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("https://{}", SocketAddr::new(host, address.port()))
}

/// What the first start has made, and what to do next.
fn welcome(folder: &DataFolder, addresses: &ServerFile) -> String {
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
    let mut text = format!(
        "\
Created a certificate authority in {root}:
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

pub(crate) fn start_logging(log: &Log) -> Result<()> {
    let level = std::env::var(EnvFilter::DEFAULT_ENV)
        .ok()
        .filter(|level| !level.is_empty());
    let level = level.as_ref().unwrap_or(&log.level);
    let filter = EnvFilter::try_new(level)
        .with_context(|| format!("log level {level:?} cannot be understood"))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match log.format {
        LogFormat::Text => lines
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .init(),
        LogFormat::Json => lines.json().init(),
    }
    Ok(())
}

/// The signals that end the service.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot wait for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
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
