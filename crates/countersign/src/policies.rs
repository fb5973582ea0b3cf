//! The policy in force: the files and folders that the configuration names, and Puppet's `autosign` setting as one rule.
//!
//! Files are read and checked whole. A start with a bad file fails; a change to one leaves what is in force as it is, and
//! says so.

use std::fmt::Write as _;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use countersign_authority::{Deciders, trusted_file};
use countersign_policy::{FileUse, NeededFile, Policy, PolicyFault, PolicyFile, PolicySet};
use countersign_webhook::Webhooks;
use rustix::fs::{Access, access};

use crate::settings::Settings;
use crate::signers;

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
}

/// What is wrong with policy files, one sentence each.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", sentences(.faults))]
pub(crate) struct BadPolicies {
    pub(crate) faults: Vec<String>,
}

impl Loaded {
    /// Reads what the settings name.
    pub(crate) fn read(settings: &Settings) -> Result<Self> {
        let files = read_files(&settings.policy_paths())?;
        let set = match files.is_empty() {
            true => PolicySet::default(),
            false => checked(&files)?,
        };
        let mut policy = signers::policy(&settings.config, &settings.names)?;
        let mut text = String::new();
        for file in &files {
            write!(text, "# {}\n{}\n", file.path.display(), file.text)?;
        }
        for rule in &policy.rules {
            write!(text, "# puppet.autosign\n{}\n", rule.to_yaml())?;
        }
        // What a setting stands for comes after what somebody has written down with care.
        let mut rules = set.into_rules();
        rules.append(&mut policy.rules);
        policy.rules = rules;
        let webhooks = policy.webhooks().map(|webhook| &**webhook);
        let section = &settings.config.webhooks;
        let how = countersign_webhook::Settings {
            concurrency: section.concurrency.get(),
            id: section.id.clone(),
        };
        let deciders = Webhooks::load(webhooks, &how).map_err(|fault| BadPolicies {
            faults: vec![format!("{:#}", anyhow::Error::new(fault))],
        })?;
        Ok(Self {
            deciders: Arc::new(deciders),
            policy,
            text,
            files: files.into_iter().map(|file| file.path).collect(),
        })
    }
}

/// The policies of files, and whether everything is there that their rules refer to.
fn checked(files: &[PolicyFile]) -> Result<PolicySet> {
    let told = |faults: Vec<PolicyFault>| BadPolicies {
        faults: faults.iter().map(ToString::to_string).collect(),
    };
    let set = PolicySet::read(files).map_err(told)?;
    let missing: Vec<String> = set
        .files_needed()
        .iter()
        .filter_map(|needed| {
            let fault = fault_of(needed)?;
            let (policy, rule) = (&needed.policy, &needed.rule);
            Some(format!("rule {rule} of policy {policy}: {fault}"))
        })
        .collect();
    if !missing.is_empty() {
        bail!(BadPolicies { faults: missing });
    }
    Ok(set)
}

/// What is wrong with a file that a rule refers to.
pub(crate) fn fault_of(needed: &NeededFile) -> Option<String> {
    let path = needed.path.display();
    let words = needed.purpose.words();
    if needed.purpose == FileUse::Executable {
        let is_executable = access(&needed.path, Access::EXEC_OK).is_ok() && needed.path.is_file();
        return (!is_executable)
            .then(|| format!("the {words} {path} is not there, or may not be executed"));
    }
    match fs::read(&needed.path) {
        Ok(content) => {
            let why = needed.purpose.check_content(&content)?;
            Some(format!("the {words} {path} {why}"))
        }
        Err(error) => Some(format!("the {words} {path} cannot be read: {error}")),
    }
}

/// Reads files, and the YAML files of folders by name.
pub(crate) fn read_files(paths: &[PathBuf]) -> Result<Vec<PolicyFile>> {
    let mut files = Vec::new();
    for path in expand(paths)? {
        let real = path
            .canonicalize()
            .with_context(|| format!("the policy file {} cannot be found", path.display()))?;
        if let Err(why) = trusted_file(&real) {
            bail!("the policy file {} is not trusted: {why}", path.display());
        }
        let text = read_bounded(&real)
            .with_context(|| format!("the policy file {} cannot be read", path.display()))?;
        files.push(PolicyFile::new(path, text));
    }
    Ok(files)
}

fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let shown = path.display();
        let facts =
            fs::metadata(path).with_context(|| format!("policies: {shown} cannot be found"))?;
        if facts.is_dir() {
            let found = yaml_files(path);
            files.extend(found.with_context(|| format!("the folder {shown} cannot be read"))?);
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

/// The YAML files right in a folder, by name. Hidden ones are what editors leave behind.
fn yaml_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
        if is_yaml && !name.starts_with('.') && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    file.take(MAX_FILE.saturating_add(1))
        .read_to_string(&mut text)?;
    match u64::try_from(text.len()).is_ok_and(|length| length <= MAX_FILE) {
        true => Ok(text),
        false => Err(io::Error::other(format!(
            "it is longer than {MAX_FILE} bytes"
        ))),
    }
}

/// What changes whenever a policy file is written, replaced, added or removed.
pub(crate) fn stamp(paths: &[PathBuf]) -> Vec<(PathBuf, [i64; 6])> {
    let mut stamps = Vec::new();
    for path in paths {
        let Ok(facts) = fs::metadata(path) else {
            continue;
        };
        if facts.is_dir() {
            let files = yaml_files(path).unwrap_or_default();
            let stamped = |file: PathBuf| fs::metadata(&file).ok().map(|f| (file, marks(&f)));
            stamps.extend(files.into_iter().filter_map(stamped));
        } else {
            stamps.push((path.clone(), marks(&facts)));
        }
    }
    stamps
}

fn marks(facts: &Metadata) -> [i64; 6] {
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

const MAX_FILE: u64 = 1024 * 1024;
