//! Bootstrap tokens: minted and handed out, listed and shown.

use anyhow::{Context as _, Result, bail};
use countersign_api::{BootstrapToken, BootstrapTokenOrder, MintedBootstrapToken};
use countersign_authority::BootstrapText;
use http::Method;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::super::csr::{accepted, each_page, read, said};
use super::{Named, Usage};
use crate::cli::{CreateArgs, Form, TokenFormat};
use crate::client::Client;
use crate::output::{self, Facts, Items, Table};

/// Mints a bootstrap token and prints it. One that cannot be printed is revoked.
pub(super) async fn create(args: &CreateArgs) -> Result<()> {
    let format = match args.format.unwrap_or(TokenFormat::Bare) {
        format @ (TokenFormat::Bare | TokenFormat::Json) => format,
        TokenFormat::CsrAttributes | TokenFormat::Csv => {
            let what = "--format: a bootstrap token is printed as bare or json: say one of them";
            bail!(Usage(what.to_owned()))
        }
    };
    let mut client = args.reach.client()?;
    let body = json!(BootstrapTokenOrder {
        ttl_seconds: args.terms.ttl.map(|ttl| ttl.as_seconds()),
        groups: args.bootstrap.group.clone(),
        description: args.bootstrap.description.clone().unwrap_or_default(),
    });
    let reply = client.call(Method::POST, PATH, Some(&body)).await.context(
        "`countersign token list --bootstrap` shows whether a token was minted, and `countersign token revoke` takes it back",
    )?;
    let minted: MintedBootstrapToken = accepted(reply)?.json()?;
    let id = id(&minted)?;
    if let Err(error) = output::secret(&text(&minted, format)) {
        let revoked = client.call(Method::DELETE, &id.place(), None).await;
        return Err(match revoked.map_err(Into::into).and_then(accepted) {
            Ok(_) => anyhow::Error::from(error)
                .context(format!("token {id} was revoked, because nobody got it")),
            Err(_) => anyhow::Error::from(error).context(format!(
                "nobody got token {id}, and it is still good: revoke it with `countersign token revoke {id}`"
            )),
        });
    }
    output::complain(&match &minted.expires_at {
        Some(end) => format!("bootstrap token {id} is good until {end}; it is not shown again"),
        None => format!(
            "bootstrap token {id} has no end: revoke it with `countersign token revoke {id}` when it is no longer needed; it is not shown again"
        ),
    });
    Ok(())
}

fn id(minted: &MintedBootstrapToken) -> Result<Named> {
    match BootstrapText::parse(&minted.token.0) {
        Some(token) if token.id().as_str() == minted.id.0 => {
            Ok(Named::Bootstrap(token.id().clone()))
        }
        Some(_) | None => {
            bail!("the server's answer holds no bootstrap token; is it of another version?")
        }
    }
}

fn text(minted: &MintedBootstrapToken, format: TokenFormat) -> Zeroizing<String> {
    Zeroizing::new(match format {
        TokenFormat::Json => format!("{}\n", json!(minted)),
        TokenFormat::Bare | TokenFormat::CsrAttributes | TokenFormat::Csv => {
            format!("{}\n", *minted.token.0)
        }
    })
}

fn end(token: &BootstrapToken) -> String {
    let end = token.expires_at.map(|at| at.to_string());
    end.unwrap_or_else(|| "revoked".to_owned())
}

fn facts(token: &BootstrapToken) -> Facts {
    let mut facts = Facts::default();
    let revoked = token.revoked_at.map(|at| at.to_string());
    facts.add("id", &token.id.0);
    facts.add("status", token.status.word());
    facts.add("good until", &end(token));
    facts.add("user", &token.username);
    facts.add("groups", &token.groups.join(", "));
    facts.add(
        "minted",
        &format!("{} by {}", token.created_at, token.created_by),
    );
    facts.add("revoked", &revoked.unwrap_or_default());
    facts.add(
        "description",
        token.description.as_deref().unwrap_or_default(),
    );
    facts
}

pub(super) async fn list(client: &mut Client, form: Form) -> Result<()> {
    if form != Form::Table {
        let mut items = Items::new(form);
        let mut print = |page: Vec<Value>| Ok(items.more(&page)?);
        each_page(client, LISTING, &[], &mut print).await?;
        return Ok(items.end()?);
    }
    let mut table = Table::new(&["ID", "STATUS", "GOOD UNTIL", "GROUPS", "DESCRIPTION"]);
    let mut count = 0_usize;
    let mut add = |page: Vec<Value>| -> Result<()> {
        for value in &page {
            let item: BootstrapToken = read(value)?;
            let description = item.description.as_deref().unwrap_or_default();
            let groups = item.groups.join(", ");
            table.row([
                &*item.id.0,
                item.status.word(),
                &end(&item),
                &groups,
                description,
            ]);
            count += 1;
        }
        Ok(())
    };
    each_page(client, LISTING, &[], &mut add).await?;
    match count {
        0 => said("No bootstrap tokens; `countersign token create --bootstrap` mints them."),
        _ => Ok(output::line(&table.text())?),
    }
}

pub(super) fn show(value: &Value) -> Result<()> {
    Ok(output::line(&facts(&read(value)?).text())?)
}

pub(super) const LISTING: &str = "bootstrap-tokens";
const PATH: &str = "/enrol/v1/bootstrap-tokens";
