//! What a Puppet CA answers, and how each answer is recognised.

use countersign_pki::{Certificate, Crl, pem, terminal_safe};
use http::StatusCode;

use super::{CERTIFICATES, CaFault, RENEWAL};
use crate::client::Reply;

/// The answer to an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was carried out.
    Done,
    /// It was not.
    Refused {
        /// The status.
        status: u16,
        /// What the CA says, in one line.
        body: String,
    },
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The CA has it.
    Taken,
    /// The CA has a request of this name already, ours or another, and keeps that.
    WaitsAlready,
    /// The name has a certificate, which may be revoked.
    HasCertificate {
        /// What the CA says, in one line.
        body: String,
    },
    /// Anything else.
    Refused {
        /// The status.
        status: u16,
        /// What the CA says, in one line.
        body: String,
    },
}

/// What there is of a name.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, which is taken apart at once"
)]
pub enum Fetched {
    /// A certificate.
    Certificate {
        /// As the CA gives it out, perhaps with others behind it.
        pem: String,
        /// The first one.
        leaf: Certificate,
    },
    /// None yet, or an answer that is no certificate.
    Absent {
        /// The status.
        status: u16,
    },
}

/// What became of a renewal.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, which is taken apart at once"
)]
pub enum Renewed {
    /// A new certificate.
    Certificate {
        /// As the CA gives it out, perhaps with others behind it.
        pem: String,
        /// The first one.
        leaf: Certificate,
    },
    /// None.
    Refused {
        /// The status.
        status: u16,
        /// What the CA says, in one line.
        body: String,
    },
}

impl Answer {
    pub(super) fn read(reply: &Reply) -> Self {
        match reply.status {
            StatusCode::OK | StatusCode::CREATED | StatusCode::NO_CONTENT => Self::Done,
            status => Self::Refused {
                status: status.as_u16(),
                body: sentence(reply),
            },
        }
    }
}

impl Submitted {
    pub(crate) fn read(reply: &Reply) -> Self {
        let body = sentence(reply);
        match reply.status {
            StatusCode::OK | StatusCode::NO_CONTENT => Self::Taken,
            StatusCode::BAD_REQUEST if body.contains(WAITS_ALREADY) => Self::WaitsAlready,
            StatusCode::BAD_REQUEST if HAS_CERTIFICATE.iter().any(|it| body.contains(it)) => {
                Self::HasCertificate { body }
            }
            status => Self::Refused {
                status: status.as_u16(),
                body,
            },
        }
    }
}

impl Fetched {
    pub(super) fn read(reply: Reply) -> Self {
        let status = reply.status.as_u16();
        match reply.status {
            StatusCode::OK => match certificate(reply) {
                Some((pem, leaf)) => Self::Certificate { pem, leaf },
                None => Self::Absent { status },
            },
            _ => Self::Absent { status },
        }
    }
}

impl Renewed {
    pub(super) fn read(reply: Reply) -> Result<Self, CaFault> {
        if reply.status != StatusCode::OK {
            return Ok(Self::Refused {
                status: reply.status.as_u16(),
                body: sentence(&reply),
            });
        }
        let (pem, leaf) = certificate(reply).ok_or(CaFault::Malformed {
            resource: RENEWAL,
            wanted: "a certificate",
        })?;
        Ok(Self::Certificate { pem, leaf })
    }
}

pub(super) fn revocation_list(reply: Reply, resource: &'static str) -> Result<String, CaFault> {
    whole(reply, "X509 CRL", |der| Crl::parse(der).is_ok()).ok_or(CaFault::Malformed {
        resource,
        wanted: "X509 CRL PEM",
    })
}

pub(super) fn authority_certificates(reply: Reply) -> Result<String, CaFault> {
    whole(reply, "CERTIFICATE", |der| Certificate::parse(der).is_ok()).ok_or(CaFault::Malformed {
        resource: CERTIFICATES,
        wanted: "certificates in PEM",
    })
}

/// What a server says, in one line that is safe to show.
pub(crate) fn sentence(reply: &Reply) -> String {
    let text = reply.text();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() > MAX_SENTENCE {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().take(MAX_SENTENCE));
    }
    let short: String = line.chars().take(MAX_SENTENCE).collect();
    terminal_safe(&short).into_owned()
}

/// The text, and the certificate that its first block is.
fn certificate(reply: Reply) -> Option<(String, Certificate)> {
    let block = pem::decode_first(&reply.body, &LIMITS).ok()??;
    if block.label != "CERTIFICATE" {
        return None;
    }
    let leaf = Certificate::parse(&block.der).ok()?;
    Some((text(reply)?, leaf))
}

/// The text, if it has blocks of this kind, and no others.
fn whole(reply: Reply, label: &str, is_good: impl Fn(&[u8]) -> bool) -> Option<String> {
    let blocks = pem::decode_all(&reply.body, &LIMITS).ok()?;
    let all_good = blocks
        .iter()
        .all(|block| block.label == label && is_good(&block.der));
    match all_good && !blocks.is_empty() {
        true => text(reply),
        false => None,
    }
}

fn text(reply: Reply) -> Option<String> {
    String::from_utf8(reply.body.into()).ok()
}

/// As Puppet Server and Countersign say that a name has a waiting request.
const WAITS_ALREADY: &str = "already has a requested certificate";
/// As they say that it has a certificate.
const HAS_CERTIFICATE: [&str; 2] = [
    "already has a signed certificate",
    "already has a revoked certificate",
];
const MAX_SENTENCE: usize = 500;
/// What is larger than an answer may be has not been read.
const LIMITS: pem::PemLimits = pem::PemLimits {
    max_text: 16 * 1024 * 1024,
    max_blocks: 100,
};

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_pki::UnixTime;
    use countersign_testkit::chain::{Ca, CrlFacts};
    use countersign_testkit::keys;
    use http::HeaderMap;

    fn reply(status: u16, body: &str) -> Reply {
        Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: body.to_owned().into(),
        }
    }

    fn root() -> Ca {
        Ca::root("root", keys::p256_a(), NOW)
    }

    const NOW: UnixTime = UnixTime(1_800_000_000);

    #[test]
    fn submissions_are_recognised() {
        let duplicate =
            |state| format!("web already has a {state} certificate; ignoring certificate request");
        let refused = |status, body: &str| Submitted::Refused {
            status,
            body: body.to_owned(),
        };
        for (status, body, expected) in [
            (200, String::new(), Submitted::Taken),
            (400, duplicate("requested"), Submitted::WaitsAlready),
            (
                400,
                duplicate("signed"),
                Submitted::HasCertificate {
                    body: duplicate("signed"),
                },
            ),
            (
                400,
                duplicate("revoked"),
                Submitted::HasCertificate {
                    body: duplicate("revoked"),
                },
            ),
            (
                400,
                "no\r\n  way\x1b[2J".into(),
                refused(400, "no way\\u{1b}[2J"),
            ),
            (
                403,
                duplicate("requested"),
                refused(403, &duplicate("requested")),
            ),
            (500, String::new(), refused(500, "")),
            (302, String::new(), refused(302, "")),
        ] {
            assert_eq!(
                Submitted::read(&reply(status, &body)),
                expected,
                "{status} {body}"
            );
        }
        let long = Submitted::read(&reply(500, &"ä ".repeat(100_000)));
        let Submitted::Refused { body, .. } = long else {
            panic!("{long:?}");
        };
        assert!(body.chars().count() <= MAX_SENTENCE);
    }

    #[test]
    fn orders_are_done_or_not() {
        for (status, is_done) in [
            (200, true),
            (201, true),
            (204, true),
            (202, false),
            (301, false),
            (404, false),
            (409, false),
            (503, false),
        ] {
            let answer = Answer::read(&reply(status, "said"));
            assert_eq!(answer == Answer::Done, is_done, "{status}");
        }
    }

    #[test]
    fn certificates_are_kept_as_they_are_given_out() {
        let certificate = root().certificate;
        let own = certificate.to_pem();
        let list = root().crl(&CrlFacts::good(1, NOW));
        for (case, status, body, is_there) in [
            ("a certificate", 200, own.clone(), true),
            ("text around", 200, format!("web\n{own}{own}behind\n"), true),
            ("another status", 404, own.clone(), false),
            ("an empty answer", 200, String::new(), false),
            ("a page", 200, "<html>".to_owned(), false),
            ("a list first", 200, format!("{list}{own}"), false),
            ("damaged", 200, pem::encode("CERTIFICATE", b"x"), false),
        ] {
            let is_kept = |pem: &str, leaf: &Certificate| pem == body && *leaf == certificate;
            let is_right = match Fetched::read(reply(status, &body)) {
                Fetched::Certificate { pem, leaf } => is_there && is_kept(&pem, &leaf),
                Fetched::Absent { status: found } => !is_there && found == status,
            };
            assert!(is_right, "{case}");
            let is_right = match Renewed::read(reply(status, &body)) {
                Ok(Renewed::Certificate { pem, leaf }) => is_there && is_kept(&pem, &leaf),
                Ok(Renewed::Refused { status: found, .. }) => found == 404 && status == 404,
                Err(fault) => {
                    !is_there && status == 200 && matches!(fault, CaFault::Malformed { .. })
                }
            };
            assert!(is_right, "{case}");
        }
    }

    #[test]
    fn lists_and_bundles_hold_nothing_else() {
        let certificate = root().certificate.to_pem();
        let list = root().crl(&CrlFacts::good(1, NOW));
        for (case, body, is_list, is_bundle) in [
            ("one list", list.clone(), true, false),
            ("two lists", format!("{list}{list}"), true, false),
            ("one certificate", certificate.clone(), false, true),
            (
                "two certificates",
                format!("{certificate}{certificate}"),
                false,
                true,
            ),
            ("both", format!("{list}{certificate}"), false, false),
            ("nothing", String::new(), false, false),
            (
                "a damaged list",
                pem::encode("X509 CRL", b"damaged"),
                false,
                false,
            ),
            (
                "half a list",
                list[..list.len() - 5].to_owned(),
                false,
                false,
            ),
            ("a page", "<html>".to_owned(), false, false),
        ] {
            let read = revocation_list(reply(200, &body), "list").ok();
            assert_eq!(read, is_list.then(|| body.clone()), "{case}");
            let read = authority_certificates(reply(200, &body)).ok();
            assert_eq!(read, is_bundle.then(|| body.clone()), "{case}");
        }
    }
}
