//! The published CRL: what it lists, when it is made anew, how it is served.

pub(crate) mod ancestors;
pub(crate) mod infrastructure;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use arc_swap::ArcSwapOption;
use countersign_pki::{Crl, CrlTemplate, RevokedEntry, Serial, Subject, UnixTime, pem, seal};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::watch;
use tracing::warn;

use crate::audit::AuditEntry;
use crate::crl::ancestors::Ancestors;
use crate::detached::run_detached;
use crate::engine::Core;
use crate::faults::EngineError;
use crate::issuer::Issuers;
use crate::issuer::{Issuer, IssuerId};
use crate::issuing::{MAX_TRIES, commit_broken};
use crate::ledger::revocation::Revocations;
use crate::model::{CrlRecord, CrlScope, Revision, Revocation};
use crate::store::{Change, CommitFault, Precondition, Write};

/// A published CRL, ready to be served.
#[derive(Debug)]
pub struct CrlState {
    /// What is on record.
    pub record: CrlRecord,
    /// The list as PEM, followed by those of the CAs above up to the root.
    pub pem: String,
    /// When what clients are given last changed. Not before this process began to give them lists of this scope: until
    /// then they may have been given those of another.
    pub modified: UnixTime,
    /// Every list of that text, in its order.
    pub ends: Vec<CrlEnd>,
}

/// Until when a list may be relied on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrlEnd {
    /// The common name of the CA that signed it; empty if it has none.
    pub common_name: String,
    /// When a newer one was promised, if it was.
    pub next_update: Option<UnixTime>,
}

impl Issuers {
    /// The published CRL of an issuer: everything that is revoked.
    pub fn crl(&self, issuer: &IssuerId) -> Option<Arc<CrlState>> {
        self.published(issuer, CrlScope::Full)
    }

    /// The published CRL of the site's own machines, where there is one.
    pub fn infra_crl(&self, issuer: &IssuerId) -> Option<Arc<CrlState>> {
        self.published(issuer, CrlScope::Infrastructure)
    }

    /// The CRL that clients are given: the short one where there is one, else all of it.
    pub fn served_crl(&self, issuer: &IssuerId) -> Option<Arc<CrlState>> {
        self.infra_crl(issuer).or_else(|| self.crl(issuer))
    }

    fn published(&self, issuer: &IssuerId, scope: CrlScope) -> Option<Arc<CrlState>> {
        let revocations = self.core.revocations.get(issuer)?;
        revocations.published(scope).load_full()
    }

    /// Wakes its receiver whenever a CRL of the issuer is published anew.
    pub fn crl_news(&self, issuer: &IssuerId) -> Option<watch::Receiver<u64>> {
        Some(self.core.revocations.get(issuer)?.news.subscribe())
    }

    /// Publishes CRLs anew that are due.
    pub async fn refresh_crls(&self) -> Result<(), EngineError> {
        let core = Arc::clone(&self.core);
        run_detached(async move { core.refresh_crls().await }).await
    }
}

impl Core {
    /// One issuer that cannot publish holds up no other; its fault is the answer.
    async fn refresh_crls(&self) -> Result<(), EngineError> {
        let mut first = Ok(());
        for (issuer, revocations) in self.revocations.iter() {
            self.warn_of_ancestors(issuer, revocations);
            let covers = *revocations.revoking.lock().await;
            let publish = if self.is_old(revocations.published(CrlScope::Full).load().as_deref()) {
                Publish::Always
            } else {
                Publish::IfBehind
            };
            if let Err(fault) = self.publish_crl(issuer, covers, publish).await {
                warn!(%issuer, %fault, "the CRL was not published");
                first = first.and(Err(fault));
            }
        }
        first
    }

    /// Whether a CRL is to be made anew whatever it lists; also if there is none.
    pub(crate) fn is_old(&self, published: Option<&CrlState>) -> bool {
        let now = self.clock.now();
        published.is_none_or(|crl| {
            let made = crl.record.this_update;
            // A CRL from the future was made by a clock that was wrong.
            made > now || made.plus_seconds(self.limits.crl_refresh_seconds) <= now
        })
    }

    /// Publishes what was just revoked. A short list is out when this returns. A long one follows, usually within a second:
    /// making it takes longer than anybody should wait, and meanwhile every door knows the revocation from the index. If
    /// it fails, upkeep makes up for it, and so does the next start.
    pub(crate) async fn publish_revoked(
        self: &Arc<Self>,
        id: &IssuerId,
        covers: Revision,
    ) -> Result<(), EngineError> {
        let is_long = self.revocations.get(id).is_some_and(Revocations::is_long);
        if !is_long {
            return self.publish_crl(id, covers, Publish::IfBehind).await;
        }
        let (core, id) = (Arc::clone(self), id.clone());
        tokio::spawn(async move {
            if let Err(fault) = core.publish_crl(&id, covers, Publish::IfBehind).await {
                warn!(issuer = %id, %fault, "the CRL was not published");
            }
        });
        Ok(())
    }

    /// Signs, records and serves a CRL with everything revoked so far. Calls that come while one is
    /// being made share the next.
    pub(crate) async fn publish_crl(
        &self,
        id: &IssuerId,
        covers: Revision,
        publish: Publish,
    ) -> Result<(), EngineError> {
        let Some(revocations) = self.revocations.get(id) else {
            return Ok(());
        };
        let mut publishing = revocations.publishing.lock().await;
        // Not before it is our turn: the list after one of a new key is never one of the old.
        let issuer = self.issuer(id)?;
        self.publish_full_crl(&issuer, revocations, covers, publish)
            .await?;
        self.publish_infra_crl(&issuer, revocations, &mut publishing)
            .await
    }

    async fn publish_full_crl(
        &self,
        issuer: &Issuer,
        revocations: &Revocations,
        covers: Revision,
        publish: Publish,
    ) -> Result<(), EngineError> {
        let scope = CrlScope::Full;
        for _ in 0..MAX_TRIES {
            let before = revocations.published(scope).load_full();
            let behind = before.as_ref().is_none_or(|crl| crl.record.covers < covers);
            if publish == Publish::IfBehind && !behind {
                return Ok(());
            }
            let covers = (*revocations.revoking.lock().await).max(covers);
            let now = self.clock.now();
            let entries = revocations.at_length(|| revocations.entries(now, |_| true));
            let scheduled = Scheduled { scope, covers };
            match self
                .replace_crl(issuer, revocations, scheduled, &entries)
                .await?
            {
                Replaced::ByUs => return Ok(()),
                Replaced::ByOthers => {}
            }
        }
        Err(EngineError::Contended)
    }

    /// Signs, records and serves a CRL in place of the one that is published.
    pub(crate) async fn replace_crl(
        &self,
        issuer: &Issuer,
        revocations: &Revocations,
        scheduled: Scheduled,
        entries: &[RevokedEntry],
    ) -> Result<Replaced, EngineError> {
        let before = revocations.published(scheduled.scope).load_full();
        let before = before.map(|crl| crl.record.number);
        let record = self
            .make_crl(issuer, revocations, before, scheduled, entries)
            .await?;
        match self.commit(published(&record, before)).await {
            Ok(_) => {
                revocations.publish(issuer, record);
                Ok(Replaced::ByUs)
            }
            // Another process published one: the next number follows that.
            Err(CommitFault::Conflict { .. }) => {
                if let Some(theirs) = self.store.crl(issuer.id(), scheduled.scope).await? {
                    revocations.publish(issuer, theirs);
                }
                Ok(Replaced::ByOthers)
            }
            Err(other) => Err(commit_broken(other)),
        }
    }

    /// Signs a CRL with these entries.
    async fn make_crl(
        &self,
        issuer: &Issuer,
        revocations: &Revocations,
        before: Option<u64>,
        scheduled: Scheduled,
        entries: &[RevokedEntry],
    ) -> Result<CrlRecord, EngineError> {
        let now = self.clock.now();
        let number = before.map_or(0, |number| number.saturating_add(1));
        // One second back, so that a client whose clock lags a little does not find it in its future.
        let this_update = now.minus_seconds(THIS_UPDATE_LAG);
        let next_update = now
            .plus_seconds(self.limits.crl_lifetime_seconds)
            .min(issuer.not_after());
        let template = CrlTemplate {
            algorithm: issuer.algorithm(),
            issuer_name_der: issuer.certificate().subject().der(),
            this_update,
            next_update,
            number,
            authority_key_id: issuer.key_id(),
            entries,
        };
        let to_be_signed = revocations.at_length(|| template.to_be_signed())?;
        let signature = self.sign(issuer, &to_be_signed).await?;
        let der = seal(&to_be_signed, issuer.algorithm(), &signature.0)?;
        Ok(CrlRecord {
            issuer: issuer.id().clone(),
            scope: scheduled.scope,
            number,
            covers: scheduled.covers,
            this_update,
            next_update,
            der,
        })
    }
}

impl Revocations {
    /// The published list of a scope.
    pub(crate) fn published(&self, scope: CrlScope) -> &ArcSwapOption<CrlState> {
        match scope {
            CrlScope::Full => &self.full,
            CrlScope::Infrastructure => &self.infrastructure,
        }
    }

    pub(crate) fn publish(&self, issuer: &Issuer, record: CrlRecord) {
        let (number, scope) = (record.number, record.scope);
        let mut state = self.at_length(|| compose(issuer, record, &self.ancestors.load()));
        state.modified = state.modified.max(self.served_since());
        self.published(scope).store(Some(Arc::new(state)));
        self.news.send_replace(number);
    }

    /// Serves the published lists with the CRLs that the CAs above have now.
    pub(crate) fn compose_anew(&self, issuer: &Issuer) {
        for scope in [CrlScope::Full, CrlScope::Infrastructure] {
            if let Some(state) = self.published(scope).load_full() {
                self.publish(issuer, state.record.clone());
            }
        }
    }

    /// Whether making the list takes long.
    fn is_long(&self) -> bool {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        index.len() > SHORT_LIST
    }

    /// Does something with every entry of the list. While that takes long, another thread takes care of what else this
    /// one would have to do.
    fn at_length<T>(&self, work: impl FnOnce() -> T) -> T {
        let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
        match flavor {
            Ok(RuntimeFlavor::MultiThread) if self.is_long() => tokio::task::block_in_place(work),
            Ok(_) | Err(_) => work(),
        }
    }

    /// What belongs on a list at this time, of the serials that it is for.
    pub(crate) fn entries(
        &self,
        now: UnixTime,
        is_for: impl Fn(&Serial) -> bool,
    ) -> Vec<RevokedEntry> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        index
            .values()
            .filter(|one| belongs_on_crl(one, now) && is_for(&one.serial))
            .map(|one| RevokedEntry {
                serial: one.serial,
                at: one.revoked.at,
                reason: one.revoked.reason,
            })
            .collect()
    }
}

/// The issuer's own list first: clients take the first for that.
fn compose(issuer: &Issuer, record: CrlRecord, ancestors: &Ancestors) -> CrlState {
    let mut pem = pem::encode("X509 CRL", &record.der);
    let mut ends = vec![CrlEnd {
        common_name: common_name(issuer.certificate().subject()),
        next_update: Some(record.next_update),
    }];
    for list in ancestors.lists() {
        pem.push_str(&list.to_pem());
        ends.push(CrlEnd {
            common_name: common_name(list.issuer()),
            next_update: list.next_update(),
        });
    }
    let made = record.this_update.plus_seconds(THIS_UPDATE_LAG);
    let modified = ancestors
        .changed()
        .map_or(made, |changed| changed.max(made));
    CrlState {
        record,
        pem,
        modified,
        ends,
    }
}

fn common_name(subject: &Subject) -> String {
    subject.first_common_name().unwrap_or_default().to_owned()
}

/// Whether the CRL on record is the one of its number and lists everything in the index. After a restore its number is
/// ahead of the list.
pub(crate) fn lists_all(
    record: &CrlRecord,
    index: &BTreeMap<Serial, Revocation>,
    now: UnixTime,
) -> bool {
    let Ok(crl) = Crl::parse(&record.der) else {
        return false;
    };
    if crl.number() != Some(record.number) {
        return false;
    }
    let listed: BTreeSet<Serial> = crl.serials().collect();
    let due = index.values().filter(|one| belongs_on_crl(one, now));
    due.map(|one| one.serial)
        .all(|serial| listed.contains(&serial))
}

fn published(record: &CrlRecord, before: Option<u64>) -> Change {
    Change {
        preconditions: vec![Precondition::CrlNumber {
            issuer: record.issuer.clone(),
            scope: record.scope,
            number: before,
        }],
        writes: vec![Write::PutCrl(record.clone())],
        audit: vec![
            AuditEntry::own(
                record.this_update,
                "crl",
                format!("{}/{}", record.issuer, record.number),
            )
            .detail(match record.scope {
                CrlScope::Full => "",
                CrlScope::Infrastructure => "infrastructure",
            }),
        ],
    }
}

/// What a CRL that is about to be made is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scheduled {
    pub(crate) scope: CrlScope,
    pub(crate) covers: Revision,
}

/// Whose list is published now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replaced {
    ByUs,
    ByOthers,
}

/// Whether a CRL is made although nothing is missing from the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publish {
    Always,
    IfBehind,
}

/// RFC 5280 3.3: an entry stays on at least one CRL issued after the certificate has ended. A day more
/// also covers clocks that differ.
fn belongs_on_crl(revocation: &Revocation, now: UnixTime) -> bool {
    revocation.listed && revocation.not_after.plus_seconds(DAY) >= now
}

pub(crate) const DAY: u64 = 86_400;
const THIS_UPDATE_LAG: u64 = 1;
/// Lists up to here are made in a few milliseconds.
const SHORT_LIST: usize = 4096;
