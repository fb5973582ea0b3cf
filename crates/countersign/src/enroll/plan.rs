//! What a run shall do: the command line, checked once and turned into what can be relied on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use countersign_authority::certname::Certname;
use countersign_keys::KeySpec;
use countersign_pki::AltName;

use super::attributes::Extras;
use super::files::{Kind, Ownership, Written};
use super::hook::Hook;
use super::kubernetes::Order;
use super::machine_name;
use super::place::Place;
use super::request::Wishes;
use super::session::Patience;
use super::token::TokenSource;
use super::trust::{Server, Trust};
use super::voice::Voice;
use crate::cli::{DoorName, EnrollArgs, RenewBefore};
use crate::commands::ca::alt_name;

/// Everything that a run needs to know.
pub(super) struct Plan {
    pub(super) server: Server,
    pub(super) door: DoorPlan,
    pub(super) trust: Trust,
    pub(super) wishes: Wishes,
    pub(super) key: KeySpec,
    pub(super) token: TokenSource,
    pub(super) place: Place,
    pub(super) ownership: Ownership,
    pub(super) hook: Option<Hook>,
    pub(super) patience: Patience,
    pub(super) renew_before: RenewBefore,
    pub(super) voice: Voice,
}

/// What a door wants to know besides.
pub(super) enum DoorPlan {
    Puppet,
    Kubernetes(KubernetesPlan),
}

pub(super) struct KubernetesPlan {
    pub(super) order: Order,
    /// Certificate and key to ask with.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
}

impl Plan {
    pub(super) fn new(args: &EnrollArgs) -> Result<Self> {
        let name = name(args.name.as_deref(), args.door)?;
        let server = args.server.as_deref();
        let server = server.ok_or_else(|| anyhow!("no server was named: give --server URL"))?;
        let extras = Extras::new(&args.request)?;
        let timing = &args.timing;
        let will_renew = timing.daemon || timing.renewal.renew_before.is_some();
        let plan = Self {
            server: Server::new(server, args.door)?,
            door: door(args)?,
            trust: Trust::new(&args.trust),
            wishes: Wishes {
                alt_names: alt_names(&args.request.dns_alt_name)?,
                organizations: args.request.organization.clone(),
                extras,
                // An agent says so in the same way; at the Kubernetes door the attribute means nothing.
                will_renew: will_renew && args.door == DoorName::Puppet,
                name: name.clone(),
            },
            key: args.request.key_type.0,
            token: TokenSource::new(args.request.token_file.as_deref()),
            place: Place::new(&args.place, &name),
            ownership: Ownership::parse(args.owner.owner.as_deref(), args.owner.mode.0)?,
            hook: Hook::new(&args.hook),
            patience: match timing.no_wait {
                true => Patience::Once,
                false => Patience::For(Duration::from_secs(timing.wait.as_seconds())),
            },
            renew_before: timing.renewal.renew_before.unwrap_or_default(),
            voice: match timing.daemon {
                true => Voice::Log,
                false => Voice::Person,
            },
        };
        ensure!(
            args.door == DoorName::Puppet || !plan.wishes.extras.has_password(),
            "a password in --csr-attributes would be readable by everybody who may read the object: at the Kubernetes door the token goes with --token-file"
        );
        Ok(plan)
    }

    /// Puts one of the files into its place.
    pub(super) fn install(&self, path: &Path, content: &[u8], kind: Kind) -> Result<Written> {
        let base = self.place.base_of(path);
        self.ownership.install(base, path, content, kind)
    }
}

/// The name to enrol under: that of the machine unless one is given.
pub(super) fn name(given: Option<&str>, door: DoorName) -> Result<String> {
    match given {
        Some(given) => fit(given, door),
        None => own_name(&machine_name::fully_qualified()),
    }
}

/// The name that the machine has by its own files, which somebody else may have written: it becomes the name of files, too.
fn own_name(own: &str) -> Result<String> {
    let is_any = own == "localhost" || own.starts_with("localhost.");
    ensure!(
        !is_any,
        "this machine has no name of its own: give the name to enrol under, for example web01.example.com"
    );
    Certname::parse(own)
        .map(Certname::into_string)
        .with_context(|| format!("this machine is called {own:?} by its host name, /etc/hosts and /etc/resolv.conf, which is no name to enrol under: correct them, or give the name, for example web01.example.com"))
}

fn fit(given: &str, door: DoorName) -> Result<String> {
    match door {
        DoorName::Puppet => Certname::parse(given)
            .map(Certname::into_string)
            .with_context(|| format!("{given:?} is no name to enrol under: write the machine's name in lower case, for example web01.example.com")),
        DoorName::Kubernetes => {
            // It also becomes the name of files.
            let is_plain = |c: char| c.is_ascii_graphic() && c != '/';
            ensure!(
                !given.is_empty() && given.len() <= 200 && given.chars().all(is_plain) && !given.starts_with('.'),
                "{given:?} is no name to enrol under: write up to 200 printable characters without blanks and slashes, for example system:node:web01"
            );
            Ok(given.to_owned())
        }
    }
}

fn door(args: &EnrollArgs) -> Result<DoorPlan> {
    let kubernetes = &args.kubernetes;
    let signer = match (args.door, &kubernetes.signer) {
        (DoorName::Puppet, None) => {
            let is_alone = kubernetes.usage.is_empty()
                && kubernetes.expiration_seconds.is_none()
                && kubernetes.client_cert.is_none();
            ensure!(is_alone, ONLY_KUBERNETES);
            return Ok(DoorPlan::Puppet);
        }
        (DoorName::Puppet, Some(_)) => bail!(ONLY_KUBERNETES),
        (DoorName::Kubernetes, signer) => signer.clone(),
    };
    let usages = match kubernetes.usage.is_empty() {
        true => USAGES.map(str::to_owned).to_vec(),
        false => kubernetes
            .usage
            .iter()
            .map(|usage| usage.trim().to_owned())
            .collect(),
    };
    Ok(DoorPlan::Kubernetes(KubernetesPlan {
        order: Order {
            signer: signer.ok_or_else(|| anyhow!("no signer was named: give --signer NAME"))?,
            usages,
            expiration_seconds: kubernetes.expiration_seconds,
        },
        identity: kubernetes
            .client_cert
            .clone()
            .zip(kubernetes.client_key.clone()),
    }))
}

fn alt_names(texts: &[String]) -> Result<Vec<AltName>> {
    let read = |text: &String| alt_name(text).context("--dns-alt-name");
    texts.iter().map(read).collect()
}

const USAGES: [&str; 2] = ["digital signature", "client auth"];
const ONLY_KUBERNETES: &str =
    "--signer, --usage, --expiration-seconds and --client-cert belong to --door kubernetes";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machines_own_name_must_be_fit_for_a_file() {
        assert_eq!(own_name("web01.example.com").unwrap(), "web01.example.com");
        for own in [
            "localhost",
            "localhost.localdomain",
            "web01.../../../etc/cron.d/x",
            "web01.a/b",
            "..",
            "",
            "web01.\u{1b}[31m",
        ] {
            let fault = own_name(own).unwrap_err().to_string();
            assert!(fault.contains("for example web01.example.com"), "{fault}");
            assert!(!fault.contains('\u{1b}'), "{fault}");
        }
    }
}
