//! A client of a Puppet-compatible CA: requests, certificates, signing, cleaning, renewal and lists, a call for each.
//!
//! It says what the CA answers and decides nothing. A name is exactly one segment of a path, or no call is made.

mod answer;
mod key;
#[cfg(test)]
mod tests;
mod trust;

use std::time::Duration;

use countersign_pki::pem::PemFault;
use http::{Method, StatusCode, Uri};
use serde_json::{Value, json};

pub(crate) use self::answer::sentence;
pub use self::answer::{Answer, Fetched, Renewed, Submitted};
use self::answer::{authority_certificates, revocation_list};
pub use self::key::{Key, KeyFault, extension_oid};
pub use self::trust::{CaTrust, Identity};
use crate::client::{Client, ClientError, Manners, Reply, path_segment};

/// A CA, and how it is spoken to.
pub struct Ca {
    client: Client,
    /// The path of its URL, without a slash at the end.
    base: String,
}

/// Why a CA cannot be asked, or what it answers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaFault {
    /// The URL has to be corrected.
    #[error("{url:?} is not the URL of a CA: write https://HOST:PORT")]
    Url {
        /// The URL.
        url: String,
    },
    /// The URL carries a password, or looks like it. It is not shown.
    #[error("the CA's URL must not contain a user name or password: write https://HOST:PORT")]
    UserInfo,
    /// The name cannot be one segment of a path.
    #[error(
        "{certname:?} cannot be a certname: it must not be empty, \".\" or \"..\", or contain a slash"
    )]
    Certname {
        /// The name.
        certname: String,
    },
    /// The CA's certificates are not PEM.
    #[error("the CA's certificates are not PEM")]
    RootsPem(#[source] PemFault),
    /// There are none.
    #[error("the CA's certificates contain no CERTIFICATE block")]
    NoRoots,
    /// One of them is damaged.
    #[error("certificate {position} of the CA's certificates cannot be used")]
    Root {
        /// Counted from one.
        position: usize,
        /// Why.
        source: rustls::Error,
    },
    /// This machine trusts nobody.
    #[error(
        "this system has no trusted CA certificates: install them, or name the CA's certificate"
    )]
    NoSystemRoots,
    /// Our certificate or key is not PEM.
    #[error("the client {what} is not PEM")]
    IdentityPem {
        /// `certificate` or `key`.
        what: &'static str,
        /// Why.
        source: PemFault,
    },
    /// There is no certificate, or no key that is not encrypted.
    #[error("the client {what} contains no {label} block that can be used")]
    NoIdentity {
        /// `certificate` or `key`.
        what: &'static str,
        /// What was looked for.
        label: &'static str,
    },
    /// Our certificate and key cannot be used together.
    #[error("the client certificate and key cannot be used together")]
    Identity(#[source] rustls::Error),
    /// The TLS library refuses its settings.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The CA did not answer. It may answer later.
    #[error(transparent)]
    Unreachable(#[from] ClientError),
    /// It answers, and does not give what it was asked for.
    #[error("the CA answers {status} to the request for {resource}: {body}")]
    Refused {
        /// What was asked for, as in the path.
        resource: &'static str,
        /// The status.
        status: u16,
        /// What it says.
        body: String,
    },
    /// It answers with something else.
    #[error("the CA's answer to the request for {resource} is not {wanted}")]
    Malformed {
        /// What was asked for, as in the path.
        resource: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
}

impl Ca {
    /// The CA at an `http` or `https` URL. Nothing is sent yet. With `http` there is nothing to recognise it by and nobody to be
    /// recognised as, so `trust` and `identity` are not used.
    ///
    /// # Errors
    /// If the URL, the trust or the identity cannot be used.
    pub fn new(url: &str, trust: &CaTrust, identity: Option<&Identity>) -> Result<Self, CaFault> {
        let Address {
            scheme,
            origin,
            base,
        } = Address::read(url)?;
        let client = match scheme {
            Scheme::Https => Client::at(&origin, trust::tls(trust, identity)?, &MANNERS)?,
            Scheme::Http => Client::unencrypted(&origin, &MANNERS)?,
        };
        Ok(Self { client, base })
    }

    /// Submits a request, PEM.
    ///
    /// # Errors
    /// If the CA does not answer.
    pub async fn submit(&mut self, certname: &str, request: &str) -> Result<Submitted, CaFault> {
        let path = self.named("certificate_request", certname)?;
        let reply = self.client.put_text(&path, request.to_owned()).await?;
        Ok(Submitted::read(&reply))
    }

    /// Fetches the certificate of a name.
    ///
    /// # Errors
    /// If the CA does not answer.
    pub async fn fetch(&mut self, certname: &str) -> Result<Fetched, CaFault> {
        let path = self.named("certificate", certname)?;
        Ok(Fetched::read(self.client.get(&path).await?))
    }

    /// Has the waiting request of a name signed. Needs an identity that may.
    ///
    /// # Errors
    /// If the CA does not answer.
    pub async fn sign(&mut self, certname: &str) -> Result<Answer, CaFault> {
        let path = self.named("certificate_status", certname)?;
        let wanted = json!({"desired_state": "signed"});
        let reply = self.client.call(Method::PUT, &path, Some(&wanted)).await?;
        Ok(Answer::read(&reply))
    }

    /// Has the certificate and the request of a name forgotten, without revoking anything; it is done if there is none. Needs
    /// an identity that may.
    ///
    /// # Errors
    /// If the CA does not answer.
    pub async fn remove(&mut self, certname: &str) -> Result<Answer, CaFault> {
        let path = self.named("certificate_status", certname)?;
        let reply = self.client.call(Method::DELETE, &path, None).await?;
        Ok(match reply.status {
            StatusCode::NOT_FOUND => Answer::Done,
            _ => Answer::read(&reply),
        })
    }

    /// Has the certificate of a name revoked and forgotten. Needs an identity that may.
    ///
    /// # Errors
    /// If the CA does not answer.
    pub async fn clean(&mut self, certname: &str) -> Result<Answer, CaFault> {
        checked(certname)?;
        let path = self.resource("clean");
        let names = json!({"certnames": [certname]});
        let reply = self.client.call(Method::PUT, &path, Some(&names)).await?;
        Ok(Answer::read(&reply))
    }

    /// The same for a name that only an administrator who insists may end, such as another administrator's.
    ///
    /// # Errors
    /// If the CA does not answer.
    pub async fn clean_by_force(&mut self, certname: &str) -> Result<Answer, CaFault> {
        checked(certname)?;
        let path = format!("{}&force=true", self.resource("clean"));
        let names = json!({"certnames": [certname]});
        let reply = self.client.call(Method::PUT, &path, Some(&names)).await?;
        Ok(Answer::read(&reply))
    }

    /// Asks Countersign for an administrator's certificate, which is approved in the same call. The request has nothing in it
    /// that makes an administrator: the authority adds that. Needs an administrator's identity.
    ///
    /// # Errors
    /// If the CA does not answer.
    pub async fn create_administrator(
        &mut self,
        certname: &str,
        request: &str,
    ) -> Result<Answer, CaFault> {
        let path = format!("{}{REQUESTS}", self.base);
        let document = json!({
            "name": checked(certname)?,
            "signer": ADMINISTRATORS,
            "csr": request,
            "reason": "a Certificate with ppCliAuth",
        });
        let reply = self
            .client
            .call(Method::POST, &path, Some(&document))
            .await?;
        Ok(Answer::read(&reply))
    }

    /// Asks for another certificate with the one that is to be renewed, which has to be the identity. Puppet Server does not
    /// look at the request, PEM.
    ///
    /// # Errors
    /// If the CA does not answer, or answers 200 without a certificate.
    pub async fn renew(&mut self, request: &str) -> Result<Renewed, CaFault> {
        let path = self.resource(RENEWAL);
        let reply = self.client.post_text(&path, request.into()).await?;
        Renewed::read(reply)
    }

    /// The revocation lists, PEM, as the CA gives them out.
    ///
    /// # Errors
    /// If the CA does not answer, or with anything but revocation lists.
    pub async fn revocation_list(&mut self) -> Result<String, CaFault> {
        revocation_list(self.given(LIST).await?, LIST)
    }

    /// The revocation lists with everything that is revoked, where the CA has a path for them; Countersign has, and Puppet
    /// Server has none. What [`Self::revocation_list`] gives may be a shorter list, of the infrastructure's nodes.
    ///
    /// # Errors
    /// If the CA does not answer, cannot answer now, or answers with anything but revocation lists.
    pub async fn full_revocation_list(&mut self) -> Result<Option<String>, CaFault> {
        let reply = self.client.get(&self.resource(FULL_LIST)).await?;
        let status = reply.status;
        let is_busy = matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
        );
        if status.is_server_error() || is_busy {
            return Err(CaFault::Refused {
                resource: FULL_LIST,
                status: status.as_u16(),
                body: sentence(&reply),
            });
        }
        match status {
            StatusCode::OK => revocation_list(reply, FULL_LIST).map(Some),
            _ => Ok(None),
        }
    }

    /// The CA's certificates, PEM, as it gives them out.
    ///
    /// # Errors
    /// If the CA does not answer, or with anything but certificates.
    pub async fn authority_certificates(&mut self) -> Result<String, CaFault> {
        authority_certificates(self.given(CERTIFICATES).await?)
    }

    /// Puts a document of the native API, whose path begins with a slash. Needs an identity that may.
    ///
    /// # Errors
    /// If the CA does not answer.
    pub async fn put(&mut self, path: &str, document: &Value) -> Result<Answer, CaFault> {
        let path = format!("{}{path}", self.base);
        let reply = self.client.call(Method::PUT, &path, Some(document)).await?;
        Ok(Answer::read(&reply))
    }

    /// The authorities that Countersign has signing policies of, as `namespace/name`. Needs an identity that may.
    ///
    /// # Errors
    /// If the CA does not answer, or has no such call.
    pub async fn policy_authorities(&mut self) -> Result<Vec<String>, CaFault> {
        let path = format!("{}{POLICIES}", self.base);
        let reply = self.client.get(&path).await?;
        if reply.status != StatusCode::OK {
            return Err(CaFault::Refused {
                resource: "signing-policies",
                status: reply.status.as_u16(),
                body: sentence(&reply),
            });
        }
        let given: Option<Value> = serde_json::from_slice(&reply.body).ok();
        let authorities = given
            .as_ref()
            .and_then(|it| it.get("authorities")?.as_object());
        let authorities = authorities.ok_or(CaFault::Malformed {
            resource: "signing-policies",
            wanted: "a list of signing policies",
        })?;
        Ok(authorities.keys().cloned().collect())
    }

    /// What the CA gives out to everybody.
    async fn given(&mut self, resource: &'static str) -> Result<Reply, CaFault> {
        let reply = self.client.get(&self.resource(resource)).await?;
        match reply.status {
            StatusCode::OK => Ok(reply),
            status => Err(CaFault::Refused {
                resource,
                status: status.as_u16(),
                body: sentence(&reply),
            }),
        }
    }

    fn resource(&self, resource: &str) -> String {
        format!("{}{PREFIX}/{resource}{ENVIRONMENT}", self.base)
    }

    fn named(&self, resource: &str, certname: &str) -> Result<String, CaFault> {
        let path = path(resource, checked(certname)?);
        Ok(format!("{}{path}{ENVIRONMENT}", self.base))
    }
}

/// Where something of a name is.
pub(crate) fn path(resource: &str, certname: &str) -> String {
    format!("{PREFIX}/{resource}/{}", path_segment(certname))
}

/// A name that stays one segment of a path. Escaping does not help an empty one, dots stand for other segments even when they
/// are escaped, and proxies may take an escaped slash for a slash.
fn checked(certname: &str) -> Result<&str, CaFault> {
    match matches!(certname, "" | "." | "..") || certname.contains('/') {
        true => Err(CaFault::Certname {
            certname: certname.to_owned(),
        }),
        false => Ok(certname),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

/// A URL, in the parts that are used.
#[derive(Debug, PartialEq, Eq)]
struct Address {
    scheme: Scheme,
    /// Scheme, host and port.
    origin: String,
    /// The path, without a slash at the end.
    base: String,
}

impl Address {
    fn read(url: &str) -> Result<Self, CaFault> {
        if url.contains('@') {
            return Err(CaFault::UserInfo);
        }
        Self::parse(url).ok_or_else(|| CaFault::Url {
            url: url.to_owned(),
        })
    }

    fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let (scheme, default) = match uri.scheme_str()? {
            "https" => (Scheme::Https, 443),
            "http" => (Scheme::Http, 80),
            _ => return None,
        };
        let host = uri.host().filter(|host| !host.is_empty())?;
        let port = match uri.port_u16() {
            Some(port) => port,
            // There is none, rather than one that is no number.
            None if uri.authority()?.as_str() == host => default,
            None => return None,
        };
        let word = uri.scheme_str()?;
        uri.query().is_none().then(|| Self {
            scheme,
            origin: format!("{word}://{host}:{port}"),
            base: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

/// Of every path of a Puppet CA.
pub(crate) const PREFIX: &str = "/puppet-ca/v1";
/// No CA looks at it; old clients of Puppet send it.
const ENVIRONMENT: &str = "?environment=production";
/// Of Countersign's native API, where administrators ask for further ones.
const REQUESTS: &str = "/enrol/v1/requests";
const POLICIES: &str = "/enrol/v1/signing-policies";
const ADMINISTRATORS: &str = "countersign.dev/puppet-admin";
const RENEWAL: &str = "certificate_renewal";
const LIST: &str = "certificate_revocation_list/ca";
const FULL_LIST: &str = "certificate_revocation_list/full";
const CERTIFICATES: &str = "certificate/ca";
static MANNERS: Manners = Manners {
    deadline: Duration::from_secs(30),
    max_answer: 10 * 1024 * 1024,
    // The calls of one attempt follow one another at once.
    keeps_connection: true,
    unreachable: "the CA cannot be reached",
    revoked: "the CA refuses our certificate, which was revoked",
};
