//! Messages of the domain name system (RFC 1035 4), as much of them as a question for addresses needs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which addresses are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    fn record_type(self) -> u16 {
        match self {
            Self::V4 => 1,
            Self::V6 => 28,
        }
    }
}

/// What a server says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) code: u8,
    pub(super) is_truncated: bool,
    pub(super) addresses: Vec<IpAddr>,
}

/// A question, with room for an answer of 1232 octets (EDNS, RFC 6891); `None` if that is no name.
pub(super) fn encode(id: [u8; 2], name: &str, family: Family) -> Option<Vec<u8>> {
    let mut message = Vec::with_capacity(64);
    message.extend(id);
    // One question, one additional record, recursion wanted.
    message.extend([0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 1]);
    for label in name.split('.') {
        let length = u8::try_from(label.len())
            .ok()
            .filter(|length| (1..=63).contains(length))?;
        message.push(length);
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(family.record_type().to_be_bytes());
    message.extend(INTERNET.to_be_bytes());
    message.extend([0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
    Some(message)
}

/// Reads an answer; `None` unless it answers this very question.
pub(super) fn decode(message: &[u8], id: [u8; 2], name: &str, family: Family) -> Option<Reply> {
    let mut reader = Reader { message, at: 0 };
    if reader.take(2)? != id {
        return None;
    }
    let flags = reader.number()?;
    let (questions, answers) = (reader.number()?, reader.number()?);
    reader.take(4)?;
    let is_answer = flags & 0x8000 != 0;
    if !is_answer || questions != 1 {
        return None;
    }
    let wanted = name.to_ascii_lowercase();
    let asked = reader.name()?;
    let (kind, class) = (reader.number()?, reader.number()?);
    if asked != wanted || kind != family.record_type() || class != INTERNET {
        return None;
    }
    let [_, low] = flags.to_be_bytes();
    let mut reply = Reply {
        code: low & 0x0f,
        is_truncated: flags & 0x0200 != 0,
        addresses: Vec::new(),
    };
    if reply.is_truncated {
        return Some(reply);
    }
    // Records come in the order of the chain of names, as servers send them.
    let mut current = wanted;
    for _ in 0..answers {
        let owner = reader.name()?;
        let (kind, class) = (reader.number()?, reader.number()?);
        reader.take(4)?;
        let length = usize::from(reader.number()?);
        let begin = reader.at;
        let data = reader.take(length)?;
        if owner != current || class != INTERNET {
            continue;
        }
        if kind == CNAME {
            current = Reader { message, at: begin }.name()?;
        } else if kind == family.record_type() {
            reply.addresses.push(address(data)?);
        }
    }
    Some(reply)
}

fn address(data: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(data) {
        return Some(Ipv4Addr::from(octets).into());
    }
    let octets = <[u8; 16]>::try_from(data).ok()?;
    Some(Ipv6Addr::from(octets).into())
}

struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.message.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        let octets = <[u8; 2]>::try_from(self.take(2)?).ok()?;
        Some(u16::from_be_bytes(octets))
    }

    /// A name in lower case. Its end may stand elsewhere in the message (RFC 1035 4.1.4).
    fn name(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut elsewhere: Option<Reader<'_>> = None;
        for _ in 0..MAX_PARTS {
            let reader = elsewhere.as_mut().unwrap_or(self);
            let [length] = <[u8; 1]>::try_from(reader.take(1)?).ok()?;
            match length {
                0 => return Some(text),
                1..=63 => {
                    let label = reader.take(usize::from(length))?;
                    let label = std::str::from_utf8(label).ok()?;
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(&label.to_ascii_lowercase());
                }
                0xc0.. => {
                    let [low] = <[u8; 1]>::try_from(reader.take(1)?).ok()?;
                    let at = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                    elsewhere = Some(Reader {
                        message: self.message,
                        at,
                    });
                }
                64.. => return None,
            }
        }
        None
    }
}

const INTERNET: u16 = 1;
const CNAME: u16 = 5;
/// Labels and jumps: keeps a name that points at itself from being read for ever.
const MAX_PARTS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer to the question for `a.b`, with these records behind it.
    fn answer(code: u8, records: &[&[u8]]) -> Vec<u8> {
        let mut message = vec![7, 7, 0x81, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0];
        message[7] = u8::try_from(records.len()).unwrap();
        message.extend(b"\x01a\x01b\0\0\x01\0\x01");
        message.extend(records.concat());
        message
    }

    #[test]
    fn an_answer_counts_only_for_its_question_and_its_chain() {
        let own: &[u8] = b"\xc0\x0c\0\x01\0\x01\0\0\0\x09\0\x04\x0a\x14\0\x0b";
        let other: &[u8] = b"\x01z\0\0\x01\0\x01\0\0\0\x09\0\x04\x0a\x14\0\x0c";
        let alias: &[u8] = b"\xc0\x0c\0\x05\0\x01\0\0\0\x09\0\x03\x01z\0";
        let loops: &[u8] = b"\xc0\x15\0\x01\0\x01\0\0\0\x09\0\x04\x0a\x14\0\x0b";
        let ip = |last: u8| IpAddr::from([10, 20, 0, last]);
        for (case, message, expected) in [
            ("its own", answer(0, &[own]), Some(vec![ip(11)])),
            ("somebody else's", answer(0, &[other]), Some(vec![])),
            (
                "by another name",
                answer(0, &[alias, other]),
                Some(vec![ip(12)]),
            ),
            ("none", answer(3, &[]), Some(vec![])),
            ("a name that points at itself", answer(0, &[loops]), None),
            ("cut off", answer(0, &[&own[..9]]), None),
            ("nothing", vec![], None),
        ] {
            let read = decode(&message, [7, 7], "A.b", Family::V4);
            assert_eq!(read.map(|reply| reply.addresses), expected, "{case}");
        }
        let message = answer(0, &[own]);
        assert_eq!(decode(&message, [7, 8], "a.b", Family::V4), None);
        assert_eq!(decode(&message, [7, 7], "a.c", Family::V4), None);
        assert_eq!(decode(&message, [7, 7], "a.b", Family::V6), None);
    }

    #[test]
    fn any_octets_are_read_without_panic() {
        let good = answer(0, &[b"\xc0\x0c\0\x01\0\x01\0\0\0\x09\0\x04\x0a\x14\0\x0b"]);
        for length in 0..good.len() {
            decode(&good[..length], [7, 7], "a.b", Family::V4);
        }
        for at in 2..good.len() {
            for octet in [0, 1, 0x3f, 0x40, 0xc0, 0xff] {
                let mut bad = good.clone();
                bad[at] = octet;
                decode(&bad, [7, 7], "a.b", Family::V4);
            }
        }
    }

    #[test]
    fn a_question_is_encoded() {
        let message = encode([1, 2], "a.bc", Family::V6).unwrap();
        assert_eq!(message[12..22], *b"\x01a\x02bc\0\0\x1c\0\x01");
        assert_eq!(encode([1, 2], "a..b", Family::V4), None);
        assert_eq!(encode([1, 2], &"x".repeat(64), Family::V4), None);
    }
}
