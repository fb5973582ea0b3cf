//! Globs as signing policies have them: those of paths, in which names of hosts have no separators.

/// A glob: `*` is any run of characters, `?` one, `[a-z]` one of a class, `[^a-z]` one outside it, and a backslash takes
/// what follows literally.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob {
    parts: Vec<Part>,
    separates: Separator,
}

/// Whether a slash ends what `*`, `?` and a class stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Separator {
    /// It does.
    Slash,
    /// Nothing does.
    None,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Run,
    Any,
    Exactly(char),
    Class {
        ranges: Vec<(char, char)>,
        is_negated: bool,
    },
}

impl Glob {
    /// Reads a glob; `None` if it has no end.
    pub(super) fn parse(text: &str, separates: Separator) -> Option<Self> {
        let mut parts = Vec::new();
        let mut rest = text.chars();
        while let Some(character) = rest.next() {
            parts.push(match character {
                '*' if parts.last() == Some(&Part::Run) => continue,
                '*' => Part::Run,
                '?' => Part::Any,
                '[' => class(&mut rest)?,
                '\\' => Part::Exactly(rest.next()?),
                other => Part::Exactly(other),
            });
        }
        Some(Self { parts, separates })
    }

    /// Whether a text is one of those it stands for. Takes at most as many steps as both are long, multiplied.
    pub(super) fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut part, mut at) = (0_usize, 0_usize);
        // Where to go on if the last run has to be one longer: the part behind it, and the place in the text.
        let mut longer: Option<(usize, usize)> = None;
        loop {
            let here = text.get(at).copied();
            let is_step = match (self.parts.get(part), here) {
                (None, None) => return true,
                (Some(Part::Run), _) => {
                    part = part.saturating_add(1);
                    longer = Some((part, at));
                    continue;
                }
                (Some(wanted), Some(character)) => self.takes(wanted, character),
                (Some(_), None) | (None, Some(_)) => false,
            };
            if is_step {
                (part, at) = (part.saturating_add(1), at.saturating_add(1));
                continue;
            }
            let Some((behind, from)) = longer else {
                return false;
            };
            match text.get(from) {
                Some(character) if !self.is_separator(*character) => {}
                Some(_) | None => return false,
            }
            let from = from.saturating_add(1);
            longer = Some((behind, from));
            (part, at) = (behind, from);
        }
    }

    fn takes(&self, part: &Part, character: char) -> bool {
        match part {
            Part::Exactly(wanted) => *wanted == character,
            Part::Any | Part::Run => !self.is_separator(character),
            Part::Class { ranges, is_negated } => {
                let is_in = ranges
                    .iter()
                    .any(|(first, last)| (*first..=*last).contains(&character));
                is_in != *is_negated && !self.is_separator(character)
            }
        }
    }

    fn is_separator(&self, character: char) -> bool {
        self.separates == Separator::Slash && character == '/'
    }
}

/// A class behind its opening bracket. It has at least one member, and nothing in it stands for itself but what a backslash
/// precedes or what is neither a hyphen nor a closing bracket.
fn class(rest: &mut std::str::Chars<'_>) -> Option<Part> {
    let is_negated = rest.clone().next() == Some('^');
    if is_negated {
        rest.next();
    }
    let mut ranges = Vec::new();
    loop {
        let first = match rest.next()? {
            ']' if !ranges.is_empty() => return Some(Part::Class { ranges, is_negated }),
            ']' | '-' => return None,
            '\\' => rest.next()?,
            other => other,
        };
        let mut last = first;
        if rest.clone().next() == Some('-') {
            rest.next();
            last = match rest.next()? {
                ']' | '-' => return None,
                '\\' => rest.next()?,
                other => other,
            };
        }
        ranges.push((first, last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_stand_for_what_those_of_paths_stand_for() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "web01.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "a.example.com.evil", false),
            ("*.example.com", "a.EXAMPLE.com", false),
            ("*.example.com", "a/b.example.com", false),
            ("web??.example.com", "web01.example.com", true),
            ("web??.example.com", "web1.example.com", false),
            ("web[0-9][0-9]", "web42", true),
            ("web[0-9][0-9]", "web4x", false),
            ("web[^0-9]", "webx", true),
            ("web[^0-9]", "web7", false),
            ("web[^0-9]", "web/", false),
            ("[a\\-z]", "-", true),
            ("[a\\-z]", "b", false),
            ("\\*.example.com", "*.example.com", true),
            ("\\*.example.com", "a.example.com", false),
            ("a*b*c", "aXbXbYc", true),
            ("a*b*c", "aXbXbY", false),
            ("**x", "aax", true),
            ("exact", "exact", true),
            ("exact", "exactly", false),
            ("ä?", "äö", true),
            ("", "", true),
            ("", "a", false),
        ] {
            let glob = Glob::parse(pattern, Separator::Slash).unwrap();
            assert_eq!(glob.matches(text), expected, "{pattern} {text}");
        }
        let free = Glob::parse("spiffe://*/node", Separator::None).unwrap();
        assert!(free.matches("spiffe://a/b/c/node"));
        assert!(!free.matches("spiffe://a/b/c"));
    }

    #[test]
    fn a_glob_without_an_end_is_none() {
        for pattern in [
            "[", "[]", "[a", "[a-", "[a-]", "[-a]", "\\", "a[^", "[^]", "x[z-",
        ] {
            assert_eq!(Glob::parse(pattern, Separator::Slash), None, "{pattern}");
        }
    }

    #[test]
    fn a_hostile_glob_is_cheap() {
        let glob = Glob::parse(&"*a".repeat(2_000), Separator::Slash).unwrap();
        assert!(!glob.matches(&"a".repeat(1_999)));
        assert!(!glob.matches(&format!("{}b", "a".repeat(10_000))));
    }
}
