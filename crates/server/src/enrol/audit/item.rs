//! Entries, seals and checkpoints of the audit log, from the engine's records to what the interface shows and back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_api::{AuditEntry, Checkpoint, Reconciliation, Revision, Seal};
use countersign_authority::{AuditPlace, AuditRecord, SealHead};
use countersign_pki::Fingerprint;

pub(super) fn entry(record: &AuditRecord) -> AuditEntry {
    let said = |text: String| (!text.is_empty()).then_some(text);
    let AuditPlace { revision, seq } = record.place;
    let Some(entry) = record.entry() else {
        return unreadable(record.place);
    };
    AuditEntry {
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

/// What a comparison came to, as the interface shows it.
#[must_use]
pub fn reconciliation(found: &countersign_authority::Reconciliation) -> Reconciliation {
    Reconciliation {
        certificates: found.certificates,
        revoked: found.revoked,
        token_uses: found.token_uses,
        not_covered: found.not_covered,
        found: found.found,
        findings: found.findings.iter().map(ToString::to_string).collect(),
    }
}

pub(super) fn with_text(record: &AuditRecord) -> AuditEntry {
    AuditEntry {
        stored: Some(String::from_utf8_lossy(&record.stored).into_owned()),
        ..entry(record)
    }
}

/// Somebody has changed it: it is listed all the same.
fn unreadable(AuditPlace { revision, seq }: AuditPlace) -> AuditEntry {
    AuditEntry {
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

/// The signed part of a seal, as it is shown and kept elsewhere.
pub fn checkpoint(head: &SealHead) -> Checkpoint {
    Checkpoint {
        number: head.number,
        time: head.at,
        first: place(head.first),
        last: place(head.last),
        count: head.count,
        previous: head.previous.to_hex(),
        hash: head.hash.to_hex(),
        key_sha256: head.key_id.to_hex(),
        signature: STANDARD.encode(&head.signature),
    }
}

pub(super) fn seal(seal: &countersign_authority::Seal) -> Seal {
    let hashes = seal.hashes.iter().flat_map(|hash| *hash.as_bytes());
    Seal {
        checkpoint: checkpoint(&seal.head),
        hashes: STANDARD.encode(hashes.collect::<Vec<u8>>()),
    }
}

fn place(AuditPlace { revision, seq }: AuditPlace) -> countersign_api::AuditPlace {
    countersign_api::AuditPlace {
        revision: Revision(revision.0),
        seq,
    }
}

/// Why a text is no checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{member} of the checkpoint is not as it was written")]
pub struct CheckpointFault {
    member: &'static str,
}

/// The entry as it is kept, where its text was asked for.
pub fn record_of(entry: &AuditEntry) -> Option<AuditRecord> {
    Some(AuditRecord {
        place: AuditPlace {
            revision: countersign_authority::Revision(entry.revision),
            seq: entry.seq,
        },
        stored: entry.stored.as_ref()?.clone().into_bytes(),
    })
}

/// The signed part of a seal again.
///
/// # Errors
/// If a member has another form than it was given.
pub fn head_of(checkpoint: &Checkpoint) -> Result<SealHead, CheckpointFault> {
    let fault = |member| CheckpointFault { member };
    let hash = |text: &str, member| digest(text).ok_or(fault(member));
    Ok(SealHead {
        number: checkpoint.number,
        first: place_of(checkpoint.first),
        last: place_of(checkpoint.last),
        count: checkpoint.count,
        previous: hash(&checkpoint.previous, "previous")?,
        hash: hash(&checkpoint.hash, "hash")?,
        at: checkpoint.time,
        key_id: hash(&checkpoint.key_sha256, "key_sha256")?,
        signature: STANDARD
            .decode(&checkpoint.signature)
            .map_err(|_| fault("signature"))?,
    })
}

/// The seal again.
///
/// # Errors
/// If a member has another form than it was given.
pub fn seal_of(seal: &Seal) -> Result<countersign_authority::Seal, CheckpointFault> {
    let fault = || CheckpointFault { member: "hashes" };
    let octets = STANDARD.decode(&seal.hashes).map_err(|_| fault())?;
    let hashes = octets.chunks(32).map(|hash| {
        let hash = <[u8; 32]>::try_from(hash).map_err(|_| fault())?;
        Ok(Fingerprint::from_bytes(hash))
    });
    Ok(countersign_authority::Seal {
        head: head_of(&seal.checkpoint)?,
        hashes: hashes.collect::<Result<_, _>>()?,
    })
}

fn place_of(place: countersign_api::AuditPlace) -> AuditPlace {
    AuditPlace {
        revision: countersign_authority::Revision(place.revision.0),
        seq: place.seq,
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
    use countersign_authority::{Revision, Seal};
    use countersign_pki::{UnixTime, fingerprint_sha256};

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
        let sealed = Seal {
            hashes: vec![fingerprint_sha256(b"d"), head.hash],
            head: head.clone(),
        };
        let text = serde_json::to_string(&seal(&sealed)).unwrap();
        let read: countersign_api::Seal = serde_json::from_str(&text).unwrap();
        assert_eq!(seal_of(&read).unwrap(), sealed);
        let checkpoint = checkpoint(&head);
        assert_eq!(head_of(&checkpoint).unwrap(), head);
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
            let fault = CheckpointFault { member: "hash" };
            assert_eq!(head_of(&wrong), Err(fault), "{wrong:?}");
        }
    }
}
