//! What goes on record when a CA of others becomes ours, whether it comes as a directory or in files.

use anyhow::Result;
use countersign_authority::{
    AuditEntry, Clock as _, CrlRecord, CrlScope, Entropy as _, ImportDigest, IssuerId, LedgerEntry,
    RequestId, Revision, SystemClock,
};
use countersign_keys::SystemEntropy;
use countersign_pki::{Crl, Fingerprint, UnixTime, fingerprint_sha256, oid};
use countersign_policy::{Deciding, Effect, Explanation, ReasonCode, Requester, SignerName};
use countersign_puppet_compat::cadir::Holding;

use crate::signers;

/// What all records of one adoption have in common.
pub(super) struct Adoption {
    pub(super) issuer: IssuerId,
    pub(super) agent: SignerName,
    pub(super) administrator: SignerName,
    at: UnixTime,
    explanation: Explanation,
    random: [u8; 6],
}

impl Adoption {
    /// For a reason that stands beside every certificate.
    pub(super) fn new(reason: String) -> Result<Self> {
        let at = SystemClock.now();
        let mut random = [0; 6];
        SystemEntropy.fill(&mut random)?;
        Ok(Self {
            issuer: IssuerId::parse(signers::PUPPET_ISSUER)?,
            agent: SignerName::parse(signers::PUPPET_AGENT)?,
            administrator: SignerName::parse(signers::PUPPET_ADMIN)?,
            at,
            // No certificate without a decision: this one is the decision to go on with what another authority did.
            explanation: Explanation {
                by: Some(Deciding::Person {
                    actor: Requester::authority(),
                    reason,
                }),
                code: ReasonCode::Authority,
                ..Explanation::new(Effect::Approve, at, 0)
            },
            random,
        })
    }

    /// The entry of a certificate; `number` tells it from the others.
    pub(super) fn entry(&self, holding: &Holding, number: u32) -> Result<LedgerEntry> {
        let certificate = holding.certificate()?;
        let is_administrator = certificate
            .as_ref()
            .is_some_and(|it| it.extension(&oid::PP_CLI_AUTH).is_some());
        let signer = match is_administrator {
            true => &self.administrator,
            false => &self.agent,
        };
        let key_fingerprint = certificate.as_ref().map_or_else(
            || Fingerprint::from_bytes([0; 32]),
            |it| fingerprint_sha256(it.spki_der()),
        );
        Ok(LedgerEntry {
            issuer: self.issuer.clone(),
            serial: holding.serial,
            request: RequestId::in_sequence(self.at, number, self.random),
            signer: signer.clone(),
            name: holding.name.clone(),
            key_fingerprint,
            not_before: holding.not_before,
            not_after: holding.not_after,
            // What is no longer shown leaves its name free.
            retired: (!holding.is_shown).then_some(self.at),
            der: certificate.map_or_else(Vec::new, |it| it.der().to_vec()),
            explanation: self.explanation.clone(),
            revoked: holding.revoked,
        })
    }

    /// The CA's own list, served as it is until the next one, whose number follows. It may be relied on up to `end` if it
    /// does not say until when. `None`: its number does not fit in 64 bits.
    pub(super) fn crl(
        &self,
        list: &Crl,
        scope: CrlScope,
        covers: Revision,
        end: UnixTime,
    ) -> Option<CrlRecord> {
        let number = match list.number_bytes() {
            None => 0,
            Some(_) => list.number()?,
        };
        Some(CrlRecord {
            issuer: self.issuer.clone(),
            scope,
            number,
            covers,
            this_update: list.this_update(),
            next_update: list.next_update().unwrap_or(end),
            der: list.der().to_vec(),
        })
    }

    /// What the audit log says of it: among other things which certificates came with it, so that none can be taken away
    /// or added later.
    pub(super) fn audit(&self, detail: String, all: &[Holding]) -> AuditEntry {
        let imported = all
            .iter()
            .map(|holding| (holding.serial, holding.revoked.is_some()));
        AuditEntry::own(self.at, "import", self.issuer.to_string())
            .imported(ImportDigest::of(imported))
            .detail(detail)
    }
}
