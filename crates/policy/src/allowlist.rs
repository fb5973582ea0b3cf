//! Allowlists: one certname or domain glob a line.
//!
//! The asterisk of a glob stands for labels at the front and nothing else: this is not a shell glob. A list says
//! nothing about who is asking; whoever reaches the authority may claim any name on it that is free.

/// The lines of a list that mean something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowlist {
    patterns: Vec<Pattern>,
    has_bad_lines: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    text: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Everything,
    Exact,
    /// The labels after the asterisk, lower case.
    Below(Vec<String>),
}

/// Whether `*.example.com` also stands for `example.com`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apex {
    /// It does not: at least one label takes the asterisk's place, as the documentation says.
    Excluded,
    /// It does.
    Included,
}

/// A line that means nothing, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} ({text:?}) {problem}")]
pub struct BadLine {
    /// Its number, from 1.
    pub line: usize,
    /// What it says.
    pub text: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Allowlist {
    /// Reads a list. Lines that mean nothing are reported and match nobody; the others count.
    pub fn parse(text: &str) -> (Self, Vec<BadLine>) {
        let (mut patterns, mut bad) = (Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            match kind(line) {
                Ok(kind) => patterns.push(Pattern {
                    text: line.to_owned(),
                    kind,
                }),
                Err(problem) => {
                    bad.push(BadLine {
                        line: index.saturating_add(1),
                        text: line.to_owned(),
                        problem,
                    });
                }
            }
        }
        let has_bad_lines = !bad.is_empty();
        let list = Self {
            patterns,
            has_bad_lines,
        };
        (list, bad)
    }

    /// Whether every line of it means something.
    pub fn is_clean(&self) -> bool {
        !self.has_bad_lines
    }

    /// The first pattern that a name matches in whatever way it is written: in any case, with a dot at the end or not,
    /// and as a wildcard that stands for a name on the list.
    pub(crate) fn covering(&self, name: &str) -> Option<&str> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let mut patterns = self.patterns.iter();
        let found = patterns.find(|pattern| {
            pattern.matches(&name, Apex::Excluded)
                || pattern.text.eq_ignore_ascii_case(&name)
                || wildcard_covers(&name, &pattern.text)
        });
        found.map(|pattern| pattern.text.as_str())
    }

    /// The patterns, first to last.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(|pattern| pattern.text.as_str())
    }

    /// The first pattern that a name matches.
    pub fn matching(&self, name: &str, apex: Apex) -> Option<&str> {
        self.patterns
            .iter()
            .find(|pattern| pattern.matches(name, apex))
            .map(|pattern| pattern.text.as_str())
    }
}

impl Pattern {
    fn matches(&self, name: &str, apex: Apex) -> bool {
        match &self.kind {
            Kind::Everything => true,
            Kind::Exact => self.text == name,
            Kind::Below(suffix) => {
                let name = name.to_ascii_lowercase();
                let labels: Vec<&str> = name.split('.').collect();
                let least = match apex {
                    Apex::Excluded => suffix.len().saturating_add(1),
                    Apex::Included => suffix.len(),
                };
                labels.len() >= least
                    && labels
                        .iter()
                        .rev()
                        .zip(suffix.iter().rev())
                        .all(|(a, b)| a == b)
            }
        }
    }
}

/// Whether a certificate for `wildcard` is good for `name` (RFC 6125 6.4.3: the asterisk is one label).
pub(crate) fn wildcard_covers(wildcard: &str, name: &str) -> bool {
    let Some(below) = wildcard.strip_prefix('*').filter(|b| b.starts_with('.')) else {
        return false;
    };
    let name = name.to_ascii_lowercase();
    name.strip_suffix(below)
        .is_some_and(|label| !label.is_empty() && !label.contains('.'))
}

fn kind(line: &str) -> Result<Kind, &'static str> {
    if line.contains('#') {
        return Err("has a comment after the pattern, which is not allowed");
    }
    if line.contains(char::is_whitespace) {
        return Err("contains a blank");
    }
    if line == "*" {
        return Ok(Kind::Everything);
    }
    let Some(rest) = line.strip_prefix('*') else {
        return if line.contains(['*', '?']) {
            Err("has a wildcard elsewhere than as its whole first label")
        } else {
            Ok(Kind::Exact)
        };
    };
    match rest.strip_prefix('.') {
        Some(suffix) if !suffix.is_empty() && !suffix.contains('*') => Ok(Kind::Below(
            suffix
                .to_ascii_lowercase()
                .split('.')
                .map(str::to_owned)
                .collect(),
        )),
        Some(_) => Err("names no domain after the asterisk"),
        None => Err("must begin with an asterisk and a dot to be a domain glob"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_labels_from_the_right() {
        for (pattern, name, excluded, included) in [
            ("*.example.com", "web.example.com", true, true),
            ("*.example.com", "a.b.example.com", true, true),
            ("*.example.com", "example.com", false, true),
            ("*.example.com", "badexample.com", false, false),
            ("*.example.com", "example.com.evil.org", false, false),
            ("*.example.com", "com", false, false),
            ("*.local", "x.local", true, true),
            ("*.local", "local", false, true),
            ("*.local", "local.x", false, false),
            ("*.UPPER.case", "one.upper.case", true, true),
            ("*", "anything", true, true),
            ("web01.example.com", "web01.example.com", true, true),
            ("web01.example.com", "Web01.example.com", false, false),
            ("web01.example.com", "x.web01.example.com", false, false),
        ] {
            let (list, bad) = Allowlist::parse(pattern);
            assert_eq!(bad, [], "{pattern}");
            assert_eq!(
                list.matching(name, Apex::Excluded).is_some(),
                excluded,
                "{pattern} {name}"
            );
            assert_eq!(
                list.matching(name, Apex::Included).is_some(),
                included,
                "{pattern} {name} with apex"
            );
        }
    }

    #[test]
    fn what_is_no_pattern_is_reported_and_matches_nobody() {
        for line in [
            "host ",
            " host",
            "a b",
            "host # mine",
            "*.",
            "**",
            "*foo",
            "*foo.example.com",
            "*example.com",
            "web*.example.com",
            "web?",
            "*.*.com",
            "tab\there",
        ] {
            let (list, bad) = Allowlist::parse(&format!("first\n{line}\nlast"));
            assert_eq!(bad.len(), 1, "{line:?}");
            assert_eq!(bad[0].line, 2, "{line:?}");
            for name in ["host", "foo", "x.example.com", "x.com", "web1", "com"] {
                assert_eq!(list.matching(name, Apex::Included), None, "{line:?} {name}");
            }
            assert!(
                list.matching("first", Apex::Excluded).is_some()
                    && list.matching("last", Apex::Excluded).is_some()
            );
        }
    }

    #[test]
    fn comments_blank_lines_and_either_line_end_are_fine() {
        let (list, bad) = Allowlist::parse("# ours\r\n\r\n   \r\nhost\r\n*.example.com\n");
        assert_eq!(bad, []);
        assert_eq!(list.matching("host", Apex::Excluded), Some("host"));
        assert_eq!(
            list.matching("a.example.com", Apex::Excluded),
            Some("*.example.com")
        );
        assert_eq!(list.matching("# ours", Apex::Excluded), None);
    }
}
