//! What is known of a value before there is one: its type, and the functions that take it.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not named here is refused or left to the evaluation"
)]

use std::fmt;

use super::names::{Kind, Name};

/// The type of an expression, as far as it can be told without a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    /// Only the evaluation can tell.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Time,
    Span,
    List(Box<Type>),
    /// From texts to one type.
    Map(Box<Type>),
    /// This type, or null.
    Maybe(Box<Type>),
    /// Something with fields, which is no value itself.
    Object(&'static Name),
}

impl Type {
    /// The type behind a name.
    pub(super) fn of(name: &'static Name) -> Self {
        let texts = || Self::List(Box::new(Self::Text));
        match name.kind {
            Kind::Object | Kind::MaybeObject => Self::Object(name),
            Kind::Bool => Self::Bool,
            Kind::Int => Self::Int,
            Kind::Text => Self::Text,
            Kind::Texts => texts(),
            Kind::TextMap => Self::Map(Box::new(Self::Text)),
            Kind::TextsMap => Self::Map(Box::new(texts())),
            Kind::Time => Self::Time,
            Kind::MaybeTime => Self::Maybe(Box::new(Self::Time)),
        }
    }

    /// The type that both have, `Dyn` if they differ.
    pub(super) fn join(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::List(a), Self::List(b)) => Self::List(Box::new(a.join(*b))),
            _ => Self::Dyn,
        }
    }

    /// Whether a value of this type may also be one of the other.
    pub(super) fn may_equal(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (Self::Maybe(_), Self::Null) | (Self::Null, Self::Maybe(_)) => true,
            (Self::Maybe(a), b) | (b, Self::Maybe(a)) => a.may_equal(b),
            (Self::List(a), Self::List(b)) | (Self::Map(a), Self::Map(b)) => a.may_equal(b),
            (a, b) if a.is_number() => b.is_number(),
            (a, b) => a == b,
        }
    }

    /// Whether a value of this type may be what `wanted` says.
    pub(super) fn may_be(&self, wanted: &Self) -> bool {
        match self {
            Self::Dyn => true,
            Self::Maybe(inner) => inner.may_be(wanted),
            Self::List(item) => matches!(wanted, Self::List(other) if item.may_be(other)),
            Self::Map(item) => matches!(wanted, Self::Map(other) if item.may_be(other)),
            other => *wanted == Self::Dyn || other == wanted,
        }
    }

    /// Whether the four comparisons of order are defined between the two.
    pub(super) fn may_order(&self, other: &Self) -> bool {
        let ordered = |kind: &Self| match kind {
            Self::Null | Self::List(_) | Self::Map(_) | Self::Object(_) => false,
            Self::Dyn
            | Self::Bool
            | Self::Int
            | Self::Uint
            | Self::Double
            | Self::Text
            | Self::Bytes
            | Self::Time
            | Self::Span
            | Self::Maybe(_) => true,
        };
        ordered(self) && ordered(other) && self.may_equal(other)
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// What the elements of an iteration are; `None`: there are none.
    pub(super) fn element(&self) -> Option<Self> {
        match self {
            Self::Dyn => Some(Self::Dyn),
            Self::List(item) => Some((**item).clone()),
            Self::Map(_) => Some(Self::Text),
            Self::Null
            | Self::Bool
            | Self::Int
            | Self::Uint
            | Self::Double
            | Self::Text
            | Self::Bytes
            | Self::Time
            | Self::Span
            | Self::Maybe(_)
            | Self::Object(_) => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("a value"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("true or false"),
            Self::Int | Self::Uint => f.write_str("a whole number"),
            Self::Double => f.write_str("a number with a fraction"),
            Self::Text => f.write_str("a text"),
            Self::Bytes => f.write_str("bytes"),
            Self::Time => f.write_str("a time"),
            Self::Span => f.write_str("a duration"),
            Self::List(item) if **item == Self::Text => f.write_str("a list of texts"),
            Self::List(_) => f.write_str("a list"),
            Self::Map(_) => f.write_str("a map"),
            Self::Maybe(inner) => write!(f, "{inner} or null"),
            Self::Object(name) => write!(f, "the object {}", name.path),
        }
    }
}

/// A function that is called on a value.
pub(super) struct Member {
    pub(super) name: &'static str,
    /// What it can be called on.
    pub(super) on: &'static [Type],
    /// What it takes.
    pub(super) takes: &'static [Type],
    /// Whether the last one can be left out.
    pub(super) last_is_optional: bool,
    pub(super) gives: Type,
}

/// A function that stands alone and takes one value.
pub(super) struct Function {
    pub(super) name: &'static str,
    /// What it can be called with; lists and maps stand for those of any type.
    pub(super) takes: &'static [Type],
    pub(super) gives: Type,
}

/// The functions that are called on a value.
pub(super) static MEMBERS: [Member; 15] = [
    text_test("contains"),
    text_test("startsWith"),
    text_test("endsWith"),
    text_test(MATCHES),
    Member {
        name: LOWER_ASCII,
        on: &[Type::Text],
        takes: &[],
        last_is_optional: false,
        gives: Type::Text,
    },
    of_time("getFullYear", &[Type::Time]),
    of_time("getMonth", &[Type::Time]),
    of_time("getDayOfYear", &[Type::Time]),
    of_time("getDayOfMonth", &[Type::Time]),
    of_time("getDate", &[Type::Time]),
    of_time("getDayOfWeek", &[Type::Time]),
    of_time("getHours", &[Type::Time, Type::Span]),
    of_time("getMinutes", &[Type::Time, Type::Span]),
    of_time("getSeconds", &[Type::Time, Type::Span]),
    of_time("getMilliseconds", &[Type::Time, Type::Span]),
];

/// The functions that stand alone.
pub(super) static FUNCTIONS: [Function; 8] = [
    Function {
        name: "string",
        takes: &[
            Type::Text,
            Type::Bool,
            Type::Int,
            Type::Uint,
            Type::Double,
            Type::Bytes,
            Type::Time,
            Type::Span,
        ],
        gives: Type::Text,
    },
    Function {
        name: "int",
        takes: &[Type::Int, Type::Uint, Type::Double, Type::Text, Type::Time],
        gives: Type::Int,
    },
    Function {
        name: "uint",
        takes: &[Type::Int, Type::Uint, Type::Double, Type::Text],
        gives: Type::Uint,
    },
    Function {
        name: "double",
        takes: &[Type::Int, Type::Uint, Type::Double, Type::Text],
        gives: Type::Double,
    },
    Function {
        name: "bool",
        takes: &[Type::Bool, Type::Text],
        gives: Type::Bool,
    },
    Function {
        name: TIMESTAMP,
        takes: &[Type::Text, Type::Int, Type::Time],
        gives: Type::Time,
    },
    Function {
        name: DURATION,
        takes: &[Type::Text, Type::Span],
        gives: Type::Span,
    },
    Function {
        name: "dyn",
        takes: &[Type::Dyn],
        gives: Type::Dyn,
    },
];

/// The loops, which are called on a list or a map.
pub(super) const MACROS: [&str; 5] = ["all", "exists", "exists_one", "map", "filter"];
/// The number of characters or entries, called on a value or with it.
pub(super) const SIZE: &str = "size";
/// Whether a field or key is there.
pub(super) const HAS: &str = "has";
pub(super) const MATCHES: &str = "matches";
pub(super) const LOWER_ASCII: &str = "lowerAscii";
pub(super) const TIMESTAMP: &str = "timestamp";
pub(super) const DURATION: &str = "duration";

const fn text_test(name: &'static str) -> Member {
    Member {
        name,
        on: &[Type::Text],
        takes: &[Type::Text],
        last_is_optional: false,
        gives: Type::Bool,
    }
}

const fn of_time(name: &'static str, on: &'static [Type]) -> Member {
    Member {
        name,
        on,
        takes: &[Type::Text],
        last_is_optional: true,
        gives: Type::Int,
    }
}
