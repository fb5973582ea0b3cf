//! ApprovalPolicies of the cluster: which of them are in force, and what is held back because of those that are not.
//!
//! Pure but for the files that a webhook names. A policy that is broken approves nothing. Its denials must not vanish
//! either, so nothing is decided for its signers, unless an earlier version of the same object is known: that one stays in
//! force.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_cluster::{Readiness, ResourceObject, ResourceStatus, Withheld};
use countersign_policy::{
    CaBundle, ListSource, PolicyDocument, PolicyFault, PolicyFile, PolicySet, RuleKind, SignerName,
    Webhook, WebhookMode,
};
use serde_json::{Map, json};

use crate::config::WebhookGrant;
use crate::policy_files::{self, BadLines};

/// What is known of the ApprovalPolicies of a cluster.
pub(in crate::cluster) struct ResourcePolicies {
    known: Known,
    /// By the objects' uids.
    read: BTreeMap<String, Reading>,
    grants: Vec<WebhookGrant>,
}

/// Whether somebody has looked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    /// They count for nothing, by configuration.
    Off,
    NotYet,
    Unreadable(String),
    All,
}

/// One object.
#[derive(Clone)]
struct Reading {
    name: String,
    generation: i64,
    /// The signers that it names, whatever else is wrong with it.
    signers: Vec<SignerName>,
    outcome: Result<Arc<Good>, Broken>,
    /// The last version that could be used.
    usable: Option<Arc<Good>>,
}

/// A version of a policy that can be in force.
struct Good {
    generation: i64,
    document: PolicyDocument,
}

/// Why a policy cannot be in force.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Broken {
    reason: &'static str,
    message: String,
}

/// What follows from all of them.
#[derive(Default)]
pub(in crate::cluster) struct Standing {
    /// Those in force.
    pub(in crate::cluster) documents: Vec<PolicyDocument>,
    /// Every signer that one of them names, in force or not.
    pub(in crate::cluster) named: BTreeSet<SignerName>,
    pub(in crate::cluster) withheld: Withheld,
    /// By the objects' uids.
    pub(in crate::cluster) statuses: Vec<(String, ResourceStatus)>,
    /// The same text is the same rules.
    pub(in crate::cluster) mark: String,
}

impl ResourcePolicies {
    /// They count for nothing.
    pub(in crate::cluster) fn off() -> Self {
        Self {
            known: Known::Off,
            read: BTreeMap::new(),
            grants: Vec::new(),
        }
    }

    /// They count, and nobody has looked at them yet.
    pub(in crate::cluster) fn expected(grants: &[WebhookGrant]) -> Self {
        Self {
            known: Known::NotYet,
            grants: grants.to_vec(),
            ..Self::off()
        }
    }

    /// They cannot be read, and never were.
    pub(in crate::cluster) fn unreadable(&mut self, why: &str) {
        self.known = Known::Unreadable(format!(
            "the ApprovalPolicies of the cluster cannot be read, and one of them might deny it: {why}"
        ));
    }

    /// These are all. Versions that were read before are not read again, but for broken ones: what they lack may be there.
    pub(in crate::cluster) fn take(&mut self, objects: &[Arc<ResourceObject>]) {
        let mut before = std::mem::take(&mut self.read);
        for object in objects {
            let known = before.remove(&object.uid);
            let is_good = |it: &Reading| it.generation == object.generation && it.outcome.is_ok();
            let reading = match known {
                Some(known) if is_good(&known) => known,
                known => self.reading(object, known.and_then(|known| known.usable)),
            };
            self.read.insert(object.uid.clone(), reading);
        }
        self.known = Known::All;
    }

    fn reading(&self, object: &ResourceObject, earlier: Option<Arc<Good>>) -> Reading {
        let outcome = match read(object, &self.grants) {
            Ok(document) => Ok(Arc::new(Good {
                generation: object.generation,
                document,
            })),
            Err(broken) => Err(broken),
        };
        Reading {
            name: object.name.clone(),
            generation: object.generation,
            signers: signers_of(object),
            usable: outcome.as_ref().ok().cloned().or(earlier),
            outcome,
        }
    }

    /// What they come to beside policies of these names, which are in files, if there is room for so many rules.
    pub(in crate::cluster) fn standing(&self, in_files: &[&str], mut room: usize) -> Standing {
        let mut standing = Standing {
            withheld: Withheld {
                all: match &self.known {
                    Known::Off | Known::All => None,
                    Known::NotYet => Some(String::new()),
                    Known::Unreadable(why) => Some(why.clone()),
                },
                ..Withheld::default()
            },
            ..Standing::default()
        };
        let mut readings: Vec<(&String, &Reading)> = self.read.iter().collect();
        readings.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        for (uid, reading) in readings {
            let (in_force, broken) = reading.in_force(in_files, room);
            let rules = in_force.map_or(0, |good| good.document.rules.len());
            room = room.saturating_sub(rules);
            standing.named.extend(reading.signers.iter().cloned());
            if let Some(good) = in_force {
                standing
                    .mark
                    .push_str(&format!("{uid} {}\n", good.generation));
                standing.documents.push(good.document.clone());
                standing.named.extend(good.document.signers.iter().cloned());
            }
            if let Some(broken) = &broken {
                let is_covered = |signer: &&SignerName| {
                    in_force.is_some_and(|good| good.document.signers.contains(signer))
                };
                for signer in reading.signers.iter().filter(|it| !is_covered(it)) {
                    let why = (reading.name.clone(), broken.message.clone());
                    standing.withheld.signers.insert(signer.clone(), why);
                }
            }
            let ready = ready(reading, in_force, broken.as_ref());
            let fields = Map::from_iter([("rules".to_owned(), json!(rules))]);
            let status = ResourceStatus { ready, fields };
            standing.statuses.push((uid.clone(), status));
        }
        standing.mark.push_str(&format!("{:?}", standing.withheld));
        standing
    }

    /// Whether something is broken that a look at the same version might find in order.
    pub(in crate::cluster) fn may_be_mended(&self) -> bool {
        let broken =
            |reading: &Reading| reading.outcome.as_ref().is_err_and(|it| it.reason == FILES);
        self.read.values().any(broken)
    }
}

impl Reading {
    /// The version in force, and what is wrong with the present one.
    fn in_force(&self, in_files: &[&str], room: usize) -> (Option<&Arc<Good>>, Option<Broken>) {
        if in_files.contains(&self.name.as_str()) {
            let message = format!(
                "a policy file has a policy {} too: rename one of them",
                self.name
            );
            return (None, Some(broken("NameTaken", message)));
        }
        let usable = self.usable.as_ref();
        if usable.is_some_and(|good| good.document.rules.len() > room) {
            let message = format!("there are more than {MAX_RULES} rules in all");
            return (None, Some(broken("TooManyRules", message)));
        }
        (usable, self.outcome.as_ref().err().cloned())
    }
}

fn ready(reading: &Reading, in_force: Option<&Arc<Good>>, wrong: Option<&Broken>) -> Readiness {
    match (wrong, in_force) {
        (None, Some(good)) => {
            let mut message = match good.document.rules.len() {
                1 => "1 rule in force".to_owned(),
                number => format!("{number} rules in force"),
            };
            for rule in &good.document.rules {
                let kinds = rule.kinds.iter().map(RuleKind::word);
                if let Some(kind) = kinds.into_iter().find(|kind| NEED_INVENTORY.contains(kind)) {
                    let name = &rule.name;
                    message.push_str(&format!(
                        "; rule {name} needs an inventory ({kind}) and never approves here"
                    ));
                }
            }
            Readiness::ready(message)
        }
        (Some(broken), Some(good)) => Readiness::not_ready(
            broken.reason,
            format!(
                "{}; generation {} stays in force",
                broken.message, good.generation
            ),
        ),
        (Some(broken), None) => Readiness::not_ready(
            broken.reason,
            format!(
                "{}; until this is repaired, no rule decides for {}",
                broken.message,
                listed(&reading.signers)
            ),
        ),
        (None, None) => Readiness::not_ready("Unread", "it was not read"),
    }
}

fn listed(signers: &[SignerName]) -> String {
    let names: Vec<&str> = signers.iter().map(SignerName::as_str).collect();
    names.join(", ")
}

fn signers_of(object: &ResourceObject) -> Vec<SignerName> {
    let named = object.spec.get("signers").and_then(|it| it.as_array());
    let texts = named.into_iter().flatten().filter_map(|it| it.as_str());
    texts
        .filter_map(|text| SignerName::parse(text).ok())
        .collect()
}

/// Reads an object as policy files are read.
fn read(object: &ResourceObject, grants: &[WebhookGrant]) -> Result<PolicyDocument, Broken> {
    let text = json!({
        "apiVersion": "countersign.dev/v1alpha1",
        "kind": "ApprovalPolicy",
        "metadata": {"name": object.name},
        "spec": object.spec,
    });
    let file = PolicyFile {
        path: PathBuf::from(format!("ApprovalPolicy {}", object.name)),
        folder: PathBuf::from("/"),
        // JSON is YAML.
        text: text.to_string(),
    };
    let set = PolicySet::read(&[file]).map_err(|faults| faulty("Invalid", &faults))?;
    let unknown = policy_files::unknown_signers(&set);
    if !unknown.is_empty() {
        return Err(faulty("UnknownSigner", &unknown));
    }
    let reaching: Vec<String> = set
        .rules()
        .flat_map(|(_, rule, _)| {
            let kinds = rule.kinds.iter().filter_map(|kind| reaches(kind, grants));
            kinds.map(|why| format!("rule {}: {why}", rule.name))
        })
        .collect();
    if !reaching.is_empty() {
        return Err(broken("ReachesHost", reaching.join("; ")));
    }
    let mut files = policy_files::check_needed(&set, BadLines::Ignored);
    files.extend(policy_files::check_webhooks(&set));
    if !files.is_empty() {
        return Err(faulty(FILES, &files));
    }
    match set.documents() {
        [one] => Ok(one.clone()),
        _ => Err(broken("Invalid", "it is not one policy".to_owned())),
    }
}

/// Why a rule would reach into the host: whoever writes policies has the power of their signers, not of this process.
fn reaches(kind: &RuleKind, grants: &[WebhookGrant]) -> Option<String> {
    match kind {
        RuleKind::Executable(_) => Some(
            "executable runs a program of the host: only a policy file may name one".to_owned(),
        ),
        RuleKind::Allowlist(ListSource::File(_)) | RuleKind::AutosignFile { .. } => Some(
            "allowlist.file reads a file of the host: only a policy file may name one; use names"
                .to_owned(),
        ),
        RuleKind::Webhook(webhook) => ungranted(webhook, grants),
        RuleKind::Allowlist(ListSource::Names(_))
        | RuleKind::Always
        | RuleKind::Cel(_)
        | RuleKind::Window
        | RuleKind::Token
        | RuleKind::SubjectAccess(_)
        | RuleKind::SigningPolicy
        | RuleKind::Machine(_)
        | RuleKind::NodeClient(_)
        | RuleKind::NodeServing(_) => None,
    }
}

/// What of a webhook the configuration does not name.
fn ungranted(webhook: &Webhook, grants: &[WebhookGrant]) -> Option<String> {
    let url = &webhook.url;
    let mut of_url = grants.iter().filter(|grant| grant.url == *url).peekable();
    if of_url.peek().is_none() {
        return Some(format!(
            "cluster.resources.webhooks in the configuration does not name {url}"
        ));
    }
    let bundle = match &webhook.ca_bundle {
        Some(CaBundle::File(path)) => Some(path.as_path()),
        Some(CaBundle::Pem(_)) | None => None,
    };
    let shows_all = webhook.include_csr || webhook.mode == WebhookMode::Status;
    let covers = |named: Option<&Path>, granted: &Option<PathBuf>| {
        named.is_none_or(|path| granted.as_deref() == Some(path))
    };
    let is_covered = of_url.any(|grant| {
        covers(bundle, &grant.ca_bundle)
            && covers(webhook.secret_file.as_deref(), &grant.secret_file)
            && covers(webhook.client_cert_file.as_deref(), &grant.client_cert_file)
            && covers(webhook.client_key_file.as_deref(), &grant.client_key_file)
            && (grant.include_csr || !shows_all)
    });
    (!is_covered).then(|| {
        format!(
            "cluster.resources.webhooks in the configuration names {url} without these files, or without include_csr"
        )
    })
}

fn faulty(reason: &'static str, faults: &[PolicyFault]) -> Broken {
    let mut texts: Vec<String> = faults
        .iter()
        .take(MOST_FAULTS)
        .map(|fault| match fault.key.as_str() {
            "" => fault.what.clone(),
            key => format!("{key}: {}", fault.what),
        })
        .collect();
    if let Some(more) = faults
        .len()
        .checked_sub(MOST_FAULTS)
        .filter(|more| *more > 0)
    {
        texts.push(format!("and {more} more"));
    }
    broken(reason, texts.join("; "))
}

fn broken(reason: &'static str, message: String) -> Broken {
    Broken { reason, message }
}

/// Of all policies together.
pub(in crate::cluster) const MAX_RULES: usize = 1000;
const MOST_FAULTS: usize = 4;
const NEED_INVENTORY: [&str; 2] = ["machine", "window"];
const FILES: &str = "FilesUnusable";

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const SITE: &str = "example.com/site";

    fn object(name: &str, generation: i64, signers: &[&str], rules: Value) -> Arc<ResourceObject> {
        let object = ResourceObject::read(&json!({
            "metadata": {"name": name, "uid": name, "generation": generation},
            "spec": {"signers": signers, "order": 0, "rules": rules},
        }));
        Arc::new(object.unwrap())
    }

    fn good(name: &str, generation: i64, signers: &[&str]) -> Arc<ResourceObject> {
        object(
            name,
            generation,
            signers,
            json!([{"name": "r", "approve": {"always": {}}}]),
        )
    }

    fn bad(name: &str, generation: i64, signers: &[&str]) -> Arc<ResourceObject> {
        object(
            name,
            generation,
            signers,
            json!([{"name": "r", "deny": {"cel": "1 +"}}]),
        )
    }

    fn reasons(standing: &Standing) -> Vec<(&str, bool, &str)> {
        let said = standing.statuses.iter();
        said.map(|(uid, it)| (uid.as_str(), it.ready.is_ready, it.ready.reason))
            .collect()
    }

    fn withheld(standing: &Standing) -> Vec<(&str, &str)> {
        let signers = standing.withheld.signers.iter();
        signers
            .map(|(signer, (policy, _))| (signer.as_str(), policy.as_str()))
            .collect()
    }

    #[test]
    fn nothing_is_decided_before_all_are_known() {
        let mut policies = ResourcePolicies::expected(&[]);
        assert_eq!(policies.standing(&[], 9).withheld.all.as_deref(), Some(""));
        policies.unreadable("forbidden");
        let why = policies.standing(&[], 9).withheld.all.unwrap();
        assert!(why.contains("forbidden"), "{why}");
        policies.take(&[]);
        assert_eq!(policies.standing(&[], 9).withheld, Withheld::default());
        assert_eq!(ResourcePolicies::off().standing(&[], 9).withheld.all, None);
    }

    #[test]
    fn a_broken_policy_holds_its_signers_back_unless_an_earlier_version_is_known() {
        let (a, b) = ("example.com/a", "example.com/b");
        let mut policies = ResourcePolicies::expected(&[]);
        policies.take(&[good("x", 1, &[SITE]), bad("y", 1, &[SITE, a])]);
        let standing = policies.standing(&[], 9);
        assert_eq!(
            reasons(&standing),
            [("x", true, "InUse"), ("y", false, "Invalid")]
        );
        assert_eq!(withheld(&standing), [(a, "y"), (SITE, "y")]);
        assert_eq!(standing.documents.len(), 1);
        let first = standing.mark;

        // Repaired.
        policies.take(&[good("x", 1, &[SITE]), good("y", 2, &[SITE, a])]);
        let standing = policies.standing(&[], 9);
        assert_eq!(
            reasons(&standing),
            [("x", true, "InUse"), ("y", true, "InUse")]
        );
        assert_eq!(withheld(&standing), []);
        assert_ne!(standing.mark, first);
        let second = standing.mark;
        // Looked at again: the same rules.
        policies.take(&[good("x", 1, &[SITE]), good("y", 2, &[SITE, a])]);
        assert_eq!(policies.standing(&[], 9).mark, second);

        // Broken again: generation 2 stays in force, and what it was not about is held back.
        policies.take(&[good("x", 1, &[SITE]), bad("y", 3, &[a, b])]);
        let standing = policies.standing(&[], 9);
        assert_eq!(standing.documents.len(), 2);
        assert_eq!(withheld(&standing), [(b, "y")]);
        let message = &standing.statuses[1].1.ready.message;
        assert!(
            message.ends_with("generation 2 stays in force"),
            "{message}"
        );
        let named: Vec<&str> = standing.named.iter().map(SignerName::as_str).collect();
        assert_eq!(named, [a, b, SITE]);

        // Another object of the same name has no earlier version.
        let mut other = bad("y", 1, &[a]).as_ref().clone();
        other.uid = "z".to_owned();
        policies.take(&[good("x", 1, &[SITE]), Arc::new(other)]);
        assert_eq!(withheld(&policies.standing(&[], 9)), [(a, "y")]);
        // Gone.
        policies.take(&[]);
        let standing = policies.standing(&[], 9);
        assert!(standing.documents.is_empty() && standing.named.is_empty());
        assert_eq!(standing.withheld, Withheld::default());
    }

    #[test]
    fn a_policy_gives_way_to_files_and_to_the_limit_of_rules() {
        let mut policies = ResourcePolicies::expected(&[]);
        policies.take(&[good("x", 1, &[SITE]), good("y", 1, &["example.com/y"])]);
        let standing = policies.standing(&["x"], 9);
        assert_eq!(
            reasons(&standing),
            [("x", false, "NameTaken"), ("y", true, "InUse")]
        );
        assert_eq!(withheld(&standing), [(SITE, "x")]);
        let standing = policies.standing(&[], 1);
        assert_eq!(
            reasons(&standing),
            [("x", true, "InUse"), ("y", false, "TooManyRules")]
        );
        assert_eq!(withheld(&standing), [("example.com/y", "y")]);
    }

    #[test]
    fn what_reaches_into_the_host_needs_the_configuration() {
        let url = "https://cmdb.example.com/decide";
        let grant = |text: &str| -> WebhookGrant { serde_saphyr::from_str(text).unwrap() };
        let plain = grant("{url: 'https://cmdb.example.com/decide'}");
        let all =
            grant("{url: 'https://cmdb.example.com/decide', include_csr: true, secret_file: /k}");
        let webhook = |more: Value| {
            let mut webhook = json!({"url": url});
            for (key, value) in more.as_object().unwrap() {
                webhook[key] = value.clone();
            }
            json!([{"name": "r", "approve": {"webhook": webhook}}])
        };
        let rule = |kind: &str, value: Value| json!([{"name": "r", "approve": {kind: value}}]);
        for (case, rules, grants, reason) in [
            (
                "a program",
                rule("executable", json!({"path": "/bin/true"})),
                vec![],
                Some("ReachesHost"),
            ),
            (
                "a list",
                rule("allowlist", json!({"file": "/etc/passwd"})),
                vec![],
                Some("ReachesHost"),
            ),
            (
                "names",
                rule("allowlist", json!({"names": ["a"]})),
                vec![],
                None,
            ),
            ("a webhook", webhook(json!({})), vec![], Some("ReachesHost")),
            (
                "a webhook that is named",
                webhook(json!({})),
                vec![plain.clone()],
                None,
            ),
            (
                "another one",
                webhook(json!({"url": "https://cmdb.example.com/"})),
                vec![plain.clone()],
                Some("ReachesHost"),
            ),
            (
                "a file beside it",
                webhook(json!({"secretFile": "/k"})),
                vec![plain.clone()],
                Some("ReachesHost"),
            ),
            (
                "a file that is not there",
                webhook(json!({"secretFile": "/k"})),
                vec![all.clone()],
                Some("FilesUnusable"),
            ),
            (
                "another file",
                webhook(json!({"secretFile": "/l"})),
                vec![all.clone()],
                Some("ReachesHost"),
            ),
            (
                "everything shown",
                webhook(json!({"includeCsr": true})),
                vec![plain],
                Some("ReachesHost"),
            ),
            (
                "that is permitted",
                webhook(json!({"mode": "status"})),
                vec![all],
                None,
            ),
        ] {
            let mut policies = ResourcePolicies::expected(&grants);
            policies.take(&[object("p", 1, &[SITE], rules)]);
            let standing = policies.standing(&[], 9);
            let ready = &standing.statuses[0].1.ready;
            assert_eq!(
                (!ready.is_ready).then_some(ready.reason),
                reason,
                "{case}: {ready:?}"
            );
        }
        let mut policies = ResourcePolicies::expected(&[]);
        policies.take(&[good("p", 1, &["kubernetes.io/kubelet-servings"])]);
        assert_eq!(
            reasons(&policies.standing(&[], 9)),
            [("p", false, "UnknownSigner")]
        );
    }
}
