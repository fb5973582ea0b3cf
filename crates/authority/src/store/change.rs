//! What is written to a store: a change, what must hold for it, and each thing it writes.

use countersign_pki::{Fingerprint, Serial, UnixTime};

use crate::audit::AuditEntry;
use crate::audit::sealing::Seal;
use crate::issuer::IssuerId;
use crate::model::{
    AncestorCrl, CrlRecord, CrlScope, Door, Intent, LedgerEntry, Owner, PolicyVersion,
    RememberedAllow, RequestId, RequestRecord, RequestState, Revision, Revocation,
};
use crate::objects::{ObjectKey, ObjectRecord};
use crate::request::denials::RepeatedDenials;
use crate::token::bootstrap::{BootstrapId, BootstrapRecord};
use crate::token::{TokenId, TokenRecord, TokenStanding, TokenUseRecord};
use countersign_policy::{BuildWindow, Explanation, Machine, RecordedEvidence};

/// Preconditions, writes and audit entries that belong together.
#[derive(Debug, Default)]
pub struct Change {
    /// What must still be true.
    pub preconditions: Vec<Precondition>,
    /// What is written if it is.
    pub writes: Vec<Write>,
    /// What the audit log says of it.
    pub audit: Vec<AuditEntry>,
}

/// Something a decision relied on, checked again at commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The request exists and was not changed since.
    RequestAt {
        /// Which.
        id: RequestId,
        /// As it was read.
        version: Revision,
    },
    /// The request exists, whatever happened to it since.
    RequestExists {
        /// Which.
        id: RequestId,
    },
    /// The request exists and is in this state.
    RequestIn {
        /// Which.
        id: RequestId,
        /// Where it stands.
        state: RequestState,
    },
    /// No request occupies the name at the door.
    KeyFree {
        /// The door.
        door: Door,
        /// The name.
        key: String,
    },
    /// No person has denied this key under that name.
    NotDenied {
        /// The door.
        door: Door,
        /// The name.
        key: String,
        /// SHA-256 of the public key.
        key_fingerprint: Fingerprint,
    },
    /// The newest ledger entry of a name that is not retired is this one (`None`: there is none), and no
    /// intent for the name is open.
    NewestCertificate {
        /// Whose.
        issuer: IssuerId,
        /// The name.
        name: String,
        /// Its serial.
        serial: Option<Serial>,
    },
    /// So many certificates are on record for a name, revoked, ended and retired ones included; its
    /// open intents do not matter.
    IssuedCount {
        /// Whose.
        issuer: IssuerId,
        /// The name.
        name: String,
        /// How many.
        count: usize,
    },
    /// The certificate is on record and was not revoked.
    Unrevoked {
        /// Whose.
        issuer: IssuerId,
        /// Its serial.
        serial: Serial,
    },
    /// The intent is open and belongs to this owner.
    IntentOpen {
        /// Whose.
        issuer: IssuerId,
        /// Its serial.
        serial: Serial,
        /// The owner that completes it; `None`: any, to void it.
        owner: Option<Owner>,
    },
    /// No policy of this generation or a later one is on record.
    PolicyFree {
        /// The generation.
        generation: u64,
    },
    /// The issuer's CRL has this number (`None`: there is none).
    CrlNumber {
        /// Whose.
        issuer: IssuerId,
        /// Which of its CRLs.
        scope: CrlScope,
        /// The number.
        number: Option<u64>,
    },
    /// The machine's record was not changed since.
    MachineAt {
        /// Which.
        name: String,
        /// As it was read; `None`: there is none.
        version: Option<Revision>,
    },
    /// The machine is in the inventory, whatever happened to its record since.
    MachineExists {
        /// Which.
        name: String,
    },
    /// The machine is in the inventory and has not enrolled.
    MachineUnused {
        /// Which.
        name: String,
    },
    /// The name has a build window, its time is now, and it is good for another certificate.
    WindowOpen {
        /// Whose.
        certname: String,
        /// Now.
        at: UnixTime,
        /// Whether a token is used beside it; if not, the window must want none.
        with_token: bool,
    },
    /// The name has a build window whose time ended before then.
    WindowClosed {
        /// Whose.
        certname: String,
        /// When.
        before: UnixTime,
    },
    /// The newest seal of the audit log has this number; 0: there is none.
    LastSeal {
        /// The number.
        number: u64,
    },
    /// The token is neither revoked nor locked nor from before a restore, its time is now, it has a use left, and this name
    /// and key have not used it.
    TokenUsable {
        /// Which.
        id: TokenId,
        /// By whom.
        certname: String,
        /// By which key.
        key_fingerprint: Fingerprint,
        /// Now.
        at: UnixTime,
    },
    /// The token was not changed since.
    TokenAt {
        /// Which.
        id: TokenId,
        /// As it was read.
        version: Revision,
    },
    /// Those tokens for exactly this name that can be used are these.
    ActiveTokens {
        /// The name.
        certname: String,
        /// Which.
        ids: Vec<TokenId>,
        /// Now.
        at: UnixTime,
    },
    /// Nobody of this name has ordered a token under this key.
    TokenNotOrdered {
        /// Who.
        created_by: String,
        /// Their name for the order.
        idempotency_key: String,
    },
    /// The object was not changed since.
    ObjectAt {
        /// Which.
        key: ObjectKey,
        /// As it was read; `None`: there is none.
        version: Option<Revision>,
    },
    /// No bootstrap token has the id.
    BootstrapTokenFree {
        /// The id.
        id: BootstrapId,
    },
    /// The bootstrap token is on record and was not taken back.
    BootstrapTokenStands {
        /// Which.
        id: BootstrapId,
    },
    /// The use is on record, and its certificate is not.
    TokenReserved {
        /// Of which token.
        id: TokenId,
        /// By whom.
        certname: String,
        /// By which key.
        key_fingerprint: Fingerprint,
        /// For which request: the same key may have used it again.
        request: Option<RequestId>,
    },
}

/// One thing written.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "moved once, to the writer; a box would cost an allocation per request"
)]
pub enum Write {
    /// A new request; its version is set by the store.
    InsertRequest(RequestRecord),
    /// Changes of a request.
    UpdateRequest(RequestUpdate),
    /// Forgets a request (never its certificate).
    DeleteRequest(RequestId),
    /// Reserves a serial for a certificate that is about to be signed.
    Intend(Intent),
    /// Stores the request that an open intent holds, with its audit entries; the intent stays open.
    StoreIntended {
        /// Whose.
        issuer: IssuerId,
        /// Which.
        serial: Serial,
    },
    /// Burns the serial of an intent that will not be completed. The request that it holds is stored as it stands.
    VoidIntent {
        /// Whose.
        issuer: IssuerId,
        /// Which.
        serial: Serial,
    },
    /// Completes an intent: the certificate enters the ledger, and with it the request that the intent holds, as issued.
    Record {
        /// Whose.
        issuer: IssuerId,
        /// Which.
        serial: Serial,
        /// The certificate.
        der: Vec<u8>,
    },
    /// Revokes a certificate of the ledger. One that is revoked keeps its first time and reason; if it was taken off
    /// the CRLs, it is back on them.
    Revoke(Revocation),
    /// Retires every certificate of a name: its newest one is no longer shown, and the name is free
    /// again. They stay in the ledger, and what was not revoked remains an identity until it ends.
    Retire {
        /// Whose.
        issuer: IssuerId,
        /// The name.
        name: String,
        /// When.
        at: UnixTime,
    },
    /// Publishes a CRL in place of the one before.
    PutCrl(CrlRecord),
    /// Takes a certificate over that another authority has signed, with its revocation and retirement. Its
    /// serial must be free.
    Import(LedgerEntry),
    /// Takes a revoked certificate off the CRLs. It stays revoked.
    Unlist {
        /// Whose.
        issuer: IssuerId,
        /// Which.
        serial: Serial,
    },
    /// Keeps the CRL of a CA above the issuer, unless the one that is kept has the same number or a higher. Where
    /// neither has a number, this one is kept.
    PutAncestorCrl {
        /// Below whom.
        issuer: IssuerId,
        /// The list.
        crl: AncestorCrl,
    },
    /// Counts a denial that the audit log does not tell by itself, with those of its source, door and reason.
    CountDenial(RepeatedDenials),
    /// Takes denials off that count: the audit log tells how many they were.
    DenialsTold(RepeatedDenials),
    /// Forgets what rules have turned away under a name, or under any, but the newest `keep`; of all names, also what is
    /// beyond the newest `bytes`. What a person denied, and what occupies its name, stays, and so do thefts of tokens since a
    /// time: of each name at least the first `keep` and the last `keep` of them.
    TrimRejections {
        /// Only of this name at this door.
        of: Option<(Door, String)>,
        /// So many stay.
        keep: usize,
        /// And no more than so many bytes of them, where all names are meant.
        bytes: u64,
        /// Since when thefts of tokens stay.
        thefts_since: UnixTime,
    },
    /// Puts a policy on record. Its generation must be new.
    PutPolicy(PolicyVersion),
    /// Keeps a decider's word for a while; one for a name ends when a certificate of the name is revoked or retired.
    RememberAllow(RememberedAllow),
    /// Forgets deciders' words that no longer count.
    ForgetAllows {
        /// Those that ended before then.
        before: UnixTime,
    },
    /// Counts the issuer's serials from here on; intents move the counter past theirs.
    CountSerials {
        /// Whose.
        issuer: IssuerId,
        /// The next serial. The counter never goes back.
        next: u64,
    },
    /// Puts a machine into the inventory, in place of the record that has its name. Then the age and the enrolment of
    /// that record stay: to write a record again does not allow another enrolment.
    PutMachine(Machine),
    /// Takes a machine out of the inventory; one that is not there stays away.
    DeleteMachine {
        /// Which.
        name: String,
    },
    /// Notes that a machine of the inventory has enrolled. The first time stands.
    EnrolMachine {
        /// Which.
        name: String,
        /// By which request.
        request: RequestId,
        /// When.
        at: UnixTime,
    },
    /// Opens a build window, in place of the one that the name has.
    PutWindow(BuildWindow),
    /// Removes the build window of a name, if it has one.
    CloseWindow {
        /// Whose.
        certname: String,
    },
    /// Counts a certificate of a build window.
    UseWindow {
        /// Whose.
        certname: String,
    },
    /// Seals audit entries that are on record.
    Seal(Seal),
    /// A new token; its epoch and version are set by the store. Its id must be new.
    PutToken(TokenRecord),
    /// Uses a token up, once.
    UseToken(TokenUseRecord),
    /// The certificate of a use is on record. A use that is not there is none.
    TokenIssued {
        /// Of which token.
        id: TokenId,
        /// By whom.
        certname: String,
        /// By which key.
        key_fingerprint: Fingerprint,
        /// The certificate.
        serial: Serial,
    },
    /// Locks a token, or takes it back. One that is revoked stays so, as it was first.
    EndToken {
        /// Which.
        id: TokenId,
        /// How it stands from now on.
        standing: TokenStanding,
    },
    /// Counts a misuse of a token.
    FailToken {
        /// Which.
        id: TokenId,
    },
    /// Gives a use back.
    ReleaseToken {
        /// Of which token.
        id: TokenId,
        /// By whom.
        certname: String,
        /// By which key.
        key_fingerprint: Fingerprint,
        /// For which request.
        request: Option<RequestId>,
    },
    /// Keeps an object, in place of the one that has its name. Then that one's identity and age stay. Its version is set by
    /// the store.
    PutObject(ObjectRecord),
    /// Forgets an object; one that is not there stays away.
    DeleteObject {
        /// Which.
        key: ObjectKey,
    },
    /// Forgets states that commits before then left: the oldest, and only so many that others need not wait. The horizon
    /// says how far it came.
    TrimStates {
        /// When.
        before: Revision,
    },
    /// A new bootstrap token; its epoch is set by the store. Its id must be free.
    PutBootstrapToken(BootstrapRecord),
    /// Takes a bootstrap token back. One that was taken back stays so, as it was first.
    RevokeBootstrapToken {
        /// Which.
        id: BootstrapId,
        /// When.
        at: UnixTime,
    },
    /// Forgets a bootstrap token.
    ForgetBootstrapToken {
        /// Which.
        id: BootstrapId,
    },
    /// Forgets a token and its uses.
    ForgetToken {
        /// Which.
        id: TokenId,
    },
}

/// What an update changes; `None` leaves a field as it is.
#[derive(Debug)]
pub struct RequestUpdate {
    /// Which.
    pub id: RequestId,
    /// Its new state.
    pub state: RequestState,
    /// Whether it still occupies its name.
    pub live: bool,
    /// The decision.
    pub explanation: Option<Explanation>,
    /// What it rests on.
    pub evidence: Option<RecordedEvidence>,
    /// Why it cannot be signed.
    pub failure: Option<String>,
    /// Its certificate.
    pub certificate: Option<(IssuerId, Serial)>,
    /// The door's data.
    pub attachment: Option<Vec<u8>>,
    /// What is kept of the message from now on.
    pub csr_der: Option<Vec<u8>>,
}

impl RequestRecord {
    /// The request as an update leaves it; its version is the commit's to give.
    pub(crate) fn with(&self, update: &RequestUpdate) -> Self {
        fn or<T: Clone>(new: &Option<T>, old: &T) -> T {
            new.as_ref().unwrap_or(old).clone()
        }
        Self {
            state: update.state,
            live: update.live,
            explanation: or(&update.explanation, &self.explanation),
            evidence: or(&update.evidence, &self.evidence),
            failure: update.failure.clone().or_else(|| self.failure.clone()),
            certificate: update
                .certificate
                .clone()
                .or_else(|| self.certificate.clone()),
            attachment: or(&update.attachment, &self.attachment),
            csr_der: or(&update.csr_der, &self.csr_der),
            ..self.clone()
        }
    }
}

impl RequestUpdate {
    /// An update of `record` that changes nothing but its version.
    pub fn none(record: &RequestRecord) -> Self {
        Self::to_state(record.id, record.state, record.live)
    }

    /// An update of the state alone.
    pub fn to_state(id: RequestId, state: RequestState, live: bool) -> Self {
        Self {
            id,
            state,
            live,
            explanation: None,
            evidence: None,
            failure: None,
            certificate: None,
            attachment: None,
            csr_der: None,
        }
    }
}
