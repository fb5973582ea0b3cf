//! `countersign cluster`: the controllers that approve, sign and clean the requests of a real cluster.

mod admission;
mod pods;
mod policies;
mod presets;
mod resources;
mod signing;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use countersign_authority::Entropy as _;
use countersign_cluster::{
    AuthorityAccess, Cluster, ClusterMetrics, Controller, Election, OperatorSettings, PodSigner,
    ResourceKind, Settings, Signer,
};
use countersign_keys::SystemEntropy;
use countersign_server::Monitor;
use countersign_server::metrics::{EngineMetrics, PolicyMetrics, Registry};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use self::admission::Admission;
use self::pods::PodCertificates;
use self::policies::{ClusterPolicies, Followed, State, needs_store, token_signers};
use self::presets::KubeletCsrApprover;
use self::resources::policies::ResourcePolicies;
use self::resources::signers::SignerSteward;
use self::resources::tokens::TokenSteward;
use self::signing::ClusterSigner;
use crate::cli::{ClusterArgs, ControllerName, OperatorArgs, Preset};
use crate::config::{Config, Listen, Remarks};
use crate::serve::signals::{Asked, Signals};
use crate::serve::{advised, reachable};
use crate::settings::IssuerFiles;
use crate::{logging, output, service_manager};

pub(crate) use self::signing::SPEC as DOOR;

/// Runs the controllers until they are told to stop, or another replica works.
pub(crate) async fn run(args: ClusterArgs) -> Result<()> {
    if args.print_crds {
        return Ok(output::line(RESOURCE_DEFINITIONS.join("---\n").trim_end())?);
    }
    let mut config = args.config.read()?;
    if let Some(data) = args.data.dir() {
        config.data.clone_from(data);
    }
    let approver = match args.preset {
        Some(Preset::KubeletCsrApprover) => Some(KubeletCsrApprover::read(
            &args.kubelet_csr_approver,
            |name| std::env::var(name).ok(),
        )?),
        Some(Preset::Hardened | Preset::ClusterMachineApprover | Preset::KubeControllerManager)
        | None => None,
    };
    let level = logging::start(&config.log)?;
    let mut signals = Signals::new()?;
    let mut registry = Registry::default();
    let signer = match args.controllers.contains(&ControllerName::Signer) {
        true => Some(Arc::new(signer(&args, &config, &mut registry).await?)),
        false => None,
    };
    let mut settings = settings(&args, &config, approver.as_ref())?;
    settings.signer = signer.clone().map(|signer| signer as Arc<dyn Signer>);
    if let Some(signer) = &signer {
        let pods = PodCertificates::of(&config, signer.authority())?;
        settings.pods = pods.map(|pods| Arc::new(pods) as Arc<dyn PodSigner>);
    }
    let policies = ClusterPolicies::new(&config, presets::files(args.preset, approver.as_ref()));
    let files = policies.read_files()?;
    for warning in needs_store(&files, signer.is_some()) {
        warn!("{warning}");
    }
    let approves = settings.controllers.contains(&Controller::Approver);
    // The signer asks the policies itself about pods.
    let decides = approves || settings.pods.is_some();
    let section = &config.cluster.resources;
    let resources = match decides && section.enabled {
        true => ResourcePolicies::expected(&section.webhooks),
        false => ResourcePolicies::off(),
    };
    let state = State::new(files, resources);
    let rules = state.rules(&policies)?;
    if let Some(signer) = &signer {
        signer.look_at_tokens_for(token_signers(&rules.policy))?;
    }
    if approves && rules.policy.rules.is_empty() {
        warn!(
            "there are no rules but those of ApprovalPolicies: requests for other signers wait for a person; see --preset and `policies`"
        );
    }
    let metrics = ClusterMetrics::new(&mut registry);
    let policy_metrics = PolicyMetrics::new(&mut registry);
    policy_metrics.applied(1);
    let names: Vec<&str> = args.controllers.iter().map(|name| word(*name)).collect();
    let cluster = Cluster::connect(settings, rules, metrics).await?;
    let asked = cluster.clone();
    let monitor = Monitor::without_authority(registry, move || asked.is_ready());
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let listen = metrics_listen(&args, &config, approver.as_ref())?;
    let mut status = format!("cluster={} controllers={}", cluster.url(), names.join(","));
    if let Listen::On(address) = listen {
        let bound = monitor.bind(address).await;
        let listener = bound.map_err(|fault| advised(fault, "--metrics-listen"))?;
        status.push_str(&format!(
            " metrics=http://{}",
            reachable(listener.address()?)
        ));
        tasks.spawn(listener.serve(stop.clone()));
    }
    let admission = match Admission::wanted(&args)? {
        Some(admission) => {
            // Every replica answers, also one that waits for its lease.
            let listener = admission.bind(&cluster).await?;
            status.push_str(&format!(
                " admission=https://{}",
                reachable(listener.address()?)
            ));
            let admission = Arc::new(admission.following(listener.identity()));
            tasks.spawn(listener.serve(stop.clone()));
            tasks.spawn(Arc::clone(&admission).follow(stop.clone()));
            Some(admission)
        }
        None => None,
    };
    tasks.spawn(service_manager::stay_alive(stop.clone()));
    let telling = stop.clone();
    tasks.spawn(async move { level.keep_telling(&telling).await });
    let followed = Arc::new(Followed::new(
        policies,
        cluster.clone(),
        signer.clone(),
        policy_metrics,
        state,
    ));
    tasks.spawn(Arc::clone(&followed).follow(stop.clone()));
    if section.enabled {
        attend(
            &config,
            &cluster,
            decides.then(|| Arc::clone(&followed)),
            signer.as_ref(),
        );
    }

    let working = CancellationToken::new();
    let work = cluster.run(&working);
    tokio::pin!(work);
    let mut is_announced = false;
    let ended = loop {
        tokio::select! {
            ended = &mut work => break ended,
            () = cluster.ready(), if !is_announced => {
                is_announced = true;
                if let Err(error) = output::line(&format!("ready {status}")) {
                    // A closed standard output is no reason not to work.
                    warn!(%error, "cannot say that the controllers are ready");
                }
                service_manager::ready(&status);
            }
            asked = signals.next() => match asked {
                Asked::Reload => {
                    followed.reload().await;
                    if let Some(admission) = &admission {
                        admission.look();
                    }
                }
                Asked::End => {
                    info!("stopping");
                    monitor.stopping();
                    service_manager::stopping();
                    working.cancel();
                    tokio::select! {
                        ended = &mut work => break ended,
                        // Whoever asks twice does not want to wait.
                        () = signals.end() => break Ok(()),
                    }
                }
            },
        }
    };
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    if let Some(signer) = signer {
        signer.stop().await;
    }
    Ok(ended?)
}

/// Lets the controllers that run act on the resources that are theirs.
fn attend(
    config: &Config,
    cluster: &Cluster,
    approver: Option<Arc<Followed>>,
    signer: Option<&Arc<ClusterSigner>>,
) {
    let section = &config.cluster.resources;
    if let Some(followed) = approver {
        cluster.attend(ResourceKind::ApprovalPolicy, None, followed);
    }
    let Some(signer) = signer else {
        return;
    };
    let signers = SignerSteward::new(Arc::clone(signer), cluster.clone(), section.issuers.clone());
    cluster.attend(ResourceKind::Signer, None, Arc::new(signers));
    let tokens = Arc::new(TokenSteward::new(signer.authority.clone()));
    match section.token_namespaces.as_slice() {
        [] => cluster.attend(ResourceKind::EnrollmentToken, None, tokens),
        named => {
            for namespace in named {
                let tokens = Arc::clone(&tokens);
                cluster.attend(ResourceKind::EnrollmentToken, Some(namespace), tokens);
            }
        }
    }
}

/// The engine that signs, with the cluster's CA if its files are named.
async fn signer(
    args: &ClusterArgs,
    config: &Config,
    registry: &mut Registry,
) -> Result<ClusterSigner> {
    let mut config = config.clone();
    if let Some(duration) = args.cluster_signing_duration {
        config.kubernetes.signing_duration = duration;
    }
    let files = (
        &args.cluster_signing_cert_file,
        &args.cluster_signing_key_file,
    );
    let ca = match files {
        (Some(certificate), Some(key)) => Some(IssuerFiles {
            certificate: certificate.clone(),
            key: key.clone(),
        }),
        (Some(_) | None, _) => None,
    };
    let has_own = ca.is_some() || !config.signers.is_empty();
    ensure!(
        has_own || config.cluster.resources.enabled,
        "the signer has nothing to sign for: name the cluster's CA with --cluster-signing-cert-file and \
         --cluster-signing-key-file, or configure `signers`"
    );
    if !has_own {
        info!("the signer signs for Signers of the cluster alone; see --cluster-signing-cert-file");
    }
    let settings = crate::settings::Settings::from_config(config, Remarks::default())?;
    let issuers = settings.issuers.iter().map(|issuer| issuer.id.clone());
    let telemetry = Arc::new(EngineMetrics::new(registry, issuers));
    ClusterSigner::start(settings, ca, telemetry).await
}

fn settings(
    args: &ClusterArgs,
    config: &Config,
    approver: Option<&KubeletCsrApprover>,
) -> Result<Settings> {
    let controllers: BTreeSet<Controller> = args
        .controllers
        .iter()
        .map(|name| Controller::from(*name))
        .collect();
    let section = &config.cluster;
    for source in &section.machines {
        let is_group = |group: &str| group.contains('.') && !group.contains(['/', '%', '?', '#']);
        let group = source
            .split_once('/')
            .map_or(source.as_str(), |(group, _)| group);
        ensure!(
            is_group(group),
            "cluster.machines: {source:?} is not an API group such as cluster.x-k8s.io or cluster.x-k8s.io/v1beta2"
        );
    }
    let instance = instance()?;
    let default = approver.is_none_or(|approver| approver.leader_election);
    let is_elected = args.leader_elect.map_or(default, |elect| elect.0);
    let election = is_elected.then(|| election(args, &instance)).transpose()?;
    Ok(Settings {
        controllers,
        kubeconfig: args.kubeconfig.clone(),
        management_kubeconfig: args.management_kubeconfig.clone(),
        election,
        cleaner: section.cleaner.settings(),
        dial: section.kubelet.settings(),
        machines: section.machines.clone(),
        machine_namespace: section.machine_namespace.clone(),
        workers: section.workers.get(),
        signer: None,
        pods: None,
        operator: operator(&args.operator, section.workers.get()),
        pod_grace: Duration::from_secs(section.pod_grace.as_seconds()),
        instance,
    })
}

fn operator(args: &OperatorArgs, workers: usize) -> OperatorSettings {
    let access = (&args.server, &args.cert, &args.key, &args.cacert);
    let authority = match access {
        (Some(url), Some(certificate), Some(key), Some(ca)) => Some(AuthorityAccess {
            url: url.clone(),
            certificate: certificate.clone(),
            key: key.clone(),
            ca: ca.clone(),
        }),
        _ => None,
    };
    OperatorSettings {
        namespaces: args.operator_namespace.clone(),
        authority,
        workers,
    }
}

fn election(args: &ClusterArgs, instance: &str) -> Result<Election> {
    let seconds = |span: crate::config::Span| Duration::from_secs(span.as_seconds());
    let (lease, renew, retry) = (
        seconds(args.lease_duration),
        seconds(args.lease_renew_deadline),
        seconds(args.lease_retry_period),
    );
    ensure!(
        lease > renew && renew > retry,
        "--lease-duration must be longer than --lease-renew-deadline, and that longer than --lease-retry-period"
    );
    Ok(Election {
        namespace: args.lease_namespace.clone(),
        name: args.lease_name.clone(),
        lease,
        renew_deadline: renew,
        retry_period: retry,
        ..Election::new(instance.to_owned())
    })
}

/// What no other replica calls itself.
fn instance() -> Result<String> {
    let host = std::env::var("POD_NAME")
        .ok()
        .filter(|name| !name.is_empty());
    let host = host.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host = host.unwrap_or_else(|| "countersign".to_owned());
    let mut random = [0; 8];
    SystemEntropy.fill(&mut random)?;
    let random: String = random.iter().map(|octet| format!("{octet:02x}")).collect();
    // An Event's instance has at most 128 characters.
    let host: String = host.trim().chars().take(100).collect();
    Ok(format!("{host}_{random}"))
}

fn metrics_listen(
    args: &ClusterArgs,
    config: &Config,
    approver: Option<&KubeletCsrApprover>,
) -> Result<Listen> {
    if let Some(listen) = args.metrics_listen {
        return Ok(listen);
    }
    let Some(address) = approver.and_then(|approver| approver.metrics_bind_address.as_deref())
    else {
        return Ok(config.metrics.listen);
    };
    let full = match address.strip_prefix(':') {
        Some(port) => format!("0.0.0.0:{port}"),
        None => address.to_owned(),
    };
    full.parse::<Listen>()
        .map_err(|fault| anyhow!("{fault}"))
        .with_context(|| format!("--metrics-bind-address {address}"))
}

fn word(name: ControllerName) -> &'static str {
    match name {
        ControllerName::Approver => "approver",
        ControllerName::Signer => "signer",
        ControllerName::Cleaner => "cleaner",
        ControllerName::Operator => "operator",
    }
}

/// What `--print-crds` prints: the files that are installed.
const RESOURCE_DEFINITIONS: [&str; 7] = [
    include_str!("../../../deploy/crds/approvalpolicies.yaml"),
    include_str!("../../../deploy/crds/signers.yaml"),
    include_str!("../../../deploy/crds/machines.yaml"),
    include_str!("../../../deploy/crds/enrollmenttokens.yaml"),
    include_str!("../../../deploy/crds/certificates.yaml"),
    include_str!("../../../deploy/crds/certificateauthorities.yaml"),
    include_str!("../../../deploy/crds/signingpolicies.yaml"),
];
