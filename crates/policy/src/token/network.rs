//! Networks that a token's request must come from.

use std::fmt;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Reads `192.0.2.0/24`, `2001:db8::/32` or a single address. IPv4 inside of IPv6 (RFC 4291 2.5.5.2) is read as the
    /// IPv4 network that it is.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = match prefix {
            Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().ok().filter(|prefix| *prefix <= longest)?
            }
            Some(_) => return None,
            None => longest,
        };
        let canonical = address.to_canonical();
        Some(match prefix.checked_sub(MAPPED_PREFIX) {
            Some(inner) if canonical.is_ipv4() && address.is_ipv6() => Self {
                address: canonical,
                prefix: inner,
            },
            Some(_) | None => Self { address, prefix },
        })
    }

    /// Whether an address is in it. An IPv4 address inside of IPv6 is that IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, true),
            IpAddr::V6(v6) => (u128::from(v6), false),
        };
        let (own, own_is_v4) = bits(self.address);
        let (other, other_is_v4) = bits(address.to_canonical());
        let mask = match self.prefix {
            0 => 0,
            prefix => u128::MAX << 128_u8.saturating_sub(prefix),
        };
        own_is_v4 == other_is_v4 && own & mask == other & mask
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is no network such as 192.0.2.0/24"))
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

/// How many bits stand before an IPv4 address inside of IPv6.
const MAPPED_PREFIX: u8 = 96;
