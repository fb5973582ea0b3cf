//! `countersign ca export --cadir`: the way back to a Puppet Server.

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use countersign_authority::store::RequestFilter;
use countersign_authority::{
    Clock as _, CrlRecord, CrlScope, IssuerId, LedgerEntry, RequestState, Store, SystemClock,
};
use countersign_keys::{CopyFor, ForeignKey};
use countersign_pki::{Crl, SignatureAlgorithm, UnixTime, pem};
use countersign_puppet_compat::cadir::{
    CERTIFICATES, CRLS, Holding, INFRA_CRLS, INFRA_INVENTORY, INFRA_SERIALS, KEY, MAX_SERIAL,
    PUBLIC_KEY, Problems, REQUESTS, Row, SIGNED, Target, WriteFault,
};
use countersign_server::puppet::PuppetDoor;
use countersign_store::SqliteStore;

use crate::cli::ExportArgs;
use crate::data_folder::DataFolder;
use crate::output::{self, Facts, complain};
use crate::progress::Progress;
use crate::signers;
use crate::stores;

/// Carries the export out.
pub(crate) async fn run(args: &ExportArgs) -> Result<u8> {
    let folder = args.data.folder();
    stores::ensure_here(&folder)?;
    ensure!(
        folder.database().try_exists()?,
        "{} holds no authority: name its data directory with --data",
        folder.root().display()
    );
    let store = SqliteStore::open(&folder.database())
        .context("an export needs the authority for itself, so stop the server")?;
    folder.ensure_no_unfinished_import()?;
    let export = Export::examine(&folder, &store).await?;
    let target = Target::create(&args.cadir)?;
    let mut tally = Tally::default();
    export.write_authority(&target)?;
    export.write_inventory(&target, &mut tally).await?;
    export.write_signed(&target, &mut tally).await?;
    export.write_requests(&target, &mut tally).await?;
    export.write_infrastructure(&target, &folder).await?;
    target.finish()?;
    if tally.problems.count() > 0 {
        complain(&tally.problems.text());
    }
    output::line(&tally.text(&export, args))?;
    Ok(0)
}

/// An authority that Puppet Server can go on with.
struct Export<'a> {
    store: &'a dyn Store,
    issuer: IssuerId,
    key: ForeignKey,
    chain_pem: Vec<u8>,
    crl: CrlRecord,
    /// The lists above, as PEM.
    ancestors: String,
    next_serial: u64,
    now: UnixTime,
    length: usize,
}

impl<'a> Export<'a> {
    /// Fails, before anything is written, for what Puppet Server cannot take.
    async fn examine(folder: &DataFolder, store: &'a dyn Store) -> Result<Self> {
        let issuer = IssuerId::parse(signers::PUPPET_ISSUER)?;
        let key = ForeignKey::read(&folder.issuer(&issuer, KEY))
            .context("the key of issuer puppet is not there")?;
        ensure!(
            key.algorithm() == SignatureAlgorithm::RsaPkcs1Sha256,
            "Puppet Server signs with RSA keys only, and the key of issuer puppet is none: this authority cannot be exported"
        );
        let chain = folder.issuer(&issuer, CERTIFICATES);
        let chain_pem =
            fs::read(&chain).with_context(|| format!("cannot read {}", chain.display()))?;
        let now = SystemClock.now();
        let intents = store.open_intents().await?;
        ensure!(
            !intents.iter().any(|intent| intent.issuer == issuer),
            "{AT_REST}: a certificate was begun and not finished"
        );
        let crl = store.crl(&issuer, CrlScope::Full).await?;
        let crl = crl.with_context(|| format!("{AT_REST}: there is no CRL yet"))?;
        let (_, revoked) = store.revocations(&issuer, now).await?;
        let listed = Crl::parse(&crl.der)?;
        let listed: std::collections::BTreeSet<_> = listed.serials().collect();
        ensure!(
            revoked
                .iter()
                .all(|one| !one.listed || listed.contains(&one.serial)),
            "{AT_REST}: a revocation is not on the CRL yet"
        );
        let ancestors = store.ancestor_crls(&issuer).await?;
        let ancestors = ancestors
            .iter()
            .map(|one| pem::encode("X509 CRL", &one.der));
        let mut export = Self {
            store,
            key,
            chain_pem,
            crl,
            ancestors: ancestors.collect(),
            next_serial: 1,
            now,
            length: 0,
            issuer,
        };
        export.examine_serials().await?;
        Ok(export)
    }

    async fn examine_serials(&mut self) -> Result<()> {
        let (mut highest, mut length) = (0, 0_usize);
        let mut large: Option<(usize, LedgerEntry)> = None;
        self.each_entry(|entry| {
            length = length.saturating_add(1);
            match entry.serial.to_u64().filter(|serial| *serial < MAX_SERIAL) {
                Some(serial) => highest = highest.max(serial),
                None => {
                    let (count, _) = large.get_or_insert((0, entry));
                    *count = count.saturating_add(1);
                }
            }
            Ok(())
        })
        .await?;
        if let Some((count, first)) = large {
            bail!(
                "Puppet Server cannot read serials beyond {MAX_SERIAL:X}, and {count} certificates have such, for example {} \
                 of {:?}: only an authority with counted serials can be exported (`issuers.puppet.serials: sequential`)",
                first.serial,
                first.name
            );
        }
        let counted = self.store.next_serial(&self.issuer).await?.unwrap_or(1);
        let next = counted.max(highest.saturating_add(1));
        ensure!(
            next <= MAX_SERIAL,
            "Puppet Server cannot read serials beyond {MAX_SERIAL:X}, and the next one is {next:X}"
        );
        self.next_serial = next;
        self.length = length;
        Ok(())
    }

    /// Every certificate, in the order in which they were issued.
    async fn each_entry(&self, mut each: impl FnMut(LedgerEntry) -> Result<()>) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.store.ledger(&self.issuer, after, PAGE).await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = Some(*last);
            for (_, entry) in page {
                each(entry)?;
            }
        }
    }

    fn write_authority(&self, target: &Target) -> Result<()> {
        self.key
            .copy_to(&target.path(KEY), CopyFor::OwnerAndGroup)?;
        let public = pem::encode("PUBLIC KEY", self.key.spki_der());
        target.write(PUBLIC_KEY, public.as_bytes())?;
        target.write(CERTIFICATES, &self.chain_pem)?;
        target.write(CRLS, self.lists(&self.crl).as_bytes())?;
        Ok(target.write_serial(self.next_serial)?)
    }

    fn lists(&self, own: &CrlRecord) -> String {
        pem::encode("X509 CRL", &own.der) + &self.ancestors
    }

    async fn write_inventory(&self, target: &Target, tally: &mut Tally) -> Result<()> {
        let mut inventory = target.inventory()?;
        let bar = Progress::of(self.length, "writing the inventory");
        self.each_entry(|entry| {
            bar.step();
            if entry.revoked.is_some() {
                tally.revoked = tally.revoked.saturating_add(1);
            }
            // What was never in an inventory is on the CRL, and only there.
            if Holding::is_nameless(&entry.name) {
                return Ok(());
            }
            tally.lines = tally.lines.saturating_add(1);
            Ok(inventory.push(&Row {
                serial: entry.serial,
                not_before: entry.not_before,
                not_after: entry.not_after,
                name: entry.name,
            })?)
        })
        .await?;
        drop(bar);
        Ok(inventory.finish()?)
    }

    async fn write_signed(&self, target: &Target, tally: &mut Tally) -> Result<()> {
        let bar = Progress::of(self.length, "writing certificates");
        let mut after = None;
        loop {
            let page = self.store.newest_certificates(&self.issuer, after, PAGE);
            let page = page.await?;
            for entry in &page {
                bar.step();
                let text = pem::encode("CERTIFICATE", &entry.der);
                match target.write_named(SIGNED, &entry.name, &text) {
                    Ok(()) => tally.certificates = tally.certificates.saturating_add(1),
                    Err(fault) => tally.leave_out(SIGNED, &entry.name, fault),
                }
            }
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
        }
        drop(bar);
        Ok(())
    }

    async fn write_requests(&self, target: &Target, tally: &mut Tally) -> Result<()> {
        let mut after = None;
        loop {
            let filter = RequestFilter {
                door: Some(PuppetDoor::DOOR),
                states: vec![RequestState::Pending, RequestState::Approved],
                live_only: true,
                after,
                limit: PAGE,
                ..RequestFilter::default()
            };
            let page = self.store.requests(filter).await?;
            for record in &page {
                let text = pem::encode("CERTIFICATE REQUEST", &record.csr_der);
                match target.write_named(REQUESTS, &record.key, &text) {
                    Ok(()) => tally.requests = tally.requests.saturating_add(1),
                    Err(fault) => tally.leave_out(REQUESTS, &record.key, fault),
                }
            }
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = Some((last.door.clone(), last.key.clone(), last.id));
        }
    }

    /// The files of the infra CRL, also where none is in use: without them a Puppet Server that shall use it does not
    /// start.
    async fn write_infrastructure(&self, target: &Target, folder: &DataFolder) -> Result<()> {
        let path = folder.root().join(INFRA_INVENTORY);
        let names = match path.try_exists()? {
            true => fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?,
            false => b"\n".to_vec(),
        };
        let mut serials = String::new();
        for name in String::from_utf8_lossy(&names).lines().map(str::trim) {
            let all = self
                .store
                .certificates_of(&self.issuer, name, self.now)
                .await?;
            for entry in all.iter().rev() {
                serials.push_str(&entry.serial.to_decimal());
                serials.push('\n');
            }
        }
        let crl = self
            .store
            .crl(&self.issuer, CrlScope::Infrastructure)
            .await?;
        target.write(INFRA_INVENTORY, &names)?;
        target.write(INFRA_SERIALS, serials.as_bytes())?;
        let lists = self.lists(crl.as_ref().unwrap_or(&self.crl));
        Ok(target.write(INFRA_CRLS, lists.as_bytes())?)
    }
}

/// What was written.
#[derive(Debug, Default)]
struct Tally {
    certificates: usize,
    lines: usize,
    revoked: usize,
    requests: usize,
    problems: Problems,
}

impl Tally {
    fn leave_out(&mut self, folder: &str, name: &str, fault: WriteFault) {
        let file = std::path::Path::new(folder).join(name);
        let error = anyhow::Error::from(fault);
        self.problems.add(&file, format!("left out: {error:#}"));
    }

    fn text(&self, export: &Export<'_>, args: &ExportArgs) -> String {
        let mut facts = Facts::default();
        facts.add("certificates", &self.certificates.to_string());
        facts.add("inventory lines", &self.lines.to_string());
        facts.add("revoked", &self.revoked.to_string());
        facts.add("requests", &self.requests.to_string());
        facts.add("next serial", &format!("{:04X}", export.next_serial));
        facts.add("CRL number", &export.crl.number.to_string());
        let cadir = args.cadir.display();
        format!(
            "Wrote a CA directory for Puppet Server to {cadir}:\n{}\n\
             It belongs to the user who wrote it: run `chown -R puppet:puppet {cadir}` before Puppet Server starts on it.",
            facts.text()
        )
    }
}

const AT_REST: &str = "start the server once more, let it finish its work, and stop it";
const PAGE: usize = 500;
