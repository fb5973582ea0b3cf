//! `tokens`: how enrolment tokens are minted, kept and looked for.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use countersign_pki::{Carrier, CarrierFault};
use countersign_policy::{OnMissing, OnToken, TokenHandling};
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Span;

/// Everything about tokens but the keys themselves, which are in files of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TokensSection {
    /// Unsaid: if a rule looks at them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) enabled: Option<bool>,
    pub(crate) sources: Vec<Source>,
    pub(crate) default_ttl: Span,
    pub(crate) max_ttl: Span,
    pub(crate) glob_max_ttl: Span,
    pub(crate) retry_window: Span,
    pub(crate) on_token_reject: Consequence,
    pub(crate) on_token_missing: Consequence,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mac_key: Option<KeyFile>,
    pub(crate) mac_keys_old: Vec<KeyFile>,
    pub(crate) purge_after: Span,
    pub(crate) max_active: NonZeroUsize,
}

impl Default for TokensSection {
    fn default() -> Self {
        Self {
            enabled: None,
            sources: vec![Source(Carrier::ChallengePassword)],
            default_ttl: Span::hours(6),
            max_ttl: Span::days(7),
            glob_max_ttl: Span::days(1),
            retry_window: Span::seconds(1800),
            on_token_reject: Consequence::Deny,
            on_token_missing: Consequence::Pend,
            mac_key: None,
            mac_keys_old: Vec::new(),
            purge_after: Span::days(30),
            max_active: const { NonZeroUsize::new(100_000).unwrap() },
        }
    }
}

impl TokensSection {
    /// What the policy is told.
    pub(crate) fn handling(&self) -> TokenHandling {
        TokenHandling {
            on_reject: match self.on_token_reject {
                Consequence::Deny => OnToken::Deny,
                Consequence::Pend => OnToken::Pend,
            },
            on_missing: match self.on_token_missing {
                Consequence::Deny => OnMissing::Deny,
                Consequence::Pend => OnMissing::Pend,
            },
        }
    }

    /// The places that are looked at.
    pub(crate) fn carriers(&self) -> Vec<Carrier> {
        let sources = self.sources.iter();
        sources.map(|Source(carrier)| carrier.clone()).collect()
    }
}

/// A place in a request, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source(pub(crate) Carrier);

impl FromStr for Source {
    type Err = CarrierFault;

    fn from_str(text: &str) -> Result<Self, CarrierFault> {
        Carrier::parse(text).map(Self)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.word())
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Consequence {
    Deny,
    Pend,
}

impl fmt::Display for Consequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deny => "deny",
            Self::Pend => "pend",
        })
    }
}

/// The file that a key is in: absolute, or below the data directory.
///
/// A key that somebody wrote here instead is refused without being repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct KeyFile {
    pub(crate) file: PathBuf,
}

impl<'de> Deserialize<'de> for KeyFile {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(KeyFileVisitor)
    }
}

struct KeyFileVisitor;

impl<'de> Visitor<'de> for KeyFileVisitor {
    type Value = KeyFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(KEY_FILE)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KeyFile, A::Error> {
        let mut file = None;
        while let Some(key) = map.next_key::<String>()? {
            match (key.as_str(), &file) {
                ("file", None) => file = Some(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    return Err(A::Error::custom(KEY_FILE));
                }
            }
        }
        let file = file.ok_or_else(|| A::Error::custom(KEY_FILE))?;
        Ok(KeyFile { file })
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<KeyFile, E> {
        Err(E::custom(KEY_FILE))
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<KeyFile, E> {
        Err(E::custom(KEY_FILE))
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<KeyFile, E> {
        Err(E::custom(KEY_FILE))
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<KeyFile, E> {
        Err(E::custom(KEY_FILE))
    }
}

const KEY_FILE: &str =
    "a key is named by its file and does not stand here itself: write {file: PATH}";
