//! `serial`: the next serial, in hexadecimal.

use countersign_pki::{Serial, SerialFault};

/// Reads any width and case, with white space around it: the server writes `0003`, its command `002` and a line end.
pub(super) fn read(text: &[u8]) -> Result<Serial, SerialFault> {
    let text = std::str::from_utf8(text).map_err(|_| SerialFault::NotHexadecimal)?;
    Serial::parse_hex(text.trim())
}

/// As the server writes it.
pub(super) fn written(next: u64) -> String {
    format!("{next:04X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_width_case_and_surrounding_space() {
        for (text, next) in [
            ("0003", 3),
            ("002\n", 2),
            ("03\n", 3),
            (" 001a\r\n", 26),
            ("1A2B3", 0x1a2b3),
            ("0x10", 16),
            ("000000000000000000000000000000000000000A", 10),
            ("7FFFFFFF", 0x7fff_ffff),
        ] {
            let read = read(text.as_bytes()).map(|serial| serial.to_u64());
            assert_eq!(read, Ok(Some(next)), "{text:?}");
        }
        let random = read(b"4A3B0000000000000000000000000001").unwrap();
        assert_eq!(random.to_u64(), None);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "", "\n", "0", "0000", "12 34", "next", "-1", "0x", "\u{661}",
        ] {
            assert!(read(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(read(b"\xff").is_err());
        assert!(read("F".repeat(41).as_bytes()).is_err());
    }

    #[test]
    fn at_least_four_digits_are_written() {
        for (next, text) in [(1, "0001"), (26, "001A"), (0x1a2b3, "1A2B3")] {
            assert_eq!(written(next), text);
        }
    }
}
