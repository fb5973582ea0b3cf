//! Bootstrap tokens: minted and handed out, listed and shown.

use anyhow::{Context as _, Result, bail};
use countersign_authority::BootstrapText;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::super::csr::{accepted, each_page, said};
use super::mint::Zeroized;
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
    let body = json!({
        "ttl_seconds": args.terms.ttl.map(|ttl| ttl.as_seconds()),
        "groups": args.bootstrap.group,
        "description": args.bootstrap.description.as_deref().unwrap_or_default(),
    });
    let reply = client.call(Method::POST, PATH, Some(&body)).await.context(
        "`countersign token list --bootstrap` shows whether a token was minted, and `countersign token revoke` takes it back",
    )?;
    let minted: Minted = accepted(reply)?.json()?;
    let id = minted.id()?;
    if let Err(error) = output::secret(&minted.text(format)) {
        let revoked = client.call(Method::DELETE, &id.place(), None).await;
        return Err(match revoked.and_then(accepted) {
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

/// What the server says of a new token. It has no debug form.
#[derive(Deserialize)]
struct Minted {
    id: String,
    token: Zeroized,
    expires_at: Option<String>,
}

impl Minted {
    fn id(&self) -> Result<Named> {
        match BootstrapText::parse(&self.token.0) {
            Some(token) if token.id().as_str() == self.id => {
                Ok(Named::Bootstrap(token.id().clone()))
            }
            Some(_) | None => {
                bail!("the server's answer holds no bootstrap token; is it of another version?")
            }
        }
    }

    fn text(&self, format: TokenFormat) -> Zeroizing<String> {
        let token = self.token.0.as_str();
        Zeroizing::new(match format {
            TokenFormat::Json => {
                let object = json!({"id": self.id, "token": token, "expires_at": self.expires_at});
                format!("{object}\n")
            }
            TokenFormat::Bare | TokenFormat::CsrAttributes | TokenFormat::Csv => {
                format!("{token}\n")
            }
        })
    }
}

/// A bootstrap token of the native API, as far as it is shown.
#[derive(Debug, Deserialize)]
struct Item {
    id: String,
    status: String,
    username: String,
    groups: Vec<String>,
    expires_at: Option<String>,
    description: Option<String>,
    created_by: String,
    created_at: String,
    revoked_at: Option<String>,
}

impl Item {
    fn read(value: &Value) -> Result<Self> {
        Self::deserialize(value)
            .context("the server's answer cannot be understood; is it of another version?")
    }

    fn end(&self) -> &str {
        self.expires_at.as_deref().unwrap_or("revoked")
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts::default();
        facts.add("id", &self.id);
        facts.add("status", &self.status);
        facts.add("good until", self.end());
        facts.add("user", &self.username);
        facts.add("groups", &self.groups.join(", "));
        facts.add(
            "minted",
            &format!("{} by {}", self.created_at, self.created_by),
        );
        facts.add("revoked", self.revoked_at.as_deref().unwrap_or_default());
        facts.add(
            "description",
            self.description.as_deref().unwrap_or_default(),
        );
        facts
    }
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
            let item = Item::read(value)?;
            let description = item.description.as_deref().unwrap_or_default();
            let groups = item.groups.join(", ");
            table.row([&item.id, &item.status, item.end(), &groups, description]);
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
    Ok(output::line(&Item::read(value)?.facts().text())?)
}

pub(super) const LISTING: &str = "bootstrap-tokens";
const PATH: &str = "/enrol/v1/bootstrap-tokens";
