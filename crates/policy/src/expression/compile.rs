//! From text to something that can be evaluated.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not named here is refused or left to the evaluation"
)]

use std::thread;

use cel::common::ast::operators as op;
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use cel::{Env, ParseErrors};
use countersign_pki::{Oid, oid};

use super::check::check;
use super::names::{Fact, Name};
use super::pattern::Pattern;
use super::place::fault_at;
use super::types::MATCHES;
use super::{ExpressionFault, Needs, environment};

/// A checked expression, ready for evaluation: what it looks at was replaced by the names of slots.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) root: IdedExpr,
    pub(super) slots: Vec<Slot>,
    pub(super) needs: Needs,
}

/// Something that an expression looks at.
#[derive(Debug)]
pub(super) struct Slot {
    /// As it is written.
    pub(super) name: String,
    pub(super) source: Source,
}

/// Where the value of a slot comes from.
#[derive(Debug)]
pub(super) enum Source {
    /// A name.
    Name(&'static Name),
    /// The text of an extension.
    Extension(Oid),
    /// Whether an extension is there.
    HasExtension(Oid),
    /// A regular expression of the text itself.
    Pattern(Pattern),
}

impl Program {
    /// Compiles and checks. The parser calls itself once per level of nesting, and so do the passes over what it gives:
    /// a thread with a stack of its own keeps hostile text from ending the process.
    pub(super) fn compile(source: &str) -> Result<Self, ExpressionFault> {
        if source.trim().is_empty() {
            return Err(fault_at(source, 0, "the expression is empty".to_owned()));
        }
        if source.len() > MAX_SOURCE {
            let what = format!(
                "the expression has {} bytes, at most {MAX_SOURCE} are allowed; use several rules",
                source.len()
            );
            return Err(fault_at(source, 0, what));
        }
        let text = source.to_owned();
        let compiler = thread::Builder::new()
            .name("expression".to_owned())
            .stack_size(STACK)
            .spawn(move || compile_here(&text));
        let broken = |what: String| fault_at(source, 0, what);
        match compiler.map(thread::JoinHandle::join) {
            Ok(Ok(compiled)) => compiled,
            Ok(Err(_)) => Err(broken("the parser failed on this expression".to_owned())),
            Err(fault) => Err(broken(format!("no thread for the parser: {fault}"))),
        }
    }
}

fn compile_here(source: &str) -> Result<Program, ExpressionFault> {
    // Without macros the loops stay as they were written, which is what the check can speak about.
    let as_written = Env::default().with_optional_support(false).parser();
    let (written, info) = as_written
        .parse_with_source_info(source)
        .map_err(|faults| parse_fault(source, &faults))?;
    check(&written, &info, source)?;
    let (root, _) = environment()
        .parser()
        .parse_with_source_info(source)
        .map_err(|faults| parse_fault(source, &faults))?;
    let mut program = Program {
        root: IdedExpr::default(),
        slots: Vec::new(),
        needs: Needs::default(),
    };
    let mut root = root;
    program.settle(&mut root);
    program.root = root;
    Ok(program)
}

impl Program {
    /// Replaces every name by its slot. No variable of a loop is called like a name, so scopes do not matter.
    fn settle(&mut self, expr: &mut IdedExpr) {
        if let Some(slot) = known(expr) {
            expr.expr = self.slot(slot);
            return;
        }
        match &mut expr.expr {
            Expr::Select(select) if select.test => match has(&select.operand, &select.field) {
                Some(Has::Field(field)) => {
                    let field = self.slot((field.path.to_owned(), Source::Name(field)));
                    expr.expr = Expr::Call(CallExpr {
                        func_name: op::NOT_EQUALS.to_owned(),
                        target: None,
                        args: [field, Expr::Literal(LiteralValue::Null)]
                            .map(|expr| IdedExpr { id: 0, expr })
                            .into(),
                    });
                }
                Some(Has::Extension(key, oid)) => {
                    let name = format!("has(request.extensions.{key})");
                    expr.expr = self.slot((name, Source::HasExtension(oid)));
                }
                None => self.settle(&mut select.operand),
            },
            Expr::Select(select) => self.settle(&mut select.operand),
            Expr::Call(call) => {
                if let Some(target) = &mut call.target {
                    self.settle(target);
                }
                for arg in &mut call.args {
                    self.settle(arg);
                }
                self.settle_pattern(call);
                settle_not(call);
            }
            Expr::Comprehension(each) => {
                for part in [
                    &mut each.iter_range,
                    &mut each.accu_init,
                    &mut each.loop_cond,
                    &mut each.loop_step,
                    &mut each.result,
                ] {
                    self.settle(part);
                }
            }
            Expr::List(list) => list.elements.iter_mut().for_each(|e| self.settle(e)),
            Expr::Map(map) => {
                for entry in &mut map.entries {
                    if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                        self.settle(&mut entry.key);
                        self.settle(&mut entry.value);
                    }
                }
            }
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => {}
        }
    }

    fn settle_pattern(&mut self, call: &mut CallExpr) {
        if call.func_name != MATCHES {
            return;
        }
        if let [arg] = call.args.as_mut_slice()
            && let Expr::Literal(LiteralValue::String(text)) = &arg.expr
            && let Some(pattern) = Pattern::new(text.inner())
        {
            let name = format!("/{}/", text.inner());
            arg.expr = self.slot((name, Source::Pattern(pattern)));
        }
    }

    fn slot(&mut self, (name, source): (String, Source)) -> Expr {
        if let Source::Name(found) = &source {
            self.needs.machine |= found.needs_machine();
            self.needs.ledger |= found.needs_ledger();
        }
        if !self.slots.iter().any(|slot| slot.name == name) {
            let name = name.clone();
            self.slots.push(Slot { name, source });
        }
        Expr::Ident(name)
    }
}

/// `!x` becomes `x ? false : true`: the same, but the evaluator prepares an error for every `!`, and each turn of a loop
/// has one.
fn settle_not(call: &mut CallExpr) {
    if call.func_name == op::LOGICAL_NOT && call.args.len() == 1 {
        op::CONDITIONAL.clone_into(&mut call.func_name);
        let literal = |value: bool| IdedExpr {
            id: 0,
            expr: Expr::Literal(LiteralValue::Boolean(value.into())),
        };
        call.args.extend([literal(false), literal(true)]);
    }
}

/// The slot of an expression that is nothing but a name.
fn known(expr: &IdedExpr) -> Option<(String, Source)> {
    if let Some(name) = known_name(expr) {
        return Some((name.path.to_owned(), Source::Name(name)));
    }
    match &expr.expr {
        Expr::Select(select) if !select.test => match has(&select.operand, &select.field)? {
            Has::Field(_) => None,
            Has::Extension(key, oid) => {
                let name = format!("request.extensions.{key}");
                Some((name, Source::Extension(oid)))
            }
        },
        _ => None,
    }
}

fn known_name(expr: &IdedExpr) -> Option<&'static Name> {
    match &expr.expr {
        Expr::Ident(root) => Name::find(root),
        Expr::Select(select) if !select.test => known_name(&select.operand)?.field(&select.field),
        _ => None,
    }
}

/// A field of something that has a name.
enum Has {
    Field(&'static Name),
    Extension(String, Oid),
}

fn has(operand: &IdedExpr, field: &str) -> Option<Has> {
    let name = known_name(operand)?;
    if name.fact == Fact::Extensions {
        return oid::registered_oid(field).map(|oid| Has::Extension(field.to_owned(), oid));
    }
    name.field(field).map(Has::Field)
}

/// The parser's first complaint, in our words.
fn parse_fault(source: &str, faults: &ParseErrors) -> ExpressionFault {
    let Some(first) = faults.errors.first() else {
        return fault_at(source, 0, "this is no expression".to_owned());
    };
    let said = first.msg.trim_start_matches("Syntax error: ");
    let (said, _) = said.split_once(" expecting {").unwrap_or((said, ""));
    let what = if said.contains("Recursion limit") {
        "the expression is nested too deep".to_owned()
    } else if said.contains("'<EOF>'") && !said.starts_with("missing") {
        "the expression ends too early".to_owned()
    } else {
        let said = said.replace(" at '<EOF>'", " at the end");
        format!("this is no expression: {said}")
    };
    let from_one = |number: isize| u32::try_from(number).unwrap_or(1).max(1);
    ExpressionFault {
        line: from_one(first.pos.0),
        column: from_one(first.pos.1),
        what,
    }
}

/// Octets of one expression: longer ones belong into several rules.
const MAX_SOURCE: usize = 8 * 1024;
/// Enough for the deepest nesting that fits into the longest text, in a build without optimisation too.
const STACK: usize = 64 * 1024 * 1024;
