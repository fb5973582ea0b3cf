//! `ca import`: an existing CA's key, certificates and CRLs become the Puppet issuer.

use anyhow::{Context as _, Result};
use countersign_authority::store::{Change, Write};
use countersign_authority::{
    AncestorCrl, Clock as _, CrlScope, IssuerId, Revision, Serials, SystemClock,
};
use countersign_keys::CopyFor;
use countersign_puppet_compat::cadir::Holdings;

use super::OK;
use super::adoption::Adoption;
use super::bundle::Bundle;
use super::place::{self, Given};
use super::refusal::{self, Refusal};
use super::unfinished::Unfinished;
use super::{setup, takeover};
use crate::adoption;
use crate::cli::ImportArgs;
use crate::data_folder::{Secrecy, create_folder, write};
use crate::first_start;
use crate::offline::{self, Offline};
use crate::output;
use crate::settings::{IssuerSettings, Settings};
use crate::signers;

pub(super) async fn run(args: &ImportArgs) -> Result<u8> {
    if let Some(cadir) = &args.cadir {
        return takeover::run(cadir, &args.place.data.folder()).await;
    }
    let parts = &args.parts;
    let (Some(bundle), Some(key), Some(chain)) =
        (&parts.cert_bundle, &parts.private_key, &parts.crl_chain)
    else {
        return Err(Refusal::Usage {
            errors: vec![
                "    Missing required argument".to_owned(),
                "    --cert-bundle, --private-key, --crl-chain are required".to_owned(),
                "    or --cadir alone, the CA directory of a Puppet Server".to_owned(),
            ],
            verb: "import",
        }
        .into());
    };
    let config = args.place.config.as_deref();
    let files: Vec<_> = [bundle.as_path(), key, chain]
        .into_iter()
        .chain(config)
        .collect();
    refusal::readable(&files)?;
    let now = SystemClock.now();
    let bundle = Bundle::load(key, bundle, chain, now)?;
    let given = Given::read(config)?;
    let settings = place::named_settings(&args.place, &given, &args.names)?;
    let folder = &settings.folder;
    let issuer = IssuerId::parse(signers::PUPPET_ISSUER)?;
    let file = |name: &str| folder.issuer(&issuer, name);
    let mut targets = setup::targets(folder, &issuer);
    targets.push(file("ca_key.pem"));
    refuse_counting(&settings, &issuer)?;
    Unfinished::clear(folder)?;
    place::refuse_existing(folder, &targets)?;
    folder.create()?;
    let store = offline::store(&settings)?;
    place::refuse_used(&settings, &*store).await?;
    let unfinished = Unfinished::begin(folder)?;

    // What was revoked is on record before there are files with which a server could start.
    let taken = taken_over(&bundle)?;
    store
        .commit(taken)
        .await
        .context("the CRLs cannot be stored")?;
    create_folder(&file("")).with_context(|| format!("cannot create the folder of {issuer}"))?;
    bundle.key.copy_to(&file("ca_key.pem"), CopyFor::Owner)?;
    write(&file("ca_crt.pem"), bundle.pem.as_bytes(), Secrecy::Public)?;
    if !parts.no_adopt {
        adoption::write(folder, &issuer, &bundle.chain.issuing, now)?;
    }
    unfinished.finish()?;
    let offline = Offline::start(&settings, store).await?;
    // The CRL that was brought along may be old.
    offline.authority.issuers.refresh_crls().await?;
    offline.publish(&settings)?;
    first_start::puppet_credentials(&offline.authority, &settings).await?;
    output::line(&format!(
        "Import succeeded. Find your files in {}",
        folder.root().display()
    ))?;
    Ok(OK)
}

/// The files do not say which serials the CA has given out.
fn refuse_counting(settings: &Settings, issuer: &IssuerId) -> Result<()> {
    let counts = |one: &IssuerSettings| one.id == *issuer && one.serials == Serials::Sequential;
    if settings.issuers.iter().any(counts) {
        return Err(Refusal::error(
            "issuers.puppet.serials is sequential, but these files do not say which serials were given out: import the CA \
             directory with --cadir, or let the serials be random",
        )
        .into());
    }
    Ok(())
}

/// The CRLs, and an entry in the ledger for everything that the CA has revoked: known by its serial alone, hidden, and
/// on the CRL as long as the CA lasts.
fn taken_over(bundle: &Bundle) -> Result<Change> {
    let adoption = Adoption::new("signed and revoked before the CA was imported".to_owned())?;
    let mut change = Change::default();
    let above = (0..).zip(&bundle.chain.ancestors);
    for ((position, ca), crl) in above.zip(&bundle.ancestor_crls) {
        change.writes.push(Write::PutAncestorCrl {
            issuer: adoption.issuer.clone(),
            crl: AncestorCrl::new(ca, position, crl)?,
        });
    }
    let (mut revoked, mut all) = (0, Vec::new());
    if let Some(crl) = &bundle.own_crl {
        let record = adoption.crl(crl, CrlScope::Full, Revision::default(), crl.this_update());
        let record =
            record.ok_or_else(|| Refusal::error("The CRL number of the leaf CA is too large"))?;
        change.writes.push(Write::PutCrl(record));
        let holdings = Holdings::of_revoked(crl, &bundle.chain);
        for (holding, number) in holdings.all.iter().zip(1..) {
            let entry = adoption.entry(holding, number)?;
            change.writes.push(Write::Import(entry));
        }
        all = holdings.all;
        revoked = crl.entries().len();
    }
    let detail = format!("`ca import` of a CA that had revoked {revoked}");
    change.audit.push(adoption.audit(detail, &all));
    Ok(change)
}
