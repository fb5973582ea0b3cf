//! The Puppet door, as an agent goes through it: send the request, fetch the certificate, later renew it.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use countersign_pki::{Crl, terminal_safe};
use http::{Method, StatusCode};
use hyper::body::Bytes;
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::issued::{self, Chain, Misfit};
use super::session::{Owner, Step, passing};
use super::trust::{Bundle, CA_PATH};
use crate::client::{Client, Reply, path_segment};

/// A verified connection to a Puppet CA.
pub(super) struct PuppetDoor {
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// It waits, or was signed.
    Yes,
    /// It was refused. The name may have a certificate or a request already, perhaps our own.
    No,
}

impl PuppetDoor {
    /// Fetches the whole chain, which an agent needs and a trusted file may lack.
    pub(super) async fn open(
        mut client: Client,
        trusted: &Bundle,
        owner: &Owner<'_>,
    ) -> Result<Self> {
        let reply = client.get(CA_PATH).await?;
        ensure!(
            reply.status == StatusCode::OK,
            "there is no Puppet CA at {}: GET {CA_PATH} was answered {}; check --server and --door",
            owner.url,
            reply.status
        );
        let served = Bundle::read(
            &reply.body,
            &format!("the answer of {}", owner.url),
            owner.now(),
        )?;
        let bundle = served.standing_on(trusted.certificates());
        ensure!(
            !bundle.is_empty(),
            "{} serves CA certificates that have nothing to do with those that are trusted",
            owner.url
        );
        Ok(Self {
            client,
            bundle,
            sent: None,
        })
    }

    pub(super) fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// Sends the request where it is not known to be there, and looks for the certificate.
    pub(super) async fn enrol(
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
        let path = format!("{PREFIX}/certificate/{}", path_segment(owner.name));
        let reply = self.client.get(&path).await?;
        match reply.status {
            StatusCode::OK => self.fetched(owner, &reply),
            StatusCode::NOT_FOUND => Ok(Step::wait(format!(
                "the request of {} with the key {} waits to be signed",
                owner.name,
                owner.key_fingerprint()
            ))),
            _ => match passing(&reply, owner.now()) {
                Some(step) => Ok(step),
                None => Err(unexpected("the certificate was not given out", &reply)),
            },
        }
    }

    async fn submit(
        &mut self,
        owner: &Owner<'_>,
        request: &Zeroizing<String>,
    ) -> Result<Option<Step>> {
        let path = format!("{PREFIX}/certificate_request/{}", path_segment(owner.name));
        let reply = self.client.put_text(&path, request.to_string()).await?;
        let taken = match reply.status {
            StatusCode::OK | StatusCode::NO_CONTENT => Taken::Yes,
            StatusCode::BAD_REQUEST => {
                let sentence = sentence(&reply);
                // Of our own earlier try.
                if !sentence.contains(WAITS_ALREADY) {
                    let told = format!("{} answers: {sentence}", owner.url);
                    owner.voice.warning(&told);
                }
                Taken::No
            }
            StatusCode::FORBIDDEN => bail!(
                "{} refuses to enrol {}: {} Check that the token is meant for this name, was not used with another key and has not expired, and have a new one made if in doubt",
                owner.url,
                owner.name,
                sentence(&reply)
            ),
            _ => match passing(&reply, owner.now()) {
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
            misfit @ (Misfit::OtherKey | Misfit::Expired { .. }) => Err(anyhow!(misfit).context(format!(
                "{} has a certificate for {} that is of no use here: if this machine was made anew, have the old one removed \
                 (`countersign ca clean --certname {}`, or the same verb of puppetserver ca) and run this again",
                owner.url, owner.name, owner.name
            ))),
            misfit => Err(anyhow!(misfit).context(format!(
                "{} gave out a certificate for {} that is not installed",
                owner.url, owner.name
            ))),
        }
    }

    /// Asks for a new certificate with the old one, for the same key and names (Puppet's `certificate_renewal`).
    pub(super) async fn renew(&mut self, owner: &Owner<'_>) -> Result<Step> {
        let path = format!("{PREFIX}/certificate_renewal");
        let content = Some(("text/plain", Bytes::new()));
        let reply = self.client.send(Method::POST, &path, content).await?;
        match reply.status {
            StatusCode::OK => {
                let chain = answered(owner, &reply)?;
                let checked = chain.check(&owner.expected(Some(&self.bundle)));
                checked.map_err(|misfit| {
                    anyhow!(misfit).context("the renewed certificate is not installed")
                })?;
                Ok(Step::Issued(Box::new(chain)))
            }
            StatusCode::NOT_FOUND => bail!(
                "{} does not renew certificates: set `puppet: {{auto_renewal: true}}` in its configuration (a Puppet Server: allow-auto-renewal in ca.conf)",
                owner.url
            ),
            _ => match passing(&reply, owner.now()) {
                Some(step) => Ok(step),
                None => Err(unexpected("the certificate was not renewed", &reply)),
            },
        }
    }

    /// The revocation lists of the authority and those above it.
    pub(super) async fn revocation_lists(&mut self) -> Result<Vec<Crl>> {
        let reply = self
            .client
            .get(&format!("{PREFIX}/certificate_revocation_list/ca"))
            .await?;
        ensure!(
            reply.status == StatusCode::OK,
            unexpected("there is no revocation list", &reply)
        );
        let lists = issued::revocation_lists(&reply.body, &self.bundle);
        ensure!(
            !lists.is_empty(),
            "the revocation lists are not the authority's"
        );
        Ok(lists)
    }
}

fn answered(owner: &Owner<'_>, reply: &Reply) -> Result<Chain> {
    let what = || format!("{} gave out something for {}", owner.url, owner.name);
    Chain::read(&reply.body).with_context(what)
}

fn unexpected(what: &str, reply: &Reply) -> anyhow::Error {
    anyhow!(
        "{what}, the answer was {}: {}",
        reply.status,
        sentence(reply)
    )
}

/// What a server said, in one line that is safe to show.
fn sentence(reply: &Reply) -> String {
    let text = reply.text();
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let short: String = line.chars().take(MAX_SENTENCE).collect();
    terminal_safe(&short).into_owned()
}

const PREFIX: &str = "/puppet-ca/v1";
/// As Puppet Server and Countersign say that a name has a waiting request.
const WAITS_ALREADY: &str = "already has a requested certificate";
/// A request that was deleted meanwhile is sent again, and one that waits may be judged again by rules that have changed. Puppet agents
/// do it as often.
const AGAIN: Duration = Duration::from_secs(120);
const MAX_SENTENCE: usize = 500;
