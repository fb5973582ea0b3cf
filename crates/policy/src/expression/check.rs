//! The check before the first use: every name, field, function and number of arguments, the types as far as they can be
//! told, and what the evaluation may cost at most.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not named here is refused or left to the evaluation"
)]

use cel::common::ast::operators as op;
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SourceInfo};

use super::ExpressionFault;
use super::cost::{BUDGET, PER_TURN, Part, count, of_literal};
use super::names::{Fact, Name, impossible_extension};
use super::operators::is_operator;
use super::place::Places;
use super::types::{MACROS, Type};
use crate::nearest;

/// Checks an expression whose loops stand as they were written.
pub(super) fn check(
    root: &IdedExpr,
    info: &SourceInfo,
    source: &str,
) -> Result<(), ExpressionFault> {
    let mut checker = Checker {
        places: Places::new(source, info),
        scope: Vec::new(),
        depth: 0,
    };
    let whole = checker.value(root)?;
    if !whole.kind.may_be(&Type::Bool) {
        let what = format!(
            "the expression gives {}, a rule needs true or false",
            whole.kind
        );
        return checker.fault(root, what);
    }
    if whole.cost > BUDGET {
        let what = format!(
            "the expression may cost {} steps on the largest request, at most {BUDGET} are allowed; \
             nest fewer loops or put a cheap test first in a rule's `when`",
            whole.cost
        );
        return Err(checker.places.start(what));
    }
    Ok(())
}

pub(super) struct Checker<'a> {
    places: Places<'a>,
    /// The variables of the loops around, innermost last.
    scope: Vec<(String, Part)>,
    depth: usize,
}

pub(super) type Checked = Result<Part, ExpressionFault>;

impl Checker<'_> {
    /// A part that is a value, not an object.
    pub(super) fn value(&mut self, expr: &IdedExpr) -> Checked {
        let part = self.part(expr)?;
        if let Type::Object(name) = &part.kind {
            let what = format!(
                "{} is no value; name one of its fields: {}",
                name.path,
                name.fields().collect::<Vec<_>>().join(", ")
            );
            return self.fault(expr, what);
        }
        Ok(part)
    }

    pub(super) fn part(&mut self, expr: &IdedExpr) -> Checked {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let what = format!("the expression is nested more than {MAX_DEPTH} levels deep");
            return self.fault(expr, what);
        }
        let part = match &expr.expr {
            Expr::Literal(literal) => Ok(of_literal(literal)),
            Expr::Ident(name) => self.ident(expr, name),
            Expr::Select(select) => self.select(expr, &select.operand, &select.field),
            Expr::List(list) => self.list(&list.elements),
            Expr::Map(map) => {
                let mut parts = Vec::new();
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        parts.push(self.value(&entry.key)?);
                        parts.push(self.value(&entry.value)?);
                    }
                }
                let part = Part::from_parts(Type::Dyn, &parts.iter().collect::<Vec<_>>());
                let items = part.items.max(count(map.entries.len()));
                Ok(Part { items, ..part })
            }
            Expr::Call(call) => self.call(expr, call),
            Expr::Struct(_) | Expr::Comprehension(_) | Expr::Unspecified => {
                self.fault(expr, "objects cannot be made here".to_owned())
            }
        };
        self.depth -= 1;
        part
    }

    fn ident(&self, expr: &IdedExpr, name: &str) -> Checked {
        if let Some((_, part)) = self.scope.iter().rev().find(|(known, _)| known == name) {
            let cost = 1;
            return Ok(Part {
                cost,
                ..part.clone()
            });
        }
        match Name::find(name) {
            Some(found) => Ok(Part::of(found)),
            None => {
                let variables = self.scope.iter().map(|(name, _)| name.as_str());
                let roots = Name::roots().map(|root| -> &str { root });
                let hint = hint(name, roots.chain(variables));
                self.fault(expr, format!("unknown name {name:?}; {hint}"))
            }
        }
    }

    fn select(&mut self, expr: &IdedExpr, operand: &IdedExpr, field: &str) -> Checked {
        let base = self.part(operand)?;
        let cost = base.cost.saturating_add(1);
        match &base.kind {
            Type::Object(name) => match name.field(field) {
                Some(found) => Ok(Part::of(found)),
                None => {
                    let hint = hint(field, name.fields());
                    self.fault(
                        expr,
                        format!("{} has no field {field:?}; {hint}", name.path),
                    )
                }
            },
            Type::Map(item) => {
                if is_extensions(operand) {
                    self.extension_key(expr, field)?;
                }
                let kind = (**item).clone();
                Ok(Part { cost, ..base }.of_kind(kind))
            }
            Type::Dyn => Ok(Part { cost, ..base }),
            other => self.fault(expr, format!("{other} has no field {field:?}")),
        }
    }

    pub(super) fn extension_key(&self, at: &IdedExpr, key: &str) -> Result<(), ExpressionFault> {
        match impossible_extension(key) {
            Some(what) => self.fault(at, what),
            None => Ok(()),
        }
    }

    fn list(&mut self, elements: &[IdedExpr]) -> Checked {
        let parts = self.values(elements)?;
        let kinds = parts.iter().map(|part| part.kind.clone());
        let item = kinds.reduce(Type::join).unwrap_or(Type::Dyn);
        let part = Part::from_parts(
            Type::List(Box::new(item)),
            &parts.iter().collect::<Vec<_>>(),
        );
        let items = part.items.max(count(elements.len()));
        Ok(Part { items, ..part })
    }

    fn values(&mut self, exprs: &[IdedExpr]) -> Result<Vec<Part>, ExpressionFault> {
        exprs.iter().map(|expr| self.value(expr)).collect()
    }

    fn call(&mut self, expr: &IdedExpr, call: &CallExpr) -> Checked {
        let name = call.func_name.as_str();
        match (&call.target, call.args.as_slice()) {
            (Some(target), args) if MACROS.contains(&name) => self.each(expr, name, target, args),
            (Some(target), args) => self.member(expr, name, target, args),
            (None, [condition, yes, no]) if name == op::CONDITIONAL => {
                let condition = self.wants(condition, &Type::Bool, "the condition before ?")?;
                let (yes, no) = (self.value(yes)?, self.value(no)?);
                let kind = yes.kind.clone().join(no.kind.clone());
                Ok(Part::from_parts(kind, &[&condition, &yes, &no]))
            }
            (None, [one]) if name == op::LOGICAL_NOT => {
                let part = self.wants(one, &Type::Bool, "what follows !")?;
                Ok(part.costing(1))
            }
            (None, [one]) if name == op::NEGATE => {
                let part = self.value(one)?;
                match part.kind {
                    Type::Int | Type::Double | Type::Dyn => Ok(part.costing(1)),
                    _ => self.fault(expr, format!("{} has no negative", part.kind)),
                }
            }
            (None, [left, right]) if is_operator(name) => self.binary(expr, name, left, right),
            (None, args) => self.function(expr, name, args),
        }
    }

    /// A value that must be of one type.
    pub(super) fn wants(&mut self, expr: &IdedExpr, wanted: &Type, role: &str) -> Checked {
        let part = self.value(expr)?;
        if !part.kind.may_be(wanted) {
            let what = format!("{role} must be {wanted}, this is {}", part.kind);
            return self.fault(expr, what);
        }
        Ok(part)
    }

    /// `list.all(x, …)` and its like.
    fn each(
        &mut self,
        expr: &IdedExpr,
        name: &str,
        target: &IdedExpr,
        args: &[IdedExpr],
    ) -> Checked {
        let range = self.value(target)?;
        let Some(element) = range.kind.element() else {
            let what = format!(
                "{name} goes through a list or a map, this is {}",
                range.kind
            );
            return self.fault(expr, what);
        };
        let (variable, bodies) = match args {
            [variable, bodies @ ..]
                if bodies.len() == 1 || (name == op::MAP && bodies.len() == 2) =>
            {
                (variable, bodies)
            }
            _ => {
                let what = format!(
                    "{name} takes a variable and an expression, as in list.{name}(x, …); here are {} arguments",
                    args.len()
                );
                return self.fault(expr, what);
            }
        };
        let Expr::Ident(variable_name) = &variable.expr else {
            let what = format!("the first argument of {name} must be a new name");
            return self.fault(variable, what);
        };
        let is_taken = |known: &str| known == variable_name;
        if Name::roots().any(is_taken) || self.scope.iter().any(|(name, _)| is_taken(name)) {
            let what = format!("{variable_name:?} has a meaning already; choose another name");
            return self.fault(variable, what);
        }
        if variable_name.starts_with('.') {
            return self.fault(variable, "a variable has no leading dot".to_owned());
        }
        self.scope
            .push((variable_name.clone(), range.clone().of_kind(element)));
        let bodies = self.bodies(name, bodies);
        self.scope.pop();
        let bodies = bodies?;
        let result = match name {
            op::MAP => bodies
                .last()
                .map_or(Type::Dyn, |body| Type::List(Box::new(body.kind.clone()))),
            op::FILTER => match &range.kind {
                // A map is filtered to the list of its keys.
                Type::Map(_) => Type::List(Box::new(Type::Text)),
                other => other.clone(),
            },
            _ => Type::Bool,
        };
        let step = bodies
            .iter()
            .fold(PER_TURN, |sum, body| sum.saturating_add(body.cost));
        let shapes: Vec<&Part> = match name {
            op::MAP => bodies.iter().chain([&range]).collect(),
            _ => vec![&range],
        };
        let part = Part::from_parts(result, &shapes);
        Ok(Part {
            cost: range
                .cost
                .saturating_add(range.items.max(1).saturating_mul(step)),
            ..part
        })
    }

    fn bodies(&mut self, name: &str, bodies: &[IdedExpr]) -> Result<Vec<Part>, ExpressionFault> {
        let last = bodies.len().saturating_sub(1);
        let check = |(i, body): (usize, &IdedExpr)| match (name, i == last) {
            (op::MAP, true) => self.value(body),
            _ => self.wants(
                body,
                &Type::Bool,
                &format!("what {name} asks of each entry"),
            ),
        };
        bodies.iter().enumerate().map(check).collect()
    }

    pub(super) fn fault<T>(&self, at: &IdedExpr, what: String) -> Result<T, ExpressionFault> {
        Err(self.places.fault(at, what))
    }
}

/// Whether it is `request.extensions`. Variables of loops cannot be called `request`.
pub(super) fn is_extensions(expr: &IdedExpr) -> bool {
    match &expr.expr {
        Expr::Select(select) => {
            let is_request = matches!(&select.operand.expr, Expr::Ident(root) if root == "request");
            let field = Name::find("request").and_then(|request| request.field(&select.field));
            is_request && field.is_some_and(|field| field.fact == Fact::Extensions)
        }
        Expr::Unspecified
        | Expr::Call(_)
        | Expr::Comprehension(_)
        | Expr::Ident(_)
        | Expr::List(_)
        | Expr::Literal(_)
        | Expr::Map(_)
        | Expr::Struct(_) => false,
    }
}

pub(super) fn literal_text(expr: &IdedExpr) -> Option<&str> {
    match &expr.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

pub(super) fn hint<'n>(word: &str, known: impl Iterator<Item = &'n str>) -> String {
    let known: Vec<&str> = known.collect();
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("known are {}", known.join(", ")),
    }
}

/// The evaluation calls itself this deep on the stack of whoever decides.
const MAX_DEPTH: usize = 64;
