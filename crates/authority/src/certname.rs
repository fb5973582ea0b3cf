//! Certnames: the names under which agents enrol, and under which machines are expected.

use std::fmt;

use crate::token::looks_like_a_token;

/// A name that an agent may enrol under, by rules that every agent's own checks accept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Certname(String);

impl Certname {
    /// Accepts dot-separated labels of lower-case letters, digits, `-` and `_`.
    ///
    /// # Errors
    /// The first rule that the text breaks, in a fixed order, so that a caller is told the same for the same name.
    pub fn parse(name: &str) -> Result<Self, CertnameFault> {
        if name.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(CertnameFault::UpperCase);
        }
        if name.contains('*') {
            return Err(CertnameFault::Wildcard);
        }
        if name.len() > MAX_LENGTH {
            return Err(CertnameFault::TooLong);
        }
        if name == RESERVED {
            return Err(CertnameFault::Reserved);
        }
        if looks_like_a_token(name) {
            return Err(CertnameFault::TokenShaped);
        }
        // A name may end with the dot of the root; agents send such names.
        let labels = name.trim_end_matches('.');
        let ends_well = !name.ends_with('-');
        let begins_well = labels.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if ends_well && begins_well && labels.split('.').all(is_label) {
            Ok(Self(name.to_owned()))
        } else {
            Err(CertnameFault::Format)
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as owned text.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

impl fmt::Display for Certname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is no certname. The texts are sentences that agents print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertnameFault {
    /// An upper-case letter.
    #[error("Certificate names must be lower case.")]
    UpperCase,
    /// An asterisk.
    #[error("Subject contains a wildcard, which is not allowed")]
    Wildcard,
    /// Empty, only dots, or a label with other characters or a hyphen at the wrong end.
    #[error("Subject hostname format is invalid")]
    Format,
    /// Longer than a host name can be.
    #[error("Certificate names have at most {MAX_LENGTH} characters.")]
    TooLong,
    /// `certificate/ca` is the authority's own certificate; no agent could ever fetch one of that name.
    #[error("The certificate name \"{RESERVED}\" is reserved.")]
    Reserved,
    /// Somebody mixed up two arguments. A secret must not be stored and listed as a name.
    #[error("Certificate names must not look like enrolment tokens.")]
    TokenShaped,
}

fn is_label(label: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    label.bytes().all(inner) && label.bytes().next_back().is_some_and(|b| b != b'-')
}

const MAX_LENGTH: usize = 253; // a host name in DNS (RFC 1035 2.3.4 without the final dot)
const RESERVED: &str = "ca";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_names() {
        let longest = "a".repeat(MAX_LENGTH);
        let seventy = format!("{}.example.com", "n".repeat(58));
        for name in [
            "web01",
            "web01.example.com",
            "a.b",
            "_.example.com",
            "_x-puppet._tcp.example.com",
            "root_ca",
            "rootca_",
            "rootca.",
            "foo.-bar",
            "0",
            "ca.example.com",
            "cab",
            "ott1.example.com",
            &longest,
            &seventy,
        ] {
            assert_eq!(
                Certname::parse(name).map(Certname::into_string),
                Ok(name.to_owned()),
                "{name}"
            );
        }
    }

    #[test]
    fn rejected_names_and_why() {
        let too_long = "a".repeat(MAX_LENGTH + 1);
        let token = format!(
            "ott1.{}.{}.{}",
            "a".repeat(16),
            "b".repeat(52),
            "c".repeat(7)
        );
        for (name, fault) in [
            ("", CertnameFault::Format),
            (".", CertnameFault::Format),
            ("...", CertnameFault::Format),
            ("Web01", CertnameFault::UpperCase),
            ("Foo*", CertnameFault::UpperCase),
            ("foo*bar", CertnameFault::Wildcard),
            ("*.x", CertnameFault::Wildcard),
            ("-a.b", CertnameFault::Format),
            ("a-.b", CertnameFault::Format),
            ("a-", CertnameFault::Format),
            ("a..b", CertnameFault::Format),
            (".a", CertnameFault::Format),
            ("a b", CertnameFault::Format),
            ("a&b", CertnameFault::Format),
            ("super/bad", CertnameFault::Format),
            ("a\n", CertnameFault::Format),
            ("a\0b", CertnameFault::Format),
            ("a\u{1b}[31m", CertnameFault::Format),
            ("käse", CertnameFault::Format),
            ("ca", CertnameFault::Reserved),
            (&too_long, CertnameFault::TooLong),
            (&token, CertnameFault::TokenShaped),
        ] {
            assert_eq!(Certname::parse(name), Err(fault), "{name:?}");
        }
    }
}
