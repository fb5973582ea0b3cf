//! How far a long command is, for a person who waits for it.

use std::borrow::Cow;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error that goes away at its end. Where standard error is no terminal, nothing is shown.
pub(crate) fn bar(length: usize, what: impl Into<Cow<'static, str>>) -> ProgressBar {
    let bar = ProgressBar::new(length as u64).with_message(what);
    match ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
