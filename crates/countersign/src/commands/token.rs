//! `countersign token`: enrolment tokens and bootstrap tokens, over the native API.

mod bootstrap;
mod bulk;
mod handout;
mod item;
mod list;
mod mint;
mod order;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use countersign_api::{EnrolmentToken, MintedToken, TokenCheck};
use countersign_authority::{
    BootstrapId, BootstrapText, Clock as _, SystemClock, TokenId, TokenText, looks_like_a_token,
};
use http::Method;
use serde_json::{Value, json};

use self::handout::Handout;
use self::item::Report;
use self::order::{Order, secret_instead_of, sought};
use super::csr::{accepted, each_page, pages, read, said};
use super::machine::place;
use crate::cli::{CreateArgs, Form, Reach, RevokeArgs, TokenCommand, TokenFormat};
use crate::client::{Client, path_segment};
use crate::output::{self, Facts, Items};

/// Carries a command out; the number is its exit code.
pub(crate) async fn run(command: TokenCommand) -> Result<u8> {
    match carry_out(command).await {
        Err(error) if error.is::<Usage>() => {
            let text = format!("countersign: {error}");
            output::complain(&countersign_pki::terminal_safe(&text));
            Ok(crate::USAGE)
        }
        other => other,
    }
}

/// A command line that cannot be carried out, whatever the server has.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

async fn carry_out(command: TokenCommand) -> Result<u8> {
    match command {
        TokenCommand::Create(args) => create(&args).await.map(|()| 0),
        TokenCommand::List {
            certname,
            status,
            unused,
            bootstrap: false,
            output,
            reach,
        } => {
            let certname = certname.as_deref().map(sought).transpose();
            let parameters = [
                ("certname", certname.map_err(Usage)?),
                ("status", status.as_deref()),
                ("unused", unused.then_some("true")),
            ];
            let report = match unused {
                true => Report::unused(SystemClock.now()),
                false => Report::all(),
            };
            listed(&mut reach.client()?, &parameters, report, output.form)
                .await
                .map(|()| 0)
        }
        TokenCommand::List { output, reach, .. } => {
            bootstrap::list(&mut reach.client()?, output.form).await?;
            Ok(0)
        }
        TokenCommand::Show { id, output, reach } => {
            let id = public_part(&id)?;
            let value = looked_up(&mut reach.client()?, &id).await?;
            shown(&id, &value, output.form).map(|()| 0)
        }
        TokenCommand::Revoke(args) => revoke(&args).await.map(|()| 0),
        TokenCommand::Release { id, output, reach } => {
            let id = public_part(&id)?;
            if let Named::Bootstrap(_) = id {
                bail!(Usage(format!(
                    "{id} is the id of a bootstrap token, which is never used up: there is nothing to release"
                )));
            }
            let mut client = reach.client()?;
            let path = format!("{}/release", id.place());
            accepted(client.call(Method::POST, &path, None).await?)?;
            done(&mut client, &id, "released", output.form)
                .await
                .map(|()| 0)
        }
        TokenCommand::Check {
            file,
            signer,
            output,
            reach,
        } => check(&file, signer.as_deref(), &reach, output.form).await,
    }
}

async fn create(args: &CreateArgs) -> Result<()> {
    if args.bootstrap.bootstrap {
        return bootstrap::create(args).await;
    }
    // The parser does not tell, because NAME rules out what is missing.
    if !args.bootstrap.group.is_empty() || args.bootstrap.description.is_some() {
        let what = "--group and --description are for bootstrap tokens: say --bootstrap in place of a name";
        bail!(Usage(what.to_owned()));
    }
    let handout = Handout {
        format: format(args).map_err(Usage)?,
        carrier: args.carrier.0.clone(),
        folder: args.output_dir.clone(),
    };
    if let Some(from) = &args.from {
        return bulk::run(args, from, &handout).await;
    }
    let name = args.name.as_deref().unwrap_or_default();
    let order = Order::new(name, args.terms.clone()).map_err(Usage)?;
    let mut client = args.reach.client()?;
    let give = |minted: &MintedToken| handout.give(&order, minted);
    let minted = mint::hand_out(&mut client, &order, give).await?;
    output::complain(&format!(
        "token {} for {} is good until {}; it is not shown again",
        minted.id, order.name, minted.expires_at
    ));
    Ok(())
}

/// The format that is asked for, or goes without saying.
fn format(args: &CreateArgs) -> Result<TokenFormat, String> {
    let CreateArgs {
        format,
        from,
        output_dir,
        ..
    } = args;
    let (standard, fit, remedy): (_, &[TokenFormat], _) = match (from, output_dir) {
        // The parser does not tell, because NAME rules out what is missing.
        (None, Some(_)) => {
            return Err("--output-dir is for many tokens: name them with --from".to_owned());
        }
        (None, None) => (
            TokenFormat::Bare,
            &[
                TokenFormat::Bare,
                TokenFormat::CsrAttributes,
                TokenFormat::Json,
            ],
            "csv is for many tokens (--from): say bare, csr-attributes or json",
        ),
        (Some(_), None) => (
            TokenFormat::Csv,
            &[TokenFormat::Csv, TokenFormat::Json],
            "many tokens are printed as csv or json: say one of them, or name an --output-dir",
        ),
        (Some(_), Some(_)) => (
            TokenFormat::CsrAttributes,
            &[TokenFormat::CsrAttributes, TokenFormat::Bare],
            "the files of an --output-dir are for one host each: say csr-attributes or bare",
        ),
    };
    let format = format.unwrap_or(standard);
    match fit.contains(&format) {
        true => Ok(format),
        false => Err(format!("--format: {remedy}")),
    }
}

async fn listed(
    client: &mut Client,
    parameters: &[(&str, Option<&str>)],
    mut report: Report,
    form: Form,
) -> Result<()> {
    if form != Form::Table {
        // Page by page: there may be many.
        let mut items = Items::new(form);
        let mut print = |page: Vec<Value>| Ok(items.more(&page)?);
        each_page(client, "tokens", parameters, &mut print).await?;
        return Ok(items.end()?);
    }
    let mut add = |page: Vec<Value>| {
        for value in &page {
            report.add(&read(value)?);
        }
        Ok(())
    };
    each_page(client, "tokens", parameters, &mut add).await?;
    let is_filtered = parameters.iter().any(|(_, value)| value.is_some());
    match (report.text(), is_filtered) {
        (Some(text), _) => Ok(output::line(&text)?),
        (None, true) => said("No such tokens."),
        (None, false) => said("No tokens; `countersign token create` mints them."),
    }
}

async fn looked_up(client: &mut Client, id: &Named) -> Result<Value> {
    let reply = client.get(&id.place()).await?;
    Ok(accepted(reply)?.json()?)
}

fn shown(id: &Named, value: &Value, form: Form) -> Result<()> {
    if form != Form::Table {
        return Ok(output::object(value, form)?);
    }
    match id {
        Named::Enrolment(_) => Ok(output::line(&item::facts(&read(value)?).text())?),
        Named::Bootstrap(_) => bootstrap::show(value),
    }
}

/// Says what was done, or shows the token as it is now.
async fn done(client: &mut Client, id: &Named, what: &str, form: Form) -> Result<()> {
    match form {
        Form::Table => said(&format!("token {id} {what}")),
        Form::Json | Form::Yaml => shown(id, &looked_up(client, id).await?, form),
    }
}

async fn revoke(args: &RevokeArgs) -> Result<()> {
    let ids = args.ids.iter().map(|id| public_part(id));
    let mut ids: Vec<Named> = ids.collect::<Result<_>>()?;
    let is_bootstrap = |id: &&Named| matches!(id, Named::Bootstrap(_));
    if let Some(id) = ids
        .iter()
        .find(is_bootstrap)
        .filter(|_| args.revoke_certificates)
    {
        bail!(Usage(format!(
            "--revoke-certificates: {id} is the id of a bootstrap token, and what its users got is not on record with it: leave the flag out"
        )));
    }
    let name = args.certname.as_deref().map(sought).transpose();
    let name = name.map_err(Usage)?;
    let mut client = args.reach.client()?;
    if let Some(name) = name {
        for value in pages(&mut client, "tokens", &[("certname", Some(name))]).await? {
            let token: EnrolmentToken = read(&value)?;
            if item::can_be_revoked(&token, args.revoke_certificates) {
                ids.push(public_part(&token.id.0)?);
            }
        }
        if ids.is_empty() && args.output.form == Form::Table {
            return said(&format!("No token of {name} is left to be revoked."));
        }
    }
    let query = match args.revoke_certificates {
        true => "?revoke_certificates=true",
        false => "",
    };
    let (mut revoked, mut failed) = (Vec::new(), 0_usize);
    for id in &ids {
        let path = format!("{}{query}", id.place());
        match accepted(client.call(Method::DELETE, &path, None).await?) {
            Ok(_) if args.output.form == Form::Table => said(&format!("token {id} revoked"))?,
            Ok(_) => revoked.push(looked_up(&mut client, id).await?),
            Err(error) if ids.len() == 1 => return Err(error),
            Err(error) => {
                failed += 1;
                let text = format!("countersign: {error:#}");
                output::complain(&countersign_pki::terminal_safe(&text));
            }
        }
    }
    if args.output.form != Form::Table {
        output::object(&json!({"items": revoked}), args.output.form)?;
    }
    match failed {
        0 => Ok(()),
        failed => bail!("{failed} of {} were not revoked", ids.len()),
    }
}

async fn check(file: &Path, signer: Option<&str>, reach: &Reach, form: Form) -> Result<u8> {
    let request = request(file)?;
    let query = signer.map(|signer| format!("?signer={}", path_segment(signer)));
    let path = format!("/enrol/v1/check{}", query.unwrap_or_default());
    let reply = reach.client()?.post_text(&path, request).await?;
    let value: Value = accepted(reply)?.json()?;
    let checked: TokenCheck = read(&value)?;
    if form == Form::Table {
        let mut facts = Facts::default();
        facts.add(
            "token",
            match checked.would_allow {
                true => "would do",
                false => "would not do",
            },
        );
        facts.add("id", checked.token_id.as_deref().unwrap_or_default());
        facts.add("reason", &checked.reason);
        facts.add("", &checked.detail);
        output::line(&facts.text())?;
    } else {
        output::object(&value, form)?;
    }
    Ok(u8::from(!checked.would_allow))
}

/// A request in PEM. It holds a secret, so that nothing of it is shown.
fn request(file: &Path) -> Result<Vec<u8>> {
    let (source, shown): (Box<dyn Read>, _) = match file == Path::new("-") {
        true => (Box::new(std::io::stdin()), "standard input".to_owned()),
        false => {
            let shown = file.display().to_string();
            let opened = File::open(file).with_context(|| format!("cannot read {shown}"))?;
            (Box::new(opened), shown)
        }
    };
    let mut text = Vec::new();
    let read = source.take(MAX_REQUEST + 1).read_to_end(&mut text);
    read.with_context(|| format!("cannot read {shown}"))?;
    ensure!(
        text.len() as u64 <= MAX_REQUEST,
        "{shown} is longer than {MAX_REQUEST} bytes: give one certificate request in PEM"
    );
    ensure!(
        text.windows(PEM.len()).any(|part| part == PEM),
        "{shown} holds no certificate request in PEM"
    );
    Ok(text)
}

/// A token by its public part.
enum Named {
    Enrolment(TokenId),
    Bootstrap(BootstrapId),
}

impl Named {
    /// Its path in the native API.
    fn place(&self) -> String {
        match self {
            Self::Enrolment(id) => place("tokens", id.as_str()),
            Self::Bootstrap(id) => place(bootstrap::LISTING, id.as_str()),
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enrolment(id) => id.fmt(f),
            Self::Bootstrap(id) => id.fmt(f),
        }
    }
}

/// A token as it is named on a command line: never the whole of it.
fn public_part(text: &str) -> Result<Named> {
    let enrolment = TokenId::parse(text).map(Named::Enrolment);
    let bootstrap = || BootstrapId::parse(text).map(Named::Bootstrap);
    if let Some(id) = enrolment.or_else(bootstrap) {
        return Ok(id);
    }
    let whole = TokenText::parse(text).map(|token| token.id().to_string());
    let whole = whole.ok().or_else(|| {
        let token = BootstrapText::parse(text)?;
        Some(token.id().to_string())
    });
    let what = match whole {
        Some(id) => format!(
            "this is a whole token, and whoever lists this machine's processes has seen it: take it back with `countersign token revoke {id}`"
        ),
        None if looks_like_a_token(text) => secret_instead_of("the id"),
        None => format!(
            "{text:?} is no token's id: it has 16 characters, or six of a bootstrap token, as `countersign token list` shows them"
        ),
    };
    bail!(Usage(what))
}

/// As much as the server takes.
const MAX_REQUEST: u64 = 64 * 1024;
const PEM: &[u8] = b"-----BEGIN ";
