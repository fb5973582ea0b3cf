//! What a request carries beside name and key: attributes and extensions, from flags and from `csr_attributes.yaml`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use countersign_authority::private_file;
use countersign_pki::oid::{self, Oid};
use countersign_pki::{Attribute, Extension, ext};
use serde::Deserialize;

use super::files::{self, Secret};
use crate::cli::{Assignment, RequestArgs};

/// Attributes and extensions of a request, each identifier once. They may hold secrets and are not printed.
#[derive(Default)]
pub(super) struct Extras {
    attributes: BTreeMap<Oid, String>,
    extensions: BTreeMap<Oid, String>,
    /// What somebody should know about the file they came from.
    pub(super) warning: Option<String>,
}

/// The file as Puppet reads it: nothing else may stand in it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AttributesFile {
    custom_attributes: BTreeMap<String, String>,
    extension_requests: BTreeMap<String, String>,
}

impl Extras {
    pub(super) fn new(args: &RequestArgs) -> Result<Self> {
        let mut extras = Self::default();
        if let Some(path) = &args.csr_attributes {
            extras.add_file(path)?;
        }
        for Assignment { name, text } in &args.attribute {
            let flag = format!("--attribute {name}");
            let oid = attribute_oid(name).with_context(|| flag.clone())?;
            refuse_secret(oid).with_context(|| flag.clone())?;
            add(&mut extras.attributes, oid, text.clone()).context(flag)?;
        }
        for Assignment { name, text } in &args.extension {
            let flag = format!("--extension {name}");
            let oid = extension_oid(name).with_context(|| flag.clone())?;
            refuse_secret(oid).with_context(|| flag.clone())?;
            add(&mut extras.extensions, oid, text.clone()).context(flag)?;
        }
        Ok(extras)
    }

    fn add_file(&mut self, path: &Path) -> Result<()> {
        let place = path.display();
        let text = private_file::read_of_any_mode(path).context("--csr-attributes")?;
        let text = std::str::from_utf8(&text).with_context(|| format!("{place} is not text"))?;
        // The reader's own complaint may quote the line, and the line may hold a password.
        let file: AttributesFile = serde_saphyr::from_str(text).map_err(|error| {
            let line = error.without_snippet().location().map_or(0, |at| at.line());
            anyhow!(
                "{place}, line {line}: it is not of the form of csr_attributes.yaml: it may have custom_attributes and extension_requests, \
                 each a mapping from an object identifier or a short name to one quoted text"
            )
        })?;
        for (name, text) in file.custom_attributes {
            let oid = attribute_oid(&name);
            let oid = oid.with_context(|| format!("{place}: custom_attributes.{name}"))?;
            add(&mut self.attributes, oid, text).with_context(|| format!("{place}: {name}"))?;
        }
        for (name, text) in file.extension_requests {
            let oid = extension_oid(&name);
            let oid = oid.with_context(|| format!("{place}: extension_requests.{name}"))?;
            add(&mut self.extensions, oid, text).with_context(|| format!("{place}: {name}"))?;
        }
        if self.attributes.contains_key(&oid::CHALLENGE_PASSWORD)
            || self.extensions.contains_key(&oid::PP_PRESHARED_KEY)
        {
            self.warning = files::exposure(path, Secret::Token);
        }
        Ok(())
    }

    /// Whether they carry a password of their own.
    pub(super) fn has_password(&self) -> bool {
        self.attributes.contains_key(&oid::CHALLENGE_PASSWORD)
    }

    pub(super) fn attributes(&self) -> Vec<Attribute> {
        let texts = self.attributes.iter();
        texts
            .map(|(oid, text)| Attribute::of_text(*oid, text))
            .collect()
    }

    /// As Puppet agents write them: a UTF8String in an extension that is not critical.
    pub(super) fn extensions(&self) -> Vec<Extension> {
        let texts = self.extensions.iter();
        texts
            .map(|(oid, text)| ext::utf8_extension(*oid, text, false))
            .collect()
    }
}

fn add(to: &mut BTreeMap<Oid, String>, oid: Oid, text: String) -> Result<()> {
    ensure!(!text.is_empty(), "its text is empty");
    ensure!(to.insert(oid, text).is_none(), "{oid} is given twice");
    Ok(())
}

/// An attribute by number or name; what Puppet refuses as a custom attribute is refused here.
fn attribute_oid(name: &str) -> Result<Oid> {
    let oid = match name {
        "challengePassword" => oid::CHALLENGE_PASSWORD,
        "extReq" => oid::EXTENSION_REQUEST,
        "msExtReq" => oid::MICROSOFT_EXTENSION_REQUEST,
        other => numbered(other)?,
    };
    if oid == oid::EXTENSION_REQUEST || oid == oid::MICROSOFT_EXTENSION_REQUEST {
        bail!(
            "extensions are not asked for by an attribute: use --extension or extension_requests"
        );
    }
    Ok(oid)
}

fn extension_oid(name: &str) -> Result<Oid> {
    let oid = match name {
        "subjectAltName" => oid::SUBJECT_ALT_NAME,
        other => numbered(other)?,
    };
    if oid == oid::SUBJECT_ALT_NAME {
        bail!("further names are not asked for by an extension: use --dns-alt-name");
    }
    Ok(oid)
}

fn numbered(name: &str) -> Result<Oid> {
    let named = oid::puppet_oid(name);
    named.or_else(|| Oid::parse(name).ok()).ok_or_else(|| {
        anyhow!("{name:?} is neither an object identifier, for example 1.3.6.1.4.1.34380.1.2.1, nor one of Puppet's short names")
    })
}

/// Arguments can be read by every user of the machine.
fn refuse_secret(oid: Oid) -> Result<()> {
    ensure!(
        oid != oid::CHALLENGE_PASSWORD && oid != oid::PP_PRESHARED_KEY,
        "a secret must not stand among the arguments: use --token-file, or --csr-attributes with a file of mode 0600"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_file(text: &str) -> Result<Extras> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("csr_attributes.yaml");
        std::fs::write(&path, text).unwrap();
        let mut extras = Extras::default();
        extras.add_file(&path).map(|()| extras)
    }

    #[test]
    fn puppets_file_is_read() {
        let extras = of_file(
            "custom_attributes:\n  1.2.840.113549.1.9.7: \"se_cret\"\nextension_requests:\n  pp_role: web\n  1.3.6.1.4.1.34380.1.2.1: 0123\n  pp_zone: true\n",
        )
        .unwrap();
        assert!(extras.has_password());
        assert!(extras.warning.is_some(), "the file is open to others");
        let texts: Vec<_> = extras.extensions.values().map(String::as_str).collect();
        assert_eq!(texts, ["web", "true", "0123"]);
        assert_eq!(extras.attributes().len(), 1);
        assert!(of_file("").unwrap().extensions.is_empty());
    }

    #[test]
    fn other_files_are_refused_without_their_secrets() {
        for (text, part) in [
            ("custom_attributes: [hunter2]\n", "line 1"),
            ("passwords: {a: hunter2}\n", "line 1"),
            ("custom_attributes:\n  a: hunter2: hunter2\n", "line 2"),
            ("custom_attributes: {a: hunter2}\n", "custom_attributes.a"),
            ("custom_attributes: {extReq: hunter2}\n", "--extension"),
            (
                "extension_requests: {subjectAltName: hunter2}\n",
                "--dns-alt-name",
            ),
            (
                "extension_requests: {2.5.29.17: hunter2}\n",
                "--dns-alt-name",
            ),
            (
                "custom_attributes: {challengePassword: hunter2, 1.2.840.113549.1.9.7: hunter2}\n",
                "given twice",
            ),
        ] {
            let fault = format!("{:#}", of_file(text).err().unwrap());
            assert!(
                fault.contains(part) && !fault.contains("hunter2"),
                "{fault}"
            );
        }
    }
}
