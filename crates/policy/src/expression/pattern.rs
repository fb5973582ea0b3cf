//! Regular expressions and other constants, read once when the expression is compiled.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not named here is refused or left to the evaluation"
)]

use std::any::Any;

use cel::common::types::{CelBool, CelString, STRING_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{Context, Env, ExecutionError};
use regex::{Regex, RegexBuilder};

use super::types::{LOWER_ASCII, MATCHES};

/// A regular expression as a value of the evaluation.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Regex);

impl Pattern {
    pub(super) fn new(text: &str) -> Option<Self> {
        compile(text).ok().map(Self)
    }
}

/// Reads a regular expression; the error is a sentence.
pub(super) fn compile(text: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(text)
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED)
        .build();
    built.map_err(|fault| match fault {
        regex::Error::CompiledTooBig(_) => {
            "the regular expression is too large; repeat less in it".to_owned()
        }
        other => {
            let lines = other.to_string();
            let last = lines.lines().last().unwrap_or_default();
            format!(
                "not a regular expression: {}",
                last.trim_start_matches("error: ")
            )
        }
    })
}

/// Whether `call`, a call with the variable `text`, has a value for this text.
pub(super) fn reads(call: &str, text: &str) -> bool {
    let mut context = Context::with_env(super::environment());
    context.add_variable_as_val("text", Box::new(CelString::from(text)));
    let program = super::environment().compile(call);
    program.is_ok_and(|program| cel::Value::resolve_val(program.expression(), &context).is_ok())
}

/// Adds what the standard functions lack: patterns that are compiled once, and lower case for comparing names.
pub(super) fn extend(env: &mut Env) -> Result<(), cel::DeclarationError> {
    env.add_member_overload(
        MATCHES,
        "string_matches_pattern",
        STRING_TYPE,
        vec![PATTERN.to_owned()],
        |args| {
            let text = args
                .first()
                .and_then(|arg| arg.downcast_ref::<CelString<'_>>());
            let pattern = args.get(1).and_then(|arg| arg.downcast_ref::<Pattern>());
            match (text, pattern) {
                (Some(text), Some(Pattern(regex))) => {
                    Ok(CowVal::owned(CelBool::from(regex.is_match(text.inner()))))
                }
                _ => Err(ExecutionError::missing_argument_or_target()),
            }
        },
    )?;
    env.add_member_overload(
        LOWER_ASCII,
        "string_lower_ascii",
        STRING_TYPE,
        vec![],
        |args| match args
            .first()
            .and_then(|arg| arg.downcast_ref::<CelString<'_>>())
        {
            Some(text) => Ok(CowVal::owned(CelString::from(
                text.inner().to_ascii_lowercase(),
            ))),
            None => Err(ExecutionError::missing_argument_or_target()),
        },
    )
}

impl Val for Pattern {
    fn get_type(&self) -> &Type {
        &PATTERN
    }

    fn cel_type() -> &'static Type {
        &PATTERN
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Pattern {}

static PATTERN: Type = Type::new_unspecified_type("pattern");

/// Octets of a compiled regular expression; what people write needs a tenth.
const MAX_COMPILED: usize = 256 * 1024;
