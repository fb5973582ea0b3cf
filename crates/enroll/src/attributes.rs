//! What a request carries beside name and key: attributes and extensions, from flags and from `csr_attributes.yaml`.

use std::collections::BTreeMap;
use std::path::Path;

use countersign_pki::oid::{self, Oid};
use countersign_pki::{Attribute, Extension, ext};
use countersign_private_keys::private_file;
use serde::Deserialize;

use crate::error::{Cause, EnrolError, Result};
use crate::files::{self, Secret};

/// Attributes and extensions of a request, each identifier once. They may hold secrets and are not printed.
#[derive(Default)]
pub struct Extras {
    attributes: BTreeMap<Oid, String>,
    extensions: BTreeMap<Oid, String>,
    /// What somebody should know about the file they came from.
    pub warning: Option<String>,
}

/// `NAME=TEXT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// An object identifier or a short name.
    pub name: String,
    /// What it shall be.
    pub text: String,
}

/// The file as Puppet reads it: nothing else may stand in it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AttributesFile {
    custom_attributes: BTreeMap<String, String>,
    extension_requests: BTreeMap<String, String>,
}

impl Extras {
    /// From a file and from flags.
    ///
    /// # Errors
    /// If one of them cannot be meant, or a secret stands among the flags.
    pub fn new(
        file: Option<&Path>,
        attributes: &[Assignment],
        extensions: &[Assignment],
    ) -> Result<Self> {
        let mut extras = Self::default();
        if let Some(path) = file {
            extras.add_file(path)?;
        }
        for Assignment { name, text } in attributes {
            let oid = attribute_oid(name).and_then(refuse_secret);
            oid.and_then(|oid| add(&mut extras.attributes, oid, text.clone()))
                .map_err(|fault| fault.of(format!("--attribute {name}")))?;
        }
        for Assignment { name, text } in extensions {
            let oid = extension_oid(name).and_then(refuse_secret);
            oid.and_then(|oid| add(&mut extras.extensions, oid, text.clone()))
                .map_err(|fault| fault.of(format!("--extension {name}")))?;
        }
        Ok(extras)
    }

    fn add_file(&mut self, path: &Path) -> Result<()> {
        let place = path.display();
        let unusable = |what: String, source: Cause| EnrolError::Arguments(what, Some(source));
        let text = private_file::read_of_any_mode(path)
            .map_err(|fault| unusable("--csr-attributes".to_owned(), fault.into()))?;
        let text = std::str::from_utf8(&text)
            .map_err(|fault| unusable(format!("{place} is not text"), fault.into()))?;
        // The reader's own complaint may quote the line, and the line may hold a password.
        let file: AttributesFile = serde_saphyr::from_str(text).map_err(|error| {
            let line = error.without_snippet().location().map_or(0, |at| at.line());
            let what = format!(
                "{place}, line {line}: it is not of the form of csr_attributes.yaml: it may have custom_attributes and extension_requests, \
                 each a mapping from an object identifier or a short name to one quoted text"
            );
            EnrolError::Arguments(what, None)
        })?;
        for (name, text) in file.custom_attributes {
            let oid = attribute_oid(&name)
                .map_err(|fault| fault.of(format!("{place}: custom_attributes.{name}")))?;
            add(&mut self.attributes, oid, text)
                .map_err(|fault| fault.of(format!("{place}: {name}")))?;
        }
        for (name, text) in file.extension_requests {
            let oid = extension_oid(&name)
                .map_err(|fault| fault.of(format!("{place}: extension_requests.{name}")))?;
            add(&mut self.extensions, oid, text)
                .map_err(|fault| fault.of(format!("{place}: {name}")))?;
        }
        if self.attributes.contains_key(&oid::CHALLENGE_PASSWORD)
            || self.extensions.contains_key(&oid::PP_PRESHARED_KEY)
        {
            self.warning = files::exposure(path, Secret::Token);
        }
        Ok(())
    }

    /// Whether they carry a password of their own.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.attributes.contains_key(&oid::CHALLENGE_PASSWORD)
    }

    pub(crate) fn attributes(&self) -> Vec<Attribute> {
        let texts = self.attributes.iter();
        texts
            .map(|(oid, text)| Attribute::of_text(*oid, text))
            .collect()
    }

    /// As Puppet agents write them: a UTF8String in an extension that is not critical.
    pub(crate) fn extensions(&self) -> Vec<Extension> {
        let texts = self.extensions.iter();
        texts
            .map(|(oid, text)| ext::utf8_extension(*oid, text, false))
            .collect()
    }
}

/// Why an attribute or extension cannot be asked for.
#[derive(Debug, thiserror::Error)]
enum AttributeError {
    #[error("its text is empty")]
    Empty,
    #[error("{0} is given twice")]
    Twice(Oid),
    #[error("extensions are not asked for by an attribute: use --extension or extension_requests")]
    ExtensionRequest,
    #[error("further names are not asked for by an extension: use --dns-alt-name")]
    AltName,
    #[error(
        "{0:?} is neither an object identifier, for example 1.3.6.1.4.1.34380.1.2.1, nor one of Puppet's short names"
    )]
    UnknownName(String),
    /// Arguments can be read by every user of the machine.
    #[error(
        "a secret must not stand among the arguments: use --token-file, or --csr-attributes with a file of mode 0600"
    )]
    Secret,
}

impl AttributeError {
    /// With the input that it belongs to.
    fn of(self, input: String) -> EnrolError {
        EnrolError::Arguments(input, Some(self.into()))
    }
}

fn add(to: &mut BTreeMap<Oid, String>, oid: Oid, text: String) -> Result<(), AttributeError> {
    if text.is_empty() {
        return Err(AttributeError::Empty);
    }
    match to.insert(oid, text) {
        None => Ok(()),
        Some(_) => Err(AttributeError::Twice(oid)),
    }
}

/// An attribute by number or name; what Puppet refuses as a custom attribute is refused here.
fn attribute_oid(name: &str) -> Result<Oid, AttributeError> {
    let oid = match name {
        "challengePassword" => oid::CHALLENGE_PASSWORD,
        "extReq" => oid::EXTENSION_REQUEST,
        "msExtReq" => oid::MICROSOFT_EXTENSION_REQUEST,
        other => numbered(other)?,
    };
    if oid == oid::EXTENSION_REQUEST || oid == oid::MICROSOFT_EXTENSION_REQUEST {
        return Err(AttributeError::ExtensionRequest);
    }
    Ok(oid)
}

fn extension_oid(name: &str) -> Result<Oid, AttributeError> {
    let oid = match name {
        "subjectAltName" => oid::SUBJECT_ALT_NAME,
        other => numbered(other)?,
    };
    if oid == oid::SUBJECT_ALT_NAME {
        return Err(AttributeError::AltName);
    }
    Ok(oid)
}

fn numbered(name: &str) -> Result<Oid, AttributeError> {
    let named = oid::registered_oid(name).or_else(|| Oid::parse(name).ok());
    named.ok_or_else(|| AttributeError::UnknownName(name.to_owned()))
}

fn refuse_secret(oid: Oid) -> Result<Oid, AttributeError> {
    match oid == oid::CHALLENGE_PASSWORD || oid == oid::PP_PRESHARED_KEY {
        true => Err(AttributeError::Secret),
        false => Ok(oid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::with_causes;

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
            let fault = with_causes(&of_file(text).err().unwrap());
            assert!(
                fault.contains(part) && !fault.contains("hunter2"),
                "{fault}"
            );
        }
    }
}
