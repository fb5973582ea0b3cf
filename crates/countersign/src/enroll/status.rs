//! `enroll status`: what is installed, for whom, until when, and whether it fits together.

use anyhow::{Result, bail};
use countersign_authority::{Clock as _, SystemClock};
use countersign_enroll::{
    Bundle, CertificatePaths, Holdings, Standing, files, issued, with_causes,
};
use countersign_pki::{AltName, UnixTime};
use serde::Serialize;

use super::{FAILED, OK, plan};
use crate::cli::{DoorName, Form, StatusArgs};
use crate::output::{self, Facts};

/// What is printed. Times are RFC 3339.
#[derive(Debug, Serialize)]
struct Status {
    name: String,
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    certificate_file: String,
    key_file: String,
    ca_file: String,
    crl_file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<Shown>,
}

/// How things are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Valid,
    /// Valid, and time to renew it.
    RenewalDue,
    Expired,
    Missing,
    /// The files do not belong together.
    Mismatch,
    /// On the installed revocation list.
    Revoked,
}

impl State {
    fn words(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::RenewalDue => "valid, renewal is due",
            Self::Expired => "expired",
            Self::Missing => "not enrolled",
            Self::Mismatch => "mismatch",
            Self::Revoked => "revoked",
        }
    }
}

#[derive(Debug, Serialize)]
struct Shown {
    subject: String,
    alt_names: Vec<String>,
    serial: String,
    issuer: String,
    fingerprint: String,
    not_before: String,
    not_after: String,
    renewal: String,
}

pub(super) fn run(args: &StatusArgs) -> Result<u8> {
    // Whichever door it was: names of one are names of the other, or nearly.
    let name = name(args)?;
    let place = CertificatePaths::new(&args.place.options(), &name);
    let status = Status::of(name, &place, args)?;
    match args.output.form {
        Form::Table => output::line(&status.facts().text())?,
        form @ (Form::Json | Form::Yaml) => output::object(&status, form)?,
    }
    Ok(match status.state {
        State::Valid | State::RenewalDue => OK,
        State::Expired | State::Missing | State::Mismatch | State::Revoked => FAILED,
    })
}

/// The name that is meant: the one that was given, this machine's, or the only one that is installed.
fn name(args: &StatusArgs) -> Result<String> {
    let named = plan::name(args.name.as_deref(), DoorName::Kubernetes);
    if args.name.is_some() {
        return named;
    }
    let installed = CertificatePaths::names(&args.place.options());
    match (named, installed.as_slice()) {
        (Ok(own), installed) if installed.contains(&own) => Ok(own),
        (_, [only]) => Ok(only.clone()),
        (own, []) => own,
        (_, several) => bail!(
            "several names are installed there: {}; give the one that you mean",
            several.join(", ")
        ),
    }
}

impl Status {
    fn of(name: String, place: &CertificatePaths, args: &StatusArgs) -> Result<Self> {
        let before = args.renewal.renew_before.unwrap_or_default();
        let now = SystemClock.now();
        let (read, problem) = match Holdings::read(place) {
            Ok(holdings) => (Some(holdings), None),
            Err(fault) => (None, Some(with_causes(&fault))),
        };
        let held = read.as_ref().and_then(|holdings| holdings.held.as_ref());
        let standing = read
            .as_ref()
            .map(|holdings| holdings.standing(&name, place, before, now));
        let (state, problem) = match (&standing, held) {
            (None, _) => (State::Mismatch, problem),
            (Some(Err(fault)), _) => (State::Mismatch, Some(with_causes(fault))),
            (Some(Ok(Standing::Absent)), None) => {
                let key = read.as_ref().is_some_and(|holdings| holdings.key.is_some());
                let problem = key.then(|| "there is a key and no certificate: it is asked for again by `countersign enroll`".to_owned());
                (State::Missing, problem)
            }
            (Some(Ok(Standing::Absent)), Some(_)) => (State::Expired, None),
            (Some(Ok(Standing::Due)), _) => (State::RenewalDue, None),
            (Some(Ok(Standing::Good { .. })), _) => (State::Valid, None),
        };
        let (state, problem) = match (held, state) {
            (Some(held), State::Valid | State::RenewalDue) => {
                judged(held.chain.leaf(), place, now).unwrap_or((state, problem))
            }
            _ => (state, problem),
        };
        Ok(Self {
            certificate: held.map(|held| {
                let leaf = held.chain.leaf();
                Shown {
                    subject: leaf.subject().to_string(),
                    alt_names: leaf
                        .alt_names()
                        .iter()
                        .map(AltName::to_puppet_text)
                        .collect(),
                    serial: leaf.serial().to_string(),
                    issuer: leaf.issuer().to_string(),
                    fingerprint: leaf.fingerprint().to_string(),
                    not_before: leaf.not_before().to_string(),
                    not_after: leaf.not_after().to_string(),
                    renewal: held.renewal(before).to_string(),
                }
            }),
            name,
            state,
            problem,
            certificate_file: shown(&place.certificate),
            key_file: shown(&place.key),
            ca_file: shown(&place.ca),
            crl_file: shown(&place.crl),
        })
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts::default();
        facts.add("Name", &self.name);
        facts.add("State", self.state.words());
        facts.add("Problem", self.problem.as_deref().unwrap_or_default());
        if let Some(shown) = &self.certificate {
            facts.add("Subject", &shown.subject);
            facts.add("Names", &shown.alt_names.join(", "));
            facts.add("Serial", &shown.serial);
            facts.add("Issuer", &shown.issuer);
            facts.add("Fingerprint", &shown.fingerprint);
            facts.add("Valid from", &shown.not_before);
            facts.add("Valid until", &shown.not_after);
            facts.add("Renewal", &format!("from {} on", shown.renewal));
        }
        facts.add("Certificate", &self.certificate_file);
        facts.add("Key", &self.key_file);
        facts.add("CA", &self.ca_file);
        facts.add("CRL", &self.crl_file);
        facts
    }
}

/// What the installed CA and list say about a certificate that is good by itself. At the Kubernetes door another CA may have
/// signed it, so a stranger's signature alone is no fault.
fn judged(
    certificate: &countersign_pki::Certificate,
    place: &CertificatePaths,
    now: UnixTime,
) -> Option<(State, Option<String>)> {
    let text = files::read(&place.ca).ok().flatten();
    let ca = match text.map(|text| Bundle::read(&text, &shown(&place.ca), now)) {
        None => return None,
        Some(Err(fault)) => return Some((State::Mismatch, Some(with_causes(&fault)))),
        Some(Ok(ca)) => ca,
    };
    let lists = files::read(&place.crl).ok().flatten().unwrap_or_default();
    let lists = issued::revocation_lists(&lists, &ca);
    issued::is_revoked(certificate, &lists).then(|| {
        let problem = "the certificate stands on the installed revocation list";
        (State::Revoked, Some(problem.to_owned()))
    })
}

fn shown(path: &std::path::Path) -> String {
    path.display().to_string()
}
