//! Grammars of names: generated names, signer names, path segments, label keys and values.

use crate::field::{FieldError, go_quote};

/// What is wrong with a signer name. The text is the one a real server shows as a field error's detail.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignerNameFault {
    /// No text at all.
    #[error("must not be empty")]
    Empty,
    /// Not exactly one slash.
    #[error("must be a fully qualified domain and path of the form 'example.com/signer-name'")]
    Form {
        /// The whole name.
        name: String,
    },
    /// The domain exceeds a DNS name's length.
    #[error("may not be more than {DOMAIN_MAX} bytes")]
    DomainTooLong,
    /// A part of the domain is not an RFC 1123 label.
    #[error("validating label {}: {rule}", go_quote(label))]
    DomainLabel {
        /// The whole domain.
        domain: String,
        /// Its first bad part.
        label: String,
        /// The broken rule.
        rule: String,
    },
    /// The domain has one part only.
    #[error("should be a domain with at least two segments separated by dots")]
    DomainTooShallow {
        /// The whole domain.
        domain: String,
    },
    /// A part of the path is not a lower-case RFC 1123 name.
    #[error("validating label {}: {rule}", go_quote(label))]
    PathLabel {
        /// The whole path.
        path: String,
        /// Its first bad part.
        label: String,
        /// The broken rule.
        rule: String,
    },
    /// The whole name exceeds its limit.
    #[error("may not be more than {SIGNER_NAME_MAX} bytes")]
    TooLong,
}

impl SignerNameFault {
    /// The fault as an error about `field`.
    #[must_use]
    pub fn at(&self, field: &str) -> FieldError {
        match self {
            Self::Empty => FieldError::required(field, ""),
            Self::DomainTooLong => FieldError::too_long(field, DOMAIN_MAX),
            Self::TooLong => FieldError::too_long(field, SIGNER_NAME_MAX),
            Self::Form { name } => FieldError::invalid(field, name.as_str(), self.to_string()),
            Self::DomainLabel { domain, .. } | Self::DomainTooShallow { domain } => {
                FieldError::invalid(field, domain.as_str(), self.to_string())
            }
            Self::PathLabel { path, .. } => {
                FieldError::invalid(field, path.as_str(), self.to_string())
            }
        }
    }
}

/// Checks a signer name (`domain/path`) and lists every broken rule; no fault means well formed.
#[must_use]
pub fn signer_name_faults(name: &str) -> Vec<SignerNameFault> {
    if name.is_empty() {
        return vec![SignerNameFault::Empty];
    }
    let (domain, path) = match name.split_once('/') {
        Some((domain, path)) if !path.contains('/') => (domain, path),
        _ => {
            return vec![SignerNameFault::Form {
                name: name.to_owned(),
            }];
        }
    };
    let mut faults = Vec::new();
    if domain.len() > DOMAIN_MAX {
        faults.push(SignerNameFault::DomainTooLong);
    }
    if let Some((label, rules)) = first_bad(domain, dns_label_faults) {
        faults.extend(rules.into_iter().map(|rule| SignerNameFault::DomainLabel {
            domain: domain.to_owned(),
            label: label.to_owned(),
            rule,
        }));
    }
    if !domain.contains('.') {
        faults.push(SignerNameFault::DomainTooShallow {
            domain: domain.to_owned(),
        });
    }
    if let Some((label, rules)) = first_bad(path, dns_subdomain_faults) {
        faults.extend(rules.into_iter().map(|rule| SignerNameFault::PathLabel {
            path: path.to_owned(),
            label: label.to_owned(),
            rule,
        }));
    }
    if name.len() > SIGNER_NAME_MAX {
        faults.push(SignerNameFault::TooLong);
    }
    faults
}

/// A name made of `base` and five characters that spell no words; `random` must be fresh for every attempt.
#[must_use]
pub fn generated(base: &str, random: [u8; 5]) -> String {
    let mut name = base
        .get(..base.floor_char_boundary(GENERATED_BASE_MAX))
        .unwrap_or(base)
        .to_owned();
    name.extend(
        random
            .iter()
            .filter_map(|byte| SUFFIX_ALPHABET.get(usize::from(*byte) % SUFFIX_ALPHABET.len()))
            .map(|c| char::from(*c)),
    );
    name
}

/// Why a name cannot be one segment of a URL path; the only rule for names of this resource.
pub(crate) fn path_segment_faults(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|c| name.contains(**c))
        .map(|c| format!("may not contain '{c}'"))
        .collect()
}

/// Why text is not an optional DNS prefix, a slash and a name: the rule of label and annotation keys and finalizers.
pub(crate) fn qualified_name_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            let rule = rule_text(
                QUALIFIED_RULE,
                QUALIFIED_FORM,
                &["MyName", "my.name", "123-abc"],
            );
            return vec![format!(
                "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults.extend(
                    dns_subdomain_faults(prefix)
                        .iter()
                        .map(|rule| format!("prefix part {rule}")),
                );
            }
            name
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        faults.push(format!("name part {}", too_many_bytes_text(LABEL_MAX)));
    }
    if !is_qualified_part(name) {
        let rule = rule_text(
            QUALIFIED_RULE,
            QUALIFIED_FORM,
            &["MyName", "my.name", "123-abc"],
        );
        faults.push(format!("name part {rule}"));
    }
    faults
}

/// Why text cannot be a label's value.
pub(crate) fn label_value_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > LABEL_MAX {
        faults.push(too_many_bytes_text(LABEL_MAX));
    }
    if !text.is_empty() && !is_qualified_part(text) {
        let form = format!("({QUALIFIED_FORM})?");
        faults.push(rule_text(
            LABEL_VALUE_RULE,
            &form,
            &["MyValue", "my_value", "12345"],
        ));
    }
    faults
}

pub(crate) fn dns_label_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > LABEL_MAX {
        faults.push(too_long_text(LABEL_MAX));
    }
    if !is_dns_label(text) {
        faults.push(rule_text(
            DNS_LABEL_RULE,
            DNS_LABEL_FORM,
            &["my-name", "123-abc"],
        ));
    }
    faults
}

pub(crate) fn dns_subdomain_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > DOMAIN_MAX {
        faults.push(too_long_text(DOMAIN_MAX));
    }
    if !text.split('.').all(is_dns_label) {
        let form = format!("{DNS_LABEL_FORM}(\\.{DNS_LABEL_FORM})*");
        faults.push(rule_text(DNS_SUBDOMAIN_RULE, &form, &["example.com"]));
    }
    faults
}

fn first_bad(text: &str, check: fn(&str) -> Vec<String>) -> Option<(&str, Vec<String>)> {
    text.split('.')
        .map(|part| (part, check(part)))
        .find(|(_, faults)| !faults.is_empty())
}

fn is_dns_label(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.chars().all(inside)
}

fn is_qualified_part(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    edge(text.chars().next()) && edge(text.chars().next_back()) && text.chars().all(inside)
}

fn too_long_text(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

/// API servers have this text for labels and the other one for names.
fn too_many_bytes_text(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

fn rule_text(rule: &str, form: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples
        .iter()
        .map(|example| format!("'{example}', "))
        .collect();
    format!(
        "{rule} (e.g. {}regex used for validation is '{form}')",
        examples.join(" or ")
    )
}

const GENERATED_BASE_MAX: usize = 58; // a DNS label minus the suffix
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const LABEL_MAX: usize = 63;
const DOMAIN_MAX: usize = 253;
const SIGNER_NAME_MAX: usize = DOMAIN_MAX + 1 + DOMAIN_MAX + 1 + LABEL_MAX;
const DNS_LABEL_FORM: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS_LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
    and must start and end with an alphanumeric character";
const DNS_SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
    '-' or '.', and must start and end with an alphanumeric character";
const QUALIFIED_FORM: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character";
const LABEL_VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
    or '.', and must start and end with an alphanumeric character";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FieldErrorKind;
    use rstest::rstest;

    #[rstest]
    #[case::plain("example.com/my-signer")]
    #[case::builtin("kubernetes.io/kube-apiserver-client-kubelet")]
    #[case::dotted_path("example.com/a.b.c")]
    #[case::digits("1.2/3")]
    fn accepts_signer_name(#[case] name: &str) {
        assert_eq!(signer_name_faults(name), vec![]);
    }

    #[test]
    fn refuses_signer_names_with_the_rule_that_is_broken() {
        use FieldErrorKind::{Invalid, Required, TooLong};
        let label = "a".repeat(63);
        let long_domain = format!("{label}.{label}.{label}.{label}.com/x");
        let long_label = format!("{}.com/x", "a".repeat(64));
        let long_path = format!("example.com/{}", "a".repeat(254));
        let long_name = format!(
            "example.com/{label}.{}",
            format!("{label}.").repeat(8) + "a"
        );
        let rows: &[(&str, &[FieldErrorKind], &str)] = &[
            ("", &[Required], ""),
            ("example.com", &[Invalid], "form 'example.com/signer-name'"),
            (
                "example.com/a/b",
                &[Invalid],
                "form 'example.com/signer-name'",
            ),
            ("example/a", &[Invalid], "at least two segments"),
            (
                "Example.com/a",
                &[Invalid],
                "validating label \"Example\": a lowercase RFC 1123 label",
            ),
            ("A.B.com/a", &[Invalid], "validating label \"A\""),
            ("-a.com/a", &[Invalid], "validating label \"-a\""),
            ("a..com/a", &[Invalid], "validating label \"\""),
            ("/a", &[Invalid, Invalid], "validating label \"\""),
            (
                "example.com/",
                &[Invalid],
                "validating label \"\": a lowercase RFC 1123 subdomain",
            ),
            ("example.com/A", &[Invalid], "validating label \"A\""),
            ("example.com/a_b", &[Invalid], "validating label \"a_b\""),
            ("example.com/a..b", &[Invalid], "validating label \"\""),
            ("exämple.com/a", &[Invalid], "validating label \"exämple\""),
            (&long_domain, &[TooLong], "253 bytes"),
            (&long_label, &[Invalid], "no more than 63 characters"),
            (&long_path, &[Invalid], "no more than 253 characters"),
            (&long_name, &[TooLong], "571 bytes"),
        ];
        for (name, kinds, text) in rows {
            let errors: Vec<FieldError> = signer_name_faults(name)
                .iter()
                .map(|fault| fault.at("spec.signerName"))
                .collect();
            assert_eq!(
                errors.iter().map(|error| error.kind).collect::<Vec<_>>(),
                *kinds,
                "{name}"
            );
            assert!(
                errors[0].to_string().contains(text),
                "{name}: {}",
                errors[0]
            );
        }
    }

    #[test]
    fn bad_label_reads_as_a_real_server_prints() {
        let error = signer_name_faults("A.com/x")[0]
            .at("spec.signerName")
            .to_string();
        assert_eq!(
            error,
            "spec.signerName: Invalid value: \"A.com\": validating label \"A\": a lowercase RFC 1123 label must consist \
             of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. \
             'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        );
    }

    #[test]
    fn generated_names_fit_a_label_and_keep_their_base() {
        assert_eq!(generated("csr-", [0, 1, 26, 27, 255]), "csr-bc9bq");
        assert_eq!(generated(&"x".repeat(100), [0; 5]).len(), 63);
        assert_eq!(
            generated(&"é".repeat(100), [0; 5])
                .chars()
                .filter(|c| *c == 'é')
                .count(),
            29
        );
    }

    #[rstest]
    #[case("app", true)]
    #[case("example.com/App_1.x", true)]
    #[case("", false)]
    #[case("/app", false)]
    #[case("example.com/", false)]
    #[case("Example.com/app", false)]
    #[case("a/b/c", false)]
    #[case("-app", false)]
    fn label_keys(#[case] key: &str, #[case] good: bool) {
        assert_eq!(qualified_name_faults(key).is_empty(), good);
    }

    #[rstest]
    #[case("", true)]
    #[case("a-b_c.D1", true)]
    #[case("-a", false)]
    #[case("a b", false)]
    fn label_values(#[case] value: &str, #[case] good: bool) {
        assert_eq!(label_value_faults(value).is_empty(), good);
    }
}
