//! A Certificate is deleted: its name is cleaned at the CA, as far as the operator may and the name was its own.

use std::sync::Arc;
use std::time::Duration;

use countersign_enroll::ca::{Answer, Fetched, Key};
use countersign_pki::Certificate;
use serde_json::{Map, json};

use super::ca::Unusable;
use super::calls::Kind;
use super::certificate::{is_ours, obtained};
use super::events::Event;
use super::holding::{Holding, PRIVATE_KEY, has_rights};
use super::issuing::{CERTNAME, TAKEN, Who};
use super::object::{AuthorityObject, CLEANUP_FINALIZER, CertificateObject, OBTAINED};
use super::order::is_host_name;
use super::renewing::with_causes;
use super::secret::Secret;
use super::{Next, Operator, Pass};

/// Something that is to be done at the CA.
enum Debt {
    /// The certificate of a name is to be revoked and forgotten.
    Clean {
        name: String,
        /// Whether it makes an administrator of its holder, where that is known.
        has_rights: Option<bool>,
        /// The name and key of what was obtained, where that is noted.
        obtained: Option<String>,
    },
    /// A name was asked for with a key, and no certificate was stored.
    Forget {
        name: String,
        key: Key,
        /// Whether the request that waits at the CA is known to be ours.
        is_taken: bool,
    },
}

impl Operator {
    pub(super) async fn delete(&self, certificate: &Arc<CertificateObject>) -> Pass {
        let meta = &certificate.meta;
        if !meta.finalizers.iter().any(|it| it == CLEANUP_FINALIZER) {
            return Ok(Next::Done);
        }
        let authority = self.index().authority(&certificate.authority());
        let authority = authority.filter(|it| !it.meta.deleting && it.external.is_none());
        if let Some(authority) = authority
            && let Some(wait) = self.pay(certificate, &authority).await?
        {
            return Ok(Next::After(wait));
        }
        let finalizers: Vec<&String> = meta
            .finalizers
            .iter()
            .filter(|it| *it != CLEANUP_FINALIZER)
            .collect();
        // With its last finalizer the object goes away, so what the API server answers is not kept.
        let patch = json!({"metadata": {
            "resourceVersion": self.version_of(certificate),
            "uid": meta.uid,
            "finalizers": finalizers,
        }});
        self.calls
            .patch(Kind::Certificate, &meta.name, &patch)
            .await?;
        Ok(Next::Done)
    }

    fn version_of(&self, certificate: &CertificateObject) -> String {
        let latest = self.index().certificate(&certificate.meta.name);
        latest.map_or_else(
            || certificate.meta.version.clone(),
            |it| it.meta.version.clone(),
        )
    }

    /// Does what is to be done at the CA. How long to wait before it is tried again; `None`: it is done, or given up.
    async fn pay(
        &self,
        certificate: &Arc<CertificateObject>,
        authority: &AuthorityObject,
    ) -> Pass<Option<Duration>> {
        let meta = &certificate.meta;
        let debts = self.debts(certificate).await?;
        if debts.is_empty() {
            return Ok(None);
        }
        if let Some(left) = self.gate().wait(&meta.name, meta.generation, self.now()) {
            return Ok(Some(left));
        }
        let identity = self.signing_identity(authority, Who::Operator).await?;
        if identity.is_none() {
            return Ok(None);
        }
        self.gate()
            .asked(&meta.name, meta.generation, self.now(), RETRY);
        let mut failure = None;
        for debt in &debts {
            match self.settle(authority, debt).await? {
                Ok(Settled::NothingToDo) => {}
                Ok(Settled::Done) => {
                    self.metrics.operator.asked("clean", "done");
                    let note = format!("{} was cleaned at the CA", debt.name());
                    let event = Event::normal("CertificateCleaned", note);
                    self.tell(Kind::Certificate, meta, &event).await;
                }
                Err(why) => failure = Some((debt.name(), why)),
            }
        }
        let Some((certname, why)) = failure else {
            return Ok(None);
        };
        self.metrics.operator.asked("clean", "failed");
        let failures = meta
            .annotation(ATTEMPTS)
            .and_then(|it| it.parse::<u32>().ok());
        let failures = failures.unwrap_or(0).saturating_add(1);
        if failures >= MAX_FAILURES {
            let note =
                format!("{certname} was not cleaned at the CA after {failures} tries: {why}");
            self.tell(
                Kind::Certificate,
                meta,
                &Event::warning("CleanupFailed", note),
            )
            .await;
            return Ok(None);
        }
        let count = Map::from_iter([(ATTEMPTS.to_owned(), json!(failures.to_string()))]);
        self.annotate(certificate, count).await?;
        Ok(Some(RETRY))
    }

    /// A Certificate that has another name now: the former one is cleaned at an internal CA, where it can be.
    pub(super) async fn give_back_former_name(
        &self,
        certificate: &CertificateObject,
        name: &str,
    ) -> Pass<()> {
        let former = certificate.obtained_name().filter(|former| *former != name);
        let authority = self.index().authority(&certificate.authority());
        let (Some(former), Some(authority)) = (former, authority) else {
            return Ok(());
        };
        if authority.external.is_some() || self.index().is_wanted(certificate, former) {
            return Ok(());
        }
        let identity = self.signing_identity(&authority, Who::Operator).await?;
        if identity.is_none() {
            return Ok(());
        }
        let debt = Debt::Clean {
            name: former.to_owned(),
            has_rights: None,
            obtained: certificate.meta.annotation(OBTAINED).map(str::to_owned),
        };
        self.settle_former(certificate, &authority, &debt).await
    }

    /// The key of a request for a name that is no longer wanted goes, and with it what came of the request at an internal CA.
    pub(super) async fn abandon(
        &self,
        certificate: &CertificateObject,
        pending: &Secret,
        name: &str,
    ) -> Pass<()> {
        let authority = self.index().authority(&certificate.authority());
        let authority = authority.filter(|it| it.external.is_none());
        let is_free = !self.index().is_wanted(certificate, name);
        if let Some(authority) = authority
            && let Some(debt) = Debt::of_request(pending, name, is_free)
            && let Some(_) = self.signing_identity(&authority, Who::Operator).await?
        {
            self.settle_former(certificate, &authority, &debt).await?;
        }
        self.delete_secret(pending).await
    }

    /// Does what is to be done for a former certname, once, and says what came of it.
    async fn settle_former(
        &self,
        certificate: &CertificateObject,
        authority: &AuthorityObject,
        debt: &Debt,
    ) -> Pass<()> {
        let former = debt.name();
        let event = match self.settle(authority, debt).await? {
            Ok(Settled::NothingToDo) => return Ok(()),
            Ok(Settled::Done) => Event::normal(
                "CertificateCleaned",
                format!("{former}, the former certname, was cleaned at the CA"),
            ),
            Err(why) => Event::warning(
                "CleanupFailed",
                format!("{former}, the former certname, was not cleaned at the CA: {why}"),
            ),
        };
        self.tell(Kind::Certificate, &certificate.meta, &event)
            .await;
        Ok(())
    }

    /// Does it, or says why the CA does not.
    async fn settle(
        &self,
        authority: &AuthorityObject,
        debt: &Debt,
    ) -> Pass<Result<Settled, String>> {
        let answer = match debt {
            Debt::Clean {
                name,
                has_rights: Some(has_rights),
                ..
            } => Ok(Some((name, *has_rights))),
            Debt::Clean {
                name,
                obtained: noted,
                ..
            } => {
                let is_ours = |leaf: &Certificate| {
                    let found = obtained(name, leaf.key_fingerprint());
                    noted.as_ref().is_none_or(|noted| *noted == found)
                };
                self.look_up(authority, name).await?.map(|leaf| match leaf {
                    Some(leaf) => is_ours(&leaf).then(|| (name, has_rights(&leaf))),
                    None => Some((name, false)),
                })
            }
            Debt::Forget {
                name,
                key,
                is_taken,
            } => match self.look_up(authority, name).await? {
                Ok(Some(leaf)) => Ok(key.matches(&leaf).then(|| (name, has_rights(&leaf)))),
                Ok(None) if *is_taken => return self.remove_request(authority, name).await,
                Ok(None) => Ok(None),
                Err(fault) => Err(fault),
            },
        };
        let (name, has_rights) = match answer {
            Ok(Some(known)) => known,
            // The name has no certificate, or one that belongs to somebody else.
            Ok(None) => return Ok(Ok(Settled::NothingToDo)),
            Err(fault) => return Ok(Err(with_causes(&fault))),
        };
        let answer = self
            .clean(authority, name, has_rights, Who::Operator)
            .await?;
        Ok(match answer {
            Some(answer) => settled(answer),
            None => Ok(Settled::NothingToDo),
        })
    }

    /// The certificate of a name, if the CA shows one.
    async fn look_up(
        &self,
        authority: &AuthorityObject,
        certname: &str,
    ) -> Pass<Result<Option<Certificate>, Unusable>> {
        let mut client = match self.reach(authority, None).await? {
            Ok(client) => client,
            Err(fault) => return Ok(Err(fault)),
        };
        Ok(match client.fetch(certname).await {
            Ok(Fetched::Certificate { leaf, .. }) => Ok(Some(leaf)),
            Ok(Fetched::Absent { .. }) => Ok(None),
            Err(fault) => Err(fault.into()),
        })
    }

    async fn remove_request(
        &self,
        authority: &AuthorityObject,
        certname: &str,
    ) -> Pass<Result<Settled, String>> {
        let identity = self.signing_identity(authority, Who::Operator).await?;
        let answer = match self.reach(authority, identity.as_ref()).await? {
            Ok(mut client) => client.remove(certname).await.map_err(Unusable::from),
            Err(fault) => Err(fault),
        };
        Ok(settled(answer))
    }

    /// Has the certificate of a name cleaned: an administrator's by force, which an administrator may, any other one by `who`.
    /// `None`: nobody here may.
    pub(super) async fn clean(
        &self,
        authority: &AuthorityObject,
        certname: &str,
        has_rights: bool,
        who: Who,
    ) -> Pass<Option<Result<Answer, Unusable>>> {
        let by_force = has_rights && self.makes_administrators(authority);
        let who = if by_force { Who::Administrator } else { who };
        let Some(identity) = self.signing_identity(authority, who).await? else {
            return Ok(None);
        };
        let mut client = match self.reach(authority, Some(&identity)).await? {
            Ok(client) => client,
            Err(fault) => return Ok(Some(Err(fault))),
        };
        let answer = match by_force {
            true => client.clean_by_force(certname).await,
            false => client.clean(certname).await,
        };
        Ok(Some(answer.map_err(Unusable::from)))
    }

    /// Only what this Certificate has obtained or asked for is cleaned.
    async fn debts(&self, certificate: &CertificateObject) -> Pass<Vec<Debt>> {
        let certname = &certificate.spec.certname;
        let secret = self.secret(&certificate.secret()).await?;
        let pair = match Holding::read(secret.as_ref(), certificate, None) {
            Holding::Pair(pair) if pair.is_owned => Some(pair),
            Holding::Pair(_) | Holding::Absent | Holding::Unfit(_) => None,
        };
        let obtained_before = certificate.meta.annotation(OBTAINED);
        let obtained = certificate
            .obtained_name()
            .filter(|name| *name == certname || !self.index().is_wanted(certificate, name));
        let held = pair.as_ref().map(|pair| pair.certname.as_str());
        let name = obtained.or(held.filter(|name| *name == certname));
        let clean = name.filter(|name| is_host_name(name)).map(|name| {
            let pair = pair.as_ref().filter(|pair| pair.certname == name);
            Debt::Clean {
                name: name.to_owned(),
                has_rights: pair.map(|pair| pair.has_rights),
                obtained: obtained_before.map(str::to_owned),
            }
        });
        let pending = self.secret(&certificate.pending_secret()).await?;
        let pending = pending.filter(|secret| is_ours(secret, certificate));
        let forget = pending.and_then(|secret| {
            let asked = secret.meta.annotation(CERTNAME).unwrap_or(certname);
            let is_free = !self.index().is_wanted(certificate, asked);
            Debt::of_request(&secret, asked, is_free)
        });
        Ok(clean.into_iter().chain(forget).collect())
    }
}

impl Debt {
    /// What came of a request for a name with the key of a Secret. Where another Certificate is for that name, the request
    /// that waits may be that one's.
    fn of_request(pending: &Secret, name: &str, is_free: bool) -> Option<Self> {
        let key = Key::read(pending.filled(PRIVATE_KEY)?).ok()?;
        is_host_name(name).then(|| Self::Forget {
            name: name.to_owned(),
            key,
            is_taken: is_free && pending.meta.annotation(TAKEN).is_some(),
        })
    }

    fn name(&self) -> &str {
        match self {
            Self::Clean { name, .. } | Self::Forget { name, .. } => name,
        }
    }
}

/// What came of it.
enum Settled {
    NothingToDo,
    Done,
}

fn settled(answer: Result<Answer, Unusable>) -> Result<Settled, String> {
    match answer {
        Ok(Answer::Done) => Ok(Settled::Done),
        Ok(Answer::Refused { status, body }) => Err(format!("the CA answers {status}: {body}")),
        Err(fault) => Err(with_causes(&fault)),
    }
}

/// On a Certificate: how often cleaning has failed, in decimal.
const ATTEMPTS: &str = "openvox.voxpupuli.org/cleanup-attempts";
const MAX_FAILURES: u32 = 5;
const RETRY: Duration = Duration::from_secs(15);
