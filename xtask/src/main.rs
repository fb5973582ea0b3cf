//! The commands of README and CI: `cargo xtask <command>`.
//!
//! Nothing here starts a service or changes the machine's configuration. What the tests need is
//! fetched or built once into `${XDG_CACHE_HOME:-$HOME/.cache}/countersign`; the rest stays in `target/`.
#![expect(clippy::print_stdout, reason = "a command line program prints")]

mod apt;
mod bench;
mod bench_cluster;
mod bench_kubernetes;
mod bench_operator;
mod bench_scale;
mod cache;
mod debian;
mod debian_kubectl;
mod deny;
mod go;
mod haproxy;
mod invocation;
mod kubernetes;
mod node;
mod postgres;
mod python;
mod setup;
mod tally;
mod test;
mod trixie;

use std::env;
use std::process::ExitCode;

use anyhow::{Result, bail};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    run(&arguments).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &[String]) -> Result<ExitCode> {
    let Some((command, rest)) = arguments.split_first() else {
        bail!("no command given\n\n{USAGE}");
    };
    match command.as_str() {
        "setup" => {
            invocation::refuse_arguments(rest)?;
            setup::run()
        }
        "test" => test::run(&test::Options::parse(rest)?),
        "deny" => {
            invocation::refuse_arguments(rest)?;
            deny::run()
        }
        "bench" => bench::run(rest).map(|()| ExitCode::SUCCESS),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        unknown => bail!("unknown command '{unknown}'\n\n{USAGE}"),
    }
}

const USAGE: &str = "\
usage: cargo xtask <command>

  setup                     fetch and build what the tests need
  test [--kills N]          setup, then every test; N processes killed by the crash tests (default 100)
  deny                      licences, bans, sources and advisories of the dependencies
  bench [--against URL ...] load benchmarks, also against another Puppet-compatible authority;
                            --kubernetes: that door alone, beside kube-apiserver;
                            --cluster: the controllers alone, beside kube-controller-manager;
                            --operator: the certificate operator alone";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_an_unknown_command() {
        let error = run(&["tets".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("unknown command 'tets'"));
    }

    #[test]
    fn refuses_arguments_that_a_command_does_not_take() {
        let error = run(&["setup".to_owned(), "--fast".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("'--fast'"));
    }
}
