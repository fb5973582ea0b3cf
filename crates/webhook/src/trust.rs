//! Whom a webhook's connection trusts, and who we are on it.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use countersign_pki::{Certificate, UnixTime};
use countersign_policy::{CaBundle, Webhook};
use countersign_private_keys::private_file;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, TrustAnchor};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::exchange::Fault;
use crate::setting::SettingFault;

/// The certificates of one webhook, ours and theirs.
pub(crate) struct Trust {
    anchors: Vec<Anchor>,
    identity: Option<Arc<SingleCertAndKey>>,
    provider: Arc<CryptoProvider>,
}

/// One trusted CA. RFC 5280 6.1 leaves a trust anchor's own validity to the caller and the TLS library does not look
/// at it; a CA that has expired is not trusted here.
struct Anchor {
    anchor: TrustAnchor<'static>,
    validity: Option<(UnixTime, UnixTime)>,
}

impl Anchor {
    fn is_in_force(&self, now: UnixTime) -> bool {
        self.validity
            .is_none_or(|(not_before, not_after)| not_before <= now && now <= not_after)
    }
}

impl Trust {
    pub(crate) fn load(webhook: &Webhook) -> Result<Self, SettingFault> {
        let anchors = match &webhook.ca_bundle {
            Some(CaBundle::File(path)) => anchors(&read_public(path, "caBundle")?)?,
            Some(CaBundle::Pem(text)) => anchors(text.as_bytes())?,
            None => system_anchors(),
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let trust = Self {
            anchors,
            identity: identity(webhook, &provider)?,
            provider,
        };
        // Whatever else could be wrong with the library's settings is found now.
        trust
            .config(trust.anchors.iter())
            .map_err(|source| SettingFault::Tls { source })?;
        Ok(trust)
    }

    /// TLS with those CAs that are in force now.
    pub(crate) fn connector(&self, now: UnixTime) -> Result<TlsConnector, Fault> {
        let mut in_force = self
            .anchors
            .iter()
            .filter(|anchor| anchor.is_in_force(now))
            .peekable();
        if in_force.peek().is_none() {
            return Err(Fault::NoAnchor);
        }
        let config = self.config(in_force).map_err(Fault::tls_settings)?;
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn config<'a>(
        &'a self,
        anchors: impl Iterator<Item = &'a Anchor>,
    ) -> Result<ClientConfig, rustls::Error> {
        let roots = RootCertStore {
            roots: anchors.map(|anchor| anchor.anchor.clone()).collect(),
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            Some(identity) => {
                let identity = Arc::clone(identity);
                builder.with_client_cert_resolver(identity)
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Every question looks at the server's certificate.
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

/// The CAs that this machine trusts. Where it has none, nobody is trusted, and no question is answered.
fn system_anchors() -> Vec<Anchor> {
    let mut bundles = SYSTEM_BUNDLES.iter().map(Path::new);
    let found = bundles.find_map(|path| {
        let bundle = read_public(path, "the machine's CA bundle").ok()?;
        anchors(&bundle).ok()
    });
    found.unwrap_or_default()
}

/// Where Debian, Red Hat and Alpine keep them.
const SYSTEM_BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

fn anchors(bundle: &[u8]) -> Result<Vec<Anchor>, SettingFault> {
    let mut anchors = Vec::new();
    for (before, der) in certificates(bundle, "caBundle")?.into_iter().enumerate() {
        let position = before.saturating_add(1);
        // Some public CAs have certificates that our strict reader refuses; they count for as long as they are listed.
        let facts = Certificate::parse(&der).ok();
        let validity = facts.map(|facts| (facts.not_before(), facts.not_after()));
        let mut roots = RootCertStore::empty();
        roots
            .add(der)
            .map_err(|source| SettingFault::Anchor { position, source })?;
        anchors.extend(
            roots
                .roots
                .into_iter()
                .map(|anchor| Anchor { anchor, validity }),
        );
    }
    Ok(anchors)
}

fn identity(
    webhook: &Webhook,
    provider: &CryptoProvider,
) -> Result<Option<Arc<SingleCertAndKey>>, SettingFault> {
    let half = |missing| Err(SettingFault::HalfIdentity { missing });
    let (certificate, key) = match (&webhook.client_cert_file, &webhook.client_key_file) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (None, Some(_)) => return half("clientCertFile"),
        (Some(_), None) => return half("clientKeyFile"),
    };
    let chain = certificates(&read_public(certificate, CERT_FILE)?, CERT_FILE)?;
    let key = private_file::read(key).map_err(|source| SettingFault::KeyFile { source })?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|source| SettingFault::Pem {
        setting: "clientKeyFile",
        source,
    })?;
    let pair = CertifiedKey::from_der(chain, key, provider)
        .map_err(|source| SettingFault::Identity { source })?;
    Ok(Some(Arc::new(SingleCertAndKey::from(pair))))
}

fn certificates(
    text: &[u8],
    setting: &'static str,
) -> Result<Vec<CertificateDer<'static>>, SettingFault> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let certificates = certificates.map_err(|source| SettingFault::Pem { setting, source })?;
    match certificates.is_empty() {
        true => Err(SettingFault::NoCertificate { setting }),
        false => Ok(certificates),
    }
}

fn read_public(path: &Path, setting: &'static str) -> Result<Vec<u8>, SettingFault> {
    let failed = |source| SettingFault::Unreadable {
        setting,
        path: path.to_owned(),
        source,
    };
    // Looked at before it is opened, because opening a pipe waits for its writer.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("it is not a regular file")));
    }
    let mut content = Vec::new();
    let file = File::open(path).map_err(failed)?;
    let read = file
        .take(MAX_BUNDLE.saturating_add(1))
        .read_to_end(&mut content)
        .map_err(failed)?;
    match u64::try_from(read).is_ok_and(|read| read <= MAX_BUNDLE) {
        true => Ok(content),
        false => Err(SettingFault::TooLarge {
            setting,
            limit: MAX_BUNDLE,
        }),
    }
}

const CERT_FILE: &str = "clientCertFile";
/// Four times the certificates that browsers trust.
const MAX_BUNDLE: u64 = 1024 * 1024;
