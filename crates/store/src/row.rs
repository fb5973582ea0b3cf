//! Records as rows: how each value is kept in a column, and how it comes back.

use countersign_authority::{
    AncestorCrl, CrlRecord, CrlScope, Door, IssuerId, LedgerEntry, ListedCertificate,
    PolicyVersion, RequestId, RequestRecord, RequestState, Revision, Revocation, Revoked,
    one_source,
};
use countersign_pki::{Fingerprint, RevocationReason, Serial, UnixTime};
use countersign_policy::{Deciding, Explanation, Requester, SignerName};
use rusqlite::Row;
use rusqlite::types::FromSql;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::fault::{Fault, RefusedWrite};

/// Whom a request is counted with.
pub(crate) fn source_column(requester: &Requester) -> Option<String> {
    let source = requester.source?;
    Some(one_source(source).to_string())
}

/// The columns that [`request`] reads, in its order.
pub(crate) const REQUEST: &str = "id, door, key, live, retained, version, state, signer, csr, key_fingerprint, \
     requester, wishes, created, explanation, evidence, failure, issuer, serial, attachment";

/// The columns that [`ledger_entry`] reads, in its order.
pub(crate) const LEDGER_ENTRY: &str = "issuer, serial, request, signer, name, key_fingerprint, not_before, \
     not_after, der, explanation, revoked_at, revoked_reason, retired";

/// The columns that [`listed_certificate`] reads, in its order.
pub(crate) const LISTED_CERTIFICATE: &str =
    "name, serial, not_before, not_after, revoked_at IS NOT NULL, der";

/// The columns that [`revocation`] reads, in its order.
pub(crate) const REVOCATION: &str =
    "issuer, serial, revoked_at, revoked_reason, not_after, unlisted";

/// The columns that [`crl`] reads, in its order.
pub(crate) const CRL: &str = "issuer, scope, number, covers, this_update, next_update, der";

/// The columns that [`ancestor_crl`] reads, in its order.
pub(crate) const ANCESTOR_CRL: &str = "key_id, number, position, der";

pub(crate) fn request(row: &Row<'_>) -> Result<RequestRecord, Fault> {
    request_in(&mut Columns::of(row, "request"))
}

/// What a row says its request is called, as far as that can be read.
pub(crate) fn request_name(row: &Row<'_>) -> String {
    let id = row.get("id").map(RequestId::from_bytes);
    let id = id.map(|id| id.to_string()).unwrap_or_default();
    let key: String = row.get("key").unwrap_or_default();
    format!("{id} ({key})")
}

/// A request's place, then its columns.
pub(crate) fn placed_request(row: &Row<'_>) -> Result<(u64, RequestRecord), Fault> {
    let mut columns = Columns::of(row, "request");
    let place = columns.unsigned()?;
    Ok((place, request_in(&mut columns)?))
}

pub(crate) fn request_in(columns: &mut Columns<'_>) -> Result<RequestRecord, Fault> {
    Ok(RequestRecord {
        id: columns.request_id()?,
        door: Door::from_text(columns.take()?),
        key: columns.take()?,
        live: columns.take()?,
        retained: columns.take()?,
        version: columns.revision()?,
        state: {
            let word: String = columns.take()?;
            columns.known(RequestState::from_word(&word))?
        },
        signer: columns.signer()?,
        csr_der: columns.take()?,
        key_fingerprint: columns.fingerprint()?,
        requester: columns.document()?,
        wishes: columns.document()?,
        created: UnixTime(columns.take()?),
        explanation: columns.document()?,
        evidence: columns.optional_document()?.unwrap_or_default(),
        failure: columns.take()?,
        certificate: match (
            columns.take::<Option<String>>()?,
            columns.take::<Option<Vec<u8>>>()?,
        ) {
            (Some(issuer), Some(serial)) => Some((
                columns.known(IssuerId::parse(&issuer).ok())?,
                columns.known(Serial::from_be_bytes(&serial).ok())?,
            )),
            (_, _) => None,
        },
        attachment: columns.take()?,
    })
}

pub(crate) fn policy_version(row: &Row<'_>) -> Result<PolicyVersion, Fault> {
    let mut columns = Columns::of(row, "policy");
    Ok(PolicyVersion {
        generation: columns.unsigned()?,
        digest: columns.fingerprint()?,
        loaded: UnixTime(columns.take()?),
        text: columns.take()?,
    })
}

pub(crate) fn ledger_entry(row: &Row<'_>) -> Result<LedgerEntry, Fault> {
    let mut columns = Columns::of(row, "certificate");
    Ok(LedgerEntry {
        issuer: columns.issuer()?,
        serial: columns.serial()?,
        request: columns.request_id()?,
        signer: columns.signer()?,
        name: columns.take()?,
        key_fingerprint: columns.fingerprint()?,
        not_before: UnixTime(columns.take()?),
        not_after: UnixTime(columns.take()?),
        der: columns.take()?,
        explanation: columns.document()?,
        revoked: match columns.take()? {
            Some(at) => Some(Revoked {
                at: UnixTime(at),
                reason: columns.reason()?,
            }),
            None => {
                columns.take::<Option<u8>>()?;
                None
            }
        },
        retired: columns.take::<Option<i64>>()?.map(UnixTime),
    })
}

pub(crate) fn listed_certificate(row: &Row<'_>) -> Result<ListedCertificate, Fault> {
    let mut columns = Columns::of(row, "certificate");
    Ok(ListedCertificate {
        name: columns.take()?,
        serial: columns.serial()?,
        not_before: UnixTime(columns.take()?),
        not_after: UnixTime(columns.take()?),
        is_revoked: columns.take()?,
        der: columns.take()?,
    })
}

pub(crate) fn revocation(row: &Row<'_>) -> Result<Revocation, Fault> {
    let mut columns = Columns::of(row, "revocation");
    Ok(Revocation {
        issuer: columns.issuer()?,
        serial: columns.serial()?,
        revoked: Revoked {
            at: UnixTime(columns.take()?),
            reason: columns.reason()?,
        },
        not_after: UnixTime(columns.take()?),
        listed: !columns.take::<bool>()?,
    })
}

pub(crate) fn ancestor_crl(row: &Row<'_>) -> Result<AncestorCrl, Fault> {
    let mut columns = Columns::of(row, "ancestor's revocation list");
    Ok(AncestorCrl {
        key_id: columns.take()?,
        number: columns.take()?,
        position: columns.take()?,
        der: columns.take()?,
    })
}

pub(crate) fn crl(row: &Row<'_>) -> Result<CrlRecord, Fault> {
    let mut columns = Columns::of(row, "revocation list");
    Ok(CrlRecord {
        issuer: columns.issuer()?,
        scope: columns.scope()?,
        number: columns.unsigned()?,
        covers: columns.revision()?,
        this_update: UnixTime(columns.take()?),
        next_update: UnixTime(columns.take()?),
        der: columns.take()?,
    })
}

/// What queries need to know of a decision.
pub(crate) struct DecisionColumns<'a> {
    /// None where nothing settled it.
    pub(crate) code: Option<&'a str>,
    pub(crate) about_token: bool,
    pub(crate) by_person: bool,
    pub(crate) retry: bool,
}

impl<'a> DecisionColumns<'a> {
    pub(crate) fn of(explanation: &'a Explanation) -> Self {
        Self {
            code: Some(explanation.code.as_str()).filter(|code| !code.is_empty()),
            about_token: explanation.code.is_about_token(),
            by_person: matches!(explanation.by, Some(Deciding::Person { .. })),
            retry: explanation.retry,
        }
    }
}

/// A structured value as JSON text.
pub(crate) fn document<T: Serialize>(value: &T, what: &'static str) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(|_| Fault::refused(RefusedWrite::Unstorable { what }))
}

/// SQLite's integers have a sign.
pub(crate) fn signed(value: u64, what: &'static str) -> Result<i64, Fault> {
    i64::try_from(value).map_err(|_| Fault::refused(RefusedWrite::Unstorable { what }))
}

/// One row, read from left to right.
pub(crate) struct Columns<'r> {
    row: &'r Row<'r>,
    next: usize,
    what: &'static str,
}

impl<'r> Columns<'r> {
    pub(crate) fn of(row: &'r Row<'r>, what: &'static str) -> Self {
        Self { row, next: 0, what }
    }

    pub(crate) fn take<T: FromSql>(&mut self) -> Result<T, Fault> {
        let value = self.row.get(self.next);
        self.next = self.next.saturating_add(1);
        self.known(value.ok())
    }

    pub(crate) fn revision(&mut self) -> Result<Revision, Fault> {
        self.unsigned().map(Revision)
    }

    pub(crate) fn document<T: DeserializeOwned>(&mut self) -> Result<T, Fault> {
        let text: String = self.take()?;
        self.known(serde_json::from_str(&text).ok())
    }

    pub(crate) fn optional_document<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Fault> {
        let text: Option<String> = self.take()?;
        let read = |text: String| self.known(serde_json::from_str(&text).ok());
        text.map(read).transpose()
    }

    pub(crate) fn unsigned(&mut self) -> Result<u64, Fault> {
        let value: i64 = self.take()?;
        self.known(u64::try_from(value).ok())
    }

    pub(crate) fn request_id(&mut self) -> Result<RequestId, Fault> {
        self.take().map(RequestId::from_bytes)
    }

    pub(crate) fn fingerprint(&mut self) -> Result<Fingerprint, Fault> {
        self.take().map(Fingerprint::from_bytes)
    }

    pub(crate) fn issuer(&mut self) -> Result<IssuerId, Fault> {
        let text: String = self.take()?;
        self.known(IssuerId::parse(&text).ok())
    }

    pub(crate) fn scope(&mut self) -> Result<CrlScope, Fault> {
        let word: String = self.take()?;
        self.known(CrlScope::from_word(&word))
    }

    pub(crate) fn serial(&mut self) -> Result<Serial, Fault> {
        let bytes: Vec<u8> = self.take()?;
        self.known(Serial::from_be_bytes(&bytes).ok())
    }

    pub(crate) fn signer(&mut self) -> Result<SignerName, Fault> {
        let text: String = self.take()?;
        self.known(SignerName::parse(&text).ok())
    }

    fn reason(&mut self) -> Result<RevocationReason, Fault> {
        let code: u8 = self.take()?;
        self.known(RevocationReason::from_code(code))
    }

    pub(crate) fn known<T>(&self, value: Option<T>) -> Result<T, Fault> {
        value.ok_or(Fault::Corrupt { what: self.what })
    }
}
