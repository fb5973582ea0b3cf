//! The address of a decider elsewhere (RFC 3986, as far as one is accepted).

/// Why a text is no address of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AddressFault {
    #[error("a webhook's url begins with https://: what it decides must not be forged on the way")]
    NotHttps,
    #[error("the url has a character that must be percent-encoded")]
    Character,
    #[error("the url names no host")]
    Host,
    #[error("the url's port is no number between 1 and 65535")]
    Port,
    #[error(
        "the url has a user name or password in it: use secretFile or clientCertFile and clientKeyFile"
    )]
    UserInfo,
    #[error("the url has a fragment (#), which is never sent: remove it")]
    Fragment,
    #[error(
        "the url has a query (?): explanations and the audit log show addresses, so a secret has no place there; use secretFile"
    )]
    Query,
}

/// Whether a webhook may be there.
pub(super) fn check(url: &str) -> Result<(), AddressFault> {
    let rest = match url.split_at_checked(SCHEME.len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(SCHEME) => rest,
        Some(_) | None => return Err(AddressFault::NotHttps),
    };
    if rest.contains('#') {
        return Err(AddressFault::Fragment);
    }
    if rest.contains('?') {
        return Err(AddressFault::Query);
    }
    if !rest.bytes().all(|b| b.is_ascii_graphic())
        || rest.contains(['"', '<', '>', '\\', '^', '`', '{', '|', '}'])
    {
        return Err(AddressFault::Character);
    }
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return Err(AddressFault::UserInfo);
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (address, after) = bracketed.split_once(']').ok_or(AddressFault::Host)?;
            let address: Result<std::net::Ipv6Addr, _> = address.parse();
            address.map_err(|_| AddressFault::Host)?;
            let port = match after {
                "" => None,
                after => Some(after.strip_prefix(':').ok_or(AddressFault::Host)?),
            };
            ("[]", port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'[' | b']');
    if host.is_empty() || !host.bytes().all(legal) {
        return Err(AddressFault::Host);
    }
    match port.map(str::parse::<u16>) {
        None | Some(Ok(1..)) => Ok(()),
        Some(Ok(0) | Err(_)) => Err(AddressFault::Port),
    }
}

const SCHEME: &str = "https://";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_https_addresses_are_taken() {
        for (url, expected) in [
            ("https://cmdb.example.com/validate", Ok(())),
            ("https://cmdb.example.com:8443/a/c%20d", Ok(())),
            ("https://cmdb.example.com/a?key=c", Err(AddressFault::Query)),
            ("HTTPS://192.0.2.1", Ok(())),
            ("https://[2001:db8::1]:8443/", Ok(())),
            ("http://cmdb.example.com/", Err(AddressFault::NotHttps)),
            ("cmdb.example.com", Err(AddressFault::NotHttps)),
            ("", Err(AddressFault::NotHttps)),
            ("https://", Err(AddressFault::Host)),
            ("https:///path", Err(AddressFault::Host)),
            ("https://:443/", Err(AddressFault::Host)),
            ("https://[nonsense]/", Err(AddressFault::Host)),
            ("https://[::1/", Err(AddressFault::Host)),
            ("https://a:0/", Err(AddressFault::Port)),
            ("https://a:x/", Err(AddressFault::Port)),
            ("https://a:70000/", Err(AddressFault::Port)),
            ("https://me:secret@a/", Err(AddressFault::UserInfo)),
            ("https://a/#part", Err(AddressFault::Fragment)),
            ("https://a/b c", Err(AddressFault::Character)),
            ("https://a/\r\nX: y", Err(AddressFault::Character)),
            ("https://ä.example/", Err(AddressFault::Character)),
        ] {
            assert_eq!(check(url), expected, "{url:?}");
        }
    }
}
