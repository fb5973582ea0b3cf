//! What may change while the authority serves: a configuration that was read again, and its own certificates.
//!
//! A file is checked whole before anything of it is put in force; a bad one changes nothing. What cannot change at run
//! time is named, and waits for the next start.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use countersign_authority::{Authority, Deciders, Rules, Signer, TokenSettings};
use countersign_pki::UnixTime;
use countersign_policy::Policy;
use countersign_server::access::Access;
use countersign_server::enrol::{PolicyState, signing_policies_key};
use countersign_server::foreman::TrustedHosts;
use countersign_server::metrics::{PolicyMetrics, ReloadMetrics};
use countersign_server::{Identity, RequestLimits, TrustedProxies, puppet::PuppetDoor};
use serde_json::Value;
use tokio::sync::{Mutex, watch};
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

use crate::cli::ServeArgs;
use crate::config::{Collection, Config};
use crate::data_folder::{DataFolder, ServerFile};
use crate::first_start::ServerCertificate;
use crate::issuer_keys::IssuerKeys;
use crate::logging::LogLevel;
use crate::policies::{BadPolicies, Loaded};
use crate::settings::Settings;
use crate::signing_policies::KeptPolicies;
use crate::{first_start, logging, policies, serve, signers};

/// The parts of a running authority that take new settings.
pub(crate) struct Live {
    /// Read again at each reload, as the file is.
    pub(crate) args: ServeArgs,
    /// As the process was started; what cannot change is compared with it.
    pub(crate) started: Config,
    pub(crate) authority: Authority,
    pub(crate) keys: Arc<IssuerKeys>,
    pub(crate) puppet: PuppetDoor,
    pub(crate) access: Access,
    pub(crate) limits: RequestLimits,
    pub(crate) proxies: TrustedProxies,
    pub(crate) puppet_identity: Identity,
    pub(crate) kubernetes_identity: Option<Identity>,
    /// Who may call at the Foreman listener, and its certificate.
    pub(crate) smart_proxy: Option<(TrustedHosts, Identity)>,
    pub(crate) log: LogLevel,
    pub(crate) collection: watch::Sender<Collection>,
    /// How many open files the process was meant to have.
    pub(crate) files_before: Option<u64>,
    /// What administrators are told of the policy in force.
    pub(crate) policies: PolicyState,
    pub(crate) policy_metrics: PolicyMetrics,
    /// Whether the policy files, as they were read last, have faults.
    pub(crate) is_refused: AtomicBool,
    pub(crate) metrics: ReloadMetrics,
    pub(crate) running: Mutex<Running>,
}

/// What is in force. One at a time changes it.
pub(crate) struct Running {
    pub(crate) settings: Settings,
    pub(crate) addresses: ServerFile,
}

/// A configuration that was found good.
struct Checked {
    settings: Settings,
    signers: Vec<Signer>,
    loaded: Loaded,
    filter: EnvFilter,
    /// What waits for the next start.
    later: Vec<String>,
}

/// A policy that is on record, and not in force yet.
struct Numbered {
    policy: Policy,
    deciders: Arc<dyn Deciders>,
    tokens: TokenSettings,
    /// Whether it is another one than that in force.
    is_new: bool,
    loaded: UnixTime,
    files: Vec<String>,
    warnings: Vec<String>,
}

impl Numbered {
    /// These rules with its policy, and what belongs to it.
    fn rules(&self, before: &Rules) -> Rules {
        before
            .with_policy(self.policy.clone())
            .with_deciders(Arc::clone(&self.deciders))
            .with_tokens(self.tokens.clone())
    }
}

impl Live {
    /// Reads the configuration again and puts it in force, or says why not.
    pub(crate) async fn reload(&self) {
        let mut running = self.running.lock().await;
        let kept = self.kept_policies().await;
        let checked = kept.and_then(|kept| Ok((self.check(&kept)?, kept)));
        let (checked, kept) = match checked {
            Ok(checked) => checked,
            Err(error) => {
                self.metrics.refused();
                warn!(
                    error = format!("{error:#}"),
                    "the configuration was not reloaded; the one before stays in force"
                );
                return;
            }
        };
        let Checked {
            settings,
            signers,
            loaded,
            filter,
            later,
        } = checked;
        let numbered = match self.number(loaded).await {
            Ok(numbered) => numbered,
            Err(error) => {
                self.metrics.refused();
                let error = format!("{error:#}");
                warn!(
                    error,
                    "the configuration was not reloaded: its policy cannot be put on record"
                );
                return;
            }
        };
        // Before the level of what is logged changes, and after.
        if let Err(error) = self.log.set(filter) {
            warn!(error = format!("{error:#}"), "the log level stays");
        }
        let rules = self.authority.rules().with_signers(signers);
        self.authority.set_rules(numbered.rules(&rules));
        self.tell(&numbered);
        self.authority
            .set_local_evidence(serve::this_machine(&settings, self.files_before));
        self.puppet.set_renewals(serve::renewals(&settings));
        self.give_access(&settings, &kept);
        self.access.set_elsewhere(settings.access_elsewhere());
        self.limits.set_rates(serve::request_rates(&settings));
        self.proxies.set(&settings.config.limits.trusted_proxies);
        if let Some((trusted, _)) = &self.smart_proxy {
            trusted.set(&settings.config.foreman.trusted_hosts);
            serve::warn_of_foreman(&settings.config.foreman, &self.authority);
        }
        self.collection
            .send_replace(settings.config.gc.collection());
        serve::say_remarks(&settings);
        serve::warn_of_autosigning(&settings);
        serve::warn_of_tokens(&self.authority).await;
        serve::warn_of_proxies(&settings.config.limits);
        running.settings = settings;
        if let Err(error) = self.ensure_certificates(&mut running).await {
            warn!(
                error = format!("{error:#}"),
                "the server's certificates stay as they are"
            );
        }
        self.metrics.applied();
        info!("the configuration was reloaded");
        if !later.is_empty() {
            warn!("takes effect at the next start: {}", later.join(", "));
        }
    }

    /// Reads the policy files again, and puts them in force if they have changed and are good.
    pub(crate) async fn reload_policies(&self) {
        let running = self.running.lock().await;
        let loaded = match self.kept_policies().await {
            Ok(kept) => Loaded::read(&running.settings, &kept).map(|loaded| (loaded, kept)),
            Err(error) => Err(error),
        };
        let (loaded, kept) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                self.policies_refused(&error);
                return;
            }
        };
        match self.number(loaded).await {
            Ok(numbered) => {
                if numbered.is_new {
                    let rules = numbered.rules(&self.authority.rules());
                    self.authority.set_rules(rules);
                }
                self.give_access(&running.settings, &kept);
                self.tell(&numbered);
                // Last: who reads it may look at the rest.
                if numbered.is_new {
                    let generation = numbered.policy.generation;
                    info!(generation, "another policy is in force");
                }
            }
            Err(error) => {
                let error = format!("{error:#}");
                warn!(
                    error,
                    "the policy cannot be put on record; the one before stays in force"
                );
            }
        }
    }

    /// The roles of the configuration, and those that come with signing policies.
    fn give_access(&self, settings: &Settings, kept: &KeptPolicies) {
        let entries = settings.access().into_iter().chain(kept.access());
        self.access.set(entries.collect());
    }

    /// The signing policies that somebody gave us.
    pub(crate) async fn kept_policies(&self) -> Result<KeptPolicies> {
        let record = self.authority.objects.get(&signing_policies_key()).await?;
        KeptPolicies::read(record.as_ref())
    }

    /// Where everything is kept.
    pub(crate) async fn folder(&self) -> DataFolder {
        self.running.lock().await.settings.folder.clone()
    }

    /// Where policy files are looked for.
    pub(crate) async fn policy_paths(&self) -> Vec<PathBuf> {
        self.running.lock().await.settings.policy_paths()
    }

    /// The policy with its generation, which is on record when this returns.
    async fn number(&self, loaded: Loaded) -> Result<Numbered> {
        let Loaded {
            mut policy,
            text,
            files,
            deciders,
            tokens,
            warnings,
        } = loaded;
        let before = self.authority.rules().policy.generation;
        let version = self.authority.policy_version(&text).await?;
        policy.generation = version.generation;
        let shows_all = policies::see_everything(&policy);
        if version.generation != before && !shows_all.is_empty() {
            self.authority
                .audit
                .complete_requests_are_shown(&shows_all)
                .await?;
        }
        Ok(Numbered {
            is_new: version.generation != before,
            loaded: version.loaded,
            files: serve::shown(&files),
            policy,
            deciders,
            tokens,
            warnings,
        })
    }

    /// What administrators are told, now that it is in force.
    fn tell(&self, told: &Numbered) {
        self.policies.set(
            &told.policy,
            told.loaded,
            told.files.clone(),
            told.warnings.clone(),
        );
        match told.is_new {
            true => self.policy_metrics.applied(told.policy.generation),
            false => self.policy_metrics.settled(),
        }
        if self.is_refused.swap(false, Ordering::Relaxed) && !told.is_new {
            let generation = told.policy.generation;
            info!(
                generation,
                "the policy files are again those that are in force"
            );
        }
    }

    /// Says what is wrong with the policy files, once for each change of them.
    fn policies_refused(&self, error: &anyhow::Error) {
        self.policy_metrics.refused();
        self.is_refused.store(true, Ordering::Relaxed);
        let faults = match error.downcast_ref::<BadPolicies>() {
            Some(bad) => bad.faults.clone(),
            None => vec![format!("{error:#}")],
        };
        for fault in &faults {
            warn!(fault, "the policy was not changed");
        }
        self.policies.refused(self.authority.now(), faults);
    }

    /// The listeners that have a certificate of this authority.
    pub(crate) fn servers(&self) -> Vec<ServerCertificate> {
        let kubernetes = self.kubernetes_identity.as_ref();
        let kubernetes = kubernetes.map(|_| ServerCertificate::KUBERNETES);
        [Some(ServerCertificate::PUPPET), kubernetes]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Replaces the server's and the administrator's certificates if they no longer fit: close to their end, revoked, or
    /// with other names.
    pub(crate) async fn renew_certificates(&self) -> Result<()> {
        let mut running = self.running.lock().await;
        self.ensure_certificates(&mut running).await
    }

    async fn ensure_certificates(&self, running: &mut Running) -> Result<()> {
        let settings = &running.settings;
        let server = first_start::puppet_credentials(&self.authority, settings).await?;
        self.puppet_identity.replace(&server)?;
        if let Some((_, identity)) = &self.smart_proxy {
            let own = serve::foreman_identity(&settings.config.foreman)?;
            identity.replace(own.as_ref().unwrap_or(&server))?;
        }
        if let (Some(identity), Some(url)) =
            (&self.kubernetes_identity, &running.addresses.kubernetes)
        {
            let (server, admin) =
                first_start::kubernetes_credentials(&self.authority, settings).await?;
            identity.replace(&server)?;
            first_start::write_kubeconfig(&self.authority, &settings.folder, url, &admin)?;
        }
        if running.addresses.certname != settings.names.certname {
            running
                .addresses
                .certname
                .clone_from(&settings.names.certname);
            serve::write_server_file(&settings.folder, &running.addresses)?;
        }
        Ok(())
    }

    fn check(&self, kept: &KeptPolicies) -> Result<Checked> {
        let Settings {
            config: wanted,
            remarks,
            ..
        } = Settings::new(&self.args)?;
        let mut later = later(&self.started, &wanted)?;
        let settings = Settings::from_config(bound(&self.started, wanted), remarks)?;
        let mut signers = Vec::new();
        for signer in signers::all(&settings.config)? {
            if self.authority.issuers.get(&signer.issuer).is_some() {
                signers.push(signer);
            } else {
                let (name, issuer) = (signer.name, signer.issuer);
                later.push(format!("signer {name}, whose issuer {issuer} is new"));
            }
        }
        let loaded =
            Loaded::read(&settings, kept).inspect_err(|error| self.policies_refused(error))?;
        Ok(Checked {
            filter: logging::filter(&settings.config.log)?,
            signers,
            loaded,
            later,
            settings,
        })
    }
}

/// The configuration with everything that listeners and files were bound to at the start.
fn bound(started: &Config, wanted: Config) -> Config {
    let mut config = wanted;
    config.data.clone_from(&started.data);
    config.listen = started.listen;
    config.store.clone_from(&started.store);
    config.kubernetes.listen = started.kubernetes.listen;
    config.metrics.listen = started.metrics.listen;
    let trusted_hosts = std::mem::take(&mut config.foreman.trusted_hosts);
    config.foreman.clone_from(&started.foreman);
    config.foreman.trusted_hosts = trusted_hosts;
    config
}

/// The keys that differ and cannot change at run time.
fn later(started: &Config, wanted: &Config) -> Result<Vec<String>> {
    let (old, new) = (keys(started)?, keys(wanted)?);
    let all = old
        .keys()
        .chain(new.keys().filter(|key| !old.contains_key(*key)));
    let differ = all.filter(|key| old.get(*key) != new.get(*key));
    let mut names: Vec<String> = differ
        .filter(|key| !changes_at_run_time(key))
        .cloned()
        .collect();
    names.sort();
    Ok(names)
}

/// Every key of a configuration with its value, as `a.b`. A list is one value.
fn keys(config: &Config) -> Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    let value = serde_json::to_value(config).context("the configuration cannot be compared")?;
    let mut open = vec![(String::new(), value)];
    while let Some((path, value)) = open.pop() {
        match value {
            Value::Object(members) => {
                let below = |name: &str| match path.as_str() {
                    "" => name.to_owned(),
                    path => format!("{path}.{name}"),
                };
                open.extend(members.iter().map(|(name, v)| (below(name), v.clone())));
            }
            value => {
                found.insert(path, value);
            }
        }
    }
    Ok(found)
}

fn changes_at_run_time(key: &str) -> bool {
    AT_RUN_TIME.iter().any(|known| {
        key.strip_prefix(known)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// What [`Live::reload`] puts in force. A key that is not here waits for the next start and is named.
const AT_RUN_TIME: [&str; 25] = [
    "access",
    "foreman.trusted_hosts",
    "gc",
    "hostnames",
    "kubernetes.signing_duration",
    "limits.csr_per_minute_per_certname",
    "limits.csr_per_minute_per_source",
    "limits.token_failures_per_10_minutes",
    "limits.trusted_proxies",
    "log.level",
    "policies",
    "puppet.allow_authorization_extensions",
    "puppet.allow_duplicate_certs",
    "puppet.allow_subject_alt_names",
    "puppet.allowlist_apex",
    "puppet.auto_renewal",
    "puppet.auto_renewal_cert_ttl",
    "puppet.autosign",
    "puppet.autosign_executable",
    "puppet.ca_conf",
    "puppet.ca_ttl",
    "puppet.puppet_conf",
    "signers",
    "tokens",
    "webhooks",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_change_is_named() {
        let old = Config::default();
        let mut new = old.clone();
        assert_eq!(later(&old, &new).unwrap(), Vec::<String>::new());
        new.puppet.allow_subject_alt_names = true;
        new.hostnames.push("ca.example".to_owned());
        new.log.level = "debug".to_owned();
        new.gc.interval = "2h".parse().unwrap();
        assert_eq!(later(&old, &new).unwrap(), Vec::<String>::new());
        new.data = "/elsewhere".into();
        new.listen.set_port(1);
        new.kubernetes.listen = crate::config::Listen::Off;
        new.issuers.insert("puppet".to_owned(), Default::default());
        assert_eq!(
            later(&old, &new).unwrap(),
            [
                "data",
                "issuers.puppet.key",
                "issuers.puppet.verify_signatures",
                "kubernetes.listen",
                "listen",
            ]
        );
        let bound = bound(&old, new);
        assert_eq!((bound.data, bound.listen), (old.data, old.listen));
        assert!(bound.puppet.allow_subject_alt_names);
    }
}
