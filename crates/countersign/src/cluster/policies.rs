//! The rules of the controllers: policy files as `serve` reads them, the ApprovalPolicies of the cluster, and a preset for
//! signers that none of them names.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use countersign_cluster::{Attention, Cluster, Found, FoundState, Rules, Secrets, Steward};
use countersign_policy::{
    Policy, PolicyDocument, PolicyFile, PolicySet, Rule, RuleKind, SignerName,
};
use countersign_server::metrics::PolicyMetrics;
use countersign_webhook::{Executables, ThisMachine, Webhooks};
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::resources::policies::{MAX_RULES, ResourcePolicies, Standing};
use super::signing::ClusterSigner;
use crate::config::Config;
use crate::policies::{BadPolicies, distrusted, stamp};
use crate::policy_files::{self, BadLines};
use crate::signers;

/// Where rules come from.
#[derive(Clone, Debug)]
pub(super) struct ClusterPolicies {
    paths: Vec<PathBuf>,
    preset: Vec<PolicyFile>,
    config: Config,
}

impl ClusterPolicies {
    pub(super) fn new(config: &Config, preset: Vec<PolicyFile>) -> Self {
        Self {
            paths: config.policy_paths(),
            preset,
            config: config.clone(),
        }
    }

    /// Reads and checks the files.
    pub(super) fn read_files(&self) -> Result<PolicySet> {
        let (files, mut faults) = policy_files::texts(&self.paths);
        faults.extend(files.iter().filter_map(distrusted));
        let set = PolicySet::read(&files).unwrap_or_else(|more| {
            faults.extend(more);
            PolicySet::default()
        });
        faults.extend(policy_files::unknown_signers(&set));
        faults.extend(policy_files::check_needed(&set, BadLines::Ignored));
        faults.extend(policy_files::check_webhooks(&set));
        if !faults.is_empty() {
            let faults = faults.iter().map(ToString::to_string).collect();
            bail!(BadPolicies { faults });
        }
        Ok(set)
    }

    /// What the cluster's policies come to beside these files.
    fn standing(&self, files: &PolicySet, resources: &ResourcePolicies) -> Standing {
        let names: Vec<&str> = files.documents().iter().map(|it| &*it.name).collect();
        let room = MAX_RULES.saturating_sub(files.rules().count());
        resources.standing(&names, room)
    }

    /// Everything as one value.
    pub(super) fn assemble(
        &self,
        generation: u64,
        files: &PolicySet,
        standing: &Standing,
    ) -> Result<Rules> {
        let mut named: BTreeSet<SignerName> = files
            .signers()
            .map(|(_, signer, _)| signer.clone())
            .collect();
        named.extend(standing.named.iter().cloned());
        let mut documents: Vec<&PolicyDocument> = files.documents().iter().collect();
        documents.extend(&standing.documents);
        documents.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
        let mut rules: Vec<Rule> = documents
            .into_iter()
            .flat_map(|document| document.rules.iter().cloned())
            .collect();
        rules.extend(self.preset_rules(&named)?);
        let policy = Policy {
            generation,
            rules,
            tokens: self.config.tokens.handling(),
            machine_subjects: signers::machine_subjects()?,
            ..Policy::default()
        };
        let section = &self.config.webhooks;
        let how = countersign_webhook::Settings {
            concurrency: section.concurrency.get(),
            id: section.id.clone(),
        };
        let mut withheld = standing.withheld.clone();
        let loaded = Webhooks::load(policy.webhooks().map(|webhook| &**webhook), &how);
        let webhooks = match loaded {
            Ok(webhooks) => webhooks,
            Err(fault) => {
                // Each was good when its policy was read. One that cannot be asked might deny.
                withheld.all = Some(format!(
                    "a webhook of the policies cannot be asked: {fault}"
                ));
                Webhooks::load(std::iter::empty(), &how)?
            }
        };
        let section = &self.config.puppet.autosign_executable;
        let local = ThisMachine::new(Executables {
            seconds: section.timeout.as_seconds(),
            at_once: section.concurrency.get(),
            environment: section.environment.clone(),
            open_files: None,
        });
        Ok(Rules {
            policy,
            deciders: Arc::new(webhooks),
            local: Arc::new(local),
            withheld,
        })
    }

    /// The preset's rules, for signers that no policy names.
    fn preset_rules(&self, named: &BTreeSet<SignerName>) -> Result<Vec<Rule>> {
        let set = PolicySet::read(&self.preset).map_err(|faults| BadPolicies {
            faults: faults.iter().map(ToString::to_string).collect(),
        });
        let set = set.context("the options of --preset")?;
        let documents = set.documents().iter();
        let unnamed =
            documents.filter(|it| !it.signers.iter().any(|signer| named.contains(signer)));
        Ok(unnamed
            .flat_map(|document| document.rules.clone())
            .collect())
    }
}

/// Rules of files that can never approve here. Tokens are known where certificates are signed.
pub(super) fn needs_store(set: &PolicySet, signs: bool) -> Vec<String> {
    let rules = set.rules().filter_map(|(document, rule, _)| {
        let kinds: &[&str] = match signs {
            true => &["machine", "window"],
            false => &["machine", "window", "token"],
        };
        let kind = rule
            .kinds
            .iter()
            .map(|kind| kind.word())
            .find(|word| kinds.contains(word))?;
        Some(format!(
            "{}: rule {} of policy {} needs a store ({kind}) and never approves here",
            document.file.display(),
            rule.name,
            document.name
        ))
    });
    rules.collect()
}

/// The signers that a rule looks at tokens for.
pub(super) fn token_signers(policy: &Policy) -> BTreeSet<SignerName> {
    let looks = |rule: &&Rule| rule.kinds.iter().any(|it| matches!(it, RuleKind::Token));
    let rules = policy.rules.iter().filter(looks);
    rules
        .flat_map(|rule| rule.signers.iter().cloned())
        .collect()
}

/// Puts changed files and changed ApprovalPolicies in force.
pub(super) struct Followed {
    policies: ClusterPolicies,
    cluster: Cluster,
    /// Who must know which signers tokens are for.
    signer: Option<Arc<ClusterSigner>>,
    metrics: PolicyMetrics,
    state: Mutex<State>,
}

/// What rules are made from.
pub(super) struct State {
    pub(super) generation: u64,
    /// The last ones without faults.
    pub(super) files: Arc<PolicySet>,
    pub(super) resources: ResourcePolicies,
    /// What is in force of the resources.
    mark: String,
}

impl State {
    /// At the start; nothing of the cluster is known yet.
    pub(super) fn new(files: PolicySet, resources: ResourcePolicies) -> Self {
        Self {
            generation: 1,
            files: Arc::new(files),
            resources,
            mark: String::new(),
        }
    }

    /// The rules that it comes to.
    pub(super) fn rules(&self, policies: &ClusterPolicies) -> Result<Rules> {
        let standing = policies.standing(&self.files, &self.resources);
        policies.assemble(self.generation, &self.files, &standing)
    }
}

impl Followed {
    pub(super) fn new(
        policies: ClusterPolicies,
        cluster: Cluster,
        signer: Option<Arc<ClusterSigner>>,
        metrics: PolicyMetrics,
        state: State,
    ) -> Self {
        Self {
            policies,
            cluster,
            signer,
            metrics,
            state: Mutex::new(state),
        }
    }

    /// Looks for changes until it is to stop.
    pub(super) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let look = || {
            let paths = self.policies.paths.clone();
            async move {
                tokio::task::spawn_blocking(move || stamp(&paths))
                    .await
                    .ok()
            }
        };
        let mut last = look().await;
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_AT_POLICIES) => {}
                () = stop.cancelled() => return,
            }
            let now = look().await;
            if now != last {
                self.reload().await;
                last = now;
            }
        }
    }

    /// Reads the files again. If they are bad, what is in force stays in force.
    pub(super) async fn reload(&self) {
        let mut state = self.state.lock().await;
        let policies = self.policies.clone();
        let read = tokio::task::spawn_blocking(move || policies.read_files()).await;
        let applied = match read {
            Ok(Ok(files)) => {
                let before = std::mem::replace(&mut state.files, Arc::new(files));
                let standing = self.policies.standing(&state.files, &state.resources);
                let applied = self.apply(&mut state, &standing);
                if applied.is_err() {
                    state.files = before;
                }
                applied
            }
            Ok(Err(fault)) => Err(fault),
            Err(fault) => return error!(%fault, "the policies cannot be read"),
        };
        match applied {
            Ok(()) => info!(generation = state.generation, "policies read again"),
            Err(fault) => {
                self.metrics.refused();
                error!(fault = %format!("{fault:#}"), "the policies have faults: the earlier ones stay in force");
            }
        }
    }

    /// Takes the ApprovalPolicies as they are now, and says what is to be said of each.
    async fn take(&self, found: &Found) -> Attention {
        let mut state = self.state.lock().await;
        match &found.state {
            FoundState::NotServed => state.resources.take(&[]),
            FoundState::Unreadable(why) => state.resources.unreadable(why),
            FoundState::Objects(objects) => {
                // Expressions are compiled, and files that a webhook names are read.
                tokio::task::block_in_place(|| state.resources.take(objects));
            }
        }
        let standing = self.policies.standing(&state.files, &state.resources);
        let mut again = state.resources.may_be_mended().then_some(LOOK_AT_FILES);
        if standing.mark != state.mark {
            match self.apply(&mut state, &standing) {
                Ok(()) => info!(
                    generation = state.generation,
                    policies = standing.documents.len(),
                    "policies of the cluster in force"
                ),
                Err(fault) => {
                    self.metrics.refused();
                    error!(fault = %format!("{fault:#}"), "the policies of the cluster are not in force");
                    again = Some(AFTER_A_FAULT);
                }
            }
        }
        Attention {
            statuses: standing.statuses,
            again,
        }
    }

    fn apply(&self, state: &mut State, standing: &Standing) -> Result<()> {
        let next = state.generation.saturating_add(1);
        let rules = self.policies.assemble(next, &state.files, standing)?;
        if let Some(signer) = &self.signer {
            signer.look_at_tokens_for(token_signers(&rules.policy))?;
        }
        self.cluster.set_rules(rules);
        state.generation = next;
        state.mark.clone_from(&standing.mark);
        self.metrics.applied(next);
        Ok(())
    }
}

impl Steward for Followed {
    fn look<'a>(&'a self, found: &'a Found, _: &'a Secrets) -> BoxFuture<'a, Attention> {
        Box::pin(self.take(found))
    }
}

const LOOK_AT_POLICIES: Duration = Duration::from_secs(2);
const LOOK_AT_FILES: Duration = Duration::from_secs(30);
const AFTER_A_FAULT: Duration = Duration::from_secs(5);
