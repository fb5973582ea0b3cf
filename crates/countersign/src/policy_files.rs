//! Policy files on this machine: which there are, what they say, and whether the files that their rules need are of use.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_policy::{
    Allowlist, AutosignFile, FileUse, ListFile, NeededFile, PolicyFault, PolicyFile, PolicySet,
    RuleKind, nearest,
};
use countersign_webhook::{Webhooks, trusted_file};
use rustix::fs::{Access, access};

use crate::signers;

/// Reads every policy in files and folders; all that is wrong comes together.
pub(crate) fn read(places: &[PathBuf]) -> Result<PolicySet, Vec<PolicyFault>> {
    read_beside(places, Vec::new())
}

/// The same, with others that are built in.
pub(crate) fn read_beside(
    places: &[PathBuf],
    built_in: Vec<PolicyFile>,
) -> Result<PolicySet, Vec<PolicyFault>> {
    let (mut files, mut faults) = texts(places);
    files.extend(built_in);
    match PolicySet::read(&files) {
        Ok(set) if faults.is_empty() => Ok(set),
        Ok(_) => Err(faults),
        Err(more) => {
            faults.extend(more);
            Err(faults)
        }
    }
}

/// The texts of files, and of the policies in folders.
pub(crate) fn texts(places: &[PathBuf]) -> (Vec<PolicyFile>, Vec<PolicyFault>) {
    let (mut files, mut faults) = (Vec::new(), Vec::new());
    for place in places {
        match files_at(place) {
            Ok(paths) if paths.is_empty() => {
                let what = "there is no file in this folder that ends in .yaml or .yml";
                faults.push(PolicyFault::of_file(place, what.to_owned()));
            }
            Ok(paths) => files.extend(paths),
            Err(error) => faults.push(unreadable(place, &error)),
        }
    }
    let mut read = Vec::new();
    for path in files {
        match text_of(&path).and_then(|text| Ok((std::path::absolute(&path)?, text))) {
            Ok((absolute, text)) => read.push(PolicyFile {
                path,
                ..PolicyFile::new(absolute, text)
            }),
            Err(error) => faults.push(unreadable(&path, &error)),
        }
    }
    (read, faults)
}

/// Whether lines of an allowlist that mean nothing are told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadLines {
    Told,
    /// They match nobody, and the log tells them when the list is read.
    Ignored,
}

/// What is wrong with the files that rules refer to, each at the place of its rule.
pub(crate) fn check_needed(set: &PolicySet, lines: BadLines) -> Vec<PolicyFault> {
    let mut faults = Vec::new();
    for needed in set.files_needed() {
        for what in problems(&needed, lines) {
            let NeededFile {
                path,
                purpose,
                file,
                place,
                policy,
                rule,
                denies: _,
            } = &needed;
            let (path, purpose) = (path.display(), purpose.words());
            let what = format!("{path}: {what} (the {purpose} of rule {rule} in policy {policy})");
            let fault = PolicyFault {
                place: *place,
                ..PolicyFault::of_file(file, what)
            };
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
    }
    faults
}

/// Signers under the names of the built-in ones that are none: a rule for them would never be asked.
pub(crate) fn unknown_signers(set: &PolicySet) -> Vec<PolicyFault> {
    let mut faults = Vec::new();
    for (document, signer, place) in set.signers() {
        let name = signer.as_str();
        if !signers::is_reserved(name) || signers::BUILT_IN.contains(&name) {
            continue;
        }
        let hint = match nearest(name, signers::BUILT_IN) {
            Some(known) => format!("did you mean {known}?"),
            None => format!("there are {}", signers::BUILT_IN.join(", ")),
        };
        faults.push(PolicyFault {
            place,
            ..PolicyFault::of_file(
                &document.file,
                format!(
                    "policy {}: there is no signer {name}: {hint}",
                    document.name
                ),
            )
        });
    }
    faults
}

/// Warnings about signers that this server does not serve. Another signer may serve them, so these are not faults.
pub(crate) fn unserved_signers(set: &PolicySet, declared: &[&str]) -> Vec<String> {
    set.signers()
        .filter(|(_, signer, _)| {
            let name = signer.as_str();
            !signers::is_reserved(name) && !declared.contains(&name)
        })
        .map(|(document, signer, place)| {
            format!(
                "{}, line {}: policy {}: signer {signer} is not declared in the configuration: its rules count only for requests that somebody else signs",
                document.file.display(),
                place.line,
                document.name
            )
        })
        .collect()
}

/// What the server would find wrong with the webhooks of rules.
pub(crate) fn check_webhooks(set: &PolicySet) -> Vec<PolicyFault> {
    let mut faults = Vec::new();
    for (document, rule, place) in set.rules() {
        for kind in &rule.kinds {
            let RuleKind::Webhook(webhook) = kind else {
                continue;
            };
            let how = countersign_webhook::Settings::default();
            if let Err(fault) = Webhooks::load(std::iter::once(&**webhook), &how) {
                let what = format!("rule {}: {:#}", rule.name, anyhow::Error::new(fault));
                faults.push(PolicyFault {
                    place,
                    ..PolicyFault::of_file(&document.file, what)
                });
            }
        }
    }
    faults
}

/// The lists that rules name, as they are now.
pub(crate) fn lists(set: &PolicySet) -> BTreeMap<PathBuf, ListFile> {
    let needed = set.files_needed().into_iter();
    let lists = needed.filter(|file| file.purpose == FileUse::Allowlist);
    lists
        .map(|file| {
            let list = match text_of(&file.path) {
                Ok(text) => ListFile::List(Arc::new(Allowlist::parse(&text).0)),
                Err(error) => {
                    let shown = file.path.display();
                    ListFile::Unusable(format!("{shown} cannot be read: {error}"))
                }
            };
            (file.path, list)
        })
        .collect()
}

/// What is at the path of an `autosign` setting.
pub(crate) fn autosign(path: &Path) -> AutosignFile {
    match text_of(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => AutosignFile::Missing,
        _ if access(path, Access::EXEC_OK).is_ok() => AutosignFile::Executable,
        Err(error) => AutosignFile::Unusable(format!("{} cannot be read: {error}", path.display())),
        Ok(text) => AutosignFile::List(Arc::new(Allowlist::parse(&text).0)),
    }
}

/// A whole file of text, unless it is far too long.
pub(crate) fn text_of(path: &Path) -> io::Result<String> {
    let bytes = bytes_of(path)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8 text"))
}

fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MAX_FILE {
        true => Err(io::Error::other(format!(
            "it is larger than {MAX_FILE} bytes"
        ))),
        false => Ok(bytes),
    }
}

/// A file itself; the policies of a folder, by name.
pub(crate) fn files_at(place: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(place)?.is_dir() {
        return Ok(vec![place.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(place)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_policy = name.ends_with(".yaml") || name.ends_with(".yml");
        if is_policy && !name.starts_with('.') && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn problems(needed: &NeededFile, lines: BadLines) -> Vec<String> {
    let NeededFile { path, purpose, .. } = needed;
    // Whoever may write a list or a program decides who gets a certificate: the server uses neither.
    let decides = matches!(purpose, FileUse::Allowlist | FileUse::Executable);
    if let (true, Ok(real)) = (decides, path.canonicalize())
        && let Err(why) = trusted_file(&real)
    {
        return vec![format!("is not trusted: {why}")];
    }
    if *purpose == FileUse::Executable {
        return match fs::metadata(path) {
            Err(error) => vec![format!("cannot be found: {error}")],
            Ok(facts) if !facts.is_file() => vec!["is not a program".to_owned()],
            Ok(_) => match access(path, Access::EXEC_OK) {
                Ok(()) => Vec::new(),
                Err(_) => vec!["may not be executed: run chmod +x".to_owned()],
            },
        };
    }
    let content = match bytes_of(path) {
        Ok(content) => content,
        Err(error) => return vec![format!("cannot be read: {error}")],
    };
    if *purpose == FileUse::Allowlist {
        let Ok(text) = String::from_utf8(content) else {
            return vec!["cannot be read: it is not UTF-8 text".to_owned()];
        };
        let (_, bad) = Allowlist::parse(&text);
        // A line that means nothing might have named somebody whom the list shall keep out.
        let are_told = lines == BadLines::Told || needed.denies;
        let bad = if are_told { bad } else { Vec::new() };
        return bad.iter().map(ToString::to_string).collect();
    }
    purpose.check_content(&content).into_iter().collect()
}

fn unreadable(path: &Path, error: &io::Error) -> PolicyFault {
    PolicyFault::of_file(path, format!("cannot be read: {error}"))
}

/// More than any site needs; keeps a wrong path from filling the memory.
const MAX_FILE: u64 = 1024 * 1024;
