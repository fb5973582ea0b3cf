//! `ca delete`: signed certificates are forgotten and their names are free. What is not revoked stays valid.

use anyhow::Result;
use countersign_authority::{Actor, Door, LedgerEntry};
use countersign_pki::terminal_safe;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::place::{self, Given};
use super::refusal::Refusal;
use super::{NOTHING_TO_DO, OK};
use crate::cli::DeleteArgs;
use crate::offline::Offline;
use crate::output::{self, complain};
use crate::progress::Progress;
use crate::signers;

pub(super) async fn run(args: &DeleteArgs) -> Result<u8> {
    check(args)?;
    let given = Given::read(args.place.config.as_deref())?;
    let settings = place::settings(&args.place.data, &given, Vec::new())?;
    let offline = Offline::open(&settings).await?;
    let now = offline.authority.now();
    let mut own: Vec<&str> = signers::RESERVED.to_vec();
    own.push(&settings.names.certname);
    let (mut deleted, mut incomplete) = (0, false);

    let revoked = |entry: &LedgerEntry| args.revoked && entry.revoked.is_some();
    let ended = |entry: &LedgerEntry| args.expired && entry.not_after < now;
    let chosen = |entry: &LedgerEntry| args.all || revoked(entry) || ended(entry);
    if args.all || args.revoked || args.expired {
        let names = names(&offline, |entry| {
            chosen(entry) && !own.contains(&entry.name.as_str())
        });
        deleted += forget(&offline, names.await?).await?;
    }
    let mut named = Vec::new();
    for name in &args.certname {
        let newest = offline.authority.ledger.newest(&offline.issuer, name);
        if newest.await?.is_some() && !named.contains(name) {
            named.push(name.clone());
        } else {
            complain(&format!(
                "Could not find certificate of {}",
                terminal_safe(name)
            ));
            incomplete = true;
        }
    }
    deleted += forget(&offline, named).await?;
    let plural = if deleted == 1 { "" } else { "s" };
    output::line(&format!("{deleted} certificate{plural} deleted."))?;
    Ok(if incomplete { NOTHING_TO_DO } else { OK })
}

fn check(args: &DeleteArgs) -> Result<(), Refusal> {
    let some = args.expired || args.revoked || !args.certname.is_empty();
    let error = match (some, args.all) {
        (false, false) => "  Must pass one of the valid flags to determine which certs to delete",
        (true, true) => {
            "  The --all flag must not be used with --expired, --revoked, or --certname"
        }
        (true, false) | (false, true) => return Ok(()),
    };
    Err(Refusal::Usage {
        errors: vec![error.to_owned()],
        verb: "delete",
    })
}

/// The names whose newest certificate is among those that `chosen` says.
async fn names(offline: &Offline, chosen: impl Fn(&LedgerEntry) -> bool) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut after = None;
    loop {
        let page = offline
            .authority
            .ledger
            .newest_of_each(&offline.issuer, after, PAGE)
            .await?;
        let Some(last) = page.last() else {
            return Ok(names);
        };
        after = Some(last.name.clone());
        let some = page.into_iter().filter(|entry| chosen(entry));
        names.extend(some.map(|entry| entry.name));
    }
}

async fn forget(offline: &Offline, names: Vec<String>) -> Result<usize> {
    let progress = Progress::of(names.len(), "Deleting");
    let actor = Actor::authority();
    // A request of the same name that waits is another matter, so no door is named that could have one. Many at a
    // time share one commit.
    let acts = stream::iter(names).map(|name| {
        let actor = &actor;
        async move {
            let Offline { authority, issuer } = offline;
            let retired = authority
                .ledger
                .retire(issuer, &name, &Door::LOCAL, actor)
                .await;
            retired.map(|_| name)
        }
    });
    let mut acts = acts.buffered(AT_A_TIME);
    let mut count = 0;
    while let Some(name) = acts.try_next().await? {
        let line = format!("Deleting certificate of {}", terminal_safe(&name));
        progress.aside(|| output::line(&line))?;
        progress.step();
        count += 1;
    }
    Ok(count)
}

const PAGE: usize = 1000;
const AT_A_TIME: usize = 64;
