//! Paths: brought into one form before anything looks at them, then read as routes.
//!
//! Authorisation and routing see the same normal form, so no spelling of a path is judged as one thing and served as
//! another.

use std::borrow::Cow;

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    Certificate(&'a str),
    CertificateRequest(&'a str),
    CertificateStatus(&'a str),
    CertificateStatuses,
    CertificateStatusesWithoutSegment,
    CertificateRenewal,
    /// What agents are given.
    Crl,
    /// Everything that is revoked. Puppet Server has no such path.
    FullCrl,
    CrlUpdate,
    Clean,
    Expirations,
    Sign,
    SignAll,
    Services(Option<&'a str>),
    Simple(Option<&'a str>),
}

/// Why a path has no normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathFault {
    #[error("the path does not begin with a slash")]
    NotAbsolute,
    #[error("the path has a percent sign that is not followed by two hexadecimal digits")]
    Escape,
    #[error("the path is not UTF-8")]
    NotUtf8,
    #[error("the path has a segment of one or two dots")]
    DotSegment,
}

/// Percent-decodes once, drops path parameters, joins repeated slashes, refuses dot segments, and brings paths of Puppet
/// 3 into today's form.
pub(super) fn normalize(raw: &str) -> Result<Cow<'_, str>, PathFault> {
    if !raw.starts_with('/') {
        return Err(PathFault::NotAbsolute);
    }
    // Parameters are cut before decoding: an encoded semicolon is a character of the name, which no route admits.
    let raw = raw.split(';').next().unwrap_or_default();
    let decoded = if raw.contains('%') {
        Cow::Owned(String::from_utf8(percent_decode(raw)?).map_err(|_| PathFault::NotUtf8)?)
    } else {
        Cow::Borrowed(raw)
    };
    if decoded
        .split('/')
        .any(|segment| segment == "." || segment == "..")
    {
        return Err(PathFault::DotSegment);
    }
    if decoded.contains("//") {
        let mut joined = String::with_capacity(decoded.len());
        for c in decoded.chars() {
            if c != '/' || !joined.ends_with('/') {
                joined.push(c);
            }
        }
        return Ok(of_today(Cow::Owned(joined)));
    }
    Ok(of_today(decoded))
}

/// Agents of Puppet 3 name their environment where the prefix stands today: `/production/certificate/ca`.
fn of_today(path: Cow<'_, str>) -> Cow<'_, str> {
    let mut segments = path.splitn(4, '/').skip(1);
    let (environment, resource) = (segments.next(), segments.next());
    let is_environment = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    match (environment, resource, segments.next()) {
        (Some(environment), Some(resource), Some(name))
            if is_environment(environment) && RESOURCES_OF_PUPPET_3.contains(&resource) =>
        {
            Cow::Owned(format!("/puppet-ca/v1/{resource}/{name}"))
        }
        (_, _, _) => path,
    }
}

/// The route of a path in normal form.
pub(super) fn route(path: &str) -> Option<Route<'_>> {
    if let Some(rest) = path.strip_prefix("/status/v1/") {
        return status_route(rest);
    }
    let rest = path.strip_prefix("/puppet-ca/v1/")?;
    match rest.split_once('/') {
        Some(("certificate", name)) => is_name(name).then_some(Route::Certificate(name)),
        Some(("certificate_request", name)) => {
            is_name(name).then_some(Route::CertificateRequest(name))
        }
        Some(("certificate_status", name)) => {
            is_name(name).then_some(Route::CertificateStatus(name))
        }
        Some(("certificate_statuses", "")) => Some(Route::CertificateStatusesWithoutSegment),
        Some(("certificate_statuses", any)) => {
            (!any.contains('/')).then_some(Route::CertificateStatuses)
        }
        Some(("certificate_revocation_list", "full")) => Some(Route::FullCrl),
        Some(("certificate_revocation_list", any)) => is_name(any).then_some(Route::Crl),
        Some(("sign", "all")) => Some(Route::SignAll),
        None => match rest {
            "sign" => Some(Route::Sign),
            "clean" => Some(Route::Clean),
            "expirations" => Some(Route::Expirations),
            "certificate_renewal" => Some(Route::CertificateRenewal),
            "certificate_revocation_list" => Some(Route::CrlUpdate),
            _ => None,
        },
        Some(_) => None,
    }
}

fn status_route(rest: &str) -> Option<Route<'_>> {
    let (resource, service) = match rest.split_once('/') {
        Some((resource, service)) => (resource, Some(service)),
        None => (rest, None),
    };
    match resource {
        "services" => Some(Route::Services(service)),
        "simple" => Some(Route::Simple(service)),
        _ => None,
    }
}

/// Whether a segment can be a name at all. Which names may enrol is the business of [`super::Certname`].
fn is_name(segment: &str) -> bool {
    !segment.is_empty()
        && segment
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

fn percent_decode(raw: &str) -> Result<Vec<u8>, PathFault> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || {
            bytes
                .next()
                .and_then(|b| char::from(b).to_digit(16))
                .ok_or(PathFault::Escape)
        };
        let value = digit()? * 16 + digit()?;
        decoded.push(u8::try_from(value).map_err(|_| PathFault::Escape)?);
    }
    Ok(decoded)
}

const RESOURCES_OF_PUPPET_3: [&str; 5] = [
    "certificate",
    "certificate_request",
    "certificate_revocation_list",
    "certificate_status",
    "certificate_statuses",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_form() {
        for (raw, normal) in [
            (
                "/puppet-ca/v1/certificate/a",
                Ok("/puppet-ca/v1/certificate/a"),
            ),
            (
                "//puppet-ca///v1/certificate//a",
                Ok("/puppet-ca/v1/certificate/a"),
            ),
            ("/a%2Fb", Ok("/a/b")),
            (
                "/production/certificate/ca",
                Ok("/puppet-ca/v1/certificate/ca"),
            ),
            (
                "//test_1//certificate_request/a%2Fb",
                Ok("/puppet-ca/v1/certificate_request/a/b"),
            ),
            (
                "/production/certificate_statuses/x",
                Ok("/puppet-ca/v1/certificate_statuses/x"),
            ),
            ("/production/certificate", Ok("/production/certificate")),
            ("/production/clean/x", Ok("/production/clean/x")),
            (
                "/pro-duction/certificate/x",
                Ok("/pro-duction/certificate/x"),
            ),
            ("/puppet-ca/certificate/x", Ok("/puppet-ca/certificate/x")),
            ("/a%2f%2fb", Ok("/a/b")),
            ("/a%252Fb", Ok("/a%2Fb")),
            ("/a;jsessionid=1/b", Ok("/a")),
            ("/a%3Bb", Ok("/a;b")),
            ("/a/", Ok("/a/")),
            ("/%C3%A9", Ok("/é")),
            ("/a/./b", Err(PathFault::DotSegment)),
            ("/a/../b", Err(PathFault::DotSegment)),
            ("/a/%2e%2E/b", Err(PathFault::DotSegment)),
            ("/a/..%2Fb", Err(PathFault::DotSegment)),
            ("/a/..;x", Err(PathFault::DotSegment)),
            ("/a/...", Ok("/a/...")),
            ("/%ff", Err(PathFault::NotUtf8)),
            ("/%", Err(PathFault::Escape)),
            ("/%4", Err(PathFault::Escape)),
            ("/%4g", Err(PathFault::Escape)),
            ("/%+1", Err(PathFault::Escape)),
            ("*", Err(PathFault::NotAbsolute)),
            ("", Err(PathFault::NotAbsolute)),
        ] {
            assert_eq!(
                normalize(raw).as_deref(),
                normal.as_ref().map(|n| *n),
                "{raw}"
            );
        }
    }

    #[test]
    fn routes() {
        for (path, expected) in [
            (
                "/puppet-ca/v1/certificate/ca",
                Some(Route::Certificate("ca")),
            ),
            (
                "/puppet-ca/v1/certificate/Web01._-",
                Some(Route::Certificate("Web01._-")),
            ),
            ("/puppet-ca/v1/certificate/", None),
            ("/puppet-ca/v1/certificate", None),
            ("/puppet-ca/v1/certificate/a/b", None),
            ("/puppet-ca/v1/certificate/a b", None),
            ("/puppet-ca/v1/certificate/a\0", None),
            ("/puppet-ca/v1/certificate/é", None),
            ("/puppet-ca/v1/certificate/a%2Fb", None),
            ("/puppet-ca/v1/certificate/*", None),
            (
                "/puppet-ca/v1/certificate_request/a",
                Some(Route::CertificateRequest("a")),
            ),
            (
                "/puppet-ca/v1/certificate_status/a",
                Some(Route::CertificateStatus("a")),
            ),
            (
                "/puppet-ca/v1/certificate_statuses/any thing",
                Some(Route::CertificateStatuses),
            ),
            (
                "/puppet-ca/v1/certificate_statuses/",
                Some(Route::CertificateStatusesWithoutSegment),
            ),
            ("/puppet-ca/v1/certificate_statuses", None),
            ("/puppet-ca/v1/certificate_statuses/a/b", None),
            (
                "/puppet-ca/v1/certificate_revocation_list/ca",
                Some(Route::Crl),
            ),
            (
                "/puppet-ca/v1/certificate_revocation_list/full",
                Some(Route::FullCrl),
            ),
            ("/puppet-ca/v1/certificate_revocation_list/full/a", None),
            (
                "/puppet-ca/v1/certificate_revocation_list",
                Some(Route::CrlUpdate),
            ),
            ("/puppet-ca/v1/certificate_revocation_list/", None),
            ("/puppet-ca/v1/sign", Some(Route::Sign)),
            ("/puppet-ca/v1/sign/all", Some(Route::SignAll)),
            ("/puppet-ca/v1/sign/some", None),
            ("/puppet-ca/v1/clean", Some(Route::Clean)),
            ("/puppet-ca/v1/clean/a", None),
            ("/puppet-ca/v1/expirations", Some(Route::Expirations)),
            ("/puppet-ca/v1/expirations/", None),
            (
                "/puppet-ca/v1/certificate_renewal",
                Some(Route::CertificateRenewal),
            ),
            ("/puppet-ca/v1/certificate_renewal/a", None),
            ("/puppet-ca/v2/certificate/a", None),
            ("/status/v1/services", Some(Route::Services(None))),
            ("/status/v1/services/ca", Some(Route::Services(Some("ca")))),
            ("/status/v1/simple", Some(Route::Simple(None))),
            ("/status/v1/simple/ca", Some(Route::Simple(Some("ca")))),
            ("/status/v1/other", None),
            ("/", None),
        ] {
            assert_eq!(route(path), expected, "{path}");
        }
    }
}
