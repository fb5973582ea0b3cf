//! Revocation lists that we issue (RFC 5280 5).

use crate::der::{self, tag};
use crate::ext;
use crate::extension::Extension;
use crate::oid;
use crate::serial::Serial;
use crate::signature::SignatureAlgorithm;
use crate::template::{EncodeFault, check_sequence};
use crate::time::UnixTime;

/// Everything that goes into a complete revocation list.
#[derive(Debug, Clone)]
pub struct CrlTemplate<'a> {
    /// What the issuer will sign with.
    pub algorithm: SignatureAlgorithm,
    /// The subject of the issuer's certificate, verbatim.
    pub issuer_name_der: &'a [u8],
    /// When the list was made.
    pub this_update: UnixTime,
    /// When a newer one will be there at the latest.
    pub next_update: UnixTime,
    /// Grows with every list.
    pub number: u64,
    /// The issuer's subject key identifier; empty if its certificate has none.
    pub authority_key_id: &'a [u8],
    /// What is revoked, in the order in which it is written.
    pub entries: &'a [RevokedEntry],
}

impl CrlTemplate<'_> {
    /// The DER of the version 2 TBSCertList (RFC 5280 5.1). Its cost is linear in the entries.
    ///
    /// # Errors
    /// If the issuer's name is not one DER sequence or a time cannot be expressed.
    pub fn to_be_signed(&self) -> Result<Vec<u8>, EncodeFault> {
        check_sequence("issuer", self.issuer_name_der)?;
        if self.next_update < self.this_update {
            return Err(EncodeFault::ValidityReversed);
        }
        let mut updates = Vec::with_capacity(36);
        for time in [self.this_update, self.next_update] {
            der::write_time(&mut updates, time).ok_or(EncodeFault::Time { time })?;
        }
        let mut entries = Vec::with_capacity(self.entries.len().saturating_mul(ENTRY_OCTETS));
        for entry in self.entries {
            entry.write(&mut entries)?;
        }
        let mut extensions = vec![ext::crl_number(self.number)];
        if !self.authority_key_id.is_empty() {
            extensions.insert(0, ext::authority_key_id(self.authority_key_id));
        }

        let mut out = Vec::with_capacity(entries.len().saturating_add(512));
        der::write_nested(&mut out, tag::SEQUENCE, |out| {
            out.extend_from_slice(&VERSION_2);
            self.algorithm.write(out);
            out.extend_from_slice(self.issuer_name_der);
            out.extend_from_slice(&updates);
            // RFC 5280 5.1.2.6: the list of entries is absent, not empty.
            if !entries.is_empty() {
                der::write(out, tag::SEQUENCE, &entries);
            }
            der::write_nested(out, tag::CONTEXT_0, |out| {
                der::write_nested(out, tag::SEQUENCE, |out| {
                    extensions.iter().for_each(|e| e.write(out));
                });
            });
        });
        Ok(out)
    }
}

/// One revoked certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevokedEntry {
    /// Its serial.
    pub serial: Serial,
    /// When it was revoked.
    pub at: UnixTime,
    /// Why.
    pub reason: RevocationReason,
}

impl RevokedEntry {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeFault> {
        let mut time = Vec::with_capacity(17);
        der::write_time(&mut time, self.at).ok_or(EncodeFault::Time { time: self.at })?;
        der::write_nested(out, tag::SEQUENCE, |out| {
            der::write_unsigned(out, self.serial.as_bytes());
            out.extend_from_slice(&time);
            // RFC 5280 5.3.1: unspecified is said by silence.
            if self.reason != RevocationReason::Unspecified {
                der::write_nested(out, tag::SEQUENCE, |out| {
                    self.reason.to_extension().write(out)
                });
            }
        });
        Ok(())
    }
}

/// CRLReason (RFC 5280 5.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RevocationReason {
    /// No reason given.
    Unspecified,
    /// The private key is or may be known to others.
    KeyCompromise,
    /// The same of an authority.
    CaCompromise,
    /// The subject's name or affiliation changed.
    AffiliationChanged,
    /// Replaced by another certificate.
    Superseded,
    /// No longer needed.
    CessationOfOperation,
    /// On hold, may come back.
    CertificateHold,
    /// Came back; only in delta lists.
    RemoveFromCrl,
    /// A right that the certificate states was withdrawn.
    PrivilegeWithdrawn,
    /// An attribute authority's key is known to others.
    AaCompromise,
}

impl RevocationReason {
    /// The number of the reason.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            RevocationReason::Unspecified => 0,
            RevocationReason::KeyCompromise => 1,
            RevocationReason::CaCompromise => 2,
            RevocationReason::AffiliationChanged => 3,
            RevocationReason::Superseded => 4,
            RevocationReason::CessationOfOperation => 5,
            RevocationReason::CertificateHold => 6,
            RevocationReason::RemoveFromCrl => 8,
            RevocationReason::PrivilegeWithdrawn => 9,
            RevocationReason::AaCompromise => 10,
        }
    }

    /// The reason with this number; 7 is unused.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        ALL_REASONS.into_iter().find(|reason| reason.code() == code)
    }

    /// The name in RFC 5280, which is what people type and read.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RevocationReason::Unspecified => "unspecified",
            RevocationReason::KeyCompromise => "keyCompromise",
            RevocationReason::CaCompromise => "cACompromise",
            RevocationReason::AffiliationChanged => "affiliationChanged",
            RevocationReason::Superseded => "superseded",
            RevocationReason::CessationOfOperation => "cessationOfOperation",
            RevocationReason::CertificateHold => "certificateHold",
            RevocationReason::RemoveFromCrl => "removeFromCRL",
            RevocationReason::PrivilegeWithdrawn => "privilegeWithdrawn",
            RevocationReason::AaCompromise => "aACompromise",
        }
    }

    /// The reason with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        ALL_REASONS.into_iter().find(|reason| reason.name() == name)
    }

    fn to_extension(self) -> Extension {
        Extension {
            oid: oid::REASON_CODE,
            critical: false,
            value: vec![tag::ENUMERATED, 1, self.code()],
        }
    }
}

const ALL_REASONS: [RevocationReason; 10] = [
    RevocationReason::Unspecified,
    RevocationReason::KeyCompromise,
    RevocationReason::CaCompromise,
    RevocationReason::AffiliationChanged,
    RevocationReason::Superseded,
    RevocationReason::CessationOfOperation,
    RevocationReason::CertificateHold,
    RevocationReason::RemoveFromCrl,
    RevocationReason::PrivilegeWithdrawn,
    RevocationReason::AaCompromise,
];

const VERSION_2: [u8; 3] = [tag::INTEGER, 1, 1];
const ENTRY_OCTETS: usize = 52; // a random serial, a UTCTime and a reason

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_go_both_ways() {
        for reason in ALL_REASONS {
            assert_eq!(RevocationReason::from_code(reason.code()), Some(reason));
            assert_eq!(RevocationReason::from_name(reason.name()), Some(reason));
        }
        assert_eq!(RevocationReason::from_code(7), None);
    }
}
