//! What the YAML reader complains about, in the words of who writes the file: which key, and what belongs there.

use std::path::Path;

use serde::Deserialize as _;
use serde_path_to_error::{Deserializer, Track};
use serde_saphyr::Error;

use super::{Config, ConfigFault, nearest};

/// What is wrong with a text that the reader refused.
pub(super) fn explained(path: &Path, text: &str, error: &Error) -> ConfigFault {
    let path = path.to_owned();
    let error = error.without_snippet();
    let line = error.location().map(|location| location.line());
    let key = key_of(text, error);
    match error {
        Error::SerdeUnknownField {
            field,
            expected,
            location,
        } => ConfigFault::UnknownKey {
            path,
            line: location.line(),
            nearest: nearest(field, expected.iter().copied()),
            key: field.clone(),
            known: expected.clone(),
        },
        other => ConfigFault::Value {
            path,
            line,
            key,
            what: sentence(other),
        },
    }
}

/// The key whose value was refused, as `a.b`, where there is one.
fn key_of(text: &str, error: &Error) -> Option<String> {
    if let Error::DuplicateMappingKey { key, .. } = error {
        return key.clone();
    }
    // Only now: a file without faults need not be followed key by key.
    let mut track = Track::new();
    let read = serde_saphyr::with_deserializer_from_str(text, |yaml| {
        Config::deserialize(Deserializer::new(yaml, &mut track)).map(drop)
    });
    read.err()?;
    let place = track.path().to_string();
    let place = Some(place).filter(|place| place != ".");
    match (error, place) {
        (Error::SerdeMissingField { field, .. }, Some(place)) => Some(format!("{place}.{field}")),
        (_, place) => place,
    }
}

fn sentence(error: &Error) -> String {
    match error {
        Error::Unexpected { expected, .. } if expected.starts_with("sequence") => {
            "a list belongs here, for example [one, two]".to_owned()
        }
        Error::Unexpected { expected, .. } if expected.starts_with("mapping") => {
            "keys with values belong here, for example {key: value}".to_owned()
        }
        Error::Unexpected { expected, .. } if expected.contains("scalar") => {
            "a single value belongs here, no list and no keys".to_owned()
        }
        Error::NullIntoString { .. } => "the value is missing".to_owned(),
        Error::InvalidBooleanStrict { .. } => TRUTH.to_owned(),
        Error::InvalidScalar { ty, .. } if ty.starts_with("bool") => TRUTH.to_owned(),
        Error::InvalidScalar { ty, .. } if ty.starts_with('u') => {
            "a whole number of 0 or more belongs here, for example 100".to_owned()
        }
        Error::SerdeInvalidValue {
            unexpected,
            expected,
            ..
        } if expected.contains("nonzero") => {
            format!("{unexpected} is too small: write 1 or more, for example 8")
        }
        Error::SerdeUnknownVariant {
            variant, expected, ..
        } => format!("{variant:?} is none of {}", expected.join(", ")),
        Error::SerdeMissingField { .. } => "is missing here".to_owned(),
        Error::DuplicateMappingKey { .. } => {
            "stands twice in the same section: remove one of the two".to_owned()
        }
        other => {
            let text = other.to_string();
            let end = text.rfind(" at line ").unwrap_or(text.len());
            text.get(..end).unwrap_or(&text).to_owned()
        }
    }
}

const TRUTH: &str = "say true or false";
