//! Enrolment tokens as the configuration wants them: whether they are in use, and the keys of their records.
//!
//! A key that is missing, too short or within reach of others keeps a server from starting: tokens that nobody can
//! verify, or that somebody else can try out, are worse than none.

use std::io::ErrorKind;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use countersign_authority::{MacKey, MacKeys, TokenSettings};
use countersign_keys::private_file::{self, FileFault};
use countersign_policy::{Policy, Rule, RuleKind, SignerName};
use countersign_webhook::trusted_file;
use tracing::warn;

use crate::config::{KeyFile, TokensSection};
use crate::data_folder::DataFolder;
use crate::signers;

/// What the forms of the values alone do not tell.
pub(crate) fn check(section: &TokensSection) -> Result<()> {
    let TokensSection {
        default_ttl,
        max_ttl,
        glob_max_ttl,
        ..
    } = section;
    for (key, span) in [
        ("default_ttl", default_ttl),
        ("max_ttl", max_ttl),
        ("glob_max_ttl", glob_max_ttl),
    ] {
        ensure!(
            span.as_seconds() > 0,
            "tokens.{key}: {span} would make tokens that are never good: write for example 6h"
        );
    }
    ensure!(
        default_ttl <= max_ttl,
        "tokens.default_ttl: {default_ttl} is longer than tokens.max_ttl, which is {max_ttl}: shorten the one or lengthen the other"
    );
    ensure!(
        !section.sources.is_empty(),
        "tokens.sources: the list is empty: name a place that requests carry tokens in, for example challengePassword"
    );
    let mut seen = Vec::new();
    for source in &section.sources {
        ensure!(
            !seen.contains(&source),
            "tokens.sources: {source} stands there twice: remove one of the two"
        );
        seen.push(source);
    }
    Ok(())
}

/// What the engine is told.
///
/// # Errors
/// If a key cannot be used.
pub(crate) fn settings(
    section: &TokensSection,
    folder: &DataFolder,
    enabled: bool,
) -> Result<TokenSettings> {
    let keys = match enabled {
        true => keys(section, folder)?,
        // Bootstrap tokens alone are verified. Without their key those that were minted under it count for nothing, which is
        // no reason not to serve.
        false => keys(section, folder).unwrap_or_else(|error| {
            warn!("{error:#}; bootstrap tokens that were minted with this key are refused");
            // Nor do those count that anybody who writes to the database could make.
            MacKeys {
                is_lost: true,
                ..MacKeys::default()
            }
        }),
    };
    Ok(TokenSettings {
        enabled,
        sources: section.carriers(),
        default_ttl: section.default_ttl.as_seconds(),
        max_ttl: section.max_ttl.as_seconds(),
        glob_max_ttl: section.glob_max_ttl.min(section.max_ttl).as_seconds(),
        retry_window: section.retry_window.as_seconds(),
        purge_after: section.purge_after.as_seconds(),
        max_active: section.max_active.get(),
        keys,
    })
}

/// Whether tokens are in use under these rules, and the rule that the setting stands for, if it stands for one.
///
/// # Errors
/// If they are switched off and a rule looks at them.
pub(crate) fn in_use(section: &TokensSection, documents: &[Rule]) -> Result<(bool, Option<Rule>)> {
    let is_token = |rule: &&Rule| rule.kinds.iter().any(|k| matches!(k, RuleKind::Token));
    let first = documents.iter().find(is_token);
    match (section.enabled, first) {
        (Some(false), Some(rule)) => Err(anyhow!(
            "tokens.enabled is false, but rule {} of policy {} looks at enrolment tokens: remove the rule, or the setting",
            rule.name,
            rule.policy
        )),
        (Some(false) | None, None) => Ok((false, None)),
        (None, Some(_)) => Ok((true, None)),
        (Some(true), _) => {
            let agents = SignerName::parse(signers::PUPPET_AGENT)?;
            let policy = Policy {
                rules: documents.to_vec(),
                ..Policy::default()
            };
            // A policy that wants a build window and a token shall not be undercut by one that wants a token alone.
            let own = (!policy.wants_tokens_for(&agents))
                .then(|| Rule::approving(RULE, vec![agents], RuleKind::Token));
            Ok((true, own))
        }
    }
}

fn keys(section: &TokensSection, folder: &DataFolder) -> Result<MacKeys> {
    let current = section.mac_key.as_ref();
    let current = current.map(|file| key(file, folder).context("tokens.mac_key"));
    let old = section.mac_keys_old.iter().enumerate();
    let old = old
        .map(|(at, file)| key(file, folder).with_context(|| format!("tokens.mac_keys_old[{at}]")));
    Ok(MacKeys {
        current: current.transpose()?,
        old: old.collect::<Result<_>>()?,
        is_lost: false,
    })
}

/// A key: the octets of its file, but for one line end behind them.
fn key(file: &KeyFile, folder: &DataFolder) -> Result<MacKey> {
    let path = folder.root().join(&file.file);
    let shown = path.display();
    let make = format!("make one with (umask 077; openssl rand -hex 32 > {shown})");
    let content = match private_file::read(&path) {
        Ok(content) => content,
        Err(FileFault::Io { source, .. }) if source.kind() == ErrorKind::NotFound => bail!(
            "there is no file {shown}: put the key back, without which its tokens are worth nothing, or {make}"
        ),
        Err(other) => return Err(other.into()),
    };
    let real = path.canonicalize();
    let real = real.with_context(|| format!("{shown} cannot be looked at"))?;
    trusted_file(&real).map_err(|why| anyhow!("{shown} is not trusted: {why}"))?;
    let key = content.strip_suffix(b"\n").unwrap_or(&content);
    let key = key.strip_suffix(b"\r").unwrap_or(key);
    MacKey::new(key.to_vec()).map_err(|_| {
        let length = key.len();
        anyhow!("{shown} holds {length} octets, and a key has at least 32: {make}")
    })
}

/// The name of the rule that the setting stands for.
const RULE: &str = "token";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn section(text: &str) -> TokensSection {
        serde_saphyr::from_str(text).unwrap()
    }

    fn rule(kind: RuleKind, signer: &str) -> Rule {
        Rule {
            policy: "site".into(),
            ..Rule::approving("door", vec![SignerName::parse(signer).unwrap()], kind)
        }
    }

    #[test]
    fn tokens_are_in_use_if_somebody_says_so_or_a_rule_looks_at_them() {
        let agents = signers::PUPPET_AGENT;
        let token = rule(RuleKind::Token, agents);
        let elsewhere = rule(RuleKind::Token, "example.com/vpn");
        let (window, always) = (
            rule(RuleKind::Window, agents),
            rule(RuleKind::Always, agents),
        );
        for (said, rules, enabled, adds_a_rule) in [
            ("{}", vec![], false, false),
            ("{}", vec![always.clone(), window.clone()], false, false),
            ("{}", vec![token.clone()], true, false),
            ("{}", vec![elsewhere.clone()], true, false),
            ("{enabled: false}", vec![window.clone()], false, false),
            ("{enabled: true}", vec![], true, true),
            ("{enabled: true}", vec![always, elsewhere], true, true),
            ("{enabled: true}", vec![token.clone()], true, false),
            ("{enabled: true}", vec![window], true, false),
        ] {
            let (is, own) = in_use(&section(said), &rules).unwrap();
            assert_eq!(
                (is, own.is_some()),
                (enabled, adds_a_rule),
                "{said} {rules:?}"
            );
        }
        let fault = in_use(&section("{enabled: false}"), &[token]).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "tokens.enabled is false, but rule door of policy site looks at enrolment tokens: remove the rule, or the setting"
        );
    }

    #[test]
    fn keys_are_what_their_private_files_hold() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = DataFolder::new(temporary.path().to_owned());
        let place = |name: &str, content: &[u8], mode: u32| {
            let path = temporary.path().join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        place("bare", &[b'k'; 32], 0o600);
        place("line", &[&[b'k'; 32][..], b"\n"].concat(), 0o400);
        place("short", &[&[b'k'; 31][..], b"\n"].concat(), 0o600);
        place("open", &[b'k'; 32], 0o644);
        let read = |file: &str| settings(&section(file), &folder, true).map(|s| s.keys);
        let rotated = read("{mac_key: {file: bare}, mac_keys_old: [{file: line}]}").unwrap();
        let current = rotated.current.unwrap();
        assert_eq!(
            current.id(),
            rotated.old[0].id(),
            "a line end is no part of it"
        );
        for (file, part) in [
            (
                "{mac_key: {file: short}}",
                "short holds 31 octets, and a key has at least 32",
            ),
            (
                "{mac_key: {file: open}}",
                "is accessible by group or others (mode 0644); run `chmod 600 ",
            ),
            (
                "{mac_key: {file: gone}}",
                "tokens.mac_key: there is no file ",
            ),
            (
                "{mac_keys_old: [{file: bare}, {file: gone}]}",
                "tokens.mac_keys_old[1]: ",
            ),
            ("{mac_key: {file: .}}", "is not a regular file"),
        ] {
            let fault = format!("{:#}", read(file).unwrap_err());
            assert!(fault.contains(part), "{file}: {fault}");
            assert!(!fault.contains("kkkk"), "{fault}");
            let without = settings(&section(file), &folder, false).unwrap();
            assert!(without.keys.is_lost, "{file}");
        }
    }
}
