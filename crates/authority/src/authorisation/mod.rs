//! Who may do what: every act of a person is judged here, whatever door it comes through, before anything is done.
//!
//! A role, or the rules of the door, lets somebody act on ordinary names. Three things need more, whoever asks: nobody
//! approves an identity with roles that they do not have; the names of the authority's own servers and of its
//! administrators are for administrators alone; and signers of the authority's own certificates sign nothing that waits.
//! Even they are asked whether they mean it before they end such a certificate by its name. What is refused is put on
//! record.

pub(crate) mod actor;
pub mod grant;

use std::collections::BTreeSet;

use countersign_pki::oid::{self, Oid};
use countersign_pki::{AltName, Certificate, CheckedCsr, Serial, Subject};
use countersign_policy::{Identity, Machine, TokenBinding, TokenUseState};
use tracing::warn;

use crate::audit::AuditEntry;
use crate::authorisation::actor::{Actor, Admitted};
use crate::authorisation::grant::{Grant, Names, Needed, Needs, Role};
use crate::engine::Core;
use crate::faults::{ActFault, EngineError, RevokeFault, SubmitFault};
use crate::issuer::IssuerId;
use crate::issuer::signer::Signer;
use crate::ledger::renewal::RenewFault;
use crate::ledger::revocation::Target;
use crate::model::{Door, LedgerEntry, RequestRecord, RequestState, inventory_name};
use crate::profile::SubjectRule;
use crate::redaction::shown;
use crate::request::Requests;
use crate::request::acts::Act;
use crate::request::submission::Submission;
use crate::rules::Rules;
use crate::store::{Change, Past, RequestFilter};
use crate::token::{MAX_USES, TokenFault, TokenId, TokenOrder};

/// How a token ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenEnd {
    Revoked,
    RevokedWithCertificates,
    Released,
}

impl Requests {
    /// Whether somebody may approve a request, without doing it.
    pub async fn may_approve(&self, actor: &Actor, record: &RequestRecord) -> Result<(), ActFault> {
        Ok(self.core.judge_approval_of(actor, record).await??)
    }
}

impl Core {
    /// Before an approval. What is approved is the version that was judged.
    pub(crate) async fn authorise_approval(&self, act: Act) -> Result<Act, ActFault> {
        let record = self.authorise_act("approve", &act).await?;
        let judged = self.judge_approval_of(&act.actor, &record).await?;
        self.recorded(judged, "approve", &act.actor, || subject_of(&record))
            .await?;
        Ok(Act {
            expected: Some(record.version),
            ..act
        })
    }

    /// Before anything else that somebody does to a request that is there.
    pub(crate) async fn authorise_act(
        &self,
        what: &'static str,
        act: &Act,
    ) -> Result<RequestRecord, ActFault> {
        let subject = || format!("{}/{}", act.door, act.key);
        let judged = demand_sign(&act.actor, Names::Within, None);
        self.recorded(judged, what, &act.actor, subject).await?;
        let record = self.find(act).await?;
        let judged = demand_sign_for(&act.actor, &self.rules.load(), &record);
        self.recorded(judged, what, &act.actor, subject).await?;
        Ok(record)
    }

    /// Before a request is forgotten, and with it a denial.
    pub(crate) async fn authorise_deletion(&self, act: Act) -> Result<Act, ActFault> {
        let (record, expected) = match self.authorise_act("delete", &act).await {
            Ok(record) => (record.clone(), Some(record.version)),
            // Only a denial of the past may be left of it.
            Err(ActFault::NotFound { door, key }) => match self.denied_at(&act).await? {
                Some(record) => {
                    demand_sign_for(&act.actor, &self.rules.load(), &record)?;
                    (record, act.expected)
                }
                None => return Err(ActFault::NotFound { door, key }),
            },
            Err(fault) => return Err(fault),
        };
        let judged = self.judge_guarded_request(&act.actor, &record).await?;
        self.recorded(judged, "delete", &act.actor, || subject_of(&record))
            .await?;
        Ok(Act { expected, ..act })
    }

    /// Before a request is stored: one that brings a decision is as good as approved, and some signers are asked in no
    /// other way.
    pub(crate) async fn authorise_submission(
        &self,
        submission: &Submission,
    ) -> Result<(), SubmitFault> {
        let rules = self.rules.load_full();
        let signer = rules.signer(&submission.signer);
        let signer = signer.as_deref();
        let (door, key) = (&submission.door, &submission.key);
        let asked = Asked {
            key,
            csr: &submission.csr,
            signer,
        };
        let is_own = signer.is_some_and(|signer| signer.administrators_only);
        let Some(decision) = &submission.decision else {
            return match is_own {
                true => Err(only_by_administrators(signer).into()),
                false => Ok(()),
            };
        };
        let actor = &decision.actor;
        let judged = match is_own && !actor.grant.is_admin() {
            true => Err(Needed::Role { role: Role::Admin }),
            false => match demand_sign(actor, Names::InPath, asked.certname()) {
                Ok(()) => self.judge_approval(&rules, actor, asked).await?,
                refused => refused,
            },
        };
        self.recorded(judged, "request", actor, || format!("{}/{key}", door.name))
            .await?;
        Ok(())
    }

    /// Before certificates are revoked.
    pub(crate) async fn authorise_revocation(
        &self,
        issuer: &IssuerId,
        target: &Target,
        actor: &Actor,
    ) -> Result<(), RevokeFault> {
        let judged = match target {
            Target::Name(name) => self.judge_ending_of_name(actor, issuer, name).await?,
            Target::Serial(serial) => self.judge_ending_of_serial(actor, issuer, serial).await?,
        };
        let subject = || match target {
            Target::Name(name) => format!("{issuer}/{name}"),
            Target::Serial(serial) => format!("{issuer}/{serial}"),
        };
        self.recorded(judged, "revoke", actor, subject).await?;
        Ok(())
    }

    /// Before names are cleaned away: all of them, or none.
    pub(crate) async fn authorise_cleaning(
        &self,
        issuer: &IssuerId,
        names: &[String],
        actor: &Actor,
    ) -> Result<(), RevokeFault> {
        // What a role does not reach is refused before anything is looked up.
        let unreached = names
            .iter()
            .find_map(|name| demand_sign(actor, Names::InPath, Some(name)).err());
        let mut judged = unreached.map_or(Ok(()), Err);
        for name in names {
            if judged.is_ok() {
                judged = self.judge_ending_of_name(actor, issuer, name).await?;
            }
        }
        let subject = || format!("{issuer}/{}", names.join(","));
        self.recorded(judged, "clean", actor, subject).await?;
        Ok(())
    }

    /// Before a name is taken off the books, with the request that waits under it.
    pub(crate) async fn authorise_retirement(
        &self,
        issuer: &IssuerId,
        name: &str,
        door: &Door,
        actor: &Actor,
    ) -> Result<(), RevokeFault> {
        let mut judged = self.judge_ending_of_name(actor, issuer, name).await?;
        if judged.is_ok() && !actor.grant.is_admin() {
            let waiting = self.store.request_at(door, name, Past::Ignore).await;
            if let Some(record) = waiting.map_err(EngineError::from)? {
                judged = self.judge_guarded_request(actor, &record).await?;
            }
        }
        self.recorded(judged, "clean", actor, || format!("{issuer}/{name}"))
            .await?;
        Ok(())
    }

    /// Before certificates leave the CRL.
    pub(crate) async fn authorise_unlisting(
        &self,
        issuer: &IssuerId,
        actor: &Actor,
    ) -> Result<(), RevokeFault> {
        let judged = actor.grant.demand(Needs::Admin, None);
        self.recorded(judged, "unlist", actor, || issuer.to_string())
            .await?;
        Ok(())
    }

    /// Before CRLs of the CAs above an issuer are taken.
    pub(crate) async fn authorise_ancestor_crls(
        &self,
        issuer: &IssuerId,
        actor: &Actor,
    ) -> Result<(), Needed> {
        let judged = actor.grant.demand(Needs::Admin, None);
        self.recorded(judged, "crl", actor, || issuer.to_string())
            .await
    }

    /// Before a certificate is renewed by anybody but its holder.
    pub(crate) async fn authorise_renewal(
        &self,
        issuer: &IssuerId,
        serial: &Serial,
        actor: &Actor,
    ) -> Result<(), RenewFault> {
        if actor.grant.is_admin() {
            return Ok(());
        }
        let entry = self.store.certificate(issuer, serial).await;
        let Some(entry) = entry.map_err(EngineError::from)? else {
            return Ok(());
        };
        let is_holder = match &actor.requester.identity {
            Identity::Certname { certname } => *certname == entry.name,
            Identity::Anonymous | Identity::Authority | Identity::User { .. } => false,
        };
        if is_holder {
            return Ok(());
        }
        let judged = demand_sign(actor, Names::InPath, Some(&entry.name))
            .and_then(|()| self.judge_guarded_entry(actor, &entry))
            .and_then(|()| match actor.grant.includes(&self.gained_by(&entry)) {
                true => Ok(()),
                false => Err(Needed::of(Role::Admin, &entry.name)),
            });
        self.recorded(judged, "renew", actor, || format!("{issuer}/{serial}"))
            .await?;
        Ok(())
    }

    /// Before a token is minted. Whoever mints lets names into certificates: a limited role reaches DNS names alone. What
    /// gives rights is for those who have them all.
    pub(crate) async fn authorise_minting(
        &self,
        order: &TokenOrder,
        actor: &Actor,
    ) -> Result<(), TokenFault> {
        let name = order.binding.value();
        let mut judged = judge_order(&actor.grant, order);
        let replaces = order.allow_replace && !actor.grant.is_admin();
        if judged.is_ok() && replaces && self.is_administrators_name(name).await? {
            judged = Err(Needed::of(Role::Admin, name));
        }
        let subject = || format!("token for {name}");
        self.recorded(judged, "token.minted", actor, subject)
            .await?;
        Ok(())
    }

    /// Before machines are put into the inventory.
    pub(crate) async fn authorise_machines(
        &self,
        machines: &[Machine],
        actor: &Actor,
    ) -> Result<(), Needed> {
        for machine in machines {
            let judged = judge_machine(&actor.grant, machine);
            let subject = || format!("machine/{}", machine.name);
            self.recorded(judged, "machine.added", actor, subject)
                .await?;
        }
        Ok(())
    }

    /// Before something is done that lets a name enrol, or no longer.
    pub(crate) async fn authorise_expecting(
        &self,
        what: &'static str,
        kind: &str,
        name: &str,
        actor: &Actor,
    ) -> Result<(), Needed> {
        let judged = demand_mint(&actor.grant, &inventory_name(name));
        self.recorded(judged, what, actor, || format!("{kind}/{name}"))
            .await
    }

    /// Before a bootstrap token is minted or taken back: it is good for every name.
    pub(crate) async fn authorise_bootstrap(
        &self,
        what: &'static str,
        actor: &Actor,
    ) -> Result<(), Needed> {
        let judged = actor.grant.demand(Needs::Mint(Names::All), None);
        self.recorded(judged, what, actor, || "bootstrap tokens".to_owned())
            .await
    }

    /// Before every token of a name is taken back.
    pub(crate) async fn authorise_revoking_tokens(
        &self,
        certname: &str,
        actor: &Actor,
    ) -> Result<(), TokenFault> {
        let judged = demand_mint(&actor.grant, certname);
        let subject = || format!("tokens of {certname}");
        self.recorded(judged, "token.revoked", actor, subject)
            .await?;
        Ok(())
    }

    /// Before a token is taken back or given back. One for names that a role does not reach is not there for it.
    pub(crate) async fn authorise_ending(
        &self,
        id: &TokenId,
        end: TokenEnd,
        actor: &Actor,
    ) -> Result<(), TokenFault> {
        let (grant, subject) = (&actor.grant, || format!("token/{id}"));
        let (what, signs) = match end {
            TokenEnd::Revoked => ("token.revoked", false),
            TokenEnd::RevokedWithCertificates => ("token.revoked", true),
            TokenEnd::Released => ("token.released", false),
        };
        let mut judged = grant.demand(Needs::Mint(Names::Within), None);
        if signs {
            // Who only mints does not revoke certificates; that is known before anything is looked up.
            judged = judged.and_then(|()| grant.demand(Needs::Sign(Names::Within), None));
        }
        self.recorded(judged, what, actor, subject).await?;
        if grant.is_admin() {
            return Ok(());
        }
        let binding = self.known_token(id).await?.record.binding;
        // The text of a pattern ends as all names do that it stands for.
        let name = binding.value();
        if demand_mint(grant, name).is_err() {
            return Err(TokenFault::NotFound { id: id.to_string() });
        }
        let judged = match end {
            TokenEnd::Revoked => Ok(()),
            TokenEnd::RevokedWithCertificates => {
                grant.demand(Needs::Sign(Names::InPath), Some(name))
            }
            TokenEnd::Released => self.judge_release(id, &binding).await?,
        };
        self.recorded(judged, what, actor, subject).await?;
        if end == TokenEnd::RevokedWithCertificates {
            for (issuer, serial) in self.certificates_of_token(id).await? {
                let judged = self.judge_ending_of_serial(actor, &issuer, &serial).await?;
                self.recorded(judged, what, actor, subject).await?;
            }
        }
        Ok(())
    }
}

/// What a request asks for.
#[derive(Clone, Copy)]
struct Asked<'a> {
    key: &'a str,
    csr: &'a CheckedCsr,
    signer: Option<&'a Signer>,
}

impl<'a> Asked<'a> {
    /// The name of the certificate, where the request's name at its door says it.
    fn certname(&self) -> Option<&'a str> {
        is_named_by_key(self.signer).then_some(self.key)
    }

    /// The name that the certificate is guarded for, if it is.
    fn guarded(&self, rules: &Rules) -> Option<String> {
        let own = &rules.policy.own;
        let carried = own.carried(self.csr.subject(), self.csr.alt_names());
        let found = carried.or_else(|| own.named(self.certname()?));
        found.map(|name| shown_of(name, self.key))
    }
}

impl Core {
    async fn judge_approval_of(
        &self,
        actor: &Actor,
        record: &RequestRecord,
    ) -> Result<Result<(), Needed>, EngineError> {
        let rules = self.rules.load_full();
        let signer = rules.signer(&record.signer);
        let asked = Asked {
            key: &record.key,
            csr: &stored_csr(record)?,
            signer: signer.as_deref(),
        };
        if signer.as_ref().is_some_and(|s| s.administrators_only) {
            return Ok(Err(only_by_administrators(asked.signer)));
        }
        self.judge_approval(&rules, actor, asked).await
    }

    /// Whether somebody may have this certificate signed. Nobody makes an identity that may do more than themselves.
    async fn judge_approval(
        &self,
        rules: &Rules,
        actor: &Actor,
        asked: Asked<'_>,
    ) -> Result<Result<(), Needed>, EngineError> {
        if actor.grant.is_admin() {
            return Ok(Ok(()));
        }
        if let Some(name) = asked.guarded(rules) {
            return Ok(Err(Needed::of(Role::Admin, &name)));
        }
        let Asked { key, csr, .. } = asked;
        let names = csr.subject().common_names().chain(asked.certname());
        let mut gained = self.gained(names, csr.subject());
        if csr.extension(&oid::PP_CLI_AUTH).is_some() {
            gained = Grant::ADMIN;
        }
        if !actor.grant.includes(&gained) || self.is_administrators(asked).await? {
            return Ok(Err(Needed::of(Role::Admin, key)));
        }
        Ok(judge_alt_names(actor, key, csr.alt_names()))
    }

    /// Whether a name that would be in the certificate is an administrator's by the ledger.
    async fn is_administrators(&self, asked: Asked<'_>) -> Result<bool, EngineError> {
        let alt_names = asked.csr.alt_names().iter().filter_map(|name| match name {
            AltName::Dns(name) => Some(name.as_str()),
            AltName::Ip(_) | AltName::Email(_) | AltName::Uri(_) | AltName::Other { .. } => None,
        });
        let common = asked.csr.subject().common_names();
        let names = common.chain(asked.certname()).chain(alt_names);
        let names: BTreeSet<String> = names.map(inventory_name).collect();
        for name in &names {
            if self.is_administrators_name(name).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn is_administrators_name(&self, name: &str) -> Result<bool, EngineError> {
        let (name, now) = (inventory_name(name), self.clock.now());
        for issuer in self.issuers.keys() {
            let entries = self.store.certificates_of(issuer, &name, now).await?;
            if entries.iter().any(|e| self.is_administrators_own(e)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether somebody may end what a name has.
    async fn judge_ending_of_name(
        &self,
        actor: &Actor,
        issuer: &IssuerId,
        name: &str,
    ) -> Result<Result<(), Needed>, EngineError> {
        if let Err(needed) = demand_sign(actor, Names::InPath, Some(name)) {
            return Ok(Err(needed));
        }
        let (is_admin, is_guarded) = (actor.grant.is_admin(), self.is_guarded(name));
        if is_admin && actor.insists {
            return Ok(Ok(()));
        }
        if !is_admin && is_guarded {
            return Ok(Err(Needed::of(Role::Admin, name)));
        }
        let entries = self
            .store
            .certificates_of(issuer, name, self.clock.now())
            .await?;
        let own = |entry: &LedgerEntry| match is_guarded && !self.has_ended(entry) {
            true => Some(name.to_owned()),
            false => self.guarded_entry(entry),
        };
        let guarded = entries.iter().find_map(own);
        Ok(match guarded {
            None => Ok(()),
            // Whoever cleans a fleet by its names may well have written down the server's among them.
            Some(name) if is_admin => Err(Needed::Force { name: shown(&name) }),
            Some(name) => Err(Needed::of(Role::Admin, &name)),
        })
    }

    async fn judge_ending_of_serial(
        &self,
        actor: &Actor,
        issuer: &IssuerId,
        serial: &Serial,
    ) -> Result<Result<(), Needed>, EngineError> {
        if let Err(needed) = demand_sign(actor, Names::Within, None) {
            return Ok(Err(needed));
        }
        if actor.grant.is_admin() {
            return Ok(Ok(()));
        }
        let Some(entry) = self.store.certificate(issuer, serial).await? else {
            return Ok(Ok(()));
        };
        let certificate = Certificate::parse(&entry.der).ok();
        let subject = certificate.as_ref().map(Certificate::subject);
        // Of some that were taken over there is an inventory's line alone, which has the certname.
        let name = subject.and_then(Subject::first_common_name);
        let name = name.unwrap_or(&entry.name);
        let judged = demand_sign(actor, Names::InPath, Some(name));
        Ok(judged.and_then(|()| self.judge_guarded_entry(actor, &entry)))
    }

    /// Whether a certificate may be ended, or repeated, by whoever is no administrator.
    fn judge_guarded_entry(&self, actor: &Actor, entry: &LedgerEntry) -> Result<(), Needed> {
        let guarded = match actor.grant.is_admin() {
            true => None,
            false => self.guarded_entry(entry),
        };
        guarded.map_or(Ok(()), |name| Err(Needed::of(Role::Admin, &name)))
    }

    fn has_ended(&self, entry: &LedgerEntry) -> bool {
        entry.revoked.is_some() || entry.not_after < self.clock.now()
    }

    /// The name that a certificate is guarded for, if it is.
    fn guarded_entry(&self, entry: &LedgerEntry) -> Option<String> {
        if self.has_ended(entry) {
            return None;
        }
        let rules = self.rules.load();
        let certificate = Certificate::parse(&entry.der).ok();
        let carried = certificate.as_ref().and_then(|certificate| {
            let own = &rules.policy.own;
            own.carried(certificate.subject(), certificate.alt_names())
        });
        if let Some(name) = carried {
            return Some(shown_of(name, &entry.name));
        }
        let is_guarded = self.is_administrators_own(entry)
            || self.is_guarded(&entry.name)
            || self.gained_by(entry).is_admin();
        is_guarded.then(|| entry.name.clone())
    }

    /// Whether a request may be forgotten by whoever is no administrator.
    async fn judge_guarded_request(
        &self,
        actor: &Actor,
        record: &RequestRecord,
    ) -> Result<Result<(), Needed>, EngineError> {
        if actor.grant.is_admin() {
            return Ok(Ok(()));
        }
        let rules = self.rules.load_full();
        let signer = rules.signer(&record.signer);
        // One that cannot be read may be any.
        let Ok(csr) = stored_csr(record) else {
            return Ok(Err(Needed::of(Role::Admin, &record.key)));
        };
        let asked = Asked {
            key: &record.key,
            csr: &csr,
            signer: signer.as_deref(),
        };
        if let Some(name) = asked.guarded(&rules) {
            return Ok(Err(Needed::of(Role::Admin, &name)));
        }
        let names = csr.subject().common_names().chain(asked.certname());
        let is_administrators =
            self.gained(names, csr.subject()).is_admin() || self.is_administrators(asked).await?;
        Ok(match is_administrators {
            true => Err(Needed::of(Role::Admin, &record.key)),
            false => Ok(()),
        })
    }

    async fn judge_release(
        &self,
        id: &TokenId,
        binding: &TokenBinding,
    ) -> Result<Result<(), Needed>, EngineError> {
        let uses = self.store.token_uses(id, MAX_USES).await?;
        let reserved = uses
            .iter()
            .filter(|used| used.state == TokenUseState::Reserved);
        let exact = match binding {
            TokenBinding::Exact(name) => Some(name.as_str()),
            TokenBinding::Glob(_) => None,
        };
        let mut names = reserved.map(|used| used.certname.as_str()).chain(exact);
        let guarded = names.find(|name| self.is_guarded(name));
        Ok(guarded.map_or(Ok(()), |name| Err(Needed::of(Role::Admin, name))))
    }

    /// Whether a name is the authority's own or an administrator's.
    fn is_guarded(&self, name: &str) -> bool {
        let name = inventory_name(name);
        self.rules.load().policy.own.named(&name).is_some()
            || self.roles.load().of_certificate(&[&name], &[]).is_admin()
    }

    /// Whether the authority has made a certificate for an administrator. One that cannot be read may be any.
    pub(crate) fn is_administrators_own(&self, entry: &LedgerEntry) -> bool {
        let signer = self.signer(&entry.signer);
        let is_marked = || match Certificate::parse(&entry.der) {
            Ok(certificate) => certificate.extension(&oid::PP_CLI_AUTH).is_some(),
            Err(_) => true,
        };
        entry.revoked.is_none()
            && signer.is_some_and(|signer| signer.administrators_only)
            && is_marked()
    }

    /// The roles of a certificate with these names and the organizations of this subject.
    fn gained<'a>(&self, names: impl Iterator<Item = &'a str>, subject: &Subject) -> Grant {
        let names: Vec<String> = names.map(inventory_name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let groups: Vec<&str> = subject.organizations().collect();
        self.roles.load().of_certificate(&names, &groups)
    }

    fn gained_by(&self, entry: &LedgerEntry) -> Grant {
        match Certificate::parse(&entry.der) {
            Ok(certificate) => {
                let subject = certificate.subject();
                let names = subject.common_names().chain([entry.name.as_str()]);
                self.gained(names, subject)
            }
            Err(_) => {
                let name = inventory_name(&entry.name);
                self.roles.load().of_certificate(&[&name], &[])
            }
        }
    }

    /// The newest denial of a name that nobody occupies.
    async fn denied_at(&self, act: &Act) -> Result<Option<RequestRecord>, EngineError> {
        let denied = RequestFilter {
            door: Some(act.door.clone()),
            key: Some(act.key.clone()),
            states: vec![RequestState::Denied],
            ..RequestFilter::default()
        };
        Ok(self.store.requests(denied).await?.into_iter().next())
    }

    /// Puts a refusal on record, and passes it on.
    async fn recorded(
        &self,
        judged: Result<(), Needed>,
        what: &'static str,
        actor: &Actor,
        subject: impl FnOnce() -> String,
    ) -> Result<(), Needed> {
        let Err(needed) = &judged else {
            return Ok(());
        };
        let subject = shown(&subject());
        warn!(
            %actor, source = actor.requester.source.map(tracing::field::display),
            act = what, subject, role = needed.role(), "refused"
        );
        let entry = AuditEntry::new(self.clock.now(), actor.requester.clone(), "refuse", subject);
        let change = Change {
            audit: vec![entry.reason(what).detail(needed.to_string())],
            ..Change::default()
        };
        if let Err(fault) = self.commit(change).await {
            warn!(%fault, "a refusal is not on record");
        }
        judged
    }
}

/// Whether the role, or the rules of the door, let somebody decide about a name, or some names.
fn demand_sign(actor: &Actor, names: Names, name: Option<&str>) -> Result<(), Needed> {
    match actor.admitted {
        Admitted::ByDoor => Ok(()),
        Admitted::ByRole => actor.grant.demand(Needs::Sign(names), name),
    }
}

/// The same for a request. Where its name at the door says nothing about the certificate, a limited role does not reach it.
fn demand_sign_for(actor: &Actor, rules: &Rules, record: &RequestRecord) -> Result<(), Needed> {
    let signer = rules.signer(&record.signer);
    let name = is_named_by_key(signer.as_deref()).then_some(record.key.as_str());
    demand_sign(actor, Names::InPath, name)
}

fn demand_mint(grant: &Grant, name: &str) -> Result<(), Needed> {
    grant.demand(Needs::Mint(Names::InPath), Some(name))
}

/// Whoever adds a record lets its name enrol, and its addresses stand in the certificate. As with approvals, a limited
/// role reaches DNS names alone.
fn judge_machine(grant: &Grant, machine: &Machine) -> Result<(), Needed> {
    let name = inventory_name(&machine.name);
    demand_mint(grant, &name)?;
    for address in &machine.addresses {
        let text = inventory_name(&address.address);
        if address.kind.is_ip() {
            grant.demand(Needs::Mint(Names::All), None)?;
        } else if text != name {
            demand_mint(grant, &text)?;
        }
    }
    Ok(())
}

fn judge_order(grant: &Grant, order: &TokenOrder) -> Result<(), Needed> {
    let name = order.binding.value();
    demand_mint(grant, name)?;
    if order.allow_replace {
        // It revokes what the name has, and lets one in again that was put out.
        grant.demand(Needs::Sign(Names::InPath), Some(name))?;
    }
    for san in &order.allowed_sans {
        let lower = san.to_ascii_lowercase();
        match lower.strip_prefix("dns:") {
            Some(dns) if dns == name => {}
            Some(dns) => demand_mint(grant, dns)?,
            None => grant.demand(Needs::Mint(Names::All), None)?,
        }
    }
    let extensions = order.allowed_extensions.iter().flatten();
    for (word, _) in extensions {
        let known = oid::registered_oid(word).or_else(|| Oid::parse(word).ok());
        if known.is_some_and(|oid| oid.is_under(&oid::PP_AUTH)) {
            grant.demand(Needs::Admin, None)?;
        }
    }
    Ok(())
}

/// A limited role reaches no other names in a certificate than those within its limit.
fn judge_alt_names(actor: &Actor, key: &str, alt_names: &[AltName]) -> Result<(), Needed> {
    if actor.admitted == Admitted::ByDoor || actor.grant.reaches_everything(Role::Sign) {
        return Ok(());
    }
    alt_names.iter().try_for_each(|name| match name {
        AltName::Dns(dns) if dns == key => Ok(()),
        AltName::Dns(dns) => demand_sign(actor, Names::InPath, Some(dns)),
        AltName::Ip(_) | AltName::Email(_) | AltName::Uri(_) | AltName::Other { .. } => {
            Err(Needed::Everything { role: Role::Sign })
        }
    })
}

fn is_named_by_key(signer: Option<&Signer>) -> bool {
    signer.is_some_and(|signer| match signer.profile.subject {
        SubjectRule::KeyAsCommonName => true,
        SubjectRule::Rebuilt => false,
    })
}

fn only_by_administrators(signer: Option<&Signer>) -> Needed {
    let signer = signer.map_or(String::new(), |signer| signer.name.to_string());
    Needed::AnotherCall { signer }
}

/// A guarded name as a refusal shows it: where a whole domain is, the name that was asked for says more.
fn shown_of(guarded: &str, asked: &str) -> String {
    match guarded.starts_with('.') {
        true => asked.to_owned(),
        false => guarded.to_owned(),
    }
}

fn subject_of(record: &RequestRecord) -> String {
    format!("{}/{}", record.door, record.key)
}

fn stored_csr(record: &RequestRecord) -> Result<CheckedCsr, EngineError> {
    CheckedCsr::trusted_from_store(&record.csr_der).map_err(|source| EngineError::StoredRequest {
        id: record.id,
        source,
    })
}
