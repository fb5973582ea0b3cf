//! What a profile says about itself: the points that every signer is asked to document. Written from the same data
//! that requests are examined by, so that the two cannot differ.

use std::fmt::Display;

use countersign_policy::Span;

use super::{
    AltNameRule, AuthorityKeyId, Authorization, ExtensionRule, NameBounds, OrganizationRule,
    OtherExtensions, OtherNames, Profile, SubjectRule, UsageRule,
};

/// One point, as sentences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// What it is about.
    pub title: &'static str,
    /// What there is to say.
    pub sentences: Vec<String>,
}

impl Profile {
    /// Permitted subjects, alternative names, extensions, usages, expiry and the CA bit, in this order.
    pub fn statement(&self) -> Vec<Point> {
        let point = |title, sentences| Point { title, sentences };
        vec![
            point("Permitted subjects", self.subject_sentences()),
            point("Alternative names", self.name_sentences()),
            point("Other extensions", self.extension_sentences()),
            point("Permitted usages", self.usage_sentences()),
            point("Expiry", self.lifetime_sentences()),
            point("CA bit", ca_sentences(&self.extensions)),
        ]
    }

    fn subject_sentences(&self) -> Vec<String> {
        if self.subject == SubjectRule::KeyAsCommonName {
            return vec![
                "The common name is the name under which the request arrived. The rest of the request's subject is dropped.".to_owned(),
            ];
        }
        let common_name = match self.subjects.common_names.as_slice() {
            [] => "Common name: any, also none; of several the last counts.".to_owned(),
            patterns => format!(
                "Common name: must match {}; of several the last counts.",
                one_of(patterns)
            ),
        };
        let organizations = match &self.subjects.organizations {
            OrganizationRule::Any => "Organizations: any, also none.".to_owned(),
            OrganizationRule::Exactly(exactly) => {
                format!("Organizations: exactly {}.", codes(exactly))
            }
            OrganizationRule::Among {
                permitted,
                required,
            } => {
                let permitted = match permitted.as_slice() {
                    [] => "any".to_owned(),
                    patterns => format!("each must match {}", one_of(patterns)),
                };
                let required = match required.as_slice() {
                    [] => String::new(),
                    all => format!("; there must be {}", codes(all)),
                };
                format!("Organizations: {permitted}{required}.")
            }
        };
        let mut sentences = vec![common_name, organizations];
        if !self.refused_organizations.is_empty() {
            let refused = codes(self.refused_organizations);
            sentences.push(format!("Never the organization {refused}."));
        }
        sentences.push(
            "The subject is built anew from C, ST, L, street, postalCode, O, OU, CN and serialNumber, in this order, values of one kind in \
             one set; other attributes are dropped. A request without any name is not signed."
                .to_owned(),
        );
        sentences
    }

    fn name_sentences(&self) -> Vec<String> {
        let kinds = match self.alt_names {
            AltNameRule::OwnName { others } => {
                return vec![
                    "The name under which the request arrived is always there, as a DNS name."
                        .to_owned(),
                    match others {
                        OtherNames::Refused => {
                            "A request with any other is not signed.".to_owned()
                        }
                        OtherNames::DnsAndIp => {
                            "Other DNS names (no wildcards) and IP addresses are copied; a request with other kinds is not signed.".to_owned()
                        }
                    },
                ];
            }
            AltNameRule::Kinds(kinds) => kinds,
        };
        let NameBounds {
            required,
            dns,
            ip,
            email,
            uri,
        } = &self.names;
        let mut sentences = vec![
            kind_sentence("DNS names", kinds.dns, &shown(dns)),
            kind_sentence("Mail addresses", kinds.email, &shown(email)),
            kind_sentence("IP addresses", kinds.ip, &shown(ip)),
            kind_sentence("URIs", kinds.uri, &shown(uri)),
        ];
        if !dns.is_empty() {
            sentences.push("No wildcard is permitted as a DNS name.".to_owned());
        }
        if !required.words().is_empty() {
            sentences.push(format!("There must be one of kind {required}."));
        }
        sentences.push("Other kinds are dropped.".to_owned());
        sentences
    }

    fn extension_sentences(&self) -> Vec<String> {
        let asked = match &self.extensions {
            ExtensionRule::Arcs { arcs, authorization } => {
                let (name, (_, never)) = (arcs.name, arcs.never);
                let rights = match authorization {
                    Authorization::Refused => "a request with those of its authorization arc is not signed".to_owned(),
                    Authorization::Copied => format!("those of its authorization arc too, but for `{never}`"),
                };
                format!("Requested extensions of {name} are copied; {rights}. A request with any other is not signed.")
            }
            ExtensionRule::Dropped => {
                "Every other requested extension is dropped, key usages included: these come from the object's `usages`.".to_owned()
            }
            ExtensionRule::Copied { oids, others } => {
                let copied = match oids.as_slice() {
                    [] => "None is copied".to_owned(),
                    oids => format!("Copied as requested: {}", codes(oids)),
                };
                let others = match others {
                    OtherExtensions::Dropped => "others are dropped",
                    OtherExtensions::Refused => {
                        "those that the signer writes by itself (arc `2.5.29`) are dropped, and a request with any other is not signed"
                    }
                };
                format!("{copied}; {others}.")
            }
        };
        let key_id = match self.authority_key_id {
            AuthorityKeyId::Always => "authorityKeyIdentifier",
            AuthorityKeyId::FromIssuer => {
                "authorityKeyIdentifier (if the CA has a subjectKeyIdentifier)"
            }
        };
        let purpose = match self.usages {
            UsageRule::ServerAndClient => "extKeyUsage (critical)",
            UsageRule::Asked { .. } => "extKeyUsage",
        };
        let copies = self.extensions != ExtensionRule::Dropped;
        let written = [
            Some("keyUsage (critical)"),
            Some(purpose),
            Some("basicConstraints (critical)"),
            Some(key_id),
            self.subject_key_id.then_some("subjectKeyIdentifier"),
            Some("subjectAltName"),
            self.comment.and(Some("nsComment")),
            copies.then_some("those that are copied"),
        ];
        let written: Vec<&str> = written.into_iter().flatten().collect();
        let written = written.join(", ");
        vec![
            asked,
            format!(
                "The certificate has, as far as there is something to say, in this order: {written}."
            ),
        ]
    }

    fn usage_sentences(&self) -> Vec<String> {
        let UsageRule::Asked {
            required,
            permitted,
        } = &self.usages
        else {
            return vec!["TLS server and TLS client, whatever the request says.".to_owned()];
        };
        let names = |usages: &[super::Usage]| {
            let names: Vec<&str> = usages.iter().map(|usage| usage.name()).collect();
            codes(&names)
        };
        let all = super::Usage::names().count();
        let mut sentences = vec![match permitted.len() {
            0 => "None.".to_owned(),
            n if n == all => "Every usage that the API knows.".to_owned(),
            _ => format!(
                "{}. A request with any other is not signed.",
                names(permitted)
            ),
        }];
        if !required.is_empty() {
            sentences.push(format!("There must be {}.", names(required)));
        }
        sentences
    }

    fn lifetime_sentences(&self) -> Vec<String> {
        let life = self.lifetime;
        let span = Span::seconds;
        let longest = match life.maximum {
            u64::MAX => "There is no longest life but that of the CA.".to_owned(),
            maximum => format!(
                "A request may ask for less or more (`expirationSeconds`): less than {} is taken for {}, more than {} for that. It never fails for what it asks.",
                span(life.minimum),
                span(life.minimum),
                span(maximum)
            ),
        };
        let backdate = match life.backdate_included_from {
            None => format!("It begins {} before it is signed.", span(life.backdate)),
            Some(from) => format!(
                "It begins {} before it is signed; below {} that comes on top of the life, from there on it is part of it.",
                span(life.backdate),
                span(from)
            ),
        };
        vec![
            format!("{}, if the request does not say.", span(life.default)),
            longest,
            backdate,
            "No certificate outlives its CA: its end is that of the CA if that is sooner. Once the CA has ended, nothing is signed.".to_owned(),
        ]
    }
}

fn ca_sentences(extensions: &ExtensionRule) -> Vec<String> {
    let asked = match extensions {
        ExtensionRule::Dropped
        | ExtensionRule::Copied {
            others: OtherExtensions::Dropped,
            ..
        } => "A request for one is signed as one for a leaf.",
        ExtensionRule::Arcs { .. } | ExtensionRule::Copied { .. } => {
            "A request for one is not signed."
        }
    };
    vec![format!("Never: no CA certificates are signed. {asked}")]
}

fn kind_sentence(kind: &str, is_permitted: bool, patterns: &[String]) -> String {
    match (is_permitted, patterns) {
        (false, _) => format!("{kind}: a request with one is not signed."),
        (true, []) => format!("{kind}: copied."),
        (true, patterns) => format!("{kind}: copied; each must match {}.", one_of(patterns)),
    }
}

fn shown<T: Display>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

fn codes<T: Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("`{item}`")).collect();
    items.join(", ")
}

fn one_of<T: Display>(items: &[T]) -> String {
    match items {
        [only] => format!("`{only}`"),
        many => format!("one of {}", codes(many)),
    }
}
