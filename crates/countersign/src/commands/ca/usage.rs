//! Wrong command lines of `ca`, in the words of `puppetserver ca`.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::refusal::print_errors;
use crate::output::complain;

/// Says what is wrong; false if the original has no words for it.
pub(crate) fn explain(error: &clap::Error, arguments: &[OsString]) -> bool {
    let words = arguments.iter().skip(2).filter_map(|word| word.to_str());
    let verb = words.clone().find(|word| !word.starts_with('-'));
    let verb = verb.unwrap_or_default();
    let line = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let action = text(error, ContextKind::InvalidSubcommand);
            complain(&format!(
                "Unknown action: {action}\n\nSee `countersign ca --help`."
            ));
            return true;
        }
        ErrorKind::UnknownArgument => match text(error, ContextKind::InvalidArg) {
            flag if flag.starts_with('-') => format!("    Unknown flag or argument `{flag}`"),
            word => format!("    Unknown input `{word}`"),
        },
        ErrorKind::InvalidValue if text(error, ContextKind::InvalidValue).is_empty() => {
            let flag = text(error, ContextKind::InvalidArg);
            let flag = flag.split_whitespace().next().unwrap_or_default();
            format!("    Missing argument to flag `{flag}`")
        }
        ErrorKind::MissingRequiredArgument if matches!(verb, "revoke" | "clean") => {
            format!("  At least one certname is required to {verb}")
        }
        ErrorKind::MissingRequiredArgument if verb == "sign" => "No arguments given".to_owned(),
        ErrorKind::ArgumentConflict if matches!(verb, "sign" | "list") => {
            "--all and --certname cannot be used together".to_owned()
        }
        _ => return false,
    };
    print_errors(&[line]);
    complain(&format!("\nSee `countersign ca {verb} --help`."));
    true
}

fn text(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => countersign_pki::terminal_safe(text).into_owned(),
        _ => String::new(),
    }
}
