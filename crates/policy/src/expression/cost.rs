//! What a part of an expression may cost at most: sizes and steps, reckoned from the largest request there can be.

use cel::common::ast::LiteralValue;
use countersign_pki::CsrLimits;

use super::names::{Fact, Kind, Name};
use super::types::Type;
use super::values::{MAX_ITEMS, MAX_TEXT};

/// What is known of a part of an expression.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) kind: Type,
    /// The most entries of a list or map, at any level.
    pub(super) items: u64,
    /// The most octets of a text; of a text in a list, on average.
    pub(super) bytes: u64,
    /// The most steps it takes, one being about a tenth of a microsecond.
    pub(super) cost: u64,
}

impl Part {
    pub(super) fn new(kind: Type) -> Self {
        Self {
            kind,
            items: 0,
            bytes: 0,
            cost: 1,
        }
    }

    pub(super) fn of(name: &'static Name) -> Self {
        let (items, bytes) = match name.kind {
            Kind::Texts | Kind::TextMap | Kind::TextsMap => (count(MAX_ITEMS), bytes_per_item()),
            Kind::Text if name.fact == Fact::CommonName => (0, count(CsrLimits::STANDARD.max_text)),
            Kind::Text => (0, count(MAX_TEXT)),
            Kind::Object
            | Kind::MaybeObject
            | Kind::Bool
            | Kind::Int
            | Kind::Time
            | Kind::MaybeTime => (0, 0),
        };
        Self {
            items,
            bytes,
            ..Self::new(Type::of(name))
        }
    }

    /// With the costs of the parts it is made of, and their sizes.
    pub(super) fn from_parts(kind: Type, parts: &[&Self]) -> Self {
        let most = |size: fn(&Self) -> u64| parts.iter().map(|part| size(part)).max();
        let costs = parts.iter().map(|part| part.cost);
        let part = Self {
            kind: Type::Dyn,
            items: most(|part| part.items).unwrap_or_default(),
            bytes: most(|part| part.bytes).unwrap_or_default(),
            cost: costs.fold(1, u64::saturating_add),
        };
        part.of_kind(kind)
    }

    /// Of another kind: what is no list has no entries, what is no text has no octets.
    pub(super) fn of_kind(self, kind: Type) -> Self {
        let has_items = matches!(kind, Type::List(_) | Type::Map(_) | Type::Dyn);
        let has_bytes = has_items || matches!(kind, Type::Text | Type::Bytes);
        Self {
            kind,
            items: if has_items { self.items } else { 0 },
            bytes: if has_bytes { self.bytes } else { 0 },
            cost: self.cost,
        }
    }

    pub(super) fn costing(mut self, more: u64) -> Self {
        self.cost = self.cost.saturating_add(more);
        self
    }

    /// The steps of looking once at all of it.
    pub(super) fn look(&self) -> u64 {
        let per_item = self.bytes / TEXT_PER_STEP;
        match self.items {
            0 => per_item,
            items => items.saturating_mul(1 + per_item),
        }
    }
}

pub(super) fn of_literal(literal: &LiteralValue) -> Part {
    match literal {
        LiteralValue::Boolean(_) => Part::new(Type::Bool),
        LiteralValue::Double(_) => Part::new(Type::Double),
        LiteralValue::Int(_) => Part::new(Type::Int),
        LiteralValue::UInt(_) => Part::new(Type::Uint),
        LiteralValue::Null => Part::new(Type::Null),
        LiteralValue::Bytes(bytes) => Part {
            bytes: count(bytes.inner().len()),
            ..Part::new(Type::Bytes)
        },
        LiteralValue::String(text) => Part {
            bytes: count(text.inner().len()),
            ..Part::new(Type::Text)
        },
    }
}

pub(super) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// All texts of a list together have no more than one text alone.
fn bytes_per_item() -> u64 {
    count(MAX_TEXT / MAX_ITEMS)
}

/// Some fifty milliseconds on the largest request; two loops over the longest lists, one in the other, fit.
pub(super) const BUDGET: u64 = 750_000;
/// What a turn of a loop takes beside its body.
pub(super) const PER_TURN: u64 = 3;
/// How much text is compared or copied in one step.
pub(super) const TEXT_PER_STEP: u64 = 256;
/// How much text a regular expression reads in one step.
pub(super) const PATTERN_PER_STEP: u64 = 16;
/// No number or time is longer as a text.
pub(super) const NUMBER_BYTES: u64 = 64;
