//! The known word that a mistyped one was probably meant to be.

/// The nearest of `known`, if it is near enough to be worth suggesting.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near_enough = |distance: usize| distance <= 1 + word.chars().count() / 3;
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .min()
        .filter(|(distance, _)| near_enough(*distance))
        .map(|(_, candidate)| candidate)
}

/// How many letters must be added, removed or replaced to turn one word into the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(i + 1);
        for ((above_left, above), other) in row.iter().zip(row.iter().skip(1)).zip(&to) {
            let replaced = above_left + usize::from(letter != *other);
            let left = next.last().copied().unwrap_or(i + 1);
            next.push(replaced.min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_single_letter_edits() {
        for (from, to, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("listen", "listen", 0),
            ("listn", "listen", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(from, to), edits, "{from} -> {to}");
            assert_eq!(distance(to, from), edits, "{to} -> {from}");
        }
    }

    #[test]
    fn suggests_only_what_is_near() {
        let known = ["data", "listen", "hostnames", "store"];
        assert_eq!(nearest("listn", known), Some("listen"));
        assert_eq!(nearest("hostname", known), Some("hostnames"));
        assert_eq!(nearest("foreman", known), None);
        assert_eq!(nearest("x", []), None);
    }
}
