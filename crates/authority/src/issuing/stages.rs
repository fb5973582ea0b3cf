//! The line from draft to certificate, as types.
//!
//! `Draft` → (intent durable) → [`Intended`] → (key) → [`Sealed`] → (record durable) → [`Issued`]. None
//! of them is `Clone`; the two constructors named `after_durable_commit` are the places to audit.

use std::sync::Arc;

use countersign_pki::{EncodeFault, SignatureAlgorithm, seal};

use crate::issuer::Issuer;
use crate::issuer::keystore::Signature;
use crate::model::{DeferredRequest, Intent, LedgerEntry};
use crate::store::Write;

/// What is about to be signed, and the intent that says so.
#[derive(Debug)]
pub struct Draft {
    intent: Intent,
    to_be_signed: Vec<u8>,
    /// As it was when this was drafted: its key signs this, whatever key the issuer has by then.
    issuer: Arc<Issuer>,
    /// The lifetime that was asked for.
    asked_seconds: Option<u64>,
}

impl Draft {
    pub(crate) fn new(
        intent: Intent,
        to_be_signed: Vec<u8>,
        issuer: Arc<Issuer>,
        asked_seconds: Option<u64>,
    ) -> Self {
        Self {
            intent,
            to_be_signed,
            issuer,
            asked_seconds,
        }
    }

    /// Who is to sign it.
    pub(crate) fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// The intent to be stored.
    pub fn intent(&self) -> &Intent {
        &self.intent
    }

    /// The same, with an intent that holds its request.
    #[must_use]
    pub(crate) fn holding(mut self, request: DeferredRequest) -> Self {
        self.intent.deferred = Some(Arc::new(request));
        self
    }

    /// What would be signed, to be looked at.
    pub(crate) fn to_be_signed(&self) -> &[u8] {
        &self.to_be_signed
    }
}

/// A draft whose intent is on disk: now the key may be used.
#[derive(Debug)]
pub struct Intended(Draft);

impl Intended {
    /// To be called only when the commit that holds the draft's intent was acknowledged.
    pub fn after_durable_commit(draft: Draft) -> Self {
        Self(draft)
    }

    /// The intent on record.
    pub fn intent(&self) -> &Intent {
        &self.0.intent
    }

    /// The algorithm the signature must have.
    pub fn algorithm(&self) -> SignatureAlgorithm {
        self.0.issuer.algorithm()
    }

    /// Who signs it.
    pub(crate) fn issuer(&self) -> &Arc<Issuer> {
        &self.0.issuer
    }

    /// What the key signs.
    pub fn to_be_signed(&self) -> &[u8] {
        &self.0.to_be_signed
    }

    /// The intent of what cannot be signed.
    pub(crate) fn into_intent(self) -> Intent {
        self.0.intent
    }

    /// Joins draft and signature; gives the intent back if they do not fit.
    pub fn seal(self, signature: &Signature) -> Result<Sealed, (Box<Intent>, EncodeFault)> {
        let der = match seal(&self.0.to_be_signed, self.algorithm(), &signature.0) {
            Ok(der) => der,
            Err(fault) => return Err((Box::new(self.0.intent), fault)),
        };
        Ok(Sealed {
            intent: self.0.intent,
            der,
            asked_seconds: self.0.asked_seconds,
        })
    }
}

/// A certificate that exists but is not on record: nobody may see it.
#[derive(Debug)]
pub struct Sealed {
    intent: Intent,
    der: Vec<u8>,
    asked_seconds: Option<u64>,
}

impl Sealed {
    /// The intent it completes.
    pub fn intent(&self) -> &Intent {
        &self.intent
    }

    /// The write that puts it on record.
    pub(crate) fn record(&self) -> Write {
        Write::Record {
            issuer: self.intent.issuer.clone(),
            serial: self.intent.serial,
            der: self.der.clone(),
        }
    }
}

/// A certificate on record: now it may be shown.
#[derive(Debug)]
pub struct Issued {
    intent: Intent,
    der: Vec<u8>,
    asked_seconds: Option<u64>,
}

impl Issued {
    /// To be called only when the commit that records the certificate was acknowledged.
    pub fn after_durable_commit(sealed: Sealed) -> Self {
        Self {
            intent: sealed.intent,
            der: sealed.der,
            asked_seconds: sealed.asked_seconds,
        }
    }

    /// The lifetime that was asked for, to be compared with what it got.
    pub(crate) fn asked_seconds(&self) -> Option<u64> {
        self.asked_seconds
    }

    /// The intent it completed: issuer, serial, name, validity.
    pub fn intent(&self) -> &Intent {
        &self.intent
    }

    /// The certificate.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The ledger's entry of it, as the commit has written it.
    pub(crate) fn into_entry(self) -> LedgerEntry {
        let Intent {
            issuer,
            serial,
            request,
            signer,
            name,
            key_fingerprint,
            not_before,
            not_after,
            explanation,
            owner: _,
            lease_until: _,
            deferred: _,
        } = self.intent;
        LedgerEntry {
            issuer,
            serial,
            request,
            signer,
            name,
            key_fingerprint,
            not_before,
            not_after,
            der: self.der,
            explanation,
            revoked: None,
            retired: None,
        }
    }
}
