//! Signs for pods: through the engine, with the issuers of this installation. What was verified and which rule approved it
//! stands in the ledger and in the audit log.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use countersign_authority::store::Past;
use countersign_authority::{
    Actor, Authority, Clock as _, Decision, Issuer, IssuerId, RequestState, Submission, SystemClock,
};
use countersign_cluster::{
    CertificateId, PodCertificate, PodOrder, PodSigner, PodSigning, PodTerms,
};
use countersign_pki::{Certificate, Serial, UnixTime};
use countersign_policy::{PersonVerdict, SignerName, Wishes};
use countersign_server::kubernetes::profile_text;
use futures_util::future::BoxFuture;
use tracing::info;

use super::signing::{SPEC, take_back};
use crate::config::Config;
use crate::signers::pods::{MIN_LIFETIME, PodNames, usages};

/// The signers that sign for pods.
pub(super) struct PodCertificates {
    authority: Authority,
    signers: BTreeMap<SignerName, PodNames>,
}

impl PodCertificates {
    /// `None` if no signer of the configuration signs for pods.
    pub(super) fn of(config: &Config, authority: &Authority) -> Result<Option<Self>> {
        let mut signers = BTreeMap::new();
        for section in &config.signers {
            if let Some(pods) = &section.pods {
                let names = PodNames::of(section, pods)?;
                signers.insert(SignerName::parse(&section.name)?, names);
            }
        }
        let authority = authority.clone();
        Ok((!signers.is_empty()).then_some(Self { authority, signers }))
    }

    async fn sign_order(&self, order: PodOrder<'_>) -> Result<PodSigning> {
        let later = |why: &str| Ok(PodSigning::Later(why.to_owned()));
        let rules = self.authority.rules();
        let found = (rules.signer(order.signer), self.signers.get(order.signer));
        let (Some(signer), Some(names)) = found else {
            return later("the signer is not configured any more");
        };
        let Some(issuer) = self.authority.issuers.get(&signer.issuer) else {
            return later("the signer has no issuer");
        };
        let now = SystemClock.now();
        let key = format!("pods/{}.{}", order.name, order.uid);
        if let Some(before) = self.before(&key, now).await? {
            return Ok(before);
        }
        let validity = match signer
            .profile
            .validity(Some(order.max_seconds), now, &issuer)
        {
            Ok(validity) => validity,
            Err(fault) => return Ok(failed(SHORT, fault.to_string())),
        };
        if validity.not_after.seconds_since(validity.not_before) < MIN_SECONDS {
            return Ok(too_short(&issuer));
        }
        let wishes = Wishes {
            usages: usages(&signer.profile, order.stub.public_key().key_type),
            expiration_seconds: Some(order.max_seconds),
        };
        let csr = names.request(order.pod, order.stub);
        let csr = csr.context("the names of the pod cannot be written")?;
        if let Err(fault) = signer.profile.examine(&csr, &key, &wishes) {
            let text = profile_text(&fault, order.signer.as_str(), &signer.profile);
            return Ok(failed(INVALID, text));
        }
        let submission = Submission {
            door: &SPEC,
            key,
            csr,
            signer: order.signer.clone(),
            requester: order.pod.requester(),
            wishes,
            attachment: Vec::new(),
            bearer: None,
            decision: Some(Decision {
                actor: Actor::authority(),
                verdict: PersonVerdict::Approve,
                reason: reason(&order),
                confirmation: None,
            }),
        };
        let submitted = match self.authority.requests.submit(submission).await {
            Ok(submitted) => submitted,
            Err(fault) => return Ok(PodSigning::Later(fault.to_string())),
        };
        if let Some(fault) = submitted.unsignable {
            return Ok(failed(INVALID, fault.to_string()));
        }
        let Some(issued) = submitted.issued else {
            return later("it is not signed yet");
        };
        let intent = issued.intent();
        info!(request = order.name, uid = order.uid, signer = %order.signer, serial = %intent.serial, "certificate issued");
        let certificate = self.shown(&intent.issuer, intent.serial, issued.der())?;
        if certificate.not_after.seconds_since(certificate.not_before) < MIN_SECONDS {
            // The issuer has come closer to its end meanwhile.
            take_back(&self.authority, &certificate.id).await?;
            return Ok(too_short(&issuer));
        }
        Ok(PodSigning::Certificate(certificate))
    }

    /// What a request has got here before, if the cluster would still take it.
    async fn before(&self, key: &str, now: UnixTime) -> Result<Option<PodSigning>> {
        let requests = &self.authority.requests;
        let Some(record) = requests.at(&SPEC.name, key, Past::Include).await? else {
            return Ok(None);
        };
        match (record.state, &record.certificate) {
            (RequestState::Issued, Some((issuer, serial))) => {
                let Some(entry) = self.authority.ledger.get(issuer, serial).await? else {
                    return Ok(None);
                };
                if entry.revoked.is_some() {
                    return Ok(None);
                }
                let certificate = self.shown(issuer, *serial, &entry.der)?;
                if now.seconds_since(entry.not_before) > STALE {
                    take_back(&self.authority, &certificate.id).await?;
                    return Ok(None);
                }
                Ok(Some(PodSigning::Certificate(certificate)))
            }
            (RequestState::Approved | RequestState::Pending, _) => {
                let why = format!("its request {} is under way", record.id);
                Ok(Some(PodSigning::Later(why)))
            }
            (
                RequestState::Issued
                | RequestState::Failed
                | RequestState::Denied
                | RequestState::Undecided,
                _,
            ) => Ok(None),
        }
    }

    fn shown(&self, issuer: &IssuerId, serial: Serial, der: &[u8]) -> Result<PodCertificate> {
        let leaf = Certificate::parse(der).context("the certificate cannot be read back")?;
        Ok(PodCertificate {
            chain: self.authority.issuers.with_intermediates(issuer, der),
            id: CertificateId {
                issuer: issuer.clone(),
                serial,
            },
            not_before: leaf.not_before(),
            not_after: leaf.not_after(),
        })
    }
}

impl PodSigner for PodCertificates {
    fn terms(&self, signer: &SignerName) -> Option<PodTerms> {
        let names = self.signers.get(signer)?;
        self.authority.rules().signer(signer)?;
        Some(names.terms.clone())
    }

    fn sign<'a>(&'a self, order: PodOrder<'a>) -> BoxFuture<'a, PodSigning> {
        Box::pin(async move {
            let signed = self.sign_order(order).await;
            signed.unwrap_or_else(|error| PodSigning::Later(format!("{error:#}")))
        })
    }

    fn anchors(&self) -> Vec<(SignerName, String)> {
        let rules = self.authority.rules();
        let now = SystemClock.now();
        let of_signer = |name: &SignerName| {
            let issuer = self.authority.issuers.get(&rules.signer(name)?.issuer)?;
            Some((name.clone(), roots(&issuer, now)))
        };
        self.signers.keys().filter_map(of_signer).collect()
    }
}

/// The roots of what an issuer signs with and has signed with: one that it had before stays until its own end, because
/// certificates below it may live as long.
fn roots(issuer: &Issuer, now: UnixTime) -> String {
    let own = std::iter::once(issuer.certificate()).chain(issuer.ancestors());
    let known = own.chain(issuer.previous());
    known
        .filter(|ca| ca.is_self_issued() && ca.not_after() > now)
        .map(Certificate::to_pem)
        .collect()
}

/// What was approved and by which rule, for the record.
fn reason(order: &PodOrder<'_>) -> String {
    let (rule, explanation) = order.approval;
    let pod = order.pod;
    let text = format!(
        "pod {}/{} ({}) on node {}, by rule {rule}: {explanation}",
        pod.namespace, pod.name, pod.uid, pod.node
    );
    text.chars().take(MAX_REASON).collect()
}

fn too_short(issuer: &Issuer) -> PodSigning {
    let (id, end) = (issuer.id(), issuer.not_after());
    let message = format!(
        "issuer {id} is valid until {end} only, and certificates of pods live an hour at least; renew the issuer"
    );
    failed(SHORT, message)
}

fn failed(reason: &'static str, message: String) -> PodSigning {
    PodSigning::Failed { reason, message }
}

const SHORT: &str = "IssuerEnding";
const INVALID: &str = "SignerValidationFailure";
const MIN_SECONDS: i64 = MIN_LIFETIME.cast_signed();
/// The API server takes certificates that began less than five minutes ago.
const STALE: i64 = 240;
const MAX_REASON: usize = 1024;
