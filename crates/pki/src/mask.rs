//! Requests without the secrets of enrolment tokens: what may be stored, shown and backed up.
//!
//! Masking looks for the shape of tokens, not for places: a token that a host put into the wrong attribute, that the
//! configuration does not look at, or that was mistyped, is as secret as any other. The octets are overwritten where they stand, so all
//! lengths stay and the copy is read like the original; its signature no longer verifies.

use std::ops::Range;

use zeroize::Zeroizing;

use crate::csr::CheckedCsr;
use crate::der::{Reader, tag};
use crate::oid::{self, Oid};
use crate::secret_shape::{possible_secret, secret_behind_id};
use crate::value;

/// A copy of the request in which the secret of every token is overwritten; nothing if there is none to overwrite.
///
/// A token is a text that begins with `ott1.`, in any case, anywhere in a value of an attribute or in a requested
/// extension, in octets or in wider characters, with or without percent-encoding. Of `ott1.<id>.` so much is kept, of other
/// texts `ott1.` only; the rest of the value becomes `x` in its own encoding.
///
/// A damaged beginning hides no secret: what stands behind an identifier is overwritten whatever is in front of that, and
/// in attributes and preshared keys, which are in no certificate, everything that could be a secret by its shape alone.
///
/// Values of the subject and alternative names count each for itself, and only with an identifier or a good part of a
/// secret behind `ott1.`: they stand in certificates later, and a host may be called `ott1.example.com`.
#[must_use]
pub fn masked(csr: &CheckedCsr) -> Option<Vec<u8>> {
    let mut copy = csr.der().to_vec();
    for value in values(csr.der()).unwrap_or_default() {
        // Overwriting may turn octets that were no DER into DER, and then other texts become visible.
        for _ in 0..MAX_DEPTH {
            if !overwrite(&mut copy, &value) {
                break;
            }
        }
    }
    (copy != csr.der()).then_some(copy)
}

/// One element by the place of its content.
#[derive(Clone)]
struct Element {
    tag: u8,
    content: Range<usize>,
}

/// One element in which a token may be.
struct Value {
    element: Element,
    nature: Nature,
}

/// What a value is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nature {
    /// It stands in certificates and is compared.
    Name,
    /// It stands in certificates.
    Extension,
    /// It is for the authority alone, and may be there to hold a secret.
    Attribute,
}

/// Content without further structure, and what a masked character looks like in it.
struct Piece {
    content: Range<usize>,
    x: &'static [u8],
}

/// Every value of the subject and every attribute value, with the values of requested extensions instead of the request for
/// them.
fn values(der: &[u8]) -> Option<Vec<Value>> {
    let request = elements(der, 0..der.len())?.into_iter().next()?;
    let info = elements(der, request.content)?.into_iter().next()?;
    let fields = elements(der, info.content)?;
    let mut found = Vec::new();
    // RFC 2986 4.1: version, subject, key, attributes.
    for rdn in elements(der, fields.get(1)?.content.clone())? {
        for attribute in elements(der, rdn.content)? {
            let value = elements(der, attribute.content)?.pop()?;
            found.push(value.is(Nature::Name));
        }
    }
    let mut fields = fields.into_iter();
    let Some(attributes) = fields.find(|field| field.tag == tag::CONTEXT_0) else {
        return Some(found);
    };
    for attribute in elements(der, attributes.content)? {
        let fields = elements(der, attribute.content)?;
        let [kind, set] = fields.as_slice() else {
            return None;
        };
        let values = elements(der, set.content.clone())?;
        if is(der, kind, &oid::EXTENSION_REQUEST) {
            for list in values {
                for extension in elements(der, list.content)? {
                    extension_values(der, extension, &mut found)?;
                }
            }
        } else {
            found.extend(values.into_iter().map(|value| value.is(Nature::Attribute)));
        }
    }
    Some(found)
}

/// The value of one extension; of alternative names every one, because the reader looks into that list.
fn extension_values(der: &[u8], extension: Element, found: &mut Vec<Value>) -> Option<()> {
    let fields = elements(der, extension.content)?;
    let (kind, value) = (fields.first()?, fields.last()?);
    if is(der, kind, &oid::SUBJECT_ALT_NAME) {
        for names in elements(der, value.content.clone())? {
            let names = elements(der, names.content)?.into_iter();
            found.extend(names.map(|name| name.is(Nature::Name)));
        }
    } else {
        let nature = match is(der, kind, &oid::PP_PRESHARED_KEY) {
            true => Nature::Attribute,
            false => Nature::Extension,
        };
        found.push(value.clone().is(nature));
    }
    Some(())
}

impl Element {
    fn is(self, nature: Nature) -> Value {
        Value {
            element: self,
            nature,
        }
    }
}

/// Masks one value; whether that changed anything.
fn overwrite(der: &mut [u8], value: &Value) -> bool {
    let mut pieces = Vec::new();
    split(der, &value.element, MAX_DEPTH, &mut pieces);
    // A text that merely looks like DER would be hidden between the pieces; it is found in the whole.
    let whole = [Piece::of(&value.element)];
    overwrite_pieces(der, &pieces, value.nature)
        .or_else(|| overwrite_pieces(der, &whole, value.nature))
        .unwrap_or(false)
}

/// Masks from the end of a token's public part to the end of the last piece; whether that changed anything, or nothing if
/// there is no token. A text may be cut into several pieces, as in a constructed string.
fn overwrite_pieces(der: &mut [u8], pieces: &[Piece], nature: Nature) -> Option<bool> {
    let contents = || pieces.iter().filter_map(|p| der.get(p.content.clone()));
    let len = contents().map(<[u8]>::len).sum();
    let mut joined = Zeroizing::new(Vec::with_capacity(len));
    contents().for_each(|content| joined.extend_from_slice(content));

    let mut kept = public_part(&joined, nature)?;
    let mut changed = false;
    for piece in pieces {
        let Some(content) = der.get_mut(piece.content.clone()) else {
            continue;
        };
        let len = content.len();
        let masks = piece.x.iter().cycle();
        for (octet, mask) in content.iter_mut().zip(masks).skip(kept) {
            changed |= octet != mask;
            *octet = *mask;
        }
        kept = kept.saturating_sub(len);
    }
    Some(changed)
}

/// Where the secret of the first token begins.
fn public_part(text: &[u8], nature: Nature) -> Option<usize> {
    // Few places can begin a prefix, as a letter or percent-encoded.
    let starts = text.iter().enumerate();
    let mut starts = starts.filter(|(_, octet)| matches!(octet, b'o' | b'O' | b'%'));
    let behind_prefix = starts.find_map(|(at, _)| {
        STRIDES
            .into_iter()
            .find_map(|stride| Spaced { text, at, stride }.public_part(nature))
    });
    let by_shape = STRIDES.into_iter().flat_map(|stride| {
        let starts = (0..stride).map(move |at| Spaced { text, at, stride });
        starts.filter_map(|spaced| spaced.secret_by_shape(nature))
    });
    behind_prefix.into_iter().chain(by_shape).min()
}

/// A text whose characters stand apart, with zeros between: UCS-2 and UCS-4 in either byte order, or plain octets.
#[derive(Clone, Copy)]
struct Spaced<'a> {
    text: &'a [u8],
    at: usize,
    stride: usize,
}

impl Spaced<'_> {
    /// The place behind `ott1.<id>.`, or behind `ott1.` if no identifier follows, or nothing.
    fn public_part(self, nature: Nature) -> Option<usize> {
        let mut behind = 0_usize;
        for wanted in PREFIX {
            let (found, next) = self.decoded(behind)?;
            if !found.eq_ignore_ascii_case(wanted) {
                return None;
            }
            behind = next;
        }
        let dot = behind.saturating_add(ID_LEN);
        let has_id = self.character(dot) == Some(b'.')
            && (behind..dot).all(|i| self.character(i).is_some_and(is_base32));
        if nature == Nature::Name && !has_id && self.longest_run(behind) < ID_LEN {
            return None;
        }
        let last = if has_id {
            dot
        } else {
            behind.saturating_sub(1)
        };
        self.place(last).map(|place| place.saturating_add(1))
    }

    /// The place of a secret that no prefix announces.
    fn secret_by_shape(self, nature: Nature) -> Option<usize> {
        let mut index = 0_usize;
        let characters = std::iter::from_fn(|| {
            let place = self.place(index).filter(|place| *place < self.text.len())?;
            let (character, next) = self.decoded(index).unwrap_or((0, index.saturating_add(1)));
            index = next;
            Some((place, character))
        });
        match nature {
            Nature::Name | Nature::Extension => secret_behind_id(characters),
            Nature::Attribute => possible_secret(characters),
        }
    }

    /// How many characters of a secret follow each other at most, as far as a token would reach.
    fn longest_run(self, from: usize) -> usize {
        let (mut longest, mut run, mut index) = (0_usize, 0_usize, from);
        for _ in 0..BEHIND_PREFIX {
            let Some((character, next)) = self.decoded(index) else {
                break;
            };
            run = match is_base32(character) {
                true => run.saturating_add(1),
                false => 0,
            };
            longest = longest.max(run);
            index = next;
        }
        longest
    }

    /// A character that may be percent-encoded (RFC 3986 2.1), and where the next one is.
    fn decoded(self, index: usize) -> Option<(u8, usize)> {
        let first = self.character(index)?;
        let digit = |ahead| {
            let digit = self.character(index.checked_add(ahead)?)?;
            char::from(digit).to_digit(16)
        };
        let code = digit(1).zip(digit(2)).filter(|_| first == b'%');
        let code = code.map(|(high, low)| high.saturating_mul(16).saturating_add(low));
        match code.and_then(|code| u8::try_from(code).ok()) {
            Some(code) => Some((code, index.checked_add(3)?)),
            None => Some((first, index.checked_add(1)?)),
        }
    }

    fn character(self, index: usize) -> Option<u8> {
        let place = self.place(index)?;
        let gap_start = match index {
            0 => place,
            _ => place.checked_sub(self.stride)?.checked_add(1)?,
        };
        let gap = self.text.get(gap_start..place)?;
        gap.iter()
            .all(|b| *b == 0)
            .then(|| self.text.get(place).copied())?
    }

    fn place(self, index: usize) -> Option<usize> {
        self.at.checked_add(index.checked_mul(self.stride)?)
    }
}

impl Piece {
    fn of(element: &Element) -> Self {
        Piece {
            content: element.content.clone(),
            x: match value::unit_width(element.tag) {
                Some(4) => b"\0\0\0x",
                Some(2) => b"\0x",
                _ => b"x",
            },
        }
    }
}

/// The pieces of an element in their order.
fn split(der: &[u8], element: &Element, depth: usize, pieces: &mut Vec<Piece>) {
    match (depth.checked_sub(1), members(der, element)) {
        (Some(depth), Some(members)) => members
            .iter()
            .for_each(|member| split(der, member, depth, pieces)),
        _ => pieces.push(Piece::of(element)),
    }
}

/// What is inside of a constructed element, or of an OCTET STRING that holds one element.
fn members(der: &[u8], element: &Element) -> Option<Vec<Element>> {
    match element.tag {
        tag::OCTET_STRING => elements(der, element.content.clone()).filter(|e| e.len() == 1),
        constructed if constructed & CONSTRUCTED != 0 => elements(der, element.content.clone()),
        _ => None,
    }
}

/// The elements that fill this range; nothing if it is not filled by DER.
fn elements(der: &[u8], within: Range<usize>) -> Option<Vec<Element>> {
    let mut at = within.start;
    let mut reader = Reader::new(der.get(within)?);
    let mut found = Vec::new();
    while !reader.is_empty() {
        let tlv = reader.any().ok()?;
        at = at.checked_add(tlv.full.len())?;
        found.push(Element {
            tag: tlv.tag,
            content: at.checked_sub(tlv.content.len())?..at,
        });
    }
    Some(found)
}

fn is_base32(c: u8) -> bool {
    c.is_ascii_alphabetic() || matches!(c, b'2'..=b'7')
}

fn is(der: &[u8], kind: &Element, oid: &Oid) -> bool {
    der.get(kind.content.clone()) == Some(oid.der_content())
}

const PREFIX: &[u8] = b"ott1.";
const ID_LEN: usize = 16;
/// Identifier, secret and check of a token with their dots.
const BEHIND_PREFIX: usize = 77;
const STRIDES: [usize; 3] = [1, 2, 4];
const CONSTRUCTED: u8 = 0x20;

/// Deeper nesting is read as plain octets; real values have two or three levels.
const MAX_DEPTH: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::token(b"ott1.aaaqeayeaudaocaj.secret", Some(22))]
    #[case::upper_case(b"OTT1.AAAQEAYEAUDAOCAJ.SECRET", Some(22))]
    #[case::later(b"otp: ott1.aaaqeayeaudaocaj.s", Some(27))]
    #[case::false_start(b"oott1.aaaqeayeaudaocaj.s", Some(23))]
    #[case::id_too_short(b"ott1.aaaqeayeaudaoca.secret", Some(5))]
    #[case::id_too_long(b"ott1.aaaqeayeaudaocajj.secret", Some(5))]
    #[case::id_of_other_letters(b"ott1.aaaqeayeaudaoca1.secret", Some(5))]
    #[case::no_id(b"ott1.secret", Some(5))]
    #[case::nothing_follows(b"ott1.", Some(5))]
    #[case::second_prefix_is_secret(b"ott1.ott1.aaaqeayeaudaocaj.s", Some(5))]
    #[case::big_endian(b"\0o\0t\0t\x001\0.\0s", Some(10))]
    #[case::big_endian_before_another_script(b"\0o\0t\0t\x001\0.\x20\xac", Some(10))]
    #[case::little_endian(b"o\0t\0t\x001\0.\0s\0", Some(9))]
    #[case::four_octets(b"\0\0\0o\0\0\0t\0\0\0t\0\0\x001\0\0\0.\0\0\0s", Some(20))]
    #[case::gaps_that_are_not_zero(b"o-t-t-1-.-", None)]
    #[case::other_version(b"ott2.aaaqeayeaudaocaj.secret", None)]
    #[case::no_dot(b"ott1", None)]
    #[case::empty(b"", None)]
    #[case::encoded(b"%6Ftt1%2esecret", Some(9))]
    #[case::encoded_in_wide_characters(b"\0o\0t\0t\x001\0%\x002\0E\0s", Some(14))]
    #[case::not_encoded(b"ott1%2gsecret", None)]
    fn the_public_part_ends_before_the_secret(#[case] text: &[u8], #[case] end: Option<usize>) {
        assert_eq!(public_part(text, Nature::Attribute), end);
    }

    #[rstest]
    #[case::token(b"ott1.aaaqeayeaudaocaj.secret", Some(22))]
    #[case::id_too_short(b"ott1.aaaqeayeaudaoca.eaqseizeeutcokbjfiv", Some(5))]
    #[case::id_mistyped(b"ott1.aaaqeaye1udaocaj.eaqseizeeutcokbjfiv", Some(5))]
    #[case::secret_encoded(b"ott1.%65aqs%65izeeutcokbjfiv", Some(5))]
    #[case::behind_a_host(b"ott1.example.com ott1.aaaqeayeaudaocaj.s", Some(5))]
    #[case::host(b"ott1.example.com", None)]
    #[case::host_with_a_long_label(b"ott1.infrastructure.example.com", None)]
    #[case::host_with_a_number(b"ott1.0f8fad5bd9cb469fa16570867728950e.example.com", None)]
    #[case::far_behind(b"ott1.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.e.aaaqeayeaudaocaj", None)]
    fn a_name_needs_more_than_the_beginning(#[case] text: &[u8], #[case] end: Option<usize>) {
        assert_eq!(public_part(text, Nature::Name), end);
    }
}
