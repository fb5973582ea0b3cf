//! `countersign ca import --cadir`: the authority of a Puppet Server becomes this one's.
//!
//! The directory is read and checked whole before anything is written. While it is being written a marker stands in the data
//! directory: an import that is cut short is begun anew by the next one, and no server starts on what it left.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use countersign_authority::store::{Change, Write};
use countersign_authority::{
    Authority, AuthorityConfig, CrlScope, Issuer, IssuerId, KeyStore as _, LedgerEntry, Limits,
    Revision, Rules, Store, Submission, SubmitFault, SystemClock,
};
use countersign_keys::{CopyFor, FileKeys, ForeignKey, SystemEntropy};
use countersign_pki::{CheckedCsr, Crl, CsrLimits};
use countersign_policy::{Guarded, Policy, Requester, SignerName, Wishes};
use countersign_puppet_compat::cadir::{
    self, CERTIFICATES, INFRA_INVENTORY, KEY, Problems, Source, read_bounded,
};
use countersign_server::puppet::{self, Certname};
use countersign_store::SqliteStore;
use futures_util::StreamExt as _;

use super::adoption::Adoption;
use super::unfinished::Unfinished;
use crate::config::Config;
use crate::data_folder::{DataFolder, Secrecy, create_folder, write};
use crate::output::{self, Facts, complain};
use crate::progress::Progress;
use crate::signers;
use crate::stores;

/// Carries the import out.
pub(super) async fn run(directory: &Path, folder: &DataFolder) -> Result<u8> {
    cadir::ensure_complete(directory)?;
    let key =
        ForeignKey::read(&directory.join(KEY)).context("the CA's key cannot be taken over")?;
    let mut source = read(directory, &key)?;
    folder.create()?;
    let store: Arc<dyn Store> = Arc::new(claim(folder)?);
    let unfinished = Unfinished::begin(folder)?;

    let reason = format!("taken over from {}", source.folder().display());
    let import = Adoption::new(reason)?;
    let mut tally = import.write_ledger(&source, &*store).await?;
    import.write_state(&source, &*store, &tally).await?;
    write_files(&source, &key, folder, &import.issuer)?;
    tally.requests = import.write_requests(&mut source, folder, store).await?;
    source.ensure_unchanged()?;
    unfinished.finish()?;

    if source.problems.count() > 0 {
        complain(&source.problems.text());
    }
    output::line(&tally.text(&source, folder))?;
    Ok(0)
}

fn read(directory: &Path, key: &ForeignKey) -> Result<Source> {
    let mut bar = None;
    let mut each_file = |all| {
        let bar = bar.get_or_insert_with(|| Progress::of(all, "reading certificates"));
        bar.step();
    };
    Ok(Source::read(directory, key.spki_der(), &mut each_file)?)
}

/// Opens the store of a data directory that nothing was ever kept in, or that an import was cut short in.
fn claim(folder: &DataFolder) -> Result<SqliteStore> {
    stores::ensure_here(folder)?;
    Unfinished::clear(folder)?;
    let store = SqliteStore::open(&folder.database())?;
    let issuer = IssuerId::parse(signers::PUPPET_ISSUER)?;
    let in_use = *store.revisions().borrow() != Revision::default()
        || folder.issuer(&issuer, KEY).try_exists()?
        || folder.issuer(&issuer, CERTIFICATES).try_exists()?;
    ensure!(
        !in_use,
        "{} holds an authority already: name another directory with --data, an import needs an empty one",
        folder.root().display()
    );
    Ok(store)
}

impl Adoption {
    async fn write_ledger(&self, source: &Source, store: &dyn Store) -> Result<Tally> {
        let mut tally = Tally::default();
        let all = &source.holdings.all;
        let bar = Progress::of(all.len(), "importing certificates");
        let mut number = 0_u32;
        for batch in all.chunks(BATCH) {
            let mut writes = Vec::with_capacity(batch.len());
            for holding in batch {
                number = number.wrapping_add(1);
                let entry = self.entry(holding, number)?;
                tally.count(&entry, &self.administrator);
                writes.push(Write::Import(entry));
            }
            let change = Change {
                writes,
                ..Change::default()
            };
            store.commit(change).await?;
            bar.steps(batch.len());
        }
        drop(bar);
        Ok(tally)
    }

    /// CRLs and the counter, when the ledger is complete: a certificate that comes in moves a counter that is there.
    async fn write_state(&self, source: &Source, store: &dyn Store, tally: &Tally) -> Result<()> {
        let record = |list: &Crl, scope: CrlScope, covers: Revision| {
            let end = source.chain.issuing.not_after();
            let record = self.crl(list, scope, covers, end);
            record.context("the number of the CA's CRL is larger than 64 bits")
        };
        let covers = *store.revisions().borrow();
        let own = record(&source.lists.own, CrlScope::Full, covers)?;
        let mut writes = vec![Write::PutCrl(own)];
        let infrastructure = source.infrastructure.as_ref();
        if let Some(own) = infrastructure.and_then(|infra| infra.own.as_ref()) {
            // It covers nothing: the next one is made when the server starts.
            let own = record(own, CrlScope::Infrastructure, Revision::default())?;
            writes.push(Write::PutCrl(own));
        }
        for crl in &source.lists.ancestors {
            writes.push(Write::PutAncestorCrl {
                issuer: self.issuer.clone(),
                crl: crl.clone(),
            });
        }
        if let Some(next) = source.next_serial {
            writes.push(Write::CountSerials {
                issuer: self.issuer.clone(),
                next,
            });
        }
        let detail = format!(
            "{} certificates from {}",
            tally.certificates.saturating_add(tally.past),
            source.folder().display()
        );
        let audit = self.audit(detail, &source.holdings.all);
        let change = Change {
            writes,
            audit: vec![audit],
            ..Change::default()
        };
        store.commit(change).await?;
        Ok(())
    }

    /// Requests come in as through the door, except that none is signed: Puppet Server has asked its rules already.
    async fn write_requests(
        &self,
        source: &mut Source,
        folder: &DataFolder,
        store: Arc<dyn Store>,
    ) -> Result<usize> {
        let authority = self.authority(source, folder, store).await?;
        let mut submissions = Vec::new();
        for (name, file) in &source.requests {
            match self.submission(name, file) {
                Ok(submission) => submissions.push((file.clone(), submission)),
                Err(error) => source.problems.add(file, format!("left out: {error:#}")),
            }
        }
        let bar = Progress::of(submissions.len(), "importing requests");
        let mut results = futures_util::stream::iter(submissions)
            .map(|(file, submission)| {
                let authority = authority.clone();
                async move { (file, authority.requests.submit(submission).await) }
            })
            .buffer_unordered(AT_ONCE);
        let mut count = 0_usize;
        while let Some((file, result)) = results.next().await {
            bar.step();
            match result {
                Ok(_) => count = count.saturating_add(1),
                Err(SubmitFault::Duplicate { duplicate, .. }) => source.problems.add(
                    &file,
                    format!("left out: its name has a {duplicate} certificate"),
                ),
                Err(fault) => return Err(fault.into()),
            }
        }
        drop(bar);
        Ok(count)
    }

    /// An authority with this issuer alone, and without a rule that approves anything.
    async fn authority(
        &self,
        source: &Source,
        folder: &DataFolder,
        store: Arc<dyn Store>,
    ) -> Result<Authority> {
        let mut keys = FileKeys::new(FileKeys::usual_threads());
        keys.load(self.issuer.clone(), &folder.issuer(&self.issuer, KEY))?;
        let algorithm = keys.algorithm(&self.issuer)?;
        let public_key = keys.public_key(&self.issuer)?;
        let chain = source.chain_pem.clone();
        let issuer = Issuer::from_chain(self.issuer.clone(), chain, algorithm, &public_key)?;
        let mut all = signers::all(&Config::default())?;
        all.retain(|signer| signer.issuer == self.issuer);
        let policy = Policy {
            generation: 0,
            rules: Vec::new(),
            reserved: Guarded::names(signers::RESERVED.map(str::to_owned)),
            ..Policy::default()
        };
        let config = AuthorityConfig {
            store,
            keys: Arc::new(keys),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            issuers: vec![issuer],
            rules: Rules::new(policy, all),
            limits: Limits::STANDARD,
        };
        Ok(Authority::start(config).await?)
    }

    fn submission(&self, name: &str, file: &Path) -> Result<Submission> {
        let text = read_bounded(file, u64::try_from(MAX_REQUEST)?)?;
        let csr = CheckedCsr::from_pem(&text, &CsrLimits::for_pem(MAX_REQUEST))?;
        let certname = Certname::parse(name)?;
        ensure!(
            csr.subject().first_common_name() == Some(name),
            "the request is for another name than the file's"
        );
        Ok(Submission {
            door: &puppet::SPEC,
            key: certname.into_string(),
            csr,
            signer: self.agent.clone(),
            requester: Requester::anonymous(None),
            wishes: Wishes::default(),
            attachment: Vec::new(),
            bearer: None,
            decision: None,
        })
    }
}

/// The chain as it is, and the key, whose presence says that the issuer is there.
fn write_files(
    source: &Source,
    key: &ForeignKey,
    folder: &DataFolder,
    issuer: &IssuerId,
) -> Result<()> {
    let place = folder.issuer(issuer, "");
    create_folder(&place).with_context(|| format!("cannot create {}", place.display()))?;
    write(
        &folder.issuer(issuer, CERTIFICATES),
        &source.chain_pem,
        Secrecy::Public,
    )?;
    key.copy_to(&folder.issuer(issuer, KEY), CopyFor::Owner)?;
    if let Some(infrastructure) = &source.infrastructure {
        let path = folder.root().join(INFRA_INVENTORY);
        write(&path, &infrastructure.names, Secrecy::Public)?;
    }
    Ok(())
}

/// What was taken over.
#[derive(Debug, Default)]
struct Tally {
    certificates: usize,
    /// Without a file: older than the newest of their name, or deleted.
    past: usize,
    revoked: usize,
    requests: usize,
    administrators: Vec<String>,
}

impl Tally {
    fn count(&mut self, entry: &LedgerEntry, administrator: &SignerName) {
        let counter = match entry.retired {
            None => &mut self.certificates,
            Some(_) => &mut self.past,
        };
        *counter = counter.saturating_add(1);
        if entry.revoked.is_some() {
            self.revoked = self.revoked.saturating_add(1);
        }
        let administers = entry.signer == *administrator && entry.revoked.is_none();
        if administers && self.administrators.len() < SHOWN_NAMES {
            self.administrators.push(entry.name.clone());
        }
    }

    fn text(&self, source: &Source, folder: &DataFolder) -> String {
        let mut facts = Facts::default();
        facts.add("issuer", &source.chain.issuing.subject().to_string());
        facts.add("certificates", &self.certificates.to_string());
        facts.add("past certificates", &self.past.to_string());
        facts.add("revoked", &self.revoked.to_string());
        facts.add("requests", &self.requests.to_string());
        let next = source.next_serial;
        let next = next.map_or("random".to_owned(), |next| format!("{next:04X}"));
        facts.add("next serial", &next);
        let number = source.lists.own.number().unwrap_or(0);
        facts.add("CRL number", &number.to_string());
        facts.add("administrators", &self.administrators.join(", "));
        facts.add("problems", &problems(&source.problems));
        format!(
            "Took over {} into {}:\n{}",
            source.folder().display(),
            folder.root().display(),
            facts.text()
        )
    }
}

fn problems(problems: &Problems) -> String {
    match problems.count() {
        0 => "none".to_owned(),
        count => format!("{count}, named above"),
    }
}

const BATCH: usize = 500; // of about 2 KiB each
const AT_ONCE: usize = 64; // requests that share a commit
const SHOWN_NAMES: usize = 20;
const MAX_REQUEST: usize = 64 * 1024; // what the door takes
