//! The CA behind a CertificateAuthority: how it is recognised, who asks it, and the calls to it.

use std::fs;
use std::path::PathBuf;

use countersign_enroll::ca::{Answer, Ca, CaFault, CaTrust, Fetched, Identity, Renewed, Submitted};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::object::AuthorityObject;
use super::secret::Secret;

/// The authority behind internal CertificateAuthorities, and an administrator's credentials for it.
#[derive(Clone, Debug)]
pub struct AuthorityAccess {
    /// Where it is.
    pub url: String,
    /// The administrator's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The certificates by which the authority is recognised.
    pub ca: PathBuf,
}

impl AuthorityAccess {
    /// Who we are there. The files are read again each time: certificates are renewed.
    pub(crate) fn identity(&self) -> Result<Identity, Unusable> {
        let certificate = read(&self.certificate)?;
        let key = read(&self.key)?;
        Ok(Identity::read(&certificate, &key)?)
    }

    pub(crate) fn trust(&self) -> Result<CaTrust, Unusable> {
        Ok(CaTrust::Roots(read(&self.ca)?))
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>, Unusable> {
    fs::read(path).map_err(|source| Unusable::File {
        path: path.clone(),
        source,
    })
}

/// Why a CA cannot even be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("Secret {secret} is missing or has no {key}")]
    NoSecret { secret: String, key: &'static str },
    #[error(
        "the address of the CA is not known: start the operator with --server, or name a Server of the CA and a Pool in front of it"
    )]
    NoAddress,
    #[error(transparent)]
    Client(#[from] CaFault),
}

/// How a CA is recognised, by what its Secrets say.
pub(crate) fn trust(
    authority: &AuthorityObject,
    found: Option<&Secret>,
) -> Result<CaTrust, Unusable> {
    let named = trust_secret(authority);
    if let Some(external) = &authority.external {
        if external.is_unverified {
            return Ok(CaTrust::Anybody);
        }
        if external.ca_secret.is_none() {
            return Ok(CaTrust::System);
        }
    }
    let roots = found.and_then(|secret| secret.filled(CA_CERTIFICATES));
    let roots = roots.ok_or(Unusable::NoSecret {
        secret: named,
        key: CA_CERTIFICATES,
    })?;
    Ok(CaTrust::Roots(roots.to_vec()))
}

/// The name of the Secret with the CA's certificates.
pub(crate) fn trust_secret(authority: &AuthorityObject) -> String {
    let external = authority.external.as_ref();
    let named = external.and_then(|external| external.ca_secret.clone());
    named.unwrap_or_else(|| authority.own("ca").name)
}

/// An identity in a Secret.
pub(crate) fn identity(
    secret: Option<&Secret>,
    name: &str,
    certificate: &'static str,
    key: &'static str,
) -> Result<Identity, Unusable> {
    let value = |key: &'static str| {
        secret
            .and_then(|secret| secret.filled(key))
            .ok_or_else(|| Unusable::NoSecret {
                secret: name.to_owned(),
                key,
            })
    };
    Ok(Identity::read(value(certificate)?, value(key)?)?)
}

/// Finds CAs.
pub(crate) trait CaConnector: Send + Sync {
    fn connect(
        &self,
        url: &str,
        trust: &CaTrust,
        identity: Option<&Identity>,
    ) -> Result<Box<dyn CaClient>, CaFault>;
}

/// The calls of a Puppet-compatible CA.
pub(crate) trait CaClient: Send {
    fn submit<'a>(
        &'a mut self,
        certname: &'a str,
        request: &'a str,
    ) -> BoxFuture<'a, Result<Submitted, CaFault>>;
    fn fetch<'a>(&'a mut self, certname: &'a str) -> BoxFuture<'a, Result<Fetched, CaFault>>;
    fn sign<'a>(&'a mut self, certname: &'a str) -> BoxFuture<'a, Result<Answer, CaFault>>;
    /// Forgets what there is of a name without revoking it.
    fn remove<'a>(&'a mut self, certname: &'a str) -> BoxFuture<'a, Result<Answer, CaFault>>;
    /// Revokes and forgets.
    fn clean<'a>(&'a mut self, certname: &'a str) -> BoxFuture<'a, Result<Answer, CaFault>>;
    /// The same for a name that only an administrator who insists may end.
    fn clean_by_force<'a>(
        &'a mut self,
        certname: &'a str,
    ) -> BoxFuture<'a, Result<Answer, CaFault>> {
        self.clean(certname)
    }
    /// Asks for an administrator's certificate where the CA has a call for that; most have none.
    fn create_administrator<'a>(
        &'a mut self,
        _certname: &'a str,
        _request: &'a str,
    ) -> BoxFuture<'a, Result<Answer, CaFault>> {
        let body = "the CA has no call for administrators' certificates".to_owned();
        async move { Ok(Answer::Refused { status: 404, body }) }.boxed()
    }
    fn renew<'a>(&'a mut self, request: &'a str) -> BoxFuture<'a, Result<Renewed, CaFault>>;
    fn revocation_list(&mut self) -> BoxFuture<'_, Result<String, CaFault>>;
    /// With everything that is revoked, where the CA has a path for that; most have none.
    fn full_revocation_list(&mut self) -> BoxFuture<'_, Result<Option<String>, CaFault>>;
    fn authority_certificates(&mut self) -> BoxFuture<'_, Result<String, CaFault>>;
    /// The authorities that the CA has signing policies of, as `namespace/name`; most CAs have no such call.
    fn published(&mut self) -> BoxFuture<'_, Result<Vec<String>, CaFault>> {
        async { Ok(Vec::new()) }.boxed()
    }
    /// Puts a document of the native API.
    fn publish<'a>(
        &'a mut self,
        path: &'a str,
        document: &'a Value,
    ) -> BoxFuture<'a, Result<Answer, CaFault>>;
}

/// Over the network.
pub(crate) struct Network;

impl CaConnector for Network {
    fn connect(
        &self,
        url: &str,
        trust: &CaTrust,
        identity: Option<&Identity>,
    ) -> Result<Box<dyn CaClient>, CaFault> {
        Ok(Box::new(Ca::new(url, trust, identity)?))
    }
}

impl CaClient for Ca {
    fn submit<'a>(
        &'a mut self,
        certname: &'a str,
        request: &'a str,
    ) -> BoxFuture<'a, Result<Submitted, CaFault>> {
        Self::submit(self, certname, request).boxed()
    }

    fn fetch<'a>(&'a mut self, certname: &'a str) -> BoxFuture<'a, Result<Fetched, CaFault>> {
        Self::fetch(self, certname).boxed()
    }

    fn sign<'a>(&'a mut self, certname: &'a str) -> BoxFuture<'a, Result<Answer, CaFault>> {
        Self::sign(self, certname).boxed()
    }

    fn remove<'a>(&'a mut self, certname: &'a str) -> BoxFuture<'a, Result<Answer, CaFault>> {
        Self::remove(self, certname).boxed()
    }

    fn clean<'a>(&'a mut self, certname: &'a str) -> BoxFuture<'a, Result<Answer, CaFault>> {
        Self::clean(self, certname).boxed()
    }

    fn clean_by_force<'a>(
        &'a mut self,
        certname: &'a str,
    ) -> BoxFuture<'a, Result<Answer, CaFault>> {
        Self::clean_by_force(self, certname).boxed()
    }

    fn create_administrator<'a>(
        &'a mut self,
        certname: &'a str,
        request: &'a str,
    ) -> BoxFuture<'a, Result<Answer, CaFault>> {
        Self::create_administrator(self, certname, request).boxed()
    }

    fn renew<'a>(&'a mut self, request: &'a str) -> BoxFuture<'a, Result<Renewed, CaFault>> {
        Self::renew(self, request).boxed()
    }

    fn revocation_list(&mut self) -> BoxFuture<'_, Result<String, CaFault>> {
        Self::revocation_list(self).boxed()
    }

    fn full_revocation_list(&mut self) -> BoxFuture<'_, Result<Option<String>, CaFault>> {
        Self::full_revocation_list(self).boxed()
    }

    fn authority_certificates(&mut self) -> BoxFuture<'_, Result<String, CaFault>> {
        Self::authority_certificates(self).boxed()
    }

    fn published(&mut self) -> BoxFuture<'_, Result<Vec<String>, CaFault>> {
        Self::policy_authorities(self).boxed()
    }

    fn publish<'a>(
        &'a mut self,
        path: &'a str,
        document: &'a Value,
    ) -> BoxFuture<'a, Result<Answer, CaFault>> {
        Self::put(self, path, document).boxed()
    }
}

pub(crate) const CA_CERTIFICATES: &str = "ca_crt.pem";
