//! One certificate: trust is established, the door opened, and asked until there is an answer.

use std::time::Duration;

use countersign_pki::{Crl, Fingerprint, UnixTime, fingerprint_sha256, terminal_safe};
use countersign_private_keys::LeafKey;
use http::{HeaderValue, StatusCode};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::client::{self, ClientError, Reply};
use crate::error::{EnrolError, Result, internal, tls_causes, with_causes};
use crate::files::Kind;
use crate::issued::{self, Chain, Expected, Misfit};
use crate::kubernetes::KubernetesDoor;
use crate::puppet::PuppetDoor;
use crate::token::Token;
use crate::trust::Bundle;
use crate::waiting::{Backoff, retry_after};
use crate::{DoorPlan, Plan, Voice, now, save_key};

/// How a door answered.
pub(crate) enum Step {
    Issued(Box<Chain>),
    /// Not yet, or not now.
    Wait {
        why: String,
        /// What the server asked for.
        pause: Option<Duration>,
    },
}

impl Step {
    pub(crate) fn wait(why: String) -> Self {
        Self::Wait { why, pause: None }
    }
}

/// How long to go on asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Not at all.
    Once,
    /// So long.
    For(Duration),
    /// Without end.
    Forever,
}

/// Who asks, for doors.
pub(crate) struct Owner<'a> {
    pub(crate) name: &'a str,
    pub(crate) url: &'a str,
    pub(crate) spki_der: Vec<u8>,
    pub(crate) voice: &'a dyn Voice,
}

impl Owner<'_> {
    pub(crate) fn now(&self) -> UnixTime {
        now()
    }

    pub(crate) fn key_fingerprint(&self) -> Fingerprint {
        fingerprint_sha256(&self.spki_der)
    }

    pub(crate) fn expected<'b>(&'b self, issuers: Option<&'b Bundle>) -> Expected<'b> {
        Expected {
            name: self.name,
            spki_der: &self.spki_der,
            now: self.now(),
            issuers,
        }
    }
}

/// What there is to ask for.
pub(crate) enum Purpose<'a> {
    /// A first certificate, with a token where there is one.
    Enrol(Option<Token>),
    /// One that follows another.
    Renew(&'a Chain),
}

/// What was had.
pub(crate) struct Obtained {
    pub(crate) chain: Chain,
    /// What verifies the authority from now on.
    pub(crate) bundle: Bundle,
    pub(crate) lists: Option<Vec<Crl>>,
}

/// The way to one certificate.
pub(crate) struct Session<'a> {
    plan: &'a Plan,
    owner: Owner<'a>,
    purpose: Purpose<'a>,
    request: Zeroizing<String>,
    /// A key that is not on disk yet: nothing has been asked with it.
    new_key: Option<LeafKey>,
    /// Who was believed because it answered first: there is one first time.
    first: Option<Bundle>,
    door: Option<OpenDoor>,
}

enum OpenDoor {
    Puppet(PuppetDoor),
    Kubernetes(KubernetesDoor, Bundle),
}

impl<'a> Session<'a> {
    /// With a key that is on disk.
    pub(crate) fn new(plan: &'a Plan, key: &LeafKey, purpose: Purpose<'a>) -> Result<Self> {
        Ok(Self {
            request: request(plan, key, &purpose)?,
            owner: Owner {
                name: &plan.wishes.name,
                url: &plan.server.url,
                spki_der: key.spki_der().to_vec(),
                voice: &*plan.voice,
            },
            plan,
            purpose,
            new_key: None,
            first: None,
            door: None,
        })
    }

    /// With a key that is written to disk when the authority is recognised: a run that refuses before leaves none behind.
    pub(crate) fn with_new_key(plan: &'a Plan, key: LeafKey, purpose: Purpose<'a>) -> Result<Self> {
        let session = Self::new(plan, &key, purpose)?;
        Ok(Self {
            new_key: Some(key),
            ..session
        })
    }

    /// Asks until there is a certificate or patience ends. What is only for now is told once and tried again.
    pub(crate) async fn obtain(&mut self, patience: Patience) -> Result<Obtained> {
        let begin = Instant::now();
        let mut backoff = Backoff::for_a_decision();
        let mut told = String::new();
        let mut is_asked;
        loop {
            let (why, pause) = match self.step().await {
                Ok(Step::Issued(chain)) => return self.complete(*chain).await,
                Ok(Step::Wait { why, pause }) => {
                    is_asked = true;
                    (why, pause)
                }
                Err(fault) if is_passing(&fault) => {
                    // What was open may be broken.
                    self.door = None;
                    is_asked = false;
                    (with_causes(&fault), None)
                }
                Err(fault) => return Err(explained(fault)),
            };
            if why != told && patience != Patience::Once {
                self.owner.voice.news(&format!("{why}; asking again"));
                told.clone_from(&why);
            }
            let pause = backoff.pause(pause);
            let pause = match patience {
                Patience::Forever => pause,
                Patience::Once => return Err(self.not_yet(&why, is_asked)),
                Patience::For(total) => {
                    let left = total.saturating_sub(begin.elapsed());
                    if left.is_zero() {
                        return Err(self.not_yet(&why, is_asked));
                    }
                    pause.min(left)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// `is_asked` says whether the authority has answered at all.
    fn not_yet(&self, why: &str, is_asked: bool) -> EnrolError {
        let remedy = match (&self.plan.door, &self.purpose) {
            (_, Purpose::Renew(_)) => "the certificate that is installed stays".to_owned(),
            (_, Purpose::Enrol(_)) if self.new_key.is_some() => {
                "run the same command again when it answers".to_owned()
            }
            (_, Purpose::Enrol(_)) if !is_asked => {
                "run the same command again when it answers; the key is kept".to_owned()
            }
            (DoorPlan::Puppet, Purpose::Enrol(_)) => format!(
                "have it signed (`countersign ca sign --certname {}`) and run the same command again; the key is kept",
                self.owner.name
            ),
            (DoorPlan::Kubernetes(_), Purpose::Enrol(_)) => {
                "have it approved and run the same command again; the key is kept".to_owned()
            }
        };
        EnrolError::NotYet(format!(
            "no certificate for {} yet: {why}; {remedy}",
            self.owner.name
        ))
    }

    async fn step(&mut self) -> Result<Step> {
        let mut door = match self.door.take() {
            Some(door) => door,
            None => self.open().await?,
        };
        if let Some(key) = self.new_key.take()
            && self.keep_key(key)? == KeyOnDisk::AnotherRuns
        {
            door = self.open().await?;
        }
        let step = match (&mut door, &self.purpose) {
            (OpenDoor::Puppet(door), Purpose::Enrol(_)) => {
                door.enrol(&self.owner, &self.request).await
            }
            (OpenDoor::Puppet(door), Purpose::Renew(_)) => door.renew(&self.owner).await,
            (OpenDoor::Kubernetes(door, _), _) => door.enrol(&self.owner, &self.request).await,
        };
        self.door = Some(door);
        step
    }

    /// Has the key on disk before anybody sees its public half.
    fn keep_key(&mut self, key: LeafKey) -> Result<KeyOnDisk> {
        let kept = save_key(self.plan, key)?;
        if kept.spki_der() == self.owner.spki_der {
            return Ok(KeyOnDisk::Ours);
        }
        self.request = request(self.plan, &kept, &self.purpose)?;
        self.owner.spki_der = kept.spki_der().to_vec();
        Ok(KeyOnDisk::AnotherRuns)
    }

    /// Everything before this speaks to nobody, or to somebody who is not told anything.
    async fn open(&mut self) -> Result<OpenDoor> {
        let trusted = match self.first.clone() {
            Some(first) => first,
            None => self.trusted().await?,
        };
        let (plan, owner) = (self.plan, &self.owner);
        match &plan.door {
            DoorPlan::Puppet => {
                let identity = match self.purpose {
                    Purpose::Enrol(_) => None,
                    Purpose::Renew(chain) => Some(self.own_identity(chain)?),
                };
                let client = plan.server.client(&trusted, identity)?;
                let door = PuppetDoor::open(client, &trusted, owner).await?;
                self.keep_first()?;
                Ok(OpenDoor::Puppet(door))
            }
            DoorPlan::Kubernetes(kubernetes) => {
                self.keep_first()?;
                let identity = match (&kubernetes.identity, &self.purpose) {
                    (Some((certificate, key)), _) => Some((
                        client::certificates(certificate)?,
                        client::private_key(key)?,
                    )),
                    (None, Purpose::Renew(chain)) => Some(self.own_identity(chain)?),
                    (None, Purpose::Enrol(_)) => None,
                };
                let mut client = plan.server.client(&trusted, identity)?;
                if let Purpose::Enrol(Some(token)) = &self.purpose {
                    let bearer = Zeroizing::new(format!("Bearer {}", token.expose()));
                    let bearer = HeaderValue::from_str(&bearer);
                    let bearer = bearer.map_err(|_| {
                        let what = "the token cannot stand in a header".to_owned();
                        EnrolError::Arguments(what, None)
                    })?;
                    client = client.with_authorization(bearer);
                }
                client.reach().await?;
                let renewed = match self.purpose {
                    Purpose::Enrol(_) => None,
                    Purpose::Renew(chain) => Some(chain.leaf().serial()),
                };
                let order = kubernetes.order.clone();
                let door = KubernetesDoor::new(client, order, owner, renewed);
                Ok(OpenDoor::Kubernetes(door, trusted))
            }
        }
    }

    async fn trusted(&mut self) -> Result<Bundle> {
        let (plan, owner) = (self.plan, &self.owner);
        let trusted = plan
            .trust
            .establish(&plan.server, &plan.place.ca, owner.now());
        let (trusted, warning) = trusted.await?;
        if let Some(warning) = warning {
            owner.voice.warning(&warning);
            self.first = Some(trusted.clone());
        }
        Ok(trusted)
    }

    /// Has on disk whom we believe before it is told anything: the next run, after whatever becomes of this one, believes
    /// nobody else.
    fn keep_first(&self) -> Result<()> {
        match &self.first {
            Some(first) => {
                let ca = &self.plan.place.ca;
                self.plan.install(ca, first.text(), Kind::Public).map(drop)
            }
            None => Ok(()),
        }
    }

    fn own_identity(
        &self,
        chain: &Chain,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let chain = chain.to_der().map(|der| CertificateDer::from(der.to_vec()));
        Ok((chain.collect(), client::private_key(&self.plan.place.key)?))
    }

    /// Adds what belongs to a certificate. One that was revoked meanwhile is none.
    async fn complete(&mut self, chain: Chain) -> Result<Obtained> {
        let (bundle, lists) = match self.door.take() {
            None => {
                let what = format!("the connection to {} was lost", self.owner.url);
                return Err(internal(what));
            }
            Some(OpenDoor::Kubernetes(_, bundle)) => (bundle, None),
            Some(OpenDoor::Puppet(mut door)) => {
                let lists = match door.revocation_lists().await {
                    Ok(lists) => Some(lists),
                    Err(fault) => {
                        let why = with_causes(&fault);
                        let told = format!("no revocation list is installed: {why}");
                        self.owner.voice.warning(&told);
                        None
                    }
                };
                (door.bundle().clone(), lists)
            }
        };
        if issued::is_revoked(chain.leaf(), lists.as_deref().unwrap_or_default()) {
            let what = format!(
                "the certificate of {} at {} is of no use: have it removed (`countersign ca clean --certname {}`), and run this again",
                self.owner.name, self.owner.url, self.owner.name
            );
            return Err(EnrolError::Unfit(what, Misfit::Revoked.into()));
        }
        Ok(Obtained {
            chain,
            bundle,
            lists,
        })
    }
}

/// Whose key is on disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyOnDisk {
    Ours,
    /// Another run made one at the same time, and was faster.
    AnotherRuns,
}

fn request(plan: &Plan, key: &LeafKey, purpose: &Purpose<'_>) -> Result<Zeroizing<String>> {
    let password = match (purpose, &plan.door) {
        (Purpose::Enrol(token), DoorPlan::Puppet) => token.as_ref(),
        (Purpose::Enrol(_) | Purpose::Renew(_), _) => None,
    };
    plan.wishes.request(key, password)
}

/// The revocation lists as they are now; `None` at a door that has none.
pub(crate) async fn current_lists(plan: &Plan) -> Result<Option<Vec<Crl>>> {
    if let DoorPlan::Kubernetes(_) = plan.door {
        return Ok(None);
    }
    let owner = Owner {
        name: &plan.wishes.name,
        url: &plan.server.url,
        spki_der: Vec::new(),
        voice: &*plan.voice,
    };
    let trusted = plan
        .trust
        .establish(&plan.server, &plan.place.ca, owner.now());
    let (trusted, _) = trusted.await?;
    let client = plan.server.client(&trusted, None)?;
    let mut door = PuppetDoor::open(client, &trusted, &owner).await?;
    door.revocation_lists().await.map(Some)
}

/// A server that cannot serve now, or wants to be left alone for a while.
pub(crate) fn passing(reply: &Reply, now: UnixTime) -> Option<Step> {
    let status = reply.status;
    let is_passing = status.is_server_error()
        || matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
        );
    is_passing.then(|| {
        let text: String = reply.text().chars().take(MAX_TEXT).collect();
        Step::Wait {
            why: format!(
                "the authority answered {status}: {}",
                terminal_safe(text.trim())
            ),
            pause: retry_after(reply, now),
        }
    })
}

/// Whether a fault may be gone soon: the network's or the server's, and not a certificate that does not fit.
fn is_passing(fault: &EnrolError) -> bool {
    let is_call = matches!(fault, EnrolError::Client(ClientError::Call { .. }));
    is_call && tls_fault(fault).is_none()
}

/// A refusal in the handshake, on either side.
fn tls_fault(fault: &EnrolError) -> Option<&rustls::Error> {
    tls_causes(fault).find(|fault| {
        matches!(
            fault,
            rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_)
        )
    })
}

fn explained(fault: EnrolError) -> EnrolError {
    match tls_fault(&fault) {
        Some(rustls::Error::InvalidCertificate(_)) => {
            let what = "the server is not verified by the certificates that are trusted here, and nothing secret was sent to it: check --ca-file, \
                        --ca-fingerprint, the CA that is installed, and that --server has a name that stands in its certificate";
            EnrolError::Untrusted(what.to_owned(), Some(fault.into()))
        }
        Some(_) | None => fault,
    }
}

const MAX_TEXT: usize = 300;
