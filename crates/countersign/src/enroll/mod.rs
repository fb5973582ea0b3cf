//! `countersign enroll`: a machine's own way to its certificate, with Puppet or without.
//!
//! The order is what makes a crash harmless: the key is on disk before anybody sees its public half, so the next try asks
//! with the same one; the authority is verified before it is told anything; the certificate is checked before it is
//! installed, and installed last. The authority's side decides; here is nothing but a client.

mod attributes;
mod daemon;
mod files;
mod folder;
mod holdings;
mod hook;
mod issued;
mod kubernetes;
mod machine_name;
mod place;
mod plan;
mod puppet;
mod request;
mod session;
mod status;
mod token;
mod trust;
mod voice;
mod waiting;

use anyhow::{Context as _, Result, anyhow, bail};
use countersign_authority::{Clock as _, SystemClock};
use countersign_keys::LeafKey;
use countersign_pki::{Crl, pem};

use self::files::{Kind, Secret, Written};
use self::holdings::{Holdings, Standing};
use self::hook::Event;
use self::issued::Chain;
use self::place::KeyOrigin;
use self::plan::Plan;
use self::session::{Obtained, Patience, Purpose, Session};
pub(crate) use self::token::refused_arguments;
use self::voice::Voice;
use crate::cli::{EnrollArgs, EnrollCommand};
use crate::config::Log;
use crate::logging;

/// Carries the command out.
pub(crate) async fn run(args: EnrollArgs) -> Result<u8> {
    if let Some(EnrollCommand::Status(args)) = &args.command {
        return status::run(args);
    }
    let level = match args.timing.daemon {
        true => "info",
        false => "off",
    };
    logging::start(&Log {
        level: level.to_owned(),
        ..Log::default()
    })?;
    let plan = match Plan::new(&args) {
        Ok(plan) => plan,
        Err(fault) => {
            Voice::Person.failure(&fault);
            return Ok(USAGE);
        }
    };
    if let Some(warning) = &plan.wishes.extras.warning {
        plan.voice.warning(warning);
    }
    match args.timing.daemon {
        true => daemon::run(&plan).await,
        false => once(&plan).await,
    }
}

/// Brings the machine to a valid certificate.
async fn once(plan: &Plan) -> Result<u8> {
    let holdings = Holdings::read(&plan.place)?;
    let done = match standing(plan, &holdings)? {
        Standing::Good { renewal } => {
            let (name, file) = (&plan.wishes.name, plan.place.certificate.display());
            let until = holdings.held.map(|held| held.not_after().to_string());
            plan.voice.result(&format!(
                "{name} has a certificate in {file} that is valid until {}; it is renewed from {renewal} on",
                until.unwrap_or_default()
            ))?;
            return Ok(OK);
        }
        Standing::Absent => enrol(plan, holdings, plan.patience).await?,
        Standing::Due => renew(plan, holdings, plan.patience).await?,
    };
    match done {
        Done::Whole => Ok(OK),
        Done::WithoutHook(fault) => {
            plan.voice.failure(&fault);
            Ok(FAILED)
        }
    }
}

fn standing(plan: &Plan, holdings: &Holdings) -> Result<Standing> {
    let (name, place) = (&plan.wishes.name, &plan.place);
    holdings.standing(name, place, plan.renew_before, SystemClock.now())
}

/// A certificate was installed.
enum Done {
    Whole,
    /// What should have run then did not do its work.
    WithoutHook(anyhow::Error),
}

/// A first certificate, or one after the last has expired.
async fn enrol(plan: &Plan, holdings: Holdings, patience: Patience) -> Result<Done> {
    let (token, warning) = plan.token.read()?;
    if let Some(warning) = warning {
        plan.voice.warning(&warning);
    }
    let key = match holdings.key {
        Some(key) => key,
        None => new_key(plan).await?,
    };
    write_public_key(plan, &key)?;
    let mut session = Session::new(plan, &key, Purpose::Enrol(token))?;
    let obtained = session.obtain(patience).await?;
    install(plan, &obtained, Event::Enrolled).await
}

/// A certificate after one that is still valid.
async fn renew(plan: &Plan, holdings: Holdings, patience: Patience) -> Result<Done> {
    let (Some(key), Some(held)) = (holdings.key, holdings.held) else {
        bail!("there is no certificate that could be renewed");
    };
    let mut session = Session::new(plan, &key, Purpose::Renew(&held.chain))?;
    let obtained = session.obtain(patience).await.with_context(|| {
        format!(
            "the certificate of {} is valid until {} and was not renewed",
            plan.wishes.name,
            held.not_after()
        )
    })?;
    install(plan, &obtained, Event::Renewed).await
}

/// Makes the key and has it on disk before anything is asked with it.
async fn new_key(plan: &Plan) -> Result<LeafKey> {
    let path = &plan.place.key;
    if plan.place.origin == KeyOrigin::Given {
        bail!(
            "--key {} is not there: give the file of a key that exists, or leave --key out and one is made",
            path.display()
        );
    }
    let kind = plan.key;
    // RSA takes seconds.
    let key = tokio::task::spawn_blocking(move || LeafKey::generate_kind(kind)).await??;
    let text = key.to_pkcs8_pem()?;
    match plan.install(path, text.as_bytes(), Kind::Key)? {
        Written::Now => Ok(key),
        // Somebody else was faster; what is on disk counts.
        Written::Before => holdings::read_key(&plan.place)?
            .ok_or_else(|| anyhow!("{} has gone again: run this once more", path.display())),
    }
}

fn write_public_key(plan: &Plan, key: &LeafKey) -> Result<()> {
    if let Some(warning) = files::exposure(&plan.place.key, Secret::Key) {
        plan.voice.warning(&warning);
    }
    if let Some(path) = &plan.place.public_key {
        let text = pem::encode("PUBLIC KEY", key.spki_der());
        plan.install(path, text.as_bytes(), Kind::Public)?;
    }
    Ok(())
}

/// Writes what belongs to a certificate, and the certificate last: where it is, the rest is.
async fn install(plan: &Plan, obtained: &Obtained, event: Event) -> Result<Done> {
    let Obtained {
        chain,
        bundle,
        lists,
    } = obtained;
    let place = &plan.place;
    plan.install(&place.ca, bundle.text(), Kind::Public)?;
    if let Some(lists) = lists {
        install_lists(plan, lists)?;
    }
    plan.install(&place.certificate, chain.to_pem().as_bytes(), Kind::Public)?;
    plan.voice.result(&told(plan, chain, event))?;
    let Some(hook) = &plan.hook else {
        return Ok(Done::Whole);
    };
    let ran = hook.run(event, &plan.wishes.name, place, chain).await;
    Ok(match ran {
        Ok(()) => Done::Whole,
        Err(fault) => Done::WithoutHook(fault),
    })
}

fn install_lists(plan: &Plan, lists: &[Crl]) -> Result<()> {
    let text: String = lists.iter().map(Crl::to_pem).collect();
    let written = plan.install(&plan.place.crl, text.as_bytes(), Kind::Public);
    written.map(drop)
}

fn told(plan: &Plan, chain: &Chain, event: Event) -> String {
    let leaf = chain.leaf();
    format!(
        "{} is {}: certificate {} in {} is valid until {}",
        plan.wishes.name,
        event.word(),
        leaf.serial(),
        plan.place.certificate.display(),
        leaf.not_after()
    )
}

const OK: u8 = 0;
const FAILED: u8 = 1;
/// The command line, or a file that it names, asks for something impossible.
const USAGE: u8 = 2;
