//! The PROXY protocol, version 2: how a load balancer that passes TLS through tells whose connection it is.
//!
//! Only connections from [`TrustedProxies`] are read for a header, and those must begin with one. The parser is pure and
//! says how many bytes it still needs, so that nothing behind the header is read: TLS follows at once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use countersign_policy::Network;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The load balancers whose word for a client's address is taken. Cheap to clone; clones change together.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Arc<ArcSwap<Vec<Network>>>);

impl TrustedProxies {
    /// Those in these networks.
    pub fn new(networks: &[Network]) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(networks.to_vec())))
    }

    /// Trusts others from now on. Connections that are open stay open.
    pub fn set(&self, networks: &[Network]) {
        self.0.store(Arc::new(networks.to_vec()));
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let networks = self.0.load();
        networks.iter().any(|network| network.contains(address))
    }
}

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// The proxy's own, to see whether we are there (`LOCAL`).
    Own,
    /// That of a client at this address.
    Client(SocketAddr),
}

/// Why a connection of a trusted proxy is closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeaderFault {
    /// For example TLS, from a balancer that is not configured to send one.
    #[error("it does not begin with a PROXY protocol header of version 2")]
    Missing,
    #[error("its PROXY protocol header is of version 1: configure the proxy to send version 2")]
    Text,
    #[error("its PROXY protocol header has the unknown version and command {0:#04x}")]
    Command(u8),
    #[error("its PROXY protocol header is not about TCP over IPv4 or IPv6 but about {0:#04x}")]
    Family(u8),
    #[error("its PROXY protocol header is {0} bytes long, too short for its addresses")]
    Short(usize),
    #[error("its PROXY protocol header is {0} bytes long, more than {MAX_HEADER}")]
    Long(usize),
    /// What a health check without TLS and PROXY protocol does, too.
    #[error("it ended before its PROXY protocol header was complete")]
    Ended {
        /// Whether anything of it had come.
        begun: bool,
    },
    #[error("its PROXY protocol header did not come in time")]
    Late,
    #[error("others have come since, and its PROXY protocol header has not")]
    Crowded,
    #[error("its PROXY protocol header cannot be read")]
    Broken(#[source] std::io::Error),
}

/// Reads a header and nothing behind it.
pub(crate) async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Header, HeaderFault> {
    let mut seen = Vec::with_capacity(TYPICAL_HEADER);
    loop {
        let whole = match parse(&seen)? {
            Parsed::Whole(header) => return Ok(header),
            Parsed::Needs(whole) => whole,
        };
        let missing = whole.saturating_sub(seen.len());
        let mut rest = (&mut *stream).take(u64::try_from(missing).unwrap_or(0));
        let read = rest.read_buf(&mut seen).await;
        if read.map_err(HeaderFault::Broken)? == 0 {
            let begun = !seen.is_empty();
            return Err(HeaderFault::Ended { begun });
        }
    }
}

/// How far a header has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parsed {
    /// It takes so many bytes, at least.
    Needs(usize),
    Whole(Header),
}

/// Parses what has come of a header: "The PROXY protocol", 2.2.
fn parse(seen: &[u8]) -> Result<Parsed, HeaderFault> {
    if !seen.iter().zip(SIGNATURE).all(|(one, other)| one == other) {
        let is_text = seen.iter().zip(TEXT).all(|(one, other)| one == other);
        return Err(match is_text {
            true => HeaderFault::Text,
            false => HeaderFault::Missing,
        });
    }
    let Some((prefix, rest)) = seen.split_first_chunk::<PREFIX>() else {
        return Ok(Parsed::Needs(PREFIX));
    };
    let [.., command, family, high, low] = *prefix;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let whole = PREFIX.saturating_add(length);
    if whole > MAX_HEADER {
        return Err(HeaderFault::Long(whole));
    }
    let is_own = match command {
        LOCAL => true,
        PROXY => false,
        other => return Err(HeaderFault::Command(other)),
    };
    let addresses = match family {
        // The receiver of LOCAL is to ignore the family with the rest.
        _ if is_own => 0,
        TCP_IPV4 => IPV4_ADDRESSES,
        TCP_IPV6 => IPV6_ADDRESSES,
        other => return Err(HeaderFault::Family(other)),
    };
    if length < addresses {
        return Err(HeaderFault::Short(whole));
    }
    if rest.len() < length {
        return Ok(Parsed::Needs(whole));
    }
    if is_own {
        return Ok(Parsed::Whole(Header::Own));
    }
    // Source and destination, then their ports; what follows (TLVs) is not looked at.
    let client = match family {
        TCP_IPV4 => rest.split_first_chunk::<4>().and_then(|(source, rest)| {
            let port = rest.get(4..)?.first_chunk()?;
            let address = Ipv4Addr::from(*source).into();
            Some(SocketAddr::new(address, u16::from_be_bytes(*port)))
        }),
        _ => rest.split_first_chunk::<16>().and_then(|(source, rest)| {
            let port = rest.get(16..)?.first_chunk()?;
            let address = Ipv6Addr::from(*source).into();
            Some(SocketAddr::new(address, u16::from_be_bytes(*port)))
        }),
    };
    let client = client.ok_or(HeaderFault::Short(whole))?;
    Ok(Parsed::Whole(Header::Client(client)))
}

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// How version 1 begins.
const TEXT: &[u8; 6] = b"PROXY ";
/// Signature, version and command, family and transport, length.
const PREFIX: usize = 16;
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
const TCP_IPV4: u8 = 0x11;
const TCP_IPV6: u8 = 0x21;
const IPV4_ADDRESSES: usize = 12;
const IPV6_ADDRESSES: usize = 36;
/// Bounds memory. With every TLV that HAProxy can add, names of hosts and certificates included, a header has some hundred
/// bytes.
const MAX_HEADER: usize = 4096;
/// IPv4 and IPv6 without TLVs.
const TYPICAL_HEADER: usize = PREFIX + IPV6_ADDRESSES;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    const V4: &[u8] = &[192, 0, 2, 7, 198, 51, 100, 1, 0x9c, 0x40, 0x1f, 0xcc];

    fn v6(source: &str) -> Vec<u8> {
        let source: Ipv6Addr = source.parse().unwrap();
        let destination: Ipv6Addr = "2001:db8::1".parse().unwrap();
        let ports = [0x9c, 0x40, 0x1f, 0xcc];
        [&source.octets()[..], &destination.octets(), &ports].concat()
    }

    /// A header with this length, whatever follows.
    fn with_length(command: u8, family: u8, length: u16, rest: &[u8]) -> Vec<u8> {
        let [high, low] = length.to_be_bytes();
        [&SIGNATURE[..], &[command, family, high, low], rest].concat()
    }

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        with_length(command, family, u16::try_from(rest.len()).unwrap(), rest)
    }

    fn told(fault: Result<Header, HeaderFault>) -> String {
        match fault {
            Ok(Header::Own) => "own".to_owned(),
            Ok(Header::Client(address)) => address.to_string(),
            Err(fault) => fault.to_string(),
        }
    }

    #[tokio::test]
    async fn headers_are_read_to_their_last_byte_and_not_further() {
        let tlvs = [&[0x03, 0, 4, 1, 2, 3, 4, 0xee, 0xff, 0xff][..], &[7; 300]].concat();
        let longest = vec![0; MAX_HEADER - PREFIX - V4.len()];
        for (bytes, expected) in [
            (header(PROXY, TCP_IPV4, V4), "192.0.2.7:40000"),
            (
                header(PROXY, TCP_IPV4, &[V4, &tlvs].concat()),
                "192.0.2.7:40000",
            ),
            (
                header(PROXY, TCP_IPV4, &[V4, &longest].concat()),
                "192.0.2.7:40000",
            ),
            (
                header(PROXY, TCP_IPV6, &v6("2001:db8::7")),
                "[2001:db8::7]:40000",
            ),
            (
                header(PROXY, TCP_IPV6, &v6("::ffff:192.0.2.7")),
                "[::ffff:192.0.2.7]:40000",
            ),
            // A proxy asks for itself: the rest does not count, whatever it is.
            (header(LOCAL, 0x00, &[]), "own"),
            (header(LOCAL, TCP_IPV4, V4), "own"),
            (header(LOCAL, 0xff, &tlvs), "own"),
        ] {
            let whole = [&bytes[..], b"\x16\x03\x01"].concat();
            let mut stream = &whole[..];
            assert_eq!(told(read(&mut stream).await), expected);
            assert_eq!(stream, b"\x16\x03\x01");
            // One byte after the other, too.
            let (mut ours, mut theirs) = duplex(1);
            let sent = whole.clone();
            let sender = tokio::spawn(async move { theirs.write_all(&sent).await });
            assert_eq!(told(read(&mut ours).await), expected);
            let mut rest = [0; 3];
            ours.read_exact(&mut rest).await.unwrap();
            assert_eq!(&rest, b"\x16\x03\x01");
            sender.await.unwrap().unwrap();
            // Cut anywhere.
            for cut in 0..bytes.len() {
                let mut stream = &bytes[..cut];
                let fault = read(&mut stream).await.unwrap_err();
                let begun = cut > 0;
                assert!(
                    matches!(fault, HeaderFault::Ended { begun: b } if b == begun),
                    "{cut}: {fault}"
                );
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_such_header_is_refused_as_soon_as_that_is_seen() {
        let missing = "it does not begin with a PROXY protocol header of version 2";
        let text =
            "its PROXY protocol header is of version 1: configure the proxy to send version 2";
        let family = |family: &str| {
            format!(
                "its PROXY protocol header is not about TCP over IPv4 or IPv6 but about {family}"
            )
        };
        let command = |command: &str| {
            format!("its PROXY protocol header has the unknown version and command {command}")
        };
        let mut last_byte_wrong = header(PROXY, TCP_IPV4, V4);
        last_byte_wrong[11] = b'\r';
        for (bytes, expected) in [
            // TLS, HTTP, SSH, zeros, and a signature that is none at its very end.
            (b"\x16".to_vec(), missing.to_owned()),
            (b"\x16\x03\x01\x02\x00\x01\x00".to_vec(), missing.to_owned()),
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), missing.to_owned()),
            (
                b"\r\n\r\nGET / HTTP/1.1\r\n\r\n".to_vec(),
                missing.to_owned(),
            ),
            (vec![0; 64], missing.to_owned()),
            (last_byte_wrong, missing.to_owned()),
            (
                b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 8140\r\n".to_vec(),
                text.to_owned(),
            ),
            (b"PROXY UNKNOWN\r\n".to_vec(), text.to_owned()),
            // Other versions and commands.
            (header(0x11, TCP_IPV4, V4), command("0x11")),
            (header(0x22, TCP_IPV4, V4), command("0x22")),
            (header(0x00, TCP_IPV4, V4), command("0x00")),
            // Unspecified, UDP, Unix sockets, unknown.
            (header(PROXY, 0x00, &[]), family("0x00")),
            (header(PROXY, 0x12, V4), family("0x12")),
            (header(PROXY, 0x22, &v6("2001:db8::7")), family("0x22")),
            (header(PROXY, 0x31, &[0; 216]), family("0x31")),
            (header(PROXY, 0x32, &[0; 216]), family("0x32")),
            (header(PROXY, 0x41, &[0; 216]), family("0x41")),
            (header(PROXY, 0x10, V4), family("0x10")),
            // Addresses that do not fit in, and an IPv4 block that says IPv6.
            (
                header(PROXY, TCP_IPV4, &V4[..11]),
                "its PROXY protocol header is 27 bytes long, too short for its addresses"
                    .to_owned(),
            ),
            (
                header(PROXY, TCP_IPV6, V4),
                "its PROXY protocol header is 28 bytes long, too short for its addresses"
                    .to_owned(),
            ),
            (
                header(PROXY, TCP_IPV4, &[]),
                "its PROXY protocol header is 16 bytes long, too short for its addresses"
                    .to_owned(),
            ),
            // Refused by its length alone.
            (
                with_length(PROXY, TCP_IPV4, 4081, &[]),
                "its PROXY protocol header is 4097 bytes long, more than 4096".to_owned(),
            ),
            (
                with_length(LOCAL, 0x00, u16::MAX, &[]),
                "its PROXY protocol header is 65551 bytes long, more than 4096".to_owned(),
            ),
        ] {
            // Behind it nothing comes and nothing ends.
            let (mut ours, mut theirs) = duplex(1024);
            theirs.write_all(&bytes).await.unwrap();
            assert_eq!(told(read(&mut ours).await), expected, "{bytes:?}");
        }
    }

    /// Whatever comes, in whatever mixture of the above.
    #[tokio::test]
    async fn no_bytes_make_it_fail_otherwise_or_read_too_much() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        for _ in 0..20_000 {
            let [a, b, c, d, e, ..] = random();
            let command = [LOCAL, PROXY, a][usize::from(a % 3)];
            let family = [TCP_IPV4, TCP_IPV6, b][usize::from(b % 3)];
            let rest: Vec<u8> = (0..c % 64).map(|_| random()[0]).collect();
            let mut bytes = with_length(command, family, u16::from_be_bytes([e & 0x10, d]), &rest);
            if a & 0x40 != 0 {
                let at = usize::from(c) % bytes.len();
                bytes[at] ^= 1 << (d % 8);
            }
            let mut stream = &bytes[..];
            let read = read(&mut stream).await;
            let taken = bytes.len() - stream.len();
            let length = bytes.get(14..16).map_or(0, |length| {
                usize::from(u16::from_be_bytes([length[0], length[1]]))
            });
            match read {
                Ok(_) => assert_eq!(taken, PREFIX + length),
                Err(_) => assert!(taken <= (PREFIX + length).min(MAX_HEADER)),
            }
        }
    }

    #[test]
    fn proxies_are_trusted_by_their_networks() {
        let networks = |texts: &[&str]| -> Vec<Network> {
            let parsed = texts.iter().map(|text| Network::parse(text));
            parsed.map(Option::unwrap).collect()
        };
        let proxies = TrustedProxies::new(&networks(&["192.0.2.0/24", "2001:db8::5"]));
        let contains = |text: &str| proxies.contains(text.parse().unwrap());
        for (address, expected) in [
            ("192.0.2.9", true),
            ("::ffff:192.0.2.9", true),
            ("192.0.3.9", false),
            ("2001:db8::5", true),
            ("2001:db8::6", false),
            ("127.0.0.1", false),
        ] {
            assert_eq!(contains(address), expected, "{address}");
        }
        proxies.clone().set(&networks(&["::ffff:10.0.0.0/104"]));
        assert!(contains("10.1.2.3") && !contains("192.0.2.9"));
        proxies.set(&[]);
        assert!(!contains("10.1.2.3"));
    }
}
