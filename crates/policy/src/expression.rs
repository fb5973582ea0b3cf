//! Expressions of `when` and `cel`: compiled and checked when a policy is read, bounded in cost, evaluated over facts.
//!
//! The language is CEL. The crate that parses and evaluates it stays inside; names, types and costs are checked here,
//! because CEL itself would find a mistyped name only when a request reaches it.

mod calls;
mod check;
mod compile;
mod cost;
mod names;
mod operators;
mod pattern;
mod place;
mod types;
mod values;

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, LazyLock, OnceLock};

use cel::common::types::CelBool;
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::{Context, Env, ExecutionError};
use countersign_pki::UnixTime;

use crate::facts::{LedgerFacts, Machine};
use crate::request::Request;
use compile::{Program, Slot, Source};
use values::{Shown, Value};

/// A compiled expression that says true or false. Cheap to clone.
#[derive(Clone)]
pub struct Expression {
    source: Arc<str>,
    program: Arc<Program>,
}

/// What an expression sees.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// `request` and `requester`.
    pub request: &'a Request<'a>,
    /// `machine`; `None`: null.
    pub machine: Option<&'a Machine>,
    /// `ledger`.
    pub ledger: &'a LedgerFacts,
    /// `now`.
    pub now: UnixTime,
}

/// Which facts an expression looks at that have to be fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The inventory's record.
    pub machine: bool,
    /// What the ledger knows.
    pub ledger: bool,
}

/// Why a text is not an expression that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct ExpressionFault {
    /// The line within the expression, from 1.
    pub line: u32,
    /// The column within that line, in characters, from 1.
    pub column: u32,
    /// What is wrong, and what would be right.
    pub what: String,
}

/// Why an expression has no value for a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct EvaluationFault {
    /// What happened.
    pub what: String,
}

impl Expression {
    /// Compiles and checks an expression.
    pub fn compile(source: &str) -> Result<Self, ExpressionFault> {
        Ok(Self {
            source: Arc::from(source),
            program: Arc::new(Program::compile(source)?),
        })
    }

    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What has to be fetched before it can be evaluated.
    pub fn needs(&self) -> Needs {
        self.program.needs
    }

    /// Whether it holds. An expression that has no value for this request is a fault, never true.
    pub fn evaluate(&self, facts: &Facts<'_>) -> Result<bool, EvaluationFault> {
        let slots = &self.program.slots;
        let seen = Seen {
            slots,
            values: slots.iter().map(|_| OnceLock::new()).collect(),
            facts: *facts,
        };
        // The evaluator is not ours: should it panic on something that the check let through, nobody is approved.
        let evaluated = panic::catch_unwind(AssertUnwindSafe(|| {
            let mut context = Context::with_env(environment());
            context.set_variable_resolver(&seen);
            let value = cel::Value::resolve_val(&self.program.root, &context)?;
            let holds = value.downcast_ref::<CelBool>().map(|holds| *holds.inner());
            holds.ok_or_else(|| ExecutionError::UnexpectedType {
                got: value.get_type().name().to_owned(),
                want: "bool".to_owned(),
            })
        }));
        seen.check_bounds()?;
        match evaluated {
            Ok(Ok(holds)) => Ok(holds),
            Ok(Err(fault)) => Err(EvaluationFault {
                what: sentence(&fault, slots),
            }),
            Err(_) => Err(EvaluationFault {
                what: "the evaluation failed".to_owned(),
            }),
        }
    }

    /// What it looks at, with the values that it finds there, for an explanation: `request.commonName = "web01"`.
    pub fn looks_at(&self, facts: &Facts<'_>) -> String {
        let mut shown = Shown::new();
        for slot in &self.program.slots {
            // An error means that it is full.
            if slot.show(facts, &mut shown).is_err() {
                break;
            }
        }
        shown.finish()
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.source).finish()
    }
}

impl Slot {
    fn value<'a>(&self, facts: &Facts<'a>) -> Option<Value<'a>> {
        match &self.source {
            Source::Name(name) => Value::of(name, facts),
            Source::Extension(oid) => Value::of_extension(oid, facts),
            Source::HasExtension(oid) => {
                let is_there = Value::of_extension(oid, facts).is_some();
                Some(Value::Bool(is_there))
            }
            Source::Pattern(_) => None,
        }
    }

    fn show(&self, facts: &Facts<'_>, out: &mut Shown) -> fmt::Result {
        use fmt::Write as _;
        if matches!(self.source, Source::Pattern(_)) {
            return Ok(());
        }
        if !out.is_empty() {
            out.write_str(", ")?;
        }
        out.write_str(&self.name)?;
        match self.value(facts) {
            Some(value) => {
                out.write_str(" = ")?;
                value.show(out)
            }
            None => out.write_str(" is not there"),
        }
    }
}

/// The values of one evaluation, each made when it is first looked at.
struct Seen<'a> {
    slots: &'a [Slot],
    values: Box<[OnceLock<Found<'a>>]>,
    facts: Facts<'a>,
}

enum Found<'a> {
    Value(Box<dyn Val + 'a>),
    /// The object that would have it is null, or the request does not have such an extension.
    Nothing,
    TooLarge(EvaluationFault),
}

impl<'a> Seen<'a> {
    fn find(&self, slot: &'a Slot) -> Found<'a> {
        let Some(value) = slot.value(&self.facts) else {
            return Found::Nothing;
        };
        match value.within_bounds(&slot.name) {
            Ok(()) => Found::Value(value.into_val()),
            Err(fault) => Found::TooLarge(fault),
        }
    }

    fn check_bounds(&self) -> Result<(), EvaluationFault> {
        for value in &self.values {
            if let Some(Found::TooLarge(fault)) = value.get() {
                return Err(fault.clone());
            }
        }
        Ok(())
    }
}

impl VariableResolver for Seen<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let position = self.slots.iter().position(|slot| slot.name == variable)?;
        let slot = self.slots.get(position)?;
        if let Source::Pattern(pattern) = &slot.source {
            return Some(CowVal::Borrowed(pattern));
        }
        match self.values.get(position)?.get_or_init(|| self.find(slot)) {
            Found::Value(value) => Some(CowVal::Borrowed(value.as_ref())),
            Found::Nothing | Found::TooLarge(_) => None,
        }
    }
}

/// What went wrong in the evaluation, without the values, which may be large and hostile.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the evaluator may get further faults; all of them mean that there is no value"
)]
fn sentence(fault: &ExecutionError, slots: &[Slot]) -> String {
    match fault {
        ExecutionError::UndeclaredReference(name) => {
            let slot = slots.iter().find(|slot| slot.name == **name);
            match slot.map(|slot| &slot.source) {
                Some(Source::Extension(_)) => {
                    format!("the request has no {name}; ask has({name}) first")
                }
                Some(Source::Name(_)) => {
                    let object = name
                        .rsplit_once('.')
                        .map_or(name.as_str(), |(object, _)| object);
                    format!("{name} is not there: {object} is null; ask {object} != null first")
                }
                Some(Source::HasExtension(_) | Source::Pattern(_)) | None => {
                    format!("{name} is not there")
                }
            }
        }
        ExecutionError::NoSuchKey(key) => format!("there is no key {key:?}"),
        ExecutionError::NoSuchOverload(overload) => {
            let types = overload.argument_types().join(" and ");
            let function = overload.function().trim_matches(['_', '@']);
            format!("{function} does not fit {types}")
        }
        ExecutionError::Overflow(..) => "a number or time becomes too large".to_owned(),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            "a number is divided by zero".to_owned()
        }
        ExecutionError::IndexOutOfBounds(_) => "a list has fewer entries than that".to_owned(),
        ExecutionError::UnexpectedType { got, want } => format!("{want} was needed, this is {got}"),
        ExecutionError::FunctionError { function, .. } => {
            format!("{function} cannot read what it was given")
        }
        _ => "values of different kinds are mixed".to_owned(),
    }
}

/// The functions and loops of the language, made once.
fn environment() -> Arc<Env> {
    static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
        let mut env = Env::stdlib();
        // An overload that is not there makes its calls faults, which approve nobody.
        drop(pattern::extend(&mut env));
        Arc::new(env)
    });
    ENVIRONMENT.clone()
}
