//! Who may call what: the rules that Puppet Server ships, as a table, with roles in place of its administrators.
//!
//! A request that no rule admits is refused, whoever sends it; HEAD is in no rule. Three rows differ from the reference:
//! requests are shown only to administrators and to their own name, because their attributes may hold secrets, whoever
//! signs may delete one, and everybody may have the full revocation list.

use http::Method;

use super::caller::Caller;
use crate::access::{Access, Names, Needed, Needs};

/// Lets the caller use the method on the path (in normal form), or says which role was missing, if one would help.
pub(super) fn admit(
    method: &Method,
    path: &str,
    caller: &Caller,
    access: &Access,
) -> Result<(), Option<Needed>> {
    let covers = |rule: &&Rule| rule.methods.contains(method) && rule.path.covers(path);
    let mut needed = None;
    for rule in RULES.iter().filter(covers) {
        match rule.who {
            // Of several rules about roles the first one counts: it says most about the path.
            Who::Holds(_) if needed.is_some() => {}
            Who::Holds(needs) => match caller.grant(access).demand(needs, last_segment(path)) {
                Ok(()) => return Ok(()),
                Err(missing) => needed = Some(missing),
            },
            Who::Anyone => return Ok(()),
            Who::Certified if caller.certname().is_some() => return Ok(()),
            Who::Named
                if caller
                    .certname()
                    .is_some_and(|name| last_segment(path) == Some(name)) =>
            {
                return Ok(());
            }
            Who::Certified | Who::Named => {}
        }
    }
    Err(needed)
}

/// The calls that somebody may make, by method and beginning of their path, and what they need if it is a role.
pub fn calls() -> Vec<(Method, &'static str, Option<Needs>)> {
    let calls = RULES.iter().flat_map(|rule| {
        let (Pattern::Prefix(path) | Pattern::Exactly(path)) = rule.path;
        let needs = match rule.who {
            Who::Holds(needs) => Some(needs),
            Who::Anyone | Who::Certified | Who::Named => None,
        };
        let methods = rule.methods.iter();
        methods.map(move |method| (method.clone(), path, needs))
    });
    calls.collect()
}

fn last_segment(path: &str) -> Option<&str> {
    path.rsplit('/').next()
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
    /// Who has the role.
    Holds(Needs),
}

const fn rule(path: Pattern, methods: &'static [Method], who: Who) -> Rule {
    Rule { path, methods, who }
}

static RULES: [Rule; 18] = [
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
        Pattern::Exactly("/puppet-ca/v1/certificate_revocation_list/full"),
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
        &[Method::GET],
        // Attributes of requests may hold secrets.
        Who::Holds(Needs::Admin),
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/certificate_request"),
        &[Method::DELETE],
        Who::Holds(Needs::Sign(Names::InPath)),
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
        &[Method::GET],
        Who::Holds(Needs::Read),
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/certificate_status"),
        &[Method::PUT, Method::DELETE],
        Who::Holds(Needs::Sign(Names::InPath)),
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/certificate_statuses"),
        &[Method::GET],
        Who::Holds(Needs::Read),
    ),
    rule(
        Pattern::Exactly("/puppet-ca/v1/certificate_revocation_list"),
        &[Method::PUT],
        Who::Holds(Needs::Admin),
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/clean"),
        &[Method::PUT],
        Who::Holds(Needs::Sign(Names::Within)),
    ),
    // Before the rule for `sign`, which covers its path too.
    rule(
        Pattern::Prefix("/puppet-ca/v1/sign/all"),
        &[Method::POST],
        Who::Holds(Needs::Sign(Names::All)),
    ),
    rule(
        Pattern::Prefix("/puppet-ca/v1/sign"),
        &[Method::POST],
        Who::Holds(Needs::Sign(Names::Within)),
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

    fn callers() -> [Caller; 4] {
        [
            Caller::Nobody,
            Caller::Refused,
            Caller::Agent {
                certname: "web01".to_owned(),
            },
            Caller::Administrator {
                certname: "countersign-admin".to_owned(),
            },
        ]
    }

    /// One letter per caller: nobody, refused, agent, administrator.
    fn row(method: &Method, path: &str) -> String {
        callers()
            .iter()
            .map(|c| match admit(method, path, c, &Access::default()) {
                Ok(()) => 'y',
                Err(_) => '.',
            })
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
                "/puppet-ca/v1/certificate_revocation_list/full",
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
