//! `ca import`: an existing CA's key, certificates and CRLs become the Puppet issuer.

use anyhow::{Context as _, Result};
use countersign_authority::store::{Change, Write};
use countersign_authority::{
    AncestorCrl, AuditEntry, Clock as _, CrlRecord, CrlScope, Entropy as _, IssuerId, LedgerEntry,
    RequestId, Revision, Revoked, SystemClock,
};
use countersign_keys::{CopyFor, SystemEntropy};
use countersign_pki::{Certificate, Crl, Fingerprint, UnixTime, ext};
use countersign_policy::{Deciding, Effect, Explanation, Requester, SignerName};

use super::OK;
use super::bundle::Bundle;
use super::place::{self, Given};
use super::refusal::{self, Refusal};
use super::{setup, takeover};
use crate::cli::ImportArgs;
use crate::data_folder::{Secrecy, create_folder, write};
use crate::first_start;
use crate::offline::{self, Offline};
use crate::output;
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
    place::refuse_existing(folder, &targets)?;
    folder.create()?;
    let store = offline::store(&settings)?;
    place::refuse_used(&settings, &*store).await?;

    // What was revoked is on record before there are files with which a server could start.
    let taken = taken_over(&issuer, &bundle, now)?;
    store
        .commit(taken)
        .await
        .context("the CRLs cannot be stored")?;
    create_folder(&file("")).with_context(|| format!("cannot create the folder of {issuer}"))?;
    bundle.key.copy_to(&file("ca_key.pem"), CopyFor::Owner)?;
    write(&file("ca_crt.pem"), bundle.pem.as_bytes(), Secrecy::Public)?;
    let offline = Offline::start(&settings, store).await?;
    // The CRL that was brought along may be old.
    offline.authority.refresh_crls().await?;
    offline.publish(&settings)?;
    first_start::puppet_credentials(&offline.authority, &settings).await?;
    output::line(&format!(
        "Import succeeded. Find your files in {}",
        folder.root().display()
    ))?;
    Ok(OK)
}

/// The CRLs, and an entry in the ledger for everything that the CA has revoked.
fn taken_over(issuer: &IssuerId, bundle: &Bundle, now: UnixTime) -> Result<Change> {
    let mut change = Change::default();
    for (position, crl) in (0..).zip(&bundle.ancestor_crls) {
        let signer = bundle
            .chain
            .iter()
            .find(|one| one.subject().der() == crl.issuer().der());
        let signer = signer.context("a CRL of no CA of the chain")?;
        change.writes.push(Write::PutAncestorCrl {
            issuer: issuer.clone(),
            crl: AncestorCrl {
                key_id: key_id(signer)?,
                number: crl.number_bytes().unwrap_or_default().to_vec(),
                position,
                der: crl.der().to_vec(),
            },
        });
    }
    let revoked = match (&bundle.own_crl, bundle.chain.first()) {
        (Some(crl), Some(ca)) => {
            change.writes.push(Write::PutCrl(record(issuer, crl)?));
            for entry in ledger_entries(issuer, crl, ca, now)? {
                change.writes.push(Write::Import(entry));
            }
            crl.entries().len()
        }
        _ => 0,
    };
    change.audit.push(AuditEntry {
        at: now,
        actor: Requester::authority(),
        action: "import".into(),
        subject: issuer.to_string(),
        request: None,
        detail: format!("`ca import` of a CA that had revoked {revoked}"),
    });
    Ok(change)
}

fn key_id(certificate: &Certificate) -> Result<Vec<u8>> {
    Ok(match certificate.subject_key_id() {
        Some(id) => id.to_vec(),
        None => ext::key_id(certificate.spki_der())?,
    })
}

/// Served as it is until the next one, whose number follows.
fn record(issuer: &IssuerId, crl: &Crl) -> Result<CrlRecord> {
    let number = match (crl.number(), crl.number_bytes()) {
        (Some(number), _) => number,
        (None, None) => 0,
        (None, Some(_)) => {
            return Err(Refusal::error("The CRL number of the leaf CA is too large").into());
        }
    };
    Ok(CrlRecord {
        issuer: issuer.clone(),
        scope: CrlScope::Full,
        number,
        covers: Revision::default(),
        this_update: crl.this_update(),
        next_update: crl.next_update().unwrap_or(crl.this_update()),
        der: crl.der().to_vec(),
    })
}

/// What was revoked is known by its serial alone. No certname has a blank, so nobody takes these for a host's; they are
/// retired, so no listing shows them; and they end with the CA, so that they stay on the CRL.
fn ledger_entries(
    issuer: &IssuerId,
    crl: &Crl,
    ca: &Certificate,
    now: UnixTime,
) -> Result<Vec<LedgerEntry>> {
    let signer = SignerName::parse(signers::PUPPET_AGENT)?;
    let explanation = Explanation {
        effect: Effect::Approve,
        by: Some(Deciding::Person {
            actor: Requester::authority(),
            reason: "signed and revoked before the CA was imported".to_owned(),
        }),
        at: now,
        generation: 0,
        steps: Vec::new(),
    };
    let mut entries: Vec<LedgerEntry> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for entry in crl.entries() {
        // Lists that were written by others may have an entry twice.
        if !seen.insert(entry.serial) {
            continue;
        }
        let mut random = [0; 10];
        SystemEntropy.fill(&mut random)?;
        entries.push(LedgerEntry {
            issuer: issuer.clone(),
            serial: entry.serial,
            request: RequestId::new(now, random),
            signer: signer.clone(),
            name: format!("serial {}", entry.serial),
            key_fingerprint: Fingerprint::from_bytes([0; 32]),
            not_before: ca.not_before(),
            not_after: ca.not_after(),
            der: Vec::new(),
            explanation: explanation.clone(),
            revoked: Some(Revoked {
                at: entry.at,
                reason: entry.reason,
            }),
            retired: Some(now),
        });
    }
    Ok(entries)
}
