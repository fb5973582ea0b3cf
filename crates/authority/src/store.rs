//! The engine's view of storage: one writing call, separate reads.

use std::net::IpAddr;

use countersign_pki::{Fingerprint, Serial, UnixTime};
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::audit::{AuditEntry, AuditPage, AuditQuery};
use crate::bootstrap::{BootstrapId, BootstrapRecord, BootstrapToken};
use crate::issuer::IssuerId;
use crate::model::{
    AncestorCrl, CrlRecord, CrlScope, Door, Intent, LedgerEntry, MachineRecord, Owner,
    PolicyVersion, RememberedAllow, RequestId, RequestRecord, RequestState, Revision, Revocation,
};
use crate::objects::{ObjectKey, ObjectRecord, StateChange};
use crate::sealing::{Seal, SealHead};
use crate::token::{
    FoundToken, ListedToken, TokenFilter, TokenId, TokenRecord, TokenStanding, TokenUseRecord,
};
use countersign_policy::{BuildWindow, Explanation, Machine, RecordedEvidence};

/// A future of a store's answer.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, StoreFault>>;

/// Where everything acknowledged is kept.
///
/// [`Store::commit`] is the only call that writes. It is durable when it returns: what it
/// acknowledged survives the death of the process and of the machine. Reads see every commit that was
/// acknowledged before they began.
pub trait Store: Send + Sync {
    /// Applies a change whole, or not at all and says which precondition no longer holds.
    fn commit(&self, change: Change) -> BoxFuture<'_, Result<Committed, CommitFault>>;

    /// The revision of the last commit; wakes its receivers on each.
    fn revisions(&self) -> watch::Receiver<Revision>;

    /// What changed after `since`, in commit order, at most `limit` entries. Empty: nothing more.
    fn changes(&self, since: Revision, limit: usize) -> Answer<'_, Vec<Changed>>;

    /// A request by identity.
    fn request(&self, id: RequestId) -> Answer<'_, Option<RequestRecord>>;

    /// The request that occupies a name at a door; else, if `past` allows, the newest that did.
    fn request_at(&self, door: &Door, key: &str, past: Past) -> Answer<'_, Option<RequestRecord>>;

    /// A page of requests, ordered by door, name and age.
    fn requests(&self, filter: RequestFilter) -> Answer<'_, Vec<RequestRecord>>;

    /// Requests of one door and state that arrived before a time, oldest first.
    fn requests_before(&self, filter: AgeFilter) -> Answer<'_, Vec<RequestRecord>>;

    /// How many pending requests an address has, at most `at_most`.
    fn pending_from(&self, source: IpAddr, at_most: usize) -> Answer<'_, usize>;

    /// A ledger entry.
    fn certificate(&self, issuer: &IssuerId, serial: &Serial) -> Answer<'_, Option<LedgerEntry>>;

    /// The newest ledger entry of a name that is not retired.
    fn newest_certificate(&self, issuer: &IssuerId, name: &str) -> Answer<'_, Option<LedgerEntry>>;

    /// Every ledger entry of a name that has not ended before `alive_at`, newest first, retired or not.
    fn certificates_of(
        &self,
        issuer: &IssuerId,
        name: &str,
        alive_at: UnixTime,
    ) -> Answer<'_, Vec<LedgerEntry>>;

    /// The newest entry of each name of an issuer, names in order after `after`, at most `limit`. Retired
    /// ones are left out.
    fn newest_certificates(
        &self,
        issuer: &IssuerId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<LedgerEntry>>;

    /// Every ledger entry of an issuer in the order in which they were recorded, retired ones included, each
    /// with its place; at most `limit` after the place `after`.
    fn ledger(
        &self,
        issuer: &IssuerId,
        after: Option<u64>,
        limit: usize,
    ) -> Answer<'_, Vec<(u64, LedgerEntry)>>;

    /// The serial that comes next where serials are counted; `None`: they are random.
    fn next_serial(&self, issuer: &IssuerId) -> Answer<'_, Option<u64>>;

    /// The highest serial of an issuer that a counter could have given out, and could go on from: below 2^63 - 1.
    /// Retired and burned ones count. It may be looked for in the whole ledger.
    fn highest_serial(&self, issuer: &IssuerId) -> Answer<'_, Option<u64>>;

    /// Every revocation of an issuer whose certificate has not ended before `alive_at`, with the
    /// revision up to which the answer is complete.
    fn revocations(
        &self,
        issuer: &IssuerId,
        alive_at: UnixTime,
    ) -> Answer<'_, (Revision, Vec<Revocation>)>;

    /// The issuer's published CRL of a scope.
    fn crl(&self, issuer: &IssuerId, scope: CrlScope) -> Answer<'_, Option<CrlRecord>>;

    /// The CRLs of the CAs above the issuer, by position.
    fn ancestor_crls(&self, issuer: &IssuerId) -> Answer<'_, Vec<AncestorCrl>>;

    /// Requests that were denied or could not be decided, and those that wait because of a token (their code begins with
    /// `token_`), newest first.
    fn rejections(&self, filter: RejectionFilter) -> Answer<'_, Vec<Rejection>>;

    /// Requests that wait for evidence that may still appear, oldest first, at most `limit` after the place `after`.
    fn worth_asking_again(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Answer<'_, Vec<(u64, RequestRecord)>>;

    /// The policy that came in force last.
    fn newest_policy(&self) -> Answer<'_, Option<PolicyVersion>>;

    /// The policy of a generation.
    fn policy_version(&self, generation: u64) -> Answer<'_, Option<PolicyVersion>>;

    /// Whether a decider has allowed this very request, and its word still counts.
    fn is_allowed(
        &self,
        webhook: &str,
        name: &str,
        asked: &Fingerprint,
        now: UnixTime,
    ) -> Answer<'_, bool>;

    /// Figures for monitoring: what waits, and which certificates end between `now` and `soon`.
    fn tally(&self, now: UnixTime, soon: UnixTime) -> Answer<'_, Tally>;

    /// Intents that were neither completed nor voided, oldest first.
    fn open_intents(&self) -> Answer<'_, Vec<Intent>>;

    /// Audit entries after `since`, in commit order.
    fn audit(&self, since: Revision, limit: usize) -> Answer<'_, Vec<(Revision, AuditEntry)>>;

    /// An inventory record. Names of machines and of windows, here and in preconditions and writes, are compared in the
    /// form of [`inventory_name`](crate::inventory_name).
    fn machine(&self, name: &str) -> Answer<'_, Option<MachineRecord>>;

    /// A page of the inventory, ordered by name.
    fn machines(&self, filter: MachineFilter) -> Answer<'_, Vec<MachineRecord>>;

    /// The build window of a name, open or not.
    fn window(&self, certname: &str) -> Answer<'_, Option<BuildWindow>>;

    /// Build windows, names in order after `after`, at most `limit`.
    fn windows(&self, after: Option<String>, limit: usize) -> Answer<'_, Vec<BuildWindow>>;

    /// Build windows whose time ended before `before`, those that ended first at the front, at most `limit`.
    fn windows_closed(&self, before: UnixTime, limit: usize) -> Answer<'_, Vec<BuildWindow>>;
    /// A page of audit entries as they are kept, which a filter may thin out.
    fn audit_page(&self, query: AuditQuery) -> Answer<'_, AuditPage>;

    /// The seals of the audit log after a number, in order, at most `limit`.
    fn seals(&self, after: u64, limit: usize) -> Answer<'_, Vec<Seal>>;

    /// The newest seal of the audit log, without the hashes of its entries.
    fn last_seal(&self) -> Answer<'_, Option<SealHead>>;

    /// A token, with its uses that matter for a name and key.
    fn token(
        &self,
        id: &TokenId,
        certname: &str,
        key_fingerprint: &Fingerprint,
    ) -> Answer<'_, Option<FoundToken>>;

    /// A token and where it stands.
    fn listed_token(&self, id: &TokenId, now: UnixTime) -> Answer<'_, Option<ListedToken>>;

    /// A page of tokens, newest first.
    fn tokens(&self, filter: TokenFilter) -> Answer<'_, Vec<ListedToken>>;

    /// The uses of a token, oldest first, at most `limit`.
    fn token_uses(&self, id: &TokenId, limit: usize) -> Answer<'_, Vec<TokenUseRecord>>;

    /// Tokens for exactly this name that are neither revoked nor locked, nor from before a restore, whose time is not over
    /// and which have a use left.
    fn active_tokens_of(&self, certname: &str, now: UnixTime) -> Answer<'_, Vec<TokenRecord>>;

    /// The token that was minted by this person for this order.
    fn token_ordered(&self, created_by: &str, idempotency_key: &str)
    -> Answer<'_, Option<TokenId>>;

    /// How many tokens can be used now, at most `at_most`.
    fn active_tokens(&self, now: UnixTime, at_most: usize) -> Answer<'_, usize>;

    /// Tokens whose time ended before `before` and whose last use can no longer be asked for again, at most `limit`.
    fn tokens_over(&self, before: UnixTime, limit: usize) -> Answer<'_, Vec<TokenId>>;

    /// Every request that occupies a name at a door, by name, with the revision at which that was so.
    fn live_requests(&self, door: &Door) -> Answer<'_, (Revision, Vec<RequestRecord>)>;

    /// Every object, by kind, namespace and name, with the revision at which that was so.
    fn objects(&self) -> Answer<'_, (Revision, Vec<ObjectRecord>)>;

    /// An object by name.
    fn object(&self, key: &ObjectKey) -> Answer<'_, Option<ObjectRecord>>;

    /// Every state that commits after `since` left of retained requests and of objects, in commit order and in the order of
    /// a commit's writes; at most `limit`, but never a part of a commit. Empty: nothing more.
    fn states(&self, since: Revision, limit: usize) -> Answer<'_, Vec<StateChange>>;

    /// The revision after which every state is on record.
    fn states_horizon(&self) -> Answer<'_, Revision>;

    /// A bootstrap token. One that is not there takes as long as one that is.
    fn bootstrap_token(&self, id: &BootstrapId) -> Answer<'_, Option<BootstrapToken>>;

    /// Bootstrap tokens, newest first, behind `after`, at most `limit`.
    fn bootstrap_tokens(
        &self,
        after: Option<BootstrapId>,
        limit: usize,
    ) -> Answer<'_, Vec<BootstrapToken>>;

    /// Bootstrap tokens that ended or were taken back before `before`, and those from before a restore that were minted
    /// before it; at most `limit`.
    fn bootstrap_tokens_over(&self, before: UnixTime, limit: usize)
    -> Answer<'_, Vec<BootstrapId>>;

    /// Whether this process is the only one that can write, so that every other owner is dead.
    fn is_exclusive(&self) -> bool;
}

/// Whether a look-up by name may answer with a request that no longer occupies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// Only the one that occupies the name now.
    Ignore,
    /// The newest one ever, if none does.
    Include,
}

/// Which requests a listing shows.
#[derive(Clone, Debug, Default)]
pub struct RequestFilter {
    /// Only of this door.
    pub door: Option<Door>,
    /// Only in these states; empty: any.
    pub states: Vec<RequestState>,
    /// Only those that occupy their name.
    pub live_only: bool,
    /// Only of this name.
    pub key: Option<String>,
    /// Only those whose explanation has this code.
    pub code: Option<String>,
    /// Only those that arrived at this time or later.
    pub since: Option<UnixTime>,
    /// Continue after this one (the last of the page before).
    pub after: Option<(Door, String, RequestId)>,
    /// At most so many; 0 means no bound.
    pub limit: usize,
}

/// Which rejections a listing shows.
#[derive(Clone, Debug, Default)]
pub struct RejectionFilter {
    /// Only of this door.
    pub door: Option<Door>,
    /// Only of this name.
    pub key: Option<String>,
    /// Only those whose explanation has this code.
    pub code: Option<String>,
    /// Only those that arrived at this time or later.
    pub since: Option<UnixTime>,
    /// Continue before this place (that of the last of the page before).
    pub before: Option<u64>,
    /// Leave out so many of the newest.
    pub skip: usize,
    /// At most so many.
    pub limit: usize,
}

/// A request that was turned away, with its place in order of arrival.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// Its place.
    pub place: u64,
    /// The request.
    pub request: RequestRecord,
}

/// Which requests are old enough.
#[derive(Clone, Debug)]
pub struct AgeFilter {
    /// Of this door.
    pub door: Door,
    /// In this state.
    pub state: RequestState,
    /// That arrived before then.
    pub before: UnixTime,
    /// Continue after this one (the last of the page before).
    pub after: Option<RequestId>,
    /// At most so many.
    pub limit: usize,
}

/// Which machines a listing shows.
#[derive(Clone, Debug, Default)]
pub struct MachineFilter {
    /// Continue after this name (the last of the page before).
    pub after: Option<String>,
    /// At most so many.
    pub limit: usize,
    /// Only of this role.
    pub role: Option<String>,
    /// Only of this provider.
    pub provider: Option<String>,
    /// Only those that have enrolled, or only those that have not.
    pub enrolled: Option<bool>,
}

/// Figures for monitoring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pending requests that occupy a name, by door.
    pub pending: Vec<(Door, u64)>,
    /// Certificates that are neither revoked nor retired and end soon, by issuer.
    pub expiring: Vec<(IssuerId, u64)>,
}

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
    /// Burns the serial of an intent that will not be completed.
    VoidIntent {
        /// Whose.
        issuer: IssuerId,
        /// Which.
        serial: Serial,
    },
    /// Completes an intent: the certificate enters the ledger.
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
    /// Forgets what rules have turned away under a name, or under any, but the newest `keep`. What a person denied, and
    /// what occupies its name, stays.
    TrimRejections {
        /// Only of this name at this door.
        of: Option<(Door, String)>,
        /// So many stay.
        keep: usize,
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
        }
    }
}

/// The acknowledgement of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its place in commit order; the version of every request it touched.
    pub revision: Revision,
}

/// One entry of the change feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// When in commit order.
    pub revision: Revision,
    /// What.
    pub what: ChangedThing,
}

/// What a change touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedThing {
    /// A request was stored or changed.
    Request {
        /// Which.
        id: RequestId,
        /// Its door.
        door: Door,
        /// Its name there.
        key: String,
    },
    /// A request was forgotten.
    RequestDeleted {
        /// Which.
        id: RequestId,
        /// Its door.
        door: Door,
        /// Its name there.
        key: String,
    },
    /// A certificate entered the ledger.
    Certificate {
        /// Whose.
        issuer: IssuerId,
        /// Which.
        serial: Serial,
    },
    /// A certificate was revoked.
    Revocation {
        /// Whose.
        issuer: IssuerId,
        /// Which.
        serial: Serial,
    },
    /// The certificates of a name were retired.
    Retirement {
        /// Whose.
        issuer: IssuerId,
        /// The name.
        name: String,
    },
    /// A CRL was published.
    Crl {
        /// Whose.
        issuer: IssuerId,
    },
}

/// Why a change was not committed. Nothing of it was written.
#[derive(Debug, thiserror::Error)]
pub enum CommitFault {
    /// Somebody was faster.
    #[error("a precondition no longer holds: {precondition:?}")]
    Conflict {
        /// The first one that failed.
        precondition: Precondition,
    },
    /// The serial is in the ledger already.
    #[error("serial {serial} of issuer {issuer} is already in the ledger")]
    DuplicateSerial {
        /// Whose.
        issuer: IssuerId,
        /// Which.
        serial: Serial,
    },
    /// The store itself failed.
    #[error(transparent)]
    Store(#[from] StoreFault),
}

/// Why the store did not answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// No space left.
    #[error("the store's disk is full")]
    Full,
    /// It cannot be written.
    #[error("the store is read-only")]
    ReadOnly,
    /// Too many calls are waiting.
    #[error("the store is overloaded")]
    Overloaded,
    /// It has stopped.
    #[error("the store has stopped")]
    Stopped,
    /// What is stored cannot be understood.
    #[error("the store holds a {what} that cannot be read")]
    Corrupt {
        /// What kind of record.
        what: &'static str,
    },
    /// Anything else that the storage engine reports.
    #[error("the store failed")]
    Failed {
        /// The storage engine's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
