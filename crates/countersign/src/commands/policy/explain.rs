//! `countersign policy explain`: one request, decided offline.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use countersign_authority::{Clock as _, SystemClock};
use countersign_pki::{Attribute, CheckedCsr, CsrLimits, oid};
use countersign_policy::trial::{CsrFields, Material, Scene};
use countersign_policy::{
    Answer, AutosignFile, Deciding, Effect, Explanation, Identity, LedgerFacts, Policy, PolicySet,
    Request, Requester, Rule, RuleKind, Step, TokenFacts, Wishes, nearest,
};
use countersign_server::{kubernetes, puppet};
use serde_json::{Value, json};

use super::complain;
use crate::built_in;
use crate::cli::{ExplainArgs, Form, RuleAnswer, ServeArgs};
use crate::explanation::finding_word;
use crate::output::{self, Facts};
use crate::policy_files;
use crate::settings::Settings;
use crate::signers;

/// Decides; the exit code says whether a decision could be made, not which.
pub(super) fn run(args: &ExplainArgs) -> Result<u8> {
    let csr = read_csr(&args.csr)?;
    let requester = requester(args);
    let settings = settings(args)?;
    let places = match (&settings, args.policy.is_empty()) {
        (Some(settings), true) => settings.policy_paths(),
        (_, _) => args.policy.clone(),
    };
    let built_in = settings.as_ref().map(|s| built_in::policies(&s.config));
    let set = policy_files::read_beside(&places, built_in.unwrap_or_default());
    let (set, scene) = match (set, scene(args, &requester, &csr)?) {
        (Ok(set), Ok(scene)) => (set, scene),
        (Err(faults), _) | (_, Err(faults)) => {
            complain(&faults);
            return Ok(1);
        }
    };
    let lists = policy_files::lists(&set);
    let (policy, autosign) = policy(settings.as_ref(), set)?;
    ensure_rules_exist(&args.answer, &policy)?;
    let wishes = Wishes {
        usages: args.usage.clone(),
        expiration_seconds: None,
    };
    let now = SystemClock.now();
    let request = Request {
        key: csr.subject().first_common_name().unwrap_or_default(),
        name: csr.subject().common_names().last().unwrap_or_default(),
        csr: &csr,
        door: &args.door,
        signer: &args.signer,
        requester: &requester,
        wishes: &wishes,
        at: args.now.unwrap_or(now),
        renewal: false,
        pod: None,
    };
    let nothing_to_sign = |_: &CsrFields| Err("nothing is signed here".to_owned());
    let material = Material {
        policies: &BTreeMap::new(),
        lists: &lists,
        autosign: &autosign,
        machine_subjects: &policy.machine_subjects,
        seal: &nothing_to_sign,
        now,
    };
    let ledger = LedgerFacts::default();
    let explanation = scene
        .decide(&policy, &request, &ledger, &material)
        .context("the decision does not come to an end")?;
    // What a setting stands for is in no file that could be looked at.
    let settings: Vec<&Rule> = policy
        .rules
        .iter()
        .filter(|r| r.policy.is_empty())
        .collect();
    match args.output.form {
        Form::Table => output::line(&text(&request, &explanation, &settings))?,
        form => output::object(&object(&request, &explanation, &settings), form)?,
    }
    Ok(0)
}

fn read_csr(path: &Path) -> Result<CheckedCsr> {
    let shown = path.display();
    let facts = fs::metadata(path).with_context(|| format!("cannot read the request {shown}"))?;
    anyhow::ensure!(
        facts.len() <= MAX_REQUEST,
        "{shown} is larger than {MAX_REQUEST} bytes, which no request is"
    );
    let bytes = fs::read(path).with_context(|| format!("cannot read the request {shown}"))?;
    // DER begins with a sequence, PEM with whatever a person wrote above it.
    let read = match bytes.first() {
        Some(0x30) if !bytes.is_ascii() => CheckedCsr::check(&bytes, &CsrLimits::STANDARD),
        _ => CheckedCsr::from_pem(&bytes, &CsrLimits::STANDARD),
    };
    read.map_err(|fault| anyhow!("{shown} is no request that any door would take: {fault}"))
}

type Faults = Vec<countersign_policy::PolicyFault>;

fn scene(
    args: &ExplainArgs,
    requester: &Requester,
    csr: &CheckedCsr,
) -> Result<Result<Scene, Faults>> {
    let answers = args.answer.iter();
    let mut scene = Scene::default();
    scene.now = args.now;
    scene.answers = answers.map(|a| (a.rule.clone(), a.finding)).collect();
    if !may_have_token(requester, csr) {
        scene.token = Some(TokenFacts::Missing);
    }
    let Some(path) = &args.machines else {
        return Ok(Ok(scene));
    };
    let text = policy_files::text_of(path);
    let text = text.with_context(|| format!("cannot read the machines {}", path.display()))?;
    Ok(scene.with_objects(path, &text))
}

/// Refuses answers for rules that there are not: a mistyped name would answer nothing.
fn ensure_rules_exist(answers: &[RuleAnswer], policy: &Policy) -> Result<()> {
    let known = || policy.rules.iter().map(|rule| rule.name.as_str());
    for RuleAnswer { rule, .. } in answers {
        if known().any(|name| name == rule) {
            continue;
        }
        let hint = match (nearest(rule, known()), known().next()) {
            (Some(near), _) => format!("did you mean {near}?"),
            (None, Some(_)) => format!("there are {}", known().collect::<Vec<_>>().join(", ")),
            (None, None) => "it has none".to_owned(),
        };
        bail!("--answer: the policy has no rule {rule:?}: {hint}");
    }
    Ok(())
}

/// Whether the door would answer 503, because evidence could not be had and its requests do not wait for it.
fn is_undecided(door: &str, explanation: &Explanation) -> bool {
    let specs = [&puppet::SPEC, &kubernetes::SPEC];
    let spec = specs.into_iter().find(|spec| spec.name.as_str() == door);
    explanation.is_stopped() && spec.is_some_and(|spec| !spec.retained)
}

/// Whether an enrolment token may have come with a request: in one of the places for it, or as the credentials of a user.
/// Whether it is good only the server knows.
pub(super) fn may_have_token(requester: &Requester, csr: &CheckedCsr) -> bool {
    let is_place = |attribute: &Attribute| {
        attribute.oid == oid::CHALLENGE_PASSWORD || attribute.oid.is_under(&oid::PP_PRIV)
    };
    matches!(requester.identity, Identity::User { .. })
        || csr.attributes().iter().any(is_place)
        || csr.extension(&oid::PP_PRESHARED_KEY).is_some()
}

/// The configuration, if one is named.
fn settings(args: &ExplainArgs) -> Result<Option<Settings>> {
    let read = |config: &PathBuf| {
        Settings::new(&ServeArgs {
            config: Some(config.clone()),
            ..ServeArgs::default()
        })
    };
    args.config.as_ref().map(read).transpose()
}

/// The rules of the files, then what the configuration's settings stand for.
fn policy(
    settings: Option<&Settings>,
    set: PolicySet,
) -> Result<(Policy, BTreeMap<PathBuf, AutosignFile>)> {
    let mut policy = match settings {
        None => Policy {
            machine_subjects: signers::machine_subjects()?,
            ..Policy::default()
        },
        Some(settings) => signers::policy(&settings.config, &settings.names)?,
    };
    let mut autosign = BTreeMap::new();
    for kind in policy.rules.iter().flat_map(|rule| &rule.kinds) {
        if let RuleKind::AutosignFile { path, .. } = kind {
            autosign.insert(path.clone(), policy_files::autosign(path));
        }
    }
    policy.rules.splice(0..0, set.into_rules());
    Ok((policy, autosign))
}

fn requester(args: &ExplainArgs) -> Requester {
    let identity = match (&args.user, &args.certname) {
        (Some(username), _) => Identity::User {
            username: username.clone(),
            groups: args.group.clone(),
            uid: String::new(),
            extra: BTreeMap::new(),
        },
        (None, Some(certname)) => Identity::Certname {
            certname: certname.clone(),
        },
        (None, None) => Identity::Anonymous,
    };
    Requester {
        identity,
        source: args.source,
    }
}

fn object(request: &Request<'_>, explanation: &Explanation, settings: &[&Rule]) -> Value {
    let settings: BTreeMap<&str, String> = settings
        .iter()
        .map(|rule| (rule.name.as_str(), rule.to_yaml()))
        .collect();
    json!({
        "request": {
            "name": request.name, "door": request.door, "signer": request.signer,
            "subject": request.csr.subject().to_string(), "requester": request.requester,
        },
        "explanation": explanation,
        "undecided": is_undecided(request.door, explanation),
        "settings": settings,
    })
}

fn text(request: &Request<'_>, explanation: &Explanation, settings: &[&Rule]) -> String {
    let mut facts = Facts::default();
    let Request { door, signer, .. } = request;
    facts.add(
        "request",
        &format!("{} at door {door} for {signer}", request.name),
    );
    facts.add("requester", &request.requester.to_string());
    let verdict = match explanation.effect {
        Effect::Approve => "approved",
        Effect::Deny => "denied",
        Effect::Pending if is_undecided(door, explanation) => {
            "undecided: with this evidence the door answers 503 and keeps nothing waiting; the agent comes back by itself"
        }
        Effect::Pending if explanation.is_stopped() => "waits until the evidence can be had",
        Effect::Pending => "waits for a person",
    };
    facts.add("verdict", verdict);
    if let Some(Deciding::Rule { name, policy }) = &explanation.by {
        let of = match policy.as_str() {
            "" => String::new(),
            policy => format!(" of policy {policy}"),
        };
        facts.add("decided by", &format!("rule {name}{of}"));
    }
    facts.add("reason", explanation.code.as_str());
    if explanation.retry {
        facts.add(
            "retry",
            "worth asking again: some evidence could not be had",
        );
    }
    let lifetime = explanation
        .lifetime
        .map(|seconds| format!("at most {seconds} s"));
    facts.add("lifetime", &lifetime.unwrap_or_default());
    facts.add("at", &explanation.at.to_string());
    if explanation.steps.is_empty() {
        facts.add("rules asked", "none");
    }
    for (index, step) in explanation.steps.iter().enumerate() {
        let label = if index == 0 { "rules asked" } else { "" };
        facts.add(label, &step_text(index, step));
        let saw = match step.saw.as_str() {
            "" => String::new(),
            saw => format!("   saw {saw}"),
        };
        facts.add("", &saw);
    }
    let mut text = facts.text();
    for rule in settings {
        text.push_str(&format!(
            "\n\nThe {} setting stands for this rule:\n{}",
            rule.name,
            rule.to_yaml().trim_end()
        ));
    }
    text
}

fn step_text(index: usize, step: &Step) -> String {
    let answer = match step.answer {
        Answer::Approve => "approves",
        Answer::Deny => "denies",
        Answer::Abstain => "abstains",
    };
    let of = match step.policy.as_str() {
        "" => String::new(),
        policy => format!("{policy}/"),
    };
    let reason = match step.reason.as_str() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    let (number, finding) = (index + 1, finding_word(step.finding));
    format!(
        "{number}. {of}{} ({}) {finding}, {answer}{reason}",
        step.rule, step.kind
    )
}

/// More than any door takes.
const MAX_REQUEST: u64 = 256 * 1024;
