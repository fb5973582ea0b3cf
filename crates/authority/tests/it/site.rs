//! An authority with a policy file, deciders that say what a test wants, and two doors: one that forgets what it does not
//! sign, and one that keeps everything.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use countersign_authority::store::RejectionFilter;
use countersign_authority::{
    AuditEntry, Authority, Deciders, Door, DoorSpec, OnExisting, PlainKeeper, Question, Recorded,
    RequestId, RequestRecord, Revision, Submission, SubmitFault, WhenEnded,
};
use countersign_keys::LeafKey;
use countersign_pki::{CheckedCsr, UnixTime};
use countersign_policy::{
    BuildWindow, Guarded, Machine, Policy, PolicyFile, PolicySet, Rule, Webhook, WebhookAnswer,
};
use futures_util::future::BoxFuture;

use crate::world::{self, START, World, act, client_signer, issuer_id, with_csr};

/// A door whose requests keep their names, as Kubernetes objects do. The one of [`world`] does not.
pub(crate) const KEEPING: Door = Door::named("keeping");
static KEEPING_DOOR: DoorSpec = DoorSpec {
    name: KEEPING,
    retained: true,
    when_ended: WhenEnded::Stays,
    keeper: &PlainKeeper,
};

/// The address of the decider in most policies.
pub(crate) const DECIDER: &str = "https://decider.example.com/v";

pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) deciders: Arc<Scripted>,
}

/// Request and ledger are as the engine has told.
pub(crate) async fn is_on_record(authority: &Authority, told: &Recorded) {
    let request = authority.requests.get(told.request.id).await.unwrap();
    let told_request = format!("{:?}", Some(&told.request));
    assert_eq!(format!("{request:?}"), told_request);
    let entry = match &told.request.certificate {
        Some((issuer, serial)) => authority.ledger.get(issuer, serial).await.unwrap(),
        None => None,
    };
    assert_eq!(format!("{entry:?}"), format!("{:?}", told.certificate));
}

impl Site {
    /// With rules as they stand in a policy file. The word `FOLDER` is the site's folder.
    pub(crate) async fn new(rules: &str) -> Self {
        Self::of(World::new(false).await, rules)
    }

    pub(crate) fn of(world: World, rules: &str) -> Self {
        let site = Self {
            world,
            deciders: Arc::default(),
        };
        site.apply(1, rules);
        site
    }

    /// Ends the authority and starts another on the same folder, with the same deciders.
    pub(crate) async fn restart(self, rules: &str) -> Self {
        let Self { world, deciders } = self;
        let world = world.restart(false).await;
        let site = Self { world, deciders };
        site.apply(1, rules);
        site
    }

    /// Puts rules in force.
    pub(crate) fn apply(&self, generation: u64, rules: &str) {
        let policy = self.policy(generation, rules);
        let deciders = Arc::clone(&self.deciders);
        let rules = self.authority().rules().with_policy(policy);
        self.authority().set_rules(rules.with_deciders(deciders));
    }

    pub(crate) fn policy(&self, generation: u64, rules: &str) -> Policy {
        Policy {
            generation,
            rules: rules_of(&self.path("policy.yaml"), rules),
            reserved: Guarded::names(["ca.example.com".to_owned()]),
            own: Guarded::names(["ca.example.com".to_owned()]),
            ..Policy::default()
        }
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.world.authority
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.world.folder.path().join(name)
    }

    /// A file of the site's folder, made anew as editors do.
    pub(crate) fn write(&self, name: &str, text: &str, mode: u32) {
        let (path, next) = (self.path(name), self.path("next"));
        std::fs::write(&next, text).unwrap();
        std::fs::set_permissions(&next, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::rename(&next, &path).unwrap();
    }

    /// A program that notes each run in the file `runs` and then does this.
    pub(crate) fn program(&self, name: &str, does: &str) {
        let runs = self.path("runs");
        let text = format!("#!/bin/sh\necho {name} $1 >> {}\n{does}\n", runs.display());
        self.write(name, &text, 0o755);
    }

    /// Which programs ran, for whom.
    pub(crate) fn runs(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("runs")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Submits, and shows what is on record then: it is what the engine said.
    pub(crate) async fn ask(&self, submission: Submission) -> RequestRecord {
        let submitted = self.authority().requests.submit(submission).await.unwrap();
        let record = self.record(submitted.id).await;
        assert_eq!(record.state, submitted.state);
        if let Some(recorded) = submitted.into_recorded() {
            is_on_record(self.authority(), &recorded).await;
        }
        record
    }

    /// Submits what is not taken.
    pub(crate) async fn refused(&self, submission: Submission) -> SubmitFault {
        self.authority()
            .requests
            .submit(submission)
            .await
            .unwrap_err()
    }

    pub(crate) async fn record(&self, id: RequestId) -> RequestRecord {
        self.authority().requests.get(id).await.unwrap().unwrap()
    }

    pub(crate) async fn add_machine(&self, machine: Machine) {
        let admin = act("").actor;
        let added = self
            .authority()
            .inventory
            .add_machine(machine, OnExisting::Refuse, &admin);
        added.await.unwrap();
    }

    pub(crate) async fn machine(&self, name: &str) -> countersign_authority::MachineRecord {
        self.authority()
            .inventory
            .machine(name)
            .await
            .unwrap()
            .unwrap()
    }

    /// Opens a window for an hour from now on.
    pub(crate) async fn open_window(&self, certname: &str, max_issuances: u32) {
        let now = self.authority().now();
        let window = BuildWindow {
            max_issuances,
            ..window(certname, now)
        };
        let admin = act("").actor;
        self.authority()
            .inventory
            .open_window(window, &admin)
            .await
            .unwrap();
    }

    pub(crate) async fn issuances(&self, certname: &str) -> u32 {
        let window = self.authority().inventory.window(certname).await.unwrap();
        window.unwrap().issuances
    }

    /// How many certificates a name has ever got.
    pub(crate) async fn certificates(&self, name: &str) -> usize {
        let all = self.authority().ledger.of_name(&issuer_id(), name).await;
        all.unwrap().len()
    }

    /// What was turned away, newest first.
    pub(crate) async fn rejections(&self) -> Vec<RequestRecord> {
        let filter = RejectionFilter {
            limit: 1000,
            ..RejectionFilter::default()
        };
        let page = self.authority().requests.rejections(filter).await.unwrap();
        page.into_iter().map(|one| one.request).collect()
    }

    /// The entries of the audit log with this action, each with its revision.
    pub(crate) async fn told(&self, action: &str) -> Vec<(Revision, AuditEntry)> {
        let audit = self
            .authority()
            .audit
            .after(Revision::default(), 10_000)
            .await;
        let entries = audit.unwrap().into_iter();
        entries
            .filter(|(_, entry)| entry.action == action)
            .collect()
    }
}

/// Rules as they stand in a policy file, for both signers.
pub(crate) fn rules_of(path: &std::path::Path, rules: &str) -> Vec<Rule> {
    let folder = path.parent().unwrap().display().to_string();
    let rules = rules.trim_end().replace("FOLDER", &folder);
    let rules = rules.replace('\n', "\n    ");
    let text = format!(
        "apiVersion: countersign.dev/v1alpha1\nkind: ApprovalPolicy\nmetadata: {{name: site}}\nspec:\n  \
         signers: [{}, {}]\n  rules:\n    {rules}\n",
        world::agent_signer(),
        client_signer()
    );
    let file = PolicyFile::new(path.to_owned(), text);
    let read = PolicySet::read(std::slice::from_ref(&file));
    read.unwrap_or_else(|faults| panic!("{faults:?}\n{}", file.text))
        .into_rules()
}

/// A rule of the one decider.
pub(crate) fn webhook_rule(more: &str) -> String {
    format!("- {{name: decider, approve: {{webhook: {{url: '{DECIDER}'}}}}{more}}}")
}

/// A request at the door that keeps everything: the object's name, the name that is asked for, its key.
pub(crate) fn object(object: &str, name: &str, key: &LeafKey) -> Submission {
    kept(object, world::csr(key, name, &[]))
}

pub(crate) fn kept(object: &str, csr: CheckedCsr) -> Submission {
    let mut submission = with_csr(object, csr);
    submission.door = &KEEPING_DOOR;
    submission.signer = client_signer();
    submission.wishes.usages = vec!["client auth".to_owned()];
    submission
}

/// The same request once more; its signature differs.
pub(crate) fn agent(name: &str, key: &LeafKey) -> Submission {
    with_csr(name, world::csr(key, name, &[]))
}

pub(crate) fn window(certname: &str, opens_at: UnixTime) -> BuildWindow {
    BuildWindow {
        certname: certname.to_owned(),
        opens_at,
        closes_at: opens_at.plus_seconds(3600),
        max_issuances: 1,
        issuances: 0,
        require_token: false,
    }
}

pub(crate) fn new_key() -> LeafKey {
    LeafKey::generate().unwrap()
}

pub(crate) fn start() -> UnixTime {
    UnixTime(START)
}

/// What happens while a decider thinks.
type Meanwhile = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// Deciders that say what the test told them to say, and remember what they were asked.
pub(crate) struct Scripted {
    says: Mutex<WebhookAnswer>,
    asked: Mutex<Vec<String>>,
    questions: Mutex<Vec<String>>,
    meanwhile: Mutex<Option<Meanwhile>>,
}

impl Default for Scripted {
    fn default() -> Self {
        Self {
            says: Mutex::new(silence()),
            asked: Mutex::default(),
            questions: Mutex::default(),
            meanwhile: Mutex::default(),
        }
    }
}

impl Scripted {
    pub(crate) fn say(&self, answer: WebhookAnswer) {
        *self.says.lock().unwrap() = answer;
    }

    /// The names that they were asked about so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// The identities of the questions so far.
    pub(crate) fn questions(&self) -> Vec<String> {
        self.questions.lock().unwrap().clone()
    }

    /// Does this the next time one is asked, before it answers.
    pub(crate) fn meanwhile(
        &self,
        action: impl FnOnce() -> BoxFuture<'static, ()> + Send + 'static,
    ) {
        *self.meanwhile.lock().unwrap() = Some(Box::new(action));
    }
}

impl Deciders for Scripted {
    fn ask<'a>(&'a self, _: &'a Webhook, question: Question<'a>) -> BoxFuture<'a, WebhookAnswer> {
        Box::pin(async move {
            self.asked
                .lock()
                .unwrap()
                .push(question.certname.to_owned());
            let id = question.request_id.to_owned();
            self.questions.lock().unwrap().push(id);
            let action = self.meanwhile.lock().unwrap().take();
            if let Some(action) = action {
                action().await;
            }
            self.says.lock().unwrap().clone()
        })
    }
}

pub(crate) fn allow(ttl_seconds: Option<u64>) -> WebhookAnswer {
    WebhookAnswer::Allow {
        reason: "known".to_owned(),
        ttl_seconds,
    }
}

pub(crate) fn deny() -> WebhookAnswer {
    WebhookAnswer::Deny {
        reason: "retired".to_owned(),
    }
}

pub(crate) fn pend() -> WebhookAnswer {
    WebhookAnswer::Pend {
        reason: "ask a person".to_owned(),
    }
}

pub(crate) fn silence() -> WebhookAnswer {
    WebhookAnswer::Unavailable {
        reason: "no answer within 5 s".to_owned(),
    }
}
