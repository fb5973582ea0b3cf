//! PEM, the text armour of RFC 7468 and RFC 1421.
//!
//! Tolerant about what surrounds a block (certificates come with human-readable dumps), strict about what is inside.
//! What is left over in memory from reading and writing private keys is erased; the key itself is its owner's business.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroize as _;

/// One armoured block. It may be a key or a request with a password: its `Debug` form has the length only.
#[derive(Clone, PartialEq, Eq)]
pub struct Block {
    /// The words between `BEGIN` and the dashes.
    pub label: String,
    /// The decoded content.
    pub der: Vec<u8>,
    /// Whether RFC 1421 headers stood above the content; encrypted keys have them.
    pub headers: bool,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("label", &self.label)
            .field("octets", &self.der.len())
            .field("headers", &self.headers)
            .finish()
    }
}

/// Bounds on one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PemLimits {
    /// Octets of text.
    pub max_text: usize,
    /// Blocks in it.
    pub max_blocks: usize,
}

impl PemLimits {
    /// For one request: the size that the enrolment doors admit.
    pub const REQUEST: PemLimits = PemLimits {
        max_text: 64 * 1024,
        max_blocks: 8,
    };
    /// For bundles that an operator supplies: certificate chains and revocation lists.
    pub const BUNDLE: PemLimits = PemLimits {
        max_text: 256 * 1024 * 1024,
        max_blocks: 10_000,
    };
}

/// Why a text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PemFault {
    /// Longer than the limit.
    #[error("PEM text is longer than {limit} octets")]
    TooLarge {
        /// The limit in octets.
        limit: usize,
    },
    /// More blocks than the limit.
    #[error("PEM text has more than {limit} blocks")]
    TooManyBlocks {
        /// The limit.
        limit: usize,
    },
    /// A line that begins like a boundary but is none, or a label that is empty, too long or not plain text.
    #[error("PEM boundary on line {line} is malformed")]
    Boundary {
        /// Counted from one.
        line: usize,
    },
    /// The text ended, or another block began, inside a block.
    #[error("PEM block that begins on line {line} has no matching END")]
    Unterminated {
        /// Counted from one.
        line: usize,
    },
    /// An END without BEGIN, or with another label.
    #[error("PEM END on line {line} does not match a BEGIN")]
    UnmatchedEnd {
        /// Counted from one.
        line: usize,
    },
    /// The content is not canonical base64.
    #[error("PEM block that begins on line {line} is not valid base64")]
    Base64 {
        /// Counted from one.
        line: usize,
    },
}

/// Every block of a text, in order. Text before, between and after blocks is skipped.
///
/// # Errors
/// If the text is over a limit or any block in it is malformed.
pub fn decode_all(text: &[u8], limits: &PemLimits) -> Result<Vec<Block>, PemFault> {
    let mut reader = BlockReader::new(text, limits)?;
    let mut blocks = Vec::new();
    while let Some(block) = reader.next_block()? {
        if blocks.len() >= limits.max_blocks {
            return Err(PemFault::TooManyBlocks {
                limit: limits.max_blocks,
            });
        }
        blocks.push(block);
    }
    Ok(blocks)
}

/// The first block of a text, without looking at anything behind it, as Go's `pem.Decode` is used by Kubernetes.
///
/// # Errors
/// If the text is over the size limit or its first block is malformed.
pub fn decode_first(text: &[u8], limits: &PemLimits) -> Result<Option<Block>, PemFault> {
    BlockReader::new(text, limits)?.next_block()
}

/// The first block, and the text behind it.
pub(crate) fn decode_first_and_rest<'a>(
    text: &'a [u8],
    limits: &PemLimits,
) -> Result<(Option<Block>, &'a [u8]), PemFault> {
    let mut reader = BlockReader::new(text, limits)?;
    let block = reader.next_block()?;
    Ok((block, reader.rest.unwrap_or_default()))
}

/// Whether a line of a text begins like a block.
pub(crate) fn has_boundary(text: &[u8]) -> bool {
    text.split(|b| *b == b'\n')
        .any(|line| line.starts_with(b"-----BEGIN"))
}

/// A block in the strict form of RFC 7468: 64 columns, a newline at the end.
#[must_use]
pub fn encode(label: &str, der: &[u8]) -> String {
    let scratch = Scratch::holding(label, STANDARD.encode(der).into_bytes());
    let base64 = std::str::from_utf8(&scratch.bytes).unwrap_or_default();
    // Enough from the beginning: text that has to grow leaves a copy of itself behind.
    let mut text = String::with_capacity(encoded_len(label, base64));
    text.push_str("-----BEGIN ");
    text.push_str(label);
    text.push_str("-----\n");
    let mut rest = base64;
    while let Some((line, more)) = rest.split_at_checked(LINE) {
        text.push_str(line);
        text.push('\n');
        rest = more;
    }
    if !rest.is_empty() {
        text.push_str(rest);
        text.push('\n');
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    text
}

/// The length of a block's text.
fn encoded_len(label: &str, base64: &str) -> usize {
    let boundaries = label.len().saturating_mul(2).saturating_add(BOUNDARIES);
    base64
        .len()
        .saturating_add(base64.len().div_ceil(LINE))
        .saturating_add(boundaries)
}

/// Octets on their way into or out of a block. Those of a private key do not stay in memory.
struct Scratch {
    bytes: Vec<u8>,
    secret: bool,
}

impl Scratch {
    fn holding(label: &str, bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            secret: label.ends_with(SECRET_LABEL),
        }
    }

    fn take(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.secret {
            self.bytes.zeroize();
        }
    }
}

struct BlockReader<'a> {
    rest: Option<&'a [u8]>,
    line: usize,
}

impl<'a> BlockReader<'a> {
    fn new(text: &'a [u8], limits: &PemLimits) -> Result<Self, PemFault> {
        if text.len() > limits.max_text {
            return Err(PemFault::TooLarge {
                limit: limits.max_text,
            });
        }
        Ok(BlockReader {
            rest: Some(text),
            line: 0,
        })
    }

    fn next_line(&mut self) -> Option<(usize, &'a [u8])> {
        let text = self.rest?;
        let mut parts = text.splitn(2, |b| *b == b'\n');
        let line = parts.next()?;
        self.rest = parts.next();
        self.line = self.line.saturating_add(1);
        Some((self.line, line.trim_ascii_end()))
    }

    fn next_block(&mut self) -> Result<Option<Block>, PemFault> {
        while let Some((line, text)) = self.next_line() {
            if text.starts_with(b"-----END ") {
                return Err(PemFault::UnmatchedEnd { line });
            }
            if text.starts_with(b"-----BEGIN ") {
                let label =
                    boundary_label(text, b"-----BEGIN ").ok_or(PemFault::Boundary { line })?;
                return self.block_content(line, label).map(Some);
            }
        }
        Ok(None)
    }

    fn block_content(&mut self, begin: usize, label: &str) -> Result<Block, PemFault> {
        let mut base64 = Scratch::holding(label, Vec::with_capacity(self.content_len()));
        let mut headers = false;
        let mut in_headers = false;
        while let Some((line, text)) = self.next_line() {
            if text.starts_with(b"-----") {
                return match boundary_label(text, b"-----END ") {
                    Some(end) if end == label && !in_headers => {
                        // Also what was decoded before a fault is erased.
                        let mut der = Scratch::holding(label, Vec::new());
                        STANDARD
                            .decode_vec(&base64.bytes, &mut der.bytes)
                            .map_err(|_| PemFault::Base64 { line: begin })?;
                        Ok(Block {
                            label: label.to_owned(),
                            der: der.take(),
                            headers,
                        })
                    }
                    _ if text.starts_with(b"-----END ") => Err(PemFault::UnmatchedEnd { line }),
                    _ => Err(PemFault::Unterminated { line: begin }),
                };
            }
            if in_headers {
                in_headers = !text.is_empty();
            } else if base64.bytes.is_empty() && text.contains(&b':') {
                headers = true;
                in_headers = true;
            } else {
                base64.bytes.extend_from_slice(text.trim_ascii_start());
            }
        }
        Err(PemFault::Unterminated { line: begin })
    }

    /// How long the content can be: as far as the next line that begins like a boundary.
    fn content_len(&self) -> usize {
        let rest = self.rest.unwrap_or_default();
        let boundary = rest.windows(6).position(|six| six == b"\n-----");
        boundary.unwrap_or(rest.len())
    }
}

fn boundary_label<'a>(line: &'a [u8], prefix: &[u8]) -> Option<&'a str> {
    let label = line.strip_prefix(prefix)?.strip_suffix(b"-----")?;
    let plain = label.iter().all(|b| matches!(b, b' '..=b'~'));
    if label.is_empty() || label.len() > MAX_LABEL || !plain {
        return None;
    }
    std::str::from_utf8(label).ok()
}

const LINE: usize = 64; // RFC 7468 section 2
const BOUNDARIES: usize = "-----BEGIN -----\n-----END -----\n".len();
const SECRET_LABEL: &str = "PRIVATE KEY"; // RFC 7468 sections 10 and 11, and the forms named after an algorithm
const MAX_LABEL: usize = 64; // the longest label in use is half of that

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    const LIMITS: PemLimits = PemLimits {
        max_text: 4096,
        max_blocks: 3,
    };

    fn one(text: &str) -> Block {
        let blocks = decode_all(text.as_bytes(), &LIMITS).unwrap();
        assert_eq!(blocks.len(), 1);
        blocks.into_iter().next().unwrap()
    }

    #[rstest]
    #[case::plain("-----BEGIN X-----\nAQID\n-----END X-----\n")]
    #[case::crlf("-----BEGIN X-----\r\nAQID\r\n-----END X-----\r\n")]
    #[case::no_final_newline("-----BEGIN X-----\nAQID\n-----END X-----")]
    #[case::surrounded(
        "subject=/CN=a\n-----BEGIN X-----\nAQID\n-----END X-----\ntrailing words: yes\n"
    )]
    #[case::broken_lines("-----BEGIN X-----\nA\nQI\n\nD \n-----END X-----\n")]
    #[case::indented("-----BEGIN X-----\n  AQID\n-----END X-----\n")]
    fn tolerates(#[case] text: &str) {
        let block = one(text);
        assert_eq!(
            (block.label.as_str(), block.der.as_slice(), block.headers),
            ("X", &[1, 2, 3][..], false)
        );
    }

    #[test]
    fn flags_headers() {
        let block = one(
            "-----BEGIN X-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: a\n\nAQID\n-----END X-----\n",
        );
        assert!(block.headers);
        assert_eq!(block.der, [1, 2, 3]);
    }

    #[rstest]
    #[case("-----BEGIN X-----\nAQID\n", PemFault::Unterminated { line: 1 })]
    #[case("-----BEGIN X-----\n-----BEGIN X-----\nAQID\n-----END X-----", PemFault::Unterminated { line: 1 })]
    #[case("-----BEGIN X-----\nAQID\n-----END Y-----\n", PemFault::UnmatchedEnd { line: 3 })]
    #[case("-----END X-----\n", PemFault::UnmatchedEnd { line: 1 })]
    #[case("-----BEGIN X----\nAQID\n-----END X-----\n", PemFault::Boundary { line: 1 })]
    #[case("-----BEGIN -----\nAQID\n-----END -----\n", PemFault::Boundary { line: 1 })]
    #[case("\n-----BEGIN X-----\nAQI\n-----END X-----\n", PemFault::Base64 { line: 2 })]
    #[case("-----BEGIN X-----\nAQI_\n-----END X-----\n", PemFault::Base64 { line: 1 })]
    #[case("-----BEGIN X-----\nAQ ID\n-----END X-----\n", PemFault::Base64 { line: 1 })]
    #[case("-----BEGIN X-----\nAR==\n-----END X-----\n", PemFault::Base64 { line: 1 })]
    fn refuses(#[case] text: &str, #[case] fault: PemFault) {
        assert_eq!(decode_all(text.as_bytes(), &LIMITS), Err(fault));
    }

    #[test]
    fn limits_hold() {
        let four = encode("X", &[1]).repeat(4);
        assert_eq!(
            decode_all(four.as_bytes(), &LIMITS),
            Err(PemFault::TooManyBlocks { limit: 3 })
        );
        assert_eq!(
            decode_all(&[b'a'; 4097], &LIMITS),
            Err(PemFault::TooLarge { limit: 4096 })
        );
    }

    #[test]
    fn private_keys_are_known_by_their_label() {
        for (label, secret) in [
            ("PRIVATE KEY", true),
            ("ENCRYPTED PRIVATE KEY", true),
            ("EC PRIVATE KEY", true),
            ("RSA PRIVATE KEY", true),
            ("OPENSSH PRIVATE KEY", true),
            ("PUBLIC KEY", false),
            ("CERTIFICATE", false),
            ("CERTIFICATE REQUEST", false),
        ] {
            assert_eq!(Scratch::holding(label, vec![1]).secret, secret, "{label}");
        }
    }

    #[rstest]
    #[case::short("PRIVATE KEY", 3)]
    #[case::whole_lines("EC PRIVATE KEY", 96)]
    #[case::one_octet_more("RSA PRIVATE KEY", 97)]
    #[case::long_label("A KIND OF KEY WITH A RATHER LONG NAME PRIVATE KEY", 1000)]
    #[case::nothing("PRIVATE KEY", 0)]
    fn no_buffer_grows_and_leaves_a_copy_behind(#[case] label: &str, #[case] length: usize) {
        let der = vec![7; length];
        let text = encode(label, &der);
        assert_eq!(text.len(), encoded_len(label, &STANDARD.encode(&der)));
        let limits = PemLimits::REQUEST;
        for text in [text.clone(), text.replace('\n', "\r\n")] {
            let mut reader = BlockReader::new(text.as_bytes(), &limits).unwrap();
            reader.next_line().unwrap();
            let room = reader.content_len();
            assert!(room >= STANDARD.encode(&der).len(), "{room} for {length}");
            assert!(room <= text.len());
            assert_eq!(one(&text).der, der);
        }
    }

    #[test]
    fn first_block_ignores_what_follows() {
        let text = format!("{}-----BEGIN broken", encode("X", &[7]));
        assert!(decode_all(text.as_bytes(), &LIMITS).is_err());
        assert_eq!(
            decode_first(text.as_bytes(), &LIMITS).unwrap().unwrap().der,
            [7]
        );
        assert_eq!(decode_first(b"no block", &LIMITS), Ok(None));
    }

    proptest! {
        #[test]
        fn round_trips(der in prop::collection::vec(any::<u8>(), 0..400)) {
            let text = encode("CERTIFICATE REQUEST", &der);
            prop_assert!(text.lines().all(|l| l.len() <= 64));
            prop_assert_eq!(one(&text).der, der);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(-----(BEGIN|END) [A-C]{0,2}-----\n|[A-Za-z0-9+/=:]{0,9}\n|-----){0,8}") {
            let _ = decode_all(text.as_bytes(), &LIMITS);
        }
    }
}
