//! What the readers of settings have in common.

/// What is wrong with one key of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {key}: {what}")]
pub struct KeyFault {
    /// Where.
    pub line: usize,
    /// The key.
    pub key: String,
    /// What is wrong, in words.
    pub what: String,
}

/// A key that means nothing to the authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Where.
    pub line: usize,
    /// The key.
    pub key: String,
}

pub(crate) fn truth(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(format!("{other:?} is neither true nor false")),
    }
}
