//! Calls: which functions there are, on what, with how many arguments of which type.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not named here is refused or left to the evaluation"
)]

use cel::common::ast::{Expr, IdedExpr};

use super::ExpressionFault;
use super::check::{Checked, Checker, hint, literal_text};
use super::cost::{NUMBER_BYTES, PATTERN_PER_STEP, Part, TEXT_PER_STEP};
use super::pattern;
use super::types::{DURATION, FUNCTIONS, HAS, MACROS, MATCHES, MEMBERS, SIZE, TIMESTAMP, Type};

impl Checker<'_> {
    pub(super) fn member(
        &mut self,
        expr: &IdedExpr,
        name: &str,
        target: &IdedExpr,
        args: &[IdedExpr],
    ) -> Checked {
        if name == SIZE && args.is_empty() {
            let part = self.value(target)?;
            return self.size(expr, &part);
        }
        let Some(member) = MEMBERS.iter().find(|member| member.name == name) else {
            let what = if name == SIZE {
                "size takes no argument when it is called on a value".to_owned()
            } else if name == HAS || FUNCTIONS.iter().any(|function| function.name == name) {
                format!("{name} is not called on a value: write {name}(…)")
            } else {
                let members = MEMBERS.iter().map(|member| member.name);
                let hint = hint(name, members.chain(MACROS).chain([SIZE]));
                format!("unknown function {name:?}; {hint}")
            };
            return self.fault(expr, what);
        };
        let on = self.value(target)?;
        if !member.on.iter().any(|wanted| on.kind.may_be(wanted)) {
            let wanted = member.on.iter().map(Type::to_string).collect::<Vec<_>>();
            let what = format!(
                "{name} is called on {}, this is {}",
                wanted.join(" or "),
                on.kind
            );
            return self.fault(expr, what);
        }
        // A duration has hours without a time zone.
        let optional = member.last_is_optional && on.kind.may_be(&Type::Time);
        let most = match (member.last_is_optional, optional) {
            (true, false) => 0,
            _ => member.takes.len(),
        };
        let least = most.saturating_sub(usize::from(optional));
        if !(least..=most).contains(&args.len()) {
            let takes = arguments(least, most);
            let what = format!("{name} takes {takes}, here are {}", args.len());
            return self.fault(expr, what);
        }
        let mut parts = vec![on];
        for (arg, wanted) in args.iter().zip(member.takes) {
            parts.push(self.wants(arg, wanted, &format!("the argument of {name}"))?);
        }
        let part = Part::from_parts(member.gives.clone(), &parts.iter().collect::<Vec<_>>());
        let Some(on) = parts.first() else {
            return Ok(part);
        };
        match (name, args) {
            (MATCHES, [pattern]) => {
                let Some(text) = literal_text(pattern) else {
                    let what = "the pattern of matches must be written out as a text".to_owned();
                    return self.fault(pattern, what);
                };
                if let Err(what) = pattern::compile(text) {
                    return self.fault(pattern, what);
                }
                Ok(part.costing(on.bytes / PATTERN_PER_STEP))
            }
            _ => {
                if let (true, [zone]) = (member.last_is_optional, args) {
                    self.constant(name, zone)?;
                }
                let look = on.bytes / TEXT_PER_STEP;
                Ok(part.costing(look))
            }
        }
    }

    /// A text that is written out must be one that the function can read.
    fn constant(&self, function: &str, arg: &IdedExpr) -> Result<(), ExpressionFault> {
        let Some(text) = literal_text(arg) else {
            return Ok(());
        };
        let (call, what, example) = match function {
            TIMESTAMP => ("timestamp(text)", "time", "2030-01-31T12:00:00Z"),
            DURATION => ("duration(text)", "duration", "90m or 24h"),
            _ => (
                "timestamp(0).getHours(text)",
                "time zone",
                "Europe/Berlin or +01:00",
            ),
        };
        if pattern::reads(call, text) {
            return Ok(());
        }
        self.fault(
            arg,
            format!("{text:?} is no {what}; write it like {example}"),
        )
    }

    fn size(&self, expr: &IdedExpr, of: &Part) -> Checked {
        match &of.kind {
            Type::Text | Type::List(_) | Type::Map(_) | Type::Bytes | Type::Dyn => {
                Ok(Part::new(Type::Int).costing(of.cost.saturating_add(of.bytes / TEXT_PER_STEP)))
            }
            other => self.fault(expr, format!("{other} has no size")),
        }
    }

    pub(super) fn function(&mut self, expr: &IdedExpr, name: &str, args: &[IdedExpr]) -> Checked {
        if let (HAS, [arg]) = (name, args) {
            return self.has(arg);
        }
        if let (SIZE, [arg]) = (name, args) {
            let part = self.value(arg)?;
            return self.size(expr, &part);
        }
        let found = FUNCTIONS.iter().find(|function| function.name == name);
        if let (Some(function), [arg]) = (found, args) {
            let part = self.value(arg)?;
            if !function.takes.contains(&Type::Dyn)
                && !function.takes.iter().any(|wanted| part.kind.may_be(wanted))
            {
                let what = format!(
                    "{name} takes no {}",
                    part.kind.to_string().trim_start_matches("a ")
                );
                return self.fault(arg, what);
            }
            if matches!(name, TIMESTAMP | DURATION) {
                self.constant(name, arg)?;
            }
            let kind = function.gives.clone();
            let look = part.look();
            let bytes = part.bytes.max(NUMBER_BYTES);
            return Ok(Part {
                bytes,
                ..Part::from_parts(kind, &[&part]).costing(look)
            });
        }
        let what = if found.is_some() || name == HAS || name == SIZE {
            format!("{name} takes one argument, here are {}", args.len())
        } else if MACROS.contains(&name) || MEMBERS.iter().any(|member| member.name == name) {
            format!("{name} is called on a value: write value.{name}(…)")
        } else {
            let functions = FUNCTIONS.iter().map(|function| function.name);
            let hint = hint(name, functions.chain([HAS, SIZE]));
            format!("unknown function {name:?}; {hint}")
        };
        self.fault(expr, what)
    }

    fn has(&mut self, arg: &IdedExpr) -> Checked {
        if !matches!(arg.expr, Expr::Select(_)) {
            let what = "has takes a field, as in has(request.extensions.pp_role)".to_owned();
            return self.fault(arg, what);
        }
        let part = self.part(arg)?;
        Ok(Part::new(Type::Bool).costing(part.cost))
    }
}

fn arguments(least: usize, most: usize) -> String {
    match (least, most) {
        (0, 0) => "no argument".to_owned(),
        (1, 1) => "one argument".to_owned(),
        (least, most) if least == most => format!("{least} arguments"),
        (0, 1) => "at most one argument".to_owned(),
        (least, most) => format!("{least} to {most} arguments"),
    }
}
