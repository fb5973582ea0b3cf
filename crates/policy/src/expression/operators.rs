//! Operators: what they may stand between, and what comes of it.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not named here is refused or left to the evaluation"
)]

use cel::common::ast::IdedExpr;
use cel::common::ast::operators as op;

use super::check::{Checked, Checker, is_extensions, literal_text};
use super::cost::Part;
use super::names::Kind;
use super::types::Type;

impl Checker<'_> {
    pub(super) fn binary(
        &mut self,
        expr: &IdedExpr,
        name: &str,
        left: &IdedExpr,
        right: &IdedExpr,
    ) -> Checked {
        let sign = name.trim_matches(['_', '@']);
        if matches!(name, op::LOGICAL_AND | op::LOGICAL_OR) {
            let role = format!("both sides of {sign}");
            let left = self.wants(left, &Type::Bool, &role)?;
            let right = self.wants(right, &Type::Bool, &role)?;
            return Ok(Part::from_parts(Type::Bool, &[&left, &right]));
        }
        if matches!(name, op::EQUALS | op::NOT_EQUALS) {
            return self.equality(expr, sign, left, right);
        }
        if name == op::INDEX {
            return self.index(expr, left, right);
        }
        let (a, b) = (self.value(left)?, self.value(right)?);
        let both = |kind| Part::from_parts(kind, &[&a, &b]);
        let looks = a.look().saturating_add(b.look());
        match name {
            op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS
                if a.kind.may_order(&b.kind) =>
            {
                Ok(both(Type::Bool).costing(a.look().min(b.look()).saturating_add(3)))
            }
            op::IN => match &b.kind {
                Type::List(item) if a.kind.may_equal(item) => {
                    Ok(both(Type::Bool).costing(b.look() / 4))
                }
                Type::Map(_) if a.kind.may_be(&Type::Text) => {
                    if let (true, Some(key)) = (is_extensions(right), literal_text(left)) {
                        self.extension_key(left, key)?;
                    }
                    Ok(both(Type::Bool).costing(1))
                }
                Type::Dyn => Ok(both(Type::Bool).costing(b.look())),
                _ => self.fault(expr, format!("{} is never in {}", a.kind, b.kind)),
            },
            _ => match arithmetic(name, &a.kind, &b.kind) {
                Some(kind) => {
                    let part = both(kind).costing(looks);
                    let grows = name == op::ADD;
                    let sum = |a: u64, b: u64| if grows { a.saturating_add(b) } else { a.max(b) };
                    // The texts of a longer list are no longer than before.
                    let bytes = match &part.kind {
                        Type::List(_) => part.bytes,
                        _ => sum(a.bytes, b.bytes),
                    };
                    let kind = part.kind.clone();
                    let items = sum(a.items, b.items);
                    Ok(Part {
                        items,
                        bytes,
                        ..part
                    }
                    .of_kind(kind))
                }
                None => {
                    let what = format!("{sign} does not fit {} and {}", a.kind, b.kind);
                    self.fault(expr, what)
                }
            },
        }
    }

    fn equality(
        &mut self,
        expr: &IdedExpr,
        sign: &str,
        left: &IdedExpr,
        right: &IdedExpr,
    ) -> Checked {
        let (a, b) = (self.part(left)?, self.part(right)?);
        for (one, other) in [(&a, &b), (&b, &a)] {
            if let Type::Object(name) = &one.kind {
                return match (name.kind, &other.kind) {
                    (Kind::MaybeObject, Type::Null) => Ok(Part::from_parts(Type::Bool, &[&a, &b])),
                    (Kind::MaybeObject, _) => self.fault(
                        expr,
                        format!("{} can be compared with null only", name.path),
                    ),
                    _ => self.fault(expr, format!("{} cannot be compared", name.path)),
                };
            }
        }
        if !a.kind.may_equal(&b.kind) {
            let what = format!("{sign} compares {} with {}", a.kind, b.kind);
            return self.fault(expr, what);
        }
        let look = a.look().min(b.look());
        Ok(Part::from_parts(Type::Bool, &[&a, &b]).costing(look))
    }

    fn index(&mut self, expr: &IdedExpr, base: &IdedExpr, index: &IdedExpr) -> Checked {
        let (a, b) = (self.value(base)?, self.value(index)?);
        let (kind, wanted) = match &a.kind {
            Type::List(item) => ((**item).clone(), Type::Int),
            Type::Map(item) => ((**item).clone(), Type::Text),
            Type::Dyn => (Type::Dyn, Type::Dyn),
            other => return self.fault(expr, format!("{other} has no entries to pick from")),
        };
        if !b.kind.may_be(&wanted) {
            let what = format!(
                "an entry of {} is picked by {wanted}, not by {}",
                a.kind, b.kind
            );
            return self.fault(index, what);
        }
        if let (true, Some(key)) = (is_extensions(base), literal_text(index)) {
            self.extension_key(index, key)?;
        }
        Ok(Part::from_parts(kind, &[&a, &b]))
    }
}

/// The type of a sum and its like; `None` if it has no meaning.
fn arithmetic(name: &str, left: &Type, right: &Type) -> Option<Type> {
    use Type::{Bytes, Dyn, List, Maybe, Span, Text, Time};
    match (name, left, right) {
        (_, Maybe(inner), other) | (_, other, Maybe(inner)) => arithmetic(name, inner, other),
        (_, Dyn, _) | (_, _, Dyn) => Some(Dyn),
        (op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE, a, b) if a == b && a.is_number() => {
            Some(a.clone())
        }
        (op::MODULO, Type::Int, Type::Int) => Some(Type::Int),
        (op::MODULO, Type::Uint, Type::Uint) => Some(Type::Uint),
        (op::ADD, Text, Text) => Some(Text),
        (op::ADD, Bytes, Bytes) => Some(Bytes),
        (op::ADD, List(a), List(b)) => Some(List(Box::new((**a).clone().join((**b).clone())))),
        (op::ADD, Time, Span) | (op::ADD, Span, Time) | (op::SUBSTRACT, Time, Span) => Some(Time),
        (op::ADD | op::SUBSTRACT, Span, Span) | (op::SUBSTRACT, Time, Time) => Some(Span),
        _ => None,
    }
}

pub(super) fn is_operator(name: &str) -> bool {
    [
        op::LOGICAL_AND,
        op::LOGICAL_OR,
        op::EQUALS,
        op::NOT_EQUALS,
        op::LESS,
        op::LESS_EQUALS,
        op::GREATER,
        op::GREATER_EQUALS,
        op::IN,
        op::INDEX,
        op::ADD,
        op::SUBSTRACT,
        op::MULTIPLY,
        op::DIVIDE,
        op::MODULO,
    ]
    .contains(&name)
}
