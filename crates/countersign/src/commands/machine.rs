//! `countersign machine`: the inventory, over the native API.

mod import;
mod records;

use anyhow::{Result, bail};
use countersign_api::{Machine, MachineRecord, MachineRecordAddress};
use http::{Method, StatusCode};
use serde_json::Value;

use super::csr::{accepted, client, each_page, read, said};
use crate::cli::{AddArgs, AddressArg, Form, MachineCommand, Reach};
use crate::client::{Client, path_segment};
use crate::output::{self, Facts, Items, Table};
use crate::progress::Progress;

/// Carries a command out.
pub(crate) async fn run(command: MachineCommand) -> Result<()> {
    match command {
        MachineCommand::Add(args) => add(args).await,
        MachineCommand::List {
            role,
            provider,
            enrolled,
            not_enrolled,
            output,
            reach,
        } => {
            let enrolled = match (enrolled, not_enrolled) {
                (true, _) => Some("true"),
                (false, true) => Some("false"),
                (false, false) => None,
            };
            let parameters = [
                ("role", role.as_deref()),
                ("provider", provider.as_deref()),
                ("enrolled", enrolled),
            ];
            list(&mut reach.client()?, &parameters, output.form).await
        }
        MachineCommand::Show {
            name,
            output,
            reach,
        } => {
            let reply = reach.client()?.get(&place("machines", &name)).await?;
            show(&accepted(reply)?.json()?, output.form)
        }
        MachineCommand::Remove { names, reach } => {
            let outcome = Outcome {
                listing: "machines",
                done: "removed",
            };
            outcome.delete_all(&mut reach.client()?, &names).await
        }
        MachineCommand::Import(args) => import::run(args).await,
    }
}

impl Reach {
    pub(super) fn client(&self) -> Result<Client> {
        client(&self.server, &self.config)
    }
}

impl From<AddressArg> for MachineRecordAddress {
    fn from(argument: AddressArg) -> Self {
        let AddressArg { kind, address } = argument;
        Self { kind, address }
    }
}

/// Things that are deleted by name, one after the other.
pub(super) struct Outcome {
    pub(super) listing: &'static str,
    /// What they are then.
    pub(super) done: &'static str,
}

impl Outcome {
    /// Goes on after one that fails, and fails in the end.
    pub(super) async fn delete_all(&self, client: &mut Client, names: &[String]) -> Result<()> {
        let progress = Progress::of(names.len(), "Working");
        let mut failed: usize = 0;
        for name in names {
            let path = place(self.listing, name);
            let reply = client.call(Method::DELETE, &path, None).await?;
            match accepted(reply) {
                Ok(_) => progress.aside(|| said(&format!("{name} {}", self.done)))?,
                Err(error) if names.len() == 1 => return Err(error),
                Err(error) => {
                    failed += 1;
                    progress.aside(|| {
                        let text = format!("countersign: {error:#}");
                        output::complain(&countersign_pki::terminal_safe(&text));
                    });
                }
            }
            progress.step();
        }
        match failed {
            0 => Ok(()),
            failed => bail!("{failed} of {} were not {}", names.len(), self.done),
        }
    }
}

/// When it is expected, where the record says so.
fn expected(machine: &Machine) -> String {
    match (&machine.not_before, &machine.not_after) {
        (Some(from), Some(until)) => format!("{from} to {until}"),
        (Some(from), None) => format!("from {from}"),
        (None, Some(until)) => format!("until {until}"),
        (None, None) => String::new(),
    }
}

async fn add(args: AddArgs) -> Result<()> {
    let body = MachineRecord {
        name: args.name.clone(),
        addresses: args.address.into_iter().map(Into::into).collect(),
        serial: args.serial,
        uuid: args.uuid,
        instance_id: args.instance_id,
        provider: args.provider,
        role: args.role,
        not_before: args.not_before,
        not_after: args.not_after,
        single_use: args.single_use,
    };
    let (method, path) = match args.replace {
        true => (Method::PUT, place("machines", &args.name)),
        false => (Method::POST, "/enrol/v1/machines".to_owned()),
    };
    let body = serde_json::to_value(&body)?;
    let mut client = args.reach.client()?;
    let reply = client.call(method, &path, Some(&body)).await?;
    let reply = match reply.status {
        StatusCode::CONFLICT => bail!(
            "{} is in the inventory already; --replace replaces it",
            args.name
        ),
        _ => accepted(reply)?,
    };
    let done = match reply.status {
        StatusCode::CREATED => "added",
        _ => "replaced",
    };
    let value: Value = reply.json()?;
    if args.output.form != Form::Table {
        return Ok(output::object(&value, args.output.form)?);
    }
    said(&format!("{} {done}", read::<Machine>(&value)?.name))
}

async fn list(client: &mut Client, parameters: &[(&str, Option<&str>)], form: Form) -> Result<()> {
    if form != Form::Table {
        // Page by page: an inventory may be long.
        let mut items = Items::new(form);
        let mut print = |page: Vec<Value>| Ok(items.more(&page)?);
        each_page(client, "machines", parameters, &mut print).await?;
        return Ok(items.end()?);
    }
    let mut table = Table::new(&["NAME", "ROLE", "PROVIDER", "EXPECTED", "ENROLLED"]);
    let mut is_empty = true;
    let mut add = |page: Vec<Value>| {
        for value in page {
            let item: Machine = read(&value)?;
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let (role, provider) = (text(&item.role), text(&item.provider));
            let enrolled = item.enrolled.map(|at| at.to_string());
            let enrolled = enrolled.as_deref().unwrap_or("no");
            table.row([&*item.name, &role, &provider, &expected(&item), enrolled]);
            is_empty = false;
        }
        Ok(())
    };
    each_page(client, "machines", parameters, &mut add).await?;
    let is_filtered = parameters.iter().any(|(_, value)| value.is_some());
    match (is_empty, is_filtered) {
        (true, true) => said("No such machines."),
        (true, false) => {
            said("The inventory is empty; `countersign machine add` and `import` fill it.")
        }
        (false, _) => Ok(output::line(&table.text())?),
    }
}

fn show(value: &Value, form: Form) -> Result<()> {
    if form != Form::Table {
        return Ok(output::object(value, form)?);
    }
    let item: Machine = read(value)?;
    let mut facts = Facts::default();
    facts.add("name", &item.name);
    for (index, address) in item.addresses.iter().enumerate() {
        let label = if index == 0 { "addresses" } else { "" };
        facts.add(label, &format!("{} {}", address.kind, address.address));
    }
    let expected = expected(&item);
    let enrolled = match (&item.enrolled, &item.request) {
        (Some(at), Some(request)) => format!("{at} (request {request})"),
        (Some(at), None) => at.to_string(),
        (None, _) => "no".to_owned(),
    };
    for (label, text) in [
        ("serial", &item.serial),
        ("uuid", &item.uuid),
        ("instance id", &item.instance_id),
        ("provider", &item.provider),
        ("role", &item.role),
        ("expected", &Some(expected)),
        ("single use", &item.single_use.then(|| "yes".to_owned())),
        ("created", &Some(item.created.to_string())),
        ("enrolled", &Some(enrolled)),
    ] {
        facts.add(label, text.as_deref().unwrap_or_default());
    }
    Ok(output::line(&facts.text())?)
}

/// The path of one thing of a listing.
pub(super) fn place(listing: &str, name: &str) -> String {
    format!("/enrol/v1/{listing}/{}", path_segment(name))
}
