//! The CAs above an issuer and their CRLs, which are made elsewhere, and kept and served here.
//!
//! A client that checks revocation along the whole chain wants a CRL of every CA in it. Those of the CAs above come
//! through an administrator; what a list says is believed only if the CA in the chain signed it.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersign_pki::{Certificate, Crl, CrlFault, UnixTime, VerifyFault, oid, pem};
use countersign_policy::Requester;
use tracing::{info, warn};

use crate::audit::AuditEntry;
use crate::authorisation::actor::Actor;
use crate::authorisation::grant::Needed;
use crate::detached::run_detached;
use crate::engine::Core;
use crate::faults::EngineError;
use crate::issuer::Issuers;
use crate::issuer::chain::key_id;
use crate::issuer::{Issuer, IssuerId};
use crate::issuing::commit_broken;
use crate::ledger::revocation::Revocations;
use crate::model::AncestorCrl;
use crate::store::{Change, Write};

impl Issuers {
    /// Takes newer CRLs of the CAs above an issuer, as PEM. For each of those CAs the list with the highest number is
    /// kept, whether it was kept before or submitted now, or the latest where none has a number; lists of anybody else, and of the issuer itself, are left
    /// aside. All of it is taken, or nothing: afterwards every CA above has a list, they are in force, and none revokes
    /// a CA of the chain. Answers with how many lists are new.
    ///
    /// A CA of the chain that has none yet gets one, so that a
    /// site whose root's list was lost, or that placed its chain by hand, gets well.
    pub async fn put_ancestor_crls(
        &self,
        issuer: &IssuerId,
        lists_pem: Vec<u8>,
        actor: &Actor,
    ) -> Result<usize, AncestorCrlFault> {
        let core = Arc::clone(&self.core);
        let (issuer, actor) = (issuer.clone(), actor.clone());
        run_detached(async move {
            core.authorise_ancestor_crls(&issuer, &actor).await?;
            put(core, issuer, lists_pem, actor.requester).await
        })
        .await
    }
}

/// Why CRLs of the CAs above an issuer were not taken. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum AncestorCrlFault {
    /// No such issuer.
    #[error("there is no issuer {issuer}")]
    UnknownIssuer {
        /// The name.
        issuer: IssuerId,
    },
    /// There is no list in the text.
    #[error("the text holds no CRL")]
    Nothing,
    /// The text is not PEM.
    #[error("{0}")]
    Pem(pem::PemFault),
    /// A list does not parse.
    #[error("CRL {place}: {fault}")]
    Malformed {
        /// Which, counted from one.
        place: usize,
        /// What is wrong with it.
        fault: CrlFault,
    },
    /// A list does not say by which key it was signed.
    #[error("CRL {place} has no authority key identifier")]
    WithoutKeyId {
        /// Which, counted from one.
        place: usize,
    },
    /// Which list is newer cannot be told, because one has no number and another does, or was made at the same time.
    #[error("a CRL of {ca} has no number, or one of more than {MAX_NUMBER} octets")]
    WithoutNumber {
        /// Whose.
        ca: String,
    },
    /// Which list is newer cannot be told, because two have the same number.
    #[error("different CRLs of {ca} have the same number")]
    SameNumber {
        /// Whose.
        ca: String,
    },
    /// A list that says only what changed since another.
    #[error("the newest CRL of {ca} is a delta CRL")]
    Delta {
        /// Whose.
        ca: String,
    },
    /// The CA did not sign it.
    #[error("the CRL of {ca} is not signed by it: {fault}")]
    Forged {
        /// Whose it claims to be.
        ca: String,
        /// Why not.
        fault: VerifyFault,
    },
    /// A CA has no list, neither before nor now.
    #[error("there is no CRL of {ca}; submit it together with the others")]
    Missing {
        /// Whose.
        ca: String,
    },
    /// A list was made in the future.
    #[error("the CRL of {ca} is valid only from {from} on")]
    NotYet {
        /// Whose.
        ca: String,
        /// From when on.
        from: UnixTime,
    },
    /// A list has ended.
    #[error("the CRL of {ca} has expired at {end}; submit a newer one")]
    Expired {
        /// Whose.
        ca: String,
        /// When.
        end: UnixTime,
    },
    /// A list revokes a CA of the chain.
    #[error("the CRL of {ca} revokes {subject}")]
    Revoked {
        /// Whose.
        ca: String,
        /// Whom.
        subject: String,
    },
    /// Whoever asks may not.
    #[error(transparent)]
    Forbidden(#[from] Needed),
    /// It could not be carried through.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The CAs above an issuer, the nearest first, each with its list.
#[derive(Debug, Default)]
pub(crate) struct Ancestors {
    cas: Vec<Ancestor>,
    /// When the lists were last known to change.
    changed: Option<UnixTime>,
}

#[derive(Debug)]
struct Ancestor {
    certificate: Certificate,
    key_id: Vec<u8>,
    list: Option<Arc<Crl>>,
}

/// Something about a list that stops clients, now or soon.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Worry {
    #[error(
        "there is no CRL of {ca}: clients that check the whole chain (many do by default) refuse every certificate; submit one, docs/configuration.md tells how under Issuers"
    )]
    Missing { ca: String },
    #[error(
        "the CRL of {ca} has expired at {end}: clients that check the whole chain (many do by default) refuse every certificate; submit a newer one, docs/configuration.md tells how under Issuers"
    )]
    Expired { ca: String, end: UnixTime },
    #[error(
        "the CRL of {ca} expires at {end}: submit a newer one before, docs/configuration.md tells how under Issuers"
    )]
    EndsSoon { ca: String, end: UnixTime },
}

impl Ancestors {
    /// The CAs above `issuer` with those of the stored lists that are theirs.
    fn new(issuer: &Issuer, stored: &[AncestorCrl], changed: UnixTime) -> Self {
        let mut cas: Vec<Ancestor> = issuer.ancestors().iter().map(Ancestor::new).collect();
        for record in stored {
            let owner = cas.iter_mut().find(|ca| ca.key_id == record.key_id);
            let list = Crl::parse(&record.der).ok();
            match (owner, list) {
                (Some(ca), Some(list)) if ca.signed(&list).is_ok() => {
                    ca.list = Some(Arc::new(list));
                }
                (_, list) => {
                    let name = list.map(|list| list.issuer().to_string());
                    warn!(issuer = %issuer.id(), ca = name, "a stored CRL is of no CA in the issuer's chain; it is not served");
                }
            }
        }
        let changed = cas.iter().any(|ca| ca.list.is_some()).then_some(changed);
        Self { cas, changed }
    }

    /// When what is served of them last changed.
    pub(crate) fn changed(&self) -> Option<UnixTime> {
        self.changed
    }

    /// The lists there are.
    pub(crate) fn lists(&self) -> impl Iterator<Item = &Crl> {
        self.cas.iter().filter_map(|ca| ca.list.as_deref())
    }

    /// What an administrator should know at this time.
    pub(crate) fn worries(&self, now: UnixTime) -> Vec<Worry> {
        let worry = |ca: &Ancestor| {
            let name = ca.name();
            let Some(list) = &ca.list else {
                return Some(Worry::Missing { ca: name });
            };
            match list.next_update() {
                Some(end) if end < now => Some(Worry::Expired { ca: name, end }),
                Some(end) if end < now.plus_seconds(SOON) => {
                    Some(Worry::EndsSoon { ca: name, end })
                }
                Some(_) | None => None,
            }
        };
        self.cas.iter().filter_map(worry).collect()
    }

    /// Which of the submitted lists replace or join those that are kept.
    fn choose(
        &self,
        issuer: &Issuer,
        submitted: &[Arc<Crl>],
        now: UnixTime,
    ) -> Result<Vec<AncestorCrl>, AncestorCrlFault> {
        if submitted.is_empty() {
            return Err(AncestorCrlFault::Nothing);
        }
        let without = submitted
            .iter()
            .position(|list| list.authority_key_id().is_none());
        if let Some(index) = without {
            let place = index.saturating_add(1);
            return Err(AncestorCrlFault::WithoutKeyId { place });
        }
        let mut chosen = Vec::new();
        for ca in &self.cas {
            let theirs = submitted
                .iter()
                .filter(|list| list.authority_key_id() == Some(&*ca.key_id));
            chosen.push(ca.newest(theirs)?);
        }
        for (ca, list) in self.cas.iter().zip(&chosen) {
            if list.as_ref().is_some_and(|list| is_delta(list)) {
                return Err(AncestorCrlFault::Delta { ca: ca.name() });
            }
        }
        self.check_chain(issuer, &chosen, now)?;
        Ok(self.new_among(chosen))
    }

    /// Every CA of the chain has a list above it that it signed, that is in force and does not revoke it.
    fn check_chain(
        &self,
        issuer: &Issuer,
        lists: &[Option<Arc<Crl>>],
        now: UnixTime,
    ) -> Result<(), AncestorCrlFault> {
        let mut below = issuer.certificate();
        for (ca, list) in self.cas.iter().zip(lists) {
            let name = || ca.name();
            let Some(list) = list else {
                return Err(AncestorCrlFault::Missing { ca: name() });
            };
            ca.signed(list)
                .map_err(|fault| AncestorCrlFault::Forged { ca: name(), fault })?;
            let from = list.this_update();
            if from > now.plus_seconds(CLOCK_TOLERANCE) {
                return Err(AncestorCrlFault::NotYet { ca: name(), from });
            }
            if let Some(end) = list.next_update().filter(|end| *end < now) {
                return Err(AncestorCrlFault::Expired { ca: name(), end });
            }
            // The last one stands above itself.
            for subject in [below, &ca.certificate] {
                let is_theirs = subject.verify_signed_by(ca.certificate.spki_der()).is_ok();
                if is_theirs && list.serials().any(|serial| serial == subject.serial()) {
                    let subject = subject.subject().to_string();
                    return Err(AncestorCrlFault::Revoked {
                        ca: name(),
                        subject,
                    });
                }
            }
            below = &ca.certificate;
        }
        Ok(())
    }

    /// Those that are not kept yet, as the store keeps them.
    fn new_among(&self, chosen: Vec<Option<Arc<Crl>>>) -> Vec<AncestorCrl> {
        let records = self.cas.iter().zip(chosen).zip(0..);
        let records = records.filter_map(|((ca, list), position)| {
            let list = list.filter(|list| ca.list.as_ref() != Some(list))?;
            Some(AncestorCrl {
                key_id: ca.key_id.clone(),
                number: list.number_bytes().unwrap_or_default().to_vec(),
                position,
                der: list.der().to_vec(),
            })
        });
        records.collect()
    }
}

impl Ancestor {
    fn new(certificate: &Certificate) -> Self {
        Self {
            certificate: certificate.clone(),
            // A key without an identifier signs no list that can be told apart.
            key_id: key_id(certificate).unwrap_or_default(),
            list: None,
        }
    }

    fn name(&self) -> String {
        self.certificate.subject().to_string()
    }

    fn signed(&self, list: &Crl) -> Result<(), VerifyFault> {
        list.verify_signed_by(self.certificate.spki_der())
    }

    /// The newest of the submitted lists and the one that is kept. The same list twice is one list, also if one of the
    /// two is the one that is kept.
    ///
    /// Lists are compared by number. A kept one that has none, because it came with a directory that was taken over,
    /// gives way to any that has; and to a later one, where the CA numbers none of its lists.
    fn newest<'a>(
        &'a self,
        submitted: impl Iterator<Item = &'a Arc<Crl>>,
    ) -> Result<Option<Arc<Crl>>, AncestorCrlFault> {
        let without_number = || AncestorCrlFault::WithoutNumber { ca: self.name() };
        let is_numbered = |list: &Arc<Crl>| list.number_bytes().is_some();
        let kept = self.list.as_ref();
        let mut candidates: BTreeMap<&[u8], &Arc<Crl>> = submitted
            .filter(|list| kept != Some(*list))
            .map(|list| (list.der(), list))
            .collect();
        let has_numbered = candidates.values().any(|list| is_numbered(list));
        let kept = kept.filter(|list| is_numbered(list) || !has_numbered);
        candidates.extend(kept.map(|list| (list.der(), list)));
        let numbered = candidates.values().filter(|list| is_numbered(list)).count();
        if numbered > 0 && numbered < candidates.len() {
            return Err(without_number());
        }
        let mut newest: Option<(Age<'a>, &'a Arc<Crl>)> = None;
        let mut is_tied = false;
        for list in candidates.into_values() {
            let age = Age::of(list).ok_or_else(without_number)?;
            match &newest {
                Some((highest, _)) if age < *highest => {}
                Some((highest, _)) if age == *highest => is_tied = true,
                Some(_) | None => {
                    newest = Some((age, list));
                    is_tied = false;
                }
            }
        }
        match newest {
            Some((Age::Numbered(..), _)) if is_tied => {
                Err(AncestorCrlFault::SameNumber { ca: self.name() })
            }
            Some((Age::Of(_), _)) if is_tied => Err(without_number()),
            newest => Ok(newest.map(|(_, list)| Arc::clone(list))),
        }
    }
}

/// What tells the newer of two lists of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Age<'a> {
    /// Without a number: when it was made.
    Of(UnixTime),
    /// Its number, compared as the magnitude it is: by length first.
    Numbered(usize, &'a [u8]),
}

impl<'a> Age<'a> {
    fn of(list: &'a Crl) -> Option<Self> {
        let Some(bytes) = list.number_bytes() else {
            return Some(Self::Of(list.this_update()));
        };
        (bytes.len() <= MAX_NUMBER).then_some(Self::Numbered(bytes.len(), bytes))
    }
}

impl Core {
    /// Reads the lists that are kept. Says what is wrong with them.
    pub(crate) async fn load_ancestors(
        &self,
        issuer: &Issuer,
        revocations: &Revocations,
    ) -> Result<(), EngineError> {
        let stored = self.store.ancestor_crls(issuer.id()).await?;
        // When they were put is not on record; whoever asks for what changed since gets them once more.
        let ancestors = Ancestors::new(issuer, &stored, self.clock.now());
        revocations.ancestors.store(Arc::new(ancestors));
        Ok(())
    }

    /// Says once a day what is wrong with the lists of the CAs above.
    pub(crate) fn warn_of_ancestors(&self, issuer: &IssuerId, revocations: &Revocations) {
        let now = self.clock.now();
        if revocations.is_time_to_warn(now) {
            for worry in revocations.ancestors.load().worries(now) {
                warn!(%issuer, "{worry}");
            }
        }
    }
}

async fn put(
    core: Arc<Core>,
    id: IssuerId,
    lists_pem: Vec<u8>,
    actor: Requester,
) -> Result<usize, AncestorCrlFault> {
    let Some(revocations) = core.revocations.get(&id) else {
        return Err(AncestorCrlFault::UnknownIssuer { issuer: id });
    };
    let issuer = core.issuer(&id)?;
    let submitted = aside(move || read(&lists_pem)).await??;
    let _one_at_a_time = revocations.publishing.lock().await;
    let new = {
        let (core, id) = (Arc::clone(&core), id.clone());
        let now = core.clock.now();
        let kept = revocations.ancestors.load_full();
        aside(move || kept.choose(&*core.issuer(&id)?, &submitted, now)).await??
    };
    if new.is_empty() {
        return Ok(0);
    }
    let count = new.len();
    let change = taken(&issuer, new, &actor, core.clock.now());
    core.commit(change).await.map_err(commit_broken)?;
    info!(issuer = %id, count, %actor, "CRLs of the CAs above were taken");
    core.load_ancestors(&issuer, revocations).await?;
    revocations.compose_anew(&issuer);
    Ok(count)
}

/// Runs what takes the processor for longer on a thread that may be held up.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EngineError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| EngineError::Defect)
}

fn read(lists_pem: &[u8]) -> Result<Vec<Arc<Crl>>, AncestorCrlFault> {
    let blocks = pem::decode_all(lists_pem, &LIMITS).map_err(AncestorCrlFault::Pem)?;
    let lists = blocks.iter().filter(|block| block.label == "X509 CRL");
    let parsed = lists.zip(1..).map(|(block, place)| {
        let list = Crl::parse(&block.der);
        list.map(Arc::new)
            .map_err(|fault| AncestorCrlFault::Malformed { place, fault })
    });
    parsed.collect()
}

fn taken(issuer: &Issuer, new: Vec<AncestorCrl>, actor: &Requester, at: UnixTime) -> Change {
    let id = issuer.id();
    let mut change = Change::default();
    for crl in new {
        let position = usize::try_from(crl.position).unwrap_or(usize::MAX);
        let ca = issuer.ancestors().get(position);
        let ca = ca.map(|ca| ca.subject().to_string()).unwrap_or_default();
        let submitted = format!("{} was submitted", numbered(&crl));
        let entry = AuditEntry::new(at, actor.clone(), "crl", format!("{id}/{ca}"));
        change.audit.push(entry.detail(submitted));
        change.writes.push(Write::PutAncestorCrl {
            issuer: id.clone(),
            crl,
        });
    }
    change
}

fn is_delta(list: &Crl) -> bool {
    list.extensions()
        .iter()
        .any(|extension| extension.oid == oid::DELTA_CRL_INDICATOR)
}

fn numbered(crl: &AncestorCrl) -> String {
    let list = Crl::parse(&crl.der).ok();
    if list.is_some_and(|list| list.number_bytes().is_none()) {
        return "a list without a number".to_owned();
    }
    if crl.number.is_empty() {
        return "number 0x00".to_owned();
    }
    let digits: String = crl.number.iter().map(|b| format!("{b:02x}")).collect();
    format!("number 0x{digits}")
}

/// A text that an administrator sends: some lists for each CA of a chain.
const LIMITS: pem::PemLimits = pem::PemLimits {
    max_text: 64 * 1024 * 1024, // the door admits less
    max_blocks: 256,
};
const MAX_NUMBER: usize = 20; // RFC 5280 5.2.3
const CLOCK_TOLERANCE: u64 = 300; // as agents have it
const SOON: u64 = 30 * 86_400; // time enough to ask whoever holds the root's key

#[cfg(test)]
mod tests {
    use countersign_testkit::chain::{Ca, CrlFacts};
    use countersign_testkit::keys;

    use super::*;

    const NOW: UnixTime = UnixTime(1_800_000_000);

    /// An issuer below "Root CA", with the lists as the store would have them.
    fn above(lists: &[String]) -> (Issuer, Ancestors) {
        let root = Ca::root("Root CA", keys::p384(), NOW);
        let own = root.below("Own CA", keys::p256_a(), 2, NOW);
        let chain = own.certificate.to_pem() + &root.certificate.to_pem();
        let key = keys::p256_a();
        let issuer = Issuer::from_chain(
            IssuerId::parse("fleet").unwrap(),
            chain.into_bytes(),
            key.issuer_algorithm().unwrap(),
            key.spki_der(),
        )
        .unwrap();
        let stored = read(lists.concat().as_bytes()).unwrap();
        let stored: Vec<AncestorCrl> = stored
            .iter()
            .map(|list| AncestorCrl {
                key_id: list.authority_key_id().unwrap_or_default().to_vec(),
                number: list.number_bytes().unwrap_or_default().to_vec(),
                position: 0,
                der: list.der().to_vec(),
            })
            .collect();
        let ancestors = Ancestors::new(&issuer, &stored, NOW);
        (issuer, ancestors)
    }

    fn root_crl(days: u64) -> String {
        let root = Ca::root("Root CA", keys::p384(), NOW);
        root.crl(&CrlFacts {
            next_update: NOW.plus_seconds(days * 86_400),
            ..CrlFacts::good(1, NOW)
        })
    }

    #[test]
    fn lists_that_are_missing_or_about_to_end_are_told() {
        let ca = || "CN=Root CA".to_owned();
        let (_, without) = above(&[]);
        assert_eq!(without.worries(NOW), [Worry::Missing { ca: ca() }]);
        let (_, with) = above(&[root_crl(31)]);
        let end = NOW.plus_seconds(31 * 86_400);
        for (day, expected) in [
            (0, vec![]),
            (2, vec![Worry::EndsSoon { ca: ca(), end }]),
            (31, vec![Worry::EndsSoon { ca: ca(), end }]),
            (32, vec![Worry::Expired { ca: ca(), end }]),
        ] {
            let now = NOW.plus_seconds(day * 86_400);
            assert_eq!(with.worries(now), expected, "day {day}");
        }
    }

    #[test]
    fn it_is_told_at_start_and_daily() {
        let revocations = Revocations::default();
        let told: Vec<u64> = (0..72)
            .filter(|hour| revocations.is_time_to_warn(NOW.plus_seconds(hour * 3600)))
            .collect();
        assert_eq!(told, [0, 24, 48]);
    }

    /// The chain may have been replaced since the list was stored.
    #[test]
    fn stored_lists_of_others_are_not_served() {
        let stranger = Ca::root("Root CA", keys::p256_d(), NOW);
        let root = Ca::root("Root CA", keys::p384(), NOW);
        let facts = CrlFacts::good(1, NOW);
        for list in [
            stranger.crl(&facts),
            root.crl_signed_by(keys::p256_d(), &facts),
        ] {
            let (_, ancestors) = above(&[list]);
            assert_eq!((ancestors.lists().count(), ancestors.changed()), (0, None));
        }
        let (_, ancestors) = above(&[root.crl(&facts)]);
        assert_eq!(ancestors.lists().count(), 1);
    }
}
