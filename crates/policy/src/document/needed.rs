//! The files that rules refer to, so that whoever may read files can look whether they are there and of use.

use std::path::{Path, PathBuf};

use crate::document::PolicySet;
use crate::document::kind::check_bundle;
use crate::rules::{CaBundle, ListSource, RuleEffect, RuleKind};
use crate::yaml::SourcePosition;

/// A file that a rule refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededFile {
    /// Where it is.
    pub path: PathBuf,
    /// What for.
    pub purpose: FileUse,
    /// The file of the rule.
    pub file: PathBuf,
    /// Where the rule stands in it.
    pub place: SourcePosition,
    /// The document of the rule.
    pub policy: String,
    /// The rule.
    pub rule: String,
    /// Whether the rule denies what matches.
    pub denies: bool,
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileUse {
    /// A list of names.
    Allowlist,
    /// A program that decides.
    Executable,
    /// Certificates to trust.
    CaBundle,
    /// The key that signs questions.
    Secret,
    /// Our certificate.
    ClientCertificate,
    /// Its key.
    ClientKey,
}

impl FileUse {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Allowlist => "allowlist",
            Self::Executable => "executable",
            Self::CaBundle => "CA bundle",
            Self::Secret => "secret",
            Self::ClientCertificate => "client certificate",
            Self::ClientKey => "client key",
        }
    }

    /// What is wrong with the content of a certificate file; `None` where the content is not for us to judge.
    pub fn check_content(self, content: &[u8]) -> Option<String> {
        match self {
            Self::CaBundle | Self::ClientCertificate => check_bundle(content).err(),
            Self::Secret if content.trim_ascii().is_empty() => Some("is empty".to_owned()),
            Self::Secret | Self::Allowlist | Self::Executable | Self::ClientKey => None,
        }
    }
}

impl PolicySet {
    /// Every file that some rule refers to, in the order of the rules.
    pub fn files_needed(&self) -> Vec<NeededFile> {
        let mut needed = Vec::new();
        for (document, rule, place) in self.rules() {
            let mut add = |path: &Path, purpose| {
                needed.push(NeededFile {
                    path: path.to_owned(),
                    purpose,
                    file: document.file.clone(),
                    place,
                    policy: document.name.as_ref().to_owned(),
                    rule: rule.name.clone(),
                    denies: rule.effect == RuleEffect::Deny,
                });
            };
            for kind in &rule.kinds {
                match kind {
                    RuleKind::Always
                    | RuleKind::Cel(_)
                    | RuleKind::Window
                    | RuleKind::Token
                    | RuleKind::SubjectAccess(_)
                    | RuleKind::SigningPolicy
                    | RuleKind::Machine(_)
                    | RuleKind::NodeClient(_)
                    | RuleKind::NodeServing(_)
                    | RuleKind::Allowlist(ListSource::Names(_))
                    | RuleKind::AutosignFile { .. } => {}
                    RuleKind::Allowlist(ListSource::File(path)) => add(path, FileUse::Allowlist),
                    RuleKind::Executable(program) => add(&program.path, FileUse::Executable),
                    RuleKind::Webhook(webhook) => {
                        if let Some(CaBundle::File(path)) = &webhook.ca_bundle {
                            add(path, FileUse::CaBundle);
                        }
                        for (path, purpose) in [
                            (&webhook.secret_file, FileUse::Secret),
                            (&webhook.client_cert_file, FileUse::ClientCertificate),
                            (&webhook.client_key_file, FileUse::ClientKey),
                        ] {
                            path.iter().for_each(|path| add(path, purpose));
                        }
                    }
                }
            }
        }
        needed
    }
}
