//! Text of strangers on an operator's terminal.

use std::borrow::Cow;

/// The text with every character that could act on a terminal or hide in it written as `\u{..}`.
///
/// Control characters move the cursor and recolour lines; bidirectional overrides reorder a name; invisible format
/// characters make two names look equal (Unicode TR 36). A backslash is doubled only if something was escaped, so that
/// ordinary text passes unchanged.
#[must_use]
pub fn terminal_safe(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len().saturating_add(16));
    for c in text.chars() {
        if is_unsafe(c) {
            safe.extend(c.escape_unicode());
        } else if c == '\\' {
            safe.push_str("\\\\");
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}'                        // soft hyphen
            | '\u{34f}'                     // combining grapheme joiner
            | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{8e2}'
            | '\u{115f}' | '\u{1160}'       // Hangul fillers
            | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'       // Mongolian selectors
            | '\u{200b}'..='\u{200f}'       // zero-width, direction marks
            | '\u{2028}'..='\u{202e}'       // separators, bidirectional overrides
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'       // variation selectors
            | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'     // tags, more variation selectors
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("web01.example.com", "web01.example.com")]
    #[case("Bürö \\ ok", "Bürö \\ ok")]
    #[case("a\x1b[31mb", "a\\u{1b}[31mb")]
    #[case("a\r\nb", "a\\u{d}\\u{a}b")]
    #[case("evil\u{202e}gpj", "evil\\u{202e}gpj")]
    #[case("a\u{200b}b\\", "a\\u{200b}b\\\\")]
    #[case("\u{9b}2J", "\\u{9b}2J")]
    fn escapes_only_what_acts(#[case] text: &str, #[case] safe: &str) {
        assert_eq!(terminal_safe(text), safe);
    }

    proptest! {
        #[test]
        fn result_is_always_inert(text: String) {
            let safe = terminal_safe(&text);
            prop_assert!(!safe.chars().any(is_unsafe));
            prop_assert_eq!(terminal_safe(&safe), safe.clone());
        }
    }
}
