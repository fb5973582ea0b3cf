//! What requests are judged by, as one value.

pub(crate) mod versions;

use std::collections::BTreeMap;
use std::sync::Arc;

use countersign_policy::{Policy, SignerName};

use crate::evidence::decider::{Deciders, NoDeciders};
use crate::issuer::signer::Signer;
use crate::token::TokenSettings;

/// Policy, signers, those who ask the policy's webhooks, and how tokens are handled. Replaced as a whole: nobody sees the
/// policy of one configuration with the signers of another.
#[derive(Clone)]
pub struct Rules {
    /// What decides.
    pub policy: Arc<Policy>,
    signers: Arc<BTreeMap<SignerName, Arc<Signer>>>,
    /// Who asks the policy's webhooks.
    pub deciders: Arc<dyn Deciders>,
    /// How enrolment tokens are handled.
    pub tokens: Arc<TokenSettings>,
}

impl Rules {
    /// Without webhooks, and with tokens as they are by default. A signer whose issuer the authority does not have signs
    /// nothing.
    pub fn new(policy: Policy, signers: Vec<Signer>) -> Self {
        Self {
            policy: Arc::new(policy),
            signers: by_name(signers),
            deciders: Arc::new(NoDeciders),
            tokens: Arc::new(TokenSettings::standard()),
        }
    }

    /// The same with another policy.
    #[must_use]
    pub fn with_policy(&self, policy: Policy) -> Self {
        Self {
            policy: Arc::new(policy),
            ..self.clone()
        }
    }

    /// The same with other signers.
    #[must_use]
    pub fn with_signers(&self, signers: Vec<Signer>) -> Self {
        Self {
            signers: by_name(signers),
            ..self.clone()
        }
    }

    /// The same with others who ask webhooks.
    #[must_use]
    pub fn with_deciders(&self, deciders: Arc<dyn Deciders>) -> Self {
        Self {
            deciders,
            ..self.clone()
        }
    }

    /// The same with other settings of tokens.
    #[must_use]
    pub fn with_tokens(&self, tokens: TokenSettings) -> Self {
        Self {
            tokens: Arc::new(tokens),
            ..self.clone()
        }
    }

    /// A signer by name.
    pub fn signer(&self, name: &SignerName) -> Option<Arc<Signer>> {
        self.signers.get(name).cloned()
    }
}

fn by_name(signers: Vec<Signer>) -> Arc<BTreeMap<SignerName, Arc<Signer>>> {
    let signers = signers.into_iter().map(Arc::new);
    let named = signers.map(|signer| (signer.name.clone(), signer));
    Arc::new(named.collect())
}
