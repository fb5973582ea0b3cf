//! Where the answers may differ, and why.

use super::calls::Call;
use super::shape::{Field, Shape};

use Field::{Body, ContentType, Status};

/// One accepted difference.
pub(crate) struct Difference {
    /// None: it may be anywhere, and is somewhere.
    calls: &'static [&'static str],
    /// Status of the reference, and ours.
    statuses: (u16, u16),
    /// All that differ, unless another difference explains them.
    pub(crate) fields: &'static [Field],
    reason: &'static str,
}

impl Difference {
    pub(crate) fn explains(&self, call: &Call, reference: &Shape, ours: &Shape) -> bool {
        let differing = reference.differing(ours);
        (self.calls.is_empty() || self.calls.contains(&call.name))
            && self.statuses == (reference.status, ours.status)
            && self.fields.iter().all(|field| differing.contains(field))
    }

    /// The calls that were to show it and did not.
    pub(crate) fn not_among(&self, seen: &[&str]) -> Vec<String> {
        let missing: Vec<&str> = match self.calls.is_empty() {
            true if seen.is_empty() => vec!["any call"],
            true => Vec::new(),
            false => self
                .calls
                .iter()
                .filter(|name| !seen.contains(name))
                .copied()
                .collect(),
        };
        missing
            .into_iter()
            .map(|name| {
                format!(
                    "{name}: {:?} {:?} ({})",
                    self.statuses, self.fields, self.reason
                )
            })
            .collect()
    }
}

const ALL_FIELDS: &[Field] = &[Status, ContentType, Body];

pub(crate) static ALL: &[Difference] = &[
    // The form of answers.
    Difference {
        calls: &[],
        statuses: (403, 403),
        fields: &[ContentType],
        reason: "a sentence says that it is text; Puppet Server leaves the type out",
    },
    Difference {
        calls: &[],
        statuses: (204, 204),
        fields: &[ContentType],
        reason: "no content has no type",
    },
    Difference {
        calls: &[
            "nobody's status",
            "nobody's status as JSON",
            "the status of the deleted",
            "nobody is deleted",
        ],
        statuses: (404, 404),
        fields: &[ContentType],
        reason: "a sentence says that it is text; Puppet Server names no type, or the one that was asked for",
    },
    Difference {
        calls: &["the same as anything"],
        statuses: (200, 200),
        fields: &[ContentType],
        reason: "JSON says that it is JSON; Puppet Server repeats */*",
    },
    Difference {
        calls: &["a number is signed", "a text is signed"],
        statuses: (422, 422),
        fields: &[Body],
        reason: "the member 'error' is for people; Puppet Server prints a term of its schema language",
    },
    Difference {
        calls: &["the status with the renewal marker"],
        statuses: (200, 200),
        fields: &[Body],
        reason: "Puppet's own table of names has pp_auth_auto_renew; Puppet Server 8.7 shows the number",
    },
    Difference {
        calls: &["all services"],
        statuses: (200, 200),
        fields: &[Body],
        reason: "Countersign is the service ca and no other",
    },
    // Paths.
    Difference {
        calls: &[
            "a segment of two dots",
            "an encoded segment of two dots",
            "a segment of one dot",
            "half an escape",
        ],
        statuses: (400, 400),
        fields: &[ContentType, Body],
        reason: "our own sentence, which does not repeat the path",
    },
    Difference {
        calls: &["not UTF-8"],
        statuses: (404, 400),
        fields: ALL_FIELDS,
        reason: "a path that is not text is malformed, not unknown",
    },
    Difference {
        calls: &["NUL in a name"],
        statuses: (400, 404),
        fields: ALL_FIELDS,
        reason: "NUL is a character that no name has, like a blank",
    },
    Difference {
        calls: &["the root"],
        statuses: (404, 403),
        fields: ALL_FIELDS,
        reason: "one rule for every path that no rule admits; Puppet Server's web server knows no service there",
    },
    Difference {
        calls: &["a path of Puppet 3"],
        statuses: (404, 200),
        fields: ALL_FIELDS,
        reason: "agents of Puppet 3 are served; Puppet Server had a service for them that Debian's lacks",
    },
    // Conditional requests.
    Difference {
        calls: &["the same, since the future"],
        statuses: (304, 200),
        fields: &[Status, Body],
        reason: "a clock that runs ahead says nothing (RFC 9110 13.1.3)",
    },
    // Names.
    Difference {
        calls: &["only dots"],
        statuses: (500, 400),
        fields: &[Status, Body],
        reason: "a refusal instead of a failure",
    },
    Difference {
        calls: &["250 characters"],
        statuses: (500, 200),
        fields: ALL_FIELDS,
        reason: "names may have 253 characters; Puppet Server makes file names of them",
    },
    Difference {
        calls: &["the authority's own path"],
        statuses: (200, 400),
        fields: ALL_FIELDS,
        reason: "certificate/ca is the authority's, so nobody could ever fetch such a certificate",
    },
    Difference {
        calls: &["a line end after the name", "a tab before the name"],
        statuses: (200, 400),
        fields: ALL_FIELDS,
        reason: "control characters are refused; Puppet Server trims them",
    },
    Difference {
        calls: &["NUL in the subject", "ESC in the subject"],
        statuses: (400, 400),
        fields: &[Body],
        reason: "refused before names are compared, and not repeated to a terminal",
    },
    Difference {
        calls: &["a common name in company"],
        statuses: (400, 200),
        fields: ALL_FIELDS,
        reason: "the common name is read; Puppet Server reads the first attribute of its RDN, whatever it is",
    },
    // Bodies of requests.
    Difference {
        calls: &[
            "no request at all",
            "no PEM",
            "DER",
            "two requests",
            "a certificate's label",
            "half a request",
        ],
        statuses: (500, 400),
        fields: &[Status, Body],
        reason: "a refusal instead of a failure",
    },
    Difference {
        calls: &["RSA 1024"],
        statuses: (200, 400),
        fields: ALL_FIELDS,
        reason: "weak keys are refused",
    },
    Difference {
        calls: &["a bad signature that waits"],
        statuses: (200, 400),
        fields: ALL_FIELDS,
        reason: "signatures are verified at once, not when somebody signs",
    },
    Difference {
        calls: &["an e-mail address", "a URI"],
        statuses: (200, 400),
        fields: ALL_FIELDS,
        reason: "names of every kind are names; Puppet Server counts DNS names and addresses and copies the others",
    },
    Difference {
        calls: &["a number in an extension"],
        statuses: (500, 400),
        fields: &[Status, Body],
        reason: "a refusal instead of a failure",
    },
    Difference {
        calls: &["bare text in an extension"],
        statuses: (500, 200),
        fields: ALL_FIELDS,
        reason: "a value that is not DER is text, whatever its first octet",
    },
    Difference {
        calls: &["attributes out of order"],
        statuses: (400, 200),
        fields: ALL_FIELDS,
        reason: "the signature is verified over the octets that were signed; Puppet Server encodes them anew",
    },
    Difference {
        calls: &["a very long request"],
        statuses: (500, 413),
        fields: &[Status, Body],
        reason: "what is too long is refused before it is read",
    },
    Difference {
        calls: &["an extension twice", "an extension request without a value"],
        statuses: (200, 400),
        fields: ALL_FIELDS,
        reason: "RFC 5280 4.2 and RFC 2986 4.1 forbid it, and Puppet Server breaks its own listing with it (next two)",
    },
    Difference {
        calls: &[
            "a listing after an extension twice",
            "a listing after an extension request without a value",
        ],
        statuses: (500, 200),
        fields: ALL_FIELDS,
        reason: "nobody can break the listing for others",
    },
    Difference {
        calls: &[
            "the status after an extension twice",
            "the status after an extension request without a value",
        ],
        statuses: (500, 404),
        fields: &[Status, Body],
        reason: "such a request was not taken",
    },
    // Who may.
    Difference {
        calls: &[
            "a list from anybody",
            "a list from an agent",
            "anybody deletes a request",
            "an agent deletes a request",
            "a status for anybody",
            "a status for an agent",
            "an agent's own status",
            "anybody signs",
            "an agent signs",
            "anybody deletes a status",
            "a listing for anybody",
            "a listing for an agent",
            "anybody signs in bulk",
            "an agent signs in bulk",
            "an agent signs all",
            "anybody cleans",
            "an agent cleans",
            "anybody with an administrator's headers",
        ],
        statuses: (403, 403),
        fields: &[Body],
        reason: "a refused call also says which role it needed, behind Puppet Server's sentences",
    },
    Difference {
        calls: &[
            "a stored request for anybody",
            "a stored request for another agent",
        ],
        statuses: (200, 403),
        fields: ALL_FIELDS,
        reason: "requests may hold secrets: their own name and administrators see them",
    },
    Difference {
        calls: &["nobody's request for anybody"],
        statuses: (404, 403),
        fields: ALL_FIELDS,
        reason: "requests may hold secrets: their own name and administrators see them",
    },
    Difference {
        calls: &["an administrator deletes nobody's request"],
        statuses: (403, 404),
        fields: ALL_FIELDS,
        reason: "an administrator may delete a request; Puppet Server has the call but no rule for it",
    },
    Difference {
        calls: &["an administrator deletes a request"],
        statuses: (403, 204),
        fields: &[Status, Body],
        reason: "an administrator may delete a request; Puppet Server has the call but no rule for it",
    },
    Difference {
        calls: &["an administrator renews"],
        statuses: (200, 403),
        fields: &[Status, Body],
        reason: "an administrator's rights are not renewed without an administrator",
    },
    Difference {
        calls: &["an agent renews with a header"],
        statuses: (400, 200),
        fields: &[Status, Body],
        reason: "headers never say who a client is; its certificate does",
    },
    // Signing.
    Difference {
        calls: &["a lifetime in digits"],
        statuses: (400, 204),
        fields: ALL_FIELDS,
        reason: "puppetserver ca sign --ttl 3600 sends digits",
    },
];
