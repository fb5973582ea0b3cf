//! Countersign: one authority that decides, signs and accounts for every certificate request a fleet makes.
//!
//! The command line, the configuration, and the wiring of the parts. No business rules.

mod adoption;
mod archive;
mod audit_keys;
mod built_in;
mod cli;
mod client;
mod cluster;
mod commands;
mod config;
mod data_folder;
mod enroll;
mod explanation;
mod first_start;
mod issuer_files;
mod issuer_keys;
mod kubeconfig;
mod logging;
mod offline;
mod output;
mod policies;
mod policy_files;
mod progress;
mod reload;
mod serve;
mod service_manager;
mod settings;
mod signers;
mod signing_policies;
mod stores;
mod tokens;
mod upkeep;
mod witness;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
// An enrolment is some hundred small allocations on several threads, which this allocator serves at half the cost. Linked
// as `malloc` it serves SQLite and the cryptography too, and this program without a detour over alignments.
use mimalloc as _;

use cli::{Cli, Command};
use settings::Settings;

fn main() -> ExitCode {
    // Private keys are in memory: no core of this process is written, and nobody who is not root looks into it.
    let _as_far_as_possible = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let arguments: Vec<_> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|word| word == "enroll")
        && let Some(sentence) = enroll::refused_arguments(&arguments)
    {
        output::complain(&format!("countersign: {sentence}"));
        return ExitCode::from(USAGE);
    }
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let is_ca = arguments.get(1).is_some_and(|word| word == "ca");
            let text = error.to_string();
            if countersign_authority::looks_like_a_token(&text) {
                // Somebody gave a token as an argument: that is no reason to repeat it.
                output::complain(countersign_authority::masked_tokens(&text).trim_end());
            } else if !(is_ca && commands::ca::usage::explain(&error, &arguments)) {
                // Help that was asked for goes to standard output; a usage error to standard error.
                let _nobody_to_tell = error.print();
            }
            return match error.exit_code() {
                0 => ExitCode::SUCCESS,
                // `puppetserver ca` has no exit code of its own for usage errors.
                _ if is_ca => ExitCode::FAILURE,
                _ => ExitCode::from(USAGE),
            };
        }
    };
    match run(cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            output::complain(&format!(
                "countersign: {}",
                countersign_pki::terminal_safe(&format!("{error:#}"))
            ));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<u8> {
    match command {
        Command::Serve(args) => {
            let settings = Settings::new(&args)?;
            if args.print_config {
                for warning in &settings.remarks.warnings {
                    output::complain(&format!("warning: {warning}"));
                }
                output::line(settings::printed(&settings)?.trim_end())?;
                return Ok(0);
            }
            block_on(serve::run(args, settings)).map(|()| 0)
        }
        Command::Csr { command } => block_on(commands::csr::run(command)).map(|()| 0),
        Command::Machine { command } => block_on(commands::machine::run(command)).map(|()| 0),
        Command::Window { command } => block_on(commands::window::run(command)).map(|()| 0),
        Command::Token { command } => block_on(commands::token::run(command)),
        Command::Policy { command } => block_on(commands::policy::run(command)),
        Command::Ca { verbose, command } => {
            if verbose {
                logging::start(&config::Log {
                    level: "debug".to_owned(),
                    ..config::Log::default()
                })?;
            }
            block_on(commands::ca::run(command))
        }
        Command::Audit { command } => block_on(commands::audit::run(command)),
        Command::Kubeconfig(args) => block_on(commands::kubeconfig::run(args)).map(|()| 0),
        Command::Enroll(args) => block_on(enroll::run(*args)),
        Command::Cluster(args) => block_on(cluster::run(*args)).map(|()| 0),
        Command::Backup(args) => commands::backup::run(&args).map(|()| 0),
        Command::Restore(args) => commands::restore::run(&args).map(|()| 0),
    }
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the program's threads")?;
    let done = runtime.block_on(work);
    // A thread that waits for a disk which does not answer must not keep the program from ending.
    runtime.shutdown_timeout(LAST_WAIT);
    done
}

const LAST_WAIT: std::time::Duration = std::time::Duration::from_secs(2);

/// Exit code of a command line that cannot be understood.
const USAGE: u8 = 2;
