//! The Kubernetes door: a CertificateSigningRequest object is made, and looked at until it is decided.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_pki::{CheckedCsr, CsrLimits, Serial, fingerprint_sha256, terminal_safe};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use crate::client::{Client, Reply, path_segment};
use crate::error::{EnrolError, Result};
use crate::issued::Chain;
use crate::session::{Owner, Step, passing};

/// What is asked of a signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Who shall sign.
    pub signer: String,
    /// What the certificate shall be good for.
    pub usages: Vec<String>,
    /// How long it shall live.
    pub expiration_seconds: Option<u32>,
}

/// A verified connection to an API server.
pub(crate) struct KubernetesDoor {
    client: Client,
    order: Order,
    /// The names of our objects begin so; a renewal has others than what it renews.
    stem: String,
    number: u32,
    is_made: bool,
}

/// As much of the object as is looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    spec: Spec,
    status: State,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    request: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    certificate: String,
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    reason: Option<String>,
    message: Option<String>,
}

/// As API servers complain.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Complaint {
    message: String,
}

impl KubernetesDoor {
    /// `renewed` is the certificate that shall be followed by another.
    pub(crate) fn new(
        client: Client,
        order: Order,
        owner: &Owner<'_>,
        renewed: Option<Serial>,
    ) -> Self {
        let stem = object_name(owner.name, &owner.spki_der, &order, renewed);
        Self {
            client,
            order,
            stem,
            number: 1,
            is_made: false,
        }
    }

    /// Makes the object where it is not there, and looks at it.
    pub(crate) async fn enrol(
        &mut self,
        owner: &Owner<'_>,
        request: &Zeroizing<String>,
    ) -> Result<Step> {
        if !self.is_made
            && let Some(step) = self.make(owner, request).await?
        {
            return Ok(step);
        }
        let reply = self.client.get(&self.path()).await?;
        match reply.status {
            StatusCode::OK => self.look(owner, &reply.json()?),
            StatusCode::NOT_FOUND => {
                // Deleted, or collected after a while.
                self.is_made = false;
                Ok(Step::wait(format!(
                    "the object {} is gone and is made again",
                    self.name()
                )))
            }
            _ => self.otherwise(owner, &reply),
        }
    }

    async fn make(
        &mut self,
        owner: &Owner<'_>,
        request: &Zeroizing<String>,
    ) -> Result<Option<Step>> {
        loop {
            let mut spec = json!({
                "request": STANDARD.encode(request.as_bytes()),
                "signerName": self.order.signer,
                "usages": self.order.usages,
            });
            if let (Some(seconds), Some(spec)) =
                (self.order.expiration_seconds, spec.as_object_mut())
            {
                spec.insert("expirationSeconds".to_owned(), json!(seconds));
            }
            let object = json!({
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": {"name": self.name()},
                "spec": spec,
            });
            let reply = self
                .client
                .call(Method::POST, OBJECTS, Some(&object))
                .await?;
            match reply.status {
                StatusCode::CREATED | StatusCode::OK => break,
                StatusCode::CONFLICT => {
                    if self.is_usable(owner).await? {
                        break;
                    }
                }
                _ => return self.otherwise(owner, &reply).map(Some),
            }
            // An earlier try was denied, failed, or somebody else has the name.
            self.number += 1;
            if self.number > MAX_TRIES {
                return Err(EnrolError::Refused(format!(
                    "{MAX_TRIES} requests for {} with this key were denied or failed already: have them looked at, and delete them (`kubectl delete csr {}`) before another try",
                    owner.name, self.stem
                )));
            }
        }
        self.is_made = true;
        Ok(None)
    }

    /// Whether the object that has our name is for our key and may still be signed. One that is there and not to be seen is
    /// that of another token, which the same key was enrolled with before.
    async fn is_usable(&mut self, owner: &Owner<'_>) -> Result<bool> {
        let reply = self.client.get(&self.path()).await?;
        if reply.status != StatusCode::OK {
            return Ok(false);
        }
        let object: Object = reply.json()?;
        let is_over = object.status.over().is_some();
        let request = STANDARD.decode(&object.spec.request).unwrap_or_default();
        let csr = CheckedCsr::from_pem(&request, &CsrLimits::STANDARD);
        Ok(!is_over && csr.is_ok_and(|csr| csr.spki_der() == owner.spki_der))
    }

    fn look(&self, owner: &Owner<'_>, object: &Object) -> Result<Step> {
        if let Some(condition) = object.status.over() {
            let said = |text: &Option<String>| {
                let text = text.as_deref().unwrap_or_default();
                terminal_safe(text).into_owned()
            };
            return Err(EnrolError::Refused(format!(
                "{} was {} by {}: {} {}",
                self.name(),
                match condition.kind.as_str() {
                    DENIED => "denied",
                    _ => "approved but not signed",
                },
                owner.url,
                said(&condition.reason),
                said(&condition.message)
            )));
        }
        if object.status.certificate.is_empty() {
            let state = match object
                .status
                .conditions
                .iter()
                .any(|one| one.kind == APPROVED)
            {
                true => "is approved and waits to be signed",
                false => "waits to be approved",
            };
            return Ok(Step::wait(format!("{} {state}", self.name())));
        }
        let text = STANDARD.decode(&object.status.certificate);
        let text = text.map_err(|fault| {
            let what = "the certificate in the object is not base64";
            EnrolError::Unfit(what.to_owned(), fault.into())
        })?;
        let chain =
            Chain::read(&text).map_err(|misfit| EnrolError::Unfit(self.name(), misfit.into()))?;
        // Signers may have an issuer of their own, which is not the one that verifies the API server.
        let checked = chain.check(&owner.expected(None));
        checked.map_err(|misfit| {
            let what = format!("the certificate of {} is not installed", self.name());
            EnrolError::Unfit(what, misfit.into())
        })?;
        Ok(Step::Issued(Box::new(chain)))
    }

    fn otherwise(&self, owner: &Owner<'_>, reply: &Reply) -> Result<Step> {
        let complaint: Complaint = reply.json().unwrap_or_default();
        let message = terminal_safe(&complaint.message).into_owned();
        let why = match reply.status {
            StatusCode::UNAUTHORIZED => format!(
                "{} does not know who asks: give a token that is good there with --token-file, or a certificate with --client-cert and --client-key",
                owner.url
            ),
            StatusCode::FORBIDDEN => format!(
                "{} does not let us ask for {}: {message}",
                owner.url, owner.name
            ),
            status => match passing(reply, owner.now()) {
                Some(step) => return Ok(step),
                None => format!(
                    "{} answered {status}: {message}; check --server, --door, --signer and --usage",
                    owner.url
                ),
            },
        };
        Err(EnrolError::Refused(why))
    }

    fn name(&self) -> String {
        match self.number {
            1 => self.stem.clone(),
            number => format!("{}-{number}", self.stem),
        }
    }

    fn path(&self) -> String {
        format!("{OBJECTS}/{}", path_segment(&self.name()))
    }
}

impl State {
    /// The condition that ends a request without a certificate.
    fn over(&self) -> Option<&Condition> {
        let mut conditions = self.conditions.iter();
        let over = conditions.find(|one| one.kind == DENIED || one.kind == FAILED);
        over.filter(|_| self.certificate.is_empty())
    }
}

/// A name that says whose request it is, and that a later try with the same key finds again.
fn object_name(name: &str, spki_der: &[u8], order: &Order, renewed: Option<Serial>) -> String {
    let mut all = spki_der.to_vec();
    for part in std::iter::once(&order.signer).chain(&order.usages) {
        all.push(0);
        all.extend_from_slice(part.as_bytes());
    }
    if let Some(serial) = renewed {
        all.push(1);
        all.extend_from_slice(serial.to_string().as_bytes());
    }
    let digest = fingerprint_sha256(&all).to_hex();
    let plain = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '.' | '-') => c,
        _ => '-',
    };
    let readable: String = name.chars().take(MAX_READABLE).map(plain).collect();
    let short = digest.get(..16).unwrap_or(&digest);
    format!("{}-{short}", readable.trim_matches(['.', '-']))
}

const OBJECTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";
const MAX_READABLE: usize = 200;
const MAX_TRIES: u32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_names_that_are_found_again() {
        let order = Order {
            signer: "example.com/vpn".to_owned(),
            usages: vec!["client auth".to_owned()],
            expiration_seconds: None,
        };
        let name = object_name("system:node:Web01", b"key", &order, None);
        assert!(name.starts_with("system-node-web01-"), "{name}");
        assert_eq!(name, object_name("system:node:Web01", b"key", &order, None));
        let other = Order {
            usages: vec!["server auth".to_owned()],
            ..order.clone()
        };
        let serial = Serial::from_be_bytes(&[7]).unwrap();
        for another in [
            object_name("system:node:Web01", b"yek", &order, None),
            object_name("system:node:Web01", b"key", &other, None),
            object_name("system:node:Web01", b"key", &order, Some(serial)),
        ] {
            assert_ne!(name, another);
        }
    }
}
