//! Records as rows: which columns hold them, and how they come back.

use std::sync::Arc;

use countersign_authority::store::Amount;
use countersign_authority::{
    AncestorCrl, AuditEntry, AuditPage, AuditPlace, AuditQuery, AuditRecord, BootstrapId,
    BootstrapRecord, BootstrapToken, CrlRecord, DeferredRequest, Door, Intent, IssuerId,
    LedgerEntry, ListedCertificate, MachineRecord, ObjectKey, ObjectRecord, Owner, PolicyVersion,
    RepeatedDenials, RequestId, RequestRecord, RequestState, Revision, Revocation, Revoked, Seal,
    SealHead, TokenId, TokenRecord, TokenStanding, TokenUseRecord, one_source,
};
use countersign_pki::{Fingerprint, Serial, UnixTime};
use countersign_policy::{
    BuildWindow, Deciding, Explanation, Machine, RecordedEvidence, Requester, TokenBinding,
    TokenUseState,
};

use crate::row::{Cell, Cells, Columns, RowFault, document};

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

/// What a row says its request is called, as far as that can be read.
pub(crate) fn request_name(row: &dyn Cells) -> String {
    let at = |column| row.place_of(column);
    let id = at("id").and_then(|at| <[u8; 16]>::read(row, at).flatten());
    let id = id.map(|id| RequestId::from_bytes(id).to_string());
    let key = at("key").and_then(|at| String::read(row, at).flatten());
    format!("{} ({})", id.unwrap_or_default(), key.unwrap_or_default())
}

/// What a row says its object is called, as far as that can be read.
pub(crate) fn object_name(row: &dyn Cells) -> String {
    let text = |column| {
        let at = row.place_of(column)?;
        String::read(row, at).flatten()
    };
    let text = |column| text(column).unwrap_or_default();
    format!("{} {}/{}", text("kind"), text("namespace"), text("name"))
}

pub(crate) fn request(row: &dyn Cells) -> Result<RequestRecord, RowFault> {
    request_in(&mut Columns::of(row, "request"))
}

/// A request's place, then its columns.
pub(crate) fn placed_request(row: &dyn Cells) -> Result<(u64, RequestRecord), RowFault> {
    let mut columns = Columns::of(row, "request");
    let place = columns.unsigned()?;
    Ok((place, request_in(&mut columns)?))
}

pub(crate) fn request_in(columns: &mut Columns<'_>) -> Result<RequestRecord, RowFault> {
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

pub(crate) fn policy_version(row: &dyn Cells) -> Result<PolicyVersion, RowFault> {
    let mut columns = Columns::of(row, "policy");
    Ok(PolicyVersion {
        generation: columns.unsigned()?,
        digest: columns.fingerprint()?,
        loaded: UnixTime(columns.take()?),
        text: columns.take()?,
    })
}

pub(crate) fn ledger_entry(row: &dyn Cells) -> Result<LedgerEntry, RowFault> {
    ledger_entry_in(&mut Columns::of(row, "certificate"))
}

fn ledger_entry_in(columns: &mut Columns<'_>) -> Result<LedgerEntry, RowFault> {
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

/// A certificate's place, then its columns.
pub(crate) fn placed_ledger_entry(row: &dyn Cells) -> Result<(u64, LedgerEntry), RowFault> {
    let mut columns = Columns::of(row, "certificate");
    Ok((columns.unsigned()?, ledger_entry_in(&mut columns)?))
}

pub(crate) fn listed_certificate(row: &dyn Cells) -> Result<ListedCertificate, RowFault> {
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

pub(crate) fn revocation(row: &dyn Cells) -> Result<Revocation, RowFault> {
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

pub(crate) fn ancestor_crl(row: &dyn Cells) -> Result<AncestorCrl, RowFault> {
    let mut columns = Columns::of(row, "ancestor's revocation list");
    Ok(AncestorCrl {
        key_id: columns.take()?,
        number: columns.take()?,
        position: columns.take()?,
        der: columns.take()?,
    })
}

pub(crate) fn crl(row: &dyn Cells) -> Result<CrlRecord, RowFault> {
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

/// The columns that [`intent`] reads, in its order.
pub(crate) const INTENT: &str = "issuer, serial, request, signer, name, key_fingerprint, not_before, not_after, explanation, \
     owner, lease_until, audit";

/// The columns of a request that its intent holds, in the order of [`request_in`].
pub(crate) const HELD_REQUEST: &str = "request, door, key, live, 0, version, state, signer, csr, key_fingerprint, requester, \
     wishes, created, explanation, evidence, NULL, NULL, NULL, attachment";

pub(crate) fn intent(row: &dyn Cells) -> Result<Intent, RowFault> {
    let mut columns = Columns::of(row, "intent");
    Ok(Intent {
        issuer: columns.issuer()?,
        serial: columns.serial()?,
        request: columns.request_id()?,
        signer: columns.signer()?,
        name: columns.take()?,
        key_fingerprint: columns.fingerprint()?,
        not_before: UnixTime(columns.take()?),
        not_after: UnixTime(columns.take()?),
        explanation: columns.document()?,
        owner: Owner(columns.take()?),
        lease_until: UnixTime(columns.take()?),
        deferred: match columns.take::<Option<String>>()? {
            Some(audit) => Some(Arc::new(DeferredRequest {
                audit: audit_entries(&audit)?,
                request: Arc::new(request_in(&mut columns)?),
            })),
            None => None,
        },
    })
}

pub(crate) fn held_request(row: &dyn Cells) -> Result<RequestRecord, RowFault> {
    request_in(&mut Columns::of(row, "request"))
}

/// JSON text has no line breaks of its own.
pub(crate) fn audit_lines(entries: &[AuditEntry]) -> Result<String, RowFault> {
    let lines: Result<Vec<String>, RowFault> = entries
        .iter()
        .map(|entry| document(entry, "audit entry"))
        .collect();
    Ok(lines?.join("\n"))
}

fn audit_entries(lines: &str) -> Result<Vec<AuditEntry>, RowFault> {
    let entry = |line| serde_json::from_str(line);
    let entries: Result<_, _> = lines.lines().map(entry).collect();
    entries.map_err(|_| RowFault::Corrupt {
        what: "audit entry",
    })
}

/// The columns that [`object_in`] reads, in its order.
pub(crate) const OBJECT: &str = "kind, namespace, name, id, version, created, body";

pub(crate) fn object_in(columns: &mut Columns<'_>) -> Result<ObjectRecord, RowFault> {
    Ok(ObjectRecord {
        key: ObjectKey {
            kind: columns.take()?,
            namespace: columns.take()?,
            name: columns.take()?,
        },
        id: columns.request_id()?,
        version: columns.revision()?,
        created: UnixTime(columns.take()?),
        body: columns.take()?,
    })
}

/// The columns that [`machine_record`] reads, in its order.
pub(crate) const MACHINE: &str = "name, addresses, serial, uuid, instance_id, provider, role, not_before, not_after, single_use, \
     created, enrolled, version, request";

/// The columns that [`build_window`] reads, in its order.
pub(crate) const WINDOW: &str =
    "certname, opens_at, closes_at, max_issuances, issuances, require_token";

pub(crate) fn machine_record(row: &dyn Cells) -> Result<MachineRecord, RowFault> {
    let mut columns = Columns::of(row, "machine");
    let machine = Machine {
        name: columns.take()?,
        addresses: columns.document()?,
        serial: columns.take()?,
        uuid: columns.take()?,
        instance_id: columns.take()?,
        provider: columns.take()?,
        role: columns.take()?,
        not_before: columns.take::<Option<i64>>()?.map(UnixTime),
        not_after: columns.take::<Option<i64>>()?.map(UnixTime),
        single_use: columns.take()?,
        created: UnixTime(columns.take()?),
        enrolled: columns.take::<Option<i64>>()?.map(UnixTime),
    };
    Ok(MachineRecord {
        machine,
        version: columns.revision()?,
        request: columns
            .take::<Option<[u8; 16]>>()?
            .map(RequestId::from_bytes),
    })
}

pub(crate) fn build_window(row: &dyn Cells) -> Result<BuildWindow, RowFault> {
    let mut columns = Columns::of(row, "build window");
    Ok(BuildWindow {
        certname: columns.take()?,
        opens_at: UnixTime(columns.take()?),
        closes_at: UnixTime(columns.take()?),
        max_issuances: columns.take()?,
        issuances: columns.take()?,
        require_token: columns.take()?,
    })
}

/// The columns that [`token_record`] reads, in its order.
pub(crate) const TOKEN: &str = "id, mac, mac_key_id, terms_mac, kind, value, not_before, expires_at, max_uses, uses, standing, ended_at, \
     superseded_by, terms, created_by, external_ref, note, created_at, failed_uses, epoch, idempotency_key, version";

/// The columns that [`use_record`] reads, in its order.
pub(crate) const USE: &str =
    "token, certname, key_fingerprint, state, request, serial, at, retry_until";

pub(crate) fn token_id(row: &dyn Cells) -> Result<TokenId, RowFault> {
    let text: String = Columns::of(row, "token").take()?;
    known(TokenId::parse(&text))
}

pub(crate) fn token_record(row: &dyn Cells) -> Result<TokenRecord, RowFault> {
    let mut columns = Columns::of(row, "token");
    let id: String = columns.take()?;
    Ok(TokenRecord {
        id: known(TokenId::parse(&id))?,
        mac: columns.take()?,
        mac_key_id: columns.take()?,
        terms_mac: columns.take()?,
        binding: {
            let (kind, value): (String, String) = (columns.take()?, columns.take()?);
            known(match kind.as_str() {
                "exact" => Some(TokenBinding::Exact(value)),
                "glob" => Some(TokenBinding::Glob(value)),
                _ => None,
            })?
        },
        not_before: UnixTime(columns.take()?),
        expires_at: UnixTime(columns.take()?),
        max_uses: columns.take()?,
        uses: columns.take()?,
        standing: {
            let word: String = columns.take()?;
            let at: Option<i64> = columns.take()?;
            let superseded_by: Option<String> = columns.take()?;
            known(match (word.as_str(), at.map(UnixTime)) {
                ("active", None) => Some(TokenStanding::Active),
                ("locked", Some(at)) => Some(TokenStanding::Locked { at }),
                ("revoked", Some(at)) => Some(TokenStanding::Revoked {
                    at,
                    superseded_by: superseded_by
                        .map(|id| known(TokenId::parse(&id)))
                        .transpose()?,
                }),
                (_, _) => None,
            })?
        },
        terms: columns.document()?,
        created_by: columns.take()?,
        external_ref: columns.take()?,
        note: columns.take()?,
        created_at: UnixTime(columns.take()?),
        failed_uses: columns.take()?,
        epoch: columns.unsigned()?,
        idempotency_key: columns.take()?,
        version: columns.revision()?,
    })
}

pub(crate) fn use_record(row: &dyn Cells) -> Result<TokenUseRecord, RowFault> {
    let mut columns = Columns::of(row, "use of a token");
    let token: String = columns.take()?;
    Ok(TokenUseRecord {
        token: known(TokenId::parse(&token))?,
        certname: columns.take()?,
        key_fingerprint: Fingerprint::from_bytes(columns.take()?),
        state: {
            let word: String = columns.take()?;
            let states = [TokenUseState::Reserved, TokenUseState::Issued];
            known(states.into_iter().find(|state| state.word() == word))?
        },
        request: columns
            .take::<Option<[u8; 16]>>()?
            .map(RequestId::from_bytes),
        serial: columns
            .take::<Option<Vec<u8>>>()?
            .map(|bytes| known(Serial::from_be_bytes(&bytes).ok()))
            .transpose()?,
        at: UnixTime(columns.take()?),
        retry_until: UnixTime(columns.take()?),
    })
}

fn known<T>(value: Option<T>) -> Result<T, RowFault> {
    value.ok_or(RowFault::Corrupt { what: "token" })
}

pub(crate) fn bootstrap_token(row: &dyn Cells) -> Result<BootstrapToken, RowFault> {
    let mut columns = Columns::of(row, "bootstrap token");
    Ok(BootstrapToken {
        record: BootstrapRecord {
            id: bootstrap_id(&mut columns)?,
            mac: columns.take()?,
            mac_key_id: columns.take()?,
            terms_mac: columns.take()?,
            groups: columns.document()?,
            description: columns.take()?,
            expires_at: columns.take::<Option<i64>>()?.map(UnixTime),
            created_by: columns.take()?,
            created_at: UnixTime(columns.take()?),
            revoked_at: columns.take::<Option<i64>>()?.map(UnixTime),
            epoch: columns.unsigned()?,
        },
        is_stale: columns.take()?,
    })
}

pub(crate) fn bootstrap_id(columns: &mut Columns<'_>) -> Result<BootstrapId, RowFault> {
    let text: String = columns.take()?;
    columns.known(BootstrapId::parse(&text))
}

/// The columns that [`bootstrap_token`] reads, in its order; the last says whether it is from before a restore.
pub(crate) const BOOTSTRAP_TOKEN: &str = "id, mac, mac_key_id, terms_mac, groups, description, expires_at, created_by, created_at, revoked_at, epoch, \
     epoch < (SELECT epoch FROM store_state WHERE one = 1)";

/// The column is null if nothing was recorded.
pub(crate) fn evidence(recorded: Option<&RecordedEvidence>) -> Result<Option<String>, RowFault> {
    let recorded = recorded.filter(|recorded| !recorded.is_empty());
    recorded
        .map(|recorded| document(recorded, "evidence"))
        .transpose()
}

pub(crate) fn certificate_columns(
    certificate: Option<&(IssuerId, Serial)>,
) -> (Option<&str>, Option<&[u8]>) {
    certificate
        .map(|(issuer, serial)| (issuer.as_str(), serial.as_bytes()))
        .unzip()
}

pub(crate) fn standing_columns(standing: &TokenStanding) -> (Option<UnixTime>, Option<&TokenId>) {
    match standing {
        TokenStanding::Active => (None, None),
        TokenStanding::Locked { at } => (Some(*at), None),
        TokenStanding::Revoked { at, superseded_by } => (Some(*at), superseded_by.as_ref()),
    }
}

pub(crate) fn object(row: &dyn Cells) -> Result<ObjectRecord, RowFault> {
    object_in(&mut Columns::of(row, "object"))
}

/// The columns that [`repeated_denials`] reads, in its order.
pub(crate) const DENIALS: &str = "source, door, code, first, last, number, last_name";

pub(crate) fn repeated_denials(row: &dyn Cells) -> Result<RepeatedDenials, RowFault> {
    let mut columns = Columns::of(row, "count of denials");
    let source: String = columns.take()?;
    Ok(RepeatedDenials {
        source: columns.known(source.parse().ok())?,
        door: Door::from_text(columns.take()?),
        code: columns.take()?,
        first: UnixTime(columns.take()?),
        last: UnixTime(columns.take()?),
        number: columns.unsigned()?,
        last_name: columns.take()?,
    })
}

/// A number of records, and their octets.
pub(crate) fn amount(row: &dyn Cells) -> Result<Amount, RowFault> {
    let mut columns = Columns::of(row, "amount");
    Ok(Amount {
        number: usize::try_from(columns.unsigned()?).unwrap_or(usize::MAX),
        bytes: columns.unsigned()?,
    })
}

/// The latest `not_before` that a clock which is behind by no more than the permitted skew may still take for the past.
pub(crate) fn with_skew(at: UnixTime) -> UnixTime {
    at.plus_seconds(SKEW_SECONDS)
}

/// Clocks of authority and minter may differ by this much before a token that is good from now on is refused; there is no
/// such grace at its end.
const SKEW_SECONDS: u64 = 60;

/// Keeps an entry that the filter lets through. True: the page ends here.
pub(crate) fn add_to_page(page: &mut AuditPage, record: AuditRecord, query: &AuditQuery) -> bool {
    page.looked_at = page.looked_at.saturating_add(1);
    let place = record.place;
    let admits = || record.entry().is_some_and(|e| query.filter.admits(&e));
    if query.filter.is_open() || admits() {
        page.records.push(record);
    }
    let is_over =
        page.records.len() >= query.limit.max(1) || page.looked_at >= query.look_at.max(1);
    if is_over {
        page.reached = Some(place);
    }
    is_over
}

/// Revision, number and text of an entry of the audit log: also one that makes no sense, so that the reader can name it.
pub(crate) fn audit_record(row: &dyn Cells) -> Result<AuditRecord, RowFault> {
    let mut columns = Columns::of(row, "audit entry");
    let place = audit_place(&mut columns)?;
    let text = row.text(2).flatten();
    let text = text.map(|text| text.into_owned().into_bytes());
    let stored = text.or_else(|| row.octets(2).flatten().map(<[u8]>::to_vec));
    Ok(AuditRecord {
        place,
        stored: stored.unwrap_or_default(),
    })
}

/// The columns that [`seal_head`] reads, in its order.
pub(crate) const SEAL_HEAD: &str = "number, first_revision, first_seq, last_revision, last_seq, count, previous, hash, at, \
     key_id, signature";

pub(crate) fn seal_head(row: &dyn Cells) -> Result<SealHead, RowFault> {
    seal_head_in(&mut Columns::of(row, "seal"))
}

/// A seal's head, then the hashes of its entries.
pub(crate) fn seal(row: &dyn Cells) -> Result<Seal, RowFault> {
    let mut columns = Columns::of(row, "seal");
    let head = seal_head_in(&mut columns)?;
    let hashes: Vec<u8> = columns.take()?;
    Ok(Seal {
        head,
        hashes: hashes.chunks(32).map(digest).collect(),
    })
}

fn seal_head_in(columns: &mut Columns<'_>) -> Result<SealHead, RowFault> {
    Ok(SealHead {
        number: never_negative(columns)?,
        first: audit_place(columns)?,
        last: audit_place(columns)?,
        count: never_negative(columns)?,
        previous: digest(&columns.take::<Vec<u8>>()?),
        hash: digest(&columns.take::<Vec<u8>>()?),
        at: UnixTime(columns.take()?),
        key_id: digest(&columns.take::<Vec<u8>>()?),
        signature: columns.take()?,
    })
}

fn audit_place(columns: &mut Columns<'_>) -> Result<AuditPlace, RowFault> {
    Ok(AuditPlace {
        revision: Revision(never_negative(columns)?),
        seq: never_negative(columns)?,
    })
}

/// A number that was never negative becomes one that never was either.
fn never_negative(columns: &mut Columns<'_>) -> Result<u64, RowFault> {
    let number: i64 = columns.take()?;
    Ok(u64::try_from(number).unwrap_or(u64::MAX))
}

/// Zeros, which nothing has as its digest, for octets of another length.
fn digest(octets: &[u8]) -> Fingerprint {
    Fingerprint::from_bytes(octets.try_into().unwrap_or([0; 32]))
}
