//! Where in the text a part of an expression stands.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not named here is refused or left to the evaluation"
)]

use cel::common::ast::{Expr, IdedExpr, SourceInfo};

use super::ExpressionFault;

/// Finds the places of parts in the text.
pub(super) struct Places<'a> {
    source: &'a str,
    info: &'a SourceInfo,
}

impl<'a> Places<'a> {
    pub(super) fn new(source: &'a str, info: &'a SourceInfo) -> Self {
        Self { source, info }
    }

    /// A fault that points at a part: at the name of a function or field, at the sign of an operator, else where it
    /// begins.
    pub(super) fn fault(&self, at: &IdedExpr, what: String) -> ExpressionFault {
        let start = self.info.offset_for(at.id).map(|(start, _)| start);
        let offset = start.and_then(|start| usize::try_from(start).ok());
        let offset = offset.unwrap_or_default().min(self.source.len());
        let named = match &at.expr {
            // The parser's place of a selection is its dot, that of a call its parenthesis.
            Expr::Select(select) => self.name_after(offset, &select.field),
            Expr::Call(call) => self.name_before(offset, &call.func_name),
            _ => None,
        };
        fault_at(self.source, named.unwrap_or(offset), what)
    }

    /// A fault of the whole.
    pub(super) fn start(&self, what: String) -> ExpressionFault {
        let blank = self.source.len() - self.source.trim_start().len();
        fault_at(self.source, blank, what)
    }

    fn name_after(&self, offset: usize, name: &str) -> Option<usize> {
        let rest = self.source.get(offset..)?.strip_prefix('.')?;
        let from = self.source.len() - rest.trim_start().len();
        self.source.get(from..)?.starts_with(name).then_some(from)
    }

    fn name_before(&self, offset: usize, name: &str) -> Option<usize> {
        let before = self.source.get(..offset)?.trim_end();
        before.strip_suffix(name).map(str::len)
    }
}

/// A fault at an octet of the text, counted in lines and characters.
pub(super) fn fault_at(source: &str, offset: usize, what: String) -> ExpressionFault {
    let before = source
        .get(..source.floor_char_boundary(offset))
        .unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before.get(line_start..).unwrap_or_default().chars().count();
    let from_one = |count: usize| u32::try_from(count + 1).unwrap_or(u32::MAX);
    ExpressionFault {
        line: from_one(before.matches('\n').count()),
        column: from_one(column),
        what,
    }
}
