//! Serial numbers of certificates.

use std::fmt;

/// A positive integer of at most 20 octets (RFC 5280 4.1.2.2).
///
/// Shown in upper-case hexadecimal, which is how operators, inventories and other tools quote serials.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Serial {
    /// Right-aligned, big-endian, zero-filled: derived equality is equality of numbers.
    octets: [u8; MAX_OCTETS],
}

impl Serial {
    /// The number of a big-endian magnitude; leading zeros are ignored.
    ///
    /// # Errors
    /// If the number is zero or longer than 20 octets.
    pub fn from_be_bytes(bytes: &[u8]) -> Result<Self, SerialFault> {
        let leading = bytes.iter().take_while(|b| **b == 0).count();
        let minimal = bytes.get(leading..).unwrap_or_default();
        if minimal.is_empty() {
            return Err(SerialFault::Zero);
        }
        let padding = MAX_OCTETS
            .checked_sub(minimal.len())
            .ok_or(SerialFault::TooLong)?;
        let mut octets = [0; MAX_OCTETS];
        for (to, from) in octets.iter_mut().skip(padding).zip(minimal) {
            *to = *from;
        }
        Ok(Serial { octets })
    }

    /// A serial with 126 bits taken from the caller's random bytes.
    ///
    /// The top two bits are fixed to `01`: the number is positive, never zero, and always 16 octets long, so all random
    /// serials have the same width in listings. RFC 5280 asks for unpredictability, the CA/Browser baseline for 64 bits.
    #[must_use]
    pub fn random_from(bytes: [u8; 16]) -> Serial {
        let mut octets = [0; MAX_OCTETS];
        for (to, from) in octets
            .iter_mut()
            .skip(MAX_OCTETS.saturating_sub(16))
            .zip(bytes)
        {
            *to = from;
        }
        if let Some(top) = octets.get_mut(MAX_OCTETS.saturating_sub(16)) {
            *top = (*top & 0x3f) | 0x40;
        }
        Serial { octets }
    }

    /// Reads hexadecimal of either case, with or without a `0x` prefix.
    ///
    /// # Errors
    /// If the text is not hexadecimal, or the number is zero or longer than 20 octets.
    pub fn parse_hex(text: &str) -> Result<Self, SerialFault> {
        let digits = text
            .strip_prefix("0x")
            .or_else(|| text.strip_prefix("0X"))
            .unwrap_or(text);
        if digits.is_empty() || digits.len() > MAX_HEX_DIGITS {
            return Err(SerialFault::NotHexadecimal);
        }
        let mut nibbles = Vec::with_capacity(digits.len().saturating_add(1));
        if digits.len() % 2 == 1 {
            nibbles.push(0);
        }
        for digit in digits.chars() {
            let value = digit.to_digit(16).ok_or(SerialFault::NotHexadecimal)?;
            nibbles.push(u8::try_from(value).map_err(|_| SerialFault::NotHexadecimal)?);
        }
        let bytes: Vec<u8> = nibbles
            .chunks_exact(2)
            .map(|pair| pair.iter().fold(0_u8, |acc, n| (acc << 4) | n))
            .collect();
        Self::from_be_bytes(&bytes)
    }

    /// The shortest big-endian magnitude.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let leading = self.octets.iter().take_while(|b| **b == 0).count();
        self.octets.get(leading..).unwrap_or_default()
    }

    /// Upper-case hexadecimal in whole octets, at least two digits, no prefix.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.as_bytes().iter().map(|b| format!("{b:02X}")).collect()
    }

    /// The decimal number, which is how Puppet's status objects write serials.
    #[must_use]
    pub fn to_decimal(&self) -> String {
        // Ours have 16 octets, of which a number is made at once.
        if let [0, 0, 0, 0, low @ ..] = self.octets {
            return u128::from_be_bytes(low).to_string();
        }
        let mut digits = vec![0_u8];
        for byte in self.as_bytes() {
            let mut carry = u32::from(*byte);
            for digit in &mut digits {
                let value = u32::from(*digit).saturating_mul(256).saturating_add(carry);
                *digit = u8::try_from(value % 10).unwrap_or_default();
                carry = value / 10;
            }
            while carry > 0 {
                digits.push(u8::try_from(carry % 10).unwrap_or_default());
                carry /= 10;
            }
        }
        digits
            .iter()
            .rev()
            .map(|d| char::from(b'0'.saturating_add(*d)))
            .collect()
    }

    /// The number, if it fits; sequential serials do.
    #[must_use]
    pub fn to_u64(&self) -> Option<u64> {
        let bytes = self.as_bytes();
        if bytes.len() > 8 {
            return None;
        }
        Some(bytes.iter().fold(0, |acc, b| (acc << 8) | u64::from(*b)))
    }
}

impl PartialOrd for Serial {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Serial {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.octets.cmp(&other.octets)
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Serial({self})")
    }
}

impl TryFrom<u64> for Serial {
    type Error = SerialFault;

    fn try_from(number: u64) -> Result<Self, SerialFault> {
        Self::from_be_bytes(&number.to_be_bytes())
    }
}

/// Why a number is no serial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SerialFault {
    /// RFC 5280 demands a positive number.
    #[error("serial is zero")]
    Zero,
    /// More than 20 octets.
    #[error("serial is longer than 20 octets")]
    TooLong,
    /// Empty, too long, or with a character that is no hexadecimal digit.
    #[error("serial is not a hexadecimal number")]
    NotHexadecimal,
}

const MAX_OCTETS: usize = 20; // RFC 5280 4.1.2.2
const MAX_HEX_DIGITS: usize = 64; // more than 20 octets with any plausible zero padding

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("1", "01", "1")]
    #[case("0x002A", "2A", "42")]
    #[case("ff", "FF", "255")]
    #[case("100", "0100", "256")]
    #[case(
        "7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
        "7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
        "170141183460469231731687303715884105727"
    )]
    fn reads_and_shows(#[case] text: &str, #[case] hex: &str, #[case] decimal: &str) {
        let serial = Serial::parse_hex(text).unwrap();
        assert_eq!(serial.to_hex(), hex);
        assert_eq!(serial.to_string(), hex);
        assert_eq!(serial.to_decimal(), decimal);
    }

    #[rstest]
    #[case("", SerialFault::NotHexadecimal)]
    #[case("0x", SerialFault::NotHexadecimal)]
    #[case("12G4", SerialFault::NotHexadecimal)]
    #[case("-1", SerialFault::NotHexadecimal)]
    #[case("0000", SerialFault::Zero)]
    #[case("010000000000000000000000000000000000000000", SerialFault::TooLong)]
    fn refuses(#[case] text: &str, #[case] fault: SerialFault) {
        assert_eq!(Serial::parse_hex(text), Err(fault));
    }

    proptest! {
        #[test]
        fn random_serials_are_positive_and_equally_long(bytes: [u8; 16]) {
            let serial = Serial::random_from(bytes);
            prop_assert_eq!(serial.as_bytes().len(), 16);
            prop_assert!(serial.as_bytes()[0] < 0x80);
            prop_assert_eq!(Serial::parse_hex(&serial.to_hex()), Ok(serial));
        }

        #[test]
        fn order_and_decimal_agree_with_numbers(a in 1_u64.., b in 1_u64..) {
            let (sa, sb) = (Serial::try_from(a).unwrap(), Serial::try_from(b).unwrap());
            prop_assert_eq!(sa.cmp(&sb), a.cmp(&b));
            prop_assert_eq!(sa.to_decimal(), a.to_string());
            prop_assert_eq!(sa.to_u64(), Some(a));
        }
    }
}
