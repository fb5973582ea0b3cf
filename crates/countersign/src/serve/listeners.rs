//! The listeners of the doors: what they stand on, how they are bound, and how much each may hold.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Error, Result, anyhow};
use countersign_authority::{Authority, Clock as _, IssuerId, SystemClock};
use countersign_keys::private_file;
use countersign_pki::UnixTime;
use countersign_policy::SignerName;
use countersign_server::access::Access;
use countersign_server::enrol::PolicyState;
use countersign_server::foreman::{self, ForemanDoor, TrustedHosts};
use countersign_server::metrics::{Doorway, TrafficMetrics};
use countersign_server::{
    ForeignClients, Listener, ListenerConfig, ListenerFault, OnBadCertificate, RequestLimits,
    RequestRates, Timeouts, TlsIdentity, TrustedProxies, enrol, kubernetes, puppet,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tracing::warn;

use crate::config::{ForemanSection, LimitsSection, Listen};
use crate::settings::Settings;
use crate::signers;

/// What listeners stand on, and have in common.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub(super) authority: &'a Authority,
    /// Who has which role, at every door.
    pub(super) access: &'a Access,
    /// Counted over all doors.
    pub(super) limits: &'a RequestLimits,
    /// Of each listener.
    pub(super) connections: usize,
    pub(super) traffic: &'a TrafficMetrics,
    /// Of one address at each listener; `None`: a share.
    pub(super) per_source: Option<usize>,
    /// Who may say whose connection it is, at every listener.
    pub(super) proxies: &'a TrustedProxies,
    pub(super) policies: &'a PolicyState,
}

impl Shared<'_> {
    fn furnish(self, listener: Listener, doorway: Doorway) -> Listener {
        let listener = listener
            .counted(self.traffic.listener(doorway))
            .behind_proxies(self.proxies.clone());
        match self.per_source {
            Some(per_source) => listener.with_connections_per_source(per_source),
            None => listener,
        }
    }
}

/// Refuses addresses that are taken or not ours, before anything is created. They are let go again until the doors open:
/// a client that comes too early shall not wait for a start that may fail.
pub(super) async fn ensure_free(settings: &Settings) -> Result<()> {
    let config = &settings.config;
    // Held together, so that two listeners on one address are noticed, too.
    let mut held = Vec::new();
    for (listen, flag) in [
        (Listen::On(config.listen), PUPPET_FLAG),
        (config.kubernetes.listen, KUBERNETES_FLAG),
        (config.foreman.listen, FOREMAN_KEY),
    ] {
        if let Listen::On(address) = listen {
            let bound = TcpListener::bind(address).await;
            let bound = bound.map_err(|source| ListenerFault::Bind { address, source });
            held.push(bound.map_err(|fault| advised(fault, flag))?);
        }
    }
    Ok(())
}

pub(super) async fn bind_puppet(
    settings: &Settings,
    place: Shared<'_>,
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
        .with_access(place.access.clone())
        .with_max_request(settings.config.limits.csr_bytes);
    let native = enrol::EnrolDoor::new(authority.clone(), issuer.clone())
        .with_access(place.access.clone())
        .with_administrators(SignerName::parse(signers::PUPPET_ADMIN)?)
        .with_limits(place.limits.clone())
        .with_policy(place.policies.clone());
    let native = match settings.config.kubernetes.listen {
        Listen::Off => native,
        Listen::On(_) => native.with_kubernetes_users(
            SignerName::parse(signers::KUBERNETES_ADMIN)?,
            IssuerId::parse(signers::KUBERNETES_ISSUER)?,
        ),
    };
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
    let listener = bound.map_err(|fault| advised(fault, PUPPET_FLAG))?;
    Ok((door, place.furnish(listener, Doorway::Puppet)))
}

pub(super) async fn bind_kubernetes(
    address: SocketAddr,
    place: Shared<'_>,
    identity: &TlsIdentity,
) -> Result<Listener> {
    let authority = place.authority;
    let issuer = IssuerId::parse(signers::KUBERNETES_ISSUER)?;
    let door = kubernetes::KubernetesDoor::open(authority.clone(), issuer.clone())
        .await?
        .with_access(place.access.clone());
    let native = enrol::EnrolDoor::for_users(authority.clone(), issuer.clone())
        .with_access(place.access.clone())
        .with_limits(place.limits.clone())
        .with_policy(place.policies.clone());
    let router = door
        .router_within(place.limits.clone())
        .merge(enrol::router(native));
    let config = ListenerConfig {
        address,
        issuer,
        identity,
        on_bad_certificate: OnBadCertificate::TreatAsUnknown,
        connections: place.connections,
        timeouts: Timeouts::STANDARD,
    };
    let bound = Listener::bind(authority.clone(), router, config).await;
    let listener = bound.map_err(|fault| advised(fault, KUBERNETES_FLAG))?;
    Ok(place.furnish(listener, Doorway::Kubernetes))
}

/// What the Foreman listener has of the Puppet listener.
#[derive(Clone, Copy)]
pub(super) struct BesidePuppet<'a> {
    pub(super) door: &'a puppet::PuppetDoor,
    /// Its certificate.
    pub(super) identity: &'a TlsIdentity,
    /// As agents call it.
    pub(super) url: &'a str,
}

/// The listener that Foreman takes for a smart proxy, and who may call there. Where it has no certificate of its own, it
/// shows that of the Puppet listener.
pub(super) async fn bind_foreman(
    address: SocketAddr,
    section: &ForemanSection,
    place: Shared<'_>,
    puppet: BesidePuppet<'_>,
) -> Result<(TrustedHosts, Listener)> {
    let BesidePuppet {
        door,
        identity: shown,
        url,
    } = puppet;
    let authority = place.authority;
    let trusted = TrustedHosts::new(&section.trusted_hosts);
    let door = ForemanDoor::new(door.clone(), trusted.clone(), url);
    let router = foreman::router(door.within(place.limits.clone()));
    let own = foreman_identity(section)?;
    let identity = own.as_ref().unwrap_or(shown);
    let config = ListenerConfig {
        address,
        issuer: IssuerId::parse(signers::PUPPET_ISSUER)?,
        identity,
        on_bad_certificate: OnBadCertificate::FailHandshake,
        connections: place.connections,
        timeouts: Timeouts::STANDARD,
    };
    let bound = Listener::bind(authority.clone(), router, config).await;
    let mut listener = bound.map_err(|fault| advised(fault, FOREMAN_KEY))?;
    if let Some(path) = &section.ca {
        let clients = ForeignClients::below(&read(path, "foreman.ca")?)
            .with_context(|| format!("foreman.ca: {}", path.display()))?;
        listener = listener.for_foreign_clients(clients, identity)?;
    }
    warn_of_foreman(section, authority);
    Ok((trusted, place.furnish(listener, Doorway::Foreman)))
}

/// The certificate that the configuration names for the listener, as its files are now.
pub(crate) fn foreman_identity(section: &ForemanSection) -> Result<Option<TlsIdentity>> {
    let (Some(cert), Some(key)) = (&section.cert, &section.key) else {
        return Ok(None);
    };
    let chain_pem = read(cert, "foreman.cert")?;
    let key_pem = private_file::read(key)
        .with_context(|| format!("foreman.key: {} cannot be used", key.display()))?;
    Ok(Some(TlsIdentity { chain_pem, key_pem }))
}

fn read(path: &PathBuf, key: &str) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("{key}: cannot read {}", path.display()))
}

/// Says what Foreman would find out at its first call.
pub(crate) fn warn_of_foreman(section: &ForemanSection, authority: &Authority) {
    if matches!(section.listen, Listen::Off) {
        return;
    }
    if section.trusted_hosts.is_empty() {
        warn!("foreman.trusted_hosts is empty: the Foreman listener refuses every caller");
    }
    if !authority.tokens.enabled() {
        warn!(
            "tokens.enabled is false: Foreman can list, sign and clean, and no host enrols by itself"
        );
    }
}

/// Says what the machine's own commands would find out at their first call.
pub(crate) fn warn_of_proxies(limits: &LimitsSection) {
    let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let is_trusted = |address: &IpAddr| {
        let mut trusted = limits.trusted_proxies.iter();
        trusted.any(|network| network.contains(*address))
    };
    if let Some(address) = loopback.iter().find(|address| is_trusted(address)) {
        warn!(
            %address,
            "limits.trusted_proxies has a loopback address: commands on this machine, which send no PROXY header, are \
             not served; give the load balancer another source address, for example 127.0.0.2"
        );
    }
}

/// Why a listener does not listen, and what helps.
pub(crate) fn advised(fault: ListenerFault, flag: &str) -> Error {
    match fault {
        ListenerFault::Bind { address, source } if source.kind() == ErrorKind::AddrInUse => {
            anyhow!(
                "cannot listen on {address}, the address is in use: choose another {flag}, or stop what listens there"
            )
        }
        other => other.into(),
    }
}

pub(crate) fn request_rates(settings: &Settings) -> RequestRates {
    let limits = &settings.config.limits;
    RequestRates {
        per_source: limits.csr_per_minute_per_source,
        per_certname: limits.csr_per_minute_per_certname,
        token_failures: limits.token_failures_per_10_minutes,
    }
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

/// How many connections each of so many listeners may hold, and how many open files this process was meant to have. The
/// limit of open files is raised as far as the system lets us, and the listeners leave as much as one of them has, and some,
/// to the store and its files.
pub(super) fn open_files(limits: &LimitsSection, listeners: usize) -> (usize, Option<u64>) {
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
    let share = share_of(files, listeners);
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

/// How commands on this machine reach a listener.
pub(super) fn url(address: SocketAddr) -> String {
    format!("https://{}", reachable(address))
}

pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(host, address.port())
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

/// The share of one of so many listeners of so many open files; `None`: there is no limit.
fn share_of(files: Option<u64>, listeners: usize) -> usize {
    let files = files.and_then(|files| usize::try_from(files).ok());
    let files = files.unwrap_or(usize::MAX);
    let parts = listeners.saturating_add(1);
    let share = files.saturating_sub(OTHER_FILES).checked_div(parts);
    share.unwrap_or(0).clamp(MIN_CONNECTIONS, MAX_CONNECTIONS)
}

/// When a file was last written; now, if the file system does not say.
fn modified(path: &Path) -> UnixTime {
    let since = path.metadata().and_then(|facts| facts.modified()).ok();
    let since = since.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let seconds = since.and_then(|since| i64::try_from(since.as_secs()).ok());
    seconds.map_or_else(|| SystemClock.now(), UnixTime)
}

/// What chooses another address, as it is named to those who must.
const PUPPET_FLAG: &str = "--listen";
const KUBERNETES_FLAG: &str = "--kubernetes-listen";
const FOREMAN_KEY: &str = "foreman.listen";
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
            assert_eq!(share_of(files, 2), connections, "{files:?}");
        }
        assert_eq!(share_of(Some(1024), 3), 224);
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
