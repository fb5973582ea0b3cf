//! `ca setup`: a root, an intermediate below it that signs, and what a first start makes.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use countersign_authority::store::{Change, Write};
use countersign_authority::{
    AncestorCrl, AuditEntry, Clock as _, Entropy as _, IssuerId, SystemClock,
};
use countersign_keys::{
    FileKeys, KeySpec, RootCertificate, SystemEntropy, create_empty_crl, create_intermediate,
    create_issuer,
};
use countersign_pki::{Certificate, Crl, Serial, pem};

use super::OK;
use super::place::{self, Given};
use super::refusal::Refusal;
use super::unfinished::Unfinished;
use crate::cli::{SetupArgs, Ttl};
use crate::config::Span;
use crate::data_folder::{DataFolder, Secrecy, create_folder, write};
use crate::first_start;
use crate::offline::{self, Offline};
use crate::output;
use crate::settings::Settings;
use crate::signers;

pub(super) async fn run(args: &SetupArgs) -> Result<u8> {
    let given = Given::read(args.place.config.as_deref())?;
    let settings = place::named_settings(&args.place, &given, &args.names)?;
    let wishes = Wishes::new(args, &given, &settings)?;
    let folder = &settings.folder;
    let issuer = IssuerId::parse(signers::PUPPET_ISSUER)?;
    let file = |name: &str| folder.issuer(&issuer, name);
    let mut targets = targets(folder, &issuer);
    targets.extend([file("root_key.pem"), file("ca_key.pem")]);
    Unfinished::clear(folder)?;
    place::refuse_existing(folder, &targets)?;
    folder.create()?;
    let store = offline::store(&settings)?;
    place::refuse_used(&settings, &*store).await?;
    let unfinished = Unfinished::begin(folder)?;

    create_folder(&file("")).with_context(|| format!("cannot create the folder of {issuer}"))?;
    FileKeys::generate_file(&file("root_key.pem"), wishes.key)?;
    FileKeys::generate_file(&file("ca_key.pem"), wishes.key)?;
    let hierarchy = Hierarchy::make(&issuer, &file, &wishes).await?;
    let stored = store.commit(Change {
        writes: vec![Write::PutAncestorCrl {
            issuer: issuer.clone(),
            crl: hierarchy.root_crl,
        }],
        audit: vec![
            AuditEntry::own(SystemClock.now(), "import", format!("{issuer}/root CRL"))
                .detail("made by `ca setup`"),
        ],
        ..Change::default()
    });
    stored.await.context("the root's CRL cannot be stored")?;
    write(
        &file("ca_crt.pem"),
        hierarchy.chain.as_bytes(),
        Secrecy::Public,
    )?;
    unfinished.finish()?;
    let offline = Offline::start(&settings, store).await?;
    first_start::puppet_credentials(&offline.authority, &settings).await?;
    output::line(&format!(
        "Generation succeeded. Find your files in {}",
        folder.root().display()
    ))?;
    output::complain(&format!(
        "Nothing here uses the root's key again: take {} away, to a place that is not connected.",
        file("root_key.pem").display()
    ));
    Ok(OK)
}

/// What must not exist, whichever way a CA is made; the server's key pair may.
pub(super) fn targets(folder: &DataFolder, issuer: &IssuerId) -> Vec<PathBuf> {
    vec![
        folder.issuer(issuer, "ca_crt.pem"),
        folder.issuer(issuer, "ca_crl.pem"),
        folder.tls("puppet.pem"),
        folder.admin("admin.pem"),
        folder.admin("ca.pem"),
    ]
}

/// How the CAs shall be.
struct Wishes {
    ca_name: String,
    root_ca_name: String,
    key: KeySpec,
    lifetime: u64,
}

impl Wishes {
    fn new(args: &SetupArgs, given: &Given, settings: &Settings) -> Result<Self> {
        let mut random = [0; 7];
        SystemEntropy.fill(&mut random)?;
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let puppet = settings
            .issuers
            .iter()
            .find(|issuer| issuer.id.as_str() == signers::PUPPET_ISSUER);
        let (keylength, ca_ttl) = match given.puppet() {
            Some(conf) => (conf.keylength()?, conf.ca_ttl()?),
            None => (None, None),
        };
        let key = match (args.key_type, keylength) {
            (Some(kind), _) => kind.0,
            (None, Some(bits)) => format!("rsa{bits}").parse().map_err(|_| {
                Refusal::error(format!(
                    "keylength {bits} of puppet.conf is none of 2048, 3072 and 4096; choose a kind with --key-type"
                ))
            })?,
            (None, None) => puppet.map(|issuer| issuer.key).unwrap_or_default(),
        };
        let lifetime = match ca_ttl {
            Some(text) => {
                let fault = |_| {
                    Refusal::error(format!(
                        "Invalid 'time to live' format '{text:?}' for parameter: :ca_ttl"
                    ))
                };
                let ttl = text.parse::<Ttl>().map_err(fault)?;
                let span = Span::seconds(ttl.seconds).as_lifetime();
                span.map_err(|what| Refusal::error(format!("ca_ttl of puppet.conf: {what}")))?
                    .as_seconds()
            }
            None => LIFETIME.as_seconds(),
        };
        let name = |flag: &Option<String>| flag.clone().filter(|name| !name.is_empty());
        Ok(Self {
            ca_name: name(&args.ca_name)
                .unwrap_or_else(|| format!("Puppet CA: {}", settings.names.certname)),
            root_ca_name: name(&args.root_ca_name)
                .unwrap_or_else(|| format!("Puppet Root CA: {digits}")),
            key,
            lifetime,
        })
    }

    fn certificate<'a>(&self, common_name: &'a str) -> Result<RootCertificate<'a>> {
        let mut random = [0; 16];
        SystemEntropy.fill(&mut random)?;
        let now = SystemClock.now();
        Ok(RootCertificate {
            common_name,
            not_before: now.minus_seconds(Span::days(1).as_seconds()),
            not_after: now.plus_seconds(self.lifetime),
            serial: Serial::random_from(random),
        })
    }
}

/// The certificates of both CAs, the signing one first, and the root's CRL.
struct Hierarchy {
    chain: String,
    root_crl: AncestorCrl,
}

impl Hierarchy {
    async fn make(
        issuer: &IssuerId,
        file: &dyn Fn(&str) -> PathBuf,
        wishes: &Wishes,
    ) -> Result<Self> {
        let root_id = IssuerId::parse("root")?;
        let mut keys = FileKeys::new(FileKeys::usual_threads());
        keys.load(root_id.clone(), &file("root_key.pem"))?;
        keys.load(issuer.clone(), &file("ca_key.pem"))?;
        let facts = wishes.certificate(&wishes.root_ca_name)?;
        let root_pem = create_issuer(&keys, &root_id, &facts).await?;
        let block = pem::decode_first(root_pem.as_bytes(), &pem::PemLimits::BUNDLE)?;
        let root = Certificate::parse(&block.context("the root was not written")?.der)?;
        let ca_pem = create_intermediate(
            &keys,
            (&root_id, &root),
            issuer,
            &wishes.certificate(&wishes.ca_name)?,
        )
        .await?;
        // Nobody makes it anew: the root's key may be taken away.
        let crl = create_empty_crl(&keys, (&root_id, &root), facts.not_before, facts.not_after);
        let root_crl = AncestorCrl::new(&root, 0, &Crl::parse(&crl.await?)?)?;
        Ok(Self {
            chain: format!("{ca_pem}{root_pem}"),
            root_crl,
        })
    }
}

/// As the original has it.
const LIFETIME: Span = Span::years(15);
