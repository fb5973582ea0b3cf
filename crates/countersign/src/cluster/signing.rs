//! Signs what a cluster has approved: through the engine, with the cluster's own CA and with issuers of this installation.
//!
//! The decision on record is the condition on the object, as it was read. The ledger and the audit log are those of the data
//! folder, which one process has at a time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use countersign_authority::store::Past;
use countersign_authority::{
    Actor, Authority, CarriedToken, Decision, Door, DoorSpec, Issuer, IssuerId, Issuers,
    RequestRecord, RequestState, Retention, Rules, Serials, Signer as EngineSigner, Store,
    Submission, SubmitFault, Submitted, Telemetry, TokenSettings,
};
use countersign_cluster::{
    ApprovedRequest, Attempt, CertificateId, SignedCertificate, Signer, Signing, Spending,
};
use countersign_keys::{AuditKey, KeySpec};
use countersign_pki::{CheckedCsr, RevocationReason, Serial, UnixTime};
use countersign_policy::{Looked, PersonVerdict, Policy, Rule, RuleKind, SignerName, TokenFacts};
use countersign_server::kubernetes::profile_text;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::config::{Collection, Config, SignerSection, Verification};
use crate::data_folder::DataFolder;
use crate::issuer_files::Follower;
use crate::issuer_keys::IssuerKeys;
use crate::settings::{IssuerFiles, IssuerSettings, Settings};
use crate::{audit_keys, first_start, serve, signers, stores, tokens, upkeep, witness};

/// The door's name in the engine.
pub(crate) static SPEC: DoorSpec = DoorSpec::plain(Door::named("cluster"));

/// The engine that signs for a cluster.
pub(crate) struct ClusterSigner {
    pub(super) authority: Authority,
    config: Config,
    /// Whether Kubernetes' own signers are served.
    has_ca: bool,
    /// What comes from resources of the cluster.
    declared: Mutex<Declared>,
    token_settings: TokenSettings,
    store: Arc<dyn Store>,
    keys: Arc<IssuerKeys>,
    /// The server's name, for those of new issuers.
    certname: String,
    folder: DataFolder,
    audit_key: Arc<AuditKey>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What resources of the cluster add to the configuration.
#[derive(Default)]
struct Declared {
    signers: Vec<SignerSection>,
    /// The signers that a rule looks at tokens for.
    token_signers: BTreeSet<SignerName>,
}

impl ClusterSigner {
    /// Opens the ledger and the issuers. Kubernetes' own signers are served only with the cluster's CA.
    pub(crate) async fn start(
        mut settings: Settings,
        cluster_ca: Option<IssuerFiles>,
        telemetry: Arc<dyn Telemetry>,
    ) -> Result<Self> {
        let has_ca = cluster_ca.is_some();
        let signers = configured(&settings.config, has_ca)?;
        let is_used = |id: &_| signers.iter().any(|signer| signer.issuer == *id);
        settings.issuers.retain(|issuer| is_used(&issuer.id));
        for issuer in &mut settings.issuers {
            if issuer.id.as_str() == signers::KUBERNETES_ISSUER {
                issuer.kept.clone_from(&cluster_ca);
            }
        }
        let folder = settings.folder.clone();
        folder.create()?;
        let store = stores::open(&settings, Arc::clone(&telemetry)).await?;
        let audit_key = Arc::new(audit_keys::prepare(&folder)?);
        witness::compare(&folder, &*store).await?;
        let section = &settings.config.tokens;
        let in_use = section.enabled.unwrap_or(true);
        let token_settings = tokens::settings(section, &folder, in_use)?;
        let rules = rules(signers, &BTreeSet::new(), &token_settings)?;
        let started = serve::start_authority(&settings, Arc::clone(&store), rules, telemetry).await;
        let (authority, keys) = started?;
        upkeep::write_crls(&authority.issuers, &folder)?;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        upkeep::start(&authority, &folder, &tasks, &stop);
        let (collection, rules) = watch::channel(collection());
        let collecting = upkeep::collect(authority.clone(), rules, stop.clone());
        tasks.spawn(async move {
            collecting.await;
            drop(collection);
        });
        tasks.spawn(upkeep::seal(
            authority.clone(),
            folder.clone(),
            Arc::clone(&audit_key),
            stop.clone(),
        ));
        let followers = followers(&settings);
        tasks.spawn(follow(
            followers,
            authority.clone(),
            Arc::clone(&keys),
            folder.clone(),
            stop.clone(),
        ));
        Ok(Self {
            authority,
            has_ca,
            declared: Mutex::default(),
            token_settings,
            store,
            keys,
            certname: settings.names.certname,
            config: settings.config,
            folder,
            audit_key,
            tasks,
            stop,
        })
    }

    /// The engine.
    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Ends what goes on beside it, and seals the audit log.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        let audit = &self.authority.audit;
        if let Err(error) = upkeep::seal_once(audit, &self.folder, &self.audit_key).await {
            warn!(error = %format!("{error:#}"), "the end of the audit log was not sealed");
        }
    }

    /// Whether the configuration, or the program, has a signer of that name.
    pub(super) fn is_taken(&self, name: &str) -> bool {
        let configured = self.config.signers.iter().any(|s| s.name == name);
        configured || signers::BUILT_IN.contains(&name)
    }

    /// Whether the configuration, or the program, has an issuer of that name.
    pub(super) fn is_issuer_taken(&self, id: &IssuerId) -> bool {
        let mut configured = self.config.signers.iter();
        let is_it = |section: &SignerSection| signers::issuer_of(section).is_ok_and(|it| it == *id);
        [signers::PUPPET_ISSUER, signers::KUBERNETES_ISSUER].contains(&id.as_str())
            || configured.any(is_it)
    }

    /// Signs for these beside those of the configuration, and for no others. Whether that is a change.
    pub(super) fn declare(&self, sections: Vec<SignerSection>) -> Result<bool> {
        let mut declared = self.declared();
        if declared.signers == sections {
            return Ok(false);
        }
        let before = std::mem::replace(&mut declared.signers, sections);
        let applied = self.apply(&declared);
        if applied.is_err() {
            declared.signers = before;
        }
        applied.map(|()| true)
    }

    /// Tokens approve for these signers.
    pub(super) fn look_at_tokens_for(&self, names: BTreeSet<SignerName>) -> Result<()> {
        let mut declared = self.declared();
        declared.token_signers = names;
        self.apply(&declared)
    }

    fn apply(&self, declared: &Declared) -> Result<()> {
        let mut all = configured(&self.config, self.has_ca)?;
        for section in &declared.signers {
            all.push(signers::custom(section)?);
        }
        let rules = rules(all, &declared.token_signers, &self.token_settings)?;
        self.authority.set_rules(rules);
        Ok(())
    }

    fn declared(&self) -> MutexGuard<'_, Declared> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An issuer for a signer that came while others work: the one of that name, made if it never was.
    pub(super) async fn issuer(&self, id: &IssuerId) -> Result<Arc<Issuer>> {
        if let Some(known) = self.authority.issuers.get(id) {
            return Ok(known);
        }
        let settings = IssuerSettings {
            id: id.clone(),
            common_name: format!("{id} CA: {}", self.certname),
            key: KeySpec::default(),
            key_is_configured: false,
            verification: Verification::default(),
            serials: Serials::AsRecorded,
            kept: None,
        };
        let in_use: Vec<Arc<Issuer>> = self.authority.issuers.all().collect();
        let loading =
            first_start::load_issuer(&self.keys, &self.folder, &*self.store, &settings, &in_use);
        self.authority.issuers.add(loading.await?).await?;
        upkeep::write_crls_of(&self.authority.issuers, id, &self.folder)?;
        upkeep::start_issuer(&self.authority, id, &self.folder, &self.tasks, &self.stop);
        self.tasks.spawn(follow(
            vec![Follower::new(&self.folder, id.clone())],
            self.authority.clone(),
            Arc::clone(&self.keys),
            self.folder.clone(),
            self.stop.clone(),
        ));
        let added = self.authority.issuers.get(id);
        added.with_context(|| format!("issuer {id} is not there"))
    }

    /// Where an issuer's files are.
    pub(super) fn folder(&self) -> &DataFolder {
        &self.folder
    }

    async fn sign_approved(&self, request: ApprovedRequest<'_>) -> Result<Signing> {
        let csr = match request.csr {
            Ok(csr) => csr,
            Err(why) => return Ok(failed(why.to_owned())),
        };
        if let Some(weakness) = csr.unsignable() {
            return Ok(failed(format!("{weakness}: nothing here signs that")));
        }
        let rules = self.authority.rules();
        let Some(signer) = rules.signer(request.signer) else {
            return Ok(Signing::NotMine);
        };
        let key = key_of(&request);
        let requests = &self.authority.requests;
        let (is_first, confirmation) = match request.attempt {
            Attempt::First(confirmation) => (true, Some(confirmation.clone())),
            Attempt::Later => (false, None),
        };
        // Nothing refuses a second certificate where an earlier one is on record: it has to be looked for. Only a token can
        // have had a request signed before its first approval.
        let before = match is_first && self.authority.tokens.carried(csr) == CarriedToken::None {
            true => None,
            false => requests.at(&SPEC.name, &key, Past::Include).await?,
        };
        if let Some(record) = before.filter(|record| record.state != UNSETTLED) {
            return self.as_recorded(&record).await;
        }
        // Before it is stored: what can never be signed has its condition, and no record.
        if let Err(fault) = signer.profile.examine(csr, &key, request.wishes) {
            let text = profile_text(&fault, request.signer.as_str(), &signer.profile);
            return Ok(failed(text));
        }
        let decision = Decision {
            actor: Actor::authority(),
            verdict: PersonVerdict::Approve,
            reason: reason(&request),
            confirmation,
        };
        let submission = submission(&request, csr, Some(decision));
        Ok(match requests.submit(submission).await {
            Ok(submitted) => self.issued(request, submitted),
            Err(SubmitFault::Forbidden(needed)) => failed(needed.to_string()),
            Err(other) => Signing::Later(other.to_string()),
        })
    }

    fn issued(&self, request: ApprovedRequest<'_>, submitted: Submitted) -> Signing {
        if let Some(fault) = &submitted.unsignable {
            return failed(fault.to_string());
        }
        let issuers = &self.authority.issuers;
        if let Some(entry) = submitted.before() {
            return certificate(issuers, &entry.issuer, entry.serial, &entry.der);
        }
        let Some(issued) = submitted.issued else {
            return Signing::Later("it is not signed yet".to_owned());
        };
        let intent = issued.intent();
        info!(name = request.name, uid = request.uid, signer = %request.signer, serial = %intent.serial, "certificate issued");
        certificate(issuers, &intent.issuer, intent.serial, issued.der())
    }

    async fn token_facts(&self, request: ApprovedRequest<'_>) -> Result<Looked<TokenFacts>> {
        let Ok(csr) = request.csr else {
            return Ok(Ok(TokenFacts::Missing));
        };
        let submission = submission(&request, csr, None);
        let facts = self.authority.tokens.facts(&submission).await?;
        if !matches!(facts, Ok(TokenFacts::Known(_))) {
            return Ok(facts);
        }
        let requests = &self.authority.requests;
        let key = submission.key.as_str();
        let before = requests.at(&SPEC.name, key, Past::Include).await?;
        let was_signed = before.is_some_and(|record| record.certificate.is_some());
        Ok(facts.map(|facts| as_asked_again(facts, was_signed, self.authority.now())))
    }

    async fn spend(&self, request: ApprovedRequest<'_>) -> Result<Spending> {
        let rules = self.authority.rules();
        let (Ok(csr), Some(signer)) = (request.csr, rules.signer(request.signer)) else {
            return Ok(Spending::Refused("nobody here signs it".to_owned()));
        };
        let submission = submission(&request, csr, None);
        let requests = &self.authority.requests;
        let before = requests.at(&SPEC.name, &submission.key, Past::Include);
        let before = before.await?;
        if let Some(record) = before.filter(|record| record.state != UNSETTLED) {
            return Ok(match record.state {
                RequestState::Issued | RequestState::Approved => Spending::Spent,
                RequestState::Failed | RequestState::Denied => {
                    let why = record
                        .failure
                        .unwrap_or_else(|| record.explanation.in_short());
                    Spending::Refused(why)
                }
                RequestState::Pending | RequestState::Undecided => {
                    Spending::Again(record.explanation.in_short())
                }
            });
        }
        if let Err(fault) = signer.profile.examine(csr, &submission.key, request.wishes) {
            // It could never be signed, and its token is not used up for nothing.
            let text = profile_text(&fault, request.signer.as_str(), &signer.profile);
            return Ok(Spending::Refused(text));
        }
        Ok(match requests.submit(submission).await {
            Ok(done) => match done.state {
                RequestState::Issued | RequestState::Approved => Spending::Spent,
                RequestState::Denied
                | RequestState::Failed
                | RequestState::Pending
                | RequestState::Undecided => Spending::Again(done.code.as_str().to_owned()),
            },
            Err(SubmitFault::Forbidden(needed)) => Spending::Refused(needed.to_string()),
            Err(other) => Spending::Again(other.to_string()),
        })
    }

    /// What became of a request that was here before: its answer did not reach the cluster.
    async fn as_recorded(&self, record: &RequestRecord) -> Result<Signing> {
        let later = || Signing::Later(format!("its request {} is under way", record.id));
        Ok(match (record.state, &record.certificate) {
            (RequestState::Issued, Some((issuer, serial))) => {
                match self.authority.ledger.get(issuer, serial).await? {
                    Some(entry) if entry.revoked.is_some() => {
                        failed(format!("its certificate {serial} has been revoked"))
                    }
                    Some(entry) => {
                        certificate(&self.authority.issuers, issuer, *serial, &entry.der)
                    }
                    None => later(),
                }
            }
            (RequestState::Failed | RequestState::Denied, _) => {
                let why = record.failure.clone();
                failed(why.unwrap_or_else(|| "it was refused here".to_owned()))
            }
            (
                RequestState::Issued
                | RequestState::Approved
                | RequestState::Pending
                | RequestState::Undecided,
                _,
            ) => later(),
        })
    }
}

impl Signer for ClusterSigner {
    fn serves(&self, signer: &SignerName) -> bool {
        self.authority.rules().signer(signer).is_some()
    }

    fn token<'a>(&'a self, request: ApprovedRequest<'a>) -> BoxFuture<'a, Looked<TokenFacts>> {
        Box::pin(async move {
            let looked = self.token_facts(request).await;
            looked.unwrap_or_else(|error| Err(format!("{error:#}")))
        })
    }

    fn spend_token<'a>(&'a self, request: ApprovedRequest<'a>) -> BoxFuture<'a, Spending> {
        Box::pin(async move {
            let spent = self.spend(request).await;
            spent.unwrap_or_else(|error| Spending::Again(format!("{error:#}")))
        })
    }

    fn sign<'a>(&'a self, request: ApprovedRequest<'a>) -> BoxFuture<'a, Signing> {
        Box::pin(async move {
            let signed = self.sign_approved(request).await;
            signed.unwrap_or_else(|error| Signing::Later(format!("{error:#}")))
        })
    }

    fn discard<'a>(&'a self, id: &'a CertificateId) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let taken_back = take_back(&self.authority, id).await;
            taken_back.map_err(|error| format!("{error:#}"))
        })
    }
}

/// Revokes a certificate that nobody has got.
pub(super) async fn take_back(authority: &Authority, id: &CertificateId) -> Result<()> {
    let (ledger, actor) = (&authority.ledger, Actor::authority());
    let why = RevocationReason::CessationOfOperation;
    let CertificateId { issuer, serial } = id;
    let revoked = ledger.revoke_serial(issuer, serial, why, &actor).await;
    revoked.with_context(|| {
        format!("certificate {serial} of {issuer}, which nobody has got, is not revoked")
    })?;
    Ok(())
}

fn certificate(issuers: &Issuers, issuer: &IssuerId, serial: Serial, der: &[u8]) -> Signing {
    Signing::Certificate(SignedCertificate {
        pem: issuers.with_intermediates(issuer, der),
        id: CertificateId {
            issuer: issuer.clone(),
            serial,
        },
    })
}

/// The signers of the configuration; Kubernetes' own where there is the cluster's CA.
fn configured(config: &Config, has_ca: bool) -> Result<Vec<EngineSigner>> {
    let mut signers = signers::all(config)?;
    let is_configured = |name: &str| config.signers.iter().any(|s| s.name == name);
    signers.retain(|signer| {
        let name = signer.name.as_str();
        is_configured(name) || (has_ca && signers::OF_CLUSTERS.contains(&name))
    });
    Ok(signers)
}

/// What the engine is told. Requests are approved elsewhere; here a rule looks at the tokens of those that are approved by
/// one.
fn rules(
    signers: Vec<EngineSigner>,
    token_signers: &BTreeSet<SignerName>,
    tokens: &TokenSettings,
) -> Result<Rules> {
    let wanted: Vec<SignerName> = token_signers.iter().cloned().collect();
    let rule = Rule::approving("token", wanted, RuleKind::Token);
    let policy = Policy {
        rules: vec![rule],
        machine_subjects: signers::machine_subjects()?,
        ..Policy::default()
    };
    Ok(Rules::new(policy, signers).with_tokens(tokens.clone()))
}

/// What a request is called in the ledger: an object's name may be given again, its identity is not.
fn key_of(request: &ApprovedRequest<'_>) -> String {
    format!("{}.{}", request.name, request.uid)
}

fn submission(
    request: &ApprovedRequest<'_>,
    csr: &CheckedCsr,
    decision: Option<Decision>,
) -> Submission {
    Submission {
        door: &SPEC,
        key: key_of(request),
        csr: CheckedCsr::clone(csr),
        signer: request.signer.clone(),
        requester: request.requester.clone(),
        wishes: request.wishes.clone(),
        attachment: Vec::new(),
        bearer: None,
        decision,
    }
}

/// A key that has used its token may ask for the outcome again, for a while; and for a request that was signed here, but
/// whose approval did not reach the cluster, at any time. Rules then see the token as it was before.
fn as_asked_again(facts: TokenFacts, was_signed: bool, now: UnixTime) -> TokenFacts {
    let TokenFacts::Known(mut token) = facts else {
        return facts;
    };
    let may = |until: UnixTime| was_signed || now <= until;
    if token
        .same
        .as_ref()
        .is_some_and(|used| may(used.retry_until))
    {
        token.same = None;
        token.uses = token.uses.saturating_sub(1);
        // What stands in the way is the very certificate.
        token.existing = token.existing.take().filter(|existing| !existing.same_key);
    }
    TokenFacts::Known(token)
}

/// The cluster has the requests; here they are kept until no answer to it can be outstanding. Certificates stay.
fn collection() -> Collection {
    let states = [
        RequestState::Pending,
        RequestState::Approved,
        RequestState::Issued,
        RequestState::Failed,
        RequestState::Denied,
        RequestState::Undecided,
    ];
    let rules = states.map(|state| Retention {
        door: &SPEC,
        state,
        seconds: DAY,
    });
    Collection {
        interval: Duration::from_secs(HOUR),
        rules: rules.to_vec(),
    }
}

/// The condition that its approval is, for the record. One that is decided here may never be written.
fn reason(request: &ApprovedRequest<'_>) -> String {
    let (reason, message) = request.approval;
    let by = match request.attempt {
        Attempt::First(_) => "decided here",
        Attempt::Later => "the cluster says Approved",
    };
    let text = format!("{by}: {reason}: {message}");
    text.chars().take(MAX_REASON).collect()
}

fn failed(message: String) -> Signing {
    Signing::Failed {
        reason: "SignerValidationFailure".to_owned(),
        message,
    }
}

fn followers(settings: &Settings) -> Vec<Follower> {
    let issuers = settings.issuers.iter();
    issuers
        .map(|issuer| match &issuer.kept {
            Some(kept) => Follower::of_kept(kept, issuer.id.clone()),
            None => Follower::new(&settings.folder, issuer.id.clone()),
        })
        .collect()
}

/// Takes other certificates and keys when their files are replaced.
async fn follow(
    mut followers: Vec<Follower>,
    authority: Authority,
    keys: Arc<IssuerKeys>,
    folder: DataFolder,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(upkeep::LOOK_AT_ISSUERS) => {}
            () = stop.cancelled() => return,
        }
        for follower in &mut followers {
            let looked = follower.look(&authority, &keys, &folder).await;
            if let Err(error) = looked.context("an issuer's new files are not in use everywhere") {
                warn!(error = %format!("{error:#}"), "trying again");
            }
        }
    }
}

/// How a request stands that is decided anew when it comes again: its approval was not written, or evidence could not be had.
const UNSETTLED: RequestState = RequestState::Undecided;
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// As long as a condition's message is worth repeating.
const MAX_REASON: usize = 1024;
