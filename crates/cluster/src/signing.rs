//! Where the signer controller meets whoever signs. This crate holds no key: it hands approved requests over and writes what
//! comes back.

use countersign_authority::{Confirmation, IssuerId};
use countersign_pki::{CheckedCsr, Serial, UnixTime};
use countersign_policy::{Looked, Requester, SignerName, TokenFacts, Wishes};
use futures_util::future::BoxFuture;

/// Whoever signs approved requests of a cluster.
pub trait Signer: Send + Sync {
    /// Whether requests for this signer are his; asked before anything else, from memory.
    fn serves(&self, signer: &SignerName) -> bool;

    /// Signs one. It may be asked again for a request that it has signed, after a crash or a lost answer: the same `uid`
    /// gets the same certificate, or one as good.
    fn sign<'a>(&'a self, request: ApprovedRequest<'a>) -> BoxFuture<'a, Signing>;

    /// Revokes a certificate that never reached its request, a pod's too; or says why it cannot now.
    fn discard<'a>(&'a self, id: &'a CertificateId) -> BoxFuture<'a, Result<(), String>>;

    /// What rules see of the enrolment token in a request that is not approved yet. Nothing is used up.
    fn token<'a>(&'a self, request: ApprovedRequest<'a>) -> BoxFuture<'a, Looked<TokenFacts>>;

    /// Uses the token up, for a request that a rule approves by it; its approval is what the rule says. It may be asked again
    /// for the same `uid`, after a crash or a lost answer.
    fn spend_token<'a>(&'a self, request: ApprovedRequest<'a>) -> BoxFuture<'a, Spending>;
}

/// What became of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spending {
    /// It is used up for this request, now or before: the request is approved.
    Spent,
    /// It is not, and the request is looked at again.
    Again(String),
    /// It is not, and will not be: in words. The request waits.
    Refused(String),
}

/// A request that the cluster says is approved, or is about to.
#[derive(Clone, Copy, Debug)]
pub struct ApprovedRequest<'a> {
    /// The object's name.
    pub name: &'a str,
    /// The object's identity.
    pub uid: &'a str,
    /// Which signer shall sign.
    pub signer: &'a SignerName,
    /// Who sent it.
    pub requester: &'a Requester,
    /// Usages and lifetime.
    pub wishes: &'a Wishes,
    /// The verified message, or why it cannot be read.
    pub csr: Result<&'a CheckedCsr, &'a str>,
    /// When it was made.
    pub created: UnixTime,
    /// Reason and message of its approval.
    pub approval: (&'a str, &'a str),
    /// Whether it may have been handed over before.
    pub attempt: Attempt<'a>,
}

/// Whether a request may have been handed over before.
#[derive(Clone, Copy, Debug)]
pub enum Attempt<'a> {
    /// Its approval is being written, for the first time and by no token. It is signed once the approval is confirmed, and
    /// not before. If it carries a token, that one may have had it signed before.
    First(&'a Confirmation),
    /// It is approved. It may have been signed, by this process or one before it.
    Later,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signing {
    /// Somebody else signs it.
    NotMine,
    /// Signed.
    Certificate(SignedCertificate),
    /// It can never be signed: the condition `Failed` with this reason and message.
    Failed {
        /// In one word, for example `SignerValidationFailure`.
        reason: String,
        /// In words.
        message: String,
    },
    /// Not now, in words; it is asked again.
    Later(String),
}

/// A certificate for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedCertificate {
    /// Itself and the CAs above it without the root, in order, as PEM.
    pub pem: String,
    /// By which it can be revoked.
    pub id: CertificateId,
}

/// Which certificate, for whoever signed it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CertificateId {
    /// Who signed it.
    pub issuer: IssuerId,
    /// Its serial there.
    pub serial: Serial,
}
