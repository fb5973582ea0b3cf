//! `ca prune`: entries leave the CRL. Their certificates stay revoked: Countersign itself goes on refusing them.

use std::collections::BTreeSet;

use anyhow::Result;
use countersign_authority::Actor;
use countersign_pki::{Serial, terminal_safe};

use super::OK;
use super::place::{self, Given};
use super::refusal::Refusal;
use crate::cli::PruneArgs;
use crate::offline::Offline;
use crate::output::{self, complain};

pub(super) async fn run(args: &PruneArgs) -> Result<u8> {
    let given = Given::read(args.place.config.as_deref())?;
    let names_entries = !args.serial.is_empty() || !args.certname.is_empty();
    if args.remove_entries && !names_entries {
        let error = "--remove-entries option require --serial or --certname values";
        return Err(Refusal::error(error).into());
    }
    // The original passes over what has no effect and ends with 0, which scripts may rely on: it is only told.
    if names_entries && !args.remove_entries {
        complain("--serial and --certname have no effect without --remove-entries");
    }
    for text in args.serial.iter().filter(|text| serial(text).is_none()) {
        let text = terminal_safe(text);
        complain(&format!("{text} is no serial in hexadecimal: passed over"));
    }
    let settings = place::settings(&args.place.data, &given, Vec::new())?;
    let offline = Offline::open(&settings).await?;
    let Offline { authority, issuer } = &offline;
    let listed = authority.ledger.on_crl(issuer);
    output::line(&format!(
        "Total number of certificates found in Puppet's CRL is: {}.",
        listed.len()
    ))?;
    let mut serials: BTreeSet<Serial> = BTreeSet::new();
    if args.remove_entries {
        serials.extend(args.serial.iter().filter_map(|text| serial(text)));
        for name in &args.certname {
            let all = authority.ledger.of_name(issuer, name).await?;
            serials.extend(all.into_iter().map(|entry| entry.serial));
        }
    }
    if args.remove_expired {
        let now = authority.now();
        let ended = listed.iter().filter(|one| one.not_after < now);
        serials.extend(ended.map(|one| one.serial));
    }
    // Duplicates there are none: the list is made from an index by serial.
    let removed = authority
        .ledger
        .unlist(issuer, serials, &Actor::authority())
        .await?;
    offline.publish(&settings)?;
    let outcome = match removed {
        0 => "No matching revocations found in the CRL for pruning".to_owned(),
        some => format!("Removed {some} certs from Puppet's CRL."),
    };
    output::line(&outcome)?;
    Ok(OK)
}

/// What the original does not take for a serial, it passes over.
fn serial(text: &str) -> Option<Serial> {
    let digits = text
        .strip_prefix("0x")
        .or(text.strip_prefix("0X"))
        .unwrap_or(text);
    Serial::parse_hex(digits).ok()
}
