//! What must exist before the authority serves: issuers, its own certificates, administrator's credentials.
//!
//! Every step looks first whether it was done before, so that a start that was cut short is continued by the next one,
//! and certificates that no longer fit (other names, close to their end, revoked) are issued anew. All certificates go
//! through the engine and stand in the ledger with the decision of the authority itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use countersign_authority::{
    Actor, Authority, Clock, CrlScope, Decision, DoorSpec, Entropy, Issuer, IssuerFault, IssuerId,
    KeyStore as _, Store, Submission, SystemClock,
};
use countersign_keys::{
    FileKeys, LeafKey, ReadKey, RootCertificate, SystemEntropy, create_issuer, private_file,
};
use countersign_pki::{AltName, Certificate, CheckedCsr, CsrLimits, Serial, pem};
use countersign_policy::{PersonVerdict, Requester, SignerName, Wishes};
use countersign_server::TlsIdentity;
use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::adoption;
use crate::config::{Span, Verification};
use crate::data_folder::{DataFolder, Secrecy, create_folder, write};
use crate::issuer_files;
use crate::issuer_keys::IssuerKeys;
use crate::kubeconfig::{Credential, Kubeconfig};
use crate::settings::{IssuerSettings, Settings};
use crate::signers;

/// The issuers and their keys, ready for the engine.
pub(crate) struct Issuers {
    pub(crate) keys: Arc<IssuerKeys>,
    pub(crate) issuers: Vec<Issuer>,
}

impl Issuers {
    /// Loads every issuer; creates those that never were.
    pub(crate) async fn prepare(
        settings: &Settings,
        store: &dyn Store,
        clock: &dyn Clock,
        entropy: &dyn Entropy,
    ) -> Result<Self> {
        settings.folder.ensure_no_unfinished_import()?;
        let verify_all = settings
            .issuers
            .iter()
            .filter(|i| i.verification == Verification::All);
        let keys = IssuerKeys {
            files: FileKeys::new(FileKeys::usual_threads()),
            verify_all: verify_all.map(|i| i.id.clone()).collect(),
        };
        for issuer in &settings.issuers {
            load_key(&keys.files, &settings.folder, store, issuer).await?;
        }
        let mut issuers = Vec::new();
        for issuer in &settings.issuers {
            issuers.push(load_certificate(&keys, &settings.folder, issuer, clock, entropy).await?);
        }
        for issuer in &issuers {
            issuer_files::ensure_own_key(issuer, &issuers)?;
        }
        for issuer in &issuers {
            if issuer_files::are_followed(issuer.id()) {
                issuer_files::keep_history(&settings.folder, issuer)?;
            }
        }
        Ok(Self {
            keys: Arc::new(keys),
            issuers,
        })
    }
}

/// Loads one more issuer beside those that are in use; creates it if it never was.
pub(crate) async fn load_issuer(
    keys: &IssuerKeys,
    folder: &DataFolder,
    store: &dyn Store,
    issuer: &IssuerSettings,
    in_use: &[Arc<Issuer>],
) -> Result<Issuer> {
    // Of an earlier try that came no further.
    if keys.public_key(&issuer.id).is_err() {
        load_key(&keys.files, folder, store, issuer).await?;
    }
    let (clock, entropy) = (SystemClock, SystemEntropy);
    let loaded = load_certificate(keys, folder, issuer, &clock, &entropy).await?;
    issuer_files::ensure_own_key(&loaded, in_use.iter().map(Arc::as_ref))?;
    issuer_files::keep_history(folder, &loaded)?;
    Ok(loaded)
}

/// Makes a key only where nothing can have been signed with another: not where a certificate of the issuer is on disk
/// or one that it signed is in the ledger.
async fn load_key(
    keys: &FileKeys,
    folder: &DataFolder,
    store: &dyn Store,
    issuer: &IssuerSettings,
) -> Result<()> {
    let id = &issuer.id;
    if let Some(kept) = &issuer.kept {
        let key = ReadKey::from_file_of_group(&kept.key)?;
        return keys
            .add(id.clone(), key)
            .with_context(|| format!("issuer {id}"));
    }
    let key = folder.issuer(id, KEY_FILE);
    let certificate = folder.issuer(id, CERTIFICATE_FILE);
    let missing = match (certificate.try_exists()?, key.try_exists()?) {
        (true, true) => None,
        (true, false) => Some(&key),
        (false, _) => {
            // Also what is retired, or was taken over together with the CRLs of an issuer whose files are missing.
            let is_new = store.ledger(id, None, 1).await?.is_empty()
                && store.crl(id, CrlScope::Full).await?.is_none()
                && store.ancestor_crls(id).await?.is_empty();
            (!is_new).then_some(&certificate)
        }
    };
    if let Some(missing) = missing {
        bail!(
            "{} is missing, but issuer {id} is in use: restore the file from a backup",
            missing.display()
        );
    }
    if !key.try_exists()? {
        create_folder(&folder.issuer(id, ""))
            .with_context(|| format!("cannot create the folder of issuer {id}"))?;
        FileKeys::generate_file(&key, issuer.key)?;
        info!(issuer = %id, kind = issuer.key.name(), "key made");
    }
    let read = ReadKey::from_file(&key).with_context(|| format!("issuer {id}"))?;
    keys.add(id.clone(), read)
        .with_context(|| format!("issuer {id}"))
}

async fn load_certificate(
    keys: &IssuerKeys,
    folder: &DataFolder,
    issuer: &IssuerSettings,
    clock: &dyn Clock,
    entropy: &dyn Entropy,
) -> Result<Issuer> {
    let id = &issuer.id;
    let path = match &issuer.kept {
        Some(kept) => kept.certificate.clone(),
        None => folder.issuer(id, CERTIFICATE_FILE),
    };
    if issuer.kept.is_none() && !path.try_exists()? {
        let mut random = [0; 16];
        entropy.fill(&mut random)?;
        let root = RootCertificate {
            common_name: &issuer.common_name,
            // Agents whose clock lags behind accept it all the same, as Puppet's own CA has it.
            not_before: clock.now().minus_seconds(Span::days(1).as_seconds()),
            not_after: clock.now().plus_seconds(ISSUER_LIFETIME.as_seconds()),
            serial: Serial::random_from(random),
        };
        let text = create_issuer(keys, id, &root).await?;
        write(&path, text.as_bytes(), Secrecy::Public)?;
        info!(issuer = %id, name = issuer.common_name, "issuer created");
    }
    let chain = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let public_key = keys.public_key(id)?;
    let loaded = match Issuer::from_chain(id.clone(), chain, keys.algorithm(id)?, &public_key) {
        Err(IssuerFault::ForeignKey) => match &issuer.kept {
            Some(kept) => bail!(
                "{} and {} do not belong together: name the certificate and the key of one CA",
                path.display(),
                kept.key.display()
            ),
            None => bail!(
                "{} and {KEY_FILE} beside it do not belong together: restore both from one backup",
                path.display()
            ),
        },
        loaded => loaded.with_context(|| format!("{} is no issuer's chain", path.display()))?,
    }
    .with_serials(issuer.serials)
    .with_adoption(adoption::read(folder, id)?);
    let loaded = match issuer_files::are_followed(id) {
        true => issuer_files::with_history(folder, loaded, clock.now())?,
        false => loaded,
    };
    if issuer.key_is_configured && !issuer.key.name().starts_with(family(&loaded)) {
        warn!(issuer = %id, configured = issuer.key.name(), "the issuer has a key of another kind; `key` counts only when it is created");
    }
    Ok(loaded)
}

/// The beginning of the configuration's word for the kind of an issuer's key.
fn family(issuer: &Issuer) -> &'static str {
    use countersign_pki::SignatureAlgorithm as Algorithm;
    match issuer.algorithm() {
        Algorithm::RsaPkcs1Sha256 => "rsa",
        Algorithm::EcdsaP256Sha256 => "p256",
        Algorithm::EcdsaP384Sha384 => "p384",
        Algorithm::Ed25519 => "ed25519",
    }
}

/// The Puppet listener's certificate and the administrator's credentials for it.
pub(crate) async fn puppet_credentials(
    authority: &Authority,
    settings: &Settings,
) -> Result<TlsIdentity> {
    let folder = &settings.folder;
    let issuer = issuer(authority, signers::PUPPET_ISSUER)?;
    let server = OwnCertificate {
        key_file: folder.tls("puppet-key.pem"),
        certificate_file: folder.tls(ServerCertificate::PUPPET.file),
        signer: SignerName::parse(signers::PUPPET_SERVER)?,
        name: &settings.names.certname,
        request: &settings.names.certname,
        organizations: &[],
        alt_names: settings.names.alt_names(),
        usages: &[],
        lifetime: None,
    };
    let identity = server.ensure(authority, &issuer).await?;
    let admin = OwnCertificate {
        key_file: folder.admin("admin-key.pem"),
        certificate_file: folder.admin("admin.pem"),
        signer: SignerName::parse(signers::PUPPET_ADMIN)?,
        name: signers::ADMIN,
        request: signers::ADMIN,
        organizations: &[],
        alt_names: vec![AltName::Dns(signers::ADMIN.to_owned())],
        usages: &[],
        lifetime: None,
    };
    admin.ensure(authority, &issuer).await?;
    write(&folder.admin("ca.pem"), issuer.chain_pem(), Secrecy::Public)?;
    Ok(identity)
}

/// The Kubernetes listener's certificate and the administrator's certificate for it.
pub(crate) async fn kubernetes_credentials(
    authority: &Authority,
    settings: &Settings,
) -> Result<(TlsIdentity, TlsIdentity)> {
    let folder = &settings.folder;
    let issuer = issuer(authority, signers::KUBERNETES_ISSUER)?;
    let server = OwnCertificate {
        key_file: folder.tls("kubernetes-key.pem"),
        certificate_file: folder.tls(ServerCertificate::KUBERNETES.file),
        signer: SignerName::parse(signers::KUBERNETES_SERVER)?,
        name: &settings.names.certname,
        request: "kubernetes-server",
        organizations: &[],
        alt_names: settings.names.alt_names(),
        usages: &["digital signature", "server auth"],
        // As long as the Puppet listener's: it is replaced at a start, and starts may be rare.
        lifetime: Some(Span::years(5)),
    };
    let admin = OwnCertificate {
        key_file: folder.admin("kubernetes-key.pem"),
        certificate_file: folder.admin("kubernetes.pem"),
        signer: SignerName::parse(signers::KUBERNETES_ADMIN)?,
        name: signers::ADMIN,
        request: "kubernetes-admin",
        organizations: &["system:masters"],
        alt_names: Vec::new(),
        usages: &["digital signature", "client auth"],
        lifetime: None,
    };
    let server = server.ensure(authority, &issuer).await?;
    Ok((server, admin.ensure(authority, &issuer).await?))
}

/// Writes the administrator's kubeconfig for a server at `url`.
pub(crate) fn write_kubeconfig(
    authority: &Authority,
    folder: &DataFolder,
    url: &str,
    admin: &TlsIdentity,
) -> Result<()> {
    let issuer = issuer(authority, signers::KUBERNETES_ISSUER)?;
    let trusted = issuer.trust_pem();
    let kubeconfig = Kubeconfig {
        url,
        ca_pem: trusted.as_bytes(),
        user: signers::ADMIN,
        credential: Credential::Certificate {
            pem: &admin.chain_pem,
            key_pem: &admin.key_pem,
        },
    };
    let text = kubeconfig.text();
    write(
        &folder.admin("kubeconfig"),
        text.as_bytes(),
        Secrecy::Private,
    )?;
    Ok(())
}

fn issuer(authority: &Authority, name: &str) -> Result<Arc<Issuer>> {
    let id = IssuerId::parse(name)?;
    authority
        .issuers
        .get(&id)
        .ok_or_else(|| anyhow!("there is no issuer {name}"))
}

/// The certificate of a listener.
#[derive(Clone, Copy)]
pub(crate) struct ServerCertificate {
    pub(crate) issuer: &'static str,
    file: &'static str,
}

impl ServerCertificate {
    pub(crate) const PUPPET: Self = Self {
        issuer: signers::PUPPET_ISSUER,
        file: "puppet.pem",
    };
    pub(crate) const KUBERNETES: Self = Self {
        issuer: signers::KUBERNETES_ISSUER,
        file: "kubernetes.pem",
    };

    /// Whether the one on disk, which is the one that is shown, was revoked.
    pub(crate) fn is_revoked(self, authority: &Authority, folder: &DataFolder) -> Result<bool> {
        let issuer = IssuerId::parse(self.issuer)?;
        let certificate = certificate_at(&folder.tls(self.file));
        Ok(certificate.is_some_and(|shown| authority.ledger.is_revoked(&issuer, &shown.serial())))
    }
}

fn certificate_at(path: &Path) -> Option<Certificate> {
    Certificate::parse(&first_der(path)?).ok()
}

fn first_der(path: &Path) -> Option<Vec<u8>> {
    let text = fs::read(path).ok()?;
    let block = pem::decode_first(&text, &pem::PemLimits::BUNDLE).ok()??;
    Some(block.der)
}

/// A certificate that the authority issues to itself or to its administrator.
struct OwnCertificate<'a> {
    key_file: PathBuf,
    certificate_file: PathBuf,
    signer: SignerName,
    /// Its common name, which is also its name in the ledger.
    name: &'a str,
    /// The name of its request at the local door; for Puppet's signers it must be the common name.
    request: &'a str,
    organizations: &'a [&'a str],
    alt_names: Vec<AltName>,
    usages: &'a [&'a str],
    lifetime: Option<Span>,
}

impl OwnCertificate<'_> {
    /// Key and certificate on disk: those that are there if they fit, else the ledger's newest if its file was never
    /// written, else a new one.
    async fn ensure(&self, authority: &Authority, issuer: &Issuer) -> Result<TlsIdentity> {
        let (key, key_pem) = self.usable_key(authority, issuer)?;
        let der = match self.on_disk(authority, issuer, &key).await? {
            Some(der) => der,
            None => match authority.ledger.newest(issuer.id(), self.name).await? {
                Some(entry) if self.fits(authority, issuer, &key, &entry.der).await? => entry.der,
                _ => self.issue(authority, &key).await?,
            },
        };
        let mut chain = pem::encode("CERTIFICATE", &der);
        chain.push_str(&issuer.intermediates_of(&Certificate::parse(&der)?));
        write(&self.certificate_file, chain.as_bytes(), Secrecy::Public)?;
        Ok(TlsIdentity {
            chain_pem: chain.into_bytes(),
            key_pem,
        })
    }

    /// The key on disk, unless its certificate was revoked: whoever did that may have had a reason not to trust the key.
    fn usable_key(
        &self,
        authority: &Authority,
        issuer: &Issuer,
    ) -> Result<(LeafKey, Zeroizing<Vec<u8>>)> {
        let (key, key_pem) = self.key()?;
        let certificate = certificate_at(&self.certificate_file);
        let certificate = certificate.filter(|known| known.spki_der() == key.spki_der());
        let serial = certificate.map(|certificate| certificate.serial());
        let Some(serial) = serial.filter(|serial| authority.ledger.is_revoked(issuer.id(), serial))
        else {
            return Ok((key, key_pem));
        };
        let file = self.certificate_file.display();
        warn!(%file, %serial, "a certificate of the authority itself was revoked: it is replaced, with a new key");
        let text = LeafKey::generate()?.to_pkcs8_pem()?;
        write(&self.key_file, text.as_bytes(), Secrecy::Private)?;
        self.key()
    }

    fn key(&self) -> Result<(LeafKey, Zeroizing<Vec<u8>>)> {
        let path = &self.key_file;
        if !path.try_exists()? {
            let folder = path
                .parent()
                .ok_or_else(|| anyhow!("{} has no folder", path.display()))?;
            create_folder(folder).with_context(|| format!("cannot create {}", folder.display()))?;
            let text = LeafKey::generate()?.to_pkcs8_pem()?;
            private_file::write_new(path, text.as_bytes())?;
        }
        let text = private_file::read(path)?;
        let usable = || {
            format!(
                "{} holds no usable key; remove it to get a new one",
                path.display()
            )
        };
        let key = LeafKey::from_pkcs8_pem(std::str::from_utf8(&text).with_context(usable)?)
            .with_context(usable)?;
        Ok((key, text))
    }

    async fn on_disk(
        &self,
        authority: &Authority,
        issuer: &Issuer,
        key: &LeafKey,
    ) -> Result<Option<Vec<u8>>> {
        let Some(der) = first_der(&self.certificate_file) else {
            return Ok(None);
        };
        let fits = self.fits(authority, issuer, key, &der).await?;
        Ok(fits.then_some(der))
    }

    /// Whether a certificate is this one: of this key and signer, with these names, and good for a while.
    async fn fits(
        &self,
        authority: &Authority,
        issuer: &Issuer,
        key: &LeafKey,
        der: &[u8],
    ) -> Result<bool> {
        let Ok(certificate) = Certificate::parse(der) else {
            return Ok(false);
        };
        let soon = authority.now().plus_seconds(RENEW_BEFORE.as_seconds());
        let same_names = certificate.subject().first_common_name() == Some(self.name)
            && sorted(certificate.alt_names()) == sorted(&self.alt_names);
        if certificate.spki_der() != key.spki_der() || !same_names || certificate.not_after() < soon
        {
            return Ok(false);
        }
        let entry = authority
            .ledger
            .get(issuer.id(), &certificate.serial())
            .await?;
        Ok(entry.is_some_and(|entry| {
            entry.der == der && entry.signer == self.signer && entry.revoked.is_none()
        }))
    }

    async fn issue(&self, authority: &Authority, key: &LeafKey) -> Result<Vec<u8>> {
        let what = || format!("cannot issue {}", self.certificate_file.display());
        let der = key
            .request(self.name, self.organizations, &self.alt_names)
            .with_context(what)?;
        let request = LocalRequest {
            key: self.request,
            signer: self.signer.clone(),
            usages: self.usages,
            lifetime: self.lifetime.map(Span::as_seconds),
            reason: "own certificate, made at start",
        };
        issue(authority, &der, request).await.with_context(what)
    }
}

/// A request of the authority's own machine, which is approved as it arrives.
pub(crate) struct LocalRequest<'a> {
    /// Its name at the local door; for Puppet's signers the common name.
    pub(crate) key: &'a str,
    pub(crate) signer: SignerName,
    pub(crate) usages: &'a [&'a str],
    pub(crate) lifetime: Option<u64>,
    /// For the record.
    pub(crate) reason: &'a str,
}

/// Has a certificate signed through the engine, by the decision of the authority itself.
pub(crate) async fn issue(
    authority: &Authority,
    csr_der: &[u8],
    request: LocalRequest<'_>,
) -> Result<Vec<u8>> {
    let csr = CheckedCsr::check(csr_der, &CsrLimits::STANDARD)?;
    let wishes = Wishes {
        usages: request.usages.iter().map(ToString::to_string).collect(),
        expiration_seconds: request.lifetime,
    };
    if let Some(signer) = authority.rules().signer(&request.signer) {
        // Before it is stored, so that it does not occupy its name.
        signer.profile.examine(&csr, request.key, &wishes)?;
    }
    let submission = Submission {
        door: DoorSpec::LOCAL,
        key: request.key.to_owned(),
        csr,
        signer: request.signer,
        requester: Requester::authority(),
        wishes,
        attachment: Vec::new(),
        bearer: None,
        decision: Some(Decision {
            actor: Actor::authority(),
            verdict: PersonVerdict::Approve,
            reason: request.reason.to_owned(),
            confirmation: None,
        }),
    };
    let submitted = authority.requests.submit(submission).await?;
    if let Some(fault) = submitted.unsignable {
        bail!("{fault}");
    }
    let issued = submitted
        .issued
        .ok_or_else(|| anyhow!("it was not signed"))?;
    info!(name = request.key, serial = %issued.intent().serial, "certificate issued");
    Ok(issued.der().to_vec())
}

/// The names on the certificate that the Puppet listener has, the certname first; loopback names, which it always has,
/// are left out.
pub(crate) fn names_on_certificate(folder: &DataFolder) -> Option<Vec<String>> {
    let certificate = certificate_at(&folder.tls(ServerCertificate::PUPPET.file))?;
    let certname = certificate.subject().first_common_name()?.to_owned();
    let others = certificate
        .alt_names()
        .iter()
        .filter_map(|name| match name {
            AltName::Dns(name) if *name != certname && name != "localhost" => Some(name.clone()),
            AltName::Ip(address) if !address.is_loopback() => Some(address.to_string()),
            _ => None,
        });
    let others: Vec<String> = others.collect();
    Some([vec![certname], others].concat())
}

fn sorted(names: &[AltName]) -> Vec<String> {
    let mut texts: Vec<String> = names.iter().map(ToString::to_string).collect();
    texts.sort();
    texts.dedup();
    texts
}

pub(crate) const KEY_FILE: &str = "ca_key.pem";
pub(crate) const CERTIFICATE_FILE: &str = "ca_crt.pem";
/// As `puppetserver ca setup` makes it.
const ISSUER_LIFETIME: Span = Span::years(15);
/// An own certificate that ends sooner is replaced at start.
const RENEW_BEFORE: Span = Span::days(30);
