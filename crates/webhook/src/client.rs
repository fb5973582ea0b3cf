//! One webhook, ready to be asked.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use countersign_authority::{Clock as _, Question, SystemClock};
use countersign_pki::terminal_safe;
use countersign_policy::{Webhook, WebhookAnswer, WebhookMode};
use countersign_private_keys::private_file;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::body::Bytes;
use rustls::pki_types::ServerName;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::answer;
use crate::exchange::{self, Deadline, Endpoint, Fault, Reading, in_words};
use crate::places::Places;
use crate::question::{Letter, WEBHOOK_ID};
use crate::setting::{LoadFault, SettingFault};
use crate::trust::Trust;

/// An address, the certificates for it, and so many places for open questions.
pub(crate) struct WebhookClient {
    /// Without the query string, which may hold a secret.
    address: String,
    authority: HeaderValue,
    target: PathAndQuery,
    endpoint: Endpoint,
    trust: Trust,
    key: Option<hmac::Key>,
    id: HeaderValue,
    open: Places,
    at_once: usize,
}

impl WebhookClient {
    pub(crate) fn load(
        webhook: &Webhook,
        concurrency: usize,
        id: &HeaderValue,
    ) -> Result<Self, LoadFault> {
        let address = address_of(&webhook.url);
        let load = || {
            let uri = checked_url(&webhook.url)?;
            let authority = uri.authority().ok_or_else(|| url_fault("has no host"))?;
            let host = authority.host();
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let name = ServerName::try_from(host.to_owned())
                .map_err(|_| url_fault("has a host that no certificate can be for"))?;
            if !(1..=MAX_TIMEOUT).contains(&webhook.timeout_ms) {
                return Err(SettingFault::Timeout {
                    ms: webhook.timeout_ms,
                    limit: MAX_TIMEOUT,
                });
            }
            let at_once = concurrency.clamp(1, Semaphore::MAX_PERMITS);
            let target = uri.path_and_query().cloned();
            Ok(Self {
                address: address.clone(),
                authority: HeaderValue::from_str(authority.as_str())
                    .map_err(|_| url_fault("has an unusual host"))?,
                target: target.unwrap_or_else(|| PathAndQuery::from_static("/")),
                endpoint: Endpoint {
                    host: host.to_owned(),
                    port: authority.port_u16().unwrap_or(HTTPS),
                    name,
                    resolving: Arc::new(Semaphore::new(at_once)),
                    resolvers: at_once,
                },
                trust: Trust::load(webhook)?,
                key: secret(webhook)?,
                id: id.clone(),
                open: Places::new(at_once),
                at_once,
            })
        };
        load().map_err(|source| LoadFault::Webhook {
            address: address.clone(),
            source,
        })
    }

    /// Asks, unless too many questions are open.
    pub(crate) async fn ask(&self, webhook: &Webhook, question: &Question<'_>) -> WebhookAnswer {
        let asked = match self.open.take(question.requester.source) {
            Some(_place) => self.ask_within_deadline(webhook, question).await,
            None => Err(Fault::Busy {
                limit: self.at_once,
            }),
        };
        asked.unwrap_or_else(|fault| {
            let words = in_words(&fault);
            let words: String = words.chars().take(MAX_WORDS).collect();
            WebhookAnswer::Unavailable {
                reason: format!("{} {}", self.address, terminal_safe(&words)),
            }
        })
    }

    /// At most two attempts, both within the one deadline. In status mode there is only one: the decider may have used up a
    /// token of its own before the answer was lost.
    async fn ask_within_deadline(
        &self,
        webhook: &Webhook,
        question: &Question<'_>,
    ) -> Result<WebhookAnswer, Fault> {
        let total = Duration::from_millis(webhook.timeout_ms);
        let deadline = Deadline {
            at: Instant::now() + total,
            total,
        };
        let first = match self.attempt(webhook, question, 1, deadline).await {
            Err(fault) if webhook.mode == WebhookMode::Json && fault.allows_another_try() => fault,
            answered => return answered,
        };
        let again = Instant::now() + PAUSE;
        if again >= deadline.at {
            return Err(first);
        }
        tokio::time::sleep_until(again).await;
        let second = self.attempt(webhook, question, 2, deadline).await;
        second.map_err(|second| Fault::Twice {
            first: Box::new(first),
            second: Box::new(second),
        })
    }

    async fn attempt(
        &self,
        webhook: &Webhook,
        question: &Question<'_>,
        attempt: u32,
        deadline: Deadline,
    ) -> Result<WebhookAnswer, Fault> {
        let now = SystemClock.now();
        let tls = self.trust.connector(now)?;
        let mut letter = Letter::write(webhook, question, attempt)?;
        letter.sign(self.key.as_ref(), now);
        let request = self.request(letter);
        let reading = match webhook.mode {
            WebhookMode::Json => Reading::BodyOf(StatusCode::OK),
            WebhookMode::Status => Reading::StatusOnly,
        };
        let reply = exchange::call(&self.endpoint, tls, request, reading, deadline).await?;
        match webhook.mode {
            WebhookMode::Status => {
                answer::of_status(reply.status).ok_or_else(|| Fault::status(reply.status))
            }
            WebhookMode::Json if reply.status != StatusCode::OK => Err(Fault::status(reply.status)),
            WebhookMode::Json if !exchange::is_json(&reply.headers) => Err(Fault::ContentType),
            WebhookMode::Json => {
                answer::of_json(&reply.body, question).map_err(|source| Fault::Answer { source })
            }
        }
    }

    fn request(&self, letter: Letter) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(Bytes::from(letter.body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from(self.target.clone());
        *request.headers_mut() = letter.headers;
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.authority.clone());
        headers.insert(WEBHOOK_ID, self.id.clone());
        // A connection serves one question.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        request
    }
}

fn checked_url(url: &str) -> Result<Uri, SettingFault> {
    let uri: Uri = url.parse().map_err(|_| url_fault("is not a URL"))?;
    if uri.scheme_str() != Some("https") {
        return Err(url_fault("is not an https URL"));
    }
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err(url_fault(
            "names a user; use clientCertFile or secretFile instead",
        ));
    }
    if url.contains('#') {
        return Err(url_fault("has a fragment, which is never sent"));
    }
    Ok(uri)
}

fn url_fault(problem: &'static str) -> SettingFault {
    SettingFault::Url { problem }
}

/// The URL as it may be shown: no query string, no user, nothing that acts on a terminal.
fn address_of(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let shown = url.get(..end).unwrap_or_default();
    let shown: String = shown.chars().take(MAX_WORDS).collect();
    let shown = match (shown.split_once("://"), shown.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        (None, Some((_, rest))) => rest.to_owned(),
        (_, None) => shown,
    };
    terminal_safe(&shown).into_owned()
}

fn secret(webhook: &Webhook) -> Result<Option<hmac::Key>, SettingFault> {
    let Some(path) = &webhook.secret_file else {
        return Ok(None);
    };
    let content = private_file::read(path).map_err(|source| SettingFault::SecretFile { source })?;
    // Editors and shells end a file with a newline that nobody means.
    let secret = content.trim_ascii_end();
    if secret.len() < MIN_SECRET {
        return Err(SettingFault::ShortSecret {
            path: path.clone(),
            limit: MIN_SECRET,
        });
    }
    Ok(Some(hmac::Key::new(hmac::HMAC_SHA256, secret)))
}

const HTTPS: u16 = 443;
/// Half a minute: an agent waits for the answer.
const MAX_TIMEOUT: u64 = 30_000;
/// Long enough for a decider that is just being restarted, short beside the deadline.
const PAUSE: Duration = Duration::from_millis(250);
/// RFC 2104 section 3 wants as many octets as the digest has and says that less weakens it; half of that is 128 bits.
const MIN_SECRET: usize = 16;
const MAX_WORDS: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_secrets() {
        for (url, shown) in [
            ("https://a.example/x", "https://a.example/x"),
            ("https://a.example/x?key=s3cret", "https://a.example/x"),
            ("https://a.example?key=s3cret", "https://a.example"),
            ("https://u:s3cret@a.example/x", "https://a.example/x"),
            ("u:s3cret@a.example", "a.example"),
            ("https://a\u{1b}[2J", "https://a\\u{1b}[2J"),
        ] {
            assert_eq!(address_of(url), shown);
        }
    }
}
