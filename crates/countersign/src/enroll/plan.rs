//! What a run shall do: the command line, checked once and turned into what can be relied on.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use countersign_authority::certname::Certname;
use countersign_enroll::files::Ownership;
use countersign_enroll::{
    CertificatePaths, DoorPlan, Extras, Hook, KubernetesPlan, Order, Patience, Plan, Server,
    TokenSource, Trust, Wishes,
};
use countersign_pki::AltName;

use super::machine_name;
use super::voice::Listener;
use crate::cli::{DoorName, EnrollArgs, HookArgs, TrustArgs};
use crate::commands::ca::alt_name;

pub(super) fn of(args: &EnrollArgs) -> Result<Plan> {
    let name = name(args.name.as_deref(), args.door)?;
    let server = args.server.as_deref();
    let server = server.ok_or_else(|| anyhow!("no server was named: give --server URL"))?;
    let request = &args.request;
    let extras = Extras::new(
        request.csr_attributes.as_deref(),
        &request.attribute,
        &request.extension,
    )?;
    let timing = &args.timing;
    let will_renew = timing.daemon || timing.renewal.renew_before.is_some();
    let plan = Plan {
        server: Server::new(server, args.door.into())?,
        door: door(args)?,
        trust: trust(&args.trust),
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
        place: CertificatePaths::new(&args.place.options(), &name),
        ownership: Ownership::parse(args.owner.owner.as_deref(), args.owner.mode.0)?,
        hook: hook(&args.hook),
        patience: match timing.no_wait {
            true => Patience::Once,
            false => Patience::For(Duration::from_secs(timing.wait.as_seconds())),
        },
        renew_before: timing.renewal.renew_before.unwrap_or_default(),
        voice: Box::new(match timing.daemon {
            true => Listener::Log,
            false => Listener::Person,
        }),
    };
    ensure!(
        args.door == DoorName::Puppet || !plan.wishes.extras.has_password(),
        "a password in --csr-attributes would be readable by everybody who may read the object: at the Kubernetes door the token goes with --token-file"
    );
    Ok(plan)
}

fn trust(args: &TrustArgs) -> Trust {
    match (&args.ca_file, args.ca_fingerprint, args.trust_on_first_use) {
        (Some(path), _, _) => Trust::File(path.clone()),
        (None, Some(fingerprint), _) => Trust::Fingerprint(fingerprint.0),
        (None, None, true) => Trust::FirstUse,
        (None, None, false) => Trust::Installed,
    }
}

fn hook(args: &HookArgs) -> Option<Hook> {
    Some(Hook {
        program: args.hook.clone()?,
        arguments: args.hook_arg.clone(),
        timeout: Duration::from_secs(args.hook_timeout.as_seconds()),
    })
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
