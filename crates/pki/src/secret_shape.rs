//! What the secret of a token looks like where nothing in front of it says that it is one: mistyped, cut off or pasted
//! without the rest.
//!
//! An enrolment token is `ott1.`, an identifier of 16 characters, a secret of 52 and a check of 7, in base32 and in one
//! case; a bootstrap token is six and sixteen characters of `[a-z0-9]` with a dot between them.

/// A character by its first octet in a text; what is no character of a text is 0.
pub type Placed = (usize, u8);

/// Where the secret of an enrolment token begins, by an identifier right in front of it: `ott2.<id>.<secret>`, for example.
/// Sure enough for names and sentences, which are compared and read: no host has such a name by accident.
pub fn secret_behind_id(text: impl Iterator<Item = Placed>) -> Option<usize> {
    let mut runs = Runs::default();
    text.chain([END]).find_map(|character| {
        let (run, id) = runs.next(character)?;
        let is_secret = run.is_half() && run.has_digit && id >= SHORTEST_ID;
        is_secret.then_some(run.start)
    })
}

/// Where something begins that could be the secret of a token, for places that are there for secrets and in which nobody
/// misses what is left out: half a secret of an enrolment token, a good part of one behind an identifier, or the secret of
/// a bootstrap token.
pub fn possible_secret(text: impl Iterator<Item = Placed>) -> Option<usize> {
    let mut runs = Runs::default();
    let mut words = Words::default();
    text.chain([END]).find_map(|character| {
        let bootstrap = words.next(character);
        let enrolment = runs.next(character).and_then(|(run, id)| {
            let is_part = (SHORTEST_PART..=LONGEST_RUN).contains(&run.len) && id == ID;
            (run.is_half() || is_part).then_some(run.start)
        });
        bootstrap.or(enrolment)
    })
}

/// Characters of base32 in one case that follow each other.
#[derive(Clone, Copy, Default)]
struct Run {
    start: usize,
    len: usize,
    is_upper: Option<bool>,
    has_digit: bool,
    /// Digests and identifiers in hexadecimal are not meant.
    is_beyond_hexadecimal: bool,
}

impl Run {
    /// Whether it could be half a secret, or all of a token without its dots.
    fn is_half(&self) -> bool {
        (HALF_SECRET..=LONGEST_RUN).contains(&self.len) && self.is_beyond_hexadecimal
    }
}

/// The runs of a text, in one pass.
#[derive(Default)]
struct Runs {
    run: Run,
    /// How long the run was that ended one character before this one began.
    before: usize,
}

impl Runs {
    /// The run that ends before a character, and how long the one is that a single character separates from it.
    fn next(&mut self, (place, character): Placed) -> Option<(Run, usize)> {
        let is_upper = match character {
            b'a'..=b'z' => Some(false),
            b'A'..=b'Z' => Some(true),
            b'2'..=b'7' => None,
            other => {
                let ended = std::mem::take(&mut self.run);
                let before = match other.is_ascii_punctuation() {
                    true => ended.len,
                    false => 0,
                };
                let before = std::mem::replace(&mut self.before, before);
                return (ended.len > 0).then_some((ended, before));
            }
        };
        let cases = is_upper.zip(self.run.is_upper);
        let mut ended = None;
        if cases.is_some_and(|(this, those)| this != those) {
            ended = Some((std::mem::take(&mut self.run), self.before));
            self.before = 0;
        }
        let run = &mut self.run;
        if run.len == 0 {
            run.start = place;
        }
        run.len = run.len.saturating_add(1);
        run.is_upper = run.is_upper.or(is_upper);
        run.has_digit |= is_upper.is_none();
        run.is_beyond_hexadecimal |= matches!(character.to_ascii_lowercase(), b'g'..=b'z');
        ended
    }
}

/// Words of `[a-z0-9]`, in one pass.
#[derive(Default)]
struct Words {
    start: usize,
    len: usize,
    /// How long the word in front of the last dot was.
    before: usize,
}

impl Words {
    /// Where the secret of a bootstrap token begins that ends before this character.
    fn next(&mut self, (place, character): Placed) -> Option<usize> {
        if character.is_ascii_lowercase() || character.is_ascii_digit() {
            if self.len == 0 {
                self.start = place;
            }
            self.len = self.len.saturating_add(1);
            return None;
        }
        if character.is_ascii_uppercase() {
            // No such word, whatever its length.
            self.len = usize::MAX;
            return None;
        }
        let is_token = (self.before, self.len) == (BOOTSTRAP_ID, BOOTSTRAP_SECRET);
        self.before = if character == b'.' { self.len } else { 0 };
        self.len = 0;
        is_token.then_some(self.start)
    }
}

/// Behind the last character.
const END: Placed = (usize::MAX, 0);
/// A whole token has 82 characters.
const LONGEST_RUN: usize = 82;
/// 26 characters are 128 bits.
const HALF_SECRET: usize = 26;
/// What is shorter tells nothing: 7 characters are 35 bits of 256.
const SHORTEST_PART: usize = 8;
const ID: usize = 16;
/// Some of it may be lost.
const SHORTEST_ID: usize = 12;
const BOOTSTRAP_ID: usize = 6;
const BOOTSTRAP_SECRET: usize = 16;

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn placed(text: &str) -> impl Iterator<Item = Placed> {
        text.bytes().enumerate()
    }

    #[rstest]
    #[case::other_version("ott2.aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrt", Some(22))]
    #[case::zero_for_o("0tt1.aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrt", Some(22))]
    #[case::colons("ott1:aaaqeayeaudaocaj:eaqseizeeutcokbjfivsyljof4ydcmrt", Some(22))]
    #[case::upper_case("OTT2.AAAQEAYEAUDAOCAJ.EAQSEIZEEUTCOKBJFIVSYLJOF4YDCMRT", Some(22))]
    #[case::no_prefix("aaaqeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrt", Some(17))]
    #[case::id_cut("qeayeaudaocaj.eaqseizeeutcokbjfivsyljof4ydcmrt", Some(14))]
    #[case::bare("eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q", None)]
    #[case::words("infrastructure.abcdefghijklmnopqrstuvwxyz.example.com", None)]
    #[case::digests("abcdef234567abcd.abcdef234567abcdef234567abcdef23", None)]
    #[case::two_separators("aaaqeayeaudaocaj..eaqseizeeutcokbjfivsyljof4ydcmrt", None)]
    fn a_secret_behind_an_identifier_is_found(#[case] text: &str, #[case] start: Option<usize>) {
        assert_eq!(secret_behind_id(placed(text)), start);
    }

    #[rstest]
    #[case::bare("eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q", Some(0))]
    #[case::with_check(
        "eaqseizeeutcokbjfivsyljof4ydcmrtgq2tmnzyhe5dwpb5hy7q.zqthxay",
        Some(0)
    )]
    #[case::half("=eaqseizeeutcokbjfivsyljof4", Some(1))]
    #[case::less("=eaqseizeeutcokbjfivsyljof", None)]
    #[case::part_behind_an_id("ott:aaaqeayeaudaocaj:eaqseize", Some(21))]
    #[case::bootstrap("abcdef.0123456789abcdef", Some(7))]
    #[case::bootstrap_in_a_text("token=abcdef.0123456789abcdef;", Some(13))]
    #[case::longer_word("abcdef.0123456789abcdefg", None)]
    #[case::longer_id("aabcdef.0123456789abcdef", None)]
    #[case::digest(
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        None
    )]
    #[case::digest_without_other_digits("abcdef234567abcdef234567abcdef234567abcdef", None)]
    #[case::jwt(
        "eyJhbGciOiJIUzUxMiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6Ikpva.c2lnbmF0dXJl",
        None
    )]
    #[case::password("correct horse battery staple", None)]
    #[case::longer_than_any_token(&"p".repeat(83), None)]
    fn what_could_be_a_secret_is_found(#[case] text: &str, #[case] start: Option<usize>) {
        assert_eq!(possible_secret(placed(text)), start);
    }
}
