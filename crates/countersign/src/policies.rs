//! The policy in force: the files and folders that the configuration names, the policies that are built in, and the settings
//! that stand for a rule each, `tokens.enabled` and Puppet's `autosign`. With it comes how enrolment tokens are handled, because rules ask for them.
//!
//! Files are read and checked whole. A start with a bad file fails; a change to one leaves what is in force as it is, and
//! says so.

use std::fmt::Write as _;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use countersign_authority::{Deciders, TokenSettings};
use countersign_policy::{Policy, PolicyFault, PolicyFile, PolicySet, TokenHandling, WebhookMode};
use countersign_webhook::{Webhooks, trusted_file};
use tracing::warn;

use crate::policy_files::{self, BadLines};
use crate::settings::Settings;
use crate::signing_policies::KeptPolicies;
use crate::{built_in, signers, tokens};

/// A policy that was read and found good, but is not in force yet.
pub(crate) struct Loaded {
    /// Its generation is not known yet.
    pub(crate) policy: Policy,
    /// All that it is made from: the same text is the same policy.
    pub(crate) text: String,
    /// The files it was read from.
    pub(crate) files: Vec<PathBuf>,
    /// Who asks its webhooks.
    pub(crate) deciders: Arc<dyn Deciders>,
    /// How enrolment tokens are handled under it.
    pub(crate) tokens: TokenSettings,
    /// What may not be meant so, in words.
    pub(crate) warnings: Vec<String>,
}

/// What is wrong with policy files, one sentence each.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", sentences(.faults))]
pub(crate) struct BadPolicies {
    pub(crate) faults: Vec<String>,
}

impl Loaded {
    /// Reads what the settings name.
    pub(crate) fn read(settings: &Settings, kept: &KeptPolicies) -> Result<Self> {
        let (mut files, mut faults) = policy_files::texts(&settings.policy_paths());
        faults.extend(files.iter().filter_map(distrusted));
        let paths = files.iter().map(|file| file.path.clone()).collect();
        files.extend(built_in::policies(&settings.config));
        let set = match checked(&files) {
            Ok(set) => set,
            Err(more) => {
                faults.extend(more);
                PolicySet::default()
            }
        };
        if !faults.is_empty() {
            let faults = faults.iter().map(ToString::to_string).collect();
            bail!(BadPolicies { faults });
        }
        let declared = settings.config.signers.iter().map(|it| it.name.as_str());
        let warnings = policy_files::unserved_signers(&set, &declared.collect::<Vec<_>>());
        for warning in &warnings {
            warn!("{warning}");
        }
        let mut policy = signers::policy(&settings.config, &settings.names)?;
        let mut text = String::new();
        for file in &files {
            write!(text, "# {}\n{}\n", file.path.display(), file.text)?;
        }
        // What a setting stands for comes after what somebody has written down with care.
        let mut rules = set.into_rules();
        let section = &settings.config.tokens;
        let (enabled, own) = tokens::in_use(section, &rules).map_err(bad)?;
        let tokens = tokens::settings(section, &settings.folder, enabled).map_err(bad)?;
        if let Some(rule) = own {
            write!(text, "# tokens.enabled\n{}\n", rule.to_yaml())?;
            rules.push(rule);
        }
        if enabled && policy.tokens != TokenHandling::default() {
            let (reject, missing) = (section.on_token_reject, section.on_token_missing);
            writeln!(text, "# tokens.on_token_reject: {reject}")?;
            writeln!(text, "# tokens.on_token_missing: {missing}")?;
        }
        if !kept.text.is_empty() {
            write!(text, "# signing policies\n{}\n", kept.text)?;
        }
        if let Some(rule) = kept.rule(&rules)? {
            writeln!(text, "{}", rule.to_yaml())?;
            rules.push(rule);
        }
        policy.signing_policies = Arc::new(kept.policies.clone());
        let operators = kept.operators.iter().map(|name| name.to_ascii_lowercase());
        policy.reserved.names.extend(operators);
        for rule in &policy.rules {
            write!(text, "# puppet.autosign\n{}\n", rule.to_yaml())?;
        }
        rules.append(&mut policy.rules);
        policy.rules = rules;
        let webhooks = policy.webhooks().map(|webhook| &**webhook);
        let section = &settings.config.webhooks;
        let how = countersign_webhook::Settings {
            concurrency: section.concurrency.get(),
            id: section.id.clone(),
        };
        let deciders = Webhooks::load(webhooks, &how).map_err(|fault| bad(fault.into()))?;
        Ok(Self {
            tokens,
            deciders: Arc::new(deciders),
            policy,
            text,
            files: paths,
            warnings,
        })
    }
}

/// What is wrong beside the files themselves.
fn bad(fault: anyhow::Error) -> BadPolicies {
    BadPolicies {
        faults: vec![format!("{fault:#}")],
    }
}

/// The policies of files, and whether everything is there that their rules refer to.
fn checked(files: &[PolicyFile]) -> Result<PolicySet, Vec<PolicyFault>> {
    let set = PolicySet::read(files)?;
    let mut faults = policy_files::unknown_signers(&set);
    faults.extend(policy_files::check_needed(&set, BadLines::Ignored));
    match faults.is_empty() {
        true => Ok(set),
        false => Err(faults),
    }
}

/// Whoever may write a policy decides who gets a certificate.
pub(crate) fn distrusted(file: &PolicyFile) -> Option<PolicyFault> {
    let real = file.path.canonicalize().ok()?;
    let why = trusted_file(&real).err()?;
    Some(PolicyFault::of_file(
        &file.path,
        format!("is not trusted: {why}"),
    ))
}

/// The addresses of webhooks that are shown complete requests, with whatever secrets they hold.
pub(crate) fn see_everything(policy: &Policy) -> Vec<String> {
    let webhooks = policy.webhooks();
    let all = webhooks.filter(|w| w.include_csr || w.mode == WebhookMode::Status);
    all.map(|webhook| webhook.address().to_owned()).collect()
}

/// What changes whenever a policy file is written, replaced, added or removed.
pub(crate) fn stamp(paths: &[PathBuf]) -> Vec<(PathBuf, [i64; 6])> {
    let mut stamps = Vec::new();
    for path in paths {
        let Ok(facts) = fs::metadata(path) else {
            continue;
        };
        if facts.is_dir() {
            let files = policy_files::files_at(path).unwrap_or_default();
            let stamped = |file: PathBuf| fs::metadata(&file).ok().map(|f| (file, marks(&f)));
            stamps.extend(files.into_iter().filter_map(stamped));
        } else {
            stamps.push((path.clone(), marks(&facts)));
        }
    }
    stamps
}

/// By which a file that was changed is told from one that was not.
pub(crate) fn marks(facts: &Metadata) -> [i64; 6] {
    let [inode, length] = [facts.ino(), facts.len()].map(|n| i64::from_ne_bytes(n.to_ne_bytes()));
    [
        inode,
        length,
        facts.mtime(),
        facts.mtime_nsec(),
        facts.ctime(),
        facts.ctime_nsec(),
    ]
}

fn sentences(faults: &[String]) -> String {
    match faults {
        [one] => one.clone(),
        many => {
            let lines: Vec<String> = many.iter().map(|fault| format!("\n  {fault}")).collect();
            format!("{} faults in policy files:{}", many.len(), lines.concat())
        }
    }
}
