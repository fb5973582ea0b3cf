//! Entries, seals and checkpoints of the audit log as JSON objects, for both sides of the interface.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_authority::{AuditPlace, AuditRecord, Revision, Seal, SealHead};
use countersign_pki::{Fingerprint, UnixTime};
use countersign_policy::Effect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One entry. The members of the first group are there always, and null where there is nothing to say.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AuditEntry")]
pub struct AuditItem {
    /// When; null only for an entry that cannot be read.
    pub time: Option<UnixTime>,
    /// The request concerned.
    pub request_id: Option<String>,
    /// What was done.
    pub event: Option<String>,
    /// The name that it is about.
    pub certname: Option<String>,
    /// The enrolment token concerned.
    pub token_id: Option<String>,
    /// Why, in one word.
    pub reason: Option<String>,
    /// The public key concerned: its SHA-256 in lower-case hexadecimal digits.
    pub spki_sha256: Option<String>,
    /// The request message concerned: its SHA-256 in lower-case hexadecimal digits.
    pub csr_sha256: Option<String>,
    /// The address from which it was done.
    pub source: Option<IpAddr>,
    /// Who did it.
    pub actor: Option<String>,
    /// The certificate concerned: its serial number in hexadecimal digits.
    pub serial: Option<String>,
    /// The process that wrote it.
    pub replica: Option<String>,

    /// The commit that wrote it.
    pub revision: u64,
    /// Its place among that commit's entries.
    pub seq: u64,
    /// To what it was done.
    pub subject: Option<String>,
    /// What was decided.
    pub verdict: Option<Effect>,
    /// The policy that decided.
    pub generation: Option<u64>,
    /// In words.
    pub detail: Option<String>,
    /// The text that is hashed; only where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<String>,
}

impl AuditItem {
    pub(super) fn new(record: &AuditRecord) -> Self {
        let said = |text: String| (!text.is_empty()).then_some(text);
        let AuditPlace { revision, seq } = record.place;
        let Some(entry) = record.entry() else {
            return Self::unreadable(record.place);
        };
        Self {
            time: Some(entry.at),
            actor: Some(entry.actor_name().to_owned()),
            source: entry.actor.source,
            request_id: entry.request,
            event: Some(entry.action.into_owned()),
            certname: entry.certname,
            token_id: entry.token,
            reason: said(entry.reason.into_owned()),
            spki_sha256: entry.spki_sha256,
            csr_sha256: entry.csr_sha256,
            serial: entry.serial,
            replica: said(entry.replica),
            revision: revision.0,
            seq,
            subject: Some(entry.subject),
            verdict: entry.verdict,
            generation: entry.generation,
            detail: said(entry.detail),
            stored: None,
        }
    }

    pub(super) fn with_text(record: &AuditRecord) -> Self {
        Self {
            stored: Some(String::from_utf8_lossy(&record.stored).into_owned()),
            ..Self::new(record)
        }
    }

    /// Somebody has changed it: it is listed all the same.
    fn unreadable(AuditPlace { revision, seq }: AuditPlace) -> Self {
        Self {
            time: None,
            request_id: None,
            event: None,
            certname: None,
            token_id: None,
            reason: None,
            spki_sha256: None,
            csr_sha256: None,
            source: None,
            actor: None,
            serial: None,
            replica: None,
            revision: revision.0,
            seq,
            subject: None,
            verdict: None,
            generation: None,
            detail: None,
            stored: None,
        }
    }

    /// The entry as it is kept, where its text was asked for.
    pub fn record(&self) -> Option<AuditRecord> {
        Some(AuditRecord {
            place: AuditPlace {
                revision: Revision(self.revision),
                seq: self.seq,
            },
            stored: self.stored.as_ref()?.clone().into_bytes(),
        })
    }
}

/// What is signed of a seal: it says everything about the log up to its last entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// The number of the seal, counted from 1.
    number: u64,
    /// When it was made.
    time: UnixTime,
    /// The first entry that it seals.
    first: AuditPlace,
    /// The last entry that it seals.
    last: AuditPlace,
    /// How many entries that is.
    count: u64,
    /// The hash of the entry before its first, in lower-case hexadecimal digits.
    previous: String,
    /// The hash of its last entry, in lower-case hexadecimal digits.
    hash: String,
    /// The key that signed it: its SHA-256 in lower-case hexadecimal digits.
    key_sha256: String,
    /// The signature over it, in base64.
    signature: String,
}

/// Why a text is no checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{member} of the checkpoint is not as it was written")]
pub struct CheckpointFault {
    member: &'static str,
}

impl Checkpoint {
    /// The checkpoint of a seal.
    pub fn of(head: &SealHead) -> Self {
        Self {
            number: head.number,
            time: head.at,
            first: head.first,
            last: head.last,
            count: head.count,
            previous: head.previous.to_hex(),
            hash: head.hash.to_hex(),
            key_sha256: head.key_id.to_hex(),
            signature: STANDARD.encode(&head.signature),
        }
    }

    /// The seal's head again.
    ///
    /// # Errors
    /// If a member has another form than it was given.
    pub fn head(&self) -> Result<SealHead, CheckpointFault> {
        let fault = |member| CheckpointFault { member };
        let hash = |text: &str, member| digest(text).ok_or(fault(member));
        Ok(SealHead {
            number: self.number,
            first: self.first,
            last: self.last,
            count: self.count,
            previous: hash(&self.previous, "previous")?,
            hash: hash(&self.hash, "hash")?,
            at: self.time,
            key_id: hash(&self.key_sha256, "key_sha256")?,
            signature: STANDARD
                .decode(&self.signature)
                .map_err(|_| fault("signature"))?,
        })
    }
}

/// A seal: its checkpoint, and the hashes of its entries.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Seal")]
pub struct SealItem {
    #[serde(flatten)]
    checkpoint: Checkpoint,
    /// SHA-256 of each entry, 32 octets each, in base64.
    hashes: String,
}

impl SealItem {
    pub(super) fn new(seal: &Seal) -> Self {
        let hashes: Vec<u8> = seal
            .hashes
            .iter()
            .flat_map(|hash| *hash.as_bytes())
            .collect();
        Self {
            checkpoint: Checkpoint::of(&seal.head),
            hashes: STANDARD.encode(hashes),
        }
    }

    /// The seal again.
    ///
    /// # Errors
    /// If a member has another form than it was given.
    pub fn seal(&self) -> Result<Seal, CheckpointFault> {
        let fault = || CheckpointFault { member: "hashes" };
        let octets = STANDARD.decode(&self.hashes).map_err(|_| fault())?;
        let hashes = octets.chunks(32).map(|hash| {
            let hash = <[u8; 32]>::try_from(hash).map_err(|_| fault())?;
            Ok(Fingerprint::from_bytes(hash))
        });
        Ok(Seal {
            head: self.checkpoint.head()?,
            hashes: hashes.collect::<Result<_, _>>()?,
        })
    }
}

/// 64 hexadecimal digits.
fn digest(text: &str) -> Option<Fingerprint> {
    let mut octets = [0; 32];
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (octet, pair) in octets.iter_mut().zip(text.as_bytes().chunks(2)) {
        *octet = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(Fingerprint::from_bytes(octets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_pki::fingerprint_sha256;

    #[test]
    fn seals_and_checkpoints_come_back_from_their_json() {
        let place = |seq| AuditPlace {
            revision: Revision(7),
            seq,
        };
        let head = SealHead {
            number: 3,
            first: place(0),
            last: place(1),
            count: 2,
            previous: fingerprint_sha256(b"a"),
            hash: fingerprint_sha256(b"b"),
            at: UnixTime(1_800_000_000),
            key_id: fingerprint_sha256(b"c"),
            signature: vec![0, 1, 0xff],
        };
        let seal = Seal {
            hashes: vec![fingerprint_sha256(b"d"), head.hash],
            head: head.clone(),
        };
        let text = serde_json::to_string(&SealItem::new(&seal)).unwrap();
        let read: SealItem = serde_json::from_str(&text).unwrap();
        assert_eq!(read.seal().unwrap(), seal);
        let checkpoint = Checkpoint::of(&head);
        assert_eq!(checkpoint.head().unwrap(), head);
        let zeros = |count: usize| "0".repeat(count);
        for hash in [
            String::new(),
            zeros(63),
            zeros(65),
            "+f".to_owned() + &zeros(62),
            "é".repeat(32),
        ] {
            let wrong = Checkpoint {
                hash,
                ..checkpoint.clone()
            };
            assert_eq!(
                wrong.head(),
                Err(CheckpointFault { member: "hash" }),
                "{wrong:?}"
            );
        }
    }
}
