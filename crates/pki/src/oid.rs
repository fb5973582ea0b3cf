//! Object identifiers: the value type; the ones we know are re-exported from their register.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

mod register;

pub use register::*;

/// An object identifier of at most 63 encoded octets.
///
/// Kept inline in its DER form: comparing and copying needs no allocation, and the many known ones are constants.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Oid {
    len: u8,
    der: [u8; MAX_DER],
}

impl Oid {
    /// An identifier from its arcs, for constants.
    ///
    /// # Panics
    /// If the arcs are no identifier, which for a constant is an error at compile time. Use [`Oid::parse`] for input.
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        reason = "evaluated by the compiler for constants; iterators are not const"
    )]
    #[must_use]
    pub const fn from_arcs(arcs: &[u32]) -> Self {
        assert!(arcs.len() >= 2 && arcs[0] <= 2 && (arcs[0] == 2 || arcs[1] < 40));
        let mut der = [0; MAX_DER];
        let mut len = 0;
        let mut i = 1;
        while i < arcs.len() {
            let arc = if i == 1 {
                arcs[0] as u64 * 40 + arcs[1] as u64
            } else {
                arcs[i] as u64
            };
            let mut septets = 1;
            while arc >> (7 * septets) != 0 {
                septets += 1;
            }
            while septets > 0 {
                septets -= 1;
                let more = if septets == 0 { 0 } else { 0x80 };
                der[len] = ((arc >> (7 * septets)) & 0x7f) as u8 | more;
                len += 1;
            }
            i += 1;
        }
        Oid {
            len: len as u8,
            der,
        }
    }

    /// Reads dotted decimal form.
    ///
    /// # Errors
    /// If the text is no identifier or a longer one than any registered.
    pub fn parse(text: &str) -> Result<Self, OidFault> {
        if text.len() > MAX_TEXT {
            return Err(OidFault::TooLong);
        }
        let mut arcs = text.split('.');
        let first = arc(arcs.next())?;
        let second = arc(arcs.next())?;
        if first > 2 || (first < 2 && second >= 40) {
            return Err(OidFault::NotDotted);
        }
        let joined = first
            .checked_mul(40)
            .and_then(|f| f.checked_add(second))
            .ok_or(OidFault::TooLong)?;
        let mut der = base128(joined);
        for text in arcs {
            der.extend(base128(arc(Some(text))?));
        }
        Self::from_der_content(&der)
    }

    /// Reads the content octets of an OBJECT IDENTIFIER, strictly: minimal arcs, none of them over 128 bits.
    ///
    /// # Errors
    /// If the octets are empty, too many, cut off or not minimal.
    pub fn from_der_content(content: &[u8]) -> Result<Self, OidFault> {
        if content.len() > MAX_DER {
            return Err(OidFault::TooLong);
        }
        if content.last().is_none_or(|b| b & 0x80 != 0) {
            return Err(OidFault::NotMinimal);
        }
        let mut arc = 0_u128;
        let mut at_start = true;
        for byte in content {
            if at_start && *byte == 0x80 {
                return Err(OidFault::NotMinimal);
            }
            if arc >> 121 != 0 {
                return Err(OidFault::TooLong);
            }
            arc = (arc << 7) | u128::from(byte & 0x7f);
            at_start = byte & 0x80 == 0;
            if at_start {
                arc = 0;
            }
        }
        let mut der = [0; MAX_DER];
        for (to, from) in der.iter_mut().zip(content) {
            *to = *from;
        }
        Ok(Oid {
            len: u8::try_from(content.len()).map_err(|_| OidFault::TooLong)?,
            der,
        })
    }

    /// The content octets, without tag and length.
    #[must_use]
    pub fn der_content(&self) -> &[u8] {
        self.der.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Whether this identifier lies below `arc`: it begins with it and is longer. An arc is not under itself.
    #[must_use]
    pub fn is_under(&self, arc: &Oid) -> bool {
        self.len > arc.len && self.der_content().starts_with(arc.der_content())
    }

    fn arcs(&self) -> impl Iterator<Item = u128> + '_ {
        let joined = self
            .der_content()
            .split_inclusive(|b| b & 0x80 == 0)
            .map(|septets| {
                septets
                    .iter()
                    .fold(0_u128, |acc, b| (acc << 7) | u128::from(b & 0x7f))
            });
        joined
            .enumerate()
            .flat_map(|(i, value)| match (i, value) {
                (0, v) if v < 80 => [Some(v / 40), Some(v % 40)],
                (0, v) => [Some(2), Some(v.saturating_sub(80))],
                (_, v) => [Some(v), None],
            })
            .flatten()
    }
}

impl Ord for Oid {
    /// Numeric order, arc by arc, as a sorted listing shows it.
    fn cmp(&self, other: &Self) -> Ordering {
        self.arcs().cmp(other.arcs())
    }
}

impl PartialOrd for Oid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, arc) in self.arcs().enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            write!(f, "{arc}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Oid({self})")
    }
}

impl FromStr for Oid {
    type Err = OidFault;

    fn from_str(text: &str) -> Result<Self, OidFault> {
        Self::parse(text)
    }
}

/// Why something is no object identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OidFault {
    /// Not numbers joined by dots, or impossible first arcs.
    #[error("object identifier is not in dotted form")]
    NotDotted,
    /// Over 63 octets, or an arc over 128 bits.
    #[error("object identifier is too long")]
    TooLong,
    /// Empty, cut off, or an arc with leading zeros.
    #[error("object identifier is not minimally encoded")]
    NotMinimal,
}

fn arc(text: Option<&str>) -> Result<u128, OidFault> {
    let text = text.ok_or(OidFault::NotDotted)?;
    let leading_zero = text.len() > 1 && text.starts_with('0');
    if text.is_empty() || leading_zero || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(OidFault::NotDotted);
    }
    text.parse().map_err(|_| OidFault::TooLong)
}

fn base128(mut value: u128) -> Vec<u8> {
    let mut septets = vec![u8::try_from(value & 0x7f).unwrap_or_default()];
    value >>= 7;
    while value > 0 {
        septets.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    septets.reverse();
    septets
}

const MAX_DER: usize = 63; // longer than any registered identifier; keeps the value copyable
const MAX_TEXT: usize = 256; // dotted text of 63 octets is shorter

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("1.2.840.113549.1.9.7", EXTENSION_REQUEST, false)]
    #[case("1.2.840.113549.1.9.14", EXTENSION_REQUEST, true)]
    #[case("1.3.6.1.4.1.34380.1.3.39", PP_CLI_AUTH, true)]
    #[case("2.5.29.17", SUBJECT_ALT_NAME, true)]
    fn dotted_text_and_constants_agree(
        #[case] text: &str,
        #[case] constant: Oid,
        #[case] same: bool,
    ) {
        assert_eq!(Oid::parse(text).unwrap() == constant, same);
        assert_eq!(Oid::parse(text).unwrap().to_string(), text);
    }

    #[rstest]
    #[case("")]
    #[case("1")]
    #[case("3.1")]
    #[case("1.40")]
    #[case("1..2")]
    #[case("1.2.")]
    #[case("1.2.x")]
    #[case("1.2.-3")]
    #[case("1.2.+3")]
    #[case("1.02")]
    #[case("pp_uuid")]
    fn refuses_texts_that_are_not_dotted(#[case] text: &str) {
        assert_eq!(Oid::parse(text), Err(OidFault::NotDotted));
    }

    #[rstest]
    #[case(&[], OidFault::NotMinimal)]
    #[case(&[0x2a, 0x80], OidFault::NotMinimal)]
    #[case(&[0x2a, 0x80, 0x01], OidFault::NotMinimal)]
    #[case(&[0x81; 64], OidFault::TooLong)]
    fn refuses_bad_encodings(#[case] der: &[u8], #[case] fault: OidFault) {
        assert_eq!(Oid::from_der_content(der), Err(fault));
    }

    #[test]
    fn an_arc_is_not_under_itself_nor_under_a_numeric_prefix() {
        assert!(!PP_REG.is_under(&PP_REG));
        assert!(PP_PRESHARED_KEY.is_under(&PP_REG));
        let sibling = Oid::parse("1.3.6.1.4.1.34380.1.10.1").unwrap();
        assert!(!sibling.is_under(&PP_REG));
    }

    #[test]
    fn order_is_numeric() {
        let mut oids: Vec<Oid> = ["1.2.840", "1.2.3", "2.5.29.17", "1.2.300"]
            .iter()
            .map(|t| Oid::parse(t).unwrap())
            .collect();
        oids.sort();
        let texts: Vec<String> = oids.iter().map(Oid::to_string).collect();
        assert_eq!(texts, ["1.2.3", "1.2.300", "1.2.840", "2.5.29.17"]);
    }

    proptest! {
        #[test]
        fn text_and_der_round_trip(first in 0_u32..3, second in 0_u32..40, rest in prop::collection::vec(any::<u32>(), 0..8)) {
            let mut arcs = vec![first, second];
            arcs.extend(rest);
            let oid = Oid::from_arcs(&arcs);
            let text: Vec<String> = arcs.iter().map(u32::to_string).collect();
            prop_assert_eq!(oid.to_string(), text.join("."));
            prop_assert_eq!(Oid::parse(&oid.to_string()), Ok(oid));
            prop_assert_eq!(Oid::from_der_content(oid.der_content()), Ok(oid));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(oid) = Oid::from_der_content(&bytes) {
                prop_assert_eq!(Oid::parse(&oid.to_string()), Ok(oid));
            }
        }
    }
}
