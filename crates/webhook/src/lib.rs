//! Asks deciders that are not ours: webhooks elsewhere, one HTTPS call per question, with a deadline, and an answer that
//! counts only if it is beyond doubt; and on this machine the lists and programs of a site ([`ThisMachine`]).
//!
//! A webhook is asked in one of two ways. In JSON mode it gets an object that describes the request, signed if a secret is
//! configured, and answers with an object that repeats what it was asked about. In status mode it gets the PEM request and answers
//! by status alone. Whatever is late, wrong, too large, redirected or not understood is
//! [`WebhookAnswer::Unavailable`], with the reason in words; nothing of that kind ever allows.
//!
//! The crate never decides what an answer means for a request, never follows a redirection, never uses a proxy of the
//! environment and never shows a challenge password or a preshared key unless the whole request is asked for.

mod answer;
mod client;
mod exchange;
mod json;
mod left_behind;
mod places;
mod question;
mod setting;
mod this_machine;
mod trust;

use std::collections::BTreeMap;

use countersign_authority::{Deciders, Question};
use countersign_policy::{Webhook, WebhookAnswer};
use futures_util::future::BoxFuture;
use http::HeaderValue;

use crate::client::WebhookClient;
pub use crate::left_behind::adopt_what_is_left_behind;
pub use crate::setting::{LoadFault, SettingFault};
pub use crate::this_machine::{Executables, ThisMachine, trusted_file};

/// What holds for all webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many questions to one webhook may be open at once; one more is not asked.
    pub concurrency: usize,
    /// What this authority calls itself, in the header `X-CA-Webhook-Id`.
    pub id: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 32,
            id: "countersign".to_owned(),
        }
    }
}

/// The webhooks of a policy, with their files read and checked.
pub struct Webhooks {
    clients: BTreeMap<Webhook, WebhookClient>,
}

impl Webhooks {
    /// Makes every webhook ready. Their files are read now and not again: the next reload of the policy reads them anew.
    ///
    /// # Errors
    /// If one of them could never be asked: its address, a file, or what is in it.
    pub fn load<'a>(
        hooks: impl Iterator<Item = &'a Webhook>,
        how: &Settings,
    ) -> Result<Self, LoadFault> {
        let id =
            HeaderValue::from_str(&how.id).map_err(|_| LoadFault::Id { id: how.id.clone() })?;
        let mut clients = BTreeMap::new();
        for hook in hooks {
            if !clients.contains_key(hook) {
                let client = WebhookClient::load(hook, how.concurrency, &id)?;
                clients.insert(hook.clone(), client);
            }
        }
        Ok(Self { clients })
    }
}

impl Deciders for Webhooks {
    fn ask<'a>(
        &'a self,
        webhook: &'a Webhook,
        question: Question<'a>,
    ) -> BoxFuture<'a, WebhookAnswer> {
        Box::pin(async move {
            match self.clients.get(webhook) {
                Some(client) => client.ask(webhook, &question).await,
                // The policy and its deciders are exchanged together; this would be a fault of the wiring.
                None => WebhookAnswer::Unavailable {
                    reason: "this webhook was not made ready; reload the policy".to_owned(),
                },
            }
        })
    }
}
