//! `countersign serve`: puts the parts together, runs them, and takes them down again.

mod announcement;
mod listeners;
pub(crate) mod signals;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result};
use countersign_authority::{
    Authority, AuthorityConfig, Clock as _, IssuerId, Limits, Revision, Rules, Store, SystemClock,
    Telemetry, policy_version,
};
use countersign_keys::{AuditKey, SystemEntropy};
use countersign_server::access::Access;
use countersign_server::enrol::{PolicyState, signing_policies_key};
use countersign_server::metrics::{
    EngineMetrics, PolicyMetrics, Registry, ReloadMetrics, StateMetrics, TrafficMetrics,
};
use countersign_server::{Monitor, RequestLimits, TrustedProxies};
use countersign_store::SqliteStore;
use countersign_webhook::{Executables, ThisMachine, adopt_what_is_left_behind};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use self::announcement::welcome;
use self::listeners::{
    BesidePuppet, Shared, bind_foreman, bind_kubernetes, bind_puppet, ensure_free, open_files, url,
};
pub(crate) use self::listeners::{advised, reachable};
pub(crate) use self::listeners::{
    foreman_identity, renewals, request_rates, warn_of_foreman, warn_of_proxies,
};
use self::signals::{Asked, Signals};
use crate::cli::ServeArgs;
use crate::config::{Autosign, Listen};
use crate::data_folder::{DataFolder, Openness, Secrecy, ServerFile, write};
use crate::first_start::{self, Issuers};
use crate::issuer_keys::IssuerKeys;
use crate::logging::LogLevel;
use crate::policies::Loaded;
use crate::reload::{Live, Running};
use crate::settings::Settings;
use crate::signing_policies::KeptPolicies;
use crate::{
    audit_keys, logging, output, policies, service_manager, signers, stores, upkeep, witness,
};

/// Runs the authority until it is told to stop.
pub(crate) async fn run(args: ServeArgs, settings: Settings) -> Result<()> {
    let log = logging::start(&settings.config.log)?;
    say_remarks(&settings);
    adopt_what_is_left_behind();
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
    audit_key: Arc<AuditKey>,
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
        let watched = match watched {
            Ok(watched) => ensure_free(&settings).await.map(|()| watched),
            Err(fault) => Err(fault),
        };
        if watched.is_err() && folder.database().try_exists()? {
            // The lock of a server that runs here already says more than its address does.
            SqliteStore::open(&folder.database())?;
        }
        let watched = watched?;
        if folder.create()? == Openness::Open {
            let folder = folder.root().display();
            warn!("others can read the names of files in {folder}: run `chmod 700 {folder}`");
        }
        // Opened first: SQLite's lock keeps a second process from starting on the same directory.
        let store = stores::open(&settings, counters.engine()).await?;
        let is_first_start = folder.server()?.is_none() && store.epoch().await? == 0;
        let first_act = store.audit(Revision::default(), 1).await?;
        let was_there = first_act.iter().any(|(_, entry)| entry.action == "import");
        let audit_key = Arc::new(audit_keys::prepare(folder)?);
        witness::compare(folder, &*store).await?;
        let foreman = &settings.config.foreman;
        let listeners = match foreman.listen {
            Listen::On(_) => 3,
            Listen::Off => 2,
        };
        let (connections, files_before) = open_files(&settings.config.limits, listeners);
        let kept = store.object(&signing_policies_key()).await?;
        let kept = KeptPolicies::read(kept.as_ref())?;
        let loaded = Loaded::read(&settings, &kept)?;
        let version = policy_version(&*store, &SystemClock, &loaded.text).await?;
        let mut policy = loaded.policy;
        policy.generation = version.generation;
        let shows_all = policies::see_everything(&policy);
        let policy_state = PolicyState::default();
        policy_state.set(
            &policy,
            version.loaded,
            shown(&loaded.files),
            loaded.warnings,
        );
        counters.policies.applied(policy.generation);
        let rules = Rules::new(policy, signers::all(&settings.config)?)
            .with_deciders(loaded.deciders)
            .with_tokens(loaded.tokens);
        let (authority, keys) = start_authority(&settings, store, rules, counters.engine()).await?;
        if !shows_all.is_empty() {
            authority
                .audit
                .complete_requests_are_shown(&shows_all)
                .await?;
        }
        authority.set_local_evidence(this_machine(&settings, files_before));
        serve_infra_crl(&settings, &authority).await?;
        upkeep::write_crls(&authority.issuers, folder)?;

        let puppet_identity = first_start::puppet_credentials(&authority, &settings).await?;
        let limits = RequestLimits::new(request_rates(&settings));
        let proxies = TrustedProxies::new(&settings.config.limits.trusted_proxies);
        let access = Access::new(settings.access().into_iter().chain(kept.access()).collect());
        access.set_elsewhere(settings.access_elsewhere());
        let place = Shared {
            authority: &authority,
            access: &access,
            limits: &limits,
            connections,
            per_source: Some(settings.config.limits.connections_per_source).filter(|n| *n > 0),
            proxies: &proxies,
            traffic: &counters.traffic,
            policies: &policy_state,
        };
        let (door, puppet) = bind_puppet(&settings, place, &puppet_identity).await?;
        let mut addresses = ServerFile {
            puppet: url(puppet.address()?),
            kubernetes: None,
            foreman: None,
            metrics: watched.url.clone(),
            certname: settings.names.certname.clone(),
        };
        let puppet_port = puppet.address()?.port();
        let shown_by_puppet = puppet_identity;
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
        let mut smart_proxy = None;
        if let Listen::On(address) = foreman.listen {
            // As agents call it, whatever address it listens on.
            let puppet_url = format!("https://{}:{puppet_port}", settings.names.certname);
            let beside = BesidePuppet {
                door: &door,
                identity: &shown_by_puppet,
                url: &puppet_url,
            };
            let (trusted, listener) = bind_foreman(address, foreman, place, beside).await?;
            addresses.foreman = Some(url(listener.address()?));
            smart_proxy = Some((trusted, listener.identity()));
            listeners.push(listener);
        }
        warn_of_autosigning(&settings);
        warn_of_tokens(&authority).await;
        warn_of_proxies(&settings.config.limits);

        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        upkeep::start(&authority, folder, &tasks, &stop);
        let (collection, rules) = watch::channel(settings.config.gc.collection());
        tasks.spawn(upkeep::collect(authority.clone(), rules, stop.clone()));
        tasks.spawn(upkeep::seal(
            authority.clone(),
            folder.clone(),
            Arc::clone(&audit_key),
            stop.clone(),
        ));
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
            keys,
            puppet: door,
            access,
            limits,
            proxies,
            puppet_identity,
            kubernetes_identity,
            smart_proxy,
            log,
            collection,
            files_before,
            policies: policy_state,
            metrics: counters.reloads,
            policy_metrics: counters.policies,
            is_refused: AtomicBool::new(false),
            running: Mutex::new(Running {
                settings,
                addresses: addresses.clone(),
            }),
        });
        tasks.spawn(upkeep::tell_suppressed(Arc::clone(&live), stop.clone()));
        tasks.spawn(upkeep::renew_certificates(Arc::clone(&live), stop.clone()));
        for server in live.servers() {
            tasks.spawn(upkeep::replace_revoked(
                Arc::clone(&live),
                server,
                stop.clone(),
            ));
        }
        tasks.spawn(upkeep::follow_policies(Arc::clone(&live), stop.clone()));
        tasks.spawn(upkeep::follow_issuers(Arc::clone(&live), stop.clone()));
        Ok(Self {
            addresses,
            is_first_start,
            was_there,
            authority,
            audit_key,
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
        if let Err(error) = upkeep::write_crls(&self.authority.issuers, &self.folder) {
            warn!(error = %format!("{error:#}"), "the CRL files were not written");
        }
        let audit = &self.authority.audit;
        if let Err(error) = upkeep::seal_once(audit, &self.folder, &self.audit_key).await {
            warn!(error = %format!("{error:#}"), "the end of the audit log was not sealed");
        }
        self.watched.stop().await;
    }
}

/// Files as people are told of them.
pub(crate) fn shown(files: &[PathBuf]) -> Vec<String> {
    files
        .iter()
        .map(|file| file.display().to_string())
        .collect()
}

/// Everything that counts.
struct Counters {
    engine: Arc<EngineMetrics>,
    traffic: TrafficMetrics,
    reloads: ReloadMetrics,
    policies: PolicyMetrics,
    monitor: Monitor,
}

impl Counters {
    fn new(settings: &Settings) -> Self {
        let mut registry = Registry::default();
        let issuers = settings.issuers.iter().map(|issuer| issuer.id.clone());
        let engine = EngineMetrics::new(&mut registry, issuers);
        let traffic = TrafficMetrics::new(&mut registry);
        let reloads = ReloadMetrics::new(&mut registry);
        let policies = PolicyMetrics::new(&mut registry);
        let version = env!("CARGO_PKG_VERSION");
        let state = StateMetrics::new(&mut registry, version, SystemClock.now());
        Self {
            engine: Arc::new(engine),
            traffic,
            reloads,
            policies,
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

pub(crate) async fn start_authority(
    settings: &Settings,
    store: Arc<dyn Store>,
    rules: Rules,
    telemetry: Arc<dyn Telemetry>,
) -> Result<(Authority, Arc<IssuerKeys>)> {
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let prepared = Issuers::prepare(settings, &*store, &*clock, &*entropy).await?;
    let keys = Arc::clone(&prepared.keys);
    let config = AuthorityConfig {
        store,
        keys: prepared.keys,
        clock,
        entropy,
        issuers: prepared.issuers,
        rules,
        limits: Limits {
            pending_per_source: settings.config.limits.pending_per_source,
            pending_bytes: settings.config.limits.pending_bytes,
            ..Limits::STANDARD
        },
    };
    let started = Authority::start_observed(config, telemetry).await;
    Ok((started.context("the authority cannot start")?, keys))
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
        .issuers
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

/// Reads lists and runs policy executables as the configuration says.
pub(crate) fn this_machine(settings: &Settings, open_files: Option<u64>) -> Arc<ThisMachine> {
    let section = &settings.config.puppet.autosign_executable;
    Arc::new(ThisMachine::new(Executables {
        seconds: section.timeout.as_seconds(),
        at_once: section.concurrency.get(),
        environment: section.environment.clone(),
        open_files,
    }))
}

pub(crate) fn write_server_file(folder: &DataFolder, addresses: &ServerFile) -> Result<()> {
    let mut text = serde_json::to_string_pretty(addresses)?;
    text.push('\n');
    write(&folder.server_file(), text.as_bytes(), Secrecy::Public)?;
    Ok(())
}

/// Says if there are tokens that their holders take for good.
pub(crate) async fn warn_of_tokens(authority: &Authority) {
    match authority.tokens.unverifiable().await {
        Ok(0) => {}
        Ok(count) => warn!(
            count,
            "tokens are refused: tokens.mac_key does not verify their records, because they were minted without a key, \
             under one that tokens.mac_keys_old does not name, or were changed in the database; mint others"
        ),
        Err(error) => warn!(%error, "tokens were not checked against tokens.mac_key"),
    }
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
