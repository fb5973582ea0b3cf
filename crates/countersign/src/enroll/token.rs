//! The enrolment token: where it comes from, and that it goes nowhere but into the request.

use std::ffi::OsString;
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use countersign_authority::private_file;
use zeroize::Zeroizing;

use super::files::{self, Secret};

/// A secret that a machine enrols with. It is erased when it is dropped, and cannot be printed.
pub(super) struct Token(Zeroizing<String>);

impl Token {
    /// The text itself, for the request and nothing else.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// One end of line is the file's, not the token's.
    fn parse(bytes: &[u8], origin: &str) -> Result<Self> {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        ensure!(
            !bytes.is_empty(),
            "{origin} is empty: it has to hold the enrolment token, for example from `countersign token create`"
        );
        ensure!(
            bytes.len() <= MAX_LENGTH && bytes.iter().all(u8::is_ascii_graphic),
            "{origin} holds no enrolment token: one is a single line of up to {MAX_LENGTH} printable characters without blanks"
        );
        let text = std::str::from_utf8(bytes).with_context(|| format!("{origin} is not text"))?;
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
pub(super) enum TokenSource {
    File(PathBuf),
    StandardInput,
    Environment,
}

impl TokenSource {
    pub(super) fn new(file: Option<&Path>) -> Self {
        match file {
            Some(path) if path == Path::new("-") => Self::StandardInput,
            Some(path) => Self::File(path.to_owned()),
            None => Self::Environment,
        }
    }

    /// The token, and what somebody should know about where it was. Standard input passes by only once.
    pub(super) fn read(&self) -> Result<(Option<Token>, Option<String>)> {
        match self {
            Self::File(path) => {
                let content = private_file::read_of_any_mode(path)
                    .context("the enrolment token cannot be read")?;
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
                read.context("the enrolment token cannot be read from standard input")?;
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

/// What is wrong with a command line that has a secret in it, in a sentence that does not have it.
pub(crate) fn refused_arguments(arguments: &[OsString]) -> Option<&'static str> {
    let texts = arguments.iter().map(|argument| argument.to_string_lossy());
    let has_secret = texts.into_iter().any(|text| {
        text == "--token" || text.starts_with("--token=") || has_token(&text.to_ascii_lowercase())
    });
    has_secret.then_some(IN_ARGUMENTS)
}

/// Whether the beginning of an enrolment token is anywhere in a text: its version and its identifier.
fn has_token(text: &str) -> bool {
    text.match_indices(VERSION).any(|(at, _)| {
        let rest = text.get(at + VERSION.len()..).unwrap_or_default();
        let id = rest.bytes().take(ID_LENGTH);
        id.filter(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'))
            .count()
            == ID_LENGTH
    })
}

/// The variable that may hold the token; programs that we start do not get it.
pub(super) const VARIABLE: &str = "COUNTERSIGN_TOKEN";
const IN_ARGUMENTS: &str = "an enrolment token must not stand among the arguments, where every user of this machine can read it: \
                            write it to a file with mode 0600 and say --token-file FILE, or put it into the environment as COUNTERSIGN_TOKEN; \
                            then have a new token made, because this one has been seen";
const VERSION: &str = "ott1.";
const ID_LENGTH: usize = 16;
/// What an authority reads.
const MAX_LENGTH: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(!format!("{:#}", refused.unwrap_err()).contains("secret"));
    }

    #[test]
    fn a_token_among_the_arguments_is_refused_without_repeating_it() {
        let arguments = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        for words in [
            &["enroll", "--token", "x"][..],
            &["enroll", "--token=x"],
            &["enroll", SECRET],
            &[
                "enroll",
                "--attribute",
                &format!("challengePassword={SECRET}"),
            ],
            &["enroll", &SECRET.to_uppercase()],
        ] {
            let refused = refused_arguments(&arguments(words)).unwrap();
            assert!(!refused.contains("secretsecret"), "{refused}");
        }
        for words in [
            &["enroll", "--token-file", "x"][..],
            &["enroll", "ott1.example.com"],
            &["enroll", "--dns-alt-name", "ott1.a"],
        ] {
            assert_eq!(refused_arguments(&arguments(words)), None, "{words:?}");
        }
    }
}
