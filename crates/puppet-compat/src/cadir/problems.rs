//! What is wrong with a directory, without being a reason not to go on.

use std::fmt::Display;
use std::path::Path;

use countersign_pki::terminal_safe;

/// Sentences for a person: the first of them, and how many there were.
#[derive(Debug, Default)]
pub struct Problems {
    sentences: Vec<String>,
    count: usize,
}

impl Problems {
    /// Something about a file as a whole.
    pub fn add(&mut self, file: &Path, what: impl Display) {
        self.push(|| format!("{}: {what}", file.display()));
    }

    /// Something about a line of it.
    pub(super) fn add_line(&mut self, file: &Path, line: usize, what: impl Display) {
        self.push(|| format!("{}, line {line}: {what}", file.display()));
    }

    fn push(&mut self, sentence: impl FnOnce() -> String) {
        self.count = self.count.saturating_add(1);
        // File names and inventory lines are other people's text.
        if self.sentences.len() < SHOWN {
            self.sentences.push(terminal_safe(&sentence()).into_owned());
        }
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The sentences, one on each line, and how many more there are.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.sentences.join("\n");
        let more = self.count.saturating_sub(self.sentences.len());
        if more > 0 {
            text.push_str(&format!("\nand {more} more of the kind"));
        }
        text
    }
}

/// Enough to see what kind of damage it is.
const SHOWN: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_shown_and_all_are_counted() {
        let mut problems = Problems::default();
        problems.add(Path::new("signed/\u{1b}[31m.pem"), "no certificate");
        for line in 1..=60 {
            problems.add_line(Path::new("inventory.txt"), line, "damaged");
        }
        assert_eq!(problems.count(), 61);
        let text = problems.text();
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(text.contains("inventory.txt, line 49: damaged"), "{text}");
        assert!(text.ends_with("and 11 more of the kind"), "{text}");
    }
}
