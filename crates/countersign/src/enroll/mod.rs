//! `countersign enroll`: a machine's own way to its certificate, with Puppet or without.

mod arguments;
mod machine_name;
mod plan;
mod status;
mod voice;

use anyhow::{Context as _, Result};
use countersign_enroll::{Done, Plan, once, stay};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub(crate) use self::arguments::refused_arguments;
use self::voice::Listener;
use crate::cli::{EnrollArgs, EnrollCommand};
use crate::config::Log;
use crate::logging::{self, LogLevel};
use crate::service_manager;

/// Carries the command out.
pub(crate) async fn run(args: EnrollArgs) -> Result<u8> {
    if let Some(EnrollCommand::Status(args)) = &args.command {
        return status::run(args);
    }
    let level = match args.timing.daemon {
        true => "info",
        false => "off",
    };
    let level = logging::start(&Log {
        level: level.to_owned(),
        ..Log::default()
    })?;
    let plan = match plan::of(&args) {
        Ok(plan) => plan,
        Err(fault) => {
            countersign_enroll::Voice::failure(&Listener::Person, &*fault);
            return Ok(USAGE);
        }
    };
    if let Some(warning) = &plan.wishes.extras.warning {
        plan.voice.warning(warning);
    }
    if args.timing.daemon {
        return daemon(&plan, level).await;
    }
    match once(&plan).await? {
        Done::Whole => Ok(OK),
        Done::WithoutHook(fault) => {
            plan.voice.failure(&fault);
            Ok(FAILED)
        }
    }
}

/// Runs until a signal asks for the end, which may come at any moment.
async fn daemon(plan: &Plan, level: LogLevel) -> Result<u8> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    let stop = CancellationToken::new();
    let alive = tokio::spawn(service_manager::stay_alive(stop.clone()));
    let telling = stop.clone();
    let told = tokio::spawn(async move { level.keep_telling(&telling).await });
    let ready = |until| service_manager::ready(&format!("the certificate is valid until {until}"));
    let ended = tokio::select! {
        ended = stay(plan, &ready) => ended,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    stop.cancel();
    // They end with their token.
    let _nothing_to_tell = tokio::join!(alive, told);
    ended?;
    plan.voice.news("stopping");
    Ok(OK)
}

const OK: u8 = 0;
const FAILED: u8 = 1;
/// The command line, or a file that it names, asks for something impossible.
const USAGE: u8 = 2;
