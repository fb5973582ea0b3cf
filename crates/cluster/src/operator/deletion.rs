//! A Certificate is deleted: its name is cleaned at the CA, as far as the operator may and the name was its own.

use std::sync::Arc;
use std::time::Duration;

use countersign_enroll::ca::{Answer, CaFault, Fetched, Key};
use serde_json::{Map, json};

use super::ca::CaClient;
use super::calls::Kind;
use super::certificate::is_ours;
use super::events::Event;
use super::holding::{Holding, PRIVATE_KEY};
use super::issuing::{TAKEN, Who};
use super::object::{AuthorityObject, CLEANUP_FINALIZER, CertificateObject};
use super::order::is_host_name;
use super::renewing::with_causes;
use super::{Next, Operator, Pass};

/// What is to be done at the CA.
enum Debt {
    /// Nothing.
    None,
    /// The certificate of a name is to be revoked and forgotten.
    Clean(String),
    /// The certname was asked for with a key, and no certificate was stored.
    Forget {
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
        let debt = self.debt(certificate).await?;
        if matches!(debt, Debt::None) || !is_host_name(&certificate.spec.certname) {
            return Ok(None);
        }
        if let Some(left) = self.gate().wait(&meta.name, meta.generation, self.now()) {
            return Ok(Some(left));
        }
        let is_administrators = certificate.spec.pp_cli_auth;
        let who = match is_administrators {
            true => Who::Administrator,
            false => Who::Operator,
        };
        let Some(identity) = self.signing_identity(authority, who).await? else {
            return Ok(None);
        };
        self.gate()
            .asked(&meta.name, meta.generation, self.now(), RETRY);
        let certname = certificate.spec.certname.as_str();
        let why = match self.reach(authority, Some(&identity)).await? {
            Err(fault) => with_causes(&fault),
            Ok(mut client) => match debt.pay(&mut *client, certname, is_administrators).await {
                Ok(Paid::Nothing) => return Ok(None),
                Ok(Paid::Cleaned(name)) => {
                    self.metrics.operator.asked("clean", "done");
                    let event = Event::normal(
                        "CertificateCleaned",
                        format!("{name} was cleaned at the CA"),
                    );
                    self.tell(Kind::Certificate, meta, &event).await;
                    return Ok(None);
                }
                Ok(Paid::Refused { status, body }) => format!("the CA answers {status}: {body}"),
                Err(fault) => with_causes(&fault),
            },
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
        let Some(identity) = self.signing_identity(&authority, Who::Operator).await? else {
            return Ok(());
        };
        let answer = match self.reach(&authority, Some(&identity)).await? {
            Ok(mut client) => match client.clean(former).await {
                Ok(Answer::Done) => Ok(()),
                Ok(Answer::Refused { status, body }) => {
                    Err(format!("the CA answers {status}: {body}"))
                }
                Err(fault) => Err(with_causes(&fault)),
            },
            Err(fault) => Err(with_causes(&fault)),
        };
        let meta = &certificate.meta;
        let event = match answer {
            Ok(()) => Event::normal(
                "CertificateCleaned",
                format!("{former}, the former certname, was cleaned at the CA"),
            ),
            Err(why) => Event::warning(
                "CleanupFailed",
                format!("{former}, the former certname, was not cleaned at the CA: {why}"),
            ),
        };
        self.tell(Kind::Certificate, meta, &event).await;
        Ok(())
    }

    /// Only what this Certificate has obtained or asked for is cleaned.
    async fn debt(&self, certificate: &CertificateObject) -> Pass<Debt> {
        let certname = &certificate.spec.certname;
        if let Some(name) = certificate.obtained_name()
            && (name == certname || !self.index().is_wanted(certificate, name))
        {
            return Ok(Debt::Clean(name.to_owned()));
        }
        let secret = self.secret(&certificate.secret()).await?;
        if let Holding::Pair(pair) = Holding::read(secret.as_ref(), certificate, None)
            && pair.is_owned
            && pair.certname == *certname
        {
            return Ok(Debt::Clean(certname.clone()));
        }
        let pending = self.secret(&certificate.pending_secret()).await?;
        let pending = pending.filter(|secret| is_ours(secret, certificate));
        let key = pending
            .as_ref()
            .and_then(|secret| Key::read(secret.filled(PRIVATE_KEY)?).ok());
        Ok(key.map_or(Debt::None, |key| Debt::Forget {
            key,
            is_taken: pending.is_some_and(|secret| secret.meta.annotation(TAKEN).is_some()),
        }))
    }
}

/// What came of it.
enum Paid {
    Nothing,
    Cleaned(String),
    Refused { status: u16, body: String },
}

impl Debt {
    async fn pay(
        &self,
        client: &mut dyn CaClient,
        certname: &str,
        is_administrators: bool,
    ) -> Result<Paid, CaFault> {
        let (name, answer) = match self {
            Self::None => return Ok(Paid::Nothing),
            Self::Clean(name) if is_administrators => {
                (name.as_str(), client.clean_by_force(name).await?)
            }
            Self::Clean(name) => (name.as_str(), client.clean(name).await?),
            Self::Forget { key, is_taken } => match client.fetch(certname).await? {
                Fetched::Certificate { leaf, .. } if key.matches(&leaf) => {
                    let answer = match is_administrators {
                        true => client.clean_by_force(certname).await?,
                        false => client.clean(certname).await?,
                    };
                    (certname, answer)
                }
                // It is somebody else's.
                Fetched::Certificate { .. } => return Ok(Paid::Nothing),
                Fetched::Absent { .. } if !is_taken => return Ok(Paid::Nothing),
                Fetched::Absent { .. } => (certname, client.remove(certname).await?),
            },
        };
        Ok(match answer {
            Answer::Done => Paid::Cleaned(name.to_owned()),
            Answer::Refused { status, body } => Paid::Refused { status, body },
        })
    }
}

/// On a Certificate: how often cleaning has failed, in decimal.
const ATTEMPTS: &str = "openvox.voxpupuli.org/cleanup-attempts";
const MAX_FAILURES: u32 = 5;
const RETRY: Duration = Duration::from_secs(15);
