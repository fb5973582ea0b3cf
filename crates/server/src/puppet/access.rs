//! Who may call what: the rules that Puppet Server ships, as a table.
//!
//! A request that no rule admits is refused, whoever sends it; HEAD is in no rule. Two rows differ from the reference:
//! requests are shown only to administrators and to their own name, because their attributes may hold secrets, and an
//! administrator may delete one.

use http::Method;

use super::caller::Caller;

/// Whether the caller may use the method on the path (in normal form).
pub(super) fn admits(method: &Method, path: &str, caller: &Caller<'_>) -> bool {
    RULES.iter().any(|rule| {
        rule.methods.contains(method) && rule.path.covers(path) && rule.who.includes(caller, path)
    })
}

struct Rule {
    path: Pattern,
    methods: &'static [Method],
    who: Who,
}

enum Pattern {
    /// Everything that begins with the text.
    Prefix(&'static str),
    Exactly(&'static str),
}

impl Pattern {
    fn covers(&self, path: &str) -> bool {
        match self {
            Self::Prefix(prefix) => path.starts_with(prefix),
            Self::Exactly(text) => path == *text,
        }
    }
}

#[derive(Clone, Copy)]
enum Who {
    Anyone,
    /// Who holds a certificate of this issuer.
    Certified,
    /// Who holds the certificate of the name that ends the path.
    Named,
    Administrator,
}

impl Who {
    fn includes(self, caller: &Caller<'_>, path: &str) -> bool {
        match self {
            Self::Anyone => true,
            Self::Certified => caller.certname().is_some(),
            Self::Named => caller
                .certname()
                .is_some_and(|name| path.rsplit('/').next() == Some(name)),
            Self::Administrator => caller.is_administrator(),
        }
    }
}

const fn rule(path: Pattern, methods: &'static [Method], who: Who) -> Rule {
    Rule { path, methods, who }
}

static RULES: [Rule; 15] = [
    rule(
        Pattern::Prefix("/puppet-ca/v1/certificate/"),
        &[Method::GET],
        Who::Anyone,
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/certificate_revocation_list/ca"),
        &[Method::GET],
        Who::Anyone,
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/certificate_request"),
        &[Method::PUT],
        Who::Anyone,
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/certificate_request"),
        &[Method::GET, Method::DELETE],
        Who::Administrator,
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/certificate_request/"),
        &[Method::GET],
        Who::Named,
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/certificate_renewal"),
        &[Method::POST],
        Who::Certified,
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/expirations"),
        &[Method::GET],
        Who::Certified,
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/certificate_status"),
        &[Method::GET, Method::PUT, Method::DELETE],
        Who::Administrator,
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/certificate_statuses"),
        &[Method::GET],
        Who::Administrator,
    ),
    rule(
        Pattern::Exactly("/puppet-ca/v1/certificate_revocation_list"),
        &[Method::PUT],
        Who::Administrator,
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/clean"),
        &[Method::PUT],
        Who::Administrator,
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/sign"),
        &[Method::POST],
        Who::Administrator,
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/sign/all"),
        &[Method::POST],
        Who::Administrator,
    ),
    rule(
        Pattern::Prefix("/status/v1/services"),
        &[Method::GET],
        Who::Anyone,
    ),
    rule(
        Pattern::Prefix("/status/v1/simple"),
        &[Method::GET],
        Who::Anyone,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    const CALLERS: [Caller<'_>; 4] = [
        Caller::Nobody,
        Caller::Refused,
        Caller::Agent { certname: "web01" },
        Caller::Administrator {
            certname: "countersign-admin",
        },
    ];

    /// One letter per caller of [`CALLERS`]: nobody, refused, agent, administrator.
    fn row(method: &Method, path: &str) -> String {
        CALLERS
            .iter()
            .map(|c| if admits(method, path, c) { 'y' } else { '.' })
            .collect()
    }

    #[test]
    fn matrix_of_callers_methods_and_paths() {
        for (method, path, expected) in [
            (Method::GET, "/puppet-ca/v1/certificate/ca", "yyyy"),
            (Method::GET, "/puppet-ca/v1/certificate/web02", "yyyy"),
            (Method::PUT, "/puppet-ca/v1/certificate/web02", "...."),
            (Method::DELETE, "/puppet-ca/v1/certificate/web02", "...."),
            (
                Method::GET,
                "/puppet-ca/v1/certificate_revocation_list/ca",
                "yyyy",
            ),
            (
                Method::GET,
                "/puppet-ca/v1/certificate_revocation_list/x",
                "....",
            ),
            (
                Method::PUT,
                "/puppet-ca/v1/certificate_revocation_list",
                "...y",
            ),
            (
                Method::PUT,
                "/puppet-ca/v1/certificate_revocation_list/ca",
                "....",
            ),
            (
                Method::PUT,
                "/puppet-ca/v1/certificate_request/web01",
                "yyyy",
            ),
            (
                Method::GET,
                "/puppet-ca/v1/certificate_request/web01",
                "..yy",
            ),
            (
                Method::GET,
                "/puppet-ca/v1/certificate_request/web02",
                "...y",
            ),
            (
                Method::DELETE,
                "/puppet-ca/v1/certificate_request/web01",
                "...y",
            ),
            (
                Method::POST,
                "/puppet-ca/v1/certificate_request/web01",
                "....",
            ),
            (Method::POST, "/puppet-ca/v1/certificate_renewal", "..yy"),
            (Method::GET, "/puppet-ca/v1/expirations", "..yy"),
            (
                Method::GET,
                "/puppet-ca/v1/certificate_status/web01",
                "...y",
            ),
            (
                Method::PUT,
                "/puppet-ca/v1/certificate_status/web01",
                "...y",
            ),
            (
                Method::DELETE,
                "/puppet-ca/v1/certificate_status/web01",
                "...y",
            ),
            (
                Method::POST,
                "/puppet-ca/v1/certificate_status/web01",
                "....",
            ),
            (
                Method::PATCH,
                "/puppet-ca/v1/certificate_status/web01",
                "....",
            ),
            (
                Method::OPTIONS,
                "/puppet-ca/v1/certificate_status/web01",
                "....",
            ),
            (Method::GET, "/puppet-ca/v1/certificate_statuses/x", "...y"),
            (Method::PUT, "/puppet-ca/v1/certificate_statuses/x", "...y"),
            (Method::PUT, "/puppet-ca/v1/clean", "...y"),
            (Method::POST, "/puppet-ca/v1/sign", "...y"),
            (Method::POST, "/puppet-ca/v1/sign/all", "...y"),
            (Method::GET, "/status/v1/services", "yyyy"),
            (Method::GET, "/status/v1/simple/ca", "yyyy"),
            (Method::GET, "/puppet-ca/v1/nothing", "...."),
            (Method::GET, "/puppet/v3/catalog/web01", "...."),
            (Method::GET, "/", "...."),
        ] {
            assert_eq!(row(&method, path), expected, "{method} {path}");
            assert_eq!(row(&Method::HEAD, path), "....", "HEAD {path}");
        }
    }
}
