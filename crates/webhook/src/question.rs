//! What a decider is asked, on the wire.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use aws_lc_rs::hmac;
use countersign_authority::{Question, looks_like_a_token, masked_tokens};
use countersign_pki::{CheckedCsr, Oid, UnixTime, oid};
use countersign_policy::{Identity, Webhook, WebhookMode};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::Serialize;

use crate::exchange::Fault;

/// A request's headers and body, of which only the address is missing.
pub(crate) struct Letter {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Letter {
    /// Writes a question. `attempt` counts from one.
    pub(crate) fn write(
        webhook: &Webhook,
        question: &Question<'_>,
        attempt: u32,
    ) -> Result<Self, Fault> {
        let mut headers = HeaderMap::new();
        let (content_type, accept, body) = match webhook.mode {
            WebhookMode::Json => {
                let body = Body::new(question, attempt, webhook.include_csr);
                let body = serde_json::to_vec(&body).map_err(|_| Fault::Unsayable)?;
                ("application/json", "application/json", body)
            }
            // As Foreman's smart proxy is asked.
            WebhookMode::Status => {
                let body = question.csr.to_pem().into_bytes();
                ("text/plain", "application/json,version=2", body)
            }
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        let id = HeaderValue::from_str(question.request_id).map_err(|_| Fault::Unsayable)?;
        headers.insert(REQUEST_ID, id);
        Ok(Self { headers, body })
    }

    /// Adds the time and, where there is a key, the signature over it and the body.
    pub(crate) fn sign(&mut self, key: Option<&hmac::Key>, at: UnixTime) {
        let timestamp = at.0.to_string();
        if let Some(key) = key {
            let mut context = hmac::Context::with_key(key);
            context.update(timestamp.as_bytes());
            context.update(b".");
            context.update(&self.body);
            let tag = context.sign();
            let digits: String = tag.as_ref().iter().map(|b| format!("{b:02x}")).collect();
            self.put(SIGNATURE, &format!("v1={digits}"));
        }
        self.put(TIMESTAMP, &timestamp);
    }

    /// Digits, letters and points only.
    fn put(&mut self, name: HeaderName, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    version: u32,
    request_id: &'a str,
    attempt: u32,
    certname: Cow<'a, str>,
    source: Option<IpAddr>,
    signer: &'a str,
    user: Option<User<'a>>,
    usages: &'a [String],
    csr: Csr,
    token: Token<'a>,
    existing: Existing<'a>,
}

/// A user of Kubernetes.
#[derive(Serialize)]
struct User<'a> {
    name: &'a str,
    groups: &'a [String],
}

#[derive(Serialize)]
struct Csr {
    sha256: String,
    spki_sha256: String,
    key: Key,
    sans: Vec<String>,
    /// By dotted identifier; nothing where the value is not text.
    extensions: BTreeMap<String, Option<String>>,
    attributes: Vec<String>,
    pem: Option<String>,
}

#[derive(Serialize)]
struct Key {
    alg: &'static str,
    bits: u32,
}

#[derive(Serialize)]
struct Token<'a> {
    present: bool,
    id: Option<&'a str>,
    verified: bool,
    external_ref: Option<&'a str>,
}

#[derive(Serialize)]
struct Existing<'a> {
    certificate: Option<&'a str>,
    pending: bool,
}

impl<'a> Body<'a> {
    fn new(question: &Question<'a>, attempt: u32, include_csr: bool) -> Self {
        Self {
            version: 1,
            request_id: question.request_id,
            attempt,
            certname: certname(question.certname),
            source: question.requester.source,
            signer: question.signer,
            user: User::of(&question.requester.identity),
            usages: &question.wishes.usages,
            csr: Csr::new(question.csr, include_csr),
            token: Token {
                present: question.token.is_some() || carries_secret(question.csr),
                id: question.token.and_then(|token| token.id),
                verified: question.token.is_some_and(|token| token.verified),
                external_ref: question
                    .token
                    .map(|token| token.external_ref)
                    .filter(|external| !external.is_empty()),
            },
            existing: Existing {
                certificate: question.certificate,
                pending: question.pending,
            },
        }
    }
}

impl<'a> User<'a> {
    fn of(identity: &'a Identity) -> Option<Self> {
        match identity {
            Identity::User {
                username, groups, ..
            } => Some(Self {
                name: username,
                groups,
            }),
            Identity::Anonymous | Identity::Authority | Identity::Certname { .. } => None,
        }
    }
}

impl Csr {
    fn new(csr: &CheckedCsr, include_csr: bool) -> Self {
        let key = csr.public_key();
        let hidden = |oid: &Oid| [oid::PP_PRESHARED_KEY, oid::SUBJECT_ALT_NAME].contains(oid);
        let extensions = csr.extensions().iter().filter(|e| !hidden(&e.oid));
        let attributes = csr.attributes().iter();
        // What it asks for stands beside it.
        let attributes = attributes.filter(|a| a.oid != oid::EXTENSION_REQUEST);
        Self {
            sha256: csr.fingerprint().to_hex(),
            spki_sha256: csr.key_fingerprint().to_hex(),
            key: Key {
                alg: key.family(),
                bits: key.bits(),
            },
            sans: csr
                .alt_names()
                .iter()
                .map(|name| masked_tokens(&name.to_string()).into_owned())
                .collect(),
            extensions: extensions
                .map(|extension| {
                    let text = extension.text_value();
                    let text = text.map(|text| masked_tokens(&text).into_owned());
                    (extension.oid.to_string(), text)
                })
                .collect(),
            attributes: attributes.map(|a| a.oid.to_string()).collect(),
            pem: include_csr.then(|| csr.to_pem()),
        }
    }
}

/// The name that is decided about, letter for letter, unless it is a secret in the wrong place.
fn certname(name: &str) -> Cow<'_, str> {
    match looks_like_a_token(name) {
        true => masked_tokens(name),
        false => Cow::Borrowed(name),
    }
}

/// Whether the request has one of the places where a token travels.
fn carries_secret(csr: &CheckedCsr) -> bool {
    csr.attributes_of(&oid::CHALLENGE_PASSWORD).next().is_some()
        || csr.extension(&oid::PP_PRESHARED_KEY).is_some()
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("x-ca-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("x-ca-signature");
/// What the authority calls itself.
pub(crate) const WEBHOOK_ID: HeaderName = HeaderName::from_static("x-ca-webhook-id");
