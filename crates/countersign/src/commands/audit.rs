//! `countersign audit`: the audit log, shown, written out and checked.

mod reading;

use std::fs;

use anyhow::{Context as _, Result, bail};
use countersign_api::{AuditEntry, Checkpoint, Page, Reconciliation};
use countersign_authority::sealing::verification::{Breach, Intact, Verifier, Wants};
use countersign_authority::{Clock as _, SealHead, SystemClock};
use countersign_pki::{UnixTime, terminal_safe};
use countersign_server::enrol::{checkpoint_of, head_of};
use serde_json::json;

use self::reading::Reading;
use super::csr::{accepted, client};
use crate::audit_keys;
use crate::cli::{AuditCommand, FilterArgs, Form, VerifyArgs};
use crate::client::{Client, path_segment};
use crate::output::{self, Table};
use crate::witness;

/// Carries a command out; the exit code of `verify` says what it found.
pub(crate) async fn run(command: AuditCommand) -> Result<u8> {
    match command {
        AuditCommand::Show {
            filter,
            last,
            checkpoint,
            output,
            config,
            server,
        } => {
            let mut client = client(&server, &config)?;
            if checkpoint {
                let reply = accepted(client.get(CHECKPOINT).await?)?;
                let checkpoint: Checkpoint = reply.json()?;
                output::object(&checkpoint, output.form)?;
            } else {
                show(&mut client, &filter, last, output.form).await?;
            }
        }
        AuditCommand::Export {
            filter,
            stored,
            config,
            server,
        } => export(&mut client(&server, &config)?, &filter, stored).await?,
        AuditCommand::Verify(args) => return verify(&args).await,
    }
    Ok(0)
}

/// A page of entries, as the server sends it.
async fn show(client: &mut Client, filter: &FilterArgs, last: u32, form: Form) -> Result<()> {
    let last = usize::try_from(last)?;
    let path = format!("{}&newest_first=true", path(filter));
    let mut items: Vec<AuditEntry> = Vec::new();
    let mut cursor = None;
    loop {
        let page = page(client, &path, cursor.as_deref()).await?;
        items.extend(page.items);
        cursor = page.cursor;
        if cursor.is_none() || items.len() >= last {
            break;
        }
    }
    items.truncate(last);
    items.reverse();
    if form != Form::Table {
        return Ok(output::object(&json!({"items": items}), form)?);
    }
    if items.is_empty() {
        return Ok(output::line("No entries.")?);
    }
    let mut table = Table::new(&["TIME", "EVENT", "SUBJECT", "ACTOR", "SOURCE", "DETAIL"]);
    for item in &items {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let time = item.time.map(|time| time.to_string());
        let source = item.source.map(|source| source.to_string());
        let event = match item.event {
            Some(_) => text(&item.event),
            None => format!("unreadable ({}.{})", item.revision, item.seq),
        };
        let cells = [
            text(&time),
            event,
            text(&item.subject),
            text(&item.actor),
            text(&source),
            detail(item),
        ];
        table.row(cells.iter().map(String::as_str));
    }
    Ok(output::line(&table.text())?)
}

/// What else there is to say in one line; entries about a token name it, why, and what came of it.
fn detail(item: &AuditEntry) -> String {
    if let Some(detail) = &item.detail {
        return detail.clone();
    }
    let token = item.token_id.as_ref().map(|id| format!("token {id}"));
    let certificate = item.serial.as_ref().map(|it| format!("certificate {it}"));
    let facts = [token, item.reason.clone(), certificate];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    facts.join(", ")
}

async fn export(client: &mut Client, filter: &FilterArgs, stored: bool) -> Result<()> {
    let path = format!("{}&stored={stored}", path(filter));
    let mut cursor = None;
    loop {
        let page = page(client, &path, cursor.as_deref()).await?;
        let mut lines = Vec::with_capacity(page.items.len());
        for item in &page.items {
            lines.push(output::inert_json(&serde_json::to_string(item)?));
        }
        if !lines.is_empty() {
            output::line(&lines.join("\n"))?;
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

async fn verify(args: &VerifyArgs) -> Result<u8> {
    let folder = args.config.data(&args.server.data)?.folder();
    let keys = match (&args.public_key, &args.server.server) {
        (Some(file), _) => audit_keys::public_keys(file)?,
        (None, None) => audit_keys::of_folder(&folder)?,
        (None, Some(_)) => bail!(
            "name the public key of the server's audit log with --public-key: it is audit/audit.pem in its data directory"
        ),
    };
    let mut reading = match args.offline {
        true => Reading::of_files(&folder).await?,
        false => Reading::of_server(client(&args.server, &args.config)?).await?,
    };
    let mut checkpoints = Vec::new();
    if let Some(file) = &args.checkpoint {
        checkpoints.push(read_checkpoint(file)?);
    }
    if args.server.server.is_none() {
        checkpoints.extend(witness::checkpoint(&folder)?);
    }
    let found = match checkpoints
        .into_iter()
        .try_fold(Verifier::new(keys), Verifier::with_checkpoint)
    {
        Ok(verifier) => check(verifier, &mut reading).await?,
        Err(breach) => Err(breach),
    };
    let found = match found {
        Ok(intact) => Ok((intact, reading.reconcile(&folder).await?)),
        Err(breach) => Err(breach),
    };
    let is_right = matches!(&found, Ok((_, compared)) if compared.found == 0);
    report(&found, args.output.form)?;
    Ok(u8::from(!is_right))
}

async fn check(mut verifier: Verifier, reading: &mut Reading) -> Result<Result<Intact, Breach>> {
    loop {
        let fed = match verifier.wants() {
            Wants::Seal => verifier.seal(reading.next_seal().await?),
            Wants::Entry => verifier.entry(reading.next_entry().await?),
            Wants::Nothing => return Ok(Ok(verifier.finish())),
        };
        if let Err(breach) = fed {
            return Ok(Err(breach));
        }
    }
}

fn report(found: &Result<(Intact, Reconciliation), Breach>, form: Form) -> Result<()> {
    if form != Form::Table {
        let value = match found {
            Ok((intact, compared)) => json!({
                "intact": compared.found == 0,
                "entries": intact.entries,
                "seals": intact.seals,
                "unsealed": intact.unsealed,
                "unsealed_since": intact.unsealed_since,
                "checkpoint": intact.checkpoint.as_ref().map(checkpoint_of),
                "reconciliation": compared,
            }),
            Err(breach) => json!({"intact": false, "breach": breach.to_string()}),
        };
        return Ok(output::object(&value, form)?);
    }
    match found {
        Ok((intact, compared)) => {
            output::line(&told(intact))?;
            tell(compared)
        }
        Err(breach) => {
            output::complain(&format!("countersign: the audit log is broken: {breach}"));
            Ok(())
        }
    }
}

/// What came of holding ledger, tokens and audit log against each other.
fn tell(compared: &Reconciliation) -> Result<()> {
    let Reconciliation {
        certificates,
        revoked,
        token_uses,
        not_covered,
        found,
        findings,
    } = compared;
    if *not_covered > 0 {
        output::complain(&format!(
            "countersign: not covered: an earlier version imported {not_covered} certificates and did not record which; whether all \
             of them are there, and which came revoked, cannot be told"
        ));
    }
    if *found == 0 {
        return Ok(output::line(&format!(
            "Ledger, tokens and audit log agree: certificates {certificates}, of them revoked {revoked}, uses of tokens {token_uses}."
        ))?);
    }
    let mut lines = vec![format!(
        "countersign: ledger, tokens and audit log do not agree in {found} points; somebody has changed the database:"
    )];
    lines.extend(
        findings
            .iter()
            .map(|finding| format!("  {}", terminal_safe(finding))),
    );
    let shown = u64::try_from(findings.len()).unwrap_or(u64::MAX);
    if *found > shown {
        lines.push(format!("  and {} more", found.saturating_sub(shown)));
    }
    output::complain(&lines.join("\n"));
    Ok(())
}

fn told(intact: &Intact) -> String {
    let sealed = match &intact.checkpoint {
        Some(SealHead { number, at, .. }) => format!(
            "The audit log is intact: {} entries in {} seals, the last one number {number} of {at}.",
            intact.entries, intact.seals
        ),
        None => "No entry of the audit log is sealed.".to_owned(),
    };
    match (intact.unsealed, intact.unsealed_since) {
        (0, _) => sealed,
        (count, None) => format!("{sealed}\n{count} entries behind it are not sealed."),
        (count, Some(since)) => {
            format!("{sealed}\n{count} entries behind it, since {since}, are not sealed.")
        }
    }
}

fn read_checkpoint(file: &std::path::Path) -> Result<SealHead> {
    let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let wrong = || {
        format!(
            "{} is no checkpoint: it is what `countersign audit show --checkpoint -o json` printed",
            file.display()
        )
    };
    let checkpoint: Checkpoint = serde_json::from_slice(&text).with_context(wrong)?;
    head_of(&checkpoint).with_context(wrong)
}

async fn page(client: &mut Client, path: &str, cursor: Option<&str>) -> Result<Page<AuditEntry>> {
    let path = match cursor {
        Some(cursor) => format!("{path}&cursor={}", path_segment(cursor)),
        None => path.to_owned(),
    };
    Ok(accepted(client.get(&path).await?)?.json()?)
}

fn path(filter: &FilterArgs) -> String {
    let now = SystemClock.now();
    let time = |moment: Option<crate::cli::Moment>| -> Option<String> {
        moment
            .map(|moment| moment.before(now))
            .map(|time: UnixTime| time.to_string())
    };
    let mut path = format!("/enrol/v1/audit?limit={PAGE}");
    for (name, value) in [
        ("since", &time(filter.since)),
        ("until", &time(filter.until)),
        ("actor", &filter.actor),
        ("event", &filter.event),
        ("certname", &filter.certname),
        ("request", &filter.request),
        ("reason", &filter.reason),
    ] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", path_segment(value)));
        }
    }
    path
}

const CHECKPOINT: &str = "/enrol/v1/audit/checkpoint";
const PAGE: usize = 1000;
