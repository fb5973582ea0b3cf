//! Patterns for names: text in which `*` stands for any characters.

use std::fmt;

/// A name with `*` for any number of any characters, none included. It always speaks of the whole name, and nothing else in
/// it has a meaning of its own: a dot is a dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

/// Whether upper and lower case letters are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Matters,
    Ignored,
}

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternFault {
    /// It is empty.
    #[error("a pattern is not empty")]
    Empty,
    /// It is longer than any name.
    #[error("a pattern has at most {MAX_BYTES} bytes")]
    TooLong,
    /// It has characters that no name has.
    #[error("a pattern has no control characters")]
    Control,
}

impl Pattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, PatternFault> {
        if text.is_empty() {
            return Err(PatternFault::Empty);
        }
        if text.len() > MAX_BYTES {
            return Err(PatternFault::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(PatternFault::Control);
        }
        Ok(Self(text.to_owned()))
    }

    /// One that is known to be good.
    pub fn known(text: &'static str) -> Self {
        Self(text.to_owned())
    }

    /// What every name that matches begins with, where that is all the pattern says.
    pub fn as_prefix(&self) -> Option<&str> {
        self.0
            .strip_suffix('*')
            .filter(|prefix| !prefix.contains('*'))
    }

    /// Whether a whole name matches. Each part between asterisks is taken at its first place, which finds a match whenever
    /// there is one; the cost is that of looking for each part once.
    pub(super) fn matches(&self, name: &str, case: Case) -> bool {
        let (pattern, name) = match case {
            Case::Matters => (self.0.clone(), name.to_owned()),
            Case::Ignored => (self.0.to_ascii_lowercase(), name.to_ascii_lowercase()),
        };
        let Some((first, rest)) = pattern.split_once('*') else {
            return pattern == name;
        };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        let Some(mut left) = name.strip_prefix(first) else {
            return false;
        };
        for part in middle.split('*') {
            match left.split_once(part) {
                Some((_, after)) => left = after,
                None => return false,
            }
        }
        left.ends_with(last)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The longest DNS name; more than anybody writes of another kind.
const MAX_BYTES: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_speak_of_whole_names() {
        let rows = [
            ("web01", "web01", true),
            ("web01", "web012", false),
            ("web01", "Web01", false),
            ("system:node:*", "system:node:", true),
            ("system:node:*", "system:node:a.b", true),
            ("system:node:*", "xsystem:node:a", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "a.exampleXcom", false),
            ("*.example.com", "a.example.com.evil", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*ab*ab", "xab", false),
            ("*ab*ab", "xabab", true),
            ("**", "", true),
            ("*", "anything", true),
            ("*ä*", "xäy", true),
        ];
        for (pattern, name, matches) in rows {
            let parsed = Pattern::parse(pattern).unwrap();
            assert_eq!(
                parsed.matches(name, Case::Matters),
                matches,
                "{pattern} {name}"
            );
        }
        let dns = Pattern::parse("*.Example.com").unwrap();
        assert!(dns.matches("A.example.COM", Case::Ignored));
    }

    #[test]
    fn only_names_are_patterns() {
        let long = "a".repeat(254);
        let rows = [
            ("", PatternFault::Empty),
            (long.as_str(), PatternFault::TooLong),
            ("a\nb", PatternFault::Control),
        ];
        for (text, fault) in rows {
            assert_eq!(Pattern::parse(text), Err(fault));
        }
        for (text, prefix) in [
            ("system:node:*", Some("system:node:")),
            ("a*b*", None),
            ("a", None),
        ] {
            assert_eq!(Pattern::parse(text).unwrap().as_prefix(), prefix);
        }
    }
}
