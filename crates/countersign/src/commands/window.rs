//! `countersign window`: build windows, over the native API.

use anyhow::Result;
use countersign_api::{Window, WindowOpening};
use http::Method;
use serde_json::{Value, json};

use super::csr::{accepted, pages, read, said};
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

fn used(window: &Window) -> String {
    format!("{} of {}", window.issuances, window.max_issuances)
}

fn token(window: &Window) -> &'static str {
    match window.require_token {
        true => "required",
        false => "not required",
    }
}

async fn open(args: OpenArgs) -> Result<()> {
    let body = WindowOpening {
        opens_at: args.from,
        closes_at: args.until,
        seconds: args.length.map(Span::as_seconds),
        max_issuances: Some(args.max_issuances.into()),
        require_token: Some(!args.without_token),
    };
    let path = place("windows", &args.name);
    let mut client = args.reach.client()?;
    let reply = accepted(client.call(Method::PUT, &path, Some(&json!(body))).await?)?;
    let value: Value = reply.json()?;
    let item: Window = read(&value)?;
    if item.honoured_by.is_empty() {
        output::complain(NOT_HONOURED);
    }
    if args.output.form != Form::Table {
        return Ok(output::object(&value, args.output.form)?);
    }
    let trust = match item.require_token {
        true => "with a token",
        false => "without a token: whoever asks for the name first gets the certificate",
    };
    said(&format!(
        "{} may enrol from {} until {}, {trust}",
        item.certname, item.opens_at, item.closes_at
    ))?;
    match item.honoured_by.as_slice() {
        [] => Ok(()),
        rules => said(&format!("honoured by {}", rules.join(", "))),
    }
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
        let item: Window = read(value)?;
        table.row([
            &*item.certname,
            item.state.word(),
            &item.opens_at.to_string(),
            &item.closes_at.to_string(),
            &used(&item),
            token(&item),
        ]);
    }
    Ok(output::line(&table.text())?)
}

fn show(value: &Value, form: Form) -> Result<()> {
    if form != Form::Table {
        return Ok(output::object(value, form)?);
    }
    let item: Window = read(value)?;
    let mut facts = Facts::default();
    facts.add("name", &item.certname);
    facts.add("state", item.state.word());
    facts.add("opens", &item.opens_at.to_string());
    facts.add("closes", &item.closes_at.to_string());
    facts.add("certificates", &used(&item));
    facts.add("token", token(&item));
    let honoured = match item.honoured_by.as_slice() {
        [] => NOBODY.to_owned(),
        rules => rules.join(", "),
    };
    facts.add("honoured by", &honoured);
    Ok(output::line(&facts.text())?)
}

const NOBODY: &str = "no rule of the policy in force";
const NOT_HONOURED: &str = "warning: no rule of the policy in force looks at build windows, so this one has no effect: add a rule with \
                            `approve: {window: {}}` to a policy file (see docs/inventory.md)";
