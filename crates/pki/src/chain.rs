//! Whether a certificate that a server shows leads to an authority that is trusted (RFC 5280 6.1, without policies).

use std::net::IpAddr;

use crate::alt_name::AltName;
use crate::certificate::Certificate;
use crate::ext::KeyUsage;
use crate::oid::{self, Oid};
use crate::time::UnixTime;

/// Why a chain is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// A certificate whose time has not come or is over.
    #[error("the certificate is valid only from {from} to {to}")]
    Time {
        /// First second.
        from: UnixTime,
        /// Last second.
        to: UnixTime,
    },
    /// It is for something else.
    #[error("the certificate is not for servers")]
    Usage,
    /// It has a critical extension that is not understood here.
    #[error("the certificate has the critical extension {oid}, which is not understood")]
    Critical {
        /// Which.
        oid: Oid,
    },
    /// It does not name the address that was dialled.
    #[error("the certificate does not name the address {address}")]
    Address {
        /// Which.
        address: IpAddr,
    },
    /// No way to a trusted authority.
    #[error("no trusted authority has issued the certificate")]
    Issuer,
    /// More ways than anybody looks for.
    #[error("the chain of certificates is too long or too tangled")]
    Tangled,
}

/// Verifies that `leaf` is a server's certificate at `now`, issued by one of `anchors` or by way of `intermediates`.
///
/// Every certificate on the way must be valid now and must not be limited to other usages; every issuer must be an
/// authority that may sign certificates, within its path length. A leaf that is an anchor itself is trusted.
///
/// # Errors
/// With the first reason found.
pub fn verify_server_chain(
    leaf: &Certificate,
    intermediates: &[Certificate],
    anchors: &[Certificate],
    address: Option<IpAddr>,
    now: UnixTime,
) -> Result<(), ChainFault> {
    usable(leaf, now)?;
    if let Some(address) = address {
        let dialled = address.to_canonical();
        let is_it =
            |name: &AltName| matches!(name, AltName::Ip(ip) if ip.to_canonical() == dialled);
        if !leaf.alt_names().iter().any(is_it) {
            return Err(ChainFault::Address { address });
        }
    }
    if anchors.iter().any(|anchor| anchor.der() == leaf.der()) {
        return Ok(());
    }
    let mut search = Search {
        intermediates,
        anchors,
        now,
        signatures: 0,
    };
    match search.leads_up(leaf, 0)? {
        true => Ok(()),
        false => Err(ChainFault::Issuer),
    }
}

struct Search<'a> {
    intermediates: &'a [Certificate],
    anchors: &'a [Certificate],
    now: UnixTime,
    /// Signatures verified so far.
    signatures: usize,
}

impl Search<'_> {
    /// Whether an anchor has issued a certificate that has so many authorities below it, directly or not.
    fn leads_up(&mut self, certificate: &Certificate, below: u32) -> Result<bool, ChainFault> {
        if below > MAX_DEPTH {
            return Err(ChainFault::Tangled);
        }
        for anchor in self.anchors {
            if self.has_issued(anchor, certificate, below)? {
                return Ok(true);
            }
        }
        for issuer in self.intermediates {
            let is_itself = issuer.der() == certificate.der();
            if !is_itself
                && self.has_issued(issuer, certificate, below)?
                && self.leads_up(issuer, below.saturating_add(1))?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_issued(
        &mut self,
        issuer: &Certificate,
        certificate: &Certificate,
        below: u32,
    ) -> Result<bool, ChainFault> {
        let may_sign = issuer
            .key_usage()
            .is_none_or(|usage| usage.contains(KeyUsage::KEY_CERT_SIGN));
        let is_authority = issuer.is_ca() && may_sign && usable(issuer, self.now).is_ok();
        let is_long_enough = issuer.path_length().is_none_or(|length| below <= length);
        let is_named = issuer.subject().der() == certificate.issuer().der();
        if !(is_named && is_authority && is_long_enough) {
            return Ok(false);
        }
        self.signatures = self.signatures.saturating_add(1);
        if self.signatures > MAX_SIGNATURES {
            return Err(ChainFault::Tangled);
        }
        Ok(certificate.verify_signed_by(issuer.spki_der()).is_ok())
    }
}

/// Whether one certificate, whichever it is on the way, may be part of a server's chain now.
fn usable(certificate: &Certificate, now: UnixTime) -> Result<(), ChainFault> {
    let (from, to) = (certificate.not_before(), certificate.not_after());
    if now < from || now > to {
        return Err(ChainFault::Time { from, to });
    }
    // RFC 5280 4.2.1.12: without the extension, for everything.
    let usages = certificate.extended_key_usages();
    let is_for_servers = [oid::EKU_SERVER_AUTH, oid::EKU_ANY];
    if !usages.is_empty() && !usages.iter().any(|usage| is_for_servers.contains(usage)) {
        return Err(ChainFault::Usage);
    }
    let unknown = certificate
        .extensions()
        .iter()
        .find(|extension| extension.critical && !UNDERSTOOD.contains(&extension.oid));
    match unknown {
        Some(extension) => Err(ChainFault::Critical { oid: extension.oid }),
        None => Ok(()),
    }
}

/// Those whose meaning is looked at, here or where the names are.
const UNDERSTOOD: [Oid; 4] = [
    oid::BASIC_CONSTRAINTS,
    oid::KEY_USAGE,
    oid::EXTENDED_KEY_USAGE,
    oid::SUBJECT_ALT_NAME,
];
/// Authorities between a server and its anchor.
const MAX_DEPTH: u32 = 6;
/// Bounds the cost of a bundle full of authorities of one name.
const MAX_SIGNATURES: usize = 64;
