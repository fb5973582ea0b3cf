//! What is read from a store: a trait per domain, and what their questions and answers are made of.

use std::net::IpAddr;

use countersign_pki::{Fingerprint, Serial, UnixTime};
use tokio::sync::mpsc;

use crate::audit::sealing::{Seal, SealHead};
use crate::audit::{AuditEntry, AuditPage, AuditQuery};
use crate::issuer::IssuerId;
use crate::model::{
    AncestorCrl, CrlRecord, CrlScope, Door, Intent, LedgerEntry, ListedCertificate, MachineRecord,
    PolicyVersion, RequestId, RequestRecord, RequestState, Revision, Revocation,
};
use crate::objects::{ObjectKey, ObjectRecord, StateChange};
use crate::request::denials::RepeatedDenials;
use crate::store::Answer;
use crate::token::bootstrap::{BootstrapId, BootstrapToken};
use crate::token::{FoundToken, ListedToken, TokenFilter, TokenId, TokenRecord, TokenUseRecord};
use countersign_policy::BuildWindow;

/// How much there is of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many.
    pub number: usize,
    /// How many bytes they take, without what others of their kind take as well.
    pub bytes: u64,
}

/// What is read of requests, of policies on record and of deciders' words.
pub trait RequestReads: Send + Sync {
    /// A request by identity, also one that its open intent holds.
    fn request(&self, id: RequestId) -> Answer<'_, Option<RequestRecord>>;

    /// The request that occupies a name at a door; else, if `past` allows, the newest that did.
    fn request_at(&self, door: &Door, key: &str, past: Past) -> Answer<'_, Option<RequestRecord>>;

    /// A page of requests, ordered by door, name and age.
    fn requests(&self, filter: RequestFilter) -> Answer<'_, Vec<RequestRecord>>;

    /// Requests of one door and state that arrived before a time, oldest first.
    fn requests_before(&self, filter: AgeFilter) -> Answer<'_, Vec<RequestRecord>>;

    /// What waits from an address, or from its /64; at most `at_most` requests are counted.
    fn pending_from(&self, source: IpAddr, at_most: usize) -> Answer<'_, Amount>;

    /// How many bytes everything takes that waits.
    fn pending_bytes(&self) -> Answer<'_, u64>;

    /// What [`Write::TrimRejections`](super::Write::TrimRejections) may forget, beside thefts of tokens since a time.
    fn trimmable(&self, thefts_since: UnixTime) -> Answer<'_, Amount>;

    /// Counts of denials that began before a time, at most `limit`.
    fn repeated_denials(&self, before: UnixTime, limit: usize) -> Answer<'_, Vec<RepeatedDenials>>;

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

    /// Sends every request that occupies a name at a door, by name, in pages, and answers with the revision at which all of
    /// that was so. Whoever receives takes them in time: a thread that reads waits. It ends early if nobody receives.
    fn live_requests(
        &self,
        door: &Door,
        pages: mpsc::Sender<Vec<LiveRequest>>,
    ) -> Answer<'_, Revision>;
}

/// What is read of certificates, issued or about to be.
pub trait LedgerReads: Send + Sync {
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

    /// The same entries as [`LedgerReads::newest_certificates`], as far as a listing shows them: quicker by what is not read.
    fn listed_certificates(
        &self,
        issuer: &IssuerId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<ListedCertificate>>;

    /// Every ledger entry of an issuer in the order in which they were recorded, retired ones included, each
    /// with its place; at most `limit` after the place `after`.
    fn ledger(
        &self,
        issuer: &IssuerId,
        after: Option<u64>,
        limit: usize,
    ) -> Answer<'_, Vec<(u64, LedgerEntry)>>;

    /// Intents that were neither completed nor voided, oldest first.
    fn open_intents(&self) -> Answer<'_, Vec<Intent>>;
}

/// What is read of an issuer: its counter, its revocations, its CRLs.
pub trait IssuerReads: Send + Sync {
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
}

/// What is read of enrolment tokens and bootstrap tokens.
pub trait TokenReads: Send + Sync {
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
}

/// What is read of machines and build windows.
pub trait InventoryReads: Send + Sync {
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
}

/// What is read of the audit log.
pub trait AuditReads: Send + Sync {
    /// Audit entries after `since`, in commit order.
    fn audit(&self, since: Revision, limit: usize) -> Answer<'_, Vec<(Revision, AuditEntry)>>;

    /// A page of audit entries as they are kept, which a filter may thin out.
    fn audit_page(&self, query: AuditQuery) -> Answer<'_, AuditPage>;

    /// The seals of the audit log after a number, in order, at most `limit`.
    fn seals(&self, after: u64, limit: usize) -> Answer<'_, Vec<Seal>>;

    /// The newest seal of the audit log, without the hashes of its entries.
    fn last_seal(&self) -> Answer<'_, Option<SealHead>>;
}

/// What is read of objects and of the history of states.
pub trait ObjectReads: Send + Sync {
    /// Every object, by kind, namespace and name, with the revision at which that was so.
    fn objects(&self) -> Answer<'_, (Revision, Vec<ObjectRecord>)>;

    /// An object by name.
    fn object(&self, key: &ObjectKey) -> Answer<'_, Option<ObjectRecord>>;

    /// Every state that commits after `since` left of retained requests and of objects, in commit order and in the order of
    /// a commit's writes; at most `limit`, but never a part of a commit. Empty: nothing more.
    fn states(&self, since: Revision, limit: usize) -> Answer<'_, Vec<StateChange>>;

    /// The revision after which every state is on record, and at most `newest` states of requests are.
    fn states_horizon(&self, newest: usize) -> Answer<'_, Revision>;
}

/// A request that occupies its name, and its certificate.
#[derive(Clone, Debug)]
pub struct LiveRequest {
    /// The request.
    pub record: RequestRecord,
    /// The DER of its certificate, if it has one in the ledger.
    pub certificate: Option<Vec<u8>>,
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
    /// Only the newest of its name at its door.
    pub newest_only: bool,
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
    /// Only what may be forgotten: what a rule has turned away, and what occupies no name.
    pub trimmable: bool,
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
