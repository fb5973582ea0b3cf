//! One certificate: trust is established, the door opened, and asked until there is an answer.

use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use countersign_authority::{Clock as _, SystemClock};
use countersign_keys::LeafKey;
use countersign_pki::{Crl, Fingerprint, UnixTime, fingerprint_sha256, terminal_safe};
use http::{HeaderValue, StatusCode};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::files::Kind;
use super::issued::{self, Chain, Expected, Misfit};
use super::kubernetes::KubernetesDoor;
use super::plan::{DoorPlan, Plan};
use super::puppet::PuppetDoor;
use super::token::Token;
use super::trust::Bundle;
use super::voice::Voice;
use super::waiting::{Backoff, retry_after};
use crate::client::{self, Call, Reply};

/// How a door answered.
pub(super) enum Step {
    Issued(Box<Chain>),
    /// Not yet, or not now.
    Wait {
        why: String,
        /// What the server asked for.
        pause: Option<Duration>,
    },
}

impl Step {
    pub(super) fn wait(why: String) -> Self {
        Self::Wait { why, pause: None }
    }
}

/// How long to go on asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Once,
    For(Duration),
    Forever,
}

/// Who asks, for doors.
pub(super) struct Owner<'a> {
    pub(super) name: &'a str,
    pub(super) url: &'a str,
    pub(super) spki_der: &'a [u8],
    pub(super) voice: Voice,
}

impl Owner<'_> {
    pub(super) fn now(&self) -> UnixTime {
        SystemClock.now()
    }

    pub(super) fn key_fingerprint(&self) -> Fingerprint {
        fingerprint_sha256(self.spki_der)
    }

    pub(super) fn expected<'b>(&'b self, issuers: Option<&'b Bundle>) -> Expected<'b> {
        Expected {
            name: self.name,
            spki_der: self.spki_der,
            now: self.now(),
            issuers,
        }
    }
}

/// What there is to ask for.
pub(super) enum Purpose<'a> {
    /// A first certificate, with a token where there is one.
    Enrol(Option<Token>),
    /// One that follows another.
    Renew(&'a Chain),
}

/// What was had.
pub(super) struct Obtained {
    pub(super) chain: Chain,
    /// What verifies the authority from now on.
    pub(super) bundle: Bundle,
    pub(super) lists: Option<Vec<Crl>>,
}

/// The way to one certificate.
pub(super) struct Session<'a> {
    plan: &'a Plan,
    owner: Owner<'a>,
    purpose: Purpose<'a>,
    request: Zeroizing<String>,
    /// Who was believed because it answered first: there is one first time.
    first: Option<Bundle>,
    door: Option<OpenDoor>,
}

enum OpenDoor {
    Puppet(PuppetDoor),
    Kubernetes(KubernetesDoor, Bundle),
}

impl<'a> Session<'a> {
    pub(super) fn new(plan: &'a Plan, key: &'a LeafKey, purpose: Purpose<'a>) -> Result<Self> {
        let password = match (&purpose, &plan.door) {
            (Purpose::Enrol(token), DoorPlan::Puppet) => token.as_ref(),
            (Purpose::Enrol(_) | Purpose::Renew(_), _) => None,
        };
        Ok(Self {
            request: plan.wishes.request(key, password)?,
            owner: Owner {
                name: &plan.wishes.name,
                url: &plan.server.url,
                spki_der: key.spki_der(),
                voice: plan.voice,
            },
            plan,
            purpose,
            first: None,
            door: None,
        })
    }

    /// Asks until there is a certificate or patience ends. What is only for now is told once and tried again.
    pub(super) async fn obtain(&mut self, patience: Patience) -> Result<Obtained> {
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
                    (format!("{fault:#}"), None)
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
                Patience::Once => bail!(self.not_yet(&why, is_asked)),
                Patience::For(total) => {
                    let left = total.saturating_sub(begin.elapsed());
                    ensure!(!left.is_zero(), self.not_yet(&why, is_asked));
                    pause.min(left)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// `is_asked` says whether the authority has answered at all.
    fn not_yet(&self, why: &str, is_asked: bool) -> String {
        let remedy = match (&self.plan.door, &self.purpose) {
            (_, Purpose::Renew(_)) => "the certificate that is installed stays".to_owned(),
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
        format!(
            "no certificate for {} yet: {why}; {remedy}",
            self.owner.name
        )
    }

    async fn step(&mut self) -> Result<Step> {
        let mut door = match self.door.take() {
            Some(door) => door,
            None => self.open().await?,
        };
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
                    let bearer =
                        bearer.map_err(|_| anyhow!("the token cannot stand in a header"))?;
                    client = client.with_authorization(bearer);
                }
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
            None => bail!("the connection to {} was lost", self.owner.url),
            Some(OpenDoor::Kubernetes(_, bundle)) => (bundle, None),
            Some(OpenDoor::Puppet(mut door)) => {
                let lists = match door.revocation_lists().await {
                    Ok(lists) => Some(lists),
                    Err(fault) => {
                        let told = format!("no revocation list is installed: {fault:#}");
                        self.owner.voice.warning(&told);
                        None
                    }
                };
                (door.bundle().clone(), lists)
            }
        };
        if issued::is_revoked(chain.leaf(), lists.as_deref().unwrap_or_default()) {
            return Err(anyhow!(Misfit::Revoked).context(format!(
                "the certificate of {} at {} is of no use: have it removed (`countersign ca clean --certname {}`), and run this again",
                self.owner.name, self.owner.url, self.owner.name
            )));
        }
        Ok(Obtained {
            chain,
            bundle,
            lists,
        })
    }
}

/// The revocation lists as they are now; `None` at a door that has none.
pub(super) async fn current_lists(plan: &Plan) -> Result<Option<Vec<Crl>>> {
    if let DoorPlan::Kubernetes(_) = plan.door {
        return Ok(None);
    }
    let owner = Owner {
        name: &plan.wishes.name,
        url: &plan.server.url,
        spki_der: &[],
        voice: plan.voice,
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
pub(super) fn passing(reply: &Reply, now: UnixTime) -> Option<Step> {
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
fn is_passing(fault: &anyhow::Error) -> bool {
    fault.downcast_ref::<Call>().is_some() && tls_fault(fault).is_none()
}

/// A refusal in the handshake, on either side.
fn tls_fault(fault: &anyhow::Error) -> Option<&rustls::Error> {
    let mut causes = fault.chain().filter_map(|cause| {
        let inner = cause.downcast_ref::<std::io::Error>()?.get_ref()?;
        inner.downcast_ref::<rustls::Error>()
    });
    causes.find(|fault| {
        matches!(
            fault,
            rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_)
        )
    })
}

fn explained(fault: anyhow::Error) -> anyhow::Error {
    match tls_fault(&fault) {
        Some(rustls::Error::InvalidCertificate(_)) => fault.context(
            "the server is not verified by the certificates that are trusted here, and nothing secret was sent to it: check --ca-file, --ca-fingerprint, the CA \
             that is installed, and that --server has a name that stands in its certificate",
        ),
        Some(_) | None => fault,
    }
}

const MAX_TEXT: usize = 300;
