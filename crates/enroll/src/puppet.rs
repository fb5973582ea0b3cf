//! The Puppet door, as an agent goes through it: send the request, fetch the certificate, later renew it.

use std::time::Duration;

use countersign_pki::Crl;
use http::{Method, StatusCode};
use hyper::body::Bytes;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::ca::{self, PREFIX, Submitted, sentence};
use crate::client::{Client, Reply};
use crate::error::{EnrolError, Result};
use crate::issued::{self, Chain, Misfit};
use crate::session::{Owner, Step, passing};
use crate::trust::{Bundle, CA_PATH};

/// A verified connection to a Puppet CA.
pub(crate) struct PuppetDoor {
    client: Client,
    /// The authority's certificates: those it serves, as far as they stand on those that are trusted.
    bundle: Bundle,
    sent: Option<Sent>,
}

/// A request that the server has seen.
struct Sent {
    at: Instant,
    taken: Taken,
}

#[derive(PartialEq, Eq)]
enum Taken {
    /// It waits, or was signed.
    Yes,
    /// It was refused. The name may have a certificate or a request already, perhaps our own: what the server said is told
    /// only if it is not.
    No { untold: Option<String> },
}

impl PuppetDoor {
    /// Fetches the whole chain, which an agent needs and a trusted file may lack.
    pub(crate) async fn open(
        mut client: Client,
        trusted: &Bundle,
        owner: &Owner<'_>,
    ) -> Result<Self> {
        let reply = client.get(CA_PATH).await?;
        if reply.status != StatusCode::OK {
            return Err(EnrolError::Refused(format!(
                "there is no Puppet CA at {}: GET {CA_PATH} was answered {}; check --server and --door",
                owner.url, reply.status
            )));
        }
        let served = Bundle::read(
            &reply.body,
            &format!("the answer of {}", owner.url),
            owner.now(),
        )?;
        let bundle = served.standing_on(trusted.certificates());
        if bundle.is_empty() {
            let what = format!(
                "{} serves CA certificates that have nothing to do with those that are trusted",
                owner.url
            );
            return Err(EnrolError::Untrusted(what, None));
        }
        Ok(Self {
            client,
            bundle,
            sent: None,
        })
    }

    pub(crate) fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// Sends the request where it is not known to be there, and looks for the certificate.
    pub(crate) async fn enrol(
        &mut self,
        owner: &Owner<'_>,
        request: &Zeroizing<String>,
    ) -> Result<Step> {
        let is_recent = |sent: &Sent| sent.at.elapsed() < AGAIN;
        if !self.sent.as_ref().is_some_and(is_recent)
            && let Some(step) = self.submit(owner, request).await?
        {
            return Ok(step);
        }
        let path = ca::path("certificate", owner.name);
        let reply = self.client.get(&path).await?;
        let step = match reply.status {
            StatusCode::OK => self.fetched(owner, &reply),
            StatusCode::NOT_FOUND => Ok(Step::wait(format!(
                "the request of {} waits to be signed; its key fingerprint (SHA256) is {}",
                owner.name,
                owner.key_fingerprint()
            ))),
            _ => match passing(&reply, owner.now()) {
                Some(step) => Ok(step),
                None => Err(unexpected("the certificate was not given out", &reply)),
            },
        };
        if !matches!(step, Ok(Step::Issued(_))) {
            self.tell_refusal(owner);
        }
        step
    }

    /// Tells once what the server said when it did not take the request.
    fn tell_refusal(&mut self, owner: &Owner<'_>) {
        if let Some(Sent {
            taken: Taken::No { untold },
            ..
        }) = &mut self.sent
            && let Some(sentence) = untold.take()
        {
            owner
                .voice
                .warning(&format!("{} answers: {sentence}", owner.url));
        }
    }

    async fn submit(
        &mut self,
        owner: &Owner<'_>,
        request: &Zeroizing<String>,
    ) -> Result<Option<Step>> {
        let path = ca::path("certificate_request", owner.name);
        let reply = self.client.put_text(&path, request.to_string()).await?;
        let taken = match Submitted::read(&reply) {
            Submitted::Taken => Taken::Yes,
            // Of our own earlier try.
            Submitted::WaitsAlready => Taken::No { untold: None },
            Submitted::HasCertificate { body } | Submitted::Refused { status: 400, body } => {
                Taken::No { untold: Some(body) }
            }
            Submitted::Refused { status: 403, body } => {
                return Err(EnrolError::Refused(format!(
                    "{} refuses to enrol {}: {body} Check that the token is meant for this name, was not used with another key and has not expired, and have a new one made if in doubt",
                    owner.url, owner.name,
                )));
            }
            Submitted::Refused { .. } => match passing(&reply, owner.now()) {
                Some(step) => return Ok(Some(step)),
                None => return Err(unexpected("the request was not taken", &reply)),
            },
        };
        let at = Instant::now();
        self.sent = Some(Sent { at, taken });
        Ok(None)
    }

    fn fetched(&self, owner: &Owner<'_>, reply: &Reply) -> Result<Step> {
        let chain = answered(owner, reply)?;
        let misfit = match chain.check(&owner.expected(Some(&self.bundle))) {
            Ok(()) => return Ok(Step::Issued(Box::new(chain))),
            Err(misfit) => misfit,
        };
        let was_taken = self
            .sent
            .as_ref()
            .is_some_and(|sent| sent.taken == Taken::Yes);
        match misfit {
            // An earlier certificate of the name, until ours is signed.
            Misfit::OtherKey | Misfit::Expired { .. } if was_taken => Ok(Step::wait(format!(
                "{} still has an earlier certificate of {}; the new request waits to be signed",
                owner.url, owner.name
            ))),
            misfit @ (Misfit::OtherKey | Misfit::Expired { .. }) => {
                let what = format!(
                    "{} has a certificate for {} that is of no use here: if this machine was made anew, have the old one removed \
                     (`countersign ca clean --certname {}`, or the same verb of puppetserver ca) and run this again",
                    owner.url, owner.name, owner.name
                );
                Err(EnrolError::Unfit(what, misfit.into()))
            }
            misfit => {
                let what = format!(
                    "{} gave out a certificate for {} that is not installed",
                    owner.url, owner.name
                );
                Err(EnrolError::Unfit(what, misfit.into()))
            }
        }
    }

    /// Asks for a new certificate with the old one, for the same key and names (Puppet's `certificate_renewal`).
    pub(crate) async fn renew(&mut self, owner: &Owner<'_>) -> Result<Step> {
        let path = format!("{PREFIX}/certificate_renewal");
        let content = Some(("text/plain", Bytes::new()));
        let reply = self.client.send(Method::POST, &path, content).await?;
        match reply.status {
            StatusCode::OK => {
                let chain = answered(owner, &reply)?;
                let checked = chain.check(&owner.expected(Some(&self.bundle)));
                checked.map_err(|misfit| {
                    let what = "the renewed certificate is not installed";
                    EnrolError::Unfit(what.to_owned(), misfit.into())
                })?;
                Ok(Step::Issued(Box::new(chain)))
            }
            StatusCode::NOT_FOUND => Err(EnrolError::Refused(format!(
                "{} does not renew certificates: set `puppet: {{auto_renewal: true}}` in its configuration (a Puppet Server: allow-auto-renewal in ca.conf)",
                owner.url
            ))),
            _ => match passing(&reply, owner.now()) {
                Some(step) => Ok(step),
                None => Err(unexpected("the certificate was not renewed", &reply)),
            },
        }
    }

    /// The revocation lists of the authority and those above it.
    pub(crate) async fn revocation_lists(&mut self) -> Result<Vec<Crl>> {
        let reply = self
            .client
            .get(&format!("{PREFIX}/certificate_revocation_list/ca"))
            .await?;
        if reply.status != StatusCode::OK {
            return Err(unexpected("there is no revocation list", &reply));
        }
        let lists = issued::revocation_lists(&reply.body, &self.bundle);
        if lists.is_empty() {
            let what = "the revocation lists are not the authority's";
            return Err(EnrolError::Refused(what.to_owned()));
        }
        Ok(lists)
    }
}

fn answered(owner: &Owner<'_>, reply: &Reply) -> Result<Chain> {
    Chain::read(&reply.body).map_err(|misfit| {
        let what = format!("{} gave out something for {}", owner.url, owner.name);
        EnrolError::Unfit(what, misfit.into())
    })
}

fn unexpected(what: &str, reply: &Reply) -> EnrolError {
    let (status, said) = (reply.status, sentence(reply));
    EnrolError::Refused(format!("{what}, the answer was {status}: {said}"))
}

/// A request that was deleted meanwhile is sent again, and one that waits may be judged again by rules that have changed. Puppet agents
/// do it as often.
const AGAIN: Duration = Duration::from_secs(120);
