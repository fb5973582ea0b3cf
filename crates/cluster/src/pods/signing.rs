//! Where requests of pods meet whoever signs them. This crate holds no key: it hands over what it has verified and what a
//! policy has approved, and writes what comes back.

use std::collections::BTreeSet;

use countersign_pki::{CheckedCsr, Curve, KeyType, UnixTime};
use countersign_policy::{PodFacts, SignerName};
use futures_util::future::BoxFuture;

use crate::signing::CertificateId;

/// Whoever signs for pods, and knows what pods are to trust.
pub trait PodSigner: Send + Sync {
    /// What holds for requests of pods to this signer; `None`: they are somebody else's. Asked often, from memory.
    fn terms(&self, signer: &SignerName) -> Option<PodTerms>;

    /// Signs one. It may be asked again for a request that it has signed, after a crash or a write that was refused: the
    /// same `uid` gets the same certificate for as long as the cluster would take it.
    fn sign<'a>(&'a self, order: PodOrder<'a>) -> BoxFuture<'a, PodSigning>;

    /// What relying parties are to trust, for each signer that has terms: the anchors as PEM.
    fn anchors(&self) -> Vec<(SignerName, String)>;
}

/// What holds for requests of pods to one signer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodTerms {
    /// The keys that it certifies, the one that is recommended first.
    pub key_types: Vec<PodKeyType>,
    /// The annotations of requests that it understands.
    pub annotations: BTreeSet<String>,
}

/// A kind of key, by the words that pods have for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodKeyType {
    /// P-256.
    EcdsaP256,
    /// P-384.
    EcdsaP384,
    /// P-521.
    EcdsaP521,
    /// Ed25519.
    Ed25519,
    /// RSA of 3072 bits.
    Rsa3072,
    /// RSA of 4096 bits.
    Rsa4096,
}

impl PodKeyType {
    /// All kinds that a pod may ask for.
    pub const ALL: [Self; 6] = [
        Self::EcdsaP256,
        Self::EcdsaP384,
        Self::EcdsaP521,
        Self::Ed25519,
        Self::Rsa3072,
        Self::Rsa4096,
    ];

    /// Its word in a pod's volume.
    pub fn word(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "ECDSAP256",
            Self::EcdsaP384 => "ECDSAP384",
            Self::EcdsaP521 => "ECDSAP521",
            Self::Ed25519 => "ED25519",
            Self::Rsa3072 => "RSA3072",
            Self::Rsa4096 => "RSA4096",
        }
    }

    /// The kind of that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// What a key is; `None`: something that no pod may ask for.
    pub(crate) fn of(key: KeyType) -> Option<Self> {
        match key {
            KeyType::Ec(Curve::P256) => Some(Self::EcdsaP256),
            KeyType::Ec(Curve::P384) => Some(Self::EcdsaP384),
            KeyType::Ec(Curve::P521) => Some(Self::EcdsaP521),
            KeyType::Ed25519 => Some(Self::Ed25519),
            KeyType::Rsa { bits: 3072 } => Some(Self::Rsa3072),
            KeyType::Rsa { bits: 4096 } => Some(Self::Rsa4096),
            KeyType::Rsa { .. } => None,
        }
    }
}

/// A request that fits its pod and that a policy has approved.
#[derive(Clone, Copy, Debug)]
pub struct PodOrder<'a> {
    /// The object's name.
    pub name: &'a str,
    /// The object's identity.
    pub uid: &'a str,
    /// Which signer shall sign.
    pub signer: &'a SignerName,
    /// Whom the certificate is for: every name in it comes from here.
    pub pod: &'a PodFacts,
    /// The message of the key's holder, which has a key and nothing else.
    pub stub: &'a CheckedCsr,
    /// The longest lifetime that the cluster takes, in seconds.
    pub max_seconds: u64,
    /// The rule that approved it, and its explanation.
    pub approval: (&'a str, &'a str),
}

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodSigning {
    /// Signed.
    Certificate(PodCertificate),
    /// It can never be signed: the condition `Failed` with this reason and message.
    Failed {
        /// In one word.
        reason: &'static str,
        /// In words.
        message: String,
    },
    /// Not now, in words; it is asked again.
    Later(String),
}

/// A certificate for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodCertificate {
    /// Itself and the CAs above it without the root, in order, as PEM.
    pub chain: String,
    /// By which it can be revoked.
    pub id: CertificateId,
    /// Its first second.
    pub not_before: UnixTime,
    /// Its last second.
    pub not_after: UnixTime,
}
