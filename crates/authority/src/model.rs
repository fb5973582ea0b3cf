//! What is stored: requests, intents, ledger entries, revocations, CRLs.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use countersign_pki::{Certificate, Crl, Fingerprint, RevocationReason, Serial, UnixTime};
use countersign_policy::{Explanation, Machine, RecordedEvidence, Requester, SignerName, Wishes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::audit::AuditEntry;
use crate::issuer::chain::key_id;
use crate::issuer::{IssuerFault, IssuerId};

/// The place of a change in commit order. Zero is before the first.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a door. The engine gives it no meaning: it separates the doors' keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Door(Cow<'static, str>);

impl Door {
    /// None: certificates that the authority makes for itself and its administrators.
    pub const LOCAL: Self = Self::named("local");

    /// A door's name, known at compile time.
    pub const fn named(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// A door's name read from the store or from a caller.
    pub fn from_text(name: String) -> Self {
        Self(Cow::Owned(name))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The engine's identity of a request: a UUID whose first bits are the time, so that new ones sort last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId([u8; 16]);

impl RequestId {
    /// Builds a version 7 UUID (RFC 9562 5.7) from a time and random bytes.
    pub fn new(at: UnixTime, random: [u8; 10]) -> Self {
        let millis = u64::try_from(at.0)
            .unwrap_or(0)
            .saturating_mul(1000)
            .to_be_bytes();
        let [_, _, t0, t1, t2, t3, t4, t5] = millis;
        let [r0, r1, r2, r3, r4, r5, r6, r7, r8, r9] = random;
        Self([
            t0,
            t1,
            t2,
            t3,
            t4,
            t5,
            0x70 | (r0 & 0x0f),
            r1,
            0x80 | (r2 & 0x3f),
            r3,
            r4,
            r5,
            r6,
            r7,
            r8,
            r9,
        ])
    }

    /// The same with a counter after the time (RFC 9562 6.2, a fixed-length dedicated counter): the clock counts whole
    /// seconds, and many requests come in one. The counter's low 26 bits are used.
    pub fn in_sequence(at: UnixTime, sequence: u32, random: [u8; 6]) -> Self {
        let [s0, s1, s2, s3] = (sequence & 0x03ff_ffff).to_be_bytes();
        // 4 bits, 8 bits, 6 bits, 8 bits: the places that version and variant leave.
        let high = (s0 << 2) | (s1 >> 6);
        let middle = (s1 << 2) | (s2 >> 6);
        let [r0, r1, r2, r3, r4, r5] = random;
        Self::new(at, [high, middle, s2 & 0x3f, s3, r0, r1, r2, r3, r4, r5])
    }

    /// The 16 bytes, for storage.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// From storage.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// From its text form.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0u8; 16];
        let mut digits = text.bytes().filter(|b| *b != b'-');
        for byte in &mut bytes {
            let high = char::from(digits.next()?).to_digit(16)?;
            let low = char::from(digits.next()?).to_digit(16)?;
            *byte = u8::try_from(high * 16 + low).ok()?;
        }
        let id = Self(bytes);
        (digits.next().is_none() && id.to_string().eq_ignore_ascii_case(text)).then_some(id)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a request stands.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum RequestState {
    /// Undecided.
    Pending,
    /// Approved; its certificate is being made, or its signer is not ours.
    Approved,
    /// Approved, and its certificate is in the ledger.
    Issued,
    /// Denied.
    Denied,
    /// Approved, but its signer cannot sign such a request; or a renewal that was not completed.
    Failed,
    /// Evidence could not be had: its sender was told to come back, and it does not wait.
    Undecided,
}

impl RequestState {
    /// The word in listings and in the store.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Issued => "issued",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Undecided => "undecided",
        }
    }

    /// The state of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        [
            Self::Pending,
            Self::Approved,
            Self::Issued,
            Self::Denied,
            Self::Failed,
            Self::Undecided,
        ]
        .into_iter()
        .find(|state| state.word() == word)
    }
}

/// A request on record.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// The engine's identity of it.
    pub id: RequestId,
    /// The door it came through.
    pub door: Door,
    /// Its name at that door.
    pub key: String,
    /// Whether it still occupies its name at the door.
    pub live: bool,
    /// Whether it goes on occupying its name once issued.
    pub retained: bool,
    /// The revision of its last change.
    pub version: Revision,
    /// Where it stands.
    pub state: RequestState,
    /// The signer asked for.
    pub signer: SignerName,
    /// The PKCS#10 message, exactly as received.
    pub csr_der: Vec<u8>,
    /// SHA-256 of its public key.
    pub key_fingerprint: Fingerprint,
    /// Who sent it.
    pub requester: Requester,
    /// What it asked for beside the message.
    pub wishes: Wishes,
    /// When it arrived.
    pub created: UnixTime,
    /// The decision and its explanation; pending ones say which rules abstained.
    pub explanation: Explanation,
    /// What the decision rests on that cannot be had again.
    pub evidence: RecordedEvidence,
    /// Why the signer cannot sign it, if it cannot.
    pub failure: Option<String>,
    /// The issued certificate.
    pub certificate: Option<(IssuerId, Serial)>,
    /// The door's own data, opaque here.
    pub attachment: Vec<u8>,
}

/// The process that owns an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner(pub String);

/// The durable statement that a certificate with this serial is about to be signed.
#[derive(Clone, Debug)]
pub struct Intent {
    /// Who signs.
    pub issuer: IssuerId,
    /// The serial it will carry; burned if the intent is voided.
    pub serial: Serial,
    /// The request it answers.
    pub request: RequestId,
    /// The signer whose profile shaped it.
    pub signer: SignerName,
    /// The name in the ledger: certname, or common name.
    pub name: String,
    /// SHA-256 of the subject's public key.
    pub key_fingerprint: Fingerprint,
    /// Start of validity.
    pub not_before: UnixTime,
    /// End of validity.
    pub not_after: UnixTime,
    /// The decision that allows it.
    pub explanation: Explanation,
    /// Only this process completes it...
    pub owner: Owner,
    /// ...until then; afterwards anyone may void it.
    pub lease_until: UnixTime,
    /// The request, if it is stored with its certificate and not before; `None`: it is on record.
    pub deferred: Option<Arc<DeferredRequest>>,
}

/// A request that was approved on arrival. Its intent holds it until it is written for good, with its certificate or, if
/// that cannot be made, without.
#[derive(Clone, Debug)]
pub struct DeferredRequest {
    /// The request as it stands without a certificate. Its door does not retain it.
    pub request: Arc<RequestRecord>,
    /// What the audit log will say of it.
    pub audit: Vec<AuditEntry>,
}

/// A signed certificate with the decision that led to it.
#[derive(Clone, Debug)]
pub struct LedgerEntry {
    /// Who signed.
    pub issuer: IssuerId,
    /// Its serial.
    pub serial: Serial,
    /// The request it answers.
    pub request: RequestId,
    /// The signer.
    pub signer: SignerName,
    /// The name in the ledger.
    pub name: String,
    /// SHA-256 of the subject's public key.
    pub key_fingerprint: Fingerprint,
    /// Start of validity.
    pub not_before: UnixTime,
    /// End of validity.
    pub not_after: UnixTime,
    /// The certificate. Empty where only its inventory line was taken over from another authority.
    pub der: Vec<u8>,
    /// The decision.
    pub explanation: Explanation,
    /// Its revocation, if it was revoked.
    pub revoked: Option<Revoked>,
    /// When it was retired, if it was.
    pub retired: Option<UnixTime>,
}

/// What a listing of certificates shows of one: the entry without the decision and whatever else only few ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedCertificate {
    /// The name in the ledger.
    pub name: String,
    /// Its serial.
    pub serial: Serial,
    /// Start of validity.
    pub not_before: UnixTime,
    /// End of validity.
    pub not_after: UnixTime,
    /// Whether it was revoked.
    pub is_revoked: bool,
    /// The certificate. Empty where only its inventory line was taken over from another authority.
    pub der: Vec<u8>,
}

impl From<LedgerEntry> for ListedCertificate {
    fn from(entry: LedgerEntry) -> Self {
        Self {
            name: entry.name,
            serial: entry.serial,
            not_before: entry.not_before,
            not_after: entry.not_after,
            is_revoked: entry.revoked.is_some(),
            der: entry.der,
        }
    }
}

/// When and why a certificate was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// When.
    pub at: UnixTime,
    /// Why.
    pub reason: RevocationReason,
}

/// One revocation, as the index and the CRL need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Whose certificate.
    pub issuer: IssuerId,
    /// Which.
    pub serial: Serial,
    /// When and why.
    pub revoked: Revoked,
    /// The certificate's end; afterwards it leaves the CRL.
    pub not_after: UnixTime,
    /// Whether CRLs show it. One that an administrator took off them is refused here all the same.
    pub listed: bool,
}

/// Which revocations a CRL shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrlScope {
    /// All of them.
    Full,
    /// Those of the site's own machines, which agents must not talk to.
    Infrastructure,
}

impl CrlScope {
    /// The word in the store.
    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Infrastructure => "infrastructure",
        }
    }

    /// The scope of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Full, Self::Infrastructure]
            .into_iter()
            .find(|scope| scope.word() == word)
    }
}

/// A CRL of a CA above the issuer. It comes from there; it is kept and served, never made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AncestorCrl {
    /// The key identifier of the CA that signed it.
    pub key_id: Vec<u8>,
    /// Its CRL number, as a big-endian magnitude without leading zeros (RFC 5280 5.2.3 allows 20 octets);
    /// empty if it has none, too.
    pub number: Vec<u8>,
    /// Its place behind the issuer's own CRL.
    pub position: u32,
    /// The signed list.
    pub der: Vec<u8>,
}

impl AncestorCrl {
    /// The list of a CA of the chain.
    pub fn new(ca: &Certificate, position: u32, list: &Crl) -> Result<Self, IssuerFault> {
        Ok(Self {
            key_id: key_id(ca)?,
            number: list.number_bytes().unwrap_or_default().to_vec(),
            position,
            der: list.der().to_vec(),
        })
    }
}

/// A published CRL.
#[derive(Clone, Debug)]
pub struct CrlRecord {
    /// Whose.
    pub issuer: IssuerId,
    /// What it shows.
    pub scope: CrlScope,
    /// Its CRL number.
    pub number: u64,
    /// Every revocation up to this revision stands in it.
    pub covers: Revision,
    /// When it was made.
    pub this_update: UnixTime,
    /// Until when it may be relied on.
    pub next_update: UnixTime,
    /// The signed list.
    pub der: Vec<u8>,
}

/// An inventory record with what the store knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineRecord {
    /// The record.
    pub machine: Machine,
    /// The revision of its last change.
    pub version: Revision,
    /// The request by which it enrolled first.
    pub request: Option<RequestId>,
}

/// The form in which the inventory keeps and compares names: in lower case, without a dot at the end.
pub fn inventory_name(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// A policy as it was put in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyVersion {
    /// Its number; the next one is one higher.
    pub generation: u64,
    /// SHA-256 of its text.
    pub digest: Fingerprint,
    /// When it came in force.
    pub loaded: UnixTime,
    /// Its documents, and what the settings add to them.
    pub text: String,
}

/// A decider's word that counts for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RememberedAllow {
    /// The decider's address.
    pub webhook: String,
    /// The name it allowed.
    pub name: String,
    /// SHA-256 of what was asked for and by which key.
    pub asked: Fingerprint,
    /// Until when.
    pub until: UnixTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_of_one_second_keep_their_order() {
        let at = UnixTime(1_800_000_000);
        let numbers = [
            0,
            1,
            63,
            64,
            255,
            256,
            16_383,
            16_384,
            4_194_303,
            4_194_304,
            0x03ff_ffff,
        ];
        let ids: Vec<RequestId> = numbers
            .iter()
            .map(|n| RequestId::in_sequence(at, *n, [7; 6]))
            .collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        let later = RequestId::in_sequence(at.plus_seconds(1), 0, [0; 6]);
        assert!(ids.iter().all(|id| *id < later));
        for id in ids {
            assert_eq!(RequestId::parse(&id.to_string()), Some(id));
            assert_eq!(id.to_string().as_bytes().get(14), Some(&b'7'), "version 7");
        }
    }
}
