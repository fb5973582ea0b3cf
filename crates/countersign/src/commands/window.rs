//! `countersign window`: build windows, over the native API.

use anyhow::{Context as _, Result};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::csr::{accepted, pages, said};
use super::machine::{Outcome, place};
use crate::cli::{Form, OpenArgs, WindowCommand};
use crate::config::Span;
use crate::output::{self, Facts, Table};

/// Carries a command out.
pub(crate) async fn run(command: WindowCommand) -> Result<()> {
    match command {
        WindowCommand::Open(args) => open(args).await,
        WindowCommand::Close { names, reach } => {
            let outcome = Outcome {
                listing: "windows",
                done: "closed",
            };
            outcome.delete_all(&mut reach.client()?, &names).await
        }
        WindowCommand::List { output, reach } => {
            let items = pages(&mut reach.client()?, "windows", &[]).await?;
            list(&items, output.form)
        }
        WindowCommand::Show {
            name,
            output,
            reach,
        } => {
            let reply = reach.client()?.get(&place("windows", &name)).await?;
            show(&accepted(reply)?.json()?, output.form)
        }
    }
}

/// A window, as far as it is shown to people.
#[derive(Debug, Deserialize)]
struct Item {
    certname: String,
    opens_at: String,
    closes_at: String,
    max_issuances: u32,
    issuances: u32,
    require_token: bool,
    state: String,
}

impl Item {
    fn read(value: &Value) -> Result<Self> {
        Self::deserialize(value)
            .context("the server's answer cannot be understood; is it of another version?")
    }

    fn used(&self) -> String {
        format!("{} of {}", self.issuances, self.max_issuances)
    }

    fn token(&self) -> &'static str {
        match self.require_token {
            true => "required",
            false => "not required",
        }
    }
}

async fn open(args: OpenArgs) -> Result<()> {
    let mut body = json!({
        "max_issuances": args.max_issuances,
        "require_token": !args.without_token,
    });
    let times = [
        ("opens_at", args.from.map(|time| json!(time))),
        ("closes_at", args.until.map(|time| json!(time))),
        (
            "seconds",
            args.length.map(|span| json!(Span::as_seconds(span))),
        ),
    ];
    if let Some(members) = body.as_object_mut() {
        let given = times
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        members.extend(given.map(|(name, value)| (name.to_owned(), value)));
    }
    let path = place("windows", &args.name);
    let mut client = args.reach.client()?;
    let reply = accepted(client.call(Method::PUT, &path, Some(&body)).await?)?;
    let value: Value = reply.json()?;
    if args.output.form != Form::Table {
        return Ok(output::object(&value, args.output.form)?);
    }
    let item = Item::read(&value)?;
    let trust = match item.require_token {
        true => "with a token",
        false => "without a token: whoever asks for the name first gets the certificate",
    };
    said(&format!(
        "{} may enrol from {} until {}, {trust}",
        item.certname, item.opens_at, item.closes_at
    ))
}

fn list(items: &[Value], form: Form) -> Result<()> {
    if form != Form::Table {
        return Ok(output::object(&json!({"items": items}), form)?);
    }
    if items.is_empty() {
        return said("No build windows.");
    }
    let heading = ["NAME", "STATE", "OPENS", "CLOSES", "CERTIFICATES", "TOKEN"];
    let mut table = Table::new(&heading);
    for value in items {
        let item = Item::read(value)?;
        table.row([
            &*item.certname,
            &item.state,
            &item.opens_at,
            &item.closes_at,
            &item.used(),
            item.token(),
        ]);
    }
    Ok(output::line(&table.text())?)
}

fn show(value: &Value, form: Form) -> Result<()> {
    if form != Form::Table {
        return Ok(output::object(value, form)?);
    }
    let item = Item::read(value)?;
    let mut facts = Facts::default();
    facts.add("name", &item.certname);
    facts.add("state", &item.state);
    facts.add("opens", &item.opens_at);
    facts.add("closes", &item.closes_at);
    facts.add("certificates", &item.used());
    facts.add("token", item.token());
    Ok(output::line(&facts.text())?)
}
