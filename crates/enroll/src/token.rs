//! The enrolment token: where it comes from, and that it goes nowhere but into the request.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use countersign_private_keys::private_file;
use zeroize::Zeroizing;

use crate::error::{Cause, EnrolError, Result};
use crate::files::{self, Secret};

/// A secret that a machine enrols with. It is erased when it is dropped, and cannot be printed.
pub struct Token(Zeroizing<String>);

impl Token {
    /// The text itself, for the request and nothing else.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// One end of line is the file's, not the token's.
    fn parse(bytes: &[u8], origin: &str) -> Result<Self> {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        if bytes.is_empty() {
            let what = format!(
                "{origin} is empty: it has to hold the enrolment token, for example from `countersign token create`"
            );
            return Err(EnrolError::Arguments(what, None));
        }
        let is_fit = bytes.len() <= MAX_LENGTH && bytes.iter().all(u8::is_ascii_graphic);
        let text = std::str::from_utf8(bytes).ok().filter(|_| is_fit);
        let text = text.ok_or_else(|| {
            let what = format!(
                "{origin} holds no enrolment token: one is a single line of up to {MAX_LENGTH} printable characters without blanks"
            );
            EnrolError::Arguments(what, None)
        })?;
        Ok(Self(Zeroizing::new(text.to_owned())))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(redacted)")
    }
}

/// Where the token is. It is read when it is needed: a machine that only renews needs none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// In a file.
    File(PathBuf),
    /// On standard input.
    StandardInput,
    /// In the environment, if at all.
    Environment,
}

impl TokenSource {
    /// A file, `-` for standard input, or nothing for the environment.
    #[must_use]
    pub fn new(file: Option<&Path>) -> Self {
        match file {
            Some(path) if path == Path::new("-") => Self::StandardInput,
            Some(path) => Self::File(path.to_owned()),
            None => Self::Environment,
        }
    }

    /// The token, and what somebody should know about where it was. Standard input passes by only once.
    pub(crate) fn read(&self) -> Result<(Option<Token>, Option<String>)> {
        let unread = |what: &str, fault: Cause| EnrolError::Arguments(what.to_owned(), Some(fault));
        match self {
            Self::File(path) => {
                let content = private_file::read_of_any_mode(path)
                    .map_err(|fault| unread("the enrolment token cannot be read", fault.into()))?;
                let token = Token::parse(&content, &format!("the token file {}", path.display()))?;
                Ok((Some(token), files::exposure(path, Secret::Token)))
            }
            Self::StandardInput => {
                let mut content = Zeroizing::new(Vec::with_capacity(MAX_LENGTH + 3));
                let limit = u64::try_from(MAX_LENGTH + 3).unwrap_or(u64::MAX);
                let read = std::io::stdin()
                    .lock()
                    .take(limit)
                    .read_to_end(&mut content);
                read.map_err(|fault| {
                    let what = "the enrolment token cannot be read from standard input";
                    unread(what, fault.into())
                })?;
                Ok((Some(Token::parse(&content, "standard input")?), None))
            }
            Self::Environment => {
                let value = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
                let Some(value) = value else {
                    return Ok((None, None));
                };
                let value = Zeroizing::new(value.into_encoded_bytes());
                Ok((Some(Token::parse(&value, VARIABLE)?), None))
            }
        }
    }
}

/// The variable that may hold the token; programs that we start do not get it.
pub(crate) const VARIABLE: &str = "COUNTERSIGN_TOKEN";
/// What an authority reads.
const MAX_LENGTH: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::with_causes;

    const SECRET: &str =
        "ott1.abcdefghijklmnop.secretsecretsecretsecretsecretsecretsecretsecretse.abcdefg";

    #[test]
    fn one_line_end_is_cut_and_nothing_else() {
        for (content, token) in [
            (&b"abc"[..], Some("abc")),
            (b"abc\n", Some("abc")),
            (b"abc\r\n", Some("abc")),
            (b"abc\n\n", None),
            (b"a bc\n", None),
            (b"\n", None),
            (b"", None),
            (b"\xc3\xa4", None),
        ] {
            let read = Token::parse(content, "x").ok();
            assert_eq!(read.as_ref().map(Token::expose), token, "{content:?}");
        }
        assert!(Token::parse(&[b'a'; MAX_LENGTH + 1], "x").is_err());
    }

    #[test]
    fn a_token_is_never_printed() {
        let token = Token::parse(SECRET.as_bytes(), "x").unwrap();
        assert_eq!(format!("{token:?}"), "Token(redacted)");
        let refused = Token::parse(format!("{SECRET} x").as_bytes(), "the file x");
        assert!(!with_causes(&refused.unwrap_err()).contains("secret"));
    }
}
