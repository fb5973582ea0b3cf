//! Deciders elsewhere: whoever can ask a webhook.

use countersign_pki::CheckedCsr;
use countersign_policy::{Requester, Webhook, WebhookAnswer, Wishes};
use futures_util::future::BoxFuture;

/// What asks webhooks. It never fails: whatever goes wrong is an answer that does not count.
pub trait Deciders: Send + Sync {
    /// Asks one webhook about one request. The future ends within the webhook's own deadline.
    fn ask<'a>(
        &'a self,
        webhook: &'a Webhook,
        question: Question<'a>,
    ) -> BoxFuture<'a, WebhookAnswer>;
}

/// What a webhook is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The identity of this question, of visible ASCII characters; the same for every attempt, and never used for
    /// another question: deciders refuse a repeated pair of identity and attempt.
    pub request_id: &'a str,
    /// The name that is asked for.
    pub certname: &'a str,
    /// The signer that shall issue.
    pub signer: &'a str,
    /// Who sent it, and from where.
    pub requester: &'a Requester,
    /// What is asked for beside the message.
    pub wishes: &'a Wishes,
    /// The message.
    pub csr: &'a CheckedCsr,
    /// The serial of the certificate that the name has, in hexadecimal digits.
    pub certificate: Option<&'a str>,
    /// Whether another request waits under the name.
    pub pending: bool,
    /// The enrolment token that came with the request; `None`: it has none.
    pub token: Option<QuestionToken<'a>>,
}

/// An enrolment token, without its secret.
#[derive(Clone, Copy, Debug)]
pub struct QuestionToken<'a> {
    /// Its public part; `None`: what came is no token.
    pub id: Option<&'a str>,
    /// Whether its secret is right and it is good for this request.
    pub verified: bool,
    /// What it is called elsewhere.
    pub external_ref: &'a str,
}

/// Where no webhook can be asked.
#[derive(Debug)]
pub(crate) struct NoDeciders;

impl Deciders for NoDeciders {
    fn ask<'a>(&'a self, _: &'a Webhook, _: Question<'a>) -> BoxFuture<'a, WebhookAnswer> {
        let reason = "this authority asks no webhooks".to_owned();
        Box::pin(async move { WebhookAnswer::Unavailable { reason } })
    }
}
