//! A command line that has a secret in it.

use std::ffi::OsString;

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

const IN_ARGUMENTS: &str = "an enrolment token must not stand among the arguments, where every user of this machine can read it: \
                            write it to a file with mode 0600 and say --token-file FILE, or put it into the environment as COUNTERSIGN_TOKEN; \
                            then have a new token made, because this one has been seen";
const VERSION: &str = "ott1.";
const ID_LENGTH: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str =
        "ott1.abcdefghijklmnop.secretsecretsecretsecretsecretsecretsecretsecretse.abcdefg";

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
