//! `countersign ca`: what `puppetserver ca` does, with its output and its exit codes, over the Puppet API; or on the
//! files of a stopped server, where the original does so.

mod adoption;
mod bundle;
mod delete;
mod export;
mod generate;
mod import;
mod place;
mod prune;
mod refusal;
mod setup;
mod takeover;
mod unfinished;
pub(crate) mod usage;

pub(crate) use place::alt_name;

use std::collections::BTreeMap;

use anyhow::Result;
use countersign_pki::terminal_safe;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cli::{CaCommand, ListFormat, Ttl};
use crate::client::{Client, Reply, path_segment};
use crate::output::{self, complain, inert_json};
use crate::progress::Progress;

use place::client;
pub(crate) use refusal::Refusal;

/// Carries a command out and answers with its exit code.
pub(crate) async fn run(command: CaCommand) -> Result<u8> {
    match carry_out(command).await {
        Ok(code) => Ok(code),
        Err(error) => {
            let refusal: Refusal = error.downcast()?;
            refusal.print();
            Ok(FAILED)
        }
    }
}

async fn carry_out(command: CaCommand) -> Result<u8> {
    match command {
        CaCommand::List {
            all,
            certname,
            format,
            server,
        } => {
            let mut client = client(&server)?;
            let choice = match (all, certname) {
                (true, _) => Choice::All,
                (false, names) if names.is_empty() => Choice::Requested,
                (false, names) => Choice::Names(names),
            };
            list(&mut client, &choice, format).await
        }
        CaCommand::Sign { which, ttl, server } => {
            let mut client = client(&server)?;
            let names = (!which.all).then_some(which.certname);
            match ttl {
                None if signs_in_bulk(&mut client).await? => sign_in_bulk(&mut client, names).await,
                ttl => sign_one_by_one(&mut client, names, ttl.as_ref()).await,
            }
        }
        CaCommand::Revoke {
            certname,
            force,
            server,
        } => revoke(&mut client(&server)?, &certname, force).await,
        CaCommand::Clean {
            certname,
            force,
            server,
        } => clean(&mut client(&server)?, &certname, force).await,
        CaCommand::Setup(args) => setup::run(&args).await,
        CaCommand::Import(args) => import::run(&args).await,
        CaCommand::Export(args) => export::run(&args).await,
        CaCommand::Generate(args) => generate::run(&args).await,
        CaCommand::Delete(args) => delete::run(&args).await,
        CaCommand::Prune(args) => prune::run(&args).await,
    }
}

/// What a listing shows.
enum Choice {
    Requested,
    All,
    Names(Vec<String>),
}

/// A certificate status, as far as it is shown.
#[derive(Debug, Deserialize)]
struct Status {
    name: String,
    state: String,
    #[serde(default)]
    fingerprints: BTreeMap<String, String>,
    #[serde(default)]
    dns_alt_names: Vec<String>,
    subject_alt_names: Option<Vec<String>>,
    #[serde(default)]
    authorization_extensions: BTreeMap<String, Value>,
    /// Why the rest is empty, if it is for that.
    unreadable: Option<String>,
}

/// What is shown of a status, and all of it as the server wrote it.
type Entry = (Status, Box<RawValue>);

/// The entries of a listing, in three groups, and the names that are in none.
#[derive(Default)]
struct Groups {
    requested: Vec<Entry>,
    signed: Vec<Entry>,
    revoked: Vec<Entry>,
    missing: Vec<String>,
}

async fn list(client: &mut Client, choice: &Choice, format: ListFormat) -> Result<u8> {
    let filter = if matches!(choice, Choice::Requested) {
        "?state=requested"
    } else {
        ""
    };
    let reply = client.get(&format!("{STATUSES}{filter}")).await?;
    if reply.status != StatusCode::OK {
        complain_of(&reply, "Error:");
        return Ok(FAILED);
    }
    let groups = Groups::new(&reply, choice)?;
    match format {
        ListFormat::Text => output::line(&groups.text())?,
        ListFormat::Json => output::line(&inert_json(&groups.json(choice)?))?,
    }
    Ok(if groups.missing.is_empty() {
        OK
    } else {
        FAILED
    })
}

impl Groups {
    fn new(reply: &Reply, choice: &Choice) -> Result<Self> {
        let mut groups = Self::default();
        let entries: Vec<Box<RawValue>> = reply.json()?;
        if let Choice::Names(names) = choice {
            groups.missing.clone_from(names);
        }
        for raw in entries {
            let status: Status = serde_json::from_str(raw.get())?;
            if let Choice::Names(names) = choice {
                if !names.contains(&status.name) {
                    continue;
                }
                groups.missing.retain(|name| *name != status.name);
            }
            match status.state.as_str() {
                "requested" => groups.requested.push((status, raw)),
                "signed" => groups.signed.push((status, raw)),
                "revoked" => groups.revoked.push((status, raw)),
                _ => {}
            }
        }
        Ok(groups)
    }

    fn by_title(&self) -> [(&'static str, &'static str, &[Entry]); 3] {
        [
            ("Requested", "requested", &self.requested),
            ("Signed", "signed", &self.signed),
            ("Revoked", "revoked", &self.revoked),
        ]
    }

    fn text(&self) -> String {
        let mut lines = Vec::new();
        for (title, _, group) in self.by_title() {
            if group.is_empty() {
                continue;
            }
            lines.push(format!("{title} Certificates:"));
            let safe: Vec<_> = group
                .iter()
                .map(|(status, _)| (terminal_safe(&status.name), status))
                .collect();
            let longest = safe
                .iter()
                .map(|(name, _)| name.chars().count())
                .max()
                .unwrap_or(0);
            lines.extend(
                safe.iter()
                    .map(|(name, status)| status.row(name, longest + 6)),
            );
        }
        if !self.missing.is_empty() {
            lines.push("Missing Certificates:".to_owned());
            lines.extend(
                self.missing
                    .iter()
                    .map(|name| format!("    {}", terminal_safe(name))),
            );
        }
        if lines.is_empty() {
            "No certificates to list".to_owned()
        } else {
            lines.join("\n")
        }
    }

    /// One object with the server's own entries: numbers as large as serials would not survive being parsed.
    fn json(&self, choice: &Choice) -> Result<String> {
        let mut members = Vec::new();
        for (_, key, group) in self.by_title() {
            let always = matches!(choice, Choice::All)
                || (matches!(choice, Choice::Requested) && key == "requested");
            if always || !group.is_empty() {
                let entries: Vec<&str> = group.iter().map(|(_, raw)| raw.get()).collect();
                members.push(format!("\"{key}\":[{}]", entries.join(",")));
            }
        }
        if !self.missing.is_empty() {
            members.push(format!(
                "\"missing\":{}",
                serde_json::to_string(&self.missing)?
            ));
        }
        Ok(format!("{{{}}}", members.join(",")))
    }
}

impl Status {
    fn row(&self, name: &str, width: usize) -> String {
        let fingerprint = self
            .fingerprints
            .get("SHA256")
            .map(|text| terminal_safe(text))
            .unwrap_or_default();
        let mut row = format!("    {name:width$} (SHA256)  {fingerprint}");
        let alt_names = self
            .subject_alt_names
            .as_ref()
            .unwrap_or(&self.dns_alt_names);
        if !alt_names.is_empty() {
            let quoted: Vec<String> = alt_names
                .iter()
                .map(|name| format!("\"{}\"", terminal_safe(name)))
                .collect();
            row.push_str(&format!("\talt names: [{}]", quoted.join(", ")));
        }
        if !self.authorization_extensions.is_empty() {
            let pairs = self.authorization_extensions.iter().map(|(name, value)| {
                let value = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                format!("{}: {}", terminal_safe(name), terminal_safe(&value))
            });
            let pairs: Vec<String> = pairs.collect();
            row.push_str(&format!(
                "\tauthorization extensions: [{}]",
                pairs.join(", ")
            ));
        }
        if let Some(fault) = &self.unreadable {
            row.push_str(&format!("\tunreadable: {}", terminal_safe(fault)));
        }
        row
    }
}

/// Whether the server signs many at once: since version 8.4.0, says Puppet's own command.
async fn signs_in_bulk(client: &mut Client) -> Result<bool> {
    let reply = client.get("/status/v1/services").await?;
    let told: Option<Value> = serde_json::from_slice(&reply.body).ok();
    let version = told
        .as_ref()
        .and_then(|value| value.pointer("/ca/service_version")?.as_str());
    Ok(reply.status == StatusCode::OK
        && version.is_some_and(|version| version_number(version) >= Some([8, 4, 0])))
}

fn version_number(text: &str) -> Option<[u64; 3]> {
    let mut numbers = text.splitn(3, '.').map(|part| {
        let digits = part
            .find(|c: char| !c.is_ascii_digit())
            .map_or(part, |end| part.split_at(end).0);
        digits.parse().ok()
    });
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

#[derive(Debug, Deserialize)]
struct BulkSigned {
    #[serde(default)]
    signed: Vec<String>,
    #[serde(default, rename = "no-csr")]
    no_csr: Vec<String>,
    #[serde(default, rename = "signing-errors")]
    signing_errors: Vec<String>,
}

async fn sign_in_bulk(client: &mut Client, names: Option<Vec<String>>) -> Result<u8> {
    let (path, body, what) = match names {
        Some(names) => ("sign", json!({"certnames": names}), "certificate requests"),
        None => ("sign/all", json!({}), "all certificate requests"),
    };
    let waiting = Progress::waiting("Signing");
    let reply = client
        .call(Method::POST, &format!("{PREFIX}/{path}"), Some(&body))
        .await?;
    drop(waiting);
    if reply.status != StatusCode::OK {
        complain_of(
            &reply,
            &format!("Error:\n    When attempting to sign {what}, received:"),
        );
        return Ok(FAILED);
    }
    let outcome: BulkSigned = reply.json()?;
    if !outcome.signed.is_empty() {
        output::line("Successfully signed the following certificate requests:")?;
        for name in &outcome.signed {
            output::line(&format!("  {}", terminal_safe(name)))?;
        }
    }
    let failures = [
        (
            "No certificate request found for the following nodes when attempting to sign:",
            &outcome.no_csr,
        ),
        (
            "Error encountered when attempting to sign the certificate request for the following nodes:",
            &outcome.signing_errors,
        ),
    ];
    if failures.iter().any(|(_, names)| !names.is_empty()) {
        complain("Error:");
        for (sentence, names) in failures.iter().filter(|(_, names)| !names.is_empty()) {
            complain(&format!("    {sentence}"));
            names
                .iter()
                .for_each(|name| complain(&format!("      {}", terminal_safe(name))));
        }
        if let Some(name) = outcome.signing_errors.first() {
            complain(&says_why(name));
        }
        return Ok(FAILED);
    }
    if outcome.signed.is_empty() {
        complain("No waiting certificate requests to sign.");
        return Ok(NOTHING_TO_DO);
    }
    Ok(OK)
}

async fn sign_one_by_one(
    client: &mut Client,
    names: Option<Vec<String>>,
    ttl: Option<&Ttl>,
) -> Result<u8> {
    let names = match names {
        Some(names) => names,
        None => {
            let reply = client.get(STATUSES).await?;
            if reply.status != StatusCode::OK {
                complain_of(&reply, "Error:");
                return Ok(FAILED);
            }
            let groups = Groups::new(&reply, &Choice::All)?;
            groups
                .requested
                .into_iter()
                .map(|(status, _)| status.name)
                .collect()
        }
    };
    if names.is_empty() {
        complain("Error:\n    No waiting certificate requests to sign");
        return Ok(NOTHING_TO_DO);
    }
    let body = sign_body(ttl);
    let progress = Progress::of(names.len(), "Signing");
    let mut code = OK;
    for name in &names {
        let reply = put_status(client, name, &body).await?;
        if !progress.aside(|| report_signed(name, &reply))? {
            code = FAILED;
            if reply.status != StatusCode::NOT_FOUND {
                progress.aside(|| complain(&says_why(name)));
            }
        }
        progress.step();
    }
    Ok(code)
}

fn sign_body(ttl: Option<&Ttl>) -> Value {
    match ttl {
        Some(ttl) => json!({"desired_state": "signed", "cert_ttl": ttl.seconds}),
        None => json!({"desired_state": "signed"}),
    }
}

/// Says how signing one went, and whether it was signed.
fn report_signed(name: &str, reply: &Reply) -> Result<bool> {
    let name = terminal_safe(name);
    match reply.status {
        StatusCode::NO_CONTENT => output::line(&format!(
            "Successfully signed certificate request for {name}"
        ))?,
        StatusCode::NOT_FOUND => complain(&format!(
            "Error:\n    Could not find certificate request for {name}"
        )),
        _ => {
            let sentence = format!(
                "Error:\n    When attempting to sign certificate request '{name}', received"
            );
            complain_of(reply, &sentence);
        }
    }
    Ok(reply.status == StatusCode::NO_CONTENT)
}

fn says_why(name: &str) -> String {
    let name = terminal_safe(name);
    format!("`countersign csr explain {name} --door puppet` says why")
}

/// How an act on one name went.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// There was only a request, which cannot be revoked.
    Inapplicable,
    Failed,
}

async fn revoke(client: &mut Client, names: &[String], force: bool) -> Result<u8> {
    let progress = Progress::of(names.len(), "Revoking");
    let mut outcomes = Vec::new();
    for name in names {
        let reply = put_revoked(client, name, force).await?;
        let outcome = progress.aside(|| report_revoked(&terminal_safe(name), &reply));
        outcomes.push(outcome?);
        progress.step();
    }
    Ok(exit_code(&outcomes))
}

fn report_revoked(name: &str, reply: &Reply) -> Result<Outcome> {
    match reply.status {
        StatusCode::OK | StatusCode::NO_CONTENT => {
            output::line(&format!("Certificate for {name} has been revoked"))?;
            Ok(Outcome::Done)
        }
        StatusCode::NOT_FOUND => {
            complain(&format!(
                "Error:\n    Could not find certificate for {name}"
            ));
            Ok(Outcome::Failed)
        }
        StatusCode::CONFLICT => {
            complain(&format!(
                "Error:\n    Could not revoke unsigned csr for {name}"
            ));
            Ok(Outcome::Inapplicable)
        }
        _ => {
            complain_of(reply, &not_revoked(name));
            Ok(Outcome::Failed)
        }
    }
}

fn not_revoked(name: &str) -> String {
    format!("Error:\n    When attempting to revoke certificate '{name}', received:")
}

async fn clean(client: &mut Client, names: &[String], force: bool) -> Result<u8> {
    let progress = Progress::of(names.len(), "Cleaning");
    let mut outcomes = Vec::new();
    for name in names {
        outcomes.push(clean_one(client, name, force, &progress).await?);
        progress.step();
    }
    Ok(exit_code(&outcomes))
}

/// A name is revoked, then deleted: also one that had only a request, or only a certificate that is not shown any
/// more. Only if the revocation fails for another reason, the name is left as it is.
async fn clean_one(
    client: &mut Client,
    name: &str,
    force: bool,
    progress: &Progress,
) -> Result<Outcome> {
    let revoked = put_revoked(client, name, force).await?;
    let shown = terminal_safe(name);
    match revoked.status {
        StatusCode::OK | StatusCode::NO_CONTENT => {
            let line = format!("Certificate for {shown} has been revoked");
            progress.aside(|| output::line(&line))?;
        }
        StatusCode::NOT_FOUND | StatusCode::CONFLICT => {}
        _ => {
            progress.aside(|| complain_of(&revoked, &not_revoked(&shown)));
            return Ok(Outcome::Failed);
        }
    }
    let path = status_path(name, force);
    let deleted = client.call(Method::DELETE, &path, None).await?;
    progress.aside(|| match deleted.status {
        StatusCode::OK | StatusCode::NO_CONTENT => {
            output::line(&format!("Cleaned files related to {shown}"))?;
            Ok(match revoked.status {
                StatusCode::CONFLICT => Outcome::Inapplicable,
                _ => Outcome::Done,
            })
        }
        StatusCode::NOT_FOUND => {
            complain(&format!(
                "Error:\n    Could not find files to clean for {shown}"
            ));
            Ok(Outcome::Failed)
        }
        _ => {
            let sentence =
                format!("Error:\n    When attempting to clean certificate '{shown}', received:");
            complain_of(&deleted, &sentence);
            Ok(Outcome::Failed)
        }
    })
}

fn exit_code(outcomes: &[Outcome]) -> u8 {
    if outcomes.contains(&Outcome::Failed) {
        FAILED
    } else if outcomes.contains(&Outcome::Inapplicable) {
        NOTHING_TO_DO
    } else {
        OK
    }
}

async fn put_status(client: &mut Client, name: &str, body: &Value) -> Result<Reply> {
    let path = status_path(name, false);
    Ok(client.call(Method::PUT, &path, Some(body)).await?)
}

async fn put_revoked(client: &mut Client, name: &str, force: bool) -> Result<Reply> {
    let body = json!({"desired_state": "revoked"});
    let path = status_path(name, force);
    Ok(client.call(Method::PUT, &path, Some(&body)).await?)
}

fn status_path(name: &str, force: bool) -> String {
    let query = if force { "?force=true" } else { "" };
    format!("{PREFIX}/certificate_status/{}{query}", path_segment(name))
}

fn complain_of(reply: &Reply, sentence: &str) {
    complain(sentence);
    complain(&format!("      code: {}", reply.status.as_u16()));
    if !reply.body.is_empty() {
        complain(&format!("      body: {}", terminal_safe(&reply.text())));
    }
}

const PREFIX: &str = "/puppet-ca/v1";
const STATUSES: &str = "/puppet-ca/v1/certificate_statuses/any_key";
const OK: u8 = 0;
const FAILED: u8 = 1;
/// Nothing to do, or not applicable to all.
const NOTHING_TO_DO: u8 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    const STATUSES: &str = r#"[
        {"name":"new","state":"requested","fingerprints":{"SHA256":"AA:BB"},"dns_alt_names":[],"subject_alt_names":[]},
        {"name":"web01.example","state":"signed","serial_number":340282366920938463463374607431768211455,
         "fingerprints":{"SHA256":"CC:DD"},"dns_alt_names":["DNS:web01.example"],"subject_alt_names":["IP:192.0.2.1","DNS:web01.example"],
         "authorization_extensions":{"pp_auth_role":"compiler","pp_cli_auth":"true"}},
        {"name":"e\u001bil","state":"signed","fingerprints":{"SHA256":"EE:FF"},"dns_alt_names":["DNS:x"]},
        {"name":"old","state":"revoked","fingerprints":{"SHA256":"11:22"}}
    ]"#;

    fn groups(choice: &Choice) -> Groups {
        let reply = Reply {
            status: StatusCode::OK,
            headers: http::HeaderMap::new(),
            body: STATUSES.into(),
        };
        Groups::new(&reply, choice).unwrap()
    }

    #[test]
    fn lists_as_puppetserver_ca_does() {
        assert_eq!(
            groups(&Choice::All).text(),
            "Requested Certificates:\n\
             \x20   new       (SHA256)  AA:BB\n\
             Signed Certificates:\n\
             \x20   web01.example       (SHA256)  CC:DD\talt names: [\"IP:192.0.2.1\", \"DNS:web01.example\"]\tauthorization extensions: [pp_auth_role: compiler, pp_cli_auth: true]\n\
             \x20   e\\u{1b}il           (SHA256)  EE:FF\talt names: [\"DNS:x\"]\n\
             Revoked Certificates:\n\
             \x20   old       (SHA256)  11:22"
        );
        assert_eq!(Groups::default().text(), "No certificates to list");
    }

    #[test]
    fn names_that_are_not_there_are_missing() {
        let choice = Choice::Names(vec!["old".to_owned(), "gone".to_owned()]);
        let groups = groups(&choice);
        assert_eq!(
            groups.text(),
            "Revoked Certificates:\n    old       (SHA256)  11:22\nMissing Certificates:\n    gone"
        );
        let json = groups.json(&choice).unwrap();
        let keys: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            keys.as_object().unwrap().keys().collect::<Vec<_>>(),
            ["missing", "revoked"]
        );
    }

    #[test]
    fn json_keeps_the_servers_numbers() {
        let json = groups(&Choice::All).json(&Choice::All).unwrap();
        assert!(
            json.contains(":340282366920938463463374607431768211455"),
            "{json}"
        );
        assert_eq!(
            Groups::default().json(&Choice::All).unwrap(),
            r#"{"requested":[],"signed":[],"revoked":[]}"#
        );
        assert_eq!(
            Groups::default().json(&Choice::Requested).unwrap(),
            r#"{"requested":[]}"#
        );
    }

    #[test]
    fn bulk_signing_needs_a_version() {
        for (text, number) in [
            ("8.4.0", Some([8, 4, 0])),
            ("8.11.0-SNAPSHOT", Some([8, 11, 0])),
            ("8.4", None),
            ("x.y.z", None),
            ("", None),
        ] {
            assert_eq!(version_number(text), number, "{text}");
        }
        assert!(
            version_number("8.3.9") < Some([8, 4, 0]) && version_number("10.0.0") > Some([8, 4, 0])
        );
    }
}
